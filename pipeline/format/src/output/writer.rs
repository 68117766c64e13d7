//! The output of one joiner incarnation, as its joiner writes it.
//!
//! Invariant: `write_block` returns `Ok` only when the block and its index entry are durable, in
//! this order, and the directory was still in its place afterwards. Whoever answers a click before
//! that may answer for a line that a fence has cut off.
//!
//! Not here: batching into blocks and threads (the joiner's). All calls block; any failure ends the
//! writer, since a failed write is never tried again.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use photon_disk::lock::LockFile;
use photon_disk::{DiskError, durable};
use photon_types::{EventKey, Incarnation};

use super::entry::{BLOCK_BYTES_MAX, BLOCK_CLICKS_MAX, EntryClick, IndexEntry};
use super::error::OutputError;
use super::fence::{Finish, finish};
use super::files::Files;
use super::layout::{
    HIDDEN_SUFFIX, Identity, MANIFEST, SEGMENT_NUMBER_END, ensure_directory, file_names, finished_path, index_path,
    live_path, open_path, sealed_path,
};
use super::manifest::{DirectoryId, Manifest, StoredManifest};
use super::seal::{FIRST_SEGMENT, Put, SealRecord, SealedSegment};

/// How often a hidden directory is made anew when another joiner cleans it away.
const ATTEMPTS_MAX: u32 = 16;

/// How a writer writes.
#[derive(Clone, Debug)]
pub struct OutputOptions {
    /// A segment that has this many bytes gets no more blocks.
    pub segment_bytes_max: u64,
    /// The file system.
    pub files: Files,
}

impl Default for OutputOptions {
    fn default() -> OutputOptions {
        OutputOptions { segment_bytes_max: 64 * 1024 * 1024, files: Files::default() }
    }
}

/// The rows of one click.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineEntry {
    /// The sequence number of its token.
    pub sequence: u64,
    /// Its key.
    pub key: EventKey,
    /// Its rows, each with its newline.
    pub line: Vec<u8>,
}

/// Where a block was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockPosition {
    /// The segment, from 1.
    pub segment: u64,
    /// The block in the segment, from 0.
    pub block: u64,
}

/// The owner of an incarnation's directory. Dropping it ends the lock, and is no clean end.
#[derive(Debug)]
pub struct OutputWriter {
    files: Files,
    directory: PathBuf,
    identity: Identity,
    incarnation: Incarnation,
    segment: OpenSegment,
    /// The finished segments.
    finished: Vec<SealedSegment>,
    segment_bytes_max: u64,
    stopped: bool,
    _lock: LockFile,
}

#[derive(Debug)]
struct OpenSegment {
    number: u64,
    data: File,
    data_path: PathBuf,
    data_end: u64,
    index: File,
    index_path: PathBuf,
    index_end: u64,
    index_crc: Hasher,
    /// Its blocks, for the last look at the data.
    entries: u64,
}

impl OutputWriter {
    /// Makes the directory of an incarnation, durable and with its lock held. No insert may be sent
    /// before this has returned.
    ///
    /// # Errors
    /// [`OutputError::Exists`] when the incarnation was there before, [`OutputError::Disk`].
    pub fn create(
        output_root: &Path,
        manifest: &Manifest,
        options: OutputOptions,
    ) -> Result<OutputWriter, OutputError> {
        let OutputOptions { segment_bytes_max, files } = options;
        let live = output_root.join("live");
        durable::create_dir_all_durable(durable::parent_of(output_root))?;
        for path in [output_root, &live, &output_root.join("sealed")] {
            ensure_directory(&files, path)?;
        }
        remove_abandoned(&files, &live)?;
        let incarnation = manifest.incarnation;
        let directory = live_path(output_root, incarnation);
        let sealed = sealed_path(output_root, incarnation);
        for path in [&directory, &sealed] {
            if Identity::at(path)?.is_some() {
                return Err(OutputError::Exists { path: path.clone() });
            }
        }
        let (hidden, lock) = make_hidden(&files, &live, incarnation)?;
        write_manifest(&files, &hidden, manifest)?;
        let mut segment = OpenSegment::create(&files, &hidden, FIRST_SEGMENT)?;
        segment.moved_to(&directory);
        let identity = Identity::at(&hidden)?.ok_or_else(|| OutputError::Moved { path: hidden.clone() })?;
        files.rename(&hidden, &directory)?;
        files.sync_directory(&live)?;
        Ok(OutputWriter {
            files,
            directory,
            identity,
            incarnation,
            segment,
            finished: Vec::new(),
            segment_bytes_max,
            stopped: false,
            _lock: lock,
        })
    }

    /// Whose output this is.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Where it is written.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes one block and its index entry, each synced, and looks whether the directory is still
    /// there. Only then the clicks may be answered. Nothing to write is a bug.
    ///
    /// # Errors
    /// [`OutputError::Fenced`]: exit without an answer. [`OutputError::Limit`] when the block is too
    /// large: nothing was written. Anything else, too, ends the writer.
    pub fn write_block(&mut self, lines: &[LineEntry]) -> Result<BlockPosition, OutputError> {
        if self.stopped {
            return Err(OutputError::Stopped { path: self.directory.clone() });
        }
        let block = Block::of(lines)?;
        self.stopped = true;
        let position = self.try_write(&block).map_err(|error| self.explain(error))?;
        self.stopped = false;
        Ok(position)
    }

    fn try_write(&mut self, block: &Block) -> Result<BlockPosition, OutputError> {
        if self.segment_bytes_max <= self.segment.data_end {
            self.roll_over()?;
        }
        let number = self.segment.append(&self.files, block)?;
        self.check_in_place()?;
        Ok(BlockPosition { segment: self.segment.number, block: number })
    }

    /// The next segment is there, durable, before this one gets its final name: a directory without
    /// an open segment would look the same as one that lost it.
    fn roll_over(&mut self) -> Result<(), OutputError> {
        let number = self.segment.number + 1;
        if SEGMENT_NUMBER_END <= number {
            return Err(OutputError::Limit { what: "segment number", found: number, max: SEGMENT_NUMBER_END - 1 });
        }
        let next = OpenSegment::create(&self.files, &self.directory, number)?;
        let last = std::mem::replace(&mut self.segment, next);
        let finished = finished_path(&self.directory, last.number);
        self.files.link(&last.data_path, &finished)?;
        self.files.sync_directory(&self.directory)?;
        self.files.unlink(&last.data_path)?;
        self.finished.push(last.sealed());
        Ok(())
    }

    /// The clean end: says what exists, then gives the last segment its final name. All attempts
    /// have ended before.
    ///
    /// # Errors
    /// As [`OutputWriter::write_block`]. The output is safe all the same, and a verifier can fence it.
    pub fn seal(mut self) -> Result<(), OutputError> {
        if self.stopped {
            return Err(OutputError::Stopped { path: self.directory });
        }
        self.try_seal().map_err(|error| self.explain(error))
    }

    fn try_seal(&mut self) -> Result<(), OutputError> {
        self.check_in_place()?;
        let last = self.segment.sealed();
        let segments = self.finished.iter().copied().chain([last]).collect();
        let record = SealRecord { incarnation: self.incarnation, segments };
        match record.put(&self.files, &self.directory)? {
            Put::Ours => (),
            Put::Another => return Err(OutputError::Fenced { path: self.directory.clone() }),
        }
        self.check_in_place()?;
        // Its own blocks need no second reading: no entries, so only the length is compared.
        match finish(&self.files, &self.directory, last, &[], Finish::Link)? {
            None => Ok(()),
            Some(reason) => {
                let path = finished_path(&self.directory, last.number);
                Err(DiskError::Damage { path, offset: last.data_bytes, reason }.into())
            }
        }
    }

    /// A fence moves the directory; a look at the path is all it takes to know.
    fn check_in_place(&self) -> Result<(), OutputError> {
        match Identity::at(&self.directory)? {
            Some(now) if now == self.identity => Ok(()),
            Some(_) | None => Err(OutputError::Fenced { path: self.directory.clone() }),
        }
    }

    /// A path that is gone with its directory was fenced away.
    fn explain(&self, error: OutputError) -> OutputError {
        match self.check_in_place() {
            Err(fenced @ OutputError::Fenced { .. }) => fenced,
            Ok(()) | Err(_) => error,
        }
    }
}

impl OpenSegment {
    /// Both files, synced, and their names.
    fn create(files: &Files, directory: &Path, number: u64) -> Result<OpenSegment, OutputError> {
        let (data_path, index_path) = (open_path(directory, number), index_path(directory, number));
        let index = files.create_file(&index_path)?;
        files.sync_file(&index, &index_path)?;
        let data = files.create_file(&data_path)?;
        files.sync_file(&data, &data_path)?;
        files.sync_directory(directory)?;
        Ok(OpenSegment {
            number,
            data,
            data_path,
            data_end: 0,
            index,
            index_path,
            index_end: 0,
            index_crc: Hasher::new(),
            entries: 0,
        })
    }

    fn moved_to(&mut self, directory: &Path) {
        self.data_path = open_path(directory, self.number);
        self.index_path = index_path(directory, self.number);
    }

    /// Returns the block's number.
    fn append(&mut self, files: &Files, block: &Block) -> Result<u64, OutputError> {
        let Block { bytes, length, clicks } = block;
        files.write(&self.data, &self.data_path, self.data_end, bytes)?;
        files.sync_file(&self.data, &self.data_path)?;
        let number = self.entries;
        let entry = IndexEntry {
            number,
            offset: self.data_end,
            length: *length,
            crc: crc32fast::hash(bytes),
            clicks: clicks.clone(),
        };
        let encoded = entry.encode();
        files.write(&self.index, &self.index_path, self.index_end, &encoded)?;
        files.sync_file(&self.index, &self.index_path)?;
        self.data_end = entry.end();
        self.index_end += encoded.len() as u64;
        self.index_crc.update(&encoded);
        self.entries += 1;
        Ok(number)
    }

    fn sealed(&self) -> SealedSegment {
        SealedSegment {
            number: self.number,
            data_bytes: self.data_end,
            index_bytes: self.index_end,
            entries: self.entries,
            index_crc: self.index_crc.clone().finalize(),
        }
    }
}

struct Block {
    bytes: Vec<u8>,
    length: u32,
    clicks: Vec<EntryClick>,
}

impl Block {
    fn of(lines: &[LineEntry]) -> Result<Block, OutputError> {
        assert!(!lines.is_empty(), "a block has a click");
        let limit = |what, found: usize, max: usize| match found <= max {
            true => Ok(()),
            false => Err(OutputError::Limit { what, found: found as u64, max: max as u64 }),
        };
        limit("clicks in a block", lines.len(), BLOCK_CLICKS_MAX)?;
        let total = lines.iter().map(|entry| entry.line.len()).sum();
        limit("bytes in a block", total, BLOCK_BYTES_MAX)?;
        let mut bytes = Vec::with_capacity(total);
        let mut clicks = Vec::with_capacity(lines.len());
        for LineEntry { sequence, key, line } in lines {
            assert!(line.ends_with(b"\n"), "the rows of {key} do not end with a newline");
            bytes.extend_from_slice(line);
            let count = u32::try_from(line.len()).expect("BLOCK_BYTES_MAX < 2^32");
            clicks.push(EntryClick { sequence: *sequence, key: key.clone(), bytes: count });
        }
        let length = u32::try_from(total).expect("BLOCK_BYTES_MAX < 2^32");
        Ok(Block { bytes, length, clicks })
    }
}

/// A directory that is not there yet, with its lock held.
fn make_hidden(files: &Files, live: &Path, incarnation: Incarnation) -> Result<(PathBuf, LockFile), OutputError> {
    for attempt in 0..ATTEMPTS_MAX {
        let hidden = live.join(format!(".{incarnation}-{attempt}{HIDDEN_SUFFIX}"));
        match files.create_directory(&hidden) {
            Ok(()) => (),
            Err(error) if error.is(io::ErrorKind::AlreadyExists) => continue,
            Err(error) => return Err(error),
        }
        // Between the two steps another joiner may take it for left behind.
        match LockFile::try_exclusive(&hidden.join(durable::LOCK_NAME)) {
            Ok(lock) => return Ok((hidden, lock)),
            Err(DiskError::Busy { .. }) => (),
            Err(error) if error.is_not_found() => (),
            Err(error) => return Err(error.into()),
        }
    }
    Err(OutputError::Contended { path: live.to_owned(), attempts: ATTEMPTS_MAX })
}

/// Says which directory this is while nobody else looks at it. A rename does not change that.
fn write_manifest(files: &Files, hidden: &Path, manifest: &Manifest) -> Result<(), OutputError> {
    let directory = DirectoryId::at(hidden)?.ok_or_else(|| OutputError::Moved { path: hidden.to_owned() })?;
    let stored = StoredManifest { manifest: manifest.clone(), directory };
    let path = hidden.join(MANIFEST);
    let file = files.create_file(&path)?;
    files.write(&file, &path, 0, &stored.encode())?;
    files.sync_file(&file, &path)
}

/// Removes what joiners left that died before their directory was there. The lock goes last, so that
/// nobody makes another one meanwhile.
fn remove_abandoned(files: &Files, live: &Path) -> Result<(), OutputError> {
    for name in file_names(live)?.unwrap_or_default() {
        if !name.starts_with('.') || !name.ends_with(HIDDEN_SUFFIX) {
            continue;
        }
        let hidden = live.join(&name);
        let lock_path = hidden.join(durable::LOCK_NAME);
        let _lock = match LockFile::try_exclusive(&lock_path) {
            Ok(lock) => lock,
            // It is being made, or has just got its name.
            Err(DiskError::Busy { .. }) => continue,
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error.into()),
        };
        for name in file_names(&hidden)?.unwrap_or_default() {
            if name != durable::LOCK_NAME {
                files.unlink_if_there(&hidden.join(name))?;
            }
        }
        files.unlink_if_there(&lock_path)?;
        match files.remove_directory(&hidden) {
            Ok(()) => (),
            Err(error) if error.is(io::ErrorKind::NotFound) || error.is(io::ErrorKind::DirectoryNotEmpty) => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

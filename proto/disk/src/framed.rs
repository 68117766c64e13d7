//! The framed append file: records behind one another, each under a crc.
//!
//! Invariant: a record that [`FramedWriter::sync`] covered is read back by every later open, or the
//! open says [`DiskError::Damage`]. Each record's head says how far the file was synced when it was
//! appended; a bad record below the highest of these was durable once and is *damage*; one at or
//! above it is a *torn tail*, which is cut and reported. (A last record that was synced, and rotted
//! before another was appended, can not be told from a torn one.)
//!
//! Not here: what the records mean; exclusion of a second writer (hold the directory's lock).

use std::collections::hash_map::RandomState;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::durable;
use crate::error::DiskError;
use crate::frame::{FILE_HEAD_BYTES, FRAME_VERSION, FileHead, RECORD_HEAD_BYTES, RECORD_MAGIC, RecordHead};
use crate::window::Window;

/// The longest body of a record.
pub const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// So many bytes may wait in memory before they are written (not synced).
const BUFFER_BYTES_MAX: usize = 1024 * 1024;
/// How much is rewritten at once.
const REWRITE_BYTES: usize = 256 * 1024;

const _: () = assert!(BODY_BYTES_MAX < u32::MAX as usize);

/// What a file holds, and in which version. Another one's is refused by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Four letters that name the use, as in `u32::from_be_bytes(*b"ends")`.
    pub kind: u32,
    /// The version of the bodies.
    pub version: u32,
}

/// What a file held when it was opened or read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The bodies, in order.
    pub records: Vec<Vec<u8>>,
    /// Bytes behind the last good record: never synced, cut by [`FramedWriter::open`].
    pub torn_bytes: u64,
}

/// The owner's handle.
#[derive(Debug)]
pub struct FramedWriter {
    file: File,
    path: PathBuf,
    nonce: u64,
    /// Appended, not yet written. Begins at `written`.
    buffer: Vec<u8>,
    /// Bytes handed to the operating system.
    written: u64,
    /// Bytes on stable storage; at most `written`.
    synced: u64,
    poisoned: bool,
}

impl FramedWriter {
    /// Opens the file, or makes it; reads it whole, cuts a torn tail, and makes what is left durable.
    ///
    /// # Errors
    /// [`DiskError::Format`] for a file of another kind or version, [`DiskError::Damage`],
    /// [`DiskError::Io`].
    pub fn open(path: &Path, format: Format) -> Result<(FramedWriter, Content), DiskError> {
        let mut records = Vec::new();
        let (writer, torn_bytes) = FramedWriter::open_with(path, format, |body| records.push(body.to_vec()))?;
        Ok((writer, Content { records, torn_bytes }))
    }

    /// As [`FramedWriter::open`], with one record in memory at a time. Returns the torn bytes.
    ///
    /// # Errors
    /// As [`FramedWriter::open`].
    pub fn open_with(path: &Path, format: Format, visit: impl FnMut(&[u8])) -> Result<(FramedWriter, u64), DiskError> {
        if !path.try_exists().map_err(DiskError::io("stat of", path))? {
            match durable::write_new(path, &new_head(format).encode()) {
                Ok(()) | Err(DiskError::Exists { .. }) => (),
                Err(error) => return Err(error),
            }
        }
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(DiskError::io("opening", path))?;
        let scanned = scan(&file, path, format, visit)?;
        rewrite(&file, path, scanned.synced, scanned.end)?;
        file.set_len(scanned.end).map_err(DiskError::io("cutting", path))?;
        file.sync_all().map_err(DiskError::io("fsync of", path))?;
        // The name, too: a crash may have come between link and fsync of the directory.
        durable::sync_dir(durable::parent_of(path))?;
        let torn_bytes = scanned.file_bytes - scanned.end;
        Ok((FramedWriter::at(file, path, scanned.nonce, scanned.end), torn_bytes))
    }

    /// Replaces the file by one with these records: how a store is compacted. The old content stands
    /// until the new one is durable.
    ///
    /// # Errors
    /// [`DiskError::TooLarge`], [`DiskError::Io`].
    pub fn replace<B: AsRef<[u8]>>(
        path: &Path,
        format: Format,
        records: impl IntoIterator<Item = B>,
    ) -> Result<FramedWriter, DiskError> {
        let hidden = durable::hidden_name(path);
        let head = new_head(format);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&hidden)
            .map_err(DiskError::io("creating", &hidden))?;
        file.write_all_at(&head.encode(), 0).map_err(DiskError::io("writing", &hidden))?;
        let mut writer = FramedWriter::at(file, &hidden, head.nonce, FILE_HEAD_BYTES as u64);
        for record in records {
            writer.append(record.as_ref())?;
        }
        writer.sync()?;
        std::fs::rename(&hidden, path).map_err(DiskError::io("renaming into place", path))?;
        durable::sync_dir(durable::parent_of(path))?;
        path.clone_into(&mut writer.path);
        Ok(writer)
    }

    fn at(file: File, path: &Path, nonce: u64, end: u64) -> FramedWriter {
        let path = path.to_owned();
        FramedWriter { file, path, nonce, buffer: Vec::new(), written: end, synced: end, poisoned: false }
    }

    /// Appends a record. It is durable, and sure to be read back, only after [`FramedWriter::sync`].
    ///
    /// # Errors
    /// [`DiskError::TooLarge`] (nothing is written, the file stays good), [`DiskError::Io`],
    /// [`DiskError::Poisoned`].
    pub fn append(&mut self, body: &[u8]) -> Result<(), DiskError> {
        self.refuse_poisoned()?;
        if BODY_BYTES_MAX < body.len() {
            let (bytes, bytes_max) = (body.len() as u64, BODY_BYTES_MAX as u64);
            return Err(DiskError::TooLarge { path: self.path.clone(), bytes, bytes_max });
        }
        let head = RecordHead {
            version: FRAME_VERSION,
            body_bytes: u32::try_from(body.len()).expect("BODY_BYTES_MAX < 2^32"),
            synced: self.synced,
            body_crc: crc32fast::hash(body),
        };
        self.buffer.extend_from_slice(&head.encode(self.nonce, self.bytes()));
        self.buffer.extend_from_slice(body);
        if BUFFER_BYTES_MAX <= self.buffer.len() { self.write() } else { Ok(()) }
    }

    /// Makes all that was appended durable. Free when there is nothing new.
    ///
    /// # Errors
    /// [`DiskError::Io`], [`DiskError::Poisoned`]: nothing more will be written, the process should
    /// end.
    pub fn sync(&mut self) -> Result<(), DiskError> {
        self.refuse_poisoned()?;
        if self.synced == self.bytes() {
            return Ok(());
        }
        self.write()?;
        // Poisoned first: whatever way this function is left, a failed sync is never repeated.
        self.poisoned = true;
        self.file.sync_data().map_err(DiskError::io("fdatasync of", &self.path))?;
        self.poisoned = false;
        self.synced = self.written;
        Ok(())
    }

    /// Length of the file with all that was appended.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self) -> Result<(), DiskError> {
        self.poisoned = true;
        self.file.write_all_at(&self.buffer, self.written).map_err(DiskError::io("writing", &self.path))?;
        self.poisoned = false;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn refuse_poisoned(&self) -> Result<(), DiskError> {
        if self.poisoned { Err(DiskError::Poisoned { path: self.path.clone() }) } else { Ok(()) }
    }
}

/// Reads somebody's file, changes nothing, and makes what it returns durable before it returns:
/// whoever counts a record first makes sure that it stays.
///
/// # Errors
/// As [`FramedWriter::open`]; a file that is not there is an [`DiskError::Io`].
pub fn read(path: &Path, format: Format) -> Result<Content, DiskError> {
    let mut records = Vec::new();
    let torn_bytes = read_with(path, format, |body| records.push(body.to_vec()))?;
    Ok(Content { records, torn_bytes })
}

/// As [`read`], with one record in memory at a time. What was visited counts only when this has
/// returned `Ok`. Returns the torn bytes.
///
/// # Errors
/// As [`read`].
pub fn read_with(path: &Path, format: Format, visit: impl FnMut(&[u8])) -> Result<u64, DiskError> {
    let file = File::open(path).map_err(DiskError::io("opening", path))?;
    let scanned = scan(&file, path, format, visit)?;
    file.sync_data().map_err(DiskError::io("fdatasync of", path))?;
    Ok(scanned.file_bytes - scanned.end)
}

struct Scanned {
    nonce: u64,
    /// The end of the last good record.
    end: u64,
    /// The highest `synced` that a record states; at most `end`.
    synced: u64,
    file_bytes: u64,
}

fn scan(file: &File, path: &Path, format: Format, mut visit: impl FnMut(&[u8])) -> Result<Scanned, DiskError> {
    let head = read_file_head(file, path, format)?;
    let mut reader = Window::open(file, path)?;
    let file_bytes = reader.file_bytes();
    let mut end = FILE_HEAD_BYTES as u64;
    let mut synced = end;
    let bad = loop {
        if end == file_bytes {
            break None;
        }
        let Some(bytes) = reader.at(end, RECORD_HEAD_BYTES)? else { break Some("a record's head is cut short") };
        let bytes = bytes.try_into().expect("RECORD_HEAD_BYTES were asked for");
        let Some(record) = RecordHead::decode(bytes, head.nonce, end) else { break Some("a record's head is bad") };
        if record.version != FRAME_VERSION {
            let found = format!("a framed file with a record of version {} at offset {end}", record.version);
            let expected = format!("version {FRAME_VERSION}");
            return Err(DiskError::Format { path: path.to_owned(), found, expected });
        }
        let body_at = end + RECORD_HEAD_BYTES as u64;
        let Some(body) = reader.at(body_at, record.body_bytes as usize)? else { break Some("a record is cut short") };
        if crc32fast::hash(body) != record.body_crc {
            break Some("a record's body does not have its crc");
        }
        visit(body);
        synced = synced.max(record.synced);
        end = body_at + u64::from(record.body_bytes);
    };
    if let Some(reason) = bad {
        let stated = highest_synced_behind(&mut reader, head.nonce, end)?;
        if end < stated {
            let reason = format!("{reason}, and a later record says that {stated} bytes were durable");
            return Err(DiskError::Damage { path: path.to_owned(), offset: end, reason });
        }
        synced = synced.max(stated);
    }
    Ok(Scanned { nonce: head.nonce, end, synced: synced.min(end), file_bytes })
}

fn read_file_head(file: &File, path: &Path, format: Format) -> Result<FileHead, DiskError> {
    let damage = |reason: &str| DiskError::Damage { path: path.to_owned(), offset: 0, reason: reason.to_owned() };
    let mut bytes = [0; FILE_HEAD_BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => (),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Err(damage("the head of the file is cut short"));
        }
        Err(error) => return Err(DiskError::io("reading", path)(error)),
    }
    let head =
        FileHead::decode(&bytes).ok_or_else(|| damage("the head of the file is bad, or it is no framed file"))?;
    if (head.kind, head.version) != (format.kind, format.version) {
        let name = |kind: u32, version| format!("a framed file of kind {:?}, version {version}", kind_text(kind));
        let (found, expected) = (name(head.kind, head.version), name(format.kind, format.version));
        return Err(DiskError::Format { path: path.to_owned(), found, expected });
    }
    Ok(head)
}

/// The highest `synced` of good heads at any byte behind `from`.
fn highest_synced_behind(reader: &mut Window<'_>, nonce: u64, from: u64) -> Result<u64, DiskError> {
    let mut highest = 0;
    let mut at = from + 1;
    loop {
        let bytes = reader.from(at)?;
        let Some(last) = bytes.len().checked_sub(RECORD_HEAD_BYTES) else { break };
        for (offset, head) in (at..).zip(bytes.windows(RECORD_HEAD_BYTES)) {
            if !head.starts_with(RECORD_MAGIC) {
                continue;
            }
            let head = head.try_into().expect("a window of RECORD_HEAD_BYTES");
            if let Some(record) = RecordHead::decode(head, nonce, offset) {
                highest = highest.max(record.synced);
            }
        }
        at += last as u64 + 1;
    }
    Ok(highest)
}

/// Writes bytes that are there once more: what was read back after a kill may come from a page that
/// the kernel failed to write and calls clean. The page cache is not the disk.
fn rewrite(file: &File, path: &Path, from: u64, end: u64) -> Result<(), DiskError> {
    let mut bytes = vec![0; REWRITE_BYTES];
    let mut at = from;
    while at < end {
        let count = usize::try_from(end - at).unwrap_or(usize::MAX).min(REWRITE_BYTES);
        file.read_exact_at(&mut bytes[..count], at).map_err(DiskError::io("reading", path))?;
        file.write_all_at(&bytes[..count], at).map_err(DiskError::io("writing", path))?;
        at += count as u64;
    }
    Ok(())
}

fn new_head(format: Format) -> FileHead {
    // Keys that the standard library draws from the system for its hash maps.
    let nonce = RandomState::new().build_hasher().finish();
    FileHead { kind: format.kind, version: format.version, nonce }
}

fn kind_text(kind: u32) -> String {
    kind.to_be_bytes().escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ENDS: Format = Format { kind: u32::from_be_bytes(*b"ends"), version: 1 };

    fn file_of(dir: &tempfile::TempDir) -> PathBuf {
        dir.path().join("ends")
    }

    /// One record per body, each synced.
    fn write_synced(path: &Path, bodies: &[&[u8]]) -> Vec<u64> {
        let (mut writer, _) = FramedWriter::open(path, ENDS).unwrap();
        let mut starts = Vec::new();
        for body in bodies {
            starts.push(writer.bytes());
            writer.append(body).unwrap();
            writer.sync().unwrap();
        }
        starts
    }

    fn alter(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = std::fs::read(path).unwrap();
        change(&mut bytes);
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn records_go_round_over_many_opens() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_of(&dir);
        let long = vec![7; 3 * REWRITE_BYTES];
        write_synced(&path, &[b"one", b"", &long]);
        write_synced(&path, &[b"two"]);
        let want = Content { records: vec![b"one".to_vec(), vec![], long, b"two".to_vec()], torn_bytes: 0 };
        assert_eq!(read(&path, ENDS).unwrap(), want);
        assert_eq!(FramedWriter::open(&path, ENDS).unwrap().1, want);
    }

    #[test]
    fn replaced_files_hold_the_new_records_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_of(&dir);
        write_synced(&path, &[b"one", b"two"]);
        let mut writer = FramedWriter::replace(&path, ENDS, [b"two"]).unwrap();
        writer.append(b"three").unwrap();
        writer.sync().unwrap();
        assert_eq!(read(&path, ENDS).unwrap().records, [b"two".to_vec(), b"three".to_vec()]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn another_kind_version_or_file_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_of(&dir);
        write_synced(&path, &[b"one"]);
        for other in [Format { version: 2, ..ENDS }, Format { kind: u32::from_be_bytes(*b"rtry"), ..ENDS }] {
            let error = FramedWriter::open(&path, other).unwrap_err();
            assert!(matches!(error, DiskError::Format { .. }), "{error}");
        }
        for content in [&b""[..], b"x", b"a text file that is longer than a head of a framed file"] {
            std::fs::write(&path, content).unwrap();
            let error = FramedWriter::open(&path, ENDS).unwrap_err();
            assert!(matches!(error, DiskError::Damage { offset: 0, .. }), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), content);
        }
    }

    #[test]
    fn every_cut_of_the_last_record_is_a_torn_tail() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_of(&dir);
        let starts = write_synced(&path, &[b"one", b"two"]);
        let whole = std::fs::read(&path).unwrap();
        for end in usize::try_from(starts[1]).unwrap()..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            let torn_bytes = end as u64 - starts[1];
            let want = Content { records: vec![b"one".to_vec()], torn_bytes };
            assert_eq!(read(&path, ENDS).unwrap(), want, "cut at {end}");
            let (mut writer, content) = FramedWriter::open(&path, ENDS).unwrap();
            assert_eq!(content, want, "cut at {end}");
            writer.append(b"again").unwrap();
            writer.sync().unwrap();
            assert_eq!(read(&path, ENDS).unwrap().records, [b"one".to_vec(), b"again".to_vec()]);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_covered_record_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_of(&dir);
        let starts = write_synced(&path, &[b"one", b"two", b"three"]);
        let whole = std::fs::read(&path).unwrap();
        for at in starts[1]..starts[2] {
            let at = usize::try_from(at).unwrap();
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                std::fs::write(&path, &bytes).unwrap();
                let error = FramedWriter::open(&path, ENDS).unwrap_err();
                assert!(
                    matches!(error, DiskError::Damage { offset, .. } if offset == starts[1]),
                    "{at}.{bit}: {error}"
                );
                assert_eq!(std::fs::read(&path).unwrap(), bytes, "damage is left as it is");
            }
        }
    }

    #[test]
    fn records_of_one_sync_are_torn_together() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_of(&dir);
        let (mut writer, _) = FramedWriter::open(&path, ENDS).unwrap();
        writer.append(b"one").unwrap();
        writer.sync().unwrap();
        let synced = writer.bytes();
        writer.append(b"two").unwrap();
        writer.append(b"three").unwrap();
        writer.sync().unwrap();
        drop(writer);
        // The disk kept the later sector and lost the earlier one, before the sync returned.
        alter(&path, |bytes| bytes[usize::try_from(synced).unwrap()] ^= 1);
        let content = FramedWriter::open(&path, ENDS).unwrap().1;
        assert_eq!(content.records, [b"one".to_vec()]);
        assert_eq!(content.torn_bytes, 2 * 32 + 8);
        // The records behind it are gone for good, not hidden.
        assert_eq!(std::fs::metadata(&path).unwrap().len(), synced);
    }

    #[test]
    fn a_record_inside_a_record_is_not_taken_for_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_of(&dir);
        write_synced(&path, &[b"one", b"two"]);
        let inner = std::fs::read(&path).unwrap();
        let starts = write_synced(&path, &[&inner]);
        alter(&path, |bytes| bytes[usize::try_from(starts[0]).unwrap()] ^= 1);
        assert_eq!(FramedWriter::open(&path, ENDS).unwrap().1.torn_bytes, 32 + inner.len() as u64);
    }

    #[test]
    fn a_body_beyond_the_limit_is_refused_and_the_file_stays_good() {
        let dir = tempfile::tempdir().unwrap();
        let path = file_of(&dir);
        let (mut writer, _) = FramedWriter::open(&path, ENDS).unwrap();
        let error = writer.append(&vec![0; BODY_BYTES_MAX + 1]).unwrap_err();
        assert!(matches!(error, DiskError::TooLarge { .. }), "{error}");
        writer.append(b"one").unwrap();
        writer.sync().unwrap();
        assert_eq!(read(&path, ENDS).unwrap().records, [b"one".to_vec()]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_bytes_behind_the_head_are_read_without_a_panic(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
            let dir = tempfile::tempdir().unwrap();
            let path = file_of(&dir);
            write_synced(&path, &[b"one"]);
            alter(&path, |bytes| bytes.extend_from_slice(&tail));
            let (_, content) = FramedWriter::open(&path, ENDS).unwrap();
            prop_assert_eq!(content.records, [b"one".to_vec()]);
            prop_assert_eq!(content.torn_bytes, tail.len() as u64);
        }

        /// A power cut at any moment: what was synced is there, in order, and nothing else but a
        /// prefix of what followed.
        #[test]
        fn synced_records_survive(
            lives in proptest::collection::vec((proptest::collection::vec((any::<bool>(), 0_usize..600), 0..8), any::<prop::sample::Index>()), 1..5)
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = file_of(&dir);
            let mut model: Vec<Vec<u8>> = Vec::new();
            for (life, (appends, keep)) in lives.into_iter().enumerate() {
                let (mut writer, content) = FramedWriter::open(&path, ENDS).unwrap();
                prop_assert_eq!(&content.records, &model);
                let (mut synced_bytes, mut synced_records) = (writer.bytes(), model.len());
                for (number, (sync, bytes)) in appends.into_iter().enumerate() {
                    let body = vec![u8::try_from(life * 16 + number).unwrap(); bytes];
                    writer.append(&body).unwrap();
                    model.push(body);
                    if sync {
                        writer.sync().unwrap();
                        (synced_bytes, synced_records) = (writer.bytes(), model.len());
                    }
                }
                writer.write().unwrap();
                let end = synced_bytes + keep.index(usize::try_from(writer.bytes() - synced_bytes).unwrap() + 1) as u64;
                drop(writer);
                alter(&path, |bytes| bytes.truncate(usize::try_from(end).unwrap()));
                let survivors = read(&path, ENDS).unwrap().records;
                prop_assert!(synced_records <= survivors.len());
                prop_assert_eq!(&survivors[..], &model[..survivors.len()]);
                model = survivors;
            }
        }
    }
}

//! Segment files: their names, and groups read from them.
//!
//! Invariant: a segment's name is durable (file and directory synced) before its first group.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use photon_disk::DiskError;
use photon_disk::durable;
use photon_disk::window::Window;

use super::JournalError;
use super::frame::{FrameHead, HEAD_BYTES, HeadCheck, Seed};

const SUFFIX: &str = ".journal";

/// The file of a segment.
pub(super) fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:010}{SUFFIX}"))
}

/// The numbers of the segments in a directory. Other names are left alone.
pub(super) fn list(dir: &Path) -> Result<BTreeSet<u64>, DiskError> {
    let mut numbers = BTreeSet::new();
    for entry in std::fs::read_dir(dir).map_err(DiskError::io("listing", dir))? {
        let name = entry.map_err(DiskError::io("listing", dir))?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)) else { continue };
        let Ok(parsed) = number.parse::<u64>() else { continue };
        // One name per segment: no sign, no other count of zeros.
        if format!("{parsed:010}") == number {
            numbers.insert(parsed);
        }
    }
    Ok(numbers)
}

/// Makes a segment that must not exist, with a durable name.
pub(super) fn create(dir: &Path, number: u64) -> Result<File, DiskError> {
    let path = path_of(dir, number);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(DiskError::io("creating the segment", &path))?;
    file.sync_all().map_err(DiskError::io("fsync of", &path))?;
    durable::sync_dir(dir)?;
    Ok(file)
}

/// Opens a segment for reading and writing; None where it is missing.
pub(super) fn open(dir: &Path, number: u64) -> Result<Option<File>, DiskError> {
    let path = path_of(dir, number);
    match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DiskError::io("opening", &path)(error)),
    }
}

/// Why no good group lies at a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bad(pub &'static str);

/// A whole group of records.
pub(super) struct Group<'a> {
    pub head: FrameHead,
    /// As on disk, with the zeros that fill its last block.
    pub bytes: &'a [u8],
}

impl<'a> Group<'a> {
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEAD_BYTES..HEAD_BYTES + self.head.body_bytes as usize]
    }
}

/// A segment that is read.
pub(super) struct SegmentReader<'a> {
    window: Window<'a>,
    path: &'a Path,
    number: u64,
    seed: &'a Seed,
}

impl<'a> SegmentReader<'a> {
    pub fn new(file: &'a File, path: &'a Path, number: u64, seed: &'a Seed) -> Result<SegmentReader<'a>, DiskError> {
        Ok(SegmentReader { window: Window::open(file, path)?, path, number, seed })
    }

    pub fn file_bytes(&self) -> u64 {
        self.window.file_bytes()
    }

    /// The head of a group, checked by itself.
    ///
    /// # Errors
    /// [`JournalError::Format`] for a head of an unknown version, which is neither good nor bad.
    pub fn head_at(&mut self, offset: u64) -> Result<Result<FrameHead, Bad>, JournalError> {
        let Some(bytes) = self.window.at(offset, HEAD_BYTES)? else {
            return Ok(Err(Bad("the segment ends where a group should begin")));
        };
        match FrameHead::check(bytes.try_into().expect("HEAD_BYTES were asked for"), self.seed) {
            HeadCheck::Good(head) => Ok(Ok(head)),
            HeadCheck::Bad(reason) => Ok(Err(Bad(reason))),
            HeadCheck::UnknownVersion(version) => Err(JournalError::Format {
                file: self.path.to_owned(),
                offset,
                reason: format!("a group of format version {version}, which this build does not know"),
            }),
        }
    }

    /// A group with its body; both crcs and the number of its segment are right.
    ///
    /// # Errors
    /// As [`SegmentReader::head_at`].
    pub fn group_at(&mut self, offset: u64) -> Result<Result<Group<'_>, Bad>, JournalError> {
        let head = match self.head_at(offset)? {
            Ok(head) if head.segment == self.number => head,
            Ok(_) => return Ok(Err(Bad("a group that was written for another segment"))),
            Err(bad) => return Ok(Err(bad)),
        };
        let padded_bytes = usize::try_from(head.padded_bytes()).expect("a body fits BODY_BYTES_MAX");
        let Some(bytes) = self.window.at(offset, padded_bytes)? else {
            return Ok(Err(Bad("the segment ends within a group")));
        };
        let group = Group { head, bytes };
        if self.seed.crc(group.body()) != head.body_crc {
            return Ok(Err(Bad("the body of a group does not have its crc")));
        }
        Ok(Ok(group))
    }
}

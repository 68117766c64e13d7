//! Reading a file forward in large pieces, at offsets of the caller's choice.
//!
//! Invariant: nothing beyond the length that the file had when the window was opened is looked at.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::DiskError;

/// How much is read at once.
const READ_BYTES: usize = 256 * 1024;

/// A piece of a file in memory, moved forward as it is read.
#[derive(Debug)]
pub struct Window<'a> {
    file: &'a File,
    path: PathBuf,
    file_bytes: u64,
    /// Where `bytes` begins in the file.
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    /// A window over the file as long as it is now. `path` is for errors.
    ///
    /// # Errors
    /// [`DiskError::Io`].
    pub fn open(file: &'a File, path: &Path) -> Result<Window<'a>, DiskError> {
        let file_bytes = file.metadata().map_err(DiskError::io("stat of", path))?.len();
        Ok(Window { file, path: path.to_owned(), file_bytes, start: 0, bytes: Vec::new() })
    }

    /// Length of the file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// `count` bytes from `offset`, or None where the file ends before that.
    ///
    /// # Errors
    /// [`DiskError::Io`].
    pub fn at(&mut self, offset: u64, count: usize) -> Result<Option<&[u8]>, DiskError> {
        let Some(end) = offset.checked_add(count as u64).filter(|end| *end <= self.file_bytes) else {
            return Ok(None);
        };
        if offset < self.start || self.start + (self.bytes.len() as u64) < end {
            let wanted = (count.max(READ_BYTES) as u64).min(self.file_bytes - offset);
            self.bytes.resize(usize::try_from(wanted).expect("at most count or READ_BYTES"), 0);
            self.start = offset;
            self.file.read_exact_at(&mut self.bytes, offset).map_err(DiskError::io("reading", &self.path))?;
        }
        let from = usize::try_from(offset - self.start).expect("within the window");
        Ok(Some(&self.bytes[from..from + count]))
    }

    /// All from `offset` on that one read gives; empty at the end of the file.
    ///
    /// # Errors
    /// [`DiskError::Io`].
    pub fn from(&mut self, offset: u64) -> Result<&[u8], DiskError> {
        let rest = self.file_bytes.saturating_sub(offset).min(READ_BYTES as u64);
        let piece = self.at(offset, usize::try_from(rest).expect("at most READ_BYTES"))?;
        Ok(piece.unwrap_or_default())
    }
}

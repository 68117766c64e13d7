//! The mark of a disk that can never vote again.
//!
//! A refusal is found by somebody who remembers, and he may be gone at the next start. So the disk
//! itself keeps it: a file `refused` with the reason.
//!
//! Invariant: a directory with this file is never opened, whatever else stands in it; and the file
//! is written only under the lock of the directory, by the life that was refused.

use std::path::{Path, PathBuf};
use std::sync::Weak;

use photon_disk::lock::LockFile;
use photon_disk::{DiskError, durable};

use super::DataDirError;
use super::identity::{Facts, Kind, encode};

const MARK: Kind = Kind { name: "registry-refused", version: 1 };
const NAME: &str = "refused";
/// Of a reason that is kept: it may come from a peer.
const REASON_BYTES_MAX: usize = 2_000;

/// Writes the mark into a data directory, as long as that is open.
#[derive(Clone, Debug)]
pub struct RefusalMark {
    pub(super) path: PathBuf,
    pub(super) lock: Weak<LockFile>,
}

impl RefusalMark {
    /// The data directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.path
    }

    /// Makes the refusal durable. Does nothing once the directory is closed: it may be another
    /// process's by then.
    ///
    /// # Errors
    /// [`DataDirError::Disk`].
    pub fn write(&self, reason: &str) -> Result<(), DataDirError> {
        let Some(_held) = self.lock.upgrade() else { return Ok(()) };
        let one_line: String = reason.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
        let end = one_line.floor_char_boundary(REASON_BYTES_MAX);
        let text = encode(MARK, &[("reason", one_line[..end].to_owned())]);
        match durable::write_new(&self.path.join(NAME), text.as_bytes()) {
            // The first reason stands. Its writer may not have synced the directory yet.
            Err(DiskError::Exists { .. }) => Ok(durable::sync_dir(&self.path)?),
            result => Ok(result?),
        }
    }

    /// Of a directory that is not open: nothing is ever written.
    #[cfg(test)]
    pub fn nowhere(path: PathBuf) -> RefusalMark {
        RefusalMark { path, lock: Weak::new() }
    }
}

/// Refuses a directory that has the mark.
pub(super) fn check(path: &Path) -> Result<(), DataDirError> {
    let file = path.join(NAME);
    match Facts::read(&file, MARK)? {
        None => Ok(()),
        Some(kept) => Err(DataDirError::Marked { path: path.to_owned(), reason: kept.get("reason")? }),
    }
}

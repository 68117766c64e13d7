//! What can go wrong with the files of a dispatcher: ends, cursor, retry store.

use std::path::{Path, PathBuf};

use photon_disk::DiskError;

/// Why a file of a dispatcher can not be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It can not be read or written, is damaged, or is of another version.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A record whose checksum is right, but not its fields: another program wrote it.
    #[error("{}: record {number} is not a record of this kind: {why}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Its number in the file, from 0.
        number: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// The store takes no more. Nothing was written, and the cursor must not move.
    #[error("{} is full: {what} would be {found}, the limit is {max}; it empties as clicks are joined", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What is exhausted.
        what: &'static str,
        /// How much it would be.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// There is no such record, or it is done.
    #[error("{} has no pending record {id}", path.display())]
    NotPending {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        id: u64,
    },
}

impl StateError {
    pub(crate) fn damage(path: &Path, offset: u64, reason: impl Into<String>) -> StateError {
        StateError::Disk(DiskError::Damage { path: path.to_owned(), offset, reason: reason.into() })
    }
}

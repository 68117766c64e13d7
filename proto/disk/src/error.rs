//! The one error of this crate: what was done, to which file, and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why something on disk did not work.
#[derive(Debug)]
pub enum DiskError {
    /// The operating system refused.
    Io {
        /// What was done, as in "fsync of the directory".
        operation: &'static str,
        /// To what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The name is taken by somebody else's file or directory.
    Exists {
        /// The name.
        path: PathBuf,
    },
    /// Another process or handle holds the lock.
    Busy {
        /// The lock file.
        path: PathBuf,
    },
    /// A file of another kind, or of a version that this build does not know.
    Format {
        /// The file.
        path: PathBuf,
        /// What was read.
        found: String,
        /// What this build reads.
        expected: String,
    },
    /// Bytes that were durable once can not be read any more.
    Damage {
        /// The file.
        path: PathBuf,
        /// Where the first bad byte may lie.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// A record or file longer than its limit.
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How long.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// An earlier write or sync of this file failed. Nothing more is written in this life of the
    /// process.
    Poisoned {
        /// The file.
        path: PathBuf,
    },
}

impl DiskError {
    /// Gives an error of the operating system its evidence; for `map_err`.
    pub fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError + use<> {
        let path = path.to_owned();
        move |source| DiskError::Io { operation, path, source }
    }

    /// The file or directory concerned.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            DiskError::Io { path, .. }
            | DiskError::Exists { path }
            | DiskError::Busy { path }
            | DiskError::Format { path, .. }
            | DiskError::Damage { path, .. }
            | DiskError::TooLarge { path, .. }
            | DiskError::Poisoned { path } => path,
        }
    }

    /// The operating system found no such file or directory.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, DiskError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskError::Io { operation, path, source } => write!(f, "{operation} {} failed: {source}", path.display()),
            DiskError::Exists { path } => write!(f, "{} exists already", path.display()),
            DiskError::Busy { path } => {
                write!(f, "{} is locked: another process uses this directory; stop it first", path.display())
            }
            DiskError::Format { path, found, expected } => {
                write!(f, "{} is {found}; this build reads {expected}", path.display())
            }
            DiskError::Damage { path, offset, reason } => {
                write!(f, "{} is damaged at offset {offset}: {reason}", path.display())
            }
            DiskError::TooLarge { path, bytes, bytes_max } => {
                write!(f, "{bytes} bytes for {} are more than the limit of {bytes_max}", path.display())
            }
            DiskError::Poisoned { path } => {
                write!(
                    f,
                    "{} is not written any more since an earlier write failed; restart the process",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DiskError::Io { source, .. } => Some(source),
            DiskError::Exists { .. }
            | DiskError::Busy { .. }
            | DiskError::Format { .. }
            | DiskError::Damage { .. }
            | DiskError::TooLarge { .. }
            | DiskError::Poisoned { .. } => None,
        }
    }
}

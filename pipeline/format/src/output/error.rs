//! What can go wrong with the files of the joined log.
//!
//! Not here: damage that a reader finds. It is an answer (*held*, with its reason), not an error:
//! the reader goes on with the other incarnations.

use std::io;
use std::path::{Path, PathBuf};

use photon_disk::DiskError;

/// Why an operation on the joined log failed.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// A file or directory could not be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The directory is not where this writer made it: somebody fenced it. Nothing may be
    /// answered any more.
    #[error("{} was moved away by a fence: this joiner was taken for dead and must exit without an answer", path.display())]
    Fenced {
        /// Where the directory was.
        path: PathBuf,
    },
    /// An earlier operation of this writer failed, and a failed write ends writing.
    #[error("{} is not written any more since an earlier write failed; restart the joiner", path.display())]
    Stopped {
        /// The directory.
        path: PathBuf,
    },
    /// A directory or file is there that must not be.
    #[error("{} already exists; it must not be overwritten, move it away if it is a copy", path.display())]
    Exists {
        /// What is there.
        path: PathBuf,
    },
    /// Another joiner cleaned up under this one, again and again.
    #[error("could not make a directory in {}: other joiners removed it {attempts} times; start again", path.display())]
    Contended {
        /// Where.
        path: PathBuf,
        /// How often it was tried.
        attempts: u32,
    },
    /// A directory moved while it was read: list the output again.
    #[error("{} moved while it was read; list the output again", path.display())]
    Moved {
        /// Where it was.
        path: PathBuf,
    },
    /// A line that is not a line of the joined log.
    #[error("not a line of the joined log: {why} at byte {offset}")]
    Line {
        /// Where in the line.
        offset: usize,
        /// What was expected.
        why: &'static str,
    },
    /// More than a limit allows.
    #[error("{what}: {found} is more than the limit of {max}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How much.
        found: u64,
        /// How much is allowed.
        max: u64,
    },
    /// The system gave no random bytes.
    #[error("the system gave no random bytes for an incarnation: {why}")]
    Random {
        /// What it said.
        why: String,
    },
}

impl OutputError {
    /// An error of the operating system, with what was tried on which file.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OutputError + use<> {
        let error = DiskError::io(operation, path);
        move |source| OutputError::Disk(error(source))
    }

    /// Whether the operating system said this.
    pub(crate) fn is(&self, kind: io::ErrorKind) -> bool {
        matches!(self, OutputError::Disk(DiskError::Io { source, .. }) if source.kind() == kind)
    }
}

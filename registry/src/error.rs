//! The one error of this crate: operating errors only, with evidence and what to do.
//!
//! Not here: outcomes (answers of the state machine), refusals that a client can act on (they are
//! replies), bugs (they panic).

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use photon_disk::DiskError;
use photon_types::NodeId;

use crate::datadir::DataDirError;
use crate::journal::JournalError;

/// What kind of end an error is: the exit code of a process depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Anything else.
    Failure,
    /// The configuration is wrong.
    Config,
    /// What was durable can not be read any more.
    Damage,
    /// The data directory is in use, or belongs to another node or cluster, or lost its vote.
    DataDirRefused,
}

/// Why a server does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Values that do not fit each other.
    #[error("registry configuration: {message}")]
    Config {
        /// Which, and why.
        message: String,
    },
    /// An address can not be listened on.
    #[error("can not listen for {what} on {address}: {source}; is another process using the port?")]
    Listen {
        /// Clients, peers or http.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A file or directory of this node.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The data directory can not be that of this node, or its node may not vote any more.
    #[error("data directory {path} is refused: {reason}")]
    DataDirRefused {
        /// The directory.
        path: PathBuf,
        /// What was found, what was expected, what to do.
        reason: String,
    },
    /// RocksDB could not do what it must.
    #[error("{operation} in the table at {path} failed: {reason}")]
    Table {
        /// What was done.
        operation: &'static str,
        /// The directory of the table.
        path: PathBuf,
        /// What RocksDB said.
        reason: String,
    },
    /// The table's own records can not be read.
    #[error(
        "the table at {path} is damaged: {reason}; remove that directory, and the node rebuilds it from its journal"
    )]
    TableDamaged {
        /// The directory of the table.
        path: PathBuf,
        /// Which record, and what is wrong.
        reason: String,
    },
    /// A lane or the driver ended without being asked to.
    #[error("the {thread} of node {node} ended: {reason}; restart the process")]
    ThreadEnded {
        /// Which.
        thread: &'static str,
        /// Of whom.
        node: NodeId,
        /// Why.
        reason: String,
    },
    /// The system gave no thread, socket or random bytes.
    #[error("{operation} failed: {source}")]
    System {
        /// What was asked.
        operation: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl RegistryError {
    /// What kind of end this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            RegistryError::Config { .. } => ErrorKind::Config,
            RegistryError::DataDirRefused { .. } => ErrorKind::DataDirRefused,
            RegistryError::TableDamaged { .. } => ErrorKind::Damage,
            RegistryError::DataDir(error) if error.is_refusal() => ErrorKind::DataDirRefused,
            RegistryError::DataDir(error) if error.is_damage() => ErrorKind::Damage,
            RegistryError::DataDir(DataDirError::Disk(error))
            | RegistryError::Disk(error)
            | RegistryError::Journal(JournalError::Disk(error)) => disk_kind(error),
            RegistryError::Journal(
                JournalError::Damage { .. }
                | JournalError::Format { .. }
                | JournalError::RolledBack { .. }
                | JournalError::SlotMissing { .. },
            ) => ErrorKind::Damage,
            RegistryError::Journal(JournalError::TooLarge { .. } | JournalError::Poisoned { .. })
            | RegistryError::DataDir(_)
            | RegistryError::Listen { .. }
            | RegistryError::Table { .. }
            | RegistryError::ThreadEnded { .. }
            | RegistryError::System { .. } => ErrorKind::Failure,
        }
    }
}

fn disk_kind(error: &DiskError) -> ErrorKind {
    match error {
        DiskError::Busy { .. } => ErrorKind::DataDirRefused,
        DiskError::Damage { .. } | DiskError::Format { .. } => ErrorKind::Damage,
        DiskError::Io { .. } | DiskError::Exists { .. } | DiskError::TooLarge { .. } | DiskError::Poisoned { .. } => {
            ErrorKind::Failure
        }
    }
}

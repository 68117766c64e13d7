//! The journal: the replicated log on disk, one per node, shared by all its replication groups.
//!
//! It must tell three things apart when it is opened after a crash: what was synced, what was never
//! synced (a torn tail: cut), and what was synced and is gone (damage: the node has lost promises
//! that it can not name, and must not start).
//!
//! Invariant: nothing that [`Journal::commit`] returned for is ever lost without an error that names
//! file and offset. Every group of records says how far the journal was synced when it was written;
//! below the highest of these everything must be good. (What remains: a *last* group that was synced
//! and rotted before anything followed it. [`Journal::write_cover`] makes that window small, and
//! peers find the rest by the recovered end of the handshake.)
//!
//! Not here: what the records mean (photon-core), when to commit and to cover (the journal lane),
//! trimming. Nothing here is tried twice: after an error the process ends.

mod frame;
mod record;
mod segment;

mod index;
mod read;
mod recover;
mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use photon_core::Record;
use photon_disk::DiskError;
use photon_types::{GroupId, Slot};

pub use read::JournalReader;
pub use write::Journal;

/// The longest value of a record, in bytes.
pub const VALUE_BYTES_MAX: usize = frame::BODY_BYTES_MAX - record::RECORD_HEAD_BYTES;

/// A place in the journal: positions grow as the journal does, over all segments and lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalPosition {
    /// The number of the segment, from 1.
    pub segment: u64,
    /// Bytes from its beginning.
    pub byte: u64,
}

impl fmt::Display for JournalPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment, self.byte)
    }
}

/// How a journal is written.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// A segment that would grow beyond this is ended, and the next one begun.
    pub segment_bytes: u64,
}

impl Default for JournalOptions {
    fn default() -> JournalOptions {
        JournalOptions { segment_bytes: 64 * 1024 * 1024 }
    }
}

/// What an opened journal holds.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The birth record, once there is one.
    pub birth: Option<Bytes>,
    /// What each replica must know, in the order in which it was written. Entries below its
    /// `applied_end` are left out; what their ballots promised stands as a `Promise`.
    pub records: BTreeMap<GroupId, Vec<Record>>,
    /// Where the good groups of earlier lives ended. A node states it in its handshakes: below what
    /// a peer has heard from an earlier life it means a rolled-back disk, or a last group that
    /// rotted.
    pub recovered_end: JournalPosition,
    /// What was cut.
    pub torn: Option<TornTail>,
}

/// Bytes behind the last good group that were never synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment.
    pub file: PathBuf,
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// Counters of one life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Groups of records written, empty ones and ends included.
    pub groups: u64,
    /// Calls of fdatasync on segments.
    pub syncs: u64,
    /// Bytes written.
    pub bytes: u64,
}

/// Why a journal can not be opened, written or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// What was synced is gone. The node has lost promises and must not vote.
    #[error(
        "the journal is damaged: {} at offset {offset}: {reason}; this node has lost promises that it \
         can not name and must not start; keep its directory and let the other nodes go on without it",
        file.display()
    )]
    Damage {
        /// The segment.
        file: PathBuf,
        /// Where the first bad group begins.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// Written whole, by a build that knows more than this one.
    #[error("{} at offset {offset}: {reason}; use the build that wrote it, or a newer one", file.display())]
    Format {
        /// The segment.
        file: PathBuf,
        /// Where the group begins.
        offset: u64,
        /// What is not known.
        reason: String,
    },
    /// The journal was written in a later boot than the data directory knows of.
    #[error(
        "{} at offset {offset} was written in boot {life}, but this is boot {boot}: the data directory was rolled \
         back; this disk must not vote",
        file.display()
    )]
    RolledBack {
        /// The segment.
        file: PathBuf,
        /// Where the group begins.
        offset: u64,
        /// The boot that wrote it.
        life: u64,
        /// This boot.
        boot: u64,
    },
    /// The state machine has applied an entry that the journal does not hold.
    #[error(
        "the journal in {} does not hold slot {slot} of group {group}, yet the table has applied everything below \
         {applied_end}: the journal was rolled back; this disk must not vote",
        dir.display()
    )]
    SlotMissing {
        /// The journal.
        dir: PathBuf,
        /// The replication group.
        group: GroupId,
        /// The first slot that is missing.
        slot: Slot,
        /// What the table says.
        applied_end: Slot,
    },
    /// A record longer than a group may be. Nothing was written.
    #[error("a record of {bytes} bytes is longer than the limit of {bytes_max}")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// An earlier write or sync failed; nothing more is written in this life of the process.
    #[error("the journal in {} is not written any more since an earlier write failed; restart the process", dir.display())]
    Poisoned {
        /// The journal.
        dir: PathBuf,
    },
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl JournalError {
    /// This disk has lost something that was durable (exit code 5), as against a failure that a
    /// restart may heal.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            JournalError::Damage { .. } | JournalError::RolledBack { .. } | JournalError::SlotMissing { .. } => true,
            JournalError::Format { .. }
            | JournalError::TooLarge { .. }
            | JournalError::Poisoned { .. }
            | JournalError::Disk(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;

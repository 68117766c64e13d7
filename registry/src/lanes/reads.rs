//! Reads of the journal for peers that are far behind: a thread of its own, so that no fsync waits
//! for a disk that seeks.
//!
//! Not here: which reads (`photon-core` asks for a few at a time), where entries lie (`journal`).

use std::sync::Arc;

use photon_core::ReadId;
use photon_types::{GroupId, Slot};

use crate::drive::inbox::{Completion, Inbox};
use crate::error::RegistryError;
use crate::journal::JournalReader;
use crate::lanes::queue::{JobQueue, Jobs};

/// Entries to be read back.
#[derive(Debug)]
pub(crate) struct ReadJob {
    pub group: GroupId,
    pub read: ReadId,
    pub from: Slot,
    pub to_end: Slot,
    pub bytes_max: usize,
}

/// The lane's thread.
pub(crate) struct ReadLane {
    pub reader: JournalReader,
    pub queue: Arc<JobQueue<ReadJob>>,
    pub inbox: Arc<Inbox>,
}

impl ReadLane {
    /// Runs until the queue is closed and empty.
    pub fn run(self) -> Result<(), RegistryError> {
        loop {
            match self.queue.take_all(None) {
                Jobs::Some(jobs) => jobs.into_iter().try_for_each(|job| self.read(&job))?,
                Jobs::Idle => (),
                Jobs::Closed => return Ok(()),
            }
        }
    }

    fn read(&self, job: &ReadJob) -> Result<(), RegistryError> {
        let ReadJob { group, read, from, to_end, bytes_max } = *job;
        let entries = self.reader.read(group, from, to_end, bytes_max)?;
        // The core asks only for slots that were reported durable.
        assert!(!entries.is_empty(), "slot {from} of group {group} is durable, but the journal does not hold it");
        self.inbox.complete([Completion::EntriesRead { group, read, entries }]);
        Ok(())
    }
}

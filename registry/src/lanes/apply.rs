//! Lane 2: the state machine. One thread with the table: entries in order, several in one write.
//!
//! Invariant: an entry is applied once and in order; `Applied` is reported after the write that
//! holds rows and `applied_end` together. An error of the table ends the node: it is not an answer.
//!
//! Not here: what commands do (`photon_core::machine`), where rows lie (`rocks`).

use std::sync::Arc;

use photon_core::Entry;
use photon_core::machine::{RowLayout, apply_all};
use photon_types::{GroupId, Outcomes, Slot};
use tokio::sync::watch;

use crate::chaos::Delays;
use crate::counters::Counters;
use crate::drive::inbox::{Completion, Inbox};
use crate::error::RegistryError;
use crate::lanes::queue::{JobQueue, Jobs};
pub(crate) use crate::rocks::KeyRules;
use crate::rocks::RocksTable;

/// Bytes of the values of one write, about: some four full batches.
const WRITE_BYTES_MAX: usize = 1024 * 1024;

/// Entries of one write.
const WRITE_ENTRIES_MAX: usize = 64;

/// The table is flushed when entries of this many bytes were applied since, at the latest: a crash
/// brings them all back from the journal. Rows fill a memtable sooner; look-ups write none.
const FLUSH_AFTER_BYTES: usize = 64 * 1024 * 1024;

/// One entry to be applied.
#[derive(Debug)]
pub(crate) struct ApplyJob {
    pub group: GroupId,
    pub entry: Entry,
    pub wanted: bool,
}

/// The lane's thread.
pub(crate) struct ApplyLane {
    pub table: RocksTable,
    pub group: GroupId,
    pub layout: RowLayout,
    pub queue: Arc<JobQueue<ApplyJob>>,
    pub inbox: Arc<Inbox>,
    pub key_rules: watch::Sender<Option<Arc<KeyRules>>>,
    pub counters: Arc<Counters>,
    pub delays: Delays,
    /// Of the entries applied since a flush began.
    pub unflushed_bytes: usize,
}

impl ApplyLane {
    /// Runs until the queue is closed and empty, then makes the table durable.
    pub fn run(mut self) -> Result<(), RegistryError> {
        loop {
            match self.queue.take_all(None) {
                Jobs::Some(jobs) => self.apply_in_writes(jobs)?,
                Jobs::Idle => (),
                Jobs::Closed => return self.table.flush_and_wait(),
            }
        }
    }

    fn apply_in_writes(&mut self, jobs: Vec<ApplyJob>) -> Result<(), RegistryError> {
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let mut write: Vec<ApplyJob> = Vec::new();
            let mut bytes = 0;
            let fits = |write: &[ApplyJob], bytes: usize, job: &ApplyJob| {
                write.is_empty()
                    || (write.len() < WRITE_ENTRIES_MAX && bytes + job.entry.value.len() <= WRITE_BYTES_MAX)
            };
            while let Some(job) = jobs.next_if(|job| fits(&write, bytes, job)) {
                bytes += job.entry.value.len();
                write.push(job);
            }
            self.delays.block();
            self.apply(&write)?;
        }
        Ok(())
    }

    /// One read and one write for all these entries.
    fn apply(&mut self, jobs: &[ApplyJob]) -> Result<(), RegistryError> {
        let mut applied_end = self.table.applied_end();
        for job in jobs {
            let (slot, group) = (job.entry.slot, job.group);
            assert!(group == self.group, "an entry of group {group} came to group {}", self.group);
            assert!(slot == applied_end, "slot {slot} is to be applied, but {applied_end} is the next");
            applied_end = slot.next();
        }
        let values: Vec<&[u8]> = jobs.iter().map(|job| job.entry.value.as_ref()).collect();
        let (outcomes, changes) = apply_all(&self.table, self.layout, &values)?;
        self.unflushed_bytes += values.iter().map(|value| value.len()).sum::<usize>();
        let rules_changed = changes.key_rules.is_some();
        self.table.write(applied_end, changes)?;
        if rules_changed {
            self.key_rules.send_replace(self.table.rules().cloned());
        }
        self.report(jobs, applied_end, outcomes);
        if FLUSH_AFTER_BYTES < self.unflushed_bytes {
            self.unflushed_bytes = 0;
            self.table.begin_flush()?;
        }
        Ok(())
    }

    fn report(&self, jobs: &[ApplyJob], applied_end: Slot, all: Vec<Outcomes>) {
        assert!(all.len() == jobs.len());
        let mut wanted = Vec::new();
        let mut bytes = 0;
        for (job, outcomes) in jobs.iter().zip(all) {
            bytes += job.entry.value.len();
            // The value of a no-op is empty.
            if !job.entry.value.is_empty() {
                self.counters.add_batch(outcomes.len());
            }
            if job.wanted {
                wanted.push((job.entry.slot, outcomes));
            }
        }
        self.inbox.complete([Completion::Applied { group: self.group, applied_end, outcomes: wanted, bytes }]);
    }
}

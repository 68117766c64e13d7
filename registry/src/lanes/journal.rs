//! Lane 1: the journal. One thread, the only one that calls fsync.
//!
//! Group commit: it takes all that is queued, writes, syncs once, reports the last. The disk's own
//! latency builds the group. Invariant: `Persisted { upto }` is reported only after fsync returned
//! for `upto`; a write or sync that fails ends the node and is never tried again.
//!
//! Not here: what the records mean (`photon-core`), where the bytes go (`journal`), reads
//! (`lanes::reads`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use photon_core::{IoSeq, Record};
use photon_types::GroupId;

use crate::chaos::Delays;
use crate::counters::Counters;
use crate::drive::inbox::{Completion, Inbox};
use crate::error::RegistryError;
use crate::journal::{Journal, JournalPosition};
use crate::lanes::queue::{JobQueue, Jobs};

/// After a pause of this length the last group is covered by an empty one, so that it can not be
/// taken for a torn tail.
const COVER_AFTER: Duration = Duration::from_millis(100);

/// What a record costs besides its value.
const RECORD_OVERHEAD_BYTES: usize = 64;

/// Records of one write, about.
const WRITE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One record to be made durable.
#[derive(Debug)]
pub(crate) struct JournalJob {
    pub group: GroupId,
    pub seq: IoSeq,
    pub record: Record,
    pub bytes: usize,
}

/// What a record costs while it is under way.
pub(crate) fn record_bytes(record: &Record) -> usize {
    let value = match record {
        Record::Accepted { entry, chosen: _ } => entry.value.len(),
        Record::Promise { .. } | Record::CommitHint { .. } => 0,
    };
    RECORD_OVERHEAD_BYTES + value
}

/// How far the journal is durable; told to peers with every message.
#[derive(Debug, Default)]
pub(crate) struct SyncedEnd(Mutex<JournalPosition>);

impl SyncedEnd {
    pub fn new(end: JournalPosition) -> SyncedEnd {
        SyncedEnd(Mutex::new(end))
    }

    pub fn get(&self) -> JournalPosition {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, end: JournalPosition) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }
}

/// The lane's thread.
pub(crate) struct JournalLane {
    pub journal: Journal,
    pub queue: Arc<JobQueue<JournalJob>>,
    pub inbox: Arc<Inbox>,
    pub synced: Arc<SyncedEnd>,
    pub counters: Arc<Counters>,
    pub delays: Delays,
}

impl JournalLane {
    /// Runs until the queue is closed and empty, then covers the last group.
    pub fn run(mut self) -> Result<(), RegistryError> {
        self.on_synced();
        loop {
            let timeout = self.journal.needs_cover().then_some(COVER_AFTER);
            match self.queue.take_all(timeout) {
                Jobs::Some(jobs) => self.commit_all(jobs)?,
                Jobs::Idle => self.cover()?,
                Jobs::Closed => return self.cover(),
            }
        }
    }

    fn commit_all(&mut self, jobs: Vec<JournalJob>) -> Result<(), RegistryError> {
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let mut write = Vec::new();
            let mut bytes = 0;
            while let Some(job) = jobs.next_if(|job| write.is_empty() || bytes + job.bytes <= WRITE_BYTES_MAX) {
                bytes += job.bytes;
                write.push(job);
            }
            self.commit(write)?;
        }
        Ok(())
    }

    /// One write, one sync, one report for each group.
    fn commit(&mut self, jobs: Vec<JournalJob>) -> Result<(), RegistryError> {
        self.delays.block();
        for job in &jobs {
            self.journal.append(job.group, &job.record)?;
        }
        self.journal.commit()?;
        self.on_synced();
        let mut reports: BTreeMap<GroupId, (IoSeq, usize)> = BTreeMap::new();
        for job in &jobs {
            let (upto, bytes) = reports.entry(job.group).or_insert((job.seq, 0));
            assert!(*upto <= job.seq, "records of group {} are out of order", job.group);
            (*upto, *bytes) = (job.seq, *bytes + job.bytes);
        }
        let completion = |(group, (upto, bytes))| Completion::Persisted { group, upto, bytes };
        self.inbox.complete(reports.into_iter().map(completion));
        Ok(())
    }

    fn cover(&mut self) -> Result<(), RegistryError> {
        self.journal.write_cover()?;
        self.on_synced();
        Ok(())
    }

    fn on_synced(&mut self) {
        self.synced.set(self.journal.synced_end());
        self.counters.set_journal(self.journal.stats().syncs, self.journal.bytes());
    }
}

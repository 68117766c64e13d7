//! The dispatcher's files: ends, retry store, cursor; one thread owns all three.
//!
//! Invariant: what is reported is durable. Orders are carried out in the order in which they come,
//! and a cursor that is saved counts exactly the changes of the orders before it. Orders that wait
//! together share one sync of each file.
//!
//! Not here: what the records mean, and when to try again (`engine`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use photon_disk::DiskError;
use photon_disk::lock::LockFile;
use photon_format::cursor::{Cursor, Ended};
use photon_format::ends::{EndRecord, EndsWriter};
use photon_format::retry::{Added, Known, RetryId, RetryLimits, RetryRecord, RetryStore};
use photon_format::state::StateError;
use photon_join::cursor::RecordNumber;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tracing::warn;

use super::ROLE;
use super::follow::Batch;
use crate::chaos::Delays;
use crate::error::PipelineError;

/// Orders carried out with one sync, at most.
const GROUP_ORDERS_MAX: usize = 256;

/// How long a dispatcher that starts waits for the lock, and how often it looks. A lock tells nobody
/// when it is free, unless one waits for it without end.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);
const LOCK_LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Re-injections that wait, at most: the door sees to it.
pub(super) const REINJECTIONS_MAX: usize = 64;

/// Orders that wait beside those of records under way: re-injections, and a save and a check.
const OTHER_ORDERS_MAX: usize = REINJECTIONS_MAX + 16;

/// The engine's name for a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ClickId(pub u64);

/// The engine's name for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SourceNumber(pub usize);

/// What ends: a click, or a record that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Click(ClickId),
    Record { source: SourceNumber, number: RecordNumber, bytes: usize },
}

/// What the engine, or the door, wants of the files.
pub(super) enum Order {
    /// Which of these records are known from an earlier life?
    Check(Batch),
    /// Write these ends down.
    End(Vec<(Ending, EndRecord)>),
    /// Take these clicks into the retry store.
    Defer(Vec<(ClickId, RetryRecord)>),
    /// These clicks of the retry store have ended.
    Done(Vec<(RetryId, Ended)>),
    /// Take these clicks back, and answer how many are durable.
    Reinject {
        records: Vec<RetryRecord>,
        reply: oneshot::Sender<Result<usize, StateError>>,
        room: OwnedSemaphorePermit,
    },
    /// Save this cursor, which counts all orders before.
    Save(Cursor),
}

#[cfg(test)]
impl Order {
    pub fn name(&self) -> &'static str {
        match self {
            Order::Check(_) => "check",
            Order::End(_) => "end",
            Order::Defer(_) => "defer",
            Order::Done(_) => "done",
            Order::Reinject { .. } => "reinject",
            Order::Save(_) => "save",
        }
    }
}

/// Why an order was not taken.
pub(super) enum Refused {
    /// There is no room: here it is again.
    Full(Box<Order>),
    /// The thread has ended. Its report says why.
    Gone,
}

/// What became of orders.
pub(super) enum Report {
    Checked {
        batch: Batch,
        known: Vec<bool>,
    },
    Ended(Vec<(Ending, Ended)>),
    Deferred(Vec<(ClickId, RetryId)>),
    /// An order of clicks that are done was carried out.
    Done,
    /// The retry store has no room for these.
    Full(Vec<ClickId>),
    /// Clicks that were put back.
    Reinjected(Vec<(RetryId, RetryRecord)>),
    Saved,
    /// A file can not be written: the dispatcher ends.
    Failed(PipelineError),
}

/// What the files held at start.
pub(super) struct Opened {
    pub cursor: Cursor,
    pub pending: Vec<(RetryId, RetryRecord)>,
    /// Nothing was ever deferred: no record can be known.
    pub is_new: bool,
}

/// The order queue, for the engine and the door.
#[derive(Clone, Debug)]
pub(super) struct Files {
    orders: SyncSender<Order>,
}

impl Files {
    /// Gives an order, without waiting. There is room for what engine and door usually have under way.
    pub fn order(&self, order: Order) -> Result<(), Refused> {
        self.orders.try_send(order).map_err(|refused| match refused {
            TrySendError::Full(order) => Refused::Full(Box::new(order)),
            TrySendError::Disconnected(_) => Refused::Gone,
        })
    }

    /// A queue without a thread.
    #[cfg(test)]
    pub fn of_queue(room: usize) -> (Files, Receiver<Order>) {
        let (orders, inbox) = sync_channel(room);
        (Files { orders }, inbox)
    }
}

struct Thread {
    /// Keeps a second dispatcher away.
    _lock: LockFile,
    cursor_path: PathBuf,
    ends: EndsWriter,
    retries: RetryStore,
    limits: RetryLimits,
    /// Clicks put back, by source: counted here, where they become durable.
    reinjected: BTreeMap<String, u64>,
    /// The store has refused clicks, and somebody was told.
    is_full: bool,
    reports: mpsc::Sender<Report>,
    delays: Delays,
    /// Said when the files are synced.
    unsaid: Vec<Report>,
    unanswered: Vec<(oneshot::Sender<Result<usize, StateError>>, usize)>,
}

/// Opens the files in `directory` and starts the thread. Blocks. The last value tells when the thread
/// has ended, and with it the lock.
pub(super) fn start(
    directory: PathBuf,
    limits: RetryLimits,
    in_flight_max: usize,
    reports: mpsc::Sender<Report>,
    delays: Delays,
) -> Result<(Files, Opened, oneshot::Receiver<()>), PipelineError> {
    photon_disk::durable::create_dir_all_durable(&directory)?;
    let lock = lock(|| LockFile::try_exclusive(&directory.join("lock")))?;
    let cursor_path = directory.join("cursor");
    let retries = RetryStore::open(&directory.join("retry"), limits)?;
    let ends = EndsWriter::open(&directory.join("ends"))?;
    let mut cursor = Cursor::load(&cursor_path)?.unwrap_or_default();
    retries.recount(&mut cursor);
    let opened = Opened {
        pending: retries.content().iter().map(|(id, record)| (id, record.clone())).collect(),
        is_new: retries.log_end() == 0,
        cursor,
    };
    let reinjected = opened.cursor.sources.iter().map(|(name, source)| (name.clone(), source.counts.reinjected));
    let thread = Thread {
        _lock: lock,
        cursor_path,
        ends,
        retries,
        limits,
        reinjected: reinjected.collect(),
        is_full: false,
        reports,
        delays,
        unsaid: Vec::new(),
        unanswered: Vec::new(),
    };
    let (orders, inbox) = sync_channel(in_flight_max + OTHER_ORDERS_MAX);
    let (ending, ended) = oneshot::channel();
    let run = move || {
        thread.run(&inbox);
        // Whoever waits may have gone.
        let _ = ending.send(());
    };
    let spawned = std::thread::Builder::new().name("photon-state".into()).spawn(run);
    spawned.map_err(|source| PipelineError::Thread { role: ROLE, source })?;
    Ok((Files { orders }, opened, ended))
}

/// A verifier that looks at the files holds the lock for a moment: that is no second dispatcher.
fn lock(mut take: impl FnMut() -> Result<LockFile, DiskError>) -> Result<LockFile, DiskError> {
    let until = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match take() {
            Err(DiskError::Busy { .. }) if Instant::now() < until => std::thread::sleep(LOCK_LOOK_AGAIN),
            taken => return taken,
        }
    }
}

impl Thread {
    fn run(mut self, inbox: &Receiver<Order>) {
        while let Ok(first) = inbox.recv() {
            self.delays.block();
            let group = std::iter::once(first).chain(inbox.try_iter().take(GROUP_ORDERS_MAX - 1));
            let done = group.map(|order| self.carry_out(order)).collect::<Result<Vec<()>, _>>();
            if let Err(error) = done.and_then(|_| self.commit()) {
                // The engine may be gone already.
                let _ = self.reports.blocking_send(Report::Failed(error));
                return;
            }
        }
    }

    fn carry_out(&mut self, order: Order) -> Result<(), PipelineError> {
        match order {
            Order::Check(batch) => {
                let is_known = |offset| match self.retries.known(&batch.source, offset) {
                    Known::No => false,
                    Known::Pending(_) | Known::Ended(_) => true,
                };
                let known = batch.records.iter().map(|record| is_known(record.offset)).collect();
                self.unsaid.push(Report::Checked { batch, known });
            }
            Order::End(ends) => {
                for (_, record) in &ends {
                    self.ends.append(record)?;
                }
                let ended = ends.into_iter().map(|(ending, record)| (ending, record.state.ended())).collect();
                self.unsaid.push(Report::Ended(ended));
            }
            Order::Defer(clicks) => self.defer(clicks)?,
            Order::Done(clicks) => {
                for (id, ended) in clicks {
                    self.retries.done(id, ended)?;
                }
                self.unsaid.push(Report::Done);
            }
            Order::Reinject { records, reply, room } => {
                // It has left the queue.
                drop(room);
                self.reinject(&records, reply)?;
            }
            Order::Save(cursor) => self.save(cursor)?,
        }
        Ok(())
    }

    /// As many as there is room for; the store takes all of an order or none.
    fn defer(&mut self, clicks: Vec<(ClickId, RetryRecord)>) -> Result<(), PipelineError> {
        let (ids, records): (Vec<_>, Vec<_>) = clicks.into_iter().unzip();
        let added = match self.retries.add(&records) {
            Ok(added) => added,
            Err(StateError::Full { .. }) => return self.defer_what_fits(ids, &records),
            Err(error) => return Err(error.into()),
        };
        if self.has_ample_room() {
            self.is_full = false;
        }
        let deferred = ids.into_iter().zip(added.into_iter().map(Added::id)).collect();
        self.unsaid.push(Report::Deferred(deferred));
        Ok(())
    }

    /// Somebody is told again that the store is full only after it was not, not at each click.
    fn has_ample_room(&self) -> bool {
        let RetryLimits { records_max, bytes_max, compact_bytes_min: _ } = self.limits;
        let is_ample = |used: u64, max: u64| used <= max - max.div_ceil(10);
        is_ample(self.retries.content().len() as u64, records_max) && is_ample(self.retries.bytes(), bytes_max)
    }

    fn defer_what_fits(&mut self, ids: Vec<ClickId>, records: &[RetryRecord]) -> Result<(), PipelineError> {
        let (mut deferred, mut refused, mut last) = (Vec::new(), Vec::new(), None);
        for (id, record) in ids.into_iter().zip(records) {
            match self.retries.add(std::slice::from_ref(record)) {
                Ok(added) => deferred.extend(added.into_iter().map(|added| (id, added.id()))),
                Err(error @ StateError::Full { .. }) => {
                    refused.push(id);
                    last = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(error) = last
            && !std::mem::replace(&mut self.is_full, true)
        {
            warn!(%error, clicks = refused.len(), "clicks stay under way, and reading waits; raise join.retry-store?");
        }
        self.unsaid.push(Report::Deferred(deferred));
        if !refused.is_empty() {
            self.unsaid.push(Report::Full(refused));
        }
        Ok(())
    }

    fn reinject(
        &mut self,
        records: &[RetryRecord],
        reply: oneshot::Sender<Result<usize, StateError>>,
    ) -> Result<(), PipelineError> {
        match self.retries.add(records) {
            Ok(added) => {
                let mut new = Vec::new();
                for (record, added) in records.iter().zip(added) {
                    match added {
                        Added::New(id) => {
                            *self.reinjected.entry(record.source.clone()).or_default() += 1;
                            new.push((id, record.clone()));
                        }
                        Added::Known(_) => (),
                    }
                }
                self.unsaid.push(Report::Reinjected(new));
                self.unanswered.push((reply, records.len()));
            }
            Err(error @ StateError::Full { .. }) => {
                // Nothing was added, and whoever asked may have gone.
                let _ = reply.send(Err(error));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn save(&mut self, mut cursor: Cursor) -> Result<(), PipelineError> {
        self.commit()?;
        for (name, count) in &self.reinjected {
            cursor.sources.entry(name.clone()).or_default().counts.reinjected = *count;
        }
        cursor.retry_end = self.retries.log_end();
        cursor.save(&self.cursor_path)?;
        self.retries.on_cursor_saved(&cursor)?;
        self.unsaid.push(Report::Saved);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), PipelineError> {
        self.ends.sync()?;
        self.retries.sync()?;
        self.delays.block();
        for (reply, count) in self.unanswered.drain(..) {
            // Whoever asked may have gone: it will ask again.
            let _ = reply.send(Ok(count));
        }
        for report in self.unsaid.drain(..) {
            // The engine takes reports before all else, and waits for nobody.
            if self.reports.blocking_send(report).is_err() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dispatcher_waits_for_who_looks_at_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        drop(LockFile::try_exclusive(&path).unwrap());
        let mut looking = Some(LockFile::try_shared(&path).unwrap());
        let mut tries = 0;
        // Whoever looks goes when the dispatcher has met him.
        let taken = lock(|| {
            tries += 1;
            let taken = LockFile::try_exclusive(&path);
            looking.take();
            taken
        });
        assert!(taken.is_ok());
        assert_eq!(tries, 2);
    }
}

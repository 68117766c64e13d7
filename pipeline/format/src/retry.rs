//! The retry store: clicks that could not be joined at once, durable and bounded.
//!
//! Invariant: a record is durable before the cursor passes it or its re-injection is answered
//! ([`RetryStore::sync`] first), and it stays until its end is durable. A full store refuses, and
//! then the cursor does not move.
//!
//! A framed append file of add and done records. Each has a position in the log; the cursor states
//! below which position its counts include them ([`crate::cursor::Cursor::retry_end`]). So the
//! ledger is exact over a crash at any moment:
//!
//! 1. At start: open, then [`RetryStore::recount`] adds to the cursor what ended after its last save.
//! 2. A record that is read again because the cursor had not passed it is asked for with
//!    [`RetryStore::known`]; what is known is counted as read, and nothing more.
//! 3. To save: [`RetryStore::sync`]; set `retry_end` to [`RetryStore::log_end`] in a cursor that
//!    counts all changes so far; save it; then [`RetryStore::on_cursor_saved`], which lets
//!    compaction drop what nobody asks for any more.
//!
//! Not here: when to try again. Back-off and first misses are the dispatcher's and are not durable:
//! after a restart a click waits for one more pass of the event store, which is always safe.

mod record;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use photon_disk::framed::{self, Format, FramedWriter};

pub use record::{DeletedAt, Origin, RetryId, RetryRecord};

use crate::cursor::{Cursor, Ended};
use crate::state::StateError;
use record::{Change, LogRecord, OriginKind, Place};

/// Kind and version of the file.
pub const RETRY_FORMAT: Format = Format { kind: u32::from_be_bytes(*b"rtry"), version: 1 };

/// How much a store takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// Pending records.
    pub records_max: u64,
    /// Their bytes, in memory and on disk; while compaction runs, the disk holds a multiple.
    pub bytes_max: u64,
    /// The log is compacted when it has this many bytes and mostly holds what is done.
    pub compact_bytes_min: u64,
}

impl Default for RetryLimits {
    fn default() -> RetryLimits {
        RetryLimits { records_max: 1_000_000, bytes_max: 512 * 1024 * 1024, compact_bytes_min: 4 * 1024 * 1024 }
    }
}

/// What became of a record that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is new. A re-injected one counts as such.
    New(RetryId),
    /// It was pending already; a later delete has taken the place of an earlier one.
    Known(RetryId),
}

impl Added {
    /// The record's name.
    #[must_use]
    pub fn id(self) -> RetryId {
        match self {
            Added::New(id) | Added::Known(id) => id,
        }
    }
}

/// What the store knows of a record that is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing.
    No,
    /// It is pending here.
    Pending(RetryId),
    /// It has ended here, and its end is counted.
    Ended(Ended),
}

/// The owner's handle. Its directory's lock keeps others away.
#[derive(Debug)]
pub struct RetryStore {
    path: PathBuf,
    limits: RetryLimits,
    file: FramedWriter,
    content: RetryContent,
    /// Changes that the durable cursor does not include.
    uncounted: Vec<(u64, Uncounted)>,
    /// Bytes of pending records.
    bytes: u64,
    /// Bytes of the log after its last compaction.
    compacted_bytes: u64,
}

/// What a store holds.
#[derive(Clone, Debug, Default)]
pub struct RetryContent {
    /// With the position at which each was first added, where the ledger counts it.
    pending: BTreeMap<RetryId, (u64, RetryRecord)>,
    by_place: BTreeMap<Place, RetryId>,
    /// Ends that a reader may still ask for, or that the durable cursor does not include.
    ended: BTreeMap<Place, (RetryId, u64, Ended)>,
    /// The position of the next record.
    log_end: u64,
    next_id: u64,
}

#[derive(Clone, Debug)]
enum Uncounted {
    Reinjected { source: String },
    Ended { source: String, ended: Ended },
}

impl RetryContent {
    /// The pending records, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (RetryId, &RetryRecord)> {
        self.pending.iter().map(|(&id, (_, record))| (id, record))
    }

    /// A pending record.
    #[must_use]
    pub fn get(&self, id: RetryId) -> Option<&RetryRecord> {
        self.pending.get(&id).map(|(_, record)| record)
    }

    /// How many are pending.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether none is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes on one record of the log; says what is wrong with it.
    fn replay(&mut self, record: LogRecord) -> Result<Option<Uncounted>, &'static str> {
        let LogRecord { position, change } = record;
        if position < self.log_end {
            return Err("its position is not above the one before");
        }
        self.log_end = position + 1;
        match change {
            Change::Add { id, record } => {
                self.next_id = self.next_id.max(id.0 + 1);
                let place = record.place();
                let is_new = match self.by_place.get(&place) {
                    Some(&known) if known != id => return Err("its click is pending under another id"),
                    Some(_) => false,
                    None if self.pending.contains_key(&id) => return Err("its id belongs to another click"),
                    None => true,
                };
                let uncounted = match place.kind {
                    OriginKind::Reinjected if is_new => Some(Uncounted::Reinjected { source: record.source.clone() }),
                    OriginKind::Reinjected | OriginKind::Read => None,
                };
                self.by_place.insert(place, id);
                let first = self.pending.get(&id).map_or(position, |&(first, _)| first);
                self.pending.insert(id, (first, record));
                Ok(uncounted)
            }
            Change::Done { id, place, ended } => {
                self.next_id = self.next_id.max(id.0 + 1);
                // In a compacted log the add is gone, and the end is kept for who asks.
                if let Some((_, record)) = self.pending.remove(&id) {
                    self.by_place.remove(&record.place());
                }
                let source = place.source.clone();
                self.ended.insert(place, (id, position, ended));
                Ok(Some(Uncounted::Ended { source, ended }))
            }
            Change::Base { next_id } => {
                self.next_id = self.next_id.max(next_id.0);
                Ok(None)
            }
        }
    }
}

impl RetryStore {
    /// Opens the store, or makes it; cuts what a crash left of a last record.
    ///
    /// # Errors
    /// [`StateError`] when it can not be read, is damaged or is of another version.
    pub fn open(path: &Path, limits: RetryLimits) -> Result<RetryStore, StateError> {
        let mut replay = Replay::new(path);
        let (file, _torn) = FramedWriter::open_with(path, RETRY_FORMAT, |body| replay.take(body))?;
        let (content, uncounted) = replay.finish()?;
        let bytes = content.iter().map(|(_, record)| record.bytes()).sum();
        Ok(RetryStore { path: path.to_owned(), limits, file, content, uncounted, bytes, compacted_bytes: 0 })
    }

    /// What it holds.
    #[must_use]
    pub fn content(&self) -> &RetryContent {
        &self.content
    }

    /// Bytes of pending records, as the limit counts them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The position behind the last record of the log.
    #[must_use]
    pub fn log_end(&self) -> u64 {
        self.content.log_end
    }

    /// Adds to a loaded cursor's counts what the log holds beyond them. Once, at start.
    pub fn recount(&self, cursor: &mut Cursor) {
        for (position, uncounted) in &self.uncounted {
            if *position < cursor.retry_end {
                continue;
            }
            match uncounted {
                Uncounted::Reinjected { source } => {
                    cursor.sources.entry(source.clone()).or_default().counts.reinjected += 1;
                }
                Uncounted::Ended { source, ended } => {
                    cursor.sources.entry(source.clone()).or_default().counts.count(*ended);
                }
            }
        }
        cursor.retry_end = cursor.retry_end.max(self.log_end());
    }

    /// What is known of a record that is read from its source, for the first time or again.
    #[must_use]
    pub fn known(&self, source: &str, offset: u64) -> Known {
        let place = Place { source: source.to_owned(), offset, kind: OriginKind::Read };
        match (self.content.by_place.get(&place), self.content.ended.get(&place)) {
            (Some(&id), _) => Known::Pending(id),
            (None, Some(&(_, _, ended))) => Known::Ended(ended),
            (None, None) => Known::No,
        }
    }

    /// Adds records, all or none. They are durable only after [`RetryStore::sync`].
    ///
    /// # Errors
    /// [`StateError::Full`]: nothing was added. [`StateError::Disk`].
    pub fn add(&mut self, records: &[RetryRecord]) -> Result<Vec<Added>, StateError> {
        self.refuse_overfull(records)?;
        records.iter().map(|record| self.add_one(record)).collect()
    }

    fn refuse_overfull(&self, records: &[RetryRecord]) -> Result<(), StateError> {
        let full = |what, found, max| match found <= max {
            true => Ok(()),
            false => Err(StateError::Full { path: self.path.clone(), what, found, max }),
        };
        // As if none were known: a caller that asks for `known` first is not refused for nothing.
        let count = self.content.pending.len() as u64 + records.len() as u64;
        full("pending records", count, self.limits.records_max)?;
        let bytes = self.bytes + records.iter().map(RetryRecord::bytes).sum::<u64>();
        full("bytes of pending records", bytes, self.limits.bytes_max)
    }

    fn add_one(&mut self, record: &RetryRecord) -> Result<Added, StateError> {
        let Some(&id) = self.content.by_place.get(&record.place()) else {
            let id = RetryId(self.content.next_id);
            self.append(Change::Add { id, record: record.clone() })?;
            self.bytes += record.bytes();
            return Ok(Added::New(id));
        };
        let known = self.content.get(id).expect("by_place names pending records");
        if !record.origin.is_covered_by(known.origin) {
            self.bytes -= known.bytes();
            self.bytes += record.bytes();
            self.append(Change::Add { id, record: record.clone() })?;
        }
        Ok(Added::Known(id))
    }

    /// A record has ended. Durable only after [`RetryStore::sync`]; what stands in an ends file is
    /// durable before.
    ///
    /// # Errors
    /// [`StateError::NotPending`], [`StateError::Disk`].
    pub fn done(&mut self, id: RetryId, ended: Ended) -> Result<(), StateError> {
        let Some(record) = self.content.get(id) else {
            return Err(StateError::NotPending { path: self.path.clone(), id: id.0 });
        };
        self.bytes -= record.bytes();
        let place = record.place();
        self.append(Change::Done { id, place, ended })
    }

    /// Makes all changes durable, with one sync.
    ///
    /// # Errors
    /// [`StateError::Disk`]: nothing more is written, and the cursor must not move.
    pub fn sync(&mut self) -> Result<(), StateError> {
        Ok(self.file.sync()?)
    }

    /// The durable cursor includes and passes these records: their ends need not be kept. Compacts
    /// the log when it mostly holds what nobody asks for.
    ///
    /// # Errors
    /// [`StateError::Disk`]; the old log stands.
    pub fn on_cursor_saved(&mut self, cursor: &Cursor) -> Result<(), StateError> {
        self.content.ended.retain(|place, &mut (_, position, _)| {
            let passed = cursor.sources.get(&place.source).is_some_and(|source| place.offset < source.offset);
            let may_be_read = match place.kind {
                OriginKind::Read => !passed,
                OriginKind::Reinjected => false,
            };
            cursor.retry_end <= position || may_be_read
        });
        self.uncounted.retain(|&(position, _)| cursor.retry_end <= position);
        let needed = self.bytes + self.content.ended.len() as u64 * ENDED_BYTES;
        let is_mostly_done = needed < self.file.bytes() / 2 && self.compacted_bytes < self.file.bytes() / 2;
        if self.limits.compact_bytes_min <= self.file.bytes() && is_mostly_done {
            self.compact()?;
        }
        Ok(())
    }

    /// Writes what is pending, and ends that are still needed, into a new log. All keep their
    /// positions, so that a cursor saved before counts them as it did.
    fn compact(&mut self) -> Result<(), StateError> {
        let RetryContent { pending, by_place: _, ended, log_end, next_id } = &self.content;
        let ends = ended
            .iter()
            .map(|(place, &(id, position, ended))| (position, Change::Done { id, place: place.clone(), ended }));
        let adds = pending.iter().map(|(&id, (first, record))| (*first, Change::Add { id, record: record.clone() }));
        let mut records: BTreeMap<u64, Change> = ends.chain(adds).collect();
        records.insert(*log_end, Change::Base { next_id: RetryId(*next_id) });
        let bodies = records.into_iter().map(|(position, change)| LogRecord { position, change }.encode());
        self.file = FramedWriter::replace(&self.path, RETRY_FORMAT, bodies)?;
        self.content.log_end += 1;
        self.compacted_bytes = self.file.bytes();
        Ok(())
    }

    fn append(&mut self, change: Change) -> Result<(), StateError> {
        let record = LogRecord { position: self.content.log_end, change };
        self.file.append(&record.encode())?;
        let position = record.position;
        let uncounted = self.content.replay(record).expect("what this store writes it can read");
        self.uncounted.extend(uncounted.map(|uncounted| (position, uncounted)));
        Ok(())
    }
}

/// A kept end in the log, roughly.
const ENDED_BYTES: u64 = 128;

/// Reads somebody's store without its lock, and makes what it returns durable first. A file that is
/// not there holds nothing.
///
/// # Errors
/// As [`RetryStore::open`].
pub fn read(path: &Path) -> Result<RetryContent, StateError> {
    let mut replay = Replay::new(path);
    match framed::read_with(path, RETRY_FORMAT, |body| replay.take(body)) {
        Ok(_torn) => Ok(replay.finish()?.0),
        Err(error) if error.is_not_found() => Ok(RetryContent::default()),
        Err(error) => Err(error.into()),
    }
}

/// Takes on a log and keeps the first fault.
struct Replay<'a> {
    path: &'a Path,
    number: u64,
    content: RetryContent,
    uncounted: Vec<(u64, Uncounted)>,
    fault: Option<StateError>,
}

impl Replay<'_> {
    fn new(path: &Path) -> Replay<'_> {
        Replay { path, number: 0, content: RetryContent::default(), uncounted: Vec::new(), fault: None }
    }

    fn take(&mut self, body: &[u8]) {
        if self.fault.is_some() {
            return;
        }
        let decoded = LogRecord::decode(body).ok_or("its fields do not fit its length or kind");
        let taken = decoded.and_then(|record| Ok((record.position, self.content.replay(record)?)));
        match taken {
            Ok((position, uncounted)) => {
                self.uncounted.extend(uncounted.map(|uncounted| (position, uncounted)));
            }
            Err(why) => {
                self.fault = Some(StateError::Record { path: self.path.to_owned(), number: self.number, why });
            }
        }
        self.number += 1;
    }

    fn finish(self) -> Result<(RetryContent, Vec<(u64, Uncounted)>), StateError> {
        match self.fault {
            None => Ok((self.content, self.uncounted)),
            Some(fault) => Err(fault),
        }
    }
}

#[cfg(test)]
mod tests;

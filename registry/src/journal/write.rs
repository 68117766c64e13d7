//! Writing the journal: groups of records, covers, ends.
//!
//! Invariant: a group's head states only what was synced before the group was written; a segment
//! begins only when the one before it has its end and is synced whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use photon_core::Record;
use photon_disk::{DiskError, durable};
use photon_types::{GroupId, Incarnation, Slot};

use super::frame::{BLOCK_BYTES, BODY_BYTES_MAX, FrameHead, HEAD_BYTES, Seed, padded_bytes};
use super::index::SlotIndex;
use super::read::JournalReader;
use super::record::{RECORD_HEAD_BYTES, RawRecord};
use super::recover::{Opening, Tail};
use super::segment;
use super::{JournalError, JournalOptions, JournalPosition, JournalStats, Recovered, VALUE_BYTES_MAX};

/// The journal of a node, opened by its one writer.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    seed: Seed,
    options: JournalOptions,
    /// The boot: states in which life a group was written.
    life: u64,
    /// The segment that is written, and its number.
    file: File,
    segment: u64,
    /// The end of what was written to it.
    segment_end: u64,
    /// Everything below is on stable storage. Moved by a sync only.
    synced: JournalPosition,
    /// Of the next group.
    sequence: u64,
    /// The lowest segment still needed.
    first: u64,
    /// Bytes of the segments that are not written any more.
    closed_bytes: u64,
    pending: Pending,
    /// One group as it is written; kept for its memory.
    buffer: Vec<u8>,
    /// The last group that says something is covered by a later one that is synced.
    is_covered: bool,
    is_poisoned: bool,
    stats: JournalStats,
    index: Arc<SlotIndex>,
}

/// Records that wait for the next commit.
#[derive(Debug, Default)]
struct Pending {
    /// Encoded records.
    bytes: Vec<u8>,
    /// Where in `bytes` the body of each further group begins: one write has a limit.
    cuts: Vec<usize>,
    /// Accepted records, each with the number of its body: for the index.
    accepted: Vec<(usize, GroupId, Slot)>,
}

impl Pending {
    fn push(&mut self, record: &RawRecord<'_>) -> Result<(), JournalError> {
        let bytes = record.encoded_bytes();
        if BODY_BYTES_MAX < bytes {
            return Err(JournalError::TooLarge { bytes: bytes - RECORD_HEAD_BYTES, bytes_max: VALUE_BYTES_MAX });
        }
        let body_start = self.cuts.last().copied().unwrap_or(0);
        if BODY_BYTES_MAX < self.bytes.len() - body_start + bytes {
            self.cuts.push(self.bytes.len());
        }
        if let RawRecord::Accepted { group, slot, .. } = record {
            self.accepted.push((self.cuts.len(), *group, *slot));
        }
        record.encode(&mut self.bytes);
        Ok(())
    }

    /// The bodies of the groups to write.
    fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.cuts.iter().copied());
        let ends = self.cuts.iter().copied().chain(std::iter::once(self.bytes.len()));
        starts.zip(ends).map(|(start, end)| &self.bytes[start..end])
    }
}

impl Journal {
    /// Makes the directory of a journal with its first, empty segment. Called once, while the data
    /// directory is made under its hidden name; afterwards a missing segment is damage.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn create(dir: &Path) -> Result<(), DiskError> {
        std::fs::create_dir(dir).map_err(DiskError::io("creating the directory", dir))?;
        segment::create(dir, 1)?;
        durable::sync_dir(durable::parent_of(dir))
    }

    /// Opens the journal: finds out what is good, secures it, ends the old life and begins this one.
    /// When it returns, all that it recovered is on stable storage.
    ///
    /// `boot` was raised durably before. Of entries below a group's `applied_ends` only the place is
    /// kept, and they must be there.
    ///
    /// # Errors
    /// [`JournalError::Damage`], [`JournalError::RolledBack`], [`JournalError::SlotMissing`]: this
    /// disk must not vote. [`JournalError::Format`], [`JournalError::Disk`].
    pub fn open(
        dir: &Path,
        incarnation: Incarnation,
        boot: u64,
        applied_ends: &BTreeMap<GroupId, Slot>,
        options: JournalOptions,
    ) -> Result<(Journal, Recovered), JournalError> {
        let seed = Seed::new(incarnation);
        let index = Arc::new(SlotIndex::default());
        let opening = Opening { dir, seed: &seed, boot, applied_ends, index: &index };
        let (tail, recovered) = opening.recover()?;
        let file = match segment::open(dir, tail.at.segment)? {
            Some(file) => file,
            // An end named it, and the crash came before it was made.
            None => segment::create(dir, tail.at.segment)?,
        };
        let mut journal = Journal {
            dir: dir.to_owned(),
            seed,
            options,
            life: boot,
            file,
            segment: tail.at.segment,
            segment_end: tail.at.byte,
            synced: tail.at,
            sequence: tail.sequence,
            first: tail.first,
            closed_bytes: 0,
            pending: Pending::default(),
            buffer: Vec::new(),
            is_covered: true,
            is_poisoned: false,
            stats: JournalStats::default(),
            index,
        };
        journal.begin_life(&tail)?;
        Ok((journal, recovered))
    }

    /// The end, sync; the fresh segment, directory sync; one empty group, sync.
    fn begin_life(&mut self, tail: &Tail) -> Result<(), JournalError> {
        let present = tail.kept.iter().chain(&tail.stale).copied();
        let highest = present.max().unwrap_or(0).max(tail.at.segment);
        for number in tail.kept.range(..tail.at.segment) {
            let path = segment::path_of(&self.dir, *number);
            self.closed_bytes += std::fs::metadata(&path).map_err(DiskError::io("stat of", &path))?.len();
        }
        self.write_end(highest + 1)?;
        // No end leads to them: they are never read again.
        for number in &tail.stale {
            let path = segment::path_of(&self.dir, *number);
            std::fs::remove_file(&path).map_err(DiskError::io("removing", &path))?;
        }
        self.begin_segment(highest + 1)?;
        self.write_group(&[])?;
        self.sync()
    }

    /// Adds a record to the next commit.
    ///
    /// # Errors
    /// [`JournalError::TooLarge`]: the record is not added, the journal stays good.
    pub fn append(&mut self, group: GroupId, record: &Record) -> Result<(), JournalError> {
        self.pending.push(&RawRecord::of(group, record))
    }

    /// Adds the birth record to the next commit. There is one in the life of a disk.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn append_birth(&mut self, birth: &[u8]) -> Result<(), JournalError> {
        self.pending.push(&RawRecord::Birth(birth))
    }

    /// Writes what was appended, as one group unless it is longer than a group may be, and syncs.
    /// Afterwards it is durable, and readers see it. Free when there is nothing.
    ///
    /// # Errors
    /// [`JournalError::Disk`]: the process must end; [`JournalError::Poisoned`] from then on.
    pub fn commit(&mut self) -> Result<(), JournalError> {
        self.refuse_poisoned()?;
        if self.pending.bytes.is_empty() {
            return Ok(());
        }
        // Whatever way this is left, a failed write or sync is not tried again.
        self.is_poisoned = true;
        self.is_covered = false;
        let mut pending = std::mem::take(&mut self.pending);
        let mut starts = Vec::with_capacity(pending.cuts.len() + 1);
        for body in pending.bodies() {
            self.make_room(body.len())?;
            starts.push(self.write_group(body)?);
        }
        self.sync()?;
        for (number, group, slot) in pending.accepted.drain(..) {
            self.index.insert(group, slot, starts[number]);
        }
        pending.bytes.clear();
        pending.cuts.clear();
        self.pending = pending;
        self.is_poisoned = false;
        Ok(())
    }

    /// The last group that says something is not covered yet: a journal that stays idle must write a
    /// cover, once for each pause and at a clean exit.
    #[must_use]
    pub fn needs_cover(&self) -> bool {
        !self.is_covered
    }

    /// Writes and syncs an empty group, whose head says that all before it was synced: from then on
    /// a rotted last record is told from a torn one. Free when all is covered.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn write_cover(&mut self) -> Result<(), JournalError> {
        self.refuse_poisoned()?;
        if self.is_covered {
            return Ok(());
        }
        self.is_poisoned = true;
        self.make_room(0)?;
        self.write_group(&[])?;
        self.sync()?;
        self.is_covered = true;
        self.is_poisoned = false;
        Ok(())
    }

    /// Everything below is durable: stated in heartbeats.
    #[must_use]
    pub fn synced_end(&self) -> JournalPosition {
        self.synced
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.closed_bytes + self.segment_end
    }

    /// What was written in this life.
    #[must_use]
    pub fn stats(&self) -> JournalStats {
        self.stats
    }

    /// A reader for another thread.
    #[must_use]
    pub fn reader(&self) -> JournalReader {
        JournalReader::new(&self.dir, &self.seed, &self.index)
    }

    /// Ends the segment if a group with such a body and an end behind it would grow beyond the limit.
    fn make_room(&mut self, body_bytes: usize) -> Result<(), JournalError> {
        let end = self.segment_end + padded_bytes(body_bytes) + BLOCK_BYTES;
        if self.segment_end == 0 || end <= self.options.segment_bytes {
            return Ok(());
        }
        let next = self.segment + 1;
        self.write_end(next)?;
        self.begin_segment(next)
    }

    fn write_end(&mut self, next_segment: u64) -> Result<(), JournalError> {
        let mut body = Vec::new();
        RawRecord::End { next_segment }.encode(&mut body);
        self.write_group(&body)?;
        self.sync()
    }

    fn begin_segment(&mut self, number: u64) -> Result<(), JournalError> {
        assert!(self.synced == JournalPosition { segment: self.segment, byte: self.segment_end });
        self.file = segment::create(&self.dir, number)?;
        self.closed_bytes += self.segment_end;
        self.segment = number;
        self.segment_end = 0;
        Ok(())
    }

    /// One write. Returns where the group begins.
    fn write_group(&mut self, body: &[u8]) -> Result<JournalPosition, JournalError> {
        let at = JournalPosition { segment: self.segment, byte: self.segment_end };
        assert!(at.byte.is_multiple_of(BLOCK_BYTES));
        assert!(self.synced <= at);
        let head = FrameHead {
            body_bytes: u32::try_from(body.len()).expect("BODY_BYTES_MAX < 2^32"),
            segment: self.segment,
            life: self.life,
            sequence: self.sequence,
            synced: self.synced,
            first: self.first,
            body_crc: self.seed.crc(body),
        };
        let bytes = head.padded_bytes();
        self.buffer.clear();
        self.buffer.extend_from_slice(&head.encode(&self.seed));
        self.buffer.extend_from_slice(body);
        assert!(self.buffer.len() == HEAD_BYTES + body.len());
        self.buffer.resize(usize::try_from(bytes).expect("a group fits memory"), 0);
        self.file.write_all_at(&self.buffer, at.byte).map_err(|source| self.io("writing", source))?;
        self.segment_end += bytes;
        self.sequence += 1;
        self.stats.groups += 1;
        self.stats.bytes += bytes;
        Ok(at)
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        self.file.sync_data().map_err(|source| self.io("fdatasync of", source))?;
        self.stats.syncs += 1;
        self.synced = JournalPosition { segment: self.segment, byte: self.segment_end };
        Ok(())
    }

    fn io(&self, operation: &'static str, source: std::io::Error) -> DiskError {
        DiskError::io(operation, &segment::path_of(&self.dir, self.segment))(source)
    }

    fn refuse_poisoned(&self) -> Result<(), JournalError> {
        if self.is_poisoned { Err(JournalError::Poisoned { dir: self.dir.clone() }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use photon_core::Ballot;
    use photon_types::NodeId;

    use super::*;

    fn promise(round: u64) -> Record {
        Record::Promise { ballot: Ballot { round, node: NodeId(1) } }
    }

    #[test]
    fn a_failed_write_ends_writing_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        Journal::create(&path).unwrap();
        let open = |boot| {
            Journal::open(&path, Incarnation([1; 16]), boot, &BTreeMap::new(), JournalOptions::default()).unwrap()
        };
        let (mut journal, _) = open(1);
        journal.append(GroupId(1), &promise(1)).unwrap();
        journal.commit().unwrap();
        let good = std::mem::replace(&mut journal.file, File::open(segment::path_of(&path, 2)).unwrap());
        journal.append(GroupId(1), &promise(2)).unwrap();
        assert!(matches!(journal.commit(), Err(JournalError::Disk(_))));
        // Even if the file were good again.
        journal.file = good;
        journal.append(GroupId(1), &promise(3)).unwrap();
        assert!(matches!(journal.commit(), Err(JournalError::Poisoned { .. })));
        assert!(matches!(journal.write_cover(), Err(JournalError::Poisoned { .. })));
        drop(journal);
        assert_eq!(open(2).1.records[&GroupId(1)], [promise(1)]);
    }

    #[test]
    fn more_than_a_group_may_hold_is_written_as_several_and_synced_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        Journal::create(&path).unwrap();
        let (mut journal, _) =
            Journal::open(&path, Incarnation([1; 16]), 1, &BTreeMap::new(), JournalOptions::default()).unwrap();
        let before = journal.stats();
        let accepted = |slot, bytes: usize| Record::Accepted {
            entry: photon_core::Entry { slot: Slot(slot), ballot: Ballot::ZERO, value: vec![7; bytes].into() },
            chosen: false,
        };
        journal.append(GroupId(1), &accepted(0, VALUE_BYTES_MAX)).unwrap();
        journal.append(GroupId(1), &accepted(1, 1)).unwrap();
        let error = journal.append(GroupId(1), &accepted(2, VALUE_BYTES_MAX + 1)).unwrap_err();
        assert!(matches!(error, JournalError::TooLarge { .. }), "{error}");
        journal.commit().unwrap();
        let after = journal.stats();
        assert_eq!((after.groups - before.groups, after.syncs - before.syncs), (2, 1));
        let entries = journal.reader().read(GroupId(1), Slot(0), Slot(9), usize::MAX).unwrap();
        assert_eq!(entries.iter().map(|entry| entry.value.len()).collect::<Vec<_>>(), [VALUE_BYTES_MAX, 1]);
    }
}

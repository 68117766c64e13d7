//! A simulated journal: records in order, one sync under way at a time.
//!
//! Invariant: what was reported durable survives every crash; of what was not, a crash leaves a
//! prefix: behind the first gap nothing is read, as in the real journal, so that a subset that
//! reached the disk is no more than the prefix before its first gap.

use std::collections::{BTreeMap, VecDeque};

use photon_core::{Entry, IoSeq, Record};
use photon_types::Slot;

#[derive(Debug, Default)]
pub(crate) struct Journal {
    durable: Vec<Record>,
    /// The last durable record of each slot.
    places: BTreeMap<Slot, usize>,
    unsynced: VecDeque<(IoSeq, Record)>,
    /// How many of them the sync under way covers; none is under way at zero.
    syncing: usize,
}

impl Journal {
    pub fn write(&mut self, seq: IoSeq, record: Record) {
        self.unsynced.push_back((seq, record));
    }

    /// Begins a sync if there is something to sync and none is under way.
    pub fn begin_sync(&mut self, group_records_max: usize) -> bool {
        if 0 < self.syncing || self.unsynced.is_empty() {
            return false;
        }
        self.syncing = self.unsynced.len().min(group_records_max);
        true
    }

    /// The sync is done: the records that are durable now, and the last number.
    pub fn finish_sync(&mut self) -> (&[Record], IoSeq) {
        assert!(0 < self.syncing, "no sync is under way");
        let upto = self.unsynced[self.syncing - 1].0;
        let count = std::mem::take(&mut self.syncing);
        (self.make_durable(count), upto)
    }

    /// Of the unsynced records the first `kept` are on the disk none the less; the others are gone.
    pub fn crash(&mut self, kept: usize) -> &[Record] {
        self.unsynced.truncate(kept);
        self.syncing = 0;
        self.make_durable(self.unsynced.len())
    }

    fn make_durable(&mut self, count: usize) -> &[Record] {
        let first = self.durable.len();
        for (_, record) in self.unsynced.drain(..count) {
            if let Record::Accepted { entry, chosen: _ } = &record {
                self.places.insert(entry.slot, self.durable.len());
            }
            self.durable.push(record);
        }
        &self.durable[first..]
    }

    pub fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// What a recovery reads. With `applied_end`, entries below it are left out, but not what their
    /// ballots promised, as the real journal does.
    pub fn recover(&self, leave_out_below: Option<Slot>) -> impl Iterator<Item = Record> + use<'_> {
        let end = leave_out_below.unwrap_or_default();
        self.durable.iter().filter_map(move |record| match record {
            Record::Accepted { entry, chosen } if entry.slot < end => {
                (!chosen).then_some(Record::Promise { ballot: entry.ballot })
            }
            Record::Accepted { .. } | Record::Promise { .. } | Record::CommitHint { .. } => Some(record.clone()),
        })
    }

    /// Entries of `from..to_end` without a gap, the last record of each slot.
    pub fn read(&self, from: Slot, to_end: Slot, bytes_max: usize) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        for slot in (from.0..to_end.0).map(Slot) {
            let Some(Record::Accepted { entry, chosen: _ }) = self.places.get(&slot).map(|place| &self.durable[*place])
            else {
                break;
            };
            bytes += entry.value.len();
            if bytes_max < bytes && !entries.is_empty() {
                break;
            }
            entries.push(entry.clone());
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use photon_core::{Ballot, Value};
    use photon_types::NodeId;

    use super::*;

    fn accepted(slot: u64, round: u64) -> Record {
        let entry = Entry { slot: Slot(slot), ballot: Ballot { round, node: NodeId(1) }, value: Value::new() };
        Record::Accepted { entry, chosen: false }
    }

    fn journal(records: &[Record]) -> Journal {
        let mut journal = Journal::default();
        for (seq, record) in (1..).zip(records) {
            journal.write(IoSeq(seq), record.clone());
        }
        journal
    }

    #[test]
    fn a_sync_covers_what_was_written_when_it_began() {
        let mut journal = journal(&[accepted(0, 1), accepted(1, 1)]);
        assert!(journal.begin_sync(1_000));
        assert!(!journal.begin_sync(1_000));
        journal.write(IoSeq(3), accepted(2, 1));
        let (records, upto) = journal.finish_sync();
        assert_eq!((records.len(), upto), (2, IoSeq(2)));
        assert_eq!(journal.unsynced(), 1);
        assert!(journal.begin_sync(1_000));
    }

    #[test]
    fn a_crash_leaves_a_prefix_and_what_was_durable() {
        let mut journal = journal(&[accepted(0, 1), accepted(1, 1), accepted(2, 1)]);
        assert!(journal.begin_sync(1));
        journal.finish_sync();
        assert!(journal.begin_sync(2));
        assert_eq!(journal.crash(1), [accepted(1, 1)]);
        assert_eq!(journal.recover(None).collect::<Vec<_>>(), [accepted(0, 1), accepted(1, 1)]);
        assert!(!journal.begin_sync(2));
    }

    #[test]
    fn a_recovery_that_leaves_out_entries_keeps_their_promises() {
        let mut journal = journal(&[accepted(0, 3), accepted(1, 2)]);
        journal.crash(2);
        let promise = Record::Promise { ballot: Ballot { round: 3, node: NodeId(1) } };
        assert_eq!(journal.recover(Some(Slot(1))).collect::<Vec<_>>(), [promise, accepted(1, 2)]);
    }

    #[test]
    fn the_last_record_of_a_slot_is_read() {
        let mut journal = journal(&[accepted(0, 1), accepted(0, 2), accepted(1, 1), accepted(3, 1)]);
        journal.crash(4);
        let read = journal.read(Slot(0), Slot(9), 100);
        assert_eq!(read.iter().map(|entry| (entry.slot.0, entry.ballot.round)).collect::<Vec<_>>(), [(0, 2), (1, 1)]);
    }
}

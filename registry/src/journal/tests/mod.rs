//! Tests of the journal as a whole. Single bytes are in `golden`, crashes and damage in `crash`,
//! many lives against a model in `lives`.

mod crash;
mod golden;
mod lives;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use photon_core::{Ballot, Entry, Record};
use photon_types::{GroupId, Incarnation, NodeId, Slot};

use super::frame::BLOCK_BYTES;
use super::{Journal, JournalError, JournalOptions, JournalPosition, Recovered, segment};

const GROUP: GroupId = GroupId(1);
const INCARNATION: Incarnation = Incarnation([0xab; 16]);

fn ballot(round: u64) -> Ballot {
    Ballot { round, node: NodeId(1) }
}

fn entry(slot: u64, round: u64, value: &[u8]) -> Entry {
    Entry { slot: Slot(slot), ballot: ballot(round), value: value.to_vec().into() }
}

fn accepted(slot: u64, round: u64, value: &[u8]) -> Record {
    Record::Accepted { entry: entry(slot, round, value), chosen: false }
}

fn chosen(slot: u64, round: u64, value: &[u8]) -> Record {
    Record::Accepted { entry: entry(slot, round, value), chosen: true }
}

fn promise(round: u64) -> Record {
    Record::Promise { ballot: ballot(round) }
}

fn hint(commit_end: u64) -> Record {
    Record::CommitHint { commit_end: Slot(commit_end) }
}

/// A journal and how often it was started.
struct Fixture {
    temporary: tempfile::TempDir,
    boot: u64,
    options: JournalOptions,
    applied_ends: BTreeMap<GroupId, Slot>,
}

impl Fixture {
    fn new() -> Fixture {
        let temporary = tempfile::tempdir().unwrap();
        let fixture = Fixture { temporary, boot: 0, options: JournalOptions::default(), applied_ends: BTreeMap::new() };
        Journal::create(&fixture.dir()).unwrap();
        fixture
    }

    fn dir(&self) -> PathBuf {
        self.temporary.path().join("journal")
    }

    fn try_open(&mut self) -> Result<(Journal, Recovered), JournalError> {
        self.boot += 1;
        Journal::open(&self.dir(), INCARNATION, self.boot, &self.applied_ends, self.options)
    }

    #[track_caller]
    fn open(&mut self) -> (Journal, Recovered) {
        self.try_open().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Opens, and returns what replication group 1 must know.
    #[track_caller]
    fn records(&mut self) -> Vec<Record> {
        self.open().1.records.remove(&GROUP).unwrap_or_default()
    }

    fn segment(&self, number: u64) -> PathBuf {
        segment::path_of(&self.dir(), number)
    }

    fn segments(&self) -> Vec<u64> {
        segment::list(&self.dir()).unwrap().into_iter().collect()
    }

    fn alter(&self, number: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.segment(number)).unwrap();
        change(&mut bytes);
        fs::write(self.segment(number), bytes).unwrap();
    }

    /// All files, to come back to.
    fn snapshot(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = fs::read_dir(self.dir()).unwrap().map(|entry| entry.unwrap().path());
        files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }

    fn restore(&self, files: &BTreeMap<PathBuf, Vec<u8>>) {
        fs::remove_dir_all(self.dir()).unwrap();
        fs::create_dir(self.dir()).unwrap();
        files.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    }
}

/// Appends and commits.
#[track_caller]
fn commit(journal: &mut Journal, records: &[Record]) -> JournalPosition {
    records.iter().for_each(|record| journal.append(GROUP, record).unwrap());
    let start = journal.synced_end();
    journal.commit().unwrap();
    start
}

#[test]
fn a_new_journal_is_empty_and_begins_in_segment_two() {
    let mut fixture = Fixture::new();
    let (journal, recovered) = fixture.open();
    assert_eq!((recovered.birth, recovered.records, recovered.torn), (None, BTreeMap::new(), None));
    assert_eq!(recovered.recovered_end, JournalPosition { segment: 1, byte: 0 });
    assert_eq!(journal.synced_end(), JournalPosition { segment: 2, byte: BLOCK_BYTES });
    assert_eq!(journal.bytes(), 2 * BLOCK_BYTES);
    assert!(!journal.needs_cover());
    assert_eq!(fixture.segments(), [1, 2]);
}

#[test]
fn all_kinds_of_records_of_several_groups_come_back_in_order() {
    let mut fixture = Fixture::new();
    let (mut journal, _) = fixture.open();
    journal.append_birth(b"who was there").unwrap();
    journal.append(GROUP, &promise(1)).unwrap();
    journal.append(GroupId(2), &chosen(7, 3, b"other")).unwrap();
    journal.append(GROUP, &accepted(0, 1, b"")).unwrap();
    journal.commit().unwrap();
    commit(&mut journal, &[accepted(1, 1, b"one"), hint(1)]);
    drop(journal);
    let (mut journal, recovered) = fixture.open();
    assert_eq!(recovered.birth.as_deref(), Some(&b"who was there"[..]));
    assert_eq!(recovered.records[&GROUP], [promise(1), accepted(0, 1, b""), accepted(1, 1, b"one"), hint(1)]);
    assert_eq!(recovered.records[&GroupId(2)], [chosen(7, 3, b"other")]);
    commit(&mut journal, &[accepted(1, 2, b"two"), hint(2)]);
    drop(journal);
    let want = [promise(1), accepted(0, 1, b""), accepted(1, 1, b"one"), accepted(1, 2, b"two"), hint(2)];
    assert_eq!(fixture.records(), want);
    assert_eq!(fixture.segments(), [1, 2, 3, 4]);
}

#[test]
fn applied_entries_leave_only_their_promise() {
    let mut fixture = Fixture::new();
    let (mut journal, _) = fixture.open();
    commit(&mut journal, &[accepted(0, 2, b"a"), chosen(1, 9, b"b"), accepted(2, 2, b"c"), accepted(3, 3, b"d")]);
    drop(journal);
    fixture.applied_ends.insert(GROUP, Slot(3));
    assert_eq!(fixture.records(), [promise(2), accepted(3, 3, b"d")]);
    fixture.applied_ends.insert(GROUP, Slot(4));
    assert_eq!(fixture.records(), [promise(2), promise(3)]);
    // The reader still has them all.
    let (journal, _) = fixture.open();
    assert_eq!(journal.reader().read(GROUP, Slot(0), Slot(9), 99).unwrap().len(), 4);
    drop(journal);
    fixture.applied_ends.insert(GROUP, Slot(5));
    let error = fixture.try_open().unwrap_err();
    assert!(matches!(error, JournalError::SlotMissing { slot: Slot(4), .. }), "{error}");
    assert!(error.is_damage());
}

#[test]
fn segments_are_ended_at_their_limit() {
    let mut fixture = Fixture::new();
    fixture.options.segment_bytes = 5 * BLOCK_BYTES;
    let (mut journal, _) = fixture.open();
    let mut want = Vec::new();
    let mut ends = Vec::new();
    for slot in 0..20 {
        // Every fifth takes more than a segment.
        let value = vec![u8::try_from(slot).unwrap(); if slot % 5 == 4 { 30_000 } else { 5_000 }];
        want.push(accepted(slot, 1, &value));
        commit(&mut journal, &want[want.len() - 1..]);
        ends.push(journal.synced_end());
    }
    assert!(ends.is_sorted());
    let on_disk: u64 =
        fixture.segments().iter().map(|number| fs::metadata(fixture.segment(*number)).unwrap().len()).sum();
    assert_eq!(journal.bytes(), on_disk);
    assert!(10 < fixture.segments().len());
    let entries = journal.reader().read(GROUP, Slot(0), Slot(99), usize::MAX).unwrap();
    assert_eq!(entries.len(), 20);
    drop(journal);
    assert_eq!(fixture.records(), want);
}

#[test]
fn a_cover_is_written_once_for_each_pause() {
    let mut fixture = Fixture::new();
    let (mut journal, _) = fixture.open();
    journal.commit().unwrap();
    journal.write_cover().unwrap();
    let idle = journal.stats();
    commit(&mut journal, &[promise(1)]);
    assert!(journal.needs_cover());
    journal.write_cover().unwrap();
    assert!(!journal.needs_cover());
    journal.write_cover().unwrap();
    let after = journal.stats();
    assert_eq!((after.groups - idle.groups, after.syncs - idle.syncs), (2, 2));
}

#[test]
fn the_reader_returns_the_last_record_of_each_slot() {
    let mut fixture = Fixture::new();
    let (mut journal, _) = fixture.open();
    let reader = journal.reader();
    let read = |from, to_end, bytes_max| reader.read(GROUP, Slot(from), Slot(to_end), bytes_max).unwrap();
    commit(&mut journal, &[accepted(0, 1, b"zero"), accepted(1, 1, b"one"), accepted(1, 2, b"ONE"), promise(5)]);
    commit(&mut journal, &[accepted(2, 1, b"two"), accepted(4, 1, b"four")]);
    commit(&mut journal, &[accepted(0, 3, b"ZERO")]);
    journal.append(GROUP, &accepted(3, 1, b"not synced")).unwrap();
    journal.append(GroupId(2), &accepted(0, 1, b"other group")).unwrap();
    let [zero, one, two, four] = [entry(0, 3, b"ZERO"), entry(1, 2, b"ONE"), entry(2, 1, b"two"), entry(4, 1, b"four")];
    assert_eq!(read(0, 99, 99), [zero.clone(), one.clone(), two.clone()]);
    assert_eq!(read(0, 2, 99), [zero.clone(), one.clone()]);
    assert_eq!(read(0, 99, 7), [zero.clone(), one]);
    assert_eq!(read(0, 99, 0), [zero]);
    assert_eq!(read(4, 99, 99), [four]);
    assert_eq!(read(3, 99, 99), []);
    assert_eq!(read(2, 2, 99), []);
    journal.commit().unwrap();
    assert_eq!(read(2, 99, 99).len(), 3);
    // Bytes that rot under it are an error.
    fixture.alter(2, |bytes| bytes[usize::try_from(BLOCK_BYTES).unwrap() + 80] ^= 1);
    let error = reader.read(GROUP, Slot(1), Slot(2), 99).unwrap_err();
    assert!(matches!(error, JournalError::Damage { offset: BLOCK_BYTES, .. }), "{error}");
    assert_eq!(read(2, 3, 99), [two]);
}

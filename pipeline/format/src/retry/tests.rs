//! The store over restarts and crashes, against a model of what its ledger must say.

use std::collections::BTreeMap;

use bytes::Bytes;
use photon_types::{ClusterId, EventKey, GroupId, Slot};
use proptest::prelude::*;

use super::*;
use crate::cursor::{Counts, SourceCursor};

const SOURCE: &str = "clicks/a.ndjson";

fn record(offset: u64, origin: Origin) -> RetryRecord {
    RetryRecord {
        source: SOURCE.into(),
        offset,
        stream: "clicks".into(),
        key: EventKey::new(1_700_000_000_000_000 + offset, b"e").unwrap(),
        reference: Bytes::from_static(b"q"),
        payload: Bytes::from(vec![b'x'; 100]),
        origin,
        reason: "no query yet".into(),
    }
}

fn read_at(offset: u64) -> RetryRecord {
    record(offset, Origin::Read)
}

fn sent_again(offset: u64, slot: Option<u64>) -> RetryRecord {
    let deleted = slot.map(|slot| DeletedAt { cluster: ClusterId([1; 16]), group: GroupId(1), slot: Slot(slot) });
    record(offset, Origin::Reinjected { deleted })
}

/// Compacts whenever there is anything to gain.
fn eager() -> RetryLimits {
    RetryLimits { compact_bytes_min: 0, ..RetryLimits::default() }
}

struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    fn new() -> Home {
        // In memory: hundreds of lives, each with dozens of syncs.
        let shm = std::path::Path::new("/dev/shm");
        let directory = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        Home { directory: directory.unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("retry")
    }

    fn open(&self) -> RetryStore {
        RetryStore::open(&self.path(), eager()).unwrap()
    }
}

fn cursor_at(offset: u64, retry_end: u64) -> Cursor {
    let source = SourceCursor { offset, ..SourceCursor::default() };
    Cursor { sources: BTreeMap::from([(SOURCE.to_owned(), source)]), retry_end }
}

#[test]
fn records_stay_until_they_are_done() {
    let home = Home::new();
    let mut store = home.open();
    let added = store.add(&[read_at(10), sent_again(20, Some(5))]).unwrap();
    assert_eq!(added, [Added::New(RetryId(0)), Added::New(RetryId(1))]);
    store.sync().unwrap();
    let bytes = store.bytes();
    drop(store);
    let mut store = home.open();
    assert_eq!(store.bytes(), bytes);
    let pending: Vec<_> = store.content().iter().map(|(id, record)| (id.0, record.clone())).collect();
    assert_eq!(pending, [(0, read_at(10)), (1, sent_again(20, Some(5)))]);
    store.done(RetryId(0), Ended::Joined).unwrap();
    assert!(matches!(store.done(RetryId(0), Ended::Joined), Err(StateError::NotPending { id: 0, .. })));
    store.sync().unwrap();
    let seen = read(&home.path()).unwrap();
    assert_eq!(seen.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [1]);
    assert_eq!(store.add(&[read_at(30)]).unwrap(), [Added::New(RetryId(2))]);
}

#[test]
fn a_click_is_pending_once_for_each_way_it_came() {
    let home = Home::new();
    let mut store = home.open();
    let add = |store: &mut RetryStore, record: RetryRecord| store.add(&[record]).unwrap()[0];
    assert_eq!(add(&mut store, read_at(10)), Added::New(RetryId(0)));
    assert_eq!(add(&mut store, read_at(10)), Added::Known(RetryId(0)));
    assert_eq!(add(&mut store, sent_again(10, Some(5))), Added::New(RetryId(1)));
    assert_eq!(add(&mut store, sent_again(10, Some(4))), Added::Known(RetryId(1)));
    assert_eq!(store.content().get(RetryId(1)), Some(&sent_again(10, Some(5))));
    // The later delete is the one that no look-up may be older than.
    assert_eq!(add(&mut store, sent_again(10, Some(6))), Added::Known(RetryId(1)));
    store.sync().unwrap();
    assert_eq!(home.open().content().get(RetryId(1)), Some(&sent_again(10, Some(6))));
    assert_eq!(home.open().content().len(), 2);
}

#[test]
fn a_full_store_refuses_all_and_keeps_what_it_has() {
    let home = Home::new();
    let one = read_at(0).bytes();
    for (records_max, bytes_max) in [(2, u64::MAX), (u64::MAX, 2 * one)] {
        let path = home.directory.path().join(records_max.to_string());
        let limits = RetryLimits { records_max, bytes_max, ..eager() };
        let mut store = RetryStore::open(&path, limits).unwrap();
        store.add(&[read_at(1)]).unwrap();
        let error = store.add(&[read_at(2), read_at(3)]).unwrap_err();
        assert!(matches!(error, StateError::Full { .. }), "{error}");
        assert_eq!(store.content().len(), 1);
        store.add(&[read_at(2)]).unwrap();
        store.done(RetryId(0), Ended::Claimed).unwrap();
        store.add(&[read_at(3)]).unwrap();
        store.sync().unwrap();
        assert_eq!(RetryStore::open(&path, limits).unwrap().content().len(), 2);
    }
}

#[test]
fn an_end_is_known_until_the_cursor_has_passed_and_counted_it() {
    let home = Home::new();
    let mut store = home.open();
    store.add(&[read_at(10)]).unwrap();
    assert_eq!(store.known(SOURCE, 10), Known::Pending(RetryId(0)));
    store.done(RetryId(0), Ended::Joined).unwrap();
    store.sync().unwrap();
    let want = Known::Ended(Ended::Joined);
    // Counted but not passed, and passed but not counted.
    store.on_cursor_saved(&cursor_at(10, store.log_end())).unwrap();
    assert_eq!(store.known(SOURCE, 10), want);
    assert_eq!(home.open().known(SOURCE, 10), want);
    store.on_cursor_saved(&cursor_at(11, 1)).unwrap();
    assert_eq!(home.open().known(SOURCE, 10), want);
    store.on_cursor_saved(&cursor_at(11, store.log_end())).unwrap();
    assert_eq!(store.known(SOURCE, 10), Known::No);
}

#[test]
fn compaction_keeps_what_is_needed_and_no_id_comes_twice() {
    let home = Home::new();
    let mut store = home.open();
    let mut cursor = Cursor::default();
    for offset in 0..200 {
        let id = store.add(&[sent_again(offset, None)]).unwrap()[0].id();
        if offset % 50 != 0 {
            store.done(id, Ended::Joined).unwrap();
        }
    }
    store.sync().unwrap();
    store.recount(&mut cursor);
    let before = std::fs::metadata(home.path()).unwrap().len();
    store.on_cursor_saved(&cursor).unwrap();
    let after = std::fs::metadata(home.path()).unwrap().len();
    assert!(after * 10 < before, "{before} bytes became {after}");
    let counts = cursor.sources[SOURCE].counts;
    assert_eq!((counts.reinjected, counts.joined, counts.pending()), (200, 196, Some(4)));
    // The cursor that was saved before the compaction counts nothing twice.
    let mut store = home.open();
    let mut again = cursor.clone();
    store.recount(&mut again);
    assert_eq!(again.sources, cursor.sources);
    assert_eq!(store.content().iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [0, 50, 100, 150]);
    assert_eq!(store.add(&[read_at(7)]).unwrap(), [Added::New(RetryId(200))]);
}

#[test]
fn a_log_that_no_store_writes_is_refused_with_the_record_named() {
    let add =
        |position, id, offset| LogRecord { position, change: Change::Add { id: RetryId(id), record: read_at(offset) } };
    for (want, second) in [
        ("position", add(0, 1, 20)),
        ("pending under another id", add(1, 1, 10)),
        ("belongs to another click", add(1, 0, 20)),
    ] {
        let home = Home::new();
        let (mut file, _) = FramedWriter::open(&home.path(), RETRY_FORMAT).unwrap();
        for record in [add(0, 0, 10), second] {
            file.append(&record.encode()).unwrap();
        }
        file.sync().unwrap();
        for error in [read(&home.path()).unwrap_err(), RetryStore::open(&home.path(), eager()).unwrap_err()] {
            assert!(matches!(error, StateError::Record { number: 1, .. }), "{error}");
            assert!(error.to_string().contains(want), "{error}");
        }
    }
}

#[test]
fn a_store_that_is_not_there_holds_nothing() {
    let home = Home::new();
    assert!(read(&home.path()).unwrap().is_empty());
    assert_eq!(home.open().known(SOURCE, 0), Known::No);
}

/// What a dispatcher may do next.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Reads the next record: it ends at once, or goes to the store.
    Read {
        ends: bool,
    },
    /// A verifier sends a click.
    Reinject {
        offset: u64,
    },
    /// One of the pending records ends.
    Done {
        which: prop::sample::Index,
    },
    Sync,
    /// Saves the cursor as far as the records before it have a place.
    Save {
        back: u64,
    },
    /// The process dies: what was not synced is gone, what was not saved is read again.
    Crash,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => any::<bool>().prop_map(|ends| Act::Read { ends }),
        1 => (0u64..20).prop_map(|offset| Act::Reinject { offset }),
        3 => any::<prop::sample::Index>().prop_map(|which| Act::Done { which }),
        1 => Just(Act::Sync),
        2 => (0u64..3).prop_map(|back| Act::Save { back }),
        1 => Just(Act::Crash),
    ]
}

/// A dispatcher in small: records at offsets 0, 1, 2 and so on. An end that is not in the store is
/// counted when the cursor passes it.
struct Dispatcher {
    home: Home,
    store: RetryStore,
    /// In memory, ahead of the saved one.
    counts: Counts,
    /// Ends of records at and beyond the saved offset, by the answer of this life; none for those
    /// in the store.
    read: BTreeMap<u64, Option<Ended>>,
    offset: u64,
    /// Records that any life has read.
    seen: u64,
    saved: Cursor,
}

impl Dispatcher {
    fn start(home: Home, seen: u64) -> Dispatcher {
        let store = home.open();
        let mut cursor = Cursor::load(&home.directory.path().join("cursor")).unwrap().unwrap_or_default();
        store.recount(&mut cursor);
        let source = cursor.sources.get(SOURCE).copied().unwrap_or_default();
        let (counts, offset) = (source.counts, source.offset);
        Dispatcher { home, store, counts, read: BTreeMap::new(), offset, seen, saved: cursor }
    }

    fn run(&mut self, act: Act) {
        match act {
            Act::Read { ends } => {
                match self.store.known(SOURCE, self.offset) {
                    Known::No if ends => drop(self.read.insert(self.offset, Some(Ended::Claimed))),
                    Known::No => {
                        self.store.add(&[read_at(self.offset)]).unwrap();
                        self.read.insert(self.offset, None);
                    }
                    Known::Pending(_) | Known::Ended(_) => drop(self.read.insert(self.offset, None)),
                }
                self.offset += 1;
                self.seen = self.seen.max(self.offset);
            }
            Act::Reinject { offset } => {
                if let Added::New(_) = self.store.add(&[sent_again(offset, Some(offset))]).unwrap()[0] {
                    self.counts.reinjected += 1;
                }
            }
            Act::Done { which } => {
                let ids: Vec<RetryId> = self.store.content().iter().map(|(id, _)| id).collect();
                if !ids.is_empty() {
                    self.store.done(*which.get(&ids), Ended::Joined).unwrap();
                    self.counts.count(Ended::Joined);
                }
            }
            Act::Sync => self.store.sync().unwrap(),
            Act::Save { back } => self.save(back),
            Act::Crash => unreachable!("it takes the dispatcher"),
        }
    }

    fn save(&mut self, back: u64) {
        let offset = self.offset.saturating_sub(back);
        let behind = self.read.split_off(&offset);
        for ended in std::mem::replace(&mut self.read, behind).into_values() {
            self.counts.read += 1;
            ended.into_iter().for_each(|ended| self.counts.count(ended));
        }
        let offset = offset.max(self.saved.sources.get(SOURCE).map_or(0, |source| source.offset));
        self.store.sync().unwrap();
        self.saved = cursor_at(offset, self.store.log_end());
        self.saved.sources.get_mut(SOURCE).unwrap().counts = self.counts;
        self.saved.save(&self.home.directory.path().join("cursor")).unwrap();
        self.store.on_cursor_saved(&self.saved).unwrap();
    }

    /// All that was read is read again, and all ends.
    fn drain(&mut self) {
        while self.offset < self.seen {
            self.run(Act::Read { ends: true });
        }
        let ids: Vec<RetryId> = self.store.content().iter().map(|(id, _)| id).collect();
        for id in ids {
            self.store.done(id, Ended::Joined).unwrap();
            self.counts.count(Ended::Joined);
        }
        self.save(0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever happens, the ledger adds up once all is drained, and each record is read once.
    #[test]
    fn the_ledger_is_exact_over_crashes(acts in proptest::collection::vec(act(), 1..60)) {
        let mut dispatcher = Dispatcher::start(Home::new(), 0);
        for act in acts {
            match act {
                Act::Crash => {
                    let Dispatcher { home, store, seen, .. } = dispatcher;
                    drop(store);
                    dispatcher = Dispatcher::start(home, seen);
                }
                act => dispatcher.run(act),
            }
        }
        dispatcher.drain();
        let counts = dispatcher.saved.sources[SOURCE].counts;
        prop_assert_eq!(counts.read, dispatcher.offset);
        prop_assert_eq!(counts.pending(), Some(0), "{:?}", counts);
        prop_assert!(read(&dispatcher.home.path()).unwrap().is_empty());
    }
}

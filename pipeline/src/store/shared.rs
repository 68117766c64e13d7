//! What reader and service of a store share: index, cache, and how far the sources are read.
//!
//! Invariant: a position is taken before the index is asked. So when a miss says that a pass is
//! done, all that the pass read was in the index when it was looked for.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use photon_join::missing::Position;
use tokio::sync::watch;

use super::cache::Cache;
use super::index::{Index, Offered, Place, SourceNumber};

/// A primary record as it was read.
#[derive(Clone, Debug)]
pub(crate) struct PrimaryRecord {
    pub id: Bytes,
    pub offset: u64,
    /// Bytes of the whole record.
    pub bytes: u32,
    pub payload: Bytes,
}

/// How far the store has read, and whether it can say that something is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub position: Position,
    /// Why a miss is not known to be one.
    pub behind: Option<Arc<str>>,
    /// The last pass has failed. (A first pass that goes on is behind, but not faulty.)
    pub is_faulty: bool,
    /// Counts batches of new records: whoever waits looks again.
    pub batches: u64,
}

#[derive(Debug)]
struct Tables {
    index: Index,
    cache: Cache,
    /// Records whose id was there already.
    duplicates: u64,
    /// Records that are not usable.
    dead_letters: u64,
}

/// What one id comes to, without a look at the logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Cached { source: Arc<str>, offset: u64, payload: Bytes },
    InLog { source: SourceNumber, name: Arc<str>, place: Place },
    Nowhere,
}

/// Shared by reader and service.
#[derive(Debug)]
pub(crate) struct Shared {
    tables: Mutex<Tables>,
    progress: watch::Sender<Progress>,
}

impl Shared {
    pub fn new(epoch: [u8; 16], cache_bytes_max: usize) -> Shared {
        let position = Position { epoch, begun: 0, done: 0, is_final: false };
        let behind = Some("the sources are being read for the first time".into());
        Shared {
            tables: Mutex::new(Tables {
                index: Index::default(),
                cache: Cache::new(cache_bytes_max),
                duplicates: 0,
                dead_letters: 0,
            }),
            progress: watch::Sender::new(Progress { position, behind, is_faulty: false, batches: 0 }),
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().expect("nobody panics while holding it")
    }

    /// The number of a source.
    pub fn source(&self, name: &str) -> SourceNumber {
        self.tables().index.number(name)
    }

    /// Takes records of a source in.
    pub fn put(&self, source: SourceNumber, records: impl IntoIterator<Item = PrimaryRecord>) {
        let mut tables = self.tables();
        let Tables { index, cache, duplicates, dead_letters: _ } = &mut *tables;
        for PrimaryRecord { id, offset, bytes, payload } in records {
            match index.offer(&id, Place { source, offset, bytes }) {
                Offered::New => cache.put(id, payload),
                Offered::Replaced => {
                    *duplicates += 1;
                    cache.remove(&id);
                    cache.put(id, payload);
                }
                Offered::Later => *duplicates += 1,
            }
        }
        drop(tables);
        self.progress.send_modify(|progress| progress.batches += 1);
    }

    /// A payload that had to be read from its log is likely to be wanted again.
    pub fn put_cached(&self, id: Bytes, place: Place, payload: Bytes) {
        let mut tables = self.tables();
        if tables.index.get(&id) == Some(place) {
            tables.cache.put(id, payload);
        }
    }

    /// What these ids come to.
    pub fn look(&self, ids: &[&Bytes]) -> Vec<Seen> {
        let mut tables = self.tables();
        let Tables { index, cache, duplicates: _, dead_letters: _ } = &mut *tables;
        let look = |id: &&Bytes| {
            let Some(place) = index.get(id) else { return Seen::Nowhere };
            let name = index.name(place.source);
            match cache.get(id) {
                Some(payload) => Seen::Cached { source: name, offset: place.offset, payload },
                None => Seen::InLog { source: place.source, name, place },
            }
        };
        ids.iter().map(look).collect()
    }

    /// How far the store has read.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// A pass begins. Returns its number.
    pub fn begin_pass(&self) -> u64 {
        let mut begun = 0;
        self.progress.send_modify(|progress| {
            progress.position.begun += 1;
            begun = progress.position.begun;
        });
        begun
    }

    /// A pass has read all sources up to the sizes it found.
    pub fn end_pass(&self, number: u64, is_final: bool) {
        self.progress.send_modify(|progress| {
            progress.position.done = number;
            progress.position.is_final = is_final;
            progress.behind = None;
            progress.is_faulty = false;
        });
    }

    /// A pass has failed: until one succeeds, nothing is known to be missing.
    pub fn fail_pass(&self, why: &str) {
        self.progress.send_modify(|progress| {
            progress.behind = Some(why.into());
            progress.is_faulty = true;
        });
    }

    /// A record of a primary stream is not usable.
    pub fn count_dead_letter(&self) {
        self.tables().dead_letters += 1;
    }

    /// Records that are not usable.
    pub fn dead_letters(&self) -> u64 {
        self.tables().dead_letters
    }

    /// Ids, duplicates, and the cache's entries, bytes, hits and misses.
    pub fn usage(&self) -> (usize, u64, (usize, usize, u64, u64)) {
        let tables = self.tables();
        (tables.index.len(), tables.duplicates, tables.cache.usage())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &'static str, offset: u64, payload: &'static str) -> PrimaryRecord {
        let (id, payload) = (Bytes::from_static(id.as_bytes()), Bytes::from_static(payload.as_bytes()));
        PrimaryRecord { id, offset, bytes: 10, payload }
    }

    fn payload(shared: &Shared, id: &'static str) -> Option<Bytes> {
        match shared.look(&[&Bytes::from_static(id.as_bytes())]).remove(0) {
            Seen::Cached { payload, .. } => Some(payload),
            Seen::InLog { .. } | Seen::Nowhere => None,
        }
    }

    #[test]
    fn the_cache_follows_the_record_that_counts() {
        let shared = Shared::new([1; 16], 10_000);
        let (b, a) = (shared.source("b"), shared.source("a"));
        shared.put(b, [record("q", 5, "second"), record("q", 9, "third")]);
        assert_eq!(payload(&shared, "q").as_deref(), Some(&b"second"[..]));
        shared.put(a, [record("q", 70, "first")]);
        assert_eq!(payload(&shared, "q").as_deref(), Some(&b"first"[..]));
        assert_eq!((shared.usage().0, shared.usage().1), (1, 2));
    }

    #[test]
    fn passes_are_numbered_and_a_failed_one_is_not_done() {
        let shared = Shared::new([1; 16], 10_000);
        let progress = shared.progress();
        let first = shared.begin_pass();
        assert!(progress.borrow().behind.is_some());
        shared.end_pass(first, false);
        assert!(progress.borrow().behind.is_none());
        let second = shared.begin_pass();
        shared.fail_pass("no");
        assert_eq!((second, progress.borrow().position.done), (2, 1));
        assert!(progress.borrow().behind.is_some());
        let third = shared.begin_pass();
        shared.end_pass(third, true);
        let now = progress.borrow().clone();
        assert_eq!((now.position.begun, now.position.done, now.position.is_final, now.behind), (3, 3, true, None));
    }
}

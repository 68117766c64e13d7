//! Payloads in memory, bounded by their bytes.
//!
//! Invariant: the bytes held, keys and overhead included, never exceed the bound. What was used
//! since it last came to the front of the queue gets one more round (a clock over a queue): nearly
//! as good as least-recently-used, and a hit moves nothing.
//!
//! Not here: what a miss means; the index in front of the logs knows.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

/// What an entry costs beside its bytes: two map slots, a queue slot, two counted buffers.
const ENTRY_OVERHEAD_BYTES: usize = 192;

#[derive(Debug)]
struct Held {
    payload: Bytes,
    was_used: bool,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct Cache {
    bytes_max: usize,
    bytes: usize,
    held: HashMap<Bytes, Held>,
    /// Each id in `held` once, oldest first.
    queue: VecDeque<Bytes>,
    hits: u64,
    misses: u64,
}

impl Cache {
    pub fn new(bytes_max: usize) -> Cache {
        Cache { bytes_max, bytes: 0, held: HashMap::new(), queue: VecDeque::new(), hits: 0, misses: 0 }
    }

    /// Puts a payload in, if it is not there. The buffers are the caller's: a small payload that is
    /// a slice of a large buffer must be copied first.
    pub fn put(&mut self, id: Bytes, payload: Bytes) {
        let cost = cost(&id, &payload);
        if self.bytes_max < cost || self.held.contains_key(&id) {
            return;
        }
        while self.bytes_max < self.bytes + cost {
            self.evict();
        }
        self.bytes += cost;
        self.queue.push_back(id.clone());
        self.held.insert(id, Held { payload, was_used: false });
    }

    /// Another record counts under this id now.
    pub fn remove(&mut self, id: &[u8]) {
        if let Some((id, held)) = self.held.remove_entry(id) {
            self.bytes -= cost(&id, &held.payload);
            // Rare: two sources of one id were read in another order than their names.
            self.queue.retain(|other| *other != id);
        }
    }

    pub fn get(&mut self, id: &[u8]) -> Option<Bytes> {
        let Some(held) = self.held.get_mut(id) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        held.was_used = true;
        Some(held.payload.clone())
    }

    fn evict(&mut self) {
        let id = self.queue.pop_front().expect("bytes are held, so an entry is");
        let held = self.held.get_mut(&id).expect("what is queued is held");
        if std::mem::take(&mut held.was_used) {
            return self.queue.push_back(id);
        }
        let held = self.held.remove(&id).expect("just seen");
        self.bytes -= cost(&id, &held.payload);
    }

    /// Entries, bytes, hits and misses.
    pub fn usage(&self) -> (usize, usize, u64, u64) {
        (self.held.len(), self.bytes, self.hits, self.misses)
    }
}

fn cost(id: &Bytes, payload: &Bytes) -> usize {
    id.len() + payload.len() + ENTRY_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: usize) -> Bytes {
        Bytes::from(format!("id-{n:04}"))
    }

    #[test]
    fn the_bound_holds_and_the_oldest_unused_goes() {
        let payload = Bytes::from_static(&[7; 100]);
        let one = cost(&id(0), &payload);
        let mut cache = Cache::new(3 * one);
        (0..3).for_each(|n| cache.put(id(n), payload.clone()));
        assert!(cache.get(&id(0)).is_some());
        cache.put(id(3), payload.clone());
        assert!(cache.get(&id(1)).is_none(), "the oldest that was not used");
        assert!(cache.get(&id(0)).is_some() && cache.get(&id(2)).is_some() && cache.get(&id(3)).is_some());
        for n in 4..1_000 {
            cache.put(id(n), payload.clone());
            let (entries, bytes, _, _) = cache.usage();
            assert!(entries <= 3 && bytes <= 3 * one);
            assert_eq!(cache.queue.len(), entries);
        }
        cache.put(id(5_000), Bytes::from(vec![0; 4 * one]));
        assert!(cache.get(&id(5_000)).is_none(), "larger than the cache");
    }

    #[test]
    fn what_is_removed_or_there_already_takes_no_room() {
        let mut cache = Cache::new(10_000);
        cache.put(id(1), Bytes::from_static(b"first"));
        cache.put(id(1), Bytes::from_static(b"second"));
        assert_eq!(cache.get(&id(1)).as_deref(), Some(&b"first"[..]));
        cache.remove(&id(1));
        cache.remove(&id(1));
        assert_eq!((cache.usage().0, cache.usage().1, cache.queue.len()), (0, 0, 0));
        cache.put(id(1), Bytes::from_static(b"second"));
        assert_eq!(cache.get(&id(1)).as_deref(), Some(&b"second"[..]));
    }
}

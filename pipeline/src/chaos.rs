//! A test aid: seeded random delays that shuffle the order in which lanes and calls finish.
//!
//! Invariant: without a seed every delay is zero, and nothing sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest delay.
const DELAY_MAX: Duration = Duration::from_millis(4);

/// One call in this many is delayed.
const ONE_OF: u64 = 4;

/// A source of delays, shared by all calls at one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delays(Option<Arc<AtomicU64>>);

impl Delays {
    /// Delays at the place named: different for each datacenter and place of one seed.
    pub fn new(seed: Option<u64>, datacenter: &str, place: &str) -> Delays {
        Delays(seed.map(|seed| {
            let name = format!("{datacenter}/{place}");
            Arc::new(AtomicU64::new(xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), seed)))
        }))
    }

    /// The next delay, mostly none.
    fn draw(&self) -> Option<Duration> {
        let state = self.0.as_ref()?;
        // SplitMix64, its counter shared by callers on many threads.
        let mut z = state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        if !z.is_multiple_of(ONE_OF) {
            return None;
        }
        let micros = u64::try_from(DELAY_MAX.as_micros()).expect("a short delay");
        Some(Duration::from_micros((z >> 8) % micros))
    }

    /// Delays this thread.
    pub fn block(&self) {
        if let Some(delay) = self.draw() {
            std::thread::sleep(delay);
        }
    }

    /// Delays this task.
    pub async fn wait(&self) {
        if let Some(delay) = self.draw() {
            tokio::time::sleep(delay).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_follow_the_seed_and_are_off_without_one() {
        let draw = |seed, place| {
            let delays = Delays::new(seed, "east", place);
            (0..64).map(|_| delays.draw()).collect::<Vec<_>>()
        };
        assert!(draw(None, "write").iter().all(Option::is_none));
        assert_eq!(draw(Some(7), "write"), draw(Some(7), "write"));
        assert_ne!(draw(Some(7), "write"), draw(Some(7), "insert"));
        assert!(draw(Some(7), "write").iter().any(Option::is_some));
    }
}

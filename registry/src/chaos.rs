//! A test aid: seeded random delays that shuffle the order in which lanes and calls finish.
//!
//! Invariant: without a seed every delay is zero, and nothing sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest delay.
const DELAY_MAX: Duration = Duration::from_millis(4);

/// One place in this many delays is not zero.
const ONE_OF: u64 = 4;

/// A source of delays, shared by all calls at one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delays(Option<Arc<AtomicU64>>);

impl Delays {
    /// Delays at the place named, different for each place and node of one seed.
    pub fn new(seed: Option<u64>, node: u32, place: &str) -> Delays {
        Delays(seed.map(|seed| {
            let place = xxhash_rust::xxh3::xxh3_64_with_seed(place.as_bytes(), seed ^ u64::from(node));
            Arc::new(AtomicU64::new(place))
        }))
    }

    /// The next delay, mostly none.
    pub fn draw(&self) -> Option<Duration> {
        let state = self.0.as_ref()?;
        // SplitMix64: a Weyl sequence and a mix, so that callers on many threads share one counter.
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
    fn delays_follow_the_seed() {
        let draw = |seed, place| (0..64).map(|_| Delays::draw(&Delays::new(seed, 1, place))).collect::<Vec<_>>();
        assert!(draw(None, "journal").iter().all(Option::is_none));
        let delays = Delays::new(Some(7), 1, "journal");
        let again = Delays::new(Some(7), 1, "journal");
        let other = Delays::new(Some(7), 1, "apply");
        let of = |delays: &Delays| (0..64).map(|_| delays.draw()).collect::<Vec<_>>();
        let first = of(&delays);
        assert_eq!(first, of(&again));
        assert_ne!(first, of(&other));
        assert!(first.iter().flatten().all(|delay| *delay < DELAY_MAX) && first.iter().any(Option::is_some));
    }
}

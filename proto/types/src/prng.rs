//! Chance from a seed: a small generator (SplitMix64) whose whole state is its seed, so that a run
//! can be repeated, and whoever holds one cloned, compared and hashed.
//!
//! Not here: anything secret, or unique. Incarnations come from the system's random device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The step of the counter, and what is made of it.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A seeded generator of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prng {
    state: u64,
}

impl Prng {
    /// A generator: the same seed gives the same numbers, in every version.
    #[must_use]
    pub const fn new(seed: u64) -> Prng {
        Prng { state: seed }
    }

    /// The next number, over the whole range.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// A number below `end`, evenly (the high half of a 128-bit product).
    ///
    /// # Panics
    /// When `end` is zero: there is no number below.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(0 < end, "no number is below zero");
        let product = u128::from(self.next_u64()) * u128::from(end);
        u64::try_from(product >> 64).expect("the high half of 128 bits fits 64")
    }

    /// A duration in `min..max`, to the microsecond; `min` when the range is empty.
    pub fn duration(&mut self, min: Duration, max: Duration) -> Duration {
        let span = max.saturating_sub(min).as_micros();
        match u64::try_from(span) {
            Ok(0) => min,
            Ok(span) => min + Duration::from_micros(self.below(span)),
            Err(_) => min,
        }
    }
}

/// A test aid: seeded random delays that shuffle the order in which lanes and calls finish. All
/// callers at one place share one stream. Without a seed there is never a delay.
#[derive(Clone, Debug, Default)]
pub struct Delays(Option<Arc<AtomicU64>>);

impl Delays {
    /// The longest delay.
    pub const MAX: Duration = Duration::from_millis(4);

    /// One call in this many is delayed.
    const ONE_OF: u64 = 4;

    /// Delays at the place named: different for each place of one seed.
    #[must_use]
    pub fn new(seed: Option<u64>, place: &str) -> Delays {
        Delays(seed.map(|seed| Arc::new(AtomicU64::new(xxhash_rust::xxh3::xxh3_64_with_seed(place.as_bytes(), seed)))))
    }

    /// The next delay, mostly none.
    #[must_use]
    pub fn draw(&self) -> Option<Duration> {
        let drawn = mix(self.0.as_ref()?.fetch_add(STEP, Ordering::Relaxed));
        let micros = u64::try_from(Delays::MAX.as_micros()).expect("a short delay");
        drawn.is_multiple_of(Delays::ONE_OF).then(|| Duration::from_micros((drawn >> 8) % micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_follow_the_seed_and_are_off_without_one() {
        let draw = |seed, place| {
            let delays = Delays::new(seed, place);
            (0..64).map(|_| delays.draw()).collect::<Vec<_>>()
        };
        assert!(draw(None, "write").iter().all(Option::is_none));
        assert_eq!(draw(Some(7), "write"), draw(Some(7), "write"));
        assert_ne!(draw(Some(7), "write"), draw(Some(7), "insert"));
        assert!(draw(Some(7), "write").iter().any(Option::is_some));
        assert!(draw(Some(7), "write").iter().flatten().all(|delay| *delay < Delays::MAX));
    }

    #[test]
    fn numbers_are_golden() {
        let mut prng = Prng::new(1);
        let numbers = [prng.next_u64(), prng.next_u64(), prng.next_u64()];
        assert_eq!(numbers, [10451216379200822465, 13757245211066428519, 17911839290282890590]);
    }

    #[test]
    fn durations_stay_in_their_range_and_differ() {
        let (min, max) = (Duration::from_millis(1000), Duration::from_millis(2000));
        let mut prng = Prng::new(7);
        let drawn: Vec<Duration> = (0..100).map(|_| prng.duration(min, max)).collect();
        assert!(drawn.iter().all(|d| min <= *d && *d < max));
        assert!(drawn.windows(2).any(|pair| pair[0] != pair[1]));
        assert_eq!(prng.duration(max, min), max);
    }
}

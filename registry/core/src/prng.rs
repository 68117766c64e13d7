//! The only source of chance in the core: a small generator (SplitMix64) whose whole state is its
//! seed, so that a run can be repeated, and a replica cloned, compared and hashed.
//!
//! Not here: anything for secrets. Chance only spreads timeouts.

use std::time::Duration;

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
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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

#[cfg(test)]
mod tests {
    use super::*;

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

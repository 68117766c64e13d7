//! Chance from a seed: SplitMix64, which passes the usual batteries and fits in three lines.
//!
//! Not here: anything secret. Tokens and incarnations come from the system's random device.

use std::time::Duration;

/// A stream of numbers that its seed determines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prng {
    state: u64,
}

impl Prng {
    /// The stream of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Prng {
        Prng { state: seed }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, or zero if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(end);
        (wide >> 64) as u64
    }

    /// A duration between two, both included, in steps of a microsecond.
    pub fn duration(&mut self, min: Duration, max: Duration) -> Duration {
        let span = max.saturating_sub(min).as_micros();
        let span = u64::try_from(span).unwrap_or(u64::MAX - 1);
        min + Duration::from_micros(self.below(span + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_stream() {
        let (mut a, mut b, mut c) = (Prng::new(7), Prng::new(7), Prng::new(8));
        let (a, b, c): (Vec<_>, Vec<_>, Vec<_>) =
            (0..100).map(|_| (a.next_u64(), b.next_u64(), c.next_u64())).fold(Default::default(), |mut all, each| {
                all.0.push(each.0);
                all.1.push(each.1);
                all.2.push(each.2);
                all
            });
        assert_eq!(a, b);
        assert_ne!(a, c);
    }

    #[test]
    fn bounds_hold_at_both_ends() {
        let mut prng = Prng::new(1);
        let (min, max) = (Duration::from_micros(3), Duration::from_micros(6));
        let seen: std::collections::BTreeSet<_> = (0..1_000).map(|_| prng.duration(min, max).as_micros()).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(prng.below(0), 0);
        assert_eq!(prng.duration(max, min), max);
    }
}

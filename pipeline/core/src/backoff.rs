//! How long to wait before the next try.
//!
//! Invariant: a wait is never shorter than `min` and never longer than `max`; waits double on
//! average. The jitter is decorrelated: each wait is drawn between `min` and what would double the
//! last one, so that clicks which failed together do not come back together.
//!
//! Not here: what is tried again. A store that is behind raises nothing: see [`Backoff::steady`].

use std::time::Duration;

use photon_types::Prng;

/// The bounds of all waits of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackoffBounds {
    /// The shortest wait.
    pub min: Duration,
    /// The longest wait.
    pub max: Duration,
}

impl Default for BackoffBounds {
    /// 100 ms doubling to 60 s.
    fn default() -> BackoffBounds {
        BackoffBounds { min: Duration::from_millis(100), max: Duration::from_secs(60) }
    }
}

/// Waits that raise no level, in multiples of the shortest one.
const STEADY_MIN: u32 = 4;
const STEADY_MAX: u32 = 8;

/// Where one repeated thing stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// The last wait that was drawn; zero before the first.
    last: Duration,
}

impl Backoff {
    /// The wait before the next try after a failure; raises the level.
    pub fn raise(&mut self, bounds: BackoffBounds, prng: &mut Prng) -> Duration {
        // Uniform between `min` and `4 · last − min` has the mean `2 · last`. Already the first
        // wait is drawn, between `min` and twice that.
        let doubled = self.last.saturating_mul(4).saturating_sub(bounds.min);
        let ceiling = doubled.max(bounds.min.saturating_mul(2)).min(bounds.max);
        self.last = prng.duration(bounds.min.min(bounds.max), ceiling);
        self.last
    }

    /// The wait before the next try when nothing failed, and it was only too early to ask: a few
    /// times the shortest, and the level stays. Not the shortest: who was too early is seldom alone.
    pub fn steady(&self, bounds: BackoffBounds, prng: &mut Prng) -> Duration {
        let at_most = |factor| bounds.min.saturating_mul(factor).min(bounds.max);
        prng.duration(at_most(STEADY_MIN), at_most(STEADY_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_on_average_up_to_the_longest() {
        let bounds = BackoffBounds::default();
        let runs = 2_000;
        let mut sums = [Duration::ZERO; 16];
        for seed in 0..runs {
            let (mut backoff, mut prng) = (Backoff::default(), Prng::new(seed));
            for sum in &mut sums {
                let wait = backoff.raise(bounds, &mut prng);
                assert!(bounds.min <= wait && wait <= bounds.max, "{wait:?}");
                *sum += wait;
            }
        }
        let means = sums.map(|sum| (sum / u32::try_from(runs).unwrap()).as_micros());
        assert!((145_000..155_000).contains(&means[0]), "{means:?}");
        for pair in means[..5].windows(2) {
            assert!(18 * pair[0] < 10 * pair[1] && 10 * pair[1] < 22 * pair[0], "{means:?}");
        }
        assert!(20_000_000 < means[15], "{means:?}");
    }

    #[test]
    fn being_too_early_raises_nothing() {
        let (mut backoff, mut prng) = (Backoff::default(), Prng::new(3));
        let bounds = BackoffBounds::default();
        backoff.raise(bounds, &mut prng);
        let before = backoff;
        for _ in 0..100 {
            let wait = backoff.steady(bounds, &mut prng);
            assert!(bounds.min * STEADY_MIN <= wait && wait <= bounds.min * STEADY_MAX);
        }
        assert_eq!(backoff, before);
    }

    #[test]
    fn bounds_the_wrong_way_round_do_no_harm() {
        let bounds = BackoffBounds { min: Duration::from_secs(2), max: Duration::from_secs(1) };
        let (mut backoff, mut prng) = (Backoff::default(), Prng::new(3));
        assert!(backoff.raise(BackoffBounds { min: Duration::ZERO, max: Duration::ZERO }, &mut prng).is_zero());
        assert!(backoff.steady(bounds, &mut prng) <= bounds.max);
    }
}

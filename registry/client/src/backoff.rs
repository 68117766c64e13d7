//! How long to rest after a failure: doubling, bounded, and jittered, so that the clients of a
//! lost leader do not come back in step.

use std::time::Duration;

use photon_types::Prng;

#[derive(Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    /// Failures since the last success.
    failures: u32,
    prng: Prng,
}

impl Backoff {
    pub fn new(min: Duration, max: Duration, seed: u64) -> Backoff {
        assert!(min <= max);
        Backoff { min, max, failures: 0, prng: Prng::new(seed) }
    }

    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Counts a failure. The first after a success costs no rest, since a lost leader often has a
    /// successor already; the n-th costs half to all of `min << (n - 2)`, at most `max`.
    pub fn failed(&mut self) -> Duration {
        let failures_before = self.failures;
        self.failures = self.failures.saturating_add(1);
        let Some(doublings) = failures_before.checked_sub(1) else { return Duration::ZERO };
        let full = self.min.saturating_mul(1 << doublings.min(16)).min(self.max);
        self.jitter(full)
    }

    /// Half to all of `full`.
    pub fn jitter(&mut self, full: Duration) -> Duration {
        let half = full / 2;
        let parts = u32::try_from(self.prng.next_u64() >> 48).expect("16 bits");
        half + half.mul_f64(f64::from(parts) / f64::from(u16::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_to_the_limit_and_a_success_ends_them() {
        let ms = Duration::from_millis;
        for seed in 0..100 {
            let mut backoff = Backoff::new(ms(20), ms(1000), seed);
            assert_eq!(backoff.failed(), Duration::ZERO);
            for full in [20, 40, 80, 160, 320, 640, 1000, 1000] {
                let rest = backoff.failed();
                assert!(ms(full / 2) <= rest && rest <= ms(full), "{rest:?} for {full} ms");
            }
            backoff.succeeded();
            assert_eq!(backoff.failed(), Duration::ZERO);
        }
    }

    #[test]
    fn any_number_of_failures_is_survived() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), 7);
        backoff.failures = u32::MAX;
        assert!(backoff.failed() <= Duration::from_secs(60));
    }
}

//! A limit on how many records per second are begun, so that a datacenter which catches up does not
//! take the registry from those that are up to date.
//!
//! Invariant: over any stretch of time no more than `per_second · stretch + burst` are let through.

use std::time::Duration;

use crate::time::Monotonic;

/// A bucket that fills at a steady rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    per_second: u64,
    burst: u64,
    /// What may be begun at once, in nanorecords: exact, whatever the step.
    room: u128,
    filled_at: Monotonic,
}

const NANO: u128 = 1_000_000_000;

impl Pace {
    /// A full bucket. A rate of zero is taken as one.
    #[must_use]
    pub fn new(per_second: u64, burst: u64, now: Monotonic) -> Pace {
        let (per_second, burst) = (per_second.max(1), burst.max(1));
        Pace { per_second, burst, room: u128::from(burst) * NANO, filled_at: now }
    }

    /// How many may be begun now.
    pub fn room(&mut self, now: Monotonic) -> u64 {
        let passed = now.since(self.filled_at).as_nanos();
        self.filled_at = self.filled_at.max(now);
        let room = self.room.saturating_add(passed.saturating_mul(u128::from(self.per_second)));
        self.room = room.min(u128::from(self.burst) * NANO);
        u64::try_from(self.room / NANO).unwrap_or(u64::MAX)
    }

    /// So many were begun: no more than there was room for.
    pub fn take(&mut self, count: u64) {
        self.room = self.room.saturating_sub(u128::from(count) * NANO);
    }

    /// When there is room for one; none if there is now.
    pub fn due(&mut self, now: Monotonic) -> Option<Monotonic> {
        (self.room(now) == 0).then(|| now.after(self.wait()))
    }

    /// How long until there is room for one, as of the last look.
    fn wait(&self) -> Duration {
        let missing = NANO.saturating_sub(self.room);
        let nanos = missing.div_ceil(u128::from(self.per_second));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_time() {
        let at = |ms| Monotonic(Duration::from_millis(ms));
        let mut pace = Pace::new(1_000, 10, at(0));
        let mut begun = 0;
        for ms in 0..1_000 {
            let room = pace.room(at(ms));
            pace.take(room);
            begun += room;
        }
        assert_eq!(begun, 10 + 999);
        assert_eq!(pace.room(at(999)), 0);
        assert_eq!(pace.wait(), Duration::from_millis(1));
        // An idle time fills no more than the bucket.
        assert_eq!(pace.room(at(100_000)), 10);
        assert!(pace.wait().is_zero());
    }

    #[test]
    fn it_is_due_when_there_is_room_and_not_again_and_again_before() {
        let at = |ms| Monotonic(Duration::from_millis(ms));
        let mut pace = Pace::new(10, 1, at(0));
        assert_eq!(pace.due(at(0)), None);
        pace.take(1);
        assert_eq!(pace.due(at(10)), Some(at(100)));
        // Nobody asked for room meanwhile: it is there all the same.
        assert_eq!(pace.due(at(100)), None);
    }
}

//! Virtual time, and the clocks of nodes, which are off and run fast or slow.
//!
//! Invariant: a clock never goes back within a life, and the moment at which it shows a time is
//! never before that time: a tick is not early.

use std::fmt;
use std::time::Duration;

use photon_core::{Monotonic, Now};

/// A moment of a run: what has passed since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Time(pub Duration);

impl Time {
    pub fn after(self, wait: Duration) -> Time {
        Time(self.0.saturating_add(wait))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0.as_secs(), self.0.subsec_micros())
    }
}

/// The monotonic clock of one life of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub born: Time,
    /// What it showed then.
    pub shown: Duration,
    /// How many milliseconds it shows for each second.
    pub rate: u32,
}

impl Clock {
    pub fn now(&self, time: Time) -> Now {
        let passed = time.0.saturating_sub(self.born.0);
        Now { monotonic: Monotonic(self.shown + passed * self.rate / 1_000) }
    }

    /// The moment at which it shows this or more.
    pub fn moment(&self, shown: Monotonic) -> Time {
        let wait = shown.0.saturating_sub(self.shown);
        // One more for what the divisions cut off.
        self.born.after(wait * 1_000 / self.rate + Duration::from_micros(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_not_early() {
        for rate in [700, 999, 1_000, 1_001, 1_300] {
            let clock = Clock { born: Time(Duration::from_millis(70)), shown: Duration::from_millis(3), rate };
            for micros in (3_000..500_000).step_by(977) {
                let wanted = Monotonic(Duration::from_micros(micros));
                let moment = clock.moment(wanted);
                assert!(wanted <= clock.now(moment).monotonic, "{wanted:?} at rate {rate}");
                let late = clock.now(moment).monotonic.0 - wanted.0;
                assert!(late < Duration::from_micros(5), "late by {late:?} at rate {rate}");
            }
        }
    }
}

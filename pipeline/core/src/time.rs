//! Time as an argument.

use std::time::Duration;

/// A point on a clock that never goes back: the time since some start that only its owner knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub Duration);

impl Monotonic {
    /// The point `wait` later; the end of time if that can not be told.
    #[must_use]
    pub fn after(self, wait: Duration) -> Monotonic {
        Monotonic(self.0.saturating_add(wait))
    }

    /// How long it is from `earlier` to here; nothing if it is later.
    #[must_use]
    pub fn since(self, earlier: Monotonic) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

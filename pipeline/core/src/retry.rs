//! Which deferred click is tried again, and when.
//!
//! Invariant: each click is due at one time, or under way; never both, never neither. It leaves only
//! with an end.
//!
//! Not here: the clicks themselves, which the durable store keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use photon_types::Timestamp;

use crate::backoff::{Backoff, BackoffBounds};
use crate::missing::{JoinWindow, Judgement, Misses, Position};
use crate::time::Monotonic;
use photon_types::Prng;

/// A click's number in the durable store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryId(pub u64);

/// Why a click was not joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its query is not there.
    Missing,
    /// The store could not know: no back-off is raised.
    Behind,
    /// Its query is known, but can not be read again: that may last.
    Unreadable,
    /// No answer came in time.
    NoAnswer,
}

/// What is known of a click that was tried: goes with it into the retry store's schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    misses: Misses,
    backoff: Backoff,
}

impl Attempts {
    /// The query was not there. Says whether to ask again.
    pub fn on_miss(&mut self, position: Position, event: Timestamp, now: Timestamp, window: JoinWindow) -> Judgement {
        self.misses.on_miss(position, event, now, window)
    }

    /// How long to wait after this failure.
    pub fn wait_after(&mut self, failure: Failure, bounds: BackoffBounds, prng: &mut Prng) -> Duration {
        match failure {
            Failure::Missing | Failure::Unreadable | Failure::NoAnswer => self.backoff.raise(bounds, prng),
            Failure::Behind => self.backoff.steady(bounds, prng),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Due { at: Monotonic, attempts: Attempts },
    UnderWay,
}

/// The times of all deferred clicks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    clicks: BTreeMap<RetryId, State>,
    /// Those of `clicks` that are due, by time.
    due: BTreeSet<(Monotonic, RetryId)>,
}

impl Schedule {
    /// A click that is new here.
    ///
    /// # Panics
    /// When it is here already.
    pub fn add(&mut self, id: RetryId, at: Monotonic, attempts: Attempts) {
        let before = self.clicks.insert(id, State::Due { at, attempts });
        assert!(before.is_none(), "{id:?} was added twice");
        self.due.insert((at, id));
    }

    /// The first click whose time has come; from now on it is under way.
    pub fn take(&mut self, now: Monotonic) -> Option<(RetryId, Attempts)> {
        let (at, id) = self.due.first().copied()?;
        if now < at {
            return None;
        }
        self.due.remove(&(at, id));
        let state = self.clicks.insert(id, State::UnderWay).expect("what is due is here");
        let State::Due { at: _, attempts } = state else { panic!("{id:?} was due and under way") };
        Some((id, attempts))
    }

    /// A click under way failed: it is due again.
    ///
    /// # Panics
    /// When it is not under way.
    pub fn put_back(&mut self, id: RetryId, at: Monotonic, attempts: Attempts) {
        let before = self.clicks.insert(id, State::Due { at, attempts });
        assert!(before == Some(State::UnderWay), "{id:?} came back, but was {before:?}");
        self.due.insert((at, id));
    }

    /// A click under way has ended.
    ///
    /// # Panics
    /// When it is not under way.
    pub fn end(&mut self, id: RetryId) {
        let before = self.clicks.remove(&id);
        assert!(before == Some(State::UnderWay), "{id:?} ended, but was {before:?}");
    }

    /// When the next click is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.due.first().map(|(at, _)| *at)
    }

    /// How many clicks have no end yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clicks.len()
    }

    /// No click waits for an end.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clicks.is_empty()
    }

    /// How many are tried just now.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.clicks.len() - self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    #[test]
    fn clicks_come_when_they_are_due_and_leave_only_with_an_end() {
        let mut schedule = Schedule::default();
        schedule.add(RetryId(1), at(20), Attempts::default());
        schedule.add(RetryId(2), at(10), Attempts::default());
        assert_eq!(schedule.next_deadline(), Some(at(10)));
        assert_eq!(schedule.take(at(9)), None);
        assert_eq!(schedule.take(at(30)).map(|(id, _)| id), Some(RetryId(2)));
        assert_eq!(schedule.take(at(30)).map(|(id, _)| id), Some(RetryId(1)));
        assert_eq!(schedule.take(at(30)), None);
        assert_eq!((schedule.len(), schedule.under_way(), schedule.next_deadline()), (2, 2, None));
        schedule.put_back(RetryId(2), at(40), Attempts::default());
        schedule.end(RetryId(1));
        assert_eq!((schedule.len(), schedule.under_way()), (1, 0));
        assert_eq!(schedule.take(at(40)).map(|(id, _)| id), Some(RetryId(2)));
        schedule.end(RetryId(2));
        assert!(schedule.is_empty());
    }

    #[test]
    fn only_a_store_that_is_behind_raises_nothing() {
        let bounds = BackoffBounds { min: Duration::from_millis(100), max: Duration::from_secs(60) };
        let mut prng = Prng::new(5);
        let mut attempts = Attempts::default();
        for _ in 0..50 {
            assert!(attempts.wait_after(Failure::Behind, bounds, &mut prng) <= Duration::from_secs(1));
        }
        assert_eq!(attempts, Attempts::default());
        for failure in [Failure::Missing, Failure::Unreadable, Failure::NoAnswer] {
            let before = attempts;
            attempts.wait_after(failure, bounds, &mut prng);
            assert_ne!(attempts, before);
        }
    }

    #[test]
    #[should_panic(expected = "ended, but was")]
    fn a_click_that_is_not_under_way_can_not_end() {
        let mut schedule = Schedule::default();
        schedule.add(RetryId(1), at(20), Attempts::default());
        schedule.end(RetryId(1));
    }
}

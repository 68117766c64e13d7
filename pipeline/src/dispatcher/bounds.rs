//! The limits of the engine, and the queues in front of its calls.
//!
//! Invariant: clicks in calls to the joiner are never more than it takes, and look-ups are bounded by
//! calls and their size: a dispatcher that catches up does not take the registry from the others.

use std::collections::VecDeque;
use std::time::Duration;

use photon_format::config::Config;
use photon_join::Monotonic;
use photon_join::backoff::{Backoff, BackoffBounds};
use photon_join::missing::JoinWindow;
use photon_types::Prng;

use super::state::ClickId;

/// Look-ups in one call, and such calls at once: what bounds a dispatcher's load on the registry.
pub(super) const LOOK_BATCH_MAX: usize = 1_000;
pub(super) const LOOK_CALLS_MAX: usize = 4;

/// Clicks in one call to the joiner, and such calls at once; those in flight together are bounded by
/// what the joiner takes.
pub(super) const JOIN_BATCH_MAX: usize = 512;
pub(super) const JOIN_CALLS_MAX: usize = 64;

/// Payload bytes under way, at most (and a batch).
pub(super) const WINDOW_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The pause after the retry store was full.
pub(super) const FULL_PAUSE: Duration = Duration::from_millis(200);

/// Waits between calls that fail as a whole.
pub(super) const CALL_BACKOFF: BackoffBounds =
    BackoffBounds { min: Duration::from_millis(50), max: Duration::from_secs(2) };

/// A queue in front of calls of one kind.
#[derive(Debug, Default)]
pub(super) struct Stage {
    pub waiting: VecDeque<ClickId>,
    pub calls: usize,
    /// Clicks in calls.
    pub in_calls: usize,
    pub pause_until: Monotonic,
    pub backoff: Backoff,
    /// Since when there are calls, and none was answered.
    pub silent_since: Option<Monotonic>,
    /// Why the last one was not.
    pub why: String,
}

impl Stage {
    /// No calls until then.
    pub fn pause(&mut self, until: Monotonic) {
        self.pause_until = self.pause_until.max(until);
    }

    /// A call failed as a whole. Returns the pause, unless there is one already: calls at once fail
    /// at once, and count as one.
    pub fn on_failed(&mut self, now: Monotonic, prng: &mut Prng) -> Option<Duration> {
        if now < self.pause_until {
            return None;
        }
        let wait = self.backoff.raise(CALL_BACKOFF, prng);
        self.pause(now.after(wait));
        Some(wait)
    }

    /// A call begins.
    pub fn on_called(&mut self, now: Monotonic) {
        self.silent_since.get_or_insert(now);
    }

    /// Some clicks of a call have an answer; others may be in calls.
    pub fn on_answered(&mut self, now: Monotonic) {
        self.silent_since = (0 < self.in_calls).then_some(now);
    }

    /// Why clicks wait, if no answer has come for that long.
    pub fn trouble(&self, peer: &str, now: Monotonic, limit: Duration) -> Option<String> {
        let since = self.silent_since.filter(|since| limit <= now.since(*since))?;
        let why = if self.why.is_empty() { "no answer in time" } else { &self.why };
        let silence = Duration::from_secs(now.since(since).as_secs());
        Some(format!("{peer} gives no answer for {silence:?} and longer, and clicks wait: {why}"))
    }

    /// Clicks that were in a call wait again, before the others.
    pub fn put_back(&mut self, ids: impl DoubleEndedIterator<Item = ClickId>) {
        ids.rev().for_each(|id| self.waiting.push_front(id));
    }
}

/// What bounds the engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub window: usize,
    pub joins: usize,
    pub retries_under_way: usize,
    pub backoff: BackoffBounds,
    pub join_window: JoinWindow,
}

impl Bounds {
    pub fn new(config: &Config, is_final: bool) -> Bounds {
        let join = &config.join;
        Bounds {
            window: join.dispatch_in_flight,
            joins: join.in_flight,
            // Those that fail again and again leave room for the others.
            retries_under_way: (join.dispatch_in_flight / 4).min(join.in_flight / 2).max(1),
            backoff: BackoffBounds { min: join.retry_min, max: join.retry_max },
            join_window: if is_final { JoinWindow::Final } else { JoinWindow::Older(join.window) },
        }
    }
}

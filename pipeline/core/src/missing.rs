//! When a click whose query is not there may be called unjoinable.
//!
//! Invariant: every primary source was read to its end by a pass that began after the click was
//! first asked for. Age alone would lose money whenever the reader lags; so a click needs both, the
//! age and the pass. No clock of the store is compared: passes are counted, and only within one
//! epoch, which is one life of the store.
//!
//! Not here: how passes are made (`photon-pipeline::reader`).

use std::time::Duration;

use photon_types::Timestamp;

/// How far a store has read, taken before it looked for the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// Which life of the store.
    pub epoch: [u8; 16],
    /// Passes begun.
    pub begun: u64,
    /// Passes done.
    pub done: u64,
    /// The sources do not grow, and all of them are read.
    pub is_final: bool,
}

/// The age that a click must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JoinWindow {
    /// The sources are final: no age is asked for, and only a final position ends a click.
    Final,
    /// Older than this, by event time.
    Older(Duration),
}

/// What is known of a click whose query was not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Misses {
    first: Option<Position>,
}

/// What follows from a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Judgement {
    /// It may still come: ask again.
    AskAgain,
    /// It can not come any more.
    Unjoinable,
}

impl Misses {
    /// Takes a miss into account. `now` is the wall clock: only the age depends on it.
    pub fn on_miss(&mut self, position: Position, event: Timestamp, now: Timestamp, window: JoinWindow) -> Judgement {
        if position.is_final {
            return Judgement::Unjoinable;
        }
        let first = match self.first {
            Some(first) if first.epoch == position.epoch => first,
            // The first one, or the first of another life of the store: its passes count anew.
            Some(_) | None => {
                self.first = Some(position);
                return Judgement::AskAgain;
            }
        };
        let is_read = first.begun < position.done;
        let is_old = match window {
            JoinWindow::Final => false,
            JoinWindow::Older(window) => {
                let age = Duration::from_micros(now.micros().saturating_sub(event.micros()));
                window < age
            }
        };
        if is_read && is_old { Judgement::Unjoinable } else { Judgement::AskAgain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Timestamp = Timestamp::ZERO;

    fn now() -> Timestamp {
        Timestamp::from_micros(1_000_000_000).unwrap()
    }

    fn at(epoch: u8, begun: u64, done: u64) -> Position {
        Position { epoch: [epoch; 16], begun, done, is_final: false }
    }

    #[track_caller]
    fn check(event: Timestamp, window: JoinWindow, positions: &[Position], want: &[Judgement]) {
        let mut misses = Misses::default();
        let got: Vec<_> = positions.iter().map(|p| misses.on_miss(*p, event, now(), window)).collect();
        assert_eq!(got, want);
    }

    const DAY: JoinWindow = JoinWindow::Older(Duration::from_secs(100));
    use Judgement::{AskAgain, Unjoinable};

    #[test]
    fn a_pass_that_began_before_the_first_miss_proves_nothing() {
        check(OLD, DAY, &[at(1, 5, 4), at(1, 6, 5), at(1, 7, 6)], &[AskAgain, AskAgain, Unjoinable]);
        check(OLD, DAY, &[at(1, 5, 5), at(1, 5, 5), at(1, 6, 5)], &[AskAgain, AskAgain, AskAgain]);
    }

    #[test]
    fn another_epoch_counts_anew() {
        check(
            OLD,
            DAY,
            &[at(1, 5, 5), at(2, 9, 9), at(2, 10, 9), at(2, 10, 10)],
            &[AskAgain, AskAgain, AskAgain, Unjoinable],
        );
    }

    #[test]
    fn a_young_click_is_never_unjoinable() {
        let young = Timestamp::from_micros(now().micros() - 100_000_000).unwrap();
        check(young, DAY, &[at(1, 1, 1), at(1, 900, 900)], &[AskAgain, AskAgain]);
        let future = Timestamp::from_micros(now().micros() * 2).unwrap();
        check(future, DAY, &[at(1, 1, 1), at(1, 900, 900)], &[AskAgain, AskAgain]);
    }

    #[test]
    fn final_sources_need_a_final_position_and_no_age() {
        let end = Position { is_final: true, ..at(1, 1, 1) };
        check(now(), JoinWindow::Final, &[end], &[Unjoinable]);
        check(OLD, JoinWindow::Final, &[at(1, 1, 1), at(1, 9, 9), end], &[AskAgain, AskAgain, Unjoinable]);
    }
}

//! How far a source is done with.
//!
//! Invariant: the cursor never passes a record that has neither an end nor a place in the retry
//! store, both durable. Records are begun in the order of their offsets and passed in any order;
//! the cursor stands behind the longest prefix of passed ones, and counts each when it goes over it.
//!
//! Not here: writing it to disk, and what is read after a restart: all behind the cursor, again.

use std::collections::VecDeque;

use crate::ledger::{Counts, End};

/// A record under way: its number within its source, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordNumber(pub u64);

/// Why the cursor may pass a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// It has an end, durable where the end is written down.
    Ended(End),
    /// It is durable in the retry store.
    Deferred,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Open,
    Passed(Passed),
    /// Bytes without a record of the foreign stream; so many bulk actions in them add no event.
    Skipped {
        actions: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    end: u64,
    step: Step,
}

/// The cursor of one source, and what is under way in front of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// All below is done with.
    offset: u64,
    /// Number of the first piece in `pieces`.
    first: u64,
    /// From `offset` on, without a gap. The front one is never passed: it would be behind us.
    pieces: VecDeque<Piece>,
    open: usize,
    counts: Counts,
}

impl Cursor {
    /// A cursor as it was saved.
    #[must_use]
    pub fn new(offset: u64, counts: Counts) -> Cursor {
        Cursor { offset, first: 0, pieces: VecDeque::new(), open: 0, counts }
    }

    /// The next record, which ends at `end`.
    ///
    /// # Panics
    /// When it does not lie behind all that was begun: the reader's order is broken.
    pub fn begin(&mut self, end: u64) -> RecordNumber {
        assert!(self.read_end() < end, "a record ends at {end}, read up to {}", self.read_end());
        let number = RecordNumber(self.first + self.pieces.len() as u64);
        self.pieces.push_back(Piece { end, step: Step::Open });
        self.open += 1;
        number
    }

    /// Up to `end` there is no further record of the foreign stream; so many bulk actions that add
    /// no event lie there.
    pub fn skip_to(&mut self, end: u64, actions: u64) {
        if end <= self.read_end() {
            assert!(actions == 0, "{actions} actions in no bytes, up to {end}");
            return;
        }
        self.pieces.push_back(Piece { end, step: Step::Skipped { actions } });
        self.advance();
    }

    /// The cursor may pass this record.
    ///
    /// # Panics
    /// When it may already: it would be counted twice.
    pub fn pass(&mut self, number: RecordNumber, passed: Passed) {
        let index = number.0.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let piece = index.and_then(|index| self.pieces.get_mut(index)).expect("a record under way");
        assert!(piece.step == Step::Open, "{number:?} was passed before: {:?}", piece.step);
        piece.step = Step::Passed(passed);
        self.open -= 1;
        self.advance();
    }

    fn advance(&mut self) {
        while let Some(Piece { end, step }) = self.pieces.front().copied() {
            match step {
                Step::Open => break,
                Step::Skipped { actions } => self.counts.skipped += actions,
                Step::Passed(Passed::Deferred) => self.counts.read += 1,
                Step::Passed(Passed::Ended(end)) => {
                    self.counts.read += 1;
                    self.counts.add(end);
                }
            }
            self.pieces.pop_front();
            self.first += 1;
            assert!(self.offset < end);
            self.offset = end;
        }
    }

    /// A click of this source that had been deferred, and that the cursor has passed, has ended.
    pub fn end_deferred(&mut self, end: End) {
        self.counts.add(end);
    }

    /// A click of this source was put back.
    pub fn count_reinjected(&mut self) {
        self.counts.reinjected += 1;
    }

    /// Everything below is done with.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Everything below has been begun.
    #[must_use]
    pub fn read_end(&self) -> u64 {
        self.pieces.back().map_or(self.offset, |piece| piece.end)
    }

    /// Records under way.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    /// What the cursor has passed.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_cursor_waits_for_the_first_open_record() {
        let mut cursor = Cursor::new(10, Counts::default());
        cursor.skip_to(12, 0);
        assert_eq!(cursor.offset(), 12);
        let (a, b, c) = (cursor.begin(20), cursor.begin(30), cursor.begin(45));
        cursor.skip_to(50, 2);
        cursor.skip_to(60, 1);
        cursor.skip_to(60, 0);
        assert_eq!((cursor.read_end(), cursor.open()), (60, 3));
        cursor.pass(c, Passed::Ended(End::Claimed));
        cursor.pass(b, Passed::Deferred);
        assert_eq!((cursor.offset(), cursor.counts().read), (12, 0));
        cursor.pass(a, Passed::Ended(End::Joined));
        assert_eq!((cursor.offset(), cursor.open()), (60, 0));
        let counts = Counts { read: 3, joined: 1, claimed: 1, skipped: 3, ..Counts::default() };
        assert_eq!((cursor.counts(), cursor.counts().pending()), (counts, Some(1)));
        cursor.end_deferred(End::Unjoinable);
        assert_eq!(cursor.counts().pending(), Some(0));
    }

    #[test]
    #[should_panic(expected = "passed before")]
    fn no_record_counts_twice() {
        let mut cursor = Cursor::new(0, Counts::default());
        let (_, b) = (cursor.begin(5), cursor.begin(9));
        cursor.pass(b, Passed::Deferred);
        cursor.pass(b, Passed::Ended(End::Joined));
    }

    proptest! {
        /// Against the simplest model: a list of records, and the longest passed prefix of it.
        #[test]
        fn the_cursor_is_the_longest_passed_prefix(choices in proptest::collection::vec((0..4u8, any::<u16>()), 0..300)) {
            let mut cursor = Cursor::new(0, Counts::default());
            let mut records: Vec<(RecordNumber, u64, Option<Passed>)> = Vec::new();
            let mut end = 0;
            for (kind, number) in choices {
                let open: Vec<_> = (0..records.len()).filter(|at| records[*at].2.is_none()).collect();
                match kind {
                    0 => {
                        end += 1 + u64::from(number % 100);
                        records.push((cursor.begin(end), end, None));
                    }
                    1 => {
                        end += u64::from(number % 3);
                        cursor.skip_to(end, 0);
                    }
                    _ if !open.is_empty() => {
                        let at = open[usize::from(number) % open.len()];
                        let passed = match number % 3 {
                            0 => Passed::Deferred,
                            1 => Passed::Ended(End::Joined),
                            _ => Passed::Ended(End::DeadLettered),
                        };
                        cursor.pass(records[at].0, passed);
                        records[at].2 = Some(passed);
                    }
                    _ => (),
                }
                let prefix: Vec<_> = records.iter().map_while(|(_, end, passed)| passed.map(|it| (*end, it))).collect();
                prop_assert_eq!(cursor.counts().read, prefix.len() as u64);
                let ended = prefix.iter().filter(|(_, passed)| *passed != Passed::Deferred).count();
                prop_assert_eq!(cursor.counts().ended(), ended as u64);
                prop_assert_eq!(cursor.open(), records.iter().filter(|record| record.2.is_none()).count());
                match records.get(prefix.len()) {
                    Some((_, open_end, _)) => prop_assert!(cursor.offset() < *open_end),
                    None => prop_assert_eq!(cursor.offset(), end),
                }
            }
        }
    }
}

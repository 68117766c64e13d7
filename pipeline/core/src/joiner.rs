//! The attempts of one joiner: who is joined at present, with which token, and who waits for it.
//!
//! Invariants:
//! - At most one attempt per key, and one token per attempt: a sequence number is given out once.
//! - From its first insert on, an attempt ends only by `Inserted` and a durable line, `Duplicate`
//!   or `Expired`; or, while no answer is missing, by a refusal that did nothing. `Unknown` is
//!   asked again with the same token for ever.
//! - At most one `Write` per attempt, and only after its `Inserted`.
//!
//! ```text
//!  Join ─▶ fetching ─▶ inserting ─▶ writing ─▶ joined
//!             │            │ ▲
//!             │            └─┘ Unknown
//!             ├▶ missing, behind, filtered
//!             └▶ (from inserting) duplicate, expired, busy
//! ```
//!
//! Not here: payloads, which the shell keeps under the sequence number until `Ended`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use photon_types::{EventKey, Holder, Incarnation, Timestamp, Token};

use crate::backoff::{Backoff, BackoffBounds};
use crate::missing::Position;
use crate::time::Monotonic;
use photon_types::Prng;

/// Most waiters of one attempt; more are told to come again.
pub const ATTEMPT_WAITERS_MAX: usize = 64;

/// The limits of a joiner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinerConfig {
    /// Which instance this is.
    pub incarnation: Incarnation,
    /// Most attempts in flight; also the most that a crash can lose.
    pub attempts_max: usize,
    /// Most click bytes in flight. One click is always taken.
    pub bytes_max: usize,
    /// When a refused click may be asked again.
    pub busy_retry: Duration,
    /// Waits between inserts whose answer is unknown.
    pub backoff: BackoffBounds,
}

/// One who waits for a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The shell's name for it, unique.
    pub id: u64,
    /// When it ceases to wait. The attempt goes on.
    pub until: Monotonic,
}

/// An attempt's number within its incarnation, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// Everything that can happen to a joiner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A retry may be due.
    Tick,
    /// Somebody wants a click joined.
    Join {
        /// The click.
        key: EventKey,
        /// How much the shell has to keep for it.
        bytes: usize,
        /// Who asks.
        waiter: Waiter,
    },
    /// The answer to `Fetch`.
    Fetched {
        /// The attempt.
        sequence: Sequence,
        /// What was found.
        fetched: Fetched,
    },
    /// The answer to `Insert`.
    Answered {
        /// The attempt.
        sequence: Sequence,
        /// What the registry said.
        answer: InsertAnswer,
    },
    /// The answer to `Write`: the line and its index entry are on stable storage.
    Durable {
        /// The attempt.
        sequence: Sequence,
    },
    /// No new attempts; what is in flight comes to its end.
    Stop,
}

/// What became of the search for the primary event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// It is there, and the adapter wants the pair.
    Ready,
    /// It is there, and the adapter does not want the pair.
    Filtered,
    /// It is not there.
    Missing(Position),
    /// The store can not know yet, or did not answer.
    Behind,
    /// It was there once, and can not be read again.
    Unreadable,
}

/// What became of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertAnswer {
    /// The id is this attempt's.
    Inserted,
    /// Somebody else has it.
    Duplicate {
        /// Who.
        winner: Holder,
    },
    /// It can not be taken any more.
    Expired {
        /// The registry's boundary.
        boundary: Timestamp,
        /// The client asked more than once, and an earlier time without a clear answer.
        ambiguous: bool,
    },
    /// It may or may not have happened.
    Unknown,
    /// It was not tried: it has not happened and will not.
    Refused,
}

/// Everything a joiner can ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Search the primary event, and run the filter on it. A new attempt begins with this: the
    /// shell keeps the payload of this waiter's click under the sequence number.
    Fetch {
        /// The attempt.
        sequence: Sequence,
        /// Whose click.
        waiter: u64,
    },
    /// Insert the id; also again.
    Insert {
        /// The id.
        key: EventKey,
        /// The attempt's token.
        token: Token,
    },
    /// Write the joined line. Once per attempt.
    Write {
        /// The id.
        key: EventKey,
        /// The attempt's token.
        token: Token,
    },
    /// Tell one who waits.
    Reply {
        /// Who.
        waiter: u64,
        /// What.
        reply: Reply,
    },
    /// The attempt is over: its payloads may go.
    Ended {
        /// The attempt.
        sequence: Sequence,
    },
}

/// The result of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The line is durable. Said to one waiter per attempt.
    Joined,
    /// The id is another attempt's, or of the same attempt, which was told to another waiter.
    Duplicate,
    /// The adapter does not want this pair.
    Filtered,
    /// Below the boundary; nothing was written.
    Expired {
        /// The registry's boundary.
        boundary: Timestamp,
        /// An insert of this attempt was never answered.
        in_doubt: bool,
    },
    /// The primary event is not there.
    Missing(Position),
    /// The store can not know yet.
    Behind,
    /// The primary event was there once, and can not be read again.
    Unreadable,
    /// Nothing was begun.
    Busy {
        /// When to ask again.
        retry_after: Duration,
    },
}

/// How attempts ended, over the life of this joiner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Begun.
    pub attempts: u64,
    /// With a durable line.
    pub joined: u64,
    /// Another attempt had the id.
    pub duplicate: u64,
    /// Not wanted by the adapter.
    pub filtered: u64,
    /// Below the boundary.
    pub expired: u64,
    /// Those of `expired` with an insert that was never answered.
    pub in_doubt: u64,
    /// No primary event.
    pub missing: u64,
    /// The store could not know, or could not read the event again.
    pub behind: u64,
    /// Not begun, or the insert was refused.
    pub busy: u64,
    /// Inserts whose answer was unknown.
    pub unknown: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Fetching,
    /// An insert is on its way, or waits to be sent again.
    Inserting {
        /// An earlier one was never answered.
        in_doubt: bool,
        backoff: Backoff,
    },
    Writing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Attempt {
    key: EventKey,
    bytes: usize,
    phase: Phase,
    waiters: Vec<Waiter>,
}

/// The attempt table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joiner {
    config: JoinerConfig,
    prng: Prng,
    /// The last sequence number given out.
    sequence: u64,
    attempts: BTreeMap<Sequence, Attempt>,
    /// The attempt of each key in flight: as many as there are attempts.
    by_key: BTreeMap<EventKey, Sequence>,
    /// Attempts whose insert is to be sent again, and when.
    again: BTreeSet<(Monotonic, Sequence)>,
    bytes: usize,
    is_stopping: bool,
    totals: Totals,
}

impl Joiner {
    /// A joiner without attempts.
    #[must_use]
    pub fn new(config: JoinerConfig, prng: Prng) -> Joiner {
        Joiner {
            config,
            prng,
            sequence: 0,
            attempts: BTreeMap::new(),
            by_key: BTreeMap::new(),
            again: BTreeSet::new(),
            bytes: 0,
            is_stopping: false,
            totals: Totals::default(),
        }
    }

    /// Takes one event; appends what is to be done.
    ///
    /// # Panics
    /// When the shell answers what was not asked: a bug, and a line could be written twice.
    pub fn step(&mut self, now: Monotonic, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Tick => self.on_tick(now, out),
            Event::Join { key, bytes, waiter } => self.on_join(now, key, bytes, waiter, out),
            Event::Fetched { sequence, fetched } => self.on_fetched(now, sequence, fetched, out),
            Event::Answered { sequence, answer } => self.on_answered(now, sequence, answer, out),
            Event::Durable { sequence } => self.on_durable(now, sequence, out),
            Event::Stop => self.is_stopping = true,
        }
        assert!(self.by_key.len() == self.attempts.len());
        assert!(self.again.len() <= self.attempts.len());
    }

    /// When the next `Tick` is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.again.first().map(|(at, _)| *at)
    }

    /// How many attempts are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.attempts.len()
    }

    /// How attempts ended so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn on_tick(&mut self, now: Monotonic, out: &mut Vec<Effect>) {
        while let Some((at, sequence)) = self.again.first().copied()
            && at <= now
        {
            self.again.remove(&(at, sequence));
            let attempt = self.attempts.get(&sequence).expect("what is asked again is in flight");
            out.push(Effect::Insert { key: attempt.key.clone(), token: self.token(sequence) });
        }
    }

    fn on_join(&mut self, now: Monotonic, key: EventKey, bytes: usize, waiter: Waiter, out: &mut Vec<Effect>) {
        if let Some(sequence) = self.by_key.get(&key).copied() {
            let attempt = self.attempts.get_mut(&sequence).expect("an attempt per key in flight");
            attempt.waiters.retain(|waiter| now < waiter.until);
            if attempt.waiters.len() < ATTEMPT_WAITERS_MAX {
                attempt.waiters.push(waiter);
                return;
            }
            return self.refuse(waiter, out);
        }
        let is_full = self.config.attempts_max <= self.attempts.len()
            || (self.config.bytes_max < self.bytes.saturating_add(bytes) && !self.attempts.is_empty());
        if self.is_stopping || is_full {
            return self.refuse(waiter, out);
        }
        self.sequence = self.sequence.checked_add(1).expect("fewer than 2^64 attempts");
        self.totals.attempts += 1;
        self.bytes += bytes;
        let sequence = Sequence(self.sequence);
        let attempt = Attempt { key: key.clone(), bytes, phase: Phase::Fetching, waiters: vec![waiter] };
        assert!(self.attempts.insert(sequence, attempt).is_none());
        assert!(self.by_key.insert(key, sequence).is_none());
        out.push(Effect::Fetch { sequence, waiter: waiter.id });
    }

    fn refuse(&mut self, waiter: Waiter, out: &mut Vec<Effect>) {
        self.totals.busy += 1;
        let reply = Reply::Busy { retry_after: self.config.busy_retry };
        out.push(Effect::Reply { waiter: waiter.id, reply });
    }

    fn on_fetched(&mut self, now: Monotonic, sequence: Sequence, fetched: Fetched, out: &mut Vec<Effect>) {
        let token = self.token(sequence);
        let attempt = self.attempts.get_mut(&sequence).expect("a fetch of an attempt in flight");
        assert!(attempt.phase == Phase::Fetching, "{token} was fetched in {:?}", attempt.phase);
        let reply = match fetched {
            Fetched::Ready => {
                attempt.phase = Phase::Inserting { in_doubt: false, backoff: Backoff::default() };
                return out.push(Effect::Insert { key: attempt.key.clone(), token });
            }
            Fetched::Filtered => {
                self.totals.filtered += 1;
                Reply::Filtered
            }
            Fetched::Missing(position) => {
                self.totals.missing += 1;
                Reply::Missing(position)
            }
            Fetched::Behind => {
                self.totals.behind += 1;
                Reply::Behind
            }
            Fetched::Unreadable => {
                self.totals.behind += 1;
                Reply::Unreadable
            }
        };
        self.end(now, sequence, reply, out);
    }

    fn on_answered(&mut self, now: Monotonic, sequence: Sequence, answer: InsertAnswer, out: &mut Vec<Effect>) {
        let token = self.token(sequence);
        let attempt = self.attempts.get_mut(&sequence).expect("an insert of an attempt in flight");
        let Phase::Inserting { in_doubt, mut backoff } = attempt.phase else {
            panic!("{token} was answered in {:?}", attempt.phase);
        };
        let reply = match answer {
            InsertAnswer::Inserted => return self.write(sequence, out),
            // Only this attempt bears this token, and it has not written yet.
            InsertAnswer::Duplicate { winner: Holder::Token(winner) } if winner == token => {
                return self.write(sequence, out);
            }
            InsertAnswer::Unknown | InsertAnswer::Refused if in_doubt || answer == InsertAnswer::Unknown => {
                self.totals.unknown += 1;
                let wait = backoff.raise(self.config.backoff, &mut self.prng);
                attempt.phase = Phase::Inserting { in_doubt: true, backoff };
                self.again.insert((now.after(wait), sequence));
                return;
            }
            InsertAnswer::Unknown | InsertAnswer::Refused => {
                self.totals.busy += 1;
                Reply::Busy { retry_after: self.config.busy_retry }
            }
            InsertAnswer::Duplicate { winner: _ } => {
                self.totals.duplicate += 1;
                Reply::Duplicate
            }
            InsertAnswer::Expired { boundary, ambiguous } => {
                let in_doubt = in_doubt || ambiguous;
                self.totals.expired += 1;
                self.totals.in_doubt += u64::from(in_doubt);
                Reply::Expired { boundary, in_doubt }
            }
        };
        self.end(now, sequence, reply, out);
    }

    fn write(&mut self, sequence: Sequence, out: &mut Vec<Effect>) {
        let token = self.token(sequence);
        let attempt = self.attempts.get_mut(&sequence).expect("checked by the caller");
        attempt.phase = Phase::Writing;
        out.push(Effect::Write { key: attempt.key.clone(), token });
    }

    fn on_durable(&mut self, now: Monotonic, sequence: Sequence, out: &mut Vec<Effect>) {
        let attempt = self.attempts.get(&sequence).expect("a line of an attempt in flight");
        assert!(attempt.phase == Phase::Writing, "{sequence:?} was written in {:?}", attempt.phase);
        self.totals.joined += 1;
        self.end(now, sequence, Reply::Joined, out);
    }

    fn end(&mut self, now: Monotonic, sequence: Sequence, reply: Reply, out: &mut Vec<Effect>) {
        let Attempt { key, bytes, phase: _, waiters } = self.attempts.remove(&sequence).expect("checked by the caller");
        assert!(self.by_key.remove(&key) == Some(sequence));
        self.bytes -= bytes;
        let mut reply = reply;
        for waiter in waiters.iter().filter(|waiter| now < waiter.until) {
            out.push(Effect::Reply { waiter: waiter.id, reply });
            // One line, one who may count it.
            if reply == Reply::Joined {
                reply = Reply::Duplicate;
            }
        }
        out.push(Effect::Ended { sequence });
    }

    fn token(&self, sequence: Sequence) -> Token {
        Token { incarnation: self.config.incarnation, sequence: sequence.0 }
    }
}

#[cfg(test)]
#[path = "joiner_tests.rs"]
mod tests;

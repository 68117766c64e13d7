//! What is fed in: clicks, ends, joined lines, evidence about incarnations, registry answers.
//!
//! Invariant: nothing here is an opinion. Each value says what somebody read, and the judgement
//! is made in `check`.

use std::fmt;

use photon_types::{EventKey, Holder, Incarnation, Token};

/// Where a record lies in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The source's number in the caller's list.
    pub source: u32,
    /// The first byte of the record.
    pub offset: u64,
}

/// Whether a record may still be on its way through a dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Every reachable datacenter has passed it and holds it in no retry store, or an earlier run
    /// saw it long ago.
    Settled,
    /// Somebody may still be working on it.
    Unsettled,
}

/// A record of the foreign stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Click {
    /// Where it lies.
    pub place: Place,
    /// Its key, or none when no key could be made.
    pub key: Option<EventKey>,
    /// Whether it is settled.
    pub progress: Progress,
}

/// The end that a dispatcher recorded for a click without a joined line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndState {
    /// The adapter did not want it.
    Filtered,
    /// No primary record has the id that it names.
    Unjoinable,
    /// The registry takes no new id of that age.
    Expired,
    /// It could not be understood.
    DeadLettered,
}

impl EndState {
    /// In the order in which the ledger looks for them.
    pub const ALL: [EndState; 4] =
        [EndState::Filtered, EndState::Unjoinable, EndState::Expired, EndState::DeadLettered];
}

/// One end record of one datacenter. Repeats are allowed: a crash repeats records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Where the click lies.
    pub place: Place,
    /// The click's key, or none.
    pub key: Option<EventKey>,
    /// Its end.
    pub state: EndState,
}

/// Where a joined line lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinePlace {
    /// The incarnation whose directory holds it.
    pub incarnation: Incarnation,
    /// The segment's number.
    pub segment: u64,
    /// The first byte of the line in the segment.
    pub offset: u64,
}

impl fmt::Display for LinePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:010} at byte {}", self.incarnation, self.segment, self.offset)
    }
}

/// A counted line of the joined log: one that an index entry covers, and `SEALED` too if there is
/// one. It was made durable before it was fed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where it lies.
    pub place: LinePlace,
    /// The click's key.
    pub key: EventKey,
    /// The attempt that wrote it.
    pub token: Token,
}

/// What is known about an incarnation's output. An incarnation that was never fed in has no
/// directory in any configured output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// `SEALED`: only what it lists exists, for ever.
    Sealed,
    /// No `SEALED`, and somebody holds the lock: it may still write.
    Busy,
    /// No `SEALED`, and nobody holds the lock: dead, not fenced.
    Free,
    /// No `SEALED`, and an operator named it dead.
    NamedDead,
    /// The directory can not be believed: a gap, damage, or two of them.
    Damaged,
}

/// What the registry said about a key, at the leader and after the outputs were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Somebody has it.
    Present(Holder),
    /// Nobody has it.
    Absent,
    /// Nobody has it, and nobody ever will: it is below the boundary.
    Expired,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Present(Holder::Token(token)) => write!(f, "present with token {token}"),
            Answer::Present(Holder::Forgotten) => f.write_str("present with a forgotten token"),
            Answer::Absent => f.write_str("absent"),
            Answer::Expired => f.write_str("expired"),
        }
    }
}

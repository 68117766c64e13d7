//! What replicas of one group say to each other. One message, one struct.

use bytes::Bytes;
use photon_types::Slot;

use super::ballot::Ballot;

/// The bytes of a batch; empty is a no-op (a filled hole, or a leader's barrier).
pub type Value = Bytes;

/// A value at a place in the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Where.
    pub slot: Slot,
    /// The ballot at which it was accepted. For an entry sent as chosen: one at which it was.
    pub ballot: Ballot,
    /// What.
    pub value: Value,
}

/// 1a, candidate to all. Leaves only when the candidate's own promise is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prepare {
    /// The attempt.
    pub ballot: Ballot,
    /// The first slot the candidate asks about: its `commit_end`.
    pub from: Slot,
}

/// 1b, acceptor to candidate. Leaves only when the promise is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Promise {
    /// The attempt promised to.
    pub ballot: Ballot,
    /// Everything below is chosen. The candidate fetches it before it leads.
    pub commit_end: Slot,
    /// The acceptor does not answer for slots below.
    pub trimmed_end: Slot,
    /// What it accepted at or above max(`from`, its `commit_end`), in the order of slots.
    pub accepted: Vec<Entry>,
    /// Not all of it fits one message: the candidate asks again with `from` here, and counts the
    /// promise only when it has it whole. None: this was the last of it.
    pub more_from: Option<Slot>,
}

/// Refusal of a `Prepare` or `Accept` below the promised ballot. A hint: it raises the next round
/// and changes no promise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nack {
    /// What was refused.
    pub refused: Ballot,
    /// What the acceptor has promised.
    pub promised: Ballot,
}

/// 2a, leader to all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Accept {
    /// The leader's ballot.
    pub ballot: Ballot,
    /// Where.
    pub slot: Slot,
    /// What.
    pub value: Value,
    /// The leader's `commit_end` when it was sent.
    pub commit_end: Slot,
}

/// 2b, acceptor to leader. Leaves only when the entry is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Accepted {
    /// The leader's ballot.
    pub ballot: Ballot,
    /// Where.
    pub slot: Slot,
}

/// Leader to all: it lives, and how far the log is chosen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// The leader's ballot.
    pub ballot: Ballot,
    /// The leader's `commit_end`.
    pub commit_end: Slot,
}

/// To anybody: asks for chosen entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FetchChosen {
    /// The first slot wanted.
    pub from: Slot,
}

/// Answer to `FetchChosen`: as many entries as fit one message, from `from` without a gap; only
/// what the sender has durable and knows to be chosen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chosen {
    /// The first slot that was asked for.
    pub from: Slot,
    /// The entries; empty when the sender has none at `from`.
    pub entries: Vec<Entry>,
    /// The sender's `commit_end`.
    pub commit_end: Slot,
    /// Below it the sender can not answer.
    pub trimmed_end: Slot,
}

/// Everything replicas say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is documented at its struct")]
pub enum Message {
    Prepare(Prepare),
    Promise(Promise),
    Nack(Nack),
    Accept(Accept),
    Accepted(Accepted),
    Heartbeat(Heartbeat),
    FetchChosen(FetchChosen),
    Chosen(Chosen),
}

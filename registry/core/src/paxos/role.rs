//! What a replica is at the moment, with all that belongs to it only as long.
//!
//! Invariant: a candidate's or leader's ballot is the one this replica has promised last; whoever
//! promises a higher one becomes a follower in the same step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use photon_types::{NodeId, Slot};

use super::ballot::Ballot;
use super::log::Log;
use super::message::{Entry, Value};
use crate::config::{Config, Limits};
use crate::effect::{Effect, IoSeq};
use crate::event::{Monotonic, Now};
use crate::replica::Replica;
use photon_types::Prng;

/// What a replica is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Follower(Follower),
    Candidate(Candidate),
    Leader(Leader),
}

/// Waits for a leader's word, or for the election timeout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Follower {
    /// Who has led at the promised ballot. None after a promise to somebody who does not lead yet.
    pub leader: Option<NodeId>,
    pub election_at: Monotonic,
}

/// Asks for promises, then fetches what its voters know to be chosen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Candidate {
    pub ballot: Ballot,
    /// The write of its own promise: it counts itself when that is durable.
    pub promise_seq: IoSeq,
    /// Whose promises are here, whole.
    pub promises: BTreeSet<NodeId>,
    /// Peers whose promise came in part: the slot to ask from.
    pub partial: BTreeMap<NodeId, Slot>,
    /// Per slot what was accepted at the highest ballot, over all that was reported.
    pub best: BTreeMap<Slot, Entry>,
    /// The highest `commit_end` of the promises: everything below is chosen.
    pub chosen_end: Slot,
    /// A quorum has promised; what is left is to learn what is chosen below `chosen_end`.
    pub is_fetching: bool,
    /// When this attempt has failed.
    pub election_at: Monotonic,
    pub resend_at: Monotonic,
}

/// Proposes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leader {
    pub ballot: Ballot,
    /// The next slot to propose for.
    pub next_slot: Slot,
    /// From phase 1: values that may be chosen, no-ops for holes, and the barrier behind them, slot
    /// by slot from `next_slot` on. Proposed before anything of this leader's own.
    pub inherited: VecDeque<(Slot, Value)>,
    /// What was proposed and is not committed.
    pub open: BTreeMap<Slot, Proposal>,
    pub heartbeat_at: Monotonic,
}

/// A slot that was proposed and is not committed. Its value is in the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Proposal {
    /// Who has it durable at this ballot.
    pub accepted: BTreeSet<NodeId>,
    pub resend_at: Monotonic,
    pub resend_after: Duration,
}

impl Role {
    pub fn follower(config: &Config, prng: &mut Prng, now: Now) -> Role {
        Role::Follower(Follower { leader: None, election_at: draw_election(config, prng, now) })
    }
}

impl Candidate {
    pub fn next_deadline(&self) -> Monotonic {
        self.election_at.min(self.resend_at)
    }
}

impl Leader {
    pub fn next_deadline(&self) -> Monotonic {
        let resend = self.open.values().map(|proposal| proposal.resend_at).min();
        resend.map_or(self.heartbeat_at, |resend| resend.min(self.heartbeat_at))
    }

    pub fn check(&self, log: &Log, limits: &Limits) {
        assert!(log.commit_end() <= self.next_slot);
        assert!(self.next_slot.0 - log.commit_end().0 <= limits.window_slots_max, "the window is overrun");
        if let Some(first) = self.open.keys().next() {
            assert!(log.commit_end() <= *first, "slot {first} is open and committed");
        }
        if let Some(last) = self.open.keys().next_back() {
            assert!(*last < self.next_slot);
        }
    }
}

/// A random time until the next attempt to lead.
pub(crate) fn draw_election(config: &Config, prng: &mut Prng, now: Now) -> Monotonic {
    let timings = &config.timings;
    now.monotonic.after(prng.duration(timings.election_timeout_min, timings.election_timeout_max))
}

impl Replica {
    /// Follows, whatever it was before, and waits for a fresh random time. A leader's requests
    /// learn what can be said of them.
    pub(crate) fn become_follower(&mut self, leader: Option<NodeId>, out: &mut Vec<Effect>) {
        let was_leader = matches!(self.role, Role::Leader(_));
        self.role =
            Role::Follower(Follower { leader, election_at: draw_election(&self.config, &mut self.prng, self.now) });
        if was_leader {
            self.queue.refuse_all(leader, out);
            self.pending.abandon(self.log.commit_end(), out);
        }
    }
}

//! The learner of a follower: what the leader says is chosen, and which value that is.
//!
//! Invariant: a leader's word that a slot is chosen says nothing about a value that was accepted
//! here at another ballot. So `commit_end` moves only over slots whose accepted ballot is the
//! ballot of the leader that said so; all others are fetched (`catchup`).

use photon_types::{NodeId, Slot};

use super::ballot::Ballot;
use super::message::Heartbeat;
use super::role::{Role, draw_election};
use crate::effect::{Effect, Record};
use crate::event::Monotonic;
use crate::mutant::Mutant;
use crate::replica::Replica;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Learner {
    /// The highest claim of the latest leader: its ballot, and what it says is chosen.
    claim: (Ballot, Slot),
    /// The last `commit_end` that was written, and when the next may be.
    hinted_end: Slot,
    hint_at: Monotonic,
}

impl Learner {
    pub fn new(commit_end: Slot) -> Learner {
        Learner { claim: (Ballot::ZERO, Slot(0)), hinted_end: commit_end, hint_at: Monotonic::default() }
    }
}

impl Replica {
    pub(crate) fn on_heartbeat(&mut self, from: NodeId, message: &Heartbeat, out: &mut Vec<Effect>) {
        let Heartbeat { ballot, commit_end } = message;
        if ballot.node != from {
            self.counters.ignored_messages += 1;
            return;
        }
        self.see_round(*ballot);
        if *ballot < self.promised {
            return self.send_nack(from, *ballot, out);
        }
        if self.promised < *ballot {
            self.raise_promise(*ballot, out);
        }
        self.follow(from, out);
        self.on_claim(from, *ballot, *commit_end);
    }

    /// The promised ballot's owner has spoken as a leader.
    pub(crate) fn follow(&mut self, leader: NodeId, out: &mut Vec<Effect>) {
        match &mut self.role {
            Role::Follower(follower) => {
                follower.leader = Some(leader);
                follower.election_at = draw_election(&self.config, &mut self.prng, self.now);
            }
            Role::Candidate(_) | Role::Leader(_) => self.become_follower(Some(leader), out),
        }
    }

    /// The leader of `ballot` says that everything below `commit_end` is chosen.
    pub(crate) fn on_claim(&mut self, from: NodeId, ballot: Ballot, commit_end: Slot) {
        self.catchup.heard_at_least(from, commit_end);
        let (claim_ballot, claim_end) = &mut self.learner.claim;
        if *claim_ballot < ballot {
            (*claim_ballot, *claim_end) = (ballot, commit_end);
        } else if *claim_ballot == ballot {
            *claim_end = commit_end.max(*claim_end);
        }
        self.commit_what_is_claimed();
    }

    pub(crate) fn commit_what_is_claimed(&mut self) {
        let (claim_ballot, claim_end) = self.learner.claim;
        while let Some(entry) = self.log.get(self.log.commit_end()) {
            let is_leaders = entry.ballot == claim_ballot || self.config.mutated(Mutant::CommitOverOlderBallot);
            let is_claimed = self.log.commit_end() < claim_end && is_leaders;
            // What a recovery found marked as chosen needs nobody's word.
            if !is_claimed && !entry.is_chosen {
                break;
            }
            self.log.commit_next();
        }
    }

    /// Notes `commit_end` in the journal: with other records, so that it costs no write of its own,
    /// and at most once per heartbeat. Saves fetching after a restart, never needed for safety.
    pub(crate) fn hint_commit_end(&mut self, out: &mut Vec<Effect>) {
        let commit_end = self.log.commit_end();
        if commit_end <= self.learner.hinted_end || self.now.monotonic < self.learner.hint_at {
            return;
        }
        self.learner.hinted_end = commit_end;
        self.learner.hint_at = self.now.monotonic.after(self.config.timings.heartbeat_interval);
        self.gate.persist(Record::CommitHint { commit_end }, out);
    }
}

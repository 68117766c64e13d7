//! The leader: phase 2, pipelined over a window of slots.
//!
//! Invariants: one value for each slot and ballot; at most `window_slots_max` slots are proposed
//! and not committed. The leader is its own acceptor through the same journal: it counts itself
//! only when its entry is durable, yet sends `Accept` to its peers at once, so that disk and
//! network overlap. `commit_end` moves over slots that a quorum accepted at this very ballot.

use std::collections::BTreeSet;

use photon_types::{NodeId, Slot};

use super::message::{Accept, Accepted, Entry, Heartbeat, Message, Value};
use super::role::{Proposal, Role};
use crate::effect::{Effect, Record};
use crate::mutant::Mutant;
use crate::pending::Waiter;
use crate::replica::Replica;

impl Replica {
    /// Heartbeats, and what was not accepted in time once more.
    pub(crate) fn on_leader_tick(&mut self, out: &mut Vec<Effect>) {
        let now = self.now.monotonic;
        let Role::Leader(leader) = &mut self.role else { return };
        if leader.heartbeat_at <= now {
            leader.heartbeat_at = now.after(self.config.timings.heartbeat_interval);
            let heartbeat = Heartbeat { ballot: leader.ballot, commit_end: self.log.commit_end() };
            self.send_to_peers(&Message::Heartbeat(heartbeat), out);
        }
        self.resend_accepts(out);
    }

    fn resend_accepts(&mut self, out: &mut Vec<Effect>) {
        let now = self.now.monotonic;
        let Role::Leader(leader) = &mut self.role else { return };
        for (slot, proposal) in &mut leader.open {
            if now < proposal.resend_at {
                continue;
            }
            proposal.resend_after = (proposal.resend_after * 2).min(self.config.timings.election_timeout_min);
            proposal.resend_at = now.after(proposal.resend_after);
            // Chosen, and not committed only because of a slot before it: the others will fetch it.
            if self.quorum.is_met(&proposal.accepted) || self.config.mutated(Mutant::AcceptsNotResent) {
                continue;
            }
            let entry = self.log.get(*slot).expect("a proposed slot is in the log");
            assert!(entry.ballot == leader.ballot);
            let accept = Accept {
                ballot: leader.ballot,
                slot: *slot,
                value: entry.value.clone(),
                commit_end: self.log.commit_end(),
            };
            for to in self.config.peers().filter(|peer| !proposal.accepted.contains(peer)) {
                self.counters.accepts_resent += 1;
                out.push(Effect::Send { to, message: Message::Accept(accept.clone()) });
            }
        }
    }

    pub(crate) fn on_accepted(&mut self, from: NodeId, message: &Accepted) {
        let Accepted { ballot, slot } = message;
        if let Role::Leader(leader) = &mut self.role
            && leader.ballot == *ballot
            && let Some(proposal) = leader.open.get_mut(slot)
        {
            proposal.accepted.insert(from);
        } else {
            // Late: committed without it, or for a ballot that is over.
            self.counters.ignored_messages += 1;
        }
    }

    /// A leader's commits, then proposals for as long as there is something to propose and room.
    pub(crate) fn propose_what_fits(&mut self, out: &mut Vec<Effect>) {
        self.commit_what_is_accepted();
        while let Some((slot, value, waiters)) = self.next_proposal() {
            self.propose(slot, value, waiters, out);
        }
    }

    fn commit_what_is_accepted(&mut self) {
        let Role::Leader(leader) = &mut self.role else { return };
        for (slot, proposal) in &mut leader.open {
            let entry = self.log.get(*slot).expect("a proposed slot is in the log");
            if self.gate.is_durable(entry.seq) {
                proposal.accepted.insert(self.config.node);
            }
        }
        while let Some(first) = leader.open.first_entry() {
            if *first.key() != self.log.commit_end() || !self.quorum.is_met(&first.get().accepted) {
                break;
            }
            let entry = self.log.get(*first.key()).expect("a proposed slot is in the log");
            assert!(entry.ballot == leader.ballot, "a leader commits at its own ballot only");
            first.remove();
            self.log.commit_next();
        }
    }

    /// What comes next: what phase 1 found and the barrier, then batches of requests.
    fn next_proposal(&mut self) -> Option<(Slot, Value, Vec<Waiter>)> {
        let Role::Leader(leader) = &mut self.role else { return None };
        let limits = &self.config.limits;
        let next_slot = leader.inherited.front().map_or(leader.next_slot, |(slot, _)| *slot);
        if limits.window_slots_max <= next_slot.0 - self.log.commit_end().0 {
            return None;
        }
        if let Some((slot, value)) = leader.inherited.pop_front() {
            return Some((slot, value, Vec::new()));
        }
        if limits.unapplied_slots_max <= self.log.unapplied_slots() {
            return None;
        }
        let batch = self.queue.take_batch(limits)?;
        self.counters.batches += 1;
        self.counters.commands += u64::try_from(batch.commands).expect("a usize fits 64 bits");
        Some((next_slot, batch.value, batch.waiters))
    }

    fn propose(&mut self, slot: Slot, value: Value, waiters: Vec<Waiter>, out: &mut Vec<Effect>) {
        let Role::Leader(leader) = &mut self.role else { return };
        assert!(leader.ballot == self.promised, "a leader proposes at the ballot that it promised last");
        assert!(leader.next_slot <= slot);
        let ballot = leader.ballot;
        let entry = Entry { slot, ballot, value: value.clone() };
        let seq = self.gate.persist(Record::Accepted { entry: entry.clone(), chosen: false }, out);
        self.log.put(entry, seq, false);
        let mut accepted = BTreeSet::new();
        if self.config.mutated(Mutant::LeaderCountsBeforeDurable) {
            accepted.insert(self.config.node);
        }
        let resend_after = self.config.timings.resend_interval;
        let resend_at = self.now.monotonic.after(resend_after);
        leader.open.insert(slot, Proposal { accepted, resend_at, resend_after });
        leader.next_slot = slot.next();
        if !waiters.is_empty() {
            self.pending.insert(slot, ballot, waiters);
        }
        let accept = Accept { ballot, slot, value, commit_end: self.log.commit_end() };
        self.send_to_peers(&Message::Accept(accept), out);
    }
}

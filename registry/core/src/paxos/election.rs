//! Elections: phase 1, once for all open slots.
//!
//! Invariants: `Prepare` leaves only when the candidate's own promise is durable, else its next
//! life could use the ballot again and count promises given to this one: two values in one slot.
//! Slots below the highest `commit_end` of the promises are chosen: their acceptors do not report
//! them any more, so the candidate fetches them before it leads, and fills holes only above.
//!
//! Not here: what a leader does (`proposer`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use photon_types::{NodeId, Slot};

use super::ballot::Ballot;
use super::gate::Gate;
use super::message::{Entry, Message, Nack, Prepare, Promise, Value};
use super::role::{Candidate, Leader, Role, draw_election};
use crate::effect::Effect;
use crate::mutant::Mutant;
use crate::replica::Replica;

impl Replica {
    pub(crate) fn on_election_tick(&mut self, out: &mut Vec<Effect>) {
        let now = self.now.monotonic;
        match &mut self.role {
            Role::Follower(follower) if follower.election_at <= now => self.become_candidate(out),
            Role::Candidate(candidate) if candidate.election_at <= now => self.become_candidate(out),
            Role::Candidate(candidate) if candidate.resend_at <= now => {
                candidate.resend_at = now.after(self.config.timings.resend_interval);
                self.send_prepares(out);
            }
            Role::Follower(_) | Role::Candidate(_) | Role::Leader(_) => (),
        }
    }

    /// A new attempt, above every round seen.
    fn become_candidate(&mut self, out: &mut Vec<Effect>) {
        assert!(!matches!(self.role, Role::Leader(_)), "a leader does not campaign");
        let round = self.round_seen.checked_add(1).expect("fewer than 2^64 rounds");
        let ballot = Ballot { round, node: self.config.node };
        let promise_seq = self.raise_promise(ballot, out);
        self.role = Role::Candidate(Candidate {
            ballot,
            promise_seq,
            promises: BTreeSet::new(),
            partial: BTreeMap::new(),
            best: BTreeMap::new(),
            chosen_end: self.log.commit_end(),
            is_fetching: false,
            election_at: draw_election(&self.config, &mut self.prng, self.now),
            resend_at: self.now.monotonic.after(self.config.timings.resend_interval),
        });
        self.counters.campaigns += 1;
        self.send_prepares(out);
        self.count_own_promise(out);
    }

    /// To every peer whose promise is not here whole.
    fn send_prepares(&mut self, out: &mut Vec<Effect>) {
        let Role::Candidate(candidate) = &self.role else { return };
        let commit_end = self.log.commit_end();
        let missing: Vec<(NodeId, Slot)> = self
            .config
            .peers()
            .filter(|peer| !candidate.promises.contains(peer))
            .map(|peer| (peer, candidate.partial.get(&peer).map_or(commit_end, |from| commit_end.max(*from))))
            .collect();
        for (peer, from) in missing {
            self.send_prepare(peer, from, out);
        }
    }

    fn send_prepare(&mut self, to: NodeId, from: Slot, out: &mut Vec<Effect>) {
        let Role::Candidate(candidate) = &self.role else { return };
        let mut seq = candidate.promise_seq;
        if self.config.mutated(Mutant::PrepareBeforeDurable) {
            seq = Gate::RECOVERED;
        }
        let prepare = Prepare { ballot: candidate.ballot, from };
        self.gate.send_when_durable(seq, to, Message::Prepare(prepare), out);
    }

    /// The candidate is its own acceptor: it counts itself when its promise is durable.
    pub(crate) fn count_own_promise(&mut self, out: &mut Vec<Effect>) {
        let Role::Candidate(candidate) = &mut self.role else { return };
        if !self.gate.is_durable(candidate.promise_seq) || candidate.promises.contains(&self.config.node) {
            return;
        }
        let lowest_wins = self.config.mutated(Mutant::LowestBallotWins);
        for entry in self.log.open_entries() {
            keep_best(&mut candidate.best, entry, lowest_wins);
        }
        candidate.promises.insert(self.config.node);
        self.lead_when_ready(out);
    }

    pub(crate) fn on_promise(&mut self, from: NodeId, message: Promise, out: &mut Vec<Effect>) {
        let Promise { ballot, commit_end, trimmed_end: _, accepted, more_from } = message;
        let lowest_wins = self.config.mutated(Mutant::LowestBallotWins);
        let Role::Candidate(candidate) = &mut self.role else {
            self.counters.ignored_messages += 1;
            return;
        };
        if candidate.ballot != ballot {
            self.counters.ignored_messages += 1;
            return;
        }
        candidate.chosen_end = candidate.chosen_end.max(commit_end);
        for entry in accepted {
            self.round_seen = self.round_seen.max(entry.ballot.round);
            keep_best(&mut candidate.best, entry, lowest_wins);
        }
        if let Some(more_from) = more_from {
            candidate.partial.insert(from, more_from);
        } else {
            candidate.partial.remove(&from);
            candidate.promises.insert(from);
        }
        self.catchup.heard_exactly(from, commit_end);
        if let Some(more_from) = more_from {
            self.send_prepare(from, more_from, out);
        }
        self.lead_when_ready(out);
    }

    /// A nack is a hint: it raises the next round and changes no promise.
    pub(crate) fn on_nack(&mut self, from: NodeId, message: &Nack, out: &mut Vec<Effect>) {
        let Nack { refused, promised } = message;
        self.see_round(*promised);
        match &mut self.role {
            Role::Leader(leader) if leader.ballot == *refused && leader.ballot < *promised => {
                self.become_follower(None, out);
            }
            // It may still find its quorum among the others; its next attempt goes above.
            Role::Candidate(candidate) if candidate.ballot == *refused => {
                if self.config.mutated(Mutant::NackAsPromise) {
                    candidate.promises.insert(from);
                    self.lead_when_ready(out);
                }
            }
            Role::Follower(_) | Role::Candidate(_) | Role::Leader(_) => self.counters.ignored_messages += 1,
        }
    }

    /// With a quorum of promises: leads, or fetches first what is chosen.
    pub(crate) fn lead_when_ready(&mut self, out: &mut Vec<Effect>) {
        let Role::Candidate(candidate) = &mut self.role else { return };
        if !self.quorum.is_met(&candidate.promises) {
            return;
        }
        let is_behind = self.log.commit_end() < candidate.chosen_end;
        if is_behind && !self.config.mutated(Mutant::NoOpBelowCommitEnd) {
            if !candidate.is_fetching {
                candidate.is_fetching = true;
                candidate.election_at = draw_election(&self.config, &mut self.prng, self.now);
                self.catchup.ask_at_once();
            }
            return;
        }
        self.become_leader(out);
    }

    fn become_leader(&mut self, out: &mut Vec<Effect>) {
        let Role::Candidate(candidate) = &mut self.role else { return };
        let first = self.log.commit_end();
        let best = std::mem::take(&mut candidate.best);
        self.role = Role::Leader(Leader {
            ballot: candidate.ballot,
            next_slot: first,
            inherited: inherit(first, best, self.config.mutated(Mutant::HoleNotFilled)),
            open: BTreeMap::new(),
            heartbeat_at: self.now.monotonic,
        });
        self.counters.elections_won += 1;
        self.on_leader_tick(out);
    }
}

/// Keeps what was accepted at the highest ballot.
fn keep_best(best: &mut BTreeMap<Slot, Entry>, entry: Entry, lowest_wins: bool) {
    let is_better = best
        .get(&entry.slot)
        .is_none_or(|held| if lowest_wins { entry.ballot < held.ballot } else { held.ballot < entry.ballot });
    if is_better {
        best.insert(entry.slot, entry);
    }
}

/// What a new leader proposes before anything of its own, from its `commit_end` on: the value of
/// the highest ballot where there is one, since it may be chosen; a no-op where no promise reported
/// any, since then nothing is chosen there; and behind them its barrier.
fn inherit(first: Slot, mut best: BTreeMap<Slot, Entry>, leave_holes: bool) -> VecDeque<(Slot, Value)> {
    let end = best.last_key_value().map_or(first, |(slot, _)| first.max(slot.next()));
    let mut inherited = VecDeque::new();
    for slot in (first.0..end.0).map(Slot) {
        match best.remove(&slot) {
            Some(entry) => inherited.push_back((slot, entry.value)),
            None if leave_holes => (),
            None => inherited.push_back((slot, Value::new())),
        }
    }
    inherited.push_back((end, Value::new()));
    inherited
}

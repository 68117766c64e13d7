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

#[cfg(test)]
mod tests {
    use photon_types::GroupId;

    use super::*;
    use crate::config::Config;
    use crate::paxos::quorum::Quorum;

    fn entry(slot: u64, round: u64, value: &'static str) -> Entry {
        let ballot = Ballot { round, node: NodeId(1) };
        Entry { slot: Slot(slot), ballot, value: Value::from_static(value.as_bytes()) }
    }

    #[track_caller]
    fn check(first: u64, reports: &[Entry], want: &[(u64, &str)]) {
        let mut best = BTreeMap::new();
        for entry in reports {
            keep_best(&mut best, entry.clone(), false);
        }
        let found = inherit(Slot(first), best, false);
        let want: VecDeque<(Slot, Value)> =
            want.iter().map(|(slot, value)| (Slot(*slot), Value::copy_from_slice(value.as_bytes()))).collect();
        assert_eq!(found, want);
    }

    #[test]
    fn a_barrier_stands_behind_everything() {
        check(0, &[], &[(0, "")]);
        check(4, &[], &[(4, "")]);
        check(4, &[entry(4, 1, "a")], &[(4, "a"), (5, "")]);
    }

    #[test]
    fn holes_are_filled_from_commit_end_on() {
        check(2, &[entry(4, 1, "a")], &[(2, ""), (3, ""), (4, "a"), (5, "")]);
        // What is below commit_end by now is chosen, and not touched.
        check(2, &[entry(0, 1, "a"), entry(1, 1, "b")], &[(2, "")]);
    }

    #[test]
    fn the_highest_ballot_wins_in_any_order() {
        let reports = [entry(0, 1, "a"), entry(0, 3, "c"), entry(0, 2, "b")];
        for shift in 0..3 {
            let mut turned = reports.clone();
            turned.rotate_left(shift);
            check(0, &turned, &[(0, "c"), (1, "")]);
        }
    }

    const BALLOTS: u64 = 3;
    const VALUES: [&str; 3] = ["a", "b", "c"];

    /// One slot in the past of three acceptors: the value of each ballot, and who accepted at which.
    struct Past {
        values: [&'static str; 3],
        accepted: [[bool; 3]; 3],
    }

    impl Past {
        /// What phase 1 of `ballot` picks with these promises; None is a hole.
        fn choice(&self, promises: &[usize], ballot: u64) -> Option<Value> {
            let mut best = BTreeMap::new();
            for acceptor in promises {
                // An acceptor reports the last of what it accepted.
                let last = (1..ballot).rev().find(|b| self.has_accepted(*acceptor, *b));
                if let Some(round) = last {
                    keep_best(&mut best, entry(0, round, self.value(round)), false);
                }
            }
            best.remove(&Slot(0)).map(|entry| entry.value)
        }

        fn has_accepted(&self, acceptor: usize, round: u64) -> bool {
            self.accepted[acceptor][usize::try_from(round - 1).unwrap()]
        }

        fn value(&self, round: u64) -> &'static str {
            self.values[usize::try_from(round - 1).unwrap()]
        }

        /// A past that can have been: whoever proposed at a ballot had promises of a quorum, and
        /// took the value that they made it take.
        fn is_possible(&self, quorums: &[Vec<usize>]) -> bool {
            (1..=BALLOTS).filter(|b| (0..3).any(|a| self.has_accepted(a, *b))).all(|ballot| {
                quorums.iter().any(|quorum| {
                    self.choice(quorum, ballot).is_none_or(|value| value == self.value(ballot).as_bytes())
                })
            })
        }
    }

    /// Every past of three acceptors and three ballots: if a value was chosen, every quorum of
    /// promises makes the next candidate propose it.
    #[test]
    fn whatever_was_chosen_is_chosen_again() {
        let members: Vec<NodeId> = (1..=3).map(NodeId).collect();
        let quorum = Quorum::of(&Config::new(NodeId(1), GroupId(1), members.clone()));
        let is_quorum = |set: &[usize]| quorum.is_met(&set.iter().map(|acceptor| members[*acceptor]).collect());
        let sets: Vec<Vec<usize>> =
            (0..8_usize).map(|bits| (0..3).filter(|a| bits & (1 << a) != 0).collect()).collect();
        let quorums: Vec<Vec<usize>> = sets.into_iter().filter(|set| is_quorum(set)).collect();
        let (mut possible, mut chosen) = (0, 0);
        for code in 0..27 * 512_usize {
            let bits = code / 27;
            let past = Past {
                values: [VALUES[code % 3], VALUES[code / 3 % 3], VALUES[code / 9 % 3]],
                accepted: std::array::from_fn(|a| std::array::from_fn(|b| bits & (1 << (3 * a + b)) != 0)),
            };
            if !past.is_possible(&quorums) {
                continue;
            }
            possible += 1;
            for round in 1..=BALLOTS {
                let voters: Vec<usize> = (0..3).filter(|a| past.has_accepted(*a, round)).collect();
                if !is_quorum(&voters) {
                    continue;
                }
                chosen += 1;
                for promises in &quorums {
                    let choice = past.choice(promises, BALLOTS + 1);
                    assert_eq!(choice, Some(Value::from_static(past.value(round).as_bytes())));
                }
            }
        }
        assert!(1_000 < possible && 1_000 < chosen, "{possible} pasts, {chosen} chosen values");
    }
}

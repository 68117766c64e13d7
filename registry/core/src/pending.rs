//! Who waits for the outcomes of which proposed batch.
//!
//! Invariant: every request gets one reply. A request whose batch was proposed is never told that
//! nothing happened: when leadership is lost it is told `Unknown`, unless its batch is chosen, and
//! then it waits for the machine.

use std::collections::BTreeMap;

use photon_types::{Outcome, Outcomes, Slot};

use crate::effect::{Effect, Reply};
use crate::event::RequestId;
use crate::paxos::ballot::Ballot;

/// A request in a batch: how many of the batch's outcomes are its own. They lie end to end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiter {
    pub request: RequestId,
    pub commands: usize,
}

/// The requests of proposed batches. The ballot is part of the key since the same slot may be
/// chosen with another ballot's value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pending {
    batches: BTreeMap<(Slot, Ballot), Vec<Waiter>>,
}

impl Pending {
    pub fn insert(&mut self, slot: Slot, ballot: Ballot, waiters: Vec<Waiter>) {
        assert!(!waiters.is_empty());
        let old = self.batches.insert((slot, ballot), waiters);
        assert!(old.is_none(), "slot {slot} was proposed twice at ballot {ballot}");
    }

    pub fn is_waiting(&self, slot: Slot, ballot: Ballot) -> bool {
        self.batches.contains_key(&(slot, ballot))
    }

    pub fn requests(&self) -> usize {
        self.batches.values().map(Vec::len).sum()
    }

    /// The machine has decided: each request gets its share.
    pub fn resolve(&mut self, slot: Slot, outcomes: Outcomes, out: &mut Vec<Effect>) {
        // Only the ballot whose value is chosen is still here: the others were told `Unknown`.
        let Some(key) = self.batches.range((slot, Ballot::ZERO)..).next().map(|(key, _)| *key) else {
            return;
        };
        if key.0 != slot {
            return;
        }
        let waiters = self.batches.remove(&key).expect("found above");
        let mut outcomes = outcomes.into_iter();
        for Waiter { request, commands } in waiters {
            let mut share: Outcomes = outcomes.by_ref().take(commands).collect();
            // A frame that nobody could read ends the batch: what stood behind it changed nothing.
            share.resize(commands, Outcome::Invalid);
            out.push(Effect::Reply { request, reply: Reply::Outcomes { slot, outcomes: share } });
        }
        assert!(outcomes.next().is_none(), "slot {slot} has more outcomes than its requests have commands");
    }

    /// Leadership is lost: what is not known to be chosen may or may not be.
    pub fn abandon(&mut self, commit_end: Slot, out: &mut Vec<Effect>) {
        for (_, waiters) in self.batches.split_off(&(commit_end, Ballot::ZERO)) {
            for Waiter { request, commands: _ } in waiters {
                out.push(Effect::Reply { request, reply: Reply::Unknown });
            }
        }
    }

    pub fn check(&self, applied_end: Slot) {
        if let Some(((slot, ballot), _)) = self.batches.first_key_value() {
            assert!(applied_end <= *slot, "slot {slot} of ballot {ballot} is applied, but its outcomes did not come");
        }
    }
}

#[cfg(test)]
mod tests {
    use photon_types::NodeId;

    use super::*;

    const BALLOT: Ballot = Ballot { round: 1, node: NodeId(1) };

    fn waiter(request: u64, commands: usize) -> Waiter {
        Waiter { request: RequestId(request), commands }
    }

    #[test]
    fn outcomes_are_split_in_order() {
        let mut pending = Pending::default();
        let mut out = Vec::new();
        pending.insert(Slot(4), BALLOT, vec![waiter(7, 2), waiter(8, 1)]);
        pending.resolve(Slot(3), vec![], &mut out);
        assert_eq!(out, []);
        pending.resolve(Slot(4), vec![Outcome::Inserted, Outcome::Absent, Outcome::Deleted], &mut out);
        let reply = |request, outcomes| Effect::Reply {
            request: RequestId(request),
            reply: Reply::Outcomes { slot: Slot(4), outcomes },
        };
        assert_eq!(out, [reply(7, vec![Outcome::Inserted, Outcome::Absent]), reply(8, vec![Outcome::Deleted])]);
        assert_eq!(pending, Pending::default());
    }

    #[test]
    fn an_unreadable_tail_is_invalid() {
        let mut pending = Pending::default();
        let mut out = Vec::new();
        pending.insert(Slot(0), BALLOT, vec![waiter(1, 1), waiter(2, 2)]);
        pending.resolve(Slot(0), vec![Outcome::Inserted, Outcome::Invalid], &mut out);
        let want = Reply::Outcomes { slot: Slot(0), outcomes: vec![Outcome::Invalid, Outcome::Invalid] };
        assert_eq!(out[1], Effect::Reply { request: RequestId(2), reply: want });
    }

    #[test]
    fn what_is_chosen_still_waits_and_the_rest_is_unknown() {
        let mut pending = Pending::default();
        let mut out = Vec::new();
        pending.insert(Slot(4), BALLOT, vec![waiter(1, 1)]);
        pending.insert(Slot(5), BALLOT, vec![waiter(2, 1)]);
        pending.abandon(Slot(5), &mut out);
        assert_eq!(out, [Effect::Reply { request: RequestId(2), reply: Reply::Unknown }]);
        assert!(pending.is_waiting(Slot(4), BALLOT));
    }
}

//! Agreement: one value for each slot.
//!
//! "Only a single value is chosen" (Lamport, Paxos Made Simple, 2001, section 2.1), for each slot;
//! "a proposal number is issued at most once" makes one value for each slot and ballot (2.2).
//!
//! A value is chosen when a majority has it durably accepted at one ballot. That is judged from
//! the journals alone, whatever the replicas believe.

use std::collections::{BTreeMap, BTreeSet};

use photon_core::{Ballot, Record, Value};
use photon_types::{NodeId, Slot};

use super::{Judgement, Life};
use crate::show::Show;

#[derive(Debug)]
pub(crate) struct Agreement {
    quorum: usize,
    /// The value of each slot and ballot, and who named it first.
    proposed: BTreeMap<(Slot, Ballot), (Value, Life)>,
    acceptors: BTreeMap<(Slot, Ballot), BTreeSet<NodeId>>,
    chosen: BTreeMap<Slot, (Ballot, Value)>,
    /// What a replica first handed to its machine.
    applied: BTreeMap<Slot, (Value, Life)>,
}

impl Agreement {
    pub fn new(quorum: usize) -> Agreement {
        Agreement {
            quorum,
            proposed: BTreeMap::new(),
            acceptors: BTreeMap::new(),
            chosen: BTreeMap::new(),
            applied: BTreeMap::new(),
        }
    }

    pub fn chosen(&self, slot: Slot) -> Option<&Value> {
        self.chosen.get(&slot).map(|(_, value)| value)
    }

    pub fn chosen_slots(&self) -> u64 {
        u64::try_from(self.chosen.len()).expect("a usize fits 64 bits")
    }

    /// Somebody names a value for a slot and a ballot.
    pub fn proposed(&mut self, life: Life, slot: Slot, ballot: Ballot, value: &Value) -> Judgement {
        let (first, by) = self.proposed.entry((slot, ballot)).or_insert_with(|| (value.clone(), life));
        if first == value {
            return Ok(());
        }
        Err(format!(
            "slot {slot} has two values at ballot {ballot}: {} from {by}, {} from {life}",
            Show(&first[..]),
            Show(&value[..])
        ))
    }

    /// A record is durable: it may be the one that makes a quorum.
    pub fn durable(&mut self, life: Life, record: &Record) -> Judgement {
        // What was learned as chosen was not accepted.
        let Record::Accepted { entry, chosen: false } = record else { return Ok(()) };
        let acceptors = self.acceptors.entry((entry.slot, entry.ballot)).or_default();
        acceptors.insert(life.node);
        if acceptors.len() < self.quorum {
            return Ok(());
        }
        let (slot, value) = (entry.slot, &entry.value);
        let (ballot, chosen) = self.chosen.entry(slot).or_insert_with(|| (entry.ballot, value.clone()));
        if chosen == value {
            return Ok(());
        }
        Err(format!(
            "slot {slot} is chosen twice: {} at ballot {ballot}, {} at ballot {}",
            Show(&chosen[..]),
            Show(&value[..]),
            entry.ballot
        ))
    }

    /// Somebody takes a value for chosen.
    pub fn learned(&self, life: Life, slot: Slot, value: &Value) -> Judgement {
        match self.chosen.get(&slot) {
            Some((ballot, chosen)) if chosen != value => Err(format!(
                "{life} takes {} for chosen in slot {slot}, but {} is, at ballot {ballot}",
                Show(&value[..]),
                Show(&chosen[..])
            )),
            // That nothing is chosen is judged by the durable quorum.
            Some(_) | None => Ok(()),
        }
    }

    /// Somebody's machine is to run a value.
    pub fn applying(&mut self, life: Life, slot: Slot, value: &Value) -> Judgement {
        self.learned(life, slot, value)?;
        let (first, by) = self.applied.entry(slot).or_insert_with(|| (value.clone(), life));
        if first == value {
            return Ok(());
        }
        Err(format!("slot {slot} is applied as {} by {by} and as {} by {life}", Show(&first[..]), Show(&value[..])))
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{accepted, ballot, check_evidence, entry, life, value};
    use super::*;

    #[test]
    fn a_majority_at_one_ballot_chooses() {
        let mut agreement = Agreement::new(2);
        assert_eq!(agreement.durable(life(1, 1), &accepted(4, ballot(1, 1), "a")), Ok(()));
        // Not the same ballot, and twice the same node: no quorum.
        assert_eq!(agreement.durable(life(2, 1), &accepted(4, ballot(2, 2), "b")), Ok(()));
        assert_eq!(agreement.durable(life(1, 2), &accepted(4, ballot(1, 1), "a")), Ok(()));
        let learned = Record::Accepted { entry: entry(4, ballot(1, 1), "a"), chosen: true };
        assert_eq!(agreement.durable(life(3, 1), &learned), Ok(()));
        assert_eq!(agreement.chosen(Slot(4)), None);
        assert_eq!(agreement.durable(life(3, 1), &accepted(4, ballot(2, 2), "b")), Ok(()));
        assert_eq!(agreement.chosen(Slot(4)), Some(&value("b")));
        assert_eq!(agreement.chosen_slots(), 1);
    }

    #[test]
    fn a_second_choice_is_refused() {
        let mut agreement = Agreement::new(2);
        for (node, text) in [(1, "a"), (2, "a")] {
            agreement.durable(life(node, 1), &accepted(0, ballot(1, 1), text)).unwrap();
        }
        agreement.durable(life(2, 1), &accepted(0, ballot(2, 3), "b")).unwrap();
        // The same value at a higher ballot is no second choice.
        agreement.durable(life(1, 1), &accepted(0, ballot(3, 1), "a")).unwrap();
        agreement.durable(life(2, 1), &accepted(0, ballot(3, 1), "a")).unwrap();
        let second = agreement.durable(life(3, 1), &accepted(0, ballot(2, 3), "b"));
        check_evidence(second, &["slot 0 is chosen twice", "1.1", "2.3"]);
    }

    #[test]
    fn two_values_at_one_ballot_are_refused() {
        let mut agreement = Agreement::new(2);
        assert_eq!(agreement.proposed(life(1, 1), Slot(0), ballot(1, 1), &value("a")), Ok(()));
        assert_eq!(agreement.proposed(life(2, 1), Slot(0), ballot(1, 1), &value("a")), Ok(()));
        assert_eq!(agreement.proposed(life(1, 1), Slot(0), ballot(2, 1), &value("b")), Ok(()));
        let second = agreement.proposed(life(1, 2), Slot(0), ballot(1, 1), &value(""));
        check_evidence(second, &["two values at ballot 1.1", "node 1 in life 2", "<no-op>"]);
    }

    #[test]
    fn a_machine_that_runs_something_else_is_refused() {
        let mut agreement = Agreement::new(2);
        assert_eq!(agreement.applying(life(1, 1), Slot(0), &value("a")), Ok(()));
        check_evidence(agreement.applying(life(2, 1), Slot(0), &value("b")), &["applied as", "node 2"]);
        agreement.durable(life(1, 1), &accepted(1, ballot(1, 1), "a")).unwrap();
        agreement.durable(life(2, 1), &accepted(1, ballot(1, 1), "a")).unwrap();
        check_evidence(agreement.learned(life(3, 1), Slot(1), &value("b")), &["node 3", "for chosen in slot 1"]);
    }
}

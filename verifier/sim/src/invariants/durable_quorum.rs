//! What counts as chosen is durable at a quorum.
//!
//! A value is chosen when a majority of acceptors have accepted it (Lamport, Paxos Made Simple,
//! 2001, section 2.1), and an acceptor "records its intended response in stable storage before
//! actually sending the response" (2.5). So whatever a replica commits, applies or passes on, and
//! all that a client was told, is in the durable journals of a majority at that moment.

use std::collections::BTreeMap;

use photon_types::{NodeId, Slot};

use super::agreement::Agreement;
use super::durable::Durable;
use super::{Judgement, Life};

#[derive(Debug)]
pub(crate) struct DurableQuorum {
    quorum: usize,
    /// What each node's `commit_end` was found right up to.
    checked_end: BTreeMap<NodeId, Slot>,
}

impl DurableQuorum {
    pub fn new(quorum: usize) -> DurableQuorum {
        DurableQuorum { quorum, checked_end: BTreeMap::new() }
    }

    /// A replica says that everything below is chosen.
    pub fn committed(&mut self, life: Life, commit_end: Slot, agreement: &Agreement) -> Judgement {
        let checked_end = self.checked_end.entry(life.node).or_default();
        while *checked_end < commit_end {
            if agreement.chosen(*checked_end).is_none() {
                let slot = *checked_end;
                return Err(format!(
                    "{life} has commit_end {commit_end}, but in slot {slot} no quorum has one value durable at one ballot"
                ));
            }
            *checked_end = checked_end.next();
        }
        Ok(())
    }

    /// A replica applies a slot, or passes it on as chosen.
    pub fn chosen(&self, life: Life, slot: Slot, agreement: &Agreement) -> Judgement {
        if agreement.chosen(slot).is_some() {
            return Ok(());
        }
        Err(format!("{life} takes slot {slot} for chosen, but no quorum has one value durable at one ballot"))
    }

    /// A client is told what was decided in a slot.
    pub fn told(&self, slot: Slot, agreement: &Agreement, durable: &Durable) -> Judgement {
        let Some(value) = agreement.chosen(slot) else {
            return Err(format!("a client was told of slot {slot}, which is not chosen"));
        };
        let holders = durable.holders(slot, value);
        if self.quorum <= holders.len() {
            return Ok(());
        }
        Err(format!("a client was told of slot {slot}, which is durable at {holders:?} only, not at {}", self.quorum))
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{accepted, ballot, check_evidence, life};
    use super::*;

    fn states(acceptors: &[u32]) -> (Agreement, Durable) {
        let (mut agreement, mut durable) = (Agreement::new(2), Durable::default());
        for node in acceptors {
            let record = accepted(0, ballot(1, 1), "a");
            durable.note(NodeId(*node), &record);
            agreement.durable(life(*node, 1), &record).unwrap();
        }
        (agreement, durable)
    }

    #[test]
    fn a_quorum_is_enough() {
        let (agreement, durable) = states(&[1, 3]);
        let mut quorum = DurableQuorum::new(2);
        assert_eq!(quorum.committed(life(2, 1), Slot(1), &agreement), Ok(()));
        assert_eq!(quorum.chosen(life(2, 1), Slot(0), &agreement), Ok(()));
        assert_eq!(quorum.told(Slot(0), &agreement, &durable), Ok(()));
        check_evidence(quorum.committed(life(2, 1), Slot(2), &agreement), &["commit_end 2", "slot 1"]);
    }

    #[test]
    fn one_node_is_not() {
        let (agreement, durable) = states(&[1]);
        let mut quorum = DurableQuorum::new(2);
        check_evidence(quorum.committed(life(1, 1), Slot(1), &agreement), &["node 1", "commit_end 1", "slot 0"]);
        check_evidence(quorum.chosen(life(1, 1), Slot(0), &agreement), &["node 1", "slot 0"]);
        check_evidence(quorum.told(Slot(0), &agreement, &durable), &["told of slot 0"]);
    }

    #[test]
    fn what_was_told_must_still_lie_there() {
        let (agreement, _) = states(&[1, 2]);
        let (_, lost) = states(&[1]);
        check_evidence(DurableQuorum::new(2).told(Slot(0), &agreement, &lost), &["durable at [NodeId(1)] only"]);
    }
}

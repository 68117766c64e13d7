//! Quorums: majorities of the members.
//!
//! Invariant: two quorums share a member. Votes are sets: a message that comes twice changes
//! nothing, and a vote of a stranger does not count.

use std::collections::BTreeSet;

use photon_types::NodeId;

use crate::config::Config;
use crate::mutant::Mutant;

/// Who must agree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Quorum {
    members: BTreeSet<NodeId>,
    needed: usize,
}

impl Quorum {
    pub fn of(config: &Config) -> Quorum {
        let members: BTreeSet<NodeId> = config.members.iter().copied().collect();
        let mut needed = members.len() / 2 + 1;
        if config.mutated(Mutant::QuorumOneShort) {
            needed -= 1;
        }
        Quorum { members, needed }
    }

    pub fn has_member(&self, node: NodeId) -> bool {
        self.members.contains(&node)
    }

    pub fn is_met(&self, votes: &BTreeSet<NodeId>) -> bool {
        self.needed <= self.members.intersection(votes).count()
    }
}

#[cfg(test)]
mod tests {
    use photon_types::GroupId;

    use super::*;

    /// Every pair of sets of every size of group: two that are quorums meet.
    #[test]
    fn any_two_quorums_share_a_member() {
        for size in 1..=5_u32 {
            let members: Vec<NodeId> = (1..=size).map(NodeId).collect();
            let quorum = Quorum::of(&Config::new(NodeId(1), GroupId(1), members.clone()));
            let sets: Vec<BTreeSet<NodeId>> = (0..1_u32 << size)
                .map(|bits| members.iter().copied().filter(|m| bits & (1 << (m.0 - 1)) != 0).collect())
                .filter(|votes| quorum.is_met(votes))
                .collect();
            assert!(!sets.is_empty());
            for a in &sets {
                assert!(sets.iter().all(|b| a.intersection(b).next().is_some()), "{a:?} of {size}");
            }
        }
    }

    #[test]
    fn strangers_do_not_count() {
        let quorum = Quorum::of(&Config::new(NodeId(1), GroupId(1), vec![NodeId(1), NodeId(2), NodeId(3)]));
        assert!(!quorum.is_met(&BTreeSet::from([NodeId(1), NodeId(8), NodeId(9)])));
        assert!(quorum.is_met(&BTreeSet::from([NodeId(1), NodeId(3), NodeId(9)])));
    }
}

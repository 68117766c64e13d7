//! After healing the cluster commits something new, everywhere.
//!
//! Paxos makes progress once one proposer can talk to a majority (Lamport, Paxos Made Simple, 2001,
//! section 2.4); with random timeouts and a calm network that must come within a few elections.
//! Converged is not alive: replicas that agree on an old log for ever would pass a check that only
//! compares them.

use std::fmt::Write as _;

use photon_types::{NodeId, Slot};

use super::Judgement;

/// Where a healed cluster stands when its time is up.
#[derive(Clone, Debug)]
pub(crate) struct Healed {
    /// Where the insert that was first asked for after healing was chosen.
    pub proven: Option<Slot>,
    /// Clients that wait for an answer.
    pub waiting: Vec<String>,
    pub nodes: Vec<NodeState>,
}

#[derive(Clone, Debug)]
pub(crate) struct NodeState {
    pub node: NodeId,
    pub applied_end: Slot,
    /// For people.
    pub status: String,
}

impl Healed {
    /// It has nothing left to do.
    pub fn is_done(&self) -> bool {
        self.check().is_ok()
    }

    pub fn check(&self) -> Judgement {
        let Some(proven) = self.proven else {
            return Err(self.describe("nothing new was committed after healing"));
        };
        if !self.waiting.is_empty() {
            return Err(self.describe("clients have no answer after healing"));
        }
        let ends: Vec<Slot> = self.nodes.iter().map(|node| node.applied_end).collect();
        if ends.iter().any(|end| *end != ends[0] || *end <= proven) {
            return Err(self.describe("the replicas have not all applied the whole log after healing"));
        }
        Ok(())
    }

    fn describe(&self, what: &str) -> String {
        let mut text = what.to_owned();
        for waiting in &self.waiting {
            write!(text, "\n    {waiting}").expect("a string takes all");
        }
        for node in &self.nodes {
            write!(text, "\n    node {}: {}", node.node, node.status).expect("a string takes all");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::check_evidence;
    use super::*;

    fn healed(proven: Option<u64>, waiting: &[&str], ends: &[u64]) -> Healed {
        let state = |(node, end): (u32, &u64)| NodeState {
            node: NodeId(node),
            applied_end: Slot(*end),
            status: format!("applied={end}"),
        };
        Healed {
            proven: proven.map(Slot),
            waiting: waiting.iter().map(ToString::to_string).collect(),
            nodes: (1..).zip(ends).map(state).collect(),
        }
    }

    #[test]
    fn converged_is_not_alive() {
        assert!(healed(Some(7), &[], &[9, 9, 9]).is_done());
        check_evidence(healed(None, &[], &[9, 9, 9]).check(), &["nothing new", "node 1: applied=9"]);
        check_evidence(healed(Some(7), &["client 3 asks node 1"], &[9, 9, 9]).check(), &["client 3"]);
        check_evidence(healed(Some(7), &[], &[9, 8, 9]).check(), &["not all applied", "node 2: applied=8"]);
        check_evidence(healed(Some(9), &[], &[9, 9, 9]).check(), &["not all applied"]);
    }
}

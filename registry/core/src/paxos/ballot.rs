//! Ballots.

use std::fmt;

use photon_types::NodeId;

/// A leadership attempt: totally ordered, and unique since a node id is bound to one incarnation
/// of one disk and a node never uses a round twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// Raised above every round seen before each attempt. Compared first.
    pub round: u64,
    /// Who attempts.
    pub node: NodeId,
}

impl Ballot {
    /// Below every ballot that is ever used.
    pub const ZERO: Ballot = Ballot { round: 0, node: NodeId(0) };
}

impl Default for Ballot {
    fn default() -> Ballot {
        Ballot::ZERO
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.round, self.node)
    }
}

//! Where a replica stands, for people, probes and tests. Nothing in the core reads it.

use std::fmt;

use photon_types::{GroupId, NodeId, Slot};

use crate::paxos::ballot::Ballot;

/// What a replica is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RoleName {
    /// Follows a leader, or waits for one.
    Follower,
    /// Tries to become the leader.
    Candidate,
    /// Leads.
    Leader,
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RoleName::Follower => "follower",
            RoleName::Candidate => "candidate",
            RoleName::Leader => "leader",
        })
    }
}

/// Totals of one life of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Batches of requests proposed here, no-ops not counted.
    pub batches: u64,
    /// Commands in them.
    pub commands: u64,
    /// Attempts to lead.
    pub campaigns: u64,
    /// Attempts that succeeded.
    pub elections_won: u64,
    /// `Accept`s sent again.
    pub accepts_resent: u64,
    /// Entries learned from peers as chosen.
    pub entries_fetched: u64,
    /// Requests refused since too much was waiting.
    pub overloaded_requests: u64,
    /// Messages that changed nothing, for a reason that is no fault.
    pub ignored_messages: u64,
}

/// Where a replica stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// This node.
    pub node: NodeId,
    /// The group.
    pub group: GroupId,
    /// What it is.
    pub role: RoleName,
    /// The highest ballot that it has promised; a leader's or candidate's own.
    pub ballot: Ballot,
    /// Who probably leads: this node itself, if it does.
    pub leader: Option<NodeId>,
    /// It answers for no slot below.
    pub trimmed_end: Slot,
    /// The machine has applied everything below.
    pub applied_end: Slot,
    /// Everything below is chosen.
    pub commit_end: Slot,
    /// Behind the highest slot that holds anything.
    pub accepted_end: Slot,
    /// Everything below is on stable storage here.
    pub durable_end: Slot,
    /// Requests that wait for room in the pipeline.
    pub queued_requests: usize,
    /// Commands in them.
    pub queued_commands: usize,
    /// Requests in batches that are proposed and not applied.
    pub pending_requests: usize,
    /// Totals of this life.
    pub counters: Counters,
}

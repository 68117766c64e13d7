//! A node: one replica at a time, over a journal and a machine that outlive it.
//!
//! Invariant: what is under way belongs to a life. Whatever comes back from an earlier one is
//! dropped; only messages of the network know no lives.

use std::time::Duration;

use photon_core::machine::RowLayout;
use photon_core::{Config, Replica};
use photon_types::{GroupId, NodeId};

use super::journal::Journal;
use super::machine::Machine;
use crate::invariants::{Life, NodeState};
use crate::mutants::Mutant;
use crate::parameters::Parameters;
use crate::time::{Clock, Time};

const GROUP: GroupId = GroupId(1);

pub(crate) struct Node {
    pub config: Config,
    /// None while it is down.
    pub replica: Option<Replica>,
    /// The life that is, or that was last.
    pub life: Life,
    pub clock: Clock,
    pub journal: Journal,
    pub machine: Machine,
    /// The earliest tick under way.
    pub tick_at: Option<Time>,
    /// Its process is stopped: nothing happens in it before.
    pub stalled_until: Time,
    /// Reports of one lane come in order.
    pub persisted_at: Time,
    pub applied_at: Time,
}

impl Node {
    pub fn new(id: NodeId, parameters: &Parameters, mutant: Option<Mutant>) -> Node {
        let members = (1..=parameters.nodes).map(NodeId).collect();
        let mut config = Config::new(id, GROUP, members);
        config.timings = parameters.timings.clone();
        config.limits = parameters.limits.clone();
        switch_on(&mut config, mutant);
        Node {
            config,
            replica: None,
            life: Life { node: id, number: 0 },
            clock: Clock { born: Time::default(), shown: Duration::ZERO, rate: 1_000 },
            journal: Journal::default(),
            machine: Machine::new(RowLayout::hourly(GROUP)),
            tick_at: None,
            stalled_until: Time::default(),
            persisted_at: Time::default(),
            applied_at: Time::default(),
        }
    }

    pub fn is_alive(&self, life: Life) -> bool {
        self.replica.is_some() && self.life == life
    }

    /// Its process is gone, with all that it had not made durable.
    pub fn die(&mut self) {
        self.replica = None;
        self.tick_at = None;
        self.machine.crash();
    }

    pub fn state(&self) -> NodeState {
        NodeState { node: self.life.node, applied_end: self.machine.applied_end(), status: self.describe() }
    }

    fn describe(&self) -> String {
        let Some(replica) = &self.replica else { return "down".into() };
        let status = replica.status();
        let leader = status.leader.map_or_else(|| "nobody".into(), |leader| leader.to_string());
        format!(
            "{} of {leader} at {}, applied {} commit {} durable {} accepted {}, queued {} pending {}",
            status.role,
            status.ballot,
            status.applied_end,
            status.commit_end,
            status.durable_end,
            status.accepted_end,
            status.queued_requests,
            status.pending_requests
        )
    }
}

#[cfg(feature = "mutants")]
fn switch_on(config: &mut Config, mutant: Option<Mutant>) {
    config.mutant = mutant;
}

#[cfg(not(feature = "mutants"))]
fn switch_on(_: &mut Config, mutant: Option<Mutant>) {
    match mutant {
        None => (),
        Some(never) => match never {},
    }
}

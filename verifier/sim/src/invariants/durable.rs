//! What is on stable storage, node by node: the ground on which other invariants stand. It judges
//! nothing.
//!
//! Invariant: it only grows. Journals are not trimmed, and a crash takes only what was not synced.

use std::collections::BTreeMap;

use photon_core::{Ballot, Record, Value};
use photon_types::{NodeId, Slot};

#[derive(Debug, Default)]
pub(crate) struct Durable {
    nodes: BTreeMap<NodeId, Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// The highest promise, accepting included.
    promised: Ballot,
    slots: BTreeMap<Slot, Vec<(Ballot, Value)>>,
}

impl Durable {
    pub fn note(&mut self, node: NodeId, record: &Record) {
        let held = self.nodes.entry(node).or_default();
        match record {
            Record::Promise { ballot } => held.promised = held.promised.max(*ballot),
            Record::Accepted { entry, chosen } => {
                if !chosen {
                    held.promised = held.promised.max(entry.ballot);
                }
                held.slots.entry(entry.slot).or_default().push((entry.ballot, entry.value.clone()));
            }
            Record::CommitHint { commit_end: _ } => (),
        }
    }

    pub fn promised(&self, node: NodeId) -> Ballot {
        self.nodes.get(&node).map_or(Ballot::ZERO, |held| held.promised)
    }

    /// What the node has in a slot, in the order in which it was written.
    pub fn slot(&self, node: NodeId, slot: Slot) -> &[(Ballot, Value)] {
        self.nodes.get(&node).and_then(|held| held.slots.get(&slot)).map_or(&[], Vec::as_slice)
    }

    /// Who holds this value in this slot, at any ballot.
    pub fn holders(&self, slot: Slot, value: &Value) -> Vec<NodeId> {
        let holds = |held: &Held| held.slots.get(&slot).is_some_and(|written| written.iter().any(|(_, v)| v == value));
        self.nodes.iter().filter(|(_, held)| holds(held)).map(|(node, _)| *node).collect()
    }
}

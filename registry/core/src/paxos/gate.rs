//! The durability gate: numbers what is written, and keeps messages back until what they say is
//! on stable storage.
//!
//! Invariant: a message that states a durable fact leaves only after `Persisted` covered that
//! fact. This is the one place where anything waits for the disk; the driver has no ordering
//! contract beyond "the journal in order".

use std::collections::BTreeMap;

use photon_types::NodeId;

use super::message::Message;
use crate::effect::{Effect, IoSeq, Record};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Gate {
    /// The last number given to a `Persist`.
    issued: IoSeq,
    /// Everything up to and including it is durable. Never above `issued`.
    persisted: IoSeq,
    /// Messages by what they wait for, each once; all of them above `persisted`.
    held: BTreeMap<IoSeq, Vec<(NodeId, Message)>>,
}

impl Gate {
    /// Durable before this life began.
    pub const RECOVERED: IoSeq = IoSeq(0);

    pub fn issued(&self) -> IoSeq {
        self.issued
    }

    pub fn is_durable(&self, seq: IoSeq) -> bool {
        seq <= self.persisted
    }

    pub fn persist(&mut self, record: Record, out: &mut Vec<Effect>) -> IoSeq {
        self.issued = IoSeq(self.issued.0.checked_add(1).expect("fewer than 2^64 records in one life"));
        out.push(Effect::Persist { seq: self.issued, record });
        self.issued
    }

    /// Sends the message when everything up to `seq` is durable; at once when it is already.
    pub fn send_when_durable(&mut self, seq: IoSeq, to: NodeId, message: Message, out: &mut Vec<Effect>) {
        assert!(seq <= self.issued, "{seq:?} was not issued, {:?} is the last", self.issued);
        if self.is_durable(seq) {
            out.push(Effect::Send { to, message });
            return;
        }
        let held = self.held.entry(seq).or_default();
        // Repetitions during a stall of the disk would pile up.
        if !held.iter().any(|(other, held)| *other == to && *held == message) {
            held.push((to, message));
        }
    }

    pub fn on_persisted(&mut self, upto: IoSeq, out: &mut Vec<Effect>) {
        assert!(upto <= self.issued, "{upto:?} was not issued, {:?} is the last", self.issued);
        assert!(self.persisted <= upto, "{:?} was durable, now only {upto:?}", self.persisted);
        self.persisted = upto;
        while let Some(first) = self.held.first_entry() {
            if upto < *first.key() {
                break;
            }
            out.extend(first.remove().into_iter().map(|(to, message)| Effect::Send { to, message }));
        }
    }

    pub fn check(&self) {
        assert!(self.persisted <= self.issued);
        if let Some(first) = self.held.keys().next() {
            assert!(self.persisted < *first, "a message that waits for {first:?} is held though it is durable");
        }
    }
}

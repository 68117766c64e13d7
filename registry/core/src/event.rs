//! Everything that can happen to a replica. Closed: what is not here can not influence consensus.

use std::time::Duration;

use bytes::Bytes;
use photon_types::{Chunk, NodeId, Outcomes, Slot};

use crate::effect::IoSeq;
use crate::paxos::message::{Entry, Message};

/// A reading of the monotonic clock: time since some start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub Duration);

impl Monotonic {
    /// This much later; the end of time when it does not fit.
    #[must_use]
    pub fn after(self, wait: Duration) -> Monotonic {
        Monotonic(self.0.saturating_add(wait))
    }
}

/// What the clocks say. Wall-clock intervals join it when the boundary needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// Never goes back within the life of a process.
    pub monotonic: Monotonic,
}

/// Names a waiting client request within one life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names a read of the journal within one life of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// Everything that can happen to a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The deadline of `Replica::next_deadline` has come. Harmless when early.
    Tick,
    /// A client asks. The door has checked the chunk (`Chunk::check`).
    Request {
        /// Comes back in the one `Effect::Reply`.
        request: RequestId,
        /// Commands as encoded by the client: never unpacked here.
        commands: Chunk<Bytes>,
    },
    /// A peer speaks. May be lost, late, double, or out of order; never forged or altered.
    Message {
        /// Who.
        from: NodeId,
        /// What.
        message: Message,
    },
    /// Every `Persist` up to and including `upto` is on stable storage.
    Persisted {
        /// The last of them.
        upto: IoSeq,
    },
    /// The machine has applied every entry below `applied_end`.
    Applied {
        /// The bound.
        applied_end: Slot,
        /// The outcomes of the slots in the order of `Effect::Apply` since the last such event;
        /// only of entries whose `wanted` was set.
        outcomes: Vec<(Slot, Outcomes)>,
    },
    /// The answer to `Effect::Read`: chosen entries from its `from` on, without a gap, in order.
    EntriesRead {
        /// The read.
        read: ReadId,
        /// As many as the limit allowed, at least one.
        entries: Vec<Entry>,
    },
}

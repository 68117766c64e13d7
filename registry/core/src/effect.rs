//! Everything a replica can ask for.

use std::time::Duration;

use photon_types::{NodeId, Outcomes, Slot};

use crate::event::{ReadId, RequestId};
use crate::paxos::ballot::Ballot;
use crate::paxos::message::{Entry, Message};

/// Numbers `Persist` effects within one life of a replica: 1, 2, 3 and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoSeq(pub u64);

/// One record of the journal, as far as the core is concerned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// No ballot below this one is answered any more.
    Promise {
        /// The ballot.
        ballot: Ballot,
    },
    /// An accepted entry, or one learned as chosen. A later record for the same slot replaces an
    /// earlier one. Accepting at a ballot also promises it: no `Promise` record is needed.
    Accepted {
        /// The entry.
        entry: Entry,
        /// Learned as chosen, from a peer that knew it: its ballot promises nothing.
        chosen: bool,
    },
    /// Everything below is chosen. Saves time at recovery, never needed for safety.
    CommitHint {
        /// The bound.
        commit_end: Slot,
    },
}

/// The answer to a request: each request gets exactly one, while the process lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The machine decided.
    Outcomes {
        /// Where the batch stood.
        slot: Slot,
        /// One for each command, in order.
        outcomes: Outcomes,
    },
    /// This replica does not lead. Nothing has happened.
    NotLeader {
        /// Who probably does.
        hint: Option<NodeId>,
    },
    /// Too much is waiting. Nothing has happened.
    Overloaded {
        /// Ask again after.
        retry_after: Duration,
    },
    /// It may or may not happen: ask again with the same tokens.
    Unknown,
}

/// Everything a replica can ask for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Lane 1: write in order, report in order (`Event::Persisted`). A crash may lose any suffix
    /// that was not reported.
    Persist {
        /// Its number.
        seq: IoSeq,
        /// What.
        record: Record,
    },
    /// Lane 2: apply in order, report `Event::Applied`. Sent only for entries that are durable in
    /// this replica's own journal and chosen.
    Apply {
        /// The entry.
        entry: Entry,
        /// Somebody waits for the outcomes.
        wanted: bool,
    },
    /// Lane 3: no order, may be lost.
    Send {
        /// To whom; never this node.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// At most once for each request.
    Reply {
        /// Which.
        request: RequestId,
        /// What.
        reply: Reply,
    },
    /// Read chosen entries back from the journal; answered by `Event::EntriesRead`. Only for slots
    /// that this replica has durable.
    Read {
        /// Its number.
        read: ReadId,
        /// The first slot wanted.
        from: Slot,
        /// The bound of what may be returned.
        to_end: Slot,
        /// Stop before more than this many bytes of values; always return at least one entry.
        bytes_max: usize,
    },
}

//! What a node remembers of its peers' disks, and whom it believes.
//!
//! A node id is bound to one disk, and a disk to what it has promised. A wiped disk, a copy, and one
//! that was rolled back to an older state have forgotten promises: their votes would elect two
//! leaders. They are told by incarnation, boot, process nonce, the end of the journal, and the history
//! of all this: numbers alone grow with each start, also those of a copy.
//!
//! Invariant: what was heard of a disk is replaced only by a later life of the same story, while this
//! process lives. (Not detected: a rollback when no running peer remembers what the disk said before,
//! since all that knew are down, were restarted, or were cut off.)

use std::collections::BTreeMap;

use photon_types::{ClusterId, Incarnation, NodeId};

use super::birth::Birth;
use super::history::{PAST_LIVES_MAX, PastLife};
use crate::journal::JournalPosition;

/// What a peer states about itself in a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Who it says it is.
    pub node: NodeId,
    /// Its disk.
    pub incarnation: Incarnation,
    /// How often that disk was started.
    pub boot: u64,
    /// Drawn once by the process.
    pub nonce: u64,
    /// Where its journal ended when this boot recovered it (`Recovered::recovered_end`): the same
    /// in every handshake of a process.
    pub recovered_end: JournalPosition,
    /// Its starts before this one, the oldest first; together with this one they are one story
    /// (`is_one_story`). At most the last [`PAST_LIVES_MAX`].
    pub past_lives: Vec<PastLife>,
    /// Its cluster; None before its birth record is durable.
    pub cluster: Option<ClusterId>,
}

/// Why a peer is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerRefusal {
    /// Not a member, by configuration or by birth.
    #[error("node {node} is not a member of this cluster")]
    NotMember {
        /// The peer.
        node: NodeId,
    },
    /// Born elsewhere.
    #[error("node {node} belongs to cluster {theirs}, this node to cluster {ours}")]
    WrongCluster {
        /// The peer.
        node: NodeId,
        /// Our cluster.
        ours: ClusterId,
        /// Its cluster.
        theirs: ClusterId,
    },
    /// A new, empty directory under the id of a member.
    #[error(
        "node {node} comes with a new data directory ({stated}), but was born with {born}: a wiped disk has forgotten \
         its promises and can not vote under this id again"
    )]
    Empty {
        /// The peer.
        node: NodeId,
        /// The disk that was born under this id.
        born: Incarnation,
        /// The disk that it has now.
        stated: Incarnation,
    },
    /// Another disk under the id of a member.
    #[error("node {node} comes with the data directory {stated}, but was born with {born}")]
    Wiped {
        /// The peer.
        node: NodeId,
        /// The disk that was born under this id.
        born: Incarnation,
        /// The disk that it has now.
        stated: Incarnation,
    },
    /// The disk has forgotten its birth.
    #[error("the data directory of node {node} has forgotten its cluster: it was rolled back to before its birth")]
    BirthForgotten {
        /// The peer.
        node: NodeId,
    },
    /// A lower boot than heard before.
    #[error(
        "node {node} states boot {stated}, but boot {heard} of this data directory was heard: it was copied or rolled \
         back, or an old process still runs"
    )]
    BootWentBack {
        /// The peer.
        node: NodeId,
        /// The highest heard.
        heard: u64,
        /// What it states.
        stated: u64,
    },
    /// Two processes of one boot.
    #[error("two processes had boot {boot} of the data directory of node {node}: it was copied or rolled back")]
    SecondProcess {
        /// The peer.
        node: NodeId,
        /// The boot.
        boot: u64,
    },
    /// A boot that was heard is not in its history.
    #[error(
        "the history of the data directory of node {node} does not have boot {heard}, which was heard: it was copied or \
         rolled back"
    )]
    BootUnknown {
        /// The peer.
        node: NodeId,
        /// The last boot that was heard.
        heard: u64,
    },
    /// Its history does not go back to the boot that was heard.
    #[error(
        "node {node} states its last {PAST_LIVES_MAX} starts, and boot {heard}, which was heard last, is older: whether \
         its disk is still the same can not be told; restart the node that says this, and it asks no more"
    )]
    HistoryTooShort {
        /// The peer.
        node: NodeId,
        /// The last boot that was heard.
        heard: u64,
    },
    /// The journal ended before what an earlier boot has said is durable.
    #[error(
        "the journal of node {node} ended at {stated}, but it was heard to be durable up to {heard}: the data directory \
         was rolled back, or its last group of records has rotted"
    )]
    JournalWentBack {
        /// The peer.
        node: NodeId,
        /// The highest heard.
        heard: JournalPosition,
        /// Where the next boot found its end.
        stated: JournalPosition,
    },
}

/// The highest that was heard of each peer's disk.
#[derive(Clone, Debug, Default)]
pub struct PeerLedger {
    /// One disk for each node id: before birth the latest, afterwards the one that was born.
    heard: BTreeMap<NodeId, Heard>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    incarnation: Incarnation,
    boot: u64,
    nonce: u64,
    /// Over all boots.
    journal_end: JournalPosition,
    is_born: bool,
}

impl PeerLedger {
    /// Judges a handshake, and remembers it when it is believed.
    ///
    /// `members` are the ids of the configuration; `birth` is our birth record, if we have one.
    ///
    /// # Errors
    /// Why the peer is refused.
    pub fn admit(
        &mut self,
        members: &[NodeId],
        birth: Option<&Birth>,
        statement: &Statement,
    ) -> Result<(), PeerRefusal> {
        self.judge(members, birth, statement)?;
        let heard = self.heard.get(&statement.node).filter(|heard| heard.incarnation == statement.incarnation);
        let earlier_end = heard.map_or(JournalPosition::default(), |heard| heard.journal_end);
        let was_born = heard.is_some_and(|heard| heard.is_born);
        let heard = Heard {
            incarnation: statement.incarnation,
            boot: statement.boot,
            nonce: statement.nonce,
            journal_end: statement.recovered_end.max(earlier_end),
            is_born: was_born || statement.cluster.is_some(),
        };
        self.heard.insert(statement.node, heard);
        Ok(())
    }

    /// Judges a handshake: a pure function of what was heard before.
    ///
    /// # Errors
    /// Why the peer is refused.
    pub fn judge(&self, members: &[NodeId], birth: Option<&Birth>, statement: &Statement) -> Result<(), PeerRefusal> {
        let Statement { node, incarnation, boot, nonce, cluster, .. } = *statement;
        if !members.contains(&node) {
            return Err(PeerRefusal::NotMember { node });
        }
        if let Some(birth) = birth {
            judge_birth(birth, statement)?;
        }
        let Some(heard) = self.heard.get(&node).filter(|heard| heard.incarnation == incarnation) else {
            return Ok(());
        };
        if heard.is_born && cluster.is_none() {
            return Err(PeerRefusal::BirthForgotten { node });
        }
        if boot < heard.boot {
            return Err(PeerRefusal::BootWentBack { node, heard: heard.boot, stated: boot });
        }
        if boot == heard.boot {
            // The same process dials again: its recovered end is an old story.
            return if nonce == heard.nonce { Ok(()) } else { Err(PeerRefusal::SecondProcess { node, boot }) };
        }
        judge_history(heard, statement)
    }

    /// A believed peer said, in a heartbeat or envelope, how far its journal is durable. Ignored from
    /// a process that is not the last one believed.
    pub fn hear(&mut self, node: NodeId, nonce: u64, synced_end: JournalPosition) {
        if let Some(heard) = self.heard.get_mut(&node).filter(|heard| heard.nonce == nonce) {
            heard.journal_end = heard.journal_end.max(synced_end);
        }
    }
}

/// Is a later boot one of the same story? It must have lived the boot that was heard, as the process
/// that was heard, and the start after that must have found all that it said is durable. What follows
/// is one story with it (`is_one_story`).
fn judge_history(heard: &Heard, statement: &Statement) -> Result<(), PeerRefusal> {
    let Statement { node, boot, nonce, recovered_end, ref past_lives, .. } = *statement;
    let Some(at) = past_lives.iter().position(|life| life.boot == heard.boot) else {
        let is_cut =
            past_lives.len() == PAST_LIVES_MAX && past_lives.first().is_some_and(|life| heard.boot < life.boot);
        let heard = heard.boot;
        return Err(match is_cut {
            true => PeerRefusal::HistoryTooShort { node, heard },
            false => PeerRefusal::BootUnknown { node, heard },
        });
    };
    if past_lives[at].nonce != heard.nonce {
        return Err(PeerRefusal::SecondProcess { node, boot: heard.boot });
    }
    let this = PastLife { boot, nonce, recovered_end };
    let next = past_lives.get(at + 1).unwrap_or(&this);
    if next.recovered_end < heard.journal_end {
        let (heard, stated) = (heard.journal_end, next.recovered_end);
        return Err(PeerRefusal::JournalWentBack { node, heard, stated });
    }
    Ok(())
}

/// Compares with the disks that were there at birth.
fn judge_birth(birth: &Birth, statement: &Statement) -> Result<(), PeerRefusal> {
    let Statement { node, incarnation: stated, cluster, .. } = *statement;
    let ours = birth.cluster_id();
    if let Some(theirs) = cluster.filter(|theirs| *theirs != ours) {
        return Err(PeerRefusal::WrongCluster { node, ours, theirs });
    }
    match birth.incarnation_of(node) {
        None => Err(PeerRefusal::NotMember { node }),
        // Without a cluster it is still being born: it met us, and has yet to write what we wrote.
        Some(born) if born == stated => Ok(()),
        Some(born) => Err(match cluster {
            None => PeerRefusal::Empty { node, born, stated },
            Some(_) => PeerRefusal::Wiped { node, born, stated },
        }),
    }
}

#[cfg(test)]
mod tests;

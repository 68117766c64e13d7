//! What a node remembers of its peers' disks, and whom it believes.
//!
//! A node id is bound to one disk, and a disk to what it has promised. A wiped disk, a copy, and one
//! that was rolled back to an older state have forgotten promises: their votes would elect two
//! leaders. They are told by incarnation, boot, process nonce, and the end of the journal.
//!
//! Invariant: what was heard of a disk only grows while this process lives. (A rollback while all
//! peers restart, too, is not detected.)

use std::collections::BTreeMap;

use photon_types::{ClusterId, Incarnation, NodeId};

use super::birth::Birth;
use crate::journal::JournalPosition;

/// What a peer states about itself in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    #[error("two processes run boot {boot} of the data directory of node {node}: it was copied or rolled back")]
    SecondProcess {
        /// The peer.
        node: NodeId,
        /// The boot.
        boot: u64,
    },
    /// The journal ends before what an earlier boot has said is durable.
    #[error(
        "the journal of node {node} ends at {stated}, but it was heard to be durable up to {heard}: the data directory \
         was rolled back, or its last group of records has rotted"
    )]
    JournalWentBack {
        /// The peer.
        node: NodeId,
        /// The highest heard.
        heard: JournalPosition,
        /// Where this boot found its end.
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
        let Statement { node, incarnation, boot, nonce, recovered_end, cluster } = *statement;
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
        if recovered_end < heard.journal_end {
            return Err(PeerRefusal::JournalWentBack { node, heard: heard.journal_end, stated: recovered_end });
        }
        Ok(())
    }

    /// A believed peer said, in a heartbeat or envelope, how far its journal is durable. Ignored from
    /// a process that is not the last one believed.
    pub fn hear(&mut self, node: NodeId, nonce: u64, synced_end: JournalPosition) {
        if let Some(heard) = self.heard.get_mut(&node).filter(|heard| heard.nonce == nonce) {
            heard.journal_end = heard.journal_end.max(synced_end);
        }
    }
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
mod tests {
    use super::*;

    const MEMBERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn disk(number: u8) -> Incarnation {
        Incarnation([number; 16])
    }

    fn birth() -> Birth {
        Birth::new([(NodeId(1), disk(1)), (NodeId(2), disk(2)), (NodeId(3), disk(3))]).unwrap()
    }

    fn at(segment: u64, byte: u64) -> JournalPosition {
        JournalPosition { segment, byte }
    }

    /// Node 2 in its fifth boot, as it should be.
    fn good() -> Statement {
        Statement {
            node: NodeId(2),
            incarnation: disk(2),
            boot: 5,
            nonce: 50,
            recovered_end: at(4, 8192),
            cluster: Some(birth().cluster_id()),
        }
    }

    /// A ledger that has heard the good statement, and a heartbeat after it.
    fn ledger() -> PeerLedger {
        let mut ledger = PeerLedger::default();
        ledger.admit(&MEMBERS, Some(&birth()), &good()).unwrap();
        ledger.hear(NodeId(2), 50, at(5, 4096));
        ledger
    }

    #[track_caller]
    fn check(ledger: &PeerLedger, statement: Statement, want: Result<(), PeerRefusal>) {
        assert_eq!(ledger.judge(&MEMBERS, Some(&birth()), &statement), want);
    }

    #[test]
    fn a_process_may_dial_again_and_a_disk_may_be_started_again() {
        let mut ledger = ledger();
        check(&ledger, good(), Ok(()));
        let restarted = Statement { boot: 6, nonce: 60, recovered_end: at(5, 4096), ..good() };
        ledger.admit(&MEMBERS, Some(&birth()), &restarted).unwrap();
        check(&ledger, restarted, Ok(()));
        // Boots that we did not hear of do not matter.
        check(&ledger, Statement { boot: 9, nonce: 90, recovered_end: at(7, 0), ..good() }, Ok(()));
    }

    #[test]
    fn copies_and_rolled_back_disks_are_told() {
        let ledger = ledger();
        let node = NodeId(2);
        let refused = |statement, want| check(&ledger, statement, Err(want));
        refused(Statement { boot: 4, nonce: 40, ..good() }, PeerRefusal::BootWentBack { node, heard: 5, stated: 4 });
        refused(Statement { nonce: 51, ..good() }, PeerRefusal::SecondProcess { node, boot: 5 });
        let (heard, stated) = (at(5, 4096), at(5, 0));
        refused(
            Statement { boot: 6, nonce: 60, recovered_end: stated, ..good() },
            PeerRefusal::JournalWentBack { node, heard, stated },
        );
        refused(Statement { boot: 6, nonce: 60, cluster: None, ..good() }, PeerRefusal::BirthForgotten { node });
    }

    #[test]
    fn the_old_process_of_a_restarted_disk_is_not_heard() {
        let mut ledger = ledger();
        let restarted = Statement { boot: 6, nonce: 60, recovered_end: at(5, 4096), ..good() };
        ledger.admit(&MEMBERS, Some(&birth()), &restarted).unwrap();
        ledger.hear(NodeId(2), 50, at(99, 0));
        ledger.hear(NodeId(3), 50, at(99, 0));
        let again = Statement { boot: 7, nonce: 70, recovered_end: at(6, 0), ..good() };
        check(&ledger, again, Ok(()));
        check(&ledger, good(), Err(PeerRefusal::BootWentBack { node: NodeId(2), heard: 6, stated: 5 }));
    }

    #[test]
    fn what_was_heard_survives_a_refusal() {
        let mut ledger = ledger();
        let back = Statement { boot: 6, nonce: 60, recovered_end: at(1, 0), ..good() };
        assert!(ledger.admit(&MEMBERS, Some(&birth()), &back).is_err());
        assert!(ledger.admit(&MEMBERS, Some(&birth()), &back).is_err());
        check(&ledger, good(), Ok(()));
    }

    #[test]
    fn other_disks_under_a_member_s_id_are_refused() {
        let ledger = PeerLedger::default();
        let (node, born, stated) = (NodeId(2), disk(2), disk(9));
        let other = Statement { incarnation: stated, boot: 1, ..good() };
        check(&ledger, other, Err(PeerRefusal::Wiped { node, born, stated }));
        check(&ledger, Statement { cluster: None, ..other }, Err(PeerRefusal::Empty { node, born, stated }));
        // The right disk, which has met us but not yet written its birth record.
        check(&ledger, Statement { cluster: None, ..good() }, Ok(()));
        let theirs = ClusterId([8; 16]);
        let ours = birth().cluster_id();
        check(
            &ledger,
            Statement { cluster: Some(theirs), ..other },
            Err(PeerRefusal::WrongCluster { node, ours, theirs }),
        );
        let stranger = NodeId(4);
        check(&ledger, Statement { node: stranger, ..good() }, Err(PeerRefusal::NotMember { node: stranger }));
    }

    #[test]
    fn before_birth_a_disk_may_be_replaced() {
        let mut ledger = PeerLedger::default();
        let unborn = Statement { cluster: None, ..good() };
        ledger.admit(&MEMBERS, None, &unborn).unwrap();
        let replaced = Statement { incarnation: disk(9), boot: 1, nonce: 1, recovered_end: at(1, 0), ..unborn };
        ledger.admit(&MEMBERS, None, &replaced).unwrap();
        // But one disk still has one story.
        let back = Statement { boot: 0, ..replaced };
        assert!(ledger.judge(&MEMBERS, None, &back).is_err());
    }
}

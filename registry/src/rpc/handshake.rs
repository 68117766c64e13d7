//! Who may speak: the handshake of peers, and the birth of a cluster.
//!
//! Invariant: a message reaches the core only from a node whose id is bound to the incarnation of
//! the disk it speaks for. A wiped, cloned or rolled-back disk has forgotten promises, and is
//! refused by name.
//!
//! Birth needs no operator: each node makes its incarnation, and when all members have met, they
//! write the same record. Not here: writing it (`server`), the streams (`lanes::peers`, `rpc::peer`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use photon_proto::convert::{self, ConvertError};
use photon_proto::peer as wire;
use photon_types::{ClusterId, Incarnation, NodeId};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::config::{PEER_PROTOCOL, fingerprint_difference};
use crate::datadir::{
    Birth, BirthError, PAST_LIVES_MAX, PastLife, PeerLedger, PeerRefusal, RefusalMark, Statement, is_one_story,
};
use crate::error::RegistryError;
use crate::failure::Failure;
use crate::journal::JournalPosition;

/// What this node says about itself.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub boot: u64,
    /// Random, drawn once by this process.
    pub nonce: u64,
    /// Where the good groups of earlier lives ended in its journal.
    pub recovered_end: JournalPosition,
    /// The starts of its disk before this one.
    pub past_lives: Vec<PastLife>,
    /// For the day when its disk is refused.
    pub mark: RefusalMark,
}

/// One life of a peer, as stated by its hello: what its later messages are held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerLife {
    pub node: NodeId,
    boot: u64,
    nonce: u64,
}

#[derive(Debug)]
pub(crate) struct Handshake {
    me: Identity,
    members: Vec<NodeId>,
    fingerprint: String,
    failure: Failure,
    /// The disk has its mark. Held while that is written, so that nobody ends the node before.
    is_condemned: Mutex<bool>,
    state: Mutex<State>,
    /// The birth record that this node shall write, once it is known.
    agreed: watch::Sender<Option<Birth>>,
}

#[derive(Debug, Default)]
struct State {
    /// Written and synced in this node's journal.
    birth: Option<Birth>,
    /// Peers without a birth record, by their hello.
    met: BTreeMap<NodeId, Incarnation>,
    ledger: PeerLedger,
    lives: BTreeMap<NodeId, PeerLife>,
    /// The reasons that were logged last.
    refused: BTreeMap<NodeId, String>,
    /// Members at whose configured addresses another cluster answered last.
    foreign: BTreeSet<NodeId>,
}

/// Why a hello was not welcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub refusal: wire::Refusal,
    pub reason: String,
}

/// Why there is no conversation with a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("node {peer} can not be reached: {reason}")]
    Unreachable { peer: NodeId, reason: String },
    #[error("node {peer} refuses this node: {reason}")]
    RefusedByPeer { peer: NodeId, reason: String },
    #[error("node {peer} is refused: {reason}")]
    PeerRefused { peer: NodeId, reason: String },
}

impl HandshakeError {
    pub fn unreachable(peer: NodeId, reason: &str) -> HandshakeError {
        HandshakeError::Unreachable { peer, reason: reason.to_owned() }
    }
}

/// A hello whose parts could be read.
struct Heard {
    statement: Statement,
    birth: Option<Birth>,
}

impl Handshake {
    pub fn new(
        me: Identity,
        members: Vec<NodeId>,
        fingerprint: String,
        birth: Option<Birth>,
        failure: Failure,
    ) -> Handshake {
        let state = State { birth: birth.clone(), ..State::default() };
        let handshake = Handshake {
            me,
            members,
            fingerprint,
            failure,
            is_condemned: Mutex::new(false),
            state: Mutex::new(state),
            agreed: watch::Sender::new(birth),
        };
        handshake.agree_when_all_have_met(&handshake.lock());
        handshake
    }

    /// What this node says to a peer.
    pub fn hello(&self, to: NodeId) -> wire::Hello {
        let birth = self.lock().birth.clone();
        wire::Hello {
            protocol: PEER_PROTOCOL,
            node_id: self.me.node.0,
            to_node_id: to.0,
            incarnation: self.me.incarnation.0.to_vec().into(),
            boot: self.me.boot,
            nonce: self.me.nonce,
            recovered_end: Some(position_to_wire(self.me.recovered_end)),
            cluster_id: birth.as_ref().map(|birth| birth.cluster_id().0.to_vec().into()).unwrap_or_default(),
            birth: birth.iter().flat_map(Birth::members).map(birth_member_to_wire).collect(),
            fingerprint: self.fingerprint.clone(),
            past_lives: self.me.past_lives.iter().map(past_life_to_wire).collect(),
        }
    }

    /// A peer says hello. Welcome, or a reason.
    pub fn on_hello(&self, hello: wire::Hello) -> Result<PeerLife, Refused> {
        let node = NodeId(hello.node_id);
        let result = self.judge(hello);
        match &result {
            Ok(_) => {
                self.lock().refused.remove(&node);
            }
            Err(refused) => self.log_refusal(node, refused),
        }
        result
    }

    /// Once for each reason: a refused peer comes back every second. All strangers count as one.
    fn log_refusal(&self, node: NodeId, Refused { refusal, reason }: &Refused) {
        let key = if self.members.contains(&node) { node } else { NodeId(0) };
        let before = self.lock().refused.insert(key, reason.clone());
        if before.as_ref() == Some(reason) {
            return;
        }
        if *refusal == wire::Refusal::NotBorn {
            info!(node = %self.me.node, peer = %node, reason, "peer has to wait");
        } else {
            warn!(node = %self.me.node, peer = %node, reason, "peer refused");
        }
    }

    /// A peer has answered this node's hello.
    pub fn on_reply(&self, peer: NodeId, reply: wire::HelloReply) -> Result<PeerLife, HandshakeError> {
        match reply.reply {
            Some(wire::hello_reply::Reply::Welcome(hello)) => {
                let found = NodeId(hello.node_id);
                if found != peer {
                    let reason = format!("node {found} answers at its address");
                    return Err(HandshakeError::PeerRefused { peer, reason });
                }
                let result = self.judge(hello);
                match &result {
                    Ok(_) => drop(self.lock().foreign.remove(&peer)),
                    Err(Refused { refusal, reason }) => self.on_foreign_answer(peer, *refusal, reason),
                }
                result.map_err(|refused| HandshakeError::PeerRefused { peer, reason: refused.reason })
            }
            Some(wire::hello_reply::Reply::Refused(wire::Refused { refusal, reason })) => {
                let refusal = wire::Refusal::try_from(refusal).unwrap_or(wire::Refusal::Unspecified);
                self.on_refused(peer, refusal, &reason);
                self.on_foreign_answer(peer, refusal, &reason);
                Err(HandshakeError::RefusedByPeer { peer, reason })
            }
            None => Err(HandshakeError::unreachable(peer, "an empty answer to the hello")),
        }
    }

    /// This node's disk can never be a voter again when a peer says that it is not the disk it was.
    fn on_refused(&self, peer: NodeId, refusal: wire::Refusal, reason: &str) {
        match refusal {
            wire::Refusal::Wiped | wire::Refusal::RolledBack => {
                self.condemn_own_disk(format!("node {peer} says: {reason}"));
            }
            wire::Refusal::Unspecified
            | wire::Refusal::Protocol
            | wire::Refusal::NotMember
            | wire::Refusal::WrongCluster
            | wire::Refusal::Config
            | wire::Refusal::NotBorn
            | wire::Refusal::HistoryTooShort => (),
        }
    }

    /// With too few members of its own cluster at the configured addresses a node can never serve:
    /// its data directory or its configuration is the wrong one. Only what answers at *our*
    /// addresses counts: whoever calls here by mistake can not end this node.
    fn on_foreign_answer(&self, peer: NodeId, refusal: wire::Refusal, reason: &str) {
        if refusal != wire::Refusal::WrongCluster {
            return;
        }
        let mut state = self.lock();
        state.foreign.insert(peer);
        let left = self.members.len() - state.foreign.len();
        drop(state);
        if left < self.members.len() / 2 + 1 {
            self.refuse_own_disk(format!(
                "{reason}; only {left} of {} members can belong to this node's cluster: the data directory or the \
                 peers' addresses are another cluster's",
                self.members.len()
            ));
        }
    }

    fn refuse_own_disk(&self, reason: String) {
        let path = self.me.mark.data_dir().to_owned();
        self.failure.report(RegistryError::DataDirRefused { path, reason });
    }

    /// This disk is not what was born under its id. Who knows that now may be gone at the next start:
    /// so the disk keeps it, before the process ends.
    fn condemn_own_disk(&self, reason: String) {
        let mut is_condemned = self.is_condemned.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_condemned {
            if let Err(error) = self.me.mark.write(&reason) {
                error!(node = %self.me.node, %error, reason, "a refused disk could not be marked: never start it again");
            }
            *is_condemned = true;
        }
        drop(is_condemned);
        self.refuse_own_disk(format!(
            "{reason}; this disk can never vote again: keep it for analysis and let the other nodes go on"
        ));
    }

    fn judge(&self, hello: wire::Hello) -> Result<PeerLife, Refused> {
        let Heard { statement, birth } = self.read(hello)?;
        let Statement { node, incarnation, boot, nonce, .. } = statement;
        let life = PeerLife { node, boot, nonce };
        let mut guard = self.lock();
        let state = &mut *guard;
        state.ledger.admit(&self.members, state.birth.as_ref(), &statement).map_err(|refusal| {
            // A hello from before the birth that was overtaken by one from after it.
            let is_late =
                matches!(refusal, PeerRefusal::BirthForgotten { .. }) && state.lives.get(&node) == Some(&life);
            let kind = if is_late { wire::Refusal::NotBorn } else { refusal_to_wire(&refusal) };
            Refused { refusal: kind, reason: refusal.to_string() }
        })?;
        if state.birth.is_none() {
            self.learn_birth(state, &statement, birth)?;
        }
        if state.lives.insert(node, life) != Some(life) {
            info!(node = %self.me.node, peer = %node, %incarnation, boot, "met peer");
        }
        Ok(life)
    }

    /// Checks all that does not depend on what was heard before.
    fn read(&self, hello: wire::Hello) -> Result<Heard, Refused> {
        let refuse = |refusal, reason: String| Err(Refused { refusal, reason });
        if hello.protocol != PEER_PROTOCOL {
            let reason = format!("peer protocol {} is spoken there, {PEER_PROTOCOL} here", hello.protocol);
            return refuse(wire::Refusal::Protocol, reason);
        }
        let (node, me) = (NodeId(hello.node_id), self.me.node);
        if NodeId(hello.to_node_id) != me {
            let reason = format!("node {} was called, but this is node {me}: check the addresses", hello.to_node_id);
            return refuse(wire::Refusal::NotMember, reason);
        }
        if node == me || !self.members.contains(&node) {
            let members = self.members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let reason = format!("node {node} calls node {me}, whose cluster has the members {members}");
            return refuse(wire::Refusal::NotMember, reason);
        }
        if let Some(difference) = fingerprint_difference(&self.fingerprint, &hello.fingerprint) {
            return refuse(
                wire::Refusal::Config,
                format!("the configurations of nodes {me} (here) and {node} (there) differ: {difference}"),
            );
        }
        let unreadable = |error: HelloError| Refused {
            refusal: wire::Refusal::Protocol,
            reason: format!("the hello of node {node} can not be read: {error}"),
        };
        let past_lives = read_past_lives(&hello).map_err(unreadable)?;
        let birth = read_birth(&hello).map_err(unreadable)?;
        let stated = convert::optional_cluster_id(&hello.cluster_id).map_err(|error| unreadable(error.into()))?;
        if stated != birth.as_ref().map(Birth::cluster_id) {
            let reason = format!("node {node} states a cluster id that is not the hash of its birth record");
            return refuse(wire::Refusal::Protocol, reason);
        }
        let statement = Statement {
            node,
            incarnation: convert::incarnation(&hello.incarnation).map_err(|error| unreadable(error.into()))?,
            boot: hello.boot,
            nonce: hello.nonce,
            recovered_end: position_from_wire(hello.recovered_end),
            past_lives,
            cluster: stated,
        };
        Ok(Heard { statement, birth })
    }

    /// This node has no birth record: either all have met now, or the peer has the record.
    fn learn_birth(&self, state: &mut State, statement: &Statement, birth: Option<Birth>) -> Result<(), Refused> {
        let (me, ours) = (self.me.node, self.me.incarnation);
        let Some(birth) = birth else {
            state.met.insert(statement.node, statement.incarnation);
            self.agree_when_all_have_met(state);
            return Ok(());
        };
        if birth.incarnation_of(me) == Some(ours) && birth.incarnation_of(statement.node) == Some(statement.incarnation)
        {
            return self.agree_to_peers_birth(statement.node, birth);
        }
        let bound = birth.incarnation_of(me).map_or("no disk".to_owned(), |bound| format!("disk {bound}"));
        let reason = format!(
            "node {} knows node {me} of cluster {} on {bound}, this is the new disk {ours}: a wiped or exchanged disk \
             has forgotten its promises and can not vote under its old id",
            statement.node,
            birth.cluster_id()
        );
        self.condemn_own_disk(reason.clone());
        // Not "another cluster": a node without a birth record has none, and its peer must not count
        // it as foreign.
        Err(Refused { refusal: wire::Refusal::NotBorn, reason })
    }

    /// A quorum is counted over the members of the birth: they must be those of the configuration.
    fn agree_to_peers_birth(&self, peer: NodeId, birth: Birth) -> Result<(), Refused> {
        match birth.check_members(&self.members) {
            Ok(()) => {
                self.agree(birth);
                Ok(())
            }
            Err(difference) => {
                let message = format!("node {peer} has the birth record of this cluster, and {difference}");
                self.failure.report(RegistryError::Config { message: message.clone() });
                Err(Refused { refusal: wire::Refusal::Config, reason: message })
            }
        }
    }

    fn agree_when_all_have_met(&self, state: &State) {
        let mut incarnations = state.met.clone();
        incarnations.insert(self.me.node, self.me.incarnation);
        if !self.members.iter().all(|member| incarnations.contains_key(member)) {
            return;
        }
        match Birth::new(incarnations) {
            Ok(birth) => self.agree(birth),
            Err(error) => self.refuse_own_disk(error.to_string()),
        }
    }

    /// The first record stands.
    fn agree(&self, birth: Birth) {
        self.agreed.send_if_modified(|agreed| {
            if agreed.is_some() {
                return false;
            }
            *agreed = Some(birth);
            true
        });
    }

    /// Waits until the birth record of the cluster is known.
    pub async fn agreed_birth(&self) -> Birth {
        let mut agreed = self.agreed.subscribe();
        let agreed = agreed.wait_for(Option::is_some).await.expect("the sender is held by self");
        agreed.clone().expect("waited for")
    }

    /// The birth record is synced in this node's journal.
    pub fn on_born(&self, birth: Birth) {
        self.lock().birth = Some(birth);
    }

    /// The cluster, once this node is born.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.lock().birth.as_ref().map(Birth::cluster_id)
    }

    /// Members that this node has not met in this life.
    pub fn unmet(&self) -> Vec<NodeId> {
        let state = self.lock();
        let is_unmet = |member: &NodeId| *member != self.me.node && !state.lives.contains_key(member);
        self.members.iter().copied().filter(is_unmet).collect()
    }

    /// A message from a life of a peer, with the end of its journal: is it still that life?
    pub fn on_envelope(&self, life: &PeerLife, synced_end: JournalPosition) -> bool {
        let mut state = self.lock();
        if state.lives.get(&life.node) != Some(life) {
            return false;
        }
        state.ledger.hear(life.node, life.nonce, synced_end);
        true
    }

    pub fn identity(&self) -> &Identity {
        &self.me
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Sections above leave whole values behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Refused {
    pub fn to_wire(&self) -> wire::HelloReply {
        let refused = wire::Refused { refusal: self.refusal.into(), reason: self.reason.clone() };
        wire::HelloReply { reply: Some(wire::hello_reply::Reply::Refused(refused)) }
    }
}

/// Why a hello can not be read.
#[derive(Debug, thiserror::Error)]
enum HelloError {
    #[error(transparent)]
    Convert(#[from] ConvertError),
    #[error(transparent)]
    Birth(#[from] BirthError),
    #[error("the history of its disk has {0} starts, at most {PAST_LIVES_MAX} are allowed")]
    HistoryTooLong(usize),
    #[error("the history of its disk is not one story")]
    HistoryMixed,
}

fn read_birth(hello: &wire::Hello) -> Result<Option<Birth>, HelloError> {
    if hello.birth.is_empty() {
        return Ok(None);
    }
    let member = |member: &wire::BirthMember| Ok((NodeId(member.node_id), convert::incarnation(&member.incarnation)?));
    let members: Vec<(NodeId, Incarnation)> = hello.birth.iter().map(member).collect::<Result<_, ConvertError>>()?;
    Ok(Some(Birth::new(members)?))
}

/// Together with the life that speaks they must be what one disk can have lived.
fn read_past_lives(hello: &wire::Hello) -> Result<Vec<PastLife>, HelloError> {
    if PAST_LIVES_MAX < hello.past_lives.len() {
        return Err(HelloError::HistoryTooLong(hello.past_lives.len()));
    }
    let past_life = |life: &wire::PastLife| PastLife {
        boot: life.boot,
        nonce: life.nonce,
        recovered_end: position_from_wire(life.recovered_end),
    };
    let past_lives: Vec<PastLife> = hello.past_lives.iter().map(past_life).collect();
    let recovered_end = position_from_wire(hello.recovered_end);
    let this = PastLife { boot: hello.boot, nonce: hello.nonce, recovered_end };
    if is_one_story(past_lives.iter().chain([&this])) { Ok(past_lives) } else { Err(HelloError::HistoryMixed) }
}

fn past_life_to_wire(life: &PastLife) -> wire::PastLife {
    let PastLife { boot, nonce, recovered_end } = *life;
    wire::PastLife { boot, nonce, recovered_end: Some(position_to_wire(recovered_end)) }
}

fn birth_member_to_wire((node, incarnation): (NodeId, Incarnation)) -> wire::BirthMember {
    wire::BirthMember { node_id: node.0, incarnation: incarnation.0.to_vec().into() }
}

fn refusal_to_wire(refusal: &PeerRefusal) -> wire::Refusal {
    match refusal {
        PeerRefusal::NotMember { .. } => wire::Refusal::NotMember,
        PeerRefusal::WrongCluster { .. } => wire::Refusal::WrongCluster,
        PeerRefusal::Empty { .. } | PeerRefusal::Wiped { .. } => wire::Refusal::Wiped,
        PeerRefusal::BirthForgotten { .. }
        | PeerRefusal::BootWentBack { .. }
        | PeerRefusal::SecondProcess { .. }
        | PeerRefusal::BootUnknown { .. }
        | PeerRefusal::JournalWentBack { .. } => wire::Refusal::RolledBack,
        PeerRefusal::HistoryTooShort { .. } => wire::Refusal::HistoryTooShort,
    }
}

pub(crate) fn position_to_wire(position: JournalPosition) -> wire::JournalPosition {
    wire::JournalPosition { segment: position.segment, byte: position.byte }
}

pub(crate) fn position_from_wire(position: Option<wire::JournalPosition>) -> JournalPosition {
    let wire::JournalPosition { segment, byte } = position.unwrap_or_default();
    JournalPosition { segment, byte }
}

#[cfg(test)]
mod tests;

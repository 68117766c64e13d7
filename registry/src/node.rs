//! What the doors of one node share: who it is, whether it serves, what it says about itself.
//!
//! Not here: how it comes to serve (`server`).

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use photon_types::{ClusterId, NodeId};
use tokio::sync::watch;

use crate::config::{MemberConfig, ServerConfig, Timings};
use crate::counters::Counters;
use crate::drive::ReplicaView;
use crate::drive::inbox::Inbox;
use crate::failure::Failure;
use crate::lanes::apply::KeyRules;
use crate::lanes::peers::PeerLane;
use crate::rpc::handshake::{Handshake, Identity};

/// A machine that has had entries to apply for this long and has applied none is stalled.
const APPLY_STALLED_AFTER: Duration = Duration::from_secs(10);

/// One node, as its doors see it.
pub(crate) struct Node {
    pub handshake: Arc<Handshake>,
    pub members: Vec<MemberConfig>,
    pub timings: Timings,
    /// What a client is told to wait when the door's inbox is full.
    pub retry_after: Duration,
    pub failure: Failure,
    pub counters: Arc<Counters>,
    serving: OnceLock<Serving>,
    /// Says when `serving` is set.
    has_begun: watch::Sender<bool>,
}

/// What is there once the node is born and recovered.
pub(crate) struct Serving {
    pub cluster: ClusterId,
    pub inbox: Arc<Inbox>,
    pub replica: watch::Receiver<ReplicaView>,
    pub key_rules: watch::Receiver<Option<Arc<KeyRules>>>,
    pub peers: Arc<PeerLane>,
}

impl Serving {
    pub fn replica_view(&self) -> ReplicaView {
        self.replica.borrow().clone()
    }
}

impl Node {
    pub fn new(config: &ServerConfig, handshake: Arc<Handshake>, failure: Failure, counters: Arc<Counters>) -> Node {
        Node {
            handshake,
            members: config.members.clone(),
            timings: config.timings.clone(),
            retry_after: config.core(config.member_ids()).timings.retry_after,
            failure,
            counters,
            serving: OnceLock::new(),
            has_begun: watch::Sender::new(false),
        }
    }

    /// From now on requests and messages are taken.
    pub fn serve(&self, serving: Serving) {
        assert!(self.serving.set(serving).is_ok(), "a node begins to serve once");
        self.has_begun.send_replace(true);
    }

    pub fn serving(&self) -> Option<&Serving> {
        self.serving.get()
    }

    /// Waits until the node has begun to serve.
    pub async fn begun(&self) -> &Serving {
        let mut has_begun = self.has_begun.subscribe();
        has_begun.wait_for(|begun| *begun).await.expect("the sender is held by self");
        self.serving().expect("set before it was said")
    }

    pub fn identity(&self) -> &Identity {
        self.handshake.identity()
    }

    pub fn member(&self, id: NodeId) -> Option<&MemberConfig> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Why a node that has no fault does not serve yet.
    pub fn waiting_reason(&self) -> String {
        let unmet = self.handshake.unmet();
        let named = |id: &NodeId| {
            let address = self.member(*id).map(|member| member.peer_address.as_str()).unwrap_or_default();
            format!("node {id} at {address}")
        };
        if unmet.is_empty() {
            return "this node is starting".to_owned();
        }
        let waited_for = unmet.iter().map(named).collect::<Vec<_>>().join(", ");
        format!("this node waits for all members to meet for the first time: {waited_for}")
    }

    /// Ok when the node knows a leader and applies what is chosen.
    ///
    /// # Errors
    /// Why not.
    pub fn health(&self) -> Result<(), String> {
        if let Some(error) = self.failure.get() {
            return Err(error.to_string());
        }
        let Some(serving) = self.serving() else { return Err(self.waiting_reason()) };
        if serving.inbox.is_closing() {
            return Err("this node is ending".to_owned());
        }
        let view = serving.replica_view();
        if view.status.leader.is_none() {
            let ballot = view.status.ballot;
            return Err(format!("no leader is known; this node has promised ballot {ballot}"));
        }
        let stalled = Instant::now().saturating_duration_since(view.applying_since);
        if view.status.applied_end < view.status.commit_end && APPLY_STALLED_AFTER < stalled {
            let (applied, commit) = (view.status.applied_end, view.status.commit_end);
            return Err(format!("nothing was applied for {stalled:.0?}: {applied} of {commit} slots are applied"));
        }
        Ok(())
    }
}

//! Where a node stands: asked of any node, answered by each for itself.

use photon_proto::registry::{StatusReply, StatusRequest};
use photon_types::{ClusterId, Incarnation, NodeId, Slot};

use crate::attempt;
use crate::config::Timings;
use crate::error::{ClientError, with_causes};

/// What a node says of itself.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Its cluster; `None` before its peers have met.
    pub cluster_id: Option<ClusterId>,
    /// Its id.
    pub node: NodeId,
    /// The incarnation of its disk.
    pub incarnation: Option<Incarnation>,
    /// How often it has been started on this disk.
    pub boot: u64,
    /// `leader`, `follower`, `candidate` or `waiting`.
    pub role: String,
    /// Who leads, as far as it knows.
    pub leader: Option<NodeId>,
    /// Its ballot: round and node.
    pub ballot: (u64, NodeId),
    /// Slots below are chosen.
    pub commit_end: Slot,
    /// Slots below are applied.
    pub applied_end: Slot,
    /// Slots below are accepted.
    pub accepted_end: Slot,
    /// Slots below are gone from its journal.
    pub trimmed_end: Slot,
    /// Slots below are durable.
    pub durable_end: Slot,
    /// No new ids below this time, in microseconds since the epoch.
    pub boundary: u64,
    /// The key rules it has applied; empty when there are none.
    pub key_rules: String,
    /// Size of its journal.
    pub journal_bytes: u64,
    /// The members it knows.
    pub members: Vec<MemberStatus>,
    /// Its program.
    pub version: String,
    /// Batches, commands and fsyncs of this life.
    pub batches_total: u64,
    /// Commands of this life.
    pub commands_total: u64,
    /// Fsyncs of this life.
    pub fsyncs_total: u64,
}

/// A member, as one node sees it.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Its id.
    pub node: NodeId,
    /// Where its peers reach it.
    pub peer_address: String,
    /// Where clients reach it.
    pub client_address: String,
    /// The node that was asked has a working connection to it.
    pub connected: bool,
}

/// Asks one node where it stands, over a connection of its own.
///
/// # Errors
/// [`ClientError::NoAnswer`] with the reason.
pub async fn status(endpoint: &str, timings: &Timings) -> Result<NodeStatus, ClientError> {
    let no_answer = |cause: String| ClientError::NoAnswer { endpoint: endpoint.into(), cause: cause.into() };
    let mut client = attempt::connect(endpoint, timings).await.map_err(no_answer)?;
    match tokio::time::timeout(timings.probe_timeout, client.status(StatusRequest {})).await {
        Ok(Ok(reply)) => Ok(read(reply.into_inner())),
        Ok(Err(status)) => Err(no_answer(with_causes(&status))),
        Err(_) => Err(no_answer(format!("no answer within {:?}", timings.probe_timeout))),
    }
}

/// Asks many nodes at once; answers in the order of the endpoints.
pub async fn statuses(endpoints: &[String], timings: &Timings) -> Vec<(String, Result<NodeStatus, ClientError>)> {
    let asked = endpoints.iter().map(|endpoint| {
        let (endpoint, timings) = (endpoint.clone(), timings.clone());
        tokio::spawn(async move { status(&endpoint, &timings).await })
    });
    // All are started before the first is awaited.
    let asked: Vec<_> = asked.collect();
    let mut answers = Vec::with_capacity(asked.len());
    for (endpoint, answer) in endpoints.iter().zip(asked) {
        let broken = |error: tokio::task::JoinError| {
            Err(ClientError::NoAnswer {
                endpoint: endpoint.as_str().into(),
                cause: format!("the question broke: {error}").into(),
            })
        };
        answers.push((endpoint.clone(), answer.await.unwrap_or_else(broken)));
    }
    answers
}

fn read(reply: StatusReply) -> NodeStatus {
    let leader = Some(reply.leader_node_id).filter(|id| *id != 0).map(NodeId);
    let members = reply.members.into_iter().map(|member| MemberStatus {
        node: NodeId(member.node_id),
        peer_address: member.peer_address,
        client_address: member.client_address,
        connected: member.connected,
    });
    NodeStatus {
        cluster_id: attempt::cluster_id(&reply.cluster_id),
        node: NodeId(reply.node_id),
        incarnation: reply.incarnation.as_ref().try_into().ok().map(Incarnation),
        boot: reply.boot,
        role: reply.role,
        leader,
        ballot: (reply.ballot_round, NodeId(reply.ballot_node_id)),
        commit_end: Slot(reply.commit_end),
        applied_end: Slot(reply.applied_end),
        accepted_end: Slot(reply.accepted_end),
        trimmed_end: Slot(reply.trimmed_end),
        durable_end: Slot(reply.durable_end),
        boundary: reply.boundary,
        key_rules: reply.key_rules,
        journal_bytes: reply.journal_bytes,
        members: members.collect(),
        version: reply.version,
        batches_total: reply.batches_total,
        commands_total: reply.commands_total,
        fsyncs_total: reply.fsyncs_total,
    }
}

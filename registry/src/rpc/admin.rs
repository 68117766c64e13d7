//! Where a node stands, for people and tools. Never goes through the log.

use photon_proto::registry as wire;

use crate::node::Node;

/// The answer of the `Status` call.
pub(crate) fn status(node: &Node) -> wire::StatusReply {
    let identity = node.identity();
    let totals = node.counters.totals();
    let mut reply = wire::StatusReply {
        cluster_id: node.handshake.cluster_id().map(|cluster| cluster.0.to_vec().into()).unwrap_or_default(),
        node_id: identity.node.0,
        incarnation: identity.incarnation.0.to_vec().into(),
        boot: identity.boot,
        role: "waiting".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        journal_bytes: totals.journal_bytes,
        batches_total: totals.batches,
        commands_total: totals.commands,
        fsyncs_total: totals.fsyncs,
        members: members(node),
        ..wire::StatusReply::default()
    };
    if let Some(serving) = node.serving() {
        let replica = serving.replica_view().status;
        reply.role = replica.role.to_string();
        reply.leader_node_id = replica.leader.map_or(0, |leader| leader.0);
        reply.ballot_round = replica.ballot.round;
        reply.ballot_node_id = replica.ballot.node.0;
        reply.trimmed_end = replica.trimmed_end.0;
        reply.applied_end = replica.applied_end.0;
        reply.commit_end = replica.commit_end.0;
        reply.accepted_end = replica.accepted_end.0;
        reply.durable_end = replica.durable_end.0;
        // No boundary moves yet: retention is `never`.
        reply.boundary = 0;
        reply.key_rules = serving.key_rules.borrow().as_ref().map(|rules| rules.text.clone()).unwrap_or_default();
    }
    reply
}

fn members(node: &Node) -> Vec<wire::Member> {
    let me = node.identity().node;
    let member = |member: &crate::config::MemberConfig| wire::Member {
        node_id: member.id.0,
        peer_address: member.peer_address.clone(),
        client_address: member.client_address.clone(),
        connected: member.id == me || node.serving().is_some_and(|serving| serving.peers.is_connected(member.id)),
    };
    node.members.iter().map(member).collect()
}

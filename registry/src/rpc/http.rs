//! `/healthz` and `/status` for load balancers and people.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};

use crate::node::Node;
use crate::rpc::admin;

/// The routes of one node.
pub(crate) fn router(node: Arc<Node>) -> Router {
    Router::new().route("/healthz", get(healthz)).route("/status", get(status)).with_state(node)
}

/// 200 when the node knows a leader and applies what is chosen, else 503 with the reason.
async fn healthz(State(node): State<Arc<Node>>) -> (StatusCode, String) {
    match node.health() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

async fn status(State(node): State<Arc<Node>>) -> Json<serde_json::Value> {
    let status = admin::status(&node);
    let members: Vec<serde_json::Value> = status
        .members
        .iter()
        .map(|member| {
            serde_json::json!({
                "node_id": member.node_id,
                "peer_address": member.peer_address,
                "client_address": member.client_address,
                "connected": member.connected,
            })
        })
        .collect();
    Json(serde_json::json!({
        "version": status.version,
        "cluster_id": hex(&status.cluster_id),
        "node_id": status.node_id,
        "incarnation": hex(&status.incarnation),
        "boot": status.boot,
        "role": status.role,
        "leader_node_id": status.leader_node_id,
        "ballot": format!("{}.{}", status.ballot_round, status.ballot_node_id),
        "trimmed_end": status.trimmed_end,
        "applied_end": status.applied_end,
        "commit_end": status.commit_end,
        "durable_end": status.durable_end,
        "accepted_end": status.accepted_end,
        "boundary": status.boundary,
        "key_rules": status.key_rules,
        "journal_bytes": status.journal_bytes,
        "batches_total": status.batches_total,
        "commands_total": status.commands_total,
        "fsyncs_total": status.fsyncs_total,
        "health": node.health().err(),
        "members": members,
    }))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

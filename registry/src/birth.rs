//! Meeting the other members, until the birth record of the cluster is known.
//!
//! Not here: who is believed, and when all have met (`rpc::handshake`); writing the record
//! (`server`).

use photon_types::NodeId;
use tokio::task::JoinSet;
use tracing::info;

use crate::datadir::Birth;
use crate::lanes::peers::{Dialing, dial};
use crate::rpc::handshake::HandshakeError;

/// Calls all peers, again and again, until the birth record is known. None when the node is asked
/// to stop first.
pub(crate) async fn meet_all(peers: &[NodeId], dialing: &Dialing) -> Option<Birth> {
    let mut calls = JoinSet::new();
    for peer in peers.iter().copied() {
        calls.spawn(keep_meeting(peer, dialing.clone()));
    }
    let mut stop = dialing.stop.clone();
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => None,
        birth = dialing.handshake.agreed_birth() => Some(birth),
    }
}

async fn keep_meeting(peer: NodeId, dialing: Dialing) {
    let mut pause = dialing.timings.redial_min;
    let mut last_reason = String::new();
    loop {
        let reason = meet(peer, &dialing).await.err().map(|error| error.to_string()).unwrap_or_default();
        if !reason.is_empty() && reason != last_reason {
            info!(node = %dialing.handshake.identity().node, %peer, reason, "waiting for a member before birth");
        }
        last_reason = reason;
        // Also when it went well: until birth, a peer may come back with a new disk.
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(dialing.timings.redial_max);
    }
}

async fn meet(peer: NodeId, dialing: &Dialing) -> Result<(), HandshakeError> {
    let mut client = dial(peer, dialing).await?;
    let hello = dialing.handshake.hello(peer);
    let reply = tokio::time::timeout(dialing.timings.connect_timeout, client.meet(hello)).await;
    let reply = match reply {
        Ok(Ok(reply)) => reply.into_inner(),
        Ok(Err(status)) => return Err(HandshakeError::unreachable(peer, &status.to_string())),
        Err(_) => return Err(HandshakeError::unreachable(peer, "no answer to the hello in time")),
    };
    dialing.handshake.on_reply(peer, reply)?;
    Ok(())
}

//! What peers say: the receiving end of their streams.
//!
//! Invariant: the first frame is a hello, and nothing behind it reaches the core unless the hello
//! was welcome and its life is still the latest one of that node.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use photon_proto::convert::ConvertError;
use photon_proto::peer as wire;
use photon_proto::peer::peer_server::Peer;
use photon_types::GroupId;
use tokio::sync::{mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, warn};

use crate::config::GROUP;
use crate::drive::inbox::{PeerMessage, Refusal};
use crate::node::Node;
use crate::rpc::handshake::{PeerLife, Refused, position_from_wire};
use crate::rpc::messages;

/// A stream whose hello does not come in this time is closed.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

const ENDING: &str = "this node is ending";

#[derive(Clone)]
pub(crate) struct PeerService {
    pub node: Arc<Node>,
    pub stop: watch::Receiver<bool>,
}

type Replies = Pin<Box<dyn Stream<Item = Result<wire::HelloReply, Status>> + Send>>;

#[tonic::async_trait]
impl Peer for PeerService {
    async fn meet(&self, request: Request<wire::Hello>) -> Result<Response<wire::HelloReply>, Status> {
        let reply = match self.node.handshake.on_hello(request.into_inner()) {
            Ok(life) => self.welcome(&life),
            Err(refused) => refused.to_wire(),
        };
        Ok(Response::new(reply))
    }

    type ExchangeStream = Replies;

    async fn exchange(&self, request: Request<Streaming<wire::Frame>>) -> Result<Response<Replies>, Status> {
        let mut frames = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIMEOUT, frames.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no hello came"))??;
        let Some(wire::Frame { frame: Some(wire::frame::Frame::Hello(hello)) }) = first else {
            return Err(Status::invalid_argument("the first frame must be a hello"));
        };
        let (replies, stream) = mpsc::channel(1);
        match self.judge(hello) {
            Ok(life) => {
                let _ = replies.try_send(Ok(self.welcome(&life)));
                tokio::spawn(self.clone().receive(life, frames, replies));
            }
            Err(refused) => {
                let _ = replies.try_send(Ok(refused.to_wire()));
            }
        }
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

impl PeerService {
    fn judge(&self, hello: wire::Hello) -> Result<PeerLife, Refused> {
        let life = self.node.handshake.on_hello(hello)?;
        if self.node.serving().is_none() {
            let node = self.node.identity().node;
            let reason = match self.node.handshake.cluster_id() {
                None => format!("node {node} has no birth record yet"),
                Some(_) => format!("node {node} is starting"),
            };
            return Err(Refused { refusal: wire::Refusal::NotBorn, reason });
        }
        Ok(life)
    }

    fn welcome(&self, life: &PeerLife) -> wire::HelloReply {
        let hello = self.node.handshake.hello(life.node);
        wire::HelloReply { reply: Some(wire::hello_reply::Reply::Welcome(hello)) }
    }

    /// Takes envelopes until the stream, the peer's life or this node ends. Dropping `replies`
    /// ends the stream, and so tells the peer.
    async fn receive(
        mut self,
        life: PeerLife,
        mut frames: Streaming<wire::Frame>,
        replies: mpsc::Sender<Result<wire::HelloReply, Status>>,
    ) {
        loop {
            let frame = tokio::select! {
                _ = self.stop.wait_for(|stop| *stop) => return,
                frame = frames.message() => frame,
            };
            let envelope = match frame {
                Ok(Some(wire::Frame { frame: Some(wire::frame::Frame::Envelope(envelope)) })) => envelope,
                Ok(Some(_)) => return refuse(&replies, life, "a frame that is not an envelope").await,
                Ok(None) => return,
                Err(status) => {
                    debug!(peer = %life.node, %status, "stream of a peer ended");
                    return;
                }
            };
            if let Err(reason) = self.on_envelope(&life, envelope) {
                return refuse(&replies, life, &reason).await;
            }
        }
    }

    fn on_envelope(&self, life: &PeerLife, envelope: wire::Envelope) -> Result<(), String> {
        let wire::Envelope { group, synced_end, messages } = envelope;
        if !self.node.handshake.on_envelope(life, position_from_wire(synced_end)) {
            return Err(format!("another process speaks for node {} now", life.node));
        }
        if messages.is_empty() {
            return Ok(());
        }
        let group = GroupId(group);
        if group != GROUP {
            return Err(format!("replication group {group} is not known here"));
        }
        let messages = messages
            .into_iter()
            .map(|message| Ok(PeerMessage { group, from: life.node, message: messages::from_wire(message)? }))
            .collect::<Result<Vec<_>, ConvertError>>()
            .map_err(|error| format!("a message can not be read: {error}"))?;
        let Some(serving) = self.node.serving() else { return Err(ENDING.to_owned()) };
        match serving.inbox.offer_messages(messages) {
            Ok(()) => Ok(()),
            Err(Refusal::Full) => {
                debug!(peer = %life.node, "messages dropped: the inbox is full");
                Ok(())
            }
            Err(Refusal::Closed) => Err(ENDING.to_owned()),
        }
    }
}

async fn refuse(replies: &mpsc::Sender<Result<wire::HelloReply, Status>>, life: PeerLife, reason: &str) {
    if reason == ENDING {
        debug!(peer = %life.node, reason, "stream of a peer closed");
    } else {
        warn!(peer = %life.node, reason, "stream of a peer closed");
    }
    // The peer reads the end of the stream in any case.
    let _ = replies.send(Err(Status::failed_precondition(reason))).await;
}

//! What clients ask.
//!
//! Invariant: nothing enters the log that the door has not checked: cluster, key rules, count,
//! lengths and format of the commands. A deadline stands round the whole call; what has not been
//! answered by then may or may not happen, and is answered `Unknown`.
//!
//! Not here: what commands mean. The bytes go on as they came.

use std::sync::Arc;

use bytes::Bytes;
use photon_core::Reply;
use photon_proto::convert::{ConvertError, KeyRulesHash, KeyRulesStatement, Submit};
use photon_proto::registry as wire;
use photon_proto::registry::registry_server::Registry;
use photon_proto::registry::submit_reply::Reply as WireReply;
use photon_types::{Chunk, ClusterId, Command, NodeId, encode_outcomes};
use tonic::{Request, Response, Status};

use crate::chaos::Delays;
use crate::config::GROUP;
use crate::drive::inbox::{ClientRequest, Refusal};
use crate::drive::reply::ReplyTo;
use crate::node::{Node, Serving};
use crate::rpc::admin;

/// What a client decodes at most; outcomes are shorter than commands, except refused key rules.
pub(crate) const DECODE_BYTES_MAX: usize = 2 * photon_types::CHUNK_BYTES_MAX;

#[derive(Clone)]
pub(crate) struct RegistryService {
    pub node: Arc<Node>,
    pub delays: Delays,
}

#[tonic::async_trait]
impl Registry for RegistryService {
    async fn submit(&self, request: Request<wire::SubmitRequest>) -> Result<Response<wire::SubmitReply>, Status> {
        let submit = Submit::try_from(request.into_inner()).map_err(invalid)?;
        let rules = RulesCheck::Hash(submit.key_rules_hash);
        self.answer(submit.cluster, rules, submit.commands).await
    }

    async fn state_key_rules(
        &self,
        request: Request<wire::StateKeyRulesRequest>,
    ) -> Result<Response<wire::SubmitReply>, Status> {
        let KeyRulesStatement { cluster, text } = KeyRulesStatement::try_from(request.into_inner()).map_err(invalid)?;
        let statement = Command::StateKeyRules { text: text.clone() };
        let Chunk { count, bytes } = Chunk::of(&[statement]);
        let commands = Chunk { count, bytes: Bytes::from(bytes) };
        self.answer(cluster, RulesCheck::Stated(text), commands).await
    }

    async fn status(&self, _: Request<wire::StatusRequest>) -> Result<Response<wire::StatusReply>, Status> {
        Ok(Response::new(admin::status(&self.node)))
    }
}

/// How a request stands to the cluster's key rules.
enum RulesCheck {
    /// It was made by rules of this hash.
    Hash(KeyRulesHash),
    /// It is the statement itself.
    Stated(String),
}

impl RegistryService {
    async fn answer(
        &self,
        cluster: Option<ClusterId>,
        rules: RulesCheck,
        commands: Chunk<Bytes>,
    ) -> Result<Response<wire::SubmitReply>, Status> {
        let reply = match self.admit(cluster, &rules) {
            Ok(serving) => self.submit_to_driver(serving, commands).await,
            Err(reply) => reply,
        };
        self.delays.wait().await;
        let cluster_id = self.node.handshake.cluster_id().map(|cluster| cluster.0.to_vec().into()).unwrap_or_default();
        Ok(Response::new(wire::SubmitReply { reply: Some(reply), cluster_id }))
    }

    /// All that can be said without the log. Nothing has happened yet.
    fn admit(&self, cluster: Option<ClusterId>, rules: &RulesCheck) -> Result<&Serving, WireReply> {
        if let Some(error) = self.node.failure.get() {
            return Err(unhealthy(error.to_string()));
        }
        let Some(serving) = self.node.serving() else { return Err(unhealthy(self.node.waiting_reason())) };
        if cluster.is_some_and(|meant| meant != serving.cluster) {
            return Err(WireReply::WrongCluster(wire::WrongCluster {}));
        }
        // Before the rules: a follower may not have applied them yet.
        let replica = serving.replica_view();
        if !replica.is_leader() {
            return Err(self.not_leader(replica.status.leader));
        }
        match rules {
            // Rules never change once they are applied: others need no slot to be refused, nor as
            // many bytes of outcomes on every replica.
            RulesCheck::Stated(text) => match serving.key_rules.borrow().as_deref() {
                Some(kept) if kept.text != *text => {
                    Err(WireReply::KeyRulesDiffer(wire::KeyRulesDiffer { kept: kept.text.clone() }))
                }
                Some(_) | None => Ok(serving),
            },
            RulesCheck::Hash(hash) => match serving.key_rules.borrow().as_deref() {
                None => Err(WireReply::KeyRulesMissing(wire::KeyRulesMissing {})),
                Some(kept) if kept.hash == *hash => Ok(serving),
                Some(kept) => Err(WireReply::KeyRulesDiffer(wire::KeyRulesDiffer { kept: kept.text.clone() })),
            },
        }
    }

    async fn submit_to_driver(&self, serving: &Serving, commands: Chunk<Bytes>) -> WireReply {
        let (reply, from) = ReplyTo::channel();
        match serving.inbox.offer_request(ClientRequest { group: GROUP, commands, reply }) {
            Ok(()) => (),
            Err(Refusal::Full) => return overloaded(self.node.retry_after),
            Err(Refusal::Closed) => return unhealthy("this node is ending".to_owned()),
        }
        let reply = tokio::time::timeout(self.node.timings.request_timeout, from.wait()).await;
        match reply.unwrap_or(Reply::Unknown) {
            Reply::Outcomes { slot, outcomes } => WireReply::Done(wire::Done {
                slot: slot.0,
                outcomes: encode_outcomes(&outcomes).into(),
                group: GROUP.0,
            }),
            Reply::NotLeader { hint } => self.not_leader(hint),
            Reply::Overloaded { retry_after } => overloaded(retry_after),
            Reply::Unknown => WireReply::Unknown(wire::Unknown {}),
        }
    }

    fn not_leader(&self, hint: Option<NodeId>) -> WireReply {
        let member = hint.filter(|hint| *hint != self.node.identity().node).and_then(|hint| self.node.member(hint));
        let hint = member.map(|member| member.client_address.clone()).unwrap_or_default();
        WireReply::NotLeader(wire::NotLeader { hint })
    }
}

fn invalid(error: ConvertError) -> Status {
    Status::invalid_argument(error.to_string())
}

fn overloaded(retry_after: std::time::Duration) -> WireReply {
    let retry_after_ms = u32::try_from(retry_after.as_millis()).unwrap_or(u32::MAX);
    WireReply::Overloaded(wire::Overloaded { retry_after_ms })
}

fn unhealthy(reason: String) -> WireReply {
    WireReply::Unhealthy(wire::Unhealthy { reason })
}

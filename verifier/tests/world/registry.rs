//! A registry of one node over a map: the machine's rules, without a log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use photon_proto::registry::registry_server::{Registry, RegistryServer};
use photon_proto::registry::submit_reply::Reply;
use photon_proto::registry::{
    Done, KeyRulesMissing, StateKeyRulesRequest, StatusReply, StatusRequest, SubmitReply, SubmitRequest, Unknown,
};
use photon_types::{Command, Commands, EventKey, Holder, Outcome, Token, encode_outcomes};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

pub const CLUSTER: [u8; 16] = [0xc1; 16];
pub const GROUP: u32 = 1;

/// What happens to the next message that holds a delete.
pub enum OnDelete {
    /// Its deletes are applied, and the answer is lost.
    AppliedAndUnclear,
    /// Before it is applied, the key is another's.
    TakenOverBy(Token),
    /// Something is looked at before it is applied.
    Look(Box<dyn Fn() + Send>),
}

/// The table, shared with the test.
#[derive(Default)]
pub struct Table {
    pub rows: BTreeMap<EventKey, Holder>,
    pub key_rules: Option<String>,
    pub on_delete: VecDeque<OnDelete>,
    /// Slot of the last delete that took a row away.
    pub deleted_at: Option<u64>,
    slot: u64,
}

impl Table {
    fn apply(&mut self, command: Command) -> Outcome {
        match command {
            Command::Insert { key, token } => match self.rows.get(&key) {
                None => {
                    self.rows.insert(key, Holder::Token(token));
                    Outcome::Inserted
                }
                Some(winner) if *winner == Holder::Token(token) => Outcome::Inserted,
                Some(winner) => Outcome::Duplicate { winner: *winner },
            },
            Command::Lookup { key } => match self.rows.get(&key) {
                None => Outcome::Absent,
                Some(winner) => Outcome::Present { winner: *winner },
            },
            Command::Delete { key, token, reason: _ } => match self.rows.get(&key) {
                None => Outcome::Absent,
                Some(winner) if *winner == Holder::Token(token) => {
                    self.rows.remove(&key);
                    self.deleted_at = Some(self.slot);
                    Outcome::Deleted
                }
                Some(winner) => Outcome::Mismatch { winner: *winner },
            },
            Command::ForgetToken { key, token } => match self.rows.get(&key) {
                None => Outcome::Absent,
                Some(winner) if *winner == Holder::Token(token) => {
                    self.rows.insert(key, Holder::Forgotten);
                    Outcome::Forgotten
                }
                Some(winner) => Outcome::Mismatch { winner: *winner },
            },
            Command::StateKeyRules { text: _ } => Outcome::Invalid,
        }
    }

    fn submit(&mut self, commands: Vec<Command>) -> Reply {
        self.slot += 1;
        let deletes = commands.iter().filter_map(|command| match command {
            Command::Delete { key, .. } => Some(key.clone()),
            Command::Insert { .. }
            | Command::Lookup { .. }
            | Command::ForgetToken { .. }
            | Command::StateKeyRules { .. } => None,
        });
        let deletes: Vec<EventKey> = deletes.collect();
        let fault = if deletes.is_empty() { None } else { self.on_delete.pop_front() };
        let mut is_unclear = false;
        match fault {
            None => (),
            Some(OnDelete::AppliedAndUnclear) => is_unclear = true,
            Some(OnDelete::TakenOverBy(token)) => {
                self.rows.extend(deletes.into_iter().map(|key| (key, Holder::Token(token))));
            }
            Some(OnDelete::Look(look)) => look(),
        }
        let outcomes: Vec<Outcome> = commands.into_iter().map(|command| self.apply(command)).collect();
        if is_unclear { Reply::Unknown(Unknown {}) } else { self.done(&outcomes) }
    }

    fn done(&self, outcomes: &[Outcome]) -> Reply {
        Reply::Done(Done { slot: self.slot, outcomes: encode_outcomes(outcomes).into(), group: GROUP })
    }
}

struct Service(Arc<Mutex<Table>>);

fn reply(reply: Reply) -> Result<Response<SubmitReply>, Status> {
    Ok(Response::new(SubmitReply { cluster_id: CLUSTER.to_vec().into(), reply: Some(reply) }))
}

#[tonic::async_trait]
impl Registry for Service {
    async fn submit(&self, request: Request<SubmitRequest>) -> Result<Response<SubmitReply>, Status> {
        let request = request.into_inner();
        let mut table = self.0.lock().unwrap();
        let kept = table.key_rules.as_deref().map(photon_client::key_rules_hash);
        if kept != Some(request.key_rules_hash) {
            return reply(Reply::KeyRulesMissing(KeyRulesMissing {}));
        }
        let commands =
            Commands::new(&request.commands).map(|command| command.expect("the client encodes it")).collect();
        reply(table.submit(commands))
    }

    async fn state_key_rules(&self, request: Request<StateKeyRulesRequest>) -> Result<Response<SubmitReply>, Status> {
        let text = request.into_inner().text;
        let mut table = self.0.lock().unwrap();
        let kept = table.key_rules.get_or_insert_with(|| text.clone()).clone();
        let outcome = if kept == text { Outcome::KeyRulesKept } else { Outcome::KeyRulesDiffer { kept } };
        reply(table.done(&[outcome]))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        Err(Status::unimplemented("nobody asks"))
    }
}

/// Serves a table; the address.
pub async fn serve(table: Arc<Mutex<Table>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = Server::builder().add_service(RegistryServer::new(Service(table)));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

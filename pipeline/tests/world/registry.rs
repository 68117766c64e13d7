//! A registry of one node over a map: the network peer of the pipeline, for tests.
//!
//! Invariant: commands are applied in the order of their arrival, with the outcomes of the state
//! machine. Faults happen around them: a call may be refused, or applied and not answered.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use photon_proto::registry as wire;
use photon_proto::registry::registry_server::{Registry, RegistryServer};
use photon_types::{Command, Commands, EventKey, Holder, Outcome, Timestamp, Token, encode_outcomes};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

const CLUSTER: [u8; 16] = [0xc1; 16];

/// What the map says, and what was asked.
#[derive(Default)]
pub struct State {
    pub rows: Mutex<BTreeMap<EventKey, Token>>,
    /// Tokens that were inserted or tried, each with its key.
    pub tokens: Mutex<BTreeMap<Token, EventKey>>,
    pub lookups: AtomicUsize,
    pub inserts: AtomicUsize,
    /// Below it no new id is taken.
    pub boundary: AtomicU64,
    /// One call in so many is applied, and its answer is lost; zero is none.
    pub lose_every: AtomicUsize,
    /// One call in so many is refused; zero is none.
    pub refuse_every: AtomicUsize,
    /// Calls with inserts have no answer as long as this is true.
    pub is_mute: AtomicBool,
    calls: AtomicUsize,
}

/// A registry that serves until it is dropped.
pub struct FakeRegistry {
    pub address: SocketAddr,
    pub state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for FakeRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeRegistry {
    pub async fn start() -> FakeRegistry {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let service = RegistryServer::new(Service { state: state.clone() });
        let serving = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener));
        let task = tokio::spawn(async move { serving.await.unwrap() });
        FakeRegistry { address, state, task }
    }

    pub fn holders(&self) -> BTreeMap<EventKey, Token> {
        self.state.rows.lock().unwrap().clone()
    }
}

struct Service {
    state: Arc<State>,
}

impl State {
    fn apply(&self, command: Command) -> Outcome {
        let mut rows = self.rows.lock().unwrap();
        let boundary = Timestamp::from_micros(self.boundary.load(Ordering::SeqCst)).unwrap();
        match command {
            Command::Insert { key, token } => {
                self.inserts.fetch_add(1, Ordering::SeqCst);
                let first = self.tokens.lock().unwrap().insert(token, key.clone());
                assert!(first.is_none_or(|first| first == key), "{token} was used for two clicks");
                match rows.get(&key) {
                    Some(winner) if *winner == token => Outcome::Inserted,
                    Some(winner) => Outcome::Duplicate { winner: Holder::Token(*winner) },
                    None if key.timestamp < boundary => Outcome::Expired { boundary },
                    None => {
                        rows.insert(key, token);
                        Outcome::Inserted
                    }
                }
            }
            Command::Lookup { key } => {
                self.lookups.fetch_add(1, Ordering::SeqCst);
                match rows.get(&key) {
                    Some(winner) => Outcome::Present { winner: Holder::Token(*winner) },
                    None if key.timestamp < boundary => Outcome::Expired { boundary },
                    None => Outcome::Absent,
                }
            }
            Command::Delete { .. } | Command::ForgetToken { .. } | Command::StateKeyRules { .. } => Outcome::Invalid,
        }
    }

    fn is_due(&self, every: &AtomicUsize, call: usize) -> bool {
        let every = every.load(Ordering::SeqCst);
        every != 0 && call.is_multiple_of(every)
    }
}

#[tonic::async_trait]
impl Registry for Service {
    async fn submit(&self, request: Request<wire::SubmitRequest>) -> Result<Response<wire::SubmitReply>, Status> {
        let request = request.into_inner();
        let call = self.state.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if self.state.is_due(&self.state.refuse_every, call) {
            return Ok(reply(wire::submit_reply::Reply::Overloaded(wire::Overloaded { retry_after_ms: 5 })));
        }
        let has_insert =
            || Commands::new(&request.commands).any(|command| matches!(command, Ok(Command::Insert { .. })));
        if self.state.is_mute.load(Ordering::SeqCst) && has_insert() {
            return std::future::pending().await;
        }
        let outcomes: Vec<_> =
            Commands::new(&request.commands).map(|command| self.state.apply(command.unwrap())).collect();
        assert_eq!(outcomes.len(), request.count as usize);
        if self.state.is_due(&self.state.lose_every, call) {
            return Ok(reply(wire::submit_reply::Reply::Unknown(wire::Unknown {})));
        }
        let outcomes = Bytes::from(encode_outcomes(&outcomes));
        Ok(reply(wire::submit_reply::Reply::Done(wire::Done { slot: call as u64, outcomes, group: 1 })))
    }

    async fn state_key_rules(
        &self,
        _request: Request<wire::StateKeyRulesRequest>,
    ) -> Result<Response<wire::SubmitReply>, Status> {
        let outcomes = Bytes::from(encode_outcomes(&[Outcome::KeyRulesKept]));
        Ok(reply(wire::submit_reply::Reply::Done(wire::Done { slot: 0, outcomes, group: 1 })))
    }

    async fn status(&self, _request: Request<wire::StatusRequest>) -> Result<Response<wire::StatusReply>, Status> {
        Ok(Response::new(wire::StatusReply {
            cluster_id: Bytes::copy_from_slice(&CLUSTER),
            node_id: 1,
            leader_node_id: 1,
            role: "leader".into(),
            ..wire::StatusReply::default()
        }))
    }
}

fn reply(reply: wire::submit_reply::Reply) -> Response<wire::SubmitReply> {
    Response::new(wire::SubmitReply { reply: Some(reply), cluster_id: Bytes::copy_from_slice(&CLUSTER) })
}

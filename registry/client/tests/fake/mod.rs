//! A scripted peer: nodes that share one tiny registry in memory and answer as they are told.
//!
//! Not here: consensus. The real server is tested with this client in `cli/tests`.
#![allow(dead_code, reason = "each test program uses its part")]

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use photon_client::{ClientConfig, Timings, key_rules_hash};
use photon_proto::registry::registry_server::{Registry, RegistryServer};
use photon_proto::registry::submit_reply::Reply;
use photon_proto::registry::{
    Done, KeyRulesDiffer, KeyRulesMissing, NotLeader, Overloaded, StateKeyRulesRequest, StatusReply, StatusRequest,
    SubmitReply, SubmitRequest, Unhealthy, Unknown, WrongCluster,
};
use photon_types::{Chunk, Command, Commands, EventKey, Holder, Incarnation, Outcome, Token, encode_outcomes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status};

pub const RULES: &str = "clicks.id = action_id\nclicks.time = timestamp\n";
pub const CLUSTER: [u8; 16] = [7; 16];

/// What a node does with its next chunk, instead of answering it.
#[derive(Clone, Debug)]
pub enum Step {
    NotLeader {
        hint: String,
    },
    Unknown {
        applied: bool,
    },
    /// Cuts the connection without an answer.
    Drop {
        applied: bool,
    },
    Overloaded,
    Unhealthy,
    KeyRulesMissing,
    KeyRulesDiffer,
    WrongCluster,
    InvalidArgument,
    /// Applies, says so, and answers once it may.
    Hold(Hold),
}

/// Two events between a test and a node.
#[derive(Clone, Debug)]
pub struct Hold {
    reached: Arc<Semaphore>,
    release: Arc<Semaphore>,
}

impl Hold {
    pub fn new() -> Hold {
        Hold { reached: Arc::new(Semaphore::new(0)), release: Arc::new(Semaphore::new(0)) }
    }

    pub async fn reached(&self) {
        self.reached.acquire().await.unwrap().forget();
    }

    pub fn release(&self) {
        self.release.add_permits(1);
    }
}

/// What all nodes of a cluster agree on.
#[derive(Default)]
pub struct Table {
    pub rows: HashMap<EventKey, Holder>,
    pub slot: u64,
    pub key_rules: Option<String>,
}

/// One node.
#[derive(Clone)]
pub struct Node {
    pub address: String,
    pub table: Arc<Mutex<Table>>,
    pub script: Arc<Mutex<VecDeque<Step>>>,
    /// Every chunk that arrived, decoded.
    pub chunks: Arc<Mutex<Vec<Vec<Command>>>>,
    pub statements: Arc<Mutex<usize>>,
    /// `Some(hint)`: does not lead.
    pub follows: Arc<Mutex<Option<String>>>,
    pub cluster_id: [u8; 16],
}

impl Node {
    pub async fn start() -> Node {
        Node::start_with(Arc::default(), CLUSTER).await
    }

    pub async fn start_with(table: Arc<Mutex<Table>>, cluster_id: [u8; 16]) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node = Node {
            address: listener.local_addr().unwrap().to_string(),
            table,
            script: Arc::default(),
            chunks: Arc::default(),
            statements: Arc::default(),
            follows: Arc::default(),
            cluster_id,
        };
        let connections = TcpListenerStream::new(listener)
            .map(|stream| stream.map(|stream| Cuttable { stream, cut: Arc::default() }));
        let server = tonic::transport::Server::builder().add_service(RegistryServer::new(node.clone()));
        tokio::spawn(server.serve_with_incoming(connections));
        node
    }

    pub fn follow(&self, hint: &str) {
        *self.follows.lock().unwrap() = Some(hint.to_owned());
    }

    pub fn lead(&self) {
        *self.follows.lock().unwrap() = None;
    }

    pub fn script(&self, steps: impl IntoIterator<Item = Step>) {
        self.script.lock().unwrap().extend(steps);
    }

    pub fn chunks(&self) -> Vec<Vec<Command>> {
        self.chunks.lock().unwrap().clone()
    }

    fn reply(&self, reply: Reply) -> Result<Response<SubmitReply>, Status> {
        Ok(Response::new(SubmitReply { reply: Some(reply), cluster_id: self.cluster_id.to_vec().into() }))
    }

    fn apply(&self, commands: &[Command]) -> Reply {
        let mut table = self.table.lock().unwrap();
        let outcomes: Vec<_> = commands.iter().map(|command| table.apply(command)).collect();
        table.slot += 1;
        Reply::Done(Done { slot: table.slot, outcomes: encode_outcomes(&outcomes).into(), group: 1 })
    }

    /// What stands before every request.
    fn door(&self, cluster_id: &[u8]) -> Option<Reply> {
        if !cluster_id.is_empty() && cluster_id != self.cluster_id {
            return Some(Reply::WrongCluster(WrongCluster {}));
        }
        let follows = self.follows.lock().unwrap().clone();
        follows.map(|hint| Reply::NotLeader(NotLeader { hint }))
    }
}

impl Table {
    fn apply(&mut self, command: &Command) -> Outcome {
        match command {
            Command::Insert { key, token } => match self.rows.get(key) {
                None => {
                    self.rows.insert(key.clone(), Holder::Token(*token));
                    Outcome::Inserted
                }
                Some(Holder::Token(winner)) if winner == token => Outcome::Inserted,
                Some(winner) => Outcome::Duplicate { winner: *winner },
            },
            Command::Lookup { key } => match self.rows.get(key) {
                Some(winner) => Outcome::Present { winner: *winner },
                None => Outcome::Absent,
            },
            Command::Delete { key, token, reason: _ } => match self.rows.get(key) {
                Some(Holder::Token(winner)) if winner == token => {
                    self.rows.remove(key);
                    Outcome::Deleted
                }
                Some(winner) => Outcome::Mismatch { winner: *winner },
                None => Outcome::Absent,
            },
            Command::ForgetToken { key, token } => match self.rows.get(key) {
                Some(Holder::Token(winner)) if winner == token => {
                    self.rows.insert(key.clone(), Holder::Forgotten);
                    Outcome::Forgotten
                }
                Some(winner) => Outcome::Mismatch { winner: *winner },
                None => Outcome::Absent,
            },
            Command::StateKeyRules { text } => {
                let kept = self.key_rules.get_or_insert_with(|| text.clone());
                if kept == text { Outcome::KeyRulesKept } else { Outcome::KeyRulesDiffer { kept: kept.clone() } }
            }
        }
    }
}

#[tonic::async_trait]
impl Registry for Node {
    async fn submit(&self, request: Request<SubmitRequest>) -> Result<Response<SubmitReply>, Status> {
        let cut = request.extensions().get::<Arc<AtomicBool>>().unwrap().clone();
        let request = request.into_inner();
        let chunk = Chunk { count: request.count as usize, bytes: request.commands };
        chunk.check().map_err(|error| Status::invalid_argument(error.to_string()))?;
        let commands: Vec<_> = Commands::new(&chunk.bytes).map(|command| command.unwrap()).collect();
        self.chunks.lock().unwrap().push(commands.clone());
        if let Some(reply) = self.door(&request.cluster_id) {
            return self.reply(reply);
        }
        let kept = self.table.lock().unwrap().key_rules.clone();
        match kept {
            None => return self.reply(Reply::KeyRulesMissing(KeyRulesMissing {})),
            Some(kept) if key_rules_hash(&kept) != request.key_rules_hash => {
                return self.reply(Reply::KeyRulesDiffer(KeyRulesDiffer { kept }));
            }
            Some(_) => (),
        }
        let step = self.script.lock().unwrap().pop_front();
        match step {
            None => self.reply(self.apply(&commands)),
            Some(Step::NotLeader { hint }) => self.reply(Reply::NotLeader(NotLeader { hint })),
            Some(Step::Unknown { applied }) => {
                applied.then(|| self.apply(&commands));
                self.reply(Reply::Unknown(Unknown {}))
            }
            Some(Step::Drop { applied }) => {
                applied.then(|| self.apply(&commands));
                // The answer meets a cut connection.
                cut.store(true, Ordering::SeqCst);
                self.reply(Reply::Unknown(Unknown {}))
            }
            Some(Step::Overloaded) => self.reply(Reply::Overloaded(Overloaded { retry_after_ms: 1 })),
            Some(Step::Unhealthy) => self.reply(Reply::Unhealthy(Unhealthy { reason: "disk full".into() })),
            Some(Step::KeyRulesMissing) => self.reply(Reply::KeyRulesMissing(KeyRulesMissing {})),
            Some(Step::KeyRulesDiffer) => {
                self.reply(Reply::KeyRulesDiffer(KeyRulesDiffer { kept: "clicks.id = other\n".into() }))
            }
            Some(Step::WrongCluster) => self.reply(Reply::WrongCluster(WrongCluster {})),
            Some(Step::InvalidArgument) => Err(Status::invalid_argument("no such format")),
            Some(Step::Hold(hold)) => {
                let reply = self.apply(&commands);
                hold.reached.add_permits(1);
                hold.release.acquire().await.unwrap().forget();
                self.reply(reply)
            }
        }
    }

    async fn state_key_rules(&self, request: Request<StateKeyRulesRequest>) -> Result<Response<SubmitReply>, Status> {
        let StateKeyRulesRequest { text, cluster_id } = request.into_inner();
        *self.statements.lock().unwrap() += 1;
        match self.door(&cluster_id) {
            Some(reply) => self.reply(reply),
            None => self.reply(self.apply(&[Command::StateKeyRules { text }])),
        }
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        let role = if self.follows.lock().unwrap().is_some() { "follower" } else { "leader" };
        Ok(Response::new(StatusReply {
            cluster_id: self.cluster_id.to_vec().into(),
            node_id: 1,
            role: role.into(),
            commit_end: self.table.lock().unwrap().slot,
            ..StatusReply::default()
        }))
    }
}

/// A connection that a node can cut in the middle of an answer.
struct Cuttable {
    stream: TcpStream,
    cut: Arc<AtomicBool>,
}

impl Cuttable {
    fn check(&self) -> std::io::Result<()> {
        if self.cut.load(Ordering::SeqCst) { Err(std::io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl Connected for Cuttable {
    type ConnectInfo = Arc<AtomicBool>;

    fn connect_info(&self) -> Arc<AtomicBool> {
        self.cut.clone()
    }
}

impl AsyncRead for Cuttable {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Cuttable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A client's configuration for these nodes. Nothing here waits longer than it must; the long
/// limits are guards against a test that hangs.
pub fn config(nodes: &[&Node]) -> ClientConfig {
    let mut config = ClientConfig::new(nodes.iter().map(|node| node.address.clone()).collect(), RULES.into());
    config.timings = Timings {
        connect_within: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(10),
        probe_timeout: Duration::from_secs(10),
        attempt_timeout: Duration::from_secs(20),
        keepalive_timeout: Duration::from_secs(20),
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(20),
        ..Timings::default()
    };
    config
}

/// A deadline that only a test that hangs will meet.
pub fn far() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(30)
}

/// A deadline that is met.
pub fn near() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(2)
}

pub fn key(number: u64) -> EventKey {
    EventKey::new(1_700_000_000_000_000 + number, format!("click-{number}").as_bytes()).unwrap()
}

pub fn token(sequence: u64) -> Token {
    Token { incarnation: Incarnation([9; 16]), sequence }
}

/// An address at which nobody listens.
pub async fn nowhere() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

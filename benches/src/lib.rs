//! What the benchmarks share: a cluster within one process, with real journals and sockets, and
//! callers that insert new ids.
//!
//! Invariant: every id is inserted once and must be new: a benchmark that measures refusals or
//! repetitions stops with the answer it got.
//!
//! Not here: clusters of processes (`photon bench registry`).

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use photon_proto::registry as wire;
use photon_proto::registry::registry_client::RegistryClient;
use photon_proto::registry::submit_reply::Reply;
use photon_registry::{Listen, MemberConfig, RunningServer, Server, ServerConfig};
use photon_types::{Chunk, Command, EventKey, Incarnation, NodeId, Outcome, Token, decode_outcomes};
use tempfile::TempDir;
use tonic::transport::Channel;

/// Connections of all callers together: many callers share one, as in a real pipeline.
const CONNECTIONS: usize = 4;

/// Before a caller that was told to wait asks again.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

const KEY_RULES: &str = "bench.id = counter";

/// The first id's time: the ids follow, one each millisecond.
const FIRST_MICROS: u64 = 1_700_000_000_000_000;

/// A cluster within this process.
pub struct BenchCluster {
    nodes: Vec<RunningServer>,
    clients: Vec<RegistryClient<Channel>>,
    next_id: Arc<AtomicU64>,
    _dir: TempDir,
}

impl BenchCluster {
    /// Three nodes with their directories below `parent`, a leader, and callers' connections to it.
    ///
    /// # Panics
    /// When it can not be started: there is nothing to measure then.
    pub async fn start(parent: &Path) -> BenchCluster {
        let dir = TempDir::new_in(parent).expect("a directory for the cluster");
        let bind = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let listeners: Vec<(TcpListener, TcpListener)> = (0..3).map(|_| (bind(), bind())).collect();
        let address = |listener: &TcpListener| listener.local_addr().expect("a bound listener").to_string();
        let members: Vec<MemberConfig> = (1..)
            .zip(&listeners)
            .map(|(id, (client, peer))| MemberConfig {
                id: NodeId(id),
                peer_address: address(peer),
                client_address: address(client),
            })
            .collect();
        let mut nodes = Vec::new();
        for (member, (client, peer)) in members.iter().zip(listeners) {
            let data_dir = dir.path().join(member.id.to_string());
            let (client, peer) = (Listen::Bound(client), Listen::Bound(peer));
            let config = ServerConfig::new(member.id, data_dir, members.clone(), client, peer);
            nodes.push(Server::start(config).await.expect("a node that starts"));
        }
        let status = nodes[0].wait_until(|status| status.leader.is_some()).await;
        let leader = status.leader.expect("waited for");
        let leader = &members.iter().find(|member| member.id == leader).expect("leaders are members").client_address;
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(RegistryClient::connect(format!("http://{leader}")).await.expect("a connection"));
        }
        let statement = wire::StateKeyRulesRequest { text: KEY_RULES.to_owned(), cluster_id: Vec::new().into() };
        let reply = clients[0].state_key_rules(statement).await.expect("an answer").into_inner().reply;
        assert!(matches!(reply, Some(Reply::Done(_))), "{reply:?}");
        BenchCluster { nodes, clients, next_id: Arc::default(), _dir: dir }
    }

    /// Makes `calls` calls of `ids_per_call` new ids from `callers` at once, and says how long it
    /// took.
    ///
    /// # Panics
    /// When an id is not new, or the cluster answers anything but outcomes or a wish to wait.
    pub async fn insert(&self, calls: u64, ids_per_call: u64, callers: u64) -> Duration {
        let left = Arc::new(AtomicU64::new(calls));
        let begun = Instant::now();
        let mut running = tokio::task::JoinSet::new();
        for caller in 0..callers.min(calls) {
            let client = self.clients[caller as usize % self.clients.len()].clone();
            let (left, next_id) = (Arc::clone(&left), Arc::clone(&self.next_id));
            running.spawn(async move {
                let take = |left: u64| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    let first = next_id.fetch_add(ids_per_call, Ordering::Relaxed);
                    insert_range(client.clone(), first..first + ids_per_call).await;
                }
            });
        }
        while let Some(ended) = running.join_next().await {
            ended.expect("a caller that does not panic");
        }
        begun.elapsed()
    }

    /// Ends the cluster in order.
    ///
    /// # Panics
    /// When a node has failed.
    pub async fn stop(self) {
        for node in self.nodes {
            node.shutdown().await.expect("a node without a failure");
        }
    }
}

async fn insert_range(mut client: RegistryClient<Channel>, ids: std::ops::Range<u64>) {
    let commands: Vec<Command> = ids.map(insert_of).collect();
    let Chunk { count, bytes } = Chunk::of(&commands);
    let request = wire::SubmitRequest {
        key_rules_hash: xxhash_rust::xxh3::xxh3_128(KEY_RULES.as_bytes()).to_be_bytes().to_vec().into(),
        count: u32::try_from(count).expect("a chunk is small"),
        commands: bytes.into(),
        cluster_id: Vec::new().into(),
    };
    loop {
        match client.submit(request.clone()).await.expect("an answer").into_inner().reply {
            Some(Reply::Done(done)) => {
                let outcomes = decode_outcomes(&done.outcomes).expect("outcomes");
                assert!(outcomes.len() == count && outcomes.iter().all(|outcome| *outcome == Outcome::Inserted));
                return;
            }
            Some(Reply::Overloaded(_)) => tokio::time::sleep(RETRY_PAUSE).await,
            reply => panic!("the cluster answers {reply:?}"),
        }
    }
}

/// An insert with a key of 36 bytes, in the order of time.
fn insert_of(id: u64) -> Command {
    let key = EventKey::new(FIRST_MICROS + id * 1_000, format!("bench-{id:030}").as_bytes()).expect("a key in bounds");
    Command::Insert { key, token: Token { incarnation: Incarnation([1; 16]), sequence: id + 1 } }
}

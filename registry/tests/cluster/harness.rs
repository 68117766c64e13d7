//! Clusters within one process, on real disks and real sockets.
//!
//! Nothing here depends on how fast the machine is: what is awaited is an event, and the one
//! deadline guards against a test that would hang.

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use photon_proto::registry as wire;
use photon_proto::registry::registry_client::RegistryClient;
use photon_proto::registry::submit_reply::Reply;
use photon_registry::{Listen, MemberConfig, RegistryError, RunningServer, Server, ServerConfig};
use photon_types::{Chunk, Command, EventKey, Incarnation, NodeId, Outcome, Outcomes, Token, decode_outcomes};
use tempfile::TempDir;
use tonic::transport::Channel;

/// A test that takes this long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(240);

/// Between two tries of a client that was told to come back.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

pub const RULES: &str = "events.id = _id\nevents.time = timestamp";

/// Waits for something that must come.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(HANGS_AFTER, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come in {HANGS_AFTER:?}"),
    }
}

pub fn key(n: u64) -> EventKey {
    EventKey::new(1_700_000_000_000_000 + n * 1_000, format!("click-{n}").as_bytes()).unwrap()
}

pub fn token(sequence: u64) -> Token {
    Token { incarnation: Incarnation([9; 16]), sequence }
}

pub fn insert(n: u64, sequence: u64) -> Command {
    Command::Insert { key: key(n), token: token(sequence) }
}

pub fn lookup(n: u64) -> Command {
    Command::Lookup { key: key(n) }
}

pub fn rules_hash(text: &str) -> Vec<u8> {
    xxhash_rust::xxh3::xxh3_128(text.as_bytes()).to_be_bytes().to_vec()
}

/// Members, their directories, and those of them that run.
pub struct Cluster {
    pub dir: TempDir,
    members: Vec<MemberConfig>,
    /// Bound before the first start, so that the addresses are known; taken by it.
    listeners: Vec<Option<(TcpListener, TcpListener)>>,
    nodes: Vec<Option<RunningServer>>,
    chaos: Option<u64>,
}

impl Cluster {
    /// Members 1 to `size`, none of them started.
    pub fn new(size: u32) -> Cluster {
        let mut members = Vec::new();
        let mut listeners = Vec::new();
        for id in 1..=size {
            let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
            let (client, peer) = (bind(), bind());
            members.push(MemberConfig {
                id: NodeId(id),
                peer_address: peer.local_addr().unwrap().to_string(),
                client_address: client.local_addr().unwrap().to_string(),
            });
            listeners.push(Some((client, peer)));
        }
        let nodes = (0..size).map(|_| None).collect();
        Cluster { dir: tempfile::tempdir().unwrap(), members, listeners, nodes, chaos: None }
    }

    /// All members started, with a leader.
    pub async fn start(size: u32) -> Cluster {
        let mut cluster = Cluster::new(size);
        cluster.start_all().await;
        cluster
    }

    pub async fn start_with_chaos(size: u32, seed: u64) -> Cluster {
        let mut cluster = Cluster::new(size);
        cluster.chaos = Some(seed);
        cluster.start_all().await;
        cluster
    }

    pub async fn start_all(&mut self) {
        for id in self.ids() {
            if self.nodes[index(id)].is_none() {
                self.start_node(id).await;
            }
        }
        self.leader().await;
    }

    pub fn ids(&self) -> Vec<NodeId> {
        self.members.iter().map(|member| member.id).collect()
    }

    pub fn data_dir(&self, id: NodeId) -> PathBuf {
        self.dir.path().join("registry").join(id.to_string())
    }

    /// The configuration of a member.
    pub fn config(&mut self, id: NodeId) -> ServerConfig {
        let member = self.members[index(id)].clone();
        let address = |text: &str| Listen::Address(text.parse::<SocketAddr>().unwrap());
        let (client, peer) = match self.listeners[index(id)].take() {
            Some((client, peer)) => (Listen::Bound(client), Listen::Bound(peer)),
            None => (address(&member.client_address), address(&member.peer_address)),
        };
        let mut config = ServerConfig::new(id, self.data_dir(id), self.members.clone(), client, peer);
        config.timings.election_timeout = Duration::from_millis(500);
        config.timings.heartbeat_interval = Duration::from_millis(50);
        config.limits.segment_bytes = 4 << 20;
        config.limits.memtable_bytes = 8 << 20;
        config.chaos_delays = self.chaos;
        config
    }

    pub async fn start_node(&mut self, id: NodeId) {
        self.try_start_node(id).await.unwrap_or_else(|error| panic!("node {id} does not start: {error}"));
    }

    pub async fn try_start_node(&mut self, id: NodeId) -> Result<(), RegistryError> {
        let config = self.config(id);
        self.nodes[index(id)] = Some(soon("the start of a node", Server::start(config)).await?);
        Ok(())
    }

    pub async fn stop_node(&mut self, id: NodeId) {
        self.try_stop_node(id).await.unwrap_or_else(|error| panic!("node {id} failed: {error}"));
    }

    pub async fn try_stop_node(&mut self, id: NodeId) -> Result<(), Arc<RegistryError>> {
        let node = self.nodes[index(id)].take().expect("it runs");
        soon("the end of a node", node.shutdown()).await
    }

    pub async fn stop_all(&mut self) {
        for id in self.ids() {
            if self.nodes[index(id)].is_some() {
                self.stop_node(id).await;
            }
        }
    }

    pub fn node(&self, id: NodeId) -> &RunningServer {
        self.nodes[index(id)].as_ref().expect("it runs")
    }

    /// Ends a node without waiting, as if nobody had asked it to.
    pub fn drop_node(&mut self, id: NodeId) {
        drop(self.nodes[index(id)].take().expect("it runs"));
    }

    fn running(&self) -> impl Iterator<Item = (NodeId, &RunningServer)> {
        self.ids().into_iter().zip(&self.nodes).filter_map(|(id, node)| Some((id, node.as_ref()?)))
    }

    /// The node that leads, once there is one.
    pub async fn leader(&self) -> NodeId {
        let leads = |(id, node): (NodeId, &RunningServer)| (node.status().role == "leader").then_some(id);
        soon("a leader", async {
            loop {
                if let Some(leader) = self.running().find_map(leads) {
                    return leader;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        })
        .await
    }

    pub async fn client(&self, id: NodeId) -> RegistryClient<Channel> {
        let address = &self.members[index(id)].client_address;
        soon("a connection", async {
            loop {
                match RegistryClient::connect(format!("http://{address}")).await {
                    Ok(client) => return client,
                    Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
                }
            }
        })
        .await
    }

    pub async fn status(&self, id: NodeId) -> wire::StatusReply {
        self.client(id).await.status(wire::StatusRequest {}).await.unwrap().into_inner()
    }

    /// One try at one node.
    pub async fn submit_to(&self, id: NodeId, commands: &[Command]) -> Reply {
        let request = submit_request(commands, RULES);
        self.client(id).await.submit(request).await.unwrap().into_inner().reply.unwrap()
    }

    /// Asks who leads until somebody has decided, with the same tokens each time.
    pub async fn submit(&self, commands: &[Command]) -> Outcomes {
        soon("an answer", async {
            loop {
                let leader = self.leader().await;
                let mut client = self.client(leader).await;
                let reply = client.submit(submit_request(commands, RULES)).await;
                match reply.ok().and_then(|reply| reply.into_inner().reply) {
                    Some(Reply::Done(done)) => {
                        let outcomes = decode_outcomes(&done.outcomes).unwrap();
                        assert_eq!(outcomes.len(), commands.len());
                        return outcomes;
                    }
                    Some(Reply::KeyRulesMissing(_)) => {
                        let text = RULES.to_owned();
                        let statement = wire::StateKeyRulesRequest { text, cluster_id: Vec::new().into() };
                        let _ = client.state_key_rules(statement).await;
                    }
                    Some(Reply::NotLeader(_) | Reply::Overloaded(_) | Reply::Unknown(_) | Reply::Unhealthy(_))
                    | None => (),
                    Some(other @ (Reply::KeyRulesDiffer(_) | Reply::WrongCluster(_))) => panic!("{other:?}"),
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        })
        .await
    }

    /// Inserts `range` in chunks, and each must be new.
    pub async fn insert_all(&self, range: std::ops::Range<u64>) {
        let ids: Vec<u64> = range.collect();
        for chunk in ids.chunks(1_000) {
            let commands: Vec<Command> = chunk.iter().map(|n| insert(*n, *n)).collect();
            let outcomes = self.submit(&commands).await;
            assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Inserted), "{outcomes:?}");
        }
    }

    /// All its peers have met this life of a node.
    pub async fn connected_to_all(&self, id: NodeId) {
        soon("connections to all peers", async {
            while !self.status(id).await.members.iter().all(|member| member.connected) {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        })
        .await;
    }

    /// All running nodes have applied what the leader has committed by now.
    pub async fn all_applied(&self) {
        let leader = self.leader().await;
        let commit_end = self.node(leader).status().commit_end;
        for (_, node) in self.running() {
            soon("a node that has applied", node.wait_until(|status| commit_end <= status.applied_end)).await;
        }
    }
}

fn index(id: NodeId) -> usize {
    usize::try_from(id.0).unwrap() - 1
}

pub fn submit_request(commands: &[Command], rules: &str) -> wire::SubmitRequest {
    let Chunk { count, bytes } = Chunk::of(commands);
    wire::SubmitRequest {
        key_rules_hash: rules_hash(rules).into(),
        count: u32::try_from(count).unwrap(),
        commands: bytes.into(),
        cluster_id: Vec::new().into(),
    }
}

/// Copies a directory with all that is in it.
pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

//! One request for each call, to the leader, over a few shared connections.
//!
//! Not here: retries. A call that fails is counted; only then is the leader looked for again.

use std::time::Duration;

use bytes::Bytes;
use photon_client::{Timings, key_rules_hash, statuses, uri};
use photon_proto::registry::SubmitRequest;
use photon_proto::registry::registry_client::RegistryClient;
use photon_proto::registry::submit_reply::Reply;
use photon_types::{Chunk, ClusterId, Command, Outcome, decode_outcomes};
use tokio::sync::{Mutex, RwLock};
use tonic::transport::{Channel, Endpoint};

use crate::bench::load::CallEnd;
use crate::exit::{self, Exit};

/// Callers that share a connection. HTTP/2 servers commonly allow 200 requests at once on one.
const CALLERS_PER_CONNECTION: u32 = 64;
const CONNECTIONS_MAX: u32 = 16;
/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a caller rests after a failed call, so that a lost leader is not asked in a tight loop.
const REST: Duration = Duration::from_millis(50);

/// Requests to the leader.
pub struct Direct {
    endpoints: Vec<String>,
    key_rules_hash: Bytes,
    cluster_id: ClusterId,
    connections: u32,
    leader: RwLock<Leader>,
    /// One caller at a time looks for the leader.
    search: Mutex<()>,
}

/// A node that led when it was asked.
#[derive(Clone)]
struct Leader {
    /// Counts how often it was looked for.
    generation: u64,
    endpoint: String,
    clients: Vec<RegistryClient<Channel>>,
}

impl Direct {
    /// Connects to the leader. The key rules have been stated already.
    pub async fn connect(
        endpoints: Vec<String>,
        cluster_id: ClusterId,
        key_rules: &str,
        callers: u32,
    ) -> anyhow::Result<Direct> {
        let connections = callers.div_ceil(CALLERS_PER_CONNECTION).min(CONNECTIONS_MAX);
        let leader = find_leader(&endpoints, connections, 0).await?;
        let key_rules_hash = key_rules_hash(key_rules);
        let leader = RwLock::new(leader);
        Ok(Direct { endpoints, key_rules_hash, cluster_id, connections, leader, search: Mutex::new(()) })
    }

    /// One request, answered or not.
    pub async fn call(&self, caller: u32, commands: &[Command]) -> CallEnd {
        let leader = self.leader.read().await;
        let generation = leader.generation;
        let endpoint = leader.endpoint.clone();
        let mut client = leader.clients[caller as usize % leader.clients.len()].clone();
        drop(leader);
        let Chunk { count, bytes } = Chunk::of(commands);
        let request = SubmitRequest {
            key_rules_hash: self.key_rules_hash.clone(),
            count: u32::try_from(count).expect("a chunk's count fits 32 bits"),
            commands: bytes.into(),
            cluster_id: self.cluster_id.0.to_vec().into(),
        };
        let end = match tokio::time::timeout(CALL_TIMEOUT, client.submit(request)).await {
            Ok(Ok(reply)) => read(reply.into_inner().reply, count),
            Ok(Err(status)) => CallEnd::Failed(format!("{}: {}", status.code(), status.message())),
            Err(_) => CallEnd::Failed(format!("no answer within {CALL_TIMEOUT:?}")),
        };
        match end {
            CallEnd::Inserted => CallEnd::Inserted,
            CallEnd::Overloaded { retry_after } => CallEnd::Overloaded { retry_after },
            CallEnd::Failed(cause) => {
                self.look_again(generation).await;
                CallEnd::Failed(format!("{endpoint}: {cause}"))
            }
        }
    }

    async fn look_again(&self, generation: u64) {
        tokio::time::sleep(REST).await;
        let _one = self.search.lock().await;
        if self.leader.read().await.generation != generation {
            return;
        }
        // When there is none, the next call fails and looks again.
        if let Ok(found) = find_leader(&self.endpoints, self.connections, generation + 1).await {
            *self.leader.write().await = found;
        }
    }
}

async fn find_leader(endpoints: &[String], connections: u32, generation: u64) -> anyhow::Result<Leader> {
    let statuses = statuses(endpoints, &Timings::default()).await;
    let leader = statuses.into_iter().filter_map(|(endpoint, status)| Some((endpoint, status.ok()?)));
    // An old leader may not know yet that it was deposed.
    let leader = leader.filter(|(_, status)| status.role == "leader").max_by_key(|(_, status)| status.ballot);
    let Some((endpoint, _)) = leader else {
        return Err(exit::error(Exit::Unreachable, "no endpoint leads: name all nodes of the registry"));
    };
    let mut clients = Vec::new();
    for _ in 0..connections {
        let target = Endpoint::from_shared(uri(&endpoint)?)?.connect_timeout(Timings::default().connect_timeout);
        clients.push(RegistryClient::new(target.connect().await?));
    }
    Ok(Leader { generation, endpoint, clients })
}

fn read(reply: Option<Reply>, count: usize) -> CallEnd {
    let failed = |cause: &str| CallEnd::Failed(cause.to_owned());
    match reply {
        Some(Reply::Done(done)) => match decode_outcomes(&done.outcomes) {
            Ok(outcomes) if outcomes.len() == count => match outcomes.iter().find(|it| **it != Outcome::Inserted) {
                None => CallEnd::Inserted,
                Some(other) => CallEnd::Failed(format!("a new id was answered with {other:?}")),
            },
            Ok(outcomes) => CallEnd::Failed(format!("{} outcomes for {count} ids", outcomes.len())),
            Err(error) => CallEnd::Failed(format!("unreadable outcomes: {error}")),
        },
        Some(Reply::Overloaded(overloaded)) => {
            CallEnd::Overloaded { retry_after: Duration::from_millis(overloaded.retry_after_ms.into()) }
        }
        Some(Reply::NotLeader(_)) => failed("it does not lead"),
        Some(Reply::Unknown(_)) => failed("it can not tell whether it happened"),
        Some(Reply::KeyRulesDiffer(_)) => failed("it has other key rules"),
        Some(Reply::KeyRulesMissing(_)) => failed("it has no key rules"),
        Some(Reply::WrongCluster(_)) => failed("it belongs to another cluster"),
        Some(Reply::Unhealthy(unhealthy)) => CallEnd::Failed(format!("unhealthy: {}", unhealthy.reason)),
        None => failed("an answer of a kind that is not known here"),
    }
}

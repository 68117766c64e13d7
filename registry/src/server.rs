//! One node: how it starts, is born, serves and ends.
//!
//! Order at the start: listeners (a port in use costs nothing yet), disk, doors; then birth, if it
//! has not been; then replica, lanes, driver and links. Order at the end: the driver (what waits is
//! answered `Unknown`), then the lanes, each when it has done what it was given; journal covered,
//! table flushed, lock released.
//!
//! Invariant: no replica exists before the birth record is synced in this node's journal; so nobody
//! promises or accepts before it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use photon_types::{ClusterId, NodeId};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{info, warn};

use crate::birth::meet_all;
use crate::chaos::Delays;
use crate::config::ServerConfig;
use crate::counters::Counters;
use crate::doors::Doors;
use crate::engine::Engine;
use crate::error::RegistryError;
use crate::failure::Failure;
use crate::lanes::peers::Dialing;
use crate::node::Node;
use crate::opening::OpenedDisk;
use crate::rpc::admin;
use crate::rpc::handshake::{Handshake, Identity};

/// Calls that are still open this long after the end began are cut.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts nodes. A process may run many.
pub struct Server;

/// A node that runs. Dropped, it ends without waiting for anything.
pub struct RunningServer {
    node: Arc<Node>,
    client_address: SocketAddr,
    peer_address: SocketAddr,
    http_address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    servers: JoinSet<()>,
    /// Gives the engine, once there is one; none when the node ended before its birth.
    life: Option<JoinHandle<Option<Engine>>>,
}

/// Where a node stands, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// The cluster, once it is born.
    pub cluster: Option<ClusterId>,
    /// `leader`, `follower`, `candidate`, or `waiting` before its birth.
    pub role: String,
    /// Who probably leads.
    pub leader: Option<NodeId>,
    /// Everything below is applied.
    pub applied_end: u64,
    /// Everything below is chosen.
    pub commit_end: u64,
    /// None when the node is healthy, else why not.
    pub unhealthy: Option<String>,
}

impl Server {
    /// Starts a node: it listens, has its disk open, and serves as soon as its cluster is born.
    ///
    /// # Errors
    /// [`RegistryError`]: values that do not fit, a port in use, a data directory that is another's
    /// or in use, damage.
    pub async fn start(config: ServerConfig) -> Result<RunningServer, RegistryError> {
        config.check()?;
        let (mut config, listen) = config.split_listeners();
        let doors = Doors::bind(listen.client, listen.peer, listen.http).await?;
        let addresses = (doors.client_address, doors.peer_address, doors.http_address);
        config.data_dir = std::path::absolute(&config.data_dir)
            .map_err(|source| RegistryError::System { operation: "finding the data directory", source })?;
        let config = Arc::new(config);

        let opening = Arc::clone(&config);
        let disk =
            blocking(move || OpenedDisk::open(&opening.data_dir, opening.node, &opening.member_ids(), &opening.limits))
                .await?;
        let failure = Failure::new(config.node);
        let identity = Identity {
            node: config.node,
            incarnation: disk.data_dir.incarnation(),
            boot: disk.data_dir.boot(),
            nonce: disk.data_dir.nonce(),
            recovered_end: disk.recovered.recovered_end,
            past_lives: disk.data_dir.past_lives().to_vec(),
            mark: disk.data_dir.refusal_mark(),
        };
        let handshake = Arc::new(Handshake::new(
            identity,
            config.member_ids(),
            config.fingerprint(),
            disk.birth.clone(),
            failure.clone(),
        ));
        let node = Arc::new(Node::new(&config, Arc::clone(&handshake), failure, Arc::new(Counters::default())));
        let (stop, stopped) = watch::channel(false);
        let delays = |place| Delays::new(config.chaos_delays, config.node.0, place);
        let dialing = Dialing {
            handshake,
            members: config.members.clone(),
            timings: config.timings.clone(),
            delays: delays("peers"),
            stop: stopped.clone(),
        };
        let servers = doors.serve(&node, delays("replies"), &stopped);
        let life = Life { node: Arc::clone(&node), config, dialing };
        let (client_address, peer_address, http_address) = addresses;
        let mut running = RunningServer { node, client_address, peer_address, http_address, stop, servers, life: None };
        running.life = Some(match disk.birth.is_some() {
            // Errors of a born node are the caller's; those of a birth come later, as failures.
            true => {
                let engine = life.serve(disk).await?;
                tokio::spawn(async { Some(engine) })
            }
            false => tokio::spawn(life.run_from_birth(disk)),
        });
        Ok(running)
    }
}

/// What leads from an opened disk to an engine.
struct Life {
    node: Arc<Node>,
    config: Arc<ServerConfig>,
    dialing: Dialing,
}

impl Life {
    async fn run_from_birth(self, disk: OpenedDisk) -> Option<Engine> {
        let failure = self.node.failure.clone();
        match self.be_born(disk).await {
            Ok(engine) => engine,
            Err(error) => {
                failure.report(error);
                None
            }
        }
    }

    async fn be_born(self, mut disk: OpenedDisk) -> Result<Option<Engine>, RegistryError> {
        let Some(birth) = meet_all(&self.config.peer_ids(), &self.dialing).await else { return Ok(None) };
        let record = birth.clone();
        let disk = blocking(move || {
            disk.bear(record)?;
            Ok(disk)
        })
        .await?;
        self.node.handshake.on_born(birth);
        self.serve(disk).await.map(Some)
    }

    async fn serve(self, disk: OpenedDisk) -> Result<Engine, RegistryError> {
        blocking(move || Engine::start(&self.node, disk, &self.config, &self.dialing)).await
    }
}

impl RunningServer {
    /// Where clients are served.
    #[must_use]
    pub fn client_address(&self) -> SocketAddr {
        self.client_address
    }

    /// Where peers are served.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.peer_address
    }

    /// Where `/healthz` and `/status` are served.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Where the node stands.
    #[must_use]
    pub fn status(&self) -> ServerStatus {
        let status = admin::status(&self.node);
        ServerStatus {
            cluster: self.node.handshake.cluster_id(),
            role: status.role,
            leader: Some(NodeId(status.leader_node_id)).filter(|leader| *leader != NodeId(0)),
            applied_end: status.applied_end,
            commit_end: status.commit_end,
            unhealthy: self.node.health().err(),
        }
    }

    /// Waits until the node stands so; for ever, if it never does.
    pub async fn wait_until(&self, mut is_so: impl FnMut(&ServerStatus) -> bool) -> ServerStatus {
        loop {
            // Subscribed before the look, so that no change is missed in between.
            let mut view = self.node.serving().map(|serving| serving.replica.clone());
            view.iter_mut().for_each(tokio::sync::watch::Receiver::mark_unchanged);
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            let Some(mut view) = view else {
                self.node.begun().await;
                continue;
            };
            if view.changed().await.is_err() {
                // The driver has ended, and nothing will change.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until the node fails: its disk, its table, or a refusal by its peers. The process, or
    /// whoever runs the node, ends then; [`RegistryError::kind`] says how.
    pub async fn failed(&self) -> Arc<RegistryError> {
        self.node.failure.wait().await
    }

    /// Ends the node in order: what waits is answered `Unknown`, the journal is covered, the table
    /// flushed, the lock released.
    ///
    /// # Errors
    /// What the node failed of, before or while it ended.
    pub async fn shutdown(mut self) -> Result<(), Arc<RegistryError>> {
        // Nobody listens any more is fine: then all servers have ended.
        let _ = self.stop.send(true);
        if let Some(serving) = self.node.serving() {
            serving.inbox.close();
        }
        let engine = match self.life.take() {
            Some(life) => life.await.unwrap_or_default(),
            None => None,
        };
        if let Some(engine) = engine
            && blocking(move || {
                engine.join();
                Ok(())
            })
            .await
            .is_err()
        {
            warn!(node = %self.node.identity().node, "the threads of the node could not be waited for");
        }
        let drained = async { while self.servers.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            warn!(node = %self.node.identity().node, "open calls were cut at the end");
            self.servers.abort_all();
        }
        info!(node = %self.node.identity().node, "node ended");
        match self.node.failure.get() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(serving) = self.node.serving() {
            serving.inbox.close();
        }
    }
}

/// Runs what blocks on a thread for such.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RegistryError> + Send + 'static,
) -> Result<T, RegistryError> {
    let lost = |error: tokio::task::JoinError| RegistryError::System {
        operation: "running on a thread for blocking work",
        source: std::io::Error::other(error),
    };
    tokio::task::spawn_blocking(work).await.map_err(lost)?
}

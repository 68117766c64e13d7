//! The threads of a node that serves: driver, journal, apply, reads; and the links to its peers.
//!
//! Invariant: however the driver ends, the queues of the lanes are closed behind it, and each lane
//! finishes what it was given; the data directory stays locked until the last of them has ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use photon_core::machine::RowLayout;
use photon_core::{Monotonic, Now, Replica};
use photon_types::Prng;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::info;

use crate::chaos::Delays;
use crate::config::{GROUP, ServerConfig};
use crate::datadir::{Birth, DataDir};
use crate::drive::inbox::{Bounds, Inbox};
use crate::drive::{Driver, DriverParts, Lanes, ReplicaView};
use crate::error::RegistryError;
use crate::lanes::apply::{ApplyLane, KeyRules};
use crate::lanes::journal::{JournalLane, SyncedEnd};
use crate::lanes::peers::{Dialing, PeerLane};
use crate::lanes::queue::JobQueue;
use crate::lanes::reads::ReadLane;
use crate::node::{Node, Serving};
use crate::opening::OpenedDisk;
use crate::rocks::RocksTable;

/// What runs while a node serves.
pub(crate) struct Engine {
    inbox: Arc<Inbox>,
    threads: Vec<JoinHandle<()>>,
    links: JoinSet<()>,
}

/// What the lanes own besides the disk.
struct LaneState {
    table: RocksTable,
    rules: watch::Sender<Option<Arc<KeyRules>>>,
    synced: Arc<SyncedEnd>,
}

impl Engine {
    /// Recovers the replica of a born disk and starts everything; the node serves from then on.
    /// Blocks; needs a runtime for the links.
    ///
    /// # Errors
    /// [`RegistryError::System`] when there is no thread or no random number to be had.
    pub fn start(
        node: &Arc<Node>,
        mut disk: OpenedDisk,
        config: &ServerConfig,
        dialing: &Dialing,
    ) -> Result<Engine, RegistryError> {
        let cluster = disk.birth.as_ref().expect("only a born disk serves").cluster_id();
        let table = disk.table.take().expect("a born disk has a table");
        let started = Instant::now();
        let replica = recover(config, &mut disk, &table, started)?;
        let inbox = Arc::new(Inbox::new(Bounds {
            messages_max: config.limits.inbox_messages_max,
            messages_bytes_max: config.limits.inbox_bytes_max,
            requests_max: config.limits.inbox_requests_max,
            requests_bytes_max: config.limits.inbox_bytes_max,
        }));
        let synced = Arc::new(SyncedEnd::new(disk.journal.synced_end()));
        let mut links = JoinSet::new();
        let lanes = Lanes {
            journal: Arc::new(JobQueue::new()),
            apply: Arc::new(JobQueue::new()),
            reads: Arc::new(JobQueue::new()),
            peers: Arc::new(PeerLane::start(config, Arc::clone(&synced), dialing, &mut links)),
        };
        let announcing = Arc::clone(&lanes.peers);
        links.spawn(announcing.announce_ends(config.timings.heartbeat_interval, dialing.stop.clone()));
        let (view, replica_view) =
            watch::channel(ReplicaView { status: replica.status(), applying_since: Instant::now() });
        let (rules, key_rules) = watch::channel(table.rules().cloned());
        node.serve(Serving {
            cluster,
            inbox: Arc::clone(&inbox),
            replica: replica_view,
            key_rules,
            peers: Arc::clone(&lanes.peers),
        });
        let driver = Driver::new(DriverParts {
            groups: BTreeMap::from([(GROUP, (replica, view))]),
            inbox: Arc::clone(&inbox),
            lanes: lanes.clone(),
            lane_bytes_max: config.limits.lane_bytes_max,
            started,
        });
        let mut engine = Engine { inbox, threads: Vec::new(), links };
        engine.start_lanes(node, config, &lanes, disk, LaneState { table, rules, synced })?;
        engine.spawn_driver(node, driver, lanes)?;
        Ok(engine)
    }

    fn start_lanes(
        &mut self,
        node: &Node,
        config: &ServerConfig,
        lanes: &Lanes,
        disk: OpenedDisk,
        state: LaneState,
    ) -> Result<(), RegistryError> {
        let delays = |place| Delays::new(config.chaos_delays, config.node.0, place);
        let OpenedDisk { data_dir, journal, .. } = disk;
        let data_dir = Arc::new(data_dir);
        let read_lane =
            ReadLane { reader: journal.reader(), queue: Arc::clone(&lanes.reads), inbox: Arc::clone(&self.inbox) };
        let journal_lane = JournalLane {
            journal,
            queue: Arc::clone(&lanes.journal),
            inbox: Arc::clone(&self.inbox),
            synced: state.synced,
            counters: Arc::clone(&node.counters),
            delays: delays("journal"),
        };
        let apply_lane = ApplyLane {
            table: state.table,
            group: GROUP,
            layout: RowLayout::hourly(GROUP),
            queue: Arc::clone(&lanes.apply),
            inbox: Arc::clone(&self.inbox),
            key_rules: state.rules,
            counters: Arc::clone(&node.counters),
            delays: delays("apply"),
            unflushed_bytes: 0,
        };
        self.spawn_lane(node, "journal lane", &data_dir, || journal_lane.run())?;
        self.spawn_lane(node, "apply lane", &data_dir, || apply_lane.run())?;
        self.spawn_lane(node, "read lane", &data_dir, || read_lane.run())
    }

    /// A lane that ends early takes the driver with it.
    fn spawn_lane(
        &mut self,
        node: &Node,
        name: &'static str,
        data_dir: &Arc<DataDir>,
        body: impl FnOnce() -> Result<(), RegistryError> + Send + 'static,
    ) -> Result<(), RegistryError> {
        let (inbox, data_dir) = (Arc::clone(&self.inbox), Arc::clone(data_dir));
        let at_end = move || {
            inbox.close();
            drop(data_dir);
        };
        self.threads.push(node.failure.spawn_thread(name, at_end, body)?);
        Ok(())
    }

    fn spawn_driver(&mut self, node: &Node, driver: Driver, lanes: Lanes) -> Result<(), RegistryError> {
        let inbox = Arc::clone(&self.inbox);
        let at_end = move || {
            inbox.close();
            lanes.journal.close();
            lanes.apply.close();
            lanes.reads.close();
        };
        self.threads.push(node.failure.spawn_thread("driver", at_end, || driver.run())?);
        Ok(())
    }

    /// Ends the driver; the lanes end behind it, when they have done what they were given.
    pub fn close(&self) {
        self.inbox.close();
    }

    /// Waits until all has ended. Blocks.
    pub fn join(mut self) {
        self.close();
        for thread in std::mem::take(&mut self.threads) {
            // A panic was reported as the node's failure by the thread itself.
            let _ = thread.join();
        }
        self.links.abort_all();
    }
}

/// Who forgets to end a node leaves no thread behind.
impl Drop for Engine {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

fn recover(
    config: &ServerConfig,
    disk: &mut OpenedDisk,
    table: &RocksTable,
    started: Instant,
) -> Result<Replica, RegistryError> {
    let records = disk.recovered.records.remove(&GROUP).unwrap_or_default();
    info!(node = %config.node, records = records.len(), applied_end = %table.applied_end(), "replica recovered");
    let now = Now { monotonic: Monotonic(started.elapsed()) };
    // Equal to those of the configuration (`opening`); the record is what binds.
    let members = disk.birth.iter().flat_map(Birth::members).map(|(member, _)| member).collect();
    Ok(Replica::recover(config.core(members), Prng::new(seed()?), now, records.into_iter(), table.applied_end()))
}

fn seed() -> Result<u64, RegistryError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| RegistryError::System {
        operation: "drawing random bytes",
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(u64::from_be_bytes(bytes))
}

//! The joiner: fetches the query of a click, takes the click's id, writes the joined line.
//!
//! ```text
//!  service ─JoinBatch─▶ engine ─▶ fetch ─▶ event store
//!     ▲                 │ ▲ ▲ ▲──────┘
//!     └── pages ────────┘ │ └──── insert ─▶ registry
//!                         └────── write (thread) ─▶ joined log
//! ```
//!
//! Invariant: all decisions are made by `photon_join::joiner`, which the engine steps; the lanes
//! only carry out. A lane never waits for the engine, nor the engine for a lane: an attempt has at
//! most one order in the lanes, so queues as long as there are attempts are never full.
//!
//! Not here: retries of clicks, which the dispatcher owns.

mod engine;
mod fetch;
mod insert;
mod service;
mod write;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use photon_client::Client;
use photon_format::config::Config;
use photon_format::output::Manifest;
use photon_join::Monotonic;
use photon_join::backoff::BackoffBounds;
use photon_join::joiner::{self as core, Totals};
use photon_proto::pipeline::event_store_client::EventStoreClient;
use photon_proto::pipeline::joiner_server::JoinerServer;
use photon_types::Incarnation;
use photon_types::Prng;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tracing::info;

use crate::adapter::{self, Adapter};
use crate::chaos::Delays;
use crate::error::PipelineError;
use crate::life::{self, Health, Life, MESSAGE_BYTES_MAX, Outage, Servers};

const ROLE: &str = "joiner";

/// Click bytes in flight, at most.
const IN_FLIGHT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// When a click that was refused may be asked again.
const BUSY_RETRY: Duration = Duration::from_millis(20);

/// Waits between two inserts whose answer is unknown. The client has waited its own time already.
const INSERT_BACKOFF: BackoffBounds = BackoffBounds { min: Duration::from_millis(20), max: Duration::from_secs(5) };

/// How long a joiner that stops waits for the ends of its attempts.
const STOP_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long an id that is not there waits for a store that still reads its sources for the first
/// time, when these grow. (If they do not, half the time of a call.)
const STORE_WAIT: Duration = Duration::from_secs(1);

/// What a joiner needs to know.
pub struct JoinerConfig {
    /// The configuration of the whole.
    pub config: Arc<Config>,
    /// Whose joiner it is.
    pub datacenter: String,
    /// Where it serves dispatchers; port 0 is any.
    pub listen: String,
    /// Where it serves `/healthz` and `/status`.
    pub http: Option<String>,
    /// The event store, `host:port`.
    pub event_store: String,
    /// The registry.
    pub client: Client,
    /// The sources do not grow: `--once`.
    pub once: bool,
    /// What is done with a pair; what the configuration says if none is given.
    pub adapter: Option<Box<dyn Adapter>>,
    /// A seed of random delays, for tests.
    pub chaos_delays: Option<u64>,
}

/// A joiner that runs.
#[derive(Debug)]
pub struct RunningJoiner {
    /// Where it serves dispatchers.
    pub address: SocketAddr,
    /// Where it serves `/healthz`.
    pub http_address: Option<SocketAddr>,
    /// This life of it.
    pub incarnation: Incarnation,
    life: Life,
    servers: Servers,
    stop: mpsc::Sender<oneshot::Sender<Result<(), PipelineError>>>,
    gauges: Arc<Gauges>,
}

/// What the engine last said about itself.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    now: Mutex<(Totals, usize)>,
}

impl Gauges {
    fn lock(&self) -> MutexGuard<'_, (Totals, usize)> {
        self.now.lock().expect("nobody panics while holding it")
    }
}

struct Status {
    incarnation: Incarnation,
    gauges: Arc<Gauges>,
    /// The event store, and the registry.
    outages: [Arc<Outage>; 2],
    call_timeout: Duration,
}

impl Health for Status {
    fn unhealthy(&self) -> Option<String> {
        self.outages.iter().find_map(|outage| outage.longer_than(self.call_timeout))
    }

    fn status(&self) -> serde_json::Value {
        let (totals, in_flight) = *self.gauges.lock();
        json!({
            "role": ROLE,
            "incarnation": self.incarnation.to_string(),
            "in_flight": in_flight,
            "attempts": totals.attempts,
            "joined": totals.joined,
            "duplicate": totals.duplicate,
            "filtered": totals.filtered,
            "expired": totals.expired,
            "in_doubt": totals.in_doubt,
            "missing": totals.missing,
            "behind": totals.behind,
            "busy": totals.busy,
            "unknown": totals.unknown,
        })
    }
}

/// Starts a joiner. Its output directory is there, durable, before this returns.
///
/// # Errors
/// [`PipelineError`]: an address in use, an output that can not be made.
pub async fn start(joiner: JoinerConfig) -> Result<RunningJoiner, PipelineError> {
    let JoinerConfig { config, datacenter, listen, http, event_store, client, once, adapter, chaos_delays } = joiner;
    let (listener, address) = life::listen(ROLE, &listen).await?;
    let http = match http {
        Some(http) => Some(life::listen(ROLE, &http).await?),
        None => None,
    };
    let store = life::channel(ROLE, "the event store", &event_store)?;
    let store = EventStoreClient::new(store)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let seed = u64::from_be_bytes(life::random(ROLE)?);
    let manifest =
        Manifest::new(&config.cluster.name, &datacenter, address.to_string()).map_err(PipelineError::Output)?;
    let incarnation = manifest.incarnation;
    let adapter: Arc<dyn Adapter> = adapter.unwrap_or_else(|| adapter::from_config(&config.join.adapter)).into();
    let delays = |place| Delays::new(chaos_delays, &datacenter, place);

    let attempts_max = config.join.in_flight;
    // One more for the writer's last word.
    let (done, completions) = mpsc::channel(attempts_max + 1);
    let writer = write::start(&config, &datacenter, manifest, adapter.clone(), done.clone(), delays("write")).await?;
    let store_wait = if once { config.join.call_timeout / 2 } else { STORE_WAIT.min(config.join.call_timeout / 2) };
    let outages = [Arc::new(Outage::default()), Arc::new(Outage::default())];
    let fetch = fetch::start(fetch::Fetch {
        store,
        adapter,
        wait: store_wait,
        call_timeout: config.join.call_timeout,
        attempts_max,
        done: done.clone(),
        outage: outages[0].clone(),
        delays: delays("fetch"),
    });
    let call_timeout = config.join.call_timeout;
    let insert = insert::start(client, call_timeout, attempts_max, done, outages[1].clone(), delays("insert"));

    let life = Life::new();
    let gauges = Arc::new(Gauges::default());
    let (joins, batches) = mpsc::channel(service::BATCHES_MAX);
    let (stop, stops) = mpsc::channel(1);
    let core = core::Joiner::new(
        core::JoinerConfig {
            incarnation,
            attempts_max,
            bytes_max: IN_FLIGHT_BYTES_MAX,
            busy_retry: BUSY_RETRY,
            backoff: INSERT_BACKOFF,
        },
        Prng::new(seed),
    );
    let lanes = engine::Lanes { fetch, insert, writer };
    let engine = engine::Engine::new(core, lanes, life.clone(), gauges.clone());
    tokio::spawn(engine.run(completions, batches, stops));

    let mut servers = Servers::new();
    let service = JoinerServer::new(service::Service::new(joins, delays("join")))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    servers.serve_rpc(ROLE, listener, address, &life, |server| server.add_service(service));
    let http_address = http.map(|(listener, address)| {
        let status = Status { incarnation, gauges: gauges.clone(), outages, call_timeout };
        servers.serve_http(ROLE, listener, &life, Arc::new(status));
        address
    });
    info!(%datacenter, %address, %incarnation, "joiner runs");
    Ok(RunningJoiner { address, http_address, incarnation, life, servers, stop, gauges })
}

impl RunningJoiner {
    /// Ends when the joiner can not go on. The process must end then; what was answered is durable.
    pub async fn failed(&self) -> Arc<PipelineError> {
        self.life.failed().await
    }

    /// How attempts ended so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.gauges.lock().0
    }

    /// Takes no new clicks, brings the attempts to their ends, seals the output.
    ///
    /// # Errors
    /// [`PipelineError::NotSealed`] when attempts do not end (the registry is away), and what made
    /// the joiner fail before.
    pub async fn shutdown(self) -> Result<(), PipelineError> {
        let (reply, sealed) = oneshot::channel();
        let gone = || {
            self.life.failure().map_or(PipelineError::Gone { role: ROLE, part: "its engine" }, PipelineError::Shared)
        };
        let result = match self.stop.send(reply).await {
            Ok(()) => sealed.await.unwrap_or_else(|_| Err(gone())),
            Err(_) => Err(gone()),
        };
        self.servers.stop().await;
        result
    }
}

/// The monotonic clock of the core, on the clock of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: tokio::time::Instant,
}

impl Clock {
    fn new() -> Clock {
        Clock { start: tokio::time::Instant::now() }
    }

    fn now(self) -> Monotonic {
        self.at(tokio::time::Instant::now())
    }

    fn at(self, instant: tokio::time::Instant) -> Monotonic {
        Monotonic(instant.saturating_duration_since(self.start))
    }

    fn instant(self, at: Monotonic) -> tokio::time::Instant {
        self.start + at.0
    }
}

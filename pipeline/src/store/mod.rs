//! The event store of a datacenter, with the event reader in it: reads each primary source once,
//! and answers what a click's query is.
//!
//! ```text
//!  primary logs ─▶ reader thread ─▶ index + cache ◀─ service ◀─ joiner
//!       ▲                                │ cache miss
//!       └────────────── log reader ◀─────┘
//! ```
//!
//! Invariant: *missing* is said only by a store that is through a pass over all its sources and can
//! still read them; else it says *behind*. What it says of its position was true before it looked.
//!
//! Not here: when a missing query makes a click unjoinable (`photon_join::missing`).

mod cache;
mod index;
mod log;
mod service;
mod shared;
mod thread;

use std::net::SocketAddr;
use std::sync::Arc;

use photon_format::config::{Config, Role};
use photon_format::source::SourceList;
use photon_proto::pipeline::event_store_server::EventStoreServer;
use serde_json::json;
use tracing::info;

use self::log::LogReader;
use self::shared::Shared;
use crate::chaos::Delays;
use crate::error::PipelineError;
use crate::life::{self, Health, Life, MESSAGE_BYTES_MAX, Servers};
use crate::reader::{Reader, Sources};

const ROLE: &str = "event store";

/// What an event store needs to know.
pub struct StoreConfig {
    /// The configuration of the whole.
    pub config: Arc<Config>,
    /// Whose store it is.
    pub datacenter: String,
    /// Where it serves joiners; port 0 is any.
    pub listen: String,
    /// Where it serves `/healthz` and `/status`.
    pub http: Option<String>,
    /// The sources, if they do not grow: `--once`.
    pub sources: Option<SourceList>,
    /// A seed of random delays, for tests.
    pub chaos_delays: Option<u64>,
}

/// An event store that runs.
#[derive(Debug)]
pub struct RunningStore {
    /// Where it serves joiners.
    pub address: SocketAddr,
    /// Where it serves `/healthz`.
    pub http_address: Option<SocketAddr>,
    life: Life,
    servers: Servers,
    reader: thread::ReaderThread,
    shared: Arc<Shared>,
}

struct Status {
    shared: Arc<Shared>,
    logs: Arc<LogReader>,
}

impl Health for Status {
    fn unhealthy(&self) -> Option<String> {
        let progress = self.shared.progress().borrow().clone();
        // The first pass is no fault, it takes its time; a pass that failed is, also the first.
        progress.behind.filter(|_| progress.is_faulty).map(|why| why.to_string())
    }

    fn status(&self) -> serde_json::Value {
        let progress = self.shared.progress().borrow().clone();
        let (ids, duplicates, (entries, bytes, hits, misses)) = self.shared.usage();
        json!({
            "role": ROLE,
            "behind": progress.behind.as_deref(),
            "passes_begun": progress.position.begun,
            "passes_done": progress.position.done,
            "final": progress.position.is_final,
            "ids": ids,
            "duplicates": duplicates,
            "dead_letters": self.shared.dead_letters(),
            "unreadable_sources": self.logs.unreadable(),
            "cache_entries": entries,
            "cache_bytes": bytes,
            "cache_hits": hits,
            "cache_misses": misses,
        })
    }
}

/// Starts an event store. It answers from the first moment, with *behind* where it does not know.
///
/// # Errors
/// [`PipelineError`]: an address in use.
pub async fn start(store: StoreConfig) -> Result<RunningStore, PipelineError> {
    let StoreConfig { config, datacenter, listen, http, sources, chaos_delays } = store;
    config.datacenter(&datacenter)?;
    let (listener, address) = life::listen(ROLE, &listen).await?;
    let http = match http {
        Some(http) => Some(life::listen(ROLE, &http).await?),
        None => None,
    };
    let shared = Arc::new(Shared::new(life::random(ROLE)?, config.join.cache.as_usize()));
    let logs = Arc::new(LogReader::new(config.clone()));
    let life = Life::new();

    let sources = sources.map_or(Sources::Follow, Sources::Final);
    let is_final = matches!(sources, Sources::Final(_));
    let reader = Reader::new(config.clone(), &datacenter, Role::Primary, sources, u64::MAX);
    let delays = Delays::new(chaos_delays, &datacenter, "read");
    let work = thread::Work {
        reader,
        shared: shared.clone(),
        logs: logs.clone(),
        life: life.clone(),
        poll: config.join.poll,
        is_final,
        delays,
    };
    let reader = thread::start(work)?;

    let mut servers = Servers::new();
    let service = service::Service::new(shared.clone(), logs.clone(), Delays::new(chaos_delays, &datacenter, "get"));
    let service = EventStoreServer::new(service)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    servers.serve_rpc(ROLE, listener, address, &life, |server| server.add_service(service));
    let http_address = http.map(|(listener, address)| {
        let status = Status { shared: shared.clone(), logs };
        servers.serve_http(ROLE, listener, &life, Arc::new(status));
        address
    });
    info!(%datacenter, %address, "event store runs");
    Ok(RunningStore { address, http_address, life, servers, reader, shared })
}

impl RunningStore {
    /// Ends when the store can not go on.
    pub async fn failed(&self) -> Arc<PipelineError> {
        self.life.failed().await
    }

    /// Ends when the store is through its first pass over all sources.
    pub async fn caught_up(&self) {
        let mut progress = self.shared.progress();
        // An error means that it stops.
        let _ = progress.wait_for(|progress| progress.behind.is_none()).await;
    }

    /// Stops reading and serving.
    pub async fn shutdown(self) {
        self.servers.stop().await;
        self.reader.stop().await;
        info!("event store stopped");
    }
}

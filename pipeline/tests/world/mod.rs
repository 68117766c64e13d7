//! A small world: generated logs, a fake registry, and the roles of one datacenter over loopback.
#![allow(dead_code, reason = "each test program uses its part")]

pub mod registry;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use photon_client::{Client, ClientConfig};
use photon_format::config::Config;
use photon_format::ends::{self, EndRecord};
use photon_format::output::{DataCheck, OutputError, ScanState, list_incarnations, parse_line, scan_directory};
use photon_format::source::SourceList;
use photon_pipeline::adapter::Adapter;
use photon_pipeline::dispatcher::{DispatcherConfig, RECORDS_PER_SECOND_MAX, RunningDispatcher};
use photon_pipeline::joiner::{JoinerConfig, RunningJoiner};
use photon_pipeline::store::{RunningStore, StoreConfig};
use photon_pipeline::{PipelineError, dispatcher, joiner, store};
use photon_types::EventKey;
use tempfile::TempDir;

use registry::FakeRegistry;

/// A guard against a hang, never a measure.
pub const GUARD: Duration = Duration::from_secs(60);

/// Waits, but not for ever.
pub async fn guarded<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(GUARD, wait).await.unwrap_or_else(|_| panic!("{what} took longer than {GUARD:?}"))
}

/// Asks again and again until it is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    guarded(what, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// What a role says over HTTP.
pub async fn get(address: std::net::SocketAddr, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Asks until a role's health is this, and says this.
pub async fn until_health(address: std::net::SocketAddr, status: &str, text: &str) {
    guarded(&format!("health {status} {text:?}"), async {
        loop {
            let answer = get(address, "/healthz").await;
            if answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

pub struct World {
    pub dir: TempDir,
    pub registry: FakeRegistry,
    pub config: Arc<Config>,
    pub chaos: Option<u64>,
}

/// The roles of one datacenter.
pub struct Roles {
    pub store: RunningStore,
    pub joiner: RunningJoiner,
    pub dispatcher: RunningDispatcher,
}

/// A joined line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub key: EventKey,
    pub primary_at: String,
    pub click: String,
    pub query: String,
}

const STREAMS: &str = r#"
[[join.input]]
name = "queries"
path = "@dir/queries"
framing = "ndjson"

[[join.input]]
name = "clicks"
path = "@dir/clicks"
framing = "ndjson"

[[join.stream]]
name = "queries"
role = "primary"
input = "queries"
id = "q"

[[join.stream]]
name = "clicks"
role = "foreign"
input = "clicks"
id = "c"
reference = "q"
time = { field = "t", forms = ["epoch-ms"] }

[[datacenter]]
name = "east"

[[datacenter]]
name = "west"
"#;

impl World {
    /// Empty logs. `join` are lines of the config's `[join]`.
    pub async fn new(join: &str) -> World {
        let dir = tempfile::tempdir().unwrap();
        for name in ["queries", "clicks"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let text = format!(
            "[cluster]\nname = \"test\"\ndata-dir = \"@dir/data\"\n[[registry.node]]\nid = 1\n[join]\npoll = \"10ms\"\n{join}\n{STREAMS}"
        );
        let text = text.replace("@dir", dir.path().to_str().unwrap());
        let config = Config::parse(&text, Path::new("test.toml")).unwrap();
        World { dir, registry: FakeRegistry::start().await, config: Arc::new(config), chaos: None }
    }

    pub fn path(&self, log: &str) -> PathBuf {
        self.dir.path().join(log)
    }

    /// Appends bytes to a log such as `clicks/a`.
    pub fn append(&self, log: &str, text: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.path(log)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    pub fn list(&self) -> SourceList {
        SourceList::list(&self.config, self.config.datacenter("east").unwrap()).unwrap()
    }

    pub async fn client(&self) -> Client {
        Client::connect(ClientConfig::new(vec![self.registry.address.to_string()], "test = 1\n".into())).await.unwrap()
    }

    pub async fn store(&self, datacenter: &str, sources: Option<SourceList>) -> RunningStore {
        store::start(StoreConfig {
            config: self.config.clone(),
            datacenter: datacenter.into(),
            listen: "127.0.0.1:0".into(),
            http: Some("127.0.0.1:0".into()),
            sources,
            chaos_delays: self.chaos,
        })
        .await
        .unwrap()
    }

    pub async fn joiner(&self, datacenter: &str, store: String, once: bool) -> RunningJoiner {
        self.joiner_with(datacenter, store, once, None).await
    }

    pub async fn joiner_with(
        &self,
        datacenter: &str,
        event_store: String,
        once: bool,
        adapter: Option<Box<dyn Adapter>>,
    ) -> RunningJoiner {
        joiner::start(JoinerConfig {
            config: self.config.clone(),
            datacenter: datacenter.into(),
            listen: "127.0.0.1:0".into(),
            http: Some("127.0.0.1:0".into()),
            event_store,
            client: self.client().await,
            once,
            adapter,
            chaos_delays: self.chaos,
        })
        .await
        .unwrap()
    }

    pub async fn dispatcher(&self, datacenter: &str, joiner: String, sources: Option<SourceList>) -> RunningDispatcher {
        self.try_dispatcher(datacenter, joiner, sources).await.unwrap()
    }

    pub async fn try_dispatcher(
        &self,
        datacenter: &str,
        joiner: String,
        sources: Option<SourceList>,
    ) -> Result<RunningDispatcher, PipelineError> {
        dispatcher::start(self.dispatcher_config(datacenter, joiner, sources).await).await
    }

    pub async fn dispatcher_config(
        &self,
        datacenter: &str,
        joiner: String,
        sources: Option<SourceList>,
    ) -> DispatcherConfig {
        DispatcherConfig {
            config: self.config.clone(),
            datacenter: datacenter.into(),
            listen: "127.0.0.1:0".into(),
            http: Some("127.0.0.1:0".into()),
            joiner,
            client: self.client().await,
            sources,
            records_per_second_max: RECORDS_PER_SECOND_MAX,
            chaos_delays: self.chaos,
        }
    }

    /// All roles of a datacenter; over a final list, or following.
    pub async fn roles(&self, datacenter: &str, sources: Option<SourceList>) -> Roles {
        let store = self.store(datacenter, sources.clone()).await;
        let joiner = self.joiner(datacenter, store.address.to_string(), sources.is_some()).await;
        let dispatcher = self.dispatcher(datacenter, joiner.address.to_string(), sources).await;
        Roles { store, joiner, dispatcher }
    }

    /// The joined lines of a datacenter that count, and how many of its outputs are sealed.
    pub fn output(&self, datacenter: &str) -> (Vec<Line>, usize) {
        let (mut lines, mut sealed) = (Vec::new(), 0);
        for directory in list_incarnations(&self.config.output_dir(datacenter)).unwrap() {
            let scan = scan_directory(&directory, DataCheck::Checksums).unwrap();
            match &scan.state {
                ScanState::Sealed => sealed += 1,
                ScanState::Unsealed => (),
                other @ (ScanState::Fencing | ScanState::Held { .. }) => panic!("{other:?}"),
            }
            scan.visit_rows(|rows| {
                let line = parse_line(rows.rows)?;
                assert_eq!((line.token.sequence, &line.key), (rows.sequence, rows.key));
                lines.push(Line {
                    primary_at: format!("{}:{}", line.primary_source, line.primary_offset),
                    click: String::from_utf8(line.click.to_vec()).unwrap(),
                    query: String::from_utf8(line.query.to_vec()).unwrap(),
                    key: line.key,
                });
                Ok::<(), OutputError>(())
            })
            .unwrap();
        }
        (lines, sealed)
    }

    pub fn ends(&self, datacenter: &str) -> BTreeMap<(String, u64), EndRecord> {
        ends::read(&self.config.dispatcher_dir(datacenter).join("ends")).unwrap()
    }
}

impl Roles {
    /// In the order of `--once`.
    pub async fn shutdown(self) -> dispatcher::Ledger {
        let ledger = self.dispatcher.shutdown().await.unwrap();
        self.joiner.shutdown().await.unwrap();
        self.store.shutdown().await;
        ledger
    }
}

/// A query record.
pub fn query(id: u64) -> String {
    format!("{{\"q\":\"q-{id}\",\"text\":\"shoes {id}\"}}\n")
}

/// A click record: of time `id` ms, so that each has another key.
pub fn click(id: u64, query: u64) -> String {
    format!("{{\"c\":\"c-{id}\",\"q\":\"q-{query}\",\"t\":{}}}\n", 1_700_000_000_000 + id)
}

pub fn key(id: u64) -> EventKey {
    EventKey::new((1_700_000_000_000 + id) * 1_000, format!("c-{id}").as_bytes()).unwrap()
}

/// Queries `0..queries`; clicks `0..clicks` on them, some on queries that are nowhere. Over two files
/// each. Returns the clicks that can be joined.
pub fn generate(world: &World, queries: u64, clicks: u64) -> BTreeSet<EventKey> {
    let mut logs = BTreeMap::<&str, String>::new();
    for id in 0..queries {
        logs.entry(if id % 3 == 0 { "queries/a" } else { "queries/b" }).or_default().push_str(&query(id));
    }
    let mut joinable = BTreeSet::new();
    for id in 0..clicks {
        // One in eight names a query that does not exist.
        let target = if id % 8 == 7 { queries + id } else { (id * 7) % queries };
        if target < queries {
            joinable.insert(key(id));
        }
        let log = logs.entry(if id % 5 == 0 { "clicks/a" } else { "clicks/b" }).or_default();
        write!(log, "{}", click(id, target)).unwrap();
    }
    for (log, text) in logs {
        world.append(log, &text);
    }
    joinable
}

/// Each of these is joined exactly once, over all the lines.
#[track_caller]
pub fn assert_exactly_once<'a>(lines: impl IntoIterator<Item = &'a Line>, joinable: &BTreeSet<EventKey>) {
    let mut seen = BTreeSet::new();
    for line in lines {
        assert!(seen.insert(line.key.clone()), "{} is in the output twice", line.key);
    }
    assert_eq!(seen.len(), joinable.len());
    assert_eq!(&seen, joinable);
}

//! Two datacenters with real files, over a registry that is a map: all that the verifier reads,
//! made by the code that the pipeline writes it with.

pub mod dispatcher;
pub mod registry;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use photon_format::config::Config;
use photon_format::cursor::{Counts, Cursor, Ended, SourceCursor};
use photon_format::ends::{EndRecord, EndState, EndsWriter};
use photon_format::output::{JoinedLine, LineEntry, Manifest, OutputOptions, OutputWriter, build_line};
use photon_format::retry::{RetryLimits, RetryStore};
use photon_format::source::SourceList;
use photon_types::{EventKey, Holder, Token};
use photon_verifier::{Endpoints, Options, Report, VerifyError};

use dispatcher::Inbox;
use registry::Table;

pub const DATACENTERS: [&str; 2] = ["east", "west"];

/// The name of the clicks' only source.
pub const CLICKS: &str = "clicks/log.ndjson";
/// The name of the queries' only source.
pub const QUERIES: &str = "queries/log.ndjson";

const CONFIG: &str = r#"
[cluster]
name = "test"
data-dir = "DIR/data"

[[registry.node]]
id = 1

[join]

[[join.input]]
name = "queries"
path = "DIR/queries"
framing = "ndjson"

[[join.input]]
name = "clicks"
path = "DIR/clicks"
framing = "ndjson"

[[join.stream]]
name = "queries"
role = "primary"
input = "queries"
id = "id"

[[join.stream]]
name = "clicks"
role = "foreign"
input = "clicks"
id = "id"
reference = "query"
time = { field = "time", forms = ["epoch-us"] }

[[datacenter]]
name = "east"

[[datacenter]]
name = "west"
"#;

/// A line of a log and where it begins.
#[derive(Clone)]
struct Logged {
    offset: u64,
    payload: String,
}

pub struct World {
    pub dir: tempfile::TempDir,
    pub config: Config,
    pub table: Arc<Mutex<Table>>,
    /// By datacenter.
    pub inboxes: BTreeMap<&'static str, Arc<Mutex<Inbox>>>,
    pub endpoints: Endpoints,
    clicks: Vec<Logged>,
    queries: Vec<Logged>,
    counts: BTreeMap<&'static str, Counts>,
}

impl World {
    /// Clicks `c0`, `c1` … each with a query of its own, `q0`, `q1` …; nothing joined yet.
    pub async fn new(clicks: usize) -> World {
        let dir = tempfile::tempdir().unwrap();
        for input in ["queries", "clicks"] {
            fs::create_dir(dir.path().join(input)).unwrap();
            fs::write(dir.path().join(input).join("log.ndjson"), "").unwrap();
        }
        let text = CONFIG.replace("DIR", dir.path().to_str().unwrap());
        let config = Config::parse(&text, Path::new("test.toml")).unwrap();
        let table = Arc::new(Mutex::new(Table::default()));
        let mut inboxes = BTreeMap::new();
        let mut dispatchers = Vec::new();
        for name in DATACENTERS {
            fs::create_dir_all(config.dispatcher_dir(name)).unwrap();
            let inbox = Arc::new(Mutex::new(Inbox::default()));
            let address = dispatcher::serve(inbox.clone(), config.dispatcher_dir(name).join("retry")).await;
            dispatchers.push((name.to_owned(), address));
            inboxes.insert(name, inbox);
        }
        let endpoints = Endpoints { registry: vec![registry::serve(table.clone()).await], dispatchers };
        let counts = DATACENTERS.into_iter().map(|name| (name, Counts::default())).collect();
        let mut world = World { dir, config, table, inboxes, endpoints, clicks: vec![], queries: vec![], counts };
        (0..clicks).for_each(|number| world.log_click(number));
        world.pass();
        world
    }

    fn log_path(&self, input: &str) -> PathBuf {
        self.dir.path().join(input).join("log.ndjson")
    }

    /// Appends the next click and its query to the logs.
    pub fn log_click(&mut self, number: usize) {
        let query = format!("{{\"id\":\"q{number}\", \"text\":\"größe {number}\"}}");
        let click = format!("{{\"time\":{},\"id\":\"c{number}\",\"query\":\"q{number}\"}}", 1_000_000 + number);
        let logged = append(&self.log_path("queries"), &query);
        self.queries.push(logged);
        self.log_click_line(&click);
    }

    /// Appends the next click, which names a query that is nowhere.
    pub fn log_click_without_query(&mut self, number: usize) {
        let click = format!("{{\"time\":{},\"id\":\"c{number}\",\"query\":\"none{number}\"}}", 1_000_000 + number);
        self.log_click_line(&click);
    }

    fn log_click_line(&mut self, click: &str) {
        let logged = append(&self.log_path("clicks"), click);
        self.clicks.push(logged);
        self.count(|counts| counts.read += 1);
    }

    /// Other lines in place of the clicks' log; the clicks have the places they had.
    pub fn replace_click_log(&mut self, lines: &[&str]) {
        self.count(|counts| counts.read = lines.len() as u64);
        fs::write(self.log_path("clicks"), lines.join("\n") + "\n").unwrap();
    }

    /// No query is in the input: not mounted, or not there yet.
    pub fn remove_queries(&mut self) {
        fs::write(self.log_path("queries"), "").unwrap();
    }

    /// The queries are there, again or at last.
    pub fn restore_queries(&mut self) {
        let text: String = self.queries.iter().map(|query| format!("{}\n", query.payload)).collect();
        fs::write(self.log_path("queries"), text).unwrap();
    }

    /// As they were, but for the last byte.
    pub fn restore_queries_without_last_line_end(&mut self) {
        let path = self.log_path("queries");
        let text = fs::read(&path).unwrap();
        fs::write(path, text.strip_suffix(b"\n").unwrap()).unwrap();
    }

    /// The disk of a retry store is lost.
    pub fn lose_retry(&self, datacenter: &str) {
        fs::remove_file(self.config.dispatcher_dir(datacenter).join("retry")).unwrap();
    }

    /// Appends a line to the clicks as it is: no click of a number.
    pub fn log_raw(&mut self, line: &str) -> u64 {
        self.count(|counts| counts.read += 1);
        append(&self.log_path("clicks"), line).offset
    }

    fn count(&mut self, change: impl Fn(&mut Counts)) {
        self.counts.values_mut().for_each(change);
    }

    /// Counts an end of one record in a datacenter.
    pub fn ended(&mut self, datacenter: &str, ended: Ended) {
        self.counts.get_mut(datacenter).unwrap().count(ended);
    }

    /// Both dispatchers are done with all that is logged, as their cursors say.
    pub fn pass(&self) {
        for name in DATACENTERS {
            self.pass_up_to(name, fs::metadata(self.log_path("clicks")).unwrap().len());
        }
    }

    /// A dispatcher's cursor stands there.
    pub fn pass_up_to(&self, datacenter: &str, offset: u64) {
        let list = SourceList::list(&self.config, self.config.datacenter(datacenter).unwrap()).unwrap();
        let identity = list.get(CLICKS).unwrap().identity;
        let counts = self.counts[datacenter];
        let source =
            SourceCursor { device: identity.device, inode: identity.inode, offset, counts, ..SourceCursor::default() };
        let cursor = Cursor { sources: BTreeMap::from([(CLICKS.to_owned(), source)]), retry_end: u64::MAX };
        cursor.save(&self.config.dispatcher_dir(datacenter).join("cursor")).unwrap();
    }

    pub fn key(&self, number: usize) -> EventKey {
        EventKey::new(1_000_000 + number as u64, format!("c{number}").as_bytes()).unwrap()
    }

    /// A new joiner's output.
    pub fn joiner(&self, datacenter: &str) -> OutputWriter {
        let manifest = Manifest::new("test", datacenter, "127.0.0.1:1").unwrap();
        OutputWriter::create(&self.config.output_dir(datacenter), &manifest, OutputOptions::default()).unwrap()
    }

    /// The attempt of a joiner on a click: its number is the click's.
    pub fn token(&self, joiner: &OutputWriter, number: usize) -> Token {
        Token { incarnation: joiner.incarnation(), sequence: number as u64 }
    }

    /// The insert without the line: what a crash of the joiner leaves.
    pub fn claim(&self, joiner: &OutputWriter, number: usize) {
        let holder = Holder::Token(self.token(joiner, number));
        let before = self.table.lock().unwrap().rows.insert(self.key(number), holder);
        assert_eq!(before, None, "the registry gives a click to one attempt");
    }

    /// The line as the joiner writes it.
    pub fn line(&self, joiner: &OutputWriter, number: usize) -> LineEntry {
        self.line_of(joiner, number, &self.clicks[number].payload, &self.queries[number].payload)
    }

    /// A line with other payloads.
    pub fn line_of(&self, joiner: &OutputWriter, number: usize, click: &str, query: &str) -> LineEntry {
        let key = self.key(number);
        let mut line = Vec::new();
        build_line(
            &JoinedLine {
                key: &key,
                token: self.token(joiner, number),
                primary_source: QUERIES,
                primary_offset: self.queries[number].offset,
                click: click.as_bytes(),
                query: query.as_bytes(),
            },
            &mut line,
        );
        LineEntry { sequence: number as u64, key, line }
    }

    /// Insert and line.
    pub fn join(&mut self, joiner: &mut OutputWriter, number: usize) {
        self.claim(joiner, number);
        joiner.write_block(&[self.line(joiner, number)]).unwrap();
    }

    /// Records an end in a datacenter; its key is none for a place.
    pub fn end(&mut self, datacenter: &str, number: usize, state: EndState) {
        let record = EndRecord {
            source: CLICKS.into(),
            offset: self.clicks[number].offset,
            key: Some(self.key(number)),
            state,
            reason: "test".into(),
        };
        self.end_record(datacenter, &record);
    }

    pub fn end_record(&mut self, datacenter: &str, record: &EndRecord) {
        let path = self.config.dispatcher_dir(datacenter).join("ends");
        EndsWriter::open(&path).unwrap().write([record]).unwrap();
        self.ended(datacenter, record.state.ended());
    }

    pub fn click_offset(&self, number: usize) -> u64 {
        self.clicks[number].offset
    }

    pub fn query_offset(&self, number: usize) -> u64 {
        self.queries[number].offset
    }

    pub fn click_payload(&self, number: usize) -> &str {
        &self.clicks[number].payload
    }

    /// The retry store of a datacenter: open it for a moment only.
    pub fn retry(&self, datacenter: &str) -> RetryStore {
        RetryStore::open(&self.config.dispatcher_dir(datacenter).join("retry"), RetryLimits::default()).unwrap()
    }

    /// A new joiner joins all that was re-injected anywhere, as the pipeline would.
    pub fn join_reinjected(&mut self, datacenter: &str) {
        let mut joiner = self.joiner(datacenter);
        for name in DATACENTERS {
            let mut store = self.retry(name);
            let pending: Vec<_> = store.content().iter().map(|(id, record)| (id, record.key.clone())).collect();
            for (id, key) in pending {
                let number = (0..self.clicks.len()).find(|number| self.key(*number) == key).unwrap();
                if !self.table.lock().unwrap().rows.contains_key(&key) {
                    self.join(&mut joiner, number);
                }
                store.done(id, Ended::Claimed).unwrap();
            }
            store.sync().unwrap();
        }
        joiner.seal().unwrap();
    }

    pub fn options(&self) -> Options {
        Options { answer_within: Duration::from_secs(60), ..Options::look(self.endpoints.clone()) }
    }

    pub async fn look(&self) -> Report {
        self.run(self.options()).await.unwrap()
    }

    pub async fn repair(&self) -> Report {
        self.run(Options { repair: true, ..self.options() }).await.unwrap()
    }

    pub async fn run(&self, options: Options) -> Result<Report, VerifyError> {
        photon_verifier::run(&self.config, options, |_| ()).await
    }

    /// All clicks that were sent back, by datacenter in order.
    pub fn comebacks(&self) -> usize {
        self.inboxes.values().map(|inbox| inbox.lock().unwrap().clicks.len()).sum()
    }

    pub fn holder(&self, number: usize) -> Option<Holder> {
        self.table.lock().unwrap().rows.get(&self.key(number)).copied()
    }
}

fn append(path: &Path, line: &str) -> Logged {
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    let offset = file.metadata().unwrap().len();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
    Logged { offset, payload: line.to_owned() }
}

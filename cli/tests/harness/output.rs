//! Reading what the tests judge by: the joined log as any JSON reader sees it, and the input.
//!
//! Not here: the project's own readers. The tests must not believe what they test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

/// A line of the joined log.
#[derive(Debug)]
pub struct Joined {
    /// Event time in microseconds.
    pub timestamp: u64,
    /// Event id.
    pub id: String,
    /// `source:offset` of the query.
    pub primary_at: String,
    /// The click's bytes.
    pub click: String,
    /// The query's bytes.
    pub query: String,
}

#[derive(Deserialize)]
struct Line<'a> {
    key: (u64, String),
    token: String,
    primary_at: String,
    #[serde(borrow)]
    click: &'a RawValue,
    #[serde(borrow)]
    query: &'a RawValue,
}

/// All lines of finished segments below these datacenters' outputs.
pub fn joined(data_dir: &Path, datacenters: &[&str]) -> Vec<Joined> {
    let mut lines = Vec::new();
    for datacenter in datacenters {
        for place in ["live", "sealed"] {
            for segment in segments(&data_dir.join(datacenter).join("output").join(place)) {
                let text = fs::read_to_string(&segment).expect("a segment is UTF-8");
                assert!(text.is_empty() || text.ends_with('\n'), "{} ends in a whole line", segment.display());
                lines.extend(text.lines().map(|line| parse(line, &segment)));
            }
        }
    }
    lines
}

fn parse(line: &str, segment: &Path) -> Joined {
    let Line { key: (timestamp, id), token, primary_at, click, query } =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {}: {line}", segment.display()));
    let incarnation = segment.parent().unwrap().file_name().unwrap().to_str().unwrap();
    assert!(token.starts_with(&format!("{incarnation}-")), "{token} in the directory of {incarnation}");
    Joined { timestamp, id, primary_at, click: click.get().to_owned(), query: query.get().to_owned() }
}

/// How many bytes lie in segments that are still written.
pub fn open_bytes(data_dir: &Path, datacenters: &[&str]) -> u64 {
    let outputs = datacenters.iter().map(|datacenter| data_dir.join(datacenter).join("output/live"));
    let files = outputs.flat_map(|live| files_of(&live, "open"));
    files.map(|file| fs::metadata(file).map_or(0, |found| found.len())).sum()
}

/// The finished segments of all incarnations in a directory.
fn segments(dir: &Path) -> Vec<PathBuf> {
    files_of(dir, "jsonl")
}

fn files_of(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let list = |dir: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).map(|entries| entries.flatten().map(|entry| entry.path()).collect());
        entries.unwrap_or_default()
    };
    let mut found: Vec<_> = list(dir).iter().flat_map(|incarnation| list(incarnation)).collect();
    found.retain(|path| path.extension().is_some_and(|found| found == extension));
    found.sort();
    found
}

/// The documents of a bulk log: of the clicks by id, of the queries by offset and by query id (the
/// first one).
#[derive(Default)]
pub struct Bulk {
    /// Click documents by `_id`.
    pub clicks: BTreeMap<String, String>,
    /// Query documents by `source:offset` of their action line.
    pub queries: BTreeMap<String, String>,
    /// Where the first query of an id stands.
    pub first_query: BTreeMap<String, String>,
}

impl Bulk {
    /// Reads files in the order of their names. `source_of` gives a file's source name.
    pub fn read(files: &[PathBuf], source_of: impl Fn(&Path) -> String) -> Bulk {
        let mut bulk = Bulk::default();
        for file in files {
            let text = fs::read_to_string(file).expect("the log is UTF-8");
            let source = source_of(file);
            let (mut offset, mut action) = (0, None);
            for line in text.split_inclusive('\n') {
                let value: Option<serde_json::Value> = serde_json::from_str(line).ok();
                match (action.take(), value) {
                    (None, Some(value)) if value.get("index").is_some() => action = Some((offset, value)),
                    (Some((at, action)), Some(document)) => bulk.take(&source, at, &action, line, &document),
                    (None | Some(_), _) => (),
                }
                offset += line.len();
            }
        }
        bulk
    }

    fn take(&mut self, source: &str, at: usize, action: &serde_json::Value, line: &str, document: &serde_json::Value) {
        let text = |value: Option<&serde_json::Value>| value.and_then(serde_json::Value::as_str).map(str::to_owned);
        let bytes = line.trim_end_matches('\n').to_owned();
        let place = format!("{source}:{at}");
        match text(action.pointer("/index/_index")).as_deref() {
            Some("ubi_queries") => {
                if let Some(id) = text(document.get("query_id")) {
                    self.first_query.entry(id).or_insert_with(|| place.clone());
                }
                self.queries.insert(place, bytes);
            }
            Some("ubi_events") => {
                if let Some(id) = text(action.pointer("/index/_id")) {
                    self.clicks.entry(id).or_insert(bytes);
                }
            }
            Some(_) | None => (),
        }
    }

    /// Every joined line is of these bytes: the click of its id, the first query of the id that the
    /// click names. And no click is there twice.
    #[track_caller]
    pub fn check(&self, lines: &[Joined]) {
        let mut seen = std::collections::BTreeSet::new();
        for line in lines {
            assert!(seen.insert((line.timestamp, &line.id)), "{} is in the output twice", line.id);
            assert_eq!(Some(&line.click), self.clicks.get(&line.id), "the click of {}", line.id);
            let click: serde_json::Value = serde_json::from_str(&line.click).unwrap();
            let reference = click["query_id"].as_str().expect("a joined click names a query");
            assert_eq!(Some(&line.primary_at), self.first_query.get(reference), "the place of {}'s query", line.id);
            assert_eq!(Some(&line.query), self.queries.get(&line.primary_at), "the query of {}", line.id);
        }
    }
}

/// The files of a generated log, in order.
pub fn log_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// What a generator's `oracle.tsv` says: id → (timestamp, state).
pub fn oracle(file: &Path) -> BTreeMap<String, (u64, String)> {
    let text = fs::read_to_string(file).unwrap();
    let row = |line: &str| {
        let fields: Vec<_> = line.split('\t').collect();
        (fields[1].to_owned(), (fields[0].parse().unwrap(), fields[2].to_owned()))
    };
    text.lines().skip(1).map(row).collect()
}

//! `photon generate`: logs in the form of OpenSearch UBI (bulk NDJSON), of any size, from a seed,
//! with the faults that real logs have, and an oracle of what must become of every click.
//!
//! Invariant: the same options give the same bytes. Memory holds a sliding window of records that
//! are due soon, never the whole log.
//!
//! Faults, after what was measured on public logs: a primary id that comes several times, clicks
//! before their query, orphans, null references, three forms of time, malformed lines, records
//! sent twice, most queries without a click, some queries with very many.

use std::collections::BinaryHeap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use photon_types::Prng;
use serde::Serialize;

use crate::exit::{self, Exit};

/// Options of `photon generate`.
#[derive(Args, Clone, Debug)]
pub struct GenerateArgs {
    /// Where to write: `logs/*.ndjson`, `oracle.tsv` and `oracle.json` below it.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// How many distinct clicks.
    #[arg(long, default_value_t = 10_000)]
    pub clicks: u64,
    /// Queries for each click: most queries of a real log never join.
    #[arg(long, default_value_t = 2)]
    pub queries_per_click: u64,
    /// Over how many files the log is spread, in time order.
    #[arg(long, default_value_t = 4)]
    pub files: u64,
    /// The same seed gives the same bytes.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What must become of the clicks, in total. Written to `oracle.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Oracle {
    /// Distinct clicks.
    pub keys: u64,
    /// Clicks whose query is in the log.
    pub joined: u64,
    /// Clicks whose query is not.
    pub unjoinable: u64,
    /// Clicks that name no query.
    pub dead_lettered: u64,
    /// Records of the click stream, or of no stream, that have no readable key.
    pub unkeyed: u64,
    /// Records sent twice: they count once.
    pub resent: u64,
    /// Queries, copies included.
    pub queries: u64,
}

/// 2026-01-05 08:00:00 UTC.
const START_MILLIS: u64 = 1_767_600_000_000;
/// Virtual time between two queries.
const QUERY_MILLIS: u64 = 7;
/// The furthest a record is written from the query it belongs to, in queries.
const DISTANCE_MAX: u64 = 20_000;

/// One record that waits for its turn. The heap gives the smallest (due, number) first.
struct Due {
    at: u64,
    number: u64,
    text: String,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// Runs the command.
pub fn run(args: &GenerateArgs) -> anyhow::Result<Exit> {
    let oracle = generate(args)?;
    println!("{}", serde_json::to_string(&oracle)?);
    Ok(Exit::Ok)
}

/// Writes the logs and the oracle.
pub fn generate(args: &GenerateArgs) -> anyhow::Result<Oracle> {
    for (name, value) in
        [("--clicks", args.clicks), ("--files", args.files), ("--queries-per-click", args.queries_per_click)]
    {
        if value == 0 {
            return Err(exit::error(Exit::Usage, format!("{name} must be at least 1")));
        }
    }
    let logs = args.out.join("logs");
    fs::create_dir_all(&logs).with_context(|| format!("can not make the directory {}", logs.display()))?;
    if fs::read_dir(&logs)?.next().is_some() {
        let message = format!("{} is not empty: name another --out, or remove it", logs.display());
        return Err(exit::error(Exit::Usage, message));
    }
    let mut generator = Generator::new(args, &logs)?;
    let queries = args.clicks.saturating_mul(args.queries_per_click);
    for query in 0..queries {
        generator.write_due(query)?;
        let clicks_left = args.clicks - generator.oracle.keys;
        let queries_left = queries - query;
        generator.query(query, clicks_left, queries_left)?;
    }
    generator.write_due(u64::MAX)?;
    generator.finish(&args.out)
}

struct Generator {
    prng: Prng,
    due: BinaryHeap<Due>,
    records: u64,
    files: Vec<BufWriter<File>>,
    records_per_file: u64,
    written: u64,
    oracle_rows: BufWriter<File>,
    oracle: Oracle,
}

impl Generator {
    fn new(args: &GenerateArgs, logs: &Path) -> anyhow::Result<Generator> {
        let create = |path: PathBuf| -> anyhow::Result<BufWriter<File>> {
            let file = File::create_new(&path).with_context(|| format!("can not make {}", path.display()))?;
            Ok(BufWriter::with_capacity(1 << 18, file))
        };
        let files = (0..args.files)
            .map(|number| create(logs.join(format!("ubi-{:04}.ndjson", number + 1))))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut oracle_rows = create(args.out.join("oracle.tsv"))?;
        writeln!(oracle_rows, "timestamp_us\tid\tstate\treference\tquery_response_id")?;
        let records = args.clicks.saturating_mul(args.queries_per_click.saturating_add(1));
        Ok(Generator {
            prng: Prng::new(args.seed),
            due: BinaryHeap::new(),
            records: 0,
            files,
            // A few more records than that are written; the last file takes them.
            records_per_file: records.div_ceil(args.files),
            written: 0,
            oracle_rows,
            oracle: Oracle::default(),
        })
    }

    /// One query with its copies and its clicks.
    fn query(&mut self, number: u64, clicks_left: u64, queries_left: u64) -> anyhow::Result<()> {
        let query_id = self.uuid();
        let millis = START_MILLIS + number * QUERY_MILLIS;
        let orphan = self.one_in(8);
        let copies = if self.one_in(10) { 3 } else { 1 };
        // The copy that is written first wins; later ones carry another text, as in real logs.
        let mut first_response = String::new();
        let at = number + DISTANCE_MAX / 100;
        for copy in 0..copies {
            let response = self.uuid();
            if copy == 0 {
                first_response.clone_from(&response);
            }
            let copy_millis = millis + copy * 40;
            let text = self.query_record(&query_id, &response, copy_millis);
            if orphan {
                continue;
            }
            let later = if copy == 0 { 0 } else { 1 + self.prng.below(DISTANCE_MAX / 2) };
            self.schedule(at + later, text);
            self.oracle.queries += 1;
        }
        for _ in 0..self.clicks_of_query(clicks_left, queries_left) {
            self.click(&query_id, if orphan { None } else { Some(&first_response) }, at, millis)?;
        }
        if self.one_in(400) {
            self.malformed(at);
        }
        Ok(())
    }

    /// So many that all clicks are given out when the queries end; a few queries get very many.
    fn clicks_of_query(&mut self, clicks_left: u64, queries_left: u64) -> u64 {
        if queries_left == 1 {
            return clicks_left;
        }
        let wanted = if self.prng.below(queries_left) < clicks_left {
            if self.one_in(50) { 1 + self.prng.below(40) } else { 1 + self.prng.below(2) }
        } else {
            0
        };
        wanted.min(clicks_left)
    }

    fn click(
        &mut self,
        query_id: &str,
        response: Option<&str>,
        query_at: u64,
        query_millis: u64,
    ) -> anyhow::Result<()> {
        let id = self.uuid();
        let null = self.one_in(500);
        // One in twenty is written before its query; most soon after it; a few much later.
        let (at, millis) = if self.one_in(20) {
            (query_at - self.prng.below(DISTANCE_MAX / 100), query_millis - self.prng.below(13_000))
        } else {
            let far = if self.one_in(30) { DISTANCE_MAX } else { 200 };
            let distance = self.prng.below(far);
            (query_at + distance, query_millis + distance * QUERY_MILLIS + self.prng.below(1_000))
        };
        let text = self.event_record(&id, if null { None } else { Some(query_id) }, millis);
        let state = match (null, response) {
            (true, _) => "dead_lettered",
            (false, Some(_)) => "joined",
            (false, None) => "unjoinable",
        };
        self.oracle.keys += 1;
        match state {
            "joined" => self.oracle.joined += 1,
            "unjoinable" => self.oracle.unjoinable += 1,
            _ => self.oracle.dead_lettered += 1,
        }
        let (reference, response) = if null { ("", "") } else { (query_id, response.unwrap_or_default()) };
        writeln!(self.oracle_rows, "{}\t{id}\t{state}\t{reference}\t{response}", millis * 1_000)
            .context("can not write the oracle")?;
        if self.one_in(200) {
            self.oracle.resent += 1;
            let later = at + self.prng.below(DISTANCE_MAX / 10);
            self.schedule(later, text.clone());
        }
        self.schedule(at, text);
        Ok(())
    }

    /// A record of the click stream, or of none, that can not have a key.
    fn malformed(&mut self, at: u64) {
        let id = self.uuid();
        let millis = START_MILLIS + at * QUERY_MILLIS;
        let whole = self.event_record(&id, Some("0d0c8a52-0000-4000-8000-000000000000"), millis);
        let text = match self.prng.below(5) {
            // Cut in the middle of the document; the newline is there.
            0 => format!("{}\n", &whole[..whole.len() - 30]),
            // A time that is none.
            1 => self.event_record_at(&id, Some("0d0c8a52-0000-4000-8000-000000000000"), "\"NA\""),
            // An id that is too long.
            2 => self.event_record(&"x".repeat(101), Some("0d0c8a52-0000-4000-8000-000000000000"), millis),
            // An empty id.
            3 => self.event_record("", Some("0d0c8a52-0000-4000-8000-000000000000"), millis),
            // A line that is no action; the next one is tried as an action.
            _ => "# rotated by the shop\n".to_owned(),
        };
        self.oracle.unkeyed += 1;
        self.schedule(at, text);
    }

    fn query_record(&mut self, query_id: &str, response: &str, millis: u64) -> String {
        const WORDS: [&str; 8] =
            ["laptop", "futon frame", "ps4", "portable \\u00e9charger", "tea", "\\\"quoted\\\"", "bike / lamp", ""];
        let word = WORDS[usize::try_from(self.prng.below(8)).expect("below 8")];
        let (action, client, time) = (self.uuid(), self.uuid(), self.time(millis));
        format!(
            "{{\"index\": {{\"_index\": \"ubi_queries\", \"_id\": \"{action}\"}}}}\n{{\"application\": \"generated\", \
             \"query_id\": \"{query_id}\", \"client_id\": \"{client}\", \"user_query\": \"{word}\", \
             \"query_attributes\": {{}}, \"query_response_id\": \"{response}\", \"timestamp\": {time}}}\n"
        )
    }

    fn event_record(&mut self, id: &str, query_id: Option<&str>, millis: u64) -> String {
        let time = self.time(millis);
        self.event_record_at(id, query_id, &time)
    }

    fn event_record_at(&mut self, id: &str, query_id: Option<&str>, time: &str) -> String {
        const ACTIONS: [&str; 4] = ["click", "item_click", "add_to_cart", "purchase"];
        let action = ACTIONS[usize::try_from(self.prng.below(4)).expect("below 4")];
        let query_id = query_id.map_or("null".to_owned(), |id| format!("\"{id}\""));
        let (session, object, ordinal) = (self.uuid(), self.prng.below(1_000_000), self.prng.below(24));
        format!(
            "{{\"index\": {{\"_index\": \"ubi_events\", \"_id\": \"{id}\"}}}}\n{{\"application\": \"generated\", \
             \"action_name\": \"{action}\", \"query_id\": {query_id}, \"session_id\": \"{session}\", \
             \"timestamp\": {time}, \"message_type\": null, \"event_attributes\": {{\"object\": \
             {{\"object_id\": \"B{object:07}\"}}, \"position\": {{\"ordinal\": {ordinal}}}}}}}\n"
        )
    }

    /// One of the three forms that one real file mixes.
    fn time(&mut self, millis: u64) -> String {
        let signed = i64::try_from(millis).expect("a time near the start");
        let instant = jiff::Timestamp::from_millisecond(signed).expect("a time near the start");
        match self.prng.below(3) {
            0 => format!("\"{}\"", instant.strftime("%Y-%m-%dT%H:%M:%S.%3fZ")),
            1 => format!("\"{}\"", instant.strftime("%Y-%m-%dT%H:%M:%S.%3f+0000")),
            _ => millis.to_string(),
        }
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.prng.below(of) == 0
    }

    fn uuid(&mut self) -> String {
        let (high, low) = (self.prng.next_u64(), self.prng.next_u64());
        let (a, b, c, d, e) =
            (high >> 32, high >> 16 & 0xffff, high & 0xfff, low >> 48 & 0x3fff, low & 0xffff_ffff_ffff);
        format!("{a:08x}-{b:04x}-4{c:03x}-{:04x}-{e:012x}", d | 0x8000)
    }

    fn schedule(&mut self, at: u64, text: String) {
        self.records += 1;
        self.due.push(Due { at, number: self.records, text });
    }

    /// Writes what is due before `now`.
    fn write_due(&mut self, now: u64) -> anyhow::Result<()> {
        while self.due.peek().is_some_and(|due| due.at < now) {
            let due = self.due.pop().expect("it was there");
            let file = usize::try_from(self.written / self.records_per_file)?.min(self.files.len() - 1);
            self.files[file].write_all(due.text.as_bytes()).context("can not write the log")?;
            self.written += 1;
        }
        Ok(())
    }

    fn finish(mut self, out: &Path) -> anyhow::Result<Oracle> {
        for file in &mut self.files {
            file.flush().context("can not write the log")?;
        }
        self.oracle_rows.flush().context("can not write the oracle")?;
        let path = out.join("oracle.json");
        let text = format!("{}\n", serde_json::to_string(&self.oracle)?);
        fs::write(&path, text).with_context(|| format!("can not write {}", path.display()))?;
        Ok(self.oracle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(out: &Path, seed: u64) -> GenerateArgs {
        GenerateArgs { out: out.to_owned(), clicks: 3_000, queries_per_click: 2, files: 3, seed }
    }

    fn all_bytes(out: &Path) -> Vec<u8> {
        let names =
            ["logs/ubi-0001.ndjson", "logs/ubi-0002.ndjson", "logs/ubi-0003.ndjson", "oracle.tsv", "oracle.json"];
        names.iter().flat_map(|name| fs::read(out.join(name)).unwrap()).collect()
    }

    #[test]
    fn one_seed_gives_one_log() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let oracle = generate(&args(dirs[0].path(), 7)).unwrap();
        assert_eq!(generate(&args(dirs[1].path(), 7)).unwrap(), oracle);
        assert_eq!(all_bytes(dirs[0].path()), all_bytes(dirs[1].path()));
        generate(&args(dirs[2].path(), 8)).unwrap();
        assert_ne!(all_bytes(dirs[0].path()), all_bytes(dirs[2].path()));
    }

    #[test]
    fn the_log_has_every_fault_and_the_oracle_adds_up() {
        let dir = tempfile::tempdir().unwrap();
        let oracle = generate(&args(dir.path(), 3)).unwrap();
        assert_eq!(oracle.keys, 3_000);
        assert_eq!(oracle.keys, oracle.joined + oracle.unjoinable + oracle.dead_lettered);
        for (fault, count) in [
            ("orphans", oracle.unjoinable),
            ("null references", oracle.dead_lettered),
            ("malformed", oracle.unkeyed),
            ("sent twice", oracle.resent),
        ] {
            assert!(0 < count, "no {fault}");
        }
        let rows = fs::read_to_string(dir.path().join("oracle.tsv")).unwrap();
        assert_eq!(rows.lines().count(), 3_001);
    }

    #[test]
    fn a_directory_with_logs_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        generate(&args(dir.path(), 3)).unwrap();
        let error = generate(&args(dir.path(), 3)).unwrap_err();
        assert!(error.to_string().contains("is not empty"), "{error}");
    }
}

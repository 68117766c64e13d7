//! Bad input gets an answer: what is wrong, where, and what to do; an exit code that says which
//! kind; and nothing that was good is lost.

mod harness;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Output;

use harness::{System, last_json, photon, root, run};

/// The command ended with this code, and said all of this.
#[track_caller]
fn check(output: &Output, code: i32, said: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    for text in said {
        assert!(stderr.contains(text), "{text:?} is not in:\n{stderr}");
    }
    assert!(!stderr.contains("panicked"), "{stderr}");
}

/// `photon dev --once` over these records.
fn dev_once(dir: &Path, config: &Path, records: &str) -> Output {
    let logs = dir.join("logs");
    fs::create_dir_all(&logs).unwrap();
    fs::write(logs.join("a.ndjson"), records).unwrap();
    let mut command = photon();
    command.args(["dev", "--once", "--format", "json", "--config"]).arg(config);
    run(command.arg("--input").arg(&logs).arg("--data-dir").arg(dir.join("data")))
}

fn example() -> PathBuf {
    root().join("deploy/examples/ubi.toml")
}

/// The example with one text in place of another.
fn changed(dir: &Path, from: &str, to: &str) -> PathBuf {
    let text = fs::read_to_string(example()).unwrap();
    assert!(text.contains(from), "the example does not say {from:?}");
    let file = dir.join("changed.toml");
    fs::write(&file, text.replacen(from, to, 1)).unwrap();
    file
}

const QUERY: &str = r#"{"index": {"_index": "ubi_queries", "_id": "a"}}
{"query_id": "q1", "timestamp": "2025-01-01T00:00:00Z"}
"#;

fn click(id: &str, time: &str) -> String {
    format!(
        "{{\"index\": {{\"_index\": \"ubi_events\", \"_id\": \"{id}\"}}}}\n\
         {{\"query_id\": \"q1\", \"timestamp\": {time}}}\n"
    )
}

#[test]
fn an_unknown_key_is_named_with_what_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let config = changed(dir.path(), "window = \"3d\"", "windwo = \"3d\"");
    let output = dev_once(dir.path(), &config, QUERY);
    check(&output, 2, &["changed.toml", "join", "windwo", "unknown field", "`window`"]);
}

#[test]
fn a_bad_value_is_named_with_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let config = changed(dir.path(), "cache = \"256MiB\"", "cache = \"4 gigs\"");
    check(&dev_once(dir.path(), &config, QUERY), 2, &["changed.toml", "join.cache", "4 gigs", "MiB"]);
}

#[test]
fn ids_from_positions_need_one_datacenter() {
    let dir = tempfile::tempdir().unwrap();
    let config = changed(dir.path(), "id = \"@id\"", "id = \"@position\"");
    check(&dev_once(dir.path(), &config, QUERY), 2, &["join.stream[1].id", "file positions", "2 datacenters"]);
}

#[test]
fn missing_files_are_named() {
    let output = run(photon().args(["dev", "--once", "--config", "no-such.toml"]));
    check(&output, 2, &["no-such.toml"]);
    let mut command = photon();
    command.args(["dev", "--once", "--input", "no-such.ndjson", "--config"]).arg(example());
    let output = run(&mut command);
    assert_ne!(output.status.code(), Some(0));
    check(&output, output.status.code().unwrap(), &["no-such.ndjson"]);
}

#[test]
fn malformed_records_are_dead_letters_and_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = QUERY.to_owned();
    records += &click("good-1", "\"2025-01-01T00:00:01Z\"");
    records += &click(&"x".repeat(101), "\"2025-01-01T00:00:01Z\"");
    records += &click("late", "\"NA\"");
    records += &click("cut", "\"2025-01-01T00:00:01Z\"").replace("}\n{\"query_id\": \"q1\", ", "}\n{\"query_i\n#");
    records += "no action at all\n";
    records += &click("good-2", "1735689602000");
    records += &click("unfinished", "1735689602000").replace("2000}\n", "20");
    let output = dev_once(dir.path(), &example(), &records);
    check(&output, 0, &[]);
    let ledger = last_json(&output);
    assert_eq!(ledger["joined"], 2, "{ledger}");
    assert_eq!(ledger["keys"], 2, "{ledger}");
    assert_eq!(ledger["lost"], 0, "{ledger}");
    // The id, the time, the document, what is left of its line, and the line that is no action.
    assert_eq!(ledger["unkeyed"], 5, "{ledger}");

    // Each can be looked at, with its place, the reason and its bytes.
    let config =
        changed(dir.path(), "data-dir = \"photon-data\"", &format!("data-dir = {:?}", dir.path().join("data")));
    let output = run(photon().args(["inspect", "ends", "--datacenter", "east", "--config"]).arg(&config));
    check(&output, 0, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let ends: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(ends.len(), 5, "{text}");
    for end in &ends {
        assert_eq!(end["state"], "dead-lettered", "{end}");
        assert_ne!(end["reason"], "", "{end}");
        let (offset, raw) = (end["offset"].as_u64().unwrap() as usize, end["raw"].as_str().unwrap());
        assert!(records[offset..].starts_with(raw.trim_end()), "{end}");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let system = System::new(dir.path(), &["east"]);
    let text = fs::read_to_string(system.config()).unwrap();
    let address = text.lines().find_map(|line| line.strip_prefix("client = \"")).unwrap().trim_end_matches('"');
    let _held = TcpListener::bind(address).unwrap();
    check(&system.photon(&["registry", "--node", "1"]), 1, &[address, "in use"]);
}

#[test]
fn a_data_directory_is_one_nodes_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut system = System::new(dir.path(), &["east"]);
    let registries: Vec<_> = (1..=3).map(|node| format!("registry-{node}")).collect();
    system.start(&registries);

    // In use: another process, other ports, the same directory.
    let other = System::new(&dir.path().join("other"), &["east"]);
    let node_1 = dir.path().join("data/registry/1").display().to_string();
    let output = other.photon(&["registry", "--node", "1", "--data-dir", &node_1]);
    check(&output, 7, &[&node_1, "another process"]);

    // Another node's.
    system.take("registry-1").terminate();
    let output = other.photon(&["registry", "--node", "2", "--data-dir", &node_1]);
    check(&output, 7, &[&node_1, "node 1", "node 2"]);
}

#[test]
fn a_node_of_another_cluster_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let registries: Vec<_> = (1..=3).map(|node| format!("registry-{node}")).collect();
    let mut first = System::new(&dir.path().join("first"), &["east"]);
    let mut second = System::new(&dir.path().join("second"), &["east"]);
    for system in [&mut first, &mut second] {
        system.start(&registries);
        // It serves; a cluster is born when its leader answers.
        harness::await_leader(system);
    }
    first.take("registry-3").terminate();
    second.take("registry-3").terminate();
    let theirs = dir.path().join("second/data/registry/3").display().to_string();
    let output = first.photon(&["registry", "--node", "3", "--data-dir", &theirs]);
    check(&output, 7, &[&theirs, "cluster"]);
}

#[test]
fn key_rules_that_differ_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut system = System::new(dir.path(), &["east", "west"]);
    let mut names: Vec<_> = (1..=3).map(|node| format!("registry-{node}")).collect();
    names.push("east-joiner".to_owned());
    system.start(&names);
    let text = fs::read_to_string(system.config()).unwrap();
    let other = dir.path().join("other.toml");
    fs::write(&other, text.replace("id = \"@id\"", "id = \"session_id\"")).unwrap();
    for role in ["joiner", "dispatcher"] {
        let output = run(photon().args([role, "--datacenter", "west", "--config"]).arg(&other));
        check(&output, 2, &["key rules", "events.id", "session_id", "@id"]);
    }
    let output = run(photon().args(["verify", "--config"]).arg(&other));
    check(&output, 2, &["key rules", "events.id"]);
}

#[test]
fn a_damaged_journal_names_file_and_offset() {
    let dir = tempfile::tempdir().unwrap();
    let records = QUERY.to_owned() + &click("good-1", "\"2025-01-01T00:00:01Z\"");
    check(&dev_once(dir.path(), &example(), &records), 0, &[]);
    let journal = dir.path().join("data/registry/2/journal");
    let mut segments: Vec<_> = fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.sort_by_key(|segment| fs::metadata(segment).unwrap().len());
    let longest = segments.pop().unwrap();
    let mut bytes = fs::read(&longest).unwrap();
    assert!(2 * 4096 < bytes.len(), "the segment has several groups");
    bytes[4096 + 100] ^= 1;
    fs::write(&longest, bytes).unwrap();
    let output = dev_once(dir.path(), &example(), &records);
    check(&output, 5, &[&longest.display().to_string(), "4096"]);
}

#[test]
fn nobody_answers_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let system = System::new(dir.path(), &["east"]);
    check(&system.photon(&["admin status"]), 4, &["no node answered"]);
    check(&system.photon(&["verify"]), 4, &["registry"]);
}

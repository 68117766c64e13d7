//! `photon dev --once`: three replicas and two datacenters in one process, over real and generated
//! logs, with shuffled schedules. What is joined is compared byte for byte with the input.

mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Instant;

use harness::output::{self, Bulk};
use harness::{last_json, photon, root, run, shared_data};

const DATACENTERS: [&str; 2] = ["east", "west"];

fn dev_once(input: &Path, data_dir: &Path, chaos: Option<u64>) -> Output {
    let mut command = photon();
    command.args(["dev", "--once", "--format", "json", "--config"]).arg(root().join("deploy/examples/ubi.toml"));
    command.arg("--input").arg(input).arg("--data-dir").arg(data_dir);
    if let Some(seed) = chaos {
        command.args(["--chaos-delays", &seed.to_string()]);
    }
    run(&mut command)
}

#[track_caller]
fn check_ledger(output: &Output, want: &[(&str, u64)]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stderr}", output.status);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout.lines().count(), 1, "only the ledger goes to stdout: {stdout}");
    let ledger = last_json(output);
    let found: BTreeMap<_, _> = want.iter().map(|(name, _)| (*name, ledger[name].as_u64())).collect();
    let want: BTreeMap<_, _> = want.iter().map(|(name, count)| (*name, Some(*count))).collect();
    assert_eq!(found, want, "{ledger}\n{stderr}");
}

#[test]
fn real_logs_are_joined_exactly_once_three_times_over() {
    let Some(raw) = shared_data("ubi_chorus/raw/ubi_queries_events.ndjson") else { return };
    let pairs = fs::read_to_string(shared_data("ubi_chorus/expected_pairs.tsv").unwrap()).unwrap();
    let expected: BTreeSet<String> = pairs
        .lines()
        .skip(1)
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .filter(|row| row[3] != "0")
        .map(|row| row[1].to_owned())
        .collect();
    assert_eq!(expected.len(), 2502);
    let bulk = Bulk::read(std::slice::from_ref(&raw), |_| "shop/ubi_queries_events.ndjson".to_owned());
    for seed in [1, 2, 3] {
        let dir = tempfile::tempdir().unwrap();
        let output = dev_once(&raw, dir.path(), Some(seed));
        check_ledger(
            &output,
            &[
                ("keys", 3448),
                ("joined", 2502),
                ("unjoinable", 944),
                ("dead_lettered", 2),
                ("filtered", 0),
                ("expired", 0),
                ("held", 0),
                ("pending", 0),
                ("duplicates", 0),
                ("lost", 0),
                ("unkeyed", 0),
            ],
        );
        let lines = output::joined(dir.path(), &DATACENTERS);
        bulk.check(&lines);
        let ids: BTreeSet<String> = lines.into_iter().map(|line| line.id).collect();
        assert_eq!(ids, expected, "seed {seed}");
    }
}

fn generate(dir: &Path, clicks: u64, seed: u64) -> (PathBuf, serde_json::Value) {
    let mut command = photon();
    command.args(["generate", "--clicks", &clicks.to_string(), "--seed", &seed.to_string(), "--out"]).arg(dir);
    let oracle = last_json(&run(&mut command));
    (dir.join("logs"), oracle)
}

#[test]
fn generated_logs_come_out_as_the_oracle_says() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, oracle) = generate(&dir.path().join("input"), 200_000, 11);
    let output = dev_once(&logs, &dir.path().join("data"), Some(4));
    let count = |name: &str| oracle[name].as_u64().unwrap();
    let names = ["keys", "joined", "unjoinable", "dead_lettered", "unkeyed"];
    let zero = ["filtered", "expired", "held", "pending", "duplicates", "lost"];
    let want: Vec<_> = names.map(|name| (name, count(name))).into_iter().chain(zero.map(|name| (name, 0))).collect();
    check_ledger(&output, &want);

    let files = output::log_files(&logs);
    let bulk = Bulk::read(&files, |file| format!("shop/{}", file.file_name().unwrap().to_str().unwrap()));
    let lines = output::joined(&dir.path().join("data"), &DATACENTERS);
    bulk.check(&lines);
    let expected: BTreeSet<_> = output::oracle(&dir.path().join("input/oracle.tsv"))
        .into_iter()
        .filter(|(_, (_, state))| state == "joined")
        .map(|(id, (timestamp, _))| (timestamp, id))
        .collect();
    let found: BTreeSet<_> = lines.into_iter().map(|line| (line.timestamp, line.id)).collect();
    assert!(found == expected, "{} joined, {} expected", found.len(), expected.len());
}

#[test]
fn a_second_run_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, oracle) = generate(&dir.path().join("input"), 2_000, 5);
    let data = dir.path().join("data");
    for _ in 0..2 {
        let output = dev_once(&logs, &data, None);
        check_ledger(&output, &[("joined", oracle["joined"].as_u64().unwrap()), ("duplicates", 0), ("lost", 0)]);
    }
    let lines = output::joined(&data, &DATACENTERS);
    assert_eq!(lines.len() as u64, oracle["joined"].as_u64().unwrap());
}

#[test]
fn what_a_killed_run_has_lost_the_next_one_repairs() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, oracle) = generate(&dir.path().join("input"), 30_000, 6);
    let data = dir.path().join("data");
    let mut command = photon();
    command.args(["dev", "--once", "--format", "json", "--config"]).arg(root().join("deploy/examples/ubi.toml"));
    command.arg("--input").arg(&logs).arg("--data-dir").arg(&data).stdout(Stdio::null()).stderr(Stdio::null());
    let mut killed = command.spawn().unwrap();
    // Killed as soon as a line is joined somewhere, so that both outputs are open and work is under way.
    let has_lines = || output::open_bytes(&data, &DATACENTERS) > 0;
    let end = Instant::now() + harness::PATIENCE;
    while !has_lines() {
        assert!(Instant::now() < end && killed.try_wait().unwrap().is_none(), "nothing was joined");
        std::thread::yield_now();
    }
    killed.kill().unwrap();
    killed.wait().unwrap();

    let output = dev_once(&logs, &data, None);
    let count = |name: &str| oracle[name].as_u64().unwrap();
    check_ledger(&output, &[("joined", count("joined")), ("pending", 0), ("lost", 0), ("held", 0), ("duplicates", 0)]);
    let lines = output::joined(&data, &DATACENTERS);
    assert_eq!(lines.len() as u64, count("joined"));
}

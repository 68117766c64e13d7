//! The demo, and the README that shows it: what the README prints is what the demo prints.

mod harness;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use harness::{photon, root, run};

/// What stands between the fences of the README's block that begins with this command.
fn block(command: &str) -> Vec<String> {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let start = format!("```console\n$ {command}\n");
    let (_, rest) = readme.split_once(&start).unwrap_or_else(|| panic!("README.md has no block {command:?}"));
    let (block, _) = rest.split_once("```").expect("a block ends");
    block.lines().map(str::to_owned).collect()
}

/// A line without what differs between runs: the time in front, and how far west had read when it
/// was killed and what had to be repaired.
fn without_chance(line: &str) -> String {
    let line =
        line.split_once(" s  ").filter(|(time, _)| time.trim().parse::<f64>().is_ok()).map_or(line, |(_, it)| it);
    if line.contains("kill -9") || line.contains("repaired") {
        return line.chars().filter(|c| !c.is_ascii_digit()).collect();
    }
    line.to_owned()
}

#[test]
fn the_readme_shows_what_the_demo_prints() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(photon().args(["demo", "--dir"]).arg(dir.path().join("photon-demo")));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    let printed: BTreeSet<_> = stdout.lines().map(without_chance).collect();
    for line in block("make demo") {
        assert!(printed.contains(&without_chance(&line)), "the README says {line:?}, the demo says:\n{stdout}");
    }
}

#[test]
fn a_used_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mine"), "keep").unwrap();
    let output = run(photon().args(["demo", "--dir"]).arg(dir.path()));
    assert_eq!(output.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not empty"));
}

#[test]
fn the_readmes_commands_are_there() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let help = String::from_utf8(run(photon().arg("--help")).stdout).unwrap();
    for role in ["dev", "registry", "event-store", "joiner", "dispatcher", "verify", "demo"] {
        assert!(readme.contains(role), "the README does not name {role}");
        assert!(help.contains(&format!("  {role}")), "photon has no command {role}:\n{help}");
        let output = run(photon().args([role, "--help"]));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("Exit codes:"), "photon {role} --help does not say the exit codes");
    }
    for file in ["deploy/examples/ubi.toml", "docs/architecture.md"] {
        assert!(Path::new(&root()).join(file).exists());
    }
}

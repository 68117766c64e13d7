//! Protocol stories: commands, `----`, and the full trace of what the replicas did.
//!
//! Each file in `scenarios/` tells one rule. The trace is compared whole, so the diff of an
//! intended change is its review; `REWRITE=1 cargo test` refreshes the files.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the harness reads files; the core does not")]

#[allow(dead_code, reason = "the harness also walks at random")]
mod world;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use world::World;

/// Runs the blocks of a file and returns the file as it should be.
fn run(text: &str) -> String {
    let mut world = World::default();
    let mut told = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        told.push_str(line);
        told.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut commands = vec![line];
        for line in lines.by_ref() {
            told.push_str(line);
            told.push('\n');
            if line == "----" {
                break;
            }
            commands.push(line);
        }
        // The old trace ends at an empty line.
        while lines.next_if(|line| !line.is_empty()).is_some() {}
        for command in commands.into_iter().filter(|command| !command.starts_with('#')) {
            match world.run(command) {
                Ok(trace) => told.push_str(&trace),
                Err(error) => writeln!(told, "error: {error}").expect("a string takes all"),
            }
        }
    }
    told
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the folder of scenarios is part of the crate")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    files
}

#[test]
fn scenarios() {
    let rewrite = std::env::var("REWRITE").is_ok_and(|value| value == "1");
    let files = files();
    assert!(20 <= files.len(), "only {} scenarios were found", files.len());
    let mut failed = Vec::new();
    for path in &files {
        let text = std::fs::read_to_string(path).expect("a scenario can be read");
        let told = run(&text);
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        for (line, text) in told.lines().enumerate().filter(|(_, text)| text.starts_with("error: ")) {
            failed.push(format!("{name}:{}: {text}", line + 1));
        }
        if rewrite && told != text {
            std::fs::write(path, &told).expect("a scenario can be written");
        } else if told != text {
            let differs = text.lines().zip(told.lines()).position(|(old, new)| old != new);
            let line = differs.unwrap_or_else(|| text.lines().count().min(told.lines().count()));
            failed.push(format!(
                "{name}:{}\n  expected {:?}\n  found    {:?}",
                line + 1,
                text.lines().nth(line),
                told.lines().nth(line)
            ));
        }
    }
    assert!(failed.is_empty(), "REWRITE=1 refreshes, if the new traces are right:\n{}", failed.join("\n"));
}

/// The harness itself: a trace that is not the expected one is found.
#[test]
fn a_wrong_trace_is_noticed() {
    let right = "cluster 1\n----\nok\n";
    assert_eq!(run(right), right);
    assert_eq!(run("cluster 1\n----\nwrong\n"), right);
}

/// Every rule that a mutant breaks is pinned: some story goes otherwise with it, or ends in an
/// assertion.
#[cfg(feature = "mutants")]
#[test]
fn every_mutant_changes_a_story() {
    let stories: Vec<String> =
        files().iter().map(|path| std::fs::read_to_string(path).expect("a scenario can be read")).collect();
    std::panic::set_hook(Box::new(|_| ()));
    let is_noticed = |story: &String, mutant: &str| {
        let mutated: String = story
            .lines()
            .map(|line| match line.starts_with("cluster ") {
                true => format!("{line} mutant={mutant}\n"),
                false => format!("{line}\n"),
            })
            .collect();
        std::panic::catch_unwind(|| run(&mutated) != mutated).unwrap_or(true)
    };
    let mutants = photon_core::Mutant::ALL.map(|mutant| format!("{mutant:?}"));
    let unnoticed: Vec<&String> =
        mutants.iter().filter(|mutant| !stories.iter().any(|story| is_noticed(story, mutant))).collect();
    // Without a mutant no story changes.
    let changed = stories.iter().filter(|story| is_noticed(story, "none")).count();
    drop(std::panic::take_hook());
    assert_eq!(changed, 0);
    assert!(unnoticed.is_empty(), "no story tells these rules: {unnoticed:?}");
}

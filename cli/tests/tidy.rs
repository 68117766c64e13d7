//! Rules of the house that no compiler checks: boundaries between crates, heads and sizes of
//! files, bans, and tables in documents that must name what is there.
//!
//! Not here: anything that rustfmt, clippy or the compiler already say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 700;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace").to_owned()
}

/// Every file that the project keeps, by its path from the root: not what is built or hidden.
fn files(extension: &str) -> Vec<(String, String)> {
    fn walk(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                if name != "target" && name != ".git" {
                    walk(&path, extension, found);
                }
            } else if path.extension().is_some_and(|found| found == extension) || name == extension {
                found.push(path);
            }
        }
    }
    let root = root();
    let mut found = Vec::new();
    walk(&root, extension, &mut found);
    found.sort();
    assert!(!found.is_empty(), "no file ends in {extension}: the walk is broken");
    let name = |path: &Path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    found.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

#[track_caller]
fn none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn a_file_says_first_why_it_exists() {
    let found = files("rs").into_iter().filter(|(_, text)| !text.starts_with("//! ")).map(|(name, _)| name);
    none("files without a head (//! ...)", found.collect());
}

#[test]
fn a_file_is_not_too_long() {
    let long = files("rs").into_iter().filter(|(_, text)| FILE_LINES_MAX < text.lines().count());
    none("files to split", long.map(|(name, text)| format!("{name}: {} lines", text.lines().count())).collect());
}

#[test]
fn banned_words_are_not_used() {
    // Each with the reason; assembled so that this file does not find itself.
    let bans = [
        (["unbounded", "_channel"].concat(), "everything has a limit"),
        (["todo", "!("].concat(), "no stubs"),
        (["unimplemented", "!("].concat(), "no stubs"),
        (["static", " mut"].concat(), "no globals"),
        (["lazy", "_static"].concat(), "no globals"),
        (["#[", "ignore"].concat(), "a test runs or is deleted"),
        (["/", "work/"].concat(), "no path of a machine"),
        (["crates", ".io"].concat(), "no host of a registry"),
    ];
    let mut found = Vec::new();
    for (name, text) in files("rs").into_iter().chain(files("toml")).chain(files("md")).chain(files("proto")) {
        for (number, line) in text.lines().enumerate() {
            for (ban, why) in &bans {
                if line.contains(ban.as_str()) {
                    found.push(format!("{name}:{}: {ban}: {why}", number + 1));
                }
            }
        }
    }
    none("banned words", found);
}

#[test]
fn cores_only_think() {
    let cores = ["registry/core/src", "pipeline/core/src", "verifier/check/src", "proto/types/src"];
    let bans = [
        "std::time::Instant",
        "SystemTime",
        "HashMap",
        "HashSet",
        "std::fs",
        "std::net",
        "std::thread",
        "std::env",
        "f32",
        "f64",
    ];
    let mut found = Vec::new();
    for (name, text) in files("rs").into_iter().filter(|(name, _)| cores.iter().any(|core| name.starts_with(core))) {
        let code = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (number, line) in code {
            let word = |ban: &str| {
                line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).any(|w| w.contains(ban))
            };
            found.extend(bans.iter().filter(|ban| word(ban)).map(|ban| format!("{name}:{}: {ban}", number + 1)));
        }
    }
    none("a core reads clocks, files or random order", found);
}

/// What each crate may depend on, of the crates that draw a boundary. `docs/architecture.md` says why.
#[test]
fn crates_keep_their_boundaries() {
    let ours = |names: &[&str]| names.iter().map(|name| format!("photon-{name}")).collect::<BTreeSet<_>>();
    let may: BTreeMap<&str, BTreeSet<String>> = [
        ("proto/types", ours(&[])),
        ("proto/disk", ours(&[])),
        ("proto", ours(&["types"])),
        ("registry/core", ours(&["types"])),
        ("registry/client", ours(&["types", "proto"])),
        ("registry", ours(&["types", "disk", "proto", "core"])),
        ("pipeline/core", ours(&["types"])),
        ("pipeline/format", ours(&["types", "disk"])),
        ("pipeline", ours(&["types", "disk", "proto", "client", "join", "format"])),
        ("verifier/check", ours(&["types"])),
        ("verifier", ours(&["types", "disk", "proto", "client", "format", "check"])),
        ("verifier/sim", ours(&["types", "core", "join", "check"])),
    ]
    .into();
    let must_not_know: BTreeMap<&str, &[&str]> = [
        ("proto/types", &["serde", "prost", "tokio", "tonic", "rocksdb"] as &[&str]),
        ("proto/disk", &["serde", "prost", "tokio", "tonic", "rocksdb"]),
        ("registry/core", &["tokio", "tonic", "prost", "rocksdb", "serde"]),
        ("pipeline/core", &["tokio", "tonic", "prost", "rocksdb", "serde"]),
        ("pipeline/format", &["tokio", "tonic", "rocksdb"]),
        ("verifier/check", &["tokio", "tonic", "rocksdb", "serde"]),
        ("verifier/sim", &["tokio", "tonic", "rocksdb"]),
        ("registry/client", &["rocksdb"]),
        ("pipeline", &["rocksdb"]),
        ("verifier", &["rocksdb"]),
    ]
    .into();
    let mut found = Vec::new();
    for (dir, allowed) in &may {
        let dependencies = dependencies(&root().join(dir).join("Cargo.toml"));
        for name in dependencies.iter().filter(|name| name.starts_with("photon-") && !allowed.contains(*name)) {
            found.push(format!("{dir} depends on {name}"));
        }
        for name in must_not_know.get(dir).into_iter().copied().flatten().filter(|name| dependencies.contains(**name)) {
            found.push(format!("{dir} knows {name}"));
        }
    }
    none("crossed boundaries", found);
}

/// The names under `[dependencies]`; what only tests need draws no boundary.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let names = manifest.get("dependencies").and_then(toml::Value::as_table).map(|table| table.keys().cloned());
    names.into_iter().flatten().collect()
}

#[test]
fn nothing_new_at_the_top() {
    let known: BTreeSet<&str> = [
        ".ci",
        ".git",
        ".gitignore",
        ".rustfmt.toml",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "Makefile",
        "README.md",
        "benches",
        "cli",
        "deploy",
        "docs",
        "pipeline",
        "proto",
        "registry",
        "target",
        "verifier",
    ]
    .into();
    let names = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    none("unknown at the top", names.filter(|name| !known.contains(name.as_str())).collect());
}

#[test]
fn the_protocol_document_names_every_message() {
    let document = fs::read_to_string(root().join("docs/protocol.md")).unwrap();
    let mut found = Vec::new();
    for (name, text) in files("proto") {
        for line in text.lines() {
            if let Some(message) = line.strip_prefix("message ").and_then(|rest| rest.split_whitespace().next())
                && !document.contains(&format!("`{message}`"))
            {
                found.push(format!("{name}: {message}"));
            }
        }
    }
    none("messages that docs/protocol.md does not name", found);
}

#[test]
fn documents_link_to_what_is_there() {
    let mut found = Vec::new();
    for (name, text) in files("md") {
        let dir = root().join(&name).parent().unwrap().to_owned();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap();
            if !path.is_empty() && !path.contains("://") && !dir.join(path).exists() {
                found.push(format!("{name}: {target}"));
            }
        }
    }
    none("dead links", found);
}

/// Where a key stands for the first time in its kind of table; a comment above several keys is for
/// all of them.
#[test]
fn every_key_of_an_example_has_a_comment() {
    let mut found = Vec::new();
    for (name, text) in files("toml").into_iter().filter(|(name, _)| name.starts_with("deploy/examples/")) {
        let (mut table, mut commented, mut explained) = (String::new(), false, BTreeSet::new());
        for (number, line) in text.lines().map(str::trim).enumerate() {
            match line.bytes().next() {
                None => commented = false,
                Some(b'#') => commented = true,
                Some(b'[') => line.clone_into(&mut table),
                Some(_) => {
                    let key = line.split('=').next().unwrap().trim();
                    if explained.insert((table.clone(), key.to_owned())) && !commented {
                        found.push(format!("{name}:{}: {line}", number + 1));
                    }
                }
            }
        }
        assert!(!explained.is_empty(), "{name} has no keys: the check is broken");
    }
    none("keys without a comment", found);
}

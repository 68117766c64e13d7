//! Listings of real directories, and scanners over files that grow, end badly or shrink.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::config::{Config, InputIndex};
use crate::error::SourceError;
use crate::extract::{Classified, Extractor};
use crate::framing::Unread;

fn config(path: &Path) -> Config {
    Config::parse(Config::EXAMPLE, Path::new("ubi.toml")).unwrap().with_input(path).unwrap()
}

fn list(config: &Config) -> Result<SourceList, SourceError> {
    SourceList::list(config, &config.datacenters[0])
}

fn write(path: PathBuf, text: &str) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

fn event(id: u64) -> String {
    format!(
        "{{\"index\":{{\"_index\":\"ubi_events\",\"_id\":\"e{id}\"}}}}\n{{\"query_id\":\"q\",\"timestamp\":{id}}}\n"
    )
}

/// Ids of the clicks up to the scanner's end.
fn ids(scanner: &mut Scanner) -> Vec<String> {
    let mut ids = Vec::new();
    while let Some(scanned) = scanner.next_scanned().unwrap() {
        if let Classified::Foreign { key, .. } = scanned.classified {
            ids.push(key.id.to_string());
        }
    }
    ids
}

fn extractor(config: &Config) -> Arc<Extractor> {
    Arc::new(Extractor::new(config, InputIndex(0)))
}

#[test]
fn a_directory_gives_its_plain_files_by_name() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path().join("b.log"), "12");
    write(dir.path().join("sub/deeper/c.log"), "123");
    write(dir.path().join("a.log"), "1");
    write(dir.path().join(".hidden"), "x");
    write(dir.path().join(".git/config"), "x");
    std::os::unix::fs::symlink("nowhere", dir.path().join("broken")).unwrap();
    // Leads to itself: no file either, but somebody is told.
    std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
    let config = config(dir.path());
    let list = list(&config).unwrap();
    let found: Vec<_> = list.files().iter().map(|file| (file.name.as_str(), file.size)).collect();
    assert_eq!(found, [("shop/a.log", 1), ("shop/b.log", 2), ("shop/sub/deeper/c.log", 3)]);
    assert_eq!(list.get("shop/b.log").map(|file| file.path.clone()), Some(dir.path().join("b.log")));
    assert_eq!(list.get("shop/x"), None);
    assert_eq!(list.bytes(), 6);
    assert_eq!(list.loops(), [dir.path().join("loop")]);
}

#[test]
fn a_list_goes_to_other_processes_and_datacenters() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path().join("east/sub/a.log"), "12");
    let config = config(&dir.path().join("east"));
    let list = list(&config).unwrap();
    let text = list.to_json(&config);
    assert_eq!(SourceList::from_json(&config, &text).unwrap(), list);
    for rubbish in ["", "{}", &text.replace("\"shop\"", "\"store\""), &text.replace("shop/sub", "sub")] {
        assert!(matches!(SourceList::from_json(&config, rubbish), Err(SourceError::List { .. })), "{rubbish}");
    }

    let mut west = config.datacenters[1].clone();
    west.paths.insert("shop".into(), dir.path().join("west"));
    let missing = list.in_datacenter(&config, &west).unwrap_err();
    assert!(missing.to_string().contains("west"), "{missing}");
    let path = write(dir.path().join("west/sub/a.log"), "1");
    let shrunk = list.in_datacenter(&config, &west).unwrap_err();
    assert!(matches!(shrunk, SourceError::Shrunk { size: 1, expected: 2, .. }), "{shrunk}");
    write(path.clone(), "123");
    let there = list.in_datacenter(&config, &west).unwrap();
    assert_eq!((there.files()[0].path.clone(), there.files()[0].size), (path, 2));
}

#[test]
fn what_can_not_be_listed_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = list(&config(&dir.path().join("nothing"))).unwrap_err().to_string();
    assert!(missing.contains("nothing: source \"shop\": looking at it failed: No such file"), "{missing}");
    let kind = list(&config(Path::new("/dev/null"))).unwrap_err();
    assert!(matches!(kind, SourceError::Kind { .. }), "{kind}");
    std::os::unix::fs::symlink(".", dir.path().join("loop")).unwrap();
    let deep = list(&config(dir.path())).unwrap_err();
    assert!(matches!(deep, SourceError::TooDeep { .. }), "{deep}");
    fs::remove_file(dir.path().join("loop")).unwrap();
    write(dir.path().join("a\nb"), "");
    let name = list(&config(dir.path())).unwrap_err();
    assert!(matches!(name, SourceError::Name { .. }), "{name}");
}

#[test]
fn a_growing_file_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path().join("a.log"), &format!("{}{}", event(1), &event(2)[..50]));
    let config = config(&path);
    let list = list(&config).unwrap();
    let source = &list.files()[0];
    assert_eq!(source.name, "shop/a.log");
    let mut scanner = Scanner::open(source, extractor(&config), 0, source.size).unwrap();
    assert_eq!(scanner.identity(), source.identity);
    assert_eq!(ids(&mut scanner), ["e1"]);
    // The cut pair waits, and the cursor stays in front of it.
    let position = scanner.position();
    assert_eq!(position, event(1).len() as u64);

    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(format!("{}{}", &event(2)[50..], event(3)).as_bytes()).unwrap();
    // Nothing behind the end is looked at until it is moved.
    assert_eq!(ids(&mut scanner), [""; 0]);
    scanner.extend(fs::metadata(&path).unwrap().len());
    assert_eq!(ids(&mut scanner), ["e2", "e3"]);
    assert_eq!(scanner.position(), scanner.end());

    let mut again = Scanner::open(source, extractor(&config), position, scanner.end()).unwrap();
    assert_eq!(ids(&mut again), ["e2", "e3"]);
}

#[test]
fn the_end_of_a_final_file_is_judged() {
    let dir = tempfile::tempdir().unwrap();
    let whole = format!("{}{}", event(1), event(2));
    for (cut, want) in [(1, "e2"), (2, "unread"), (40, "unread"), (event(2).len(), "clean")] {
        let path = write(dir.path().join("a.log"), &whole[..whole.len() - cut]);
        let config = config(&path);
        let list = list(&config).unwrap();
        let source = &list.files()[0];
        let mut scanner = Scanner::open(source, extractor(&config), 0, source.size).unwrap();
        assert_eq!(ids(&mut scanner), ["e1"]);
        let found = match scanner.finish() {
            Finished::Clean => "clean".to_owned(),
            Finished::Scanned(Scanned { classified: Classified::Foreign { key, .. }, .. }) => key.id.to_string(),
            Finished::Scanned(other) => panic!("{other:?}"),
            Finished::Unread { offset, bytes, why: Unread::CutLine | Unread::NoDocument } => {
                assert_eq!((offset, offset + bytes), (event(1).len() as u64, source.size));
                "unread".to_owned()
            }
        };
        assert_eq!(found, want, "cut {cut}");
        let position = if found == "e2" { source.size } else { event(1).len() as u64 };
        assert_eq!(scanner.position(), position, "cut {cut}");
    }
}

#[test]
fn a_file_that_shrinks_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path().join("a.log"), &event(1));
    let config = config(&path);
    let list = list(&config).unwrap();
    let source = &list.files()[0];
    let mut scanner = Scanner::open(source, extractor(&config), 0, source.size).unwrap();
    write(path, "");
    let error = scanner.next_scanned().unwrap_err();
    assert!(error.to_string().contains("it was cut or replaced"), "{error}");
    let error = Scanner::open(source, extractor(&config), 0, source.size).unwrap_err();
    assert!(matches!(error, SourceError::Shrunk { size: 0, .. }), "{error}");
}

#[test]
fn a_stretch_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path().join("a.log"), "0123456789");
    assert_eq!(read_exact_at("shop/a.log", &path, 3, 4).unwrap(), b"3456");
    let error = read_exact_at("shop/a.log", &path, 8, 4).unwrap_err();
    assert!(matches!(error, SourceError::Io { .. }), "{error}");
}

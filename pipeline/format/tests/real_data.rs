//! A real log through framing, extraction and sources: the counts that its oracle gives.
//!
//! The data is not part of the project. Where it is absent the test says so and passes, but not
//! where `CI=true` is set.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use photon_format::config::{Config, InputIndex};
use photon_format::extract::{Classified, Extractor, Reason};
use photon_format::framing::{Document, Frame};
use photon_format::source::{Finished, Scanner, SourceList};

fn data() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/ubi_chorus");
    if path.is_dir() {
        return Some(path);
    }
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!in_ci, "{} is not there, and CI=true demands it", path.display());
    println!("skipped: {} is not there", path.display());
    None
}

#[test]
fn the_ubi_log_gives_what_its_oracle_says() {
    let Some(data) = data() else { return };
    let path = data.join("raw/ubi_queries_events.ndjson");
    let config = Config::parse(Config::EXAMPLE, Path::new("ubi.toml")).unwrap().with_input(&path).unwrap();
    let list = SourceList::list(&config, &config.datacenters[0]).unwrap();
    let [source] = list.files() else { panic!("one file: {list:?}") };
    let bytes = std::fs::read(&path).unwrap();

    let extractor = Arc::new(Extractor::new(&config, InputIndex(0)));
    let mut scanner = Scanner::open(source, extractor, 0, source.size).unwrap();
    let mut primaries = Vec::new();
    let mut references = BTreeMap::new();
    let mut dead_letters = Vec::new();
    let mut covered = 0;
    while let Some(scanned) = scanner.next_scanned().unwrap() {
        let Frame::Record(record) = &scanned.frame else { panic!("{scanned:?}") };
        // Nothing is left out, and the document is the line, byte for byte.
        assert_eq!(record.offset, covered);
        covered = record.end;
        let Document::Line(line) = record.document else { panic!("{record:?}") };
        let (from, end) = (usize::try_from(record.document_offset).unwrap(), usize::try_from(record.end).unwrap());
        assert_eq!(bytes[from..end].strip_suffix(b"\n"), Some(line));
        match scanned.classified {
            Classified::Primary { id, .. } => primaries.push(id),
            Classified::Foreign { key, reference, .. } => {
                assert_eq!(references.insert(key.id.to_string(), Some(reference)), None)
            }
            Classified::DeadLetter { key, reason, .. } => {
                let key = key.expect("a null reference has a key");
                assert_eq!(references.insert(key.id.to_string(), None), None);
                dead_letters.push(reason);
            }
            other @ (Classified::NotSelected | Classified::Skipped { .. }) => panic!("{other:?}"),
        }
    }
    assert_eq!(scanner.finish(), Finished::Clean);
    assert_eq!(covered, source.size);

    let distinct: BTreeSet<_> = primaries.iter().collect();
    assert_eq!((primaries.len(), distinct.len()), (473, 284));
    assert_eq!(references.len(), 3448);
    assert_eq!(dead_letters, [Reason::ReferenceMissing; 2]);
    let found = references.values().flatten().filter(|reference| distinct.contains(reference)).count();
    assert_eq!(found, 2502);

    // Row by row: line number, id, reference, number of primaries, delay.
    let oracle = std::fs::read_to_string(data.join("expected_pairs.tsv")).unwrap();
    let mut rows = 0;
    for row in oracle.lines().skip(1) {
        let [_, id, reference, matches, ..] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let found = references[id].as_ref();
        let text = found.map_or(String::new(), |it| String::from_utf8_lossy(it.as_bytes()).into_owned());
        assert!(text == reference || (found.is_none() && ["null", "None", ""].contains(&reference)), "{row}: {text}");
        let count = primaries.iter().filter(|id| Some(*id) == found).count();
        assert_eq!(count, matches.parse::<usize>().unwrap(), "{row}");
        rows += 1;
    }
    assert_eq!(rows, 3448);
}

//! Records read again, and the files that stay open for it.

use std::fs;
use std::path::Path;

use photon_format::config::InputIndex;
use photon_format::source::SourceList;

use super::*;

const CONFIG: &str = r#"
[cluster]
name = "test"
data-dir = "DIR/data"

[[registry.node]]
id = 1

[join]

[[join.input]]
name = "log"
path = "DIR/log"
framing = "ndjson"

[[join.stream]]
name = "queries"
role = "primary"
input = "log"
select = { kind = "query" }
id = "id"

[[join.stream]]
name = "clicks"
role = "foreign"
input = "log"
select = { kind = "click" }
id = "id"
reference = "query"
time = { field = "time", forms = ["epoch-us"] }

[[datacenter]]
name = "east"
"#;

fn listed(dir: &Path) -> (Config, SourceList) {
    let text = CONFIG.replace("DIR", dir.to_str().unwrap());
    let config = Config::parse(&text, Path::new("test.toml")).unwrap();
    let list = SourceList::list(&config, &config.datacenters[0]).unwrap();
    (config, list)
}

fn query(id: &str, bytes: usize) -> String {
    format!("{{\"kind\":\"query\",\"id\":\"{id}\",\"text\":\"{}\"}}", "x".repeat(bytes))
}

#[test]
fn files_stay_open_up_to_a_limit_and_the_least_recently_used_one_goes() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("log")).unwrap();
    let count = FILES_OPEN_MAX + 1;
    for number in 0..count {
        fs::write(dir.path().join(format!("log/{number:03}")), query("q", 1) + "\n").unwrap();
    }
    let (config, list) = listed(dir.path());
    let extractor = Extractor::new(&config, InputIndex(0));
    let rereader = Rereader::new(&config);
    let read = |number: usize| rereader.read(&list.files()[number], &extractor, 0, None);
    (0..FILES_OPEN_MAX).for_each(|number| drop(read(number).unwrap()));
    read(0).unwrap();
    read(count - 1).unwrap(); // Takes the place of file 1.
    assert_eq!(rereader.open.lock().unwrap().files.len(), FILES_OPEN_MAX);
    // What is open needs no name any more; what was closed does.
    fs::remove_dir_all(dir.path().join("log")).unwrap();
    for number in (0..count).filter(|number| *number != 1) {
        assert_eq!(read(number).unwrap().query_id().unwrap().as_bytes(), b"q", "file {number}");
    }
    assert!(matches!(read(1), Err(SourceError::Io { operation: "opening", .. })));
}

#[test]
fn a_record_of_any_length_is_read_whole_with_or_without_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let lines: Vec<String> = [1, 10, RECORD_BYTES as usize, 3 * CHUNK_BYTES as usize, 5]
        .into_iter()
        .enumerate()
        .map(|(number, bytes)| query(&format!("q{number}"), bytes))
        .collect();
    // The last line has no end.
    fs::write(dir.path().join("log"), lines.join("\n")).unwrap();
    let (config, list) = listed(dir.path());
    let (rereader, file) = (Rereader::new(&config), &list.files()[0]);
    let extractor = Extractor::new(&config, InputIndex(0));
    let mut offset = 0;
    for (number, line) in lines.iter().enumerate() {
        let end = offset + line.len() as u64 + 1;
        for end in [None, Some(end), Some(offset)] {
            let record = rereader.read(file, &extractor, offset, end).unwrap();
            assert_eq!(record.payload.as_deref(), Some(line.as_bytes()));
            assert_eq!(record.query_id().unwrap().as_bytes(), format!("q{number}").as_bytes());
        }
        offset = end;
    }
    let behind = rereader.read(file, &extractor, offset + 5, None).unwrap();
    assert_eq!(behind.classified, Classified::NotSelected);
}

#[test]
fn a_longer_copy_takes_the_place_of_the_open_file_and_a_cut_one_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    fs::write(&path, query("old", 1) + "\n").unwrap();
    let (config, list) = listed(dir.path());
    let rereader = Rereader::new(&config);
    let extractor = Extractor::new(&config, InputIndex(0));
    rereader.read(&list.files()[0], &extractor, 0, None).unwrap();
    fs::write(dir.path().join("new"), query("new", 90) + "\n").unwrap();
    fs::rename(dir.path().join("new"), &path).unwrap();
    let (_, list) = listed(dir.path());
    let read = || rereader.read(&list.files()[0], &extractor, 0, None);
    assert_eq!(read().unwrap().query_id().unwrap().as_bytes(), b"new");
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    assert!(matches!(read(), Err(SourceError::Shrunk { size: 0, .. })));
}

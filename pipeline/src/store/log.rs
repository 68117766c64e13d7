//! Reading one record again from its log, when its payload is not in the cache.
//!
//! Invariant: what is returned is the payload of a record that bears the wanted id, at the wanted
//! place, cut and read by the same rules as the first time. A log that was cut or replaced gives an
//! error, never another record.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use photon_format::config::{Config, InputIndex};
use photon_format::extract::{Classified, Extractor};
use photon_format::framing::{Document, Finish, Frame, Framer};
use tracing::warn;

use super::index::{Place, SourceNumber};

/// Logs that are kept open, at most.
const OPEN_FILES_MAX: usize = 128;

/// A record that the index knows.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub id: Bytes,
    pub source: SourceNumber,
    pub name: Arc<str>,
    pub place: Place,
}

/// Why a record can not be read again.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogError {
    #[error("the source has no file")]
    Unknown,
    #[error("{}: reading {bytes} bytes at {offset} failed: {source}", path.display())]
    Io { path: PathBuf, offset: u64, bytes: u32, source: io::Error },
    #[error("{}: at {offset} there is no longer the record of this id: the log was cut or replaced", path.display())]
    Changed { path: PathBuf, offset: u64 },
}

#[derive(Debug, Default)]
struct Files {
    paths: HashMap<SourceNumber, (PathBuf, InputIndex)>,
    open: HashMap<SourceNumber, Arc<File>>,
    /// Sources of which a record could not be read, since one could.
    faulty: HashSet<SourceNumber>,
}

/// Reads records again. Blocks.
#[derive(Debug)]
pub(super) struct LogReader {
    config: Arc<Config>,
    extractors: Vec<Extractor>,
    files: Mutex<Files>,
}

impl LogReader {
    pub fn new(config: Arc<Config>) -> LogReader {
        let extractors = Extractor::of_all_inputs(&config);
        LogReader { config, extractors, files: Mutex::default() }
    }

    /// Where a source lies.
    pub fn register(&self, source: SourceNumber, path: PathBuf, input: InputIndex) {
        self.files.lock().expect("nobody panics while holding it").paths.insert(source, (path, input));
    }

    /// Sources of which a record could not be read again, since one could.
    pub fn unreadable(&self) -> usize {
        self.files.lock().expect("nobody panics while holding it").faulty.len()
    }

    /// The payload of a record. The first fault of a source is told to people.
    pub fn read(&self, wanted: &Wanted) -> Result<Bytes, LogError> {
        let result = self.try_read(wanted);
        let mut files = self.files.lock().expect("nobody panics while holding it");
        match &result {
            Ok(_) => drop(files.faulty.remove(&wanted.source)),
            Err(error) => {
                if files.faulty.insert(wanted.source) {
                    warn!(source = %wanted.name, %error, "a record can not be read again; clicks that name it wait");
                }
            }
        }
        result
    }

    fn try_read(&self, wanted: &Wanted) -> Result<Bytes, LogError> {
        let (path, input, file) = self.open(wanted)?;
        let Place { source: _, offset, bytes } = wanted.place;
        let mut record = vec![0; bytes as usize];
        if let Err(source) = file.read_exact_at(&mut record, offset) {
            // Perhaps another file lies there by now: look again the next time.
            self.close(wanted.source);
            return Err(LogError::Io { path, offset, bytes, source });
        }
        self.payload(wanted, input, &record).ok_or_else(|| {
            self.close(wanted.source);
            LogError::Changed { path, offset }
        })
    }

    fn payload(&self, wanted: &Wanted, input: InputIndex, record: &[u8]) -> Option<Bytes> {
        let framing = self.config.join.inputs[input.0].framing;
        let mut framer = Framer::new(framing, self.config.join.line_max.as_usize(), wanted.place.offset);
        framer.push(record);
        if let Some(frame) = framer.next_frame() {
            return self.payload_of(wanted, input, &frame);
        }
        // The last record of a final source has no line end.
        match framer.finish() {
            Finish::Frame(frame) => self.payload_of(wanted, input, &frame),
            Finish::Clean | Finish::Unread { .. } => None,
        }
    }

    fn payload_of(&self, wanted: &Wanted, input: InputIndex, frame: &Frame<'_>) -> Option<Bytes> {
        if frame.offset() != wanted.place.offset {
            return None;
        }
        let id = match self.extractors[input.0].classify(&wanted.name, frame) {
            Classified::Primary { stream: _, id } => id,
            Classified::Foreign { .. }
            | Classified::DeadLetter { .. }
            | Classified::NotSelected
            | Classified::Skipped { .. } => return None,
        };
        match frame {
            Frame::Record(record) if id.as_bytes() == wanted.id => match record.document {
                Document::Line(line) => Some(Bytes::copy_from_slice(line)),
                Document::TooLong { .. } => None,
            },
            Frame::Record(_) | Frame::BadAction { .. } | Frame::Skipped { .. } => None,
        }
    }

    fn open(&self, wanted: &Wanted) -> Result<(PathBuf, InputIndex, Arc<File>), LogError> {
        let mut files = self.files.lock().expect("nobody panics while holding it");
        let (path, input) = files.paths.get(&wanted.source).cloned().ok_or(LogError::Unknown)?;
        if let Some(file) = files.open.get(&wanted.source) {
            return Ok((path, input, file.clone()));
        }
        let file = File::open(&path).map_err(|source| {
            let Place { source: _, offset, bytes } = wanted.place;
            LogError::Io { path: path.clone(), offset, bytes, source }
        })?;
        let file = Arc::new(file);
        if OPEN_FILES_MAX <= files.open.len() {
            // Rare enough that nobody needs to know which was used last.
            files.open.clear();
        }
        files.open.insert(wanted.source, file.clone());
        Ok((path, input, file))
    }

    fn close(&self, source: SourceNumber) {
        self.files.lock().expect("nobody panics while holding it").open.remove(&source);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const CONFIG: &str = r#"
[cluster]
name = "test"
[[registry.node]]
id = 1
[[join.input]]
name = "shop"
path = "shop"
framing = "es-bulk"
[[join.stream]]
name = "queries"
role = "primary"
input = "shop"
select = { "@index" = "queries" }
id = "q"
[[join.stream]]
name = "clicks"
role = "foreign"
input = "shop"
select = { "@index" = "clicks" }
id = "@id"
reference = "q"
time = { field = "t", forms = ["epoch-ms"] }
[[datacenter]]
name = "east"
"#;

    fn pair(index: &str, document: &str) -> String {
        format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"1\"}}}}\n{document}\n")
    }

    fn wanted(id: &'static str, offset: usize, bytes: usize) -> Wanted {
        let place = Place { source: SourceNumber(0), offset: offset as u64, bytes: u32::try_from(bytes).unwrap() };
        Wanted { id: Bytes::from_static(id.as_bytes()), source: SourceNumber(0), name: "shop/a".into(), place }
    }

    fn reader(path: &Path) -> LogReader {
        let config = Config::parse(CONFIG, Path::new("test.toml")).unwrap();
        let reader = LogReader::new(Arc::new(config));
        reader.register(SourceNumber(0), path.to_owned(), InputIndex(0));
        reader
    }

    #[test]
    fn a_record_is_read_again_byte_for_byte_also_without_its_line_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let (first, last) = (pair("queries", "{\"q\" : \"one\"}\r"), pair("queries", "{\"q\":\"two\"}"));
        std::fs::write(&path, format!("{first}{}", last.trim_end())).unwrap();
        let reader = reader(&path);
        let payload = reader.read(&wanted("one", 0, first.len())).unwrap();
        assert_eq!(payload, "{\"q\" : \"one\"}");
        let payload = reader.read(&wanted("two", first.len(), last.len() - 1)).unwrap();
        assert_eq!(payload, "{\"q\":\"two\"}");
    }

    #[test]
    fn a_log_that_was_cut_or_replaced_never_gives_another_record() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let record = pair("queries", "{\"q\":\"one\"}");
        let others = [
            pair("queries", "{\"q\":\"two\"}"),
            // A click is no query.
            pair("clickss", "{\"q\":\"one\"}"),
            "x".repeat(record.len()),
        ];
        for other in others {
            std::fs::write(&path, &record).unwrap();
            let reader = reader(&path);
            let wanted = wanted("one", 0, record.len());
            assert!(reader.read(&wanted).is_ok());
            std::fs::write(&path, &other).unwrap();
            assert!(matches!(reader.read(&wanted), Err(LogError::Changed { .. })), "{other}");
            std::fs::write(&path, &record[..10]).unwrap();
            assert!(matches!(reader.read(&wanted), Err(LogError::Io { .. })));
            std::fs::remove_file(&path).unwrap();
            assert!(matches!(reader.read(&wanted), Err(LogError::Io { .. })));
        }
        let unknown = Wanted { source: SourceNumber(9), ..wanted("one", 0, 10) };
        assert!(matches!(reader(&path).read(&unknown), Err(LogError::Unknown)));
    }
}

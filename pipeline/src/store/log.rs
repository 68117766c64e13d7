//! Reading one record again from its log, when its payload is not in the cache.
//!
//! Invariant: what is returned is the payload of a record that bears the wanted id, at the wanted
//! place, cut and read by the same rules as the first time. A log that was cut or replaced gives an
//! error, never another record.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use photon_format::config::{Config, InputIndex};
use photon_format::extract::{Classified, Extractor};
use photon_format::framing::{Document, Finish, Frame, Framer};

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

    /// The payload of a record.
    pub fn read(&self, wanted: &Wanted) -> Result<Bytes, LogError> {
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

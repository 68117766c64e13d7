//! Single records, read again at their places: what joined lines are compared with, and what comes
//! back.
//!
//! Invariant: a record is cut by the framer and told by the extractor that the scanner uses, so it
//! is the record that was scanned. Nothing at or behind the listed size is looked at.
//!
//! A joined line needs two records, so files stay open between them: the most recently used ones,
//! at most [`FILES_OPEN_MAX`].

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use photon_format::config::{Config, Framing};
use photon_format::error::SourceError;
use photon_format::extract::{Classified, Extractor, JoinId};
use photon_format::framing::{Document, Finish, Frame, Framer};
use photon_format::source::{FileIdentity, SourceFile};

/// Files that are open at once: far below what a process may have, and more than are written to at
/// one time.
pub const FILES_OPEN_MAX: usize = 64;

/// Bytes read at first where the end of a record is not known; more when that is too few,
const RECORD_BYTES: u64 = 8 * 1024;
/// up to this many at once.
const CHUNK_BYTES: u64 = 256 * 1024;

/// A record that was read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reread {
    /// What it is.
    pub classified: Classified,
    /// Its payload; none of a record without one.
    pub payload: Option<Bytes>,
}

impl Reread {
    fn of(frame: &Frame<'_>, classified: Classified) -> Reread {
        let payload = match frame {
            Frame::Record(record) => match record.document {
                Document::Line(line) => Some(Bytes::copy_from_slice(line)),
                Document::TooLong { .. } => None,
            },
            Frame::BadAction { .. } | Frame::Skipped { .. } => None,
        };
        Reread { classified, payload }
    }

    /// The query that a click names.
    pub fn reference(&self) -> Option<&JoinId> {
        match &self.classified {
            Classified::Foreign { reference, .. } => Some(reference),
            Classified::Primary { .. }
            | Classified::DeadLetter { .. }
            | Classified::NotSelected
            | Classified::Skipped { .. } => None,
        }
    }

    /// The id of a query.
    pub fn query_id(&self) -> Option<&JoinId> {
        match &self.classified {
            Classified::Primary { id, .. } => Some(id),
            Classified::Foreign { .. }
            | Classified::DeadLetter { .. }
            | Classified::NotSelected
            | Classified::Skipped { .. } => None,
        }
    }
}

/// Reads records at their places.
pub struct Rereader {
    /// Framing and longest line, by input.
    framings: Vec<(Framing, usize)>,
    open: Mutex<OpenFiles>,
}

impl Rereader {
    /// Nothing open yet.
    pub fn new(config: &Config) -> Rereader {
        let line_bytes_max = config.join.line_max.as_usize();
        let framings = config.join.inputs.iter().map(|input| (input.framing, line_bytes_max)).collect();
        Rereader { framings, open: Mutex::new(OpenFiles::default()) }
    }

    /// The record at an offset of a file; where none begins, whatever is there. `end` is one behind
    /// its last byte, if known.
    ///
    /// # Errors
    /// [`SourceError::Io`]; [`SourceError::Shrunk`] when the file is shorter than it was listed.
    pub fn read(
        &self,
        file: &SourceFile,
        extractor: &Extractor,
        offset: u64,
        end: Option<u64>,
    ) -> Result<Reread, SourceError> {
        let opened = self.open.lock().expect("nobody panics while holding it").get(file)?;
        let (framing, line_bytes_max) = self.framings[file.input.0];
        let mut framer = Framer::new(framing, line_bytes_max, offset);
        let mut wanted = end.map_or(RECORD_BYTES, |end| end.saturating_sub(offset)).clamp(1, CHUNK_BYTES);
        let mut bytes = Vec::new();
        loop {
            let position = framer.push_position();
            let room = file.size.saturating_sub(position).min(wanted);
            if room == 0 {
                break;
            }
            bytes.resize(usize::try_from(room).expect("a chunk is small"), 0);
            let read = read_some(&opened, &mut bytes, position).map_err(io_error(file, "reading"))?;
            if read == 0 {
                let (name, path) = (file.name.clone(), file.path.clone());
                return Err(SourceError::Shrunk { name, path, size: position, expected: file.size });
            }
            framer.push(&bytes[..read]);
            if let Some(frame) = framer.next_frame() {
                return Ok(Reread::of(&frame, extractor.classify(&file.name, &frame)));
            }
            wanted = wanted.saturating_mul(2).min(CHUNK_BYTES);
        }
        // The last line of a final file needs no end.
        Ok(match framer.finish() {
            Finish::Frame(frame) => Reread::of(&frame, extractor.classify(&file.name, &frame)),
            Finish::Clean | Finish::Unread { .. } => Reread { classified: Classified::NotSelected, payload: None },
        })
    }
}

/// Open files by source name, the least recently used one closed for the next.
#[derive(Debug, Default)]
struct OpenFiles {
    files: HashMap<String, Open>,
    uses: u64,
}

#[derive(Debug)]
struct Open {
    file: Arc<File>,
    /// What was listed under the name: a longer copy may take its place.
    listed: (PathBuf, FileIdentity),
    last_use: u64,
}

impl OpenFiles {
    fn get(&mut self, source: &SourceFile) -> Result<Arc<File>, SourceError> {
        self.uses += 1;
        if let Some(open) = self.files.get_mut(&source.name)
            && (&open.listed.0, open.listed.1) == (&source.path, source.identity)
        {
            open.last_use = self.uses;
            return Ok(open.file.clone());
        }
        let file = Arc::new(File::open(&source.path).map_err(io_error(source, "opening"))?);
        if FILES_OPEN_MAX <= self.files.len() {
            let oldest = self.files.iter().min_by_key(|(_, open)| open.last_use).map(|(name, _)| name.clone());
            oldest.map(|name| self.files.remove(&name));
        }
        let listed = (source.path.clone(), source.identity);
        self.files.insert(source.name.clone(), Open { file: file.clone(), listed, last_use: self.uses });
        Ok(file)
    }
}

fn read_some(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(bytes, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            done => return done,
        }
    }
}

fn io_error(file: &SourceFile, operation: &'static str) -> impl FnOnce(io::Error) -> SourceError + use<> {
    let (name, path) = (file.name.clone(), file.path.clone());
    move |source| SourceError::Io { name, path, operation, source }
}

#[cfg(test)]
#[path = "reread_tests.rs"]
mod tests;

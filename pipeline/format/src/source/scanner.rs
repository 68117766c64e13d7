//! Reading one file from an offset: frames and what they are.
//!
//! Invariant: no byte at or behind `end` is looked at. A scanner that is asked for no more than it
//! was given begins again anywhere at [`Scanner::position`] and meets the same records.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{FileIdentity, HEAD_BYTES_MAX, SourceFile};
use crate::error::SourceError;
use crate::extract::{Classified, Extractor};
use crate::framing::{Finish, Frame, Framer, Unread};

/// Bytes that are read at once.
const CHUNK_BYTES: u64 = 256 << 10;

/// Reads one file up to a given end, in a thread that may block.
#[derive(Debug)]
pub struct Scanner {
    name: String,
    path: PathBuf,
    file: File,
    identity: FileIdentity,
    extractor: Arc<Extractor>,
    framer: Framer,
    chunk: Vec<u8>,
    end: u64,
}

/// A piece of a file, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned<'a> {
    /// The piece.
    pub frame: Frame<'a>,
    /// What it is.
    pub classified: Classified,
}

/// What remains at the end of a file that is taken as final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished<'a> {
    /// Nothing, or blanks.
    Clean,
    /// A last record whose line has no end, but is whole.
    Scanned(Scanned<'a>),
    /// Bytes that are no whole record. They are not read; somebody should be warned.
    Unread {
        /// The first of them.
        offset: u64,
        /// How many.
        bytes: u64,
        /// What is missing.
        why: Unread,
    },
}

impl Scanner {
    /// Opens a file at an offset where a record begins. It is read up to `end`.
    ///
    /// # Errors
    /// [`SourceError::Io`]; [`SourceError::Shrunk`] when the file ends before offset or end.
    ///
    /// # Panics
    /// When the extractor is of another input, or `end` is below `offset`.
    pub fn open(source: &SourceFile, extractor: Arc<Extractor>, offset: u64, end: u64) -> Result<Scanner, SourceError> {
        assert_eq!(source.input, extractor.input(), "the extractor of another input");
        assert!(offset <= end, "an end {end} below the offset {offset}");
        let io = |operation| {
            let (name, path) = (source.name.clone(), source.path.clone());
            move |source| SourceError::Io { name, path, operation, source }
        };
        let file = File::open(&source.path).map_err(io("opening"))?;
        let metadata = file.metadata().map_err(io("looking at it"))?;
        let scanner = Scanner {
            name: source.name.clone(),
            path: source.path.clone(),
            file,
            identity: FileIdentity::of(&metadata),
            framer: Framer::new(extractor.framing(), extractor.line_bytes_max(), offset),
            extractor,
            chunk: Vec::new(),
            end,
        };
        if metadata.len() < end {
            return Err(scanner.shrunk(metadata.len()));
        }
        Ok(scanner)
    }

    /// The next piece before the end; none when there is no whole one.
    ///
    /// # Errors
    /// [`SourceError::Io`]; [`SourceError::Shrunk`] when the file is shorter by now.
    pub fn next_scanned(&mut self) -> Result<Option<Scanned<'_>>, SourceError> {
        let framed = loop {
            if let Some(framed) = self.framer.take_framed() {
                break framed;
            }
            if !self.read_chunk()? {
                return Ok(None);
            }
        };
        let frame = self.framer.show(framed);
        let classified = self.extractor.classify(&self.name, &frame);
        Ok(Some(Scanned { frame, classified }))
    }

    /// What remains at the end, if the file is taken as final. All pieces must have been taken.
    pub fn finish(&mut self) -> Finished<'_> {
        match self.framer.finish() {
            Finish::Clean => Finished::Clean,
            Finish::Frame(frame) => {
                let classified = self.extractor.classify(&self.name, &frame);
                Finished::Scanned(Scanned { frame, classified })
            }
            Finish::Unread { offset, bytes, why } => Finished::Unread { offset, bytes, why },
        }
    }

    /// Reads further than before: the file has grown.
    pub fn extend(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// All before it is read, or blank; a cursor may stand here.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.framer.position()
    }

    /// Up to where it reads.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The file that is open, whatever its path names by now.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// The first bytes of the file that is open, as far as a head can cover them and the scanner
    /// may read.
    ///
    /// # Errors
    /// [`SourceError::Io`]; [`SourceError::Shrunk`] when the file is shorter by now.
    pub fn beginning(&self) -> Result<Vec<u8>, SourceError> {
        let wanted = self.end.min(HEAD_BYTES_MAX);
        let mut beginning = vec![0; usize::try_from(wanted).expect("a head is small")];
        match self.file.read_exact_at(&mut beginning, 0) {
            Ok(()) => Ok(beginning),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.shrunk(self.file.metadata().map_or(0, |metadata| metadata.len())))
            }
            Err(source) => {
                let (name, path) = (self.name.clone(), self.path.clone());
                Err(SourceError::Io { name, path, operation: "reading", source })
            }
        }
    }

    /// The stable name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there were bytes to read.
    fn read_chunk(&mut self) -> Result<bool, SourceError> {
        let offset = self.framer.push_position();
        let wanted = (self.end - offset).min(CHUNK_BYTES);
        if wanted == 0 {
            return Ok(false);
        }
        self.chunk.resize(usize::try_from(wanted).expect("a chunk is small"), 0);
        let read = loop {
            match self.file.read_at(&mut self.chunk, offset) {
                Ok(read) => break read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => {
                    let (name, path) = (self.name.clone(), self.path.clone());
                    return Err(SourceError::Io { name, path, operation: "reading", source });
                }
            }
        };
        if read == 0 {
            return Err(self.shrunk(offset));
        }
        self.framer.push(&self.chunk[..read]);
        Ok(true)
    }

    fn shrunk(&self, size: u64) -> SourceError {
        SourceError::Shrunk { name: self.name.clone(), path: self.path.clone(), size, expected: self.end }
    }
}

/// Reads a stretch of a file: a document whose place an index knows.
///
/// # Errors
/// [`SourceError::Io`]; a file that ends before is one too.
pub fn read_exact_at(name: &str, path: &Path, offset: u64, bytes: usize) -> Result<Vec<u8>, SourceError> {
    let read = || {
        let mut buffer = vec![0; bytes];
        File::open(path)?.read_exact_at(&mut buffer, offset)?;
        Ok(buffer)
    };
    read().map_err(|source| SourceError::Io {
        name: name.to_owned(),
        path: path.to_owned(),
        operation: "reading",
        source,
    })
}

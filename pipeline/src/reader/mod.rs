//! Reading sources: which files there are, how far each is read, and reading on.
//!
//! Both sides of the join read alike: the event store its primary streams, the dispatcher its
//! foreign one. A *pass* lists the files, takes their sizes, and reads up to those; in follow mode
//! passes go on, and find new files and new bytes.
//!
//! Invariant: a pass that ends well has read every complete record that was there when it began. A
//! file that was cut, replaced, or rewritten in place is an error that names it, and is not read on:
//! its beginning is looked at whenever it is opened or has changed ([`Head`]).
//!
//! A record that was given to the sink is not given again, also when the pass fails behind it: so
//! every pass, whatever it came to, ends with [`Sink::end`].
//!
//! Not here: when to make a pass, and what becomes of records ([`Sink`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use photon_format::config::{Config, InputIndex, Role};
use photon_format::error::SourceError;
use photon_format::extract::Extractor;
use photon_format::source::{FileIdentity, Finished, Head, Scanned, Scanner, SourceFile, SourceList};
use tracing::{info, warn};

use crate::error::PipelineError;

/// Files that are kept open, at most; others are opened when they have grown.
const OPEN_FILES_MAX: usize = 256;

/// What takes the records of a pass.
pub(crate) trait Sink {
    /// Where to begin with a file that is met for the first time, and what it began with when an
    /// earlier life read up to there.
    fn start(&mut self, file: &SourceFile) -> Result<(u64, Head), PipelineError>;

    /// The file is the one that was read, and begins with this. Pieces of it may follow.
    fn turn(&mut self, file: &SourceFile, beginning: &Bytes);

    /// A piece of a file.
    fn take(&mut self, file: &SourceFile, scanned: Scanned<'_>) -> Result<Flow, PipelineError>;

    /// Nothing more of this file for now: all before `position` was taken, or is blank.
    fn rest(&mut self, file: &SourceFile, position: u64) -> Result<Flow, PipelineError>;

    /// The pass is over, well or not: what was gathered goes on its way. It does not come again.
    fn end(&mut self) -> Flow;
}

/// Whether reading goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    GoOn,
    /// The role stops.
    Stop,
}

/// How a pass ended.
#[derive(Debug)]
pub(crate) enum Pass {
    /// All that was there is read.
    Done,
    /// The sink wants no more.
    Stopped,
    /// Some files can not be read; the others are.
    Faulty(Vec<PipelineError>),
}

/// Which files are read, and whether they grow.
#[derive(Clone, Debug)]
pub(crate) enum Sources {
    /// As the inputs' directories show them, again in each pass.
    Follow,
    /// These, up to their listed sizes, and no others.
    Final(SourceList),
}

#[derive(Debug)]
struct Known {
    identity: FileIdentity,
    position: u64,
    /// What it began with, as far as it was read.
    head: Head,
    /// How long the file was, and when it was changed last, when it was read up to its end.
    read: Option<(u64, i64)>,
    /// Kept while it is likely to grow: it holds the beginning of a record that is not whole yet.
    scanner: Option<Scanner>,
}

/// The files of one role in one datacenter.
pub(crate) struct Reader {
    config: Arc<Config>,
    datacenter: String,
    role: Role,
    sources: Sources,
    /// A turn at one file ends after so many bytes, so that a long file does not hold up the others.
    turn_bytes: u64,
    extractors: Vec<Arc<Extractor>>,
    known: BTreeMap<String, Known>,
    /// How many of them have a scanner.
    open: usize,
    /// Links to themselves that somebody was told of.
    loops: BTreeSet<PathBuf>,
}

impl Reader {
    pub fn new(config: Arc<Config>, datacenter: &str, role: Role, sources: Sources, turn_bytes: u64) -> Reader {
        let extractors = Extractor::of_all_inputs(&config).into_iter().map(Arc::new).collect();
        Reader {
            config,
            datacenter: datacenter.to_owned(),
            role,
            sources,
            turn_bytes,
            extractors,
            known: BTreeMap::new(),
            open: 0,
            loops: BTreeSet::new(),
        }
    }

    /// The files that may hold records of the role, sorted by name. An input that can not be listed
    /// is a fault of its own: the others are read.
    fn list(&mut self, faults: &mut Vec<PipelineError>) -> Result<Vec<SourceFile>, PipelineError> {
        let has_role = |input: InputIndex| self.extractors[input.0].has(self.role);
        let files = match &self.sources {
            Sources::Final(list) => list.files().iter().filter(|file| has_role(file.input)).cloned().collect(),
            Sources::Follow => {
                let datacenter = self.config.datacenter(&self.datacenter)?;
                let mut files = Vec::new();
                for input in (0..self.extractors.len()).map(InputIndex).filter(|input| has_role(*input)) {
                    match SourceList::list_input(&self.config, datacenter, input) {
                        Ok(list) => {
                            for path in list.loops() {
                                if self.loops.insert(path.clone()) {
                                    warn!(path = %path.display(), "a symbolic link leads to itself; it is passed over");
                                }
                            }
                            files.extend(list.files().iter().cloned());
                        }
                        Err(error) => faults.push(error.into()),
                    }
                }
                files.sort_by(|one, other| one.name.cmp(&other.name));
                files
            }
        };
        Ok(files)
    }

    /// One pass over all files.
    ///
    /// # Errors
    /// When the sink fails, or the datacenter is not in the configuration.
    pub fn pass(&mut self, sink: &mut impl Sink) -> Result<Pass, PipelineError> {
        let pass = self.read_all(sink);
        match sink.end() {
            Flow::GoOn => pass,
            Flow::Stop => Ok(Pass::Stopped),
        }
    }

    fn read_all(&mut self, sink: &mut impl Sink) -> Result<Pass, PipelineError> {
        let mut faults = Vec::new();
        let mut files = self.list(&mut faults)?;
        while !files.is_empty() {
            let mut unread = Vec::new();
            for file in files {
                match self.turn(&file, sink) {
                    Ok(Turn::Done) => (),
                    Ok(Turn::More) => unread.push(file),
                    Ok(Turn::Stopped) => return Ok(Pass::Stopped),
                    Err(Fault::File(error)) => {
                        // Opened anew the next time.
                        self.close(&file.name);
                        faults.push(error);
                    }
                    Err(Fault::Sink(error)) => return Err(error),
                }
            }
            files = unread;
        }
        Ok(if faults.is_empty() { Pass::Done } else { Pass::Faulty(faults) })
    }

    /// How many files are known, and the bytes of them that were read.
    pub fn usage(&self) -> (usize, u64) {
        (self.known.len(), self.known.values().map(|known| known.position).sum())
    }

    fn turn(&mut self, file: &SourceFile, sink: &mut impl Sink) -> Result<Turn, Fault> {
        if !self.known.contains_key(&file.name) {
            let (position, head) = sink.start(file).map_err(Fault::File)?;
            info!(source = %file.name, path = %file.path.display(), position, size = file.size, "reading a source");
            let known = Known { identity: file.identity, position, head, read: None, scanner: None };
            self.known.insert(file.name.clone(), known);
        }
        let known = self.known.get_mut(&file.name).expect("inserted above");
        check_file(file, known.identity, known.position).map_err(Fault::File)?;
        if known.read == Some((file.size, file.changed_ns)) {
            return Ok(Turn::Done);
        }
        if known.read.is_some_and(|(size, _)| file.size < size) {
            // What the scanner holds of a record that is not whole may be gone.
            self.open -= usize::from(known.scanner.take().is_some());
        }
        if known.scanner.is_none() {
            let extractor = self.extractors[file.input.0].clone();
            let scanner = Scanner::open(file, extractor, known.position, file.size).map_err(source_fault)?;
            if scanner.identity() != known.identity {
                return Err(changed(file));
            }
            known.scanner = Some(scanner);
            self.open += 1;
        }
        let beginning = check_head(file, known).map_err(Fault::File)?;
        sink.turn(file, &beginning);
        let is_final = matches!(self.sources, Sources::Final(_));
        let turn = read(file, known, self.turn_bytes, is_final, sink);
        // Also after a fault: what was taken is read.
        if !known.head.is_whole(known.position) {
            known.head = Head::of(&beginning, known.position);
        }
        let turn = turn?;
        let is_idle = turn == Turn::Done && (is_final || known.position == file.size);
        if is_idle || OPEN_FILES_MAX < self.open {
            self.close(&file.name);
        }
        Ok(turn)
    }

    fn close(&mut self, name: &str) {
        if self.known.get_mut(name).is_some_and(|known| known.scanner.take().is_some()) {
            self.open -= 1;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Done,
    /// Its turn is over, but not the file.
    More,
    Stopped,
}

enum Fault {
    /// This file can not be read.
    File(PipelineError),
    /// Nothing can be read any more.
    Sink(PipelineError),
}

fn source_fault(error: SourceError) -> Fault {
    Fault::File(error.into())
}

fn read(
    file: &SourceFile,
    known: &mut Known,
    turn_bytes: u64,
    is_final: bool,
    sink: &mut impl Sink,
) -> Result<Turn, Fault> {
    let scanner = known.scanner.as_mut().expect("opened by the caller");
    let turn_end = known.position.saturating_add(turn_bytes);
    while let Some(scanned) = scanner.next_scanned().map_err(source_fault)? {
        let end = scanned.frame.end();
        let flow = sink.take(file, scanned).map_err(Fault::Sink)?;
        known.position = end;
        if flow == Flow::Stop {
            return Ok(Turn::Stopped);
        }
        if turn_end <= end {
            return Ok(Turn::More);
        }
    }
    if is_final {
        match scanner.finish() {
            Finished::Clean => (),
            Finished::Scanned(scanned) => {
                if sink.take(file, scanned).map_err(Fault::Sink)? == Flow::Stop {
                    return Ok(Turn::Stopped);
                }
            }
            Finished::Unread { offset, bytes, why } => {
                warn!(source = %file.name, offset, bytes, %why, "the end of a source is not read");
            }
        }
    }
    known.position = scanner.position();
    known.read = Some((file.size, file.changed_ns));
    match sink.rest(file, known.position).map_err(Fault::Sink)? {
        Flow::GoOn => Ok(Turn::Done),
        Flow::Stop => Ok(Turn::Stopped),
    }
}

/// The file that is open must begin as the one that was read did. Returns what it begins with: taken
/// before anything is read on, so that what is rewritten meanwhile does not match its own head.
fn check_head(file: &SourceFile, known: &mut Known) -> Result<Bytes, PipelineError> {
    let scanner = known.scanner.as_mut().expect("opened by the caller");
    scanner.extend(file.size);
    let beginning = Bytes::from(scanner.beginning()?);
    if !known.head.is_of(&beginning) {
        let why = format!(
            "its first {} bytes are not those that were read before: it was rewritten in place (copied over, or cut \
             and written anew); put back the file that was read, and give the new one a new name",
            known.head.bytes
        );
        return Err(PipelineError::SourceChanged { name: file.name.clone(), path: file.path.clone(), why });
    }
    Ok(beginning)
}

/// A file whose name is known must be the one that was read, and no shorter than that.
pub(crate) fn check_file(file: &SourceFile, identity: FileIdentity, offset: u64) -> Result<(), PipelineError> {
    let why = if file.identity != identity {
        "another file lies under this name than was read before (it was replaced, or restored): give the new file a new name".to_owned()
    } else if file.size < offset {
        format!("it has {} bytes, but {offset} were read before: it was cut", file.size)
    } else {
        return Ok(());
    };
    let (name, path): (String, PathBuf) = (file.name.clone(), file.path.clone());
    Err(PipelineError::SourceChanged { name, path, why })
}

fn changed(file: &SourceFile) -> Fault {
    let why = "it was replaced while it was opened; the next pass looks again".to_owned();
    Fault::File(PipelineError::SourceChanged { name: file.name.clone(), path: file.path.clone(), why })
}

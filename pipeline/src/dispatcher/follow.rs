//! The follower: a thread that reads the foreign sources and hands their records to the engine.
//!
//! Invariant: batches of one source come in the order of their offsets, without a gap: each says up
//! to where it has read. The thread waits when the engine does not take them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use photon_format::config::Role;
use photon_format::cursor::SourceCursor;
use photon_format::extract::{Classified, Reason};
use photon_format::framing::{Document, Frame};
use photon_format::source::{FileIdentity, Head, Scanned, SourceFile};
use photon_types::EventKey;
use tokio::sync::mpsc;
use tracing::error;

use super::ROLE;
use crate::chaos::Delays;
use crate::error::PipelineError;
use crate::life::{BATCH_BYTES_MAX, Life};
use crate::reader::{Flow, Pass, Reader, Sink, check_file};

/// Records of one batch, at most.
pub(super) const BATCH_RECORDS_MAX: usize = 1_000;

/// What a record costs in a batch beside its payload.
const RECORD_OVERHEAD_BYTES: usize = 128;

/// A record of the foreign stream.
#[derive(Debug)]
pub(super) struct Record {
    pub offset: u64,
    pub end: u64,
    pub kind: RecordKind,
}

#[derive(Debug)]
pub(super) enum RecordKind {
    Click { key: EventKey, reference: Bytes, payload: Bytes },
    DeadLetter { key: Option<EventKey>, reason: Reason, raw: Vec<u8> },
}

/// Records of one source, and how far it was read.
#[derive(Debug)]
pub(super) struct Batch {
    pub source: String,
    pub identity: FileIdentity,
    /// What the file begins with, as far as a head can cover it.
    pub beginning: Bytes,
    /// How long the file was when this life met it first: what an earlier life may have read.
    pub met_size: u64,
    pub records: Vec<Record>,
    /// Where bulk actions lie that add no event: behind which record, and how many.
    pub skipped: Vec<Skipped>,
    pub read_end: u64,
    pub bytes: usize,
}

/// Bulk actions between two records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skipped {
    /// Records of the batch before them.
    pub behind: usize,
    pub end: u64,
    pub actions: u64,
}

/// What the follower says.
#[derive(Debug)]
pub(super) enum Read {
    Batch(Batch),
    /// A pass over all files is done: what was there when it began is in the batches before.
    Pass,
    /// The sources do not grow, and all of it is in the batches before.
    Finished,
}

/// Files that can not be read just now, for people.
pub(super) type Faults = Arc<Mutex<Vec<String>>>;

pub(super) struct Follower {
    pub reader: Reader,
    pub saved: BTreeMap<String, SourceCursor>,
    pub out: mpsc::Sender<Read>,
    pub life: Life,
    pub poll: Duration,
    pub is_final: bool,
    pub faults: Faults,
    pub delays: Delays,
}

/// Starts the thread. It ends when the engine no longer listens.
pub(super) fn start(follower: Follower) -> Result<(), PipelineError> {
    let spawned = std::thread::Builder::new().name("photon-follower".into()).spawn(move || follower.run());
    spawned.map_err(|source| PipelineError::Thread { role: ROLE, source })?;
    Ok(())
}

impl Follower {
    fn run(self) {
        let Follower { mut reader, saved, out, life, poll, is_final, faults, delays } = self;
        let mut sink = BatchSink { saved, met: BTreeMap::new(), beginning: Bytes::new(), out, delays, batch: None };
        loop {
            let errors = match reader.pass(&mut sink) {
                Ok(Pass::Done) => Vec::new(),
                Ok(Pass::Stopped) => return,
                Ok(Pass::Faulty(errors)) => errors,
                Err(error) => vec![error],
            };
            if is_final && !errors.is_empty() {
                return errors.into_iter().for_each(|error| life.fail(error));
            }
            note(&faults, errors.iter().map(ToString::to_string).collect());
            let said = if is_final { Read::Finished } else { Read::Pass };
            let is_over = sink.out.blocking_send(said).is_err();
            if is_over || is_final {
                return;
            }
            std::thread::sleep(poll);
        }
    }
}

/// Says each fault once, and keeps the present ones.
fn note(faults: &Faults, now: Vec<String>) {
    let mut known = faults.lock().expect("nobody panics while holding it");
    for fault in now.iter().filter(|fault| !known.contains(fault)) {
        error!(fault, "a source can not be read; the others are");
    }
    *known = now;
}

struct BatchSink {
    saved: BTreeMap<String, SourceCursor>,
    met: BTreeMap<String, u64>,
    /// Of the file that is read just now.
    beginning: Bytes,
    out: mpsc::Sender<Read>,
    delays: Delays,
    batch: Option<Batch>,
}

impl BatchSink {
    fn flush(&mut self) -> Flow {
        let Some(batch) = self.batch.take() else { return Flow::GoOn };
        self.delays.block();
        match self.out.blocking_send(Read::Batch(batch)) {
            Ok(()) => Flow::GoOn,
            Err(_) => Flow::Stop,
        }
    }

    /// The open batch of a file.
    fn batch(&mut self, file: &SourceFile) -> Result<&mut Batch, Flow> {
        if self.batch.as_ref().is_some_and(|batch| batch.source != file.name) && self.flush() == Flow::Stop {
            return Err(Flow::Stop);
        }
        let met_size = *self.met.get(&file.name).expect("met before it is read");
        Ok(self.batch.get_or_insert_with(|| Batch {
            source: file.name.clone(),
            identity: file.identity,
            beginning: self.beginning.clone(),
            met_size,
            records: Vec::new(),
            skipped: Vec::new(),
            read_end: 0,
            bytes: 0,
        }))
    }

    fn put(&mut self, file: &SourceFile, scanned: &Scanned<'_>) -> Flow {
        let (offset, end) = (scanned.frame.offset(), scanned.frame.end());
        let batch = match self.batch(file) {
            Ok(batch) => batch,
            Err(flow) => return flow,
        };
        batch.read_end = end;
        match &scanned.classified {
            Classified::Foreign { stream: _, key, reference } => {
                let payload = Bytes::copy_from_slice(payload(&scanned.frame));
                let reference = Bytes::copy_from_slice(reference.as_bytes());
                batch.bytes += payload.len() + RECORD_OVERHEAD_BYTES;
                let kind = RecordKind::Click { key: key.clone(), reference, payload };
                batch.records.push(Record { offset, end, kind });
            }
            Classified::DeadLetter { stream: _, role: Role::Foreign, key, reason } => {
                let raw = raw(&scanned.frame).to_vec();
                batch.bytes += raw.len() + RECORD_OVERHEAD_BYTES;
                let kind = RecordKind::DeadLetter { key: key.clone(), reason: *reason, raw };
                batch.records.push(Record { offset, end, kind });
            }
            Classified::Skipped { operation: _ } => {
                let behind = batch.records.len();
                match batch.skipped.last_mut() {
                    Some(last) if last.behind == behind => {
                        last.end = end;
                        last.actions += 1;
                    }
                    Some(_) | None => batch.skipped.push(Skipped { behind, end, actions: 1 }),
                }
            }
            Classified::Primary { .. }
            | Classified::DeadLetter { role: Role::Primary, .. }
            | Classified::NotSelected => {}
        }
        let is_full = BATCH_RECORDS_MAX <= batch.records.len() || BATCH_BYTES_MAX <= batch.bytes;
        if is_full { self.flush() } else { Flow::GoOn }
    }
}

/// The payload of a click: its document, as it stands.
fn payload<'a>(frame: &Frame<'a>) -> &'a [u8] {
    match frame {
        Frame::Record(record) => match record.document {
            Document::Line(line) => line,
            Document::TooLong { bytes: _ } => &[],
        },
        Frame::BadAction { .. } | Frame::Skipped { .. } => &[],
    }
}

fn raw<'a>(frame: &Frame<'a>) -> &'a [u8] {
    match frame {
        Frame::Record(record) => record.raw,
        Frame::BadAction { raw, .. } => raw,
        Frame::Skipped { .. } => &[],
    }
}

impl Sink for BatchSink {
    fn start(&mut self, file: &SourceFile) -> Result<(u64, Head), PipelineError> {
        let start = match self.saved.get(&file.name) {
            None => (0, Head::default()),
            // Known only by clicks that were put back: never read.
            Some(SourceCursor { device: 0, inode: 0, offset, head, counts: _ }) => (*offset, *head),
            Some(SourceCursor { device, inode, offset, head, counts: _ }) => {
                check_file(file, FileIdentity { device: *device, inode: *inode }, *offset)?;
                (*offset, *head)
            }
        };
        self.met.insert(file.name.clone(), file.size);
        Ok(start)
    }

    fn turn(&mut self, file: &SourceFile, beginning: &Bytes) {
        self.beginning = beginning.clone();
        if let Some(batch) = self.batch.as_mut().filter(|batch| batch.source == file.name) {
            batch.beginning = beginning.clone();
        }
    }

    fn take(&mut self, file: &SourceFile, scanned: Scanned<'_>) -> Result<Flow, PipelineError> {
        Ok(self.put(file, &scanned))
    }

    fn rest(&mut self, file: &SourceFile, position: u64) -> Result<Flow, PipelineError> {
        match self.batch(file) {
            Ok(batch) => batch.read_end = batch.read_end.max(position),
            Err(flow) => return Ok(flow),
        }
        Ok(self.flush())
    }

    fn end(&mut self) -> Flow {
        self.flush()
    }
}

//! The event reader: a thread that makes passes over the primary sources.
//!
//! Invariant: a pass is reported done only after all its records are in the index.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use photon_format::config::Role;
use photon_format::extract::{Classified, JoinId};
use photon_format::framing::{Document, Frame};
use photon_format::source::{Scanned, SourceFile};
use tokio::sync::oneshot;
use tracing::{debug, error, info, warn};

use super::ROLE;
use super::index::SourceNumber;
use super::log::LogReader;
use super::shared::{PrimaryRecord, Shared};
use crate::chaos::Delays;
use crate::error::PipelineError;
use crate::life::{BATCH_BYTES_MAX, Life};
use crate::reader::{Flow, Pass, Reader, Sink};

/// Records that go into the index together.
const BATCH_RECORDS_MAX: usize = 1_000;

/// What an entry costs in a batch beside its payload.
const RECORD_OVERHEAD_BYTES: usize = 128;

pub(super) struct Work {
    pub reader: Reader,
    pub shared: Arc<Shared>,
    pub logs: Arc<LogReader>,
    pub life: Life,
    pub poll: Duration,
    pub is_final: bool,
    pub delays: Delays,
}

/// The thread, as its owner sees it.
#[derive(Debug)]
pub(super) struct ReaderThread {
    /// Dropped to stop it.
    stop: SyncSender<()>,
    ended: oneshot::Receiver<()>,
}

impl ReaderThread {
    pub async fn stop(self) {
        drop(self.stop);
        // An error means that it has ended, too.
        let _ = self.ended.await;
    }
}

pub(super) fn start(work: Work) -> Result<ReaderThread, PipelineError> {
    let (stop, stopped) = sync_channel(0);
    let (ending, ended) = oneshot::channel();
    let run = move || {
        work.run(&stopped);
        // Whoever waits may have gone.
        let _ = ending.send(());
    };
    let spawned = std::thread::Builder::new().name("photon-reader".into()).spawn(run);
    spawned.map_err(|source| PipelineError::Thread { role: ROLE, source })?;
    Ok(ReaderThread { stop, ended })
}

impl Work {
    fn run(mut self, stopped: &Receiver<()>) {
        let mut last_fault = String::new();
        loop {
            let number = self.shared.begin_pass();
            let mut sink = IndexSink {
                shared: &self.shared,
                logs: &self.logs,
                stopped,
                delays: &self.delays,
                source: None,
                batch: Vec::new(),
                bytes: 0,
            };
            let fault = match self.reader.pass(&mut sink) {
                Ok(Pass::Done) => None,
                Ok(Pass::Stopped) => return,
                Ok(Pass::Faulty(errors)) => errors.into_iter().next(),
                Err(error) => Some(error),
            };
            match fault {
                None => {
                    self.shared.end_pass(number, self.is_final);
                    if number == 1 {
                        let (files, bytes) = self.reader.usage();
                        info!(files, bytes, ids = self.shared.usage().0, "all primary sources are read");
                    }
                    last_fault.clear();
                    if self.is_final {
                        return;
                    }
                }
                Some(error) if self.is_final => {
                    self.shared.fail_pass(&error.to_string());
                    return self.life.fail(error);
                }
                Some(error) => {
                    let why = error.to_string();
                    self.shared.fail_pass(&why);
                    // Once, not five times a second.
                    if why != last_fault {
                        error!(%error, "a primary source can not be read; clicks whose query is not known wait");
                    }
                    last_fault = why;
                }
            }
            match stopped.recv_timeout(self.poll) {
                Err(RecvTimeoutError::Timeout) => (),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Puts primary records into the index, in batches of one source.
struct IndexSink<'a> {
    shared: &'a Shared,
    logs: &'a LogReader,
    stopped: &'a Receiver<()>,
    delays: &'a Delays,
    source: Option<(String, SourceNumber)>,
    batch: Vec<PrimaryRecord>,
    bytes: usize,
}

impl IndexSink<'_> {
    fn flush(&mut self) -> Flow {
        if !self.batch.is_empty() {
            let (_, source) = self.source.as_ref().expect("records have a source");
            self.delays.block();
            self.shared.put(*source, self.batch.drain(..));
            self.bytes = 0;
        }
        match self.stopped.try_recv() {
            Err(TryRecvError::Empty) => Flow::GoOn,
            Ok(()) | Err(TryRecvError::Disconnected) => Flow::Stop,
        }
    }

    fn put(&mut self, file: &SourceFile, scanned: &Scanned<'_>, id: &JoinId) -> Flow {
        let Frame::Record(record) = &scanned.frame else { return Flow::GoOn };
        let Document::Line(payload) = record.document else { return Flow::GoOn };
        let Ok(bytes) = u32::try_from(record.end - record.offset) else {
            warn!(source = %file.name, offset = record.offset, "a primary record over 4 GiB is not indexed");
            return Flow::GoOn;
        };
        if self.source.as_ref().is_none_or(|(name, _)| *name != file.name) {
            if self.flush() == Flow::Stop {
                return Flow::Stop;
            }
            self.source = Some((file.name.clone(), self.shared.source(&file.name)));
        }
        self.bytes += payload.len() + RECORD_OVERHEAD_BYTES;
        self.batch.push(PrimaryRecord {
            id: Bytes::copy_from_slice(id.as_bytes()),
            offset: record.offset,
            bytes,
            payload: Bytes::copy_from_slice(payload),
        });
        let is_full = BATCH_RECORDS_MAX <= self.batch.len() || BATCH_BYTES_MAX <= self.bytes;
        if is_full { self.flush() } else { Flow::GoOn }
    }
}

impl Sink for IndexSink<'_> {
    fn start(&mut self, file: &SourceFile) -> Result<u64, PipelineError> {
        self.logs.register(self.shared.source(&file.name), file.path.clone(), file.input);
        Ok(0)
    }

    fn take(&mut self, file: &SourceFile, scanned: Scanned<'_>) -> Result<Flow, PipelineError> {
        Ok(match &scanned.classified {
            Classified::Primary { stream: _, id } => self.put(file, &scanned, id),
            Classified::DeadLetter { stream: _, role: Role::Primary, key: _, reason } => {
                // No click: it is in no ledger, but somebody may wonder.
                debug!(source = %file.name, offset = scanned.frame.offset(), %reason, "a primary record is not usable");
                Flow::GoOn
            }
            Classified::DeadLetter { role: Role::Foreign, .. }
            | Classified::Foreign { .. }
            | Classified::NotSelected
            | Classified::Skipped { .. } => Flow::GoOn,
        })
    }

    fn rest(&mut self, _file: &SourceFile, _position: u64) -> Result<Flow, PipelineError> {
        Ok(self.flush())
    }
}

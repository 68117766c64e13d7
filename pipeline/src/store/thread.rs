//! The event reader: a thread that makes passes over the primary sources.
//!
//! Invariant: a pass is reported done only after all its records are in the index; and whatever a
//! pass came to, all that it has read is there, since the next one goes on behind it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use photon_format::config::Role;
use photon_format::extract::{Classified, JoinId, Reason};
use photon_format::framing::{Document, Frame};
use photon_format::source::{Head, Scanned, SourceFile};
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
        let mut told = HashSet::new();
        loop {
            let number = self.shared.begin_pass();
            let mut sink = IndexSink {
                shared: &self.shared,
                logs: &self.logs,
                stopped,
                delays: &self.delays,
                told: &mut told,
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
    /// Sources with a record that is not usable, of which somebody was told.
    told: &'a mut HashSet<String>,
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

    /// No click: it is in no ledger. But clicks that mean it will find no query.
    fn on_dead_letter(&mut self, file: &SourceFile, offset: u64, reason: Reason) {
        self.shared.count_dead_letter();
        if self.told.contains(&file.name) {
            return debug!(source = %file.name, offset, %reason, "a primary record is not usable");
        }
        self.told.insert(file.name.clone());
        warn!(
            source = %file.name, path = %file.path.display(), offset, %reason,
            "a primary record is not usable, and no click finds it; further ones of this source are only counted"
        );
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
    fn start(&mut self, file: &SourceFile) -> Result<(u64, Head), PipelineError> {
        self.logs.register(self.shared.source(&file.name), file.path.clone(), file.input);
        Ok((0, Head::default()))
    }

    fn turn(&mut self, _file: &SourceFile, _beginning: &Bytes) {}

    fn take(&mut self, file: &SourceFile, scanned: Scanned<'_>) -> Result<Flow, PipelineError> {
        Ok(match &scanned.classified {
            Classified::Primary { stream: _, id } => self.put(file, &scanned, id),
            Classified::DeadLetter { stream: _, role: Role::Primary, key: _, reason } => {
                self.on_dead_letter(file, scanned.frame.offset(), *reason);
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

    fn end(&mut self) -> Flow {
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs::OpenOptions;
    use std::path::{Path, PathBuf};

    use photon_format::config::Config;

    use super::*;
    use crate::reader::Sources;

    const CONFIG: &str = r#"
[cluster]
name = "test"
[[registry.node]]
id = 1
[[join.input]]
name = "queries"
path = "@queries"
framing = "ndjson"
[[join.input]]
name = "clicks"
path = "@clicks"
framing = "ndjson"
[[join.stream]]
name = "queries"
role = "primary"
input = "queries"
id = "q"
[[join.stream]]
name = "clicks"
role = "foreign"
input = "clicks"
id = "c"
reference = "q"
time = { field = "t", forms = ["epoch-ms"] }
[[datacenter]]
name = "east"
"#;

    /// Cuts the file behind the records that it was given.
    struct Cutting<'a> {
        sink: IndexSink<'a>,
        path: PathBuf,
        records: usize,
        bytes: u64,
    }

    impl Sink for Cutting<'_> {
        fn start(&mut self, file: &SourceFile) -> Result<(u64, Head), PipelineError> {
            self.sink.start(file)
        }

        fn turn(&mut self, file: &SourceFile, beginning: &Bytes) {
            self.sink.turn(file, beginning);
        }

        fn take(&mut self, file: &SourceFile, scanned: Scanned<'_>) -> Result<Flow, PipelineError> {
            self.records -= 1;
            if self.records == 0 {
                OpenOptions::new().write(true).open(&self.path).unwrap().set_len(self.bytes).unwrap();
            }
            self.sink.take(file, scanned)
        }

        fn rest(&mut self, file: &SourceFile, position: u64) -> Result<Flow, PipelineError> {
            self.sink.rest(file, position)
        }

        fn end(&mut self) -> Flow {
            self.sink.end()
        }
    }

    #[test]
    fn what_was_read_before_a_fault_is_in_the_index() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("queries")).unwrap();
        let path = dir.path().join("queries/a");
        let mut text = String::new();
        (0..500).for_each(|id| writeln!(text, "{{\"q\":\"q-{id}\"}}").unwrap());
        let bytes = text.len() as u64;
        // Zeros without a line end follow, more than are read at once.
        std::fs::write(&path, &text).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(8 << 20).unwrap();

        let config = CONFIG.replace('@', &format!("{}/", dir.path().display()));
        let config = Arc::new(Config::parse(&config, Path::new("test.toml")).unwrap());
        let mut reader = Reader::new(config.clone(), "east", Role::Primary, Sources::Follow, u64::MAX);
        let (shared, logs) = (Shared::new([1; 16], 1 << 20), LogReader::new(config));
        let ((_stop, stopped), delays) = (sync_channel(0), Delays::default());
        let (mut told, mut told_later) = (HashSet::new(), HashSet::new());
        let sink = |told| IndexSink {
            shared: &shared,
            logs: &logs,
            stopped: &stopped,
            delays: &delays,
            told,
            source: None,
            batch: Vec::new(),
            bytes: 0,
        };
        let mut cutting = Cutting { sink: sink(&mut told), path, records: 500, bytes };
        let pass = reader.pass(&mut cutting).unwrap();
        assert!(matches!(pass, Pass::Faulty(_)), "{pass:?}");
        drop(cutting);
        let pass = reader.pass(&mut sink(&mut told_later)).unwrap();
        assert!(matches!(pass, Pass::Done), "{pass:?}");
        assert_eq!(shared.usage().0, 500);
    }
}

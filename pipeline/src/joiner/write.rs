//! The write lane: a thread that gathers joined lines into blocks and makes them durable.
//!
//! Invariant: a click is reported durable only after `write_block` has returned for its line, which
//! is after its index entry is synced and the directory was seen in its place. The first failure
//! ends the lane, and nothing more is reported.
//!
//! A block is closed when its first line is as old as the configuration says, or when it is full.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use photon_format::config::Config;
use photon_format::output::{
    BLOCK_BYTES_MAX, BLOCK_CLICKS_MAX, JoinedLine, LineEntry, Manifest, OutputOptions, OutputWriter,
};
use photon_join::joiner::Sequence;
use photon_types::{EventKey, Token};
use tokio::sync::{mpsc, oneshot};

use super::ROLE;
use super::engine::{self, Completion};
use crate::adapter::Adapter;
use crate::chaos::Delays;
use crate::error::PipelineError;

/// The primary event of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Primary {
    pub source: String,
    pub offset: u64,
    pub payload: Bytes,
}

/// A line to write.
pub(super) struct WriteItem {
    pub key: EventKey,
    pub token: Token,
    pub click: Bytes,
    pub primary: Primary,
}

enum Order {
    Write(Vec<WriteItem>),
    Seal(oneshot::Sender<Result<(), PipelineError>>),
}

/// The engine's end of the lane.
pub(super) struct Writer {
    orders: SyncSender<Order>,
}

impl Writer {
    /// Writes these lines; does not wait.
    pub fn write(&self, items: Vec<WriteItem>) -> Result<(), PipelineError> {
        // There are no more orders than attempts: a queue that is full or closed is the thread gone.
        self.orders
            .try_send(Order::Write(items))
            .map_err(|_| PipelineError::Gone { role: ROLE, part: "the write lane" })
    }

    /// A lane that has ended.
    #[cfg(test)]
    pub fn closed() -> Writer {
        Writer { orders: sync_channel(1).0 }
    }

    /// Ends the output. Nothing may be in flight.
    pub async fn seal(&self) -> Result<(), PipelineError> {
        let gone = || PipelineError::Gone { role: ROLE, part: "the write lane" };
        let (reply, sealed) = oneshot::channel();
        self.orders.try_send(Order::Seal(reply)).map_err(|_| gone())?;
        sealed.await.map_err(|_| gone())?
    }
}

/// Makes the output directory, durable, and starts the thread.
pub(super) async fn start(
    config: &Arc<Config>,
    datacenter: &str,
    manifest: Manifest,
    adapter: Arc<dyn Adapter>,
    done: mpsc::Sender<Completion>,
    delays: Delays,
) -> Result<Writer, PipelineError> {
    let root = config.output_dir(datacenter);
    let options =
        OutputOptions { segment_bytes_max: config.join.output_segment_bytes.bytes(), ..OutputOptions::default() };
    let made = tokio::task::spawn_blocking(move || OutputWriter::create(&root, &manifest, options));
    let output = made.await.map_err(|_| PipelineError::Gone { role: ROLE, part: "making the output" })?;
    let output = output.map_err(PipelineError::Output)?;
    let (orders, inbox) = sync_channel(config.join.in_flight + 1);
    let block_bytes = usize::try_from(config.join.output_block_bytes.bytes()).unwrap_or(usize::MAX);
    let lane = Lane {
        output,
        inbox,
        adapter,
        done,
        delays,
        block_age: config.join.output_block,
        block_bytes: block_bytes.min(BLOCK_BYTES_MAX),
        block: Vec::new(),
        bytes: 0,
        began: None,
    };
    let spawned = std::thread::Builder::new().name("photon-output".into()).spawn(move || lane.run());
    spawned.map_err(|source| PipelineError::Thread { role: ROLE, source })?;
    Ok(Writer { orders })
}

struct Lane {
    output: OutputWriter,
    inbox: Receiver<Order>,
    adapter: Arc<dyn Adapter>,
    done: mpsc::Sender<Completion>,
    delays: Delays,
    block_age: Duration,
    block_bytes: usize,
    /// Lines that wait for their block to close.
    block: Vec<LineEntry>,
    bytes: usize,
    /// When the first of them came.
    began: Option<Instant>,
}

impl Lane {
    fn run(mut self) {
        loop {
            let order = match self.began {
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(began) => self.inbox.recv_timeout(self.block_age.saturating_sub(began.elapsed())),
            };
            let result = match order {
                Ok(Order::Write(items)) => items.into_iter().try_for_each(|item| self.add(item)),
                Ok(Order::Seal(reply)) => {
                    let sealed = self.close().and_then(|()| self.output.seal().map_err(PipelineError::Output));
                    // Whoever asked may have gone.
                    let _ = reply.send(sealed);
                    return;
                }
                Err(RecvTimeoutError::Timeout) => self.close(),
                // The engine is gone without a stop: what is not written was not answered either.
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if let Err(error) = result {
                return engine::report(&self.done, Completion::WriteFailed(error));
            }
        }
    }

    fn add(&mut self, item: WriteItem) -> Result<(), PipelineError> {
        let WriteItem { key, token, click, primary } = item;
        let mut line = Vec::new();
        self.adapter.merge(
            &JoinedLine {
                key: &key,
                token,
                primary_source: &primary.source,
                primary_offset: primary.offset,
                click: &click,
                query: &primary.payload,
            },
            &mut line,
        );
        // The rows of one click never cross a block.
        if self.block_bytes < self.bytes + line.len() && !self.block.is_empty() {
            self.close()?;
        }
        self.bytes += line.len();
        self.block.push(LineEntry { sequence: token.sequence, key, line });
        let began = *self.began.get_or_insert_with(Instant::now);
        let is_full = self.block_bytes <= self.bytes || BLOCK_CLICKS_MAX <= self.block.len();
        if is_full || self.block_age <= began.elapsed() { self.close() } else { Ok(()) }
    }

    fn close(&mut self) -> Result<(), PipelineError> {
        if self.block.is_empty() {
            return Ok(());
        }
        self.delays.block();
        self.output.write_block(&self.block).map_err(PipelineError::Output)?;
        self.delays.block();
        let lines = self.block.drain(..).map(|entry| Sequence(entry.sequence)).collect();
        self.bytes = 0;
        self.began = None;
        engine::report(&self.done, Completion::Durable(lines));
        Ok(())
    }
}

//! The store's door: what is in the cache at once, what is in the logs after a read, what is nowhere
//! when the store can say so.
//!
//! Invariant: a miss is answered with a position that was taken before the index was asked; while
//! the store is behind, there is no miss. Every id gets exactly one result.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use photon_proto::pipeline as wire;
use photon_proto::pipeline::event_store_server::EventStore;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::log::{LogReader, Wanted};
use super::shared::{Progress, Seen, Shared};
use crate::chaos::Delays;
use crate::convert::{self, CALL_ITEMS_MAX};
use crate::life::BATCH_BYTES_MAX;

/// Calls at once; more are refused.
const CALLS_MAX: usize = 1_024;

/// Calls that read logs at once.
const LOG_READS_MAX: usize = 4;

/// Pages that wait for the caller to take them.
const PAGES_MAX: usize = 4;

/// The longest wait that a caller may ask for.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// How often those that wait look again while sources are read.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(super) struct Service {
    shared: Arc<Shared>,
    logs: Arc<LogReader>,
    calls: Arc<Semaphore>,
    log_reads: Arc<Semaphore>,
    delays: Delays,
}

impl Service {
    pub fn new(shared: Arc<Shared>, logs: Arc<LogReader>, delays: Delays) -> Service {
        Service {
            shared,
            logs,
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            log_reads: Arc::new(Semaphore::new(LOG_READS_MAX)),
            delays,
        }
    }
}

#[tonic::async_trait]
impl EventStore for Service {
    type GetStream = ReceiverStream<Result<wire::GetPage, Status>>;

    async fn get(&self, request: Request<wire::GetRequest>) -> Result<Response<Self::GetStream>, Status> {
        let wire::GetRequest { ids, wait_ms } = request.into_inner();
        if ids.is_empty() || CALL_ITEMS_MAX < ids.len() {
            let found = ids.len();
            return Err(Status::invalid_argument(format!("{found} ids, 1 to {CALL_ITEMS_MAX} are allowed")));
        }
        let ids: Result<Vec<_>, _> = ids.into_iter().map(convert::join_id).collect();
        let ids = ids.map_err(Status::invalid_argument)?;
        let Ok(permit) = self.calls.clone().try_acquire_owned() else {
            return Err(Status::resource_exhausted("this event store has no room: ask again later"));
        };
        let until = Instant::now() + Duration::from_millis(u64::from(wait_ms)).min(WAIT_MAX);
        let (pages, replies) = mpsc::channel(PAGES_MAX);
        let call = Call {
            shared: self.shared.clone(),
            logs: self.logs.clone(),
            log_reads: self.log_reads.clone(),
            delays: self.delays.clone(),
            pages: Pages { out: pages, results: Vec::new(), bytes: 0 },
            until,
        };
        tokio::spawn(async move {
            // A caller that has gone needs no answer.
            let _ = call.run(ids).await;
            drop(permit);
        });
        Ok(Response::new(ReceiverStream::new(replies)))
    }
}

struct Gone;

/// Results on their way, cut into pages.
struct Pages {
    out: mpsc::Sender<Result<wire::GetPage, Status>>,
    results: Vec<wire::GetResult>,
    bytes: usize,
}

impl Pages {
    async fn put(&mut self, index: u32, result: wire::get_result::Result) -> Result<(), Gone> {
        self.bytes += match &result {
            wire::get_result::Result::Found(found) => found.payload.len(),
            wire::get_result::Result::Missing(_) | wire::get_result::Result::Behind(_) => 0,
        };
        self.results.push(wire::GetResult { index, result: Some(result) });
        if BATCH_BYTES_MAX <= self.bytes { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), Gone> {
        self.bytes = 0;
        let results = std::mem::take(&mut self.results);
        if results.is_empty() {
            return Ok(());
        }
        self.out.send(Ok(wire::GetPage { results })).await.map_err(|_| Gone)
    }
}

struct Call {
    shared: Arc<Shared>,
    logs: Arc<LogReader>,
    log_reads: Arc<Semaphore>,
    delays: Delays,
    pages: Pages,
    until: Instant,
}

impl Call {
    async fn run(mut self, ids: Vec<Bytes>) -> Result<(), Gone> {
        self.delays.wait().await;
        let mut progress = self.shared.progress();
        let mut open: Vec<(u32, Bytes)> = (0..).zip(ids).collect();
        loop {
            // First the position, then the index.
            let now = progress.borrow_and_update().clone();
            open = self.look(open).await?;
            if open.is_empty() || now.behind.is_none() || self.until <= Instant::now() {
                return self.end(open, &now).await;
            }
            self.pages.flush().await?;
            tokio::select! {
                _ = self.pages.out.closed() => return Err(Gone),
                () = tokio::time::sleep_until(self.until) => (),
                () = news(&mut progress, &now) => (),
            }
        }
    }

    /// Answers what is there. Returns what is nowhere.
    async fn look(&mut self, open: Vec<(u32, Bytes)>) -> Result<Vec<(u32, Bytes)>, Gone> {
        let ids: Vec<_> = open.iter().map(|(_, id)| id).collect();
        let seen = self.shared.look(&ids);
        let (mut nowhere, mut in_log) = (Vec::new(), Vec::new());
        for ((index, id), seen) in open.into_iter().zip(seen) {
            match seen {
                Seen::Cached { source, offset, payload } => {
                    let found = wire::PrimaryEvent { source: source.to_string(), offset, payload };
                    self.pages.put(index, wire::get_result::Result::Found(found)).await?;
                }
                Seen::InLog { source, name, place } => in_log.push((index, Wanted { id, source, name, place })),
                Seen::Nowhere => nowhere.push((index, id)),
            }
        }
        if !in_log.is_empty() {
            self.read_logs(in_log).await?;
        }
        Ok(nowhere)
    }

    async fn read_logs(&mut self, in_log: Vec<(u32, Wanted)>) -> Result<(), Gone> {
        let _slot = self.log_reads.clone().acquire_owned().await.expect("never closed");
        let (indices, wanted): (Vec<_>, Vec<_>) = in_log.into_iter().unzip();
        let logs = self.logs.clone();
        let read = tokio::task::spawn_blocking(move || {
            let results: Vec<_> = wanted.iter().map(|wanted| logs.read(wanted)).collect();
            (wanted, results)
        });
        let Ok((wanted, results)) = read.await else {
            for index in indices {
                let behind = wire::Behind { reason: "reading the log was broken off".into(), unreadable: false };
                self.pages.put(index, wire::get_result::Result::Behind(behind)).await?;
            }
            return Ok(());
        };
        for ((index, wanted), result) in indices.into_iter().zip(wanted).zip(results) {
            let result = match result {
                Ok(payload) => {
                    self.shared.put_cached(wanted.id, wanted.place, payload.clone());
                    let (source, offset) = (wanted.name.to_string(), wanted.place.offset);
                    wire::get_result::Result::Found(wire::PrimaryEvent { source, offset, payload })
                }
                Err(error) => {
                    let (reason, unreadable) = (error.to_string(), true);
                    wire::get_result::Result::Behind(wire::Behind { reason, unreadable })
                }
            };
            self.pages.put(index, result).await?;
        }
        Ok(())
    }

    async fn end(&mut self, nowhere: Vec<(u32, Bytes)>, now: &Progress) -> Result<(), Gone> {
        self.delays.wait().await;
        for (index, _) in nowhere {
            let result = match &now.behind {
                None => wire::get_result::Result::Missing(convert::position_to_wire(now.position)),
                Some(reason) => {
                    let (reason, unreadable) = (reason.to_string(), false);
                    wire::get_result::Result::Behind(wire::Behind { reason, unreadable })
                }
            };
            self.pages.put(index, result).await?;
        }
        self.pages.flush().await
    }
}

/// Waits until there is reason to look again: the store is no longer behind, or it has read more, a
/// little while ago.
async fn news(progress: &mut tokio::sync::watch::Receiver<Progress>, before: &Progress) {
    if progress.wait_for(|now| now.behind.is_none() || now.batches != before.batches).await.is_err() {
        // The store stops: the wait ends with its deadline.
        return std::future::pending().await;
    }
    if progress.borrow().behind.is_some() {
        let caught_up = progress.wait_for(|now| now.behind.is_none());
        // Many small batches are one reason.
        let _ = tokio::time::timeout(LOOK_AGAIN, caught_up).await;
    }
}

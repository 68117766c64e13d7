//! The dispatcher: follows the click logs, and brings every click to an end, at least once.
//!
//! ```text
//!  click logs ─▶ follower (thread) ─batches─▶ engine ─▶ calls ─▶ registry, joiner
//!                                              ▲  ▼
//!           verifier ─Reinject─▶ service ─▶ state (thread): ends, retry store, cursor
//! ```
//!
//! Invariant: whatever stops it, nothing is lost: what lies before the saved cursor has an end or a
//! place in the retry store, both durable, and what lies behind is read again.
//!
//! Not here: exactly once. That is the registry's; this one repeats what has no end.

mod bounds;
mod calls;
mod convert;
mod engine;
mod follow;
mod outbox;
mod service;
mod state;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use photon_client::Client;
use photon_format::config::{Config, Role};
use photon_format::cursor::Counts;
use photon_format::retry::RetryLimits;
use photon_format::source::SourceList;
use photon_proto::pipeline::dispatcher_server::DispatcherServer;
use photon_proto::pipeline::joiner_client::JoinerClient;
use photon_types::Prng;
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::{error, info};

use self::bounds::Bounds;
use self::calls::{CallReport, Calls};
use self::engine::{Engine, Setup};
use self::follow::{BATCH_RECORDS_MAX, Faults, Follower, Read};
use self::state::{Files, Opened, Report};
use crate::chaos::Delays;
use crate::error::PipelineError;
use crate::life::{self, Health, Life, MESSAGE_BYTES_MAX, Servers};
use crate::reader::{Reader, Sources};

const ROLE: &str = "dispatcher";

/// Batches of the follower that wait.
const BATCHES_MAX: usize = 2;

/// Reports that wait for the engine, and that it takes in one round.
const REPORTS_MAX: usize = 1_024;
const ROUND_MAX: usize = 256;

/// A turn at one file.
const TURN_BYTES: u64 = 4 * 1024 * 1024;

/// How often the cursor is saved, when it has moved.
const SAVE_INTERVAL: Duration = Duration::from_millis(200);

/// How long a dispatcher that stops waits for calls under way. Their clicks are asked for again.
const STOP_WAIT_MAX: Duration = Duration::from_secs(2);

/// Records per second that a dispatcher begins at most, unless told otherwise: it must not take the
/// registry from those that are up to date when it catches up.
pub const RECORDS_PER_SECOND_MAX: u64 = 200_000;

/// What a dispatcher needs to know.
pub struct DispatcherConfig {
    /// The configuration of the whole.
    pub config: Arc<Config>,
    /// Whose dispatcher it is.
    pub datacenter: String,
    /// Where it serves verifiers; port 0 is any.
    pub listen: String,
    /// Where it serves `/healthz` and `/status`.
    pub http: Option<String>,
    /// The joiner, `host:port`.
    pub joiner: String,
    /// The registry.
    pub client: Client,
    /// The sources, if they do not grow: `--once`. With the paths they have in this datacenter.
    pub sources: Option<SourceList>,
    /// How many records it begins per second, at most.
    pub records_per_second_max: u64,
    /// A seed of random delays, for tests.
    pub chaos_delays: Option<u64>,
}

/// What became of the records that a dispatcher has read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// By source.
    pub sources: BTreeMap<String, Counts>,
    /// Clicks in the retry store.
    pub pending: u64,
    /// Records under way in front of the cursors; they are in no count yet.
    pub under_way: u64,
    /// How often all sources were read to the end that they had.
    pub passes: u64,
}

impl Ledger {
    /// All sources together.
    #[must_use]
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.sources.values().for_each(|counts| total += *counts);
        total
    }
}

/// What the engine last said about itself.
#[derive(Debug, Default)]
struct Board {
    ledger: Mutex<Ledger>,
    /// Sources that can not be read.
    faults: Faults,
    /// Why clicks wait.
    troubles: Mutex<Vec<String>>,
    /// How often the engine was awake.
    rounds: AtomicU64,
}

impl Board {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nobody panics while holding it")
    }

    fn troubles(&self) -> MutexGuard<'_, Vec<String>> {
        self.troubles.lock().expect("nobody panics while holding it")
    }
}

impl Health for Board {
    fn unhealthy(&self) -> Option<String> {
        let fault = self.faults.lock().expect("nobody panics while holding it").first().cloned();
        fault.or_else(|| self.troubles().first().cloned())
    }

    fn status(&self) -> serde_json::Value {
        let ledger = self.ledger().clone();
        let counts = |counts: Counts| {
            json!({
                "read": counts.read,
                "reinjected": counts.reinjected,
                "joined": counts.joined,
                "claimed": counts.claimed,
                "filtered": counts.filtered,
                "unjoinable": counts.unjoinable,
                "expired": counts.expired,
                "dead_lettered": counts.dead_lettered,
                "skipped": counts.skipped,
            })
        };
        let sources: BTreeMap<_, _> = ledger.sources.iter().map(|(name, it)| (name.clone(), counts(*it))).collect();
        json!({
            "role": ROLE,
            "ledger": counts(ledger.total()),
            "pending": ledger.pending,
            "under_way": ledger.under_way,
            "passes": ledger.passes,
            "faults": *self.faults.lock().expect("nobody panics while holding it"),
            "troubles": *self.troubles(),
            "rounds": self.rounds.load(Ordering::Relaxed),
            "sources": sources,
        })
    }
}

/// A dispatcher that runs.
#[derive(Debug)]
pub struct RunningDispatcher {
    /// Where it serves verifiers.
    pub address: SocketAddr,
    /// Where it serves `/healthz`.
    pub http_address: Option<SocketAddr>,
    life: Life,
    servers: Servers,
    board: Arc<Board>,
    drained: watch::Receiver<bool>,
    stop: mpsc::Sender<oneshot::Sender<()>>,
    unlocked: oneshot::Receiver<()>,
}

/// Starts a dispatcher. It goes on where the last one of its directory was.
///
/// # Errors
/// [`PipelineError`]: an address in use, files that are damaged or another dispatcher's.
pub async fn start(dispatcher: DispatcherConfig) -> Result<RunningDispatcher, PipelineError> {
    let DispatcherConfig {
        config,
        datacenter,
        listen,
        http,
        joiner,
        client,
        sources,
        records_per_second_max,
        chaos_delays,
    } = dispatcher;
    config.datacenter(&datacenter)?;
    let (listener, address) = life::listen(ROLE, &listen).await?;
    let http = match http {
        Some(http) => Some(life::listen(ROLE, &http).await?),
        None => None,
    };
    let joiner = JoinerClient::new(life::channel(ROLE, "the joiner", &joiner)?)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let delays = |place| Delays::new(chaos_delays, &datacenter, place);
    let life = Life::new();
    let board = Arc::new(Board::default());

    let (reporting, reports) = mpsc::channel(REPORTS_MAX);
    let is_final = sources.is_some();
    let bounds = Bounds::new(&config, is_final);
    let (files, opened, unlocked) = open_files(&config, &datacenter, bounds, reporting, delays("state")).await?;
    let (reading, reads) = mpsc::channel(BATCHES_MAX);
    follow::start(Follower {
        reader: reader(&config, &datacenter, sources),
        saved: opened.cursor.sources.clone(),
        out: reading,
        life: life.clone(),
        poll: config.join.poll,
        is_final,
        faults: board.faults.clone(),
        delays: delays("follow"),
    })?;
    let (calling, answers) = mpsc::channel(REPORTS_MAX);
    let timeout = config.join.call_timeout;
    let calls = Calls { client, joiner, timeout, reports: calling, delays: delays("call") };
    let setup = Setup {
        bounds,
        prng: Prng::new(u64::from_be_bytes(life::random(ROLE)?)),
        records_per_second_max,
        stream: config.foreign().1.name.clone(),
    };
    let engine = Engine::new(setup, files.clone(), calls, opened);
    let (draining, drained) = watch::channel(false);
    let (stop, stops) = mpsc::channel(1);
    let run = Run { engine, board: board.clone(), draining, passes: 0, is_read: false };
    spawn(run.run(reports, answers, reads, stops), &life);

    let mut servers = Servers::new();
    let service = DispatcherServer::new(service::Service::new(&config, files, delays("reinject")))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    servers.serve_rpc(ROLE, listener, address, &life, |server| server.add_service(service));
    let http_address = http.map(|(listener, address)| {
        servers.serve_http(ROLE, listener, &life, board.clone());
        address
    });
    info!(%datacenter, %address, "dispatcher runs");
    Ok(RunningDispatcher { address, http_address, life, servers, board, drained, stop, unlocked })
}

/// Its failure is the role's.
fn spawn(run: impl Future<Output = Result<(), PipelineError>> + Send + 'static, life: &Life) {
    let life = life.clone();
    tokio::spawn(async move {
        if let Err(error) = run.await {
            error!(%error, "the dispatcher ends; what its cursor passed is durable");
            life.fail(error);
        }
    });
}

fn reader(config: &Arc<Config>, datacenter: &str, sources: Option<SourceList>) -> Reader {
    let sources = sources.map_or(Sources::Follow, Sources::Final);
    Reader::new(config.clone(), datacenter, Role::Foreign, sources, TURN_BYTES)
}

async fn open_files(
    config: &Arc<Config>,
    datacenter: &str,
    bounds: Bounds,
    reports: mpsc::Sender<Report>,
    delays: Delays,
) -> Result<(Files, Opened, oneshot::Receiver<()>), PipelineError> {
    let directory = config.dispatcher_dir(datacenter);
    let limits = RetryLimits { records_max: config.join.retry_store as u64, ..RetryLimits::default() };
    // Each click under way has one order at most; a batch may come on top.
    let in_flight_max = bounds.window + bounds.retries_under_way + 2 * BATCH_RECORDS_MAX;
    let opening = tokio::task::spawn_blocking(move || state::start(directory, limits, in_flight_max, reports, delays));
    opening.await.map_err(|_| PipelineError::Gone { role: ROLE, part: "opening its files" })?
}

impl RunningDispatcher {
    /// Ends when the dispatcher can not go on. The process must end then; nothing is lost.
    pub async fn failed(&self) -> Arc<PipelineError> {
        self.life.failed().await
    }

    /// Ends when all sources are read, all their records have an end, and the cursor says so on
    /// disk. Only where the sources do not grow. A click that is put back makes it wait again.
    pub async fn drained(&self) {
        let mut drained = self.drained.clone();
        if drained.wait_for(|drained| *drained).await.is_err() {
            // It has failed: `failed` tells why.
            std::future::pending::<()>().await;
        }
    }

    /// What became of the records.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.board.ledger().clone()
    }

    /// Begins nothing new, waits a little for calls under way, saves the cursor.
    ///
    /// # Errors
    /// What made it fail before.
    pub async fn shutdown(self) -> Result<Ledger, PipelineError> {
        let (reply, saved) = oneshot::channel();
        let is_saved = self.stop.send(reply).await.is_ok() && saved.await.is_ok();
        self.servers.stop().await;
        // Another one may start at once. Bounded, since a door that was cut may still hold the queue.
        let _ = tokio::time::timeout(STOP_WAIT_MAX, self.unlocked).await;
        if is_saved {
            return Ok(self.board.ledger().clone());
        }
        let gone = PipelineError::Gone { role: ROLE, part: "its engine" };
        Err(self.life.failure().map_or(gone, PipelineError::Shared))
    }
}

/// The loop around the engine.
struct Run {
    engine: Engine,
    board: Arc<Board>,
    draining: watch::Sender<bool>,
    passes: u64,
    /// The sources do not grow, and all of them are read.
    is_read: bool,
}

impl Run {
    async fn run(
        self,
        mut reports: mpsc::Receiver<Report>,
        answers: mpsc::Receiver<CallReport>,
        reads: mpsc::Receiver<Read>,
        stops: mpsc::Receiver<oneshot::Sender<()>>,
    ) -> Result<(), PipelineError> {
        let gone = match self.serve(&mut reports, answers, reads, stops).await {
            Err(gone @ PipelineError::Gone { .. }) => gone,
            result => return result,
        };
        Err(reason(&mut reports).await.unwrap_or(gone))
    }

    async fn serve(
        mut self,
        reports: &mut mpsc::Receiver<Report>,
        mut answers: mpsc::Receiver<CallReport>,
        mut reads: mpsc::Receiver<Read>,
        mut stops: mpsc::Receiver<oneshot::Sender<()>>,
    ) -> Result<(), PipelineError> {
        let (mut reported, mut answered) = (Vec::new(), Vec::new());
        let mut save_at = Instant::now() + SAVE_INTERVAL;
        let mut stopping: Option<(Instant, oneshot::Sender<()>)> = None;
        loop {
            let may_read = stopping.is_none() && !self.is_read && self.engine.has_room();
            let wake = self.next_wake(save_at, stopping.as_ref().map(|(until, _)| *until));
            tokio::select! {
                biased;
                count = reports.recv_many(&mut reported, ROUND_MAX) => if count == 0 {
                    return Err(PipelineError::Gone { role: ROLE, part: "the thread of its files" });
                },
                _ = answers.recv_many(&mut answered, ROUND_MAX) => (),
                stop = stops.recv(), if stopping.is_none() => match stop {
                    Some(reply) => stopping = Some((Instant::now() + STOP_WAIT_MAX, reply)),
                    // The role was dropped.
                    None => return Ok(()),
                },
                read = reads.recv(), if may_read => match read {
                    Some(read) => self.on_read(read)?,
                    // It has said why in `life`; what is under way goes on until the role is stopped.
                    None => self.is_read = true,
                },
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => (),
            }
            for report in reported.drain(..) {
                self.engine.on_report(report)?;
            }
            answered.drain(..).for_each(|answer| self.engine.on_call(answer));
            self.engine.pump(stopping.is_none())?;
            self.post();
            if stopping.as_ref().is_some_and(|(until, _)| *until <= Instant::now() || self.engine.calls_open() == 0) {
                return self.end(reports, stopping).await;
            }
            let is_due = save_at <= Instant::now() || (self.is_read && self.engine.is_idle());
            if is_due && self.engine.wants_save() {
                self.engine.save()?;
                save_at = Instant::now() + SAVE_INTERVAL;
            }
        }
    }

    fn next_wake(&mut self, save_at: Instant, stop_at: Option<Instant>) -> Option<Instant> {
        if stop_at.is_some() {
            // Nothing new begins.
            return stop_at;
        }
        let due = self.engine.next_deadline().map(|at| self.engine.instant(at));
        let save = self.engine.wants_save().then_some(save_at);
        [due, save].into_iter().flatten().min()
    }

    fn on_read(&mut self, read: Read) -> Result<(), PipelineError> {
        match read {
            Read::Batch(batch) => self.engine.on_batch(batch)?,
            Read::Pass => self.passes += 1,
            Read::Finished => {
                self.passes += 1;
                self.is_read = true;
                self.board.ledger().passes = self.passes;
            }
        }
        Ok(())
    }

    /// Makes the counts visible.
    fn post(&mut self) {
        let (under_way, pending) = self.engine.usage();
        self.board.rounds.fetch_add(1, Ordering::Relaxed);
        *self.board.troubles() = self.engine.troubles();
        let mut ledger = self.board.ledger();
        for (name, counts) in self.engine.take_changed() {
            match ledger.sources.get_mut(name) {
                Some(posted) => *posted = counts,
                None => drop(ledger.sources.insert(name.to_owned(), counts)),
            }
        }
        ledger.pending = pending as u64;
        ledger.under_way = under_way as u64;
        ledger.passes = self.passes;
        drop(ledger);
        let is_saved = !self.engine.wants_save() && !self.engine.is_saving();
        let is_drained = self.is_read && 0 < self.passes && self.engine.is_idle() && is_saved;
        self.draining.send_if_modified(|drained| std::mem::replace(drained, is_drained) != is_drained);
    }

    /// The last save.
    async fn end(
        mut self,
        reports: &mut mpsc::Receiver<Report>,
        stopping: Option<(Instant, oneshot::Sender<()>)>,
    ) -> Result<(), PipelineError> {
        while self.engine.is_saving() {
            self.take_report(reports).await?;
        }
        self.engine.save()?;
        while self.engine.is_saving() {
            self.take_report(reports).await?;
        }
        self.post();
        info!("dispatcher stopped");
        if let Some((_, reply)) = stopping {
            // Whoever asked may have gone.
            let _ = reply.send(());
        }
        Ok(())
    }

    async fn take_report(&mut self, reports: &mut mpsc::Receiver<Report>) -> Result<(), PipelineError> {
        let gone = PipelineError::Gone { role: ROLE, part: "the thread of its files" };
        self.engine.on_report(reports.recv().await.ok_or(gone)?)
    }
}

/// Why the thread of the files has ended: it says so before it ends, unless it has panicked.
async fn reason(reports: &mut mpsc::Receiver<Report>) -> Option<PipelineError> {
    while let Some(report) = reports.recv().await {
        if let Report::Failed(error) = report {
            return Some(error);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use photon_disk::DiskError;
    use photon_format::state::StateError;

    use super::*;

    #[tokio::test]
    async fn the_reason_of_the_files_is_heard_behind_other_reports() {
        let (reporting, mut reports) = mpsc::channel(8);
        reporting.send(Report::Saved).await.unwrap();
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = StateError::from(DiskError::io("writing", std::path::Path::new("cursor"))(full));
        reporting.send(Report::Failed(error.into())).await.unwrap();
        drop(reporting);
        assert!(reason(&mut reports).await.unwrap().to_string().contains("cursor"));
        assert!(reason(&mut reports).await.is_none());
    }
}

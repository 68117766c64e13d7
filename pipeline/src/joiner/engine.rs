//! The one task that steps the attempt table, and hands its effects to the lanes.
//!
//! Invariant: completions first, then new clicks, then stops; effects of one round leave as one
//! batch per lane, so that the load itself makes the batches.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use photon_join::joiner::{Effect, Event, Fetched, InsertAnswer, Joiner, Reply, Sequence, Waiter};
use photon_proto::pipeline as wire;
use photon_types::EventKey;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tonic::Status;
use tracing::{error, info};

use super::fetch::FetchItem;
use super::insert::InsertItem;
use super::service::{JoinBatch, WAITERS_PER_BATCH};
use super::write::{Primary, WriteItem, Writer};
use super::{Clock, Gauges, ROLE, STOP_WAIT_MAX};
use crate::error::PipelineError;
use crate::life::Life;

/// Completions and batches taken in one round.
const ROUND_MAX: usize = 256;

/// What lanes report.
pub(super) enum Completion {
    Fetched(Vec<(Sequence, Fetched, Option<Primary>)>),
    Answered(Vec<(Sequence, InsertAnswer)>),
    Durable(Vec<Sequence>),
    /// The output can not be written any more: nothing is answered from now on.
    WriteFailed(PipelineError),
}

/// Reports to the engine, without waiting: each completion ends at least one order of an attempt in
/// flight, of which there are no more than the queue has room for.
///
/// # Panics
/// When there are more completions than attempts: a bug, and one of them would be lost.
pub(super) fn report(done: &mpsc::Sender<Completion>, completion: Completion) {
    match done.try_send(completion) {
        // Closed: the engine is gone, and nobody waits for this.
        Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => (),
        Err(mpsc::error::TrySendError::Full(_)) => panic!("more completions than attempts"),
    }
}

pub(super) type StopReply = oneshot::Sender<Result<(), PipelineError>>;

pub(super) struct Lanes {
    pub fetch: mpsc::Sender<Vec<FetchItem>>,
    pub insert: mpsc::Sender<Vec<InsertItem>>,
    pub writer: Writer,
}

/// What an attempt needs beside its key.
struct Payloads {
    click: Bytes,
    primary: Option<Primary>,
}

struct Batch {
    pages: mpsc::Sender<Result<wire::JoinPage, Status>>,
    unanswered: usize,
    until: Instant,
}

/// Orders of one round.
#[derive(Default)]
struct Orders {
    fetch: Vec<FetchItem>,
    insert: Vec<InsertItem>,
    write: Vec<WriteItem>,
    replies: HashMap<u64, Vec<wire::JoinResult>>,
}

pub(super) struct Engine {
    core: Joiner,
    clock: Clock,
    lanes: Lanes,
    life: Life,
    gauges: std::sync::Arc<Gauges>,
    payloads: HashMap<Sequence, Payloads>,
    batches: HashMap<u64, Batch>,
    /// When waits end, by batch.
    ends: BTreeSet<(Instant, u64)>,
    last_batch: u64,
    effects: Vec<Effect>,
    orders: Orders,
    stopping: Option<(Instant, StopReply)>,
}

impl Engine {
    pub fn new(core: Joiner, lanes: Lanes, life: Life, gauges: std::sync::Arc<Gauges>) -> Engine {
        Engine {
            core,
            clock: Clock::new(),
            lanes,
            life,
            gauges,
            payloads: HashMap::new(),
            batches: HashMap::new(),
            ends: BTreeSet::new(),
            last_batch: 0,
            effects: Vec::new(),
            orders: Orders::default(),
            stopping: None,
        }
    }

    pub async fn run(
        mut self,
        mut completions: mpsc::Receiver<Completion>,
        mut batches: mpsc::Receiver<JoinBatch>,
        mut stops: mpsc::Receiver<StopReply>,
    ) {
        let (mut done, mut fresh) = (Vec::new(), Vec::new());
        loop {
            let wake = self.next_wake();
            tokio::select! {
                biased;
                _ = completions.recv_many(&mut done, ROUND_MAX) => (),
                count = batches.recv_many(&mut fresh, ROUND_MAX) => if count == 0 {
                    // Nobody can ask any more: the role was dropped.
                    break;
                },
                Some(reply) = stops.recv(), if self.stopping.is_none() => {
                    self.step(Event::Stop);
                    self.stopping = Some((Instant::now() + STOP_WAIT_MAX, reply));
                }
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => (),
            }
            for completion in done.drain(..) {
                if let Err(error) = self.on_completion(completion) {
                    return self.fail(error);
                }
            }
            fresh.drain(..).for_each(|batch| self.on_batch(batch));
            self.step(Event::Tick);
            self.end_waits();
            if let Err(error) = self.send_orders() {
                let reason = write_failure(&mut completions);
                return self.fail(reason.unwrap_or(error));
            }
            *self.gauges.lock() = (self.core.totals(), self.core.in_flight());
            if self.is_stopped(&mut completions).await {
                return;
            }
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let tick = self.core.next_deadline().map(|at| self.clock.instant(at));
        let wait = self.ends.first().map(|(at, _)| *at);
        let stop = self.stopping.as_ref().map(|(at, _)| *at);
        [tick, wait, stop].into_iter().flatten().min()
    }

    fn fail(self, error: PipelineError) {
        error!(%error, "the joiner ends; what it answered is durable");
        self.life.fail(error);
    }

    /// Ends the engine when it was told to stop and nothing is in flight, or it waited long enough.
    async fn is_stopped(&mut self, completions: &mut mpsc::Receiver<Completion>) -> bool {
        let in_flight = self.core.in_flight();
        match &self.stopping {
            None => return false,
            Some((until, _)) if 0 < in_flight && Instant::now() < *until => return false,
            Some(_) => (),
        }
        let (_, reply) = self.stopping.take().expect("it stops");
        let result = if 0 < in_flight {
            Err(PipelineError::NotSealed { in_flight, waited: STOP_WAIT_MAX })
        } else {
            let sealed = self.lanes.writer.seal().await;
            sealed.map_err(|error| write_failure(completions).unwrap_or(error))
        };
        info!(sealed = result.is_ok(), "joiner stopped");
        // Whoever asked may have gone.
        let _ = reply.send(result);
        true
    }

    fn step(&mut self, event: Event) {
        self.core.step(self.clock.now(), event, &mut self.effects);
        self.take_effects(None);
    }

    fn on_completion(&mut self, completion: Completion) -> Result<(), PipelineError> {
        match completion {
            Completion::Fetched(results) => {
                for (sequence, fetched, primary) in results {
                    self.payloads.get_mut(&sequence).expect("an attempt in flight").primary = primary;
                    self.step(Event::Fetched { sequence, fetched });
                }
            }
            Completion::Answered(answers) => {
                answers.into_iter().for_each(|(sequence, answer)| self.step(Event::Answered { sequence, answer }));
            }
            Completion::Durable(lines) => {
                lines.into_iter().for_each(|sequence| self.step(Event::Durable { sequence }));
            }
            Completion::WriteFailed(error) => return Err(error),
        }
        Ok(())
    }

    fn on_batch(&mut self, batch: JoinBatch) {
        let JoinBatch { clicks, until, pages } = batch;
        self.last_batch += 1;
        let number = self.last_batch;
        self.batches.insert(number, Batch { pages, unanswered: clicks.len(), until });
        self.ends.insert((until, number));
        for (index, click) in clicks {
            let waiter = Waiter { id: number * WAITERS_PER_BATCH + u64::from(index), until: self.clock.at(until) };
            let bytes = click.payload.len();
            let event = Event::Join { key: click.key, bytes, waiter };
            self.core.step(self.clock.now(), event, &mut self.effects);
            self.take_effects(Some((click.payload, click.reference)));
        }
    }

    /// Turns effects into orders. `fresh` is the click whose `Join` made them.
    fn take_effects(&mut self, mut fresh: Option<(Bytes, Bytes)>) {
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Fetch { sequence, waiter: _ } => {
                    let (click, reference) = fresh.take().expect("an attempt begins with its click");
                    self.payloads.insert(sequence, Payloads { click: click.clone(), primary: None });
                    self.orders.fetch.push(FetchItem { sequence, reference, click });
                }
                Effect::Insert { key, token } => self.orders.insert.push(InsertItem { key, token }),
                Effect::Write { key, token } => {
                    let sequence = Sequence(token.sequence);
                    let payloads = self.payloads.get_mut(&sequence).expect("an attempt in flight");
                    let primary = payloads.primary.take().expect("it was fetched, and is written once");
                    let click = payloads.click.clone();
                    self.orders.write.push(WriteItem { key, token, click, primary });
                }
                Effect::Reply { waiter, reply } => {
                    let index = u32::try_from(waiter % WAITERS_PER_BATCH).expect("below WAITERS_PER_BATCH");
                    let result = wire::JoinResult { index, result: Some(to_wire(reply)) };
                    self.orders.replies.entry(waiter / WAITERS_PER_BATCH).or_default().push(result);
                }
                Effect::Ended { sequence } => {
                    self.payloads.remove(&sequence);
                }
            }
        }
    }

    /// Ends the streams of batches whose wait is over: those clicks get nothing.
    fn end_waits(&mut self) {
        let now = Instant::now();
        while let Some((until, number)) = self.ends.first().copied()
            && until <= now
        {
            self.ends.remove(&(until, number));
            self.batches.remove(&number);
        }
    }

    fn send_orders(&mut self) -> Result<(), PipelineError> {
        let Orders { fetch, insert, write, replies } = std::mem::take(&mut self.orders);
        let gone = |part| PipelineError::Gone { role: ROLE, part };
        if !fetch.is_empty() {
            self.lanes.fetch.try_send(fetch).map_err(|_| gone("the fetch lane"))?;
        }
        if !insert.is_empty() {
            self.lanes.insert.try_send(insert).map_err(|_| gone("the insert lane"))?;
        }
        if !write.is_empty() {
            self.lanes.writer.write(write)?;
        }
        for (number, results) in replies {
            let Some(batch) = self.batches.get_mut(&number) else { continue };
            batch.unanswered -= results.len();
            // A caller that has gone asks again; a page for each click fits.
            let heard = batch.pages.try_send(Ok(wire::JoinPage { results })).is_ok();
            if !heard || batch.unanswered == 0 {
                self.ends.remove(&(batch.until, number));
                self.batches.remove(&number);
            }
        }
        Ok(())
    }
}

/// Why the write lane has ended, if it has: it says so before it lets go of its queue. Who finds the
/// queue closed first must ask, or a fence would look like a bug.
fn write_failure(completions: &mut mpsc::Receiver<Completion>) -> Option<PipelineError> {
    while let Ok(completion) = completions.try_recv() {
        if let Completion::WriteFailed(error) = completion {
            return Some(error);
        }
    }
    None
}

fn to_wire(reply: Reply) -> wire::join_result::Result {
    use wire::join_result::Result;
    match reply {
        Reply::Joined => Result::Joined(wire::Joined {}),
        Reply::Duplicate => Result::Duplicate(wire::Duplicate {}),
        Reply::Filtered => Result::Filtered(wire::Filtered {}),
        Reply::Expired { boundary, in_doubt } => {
            Result::Expired(wire::Expired { boundary: boundary.micros(), in_doubt })
        }
        Reply::Missing(position) => Result::Missing(crate::convert::position_to_wire(position)),
        Reply::Behind => Result::Behind(wire::Behind { reason: String::new(), unreadable: false }),
        Reply::Unreadable => Result::Behind(wire::Behind { reason: String::new(), unreadable: true }),
        Reply::Busy { retry_after } => {
            let retry_after_ms = u32::try_from(retry_after.as_millis()).unwrap_or(u32::MAX);
            Result::Busy(wire::Busy { retry_after_ms })
        }
    }
}

/// A click as it was checked at the door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Click {
    pub key: EventKey,
    pub reference: Bytes,
    pub payload: Bytes,
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use photon_format::output::OutputError;
    use photon_join::joiner::JoinerConfig;
    use photon_types::{Incarnation, Prng};

    use super::*;

    /// The write lane has been fenced and is gone, and the engine finds its queue closed first.
    #[tokio::test]
    async fn a_fence_is_heard_also_when_the_queue_is_found_closed_first() {
        let (done, mut completions) = mpsc::channel(4);
        done.send(Completion::Durable(Vec::new())).await.unwrap();
        let fenced = || PipelineError::Output(OutputError::Fenced { path: PathBuf::from("live/x") });
        done.send(Completion::WriteFailed(fenced())).await.unwrap();
        let config = JoinerConfig {
            incarnation: Incarnation([7; 16]),
            attempts_max: 1,
            bytes_max: 1,
            busy_retry: super::super::BUSY_RETRY,
            backoff: super::super::INSERT_BACKOFF,
        };
        let lanes = Lanes { fetch: mpsc::channel(1).0, insert: mpsc::channel(1).0, writer: Writer::closed() };
        let core = Joiner::new(config, Prng::new(1));
        let mut engine = Engine::new(core, lanes, Life::new(), std::sync::Arc::default());
        let (reply, sealed) = oneshot::channel();
        engine.stopping = Some((Instant::now() + STOP_WAIT_MAX, reply));
        assert!(engine.is_stopped(&mut completions).await);
        let error = sealed.await.unwrap().unwrap_err();
        assert!(error.is_fenced(), "{error}");
        assert!(write_failure(&mut completions).is_none());
    }
}

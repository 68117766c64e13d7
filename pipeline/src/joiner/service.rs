//! The joiner's door: checks a call, and gives its clicks to the engine as one batch.
//!
//! Invariant: a call holds no task of its own. Its pages come from the engine, which also ends the
//! stream when the caller's wait is over.

use std::time::Duration;

use photon_proto::pipeline as wire;
use photon_proto::pipeline::joiner_server::Joiner;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::engine::Click;
use crate::chaos::Delays;
use crate::convert::{self, CALL_ITEMS_MAX};

/// Batches that wait for the engine; callers beyond wait, and then are refused.
pub(super) const BATCHES_MAX: usize = 64;

/// Waiter ids of one batch.
pub(super) const WAITERS_PER_BATCH: u64 = 4_096;

const _: () = assert!(CALL_ITEMS_MAX as u64 <= WAITERS_PER_BATCH);

/// The longest wait that a caller may ask for.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// The clicks of one call.
pub(super) struct JoinBatch {
    /// Those that could be read, and their places in the call.
    pub clicks: Vec<(u32, Click)>,
    pub until: Instant,
    /// Room for a page per click.
    pub pages: mpsc::Sender<Result<wire::JoinPage, Status>>,
}

pub(super) struct Service {
    batches: mpsc::Sender<JoinBatch>,
    delays: Delays,
}

impl Service {
    pub fn new(batches: mpsc::Sender<JoinBatch>, delays: Delays) -> Service {
        Service { batches, delays }
    }
}

#[tonic::async_trait]
impl Joiner for Service {
    type JoinStream = ReceiverStream<Result<wire::JoinPage, Status>>;

    async fn join(&self, request: Request<wire::JoinRequest>) -> Result<Response<Self::JoinStream>, Status> {
        let wire::JoinRequest { clicks, wait_ms } = request.into_inner();
        if clicks.is_empty() || CALL_ITEMS_MAX < clicks.len() {
            let found = clicks.len();
            return Err(Status::invalid_argument(format!("{found} clicks, 1 to {CALL_ITEMS_MAX} are allowed")));
        }
        let until = Instant::now() + Duration::from_millis(u64::from(wait_ms)).min(WAIT_MAX);
        self.delays.wait().await;
        let (pages, replies) = mpsc::channel(clicks.len() + 1);
        let mut invalid = Vec::new();
        let mut good = Vec::with_capacity(clicks.len());
        for (index, click) in (0..).zip(clicks) {
            match check(click) {
                Ok(click) => good.push((index, click)),
                Err(reason) => {
                    let result = Some(wire::join_result::Result::Invalid(wire::Invalid { reason }));
                    invalid.push(wire::JoinResult { index, result });
                }
            }
        }
        if !invalid.is_empty() {
            let page = wire::JoinPage { results: invalid };
            pages.try_send(Ok(page)).map_err(|_| Status::internal("an empty queue has no room"))?;
        }
        if !good.is_empty() {
            let batch = JoinBatch { clicks: good, until, pages };
            let sent = tokio::time::timeout_at(until, self.batches.send(batch)).await;
            match sent {
                Ok(Ok(())) => (),
                Ok(Err(_)) => return Err(Status::unavailable("this joiner has ended")),
                Err(_) => return Err(Status::resource_exhausted("this joiner has no room: ask again later")),
            }
        }
        Ok(Response::new(ReceiverStream::new(replies)))
    }
}

fn check(click: wire::Click) -> Result<Click, String> {
    let wire::Click { timestamp, id, reference, payload } = click;
    Ok(Click { key: convert::key(timestamp, &id)?, reference: convert::join_id(reference)?, payload })
}

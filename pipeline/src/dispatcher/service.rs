//! The dispatcher's door: clicks that a verifier puts back.
//!
//! Invariant: a call is answered when all of its clicks are durable in the retry store.

use std::sync::Arc;
use std::time::Duration;

use photon_format::config::{Config, Role};
use photon_format::retry::{DeletedAt, Origin, RetryRecord};
use photon_proto::pipeline as wire;
use photon_proto::pipeline::dispatcher_server::Dispatcher;
use photon_types::{ClusterId, GroupId, Slot};
use tokio::sync::{Semaphore, oneshot};
use tonic::{Request, Response, Status};

use super::state::{Files, Order, REINJECTIONS_MAX, Refused};
use crate::chaos::Delays;
use crate::convert::{self, CALL_ITEMS_MAX};

/// How long a call may wait for the disk.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest name of a source that is taken from a call.
const SOURCE_BYTES_MAX: usize = 2_048;

pub(super) struct Service {
    files: Files,
    stream: String,
    /// A permit goes with each order, and comes back when it has left the queue.
    room: Arc<Semaphore>,
    delays: Delays,
}

impl Service {
    pub fn new(config: &Config, files: Files, delays: Delays) -> Service {
        let (_, stream) = config.foreign();
        assert!(stream.role() == Role::Foreign);
        Service { files, stream: stream.name.clone(), room: Arc::new(Semaphore::new(REINJECTIONS_MAX)), delays }
    }

    fn check(&self, click: wire::ReinjectedClick) -> Result<RetryRecord, String> {
        let wire::ReinjectedClick { timestamp, id, reference, stream, source, offset, payload, deleted_at } = click;
        let key = convert::key(timestamp, &id)?;
        if stream != self.stream {
            return Err(format!("{key} is of stream {stream:?}, this dispatcher's is {:?}", self.stream));
        }
        if source.is_empty() || SOURCE_BYTES_MAX < source.len() {
            return Err(format!("{key} names a source of {} bytes", source.len()));
        }
        let deleted = deleted_at.map(|deleted_at| {
            let wire::DeletedAt { cluster_id, group, slot } = deleted_at;
            let cluster = <[u8; 16]>::try_from(&cluster_id[..]).map_err(|_| {
                format!("{key} was deleted from a cluster whose id has {} bytes, expected 16", cluster_id.len())
            })?;
            Ok::<_, String>(DeletedAt { cluster: ClusterId(cluster), group: GroupId(group), slot: Slot(slot) })
        });
        Ok(RetryRecord {
            source,
            offset,
            stream,
            key,
            reference: convert::join_id(reference)?,
            payload,
            origin: Origin::Reinjected { deleted: deleted.transpose()? },
            reason: "put back by a verifier".into(),
        })
    }
}

#[tonic::async_trait]
impl Dispatcher for Service {
    async fn reinject(&self, request: Request<wire::ReinjectRequest>) -> Result<Response<wire::ReinjectReply>, Status> {
        let clicks = request.into_inner().clicks;
        if CALL_ITEMS_MAX < clicks.len() {
            return Err(Status::invalid_argument(format!("{} clicks, {CALL_ITEMS_MAX} are allowed", clicks.len())));
        }
        self.delays.wait().await;
        let records: Result<Vec<_>, _> = clicks.into_iter().map(|click| self.check(click)).collect();
        let records = records.map_err(Status::invalid_argument)?;
        let Ok(room) = self.room.clone().try_acquire_owned() else {
            return Err(Status::resource_exhausted("this dispatcher has no room: ask again later"));
        };
        let (reply, durable) = oneshot::channel();
        match self.files.order(Order::Reinject { records, reply, room }) {
            Ok(()) => (),
            Err(Refused::Full(_)) => {
                return Err(Status::resource_exhausted("this dispatcher's disk does not keep up: ask again later"));
            }
            Err(Refused::Gone) => return Err(Status::unavailable("this dispatcher has ended")),
        }
        match tokio::time::timeout(ANSWER_WAIT_MAX, durable).await {
            Ok(Ok(Ok(count))) => {
                let accepted = u32::try_from(count).map_err(|_| Status::internal("more clicks than were sent"))?;
                Ok(Response::new(wire::ReinjectReply { accepted }))
            }
            Ok(Ok(Err(full))) => Err(Status::resource_exhausted(full.to_string())),
            // It may be durable by now: putting back once more does no harm.
            Ok(Err(_)) => Err(Status::unavailable("this dispatcher has ended")),
            Err(_) => Err(Status::deadline_exceeded("the dispatcher's disk did not answer")),
        }
    }
}

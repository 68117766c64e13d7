//! A dispatcher that only takes clicks back: durable in its retry store before it answers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use photon_format::retry::{DeletedAt, Origin, RetryLimits, RetryRecord, RetryStore};
use photon_proto::pipeline::dispatcher_server::{Dispatcher, DispatcherServer};
use photon_proto::pipeline::{ReinjectReply, ReinjectRequest, ReinjectedClick};
use photon_types::{ClusterId, EventKey, GroupId, Slot};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// What the test sees of it, and can tell it.
#[derive(Default)]
pub struct Inbox {
    pub clicks: Vec<ReinjectedClick>,
    /// It answers with an error, as one that dies.
    pub is_down: bool,
}

struct Service {
    inbox: Arc<Mutex<Inbox>>,
    retry: PathBuf,
}

fn record(click: &ReinjectedClick) -> RetryRecord {
    let deleted = click.deleted_at.as_ref().map(|at| DeletedAt {
        cluster: ClusterId(at.cluster_id.as_ref().try_into().expect("16 bytes")),
        group: GroupId(at.group),
        slot: Slot(at.slot),
    });
    RetryRecord {
        source: click.source.clone(),
        offset: click.offset,
        stream: click.stream.clone(),
        key: EventKey::new(click.timestamp, &click.id).expect("the verifier's keys are good"),
        reference: Bytes::copy_from_slice(&click.reference),
        payload: Bytes::copy_from_slice(&click.payload),
        origin: Origin::Reinjected { deleted },
        reason: "re-injected".into(),
    }
}

#[tonic::async_trait]
impl Dispatcher for Service {
    async fn reinject(&self, request: Request<ReinjectRequest>) -> Result<Response<ReinjectReply>, Status> {
        let mut inbox = self.inbox.lock().unwrap();
        if inbox.is_down {
            return Err(Status::unavailable("killed"));
        }
        let clicks = request.into_inner().clicks;
        let records: Vec<RetryRecord> = clicks.iter().map(record).collect();
        let mut store = RetryStore::open(&self.retry, RetryLimits::default()).unwrap();
        store.add(&records).unwrap();
        store.sync().unwrap();
        let accepted = u32::try_from(clicks.len()).unwrap();
        inbox.clicks.extend(clicks);
        Ok(Response::new(ReinjectReply { accepted }))
    }
}

/// Serves; the address.
pub async fn serve(inbox: Arc<Mutex<Inbox>>, retry: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = Server::builder().add_service(DispatcherServer::new(Service { inbox, retry }));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

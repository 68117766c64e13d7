//! The life of a role: its first failure, its listeners, its stop.
//!
//! Invariant: only the first failure counts, and everybody who asks hears the same one.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tracing::{error, warn};

use crate::error::PipelineError;

/// A message between roles is smaller: payloads are batched up to [`BATCH_BYTES_MAX`], and one
/// payload is at most a line.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A batch of payloads is closed at this size.
pub(crate) const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// How long a server waits for calls to end when it is stopped.
const SERVER_STOP_MAX: Duration = Duration::from_secs(2);

const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a role's parts report that they can not go on.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    failure: watch::Sender<Option<Arc<PipelineError>>>,
}

impl Life {
    pub fn new() -> Life {
        Life { failure: watch::Sender::new(None) }
    }

    /// The first error counts.
    pub fn fail(&self, error: PipelineError) {
        self.failure.send_if_modified(|failure| {
            let is_first = failure.is_none();
            if is_first {
                *failure = Some(Arc::new(error));
            }
            is_first
        });
    }

    /// Ends when something has failed.
    pub async fn failed(&self) -> Arc<PipelineError> {
        let mut failure = self.failure.subscribe();
        let failure = failure.wait_for(Option::is_some).await.expect("the sender is ours");
        failure.clone().expect("waited for it")
    }

    /// The failure so far.
    pub fn failure(&self) -> Option<Arc<PipelineError>> {
        self.failure.borrow().clone()
    }
}

/// Answers of `/healthz` and `/status`.
pub(crate) trait Health: Send + Sync + 'static {
    /// Why it is not well, if it is not.
    fn unhealthy(&self) -> Option<String>;
    /// What it does, for people and tests.
    fn status(&self) -> serde_json::Value;
}

/// Since when a peer has not answered, and why.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    now: Mutex<Option<(Instant, String)>>,
}

impl Outage {
    /// It has answered.
    pub fn end(&self) {
        *self.lock() = None;
    }

    /// It has not answered a call that was begun at this time, nor perhaps earlier ones.
    pub fn go_on(&self, began: Instant, why: String) {
        let mut now = self.lock();
        let since = now.as_ref().map_or(began, |(since, _)| *since);
        *now = Some((since, why));
    }

    /// Why, if it has gone on for longer than this.
    pub fn longer_than(&self, limit: Duration) -> Option<String> {
        let now = self.lock();
        let (since, why) = now.as_ref()?;
        (limit < since.elapsed()).then(|| {
            format!(
                "for {:?}: {why}",
                Duration::from_millis(u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX))
            )
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        self.now.lock().expect("nobody panics while holding it")
    }
}

/// Binds a listener.
pub(crate) async fn listen(role: &'static str, address: &str) -> Result<(TcpListener, SocketAddr), PipelineError> {
    let refused = |source| PipelineError::Listen { role, address: address.to_owned(), source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    Ok((listener, bound))
}

/// The servers of a role.
#[derive(Debug)]
pub(crate) struct Servers {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Servers {
    pub fn new() -> Servers {
        Servers { stop: watch::Sender::new(false), tasks: Vec::new() }
    }

    fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.stop.subscribe();
        async move {
            // An error means that the role was dropped: stop as well.
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }

    /// Serves gRPC.
    pub fn serve_rpc(
        &mut self,
        role: &'static str,
        listener: TcpListener,
        address: SocketAddr,
        life: &Life,
        build: impl FnOnce(&mut Server) -> tonic::transport::server::Router,
    ) {
        let mut server = Server::builder()
            .tcp_nodelay(true)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT));
        let incoming = TcpListenerStream::new(listener);
        let serving = build(&mut server).serve_with_incoming_shutdown(incoming, self.stopped());
        let life = life.clone();
        self.tasks.push(tokio::spawn(async move {
            if let Err(error) = serving.await {
                life.fail(PipelineError::Serve { role, address, why: with_causes(&error) });
            }
        }));
    }

    /// Serves `/healthz` and `/status`.
    pub fn serve_http(&mut self, role: &'static str, listener: TcpListener, life: &Life, health: Arc<dyn Health>) {
        let for_status = health.clone();
        let life_of_status = life.clone();
        let healthz = move || async move {
            let failure = life_of_status.failure().map(|error| error.to_string());
            match failure.or_else(|| health.unhealthy()) {
                None => (StatusCode::OK, "ok\n".to_owned()),
                Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{role}: {why}\n")),
            }
        };
        let status = move || async move { Json(for_status.status()) };
        let router = Router::new().route("/healthz", get(healthz)).route("/status", get(status));
        let serving = axum::serve(listener, router).with_graceful_shutdown(self.stopped());
        self.tasks.push(tokio::spawn(async move {
            if let Err(error) = serving.await {
                error!(role, %error, "serving HTTP failed");
            }
        }));
    }

    /// Stops all of them; calls that do not end are cut.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        for mut task in self.tasks {
            if tokio::time::timeout(SERVER_STOP_MAX, &mut task).await.is_err() {
                warn!("calls did not end in {SERVER_STOP_MAX:?}, they are cut");
                task.abort();
            }
        }
    }
}

/// A channel that connects when it is used, and again when it broke.
pub(crate) fn channel(role: &'static str, peer: &'static str, endpoint: &str) -> Result<Channel, PipelineError> {
    let uri = if endpoint.contains("://") { endpoint.to_owned() } else { format!("http://{endpoint}") };
    let refused = || PipelineError::Endpoint { role, peer, endpoint: endpoint.to_owned() };
    let parsed = Endpoint::from_shared(uri).map_err(|_| refused())?;
    if parsed.uri().port().is_none() {
        return Err(refused());
    }
    Ok(parsed
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .connect_lazy())
}

/// Random bytes of the system.
pub(crate) fn random<const N: usize>(role: &'static str) -> Result<[u8; N], PipelineError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| PipelineError::Random { role, why: error.to_string() })?;
    Ok(bytes)
}

/// An error with all its causes, since most of tonic's say only "transport error".
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

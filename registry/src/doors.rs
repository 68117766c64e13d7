//! Listeners, and the servers behind them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use photon_proto::peer::peer_server::PeerServer;
use photon_proto::registry::registry_server::RegistryServer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::transport::Server as GrpcServer;
use tonic::transport::server::TcpIncoming;
use tracing::warn;

use crate::chaos::Delays;
use crate::config::Listen;
use crate::error::RegistryError;
use crate::lanes::peers::{DECODE_BYTES_MAX as PEER_DECODE_BYTES_MAX, KEEPALIVE_TIMEOUT};
use crate::node::Node;
use crate::rpc::http;
use crate::rpc::peer::PeerService;
use crate::rpc::registry::{DECODE_BYTES_MAX as CLIENT_DECODE_BYTES_MAX, RegistryService};

/// A connection of a client on which nothing comes for this long is asked whether it lives.
const CLIENT_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The bound listeners of a node.
pub(crate) struct Doors {
    client: TcpListener,
    peer: TcpListener,
    http: Option<TcpListener>,
    pub client_address: SocketAddr,
    pub peer_address: SocketAddr,
    pub http_address: Option<SocketAddr>,
}

impl Doors {
    /// Binds what is not bound yet.
    ///
    /// # Errors
    /// [`RegistryError::Listen`], which names the address.
    pub async fn bind(client: Listen, peer: Listen, http: Option<Listen>) -> Result<Doors, RegistryError> {
        let (client, client_address) = bind("clients", client).await?;
        let (peer, peer_address) = bind("peers", peer).await?;
        let (http, http_address) = match http {
            Some(listen) => {
                let (listener, address) = bind("http", listen).await?;
                (Some(listener), Some(address))
            }
            None => (None, None),
        };
        Ok(Doors { client, peer, http, client_address, peer_address, http_address })
    }

    /// Serves until `stop` says so; then each server finishes the calls that it has.
    pub fn serve(self, node: &Arc<Node>, delays: Delays, stop: &watch::Receiver<bool>) -> JoinSet<()> {
        let mut servers = JoinSet::new();
        let service = RegistryService { node: Arc::clone(node), delays };
        let clients = GrpcServer::builder()
            .http2_keepalive_interval(Some(CLIENT_KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .initial_stream_window_size(2 << 20)
            .initial_connection_window_size(8 << 20)
            .add_service(
                RegistryServer::new(service)
                    .max_decoding_message_size(CLIENT_DECODE_BYTES_MAX)
                    .max_encoding_message_size(CLIENT_DECODE_BYTES_MAX),
            )
            .serve_with_incoming_shutdown(incoming(self.client), stopped(stop.clone()));
        servers.spawn(async { log_end("clients", clients.await.err().map(|error| error.to_string())) });

        let service = PeerService { node: Arc::clone(node), stop: stop.clone() };
        let peers = GrpcServer::builder()
            .http2_keepalive_interval(Some(crate::lanes::peers::KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(8 << 20)
            .add_service(
                PeerServer::new(service)
                    .max_decoding_message_size(PEER_DECODE_BYTES_MAX)
                    .max_encoding_message_size(PEER_DECODE_BYTES_MAX),
            )
            .serve_with_incoming_shutdown(incoming(self.peer), stopped(stop.clone()));
        servers.spawn(async { log_end("peers", peers.await.err().map(|error| error.to_string())) });

        if let Some(listener) = self.http {
            let routes = http::router(Arc::clone(node));
            let server = axum::serve(listener, routes).with_graceful_shutdown(stopped(stop.clone()));
            servers.spawn(async { log_end("http", server.await.err().map(|error| error.to_string())) });
        }
        servers
    }
}

async fn bind(what: &'static str, listen: Listen) -> Result<(TcpListener, SocketAddr), RegistryError> {
    let system = |operation| move |source| RegistryError::System { operation, source };
    let listener = match listen {
        Listen::Address(address) => {
            TcpListener::bind(address).await.map_err(|source| RegistryError::Listen { what, address, source })?
        }
        Listen::Bound(listener) => {
            listener.set_nonblocking(true).map_err(system("making a listener non-blocking"))?;
            TcpListener::from_std(listener).map_err(system("taking a listener"))?
        }
    };
    let address = listener.local_addr().map_err(system("asking for a listener's address"))?;
    Ok((listener, address))
}

fn incoming(listener: TcpListener) -> TcpIncoming {
    TcpIncoming::from(listener).with_nodelay(Some(true))
}

/// Also when whoever could say so is gone.
async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn log_end(what: &'static str, error: Option<String>) {
    if let Some(error) = error {
        warn!(what, error, "server ended");
    }
}

//! `photon registry`: one node of the IdRegistry.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use photon_format::config::{Address, Config};
use photon_registry::{Limits, Listen, MemberConfig, RunningServer, Server, ServerConfig, Timings};
use photon_types::NodeId;

use super::{OK, RegistryArgs, asked_to_end, load, print_effective, ready, runtime, start_block};
use crate::exit::{self, Exit};

/// Runs the command.
pub fn registry(args: &RegistryArgs) -> anyhow::Result<Exit> {
    let config = load(&args.config)?;
    let node = NodeId(args.node);
    let this = config.node(node)?;
    let listen = |key: &str, address: Option<&Address>| -> anyhow::Result<SocketAddr> {
        let key = format!("registry.node[id {node}].{key}");
        resolve(&key, config.address(&key, address)?)
    };
    let (client, peer) = (listen("client", this.client.as_ref())?, listen("peer", this.peer.as_ref())?);
    let http = this.http.as_ref().map(|http| listen("http", Some(http))).transpose()?;
    let data_dir = args.data_dir.clone().unwrap_or_else(|| config.registry_dir(node));
    let members = members(&config)?;
    let mut server = server_config(&config, node, data_dir, members, Listen::Address(client), Listen::Address(peer));
    server.http_listen = http.map(Listen::Address);

    start_block("registry", &config)
        .row("node", node)
        .row("data directory", server.data_dir.display())
        .row("clients", client)
        .row("peers", peer)
        .row("health", http.map_or("off".to_owned(), |http| format!("http://{http}/healthz")))
        .print();
    print_effective(&config);
    runtime()?.block_on(serve(server))
}

async fn serve(config: ServerConfig) -> anyhow::Result<Exit> {
    let server = Server::start(config).await.map_err(|error| registry_error(&error))?;
    ready();
    tokio::select! {
        error = server.failed() => Err(registry_error(&error)),
        asked = asked_to_end() => {
            tracing::info!(signal = asked?, "ending");
            shut_down(server).await?;
            OK
        }
    }
}

/// Ends a node; what could not be made durable is an error.
pub async fn shut_down(server: RunningServer) -> anyhow::Result<()> {
    server.shutdown().await.map_err(|error| registry_error(&error))
}

/// What the process ends with when a node could not start or go on.
pub fn registry_error(error: &photon_registry::RegistryError) -> anyhow::Error {
    exit::error(exit::of_registry(error), error)
}

/// A node as the config file describes it.
pub fn server_config(
    config: &Config,
    node: NodeId,
    data_dir: PathBuf,
    members: Vec<MemberConfig>,
    client: Listen,
    peer: Listen,
) -> ServerConfig {
    let mut server = ServerConfig::new(node, data_dir, members, client, peer);
    server.timings = Timings {
        election_timeout: config.registry.election_timeout,
        heartbeat_interval: config.registry.heartbeat,
        ..Timings::default()
    };
    server.limits = Limits {
        window_batches: config.registry.window,
        batch_commands_max: config.registry.batch_commands,
        segment_bytes: config.registry.journal_segment.bytes(),
        ..Limits::default()
    };
    server
}

fn members(config: &Config) -> anyhow::Result<Vec<MemberConfig>> {
    let address = |id: NodeId, key: &str, address: Option<&Address>| -> anyhow::Result<String> {
        Ok(config.address(&format!("registry.node[id {id}].{key}"), address)?.to_string())
    };
    let member = |node: &photon_format::config::RegistryNode| -> anyhow::Result<MemberConfig> {
        Ok(MemberConfig {
            id: node.id,
            peer_address: address(node.id, "peer", node.peer.as_ref())?,
            client_address: address(node.id, "client", node.client.as_ref())?,
        })
    };
    config.registry.nodes.iter().map(member).collect()
}

fn resolve(key: &str, address: &Address) -> anyhow::Result<SocketAddr> {
    let refuse = |why: String| exit::error(Exit::Usage, format!("`{key}`: can not listen on {address}: {why}"));
    let mut found = address.as_str().to_socket_addrs().map_err(|error| refuse(error.to_string()))?;
    found.next().ok_or_else(|| refuse("the host has no address".to_owned()))
}

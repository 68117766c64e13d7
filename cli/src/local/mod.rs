//! The whole system in one process: registry nodes and the pipelines of all datacenters, talking
//! over loopback as they would over a network. For `photon dev` and for tests of it.
//!
//! Order of the stop: dispatchers (their cursors are saved), joiners (outputs sealed), event
//! stores; the registry last, since the verifier may still ask it.

use std::future::{Future, poll_fn};
use std::net::{Ipv4Addr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use anyhow::Context;
use photon_client::{Client, ClientConfig};
use photon_format::config::{Address, Config, Datacenter};
use photon_format::keyrules::KeyRules;
use photon_format::source::SourceList;
use photon_pipeline::PipelineError;
use photon_pipeline::dispatcher::{self, DispatcherConfig, RunningDispatcher};
use photon_pipeline::joiner::{self, JoinerConfig, RunningJoiner};
use photon_pipeline::store::{self, RunningStore, StoreConfig};
use photon_registry::{Listen, MemberConfig, RunningServer, Server};
use photon_types::NodeId;

use crate::exit;
use crate::roles::{registry_error, server_config, shut_down};

/// How the system is put together.
pub struct Options {
    /// Free ports in place of the configured addresses: nobody outside needs to find it.
    pub free_ports: bool,
    /// The sources are final: `--once`.
    pub sources: Option<SourceList>,
    /// A test aid: seeded random delays in every lane and call.
    pub chaos_delays: Option<u64>,
}

impl Options {
    fn listen(&self, address: Option<&Address>) -> String {
        match address {
            Some(address) if !self.free_ports => address.to_string(),
            Some(_) | None => "127.0.0.1:0".to_owned(),
        }
    }

    fn http(&self, address: Option<&Address>) -> Option<String> {
        address.filter(|_| !self.free_ports).map(ToString::to_string)
    }

    /// The same files and sizes everywhere, at the paths they have in this datacenter.
    fn sources_in(&self, config: &Config, datacenter: &Datacenter) -> anyhow::Result<Option<SourceList>> {
        Ok(self.sources.as_ref().map(|list| list.in_datacenter(config, datacenter)).transpose()?)
    }
}

/// Everything that runs.
pub struct LocalSystem {
    /// The configuration.
    pub config: Arc<Config>,
    /// Client addresses of the registry's nodes.
    pub registry: Vec<String>,
    /// The pipelines.
    pub pipelines: Vec<Pipeline>,
    servers: Vec<RunningServer>,
}

/// What runs of one datacenter.
pub struct Pipeline {
    /// The datacenter's name.
    pub datacenter: String,
    /// Its dispatcher.
    pub dispatcher: RunningDispatcher,
    /// Its joiner.
    pub joiner: RunningJoiner,
    /// Its event store.
    pub store: RunningStore,
}

impl LocalSystem {
    /// Starts the registry, then what dispatchers need, then all dispatchers: no datacenter gets a
    /// head start over the others.
    pub async fn start(config: Arc<Config>, options: Options) -> anyhow::Result<LocalSystem> {
        let (servers, registry) = start_registry(&config, &options).await?;
        let mut system = LocalSystem { config, registry, pipelines: Vec::new(), servers };
        let mut prepared = Vec::new();
        for datacenter in system.config.datacenters.clone() {
            let (store, joiner) = system.start_joining(&datacenter, &options).await?;
            prepared.push((datacenter, store, joiner));
        }
        for (datacenter, store, joiner) in prepared {
            let dispatcher = system.start_dispatching(&datacenter, &joiner, &options).await?;
            system.pipelines.push(Pipeline { datacenter: datacenter.name, dispatcher, joiner, store });
        }
        Ok(system)
    }

    async fn start_joining(
        &self,
        datacenter: &Datacenter,
        options: &Options,
    ) -> anyhow::Result<(RunningStore, RunningJoiner)> {
        let store = store::start(StoreConfig {
            config: self.config.clone(),
            datacenter: datacenter.name.clone(),
            listen: options.listen(datacenter.event_store.as_ref()),
            http: options.http(datacenter.event_store_http.as_ref()),
            sources: options.sources_in(&self.config, datacenter)?,
            chaos_delays: options.chaos_delays,
        });
        let store = store.await.map_err(|error| pipeline_error(&error))?;
        let joiner = joiner::start(JoinerConfig {
            config: self.config.clone(),
            datacenter: datacenter.name.clone(),
            listen: options.listen(datacenter.joiner.as_ref()),
            http: options.http(datacenter.joiner_http.as_ref()),
            event_store: store.address.to_string(),
            client: self.client().await?,
            once: options.sources.is_some(),
            adapter: None,
            chaos_delays: options.chaos_delays,
        });
        let joiner = joiner.await.map_err(|error| pipeline_error(&error))?;
        Ok((store, joiner))
    }

    async fn start_dispatching(
        &self,
        datacenter: &Datacenter,
        joiner: &RunningJoiner,
        options: &Options,
    ) -> anyhow::Result<RunningDispatcher> {
        let dispatcher = dispatcher::start(DispatcherConfig {
            config: self.config.clone(),
            datacenter: datacenter.name.clone(),
            listen: options.listen(datacenter.dispatcher.as_ref()),
            http: options.http(datacenter.dispatcher_http.as_ref()),
            joiner: joiner.address.to_string(),
            client: self.client().await?,
            sources: options.sources_in(&self.config, datacenter)?,
            records_per_second_max: dispatcher::RECORDS_PER_SECOND_MAX,
            chaos_delays: options.chaos_delays,
        });
        dispatcher.await.map_err(|error| pipeline_error(&error))
    }

    async fn client(&self) -> anyhow::Result<Client> {
        let rules = KeyRules::from_config(&self.config).text();
        let client = Client::connect(ClientConfig::new(self.registry.clone(), rules)).await;
        client.map_err(|error| exit::error(exit::of_client(&error), error))
    }

    /// Ends when a part can not go on.
    pub async fn failed(&self) -> anyhow::Error {
        let mut parts: Vec<Pin<Box<dyn Future<Output = anyhow::Error> + Send + '_>>> = Vec::new();
        for server in &self.servers {
            parts.push(Box::pin(async { registry_error(server.failed().await.as_ref()) }));
        }
        for pipeline in &self.pipelines {
            parts.push(Box::pin(async { pipeline_error(pipeline.store.failed().await.as_ref()) }));
            parts.push(Box::pin(async { pipeline_error(pipeline.joiner.failed().await.as_ref()) }));
            parts.push(Box::pin(async { pipeline_error(pipeline.dispatcher.failed().await.as_ref()) }));
        }
        poll_fn(|context| {
            let mut ready = parts.iter_mut().filter_map(|part| match part.as_mut().poll(context) {
                Poll::Ready(error) => Some(error),
                Poll::Pending => None,
            });
            ready.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Stops the pipelines; the registry still answers.
    pub async fn stop_pipelines(&mut self) -> anyhow::Result<()> {
        let (mut dispatchers, mut joiners, mut stores) = (Vec::new(), Vec::new(), Vec::new());
        for Pipeline { datacenter: _, dispatcher, joiner, store } in self.pipelines.drain(..) {
            dispatchers.push(dispatcher);
            joiners.push(joiner);
            stores.push(store);
        }
        for dispatcher in dispatchers {
            dispatcher.shutdown().await.map_err(|error| pipeline_error(&error))?;
        }
        for joiner in joiners {
            joiner.shutdown().await.map_err(|error| pipeline_error(&error))?;
        }
        for store in stores {
            store.shutdown().await;
        }
        Ok(())
    }

    /// Stops the registry.
    pub async fn stop_registry(self) -> anyhow::Result<()> {
        for server in self.servers {
            shut_down(server).await?;
        }
        Ok(())
    }
}

async fn start_registry(config: &Config, options: &Options) -> anyhow::Result<(Vec<RunningServer>, Vec<String>)> {
    let mut doors = Vec::new();
    let mut members = Vec::new();
    for node in &config.registry.nodes {
        let peer = bind(node.id, "peer", node.peer.as_ref(), options)?;
        let client = bind(node.id, "client", node.client.as_ref(), options)?;
        members.push(MemberConfig {
            id: node.id,
            peer_address: peer.local_addr()?.to_string(),
            client_address: client.local_addr()?.to_string(),
        });
        doors.push((node, peer, client));
    }
    let endpoints = members.iter().map(|member| member.client_address.clone()).collect();
    let mut servers = Vec::new();
    for (node, peer, client) in doors {
        let dir = config.registry_dir(node.id);
        let mut server =
            server_config(config, node.id, dir, members.clone(), Listen::Bound(client), Listen::Bound(peer));
        server.chaos_delays = options.chaos_delays;
        if let Some(http) = node.http.as_ref().filter(|_| !options.free_ports) {
            server.http_listen = Some(Listen::Bound(bind(node.id, "http", Some(http), options)?));
        }
        servers.push(Server::start(server).await.map_err(|error| registry_error(&error))?);
    }
    Ok((servers, endpoints))
}

fn bind(node: NodeId, what: &str, address: Option<&Address>, options: &Options) -> anyhow::Result<TcpListener> {
    let bound = match address {
        Some(address) if !options.free_ports => TcpListener::bind(address.as_str()),
        Some(_) | None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)),
    };
    bound.with_context(|| {
        let place = address.map_or("a free loopback port".to_owned(), ToString::to_string);
        format!("registry node {node}: can not listen for {what} on {place}; is another process using the port?")
    })
}

fn pipeline_error(error: &PipelineError) -> anyhow::Error {
    exit::error(exit::of_pipeline(error), error)
}

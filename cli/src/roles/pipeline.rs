//! The roles of a datacenter: `photon event-store`, `photon joiner`, `photon dispatcher`.

use std::sync::Arc;

use photon_client::{Client, ClientConfig};
use photon_format::config::{Address, Config, Datacenter};
use photon_format::keyrules::KeyRules;
use photon_pipeline::{PipelineError, dispatcher as dispatching, joiner as joining, store as storing};

use super::{DatacenterArgs, OK, asked_to_end, load, pipeline_error, print_effective, ready, runtime, start_block};
use crate::exit::{self, Exit};

/// One datacenter of the config file, and addresses that its roles need.
struct Place {
    config: Arc<Config>,
    datacenter: Datacenter,
}

impl Place {
    fn load(args: &DatacenterArgs) -> anyhow::Result<Place> {
        let config = load(&args.config)?;
        let datacenter = config.datacenter(&args.datacenter)?.clone();
        Ok(Place { config: Arc::new(config), datacenter })
    }

    fn address(&self, key: &str, address: Option<&Address>) -> anyhow::Result<String> {
        let key = format!("datacenter[{}].{key}", self.datacenter.name);
        Ok(self.config.address(&key, address)?.to_string())
    }

    /// Prints the start block of a role.
    fn announce(&self, role: &str, listen: &str, http: Option<&Address>) {
        start_block(role, &self.config)
            .row("datacenter", &self.datacenter.name)
            .row("files", self.config.datacenter_dir(&self.datacenter.name).display())
            .row("serves", listen)
            .row("health", http.map_or("off".to_owned(), |http| format!("http://{http}/healthz")))
            .print();
        print_effective(&self.config);
    }

    /// A connection to the registry; waits for a leader as long as the process is wanted.
    async fn client(&self) -> anyhow::Result<Client> {
        let endpoints = self.config.registry_endpoints()?;
        let rules = KeyRules::from_config(&self.config).text();
        connect_patiently(ClientConfig::new(endpoints, rules)).await
    }
}

/// Connects, and goes on trying while nobody answers: a role may start before its registry.
async fn connect_patiently(config: ClientConfig) -> anyhow::Result<Client> {
    loop {
        match Client::connect(config.clone()).await {
            Ok(client) => return Ok(client),
            Err(error) if exit::of_client(&error) == Exit::Unreachable => {
                eprintln!("waiting for the registry: {error}");
            }
            Err(error) => return Err(exit::error(exit::of_client(&error), error)),
        }
    }
}

/// Runs until asked to end, which is fine, or failed; what comes first of the two.
async fn serve_until_asked(failed: impl Future<Output = Arc<PipelineError>>) -> anyhow::Result<()> {
    ready();
    tokio::select! {
        error = failed => Err(pipeline_error(&error)),
        asked = asked_to_end() => {
            tracing::info!(signal = asked?, "ending");
            Ok(())
        }
    }
}

/// Runs `photon event-store`.
pub fn event_store(args: &DatacenterArgs) -> anyhow::Result<Exit> {
    let place = Place::load(args)?;
    let listen = place.address("event-store", place.datacenter.event_store.as_ref())?;
    let http = place.datacenter.event_store_http.as_ref();
    place.announce("event-store", &listen, http);
    runtime()?.block_on(async {
        let store = storing::StoreConfig {
            config: place.config.clone(),
            datacenter: place.datacenter.name.clone(),
            listen,
            http: http.map(ToString::to_string),
            sources: None,
            chaos_delays: None,
        };
        let running = storing::start(store).await.map_err(|error| pipeline_error(&error))?;
        serve_until_asked(running.failed()).await?;
        running.shutdown().await;
        OK
    })
}

/// Runs `photon joiner`.
pub fn joiner(args: &DatacenterArgs) -> anyhow::Result<Exit> {
    let place = Place::load(args)?;
    let listen = place.address("joiner", place.datacenter.joiner.as_ref())?;
    let event_store = place.address("event-store", place.datacenter.event_store.as_ref())?;
    let http = place.datacenter.joiner_http.as_ref();
    place.announce("joiner", &listen, http);
    runtime()?.block_on(async {
        let joiner = joining::JoinerConfig {
            config: place.config.clone(),
            datacenter: place.datacenter.name.clone(),
            listen,
            http: http.map(ToString::to_string),
            event_store,
            client: place.client().await?,
            once: false,
            adapter: None,
            chaos_delays: None,
        };
        let running = joining::start(joiner).await.map_err(|error| pipeline_error(&error))?;
        eprintln!("incarnation: {}", running.incarnation);
        serve_until_asked(running.failed()).await?;
        running.shutdown().await.map_err(|error| pipeline_error(&error))?;
        OK
    })
}

/// Runs `photon dispatcher`.
pub fn dispatcher(args: &DatacenterArgs) -> anyhow::Result<Exit> {
    let place = Place::load(args)?;
    let listen = place.address("dispatcher", place.datacenter.dispatcher.as_ref())?;
    let joiner = place.address("joiner", place.datacenter.joiner.as_ref())?;
    let http = place.datacenter.dispatcher_http.as_ref();
    place.announce("dispatcher", &listen, http);
    runtime()?.block_on(async {
        let dispatcher = dispatching::DispatcherConfig {
            config: place.config.clone(),
            datacenter: place.datacenter.name.clone(),
            listen,
            http: http.map(ToString::to_string),
            joiner,
            client: place.client().await?,
            sources: None,
            records_per_second_max: dispatching::RECORDS_PER_SECOND_MAX,
            chaos_delays: None,
        };
        let running = dispatching::start(dispatcher).await.map_err(|error| pipeline_error(&error))?;
        serve_until_asked(running.failed()).await?;
        running.shutdown().await.map_err(|error| pipeline_error(&error))?;
        OK
    })
}

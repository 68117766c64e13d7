//! What a run is asked to do, and what it says while it does it.

use std::time::Duration;

use photon_format::config::Config;
use photon_format::source::SourceList;
use photon_types::Incarnation;

use crate::error::VerifyError;

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fence dead incarnations, delete claims whose line is missing, re-inject what is lost. Else
    /// only look.
    pub repair: bool,
    /// Incarnations that an operator names dead: fenced without their lock, with `repair`.
    pub dead: Vec<Incarnation>,
    /// The sources and their sizes, when the input is final and was listed before. Else the
    /// configured inputs are listed when the run begins.
    pub sources: Option<SourceList>,
    /// A record that an earlier run saw this long ago is settled, unless a retry store holds it or a
    /// cursor that has moved since then is not past it.
    pub settle_after: Duration,
    /// How long one bulk question to the registry, or one call to a dispatcher, may take.
    pub answer_within: Duration,
    /// Whom to ask.
    pub endpoints: Endpoints,
}

/// Whom a run asks.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// Client addresses of the registry's nodes.
    pub registry: Vec<String>,
    /// Dispatchers that take re-injected clicks: datacenter and address. The first that answers
    /// gets them.
    pub dispatchers: Vec<(String, String)>,
}

impl Endpoints {
    /// The addresses in the configuration.
    ///
    /// # Errors
    /// [`VerifyError::Config`] when a registry node has no client address.
    pub fn of(config: &Config) -> Result<Endpoints, VerifyError> {
        let dispatcher = |datacenter: &photon_format::config::Datacenter| {
            datacenter.dispatcher.as_ref().map(|address| (datacenter.name.clone(), address.to_string()))
        };
        Ok(Endpoints {
            registry: config.registry_endpoints()?,
            dispatchers: config.datacenters.iter().filter_map(dispatcher).collect(),
        })
    }
}

impl Options {
    /// Only look, at the configured inputs.
    #[must_use]
    pub fn look(endpoints: Endpoints) -> Options {
        Options {
            repair: false,
            dead: Vec::new(),
            sources: None,
            settle_after: Duration::from_secs(3600),
            answer_within: Duration::from_secs(30),
            endpoints,
        }
    }
}

/// Where a run is, for people who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Reading the input: the clicks, and then the queries if some click was recorded not to have one.
    Input {
        /// Bytes read.
        bytes: u64,
        /// Bytes there are.
        bytes_end: u64,
    },
    /// Reading outputs.
    Output {
        /// Lines read.
        lines: u64,
    },
    /// Asking the registry.
    Registry {
        /// Keys answered.
        keys: u64,
        /// Keys there are.
        keys_end: u64,
    },
    /// Deleting and re-injecting.
    Repair {
        /// Clicks done.
        clicks: u64,
        /// Clicks there are.
        clicks_end: u64,
    },
}

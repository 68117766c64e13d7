//! Finding the leader: the hint first, then every endpoint in turn, following hints on the way.
//!
//! The question is the statement of the key rules: only a leader that still has its quorum can
//! answer it, and so it is stated once for each connection before anything is asked over it.
//!
//! Not here: pauses between rounds (the worker's, so that they end with the work).

use std::collections::VecDeque;
use std::sync::Arc;

use photon_proto::registry::StateKeyRulesRequest;
use photon_proto::registry::registry_client::RegistryClient;
use photon_types::{ClusterId, Outcome};
use tonic::transport::Channel;
use tracing::{debug, warn};

use crate::attempt::{self, Attempt, check_cluster};
use crate::config::ClientConfig;
use crate::error::ClientError;

/// A connection to a node that led a moment ago.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub endpoint: Arc<str>,
    pub client: RegistryClient<Channel>,
    pub cluster_id: ClusterId,
}

/// How one round over the endpoints ended.
#[derive(Debug)]
pub(crate) enum Round {
    /// A leader that holds our key rules.
    Found(Connection),
    /// No leader now; another round may find one.
    NotFound { cause: ClientError },
    /// Another round will end the same: a person must correct something.
    Hopeless { error: ClientError },
}

/// What one node said.
enum Probe {
    Leader(Connection),
    NotLeader {
        hint: Option<String>,
    },
    /// Can not be asked now, or stands for another cluster.
    Useless {
        error: ClientError,
    },
    /// The leader said that it will never do.
    Hopeless {
        error: ClientError,
    },
}

/// Where to begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start {
    /// An address that probably leads.
    pub hint: Option<Arc<str>>,
    /// The endpoint (by position) to try first after the hint.
    pub position: usize,
}

/// Asks each endpoint once.
pub(crate) async fn round(config: Arc<ClientConfig>, expected: Option<ClusterId>, start: Start) -> Round {
    let count = config.endpoints.len();
    let in_turn = (0..count).map(|i| Arc::from(config.endpoints[(start.position + i) % count].as_str()));
    let mut to_ask: VecDeque<Arc<str>> = start.hint.into_iter().chain(in_turn).collect();
    let mut asked: Vec<Arc<str>> = Vec::new();
    let mut last = None;
    let mut wrong_cluster = None;
    let mut one_of_ours_answered = false;
    // Hints may lead out of the list and in circles; each address is asked once, and twice as many
    // as are listed are enough.
    while let Some(endpoint) = to_ask.pop_front() {
        if asked.contains(&endpoint) || 2 * count < asked.len() {
            continue;
        }
        asked.push(endpoint.clone());
        match probe(&config, expected, &endpoint).await {
            Probe::Leader(connection) => return Round::Found(connection),
            Probe::NotLeader { hint } => {
                one_of_ours_answered = true;
                let known = hint.as_deref().unwrap_or("nobody");
                debug!(%endpoint, hint = known, "not the leader");
                last = Some(ClientError::Unreachable {
                    cause: format!("{endpoint} does not lead and names {known} as the leader").into(),
                });
                if let Some(hint) = hint {
                    to_ask.push_front(hint.into());
                }
            }
            Probe::Useless { error } => {
                debug!(%endpoint, %error, "of no use");
                if matches!(error, ClientError::WrongCluster { .. }) {
                    warn!(%error, "an endpoint is passed over");
                    wrong_cluster = Some(error);
                } else {
                    last = Some(error);
                }
            }
            Probe::Hopeless { error } => return Round::Hopeless { error },
        }
    }
    match (wrong_cluster, last) {
        // Nobody of ours is there at all: the endpoints are wrong, and waiting will not help.
        (Some(error), _) if !one_of_ours_answered => Round::Hopeless { error },
        (_, Some(cause)) => Round::NotFound { cause },
        (Some(cause), None) => Round::NotFound { cause },
        (None, None) => unreachable!("at least one endpoint was asked"),
    }
}

async fn probe(config: &ClientConfig, expected: Option<ClusterId>, endpoint: &Arc<str>) -> Probe {
    let unusable = |cause: &str| Probe::Useless {
        error: ClientError::Unreachable { cause: format!("{endpoint}: {cause}").into() },
    };
    let mut client = match attempt::connect(endpoint, &config.timings).await {
        Ok(client) => client,
        Err(cause) => return unusable(&cause),
    };
    let request = StateKeyRulesRequest {
        text: config.key_rules.clone(),
        cluster_id: expected.map(|id| id.0.to_vec()).unwrap_or_default().into(),
    };
    let attempt = attempt::ended(config.timings.probe_timeout, client.state_key_rules(request), 1).await;
    match attempt {
        Attempt::Done { outcomes, cluster_id, slot: _, group: _ } => {
            let Some(found) = cluster_id else { return unusable("an answer that names no cluster") };
            if let Err(error) = check_cluster(endpoint, expected, cluster_id) {
                return Probe::Useless { error };
            }
            match &outcomes[0] {
                Outcome::KeyRulesKept => {
                    Probe::Leader(Connection { endpoint: endpoint.clone(), client, cluster_id: found })
                }
                Outcome::KeyRulesDiffer { kept } => Probe::Hopeless { error: differ(config, kept) },
                Outcome::Inserted
                | Outcome::Duplicate { .. }
                | Outcome::Expired { .. }
                | Outcome::Present { .. }
                | Outcome::Absent
                | Outcome::Deleted
                | Outcome::Mismatch { .. }
                | Outcome::Forgotten
                | Outcome::Invalid => unusable(&format!("{:?} in answer to the key rules", outcomes[0])),
            }
        }
        Attempt::NotLeader { hint, cluster_id } => match check_cluster(endpoint, expected, cluster_id) {
            Ok(()) => Probe::NotLeader { hint },
            Err(error) => Probe::Useless { error },
        },
        Attempt::WrongCluster { found } => match expected {
            Some(expected) => {
                Probe::Useless { error: ClientError::WrongCluster { endpoint: endpoint.clone(), expected, found } }
            }
            None => unusable("it refuses a cluster that was not named"),
        },
        Attempt::KeyRulesDiffer { kept } => Probe::Hopeless { error: differ(config, &kept) },
        Attempt::Refused { reason } => {
            Probe::Useless { error: ClientError::Refused { endpoint: endpoint.clone(), reason: reason.into() } }
        }
        Attempt::Overloaded { retry_after } => Probe::Useless {
            error: ClientError::Overloaded { cause: format!("{endpoint} has no room for {retry_after:?}").into() },
        },
        Attempt::KeyRulesMissing => unusable("it wants key rules in answer to key rules"),
        Attempt::Unavailable { cause } | Attempt::Unknown { cause } | Attempt::Lost { cause } => unusable(&cause),
    }
}

/// The error for rules that differ.
pub(crate) fn differ(config: &ClientConfig, kept: &str) -> ClientError {
    ClientError::KeyRulesDiffer { kept: kept.into(), ours: config.key_rules.as_str().into() }
}

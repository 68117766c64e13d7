//! What a client needs to know, and how its limits relate.

use std::time::Duration;

use photon_types::{CHUNK_COMMANDS_MAX, COMMAND_BYTES_MAX, ClusterId, KEY_RULES_BYTES_MAX};
use tonic::transport::Endpoint;

use crate::error::ClientError;

/// The most endpoints of one client. Five replicas are the most a shard has; the rest is slack for
/// a list that names old and new nodes while members are replaced.
const ENDPOINTS_MAX: usize = 64;

/// The most chunks in flight: what a leader's window of 16 batches can use, four times over.
const CHUNKS_IN_FLIGHT_MAX: usize = 64;

/// The most commands that may wait, so that a queue of the longest commands stays below 256 MiB.
const QUEUE_COMMANDS_MAX: usize = 1_000_000;
const _: () = assert!(QUEUE_COMMANDS_MAX * COMMAND_BYTES_MAX < 256 * 1024 * 1024);

/// Where the registry is, and how to speak to it.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Client addresses of the registry's nodes, `host:port` or `http://host:port`. Any of them
    /// may lead; a leader outside the list is found by the hint of one inside.
    pub endpoints: Vec<String>,
    /// The rules by which the caller makes keys: sorted lines `stream.field = value`. Stated on
    /// each connection; the first statement of the cluster's life is kept.
    pub key_rules: String,
    /// The cluster that is meant. `None` takes the one that answers first, and from then on no other.
    pub cluster_id: Option<ClusterId>,
    /// How long to wait for what.
    pub timings: Timings,
    /// How much may wait.
    pub limits: Limits,
}

/// How long to wait for what.
#[derive(Clone, Debug)]
pub struct Timings {
    /// How long [`crate::Client::connect`] looks for a leader before it gives up.
    pub connect_within: Duration,
    /// One connection to one node.
    pub connect_timeout: Duration,
    /// One question of a search (are you the leader, are these the key rules) or for a status.
    pub probe_timeout: Duration,
    /// One attempt of a chunk. Afterwards its commands are ambiguous and asked again.
    pub attempt_timeout: Duration,
    /// How often an unanswering connection is pinged.
    pub keepalive_interval: Duration,
    /// How long a ping may stay unanswered before the connection is given up.
    pub keepalive_timeout: Duration,
    /// The pause after the first search that found no leader; it doubles from search to search.
    pub backoff_min: Duration,
    /// The longest pause between two searches.
    pub backoff_max: Duration,
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            connect_within: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(1),
            probe_timeout: Duration::from_secs(2),
            attempt_timeout: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(1),
            keepalive_timeout: Duration::from_secs(3),
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_millis(500),
        }
    }
}

/// How much may wait.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The most commands in one message, up to [`CHUNK_COMMANDS_MAX`].
    pub chunk_commands_max: usize,
    /// The most messages that wait for their answer.
    pub chunks_in_flight_max: usize,
    /// The most commands inside the client, waiting and in flight. Callers beyond it wait for room.
    pub queue_commands_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { chunk_commands_max: CHUNK_COMMANDS_MAX, chunks_in_flight_max: 8, queue_commands_max: 64 * 1024 }
    }
}

impl ClientConfig {
    /// A configuration with default timings and limits.
    #[must_use]
    pub fn new(endpoints: Vec<String>, key_rules: String) -> ClientConfig {
        ClientConfig { endpoints, key_rules, cluster_id: None, timings: Timings::default(), limits: Limits::default() }
    }

    /// Checks bounds and how they relate.
    ///
    /// # Errors
    /// [`ClientError::Config`] with the first value that can not be worked with.
    pub fn check(&self) -> Result<(), ClientError> {
        let refuse = |what: String| Err(ClientError::Config { what });
        if self.endpoints.is_empty() || ENDPOINTS_MAX < self.endpoints.len() {
            return refuse(format!("{} registry endpoints, 1 to {ENDPOINTS_MAX} are allowed", self.endpoints.len()));
        }
        for endpoint in &self.endpoints {
            uri(endpoint)?;
        }
        if KEY_RULES_BYTES_MAX < self.key_rules.len() {
            return refuse(format!("key rules of {} bytes, at most {KEY_RULES_BYTES_MAX}", self.key_rules.len()));
        }
        let Limits { chunk_commands_max, chunks_in_flight_max, queue_commands_max } = self.limits;
        if !(1..=CHUNK_COMMANDS_MAX).contains(&chunk_commands_max) {
            return refuse(format!("{chunk_commands_max} commands in a chunk, 1 to {CHUNK_COMMANDS_MAX} are allowed"));
        }
        if !(1..=CHUNKS_IN_FLIGHT_MAX).contains(&chunks_in_flight_max) {
            return refuse(format!("{chunks_in_flight_max} chunks in flight, 1 to {CHUNKS_IN_FLIGHT_MAX} are allowed"));
        }
        // A piece of a call holds up to one chunk, and must fit an empty queue to get in at all.
        if !(chunk_commands_max..=QUEUE_COMMANDS_MAX).contains(&queue_commands_max) {
            return refuse(format!(
                "room for {queue_commands_max} commands, {chunk_commands_max} (one chunk) to {QUEUE_COMMANDS_MAX} are allowed"
            ));
        }
        let Timings { backoff_min, backoff_max, .. } = self.timings;
        if backoff_min.is_zero() || backoff_max < backoff_min {
            return refuse(format!(
                "a back-off of {backoff_min:?} up to {backoff_max:?}: it must grow from above zero"
            ));
        }
        Ok(())
    }
}

/// `host:port` or a URI, as a URI.
///
/// # Errors
/// [`ClientError::Config`] with the text that is neither.
pub fn uri(endpoint: &str) -> Result<String, ClientError> {
    let uri = if endpoint.contains("://") { endpoint.to_owned() } else { format!("http://{endpoint}") };
    let known = Endpoint::from_shared(uri.clone())
        .is_ok_and(|parsed| parsed.uri().scheme_str() == Some("http") && parsed.uri().port().is_some());
    if known {
        Ok(uri)
    } else {
        Err(ClientError::Config { what: format!("registry endpoint {endpoint:?}: expected host:port") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: impl FnOnce(&mut ClientConfig), want: &str) {
        let mut config = ClientConfig::new(vec!["127.0.0.1:7000".into()], String::new());
        change(&mut config);
        let found = config.check().map_or_else(|error| error.to_string(), |()| String::new());
        assert!(found.contains(want) && found.is_empty() == want.is_empty(), "{found:?} does not say {want:?}");
    }

    #[test]
    fn a_value_out_of_bounds_is_named() {
        check(|_| (), "");
        check(|c| c.endpoints.push("[::1]:7001".into()), "");
        check(|c| c.endpoints.push("registry-1.example:7001".into()), "");
        check(|c| c.endpoints.clear(), "0 registry endpoints");
        check(|c| c.endpoints.push("nowhere".into()), "\"nowhere\": expected host:port");
        check(|c| c.endpoints.push("https://a:1".into()), "\"https://a:1\"");
        check(|c| c.endpoints.push(String::new()), "\"\"");
        check(|c| c.key_rules = "x".repeat(KEY_RULES_BYTES_MAX + 1), "key rules of 16385 bytes");
        check(|c| c.limits.chunk_commands_max = 4_001, "4001 commands");
        check(|c| c.limits.chunks_in_flight_max = 0, "0 chunks");
        check(|c| c.limits.queue_commands_max = 3_999, "room for 3999");
        check(|c| c.timings.backoff_max = Duration::from_millis(1), "back-off of 20ms up to 1ms");
    }
}

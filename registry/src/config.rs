//! What a server is told. Checked once, in [`ServerConfig::check`]; a message names both values.
//!
//! Invariant: what must agree over the cluster stands in [`ServerConfig::fingerprint`], one line
//! for each, and peers compare it before they exchange a message.
//!
//! Not here: files and command lines. The binary translates its configuration into this.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use photon_core::MEMBERS_MAX;
use photon_types::{CHUNK_BYTES_MAX, CHUNK_COMMANDS_MAX, COMMAND_FORMAT, GroupId, NodeId};

use crate::error::RegistryError;

/// The replication group of a node. One now; what lies below is keyed by group.
pub const GROUP: GroupId = GroupId(1);

/// Version of the protocol between peers.
pub const PEER_PROTOCOL: u32 = 1;

/// A member of the cluster, this node included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberConfig {
    /// Its id, bound to one disk for ever.
    pub id: NodeId,
    /// Where its peers reach it: `host:port`.
    pub peer_address: String,
    /// Where clients reach it: `host:port`.
    pub client_address: String,
}

/// Where to listen.
#[derive(Debug)]
pub enum Listen {
    /// Bind this address; port 0 takes a free one.
    Address(SocketAddr),
    /// Take this listener: for clusters within one process, whose members must know each other's
    /// ports before any of them starts.
    Bound(TcpListener),
}

/// How long things may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timings {
    /// A follower that hears no leader for this long, or up to twice as long, becomes a candidate.
    pub election_timeout: Duration,
    /// How often a leader speaks.
    pub heartbeat_interval: Duration,
    /// A client's call is answered `Unknown` after this, or after its own deadline if shorter.
    pub request_timeout: Duration,
    /// For a connection to a peer.
    pub connect_timeout: Duration,
    /// A peer that can not be reached is dialed again after this, doubling up to
    /// [`Timings::redial_max`].
    pub redial_min: Duration,
    /// The longest pause between two dials.
    pub redial_max: Duration,
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            election_timeout: Duration::from_secs(1),
            heartbeat_interval: Duration::from_millis(100),
            request_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(2),
            redial_min: Duration::from_millis(50),
            redial_max: Duration::from_secs(1),
        }
    }
}

/// How much there may be of things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Batches between proposal and commit.
    pub window_batches: usize,
    /// Commands in one batch.
    pub batch_commands_max: usize,
    /// Bytes of a journal segment.
    pub segment_bytes: u64,
    /// Requests of clients that wait at the door.
    pub inbox_requests_max: usize,
    /// Bytes of them.
    pub inbox_bytes_max: usize,
    /// Messages of peers that wait at the door.
    pub inbox_messages_max: usize,
    /// Bytes of messages that wait for one connection to a peer.
    pub peer_queue_bytes_max: usize,
    /// Bytes of journal records, and of entries to apply, that may be under way. Above it no work
    /// is taken that would add to them.
    pub lane_bytes_max: usize,
    /// Bytes of one memtable.
    pub memtable_bytes: usize,
    /// Bytes of the block cache.
    pub block_cache_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            window_batches: 16,
            batch_commands_max: CHUNK_COMMANDS_MAX,
            segment_bytes: 64 << 20,
            inbox_requests_max: 8_192,
            inbox_bytes_max: 64 << 20,
            inbox_messages_max: 4_096,
            peer_queue_bytes_max: 32 << 20,
            lane_bytes_max: 64 << 20,
            memtable_bytes: 64 << 20,
            block_cache_bytes: 64 << 20,
        }
    }
}

/// The listeners of a server, taken out of its configuration.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub client: Listen,
    pub peer: Listen,
    pub http: Option<Listen>,
}

/// What a server is told.
#[derive(Debug)]
pub struct ServerConfig {
    /// Which member this is.
    pub node: NodeId,
    /// The directory of this node, and of nobody else.
    pub data_dir: PathBuf,
    /// All members, this node included.
    pub members: Vec<MemberConfig>,
    /// Where clients are served.
    pub client_listen: Listen,
    /// Where peers are served.
    pub peer_listen: Listen,
    /// Where `/healthz` and `/status` are served, if anywhere.
    pub http_listen: Option<Listen>,
    /// How long things may take.
    pub timings: Timings,
    /// How much there may be of things.
    pub limits: Limits,
    /// A test aid, off by default: seeded random delays before each journal write, each apply,
    /// each message to a peer and each reply to a client.
    pub chaos_delays: Option<u64>,
}

impl ServerConfig {
    /// A server with default timings and limits.
    #[must_use]
    pub fn new(
        node: NodeId,
        data_dir: PathBuf,
        members: Vec<MemberConfig>,
        client_listen: Listen,
        peer_listen: Listen,
    ) -> ServerConfig {
        ServerConfig {
            node,
            data_dir,
            members,
            client_listen,
            peer_listen,
            http_listen: None,
            timings: Timings::default(),
            limits: Limits::default(),
            chaos_delays: None,
        }
    }

    /// The member ids, sorted.
    #[must_use]
    pub fn member_ids(&self) -> Vec<NodeId> {
        self.members.iter().map(|member| member.id).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// All members but this node, sorted.
    pub(crate) fn peer_ids(&self) -> Vec<NodeId> {
        self.member_ids().into_iter().filter(|member| *member != self.node).collect()
    }

    /// Checks each value and their relations.
    ///
    /// # Errors
    /// [`RegistryError::Config`], which names the values that do not fit.
    pub fn check(&self) -> Result<(), RegistryError> {
        self.check_members()?;
        self.check_timings()?;
        self.check_limits()?;
        self.core(self.member_ids()).check().map_err(|error| RegistryError::Config { message: error.to_string() })
    }

    fn check_members(&self) -> Result<(), RegistryError> {
        let ids = self.member_ids();
        ensure(ids.len() == self.members.len(), || {
            format!("{} members have only {} different ids: an id is given once", self.members.len(), ids.len())
        })?;
        ensure((1..=MEMBERS_MAX).contains(&ids.len()), || {
            format!("{} members: 1 to {MEMBERS_MAX} are allowed", ids.len())
        })?;
        let list = || ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        ensure(ids.contains(&self.node), || format!("this is node {}, but the members are {}", self.node, list()))?;
        ensure(ids[0] != NodeId(0), || "node id 0 is reserved: ids begin at 1".to_owned())?;
        for member in &self.members {
            for (what, address) in [("peer", &member.peer_address), ("client", &member.client_address)] {
                let has_port = address
                    .rsplit_once(':')
                    .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0));
                ensure(has_port, || {
                    format!("{what} address {address:?} of node {} is not host:port with a port above 0", member.id)
                })?;
            }
        }
        Ok(())
    }

    fn check_timings(&self) -> Result<(), RegistryError> {
        let Timings { election_timeout, heartbeat_interval, request_timeout, connect_timeout, redial_min, redial_max } =
            self.timings;
        ensure(!heartbeat_interval.is_zero(), || "the heartbeat interval is 0".to_owned())?;
        ensure(heartbeat_interval * 3 <= election_timeout, || {
            format!(
                "election timeout {election_timeout:?} is less than three heartbeats of {heartbeat_interval:?}: \
                 one lost message would depose a leader"
            )
        })?;
        ensure(!request_timeout.is_zero() && !connect_timeout.is_zero(), || {
            format!("request timeout {request_timeout:?} and connect timeout {connect_timeout:?} must be above 0")
        })?;
        ensure(!redial_min.is_zero() && redial_min <= redial_max, || {
            format!(
                "pauses between dials from {redial_min:?} to {redial_max:?}: the first must be above 0 and the smaller one"
            )
        })
    }

    fn check_limits(&self) -> Result<(), RegistryError> {
        let limits = &self.limits;
        ensure((1..=256).contains(&limits.window_batches), || {
            format!("a window of {} batches: 1 to 256 are allowed", limits.window_batches)
        })?;
        ensure((1..=CHUNK_COMMANDS_MAX).contains(&limits.batch_commands_max), || {
            format!("batches of {} commands: 1 to {CHUNK_COMMANDS_MAX} are allowed", limits.batch_commands_max)
        })?;
        let segment_bytes_min = 4 * CHUNK_BYTES_MAX as u64;
        ensure(segment_bytes_min <= limits.segment_bytes, || {
            format!("journal segments of {} bytes: at least {segment_bytes_min} are needed", limits.segment_bytes)
        })?;
        ensure(0 < limits.inbox_requests_max && 0 < limits.inbox_messages_max, || {
            format!(
                "room for {} requests and {} messages: both must be above 0",
                limits.inbox_requests_max, limits.inbox_messages_max
            )
        })?;
        for (what, bytes) in [
            ("inbox", limits.inbox_bytes_max),
            ("peer queue", limits.peer_queue_bytes_max),
            ("lane", limits.lane_bytes_max),
            ("memtable", limits.memtable_bytes),
            ("block cache", limits.block_cache_bytes),
        ] {
            ensure(4 * CHUNK_BYTES_MAX <= bytes, || {
                format!("{what} of {bytes} bytes: at least four chunks of {CHUNK_BYTES_MAX} bytes must fit")
            })?;
        }
        Ok(())
    }

    /// What must agree over the cluster: sorted lines `name = value`.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let members = self.member_ids().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        [
            format!("bucket_micros = {}", photon_core::machine::BUCKET_WIDTH_MICROS),
            format!("chunk_bytes_max = {CHUNK_BYTES_MAX}"),
            format!("chunk_commands_max = {CHUNK_COMMANDS_MAX}"),
            format!("command_format = {COMMAND_FORMAT}"),
            format!("groups = {GROUP}"),
            format!("members = {members}"),
        ]
        .join("\n")
    }

    /// Takes the listeners out: what is left can be shared.
    pub(crate) fn split_listeners(mut self) -> (ServerConfig, Listeners) {
        let nowhere = || Listen::Address(SocketAddr::from(([127, 0, 0, 1], 0)));
        let listeners = Listeners {
            client: std::mem::replace(&mut self.client_listen, nowhere()),
            peer: std::mem::replace(&mut self.peer_listen, nowhere()),
            http: self.http_listen.take(),
        };
        (self, listeners)
    }

    /// What the core is told. Whose votes count is said by the birth record, once there is one.
    pub(crate) fn core(&self, members: Vec<NodeId>) -> photon_core::Config {
        let mut core = photon_core::Config::new(self.node, GROUP, members);
        let Timings { election_timeout, heartbeat_interval, .. } = self.timings;
        core.timings = photon_core::Timings {
            election_timeout_min: election_timeout,
            election_timeout_max: election_timeout * 2,
            heartbeat_interval,
            resend_interval: core.timings.resend_interval.min(election_timeout / 2),
            ..core.timings
        };
        let window = self.limits.window_batches as u64;
        core.limits = photon_core::Limits {
            window_slots_max: window,
            open_slots_max: core.limits.open_slots_max.max(4 * window),
            unapplied_slots_max: core.limits.unapplied_slots_max.max(4 * window),
            batch_commands_max: self.limits.batch_commands_max,
            ..core.limits
        };
        core
    }
}

/// The lines of two fingerprints that differ, for a message: `name is a here and b there`.
pub(crate) fn fingerprint_difference(ours: &str, theirs: &str) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let value = |text: &str, name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(" = "))
            .find(|(found, _)| *found == name)
            .map_or_else(|| "nothing".to_owned(), |(_, value)| value.to_owned())
    };
    let names: BTreeSet<&str> =
        ours.lines().chain(theirs.lines()).filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    let differing: Vec<String> = names
        .into_iter()
        .filter(|name| value(ours, name) != value(theirs, name))
        .map(|name| format!("{name} is {} here and {} there", value(ours, name), value(theirs, name)))
        .collect();
    Some(if differing.is_empty() { "the fingerprints can not be compared".to_owned() } else { differing.join("; ") })
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), RegistryError> {
    if holds { Ok(()) } else { Err(RegistryError::Config { message: message() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(node: u32, ids: &[u32]) -> ServerConfig {
        let listen = || Listen::Address("127.0.0.1:0".parse().unwrap());
        let members = ids
            .iter()
            .map(|id| MemberConfig {
                id: NodeId(*id),
                peer_address: format!("localhost:{}", 7000 + id),
                client_address: format!("localhost:{}", 8000 + id),
            })
            .collect();
        ServerConfig::new(NodeId(node), "data".into(), members, listen(), listen())
    }

    #[track_caller]
    fn refused(config: &ServerConfig, part: &str) {
        let message = config.check().unwrap_err().to_string();
        assert!(message.contains(part), "{message:?} should contain {part:?}");
    }

    #[test]
    fn defaults_fit_each_other() {
        config(1, &[1, 2, 3]).check().unwrap();
        config(1, &[1]).check().unwrap();
    }

    #[test]
    fn both_values_are_named() {
        refused(&config(4, &[1, 2, 3]), "this is node 4, but the members are 1, 2, 3");
        refused(&config(1, &[1, 1, 2]), "3 members have only 2 different ids");
        refused(&config(1, &[0, 1]), "node id 0 is reserved");
        let mut slow = config(1, &[1]);
        slow.timings.heartbeat_interval = Duration::from_millis(400);
        refused(&slow, "election timeout 1s is less than three heartbeats of 400ms");
        let mut bad = config(1, &[1]);
        bad.members[0].peer_address = "localhost:0".into();
        refused(&bad, "peer address \"localhost:0\" of node 1");
        let mut small = config(1, &[1]);
        small.limits.segment_bytes = 1024;
        refused(&small, "journal segments of 1024 bytes");
    }

    #[test]
    fn the_differing_line_is_found() {
        let three = config(1, &[1, 2, 3]).fingerprint();
        let five = config(1, &[1, 2, 3, 4, 5]).fingerprint();
        assert_eq!(fingerprint_difference(&three, &three), None);
        let difference = fingerprint_difference(&three, &five).unwrap();
        assert_eq!(difference, "members is 1,2,3 here and 1,2,3,4,5 there");
        assert!(fingerprint_difference(&three, "").unwrap().contains("members is 1,2,3 here and nothing there"));
    }
}

//! What a replica is told at its start: who the members are, how long it waits, how much it holds.
//!
//! Invariant: a limit that depends on another one is checked against it, here or at compile time.

use std::fmt;
use std::time::Duration;

use photon_types::{CHUNK_BYTES_MAX, CHUNK_COMMANDS_MAX, GroupId, NodeId};

use crate::mutant::Mutant;

/// The most members of one group: beyond it a commit waits for too many disks.
pub const MEMBERS_MAX: usize = 9;

/// What one peer message may hold on the wire: gRPC's usual limit on decoding.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What an entry costs in a message besides its value: slot, ballot, lengths.
pub const ENTRY_OVERHEAD_BYTES: usize = 64;

/// The largest page of entries. A page may exceed it only by being a single entry.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;

// A page is at most one page of values plus as much overhead as it was allowed bytes, or one entry.
const _: () = assert!(2 * PAGE_BYTES_MAX < MESSAGE_BYTES_MAX);
const _: () = assert!(CHUNK_BYTES_MAX + ENTRY_OVERHEAD_BYTES < MESSAGE_BYTES_MAX);

/// How long a replica waits for what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Timings {
    /// A follower that hears of no leader for a random time in `min..max` becomes a candidate; a
    /// candidate that does not lead by then begins again.
    pub election_timeout_min: Duration,
    /// The end of that range.
    pub election_timeout_max: Duration,
    /// How often a leader says that it lives.
    pub heartbeat_interval: Duration,
    /// After what time a question without an answer is asked again. For an `Accept` it doubles
    /// with each repetition, up to `election_timeout_min`.
    pub resend_interval: Duration,
    /// What a client is told to wait when too much is waiting.
    pub retry_after: Duration,
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            election_timeout_min: Duration::from_secs(1),
            election_timeout_max: Duration::from_secs(2),
            heartbeat_interval: Duration::from_millis(100),
            resend_interval: Duration::from_millis(200),
            retry_after: Duration::from_millis(50),
        }
    }
}

/// How much a replica holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// How many slots a leader has proposed and not yet committed, at most.
    pub window_slots_max: u64,
    /// How far beyond its own `commit_end` an acceptor accepts. What is farther it learns later,
    /// as chosen.
    pub open_slots_max: u64,
    /// How far `commit_end` may be ahead of `applied_end` before a leader refuses requests and a
    /// follower fetches no more. Also the most `Apply` effects that are not reported yet.
    pub unapplied_slots_max: u64,
    /// A batch is full with this many commands. One larger request is a batch of its own.
    pub batch_commands_max: usize,
    /// A batch is full with this many bytes. One larger request is a batch of its own.
    pub batch_bytes_max: usize,
    /// Requests that wait for room in the pipeline, at most.
    pub queued_requests_max: usize,
    /// Commands of requests that wait, at most.
    pub queued_commands_max: usize,
    /// Bytes of requests that wait, at most.
    pub queued_bytes_max: usize,
    /// Bytes of entries in one message, unless a single entry has more.
    pub page_bytes_max: usize,
    /// Applied entries kept in memory for peers that are a little behind: how many.
    pub cache_slots_max: usize,
    /// And how many bytes of them.
    pub cache_bytes_max: usize,
    /// Reads of the journal for peers that are far behind, at once.
    pub reads_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            window_slots_max: 16,
            open_slots_max: 64,
            unapplied_slots_max: 64,
            batch_commands_max: CHUNK_COMMANDS_MAX,
            batch_bytes_max: CHUNK_BYTES_MAX,
            queued_requests_max: 64 * 1024,
            queued_commands_max: 16 * CHUNK_COMMANDS_MAX,
            queued_bytes_max: 16 * CHUNK_BYTES_MAX,
            page_bytes_max: PAGE_BYTES_MAX,
            cache_slots_max: 1024,
            cache_bytes_max: 16 * CHUNK_BYTES_MAX,
            reads_max: 4,
        }
    }
}

/// What a replica is told at its start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node.
    pub node: NodeId,
    /// The replication group.
    pub group: GroupId,
    /// All members of the group, this node among them, in ascending order.
    pub members: Vec<NodeId>,
    /// How long it waits.
    pub timings: Timings,
    /// How much it holds.
    pub limits: Limits,
    /// A bug on purpose.
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
}

impl Config {
    /// A configuration with the default timings and limits.
    #[must_use]
    pub fn new(node: NodeId, group: GroupId, mut members: Vec<NodeId>) -> Config {
        members.sort_unstable();
        Config {
            node,
            group,
            members,
            timings: Timings::default(),
            limits: Limits::default(),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// The other members.
    pub fn peers(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.members.iter().copied().filter(|member| *member != self.node)
    }

    /// Whether this bug is switched on.
    #[cfg(feature = "mutants")]
    pub(crate) fn mutated(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Whether this bug is switched on: never, and nothing of it is compiled.
    #[cfg(not(feature = "mutants"))]
    #[expect(clippy::unused_self, reason = "the same call as with the feature")]
    pub(crate) const fn mutated(&self, _mutant: Mutant) -> bool {
        false
    }

    /// Checks every value and the relations between them.
    ///
    /// # Errors
    /// The first that does not hold, with both values.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_members()?;
        self.check_timings()?;
        self.check_limits()
    }

    fn check_members(&self) -> Result<(), ConfigError> {
        if self.members.is_empty() || MEMBERS_MAX < self.members.len() {
            return Err(ConfigError::Members { found: self.members.len() });
        }
        if self.members.contains(&NodeId(0)) {
            return Err(ConfigError::NodeZero);
        }
        if let Some(pair) = self.members.windows(2).find(|pair| pair[1] <= pair[0]) {
            return Err(ConfigError::MemberOrder { first: pair[0], second: pair[1] });
        }
        if !self.members.contains(&self.node) {
            return Err(ConfigError::NotAMember { node: self.node, members: self.members.clone() });
        }
        Ok(())
    }

    fn check_timings(&self) -> Result<(), ConfigError> {
        let Timings { election_timeout_min, election_timeout_max, heartbeat_interval, resend_interval, retry_after } =
            &self.timings;
        at_most("heartbeat_interval * 3", *heartbeat_interval * 3, "election_timeout_min", *election_timeout_min)?;
        at_most("resend_interval", *resend_interval, "election_timeout_min", *election_timeout_min)?;
        at_most("1ms", Duration::from_millis(1), "heartbeat_interval", *heartbeat_interval)?;
        at_most("1ms", Duration::from_millis(1), "resend_interval", *resend_interval)?;
        at_most("1ms", Duration::from_millis(1), "retry_after", *retry_after)?;
        // Candidates that draw the same time meet again and again.
        let spread = *election_timeout_min + *election_timeout_min / 4;
        at_most("election_timeout_min * 1.25", spread, "election_timeout_max", *election_timeout_max)
    }

    fn check_limits(&self) -> Result<(), ConfigError> {
        let Limits {
            window_slots_max,
            open_slots_max,
            unapplied_slots_max,
            batch_commands_max,
            batch_bytes_max,
            queued_requests_max,
            queued_commands_max,
            queued_bytes_max,
            page_bytes_max,
            cache_slots_max: _,
            cache_bytes_max: _,
            reads_max,
        } = &self.limits;
        at_most("1", 1, "window_slots_max", *window_slots_max)?;
        at_most("window_slots_max", *window_slots_max, "open_slots_max", *open_slots_max)?;
        at_most("window_slots_max", *window_slots_max, "unapplied_slots_max", *unapplied_slots_max)?;
        at_most("1", 1, "batch_commands_max", *batch_commands_max)?;
        at_most("batch_commands_max", *batch_commands_max, "queued_commands_max", *queued_commands_max)?;
        at_most("1", 1, "batch_bytes_max", *batch_bytes_max)?;
        at_most("batch_bytes_max", *batch_bytes_max, "chunk_bytes_max", CHUNK_BYTES_MAX)?;
        at_most("batch_bytes_max", *batch_bytes_max, "queued_bytes_max", *queued_bytes_max)?;
        at_most("1", 1, "queued_requests_max", *queued_requests_max)?;
        at_most("1", 1, "page_bytes_max", *page_bytes_max)?;
        at_most("page_bytes_max", *page_bytes_max, "the largest page", PAGE_BYTES_MAX)?;
        at_most("1", 1, "reads_max", *reads_max)
    }
}

fn at_most<T: PartialOrd + fmt::Debug>(
    small_name: &'static str,
    small: T,
    large_name: &'static str,
    large: T,
) -> Result<(), ConfigError> {
    if small <= large {
        return Ok(());
    }
    Err(ConfigError::Relation { small_name, small: format!("{small:?}"), large_name, large: format!("{large:?}") })
}

/// Why a replica does not start with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// No members, or too many.
    Members {
        /// How many.
        found: usize,
    },
    /// Node id 0 is the id of the ballot below all others.
    NodeZero,
    /// The members are not in ascending order, or one stands there twice.
    MemberOrder {
        /// A member.
        first: NodeId,
        /// The one behind it.
        second: NodeId,
    },
    /// This node is not among the members.
    NotAMember {
        /// This node.
        node: NodeId,
        /// The members.
        members: Vec<NodeId>,
    },
    /// A value is larger than one that it must not exceed.
    Relation {
        /// The one that must be smaller.
        small_name: &'static str,
        /// Its value.
        small: String,
        /// The one that must be larger.
        large_name: &'static str,
        /// Its value.
        large: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Members { found } => write!(f, "a group has 1 to {MEMBERS_MAX} members, not {found}"),
            ConfigError::NodeZero => f.write_str("node ids begin at 1"),
            ConfigError::MemberOrder { first, second } => {
                write!(f, "members must be in ascending order, each once: {second} stands behind {first}")
            }
            ConfigError::NotAMember { node, members } => {
                let members: Vec<String> = members.iter().map(ToString::to_string).collect();
                write!(f, "node {node} is not one of the members {}", members.join(", "))
            }
            ConfigError::Relation { small_name, small, large_name, large } => {
                write!(f, "{small_name} ({small}) must be at most {large_name} ({large})")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Config), want: &str) {
        let mut config = Config::new(NodeId(1), GroupId(1), vec![NodeId(3), NodeId(1), NodeId(2)]);
        change(&mut config);
        let found = config.check().map_or_else(|error| error.to_string(), |()| "ok".into());
        assert_eq!(found, want);
    }

    #[test]
    fn relations_name_both_values() {
        check(|_| (), "ok");
        check(|c| c.members.clear(), "a group has 1 to 9 members, not 0");
        check(|c| c.members[0] = NodeId(0), "node ids begin at 1");
        check(|c| c.members.swap(0, 1), "members must be in ascending order, each once: 1 stands behind 2");
        check(|c| c.node = NodeId(9), "node 9 is not one of the members 1, 2, 3");
        check(
            |c| c.timings.heartbeat_interval = Duration::from_millis(400),
            "heartbeat_interval * 3 (1.2s) must be at most election_timeout_min (1s)",
        );
        check(
            |c| c.timings.election_timeout_max = Duration::from_millis(1100),
            "election_timeout_min * 1.25 (1.25s) must be at most election_timeout_max (1.1s)",
        );
        check(|c| c.limits.open_slots_max = 8, "window_slots_max (16) must be at most open_slots_max (8)");
        check(
            |c| c.limits.page_bytes_max = 1 << 21,
            "page_bytes_max (2097152) must be at most the largest page (1048576)",
        );
    }
}

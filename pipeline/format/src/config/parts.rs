//! The parts of a configuration, after all checks.
//!
//! Invariant: indices point to something, names are unique, bounds hold. Only `check` makes these.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use photon_types::NodeId;
use serde::Deserialize;

use crate::predicate::{FieldPath, Predicate};
use crate::size::ByteSize;
use crate::time::TimeRule;

/// `[cluster]`: the system as a whole.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The name of the join; it stands in the manifest of every output.
    pub name: String,
    /// Everything that outlives a process lies below it.
    pub data_dir: PathBuf,
}

/// `[registry]`: the IdRegistry.
#[derive(Clone, Debug)]
pub struct Registry {
    /// How long ids are kept.
    pub retention: Retention,
    /// A follower that has heard no leader for about this long stands for election.
    pub election_timeout: Duration,
    /// A leader speaks at least this often.
    pub heartbeat: Duration,
    /// Slots proposed but not yet chosen, at most.
    pub window: usize,
    /// Commands in one slot, at most.
    pub batch_commands: usize,
    /// A journal segment is closed at this size.
    pub journal_segment: ByteSize,
    /// The members, by ascending id.
    pub nodes: Vec<RegistryNode>,
}

/// How long ids are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// For ever.
    Never,
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Retention::Never => f.write_str("never"),
        }
    }
}

/// `[[registry.node]]`: a replica. Without addresses it can run within `dev` only.
#[derive(Clone, Debug)]
pub struct RegistryNode {
    /// Unique, never given twice.
    pub id: NodeId,
    /// For the other nodes.
    pub peer: Option<Address>,
    /// For clients.
    pub client: Option<Address>,
    /// For `/healthz`.
    pub http: Option<Address>,
}

/// `host:port`. Whether the host has an address is found out when it is used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub(super) String);

impl Address {
    /// `host:port`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host: a name, an IPv4 address, or an IPv6 address in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.0.rsplit_once(':').map_or("", |(host, _)| host)
    }

    /// The port; 0 where the system may choose.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `[join]`: what is joined, and how.
#[derive(Clone, Debug)]
pub struct Join {
    /// A click older than this whose query is nowhere is unjoinable (`--once`: it does not apply).
    pub window: Duration,
    /// Which query counts when several have one id.
    pub duplicate_primary: DuplicatePrimary,
    /// What is done with a pair.
    pub adapter: Adapter,
    /// How often sources are looked at.
    pub poll: Duration,
    /// The longest record line that is read; a longer one is a dead letter.
    pub line_max: ByteSize,
    /// An output block is closed at this age,
    pub output_block: Duration,
    /// or at this size.
    pub output_block_bytes: ByteSize,
    /// An output segment is closed at this size.
    pub output_segment_bytes: ByteSize,
    /// Payloads that one event store keeps in memory.
    pub cache: ByteSize,
    /// The first wait before a click is tried again; it doubles,
    pub retry_min: Duration,
    /// up to this.
    pub retry_max: Duration,
    /// Attempts that one joiner runs at once, at most: what a crash can leave to the verifier.
    pub in_flight: usize,
    /// Clicks that one dispatcher has under way, at most.
    pub dispatch_in_flight: usize,
    /// Clicks that one retry store holds, at most; reading stops there.
    pub retry_store: usize,
    /// How long one call between two roles may take.
    pub call_timeout: Duration,
    /// Where records come from.
    pub inputs: Vec<Input>,
    /// What records mean.
    pub streams: Vec<Stream>,
}

/// Which primary record counts when several have one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DuplicatePrimary {
    /// The one that stands first: lowest source name, then lowest offset.
    First,
}

/// What is done with a pair before its id is inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adapter {
    /// Every pair is output.
    Merge,
    /// Only pairs that pass are output; the others end as filtered.
    Filter(Filter),
}

/// `[join.filter]`: both must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// What must hold for the click's payload.
    pub click: Predicate,
    /// What must hold for the query's payload.
    pub query: Predicate,
}

/// `[[join.input]]`: a file, or a directory of growing files.
#[derive(Clone, Debug)]
pub struct Input {
    /// Unique; the first part of its files' source names.
    pub name: String,
    /// Where it lies, unless a datacenter says otherwise.
    pub path: PathBuf,
    /// How files are cut into records.
    pub framing: Framing,
}

/// How a file is cut into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// One JSON object per line.
    Ndjson,
    /// Elasticsearch and OpenSearch bulk form: an action line, then a document line.
    EsBulk,
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Framing::Ndjson => "ndjson",
            Framing::EsBulk => "es-bulk",
        })
    }
}

/// The position of an input in [`Join::inputs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InputIndex(pub usize);

/// The position of a stream in [`Join::streams`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamIndex(pub usize);

/// `[[join.stream]]`: which records of an input belong together, and what their fields mean.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Unique.
    pub name: String,
    /// The input it is read from.
    pub input: InputIndex,
    /// Which of the input's records are meant; all when empty.
    pub select: Predicate,
    /// Primary: what clicks refer to. Foreign: the id of the event, one part of its key.
    pub id: IdSource,
    /// What else its role needs.
    pub kind: StreamKind,
}

impl Stream {
    /// Queries or clicks.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.kind {
            StreamKind::Primary => Role::Primary,
            StreamKind::Foreign { .. } => Role::Foreign,
        }
    }
}

/// The side of the join a stream is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Queries: what is referred to.
    Primary,
    /// Clicks: what refers, and is output once.
    Foreign,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Primary => "primary",
            Role::Foreign => "foreign",
        })
    }
}

/// What a stream's role needs beside an id.
#[derive(Clone, Debug)]
pub enum StreamKind {
    /// Queries.
    Primary,
    /// Clicks.
    Foreign {
        /// Which field names the query.
        reference: FieldPath,
        /// Event time, the other part of the key.
        time: TimeRule,
    },
}

/// Where the id of a record comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdSource {
    /// A field of the document.
    Field(FieldPath),
    /// `@id`: `_id` of the bulk action line.
    ActionId,
    /// `@position`: source name and offset. With one datacenter only.
    Position,
}

impl fmt::Display for IdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdSource::Field(path) => path.fmt(f),
            IdSource::ActionId => f.write_str("@id"),
            IdSource::Position => f.write_str("@position"),
        }
    }
}

/// `[[datacenter]]`: a place where the whole pipeline runs on the whole input.
#[derive(Clone, Debug)]
pub struct Datacenter {
    /// Unique; a directory below the data directory has this name.
    pub name: String,
    /// The event store's RPC address.
    pub event_store: Option<Address>,
    /// The joiner's RPC address.
    pub joiner: Option<Address>,
    /// The dispatcher's RPC address.
    pub dispatcher: Option<Address>,
    /// For the event store's `/healthz`.
    pub event_store_http: Option<Address>,
    /// For the joiner's `/healthz`.
    pub joiner_http: Option<Address>,
    /// For the dispatcher's `/healthz`.
    pub dispatcher_http: Option<Address>,
    /// Paths of inputs that lie elsewhere here, by the input's name.
    pub paths: BTreeMap<String, PathBuf>,
}

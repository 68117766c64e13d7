//! The config file as written: what serde reads. `check` turns it into `parts`.
//!
//! Invariant: unknown keys are refused everywhere, and nothing is flattened, since the two do not
//! go together.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::parts::{DuplicatePrimary, Framing, Role};
use crate::predicate::Literals;
use crate::size::{self, ByteSize};
use crate::time::TimeForm;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub cluster: Cluster,
    pub registry: Registry,
    pub join: Join,
    #[serde(default)]
    pub datacenter: Vec<Datacenter>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub name: String,
    #[serde(default = "default_data_dir")]
    pub data_dir: PathBuf,
}

fn default_data_dir() -> PathBuf {
    PathBuf::from("photon-data")
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Registry {
    pub retention: String,
    #[serde(deserialize_with = "size::duration")]
    pub election_timeout: Duration,
    #[serde(deserialize_with = "size::duration")]
    pub heartbeat: Duration,
    #[serde(deserialize_with = "size::count")]
    pub window: usize,
    #[serde(deserialize_with = "size::count")]
    pub batch_commands: usize,
    pub journal_segment: ByteSize,
    pub node: Vec<Node>,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry {
            retention: "never".into(),
            election_timeout: Duration::from_secs(1),
            heartbeat: Duration::from_millis(100),
            window: 16,
            batch_commands: 4_000,
            journal_segment: ByteSize::mib(64),
            node: Vec::new(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Node {
    pub id: u32,
    pub peer: Option<String>,
    pub client: Option<String>,
    pub http: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Join {
    #[serde(deserialize_with = "size::duration")]
    pub window: Duration,
    pub duplicate_primary: DuplicatePrimary,
    pub adapter: AdapterName,
    pub filter: Option<Filter>,
    #[serde(deserialize_with = "size::duration")]
    pub poll: Duration,
    pub line_max: ByteSize,
    #[serde(deserialize_with = "size::duration")]
    pub output_block: Duration,
    pub output_block_bytes: ByteSize,
    pub output_segment_bytes: ByteSize,
    pub cache: ByteSize,
    #[serde(deserialize_with = "size::duration")]
    pub retry_min: Duration,
    #[serde(deserialize_with = "size::duration")]
    pub retry_max: Duration,
    #[serde(deserialize_with = "size::count")]
    pub in_flight: usize,
    #[serde(deserialize_with = "size::count")]
    pub dispatch_in_flight: usize,
    #[serde(deserialize_with = "size::count")]
    pub retry_store: usize,
    #[serde(deserialize_with = "size::duration")]
    pub call_timeout: Duration,
    pub input: Vec<Input>,
    pub stream: Vec<Stream>,
}

impl Default for Join {
    fn default() -> Join {
        Join {
            window: Duration::from_secs(3 * 86_400),
            duplicate_primary: DuplicatePrimary::First,
            adapter: AdapterName::Merge,
            filter: None,
            poll: Duration::from_millis(200),
            line_max: ByteSize::mib(1),
            output_block: Duration::from_millis(5),
            output_block_bytes: ByteSize::mib(1),
            output_segment_bytes: ByteSize::mib(64),
            cache: ByteSize::mib(256),
            retry_min: Duration::from_millis(100),
            retry_max: Duration::from_secs(60),
            in_flight: 4_096,
            dispatch_in_flight: 16_384,
            retry_store: 1_000_000,
            call_timeout: Duration::from_secs(10),
            input: Vec::new(),
            stream: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AdapterName {
    Merge,
    Filter,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Filter {
    #[serde(default)]
    pub click: BTreeMap<String, Literals>,
    #[serde(default)]
    pub query: BTreeMap<String, Literals>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Input {
    pub name: String,
    pub path: PathBuf,
    pub framing: Framing,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Stream {
    pub name: String,
    pub role: Role,
    pub input: String,
    #[serde(default)]
    pub select: BTreeMap<String, Literals>,
    pub id: String,
    pub reference: Option<String>,
    pub time: Option<Time>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Time {
    pub field: String,
    pub forms: Vec<TimeForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Datacenter {
    pub name: String,
    pub event_store: Option<String>,
    pub joiner: Option<String>,
    pub dispatcher: Option<String>,
    pub event_store_http: Option<String>,
    pub joiner_http: Option<String>,
    pub dispatcher_http: Option<String>,
    #[serde(default)]
    pub paths: BTreeMap<String, PathBuf>,
}

//! From what was written to what is meant: every bound and every relation, checked once.
//!
//! Invariant: a message names the key, the value found (both, for a relation) and what is allowed.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use photon_types::{CHUNK_COMMANDS_MAX, KEY_RULES_BYTES_MAX, NodeId};

use super::parts::{
    Adapter, Address, Cluster, Datacenter, Filter, Framing, IdSource, Input, InputIndex, Join, Registry, RegistryNode,
    Retention, Role, Stream, StreamKind,
};
use super::{Config, toml_form};
use crate::extract::Extractor;
use crate::keyrules::KeyRules;
use crate::predicate::{Field, FieldPath, Literals, Predicate};
use crate::size::{ByteSize, duration_text, parse_duration};
use crate::time::TimeRule;

/// The longest name: names become parts of paths and of source names.
const NAME_BYTES_MAX: usize = 40;
const NODES_MAX: usize = 7;
const INPUTS_MAX: usize = 64;
const STREAMS_MAX: usize = 64;
const DATACENTERS_MAX: usize = 16;

/// A refusal, before the line is known.
pub(super) struct Fault {
    pub key: String,
    pub message: String,
}

type Checked<T> = Result<T, Fault>;

fn fault<T>(key: impl Into<String>, message: impl Into<String>) -> Checked<T> {
    Err(Fault { key: key.into(), message: message.into() })
}

pub(super) fn check(form: toml_form::File, file: &Path) -> Checked<Config> {
    let cluster = Cluster { name: name("cluster.name", form.cluster.name)?, data_dir: form.cluster.data_dir };
    let mut registry = registry(form.registry)?;
    let datacenters = datacenters(form.datacenter, &form.join.input)?;
    let join = join(form.join, datacenters.len())?;
    addresses_differ(&registry, &datacenters)?;
    registry.nodes.sort_by_key(|node| node.id);
    let config = Config { file: file.to_owned(), cluster, registry, join, datacenters };
    for index in 0..config.join.inputs.len() {
        Extractor::compile(&config, InputIndex(index))
            .map_err(|message| Fault { key: format!("join.input[{index}]"), message })?;
    }
    let rules = KeyRules::from_config(&config).text().len();
    if KEY_RULES_BYTES_MAX < rules {
        let (index, _) = config.foreign();
        return fault(
            format!("join.stream[{}].select", index.0),
            format!("the key rules of this stream take {rules} bytes, at most {KEY_RULES_BYTES_MAX} are allowed"),
        );
    }
    Ok(config)
}

/// Nodes still in the order of the file, so that a fault can name their place.
fn registry(form: toml_form::Registry) -> Checked<Registry> {
    if form.retention != "never" {
        return match parse_duration(&form.retention) {
            Ok(_) => fault(
                "registry.retention",
                format!("\"{}\": ids that expire are not supported yet; only \"never\" is allowed", form.retention),
            ),
            Err(_) => fault("registry.retention", format!("\"{}\" is not allowed; only \"never\" is", form.retention)),
        };
    }
    let (election, heartbeat) = (form.election_timeout, form.heartbeat);
    bounded("registry.election-timeout", election, Duration::from_millis(10), Duration::from_secs(60))?;
    bounded("registry.heartbeat", heartbeat, Duration::from_millis(1), Duration::from_secs(30))?;
    // One heartbeat may be lost.
    if election < heartbeat * 3 {
        return fault(
            "registry.heartbeat",
            format!(
                "heartbeat {} must be at most a third of election-timeout {}, or followers depose a healthy leader",
                duration_text(heartbeat),
                duration_text(election)
            ),
        );
    }
    within("registry.window", form.window, 1, 1024)?;
    within("registry.batch-commands", form.batch_commands, 1, CHUNK_COMMANDS_MAX)?;
    within("registry.journal-segment", form.journal_segment, ByteSize::mib(4), ByteSize::mib(1024))?;
    let nodes = nodes(form.node)?;
    Ok(Registry {
        retention: Retention::Never,
        election_timeout: election,
        heartbeat,
        window: form.window,
        batch_commands: form.batch_commands,
        journal_segment: form.journal_segment,
        nodes,
    })
}

fn nodes(forms: Vec<toml_form::Node>) -> Checked<Vec<RegistryNode>> {
    let count = forms.len();
    if count.is_multiple_of(2) || NODES_MAX < count {
        return fault(
            "registry.node",
            format!(
                "there are {count} [[registry.node]]; 1, 3, 5 or 7 are allowed (3 stand the loss of one, 5 of two)"
            ),
        );
    }
    let mut nodes: Vec<RegistryNode> = Vec::new();
    for (index, form) in forms.into_iter().enumerate() {
        let key = |name: &str| format!("registry.node[{index}].{name}");
        if form.id == 0 {
            return fault(key("id"), "0 is not allowed; ids begin at 1");
        }
        let id = NodeId(form.id);
        if nodes.iter().any(|node| node.id == id) {
            return fault(key("id"), format!("two nodes have the id {id}; ids are unique and never given twice"));
        }
        nodes.push(RegistryNode {
            id,
            peer: address(&key("peer"), form.peer)?,
            client: address(&key("client"), form.client)?,
            http: address(&key("http"), form.http)?,
        });
    }
    Ok(nodes)
}

fn datacenters(forms: Vec<toml_form::Datacenter>, inputs: &[toml_form::Input]) -> Checked<Vec<Datacenter>> {
    within("datacenter", forms.len(), 1, DATACENTERS_MAX)?;
    let mut datacenters: Vec<Datacenter> = Vec::new();
    for (index, form) in forms.into_iter().enumerate() {
        let key = |name: &str| format!("datacenter[{index}].{name}");
        let name = name(&key("name"), form.name)?;
        if name == "registry" {
            return fault(key("name"), "\"registry\" is taken by the registry's own directory; choose another name");
        }
        if datacenters.iter().any(|other| other.name == name) {
            return fault(key("name"), format!("two datacenters have the name \"{name}\"; names are unique"));
        }
        if let Some(unknown) = form.paths.keys().find(|path| inputs.iter().all(|input| input.name != **path)) {
            let names = list(inputs.iter().map(|input| &input.name));
            return fault(key("paths"), format!("there is no [[join.input]] \"{unknown}\"; there are: {names}"));
        }
        datacenters.push(Datacenter {
            name,
            event_store: address(&key("event-store"), form.event_store)?,
            joiner: address(&key("joiner"), form.joiner)?,
            dispatcher: address(&key("dispatcher"), form.dispatcher)?,
            event_store_http: address(&key("event-store-http"), form.event_store_http)?,
            joiner_http: address(&key("joiner-http"), form.joiner_http)?,
            dispatcher_http: address(&key("dispatcher-http"), form.dispatcher_http)?,
            paths: form.paths,
        });
    }
    Ok(datacenters)
}

fn join(form: toml_form::Join, datacenters: usize) -> Checked<Join> {
    join_limits(&form)?;
    let adapter = adapter(form.adapter, form.filter)?;
    let inputs = inputs(form.input)?;
    let streams = streams(form.stream, &inputs, datacenters)?;
    Ok(Join {
        window: form.window,
        duplicate_primary: form.duplicate_primary,
        adapter,
        poll: form.poll,
        line_max: form.line_max,
        output_block: form.output_block,
        output_block_bytes: form.output_block_bytes,
        output_segment_bytes: form.output_segment_bytes,
        cache: form.cache,
        retry_min: form.retry_min,
        retry_max: form.retry_max,
        in_flight: form.in_flight,
        dispatch_in_flight: form.dispatch_in_flight,
        retry_store: form.retry_store,
        call_timeout: form.call_timeout,
        inputs,
        streams,
    })
}

fn join_limits(form: &toml_form::Join) -> Checked<()> {
    let (millisecond, day) = (Duration::from_millis(1), Duration::from_secs(86_400));
    bounded("join.window", form.window, Duration::ZERO, day * 3_650)?;
    bounded("join.poll", form.poll, millisecond, Duration::from_secs(60))?;
    bounded("join.output-block", form.output_block, Duration::ZERO, Duration::from_secs(10))?;
    bounded("join.retry-min", form.retry_min, millisecond, day)?;
    bounded("join.retry-max", form.retry_max, millisecond, day)?;
    bounded("join.call-timeout", form.call_timeout, millisecond * 100, Duration::from_secs(600))?;
    if form.retry_max < form.retry_min {
        let (min, max) = (duration_text(form.retry_min), duration_text(form.retry_max));
        return fault("join.retry-max", format!("retry-max {max} is below retry-min {min}"));
    }
    // A message between two roles holds a click and a query, and stays below 64 MiB.
    within("join.line-max", form.line_max, ByteSize(1 << 10), ByteSize::mib(16))?;
    within("join.output-block-bytes", form.output_block_bytes, ByteSize(4 << 10), ByteSize::mib(64))?;
    within("join.output-segment-bytes", form.output_segment_bytes, ByteSize(64 << 10), ByteSize::mib(16 << 10))?;
    if form.output_segment_bytes < form.output_block_bytes {
        let (segment, block) = (form.output_segment_bytes, form.output_block_bytes);
        return fault(
            "join.output-segment-bytes",
            format!("output-segment-bytes {segment} is below output-block-bytes {block}"),
        );
    }
    within("join.cache", form.cache, ByteSize(0), ByteSize::mib(1 << 20))?;
    within("join.in-flight", form.in_flight, 1, 1_000_000)?;
    within("join.dispatch-in-flight", form.dispatch_in_flight, 1, 1_000_000)?;
    within("join.retry-store", form.retry_store, 1, 100_000_000)
}

fn adapter(name: toml_form::AdapterName, filter: Option<toml_form::Filter>) -> Checked<Adapter> {
    match (name, filter) {
        (toml_form::AdapterName::Merge, None) => Ok(Adapter::Merge),
        (toml_form::AdapterName::Merge, Some(_)) => {
            fault("join.filter", "a filter is given, but adapter is \"merge\"; set adapter = \"filter\" or remove it")
        }
        (toml_form::AdapterName::Filter, None) => fault(
            "join.adapter",
            "adapter is \"filter\", but there is no [join.filter]; add one with `click`, `query` or both",
        ),
        (toml_form::AdapterName::Filter, Some(form)) => {
            let click = predicate("join.filter.click", form.click, None)?;
            let query = predicate("join.filter.query", form.query, None)?;
            if click.is_empty() && query.is_empty() {
                return fault("join.filter", "the filter has no condition; give `click`, `query` or both");
            }
            Ok(Adapter::Filter(Filter { click, query }))
        }
    }
}

fn inputs(forms: Vec<toml_form::Input>) -> Checked<Vec<Input>> {
    within("join.input", forms.len(), 1, INPUTS_MAX)?;
    let mut inputs: Vec<Input> = Vec::new();
    for (index, form) in forms.into_iter().enumerate() {
        let key = |name: &str| format!("join.input[{index}].{name}");
        let name = name(&key("name"), form.name)?;
        if inputs.iter().any(|other| other.name == name) {
            return fault(key("name"), format!("two inputs have the name \"{name}\"; names are unique"));
        }
        if form.path.as_os_str().is_empty() {
            return fault(key("path"), "the path is empty; give a file or a directory");
        }
        if let Some(other) = inputs.iter().find(|other| other.path == form.path) {
            return fault(
                key("path"),
                format!(
                    "inputs \"{}\" and \"{name}\" both have the path {}; use one input with two streams",
                    other.name,
                    form.path.display()
                ),
            );
        }
        inputs.push(Input { name, path: form.path, framing: form.framing });
    }
    Ok(inputs)
}

fn streams(forms: Vec<toml_form::Stream>, inputs: &[Input], datacenters: usize) -> Checked<Vec<Stream>> {
    within("join.stream", forms.len(), 2, STREAMS_MAX)?;
    let mut streams: Vec<Stream> = Vec::new();
    for (index, form) in forms.into_iter().enumerate() {
        let stream = stream(&format!("join.stream[{index}]"), form, inputs, datacenters)?;
        if streams.iter().any(|other| other.name == stream.name) {
            let key = format!("join.stream[{index}].name");
            return fault(key, format!("two streams have the name \"{}\"; names are unique", stream.name));
        }
        streams.push(stream);
    }
    let of_role = |role| streams.iter().filter(move |stream| stream.role() == role).map(|stream| &stream.name);
    if of_role(Role::Primary).count() == 0 {
        return fault("join.stream", "no stream has role = \"primary\"; at least one is needed");
    }
    if of_role(Role::Foreign).count() != 1 {
        let names = list(of_role(Role::Foreign));
        return fault("join.stream", format!("exactly one stream has role = \"foreign\", found: {names}"));
    }
    for (index, input) in inputs.iter().enumerate() {
        let mut users = streams.iter().enumerate().filter(|(_, stream)| stream.input == InputIndex(index));
        let Some(first) = users.next() else {
            return fault(format!("join.input[{index}].name"), format!("no stream reads the input \"{}\"", input.name));
        };
        let Some(second) = users.next() else { continue };
        let unselective = [first, second].into_iter().chain(users).find(|(_, stream)| stream.select.is_empty());
        if let Some((at, stream)) = unselective {
            return fault(
                format!("join.stream[{at}]"),
                format!(
                    "several streams read the input \"{}\", so each needs a `select`, and \"{}\" has none",
                    input.name, stream.name
                ),
            );
        }
    }
    Ok(streams)
}

fn stream(key: &str, form: toml_form::Stream, inputs: &[Input], datacenters: usize) -> Checked<Stream> {
    let name = name(&format!("{key}.name"), form.name)?;
    let Some(input) = inputs.iter().position(|input| input.name == form.input) else {
        let names = list(inputs.iter().map(|input| &input.name));
        return fault(
            format!("{key}.input"),
            format!("there is no [[join.input]] \"{}\"; there are: {names}", form.input),
        );
    };
    let framing = inputs[input].framing;
    let id = id_source(&format!("{key}.id"), &form.id, framing)?;
    if id == IdSource::Position && form.role == Role::Primary {
        return fault(format!("{key}.id"), "\"@position\" is for the foreign stream only: nothing can refer to it");
    }
    if id == IdSource::Position && 1 < datacenters {
        return fault(
            format!("{key}.id"),
            format!("ids from file positions are refused with {datacenters} datacenters: each would bill once"),
        );
    }
    let select = predicate(&format!("{key}.select"), form.select, Some(framing))?;
    let kind = match (form.role, form.reference, form.time) {
        (Role::Primary, None, None) => StreamKind::Primary,
        (Role::Primary, Some(_), _) => {
            return fault(format!("{key}.reference"), "only a foreign stream has a reference");
        }
        (Role::Primary, None, Some(_)) => return fault(format!("{key}.time"), "only a foreign stream has a time"),
        (Role::Foreign, None, _) => {
            return fault(key, format!("`reference` is missing: the field of \"{name}\" that names the query"));
        }
        (Role::Foreign, Some(_), None) => {
            return fault(key, "`time` is missing: { field = \"...\", forms = [\"rfc3339\", ...] }");
        }
        (Role::Foreign, Some(reference), Some(time)) => StreamKind::Foreign {
            reference: path(&format!("{key}.reference"), &reference)?,
            time: TimeRule::new(path(&format!("{key}.time.field"), &time.field)?, time.forms)
                .map_err(|message| Fault { key: format!("{key}.time.forms"), message })?,
        },
    };
    Ok(Stream { name, input: InputIndex(input), select, id, kind })
}

fn id_source(key: &str, text: &str, framing: Framing) -> Checked<IdSource> {
    match (text, framing) {
        ("@position", _) => Ok(IdSource::Position),
        ("@id", Framing::EsBulk) => Ok(IdSource::ActionId),
        ("@id", Framing::Ndjson) => {
            fault(key, "\"@id\" is `_id` of a bulk action line, but the input's framing is \"ndjson\"")
        }
        (text, _) if text.starts_with('@') => {
            fault(key, format!("\"{text}\" is not known; a field path, \"@id\" and \"@position\" are allowed"))
        }
        (text, _) => Ok(IdSource::Field(path(key, text)?)),
    }
}

/// A predicate; without a framing there is no action line, and `@` fields are refused.
fn predicate(key: &str, form: BTreeMap<String, Literals>, framing: Option<Framing>) -> Checked<Predicate> {
    let mut conditions = Vec::new();
    for (name, literals) in form {
        let field = Field::parse(&name).map_err(|message| Fault { key: key.to_owned(), message })?;
        if matches!(field, Field::Action(_)) && framing != Some(Framing::EsBulk) {
            return fault(
                key,
                format!("\"{name}\" is a field of a bulk action line, which is there only for framing = \"es-bulk\""),
            );
        }
        conditions.push((field, literals));
    }
    Predicate::new(conditions).map_err(|message| Fault { key: key.to_owned(), message })
}

fn path(key: &str, text: &str) -> Checked<FieldPath> {
    FieldPath::parse(text).map_err(|message| Fault { key: key.to_owned(), message })
}

fn name(key: &str, text: String) -> Checked<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let good = text.bytes().all(plain) && !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.starts_with('-');
    if good {
        return Ok(text);
    }
    fault(
        key,
        format!(
            "\"{}\" is not a name: 1 to {NAME_BYTES_MAX} ASCII letters, digits, - and _ are allowed, - not in front",
            text.escape_default()
        ),
    )
}

fn address(key: &str, text: Option<String>) -> Checked<Option<Address>> {
    let Some(text) = text else { return Ok(None) };
    let good = text.rsplit_once(':').is_some_and(|(host, port)| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let in_brackets = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host_good = match in_brackets {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(plain),
        };
        host_good && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
    });
    if good {
        return Ok(Some(Address(text)));
    }
    fault(
        key,
        format!("\"{}\" is not an address; write \"host:port\", such as \"127.0.0.1:7101\"", text.escape_default()),
    )
}

/// Two listeners of the file on one address would find out at start, one after the other.
fn addresses_differ(registry: &Registry, datacenters: &[Datacenter]) -> Checked<()> {
    let of_nodes = registry.nodes.iter().enumerate().flat_map(|(index, node)| {
        let key = |name: &str| format!("registry.node[{index}].{name}");
        [(key("peer"), &node.peer), (key("client"), &node.client), (key("http"), &node.http)]
    });
    let of_datacenters = datacenters.iter().enumerate().flat_map(|(index, it)| {
        let key = |name: &str| format!("datacenter[{index}].{name}");
        [
            (key("event-store"), &it.event_store),
            (key("joiner"), &it.joiner),
            (key("dispatcher"), &it.dispatcher),
            (key("event-store-http"), &it.event_store_http),
            (key("joiner-http"), &it.joiner_http),
            (key("dispatcher-http"), &it.dispatcher_http),
        ]
    });
    let mut seen: BTreeMap<&Address, String> = BTreeMap::new();
    for (key, address) in of_nodes.chain(of_datacenters) {
        let Some(address) = address.as_ref().filter(|address| address.port() != 0) else { continue };
        if let Some(other) = seen.insert(address, key.clone()) {
            return fault(key, format!("{address} is already the address of `{other}`; each listener needs its own"));
        }
    }
    Ok(())
}

fn within<T: PartialOrd + Display>(key: &str, value: T, min: T, max: T) -> Checked<()> {
    if min <= value && value <= max {
        return Ok(());
    }
    fault(key, format!("{value} is out of bounds; {min} to {max} are allowed"))
}

fn bounded(key: &str, value: Duration, min: Duration, max: Duration) -> Checked<()> {
    if min <= value && value <= max {
        return Ok(());
    }
    let text = duration_text;
    fault(key, format!("{} is out of bounds; {} to {} are allowed", text(value), text(min), text(max)))
}

fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.map(|name| format!("\"{name}\"")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

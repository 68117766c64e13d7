//! The configuration in force, for people.
//!
//! Invariant: every key that has a value is shown, defaults included.

use super::{Adapter, Address, Config, StreamKind};
use crate::size::duration_text;

pub(super) fn effective(config: &Config) -> Vec<(String, String)> {
    let mut pairs = Pairs(Vec::new());
    pairs.put("cluster.name", &config.cluster.name);
    pairs.put("cluster.data-dir", config.cluster.data_dir.display());
    registry(config, &mut pairs);
    join(config, &mut pairs);
    datacenters(config, &mut pairs);
    pairs.0
}

struct Pairs(Vec<(String, String)>);

impl Pairs {
    fn put(&mut self, key: impl Into<String>, value: impl ToString) {
        self.0.push((key.into(), value.to_string()));
    }

    fn put_address(&mut self, key: String, address: Option<&Address>) {
        if let Some(address) = address {
            self.put(key, address);
        }
    }
}

fn registry(config: &Config, pairs: &mut Pairs) {
    let registry = &config.registry;
    pairs.put("registry.retention", registry.retention);
    pairs.put("registry.election-timeout", duration_text(registry.election_timeout));
    pairs.put("registry.heartbeat", duration_text(registry.heartbeat));
    pairs.put("registry.window", registry.window);
    pairs.put("registry.batch-commands", registry.batch_commands);
    pairs.put("registry.journal-segment", registry.journal_segment);
    for node in &registry.nodes {
        let key = |name: &str| format!("registry.node.{}.{name}", node.id);
        pairs.put_address(key("peer"), node.peer.as_ref());
        pairs.put_address(key("client"), node.client.as_ref());
        pairs.put_address(key("http"), node.http.as_ref());
    }
}

fn join(config: &Config, pairs: &mut Pairs) {
    let join = &config.join;
    pairs.put("join.window", duration_text(join.window));
    pairs.put(
        "join.duplicate-primary",
        match join.duplicate_primary {
            super::DuplicatePrimary::First => "first",
        },
    );
    match &join.adapter {
        Adapter::Merge => pairs.put("join.adapter", "merge"),
        Adapter::Filter(filter) => {
            pairs.put("join.adapter", "filter");
            let conditions = |predicate: &crate::predicate::Predicate| predicate.lines().collect::<Vec<_>>();
            for (field, values) in conditions(&filter.click) {
                pairs.put(format!("join.filter.click.{field}"), values);
            }
            for (field, values) in conditions(&filter.query) {
                pairs.put(format!("join.filter.query.{field}"), values);
            }
        }
    }
    pairs.put("join.poll", duration_text(join.poll));
    pairs.put("join.line-max", join.line_max);
    pairs.put("join.output-block", duration_text(join.output_block));
    pairs.put("join.output-block-bytes", join.output_block_bytes);
    pairs.put("join.output-segment-bytes", join.output_segment_bytes);
    pairs.put("join.cache", join.cache);
    pairs.put("join.retry-min", duration_text(join.retry_min));
    pairs.put("join.retry-max", duration_text(join.retry_max));
    pairs.put("join.in-flight", join.in_flight);
    pairs.put("join.dispatch-in-flight", join.dispatch_in_flight);
    pairs.put("join.retry-store", join.retry_store);
    pairs.put("join.call-timeout", duration_text(join.call_timeout));
    for input in &join.inputs {
        pairs.put(format!("join.input.{}.path", input.name), input.path.display());
        pairs.put(format!("join.input.{}.framing", input.name), input.framing);
    }
    for stream in &join.streams {
        let key = |name: &str| format!("join.stream.{}.{name}", stream.name);
        pairs.put(key("role"), stream.role());
        pairs.put(key("input"), &join.inputs[stream.input.0].name);
        for (field, values) in stream.select.lines() {
            pairs.put(key(&format!("select.{field}")), values);
        }
        pairs.put(key("id"), &stream.id);
        match &stream.kind {
            StreamKind::Primary => (),
            StreamKind::Foreign { reference, time } => {
                pairs.put(key("reference"), reference);
                pairs.put(key("time.field"), time.field());
                pairs.put(key("time.forms"), time.forms_text());
            }
        }
    }
}

fn datacenters(config: &Config, pairs: &mut Pairs) {
    for datacenter in &config.datacenters {
        let key = |name: &str| format!("datacenter.{}.{name}", datacenter.name);
        pairs.put_address(key("event-store"), datacenter.event_store.as_ref());
        pairs.put_address(key("joiner"), datacenter.joiner.as_ref());
        pairs.put_address(key("dispatcher"), datacenter.dispatcher.as_ref());
        pairs.put_address(key("event-store-http"), datacenter.event_store_http.as_ref());
        pairs.put_address(key("joiner-http"), datacenter.joiner_http.as_ref());
        pairs.put_address(key("dispatcher-http"), datacenter.dispatcher_http.as_ref());
        for (input, path) in &datacenter.paths {
            pairs.put(key(&format!("paths.{input}")), path.display());
        }
    }
}

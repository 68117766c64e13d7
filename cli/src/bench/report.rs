//! What a measurement says, for machines and for people.

use std::fmt;

use photon_client::NodeStatus;
use serde::Serialize;

use crate::bench::load::{Load, Measured};

/// The result. The names are those of the JSON object.
#[derive(Debug, Serialize)]
pub struct Report {
    pub ids_per_second: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
    /// Commands by batches as the replicas count them; none when they count no batch.
    pub ids_per_slot: Option<f64>,
    pub replicas: usize,
    /// Every replica synced its journal to a disk within the window.
    pub fsync: bool,
    /// Of the node that synced most.
    pub fsyncs_per_second: f64,
    pub callers: u32,
    pub batch: u32,
    pub seconds: f64,
    /// `direct` or `coalesced`.
    pub client: &'static str,
    pub ids: u64,
    pub calls: u64,
    pub overloaded: u64,
    pub errors: u64,
    pub error_texts: Vec<String>,
}

impl Report {
    /// What was measured. `in_memory`: an fsync there writes nothing.
    pub fn new(load: &Load, is_coalesced: bool, in_memory: bool, measured: &Measured) -> Report {
        let Measured { tally, nodes, replicas } = measured;
        let seconds = load.window.as_secs_f64();
        let ids = tally.calls * u64::from(load.batch);
        let rise = |counter: fn(&NodeStatus) -> u64| {
            move |(before, after): &(NodeStatus, NodeStatus)| counter(after).saturating_sub(counter(before))
        };
        let fsyncs: Vec<_> = nodes.iter().map(rise(|status| status.fsyncs_total)).collect();
        // All replicas apply the same batches; the one that is furthest counted most of the window.
        let batches = nodes.iter().map(|node| (rise(|it| it.batches_total)(node), rise(|it| it.commands_total)(node)));
        let ids_per_slot = batches.max().filter(|(batches, _)| 0 < *batches);
        Report {
            ids_per_second: ids as f64 / seconds,
            p50_us: tally.latency_us.value_at_quantile(0.50),
            p99_us: tally.latency_us.value_at_quantile(0.99),
            max_us: tally.latency_us.max(),
            ids_per_slot: ids_per_slot.map(|(batches, commands)| commands as f64 / batches as f64),
            replicas: *replicas,
            fsync: !in_memory && fsyncs.len() == *replicas && fsyncs.iter().all(|fsyncs| 0 < *fsyncs),
            fsyncs_per_second: fsyncs.into_iter().max().unwrap_or_default() as f64 / seconds,
            callers: load.callers,
            batch: load.batch,
            seconds,
            client: if is_coalesced { "coalesced" } else { "direct" },
            ids,
            calls: tally.calls,
            overloaded: tally.overloaded,
            errors: tally.errors,
            error_texts: tally.error_texts.clone(),
        }
    }

    /// Something was measured, and nothing failed.
    pub fn is_clean(&self) -> bool {
        self.errors == 0 && 0 < self.calls
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("ids per second", format!("{:.0}", self.ids_per_second)),
            ("p50", format!("{} µs", self.p50_us)),
            ("p99", format!("{} µs", self.p99_us)),
            ("max", format!("{} µs", self.max_us)),
            ("ids per slot", self.ids_per_slot.map_or("not known".into(), |ids| format!("{ids:.1}"))),
            ("replicas", self.replicas.to_string()),
            ("fsync", if self.fsync { "yes".into() } else { "NO: not every replica synced to a disk".into() }),
            ("fsyncs per second", format!("{:.0}", self.fsyncs_per_second)),
            ("callers", format!("{}, {}", self.callers, self.client)),
            ("ids per call", self.batch.to_string()),
            ("calls", format!("{} in {} s", self.calls, self.seconds)),
            ("overloaded", self.overloaded.to_string()),
            ("errors", self.errors.to_string()),
        ];
        for (name, value) in rows {
            writeln!(f, "{:<18} {value}", format!("{name}:"))?;
        }
        self.error_texts.iter().try_for_each(|text| writeln!(f, "error: {text}"))
    }
}

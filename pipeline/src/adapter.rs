//! What is done with a pair: the part of the join that a user may replace.
//!
//! Invariant: an adapter sees payloads only. It runs on both sides of the insert: `wants` after the
//! query is found and before the id is taken, `merge` when the line is written; neither may fail.
//!
//! Not here: ids, tokens, and which pair it is.

use photon_format::config;
use photon_format::output::{JoinedLine, build_line};
use photon_format::predicate::PayloadFilter;

/// What is done with a pair.
pub trait Adapter: Send + Sync + 'static {
    /// Whether the pair is output. If not, the click ends as filtered, and its id is not taken.
    fn wants(&self, click: &[u8], query: &[u8]) -> bool;

    /// Appends the joined line: one JSON object and a newline, as the format of the output says.
    fn merge(&self, line: &JoinedLine<'_>, out: &mut Vec<u8>) {
        build_line(line, out);
    }
}

/// Every pair is output.
#[derive(Clone, Copy, Debug)]
pub struct Merge;

impl Adapter for Merge {
    fn wants(&self, _click: &[u8], _query: &[u8]) -> bool {
        true
    }
}

/// Pairs that pass the filter of the configuration are output.
#[derive(Clone, Debug)]
pub struct Filter {
    click: PayloadFilter,
    query: PayloadFilter,
}

impl Filter {
    /// The filter that the configuration describes.
    #[must_use]
    pub fn new(filter: &config::Filter) -> Filter {
        Filter { click: PayloadFilter::new(&filter.click), query: PayloadFilter::new(&filter.query) }
    }
}

impl Adapter for Filter {
    fn wants(&self, click: &[u8], query: &[u8]) -> bool {
        self.click.passes(click) && self.query.passes(query)
    }
}

/// The adapter that the configuration names.
#[must_use]
pub fn from_config(adapter: &config::Adapter) -> Box<dyn Adapter> {
    match adapter {
        config::Adapter::Merge => Box::new(Merge),
        config::Adapter::Filter(filter) => Box::new(Filter::new(filter)),
    }
}

//! What is ordinary is no warning: a cluster that starts, serves, ends and starts again.
//!
//! A binary of its own, since it listens to what the whole process logs.

// Other tests use more of it.
#[allow(dead_code)]
#[path = "../cluster/harness.rs"]
mod harness;

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::harness::Cluster;

/// Keeps what is logged as a warning or worse.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("photon") && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().target().to_owned());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_start_and_end_warn_of_nothing() {
    let warnings = Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    tracing::warn!(target: "photon_test", "it listens");
    let heard = std::mem::take(&mut *warnings.0.lock().unwrap());
    assert_eq!(heard, ["photon_test message=it listens"]);

    let mut cluster = Cluster::start(3).await;
    cluster.insert_all(0..100).await;
    cluster.stop_all().await;
    cluster.start_all().await;
    cluster.insert_all(100..200).await;
    cluster.stop_all().await;
    let heard = std::mem::take(&mut *warnings.0.lock().unwrap());
    assert!(heard.is_empty(), "{heard:#?}");
}

//! The fetch lane: queries from the event store, and the filter over each pair.
//!
//! Invariant: every order is answered. A call that fails, or does not answer in time, is `Behind`:
//! a store that does not answer has not said that a query is missing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use photon_join::joiner::{Fetched, Sequence};
use photon_proto::pipeline as wire;
use photon_proto::pipeline::event_store_client::EventStoreClient;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Channel;
use tracing::warn;

use super::engine::{self, Completion};
use super::write::Primary;
use crate::adapter::Adapter;
use crate::chaos::Delays;
use crate::convert;
use crate::life::{Outage, with_causes};

/// Calls at once. Most are short; those for ids that are not there may wait for the store.
const CALLS_MAX: usize = 64;

/// Ids in one call.
const CALL_IDS_MAX: usize = 1_000;

const _: () = assert!(CALL_IDS_MAX <= convert::CALL_ITEMS_MAX);

/// Orders taken together.
const ROUND_MAX: usize = 64;

pub(super) struct FetchItem {
    pub sequence: Sequence,
    pub reference: Bytes,
    pub click: Bytes,
}

/// What the lane works with.
pub(super) struct Fetch {
    pub store: EventStoreClient<Channel>,
    pub adapter: Arc<dyn Adapter>,
    /// How long the store may let an id wait.
    pub wait: Duration,
    pub call_timeout: Duration,
    pub attempts_max: usize,
    pub done: mpsc::Sender<Completion>,
    pub outage: Arc<Outage>,
    pub delays: Delays,
}

pub(super) fn start(fetch: Fetch) -> mpsc::Sender<Vec<FetchItem>> {
    let (orders, mut inbox) = mpsc::channel::<Vec<FetchItem>>(fetch.attempts_max);
    let fetch = Arc::new(fetch);
    tokio::spawn(async move {
        let slots = Arc::new(Semaphore::new(CALLS_MAX));
        let mut round = Vec::new();
        while 0 < inbox.recv_many(&mut round, ROUND_MAX).await {
            let mut items: Vec<FetchItem> = round.drain(..).flatten().collect();
            while !items.is_empty() {
                let rest = items.split_off(items.len().min(CALL_IDS_MAX));
                let call = std::mem::replace(&mut items, rest);
                let slot = slots.clone().acquire_owned().await.expect("never closed");
                let fetch = fetch.clone();
                tokio::spawn(async move {
                    fetch.call(call).await;
                    drop(slot);
                });
            }
        }
    });
    orders
}

/// Attempts of one call, by id: one id is asked for once, whoever wants it.
struct Wanted {
    items: Vec<Vec<FetchItem>>,
}

impl Fetch {
    async fn call(&self, items: Vec<FetchItem>) {
        self.delays.wait().await;
        let mut places: HashMap<Bytes, usize> = HashMap::new();
        let mut wanted = Wanted { items: Vec::new() };
        for item in items {
            let place = *places.entry(item.reference.clone()).or_insert(wanted.items.len());
            if place == wanted.items.len() {
                wanted.items.push(Vec::new());
            }
            wanted.items[place].push(item);
        }
        let ids = wanted.items.iter().map(|items| items[0].reference.clone()).collect();
        let began = Instant::now();
        let deadline = began + self.call_timeout;
        let answered = tokio::time::timeout_at(deadline, self.get(ids, &mut wanted)).await;
        match answered {
            Ok(Ok(())) => self.outage.end(),
            Ok(Err(status)) => {
                warn!(%status, "the event store did not answer");
                self.outage.go_on(began, format!("the event store does not answer: {}", with_causes(&status)));
            }
            Err(_) => {
                warn!("the event store did not answer within {:?}", self.call_timeout);
                self.outage.go_on(began, "the event store does not answer".into());
            }
        }
        let rest = wanted.items.into_iter().flatten().map(|item| (item.sequence, Fetched::Behind, None));
        self.report(rest.collect());
    }

    async fn get(&self, ids: Vec<Bytes>, wanted: &mut Wanted) -> Result<(), Status> {
        let wait_ms = u32::try_from(self.wait.as_millis()).unwrap_or(u32::MAX);
        let request = wire::GetRequest { ids, wait_ms };
        let mut pages = self.store.clone().get(request).await?.into_inner();
        while let Some(page) = pages.message().await? {
            self.delays.wait().await;
            let mut results = Vec::with_capacity(page.results.len());
            for wire::GetResult { index, result } in page.results {
                let place = usize::try_from(index).ok().and_then(|index| wanted.items.get_mut(index));
                let (Some(items), Some(result)) = (place, result) else { continue };
                // Answered once: what comes twice finds nobody. No await until they are reported,
                // since this future may be dropped at each.
                for item in std::mem::take(items) {
                    results.push(self.judge(&item, &result));
                }
            }
            self.report(results);
        }
        Ok(())
    }

    fn judge(&self, item: &FetchItem, result: &wire::get_result::Result) -> (Sequence, Fetched, Option<Primary>) {
        use wire::get_result::Result;
        match result {
            Result::Found(wire::PrimaryEvent { source, offset, payload }) => {
                if !self.adapter.wants(&item.click, payload) {
                    return (item.sequence, Fetched::Filtered, None);
                }
                let primary = Primary { source: source.clone(), offset: *offset, payload: payload.clone() };
                (item.sequence, Fetched::Ready, Some(primary))
            }
            Result::Missing(position) => {
                let fetched = convert::position(position).map_or(Fetched::Behind, Fetched::Missing);
                (item.sequence, fetched, None)
            }
            Result::Behind(wire::Behind { reason: _, unreadable }) => {
                let fetched = if *unreadable { Fetched::Unreadable } else { Fetched::Behind };
                (item.sequence, fetched, None)
            }
        }
    }

    fn report(&self, results: Vec<(Sequence, Fetched, Option<Primary>)>) {
        if !results.is_empty() {
            engine::report(&self.done, Completion::Fetched(results));
        }
    }
}

//! The callers: each asks, waits for the answer, and asks again.
//!
//! Invariant: every id of a run is new, and ids are given out in the order of their time, as a
//! log's ids would be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use hdrhistogram::Histogram;
use photon_client::{Client, NodeStatus, Timings, statuses};
use photon_types::{Command, EventKey, Incarnation, Outcome, Token};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench::direct::Direct;

/// How long a call through the coalescing client may take, its retries included.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Different errors that are shown.
const ERRORS_SHOWN_MAX: usize = 5;
/// The longest that a leader's "ask again after" is obeyed.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How calls reach the registry.
pub enum Way {
    /// One request for each call.
    Direct(Box<Direct>),
    /// Through the coalescing client.
    Coalesced(Client),
}

/// What to do.
pub struct Load {
    pub callers: u32,
    pub batch: u32,
    pub warm_up: Duration,
    pub window: Duration,
}

/// How one call ended.
pub enum CallEnd {
    /// Every id was new and is taken.
    Inserted,
    /// Nothing happened; ask again after.
    Overloaded { retry_after: Duration },
    /// Anything else.
    Failed(String),
}

/// What was seen by one caller, or by all.
pub struct Tally {
    /// Calls answered within the window. Each took `batch` ids.
    pub calls: u64,
    /// How long they took, in microseconds.
    pub latency_us: Histogram<u64>,
    /// Calls that failed, warm-up included.
    pub errors: u64,
    /// Answers that asked for a pause, warm-up included. Such calls are asked again.
    pub overloaded: u64,
    /// The first errors that differ.
    pub error_texts: Vec<String>,
}

/// The end of a run.
pub struct Measured {
    pub tally: Tally,
    /// Every node's counters at both ends of the window, of nodes that answered both times.
    pub nodes: Vec<(NodeStatus, NodeStatus)>,
    /// Nodes the cluster has.
    pub replicas: usize,
}

/// New ids for all callers.
struct Ids {
    run: u64,
    incarnation: Incarnation,
    time_start: u64,
    given: AtomicU64,
}

impl Tally {
    fn new() -> Tally {
        // Three digits; it grows to what is recorded, and so a thousand callers cost little.
        let latency_us = Histogram::new(3).expect("three significant digits are allowed");
        Tally { calls: 0, latency_us, errors: 0, overloaded: 0, error_texts: Vec::new() }
    }

    fn failed(&mut self, text: String) {
        self.errors += 1;
        if self.error_texts.len() < ERRORS_SHOWN_MAX && !self.error_texts.contains(&text) {
            self.error_texts.push(text);
        }
    }

    fn add(&mut self, other: Tally) {
        let Tally { calls, latency_us, errors, overloaded, error_texts } = other;
        self.calls += calls;
        self.errors += errors;
        self.overloaded += overloaded;
        self.latency_us.add(latency_us).expect("a histogram that grows takes all values");
        for text in error_texts {
            if self.error_texts.len() < ERRORS_SHOWN_MAX && !self.error_texts.contains(&text) {
                self.error_texts.push(text);
            }
        }
    }
}

impl Ids {
    fn new() -> anyhow::Result<Ids> {
        let mut incarnation = [0; 16];
        getrandom::fill(&mut incarnation).context("no random bytes")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?;
        Ok(Ids {
            run: getrandom::u64().context("no random bytes")?,
            incarnation: Incarnation(incarnation),
            time_start: u64::try_from(now.as_micros()).context("the clock stands beyond all bounds")?,
            given: AtomicU64::new(0),
        })
    }

    /// The commands of one call: ids of 28 bytes, so keys of 36.
    fn next(&self, count: u32) -> Vec<Command> {
        let first = self.given.fetch_add(count.into(), Ordering::Relaxed);
        let insert = |number: u64| {
            let id = format!("{:016x}{number:012x}", self.run);
            Command::Insert {
                key: EventKey::new(self.time_start + number, id.as_bytes()).expect("within bounds for centuries"),
                token: Token { incarnation: self.incarnation, sequence: number + 1 },
            }
        };
        (first..first + u64::from(count)).map(insert).collect()
    }
}

impl Way {
    async fn call(&self, caller: u32, commands: &[Command]) -> CallEnd {
        match self {
            Way::Direct(direct) => direct.call(caller, commands).await,
            Way::Coalesced(client) => {
                let answers = client.submit(commands.to_vec(), Instant::now() + CALL_TIMEOUT).await;
                for answer in answers {
                    match answer {
                        Ok(answer) if answer.outcome == Outcome::Inserted => (),
                        Ok(answer) => {
                            return CallEnd::Failed(format!("a new id was answered with {:?}", answer.outcome));
                        }
                        Err(error) => return CallEnd::Failed(error.to_string()),
                    }
                }
                CallEnd::Inserted
            }
        }
    }
}

/// Runs all callers through warm-up and window.
pub async fn run(load: &Load, way: Way, endpoints: &[String]) -> anyhow::Result<Measured> {
    let (way, ids) = (Arc::new(way), Arc::new(Ids::new()?));
    let begin = Instant::now() + load.warm_up;
    let end = begin + load.window;
    let mut callers = JoinSet::new();
    for caller in 0..load.callers {
        callers.spawn(call_until_end(caller, load.batch, way.clone(), ids.clone(), begin, end));
    }
    tokio::time::sleep_until(begin).await;
    let before = answering(endpoints).await;
    tokio::time::sleep_until(end).await;
    let after = answering(endpoints).await;
    let mut tally = Tally::new();
    while let Some(caller) = callers.join_next().await {
        tally.add(caller.context("a caller broke")?);
    }
    let replicas = after.iter().map(|status| status.members.len()).max().unwrap_or_default();
    let nodes = after.into_iter().filter_map(|after| {
        let before = before.iter().find(|before| before.node == after.node)?;
        Some((before.clone(), after))
    });
    Ok(Measured { tally, nodes: nodes.collect(), replicas })
}

async fn answering(endpoints: &[String]) -> Vec<NodeStatus> {
    let statuses = statuses(endpoints, &Timings::default()).await;
    statuses.into_iter().filter_map(|(_, status)| status.ok()).collect()
}

async fn call_until_end(caller: u32, batch: u32, way: Arc<Way>, ids: Arc<Ids>, begin: Instant, end: Instant) -> Tally {
    let mut tally = Tally::new();
    loop {
        let commands = ids.next(batch);
        let asked = Instant::now();
        if end <= asked {
            return tally;
        }
        // An overloaded registry gets the same ids again: the caller's time goes on.
        let answered = loop {
            match way.call(caller, &commands).await {
                CallEnd::Inserted => break Some(Instant::now()),
                CallEnd::Overloaded { retry_after } => {
                    tally.overloaded += 1;
                    if end <= Instant::now() {
                        break None;
                    }
                    tokio::time::sleep(retry_after.min(PAUSE_MAX)).await;
                }
                CallEnd::Failed(text) => {
                    tally.failed(text);
                    break None;
                }
            }
        };
        if let Some(answered) = answered
            && begin <= answered
            && answered < end
        {
            tally.calls += 1;
            let took = u64::try_from((answered - asked).as_micros()).unwrap_or(u64::MAX);
            tally.latency_us.record(took.max(1)).expect("a histogram that grows takes all values");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_new_ordered_by_time_and_36_bytes_with_it() {
        let ids = Ids::new().unwrap();
        let keys: Vec<_> = [ids.next(3), ids.next(1), ids.next(2)]
            .concat()
            .into_iter()
            .map(|command| match command {
                Command::Insert { key, token } => (key, token),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(keys.is_sorted_by(|(a, _), (b, _)| a < b));
        assert!(keys.iter().all(|(key, _)| key.id.as_bytes().len() + 8 == 36));
        assert_eq!(keys.iter().map(|(_, token)| token).collect::<HashSet<_>>().len(), 6);
    }

    #[test]
    fn tallies_add_up() {
        let mut sum = Tally::new();
        for took in [10, 2_000_000, 30_000_000] {
            let mut one = Tally::new();
            one.calls = 1;
            one.latency_us.record(took).unwrap();
            one.failed("the same".into());
            sum.add(one);
        }
        assert_eq!((sum.calls, sum.errors, sum.error_texts.len()), (3, 3, 1));
        let median = sum.latency_us.value_at_quantile(0.5);
        assert!((1_999_000..=2_001_000).contains(&median), "{median}");
    }
}

//! The insert lane: ids to the registry, answers back.
//!
//! Invariant: every order is answered, and an insert that may have happened is answered `Unknown`.

use std::sync::Arc;
use std::time::Duration;

use photon_client::{Client, ClientError};
use photon_join::joiner::{InsertAnswer, Sequence};
use photon_types::{Command, EventKey, Outcome, Token};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{error, warn};

use super::engine::{self, Completion};
use crate::chaos::Delays;
use crate::life::Outage;

pub(super) struct InsertItem {
    pub key: EventKey,
    pub token: Token,
}

pub(super) fn start(
    client: Client,
    call_timeout: Duration,
    attempts_max: usize,
    done: mpsc::Sender<Completion>,
    outage: Arc<Outage>,
    delays: Delays,
) -> mpsc::Sender<Vec<InsertItem>> {
    let (orders, mut inbox) = mpsc::channel::<Vec<InsertItem>>(attempts_max);
    tokio::spawn(async move {
        while let Some(items) = inbox.recv().await {
            // One task per batch; the client packs them together. No more batches than attempts.
            let (client, done, outage, delays) = (client.clone(), done.clone(), outage.clone(), delays.clone());
            tokio::spawn(async move {
                delays.wait().await;
                let answers = insert(&client, call_timeout, &outage, items).await;
                delays.wait().await;
                engine::report(&done, Completion::Answered(answers));
            });
        }
    });
    orders
}

async fn insert(
    client: &Client,
    call_timeout: Duration,
    outage: &Outage,
    items: Vec<InsertItem>,
) -> Vec<(Sequence, InsertAnswer)> {
    let began = Instant::now();
    let sequences: Vec<_> = items.iter().map(|item| Sequence(item.token.sequence)).collect();
    let commands = items.into_iter().map(|InsertItem { key, token }| Command::Insert { key, token }).collect();
    let results = client.submit(commands, began + call_timeout).await;
    if let Some(error) = results.iter().find_map(|result| result.as_ref().err()) {
        warn!(%error, "inserts had no answer; they are asked again");
        if results.iter().all(Result::is_err) {
            outage.go_on(began, format!("the registry does not answer: {error}"));
        }
    }
    if results.iter().any(Result::is_ok) {
        outage.end();
    }
    let answers = results.into_iter().map(|result| match result {
        Ok(answer) => match answer.outcome {
            Outcome::Inserted => InsertAnswer::Inserted,
            Outcome::Duplicate { winner } => InsertAnswer::Duplicate { winner },
            Outcome::Expired { boundary } => InsertAnswer::Expired { boundary, ambiguous: answer.ambiguous },
            other @ (Outcome::Present { .. }
            | Outcome::Absent
            | Outcome::Deleted
            | Outcome::Mismatch { .. }
            | Outcome::Forgotten
            | Outcome::KeyRulesKept
            | Outcome::KeyRulesDiffer { .. }
            | Outcome::Invalid) => {
                error!(?other, "the registry gave an insert the answer of something else");
                InsertAnswer::Unknown
            }
        },
        Err(error) => on_error(&error),
    });
    sequences.into_iter().zip(answers).collect()
}

fn on_error(error: &ClientError) -> InsertAnswer {
    match error {
        ClientError::Unknown { .. } | ClientError::NoAnswer { .. } => InsertAnswer::Unknown,
        ClientError::Unreachable { .. }
        | ClientError::Overloaded { .. }
        | ClientError::KeyRulesDiffer { .. }
        | ClientError::WrongCluster { .. }
        | ClientError::Refused { .. }
        | ClientError::Config { .. }
        | ClientError::Stopped => InsertAnswer::Refused,
    }
}

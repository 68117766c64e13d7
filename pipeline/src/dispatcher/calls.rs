//! Calls to registry and joiner: one task per batch, never per click.
//!
//! Invariant: every click of a call is reported back once: with a result, or as unanswered.

use std::time::Duration;

use bytes::Bytes;
use photon_client::{Client, ClientError};
use photon_join::missing::Position;
use photon_proto::pipeline as wire;
use photon_proto::pipeline::joiner_client::JoinerClient;
use photon_types::{EventKey, Outcome, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Channel;

use super::state::ClickId;
use crate::chaos::Delays;
use crate::convert;
use crate::life::with_causes;

/// Beyond the wait that a joiner is given: what its last answers may take on their way.
const ANSWER_MARGIN: Duration = Duration::from_secs(1);

/// What the registry knows of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    Present,
    Absent,
    Expired,
}

/// What a joiner says of a click.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JoinAnswer {
    Joined,
    Duplicate,
    Filtered,
    Expired { boundary: Option<Timestamp>, in_doubt: bool },
    Missing(Position),
    Behind,
    Unreadable,
    Busy { retry_after: Duration },
    Invalid { reason: String },
}

/// What calls report.
pub(super) enum CallReport {
    /// A call to the registry is over; the second ones could not be asked.
    Looked { results: Vec<(ClickId, Looked)>, failed: Vec<(ClickId, ClientError)> },
    /// Some results of a call; others may follow.
    Joined(Vec<(ClickId, JoinAnswer)>),
    /// A call is over; these have no result.
    JoinEnded { unanswered: Vec<ClickId>, end: JoinEnd },
}

/// How a call to a joiner ended.
pub(super) enum JoinEnd {
    /// All that it waited for.
    Waited,
    /// The joiner could not be reached, or broke off.
    Failed(String),
    /// The joiner has no room.
    Refused,
}

/// A click on its way to a joiner.
pub(super) struct JoinItem {
    pub id: ClickId,
    pub key: EventKey,
    pub reference: Bytes,
    pub payload: Bytes,
}

#[derive(Clone)]
pub(super) struct Calls {
    pub client: Client,
    pub joiner: JoinerClient<Channel>,
    pub timeout: Duration,
    pub reports: mpsc::Sender<CallReport>,
    pub delays: Delays,
}

impl Calls {
    /// Asks the registry which of these are done.
    pub fn look(&self, clicks: Vec<(ClickId, EventKey)>) {
        let calls = self.clone();
        tokio::spawn(async move {
            calls.delays.wait().await;
            let (ids, keys): (Vec<_>, Vec<_>) = clicks.into_iter().unzip();
            let answers = calls.client.lookup_many(keys, Instant::now() + calls.timeout).await;
            let (mut results, mut failed) = (Vec::new(), Vec::new());
            for (id, answer) in ids.into_iter().zip(answers) {
                match answer.and_then(|answer| of_outcome(&answer.outcome)) {
                    Ok(looked) => results.push((id, looked)),
                    Err(error) => failed.push((id, error)),
                }
            }
            calls.delays.wait().await;
            calls.report(CallReport::Looked { results, failed }).await;
        });
    }

    /// Has these joined.
    pub fn join(&self, clicks: Vec<JoinItem>) {
        let calls = self.clone();
        tokio::spawn(async move {
            calls.delays.wait().await;
            let mut open: Vec<Option<ClickId>> = clicks.iter().map(|click| Some(click.id)).collect();
            let deadline = Instant::now() + calls.timeout + ANSWER_MARGIN;
            let end = match tokio::time::timeout_at(deadline, calls.ask(clicks, &mut open)).await {
                Err(_) | Ok(Ok(())) => JoinEnd::Waited,
                Ok(Err(status)) if status.code() == tonic::Code::ResourceExhausted => JoinEnd::Refused,
                Ok(Err(status)) => JoinEnd::Failed(with_causes(&status)),
            };
            let unanswered = open.into_iter().flatten().collect();
            calls.report(CallReport::JoinEnded { unanswered, end }).await;
        });
    }

    async fn ask(&self, clicks: Vec<JoinItem>, open: &mut [Option<ClickId>]) -> Result<(), Status> {
        let to_wire = |JoinItem { id: _, key, reference, payload }| wire::Click {
            timestamp: key.timestamp.micros(),
            id: Bytes::copy_from_slice(key.id.as_bytes()),
            reference,
            payload,
        };
        let clicks = clicks.into_iter().map(to_wire).collect();
        let wait_ms = u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX);
        let request = wire::JoinRequest { clicks, wait_ms };
        let mut pages = self.joiner.clone().join(request).await?.into_inner();
        while let Some(page) = pages.message().await? {
            self.delays.wait().await;
            // First room, then the results: this future may be dropped while it waits.
            let Ok(room) = self.reports.reserve().await else { return Ok(()) };
            let mut results = Vec::with_capacity(page.results.len());
            for wire::JoinResult { index, result } in page.results {
                let place = usize::try_from(index).ok().and_then(|index| open.get_mut(index));
                let Some(result) = result.and_then(of_wire) else { continue };
                // What comes twice finds nobody.
                if let Some(id) = place.and_then(Option::take) {
                    results.push((id, result));
                }
            }
            room.send(CallReport::Joined(results));
        }
        Ok(())
    }

    async fn report(&self, report: CallReport) {
        // The engine is gone: nobody waits for this.
        let _ = self.reports.send(report).await;
    }
}

fn of_outcome(outcome: &Outcome) -> Result<Looked, ClientError> {
    match outcome {
        Outcome::Present { winner: _ } => Ok(Looked::Present),
        Outcome::Absent => Ok(Looked::Absent),
        Outcome::Expired { boundary: _ } => Ok(Looked::Expired),
        Outcome::Inserted
        | Outcome::Duplicate { .. }
        | Outcome::Deleted
        | Outcome::Mismatch { .. }
        | Outcome::Forgotten
        | Outcome::KeyRulesKept
        | Outcome::KeyRulesDiffer { .. }
        | Outcome::Invalid => {
            Err(ClientError::Unknown { cause: format!("a look-up was answered with {outcome:?}").into() })
        }
    }
}

fn of_wire(result: wire::join_result::Result) -> Option<JoinAnswer> {
    use wire::join_result::Result;
    Some(match result {
        Result::Joined(wire::Joined {}) => JoinAnswer::Joined,
        Result::Duplicate(wire::Duplicate {}) => JoinAnswer::Duplicate,
        Result::Filtered(wire::Filtered {}) => JoinAnswer::Filtered,
        Result::Expired(wire::Expired { boundary, in_doubt }) => {
            JoinAnswer::Expired { boundary: Timestamp::from_micros(boundary).ok(), in_doubt }
        }
        Result::Missing(position) => JoinAnswer::Missing(convert::position(&position)?),
        Result::Behind(wire::Behind { reason: _, unreadable: false }) => JoinAnswer::Behind,
        Result::Behind(wire::Behind { reason: _, unreadable: true }) => JoinAnswer::Unreadable,
        Result::Busy(wire::Busy { retry_after_ms }) => {
            JoinAnswer::Busy { retry_after: Duration::from_millis(u64::from(retry_after_ms)) }
        }
        Result::Invalid(wire::Invalid { reason }) => JoinAnswer::Invalid { reason },
    })
}

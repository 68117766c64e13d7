//! Questions to the registry: who has each key, and deletes on condition of a token.
//!
//! Invariant: all of them are linearizable and asked after the outputs were read; a delete names
//! the token it means, so an answer that is old by the time it is used changes nothing.

use std::time::Duration;

use photon_check::{Answer, Check};
use photon_client::{Client, ClientConfig, ClientError};
use photon_types::{ClusterId, Command, DeleteReason, EventKey, GroupId, Outcome, Slot, Token};
use tokio::time::Instant;

use crate::error::VerifyError;
use crate::options::Progress;

/// Keys in one bulk call: eight chunks of 4,000, as many as the client keeps in flight.
const LOOKUP_KEYS_MAX: usize = 32_000;

/// A connection to the registry.
pub struct Registry {
    client: Client,
    answer_within: Duration,
}

/// Where a delete was applied, or found nothing to delete: no look-up after it may be older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletedAt {
    /// The cluster.
    pub cluster: ClusterId,
    /// The replication group.
    pub group: GroupId,
    /// The slot.
    pub slot: Slot,
}

/// What became of a conditional delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The claim is gone; by this call, or by an earlier attempt or another verifier.
    Gone {
        /// Since when, at the latest.
        at: DeletedAt,
        /// This call was told so.
        by_us: bool,
    },
    /// Somebody else has it by now: judged anew by the next run.
    Changed,
    /// Below the boundary nothing is deleted: a re-injected click could never be inserted.
    Expired,
    /// No clear answer: judged anew by the next run.
    Unknown {
        /// What the client met.
        error: ClientError,
    },
}

impl Registry {
    /// Connects, and states the key rules.
    pub async fn connect(
        endpoints: &[String],
        key_rules: String,
        answer_within: Duration,
    ) -> Result<Registry, VerifyError> {
        let client = Client::connect(ClientConfig::new(endpoints.to_vec(), key_rules)).await;
        let client = client.map_err(|source| VerifyError::Registry { doing: "connecting", source })?;
        Ok(Registry { client, answer_within })
    }

    /// Asks about every key of the check, and tells it.
    pub async fn ask(&self, check: &mut Check, progress: &(dyn Fn(Progress) + Send + Sync)) -> Result<(), VerifyError> {
        let keys: Vec<EventKey> = check.keys().cloned().collect();
        let mut asked = 0;
        for some in keys.chunks(LOOKUP_KEYS_MAX) {
            let answers = self.client.lookup_many(some.iter().cloned(), Instant::now() + self.answer_within).await;
            for (key, answer) in some.iter().zip(answers) {
                let answer = answer.map_err(|source| VerifyError::Registry { doing: "looking keys up", source })?;
                check.set_answer(key, lookup_answer(answer.outcome)?);
            }
            asked += some.len() as u64;
            progress(Progress::Registry { keys: asked, keys_end: keys.len() as u64 });
        }
        Ok(())
    }

    /// Deletes each of these claims if its token still has it; answers in their order.
    pub async fn delete(&self, claims: &[(EventKey, Token)]) -> Result<Vec<Deletion>, VerifyError> {
        let commands = claims
            .iter()
            .map(|(key, token)| Command::Delete { key: key.clone(), token: *token, reason: DeleteReason::LineMissing })
            .collect();
        let answers = self.client.submit(commands, Instant::now() + self.answer_within).await;
        answers.into_iter().map(|answer| self.deletion(answer)).collect()
    }

    fn deletion(&self, answer: Result<photon_client::Answer, ClientError>) -> Result<Deletion, VerifyError> {
        let photon_client::Answer { slot, group, outcome, ambiguous: _ } = match answer {
            Ok(answer) => answer,
            Err(error) => return Ok(Deletion::Unknown { error }),
        };
        let at = DeletedAt { cluster: self.client.cluster_id(), group, slot };
        match outcome {
            Outcome::Deleted => Ok(Deletion::Gone { at, by_us: true }),
            // After an unclear attempt this may be our own delete; else another verifier's. Nobody
            // has it, so it may be re-injected either way.
            Outcome::Absent => Ok(Deletion::Gone { at, by_us: false }),
            Outcome::Mismatch { .. } => Ok(Deletion::Changed),
            Outcome::Expired { .. } => Ok(Deletion::Expired),
            Outcome::Inserted
            | Outcome::Duplicate { .. }
            | Outcome::Present { .. }
            | Outcome::Forgotten
            | Outcome::KeyRulesKept
            | Outcome::KeyRulesDiffer { .. }
            | Outcome::Invalid => Err(VerifyError::Answer { doing: "a delete", found: format!("{outcome:?}") }),
        }
    }
}

fn lookup_answer(outcome: Outcome) -> Result<Answer, VerifyError> {
    match outcome {
        Outcome::Present { winner } => Ok(Answer::Present(winner)),
        Outcome::Absent => Ok(Answer::Absent),
        Outcome::Expired { .. } => Ok(Answer::Expired),
        Outcome::Inserted
        | Outcome::Duplicate { .. }
        | Outcome::Deleted
        | Outcome::Mismatch { .. }
        | Outcome::Forgotten
        | Outcome::KeyRulesKept
        | Outcome::KeyRulesDiffer { .. }
        | Outcome::Invalid => Err(VerifyError::Answer { doing: "a look-up", found: format!("{outcome:?}") }),
    }
}

//! Brings lost clicks back.
//!
//! Invariant: a claim is deleted only if its incarnation is sealed (the judgement saw to it, with a
//! look-up younger than the seal), on condition of its token, and after it was written down that
//! this click must come back. Whatever a crash leaves half done, the next run finishes.
//!
//! Not here: what is lost (`photon-check`), and the fence (`outputs`).

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use photon_check::{Check, Loss, Pending, Place, Reach, State};
use photon_types::{EventKey, Token};

use crate::deleting::Deleting;
use crate::error::VerifyError;
use crate::input::Input;
use crate::options::Progress;
use crate::registry::{DeletedAt, Deletion, Registry};
use crate::reinject::{Comeback, Dispatchers};
use crate::report::Report;

/// Clicks that are deleted and re-injected together.
const BATCH_CLICKS: usize = 1_000;

/// A repair under way.
pub struct Repair<'a> {
    /// The registry.
    pub registry: &'a Registry,
    /// Who takes clicks back.
    pub dispatchers: Dispatchers,
    /// The input.
    pub input: &'a Input,
    /// The name of the foreign stream.
    pub stream: &'a str,
    /// Where is written down what is being deleted.
    pub directory: &'a Path,
}

/// Lost keys, by what must be done.
#[derive(Debug, Default)]
pub struct Work {
    claimed: Vec<(EventKey, Token)>,
    unclaimed: Vec<EventKey>,
}

impl Work {
    /// What a repair can do something about.
    pub fn of(lost: &[(EventKey, Place, Loss)]) -> Work {
        let mut work = Work::default();
        for (key, _, loss) in lost {
            match loss {
                Loss::LineMissing(token) => work.claimed.push((key.clone(), *token)),
                Loss::Unclaimed | Loss::QueryFound { .. } => work.unclaimed.push(key.clone()),
                Loss::Forgotten => (),
            }
        }
        work
    }

    fn len(&self) -> usize {
        self.claimed.len() + self.unclaimed.len()
    }
}

impl Repair<'_> {
    /// Works through what is lost. What could not be done is told in the report and stays lost.
    pub async fn run(
        &mut self,
        work: &Work,
        report: &mut Report,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<BTreeSet<EventKey>, VerifyError> {
        let mut brought_back = BTreeSet::new();
        if work.len() == 0 {
            return Ok(brought_back);
        }
        if let Err(why) = self.dispatchers.reach().await {
            report.repaired.unfinished.add(format!("no dispatcher takes clicks back, nothing is deleted: {why}"));
            return Ok(brought_back);
        }
        let mut done = 0;
        let mut tell = |clicks: usize| {
            done += clicks as u64;
            progress(Progress::Repair { clicks: done, clicks_end: work.len() as u64 });
        };
        for keys in work.unclaimed.chunks(BATCH_CLICKS) {
            let clicks = keys.iter().map(|key| (key.clone(), None)).collect();
            self.reinject(clicks, &mut brought_back, report).await?;
            tell(keys.len());
        }
        for claims in work.claimed.chunks(BATCH_CLICKS) {
            self.delete(claims, &mut brought_back, report).await?;
            tell(claims.len());
        }
        Ok(brought_back)
    }

    async fn delete(
        &mut self,
        claims: &[(EventKey, Token)],
        brought_back: &mut BTreeSet<EventKey>,
        report: &mut Report,
    ) -> Result<(), VerifyError> {
        let keys = claims.iter().map(|(key, _)| key.clone()).collect();
        let deleting = Deleting::begin(self.directory, keys)?;
        let mut freed = Vec::new();
        let mut left_alone = BTreeSet::new();
        for ((key, token), deletion) in claims.iter().zip(self.registry.delete(claims).await?) {
            match deletion {
                Deletion::Gone { at, by_us } => {
                    report.repaired.deleted += u64::from(by_us);
                    freed.push((key.clone(), Some(at)));
                }
                // Another verifier was faster, and somebody has it again: on its way.
                Deletion::Changed => {
                    report.ledger.lost_to_pending();
                    left_alone.insert(key);
                }
                Deletion::Expired => {
                    report.repaired.unfinished.add(format!(
                        "click {key} can not come back: it is below the boundary, claimed by token {token} without a line"
                    ));
                    left_alone.insert(key);
                }
                Deletion::Unknown { error } => {
                    report.repaired.unfinished.add(format!("the claim on click {key} by token {token}: {error}"));
                }
            }
        }
        // The others stay written down: the disk that takes them now may be lost before they are joined.
        deleting.keep(|key| !left_alone.contains(key))?;
        self.reinject(freed, brought_back, report).await
    }

    async fn reinject(
        &mut self,
        clicks: Vec<(EventKey, Option<DeletedAt>)>,
        brought_back: &mut BTreeSet<EventKey>,
        report: &mut Report,
    ) -> Result<(), VerifyError> {
        let mut comebacks = Vec::with_capacity(clicks.len());
        let mut keys = Vec::with_capacity(clicks.len());
        for (key, deleted_at) in clicks {
            match self.comeback(&key, deleted_at)? {
                Some(comeback) => {
                    comebacks.push(comeback);
                    keys.push(key);
                }
                None => report.repaired.unfinished.add(format!(
                    "click {key} names no query: it can not come back, and no dispatcher has recorded it as a dead letter"
                )),
            }
        }
        let (done, why) = match self.dispatchers.reinject(&comebacks).await {
            Ok(()) => (keys.len(), None),
            Err((done, why)) => (done, Some(why)),
        };
        let open = keys.len() - done;
        for key in keys.into_iter().take(done) {
            report.ledger.lost_to_pending();
            report.repaired.reinjected += 1;
            brought_back.insert(key);
        }
        if let Some(why) = &why {
            report.repaired.unfinished.add(format!("{open} clicks were not taken back: {why}"));
        }
        Ok(())
    }

    /// The click as it comes back; none if it names no query, so that nothing could be done with it.
    fn comeback(&self, key: &EventKey, deleted_at: Option<DeletedAt>) -> Result<Option<Comeback>, VerifyError> {
        let mut clicks = self.input.clicks(key)?;
        // Of several records with this key, one whose query was found.
        clicks.sort_by_key(|(_, click)| !click.reference().is_some_and(|reference| self.input.has_query(reference)));
        for (place, click) in clicks {
            let (Some(reference), Some(payload)) = (click.reference(), &click.payload) else { continue };
            return Ok(Some(Comeback {
                timestamp: key.timestamp.micros(),
                id: Bytes::copy_from_slice(key.id.as_bytes()),
                reference: Bytes::copy_from_slice(reference.as_bytes()),
                stream: self.stream.to_owned(),
                source: self.input.name(place).to_owned(),
                offset: place.offset,
                payload: payload.clone(),
                deleted_at,
            }));
        }
        Ok(None)
    }
}

/// Removes what earlier runs wrote down, where every click of it is cared for by now.
pub fn finish_left(
    left: Vec<Deleting>,
    check: &Check,
    reach: Reach,
    brought_back: &BTreeSet<EventKey>,
) -> Result<(), VerifyError> {
    let is_cared_for = |key: &EventKey| match check.state(key, reach) {
        // Once more; a dispatcher that ends it again now is believed, else there were no end.
        _ if brought_back.contains(key) => true,
        // In a retry store, or not judged yet.
        Some(State::Pending(Pending::NotSettled | Pending::NotAsked)) => false,
        Some(State::Lost(Loss::Unclaimed | Loss::QueryFound { .. } | Loss::LineMissing(_))) => false,
        // Claimed again, in the output, or beyond what a verifier can do.
        Some(State::Joined | State::Ended(_) | State::Held(_)) => true,
        Some(State::Pending(Pending::InFlight(_) | Pending::NotFenced(_)) | State::Lost(Loss::Forgotten)) => true,
        // Its source is gone.
        None => true,
    };
    left.into_iter().try_for_each(|deleting| Ok(deleting.keep(|key| !is_cared_for(key))?))
}

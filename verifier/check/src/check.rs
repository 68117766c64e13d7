//! The judgement.
//!
//! Invariant: joined is the only record that ends the judgement. A recorded end is believed only
//! if the registry has no claim, "unjoinable" only if nobody has seen the query; and a claim is
//! called lost only on the evidence of a seal.
//!
//! Not here: the order in which the caller reads. Ends of sources, cursors and retry stores,
//! outputs, registry: an answer that is older than the outputs would make lost clicks of joined
//! ones.

use std::collections::BTreeMap;

use photon_types::{EventKey, Holder, Incarnation, Token};

use crate::finding::{Finding, Findings};
use crate::input::{Answer, Click, End, EndState, Evidence, Line, LinePlace, Place, Progress};
use crate::ledger::{Held, Ledger, Loss, Pending, State};

/// How many findings of one kind are kept with their evidence.
pub const FINDINGS_KEPT_MAX: u64 = 100;

/// Whether every configured output could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every one.
    Whole,
    /// At least one datacenter's output is missing.
    Partial,
}

/// Everything that was read about the input, the outputs and the registry.
#[derive(Clone, Debug, Default)]
pub struct Check {
    keys: BTreeMap<EventKey, Facts>,
    unkeyed: BTreeMap<Place, Unkeyed>,
    evidence: BTreeMap<Incarnation, Evidence>,
}

/// What is known about one key.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// The first record with this key; none while only lines or ends name it.
    click: Option<(Place, Progress)>,
    /// Found behind the end of the judged input: explains a line, is not judged.
    late: bool,
    /// A verifier deleted its claim, or was about to, and did not come to re-inject it.
    deleted: bool,
    /// Where the query that it names was seen in the input.
    query: Option<Place>,
    ends: Ends,
    lines: Vec<(LinePlace, Token)>,
    answer: Option<Answer>,
}

/// A set of end states.
#[derive(Clone, Copy, Debug, Default)]
struct Ends(u8);

impl Ends {
    fn insert(&mut self, state: EndState) {
        self.0 |= 1 << state as u8;
    }

    fn first(self) -> Option<EndState> {
        EndState::ALL.into_iter().find(|state| self.0 & (1 << *state as u8) != 0)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Unkeyed {
    /// None while only an end names it.
    progress: Option<Progress>,
    ended: bool,
}

/// What [`Check::judge`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Every distinct key, by its state.
    pub ledger: Ledger,
    /// What is wrong.
    pub findings: Findings,
    /// Every lost key, in the order of keys: what a repair works through.
    pub lost: Vec<(EventKey, Place, Loss)>,
    /// How many keys wait for each incarnation, and why.
    pub waiting: BTreeMap<Incarnation, Waiting>,
}

/// Keys that are neither joined nor lost because of one incarnation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// It lives and may still write them.
    pub in_flight: u64,
    /// It is dead and not fenced.
    pub not_fenced: u64,
    /// Its output can not be read or believed.
    pub held: u64,
}

impl Check {
    /// Nothing read yet.
    #[must_use]
    pub fn new() -> Check {
        Check::default()
    }

    /// A record of the input. The same key at two places counts once, and is settled when every
    /// record of it is.
    pub fn add_click(&mut self, click: Click) {
        let Click { place, key, progress } = click;
        let Some(key) = key else {
            self.unkeyed.entry(place).or_default().progress = Some(progress);
            return;
        };
        let facts = self.keys.entry(key).or_default();
        facts.click = Some(match facts.click {
            None => (place, progress),
            Some((first, before)) => (first.min(place), both_settled(before, progress)),
        });
    }

    /// A click behind the end of the judged input. It explains a line and is not counted.
    pub fn add_late_click(&mut self, key: EventKey) {
        self.keys.entry(key).or_default().late = true;
    }

    /// A recorded end. Ends of clicks behind the end of the judged input are not counted.
    pub fn add_end(&mut self, end: End) {
        let End { place, key, state } = end;
        match key {
            Some(key) => self.keys.entry(key).or_default().ends.insert(state),
            None => self.unkeyed.entry(place).or_default().ended = true,
        }
    }

    /// A click whose claim a verifier deleted, or was about to, and then did not re-inject: ends
    /// that were recorded for it are older than the claim and no longer its end.
    pub fn add_deleted(&mut self, key: EventKey) {
        self.keys.entry(key).or_default().deleted = true;
    }

    /// Keys that some dispatcher recorded as unjoinable: those whose query is worth looking for.
    pub fn unjoinable(&self) -> impl Iterator<Item = &EventKey> {
        let is_one = |facts: &Facts| facts.click.is_some() && facts.ends.first() == Some(EndState::Unjoinable);
        self.keys.iter().filter(move |(_, facts)| is_one(facts)).map(|(key, _)| key)
    }

    /// The query that a click names is in the input: whoever recorded it as unjoinable had not seen
    /// the query, and that end is not believed.
    pub fn set_query(&mut self, key: &EventKey, query: Place) {
        if let Some(facts) = self.keys.get_mut(key) {
            facts.query = Some(query);
        }
    }

    /// What is known about an incarnation. Two different directories of one incarnation are no
    /// evidence: whoever finds the second one says [`Evidence::Damaged`].
    pub fn set_evidence(&mut self, incarnation: Incarnation, evidence: Evidence) {
        self.evidence.insert(incarnation, evidence);
    }

    /// What was said about an incarnation; none if it was never fed in.
    #[must_use]
    pub fn evidence(&self, incarnation: Incarnation) -> Option<Evidence> {
        self.evidence.get(&incarnation).copied()
    }

    /// A counted line. It counts only while its incarnation's evidence does.
    pub fn add_line(&mut self, line: Line) {
        let Line { place, key, token } = line;
        self.keys.entry(key).or_default().lines.push((place, token));
    }

    /// Every key that the registry must be asked about: those of clicks and those of lines.
    pub fn keys(&self) -> impl Iterator<Item = &EventKey> {
        self.keys.iter().filter(|(_, facts)| facts.click.is_some() || !facts.lines.is_empty()).map(|(key, _)| key)
    }

    /// Keys of lines that no click explains yet.
    pub fn unexplained(&self) -> impl Iterator<Item = &EventKey> {
        let unexplained = |facts: &Facts| facts.click.is_none() && !facts.late && !facts.lines.is_empty();
        self.keys.iter().filter(move |(_, facts)| unexplained(facts)).map(|(key, _)| key)
    }

    /// The registry's answer, given after every line was fed in.
    pub fn set_answer(&mut self, key: &EventKey, answer: Answer) {
        if let Some(facts) = self.keys.get_mut(key) {
            facts.answer = Some(answer);
        }
    }

    /// The state of a key of the input.
    #[must_use]
    pub fn state(&self, key: &EventKey, reach: Reach) -> Option<State> {
        let facts = self.keys.get(key)?;
        let (_, progress) = facts.click?;
        Some(self.state_of(facts, progress, reach))
    }

    /// Judges every key.
    ///
    /// # Panics
    /// Never: the ledger is counted up key by key, and the assertion says so.
    #[must_use]
    pub fn judge(&self, reach: Reach) -> Judgement {
        let mut judgement = Judgement::default();
        for (key, facts) in &self.keys {
            self.judge_lines(key, facts, &mut judgement);
            if let Some((place, progress)) = facts.click {
                let state = self.state_of(facts, progress, reach);
                judgement.count(key, place, state);
            }
        }
        for (place, unkeyed) in &self.unkeyed {
            let Some(progress) = unkeyed.progress else { continue };
            judgement.ledger.unkeyed += 1;
            if progress == Progress::Settled && !unkeyed.ended {
                judgement.find(Finding::UnkeyedWithoutEnd { place: *place });
            }
        }
        assert_eq!(judgement.ledger.check(), Ok(()));
        judgement
    }

    fn state_of(&self, facts: &Facts, progress: Progress, reach: Reach) -> State {
        if self.counted_lines(facts).next().is_some() {
            return State::Joined;
        }
        let end = if facts.deleted { None } else { facts.ends.first() };
        // An end that the input itself contradicts is none.
        let doubt = match end {
            Some(EndState::Unjoinable) => facts.query.map(|query| Loss::QueryFound { query }),
            Some(EndState::Filtered | EndState::Expired | EndState::DeadLettered) | None => None,
        };
        let end = if doubt.is_some() { None } else { end };
        match (facts.answer, end, progress) {
            (None, _, _) => State::Pending(Pending::NotAsked),
            (Some(Answer::Present(holder)), _, _) => self.state_of_claimed(holder, progress, reach),
            // Nobody has it and nobody ever will: recorded or not, that is its end.
            (Some(Answer::Expired), end, _) => State::Ended(end.unwrap_or(EndState::Expired)),
            (Some(Answer::Absent), Some(end), _) => State::Ended(end),
            (Some(Answer::Absent), None, Progress::Unsettled) => State::Pending(Pending::NotSettled),
            (Some(Answer::Absent), None, Progress::Settled) => State::Lost(doubt.unwrap_or(Loss::Unclaimed)),
        }
    }

    /// A claimed key without a counted line. Recorded ends do not matter: they were written before
    /// the claim, or beside it.
    fn state_of_claimed(&self, holder: Holder, progress: Progress, reach: Reach) -> State {
        if progress == Progress::Unsettled {
            return State::Pending(Pending::NotSettled);
        }
        let token = match holder {
            Holder::Token(token) => token,
            Holder::Forgotten if self.is_evidence_whole(reach) => return State::Lost(Loss::Forgotten),
            Holder::Forgotten => return State::Held(Held::Forgotten),
        };
        let incarnation = token.incarnation;
        match self.evidence.get(&incarnation) {
            Some(Evidence::Sealed) => State::Lost(Loss::LineMissing(token)),
            Some(Evidence::Busy) => State::Pending(Pending::InFlight(incarnation)),
            Some(Evidence::Free | Evidence::NamedDead) => State::Pending(Pending::NotFenced(incarnation)),
            Some(Evidence::Damaged) => State::Held(Held::Damaged(incarnation)),
            None => State::Held(Held::NoDirectory(incarnation)),
        }
    }

    fn is_evidence_whole(&self, reach: Reach) -> bool {
        reach == Reach::Whole && !self.evidence.values().any(|evidence| *evidence == Evidence::Damaged)
    }

    /// Only complete evidence counts: lines of a damaged or unknown directory do not.
    fn counted_lines<'a>(&'a self, facts: &'a Facts) -> impl Iterator<Item = (LinePlace, Token)> + 'a {
        facts.lines.iter().copied().filter(|(line, _)| match self.evidence.get(&line.incarnation) {
            Some(Evidence::Sealed | Evidence::Busy | Evidence::Free | Evidence::NamedDead) => true,
            Some(Evidence::Damaged) | None => false,
        })
    }

    fn judge_lines(&self, key: &EventKey, facts: &Facts, judgement: &mut Judgement) {
        let mut counted = 0;
        for (line, token) in self.counted_lines(facts) {
            counted += 1;
            if facts.click.is_none() && !facts.late {
                judgement.find(Finding::NoClick { key: key.clone(), line, token });
            }
            if token.incarnation != line.incarnation {
                judgement.find(Finding::ForeignToken { key: key.clone(), line, token });
            }
            match facts.answer {
                // A row below `drop_end` is gone, and the line stays.
                None | Some(Answer::Expired | Answer::Present(Holder::Forgotten)) => (),
                Some(Answer::Present(Holder::Token(winner))) if winner == token => (),
                Some(answer @ (Answer::Present(Holder::Token(_)) | Answer::Absent)) => {
                    judgement.find(Finding::TokenDiffers { key: key.clone(), line, token, answer });
                }
            }
        }
        if 1 < counted {
            judgement.ledger.duplicates += counted - 1;
            let lines = self.counted_lines(facts).collect();
            judgement.find(Finding::Duplicate { key: key.clone(), lines });
        }
    }
}

impl Judgement {
    fn find(&mut self, finding: Finding) {
        self.findings.add(finding, FINDINGS_KEPT_MAX);
    }

    fn count(&mut self, key: &EventKey, place: Place, state: State) {
        self.ledger.count(state);
        match state {
            State::Joined | State::Ended(_) | State::Pending(Pending::NotSettled | Pending::NotAsked) => (),
            State::Pending(Pending::InFlight(incarnation)) => {
                self.waiting.entry(incarnation).or_default().in_flight += 1;
            }
            State::Pending(Pending::NotFenced(incarnation)) => {
                self.waiting.entry(incarnation).or_default().not_fenced += 1;
            }
            State::Held(held) => {
                if let Held::NoDirectory(incarnation) | Held::Damaged(incarnation) = held {
                    self.waiting.entry(incarnation).or_default().held += 1;
                }
                self.find(Finding::Held { key: key.clone(), place, held });
            }
            State::Lost(loss) => {
                self.lost.push((key.clone(), place, loss));
                self.find(Finding::Lost { key: key.clone(), place, loss });
            }
        }
    }
}

fn both_settled(one: Progress, other: Progress) -> Progress {
    match (one, other) {
        (Progress::Settled, Progress::Settled) => Progress::Settled,
        (Progress::Unsettled, _) | (_, Progress::Unsettled) => Progress::Unsettled,
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;

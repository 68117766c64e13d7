//! Is a history of the registry linearizable? Linear in time, since ids are independent
//! write-once registers; a general checker is exponential.
//!
//! Invariant: a history that some order of effects explains is never refused. The model is that of
//! a client that repeats itself over a network that delays: an insert, delete or forget that was
//! called may take effect at any later moment and any number of times, while an answer must be true
//! at one moment between its call and its return. `Unknown` asks for nothing.
//!
//! How: let an answer *demand* that a token holds the id at one moment of its interval. A token
//! that won keeps the id at least until somebody calls a delete of it. So the earliest return among
//! its demands, if before the first such delete, opens a *reign*: from there until that delete the
//! id is in this token's hand, whatever else happened. Then it is enough that reigns do not
//! overlap, and that no other demand lies wholly inside somebody else's reign.
//!
//! Not here: keys of commands other than inserts, look-ups, deletes and forgets; and the bound of
//! `Expired` between calls.

use std::collections::BTreeMap;
use std::fmt;

use photon_types::{Command, EventKey, Holder, Outcome, Token};

/// One call of one client. Times are of one clock, which may be a counter of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// What was asked.
    pub command: Command,
    /// When it was called.
    pub called: u64,
    /// When and with what it returned; none for `Unknown` and for a call that never returned.
    pub answer: Option<(u64, Outcome)>,
}

/// A history that nothing explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An outcome that this command can not have.
    Outcome {
        /// The call.
        op: Op,
    },
    /// An answer names a holder that nobody had asked to become one.
    FromNowhere {
        /// The id.
        key: EventKey,
        /// The holder named.
        holder: Holder,
        /// When it was named.
        returned: u64,
    },
    /// Two tokens had the id at one moment.
    TwoWinners {
        /// The id.
        key: EventKey,
        /// Who had it first, from when until when at least.
        first: Reign,
        /// Who had it while the first one did.
        second: Reign,
    },
    /// An answer that was true at no moment between its call and its return.
    Stale {
        /// The id.
        key: EventKey,
        /// What was claimed; none is `Absent`.
        claimed: Option<Holder>,
        /// When it was called.
        called: u64,
        /// When it returned.
        returned: u64,
        /// Who had the id all the while.
        reign: Reign,
    },
}

/// A time in which a holder had the id for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reign {
    /// Who.
    pub holder: Holder,
    /// From here at the latest.
    pub from: u64,
    /// Until here at the earliest; `u64::MAX` is for ever.
    pub until: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Outcome { op } => write!(f, "an outcome that the command can not have: {op:?}"),
            Violation::FromNowhere { key, holder, returned } => {
                write!(f, "id {key}: an answer returned at {returned} names {holder:?}, which nobody had asked for")
            }
            Violation::TwoWinners { key, first, second } => {
                write!(f, "id {key} has two winners: {first}, and {second}")
            }
            Violation::Stale { key, claimed, called, returned, reign } => write!(
                f,
                "id {key}: an answer says {claimed:?}, called at {called} and returned at {returned}, but {reign}"
            ),
        }
    }
}

impl fmt::Display for Reign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} had it from {} until {}", self.holder, self.from, self.until)
    }
}

impl std::error::Error for Violation {}

/// Checks a whole history.
///
/// # Errors
/// The first violation, in the order of keys.
pub fn check(history: &[Op]) -> Result<(), Violation> {
    let mut registers: BTreeMap<&EventKey, Register> = BTreeMap::new();
    for op in history {
        let (Command::Insert { key, .. }
        | Command::Lookup { key }
        | Command::Delete { key, .. }
        | Command::ForgetToken { key, .. }) = &op.command
        else {
            continue;
        };
        registers.entry(key).or_default().add(op)?;
    }
    registers.into_iter().try_for_each(|(key, register)| register.check(key))
}

/// A moment within the interval at which something must have been true.
#[derive(Clone, Copy, Debug)]
struct Demand {
    called: u64,
    returned: u64,
}

/// What is known of one holder of one id.
#[derive(Clone, Debug)]
struct Claim {
    /// The first call that could make it the holder.
    asked: Option<u64>,
    /// The first call that could end it.
    ended: u64,
    demands: Vec<Demand>,
}

impl Default for Claim {
    fn default() -> Claim {
        Claim { asked: None, ended: u64::MAX, demands: Vec::new() }
    }
}

#[derive(Debug, Default)]
struct Register {
    tokens: BTreeMap<Token, Claim>,
    forgotten: Claim,
    absent: Vec<Demand>,
}

impl Register {
    fn add(&mut self, op: &Op) -> Result<(), Violation> {
        let earlier = |bound: Option<u64>| Some(bound.map_or(op.called, |bound| bound.min(op.called)));
        match &op.command {
            Command::Insert { token, .. } => {
                let claim = self.tokens.entry(*token).or_default();
                claim.asked = earlier(claim.asked);
            }
            Command::Delete { token, .. } => {
                let claim = self.tokens.entry(*token).or_default();
                claim.ended = claim.ended.min(op.called);
            }
            Command::ForgetToken { .. } => self.forgotten.asked = earlier(self.forgotten.asked),
            Command::Lookup { .. } | Command::StateKeyRules { .. } => (),
        }
        let Some((returned, outcome)) = &op.answer else { return Ok(()) };
        let demand = Demand { called: op.called, returned: *returned };
        let refuse = || Err(Violation::Outcome { op: op.clone() });
        match (&op.command, outcome) {
            (Command::Insert { token, .. }, Outcome::Inserted) | (Command::Delete { token, .. }, Outcome::Deleted) => {
                self.demand(Holder::Token(*token), demand)
            }
            (Command::ForgetToken { .. }, Outcome::Forgotten) => self.demand(Holder::Forgotten, demand),
            (Command::Insert { token, .. }, Outcome::Duplicate { winner })
            | (Command::Delete { token, .. } | Command::ForgetToken { token, .. }, Outcome::Mismatch { winner }) => {
                if *winner == Holder::Token(*token) {
                    return refuse();
                }
                self.demand(*winner, demand);
            }
            (Command::Lookup { .. }, Outcome::Present { winner }) => self.demand(*winner, demand),
            (Command::Lookup { .. } | Command::Delete { .. } | Command::ForgetToken { .. }, Outcome::Absent) => {
                self.absent.push(demand);
            }
            (
                Command::Insert { key, .. }
                | Command::Lookup { key }
                | Command::Delete { key, .. }
                | Command::ForgetToken { key, .. },
                Outcome::Expired { boundary },
            ) => {
                if *boundary <= key.timestamp {
                    return refuse();
                }
            }
            (
                Command::Insert { .. }
                | Command::Lookup { .. }
                | Command::Delete { .. }
                | Command::ForgetToken { .. }
                | Command::StateKeyRules { .. },
                Outcome::Inserted
                | Outcome::Duplicate { .. }
                | Outcome::Expired { .. }
                | Outcome::Present { .. }
                | Outcome::Absent
                | Outcome::Deleted
                | Outcome::Mismatch { .. }
                | Outcome::Forgotten
                | Outcome::KeyRulesKept
                | Outcome::KeyRulesDiffer { .. }
                | Outcome::Invalid,
            ) => return refuse(),
        }
        Ok(())
    }

    fn demand(&mut self, holder: Holder, demand: Demand) {
        match holder {
            Holder::Token(token) => self.tokens.entry(token).or_default().demands.push(demand),
            Holder::Forgotten => self.forgotten.demands.push(demand),
        }
    }

    fn check(mut self, key: &EventKey) -> Result<(), Violation> {
        self.check_asked(key)?;
        let reigns = self.reigns();
        for pair in reigns.windows(2) {
            if pair[1].from < pair[0].until {
                return Err(Violation::TwoWinners { key: key.clone(), first: pair[0], second: pair[1] });
            }
        }
        for demand in &self.absent {
            check_outside(key, &reigns, None, *demand, *demand)?;
        }
        for (holder, claim) in self.claims() {
            let reign = reigns.iter().find(|reign| reign.holder == holder);
            for demand in &claim.demands {
                if reign.is_some_and(|reign| demand.called <= reign.until) {
                    continue; // It returned after the reign began: the earliest return began it.
                }
                check_outside(key, &reigns, Some(holder), self.outside_reign(holder, claim, *demand), *demand)?;
            }
        }
        Ok(())
    }

    /// Outside a reign of its own, a token has the id only where it may come and go: behind a
    /// delete, or for a moment just before the mark that replaced it was first seen.
    fn outside_reign(&self, holder: Holder, claim: &Claim, demand: Demand) -> Demand {
        let mark_seen = match holder {
            Holder::Token(_) => self.mark_seen(),
            Holder::Forgotten => None,
        };
        match mark_seen {
            // Behind the mark there is nothing: left as it is, the demand lies in the mark's reign.
            Some(seen) if seen < demand.called => demand,
            Some(seen) => {
                Demand { called: demand.called.max(claim.ended.min(seen)), returned: demand.returned.min(seen) }
            }
            None => Demand { called: demand.called.max(claim.ended), ..demand },
        }
    }

    fn mark_seen(&self) -> Option<u64> {
        self.forgotten.demands.iter().map(|demand| demand.returned).min()
    }

    fn claims(&self) -> impl Iterator<Item = (Holder, &Claim)> {
        let tokens = self.tokens.iter().map(|(token, claim)| (Holder::Token(*token), claim));
        tokens.chain([(Holder::Forgotten, &self.forgotten)])
    }

    /// Nobody is named before somebody asked for it. Shortens each demand to after that call.
    fn check_asked(&mut self, key: &EventKey) -> Result<(), Violation> {
        let forgotten = &mut self.forgotten;
        let tokens = self.tokens.iter_mut().map(|(token, claim)| (Holder::Token(*token), claim));
        for (holder, claim) in tokens.chain([(Holder::Forgotten, forgotten)]) {
            for demand in &mut claim.demands {
                match claim.asked {
                    Some(asked) if asked <= demand.returned => demand.called = demand.called.max(asked),
                    Some(_) | None => {
                        return Err(Violation::FromNowhere { key: key.clone(), holder, returned: demand.returned });
                    }
                }
            }
        }
        Ok(())
    }

    /// The reigns in the order in which they begin. Where a mark was seen, the token's reign ends.
    fn reigns(&self) -> Vec<Reign> {
        let mark_seen = self.mark_seen();
        let mut reigns: Vec<Reign> = self
            .claims()
            .filter_map(|(holder, claim)| {
                let from = claim.demands.iter().map(|demand| demand.returned).min()?;
                let until = match (holder, mark_seen) {
                    (Holder::Token(_), Some(seen)) => claim.ended.min(seen),
                    (Holder::Token(_), None) | (Holder::Forgotten, _) => claim.ended,
                };
                (from < until).then_some(Reign { holder, from, until })
            })
            .collect();
        reigns.sort_by_key(|reign| (reign.from, reign.until));
        reigns
    }
}

/// Reigns are disjoint and sorted: a demand is inside one of them only if it is inside the last
/// that began before it.
fn check_outside(
    key: &EventKey,
    reigns: &[Reign],
    claimed: Option<Holder>,
    demand: Demand,
    said: Demand,
) -> Result<(), Violation> {
    let begun = reigns.partition_point(|reign| reign.from < demand.called);
    let Some(reign) = begun.checked_sub(1).map(|last| reigns[last]) else { return Ok(()) };
    if demand.returned < reign.until && Some(reign.holder) != claimed {
        let Demand { called, returned } = said;
        return Err(Violation::Stale { key: key.clone(), claimed, called, returned, reign });
    }
    Ok(())
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;

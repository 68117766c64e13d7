//! The two ledgers: by key over all datacenters, and by record for one datacenter.
//!
//! Invariant: `Ledger` is only counted up by [`Ledger::count`], one key and one state at a time,
//! so it adds up by construction; [`Ledger::check`] says so all the same.

use std::fmt;

use photon_types::{Incarnation, Token};

use crate::input::{EndState, Place};

/// The state of a key: the first of these that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A counted line of the joined log has it.
    Joined,
    /// It has no line and never will: a dispatcher recorded why, and the registry has no claim.
    Ended(EndState),
    /// Somebody may still bring it to its end.
    Pending(Pending),
    /// It is claimed, and whether the line exists can not be known.
    Held(Held),
    /// It is settled, and nothing brings it to an end without a repair.
    Lost(Loss),
}

/// Why a key is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// A dispatcher has not passed it yet, or keeps it for a retry.
    NotSettled,
    /// Claimed by an incarnation that lives, or seems to.
    InFlight(Incarnation),
    /// Claimed by an incarnation that is dead and not fenced: `--repair` fences it.
    NotFenced(Incarnation),
    /// The registry was not asked.
    NotAsked,
}

/// Why a key is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// No configured output has a directory of the claiming incarnation.
    NoDirectory(Incarnation),
    /// The claiming incarnation's directory can not be believed.
    Damaged(Incarnation),
    /// The claim's token is forgotten and not every output could be read.
    Forgotten,
}

/// How a key was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A sealed incarnation claimed it and wrote no line: delete on this token, then re-inject.
    LineMissing(Token),
    /// The registry has no claim and no dispatcher recorded an end: re-inject.
    Unclaimed,
    /// The registry has no claim and a dispatcher recorded it as unjoinable, but the query that it
    /// names is in the input: re-inject.
    QueryFound {
        /// Where the query lies.
        query: Place,
    },
    /// Claimed, token forgotten, no line in any output: only an operator repairs it.
    Forgotten,
}

/// By key, over all datacenters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Distinct keys of the input.
    pub keys: u64,
    /// Keys with a counted line.
    pub joined: u64,
    /// Keys that the adapter filtered.
    pub filtered: u64,
    /// Keys without a primary record.
    pub unjoinable: u64,
    /// Keys below the boundary.
    pub expired: u64,
    /// Keys of clicks that could not be understood.
    pub dead_lettered: u64,
    /// Keys still on their way.
    pub pending: u64,
    /// Keys that can not be judged.
    pub held: u64,
    /// Keys that nothing brings to an end without a repair.
    pub lost: u64,
    /// Counted lines beyond the first of their key. Beside the sum: their keys are joined.
    pub duplicates: u64,
    /// Records without a key, by source and offset. Beside the sum.
    pub unkeyed: u64,
}

impl Ledger {
    /// The columns in the order of the ledger, with their names in JSON.
    #[must_use]
    pub fn columns(&self) -> [(&'static str, u64); 11] {
        let Ledger {
            keys,
            joined,
            filtered,
            unjoinable,
            expired,
            dead_lettered,
            pending,
            held,
            lost,
            duplicates,
            unkeyed,
        } = *self;
        [
            ("keys", keys),
            ("joined", joined),
            ("filtered", filtered),
            ("unjoinable", unjoinable),
            ("expired", expired),
            ("dead_lettered", dead_lettered),
            ("pending", pending),
            ("held", held),
            ("lost", lost),
            ("duplicates", duplicates),
            ("unkeyed", unkeyed),
        ]
    }

    /// Counts one key.
    pub fn count(&mut self, state: State) {
        self.keys += 1;
        *self.column(state) += 1;
    }

    /// A lost key that is on its way again, by a repair or because somebody has claimed it anew.
    ///
    /// # Panics
    /// When no key is lost.
    pub fn lost_to_pending(&mut self) {
        assert!(0 < self.lost, "a key on its way again was lost before");
        self.lost -= 1;
        self.pending += 1;
    }

    /// Whether the states add up to the keys.
    ///
    /// # Errors
    /// Both sides.
    pub fn check(&self) -> Result<(), Imbalance> {
        let states = [
            self.joined,
            self.filtered,
            self.unjoinable,
            self.expired,
            self.dead_lettered,
            self.pending,
            self.held,
            self.lost,
        ];
        Imbalance::unless_equal(self.keys.into(), sum(&states))
    }

    fn column(&mut self, state: State) -> &mut u64 {
        match state {
            State::Joined => &mut self.joined,
            State::Ended(EndState::Filtered) => &mut self.filtered,
            State::Ended(EndState::Unjoinable) => &mut self.unjoinable,
            State::Ended(EndState::Expired) => &mut self.expired,
            State::Ended(EndState::DeadLettered) => &mut self.dead_lettered,
            State::Pending(_) => &mut self.pending,
            State::Held(_) => &mut self.held,
            State::Lost(_) => &mut self.lost,
        }
    }
}

/// By record, for one datacenter, each record by the answer that let the cursor pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatacenterLedger {
    /// Records of the foreign stream below the cursors.
    pub read: u64,
    /// Clicks that a verifier brought back.
    pub reinjected: u64,
    /// Joined by a joiner of this datacenter.
    pub joined: u64,
    /// Found taken: any `Present` or `Duplicate`, own earlier attempts included.
    pub claimed: u64,
    /// Filtered by the adapter.
    pub filtered: u64,
    /// Without a primary record.
    pub unjoinable: u64,
    /// Below the boundary.
    pub expired: u64,
    /// Not understood.
    pub dead_lettered: u64,
    /// In the retry store.
    pub pending: u64,
}

impl DatacenterLedger {
    /// The columns in the order of the ledger, with their names in JSON.
    #[must_use]
    pub fn columns(&self) -> [(&'static str, u64); 9] {
        let DatacenterLedger {
            read,
            reinjected,
            joined,
            claimed,
            filtered,
            unjoinable,
            expired,
            dead_lettered,
            pending,
        } = *self;
        [
            ("read", read),
            ("reinjected", reinjected),
            ("joined", joined),
            ("claimed", claimed),
            ("filtered", filtered),
            ("unjoinable", unjoinable),
            ("expired", expired),
            ("dead_lettered", dead_lettered),
            ("pending", pending),
        ]
    }

    /// Whether what was taken in is accounted for.
    ///
    /// # Errors
    /// Both sides.
    pub fn check(&self) -> Result<(), Imbalance> {
        let answers =
            [self.joined, self.claimed, self.filtered, self.unjoinable, self.expired, self.dead_lettered, self.pending];
        Imbalance::unless_equal(sum(&[self.read, self.reinjected]), sum(&answers))
    }
}

/// A ledger whose sides differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// What went in.
    pub taken: u128,
    /// What is accounted for.
    pub accounted: u128,
}

impl Imbalance {
    fn unless_equal(taken: u128, accounted: u128) -> Result<(), Imbalance> {
        if taken == accounted { Ok(()) } else { Err(Imbalance { taken, accounted }) }
    }
}

/// Counts come from files: their sum must not overflow.
fn sum(counts: &[u64]) -> u128 {
    counts.iter().copied().map(u128::from).sum()
}

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} taken in, {} accounted for", self.taken, self.accounted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_that_does_not_add_up_names_both_sides() {
        let mut ledger = Ledger::default();
        ledger.count(State::Joined);
        ledger.count(State::Lost(Loss::Unclaimed));
        assert_eq!(ledger.check(), Ok(()));
        ledger.lost_to_pending();
        assert_eq!((ledger.lost, ledger.pending, ledger.check()), (0, 1, Ok(())));
        ledger.joined += 1;
        assert_eq!(ledger.check(), Err(Imbalance { taken: 2, accounted: 3 }));
    }

    #[test]
    fn a_datacenter_accounts_for_what_it_read_and_what_came_back() {
        let mut ledger = DatacenterLedger { read: 5, reinjected: 1, joined: 2, claimed: 3, ..Default::default() };
        assert_eq!(ledger.check(), Err(Imbalance { taken: 6, accounted: 5 }));
        ledger.pending = 1;
        assert_eq!(ledger.check(), Ok(()));
    }
}

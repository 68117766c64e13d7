//! What became of the records of a source, as counts.
//!
//! Invariant: read + re-injected = ended + pending, where ended is the sum over all end states.
//! Each record is counted once, by the answer that let the cursor pass or that ended it in the
//! retry store; so after a restart a record that this very datacenter joined may count as claimed.
//!
//! Not here: the ledger over all datacenters, which the verifier makes by key.

/// How a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// A joiner of this datacenter wrote its line.
    Joined,
    /// The registry has it: another attempt's, also an own earlier one.
    Claimed,
    /// The adapter does not want the pair.
    Filtered,
    /// Its query is in no source.
    Unjoinable,
    /// It is below the registry's boundary.
    Expired,
    /// It can not be read, or names nothing.
    DeadLettered,
}

impl End {
    /// All of them, in the order of the ledger.
    pub const ALL: [End; 6] =
        [End::Joined, End::Claimed, End::Filtered, End::Unjoinable, End::Expired, End::DeadLettered];
}

/// Counts of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Complete records of the foreign stream that the cursor has passed.
    pub read: u64,
    /// Clicks that a verifier put back.
    pub reinjected: u64,
    /// See [`End::Joined`].
    pub joined: u64,
    /// See [`End::Claimed`].
    pub claimed: u64,
    /// See [`End::Filtered`].
    pub filtered: u64,
    /// See [`End::Unjoinable`].
    pub unjoinable: u64,
    /// See [`End::Expired`].
    pub expired: u64,
    /// See [`End::DeadLettered`].
    pub dead_lettered: u64,
    /// Bulk actions that add no event. They are no records: outside the sum.
    pub skipped: u64,
}

impl Counts {
    /// Counts an end.
    pub fn add(&mut self, end: End) {
        *self.of_mut(end) += 1;
    }

    /// How many ended so.
    #[must_use]
    pub fn of(&self, end: End) -> u64 {
        let mut counts = *self;
        *counts.of_mut(end)
    }

    /// How many have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        End::ALL.into_iter().map(|end| self.of(end)).sum()
    }

    /// How many have not ended: they lie in the retry store. None when more ended than came.
    #[must_use]
    pub fn pending(&self) -> Option<u64> {
        (self.read + self.reinjected).checked_sub(self.ended())
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Counts) -> Counts {
        let Counts { read, reinjected, joined, claimed, filtered, unjoinable, expired, dead_lettered, skipped } =
            *other;
        Counts {
            read: self.read + read,
            reinjected: self.reinjected + reinjected,
            joined: self.joined + joined,
            claimed: self.claimed + claimed,
            filtered: self.filtered + filtered,
            unjoinable: self.unjoinable + unjoinable,
            expired: self.expired + expired,
            dead_lettered: self.dead_lettered + dead_lettered,
            skipped: self.skipped + skipped,
        }
    }

    fn of_mut(&mut self, end: End) -> &mut u64 {
        match end {
            End::Joined => &mut self.joined,
            End::Claimed => &mut self.claimed,
            End::Filtered => &mut self.filtered,
            End::Unjoinable => &mut self.unjoinable,
            End::Expired => &mut self.expired,
            End::DeadLettered => &mut self.dead_lettered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_counted_once_and_the_rest_is_pending() {
        let mut counts = Counts { read: 10, reinjected: 2, ..Counts::default() };
        for (times, end) in End::ALL.into_iter().enumerate() {
            (0..times.min(3)).for_each(|_| counts.add(end));
        }
        assert_eq!(counts.ended(), 12);
        assert_eq!(counts.pending(), Some(0));
        assert_eq!(counts.plus(&counts).of(End::Unjoinable), 6);
        counts.add(End::Joined);
        assert_eq!(counts.pending(), None);
    }
}

//! Equal logs give equal tables, and digests say what the rows say.
//!
//! Deterministic state machines that start in one state and run the same commands in one order are
//! in one state (Schneider, Implementing Fault-Tolerant Services Using the State Machine Approach,
//! 1990, section 2). Replicas, and lives of one replica, are compared wherever they have applied
//! equally far.

use std::collections::BTreeMap;

use photon_core::machine::{Bucket, Digest, MemoryTable};
use photon_types::Slot;

use super::{Judgement, Life};

#[derive(Debug, Default)]
pub(crate) struct Digests {
    /// By `applied_end`: what the first to get there had.
    first: BTreeMap<Slot, (BTreeMap<Bucket, Digest>, Life)>,
}

impl Digests {
    /// A machine has written its table.
    pub fn applied(&mut self, life: Life, applied_end: Slot, table: &MemoryTable) -> Judgement {
        // A bucket that is empty again may be kept as zero or not at all.
        let kept: BTreeMap<Bucket, Digest> =
            table.digests().filter(|(_, digest)| *digest != Digest::default()).collect();
        let computed = table.computed_digests();
        if kept != computed {
            return Err(format!(
                "{life} has applied {applied_end} and keeps digests {kept:?}, but its rows give {computed:?}"
            ));
        }
        let (first, by) = self.first.entry(applied_end).or_insert_with(|| (kept.clone(), life));
        if *first == kept {
            return Ok(());
        }
        Err(format!("with everything below {applied_end} applied, {by} has {first:?} and {life} has {kept:?}"))
    }
}

#[cfg(test)]
mod tests {
    use photon_core::machine::{Changes, RowLayout, apply};
    use photon_types::{Chunk, Command, EventKey, GroupId, Incarnation, Token};

    use super::super::made_up::{check_evidence, life};
    use super::*;

    fn table(sequence: u64) -> MemoryTable {
        let mut table = MemoryTable::default();
        let key = EventKey::new(5, b"a").unwrap();
        let insert = Command::Insert { key, token: Token { incarnation: Incarnation([1; 16]), sequence } };
        let Ok(applied) = apply(&table, RowLayout::hourly(GroupId(1)), &Chunk::of(&[insert]).bytes);
        table.absorb(applied.changes);
        table
    }

    #[test]
    fn equal_tables_agree_and_different_ones_do_not() {
        let mut digests = Digests::default();
        assert_eq!(digests.applied(life(1, 1), Slot(1), &table(1)), Ok(()));
        assert_eq!(digests.applied(life(2, 1), Slot(1), &table(1)), Ok(()));
        assert_eq!(digests.applied(life(2, 1), Slot(2), &table(2)), Ok(()));
        check_evidence(digests.applied(life(3, 1), Slot(1), &table(2)), &["below 1", "node 1", "node 3"]);
    }

    #[test]
    fn digests_must_be_those_of_the_rows() {
        let mut table = table(1);
        let (bucket, digest) = table.digests().next().unwrap();
        let digests = [(bucket, Digest(digest.0 + 1))].into();
        table.absorb(Changes { digests, ..Changes::default() });
        check_evidence(Digests::default().applied(life(1, 1), Slot(1), &table), &["keeps digests", "rows give"]);
    }
}

//! The state machine: what commands do to the table.
//!
//! Invariant: `apply` is a pure function of table and commands. It reads no clock, it never sees a
//! ballot or a slot, and it never panics on bytes: one poison entry would stop every replica for
//! ever. What it can not read is `Invalid` and changes nothing.
//!
//! Not here: where rows live (the shell), and why the commands come in this order (`paxos`).

mod digest;
mod memory;
mod rowkey;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use photon_types::{Command, Commands, EventKey, Holder, Outcome, Outcomes, Timestamp, Token};

pub use digest::Digest;
pub use memory::MemoryTable;
pub use rowkey::{
    BUCKET_WIDTH_MICROS, BUCKET_WIDTH_MICROS_MIN, Bucket, ROW_KEY_BYTES_MAX, RowKey, RowKeyError, RowLayout,
    decode_holder, encode_holder,
};
pub use table::{Applied, Changes, Table};

/// Runs a batch on the table: one outcome for each command, and what is to be written.
///
/// # Errors
/// When the table can not be read.
pub fn apply<T: Table>(table: &T, layout: RowLayout, batch: &[u8]) -> Result<Applied, T::Error> {
    let (mut outcomes, changes) = apply_all(table, layout, &[batch])?;
    let outcomes = outcomes.pop().expect("one batch has one list of outcomes");
    Ok(Applied { outcomes, changes })
}

/// Runs consecutive batches as if one after the other, with one read of the table and one write:
/// the outcomes of each, and what is to be written after the last.
///
/// # Errors
/// When the table can not be read.
pub fn apply_all<T: Table>(
    table: &T,
    layout: RowLayout,
    batches: &[&[u8]],
) -> Result<(Vec<Outcomes>, Changes), T::Error> {
    let commands: Vec<Vec<Step>> = batches.iter().map(|batch| read(layout, batch)).collect();
    let mut keys: Vec<RowKey> = commands.iter().flatten().filter_map(Step::row_key).cloned().collect();
    keys.sort_unstable();
    keys.dedup();
    let found = if keys.is_empty() { Vec::new() } else { table.load(&keys)? };
    assert!(found.len() == keys.len(), "{} rows were asked for, {} came", keys.len(), found.len());
    let states_rules = commands.iter().flatten().any(|step| matches!(step, Step::StateKeyRules { .. }));
    let mut overlay = Overlay {
        rows: keys.into_iter().zip(found).map(|(key, found)| (key, Row { found, now: found })).collect(),
        key_rules: if states_rules { table.key_rules()? } else { None },
        key_rules_changed: false,
        boundary: table.boundary(),
        drop_end: table.drop_end(),
    };
    let outcomes =
        commands.into_iter().map(|batch| batch.into_iter().map(|step| overlay.run(step)).collect()).collect();
    Ok((outcomes, overlay.changes(table)?))
}

/// A command with its row, or one that could not be read.
enum Step {
    Insert { row: RowKey, timestamp: Timestamp, token: Token },
    Lookup { row: RowKey, timestamp: Timestamp },
    Delete { row: RowKey, timestamp: Timestamp, token: Token },
    ForgetToken { row: RowKey, timestamp: Timestamp, token: Token },
    StateKeyRules { text: String },
    Invalid,
}

impl Step {
    fn row_key(&self) -> Option<&RowKey> {
        match self {
            Step::Insert { row, .. }
            | Step::Lookup { row, .. }
            | Step::Delete { row, .. }
            | Step::ForgetToken { row, .. } => Some(row),
            Step::StateKeyRules { text: _ } | Step::Invalid => None,
        }
    }
}

fn read(layout: RowLayout, batch: &[u8]) -> Vec<Step> {
    let row = |key: &EventKey| layout.row_key(key);
    Commands::new(batch)
        .map(|command| match command {
            Ok(Command::Insert { key, token }) => Step::Insert { row: row(&key), timestamp: key.timestamp, token },
            Ok(Command::Lookup { key }) => Step::Lookup { row: row(&key), timestamp: key.timestamp },
            Ok(Command::Delete { key, token, reason: _ }) => {
                Step::Delete { row: row(&key), timestamp: key.timestamp, token }
            }
            Ok(Command::ForgetToken { key, token }) => {
                Step::ForgetToken { row: row(&key), timestamp: key.timestamp, token }
            }
            Ok(Command::StateKeyRules { text }) => Step::StateKeyRules { text },
            Err(_) => Step::Invalid,
        })
        .collect()
}

/// The state in the middle of a batch: the rows that it touches, over a table that stands still.
struct Overlay {
    rows: BTreeMap<RowKey, Row>,
    key_rules: Option<String>,
    key_rules_changed: bool,
    boundary: Timestamp,
    drop_end: Timestamp,
}

struct Row {
    found: Option<Holder>,
    now: Option<Holder>,
}

impl Overlay {
    fn run(&mut self, step: Step) -> Outcome {
        match step {
            Step::Insert { row, timestamp, token } => self.insert(&row, timestamp, token),
            Step::Lookup { row, timestamp } => self.lookup(&row, timestamp),
            Step::Delete { row, timestamp, token } => self.delete(&row, timestamp, token),
            Step::ForgetToken { row, timestamp, token } => self.forget(&row, timestamp, token),
            Step::StateKeyRules { text } => self.state_key_rules(text),
            Step::Invalid => Outcome::Invalid,
        }
    }

    fn insert(&mut self, row: &RowKey, timestamp: Timestamp, token: Token) -> Outcome {
        match self.holder(row, timestamp) {
            // The joiner lost our reply and asks again: also beyond the boundary it learns its own
            // success, for as long as the row stands.
            Some(Holder::Token(winner)) if winner == token => Outcome::Inserted,
            Some(winner) => Outcome::Duplicate { winner },
            None if timestamp < self.boundary => self.expired(),
            None => {
                self.put(row, Some(Holder::Token(token)));
                Outcome::Inserted
            }
        }
    }

    fn lookup(&self, row: &RowKey, timestamp: Timestamp) -> Outcome {
        match self.holder(row, timestamp) {
            Some(winner) => Outcome::Present { winner },
            None if timestamp < self.boundary => self.expired(),
            None => Outcome::Absent,
        }
    }

    fn delete(&mut self, row: &RowKey, timestamp: Timestamp, token: Token) -> Outcome {
        // Below the boundary a click that is taken out could never be put in again.
        if timestamp < self.boundary {
            return self.expired();
        }
        match self.holder(row, timestamp) {
            Some(Holder::Token(winner)) if winner == token => {
                self.put(row, None);
                Outcome::Deleted
            }
            Some(winner) => Outcome::Mismatch { winner },
            None => Outcome::Absent,
        }
    }

    fn forget(&mut self, row: &RowKey, timestamp: Timestamp, token: Token) -> Outcome {
        if timestamp < self.boundary {
            return self.expired();
        }
        match self.holder(row, timestamp) {
            Some(Holder::Token(winner)) if winner == token => {
                self.put(row, Some(Holder::Forgotten));
                Outcome::Forgotten
            }
            Some(winner) => Outcome::Mismatch { winner },
            None => Outcome::Absent,
        }
    }

    fn state_key_rules(&mut self, text: String) -> Outcome {
        match &self.key_rules {
            Some(kept) if *kept == text => Outcome::KeyRulesKept,
            Some(kept) => Outcome::KeyRulesDiffer { kept: kept.clone() },
            None => {
                self.key_rules = Some(text);
                self.key_rules_changed = true;
                Outcome::KeyRulesKept
            }
        }
    }

    /// Who holds the row. Below `drop_end` nobody does, whatever files still hold.
    fn holder(&self, row: &RowKey, timestamp: Timestamp) -> Option<Holder> {
        if timestamp < self.drop_end {
            return None;
        }
        self.rows.get(row).expect("every row of the batch was loaded").now
    }

    fn put(&mut self, row: &RowKey, holder: Option<Holder>) {
        self.rows.get_mut(row).expect("every row of the batch was loaded").now = holder;
    }

    fn expired(&self) -> Outcome {
        Outcome::Expired { boundary: self.boundary }
    }

    fn changes<T: Table>(self, table: &T) -> Result<Changes, T::Error> {
        let mut changes =
            Changes { key_rules: self.key_rules.filter(|_| self.key_rules_changed), ..Changes::default() };
        for (key, Row { found, now }) in self.rows {
            if found == now {
                continue;
            }
            let bucket = key.bucket();
            let mut digest = match changes.digests.get(&bucket) {
                Some(digest) => *digest,
                None => table.digest(bucket)?,
            };
            if let Some(found) = found {
                digest = digest.without(&key, found);
            }
            if let Some(now) = now {
                digest = digest.with(&key, now);
            }
            changes.digests.insert(bucket, digest);
            changes.rows.insert(key, now);
        }
        Ok(changes)
    }
}

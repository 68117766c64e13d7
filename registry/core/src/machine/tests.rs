//! The machine against a simple model, and case by case.

use photon_types::{
    COMMAND_FORMAT, Chunk, Command, DeleteReason, EventKey, GroupId, Holder, Incarnation, Outcome, Timestamp, Token,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

use super::*;

const LAYOUT: RowLayout = RowLayout::hourly(GroupId(1));

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros).unwrap()
}

fn key(micros: u64) -> EventKey {
    EventKey::new(micros, b"id").unwrap()
}

fn token(sequence: u64) -> Token {
    Token { incarnation: Incarnation([5; 16]), sequence }
}

fn held(sequence: u64) -> Holder {
    Holder::Token(token(sequence))
}

fn insert(micros: u64, by: u64) -> Command {
    Command::Insert { key: key(micros), token: token(by) }
}

fn lookup(micros: u64) -> Command {
    Command::Lookup { key: key(micros) }
}

fn delete(micros: u64, by: u64) -> Command {
    Command::Delete { key: key(micros), token: token(by), reason: DeleteReason::LineMissing }
}

fn forget(micros: u64, by: u64) -> Command {
    Command::ForgetToken { key: key(micros), token: token(by) }
}

fn run(table: &mut MemoryTable, commands: &[Command]) -> Vec<Outcome> {
    let Ok(applied) = apply(table, LAYOUT, &Chunk::of(commands).bytes);
    table.absorb(applied.changes);
    applied.outcomes
}

/// Runs the commands in one batch and one by one: the outcomes must be these, and the tables equal.
#[track_caller]
fn check(before: &MemoryTable, commands: &[Command], want: &[Outcome]) {
    let mut batched = before.clone();
    assert_eq!(run(&mut batched, commands), want);
    let mut single = before.clone();
    let outcomes: Vec<Outcome> =
        commands.iter().flat_map(|command| run(&mut single, std::slice::from_ref(command))).collect();
    assert_eq!(outcomes, want);
    let rows = |table: &MemoryTable| table.rows().map(|(key, holder)| (key.clone(), *holder)).collect::<Vec<_>>();
    assert_eq!(rows(&batched), rows(&single));
}

#[test]
fn the_first_token_wins_and_may_ask_again() {
    check(
        &MemoryTable::default(),
        &[insert(5, 1), insert(5, 2), insert(5, 1), lookup(5)],
        &[
            Outcome::Inserted,
            Outcome::Duplicate { winner: held(1) },
            Outcome::Inserted,
            Outcome::Present { winner: held(1) },
        ],
    );
}

#[test]
fn only_the_winner_is_deleted_and_the_id_is_free_again() {
    check(
        &MemoryTable::default(),
        &[delete(5, 1), insert(5, 1), delete(5, 2), delete(5, 1), lookup(5), insert(5, 2)],
        &[
            Outcome::Absent,
            Outcome::Inserted,
            Outcome::Mismatch { winner: held(1) },
            Outcome::Deleted,
            Outcome::Absent,
            Outcome::Inserted,
        ],
    );
}

#[test]
fn a_forgotten_token_is_a_duplicate_even_to_itself() {
    let winner = Holder::Forgotten;
    check(
        &MemoryTable::default(),
        &[forget(5, 1), insert(5, 1), forget(5, 2), forget(5, 1), insert(5, 1), lookup(5), delete(5, 1), forget(5, 1)],
        &[
            Outcome::Absent,
            Outcome::Inserted,
            Outcome::Mismatch { winner: held(1) },
            Outcome::Forgotten,
            Outcome::Duplicate { winner },
            Outcome::Present { winner },
            Outcome::Mismatch { winner },
            Outcome::Mismatch { winner },
        ],
    );
}

/// Below the boundary no new id is taken, and nothing is taken out; rows answer down to `drop_end`.
/// Equality: timestamp < bound is gone, = is kept.
#[test]
fn bounds_of_time() {
    let mut table = MemoryTable::default();
    let inserts: Vec<Command> = [9, 10, 19, 20].map(|micros| insert(micros, 1)).to_vec();
    run(&mut table, &inserts);
    table.set_bounds(at(20), at(10));
    let expired = Outcome::Expired { boundary: at(20) };
    check(
        &table,
        &[
            // Below drop_end: the row is gone, though the table still holds it.
            insert(9, 1),
            lookup(9),
            delete(9, 1),
            forget(9, 1),
            // Between: the row answers, nothing changes.
            insert(10, 1),
            insert(10, 2),
            lookup(19),
            delete(19, 1),
            forget(19, 1),
            insert(18, 1),
            lookup(18),
            // At the boundary: as ever.
            insert(20, 1),
            delete(20, 1),
            insert(20, 2),
            insert(21, 3),
        ],
        &[
            expired.clone(),
            expired.clone(),
            expired.clone(),
            expired.clone(),
            Outcome::Inserted,
            Outcome::Duplicate { winner: held(1) },
            Outcome::Present { winner: held(1) },
            expired.clone(),
            expired.clone(),
            expired.clone(),
            expired.clone(),
            Outcome::Inserted,
            Outcome::Deleted,
            Outcome::Inserted,
            Outcome::Inserted,
        ],
    );
}

#[test]
fn the_first_key_rules_are_kept() {
    let rules = |text: &str| Command::StateKeyRules { text: text.into() };
    check(
        &MemoryTable::default(),
        &[rules("a = 1"), rules("a = 2"), rules("a = 1")],
        &[Outcome::KeyRulesKept, Outcome::KeyRulesDiffer { kept: "a = 1".into() }, Outcome::KeyRulesKept],
    );
}

#[test]
fn what_can_not_be_read_is_invalid_and_changes_nothing() {
    let mut bytes = Chunk::of(&[insert(5, 1)]).bytes;
    // A lookup without an id, a kind that does not exist, and a frame that is cut off.
    bytes.extend_from_slice(&[COMMAND_FORMAT, 2, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5]);
    bytes.extend_from_slice(&[COMMAND_FORMAT, 99, 0, 0]);
    bytes.extend_from_slice(&Chunk::of(&[lookup(5)]).bytes);
    bytes.extend_from_slice(&[COMMAND_FORMAT, 2, 0xff]);
    let Ok(applied) = apply(&MemoryTable::default(), LAYOUT, &bytes);
    let winner = held(1);
    assert_eq!(
        applied.outcomes,
        [Outcome::Inserted, Outcome::Invalid, Outcome::Invalid, Outcome::Present { winner }, Outcome::Invalid]
    );
}

#[test]
fn a_no_op_does_nothing() {
    let Ok(applied) = apply(&MemoryTable::default(), LAYOUT, &[]);
    assert_eq!(applied, Applied { outcomes: Vec::new(), changes: Changes::default() });
}

#[test]
fn what_came_and_went_within_a_batch_is_not_written() {
    let Ok(applied) = apply(&MemoryTable::default(), LAYOUT, &Chunk::of(&[insert(5, 1), delete(5, 1)]).bytes);
    assert_eq!(applied.changes, Changes::default());
}

/// The same machine as a reader of the specification would write it: no batches, no overlay.
#[derive(Default)]
struct Model {
    rows: BTreeMap<EventKey, Holder>,
    boundary: Timestamp,
    drop_end: Timestamp,
}

impl Model {
    fn run(&mut self, command: &Command) -> Outcome {
        let (Command::Insert { key, .. }
        | Command::Lookup { key }
        | Command::Delete { key, .. }
        | Command::ForgetToken { key, .. }) = command
        else {
            panic!("the model has no key rules")
        };
        if key.timestamp < self.drop_end {
            self.rows.remove(key);
        }
        let is_old = key.timestamp < self.boundary;
        let expired = Outcome::Expired { boundary: self.boundary };
        let row = self.rows.get(key).copied();
        match (command, row) {
            (Command::Insert { token, .. }, Some(Holder::Token(winner))) if *token == winner => Outcome::Inserted,
            (Command::Insert { .. }, Some(winner)) => Outcome::Duplicate { winner },
            (Command::Lookup { .. }, Some(winner)) => Outcome::Present { winner },
            (_, _) if is_old => expired,
            (Command::Insert { token, .. }, None) => {
                self.rows.insert(key.clone(), Holder::Token(*token));
                Outcome::Inserted
            }
            (_, None) => Outcome::Absent,
            (Command::Delete { token, .. }, Some(winner)) if winner == Holder::Token(*token) => {
                self.rows.remove(key);
                Outcome::Deleted
            }
            (Command::ForgetToken { token, .. }, Some(winner)) if winner == Holder::Token(*token) => {
                self.rows.insert(key.clone(), Holder::Forgotten);
                Outcome::Forgotten
            }
            (_, Some(winner)) => Outcome::Mismatch { winner },
        }
    }
}

fn some_command() -> impl Strategy<Value = Command> {
    (0..4_u8, 0..8_u64, 0..3_u64).prop_map(|(kind, time, by)| {
        // Two buckets, so that digests of both are kept.
        let micros = time * (BUCKET_WIDTH_MICROS / 4);
        match kind {
            0 => insert(micros, by),
            1 => lookup(micros),
            2 => delete(micros, by),
            _ => forget(micros, by),
        }
    })
}

proptest! {
    #[test]
    fn the_machine_is_the_model(
        batches in proptest::collection::vec(proptest::collection::vec(some_command(), 0..12), 1..8),
        bounds in (0..8_u64, 0..8_u64),
        bounds_after in 0..8_usize,
    ) {
        let mut table = MemoryTable::default();
        let mut model = Model::default();
        let bounds = (bounds.0 * (BUCKET_WIDTH_MICROS / 4), bounds.1 * (BUCKET_WIDTH_MICROS / 4));
        for (index, commands) in batches.iter().enumerate() {
            if index == bounds_after {
                (model.boundary, model.drop_end) = (at(bounds.0.max(bounds.1)), at(bounds.0.min(bounds.1)));
                table.set_bounds(model.boundary, model.drop_end);
            }
            let want: Vec<Outcome> = commands.iter().map(|command| model.run(command)).collect();
            prop_assert_eq!(run(&mut table, commands), want);
            let kept: BTreeMap<_, _> = table.digests().filter(|(_, digest)| *digest != Digest::default()).collect();
            prop_assert_eq!(kept, table.computed_digests());
        }
    }

    /// Many batches at once are the same as one after the other.
    #[test]
    fn batches_can_be_applied_together(
        batches in proptest::collection::vec(proptest::collection::vec(some_command(), 0..6), 0..6),
    ) {
        let encoded: Vec<Vec<u8>> = batches.iter().map(|commands| Chunk::of(commands).bytes).collect();
        let slices: Vec<&[u8]> = encoded.iter().map(Vec::as_slice).collect();
        let mut together = MemoryTable::default();
        let Ok((outcomes, changes)) = apply_all(&together, LAYOUT, &slices);
        together.absorb(changes);
        let mut one_by_one = MemoryTable::default();
        let want: Vec<Vec<Outcome>> = batches.iter().map(|commands| run(&mut one_by_one, commands)).collect();
        prop_assert_eq!(outcomes, want);
        prop_assert!(together.rows().eq(one_by_one.rows()));
    }

    #[test]
    fn any_bytes_are_applied_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let Ok(applied) = apply(&MemoryTable::default(), LAYOUT, &bytes);
        prop_assert!(applied.outcomes.len() <= bytes.len());
    }
}

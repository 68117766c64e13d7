//! Stories, and an exhaustive search over the same model to compare with.

use photon_types::{DeleteReason, Incarnation};
use proptest::prelude::*;

use super::*;

fn key() -> EventKey {
    EventKey::new(1_000, b"click").unwrap()
}

fn token(number: u64) -> Token {
    Token { incarnation: Incarnation([1; 16]), sequence: number }
}

fn holder(number: u64) -> Holder {
    Holder::Token(token(number))
}

fn op(command: Command, called: u64, answer: Option<(u64, Outcome)>) -> Op {
    Op { command, called, answer }
}

fn insert(number: u64, called: u64, answer: Option<(u64, Outcome)>) -> Op {
    op(Command::Insert { key: key(), token: token(number) }, called, answer)
}

fn lookup(called: u64, returned: u64, outcome: Outcome) -> Op {
    op(Command::Lookup { key: key() }, called, Some((returned, outcome)))
}

fn delete(number: u64, called: u64, answer: Option<(u64, Outcome)>) -> Op {
    op(Command::Delete { key: key(), token: token(number), reason: DeleteReason::LineMissing }, called, answer)
}

fn forget(number: u64, called: u64, answer: Option<(u64, Outcome)>) -> Op {
    op(Command::ForgetToken { key: key(), token: token(number) }, called, answer)
}

fn duplicate(number: u64) -> Outcome {
    Outcome::Duplicate { winner: holder(number) }
}

fn present(number: u64) -> Outcome {
    Outcome::Present { winner: holder(number) }
}

#[track_caller]
fn accepted(history: &[Op]) {
    assert_eq!(check(history), Ok(()));
}

#[track_caller]
fn refused(history: &[Op], is_right: impl Fn(&Violation) -> bool) {
    match check(history) {
        Ok(()) => panic!("accepted: {history:?}"),
        Err(violation) => assert!(is_right(&violation), "{violation}"),
    }
}

fn two_winners(violation: &Violation) -> bool {
    matches!(violation, Violation::TwoWinners { .. })
}

fn stale(violation: &Violation) -> bool {
    matches!(violation, Violation::Stale { .. })
}

#[test]
fn one_winner_and_its_repetition() {
    accepted(&[
        insert(1, 0, Some((5, Outcome::Inserted))),
        insert(2, 1, Some((6, duplicate(1)))),
        insert(1, 7, Some((8, Outcome::Inserted))),
        lookup(9, 10, present(1)),
    ]);
}

#[test]
fn two_winners_without_a_delete() {
    refused(&[insert(1, 0, Some((5, Outcome::Inserted))), insert(2, 0, Some((5, Outcome::Inserted)))], two_winners);
    refused(&[insert(1, 0, Some((1, Outcome::Inserted))), insert(2, 9, Some((10, Outcome::Inserted)))], two_winners);
}

#[test]
fn a_delete_between_allows_a_second_winner_and_not_the_first_again() {
    let mut history = vec![
        insert(1, 0, Some((1, Outcome::Inserted))),
        delete(1, 2, Some((3, Outcome::Deleted))),
        insert(2, 4, Some((5, Outcome::Inserted))),
    ];
    accepted(&history);
    history.push(insert(1, 6, Some((7, Outcome::Inserted))));
    refused(&history, stale);
}

#[test]
fn a_delayed_insert_may_claim_once_more_after_the_delete() {
    accepted(&[
        insert(1, 0, None),
        delete(1, 2, Some((3, Outcome::Absent))),
        lookup(4, 5, present(1)),
        delete(1, 6, Some((7, Outcome::Deleted))),
    ]);
}

#[test]
fn a_delete_of_another_token_ends_nothing() {
    refused(
        &[
            insert(1, 0, Some((1, Outcome::Inserted))),
            delete(2, 2, Some((3, Outcome::Mismatch { winner: holder(1) }))),
            insert(2, 4, Some((5, Outcome::Inserted))),
        ],
        stale,
    );
}

#[test]
fn a_read_behind_an_answer_sees_it() {
    let inserted = insert(1, 0, Some((5, Outcome::Inserted)));
    refused(&[inserted.clone(), lookup(6, 7, Outcome::Absent)], stale);
    accepted(&[inserted, lookup(4, 7, Outcome::Absent)]);
    // Once a look-up saw the unanswered insert, it stays seen.
    refused(&[insert(1, 0, None), lookup(1, 2, present(1)), lookup(3, 4, Outcome::Absent)], stale);
}

#[test]
fn unknown_may_have_happened_or_not() {
    accepted(&[insert(1, 0, None), lookup(1, 2, Outcome::Absent), insert(2, 3, Some((4, Outcome::Inserted)))]);
    accepted(&[insert(1, 0, None), insert(2, 3, Some((4, duplicate(1))))]);
}

#[test]
fn a_winner_that_nobody_asked_for() {
    let from_nowhere = |violation: &Violation| matches!(violation, Violation::FromNowhere { .. });
    refused(&[insert(2, 3, Some((4, duplicate(1))))], from_nowhere);
    refused(&[insert(2, 3, Some((4, duplicate(1)))), insert(1, 5, None)], from_nowhere);
    refused(&[lookup(0, 1, Outcome::Present { winner: Holder::Forgotten })], from_nowhere);
}

#[test]
fn a_mark_replaces_its_token_for_ever() {
    let forgotten = Outcome::Duplicate { winner: Holder::Forgotten };
    let mut history = vec![
        insert(1, 0, Some((1, Outcome::Inserted))),
        forget(1, 2, Some((3, Outcome::Forgotten))),
        insert(1, 4, Some((5, forgotten))),
    ];
    accepted(&history);
    history.push(insert(1, 6, Some((7, Outcome::Inserted))));
    refused(&history, stale);
}

#[test]
fn an_answer_on_its_way_while_its_token_is_forgotten() {
    accepted(&[insert(1, 3, Some((10, Outcome::Inserted))), forget(1, 5, Some((7, Outcome::Forgotten)))]);
}

#[test]
fn an_outcome_of_another_command() {
    let wrong = |violation: &Violation| matches!(violation, Violation::Outcome { .. });
    refused(&[insert(1, 0, Some((1, Outcome::Absent)))], wrong);
    refused(&[insert(1, 0, Some((1, duplicate(1))))], wrong);
    let boundary = key().timestamp;
    refused(&[lookup(0, 1, Outcome::Expired { boundary })], wrong);
}

#[test]
fn ids_are_independent() {
    let other = Command::Insert { key: EventKey::new(1_000, b"other").unwrap(), token: token(2) };
    accepted(&[insert(1, 0, Some((1, Outcome::Inserted))), op(other, 2, Some((3, Outcome::Inserted)))]);
}

/// Every walk of the register over a few moments: slow, and with nothing to be wrong in.
fn search(history: &[Op]) -> bool {
    let demands: Vec<(Option<Holder>, u64, u64)> = history
        .iter()
        .filter_map(|op| {
            let (returned, outcome) = op.answer.as_ref()?;
            let claimed = match (&op.command, outcome) {
                (
                    Command::Insert { token, .. } | Command::Delete { token, .. },
                    Outcome::Inserted | Outcome::Deleted,
                ) => Some(Holder::Token(*token)),
                (_, Outcome::Forgotten) => Some(Holder::Forgotten),
                (_, Outcome::Duplicate { winner } | Outcome::Mismatch { winner } | Outcome::Present { winner }) => {
                    Some(*winner)
                }
                (_, _) => None,
            };
            Some((claimed, op.called, *returned))
        })
        .collect();
    let all = (1_u32 << demands.len()) - 1;
    let mut reached = vec![(None::<Holder>, 0_u32)];
    for now in 0..=HORIZON {
        let mut open = reached.clone();
        let mut seen = Vec::new();
        while let Some((state, met)) = open.pop() {
            let met = demands.iter().enumerate().fold(met, |met, (index, (claimed, called, returned))| {
                if *claimed == state && *called <= now && now <= *returned { met | 1 << index } else { met }
            });
            if seen.contains(&(state, met)) {
                continue;
            }
            seen.push((state, met));
            for op in history.iter().filter(|op| op.called <= now) {
                match (&op.command, state) {
                    (Command::Insert { token, .. }, None) => open.push((Some(Holder::Token(*token)), met)),
                    (Command::Delete { token, .. }, Some(Holder::Token(held))) if *token == held => {
                        open.push((None, met));
                    }
                    (Command::ForgetToken { token, .. }, Some(Holder::Token(held))) if *token == held => {
                        open.push((Some(Holder::Forgotten), met));
                    }
                    (_, _) => (),
                }
            }
        }
        let overdue = demands.iter().enumerate().fold(
            0,
            |overdue, (index, (_, _, returned))| {
                if *returned == now { overdue | 1 << index } else { overdue }
            },
        );
        seen.retain(|(_, met)| met & overdue == overdue);
        reached = seen;
    }
    reached.iter().any(|(_, met)| *met == all)
}

const HORIZON: u64 = 9;

fn any_op() -> impl Strategy<Value = Op> {
    let shape = (0..10_u8, 1..3_u64, 1..3_u64, 0..HORIZON, 0..4_u64, 0..4_u8);
    shape.prop_map(|(kind, number, other, called, length, choice)| {
        let returned = (called + length).min(HORIZON);
        let seen = if other == number { Holder::Forgotten } else { holder(other) };
        let answer = |outcome| (choice != 3).then_some((returned, outcome));
        match (kind, choice) {
            (0..5, 0 | 3) => insert(number, called, answer(Outcome::Inserted)),
            (0..5, _) => insert(number, called, answer(Outcome::Duplicate { winner: holder(3 - number) })),
            (5..7, 0) => lookup(called, returned, Outcome::Absent),
            (5..7, _) => lookup(called, returned, present(number)),
            (7..9, 0) => delete(number, called, answer(Outcome::Absent)),
            (7..9, 1 | 3) => delete(number, called, answer(Outcome::Deleted)),
            (7..9, _) => delete(number, called, answer(Outcome::Mismatch { winner: seen })),
            (_, 0) => forget(number, called, answer(Outcome::Absent)),
            (_, 1 | 3) => forget(number, called, answer(Outcome::Forgotten)),
            (_, _) => forget(number, called, answer(Outcome::Mismatch { winner: seen })),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn the_sweep_says_what_the_search_says(history in proptest::collection::vec(any_op(), 1..7)) {
        let explained = search(&history);
        let verdict = check(&history);
        if explained {
            prop_assert_eq!(&verdict, &Ok(()));
        }
        // Of a mark the sweep does not ask whose it was.
        let has_mark = history.iter().any(|op| matches!(op.command, Command::ForgetToken { .. }));
        if !has_mark && !explained {
            prop_assert!(verdict.is_err(), "accepted what nothing explains: {history:?}");
        }
    }
}

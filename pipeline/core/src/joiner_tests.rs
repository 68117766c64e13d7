//! Stories and properties of the attempt table.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn joiner(attempts_max: usize) -> Joiner {
    let config = JoinerConfig {
        incarnation: Incarnation([9; 16]),
        attempts_max,
        bytes_max: 1_000,
        busy_retry: Duration::from_millis(7),
        backoff: BackoffBounds::default(),
    };
    Joiner::new(config, Prng::new(1))
}

fn key(n: u64) -> EventKey {
    EventKey::new(n, b"click").unwrap()
}

fn token(sequence: u64) -> Token {
    Token { incarnation: Incarnation([9; 16]), sequence }
}

fn at(ms: u64) -> Monotonic {
    Monotonic(Duration::from_millis(ms))
}

fn join(n: u64, waiter: u64, until: u64) -> Event {
    Event::Join { key: key(n), bytes: 10, waiter: Waiter { id: waiter, until: at(until) } }
}

fn fetched(sequence: u64, fetched: Fetched) -> Event {
    Event::Fetched { sequence: Sequence(sequence), fetched }
}

fn answered(sequence: u64, answer: InsertAnswer) -> Event {
    Event::Answered { sequence: Sequence(sequence), answer }
}

fn durable(sequence: u64) -> Event {
    Event::Durable { sequence: Sequence(sequence) }
}

fn fetch(sequence: u64, waiter: u64) -> Effect {
    Effect::Fetch { sequence: Sequence(sequence), waiter }
}

fn insert(n: u64, sequence: u64) -> Effect {
    Effect::Insert { key: key(n), token: token(sequence) }
}

fn write(n: u64, sequence: u64) -> Effect {
    Effect::Write { key: key(n), token: token(sequence) }
}

fn reply(waiter: u64, reply: Reply) -> Effect {
    Effect::Reply { waiter, reply }
}

fn ended(sequence: u64) -> Effect {
    Effect::Ended { sequence: Sequence(sequence) }
}

#[track_caller]
fn check(joiner: &mut Joiner, now: u64, event: Event, want: &[Effect]) {
    let mut out = Vec::new();
    joiner.step(at(now), event, &mut out);
    assert_eq!(out, want);
}

const EXPIRED: InsertAnswer = InsertAnswer::Expired { boundary: Timestamp::ZERO, ambiguous: false };

#[test]
fn a_click_is_joined_and_its_line_is_durable_before_the_reply() {
    let it = &mut joiner(10);
    check(it, 0, join(1, 100, 50), &[fetch(1, 100)]);
    check(it, 1, fetched(1, Fetched::Ready), &[insert(1, 1)]);
    check(it, 2, answered(1, InsertAnswer::Inserted), &[write(1, 1)]);
    check(it, 3, durable(1), &[reply(100, Reply::Joined), ended(1)]);
    assert_eq!(it.in_flight(), 0);
    // Another attempt of the same click has another token.
    check(it, 4, join(1, 101, 50), &[fetch(2, 101)]);
}

#[test]
fn a_second_join_of_a_key_waits_for_the_first_and_only_one_may_count_the_line() {
    let it = &mut joiner(10);
    check(it, 0, join(1, 100, 50), &[fetch(1, 100)]);
    check(it, 1, join(1, 101, 60), &[]);
    check(it, 1, join(1, 102, 60), &[]);
    check(it, 2, fetched(1, Fetched::Ready), &[insert(1, 1)]);
    check(it, 3, answered(1, InsertAnswer::Inserted), &[write(1, 1)]);
    // The first one ceased to wait at 50.
    check(it, 55, durable(1), &[reply(101, Reply::Joined), reply(102, Reply::Duplicate), ended(1)]);
}

#[test]
fn the_end_of_the_wait_is_not_the_end_of_the_attempt() {
    let it = &mut joiner(10);
    check(it, 0, join(1, 100, 50), &[fetch(1, 100)]);
    check(it, 1, fetched(1, Fetched::Ready), &[insert(1, 1)]);
    check(it, 90, answered(1, InsertAnswer::Inserted), &[write(1, 1)]);
    check(it, 91, durable(1), &[ended(1)]);
    assert_eq!(it.totals().joined, 1);
}

#[test]
fn unknown_is_asked_again_with_the_same_token_for_ever() {
    let it = &mut joiner(10);
    check(it, 0, join(1, 100, 50), &[fetch(1, 100)]);
    check(it, 0, fetched(1, Fetched::Ready), &[insert(1, 1)]);
    let mut now = 0;
    for round in 0..100 {
        // After an unknown answer a refusal proves nothing about the earlier insert.
        let answer = if round % 2 == 0 { InsertAnswer::Unknown } else { InsertAnswer::Refused };
        check(it, now, answered(1, answer), &[]);
        let due = it.next_deadline().unwrap();
        now = u64::try_from(due.0.as_millis()).unwrap();
        check(it, now.saturating_sub(1), Event::Tick, &[]);
        now += 1;
        check(it, now, Event::Tick, &[insert(1, 1)]);
        assert_eq!(it.next_deadline(), None);
    }
    check(it, now, answered(1, EXPIRED), &[ended(1)]);
    assert_eq!((it.totals().expired, it.totals().in_doubt, it.totals().unknown), (1, 1, 100));
}

#[test]
fn an_insert_that_was_not_tried_ends_the_attempt() {
    let it = &mut joiner(10);
    check(it, 0, join(1, 100, 50), &[fetch(1, 100)]);
    check(it, 0, fetched(1, Fetched::Ready), &[insert(1, 1)]);
    let busy = Reply::Busy { retry_after: Duration::from_millis(7) };
    check(it, 0, answered(1, InsertAnswer::Refused), &[reply(100, busy), ended(1)]);
}

#[test]
fn what_can_not_be_read_again_is_told_from_what_is_not_known_yet() {
    let it = &mut joiner(10);
    check(it, 0, join(1, 100, 50), &[fetch(1, 100)]);
    check(it, 0, fetched(1, Fetched::Unreadable), &[reply(100, Reply::Unreadable), ended(1)]);
}

#[test]
fn other_ends_write_nothing() {
    let position = Position { epoch: [1; 16], begun: 3, done: 2, is_final: false };
    let winner = Holder::Token(token(77));
    let expired = Reply::Expired { boundary: Timestamp::ZERO, in_doubt: false };
    let it = &mut joiner(10);
    for (n, (found, want)) in [
        (Fetched::Missing(position), Reply::Missing(position)),
        (Fetched::Behind, Reply::Behind),
        (Fetched::Filtered, Reply::Filtered),
    ]
    .into_iter()
    .enumerate()
    {
        let n = n as u64 + 1;
        check(it, 0, join(n, n, 50), &[fetch(n, n)]);
        check(it, 0, fetched(n, found), &[reply(n, want), ended(n)]);
    }
    for (n, answer, want) in [
        (4, InsertAnswer::Duplicate { winner }, Reply::Duplicate),
        (5, InsertAnswer::Duplicate { winner: Holder::Forgotten }, Reply::Duplicate),
        (6, EXPIRED, expired),
    ] {
        check(it, 0, join(n, n, 50), &[fetch(n, n)]);
        check(it, 0, fetched(n, Fetched::Ready), &[insert(n, n)]);
        check(it, 0, answered(n, answer), &[reply(n, want), ended(n)]);
    }
    assert_eq!(it.totals().in_doubt, 0);
}

#[test]
fn what_does_not_fit_is_refused_and_a_key_in_flight_needs_no_room() {
    let busy = Reply::Busy { retry_after: Duration::from_millis(7) };
    let it = &mut joiner(2);
    check(it, 0, join(1, 1, 50), &[fetch(1, 1)]);
    check(it, 0, join(2, 2, 50), &[fetch(2, 2)]);
    check(it, 0, join(3, 3, 50), &[reply(3, busy)]);
    check(it, 0, join(2, 4, 50), &[]);
    for waiter in 5..5 + ATTEMPT_WAITERS_MAX as u64 - 2 {
        check(it, 0, join(2, waiter, 50), &[]);
    }
    check(it, 0, join(2, 90, 50), &[reply(90, busy)]);
    // All of those ceased to wait.
    check(it, 60, join(2, 91, 90), &[]);
    check(it, 61, fetched(2, Fetched::Behind), &[reply(91, Reply::Behind), ended(2)]);

    let large = |waiter| Event::Join { key: key(9), bytes: 5_000, waiter: Waiter { id: waiter, until: at(99) } };
    check(it, 62, large(92), &[reply(92, busy)]);
    check(it, 62, fetched(1, Fetched::Behind), &[ended(1)]);
    check(it, 63, large(93), &[fetch(3, 93)]);
}

#[test]
fn a_stopping_joiner_ends_what_it_has_and_begins_nothing() {
    let it = &mut joiner(10);
    check(it, 0, join(1, 1, 50), &[fetch(1, 1)]);
    check(it, 0, Event::Stop, &[]);
    check(it, 0, join(2, 2, 50), &[reply(2, Reply::Busy { retry_after: Duration::from_millis(7) })]);
    check(it, 0, fetched(1, Fetched::Ready), &[insert(1, 1)]);
    check(it, 0, answered(1, InsertAnswer::Inserted), &[write(1, 1)]);
    check(it, 0, durable(1), &[reply(1, Reply::Joined), ended(1)]);
    assert_eq!(it.in_flight(), 0);
}

/// What a shell may do next, chosen by a number; the registry and the disk are played by the test.
#[derive(Default)]
struct Play {
    fetching: Vec<u64>,
    inserting: Vec<(EventKey, Token)>,
    writing: Vec<(EventKey, Token)>,
    registry: BTreeMap<EventKey, Token>,
    lines: BTreeSet<EventKey>,
    tokens_by_key: BTreeMap<Token, EventKey>,
    replied: BTreeSet<u64>,
    joined: u64,
}

impl Play {
    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Fetch { sequence, waiter: _ } => self.fetching.push(sequence.0),
                Effect::Insert { key, token } => {
                    let first = self.tokens_by_key.entry(token).or_insert_with(|| key.clone());
                    assert_eq!(*first, key, "{token} was given to two clicks");
                    assert!(self.inserting.iter().all(|(other, _)| *other != key), "two attempts of {key}");
                    self.inserting.push((key, token));
                }
                Effect::Write { key, token } => {
                    assert_eq!(self.registry.get(&key), Some(&token), "a line without its id");
                    self.writing.push((key, token));
                }
                Effect::Reply { waiter, reply } => {
                    assert!(self.replied.insert(waiter), "{waiter} was told twice");
                    if reply == Reply::Joined {
                        self.joined += 1;
                    }
                }
                Effect::Ended { sequence: _ } => (),
            }
        }
    }

    fn next(&mut self, choice: u8, waiter: u64, now: u64) -> Event {
        let pick = usize::from(choice) / 4;
        match choice % 4 {
            1 if !self.fetching.is_empty() => {
                let sequence = self.fetching.swap_remove(pick % self.fetching.len());
                fetched(sequence, if pick % 5 == 0 { Fetched::Behind } else { Fetched::Ready })
            }
            2 if !self.inserting.is_empty() => {
                let (key, token) = self.inserting.swap_remove(pick % self.inserting.len());
                let answer = match pick % 4 {
                    // Lost on the way there, or on the way back.
                    0 => InsertAnswer::Unknown,
                    1 => {
                        self.registry.entry(key).or_insert(token);
                        InsertAnswer::Unknown
                    }
                    2 | 3 => match *self.registry.entry(key).or_insert(token) {
                        winner if winner == token => InsertAnswer::Inserted,
                        winner => InsertAnswer::Duplicate { winner: Holder::Token(winner) },
                    },
                    _ => unreachable!(),
                };
                answered(token.sequence, answer)
            }
            3 if !self.writing.is_empty() => {
                let (key, token) = self.writing.swap_remove(pick % self.writing.len());
                assert!(self.lines.insert(key), "a click was written twice");
                durable(token.sequence)
            }
            0 => Event::Tick,
            _ => join(u64::from(choice % 11), waiter, now + 1 + u64::from(choice)),
        }
    }
}

proptest! {
    #[test]
    fn no_order_of_events_writes_a_click_twice(choices in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut it = joiner(6);
        let mut play = Play::default();
        for (n, choice) in choices.iter().enumerate() {
            let now = n as u64 * 20;
            let event = play.next(*choice, n as u64, now);
            let mut out = Vec::new();
            it.step(at(now), event, &mut out);
            play.take(out);
        }
        prop_assert!(play.joined <= play.lines.len() as u64);
        prop_assert_eq!(it.totals().joined, play.lines.len() as u64);
    }
}

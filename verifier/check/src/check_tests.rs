//! One row of the tables of the design per test.

use photon_types::{EventKey, Holder, Incarnation, Token};
use proptest::prelude::*;

use super::*;
use crate::finding::Kind;

const LIVE: Incarnation = Incarnation([1; 16]);
const OTHER: Incarnation = Incarnation([2; 16]);

fn key(id: &str) -> EventKey {
    EventKey::new(7, id.as_bytes()).unwrap()
}

fn token(incarnation: Incarnation) -> Token {
    Token { incarnation, sequence: 1 }
}

fn click(check: &mut Check, offset: u64, id: Option<&str>, progress: Progress) {
    check.add_click(Click { place: Place { source: 0, offset }, key: id.map(key), progress });
}

fn line(check: &mut Check, incarnation: Incarnation, offset: u64, id: &str, token: Token) {
    let place = LinePlace { incarnation, segment: 1, offset };
    check.add_line(Line { place, key: key(id), token });
}

/// One click with key `k`, and what else a case needs.
struct Case {
    progress: Progress,
    evidence: Option<Evidence>,
    has_line: bool,
    ends: &'static [EndState],
    answer: Option<Answer>,
    reach: Reach,
}

const CLAIMED: Option<Answer> = Some(Answer::Present(Holder::Token(Token { incarnation: LIVE, sequence: 1 })));

impl Default for Case {
    fn default() -> Case {
        Case {
            progress: Progress::Settled,
            evidence: None,
            has_line: false,
            ends: &[],
            answer: CLAIMED,
            reach: Reach::Whole,
        }
    }
}

#[track_caller]
fn check_state(case: Case, want: State) {
    let mut check = Check::new();
    click(&mut check, 0, Some("k"), case.progress);
    if let Some(evidence) = case.evidence {
        check.set_evidence(LIVE, evidence);
    }
    if case.has_line {
        line(&mut check, LIVE, 0, "k", token(LIVE));
    }
    for state in case.ends {
        check.add_end(End { place: Place { source: 0, offset: 0 }, key: Some(key("k")), state: *state });
    }
    if let Some(answer) = case.answer {
        check.set_answer(&key("k"), answer);
    }
    assert_eq!(check.state(&key("k"), case.reach), Some(want));
    let judgement = check.judge(case.reach);
    assert_eq!(judgement.ledger.keys, 1);
    let is_lost = matches!(want, State::Lost(_));
    assert_eq!(judgement.lost.len(), usize::from(is_lost));
}

#[test]
fn the_table_with_a_line() {
    for evidence in [Evidence::Sealed, Evidence::Busy, Evidence::Free, Evidence::NamedDead] {
        check_state(Case { evidence: Some(evidence), has_line: true, ..Case::default() }, State::Joined);
    }
    let held = State::Held(Held::Damaged(LIVE));
    check_state(Case { evidence: Some(Evidence::Damaged), has_line: true, ..Case::default() }, held);
}

#[test]
fn the_table_without_a_line() {
    let rows = [
        (Some(Evidence::Sealed), State::Lost(Loss::LineMissing(token(LIVE)))),
        (Some(Evidence::Busy), State::Pending(Pending::InFlight(LIVE))),
        (Some(Evidence::Free), State::Pending(Pending::NotFenced(LIVE))),
        (Some(Evidence::NamedDead), State::Pending(Pending::NotFenced(LIVE))),
        (Some(Evidence::Damaged), State::Held(Held::Damaged(LIVE))),
        (None, State::Held(Held::NoDirectory(LIVE))),
    ];
    for (evidence, want) in rows {
        check_state(Case { evidence, ..Case::default() }, want);
    }
}

#[test]
fn what_is_not_settled_is_pending_whatever_the_evidence() {
    for evidence in [Some(Evidence::Sealed), Some(Evidence::Damaged), None] {
        let case = Case { progress: Progress::Unsettled, evidence, ..Case::default() };
        check_state(case, State::Pending(Pending::NotSettled));
    }
    let absent = Case { progress: Progress::Unsettled, answer: Some(Answer::Absent), ..Case::default() };
    check_state(absent, State::Pending(Pending::NotSettled));
}

#[test]
fn absent_without_an_end_is_lost_and_with_one_is_ended() {
    let absent = |ends| Case { ends, answer: Some(Answer::Absent), ..Case::default() };
    check_state(absent(&[]), State::Lost(Loss::Unclaimed));
    for state in EndState::ALL {
        let ends: &'static [EndState] = match state {
            EndState::Filtered => &[EndState::Filtered],
            EndState::Unjoinable => &[EndState::Unjoinable],
            EndState::Expired => &[EndState::Expired],
            EndState::DeadLettered => &[EndState::DeadLettered],
        };
        check_state(absent(ends), State::Ended(state));
    }
    // The first of the ledger's order, not the last recorded.
    check_state(absent(&[EndState::DeadLettered, EndState::Unjoinable]), State::Ended(EndState::Unjoinable));
}

#[test]
fn a_recorded_end_does_not_hide_a_claim() {
    for state in [&[EndState::Filtered][..], &[EndState::Unjoinable], &[EndState::DeadLettered]] {
        let case = Case { ends: state, evidence: Some(Evidence::Sealed), ..Case::default() };
        check_state(case, State::Lost(Loss::LineMissing(token(LIVE))));
    }
}

#[test]
fn a_recorded_end_does_not_hide_a_line() {
    let case =
        Case { ends: &[EndState::Unjoinable], evidence: Some(Evidence::Busy), has_line: true, ..Case::default() };
    check_state(case, State::Joined);
}

#[test]
fn an_end_older_than_a_deleted_claim_is_no_end() {
    let mut check = Check::new();
    click(&mut check, 0, Some("k"), Progress::Settled);
    check.add_end(End { place: Place { source: 0, offset: 0 }, key: Some(key("k")), state: EndState::Unjoinable });
    check.set_answer(&key("k"), Answer::Absent);
    assert_eq!(check.state(&key("k"), Reach::Whole), Some(State::Ended(EndState::Unjoinable)));
    check.add_deleted(key("k"));
    assert_eq!(check.state(&key("k"), Reach::Whole), Some(State::Lost(Loss::Unclaimed)));
}

/// A settled click that was recorded as unjoinable, whose query is in the input.
fn doubted(progress: Progress, ends: &[EndState]) -> Check {
    let mut check = Check::new();
    click(&mut check, 0, Some("k"), progress);
    for state in ends {
        check.add_end(End { place: Place { source: 0, offset: 0 }, key: Some(key("k")), state: *state });
    }
    check.set_answer(&key("k"), Answer::Absent);
    check.set_query(&key("k"), QUERY);
    check
}

const QUERY: Place = Place { source: 3, offset: 44 };

#[test]
fn unjoinable_is_no_end_when_the_query_is_in_the_input() {
    let mut check = doubted(Progress::Settled, &[EndState::Unjoinable]);
    assert_eq!(check.unjoinable().collect::<Vec<_>>(), [&key("k")]);
    let loss = Loss::QueryFound { query: QUERY };
    assert_eq!(check.state(&key("k"), Reach::Whole), Some(State::Lost(loss)));
    let judgement = check.judge(Reach::Whole);
    assert_eq!((judgement.ledger.lost, judgement.ledger.unjoinable), (1, 0));
    let place = Place { source: 0, offset: 0 };
    assert_eq!(judgement.lost, [(key("k"), place, loss)]);
    assert_eq!((judgement.findings.count(Kind::LostQueryFound), judgement.findings.count(Kind::Lost)), (1, 0));
    assert_eq!(judgement.findings.kept()[0].query(), Some(QUERY));

    // Below the boundary it can not come back, and the reason is not that it had no query.
    check.set_answer(&key("k"), Answer::Expired);
    assert_eq!(check.state(&key("k"), Reach::Whole), Some(State::Ended(EndState::Expired)));
}

#[test]
fn a_doubted_end_waits_for_the_click_to_settle_and_does_not_hide_a_claim() {
    let mut check = doubted(Progress::Unsettled, &[EndState::Unjoinable]);
    assert_eq!(check.state(&key("k"), Reach::Whole), Some(State::Pending(Pending::NotSettled)));
    check = doubted(Progress::Settled, &[EndState::Unjoinable]);
    check.set_evidence(LIVE, Evidence::Sealed);
    check.set_answer(&key("k"), CLAIMED.unwrap());
    assert_eq!(check.state(&key("k"), Reach::Whole), Some(State::Lost(Loss::LineMissing(token(LIVE)))));
}

#[test]
fn a_query_does_not_put_other_ends_in_doubt() {
    // Whoever filtered it had read its query.
    let filtered = doubted(Progress::Settled, &[EndState::Unjoinable, EndState::Filtered]);
    assert_eq!(filtered.unjoinable().count(), 0);
    assert_eq!(filtered.state(&key("k"), Reach::Whole), Some(State::Ended(EndState::Filtered)));
    for state in [EndState::DeadLettered, EndState::Expired] {
        let check = doubted(Progress::Settled, &[state]);
        assert_eq!(check.state(&key("k"), Reach::Whole), Some(State::Ended(state)));
    }
}

#[test]
fn expired_is_an_end_with_or_without_a_record() {
    let expired = |ends| Case { ends, answer: Some(Answer::Expired), ..Case::default() };
    check_state(expired(&[]), State::Ended(EndState::Expired));
    check_state(expired(&[EndState::Unjoinable]), State::Ended(EndState::Unjoinable));
}

#[test]
fn nothing_is_final_before_the_registry_was_asked() {
    let case = Case { ends: &[EndState::Filtered], answer: None, ..Case::default() };
    check_state(case, State::Pending(Pending::NotAsked));
}

#[test]
fn a_forgotten_token_without_its_line_is_critical_only_with_the_whole_evidence() {
    let forgotten = Some(Answer::Present(Holder::Forgotten));
    check_state(Case { answer: forgotten, ..Case::default() }, State::Lost(Loss::Forgotten));
    check_state(Case { answer: forgotten, reach: Reach::Partial, ..Case::default() }, State::Held(Held::Forgotten));
    let damaged = Case { answer: forgotten, evidence: Some(Evidence::Damaged), ..Case::default() };
    check_state(damaged, State::Held(Held::Forgotten));
}

#[test]
fn a_key_at_two_places_counts_once_and_settles_with_the_later() {
    let mut check = Check::new();
    click(&mut check, 50, Some("k"), Progress::Unsettled);
    click(&mut check, 10, Some("k"), Progress::Settled);
    check.set_answer(&key("k"), Answer::Absent);
    assert_eq!(check.state(&key("k"), Reach::Whole), Some(State::Pending(Pending::NotSettled)));
    assert_eq!(check.judge(Reach::Whole).ledger.keys, 1);
}

#[test]
fn a_key_in_two_lines_is_a_duplicate_with_its_evidence() {
    let mut check = Check::new();
    click(&mut check, 0, Some("k"), Progress::Settled);
    check.set_evidence(LIVE, Evidence::Sealed);
    check.set_evidence(OTHER, Evidence::Busy);
    line(&mut check, LIVE, 0, "k", token(LIVE));
    line(&mut check, OTHER, 90, "k", token(OTHER));
    check.set_answer(&key("k"), Answer::Present(Holder::Token(token(LIVE))));
    let judgement = check.judge(Reach::Whole);
    assert_eq!((judgement.ledger.joined, judgement.ledger.duplicates), (1, 1));
    assert_eq!(judgement.findings.count(Kind::Duplicate), 1);
    let other = LinePlace { incarnation: OTHER, segment: 1, offset: 90 };
    let answer = Answer::Present(Holder::Token(token(LIVE)));
    let differs = Finding::TokenDiffers { key: key("k"), line: other, token: token(OTHER), answer };
    assert!(judgement.findings.kept().contains(&differs), "{:?}", judgement.findings);
}

#[test]
fn the_same_line_twice_in_one_incarnation_is_a_duplicate() {
    let mut check = Check::new();
    click(&mut check, 0, Some("k"), Progress::Settled);
    check.set_evidence(LIVE, Evidence::Busy);
    line(&mut check, LIVE, 0, "k", token(LIVE));
    line(&mut check, LIVE, 40, "k", token(LIVE));
    assert_eq!(check.judge(Reach::Whole).ledger.duplicates, 1);
}

#[test]
fn a_line_whose_claim_is_gone_or_another_is_found() {
    for answer in [Answer::Absent, Answer::Present(Holder::Token(token(OTHER)))] {
        let mut check = Check::new();
        click(&mut check, 0, Some("k"), Progress::Settled);
        check.set_evidence(LIVE, Evidence::Sealed);
        line(&mut check, LIVE, 0, "k", token(LIVE));
        check.set_answer(&key("k"), answer);
        let judgement = check.judge(Reach::Whole);
        assert_eq!(judgement.ledger.joined, 1);
        assert_eq!(judgement.findings.count(Kind::TokenDiffers), 1, "{answer}");
    }
}

#[test]
fn a_line_stays_good_when_its_token_is_forgotten_or_its_row_dropped() {
    for answer in [Answer::Expired, Answer::Present(Holder::Forgotten)] {
        let mut check = Check::new();
        click(&mut check, 0, Some("k"), Progress::Settled);
        check.set_evidence(LIVE, Evidence::Sealed);
        line(&mut check, LIVE, 0, "k", token(LIVE));
        check.set_answer(&key("k"), answer);
        assert_eq!(check.judge(Reach::Whole).findings.total(), 0, "{answer}");
    }
}

#[test]
fn a_line_with_the_token_of_another_incarnation_is_found() {
    let mut check = Check::new();
    click(&mut check, 0, Some("k"), Progress::Settled);
    check.set_evidence(LIVE, Evidence::Sealed);
    line(&mut check, LIVE, 0, "k", token(OTHER));
    check.set_answer(&key("k"), Answer::Present(Holder::Token(token(OTHER))));
    assert_eq!(check.judge(Reach::Whole).findings.count(Kind::ForeignToken), 1);
}

#[test]
fn a_line_without_a_click_is_found_unless_the_click_came_late() {
    let mut check = Check::new();
    check.set_evidence(LIVE, Evidence::Busy);
    line(&mut check, LIVE, 0, "k", token(LIVE));
    assert_eq!(check.unexplained().collect::<Vec<_>>(), [&key("k")]);
    assert_eq!(check.keys().collect::<Vec<_>>(), [&key("k")]);
    assert_eq!(check.judge(Reach::Whole).findings.count(Kind::NoClick), 1);
    check.add_late_click(key("k"));
    assert_eq!(check.unexplained().count(), 0);
    let judgement = check.judge(Reach::Whole);
    assert_eq!((judgement.findings.total(), judgement.ledger.keys), (0, 0));
}

#[test]
fn records_without_a_key_are_counted_by_place_beside_the_sum() {
    let mut check = Check::new();
    click(&mut check, 0, None, Progress::Settled);
    click(&mut check, 9, None, Progress::Settled);
    click(&mut check, 9, None, Progress::Settled);
    click(&mut check, 20, None, Progress::Unsettled);
    let end = |offset| End { place: Place { source: 0, offset }, key: None, state: EndState::DeadLettered };
    check.add_end(end(0));
    check.add_end(end(0));
    check.add_end(end(999)); // Behind the end of the judged input.
    let judgement = check.judge(Reach::Whole);
    assert_eq!((judgement.ledger.keys, judgement.ledger.unkeyed), (0, 3));
    let place = Place { source: 0, offset: 9 };
    assert_eq!(judgement.findings.kept(), [Finding::UnkeyedWithoutEnd { place }]);
}

#[test]
fn waiting_keys_are_counted_for_their_incarnation() {
    let mut check = Check::new();
    for (offset, id) in ["a", "b", "c"].into_iter().enumerate() {
        click(&mut check, offset as u64, Some(id), Progress::Settled);
    }
    check.set_evidence(LIVE, Evidence::Free);
    check.set_answer(&key("a"), Answer::Present(Holder::Token(token(LIVE))));
    check.set_answer(&key("b"), Answer::Present(Holder::Token(token(LIVE))));
    check.set_answer(&key("c"), Answer::Present(Holder::Token(token(OTHER))));
    let waiting = check.judge(Reach::Whole).waiting;
    assert_eq!(waiting[&LIVE], Waiting { not_fenced: 2, ..Waiting::default() });
    assert_eq!(waiting[&OTHER], Waiting { held: 1, ..Waiting::default() });
}

#[test]
fn findings_are_all_counted_and_some_kept() {
    let mut check = Check::new();
    let many = FINDINGS_KEPT_MAX + 5;
    for offset in 0..many {
        let id = format!("k{offset}");
        click(&mut check, offset, Some(&id), Progress::Settled);
        check.set_answer(&key(&id), Answer::Absent);
    }
    let judgement = check.judge(Reach::Whole);
    assert_eq!(judgement.findings.count(Kind::Lost), many);
    assert_eq!(judgement.findings.kept().len() as u64, FINDINGS_KEPT_MAX);
    assert_eq!(judgement.lost.len() as u64, many);
}

#[derive(Clone, Debug)]
enum Fed {
    Click(u64, Option<u8>, bool),
    Late(u8),
    End(u64, Option<u8>, usize),
    Line(u8, u8, u8),
    Evidence(u8, u8),
    Answer(u8, u8),
    Query(u8),
}

fn any_fed() -> impl Strategy<Value = Fed> {
    let id = 0..6_u8;
    prop_oneof![
        4 => (0..40_u64, proptest::option::of(id.clone()), any::<bool>()).prop_map(|(o, k, s)| Fed::Click(o, k, s)),
        1 => id.clone().prop_map(Fed::Late),
        1 => id.clone().prop_map(Fed::Query),
        2 => (0..40_u64, proptest::option::of(id.clone()), 0..4_usize).prop_map(|(o, k, e)| Fed::End(o, k, e)),
        3 => (id.clone(), 0..3_u8, 0..3_u8).prop_map(|(k, d, t)| Fed::Line(k, d, t)),
        2 => (0..3_u8, 0..5_u8).prop_map(|(i, e)| Fed::Evidence(i, e)),
        4 => (id, 0..6_u8).prop_map(|(k, a)| Fed::Answer(k, a)),
    ]
}

fn feed(check: &mut Check, fed: &Fed) {
    let key = |number: u8| EventKey::new(7, &[number]).unwrap();
    let token = |number: u8| Token { incarnation: Incarnation([number; 16]), sequence: 1 };
    match *fed {
        Fed::Click(offset, id, settled) => check.add_click(Click {
            place: Place { source: 0, offset },
            key: id.map(key),
            progress: if settled { Progress::Settled } else { Progress::Unsettled },
        }),
        Fed::Late(id) => check.add_late_click(key(id)),
        Fed::Query(id) => check.set_query(&key(id), QUERY),
        Fed::End(offset, id, state) => {
            let place = Place { source: 0, offset };
            check.add_end(End { place, key: id.map(key), state: EndState::ALL[state] });
        }
        Fed::Line(id, directory, by) => {
            let place = LinePlace { incarnation: Incarnation([directory; 16]), segment: 1, offset: u64::from(id) };
            check.add_line(Line { place, key: key(id), token: token(by) });
        }
        Fed::Evidence(incarnation, which) => {
            let all = [Evidence::Sealed, Evidence::Busy, Evidence::Free, Evidence::NamedDead, Evidence::Damaged];
            check.set_evidence(Incarnation([incarnation; 16]), all[usize::from(which)]);
        }
        Fed::Answer(id, which) => {
            let answer = match which {
                0 => Answer::Absent,
                1 => Answer::Expired,
                2 => Answer::Present(Holder::Forgotten),
                by => Answer::Present(Holder::Token(token(by - 3))),
            };
            check.set_answer(&key(id), answer);
        }
    }
}

proptest! {
    #[test]
    fn sums_add_up_whatever_is_fed(fed in proptest::collection::vec(any_fed(), 0..60), whole in any::<bool>()) {
        let mut check = Check::new();
        fed.iter().for_each(|fed| feed(&mut check, fed));
        let reach = if whole { Reach::Whole } else { Reach::Partial };
        let judgement = check.judge(reach);
        prop_assert_eq!(judgement.ledger.check(), Ok(()));

        let keyed: std::collections::BTreeSet<u8> =
            fed.iter().filter_map(|fed| match fed { Fed::Click(_, id, _) => *id, _ => None }).collect();
        let unkeyed: std::collections::BTreeSet<u64> = fed
            .iter()
            .filter_map(|fed| match fed { Fed::Click(offset, None, _) => Some(*offset), _ => None })
            .collect();
        prop_assert_eq!(judgement.ledger.keys, keyed.len() as u64);
        prop_assert_eq!(judgement.ledger.unkeyed, unkeyed.len() as u64);
        prop_assert_eq!(judgement.ledger.lost, judgement.lost.len() as u64);

        // No delete without a seal: of everything that can be wrong, this one bills twice.
        for (_, _, loss) in &judgement.lost {
            if let Loss::LineMissing(token) = loss {
                prop_assert_eq!(check.evidence.get(&token.incarnation), Some(&Evidence::Sealed));
            }
        }
    }
}

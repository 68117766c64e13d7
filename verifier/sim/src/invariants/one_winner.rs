//! One winner for each id, and every answer true at some moment of its call: linearizability
//! (Herlihy and Wing, Linearizability: A Correctness Condition for Concurrent Objects, 1990), of
//! what the clients have seen. The same check runs on the histories of real clusters.

use photon_check::history::{self, Op};

use super::Judgement;

pub(crate) fn check(history: &[Op]) -> Judgement {
    history::check(history).map_err(|violation| violation.to_string())
}

#[cfg(test)]
mod tests {
    use photon_types::{Command, EventKey, Holder, Incarnation, Outcome, Token};

    use super::super::made_up::check_evidence;
    use super::*;

    fn insert(sequence: u64, called: u64, returned: u64, outcome: Outcome) -> Op {
        let token = Token { incarnation: Incarnation([1; 16]), sequence };
        let command = Command::Insert { key: EventKey::new(5, b"k7").unwrap(), token };
        Op { command, called, answer: Some((returned, outcome)) }
    }

    #[test]
    fn two_winners_are_refused() {
        let winner = Holder::Token(Token { incarnation: Incarnation([1; 16]), sequence: 1 });
        let first = insert(1, 0, 5, Outcome::Inserted);
        let good = [first.clone(), insert(2, 3, 9, Outcome::Duplicate { winner })];
        assert_eq!(check(&good), Ok(()));
        check_evidence(check(&[first, insert(2, 3, 9, Outcome::Inserted)]), &["k7", "two winners"]);
    }
}

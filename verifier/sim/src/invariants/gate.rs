//! The durability gate: what states a durable fact leaves only when it is durable.
//!
//! "Stable storage … is used to maintain the information that the acceptor must remember. An
//! acceptor records its intended response in stable storage before actually sending the response"
//! (Lamport, Paxos Made Simple, 2001, section 2.5). A candidate's `Prepare` states such a fact too:
//! that no later life of it uses the ballot. And a machine runs only what its own journal holds.
//!
//! This looks at the rule itself. What a broken rule leads to, the other invariants see; to find
//! out whether they do, switch this one off.

use photon_core::{Ballot, Entry, Message, Value};
use photon_types::Slot;

use super::durable::Durable;
use super::{Judgement, Life};

/// A message leaves.
pub(crate) fn sent(life: Life, message: &Message, durable: &Durable) -> Judgement {
    match message {
        Message::Prepare(prepare) => promised(life, "Prepare", prepare.ballot, durable),
        Message::Promise(promise) => {
            promised(life, "Promise", promise.ballot, durable)?;
            promise.accepted.iter().try_for_each(|entry| {
                let Entry { slot, ballot, value } = entry;
                held(life, "Promise", *slot, durable, |(at, held)| at == ballot && held == value)
            })
        }
        Message::Accepted(accepted) => held(life, "Accepted", accepted.slot, durable, |(at, _)| *at == accepted.ballot),
        Message::Chosen(chosen) => chosen
            .entries
            .iter()
            .try_for_each(|entry| held(life, "Chosen", entry.slot, durable, |(_, held)| *held == entry.value)),
        // A leader's word is not about its disk, and a refusal or a question binds nobody.
        Message::Accept(_) | Message::Heartbeat(_) | Message::Nack(_) | Message::FetchChosen(_) => Ok(()),
    }
}

/// An entry goes to the machine.
pub(crate) fn applying(life: Life, entry: &Entry, durable: &Durable) -> Judgement {
    held(life, "Apply", entry.slot, durable, |(_, held)| *held == entry.value)
}

fn promised(life: Life, what: &str, ballot: Ballot, durable: &Durable) -> Judgement {
    let found = durable.promised(life.node);
    if ballot <= found {
        return Ok(());
    }
    Err(format!("{what} of {life} leaves for ballot {ballot}, but its journal durably promises {found} only"))
}

fn held(life: Life, what: &str, slot: Slot, durable: &Durable, is_it: impl Fn(&(Ballot, Value)) -> bool) -> Judgement {
    if durable.slot(life.node, slot).iter().any(is_it) {
        return Ok(());
    }
    Err(format!("{what} of {life} leaves for slot {slot}, but what it states of it is not durable there"))
}

#[cfg(test)]
mod tests {
    use photon_core::{Accept, Accepted, Chosen, Prepare, Promise, Record};
    use photon_types::NodeId;

    use super::super::made_up::{accepted, ballot, check_evidence, entry, life, value};
    use super::*;

    /// Node 1 has promised 2.2 and accepted "a" in slot 0 at ballot 1.1.
    fn durable() -> Durable {
        let mut durable = Durable::default();
        durable.note(NodeId(1), &accepted(0, ballot(1, 1), "a"));
        durable.note(NodeId(1), &Record::Promise { ballot: ballot(2, 2) });
        durable
    }

    fn promise(round: u64, accepted: Vec<Entry>) -> Message {
        let (commit_end, trimmed_end) = (Slot(0), Slot(0));
        Message::Promise(Promise { ballot: ballot(round, 2), commit_end, trimmed_end, accepted, more_from: None })
    }

    #[test]
    fn what_is_durable_may_be_said() {
        let chosen = Chosen {
            from: Slot(0),
            entries: vec![entry(0, ballot(1, 1), "a")],
            commit_end: Slot(1),
            trimmed_end: Slot(0),
        };
        let messages = [
            Message::Prepare(Prepare { ballot: ballot(2, 2), from: Slot(0) }),
            promise(2, vec![entry(0, ballot(1, 1), "a")]),
            Message::Accepted(Accepted { ballot: ballot(1, 1), slot: Slot(0) }),
            Message::Accept(Accept { ballot: ballot(9, 1), slot: Slot(9), value: value("x"), commit_end: Slot(0) }),
            Message::Chosen(chosen),
        ];
        for message in messages {
            assert_eq!(sent(life(1, 1), &message, &durable()), Ok(()));
        }
        assert_eq!(applying(life(1, 1), &entry(0, ballot(7, 1), "a"), &durable()), Ok(()));
    }

    #[test]
    fn what_is_not_durable_may_not() {
        let check = |message: Message, words: &[&str]| check_evidence(sent(life(1, 3), &message, &durable()), words);
        check(Message::Prepare(Prepare { ballot: ballot(3, 1), from: Slot(0) }), &["Prepare", "life 3", "3.1", "2.2"]);
        check(promise(3, vec![]), &["Promise", "3.2"]);
        check(promise(2, vec![entry(0, ballot(1, 1), "b")]), &["Promise", "slot 0"]);
        check(promise(2, vec![entry(1, ballot(1, 1), "a")]), &["Promise", "slot 1"]);
        check(Message::Accepted(Accepted { ballot: ballot(2, 2), slot: Slot(0) }), &["Accepted", "slot 0"]);
        check_evidence(applying(life(1, 1), &entry(1, ballot(1, 1), "a"), &durable()), &["Apply", "slot 1"]);
    }
}

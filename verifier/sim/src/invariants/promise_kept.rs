//! A promise is kept, over restarts too.
//!
//! "An acceptor … promises never again to accept a proposal numbered less than n", and "must
//! remember this information even if it fails and is then restarted" (Lamport, Paxos Made Simple,
//! 2001, sections 2.2 and 2.5). Only what somebody was told binds: a promise that was lost with a
//! crash before anybody heard of it was never given.

use std::collections::BTreeMap;

use photon_core::{Ballot, Entry, Message};
use photon_types::NodeId;

use super::{Judgement, Life};

#[derive(Debug, Default)]
pub(crate) struct PromiseKept {
    /// The highest ballot that each acceptor has told anybody to have promised, and in which life.
    told: BTreeMap<NodeId, (Ballot, Life)>,
}

impl PromiseKept {
    /// An acceptor writes an entry that it accepts.
    pub fn accepting(&self, life: Life, entry: &Entry) -> Judgement {
        self.not_below(life, entry.ballot, &format_args!("accepts slot {}", entry.slot))
    }

    /// A message leaves.
    pub fn sent(&mut self, life: Life, message: &Message) -> Judgement {
        let ballot = match message {
            Message::Promise(promise) => {
                self.not_below(life, promise.ballot, &"answers a Prepare")?;
                promise.ballot
            }
            Message::Accepted(accepted) => {
                self.not_below(life, accepted.ballot, &format_args!("says that it accepted slot {}", accepted.slot))?;
                accepted.ballot
            }
            // Whoever campaigns or leads at a ballot says that it has promised it itself.
            Message::Prepare(prepare) => prepare.ballot,
            Message::Accept(accept) => accept.ballot,
            Message::Heartbeat(heartbeat) => heartbeat.ballot,
            Message::Nack(_) | Message::FetchChosen(_) | Message::Chosen(_) => return Ok(()),
        };
        let told = self.told.entry(life.node).or_insert((ballot, life));
        if told.0 < ballot {
            *told = (ballot, life);
        }
        Ok(())
    }

    fn not_below(&self, life: Life, ballot: Ballot, does: &dyn std::fmt::Display) -> Judgement {
        match self.told.get(&life.node) {
            Some((told, by)) if ballot < *told => {
                Err(format!("{life} {does} at ballot {ballot}, but ballot {told} was promised by {by}"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use photon_core::{Accepted, Heartbeat, Promise};
    use photon_types::Slot;

    use super::super::made_up::{ballot, check_evidence, entry, life};
    use super::*;

    fn promise(round: u64) -> Message {
        let (commit_end, trimmed_end) = (Slot(0), Slot(0));
        Message::Promise(Promise {
            ballot: ballot(round, 2),
            commit_end,
            trimmed_end,
            accepted: vec![],
            more_from: None,
        })
    }

    #[test]
    fn what_was_told_binds_the_next_life() {
        let mut kept = PromiseKept::default();
        assert_eq!(kept.accepting(life(1, 1), &entry(0, ballot(1, 1), "a")), Ok(()));
        assert_eq!(kept.sent(life(1, 1), &promise(3)), Ok(()));
        assert_eq!(kept.accepting(life(1, 2), &entry(0, ballot(3, 2), "a")), Ok(()));
        let broken = kept.accepting(life(1, 2), &entry(7, ballot(2, 1), "a"));
        check_evidence(broken, &["node 1 in life 2 accepts slot 7", "2.1", "3.2", "life 1"]);
        check_evidence(kept.sent(life(1, 2), &promise(2)), &["answers a Prepare"]);
        let accepted = Message::Accepted(Accepted { ballot: ballot(1, 1), slot: Slot(4) });
        check_evidence(kept.sent(life(1, 2), &accepted), &["accepted slot 4"]);
        // Others are not bound.
        assert_eq!(kept.sent(life(3, 1), &promise(1)), Ok(()));
    }

    #[test]
    fn who_leads_at_a_ballot_has_promised_it() {
        let mut kept = PromiseKept::default();
        let heartbeat = Message::Heartbeat(Heartbeat { ballot: ballot(5, 1), commit_end: Slot(0) });
        assert_eq!(kept.sent(life(1, 1), &heartbeat), Ok(()));
        check_evidence(kept.accepting(life(1, 1), &entry(0, ballot(4, 2), "a")), &["5.1"]);
    }
}

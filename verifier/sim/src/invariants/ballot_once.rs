//! A ballot belongs to one life of one node.
//!
//! "Different proposals have different numbers … each proposer remembers (in stable storage) the
//! highest-numbered proposal it has tried to issue, and begins phase 1 with a higher proposal
//! number than any it has already used" (Lamport, Paxos Made Simple, 2001, section 2.5). Else
//! promises given to the first life count for the second: two values in one slot.

use std::collections::BTreeMap;

use photon_core::{Ballot, Message};

use super::{Judgement, Life};

#[derive(Debug, Default)]
pub(crate) struct BallotOnce {
    used: BTreeMap<Ballot, Life>,
}

impl BallotOnce {
    /// A message leaves.
    pub fn sent(&mut self, life: Life, message: &Message) -> Judgement {
        let ballot = match message {
            Message::Prepare(prepare) => prepare.ballot,
            Message::Accept(accept) => accept.ballot,
            Message::Heartbeat(heartbeat) => heartbeat.ballot,
            // These speak of ballots of others.
            Message::Promise(_)
            | Message::Nack(_)
            | Message::Accepted(_)
            | Message::FetchChosen(_)
            | Message::Chosen(_) => return Ok(()),
        };
        if ballot.node != life.node {
            return Err(format!("{life} uses ballot {ballot}, which is another node's"));
        }
        let first = *self.used.entry(ballot).or_insert(life);
        if first == life {
            return Ok(());
        }
        Err(format!("ballot {ballot} is used by {first} and by {life}"))
    }
}

#[cfg(test)]
mod tests {
    use photon_core::{Heartbeat, Prepare};
    use photon_types::Slot;

    use super::super::made_up::{ballot, check_evidence, life};
    use super::*;

    #[test]
    fn one_life_may_use_its_ballot_again_and_others_may_not() {
        let mut once = BallotOnce::default();
        let prepare = Message::Prepare(Prepare { ballot: ballot(1, 1), from: Slot(0) });
        let heartbeat = Message::Heartbeat(Heartbeat { ballot: ballot(1, 1), commit_end: Slot(0) });
        assert_eq!(once.sent(life(1, 1), &prepare), Ok(()));
        assert_eq!(once.sent(life(1, 1), &heartbeat), Ok(()));
        check_evidence(once.sent(life(1, 2), &prepare), &["ballot 1.1", "life 1", "life 2"]);
        check_evidence(once.sent(life(2, 1), &heartbeat), &["another node's"]);
    }
}

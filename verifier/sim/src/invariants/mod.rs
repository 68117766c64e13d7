//! What must hold, whatever happens: one invariant, one file, with its citation.
//!
//! Invariant: the checks look at what a cluster says and does from the outside (messages, records,
//! replies, tables), never at what a replica believes, except for the bounds in its status.
//!
//! `Watch` tells each of them what happened. A property that is switched off is not judged, but it
//! goes on being told, so that the others see the same.

mod durable;

mod agreement;
mod ballot_once;
mod digests;
mod durable_quorum;
mod gate;
mod liveness;
mod one_reply;
mod one_winner;
mod promise_kept;

use std::collections::BTreeSet;
use std::fmt;

use photon_check::history::Op;
use photon_core::machine::MemoryTable;
use photon_core::{Effect, Entry, Message, Record, Reply, RequestId};
use photon_types::{NodeId, Slot};

use self::agreement::Agreement;
use self::ballot_once::BallotOnce;
use self::digests::Digests;
use self::durable::Durable;
use self::durable_quorum::DurableQuorum;
pub(crate) use self::liveness::{Healed, NodeState};
use self::one_reply::OneReply;
use self::promise_kept::PromiseKept;

/// A life of a node: both are needed, since a life ends where the next may contradict it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Life {
    pub node: NodeId,
    /// From 1.
    pub number: u64,
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} in life {}", self.node, self.number)
    }
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// The core's own assertions, in every step.
    CoreAssertion,
    /// One value for each slot.
    Agreement,
    /// What an acceptor has said binds its later lives.
    PromiseKept,
    /// What counts as chosen, and what a client was told, is durable at a quorum.
    DurableQuorum,
    /// Messages that state a durable fact leave when it is durable.
    Gate,
    /// A ballot belongs to one life of one node.
    BallotOnce,
    /// One winner for each id, and every answer true at some moment of its call.
    OneWinner,
    /// A request gets one reply, and while its node lives it gets one.
    OneReply,
    /// Equal logs give equal tables, and digests say what the rows say.
    Digests,
    /// After healing, something new is committed, everywhere.
    Liveness,
}

impl Property {
    /// Every property.
    pub const ALL: [Property; 10] = [
        Property::CoreAssertion,
        Property::Agreement,
        Property::PromiseKept,
        Property::DurableQuorum,
        Property::Gate,
        Property::BallotOnce,
        Property::OneWinner,
        Property::OneReply,
        Property::Digests,
        Property::Liveness,
    ];

    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Property::CoreAssertion => "core-assertion",
            Property::Agreement => "agreement",
            Property::PromiseKept => "promise-kept",
            Property::DurableQuorum => "durable-quorum",
            Property::Gate => "gate",
            Property::BallotOnce => "ballot-once",
            Property::OneWinner => "one-winner",
            Property::OneReply => "one-reply",
            Property::Digests => "digests",
            Property::Liveness => "liveness",
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub property: Property,
    /// By what one can see it.
    pub evidence: String,
}

/// What one invariant says.
type Judgement = Result<(), String>;

/// All invariants of one run.
pub(crate) struct Watch {
    without: BTreeSet<Property>,
    durable: Durable,
    agreement: Agreement,
    promise_kept: PromiseKept,
    durable_quorum: DurableQuorum,
    ballot_once: BallotOnce,
    one_reply: OneReply,
    digests: Digests,
}

impl Watch {
    pub fn new(quorum: usize, without: BTreeSet<Property>) -> Watch {
        Watch {
            without,
            durable: Durable::default(),
            agreement: Agreement::new(quorum),
            promise_kept: PromiseKept::default(),
            durable_quorum: DurableQuorum::new(quorum),
            ballot_once: BallotOnce::default(),
            one_reply: OneReply::default(),
            digests: Digests::default(),
        }
    }

    fn judge(&self, property: Property, judgement: Judgement) -> Result<(), Violation> {
        match judgement {
            Err(evidence) if !self.without.contains(&property) => Err(Violation { property, evidence }),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Slots that are chosen.
    pub fn chosen_slots(&self) -> u64 {
        self.agreement.chosen_slots()
    }

    /// A step has emitted this.
    pub fn emitted(&mut self, life: Life, effect: &Effect) -> Result<(), Violation> {
        match effect {
            Effect::Persist { seq: _, record } => self.written(life, record),
            Effect::Apply { entry, wanted: _ } => self.applying(life, entry),
            Effect::Send { to: _, message } => self.sent(life, message),
            Effect::Reply { request, reply } => self.replied(*request, reply),
            Effect::Read { .. } => Ok(()),
        }
    }

    fn written(&mut self, life: Life, record: &Record) -> Result<(), Violation> {
        let Record::Accepted { entry, chosen } = record else { return Ok(()) };
        let judgement = self.agreement.proposed(life, entry.slot, entry.ballot, &entry.value);
        self.judge(Property::Agreement, judgement)?;
        if *chosen {
            return self.judge(Property::Agreement, self.agreement.learned(life, entry.slot, &entry.value));
        }
        self.judge(Property::PromiseKept, self.promise_kept.accepting(life, entry))
    }

    /// A record is on stable storage.
    pub fn durable(&mut self, life: Life, record: &Record) -> Result<(), Violation> {
        self.durable.note(life.node, record);
        let judgement = self.agreement.durable(life, record);
        self.judge(Property::Agreement, judgement)
    }

    fn sent(&mut self, life: Life, message: &Message) -> Result<(), Violation> {
        self.judge(Property::Gate, gate::sent(life, message, &self.durable))?;
        let judgement = self.ballot_once.sent(life, message);
        self.judge(Property::BallotOnce, judgement)?;
        let judgement = self.promise_kept.sent(life, message);
        self.judge(Property::PromiseKept, judgement)?;
        match message {
            Message::Accept(accept) => {
                let judgement = self.agreement.proposed(life, accept.slot, accept.ballot, &accept.value);
                self.judge(Property::Agreement, judgement)
            }
            Message::Chosen(chosen) => chosen.entries.iter().try_for_each(|entry| {
                self.judge(Property::Agreement, self.agreement.learned(life, entry.slot, &entry.value))?;
                self.judge(Property::DurableQuorum, self.durable_quorum.chosen(life, entry.slot, &self.agreement))
            }),
            Message::Prepare(_)
            | Message::Promise(_)
            | Message::Nack(_)
            | Message::Accepted(_)
            | Message::Heartbeat(_)
            | Message::FetchChosen(_) => Ok(()),
        }
    }

    fn applying(&mut self, life: Life, entry: &Entry) -> Result<(), Violation> {
        self.judge(Property::Gate, gate::applying(life, entry, &self.durable))?;
        self.judge(Property::DurableQuorum, self.durable_quorum.chosen(life, entry.slot, &self.agreement))?;
        let judgement = self.agreement.applying(life, entry.slot, &entry.value);
        self.judge(Property::Agreement, judgement)
    }

    /// A replica says that everything below is chosen.
    pub fn committed(&mut self, life: Life, commit_end: Slot) -> Result<(), Violation> {
        let judgement = self.durable_quorum.committed(life, commit_end, &self.agreement);
        self.judge(Property::DurableQuorum, judgement)
    }

    /// A request has reached a node that lives.
    pub fn requested(&mut self, life: Life, request: RequestId) {
        self.one_reply.requested(life, request);
    }

    fn replied(&mut self, request: RequestId, reply: &Reply) -> Result<(), Violation> {
        let judgement = self.one_reply.replied(request);
        self.judge(Property::OneReply, judgement)?;
        let Reply::Outcomes { slot, outcomes: _ } = reply else { return Ok(()) };
        self.judge(Property::DurableQuorum, self.durable_quorum.told(*slot, &self.agreement, &self.durable))
    }

    /// A life has ended; what waited in it gets no reply.
    pub fn crashed(&mut self, life: Life) {
        self.one_reply.crashed(life);
    }

    /// A machine has written its table.
    pub fn applied(&mut self, life: Life, applied_end: Slot, table: &MemoryTable) -> Result<(), Violation> {
        let judgement = self.digests.applied(life, applied_end, table);
        self.judge(Property::Digests, judgement)
    }

    /// The cluster has healed, and has had its time.
    pub fn healed(&self, healed: &Healed) -> Result<(), Violation> {
        self.judge(Property::Liveness, healed.check())?;
        self.judge(Property::OneReply, self.one_reply.finished())
    }

    /// Whether requests wait for their reply.
    pub fn is_waiting(&self) -> bool {
        self.one_reply.is_waiting()
    }

    /// All that the clients have seen.
    pub fn finished(&self, history: &[Op]) -> Result<(), Violation> {
        self.judge(Property::OneWinner, one_winner::check(history))
    }
}

#[cfg(test)]
pub(crate) mod made_up {
    //! Parts of states that no cluster should ever be in.

    use photon_core::{Ballot, Entry, Record, Value};
    use photon_types::{NodeId, Slot};

    use super::Life;

    pub fn life(node: u32, number: u64) -> Life {
        Life { node: NodeId(node), number }
    }

    pub fn ballot(round: u64, node: u32) -> Ballot {
        Ballot { round, node: NodeId(node) }
    }

    pub fn value(text: &'static str) -> Value {
        Value::from_static(text.as_bytes())
    }

    pub fn entry(slot: u64, ballot: Ballot, text: &'static str) -> Entry {
        Entry { slot: Slot(slot), ballot, value: value(text) }
    }

    pub fn accepted(slot: u64, ballot: Ballot, text: &'static str) -> Record {
        Record::Accepted { entry: entry(slot, ballot, text), chosen: false }
    }

    /// The evidence must name what a reader needs.
    #[track_caller]
    pub fn check_evidence(judgement: Result<(), String>, words: &[&str]) {
        let evidence = judgement.expect_err("this state must be refused");
        for word in words {
            assert!(evidence.contains(word), "{word:?} is missing: {evidence}");
        }
    }
}

#[cfg(test)]
mod tests {
    use photon_core::Prepare;
    use photon_types::{Command, EventKey, Holder, Incarnation, Outcome, Token};

    use super::made_up::{ballot, life};
    use super::*;

    fn new_watch() -> Watch {
        watch(&[])
    }

    fn watch(without: &[Property]) -> Watch {
        Watch::new(2, without.iter().copied().collect())
    }

    #[track_caller]
    fn check(result: Result<(), Violation>, want: Option<Property>) {
        assert_eq!(result.err().map(|violation| violation.property), want);
    }

    #[test]
    fn what_is_switched_off_is_not_judged_and_the_others_are() {
        let prepare =
            Effect::Send { to: NodeId(2), message: Message::Prepare(Prepare { ballot: ballot(1, 1), from: Slot(0) }) };
        check(watch(&[]).emitted(life(1, 1), &prepare), Some(Property::Gate));
        let mut without_gate = watch(&[Property::Gate]);
        check(without_gate.emitted(life(1, 1), &prepare), None);
        check(without_gate.emitted(life(1, 2), &prepare), Some(Property::BallotOnce));
    }

    #[test]
    fn a_reply_is_judged_by_count_and_by_what_is_durable() {
        let reply = |reply| Effect::Reply { request: RequestId(1), reply };
        let mut watch = new_watch();
        check(watch.emitted(life(1, 1), &reply(Reply::Unknown)), Some(Property::OneReply));
        watch.requested(life(1, 1), RequestId(1));
        check(watch.emitted(life(1, 1), &reply(Reply::Unknown)), Some(Property::OneReply));
        let mut watch = new_watch();
        watch.requested(life(1, 1), RequestId(1));
        let told = Reply::Outcomes { slot: Slot(3), outcomes: vec![Outcome::Inserted] };
        check(watch.emitted(life(1, 1), &reply(told)), Some(Property::DurableQuorum));
    }

    #[test]
    fn the_clients_history_is_judged() {
        let key = EventKey::new(5, b"a").unwrap();
        let winner = Holder::Token(Token { incarnation: Incarnation([9; 16]), sequence: 1 });
        let op = Op { command: Command::Lookup { key }, called: 0, answer: Some((1, Outcome::Present { winner })) };
        check(watch(&[]).finished(&[op]), Some(Property::OneWinner));
        check(watch(&[]).finished(&[]), None);
    }
}

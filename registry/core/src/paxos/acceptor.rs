//! The acceptor: promises and accepts.
//!
//! Invariant: `promised` never goes back, also over a crash, as far as anybody was told. What is
//! said because of a promise or an accepted entry waits for the write that makes it durable.
//!
//! Not here: who counts promises (`election`) and acceptances (`proposer`).

use photon_types::{NodeId, Slot};

use super::ballot::Ballot;
use super::gate::Gate;
use super::log::in_short;
use super::message::{Accept, Accepted, Entry, Message, Nack, Prepare, Promise};
use crate::config::Config;
use crate::effect::{Effect, IoSeq, Record};
use crate::mutant::Mutant;
use crate::replica::Replica;

/// What is done with an `Accept`.
enum Admission {
    /// It is accepted.
    Handle,
    /// It is below the promise.
    Refuse,
    /// It says who leads, but its slot is not accepted now.
    FollowOnly,
    /// It says nothing that counts.
    Ignore,
}

/// What a journal says of the acceptor, gathered record by record.
#[derive(Debug, Default)]
pub(crate) struct RecoveredPromise {
    /// The highest promise. Accepting at a ballot promised it; learning a chosen entry did not.
    pub promised: Ballot,
    /// The highest round in any record.
    pub round_seen: u64,
}

impl RecoveredPromise {
    pub fn note(&mut self, config: &Config, record: &Record) {
        let (ballot, is_promise) = match record {
            Record::Promise { ballot } => (*ballot, !config.mutated(Mutant::RecoveryIgnoresPromises)),
            Record::Accepted { entry, chosen } => (entry.ballot, !chosen),
            Record::CommitHint { commit_end: _ } => return,
        };
        if is_promise {
            self.promised = self.promised.max(ballot);
        }
        if is_promise || matches!(record, Record::Accepted { .. }) {
            self.round_seen = self.round_seen.max(ballot.round);
        }
    }
}

impl Replica {
    /// Promises a ballot above the last one; returns the write that makes it durable.
    pub(crate) fn raise_promise(&mut self, ballot: Ballot, out: &mut Vec<Effect>) -> IoSeq {
        assert!(self.promised < ballot, "{ballot} does not raise the promise {}", self.promised);
        self.promised = ballot;
        self.see_round(ballot);
        if self.config.mutated(Mutant::PromiseNotWritten) {
            return self.gate.issued();
        }
        self.gate.persist(Record::Promise { ballot }, out)
    }

    pub(crate) fn on_prepare(&mut self, from: NodeId, message: &Prepare, out: &mut Vec<Effect>) {
        let Prepare { ballot, from: from_slot } = message;
        if ballot.node != from {
            self.counters.ignored_messages += 1;
            return;
        }
        self.see_round(*ballot);
        if *ballot < self.promised {
            return self.send_nack(from, *ballot, out);
        }
        // The same ballot again asks for a lost promise, or for the next page of it.
        if self.promised < *ballot {
            self.raise_promise(*ballot, out);
            self.become_follower(None, out);
        }
        assert!(self.promised == *ballot);
        self.send_promise(from, *from_slot, out);
    }

    fn send_promise(&mut self, to: NodeId, from_slot: Slot, out: &mut Vec<Effect>) {
        let (accepted, more_from) = self.log.open_page(from_slot, &self.config.limits);
        let promise = Promise {
            ballot: self.promised,
            commit_end: self.log.commit_end(),
            trimmed_end: self.log.trimmed_end(),
            accepted,
            more_from,
        };
        // Everything written so far: the promise, and the entries that it reports.
        let mut seq = self.gate.issued();
        if self.config.mutated(Mutant::PromiseBeforeDurable) {
            seq = Gate::RECOVERED;
        }
        self.gate.send_when_durable(seq, to, Message::Promise(promise), out);
    }

    pub(crate) fn send_nack(&mut self, to: NodeId, refused: Ballot, out: &mut Vec<Effect>) {
        let promised = self.promised;
        out.push(Effect::Send { to, message: Message::Nack(Nack { refused, promised }) });
    }

    pub(crate) fn on_accept(&mut self, from: NodeId, message: Accept, out: &mut Vec<Effect>) {
        self.see_round(message.ballot);
        // The leader that is followed already: what it says is chosen makes room for what it
        // proposes. Else, with no more room than its window, each slot would wait to be sent again.
        if message.ballot.node == from && message.ballot == self.promised {
            self.on_claim(from, message.ballot, message.commit_end);
        }
        match self.admit_accept(from, &message) {
            Admission::Ignore => self.counters.ignored_messages += 1,
            Admission::Refuse => self.send_nack(from, message.ballot, out),
            Admission::FollowOnly => {
                if self.promised < message.ballot {
                    self.raise_promise(message.ballot, out);
                }
                self.follow(from, out);
                self.on_claim(from, message.ballot, message.commit_end);
            }
            Admission::Handle => {
                let Accept { ballot, slot, value, commit_end } = message;
                let seq = self.accept(Entry { slot, ballot, value }, out);
                self.send_accepted(from, ballot, slot, seq, out);
                self.follow(from, out);
                self.on_claim(from, ballot, commit_end);
            }
        }
    }

    fn admit_accept(&self, from: NodeId, message: &Accept) -> Admission {
        let limits = &self.config.limits;
        let Accept { ballot, slot, value: _, commit_end: _ } = message;
        if ballot.node != from {
            return Admission::Ignore;
        }
        if *ballot < self.promised && !self.config.mutated(Mutant::AcceptBelowPromise) {
            return Admission::Refuse;
        }
        // What is trimmed is chosen and gone: nobody is answered for it.
        if *slot < self.log.trimmed_end() {
            return Admission::FollowOnly;
        }
        // Too far ahead to be kept in memory: it will be fetched when it is chosen.
        let ahead = |end: Slot| slot.0.saturating_sub(end.0);
        let is_far = limits.open_slots_max <= ahead(self.log.commit_end());
        let is_stalled = limits.unapplied_slots_max + limits.open_slots_max <= ahead(self.log.applied_end());
        if is_far || is_stalled { Admission::FollowOnly } else { Admission::Handle }
    }

    /// Takes an entry of a ballot not below the promise; returns the write that makes it durable.
    /// That write is a promise too.
    fn accept(&mut self, entry: Entry, out: &mut Vec<Effect>) -> IoSeq {
        assert!(self.promised <= entry.ballot || self.config.mutated(Mutant::AcceptBelowPromise));
        let slot = entry.slot;
        if let Some(held) = self.log.get(slot) {
            if slot < self.log.commit_end() || held.ballot == entry.ballot {
                assert!(
                    held.value == entry.value,
                    "slot {slot} holds {} of ballot {}, and {} of ballot {} is to be accepted",
                    in_short(&held.value),
                    held.ballot,
                    in_short(&entry.value),
                    entry.ballot,
                );
            }
            if held.ballot == entry.ballot {
                let seq = held.seq;
                // Only an entry learned as chosen can be here without a promise.
                return if self.promised < entry.ballot { self.raise_promise(entry.ballot, out) } else { seq };
            }
        }
        self.promised = self.promised.max(entry.ballot);
        let seq = self.gate.persist(Record::Accepted { entry: entry.clone(), chosen: false }, out);
        // A chosen slot has its value: only the journal learns that it was accepted once more.
        if self.log.commit_end() <= slot {
            self.log.put(entry, seq, false);
        }
        seq
    }

    fn send_accepted(&mut self, to: NodeId, ballot: Ballot, slot: Slot, seq: IoSeq, out: &mut Vec<Effect>) {
        let mut seq = seq;
        if self.config.mutated(Mutant::AcceptedBeforeDurable) {
            seq = Gate::RECOVERED;
        }
        self.gate.send_when_durable(seq, to, Message::Accepted(Accepted { ballot, slot }), out);
    }
}

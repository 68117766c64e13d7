//! Catch-up: getting chosen entries that one missed, and giving them to others.
//!
//! Invariants: a chosen entry learned from a peer is written like an accepted one before it is
//! applied; nobody is given what is not durable here and known to be chosen, nor anything below
//! `trimmed_end`. Questions and reads of the journal in flight are bounded, and one answer is one
//! message.

use std::collections::BTreeMap;

use photon_types::{NodeId, Slot};

use super::message::{Chosen, Entry, FetchChosen, Message};
use super::role::Role;
use crate::config::ENTRY_OVERHEAD_BYTES;
use crate::effect::{Effect, Record};
use crate::event::{Monotonic, ReadId};
use crate::replica::Replica;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CatchUp {
    /// The last `commit_end` heard of each peer: whom it makes sense to ask.
    heard: BTreeMap<NodeId, Slot>,
    asking: Asking,
    /// Reads of the journal in flight, and whom they are for.
    reads: BTreeMap<ReadId, Read>,
    last_read: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Asking {
    /// Nothing is missing.
    #[default]
    Nobody,
    /// Something is, but it may be on its way: only if `commit_end` does not move until then.
    Soon { commit_end: Slot, at: Monotonic },
    /// An answer has come, or the answer is urgent: the next question goes out at once.
    Next { peer: Option<NodeId> },
    /// The question is out; another peer is asked when no answer comes until then.
    Asked { peer: NodeId, from: Slot, at: Monotonic },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Read {
    to: NodeId,
    from: Slot,
}

impl CatchUp {
    /// A leader's word: it only grows.
    pub fn heard_at_least(&mut self, peer: NodeId, commit_end: Slot) {
        let heard = self.heard.entry(peer).or_default();
        *heard = commit_end.max(*heard);
    }

    /// A peer's answer: after a restart it may have less.
    pub fn heard_exactly(&mut self, peer: NodeId, commit_end: Slot) {
        self.heard.insert(peer, commit_end);
    }

    pub fn ask_at_once(&mut self) {
        self.asking = Asking::Next { peer: None };
    }

    fn has_more(&self, peer: NodeId, commit_end: Slot) -> bool {
        self.heard.get(&peer).is_some_and(|end| commit_end < *end)
    }

    fn is_behind(&self, commit_end: Slot) -> bool {
        self.heard.values().any(|end| commit_end < *end)
    }

    /// Round the peers that have more, beginning behind `last`.
    fn peer_behind(&self, last: NodeId, commit_end: Slot) -> Option<NodeId> {
        let has_more = |peer: &&NodeId| self.has_more(**peer, commit_end);
        let later = self.heard.keys().filter(|peer| last < **peer).find(has_more);
        later.or_else(|| self.heard.keys().find(has_more)).copied()
    }
}

impl Replica {
    /// Asks for chosen entries if this replica is behind, nobody is asked yet, and the machine
    /// keeps up.
    pub(crate) fn fetch_what_is_missing(&mut self, out: &mut Vec<Effect>) {
        let commit_end = self.log.commit_end();
        if matches!(self.role, Role::Leader(_)) || !self.catchup.is_behind(commit_end) {
            self.catchup.asking = Asking::Nobody;
            return;
        }
        if !self.has_room_to_fetch() {
            return;
        }
        let now = self.now.monotonic;
        let soon = Asking::Soon { commit_end, at: now.after(self.config.timings.resend_interval) };
        match self.catchup.asking {
            Asking::Nobody => self.catchup.asking = soon,
            Asking::Soon { commit_end: stuck_at, at: _ } if stuck_at < commit_end => self.catchup.asking = soon,
            Asking::Soon { commit_end: _, at } if at <= now => self.ask(self.best_peer(None), out),
            Asking::Next { peer } => self.ask(self.best_peer(peer), out),
            Asking::Asked { peer: _, from, at: _ } if from < commit_end => self.catchup.asking = soon,
            Asking::Asked { peer, from: _, at } if at <= now => {
                self.ask(self.catchup.peer_behind(peer, commit_end), out);
            }
            Asking::Soon { .. } | Asking::Asked { .. } => (),
        }
    }

    fn has_room_to_fetch(&self) -> bool {
        self.log.unapplied_slots() < self.config.limits.unapplied_slots_max
    }

    /// The one that has just answered, or the leader, or anybody; who has more.
    fn best_peer(&self, last: Option<NodeId>) -> Option<NodeId> {
        let commit_end = self.log.commit_end();
        let liked = last.or_else(|| self.leader()).filter(|peer| self.catchup.has_more(*peer, commit_end));
        liked.or_else(|| self.catchup.peer_behind(NodeId(0), commit_end))
    }

    fn ask(&mut self, peer: Option<NodeId>, out: &mut Vec<Effect>) {
        let Some(peer) = peer else { return };
        let from = self.log.commit_end();
        // A page may have to be read from a disk and take its time on the wire.
        let at = self.now.monotonic.after(self.config.timings.resend_interval * 2);
        self.catchup.asking = Asking::Asked { peer, from, at };
        out.push(Effect::Send { to: peer, message: Message::FetchChosen(FetchChosen { from }) });
    }

    pub(crate) fn fetch_deadline(&self) -> Option<Monotonic> {
        // Without room the machine's next report comes first.
        if !self.has_room_to_fetch() {
            return None;
        }
        match self.catchup.asking {
            Asking::Soon { commit_end: _, at } | Asking::Asked { peer: _, from: _, at } => Some(at),
            Asking::Nobody | Asking::Next { peer: _ } => None,
        }
    }

    pub(crate) fn on_chosen(&mut self, from: NodeId, message: Chosen, out: &mut Vec<Effect>) {
        let Chosen { from: _, entries, commit_end, trimmed_end: _ } = message;
        self.catchup.heard_exactly(from, commit_end);
        if let Role::Leader(_) = self.role {
            // Late: a leader has learned what was chosen before it led, and moves `commit_end`
            // only over its own ballot.
            self.counters.ignored_messages += 1;
            return;
        }
        let before = self.log.commit_end();
        for entry in entries {
            if entry.slot == self.log.commit_end() {
                self.learn_chosen(entry, out);
            }
        }
        if before < self.log.commit_end() {
            self.catchup.asking = Asking::Next { peer: Some(from) };
        }
        self.commit_what_is_claimed();
        self.lead_when_ready(out);
    }

    fn learn_chosen(&mut self, entry: Entry, out: &mut Vec<Effect>) {
        self.see_round(entry.ballot);
        let is_here = self.log.get(entry.slot).is_some_and(|held| held.value == entry.value);
        if !is_here {
            let record = Record::Accepted { entry: entry.clone(), chosen: true };
            let seq = self.gate.persist(record, out);
            self.log.put(entry, seq, true);
        }
        self.log.commit_next();
        self.counters.entries_fetched += 1;
    }

    pub(crate) fn on_fetch_chosen(&mut self, from: NodeId, message: &FetchChosen, out: &mut Vec<Effect>) {
        let first = message.from;
        if first < self.log.trimmed_end() || self.log.cache_start() <= first {
            let is_trimmed = first < self.log.trimmed_end();
            let limits = &self.config.limits;
            let entries = if is_trimmed { Vec::new() } else { self.log.chosen_page(first, &self.gate, limits) };
            return self.send_chosen(from, first, entries, out);
        }
        // A question asked again must not be read twice.
        let is_reading = self.catchup.reads.values().any(|read| read.to == from && read.from == first);
        if is_reading || self.config.limits.reads_max <= self.catchup.reads.len() {
            self.counters.ignored_messages += 1;
            return;
        }
        let bytes_max = self.config.limits.page_bytes_max;
        let slots_max = u64::try_from((bytes_max / ENTRY_OVERHEAD_BYTES).max(1)).expect("a usize fits 64 bits");
        let to_end = Slot(first.0.saturating_add(slots_max)).min(self.log.cache_start());
        self.catchup.last_read += 1;
        let read = ReadId(self.catchup.last_read);
        self.catchup.reads.insert(read, Read { to: from, from: first });
        out.push(Effect::Read { read, from: first, to_end, bytes_max });
    }

    pub(crate) fn on_entries_read(&mut self, read: ReadId, entries: Vec<Entry>, out: &mut Vec<Effect>) {
        let Some(Read { to, from }) = self.catchup.reads.remove(&read) else {
            panic!("{read:?} was never asked for, or is answered twice");
        };
        assert!(!entries.is_empty(), "a read from slot {from} found nothing, though the slot is durable here");
        for (entry, slot) in entries.iter().zip(from.0..) {
            assert!(entry.slot.0 == slot, "a read from slot {from} found slot {} in place of {slot}", entry.slot);
        }
        self.send_chosen(to, from, entries, out);
    }

    fn send_chosen(&mut self, to: NodeId, from: Slot, entries: Vec<Entry>, out: &mut Vec<Effect>) {
        let chosen = Chosen { from, entries, commit_end: self.log.commit_end(), trimmed_end: self.log.trimmed_end() };
        out.push(Effect::Send { to, message: Message::Chosen(chosen) });
    }
}

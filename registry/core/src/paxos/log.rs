//! The replicated log as one replica holds it in memory: open entries, chosen entries on their way
//! to the machine, and a bounded cache of applied ones for peers that are a little behind.
//!
//! Invariants: `trimmed_end ≤ applied_end ≤ applying_end ≤ commit_end ≤ accepted_end`; no bound
//! ever goes back; a slot known to be chosen never changes its value.
//!
//! Not here: who may accept what (`acceptor`), and why a slot is chosen (`learner`, `proposer`).

use std::collections::BTreeMap;

use photon_types::Slot;
use xxhash_rust::xxh3::xxh3_64;

use super::ballot::Ballot;
use super::gate::Gate;
use super::message::{Entry, Value};
use crate::config::{ENTRY_OVERHEAD_BYTES, Limits};
use crate::effect::IoSeq;

/// What stands in a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LogEntry {
    /// The ballot at which it was accepted here, or under which it was learned as chosen.
    pub ballot: Ballot,
    pub value: Value,
    /// The write that makes it durable here.
    pub seq: IoSeq,
    /// Known to be chosen. Always set below `commit_end`; above it only after a recovery that
    /// found it marked so.
    pub is_chosen: bool,
}

/// The log of one replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Log {
    entries: BTreeMap<Slot, LogEntry>,
    /// Every slot of `cache_start..commit_end` is in `entries`, and nothing below `cache_start`.
    cache_start: Slot,
    /// What the entries below `applied_end` cost.
    cache_bytes: usize,
    /// Nobody is answered for slots below. Moves with trimming.
    trimmed_end: Slot,
    /// The machine has applied everything below.
    applied_end: Slot,
    /// The machine was asked to apply everything below.
    applying_end: Slot,
    /// Everything below is known to be chosen, and in this log.
    commit_end: Slot,
    /// Behind the highest slot that holds anything.
    accepted_end: Slot,
}

impl Log {
    /// A log that holds nothing yet, of a replica whose machine has applied what is below.
    pub fn new(applied_end: Slot) -> Log {
        Log {
            entries: BTreeMap::new(),
            cache_start: applied_end,
            cache_bytes: 0,
            trimmed_end: Slot(0),
            applied_end,
            applying_end: applied_end,
            commit_end: applied_end,
            accepted_end: applied_end,
        }
    }

    /// Recovery: takes an entry that the journal holds. Those that are applied are not needed.
    pub fn recover_entry(&mut self, entry: Entry, is_chosen: bool) {
        if self.applied_end <= entry.slot {
            self.put(entry, Gate::RECOVERED, is_chosen);
        }
    }

    /// Recovery: commits what the journal's hints and its entries learned as chosen cover.
    pub fn recover_commit_end(&mut self, hint_end: Slot) {
        while let Some(entry) = self.get(self.commit_end) {
            if !entry.is_chosen && hint_end <= self.commit_end {
                break;
            }
            self.commit_next();
        }
    }

    pub fn trimmed_end(&self) -> Slot {
        self.trimmed_end
    }

    pub fn applied_end(&self) -> Slot {
        self.applied_end
    }

    pub fn commit_end(&self) -> Slot {
        self.commit_end
    }

    pub fn accepted_end(&self) -> Slot {
        self.accepted_end
    }

    /// The lowest slot that is in memory as long as it is chosen.
    pub fn cache_start(&self) -> Slot {
        self.cache_start
    }

    pub fn get(&self, slot: Slot) -> Option<&LogEntry> {
        self.entries.get(&slot)
    }

    /// How far the machine is behind what is chosen.
    pub fn unapplied_slots(&self) -> u64 {
        self.commit_end.0 - self.applied_end.0
    }

    /// Behind the last slot that, like all below, is durable here.
    pub fn durable_end(&self, gate: &Gate) -> Slot {
        let mut end = self.applied_end;
        while self.entries.get(&end).is_some_and(|entry| gate.is_durable(entry.seq)) {
            end = end.next();
        }
        end
    }

    /// Puts an entry into its slot, over what stood there before.
    pub fn put(&mut self, entry: Entry, seq: IoSeq, is_chosen: bool) {
        let Entry { slot, ballot, value } = entry;
        assert!(self.cache_start <= slot, "{slot} is below the entries in memory, which begin at {}", self.cache_start);
        let mut is_chosen = is_chosen;
        if let Some(old) = self.entries.get(&slot)
            && (old.is_chosen || slot < self.commit_end)
        {
            assert!(
                old.value == value,
                "slot {slot} is chosen with {} of ballot {}, and now {} of ballot {ballot} is put there",
                in_short(&old.value),
                old.ballot,
                in_short(&value),
            );
            is_chosen = true;
        }
        // Applied entries are never put again: their cost is already counted.
        assert!(self.applied_end <= slot, "slot {slot} is applied, everything below {} is", self.applied_end);
        self.entries.insert(slot, LogEntry { ballot, value, seq, is_chosen });
        self.accepted_end = self.accepted_end.max(slot.next());
    }

    /// Moves `commit_end` over its slot, which is chosen with the value that stands here.
    pub fn commit_next(&mut self) {
        let entry = self.entries.get_mut(&self.commit_end).expect("a slot is committed only with its value");
        entry.is_chosen = true;
        self.commit_end = self.commit_end.next();
    }

    /// The next entry for the machine: chosen, durable here, in order, not too many at once.
    pub fn take_next_to_apply(&mut self, gate: &Gate, limits: &Limits) -> Option<Entry> {
        let slot = self.applying_end;
        if self.commit_end <= slot || limits.unapplied_slots_max <= slot.0 - self.applied_end.0 {
            return None;
        }
        let entry = self.entries.get(&slot).expect("slots of applied_end..commit_end are in memory");
        if !gate.is_durable(entry.seq) {
            return None;
        }
        assert!(entry.is_chosen);
        let entry = Entry { slot, ballot: entry.ballot, value: entry.value.clone() };
        self.applying_end = slot.next();
        Some(entry)
    }

    /// The machine has applied everything below `end`.
    pub fn advance_applied_end(&mut self, end: Slot, limits: &Limits) {
        assert!(self.applied_end <= end, "applied_end was {}, now {end}", self.applied_end);
        assert!(end <= self.applying_end, "{end} was reported applied, only {} was asked for", self.applying_end);
        for (_, entry) in self.entries.range(self.applied_end..end) {
            self.cache_bytes += cost(&entry.value);
        }
        self.applied_end = end;
        self.evict(limits);
    }

    fn evict(&mut self, limits: &Limits) {
        while self.cache_start < self.applied_end {
            let cached = self.applied_end.0 - self.cache_start.0;
            let is_small = usize::try_from(cached).is_ok_and(|cached| cached <= limits.cache_slots_max);
            if is_small && self.cache_bytes <= limits.cache_bytes_max {
                return;
            }
            let entry = self.entries.remove(&self.cache_start).expect("slots from cache_start on are in memory");
            self.cache_bytes -= cost(&entry.value);
            self.cache_start = self.cache_start.next();
        }
    }

    /// What was accepted at or above `from` and is not known to be chosen, for a promise: as many
    /// as fit one message, at least one, and where the rest begins.
    pub fn open_page(&self, from: Slot, limits: &Limits) -> (Vec<Entry>, Option<Slot>) {
        let mut page = Page::new(limits);
        for (slot, entry) in self.entries.range(from.max(self.commit_end)..) {
            if !page.push(*slot, entry) {
                return (page.entries, Some(*slot));
            }
        }
        (page.entries, None)
    }

    /// What was accepted above `commit_end`, whole.
    pub fn open_entries(&self) -> impl Iterator<Item = Entry> + use<'_> {
        self.entries.range(self.commit_end..).map(|(slot, entry)| Entry {
            slot: *slot,
            ballot: entry.ballot,
            value: entry.value.clone(),
        })
    }

    /// Chosen entries that are durable here, from `from` on without a gap, as many as fit one
    /// message. `from` is not below `cache_start`.
    pub fn chosen_page(&self, from: Slot, gate: &Gate, limits: &Limits) -> Vec<Entry> {
        assert!(self.cache_start <= from);
        let mut page = Page::new(limits);
        for (slot, entry) in self.entries.range(from..).take_while(|(slot, _)| **slot < self.commit_end) {
            if !gate.is_durable(entry.seq) || !page.push(*slot, entry) {
                break;
            }
        }
        page.entries
    }

    pub fn check(&self, limits: &Limits) {
        assert!(self.trimmed_end <= self.applied_end, "trimmed {} applied {}", self.trimmed_end, self.applied_end);
        assert!(self.trimmed_end <= self.cache_start);
        assert!(self.cache_start <= self.applied_end);
        assert!(self.applied_end <= self.applying_end);
        assert!(self.applying_end <= self.commit_end, "applying {} commit {}", self.applying_end, self.commit_end);
        assert!(self.commit_end <= self.accepted_end, "commit {} accepted {}", self.commit_end, self.accepted_end);
        assert!(self.applying_end.0 - self.applied_end.0 <= limits.unapplied_slots_max);
        assert!(self.cache_bytes <= limits.cache_bytes_max);
        if let Some((last, _)) = self.entries.last_key_value() {
            assert!(*last < self.accepted_end);
        }
        if let Some((first, _)) = self.entries.first_key_value() {
            assert!(self.cache_start <= *first);
        }
    }
}

/// Entries that fit one message.
struct Page<'a> {
    limits: &'a Limits,
    entries: Vec<Entry>,
    bytes: usize,
}

impl Page<'_> {
    fn new(limits: &Limits) -> Page<'_> {
        Page { limits, entries: Vec::new(), bytes: 0 }
    }

    fn push(&mut self, slot: Slot, entry: &LogEntry) -> bool {
        let bytes = self.bytes + cost(&entry.value);
        if self.limits.page_bytes_max < bytes && !self.entries.is_empty() {
            return false;
        }
        self.bytes = bytes;
        self.entries.push(Entry { slot, ballot: entry.ballot, value: entry.value.clone() });
        true
    }
}

/// A value as a message may show it: it holds ids of customers, and up to two megabytes of them.
pub(crate) fn in_short(value: &Value) -> String {
    format!("{} bytes with hash {:016x}", value.len(), xxh3_64(value))
}

fn cost(value: &Value) -> usize {
    value.len() + ENTRY_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use photon_types::NodeId;

    use super::*;

    fn entry(value: &'static [u8]) -> Entry {
        Entry { slot: Slot(3), ballot: Ballot { round: 1, node: NodeId(1) }, value: Value::from_static(value) }
    }

    /// What ends up in a log must not hold what customers clicked.
    #[test]
    fn a_panic_does_not_print_values() {
        let conflict = || {
            let mut log = Log::new(Slot(3));
            log.put(entry(b"customer-4711"), Gate::RECOVERED, true);
            log.put(entry(b"customer-4712 and more"), Gate::RECOVERED, false);
        };
        let panic = std::panic::catch_unwind(conflict).unwrap_err();
        let text = panic.downcast_ref::<String>().expect("a formatted text");
        assert!(text.contains("slot 3 is chosen with 13 bytes with hash "), "{text}");
        assert!(text.contains("and now 22 bytes with hash "), "{text}");
        assert!(!text.contains("customer"), "{text}");
    }
}

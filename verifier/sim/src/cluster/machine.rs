//! A simulated state machine: the production `apply` on a table in memory that is made durable
//! only now and then.
//!
//! Invariant: rows and `applied_end` become durable together, and a crash brings both back to one
//! earlier moment.

use std::collections::VecDeque;

use photon_core::Entry;
use photon_core::machine::{MemoryTable, RowLayout, apply};
use photon_types::{Outcomes, Slot};

#[derive(Debug)]
pub(crate) struct Machine {
    layout: RowLayout,
    table: MemoryTable,
    applied_end: Slot,
    durable: (MemoryTable, Slot),
    queue: VecDeque<(Entry, bool)>,
    /// How many entries the write under way covers.
    writing: usize,
}

impl Machine {
    pub fn new(layout: RowLayout) -> Machine {
        Machine {
            layout,
            table: MemoryTable::default(),
            applied_end: Slot(0),
            durable: (MemoryTable::default(), Slot(0)),
            queue: VecDeque::new(),
            writing: 0,
        }
    }

    pub fn table(&self) -> &MemoryTable {
        &self.table
    }

    pub fn applied_end(&self) -> Slot {
        self.applied_end
    }

    pub fn push(&mut self, entry: Entry, wanted: bool) {
        self.queue.push_back((entry, wanted));
    }

    /// Begins a write if there is something to apply and none is under way.
    pub fn begin(&mut self, group_entries_max: usize) -> bool {
        if 0 < self.writing || self.queue.is_empty() {
            return false;
        }
        self.writing = self.queue.len().min(group_entries_max);
        true
    }

    /// The write is done: the outcomes that somebody waits for.
    pub fn finish(&mut self) -> Vec<(Slot, Outcomes)> {
        let mut wanted_outcomes = Vec::new();
        for (entry, wanted) in self.queue.drain(..std::mem::take(&mut self.writing)) {
            let slot = entry.slot;
            assert!(slot == self.applied_end, "slot {slot} is to be applied, {} is the next", self.applied_end);
            let Ok(applied) = apply(&self.table, self.layout, &entry.value);
            self.table.absorb(applied.changes);
            self.applied_end = slot.next();
            if wanted {
                wanted_outcomes.push((slot, applied.outcomes));
            }
        }
        wanted_outcomes
    }

    pub fn flush(&mut self) {
        self.durable = (self.table.clone(), self.applied_end);
    }

    pub fn crash(&mut self) {
        self.queue.clear();
        self.writing = 0;
        (self.table, self.applied_end) = self.durable.clone();
    }
}

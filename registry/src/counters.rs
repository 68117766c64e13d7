//! Totals of one life of a node, for honest measurements.

use std::sync::atomic::{AtomicU64, Ordering};

/// Written by the lanes, read by anybody.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    batches: AtomicU64,
    commands: AtomicU64,
    fsyncs: AtomicU64,
    journal_bytes: AtomicU64,
}

/// What the counters say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Batches applied, no-ops not counted.
    pub batches: u64,
    /// Commands in them.
    pub commands: u64,
    /// Calls of fsync on the journal.
    pub fsyncs: u64,
    /// Bytes of the journal on disk.
    pub journal_bytes: u64,
}

impl Counters {
    pub fn add_batch(&self, commands: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.commands.fetch_add(commands as u64, Ordering::Relaxed);
    }

    pub fn set_journal(&self, fsyncs: u64, bytes: u64) {
        self.fsyncs.store(fsyncs, Ordering::Relaxed);
        self.journal_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn totals(&self) -> Totals {
        Totals {
            batches: self.batches.load(Ordering::Relaxed),
            commands: self.commands.load(Ordering::Relaxed),
            fsyncs: self.fsyncs.load(Ordering::Relaxed),
            journal_bytes: self.journal_bytes.load(Ordering::Relaxed),
        }
    }
}

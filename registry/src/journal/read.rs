//! Reading accepted entries back, for peers that catch up.
//!
//! Invariant: only synced groups are read, and both crcs are checked each time: bytes that rotted
//! since they were written are an error, never an entry.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use photon_core::Entry;
use photon_types::{GroupId, Slot};

use super::frame::Seed;
use super::index::SlotIndex;
use super::record::{RawRecord, Records, owned_value};
use super::segment::{self, Bad, SegmentReader};
use super::{JournalError, JournalPosition};

/// The most entries of one read.
const ENTRIES_MAX: usize = 4096;

/// Reads the journal while it is written, from any thread.
#[derive(Clone, Debug)]
pub struct JournalReader {
    dir: PathBuf,
    seed: Seed,
    index: Arc<SlotIndex>,
}

impl JournalReader {
    pub(super) fn new(dir: &Path, seed: &Seed, index: &Arc<SlotIndex>) -> JournalReader {
        JournalReader { dir: dir.to_owned(), seed: seed.clone(), index: Arc::clone(index) }
    }

    /// The last accepted record of each slot from `from` to below `to_end`, in order, up to the
    /// first slot that is not held durably; empty when that is `from` itself. Stops before more than
    /// `bytes_max` bytes of values, but returns at least one entry.
    ///
    /// # Errors
    /// [`JournalError::Damage`] when a group can not be read back, [`JournalError::Disk`].
    pub fn read(&self, group: GroupId, from: Slot, to_end: Slot, bytes_max: usize) -> Result<Vec<Entry>, JournalError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0_usize;
        let mut file: Option<(u64, File)> = None;
        let mut held: Option<(JournalPosition, BTreeMap<Slot, Entry>)> = None;
        for (slot, at) in (from.0..).map(Slot).zip(self.index.locate(group, from, to_end, ENTRIES_MAX)) {
            if held.as_ref().is_none_or(|(position, _)| *position != at) {
                if file.as_ref().is_none_or(|(number, _)| *number != at.segment) {
                    file = Some((at.segment, self.open(at)?));
                }
                let (_, file) = file.as_ref().expect("opened above");
                held = Some((at, self.entries_at(group, file, at)?));
            }
            let (_, group_entries) = held.as_ref().expect("read above");
            let Some(entry) = group_entries.get(&slot) else {
                return Err(self.damage(at, Bad("a group does not hold the record that was written to it")));
            };
            if !entries.is_empty() && bytes_max < bytes + entry.value.len() {
                break;
            }
            bytes += entry.value.len();
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    fn open(&self, at: JournalPosition) -> Result<File, JournalError> {
        segment::open(&self.dir, at.segment)?.ok_or_else(|| self.damage(at, Bad("the segment is missing")))
    }

    /// The last record of each slot within a group of records.
    fn entries_at(
        &self,
        group: GroupId,
        file: &File,
        at: JournalPosition,
    ) -> Result<BTreeMap<Slot, Entry>, JournalError> {
        let path = segment::path_of(&self.dir, at.segment);
        let mut reader = SegmentReader::new(file, &path, at.segment, &self.seed)?;
        let records = reader.group_at(at.byte)?.map_err(|bad| self.damage(at, bad))?;
        let mut entries = BTreeMap::new();
        for record in Records::of(records.body()) {
            let record = record.map_err(|error| JournalError::Format {
                file: path.clone(),
                offset: at.byte,
                reason: error.to_string(),
            })?;
            match record {
                RawRecord::Accepted { group: of, ballot, slot, value, chosen: _ } if of == group => {
                    entries.insert(slot, Entry { slot, ballot, value: owned_value(value) });
                }
                RawRecord::Accepted { .. }
                | RawRecord::Birth(_)
                | RawRecord::Promise { .. }
                | RawRecord::CommitHint { .. }
                | RawRecord::End { .. } => (),
            }
        }
        Ok(entries)
    }

    fn damage(&self, at: JournalPosition, bad: Bad) -> JournalError {
        let file = segment::path_of(&self.dir, at.segment);
        JournalError::Damage { file, offset: at.byte, reason: bad.0.to_owned() }
    }
}

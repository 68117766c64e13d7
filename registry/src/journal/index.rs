//! Where the last accepted record of each slot lies, in memory: 8 bytes for each slot.
//!
//! Invariant: a location here is of a group that is synced.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{PoisonError, RwLock};

use photon_types::{GroupId, Slot};

use super::JournalPosition;
use super::frame::BLOCK_BYTES;

/// Slots in one piece of the index, so that a stray slot far ahead costs one piece.
const PIECE_SLOTS: usize = 1024;

/// The boundary on which a group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Location {
    /// From 1, which makes the empty place free of charge.
    segment: NonZeroU32,
    block: u32,
}

const _: () = assert!(size_of::<Option<Location>>() == 8);

type Piece = Box<[Option<Location>; PIECE_SLOTS]>;

/// Slot → group of records, for each replication group. Shared by the writer and all readers.
#[derive(Debug, Default)]
pub(super) struct SlotIndex {
    groups: RwLock<BTreeMap<GroupId, BTreeMap<u64, Piece>>>,
}

impl SlotIndex {
    /// The record of a slot, replacing an earlier one.
    pub fn insert(&self, group: GroupId, slot: Slot, at: JournalPosition) {
        let segment = u32::try_from(at.segment).ok().and_then(NonZeroU32::new);
        let location = Location {
            segment: segment.expect("segments are numbered from 1; 2^32 of them are not written"),
            block: u32::try_from(at.byte / BLOCK_BYTES).expect("a segment is shorter than 16 TiB"),
        };
        let (piece, place) = split(slot);
        // A lock is poisoned by a panic, which ends the process.
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        let pieces = groups.entry(group).or_default();
        pieces.entry(piece).or_insert_with(|| Box::new([None; PIECE_SLOTS]))[place] = Some(location);
    }

    /// Where the slots from `from` to below `to_end` lie, up to the first that is missing, at most
    /// `count_max` of them.
    pub fn locate(&self, group: GroupId, from: Slot, to_end: Slot, count_max: usize) -> Vec<JournalPosition> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        let Some(pieces) = groups.get(&group) else { return Vec::new() };
        (from.0..to_end.0)
            .take(count_max)
            .map_while(|slot| {
                let (piece, place) = split(Slot(slot));
                let location = pieces.get(&piece)?[place]?;
                let byte = u64::from(location.block) * BLOCK_BYTES;
                Some(JournalPosition { segment: u64::from(location.segment.get()), byte })
            })
            .collect()
    }

    /// The first slot below `end` that is missing.
    pub fn first_missing(&self, group: GroupId, end: Slot) -> Option<Slot> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        let pieces = groups.get(&group);
        let held = |slot: u64| {
            let (piece, place) = split(Slot(slot));
            pieces.and_then(|pieces| pieces.get(&piece)).is_some_and(|piece| piece[place].is_some())
        };
        (0..end.0).find(|slot| !held(*slot)).map(Slot)
    }
}

fn split(slot: Slot) -> (u64, usize) {
    let place = usize::try_from(slot.0 % PIECE_SLOTS as u64).expect("below PIECE_SLOTS");
    (slot.0 / PIECE_SLOTS as u64, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(1);

    fn at(segment: u64, block: u64) -> JournalPosition {
        JournalPosition { segment, byte: block * BLOCK_BYTES }
    }

    #[test]
    fn the_last_record_counts_and_a_hole_ends_the_run() {
        let index = SlotIndex::default();
        for slot in [1022, 1023, 1024, 1026] {
            index.insert(GROUP, Slot(slot), at(1, slot));
        }
        index.insert(GROUP, Slot(1023), at(2, 7));
        assert_eq!(index.locate(GROUP, Slot(1022), Slot(2000), 99), [at(1, 1022), at(2, 7), at(1, 1024)]);
        assert_eq!(index.locate(GROUP, Slot(1022), Slot(1023), 99), [at(1, 1022)]);
        assert_eq!(index.locate(GROUP, Slot(1022), Slot(2000), 1), [at(1, 1022)]);
        assert_eq!(index.locate(GROUP, Slot(0), Slot(2000), 99), []);
        assert_eq!(index.locate(GroupId(2), Slot(1022), Slot(2000), 99), []);
        assert_eq!(index.first_missing(GROUP, Slot(5)), Some(Slot(0)));
        assert_eq!(index.first_missing(GroupId(9), Slot(0)), None);
    }

    #[test]
    fn a_stray_slot_costs_one_piece() {
        let index = SlotIndex::default();
        index.insert(GROUP, Slot(u64::MAX - 1), at(1, 0));
        assert_eq!(index.locate(GROUP, Slot(u64::MAX - 1), Slot(u64::MAX), 9), [at(1, 0)]);
    }
}

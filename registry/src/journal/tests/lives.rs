//! Many lives, each ended by a crash, against a model: what was synced is there, in order.

use std::fs;

use photon_core::Record;
use proptest::prelude::*;

use super::super::JournalPosition;
use super::super::frame::BLOCK_BYTES;
use super::{Fixture, GROUP, accepted, commit};

/// What one life does, and how it ends.
#[derive(Clone, Debug)]
struct Life {
    /// Bytes of the values of each commit.
    commits: Vec<Vec<usize>>,
    /// After which commits it pauses.
    pauses: Vec<bool>,
    end: End,
    /// How far the next start gets before it crashes, too.
    start: Start,
}

#[derive(Clone, Debug)]
enum End {
    /// A cover, as at a clean exit.
    Clean,
    /// The process is killed; the page cache lives on.
    Kill,
    /// The power goes before the last sync returns: the file ends anywhere behind what was synced.
    Cut(prop::sample::Index),
    /// As before, but blocks behind what was synced are lost in any order.
    Blocks(Vec<bool>),
}

#[derive(Clone, Debug)]
enum Start {
    Whole,
    EndTorn(usize),
    NoFreshSegment,
    EmptyGroupTorn(usize),
}

fn life() -> impl Strategy<Value = Life> {
    let end = prop_oneof![
        Just(End::Clean),
        Just(End::Kill),
        any::<prop::sample::Index>().prop_map(End::Cut),
        proptest::collection::vec(any::<bool>(), 1..6).prop_map(End::Blocks),
    ];
    let start = prop_oneof![
        Just(Start::Whole),
        (0..4096_usize).prop_map(Start::EndTorn),
        Just(Start::NoFreshSegment),
        (0..4096_usize).prop_map(Start::EmptyGroupTorn),
    ];
    let commits = proptest::collection::vec(proptest::collection::vec(0_usize..9000, 1..4), 0..7);
    (commits, proptest::collection::vec(any::<bool>(), 7), end, start).prop_map(|(commits, pauses, end, start)| Life {
        commits,
        pauses,
        end,
        start,
    })
}

/// The model, and the journal that must agree with it.
struct Run {
    fixture: Fixture,
    /// Records that a sync covered.
    synced: Vec<Record>,
    /// Records of the last commit, which a crash may have torn.
    last: Vec<Record>,
    slot: u64,
}

impl Run {
    /// Opens, and takes over which of the unsure records survived.
    fn recover(&mut self) -> JournalPosition {
        let (journal, mut recovered) = self.fixture.open();
        drop(journal);
        let found = recovered.records.remove(&GROUP).unwrap_or_default();
        let mut most = std::mem::take(&mut self.synced);
        let least = most.len();
        most.append(&mut self.last);
        assert!(least <= found.len(), "a synced record is lost");
        assert_eq!(found[..], most[..found.len()]);
        self.synced = found;
        recovered.recovered_end
    }

    fn live(&mut self, life: &Life) {
        let (mut journal, recovered) = self.fixture.open();
        assert_eq!(recovered.records.get(&GROUP).map_or(&[][..], Vec::as_slice), self.synced);
        let mut unsynced_from = journal.synced_end();
        for (sizes, pause) in life.commits.iter().zip(&life.pauses) {
            self.synced.append(&mut self.last);
            for bytes in sizes {
                let value = vec![u8::try_from(self.slot % 251).unwrap(); *bytes];
                self.last.push(accepted(self.slot, 1, &value));
                self.slot += 1;
            }
            let before = journal.synced_end();
            commit(&mut journal, &self.last);
            let after = journal.synced_end();
            // A segment begins only when the one before it is synced whole.
            unsynced_from = if before.segment == after.segment {
                before
            } else {
                JournalPosition { segment: after.segment, byte: 0 }
            };
            if *pause {
                journal.write_cover().unwrap();
            }
        }
        if matches!(life.end, End::Clean) {
            journal.write_cover().unwrap();
        }
        if !journal.needs_cover() {
            // Only the cover can be torn, and it says nothing.
            self.synced.append(&mut self.last);
        }
        let end = journal.synced_end();
        let covered = !journal.needs_cover();
        drop(journal);
        let from = if covered { JournalPosition { byte: end.byte - BLOCK_BYTES, ..end } } else { unsynced_from };
        self.crash(&life.end, from);
    }

    fn crash(&mut self, end: &End, unsynced_from: JournalPosition) {
        let from = usize::try_from(unsynced_from.byte).unwrap();
        match end {
            End::Clean | End::Kill => self.synced.append(&mut self.last),
            End::Cut(at) => self.fixture.alter(unsynced_from.segment, |bytes| {
                let left = at.index(bytes.len() - from + 1);
                bytes.truncate(from + left);
            }),
            End::Blocks(lost) => self.fixture.alter(unsynced_from.segment, |bytes| {
                for (block, _) in bytes[from..].chunks_mut(4096).zip(lost.iter().cycle()).filter(|(_, lost)| **lost) {
                    block.fill(0);
                }
            }),
        }
    }

    /// A start that crashes: what it had done by then is put back on disk.
    fn start_and_crash(&mut self, start: &Start) {
        let tail = self.recover();
        let fresh = *self.fixture.segments().last().unwrap();
        match start {
            Start::Whole => (),
            Start::EndTorn(bytes) => {
                fs::remove_file(self.fixture.segment(fresh)).unwrap();
                self.fixture
                    .alter(tail.segment, |content| content.truncate(usize::try_from(tail.byte).unwrap() + bytes));
            }
            Start::NoFreshSegment => fs::remove_file(self.fixture.segment(fresh)).unwrap(),
            Start::EmptyGroupTorn(bytes) => self.fixture.alter(fresh, |content| content.truncate(*bytes)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_synced_is_never_lost(lives in proptest::collection::vec(life(), 1..6), segment_blocks in 2_u64..16) {
        let mut fixture = Fixture::new();
        fixture.options.segment_bytes = segment_blocks * BLOCK_BYTES;
        let mut run = Run { fixture, synced: Vec::new(), last: Vec::new(), slot: 0 };
        for life in &lives {
            run.live(life);
            run.start_and_crash(&life.start);
        }
        run.recover();
        let (journal, _) = run.fixture.open();
        let reader = journal.reader();
        // Slots that were torn away leave holes; all others can be read.
        for record in &run.synced {
            let Record::Accepted { entry, .. } = record else { panic!("only entries were written") };
            let read = reader.read(GROUP, entry.slot, entry.slot.next(), 0).unwrap();
            prop_assert_eq!(&read[..], std::slice::from_ref(entry));
        }
    }
}

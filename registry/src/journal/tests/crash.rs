//! Torn tails are cut, damage is refused: cuts and flips at each place, crashes at each stage.

use std::fs;

use proptest::prelude::*;

use super::super::frame::{BLOCK_BYTES, FrameHead, HEAD_BYTES, Seed};
use super::super::record::RECORD_HEAD_BYTES;
use super::super::{Journal, JournalError, JournalPosition};
use super::{Fixture, GROUP, INCARNATION, accepted, commit, promise};
use photon_types::Incarnation;

/// Bytes of a group that holds one record with a value of three bytes; zeros behind it do not count.
const GROUP_BYTES: usize = HEAD_BYTES + RECORD_HEAD_BYTES + 3;

fn index(position: JournalPosition) -> usize {
    usize::try_from(position.byte).unwrap()
}

#[track_caller]
fn refused_at(fixture: &mut Fixture, number: u64, offset: u64) {
    let before = fixture.snapshot();
    let error = fixture.try_open().map(|(_, recovered)| recovered).unwrap_err();
    assert!(error.is_damage(), "{error}");
    match &error {
        JournalError::Damage { file, offset: found, .. } => {
            assert_eq!((file, *found), (&fixture.segment(number), offset), "{error}");
        }
        other => panic!("{other}"),
    }
    assert!(error.to_string().contains(&format!("{number:010}.journal at offset {offset}")), "{error}");
    assert_eq!(fixture.snapshot(), before, "damage is left as it is");
}

/// Three groups in segment 2: one and two are covered by three.
fn three_groups() -> (Fixture, [JournalPosition; 3]) {
    let mut fixture = Fixture::new();
    let (mut journal, _) = fixture.open();
    let starts = [b"one", b"two", b"tri"].map(|value| commit(&mut journal, &[accepted(0, 1, value)]));
    (fixture, starts)
}

#[test]
fn every_flipped_byte_below_s_is_damage() {
    let (mut fixture, [_, two, _]) = three_groups();
    let whole = fixture.snapshot();
    for at in 0..GROUP_BYTES {
        fixture.restore(&whole);
        fixture.alter(2, |bytes| bytes[index(two) + at] ^= 0x10);
        refused_at(&mut fixture, 2, two.byte);
    }
}

#[test]
fn every_flipped_byte_of_the_last_group_is_a_torn_tail() {
    let (mut fixture, [_, _, three]) = three_groups();
    let whole = fixture.snapshot();
    for at in 0..GROUP_BYTES {
        fixture.restore(&whole);
        fixture.alter(2, |bytes| bytes[index(three) + at] ^= 0x10);
        let (mut journal, recovered) = fixture.open();
        assert_eq!(recovered.records[&GROUP], [accepted(0, 1, b"one"), accepted(0, 1, b"two")], "byte {at}");
        assert_eq!(recovered.recovered_end, three);
        let torn = recovered.torn.unwrap();
        assert_eq!((torn.file, torn.offset, torn.bytes), (fixture.segment(2), three.byte, BLOCK_BYTES));
        // Going on does not depend on which byte it was.
        if at.is_multiple_of(16) {
            commit(&mut journal, &[accepted(1, 2, b"new")]);
            drop(journal);
            assert_eq!(fixture.records().len(), 3);
        }
    }
}

#[test]
fn a_covered_last_group_is_damage_when_it_rots() {
    let mut fixture = Fixture::new();
    let (mut journal, _) = fixture.open();
    let start = commit(&mut journal, &[accepted(0, 1, b"one")]);
    journal.write_cover().unwrap();
    drop(journal);
    let whole = fixture.snapshot();
    for at in 0..GROUP_BYTES {
        fixture.restore(&whole);
        fixture.alter(2, |bytes| bytes[index(start) + at] ^= 1);
        refused_at(&mut fixture, 2, start.byte);
    }
    fixture.restore(&whole);
    fixture.alter(2, |bytes| bytes[index(start)..][..4096].fill(0));
    refused_at(&mut fixture, 2, start.byte);
}

#[test]
fn every_cut_of_the_last_group_is_a_torn_tail() {
    let (mut fixture, [_, _, three]) = three_groups();
    let whole = fixture.snapshot();
    for bytes_left in (0..GROUP_BYTES).chain([4095]) {
        fixture.restore(&whole);
        fixture.alter(2, |bytes| bytes.truncate(index(three) + bytes_left));
        let (_, recovered) = fixture.open();
        assert_eq!(recovered.records[&GROUP].len(), 2, "{bytes_left} bytes left");
        assert_eq!(recovered.torn.map_or(0, |torn| torn.bytes), bytes_left as u64);
    }
}

#[test]
fn a_good_group_in_the_wrong_place_does_not_count() {
    let (mut fixture, [one, two, three]) = three_groups();
    let whole = fixture.snapshot();
    let copy = |fixture: &Fixture, from: JournalPosition, to: JournalPosition| {
        fixture.alter(2, |bytes| bytes.copy_within(index(from)..index(from) + 4096, index(to)));
    };
    // A write that went astray: good crcs, but not the next in sequence.
    copy(&fixture, one, two);
    refused_at(&mut fixture, 2, two.byte);
    fixture.restore(&whole);
    copy(&fixture, three, two);
    refused_at(&mut fixture, 2, two.byte);
    fixture.restore(&whole);
    copy(&fixture, one, three);
    let (_, recovered) = fixture.open();
    assert_eq!(recovered.records[&GROUP].len(), 2);
    assert_eq!(recovered.recovered_end, three);
    // Nor does a group of another segment, or a beginning that is not the beginning.
    fixture.restore(&whole);
    let empty = fs::read(fixture.segment(2)).unwrap()[..4096].to_vec();
    fixture.alter(1, |bytes| bytes.copy_from_slice(&empty));
    refused_at(&mut fixture, 1, 0);
}

#[test]
fn a_start_covers_the_life_before_it() {
    let (mut fixture, [_, _, three]) = three_groups();
    drop(fixture.open());
    fixture.alter(2, |bytes| bytes[index(three)] ^= 1);
    refused_at(&mut fixture, 2, three.byte);
}

#[test]
fn an_end_is_covered_by_the_fresh_segment() {
    let mut fixture = Fixture::new();
    drop(fixture.open());
    let whole = fixture.snapshot();
    for at in 0..HEAD_BYTES + RECORD_HEAD_BYTES + 8 {
        fixture.restore(&whole);
        fixture.alter(1, |bytes| bytes[at] ^= 1);
        refused_at(&mut fixture, 1, 0);
    }
}

#[test]
fn a_group_inside_a_value_is_none() {
    let mut fixture = Fixture::new();
    let (mut journal, _) = fixture.open();
    // On a boundary, with good crcs, and it says that much more was synced.
    let synced = JournalPosition { segment: 9, byte: 0 };
    let head = FrameHead { body_bytes: 0, segment: 2, life: 1, sequence: 4, synced, first: 1, body_crc: 0 };
    let mut value = vec![0; 9000];
    value[4096 - HEAD_BYTES - RECORD_HEAD_BYTES..][..HEAD_BYTES].copy_from_slice(&head.encode(&Seed::new(INCARNATION)));
    commit(&mut journal, &[accepted(0, 1, &value)]);
    drop(journal);
    assert_eq!(fixture.records(), [accepted(0, 1, &value)]);
    assert_eq!(fixture.records(), [accepted(0, 1, &value)]);
}

#[test]
fn groups_of_one_commit_are_torn_together() {
    // Blocks of one write reach the disk in any order: the later group is whole, the earlier is not.
    let mut fixture = Fixture::new();
    let (mut journal, _) = fixture.open();
    commit(&mut journal, &[accepted(0, 1, b"one")]);
    let large = vec![1; super::super::VALUE_BYTES_MAX];
    let start = commit(&mut journal, &[accepted(1, 1, &large), accepted(2, 1, b"two")]);
    drop(journal);
    fixture.alter(2, |bytes| bytes[index(start) + 5000] ^= 1);
    assert_eq!(fixture.records(), [accepted(0, 1, b"one")]);
    // What was cut is never seen again, though its bytes still lie there.
    assert_eq!(fixture.records(), [accepted(0, 1, b"one")]);
}

#[test]
fn a_start_may_crash_at_each_of_its_stages() {
    let (mut fixture, _) = three_groups();
    let before = fixture.snapshot();
    let want = [accepted(0, 1, b"one"), accepted(0, 1, b"two"), accepted(0, 1, b"tri")];
    let (journal, recovered) = fixture.open();
    drop(journal);
    let tail = index(recovered.recovered_end);
    let after = fixture.snapshot();
    let check = |stage: &str, fixture: &mut Fixture| {
        let (mut journal, recovered) = fixture.open();
        assert_eq!(recovered.records[&GROUP], want, "{stage}");
        commit(&mut journal, &[promise(7)]);
        drop(journal);
        assert_eq!(fixture.records()[3], promise(7), "{stage}");
    };
    fixture.restore(&before);
    check("before the end", &mut fixture);
    for bytes in [1, 50, HEAD_BYTES, HEAD_BYTES + 10, 4095] {
        fixture.restore(&after);
        fs::remove_file(fixture.segment(3)).unwrap();
        fixture.alter(2, |content| content.truncate(tail + bytes));
        check("the end is torn", &mut fixture);
    }
    fixture.restore(&after);
    fs::remove_file(fixture.segment(3)).unwrap();
    check("before the fresh segment", &mut fixture);
    for bytes in [0, 1, HEAD_BYTES - 1, HEAD_BYTES, 4095] {
        fixture.restore(&after);
        fixture.alter(3, |content| content.truncate(bytes));
        check("the empty group is torn", &mut fixture);
    }
    fixture.restore(&after);
    check("whole", &mut fixture);
}

#[test]
fn the_first_start_of_all_may_crash_at_each_of_its_stages() {
    let mut fixture = Fixture::new();
    drop(fixture.open());
    let after = fixture.snapshot();
    for (end_bytes, fresh_bytes) in
        [(0, None), (10, None), (4095, None), (4096, None), (4096, Some(0)), (4096, Some(99))]
    {
        fixture.restore(&after);
        fixture.alter(1, |content| content.truncate(end_bytes));
        match fresh_bytes {
            Some(bytes) => fixture.alter(2, |content| content.truncate(bytes)),
            None => fs::remove_file(fixture.segment(2)).unwrap(),
        }
        let (mut journal, recovered) = fixture.open();
        assert!(recovered.records.is_empty());
        commit(&mut journal, &[promise(1)]);
        drop(journal);
        assert_eq!(fixture.records(), [promise(1)], "{end_bytes} {fresh_bytes:?}");
    }
}

#[test]
fn missing_segments_are_damage() {
    let mut fixture = Fixture::new();
    fixture.options.segment_bytes = 3 * BLOCK_BYTES;
    let (mut journal, _) = fixture.open();
    for slot in 0..6 {
        commit(&mut journal, &[accepted(slot, 1, b"one")]);
    }
    drop(journal);
    let whole = fixture.snapshot();
    let numbers = fixture.segments();
    for missing in &numbers[..numbers.len() - 1] {
        fixture.restore(&whole);
        fs::remove_file(fixture.segment(*missing)).unwrap();
        refused_at(&mut fixture, *missing, 0);
    }
    fixture.restore(&whole);
    for number in numbers {
        fs::remove_file(fixture.segment(number)).unwrap();
    }
    assert!(fixture.try_open().unwrap_err().is_damage(), "no segment is not an empty journal");
}

#[test]
fn stale_segments_are_never_read_and_removed() {
    let (mut fixture, [_, _, three]) = three_groups();
    drop(fixture.open());
    let after = fixture.snapshot();
    // The end in segment 2 was lost, and of segment 3 only the name is left.
    fixture.alter(2, |bytes| bytes.truncate(index(three) + 4096));
    fixture.alter(3, |bytes| bytes.clear());
    let (mut journal, recovered) = fixture.open();
    assert_eq!(recovered.records[&GROUP].len(), 3);
    assert_eq!(fixture.segments(), [1, 2, 4]);
    commit(&mut journal, &[promise(9)]);
    drop(journal);
    // Another crash may bring the name back, with any good group in it.
    fs::write(fixture.segment(3), &after[&fixture.segment(3)]).unwrap();
    assert_eq!(fixture.records().len(), 4);
    assert_eq!(fixture.segments(), [1, 2, 4, 5]);
    assert_eq!(fixture.records().len(), 4);
}

#[test]
fn another_incarnation_is_refused() {
    let (mut fixture, _) = three_groups();
    let before = fixture.snapshot();
    let other = Incarnation([1; 16]);
    let opened = Journal::open(&fixture.dir(), other, 9, &fixture.applied_ends, fixture.options);
    let error = opened.map(|(_, recovered)| recovered).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("belongs to another disk"), "{error}");
    assert_eq!(fixture.snapshot(), before);
    assert_eq!(fixture.records().len(), 3);
}

#[test]
fn a_boot_that_went_back_is_refused() {
    let (mut fixture, _) = three_groups();
    drop(fixture.open());
    fixture.boot = 1;
    let error = fixture.try_open().map(|(_, recovered)| recovered).unwrap_err();
    assert!(matches!(error, JournalError::RolledBack { life: 2, boot: 2, .. }), "{error}");
}

#[test]
fn a_group_of_a_later_version_is_refused_wherever_it_lies() {
    let (mut fixture, starts) = three_groups();
    let whole = fixture.snapshot();
    for start in starts {
        fixture.restore(&whole);
        fixture.alter(2, |bytes| {
            let head = &mut bytes[index(start)..][..HEAD_BYTES];
            head[9] = 2;
            let crc = Seed::new(INCARNATION).crc(&head[..68]);
            head[68..].copy_from_slice(&crc.to_be_bytes());
        });
        let error = fixture.try_open().map(|(_, recovered)| recovered).unwrap_err();
        assert!(matches!(error, JournalError::Format { offset, .. } if offset == start.byte), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_in_a_segment_are_read_without_a_panic(
        garbage in proptest::collection::vec(any::<u8>(), 1..9000), at in 0_usize..20_000
    ) {
        let (mut fixture, _) = three_groups();
        fixture.alter(2, |bytes| {
            bytes.resize(bytes.len().max(at + garbage.len()), 0);
            bytes[at..][..garbage.len()].copy_from_slice(&garbage);
        });
        match fixture.try_open() {
            Ok((_, recovered)) => prop_assert!(recovered.records.len() <= 1),
            Err(error) => prop_assert!(error.is_damage(), "{error}"),
        }
    }
}

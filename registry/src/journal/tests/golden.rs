//! The bytes on disk are a promise: these do not change.

use photon_core::Record;
use photon_types::{GroupId, Incarnation, Slot};
use proptest::prelude::*;

use super::super::JournalPosition;
use super::super::frame::{FrameHead, HEAD_BYTES, HeadCheck, Seed, padded_bytes};
use super::super::record::{RawRecord, RecordError, Records};
use super::{GROUP, accepted, ballot, chosen, hint, promise};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn head() -> FrameHead {
    FrameHead {
        body_bytes: 0x11,
        segment: 2,
        life: 3,
        sequence: 4,
        synced: JournalPosition { segment: 1, byte: 0x5000 },
        first: 1,
        body_crc: Seed::new(Incarnation([7; 16])).crc(b"seventeen bytes!!"),
    }
}

#[test]
fn the_head_of_a_group() {
    let seed = Seed::new(Incarnation([7; 16]));
    let bytes = head().encode(&seed);
    assert_eq!(
        hex(&bytes),
        "50484f544f4e4a4c0001000000000011000000000000000200000000000000030000000000000004000000000000000100000000000050000000000000000001ba81fa2d9390fed1"
    );
    assert_eq!(FrameHead::check(&bytes, &seed), HeadCheck::Good(head()));
    assert_eq!((padded_bytes(0), padded_bytes(4096 - 72), padded_bytes(4096 - 71)), (4096, 4096, 8192));
}

#[test]
fn another_incarnation_and_every_flipped_bit_are_seen() {
    let seed = Seed::new(Incarnation([7; 16]));
    let bytes = head().encode(&seed);
    let other = Seed::new(Incarnation([8; 16]));
    assert!(matches!(FrameHead::check(&bytes, &other), HeadCheck::Bad(_)));
    for bit in 0..HEAD_BYTES * 8 {
        let mut bytes = bytes;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(FrameHead::check(&bytes, &seed), HeadCheck::Bad(_)), "bit {bit}");
    }
}

#[test]
fn a_later_version_is_told_from_damage() {
    let seed = Seed::new(Incarnation([7; 16]));
    let mut bytes = head().encode(&seed);
    bytes[9] = 2;
    let crc = seed.crc(&bytes[..68]);
    bytes[68..].copy_from_slice(&crc.to_be_bytes());
    assert_eq!(FrameHead::check(&bytes, &seed), HeadCheck::UnknownVersion(2));
}

#[track_caller]
fn check_record(record: &RawRecord<'_>, want: &str) {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    assert_eq!(hex(&bytes), want.replace(' ', ""));
    assert_eq!(bytes.len(), record.encoded_bytes());
    assert_eq!(Records::of(&bytes).collect::<Vec<_>>(), [Ok(*record)]);
}

#[test]
fn each_kind_of_record() {
    //  group     kind flags 0   round             node     slot              length   bytes
    check_record(
        &RawRecord::Birth(b"ab"),
        "00000000 01 00 0000 0000000000000000 00000000 0000000000000000 00000002 6162",
    );
    let of = |record: Record, want: &str| check_record(&RawRecord::of(GroupId(9), &record), want);
    of(promise(5), "00000009 02 00 0000 0000000000000005 00000001 0000000000000000 00000000");
    of(accepted(6, 5, b"v"), "00000009 03 00 0000 0000000000000005 00000001 0000000000000006 00000001 76");
    of(chosen(6, 5, b""), "00000009 03 01 0000 0000000000000005 00000001 0000000000000006 00000000");
    of(hint(7), "00000009 04 00 0000 0000000000000000 00000000 0000000000000007 00000000");
    let end = RawRecord::End { next_segment: 8 };
    check_record(&end, "00000000 05 00 0000 0000000000000000 00000000 0000000000000000 00000008 0000000000000008");
}

#[test]
fn records_of_a_later_build_are_refused_by_name() {
    let mut bytes = Vec::new();
    RawRecord::Promise { group: GROUP, ballot: ballot(1) }.encode(&mut bytes);
    let read = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        Records::of(&bytes).map(|record| record.unwrap_err()).collect::<Vec<_>>()
    };
    assert_eq!(read(4, 6), [RecordError::Kind { kind: 6 }]);
    assert_eq!(read(5, 1), [RecordError::Flags { kind: 2, flags: 1 }]);
    assert_eq!(read(4, 5), [RecordError::Length { kind: 5, bytes: 0 }]);
    assert_eq!(read(31, 1), [RecordError::Truncated]);
}

proptest! {
    #[test]
    fn records_go_round(slot: u64, round: u64, is_chosen: bool, value in proptest::collection::vec(any::<u8>(), 0..99)) {
        let slot = Slot(slot);
        let record = RawRecord::Accepted { group: GROUP, ballot: ballot(round), slot, value: &value, chosen: is_chosen };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        record.encode(&mut bytes);
        prop_assert_eq!(Records::of(&bytes).collect::<Vec<_>>(), [Ok(record), Ok(record)]);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Records::of(&bytes).count();
        if let Some(head) = bytes.first_chunk::<HEAD_BYTES>() {
            let _ = FrameHead::check(head, &Seed::new(Incarnation([7; 16])));
        }
    }
}

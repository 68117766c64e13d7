//! The bytes of a record within a group.
//!
//! Invariant: a body whose crc is right is made of records that this build knows, or it is refused
//! by name: a record that is skipped may be a promise that is broken.
//!
//! Integers are big-endian. A head of 32 bytes, then the bytes:
//!
//! | at | field | birth 1 | promise 2 | accepted 3 | commit hint 4 | end 5 |
//! |---|---|---|---|---|---|---|
//! | 0 | replication group u32 | 0 | group | group | group | 0 |
//! | 4 | kind u8 | 1 | 2 | 3 | 4 | 5 |
//! | 5 | flags u8 | 0 | 0 | 1: learned as chosen | 0 | 0 |
//! | 6 | zero u16 | | | | | |
//! | 8 | ballot's round u64 | 0 | round | round | 0 | 0 |
//! | 16 | ballot's node u32 | 0 | node | node | 0 | 0 |
//! | 20 | slot u64 | 0 | 0 | slot | `commit_end` | 0 |
//! | 28 | length of the bytes u32 | | 0 | | 0 | 8 |
//! | 32 | bytes | birth record | | value | | number of the segment that follows, u64 |

use bytes::Bytes;
use photon_core::{Ballot, Entry, Record};
use photon_types::{GroupId, NodeId, Slot};

/// Bytes of the head of a record.
pub(super) const RECORD_HEAD_BYTES: usize = 32;

const BIRTH: u8 = 1;
const PROMISE: u8 = 2;
const ACCEPTED: u8 = 3;
const COMMIT_HINT: u8 = 4;
const END: u8 = 5;

const FLAG_CHOSEN: u8 = 1;

/// One record as it lies in a body; values are not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RawRecord<'a> {
    Birth(&'a [u8]),
    Promise { group: GroupId, ballot: Ballot },
    Accepted { group: GroupId, ballot: Ballot, slot: Slot, value: &'a [u8], chosen: bool },
    CommitHint { group: GroupId, commit_end: Slot },
    End { next_segment: u64 },
}

impl<'a> RawRecord<'a> {
    pub fn of(group: GroupId, record: &'a Record) -> RawRecord<'a> {
        match record {
            Record::Promise { ballot } => RawRecord::Promise { group, ballot: *ballot },
            Record::Accepted { entry: Entry { slot, ballot, value }, chosen } => {
                RawRecord::Accepted { group, ballot: *ballot, slot: *slot, value, chosen: *chosen }
            }
            Record::CommitHint { commit_end } => RawRecord::CommitHint { group, commit_end: *commit_end },
        }
    }

    /// Bytes of this record in a body.
    pub fn encoded_bytes(&self) -> usize {
        let bytes = match self {
            RawRecord::Birth(bytes) => bytes.len(),
            RawRecord::Accepted { value, .. } => value.len(),
            RawRecord::Promise { .. } | RawRecord::CommitHint { .. } => 0,
            RawRecord::End { .. } => 8,
        };
        RECORD_HEAD_BYTES + bytes
    }

    /// Appends the bytes of this record. The caller has checked the length against the limit of a body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let none = GroupId(0);
        match *self {
            RawRecord::Birth(bytes) => put(out, none, BIRTH, 0, Ballot::ZERO, Slot(0), bytes),
            RawRecord::Promise { group, ballot } => put(out, group, PROMISE, 0, ballot, Slot(0), &[]),
            RawRecord::Accepted { group, ballot, slot, value, chosen } => {
                put(out, group, ACCEPTED, if chosen { FLAG_CHOSEN } else { 0 }, ballot, slot, value);
            }
            RawRecord::CommitHint { group, commit_end } => {
                put(out, group, COMMIT_HINT, 0, Ballot::ZERO, commit_end, &[]);
            }
            RawRecord::End { next_segment } => {
                put(out, none, END, 0, Ballot::ZERO, Slot(0), &next_segment.to_be_bytes());
            }
        }
    }

    fn decode(head: &[u8; RECORD_HEAD_BYTES], bytes: &'a [u8]) -> Result<RawRecord<'a>, RecordError> {
        let group = GroupId(u32::from_be_bytes(head[..4].try_into().expect("4 bytes")));
        let (kind, flags) = (head[4], head[5]);
        let round = u64::from_be_bytes(head[8..16].try_into().expect("8 bytes"));
        let node = NodeId(u32::from_be_bytes(head[16..20].try_into().expect("4 bytes")));
        let slot = Slot(u64::from_be_bytes(head[20..28].try_into().expect("8 bytes")));
        let ballot = Ballot { round, node };
        if flags != 0 && (kind, flags) != (ACCEPTED, FLAG_CHOSEN) {
            return Err(RecordError::Flags { kind, flags });
        }
        match kind {
            BIRTH => Ok(RawRecord::Birth(bytes)),
            PROMISE => Ok(RawRecord::Promise { group, ballot }),
            ACCEPTED => Ok(RawRecord::Accepted { group, ballot, slot, value: bytes, chosen: flags == FLAG_CHOSEN }),
            COMMIT_HINT => Ok(RawRecord::CommitHint { group, commit_end: slot }),
            END => match bytes.try_into() {
                Ok(number) => Ok(RawRecord::End { next_segment: u64::from_be_bytes(number) }),
                Err(_) => Err(RecordError::Length { kind, bytes: bytes.len() }),
            },
            _ => Err(RecordError::Kind { kind }),
        }
    }
}

fn put(out: &mut Vec<u8>, group: GroupId, kind: u8, flags: u8, ballot: Ballot, slot: Slot, bytes: &[u8]) {
    out.extend_from_slice(&group.0.to_be_bytes());
    out.extend_from_slice(&[kind, flags, 0, 0]);
    out.extend_from_slice(&ballot.round.to_be_bytes());
    out.extend_from_slice(&ballot.node.0.to_be_bytes());
    out.extend_from_slice(&slot.0.to_be_bytes());
    let length = u32::try_from(bytes.len()).expect("BODY_BYTES_MAX < 2^32");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Why a body with a good crc is not made of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    #[error("a record of kind {kind}, which this build does not know")]
    Kind { kind: u8 },
    #[error("flags {flags:#04x} on a record of kind {kind}, which this build does not know")]
    Flags { kind: u8, flags: u8 },
    #[error("a record of kind {kind} with {bytes} bytes")]
    Length { kind: u8, bytes: usize },
    #[error("a record that reaches beyond its group")]
    Truncated,
}

/// The records of a body, in order. Ends at the first error.
pub(super) struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    pub fn of(body: &'a [u8]) -> Records<'a> {
        Records { rest: body }
    }

    fn take(&mut self) -> Result<RawRecord<'a>, RecordError> {
        let (head, rest) = self.rest.split_first_chunk::<RECORD_HEAD_BYTES>().ok_or(RecordError::Truncated)?;
        let length = u32::from_be_bytes(head[28..32].try_into().expect("4 bytes"));
        let (bytes, rest) = rest.split_at_checked(length as usize).ok_or(RecordError::Truncated)?;
        self.rest = rest;
        RawRecord::decode(head, bytes)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.rest = &[];
        }
        Some(taken)
    }
}

/// The value of a record, copied: it must not keep the whole group in memory.
pub(super) fn owned_value(value: &[u8]) -> Bytes {
    Bytes::copy_from_slice(value)
}

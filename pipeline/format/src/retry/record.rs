//! Records of the retry store's log, and their bytes.
//!
//! Body, big-endian: kind (1), position in the log (8), then
//! - *add* (1): id (8), source (4 + n), offset (8), stream (4 + n), timestamp (8), length of the id
//!   (1), id, reference (4 + n), payload (4 + n), reason (4 + n), origin (0 read; 1 re-injected and
//!   0, or 1 and cluster (16), group (4), slot (8));
//! - *done* (2): id (8), source (4 + n), offset (8), origin (0 or 1), ledger state (1);
//! - *base* (3), last in a log that was compacted: the next id (8).

use bytes::Bytes;
use photon_types::{ClusterId, EventKey, GroupId, Slot};

use crate::cursor::Ended;
use crate::fields::{Fields, put_key, put_optional, put_sized};

/// Names a record of a store, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryId(pub u64);

/// A click that is to be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryRecord {
    /// The source's stable name.
    pub source: String,
    /// The first byte of the record in it.
    pub offset: u64,
    /// The stream that selected it.
    pub stream: String,
    /// Its key.
    pub key: EventKey,
    /// The id of the query that it names.
    pub reference: Bytes,
    /// Its bytes.
    pub payload: Bytes,
    /// How it came here.
    pub origin: Origin,
    /// Why it was not joined at once, for people.
    pub reason: String,
}

/// How a click came to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Read from its source.
    Read,
    /// Sent again by a verifier.
    Reinjected {
        /// The delete that went before, if it was claimed: no look-up may be older.
        deleted: Option<DeletedAt>,
    },
}

/// Where in a replicated log a click's key was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletedAt {
    /// The cluster.
    pub cluster: ClusterId,
    /// The replication group in it.
    pub group: GroupId,
    /// The slot of the delete.
    pub slot: Slot,
}

impl Origin {
    pub(super) fn kind(self) -> OriginKind {
        match self {
            Origin::Read => OriginKind::Read,
            Origin::Reinjected { deleted: _ } => OriginKind::Reinjected,
        }
    }

    /// Whether what `self` demands of look-ups is already demanded by `other`.
    pub(super) fn is_covered_by(self, other: Origin) -> bool {
        match (self, other) {
            (Origin::Read | Origin::Reinjected { deleted: None }, _) => true,
            (Origin::Reinjected { deleted: Some(mine) }, Origin::Reinjected { deleted: Some(its) }) => {
                (mine.cluster, mine.group) == (its.cluster, its.group) && mine.slot <= its.slot
            }
            (Origin::Reinjected { deleted: Some(_) }, Origin::Read | Origin::Reinjected { deleted: None }) => false,
        }
    }
}

/// Read and re-injected records of one click are two records: the ledger counts both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OriginKind {
    Read,
    Reinjected,
}

/// What tells a click in the store from all others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub source: String,
    pub offset: u64,
    pub kind: OriginKind,
}

impl RetryRecord {
    pub(super) fn place(&self) -> Place {
        Place { source: self.source.clone(), offset: self.offset, kind: self.origin.kind() }
    }

    /// Bytes that count against the store's limit.
    pub(super) fn bytes(&self) -> u64 {
        let RetryRecord { source, offset: _, stream, key, reference, payload, origin: _, reason } = self;
        let texts = source.len() + stream.len() + reason.len() + key.id.as_bytes().len();
        (texts + reference.len() + payload.len() + FIXED_BYTES) as u64
    }
}

/// More than the fixed fields of a record take, in its frame or in memory.
const FIXED_BYTES: usize = 128;

/// One record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogRecord {
    /// Positions rise over the life of the store; compaction keeps them, and leaves gaps.
    pub position: u64,
    pub change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Add { id: RetryId, record: RetryRecord },
    Done { id: RetryId, place: Place, ended: Ended },
    Base { next_id: RetryId },
}

const ADD: u8 = 1;
const DONE: u8 = 2;
const BASE: u8 = 3;

impl LogRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let LogRecord { position, change } = self;
        match change {
            Change::Add { id, record } => {
                put_head(ADD, *position, *id, &mut out);
                put_record(record, &mut out);
            }
            Change::Done { id, place: Place { source, offset, kind }, ended } => {
                put_head(DONE, *position, *id, &mut out);
                put_sized(source.as_bytes(), &mut out);
                out.extend_from_slice(&offset.to_be_bytes());
                out.push(match kind {
                    OriginKind::Read => 0,
                    OriginKind::Reinjected => 1,
                });
                out.push(ended_code(*ended));
            }
            Change::Base { next_id } => put_head(BASE, *position, *next_id, &mut out),
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<LogRecord> {
        let mut fields = Fields(bytes);
        let (kind, position, id) = (fields.u8()?, fields.u64()?, RetryId(fields.u64()?));
        let change = match kind {
            ADD => Change::Add { id, record: take_record(&mut fields)? },
            DONE => {
                let (source, offset) = (fields.text()?, fields.u64()?);
                let kind = match fields.u8()? {
                    0 => OriginKind::Read,
                    1 => OriginKind::Reinjected,
                    2.. => return None,
                };
                Change::Done { id, place: Place { source, offset, kind }, ended: ended_of(fields.u8()?)? }
            }
            BASE => Change::Base { next_id: id },
            _ => return None,
        };
        // The last of each number is never given, so that the next one can be counted.
        (position < u64::MAX && id.0 < u64::MAX).then_some(())?;
        fields.end(LogRecord { position, change })
    }
}

fn put_head(kind: u8, position: u64, id: RetryId, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&position.to_be_bytes());
    out.extend_from_slice(&id.0.to_be_bytes());
}

fn put_record(record: &RetryRecord, out: &mut Vec<u8>) {
    let RetryRecord { source, offset, stream, key, reference, payload, origin, reason } = record;
    put_sized(source.as_bytes(), out);
    out.extend_from_slice(&offset.to_be_bytes());
    put_sized(stream.as_bytes(), out);
    put_key(key, out);
    put_sized(reference, out);
    put_sized(payload, out);
    put_sized(reason.as_bytes(), out);
    match origin {
        Origin::Read => out.push(0),
        Origin::Reinjected { deleted } => {
            out.push(1);
            put_optional(*deleted, out, |DeletedAt { cluster, group, slot }, out| {
                out.extend_from_slice(&cluster.0);
                out.extend_from_slice(&group.0.to_be_bytes());
                out.extend_from_slice(&slot.0.to_be_bytes());
            });
        }
    }
}

fn take_record(fields: &mut Fields<'_>) -> Option<RetryRecord> {
    let (source, offset, stream) = (fields.text()?, fields.u64()?, fields.text()?);
    let key = fields.key()?;
    let (reference, payload) = (Bytes::copy_from_slice(fields.sized()?), Bytes::copy_from_slice(fields.sized()?));
    let reason = fields.text()?;
    let origin = match fields.u8()? {
        0 => Origin::Read,
        1 => Origin::Reinjected { deleted: fields.optional(take_deleted_at)? },
        2.. => return None,
    };
    Some(RetryRecord { source, offset, stream, key, reference, payload, origin, reason })
}

fn take_deleted_at(fields: &mut Fields<'_>) -> Option<DeletedAt> {
    let (cluster, group) = (ClusterId(fields.array()?), GroupId(fields.u32()?));
    Some(DeletedAt { cluster, group, slot: Slot(fields.u64()?) })
}

fn ended_code(ended: Ended) -> u8 {
    match ended {
        Ended::Joined => 1,
        Ended::Claimed => 2,
        Ended::Filtered => 3,
        Ended::Unjoinable => 4,
        Ended::Expired => 5,
        Ended::DeadLettered => 6,
    }
}

fn ended_of(code: u8) -> Option<Ended> {
    Some(match code {
        1 => Ended::Joined,
        2 => Ended::Claimed,
        3 => Ended::Filtered,
        4 => Ended::Unjoinable,
        5 => Ended::Expired,
        6 => Ended::DeadLettered,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn deleted_at(slot: u64) -> Option<DeletedAt> {
        Some(DeletedAt { cluster: ClusterId([0xcd; 16]), group: GroupId(1), slot: Slot(slot) })
    }

    fn records() -> Vec<LogRecord> {
        let record = |origin| RetryRecord {
            source: "clicks/a.ndjson".into(),
            offset: 4096,
            stream: "clicks".into(),
            key: EventKey::new(1_700_000_000_000_000, b"e-1").unwrap(),
            reference: Bytes::from_static(b"q-1"),
            payload: Bytes::from_static(b"{}"),
            origin,
            reason: "no query yet".into(),
        };
        let origins =
            [Origin::Read, Origin::Reinjected { deleted: None }, Origin::Reinjected { deleted: deleted_at(99) }];
        let adds = origins.map(|origin| Change::Add { id: RetryId(7), record: record(origin) });
        let place = record(Origin::Read).place();
        let others =
            [Change::Done { id: RetryId(7), place, ended: Ended::Claimed }, Change::Base { next_id: RetryId(8) }];
        let changes = adds.into_iter().chain(others);
        changes.zip(41..).map(|(change, position)| LogRecord { position, change }).collect()
    }

    #[test]
    fn golden_bytes_go_round() {
        let lines: Vec<String> =
            records().iter().map(|record| record.encode().iter().map(|byte| format!("{byte:02x}")).collect()).collect();
        expect_test::expect![[r#"
            01000000000000002900000000000000070000000f636c69636b732f612e6e646a736f6e000000000000100000000006636c69636b7300060a24181e400003652d3100000003712d31000000027b7d0000000c6e6f2071756572792079657400
            01000000000000002a00000000000000070000000f636c69636b732f612e6e646a736f6e000000000000100000000006636c69636b7300060a24181e400003652d3100000003712d31000000027b7d0000000c6e6f207175657279207965740100
            01000000000000002b00000000000000070000000f636c69636b732f612e6e646a736f6e000000000000100000000006636c69636b7300060a24181e400003652d3100000003712d31000000027b7d0000000c6e6f207175657279207965740101cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd000000010000000000000063
            02000000000000002c00000000000000070000000f636c69636b732f612e6e646a736f6e00000000000010000002
            03000000000000002d0000000000000008"#]].assert_eq(&lines.join("\n"));
        records().iter().for_each(|record| assert_eq!(LogRecord::decode(&record.encode()).as_ref(), Some(record)));
    }

    #[test]
    fn every_cut_of_a_body_is_refused() {
        for record in records() {
            let bytes = record.encode();
            (0..bytes.len()).for_each(|end| assert_eq!(LogRecord::decode(&bytes[..end]), None));
        }
    }

    #[test]
    fn a_later_delete_is_not_covered_by_an_earlier_one() {
        let at = |slot| Origin::Reinjected { deleted: deleted_at(slot) };
        assert!(at(5).is_covered_by(at(5)));
        assert!(at(4).is_covered_by(at(5)));
        assert!(!at(6).is_covered_by(at(5)));
        assert!(!at(1).is_covered_by(Origin::Reinjected { deleted: None }));
        assert!(Origin::Reinjected { deleted: None }.is_covered_by(at(5)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = LogRecord::decode(&bytes);
        }

        #[test]
        fn mutilated_records_never_panic(which in 0usize..5, at in 0usize..120, byte in any::<u8>()) {
            let mut bytes = records()[which].encode();
            let at = at.min(bytes.len() - 1);
            bytes[at] = byte;
            let _ = LogRecord::decode(&bytes);
        }
    }
}

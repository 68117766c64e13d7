//! The bytes of a group of records: one write, beginning on a 4 KiB boundary.
//!
//! Invariant: both crcs are seeded with the incarnation of the disk: CRC-32 (IEEE) over the 16 bytes
//! of the incarnation and then the bytes. A group of another node's journal is no group here.
//!
//! Integers are big-endian. The head is 72 bytes; the body follows; zeros fill the last block.
//!
//! | at | field | |
//! |---|---|---|
//! | 0 | magic | `PHOTONJL` |
//! | 8 | version u16 | 1 |
//! | 10 | zero u16 | |
//! | 12 | length u32 | bytes of the body; 0 in an empty group |
//! | 16 | segment u64 | the file's number |
//! | 24 | life u64 | the boot in which it was written |
//! | 32 | sequence u64 | from 1 without a gap over segments and lives |
//! | 40 | synced u64, u64 | segment and byte up to which the journal was synced before this write |
//! | 56 | first u64 | the lowest segment still needed |
//! | 64 | crc of the body u32 | seeded |
//! | 68 | crc of bytes 0..68 u32 | seeded |

use crc32fast::Hasher;
use photon_types::Incarnation;

use super::JournalPosition;

/// Where a group may begin: a torn write can not damage a synced neighbor.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Bytes of the head of a group.
pub(super) const HEAD_BYTES: usize = 72;
/// The longest body of a group.
pub(super) const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

const MAGIC: &[u8; 8] = b"PHOTONJL";
const VERSION: u16 = 1;

const _: () = assert!(HEAD_BYTES as u64 <= BLOCK_BYTES);
const _: () = assert!(BODY_BYTES_MAX < u32::MAX as usize);

/// What both crcs begin with.
#[derive(Clone, Debug)]
pub(super) struct Seed(Hasher);

impl Seed {
    pub fn new(incarnation: Incarnation) -> Seed {
        let mut hasher = Hasher::new();
        hasher.update(&incarnation.0);
        Seed(hasher)
    }

    pub fn crc(&self, bytes: &[u8]) -> u32 {
        let mut hasher = self.0.clone();
        hasher.update(bytes);
        hasher.finalize()
    }
}

/// The head of a group of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub body_bytes: u32,
    pub segment: u64,
    pub life: u64,
    pub sequence: u64,
    pub synced: JournalPosition,
    pub first: u64,
    pub body_crc: u32,
}

/// What bytes at a boundary are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadCheck {
    Good(FrameHead),
    /// Written whole, by a build that knows more than this one.
    UnknownVersion(u16),
    Bad(&'static str),
}

impl FrameHead {
    /// Bytes of the group on disk, with the zeros that fill its last block.
    pub fn padded_bytes(&self) -> u64 {
        padded_bytes(self.body_bytes as usize)
    }

    pub fn encode(&self, seed: &Seed) -> [u8; HEAD_BYTES] {
        let FrameHead { body_bytes, segment, life, sequence, synced, first, body_crc } = *self;
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_be_bytes());
        bytes[12..16].copy_from_slice(&body_bytes.to_be_bytes());
        bytes[16..24].copy_from_slice(&segment.to_be_bytes());
        bytes[24..32].copy_from_slice(&life.to_be_bytes());
        bytes[32..40].copy_from_slice(&sequence.to_be_bytes());
        bytes[40..48].copy_from_slice(&synced.segment.to_be_bytes());
        bytes[48..56].copy_from_slice(&synced.byte.to_be_bytes());
        bytes[56..64].copy_from_slice(&first.to_be_bytes());
        bytes[64..68].copy_from_slice(&body_crc.to_be_bytes());
        let crc = seed.crc(&bytes[..68]);
        bytes[68..].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    pub fn check(bytes: &[u8; HEAD_BYTES], seed: &Seed) -> HeadCheck {
        if bytes.iter().all(|byte| *byte == 0) {
            return HeadCheck::Bad("zeros where a group should begin");
        }
        if &bytes[..8] != MAGIC {
            return HeadCheck::Bad("no group begins here");
        }
        if u32_at(bytes, 68) != seed.crc(&bytes[..68]) {
            return HeadCheck::Bad("the head of a group does not have its crc");
        }
        let version = u16::from_be_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return HeadCheck::UnknownVersion(version);
        }
        let head = FrameHead {
            body_bytes: u32_at(bytes, 12),
            segment: u64_at(bytes, 16),
            life: u64_at(bytes, 24),
            sequence: u64_at(bytes, 32),
            synced: JournalPosition { segment: u64_at(bytes, 40), byte: u64_at(bytes, 48) },
            first: u64_at(bytes, 56),
            body_crc: u32_at(bytes, 64),
        };
        if BODY_BYTES_MAX < head.body_bytes as usize {
            return HeadCheck::Bad("a group is longer than groups may be");
        }
        HeadCheck::Good(head)
    }
}

/// Bytes that a group with such a body takes on disk.
pub(super) fn padded_bytes(body_bytes: usize) -> u64 {
    ((HEAD_BYTES + body_bytes) as u64).next_multiple_of(BLOCK_BYTES)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

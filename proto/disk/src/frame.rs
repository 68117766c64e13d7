//! The bytes of the framed append file: its head and the head of a record.
//!
//! Invariant: the crc of a record's head is seeded with the file's nonce and the record's offset, so
//! that bytes inside a record (a dead letter may hold anything) never pass for a record.
//!
//! Integers are big-endian; crcs are CRC-32 (IEEE).
//!
//! | file head, 32 bytes | | record head, 32 bytes | |
//! |---|---|---|---|
//! | 0 | magic `PHOTONFR` | 0 | magic `PhRc` |
//! | 8 | kind u32 | 4 | version u16 |
//! | 12 | version u32 | 6 | zero u16 |
//! | 16 | nonce u64 | 8 | length of the body u32 |
//! | 24 | zero u32 | 12 | synced u64: how far the file was synced when this was appended |
//! | 28 | crc of bytes 0..28 | 20 | zero u32 |
//! | | | 24 | crc of the body |
//! | | | 28 | crc of nonce, offset u64, bytes 0..28 |

use crc32fast::Hasher;

/// Bytes of the head of a file.
pub(crate) const FILE_HEAD_BYTES: usize = 32;
/// Bytes of the head of a record.
pub(crate) const RECORD_HEAD_BYTES: usize = 32;
/// The version of this layout, in every record.
pub(crate) const FRAME_VERSION: u16 = 1;

const FILE_MAGIC: &[u8; 8] = b"PHOTONFR";
/// Where to look for a record behind damage.
pub(crate) const RECORD_MAGIC: &[u8; 4] = b"PhRc";

/// What stands at the beginning of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHead {
    pub kind: u32,
    pub version: u32,
    pub nonce: u64,
}

/// What stands before the body of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub version: u16,
    pub body_bytes: u32,
    pub synced: u64,
    pub body_crc: u32,
}

impl FileHead {
    pub fn encode(&self) -> [u8; FILE_HEAD_BYTES] {
        let mut bytes = [0; FILE_HEAD_BYTES];
        bytes[..8].copy_from_slice(FILE_MAGIC);
        bytes[8..12].copy_from_slice(&self.kind.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.version.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.nonce.to_be_bytes());
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// None where the bytes are not a head that was written whole.
    pub fn decode(bytes: &[u8; FILE_HEAD_BYTES]) -> Option<FileHead> {
        let whole = &bytes[..8] == FILE_MAGIC && u32_at(bytes, 28) == crc32fast::hash(&bytes[..28]);
        whole.then(|| FileHead { kind: u32_at(bytes, 8), version: u32_at(bytes, 12), nonce: u64_at(bytes, 16) })
    }
}

impl RecordHead {
    pub fn encode(&self, nonce: u64, offset: u64) -> [u8; RECORD_HEAD_BYTES] {
        let mut bytes = [0; RECORD_HEAD_BYTES];
        bytes[..4].copy_from_slice(RECORD_MAGIC);
        bytes[4..6].copy_from_slice(&self.version.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.body_bytes.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.synced.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.body_crc.to_be_bytes());
        let crc = seeded_crc(nonce, offset, &bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// None where the bytes are not a record's head that was written at this offset of this file.
    pub fn decode(bytes: &[u8; RECORD_HEAD_BYTES], nonce: u64, offset: u64) -> Option<RecordHead> {
        let whole = &bytes[..4] == RECORD_MAGIC && u32_at(bytes, 28) == seeded_crc(nonce, offset, &bytes[..28]);
        whole.then(|| RecordHead {
            version: u16::from_be_bytes([bytes[4], bytes[5]]),
            body_bytes: u32_at(bytes, 8),
            synced: u64_at(bytes, 12),
            body_crc: u32_at(bytes, 24),
        })
    }
}

fn seeded_crc(nonce: u64, offset: u64, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&nonce.to_be_bytes());
    hasher.update(&offset.to_be_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn heads_have_golden_bytes() {
        let file = FileHead { kind: 0x656e_6473, version: 3, nonce: 0x0102_0304_0506_0708 };
        assert_eq!(hex(&file.encode()), "50484f544f4e4652656e647300000003010203040506070800000000e767b045");
        assert_eq!(FileHead::decode(&file.encode()), Some(file));
        let record = RecordHead { version: FRAME_VERSION, body_bytes: 5, synced: 32, body_crc: 0xaabb_ccdd };
        let bytes = record.encode(file.nonce, 64);
        assert_eq!(hex(&bytes), "506852630001000000000005000000000000002000000000aabbccddc07905f0");
        assert_eq!(RecordHead::decode(&bytes, file.nonce, 64), Some(record));
        assert_eq!(RecordHead::decode(&bytes, file.nonce, 65), None);
        assert_eq!(RecordHead::decode(&bytes, file.nonce + 1, 64), None);
    }
}

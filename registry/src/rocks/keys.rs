//! Column families, and the keys of the `meta` family. The keys of rows are the machine's own
//! (`photon_core::machine::RowKey`): bucket, group, timestamp, id.
//!
//! | key | value |
//! |---|---|
//! | `group` group u32 | `applied_end` and the bounds of time |
//! | `rules` group u32 | the text of the key rules |
//! | `digest` group u32 bucket u32 | the digest of a bucket |
//!
//! Integers are big-endian. Each value ends in a crc over key and value (`meta`).

use photon_core::machine::Bucket;
use photon_types::GroupId;

/// Rows.
pub(super) const IDS: &str = "ids";
/// All that is not a row.
pub(super) const META: &str = "meta";

/// `applied_end` and bounds of a group.
pub(super) fn group(group: GroupId) -> [u8; 9] {
    let mut key = *b"group\0\0\0\0";
    key[5..].copy_from_slice(&group.0.to_be_bytes());
    key
}

/// The key rules that a group keeps.
pub(super) fn rules(group: GroupId) -> [u8; 9] {
    let mut key = *b"rules\0\0\0\0";
    key[5..].copy_from_slice(&group.0.to_be_bytes());
    key
}

/// The digest of a bucket of a group.
pub(super) fn digest(group: GroupId, bucket: Bucket) -> [u8; 14] {
    let mut key = *b"digest\0\0\0\0\0\0\0\0";
    key[6..10].copy_from_slice(&group.0.to_be_bytes());
    key[10..].copy_from_slice(&bucket.0.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_golden() {
        assert_eq!(group(GroupId(1)), *b"group\0\0\0\x01");
        assert_eq!(rules(GroupId(0x0102_0304)), *b"rules\x01\x02\x03\x04");
        assert_eq!(digest(GroupId(1), Bucket(0x0007_5948)), *b"digest\0\0\0\x01\0\x07\x59\x48");
    }
}

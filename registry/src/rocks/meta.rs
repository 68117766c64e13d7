//! The values of the `meta` column family.
//!
//! Invariant: a value is believed only if its crc, over its key and its bytes, is right. RocksDB
//! checks blocks; this checks that a record is the one that was meant, and whole.
//!
//! | record | bytes |
//! |---|---|
//! | group | format u8 = 1, `applied_end` u64, boundary u64, `drop_end` u64 |
//! | rules | format u8 = 1, UTF-8 text |
//! | digest | 16 bytes |
//!
//! Each is followed by crc32 (IEEE) u32 over key and bytes. Integers are big-endian.

use std::sync::Arc;

use photon_core::machine::Digest;
use photon_types::{KEY_RULES_BYTES_MAX, Slot, Timestamp};
use xxhash_rust::xxh3::xxh3_128;

/// The version of row keys, values, column families and the records here.
pub(super) const TABLE_FORMAT: u8 = 1;

const CRC_BYTES: usize = 4;

/// How far a group is applied, and its bounds of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupRecord {
    pub applied_end: Slot,
    pub boundary: Timestamp,
    pub drop_end: Timestamp,
}

/// The key rules of the cluster, and the hash by which clients state theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRules {
    pub text: String,
    pub hash: [u8; 16],
}

impl KeyRules {
    pub fn new(text: String) -> Arc<KeyRules> {
        let hash = xxh3_128(text.as_bytes()).to_be_bytes();
        Arc::new(KeyRules { text, hash })
    }
}

/// A record of `meta`.
pub(super) trait MetaRecord: Sized {
    fn encode(&self) -> Vec<u8>;
    /// The reverse; says what is wrong.
    fn decode(bytes: &[u8]) -> Result<Self, String>;

    /// The value that goes under `key`.
    fn seal(&self, key: &[u8]) -> Vec<u8> {
        let mut value = self.encode();
        let crc = crc(key, &value);
        value.extend_from_slice(&crc.to_be_bytes());
        value
    }

    /// Reads the value that was found under `key`.
    fn open(key: &[u8], value: &[u8]) -> Result<Self, String> {
        let (bytes, found) = value.split_last_chunk::<CRC_BYTES>().ok_or("it is shorter than a crc")?;
        let (found, expected) = (u32::from_be_bytes(*found), crc(key, bytes));
        if found != expected {
            return Err(format!("its crc is {found:08x}, expected {expected:08x}"));
        }
        Self::decode(bytes)
    }
}

fn crc(key: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(bytes);
    hasher.finalize()
}

impl MetaRecord for GroupRecord {
    fn encode(&self) -> Vec<u8> {
        let GroupRecord { applied_end, boundary, drop_end } = self;
        [
            &[TABLE_FORMAT][..],
            &applied_end.0.to_be_bytes(),
            &boundary.micros().to_be_bytes(),
            &drop_end.micros().to_be_bytes(),
        ]
        .concat()
    }

    fn decode(bytes: &[u8]) -> Result<GroupRecord, String> {
        let bytes = strip_format(bytes)?;
        let (words, rest) = bytes.as_chunks::<8>();
        let ([applied_end, boundary, drop_end], true) = (words, rest.is_empty()) else {
            return Err(format!("it has {} bytes, 24 are expected", bytes.len()));
        };
        let time = |bytes: &[u8; 8]| Timestamp::from_micros(u64::from_be_bytes(*bytes)).map_err(|e| e.to_string());
        let record = GroupRecord {
            applied_end: Slot(u64::from_be_bytes(*applied_end)),
            boundary: time(boundary)?,
            drop_end: time(drop_end)?,
        };
        if record.boundary < record.drop_end {
            return Err(format!("drop_end {} is above the boundary {}", record.drop_end, record.boundary));
        }
        Ok(record)
    }
}

impl MetaRecord for KeyRules {
    fn encode(&self) -> Vec<u8> {
        [&[TABLE_FORMAT][..], self.text.as_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Result<KeyRules, String> {
        let text = str::from_utf8(strip_format(bytes)?).map_err(|_| "it is not UTF-8".to_owned())?;
        if KEY_RULES_BYTES_MAX < text.len() {
            return Err(format!("it has {} bytes, {KEY_RULES_BYTES_MAX} are allowed", text.len()));
        }
        Ok(KeyRules { text: text.to_owned(), hash: xxh3_128(text.as_bytes()).to_be_bytes() })
    }
}

impl MetaRecord for Digest {
    fn encode(&self) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }

    fn decode(bytes: &[u8]) -> Result<Digest, String> {
        let bytes = bytes.try_into().map_err(|_| format!("it has {} bytes, 16 are expected", bytes.len()))?;
        Ok(Digest(u128::from_be_bytes(bytes)))
    }
}

fn strip_format(bytes: &[u8]) -> Result<&[u8], String> {
    let (format, bytes) = bytes.split_first().ok_or("it is empty")?;
    if *format != TABLE_FORMAT {
        return Err(format!("it has format {format}, this build reads {TABLE_FORMAT}"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn goes_round<R: MetaRecord + Debug + PartialEq>(record: &R) {
        let value = record.seal(b"key");
        assert_eq!(R::open(b"key", &value).as_ref(), Ok(record));
        // Under another key, or with any bit wrong, it is nothing.
        assert!(R::open(b"kez", &value).unwrap_err().contains("crc"));
        for at in 0..value.len() {
            let mut bad = value.clone();
            bad[at] ^= 1;
            assert!(R::open(b"key", &bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn records_go_round() {
        let time = |micros| Timestamp::from_micros(micros).unwrap();
        goes_round(&GroupRecord { applied_end: Slot(7), boundary: time(9), drop_end: time(8) });
        goes_round(&*KeyRules::new("events.id = _id".into()));
        goes_round(&Digest(u128::MAX - 5));
    }

    #[test]
    fn bytes_are_golden() {
        let record = GroupRecord { applied_end: Slot(258), ..GroupRecord::default() };
        let hex: String = record.seal(b"group\0\0\0\x01").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "010000000000000102000000000000000000000000000000005984af38");
    }

    #[test]
    fn another_format_is_named() {
        let value = [vec![9], vec![0; 24]].concat();
        let sealed = [value.clone(), crc(b"k", &value).to_be_bytes().to_vec()].concat();
        assert_eq!(GroupRecord::open(b"k", &sealed).unwrap_err(), "it has format 9, this build reads 1");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let sealed = [bytes.clone(), crc(b"k", &bytes).to_be_bytes().to_vec()].concat();
            let _ = GroupRecord::open(b"k", &sealed);
            let _ = KeyRules::open(b"k", &sealed);
            let _ = Digest::open(b"k", &sealed);
            let _ = Digest::open(b"k", &bytes);
        }
    }
}

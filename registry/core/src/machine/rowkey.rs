//! The bytes of rows. They lie on disk and go into digests: they must remain as they are.
//!
//! | part | bytes | |
//! |---|---|---|
//! | bucket | 4, big-endian | timestamp divided by the bucket width |
//! | group | 4, big-endian | the replication group |
//! | timestamp | 8, big-endian | microseconds |
//! | id | 1 to 100 | |
//!
//! The value of a row is the winner's token (24 bytes), or nothing when it was forgotten.
//!
//! Invariant: big-endian parts sort by time first, so that rows expire by whole files.

use std::fmt;

use photon_types::{EVENT_ID_BYTES_MAX, EventId, EventKey, GroupId, Holder, TIMESTAMP_END, Timestamp, Token};

/// The default width of a time bucket: one hour, in microseconds.
pub const BUCKET_WIDTH_MICROS: u64 = 3_600_000_000;

/// The narrowest bucket whose number fits 32 bits for every timestamp: about 2.1 seconds.
pub const BUCKET_WIDTH_MICROS_MIN: u64 = 1 << 21;

const _: () = assert!((TIMESTAMP_END - 1) / BUCKET_WIDTH_MICROS_MIN <= u32::MAX as u64);
const _: () = assert!(BUCKET_WIDTH_MICROS_MIN <= BUCKET_WIDTH_MICROS);

const HEAD_BYTES: usize = 4 + 4 + 8;

/// The longest row key.
pub const ROW_KEY_BYTES_MAX: usize = HEAD_BYTES + EVENT_ID_BYTES_MAX;

/// The number of a time bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(pub u32);

/// The key of a row. Ordered as the bytes are: bucket, group, time, id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey(Box<[u8]>);

impl RowKey {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bucket that the row lies in.
    #[must_use]
    pub fn bucket(&self) -> Bucket {
        let bytes = self.0.first_chunk().expect("a row key has a head");
        Bucket(u32::from_be_bytes(*bytes))
    }
}

impl AsRef<[u8]> for RowKey {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// How the rows of one group are laid out. The width is fixed when the cluster is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowLayout {
    group: GroupId,
    bucket_width_micros: u64,
}

impl RowLayout {
    /// A layout.
    ///
    /// # Errors
    /// [`RowKeyError::BucketWidth`] when bucket numbers would not fit 32 bits.
    pub fn new(group: GroupId, bucket_width_micros: u64) -> Result<RowLayout, RowKeyError> {
        if bucket_width_micros < BUCKET_WIDTH_MICROS_MIN {
            return Err(RowKeyError::BucketWidth { found: bucket_width_micros });
        }
        Ok(RowLayout { group, bucket_width_micros })
    }

    /// The layout with buckets of one hour.
    #[must_use]
    pub const fn hourly(group: GroupId) -> RowLayout {
        RowLayout { group, bucket_width_micros: BUCKET_WIDTH_MICROS }
    }

    /// The bucket of a time.
    #[must_use]
    pub fn bucket(&self, timestamp: Timestamp) -> Bucket {
        let bucket = timestamp.micros() / self.bucket_width_micros;
        Bucket(u32::try_from(bucket).expect("the width is not below its minimum"))
    }

    /// The row of an event key.
    #[must_use]
    pub fn row_key(&self, key: &EventKey) -> RowKey {
        let id = key.id.as_bytes();
        let mut bytes = Vec::with_capacity(HEAD_BYTES + id.len());
        bytes.extend_from_slice(&self.bucket(key.timestamp).0.to_be_bytes());
        bytes.extend_from_slice(&self.group.0.to_be_bytes());
        bytes.extend_from_slice(&key.timestamp.micros().to_be_bytes());
        bytes.extend_from_slice(id);
        RowKey(bytes.into_boxed_slice())
    }

    /// Reads a row key back, as rows of this layout have it.
    ///
    /// # Errors
    /// [`RowKeyError`] when the bytes are not the key of a row of this group and width.
    pub fn read_row_key(&self, bytes: &[u8]) -> Result<(RowKey, EventKey), RowKeyError> {
        let refuse = || RowKeyError::Bytes { found: bytes.into() };
        let (head, id) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or_else(refuse)?;
        let micros = u64::from_be_bytes(*head.last_chunk().expect("8 of 16 bytes"));
        let timestamp = Timestamp::from_micros(micros).map_err(|_| refuse())?;
        let id = EventId::new(id).map_err(|_| refuse())?;
        let key = EventKey { timestamp, id };
        let row_key = self.row_key(&key);
        if row_key.as_bytes() != bytes {
            return Err(refuse());
        }
        Ok((row_key, key))
    }
}

/// The bytes of a row's value.
#[must_use]
pub fn encode_holder(holder: Holder) -> ([u8; Token::BYTES], usize) {
    match holder {
        Holder::Token(token) => (token.to_bytes(), Token::BYTES),
        Holder::Forgotten => ([0; Token::BYTES], 0),
    }
}

/// Reads the value of a row.
///
/// # Errors
/// [`RowKeyError::Value`] when it is neither a token nor empty.
pub fn decode_holder(bytes: &[u8]) -> Result<Holder, RowKeyError> {
    if bytes.is_empty() {
        return Ok(Holder::Forgotten);
    }
    let token = bytes.try_into().map_err(|_| RowKeyError::Value { found: bytes.len() })?;
    Ok(Holder::Token(Token::from_bytes(token)))
}

/// Why bytes are not a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowKeyError {
    /// Buckets are too narrow.
    BucketWidth {
        /// What was given, in microseconds.
        found: u64,
    },
    /// A key that no row of this layout has.
    Bytes {
        /// What was read.
        found: Box<[u8]>,
    },
    /// A value of a wrong length.
    Value {
        /// Its length.
        found: usize,
    },
}

impl fmt::Display for RowKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowKeyError::BucketWidth { found } => write!(
                f,
                "a bucket width of {found} µs is below {BUCKET_WIDTH_MICROS_MIN} µs, and bucket numbers would not fit"
            ),
            RowKeyError::Bytes { found } => {
                f.write_str("no row of this group and bucket width has the key ")?;
                found.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            RowKeyError::Value { found } => {
                write!(f, "the value of a row has 0 or {} bytes, not {found}", Token::BYTES)
            }
        }
    }
}

impl std::error::Error for RowKeyError {}

#[cfg(test)]
mod tests {
    use photon_types::Incarnation;
    use proptest::prelude::*;

    use super::*;

    const LAYOUT: RowLayout = RowLayout::hourly(GroupId(1));

    #[track_caller]
    fn check(micros: u64, id: &[u8], want: &str) {
        let key = EventKey::new(micros, id).unwrap();
        let row_key = LAYOUT.row_key(&key);
        assert_eq!(format!("{row_key:?}"), want);
        assert_eq!(LAYOUT.read_row_key(row_key.as_bytes()), Ok((row_key.clone(), key)));
        assert_eq!(row_key.bucket(), LAYOUT.bucket(Timestamp::from_micros(micros).unwrap()));
    }

    #[test]
    fn row_keys_are_golden() {
        check(0, b"a", "0000000000000001000000000000000061");
        check(3_599_999_999, b"a", "000000000000000100000000d693a3ff61");
        check(3_600_000_000, b"a", "000000010000000100000000d693a40061");
        check(1_733_788_889_378_000, b"adbef2c4", "0007594800000001000628df2eddecd06164626566326334");
        check(TIMESTAMP_END - 1, b"z", "00262d6f00000001001fffffffffffff7a");
    }

    #[test]
    fn values_are_golden() {
        let token = Token { incarnation: Incarnation([0xab; 16]), sequence: 5 };
        let (bytes, length) = encode_holder(Holder::Token(token));
        assert_eq!(length, 24);
        assert_eq!(bytes[..16], [0xab; 16]);
        assert_eq!(bytes[16..], [0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(decode_holder(&bytes), Ok(Holder::Token(token)));
        assert_eq!(encode_holder(Holder::Forgotten).1, 0);
        assert_eq!(decode_holder(&[]), Ok(Holder::Forgotten));
        assert_eq!(decode_holder(&[1; 23]), Err(RowKeyError::Value { found: 23 }));
    }

    #[test]
    fn narrow_buckets_are_refused() {
        assert!(RowLayout::new(GroupId(1), BUCKET_WIDTH_MICROS_MIN).is_ok());
        let error = RowLayout::new(GroupId(1), 1_000_000).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a bucket width of 1000000 µs is below 2097152 µs, and bucket numbers would not fit"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..130)) {
            let _ = LAYOUT.read_row_key(&bytes);
            let _ = decode_holder(&bytes);
        }

        /// The order of rows is the order of keys.
        #[test]
        fn rows_sort_by_time_then_id(
            a in (0..TIMESTAMP_END, proptest::collection::vec(any::<u8>(), 1..5)),
            b in (0..TIMESTAMP_END, proptest::collection::vec(any::<u8>(), 1..5)),
        ) {
            let a = EventKey::new(a.0, &a.1).unwrap();
            let b = EventKey::new(b.0, &b.1).unwrap();
            prop_assert_eq!(a.cmp(&b), LAYOUT.row_key(&a).cmp(&LAYOUT.row_key(&b)));
        }
    }
}

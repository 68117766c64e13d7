//! Digests: what a bucket's rows add up to, so that replicas can be compared.
//!
//! Invariant: the digest of a bucket depends on its rows alone, not on the order in which they
//! came and went. Each row is one term, a put adds it, a delete takes it away, a forgotten token
//! is the old term away and the new one added.
//!
//! A term is xxh3-128 (seed 0) over: length of the row key (u16 big-endian), row key, value. The
//! length keeps a token apart from an id that ends in the same bytes. It must remain so.

use std::fmt;

use photon_types::Holder;
use xxhash_rust::xxh3::xxh3_128;

use super::rowkey::{ROW_KEY_BYTES_MAX, RowKey, encode_holder};

const TERM_BYTES_MAX: usize = 2 + ROW_KEY_BYTES_MAX + 24;

/// The wrapping sum of the terms of a bucket's rows. Zero for a bucket without rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u128);

impl Digest {
    /// With one row more.
    #[must_use]
    pub fn with(self, key: &RowKey, holder: Holder) -> Digest {
        Digest(self.0.wrapping_add(term(key, holder)))
    }

    /// With one row less.
    #[must_use]
    pub fn without(self, key: &RowKey, holder: Holder) -> Digest {
        Digest(self.0.wrapping_sub(term(key, holder)))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

fn term(key: &RowKey, holder: Holder) -> u128 {
    let key = key.as_bytes();
    let (value, value_bytes) = encode_holder(holder);
    let length = u16::try_from(key.len()).expect("a row key has at most 116 bytes");
    let mut bytes = [0; TERM_BYTES_MAX];
    let key_end = 2 + key.len();
    bytes[..2].copy_from_slice(&length.to_be_bytes());
    bytes[2..key_end].copy_from_slice(key);
    bytes[key_end..key_end + value_bytes].copy_from_slice(&value[..value_bytes]);
    xxh3_128(&bytes[..key_end + value_bytes])
}

#[cfg(test)]
mod tests {
    use photon_types::{EventKey, GroupId, Incarnation, Token};

    use super::*;
    use crate::machine::rowkey::RowLayout;

    fn row(micros: u64, id: &[u8]) -> RowKey {
        RowLayout::hourly(GroupId(1)).row_key(&EventKey::new(micros, id).unwrap())
    }

    fn token(sequence: u64) -> Holder {
        Holder::Token(Token { incarnation: Incarnation([7; 16]), sequence })
    }

    #[test]
    fn digests_are_golden() {
        let one = Digest::default().with(&row(1_733_788_889_378_000, b"adbef2c4"), token(9));
        let two = one.with(&row(1_733_788_889_378_001, b"x"), Holder::Forgotten);
        assert_eq!(one.to_string(), "57fbdd4e91d9843159aaedd425affe33");
        assert_eq!(two.to_string(), "d08f1aa4c8c3ccd32d535652529bde50");
    }

    #[test]
    fn order_does_not_matter_and_a_row_can_go() {
        let (a, b) = (row(1, b"a"), row(2, b"b"));
        let sum = Digest::default().with(&a, token(1)).with(&b, token(2));
        assert_eq!(Digest::default().with(&b, token(2)).with(&a, token(1)), sum);
        assert_eq!(sum.without(&a, token(1)).without(&b, token(2)), Digest::default());
    }

    #[test]
    fn a_token_is_not_the_end_of_an_id() {
        let Holder::Token(held) = token(3) else { unreachable!("made above") };
        let long: Vec<u8> = [b"a".as_slice(), &held.to_bytes()].concat();
        assert_ne!(
            Digest::default().with(&row(1, b"a"), token(3)),
            Digest::default().with(&row(1, &long), Holder::Forgotten)
        );
    }
}

//! Numbers and marks that could be confused are types of their own.

use std::fmt;
use std::str::FromStr;

/// A node of the registry. Bound to one incarnation of one disk, and never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A replication group: one replicated log. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// A position in the replicated log of a group, from 0 without a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u64);

impl Slot {
    /// The slot behind this one. A log of 2^64 slots can not be written.
    #[must_use]
    pub fn next(self) -> Slot {
        Slot(self.0.checked_add(1).expect("fewer than 2^64 slots"))
    }
}

/// 128 random bits that name one life of something that owns files: a disk of a registry node,
/// or one instance of a joiner. Written as 32 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub [u8; 16]);

/// The name of a registry cluster: a hash of its birth record. Written as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub [u8; 16]);

/// A text that is not 32 lower-case hex digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseHexError {
    /// What was read.
    pub found: String,
}

impl fmt::Display for ParseHexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected 32 lower-case hex digits, found {:?}", self.found)
    }
}

impl std::error::Error for ParseHexError {}

macro_rules! number_display {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
number_display!(NodeId, GroupId, Slot);

macro_rules! hex_text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", u128::from_be_bytes(self.0))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl FromStr for $name {
            type Err = ParseHexError;
            fn from_str(text: &str) -> Result<Self, ParseHexError> {
                let lower_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
                if text.len() != 32 || !text.bytes().all(lower_hex) {
                    return Err(ParseHexError { found: text.to_owned() });
                }
                let value = u128::from_str_radix(text, 16).expect("32 hex digits fit 128 bits");
                Ok($name(value.to_be_bytes()))
            }
        }
    )*};
}
hex_text!(Incarnation, ClusterId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_goes_round_and_rubbish_is_refused() {
        let incarnation = Incarnation([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        let text = incarnation.to_string();
        assert_eq!(text, "000102030405060708090a0b0c0d0eff");
        assert_eq!(text.parse(), Ok(incarnation));
        for rubbish in ["", "00", "+00102030405060708090a0b0c0d0eff", "000102030405060708090A0B0C0D0EFF"] {
            assert!(rubbish.parse::<Incarnation>().is_err(), "{rubbish:?}");
        }
    }
}

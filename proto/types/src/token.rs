//! The token of an attempt.
//!
//! Invariant: a token belongs to one attempt, which is one run of one click through one joiner
//! and may write at most once. Every repetition of the insert within the attempt carries the same
//! token; no two attempts ever share one.

use std::fmt;
use std::str::FromStr;

use crate::id::{Incarnation, ParseHexError};

/// Who inserted an id: the joiner's incarnation and the attempt's number within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// The joiner instance.
    pub incarnation: Incarnation,
    /// The attempt's number, from 1, each given out once.
    pub sequence: u64,
}

impl Token {
    /// Bytes of a token on disk and on the wire.
    pub const BYTES: usize = 24;

    /// Incarnation (16 bytes), sequence (8 bytes, big-endian).
    #[must_use]
    pub fn to_bytes(self) -> [u8; Token::BYTES] {
        let mut bytes = [0; Token::BYTES];
        bytes[..16].copy_from_slice(&self.incarnation.0);
        bytes[16..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    /// The reverse of [`Token::to_bytes`]; every 24 bytes are a token.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Token::BYTES]) -> Token {
        let (incarnation, sequence) = bytes.split_at(16);
        Token {
            incarnation: Incarnation(incarnation.try_into().expect("16 bytes")),
            sequence: u64::from_be_bytes(sequence.try_into().expect("8 bytes")),
        }
    }
}

/// `<32 hex digits>-<sequence>`, as in the joined log.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.incarnation, self.sequence)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Token {
    type Err = ParseHexError;

    fn from_str(text: &str) -> Result<Token, ParseHexError> {
        let refuse = || ParseHexError { found: text.to_owned() };
        let (incarnation, sequence) = text.split_once('-').ok_or_else(refuse)?;
        // One text per token: no sign, no leading zero.
        let plain = sequence.bytes().all(|b| b.is_ascii_digit()) && (sequence == "0" || !sequence.starts_with('0'));
        if !plain {
            return Err(refuse());
        }
        Ok(Token { incarnation: incarnation.parse()?, sequence: sequence.parse().map_err(|_| refuse())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_go_round() {
        let token = Token { incarnation: Incarnation([0xab; 16]), sequence: 42 };
        assert_eq!(token.to_string(), "abababababababababababababababab-42");
        assert_eq!(token.to_string().parse(), Ok(token));
        assert_eq!(Token::from_bytes(&token.to_bytes()), token);
        for rubbish in ["ab-1", "abababababababababababababababab", "abababababababababababababababab-042"] {
            assert!(rubbish.parse::<Token>().is_err(), "{rubbish:?}");
        }
    }
}

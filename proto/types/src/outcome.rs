//! What the state machine decided, and its bytes.
//!
//! An outcome is an answer, never an error. It is `kind u8 | body`, self-delimiting:
//!
//! | kind | outcome | body |
//! |---|---|---|
//! | 1 | `Inserted` | |
//! | 2, 3 | `Duplicate` by a token / forgotten | token 24 / none |
//! | 4 | `Expired` | boundary u64 |
//! | 5, 6 | `Present` by a token / forgotten | token 24 / none |
//! | 7 | `Absent` | |
//! | 8 | `Deleted` | |
//! | 9, 10 | `Mismatch` by a token / forgotten | token 24 / none |
//! | 11 | `Forgotten` | |
//! | 12 | `KeyRulesKept` | |
//! | 13 | `KeyRulesDiffer` | length u16, text |
//! | 14 | `Invalid` | |

use crate::codec::{CodecError, Reader};
use crate::key::Timestamp;
use crate::token::Token;

/// Who holds an id: a token, or a mark that it was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// The attempt that won.
    Token(Token),
    /// The winner's token was forgotten after its line was seen durable.
    Forgotten,
}

/// The answer of the state machine to one command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// `Insert`: the id is this attempt's, now or since an earlier call with the same token.
    Inserted,
    /// `Insert`: another attempt has it, or its token was forgotten.
    Duplicate {
        /// Who has it.
        winner: Holder,
    },
    /// Any: no row, and the id is below the boundary, so none will ever be made. For `Delete` and
    /// `ForgetToken` also with a row: below the boundary they change nothing.
    Expired {
        /// The boundary when this was applied.
        boundary: Timestamp,
    },
    /// `Lookup`: somebody has it.
    Present {
        /// Who has it.
        winner: Holder,
    },
    /// `Lookup`, `Delete`, `ForgetToken`: nobody has it.
    Absent,
    /// `Delete`: the row is gone.
    Deleted,
    /// `Delete`, `ForgetToken`: another token has it; nothing changed.
    Mismatch {
        /// Who has it.
        winner: Holder,
    },
    /// `ForgetToken`: the token is replaced by the mark.
    Forgotten,
    /// `StateKeyRules`: these are the cluster's rules, from now on or since an earlier statement.
    KeyRulesKept,
    /// `StateKeyRules`: the cluster has other rules.
    KeyRulesDiffer {
        /// The cluster's rules.
        kept: String,
    },
    /// Any: the command could not be read. Nothing changed.
    Invalid,
}

/// The outcomes of one chunk, in the order of its commands.
pub type Outcomes = Vec<Outcome>;

impl Outcome {
    /// Appends the bytes of this outcome.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Outcome::Inserted => out.push(1),
            Outcome::Duplicate { winner } => encode_holder(2, winner, out),
            Outcome::Expired { boundary } => {
                out.push(4);
                out.extend_from_slice(&boundary.micros().to_be_bytes());
            }
            Outcome::Present { winner } => encode_holder(5, winner, out),
            Outcome::Absent => out.push(7),
            Outcome::Deleted => out.push(8),
            Outcome::Mismatch { winner } => encode_holder(9, winner, out),
            Outcome::Forgotten => out.push(11),
            Outcome::KeyRulesKept => out.push(12),
            Outcome::KeyRulesDiffer { kept } => {
                out.push(13);
                let length = u16::try_from(kept.len()).expect("key rules are at most 16 KiB");
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(kept.as_bytes());
            }
            Outcome::Invalid => out.push(14),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Outcome, CodecError> {
        Ok(match reader.u8()? {
            1 => Outcome::Inserted,
            kind @ (2 | 3) => Outcome::Duplicate { winner: decode_holder(kind == 2, reader)? },
            4 => Outcome::Expired { boundary: Timestamp::from_micros(reader.u64()?)? },
            kind @ (5 | 6) => Outcome::Present { winner: decode_holder(kind == 5, reader)? },
            7 => Outcome::Absent,
            8 => Outcome::Deleted,
            kind @ (9 | 10) => Outcome::Mismatch { winner: decode_holder(kind == 9, reader)? },
            11 => Outcome::Forgotten,
            12 => Outcome::KeyRulesKept,
            13 => {
                let length = usize::from(reader.u16()?);
                let text = std::str::from_utf8(reader.bytes(length)?).map_err(|_| CodecError::Text)?;
                Outcome::KeyRulesDiffer { kept: text.to_owned() }
            }
            14 => Outcome::Invalid,
            found => return Err(CodecError::Kind { found }),
        })
    }
}

fn encode_holder(kind: u8, holder: &Holder, out: &mut Vec<u8>) {
    match holder {
        Holder::Token(token) => {
            out.push(kind);
            out.extend_from_slice(&token.to_bytes());
        }
        Holder::Forgotten => out.push(kind + 1),
    }
}

fn decode_holder(has_token: bool, reader: &mut Reader<'_>) -> Result<Holder, CodecError> {
    if has_token { Ok(Holder::Token(Token::from_bytes(&reader.array()?))) } else { Ok(Holder::Forgotten) }
}

/// The bytes of many outcomes, one behind the other.
#[must_use]
pub fn encode_outcomes(outcomes: &[Outcome]) -> Vec<u8> {
    let mut out = Vec::with_capacity(outcomes.len() * 4);
    outcomes.iter().for_each(|outcome| outcome.encode(&mut out));
    out
}

/// The reverse of [`encode_outcomes`].
///
/// # Errors
/// [`CodecError`] where the bytes are not outcomes.
pub fn decode_outcomes(bytes: &[u8]) -> Result<Outcomes, CodecError> {
    let mut reader = Reader(bytes);
    let mut outcomes = Vec::new();
    while !reader.0.is_empty() {
        outcomes.push(Outcome::decode(&mut reader)?);
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::Incarnation;

    #[test]
    fn every_outcome_goes_round() {
        let token = Holder::Token(Token { incarnation: Incarnation([3; 16]), sequence: 8 });
        let outcomes = vec![
            Outcome::Inserted,
            Outcome::Duplicate { winner: token },
            Outcome::Duplicate { winner: Holder::Forgotten },
            Outcome::Expired { boundary: Timestamp::from_micros(5).unwrap() },
            Outcome::Present { winner: token },
            Outcome::Present { winner: Holder::Forgotten },
            Outcome::Absent,
            Outcome::Deleted,
            Outcome::Mismatch { winner: token },
            Outcome::Mismatch { winner: Holder::Forgotten },
            Outcome::Forgotten,
            Outcome::KeyRulesKept,
            Outcome::KeyRulesDiffer { kept: "events.zone = UTC".into() },
            Outcome::Invalid,
        ];
        assert_eq!(decode_outcomes(&encode_outcomes(&outcomes)), Ok(outcomes));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_outcomes(&bytes);
        }
    }
}

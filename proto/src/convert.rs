//! From the wire to the vocabulary of `photon-types`: the only place that trusts no bytes.
//!
//! Invariant: what comes out is valid, and whatever the bytes, nothing panics. An error names the
//! field and what was found, so that it can be sent back as it is.
//!
//! Not here: the messages of the consensus core, which this crate does not know; their conversion
//! lies beside the service that carries them, built from the pieces here.

use photon_types::{
    Chunk, ClusterId, CodecError, EventKey, Incarnation, KEY_RULES_BYTES_MAX, KeyError, Outcomes, Token,
    decode_outcomes,
};
use tonic::codegen::Bytes;

use crate::registry;

/// Why bytes from the wire are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// A mark or a hash of the wrong length.
    #[error("{field} has {found} bytes, {expected} are expected")]
    Length {
        /// The field.
        field: &'static str,
        /// What was read.
        found: usize,
        /// What is allowed, in words.
        expected: &'static str,
    },
    /// A part that must be there is not.
    #[error("{field} is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A key out of bounds.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Commands or outcomes that can not be read.
    #[error("{field}: {error}")]
    Codec {
        /// The field.
        field: &'static str,
        /// Why.
        error: CodecError,
    },
}

/// A hash of key rules: xxh3-128 of their text, big-endian.
pub type KeyRulesHash = [u8; 16];

/// A client's chunk, checked at the door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submit {
    /// The cluster that the client means, if it says so.
    pub cluster: Option<ClusterId>,
    /// The hash of the client's key rules.
    pub key_rules_hash: KeyRulesHash,
    /// The commands: count, lengths and formats are right.
    pub commands: Chunk<Bytes>,
}

impl TryFrom<registry::SubmitRequest> for Submit {
    type Error = ConvertError;

    fn try_from(request: registry::SubmitRequest) -> Result<Submit, ConvertError> {
        let registry::SubmitRequest { key_rules_hash, count, commands, cluster_id } = request;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let commands = Chunk { count, bytes: commands };
        commands.check().map_err(|error| ConvertError::Codec { field: "commands", error })?;
        Ok(Submit {
            cluster: optional_cluster_id(&cluster_id)?,
            key_rules_hash: sixteen("key_rules_hash", &key_rules_hash)?,
            commands,
        })
    }
}

/// A client's statement of its key rules, checked at the door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRulesStatement {
    /// The cluster that the client means, if it says so.
    pub cluster: Option<ClusterId>,
    /// The rules, not empty and at most [`KEY_RULES_BYTES_MAX`] bytes.
    pub text: String,
}

impl TryFrom<registry::StateKeyRulesRequest> for KeyRulesStatement {
    type Error = ConvertError;

    fn try_from(request: registry::StateKeyRulesRequest) -> Result<KeyRulesStatement, ConvertError> {
        let registry::StateKeyRulesRequest { text, cluster_id } = request;
        if text.is_empty() || KEY_RULES_BYTES_MAX < text.len() {
            return Err(ConvertError::Length { field: "text", found: text.len(), expected: "1 to 16,384" });
        }
        Ok(KeyRulesStatement { cluster: optional_cluster_id(&cluster_id)?, text })
    }
}

/// Sixteen bytes of a field.
///
/// # Errors
/// [`ConvertError::Length`] for any other number.
pub fn sixteen(field: &'static str, bytes: &[u8]) -> Result<[u8; 16], ConvertError> {
    bytes.try_into().map_err(|_| ConvertError::Length { field, found: bytes.len(), expected: "16" })
}

/// A cluster id that must be there.
///
/// # Errors
/// [`ConvertError::Length`] unless there are 16 bytes.
pub fn cluster_id(bytes: &[u8]) -> Result<ClusterId, ConvertError> {
    Ok(ClusterId(sixteen("cluster_id", bytes)?))
}

/// A cluster id, or no bytes at all.
///
/// # Errors
/// [`ConvertError::Length`] for any other number of bytes.
pub fn optional_cluster_id(bytes: &[u8]) -> Result<Option<ClusterId>, ConvertError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let bytes = bytes.try_into().map_err(|_| ConvertError::Length {
        field: "cluster_id",
        found: bytes.len(),
        expected: "0 or 16",
    })?;
    Ok(Some(ClusterId(bytes)))
}

/// An incarnation.
///
/// # Errors
/// [`ConvertError::Length`] unless there are 16 bytes.
pub fn incarnation(bytes: &[u8]) -> Result<Incarnation, ConvertError> {
    Ok(Incarnation(sixteen("incarnation", bytes)?))
}

/// A token.
///
/// # Errors
/// [`ConvertError::Length`] unless there are 24 bytes.
pub fn token(bytes: &[u8]) -> Result<Token, ConvertError> {
    let bytes: &[u8; Token::BYTES] =
        bytes.try_into().map_err(|_| ConvertError::Length { field: "token", found: bytes.len(), expected: "24" })?;
    Ok(Token::from_bytes(bytes))
}

/// An event key.
///
/// # Errors
/// [`ConvertError::Key`] when one of its parts is out of bounds.
pub fn event_key(micros: u64, id: &[u8]) -> Result<EventKey, ConvertError> {
    Ok(EventKey::new(micros, id)?)
}

/// The outcomes of a [`registry::Done`], as many as commands were sent.
///
/// # Errors
/// [`ConvertError`] when they can not be read, or are of another number.
pub fn outcomes(done: &registry::Done, commands: usize) -> Result<Outcomes, ConvertError> {
    let codec = |error| ConvertError::Codec { field: "outcomes", error };
    let outcomes = decode_outcomes(&done.outcomes).map_err(codec)?;
    if outcomes.len() != commands {
        return Err(codec(CodecError::Count { stated: commands, found: outcomes.len() }));
    }
    Ok(outcomes)
}

/// A part of a message that must be there.
///
/// # Errors
/// [`ConvertError::Missing`] when it is not.
pub fn required<T>(field: &'static str, part: Option<T>) -> Result<T, ConvertError> {
    part.ok_or(ConvertError::Missing { field })
}

#[cfg(test)]
mod tests {
    use photon_types::{Command, Outcome, encode_outcomes};

    use super::*;

    fn submit(count: u32, hash: &'static [u8], cluster: &'static [u8]) -> Result<Submit, ConvertError> {
        let chunk = Chunk::of(&[Command::Lookup { key: EventKey::new(1, b"x").unwrap() }]);
        Submit::try_from(registry::SubmitRequest {
            key_rules_hash: Bytes::from_static(hash),
            count,
            commands: chunk.bytes.into(),
            cluster_id: Bytes::from_static(cluster),
        })
    }

    #[test]
    fn a_good_chunk_passes() {
        let submit = submit(1, &[1; 16], &[2; 16]).unwrap();
        assert_eq!(submit.cluster, Some(ClusterId([2; 16])));
        assert_eq!(submit.key_rules_hash, [1; 16]);
        assert_eq!(submit.commands.count, 1);
    }

    #[test]
    fn the_fault_is_named() {
        let text = |result: Result<Submit, ConvertError>| result.unwrap_err().to_string();
        assert_eq!(text(submit(2, &[1; 16], &[])), "commands: 2 commands stated, 1 found");
        assert_eq!(text(submit(1, &[1; 15], &[])), "key_rules_hash has 15 bytes, 16 are expected");
        assert_eq!(text(submit(1, &[1; 16], &[2; 3])), "cluster_id has 3 bytes, 0 or 16 are expected");
        let statement = registry::StateKeyRulesRequest { text: String::new(), cluster_id: Bytes::new() };
        assert_eq!(
            KeyRulesStatement::try_from(statement).unwrap_err().to_string(),
            "text has 0 bytes, 1 to 16,384 are expected"
        );
    }

    #[test]
    fn outcomes_are_counted() {
        let done = registry::Done { slot: 1, group: 1, outcomes: encode_outcomes(&[Outcome::Absent]).into() };
        assert_eq!(outcomes(&done, 1), Ok(vec![Outcome::Absent]));
        assert!(outcomes(&done, 2).is_err());
    }
}

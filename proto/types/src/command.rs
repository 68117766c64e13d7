//! Commands of the state machine and their bytes.
//!
//! A command is `format u8 | kind u8 | length u16 big-endian | body`. The client encodes it; the
//! server's door checks a chunk in one pass and forwards the bytes; journal and core carry them;
//! only `apply` unpacks them.
//!
//! | kind | command | body |
//! |---|---|---|
//! | 1 | `Insert` | timestamp u64, token 24, id |
//! | 2 | `Lookup` | timestamp u64, id |
//! | 3 | `Delete` | timestamp u64, token 24, reason u8, id |
//! | 4 | `ForgetToken` | timestamp u64, token 24, id |
//! | 5 | `StateKeyRules` | UTF-8 text |
//!
//! Integers are big-endian.

use crate::codec::{CodecError, Reader};
use crate::key::{EVENT_ID_BYTES_MAX, EventId, EventKey, Timestamp};
use crate::token::Token;

/// The version of the command format that this build writes and reads.
pub const COMMAND_FORMAT: u8 = 1;

/// The longest text of key rules, in bytes.
pub const KEY_RULES_BYTES_MAX: usize = 16 * 1024;

const HEAD_BYTES: usize = 4;

const KEY_RULES_KIND: u8 = 5;

/// The longest command that names a key: a head, and a delete with the longest id.
pub const COMMAND_BYTES_MAX: usize = HEAD_BYTES + 8 + Token::BYTES + 1 + EVENT_ID_BYTES_MAX;

/// The most commands in one chunk; also the most in one batch, so that a chunk is never split
/// over two slots.
pub const CHUNK_COMMANDS_MAX: usize = 4_000;

/// The most bytes of one chunk.
pub const CHUNK_BYTES_MAX: usize = 1024 * 1024;

const _: () = assert!(CHUNK_COMMANDS_MAX * COMMAND_BYTES_MAX <= CHUNK_BYTES_MAX);
const _: () = assert!(HEAD_BYTES + KEY_RULES_BYTES_MAX <= CHUNK_BYTES_MAX);
const _: () = assert!(KEY_RULES_BYTES_MAX <= u16::MAX as usize);

/// Why the verifier deletes an id. Kept in the journal for audits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeleteReason {
    /// The claiming joiner's output is sealed and does not hold the line.
    LineMissing,
}

/// One operation on the state machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Takes the id for the attempt, unless another has it.
    Insert {
        /// The id.
        key: EventKey,
        /// The attempt.
        token: Token,
    },
    /// Asks who has the id.
    Lookup {
        /// The id.
        key: EventKey,
    },
    /// Removes the id if this token has it. For the verifier only.
    Delete {
        /// The id.
        key: EventKey,
        /// The token that must be the winner.
        token: Token,
        /// Why.
        reason: DeleteReason,
    },
    /// Replaces the token by a mark, if this token has the id.
    ForgetToken {
        /// The id.
        key: EventKey,
        /// The token that must be the winner.
        token: Token,
    },
    /// States the rules by which keys are made: sorted `stream.field = value` lines. The first
    /// statement of a cluster's life is kept; later ones are compared.
    StateKeyRules {
        /// The rules, at most [`KEY_RULES_BYTES_MAX`] bytes.
        text: String,
    },
}

impl Command {
    /// Appends the bytes of this command.
    ///
    /// # Panics
    /// When a text of key rules is longer than [`KEY_RULES_BYTES_MAX`]: configuration checks it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let head_at = out.len();
        out.extend_from_slice(&[COMMAND_FORMAT, self.kind(), 0, 0]);
        match self {
            Command::Insert { key, token } | Command::ForgetToken { key, token } => {
                out.extend_from_slice(&key.timestamp.micros().to_be_bytes());
                out.extend_from_slice(&token.to_bytes());
                out.extend_from_slice(key.id.as_bytes());
            }
            Command::Lookup { key } => {
                out.extend_from_slice(&key.timestamp.micros().to_be_bytes());
                out.extend_from_slice(key.id.as_bytes());
            }
            Command::Delete { key, token, reason } => {
                out.extend_from_slice(&key.timestamp.micros().to_be_bytes());
                out.extend_from_slice(&token.to_bytes());
                out.push(match reason {
                    DeleteReason::LineMissing => 1,
                });
                out.extend_from_slice(key.id.as_bytes());
            }
            Command::StateKeyRules { text } => {
                assert!(text.len() <= KEY_RULES_BYTES_MAX, "key rules of {} bytes", text.len());
                out.extend_from_slice(text.as_bytes());
            }
        }
        let body = u16::try_from(out.len() - head_at - HEAD_BYTES).expect("a body fits 64 KiB");
        out[head_at + 2..head_at + HEAD_BYTES].copy_from_slice(&body.to_be_bytes());
    }

    fn kind(&self) -> u8 {
        match self {
            Command::Insert { .. } => 1,
            Command::Lookup { .. } => 2,
            Command::Delete { .. } => 3,
            Command::ForgetToken { .. } => 4,
            Command::StateKeyRules { .. } => KEY_RULES_KIND,
        }
    }

    fn decode_body(kind: u8, body: &[u8]) -> Result<Command, CodecError> {
        let mut body = Reader(body);
        let key = |timestamp: u64, id: &[u8]| -> Result<EventKey, CodecError> {
            Ok(EventKey { timestamp: Timestamp::from_micros(timestamp)?, id: EventId::new(id)? })
        };
        match kind {
            1 | 4 => {
                let timestamp = body.u64()?;
                let token = Token::from_bytes(&body.array()?);
                let key = key(timestamp, body.rest())?;
                Ok(if kind == 1 { Command::Insert { key, token } } else { Command::ForgetToken { key, token } })
            }
            2 => {
                let timestamp = body.u64()?;
                Ok(Command::Lookup { key: key(timestamp, body.rest())? })
            }
            3 => {
                let timestamp = body.u64()?;
                let token = Token::from_bytes(&body.array()?);
                let reason = match body.u8()? {
                    1 => DeleteReason::LineMissing,
                    found => return Err(CodecError::Kind { found }),
                };
                Ok(Command::Delete { key: key(timestamp, body.rest())?, token, reason })
            }
            KEY_RULES_KIND => {
                let bytes = body.rest();
                if KEY_RULES_BYTES_MAX < bytes.len() {
                    return Err(CodecError::TooLarge { found: bytes.len(), max: KEY_RULES_BYTES_MAX });
                }
                let text = std::str::from_utf8(bytes).map_err(|_| CodecError::Text)?;
                Ok(Command::StateKeyRules { text: text.to_owned() })
            }
            found => Err(CodecError::Kind { found }),
        }
    }
}

/// Encoded commands and their number: what a client sends, and what a batch is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Chunk<B = Vec<u8>> {
    /// How many commands `bytes` holds.
    pub count: usize,
    /// The commands, one behind the other.
    pub bytes: B,
}

impl Chunk<Vec<u8>> {
    /// The commands as one chunk.
    #[must_use]
    pub fn of<'a>(commands: impl IntoIterator<Item = &'a Command>) -> Chunk {
        let mut chunk = Chunk::default();
        for command in commands {
            command.encode(&mut chunk.bytes);
            chunk.count += 1;
        }
        chunk
    }
}

impl<B: AsRef<[u8]>> Chunk<B> {
    /// The door's check of a client's chunk, in one pass and without an allocation: at least one
    /// command, no more than the limits allow, a known format, lengths that end where the bytes end,
    /// as many commands as stated, and bodies that `apply` can read. A statement of key rules is
    /// refused: it has a call of its own, since its outcome may be as long as the rules, and four
    /// thousand of them in one small chunk would fill the memory of every replica.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), CodecError> {
        let bytes = self.bytes.as_ref();
        if CHUNK_BYTES_MAX < bytes.len() {
            return Err(CodecError::TooLarge { found: bytes.len(), max: CHUNK_BYTES_MAX });
        }
        if CHUNK_COMMANDS_MAX < self.count {
            return Err(CodecError::TooLarge { found: self.count, max: CHUNK_COMMANDS_MAX });
        }
        let mut found = 0;
        let mut reader = Reader(bytes);
        while !reader.0.is_empty() {
            let (kind, body) = take_body(&mut reader)?;
            check_body(kind, body)?;
            found += 1;
        }
        if found != self.count || found == 0 {
            return Err(CodecError::Count { stated: self.count, found });
        }
        Ok(())
    }
}

/// What [`Command::decode_body`] would say, for the kinds that a client's chunk may hold.
fn check_body(kind: u8, body: &[u8]) -> Result<(), CodecError> {
    let mut reader = Reader(body);
    if kind == KEY_RULES_KIND {
        return Err(CodecError::KeyRules);
    }
    let timestamp = reader.u64()?;
    match kind {
        1 | 4 => {
            reader.bytes(Token::BYTES)?;
        }
        2 => (),
        3 => {
            reader.bytes(Token::BYTES)?;
            match reader.u8()? {
                1 => (),
                found => return Err(CodecError::Kind { found }),
            }
        }
        found => return Err(CodecError::Kind { found }),
    }
    Timestamp::from_micros(timestamp)?;
    EventId::check(reader.rest())?;
    Ok(())
}

fn take_body<'a>(reader: &mut Reader<'a>) -> Result<(u8, &'a [u8]), CodecError> {
    let format = reader.u8()?;
    if format != COMMAND_FORMAT {
        return Err(CodecError::Format { found: format });
    }
    let kind = reader.u8()?;
    let length = usize::from(reader.u16()?);
    Ok((kind, reader.bytes(length)?))
}

/// Walks encoded commands. An unreadable body is one `Err` and the walk goes on behind it; a
/// broken frame (head or length) is one `Err` and the end, since nothing behind it can be found.
#[derive(Clone)]
pub struct Commands<'a>(Reader<'a>);

impl<'a> Commands<'a> {
    /// A walk over `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Commands<'a> {
        Commands(Reader(bytes))
    }
}

impl Iterator for Commands<'_> {
    type Item = Result<Command, CodecError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.0.is_empty() {
            return None;
        }
        match take_body(&mut self.0) {
            Ok((kind, body)) => Some(Command::decode_body(kind, body)),
            Err(error) => {
                self.0.rest();
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::Incarnation;

    fn samples() -> Vec<Command> {
        let key = EventKey::new(1_733_788_889_378_000, b"adbef2c4").unwrap();
        let token = Token { incarnation: Incarnation([7; 16]), sequence: 9 };
        vec![
            Command::Insert { key: key.clone(), token },
            Command::Lookup { key: key.clone() },
            Command::Delete { key: key.clone(), token, reason: DeleteReason::LineMissing },
            Command::ForgetToken { key, token },
            Command::StateKeyRules { text: "events.id = _id\n".into() },
        ]
    }

    #[test]
    fn every_command_goes_round() {
        let commands = samples();
        let chunk = Chunk::of(&commands);
        assert_eq!(chunk.check(), Err(CodecError::KeyRules));
        assert_eq!(Chunk::of(&commands[..4]).check(), Ok(()));
        let decoded: Vec<_> = Commands::new(&chunk.bytes).map(|c| c.unwrap()).collect();
        assert_eq!(decoded, commands);
    }

    #[test]
    fn an_insert_has_these_bytes_for_ever() {
        let chunk = Chunk::of(&samples()[..1]);
        let mut golden = vec![1, 1, 0, 40];
        golden.extend_from_slice(&1_733_788_889_378_000_u64.to_be_bytes());
        golden.extend_from_slice(&[7; 16]);
        golden.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 9]);
        golden.extend_from_slice(b"adbef2c4");
        assert_eq!(chunk.bytes, golden);
    }

    #[test]
    fn the_door_names_what_is_wrong() {
        let mut chunk = Chunk::of(&samples()[..4]);
        chunk.count = 3;
        assert_eq!(chunk.check(), Err(CodecError::Count { stated: 3, found: 4 }));
        chunk.count = CHUNK_COMMANDS_MAX + 1;
        assert!(matches!(chunk.check(), Err(CodecError::TooLarge { .. })));
        chunk.count = 4;
        chunk.bytes.pop();
        assert_eq!(chunk.check(), Err(CodecError::Truncated));
        chunk.bytes[0] = 2;
        assert_eq!(chunk.check(), Err(CodecError::Format { found: 2 }));
        assert_eq!(Chunk { count: 0, bytes: vec![] }.check(), Err(CodecError::Count { stated: 0, found: 0 }));
    }

    #[test]
    fn an_unreadable_body_does_not_hide_the_next_command() {
        let mut bytes = vec![1, 99, 0, 2, 0, 0];
        samples()[1].encode(&mut bytes);
        let decoded: Vec<_> = Commands::new(&bytes).collect();
        assert_eq!(decoded, vec![Err(CodecError::Kind { found: 99 }), Ok(samples()[1].clone())]);
    }

    proptest! {
        /// The door lets in what `apply` can read, and nothing else.
        #[test]
        fn the_door_agrees_with_the_decoder(kind in 0_u8..7, body in proptest::collection::vec(any::<u8>(), 0..150)) {
            let length = u16::try_from(body.len()).unwrap().to_be_bytes();
            let bytes = [&[COMMAND_FORMAT, kind, length[0], length[1]], body.as_slice()].concat();
            let is_readable = Commands::new(&bytes).all(|command| command.is_ok());
            let is_let_in = Chunk { count: 1, bytes: &bytes }.check().is_ok();
            prop_assert_eq!(is_let_in, is_readable && kind != KEY_RULES_KIND);
        }

        #[test]
        fn any_bytes_are_walked_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Chunk { count: 3, bytes: &bytes }.check();
            prop_assert!(Commands::new(&bytes).count() <= bytes.len());
        }
    }
}

//! The vocabulary of Photon: event keys, tokens, slots, and the commands and outcomes of the
//! IdRegistry with their hand-written codec.
//!
//! Invariant: a value of a type here is valid. Bounds (a timestamp fits 53 bits, an id has 1 to
//! 100 bytes) are checked by the constructor, so nobody downstream checks them again.
//!
//! Not here: serde, prost, tokio. Serialization of configuration and wire types stops at their
//! own doors; the codec here is the one format that client, journal and state machine share.

mod id;
mod key;
mod prng;
mod token;

mod codec;
mod command;
mod outcome;

pub use codec::CodecError;
pub use command::{
    CHUNK_BYTES_MAX, CHUNK_COMMANDS_MAX, COMMAND_BYTES_MAX, COMMAND_FORMAT, Chunk, Command, Commands, DeleteReason,
    KEY_RULES_BYTES_MAX,
};
pub use id::{ClusterId, GroupId, Incarnation, NodeId, ParseHexError, Slot};
pub use key::{EVENT_ID_BYTES_MAX, EventId, EventKey, KeyError, TIMESTAMP_END, Timestamp};
pub use outcome::{Holder, Outcome, Outcomes, decode_outcomes, encode_outcomes};
pub use prng::{Delays, Prng};
pub use token::Token;

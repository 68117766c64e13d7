//! The consensus core of the IdRegistry: a Multi-Paxos replicated log and the state machine that
//! it feeds, sans-IO.
//!
//! One function, two doors: [`Event`] is everything that can happen to a replica, [`Effect`] is
//! everything it can ask for, [`Replica::step`] turns one into the other. What the log's values
//! mean only [`machine`] knows.
//!
//! Architecture invariant: nothing here reads a clock, a file, a socket or a random device, and
//! nothing blocks. Time is an argument, randomness a seed.

mod effect;
mod event;

mod replica;
mod status;

mod batch;
mod paxos;
mod pending;

pub mod machine;

mod config;
mod mutant;

pub use config::{Config, ConfigError, Limits, MEMBERS_MAX, MESSAGE_BYTES_MAX, PAGE_BYTES_MAX, Timings};
pub use effect::{Effect, IoSeq, Record, Reply};
pub use event::{Event, Monotonic, Now, ReadId, RequestId};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;

pub use paxos::ballot::Ballot;
pub use paxos::message::{
    Accept, Accepted, Chosen, Entry, FetchChosen, Heartbeat, Message, Nack, Prepare, Promise, Value,
};
pub use replica::Replica;
pub use status::{Counters, RoleName, Status};

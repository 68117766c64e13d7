//! The consensus core of the IdRegistry: a Multi-Paxos replicated log and the state machine that
//! it feeds, sans-IO.
//!
//! One function, two doors: [`Event`] is everything that can happen to a replica, [`Effect`] is
//! everything it can ask for, `Replica::step` turns one into the other.
//!
//! Architecture invariant: nothing here reads a clock, a file, a socket or a random device, and
//! nothing blocks. Time is an argument, randomness a seed.

mod effect;
mod event;
mod paxos;

pub use effect::{Effect, IoSeq, Record, Reply};
pub use event::{Event, Monotonic, Now, ReadId, RequestId};
pub use paxos::ballot::Ballot;
pub use paxos::message::{
    Accept, Accepted, Chosen, Entry, FetchChosen, Heartbeat, Message, Nack, Prepare, Promise, Value,
};

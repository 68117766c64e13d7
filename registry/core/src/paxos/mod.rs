//! Multi-Paxos over opaque bytes: no value is ever looked into.

pub mod ballot;
pub mod message;

pub(crate) mod gate;
pub(crate) mod log;
pub(crate) mod quorum;
pub(crate) mod role;

pub(crate) mod acceptor;
pub(crate) mod catchup;
mod election;
pub(crate) mod learner;
mod proposer;

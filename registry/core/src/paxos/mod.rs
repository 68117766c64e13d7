//! Multi-Paxos over opaque bytes.

pub mod ballot;
pub mod message;

//! The stream join: event store with reader, dispatcher, joiner; one of each per datacenter.
//!
//! ```text
//!  click logs ─▶ dispatcher ─Join(clicks)─▶ joiner ─Get(query ids)─▶ event store ◀─ query logs
//!                    │ look-up                │ Insert(key, token)
//!                    └────────▶ IdRegistry ◀──┘        └─▶ joined log
//! ```
//!
//! Invariant: whoever stops at any point loses nothing. The dispatcher repeats what has no end; the
//! registry lets one attempt win; the joiner says *joined* after the line is durable.
//!
//! Every role starts with its `start`, in one process or in many, and talks to the others over gRPC
//! in both cases. Not here: decisions (`photon-join`), bytes on disk (`photon-format`).

mod error;

mod chaos;
mod convert;
mod life;
mod reader;

pub mod adapter;
pub mod dispatcher;
pub mod joiner;
pub mod store;

pub use error::PipelineError;

//! The IdRegistry server: the shell round `photon-core`.
//!
//! ```text
//!  clients ─▶ rpc ─▶ client inbox ─┐                 ┌─▶ lanes/journal ─▶ Persisted ─┐
//!  peers ───▶ rpc ─▶ peer inbox ───┼─▶ drive ─ step ─┼─▶ lanes/apply ───▶ Applied ───┼─▶ completions
//!                  completions ────┘                 ├─▶ lanes/reads ───▶ EntriesRead┘
//!                                                    └─▶ lanes/peers ───▶ peers
//! ```
//!
//! Architecture invariant: only `drive` calls `Replica::step`; only the journal lane calls fsync on
//! the journal; only `rocks` names a column family; only `rpc` sees generated types. Nothing here is
//! global: a process may run many nodes.

mod config;
mod error;
mod server;

mod chaos;
mod counters;
mod failure;
mod node;

mod birth;
mod datadir;
mod doors;
mod drive;
mod engine;
mod journal;
mod lanes;
mod opening;
mod rocks;
mod rpc;

pub use config::{GROUP, Limits, Listen, MemberConfig, ServerConfig, Timings};
pub use error::{ErrorKind, RegistryError};
pub use server::{RunningServer, Server, ServerStatus};

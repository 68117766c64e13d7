//! The client library of the IdRegistry: many concurrent calls in, few messages to the leader out.
//!
//! One worker task per client finds the leader, states the key rules on each new connection, packs
//! waiting commands of all callers into chunks, and asks again, with the same tokens, for as long
//! as the caller's deadline allows.
//!
//! Invariant: a command that may have been applied is never reported as failed. Once an attempt
//! ended without a clear answer, the command's only ends are an outcome and
//! [`ClientError::Unknown`].
//!
//! Not here: tokens (the joiner owns its attempts), the meaning of outcomes, shards (one group for
//! now), and retries beyond the caller's deadline.

mod client;
mod config;
mod error;

mod attempt;
mod backoff;
mod call;
mod rules;
mod search;
mod status;
mod worker;

pub use call::Answer;
pub use client::Client;
pub use config::{ClientConfig, Limits, Timings, uri};
pub use error::{ClientError, SubmitError};
pub use rules::key_rules_hash;
pub use status::{MemberStatus, NodeStatus, status, statuses};

//! The sans-IO cores of dispatcher and joiner.
//!
//! Invariant: nothing here reads a clock, a file, a socket or a random device. Time is an
//! argument ([`Monotonic`]), chance is a seed ([`Prng`]), so that a simulator can run these cores
//! unchanged.
//!
//! Not here: payload bytes, messages, threads. `photon-pipeline` carries out what is decided here.

mod time;

pub mod backoff;
pub mod cursor;
pub mod joiner;
pub mod ledger;
pub mod missing;
pub mod pace;
pub mod retry;

pub use time::Monotonic;

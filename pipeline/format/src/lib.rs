//! Framing, key rules, configuration, and the files of the pipeline.
//!
//! Everything that two datacenters must read or write alike, byte for byte, lives here: how a log
//! is cut into records, how a record becomes an event key, and how the joined output, the ends, the
//! cursor and the retry store lie on disk. The pipeline writes with it, the verifier reads with it.
//!
//! Invariant: bytes from logs and disks are not trusted; nothing here panics on them.
//!
//! Not here: threads, sockets, clocks. What waits or retries is in `pipeline`.

pub mod config;
pub mod error;

pub mod extract;
pub mod framing;
pub mod keyrules;
pub mod predicate;
pub mod size;
pub mod source;
pub mod time;

pub mod cursor;
pub mod ends;
pub mod output;
pub mod retry;
pub mod state;

mod fields;

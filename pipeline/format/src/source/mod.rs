//! The files of an input: which there are, under which names, how long; and reading them.
//!
//! Invariant: a source name is `<input name>/<path below the input>`, the same in every datacenter
//! and at every start; cursors, ends and joined lines name records by it. A list is sorted by name.
//!
//! Not here: when to look again (`pipeline` polls); what was read so far (`cursor`).

mod head;
mod list;
mod scanner;

pub use head::{HEAD_BYTES_MAX, Head};
pub use list::{DEPTH_MAX, FILES_MAX, FileIdentity, SourceFile, SourceList};
pub use scanner::{Finished, Scanned, Scanner, read_exact_at};

#[cfg(test)]
mod tests;

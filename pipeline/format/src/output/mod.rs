//! The joined log: one directory per joiner incarnation, JSON Lines in segments, a commit index
//! beside each, and the seal record that ends it.
//!
//! Invariant: a line exists if and only if a good index entry covers it, and, once there is a seal
//! record, the record lists that entry. Everything else in a directory may be left by a crash.
//!
//! ```text
//! <output>/live/<incarnation>/     lock  manifest.json  0000000001.jsonl  0000000001.index
//!                                                       0000000002.open   0000000002.index
//! <output>/sealed/<incarnation>/   the same, fenced: with SEALED, and in the end without .open
//! ```
//!
//! Written by the joiner ([`OutputWriter`]), read by verifiers and followers ([`scan_directory`]),
//! ended by its own writer or by [`fence()`]. Not here: what a line means, and who is dead.

mod files;
mod layout;

mod line;
mod manifest;
mod writer;

mod entry;
mod seal;

mod evidence;
mod fence;
mod scan;

mod error;

pub use entry::{
    BLOCK_BYTES_MAX, BLOCK_CLICKS_MAX, EntryClick, INDEX_FORMAT, IndexContent, IndexEntry, IndexTail, read_index,
};
pub use error::OutputError;
pub use evidence::DataCheck;
pub use fence::{FenceOutcome, LockPolicy, fence, fence_with};
pub use files::{Files, Step, Watch};
pub use layout::{IncarnationDirectory, LockState, Place, list_incarnations};
pub use line::{JoinedLine, PAYLOAD_DEPTH_MAX, ParsedLine, build_line, parse_line};
pub use manifest::{Manifest, OUTPUT_FORMAT};
pub use scan::{DirectoryScan, ScanState, ScannedRows, SegmentScan, scan_directory, scan_with};
pub use seal::{SEAL_FORMAT, SealRecord, SealedSegment};
pub use writer::{BlockPosition, LineEntry, OutputOptions, OutputWriter};

//! The crash table of the joined log: a writer, a scan and a fence, each stopped before every single
//! step of the file system, with what was not synced kept or lost, and each taken on by a new run.
//!
//! What must hold each time: a click that was answered counts; a click that was counted once counts
//! for ever; a click that did not count when the seal record was written never counts.

mod copies;
mod disk;
mod interleaved;
mod sequential;
mod story;
mod table;

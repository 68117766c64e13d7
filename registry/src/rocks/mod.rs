//! The state machine's table on disk: RocksDB with its own WAL off, since the journal is the log.
//!
//! Architecture invariant: only this folder names a column family.

mod keys;
mod meta;
mod options;
mod table;

pub(crate) use meta::KeyRules;
pub(crate) use options::TableLimits;
pub(crate) use table::RocksTable;

/// The version of the table's format, for the file that says whose it is.
pub(crate) const TABLE_FORMAT: u32 = meta::TABLE_FORMAT as u32;

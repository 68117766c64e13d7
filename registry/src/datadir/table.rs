//! Whose RocksDB's directory is.
//!
//! Invariant: the file PHOTON is durable before RocksDB writes its first byte, so that a directory
//! without it is empty or not ours.

use std::path::Path;

use photon_disk::{DiskError, durable};
use photon_types::{ClusterId, Incarnation};

use super::DataDirError;
use super::identity::{Facts, Kind, encode};

const TABLE: Kind = Kind { name: "registry-table", version: 1 };
const NAME: &str = "PHOTON";

/// To what a table belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableIdentity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The disk.
    pub incarnation: Incarnation,
    /// Version of the row keys, values and column families.
    pub table_format: u32,
}

/// What stands where the table should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// Our table.
    Ours,
    /// Nothing: [`begin_table`], then apply the journal from its first slot.
    Missing,
}

/// Looks whose table it is.
///
/// # Errors
/// Another cluster's, another disk's, an unknown format, something else: refused by name.
pub fn check_table(dir: &Path, ours: &TableIdentity) -> Result<TableState, DataDirError> {
    let file = dir.join(NAME);
    let Some(kept) = Facts::read(&file, TABLE)? else {
        return match std::fs::read_dir(dir) {
            // RocksDB's own files never stand here without ours; a temporary of ours may.
            Ok(mut entries) => match entries.find(|entry| !entry.as_ref().is_ok_and(is_temporary)) {
                None => Ok(TableState::Missing),
                Some(_) => Err(DataDirError::TableUnnamed { path: dir.to_owned(), name: NAME }),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(TableState::Missing),
            Err(error) => Err(DiskError::io("listing", dir)(error).into()),
        };
    };
    let cluster = kept.get("cluster")?;
    if cluster != ours.cluster {
        return Err(DataDirError::WrongCluster { path: dir.to_owned(), kept: cluster, ours: ours.cluster });
    }
    let incarnation = kept.get("incarnation")?;
    if incarnation != ours.incarnation {
        let path = dir.to_owned();
        return Err(DataDirError::WrongIncarnation { path, kept: incarnation, ours: ours.incarnation });
    }
    let table_format: u32 = kept.get("table_format")?;
    if table_format != ours.table_format {
        let (found, expected) = (format!("table {table_format}"), format!("table {}", ours.table_format));
        return Err(DataDirError::Format { path: dir.to_owned(), found, expected });
    }
    Ok(TableState::Ours)
}

fn is_temporary(entry: &std::fs::DirEntry) -> bool {
    entry.file_name().as_encoded_bytes().starts_with(b".")
}

/// Makes the directory and the file that says whose it is, before RocksDB is opened in it.
///
/// # Errors
/// [`DataDirError::Disk`].
pub fn begin_table(dir: &Path, ours: &TableIdentity) -> Result<(), DataDirError> {
    durable::create_dir_all_durable(dir)?;
    let facts = [
        ("cluster", ours.cluster.to_string()),
        ("incarnation", ours.incarnation.to_string()),
        ("table_format", ours.table_format.to_string()),
    ];
    Ok(durable::write_new(&dir.join(NAME), encode(TABLE, &facts).as_bytes())?)
}

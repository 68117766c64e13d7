//! The disk of a node, opened: data directory, table, journal, in this order.
//!
//! The table says how far it is applied, and the journal's recovery leaves out what lies below.
//! Invariant: when it is open, everything recovered is on stable storage, and table, journal and
//! directory belong to the same disk and cluster.

use std::collections::BTreeMap;
use std::path::Path;

use photon_core::machine::BUCKET_WIDTH_MICROS;
use photon_types::{ClusterId, NodeId, Slot};
use tracing::{error, info, warn};

use crate::config::{GROUP, Limits};
use crate::datadir::{
    Birth, CreationFacts, DataDir, DataDirError, TableIdentity, TableState, begin_table, check_table,
};
use crate::error::RegistryError;
use crate::journal::{Journal, JournalError, JournalOptions, Recovered};
use crate::rocks::{RocksTable, TABLE_FORMAT, TableLimits};

/// An opened disk that may not be born yet.
pub(crate) struct OpenedDisk {
    pub data_dir: DataDir,
    pub journal: Journal,
    pub recovered: Recovered,
    /// As synced in the journal.
    pub birth: Option<Birth>,
    /// There is one once the disk is born.
    pub table: Option<RocksTable>,
    limits: TableLimits,
}

impl OpenedDisk {
    /// Opens the disk, or makes it.
    ///
    /// # Errors
    /// In use, of another node or cluster, of a cluster with other members, damaged; or the system's.
    pub fn open(path: &Path, node: NodeId, members: &[NodeId], limits: &Limits) -> Result<OpenedDisk, RegistryError> {
        let facts = CreationFacts { bucket_micros: BUCKET_WIDTH_MICROS };
        let mut data_dir = DataDir::open(path, node, facts)?;
        let table_limits =
            TableLimits { memtable_bytes: limits.memtable_bytes, block_cache_bytes: limits.block_cache_bytes };
        let mut table = match data_dir.cluster() {
            Some(cluster) => Some(open_table(&data_dir, cluster, table_limits)?),
            None => None,
        };
        let applied_ends: BTreeMap<_, _> =
            table.iter().map(|table| (GROUP, table.applied_end())).filter(|(_, end)| *end != Slot(0)).collect();
        let options = JournalOptions { segment_bytes: limits.segment_bytes };
        let (journal, recovered) =
            Journal::open(&data_dir.journal_dir(), data_dir.incarnation(), data_dir.boot(), &applied_ends, options)
                .map_err(|error| mark_rolled_back(&data_dir, error.into()))?;
        data_dir.record_life(recovered.recovered_end).map_err(|error| mark_rolled_back(&data_dir, error.into()))?;
        if let Some(torn) = &recovered.torn {
            warn!(%node, file = %torn.file.display(), offset = torn.offset, bytes = torn.bytes,
                "a torn tail of the journal was cut: it was never reported durable");
        }
        let birth = read_birth(&data_dir, &recovered)?;
        if let Some(birth) = &birth {
            check_members(&data_dir, birth, members)?;
            data_dir.set_cluster(birth.cluster_id())?;
            // A crash came between the birth record and the name of the cluster.
            if table.is_none() {
                table = Some(open_table(&data_dir, birth.cluster_id(), table_limits)?);
            }
        }
        info!(%node, incarnation = %data_dir.incarnation(), boot = data_dir.boot(), path = %path.display(),
            journal_end = %recovered.recovered_end, "data directory opened");
        Ok(OpenedDisk { data_dir, journal, recovered, birth, table, limits: table_limits })
    }

    /// Makes the birth record durable, and then all that depends on it.
    ///
    /// # Errors
    /// When a write or sync fails: the process must end.
    pub fn bear(&mut self, birth: Birth) -> Result<(), RegistryError> {
        assert!(self.birth.is_none(), "a disk is born once");
        self.journal.append_birth(&birth.encode())?;
        self.journal.commit()?;
        self.data_dir.set_cluster(birth.cluster_id())?;
        self.table = Some(open_table(&self.data_dir, birth.cluster_id(), self.limits)?);
        info!(node = %self.data_dir.node(), cluster = %birth.cluster_id(), "the cluster is born");
        self.birth = Some(birth);
        Ok(())
    }
}

/// A disk that finds itself rolled back keeps that: each start raises its boot and adds to its
/// journal, so the next one may find nothing.
fn mark_rolled_back(data_dir: &DataDir, error: RegistryError) -> RegistryError {
    let is_rolled_back = matches!(
        &error,
        RegistryError::Journal(JournalError::RolledBack { .. } | JournalError::SlotMissing { .. })
            | RegistryError::DataDir(DataDirError::WentBack { .. })
    );
    if is_rolled_back && let Err(failed) = data_dir.refusal_mark().write(&error.to_string()) {
        error!(node = %data_dir.node(), error = %failed, "a refused disk could not be marked: never start it again");
    }
    error
}

fn check_members(data_dir: &DataDir, birth: &Birth, members: &[NodeId]) -> Result<(), RegistryError> {
    birth.check_members(members).map_err(|difference| RegistryError::Config {
        message: format!("node {} has the disk {}, whose {difference}", data_dir.node(), data_dir.path().display()),
    })
}

fn open_table(data_dir: &DataDir, cluster: ClusterId, limits: TableLimits) -> Result<RocksTable, RegistryError> {
    let dir = data_dir.table_dir();
    let identity = TableIdentity { cluster, incarnation: data_dir.incarnation(), table_format: TABLE_FORMAT };
    match check_table(&dir, &identity)? {
        TableState::Ours => (),
        TableState::Missing => {
            info!(node = %data_dir.node(), path = %dir.display(), "there is no table: it is built from the journal");
            begin_table(&dir, &identity)?;
        }
    }
    RocksTable::open(&dir, GROUP, limits)
}

fn read_birth(data_dir: &DataDir, recovered: &Recovered) -> Result<Option<Birth>, RegistryError> {
    let damage = |reason: String| DataDirError::Damage { path: data_dir.journal_dir(), reason };
    let birth = match &recovered.birth {
        Some(bytes) => Birth::decode(bytes).map_err(|error| damage(format!("the birth record: {error}")))?,
        None => {
            return match data_dir.cluster() {
                None => Ok(None),
                Some(cluster) => Err(damage(format!("it has no birth record, yet it is of cluster {cluster}")).into()),
            };
        }
    };
    let (node, ours) = (data_dir.node(), data_dir.incarnation());
    if birth.incarnation_of(node) != Some(ours) {
        return Err(damage(format!("its birth record does not bind node {node} to this disk, {ours}")).into());
    }
    Ok(Some(birth))
}

//! The data directory of a registry node: who this disk is.
//!
//! ```text
//! <data-dir>/registry/<node id>/
//!   lock        held by flock for the life of the process
//!   identity    node id, incarnation, facts fixed at creation; never changed
//!   boot        how often this disk was started; raised durably before anything else
//!   history     one line for each start that may have spoken to peers; see `history`
//!   refused     only in a disk that can never vote again: why; see `mark`
//!   cluster     the cluster id, once the birth record is durable; never changed
//!   journal/    see `journal`
//!   table/      RocksDB, with a file PHOTON that names cluster, incarnation and table format
//! ```
//!
//! Invariant: a node id is bound to one incarnation of one disk. The directory is made under a hidden
//! name and renamed when whole, so what lacks a part was not made here or has lost it: it is
//! refused, never completed.
//!
//! Not here: what peers think of the disk (`ledger` judges, the peers' door asks).

mod birth;
mod history;
mod identity;
mod ledger;
mod mark;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use photon_disk::lock::LockFile;
use photon_disk::{DiskError, durable};
use photon_types::{ClusterId, Incarnation, NodeId};

use crate::journal::{Journal, JournalPosition};
use identity::{Facts, Kind, encode};

pub use birth::{Birth, BirthError};
pub use history::{PAST_LIVES_MAX, PastLife, is_one_story};
pub use ledger::{PeerLedger, PeerRefusal, Statement};
pub use mark::RefusalMark;
pub use table::{TableIdentity, TableState, begin_table, check_table};

const IDENTITY: Kind = Kind { name: "registry-node", version: 1 };
const BOOT: Kind = Kind { name: "registry-boot", version: 1 };
const CLUSTER: Kind = Kind { name: "registry-cluster", version: 1 };

/// What is fixed when a data directory is made, and must agree with the configuration ever after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreationFacts {
    /// Width of a time bucket in the row keys, in microseconds.
    pub bucket_micros: u64,
}

/// The opened data directory of this node. Nobody else can open it while this lives.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    node: NodeId,
    incarnation: Incarnation,
    boot: u64,
    nonce: u64,
    cluster: Option<ClusterId>,
    /// Before this start.
    past_lives: Vec<PastLife>,
    /// Dropped last: it ends the claim.
    lock: Arc<LockFile>,
}

/// Why a data directory can not be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another process has it.
    #[error("the data directory {} is in use by another process; stop it, or give this node a directory of its own", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// There is something else.
    #[error("{} is not the data directory of a registry node: {reason}; name an empty or new directory", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A peer, or the node itself, found that it is not the disk it was.
    #[error(
        "the data directory {} was refused for ever: {reason}; this disk can never vote again: keep it for analysis and \
         let the other nodes go on (operations guide, \"What a registry node refuses\")",
        path.display()
    )]
    Marked {
        /// The directory.
        path: PathBuf,
        /// As kept in it.
        reason: String,
    },
    /// This start found less than an earlier one did.
    #[error(
        "the data directory {} was rolled back: boot {boot} finds the end of its journal at {found}, but boot {past} \
         found it at {kept}; this disk can never vote again",
        path.display()
    )]
    WentBack {
        /// The directory.
        path: PathBuf,
        /// This start.
        boot: u64,
        /// Where the journal ends.
        found: JournalPosition,
        /// The last start in its history.
        past: u64,
        /// Where the journal ended then.
        kept: JournalPosition,
    },
    /// RocksDB's directory has lost the file that says whose it is.
    #[error(
        "{} has no file {name:?}, which says whose table it is; remove this table directory, and only this one: it will \
         be rebuilt from the journal",
        path.display()
    )]
    TableUnnamed {
        /// The directory of the table.
        path: PathBuf,
        /// The file.
        name: &'static str,
    },
    /// It belongs to another member.
    #[error("the data directory {} belongs to node {found}, this is node {expected}; correct the node id or the directory", path.display())]
    WrongNode {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        found: NodeId,
        /// Who we are.
        expected: NodeId,
    },
    /// The configuration says otherwise than when the directory was made.
    #[error("the data directory {} was made with {name} = {kept}, the configuration says {ours}; it can not be changed", path.display())]
    FactDiffers {
        /// The directory.
        path: PathBuf,
        /// Which fact.
        name: &'static str,
        /// What stands there.
        kept: u64,
        /// What the configuration says.
        ours: u64,
    },
    /// It belongs to another cluster.
    #[error("{} belongs to cluster {kept}, not to {ours}", path.display())]
    WrongCluster {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        kept: ClusterId,
        /// Ours.
        ours: ClusterId,
    },
    /// RocksDB's directory belongs to another disk.
    #[error("{} belongs to the data directory {kept}, not to {ours}; remove it, and it will be rebuilt from the journal", path.display())]
    WrongIncarnation {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        kept: Incarnation,
        /// Ours.
        ours: Incarnation,
    },
    /// A format that this build does not know.
    #[error("{} has format {found}; this build reads {expected}: use the build that wrote it, or a newer one", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What was read.
        found: String,
        /// What this build reads.
        expected: String,
    },
    /// A file that was whole once.
    #[error("{} is damaged: {reason}; this disk can not vote any more", path.display())]
    Damage {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The system has no random numbers.
    #[error("drawing random bytes failed: {source}")]
    Random {
        /// What it said.
        source: getrandom::Error,
    },
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl DataDirError {
    /// The directory is another one's, or in use (exit code 7), as against damage or failure.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            DataDirError::InUse { .. }
            | DataDirError::Foreign { .. }
            | DataDirError::Marked { .. }
            | DataDirError::WentBack { .. }
            | DataDirError::TableUnnamed { .. }
            | DataDirError::WrongNode { .. }
            | DataDirError::FactDiffers { .. }
            | DataDirError::WrongCluster { .. }
            | DataDirError::WrongIncarnation { .. }
            | DataDirError::Format { .. } => true,
            DataDirError::Damage { .. } | DataDirError::Random { .. } | DataDirError::Disk(_) => false,
        }
    }

    /// What was durable is gone (exit code 5).
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, DataDirError::Damage { .. })
    }
}

impl DataDir {
    /// Opens the data directory of this node, or makes it where there is none or an empty one, and
    /// raises its boot durably.
    ///
    /// # Errors
    /// [`DataDirError`]; see [`DataDirError::is_refusal`].
    pub fn open(path: &Path, node: NodeId, facts: CreationFacts) -> Result<DataDir, DataDirError> {
        let lock = match create(path, node, facts) {
            Ok(lock) => lock,
            Err(DataDirError::Disk(DiskError::Exists { .. })) => lock_existing(path)?,
            Err(DataDirError::Disk(DiskError::Busy { .. })) => {
                return Err(DataDirError::InUse { path: path.to_owned() });
            }
            Err(error) => return Err(error),
        };
        let incarnation = read_identity(path, node, facts)?;
        mark::check(path)?;
        let past_lives = history::read(&path.join("history"))?;
        let boot = raise_boot(&path.join("boot"))?;
        let cluster = match Facts::read(&path.join("cluster"), CLUSTER)? {
            Some(kept) => Some(kept.get("cluster")?),
            None => None,
        };
        let nonce = u64::from_be_bytes(random()?);
        let lock = Arc::new(lock);
        Ok(DataDir { path: path.to_owned(), node, incarnation, boot, nonce, cluster, past_lives, lock })
    }

    /// Adds this start to the history, durably. To be called once, before anything is said to a peer.
    ///
    /// # Errors
    /// [`DataDirError::WentBack`] when the journal ends before where an earlier start found it, or
    /// the history knows of later starts; [`DataDirError::Disk`].
    pub fn record_life(&self, recovered_end: JournalPosition) -> Result<(), DataDirError> {
        let life = PastLife { boot: self.boot, nonce: self.nonce, recovered_end };
        if let Some(last) = self.past_lives.last().filter(|last| !life.can_follow(last)) {
            let (path, boot, found) = (self.path.clone(), self.boot, recovered_end);
            return Err(DataDirError::WentBack { path, boot, found, past: last.boot, kept: last.recovered_end });
        }
        let mut lives = self.past_lives.clone();
        lives.push(life);
        history::write(&self.path.join("history"), &lives)
    }

    /// The starts before this one that may have spoken to peers, the oldest first.
    #[must_use]
    pub fn past_lives(&self) -> &[PastLife] {
        &self.past_lives
    }

    /// For whoever learns that this disk can never vote again.
    #[must_use]
    pub fn refusal_mark(&self) -> RefusalMark {
        RefusalMark { path: self.path.clone(), lock: Arc::downgrade(&self.lock) }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// This disk.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// How often this disk was started, this start included: from 1.
    #[must_use]
    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// Drawn for this process: tells it from another that runs a copy of this disk.
    #[must_use]
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The cluster, once [`DataDir::set_cluster`] was called in this life or an earlier one.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// For `Journal::open`.
    #[must_use]
    pub fn journal_dir(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// For RocksDB; see [`check_table`].
    #[must_use]
    pub fn table_dir(&self) -> PathBuf {
        self.path.join("table")
    }

    /// Keeps the cluster id. Called when the birth record is synced in the journal, and at each start
    /// with what the journal says: a crash may have come in between.
    ///
    /// # Errors
    /// [`DataDirError::WrongCluster`] when another one stands there, [`DataDirError::Disk`].
    pub fn set_cluster(&mut self, cluster: ClusterId) -> Result<(), DataDirError> {
        match self.cluster {
            Some(kept) if kept == cluster => Ok(()),
            Some(kept) => Err(DataDirError::WrongCluster { path: self.path.clone(), kept, ours: cluster }),
            None => {
                let text = encode(CLUSTER, &[("cluster", cluster.to_string())]);
                durable::write_new(&self.path.join("cluster"), text.as_bytes())?;
                self.cluster = Some(cluster);
                Ok(())
            }
        }
    }
}

fn create(path: &Path, node: NodeId, facts: CreationFacts) -> Result<LockFile, DataDirError> {
    durable::create_dir_all_durable(durable::parent_of(path))?;
    let (lock, ()) = durable::create_dir_durable(path, |hidden| -> Result<(), DataDirError> {
        let incarnation = Incarnation(random()?);
        let identity = [
            ("node", node.to_string()),
            ("incarnation", incarnation.to_string()),
            ("bucket_micros", facts.bucket_micros.to_string()),
        ];
        durable::write_new(&hidden.join("identity"), encode(IDENTITY, &identity).as_bytes())?;
        durable::write_new(&hidden.join("boot"), encode(BOOT, &[("boot", "0".to_owned())]).as_bytes())?;
        durable::write_new(&hidden.join("history"), history::text_of(&[]).as_bytes())?;
        Ok(Journal::create(&hidden.join("journal"))?)
    })?;
    Ok(lock)
}

fn lock_existing(path: &Path) -> Result<LockFile, DataDirError> {
    // Nothing is made in a directory that is not ours.
    match LockFile::try_exclusive_existing(&path.join(durable::LOCK_NAME)) {
        Ok(lock) => Ok(lock),
        Err(DiskError::Busy { .. }) => Err(DataDirError::InUse { path: path.to_owned() }),
        Err(DiskError::Io { source, .. })
            if matches!(source.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
        {
            Err(DataDirError::Foreign { path: path.to_owned(), reason: "it has no file \"lock\"".to_owned() })
        }
        Err(error) => Err(error.into()),
    }
}

fn read_identity(path: &Path, node: NodeId, ours: CreationFacts) -> Result<Incarnation, DataDirError> {
    let file = path.join("identity");
    let Some(kept) = Facts::read(&file, IDENTITY)? else {
        return Err(DataDirError::Foreign { path: path.to_owned(), reason: "it has no file \"identity\"".to_owned() });
    };
    let found = NodeId(kept.get("node")?);
    if found != node {
        return Err(DataDirError::WrongNode { path: path.to_owned(), found, expected: node });
    }
    let bucket_micros: u64 = kept.get("bucket_micros")?;
    if bucket_micros != ours.bucket_micros {
        let (path, name) = (path.to_owned(), "bucket_micros");
        return Err(DataDirError::FactDiffers { path, name, kept: bucket_micros, ours: ours.bucket_micros });
    }
    kept.get("incarnation")
}

fn raise_boot(file: &Path) -> Result<u64, DataDirError> {
    let damage = |reason: &str| DataDirError::Damage { path: file.to_owned(), reason: reason.to_owned() };
    let kept = Facts::read(file, BOOT)?.ok_or_else(|| damage("it is missing"))?;
    let boot = kept.get::<u64>("boot")?.checked_add(1).ok_or_else(|| damage("no more boots can be counted"))?;
    durable::write_replace(file, encode(BOOT, &[("boot", boot.to_string())]).as_bytes())?;
    Ok(boot)
}

fn random<const N: usize>() -> Result<[u8; N], DataDirError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|source| DataDirError::Random { source })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;

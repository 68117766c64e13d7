//! What the machine needs of whatever keeps its rows, and what it gives back.
//!
//! Invariant: `apply` reads everything before it decides anything, and writes nothing: the shell
//! writes all changes of a batch, with `applied_end`, in one atomic write or not at all.

use std::collections::BTreeMap;

use photon_types::{Holder, Outcomes, Timestamp};

use super::digest::Digest;
use super::rowkey::{Bucket, RowKey};

/// The state as it stands before a batch.
pub trait Table {
    /// Why it could not be read. An error is not an absent row: the caller stops the replica.
    type Error;

    /// The rows' winners, one for each key, None where there is no row. Called at most once for
    /// each call of `apply`; the keys are in ascending order and each is there once.
    ///
    /// # Errors
    /// When the table can not be read.
    fn load(&self, keys: &[RowKey]) -> Result<Vec<Option<Holder>>, Self::Error>;

    /// The digest of a bucket; zero when nothing was ever in it.
    ///
    /// # Errors
    /// When the table can not be read.
    fn digest(&self, bucket: Bucket) -> Result<Digest, Self::Error>;

    /// The key rules that were stated first.
    ///
    /// # Errors
    /// When the table can not be read.
    fn key_rules(&self) -> Result<Option<String>, Self::Error>;

    /// Below it no new id is taken.
    fn boundary(&self) -> Timestamp;

    /// Below it rows are gone, even if a file still holds some. Never above `boundary`.
    fn drop_end(&self) -> Timestamp;
}

/// What is different after a batch. Values are new values, not differences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Changes {
    /// Rows that are put (with their winner) or deleted (None).
    pub rows: BTreeMap<RowKey, Option<Holder>>,
    /// Digests of the buckets of these rows.
    pub digests: BTreeMap<Bucket, Digest>,
    /// Key rules, when this batch has the first statement.
    pub key_rules: Option<String>,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Applied {
    /// One for each command, in order.
    pub outcomes: Outcomes,
    /// What is to be written.
    pub changes: Changes,
}

//! A table in memory, for tests and the simulator.

use std::collections::BTreeMap;
use std::convert::Infallible;

use photon_types::{Holder, Timestamp};

use super::digest::Digest;
use super::rowkey::{Bucket, RowKey};
use super::table::{Changes, Table};

/// A table that lives as long as its process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryTable {
    rows: BTreeMap<RowKey, Holder>,
    digests: BTreeMap<Bucket, Digest>,
    key_rules: Option<String>,
    boundary: Timestamp,
    drop_end: Timestamp,
}

impl MemoryTable {
    /// Writes what a batch has changed.
    pub fn absorb(&mut self, changes: Changes) {
        let Changes { rows, digests, key_rules } = changes;
        for (key, holder) in rows {
            match holder {
                Some(holder) => self.rows.insert(key, holder),
                None => self.rows.remove(&key),
            };
        }
        self.digests.extend(digests);
        if key_rules.is_some() {
            self.key_rules = key_rules;
        }
    }

    /// The rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = (&RowKey, &Holder)> {
        self.rows.iter()
    }

    /// The digests kept, in order of buckets; those of empty buckets are zero.
    pub fn digests(&self) -> impl Iterator<Item = (Bucket, Digest)> + use<'_> {
        self.digests.iter().map(|(bucket, digest)| (*bucket, *digest))
    }

    /// The digests as the rows have them, for comparison with those kept.
    #[must_use]
    pub fn computed_digests(&self) -> BTreeMap<Bucket, Digest> {
        let mut digests: BTreeMap<Bucket, Digest> = BTreeMap::new();
        for (key, holder) in &self.rows {
            let digest = digests.entry(key.bucket()).or_default();
            *digest = digest.with(key, *holder);
        }
        digests
    }

    /// Sets the bounds of time.
    ///
    /// # Panics
    /// When rows would go before new ids are refused.
    pub fn set_bounds(&mut self, boundary: Timestamp, drop_end: Timestamp) {
        assert!(drop_end <= boundary, "drop_end {drop_end} is above the boundary {boundary}");
        self.boundary = boundary;
        self.drop_end = drop_end;
    }
}

impl Table for MemoryTable {
    type Error = Infallible;

    fn load(&self, keys: &[RowKey]) -> Result<Vec<Option<Holder>>, Infallible> {
        Ok(keys.iter().map(|key| self.rows.get(key).copied()).collect())
    }

    fn digest(&self, bucket: Bucket) -> Result<Digest, Infallible> {
        Ok(self.digests.get(&bucket).copied().unwrap_or_default())
    }

    fn key_rules(&self) -> Result<Option<String>, Infallible> {
        Ok(self.key_rules.clone())
    }

    fn boundary(&self) -> Timestamp {
        self.boundary
    }

    fn drop_end(&self) -> Timestamp {
        self.drop_end
    }
}

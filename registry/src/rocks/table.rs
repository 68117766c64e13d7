//! The table: rows and what belongs to them, read in one go and written in one go.
//!
//! Invariant: rows, `applied_end`, digests, bounds and key rules of a batch are in one atomic
//! write, and column families are flushed together; so the table is always the state after some
//! whole entry, and recovery goes on from there. A read error is never taken for an absent row.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use photon_core::machine::{Bucket, Changes, Digest, RowKey, Table, decode_holder, encode_holder};
use photon_types::{GroupId, Holder, Slot, Timestamp};
use rocksdb::{ColumnFamily, ColumnFamilyDescriptor, DB, FlushOptions, WriteBatch};

use super::keys;
use super::meta::{GroupRecord, KeyRules, MetaRecord};
use super::options::{TableLimits, options, write_options};
use crate::error::RegistryError;

/// The table of one replication group.
pub(crate) struct RocksTable {
    db: DB,
    path: PathBuf,
    group: GroupId,
    record: GroupRecord,
    key_rules: Option<Arc<KeyRules>>,
}

impl RocksTable {
    /// Opens the table of a group, or makes an empty one. Whose directory it is was checked before
    /// (`datadir::check_table`).
    ///
    /// # Errors
    /// [`RegistryError::Table`] when RocksDB can not open it, [`RegistryError::TableDamaged`] when
    /// its records can not be read.
    pub fn open(path: &Path, group: GroupId, limits: TableLimits) -> Result<RocksTable, RegistryError> {
        let fail = |error: rocksdb::Error| table_error("opening", path, &error);
        let options = options(limits).map_err(fail)?;
        let families = [keys::IDS, keys::META].map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
        let db = DB::open_cf_descriptors(&options, path, families).map_err(fail)?;
        let mut table =
            RocksTable { db, path: path.to_owned(), group, record: GroupRecord::default(), key_rules: None };
        table.record = table.read_meta(&keys::group(group), "applied_end")?.unwrap_or_default();
        table.key_rules = table.read_meta(&keys::rules(group), "key rules")?.map(Arc::new);
        Ok(table)
    }

    /// Everything below is applied.
    pub fn applied_end(&self) -> Slot {
        self.record.applied_end
    }

    /// The key rules that were stated first.
    pub fn rules(&self) -> Option<&Arc<KeyRules>> {
        self.key_rules.as_ref()
    }

    /// Writes what some entries have changed, all below `applied_end`.
    ///
    /// # Errors
    /// [`RegistryError::Table`]: the process must end, the entries will be applied again.
    pub fn write(&mut self, applied_end: Slot, changes: Changes) -> Result<(), RegistryError> {
        assert!(self.record.applied_end < applied_end, "{} was applied before", self.record.applied_end);
        let Changes { rows, digests, key_rules } = changes;
        let (ids, meta) = (self.ids(), self.meta());
        let mut batch = WriteBatch::default();
        for (key, holder) in &rows {
            match holder {
                Some(holder) => {
                    let (value, bytes) = encode_holder(*holder);
                    batch.put_cf(ids, key, &value[..bytes]);
                }
                None => batch.delete_cf(ids, key),
            }
        }
        for (bucket, digest) in &digests {
            let key = keys::digest(self.group, *bucket);
            batch.put_cf(meta, key, digest.seal(&key));
        }
        let key_rules = key_rules.map(KeyRules::new);
        if let Some(rules) = &key_rules {
            let key = keys::rules(self.group);
            batch.put_cf(meta, key, rules.seal(&key));
        }
        let record = GroupRecord { applied_end, ..self.record };
        let key = keys::group(self.group);
        batch.put_cf(meta, key, record.seal(&key));
        self.write_batch(batch)?;
        self.record = record;
        self.key_rules = key_rules.or_else(|| self.key_rules.take());
        Ok(())
    }

    /// Makes everything written durable, all column families together: `DB::flush` would flush the
    /// default one only.
    ///
    /// # Errors
    /// [`RegistryError::Table`].
    pub fn flush(&self) -> Result<(), RegistryError> {
        let mut options = FlushOptions::default();
        options.set_wait(true);
        self.db
            .flush_cfs_opt(&[self.ids(), self.meta()], &options)
            .map_err(|error| table_error("flushing", &self.path, &error))
    }

    fn write_batch(&self, batch: WriteBatch) -> Result<(), RegistryError> {
        self.db.write_opt(batch, &write_options()).map_err(|error| table_error("writing", &self.path, &error))
    }

    fn read_meta<R: MetaRecord>(&self, key: &[u8], what: &str) -> Result<Option<R>, RegistryError> {
        let value =
            self.db.get_pinned_cf(self.meta(), key).map_err(|error| table_error("reading", &self.path, &error))?;
        let Some(value) = value else { return Ok(None) };
        R::open(key, &value).map(Some).map_err(|reason| self.damaged(&format!("the record of its {what}: {reason}")))
    }

    fn ids(&self) -> &ColumnFamily {
        self.db.cf_handle(keys::IDS).expect("opened with it")
    }

    fn meta(&self) -> &ColumnFamily {
        self.db.cf_handle(keys::META).expect("opened with it")
    }

    fn damaged(&self, reason: &str) -> RegistryError {
        RegistryError::TableDamaged { path: self.path.clone(), reason: reason.to_owned() }
    }
}

impl Table for RocksTable {
    type Error = RegistryError;

    fn load(&self, keys: &[RowKey]) -> Result<Vec<Option<Holder>>, RegistryError> {
        // A wrong `sorted` gives wrong answers, and equal keys have, too.
        assert!(keys.is_sorted_by(|a, b| a < b), "rows are asked for in order, each once");
        let found = self.db.batched_multi_get_cf(self.ids(), keys, true);
        assert!(found.len() == keys.len(), "{} rows were asked for, {} came", keys.len(), found.len());
        let row = |(key, found): (&RowKey, Result<Option<rocksdb::DBPinnableSlice<'_>>, rocksdb::Error>)| {
            let value = found.map_err(|error| table_error("reading", &self.path, &error))?;
            let Some(value) = value else { return Ok(None) };
            decode_holder(&value).map(Some).map_err(|error| self.damaged(&format!("row {key:?}: {error}")))
        };
        keys.iter().zip(found).map(row).collect()
    }

    fn digest(&self, bucket: Bucket) -> Result<Digest, RegistryError> {
        Ok(self.read_meta(&keys::digest(self.group, bucket), "digest")?.unwrap_or_default())
    }

    fn key_rules(&self) -> Result<Option<String>, RegistryError> {
        Ok(self.key_rules.as_ref().map(|rules| rules.text.clone()))
    }

    fn boundary(&self) -> Timestamp {
        self.record.boundary
    }

    fn drop_end(&self) -> Timestamp {
        self.record.drop_end
    }
}

fn table_error(operation: &'static str, path: &Path, error: &rocksdb::Error) -> RegistryError {
    RegistryError::Table { operation, path: path.to_owned(), reason: error.to_string() }
}

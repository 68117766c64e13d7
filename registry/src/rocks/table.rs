//! The table: rows and what belongs to them, read in one go and written in one go.
//!
//! Invariant: rows, `applied_end`, digests, bounds and key rules of a batch are in one atomic
//! write, and column families are flushed together; so the table is always the state after some
//! whole entry, and recovery goes on from there. A read error is never taken for an absent row.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use photon_core::machine::{Bucket, Changes, Digest, RowKey, Table, decode_holder, encode_holder};
use photon_types::{GroupId, Holder, Slot, Timestamp};
use rocksdb::{ColumnFamily, ColumnFamilyDescriptor, DB, ErrorKind, FlushOptions, WriteBatch};

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

#[derive(Clone, Copy)]
enum Waiting {
    UntilDone,
    No,
}

impl RocksTable {
    /// Opens the table of a group, or makes an empty one. Whose directory it is was checked before
    /// (`datadir::check_table`).
    ///
    /// # Errors
    /// [`RegistryError::Table`] when RocksDB can not open it, [`RegistryError::TableDamaged`] when
    /// its records can not be read.
    pub fn open(path: &Path, group: GroupId, limits: TableLimits) -> Result<RocksTable, RegistryError> {
        let fail = |error: rocksdb::Error| open_error(path, &error);
        let options = options(limits).map_err(|error| table_error("choosing options", path, &error))?;
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

    /// Makes everything written durable.
    ///
    /// # Errors
    /// [`RegistryError::Table`].
    pub fn flush_and_wait(&self) -> Result<(), RegistryError> {
        self.flush(Waiting::UntilDone)
    }

    /// Begins to make everything written durable, in the background.
    ///
    /// # Errors
    /// [`RegistryError::Table`].
    pub fn begin_flush(&self) -> Result<(), RegistryError> {
        self.flush(Waiting::No)
    }

    /// All column families together: `DB::flush` would flush the default one only.
    fn flush(&self, waiting: Waiting) -> Result<(), RegistryError> {
        let mut options = FlushOptions::default();
        options.set_wait(match waiting {
            Waiting::UntilDone => true,
            Waiting::No => false,
        });
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

/// Files of RocksDB that are missing or can not be read are no loss: all of it is in the journal.
fn open_error(path: &Path, error: &rocksdb::Error) -> RegistryError {
    let text = error.to_string();
    let is_missing = text.contains("No such file or directory") || text.contains("does not exist");
    match error.kind() {
        ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::InvalidArgument | ErrorKind::NotSupported => {
            RegistryError::TableDamaged { path: path.to_owned(), reason: text }
        }
        ErrorKind::IOError if is_missing => RegistryError::TableDamaged { path: path.to_owned(), reason: text },
        _ => table_error("opening", path, error),
    }
}

fn table_error(operation: &'static str, path: &Path, error: &rocksdb::Error) -> RegistryError {
    RegistryError::Table { operation, path: path.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use photon_core::machine::{MemoryTable, RowLayout, apply_all};
    use photon_types::{Chunk, Command, DeleteReason, EventKey, Incarnation, Outcomes, Token};

    use super::*;

    const GROUP: GroupId = GroupId(1);
    const LAYOUT: RowLayout = RowLayout::hourly(GROUP);
    const LIMITS: TableLimits = TableLimits { memtable_bytes: 8 << 20, block_cache_bytes: 8 << 20 };

    fn open(dir: &tempfile::TempDir) -> RocksTable {
        RocksTable::open(&dir.path().join("table"), GROUP, LIMITS).unwrap()
    }

    fn key(n: u64) -> EventKey {
        // Some hours apart, so that there are several buckets.
        EventKey::new(n * 1_000_000_000, format!("click-{n}").as_bytes()).unwrap()
    }

    fn token(sequence: u64) -> Token {
        Token { incarnation: Incarnation([7; 16]), sequence }
    }

    fn insert(n: u64, sequence: u64) -> Command {
        Command::Insert { key: key(n), token: token(sequence) }
    }

    /// Commands that touch `n` in many ways.
    fn commands(n: u64) -> Vec<Command> {
        let delete = Command::Delete { key: key(n / 2), token: token(n / 2), reason: DeleteReason::LineMissing };
        let forget = Command::ForgetToken { key: key(n / 3), token: token(n / 3) };
        let rules = Command::StateKeyRules { text: format!("events.rule = {}", n % 2) };
        vec![insert(n, n), insert(n / 2, n), Command::Lookup { key: key(n / 4) }, delete, forget, rules]
    }

    /// One write of some batches, as the apply lane does it.
    fn apply(table: &mut RocksTable, batches: &[Vec<Command>]) -> Vec<Outcomes> {
        let bytes: Vec<Vec<u8>> = batches.iter().map(|batch| Chunk::of(batch).bytes).collect();
        let slices: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        let (outcomes, changes) = apply_all(table, LAYOUT, &slices).unwrap();
        let applied_end = Slot(table.applied_end().0 + batches.len() as u64);
        table.write(applied_end, changes).unwrap();
        outcomes
    }

    #[test]
    fn it_answers_as_the_table_in_memory_does() {
        let dir = tempfile::tempdir().unwrap();
        let mut table = open(&dir);
        let mut memory = MemoryTable::default();
        for round in 0..20_u64 {
            let batches: Vec<Vec<Command>> = (round * 8..round * 8 + 8).map(commands).collect();
            let bytes: Vec<Vec<u8>> = batches.iter().map(|batch| Chunk::of(batch).bytes).collect();
            let mut want = Vec::new();
            for batch in &bytes {
                let Ok((outcomes, changes)) = apply_all(&memory, LAYOUT, &[batch]);
                memory.absorb(changes);
                want.extend(outcomes);
            }
            assert_eq!(apply(&mut table, &batches), want);
            if round % 5 == 4 {
                table.flush_and_wait().unwrap();
            }
        }
        for (bucket, digest) in memory.computed_digests() {
            assert_eq!(table.digest(bucket).unwrap(), digest, "{bucket:?}");
        }
        let rows: Vec<(RowKey, Holder)> = memory.rows().map(|(key, holder)| (key.clone(), *holder)).collect();
        let keys: Vec<RowKey> = rows.iter().map(|(key, _)| key.clone()).collect();
        let batched = table.load(&keys).unwrap();
        for ((key, want), found) in rows.iter().zip(batched) {
            assert_eq!(found, Some(*want));
            // The batched read agrees with a plain one.
            let plain = table.db.get_cf(table.ids(), key).unwrap().map(|value| decode_holder(&value).unwrap());
            assert_eq!(plain, found);
        }
    }

    #[test]
    fn what_was_written_is_there_again_after_a_clean_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut table = open(&dir);
        assert_eq!(table.applied_end(), Slot(0));
        apply(&mut table, &[vec![Command::StateKeyRules { text: "a.b = c".into() }], vec![insert(1, 1)]]);
        table.flush_and_wait().unwrap();
        drop(table);
        let table = open(&dir);
        assert_eq!(table.applied_end(), Slot(2));
        assert_eq!(table.rules(), Some(&KeyRules::new("a.b = c".into())));
        let row = LAYOUT.row_key(&key(1));
        assert_eq!(table.load(&[row]).unwrap(), [Some(Holder::Token(token(1)))]);
    }

    /// Rows and `applied_end` are on disk together: what a crash finds is a copy of the files.
    #[test]
    fn a_crash_finds_the_state_after_some_whole_entry() {
        let dir = tempfile::tempdir().unwrap();
        let mut table = open(&dir);
        apply(&mut table, &[vec![insert(1, 1)]]);
        table.flush_and_wait().unwrap();
        apply(&mut table, &[vec![insert(2, 2)]]);
        let crashed = dir.path().join("crashed");
        std::fs::create_dir(&crashed).unwrap();
        for entry in std::fs::read_dir(dir.path().join("table")).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), crashed.join(entry.file_name())).unwrap();
        }
        let found = RocksTable::open(&crashed, GROUP, LIMITS).unwrap();
        let rows = [LAYOUT.row_key(&key(1)), LAYOUT.row_key(&key(2))];
        assert_eq!(found.applied_end(), Slot(1));
        assert_eq!(found.load(&rows).unwrap(), [Some(Holder::Token(token(1))), None]);
    }

    /// Whatever file of RocksDB is lost or rots: what to do is said, or the file was not needed.
    #[test]
    fn files_of_the_table_that_are_lost_or_damaged_are_said_to_be_rebuilt() {
        let dir = tempfile::tempdir().unwrap();
        let mut table = open(&dir);
        apply(&mut table, &[vec![insert(1, 1), insert(2, 2)]]);
        table.flush_and_wait().unwrap();
        drop(table);
        let names: Vec<_> = std::fs::read_dir(dir.path().join("table"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let (mut lost, mut rotten) = (0, 0);
        for name in names {
            for is_lost in [true, false] {
                let copy = dir.path().join(format!("{name}-{is_lost}"));
                std::fs::create_dir(&copy).unwrap();
                for entry in std::fs::read_dir(dir.path().join("table")).unwrap() {
                    let entry = entry.unwrap();
                    std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
                }
                if is_lost {
                    std::fs::remove_file(copy.join(&name)).unwrap();
                } else {
                    std::fs::write(copy.join(&name), b"rubbish").unwrap();
                }
                let Err(error) = RocksTable::open(&copy, GROUP, LIMITS) else { continue };
                let text = error.to_string();
                assert!(text.contains("remove that directory"), "{name}: {text}");
                assert_eq!(error.kind(), crate::error::ErrorKind::Damage, "{name}: {text}");
                *if is_lost { &mut lost } else { &mut rotten } += 1;
            }
        }
        assert!(2 <= lost && 3 <= rotten, "of a table some files are needed: {lost} and {rotten}");
    }

    #[test]
    fn a_record_that_can_not_be_read_is_damage_and_not_an_empty_table() {
        let dir = tempfile::tempdir().unwrap();
        let mut table = open(&dir);
        apply(&mut table, &[vec![insert(1, 1)]]);
        let mut batch = WriteBatch::default();
        batch.put_cf(table.meta(), keys::group(GROUP), b"rubbish");
        batch.put_cf(table.ids(), LAYOUT.row_key(&key(2)), b"short");
        table.write_batch(batch).unwrap();
        let row = table.load(&[LAYOUT.row_key(&key(2))]).unwrap_err().to_string();
        assert!(row.contains("the value of a row has 0 or 24 bytes, not 5"), "{row}");
        table.flush_and_wait().unwrap();
        drop(table);
        let path = dir.path().join("table");
        let error = RocksTable::open(&path, GROUP, LIMITS).err().expect("it is damaged").to_string();
        assert!(error.contains("the record of its applied_end: its crc is"), "{error}");
        assert!(error.contains("remove that directory"), "{error}");
    }
}

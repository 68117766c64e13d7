//! How RocksDB is told to work.
//!
//! Nearly every read is of a row that is not there, and rows come roughly in order of time: so there
//! are Bloom filters over memtables and files, and files are split at time buckets, so that they
//! can go whole one day. No range tombstone is ever written to the rows: one of them in a memtable
//! switches its filter off for batched reads.

use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, LogLevel, Options, WriteOptions};

/// What may be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableLimits {
    pub memtable_bytes: usize,
    pub block_cache_bytes: usize,
}

/// Options of the database and of all column families.
pub(super) fn options(limits: TableLimits) -> Result<Options, rocksdb::Error> {
    // Options that the crate does not wrap come by string, and that must be the first step.
    let mut options = Options::default().get_options_from_string(
        "sst_partitioner_factory={id=SstPartitionerFixedPrefixFactory;length=4};\
         memtable_batch_lookup_optimization=true;memtable_max_range_deletions=16",
    )?;
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    // Rows and `applied_end` become durable together or not at all.
    options.set_atomic_flush(true);
    options.set_write_buffer_size(limits.memtable_bytes);
    options.set_max_write_buffer_number(4);
    options.set_memtable_prefix_bloom_ratio(0.02);
    options.set_memtable_whole_key_filtering(true);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_max_open_files(-1);
    options.set_max_background_jobs(2);
    options.set_bytes_per_sync(1 << 20);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_bottommost_compression_type(DBCompressionType::Lz4);
    // Ageing is ours, by the replicated boundary, never by a clock.
    options.set_periodic_compaction_seconds(0);
    options.set_ttl(0);
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(4);
    let mut blocks = BlockBasedOptions::default();
    blocks.set_bloom_filter(10.0, false);
    blocks.set_whole_key_filtering(true);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_block_cache(&Cache::new_lru_cache(limits.block_cache_bytes));
    options.set_block_based_table_factory(&blocks);
    Ok(options)
}

/// No WAL: the journal is the log.
pub(super) fn write_options() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    options
}

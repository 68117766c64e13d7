//! Clusters of registry nodes within one process: real disks, real sockets, the generated client.
//!
//! One binary, so that RocksDB is linked once.

mod harness;

mod commands;
mod disks;
mod door;
mod outages;

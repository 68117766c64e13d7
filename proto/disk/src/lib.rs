//! What every crate that owns files shares: durable writes, locks, and the framed append file.
//!
//! Invariant: when a function here returns `Ok`, what it promises survives a power cut. A write or
//! sync that fails is never tried again on the same file: the kernel may have dropped the bytes and
//! report the next sync as good.
//!
//! Not here: what the bytes mean, retries, threads.

mod error;

pub mod durable;
pub mod lock;

mod frame;
pub mod framed;
pub mod window;

pub use error::DiskError;

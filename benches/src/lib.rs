//! Benchmarks of commit batching.

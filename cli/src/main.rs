//! The `photon` binary.
fn main() {}

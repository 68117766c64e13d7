//! The IdRegistry server.

pub mod datadir;
pub mod journal;

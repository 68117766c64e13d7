//! The client library of the IdRegistry.

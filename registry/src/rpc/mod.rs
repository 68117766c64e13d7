//! The doors: tonic services for clients and peers, and plain HTTP for operators.
//!
//! Architecture invariant: generated types live here and in `photon_proto::convert`, nowhere else;
//! what leaves this folder inward is valid.

pub(crate) mod admin;
pub(crate) mod handshake;
pub(crate) mod http;
pub(crate) mod messages;
pub(crate) mod peer;
pub(crate) mod registry;

//! The wire contract of Photon, generated from `photon/*/v1/*.proto`.
//!
//! Not here: what the messages mean. [`convert`] is the only place that trusts no bytes.
#![allow(missing_docs, reason = "generated types are documented in the .proto files")]

/// What clients say to the registry.
pub mod registry {
    tonic::include_proto!("photon.registry.v1");
}

/// What the nodes of one registry say to each other.
pub mod peer {
    tonic::include_proto!("photon.peer.v1");
}

/// The services of the pipeline.
pub mod pipeline {
    tonic::include_proto!("photon.pipeline.v1");
}

pub mod convert;

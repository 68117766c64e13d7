//! What can go wrong in a role, with evidence.
//!
//! Not here: what a record or a click comes to. Those are answers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use photon_disk::DiskError;
use photon_format::error::{ConfigError, SourceError};
use photon_format::output::OutputError;
use photon_format::state::StateError;

/// Why a role could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The address can not be listened on.
    #[error("{role}: can not listen on {address}: {source}; is another process there? choose another port")]
    Listen {
        /// Who.
        role: &'static str,
        /// Where.
        address: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The address of a peer is none.
    #[error("{role}: {peer} {endpoint:?} is no address: expected host:port")]
    Endpoint {
        /// Who.
        role: &'static str,
        /// Of whom.
        peer: &'static str,
        /// What was given.
        endpoint: String,
    },
    /// A server ended.
    #[error("{role}: serving {address} failed: {why}")]
    Serve {
        /// Who.
        role: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        why: String,
    },
    /// The joined output can not be written. Nothing was answered that is not durable.
    #[error("joiner: {0}")]
    Output(#[source] OutputError),
    /// The joiner stopped while attempts had no end.
    #[error(
        "joiner: {in_flight} attempts had no end after {waited:?}, the output is not sealed: \
         `photon verify --repair` closes it"
    )]
    NotSealed {
        /// How many attempts.
        in_flight: usize,
        /// How long it was waited.
        waited: std::time::Duration,
    },
    /// A file of the dispatcher can not be read or written.
    #[error("dispatcher: {0}")]
    Disk(#[from] DiskError),
    /// A record of one of these files can not be read, or one is missing.
    #[error("dispatcher: {0}")]
    State(#[from] StateError),
    /// A source can not be read.
    #[error("{0}")]
    Source(#[from] SourceError),
    /// The configuration does not fit.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A source is not the file that it was.
    #[error("source {name} ({}): {why}", path.display())]
    SourceChanged {
        /// The source.
        name: String,
        /// Its file.
        path: PathBuf,
        /// What is different, and what to do.
        why: String,
    },
    /// The system gave no random bytes.
    #[error("{role}: the system gives no random bytes: {why}")]
    Random {
        /// Who.
        role: &'static str,
        /// Why.
        why: String,
    },
    /// The system gave no thread.
    #[error("{role}: the system gives no thread: {source}")]
    Thread {
        /// Who.
        role: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// A part of the role has ended without saying why: a bug, its panic is on stderr.
    #[error("{role}: {part} has ended; see the messages before this one")]
    Gone {
        /// Who.
        role: &'static str,
        /// Which part.
        part: &'static str,
    },
    /// The same error, told to several.
    #[error("{0}")]
    Shared(Arc<PipelineError>),
}

impl PipelineError {
    /// The output was fenced: this joiner was taken for dead, and must not go on.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        match self {
            PipelineError::Output(OutputError::Fenced { .. }) => true,
            PipelineError::Shared(error) => error.is_fenced(),
            PipelineError::Output(_)
            | PipelineError::Listen { .. }
            | PipelineError::Endpoint { .. }
            | PipelineError::Serve { .. }
            | PipelineError::NotSealed { .. }
            | PipelineError::Disk(_)
            | PipelineError::State(_)
            | PipelineError::Source(_)
            | PipelineError::Config(_)
            | PipelineError::SourceChanged { .. }
            | PipelineError::Random { .. }
            | PipelineError::Thread { .. }
            | PipelineError::Gone { .. } => false,
        }
    }
}

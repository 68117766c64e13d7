//! Why there is no answer.

use std::sync::Arc;

use photon_types::ClusterId;

use crate::rules;

/// Why a call has no answer, or a client could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// It may or may not have happened, or may still happen: ask again with the same token. Never
    /// a failure.
    #[error("no clear answer within the deadline; it may have happened: ask again with the same token ({cause})")]
    Unknown {
        /// What the last ambiguous attempt met.
        cause: Arc<str>,
    },
    /// No leader was reached within the deadline. Nothing has happened.
    #[error("no leader of the registry could be reached within the deadline, nothing has happened: {cause}")]
    Unreachable {
        /// What the last try met.
        cause: Arc<str>,
    },
    /// One node did not say where it stands.
    #[error("{endpoint} did not answer: {cause}")]
    NoAnswer {
        /// Who.
        endpoint: Arc<str>,
        /// What was met.
        cause: Arc<str>,
    },
    /// There was no room within the deadline, here or at the leader. Nothing has happened: ask later.
    #[error("the registry is overloaded, nothing has happened: ask again later ({cause})")]
    Overloaded {
        /// Where there was no room.
        cause: Arc<str>,
    },
    /// The cluster was given other key rules than ours: keys made here would be other keys.
    #[error(
        "the key rules here differ from those of the registry; all datacenters must make the same keys. {}",
        rules::differences(ours, kept)
    )]
    KeyRulesDiffer {
        /// The cluster's rules.
        kept: Arc<str>,
        /// This client's rules.
        ours: Arc<str>,
    },
    /// A node of another cluster stands at an endpoint.
    #[error(
        "{endpoint} belongs to cluster {}, expected {expected}: correct the endpoints",
        found.map_or_else(|| "(not told)".to_owned(), |id| id.to_string())
    )]
    WrongCluster {
        /// Where.
        endpoint: Arc<str>,
        /// The cluster that is meant.
        expected: ClusterId,
        /// The cluster that answered.
        found: Option<ClusterId>,
    },
    /// A node would not take the request, and no retry will change that.
    #[error("{endpoint} refused the request: {reason}")]
    Refused {
        /// Who.
        endpoint: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
    /// A setting that can not be worked with.
    #[error("{what}")]
    Config {
        /// Which, and what is allowed.
        what: String,
    },
    /// The client's worker has ended with its runtime. Nothing has happened.
    #[error("the client has been stopped, nothing has happened")]
    Stopped,
}

impl ClientError {
    /// The cause alone, for a text that says by itself what it means for the command.
    pub(crate) fn cause(&self) -> Arc<str> {
        match self {
            ClientError::Unknown { cause } | ClientError::Unreachable { cause } | ClientError::Overloaded { cause } => {
                cause.clone()
            }
            ClientError::KeyRulesDiffer { .. }
            | ClientError::NoAnswer { .. }
            | ClientError::WrongCluster { .. }
            | ClientError::Refused { .. }
            | ClientError::Config { .. }
            | ClientError::Stopped => self.to_string().into(),
        }
    }
}

/// The error of one command of a call.
pub type SubmitError = ClientError;

/// An error with all its causes, since most of tonic's say only "transport error".
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

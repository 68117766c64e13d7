//! Why a run could not come to a judgement. What it judged to be wrong is a finding, not an error.

use photon_client::ClientError;
use photon_disk::DiskError;
use photon_format::error::{ConfigError, SourceError};
use photon_format::output::OutputError;

/// Why a run ended without a report.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The configuration does not say where something is.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The registry gave no answer, and without it nothing can be judged.
    #[error("the registry gave no answer while {doing}: {source}; start it, or correct its addresses, and run again")]
    Registry {
        /// What was asked.
        doing: &'static str,
        /// What the client met.
        source: ClientError,
    },
    /// The registry's answer does not fit the question.
    #[error("the registry answered {found} to {doing}; its version and this one do not fit")]
    Answer {
        /// What was asked.
        doing: &'static str,
        /// What came.
        found: String,
    },
    /// The input could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A file of the verifier's own could not be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// An output could not be read, listed or sealed.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A part of the run ended without a result.
    #[error("a part of the run ended without a result: {why}")]
    Stopped {
        /// How.
        why: String,
    },
}

impl VerifyError {
    /// The exit code of a process that ends with this error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            VerifyError::Config(_) => 2,
            VerifyError::Registry { source, .. } => match source {
                ClientError::Config { .. } | ClientError::KeyRulesDiffer { .. } => 2,
                ClientError::Unknown { .. }
                | ClientError::NoAnswer { .. }
                | ClientError::Unreachable { .. }
                | ClientError::Overloaded { .. }
                | ClientError::WrongCluster { .. }
                | ClientError::Refused { .. }
                | ClientError::Stopped => 4,
            },
            VerifyError::Disk(DiskError::Damage { .. }) => 5,
            VerifyError::Answer { .. }
            | VerifyError::Source(_)
            | VerifyError::Disk(_)
            | VerifyError::Output(_)
            | VerifyError::Stopped { .. } => 1,
        }
    }
}

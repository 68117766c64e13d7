//! Why a run could not come to a judgement. What it judged to be wrong is a finding, not an error.

use std::path::PathBuf;

use photon_client::ClientError;
use photon_disk::DiskError;
use photon_format::error::{ConfigError, SourceError};
use photon_format::output::OutputError;
use photon_types::Incarnation;

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
    /// An incarnation that was named dead is in no output.
    #[error(
        "incarnation {dead} was named dead, and no output has it; searched: {}; nothing was changed; correct the name, or bring its output within reach",
        listed(searched)
    )]
    DeadUnknown {
        /// The name.
        dead: Incarnation,
        /// Every output that can be read.
        searched: Vec<PathBuf>,
    },
    /// A part of the run ended without a result.
    #[error("a part of the run ended without a result: {why}")]
    Stopped {
        /// How.
        why: String,
    },
}

impl VerifyError {
    /// The exit code of a process that ends with this error: as of any other command.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            VerifyError::Config(_) | VerifyError::DeadUnknown { .. } => USAGE,
            VerifyError::Registry { source, .. } => match source {
                ClientError::Config { .. } | ClientError::KeyRulesDiffer { .. } => USAGE,
                ClientError::Unknown { .. }
                | ClientError::NoAnswer { .. }
                | ClientError::Unreachable { .. }
                | ClientError::Overloaded { .. } => UNREACHABLE,
                ClientError::WrongCluster { .. } | ClientError::Refused { .. } | ClientError::Stopped => FAILURE,
            },
            VerifyError::Disk(error) => of_disk(error),
            VerifyError::Output(OutputError::Disk(error)) => of_disk(error),
            VerifyError::Output(error) if is_damage(error) => DAMAGE,
            VerifyError::Output(_)
            | VerifyError::Answer { .. }
            | VerifyError::Source(_)
            | VerifyError::Stopped { .. } => FAILURE,
        }
    }
}

const FAILURE: u8 = 1;
const USAGE: u8 = 2;
const UNREACHABLE: u8 = 4;
const DAMAGE: u8 = 5;
const DATA_DIRECTORY: u8 = 7;

fn of_disk(error: &DiskError) -> u8 {
    match error {
        DiskError::Damage { .. } | DiskError::Format { .. } => DAMAGE,
        DiskError::Busy { .. } => DATA_DIRECTORY,
        DiskError::Io { .. } | DiskError::Exists { .. } | DiskError::TooLarge { .. } | DiskError::Poisoned { .. } => {
            FAILURE
        }
    }
}

/// Whether an output can not be believed, as opposed to could not be read just now.
pub fn is_damage(error: &OutputError) -> bool {
    match error {
        OutputError::Disk(error) => of_disk(error) == DAMAGE,
        // Something stands where only a copy can have put it.
        OutputError::Exists { .. } | OutputError::Line { .. } => true,
        OutputError::Fenced { .. }
        | OutputError::Stopped { .. }
        | OutputError::Contended { .. }
        | OutputError::Moved { .. }
        | OutputError::Limit { .. }
        | OutputError::Random { .. } => false,
    }
}

fn listed(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    if paths.is_empty() { "none, no datacenter can be read".to_owned() } else { paths.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_ends_with_5_wherever_it_was_met() {
        let path = PathBuf::from("there");
        let damage = || DiskError::Damage { path: path.clone(), offset: 7, reason: "bad".into() };
        let format = || DiskError::Format { path: path.clone(), found: "a".into(), expected: "b".into() };
        let io = || DiskError::io("reading", &path)(std::io::Error::other("no"));
        let busy = || DiskError::Busy { path: path.clone() };
        for (error, code) in [(damage(), 5), (format(), 5), (io(), 1), (busy(), 7)] {
            assert_eq!(VerifyError::Disk(error).exit_code(), code);
        }
        for (error, code) in [(damage(), 5), (format(), 5), (io(), 1), (busy(), 7)] {
            assert_eq!(VerifyError::Output(error.into()).exit_code(), code);
        }
        let exists = OutputError::Exists { path: path.clone() };
        let line = OutputError::Line { offset: 3, why: "no key" };
        for (error, code) in [(exists, 5), (line, 5), (OutputError::Moved { path: path.clone() }, 1)] {
            assert_eq!(VerifyError::Output(error).exit_code(), code);
        }
    }

    #[test]
    fn what_a_client_met_has_the_code_of_other_commands() {
        let code = |source| VerifyError::Registry { doing: "asking", source }.exit_code();
        assert_eq!(code(ClientError::Config { what: "x".into() }), 2);
        assert_eq!(code(ClientError::Unreachable { cause: "x".into() }), 4);
        assert_eq!(code(ClientError::Refused { endpoint: "a".into(), reason: "b".into() }), 1);
        assert_eq!(code(ClientError::Stopped), 1);
    }
}

//! The exit codes of `photon`: fixed, and printed by `--help`.

use std::process::ExitCode;

/// How a command ended. Scripts rely on these numbers; they never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Ok,
    /// It did not work; the message says why.
    Failure,
    /// The command line or the configuration is wrong.
    Usage,
    /// `verify` found differences between input, output and registry.
    Differences,
    /// Nobody answered.
    Unreachable,
    /// A journal or an output is damaged.
    Damage,
    /// This joiner was fenced: its output directory is no longer its own.
    Fenced,
    /// The data directory belongs to another node or cluster, or is in use.
    DataDirectory,
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Differences => 3,
            Exit::Unreachable => 4,
            Exit::Damage => 5,
            Exit::Fenced => 6,
            Exit::DataDirectory => 7,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// An error that knows with which code the process should end.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ExitError {
    /// The code.
    pub exit: Exit,
    /// What is wrong, where, and what to do.
    pub message: String,
}

/// An `anyhow` error that ends the process with this code.
pub fn error(exit: Exit, message: impl std::fmt::Display) -> anyhow::Error {
    ExitError { exit, message: message.to_string() }.into()
}

/// The end of `--help`.
pub const HELP: &str = "\
Exit codes:
  0  all is well
  1  it did not work; the message says why
  2  the command line or the configuration is wrong
  3  verify found differences
  4  nobody answered
  5  a journal or an output is damaged
  6  this joiner was fenced
  7  the data directory is another's, or in use";

/// The code for an error that ends the process: the first cause that knows one decides.
pub fn of(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if let Some(known) = cause.downcast_ref::<ExitError>() {
            return known.exit;
        }
        if cause.is::<photon_format::error::ConfigError>() {
            return Exit::Usage;
        }
    }
    Exit::Failure
}

/// The code for a registry node that could not start or go on.
pub fn of_registry(error: &photon_registry::RegistryError) -> Exit {
    match error.kind() {
        photon_registry::ErrorKind::Failure => Exit::Failure,
        photon_registry::ErrorKind::Config => Exit::Usage,
        photon_registry::ErrorKind::Damage => Exit::Damage,
        photon_registry::ErrorKind::DataDirRefused => Exit::DataDirectory,
    }
}

/// The code for what a client met.
pub fn of_client(error: &photon_client::ClientError) -> Exit {
    use photon_client::ClientError;
    match error {
        ClientError::Config { .. } | ClientError::KeyRulesDiffer { .. } => Exit::Usage,
        ClientError::Unknown { .. }
        | ClientError::Unreachable { .. }
        | ClientError::NoAnswer { .. }
        | ClientError::Overloaded { .. } => Exit::Unreachable,
        ClientError::WrongCluster { .. } | ClientError::Refused { .. } | ClientError::Stopped => Exit::Failure,
    }
}

/// The code for a role of the pipeline that could not start or go on.
pub fn of_pipeline(error: &photon_pipeline::PipelineError) -> Exit {
    use photon_disk::DiskError;
    use photon_pipeline::PipelineError;
    match error {
        error if error.is_fenced() => Exit::Fenced,
        PipelineError::Shared(error) => of_pipeline(error),
        PipelineError::Config(_) | PipelineError::Endpoint { .. } => Exit::Usage,
        PipelineError::State(error) => of_state(error),
        PipelineError::Disk(DiskError::Busy { .. }) => Exit::DataDirectory,
        PipelineError::Disk(DiskError::Damage { .. } | DiskError::Format { .. }) => Exit::Damage,
        PipelineError::Listen { .. }
        | PipelineError::Serve { .. }
        | PipelineError::Output(_)
        | PipelineError::NotSealed { .. }
        | PipelineError::Disk(_)
        | PipelineError::Source(_)
        | PipelineError::SourceChanged { .. }
        | PipelineError::Random { .. }
        | PipelineError::Thread { .. }
        | PipelineError::Gone { .. } => Exit::Failure,
    }
}

/// The code of a number that a library gave.
pub fn of_code(code: u8) -> Exit {
    const ALL: [Exit; 8] = [
        Exit::Ok,
        Exit::Failure,
        Exit::Usage,
        Exit::Differences,
        Exit::Unreachable,
        Exit::Damage,
        Exit::Fenced,
        Exit::DataDirectory,
    ];
    ALL.into_iter().find(|exit| exit.code() == code).unwrap_or(Exit::Failure)
}

/// The code for a dispatcher's file that could not be read or written.
pub fn of_state(error: &photon_format::state::StateError) -> Exit {
    use photon_disk::DiskError;
    use photon_format::state::StateError;
    match error {
        StateError::Record { .. } | StateError::Disk(DiskError::Damage { .. } | DiskError::Format { .. }) => {
            Exit::Damage
        }
        StateError::Disk(DiskError::Busy { .. }) => Exit::DataDirectory,
        StateError::Disk(_) | StateError::Full { .. } | StateError::NotPending { .. } => Exit::Failure,
    }
}

//! What can go wrong when configuration and sources are read: operating errors with evidence.
//!
//! Invariant: every message names the file, and says what to do about it.
//! Not here: what is wrong with a record. That is no error but an end state: `extract::Reason`.

use std::fmt;
use std::path::PathBuf;

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can not be read.
    #[error("{}: the config file can not be read: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file says something that can not be.
    #[error("{}{at}: {message}", file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Where in it.
        at: Place,
        /// What is wrong, and what is allowed.
        message: String,
    },
    /// What was asked for is not in the file.
    #[error("{}: {message}", file.display())]
    Absent {
        /// The file.
        file: PathBuf,
        /// What is missing, and what there is.
        message: String,
    },
}

/// A place in a config file: as much as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The line, from 1.
    pub line: Option<usize>,
    /// The path of the key, such as `join.stream[1].time.forms`.
    pub key: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": `{}`", self.key)?;
        }
        Ok(())
    }
}

/// Why a source can not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file or a directory is not there or can not be read.
    #[error("{}: source \"{name}\": {operation} failed: {source}", path.display())]
    Io {
        /// The stable name of the file, or the input's name.
        name: String,
        /// What was read.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The input's path is neither a plain file nor a directory.
    #[error("{}: input \"{input}\" must be a plain file or a directory", path.display())]
    Kind {
        /// The input's name.
        input: String,
        /// What was found.
        path: PathBuf,
    },
    /// A file's name can not be part of a source name.
    #[error("{}: input \"{input}\": the name is not UTF-8, or has a control character, or is too long: rename the file", path.display())]
    Name {
        /// The input's name.
        input: String,
        /// The file.
        path: PathBuf,
    },
    /// More files than are followed.
    #[error("{}: input \"{input}\" has more than {max} files: split the input", path.display())]
    TooMany {
        /// The input's name.
        input: String,
        /// The directory.
        path: PathBuf,
        /// The limit.
        max: usize,
    },
    /// A file is shorter than it was: it was cut or replaced.
    #[error("{}: source \"{name}\" has {size} bytes, but {expected} were there before: it was cut or replaced; put back the file that was read", path.display())]
    Shrunk {
        /// The stable name.
        name: String,
        /// The file.
        path: PathBuf,
        /// Its size now.
        size: u64,
        /// Its size before, or up to where it was read.
        expected: u64,
    },
    /// Directories that go down without end.
    #[error("{}: input \"{input}\" has directories more than {max} deep: is there a loop of symbolic links?", path.display())]
    TooDeep {
        /// The input's name.
        input: String,
        /// The directory.
        path: PathBuf,
        /// The limit.
        max: usize,
    },
    /// A list of sources that can not be used.
    #[error("the list of sources is not valid: {message}")]
    List {
        /// What is wrong.
        message: String,
    },
}

//! Reading bytes that somebody else wrote.
//!
//! Invariant: nothing here panics, whatever the bytes.

use std::fmt;

use crate::key::KeyError;

/// Why bytes are not a command or an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodecError {
    /// The bytes end inside a value.
    Truncated,
    /// A format version that this build does not know.
    Format {
        /// What was read.
        found: u8,
    },
    /// A kind that this format does not have.
    Kind {
        /// What was read.
        found: u8,
    },
    /// A length that does not fit the kind.
    Length {
        /// What was read.
        found: usize,
    },
    /// More bytes or commands than a chunk may have.
    TooLarge {
        /// What was read.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// Another number of commands than stated.
    Count {
        /// What was stated.
        stated: usize,
        /// What was read.
        found: usize,
    },
    /// A timestamp or an id out of bounds.
    Key(KeyError),
    /// A text that is not UTF-8.
    Text,
    /// A statement of key rules among other commands.
    KeyRules,
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodecError::Truncated => f.write_str("the bytes end inside a value"),
            CodecError::Format { found } => write!(f, "format version {found} is not known here"),
            CodecError::Kind { found } => write!(f, "kind {found} is not known in this format"),
            CodecError::Length { found } => write!(f, "a length of {found} does not fit this kind"),
            CodecError::TooLarge { found, max } => write!(f, "{found} is more than the limit of {max}"),
            CodecError::Count { stated, found } => write!(f, "{stated} commands stated, {found} found"),
            CodecError::Key(error) => error.fmt(f),
            CodecError::Text => f.write_str("a text is not UTF-8"),
            CodecError::KeyRules => f.write_str("key rules are stated by a call of their own"),
        }
    }
}

impl std::error::Error for CodecError {}

impl From<KeyError> for CodecError {
    fn from(error: KeyError) -> CodecError {
        CodecError::Key(error)
    }
}

/// A cursor over bytes that takes fixed pieces off the front.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], CodecError> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(CodecError::Truncated)?;
        self.0 = tail;
        Ok(head)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        Ok(self.bytes(N)?.try_into().expect("N bytes were taken"))
    }

    pub fn u8(&mut self) -> Result<u8, CodecError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, CodecError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, CodecError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

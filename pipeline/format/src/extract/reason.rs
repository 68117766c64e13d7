//! Why a record is a dead letter: a closed list, each with a code that is kept on disk.
//!
//! Invariant: a code is never given another meaning.

use std::fmt;

/// Why a record is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A bulk action line that can not be read.
    ActionUnreadable,
    /// A line over the limit.
    LineTooLong,
    /// A document that is not UTF-8.
    NotUtf8,
    /// A document that is not one JSON value.
    NotJson,
    /// A document that is JSON, but not an object.
    NotAnObject,
    /// No id, or null.
    IdMissing,
    /// An id without bytes.
    IdEmpty,
    /// An id with too many bytes.
    IdTooLong,
    /// An id that is neither a text nor an integer.
    IdKind,
    /// No event time, or null.
    TimeMissing,
    /// An event time in none of the forms, or out of bounds.
    TimeUnreadable,
    /// No reference, or null. The record has a key.
    ReferenceMissing,
    /// A reference without bytes. The record has a key.
    ReferenceEmpty,
    /// A reference with more bytes than an id can have. The record has a key.
    ReferenceTooLong,
    /// A reference that is neither a text nor an integer. The record has a key.
    ReferenceKind,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 15] = [
        Reason::ActionUnreadable,
        Reason::LineTooLong,
        Reason::NotUtf8,
        Reason::NotJson,
        Reason::NotAnObject,
        Reason::IdMissing,
        Reason::IdEmpty,
        Reason::IdTooLong,
        Reason::IdKind,
        Reason::TimeMissing,
        Reason::TimeUnreadable,
        Reason::ReferenceMissing,
        Reason::ReferenceEmpty,
        Reason::ReferenceTooLong,
        Reason::ReferenceKind,
    ];

    /// A short name for files and metrics.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Reason::ActionUnreadable => "action-unreadable",
            Reason::LineTooLong => "line-too-long",
            Reason::NotUtf8 => "not-utf8",
            Reason::NotJson => "not-json",
            Reason::NotAnObject => "not-an-object",
            Reason::IdMissing => "id-missing",
            Reason::IdEmpty => "id-empty",
            Reason::IdTooLong => "id-too-long",
            Reason::IdKind => "id-kind",
            Reason::TimeMissing => "time-missing",
            Reason::TimeUnreadable => "time-unreadable",
            Reason::ReferenceMissing => "reference-missing",
            Reason::ReferenceEmpty => "reference-empty",
            Reason::ReferenceTooLong => "reference-too-long",
            Reason::ReferenceKind => "reference-kind",
        }
    }

    /// The reverse of [`Reason::code`].
    #[must_use]
    pub fn from_code(code: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.code() == code)
    }
}

/// For people.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::ActionUnreadable => "the bulk action line can not be read",
            Reason::LineTooLong => "the line is longer than line-max",
            Reason::NotUtf8 => "the document is not UTF-8",
            Reason::NotJson => "the document is not one whole JSON value",
            Reason::NotAnObject => "the document is not a JSON object",
            Reason::IdMissing => "the id is missing or null",
            Reason::IdEmpty => "the id is empty",
            Reason::IdTooLong => "the id is longer than 100 bytes (1024 for a query)",
            Reason::IdKind => "the id is neither a text nor an integer",
            Reason::TimeMissing => "the event time is missing or null",
            Reason::TimeUnreadable => "the event time is in none of the configured forms, or out of bounds",
            Reason::ReferenceMissing => "the reference to the query is missing or null",
            Reason::ReferenceEmpty => "the reference to the query is empty",
            Reason::ReferenceTooLong => "the reference to the query is longer than 1024 bytes",
            Reason::ReferenceKind => "the reference to the query is neither a text nor an integer",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_go_round() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_code(reason.code()), Some(reason));
        }
        assert_eq!(Reason::from_code("other"), None);
    }
}

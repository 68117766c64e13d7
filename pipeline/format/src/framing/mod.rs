//! From bytes to records: where one begins, where it ends, and which bytes are its document.
//!
//! Bytes arrive in pieces of any size; what is cut off at the end waits for the rest. An offset is
//! absolute in the file: `offset` is the first byte of the record (for a bulk pair, of the action
//! line), `end` is one behind its last, so that a reader that begins at `end` meets the next record.
//!
//! | bytes | what comes of them |
//! |---|---|
//! | a line that is blank | nothing; for a bulk pair, only where an action could stand |
//! | a UTF-8 byte order mark at the start of the file | nothing: the first line begins behind it |
//! | a line ended by LF or CRLF | the document is the line without its end |
//! | a line over the limit | a record whose document is [`Document::TooLong`]; only its head is kept |
//! | bulk: an action line that can not be read | [`Frame::BadAction`]; the next line is tried as an action |
//! | bulk: `index`, `create` and the next line | a record, whatever that line holds |
//! | bulk: `update` and the next line, `delete` | [`Frame::Skipped`] |
//! | bulk: an action whose document is not there yet | waits |
//! | a last line without LF | waits; [`Framer::finish`] takes it if it is one whole JSON value |
//!
//! Invariant: frames come in order and do not overlap, what lies between them is blank, and where
//! the bytes were cut into pieces changes nothing. Memory is bounded by two lines and a piece.
//!
//! Not here: what a document means (`extract`), files (`source`).

mod action;
mod lines;

use serde::de::IgnoredAny;

pub use action::{Action, Operation};
use lines::{Line, Lines};

use crate::config::Framing;

/// Bytes of a line over the limit that are kept, for the dead letter.
pub const TOO_LONG_HEAD_BYTES: usize = 4 << 10;

/// Cuts the bytes of one file into frames.
#[derive(Debug)]
pub struct Framer {
    framing: Framing,
    lines: Lines,
    /// The action line that waits for its document.
    pending: Option<Pending>,
    /// Where the unread end of a finished file begins.
    unread_from: Option<u64>,
}

#[derive(Clone, Debug)]
struct Pending {
    line: Line,
    action: Action,
}

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A record.
    Record(Record<'a>),
    /// A bulk action line that can not be read: a dead letter without a key.
    BadAction {
        /// Its first byte.
        offset: u64,
        /// One behind its last, its line end included.
        end: u64,
        /// The bytes, without the line end; of a line over the limit, the head.
        raw: &'a [u8],
    },
    /// A bulk operation that adds no event.
    Skipped {
        /// Its first byte.
        offset: u64,
        /// One behind its last, its document included if it has one.
        end: u64,
        /// Which.
        operation: Operation,
    },
}

/// One record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its first byte: for a bulk pair, of the action line.
    pub offset: u64,
    /// One behind its last byte, the line end included: where the cursor goes.
    pub end: u64,
    /// The action line of a bulk pair.
    pub action: Option<Action>,
    /// The payload.
    pub document: Document<'a>,
    /// The first byte of the document.
    pub document_offset: u64,
    /// All its bytes but the last line end; of a line over the limit, the head. For dead letters.
    pub raw: &'a [u8],
}

/// The payload of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document<'a> {
    /// The line without its end, otherwise byte for byte.
    Line(&'a [u8]),
    /// A line over the limit.
    TooLong {
        /// How long it is, without its end.
        bytes: u64,
    },
}

impl Frame<'_> {
    /// Its first byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match self {
            Frame::Record(record) => record.offset,
            Frame::BadAction { offset, .. } | Frame::Skipped { offset, .. } => *offset,
        }
    }

    /// One behind its last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        match self {
            Frame::Record(record) => record.end,
            Frame::BadAction { end, .. } | Frame::Skipped { end, .. } => *end,
        }
    }
}

/// What remains of a file that will not grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish<'a> {
    /// Nothing, or blanks.
    Clean,
    /// The last line has no end, but is whole.
    Frame(Frame<'a>),
    /// Bytes that are no whole record. They are not read; somebody should be warned.
    Unread {
        /// The first of them.
        offset: u64,
        /// How many.
        bytes: u64,
        /// What is missing.
        why: Unread,
    },
}

/// Why the end of a file is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unread {
    /// The last line has no end and is not one whole JSON value.
    CutLine,
    /// The last line is a bulk action, and its document is not there.
    NoDocument,
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unread::CutLine => "the last line has no line end and is not one whole JSON value",
            Unread::NoDocument => "the last line is a bulk action without its document",
        })
    }
}

impl Framer {
    /// A framer whose first byte is at `offset` of the file, where a record begins.
    #[must_use]
    pub fn new(framing: Framing, line_bytes_max: usize, offset: u64) -> Framer {
        Framer { framing, lines: Lines::new(line_bytes_max, offset), pending: None, unread_from: None }
    }

    /// Takes the next bytes of the file. All frames must have been taken from the last ones before:
    /// what is pushed on top of unread lines stays in memory.
    pub fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// The next frame, or none until more bytes come.
    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        let framed = self.take_framed()?;
        Some(self.show(framed))
    }

    /// The next frame before its bytes are borrowed; [`Framer::show`] gives them.
    pub(crate) fn take_framed(&mut self) -> Option<Framed> {
        loop {
            let line = self.lines.next_line()?;
            if let Some(framed) = self.take_line(line) {
                return Some(framed);
            }
        }
    }

    /// Where the next frame begins at the earliest: what lies before is read, or blank. A reader may
    /// begin again here.
    #[must_use]
    pub fn position(&self) -> u64 {
        let waiting = self.pending.as_ref().map(|pending| pending.line.offset);
        self.unread_from.or(waiting).unwrap_or(self.lines.position())
    }

    /// Where the next pushed byte belongs.
    #[must_use]
    pub fn push_position(&self) -> u64 {
        self.lines.push_position()
    }

    /// What remains when the file ends here and does not grow. All frames must have been taken, and
    /// nothing is pushed any more.
    pub fn finish(&mut self) -> Finish<'_> {
        let offset = self.position();
        let rest = self.lines.take_rest();
        let why = match rest {
            None if self.pending.is_none() => return Finish::Clean,
            None => Unread::NoDocument,
            Some(line) => {
                let text = self.lines.text(&line);
                if is_blank(text) && !line.is_too_long() && self.pending.is_none() {
                    return Finish::Clean;
                }
                let whole = !line.is_too_long()
                    && std::str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
                match if whole { self.take_line(line) } else { None } {
                    Some(framed) => return Finish::Frame(self.show(framed)),
                    None if whole => Unread::NoDocument,
                    None => Unread::CutLine,
                }
            }
        };
        self.unread_from = Some(offset);
        Finish::Unread { offset, bytes: self.lines.push_position() - offset, why }
    }

    /// What a line completes: nothing when it is blank, or an action that waits for its document.
    fn take_line(&mut self, line: Line) -> Option<Framed> {
        if let Some(Pending { line: action_line, action }) = self.pending.take() {
            return Some(Framed { first: action_line, last: line, action: Some(action), kind: FramedKind::Pair });
        }
        let text = self.lines.text(&line);
        if is_blank(text) && !line.is_too_long() {
            return None;
        }
        let kind = match self.framing {
            Framing::Ndjson => FramedKind::Single,
            Framing::EsBulk => {
                let action = if line.is_too_long() { None } else { Action::parse(text) };
                match action {
                    None => FramedKind::BadAction,
                    Some(action) if action.operation.has_document() => {
                        self.lines.keep_from(&line);
                        self.pending = Some(Pending { line, action });
                        return None;
                    }
                    Some(action) => {
                        return Some(Framed {
                            first: line.clone(),
                            last: line,
                            action: Some(action),
                            kind: FramedKind::Pair,
                        });
                    }
                }
            }
        };
        Some(Framed { first: line.clone(), last: line, action: None, kind })
    }

    pub(crate) fn show(&mut self, framed: Framed) -> Frame<'_> {
        let Framed { first, last, action, kind } = framed;
        let (offset, end) = (first.offset, last.end);
        self.lines.release();
        let raw = self.lines.span(&first, &last);
        let record = |action, document| {
            Frame::Record(Record { offset, end, action, document, document_offset: last.offset, raw })
        };
        let document = if last.is_too_long() {
            Document::TooLong { bytes: last.bytes }
        } else {
            Document::Line(self.lines.text(&last))
        };
        match (kind, action) {
            (FramedKind::BadAction, _) => Frame::BadAction { offset, end, raw },
            (FramedKind::Single, action) => record(action, document),
            (FramedKind::Pair, None) => unreachable!("a pair has an action"),
            (FramedKind::Pair, Some(action)) => match action.operation {
                Operation::Index | Operation::Create => record(Some(action), document),
                operation @ (Operation::Update | Operation::Delete) => Frame::Skipped { offset, end, operation },
            },
        }
    }
}

/// A frame before its bytes are borrowed.
pub(crate) struct Framed {
    first: Line,
    last: Line,
    action: Option<Action>,
    kind: FramedKind,
}

enum FramedKind {
    Single,
    Pair,
    BadAction,
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}

#[cfg(test)]
mod tests;

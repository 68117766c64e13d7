//! Lines of a file that arrives in pieces, with absolute offsets and bounded memory.
//!
//! Invariant: the byte at file offset `o` is `buffer[o - base]`. The one exception is a line over
//! the limit: only its head is kept, and what follows it waits in `behind` until the line is done
//! with.
//!
//! A UTF-8 byte order mark at offset 0 belongs to no line: the first line begins behind it.

use std::io::BufRead as _;

use super::TOO_LONG_HEAD_BYTES;

/// What some editors and exporters put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug)]
pub(super) struct Lines {
    line_bytes_max: usize,
    buffer: Vec<u8>,
    /// File offset of the first byte in `buffer`.
    base: u64,
    /// File offset at which the next line begins.
    next: u64,
    /// File offset behind the last byte that was pushed.
    pushed_end: u64,
    /// Bytes of the next line that are known to hold no LF.
    searched: usize,
    /// File offset from which on bytes are still needed, before `next`.
    kept_from: Option<u64>,
    long: Option<Long>,
}

/// A line over the limit.
#[derive(Debug)]
struct Long {
    offset: u64,
    /// How long it is as far as it was seen, without its LF.
    bytes: u64,
    /// What follows it, once its LF was seen.
    behind: Option<Vec<u8>>,
    /// Given out: at the next call the buffer goes on with `behind`.
    taken: bool,
}

/// A line by its place; the text is asked of [`Lines`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// File offset of its first byte.
    pub offset: u64,
    /// File offset behind its LF, or behind its last byte if there is none.
    pub end: u64,
    /// How long it is, without its LF.
    pub bytes: u64,
    /// Bytes of it that are kept, without CR and LF.
    text_bytes: usize,
    kind: LineKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    Whole,
    TooLong,
}

impl Line {
    pub fn is_too_long(&self) -> bool {
        self.kind == LineKind::TooLong
    }
}

impl Lines {
    pub fn new(line_bytes_max: usize, offset: u64) -> Lines {
        Lines {
            line_bytes_max,
            buffer: Vec::new(),
            base: offset,
            next: offset,
            pushed_end: offset,
            searched: 0,
            kept_from: None,
            long: None,
        }
    }

    pub fn position(&self) -> u64 {
        self.next
    }

    pub fn push_position(&self) -> u64 {
        self.pushed_end
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.settle();
        self.pushed_end += bytes.len() as u64;
        match &mut self.long {
            None => {
                let needed_from = self.index(self.kept_from.unwrap_or(self.next));
                self.buffer.drain(..needed_from);
                self.base += needed_from as u64;
                self.buffer.extend_from_slice(bytes);
            }
            Some(Long { behind: Some(behind), .. }) => behind.extend_from_slice(bytes),
            Some(long) => match find_line_feed(bytes) {
                None => long.bytes += bytes.len() as u64,
                Some(at) => {
                    long.bytes += at as u64;
                    long.behind = Some(bytes[at + 1..].to_vec());
                }
            },
        }
    }

    pub fn next_line(&mut self) -> Option<Line> {
        self.settle();
        if self.long.is_some() {
            return self.take_long();
        }
        let start = self.index(self.next);
        let unsearched = &self.buffer[start + self.searched..];
        match find_line_feed(unsearched) {
            Some(at) => {
                let bytes = self.searched + at;
                let line = self.line(start, bytes, self.next + bytes as u64 + 1);
                self.next = line.end;
                self.searched = 0;
                Some(line)
            }
            None => {
                self.searched += unsearched.len();
                if self.line_bytes_max < self.searched {
                    self.long =
                        Some(Long { offset: self.next, bytes: self.searched as u64, behind: None, taken: false });
                    self.buffer.truncate(start + self.head_bytes());
                    self.searched = 0;
                }
                None
            }
        }
    }

    /// The last line, which has no LF; none when the file ends with one.
    pub fn take_rest(&mut self) -> Option<Line> {
        self.settle();
        if let Some(long) = &mut self.long {
            long.behind.get_or_insert_default();
            let mut line = self.take_long()?;
            line.end = self.pushed_end;
            self.next = line.end;
            return Some(line);
        }
        let start = self.index(self.next);
        let bytes = self.buffer.len() - start;
        if bytes == 0 {
            return None;
        }
        let line = self.line(start, bytes, self.pushed_end);
        self.next = line.end;
        self.searched = 0;
        Some(line)
    }

    /// Keeps this line's bytes, and what follows it, until [`Lines::release`].
    pub fn keep_from(&mut self, line: &Line) {
        self.kept_from = Some(line.offset);
    }

    /// What was kept is not needed beyond the next call.
    pub fn release(&mut self) {
        self.kept_from = None;
    }

    /// The line without its end; of a line over the limit, the head.
    pub fn text(&self, line: &Line) -> &[u8] {
        self.span(line, line)
    }

    /// From the first byte of one line to the end of another line's text.
    pub fn span(&self, first: &Line, last: &Line) -> &[u8] {
        &self.buffer[self.index(first.offset)..self.index(last.offset) + last.text_bytes]
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub fn memory_bytes(&self) -> usize {
        self.buffer.capacity() + self.long.iter().flat_map(|long| &long.behind).map(Vec::capacity).sum::<usize>()
    }

    fn index(&self, offset: u64) -> usize {
        usize::try_from(offset - self.base).expect("a distance within the buffer")
    }

    fn head_bytes(&self) -> usize {
        TOO_LONG_HEAD_BYTES.min(self.line_bytes_max)
    }

    /// A line that is in the buffer, `bytes` long without its LF.
    fn line(&self, start: usize, bytes: usize, end: u64) -> Line {
        let offset = self.base + start as u64;
        if self.line_bytes_max < bytes {
            return Line { offset, end, bytes: bytes as u64, text_bytes: self.head_bytes(), kind: LineKind::TooLong };
        }
        let line = &self.buffer[start..start + bytes];
        let marked = if offset == 0 { line.strip_prefix(BYTE_ORDER_MARK) } else { None };
        let text = marked.unwrap_or(line);
        Line {
            offset: offset + (bytes - text.len()) as u64,
            end,
            bytes: text.len() as u64,
            text_bytes: text.strip_suffix(b"\r").unwrap_or(text).len(),
            kind: LineKind::Whole,
        }
    }

    /// The line over the limit, if its LF was seen.
    fn take_long(&mut self) -> Option<Line> {
        let text_bytes = self.head_bytes();
        let long = self.long.as_mut()?;
        long.behind.as_ref()?;
        long.taken = true;
        self.next = long.offset + long.bytes + 1;
        Some(Line { offset: long.offset, end: self.next, bytes: long.bytes, text_bytes, kind: LineKind::TooLong })
    }

    /// Goes on behind a line over the limit that was given out.
    fn settle(&mut self) {
        if let Some(Long { taken: true, .. }) = self.long {
            let long = self.long.take().expect("matched just now");
            self.buffer = long.behind.unwrap_or_default();
            self.base = self.next;
            self.searched = 0;
            self.kept_from = None;
        }
    }
}

/// Where the first LF is. `skip_until` is the standard library's way to its fast byte search.
fn find_line_feed(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    let skipped = rest.skip_until(b'\n').expect("reading from a slice does not fail");
    let last = skipped.checked_sub(1)?;
    (bytes[last] == b'\n').then_some(last)
}

//! What happened: all of it as a fingerprint, the last of it as lines.
//!
//! Invariant: the fingerprint covers every event, every effect and every act of trouble with its
//! time, whether or not lines are kept. Two runs of one seed that differ anywhere differ in it.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};

use xxhash_rust::xxh3::Xxh3Default;

use crate::time::Time;

pub(crate) struct Trace {
    hasher: Xxh3Default,
    lines: VecDeque<String>,
    lines_max: usize,
}

impl Trace {
    /// Keeps the last `lines_max` lines.
    pub fn new(lines_max: usize) -> Trace {
        Trace { hasher: Xxh3Default::new(), lines: VecDeque::new(), lines_max }
    }

    /// Notes something; `line` is asked only when lines are kept.
    pub fn note<L: fmt::Display>(&mut self, time: Time, what: &impl Hash, line: impl FnOnce() -> L) {
        let mut hasher = Streamed(&mut self.hasher);
        time.hash(&mut hasher);
        what.hash(&mut hasher);
        if self.lines_max == 0 {
            return;
        }
        if self.lines.len() == self.lines_max {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{time} {}", line()));
    }

    pub fn fingerprint(&self) -> u64 {
        self.hasher.digest()
    }

    pub fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines).into()
    }
}

/// Numbers are hashed as little-endian bytes: the same on every machine.
struct Streamed<'a>(&'a mut Xxh3Default);

impl Hasher for Streamed<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn write_u32(&mut self, number: u32) {
        self.0.update(&number.to_le_bytes());
    }

    fn write_u64(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(u64::try_from(number).expect("a usize fits 64 bits"));
    }

    fn finish(&self) -> u64 {
        self.0.digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(notes: &[(u64, &str)]) -> u64 {
        let mut trace = Trace::new(1);
        for (micros, text) in notes {
            trace.note(Time(std::time::Duration::from_micros(*micros)), text, || *text);
        }
        assert_eq!(trace.take_lines().len(), notes.len().min(1));
        trace.fingerprint()
    }

    #[test]
    fn time_order_and_content_count() {
        let one = fingerprint(&[(1, "a"), (2, "b")]);
        assert_eq!(one, fingerprint(&[(1, "a"), (2, "b")]));
        assert_ne!(one, fingerprint(&[(1, "a"), (3, "b")]));
        assert_ne!(one, fingerprint(&[(1, "b"), (2, "a")]));
        assert_ne!(one, fingerprint(&[(1, "a")]));
    }
}

//! The starts of a disk that were, one line each: what a copy can not make up.
//!
//! Each start raises `boot` and moves the end of the journal on, so a copy that is started often
//! enough has higher numbers than the original ever had. But it has not lived the original's life: a
//! boot that the peers have heard stands in its history with another nonce, or not at all, or is
//! followed by a start that found less in the journal than was said to be durable.
//!
//! ```text
//! photon registry-history 1
//! 1 0a1b2c3d4e5f6071 1:0          boot, nonce of its process, where it found the journal's end
//! 2 8899aabbccddeeff 2:4096
//! crc 5d41402a
//! ```
//!
//! Invariant: the line of a start is durable before the node says anything to a peer. A start that
//! ended earlier may have none.

use std::path::Path;

use photon_disk::durable;

use super::DataDirError;
use super::identity::{Facts, Kind, encode};
use crate::journal::JournalPosition;

/// How many starts are kept, and stated to peers.
pub const PAST_LIVES_MAX: usize = 1_000;

pub(super) const HISTORY: Kind = Kind { name: "registry-history", version: 1 };
/// A line has at most 20 + 16 + 20 + 20 digits.
const HISTORY_BYTES_MAX: u64 = 96 * (PAST_LIVES_MAX as u64 + 2);

/// One start of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastLife {
    /// The how many-th.
    pub boot: u64,
    /// Drawn by its process.
    pub nonce: u64,
    /// Where it found the end of the journal.
    pub recovered_end: JournalPosition,
}

impl PastLife {
    /// May this start follow that one, on one disk?
    #[must_use]
    pub fn can_follow(&self, before: &PastLife) -> bool {
        before.boot < self.boot && before.recovered_end <= self.recovered_end
    }
}

/// Are these starts, in this order, one story?
#[must_use]
pub fn is_one_story<'a>(lives: impl IntoIterator<Item = &'a PastLife>) -> bool {
    let mut lives = lives.into_iter();
    let Some(mut before) = lives.next() else { return true };
    lives.all(|life| life.can_follow(std::mem::replace(&mut before, life)))
}

/// Reads the history, the oldest first.
pub(super) fn read(file: &Path) -> Result<Vec<PastLife>, DataDirError> {
    let damage = |reason: &str| DataDirError::Damage { path: file.to_owned(), reason: reason.to_owned() };
    let facts = Facts::read_up_to(file, HISTORY, HISTORY_BYTES_MAX)?.ok_or_else(|| damage("it is missing"))?;
    let lives = facts.iter().map(|(boot, rest)| parse(boot, rest));
    let mut lives: Vec<PastLife> = lives.collect::<Option<_>>().ok_or_else(|| damage("a line is no start"))?;
    lives.sort_unstable_by_key(|life| life.boot);
    if PAST_LIVES_MAX < lives.len() || !is_one_story(&lives) {
        return Err(damage("its lines are not the history of one disk"));
    }
    Ok(lives)
}

fn parse(boot: &str, rest: &str) -> Option<PastLife> {
    let (nonce, end) = rest.split_once(' ')?;
    let (segment, byte) = end.split_once(':')?;
    let recovered_end = JournalPosition { segment: segment.parse().ok()?, byte: byte.parse().ok()? };
    Some(PastLife { boot: boot.parse().ok()?, nonce: u64::from_str_radix(nonce, 16).ok()?, recovered_end })
}

pub(super) fn text_of(lives: &[PastLife]) -> String {
    let boots: Vec<String> = lives.iter().map(|life| life.boot.to_string()).collect();
    let rest = lives.iter().map(|life| format!("{:016x} {}", life.nonce, life.recovered_end));
    let lines: Vec<(&str, String)> = boots.iter().map(String::as_str).zip(rest).collect();
    encode(HISTORY, &lines)
}

/// Makes the history durable; the oldest lines go when there are too many.
pub(super) fn write(file: &Path, lives: &[PastLife]) -> Result<(), DataDirError> {
    let kept = &lives[lives.len().saturating_sub(PAST_LIVES_MAX)..];
    Ok(durable::write_replace(file, text_of(kept).as_bytes())?)
}

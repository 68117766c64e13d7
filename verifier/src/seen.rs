//! How far earlier runs had seen each source: the verifier's only durable memory for settling.
//!
//! A record is settled by age when a run longer than `settle_after` ago found it complete. So one
//! pair (time, end) for each run and source says it for every record below that end.
//!
//! Age says nothing against a dispatcher that is on its way: one whose cursor has moved since then. So
//! the file also says since when each cursor stands where it does.
//!
//! Invariant: losing this file, or any pair of it, only delays a judgement. No delete rests on it,
//! so wall clocks and two verifiers at once do no harm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use photon_disk::{DiskError, durable};
use serde::{Deserialize, Serialize};

/// The format that this build writes and reads.
const SEEN_FORMAT: u32 = 1;

/// The most pairs kept for one source. Beyond it the second oldest goes: what it said is then said
/// by a younger one, later.
const PAIRS_MAX: usize = 64;

/// The most bytes of the file: thousands of sources with all their pairs.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// What earlier runs had seen.
#[derive(Debug)]
pub struct Seen {
    path: PathBuf,
    sources: BTreeMap<String, Vec<Pair>>,
    /// By datacenter and source.
    cursors: BTreeMap<String, BTreeMap<String, Stand>>,
}

/// A cursor stands here, and was seen here first at this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stand {
    at_seconds: u64,
    offset: u64,
}

/// At this time, everything below `end` was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pair {
    at_seconds: u64,
    end: u64,
}

#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeenFile {
    format: u32,
    sources: BTreeMap<String, Vec<Pair>>,
    /// Files of older builds have none.
    #[serde(default)]
    cursors: BTreeMap<String, BTreeMap<String, Stand>>,
}

impl Seen {
    /// Reads the file; a missing one says that nothing was seen.
    ///
    /// # Errors
    /// [`DiskError`] when it can not be read, or is no such file.
    pub fn load(path: &Path) -> Result<Seen, DiskError> {
        let refused = |found: String| DiskError::Format {
            path: path.to_owned(),
            found,
            expected: format!("what a verifier of format {SEEN_FORMAT} has seen; remove the file to begin anew"),
        };
        let empty = Seen { path: path.to_owned(), sources: BTreeMap::new(), cursors: BTreeMap::new() };
        let bytes = match std::fs::metadata(path) {
            Ok(metadata) if FILE_BYTES_MAX < metadata.len() => {
                return Err(DiskError::TooLarge {
                    path: path.to_owned(),
                    bytes: metadata.len(),
                    bytes_max: FILE_BYTES_MAX,
                });
            }
            Ok(_) => std::fs::read(path).map_err(DiskError::io("reading", path))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(empty),
            Err(source) => return Err(DiskError::io("stat of", path)(source)),
        };
        let format: FormatOnly = serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))?;
        if format.format != SEEN_FORMAT {
            return Err(refused(format!("of format {}", format.format)));
        }
        let file: SeenFile = serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))?;
        Ok(Seen { sources: file.sources, cursors: file.cursors, ..empty })
    }

    /// Every record of the source that begins below this was seen `settle_after` ago or earlier.
    #[must_use]
    pub fn settled_end(&self, source: &str, now_seconds: u64, settle_after: Duration) -> u64 {
        let pairs = self.sources.get(source).map_or(&[][..], Vec::as_slice);
        let is_old = |pair: &&Pair| pair.at_seconds.saturating_add(settle_after.as_secs()) <= now_seconds;
        pairs.iter().filter(is_old).map(|pair| pair.end).max().unwrap_or(0)
    }

    /// Whether a datacenter's cursor was seen at this offset `settle_after` ago or earlier, and ever since.
    #[must_use]
    pub fn stands(
        &self,
        datacenter: &str,
        source: &str,
        offset: u64,
        now_seconds: u64,
        settle_after: Duration,
    ) -> bool {
        let stand = self.cursors.get(datacenter).and_then(|cursors| cursors.get(source));
        stand.is_some_and(|stand| {
            stand.offset == offset && stand.at_seconds.saturating_add(settle_after.as_secs()) <= now_seconds
        })
    }

    /// This run sees a datacenter's cursor at this offset.
    pub fn note_cursor(&mut self, datacenter: &str, source: &str, offset: u64, now_seconds: u64) {
        let cursors = self.cursors.entry(datacenter.to_owned()).or_default();
        let stand = cursors.entry(source.to_owned()).or_insert(Stand { at_seconds: now_seconds, offset });
        // A clock that was ahead is not believed.
        if stand.offset != offset || now_seconds < stand.at_seconds {
            *stand = Stand { at_seconds: now_seconds, offset };
        }
    }

    /// This run sees the source complete up to `end`.
    pub fn note(&mut self, source: &str, now_seconds: u64, end: u64, settle_after: Duration) {
        let settled = self.settled_end(source, now_seconds, settle_after);
        let pairs = self.sources.entry(source.to_owned()).or_default();
        if pairs.iter().any(|pair| end < pair.end) {
            pairs.clear(); // It has shrunk: another file under the same name.
        }
        let first_young = pairs.iter().position(|pair| settled < pair.end).unwrap_or(pairs.len());
        // Of those that settle already, one says it all. A clock that was ahead is not believed.
        pairs.drain(..first_young.saturating_sub(1));
        pairs.retain(|pair| pair.at_seconds <= now_seconds);
        if pairs.last().is_none_or(|pair| pair.end < end) {
            pairs.push(Pair { at_seconds: now_seconds, end });
        }
        if PAIRS_MAX < pairs.len() {
            pairs.remove(1);
        }
    }

    /// Makes it durable.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn save(&self) -> Result<(), DiskError> {
        let file = SeenFile { format: SEEN_FORMAT, sources: self.sources.clone(), cursors: self.cursors.clone() };
        let bytes = serde_json::to_vec(&file).expect("names and numbers are JSON");
        durable::create_dir_all_durable(durable::parent_of(&self.path))?;
        durable::write_replace(&self.path, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn what_was_seen_an_hour_ago_is_settled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("verifier/seen.json");
        let mut seen = Seen::load(&path).unwrap();
        assert_eq!(seen.settled_end("clicks/a", 10_000, HOUR), 0);
        seen.note("clicks/a", 10_000, 500, HOUR);
        seen.note("clicks/a", 11_000, 900, HOUR);
        seen.save().unwrap();
        let seen = Seen::load(&path).unwrap();
        assert_eq!(seen.settled_end("clicks/a", 13_599, HOUR), 0);
        assert_eq!(seen.settled_end("clicks/a", 13_600, HOUR), 500);
        assert_eq!(seen.settled_end("clicks/a", 14_600, HOUR), 900);
        assert_eq!(seen.settled_end("clicks/b", 14_600, HOUR), 0);
    }

    #[test]
    fn pairs_are_bounded_and_the_settled_ones_fold_into_one() {
        let mut seen = Seen { path: PathBuf::new(), sources: BTreeMap::new(), cursors: BTreeMap::new() };
        for run in 0..1_000 {
            seen.note("a", run, run * 10, HOUR);
        }
        assert_eq!(seen.sources["a"].len(), PAIRS_MAX);
        assert_eq!(seen.settled_end("a", HOUR.as_secs() + 999, HOUR), 9_990);
        seen.note("a", 10_000, 20_000, HOUR);
        assert_eq!(seen.sources["a"].len(), 2);
        assert_eq!(seen.settled_end("a", 10_000, HOUR), 9_990);
    }

    #[test]
    fn a_cursor_stands_only_while_it_does_not_move() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("verifier/seen.json");
        let mut seen = Seen::load(&path).unwrap();
        assert!(!seen.stands("east", "clicks/a", 0, 10_000, Duration::ZERO), "never seen");
        seen.note_cursor("east", "clicks/a", 70, 10_000);
        seen.note_cursor("east", "clicks/a", 70, 12_000);
        seen.save().unwrap();
        let mut seen = Seen::load(&path).unwrap();
        assert!(!seen.stands("east", "clicks/a", 70, 13_599, HOUR));
        assert!(seen.stands("east", "clicks/a", 70, 13_600, HOUR));
        assert!(!seen.stands("east", "clicks/a", 71, 13_600, HOUR));
        assert!(!seen.stands("west", "clicks/a", 70, 13_600, HOUR));
        seen.note_cursor("east", "clicks/a", 71, 13_600);
        assert!(!seen.stands("east", "clicks/a", 71, 17_199, HOUR));
        assert!(seen.stands("east", "clicks/a", 71, 17_200, HOUR));
    }

    #[test]
    fn a_source_that_shrank_begins_anew() {
        let mut seen = Seen { path: PathBuf::new(), sources: BTreeMap::new(), cursors: BTreeMap::new() };
        seen.note("a", 0, 500, HOUR);
        seen.note("a", 5_000, 100, HOUR);
        assert_eq!(seen.settled_end("a", 6_000, HOUR), 0);
    }

    #[test]
    fn a_file_of_another_format_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seen.json");
        for (text, want) in [("{\"format\":9,\"x\":1}", "format 9"), ("{", "EOF"), ("{\"format\":1}", "sources")] {
            std::fs::write(&path, text).unwrap();
            let message = Seen::load(&path).unwrap_err().to_string();
            assert!(message.contains(want) && message.contains("seen.json"), "{message}");
        }
    }
}

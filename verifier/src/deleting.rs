//! Which claims a verifier is about to delete: written down before, removed by a later run that has
//! seen what became of the clicks.
//!
//! Without it one history loses a click: a datacenter recorded it as unjoinable, another one found
//! its query, claimed it and died without a line; the verifier deletes the claim and dies too. The
//! next run finds nobody claiming it and an end recorded, and would believe the end. The same when
//! the retry store that took the click back is lost with its disk. So a click stands here until it
//! is claimed or joined again, or was brought back a second time.
//!
//! Invariant: no claim is deleted that does not stand in one of these files, synced. A file that
//! stays too long only makes a click be re-injected once more, which is harmless.

use std::path::{Path, PathBuf};

use photon_disk::{DiskError, durable};
use photon_types::EventKey;
use serde::{Deserialize, Serialize};

/// The format that this build writes and reads.
const DELETING_FORMAT: u32 = 1;

const PREFIX: &str = "deleting-";

/// How many verifiers may be at it at once, dead ones included.
const FILES_MAX: u32 = 10_000;

/// One file: claims that somebody was about to delete.
#[derive(Debug)]
pub struct Deleting {
    path: PathBuf,
    /// Their keys.
    pub keys: Vec<EventKey>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeletingFile {
    format: u32,
    /// Timestamp, and id in hex digits.
    keys: Vec<(u64, String)>,
}

impl Deleting {
    /// Those that other runs left. A directory that is not there has none.
    ///
    /// # Errors
    /// [`DiskError`] when one of them can not be read: a click could be forgotten.
    pub fn load_all(directory: &Path) -> Result<Vec<Deleting>, DiskError> {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(DiskError::io("listing", directory)(source)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(DiskError::io("listing", directory))?.path();
            let is_one = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
            if is_one {
                files.extend(Deleting::load(path)?);
            }
        }
        Ok(files)
    }

    fn load(path: PathBuf) -> Result<Option<Deleting>, DiskError> {
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            // Another verifier has come to its end with it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(DiskError::io("reading", &path)(source)),
        };
        let refused = |found: String| DiskError::Format {
            path: path.clone(),
            found,
            expected: format!("a list of claims of format {DELETING_FORMAT}"),
        };
        let file: DeletingFile = serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))?;
        if file.format != DELETING_FORMAT {
            return Err(refused(format!("of format {}", file.format)));
        }
        let key = |(micros, id): &(u64, String)| EventKey::new(*micros, &from_hex(id)?).ok();
        let keys: Option<Vec<EventKey>> = file.keys.iter().map(key).collect();
        let keys = keys.ok_or_else(|| refused("a list with something that is no key".to_owned()))?;
        Ok(Some(Deleting { path, keys }))
    }

    /// Writes down what is about to be deleted.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn begin(directory: &Path, keys: Vec<EventKey>) -> Result<Deleting, DiskError> {
        let bytes = encode(&keys);
        durable::create_dir_all_durable(directory)?;
        for number in 0..FILES_MAX {
            let path = directory.join(format!("{PREFIX}{}-{number}.json", std::process::id()));
            match durable::write_new(&path, &bytes) {
                Ok(()) => return Ok(Deleting { path, keys }),
                Err(DiskError::Exists { .. }) => (),
                Err(error) => return Err(error),
            }
        }
        Err(DiskError::Exists { path: directory.join(PREFIX) })
    }

    /// Only these clicks need to be remembered any longer; without one the file goes.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn keep(mut self, is_needed: impl Fn(&EventKey) -> bool) -> Result<(), DiskError> {
        let before = self.keys.len();
        self.keys.retain(is_needed);
        match self.keys.len() {
            0 => self.finish(),
            kept if kept == before => Ok(()),
            _kept => durable::write_replace(&self.path, &encode(&self.keys)),
        }
    }

    /// All its clicks are cared for. Its removal need not be durable.
    ///
    /// # Errors
    /// [`DiskError`].
    fn finish(self) -> Result<(), DiskError> {
        match std::fs::remove_file(&self.path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(DiskError::io("removing", &self.path)(source)),
        }
    }
}

fn encode(keys: &[EventKey]) -> Vec<u8> {
    let listed = keys.iter().map(|key| (key.timestamp.micros(), to_hex(key.id.as_bytes()))).collect();
    let file = DeletingFile { format: DELETING_FORMAT, keys: listed };
    serde_json::to_vec(&file).expect("numbers and texts are JSON")
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16)?.try_into().ok()).collect();
    let digits = digits?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(ids: &[&[u8]]) -> Vec<EventKey> {
        ids.iter().map(|id| EventKey::new(77, id).unwrap()).collect()
    }

    #[test]
    fn what_was_begun_is_found_until_it_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("verifier");
        assert!(Deleting::load_all(&path).unwrap().is_empty());
        let one = Deleting::begin(&path, keys(&[b"a", b"\xff\x00"])).unwrap();
        let two = Deleting::begin(&path, keys(&[b"c"])).unwrap();
        let mut found = Deleting::load_all(&path).unwrap();
        found.sort_by(|one, other| one.path.cmp(&other.path));
        assert_eq!(
            found.iter().map(|file| file.keys.clone()).collect::<Vec<_>>(),
            [one.keys.clone(), two.keys.clone()]
        );
        one.finish().unwrap();
        assert_eq!(Deleting::load_all(&path).unwrap().len(), 1);
        // The other verifier that finished it first does no harm.
        found.into_iter().try_for_each(Deleting::finish).unwrap();
        two.finish().unwrap();
        assert!(Deleting::load_all(&path).unwrap().is_empty());
    }

    #[test]
    fn what_is_not_needed_any_longer_leaves_the_list_and_an_empty_one_goes() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = [b"a", b"b"].map(|id| EventKey::new(77, id).unwrap());
        Deleting::begin(dir.path(), vec![a.clone(), b.clone()]).unwrap();
        let left = || Deleting::load_all(dir.path()).unwrap();
        left().into_iter().try_for_each(|file| file.keep(|_| true)).unwrap();
        assert_eq!(left()[0].keys, [a, b.clone()]);
        left().into_iter().try_for_each(|file| file.keep(|key| *key == b)).unwrap();
        assert_eq!(left()[0].keys, [b]);
        left().into_iter().try_for_each(|file| file.keep(|_| false)).unwrap();
        assert!(left().is_empty());
    }

    #[test]
    fn a_file_that_can_not_be_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deleting-1-0.json");
        for text in [
            "",
            "{\"format\":2,\"keys\":[]}",
            "{\"format\":1,\"keys\":[[1,\"0\"]]}",
            "{\"format\":1,\"keys\":[[1,\"\"]]}",
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(Deleting::load_all(dir.path()), Err(DiskError::Format { .. })), "{text}");
        }
    }
}

//! Names in an output: `live/<incarnation>/` and `sealed/<incarnation>/`, and what lies in them.
//!
//! Invariant: an incarnation lies in exactly one place. In both, one of them is a copy, and
//! neither is evidence. Names that begin with a dot are never evidence of anything.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use photon_disk::durable::LOCK_NAME as LOCK;
use photon_disk::lock::LockFile;
use photon_disk::{DiskError, durable};
use photon_types::Incarnation;

use super::error::OutputError;
use super::files::Files;
use super::manifest::StoredManifest;

/// Segment numbers have ten digits in names.
pub(crate) const SEGMENT_NUMBER_END: u64 = 10_000_000_000;

pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const SEALED: &str = "SEALED";
/// Written by a later version that removes old segments; nothing here can judge such a directory.
pub(crate) const PRUNED: &str = "PRUNED";
/// How the name of a directory ends that is being made.
pub(crate) const HIDDEN_SUFFIX: &str = ".new";
/// A file on its way to its name.
pub(crate) const TEMPORARY_FILE: &str = ".temporary-";

/// Where an incarnation's directory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Not fenced.
    Live,
    /// Fenced.
    Sealed,
    /// Seen in both places, as by a restored copy: held.
    Both,
}

/// One incarnation's directory in an output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IncarnationDirectory {
    /// The joiner's life.
    pub incarnation: Incarnation,
    /// Where it lies.
    pub place: Place,
    /// The output it lies in.
    pub output_root: PathBuf,
}

/// Whether the joiner of a directory lives, as far as its lock tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// Nobody holds it: the joiner is dead.
    Free,
    /// Its joiner, or a verifier that repairs, holds it.
    Busy,
    /// There is no lock file, or it is not the joiner's: nothing is known. A copy has its own.
    Missing,
}

impl IncarnationDirectory {
    /// The directory.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self.place {
            Place::Live | Place::Both => live_path(&self.output_root, self.incarnation),
            Place::Sealed => sealed_path(&self.output_root, self.incarnation),
        }
    }

    /// Looks at the lock without keeping it.
    ///
    /// # Errors
    /// [`OutputError::Disk`] when it can not be opened.
    pub fn lock_state(&self) -> Result<LockState, OutputError> {
        let path = self.path();
        // Held until it is known whose lock it is.
        let looked = LockFile::try_shared(&path.join(LOCK));
        let is_original = match StoredManifest::read(&path, self.incarnation)? {
            Ok(stored) => stored.copy_fault(&path)?.is_none(),
            Err(_) => false,
        };
        if !is_original {
            return Ok(LockState::Missing);
        }
        match looked {
            Ok(_looked) => Ok(LockState::Free),
            Err(DiskError::Busy { .. }) => Ok(LockState::Busy),
            Err(error) if error.is_not_found() => Ok(LockState::Missing),
            Err(error) => Err(error.into()),
        }
    }
}

/// All incarnations of an output, each once, in the order of their names. An output that is not
/// there has none.
///
/// # Errors
/// [`OutputError::Disk`] when a directory can not be read.
pub fn list_incarnations(output_root: &Path) -> Result<Vec<IncarnationDirectory>, OutputError> {
    let mut places = BTreeMap::new();
    // In this order: what moves from live to sealed meanwhile is seen twice, never not at all.
    for incarnation in names(&output_root.join("live"))? {
        places.insert(incarnation, Place::Live);
    }
    for incarnation in names(&output_root.join("sealed"))? {
        places.entry(incarnation).and_modify(|place| *place = Place::Both).or_insert(Place::Sealed);
    }
    let directory = |(incarnation, place)| IncarnationDirectory { incarnation, place, output_root: output_root.into() };
    Ok(places.into_iter().map(directory).collect())
}

fn names(directory: &Path) -> Result<Vec<Incarnation>, OutputError> {
    let names = file_names(directory)?.unwrap_or_default();
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// The names in a directory that are UTF-8; all of ours are. `None` if there is no directory.
pub(crate) fn file_names(directory: &Path) -> Result<Option<Vec<String>>, OutputError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(OutputError::io("listing", directory)(source)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(OutputError::io("listing", directory))?;
        names.extend(entry.file_name().into_string().ok());
    }
    Ok(Some(names))
}

pub(crate) fn live_path(output_root: &Path, incarnation: Incarnation) -> PathBuf {
    output_root.join("live").join(incarnation.to_string())
}

pub(crate) fn sealed_path(output_root: &Path, incarnation: Incarnation) -> PathBuf {
    output_root.join("sealed").join(incarnation.to_string())
}

pub(crate) fn open_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.open"))
}

pub(crate) fn finished_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.jsonl"))
}

pub(crate) fn index_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.index"))
}

/// Which files of a segment are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentNames {
    pub open: bool,
    pub finished: bool,
    pub index: bool,
}

/// The segments of a directory by number.
pub(crate) fn segments(names: &[String]) -> BTreeMap<u64, SegmentNames> {
    let mut segments = BTreeMap::<u64, SegmentNames>::new();
    for name in names {
        let Some((number, kind)) = name.split_once('.') else { continue };
        if number.len() != 10 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let number = number.parse().expect("ten digits fit 64 bits");
        match kind {
            "open" => segments.entry(number).or_default().open = true,
            "jsonl" => segments.entry(number).or_default().finished = true,
            "index" => segments.entry(number).or_default().index = true,
            _ => (),
        }
    }
    segments
}

/// What tells a file or directory from every other one that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub fn of(metadata: &fs::Metadata) -> Identity {
        Identity { device: metadata.dev(), inode: metadata.ino() }
    }

    /// What has this name now, if anything.
    pub fn at(path: &Path) -> Result<Option<Identity>, OutputError> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(Identity::of(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(OutputError::io("stat of", path)(source)),
        }
    }
}

/// A name that no other process uses.
pub(crate) fn temporary_path(directory: &Path) -> Result<PathBuf, OutputError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| OutputError::Random { why: error.to_string() })?;
    Ok(directory.join(format!("{TEMPORARY_FILE}{:016x}", u64::from_be_bytes(random))))
}

/// Makes a directory, if it is not there, and its name durable in any case: who made it may have died
/// before that.
pub(crate) fn ensure_directory(files: &Files, path: &Path) -> Result<(), OutputError> {
    match files.create_directory(path) {
        Ok(()) => (),
        Err(error) if error.is(io::ErrorKind::AlreadyExists) => (),
        Err(error) => return Err(error),
    }
    files.sync_directory(durable::parent_of(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_segments_are_segments() {
        let names = ["0000000001.jsonl", "0000000001.index", "0000000002.open", "0000000002.open", "lock", "SEALED"];
        let odd = ["1.open", "00000000003.open", "0000000004.jsonl.bak", ".temporary-0", "+000000005.open", "6.index"];
        let all: Vec<String> = names.iter().chain(&odd).map(|&name| name.to_owned()).collect();
        let want = [
            (1, SegmentNames { open: false, finished: true, index: true }),
            (2, SegmentNames { open: true, finished: false, index: false }),
        ];
        assert_eq!(segments(&all), BTreeMap::from(want));
    }

    #[test]
    fn an_output_that_is_not_there_has_no_incarnations() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(list_incarnations(&root.path().join("nothing")).unwrap(), Vec::new());
    }
}

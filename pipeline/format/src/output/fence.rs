//! The fence: stops a joiner's output for ever and says what of it exists.
//!
//! Invariant: when [`fence`] answers [`FenceOutcome::Sealed`], the seal record and the three
//! directories are durable, and every listed segment is finished. Only then may anybody conclude
//! from a missing line that the click was never joined.
//!
//! A copy of a directory is never fenced: its joiner writes to the original, whose lock is another
//! file. Nothing in a copy is changed; a whole copy of a sealed directory is as good as sealed.
//!
//! The rename stops a writer that lives, since all it does is by path; what landed late is decided
//! by the seal record. Any crash here leaves a directory that the next run takes on from: it reads
//! the indexes again if there is no record yet, and copies as it says if there is.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use photon_disk::DiskError;
use photon_disk::durable::LOCK_NAME;
use photon_disk::lock::LockFile;
use photon_types::Incarnation;

use super::entry::IndexEntry;
use super::error::OutputError;
use super::evidence::{
    DataCheck, Evidence, Held, listed_data_fault, listed_entries, open_if_there, read_sealed_copy, read_unsealed,
};
use super::files::Files;
use super::layout::{
    Identity, TEMPORARY_FILE, ensure_directory, file_names, finished_path, live_path, open_path, sealed_path,
    temporary_path,
};
use super::manifest::StoredManifest;
use super::seal::{Put, SealRecord, SealedSegment};

/// What must be known before an output is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockPolicy {
    /// The joiner is dead: its lock can be taken.
    TakeLock,
    /// An operator says that it is dead, whatever its lock says.
    NamedDead,
}

/// What a fence came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FenceOutcome {
    /// Only what the seal record lists exists.
    Sealed,
    /// The joiner holds its lock, or another verifier does. Nothing was done.
    Busy,
    /// It can not be judged.
    Held {
        /// What is wrong, and where.
        reason: String,
    },
}

/// A directory may move under our hands once: from live to sealed.
const PLACES_MAX: u32 = 3;
/// Two may finish one segment at once, and each may find the other half-way.
const FINISH_TRIES_MAX: u32 = 5;
/// So much is copied at once.
const COPY_BYTES: usize = 1024 * 1024;

/// Fences an incarnation of the output at `output_root`. Also takes on what an earlier run left.
///
/// # Errors
/// [`OutputError::Disk`]; the next run takes on from there.
pub fn fence(output_root: &Path, incarnation: Incarnation, policy: LockPolicy) -> Result<FenceOutcome, OutputError> {
    fence_with(&Files::default(), output_root, incarnation, policy)
}

/// [`fence`], each step told to a [`super::Watch`].
///
/// # Errors
/// As [`fence`].
pub fn fence_with(
    files: &Files,
    output_root: &Path,
    incarnation: Incarnation,
    policy: LockPolicy,
) -> Result<FenceOutcome, OutputError> {
    for _ in 0..PLACES_MAX {
        match stop(files, output_root, incarnation, policy)? {
            Stopped::At { directory, lock } => return seal(files, output_root, &directory, incarnation, lock.as_ref()),
            Stopped::Copy { directory, why } => return judge_copy(files, &directory, incarnation, &why),
            Stopped::Busy => return Ok(FenceOutcome::Busy),
            Stopped::Held(reason) => return Ok(FenceOutcome::Held { reason }),
            Stopped::Moved => (),
        }
    }
    let path = live_path(output_root, incarnation);
    Ok(FenceOutcome::Held { reason: format!("{} moves again and again", path.display()) })
}

enum Stopped {
    /// Nobody writes here any more.
    At {
        directory: PathBuf,
        lock: Option<LockFile>,
    },
    /// Not the directory that the joiner made: who writes where is not known.
    Copy {
        directory: PathBuf,
        why: Held,
    },
    Busy,
    Held(Held),
    /// Somebody else moved it meanwhile.
    Moved,
}

fn stop(
    files: &Files,
    output_root: &Path,
    incarnation: Incarnation,
    policy: LockPolicy,
) -> Result<Stopped, OutputError> {
    let (live, sealed) = (live_path(output_root, incarnation), sealed_path(output_root, incarnation));
    let directory = match (Identity::at(&live)?, Identity::at(&sealed)?) {
        (Some(_), None) => &live,
        (None, Some(_)) => &sealed,
        (None, None) => {
            let root = output_root.display();
            return Ok(Stopped::Held(format!("{incarnation} has no directory in live/ or sealed/ of {root}")));
        }
        (Some(_), Some(_)) => {
            let (live, sealed) = (live.display(), sealed.display());
            return Ok(Stopped::Held(format!("{live} and {sealed} are both there: move the copy away")));
        }
    };
    let stored = match StoredManifest::read(directory, incarnation)? {
        Ok(stored) => stored,
        Err(_) if Identity::at(directory)?.is_none() => return Ok(Stopped::Moved),
        Err(why) => return Ok(Stopped::Held(why)),
    };
    let copy_at = |directory: &Path| -> Result<Option<Stopped>, OutputError> {
        let fault = stored.copy_fault(directory)?;
        Ok(fault.map(|why| Stopped::Copy { directory: directory.to_owned(), why }))
    };
    if let Some(copy) = copy_at(directory)? {
        return Ok(copy);
    }
    let lock = match LockFile::try_exclusive_existing(&directory.join(LOCK_NAME)) {
        Ok(lock) => Some(lock),
        Err(DiskError::Busy { .. }) => None,
        Err(error) if error.is_not_found() => {
            let moved = Identity::at(directory)?.is_none();
            let why = || format!("{} has no lock: nobody can tell whether its joiner lives", directory.display());
            match (moved, policy) {
                (true, LockPolicy::TakeLock | LockPolicy::NamedDead) => return Ok(Stopped::Moved),
                (false, LockPolicy::TakeLock) => return Ok(Stopped::Held(why())),
                (false, LockPolicy::NamedDead) => None,
            }
        }
        Err(error) => return Err(error.into()),
    };
    // Now under the lock: of a copy that was put here meanwhile it says nothing.
    if let Some(copy) = copy_at(directory)? {
        return Ok(copy);
    }
    // Moved by somebody who was entitled to, or ended by itself: it is stopped already.
    let ended = match SealRecord::read(files, directory, incarnation)? {
        Ok(record) => record.is_some(),
        Err(why) => return Ok(Stopped::Held(why)),
    };
    if *directory == sealed || ended {
        return Ok(Stopped::At { directory: directory.clone(), lock });
    }
    if lock.is_none() && policy == LockPolicy::TakeLock {
        return Ok(Stopped::Busy);
    }
    ensure_directory(files, &output_root.join("sealed"))?;
    match files.rename(&live, &sealed) {
        // What was renamed is what counts, not what lay there before.
        Ok(()) => Ok(copy_at(&sealed)?.unwrap_or(Stopped::At { directory: sealed, lock })),
        Err(error) if error.is(io::ErrorKind::NotFound) || error.is(io::ErrorKind::AlreadyExists) => Ok(Stopped::Moved),
        Err(error) => Err(error),
    }
}

/// What a copy proves by itself. It is only read.
fn judge_copy(
    files: &Files,
    directory: &Path,
    incarnation: Incarnation,
    why: &str,
) -> Result<FenceOutcome, OutputError> {
    let held = |reason| Ok(FenceOutcome::Held { reason });
    let record = match SealRecord::read(files, directory, incarnation)? {
        Ok(Some(record)) => record,
        Ok(None) => return held(why.to_owned()),
        Err(more) => return held(format!("{why}; {more}")),
    };
    files.sync_directory(directory)?;
    match read_sealed_copy(files, directory, &record)?.held {
        None => Ok(FenceOutcome::Sealed),
        Some(more) => held(format!("{why}; {more}")),
    }
}

fn seal(
    files: &Files,
    output_root: &Path,
    directory: &Path,
    incarnation: Incarnation,
    lock: Option<&LockFile>,
) -> Result<FenceOutcome, OutputError> {
    if lock.is_some() {
        remove_temporary_files(files, directory)?;
    }
    let record = match standing_record(files, directory, incarnation)? {
        Ok(record) => record,
        Err(reason) => return Ok(FenceOutcome::Held { reason }),
    };
    files.sync_directory(directory)?;
    // The new name before the old one: a power cut must not lose both.
    files.sync_directory(&output_root.join("sealed"))?;
    files.sync_directory(&output_root.join("live"))?;
    for &listed in &record.segments {
        let entries = match listed_entries(files, directory, listed)? {
            Ok(entries) => entries,
            Err(reason) => return Ok(FenceOutcome::Held { reason }),
        };
        if let Some(reason) = finish(files, directory, listed, &entries, Finish::Copy)? {
            return Ok(FenceOutcome::Held { reason });
        }
    }
    Ok(FenceOutcome::Sealed)
}

/// The seal record that stands, ours or another's.
fn standing_record(
    files: &Files,
    directory: &Path,
    incarnation: Incarnation,
) -> Result<Result<SealRecord, Held>, OutputError> {
    match SealRecord::read(files, directory, incarnation)? {
        Ok(Some(record)) => return Ok(Ok(record)),
        Ok(None) => (),
        Err(why) => return Ok(Err(why)),
    }
    let Evidence { segments, held } = read_unsealed(files, directory, DataCheck::Checksums)?;
    if let Some(why) = held {
        return Ok(Err(why));
    }
    let ours = SealRecord { incarnation, segments: segments.iter().map(|evidence| evidence.segment).collect() };
    match ours.put(files, directory)? {
        Put::Ours => Ok(Ok(ours)),
        Put::Another => {
            let missing = || format!("{} lost its seal record", directory.display());
            Ok(SealRecord::read(files, directory, incarnation)?.and_then(|record| record.ok_or_else(missing)))
        }
    }
}

/// Who gives a listed segment its final name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// Its writer, who writes no more: the open file itself.
    Link,
    /// Anybody else: a writer that lives may still append to the open file.
    Copy,
}

/// Finishes a listed segment. Says what is wrong if that can not be done.
pub(crate) fn finish(
    files: &Files,
    directory: &Path,
    listed: SealedSegment,
    entries: &[IndexEntry],
    how: Finish,
) -> Result<Option<Held>, OutputError> {
    let (open, finished) = (open_path(directory, listed.number), finished_path(directory, listed.number));
    for _ in 0..FINISH_TRIES_MAX {
        if let Some(data) = open_if_there(&finished)? {
            if let Some(why) = listed_data_fault(&data, &finished, listed, entries, DataCheck::Checksums)? {
                return Ok(Some(why));
            }
            files.sync_file(&data, &finished)?;
            files.sync_directory(directory)?;
            files.unlink_if_there(&open)?;
            return Ok(None);
        }
        let linked = match how {
            Finish::Link => files.link(&open, &finished),
            Finish::Copy => match copy(files, directory, &open, listed, entries)? {
                Copied::To(temporary) => {
                    let linked = files.link(&temporary, &finished);
                    files.unlink_if_there(&temporary)?;
                    linked
                }
                Copied::NoSource => continue,
                Copied::Held(why) => return Ok(Some(why)),
            },
        };
        match linked {
            Ok(()) => (),
            // Another came first: what it left is looked at above.
            Err(error) if error.is(io::ErrorKind::AlreadyExists) || error.is(io::ErrorKind::NotFound) => (),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(format!("segment {} of {} has no data", listed.number, directory.display())))
}

enum Copied {
    To(PathBuf),
    /// The open name is gone: finished by another, or lost.
    NoSource,
    Held(Held),
}

/// Copies the listed data under a name of our own, synced.
fn copy(
    files: &Files,
    directory: &Path,
    open: &Path,
    listed: SealedSegment,
    entries: &[IndexEntry],
) -> Result<Copied, OutputError> {
    let source = open_if_there(open)?;
    match &source {
        Some(source) => {
            if let Some(why) = listed_data_fault(source, open, listed, entries, DataCheck::Lengths)? {
                return Ok(Copied::Held(why));
            }
        }
        // The index may have become durable before the data file's name did.
        None if listed.data_bytes == 0 => (),
        None => return Ok(Copied::NoSource),
    }
    let temporary = temporary_path(directory)?;
    let target = files.create_file(&temporary)?;
    if let Some(source) = source {
        let mut bytes = Vec::new();
        let mut at = 0;
        while at < listed.data_bytes {
            let count = usize::try_from(listed.data_bytes - at).unwrap_or(usize::MAX).min(COPY_BYTES);
            bytes.resize(count, 0);
            source.read_exact_at(&mut bytes, at).map_err(OutputError::io("reading", open))?;
            files.write(&target, &temporary, at, &bytes)?;
            at += count as u64;
        }
    }
    files.sync_file(&target, &temporary)?;
    // What was copied, not what was to be copied, is looked at.
    if let Some(why) = listed_data_fault(&target, &temporary, listed, entries, DataCheck::Checksums)? {
        files.unlink_if_there(&temporary)?;
        return Ok(Copied::Held(format!("copied from {}: {why}", open.display())));
    }
    Ok(Copied::To(temporary))
}

/// What crashed copiers left behind. With the lock held there is no other copier, but for one whose
/// operator named the joiner dead; that one would find its file gone, and its next run takes on.
fn remove_temporary_files(files: &Files, directory: &Path) -> Result<(), OutputError> {
    for name in file_names(directory)?.unwrap_or_default() {
        if name.starts_with(TEMPORARY_FILE) {
            files.unlink_if_there(&directory.join(name))?;
        }
    }
    Ok(())
}

//! Durable writes of small files, and of the names of files and directories.
//!
//! Invariant: content before name. A name is put in place only when what it names is on stable
//! storage, and the function returns only when the name is, too. So a reader finds the old content,
//! the new content or no file, never half of one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::DiskError;
use crate::lock::LockFile;

/// The name of the lock in a directory made by [`create_dir_durable`].
pub const LOCK_NAME: &str = "lock";

/// How often another temporary name is tried.
const TEMPORARY_NAMES_MAX: u32 = 10_000;

/// Makes the names in a directory durable.
///
/// # Errors
/// [`DiskError::Io`].
pub fn sync_dir(path: &Path) -> Result<(), DiskError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(DiskError::io("fsync of the directory", path))
}

/// Makes the content of a file durable, whoever wrote it. Whoever counts what somebody else wrote
/// calls this between reading and counting.
///
/// # Errors
/// [`DiskError::Io`].
pub fn sync_file(path: &Path) -> Result<(), DiskError> {
    File::open(path).and_then(|file| file.sync_data()).map_err(DiskError::io("fdatasync of", path))
}

/// The directory that holds `path`; "." for a bare name.
#[must_use]
pub fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// `.name.new` beside `name`: under which something is made before it gets its name. One maker at a
/// time: whoever holds the lock of the directory, or of the hidden directory.
#[must_use]
pub fn hidden_name(path: &Path) -> PathBuf {
    let mut hidden = OsString::from(".");
    hidden.push(path.file_name().unwrap_or_default());
    hidden.push(".new");
    path.with_file_name(hidden)
}

/// Replaces a file, or makes it: hidden file, fsync, rename, fsync of the directory. A crash leaves
/// the old content or the new. One writer of this name at a time.
///
/// # Errors
/// [`DiskError::Io`]; the old content is still there unless the last fsync failed.
pub fn write_replace(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let hidden = hidden_name(path);
    // Truncated, not made new: a crash before the rename left one behind.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    write_synced(&hidden, &options, bytes)?;
    fs::rename(&hidden, path).map_err(DiskError::io("renaming into place", path))?;
    sync_dir(parent_of(path))
}

/// Makes a file that must not exist: temporary file, fsync, link, fsync of the directory. Of several
/// that try, in any process, exactly one succeeds; when one hears `Exists`, the other's file is
/// whole, but its name may not be durable yet: call [`sync_dir`] before you rely on it.
///
/// # Errors
/// [`DiskError::Exists`] when the name is taken, [`DiskError::Io`].
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let temporary = write_temporary(path, bytes)?;
    let linked = link_new(&temporary, path);
    fs::remove_file(&temporary).map_err(DiskError::io("removing", &temporary))?;
    linked?;
    sync_dir(parent_of(path))
}

/// Gives a synced file a second name that must not exist. The directory is not synced.
///
/// # Errors
/// [`DiskError::Exists`] when the name is taken, [`DiskError::Io`].
pub fn link_new(original: &Path, link: &Path) -> Result<(), DiskError> {
    match fs::hard_link(original, link) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(DiskError::Exists { path: link.to_owned() }),
        Err(error) => Err(DiskError::io("linking into place", link)(error)),
    }
}

/// Writes and syncs a file under a temporary name that nobody else uses, beside `path`. The caller
/// links it and unlinks the temporary name.
///
/// # Errors
/// [`DiskError::Io`].
pub fn write_temporary(path: &Path, bytes: &[u8]) -> Result<PathBuf, DiskError> {
    let name = path.file_name().unwrap_or_default();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    for attempt in 0..TEMPORARY_NAMES_MAX {
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{attempt}.tmp", std::process::id()));
        let temporary = path.with_file_name(hidden);
        match write_synced(&temporary, &options, bytes) {
            Ok(()) => return Ok(temporary),
            Err(DiskError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => (),
            Err(error) => return Err(error),
        }
    }
    Err(DiskError::Exists { path: path.with_extension("tmp") })
}

fn write_synced(path: &Path, options: &OpenOptions, bytes: &[u8]) -> Result<(), DiskError> {
    let mut file = options.open(path).map_err(DiskError::io("creating", path))?;
    let written = file
        .write_all(bytes)
        .map_err(DiskError::io("writing", path))
        .and_then(|()| file.sync_all().map_err(DiskError::io("fsync of", path)));
    if written.is_err() {
        // It has no name that anybody reads: a file left behind does no harm, the first error counts.
        let _ = fs::remove_file(path);
    }
    written
}

/// Makes a directory and all that lead to it, each name durable.
///
/// # Errors
/// [`DiskError::Io`].
pub fn create_dir_all_durable(path: &Path) -> Result<(), DiskError> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = parent_of(path);
    if parent != path {
        create_dir_all_durable(parent)?;
    }
    match fs::create_dir(path) {
        Ok(()) => (),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => (),
        Err(error) => return Err(DiskError::io("creating the directory", path)(error)),
    }
    sync_dir(parent)
}

/// Makes a directory whole or not at all: under [`hidden_name`], with its lock held, filled by the
/// caller, then renamed into place and the parent synced. `fill` gets the hidden path and syncs the
/// files that it writes; handles that it opens stay good over the rename.
///
/// A hidden directory that a crash left behind is emptied and used. An *empty* directory under the
/// name is replaced: an operator made it.
///
/// # Errors
/// [`DiskError::Exists`] when the name is taken, [`DiskError::Busy`] when somebody else is making
/// it, [`DiskError::Io`], and what `fill` says.
pub fn create_dir_durable<T, E: From<DiskError>>(
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<(LockFile, T), E> {
    refuse_taken(path)?;
    let hidden = hidden_name(path);
    match fs::create_dir(&hidden) {
        Ok(()) => (),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
        Err(error) => return Err(DiskError::io("creating the directory", &hidden)(error).into()),
    }
    let lock = LockFile::try_exclusive(&hidden.join(LOCK_NAME))?;
    remove_content(&hidden)?;
    let filled = fill(&hidden)?;
    sync_dir(&hidden)?;
    refuse_taken(path)?;
    fs::rename(&hidden, path).map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => DiskError::Exists { path: path.to_owned() },
        _ => DiskError::io("renaming into place", path)(error),
    })?;
    sync_dir(parent_of(path))?;
    Ok((lock.renamed(path.join(LOCK_NAME)), filled))
}

/// Removes hidden directories in `parent` that makers left behind: those whose lock is free.
/// Returns what was removed.
///
/// # Errors
/// [`DiskError::Io`].
pub fn remove_abandoned(parent: &Path) -> Result<Vec<PathBuf>, DiskError> {
    let mut removed = Vec::new();
    for entry in fs::read_dir(parent).map_err(DiskError::io("listing", parent))? {
        let entry = entry.map_err(DiskError::io("listing", parent))?;
        let name = entry.file_name();
        let is_hidden = name.as_encoded_bytes().starts_with(b".") && name.as_encoded_bytes().ends_with(b".new");
        let path = entry.path();
        if !is_hidden || !path.is_dir() {
            continue;
        }
        match LockFile::try_exclusive(&path.join(LOCK_NAME)) {
            Ok(_held) => {
                fs::remove_dir_all(&path).map_err(DiskError::io("removing", &path))?;
                removed.push(path);
            }
            // Somebody is making it, or has just finished.
            Err(DiskError::Busy { .. }) => (),
            Err(error) if error.is_not_found() => (),
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

/// An empty directory is free: `rename` replaces it.
fn refuse_taken(path: &Path) -> Result<(), DiskError> {
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(DiskError::Exists { path: path.to_owned() }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(DiskError::Exists { path: path.to_owned() }),
        Err(error) => Err(DiskError::io("listing", path)(error)),
    }
}

/// Everything but the lock that we hold.
fn remove_content(dir: &Path) -> Result<(), DiskError> {
    for entry in fs::read_dir(dir).map_err(DiskError::io("listing", dir))? {
        let entry = entry.map_err(DiskError::io("listing", dir))?;
        let path = entry.path();
        if entry.file_name() == LOCK_NAME {
            continue;
        }
        let is_dir = entry.file_type().map_err(DiskError::io("stat of", &path))?.is_dir();
        if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }
            .map_err(DiskError::io("removing", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn replace_makes_and_replaces_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cursor");
        fs::write(hidden_name(&path), b"a crash left this, longer than what follows").unwrap();
        write_replace(&path, b"one").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        write_replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(dir.path()), ["cursor"]);
    }

    #[test]
    fn of_many_that_make_a_file_exactly_one_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("SEALED");
        let winners: Vec<u8> = std::thread::scope(|scope| {
            let made: Vec<_> = (0..4_u8)
                .map(|n| {
                    scope.spawn({
                        let path = &path;
                        move || write_new(path, &[n; 9])
                    })
                })
                .collect();
            (0..4)
                .zip(made)
                .filter_map(|(n, made)| match made.join().unwrap() {
                    Ok(()) => Some(n),
                    Err(DiskError::Exists { .. }) => None,
                    Err(error) => panic!("{error}"),
                })
                .collect()
        });
        assert_eq!(winners.len(), 1);
        assert_eq!(fs::read(&path).unwrap(), [winners[0]; 9]);
        assert_eq!(names(dir.path()), ["SEALED"]);
    }

    #[test]
    fn a_directory_is_made_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node");
        let failed: Result<(LockFile, ()), DiskError> = create_dir_durable(&path, |hidden| {
            fs::write(hidden.join("half"), b"x").unwrap();
            Err(DiskError::Exists { path: hidden.to_owned() })
        });
        assert!(failed.is_err());
        assert!(!path.exists());
        let (lock, content) = create_dir_durable(&path, |hidden| {
            let file = File::create_new(hidden.join("whole")).unwrap();
            Ok::<_, DiskError>(file)
        })
        .unwrap();
        assert_eq!(names(&path), ["lock", "whole"]);
        assert_eq!(lock.path(), path.join("lock"));
        assert!(content.metadata().is_ok());
        assert!(matches!(LockFile::try_exclusive(&path.join("lock")), Err(DiskError::Busy { .. })));
        let again = create_dir_durable(&path, |_| Ok::<_, DiskError>(()));
        assert!(matches!(again, Err(DiskError::Exists { .. })));
    }

    #[test]
    fn two_makers_of_one_directory_do_not_mix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node");
        let (_lock, inner) = create_dir_durable(&path, |_| {
            let inner = create_dir_durable(&path, |_| Ok::<_, DiskError>(()));
            // The sweeper of abandoned directories leaves it alone, too.
            assert_eq!(remove_abandoned(dir.path()).unwrap(), Vec::<PathBuf>::new());
            Ok::<_, DiskError>(inner)
        })
        .unwrap();
        assert!(matches!(inner, Err(DiskError::Busy { .. })));
    }

    #[test]
    fn an_empty_directory_is_taken_over_and_abandoned_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node");
        fs::create_dir(&path).unwrap();
        fs::create_dir(dir.path().join(".other.new")).unwrap();
        fs::create_dir(dir.path().join("kept.new")).unwrap();
        create_dir_durable(&path, |_| Ok::<_, DiskError>(())).unwrap();
        assert_eq!(remove_abandoned(dir.path()).unwrap(), [dir.path().join(".other.new")]);
        assert_eq!(names(dir.path()), ["kept.new", "node"]);
        create_dir_all_durable(&dir.path().join("a/b/c")).unwrap();
        assert!(dir.path().join("a/b/c").is_dir());
    }
}

//! Named lock files, by `flock`.
//!
//! Invariant: a held [`LockFile`] is held on the file that its path names at that moment, not on one
//! that was renamed or unlinked between open and lock. The lock ends with the handle, and with the
//! process, however that ends; handles are close-on-exec, so no child keeps it.
//!
//! Not here: locks over several hosts. `flock` is for local disks.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::DiskError;

/// A lock, held until dropped.
#[derive(Debug)]
pub struct LockFile {
    file: File,
    path: PathBuf,
}

/// What is done to get a lock. Each is another way to open and to wait.
#[derive(Clone, Copy)]
enum Wish {
    Exclusive,
    TryExclusive,
    TryExclusiveExisting,
    TryShared,
}

impl LockFile {
    /// Makes the file if it is missing, and waits until the lock is free.
    ///
    /// # Errors
    /// [`DiskError::Io`].
    pub fn exclusive(path: &Path) -> Result<LockFile, DiskError> {
        LockFile::acquire(path, Wish::Exclusive)
    }

    /// Makes the file if it is missing. For the owner of the directory.
    ///
    /// # Errors
    /// [`DiskError::Busy`] when somebody holds the lock, shared or not.
    pub fn try_exclusive(path: &Path) -> Result<LockFile, DiskError> {
        LockFile::acquire(path, Wish::TryExclusive)
    }

    /// As [`LockFile::try_exclusive`], but the file must be there. For who repairs the directory of
    /// somebody else, which may be renamed under his hands.
    ///
    /// # Errors
    /// [`DiskError::Busy`]; not found (see [`DiskError::is_not_found`]).
    pub fn try_exclusive_existing(path: &Path) -> Result<LockFile, DiskError> {
        LockFile::acquire(path, Wish::TryExclusiveExisting)
    }

    /// Shared with other lookers; the file must be there.
    ///
    /// # Errors
    /// [`DiskError::Busy`] when somebody holds the lock alone; not found.
    pub fn try_shared(path: &Path) -> Result<LockFile, DiskError> {
        LockFile::acquire(path, Wish::TryShared)
    }

    /// The path by which it was taken. The directory may have another name by now.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory or file was renamed by its owner, who holds the lock all the while.
    pub(crate) fn renamed(self, path: PathBuf) -> LockFile {
        LockFile { file: self.file, path }
    }

    fn acquire(path: &Path, wish: Wish) -> Result<LockFile, DiskError> {
        loop {
            let file = match wish {
                Wish::Exclusive | Wish::TryExclusive => {
                    OpenOptions::new().read(true).append(true).create(true).open(path)
                }
                // flock needs no right to write.
                Wish::TryExclusiveExisting | Wish::TryShared => File::open(path),
            }
            .map_err(DiskError::io("opening the lock", path))?;
            let locked = match wish {
                Wish::Exclusive => file.lock().map_err(TryLockError::Error),
                Wish::TryExclusive | Wish::TryExclusiveExisting => file.try_lock(),
                Wish::TryShared => file.try_lock_shared(),
            };
            match locked {
                Ok(()) => (),
                Err(TryLockError::WouldBlock) => return Err(DiskError::Busy { path: path.to_owned() }),
                Err(TryLockError::Error(source)) => return Err(DiskError::io("flock of", path)(source)),
            }
            if is_named(&file, path)? {
                return Ok(LockFile { file, path: path.to_owned() });
            }
        }
    }
}

/// Does the path still name this file?
fn is_named(file: &File, path: &Path) -> Result<bool, DiskError> {
    let ours = file.metadata().map_err(DiskError::io("stat of", path))?;
    match std::fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(DiskError::io("stat of", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_or_many_lookers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(LockFile::try_shared(&path).unwrap_err().is_not_found());
        assert!(LockFile::try_exclusive_existing(&path).unwrap_err().is_not_found());
        let owner = LockFile::try_exclusive(&path).unwrap();
        assert!(matches!(LockFile::try_exclusive(&path), Err(DiskError::Busy { .. })));
        assert!(matches!(LockFile::try_shared(&path), Err(DiskError::Busy { .. })));
        drop(owner);
        let lookers = (LockFile::try_shared(&path).unwrap(), LockFile::try_shared(&path).unwrap());
        assert!(matches!(LockFile::try_exclusive_existing(&path), Err(DiskError::Busy { .. })));
        drop(lookers);
        LockFile::try_exclusive_existing(&path).unwrap();
        LockFile::exclusive(&path).unwrap();
    }

    #[test]
    fn a_lock_on_a_file_that_lost_its_name_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let old = LockFile::try_exclusive(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!is_named(&old.file, &path).unwrap());
        let new = LockFile::try_exclusive(&path).unwrap();
        assert!(!is_named(&old.file, &path).unwrap());
        assert!(is_named(&new.file, &path).unwrap());
    }
}

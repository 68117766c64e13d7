//! Every operation that changes the files of the joined log, one method each.
//!
//! Invariant: nothing in `output` changes a file but through here, one step at a time, so that a
//! test can stop a writer or a fence before each single step and look at what recovery makes of
//! it. Everything is by path: a fence stops a writer by moving its directory away.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::error::OutputError;

/// One step, told before it is done.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A directory is made.
    CreateDirectory(&'a Path),
    /// An empty file is made; it was not there.
    CreateFile(&'a Path),
    /// Bytes are written.
    Write {
        /// The file.
        path: &'a Path,
        /// Where in it.
        offset: u64,
        /// What.
        bytes: &'a [u8],
    },
    /// A file is synced.
    SyncFile(&'a Path),
    /// A directory is synced.
    SyncDirectory(&'a Path),
    /// A file gets a second name.
    Link {
        /// The first name.
        from: &'a Path,
        /// The second.
        to: &'a Path,
    },
    /// A directory gets another name, which was free.
    Rename {
        /// The old name.
        from: &'a Path,
        /// The new one.
        to: &'a Path,
    },
    /// A name is removed.
    Unlink(&'a Path),
    /// An empty directory is removed.
    RemoveDirectory(&'a Path),
}

/// Is told each step before it happens, and can stop it: what a crash is made of in tests.
pub trait Watch: Send + Sync {
    /// The step does not happen if this is an error.
    ///
    /// # Errors
    /// Whatever the test wants the file system to say.
    fn before(&self, step: Step<'_>) -> io::Result<()>;
}

/// The file system, as the joined log uses it.
#[derive(Clone, Default)]
pub struct Files {
    watch: Option<Arc<dyn Watch>>,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("watched", &self.watch.is_some()).finish()
    }
}

impl Files {
    /// Files that tell each step to somebody.
    #[must_use]
    pub fn watched(watch: Arc<dyn Watch>) -> Files {
        Files { watch: Some(watch) }
    }

    fn step(&self, step: Step<'_>) -> io::Result<()> {
        match &self.watch {
            None => Ok(()),
            Some(watch) => watch.before(step),
        }
    }

    pub(crate) fn create_directory(&self, path: &Path) -> Result<(), OutputError> {
        self.step(Step::CreateDirectory(path))
            .and_then(|()| fs::create_dir(path))
            .map_err(OutputError::io("making the directory", path))
    }

    pub(crate) fn create_file(&self, path: &Path) -> Result<File, OutputError> {
        self.step(Step::CreateFile(path))
            .and_then(|()| OpenOptions::new().read(true).write(true).create_new(true).open(path))
            .map_err(OutputError::io("making", path))
    }

    pub(crate) fn write(&self, file: &File, path: &Path, offset: u64, bytes: &[u8]) -> Result<(), OutputError> {
        self.step(Step::Write { path, offset, bytes })
            .and_then(|()| file.write_all_at(bytes, offset))
            .map_err(OutputError::io("writing", path))
    }

    /// Also for what is only read: the page cache is not the disk.
    pub(crate) fn sync_file(&self, file: &File, path: &Path) -> Result<(), OutputError> {
        self.step(Step::SyncFile(path)).and_then(|()| file.sync_data()).map_err(OutputError::io("fdatasync of", path))
    }

    pub(crate) fn sync_directory(&self, path: &Path) -> Result<(), OutputError> {
        self.step(Step::SyncDirectory(path))
            .and_then(|()| File::open(path)?.sync_all())
            .map_err(OutputError::io("fsync of the directory", path))
    }

    pub(crate) fn link(&self, from: &Path, to: &Path) -> Result<(), OutputError> {
        self.step(Step::Link { from, to })
            .and_then(|()| fs::hard_link(from, to))
            .map_err(OutputError::io("linking into place", to))
    }

    /// Never replaces: a plain rename would replace an empty directory.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<(), OutputError> {
        self.step(Step::Rename { from, to })
            .and_then(|()| {
                let cwd = rustix::fs::CWD;
                Ok(rustix::fs::renameat_with(cwd, from, cwd, to, rustix::fs::RenameFlags::NOREPLACE)?)
            })
            .map_err(OutputError::io("renaming a directory to", to))
    }

    pub(crate) fn unlink(&self, path: &Path) -> Result<(), OutputError> {
        self.step(Step::Unlink(path)).and_then(|()| fs::remove_file(path)).map_err(OutputError::io("removing", path))
    }

    /// Somebody else may have removed it first.
    pub(crate) fn unlink_if_there(&self, path: &Path) -> Result<(), OutputError> {
        match self.unlink(path) {
            Err(error) if error.is(io::ErrorKind::NotFound) => Ok(()),
            other => other,
        }
    }

    pub(crate) fn remove_directory(&self, path: &Path) -> Result<(), OutputError> {
        self.step(Step::RemoveDirectory(path))
            .and_then(|()| fs::remove_dir(path))
            .map_err(OutputError::io("removing the directory", path))
    }
}

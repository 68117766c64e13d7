//! A real file system that can be stopped before any step, and can lose power.
//!
//! Invariant: what was synced survives a power cut; of all else any part may be gone: bytes of a
//! file whose file was not synced after, names in a directory that was not synced after. The steps
//! that are not durable yet are kept with a way to undo each.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use photon_format::output::{Files, Step, Watch};

/// What a crash takes.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// The process only: all it did stays.
    Kill,
    /// Power: all that was not synced is gone.
    PowerAll,
    /// Power: some of what was not synced is gone, by this seed.
    PowerSome(u64),
}

/// Runs in the middle of a step's operation, before its last act.
pub type Hook = Box<dyn FnOnce() + Send>;

pub struct CrashDisk {
    inner: Mutex<Inner>,
    graveyard: PathBuf,
}

#[derive(Default)]
struct Inner {
    steps: u64,
    stop_at: Option<u64>,
    hook: Option<(u64, Hook)>,
    pending: Vec<Pending>,
    buried: u64,
}

type Inode = (u64, u64);

/// A step that is not durable, and how to undo it.
enum Pending {
    Bytes {
        file: File,
        inode: Inode,
        from: u64,
        to: u64,
    },
    /// A name that was made.
    Name {
        directory: File,
        name: PathBuf,
        inode: Inode,
    },
    /// A name that was removed; the file lives on in the graveyard.
    Removed {
        directory: File,
        name: PathBuf,
        inode: Inode,
        grave: PathBuf,
    },
    Renamed {
        from: (File, PathBuf),
        to: (File, PathBuf),
        unsynced: Vec<Inode>,
    },
}

impl CrashDisk {
    /// Nothing is stopped until [`CrashDisk::stop_at`].
    pub fn new(graveyard: &Path) -> Arc<CrashDisk> {
        fs::create_dir(graveyard).unwrap();
        Arc::new(CrashDisk { inner: Mutex::default(), graveyard: graveyard.to_owned() })
    }

    pub fn files(self: &Arc<CrashDisk>) -> Files {
        Files::watched(self.clone())
    }

    /// Counts steps anew; the one with this number, and all behind it, do not happen. A hook that
    /// was not reached is gone.
    pub fn stop_at(&self, step: Option<u64>) {
        let mut inner = self.inner.lock().unwrap();
        inner.steps = 0;
        inner.hook = None;
        inner.stop_at = step;
    }

    /// Counts steps anew; runs something before the one with this number.
    pub fn hook_at(&self, step: u64, hook: Hook) {
        let mut inner = self.inner.lock().unwrap();
        inner.steps = 0;
        inner.hook = Some((step, hook));
    }

    /// Steps since the last [`CrashDisk::stop_at`], stopped ones included.
    pub fn steps(&self) -> u64 {
        self.inner.lock().unwrap().steps
    }

    /// Whether the step to stop at was reached.
    pub fn was_stopped(&self) -> bool {
        let inner = self.inner.lock().unwrap();
        inner.stop_at.is_some_and(|stop_at| stop_at < inner.steps)
    }

    /// The machine goes down and comes up again.
    pub fn cut(&self, cut: Cut) {
        let mut inner = self.inner.lock().unwrap();
        inner.steps = 0;
        inner.stop_at = None;
        let mut chance = match cut {
            // Not durable still: a later power cut may take it.
            Cut::Kill => return,
            Cut::PowerAll => None,
            Cut::PowerSome(seed) => Some(Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)),
        };
        for pending in std::mem::take(&mut inner.pending).into_iter().rev() {
            match &mut chance {
                None => pending.undo(0, &self.graveyard),
                Some(chance) => {
                    if chance.next().is_multiple_of(2) {
                        pending.undo(chance.next(), &self.graveyard);
                    }
                }
            }
        }
    }
}

impl Watch for CrashDisk {
    fn before(&self, step: Step<'_>) -> io::Result<()> {
        let mut inner = self.inner.lock().unwrap();
        let number = inner.steps;
        inner.steps += 1;
        if let Some(stop_at) = inner.stop_at
            && stop_at <= number
        {
            if stop_at == number {
                inner.tear(step);
            }
            return Err(io::Error::other("the test stopped here"));
        }
        let hook = match inner.hook.take() {
            Some((at, hook)) if at == number => Some(hook),
            other => {
                inner.hook = other;
                None
            }
        };
        if let Some(hook) = hook {
            drop(inner);
            hook();
            inner = self.inner.lock().unwrap();
        }
        inner.record(step, &self.graveyard);
        Ok(())
    }
}

impl Inner {
    /// Dies in the middle of a write.
    fn tear(&mut self, step: Step<'_>) {
        if let Step::Write { path, offset, bytes } = step {
            let half = &bytes[..bytes.len() / 2];
            if let Ok(file) = OpenOptions::new().write(true).open(path) {
                file.write_all_at(half, offset).unwrap();
                self.record(Step::Write { path, offset, bytes: half }, Path::new(""));
            }
        }
    }

    /// Notes what the step will do, if it will do it.
    fn record(&mut self, step: Step<'_>, graveyard: &Path) {
        match step {
            Step::Write { path, offset, bytes } => {
                if let Ok(file) = OpenOptions::new().write(true).open(path) {
                    let inode = inode_of(&file);
                    self.pending.push(Pending::Bytes { file, inode, from: offset, to: offset + bytes.len() as u64 });
                }
            }
            Step::SyncFile(path) => {
                if let Ok(file) = File::open(path) {
                    let synced = inode_of(&file);
                    self.pending.retain(|pending| !matches!(pending, Pending::Bytes { inode, .. } if *inode == synced));
                }
            }
            Step::SyncDirectory(path) => {
                if let Ok(directory) = File::open(path) {
                    self.on_directory_synced(inode_of(&directory));
                }
            }
            Step::CreateDirectory(path) | Step::CreateFile(path) | Step::Link { from: _, to: path } => {
                let may = match step {
                    Step::Link { from, .. } => from.exists(),
                    _ => true,
                };
                if let Some((directory, name)) = place(path)
                    && may
                    && !path.exists()
                {
                    let inode = inode_of(&directory);
                    self.pending.push(Pending::Name { directory, name, inode });
                }
            }
            Step::Unlink(path) => {
                if let Some((directory, name)) = place(path)
                    && path.exists()
                {
                    self.buried += 1;
                    let grave = graveyard.join(self.buried.to_string());
                    fs::hard_link(path, &grave).unwrap();
                    let inode = inode_of(&directory);
                    self.pending.push(Pending::Removed { directory, name, inode, grave });
                }
            }
            Step::Rename { from, to } => {
                if let (Some(from_place), Some(to_place)) = (place(from), place(to))
                    && from.exists()
                    && !to.exists()
                {
                    let unsynced = vec![inode_of(&from_place.0), inode_of(&to_place.0)];
                    self.pending.push(Pending::Renamed { from: from_place, to: to_place, unsynced });
                }
            }
            // Only ever of a directory that nobody looks into.
            Step::RemoveDirectory(_) => (),
        }
    }

    fn on_directory_synced(&mut self, synced: Inode) {
        for pending in &mut self.pending {
            if let Pending::Renamed { unsynced, .. } = pending {
                unsynced.retain(|inode| *inode != synced);
            }
        }
        self.pending.retain(|pending| match pending {
            Pending::Bytes { .. } => true,
            Pending::Name { inode, .. } | Pending::Removed { inode, .. } => *inode != synced,
            Pending::Renamed { unsynced, .. } => !unsynced.is_empty(),
        });
    }
}

impl Pending {
    fn undo(self, chance: u64, graveyard: &Path) {
        match self {
            Pending::Bytes { file, from, to, .. } => {
                let length = file.metadata().unwrap().len();
                // Chance 0 loses all; else a part stays, or the length with zeros for bytes.
                let kept = from + if chance == 0 { 0 } else { (chance >> 8) % (to - from + 1) };
                file.set_len(length.min(kept)).unwrap();
                if chance % 4 == 3 {
                    file.set_len(length).unwrap();
                }
            }
            Pending::Name { directory, name, .. } => {
                let path = path_in(&directory, &name);
                // A directory that is not empty holds what is durable, so it is durable itself.
                let _ = if path.is_dir() { fs::remove_dir(&path) } else { fs::remove_file(&path) };
            }
            Pending::Removed { directory, name, grave, .. } => {
                let _ = fs::hard_link(grave, path_in(&directory, &name));
            }
            Pending::Renamed { from, to, unsynced } => {
                // Where a later rename stays, this one does: it is not there to be undone.
                let renamed = path_in(&to.0, &to.1);
                if !renamed.exists() {
                    return;
                }
                // The old name is gone for good, and the new one was never durable.
                let is_lost = unsynced == [inode_of(&to.0)];
                let to = if is_lost { graveyard.join("lost") } else { path_in(&from.0, &from.1) };
                fs::rename(renamed, to).unwrap();
            }
        }
    }
}

/// By handle: the directory may have another name by now.
fn path_in(directory: &File, name: &Path) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name)
}

fn place(path: &Path) -> Option<(File, PathBuf)> {
    let directory = File::open(path.parent()?).ok()?;
    Some((directory, path.file_name()?.into()))
}

fn inode_of(file: &File) -> Inode {
    let metadata = file.metadata().unwrap();
    (metadata.dev(), metadata.ino())
}

/// Numbers from a seed (xorshift).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

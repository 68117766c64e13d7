//! Listing the files of inputs.
//!
//! A file input is that file; a directory input is every plain file below it. Names that begin with
//! a dot are left out, files and directories alike. Symbolic links are followed; those that lead
//! nowhere are passed over, and those that lead to themselves are told ([`SourceList::loops`]).
//!
//! Invariant: a list says how long each file was; a reader of the list reads no further. With
//! `--once` one list is made for all datacenters and the verifier, so that all mean the same records.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::config::{Config, Datacenter, InputIndex};
use crate::error::SourceError;

/// Files of one input, at most.
pub const FILES_MAX: usize = 100_000;

/// Directories below one another, at most.
pub const DEPTH_MAX: usize = 16;

/// The longest source name, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// What tells a file from another one under the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIdentity {
    /// The device it lies on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

impl FileIdentity {
    pub(super) fn of(metadata: &Metadata) -> FileIdentity {
        FileIdentity { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// A file as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The stable name.
    pub name: String,
    /// The input it belongs to.
    pub input: InputIndex,
    /// Where it lies.
    pub path: PathBuf,
    /// How long it was.
    pub size: u64,
    /// Which file it was.
    pub identity: FileIdentity,
    /// When it was last changed, in nanoseconds since 1970, on the clock of its file system. Only to
    /// be compared with an earlier one of the same file.
    pub changed_ns: i64,
}

/// Files as they were listed, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceList {
    files: Vec<SourceFile>,
    loops: Vec<PathBuf>,
}

impl SourceList {
    /// The files of all inputs, as they lie in this datacenter now.
    ///
    /// # Errors
    /// [`SourceError`] when an input is not there, or holds what can not be read.
    pub fn list(config: &Config, datacenter: &Datacenter) -> Result<SourceList, SourceError> {
        let mut list = SourceList::default();
        for input in 0..config.join.inputs.len() {
            list.add_input(config, datacenter, InputIndex(input))?;
        }
        Ok(list)
    }

    /// The files of one input, as they lie in this datacenter now.
    ///
    /// # Errors
    /// As [`SourceList::list`].
    pub fn list_input(config: &Config, datacenter: &Datacenter, input: InputIndex) -> Result<SourceList, SourceError> {
        let mut list = SourceList::default();
        list.add_input(config, datacenter, input)?;
        Ok(list)
    }

    /// The files, by name.
    #[must_use]
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Symbolic links that lead back to themselves. They name no file, and were passed over.
    #[must_use]
    pub fn loops(&self) -> &[PathBuf] {
        &self.loops
    }

    /// The files of one input, by name.
    pub fn of_input(&self, input: InputIndex) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(move |file| file.input == input)
    }

    /// The file of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&SourceFile> {
        self.files.binary_search_by(|file| file.name.as_str().cmp(name)).ok().map(|index| &self.files[index])
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// The list as JSON, to be given to other processes.
    ///
    /// # Panics
    /// Never: paths in a list are UTF-8.
    #[must_use]
    pub fn to_json(&self, config: &Config) -> String {
        let files: Vec<_> = self.files.iter().map(|file| FileForm::of(file, config)).collect();
        serde_json::to_string(&files).expect("paths in a list are UTF-8")
    }

    /// A list from [`SourceList::to_json`], made by a process with the same config file.
    ///
    /// # Errors
    /// [`SourceError::List`] when it is no list, or of other inputs.
    pub fn from_json(config: &Config, text: &str) -> Result<SourceList, SourceError> {
        let refuse = |message: String| SourceError::List { message };
        let forms: Vec<FileForm> = serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
        let mut list = SourceList::default();
        for form in forms {
            let input = config.join.inputs.iter().position(|input| input.name == form.input);
            let input = input.ok_or_else(|| refuse(format!("there is no [[join.input]] \"{}\"", form.input)))?;
            if form.name.strip_prefix(&form.input).is_none_or(|rest| !rest.starts_with('/')) {
                return Err(refuse(format!("\"{}\" is no source name of the input \"{}\"", form.name, form.input)));
            }
            list.files.push(SourceFile {
                name: form.name,
                input: InputIndex(input),
                path: form.path,
                size: form.size,
                identity: FileIdentity { device: form.device, inode: form.inode },
                changed_ns: form.changed_ns,
            });
        }
        list.sort();
        if let Some(pair) = list.files.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(refuse(format!("\"{}\" is named twice", pair[0].name)));
        }
        Ok(list)
    }

    /// The same names and sizes, with the paths they have in another datacenter. The files are looked
    /// at: one that is not there, or shorter than listed, is an error.
    ///
    /// # Errors
    /// [`SourceError::Io`] or [`SourceError::Shrunk`].
    pub fn in_datacenter(&self, config: &Config, datacenter: &Datacenter) -> Result<SourceList, SourceError> {
        let mut list = self.clone();
        for file in &mut list.files {
            let root = config.input_path(datacenter, file.input);
            let prefix = config.join.inputs[file.input.0].name.len() + 1;
            let metadata = stat(&file.name, root)?;
            let (path, metadata) = if metadata.is_dir() {
                let path = root.join(&file.name[prefix..]);
                let metadata = stat(&file.name, &path)?;
                (path, metadata)
            } else {
                (root.to_owned(), metadata)
            };
            if metadata.len() < file.size {
                return Err(SourceError::Shrunk {
                    name: file.name.clone(),
                    path,
                    size: metadata.len(),
                    expected: file.size,
                });
            }
            file.identity = FileIdentity::of(&metadata);
            file.changed_ns = changed_ns(&metadata);
            file.path = path;
        }
        Ok(list)
    }

    fn add_input(&mut self, config: &Config, datacenter: &Datacenter, input: InputIndex) -> Result<(), SourceError> {
        let name = &config.join.inputs[input.0].name;
        let root = config.input_path(datacenter, input);
        let metadata = stat(name, root)?;
        let SourceList { files, loops } = self;
        let mut walk = Walk { input, input_name: name, root, files, loops, count: 0 };
        if metadata.is_file() {
            let file_name = root.file_name().map_or_else(|| root.to_owned(), PathBuf::from);
            walk.add(&file_name, root.to_owned(), &metadata)?;
        } else if metadata.is_dir() {
            walk.directory(root, 1)?;
        } else {
            return Err(SourceError::Kind { input: name.clone(), path: root.to_owned() });
        }
        self.sort();
        Ok(())
    }

    fn sort(&mut self) {
        self.files.sort_by(|one, other| one.name.cmp(&other.name));
    }
}

/// A file of a list as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    name: String,
    input: String,
    path: PathBuf,
    size: u64,
    device: u64,
    inode: u64,
    changed_ns: i64,
}

impl FileForm {
    fn of(file: &SourceFile, config: &Config) -> FileForm {
        let SourceFile { name, input, path, size, identity: FileIdentity { device, inode }, changed_ns } = file;
        let input = config.join.inputs[input.0].name.clone();
        FileForm {
            name: name.clone(),
            input,
            path: path.clone(),
            size: *size,
            device: *device,
            inode: *inode,
            changed_ns: *changed_ns,
        }
    }
}

struct Walk<'a> {
    input: InputIndex,
    input_name: &'a str,
    root: &'a Path,
    files: &'a mut Vec<SourceFile>,
    loops: &'a mut Vec<PathBuf>,
    count: usize,
}

impl Walk<'_> {
    fn directory(&mut self, directory: &Path, depth: usize) -> Result<(), SourceError> {
        let (input, path) = (self.input_name.to_owned(), directory.to_owned());
        if DEPTH_MAX < depth {
            return Err(SourceError::TooDeep { input, path, max: DEPTH_MAX });
        }
        let io = |source| SourceError::Io { name: input.clone(), path: path.clone(), operation: "listing", source };
        for entry in fs::read_dir(directory).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
                continue;
            }
            let metadata = match fs::metadata(&path) {
                Ok(metadata) => metadata,
                // Gone since it was listed, or a link to nothing.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                    self.loops.push(path);
                    continue;
                }
                Err(source) => {
                    let name = self.input_name.to_owned();
                    return Err(SourceError::Io { name, path, operation: "looking at it", source });
                }
            };
            if metadata.is_dir() {
                self.directory(&path, depth + 1)?;
            } else if metadata.is_file() {
                let below = path.strip_prefix(self.root).expect("what was listed lies below the root").to_owned();
                self.add(&below, path, &metadata)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, below: &Path, path: PathBuf, metadata: &Metadata) -> Result<(), SourceError> {
        let input = self.input_name.to_owned();
        let name = below.to_str().map(|below| format!("{input}/{below}"));
        let good = |name: &String| name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
        let Some(name) = name.filter(|name| good(name) && path.to_str().is_some()) else {
            return Err(SourceError::Name { input, path });
        };
        self.count += 1;
        if FILES_MAX < self.count {
            return Err(SourceError::TooMany { input, path: self.root.to_owned(), max: FILES_MAX });
        }
        let (size, identity, changed_ns) = (metadata.len(), FileIdentity::of(metadata), changed_ns(metadata));
        self.files.push(SourceFile { name, input: self.input, path, size, identity, changed_ns });
        Ok(())
    }
}

/// The inode's own time, which no copy can keep: unlike the time of the content.
fn changed_ns(metadata: &Metadata) -> i64 {
    metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec())
}

fn stat(name: &str, path: &Path) -> Result<Metadata, SourceError> {
    fs::metadata(path).map_err(|source| SourceError::Io {
        name: name.to_owned(),
        path: path.to_owned(),
        operation: "looking at it",
        source,
    })
}

//! The manifest of a joiner's incarnation: who it is and which directory it made, written once.
//!
//! Address, pid and start time stand here once, so that a token needs only incarnation and
//! sequence.
//!
//! Invariant: a directory that is not the one its manifest names is a copy. The lock of a copy says
//! nothing of the joiner, and what is missing in a copy may be in the original. A rename within the
//! file system keeps a directory what it is, and a power cut does too.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use photon_types::Incarnation;
use serde::{Deserialize, Serialize};

use super::error::OutputError;
use super::evidence::Held;
use super::layout::MANIFEST;

/// The format that this build writes and reads; it stands for the whole directory.
pub const OUTPUT_FORMAT: u32 = 1;

/// Who owns an output directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// This life of the joiner. Never given twice.
    pub incarnation: Incarnation,
    /// The name of the join.
    pub join: String,
    /// The datacenter.
    pub datacenter: String,
    /// Where the joiner can be asked.
    pub address: String,
    /// Its process.
    pub pid: u32,
    /// When it began, in microseconds since the epoch. For people: nothing is decided by it.
    pub started_micros: u64,
}

#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestFile {
    format: u32,
    incarnation: String,
    join: String,
    datacenter: String,
    address: String,
    pid: u32,
    started_micros: u64,
    /// Numbers of 64 bits stand as text: not every reader of JSON keeps them exactly.
    directory_inode: String,
    /// Null where the file system tells no birth time.
    directory_born_nanos: Option<String>,
}

/// What tells the directory that a joiner made from every copy of it. The device is not a part of
/// it: its number may be another one after each start of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryId {
    inode: u64,
    /// An inode number is given again when its directory was removed; the time of birth is not, and
    /// no copying tool can set it.
    born_nanos: Option<u64>,
}

impl DirectoryId {
    /// What lies at this path now, if anything. A symbolic link is not followed: renaming it stops
    /// nobody.
    pub fn at(path: &Path) -> Result<Option<DirectoryId>, OutputError> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(DirectoryId::of(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(OutputError::io("stat of", path)(source)),
        }
    }

    fn of(metadata: &fs::Metadata) -> DirectoryId {
        let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        DirectoryId { inode: metadata.ino(), born_nanos: born.and_then(|born| u64::try_from(born.as_nanos()).ok()) }
    }

    /// A birth time that was not told when the manifest was written decides nothing.
    fn is_what_was_made(self, made: DirectoryId) -> bool {
        self.inode == made.inode && (made.born_nanos.is_none() || self.born_nanos == made.born_nanos)
    }
}

impl fmt::Display for DirectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DirectoryId { inode, born_nanos } = *self;
        match born_nanos {
            Some(nanos) => write!(f, "inode {inode} born at {}.{:09}", nanos / NANOS, nanos % NANOS),
            None => write!(f, "inode {inode}"),
        }
    }
}

const NANOS: u64 = 1_000_000_000;

/// A manifest as it lies on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredManifest {
    pub manifest: Manifest,
    /// The directory that it was written into.
    pub directory: DirectoryId,
}

impl Manifest {
    /// The manifest of this process, with a new random incarnation.
    ///
    /// # Errors
    /// [`OutputError::Random`] when the system gives no random bytes.
    pub fn new(
        join: impl Into<String>,
        datacenter: impl Into<String>,
        address: impl Into<String>,
    ) -> Result<Manifest, OutputError> {
        let mut incarnation = [0; 16];
        getrandom::fill(&mut incarnation).map_err(|error| OutputError::Random { why: error.to_string() })?;
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Manifest {
            incarnation: Incarnation(incarnation),
            join: join.into(),
            datacenter: datacenter.into(),
            address: address.into(),
            pid: std::process::id(),
            started_micros: u64::try_from(started.as_micros()).unwrap_or(u64::MAX),
        })
    }
}

impl StoredManifest {
    pub fn encode(&self) -> Vec<u8> {
        let StoredManifest { manifest, directory } = self;
        let file = ManifestFile {
            format: OUTPUT_FORMAT,
            incarnation: manifest.incarnation.to_string(),
            join: manifest.join.clone(),
            datacenter: manifest.datacenter.clone(),
            address: manifest.address.clone(),
            pid: manifest.pid,
            started_micros: manifest.started_micros,
            directory_inode: directory.inode.to_string(),
            directory_born_nanos: directory.born_nanos.map(|nanos| nanos.to_string()),
        };
        let mut bytes = serde_json::to_vec(&file).expect("texts and numbers are JSON");
        bytes.push(b'\n');
        bytes
    }

    /// The manifest, or why these bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<StoredManifest, String> {
        let FormatOnly { format } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if format != OUTPUT_FORMAT {
            return Err(format!("output format {format} is not known here, only {OUTPUT_FORMAT}"));
        }
        let file: ManifestFile = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let ManifestFile { format: _, incarnation, join, datacenter, address, pid, started_micros, .. } = file;
        let incarnation = incarnation.parse().map_err(|error| format!("incarnation: {error}"))?;
        let inode = file.directory_inode.parse().map_err(|error| format!("directory_inode: {error}"))?;
        let born_nanos = file.directory_born_nanos.map(|nanos| nanos.parse()).transpose();
        let born_nanos = born_nanos.map_err(|error| format!("directory_born_nanos: {error}"))?;
        Ok(StoredManifest {
            manifest: Manifest { incarnation, join, datacenter, address, pid, started_micros },
            directory: DirectoryId { inode, born_nanos },
        })
    }

    /// The manifest in a directory: the outer error is the operating system's, the inner one says
    /// why the directory is no evidence.
    pub fn read(directory: &Path, incarnation: Incarnation) -> Result<Result<StoredManifest, Held>, OutputError> {
        let path = directory.join(MANIFEST);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Err(format!("{} is missing", path.display())));
            }
            Err(source) => return Err(OutputError::io("reading", &path)(source)),
        };
        let named = StoredManifest::decode(&bytes).and_then(|stored| {
            let named = stored.manifest.incarnation;
            if named == incarnation {
                return Ok(stored);
            }
            Err(format!("it belongs to {named}, the directory is that of {incarnation}"))
        });
        Ok(named.map_err(|why| format!("{}: {why}", path.display())))
    }

    /// Why the directory at this path is not the one that this manifest was written for. None also
    /// if there is none any more: whoever asks finds that out by himself.
    pub fn copy_fault(&self, directory: &Path) -> Result<Option<Held>, OutputError> {
        let made = self.directory;
        Ok(match DirectoryId::at(directory)? {
            Some(found) if !found.is_what_was_made(made) => Some(format!(
                "{} is a copy: its manifest names {made}, this is {found}; give the original, which its joiner made",
                directory.display()
            )),
            Some(_) | None => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> StoredManifest {
        let manifest = Manifest {
            incarnation: Incarnation([0xab; 16]),
            join: "ubi".into(),
            datacenter: "east".into(),
            address: "127.0.0.1:7070".into(),
            pid: 42,
            started_micros: 1_700_000_000_000_000,
        };
        let directory = DirectoryId { inode: u64::MAX - 1, born_nanos: Some(1_700_000_000_123_456_789) };
        StoredManifest { manifest, directory }
    }

    #[test]
    fn golden_bytes_go_round() {
        let bytes = manifest().encode();
        expect_test::expect![[r#"
            {"format":1,"incarnation":"abababababababababababababababab","join":"ubi","datacenter":"east","address":"127.0.0.1:7070","pid":42,"started_micros":1700000000000000,"directory_inode":"18446744073709551614","directory_born_nanos":"1700000000123456789"}
        "#]].assert_eq(std::str::from_utf8(&bytes).unwrap());
        assert_eq!(StoredManifest::decode(&bytes), Ok(manifest()));
        let mut no_birth = manifest();
        no_birth.directory.born_nanos = None;
        let bytes = no_birth.encode();
        assert!(bytes.ends_with(b"\"directory_born_nanos\":null}\n"));
        assert_eq!(StoredManifest::decode(&bytes), Ok(no_birth));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        let text = String::from_utf8(manifest().encode()).unwrap();
        let newer = text.replace("\"format\":1", "\"format\":7,\"shard\":3");
        assert!(StoredManifest::decode(newer.as_bytes()).unwrap_err().contains("format 7"));
        let unknown = text.replace("\"pid\"", "\"pids\"");
        assert!(StoredManifest::decode(unknown.as_bytes()).unwrap_err().contains("pids"));
        for (from, to, why) in [
            ("\"18446744073709551614\"", "\"18446744073709551616\"", "directory_inode"),
            ("\"1700000000123456789\"", "\"-1\"", "directory_born_nanos"),
            (",\"directory_inode\":\"18446744073709551614\"", "", "directory_inode"),
        ] {
            let error = StoredManifest::decode(text.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(StoredManifest::decode(b"").is_err());
    }

    #[test]
    fn a_directory_is_known_by_inode_and_birth() {
        let made = DirectoryId { inode: 7, born_nanos: Some(9) };
        let untold = DirectoryId { inode: 7, born_nanos: None };
        assert!(made.is_what_was_made(made));
        // The number was given again after the original was removed.
        assert!(!DirectoryId { inode: 7, born_nanos: Some(10) }.is_what_was_made(made));
        assert!(!DirectoryId { inode: 8, born_nanos: Some(9) }.is_what_was_made(made));
        assert!(!untold.is_what_was_made(made));
        assert!(made.is_what_was_made(untold) && untold.is_what_was_made(untold));
        assert!(!DirectoryId { inode: 8, born_nanos: None }.is_what_was_made(untold));
    }
}

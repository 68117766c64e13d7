//! Small files of facts: lines `name value` under a head that names kind and version, with a crc.
//!
//! Invariant: a file is believed only if all of it is as it was written. People can read it.
//!
//! ```text
//! photon registry-node 1
//! node 1
//! incarnation 000102030405060708090a0b0c0d0e0f
//! bucket_micros 3600000000
//! crc 5d41402a
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use photon_disk::DiskError;

use super::DataDirError;

/// The longest file of facts.
const FACTS_BYTES_MAX: u64 = 4096;

/// A kind of file and the version that this build writes and reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub name: &'static str,
    pub version: u32,
}

/// The text of a file.
pub(super) fn encode(kind: Kind, facts: &[(&str, String)]) -> String {
    let mut text = format!("photon {} {}\n", kind.name, kind.version);
    for (name, value) in facts {
        text.push_str(&format!("{name} {value}\n"));
    }
    let crc = crc32fast::hash(text.as_bytes());
    text.push_str(&format!("crc {crc:08x}\n"));
    text
}

/// Facts read from a file.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    path: &'a Path,
    facts: BTreeMap<String, String>,
}

impl<'a> Facts<'a> {
    /// None where there is no file.
    pub fn read(path: &'a Path, kind: Kind) -> Result<Option<Facts<'a>>, DataDirError> {
        Facts::read_up_to(path, kind, FACTS_BYTES_MAX)
    }

    /// As [`Facts::read`], for a kind whose files may be longer.
    pub fn read_up_to(path: &'a Path, kind: Kind, bytes_max: u64) -> Result<Option<Facts<'a>>, DataDirError> {
        let io = |error| DataDirError::Disk(DiskError::io("reading", path)(error));
        let bytes = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_file() && metadata.len() <= bytes_max => std::fs::read(path).map_err(io)?,
            Ok(_) => return Err(damage(path, "it is no small file")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        let text = str::from_utf8(&bytes).map_err(|_| damage(path, "it is not a text"))?;
        Ok(Some(Facts { path, facts: decode(path, kind, text)? }))
    }

    /// All facts, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.facts.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A fact that must be there.
    pub fn get<T: std::str::FromStr>(&self, name: &str) -> Result<T, DataDirError> {
        let value = self.facts.get(name).ok_or_else(|| damage(self.path, &format!("there is no {name:?} in it")))?;
        value.parse().map_err(|_| damage(self.path, &format!("{value:?} is no value of {name:?}")))
    }
}

fn decode(path: &Path, kind: Kind, text: &str) -> Result<BTreeMap<String, String>, DataDirError> {
    let head = text.lines().next().unwrap_or_default();
    let found = head.strip_prefix("photon ").and_then(|rest| rest.split_once(' '));
    let Some((name, version)) = found.filter(|(name, _)| *name == kind.name) else {
        return Err(damage(path, &format!("it does not begin with \"photon {}\"", kind.name)));
    };
    // Before the crc: a later version may have another one.
    if version != kind.version.to_string() {
        let (found, expected) = (format!("{name} {version}"), format!("{name} {}", kind.version));
        return Err(DataDirError::Format { path: path.to_owned(), found, expected });
    }
    let body = text.len().checked_sub("crc 00000000\n".len()).and_then(|at| text.split_at_checked(at));
    let (body, crc) = body.ok_or_else(|| damage(path, "it is cut short"))?;
    if crc != format!("crc {:08x}\n", crc32fast::hash(body.as_bytes())) {
        return Err(damage(path, "it does not have its crc"));
    }
    let fact = |line: &str| line.split_once(' ').map(|(name, value)| (name.to_owned(), value.to_owned()));
    body.lines().skip(1).map(fact).collect::<Option<_>>().ok_or_else(|| damage(path, "a line is no fact"))
}

fn damage(path: &Path, reason: &str) -> DataDirError {
    DataDirError::Damage { path: path.to_owned(), reason: reason.to_owned() }
}

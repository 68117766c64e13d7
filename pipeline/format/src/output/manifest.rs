//! The manifest of a joiner's incarnation: who it is, written once.
//!
//! Address, pid and start time stand here once, so that a token needs only incarnation and
//! sequence.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use photon_types::Incarnation;
use serde::{Deserialize, Serialize};

use super::error::OutputError;

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

    pub(crate) fn encode(&self) -> Vec<u8> {
        let file = ManifestFile {
            format: OUTPUT_FORMAT,
            incarnation: self.incarnation.to_string(),
            join: self.join.clone(),
            datacenter: self.datacenter.clone(),
            address: self.address.clone(),
            pid: self.pid,
            started_micros: self.started_micros,
        };
        let mut bytes = serde_json::to_vec(&file).expect("texts and numbers are JSON");
        bytes.push(b'\n');
        bytes
    }

    /// The manifest, or why these bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Manifest, String> {
        let FormatOnly { format } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if format != OUTPUT_FORMAT {
            return Err(format!("output format {format} is not known here, only {OUTPUT_FORMAT}"));
        }
        let file: ManifestFile = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let ManifestFile { format: _, incarnation, join, datacenter, address, pid, started_micros } = file;
        let incarnation = incarnation.parse().map_err(|error| format!("incarnation: {error}"))?;
        Ok(Manifest { incarnation, join, datacenter, address, pid, started_micros })
    }

    /// The manifest of a directory: the outer error is the operating system's, the inner one says
    /// why the directory is no evidence.
    pub(crate) fn read(path: &Path, incarnation: Incarnation) -> Result<Result<Manifest, String>, OutputError> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Err(format!("{} is missing", path.display())));
            }
            Err(source) => return Err(OutputError::io("reading", path)(source)),
        };
        let named = Manifest::decode(&bytes).and_then(|manifest| {
            if manifest.incarnation == incarnation {
                return Ok(manifest);
            }
            Err(format!("it belongs to {}, the directory is that of {incarnation}", manifest.incarnation))
        });
        Ok(named.map_err(|why| format!("{}: {why}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            incarnation: Incarnation([0xab; 16]),
            join: "ubi".into(),
            datacenter: "east".into(),
            address: "127.0.0.1:7070".into(),
            pid: 42,
            started_micros: 1_700_000_000_000_000,
        }
    }

    #[test]
    fn golden_bytes_go_round() {
        let bytes = manifest().encode();
        expect_test::expect![[r#"
            {"format":1,"incarnation":"abababababababababababababababab","join":"ubi","datacenter":"east","address":"127.0.0.1:7070","pid":42,"started_micros":1700000000000000}
        "#]].assert_eq(std::str::from_utf8(&bytes).unwrap());
        assert_eq!(Manifest::decode(&bytes), Ok(manifest()));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        let text = String::from_utf8(manifest().encode()).unwrap();
        let newer = text.replace("\"format\":1", "\"format\":7,\"shard\":3");
        assert!(Manifest::decode(newer.as_bytes()).unwrap_err().contains("format 7"));
        let unknown = text.replace("\"pid\"", "\"pids\"");
        assert!(Manifest::decode(unknown.as_bytes()).unwrap_err().contains("pids"));
        assert!(Manifest::decode(b"").is_err());
    }
}

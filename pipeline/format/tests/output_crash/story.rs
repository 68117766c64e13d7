//! One output, what is written to it, and what must be true of it after any crash.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use photon_format::output::{
    DataCheck, DirectoryScan, FenceOutcome, Files, IncarnationDirectory, JoinedLine, LineEntry, LockPolicy, Manifest,
    OutputError, OutputOptions, OutputWriter, ScanState, build_line, fence_with, list_incarnations, parse_line,
    scan_with,
};
use photon_types::{EventKey, Incarnation, Token};

use crate::disk::CrashDisk;

pub const INCARNATION: Incarnation = Incarnation([0xab; 16]);
/// Enough for two segments, the first with two blocks.
pub const BLOCKS: u64 = 3;

pub struct House {
    root: tempfile::TempDir,
    pub disk: Arc<CrashDisk>,
}

/// What the joiner was told, and what it tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub attempted: BTreeSet<u64>,
    pub answered: BTreeSet<u64>,
    pub ended_clean: bool,
}

impl House {
    pub fn new() -> House {
        // In memory: thousands of crashes, each with dozens of syncs.
        let shm = Path::new("/dev/shm");
        let root = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap();
        let disk = CrashDisk::new(&root.path().join("graveyard"));
        House { root, disk }
    }

    pub fn output(&self) -> PathBuf {
        self.root.path().join("output")
    }

    pub fn create(&self) -> Result<OutputWriter, OutputError> {
        self.create_as(INCARNATION, self.disk.files())
    }

    pub fn create_as(&self, incarnation: Incarnation, files: Files) -> Result<OutputWriter, OutputError> {
        let manifest = Manifest {
            incarnation,
            join: "ubi".into(),
            datacenter: "east".into(),
            address: "127.0.0.1:1".into(),
            pid: 1,
            started_micros: 1,
        };
        let options = OutputOptions { segment_bytes_max: block_bytes(0) + 1, files };
        OutputWriter::create(&self.output(), &manifest, options)
    }

    /// A whole life of a joiner, up to where the disk stops it.
    pub fn live(&self) -> Written {
        let mut written = Written::default();
        if let Ok(mut writer) = self.create() {
            for number in 0..BLOCKS {
                if !write(&mut writer, number, &mut written) {
                    return written;
                }
            }
            written.ended_clean = writer.seal().is_ok();
        }
        written
    }

    pub fn fence(&self, policy: LockPolicy) -> Result<FenceOutcome, OutputError> {
        fence_with(&self.disk.files(), &self.output(), INCARNATION, policy)
    }

    pub fn directory(&self) -> Option<IncarnationDirectory> {
        list_incarnations(&self.output()).unwrap().into_iter().find(|found| found.incarnation == INCARNATION)
    }

    pub fn path(&self) -> PathBuf {
        self.directory().expect("the incarnation is there").path()
    }

    /// The sequence numbers that count, each with its rows looked at.
    #[track_caller]
    pub fn counted(&self) -> (ScanState, BTreeSet<u64>) {
        let directory = self.directory().expect("the incarnation is there");
        let scan = scan_with(&self.disk.files(), &directory, DataCheck::Checksums).unwrap();
        let counted = look_at_rows(&scan);
        (scan.state, counted)
    }

    #[track_caller]
    pub fn check_held(&self, want: &str) {
        let (state, _) = self.counted();
        let ScanState::Held { reason } = state else { panic!("not held but {state:?}") };
        assert!(reason.contains(want), "{reason}");
        let outcome = self.fence(LockPolicy::TakeLock).unwrap();
        let FenceOutcome::Held { reason } = outcome else { panic!("not held but {outcome:?}") };
        assert!(reason.contains(want), "{reason}");
        assert!(self.seal_record().is_none(), "what is held is not sealed");
    }

    /// Fences, looks at the result, fences once more: nothing changes.
    #[track_caller]
    pub fn check_fenced(&self, want: &BTreeSet<u64>) {
        assert_eq!(self.fence(LockPolicy::TakeLock).unwrap(), FenceOutcome::Sealed);
        let record = self.seal_record().expect("it is sealed");
        assert_eq!(self.counted(), (ScanState::Sealed, want.clone()));
        self.check_finished(want);
        assert_eq!(self.fence(LockPolicy::TakeLock).unwrap(), FenceOutcome::Sealed);
        assert_eq!(self.seal_record().as_ref(), Some(&record));
        assert_eq!(self.counted(), (ScanState::Sealed, want.clone()));
        assert_eq!(self.fence(LockPolicy::NamedDead).unwrap(), FenceOutcome::Sealed);
    }

    pub fn seal_record(&self) -> Option<Vec<u8>> {
        fs::read(self.path().join("SEALED")).ok()
    }

    pub fn names(&self) -> BTreeSet<String> {
        let names = fs::read_dir(self.path()).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// What jq would read is what counts, and nothing half-done lies about.
    #[track_caller]
    fn check_finished(&self, want: &BTreeSet<u64>) {
        let names = self.names();
        assert!(!names.iter().any(|name| name.ends_with(".open") || name.starts_with('.')), "{names:?}");
        let mut joined = Vec::new();
        for name in names.iter().filter(|name| name.ends_with(".jsonl")) {
            joined.extend(fs::read(self.path().join(name)).unwrap());
        }
        let lines: Vec<u8> = want.iter().flat_map(|&sequence| line(sequence).line).collect();
        assert_eq!(joined, lines);
    }
}

/// Writes one block and notes what the joiner may answer.
pub fn write(writer: &mut OutputWriter, number: u64, written: &mut Written) -> bool {
    let lines = block(number);
    let sequences: Vec<u64> = lines.iter().map(|line| line.sequence).collect();
    written.attempted.extend(&sequences);
    let answered = writer.write_block(&lines).is_ok();
    if answered {
        written.answered.extend(&sequences);
    }
    answered
}

pub fn block(number: u64) -> Vec<LineEntry> {
    vec![line(number * 2 + 1), line(number * 2 + 2)]
}

fn block_bytes(number: u64) -> u64 {
    block(number).iter().map(|entry| entry.line.len() as u64).sum()
}

fn line(sequence: u64) -> LineEntry {
    let key = EventKey::new(1_700_000_000_000_000 + sequence, format!("click-{sequence}").as_bytes()).unwrap();
    let mut line = Vec::new();
    let click = format!("{{\"n\":{sequence}}}");
    let token = Token { incarnation: INCARNATION, sequence };
    let parts = JoinedLine {
        key: &key,
        token,
        primary_source: "queries",
        primary_offset: sequence,
        click: click.as_bytes(),
        query: b"{}",
    };
    build_line(&parts, &mut line);
    LineEntry { sequence, key, line }
}

fn look_at_rows(scan: &DirectoryScan) -> BTreeSet<u64> {
    let mut counted = BTreeSet::new();
    scan.visit_rows(|rows| {
        let want = line(rows.sequence);
        assert_eq!((rows.key, rows.rows), (&want.key, &want.line[..]));
        assert_eq!(parse_line(rows.rows).unwrap().token.sequence, rows.sequence);
        assert!(counted.insert(rows.sequence), "{} is there twice", rows.sequence);
        Ok::<(), OutputError>(())
    })
    .unwrap();
    assert_eq!(scan.clicks().map(|(sequence, _)| sequence).collect::<BTreeSet<_>>(), counted);
    counted
}

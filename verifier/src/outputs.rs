//! The outputs of all datacenters: who wrote there, what can be concluded, which lines count.
//!
//! Invariant: a directory's lines are fed to the judgement only when the whole directory could be
//! read, and then together with its evidence. With `repair` every incarnation that is dead, or named
//! so, is fenced before its lines are read; so the look-ups, which come later, are younger than
//! every seal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use photon_check::{Check, Evidence, Line, LinePlace};
use photon_disk::DiskError;
use photon_format::output::{
    DataCheck, DirectoryScan, FenceOutcome, IncarnationDirectory, LockPolicy, LockState, OutputError, ScanState,
    ScannedRows, fence, list_incarnations, scan_directory,
};
use photon_types::{Incarnation, Token};

use crate::content::{self, Verdict};
use crate::error::{self, VerifyError};
use crate::input::Input;
use crate::options::Progress;
use crate::report::{self, Report};

/// How often a directory that moves while it is read is looked for again. It moves once in its life.
const LOOKS_MAX: u32 = 8;

/// Lines between two words about progress.
const PROGRESS_LINES: u64 = 20_000;

/// What is asked of the outputs.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// Fence what is dead.
    pub repair: bool,
    /// Incarnations that an operator names dead.
    pub dead: &'a [Incarnation],
}

/// Lines whose records were not listed when they were read.
#[derive(Debug, Default)]
pub struct Unlisted(Vec<(DirectoryScan, BTreeSet<(u64, u64)>)>);

/// What was read of one incarnation.
struct Reading {
    evidence: Evidence,
    lines: Vec<Line>,
    wrong: report::Evidence,
    damage: Option<String>,
    unlisted: Option<(DirectoryScan, BTreeSet<(u64, u64)>)>,
}

impl Reading {
    fn without_lines(evidence: Evidence) -> Reading {
        Reading { evidence, lines: Vec::new(), wrong: report::Evidence::default(), damage: None, unlisted: None }
    }

    fn damaged(why: String) -> Reading {
        Reading { damage: Some(why), ..Reading::without_lines(Evidence::Damaged) }
    }
}

/// Why one look at a directory came to nothing.
enum Failed {
    /// It moved: look for it again.
    Moved,
    /// It can not be believed.
    Damaged(String),
    Error(VerifyError),
}

impl From<OutputError> for Failed {
    fn from(error: OutputError) -> Failed {
        match error {
            OutputError::Moved { .. } => Failed::Moved,
            ref damage if error::is_damage(damage) => Failed::Damaged(damage.to_string()),
            // What a rename or the end of a segment took away between two steps.
            OutputError::Disk(ref disk) if disk.is_not_found() => Failed::Moved,
            other => Failed::Error(other.into()),
        }
    }
}

impl From<VerifyError> for Failed {
    fn from(error: VerifyError) -> Failed {
        Failed::Error(error)
    }
}

/// Reads all outputs, fences with `repair`, and tells the check.
pub fn read(
    outputs: &[PathBuf],
    task: Task<'_>,
    input: &Input,
    check: &mut Check,
    report: &mut Report,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<Unlisted, VerifyError> {
    let mut unlisted = Unlisted::default();
    let mut lines = 0;
    for (incarnation, roots) in incarnations(outputs)? {
        let reading = match roots.as_slice() {
            [root] => read_one(root, incarnation, task, input, report, &mut |added| {
                lines += added;
                progress(Progress::Output { lines });
            })?,
            several => {
                let names: Vec<_> = several.iter().map(|root| root.display().to_string()).collect();
                Reading::damaged(format!("incarnation {incarnation} is in several outputs: {}", names.join(", ")))
            }
        };
        check.set_evidence(incarnation, reading.evidence);
        reading.lines.into_iter().for_each(|line| check.add_line(line));
        report.wrong_content.append(reading.wrong);
        reading.damage.into_iter().for_each(|why| report.damage.add(format!("incarnation {incarnation}: {why}")));
        unlisted.0.extend(reading.unlisted);
    }
    Ok(unlisted)
}

/// Refuses a name that no output has, before anything is changed: a slip of the pen must not look
/// like a fence.
pub fn refuse_unknown(outputs: &[PathBuf], dead: &[Incarnation]) -> Result<(), VerifyError> {
    if dead.is_empty() {
        return Ok(());
    }
    let known = incarnations(outputs)?;
    match dead.iter().find(|dead| !known.contains_key(dead)) {
        Some(dead) => Err(VerifyError::DeadUnknown { dead: *dead, searched: outputs.to_vec() }),
        None => Ok(()),
    }
}

fn incarnations(outputs: &[PathBuf]) -> Result<BTreeMap<Incarnation, Vec<PathBuf>>, VerifyError> {
    let mut all: BTreeMap<Incarnation, Vec<PathBuf>> = BTreeMap::new();
    for root in outputs {
        for directory in list_incarnations(root)? {
            all.entry(directory.incarnation).or_default().push(root.clone());
        }
    }
    Ok(all)
}

fn read_one(
    root: &Path,
    incarnation: Incarnation,
    task: Task<'_>,
    input: &Input,
    report: &mut Report,
    progress: &mut dyn FnMut(u64),
) -> Result<Reading, VerifyError> {
    let is_named_dead = task.dead.contains(&incarnation);
    for _ in 0..LOOKS_MAX {
        let Some(directory) = list_incarnations(root)?.into_iter().find(|it| it.incarnation == incarnation) else {
            return Ok(Reading::damaged(format!("it was in {} and is gone", root.display())));
        };
        if task.repair {
            let was_sealed = is_sealed(&directory);
            if !was_sealed || is_unfinished(&directory)? {
                let policy = if is_named_dead { LockPolicy::NamedDead } else { LockPolicy::TakeLock };
                match fence(root, incarnation, policy) {
                    Ok(FenceOutcome::Sealed) => report.repaired.fenced += u64::from(!was_sealed),
                    Ok(FenceOutcome::Busy) => (),
                    Ok(FenceOutcome::Held { reason }) => return Ok(Reading::damaged(reason)),
                    // The others can be judged all the same.
                    Err(damage) if error::is_damage(&damage) => return Ok(Reading::damaged(damage.to_string())),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        // It lies elsewhere after a fence.
        let Some(directory) = list_incarnations(root)?.into_iter().find(|it| it.incarnation == incarnation) else {
            continue;
        };
        match look(&directory, is_named_dead, input, progress) {
            Ok(reading) => return Ok(reading),
            Err(Failed::Moved) => (),
            Err(Failed::Damaged(why)) => return Ok(Reading::damaged(why)),
            Err(Failed::Error(error)) => return Err(error),
        }
    }
    // Somebody is at it: nothing is concluded in this run.
    Ok(Reading::without_lines(Evidence::Busy))
}

/// `SEALED` is there; whether it can be read is told by the scan.
fn is_sealed(directory: &IncarnationDirectory) -> bool {
    directory.path().join("SEALED").exists()
}

/// A sealed directory with open segments: its writer or its fence died before it was finished.
fn is_unfinished(directory: &IncarnationDirectory) -> Result<bool, VerifyError> {
    let path = directory.path();
    let entries = match std::fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(DiskError::io("listing", &path)(source).into()),
    };
    for entry in entries {
        let name = entry.map_err(DiskError::io("listing", &path))?.file_name();
        if Path::new(&name).extension().is_some_and(|extension| extension == "open") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn look(
    directory: &IncarnationDirectory,
    is_named_dead: bool,
    input: &Input,
    progress: &mut dyn FnMut(u64),
) -> Result<Reading, Failed> {
    // Checksums are checked block by block as the lines are read.
    let scan = scan_directory(directory, DataCheck::Lengths)?;
    let evidence = match &scan.state {
        ScanState::Sealed => Evidence::Sealed,
        ScanState::Held { reason } => return Err(Failed::Damaged(reason.clone())),
        ScanState::Unsealed | ScanState::Fencing if is_named_dead => Evidence::NamedDead,
        ScanState::Unsealed | ScanState::Fencing => match directory.lock_state()? {
            LockState::Busy => Evidence::Busy,
            LockState::Free => Evidence::Free,
            LockState::Missing if !directory.path().exists() => return Err(Failed::Moved),
            LockState::Missing => {
                let path = directory.path();
                return Err(Failed::Damaged(format!("{} has no lock: nobody can tell who lives", path.display())));
            }
        },
    };
    let mut reading = Reading::without_lines(evidence);
    let mut unlisted = BTreeSet::new();
    let mut told = 0;
    scan.visit_rows(|rows| -> Result<(), Failed> {
        let incarnation = directory.incarnation;
        let place = LinePlace { incarnation, segment: rows.segment, offset: rows.offset };
        let token = Token { incarnation, sequence: rows.sequence };
        reading.lines.push(Line { place, key: rows.key.clone(), token });
        match content::judge(input, incarnation, &rows)? {
            Verdict::Right => (),
            Verdict::Wrong(why) => reading.wrong.add(wrong(directory, &rows, &why)),
            Verdict::NotListed => drop(unlisted.insert((rows.segment, rows.offset))),
        }
        let read = reading.lines.len() as u64;
        if told + PROGRESS_LINES <= read {
            progress(read - told);
            told = read;
        }
        Ok(())
    })?;
    progress(reading.lines.len() as u64 - told);
    if !unlisted.is_empty() {
        reading.unlisted = Some((scan, unlisted));
    }
    Ok(reading)
}

fn wrong(directory: &IncarnationDirectory, rows: &ScannedRows<'_>, why: &str) -> String {
    let path = directory.path();
    format!("{}, segment {:010} at byte {}, click {}: {why}", path.display(), rows.segment, rows.offset, rows.key)
}

impl Unlisted {
    /// Whether every line was judged.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Judges what was put off, after the input was read further. What names records that do not
    /// exist is wrong now; a line without a click is a finding of the check's.
    pub fn judge(self, input: &Input, report: &mut Report) -> Result<(), VerifyError> {
        for (mut scan, places) in self.0 {
            let mut wrong_lines = report::Evidence::default();
            let mut outcome = Err(Failed::Moved);
            for _ in 0..LOOKS_MAX {
                wrong_lines = report::Evidence::default();
                outcome = judge_again(&scan, &places, input, &mut wrong_lines);
                let Err(Failed::Moved) = outcome else { break };
                let root = &scan.directory.output_root;
                let found = list_incarnations(root)?.into_iter().find(|it| it.incarnation == scan.incarnation());
                scan.directory = found.unwrap_or(scan.directory);
            }
            let incarnation = scan.incarnation();
            match outcome {
                Ok(()) => (),
                Err(Failed::Moved) => {
                    let count = places.len();
                    report
                        .notes
                        .add(format!("incarnation {incarnation}: {count} late lines were not judged, it moves"));
                }
                Err(Failed::Damaged(why)) => report.damage.add(format!("incarnation {incarnation}: {why}")),
                Err(Failed::Error(error)) => return Err(error),
            }
            report.wrong_content.append(wrong_lines);
        }
        Ok(())
    }
}

fn judge_again(
    scan: &DirectoryScan,
    places: &BTreeSet<(u64, u64)>,
    input: &Input,
    wrong_lines: &mut report::Evidence,
) -> Result<(), Failed> {
    scan.visit_rows(|rows| -> Result<(), Failed> {
        if !places.contains(&(rows.segment, rows.offset)) {
            return Ok(());
        }
        match content::judge(input, scan.incarnation(), &rows)? {
            Verdict::Right => (),
            Verdict::Wrong(why) => wrong_lines.add(wrong(&scan.directory, &rows, &why)),
            Verdict::NotListed if input.has(rows.key) => {
                wrong_lines.add(wrong(&scan.directory, &rows, "its query is not in the input"));
            }
            Verdict::NotListed => (),
        }
        Ok(())
    })
}

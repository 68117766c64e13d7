//! Reading the output of an incarnation, for who judges or delivers it.
//!
//! Invariant: a click is returned only if an entry covers it that every later fence will count too:
//! it is durable, and after it was read the directory was still in `live/`, or a seal record
//! lists it.
//!
//! Not here: stopping a writer (`fence`), and what a missing line means (the verifier).

use std::path::Path;

use photon_types::{EventKey, Incarnation};

use super::entry::IndexEntry;
use super::error::OutputError;
use super::evidence::{DataCheck, Evidence, read_block, read_sealed, read_sealed_copy, read_unsealed};
use super::files::Files;
use super::layout::{IncarnationDirectory, Place, live_path, sealed_path};
use super::manifest::{Manifest, StoredManifest};
use super::seal::SealRecord;
use super::{evidence, layout};

/// A writer that goes on to its next segment while its directory is listed can make it look as if
/// one were missing; so a directory that is not fenced is looked at so often before it is held.
const LOOKS_MAX: u32 = 5;

/// What an incarnation's directory says.
#[derive(Clone, Debug)]
pub struct DirectoryScan {
    /// Where it lay.
    pub directory: IncarnationDirectory,
    /// Who wrote it; none if that is what can not be read.
    pub manifest: Option<Manifest>,
    /// What may be concluded.
    pub state: ScanState,
    /// What counts, in order.
    pub segments: Vec<SegmentScan>,
}

/// What may be concluded from a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanState {
    /// Exactly these clicks are in it, for ever. Also a whole copy of such a directory.
    Sealed,
    /// These clicks are in it; more may come as long as nobody fences it.
    Unsealed,
    /// Somebody is fencing it, or died doing so: nothing counts before the seal record is there.
    Fencing,
    /// It is damaged, a part is missing, or it is a copy: a click that is not among these may have
    /// been.
    Held {
        /// What is wrong, and where.
        reason: String,
    },
}

/// What counts of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentScan {
    /// Its number.
    pub number: u64,
    /// Its blocks.
    pub blocks: Vec<IndexEntry>,
}

/// One click in the joined log, with its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedRows<'a> {
    /// The sequence number of its token.
    pub sequence: u64,
    /// Its key.
    pub key: &'a EventKey,
    /// Its segment.
    pub segment: u64,
    /// Where its rows begin in the segment.
    pub offset: u64,
    /// Its rows, each with its newline.
    pub rows: &'a [u8],
}

impl DirectoryScan {
    /// The joiner's life.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.directory.incarnation
    }

    /// All clicks that count: sequence number and key.
    pub fn clicks(&self) -> impl Iterator<Item = (u64, &EventKey)> {
        let blocks = self.segments.iter().flat_map(|segment| &segment.blocks);
        blocks.flat_map(|block| &block.clicks).map(|click| (click.sequence, &click.key))
    }

    /// Reads the rows of all clicks that count, block by block, and checks each block's crc.
    ///
    /// # Errors
    /// [`OutputError::Moved`] when the directory is not there any more, [`OutputError::Disk`] when a
    /// file can not be read or is damaged, and what `visit` says.
    pub fn visit_rows<E: From<OutputError>>(
        &self,
        mut visit: impl FnMut(ScannedRows<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let directory = self.directory.path();
        let mut bytes = Vec::new();
        for SegmentScan { number, blocks } in &self.segments {
            if blocks.is_empty() {
                continue;
            }
            let opened = self.open_data(&directory, *number)?;
            let (data, path) = opened.ok_or(OutputError::Moved { path: directory.clone() })?;
            for block in blocks {
                if let Some(reason) = read_block(&data, &path, block, &mut bytes)? {
                    let damage = photon_disk::DiskError::Damage { path, offset: block.offset, reason };
                    return Err(OutputError::from(damage).into());
                }
                visit_block(*number, block, &bytes, &mut visit)?;
            }
        }
        Ok(())
    }

    /// What a seal record lists is in the finished segment first: an open one is only its origin.
    fn open_data(
        &self,
        directory: &Path,
        number: u64,
    ) -> Result<Option<(std::fs::File, std::path::PathBuf)>, OutputError> {
        let path = layout::finished_path(directory, number);
        match evidence::open_if_there(&path)? {
            Some(file) => Ok(Some((file, path))),
            None => evidence::open_data(directory, number),
        }
    }
}

fn visit_block<E>(
    segment: u64,
    block: &IndexEntry,
    bytes: &[u8],
    visit: &mut impl FnMut(ScannedRows<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = 0;
    for click in &block.clicks {
        // An entry is good only if its rows fill its block.
        let rows_end = at + click.bytes as usize;
        let (offset, rows) = (block.offset + at as u64, &bytes[at..rows_end]);
        visit(ScannedRows { sequence: click.sequence, key: &click.key, segment, offset, rows })?;
        at = rows_end;
    }
    Ok(())
}

/// Reads a directory and makes what it returns durable.
///
/// # Errors
/// [`OutputError::Moved`] when the directory moved meanwhile: list again. [`OutputError::Disk`] when
/// a file can not be read. Damage is no error but [`ScanState::Held`].
pub fn scan_directory(directory: &IncarnationDirectory, check: DataCheck) -> Result<DirectoryScan, OutputError> {
    scan_with(&Files::default(), directory, check)
}

/// [`scan_directory`], each step told to a [`super::Watch`].
///
/// # Errors
/// As [`scan_directory`].
pub fn scan_with(
    files: &Files,
    directory: &IncarnationDirectory,
    check: DataCheck,
) -> Result<DirectoryScan, OutputError> {
    let mut scan = look(files, directory, check)?;
    for _ in 1..LOOKS_MAX {
        if directory.place != Place::Live || !matches!(scan.state, ScanState::Held { .. }) {
            break;
        }
        scan = look(files, directory, check)?;
    }
    Ok(scan)
}

fn look(files: &Files, directory: &IncarnationDirectory, check: DataCheck) -> Result<DirectoryScan, OutputError> {
    let path = directory.path();
    let held = |manifest, reason| DirectoryScan {
        directory: directory.clone(),
        manifest,
        state: ScanState::Held { reason },
        segments: Vec::new(),
    };
    let moved = || OutputError::Moved { path: path.clone() };
    let before = layout::Identity::at(&path)?.ok_or_else(moved)?;
    let stored = match StoredManifest::read(&path, directory.incarnation)? {
        Ok(stored) => stored,
        Err(why) => {
            still_there(&path, before)?;
            return Ok(held(None, why));
        }
    };
    let copy = stored.copy_fault(&path)?;
    let manifest = stored.manifest;
    if let Some(why) = in_both_places(directory)? {
        return Ok(held(Some(manifest), why));
    }
    let sealed = match SealRecord::read(files, &path, directory.incarnation)? {
        Ok(sealed) => sealed,
        Err(why) => return Ok(held(Some(manifest), why)),
    };
    let (state, Evidence { segments, held }) = match (&sealed, copy) {
        (Some(record), None) => {
            // Its name must stay, too.
            files.sync_directory(&path)?;
            (ScanState::Sealed, read_sealed(files, &path, record, check)?)
        }
        (Some(record), Some(why)) => {
            files.sync_directory(&path)?;
            let Evidence { segments, held } = read_sealed_copy(files, &path, record)?;
            (ScanState::Sealed, Evidence { segments, held: held.map(|more| format!("{why}; {more}")) })
        }
        (None, Some(why)) => (ScanState::Unsealed, Evidence { segments: Vec::new(), held: Some(why) }),
        (None, None) => match directory.place {
            Place::Live | Place::Both => (ScanState::Unsealed, read_unsealed(files, &path, check)?),
            Place::Sealed => {
                let Evidence { segments: _, held } = read_unsealed(files, &path, DataCheck::Lengths)?;
                (ScanState::Fencing, Evidence { segments: Vec::new(), held })
            }
        },
    };
    // A fence that moved it meanwhile may have read the index before the last entry was written.
    still_there(&path, before)?;
    let state = match held {
        Some(reason) => ScanState::Held { reason },
        None => state,
    };
    let scanned =
        |evidence: evidence::SegmentEvidence| SegmentScan { number: evidence.segment.number, blocks: evidence.entries };
    let segments = segments.into_iter().map(scanned).collect();
    Ok(DirectoryScan { directory: directory.clone(), manifest: Some(manifest), state, segments })
}

fn still_there(path: &Path, before: layout::Identity) -> Result<(), OutputError> {
    match layout::Identity::at(path)? {
        Some(now) if now == before => Ok(()),
        Some(_) | None => Err(OutputError::Moved { path: path.to_owned() }),
    }
}

/// An incarnation that lies in both places: one is a copy, and nobody can tell which.
fn in_both_places(directory: &IncarnationDirectory) -> Result<Option<String>, OutputError> {
    let live = live_path(&directory.output_root, directory.incarnation);
    let sealed = sealed_path(&directory.output_root, directory.incarnation);
    match (layout::Identity::at(&live)?, layout::Identity::at(&sealed)?) {
        (Some(one), Some(other)) if one != other => {
            Ok(Some(format!("{} and {} are both there: move the copy away", live.display(), sealed.display())))
        }
        (_, _) if directory.place == Place::Both => Err(OutputError::Moved { path: live }),
        (_, _) => Ok(None),
    }
}

//! What a directory proves: which entries count, or why it proves nothing.
//!
//! Invariant: what is counted is durable first. Every index and data file is synced after it was
//! read and before anything read from it is returned.
//!
//! Not here: who may look and when (`scan`), and the change from the first rule to the second
//! (`fence`). Without a seal record all good entries count; with one, only what it lists.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::entry::{IndexContent, IndexEntry, IndexTail, read_index};
use super::error::OutputError;
use super::files::Files;
use super::layout::{Identity, PRUNED, SegmentNames, file_names, finished_path, index_path, open_path, segments};
use super::seal::{FIRST_SEGMENT, SealRecord, SealedSegment};

/// How closely data is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataCheck {
    /// Each data file is long enough.
    Lengths,
    /// Each counted block has its crc.
    Checksums,
}

/// Why a directory proves nothing, or nothing beyond what was read so far.
pub(crate) type Held = String;

/// What counts of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentEvidence {
    pub segment: SealedSegment,
    pub entries: Vec<IndexEntry>,
}

/// What counts of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// From the first segment without a gap, up to what is held.
    pub segments: Vec<SegmentEvidence>,
    /// Why nothing is proven beyond these segments.
    pub held: Option<Held>,
}

impl Evidence {
    fn held(why: impl Into<Held>) -> Evidence {
        Evidence { segments: Vec::new(), held: Some(why.into()) }
    }
}

/// The evidence of a directory without a seal record.
pub(crate) fn read_unsealed(files: &Files, directory: &Path, check: DataCheck) -> Result<Evidence, OutputError> {
    let Some(names) = file_names(directory)? else {
        return Err(OutputError::Moved { path: directory.to_owned() });
    };
    if names.iter().any(|name| name == PRUNED) {
        return Ok(Evidence::held(format!("{} is of a later version", directory.join(PRUNED).display())));
    }
    let mut segments = segments(&names);
    if let Some(why) = drop_unbegun(directory, &mut segments)? {
        return Ok(Evidence::held(why));
    }
    let Some((&last, last_names)) = segments.last_key_value() else {
        return Ok(Evidence::held(format!("{} has neither a segment nor a seal record", directory.display())));
    };
    let mut evidence = Evidence::default();
    if !last_names.open || last_names.finished {
        // The next one is there before this one is finished: it was, and is lost.
        evidence.held = Some(format!("{} has neither an open segment nor a seal record", directory.display()));
    }
    for (number, (&found, &names)) in (FIRST_SEGMENT..).zip(&segments) {
        if found != number {
            evidence.held = Some(format!("segment {number} of {} is missing", directory.display()));
            return Ok(evidence);
        }
        let kind = if number == last && names.open { Kind::Open } else { Kind::Complete };
        match read_segment(files, directory, number, names, kind, check)? {
            Ok(segment) => evidence.segments.push(segment),
            Err(why) => {
                evidence.held = Some(why);
                return Ok(evidence);
            }
        }
    }
    Ok(evidence)
}

/// An empty index without data, behind all others, is what a crash left of a segment that was never
/// begun.
fn drop_unbegun(directory: &Path, segments: &mut BTreeMap<u64, SegmentNames>) -> Result<Option<Held>, OutputError> {
    while let Some(last) = segments.last_entry() {
        if last.get().open || last.get().finished {
            break;
        }
        let path = index_path(directory, *last.key());
        let bytes = open_if_there(&path)?.map(|file| file.metadata().map(|found| found.len())).transpose();
        if bytes.map_err(OutputError::io("stat of", &path))?.is_some_and(|bytes| 0 < bytes) {
            return Ok(Some(format!("{} has entries, but there is no data", path.display())));
        }
        last.remove();
    }
    Ok(None)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Entries may be torn, and bytes may lie behind the last block.
    Open,
    /// The writer went on to the next one: neither can be.
    Complete,
}

fn read_segment(
    files: &Files,
    directory: &Path,
    number: u64,
    names: SegmentNames,
    kind: Kind,
    check: DataCheck,
) -> Result<Result<SegmentEvidence, Held>, OutputError> {
    if let Some(why) = two_inodes(directory, number, names)? {
        return Ok(Err(why));
    }
    let index_path = index_path(directory, number);
    // The index first: whatever it covers was written before.
    let index = read_file(files, &index_path, u64::MAX)?;
    let Some((data, data_path)) = open_data(directory, number)? else {
        return Ok(Err(format!("segment {number} of {} has no data", directory.display())));
    };
    let data_bytes = data.metadata().map_err(OutputError::io("stat of", &data_path))?.len();
    let Some(index) = index else {
        if kind == Kind::Open && data_bytes == 0 {
            return Ok(Ok(SegmentEvidence {
                segment: sealed_segment(number, &[], &read_index(&[])),
                entries: Vec::new(),
            }));
        }
        return Ok(Err(format!("{} is missing", index_path.display())));
    };
    let content = read_index(&index);
    match (&content.tail, kind) {
        (IndexTail::Clean, Kind::Open | Kind::Complete) | (IndexTail::Torn { .. }, Kind::Open) => (),
        (IndexTail::Torn { bytes }, Kind::Complete) => {
            let (path, at) = (index_path.display(), content.index_end);
            return Ok(Err(format!("{path}: {bytes} bad bytes at {at}, but its segment was complete")));
        }
        (IndexTail::Damage { offset, why }, Kind::Open | Kind::Complete) => {
            return Ok(Err(format!("{}: at byte {offset}: {why}", index_path.display())));
        }
    }
    if kind == Kind::Complete && data_bytes != content.data_end {
        let (path, end) = (data_path.display(), content.data_end);
        return Ok(Err(format!("{path} has {data_bytes} bytes, its index covers {end}")));
    }
    if let Some(why) = data_fault(&data, &data_path, &content.entries, content.data_end, check)? {
        return Ok(Err(why));
    }
    files.sync_file(&data, &data_path)?;
    let segment = sealed_segment(number, &index, &content);
    Ok(Ok(SegmentEvidence { segment, entries: content.entries }))
}

fn sealed_segment(number: u64, index: &[u8], content: &IndexContent) -> SealedSegment {
    let prefix = usize::try_from(content.index_end).expect("the index was read into memory");
    SealedSegment {
        number,
        data_bytes: content.data_end,
        index_bytes: content.index_end,
        entries: content.entries.len() as u64,
        index_crc: crc32fast::hash(&index[..prefix]),
    }
}

/// A finished segment is the open one under a second name, until a seal record is there.
fn two_inodes(directory: &Path, number: u64, names: SegmentNames) -> Result<Option<Held>, OutputError> {
    if !names.open || !names.finished {
        return Ok(None);
    }
    let (open, finished) = (open_path(directory, number), finished_path(directory, number));
    match (Identity::at(&open)?, Identity::at(&finished)?) {
        (Some(one), Some(other)) if one != other => {
            Ok(Some(format!("{} and {} are two files", open.display(), finished.display())))
        }
        // The writer unlinks the open name meanwhile.
        (_, _) => Ok(None),
    }
}

/// The evidence of a directory with a seal record.
pub(crate) fn read_sealed(
    files: &Files,
    directory: &Path,
    record: &SealRecord,
    check: DataCheck,
) -> Result<Evidence, OutputError> {
    let mut evidence = Evidence::default();
    for &segment in &record.segments {
        match read_listed(files, directory, segment, check)? {
            Ok(entries) => evidence.segments.push(SegmentEvidence { segment, entries }),
            Err(why) => {
                evidence.held = Some(why);
                break;
            }
        }
    }
    Ok(evidence)
}

/// The evidence of a copy with a seal record, if it proves as much as the original does: nothing at
/// all unless every listed segment is there, finished, with its lengths and crcs.
///
/// A record may be copied before it is durable, and a power cut may then take it from the original,
/// which is sealed anew and lists more. The last segment gets its final name only after the record
/// is durable, and then has the length that this record lists: so it is the one that stands.
pub(crate) fn read_sealed_copy(files: &Files, directory: &Path, record: &SealRecord) -> Result<Evidence, OutputError> {
    if record.segments.is_empty() {
        return Ok(Evidence::held("its seal record lists nothing"));
    }
    for listed in &record.segments {
        let path = finished_path(directory, listed.number);
        if Identity::at(&path)?.is_none() {
            return Ok(Evidence::held(format!("a copy counts only when complete: {} is missing", path.display())));
        }
    }
    let evidence = read_sealed(files, directory, record, DataCheck::Checksums)?;
    Ok(match evidence.held {
        None => evidence,
        Some(why) => Evidence::held(why),
    })
}

fn read_listed(
    files: &Files,
    directory: &Path,
    listed: SealedSegment,
    check: DataCheck,
) -> Result<Result<Vec<IndexEntry>, Held>, OutputError> {
    let entries = match listed_entries(files, directory, listed)? {
        Ok(entries) => entries,
        Err(why) => return Ok(Err(why)),
    };
    for path in [finished_path(directory, listed.number), open_path(directory, listed.number)] {
        let Some(data) = open_if_there(&path)? else { continue };
        let fault = listed_data_fault(&data, &path, listed, &entries, check)?;
        if fault.is_none() {
            files.sync_file(&data, &path)?;
        }
        return Ok(match fault {
            None => Ok(entries),
            Some(why) => Err(why),
        });
    }
    if listed.data_bytes == 0 {
        return Ok(Ok(entries));
    }
    Ok(Err(format!("segment {} of {} has no data", listed.number, directory.display())))
}

/// The entries in the prefix of an index that a seal record lists.
pub(crate) fn listed_entries(
    files: &Files,
    directory: &Path,
    listed: SealedSegment,
) -> Result<Result<Vec<IndexEntry>, Held>, OutputError> {
    let path = index_path(directory, listed.number);
    let prefix = read_file(files, &path, listed.index_bytes)?.unwrap_or_default();
    let content = read_index(&prefix);
    if sealed_segment(listed.number, &prefix, &content) != listed || content.tail != IndexTail::Clean {
        return Ok(Err(format!("{} does not hold what the seal record lists", path.display())));
    }
    Ok(Ok(content.entries))
}

/// What is wrong with the data of a listed segment. A finished one has the listed length; behind
/// the listed end of an open one there may be anything.
pub(crate) fn listed_data_fault(
    data: &File,
    path: &Path,
    listed: SealedSegment,
    entries: &[IndexEntry],
    check: DataCheck,
) -> Result<Option<Held>, OutputError> {
    let bytes = data.metadata().map_err(OutputError::io("stat of", path))?.len();
    if path.extension().is_some_and(|kind| kind == "jsonl") && bytes != listed.data_bytes {
        let (path, listed) = (path.display(), listed.data_bytes);
        return Ok(Some(format!("{path} has {bytes} bytes, the seal record lists {listed}")));
    }
    data_fault(data, path, entries, listed.data_bytes, check)
}

fn data_fault(
    data: &File,
    path: &Path,
    entries: &[IndexEntry],
    data_end: u64,
    check: DataCheck,
) -> Result<Option<Held>, OutputError> {
    let bytes = data.metadata().map_err(OutputError::io("stat of", path))?.len();
    if bytes < data_end {
        return Ok(Some(format!("{} has {bytes} bytes, its index covers {data_end}", path.display())));
    }
    if check == DataCheck::Lengths {
        return Ok(None);
    }
    let mut block = Vec::new();
    for entry in entries {
        if let Some(why) = read_block(data, path, entry, &mut block)? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

/// Reads a block that lies within the file, and says what is wrong with it.
pub(crate) fn read_block(
    data: &File,
    path: &Path,
    entry: &IndexEntry,
    block: &mut Vec<u8>,
) -> Result<Option<Held>, OutputError> {
    block.resize(entry.length as usize, 0);
    data.read_exact_at(block, entry.offset).map_err(OutputError::io("reading", path))?;
    if crc32fast::hash(block) == entry.crc {
        return Ok(None);
    }
    let (path, number, at) = (path.display(), entry.number, entry.offset);
    Ok(Some(format!("{path}: block {number} at byte {at} does not match its checksum")))
}

/// The data of a segment, under the name it has now.
pub(crate) fn open_data(directory: &Path, number: u64) -> Result<Option<(File, PathBuf)>, OutputError> {
    // In this order: the writer finishes an open segment, never the reverse.
    for path in [open_path(directory, number), finished_path(directory, number)] {
        if let Some(file) = open_if_there(&path)? {
            return Ok(Some((file, path)));
        }
    }
    Ok(None)
}

pub(crate) fn open_if_there(path: &Path) -> Result<Option<File>, OutputError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OutputError::io("opening", path)(source)),
    }
}

/// Up to so many bytes of a file, made durable after they were read.
fn read_file(files: &Files, path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, OutputError> {
    let Some(file) = open_if_there(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    (&file).take(bytes_max).read_to_end(&mut bytes).map_err(OutputError::io("reading", path))?;
    files.sync_file(&file, path)?;
    Ok(Some(bytes))
}

//! Opening a journal: what is good, what is a torn tail, what is damage.
//!
//! In this order: S, the highest `synced` of every good head in every segment; the groups in
//! sequence from `first`; then [S, tail) is written again in place and synced. What follows (the
//! end, the fresh segment, the empty group) is in `write`.
//!
//! Invariant: nothing is changed on disk before everything below S has been found good.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use photon_core::{Ballot, Entry, Record};
use photon_disk::DiskError;
use photon_types::{GroupId, Slot};

use super::frame::{BLOCK_BYTES, FrameHead, Seed};
use super::index::SlotIndex;
use super::record::{RawRecord, Records, owned_value};
use super::segment::{self, Bad, SegmentReader};
use super::{JournalError, JournalPosition, Recovered, TornTail};

/// What the writer goes on from.
pub(super) struct Tail {
    /// Behind the last good group: everything below is synced. Its segment may be missing.
    pub at: JournalPosition,
    /// The sequence number of the next group.
    pub sequence: u64,
    /// The lowest segment still needed.
    pub first: u64,
    /// The segments that were read, and the others in the directory.
    pub kept: BTreeSet<u64>,
    pub stale: BTreeSet<u64>,
}

/// Who opens the journal, and what he knows already.
pub(super) struct Opening<'a> {
    pub dir: &'a Path,
    pub seed: &'a Seed,
    /// This boot: every group was written in a lower one.
    pub boot: u64,
    pub applied_ends: &'a BTreeMap<GroupId, Slot>,
    pub index: &'a SlotIndex,
}

impl Opening<'_> {
    pub fn recover(&self) -> Result<(Tail, Recovered), JournalError> {
        let present = segment::list(self.dir)?;
        let survey = self.survey(&present)?;
        let replay = self.replay(&survey)?;
        for (group, applied_end) in self.applied_ends {
            if let Some(slot) = self.index.first_missing(*group, *applied_end) {
                let (dir, group, applied_end) = (self.dir.to_owned(), *group, *applied_end);
                return Err(JournalError::SlotMissing { dir, group, slot, applied_end });
            }
        }
        self.write_again(&replay.unsure)?;
        let stale = present.difference(&replay.kept).copied().collect();
        let tail = Tail { at: replay.tail, sequence: replay.sequence, first: survey.first, kept: replay.kept, stale };
        Ok((tail, replay.content.into_recovered(replay.tail, replay.torn)))
    }

    /// Looks at every boundary of every segment; a scan that stopped at the first bad group could
    /// never see damage.
    fn survey(&self, present: &BTreeSet<u64>) -> Result<Survey, JournalError> {
        let mut synced: Option<JournalPosition> = None;
        // The lowest place at which each `first` is stated.
        let mut stated: BTreeMap<u64, JournalPosition> = BTreeMap::new();
        let mut bytes = 0;
        for number in present {
            let path = segment::path_of(self.dir, *number);
            let Some(file) = segment::open(self.dir, *number)? else { continue };
            let mut reader = SegmentReader::new(&file, &path, *number, self.seed)?;
            bytes += reader.file_bytes();
            let mut offset = 0;
            while offset < reader.file_bytes() {
                match reader.head_at(offset)? {
                    Ok(head) => {
                        synced = synced.max(Some(head.synced));
                        let at = JournalPosition { segment: *number, byte: offset };
                        stated.entry(head.first).and_modify(|lowest| *lowest = at.min(*lowest)).or_insert(at);
                        offset += head.padded_bytes();
                    }
                    Err(Bad(_)) => offset += BLOCK_BYTES,
                }
            }
        }
        let Some(synced) = synced else { return self.survey_of_a_virgin(present, bytes) };
        // A group that was never synced may state a `first` that does not hold.
        let first = stated.iter().rev().find(|(_, at)| **at < synced).or_else(|| stated.iter().next());
        let (first, _) = first.expect("a good head states a first segment");
        Ok(Survey { synced, first: *first })
    }

    /// No good head anywhere. So it is before the first start made its first group durable: one
    /// segment that holds one torn block at most.
    fn survey_of_a_virgin(&self, present: &BTreeSet<u64>, bytes: u64) -> Result<Survey, JournalError> {
        let refuse =
            |file: PathBuf, reason: &str| Err(JournalError::Damage { file, offset: 0, reason: reason.to_owned() });
        if present.is_empty() {
            return refuse(self.dir.to_owned(), "all segments are missing");
        }
        if present.iter().copied().ne([1]) || BLOCK_BYTES < bytes {
            let file = segment::path_of(self.dir, present.first().copied().unwrap_or(1));
            return refuse(file, "no segment has a good group: it belongs to another disk, or all is lost");
        }
        Ok(Survey { synced: JournalPosition { segment: 1, byte: 0 }, first: 1 })
    }

    fn replay(&self, survey: &Survey) -> Result<Replay, JournalError> {
        let mut replay = Replay {
            tail: JournalPosition { segment: survey.first, byte: 0 },
            sequence: 1,
            unsure: Vec::new(),
            kept: BTreeSet::new(),
            torn: None,
            content: Content::default(),
        };
        let mut before: Option<FrameHead> = None;
        loop {
            match self.replay_segment(survey, &mut replay, &mut before)? {
                Step::NextSegment(number) => replay.tail = JournalPosition { segment: number, byte: 0 },
                Step::Bad(bad) if replay.tail < survey.synced => return Err(self.damage(replay.tail, bad)),
                Step::Bad(_) => return Ok(replay),
            }
        }
    }

    /// Reads good groups from the tail on, up to the end or to the first that is not good.
    fn replay_segment(
        &self,
        survey: &Survey,
        replay: &mut Replay,
        before: &mut Option<FrameHead>,
    ) -> Result<Step, JournalError> {
        let number = replay.tail.segment;
        let path = segment::path_of(self.dir, number);
        let Some(file) = segment::open(self.dir, number)? else {
            return Ok(Step::Bad(Bad("the segment is missing")));
        };
        replay.kept.insert(number);
        let mut reader = SegmentReader::new(&file, &path, number, self.seed)?;
        loop {
            let at = replay.tail;
            let group = match reader.group_at(at.byte)? {
                Ok(group) => group,
                Err(bad) => {
                    let bytes = reader.file_bytes().saturating_sub(at.byte);
                    replay.torn = (bytes != 0).then_some(TornTail { file: path, offset: at.byte, bytes });
                    return Ok(Step::Bad(bad));
                }
            };
            let head = group.head;
            if let Some(bad) = gap(survey, before.as_ref(), &head) {
                let bytes = reader.file_bytes().saturating_sub(at.byte);
                replay.torn = Some(TornTail { file: path, offset: at.byte, bytes });
                return Ok(Step::Bad(bad));
            }
            if self.boot <= head.life {
                let (offset, life, boot) = (at.byte, head.life, self.boot);
                return Err(JournalError::RolledBack { file: path, offset, life, boot });
            }
            let end = self.take_records(&path, at, group.body(), &mut replay.content)?;
            if survey.synced <= at {
                replay.unsure.push((at, head.padded_bytes()));
            }
            replay.sequence = head.sequence + 1;
            replay.tail.byte += head.padded_bytes();
            *before = Some(head);
            if let Some(next) = end {
                return Ok(Step::NextSegment(next));
            }
        }
    }

    /// Takes what a group says. Returns the segment that follows, if this group is an end.
    fn take_records(
        &self,
        path: &Path,
        at: JournalPosition,
        body: &[u8],
        content: &mut Content,
    ) -> Result<Option<u64>, JournalError> {
        let refuse = |reason: String| JournalError::Format { file: path.to_owned(), offset: at.byte, reason };
        let mut end = None;
        for record in Records::of(body) {
            match record.map_err(|error| refuse(error.to_string()))? {
                RawRecord::Birth(bytes) => match &content.birth {
                    Some(known) if known != bytes => return Err(refuse("a second birth record that differs".into())),
                    Some(_) => (),
                    None => content.birth = Some(owned_value(bytes)),
                },
                RawRecord::Promise { group, ballot } => content.group(group).promise(ballot),
                RawRecord::Accepted { group, ballot, slot, value, chosen } => {
                    self.index.insert(group, slot, at);
                    let is_applied = self.applied_ends.get(&group).is_some_and(|applied_end| slot < *applied_end);
                    let content = content.group(group);
                    if is_applied && chosen {
                        continue;
                    } else if is_applied {
                        content.promise(ballot);
                    } else {
                        content.accepted(Entry { slot, ballot, value: owned_value(value) }, chosen);
                    }
                }
                RawRecord::CommitHint { group, commit_end } => content.group(group).commit_hint(commit_end),
                RawRecord::End { next_segment } if at.segment < next_segment => end = Some(next_segment),
                RawRecord::End { next_segment } => {
                    return Err(refuse(format!("an end that leads back to segment {next_segment}")));
                }
            }
        }
        Ok(end)
    }

    /// Writes groups once more where they are, and syncs: what was read back may come from a page
    /// that the kernel failed to write and calls clean. The page cache is not the disk.
    fn write_again(&self, unsure: &[(JournalPosition, u64)]) -> Result<(), JournalError> {
        let mut open: Option<(u64, PathBuf, File)> = None;
        for (at, bytes) in unsure {
            if open.as_ref().is_none_or(|(number, ..)| *number != at.segment) {
                sync(open.take())?;
                let file = segment::open(self.dir, at.segment)?
                    .ok_or_else(|| self.damage(*at, Bad("the segment vanished while it was recovered")))?;
                open = Some((at.segment, segment::path_of(self.dir, at.segment), file));
            }
            let (_, path, file) = open.as_ref().expect("opened above");
            let mut group = vec![0; usize::try_from(*bytes).expect("a group fits memory")];
            file.read_exact_at(&mut group, at.byte).map_err(DiskError::io("reading", path))?;
            file.write_all_at(&group, at.byte).map_err(DiskError::io("writing", path))?;
        }
        sync(open)
    }

    fn damage(&self, at: JournalPosition, bad: Bad) -> JournalError {
        let file = segment::path_of(self.dir, at.segment);
        JournalError::Damage { file, offset: at.byte, reason: bad.0.to_owned() }
    }
}

fn sync(open: Option<(u64, PathBuf, File)>) -> Result<(), JournalError> {
    let Some((_, path, file)) = open else { return Ok(()) };
    Ok(file.sync_all().map_err(DiskError::io("fsync of", &path))?)
}

/// A good group that does not follow the one before it: a remnant of an earlier life.
fn gap(survey: &Survey, before: Option<&FrameHead>, head: &FrameHead) -> Option<Bad> {
    match before {
        Some(before) if head.sequence != before.sequence + 1 => Some(Bad("a gap in the sequence of groups")),
        Some(before) if head.life < before.life => Some(Bad("a group of an earlier life than the one before it")),
        Some(_) => None,
        // Behind a trimmed beginning the sequence goes on with any number.
        None if survey.first == 1 && head.sequence != 1 => Some(Bad("the journal does not begin with its first group")),
        None => None,
    }
}

struct Survey {
    /// S: everything below was synced once.
    synced: JournalPosition,
    first: u64,
}

struct Replay {
    tail: JournalPosition,
    sequence: u64,
    /// Good groups at or above S, with their bytes on disk.
    unsure: Vec<(JournalPosition, u64)>,
    /// Segments that were read, the one of the tail included if it is there.
    kept: BTreeSet<u64>,
    torn: Option<TornTail>,
    content: Content,
}

enum Step {
    NextSegment(u64),
    Bad(Bad),
}

#[derive(Default)]
struct Content {
    birth: Option<Bytes>,
    groups: BTreeMap<GroupId, GroupContent>,
}

impl Content {
    fn group(&mut self, group: GroupId) -> &mut GroupContent {
        self.groups.entry(group).or_default()
    }

    fn into_recovered(self, recovered_end: JournalPosition, torn: Option<TornTail>) -> Recovered {
        let records = self.groups.into_iter().map(|(group, content)| (group, content.into_records())).collect();
        Recovered { birth: self.birth, records, recovered_end, torn }
    }
}

/// The records of one replication group, without those that change nothing.
#[derive(Default)]
struct GroupContent {
    records: Vec<Record>,
    /// The highest ballot promised so far, by a promise or by accepting at it.
    promised: Option<Ballot>,
    commit_end: Slot,
}

impl GroupContent {
    fn promise(&mut self, ballot: Ballot) {
        if self.promised < Some(ballot) {
            self.promised = Some(ballot);
            self.records.push(Record::Promise { ballot });
        }
    }

    fn accepted(&mut self, entry: Entry, chosen: bool) {
        if !chosen {
            self.promised = self.promised.max(Some(entry.ballot));
        }
        self.records.push(Record::Accepted { entry, chosen });
    }

    fn commit_hint(&mut self, commit_end: Slot) {
        self.commit_end = self.commit_end.max(commit_end);
    }

    /// The one hint that counts stands last, behind the entries that it speaks of.
    fn into_records(mut self) -> Vec<Record> {
        if Slot(0) < self.commit_end {
            self.records.push(Record::CommitHint { commit_end: self.commit_end });
        }
        self.records
    }
}

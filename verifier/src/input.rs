//! The input as the verifier reads it: which sources there are, where each click lies, and the
//! records that joined lines must be made of.
//!
//! Invariant: records are read with the scanner that dispatchers and event readers use, so they are
//! cut and keyed alike; and nothing behind the listed sizes is judged.
//!
//! Keys, places and a hash of each reference are kept in memory, payloads are not: they are read
//! again where needed. Queries are not kept at all: they are read for the clicks that somebody
//! recorded as unjoinable, and only what these name is looked for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use photon_check::{Check, Click, Place, Progress as Settled};
use photon_format::config::{Config, Role};
use photon_format::extract::{Classified, Extractor, JoinId};
use photon_format::source::{Finished, Scanned, Scanner, SourceFile, SourceList};
use photon_types::EventKey;
use xxhash_rust::xxh3::xxh3_128;

use crate::error::VerifyError;
use crate::options::Progress;
use crate::report::Evidence;
use crate::reread::{Reread, Rereader};

/// Bytes between two words about progress.
const PROGRESS_BYTES: u64 = 16 * 1024 * 1024;

/// Whether the input may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Files may grow, and new ones may come.
    Follow,
    /// Files and sizes were listed for good.
    Final,
}

/// The sources, and what was read of them.
pub struct Input {
    /// Stable numbers for names: a [`Place`] has the number.
    files: Vec<SourceFile>,
    numbers: HashMap<String, u32>,
    extractors: Vec<Arc<Extractor>>,
    rereader: Rereader,
    growth: Growth,
    /// Up to where whole records were found, by number.
    read_ends: Vec<u64>,
    clicks: HashMap<EventKey, At>,
    /// Further places of the same key.
    repeated: BTreeMap<EventKey, Vec<At>>,
    /// Queries that clicks were recorded not to have, and that were found.
    queries: HashMap<QueryHash, Place>,
}

/// Where a click lies, and what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    place: Place,
    end: u64,
    reference: Option<QueryHash>,
}

/// A query's id, in 16 bytes. Two ids of one hash would only make a click be tried once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct QueryHash([u8; 16]);

impl QueryHash {
    fn of(id: &JoinId) -> QueryHash {
        QueryHash(xxh3_128(id.as_bytes()).to_le_bytes())
    }
}

impl Input {
    /// An input without files.
    pub fn new(config: &Config, growth: Growth) -> Input {
        Input {
            files: Vec::new(),
            numbers: HashMap::new(),
            extractors: Extractor::of_all_inputs(config).into_iter().map(Arc::new).collect(),
            rereader: Rereader::new(config),
            growth,
            read_ends: Vec::new(),
            clicks: HashMap::new(),
            repeated: BTreeMap::new(),
            queries: HashMap::new(),
        }
    }

    /// Takes files that were not there before, and the longest copy of each. The same names mean the
    /// same records everywhere.
    pub fn grow(&mut self, list: &SourceList) {
        for file in list.files() {
            match self.number(&file.name) {
                Some(number) => {
                    let known = &mut self.files[number as usize];
                    if known.size < file.size {
                        *known = file.clone();
                    }
                }
                None => {
                    let number = u32::try_from(self.files.len()).expect("far fewer than 2^32 files are listed");
                    self.numbers.insert(file.name.clone(), number);
                    self.files.push(file.clone());
                    self.read_ends.push(0);
                }
            }
        }
    }

    /// The number of a source.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// The name of the source at a place that this input gave.
    pub fn name(&self, place: Place) -> &str {
        &self.files[place.source as usize].name
    }

    /// The names, by number.
    pub fn names(&self) -> Vec<String> {
        self.files.iter().map(|file| file.name.clone()).collect()
    }

    /// Whether the input may grow.
    pub fn growth(&self) -> Growth {
        self.growth
    }

    /// Up to where each source has whole records that were read.
    pub fn read_ends(&self) -> impl Iterator<Item = (&str, u64)> {
        self.files.iter().zip(&self.read_ends).map(|(file, end)| (file.name.as_str(), *end))
    }

    /// Reads all sources of clicks up to their listed sizes, from where the last call ended, and
    /// gives each click to `add` with the name of its source and the end of its record.
    pub fn scan(
        &mut self,
        mut add: impl FnMut(&str, Click, u64),
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Evidence, VerifyError> {
        let mut unread = Evidence::default();
        let bytes_end = self.files.iter().map(|file| file.size).sum();
        let (mut bytes, mut told) = (0, 0);
        for number in 0..self.files.len() {
            let file = self.files[number].clone();
            let extractor = self.extractors[file.input.0].clone();
            if extractor.has(Role::Foreign) && self.read_ends[number] < file.size {
                let mut scanner = Scanner::open(&file, extractor, self.read_ends[number], file.size)?;
                while let Some(scanned) = scanner.next_scanned()? {
                    self.take(number, &scanned, &mut add);
                    if told + PROGRESS_BYTES < bytes + scanned.frame.end() {
                        told = bytes + scanned.frame.end();
                        progress(Progress::Input { bytes: told, bytes_end });
                    }
                }
                self.read_ends[number] = scanner.position();
                if self.growth == Growth::Final {
                    self.finish(number, &mut scanner, &mut add, &mut unread);
                }
            }
            bytes += file.size;
        }
        progress(Progress::Input { bytes, bytes_end });
        Ok(unread)
    }

    fn finish(
        &mut self,
        number: usize,
        scanner: &mut Scanner,
        add: &mut impl FnMut(&str, Click, u64),
        unread: &mut Evidence,
    ) {
        match scanner.finish() {
            Finished::Clean => (),
            Finished::Scanned(scanned) => {
                self.read_ends[number] = scanned.frame.end();
                self.take(number, &scanned, add);
            }
            Finished::Unread { offset, bytes, why } => {
                let name = &self.files[number].name;
                unread.add(format!("{name}:{offset}: the last {bytes} bytes are not read: {why}"));
            }
        }
    }

    fn take(&mut self, number: usize, scanned: &Scanned<'_>, add: &mut impl FnMut(&str, Click, u64)) {
        let (key, reference) = match &scanned.classified {
            Classified::Foreign { key, reference, .. } => (Some(key.clone()), Some(QueryHash::of(reference))),
            Classified::DeadLetter { role: Role::Foreign, key, .. } => (key.clone(), None),
            Classified::DeadLetter { role: Role::Primary, .. }
            | Classified::Primary { .. }
            | Classified::NotSelected
            | Classified::Skipped { .. } => return,
        };
        let source = u32::try_from(number).expect("numbers are given as u32");
        let place = Place { source, offset: scanned.frame.offset() };
        let at = At { place, end: scanned.frame.end(), reference };
        if let Some(key) = &key {
            self.remember(key, at);
        }
        // The caller says whether it is settled.
        add(&self.files[number].name, Click { place: at.place, key, progress: Settled::Unsettled }, at.end);
    }

    fn remember(&mut self, key: &EventKey, at: At) {
        match self.clicks.get(key) {
            None => drop(self.clicks.insert(key.clone(), at)),
            Some(first) if *first == at => (),
            Some(_) => self.repeated.entry(key.clone()).or_default().push(at),
        }
    }

    /// Reads all sources of queries up to their listed sizes, and looks for those that these clicks
    /// name. Without such a click nothing is read.
    pub fn find_queries<'a>(
        &mut self,
        keys: impl Iterator<Item = &'a EventKey>,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<(), VerifyError> {
        let mut wanted: HashSet<QueryHash> =
            keys.flat_map(|key| self.places(key)).filter_map(|at| at.reference).collect();
        let is_wanted = |file: &SourceFile| self.extractors[file.input.0].has(Role::Primary);
        let sources: Vec<usize> = (0..self.files.len()).filter(|number| is_wanted(&self.files[*number])).collect();
        let bytes_end = sources.iter().map(|number| self.files[*number].size).sum();
        let (mut bytes, mut told) = (0, 0);
        for number in sources {
            if wanted.is_empty() {
                break;
            }
            let file = self.files[number].clone();
            let mut scanner = Scanner::open(&file, self.extractors[file.input.0].clone(), 0, file.size)?;
            while let Some(scanned) = scanner.next_scanned()? {
                self.take_query(number, &scanned, &mut wanted);
                if told + PROGRESS_BYTES < bytes + scanned.frame.end() {
                    told = bytes + scanned.frame.end();
                    progress(Progress::Input { bytes: told, bytes_end });
                }
            }
            if self.growth == Growth::Final
                && let Finished::Scanned(scanned) = scanner.finish()
            {
                self.take_query(number, &scanned, &mut wanted);
            }
            bytes += file.size;
        }
        Ok(())
    }

    fn take_query(&mut self, number: usize, scanned: &Scanned<'_>, wanted: &mut HashSet<QueryHash>) {
        let hash = match &scanned.classified {
            Classified::Primary { id, .. } => QueryHash::of(id),
            Classified::Foreign { .. }
            | Classified::DeadLetter { .. }
            | Classified::NotSelected
            | Classified::Skipped { .. } => return,
        };
        if wanted.remove(&hash) {
            let source = u32::try_from(number).expect("numbers are given as u32");
            self.queries.insert(hash, Place { source, offset: scanned.frame.offset() });
        }
    }

    /// Where a query lies that a click with this key names, if it was looked for and found.
    pub fn query_of(&self, key: &EventKey) -> Option<Place> {
        self.places(key).filter_map(|at| at.reference).find_map(|reference| self.queries.get(&reference).copied())
    }

    /// Whether this query was looked for and found.
    pub fn has_query(&self, id: &JoinId) -> bool {
        self.queries.contains_key(&QueryHash::of(id))
    }

    fn places(&self, key: &EventKey) -> impl Iterator<Item = &At> {
        self.clicks.get(key).into_iter().chain(self.repeated.get(key).into_iter().flatten())
    }

    /// The records that have this key, read again.
    pub fn clicks(&self, key: &EventKey) -> Result<Vec<(Place, Reread)>, VerifyError> {
        self.places(key).map(|at| Ok((at.place, self.read(at.place, Some(at.end))?))).collect()
    }

    /// Whether a record with this key was found.
    pub fn has(&self, key: &EventKey) -> bool {
        self.clicks.contains_key(key)
    }

    /// Whether this place was listed.
    pub fn is_listed(&self, name: &str, offset: u64) -> bool {
        self.number(name).is_some_and(|number| offset < self.files[number as usize].size)
    }

    /// Reads the record at a place that is listed. Where none begins, there is some other thing.
    pub fn read_at(&self, name: &str, offset: u64) -> Result<Option<Reread>, VerifyError> {
        match self.number(name) {
            Some(source) if self.is_listed(name, offset) => self.read(Place { source, offset }, None).map(Some),
            Some(_) | None => Ok(None),
        }
    }

    fn read(&self, place: Place, end: Option<u64>) -> Result<Reread, VerifyError> {
        let file = &self.files[place.source as usize];
        Ok(self.rereader.read(file, &self.extractors[file.input.0], place.offset, end)?)
    }
}

/// Reads what came since the input was read, and tells the check which clicks explain lines.
pub fn scan_late(
    input: &mut Input,
    check: &mut Check,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<(), VerifyError> {
    let late = |_: &str, click: Click, _: u64| {
        if let Some(key) = click.key {
            check.add_late_click(key);
        }
    };
    // What is not whole by now is not read: its dispatcher did not read it either.
    input.scan(late, progress).map(|_unread| ())
}

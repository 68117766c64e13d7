//! What one datacenter's dispatcher has written down: cursor, retry store, ends.
//!
//! Invariant: the cursor is read first, then the retry store, then the ends. So whatever the cursor
//! has passed is in one of the other two, or has an answer.
//!
//! A datacenter whose directory is not there is not reachable: nothing is concluded from what it
//! does not say. Files that can not be believed are damage, and settle nothing.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use photon_check::{Check, DatacenterLedger, End, EndState, Place};
use photon_disk::DiskError;
use photon_disk::durable::LOCK_NAME;
use photon_disk::lock::LockFile;
use photon_format::config::{Config, Datacenter};
use photon_format::cursor::{Cursor, SourceCursor};
use photon_format::retry::RetryContent;
use photon_format::source::SourceList;
use photon_format::{ends, retry};
use photon_types::EventKey;

use crate::input::Input;
use crate::report::{DatacenterReport, Report};

/// Which source an end speaks of when nobody listed it: no place of a click has it.
const SOURCE_UNKNOWN: u32 = u32::MAX;

/// What a datacenter says.
pub struct DatacenterState {
    /// Its name.
    pub name: String,
    /// Its output.
    pub output: PathBuf,
    /// Why it could not be read.
    pub unreachable: Option<String>,
    /// Its ledger, once it has one.
    pub ledger: Option<DatacenterLedger>,
    /// Its dispatcher runs: its files are of different moments.
    pub is_running: bool,
    /// Cursor or retry store can not be believed: it says nothing about any record.
    pub is_damaged: bool,
    /// Up to where each source is passed.
    passed: BTreeMap<String, u64>,
    /// Keys in its retry store.
    retried: HashSet<EventKey>,
    ends: PathBuf,
}

impl DatacenterState {
    /// Reads cursor and retry store. `list` is the input as it lies there: a cursor of another file
    /// under the same name has passed nothing of it.
    pub fn read(config: &Config, datacenter: &Datacenter, list: Option<&SourceList>, report: &mut Report) -> Self {
        let directory = config.dispatcher_dir(&datacenter.name);
        let mut state = DatacenterState {
            name: datacenter.name.clone(),
            output: config.output_dir(&datacenter.name),
            unreachable: None,
            ledger: None,
            is_running: is_locked(&directory.join(LOCK_NAME)),
            is_damaged: false,
            passed: BTreeMap::new(),
            retried: HashSet::new(),
            ends: directory.join("ends"),
        };
        let root = config.datacenter_dir(&datacenter.name);
        if let Err(error) = std::fs::read_dir(&root) {
            state.unreachable = Some(format!("{}: {error}", root.display()));
            return state;
        }
        let cursor = Cursor::load(&directory.join("cursor"));
        let content = retry::read(&directory.join("retry"));
        // What waits there waits, whatever the cursor says.
        state.retried = content.iter().flat_map(RetryContent::iter).map(|(_, record)| record.key.clone()).collect();
        let (cursor, content) = match (cursor, content) {
            (Ok(cursor), Ok(content)) => (cursor, content),
            (cursor, content) => {
                let damage = &mut report.damage;
                cursor.err().into_iter().for_each(|error| damage.add(format!("cursor of {}: {error}", state.name)));
                let retry = content.err().into_iter();
                retry.for_each(|error| damage.add(format!("retry store of {}: {error}", state.name)));
                state.is_damaged = true;
                return state; // Nothing is passed.
            }
        };
        state.ledger = cursor.as_ref().map(|cursor| ledger(cursor, content.len()));
        let sources = cursor.map_or_else(BTreeMap::new, |cursor| cursor.sources);
        let is_same = |name: &str, cursor: &SourceCursor| {
            let file = list.and_then(|list| list.get(name));
            file.is_some_and(|file| (file.identity.device, file.identity.inode) == (cursor.device, cursor.inode))
        };
        state.passed = sources
            .into_iter()
            .filter(|(name, cursor)| is_same(name, cursor))
            .map(|(name, cursor)| (name, cursor.offset))
            .collect();
        state
    }

    /// Whether its dispatcher's cursor has passed a record.
    pub fn has_passed(&self, source: &str, record_end: u64) -> bool {
        record_end <= self.passed_end(source)
    }

    /// Up to where its dispatcher's cursor has passed a source.
    pub fn passed_end(&self, source: &str) -> u64 {
        self.passed.get(source).copied().unwrap_or(0)
    }

    /// Whether its dispatcher keeps a click, to try it again.
    pub fn keeps(&self, key: &EventKey) -> bool {
        self.retried.contains(key)
    }

    /// Reads the ends.
    pub fn read_ends(&self, input: &Input, check: &mut Check, report: &mut Report) {
        if self.unreachable.is_some() {
            return;
        }
        // What was visited counts only when the whole file could be read.
        let mut found = Vec::new();
        let read = ends::read_with(&self.ends, |record| {
            let state = match record.state {
                ends::EndState::Unjoinable => EndState::Unjoinable,
                ends::EndState::Filtered => EndState::Filtered,
                ends::EndState::Expired | ends::EndState::ExpiredInDoubt => EndState::Expired,
                ends::EndState::DeadLettered { raw: _ } => EndState::DeadLettered,
            };
            let source = input.number(&record.source).unwrap_or(SOURCE_UNKNOWN);
            found.push(End { place: Place { source, offset: record.offset }, key: record.key, state });
        });
        match read {
            Ok(()) => found.into_iter().for_each(|end| check.add_end(end)),
            Err(error) => report.damage.add(format!("ends of {}: {error}", self.name)),
        }
    }

    /// What is reported of it.
    pub fn report(&self) -> DatacenterReport {
        DatacenterReport {
            name: self.name.clone(),
            unreachable: self.unreachable.clone(),
            ledger: self.ledger,
            is_running: self.is_running,
        }
    }
}

fn ledger(cursor: &Cursor, retried: usize) -> DatacenterLedger {
    let photon_format::cursor::Counts {
        read,
        reinjected,
        joined,
        claimed,
        filtered,
        unjoinable,
        expired,
        dead_lettered,
        skipped: _,
    } = cursor.total();
    DatacenterLedger {
        read,
        reinjected,
        joined,
        claimed,
        filtered,
        unjoinable,
        expired,
        dead_lettered,
        pending: retried as u64,
    }
}

/// Whether somebody holds a lock. What can not be looked at is not held.
fn is_locked(path: &Path) -> bool {
    matches!(LockFile::try_shared(path), Err(DiskError::Busy { .. }))
}

//! The ends of clicks that are not joined: unjoinable, filtered, expired, dead-lettered.
//!
//! Invariant: an end is durable before the cursor moves over its record, so no record vanishes
//! silently. A crash in between repeats it: the file is read as a set, by source and offset, and
//! the last one stands.
//!
//! A framed append file of `photon-disk`. Body, big-endian: state (1), source (4 + n), offset (8),
//! key (0, or 1 and timestamp (8), length (1), id), reason (4 + n), and of a dead letter the raw
//! bytes (4 + n).

use std::collections::BTreeMap;
use std::path::Path;

use photon_disk::framed::{self, Format, FramedWriter};
use photon_types::EventKey;

use crate::cursor::Ended;
use crate::fields::{Fields, put_key, put_optional, put_sized};
use crate::state::StateError;

/// Kind and version of the file.
pub const ENDS_FORMAT: Format = Format { kind: u32::from_be_bytes(*b"ends"), version: 1 };

/// The end of one record that is not in the joined log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndRecord {
    /// The source's stable name.
    pub source: String,
    /// The first byte of the record in it.
    pub offset: u64,
    /// Its key; none if none could be made.
    pub key: Option<EventKey>,
    /// What became of it.
    pub state: EndState,
    /// Why, for people.
    pub reason: String,
}

/// What became of a record that is not in the joined log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndState {
    /// No primary in any source.
    Unjoinable,
    /// Refused by the adapter.
    Filtered,
    /// Below the boundary: it was never inserted.
    Expired,
    /// Below the boundary after an unknown answer: an insert before may have happened, and nothing
    /// was written.
    ExpiredInDoubt,
    /// Not usable.
    DeadLettered {
        /// The record's bytes as they stand in the source.
        raw: Vec<u8>,
    },
}

impl EndState {
    /// How the ledger counts it.
    #[must_use]
    pub fn ended(&self) -> Ended {
        match self {
            EndState::Unjoinable => Ended::Unjoinable,
            EndState::Filtered => Ended::Filtered,
            EndState::Expired | EndState::ExpiredInDoubt => Ended::Expired,
            EndState::DeadLettered { .. } => Ended::DeadLettered,
        }
    }

    fn code(&self) -> u8 {
        match self {
            EndState::Unjoinable => 1,
            EndState::Filtered => 2,
            EndState::Expired => 3,
            EndState::ExpiredInDoubt => 4,
            EndState::DeadLettered { .. } => 5,
        }
    }
}

impl EndRecord {
    fn encode(&self) -> Vec<u8> {
        let EndRecord { source, offset, key, state, reason } = self;
        let mut out = vec![state.code()];
        put_sized(source.as_bytes(), &mut out);
        out.extend_from_slice(&offset.to_be_bytes());
        put_optional(key.as_ref(), &mut out, put_key);
        put_sized(reason.as_bytes(), &mut out);
        match state {
            EndState::Unjoinable | EndState::Filtered | EndState::Expired | EndState::ExpiredInDoubt => (),
            EndState::DeadLettered { raw } => put_sized(raw, &mut out),
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<EndRecord> {
        let mut fields = Fields(bytes);
        let code = fields.u8()?;
        let source = fields.text()?;
        let offset = fields.u64()?;
        let key = fields.optional(Fields::key)?;
        let reason = fields.text()?;
        let state = match code {
            1 => EndState::Unjoinable,
            2 => EndState::Filtered,
            3 => EndState::Expired,
            4 => EndState::ExpiredInDoubt,
            5 => EndState::DeadLettered { raw: fields.sized()?.to_vec() },
            _ => return None,
        };
        fields.end(EndRecord { source, offset, key, state, reason })
    }
}

/// The owner's handle. Its directory's lock keeps others away.
#[derive(Debug)]
pub struct EndsWriter {
    file: FramedWriter,
}

impl EndsWriter {
    /// Opens the file, or makes it; cuts what a crash left of a last record.
    ///
    /// # Errors
    /// [`StateError`] when it can not be read, is damaged or is of another version.
    pub fn open(path: &Path) -> Result<EndsWriter, StateError> {
        let mut reader = Reader { path, number: 0, fault: None };
        let (file, _torn) = FramedWriter::open_with(path, ENDS_FORMAT, |body| drop(reader.read(body)))?;
        reader.finish(EndsWriter { file })
    }

    /// Appends one end. It is durable only after [`EndsWriter::sync`].
    ///
    /// # Errors
    /// [`StateError::Disk`].
    pub fn append(&mut self, record: &EndRecord) -> Result<(), StateError> {
        Ok(self.file.append(&record.encode())?)
    }

    /// Makes all that was appended durable, with one sync.
    ///
    /// # Errors
    /// [`StateError::Disk`]: nothing more is written, and the cursor must not move.
    pub fn sync(&mut self) -> Result<(), StateError> {
        Ok(self.file.sync()?)
    }

    /// Appends all, then one sync.
    ///
    /// # Errors
    /// As [`EndsWriter::append`] and [`EndsWriter::sync`].
    pub fn write<'a>(&mut self, records: impl IntoIterator<Item = &'a EndRecord>) -> Result<(), StateError> {
        records.into_iter().try_for_each(|record| self.append(record))?;
        self.sync()
    }
}

/// The ends in a file, by source and offset, made durable before they are returned. A file that is
/// not there has none: its dispatcher never began.
///
/// # Errors
/// As [`EndsWriter::open`].
pub fn read(path: &Path) -> Result<BTreeMap<(String, u64), EndRecord>, StateError> {
    let mut ends = BTreeMap::new();
    read_with(path, |record| drop(ends.insert((record.source.clone(), record.offset), record)))?;
    Ok(ends)
}

/// As [`read`], one record at a time, repeated ones too. What was visited counts only when this has
/// returned `Ok`.
///
/// # Errors
/// As [`read`].
pub fn read_with(path: &Path, mut visit: impl FnMut(EndRecord)) -> Result<(), StateError> {
    let mut reader = Reader { path, number: 0, fault: None };
    match framed::read_with(path, ENDS_FORMAT, |body| reader.read(body).into_iter().for_each(&mut visit)) {
        Ok(_torn) => reader.finish(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Decodes bodies and keeps the first fault.
struct Reader<'a> {
    path: &'a Path,
    number: u64,
    fault: Option<StateError>,
}

impl Reader<'_> {
    fn read(&mut self, body: &[u8]) -> Option<EndRecord> {
        let record = EndRecord::decode(body);
        if record.is_none() && self.fault.is_none() {
            let why = "its fields do not fit its length or state";
            self.fault = Some(StateError::Record { path: self.path.to_owned(), number: self.number, why });
        }
        self.number += 1;
        record
    }

    fn finish<T>(self, value: T) -> Result<T, StateError> {
        match self.fault {
            None => Ok(value),
            Some(fault) => Err(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn end(offset: u64, state: EndState) -> EndRecord {
        let key = match &state {
            EndState::DeadLettered { .. } => None,
            EndState::Unjoinable | EndState::Filtered | EndState::Expired | EndState::ExpiredInDoubt => {
                Some(EventKey::new(1_700_000_000_000_000, b"e-1").unwrap())
            }
        };
        EndRecord { source: "clicks/a.ndjson".into(), offset, key, state, reason: "no query q-1".into() }
    }

    fn all() -> Vec<EndRecord> {
        let raw = b"{\"cut\": \xff".to_vec();
        let states = [
            EndState::Unjoinable,
            EndState::Filtered,
            EndState::Expired,
            EndState::ExpiredInDoubt,
            EndState::DeadLettered { raw },
        ];
        states.into_iter().zip(0..).map(|(state, offset)| end(offset, state)).collect()
    }

    #[test]
    fn golden_bytes_go_round() {
        let lines: Vec<String> =
            all().iter().map(|record| record.encode().iter().map(|byte| format!("{byte:02x}")).collect()).collect();
        expect_test::expect![[r#"
            010000000f636c69636b732f612e6e646a736f6e00000000000000000100060a24181e400003652d310000000c6e6f20717565727920712d31
            020000000f636c69636b732f612e6e646a736f6e00000000000000010100060a24181e400003652d310000000c6e6f20717565727920712d31
            030000000f636c69636b732f612e6e646a736f6e00000000000000020100060a24181e400003652d310000000c6e6f20717565727920712d31
            040000000f636c69636b732f612e6e646a736f6e00000000000000030100060a24181e400003652d310000000c6e6f20717565727920712d31
            050000000f636c69636b732f612e6e646a736f6e0000000000000004000000000c6e6f20717565727920712d31000000097b22637574223a20ff"#]].assert_eq(&lines.join("\n"));
        all().iter().for_each(|record| assert_eq!(EndRecord::decode(&record.encode()).as_ref(), Some(record)));
    }

    #[test]
    fn every_cut_of_a_body_is_refused() {
        for record in all() {
            let bytes = record.encode();
            (0..bytes.len()).for_each(|end| assert_eq!(EndRecord::decode(&bytes[..end]), None));
        }
    }

    #[test]
    fn a_repeated_record_counts_once_and_the_last_stands() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ends");
        assert_eq!(read(&path).unwrap().len(), 0);
        EndsWriter::open(&path).unwrap().write(&all()).unwrap();
        let again = end(0, EndState::Filtered);
        EndsWriter::open(&path).unwrap().write([&again, &all()[1]]).unwrap();
        let ends = read(&path).unwrap();
        assert_eq!(ends.len(), all().len());
        assert_eq!(ends[&("clicks/a.ndjson".to_owned(), 0)], again);
        let mut visited = 0;
        read_with(&path, |_| visited += 1).unwrap();
        assert_eq!(visited, all().len() + 2);
    }

    #[test]
    fn a_record_of_another_program_is_refused_with_its_number() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ends");
        EndsWriter::open(&path).unwrap().write(&all()[..2]).unwrap();
        let (mut file, _) = FramedWriter::open(&path, ENDS_FORMAT).unwrap();
        file.append(b"\x09").unwrap();
        file.sync().unwrap();
        for error in [read(&path).unwrap_err(), EndsWriter::open(&path).unwrap_err()] {
            assert!(matches!(error, StateError::Record { number: 2, .. }), "{error}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = EndRecord::decode(&bytes);
        }

        #[test]
        fn mutilated_records_never_panic(which in 0usize..5, at in 0usize..80, byte in any::<u8>()) {
            let mut bytes = all()[which].encode();
            let at = at.min(bytes.len() - 1);
            bytes[at] = byte;
            let _ = EndRecord::decode(&bytes);
        }
    }
}

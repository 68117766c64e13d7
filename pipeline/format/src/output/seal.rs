//! The seal record of an incarnation: what of its output exists.
//!
//! Invariant: there is at most one, put in place by `link`, and it never changes. From then on only
//! what it lists exists, wherever the directory lies; later bytes, entries and files are never
//! counted, finished or delivered.
//!
//! Bytes, big-endian: magic (8), format (2), incarnation (16), count of segments (4); per segment
//! number (8), data bytes (8), index bytes (8), entries (8), crc of that prefix of the index (4);
//! crc of all before (4).

use std::fs;
use std::io;
use std::path::Path;

use photon_types::Incarnation;

use super::error::OutputError;
use super::files::Files;
use super::layout::{SEALED, temporary_path};
use crate::fields::Fields;

/// The format that this build writes and reads.
pub const SEAL_FORMAT: u16 = 1;

const MAGIC: [u8; 8] = *b"PhSealed";
const CRC_BYTES: usize = 4;
/// Segments are numbered from here; later versions that remove segments will begin higher.
pub(crate) const FIRST_SEGMENT: u64 = 1;

/// What of one segment exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedSegment {
    /// Its number.
    pub number: u64,
    /// The end of the last counted block.
    pub data_bytes: u64,
    /// The end of the last counted entry.
    pub index_bytes: u64,
    /// Counted entries.
    pub entries: u64,
    /// The crc32 of the counted part of the index.
    pub index_crc: u32,
}

/// What of an incarnation's output exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealRecord {
    /// The incarnation.
    pub incarnation: Incarnation,
    /// Its segments, from 1 without a gap.
    pub segments: Vec<SealedSegment>,
}

impl SealRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&SEAL_FORMAT.to_be_bytes());
        out.extend_from_slice(&self.incarnation.0);
        let count = u32::try_from(self.segments.len()).expect("fewer than 2^32 segments");
        out.extend_from_slice(&count.to_be_bytes());
        for SealedSegment { number, data_bytes, index_bytes, entries, index_crc } in &self.segments {
            for value in [number, data_bytes, index_bytes, entries] {
                out.extend_from_slice(&value.to_be_bytes());
            }
            out.extend_from_slice(&index_crc.to_be_bytes());
        }
        out.extend_from_slice(&crc32fast::hash(&out).to_be_bytes());
        out
    }

    /// The record, or why these bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Result<SealRecord, String> {
        let short = || "the seal record is cut".to_owned();
        let (content, crc) = bytes.split_at_checked(bytes.len().saturating_sub(CRC_BYTES)).ok_or_else(short)?;
        let mut fields = Fields(content);
        if fields.array() != Some(MAGIC) {
            return Err("this is no seal record".to_owned());
        }
        if crc != crc32fast::hash(content).to_be_bytes() {
            return Err("the seal record does not match its checksum".to_owned());
        }
        let format = fields.u16().ok_or_else(short)?;
        if format != SEAL_FORMAT {
            return Err(format!("seal format {format} is not known here, only {SEAL_FORMAT}"));
        }
        let record = decode_fields(fields).ok_or("the seal record's fields do not fit its length")?;
        for (segment, number) in record.segments.iter().zip(FIRST_SEGMENT..) {
            if segment.number != number {
                return Err(format!("the seal record lists segment {} where {number} belongs", segment.number));
            }
        }
        Ok(record)
    }

    /// The record of a directory, if there is one. The outer error is the operating system's, the
    /// inner one says why the directory is no evidence.
    pub(crate) fn read(
        files: &Files,
        directory: &Path,
        incarnation: Incarnation,
    ) -> Result<Result<Option<SealRecord>, String>, OutputError> {
        let path = directory.join(SEALED);
        let file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(None)),
            Err(source) => return Err(OutputError::io("opening", &path)(source)),
        };
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut &file, &mut bytes).map_err(OutputError::io("reading", &path))?;
        files.sync_file(&file, &path)?;
        let record = SealRecord::decode(&bytes).and_then(|record| {
            if record.incarnation == incarnation {
                return Ok(Some(record));
            }
            Err(format!("it belongs to {}, the directory is that of {incarnation}", record.incarnation))
        });
        Ok(record.map_err(|why| format!("{}: {why}", path.display())))
    }

    /// Puts the record in place and makes it durable. If another is there already, that one stands,
    /// and the caller reads it.
    pub(crate) fn put(&self, files: &Files, directory: &Path) -> Result<Put, OutputError> {
        let temporary = temporary_path(directory)?;
        let file = files.create_file(&temporary)?;
        files.write(&file, &temporary, 0, &self.encode())?;
        files.sync_file(&file, &temporary)?;
        let put = match files.link(&temporary, &directory.join(SEALED)) {
            Ok(()) => Put::Ours,
            Err(error) if error.is(io::ErrorKind::AlreadyExists) => Put::Another,
            Err(error) => return Err(error),
        };
        files.sync_directory(directory)?;
        files.unlink_if_there(&temporary)?;
        Ok(put)
    }
}

/// Whose record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Ours,
    Another,
}

fn decode_fields(mut fields: Fields<'_>) -> Option<SealRecord> {
    let incarnation = Incarnation(fields.array()?);
    let count = fields.u32()?;
    let mut segments = Vec::new();
    for _ in 0..count {
        segments.push(SealedSegment {
            number: fields.u64()?,
            data_bytes: fields.u64()?,
            index_bytes: fields.u64()?,
            entries: fields.u64()?,
            index_crc: fields.u32()?,
        });
    }
    fields.end(SealRecord { incarnation, segments })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> SealRecord {
        let segment = |number| SealedSegment {
            number,
            data_bytes: 1000 + number,
            index_bytes: 100 + number,
            entries: 10 + number,
            index_crc: 0xaabb_ccdd,
        };
        SealRecord { incarnation: Incarnation([0xab; 16]), segments: vec![segment(1), segment(2)] }
    }

    #[test]
    fn golden_bytes_go_round() {
        let bytes = record().encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        expect_test::expect!["50685365616c65640001abababababababababababababababab00000002000000000000000100000000000003e90000000000000065000000000000000baabbccdd000000000000000200000000000003ea0000000000000066000000000000000caabbccddc01f8023"].assert_eq(&hex);
        assert_eq!(SealRecord::decode(&bytes), Ok(record()));
    }

    #[test]
    fn every_cut_and_every_flip_is_refused() {
        let bytes = record().encode();
        for end in 0..bytes.len() {
            assert!(SealRecord::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert!(SealRecord::decode(&bytes).is_err(), "flip at {at}");
        }
    }

    #[test]
    fn gaps_and_later_formats_are_refused_by_name() {
        let mut gap = record();
        gap.segments[1].number = 3;
        assert!(SealRecord::decode(&gap.encode()).unwrap_err().contains("lists segment 3 where 2 belongs"));
        let mut bytes = record().encode();
        bytes.truncate(bytes.len() - CRC_BYTES);
        bytes[9] = 4;
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        assert!(SealRecord::decode(&bytes).unwrap_err().contains("format 4"));
    }

    #[test]
    fn the_first_record_stands() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::default();
        let mut second = record();
        second.segments.pop();
        assert_eq!(record().put(&files, directory.path()).unwrap(), Put::Ours);
        assert_eq!(second.put(&files, directory.path()).unwrap(), Put::Another);
        let read = |incarnation| SealRecord::read(&files, directory.path(), incarnation).unwrap();
        assert_eq!(read(record().incarnation), Ok(Some(record())));
        assert!(read(Incarnation([0; 16])).unwrap_err().contains("belongs to"));
        let names = super::super::layout::file_names(directory.path()).unwrap().unwrap();
        assert_eq!(names, ["SEALED"]);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = SealRecord::decode(&bytes);
        }
    }
}

//! The cursor of a dispatcher, and the ledger of its datacenter, in one small record.
//!
//! Invariant: position and counts move together, in one durable replacement of the file. The ledger
//! counts *records, by the answer that let the cursor pass*: whatever a crash makes a dispatcher
//! read again is not in the counts of the cursor that it reads again from.
//!
//! Records that the retry store took are counted as they end, which no cursor position shows. So the
//! cursor also states how much of the store's log its counts include (`retry_end`); what the log
//! holds beyond is added at start (`RetryStore::recount`).
//!
//! Bytes, big-endian: magic (8), format (2), `retry_end` (8), count of sources (4); per source name
//! (4 + n), device (8), inode (8), offset (8), length of the head (4), crc of the head (4), then the
//! counts in the order of [`Counts`], 8 bytes each; crc of all before (4). The head is the first
//! min(offset, 1024) bytes of the file ([`Head`]): a file that was rewritten in place has another.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use photon_disk::{DiskError, durable};

use crate::fields::{Fields, put_sized};
use crate::source::{HEAD_BYTES_MAX, Head};
use crate::state::StateError;

/// The format that this build writes and reads.
pub const CURSOR_FORMAT: u16 = 1;

const MAGIC: [u8; 8] = *b"PhCursor";
const CRC_BYTES: usize = 4;

/// Where a dispatcher is, and what became of what it read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// By the source's stable name.
    pub sources: BTreeMap<String, SourceCursor>,
    /// The counts include what the retry store's log holds below this position.
    pub retry_end: u64,
}

/// Where a dispatcher is in one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCursor {
    /// The file's device.
    pub device: u64,
    /// The file's inode: another one under the same name is another file.
    pub inode: u64,
    /// All records that begin below are passed: ended, or in the retry store.
    pub offset: u64,
    /// What the file began with, as far as it was passed.
    pub head: Head,
    /// What became of them.
    pub counts: Counts,
}

/// The ledger of one datacenter and source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that a stream selected.
    pub read: u64,
    /// Clicks that a verifier sent again.
    pub reinjected: u64,
    /// Inserted by this datacenter's joiner, the line durable.
    pub joined: u64,
    /// Found in the registry, own earlier attempts included.
    pub claimed: u64,
    /// Refused by the adapter.
    pub filtered: u64,
    /// Without a primary.
    pub unjoinable: u64,
    /// Below the boundary.
    pub expired: u64,
    /// Not usable.
    pub dead_lettered: u64,
    /// Actions of a bulk log that are no records (`delete`, `update`). Outside the sum.
    pub skipped: u64,
}

/// The end of a record, as the ledger counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ended {
    /// Joined here.
    Joined,
    /// Found in the registry.
    Claimed,
    /// Refused by the adapter.
    Filtered,
    /// Without a primary.
    Unjoinable,
    /// Below the boundary.
    Expired,
    /// Not usable.
    DeadLettered,
}

impl Counts {
    /// Counts one end.
    pub fn count(&mut self, ended: Ended) {
        let counter = match ended {
            Ended::Joined => &mut self.joined,
            Ended::Claimed => &mut self.claimed,
            Ended::Filtered => &mut self.filtered,
            Ended::Unjoinable => &mut self.unjoinable,
            Ended::Expired => &mut self.expired,
            Ended::DeadLettered => &mut self.dead_lettered,
        };
        *counter += 1;
    }

    /// Records that have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        let Counts {
            read: _,
            reinjected: _,
            joined,
            claimed,
            filtered,
            unjoinable,
            expired,
            dead_lettered,
            skipped: _,
        } = *self;
        joined + claimed + filtered + unjoinable + expired + dead_lettered
    }

    /// Records that have not ended. None while more have ended than were read: after a crash, some
    /// that ended in the retry store are still to be passed by the cursor. Once all is read, a bug.
    #[must_use]
    pub fn pending(&self) -> Option<u64> {
        (self.read + self.reinjected).checked_sub(self.ended())
    }

    fn fields(&self) -> [u64; 9] {
        let Counts { read, reinjected, joined, claimed, filtered, unjoinable, expired, dead_lettered, skipped } = *self;
        [read, reinjected, joined, claimed, filtered, unjoinable, expired, dead_lettered, skipped]
    }

    fn of_fields(fields: [u64; 9]) -> Counts {
        let [read, reinjected, joined, claimed, filtered, unjoinable, expired, dead_lettered, skipped] = fields;
        Counts { read, reinjected, joined, claimed, filtered, unjoinable, expired, dead_lettered, skipped }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        let mut sum = self.fields();
        sum.iter_mut().zip(other.fields()).for_each(|(mine, its)| *mine += its);
        *self = Counts::of_fields(sum);
    }
}

impl Cursor {
    /// The counts of all sources together.
    #[must_use]
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.sources.values().for_each(|source| total += source.counts);
        total
    }

    /// The cursor at `path`; none if there is no file. For its owner and, read only, for verifiers.
    ///
    /// # Errors
    /// [`StateError::Disk`] when it can not be read, is damaged or is of another version.
    pub fn load(path: &Path) -> Result<Option<Cursor>, StateError> {
        match fs::read(path) {
            Ok(bytes) => Cursor::decode(&bytes, path).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DiskError::io("reading", path)(source).into()),
        }
    }

    /// Replaces the file, durably. Ends and retry records of all that it passes are durable before.
    ///
    /// # Errors
    /// [`StateError::Disk`].
    pub fn save(&self, path: &Path) -> Result<(), StateError> {
        Ok(durable::write_replace(path, &self.encode())?)
    }

    fn encode(&self) -> Vec<u8> {
        let Cursor { sources, retry_end } = self;
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&CURSOR_FORMAT.to_be_bytes());
        out.extend_from_slice(&retry_end.to_be_bytes());
        let count = u32::try_from(sources.len()).expect("fewer than 2^32 sources");
        out.extend_from_slice(&count.to_be_bytes());
        for (name, SourceCursor { device, inode, offset, head, counts }) in sources {
            put_sized(name.as_bytes(), &mut out);
            for value in [*device, *inode, *offset] {
                out.extend_from_slice(&value.to_be_bytes());
            }
            out.extend_from_slice(&head.bytes.to_be_bytes());
            out.extend_from_slice(&head.crc.to_be_bytes());
            for count in counts.fields() {
                out.extend_from_slice(&count.to_be_bytes());
            }
        }
        out.extend_from_slice(&crc32fast::hash(&out).to_be_bytes());
        out
    }

    fn decode(bytes: &[u8], path: &Path) -> Result<Cursor, StateError> {
        let damage = |reason: &str| StateError::damage(path, 0, reason);
        let Some((content, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
            return Err(damage("the cursor is cut short"));
        };
        if *crc != crc32fast::hash(content).to_be_bytes() {
            return Err(damage("the cursor does not match its checksum"));
        }
        let mut fields = Fields(content);
        if fields.array() != Some(MAGIC) {
            return Err(damage("it is no cursor"));
        }
        match fields.u16() {
            Some(CURSOR_FORMAT) => (),
            found => {
                let found =
                    found.map_or("a cursor without format".to_owned(), |found| format!("a cursor of format {found}"));
                let expected = format!("format {CURSOR_FORMAT}");
                return Err(DiskError::Format { path: path.to_owned(), found, expected }.into());
            }
        }
        decode_fields(fields).ok_or_else(|| damage("the cursor's fields do not fit its length or one another"))
    }
}

fn decode_fields(mut fields: Fields<'_>) -> Option<Cursor> {
    let mut cursor = Cursor { retry_end: fields.u64()?, sources: BTreeMap::new() };
    for _ in 0..fields.u32()? {
        let name = fields.text()?;
        let (device, inode, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let head = Head { bytes: fields.u32()?, crc: fields.u32()? };
        if offset.min(HEAD_BYTES_MAX) < u64::from(head.bytes) {
            return None;
        }
        let mut counts = [0; 9];
        for count in &mut counts {
            *count = fields.u64()?;
        }
        let counts = Counts::of_fields(counts);
        if cursor.sources.insert(name, SourceCursor { device, inode, offset, head, counts }).is_some() {
            return None;
        }
    }
    fields.end(cursor)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cursor() -> Cursor {
        let source = |offset| SourceCursor {
            device: 1,
            inode: 2,
            offset,
            head: Head { bytes: 100, crc: 0xfeed_beef },
            counts: Counts::of_fields([20, 3, 4, 5, 6, 1, 2, 1, 9]),
        };
        let sources = [("clicks/a.ndjson", 100), ("clicks/b.ndjson", 200)];
        let sources = sources.map(|(name, offset)| (name.to_owned(), source(offset)));
        Cursor { sources: BTreeMap::from(sources), retry_end: 77 }
    }

    #[test]
    fn golden_bytes() {
        let hex: String = cursor().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        expect_test::expect!["5068437572736f720001000000000000004d000000020000000f636c69636b732f612e6e646a736f6e00000000000000010000000000000002000000000000006400000064feedbeef0000000000000014000000000000000300000000000000040000000000000005000000000000000600000000000000010000000000000002000000000000000100000000000000090000000f636c69636b732f622e6e646a736f6e0000000000000001000000000000000200000000000000c800000064feedbeef0000000000000014000000000000000300000000000000040000000000000005000000000000000600000000000000010000000000000002000000000000000100000000000000095457e88d"].assert_eq(&hex);
    }

    #[test]
    fn it_is_replaced_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cursor");
        assert_eq!(Cursor::load(&path).unwrap(), None);
        cursor().save(&path).unwrap();
        assert_eq!(Cursor::load(&path).unwrap(), Some(cursor()));
        Cursor::default().save(&path).unwrap();
        assert_eq!(Cursor::load(&path).unwrap(), Some(Cursor::default()));
    }

    #[test]
    fn every_cut_and_every_flip_is_refused_with_the_file_named() {
        let bytes = cursor().encode();
        let refused = |bytes: &[u8]| {
            let error = Cursor::decode(bytes, Path::new("dispatcher/cursor")).unwrap_err().to_string();
            assert!(error.contains("dispatcher/cursor"), "{error}");
        };
        (0..bytes.len()).for_each(|end| refused(&bytes[..end]));
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            refused(&bytes);
        }
    }

    #[test]
    fn a_head_that_covers_more_than_was_passed_is_refused() {
        let mut cursor = cursor();
        cursor.sources.values_mut().for_each(|source| source.head.bytes = 101);
        let error = Cursor::decode(&cursor.encode(), Path::new("cursor")).unwrap_err().to_string();
        assert!(error.contains("do not fit"), "{error}");
    }

    #[test]
    fn a_later_format_is_refused_by_name() {
        let mut bytes = cursor().encode();
        bytes.truncate(bytes.len() - CRC_BYTES);
        bytes[9] = 8;
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        let error = Cursor::decode(&bytes, Path::new("cursor")).unwrap_err().to_string();
        assert!(error.contains("format 8"), "{error}");
    }

    #[test]
    fn the_ledger_adds_up_or_says_that_it_does_not() {
        let mut counts = Counts { read: 2, reinjected: 1, ..Counts::default() };
        for (ended, pending) in [(Ended::Joined, Some(2)), (Ended::Claimed, Some(1)), (Ended::DeadLettered, Some(0))] {
            counts.count(ended);
            assert_eq!(counts.pending(), pending);
        }
        counts.count(Ended::Filtered);
        assert_eq!(counts.pending(), None);
        assert_eq!(cursor().total().read, 40);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), sound in any::<bool>()) {
            if sound {
                bytes.splice(0..bytes.len().min(10), MAGIC.iter().copied().chain([0, 1]));
                bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
            }
            let _ = Cursor::decode(&bytes, Path::new("cursor"));
        }
    }
}

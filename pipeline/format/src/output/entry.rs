//! The commit index: one entry for each block of a segment.
//!
//! Invariant: a click counts only if a good entry covers it, and every entry before that one is
//! good too. A bad entry with a good one behind it is damage, never a torn tail.
//!
//! Bytes, big-endian. Head: magic (4), format (2), zero (2), number (8), length of the body (4),
//! crc of the head so far (4). Body: block offset (8), length (4), crc (4), count of clicks (4),
//! per click sequence (8), timestamp (8), length of the id (1), id, length of its rows (4).
//! Then the crc (4) of head and body.

use photon_types::{EVENT_ID_BYTES_MAX, EventKey};

use crate::fields::{Fields, put_key};

/// The format that this build writes and reads.
pub const INDEX_FORMAT: u16 = 1;
/// The most clicks in one block.
pub const BLOCK_CLICKS_MAX: usize = 65_536;
/// The most bytes in one block. A writer cuts blocks far below; a single click may be long.
pub const BLOCK_BYTES_MAX: usize = 256 * 1024 * 1024;

const MAGIC: [u8; 4] = *b"PhIx";
const HEAD_BYTES: usize = 4 + 2 + 2 + 8 + 4 + 4;
const BODY_FIXED_BYTES: usize = 8 + 4 + 4 + 4;
const CLICK_BYTES_MAX: usize = 8 + 8 + 1 + EVENT_ID_BYTES_MAX + 4;
const CRC_BYTES: usize = 4;
const BODY_BYTES_MAX: usize = BODY_FIXED_BYTES + BLOCK_CLICKS_MAX * CLICK_BYTES_MAX;
// Lengths are u32 on disk.
const _: () = assert!(BODY_BYTES_MAX < u32::MAX as usize);
const _: () = assert!(BLOCK_BYTES_MAX < u32::MAX as usize);

/// One click in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryClick {
    /// The sequence number of its token.
    pub sequence: u64,
    /// Its key.
    pub key: EventKey,
    /// Bytes of its rows, their newlines included.
    pub bytes: u32,
}

/// What an index says of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The block's number in its segment, from 0.
    pub number: u64,
    /// Where the block begins in the data file.
    pub offset: u64,
    /// Its bytes.
    pub length: u32,
    /// Their crc32.
    pub crc: u32,
    /// Its clicks, in the order of their rows.
    pub clicks: Vec<EntryClick>,
}

/// What an index file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexContent {
    /// The good entries from the beginning.
    pub entries: Vec<IndexEntry>,
    /// The end of the last good entry.
    pub index_end: u64,
    /// The end of the block of the last good entry.
    pub data_end: u64,
    /// What follows.
    pub tail: IndexTail,
}

/// What follows the last good entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexTail {
    /// Nothing.
    Clean,
    /// Bytes of an entry that was never whole. They count for nothing.
    Torn {
        /// How many.
        bytes: u64,
    },
    /// What can not be explained by a crash.
    Damage {
        /// Where.
        offset: u64,
        /// What.
        why: String,
    },
}

enum Fault {
    Format { found: u16 },
    Bad(&'static str),
}

impl IndexEntry {
    /// The end of the block.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(BODY_FIXED_BYTES + self.clicks.len() * 64);
        body.extend_from_slice(&self.offset.to_be_bytes());
        body.extend_from_slice(&self.length.to_be_bytes());
        body.extend_from_slice(&self.crc.to_be_bytes());
        let count = u32::try_from(self.clicks.len()).expect("the writer bounds the clicks of a block");
        body.extend_from_slice(&count.to_be_bytes());
        for click in &self.clicks {
            body.extend_from_slice(&click.sequence.to_be_bytes());
            put_key(&click.key, &mut body);
            body.extend_from_slice(&click.bytes.to_be_bytes());
        }
        assert!(body.len() <= BODY_BYTES_MAX);
        let mut out = Vec::with_capacity(HEAD_BYTES + body.len() + CRC_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&INDEX_FORMAT.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&u32::try_from(body.len()).expect("below BODY_BYTES_MAX").to_be_bytes());
        out.extend_from_slice(&crc32fast::hash(&out).to_be_bytes());
        out.extend_from_slice(&body);
        out.extend_from_slice(&crc32fast::hash(&out).to_be_bytes());
        out
    }

    /// An entry at the front of `bytes`, and its length.
    fn decode(bytes: &[u8]) -> Result<(IndexEntry, usize), Fault> {
        let mut fields = Fields(bytes);
        let head = fields.bytes(HEAD_BYTES).ok_or(Fault::Bad("the entry ends inside its head"))?;
        let (number, body_bytes) = decode_head(head)?;
        let short = Fault::Bad("the entry is shorter than it says");
        let body = fields.bytes(body_bytes).ok_or(short)?;
        let crc = fields.u32().ok_or(Fault::Bad("the entry ends before its checksum"))?;
        let entry_bytes = HEAD_BYTES + body_bytes;
        if crc32fast::hash(&bytes[..entry_bytes]) != crc {
            return Err(Fault::Bad("the entry does not match its checksum"));
        }
        let entry = decode_body(number, body).ok_or(Fault::Bad("the entry's fields do not fit its length"))?;
        Ok((entry, entry_bytes + CRC_BYTES))
    }
}

/// The number of the entry and the length of its body.
fn decode_head(head: &[u8]) -> Result<(u64, usize), Fault> {
    let mut fields = Fields(head);
    let mut read =
        || Some((fields.array::<4>()?, fields.u16()?, fields.u16()?, fields.u64()?, fields.u32()?, fields.u32()?));
    let (magic, format, _zero, number, body_bytes, crc) = read().ok_or(Fault::Bad("the entry ends inside its head"))?;
    if magic != MAGIC {
        return Err(Fault::Bad("no entry begins here"));
    }
    if crc32fast::hash(&head[..HEAD_BYTES - CRC_BYTES]) != crc {
        return Err(Fault::Bad("the entry's head does not match its checksum"));
    }
    if format != INDEX_FORMAT {
        return Err(Fault::Format { found: format });
    }
    Ok((number, usize::try_from(body_bytes).map_err(|_| Fault::Bad("the entry is too long"))?))
}

fn decode_body(number: u64, body: &[u8]) -> Option<IndexEntry> {
    let mut fields = Fields(body);
    let offset = fields.u64()?;
    let length = fields.u32()?;
    let crc = fields.u32()?;
    let count = usize::try_from(fields.u32()?).ok()?;
    if count == 0 || BLOCK_CLICKS_MAX < count {
        return None;
    }
    let mut clicks = Vec::new();
    for _ in 0..count {
        clicks.push(EntryClick { sequence: fields.u64()?, key: fields.key()?, bytes: fields.u32()? });
    }
    fields.end(IndexEntry { number, offset, length, crc, clicks })
}

/// Reads an index, or the prefix of one that a seal record lists.
#[must_use]
pub fn read_index(bytes: &[u8]) -> IndexContent {
    let mut content = IndexContent { entries: Vec::new(), index_end: 0, data_end: 0, tail: IndexTail::Clean };
    let mut at = 0;
    while at < bytes.len() {
        let offset = at as u64;
        let damage = |why: String| IndexTail::Damage { offset, why };
        match IndexEntry::decode(&bytes[at..]) {
            Ok((entry, entry_bytes)) => {
                if let Some(why) = contradiction(&entry, content.entries.len() as u64, content.data_end) {
                    content.tail = damage(why);
                    return content;
                }
                at += entry_bytes;
                content.index_end = at as u64;
                content.data_end = entry.end();
                content.entries.push(entry);
            }
            Err(Fault::Format { found }) => {
                content.tail = damage(format!("index format {found} is not known here, only {INDEX_FORMAT}"));
                return content;
            }
            Err(Fault::Bad(why)) => {
                content.tail = match find_entry(bytes, at + 1) {
                    Some(good) => damage(format!("{why}, and a good entry follows at byte {good}")),
                    None => IndexTail::Torn { bytes: (bytes.len() - at) as u64 },
                };
                return content;
            }
        }
    }
    content
}

/// What a good entry says that can not be true.
fn contradiction(entry: &IndexEntry, number: u64, data_end: u64) -> Option<String> {
    if entry.number != number {
        return Some(format!("entry {} stands where entry {number} belongs", entry.number));
    }
    if entry.offset != data_end {
        return Some(format!("the block begins at {}, the one before ends at {data_end}", entry.offset));
    }
    let rows: u64 = entry.clicks.iter().map(|click| u64::from(click.bytes)).sum();
    if rows != u64::from(entry.length) {
        return Some(format!("the block has {} bytes, its rows have {rows}", entry.length));
    }
    None
}

/// Looks at every byte from `at` on for a good entry, or one of a format from the future.
fn find_entry(bytes: &[u8], at: usize) -> Option<usize> {
    (at..bytes.len().saturating_sub(HEAD_BYTES - 1)).find(|&at| {
        bytes[at..].starts_with(&MAGIC)
            && match IndexEntry::decode(&bytes[at..]) {
                Ok(_) | Err(Fault::Format { .. }) => true,
                Err(Fault::Bad(_)) => false,
            }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(number: u64, offset: u64) -> IndexEntry {
        let click = |sequence, id: &str, bytes| EntryClick {
            sequence,
            key: EventKey::new(1_700_000_000_000_000 + sequence, id.as_bytes()).unwrap(),
            bytes,
        };
        IndexEntry {
            number,
            offset,
            length: 30,
            crc: 0xdead_beef,
            clicks: vec![click(number * 2 + 1, "a", 10), click(number * 2 + 2, "bc", 20)],
        }
    }

    fn three() -> (Vec<u8>, [usize; 3]) {
        let parts: Vec<_> = (0..3).map(|number| entry(number, number * 30).encode()).collect();
        let ends = [parts[0].len(), parts[0].len() + parts[1].len(), parts.iter().map(Vec::len).sum()];
        (parts.concat(), ends)
    }

    #[test]
    fn golden_bytes() {
        let hex: String = entry(1, 30).encode().iter().map(|byte| format!("{byte:02x}")).collect();
        expect_test::expect!["5068497800010000000000000000000100000041fdac7d39000000000000001e0000001edeadbeef00000002000000000000000300060a24181e400301610000000a000000000000000400060a24181e4004026263000000141ebe6794"].assert_eq(&hex);
    }

    #[test]
    fn a_cut_anywhere_is_torn_and_keeps_what_is_whole() {
        let (bytes, ends) = three();
        for cut in 0..=bytes.len() {
            let content = read_index(&bytes[..cut]);
            let whole = ends.iter().filter(|&&end| end <= cut).count();
            assert_eq!(content.entries.len(), whole, "cut at {cut}");
            assert_eq!(content.data_end, 30 * whole as u64);
            let good = if whole == 0 { 0 } else { ends[whole - 1] };
            let want = match cut - good {
                0 => IndexTail::Clean,
                torn => IndexTail::Torn { bytes: torn as u64 },
            };
            assert_eq!((content.index_end, content.tail), (good as u64, want), "cut at {cut}");
        }
    }

    #[test]
    fn a_flip_anywhere_is_damage_unless_it_is_in_the_last_entry() {
        let (bytes, ends) = three();
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            let content = read_index(&bytes);
            let hit = ends.iter().filter(|&&end| end <= at).count();
            assert_eq!(content.entries.len(), hit, "flip at {at}");
            let damaged = matches!(content.tail, IndexTail::Damage { .. });
            assert_eq!(damaged, hit < 2, "flip at {at}: {:?}", content.tail);
        }
    }

    #[test]
    fn good_entries_that_do_not_follow_each_other_are_damage() {
        let check = |entries: &[IndexEntry]| {
            let bytes: Vec<u8> = entries.iter().flat_map(IndexEntry::encode).collect();
            let content = read_index(&bytes);
            assert!(matches!(content.tail, IndexTail::Damage { .. }), "{:?}", content.tail);
        };
        check(&[entry(0, 0), entry(2, 30)]);
        check(&[entry(0, 0), entry(1, 31)]);
        check(&[entry(0, 0), entry(0, 0)]);
        check(&[IndexEntry { length: 31, ..entry(0, 0) }]);
    }

    #[test]
    fn a_format_from_the_future_is_refused_by_name() {
        let mut bytes = entry(0, 0).encode();
        bytes[5] = 9;
        let crc = crc32fast::hash(&bytes[..HEAD_BYTES - CRC_BYTES]).to_be_bytes();
        bytes[HEAD_BYTES - CRC_BYTES..HEAD_BYTES].copy_from_slice(&crc);
        let IndexTail::Damage { offset: 0, why } = read_index(&bytes).tail else { panic!("not refused") };
        assert!(why.contains("format 9"), "{why}");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let content = read_index(&bytes);
            prop_assert!(content.index_end <= bytes.len() as u64);
        }

        #[test]
        fn mutilated_entries_never_panic(at in 0usize..400, with in proptest::collection::vec(any::<u8>(), 0..40)) {
            let (mut bytes, _) = three();
            let at = at.min(bytes.len());
            let end = (at + with.len()).min(bytes.len());
            bytes.splice(at..end, with);
            let _ = read_index(&bytes);
        }
    }
}

//! The head of a file: what tells a file that grew from one that was rewritten in place.
//!
//! A file keeps its inode when another one is copied over it, when it is cut and written anew, and
//! when its inode is given to a new file. A log that only grows keeps its first bytes; so whoever has
//! read up to an offset remembers the checksum of the first of them, and looks again.
//!
//! Invariant: a head covers no byte that was not read, so a growing file always matches its own.
//!
//! Not here: a file that was changed behind its head. Logs are appended to, not edited.

/// Bytes that a head covers, at most.
pub const HEAD_BYTES_MAX: u64 = 1024;

/// Length and checksum of the first bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// How many bytes; none of a file that was not read yet.
    pub bytes: u32,
    /// Their CRC-32.
    pub crc: u32,
}

impl Head {
    /// The head of a file that was read up to `offset`, and begins with these bytes.
    #[must_use]
    pub fn of(beginning: &[u8], offset: u64) -> Head {
        let covered = &beginning[..beginning.len().min(head_bytes(offset))];
        let bytes = u32::try_from(covered.len()).expect("a head is small");
        Head { bytes, crc: crc32fast::hash(covered) }
    }

    /// Whether a file with this beginning can be the one whose head this is.
    #[must_use]
    pub fn is_of(&self, beginning: &[u8]) -> bool {
        let covered = usize::try_from(self.bytes).ok().and_then(|bytes| beginning.get(..bytes));
        covered.is_some_and(|covered| crc32fast::hash(covered) == self.crc)
    }

    /// Whether it covers all that a head of a file read up to `offset` covers.
    #[must_use]
    pub fn is_whole(&self, offset: u64) -> bool {
        head_bytes(offset) <= self.bytes as usize
    }
}

fn head_bytes(offset: u64) -> usize {
    usize::try_from(offset.min(HEAD_BYTES_MAX)).expect("a head is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grows_keeps_its_head_and_a_rewritten_one_does_not() {
        let file: Vec<u8> = (0..2_000_u32).map(|at| at.to_be_bytes()[3]).collect();
        for offset in [0, 1, 100, 1_023, 1_024, 1_025, 2_000] {
            let head = Head::of(&file[..1_024], offset);
            assert_eq!(u64::from(head.bytes), offset.min(HEAD_BYTES_MAX));
            assert!(head.is_of(&file) && head.is_whole(offset));
            assert_eq!(head.is_whole(offset + 1), HEAD_BYTES_MAX <= offset);
            for at in [0, 99, 1_023] {
                let mut other = file.clone();
                other[at] ^= 1;
                assert_eq!(head.is_of(&other), head.bytes as usize <= at, "offset {offset}, byte {at}");
            }
            if 0 < offset {
                assert!(!head.is_of(&file[..head.bytes as usize - 1]), "cut");
            }
        }
    }
}

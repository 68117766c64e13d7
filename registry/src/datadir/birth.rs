//! The birth of a cluster: which disk stands behind each node id, agreed once.
//!
//! Invariant: all members write the same birth record, byte for byte, so that all compute the same
//! cluster id; nobody promises or accepts before his own is synced in his journal.
//!
//! The record is `format u8 = 1 | count u32 | count × (node id u32, incarnation 16 bytes)`, sorted
//! by node id, integers big-endian. The cluster id is XXH3-128 over the domain `photon cluster id 1`,
//! a zero byte, and the record; big-endian.

use std::collections::BTreeMap;

use photon_types::{ClusterId, Incarnation, NodeId};
use xxhash_rust::xxh3::xxh3_128;

/// The version of the birth record that this build writes and reads.
pub const BIRTH_FORMAT: u8 = 1;
/// The most members at birth.
pub const BIRTH_MEMBERS_MAX: usize = 64;

const HEAD_BYTES: usize = 5;
const MEMBER_BYTES: usize = 20;
const CLUSTER_DOMAIN: &[u8] = b"photon cluster id 1\0";

/// Who was there when the cluster was born.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birth {
    /// From 1 to [`BIRTH_MEMBERS_MAX`].
    members: BTreeMap<NodeId, Incarnation>,
}

/// Why members or bytes are no birth record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BirthError {
    /// No member, or more than the limit.
    #[error("a birth record of {count} members; from 1 to {BIRTH_MEMBERS_MAX} are possible")]
    Count {
        /// How many.
        count: usize,
    },
    /// One id twice.
    #[error("node {node} is named twice in a birth record")]
    Twice {
        /// The id.
        node: NodeId,
    },
    /// One disk under two ids: a copied data directory.
    #[error("nodes {first} and {second} come with the same data directory ({incarnation}): one is a copy")]
    SameDisk {
        /// The lower id.
        first: NodeId,
        /// The higher id.
        second: NodeId,
        /// The disk.
        incarnation: Incarnation,
    },
    /// A format of another build.
    #[error("birth record of format {found}; this build reads format {BIRTH_FORMAT}")]
    Format {
        /// What was read.
        found: u8,
    },
    /// Not as many bytes as the count says, or not in order.
    #[error("the bytes are not a birth record")]
    Malformed,
}

impl Birth {
    /// The record of these members, in any order.
    ///
    /// # Errors
    /// [`BirthError`] for no member, too many, an id twice, or a disk twice.
    pub fn new(members: impl IntoIterator<Item = (NodeId, Incarnation)>) -> Result<Birth, BirthError> {
        let mut sorted = BTreeMap::new();
        let mut disks: BTreeMap<Incarnation, NodeId> = BTreeMap::new();
        for (node, incarnation) in members {
            if sorted.insert(node, incarnation).is_some() {
                return Err(BirthError::Twice { node });
            }
            if let Some(other) = disks.insert(incarnation, node) {
                let (first, second) = (other.min(node), other.max(node));
                return Err(BirthError::SameDisk { first, second, incarnation });
            }
        }
        if sorted.is_empty() || BIRTH_MEMBERS_MAX < sorted.len() {
            return Err(BirthError::Count { count: sorted.len() });
        }
        Ok(Birth { members: sorted })
    }

    /// Sorted by node id.
    pub fn members(&self) -> impl Iterator<Item = (NodeId, Incarnation)> + '_ {
        self.members.iter().map(|(node, incarnation)| (*node, *incarnation))
    }

    /// The disk that was born under an id; None for who was not there.
    #[must_use]
    pub fn incarnation_of(&self, node: NodeId) -> Option<Incarnation> {
        self.members.get(&node).copied()
    }

    /// Are they those of the configuration? Quorums are counted over them, so a list in a file must
    /// not make fewer of them.
    ///
    /// # Errors
    /// What differs, and what to do.
    pub fn check_members(&self, configured: &[NodeId]) -> Result<(), String> {
        if self.members.keys().eq(configured) {
            return Ok(());
        }
        let list = |ids: &mut dyn Iterator<Item = &NodeId>| ids.map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Err(format!(
            "cluster {} was born with the members {}, but the configuration lists {}: members can not be changed by \
             configuration; list the members of the birth",
            self.cluster_id(),
            list(&mut self.members.keys()),
            list(&mut configured.iter()),
        ))
    }

    /// The bytes that go into the journal.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.members.len() * MEMBER_BYTES);
        bytes.push(BIRTH_FORMAT);
        let count = u32::try_from(self.members.len()).expect("BIRTH_MEMBERS_MAX < 2^32");
        bytes.extend_from_slice(&count.to_be_bytes());
        for (node, incarnation) in self.members() {
            bytes.extend_from_slice(&node.0.to_be_bytes());
            bytes.extend_from_slice(&incarnation.0);
        }
        bytes
    }

    /// The reverse of [`Birth::encode`]; other bytes than it makes are refused.
    ///
    /// # Errors
    /// [`BirthError`].
    pub fn decode(bytes: &[u8]) -> Result<Birth, BirthError> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(BirthError::Malformed)?;
        if head[0] != BIRTH_FORMAT {
            return Err(BirthError::Format { found: head[0] });
        }
        let count = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (members, tail) = rest.as_chunks::<MEMBER_BYTES>();
        if members.len() != count || !tail.is_empty() {
            return Err(BirthError::Malformed);
        }
        let members = members.iter().map(|member| {
            let (node, incarnation) = member.split_first_chunk::<4>().expect("MEMBER_BYTES are 20");
            let incarnation = incarnation.try_into().expect("MEMBER_BYTES are 20");
            (NodeId(u32::from_be_bytes(*node)), Incarnation(incarnation))
        });
        let birth = Birth::new(members)?;
        // One record, one text: the cluster id is its hash.
        if birth.encode() == bytes { Ok(birth) } else { Err(BirthError::Malformed) }
    }

    /// The name of the cluster.
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        let mut bytes = CLUSTER_DOMAIN.to_vec();
        bytes.extend_from_slice(&self.encode());
        ClusterId(xxh3_128(&bytes).to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(node: u32) -> (NodeId, Incarnation) {
        (NodeId(node), Incarnation([u8::try_from(node).unwrap(); 16]))
    }

    #[test]
    fn the_order_of_meeting_does_not_matter() {
        let birth = Birth::new([member(3), member(1), member(2)]).unwrap();
        assert_eq!(birth, Birth::new([member(1), member(2), member(3)]).unwrap());
        assert_eq!(Birth::decode(&birth.encode()), Ok(birth.clone()));
        assert_eq!(birth.incarnation_of(NodeId(2)), Some(Incarnation([2; 16])));
        assert_eq!(birth.incarnation_of(NodeId(4)), None);
        assert_ne!(birth.cluster_id(), Birth::new([member(1), member(2)]).unwrap().cluster_id());
    }

    #[test]
    fn the_record_has_golden_bytes() {
        let birth = Birth::new([member(1), (NodeId(0x0102), Incarnation([2; 16]))]).unwrap();
        let hex: String = birth.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "0100000002\
             0000000101010101010101010101010101010101\
             0000010202020202020202020202020202020202"
        );
        assert_eq!(birth.cluster_id().to_string(), "d6187c9eaadb0960d42888c4c883d6d7");
    }

    #[test]
    fn impossible_members_are_refused() {
        assert_eq!(Birth::new([]), Err(BirthError::Count { count: 0 }));
        assert_eq!(Birth::new([member(1), member(1)]), Err(BirthError::Twice { node: NodeId(1) }));
        let copied = [member(1), (NodeId(2), member(1).1)];
        assert!(matches!(Birth::new(copied), Err(BirthError::SameDisk { .. })));
        let mut bytes = Birth::new([member(1), member(2)]).unwrap().encode();
        bytes[0] = 2;
        assert_eq!(Birth::decode(&bytes), Err(BirthError::Format { found: 2 }));
        bytes[0] = 1;
        let swapped = [&bytes[..5], &bytes[25..45], &bytes[5..25]].concat();
        assert_eq!(Birth::decode(&swapped), Err(BirthError::Malformed));
        assert_eq!(Birth::decode(&bytes[..44]), Err(BirthError::Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(birth) = Birth::decode(&bytes) {
                prop_assert_eq!(birth.encode(), bytes);
            }
        }
    }
}

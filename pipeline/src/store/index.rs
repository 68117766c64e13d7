//! Where each primary event lies: id to source, offset and length.
//!
//! Invariant: of several records with one id, the one that stands first counts: lowest source name,
//! then lowest offset. That does not depend on the order of reading, so two datacenters that have
//! read the same sources join with the same record, and a rebuilt index is the same index.
//!
//! Not here: payloads. In memory, and rebuilt at start, for now.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

/// A source by number, in the order in which it was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SourceNumber(pub u32);

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub source: SourceNumber,
    pub offset: u64,
    /// Bytes of the record, from `offset`.
    pub bytes: u32,
}

/// What became of an offered record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// The first of its id.
    New,
    /// It stands before the one that counted, and counts from now on.
    Replaced,
    /// Another one stands before it.
    Later,
}

/// The index.
#[derive(Debug, Default)]
pub(crate) struct Index {
    places: HashMap<Box<[u8]>, Place>,
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, SourceNumber>,
}

impl Index {
    /// The number of a source; a new one if it was never seen.
    pub fn number(&mut self, name: &str) -> SourceNumber {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = SourceNumber(u32::try_from(self.names.len()).expect("sources are bounded far below 2^32"));
        let name: Arc<str> = name.into();
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    /// The name of a source.
    pub fn name(&self, number: SourceNumber) -> Arc<str> {
        self.names[number.0 as usize].clone()
    }

    /// Takes a record into account.
    pub fn offer(&mut self, id: &Bytes, place: Place) -> Offered {
        let Some(known) = self.places.get_mut(&id[..]) else {
            self.places.insert(id.as_ref().into(), place);
            return Offered::New;
        };
        let order = |place: &Place| (&self.names[place.source.0 as usize], place.offset);
        if order(&place) < order(known) {
            *known = place;
            return Offered::Replaced;
        }
        Offered::Later
    }

    /// Where the record of an id lies.
    pub fn get(&self, id: &[u8]) -> Option<Place> {
        self.places.get(id).copied()
    }

    /// How many ids are known.
    pub fn len(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_record_counts_in_whatever_order_they_are_read() {
        let records = [("b", 5), ("a", 90), ("b", 1), ("a", 7), ("c", 0)];
        for rotation in 0..records.len() {
            let mut index = Index::default();
            let mut rotated = records;
            rotated.rotate_left(rotation);
            for (name, offset) in rotated {
                let source = index.number(name);
                index.offer(&Bytes::from_static(b"q"), Place { source, offset, bytes: 3 });
            }
            let place = index.get(b"q").unwrap();
            assert_eq!((&*index.name(place.source), place.offset), ("a", 7));
            assert_eq!(index.len(), 1);
        }
    }

    #[test]
    fn what_happened_is_told() {
        let mut index = Index::default();
        let id = Bytes::from_static(b"q");
        let source = index.number("a");
        assert_eq!(index.offer(&id, Place { source, offset: 9, bytes: 3 }), Offered::New);
        assert_eq!(index.offer(&id, Place { source, offset: 9, bytes: 3 }), Offered::Later);
        assert_eq!(index.offer(&id, Place { source, offset: 4, bytes: 3 }), Offered::Replaced);
        assert_eq!(index.get(b"other"), None);
        assert_eq!(index.number("a"), source);
    }
}

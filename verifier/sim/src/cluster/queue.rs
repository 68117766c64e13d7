//! What is to happen, in order.
//!
//! Invariant: by time, and at one time in the order in which it was put there. What is put back
//! keeps its number, so that what waits for one thing does not overtake itself.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Time;

pub(crate) struct Queue<T> {
    /// The heap moves places, not what stands there: that is large.
    order: BinaryHeap<Reverse<(Time, u64, usize)>>,
    places: Vec<Option<T>>,
    free: Vec<usize>,
    /// How many things were put here.
    count: u64,
}

/// Something that is due, with its number.
pub(crate) struct Due<T> {
    pub at: Time,
    pub number: u64,
    pub what: T,
}

impl<T> Queue<T> {
    pub fn new() -> Queue<T> {
        Queue { order: BinaryHeap::new(), places: Vec::new(), free: Vec::new(), count: 0 }
    }

    pub fn put(&mut self, at: Time, what: T) {
        let number = self.count;
        self.count += 1;
        self.insert(Due { at, number, what });
    }

    /// Later, as if it had been put there when it was first.
    pub fn put_back(&mut self, due: Due<T>, at: Time) {
        self.insert(Due { at, ..due });
    }

    fn insert(&mut self, due: Due<T>) {
        let Due { at, number, what } = due;
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(what);
        self.order.push(Reverse((at, number, place)));
    }

    pub fn next_at(&self) -> Option<Time> {
        self.order.peek().map(|Reverse((at, _, _))| *at)
    }

    pub fn pop(&mut self) -> Option<Due<T>> {
        let Reverse((at, number, place)) = self.order.pop()?;
        let what = self.places[place].take().expect("each place is popped once");
        self.free.push(place);
        Some(Due { at, number, what })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_first_then_the_order_of_putting() {
        let at = |millis| Time(Duration::from_millis(millis));
        let mut queue = Queue::new();
        for (millis, what) in [(5, "c"), (1, "a"), (5, "d"), (1, "b")] {
            queue.put(at(millis), what);
        }
        let first = queue.pop().unwrap();
        assert_eq!((first.at, first.what), (at(1), "a"));
        // Put back to the time of c and d, behind c by number, before what comes new.
        queue.put(at(5), "e");
        queue.put_back(first, at(5));
        assert_eq!(queue.next_at(), Some(at(1)));
        let rest: Vec<&str> = std::iter::from_fn(|| queue.pop()).map(|due| due.what).collect();
        assert_eq!(rest, ["b", "c", "a", "d", "e"]);
    }
}

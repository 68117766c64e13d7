//! What the engine wants of the files, on its way there.
//!
//! Invariant: orders leave in the order in which they were given, and the engine never waits. What
//! the queue has no room for is held, and leaves when the thread has reported that it got on.
//!
//! Ends and deferrals are bounded, since each belongs to a click that stays under way until it is
//! carried out. A click that is *done* is under way no more: while a disk stalls, any number of them
//! may come. So those of one round wait until the last ones are carried out, and leave as one order.

use std::collections::VecDeque;

use photon_format::cursor::Ended;
use photon_format::ends::EndRecord;
use photon_format::retry::{RetryId, RetryRecord};

use super::ROLE;
use super::state::{ClickId, Ending, Files, Order, Refused};
use crate::error::PipelineError;

/// Which clicks that are done leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dones {
    /// All: something that counts them comes behind.
    All,
    /// Those for which no earlier ones are waited for.
    Merged,
}

/// Orders that have not left.
pub(super) struct Outbox {
    files: Files,
    ends: Vec<(Ending, EndRecord)>,
    defer: Vec<(ClickId, RetryRecord)>,
    done: Vec<(RetryId, Ended)>,
    /// Orders that the queue had no room for, first first.
    held: VecDeque<Order>,
    /// Orders of clicks that are done, given and not yet carried out.
    dones: usize,
}

impl Outbox {
    pub fn new(files: Files) -> Outbox {
        Outbox { files, ends: Vec::new(), defer: Vec::new(), done: Vec::new(), held: VecDeque::new(), dones: 0 }
    }

    /// Its end is to be written down.
    pub fn end(&mut self, ending: Ending, record: EndRecord) {
        self.ends.push((ending, record));
    }

    /// It is to be taken into the retry store.
    pub fn defer(&mut self, id: ClickId, record: RetryRecord) {
        self.defer.push((id, record));
    }

    /// It has ended, in the retry store.
    pub fn done(&mut self, id: RetryId, ended: Ended) {
        self.done.push((id, ended));
    }

    /// An order of clicks that are done was carried out.
    pub fn on_done(&mut self) {
        self.dones -= 1;
    }

    /// Gives an order, behind those before.
    pub fn give(&mut self, order: Order) -> Result<(), PipelineError> {
        self.held.push_back(order);
        self.give_held()
    }

    /// Gives what has gathered.
    pub fn flush(&mut self, dones: Dones) -> Result<(), PipelineError> {
        if !self.ends.is_empty() {
            self.held.push_back(Order::End(std::mem::take(&mut self.ends)));
        }
        if !self.defer.is_empty() {
            self.held.push_back(Order::Defer(std::mem::take(&mut self.defer)));
        }
        let may_leave = match dones {
            Dones::All => true,
            Dones::Merged => self.dones == 0,
        };
        if may_leave && !self.done.is_empty() {
            self.dones += 1;
            self.held.push_back(Order::Done(std::mem::take(&mut self.done)));
        }
        self.give_held()
    }

    fn give_held(&mut self) -> Result<(), PipelineError> {
        while let Some(order) = self.held.pop_front() {
            match self.files.order(order) {
                Ok(()) => (),
                Err(Refused::Full(order)) => {
                    self.held.push_front(*order);
                    return Ok(());
                }
                Err(Refused::Gone) => {
                    return Err(PipelineError::Gone { role: ROLE, part: "the thread of its files" });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    fn outbox(room: usize) -> (Outbox, Receiver<Order>) {
        let (files, orders) = Files::of_queue(room);
        (Outbox::new(files), orders)
    }

    fn dones(order: &Order) -> Vec<u64> {
        match order {
            Order::Done(clicks) => clicks.iter().map(|(id, _)| id.0).collect(),
            other @ (Order::Check(_) | Order::End(_) | Order::Defer(_) | Order::Reinject { .. } | Order::Save(_)) => {
                panic!("{}", other.name())
            }
        }
    }

    #[test]
    fn clicks_that_are_done_while_the_disk_stalls_are_one_order() {
        let (mut outbox, orders) = outbox(2);
        for id in 0..1_000 {
            outbox.done(RetryId(id), Ended::Joined);
            outbox.flush(Dones::Merged).unwrap();
        }
        assert_eq!(dones(&orders.recv().unwrap()), [0]);
        assert!(orders.try_recv().is_err(), "the others wait");
        outbox.on_done();
        outbox.flush(Dones::Merged).unwrap();
        assert_eq!(dones(&orders.recv().unwrap()), (1..1_000).collect::<Vec<_>>());
        // What counts them comes behind them, whatever is outstanding.
        outbox.done(RetryId(1_000), Ended::Joined);
        outbox.flush(Dones::All).unwrap();
        outbox.give(Order::Save(photon_format::cursor::Cursor::default())).unwrap();
        assert_eq!(dones(&orders.recv().unwrap()), [1_000]);
        assert_eq!(orders.recv().unwrap().name(), "save");
    }

    #[test]
    fn a_full_queue_is_no_dead_thread() {
        let (mut outbox, orders) = outbox(1);
        for id in 0..3 {
            outbox.done(RetryId(id), Ended::Joined);
            outbox.flush(Dones::All).unwrap();
        }
        for id in 0..3 {
            assert_eq!(dones(&orders.recv().unwrap()), [id]);
            outbox.on_done();
            outbox.flush(Dones::All).unwrap();
        }
        drop(orders);
        outbox.done(RetryId(3), Ended::Joined);
        let error = outbox.flush(Dones::All).unwrap_err();
        assert!(matches!(error, PipelineError::Gone { .. }), "{error}");
    }
}

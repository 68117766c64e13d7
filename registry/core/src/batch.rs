//! Batching: the requests of all clients that wait are packed into one slot.
//!
//! Invariant: a request is whole in one batch. What waits here was never proposed, so that losing
//! leadership can tell it that nothing has happened.
//!
//! A batch closes when it is full, or when the pipeline has room. Since only a pipeline with room
//! can take a batch, requests wait one by one here and are packed when it asks.

use std::collections::VecDeque;

use bytes::Bytes;
use photon_types::{Chunk, NodeId};

use crate::config::Limits;
use crate::effect::{Effect, Reply};
use crate::event::RequestId;
use crate::paxos::message::Value;
use crate::pending::Waiter;

/// What the pipeline proposes: the bytes, and who waits for which part of the outcomes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Batch {
    pub value: Value,
    pub waiters: Vec<Waiter>,
    pub commands: usize,
}

/// Requests that wait for room in the pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    requests: VecDeque<(RequestId, Chunk<Bytes>)>,
    commands: usize,
    bytes: usize,
}

impl Queue {
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    pub fn commands(&self) -> usize {
        self.commands
    }

    pub fn has_room(&self, chunk: &Chunk<Bytes>, limits: &Limits) -> bool {
        self.requests.len() < limits.queued_requests_max
            && chunk.count <= limits.queued_commands_max.saturating_sub(self.commands)
            && chunk.bytes.len() <= limits.queued_bytes_max.saturating_sub(self.bytes)
    }

    pub fn push(&mut self, request: RequestId, chunk: Chunk<Bytes>) {
        self.commands += chunk.count;
        self.bytes += chunk.bytes.len();
        self.requests.push_back((request, chunk));
    }

    /// The next batch: as many requests as fit, at least one. None when nothing waits.
    pub fn take_batch(&mut self, limits: &Limits) -> Option<Batch> {
        let mut taken = Vec::new();
        let (mut commands, mut bytes) = (0, 0);
        while let Some((_, chunk)) = self.requests.front() {
            let fits = commands + chunk.count <= limits.batch_commands_max
                && bytes + chunk.bytes.len() <= limits.batch_bytes_max;
            if !fits && !taken.is_empty() {
                break;
            }
            commands += chunk.count;
            bytes += chunk.bytes.len();
            taken.push(self.requests.pop_front().expect("looked at above"));
        }
        if taken.is_empty() {
            return None;
        }
        self.commands -= commands;
        self.bytes -= bytes;
        let waiters =
            taken.iter().map(|(request, chunk)| Waiter { request: *request, commands: chunk.count }).collect();
        let value = match taken.as_slice() {
            [(_, only)] => only.bytes.clone(),
            many => many
                .iter()
                .fold(Vec::with_capacity(bytes), |mut value, (_, chunk)| {
                    value.extend_from_slice(&chunk.bytes);
                    value
                })
                .into(),
        };
        Some(Batch { value, waiters, commands })
    }

    /// Leadership is lost: nothing has happened to what waits.
    pub fn refuse_all(&mut self, hint: Option<NodeId>, out: &mut Vec<Effect>) {
        for (request, _) in std::mem::take(self).requests {
            out.push(Effect::Reply { request, reply: Reply::NotLeader { hint } });
        }
    }

    pub fn check(&self, limits: &Limits) {
        assert!(self.requests.len() <= limits.queued_requests_max);
        assert!(self.commands <= limits.queued_commands_max);
        assert!(self.bytes <= limits.queued_bytes_max);
        assert!(self.requests.len() <= self.commands);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { batch_commands_max: 4, batch_bytes_max: 8, queued_commands_max: 6, ..Limits::default() }
    }

    #[track_caller]
    fn check(requests: &[(usize, &'static str)], want: &[&str]) {
        let mut queue = Queue::default();
        for (request, (count, bytes)) in (0..).zip(requests) {
            queue.push(RequestId(request), Chunk { count: *count, bytes: Bytes::from_static(bytes.as_bytes()) });
        }
        let mut found = Vec::new();
        while let Some(batch) = queue.take_batch(&limits()) {
            assert_eq!(batch.commands, batch.waiters.iter().map(|w| w.commands).sum::<usize>());
            found.push(String::from_utf8(batch.value.to_vec()).unwrap());
        }
        assert_eq!(found, want);
        assert_eq!(queue, Queue::default());
    }

    #[test]
    fn batches_close_when_full() {
        check(&[], &[]);
        check(&[(1, "a"), (1, "b"), (2, "c"), (1, "d")], &["abc", "d"]);
        check(&[(1, "aaaaa"), (1, "bbbb"), (1, "cccc")], &["aaaaa", "bbbbcccc"]);
    }

    #[test]
    fn a_request_over_the_limit_is_a_batch_of_its_own() {
        check(&[(1, "a"), (5, "large"), (1, "b")], &["a", "large", "b"]);
    }

    #[test]
    fn room_is_bounded_by_commands() {
        let mut queue = Queue::default();
        let chunk = |count| Chunk { count, bytes: Bytes::from_static(b"x") };
        queue.push(RequestId(1), chunk(4));
        assert!(queue.has_room(&chunk(2), &limits()));
        assert!(!queue.has_room(&chunk(3), &limits()));
    }
}

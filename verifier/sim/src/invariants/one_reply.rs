//! A request gets one reply, and while its node lives it gets one.
//!
//! `Effect::Reply`: "at most once for each request"; `Reply`: "each request gets exactly one, while
//! the process lives" (photon-core). Two replies answer somebody else's question, none leaves a
//! client waiting for its deadline.

use std::collections::{BTreeMap, BTreeSet};

use photon_core::RequestId;

use super::{Judgement, Life};

#[derive(Debug, Default)]
pub(crate) struct OneReply {
    waiting: BTreeMap<RequestId, Life>,
    replied: BTreeSet<RequestId>,
}

impl OneReply {
    pub fn requested(&mut self, life: Life, request: RequestId) {
        self.waiting.insert(request, life);
    }

    pub fn replied(&mut self, request: RequestId) -> Judgement {
        if !self.replied.insert(request) {
            return Err(format!("request r{} has two replies", request.0));
        }
        match self.waiting.remove(&request) {
            Some(_) => Ok(()),
            None => Err(format!("a reply to request r{}, which was not made in this life", request.0)),
        }
    }

    pub fn crashed(&mut self, life: Life) {
        self.waiting.retain(|_, waits| *waits != life);
    }

    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The cluster is quiet: nobody may wait any more.
    pub fn finished(&self) -> Judgement {
        match self.waiting.first_key_value() {
            None => Ok(()),
            Some((request, life)) => Err(format!("request r{} at {life} has no reply and will get none", request.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{check_evidence, life};
    use super::*;

    #[test]
    fn one_is_right() {
        let mut replies = OneReply::default();
        replies.requested(life(1, 1), RequestId(7));
        check_evidence(replies.finished(), &["r7", "node 1", "no reply"]);
        assert_eq!(replies.replied(RequestId(7)), Ok(()));
        assert_eq!(replies.finished(), Ok(()));
        check_evidence(replies.replied(RequestId(7)), &["r7", "two replies"]);
    }

    #[test]
    fn a_crash_ends_the_wait_and_nobody_else_answers() {
        let mut replies = OneReply::default();
        replies.requested(life(1, 1), RequestId(7));
        replies.requested(life(2, 1), RequestId(8));
        replies.crashed(life(1, 1));
        assert!(replies.is_waiting());
        check_evidence(replies.replied(RequestId(7)), &["r7", "not made in this life"]);
        assert_eq!(replies.replied(RequestId(8)), Ok(()));
        assert_eq!(replies.finished(), Ok(()));
    }
}

//! The reply to one request, as a type.
//!
//! Invariant: it is consumed by one answer; dropped without one, it answers `Unknown`, which is
//! always true and never harms.

use photon_core::Reply;
use tokio::sync::oneshot;

/// Where the answer goes.
#[derive(Debug)]
pub(crate) struct ReplyTo(Option<oneshot::Sender<Reply>>);

/// Where the answer comes.
#[derive(Debug)]
pub(crate) struct ReplyFrom(oneshot::Receiver<Reply>);

impl ReplyTo {
    pub fn channel() -> (ReplyTo, ReplyFrom) {
        let (to, from) = oneshot::channel();
        (ReplyTo(Some(to)), ReplyFrom(from))
    }

    /// Answers. Who asked may have gone: then nobody hears it.
    pub fn answer(mut self, reply: Reply) {
        if let Some(to) = self.0.take() {
            let _ = to.send(reply);
        }
    }

    /// Who asked has gone.
    pub fn is_abandoned(&self) -> bool {
        self.0.as_ref().is_some_and(oneshot::Sender::is_closed)
    }
}

impl Drop for ReplyTo {
    fn drop(&mut self) {
        if let Some(to) = self.0.take() {
            let _ = to.send(Reply::Unknown);
        }
    }
}

impl ReplyFrom {
    pub async fn wait(self) -> Reply {
        self.0.await.unwrap_or(Reply::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dropped_reply_is_unknown() {
        let (to, from) = ReplyTo::channel();
        drop(to);
        assert_eq!(from.wait().await, Reply::Unknown);
        let (to, from) = ReplyTo::channel();
        to.answer(Reply::NotLeader { hint: None });
        assert_eq!(from.wait().await, Reply::NotLeader { hint: None });
        let (to, from) = ReplyTo::channel();
        assert!(!to.is_abandoned());
        drop(from);
        assert!(to.is_abandoned());
    }
}

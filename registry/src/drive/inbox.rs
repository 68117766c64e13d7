//! The three inboxes of the driver: what was asked for and is done, what peers say, what clients ask.
//!
//! Bounded queues in a ring deadlock, so the three are apart. Invariant: a completion is never
//! refused (there are only as many as were asked for); a full peer inbox drops, since peers repeat;
//! a full client inbox refuses at once, since nothing has happened yet.
//!
//! One lock and one wake-up for all three: the driver takes all that is there in one go.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use photon_core::{Entry, IoSeq, Message, ReadId};
use photon_types::{Chunk, GroupId, NodeId, Outcomes, Slot};

use super::reply::ReplyTo;

/// What a lane reports.
#[derive(Debug)]
pub(crate) enum Completion {
    /// Journal: all up to here is on stable storage.
    Persisted { group: GroupId, upto: IoSeq, bytes: usize },
    /// Apply: all below is applied.
    Applied { group: GroupId, applied_end: Slot, outcomes: Vec<(Slot, Outcomes)>, bytes: usize },
    /// Reader: entries of the journal.
    EntriesRead { group: GroupId, read: ReadId, entries: Vec<Entry> },
}

/// A message of a peer whose handshake was good.
#[derive(Debug)]
pub(crate) struct PeerMessage {
    pub group: GroupId,
    pub from: NodeId,
    pub message: Message,
}

/// A client's chunk, checked by the door.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    pub group: GroupId,
    pub commands: Chunk<Bytes>,
    pub reply: ReplyTo,
}

/// Why an offer was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no room.
    Full,
    /// The driver has ended, or is about to.
    Closed,
}

/// Does the driver take clients' work in this round?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Clients,
    NoClients,
}

/// What was there.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub completions: Vec<Completion>,
    pub messages: Vec<PeerMessage>,
    pub requests: Vec<ClientRequest>,
    /// The driver shall end.
    pub closing: bool,
}

#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    wake: Condvar,
    bounds: Bounds,
}

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub messages_max: usize,
    pub messages_bytes_max: usize,
    pub requests_max: usize,
    pub requests_bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: Taken,
    messages_bytes: usize,
    requests_bytes: usize,
    /// The driver waits for the wake-up and not for clients' work.
    sleeping: Option<Admission>,
}

impl Inbox {
    pub fn new(bounds: Bounds) -> Inbox {
        Inbox { state: Mutex::default(), wake: Condvar::new(), bounds }
    }

    /// From a lane. Never refused.
    pub fn complete(&self, completions: impl IntoIterator<Item = Completion>) {
        let mut state = self.lock();
        state.waiting.completions.extend(completions);
        self.wake(&mut state, Admission::NoClients);
    }

    /// From a peer, all or none.
    pub fn offer_messages(&self, messages: Vec<PeerMessage>) -> Result<(), Refusal> {
        let bytes: usize = messages.iter().map(|message| message_bytes(&message.message)).sum();
        let mut state = self.lock();
        if state.waiting.closing {
            return Err(Refusal::Closed);
        }
        // What comes to an empty inbox is taken whatever its size: the wire's limit bounds it.
        let is_empty = state.waiting.messages.is_empty();
        let fits = state.waiting.messages.len() + messages.len() <= self.bounds.messages_max
            && state.messages_bytes + bytes <= self.bounds.messages_bytes_max;
        if !is_empty && !fits {
            return Err(Refusal::Full);
        }
        state.messages_bytes += bytes;
        state.waiting.messages.extend(messages);
        self.wake(&mut state, Admission::NoClients);
        Ok(())
    }

    /// From a client.
    pub fn offer_request(&self, request: ClientRequest) -> Result<(), Refusal> {
        let bytes = request.commands.bytes.len();
        let mut state = self.lock();
        if state.waiting.closing {
            return Err(Refusal::Closed);
        }
        if self.bounds.requests_max <= state.waiting.requests.len()
            || self.bounds.requests_bytes_max < state.requests_bytes + bytes
        {
            return Err(Refusal::Full);
        }
        state.requests_bytes += bytes;
        state.waiting.requests.push(request);
        self.wake(&mut state, Admission::Clients);
        Ok(())
    }

    /// Asks the driver to end; nothing is taken any more.
    pub fn close(&self) {
        let mut state = self.lock();
        state.waiting.closing = true;
        self.wake(&mut state, Admission::NoClients);
    }

    pub fn is_closing(&self) -> bool {
        self.lock().waiting.closing
    }

    /// For the driver: takes what is there, or waits for something, at most for `timeout`.
    pub fn take(&self, timeout: Option<Duration>, admission: Admission) -> Taken {
        let mut state = self.lock();
        if state.is_idle(admission) && timeout != Some(Duration::ZERO) {
            state.sleeping = Some(admission);
            // A wake-up without a cause costs one empty round, so there is no loop here.
            state = match timeout {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => self.wake.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0,
            };
            state.sleeping = None;
        }
        state.messages_bytes = 0;
        let requests = match admission {
            Admission::Clients => {
                state.requests_bytes = 0;
                std::mem::take(&mut state.waiting.requests)
            }
            Admission::NoClients => Vec::new(),
        };
        Taken {
            completions: std::mem::take(&mut state.waiting.completions),
            messages: std::mem::take(&mut state.waiting.messages),
            requests,
            closing: state.waiting.closing,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A thread that panicked while it held the lock left whole values behind: each section
        // above only moves values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the driver when it sleeps and would take this.
    fn wake(&self, state: &mut State, needs: Admission) {
        let takes = match (state.sleeping, needs) {
            (None, _) | (Some(Admission::NoClients), Admission::Clients) => false,
            (Some(_), Admission::NoClients) | (Some(Admission::Clients), Admission::Clients) => true,
        };
        if takes {
            state.sleeping = None;
            self.wake.notify_one();
        }
    }
}

impl State {
    fn is_idle(&self, admission: Admission) -> bool {
        let no_requests = match admission {
            Admission::Clients => self.waiting.requests.is_empty(),
            Admission::NoClients => true,
        };
        no_requests && self.waiting.completions.is_empty() && self.waiting.messages.is_empty() && !self.waiting.closing
    }
}

/// What a message costs while it waits.
pub(crate) fn message_bytes(message: &Message) -> usize {
    const FIXED_BYTES: usize = 64;
    let values = match message {
        Message::Promise(promise) => entries_bytes(&promise.accepted),
        Message::Chosen(chosen) => entries_bytes(&chosen.entries),
        Message::Accept(accept) => accept.value.len(),
        Message::Prepare(_)
        | Message::Nack(_)
        | Message::Accepted(_)
        | Message::Heartbeat(_)
        | Message::FetchChosen(_) => 0,
    };
    FIXED_BYTES + values
}

fn entries_bytes(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| 32 + entry.value.len()).sum()
}

#[cfg(test)]
mod tests {
    use photon_core::{Ballot, Heartbeat, Message};

    use super::*;

    const BOUNDS: Bounds =
        Bounds { messages_max: 2, messages_bytes_max: 1 << 20, requests_max: 2, requests_bytes_max: 100 };

    fn heartbeat() -> PeerMessage {
        let message = Message::Heartbeat(Heartbeat { ballot: Ballot::ZERO, commit_end: Slot(0) });
        PeerMessage { group: GroupId(1), from: NodeId(2), message }
    }

    fn request(bytes: usize) -> ClientRequest {
        let commands = Chunk { count: 1, bytes: Bytes::from(vec![0; bytes]) };
        ClientRequest { group: GroupId(1), commands, reply: ReplyTo::channel().0 }
    }

    #[test]
    fn peers_are_dropped_and_clients_refused_when_full() {
        let inbox = Inbox::new(BOUNDS);
        assert_eq!(inbox.offer_messages(vec![heartbeat(), heartbeat()]), Ok(()));
        assert_eq!(inbox.offer_messages(vec![heartbeat()]), Err(Refusal::Full));
        assert_eq!(inbox.offer_request(request(60)), Ok(()));
        assert_eq!(inbox.offer_request(request(60)), Err(Refusal::Full));
        assert_eq!(inbox.offer_request(request(40)), Ok(()));
        assert_eq!(inbox.offer_request(request(0)), Err(Refusal::Full));
        // Without credits the clients go on waiting, and completions still pass.
        inbox.complete([Completion::Persisted { group: GroupId(1), upto: IoSeq(1), bytes: 1 }]);
        let taken = inbox.take(None, Admission::NoClients);
        assert_eq!((taken.completions.len(), taken.messages.len(), taken.requests.len()), (1, 2, 0));
        assert_eq!(inbox.offer_request(request(0)), Err(Refusal::Full));
        let taken = inbox.take(None, Admission::Clients);
        assert_eq!((taken.completions.len(), taken.messages.len(), taken.requests.len()), (0, 0, 2));
        assert_eq!(inbox.offer_request(request(100)), Ok(()));
    }

    #[test]
    fn nothing_is_taken_once_it_closes() {
        let inbox = Inbox::new(BOUNDS);
        inbox.close();
        assert_eq!(inbox.offer_request(request(0)), Err(Refusal::Closed));
        assert_eq!(inbox.offer_messages(vec![heartbeat()]), Err(Refusal::Closed));
        assert!(inbox.take(None, Admission::NoClients).closing);
    }

    #[test]
    fn a_sleeper_is_woken_from_another_thread() {
        let inbox = Inbox::new(BOUNDS);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                loop {
                    let taken = inbox.take(None, Admission::Clients);
                    if !taken.requests.is_empty() {
                        return taken.requests.len();
                    }
                }
            });
            inbox.offer_request(request(1)).unwrap();
            assert_eq!(sleeper.join().unwrap(), 1);
        });
    }
}

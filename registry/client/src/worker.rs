//! The worker of a client: the queue, the chunks in flight, and the one connection to the leader.
//!
//! Everything happens in one task, so there are no locks: it waits for the next event, handles it,
//! and then sends whatever can be sent. A single call on an idle client leaves at once; while
//! chunks are in flight up to the limit, what arrives meanwhile is packed into the next ones.
//!
//! Invariants: a command is in the queue exactly when its call says `Waiting`; every chunk in
//! flight holds commands whose calls say `Sent`, or whose calls have ended.
//!
//! Not here: what the end of an attempt means (`attempt`), how a leader is found (`search`).

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use photon_proto::registry::SubmitRequest;
use photon_types::{CHUNK_BYTES_MAX, ClusterId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinError, JoinHandle, JoinSet};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::attempt::{self, Attempt, check_cluster};
use crate::backoff::Backoff;
use crate::call::Call;
use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::rules::key_rules_hash;
use crate::search::{self, Connection, Round, Start};

/// The longest a leader's "ask again after" is obeyed; it is a number from the wire.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Numbers calls: never reused within a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct CallId(u64);

/// Numbers connections, so that the late end of a chunk does not harm a newer connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LinkId(u64);

/// One command, by its place in a call.
#[derive(Clone, Copy, Debug)]
struct Item {
    call: CallId,
    index: usize,
}

/// What is on its way.
#[derive(Debug)]
struct Chunk {
    items: Vec<Item>,
    link: LinkId,
    endpoint: Arc<str>,
}

#[derive(Debug)]
enum Link {
    /// No connection. A search may begin at `search_at`, and does when somebody waits.
    Down { search_at: Instant },
    /// A round of questions is on its way.
    Searching { round: JoinHandle<Round> },
    /// Connected to a leader that holds our key rules.
    Up { id: LinkId, connection: Connection },
}

/// Everything the worker waits for.
enum Event {
    Called(Call),
    /// No handle of this client is left.
    NoMoreCallers,
    Ended(Id, Result<Attempt, JoinError>),
    Searched(Result<Round, JoinError>),
    /// A deadline, the end of a pause, or the time of the next search.
    Time,
}

/// What to tell a command that certainly did nothing, when its time is up.
fn no_room() -> ClientError {
    ClientError::Overloaded { cause: "it waited for room in the messages to the leader".into() }
}

/// See the module.
pub(crate) struct Worker {
    config: Arc<ClientConfig>,
    key_rules_hash: bytes::Bytes,
    inbox: mpsc::Receiver<Call>,
    /// Who waits for the first leader. Taken when `connect` has its answer.
    connecting: Option<oneshot::Sender<Result<ClusterId, ClientError>>>,
    connect_deadline: Instant,
    cluster_id: Option<ClusterId>,

    /// Calls that have not ended.
    calls: HashMap<CallId, Call>,
    /// Their deadlines; exactly one for each call.
    deadlines: BTreeSet<(Instant, CallId)>,
    calls_total: u64,
    /// Commands to send, oldest first. Commands of ended calls are skipped.
    queue: VecDeque<Item>,

    attempts: JoinSet<Attempt>,
    chunks: HashMap<Id, Chunk>,
    link: Link,
    links_total: u64,
    start: Start,
    backoff: Backoff,
    /// The leader asked for a pause until then.
    pause_until: Option<Instant>,
    /// Why nothing was done last; `None` while all is well.
    trouble: Option<ClientError>,
}

impl Worker {
    pub fn new(
        config: Arc<ClientConfig>,
        inbox: mpsc::Receiver<Call>,
        connecting: oneshot::Sender<Result<ClusterId, ClientError>>,
    ) -> Worker {
        let now = Instant::now();
        // Jitter needs no good randomness: without any, clients are merely in step.
        let seed = getrandom::u64().unwrap_or(0);
        Worker {
            key_rules_hash: key_rules_hash(&config.key_rules),
            inbox,
            connecting: Some(connecting),
            connect_deadline: now + config.timings.connect_within,
            cluster_id: config.cluster_id,
            calls: HashMap::new(),
            deadlines: BTreeSet::new(),
            calls_total: 0,
            queue: VecDeque::new(),
            attempts: JoinSet::new(),
            chunks: HashMap::new(),
            link: Link::Down { search_at: now },
            links_total: 0,
            // Clients of one configuration begin at different endpoints.
            start: Start { hint: None, position: usize::try_from(seed >> 33).expect("31 bits fit") },
            backoff: Backoff::new(config.timings.backoff_min, config.timings.backoff_max, seed),
            pause_until: None,
            trouble: None,
            config,
        }
    }

    /// Works until the last handle of the client is gone.
    pub async fn run(mut self) {
        loop {
            self.search_if_wanted();
            self.send();
            match self.next_event().await {
                Event::Called(call) => self.on_called(call),
                Event::NoMoreCallers => break,
                Event::Ended(id, result) => self.on_ended(id, result),
                Event::Searched(result) => self.on_searched(result),
                Event::Time => (),
            }
            self.expire(Instant::now());
        }
        if let Link::Searching { round } = &self.link {
            round.abort();
        }
    }

    async fn next_event(&mut self) -> Event {
        let wake_at = self.wake_at();
        let searched = async {
            match &mut self.link {
                Link::Searching { round } => round.await,
                Link::Down { .. } | Link::Up { .. } => std::future::pending().await,
            }
        };
        let time = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Ends before new work: they are few, and they make room.
            biased;
            Some(ended) = self.attempts.join_next_with_id() => match ended {
                Ok((id, attempt)) => Event::Ended(id, Ok(attempt)),
                Err(error) => Event::Ended(error.id(), Err(error)),
            },
            round = searched => Event::Searched(round),
            call = self.inbox.recv() => call.map_or(Event::NoMoreCallers, Event::Called),
            () = time => Event::Time,
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let connecting = self.connecting.is_some().then_some(self.connect_deadline);
        let search = match self.link {
            Link::Down { search_at } if self.is_wanted() => Some(search_at),
            Link::Down { .. } | Link::Searching { .. } | Link::Up { .. } => None,
        };
        [deadline, connecting, search, self.pause_until].into_iter().flatten().min()
    }

    fn is_wanted(&self) -> bool {
        self.connecting.is_some() || !self.queue.is_empty()
    }

    fn search_if_wanted(&mut self) {
        match self.link {
            Link::Down { search_at } if self.is_wanted() && search_at <= Instant::now() => {
                let round = search::round(self.config.clone(), self.cluster_id, self.start.clone());
                self.link = Link::Searching { round: tokio::spawn(round) };
            }
            Link::Down { .. } | Link::Searching { .. } | Link::Up { .. } => (),
        }
    }

    fn on_called(&mut self, call: Call) {
        self.admit(call);
        // Whatever else has arrived goes into the same chunk.
        while let Ok(call) = self.inbox.try_recv() {
            self.admit(call);
        }
    }

    fn admit(&mut self, call: Call) {
        if call.is_ended() {
            return call.finish(&no_room(), &"".into());
        }
        let id = CallId(self.calls_total);
        self.calls_total += 1;
        self.queue.extend(call.waiting().map(|index| Item { call: id, index }));
        self.deadlines.insert((call.deadline, id));
        self.calls.insert(id, call);
    }

    /// Sends chunks while there is work, room and a leader.
    fn send(&mut self) {
        if self.pause_until.is_some_and(|until| until <= Instant::now()) {
            self.pause_until = None;
        }
        let Link::Up { id: link, connection } = &self.link else { return };
        let (link, connection) = (*link, connection.clone());
        while self.pause_until.is_none() && self.chunks.len() < self.config.limits.chunks_in_flight_max {
            let Some((items, commands)) = self.pack() else { return };
            let request = SubmitRequest {
                key_rules_hash: self.key_rules_hash.clone(),
                count: u32::try_from(items.len()).expect("a chunk's count fits 32 bits"),
                commands: commands.into(),
                cluster_id: connection.cluster_id.0.to_vec().into(),
            };
            let attempt = attempt::submit(connection.client.clone(), request, self.config.timings.attempt_timeout);
            let task = self.attempts.spawn(attempt);
            let chunk = Chunk { items, link, endpoint: connection.endpoint.clone() };
            assert!(self.chunks.insert(task.id(), chunk).is_none(), "ids of running tasks are unique");
        }
    }

    /// The next commands of the queue, up to one chunk. `None` when nobody waits.
    fn pack(&mut self) -> Option<(Vec<Item>, Vec<u8>)> {
        let mut items = Vec::new();
        let mut bytes = Vec::new();
        while let Some(&item) = self.queue.front() {
            let Some(call) = self.calls.get_mut(&item.call) else {
                self.queue.pop_front();
                continue;
            };
            if call.is_abandoned() {
                self.forget(item.call);
                continue;
            }
            let command = call.command(item.index);
            let is_full =
                self.config.limits.chunk_commands_max <= items.len() || CHUNK_BYTES_MAX < bytes.len() + command.len();
            if is_full {
                break;
            }
            bytes.extend_from_slice(command);
            call.sent(item.index);
            items.push(item);
            self.queue.pop_front();
        }
        (!items.is_empty()).then_some((items, bytes))
    }

    fn on_ended(&mut self, id: Id, result: Result<Attempt, JoinError>) {
        let chunk = self.chunks.remove(&id).expect("every attempt has its chunk");
        let attempt = result.unwrap_or_else(|error| Attempt::Lost { cause: format!("the attempt broke: {error}") });
        let attempt = self.check_cluster_of(&chunk, attempt);
        let endpoint = chunk.endpoint.clone();
        let unreachable = |cause: &str| ClientError::Unreachable { cause: format!("{endpoint}: {cause}").into() };
        match attempt {
            Attempt::Done { slot, group, outcomes, cluster_id: _ } => {
                self.trouble = None;
                self.backoff.succeeded();
                for (item, outcome) in chunk.items.into_iter().zip(outcomes) {
                    if let Some(call) = self.calls.get_mut(&item.call) {
                        call.answer(item.index, slot, group, outcome);
                        self.finish_if_ended(item.call);
                    }
                }
            }
            Attempt::NotLeader { hint, cluster_id: _ } => {
                let cause = format!("it does not lead and names {} as the leader", hint.as_deref().unwrap_or("nobody"));
                self.back(&chunk, Call::back);
                self.link_down(chunk.link, hint.map(Arc::from), unreachable(&cause));
            }
            Attempt::Overloaded { retry_after } => {
                self.back(&chunk, Call::back);
                let pause = retry_after.clamp(self.config.timings.backoff_min, PAUSE_MAX);
                let until = Instant::now() + self.backoff.jitter(pause);
                debug!(%endpoint, ?pause, "the leader is overloaded");
                self.pause_until = self.pause_until.max(Some(until));
                self.trouble = Some(ClientError::Overloaded { cause: format!("{endpoint} had no room").into() });
            }
            Attempt::Unavailable { cause } => {
                self.back(&chunk, Call::back);
                self.link_down(chunk.link, None, unreachable(&cause));
            }
            Attempt::KeyRulesMissing => {
                self.back(&chunk, Call::back);
                // The search states them again.
                self.link_down(chunk.link, Some(endpoint.clone()), unreachable("it knows no key rules"));
            }
            Attempt::KeyRulesDiffer { kept } => self.refused(&chunk, &search::differ(&self.config.clone(), &kept)),
            Attempt::WrongCluster { found } => {
                let expected = self.cluster_id.expect("known since the first connection");
                self.refused(&chunk, &ClientError::WrongCluster { endpoint, expected, found });
            }
            Attempt::Refused { reason } => {
                self.refused(&chunk, &ClientError::Refused { endpoint, reason: reason.into() });
            }
            Attempt::Unknown { cause } => {
                debug!(%endpoint, cause, commands = chunk.items.len(), "the node can not tell");
                self.back(&chunk, Call::back_ambiguous);
                // It knows best who leads now.
                self.link_down(chunk.link, Some(endpoint.clone()), unreachable(&cause));
            }
            Attempt::Lost { cause } => {
                debug!(%endpoint, cause, commands = chunk.items.len(), "nobody answered");
                self.back(&chunk, Call::back_ambiguous);
                self.link_down(chunk.link, None, unreachable(&cause));
            }
        }
    }

    /// An answer in another cluster's name says nothing about ours.
    fn check_cluster_of(&self, chunk: &Chunk, attempt: Attempt) -> Attempt {
        let found = match &attempt {
            Attempt::Done { cluster_id, .. } | Attempt::NotLeader { cluster_id, .. } => *cluster_id,
            Attempt::Overloaded { .. }
            | Attempt::Unavailable { .. }
            | Attempt::KeyRulesMissing
            | Attempt::KeyRulesDiffer { .. }
            | Attempt::WrongCluster { .. }
            | Attempt::Refused { .. }
            | Attempt::Unknown { .. }
            | Attempt::Lost { .. } => return attempt,
        };
        match check_cluster(&chunk.endpoint, self.cluster_id, found) {
            Ok(()) => attempt,
            Err(_) => Attempt::WrongCluster { found },
        }
    }

    /// Puts a chunk's commands back to the front of the queue, in their order.
    fn back(&mut self, chunk: &Chunk, put_back: fn(&mut Call, usize)) {
        for item in chunk.items.iter().rev() {
            if let Some(call) = self.calls.get_mut(&item.call) {
                put_back(call, item.index);
                self.queue.push_front(*item);
            }
        }
    }

    /// A chunk came back with a no that retries do not change. Commands that may have happened in
    /// an earlier attempt go on waiting, for an outcome or for their deadline.
    fn refused(&mut self, chunk: &Chunk, error: &ClientError) {
        warn!(%error, commands = chunk.items.len(), "refused");
        for &item in chunk.items.iter().rev() {
            let Some(call) = self.calls.get_mut(&item.call) else { continue };
            call.back(item.index);
            if call.fail(item.index, error) {
                self.finish_if_ended(item.call);
            } else {
                self.queue.push_front(item);
            }
        }
        self.link_down(chunk.link, None, error.clone());
    }

    /// Ends every waiting command that certainly did nothing.
    fn fail_waiting(&mut self, error: &ClientError) {
        for item in std::mem::take(&mut self.queue) {
            let Some(call) = self.calls.get_mut(&item.call) else { continue };
            if call.fail(item.index, error) {
                self.finish_if_ended(item.call);
            } else {
                self.queue.push_back(item);
            }
        }
    }

    /// Gives a connection up, if it is still the one in use, and says where to search first.
    fn link_down(&mut self, link: LinkId, hint: Option<Arc<str>>, trouble: ClientError) {
        match &self.link {
            Link::Up { id, connection } if *id == link => {
                info!(endpoint = %connection.endpoint, cause = %trouble, "left the leader");
                // Without a hint: all others first, since this one may hang once more.
                let endpoints = &self.config.endpoints;
                let left = endpoints.iter().position(|endpoint| **endpoint == *connection.endpoint);
                self.start = Start { hint, position: left.map_or(0, |left| left + 1) };
                self.link = Link::Down { search_at: Instant::now() + self.backoff.failed() };
            }
            Link::Up { .. } | Link::Down { .. } | Link::Searching { .. } => (),
        }
        self.trouble = Some(trouble);
    }

    fn on_searched(&mut self, result: Result<Round, JoinError>) {
        let round = result.unwrap_or_else(|error| Round::NotFound {
            cause: ClientError::Unreachable { cause: format!("the search broke: {error}").into() },
        });
        let rest = |worker: &mut Worker| Link::Down { search_at: Instant::now() + worker.backoff.failed() };
        match round {
            Round::Found(connection) => {
                info!(endpoint = %connection.endpoint, cluster = %connection.cluster_id, "found the leader");
                self.cluster_id = Some(connection.cluster_id);
                if let Some(connecting) = self.connecting.take() {
                    // The caller may have stopped waiting; then no handle is left, and that ends the worker.
                    let _ = connecting.send(Ok(connection.cluster_id));
                }
                self.start.hint = Some(connection.endpoint.clone());
                self.links_total += 1;
                self.link = Link::Up { id: LinkId(self.links_total), connection };
            }
            Round::NotFound { cause } => {
                debug!(%cause, "found no leader");
                self.start.hint = None;
                self.start.position = self.start.position.wrapping_add(1);
                self.link = rest(self);
                self.trouble = Some(cause);
            }
            Round::Hopeless { error } => {
                warn!(%error, "the registry will not serve this client");
                self.link = rest(self);
                if let Some(connecting) = self.connecting.take() {
                    let _ = connecting.send(Err(error.clone()));
                }
                self.fail_waiting(&error);
                self.trouble = Some(error);
            }
        }
    }

    /// Ends what has run out of time.
    fn expire(&mut self, now: Instant) {
        if self.connect_deadline <= now
            && let Some(connecting) = self.connecting.take()
        {
            let within = self.config.timings.connect_within;
            let nobody =
                || ClientError::Unreachable { cause: format!("no endpoint answered within {within:?}").into() };
            let _ = connecting.send(Err(self.trouble.clone().unwrap_or_else(nobody)));
        }
        while let Some(&(deadline, id)) = self.deadlines.first() {
            if now < deadline {
                break;
            }
            self.end(id);
        }
        // With no leader nothing is packed, and so nothing that has ended is skipped: sweep then.
        if self.config.limits.queue_commands_max < self.queue.len() {
            self.queue.retain(|item| self.calls.contains_key(&item.call));
        }
    }

    fn finish_if_ended(&mut self, id: CallId) {
        if self.calls.get(&id).is_some_and(Call::is_ended) {
            self.end(id);
        }
    }

    fn end(&mut self, id: CallId) {
        let Some(call) = self.forget(id) else { return };
        let cause = self.trouble.as_ref().map_or("the last attempt had no answer yet".into(), ClientError::cause);
        call.finish(&self.trouble.clone().unwrap_or_else(no_room), &cause);
    }

    fn forget(&mut self, id: CallId) -> Option<Call> {
        let call = self.calls.remove(&id)?;
        assert!(self.deadlines.remove(&(call.deadline, id)), "each call has its deadline");
        Some(call)
    }
}

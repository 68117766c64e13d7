//! The driver: what happened goes in, `Replica::step` decides, effects go out to the lanes.
//!
//! One thread drives all replication groups of a node and is the only caller of `step`. Invariant:
//! it never blocks on a lane, a peer or a client. It takes clients' work only while it holds credits
//! for journal, apply and peers, and drops what a peer sends when taking it would add to a lane that
//! is too full already: peers repeat, and votes and heartbeats are small and always pass.
//!
//! Not here: what is decided (`photon-core`), how it is done (`lanes`).

pub(crate) mod inbox;
pub(crate) mod reply;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use photon_core::{Effect, Event, Message, Monotonic, Now, Replica, Reply, RequestId, RoleName, Status};
use photon_types::{GroupId, NodeId};
use tokio::sync::watch;
use tracing::info;

use self::inbox::{Admission, Completion, Inbox, Taken};
use self::reply::ReplyTo;
use crate::error::RegistryError;
use crate::lanes::apply::ApplyJob;
use crate::lanes::journal::{JournalJob, record_bytes};
use crate::lanes::peers::PeerLane;
use crate::lanes::queue::JobQueue;
use crate::lanes::reads::ReadJob;

/// Requests that wait for an answer in one node, at most.
const PENDING_REQUESTS_MAX: usize = 64 * 1024;

/// Where a replica stands, as published for the doors.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaView {
    pub status: Status,
    /// When `applied_end` last moved, or had nothing to wait for.
    pub applying_since: Instant,
}

impl ReplicaView {
    pub fn is_leader(&self) -> bool {
        match self.status.role {
            RoleName::Leader => true,
            RoleName::Follower | RoleName::Candidate => false,
        }
    }
}

/// The queues of the lanes, the driver's end.
#[derive(Clone)]
pub(crate) struct Lanes {
    pub journal: Arc<JobQueue<JournalJob>>,
    pub apply: Arc<JobQueue<ApplyJob>>,
    pub reads: Arc<JobQueue<ReadJob>>,
    pub peers: Arc<PeerLane>,
}

/// What the driver begins with.
pub(crate) struct DriverParts {
    pub groups: BTreeMap<GroupId, (Replica, watch::Sender<ReplicaView>)>,
    pub inbox: Arc<Inbox>,
    pub lanes: Lanes,
    pub lane_bytes_max: usize,
    /// The same origin as that of the replicas' recovery.
    pub started: Instant,
}

pub(crate) struct Driver {
    groups: BTreeMap<GroupId, Group>,
    inbox: Arc<Inbox>,
    lanes: Lanes,
    credits: Credits,
    pending: HashMap<RequestId, ReplyTo>,
    next_request: RequestId,
    started: Instant,
}

struct Group {
    replica: Replica,
    view: watch::Sender<ReplicaView>,
    /// Of the steps of this round, not yet handed to the lanes.
    effects: Vec<Effect>,
}

/// What is under way in the lanes that could grow without bound.
#[derive(Debug)]
struct Credits {
    journal_bytes: usize,
    apply_bytes: usize,
    bytes_max: usize,
}

impl Credits {
    fn has_room(&self) -> bool {
        self.journal_bytes < self.bytes_max && self.apply_bytes < self.bytes_max
    }
}

/// Does taking this message add entries to journal and apply?
fn brings_entries(message: &Message) -> bool {
    match message {
        Message::Accept(_) | Message::Chosen(_) => true,
        // A promise brings entries to a candidate's memory only, and the core pages them.
        Message::Promise(_)
        | Message::Prepare(_)
        | Message::Nack(_)
        | Message::Accepted(_)
        | Message::Heartbeat(_)
        | Message::FetchChosen(_) => false,
    }
}

impl Driver {
    pub fn new(parts: DriverParts) -> Driver {
        let DriverParts { groups, inbox, lanes, lane_bytes_max, started } = parts;
        let group = |(replica, view)| Group { replica, view, effects: Vec::new() };
        Driver {
            groups: groups.into_iter().map(|(id, parts)| (id, group(parts))).collect(),
            inbox,
            lanes,
            credits: Credits { journal_bytes: 0, apply_bytes: 0, bytes_max: lane_bytes_max },
            pending: HashMap::new(),
            next_request: RequestId(1),
            started,
        }
    }

    /// Runs until the inbox is closed. What waits then is answered `Unknown`.
    pub fn run(mut self) -> Result<(), RegistryError> {
        // What recovery left to apply goes out before anything comes in.
        for id in self.groups.keys().copied().collect::<Vec<_>>() {
            self.step(id, Event::Tick);
        }
        self.end_round();
        loop {
            let admission = self.admission();
            let taken = self.inbox.take(self.timeout(), admission);
            if taken.closing {
                return Ok(());
            }
            self.round(taken);
            self.end_round();
        }
    }

    fn round(&mut self, taken: Taken) {
        let Taken { completions, messages, requests, closing: _ } = taken;
        for completion in completions {
            let (group, event) = self.on_completion(completion);
            self.step(group, event);
        }
        for inbox::PeerMessage { group, from, message } in messages {
            if self.credits.has_room() || !brings_entries(&message) {
                self.step(group, Event::Message { from, message });
            }
        }
        for inbox::ClientRequest { group, commands, reply } in requests {
            // Who asked is gone, and nothing has happened: nothing needs to.
            if reply.is_abandoned() {
                continue;
            }
            let request = self.next_request;
            self.next_request = RequestId(request.0 + 1);
            self.pending.insert(request, reply);
            self.step(group, Event::Request { request, commands });
        }
        let now = self.now().monotonic;
        let is_due = |group: &Group| group.replica.next_deadline().is_some_and(|deadline| deadline <= now);
        let due: Vec<GroupId> = self.groups.iter().filter(|(_, group)| is_due(group)).map(|(id, _)| *id).collect();
        for id in due {
            self.step(id, Event::Tick);
        }
    }

    /// Returns the credit of what is done.
    fn on_completion(&mut self, completion: Completion) -> (GroupId, Event) {
        match completion {
            Completion::Persisted { group, upto, bytes } => {
                self.credits.journal_bytes -= bytes;
                (group, Event::Persisted { upto })
            }
            Completion::Applied { group, applied_end, outcomes, bytes } => {
                self.credits.apply_bytes -= bytes;
                (group, Event::Applied { applied_end, outcomes })
            }
            Completion::EntriesRead { group, read, entries } => (group, Event::EntriesRead { read, entries }),
        }
    }

    fn step(&mut self, id: GroupId, event: Event) {
        let now = self.now();
        let group = self.groups.get_mut(&id).expect("the doors know the groups");
        group.replica.step(now, event, &mut group.effects);
    }

    /// Empties the effects of all steps of the round, and says where the replicas stand.
    fn end_round(&mut self) {
        for id in self.groups.keys().copied().collect::<Vec<_>>() {
            self.empty_effects(id);
        }
        self.groups.iter().for_each(|(id, group)| group.publish(*id));
    }

    /// Hands the effects of one group to the lanes, in one go for each lane.
    fn empty_effects(&mut self, id: GroupId) {
        let group = self.groups.get_mut(&id).expect("from the keys");
        let mut journal = Vec::new();
        let mut apply = Vec::new();
        let mut reads = Vec::new();
        let mut peers: BTreeMap<NodeId, Vec<Message>> = BTreeMap::new();
        for effect in group.effects.drain(..) {
            match effect {
                Effect::Persist { seq, record } => {
                    let bytes = record_bytes(&record);
                    self.credits.journal_bytes += bytes;
                    journal.push(JournalJob { group: id, seq, record, bytes });
                }
                Effect::Apply { entry, wanted } => {
                    let bytes = entry.value.len();
                    self.credits.apply_bytes += bytes;
                    apply.push(ApplyJob { group: id, entry, wanted });
                }
                Effect::Send { to, message } => peers.entry(to).or_default().push(message),
                Effect::Reply { request, reply } => {
                    if let Some(to) = self.pending.remove(&request) {
                        to.answer(reply);
                    }
                }
                Effect::Read { read, from, to_end, bytes_max } => {
                    reads.push(ReadJob { group: id, read, from, to_end, bytes_max });
                }
            }
        }
        // The network first: it takes longest.
        for (to, messages) in peers {
            self.lanes.peers.send(id, to, messages);
        }
        self.lanes.journal.put(journal);
        self.lanes.apply.put(apply);
        self.lanes.reads.put(reads);
    }

    fn admission(&self) -> Admission {
        let has_room =
            self.credits.has_room() && self.pending.len() < PENDING_REQUESTS_MAX && self.lanes.peers.has_room();
        if has_room { Admission::Clients } else { Admission::NoClients }
    }

    /// How long there is nothing to do but to wait for others.
    fn timeout(&self) -> Option<Duration> {
        /// How often a driver without credits looks whether peers have room again: nobody tells it.
        const NO_CREDIT_POLL: Duration = Duration::from_millis(2);
        let now = self.now().monotonic;
        let due = self.groups.values().filter_map(|group| group.replica.next_deadline()).min();
        let until_due = due.map(|Monotonic(due)| due.saturating_sub(now.0));
        match self.admission() {
            Admission::Clients => until_due,
            Admission::NoClients => Some(until_due.map_or(NO_CREDIT_POLL, |due| due.min(NO_CREDIT_POLL))),
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: Monotonic(self.started.elapsed()) }
    }
}

impl Group {
    fn publish(&self, id: GroupId) {
        let status = self.replica.status();
        self.view.send_modify(|view| {
            let has_moved = view.status.applied_end != status.applied_end || status.applied_end == status.commit_end;
            if has_moved {
                view.applying_since = Instant::now();
            }
            if (view.status.role, view.status.ballot) != (status.role, status.ballot) {
                info!(node = %status.node, group = %id, role = %status.role, ballot = %status.ballot,
                    commit_end = %status.commit_end, "role or ballot changed");
            }
            view.status = status;
        });
    }
}

/// Nobody waits in vain: what is dropped answers `Unknown`.
impl Drop for Driver {
    fn drop(&mut self) {
        for (_, reply) in self.pending.drain() {
            reply.answer(Reply::Unknown);
        }
    }
}

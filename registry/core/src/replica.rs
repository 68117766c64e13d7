//! A replica of one group: `step` turns what happened into what is to be done.
//!
//! Invariant: equal replicas that are told the same do the same. A replica is a value: it can be
//! cloned, compared and hashed.
//!
//! Here is routing, and the order in which the consequences of an event are drawn. The rules stand
//! with the roles: `paxos/{acceptor,election,proposer,learner,catchup}.rs`.

use bytes::Bytes;
use photon_types::{Chunk, NodeId, Outcomes, Slot};

use crate::batch::Queue;
use crate::config::Config;
use crate::effect::{Effect, Record, Reply};
use crate::event::{Event, Monotonic, Now, RequestId};
use crate::paxos::acceptor::RecoveredPromise;
use crate::paxos::ballot::Ballot;
use crate::paxos::catchup::CatchUp;
use crate::paxos::gate::Gate;
use crate::paxos::learner::Learner;
use crate::paxos::log::Log;
use crate::paxos::message::Message;
use crate::paxos::quorum::Quorum;
use crate::paxos::role::Role;
use crate::pending::Pending;
use crate::status::{Counters, RoleName, Status};
use photon_types::Prng;

/// One replica of one group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    pub(crate) config: Config,
    pub(crate) quorum: Quorum,
    pub(crate) prng: Prng,
    /// The time of the last event.
    pub(crate) now: Now,
    pub(crate) gate: Gate,
    pub(crate) log: Log,
    /// The acceptor's word: nothing below is answered any more. Never goes back. What is said
    /// because of it waits for the write that makes it durable.
    pub(crate) promised: Ballot,
    /// No ballot with a higher round was ever seen here; the next attempt goes above.
    pub(crate) round_seen: u64,
    pub(crate) role: Role,
    pub(crate) learner: Learner,
    pub(crate) catchup: CatchUp,
    /// Requests that were never proposed. Empty unless this replica leads.
    pub(crate) queue: Queue,
    /// Requests that were.
    pub(crate) pending: Pending,
    pub(crate) counters: Counters,
}

impl Replica {
    /// A replica as its journal left it. `records` are the journal's records of this group in
    /// order, `applied_end` is what the machine has durably applied.
    ///
    /// Everything recovered counts as durable: the journal's recovery has made it so.
    ///
    /// # Panics
    /// When the configuration does not pass [`Config::check`], or when the records contradict each
    /// other about a chosen slot.
    pub fn recover(
        config: Config,
        mut prng: Prng,
        now: Now,
        records: impl Iterator<Item = Record>,
        applied_end: Slot,
    ) -> Replica {
        if let Err(error) = config.check() {
            panic!("a replica needs a valid configuration: {error}");
        }
        let mut log = Log::new(applied_end);
        let mut promise = RecoveredPromise::default();
        let mut hint_end = applied_end;
        // One by one: a journal may be larger than memory.
        for record in records {
            promise.note(&config, &record);
            match record {
                Record::Promise { ballot: _ } => (),
                Record::Accepted { entry, chosen } => log.recover_entry(entry, chosen),
                Record::CommitHint { commit_end } => hint_end = hint_end.max(commit_end),
            }
        }
        log.recover_commit_end(hint_end);
        let RecoveredPromise { promised, round_seen } = promise;
        let role = Role::follower(&config, &mut prng, now);
        let replica = Replica {
            quorum: Quorum::of(&config),
            prng,
            now,
            gate: Gate::default(),
            learner: Learner::new(log.commit_end()),
            log,
            promised,
            round_seen,
            role,
            catchup: CatchUp::default(),
            queue: Queue::default(),
            pending: Pending::default(),
            counters: Counters::default(),
            config,
        };
        replica.check();
        replica
    }

    /// Draws every consequence of one event. Appends to `out`.
    ///
    /// # Panics
    /// When an invariant is broken: by a bug here or in the driver, or by a peer that lies.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Vec<Effect>) {
        assert!(self.now.monotonic <= now.monotonic, "time went back from {:?} to {:?}", self.now, now);
        self.now = now;
        let before = Progress::of(self);
        let issued = self.gate.issued();
        match event {
            Event::Tick => self.on_tick(out),
            Event::Request { request, commands } => self.on_request(request, commands, out),
            Event::Message { from, message } => self.on_message(from, message, out),
            Event::Persisted { upto } => {
                self.gate.on_persisted(upto, out);
                self.count_own_promise(out);
            }
            Event::Applied { applied_end, outcomes } => self.on_applied(applied_end, outcomes, out),
            Event::EntriesRead { read, entries } => self.on_entries_read(read, entries, out),
        }
        self.propose_what_fits(out);
        self.apply_what_is_chosen(out);
        self.fetch_what_is_missing(out);
        if issued < self.gate.issued() {
            self.hint_commit_end(out);
        }
        self.check();
        before.check_against(&Progress::of(self));
    }

    /// When the next [`Event::Tick`] is due. A tick that comes early changes nothing.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        let role = match &self.role {
            Role::Follower(follower) => follower.election_at,
            Role::Candidate(candidate) => candidate.next_deadline(),
            Role::Leader(leader) => leader.next_deadline(),
        };
        Some(self.fetch_deadline().map_or(role, |fetch| fetch.min(role)))
    }

    /// Where this replica stands, for people and for probes.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            node: self.config.node,
            group: self.config.group,
            role: match &self.role {
                Role::Follower(_) => RoleName::Follower,
                Role::Candidate(_) => RoleName::Candidate,
                Role::Leader(_) => RoleName::Leader,
            },
            ballot: self.promised,
            leader: self.leader(),
            trimmed_end: self.log.trimmed_end(),
            applied_end: self.log.applied_end(),
            commit_end: self.log.commit_end(),
            accepted_end: self.log.accepted_end(),
            durable_end: self.log.durable_end(&self.gate),
            queued_requests: self.queue.requests(),
            queued_commands: self.queue.commands(),
            pending_requests: self.pending.requests(),
            counters: self.counters.clone(),
        }
    }

    /// What this replica was told at its start.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn on_tick(&mut self, out: &mut Vec<Effect>) {
        match &self.role {
            Role::Follower(_) | Role::Candidate(_) => self.on_election_tick(out),
            Role::Leader(_) => self.on_leader_tick(out),
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message, out: &mut Vec<Effect>) {
        // A stranger has no vote and no word; the peers' handshake keeps it out already.
        if from == self.config.node || !self.quorum.has_member(from) {
            self.counters.ignored_messages += 1;
            return;
        }
        match message {
            Message::Prepare(message) => self.on_prepare(from, &message, out),
            Message::Promise(message) => self.on_promise(from, message, out),
            Message::Nack(message) => self.on_nack(from, &message, out),
            Message::Accept(message) => self.on_accept(from, message, out),
            Message::Accepted(message) => self.on_accepted(from, &message),
            Message::Heartbeat(message) => self.on_heartbeat(from, &message, out),
            Message::FetchChosen(message) => self.on_fetch_chosen(from, &message, out),
            Message::Chosen(message) => self.on_chosen(from, message, out),
        }
    }

    fn on_request(&mut self, request: RequestId, commands: Chunk<Bytes>, out: &mut Vec<Effect>) {
        assert!(0 < commands.count, "the door lets no empty chunk in");
        let Role::Leader(_) = &self.role else {
            let hint = self.leader();
            return out.push(Effect::Reply { request, reply: Reply::NotLeader { hint } });
        };
        let is_stalled = self.config.limits.unapplied_slots_max <= self.log.unapplied_slots();
        if is_stalled || !self.queue.has_room(&commands, &self.config.limits) {
            self.counters.overloaded_requests += 1;
            let retry_after = self.config.timings.retry_after;
            return out.push(Effect::Reply { request, reply: Reply::Overloaded { retry_after } });
        }
        self.queue.push(request, commands);
    }

    fn on_applied(&mut self, applied_end: Slot, outcomes: Vec<(Slot, Outcomes)>, out: &mut Vec<Effect>) {
        self.log.advance_applied_end(applied_end, &self.config.limits);
        for (slot, outcomes) in outcomes {
            assert!(slot < applied_end, "outcomes of slot {slot}, but only {applied_end} is applied");
            self.pending.resolve(slot, outcomes, out);
        }
    }

    fn apply_what_is_chosen(&mut self, out: &mut Vec<Effect>) {
        while let Some(entry) = self.log.take_next_to_apply(&self.gate, &self.config.limits) {
            let wanted = self.pending.is_waiting(entry.slot, entry.ballot);
            out.push(Effect::Apply { entry, wanted });
        }
    }

    /// Who probably leads.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        match &self.role {
            Role::Follower(follower) => follower.leader,
            Role::Candidate(_) => None,
            Role::Leader(_) => Some(self.config.node),
        }
    }

    pub(crate) fn see_round(&mut self, ballot: Ballot) {
        self.round_seen = self.round_seen.max(ballot.round);
    }

    pub(crate) fn send_to_peers(&self, message: &Message, out: &mut Vec<Effect>) {
        out.extend(self.config.peers().map(|to| Effect::Send { to, message: message.clone() }));
    }

    /// The one place where all invariants of a replica's state are checked, after every step.
    fn check(&self) {
        self.log.check(&self.config.limits);
        self.gate.check();
        self.queue.check(&self.config.limits);
        self.pending.check(self.log.applied_end());
        assert!(self.promised.round <= self.round_seen);
        match &self.role {
            Role::Follower(follower) => {
                assert!(follower.leader != Some(self.config.node), "this node follows itself");
                assert!(self.queue.requests() == 0, "a follower keeps requests in its queue");
            }
            Role::Candidate(candidate) => {
                assert!(candidate.ballot == self.promised, "{} is not {}", candidate.ballot, self.promised);
                assert!(candidate.ballot.node == self.config.node);
                assert!(self.queue.requests() == 0, "a candidate keeps requests in its queue");
            }
            Role::Leader(leader) => {
                assert!(leader.ballot == self.promised, "{} is not {}", leader.ballot, self.promised);
                assert!(leader.ballot.node == self.config.node);
                leader.check(&self.log, &self.config.limits);
            }
        }
    }
}

/// What never goes back within one life.
struct Progress {
    promised: Ballot,
    round_seen: u64,
    trimmed_end: Slot,
    applied_end: Slot,
    commit_end: Slot,
    accepted_end: Slot,
}

impl Progress {
    fn of(replica: &Replica) -> Progress {
        Progress {
            promised: replica.promised,
            round_seen: replica.round_seen,
            trimmed_end: replica.log.trimmed_end(),
            applied_end: replica.log.applied_end(),
            commit_end: replica.log.commit_end(),
            accepted_end: replica.log.accepted_end(),
        }
    }

    fn check_against(&self, after: &Progress) {
        let Progress { promised, round_seen, trimmed_end, applied_end, commit_end, accepted_end } = self;
        assert!(*promised <= after.promised, "promised {promised}, now {}", after.promised);
        assert!(*round_seen <= after.round_seen);
        assert!(*trimmed_end <= after.trimmed_end, "trimmed_end {trimmed_end}, now {}", after.trimmed_end);
        assert!(*applied_end <= after.applied_end, "applied_end {applied_end}, now {}", after.applied_end);
        assert!(*commit_end <= after.commit_end, "commit_end {commit_end}, now {}", after.commit_end);
        assert!(*accepted_end <= after.accepted_end, "accepted_end {accepted_end}, now {}", after.accepted_end);
    }
}

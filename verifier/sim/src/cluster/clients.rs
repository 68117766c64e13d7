//! Clients: each asks one thing at a time over a small space of ids, and asks again with the same
//! tokens when it gets no answer.
//!
//! Invariant: the history says what the clients know, no more. A call that got no answer may have
//! happened; a call that was refused (`NotLeader`, `Overloaded`) has not, and is left out of it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use photon_check::history::Op;
use photon_core::{Reply, RequestId};
use photon_types::{Chunk, Command, DeleteReason, EventKey, Holder, Incarnation, NodeId, Outcome, Slot, Token};

use crate::dice::{Chance, Dice, Span};
use crate::parameters::{ClientRates, QUERY_COMMANDS_MAX};

pub(crate) struct Clients {
    rates: ClientRates,
    dice: Dice,
    nodes: Vec<NodeId>,
    keys: Vec<EventKey>,
    clients: Vec<Client>,
    /// The last token seen to hold each id.
    winners: BTreeMap<EventKey, Token>,
    history: Vec<Op>,
    next_request: u64,
    healed: bool,
    /// Where the first insert after healing was chosen.
    proven: Option<Slot>,
}

struct Client {
    incarnation: Incarnation,
    sequence: u64,
    /// Whom it asks next.
    leader: NodeId,
    /// What it asks, until it has an answer.
    asking: Option<Vec<Command>>,
    /// The call under way, and when it was made.
    call: Option<(RequestId, u64)>,
    /// What it asks next; all others draw.
    script: VecDeque<Vec<Command>>,
}

/// A call to be made.
pub(crate) struct Call {
    pub request: RequestId,
    pub node: NodeId,
    pub chunk: Chunk<Bytes>,
    /// It gives up on the answer after.
    pub timeout: Duration,
}

impl Clients {
    pub fn new(rates: ClientRates, mut dice: Dice, nodes: u32) -> Clients {
        let nodes: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        let client = |number: usize, dice: &mut Dice| Client::new(number, *dice.pick(&nodes));
        let clients = (0..rates.clients).map(|number| client(number, &mut dice)).collect();
        let keys = (0..rates.ids).map(key).collect();
        Clients {
            rates,
            dice,
            nodes,
            keys,
            clients,
            winners: BTreeMap::new(),
            history: Vec::new(),
            next_request: 0,
            healed: false,
            proven: None,
        }
    }

    pub fn count(&self) -> usize {
        self.clients.len()
    }

    /// How long a client waits before it asks the next thing.
    pub fn think_time(&mut self) -> Duration {
        self.dice.span(self.rates.think)
    }

    /// The client's next call: what it asked before, or something new. None: it has nothing to ask,
    /// or waits for an answer.
    pub fn next_call(&mut self, client: usize, moment: u64) -> Option<Call> {
        if self.clients[client].call.is_some() {
            return None;
        }
        if self.clients[client].asking.is_none() {
            self.clients[client].asking = self.new_question(client);
        }
        let request = RequestId(self.next_request);
        let timeout = self.dice.span(self.rates.timeout);
        let client = &mut self.clients[client];
        let chunk = Chunk::of(client.asking.as_ref()?);
        self.next_request += 1;
        client.call = Some((request, moment));
        let chunk = Chunk { count: chunk.count, bytes: Bytes::from(chunk.bytes) };
        Some(Call { request, node: client.leader, chunk, timeout })
    }

    fn new_question(&mut self, client: usize) -> Option<Vec<Command>> {
        if let Some(scripted) = self.clients[client].script.pop_front() {
            return Some(scripted);
        }
        if self.healed {
            return None;
        }
        let count = self.dice.range(1, self.rates.commands_max);
        Some((0..count).map(|_| self.new_command(client)).collect())
    }

    fn new_command(&mut self, client: usize) -> Command {
        let key = self.dice.pick(&self.keys).clone();
        let [insert, lookup, delete, forget] = self.rates.mix;
        let drawn = self.dice.below(insert + lookup + delete + forget);
        if drawn < insert {
            return Command::Insert { key, token: self.clients[client].next_token() };
        }
        if drawn < insert + lookup {
            return Command::Lookup { key };
        }
        // Mostly the token that holds it, as the verifier does; sometimes any.
        let winner = self.winners.get(&key).copied().filter(|_| !self.dice.one_in(5));
        let token = winner.unwrap_or_else(|| self.any_token());
        if drawn < insert + lookup + delete {
            Command::Delete { key, token, reason: DeleteReason::LineMissing }
        } else {
            Command::ForgetToken { key, token }
        }
    }

    fn any_token(&mut self) -> Token {
        let client = self.dice.index(self.clients.len());
        let Client { incarnation, sequence, .. } = self.clients[client];
        Token { incarnation, sequence: self.dice.range(1, sequence.max(1)) }
    }

    /// No answer came in time. The call may happen at any later moment.
    pub fn on_timeout(&mut self, client: usize, request: RequestId) -> bool {
        let Some((_, called)) = self.clients[client].call.take_if(|(waiting, _)| *waiting == request) else {
            return false;
        };
        self.note_unanswered(client, called);
        self.clients[client].leader = *self.dice.pick(&self.nodes);
        true
    }

    /// An answer. Some: the client goes on after so long. None: it had given up on this call.
    pub fn on_reply(&mut self, client: usize, request: RequestId, reply: Reply, moment: u64) -> Option<Duration> {
        let (_, called) = self.clients[client].call.take_if(|(waiting, _)| *waiting == request)?;
        Some(match reply {
            Reply::Outcomes { slot, outcomes } => {
                self.note_answered(client, called, moment, slot, outcomes);
                self.think_time()
            }
            Reply::NotLeader { hint } => {
                let other = *self.dice.pick(&self.nodes);
                self.clients[client].leader = hint.filter(|_| !self.dice.one_in(8)).unwrap_or(other);
                self.think_time() / 4
            }
            Reply::Overloaded { retry_after } => retry_after,
            Reply::Unknown => {
                self.note_unanswered(client, called);
                self.think_time() / 4
            }
        })
    }

    fn note_answered(&mut self, client: usize, called: u64, moment: u64, slot: Slot, outcomes: Vec<Outcome>) {
        let commands = self.clients[client].asking.take().expect("a call asks something");
        assert!(commands.len() == outcomes.len(), "{} commands have {} outcomes", commands.len(), outcomes.len());
        if self.healed && commands.iter().any(|command| *command == proof()) {
            self.proven = Some(slot);
        }
        for (command, outcome) in commands.into_iter().zip(outcomes) {
            self.note_winner(&command, &outcome);
            self.history.push(Op { command, called, answer: Some((moment, outcome)) });
        }
    }

    fn note_winner(&mut self, command: &Command, outcome: &Outcome) {
        let (key, asked) = match command {
            Command::Insert { key, token } => (key, Some(*token)),
            Command::Lookup { key } => (key, None),
            Command::Delete { .. } | Command::ForgetToken { .. } | Command::StateKeyRules { .. } => return,
        };
        let winner = match outcome {
            Outcome::Inserted => asked,
            Outcome::Duplicate { winner: Holder::Token(token) } | Outcome::Present { winner: Holder::Token(token) } => {
                Some(*token)
            }
            Outcome::Duplicate { winner: Holder::Forgotten }
            | Outcome::Present { winner: Holder::Forgotten }
            | Outcome::Expired { .. }
            | Outcome::Absent
            | Outcome::Deleted
            | Outcome::Mismatch { .. }
            | Outcome::Forgotten
            | Outcome::KeyRulesKept
            | Outcome::KeyRulesDiffer { .. }
            | Outcome::Invalid => None,
        };
        if let Some(winner) = winner {
            self.winners.insert(key.clone(), winner);
        }
    }

    fn note_unanswered(&mut self, client: usize, called: u64) {
        let is_abandoned = !self.healed && self.dice.chance(self.rates.abandon);
        let client = &mut self.clients[client];
        let commands = client.asking.as_ref().expect("a call asks something");
        self.history.extend(commands.iter().cloned().map(|command| Op { command, called, answer: None }));
        if is_abandoned {
            client.asking = None;
        }
    }

    /// No more questions but those that are open, and one more client: it inserts an id that nobody
    /// has asked for, then looks every id up. Clients are patient now: a cluster that is slow is not
    /// dead. Returns the calls under way; they are given up.
    pub fn heal(&mut self, patience: Span) -> Vec<(usize, RequestId)> {
        self.healed = true;
        self.rates.abandon = Chance::NEVER;
        self.rates.timeout = patience;
        self.rates.think = Span { min: patience.min / 200, end: patience.min / 50 };
        let number = self.clients.len();
        let mut prober = Client::new(number, self.nodes[0]);
        prober.script.push_back(vec![proof()]);
        let count = usize::try_from(QUERY_COMMANDS_MAX).expect("a small number");
        for keys in self.keys.chunks(count) {
            prober.script.push_back(keys.iter().cloned().map(|key| Command::Lookup { key }).collect());
        }
        self.clients.push(prober);
        let calls = self.clients.iter().enumerate();
        calls.filter_map(|(client, state)| Some((client, state.call.as_ref()?.0))).collect()
    }

    /// After healing: every question has its answer.
    pub fn are_done(&self) -> bool {
        self.healed && self.clients.iter().all(|client| client.asking.is_none() && client.script.is_empty())
    }

    pub fn proven(&self) -> Option<Slot> {
        self.proven
    }

    /// Who still waits, for people.
    pub fn waiting(&self) -> Vec<String> {
        let is_waiting = |client: &&Client| client.asking.is_some() || !client.script.is_empty();
        let waiting = self.clients.iter().filter(is_waiting);
        waiting.map(|client| format!("client {} asks node {}", client.incarnation.0[0], client.leader)).collect()
    }

    /// All that was called; calls that never returned included.
    pub fn take_history(&mut self) -> Vec<Op> {
        for client in 0..self.clients.len() {
            if let Some((_, called)) = self.clients[client].call.take() {
                self.note_unanswered(client, called);
            }
        }
        std::mem::take(&mut self.history)
    }
}

impl Client {
    fn new(number: usize, leader: NodeId) -> Client {
        let number = u8::try_from(number + 1).expect("few clients");
        Client {
            incarnation: Incarnation([number; 16]),
            sequence: 0,
            leader,
            asking: None,
            call: None,
            script: VecDeque::new(),
        }
    }

    fn next_token(&mut self) -> Token {
        self.sequence += 1;
        Token { incarnation: self.incarnation, sequence: self.sequence }
    }
}

/// Ids lie in a few buckets of an hour.
fn key(number: u64) -> EventKey {
    let micros = 1_700_000_000_000_000 + number % 3 * 3_600_000_000 + number;
    EventKey::new(micros, format!("k{number}").as_bytes()).expect("a valid key")
}

/// The insert that only a cluster that is alive can answer.
fn proof() -> Command {
    let key = EventKey::new(1_700_000_000_000_000, b"healed").expect("a valid key");
    Command::Insert { key, token: Token { incarnation: Incarnation([0xff; 16]), sequence: 1 } }
}

//! A cluster in one thread, in which nothing happens by itself: a scenario says which disk syncs,
//! which message arrives, which clock moves.
//!
//! | command | what happens |
//! |---|---|
//! | `cluster N [name=value …]` | N fresh replicas; limits by name, times in ms |
//! | `tick N` | time moves to node N's deadline, and it gets its tick |
//! | `sleep MS`, `wake N` | time moves; node N gets a tick now |
//! | `sync N [count]` | the first `count` writes of node N are durable, or all |
//! | `deliver F->T [kind] [count]` | what F has sent to T arrives, in order |
//! | `drop F->T [kind] [count]`, `copy F->T [kind]` | it is lost; it will arrive twice |
//! | `apply N`, `read N` | node N's machine applies; its journal answers reads |
//! | `request N rID command[, command …]` | a client asks node N |
//! | `crash N [unflushed]`, `restart N` | unsynced writes are lost, and the machine's with `unflushed` |
//! | `cut F->T`, `heal` | all that F sends to T is lost; no more |
//! | `settle` | all disks, machines and messages, until nothing is on its way |
//! | `status [N]`, `disk N`, `waiting` | shows |
//! | `quietly command` | without its trace |

mod show;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use photon_core::machine::{MemoryTable, RowLayout, apply};
use photon_core::{
    Config, Effect, Entry, Event, IoSeq, Limits, Message, Monotonic, Now, ReadId, Record, Replica, RequestId, RoleName,
    Value,
};
use photon_types::{Chunk, Command, DeleteReason, EventKey, GroupId, Incarnation, NodeId, Outcomes, Prng, Slot, Token};

/// The cluster, and the trace of the command that runs.
#[derive(Default)]
pub struct World {
    now: Duration,
    nodes: BTreeMap<NodeId, Node>,
    /// What was sent and has neither arrived nor been lost.
    network: Vec<Sent>,
    cut: BTreeSet<(NodeId, NodeId)>,
    trace: String,
    /// What some machine has applied, by slot: all others must apply the same.
    agreed: BTreeMap<Slot, Value>,
    replied: BTreeSet<RequestId>,
}

struct Node {
    config: Config,
    /// None while it is down.
    replica: Option<Replica>,
    lives: u64,
    disk: Vec<Record>,
    unsynced: VecDeque<(IoSeq, Record)>,
    applying: VecDeque<(Entry, bool)>,
    table: MemoryTable,
    applied_end: Slot,
    reads: VecDeque<(ReadId, Slot, Slot, usize)>,
}

#[derive(Clone)]
struct Sent {
    from: NodeId,
    to: NodeId,
    message: Message,
}

type Fallible<T> = Result<T, String>;

impl World {
    /// Runs one command and returns its trace.
    pub fn run(&mut self, command: &str) -> Fallible<String> {
        self.trace.clear();
        let (command, is_quiet) = command.strip_prefix("quietly ").map_or((command, false), |rest| (rest, true));
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        match verb {
            "cluster" => self.make(&words)?,
            "tick" => self.tick(node_id(&words)?)?,
            "sleep" => self.now += Duration::from_millis(number(words.first())?),
            "wake" => self.step(node_id(&words)?, Event::Tick)?,
            "sync" => self.sync(node_id(&words)?, optional(words.get(1))?)?,
            "deliver" => self.deliver(&words)?,
            "drop" => drop(self.take_messages(&words)?),
            "copy" => {
                let copies = self.take_messages(&words)?;
                self.network.extend(copies.iter().cloned().chain(copies.clone()));
            }
            "apply" => self.apply(node_id(&words)?)?,
            "read" => self.read(node_id(&words)?)?,
            "request" => self.request(rest)?,
            "crash" => self.crash(node_id(&words)?, words.contains(&"unflushed"))?,
            "restart" => self.restart(node_id(&words)?)?,
            "cut" => drop(self.cut.insert(link(&words)?)),
            "heal" => self.cut.clear(),
            "settle" => self.settle()?,
            "status" => self.status(&words)?,
            "disk" => self.show_disk(node_id(&words)?)?,
            "waiting" => self.show_network(),
            _ => return Err(format!("no command is named {verb:?}")),
        }
        if is_quiet {
            self.trace.clear();
        } else if self.trace.is_empty() {
            self.trace.push_str("ok\n");
        }
        Ok(std::mem::take(&mut self.trace))
    }

    fn make(&mut self, words: &[&str]) -> Fallible<()> {
        let count: u32 = words.first().and_then(|word| word.parse().ok()).ok_or("how many nodes?")?;
        let members: Vec<NodeId> = (1..=count).map(NodeId).collect();
        for node in &members {
            let mut config = Config::new(*node, GroupId(1), members.clone());
            for option in words.get(1..).unwrap_or_default() {
                let (name, value) = option.split_once('=').ok_or("an option is name=value")?;
                match name {
                    #[cfg(feature = "mutants")]
                    "mutant" => {
                        let named = |mutant: &photon_core::Mutant| format!("{mutant:?}") == value;
                        config.mutant = photon_core::Mutant::ALL.into_iter().find(named);
                    }
                    _ => set_limit(&mut config.limits, name, value)?,
                }
            }
            config.check().map_err(|error| error.to_string())?;
            let node_state = Node {
                config,
                replica: None,
                lives: 0,
                disk: Vec::new(),
                unsynced: VecDeque::new(),
                applying: VecDeque::new(),
                table: MemoryTable::default(),
                applied_end: Slot(0),
                reads: VecDeque::new(),
            };
            self.nodes.insert(*node, node_state);
            self.restart(*node)?;
        }
        self.trace.clear();
        Ok(())
    }

    fn node(&mut self, id: NodeId) -> Fallible<&mut Node> {
        self.nodes.get_mut(&id).ok_or_else(|| format!("there is no node {id}"))
    }

    fn step(&mut self, id: NodeId, event: Event) -> Fallible<()> {
        let now = Now { monotonic: Monotonic(self.now) };
        let node = self.node(id)?;
        let replica = node.replica.as_mut().ok_or_else(|| format!("node {id} is down"))?;
        let mut out = Vec::new();
        replica.step(now, event, &mut out);
        for effect in out {
            let mut lost = "";
            match &effect {
                Effect::Persist { seq, record } => self.node(id)?.unsynced.push_back((*seq, record.clone())),
                Effect::Apply { entry, wanted } => self.node(id)?.applying.push_back((entry.clone(), *wanted)),
                Effect::Send { to, message: _ } if self.cut.contains(&(id, *to)) => lost = " (lost)",
                Effect::Send { to, message } => {
                    self.network.push(Sent { from: id, to: *to, message: message.clone() });
                }
                Effect::Reply { request, reply: _ } => {
                    assert!(self.replied.insert(*request), "request {} has two replies", request.0);
                }
                Effect::Read { read, from, to_end, bytes_max } => {
                    self.node(id)?.reads.push_back((*read, *from, *to_end, *bytes_max));
                }
            }
            writeln!(self.trace, "{id}: {}{lost}", show::effect(&effect)).expect("a string takes all");
        }
        Ok(())
    }

    fn tick(&mut self, id: NodeId) -> Fallible<()> {
        let replica = self.node(id)?.replica.as_ref().ok_or_else(|| format!("node {id} is down"))?;
        let deadline = replica.next_deadline().ok_or_else(|| format!("node {id} has no deadline"))?;
        self.now = self.now.max(deadline.0);
        writeln!(self.trace, "at {:?}", self.now).expect("a string takes all");
        self.step(id, Event::Tick)
    }

    fn sync(&mut self, id: NodeId, count: Option<usize>) -> Fallible<()> {
        let node = self.node(id)?;
        let count = count.unwrap_or(node.unsynced.len()).min(node.unsynced.len());
        let synced: Vec<(IoSeq, Record)> = node.unsynced.drain(..count).collect();
        let Some(upto) = synced.last().map(|(seq, _)| *seq) else { return Ok(()) };
        node.disk.extend(synced.into_iter().map(|(_, record)| record));
        self.step(id, Event::Persisted { upto })
    }

    fn take_messages(&mut self, words: &[&str]) -> Fallible<Vec<Sent>> {
        let (from, to) = link(words)?;
        let kind = words.get(1).filter(|word| word.parse::<usize>().is_err());
        let mut left = optional(words.get(if kind.is_some() { 2 } else { 1 }))?.unwrap_or(usize::MAX);
        let mut taken = Vec::new();
        self.network.retain(|sent| {
            let is_meant = sent.from == from
                && sent.to == to
                && kind.is_none_or(|kind| *kind == show::kind(&sent.message))
                && 0 < left;
            if is_meant {
                left -= 1;
                taken.push(sent.clone());
            }
            !is_meant
        });
        if taken.is_empty() { Err(format!("nothing is on its way from {from} to {to}")) } else { Ok(taken) }
    }

    fn deliver(&mut self, words: &[&str]) -> Fallible<()> {
        for Sent { from, to, message } in self.take_messages(words)? {
            self.step(to, Event::Message { from, message })?;
        }
        Ok(())
    }

    fn apply(&mut self, id: NodeId) -> Fallible<()> {
        let node = self.nodes.get_mut(&id).ok_or_else(|| format!("there is no node {id}"))?;
        let mut outcomes: Vec<(Slot, Outcomes)> = Vec::new();
        for (entry, wanted) in std::mem::take(&mut node.applying) {
            assert_eq!(entry.slot, node.applied_end, "entries are applied in order");
            let agreed = self.agreed.entry(entry.slot).or_insert_with(|| entry.value.clone());
            assert_eq!(*agreed, entry.value, "node {id} applies another value in slot {}", entry.slot);
            let Ok(applied) = apply(&node.table, RowLayout::hourly(GroupId(1)), &entry.value);
            node.table.absorb(applied.changes);
            node.applied_end = entry.slot.next();
            if wanted {
                outcomes.push((entry.slot, applied.outcomes));
            }
        }
        let applied_end = node.applied_end;
        self.step(id, Event::Applied { applied_end, outcomes })
    }

    fn read(&mut self, id: NodeId) -> Fallible<()> {
        let node = self.node(id)?;
        for (read, from, to_end, bytes_max) in std::mem::take(&mut node.reads) {
            // As a journal does: the last record of each slot.
            let mut found: BTreeMap<Slot, Entry> = BTreeMap::new();
            for record in &self.node(id)?.disk {
                if let Record::Accepted { entry, chosen: _ } = record {
                    found.insert(entry.slot, entry.clone());
                }
            }
            let mut bytes = 0;
            let entries = found.into_values().filter(|entry| from <= entry.slot && entry.slot < to_end);
            let entries = entries.take_while(|entry| {
                let is_first = bytes == 0;
                bytes += entry.value.len().max(1);
                is_first || bytes <= bytes_max
            });
            let entries = entries.collect();
            self.step(id, Event::EntriesRead { read, entries })?;
        }
        Ok(())
    }

    fn request(&mut self, rest: &str) -> Fallible<()> {
        let mut parts = rest.splitn(3, ' ');
        let id = node_id(&[parts.next().unwrap_or_default()])?;
        let request =
            parts.next().and_then(|word| word.strip_prefix('r')).ok_or("a request is named r and a number")?;
        let request = RequestId(request.parse().map_err(|_| "a request is named r and a number")?);
        let commands: Vec<Command> =
            parts.next().ok_or("which commands?")?.split(", ").map(command).collect::<Fallible<_>>()?;
        let chunk = Chunk::of(&commands);
        let commands = Chunk { count: chunk.count, bytes: Bytes::from(chunk.bytes) };
        self.step(id, Event::Request { request, commands })
    }

    fn crash(&mut self, id: NodeId, unflushed: bool) -> Fallible<()> {
        let node = self.node(id)?;
        node.replica = None;
        node.unsynced.clear();
        node.applying.clear();
        node.reads.clear();
        if unflushed {
            node.table = MemoryTable::default();
            node.applied_end = Slot(0);
        }
        Ok(())
    }

    fn restart(&mut self, id: NodeId) -> Fallible<()> {
        let now = Now { monotonic: Monotonic(self.now) };
        let node = self.node(id)?;
        if node.replica.is_some() {
            return Err(format!("node {id} is not down"));
        }
        node.lives += 1;
        let prng = Prng::new(u64::from(id.0) * 1_000 + node.lives);
        let records = node.disk.iter().cloned();
        node.replica = Some(Replica::recover(node.config.clone(), prng, now, records, node.applied_end));
        self.status(&[&id.to_string()])
    }

    fn settle(&mut self) -> Fallible<()> {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        loop {
            let mut is_quiet = true;
            for id in &ids {
                let node = self.node(*id)?;
                if node.replica.is_none() {
                    continue;
                }
                let (syncs, applies, reads) =
                    (!node.unsynced.is_empty(), !node.applying.is_empty(), !node.reads.is_empty());
                is_quiet &= !(syncs || applies || reads);
                if syncs {
                    self.sync(*id, None)?;
                }
                if applies {
                    self.apply(*id)?;
                }
                if reads {
                    self.read(*id)?;
                }
            }
            for Sent { from, to, message } in std::mem::take(&mut self.network) {
                is_quiet = false;
                if self.node(to)?.replica.is_some() {
                    self.step(to, Event::Message { from, message })?;
                }
            }
            if is_quiet {
                return Ok(());
            }
        }
    }

    /// What must hold at any moment: tables are those of the agreed log, and so are their digests.
    pub fn check(&self) {
        for (id, node) in &self.nodes {
            let kept: BTreeMap<_, _> = node.table.digests().filter(|(_, digest)| digest.0 != 0).collect();
            assert_eq!(kept, node.table.computed_digests(), "the digests of node {id} are not those of its rows");
        }
    }

    /// Everybody is back and everything arrives: the cluster must serve a new request.
    pub fn heal_and_serve(&mut self, nodes: u64) {
        self.cut.clear();
        for node in 1..=nodes {
            if self.nodes[&NodeId(u32::try_from(node).unwrap())].replica.is_none() {
                self.run(&format!("restart {node}")).unwrap();
            }
        }
        for round in 0..400 {
            let node = self.earliest_tick().unwrap();
            self.run(&format!("tick {node}")).unwrap();
            self.run("settle").unwrap();
            let leader = self.nodes.iter().find(|(_, node)| {
                let status = node.replica.as_ref().unwrap().status();
                status.role == RoleName::Leader && status.pending_requests == 0
            });
            let Some((leader, _)) = leader else { continue };
            let before = self.agreed.len();
            self.run(&format!("request {leader} r{} insert healed t1", 1_000_000 + round)).unwrap();
            self.run("settle").unwrap();
            let slowest = self.nodes.values().map(|node| node.applied_end).min().unwrap();
            let has_spread = u64::try_from(before).unwrap() <= slowest.0;
            if before < self.agreed.len() && has_spread {
                return;
            }
        }
        panic!("healed, but the cluster does not commit and spread something new:\n{}", self.run("status").unwrap());
    }

    /// Whose deadline comes first.
    pub fn earliest_tick(&self) -> Option<NodeId> {
        let deadlines = self.nodes.iter().filter_map(|(id, node)| Some((node.replica.as_ref()?.next_deadline()?, *id)));
        deadlines.min().map(|(_, id)| id)
    }

    /// Somebody who believes to lead.
    pub fn some_leader(&self) -> Option<NodeId> {
        let leads =
            |node: &Node| node.replica.as_ref().is_some_and(|replica| replica.status().role == RoleName::Leader);
        self.nodes.iter().find(|(_, node)| leads(node)).map(|(id, _)| *id)
    }

    pub fn agreed_slots(&self) -> u64 {
        u64::try_from(self.agreed.len()).unwrap()
    }

    pub fn elections_won(&self) -> u64 {
        self.nodes.values().filter_map(|node| node.replica.as_ref()).map(|r| r.status().counters.elections_won).sum()
    }

    pub fn replies(&self) -> u64 {
        u64::try_from(self.replied.len()).unwrap()
    }

    fn status(&mut self, words: &[&str]) -> Fallible<()> {
        let ids: Vec<NodeId> =
            if words.is_empty() { self.nodes.keys().copied().collect() } else { vec![node_id(words)?] };
        for id in ids {
            let Some(replica) = &self.node(id)?.replica else {
                writeln!(self.trace, "{id}: down").expect("a string takes all");
                continue;
            };
            let status = replica.status();
            let leader = status.leader.map_or_else(|| "-".into(), |leader| leader.to_string());
            let line = format!(
                "{id}: {} {} leader={leader} applied={} commit={} durable={} accepted={} queued={} pending={}",
                status.role,
                status.ballot,
                status.applied_end,
                status.commit_end,
                status.durable_end,
                status.accepted_end,
                status.queued_requests,
                status.pending_requests,
            );
            writeln!(self.trace, "{line}").expect("a string takes all");
        }
        Ok(())
    }

    fn show_disk(&mut self, id: NodeId) -> Fallible<()> {
        let shown: Vec<String> = self.node(id)?.disk.iter().map(show::record).collect();
        for record in shown {
            writeln!(self.trace, "{id}: {record}").expect("a string takes all");
        }
        Ok(())
    }

    fn show_network(&mut self) {
        for Sent { from, to, message } in &self.network {
            writeln!(self.trace, "{from}->{to} {}", show::message(message)).expect("a string takes all");
        }
    }
}

fn set_limit(limits: &mut Limits, name: &str, value: &str) -> Fallible<()> {
    let value: usize = value.parse().map_err(|_| format!("{value:?} is no number"))?;
    let slots = u64::try_from(value).map_err(|error| error.to_string())?;
    match name {
        "window" => limits.window_slots_max = slots,
        "open" => limits.open_slots_max = slots,
        "unapplied" => limits.unapplied_slots_max = slots,
        "batch" => limits.batch_commands_max = value,
        "queue" => limits.queued_commands_max = value,
        "page" => limits.page_bytes_max = value,
        "cache" => limits.cache_slots_max = value,
        "reads" => limits.reads_max = value,
        _ => return Err(format!("no limit is named {name:?}")),
    }
    Ok(())
}

fn number(word: Option<&&str>) -> Fallible<u64> {
    word.and_then(|word| word.parse().ok()).ok_or_else(|| format!("{word:?} is no number"))
}

fn optional(word: Option<&&str>) -> Fallible<Option<usize>> {
    word.map(|word| word.parse().map_err(|_| format!("{word:?} is no number"))).transpose()
}

fn node_id(words: &[&str]) -> Fallible<NodeId> {
    let id = words.first().and_then(|word| word.parse().ok());
    id.map(NodeId).ok_or_else(|| format!("{words:?} does not begin with a node"))
}

fn link(words: &[&str]) -> Fallible<(NodeId, NodeId)> {
    let (from, to) = words.first().and_then(|word| word.split_once("->")).ok_or("a link is from->to")?;
    Ok((node_id(&[from])?, node_id(&[to])?))
}

fn command(text: &str) -> Fallible<Command> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let key = |id: &str| EventKey::new(1_000_000, id.as_bytes()).map_err(|error| error.to_string());
    let token = |word: &str| -> Fallible<Token> {
        let sequence = word.strip_prefix('t').and_then(|word| word.parse().ok());
        let sequence = sequence.ok_or_else(|| format!("{word:?} is no token"))?;
        Ok(Token { incarnation: Incarnation([1; 16]), sequence })
    };
    match words.as_slice() {
        ["insert", id, by] => Ok(Command::Insert { key: key(id)?, token: token(by)? }),
        ["lookup", id] => Ok(Command::Lookup { key: key(id)? }),
        ["delete", id, by] => {
            Ok(Command::Delete { key: key(id)?, token: token(by)?, reason: DeleteReason::LineMissing })
        }
        ["forget", id, by] => Ok(Command::ForgetToken { key: key(id)?, token: token(by)? }),
        ["rules", text] => Ok(Command::StateKeyRules { text: (*text).to_owned() }),
        _ => Err(format!("{text:?} is no command")),
    }
}

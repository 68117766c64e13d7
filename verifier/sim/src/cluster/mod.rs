//! A cluster in one thread: one queue of what is to happen, in the order of virtual time.
//!
//! Invariant: things happen one after the other, by (time, number), and whatever is drawn is drawn
//! when it happens. So a run is a function of its seed.
//!
//! Here is the queue and what each entry of it does. What a step's effects lead to is in `steps`,
//! what goes wrong in `trouble`.

mod clients;
mod journal;
mod machine;
mod network;
mod node;
mod queue;
mod steps;
mod trouble;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use photon_core::{Effect, Event, IoSeq, Message, ReadId, Reply, RequestId};
use photon_types::{Chunk, NodeId, Outcomes, Slot};

use self::clients::Clients;
use self::network::{Cut, Network, index};
use self::node::Node;
use self::queue::Queue;
use self::trouble::{Counts, Trouble};
use crate::dice::{Dice, Purpose};
use crate::invariants::{Healed, Life, Property, Violation, Watch};
use crate::mutants::Mutant;
use crate::parameters::Parameters;
use crate::run::Options;
use crate::time::Time;
use crate::trace::Trace;

/// Something that is to happen.
enum Happening {
    /// Only the last that was asked for counts.
    Tick {
        life: Life,
        due: Time,
    },
    Arrive {
        from: NodeId,
        to: NodeId,
        message: Message,
    },
    Synced {
        life: Life,
    },
    Persisted {
        life: Life,
        upto: IoSeq,
    },
    Written {
        life: Life,
    },
    Applied {
        life: Life,
        applied_end: Slot,
        outcomes: Vec<(Slot, Outcomes)>,
    },
    Read {
        life: Life,
        read: ReadId,
        from: Slot,
        to_end: Slot,
        bytes_max: usize,
    },
    Think {
        client: usize,
    },
    Request {
        client: usize,
        node: NodeId,
        request: RequestId,
        chunk: Chunk<Bytes>,
    },
    Answer {
        client: usize,
        request: RequestId,
        reply: Reply,
    },
    Timeout {
        client: usize,
        request: RequestId,
    },
    Trouble(Trouble),
    Restart {
        node: NodeId,
    },
    Healed(Cut),
}

/// The cluster, its surroundings, and all that is known of them.
pub(crate) struct Cluster {
    parameters: Parameters,
    now: Time,
    queue: Queue<Happening>,
    nodes: Vec<Node>,
    network: Network,
    clients: Clients,
    /// Which client waits for which request.
    callers: BTreeMap<RequestId, usize>,
    disks: Dice,
    machines: Dice,
    trouble: Dice,
    replicas: Dice,
    /// Nothing goes wrong any more.
    calm: bool,
    effects: Vec<Effect>,
    watch: Watch,
    trace: Trace,
    counts: Counts,
}

impl Cluster {
    pub fn new(seed: u64, parameters: Parameters, mutant: Option<Mutant>, options: &Options) -> Cluster {
        let dice = |purpose| Dice::new(seed, purpose);
        let ids = (1..=parameters.nodes).map(NodeId);
        Cluster {
            now: Time::default(),
            queue: Queue::new(),
            nodes: ids.map(|id| Node::new(id, &parameters, mutant)).collect(),
            network: Network::new(parameters.network.clone(), dice(Purpose::Network), parameters.nodes),
            clients: Clients::new(parameters.clients.clone(), dice(Purpose::Clients), parameters.nodes),
            callers: BTreeMap::new(),
            disks: dice(Purpose::Disks),
            machines: dice(Purpose::Machines),
            trouble: dice(Purpose::Trouble),
            replicas: dice(Purpose::Replicas),
            calm: false,
            effects: Vec::new(),
            watch: Watch::new(parameters.quorum(), options.without.clone()),
            trace: Trace::new(options.lines_max),
            counts: Counts::default(),
            parameters,
        }
    }

    /// The whole story: trouble, healing, and what a healed cluster must do.
    pub fn run(&mut self) -> Result<(), Violation> {
        self.begin()?;
        let heal_at = Time(self.parameters.safety);
        while self.queue.next_at().is_some_and(|at| at < heal_at) {
            self.happen()?;
        }
        self.now = heal_at;
        self.heal()?;
        let deadline = heal_at.after(self.patience());
        while !self.is_done() && self.queue.next_at().is_some_and(|at| at < deadline) {
            self.happen()?;
        }
        self.watch.healed(&self.state())?;
        let history = self.clients.take_history();
        let count = |count: usize| u64::try_from(count).expect("a usize fits 64 bits");
        self.counts.calls = count(history.len());
        self.counts.answers = count(history.iter().filter(|op| op.answer.is_some()).count());
        self.watch.finished(&history)
    }

    fn begin(&mut self) -> Result<(), Violation> {
        for node in 1..=self.parameters.nodes {
            self.restart(NodeId(node))?;
        }
        for client in 0..self.clients.count() {
            let wait = self.clients.think_time();
            self.after(wait, Happening::Think { client });
        }
        self.begin_trouble();
        Ok(())
    }

    fn is_done(&self) -> bool {
        let end = self.nodes[0].machine.applied_end();
        self.clients.are_done()
            && !self.watch.is_waiting()
            && self.nodes.iter().all(|node| node.machine.applied_end() == end)
            && self.state().is_done()
    }

    fn state(&self) -> Healed {
        Healed {
            proven: self.clients.proven(),
            waiting: self.clients.waiting(),
            nodes: self.nodes.iter().map(Node::state).collect(),
        }
    }

    fn after(&mut self, wait: Duration, happening: Happening) {
        self.at(self.now.after(wait), happening);
    }

    fn at(&mut self, time: Time, happening: Happening) {
        self.queue.put(time, happening);
    }

    /// The next thing happens.
    fn happen(&mut self) -> Result<(), Violation> {
        let Some(due) = self.queue.pop() else { return Ok(()) };
        assert!(self.now <= due.at, "time went back from {} to {}", self.now, due.at);
        self.now = due.at;
        if let Some((id, life)) = due.what.needs() {
            let node = &self.nodes[index(id)];
            if node.replica.is_none() || life.is_some_and(|life| life != node.life) {
                return Ok(());
            }
            if self.now < node.stalled_until {
                self.queue.put_back(due, node.stalled_until);
                return Ok(());
            }
        }
        self.counts.happenings += 1;
        match due.what {
            Happening::Tick { life, due } => self.tick(life, due),
            Happening::Arrive { from, to, message } => {
                // It reaches whatever life is there.
                self.step(self.nodes[index(to)].life, Event::Message { from, message })
            }
            Happening::Synced { life } => self.synced(life),
            Happening::Persisted { life, upto } => self.step(life, Event::Persisted { upto }),
            Happening::Written { life } => self.written(life),
            Happening::Applied { life, applied_end, outcomes } => {
                self.step(life, Event::Applied { applied_end, outcomes })
            }
            Happening::Read { life, read, from, to_end, bytes_max } => {
                let entries = self.nodes[index(life.node)].journal.read(from, to_end, bytes_max);
                self.step(life, Event::EntriesRead { read, entries })
            }
            Happening::Think { client } => {
                self.call(client);
                Ok(())
            }
            Happening::Request { client, node, request, chunk } => self.request(client, node, request, chunk),
            Happening::Answer { client, request, reply } => {
                self.answer(client, request, reply);
                Ok(())
            }
            Happening::Timeout { client, request } => {
                if self.clients.on_timeout(client, request) {
                    self.after(Duration::ZERO, Happening::Think { client });
                }
                Ok(())
            }
            Happening::Trouble(trouble) => self.make_trouble(trouble),
            Happening::Restart { node } => self.restart(node),
            Happening::Healed(cut) => {
                self.heal_cut(&cut);
                Ok(())
            }
        }
    }

    fn call(&mut self, client: usize) {
        let Some(call) = self.clients.next_call(client, self.counts.happenings) else { return };
        let clients::Call { request, node, chunk, timeout } = call;
        self.after(timeout, Happening::Timeout { client, request });
        if let Some(delay) = self.network.call() {
            self.after(delay, Happening::Request { client, node, request, chunk });
        }
    }

    fn request(&mut self, client: usize, to: NodeId, request: RequestId, chunk: Chunk<Bytes>) -> Result<(), Violation> {
        let life = self.nodes[index(to)].life;
        self.watch.requested(life, request);
        self.callers.insert(request, client);
        self.step(life, Event::Request { request, commands: chunk })
    }

    fn answer(&mut self, client: usize, request: RequestId, reply: Reply) {
        if let Some(wait) = self.clients.on_reply(client, request, reply, self.counts.happenings) {
            self.after(wait, Happening::Think { client });
        }
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    pub fn chosen_slots(&self) -> u64 {
        self.watch.chosen_slots()
    }

    pub fn now(&self) -> Time {
        self.now
    }

    pub fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }
}

impl Happening {
    /// Whose process must be there and awake for it; in which life, if that matters.
    fn needs(&self) -> Option<(NodeId, Option<Life>)> {
        match self {
            Happening::Tick { life, .. }
            | Happening::Persisted { life, .. }
            | Happening::Written { life }
            | Happening::Applied { life, .. }
            | Happening::Read { life, .. } => Some((life.node, Some(*life))),
            Happening::Arrive { to: node, .. } | Happening::Request { node, .. } => Some((*node, None)),
            // The disk goes on while the process is stopped.
            Happening::Synced { .. }
            | Happening::Think { .. }
            | Happening::Answer { .. }
            | Happening::Timeout { .. }
            | Happening::Trouble(_)
            | Happening::Restart { .. }
            | Happening::Healed(_) => None,
        }
    }
}

/// The core's own assertions are a property like the others.
fn core_assertion(evidence: String) -> Violation {
    Violation { property: Property::CoreAssertion, evidence }
}

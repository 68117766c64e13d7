//! What goes wrong, and how it ends: crashes, spite, cuts, stalls, restarts, healing.
//!
//! Invariant: all trouble is trouble that the design promises to bear. A crash takes only what was
//! not durable, and nothing is altered.
//!
//! Random crashes hardly ever come between a write and its sync, where the gates matter: one such
//! bug took 35,336 seeds. So there is spite: a crash right after a step that wrote or spoke.

use std::time::Duration;

use photon_core::{Effect, Event, Message, Replica, RoleName};
use photon_types::{NodeId, Prng};

use super::network::{Cut, index};
use super::node::Node;
use super::steps::{NO_REPORT, calm_span};
use super::{Cluster, Happening, core_assertion};
use crate::caught::guard;
use crate::dice::{Chance, Span};
use crate::invariants::{Life, Violation};
use crate::time::Clock;

/// What comes about now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Trouble {
    Crash,
    Cut,
    Stall,
}

/// What happened in a run, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub happenings: u64,
    pub messages: u64,
    pub crashes: u64,
    pub spiteful_crashes: u64,
    pub cuts: u64,
    pub stalls: u64,
    pub calls: u64,
    pub answers: u64,
    pub elections_won: u64,
}

/// What a step emitted, as far as spite cares.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Emitted {
    persist: bool,
    send: bool,
    gated: bool,
}

impl Emitted {
    pub fn note(&mut self, effect: &Effect) {
        match effect {
            Effect::Persist { .. } => self.persist = true,
            Effect::Send { to: _, message } => {
                self.send = true;
                self.gated |= match message {
                    Message::Prepare(_) | Message::Promise(_) | Message::Accepted(_) => true,
                    Message::Nack(_)
                    | Message::Accept(_)
                    | Message::Heartbeat(_)
                    | Message::FetchChosen(_)
                    | Message::Chosen(_) => false,
                };
            }
            Effect::Apply { .. } | Effect::Reply { .. } | Effect::Read { .. } => (),
        }
    }
}

impl Cluster {
    pub(super) fn begin_trouble(&mut self) {
        for trouble in [Trouble::Crash, Trouble::Cut, Trouble::Stall] {
            self.schedule_trouble(trouble);
        }
    }

    fn schedule_trouble(&mut self, trouble: Trouble) {
        let every = match trouble {
            Trouble::Crash => self.parameters.crash.every,
            Trouble::Cut => self.parameters.cut.every,
            Trouble::Stall => self.parameters.stall.every,
        };
        if let Some(every) = every {
            let wait = self.trouble.span(Span { min: every / 4, end: every * 7 / 4 });
            self.after(wait, Happening::Trouble(trouble));
        }
    }

    pub(super) fn make_trouble(&mut self, trouble: Trouble) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        self.schedule_trouble(trouble);
        match trouble {
            Trouble::Crash => {
                let at = self.draw_victim();
                let node = &self.nodes[at];
                if node.replica.is_none() || self.has_crashed_enough() {
                    return Ok(());
                }
                let life = node.life;
                self.crash(life, "by chance")
            }
            Trouble::Cut => {
                let at = self.draw_victim();
                let victim = self.nodes[at].life.node;
                let cut = self.network.draw_cut(victim);
                let lasts = self.trouble.span(self.parameters.cut.lasts);
                self.trace.note(self.now, &cut, || format!("cut {:?}", cut.0));
                self.counts.cuts += 1;
                self.network.cut(&cut);
                self.after(lasts, Happening::Healed(cut));
                Ok(())
            }
            Trouble::Stall => {
                let at = self.draw_victim();
                let until = self.now.after(self.trouble.span(self.parameters.stall.lasts));
                let node = &mut self.nodes[at];
                if self.now < node.stalled_until {
                    return Ok(());
                }
                node.stalled_until = until;
                self.counts.stalls += 1;
                self.trace.note(self.now, &(at, until), || format!("node {} is stopped until {until}", at + 1));
                Ok(())
            }
        }
    }

    /// Every second time somebody who believes to lead: there trouble does most.
    fn draw_victim(&mut self) -> usize {
        let leads = |node: &Node| node.replica.as_ref().is_some_and(|r| r.status().role == RoleName::Leader);
        let leaders: Vec<usize> = (0..self.nodes.len()).filter(|at| leads(&self.nodes[*at])).collect();
        if leaders.is_empty() || self.trouble.one_in(2) {
            return self.trouble.index(self.nodes.len());
        }
        *self.trouble.pick(&leaders)
    }

    fn has_crashed_enough(&self) -> bool {
        u64::from(self.parameters.crash.crashes_max) <= self.counts.crashes
    }

    /// After a step: perhaps the worst moment for a crash.
    pub(super) fn spite(&mut self, life: Life, emitted: Emitted) -> Result<(), Violation> {
        if self.calm || self.has_crashed_enough() {
            return Ok(());
        }
        let spite = &self.parameters.crash.spite;
        let mut is_due = |emitted: bool, chance: Chance| emitted && self.trouble.chance(chance);
        let is_crash = is_due(emitted.gated && emitted.persist, spite.both)
            || is_due(emitted.gated, spite.gated)
            || is_due(emitted.persist, spite.persist)
            || is_due(emitted.send, spite.send);
        if !is_crash {
            return Ok(());
        }
        self.counts.spiteful_crashes += 1;
        self.crash(life, "out of spite")
    }

    fn crash(&mut self, life: Life, why: &str) -> Result<(), Violation> {
        let rates = &self.parameters.crash;
        let node = &mut self.nodes[index(life.node)];
        let unsynced = node.journal.unsynced();
        let kept = if self.trouble.chance(rates.loses_all) {
            0
        } else if self.trouble.chance(rates.loses_some) {
            self.trouble.index(unsynced + 1)
        } else {
            unsynced
        };
        self.counts.crashes += 1;
        self.counts.elections_won += elections_won(node.replica.as_ref());
        self.watch.crashed(life);
        // Nobody was told of them, but they are there for good: the recovery makes sure of it.
        for record in node.journal.crash(kept) {
            self.watch.durable(life, record)?;
        }
        node.die();
        let is_quick = self.trouble.chance(rates.quick);
        let down = self.trouble.span(if is_quick { rates.quick_down } else { rates.long_down });
        let line = || {
            format!(
                "{life} crashes {why}; of {unsynced} unsynced records {kept} stay; applied {}",
                node.machine.applied_end()
            )
        };
        self.trace.note(self.now, &(life.node, kept, down), line);
        self.after(down, Happening::Restart { node: life.node });
        Ok(())
    }

    pub(super) fn restart(&mut self, id: NodeId) -> Result<(), Violation> {
        let node = &mut self.nodes[index(id)];
        if node.replica.is_some() {
            return Ok(()); // Healing was faster.
        }
        node.life.number += 1;
        let (slow, fast) = self.parameters.clock_rate;
        let rate = u32::try_from(self.replicas.range(slow.into(), fast.into())).expect("near a thousand");
        // A clock begins anywhere: nothing may be compared over lives.
        let shown = Duration::from_micros(self.replicas.below(100_000_000));
        node.clock = Clock { born: self.now, shown, rate };
        node.stalled_until = self.now;
        (node.persisted_at, node.applied_at) = (NO_REPORT, NO_REPORT);
        let prng = Prng::new(self.replicas.number());
        let applied_end = node.machine.applied_end();
        let leave_out = self.parameters.disk.leaves_out_applied.then_some(applied_end);
        let (config, now) = (node.config.clone(), node.clock.now(self.now));
        let records = node.journal.recover(leave_out);
        let replica = guard(|| Replica::recover(config, prng, now, records, applied_end)).map_err(core_assertion)?;
        node.replica = Some(replica);
        let life = node.life;
        self.trace.note(self.now, &(id, applied_end), || format!("{life} begins, applied {applied_end}"));
        // What recovery left to apply goes out before anything comes in, as in the real driver.
        self.step(life, Event::Tick)
    }

    pub(super) fn heal_cut(&mut self, cut: &Cut) {
        if !self.calm {
            self.trace.note(self.now, cut, || format!("heal {:?}", cut.0));
            self.network.heal(cut);
        }
    }

    /// No more trouble: everybody is back, everything works, soon.
    pub(super) fn heal(&mut self) -> Result<(), Violation> {
        self.calm = true;
        self.trace.note(self.now, &"heal", || "everything heals");
        let election_min = self.parameters.timings.election_timeout_min;
        let calm = calm_span(election_min);
        self.network.calm(calm);
        let disk = &mut self.parameters.disk;
        (disk.sync, disk.report, disk.stall) = (calm, calm, Chance::NEVER);
        disk.slowness.fill(1);
        let machine = &mut self.parameters.machine;
        (machine.apply, machine.report) = (calm, calm);
        // Who is stopped wakes up when he was to.
        for node in 1..=self.parameters.nodes {
            self.restart(NodeId(node))?;
        }
        let election_max = self.parameters.timings.election_timeout_max;
        for (client, request) in self.clients.heal(Span { min: election_max * 4, end: election_max * 8 }) {
            self.after(Duration::ZERO, Happening::Timeout { client, request });
        }
        for client in 0..self.clients.count() {
            self.after(Duration::ZERO, Happening::Think { client });
        }
        Ok(())
    }

    /// How long a healed cluster may take. What was late may still disturb it; then it needs some
    /// elections, and time to catch up.
    pub(super) fn patience(&self) -> Duration {
        let network = &self.parameters.network;
        let slowest = network.slowness.iter().copied().max().unwrap_or(1);
        let late = network.delay.end * slowest + network.late_by.end;
        let disk = self.parameters.disk.stalled.end + self.parameters.disk.sync.end * 20;
        late + disk + self.parameters.stall.lasts.end + self.parameters.timings.election_timeout_max * 60
    }

    /// Adds what the living have to tell.
    pub fn finish_counts(&mut self) {
        self.counts.elections_won += self.nodes.iter().map(|node| elections_won(node.replica.as_ref())).sum::<u64>();
    }
}

fn elections_won(replica: Option<&Replica>) -> u64 {
    replica.map_or(0, |replica| replica.status().counters.elections_won)
}

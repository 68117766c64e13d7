//! Steps, and what their effects lead to: writes, messages, machines, replies.
//!
//! Invariant: this is the driver of the simulator. It keeps the driver's whole contract: lane 1 and
//! lane 2 in order and reported in order, everything else at any time or never.

use std::time::Duration;

use photon_core::{Effect, Event, Message};
use photon_types::{NodeId, Slot};

use super::network::index;
use super::trouble::Emitted;
use super::{Cluster, Happening, core_assertion};
use crate::caught::guard;
use crate::dice::Span;
use crate::invariants::{Life, Violation};
use crate::show::Show;
use crate::time::Time;

impl Cluster {
    pub(super) fn step(&mut self, life: Life, event: Event) -> Result<(), Violation> {
        let at = index(life.node);
        let node = &mut self.nodes[at];
        let replica = node.replica.as_mut().expect("only the living are stepped");
        self.trace.note(self.now, &(life.node, &event), || format!("node {} {}", life.node, Show(&event)));
        let now = node.clock.now(self.now);
        let mut effects = std::mem::take(&mut self.effects);
        let commit_end = guard(|| {
            replica.step(now, event, &mut effects);
            replica.status().commit_end
        })
        .map_err(core_assertion)?;
        self.watch.committed(life, commit_end)?;
        let mut emitted = Emitted::default();
        for effect in effects.drain(..) {
            self.trace.note(self.now, &effect, || format!("    node {} → {}", life.node, Show(&effect)));
            self.watch.emitted(life, &effect)?;
            emitted.note(&effect);
            self.act(life, effect);
        }
        self.effects = effects;
        self.begin_sync(at);
        self.begin_apply(at);
        self.schedule_tick(at);
        self.spite(life, emitted)
    }

    fn act(&mut self, life: Life, effect: Effect) {
        let node = &mut self.nodes[index(life.node)];
        match effect {
            Effect::Persist { seq, record } => node.journal.write(seq, record),
            Effect::Apply { entry, wanted } => node.machine.push(entry, wanted),
            Effect::Send { to, message } => self.send(life.node, to, message),
            Effect::Reply { request, reply } => {
                let client = self.callers.remove(&request).expect("the watch has seen to one reply");
                if let Some(delay) = self.network.call() {
                    self.after(delay, Happening::Answer { client, request, reply });
                }
            }
            Effect::Read { read, from, to_end, bytes_max } => {
                let wait = self.disks.span(self.parameters.disk.report);
                self.after(wait, Happening::Read { life, read, from, to_end, bytes_max });
            }
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Message) {
        self.counts.messages += 1;
        let [first, second] = self.network.send(from, to);
        if let Some(delay) = second {
            self.after(delay, Happening::Arrive { from, to, message: message.clone() });
        }
        if let Some(delay) = first {
            self.after(delay, Happening::Arrive { from, to, message });
        }
    }

    fn begin_sync(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if !node.journal.begin_sync(self.parameters.disk.group_records_max) {
            return;
        }
        let life = node.life;
        let disk = &self.parameters.disk;
        let mut takes = self.disks.span(disk.sync) * disk.slowness[at];
        if self.disks.chance(disk.stall) {
            takes += self.disks.span(disk.stalled);
        }
        self.after(takes, Happening::Synced { life });
    }

    pub(super) fn synced(&mut self, life: Life) -> Result<(), Violation> {
        let at = index(life.node);
        let node = &mut self.nodes[at];
        if !node.is_alive(life) {
            return Ok(());
        }
        let (records, upto) = node.journal.finish_sync();
        for record in records {
            self.watch.durable(life, record)?;
        }
        self.trace.note(self.now, &(life.node, upto), || format!("node {} has #{} durable", life.node, upto.0));
        let wait = self.disks.span(self.parameters.disk.report);
        let node = &mut self.nodes[at];
        node.persisted_at = node.persisted_at.max(self.now.after(wait));
        let report_at = node.persisted_at;
        self.at(report_at, Happening::Persisted { life, upto });
        self.begin_sync(at);
        Ok(())
    }

    fn begin_apply(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.machine.begin(self.parameters.machine.group_entries_max) {
            let life = node.life;
            let takes = self.machines.span(self.parameters.machine.apply);
            self.after(takes, Happening::Written { life });
        }
    }

    /// The machine has written what it applied. It may be durable before anybody knows, or long after.
    pub(super) fn written(&mut self, life: Life) -> Result<(), Violation> {
        let at = index(life.node);
        let machine = &mut self.nodes[at].machine;
        let outcomes = guard(|| machine.finish()).map_err(core_assertion)?;
        let applied_end = machine.applied_end();
        if self.machines.chance(self.parameters.machine.flush) {
            machine.flush();
        }
        self.watch.applied(life, applied_end, machine.table())?;
        self.note_applied(life, applied_end);
        let wait = self.machines.span(self.parameters.machine.report);
        let node = &mut self.nodes[at];
        node.applied_at = node.applied_at.max(self.now.after(wait));
        let report_at = node.applied_at;
        self.at(report_at, Happening::Applied { life, applied_end, outcomes });
        self.begin_apply(at);
        Ok(())
    }

    fn note_applied(&mut self, life: Life, applied_end: Slot) {
        let line = || format!("node {} has written what is below {applied_end}", life.node);
        self.trace.note(self.now, &(life.node, applied_end), line);
    }

    pub(super) fn tick(&mut self, life: Life, due: Time) -> Result<(), Violation> {
        let at = index(life.node);
        let node = &mut self.nodes[at];
        if node.tick_at != Some(due) {
            return Ok(()); // An earlier one was asked for since, and has come.
        }
        node.tick_at = None;
        let replica = node.replica.as_ref().expect("the queue has looked");
        let is_due = replica.next_deadline().is_some_and(|deadline| deadline <= node.clock.now(self.now).monotonic);
        if is_due {
            return self.step(life, Event::Tick);
        }
        // The deadline has moved since.
        self.schedule_tick(at);
        Ok(())
    }

    fn schedule_tick(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(deadline) = node.replica.as_ref().and_then(photon_core::Replica::next_deadline) else { return };
        let due = node.clock.moment(deadline).max(self.now);
        if node.tick_at.is_none_or(|tick_at| due < tick_at) {
            node.tick_at = Some(due);
            let life = node.life;
            self.at(due, Happening::Tick { life, due });
        }
    }
}

/// Reports of the next life do not wait for those of the last.
pub(super) const NO_REPORT: Time = Time(Duration::ZERO);

/// Calm: a hundredth of the election timeout at most.
pub(super) fn calm_span(election_min: Duration) -> Span {
    Span { min: election_min / 400, end: election_min / 100 }
}

//! Everything about a run that is drawn from its seed: sizes, timings, rates.
//!
//! Invariant: nothing is fixed that could be drawn. Fixed "reasonable" rates miss whole classes of
//! histories however many seeds are run: so each kind of trouble is missing from some runs and
//! rules in others, and times are drawn relative to the election timeout over orders of magnitude.

use std::fmt;
use std::time::Duration;

use photon_core::{Limits, Timings};

use crate::dice::{Chance, Dice, Purpose, Span};

/// What one seed draws.
#[derive(Clone, Debug)]
pub struct Parameters {
    pub(crate) nodes: u32,
    pub(crate) timings: Timings,
    pub(crate) limits: Limits,
    /// How long there is trouble, before everything heals.
    pub(crate) safety: Duration,
    pub(crate) network: NetworkRates,
    pub(crate) disk: DiskRates,
    pub(crate) machine: MachineRates,
    pub(crate) crash: CrashRates,
    pub(crate) cut: Recurring,
    pub(crate) stall: Recurring,
    pub(crate) clients: ClientRates,
    /// Milliseconds that a clock shows for each second, in `min..=max`.
    pub(crate) clock_rate: (u32, u32),
}

#[derive(Clone, Debug)]
pub(crate) struct NetworkRates {
    pub delay: Span,
    /// How many times slower each link is; by sender, then receiver. Both directions differ.
    pub slowness: Vec<u32>,
    /// Some messages take much longer: how many, and how much.
    pub late: Chance,
    pub late_by: Span,
    pub loss: Chance,
    pub duplication: Chance,
}

#[derive(Clone, Debug)]
pub(crate) struct DiskRates {
    pub sync: Span,
    pub stall: Chance,
    pub stalled: Span,
    /// How many times slower the disk of each node is.
    pub slowness: Vec<u32>,
    /// From a sync that is done to the report of it.
    pub report: Span,
    /// The most records of one sync.
    pub group_records_max: usize,
    /// Recovery leaves out entries that the table has durably applied, as the real journal does.
    pub leaves_out_applied: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct MachineRates {
    pub apply: Span,
    pub report: Span,
    pub group_entries_max: usize,
    /// How likely the table is made durable after a write.
    pub flush: Chance,
}

#[derive(Clone, Debug)]
pub(crate) struct CrashRates {
    /// Random crashes come about so often; none: never.
    pub every: Option<Duration>,
    /// Spiteful ones come right after a step, by what it emitted.
    pub spite: Spite,
    pub crashes_max: u32,
    /// A restart is quick, or takes long.
    pub quick: Chance,
    pub quick_down: Span,
    pub long_down: Span,
    /// Of the writes that were not synced a crash takes all, a suffix, or none.
    pub loses_all: Chance,
    pub loses_some: Chance,
}

/// How likely a crash is after a step that emitted what.
#[derive(Clone, Debug)]
pub(crate) struct Spite {
    /// A `Persist`.
    pub persist: Chance,
    /// Any message.
    pub send: Chance,
    /// `Prepare`, `Promise` or `Accepted`: what waits for the disk.
    pub gated: Chance,
    /// One of these and a `Persist`: the moment at which a gate that leaks does harm.
    pub both: Chance,
}

/// Trouble that comes and goes.
#[derive(Clone, Debug)]
pub(crate) struct Recurring {
    pub every: Option<Duration>,
    pub lasts: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct ClientRates {
    pub clients: usize,
    pub think: Span,
    pub timeout: Span,
    pub commands_max: u64,
    pub ids: u64,
    /// How likely a client gives up on an answer that it does not get.
    pub abandon: Chance,
    /// Out of the sum: insert, look-up, delete, forget.
    pub mix: [u64; 4],
}

impl Parameters {
    /// What this seed draws.
    #[must_use]
    pub fn draw(seed: u64) -> Parameters {
        let mut dice = Dice::new(seed, Purpose::Parameters);
        let nodes = if dice.one_in(3) { 5 } else { 3 };
        let timings = draw_timings(&mut dice);
        let unit = Unit { election: micros(timings.election_timeout_max) };
        let safety = unit.times(dice.range(6, 36));
        Parameters {
            nodes,
            limits: draw_limits(&mut dice),
            network: draw_network(&mut dice, unit, nodes),
            disk: draw_disk(&mut dice, unit, nodes),
            machine: draw_machine(&mut dice, unit),
            crash: draw_crashes(&mut dice, unit),
            cut: draw_recurring(&mut dice, unit),
            stall: draw_recurring(&mut dice, unit),
            clients: draw_clients(&mut dice, unit, safety),
            clock_rate: *dice.pick(&[(1_000, 1_000), (995, 1_005), (800, 1_200)]),
            timings,
            safety,
        }
    }

    pub(crate) fn quorum(&self) -> usize {
        usize::try_from(self.nodes).expect("a u32 fits a usize") / 2 + 1
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("a run is short")
}

/// Durations relative to the election timeout: only their relation means anything.
#[derive(Clone, Copy)]
struct Unit {
    election: u64,
}

impl Unit {
    fn times(self, count: u64) -> Duration {
        Duration::from_micros(self.election * count)
    }

    /// A duration of so many thousandths of the election timeout.
    fn thousandths(self, count: u64) -> Duration {
        Duration::from_micros((self.election * count / 1_000).max(1))
    }

    /// From a drawn minimum up to some times as much.
    fn span(self, dice: &mut Dice, min: u64, max: u64) -> Span {
        let min = dice.doubling(min, max);
        Span { min: self.thousandths(min), end: self.thousandths(min * dice.doubling(2, 20)) }
    }
}

fn draw_timings(dice: &mut Dice) -> Timings {
    let election_min = dice.doubling(30_000, 960_000);
    let share = |dice: &mut Dice, of: u64, min, max| Duration::from_micros((of / dice.range(min, max)).max(1_000));
    Timings {
        election_timeout_min: Duration::from_micros(election_min),
        election_timeout_max: Duration::from_micros(
            election_min + election_min.div_ceil(4) + dice.below(2 * election_min),
        ),
        heartbeat_interval: share(dice, election_min, 3, 10),
        resend_interval: share(dice, election_min, 1, 12),
        retry_after: share(dice, election_min, 4, 20),
    }
}

fn draw_limits(dice: &mut Dice) -> Limits {
    let count = |drawn: u64| usize::try_from(drawn).expect("a small number");
    let window_slots_max = if dice.one_in(5) { 1 } else { dice.range(2, 16) };
    let batch_commands_max = count(dice.doubling(1, 16));
    Limits {
        window_slots_max,
        open_slots_max: window_slots_max * dice.range(1, 3),
        unapplied_slots_max: window_slots_max * dice.range(1, 3),
        batch_commands_max,
        // Room for the largest request of a client, or it is refused for ever.
        queued_commands_max: batch_commands_max + count(dice.range(QUERY_COMMANDS_MAX, 64)),
        page_bytes_max: count(dice.doubling(100, 20_000)),
        cache_slots_max: count(dice.below(20)),
        reads_max: count(dice.range(1, 4)),
        ..Limits::default()
    }
}

/// The most commands of one request of a client.
pub(crate) const QUERY_COMMANDS_MAX: u64 = 8;

/// Missing from some runs, else of any order of magnitude up to `max`.
fn draw_chance(dice: &mut Dice, missing_percent: u64, max: Chance) -> Chance {
    if dice.chance(Chance::percent(missing_percent)) {
        return Chance::NEVER;
    }
    Chance(dice.doubling((max.0 / 256).max(1), max.0))
}

fn draw_network(dice: &mut Dice, unit: Unit, nodes: u32) -> NetworkRates {
    // In some runs old messages are still under way when the next election comes.
    let delay = match dice.below(4) {
        0 => Span { min: unit.thousandths(dice.doubling(1, 16)), end: unit.thousandths(dice.doubling(200, 1_600)) },
        _ => unit.span(dice, 2, 128),
    };
    NetworkRates {
        delay,
        slowness: draw_slowness(dice, nodes * nodes),
        late: draw_chance(dice, 40, Chance::percent(30)),
        late_by: Span { min: unit.thousandths(200), end: unit.thousandths(dice.doubling(400, 5_000)) },
        loss: draw_chance(dice, 30, Chance::percent(30)),
        duplication: draw_chance(dice, 40, Chance::percent(40)),
    }
}

/// Of the things in a row in some runs none, in others a third is slower than the rest.
fn draw_slowness(dice: &mut Dice, count: u32) -> Vec<u32> {
    let is_uneven = dice.one_in(2);
    let slowness = |dice: &mut Dice| if is_uneven && dice.one_in(3) { dice.range(2, 20) } else { 1 };
    (0..count).map(|_| u32::try_from(slowness(dice)).expect("a small number")).collect()
}

fn draw_disk(dice: &mut Dice, unit: Unit, nodes: u32) -> DiskRates {
    DiskRates {
        sync: unit.span(dice, 1, 128),
        stall: draw_chance(dice, 50, Chance::percent(30)),
        stalled: Span { min: unit.thousandths(100), end: unit.thousandths(dice.doubling(200, 4_000)) },
        slowness: draw_slowness(dice, nodes),
        report: Span { min: Duration::ZERO, end: unit.thousandths(dice.doubling(1, 64)) },
        group_records_max: *dice.pick(&[1, 2, 5, 1_000]),
        leaves_out_applied: dice.one_in(2),
    }
}

fn draw_machine(dice: &mut Dice, unit: Unit) -> MachineRates {
    MachineRates {
        apply: unit.span(dice, 1, 64),
        report: Span { min: Duration::ZERO, end: unit.thousandths(dice.doubling(1, 64)) },
        group_entries_max: *dice.pick(&[1, 2, 8]),
        flush: draw_chance(dice, 20, Chance::percent(100)),
    }
}

fn draw_crashes(dice: &mut Dice, unit: Unit) -> CrashRates {
    let every = (!dice.one_in(3)).then(|| unit.thousandths(dice.doubling(500, 16_000)));
    let is_spiteful = !dice.one_in(3);
    let mut spite = |max: Chance| match is_spiteful && dice.below(3) < 2 {
        true => Chance(dice.doubling(max.0 / 32, max.0)),
        false => Chance::NEVER,
    };
    let spite = Spite {
        persist: spite(Chance::percent(16)),
        send: spite(Chance::percent(8)),
        gated: spite(Chance::percent(32)),
        both: spite(Chance::percent(80)),
    };
    CrashRates {
        every,
        spite,
        crashes_max: u32::try_from(dice.doubling(2, 64)).expect("a small number"),
        quick: Chance::percent(*dice.pick(&[10, 50, 90])),
        quick_down: Span { min: unit.thousandths(1), end: unit.thousandths(dice.doubling(4, 200)) },
        long_down: Span { min: unit.thousandths(300), end: unit.thousandths(dice.doubling(400, 6_000)) },
        loses_all: Chance::percent(*dice.pick(&[10, 50, 95])),
        loses_some: Chance::percent(*dice.pick(&[0, 50, 90])),
    }
}

fn draw_recurring(dice: &mut Dice, unit: Unit) -> Recurring {
    Recurring {
        every: (!dice.one_in(3)).then(|| unit.thousandths(dice.doubling(500, 16_000))),
        lasts: Span { min: unit.thousandths(50), end: unit.thousandths(dice.doubling(100, 5_000)) },
    }
}

fn draw_clients(dice: &mut Dice, unit: Unit, safety: Duration) -> ClientRates {
    let clients = dice.doubling(1, 24);
    // So many requests in all, if each were answered at once.
    let requests = dice.doubling(60, 960);
    let think = safety / u32::try_from(requests).expect("a small number") * u32::try_from(clients).expect("few");
    ClientRates {
        clients: usize::try_from(clients).expect("few"),
        think: Span { min: think / 4, end: think + think * 3 / 4 },
        timeout: unit.span(dice, 250, 1_000),
        commands_max: dice.range(1, 5),
        ids: dice.doubling(2, 40),
        abandon: draw_chance(dice, 40, Chance::percent(30)),
        mix: [dice.range(2, 10), dice.range(0, 6), dice.range(0, 3), dice.range(0, 2)],
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parameters {
            nodes,
            timings,
            limits,
            safety,
            network,
            disk,
            machine,
            crash,
            cut,
            stall,
            clients,
            clock_rate,
        } = self;
        writeln!(f, "  nodes {nodes}, {safety:.1?} of trouble, clocks {}..={} ms/s", clock_rate.0, clock_rate.1)?;
        let Timings { election_timeout_min, election_timeout_max, heartbeat_interval, resend_interval, retry_after: _ } =
            timings;
        writeln!(
            f,
            "  election {election_timeout_min:.1?}..{election_timeout_max:.1?}, heartbeat {heartbeat_interval:.1?}, \
             resend {resend_interval:.1?}"
        )?;
        writeln!(
            f,
            "  window {}, open {}, unapplied {}, batch {}, page {} B, cache {}, reads {}",
            limits.window_slots_max,
            limits.open_slots_max,
            limits.unapplied_slots_max,
            limits.batch_commands_max,
            limits.page_bytes_max,
            limits.cache_slots_max,
            limits.reads_max
        )?;
        writeln!(f, "  network: {network}\n  disks: {disk}\n  machines: {machine}")?;
        writeln!(f, "  crashes: {crash}\n  cuts: {cut}; stalls: {stall}\n  clients: {clients}")
    }
}

impl fmt::Display for NetworkRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NetworkRates { delay, slowness, late, late_by, loss, duplication } = self;
        write!(f, "delay {delay} times {slowness:?}, late {late} by {late_by}, loss {loss}, duplication {duplication}")
    }
}

impl fmt::Display for DiskRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DiskRates { sync, stall, stalled, slowness, report, group_records_max, leaves_out_applied } = self;
        write!(
            f,
            "sync {sync} times {slowness:?}, stall {stall} for {stalled}, report {report}, \
             {group_records_max} records at once, applied entries {} at recovery",
            if *leaves_out_applied { "left out" } else { "read" }
        )
    }
}

impl fmt::Display for MachineRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MachineRates { apply, report, group_entries_max, flush } = self;
        write!(f, "apply {apply}, report {report}, {group_entries_max} entries at once, flush {flush}")
    }
}

impl fmt::Display for CrashRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CrashRates { every, spite, crashes_max, quick, quick_down, long_down, loses_all, loses_some } = self;
        let Spite { persist, send, gated, both } = spite;
        write!(
            f,
            "{}, at most {crashes_max}; spite after a persist {persist}, a message {send}, a gated one {gated}, \
             both {both}; quick {quick} {quick_down}, else {long_down}; all unsynced lost {loses_all}, \
             else some {loses_some}",
            Often(every)
        )
    }
}

impl fmt::Display for Recurring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recurring { every, lasts } = self;
        write!(f, "{} for {lasts}", Often(every))
    }
}

impl fmt::Display for ClientRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClientRates { clients, think, timeout, commands_max, ids, abandon, mix } = self;
        write!(
            f,
            "{clients}, think {think}, timeout {timeout}, up to {commands_max} commands over {ids} ids, mix {mix:?}, \
             abandon {abandon}"
        )
    }
}

struct Often<'a>(&'a Option<Duration>);

impl fmt::Display for Often<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(every) => write!(f, "every {every:.1?}"),
            None => f.write_str("never"),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1?}..{:.1?}", self.min, self.end)
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02} %", self.0 / 10_000, self.0 / 100 % 100)
    }
}

#[cfg(test)]
mod tests {
    use photon_core::Config;
    use photon_types::{GroupId, NodeId};

    use super::*;

    #[test]
    fn every_seed_draws_a_valid_configuration() {
        for seed in (0..20_000).chain([35_730]) {
            let parameters = Parameters::draw(seed);
            let mut config = Config::new(NodeId(1), GroupId(1), (1..=parameters.nodes).map(NodeId).collect());
            config.timings = parameters.timings.clone();
            config.limits = parameters.limits.clone();
            assert_eq!(config.check(), Ok(()), "seed {seed}:\n{parameters}");
            assert!(usize::try_from(QUERY_COMMANDS_MAX).unwrap() <= config.limits.queued_commands_max);
        }
    }

    #[test]
    fn each_kind_of_trouble_is_missing_from_some_seeds() {
        let drawn: Vec<Parameters> = (0..200).map(Parameters::draw).collect();
        let share = |has: &dyn Fn(&Parameters) -> bool| drawn.iter().filter(|parameters| has(parameters)).count();
        let both = |has: &dyn Fn(&Parameters) -> bool| (20..=180).contains(&share(has));
        assert!(both(&|p| p.nodes == 5));
        assert!(both(&|p| p.network.loss == Chance::NEVER));
        assert!(both(&|p| p.network.late == Chance::NEVER));
        assert!(both(&|p| p.network.duplication == Chance::NEVER));
        assert!(both(&|p| p.crash.every.is_none()));
        assert!(both(&|p| p.crash.spite.gated == Chance::NEVER));
        assert!(both(&|p| p.cut.every.is_none()));
        assert!(both(&|p| p.stall.every.is_none()));
        assert!(both(&|p| p.machine.flush == Chance::NEVER));
    }
}

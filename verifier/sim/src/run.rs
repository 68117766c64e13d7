//! One run: from a seed to a summary, or to a failure that says all that is needed to see it again.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::invariants::{Property, Violation};
use crate::mutants::Mutant;
use crate::parameters::Parameters;

/// How a seed is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A bug on purpose.
    pub mutant: Option<Mutant>,
    /// Properties that are not judged.
    pub without: BTreeSet<Property>,
    /// How many of the last lines of the trace are kept. It does not change the run.
    pub lines_max: usize,
}

/// A run in which every property held.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The seed.
    pub seed: u64,
    /// Over all that happened.
    pub fingerprint: u64,
    /// By number.
    pub totals: Totals,
    /// The last lines of the trace.
    pub lines: Vec<String>,
}

/// What happened, by number: of one run, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Runs.
    pub runs: u64,
    /// Virtual time.
    pub virtual_time: Duration,
    /// Things that happened.
    pub happenings: u64,
    /// Slots in which a value was chosen.
    pub slots: u64,
    /// Messages sent.
    pub messages: u64,
    /// Calls of clients, one for each command.
    pub calls: u64,
    /// Of them those that got an answer.
    pub answers: u64,
    /// Elections won.
    pub elections: u64,
    /// Crashes.
    pub crashes: u64,
    /// Of them those out of spite.
    pub spiteful_crashes: u64,
    /// Cuts of links.
    pub cuts: u64,
    /// Stopped processes.
    pub stalls: u64,
}

/// A run in which a property did not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// How it was run.
    pub options: Options,
    /// What the seed drew.
    pub parameters: Parameters,
    /// What did not hold.
    pub violation: Violation,
    /// Over all that happened until then.
    pub fingerprint: u64,
    /// The last lines of the trace.
    pub lines: Vec<String>,
}

/// Runs one seed.
///
/// # Errors
/// The first property that does not hold.
pub fn run(seed: u64, options: &Options) -> Result<Summary, Box<Failure>> {
    let parameters = Parameters::draw(seed);
    let mut cluster = Cluster::new(seed, parameters.clone(), options.mutant, options);
    let result = cluster.run();
    cluster.finish_counts();
    let fingerprint = cluster.trace().fingerprint();
    let lines = cluster.trace().take_lines();
    match result {
        Ok(()) => Ok(Summary { seed, fingerprint, totals: Totals::of(&cluster), lines }),
        Err(violation) => {
            Err(Box::new(Failure { seed, options: options.clone(), parameters, violation, fingerprint, lines }))
        }
    }
}

/// Runs one seed twice: determinism itself is a property.
///
/// # Errors
/// The failure of the run, or the two fingerprints when they differ.
pub fn run_twice(seed: u64, options: &Options) -> Result<Summary, Twice> {
    let fingerprint = |result: &Result<Summary, Box<Failure>>| match result {
        Ok(summary) => summary.fingerprint,
        Err(failure) => failure.fingerprint,
    };
    let (first, second) = (run(seed, options), run(seed, options));
    let fingerprints = (fingerprint(&first), fingerprint(&second));
    if fingerprints.0 != fingerprints.1 || first.is_ok() != second.is_ok() {
        return Err(Twice::Differs { seed, fingerprints });
    }
    first.map_err(Twice::Failure)
}

/// Why running a seed twice did not go well.
#[derive(Clone, Debug)]
pub enum Twice {
    /// Both runs failed alike.
    Failure(Box<Failure>),
    /// The same seed did two things.
    Differs {
        /// The seed.
        seed: u64,
        /// Of the first run and of the second.
        fingerprints: (u64, u64),
    },
}

impl Totals {
    fn of(cluster: &Cluster) -> Totals {
        let counts = cluster.counts();
        Totals {
            runs: 1,
            virtual_time: cluster.now().0,
            happenings: counts.happenings,
            slots: cluster.chosen_slots(),
            messages: counts.messages,
            calls: counts.calls,
            answers: counts.answers,
            elections: counts.elections_won,
            crashes: counts.crashes,
            spiteful_crashes: counts.spiteful_crashes,
            cuts: counts.cuts,
            stalls: counts.stalls,
        }
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Totals) {
        let Totals {
            runs,
            virtual_time,
            happenings,
            slots,
            messages,
            calls,
            answers,
            elections,
            crashes,
            spiteful_crashes,
            cuts,
            stalls,
        } = other;
        self.runs += runs;
        self.virtual_time += *virtual_time;
        self.happenings += happenings;
        self.slots += slots;
        self.messages += messages;
        self.calls += calls;
        self.answers += answers;
        self.elections += elections;
        self.crashes += crashes;
        self.spiteful_crashes += spiteful_crashes;
        self.cuts += cuts;
        self.stalls += stalls;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals {
            runs: _,
            virtual_time,
            happenings,
            slots,
            messages,
            calls,
            answers,
            elections,
            crashes,
            spiteful_crashes,
            cuts,
            stalls,
        } = self;
        write!(
            f,
            "{virtual_time:.1?} of virtual time, {happenings} happenings, {messages} messages, {slots} slots, \
             {calls} calls ({answers} answered), {elections} elections won, {crashes} crashes ({spiteful_crashes} out of spite), \
             {cuts} cuts, {stalls} stalls"
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, options, parameters, violation, fingerprint, lines } = self;
        writeln!(f, "seed {seed}: {} is violated (fingerprint {fingerprint:016x})", violation.property)?;
        writeln!(f, "  {}", violation.evidence)?;
        writeln!(f, "drawn:\n{parameters}")?;
        if !lines.is_empty() {
            writeln!(f, "the last of what happened (seconds, whose, what):")?;
            lines.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        write!(f, "again: {}", Replay { seed: *seed, options })
    }
}

/// The command that runs a seed again.
struct Replay<'a> {
    seed: u64,
    options: &'a Options,
}

impl fmt::Display for Replay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Replay { seed, options } = self;
        let feature = if options.mutant.is_some() { " --features mutants" } else { "" };
        write!(f, "cargo run --release --package photon-sim{feature} -- run --seed {seed} --trace")?;
        if let Some(mutant) = &options.mutant {
            write!(f, " --mutant {mutant:?}")?;
        }
        options.without.iter().try_for_each(|property| write!(f, " --without {property}"))
    }
}

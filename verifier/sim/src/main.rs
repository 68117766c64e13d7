//! `photon-sim`: runs one seed, explores many, or shows that the bugs on purpose are found.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use photon_sim::{KNOWN, Mutant, Options, Property, Report, Swarm, explore, parse, run};

/// Exit code: a property does not hold, or a mutant was not found.
const FAILURE: u8 = 1;

#[derive(Parser)]
#[command(about = "A registry cluster in one thread, from one seed", version)]
#[command(after_help = "Exit codes: 0 all hold, 1 a property does not hold or a mutant survives, 2 usage")]
struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Runs one seed.
    Run {
        /// The seed.
        #[arg(long)]
        seed: u64,
        /// Shows the last of what happened, also when all is well.
        #[arg(long)]
        trace: bool,
        /// How many lines of it.
        #[arg(long, default_value_t = 200)]
        lines: usize,
        #[command(flatten)]
        judged: Judged,
    },
    /// Runs many seeds, up to the first that fails.
    Swarm {
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// How many.
        #[arg(long)]
        seeds: u64,
        /// Threads.
        #[arg(long, default_value_t = 1)]
        jobs: usize,
        /// Runs each seed twice and compares the fingerprints.
        #[arg(long)]
        doublecheck: bool,
        /// Goes on behind a failure, and counts them.
        #[arg(long)]
        keep_going: bool,
        #[command(flatten)]
        judged: Judged,
    },
    /// Runs every bug on purpose over many seeds, with all invariants and without `gate`.
    Mutants {
        /// How many seeds, from 0.
        #[arg(long, default_value_t = 500)]
        seeds: u64,
        /// This mutant only.
        #[arg(long)]
        only: Option<String>,
        /// Threads.
        #[arg(long, default_value_t = 1)]
        jobs: usize,
    },
}

#[derive(Args)]
struct Judged {
    /// A bug on purpose (a build with `--features mutants`).
    #[arg(long)]
    mutant: Option<String>,
    /// A property that is not judged; may be repeated.
    #[arg(long, value_parser = property)]
    without: Vec<Property>,
}

impl Judged {
    fn options(&self, lines_max: usize) -> anyhow::Result<Options> {
        let mutant = self.mutant.as_deref().map(parse).transpose()?;
        Ok(Options { mutant, without: self.without.iter().copied().collect(), lines_max })
    }
}

fn property(name: &str) -> Result<Property, String> {
    let found = Property::ALL.into_iter().find(|property| property.name() == name);
    if found == Some(Property::CoreAssertion) {
        return Err("a replica whose assertion has failed can not go on: it is always judged".into());
    }
    let names = || Property::ALL.map(Property::name).join(", ");
    found.ok_or_else(|| format!("no property is named {name:?}; there are {}", names()))
}

fn main() -> ExitCode {
    match execute(&Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("photon-sim: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn execute(command: &Subcommands) -> anyhow::Result<ExitCode> {
    match command {
        Subcommands::Run { seed, trace, lines, judged } => run_seed(*seed, &judged.options(*lines)?, *trace),
        Subcommands::Swarm { from, seeds, jobs, doublecheck, keep_going, judged } => swarm(&Swarm {
            from: *from,
            seeds: *seeds,
            jobs: *jobs,
            options: judged.options(0)?,
            doublecheck: *doublecheck,
            keep_going: *keep_going,
        }),
        Subcommands::Mutants { seeds, only, jobs } => mutants(*seeds, only.as_deref(), *jobs),
    }
}

fn run_seed(seed: u64, options: &Options, trace: bool) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match run(seed, options) {
        Ok(summary) => {
            if trace {
                for line in &summary.lines {
                    writeln!(out, "  {line}").context("writing the trace")?;
                }
            }
            let (fingerprint, totals) = (summary.fingerprint, summary.totals);
            writeln!(out, "seed {seed}: every property holds (fingerprint {fingerprint:016x})\n  {totals}")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            writeln!(out, "{failure}").context("writing the failure")?;
            Ok(ExitCode::from(FAILURE))
        }
    }
}

fn swarm(swarm: &Swarm) -> anyhow::Result<ExitCode> {
    let (report, took) = timed(swarm);
    let mut out = std::io::stdout().lock();
    let runs = report.totals.runs + report.failures();
    let rate = rate(runs, took);
    writeln!(out, "{runs} seeds from {} in {took:.1?}, {rate} a second: {}", swarm.from, report.totals)?;
    for seed in &report.differing {
        writeln!(out, "seed {seed} did two things: the simulator is not deterministic")?;
    }
    for (property, count) in &report.violated {
        writeln!(out, "{property}: violated in {count}")?;
    }
    if let Some(failure) = &report.first_failure {
        writeln!(out, "{failure}")?;
    }
    if report.is_clean() {
        writeln!(out, "every property holds in all of them")?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::from(FAILURE))
}

fn mutants(seeds: u64, only: Option<&str>, jobs: usize) -> anyhow::Result<ExitCode> {
    let chosen: Vec<Mutant> = match only {
        Some(name) => vec![parse(name)?],
        None => KNOWN.iter().map(|known| parse(known.name)).collect::<Result<_, _>>()?,
    };
    let mut out = std::io::stdout().lock();
    let mut has_survivor = false;
    writeln!(out, "{:26} {:>22}  {:>22}", format!("caught in {seeds} seeds"), "all invariants", "without gate")?;
    for mutant in chosen {
        let all = explore_mutant(mutant, seeds, jobs, BTreeSet::new());
        let without = explore_mutant(mutant, seeds, jobs, BTreeSet::from([Property::Gate]));
        has_survivor |= all.failures() == 0 || without.failures() == 0;
        let name = format!("{mutant:?}");
        writeln!(out, "{name:26} {:>22}  {:>22}  {}", caught(&all), caught(&without), by_whom(&without))?;
        out.flush()?;
    }
    Ok(if has_survivor { ExitCode::from(FAILURE) } else { ExitCode::SUCCESS })
}

fn explore_mutant(mutant: Mutant, seeds: u64, jobs: usize, without: BTreeSet<Property>) -> Report {
    let options = Options { mutant: Some(mutant), without, lines_max: 0 };
    explore(&Swarm { from: 0, seeds, jobs, options, doublecheck: false, keep_going: true }, &|_| ())
}

fn caught(report: &Report) -> String {
    match &report.first_failure {
        Some(first) => format!("{} times, first {}", report.failures(), first.seed),
        None => "never".into(),
    }
}

fn by_whom(report: &Report) -> String {
    let counts: Vec<String> = report.violated.iter().map(|(property, count)| format!("{property} {count}")).collect();
    counts.join(", ")
}

/// Runs it, and says on stderr now and then how far it is.
#[expect(clippy::disallowed_methods, reason = "how fast seeds go is asked of the real clock, beside the runs")]
fn timed(swarm: &Swarm) -> (Report, Duration) {
    const EVERY: Duration = Duration::from_secs(10);
    let started = Instant::now();
    let said = AtomicU64::new(0);
    let progress = |done: u64| {
        let passed = started.elapsed().as_secs() / EVERY.as_secs();
        if said.fetch_max(passed, Ordering::Relaxed) < passed {
            eprintln!("{done} of {} seeds, {} a second", swarm.seeds, rate(done, started.elapsed()));
        }
    };
    let report = explore(swarm, &progress);
    (report, started.elapsed())
}

fn rate(count: u64, took: Duration) -> u64 {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    count.saturating_mul(1_000) / millis
}

//! Many seeds, over several threads.
//!
//! Invariant: which seeds fail does not depend on how many threads there are: each run is one
//! thread's alone, and the failure that is shown is that of the lowest seed that failed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::invariants::Property;
use crate::run::{Failure, Options, Summary, Totals, Twice, run, run_twice};

/// Lines of the trace that a failure shows.
const FAILURE_LINES_MAX: usize = 80;

/// Which seeds, and how.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// The first seed.
    pub from: u64,
    /// How many.
    pub seeds: u64,
    /// Threads.
    pub jobs: usize,
    /// Each seed.
    pub options: Options,
    /// Run each seed twice and compare.
    pub doublecheck: bool,
    /// Go on behind a failure, to count them.
    pub keep_going: bool,
}

/// What became of them.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Of the runs in which all held.
    pub totals: Totals,
    /// How many runs each property failed in.
    pub violated: BTreeMap<Property, u64>,
    /// The lowest seed that failed, with its trace.
    pub first_failure: Option<Box<Failure>>,
    /// Seeds that did two things.
    pub differing: Vec<u64>,
}

impl Report {
    /// Runs that failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.violated.values().sum()
    }

    /// Whether every run was as it should be.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violated.is_empty() && self.differing.is_empty()
    }

    fn note(&mut self, result: Result<Summary, Twice>) {
        match result {
            Ok(summary) => self.totals.add(&summary.totals),
            Err(Twice::Failure(failure)) => {
                *self.violated.entry(failure.violation.property).or_default() += 1;
                if self.first_failure.as_ref().is_none_or(|first| failure.seed < first.seed) {
                    self.first_failure = Some(failure);
                }
            }
            Err(Twice::Differs { seed, fingerprints: _ }) => self.differing.push(seed),
        }
    }
}

/// Runs them all, or up to the first that fails. `progress` hears now and then how many are done.
pub fn explore(swarm: &Swarm, progress: &(dyn Fn(u64) + Sync)) -> Report {
    let next = AtomicU64::new(swarm.from);
    let end = swarm.from.saturating_add(swarm.seeds);
    let report = Mutex::new(Report::default());
    thread::scope(|scope| {
        for _ in 0..swarm.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if end <= seed {
                        return;
                    }
                    let result = run_one(seed, swarm);
                    if result.is_err() && !swarm.keep_going {
                        next.store(end, Ordering::Relaxed);
                    }
                    report.lock().expect("no thread panics with it").note(result);
                    progress(seed - swarm.from + 1);
                }
            });
        }
    });
    let mut report = report.into_inner().expect("no thread panicked with it");
    report.differing.sort_unstable();
    if let Some(failure) = &mut report.first_failure {
        show_lines(failure);
    }
    report
}

fn run_one(seed: u64, swarm: &Swarm) -> Result<Summary, Twice> {
    if swarm.doublecheck {
        return run_twice(seed, &swarm.options);
    }
    run(seed, &swarm.options).map_err(Twice::Failure)
}

/// Runs a seed that failed once more, with its trace.
fn show_lines(failure: &mut Box<Failure>) {
    let options = Options { lines_max: FAILURE_LINES_MAX, ..failure.options.clone() };
    match run(failure.seed, &options) {
        Err(again) if again.violation == failure.violation => *failure = again,
        Ok(_) | Err(_) => failure.lines.push("the same seed did something else the second time".into()),
    }
}

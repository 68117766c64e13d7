//! `photon verify`: does the output say what the input says? And with `--repair`: make it so.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use clap::Args;
use indicatif::ProgressBar;
use photon_format::config::Config;
use photon_types::Incarnation;
use photon_verifier::{Endpoints, Options, Progress, Report};

use crate::dev::{LedgerFormat, progress_bar};
use crate::exit::{self, Exit};
use crate::roles::{load, runtime};

/// Options of `photon verify`.
#[derive(Args, Clone, Debug)]
pub struct VerifyArgs {
    /// The config file of the whole system.
    #[arg(long, value_name = "FILE", env = "PHOTON_CONFIG")]
    pub config: PathBuf,
    /// Repair what a crash lost: fence joiners that are dead, delete claims whose line is missing,
    /// give the clicks back to a dispatcher. Without it nothing is changed.
    #[arg(long)]
    pub repair: bool,
    /// A joiner's incarnation that is known to be dead although its lock can not be taken: fenced
    /// with --repair. May be given several times.
    #[arg(long, value_name = "INCARNATION")]
    pub dead: Vec<Incarnation>,
    /// The form of the ledger.
    #[arg(long, default_value = "text", value_name = "FORM")]
    pub format: LedgerFormat,
}

/// Runs the command.
pub fn run(args: &VerifyArgs) -> anyhow::Result<Exit> {
    if !args.dead.is_empty() && !args.repair {
        return Err(exit::error(Exit::Usage, "--dead fences an incarnation: it goes with --repair"));
    }
    let config = load(&args.config)?;
    let endpoints = Endpoints::of(&config).map_err(|error| exit::error(exit::of_code(error.exit_code()), error))?;
    let options = Options { repair: args.repair, dead: args.dead.clone(), ..Options::look(endpoints) };
    let report = runtime()?.block_on(run_with_progress(&config, options))?;
    args.format.print(&report);
    Ok(exit::of_code(report.exit_code()))
}

/// One run of the verifier, with a bar for each of its steps where a person waits.
pub async fn run_with_progress(config: &Config, options: Options) -> anyhow::Result<Report> {
    let bars = Arc::new(Bars::default());
    let shown = bars.clone();
    let report = photon_verifier::run(config, options, move |progress| shown.show(progress)).await;
    bars.clear();
    report.map_err(|error| exit::error(exit::of_code(error.exit_code()), error))
}

/// The bar of the step that runs.
#[derive(Default)]
struct Bars {
    now: Mutex<Option<(&'static str, ProgressBar)>>,
}

impl Bars {
    fn show(&self, progress: Progress) {
        let (what, position, end) = match progress {
            Progress::Input { bytes, bytes_end } => ("reading the input", bytes, bytes_end),
            Progress::Output { lines } => ("reading the output", lines, lines),
            Progress::Registry { keys, keys_end } => ("asking the registry", keys, keys_end),
            Progress::Repair { clicks, clicks_end } => ("repairing", clicks, clicks_end),
        };
        let mut now = self.now.lock().expect("nobody panics while holding it");
        match now.as_ref() {
            Some((shown, bar)) if *shown == what => {
                bar.set_length(end);
                bar.set_position(position);
            }
            Some(_) | None => {
                if let Some((_, bar)) = now.replace((what, progress_bar(end, what))) {
                    bar.finish_and_clear();
                }
            }
        }
    }

    fn clear(&self) {
        if let Some((_, bar)) = self.now.lock().expect("nobody panics while holding it").take() {
            bar.finish_and_clear();
        }
    }
}

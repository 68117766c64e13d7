//! `photon dev`: the whole system in one process from one config file.
//!
//! With `--once` the sources are listed once, for all datacenters and the verifier alike; when
//! every record of them has its end, the verifier judges the result and the ledger is printed.
//! Without, it follows the files until it is asked to end.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use photon_format::config::Config;
use photon_format::output::list_incarnations;
use photon_format::source::SourceList;
use photon_verifier::{Endpoints, Options as VerifyOptions, Report};

use crate::exit::{self, Exit};
use crate::local::{LocalSystem, Options, Pipeline};
use crate::roles::{asked_to_end, load, runtime};
use crate::start_block::StartBlock;

/// Runs of the verifier that repair, at most.
const REPAIRS_MAX: usize = 5;

/// Options of `photon dev`.
#[derive(Args, Clone, Debug)]
pub struct DevArgs {
    /// The config file of the whole system.
    #[arg(long, value_name = "FILE", env = "PHOTON_CONFIG")]
    pub config: PathBuf,
    /// A log file or directory, in place of the path of the only input.
    #[arg(long, value_name = "PATH")]
    pub input: Option<PathBuf>,
    /// Where files are kept, in place of `cluster.data-dir`.
    #[arg(long, value_name = "DIR", env = "PHOTON_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// End when the input, as it is now, is joined; then verify, and print the ledger.
    #[arg(long)]
    pub once: bool,
    /// The form of the ledger.
    #[arg(long, default_value = "text", value_name = "FORM")]
    pub format: LedgerFormat,
    /// A test aid: seeded random delays in every lane and call, to shuffle the schedule.
    #[arg(long, value_name = "SEED", hide = true)]
    pub chaos_delays: Option<u64>,
}

/// The form of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LedgerFormat {
    /// For people.
    Text,
    /// One line, for machines.
    Json,
}

impl LedgerFormat {
    /// Prints a report on standard output.
    pub fn print(self, report: &Report) {
        match self {
            LedgerFormat::Text => print!("{report}"),
            LedgerFormat::Json => println!("{}", report.to_json()),
        }
    }
}

/// Runs the command.
pub fn run(args: &DevArgs) -> anyhow::Result<Exit> {
    let mut config = load(&args.config)?;
    if let Some(input) = &args.input {
        config = config.with_input(input)?;
    }
    if let Some(data_dir) = &args.data_dir {
        config.cluster.data_dir.clone_from(data_dir);
    }
    runtime()?.block_on(run_config(Arc::new(config), args))
}

async fn run_config(config: Arc<Config>, args: &DevArgs) -> anyhow::Result<Exit> {
    let sources = if args.once { Some(list_sources(&config)?) } else { None };
    let options = Options { free_ports: args.once, sources: sources.clone(), chaos_delays: args.chaos_delays };
    let may_repair = has_earlier_outputs(&config)?;
    let system = LocalSystem::start(config, options).await?;
    print_start_block(&system, sources.as_ref());
    match sources {
        Some(sources) => once(system, sources, may_repair, args.format).await,
        None => follow(system).await,
    }
}

/// The sources as they are now. All datacenters read the same bytes, so the first one's paths do.
fn list_sources(config: &Config) -> anyhow::Result<SourceList> {
    let datacenter = config.datacenters.first().expect("checked when loaded: at least one datacenter");
    let sources = SourceList::list(config, datacenter)?;
    if sources.files().is_empty() {
        return Err(exit::error(Exit::Failure, "the inputs hold no files: nothing to join"));
    }
    Ok(sources)
}

fn print_start_block(system: &LocalSystem, sources: Option<&SourceList>) {
    let config = &system.config;
    let datacenters: Vec<_> = config.datacenters.iter().map(|datacenter| datacenter.name.as_str()).collect();
    let mut block = StartBlock::new("dev")
        .row("config", config.file.display())
        .row("join", &config.cluster.name)
        .row("registry", system.registry.join(", "))
        .row("datacenters", datacenters.join(", "))
        .row("data", config.cluster.data_dir.display())
        .row("mode", "INSECURE: no TLS, no authentication; loopback only");
    if let Some(sources) = sources {
        block = block.row("input", format!("{} files, {} bytes", sources.files().len(), sources.bytes()));
    }
    block.print();
}

/// Joiners ran here before; if they were killed, their outputs are not sealed.
fn has_earlier_outputs(config: &Config) -> anyhow::Result<bool> {
    for datacenter in &config.datacenters {
        if !list_incarnations(&config.output_dir(&datacenter.name))?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn once(
    mut system: LocalSystem,
    sources: SourceList,
    may_repair: bool,
    format: LedgerFormat,
) -> anyhow::Result<Exit> {
    {
        let drained = async {
            drain(&system).await;
            if may_repair { repair(&system, &sources).await } else { Ok(()) }
        };
        tokio::select! {
            repaired = drained => repaired?,
            error = system.failed() => return Err(error),
            asked = asked_to_end() => {
                return Err(exit::error(Exit::Failure, format!("{} before the input was joined", asked?)));
            }
        }
    }
    system.stop_pipelines().await?;
    let report = verify(&system, sources).await?;
    system.stop_registry().await?;
    format.print(&report);
    Ok(exit::of_code(report.exit_code()))
}

/// Waits until every datacenter has brought every record to its end.
async fn drain(system: &LocalSystem) {
    let bar = spinner("records read");
    let show = async {
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        loop {
            tick.tick().await;
            bar.set_position(system.pipelines.iter().map(|pipeline| pipeline.dispatcher.ledger().total().read).sum());
        }
    };
    let all = async {
        for pipeline in &system.pipelines {
            pipeline.dispatcher.drained().await;
        }
    };
    tokio::select! {
        () = all => (),
        () = show => (),
    }
    bar.finish_and_clear();
}

/// Repairs what a killed run has lost, while there are dispatchers to take it back.
async fn repair(system: &LocalSystem, sources: &SourceList) -> anyhow::Result<()> {
    for _ in 0..REPAIRS_MAX {
        let dispatcher = |pipeline: &Pipeline| (pipeline.datacenter.clone(), pipeline.dispatcher.address.to_string());
        let dispatchers = system.pipelines.iter().map(dispatcher).collect();
        let endpoints = Endpoints { registry: system.registry.clone(), dispatchers };
        let options = VerifyOptions { repair: true, sources: Some(sources.clone()), ..VerifyOptions::look(endpoints) };
        let report = crate::verify::run_with_progress(&system.config, options).await?;
        if !report.repaired.is_change() {
            return Ok(());
        }
        drain(system).await;
    }
    // What is left shows in the ledger.
    Ok(())
}

async fn verify(system: &LocalSystem, sources: SourceList) -> anyhow::Result<Report> {
    let endpoints = Endpoints { registry: system.registry.clone(), dispatchers: Vec::new() };
    let options = VerifyOptions { sources: Some(sources), ..VerifyOptions::look(endpoints) };
    crate::verify::run_with_progress(&system.config, options).await
}

async fn follow(mut system: LocalSystem) -> anyhow::Result<Exit> {
    eprintln!("ready");
    eprintln!("follows the files; Ctrl-C ends it");
    tokio::select! {
        error = system.failed() => return Err(error),
        asked = asked_to_end() => tracing::info!(signal = asked?, "ending"),
    }
    system.stop_pipelines().await?;
    system.stop_registry().await?;
    Ok(Exit::Ok)
}

/// A bar on standard error, where a person looks at it.
pub fn progress_bar(end: u64, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent}% {elapsed}").expect("a fixed template");
    ProgressBar::new(end).with_style(style).with_message(what)
}

/// A count on standard error, where a person looks at it and nobody knows the end.
fn spinner(what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {pos} {msg} {elapsed}").expect("a fixed template");
    ProgressBar::new_spinner().with_style(style).with_message(what)
}

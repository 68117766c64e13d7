//! The `photon` binary: every role, the demo, the verifier and the tools.
//!
//! Not here: what the commands do. This file names them, sets up traces, and turns the way they
//! end into an exit code.

mod admin;
mod bench;
mod demo;
mod dev;
mod exit;
mod generate;
mod inspect;
mod local;
mod processes;
mod roles;
mod start_block;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use rustix::process::{Resource, getrlimit, setrlimit};
use tracing_subscriber::EnvFilter;

use crate::exit::Exit;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Joins two continuous event streams exactly once, over several datacenters.
#[derive(Parser)]
#[command(name = "photon", version, after_help = exit::HELP, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// What to trace, on standard error: error, warn, info, debug, trace, or `crate=level,...`.
    #[arg(long, global = true, env = "PHOTON_LOG", default_value = "warn", value_name = "FILTER")]
    log: String,
    /// The form of traces.
    #[arg(long, global = true, env = "PHOTON_LOG_FORMAT", default_value = "text", value_name = "FORM")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// See it work: two datacenters join generated logs, one is killed, the verifier proves the result.
    #[command(after_help = exit::HELP)]
    Demo(demo::DemoArgs),
    /// Run the whole system in one process, from one config file.
    #[command(after_help = exit::HELP)]
    Dev(dev::DevArgs),
    /// Run one node of the IdRegistry.
    #[command(after_help = exit::HELP)]
    Registry(roles::RegistryArgs),
    /// Run a datacenter's event store, with the event reader.
    #[command(after_help = exit::HELP)]
    EventStore(roles::DatacenterArgs),
    /// Run a datacenter's joiner.
    #[command(after_help = exit::HELP)]
    Joiner(roles::DatacenterArgs),
    /// Run a datacenter's dispatcher.
    #[command(after_help = exit::HELP)]
    Dispatcher(roles::DatacenterArgs),
    /// Compare the output with the input and the registry, and repair what a crash lost.
    #[command(after_help = exit::HELP)]
    Verify(verify::VerifyArgs),
    /// Show a dispatcher's files: ends with dead letters, clicks that wait, cursor.
    #[command(after_help = exit::HELP)]
    Inspect(inspect::InspectArgs),
    /// Ask a running registry.
    #[command(after_help = exit::HELP)]
    Admin(admin::AdminArgs),
    /// Measure.
    #[command(after_help = exit::HELP)]
    Bench(bench::BenchArgs),
    /// Write logs of clicks and queries, with the faults of real ones and an oracle.
    #[command(after_help = exit::HELP)]
    Generate(generate::GenerateArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(message) = set_up_traces(&cli.log, cli.log_format) {
        eprintln!("error: {message}");
        return Exit::Usage.into();
    }
    raise_open_files();
    match run(cli.command) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            exit::of(&error).into()
        }
    }
}

fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Dev(args) => dev::run(&args),
        Command::Registry(args) => roles::registry(&args),
        Command::EventStore(args) => roles::event_store(&args),
        Command::Joiner(args) => roles::joiner(&args),
        Command::Dispatcher(args) => roles::dispatcher(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Admin(args) => roles::runtime()?.block_on(admin::run(args)),
        Command::Bench(args) => roles::runtime()?.block_on(bench::run(args)),
        Command::Generate(args) => generate::run(&args),
    }
}

/// As many open files as the system allows: a log of thousands of files, a table and a thousand
/// connections need more than the usual 1,024. Where it does not allow more, things go on with what
/// there is.
fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || limit.maximum.is_none() {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "the limit of open files could not be raised");
        }
    }
}

fn set_up_traces(filter: &str, format: LogFormat) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("--log {filter:?}: {error}"))?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.with_ansi(false).init(),
        LogFormat::Json => subscriber.json().init(),
    }
    Ok(())
}

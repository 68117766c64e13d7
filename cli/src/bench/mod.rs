//! `photon bench registry`: how many ids per second a registry takes, measured honestly.
//!
//! Invariant: the number is made of answers that were `Inserted` and came within the measured
//! window, by callers that wait for each answer before they ask again. Anything else is an error,
//! counted and shown, and the exit code says so.
//!
//! Not here: peers to compare with, and what the numbers should be.

mod cluster;
mod direct;
mod load;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use photon_client::{Client, ClientConfig, ClientError, NodeStatus, Timings};
use tokio::signal::unix::{SignalKind, signal};

use crate::bench::cluster::{OwnCluster, lies_in_memory};
use crate::bench::direct::Direct;
use crate::bench::load::{Load, Way};
use crate::bench::report::Report;
use crate::exit::{self, Exit};

/// The key rules of ids that are made here, when the cluster has none yet.
const KEY_RULES: &str = "bench.id = run and counter\nbench.time = counter\n";

/// Options of `photon bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum BenchCommand {
    /// Insert new ids as fast as the registry takes them.
    Registry(BenchRegistryArgs),
}

/// Options of `photon bench registry`.
#[derive(Args, Clone, Debug)]
pub struct BenchRegistryArgs {
    /// Callers, each of which waits for its answer before it asks again.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    callers: u32,
    /// Ids in each call.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_000))]
    batch: u32,
    /// How long to measure, after the warm-up.
    #[arg(long, default_value_t = 8, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How long to run before measuring.
    #[arg(long, default_value_t = 2, value_name = "S", value_parser = clap::value_parser!(u64).range(0..=3_600))]
    warm_up: u64,
    /// Send the calls of all callers through the coalescing client, instead of one request each.
    #[arg(long)]
    coalesce: bool,
    /// Measure this registry instead of three replicas started for it: client addresses,
    /// `host:port,host:port`. The ids inserted stay in it.
    #[arg(long, value_delimiter = ',', value_name = "ADDRESSES")]
    endpoints: Vec<String>,
    /// Where the replicas started for the measurement keep their data, removed afterwards.
    /// [default: the directory for temporary files]
    #[arg(long, value_name = "DIR", conflicts_with = "endpoints")]
    data_dir: Option<PathBuf>,
    /// Print one JSON object to standard output.
    #[arg(long)]
    json: bool,
}

/// Runs `photon bench`.
///
/// # Errors
/// When there is nothing to measure. Failed calls are no error here: they are in the report, and in
/// the exit code.
pub async fn run(args: BenchArgs) -> anyhow::Result<Exit> {
    match args.command {
        BenchCommand::Registry(args) => run_registry(args).await,
    }
}

async fn run_registry(args: BenchRegistryArgs) -> anyhow::Result<Exit> {
    let mut interrupted = signal(SignalKind::interrupt()).context("SIGINT can not be watched")?;
    let mut terminated = signal(SignalKind::terminate()).context("SIGTERM can not be watched")?;
    // Whichever way this ends, the replicas and their directory go with `own`.
    let mut own = None;
    let report = tokio::select! {
        report = measure(&args, &mut own) => report,
        _ = interrupted.recv() => Err(exit::error(Exit::Failure, "interrupted")),
        _ = terminated.recv() => Err(exit::error(Exit::Failure, "terminated")),
    };
    if let Some(own) = own {
        own.stop().await;
    }
    let report = report?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(if report.is_clean() { Exit::Ok } else { Exit::Failure })
}

async fn measure(args: &BenchRegistryArgs, own: &mut Option<OwnCluster>) -> anyhow::Result<Report> {
    let mut in_memory = false;
    let endpoints = if args.endpoints.is_empty() {
        let parent = args.data_dir.clone().unwrap_or_else(std::env::temp_dir);
        eprintln!("starting {} replicas below {}", cluster::REPLICAS, parent.display());
        in_memory = lies_in_memory(&parent);
        let own = own.insert(OwnCluster::start(&parent)?);
        own.ready().await?;
        own.endpoints()
    } else {
        args.endpoints.clone()
    };
    let key_rules = kept_key_rules(&endpoints).await?.unwrap_or_else(|| KEY_RULES.to_owned());
    let client = Client::connect(ClientConfig::new(endpoints.clone(), key_rules.clone())).await;
    let client = client.map_err(|error| match error {
        ClientError::Unreachable { .. } => exit::error(Exit::Unreachable, error),
        ClientError::Unknown { .. }
        | ClientError::Overloaded { .. }
        | ClientError::NoAnswer { .. }
        | ClientError::KeyRulesDiffer { .. }
        | ClientError::WrongCluster { .. }
        | ClientError::Refused { .. }
        | ClientError::Config { .. }
        | ClientError::Stopped => error.into(),
    })?;
    let way = if args.coalesce {
        Way::Coalesced(client.clone())
    } else {
        Way::Direct(Box::new(Direct::connect(endpoints.clone(), client.cluster_id(), &key_rules, args.callers).await?))
    };
    eprintln!("warming up for {} s, then measuring for {} s", args.warm_up, args.seconds);
    let load = Load {
        callers: args.callers,
        batch: args.batch,
        warm_up: Duration::from_secs(args.warm_up),
        window: Duration::from_secs(args.seconds),
    };
    let measured = load::run(&load, way, &endpoints).await?;
    if let Some(own) = own {
        own.check_alive()?;
    }
    Ok(Report::new(&load, args.coalesce, in_memory, &measured))
}

/// The key rules that the cluster has been given, if any: a measurement must not be the first to
/// state rules to a cluster that has its own.
async fn kept_key_rules(endpoints: &[String]) -> anyhow::Result<Option<String>> {
    let statuses = photon_client::statuses(endpoints, &Timings::default()).await;
    let mut causes = Vec::new();
    let mut answered: Vec<NodeStatus> = Vec::new();
    for (_, status) in statuses {
        match status {
            Ok(status) => answered.push(status),
            Err(error) => causes.push(error.to_string()),
        }
    }
    if answered.is_empty() {
        return Err(exit::error(Exit::Unreachable, format!("no registry node answered: {}", causes.join("; "))));
    }
    // Nodes that lag know none yet.
    Ok(answered.into_iter().map(|status| status.key_rules).find(|rules| !rules.is_empty()))
}

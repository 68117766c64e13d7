//! The roles as processes of their own: `photon registry`, `event-store`, `joiner`, `dispatcher`.
//!
//! Each prints its start block, then `ready` when it serves, and runs until it is asked to end
//! (SIGTERM, SIGINT) or can not go on. All on standard error; standard output stays empty.

mod pipeline;
mod registry;

use std::path::{Path, PathBuf};

use clap::Args;
use photon_format::config::Config;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{self, Exit};
use crate::start_block::StartBlock;

pub use pipeline::{dispatcher, event_store, joiner};
pub use registry::{registry, registry_error, server_config, shut_down};

/// Options of a registry node.
#[derive(Args, Clone, Debug)]
pub struct RegistryArgs {
    /// The config file of the whole system.
    #[arg(long, value_name = "FILE", env = "PHOTON_CONFIG")]
    pub config: PathBuf,
    /// Which `[[registry.node]]` of it this process is.
    #[arg(long, value_name = "ID", env = "PHOTON_NODE")]
    pub node: u32,
    /// Where the node's files lie, instead of `<cluster.data-dir>/registry/<node>`.
    #[arg(long, value_name = "DIR", env = "PHOTON_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
}

/// Options of the roles of a datacenter.
#[derive(Args, Clone, Debug)]
pub struct DatacenterArgs {
    /// The config file of the whole system.
    #[arg(long, value_name = "FILE", env = "PHOTON_CONFIG")]
    pub config: PathBuf,
    /// Which `[[datacenter]]` of it this process belongs to.
    #[arg(long, value_name = "NAME", env = "PHOTON_DATACENTER")]
    pub datacenter: String,
}

/// The config file, or the error that says what is wrong with it.
pub fn load(path: &Path) -> anyhow::Result<Config> {
    Ok(Config::load(path)?)
}

/// A runtime for a command that serves or waits for the network.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    use anyhow::Context;
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the system gives no threads")
}

/// Ends when the process is asked to.
pub async fn asked_to_end() -> anyhow::Result<&'static str> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}

/// Says that the process serves: the line that scripts wait for.
fn ready() {
    eprintln!("ready");
}

fn start_block(role: &str, config: &Config) -> StartBlock {
    let block = StartBlock::new(role).row("config", config.file.display()).row("join", &config.cluster.name);
    block.row("mode", "INSECURE: no TLS, no authentication; loopback or a trusted network only")
}

/// What the process ends with when a role of the pipeline could not go on.
fn pipeline_error(error: &photon_pipeline::PipelineError) -> anyhow::Error {
    exit::error(exit::of_pipeline(error), error)
}

/// Prints what is in force, one `key = value` per line, after the start block.
fn print_effective(config: &Config) {
    for (key, value) in config.effective() {
        eprintln!("  {key} = {value}");
    }
}

const OK: anyhow::Result<Exit> = Ok(Exit::Ok);

//! Three replicas as processes of their own, for one measurement.
//!
//! Invariant: they and their directory are gone when the measurement ends, however it ends.

use std::fmt::Write;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use photon_client::{NodeStatus, Timings};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// How many replicas are started.
pub const REPLICAS: usize = 3;

/// How long they may take until one leads and all are connected.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How often they are asked until then.
const READY_POLL: Duration = Duration::from_millis(50);
/// How much of a failed replica's trace is shown.
const TRACE_LINES_SHOWN: usize = 10;
/// `statfs` type of tmpfs, from Linux's `magic.h`.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// What a registry needs no join for, but the one config file must have.
const JOIN: &str = r#"
[join]

[[join.input]]
name = "none"
path = "none"
framing = "ndjson"

[[join.stream]]
name = "queries"
role = "primary"
input = "none"
select = { kind = "query" }
id = "id"

[[join.stream]]
name = "clicks"
role = "foreign"
input = "none"
select = { kind = "click" }
id = "id"
reference = "query"
time = { field = "time", forms = ["epoch-us"] }

[[datacenter]]
name = "bench"
"#;

/// The replicas.
pub struct OwnCluster {
    replicas: Vec<Replica>,
    directory: TempDir,
}

struct Replica {
    process: Child,
    client_address: String,
    trace: PathBuf,
}

impl OwnCluster {
    /// Starts the replicas, in a new directory below `parent`.
    pub fn start(parent: &Path) -> anyhow::Result<OwnCluster> {
        let directory = tempfile::Builder::new().prefix("photon-bench-").tempdir_in(parent);
        let directory = directory.with_context(|| format!("no directory can be made below {}", parent.display()))?;
        let addresses = free_addresses(2 * REPLICAS)?;
        let (peers, clients) = addresses.split_at(REPLICAS);
        let config = directory.path().join("photon.toml");
        let text = config_text(directory.path(), peers, clients);
        fs::write(&config, text).with_context(|| format!("{} can not be written", config.display()))?;
        let program = std::env::current_exe().context("the path of this program is not known")?;
        let mut cluster = OwnCluster { replicas: Vec::new(), directory };
        for (node, client_address) in (1..).zip(clients) {
            let trace = cluster.directory.path().join(format!("node-{node}.trace"));
            let file = File::create(&trace).with_context(|| format!("{} can not be made", trace.display()))?;
            let process = Command::new(&program)
                .args(["registry", "--node", &format!("{node}"), "--config"])
                .arg(&config)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(file)
                .kill_on_drop(true)
                .spawn()
                .with_context(|| format!("{} can not be started", program.display()))?;
            cluster.replicas.push(Replica { process, client_address: client_address.clone(), trace });
        }
        Ok(cluster)
    }

    /// Where clients reach them.
    pub fn endpoints(&self) -> Vec<String> {
        self.replicas.iter().map(|replica| replica.client_address.clone()).collect()
    }

    /// Waits until one leads and is connected to all others.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        let endpoints = self.endpoints();
        loop {
            self.check_alive()?;
            let statuses = photon_client::statuses(&endpoints, &Timings::default()).await;
            let leads = |status: &NodeStatus| {
                let connected = status.members.iter().filter(|member| member.connected || member.node == status.node);
                status.role == "leader" && connected.count() == REPLICAS
            };
            if statuses.iter().any(|(_, status)| status.as_ref().is_ok_and(leads)) {
                return Ok(());
            }
            if deadline <= Instant::now() {
                let says = |(endpoint, status): &(String, Result<NodeStatus, _>)| match status {
                    Ok(status) => format!("{endpoint} is {}", status.role),
                    Err(error) => format!("{error}"),
                };
                let says: Vec<_> = statuses.iter().map(says).collect();
                bail!("no leader with all replicas within {READY_WITHIN:?}: {}", says.join("; "));
            }
            // Other processes: there is no event to wait for.
            tokio::time::sleep(READY_POLL).await;
        }
    }

    /// Says so when a replica has ended, with the end of its trace.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        for (node, replica) in (1..).zip(&mut self.replicas) {
            if let Some(status) = replica.process.try_wait().with_context(|| format!("replica {node} is lost"))? {
                let trace = fs::read_to_string(&replica.trace).unwrap_or_default();
                let lines: Vec<_> = trace.lines().collect();
                let end = lines[lines.len().saturating_sub(TRACE_LINES_SHOWN)..].join("\n  ");
                bail!("replica {node} ended with {status}:\n  {end}");
            }
        }
        Ok(())
    }

    /// Ends them. Their data goes with the directory, so nothing is lost by not asking them.
    pub async fn stop(mut self) {
        for replica in &mut self.replicas {
            // Fails only for one that has ended by itself.
            let _ = replica.process.kill().await;
        }
    }
}

fn config_text(directory: &Path, peers: &[String], clients: &[String]) -> String {
    let data_dir = toml::Value::String(directory.join("data").display().to_string());
    let mut text = format!("[cluster]\nname = \"bench\"\ndata-dir = {data_dir}\n");
    for (node, (peer, client)) in (1..).zip(peers.iter().zip(clients)) {
        write!(text, "\n[[registry.node]]\nid = {node}\npeer = \"{peer}\"\nclient = \"{client}\"\n")
            .expect("a string takes all text");
    }
    text + JOIN
}

/// Addresses that were free a moment ago, all different.
fn free_addresses(count: usize) -> anyhow::Result<Vec<String>> {
    let listeners: Result<Vec<_>, _> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let listeners = listeners.context("no free port on 127.0.0.1")?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect()
}

/// On a file system in memory an fsync writes nothing.
pub fn lies_in_memory(directory: &Path) -> bool {
    rustix::fs::statfs(directory).is_ok_and(|found| found.f_type == TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_is_one_that_photon_reads() {
        let address = |port: u16| format!("127.0.0.1:{port}");
        let peers: Vec<_> = (1..=3).map(address).collect();
        let clients: Vec<_> = (4..=6).map(address).collect();
        let text = config_text(Path::new("/a \"quoted\" directory"), &peers, &clients);
        let config = photon_format::config::Config::parse(&text, Path::new("bench.toml")).unwrap();
        assert_eq!(config.registry_endpoints().unwrap(), clients);
        assert_eq!(config.cluster.data_dir, Path::new("/a \"quoted\" directory/data"));
    }

    #[test]
    fn free_addresses_differ() {
        let mut addresses = free_addresses(6).unwrap();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), 6);
    }
}

//! `photon demo`: generated click logs, three registries and two datacenters as real processes;
//! one datacenter is killed half-way and brought back; the verifier proves that every click is in
//! the output exactly once.
//!
//! Not here: anything the processes do. They are the roles of this binary, as an operator runs them.

mod config;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use photon_format::config::Config;
use photon_verifier::{Endpoints, Options, Report};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use self::config::{DATACENTERS, NODES, ROLES};
use crate::exit::{self, Exit};
use crate::generate::{self, GenerateArgs, Oracle};
use crate::processes::Started;
use crate::roles::{asked_to_end, runtime};
use crate::verify;

/// How often the dispatchers are asked how far they are. Other processes: there is no event to
/// wait for.
const POLL: Duration = Duration::from_millis(50);

/// A guard against a demo that hangs.
const STEP_WITHIN: Duration = Duration::from_secs(600);

/// Runs of the verifier, at most.
const REPAIRS_MAX: usize = 5;

/// Options of `photon demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Where logs and all files of the processes are kept. Must not exist, or be empty.
    #[arg(long, value_name = "DIR", default_value = "photon-demo")]
    dir: PathBuf,
    /// How many clicks are generated.
    #[arg(long, default_value_t = 50_000)]
    clicks: u64,
    /// The same seed gives the same logs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the command.
pub fn run(args: &DemoArgs) -> anyhow::Result<Exit> {
    let is_used = fs::read_dir(&args.dir).is_ok_and(|mut entries| entries.next().is_some());
    if is_used {
        let message = format!("{} is not empty: remove it, or name another --dir", args.dir.display());
        return Err(exit::error(Exit::DataDirectory, message));
    }
    let began = Instant::now();
    let say = |text: &str| println!("{:6.1} s  {text}", began.elapsed().as_secs_f64());
    runtime()?.block_on(async {
        tokio::select! {
            result = play(args, &say) => result,
            asked = asked_to_end() => Err(exit::error(Exit::Failure, format!("{} before the end", asked?))),
        }
    })
}

async fn play(args: &DemoArgs, say: &dyn Fn(&str)) -> anyhow::Result<Exit> {
    let oracle = generate_logs(args, say)?;
    let mut demo = Demo::new(&args.dir, &args.dir.join("input/logs"))?;

    let registries: Vec<_> = NODES.iter().map(|node| format!("registry-{node}")).collect();
    demo.start(&registries).await?;
    say("three registry nodes run; they agree on which datacenter may write a click");
    for datacenter in DATACENTERS {
        demo.start_datacenter(datacenter).await?;
    }
    say("datacenters east and west run; both join all clicks");

    let half = (oracle.keys + oracle.resent) / 2;
    demo.wait_until("west", |west| half <= west.read).await?;
    let at = demo.status("west").await?.read;
    demo.kill_datacenter("west").await;
    say(&format!("west is killed (kill -9) after it has read {at} clicks; east carries on alone"));

    demo.wait_until_drained("east").await?;
    say("east has brought every click to its end");
    demo.start_datacenter("west").await?;
    demo.wait_until_drained("west").await?;
    say("west is back; it has skipped what is done and joined what is left");

    let report = demo.repair(say).await?;
    demo.stop().await?;
    print(&args.dir, &report, &oracle);
    check(&report, &oracle)
}

fn generate_logs(args: &DemoArgs, say: &dyn Fn(&str)) -> anyhow::Result<Oracle> {
    let generate = GenerateArgs {
        out: args.dir.join("input"),
        clicks: args.clicks,
        queries_per_click: 2,
        files: 4,
        seed: args.seed,
    };
    let oracle = generate::generate(&generate)?;
    say(&format!(
        "generated {} clicks and {} queries: {} clicks have no query, {} name none, {} are sent twice",
        oracle.keys, oracle.queries, oracle.unjoinable, oracle.dead_lettered, oracle.resent
    ));
    Ok(oracle)
}

/// The processes of the demo.
struct Demo {
    dir: PathBuf,
    config: Config,
    status_pages: BTreeMap<&'static str, String>,
    running: BTreeMap<String, Started>,
}

/// How far a dispatcher is.
struct DispatcherStatus {
    read: u64,
    passes: u64,
    open: u64,
}

impl Demo {
    fn new(dir: &Path, logs: &Path) -> anyhow::Result<Demo> {
        let (text, status_pages) = config::text(dir, logs)?;
        let file = dir.join("photon.toml");
        fs::write(&file, text).with_context(|| format!("{} can not be written", file.display()))?;
        let traces = dir.join("traces");
        fs::create_dir(&traces).with_context(|| format!("{} can not be made", traces.display()))?;
        Ok(Demo {
            dir: dir.to_owned(),
            config: Config::load(&file)?,
            status_pages: DATACENTERS.into_iter().zip(status_pages).collect(),
            running: BTreeMap::new(),
        })
    }

    async fn start(&mut self, names: &[String]) -> anyhow::Result<()> {
        for name in names {
            let config = self.config.file.display().to_string();
            let (first, second) = name.split_once('-').expect("a name has a dash");
            let args = match first {
                "registry" => [first, "--config", &config, "--node", second],
                datacenter => [second, "--config", &config, "--datacenter", datacenter],
            };
            let trace = self.dir.join("traces").join(format!("{name}.txt"));
            let started = Started::start(name, &args.map(str::to_owned), &trace)?;
            self.running.insert(name.clone(), started);
        }
        for name in names {
            self.running.get_mut(name).expect("just started").ready().await?;
        }
        Ok(())
    }

    async fn start_datacenter(&mut self, datacenter: &str) -> anyhow::Result<()> {
        let names: Vec<_> = ROLES.iter().map(|role| format!("{datacenter}-{role}")).collect();
        self.start(&names).await
    }

    async fn kill_datacenter(&mut self, datacenter: &str) {
        for role in ROLES {
            if let Some(process) = self.running.remove(&format!("{datacenter}-{role}")) {
                process.kill().await;
            }
        }
    }

    async fn status(&mut self, datacenter: &str) -> anyhow::Result<DispatcherStatus> {
        for process in self.running.values_mut() {
            process.check_alive()?;
        }
        let body = http_get(&self.status_pages[datacenter], "/status").await?;
        let status: serde_json::Value = serde_json::from_str(&body).context("a dispatcher's status")?;
        let number = |path: &str| status.pointer(path).and_then(serde_json::Value::as_u64).unwrap_or_default();
        Ok(DispatcherStatus {
            read: number("/ledger/read"),
            passes: number("/passes"),
            open: number("/pending") + number("/under_way"),
        })
    }

    async fn wait_until(
        &mut self,
        datacenter: &str,
        is_there: impl Fn(&DispatcherStatus) -> bool,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + STEP_WITHIN;
        while !is_there(&self.status(datacenter).await?) {
            ensure!(Instant::now() < end, "datacenter {datacenter} did not get on within {STEP_WITHIN:?}");
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Two more passes over the files, and nothing under way: all that is there has its end.
    async fn wait_until_drained(&mut self, datacenter: &str) -> anyhow::Result<()> {
        let passes = self.status(datacenter).await?.passes + 2;
        self.wait_until(datacenter, |status| passes <= status.passes && status.open == 0).await
    }

    /// Runs the verifier until nothing changes.
    async fn repair(&mut self, say: &dyn Fn(&str)) -> anyhow::Result<Report> {
        for _ in 0..REPAIRS_MAX {
            let endpoints = Endpoints::of(&self.config)?;
            let options = Options { repair: true, ..Options::look(endpoints) };
            let report = verify::run_with_progress(&self.config, options).await?;
            let repaired = &report.repaired;
            say(&format!(
                "verified and repaired: dead joiners fenced {}, lost claims deleted {}, clicks given back {}",
                repaired.fenced, repaired.deleted, repaired.reinjected
            ));
            if !repaired.is_change() && report.ledger.pending == 0 {
                return Ok(report);
            }
            for datacenter in DATACENTERS {
                self.wait_until_drained(datacenter).await?;
            }
        }
        bail!("the verifier still changes something after {REPAIRS_MAX} runs")
    }

    /// Ends all, dispatchers first and registry nodes last.
    async fn stop(&mut self) -> anyhow::Result<()> {
        let pipeline = ROLES.iter().rev().flat_map(|role| DATACENTERS.map(|datacenter| format!("{datacenter}-{role}")));
        let registry = NODES.iter().map(|node| format!("registry-{node}"));
        for name in pipeline.chain(registry).collect::<Vec<_>>() {
            if let Some(process) = self.running.remove(&name) {
                let status = process.terminate().await?;
                ensure!(status.success(), "{name} ended with {status}");
            }
        }
        Ok(())
    }
}

fn print(dir: &Path, report: &Report, oracle: &Oracle) {
    println!("\n{report}");
    println!(
        "the generator's oracle: {} joined, {} unjoinable, {} dead-lettered",
        oracle.joined, oracle.unjoinable, oracle.dead_lettered
    );
    let dir = dir.display();
    println!("\nwhere to look:");
    println!("  joined lines       {dir}/data/{{east,west}}/output/{{live,sealed}}/*/*.jsonl");
    println!("  click logs         {dir}/input/logs/");
    println!("  config file        {dir}/photon.toml");
    println!("  what they said     {dir}/traces/");
}

fn check(report: &Report, oracle: &Oracle) -> anyhow::Result<Exit> {
    let ledger = &report.ledger;
    let found = (ledger.keys, ledger.joined, ledger.unjoinable, ledger.dead_lettered);
    if found != (oracle.keys, oracle.joined, oracle.unjoinable, oracle.dead_lettered) {
        eprintln!("error: the ledger is not what the generator says");
        return Ok(Exit::Differences);
    }
    Ok(exit::of_code(report.exit_code()))
}

/// The body of a plain HTTP/1.0 GET.
async fn http_get(address: &str, path: &str) -> anyhow::Result<String> {
    let get = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = get.await.with_context(|| format!("http://{address}{path}"))?;
    let (_, body) = answer.split_once("\r\n\r\n").with_context(|| format!("http://{address}{path} is no HTTP"))?;
    Ok(body.to_owned())
}

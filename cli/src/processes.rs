//! Processes of this very binary, started by a command that needs several of them.
//!
//! Invariant: they end with the command, however it ends.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

/// How long one may take until it serves.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How much of a failed one's trace is shown.
const TRACE_LINES_SHOWN: usize = 10;

/// One process.
pub struct Started {
    /// How it is called in messages.
    pub name: String,
    /// Where its standard error is kept.
    pub trace: PathBuf,
    child: Child,
    ready: watch::Receiver<bool>,
}

impl Started {
    /// Starts this binary with these arguments; what it says is appended to `trace`.
    pub fn start(name: &str, args: &[String], trace: &Path) -> anyhow::Result<Started> {
        let program = std::env::current_exe().context("the path of this program is not known")?;
        let mut child = Command::new(&program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} can not be started", program.display()))?;
        let file = File::options().create(true).append(true).open(trace);
        let file = file.with_context(|| format!("{} can not be made", trace.display()))?;
        let (saying, ready) = watch::channel(false);
        let stderr = child.stderr.take().expect("it is piped");
        tokio::spawn(async move {
            let mut file = tokio::fs::File::from_std(file);
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if line == "ready" {
                    let _ = saying.send(true);
                }
                // A full disk must not stop the process by its pipe.
                let _ = file.write_all(format!("{line}\n").as_bytes()).await;
                let _ = file.flush().await;
            }
        });
        Ok(Started { name: name.to_owned(), trace: trace.to_owned(), child, ready })
    }

    /// Waits until it says that it serves.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let mut ready = self.ready.clone();
        let said = tokio::time::timeout(READY_WITHIN, ready.wait_for(|ready| *ready)).await;
        match said {
            Ok(Ok(_)) => Ok(()),
            // Its standard error is closed: it has ended.
            Ok(Err(_)) => {
                let status = self.child.wait().await.with_context(|| format!("{} is lost", self.name))?;
                self.explain(status)
            }
            Err(_) => bail!("{} did not serve within {READY_WITHIN:?}; see {}", self.name, self.trace.display()),
        }
    }

    /// Says so when it has ended, with the end of its trace.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait().with_context(|| format!("{} is lost", self.name))? {
            Some(status) => self.explain(status),
            None => Ok(()),
        }
    }

    fn explain(&self, status: ExitStatus) -> anyhow::Result<()> {
        let trace = std::fs::read_to_string(&self.trace).unwrap_or_default();
        let lines: Vec<_> = trace.lines().collect();
        let end = lines[lines.len().saturating_sub(TRACE_LINES_SHOWN)..].join("\n  ");
        bail!("{} ended with {status}:\n  {end}", self.name);
    }

    /// `kill -9`, and waits until it is gone.
    pub async fn kill(mut self) {
        // Fails only for one that has ended by itself.
        let _ = self.child.kill().await;
    }

    /// Asks it to end, and waits.
    pub async fn terminate(mut self) -> anyhow::Result<ExitStatus> {
        if let Some(pid) =
            self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw)
        {
            // Fails only for one that has ended by itself.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        self.child.wait().await.with_context(|| format!("{} is lost", self.name))
    }
}

/// Addresses on the loopback interface that were free a moment ago, all different.
pub fn free_addresses(count: usize) -> anyhow::Result<Vec<String>> {
    let listeners: Result<Vec<_>, _> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let listeners = listeners.context("no free port on 127.0.0.1")?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect()
}

//! Real processes of `photon` for tests: started from one config file, awaited by the line that
//! says they serve, killed, stopped and continued by their process id.
//!
//! Invariant: every process started here is ended here, also when the test fails.
#![allow(dead_code, reason = "each test uses its part of the harness")]

pub mod output;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The binary under test.
pub fn photon() -> Command {
    Command::new(env!("CARGO_BIN_EXE_photon"))
}

/// A guard against a test that hangs; never part of what is tested.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace").to_owned()
}

/// A file of the shared data, or `None` (said aloud) on a machine that has none. CI must have it.
pub fn shared_data(path: &str) -> Option<PathBuf> {
    let found = root().join("../shared/data").join(path);
    if found.exists() {
        return Some(found);
    }
    assert!(std::env::var("CI").is_err(), "CI=true, but {} is absent", found.display());
    eprintln!("skipped: {} is absent on this machine", found.display());
    None
}

/// Runs to the end and returns what was printed.
pub fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the binary starts")
}

/// Ports that were free a moment ago.
pub fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    held.iter().map(|listener| listener.local_addr().expect("an address").port()).collect()
}

/// One process of `photon`.
pub struct Process {
    /// How it is called in messages.
    pub name: String,
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Process {
    /// Starts it and waits until it says that it serves.
    pub fn start(name: &str, args: &[String], log: &Path) -> Process {
        let mut child = photon()
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stderr = child.stderr.take().expect("piped");
        let path = log.to_owned();
        let mut log = File::options().create(true).append(true).open(log).expect("a log file");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // A full disk must not stop the process under test by its pipe.
                let _ = writeln!(log, "{line}");
                let _ = sender.send(line);
            }
        });
        Process { name: name.to_owned(), child, lines, log: path }
    }

    /// Waits for the line that says it serves.
    pub fn await_ready(&mut self) {
        let end = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if line == "ready" {
                return;
            }
            seen.push(line);
        }
        panic!("{} did not become ready; it said:\n{}", self.name, seen.join("\n"));
    }

    /// What stands behind this in the last such line that a process of this name has said.
    pub fn said(&self, what: &str) -> Option<String> {
        let log = fs::read_to_string(&self.log).expect("a log file");
        log.lines().rev().find_map(|line| line.strip_prefix(what)).map(str::to_owned)
    }

    /// The end of what it has said.
    pub fn tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) {
        let _ = kill_process(self.pid(), Signal::KILL);
        self.child.wait().expect("a child can be awaited");
    }

    /// Asks it to end, and waits.
    pub fn terminate(mut self) -> ExitStatus {
        let _ = kill_process(self.pid(), Signal::TERM);
        self.wait()
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        // Its standard error is closed when it ends.
        let ended = loop {
            if let Err(error) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                break error;
            }
        };
        assert!(ended == mpsc::RecvTimeoutError::Disconnected, "{} does not end", self.name);
        self.child.wait().expect("a child can be awaited")
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be awaited").is_some()
    }

    /// SIGSTOP.
    pub fn stop(&self) {
        kill_process(self.pid(), Signal::STOP).expect("the process is there");
    }

    /// SIGCONT.
    pub fn cont(&self) {
        kill_process(self.pid(), Signal::CONT).expect("the process is there");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = kill_process(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// A whole system of processes over one config file, and the directory all of it lies in.
pub struct System {
    /// Config, logs and data lie below it.
    pub dir: PathBuf,
    /// Running processes by name: `registry-1`, `east-joiner` and so on.
    pub processes: BTreeMap<String, Process>,
    http: BTreeMap<String, u16>,
}

/// The roles of a datacenter, in the order in which they are started.
pub const ROLES: [&str; 3] = ["event-store", "joiner", "dispatcher"];

impl System {
    /// A config for three registries and these datacenters over `dir/logs`. Nothing is started.
    pub fn new(dir: &Path, datacenters: &[&str]) -> System {
        let ports = free_ports(9 + 6 * datacenters.len());
        let mut ports = ports.into_iter();
        let mut port = move || ports.next().expect("enough ports");
        let mut http = BTreeMap::new();
        let mut text = format!(
            "[cluster]\nname = \"chaos\"\ndata-dir = \"{}\"\n\n[registry]\nretention = \"never\"\n",
            dir.join("data").display()
        );
        for node in 1..=3 {
            let (peer, client, status) = (port(), port(), port());
            write!(
                text,
                "\n[[registry.node]]\nid = {node}\npeer = \"127.0.0.1:{peer}\"\nclient = \"127.0.0.1:{client}\"\n\
                 http = \"127.0.0.1:{status}\"\n"
            )
            .expect("a string");
            http.insert(format!("registry-{node}"), status);
        }
        write!(text, "{}", JOIN.replace("LOGS", &dir.join("logs").display().to_string())).expect("a string");
        for datacenter in datacenters {
            write!(text, "\n[[datacenter]]\nname = \"{datacenter}\"\n").expect("a string");
            for role in ROLES {
                let (serve, status) = (port(), port());
                write!(text, "{role} = \"127.0.0.1:{serve}\"\n{role}-http = \"127.0.0.1:{status}\"\n")
                    .expect("a string");
                http.insert(format!("{datacenter}-{role}"), status);
            }
        }
        fs::create_dir_all(dir.join("logs")).expect("a directory");
        fs::write(dir.join("photon.toml"), text).expect("a config file");
        System { dir: dir.to_owned(), processes: BTreeMap::new(), http }
    }

    /// The config file.
    pub fn config(&self) -> PathBuf {
        self.dir.join("photon.toml")
    }

    /// Starts the process of this name, and does not wait.
    pub fn spawn(&mut self, name: &str) {
        let config = self.config().display().to_string();
        let args = match name.split_once('-').expect("a name has a dash") {
            ("registry", node) => ["registry", "--config", &config, "--node", node].map(str::to_owned),
            (datacenter, role) => [role, "--config", &config, "--datacenter", datacenter].map(str::to_owned),
        };
        let log = self.dir.join(format!("{name}.log"));
        let process = Process::start(name, &args, &log);
        assert!(self.processes.insert(name.to_owned(), process).is_none(), "{name} runs already");
    }

    /// Starts these, then waits for all of them.
    pub fn start(&mut self, names: &[String]) {
        names.iter().for_each(|name| self.spawn(name));
        for name in names {
            self.processes.get_mut(name).expect("just spawned").await_ready();
        }
    }

    /// All names of a system with these datacenters.
    pub fn names(datacenters: &[&str]) -> Vec<String> {
        let registries = (1..=3).map(|node| format!("registry-{node}"));
        let pipelines = datacenters.iter().flat_map(|dc| ROLES.iter().map(move |role| format!("{dc}-{role}")));
        registries.chain(pipelines).collect()
    }

    /// Takes a process out, to kill or stop it.
    pub fn take(&mut self, name: &str) -> Process {
        self.processes.remove(name).unwrap_or_else(|| panic!("{name} does not run"))
    }

    /// What `GET path` on the process's HTTP port says; `None` when nobody answers.
    pub fn http(&self, name: &str, path: &str) -> Option<String> {
        http_get(self.http[name], path)
    }

    /// Runs `photon` with this config to its end.
    pub fn photon(&self, args: &[&str]) -> Output {
        let (command, rest) = args.split_first().expect("a command");
        let command: Vec<&str> = command.split(' ').collect();
        run(photon().args(command).arg("--config").arg(self.config()).args(rest))
    }
}

/// The node that says it leads, as `photon admin status` shows it; waits until there is one. Other
/// processes: there is no event to wait for.
pub fn await_leader(system: &System) -> u64 {
    let end = Instant::now() + PATIENCE;
    loop {
        let output = system.photon(&["admin status", "--json"]);
        let text = String::from_utf8_lossy(&output.stdout);
        let status = text.lines().last().and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        if let Some(leader) = status.and_then(|status| status["leader"].as_u64()) {
            return leader;
        }
        assert!(Instant::now() < end, "no leader: {text}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The body of an answer to a plain HTTP/1.0 GET.
pub fn http_get(port: u16, path: &str) -> Option<String> {
    use std::io::Read;
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// The last line of standard output as JSON.
#[track_caller]
pub fn last_json(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_else(|| {
        panic!("nothing on stdout ({}); stderr:\n{}", output.status, String::from_utf8_lossy(&output.stderr))
    });
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"))
}

const JOIN: &str = r#"
[join]
window = "3d"
call-timeout = "2s"

[[join.input]]
name = "shop"
path = "LOGS"
framing = "es-bulk"

[[join.stream]]
name = "queries"
role = "primary"
input = "shop"
select = { "@index" = "ubi_queries" }
id = "query_id"

[[join.stream]]
name = "events"
role = "foreign"
input = "shop"
select = { "@index" = "ubi_events" }
id = "@id"
reference = "query_id"
time = { field = "timestamp", forms = ["rfc3339", "epoch-ms"] }
"#;

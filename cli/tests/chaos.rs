//! Real processes under fire: three registries and two datacenters join a growing log while a
//! registry leader, a joiner, a dispatcher, an event store and a whole datacenter are killed and a
//! joiner is stopped for longer than every timeout, at moments drawn from a seed. After repair the
//! ledger adds up, nothing is in the output twice, and nothing is lost.
//!
//! One seed by default; `PHOTON_CHAOS_FROM` and `PHOTON_CHAOS_SEEDS` choose others.

mod harness;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use harness::output::{self, Bulk};
use harness::{PATIENCE, Process, System, last_json, photon, run};
use photon_types::Prng;
use serde_json::Value;

const DATACENTERS: [&str; 2] = ["east", "west"];

/// Longer than every timeout between roles: calls take 2 s, a client's attempt 5 s.
const STOPPED_FOR: Duration = Duration::from_secs(8);

/// Other processes are asked how far they are: there is no event to wait for.
const POLL: Duration = Duration::from_millis(20);

/// What happens, besides the joiner that is stopped.
#[derive(Clone, Copy, Debug)]
enum Fault {
    RegistryLeader,
    Joiner,
    Dispatcher,
    EventStore,
    Datacenter,
}

#[test]
fn what_is_killed_is_neither_lost_nor_billed_twice() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
    };
    let from = number("PHOTON_CHAOS_FROM", 1);
    for seed in from..from + number("PHOTON_CHAOS_SEEDS", 1) {
        eprintln!("seed {seed}: again with PHOTON_CHAOS_FROM={seed} cargo test --release --test chaos -- --nocapture");
        let dir = tempfile::tempdir().unwrap();
        Story::begin(seed, dir.path().to_owned(), number("PHOTON_CHAOS_CLICKS", 50_000)).play();
    }
}

struct Story {
    seed: u64,
    prng: Prng,
    system: System,
    oracle: Value,
    feed: Feed,
    /// The joiner that is stopped: its datacenter, its process, since when.
    stopped: Option<(&'static str, Process, Instant)>,
}

impl Story {
    fn begin(seed: u64, dir: PathBuf, clicks: u64) -> Story {
        let mut generate = photon();
        generate.args(["generate", "--clicks", &clicks.to_string(), "--seed", &seed.to_string()]);
        let oracle = last_json(&run(generate.arg("--out").arg(dir.join("staged"))));
        let mut system = System::new(&dir, &DATACENTERS);
        system.start(&System::names(&DATACENTERS));
        let feed = Feed::new(&dir);
        Story { seed, prng: Prng::new(seed), system, oracle, feed, stopped: None }
    }

    fn play(mut self) {
        let mut faults =
            [Fault::RegistryLeader, Fault::Joiner, Fault::Dispatcher, Fault::EventStore, Fault::Datacenter];
        for last in (1..faults.len()).rev() {
            faults.swap(last, self.draw(last as u64 + 1) as usize);
        }
        let stop_before = self.draw(faults.len() as u64) as usize;
        let share = 100 / (faults.len() as u64 + 1);
        for (number, fault) in faults.into_iter().enumerate() {
            if number == stop_before {
                self.stop_a_joiner();
            }
            let from = number as u64 * share;
            let (hit, restored) = (from + self.draw(share / 2), from + share / 2 + self.draw(share / 2));
            self.feed_to(hit);
            let victims = self.strike(fault);
            self.feed_to(restored);
            self.system.start(&victims);
        }
        self.feed_to(100);
        self.resume_the_joiner();
        self.repair_until_nothing_changes();
        self.check();
    }

    fn draw(&mut self, end: u64) -> u64 {
        self.prng.below(end.max(1))
    }

    fn say(&self, what: &str) {
        eprintln!("seed {}: {:3} % fed: {what}", self.seed, self.feed.percent());
    }

    /// Appends more of the log, and waits until somebody has read most of it: a fault should hit
    /// work that is under way.
    fn feed_to(&mut self, percent: u64) {
        self.feed.to(percent);
        let clicks = self.oracle["keys"].as_u64().unwrap();
        let wanted = clicks * percent.saturating_sub(5) / 100;
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end && self.read().into_iter().max().unwrap_or(0) < wanted {
            thread::sleep(POLL);
        }
    }

    /// How many records each dispatcher that runs has read.
    fn read(&self) -> Vec<u64> {
        let of = |datacenter: &&str| Some(self.status(datacenter)?["ledger"]["read"].as_u64().unwrap());
        DATACENTERS.iter().filter_map(of).collect()
    }

    fn status(&self, datacenter: &str) -> Option<Value> {
        let name = format!("{datacenter}-dispatcher");
        self.system.processes.get(&name)?;
        serde_json::from_str(&self.system.http(&name, "/status")?).ok()
    }

    /// Kills; returns who has to be started again.
    fn strike(&mut self, fault: Fault) -> Vec<String> {
        let stopped = self.stopped.as_ref().map(|(datacenter, ..)| *datacenter);
        let free: Vec<_> = DATACENTERS.into_iter().filter(|datacenter| Some(*datacenter) != stopped).collect();
        let any = DATACENTERS[self.draw(2) as usize];
        let not_stopped = free[self.draw(free.len() as u64) as usize];
        let victims = match fault {
            Fault::RegistryLeader => vec![format!("registry-{}", harness::await_leader(&self.system))],
            Fault::Joiner => vec![format!("{not_stopped}-joiner")],
            Fault::Dispatcher => vec![format!("{any}-dispatcher")],
            Fault::EventStore => vec![format!("{any}-event-store")],
            Fault::Datacenter => harness::ROLES.iter().map(|role| format!("{not_stopped}-{role}")).collect(),
        };
        self.say(&format!("kill -9 {}", victims.join(", ")));
        victims.iter().for_each(|name| self.system.take(name).kill());
        victims
    }

    fn stop_a_joiner(&mut self) {
        let datacenter = DATACENTERS[self.draw(2) as usize];
        let process = self.system.take(&format!("{datacenter}-joiner"));
        process.stop();
        self.say(&format!("SIGSTOP {datacenter}-joiner"));
        self.stopped = Some((datacenter, process, Instant::now()));
    }

    /// Wakes the stopped joiner up. On one seed in four an operator has named it dead before, and
    /// the repair has fenced it.
    fn resume_the_joiner(&mut self) {
        let (datacenter, process, since) = self.stopped.take().expect("one is stopped");
        let name = format!("{datacenter}-joiner");
        thread::sleep(STOPPED_FOR.saturating_sub(since.elapsed()));
        if !self.seed.is_multiple_of(4) {
            process.cont();
            self.say(&format!("SIGCONT {name}"));
            self.system.processes.insert(name, process);
            return;
        }
        let incarnation = process.said("incarnation: ").expect("a joiner says who it is");
        let output = self.system.photon(&["verify", "--repair", "--dead", &incarnation, "--format", "json"]);
        self.say(&format!("{name} was named dead: {}", last_json(&output)["repaired"]));
        process.cont();
        // It finds its output gone when it writes next; without work it would not look.
        let status = process.terminate();
        assert!(matches!(status.code(), Some(0 | 1 | 6)), "{name} ended with {status}");
        self.say(&format!("SIGCONT {name}, ended with {status}"));
        self.system.start(&[name]);
    }

    /// Two more passes over the files, and nothing under way.
    fn wait_until_drained(&mut self) {
        let end = Instant::now() + PATIENCE;
        for datacenter in DATACENTERS {
            let first = loop {
                if let Some(status) = self.status(datacenter) {
                    break status["passes"].as_u64().unwrap() + 2;
                }
                assert!(Instant::now() < end, "{datacenter}'s dispatcher does not answer");
                thread::sleep(POLL);
            };
            loop {
                let status = self.status(datacenter).unwrap_or_default();
                let number = |name: &str| status[name].as_u64();
                if number("passes") >= Some(first) && number("pending") == Some(0) && number("under_way") == Some(0) {
                    break;
                }
                assert!(Instant::now() < end, "seed {}: {datacenter} is not drained: {status}", self.seed);
                for (name, process) in &mut self.system.processes {
                    assert!(!process.has_ended(), "seed {}: {name} has ended:\n{}", self.seed, process.tail());
                }
                thread::sleep(POLL);
            }
        }
    }

    fn repair_until_nothing_changes(&mut self) {
        for round in 0.. {
            self.wait_until_drained();
            let report = last_json(&self.system.photon(&["verify", "--repair", "--format", "json"]));
            self.say(&format!("verify --repair: {}, pending {}", report["repaired"], report["pending"]));
            let changed = ["fenced", "deleted", "reinjected"].iter().any(|name| report["repaired"][*name] != 0);
            if !changed && report["pending"] == 0 {
                return;
            }
            assert!(round < 5, "seed {}: repairs do not end: {report}", self.seed);
        }
    }

    /// Ends all but the registry, in order; then the verifier and the files must agree with the
    /// oracle.
    fn check(mut self) {
        for role in harness::ROLES.iter().rev() {
            for datacenter in DATACENTERS {
                let status = self.system.take(&format!("{datacenter}-{role}")).terminate();
                assert!(status.success(), "seed {}: {datacenter}-{role} ended with {status}", self.seed);
            }
        }
        let output = self.system.photon(&["verify", "--format", "json"]);
        let report = last_json(&output);
        assert!(output.status.success(), "seed {}: {report}\n{}", self.seed, String::from_utf8_lossy(&output.stderr));
        for name in ["keys", "joined", "unjoinable", "dead_lettered", "unkeyed"] {
            assert_eq!(report[name], self.oracle[name], "seed {}: {name} in {report}", self.seed);
        }
        for name in ["filtered", "expired", "pending", "held", "lost", "duplicates"] {
            assert_eq!(report[name], 0, "seed {}: {name} in {report}", self.seed);
        }
        let files = output::log_files(&self.system.dir.join("logs"));
        let bulk = Bulk::read(&files, |file| format!("shop/{}", file.file_name().unwrap().to_str().unwrap()));
        let lines = output::joined(&self.system.dir.join("data"), &DATACENTERS);
        bulk.check(&lines);
        let expected: BTreeSet<_> = output::oracle(&self.system.dir.join("staged/oracle.tsv"))
            .into_iter()
            .filter(|(_, (_, state))| state == "joined")
            .map(|(id, (timestamp, _))| (timestamp, id))
            .collect();
        let found: BTreeSet<_> = lines.into_iter().map(|line| (line.timestamp, line.id)).collect();
        assert!(found == expected, "seed {}: {} joined, {} expected", self.seed, found.len(), expected.len());
        self.say(&format!("all {} clicks are joined once", found.len()));
    }
}

/// Appends a staged log to the files that are read, cutting where it likes.
struct Feed {
    staged: Vec<(File, File)>,
    bytes: u64,
    fed: u64,
}

impl Feed {
    fn new(dir: &std::path::Path) -> Feed {
        let mut bytes = 0;
        let mut staged = Vec::new();
        for file in output::log_files(&dir.join("staged/logs")) {
            bytes += fs::metadata(&file).unwrap().len();
            let target = dir.join("logs").join(file.file_name().unwrap());
            staged.push((File::open(&file).unwrap(), File::create(target).unwrap()));
        }
        Feed { staged, bytes, fed: 0 }
    }

    fn percent(&self) -> u64 {
        self.fed * 100 / self.bytes
    }

    fn to(&mut self, percent: u64) {
        let mut room = (self.bytes * percent / 100).saturating_sub(self.fed);
        let mut buffer = vec![0; 1 << 16];
        for (source, target) in &mut self.staged {
            while 0 < room {
                let wanted = buffer.len().min(usize::try_from(room).unwrap());
                let count = source.read(&mut buffer[..wanted]).unwrap();
                if count == 0 {
                    break;
                }
                target.write_all(&buffer[..count]).unwrap();
                room -= count as u64;
                self.fed += count as u64;
            }
        }
    }
}

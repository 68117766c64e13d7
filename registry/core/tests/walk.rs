//! Random walks: whatever the order of disks, messages, machines, crashes and clocks, replicas
//! agree on what they apply, and every request gets at most one reply while its node lives.
//!
//! The simulator is the real thing, with delays, rates and many invariants; this walk is small
//! enough to run with every change of the core.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the harness shares code with one that reads files"
)]
#![allow(dead_code, reason = "the harness has more commands than a walk needs")]

mod world;

#[cfg(feature = "mutants")]
use photon_core::Mutant;
use photon_types::Prng;
use world::World;

const SEEDS: u64 = 150;
const STEPS: u64 = 4_000;

#[derive(Default)]
struct Totals {
    slots: u64,
    elections: u64,
    replies: u64,
}

fn walk(seed: u64, options: &str, totals: &mut Totals) {
    let mut prng = Prng::new(seed);
    let mut world = World::default();
    let nodes = if prng.below(4) == 0 { 5 } else { 3 };
    let cluster = format!("cluster {nodes} window=3 open=6 unapplied=5 batch=3 cache=2 reads=2 page=200{options}");
    world.run(&cluster).unwrap();
    let rates = Rates::draw(&mut prng);
    for step in 0..STEPS {
        let command = rates.next_command(&mut prng, nodes, step, &world);
        // A command that finds nothing to do is no error here.
        let _ = world.run(&command);
        if step % 16 == 0 {
            world.check();
        }
    }
    world.heal_and_serve(nodes);
    world.check();
    totals.slots += world.agreed_slots();
    totals.elections += world.elections_won();
    totals.replies += world.replies();
}

#[test]
fn replicas_agree_on_every_walk() {
    let mut totals = Totals::default();
    for seed in 0..SEEDS {
        walk(seed, "", &mut totals);
    }
    // The walks did walk.
    let Totals { slots, elections, replies } = totals;
    assert!(SEEDS * 20 < slots, "only {slots} slots");
    assert!(SEEDS < elections, "only {elections} elections");
    assert!(SEEDS * 10 < replies, "only {replies} replies");
}

/// A walk that finds no bug proves something only if it finds those that are there. Two gates need
/// a crash in the one step between writing and syncing: scenarios and the simulator have them.
#[cfg(feature = "mutants")]
#[test]
fn mutants_are_caught() {
    let mut alive = Vec::new();
    std::panic::set_hook(Box::new(|_| ()));
    let rare = [Mutant::PromiseBeforeDurable, Mutant::PrepareBeforeDurable];
    for mutant in Mutant::ALL.into_iter().filter(|mutant| !rare.contains(mutant)) {
        let is_caught = |seed: &u64| {
            let options = format!(" mutant={mutant:?}");
            std::panic::catch_unwind(|| walk(*seed, &options, &mut Totals::default())).is_err()
        };
        match (0..20 * SEEDS).find(is_caught) {
            Some(seed) => println!("{mutant:?}: seed {seed}"),
            None => alive.push(mutant),
        }
    }
    drop(std::panic::take_hook());
    assert!(alive.is_empty(), "not caught: {alive:?}");
}

/// How likely what is; drawn for each walk, since fixed rates miss whole classes of histories.
struct Rates {
    weights: Vec<(u64, &'static str)>,
    total: u64,
}

impl Rates {
    fn draw(prng: &mut Prng) -> Rates {
        let kinds = [
            ("sync", 60),
            ("deliver", 120),
            ("drop", 8),
            ("copy", 4),
            ("apply", 30),
            ("read", 15),
            ("request", 30),
            ("crash", 2),
            ("restart", 15),
            ("sleep", 1),
            ("tick", 3),
            ("late", 4),
        ];
        // Of each kind none at all in some walks.
        let weights: Vec<(u64, &str)> = kinds.into_iter().map(|(kind, most)| (prng.below(most + 1), kind)).collect();
        let total = weights.iter().map(|(weight, _)| weight).sum::<u64>().max(1);
        Rates { weights, total }
    }

    fn next_command(&self, prng: &mut Prng, nodes: u64, step: u64, world: &World) -> String {
        let mut draw = prng.below(self.total);
        let kind = self.weights.iter().find(|(weight, _)| {
            let is_drawn = draw < *weight;
            draw = draw.saturating_sub(*weight);
            is_drawn
        });
        let kind = kind.map_or("sync", |(_, kind)| *kind);
        let node = 1 + prng.below(nodes);
        let peer = 1 + (node + prng.below(nodes - 1)) % nodes;
        match kind {
            "tick" => format!("wake {node}"),
            "late" => world.earliest_tick().map_or_else(|| "sleep 10".into(), |node| format!("tick {node}")),
            "sync" => format!("sync {node} {}", 1 + prng.below(4)),
            "deliver" => format!("deliver {node}->{peer} {}", 1 + prng.below(3)),
            "drop" | "copy" => format!("{kind} {node}->{peer} 1"),
            "request" => {
                // Mostly to somebody who leads, else little is ever proposed.
                let node = world.some_leader().filter(|_| 0 < prng.below(5)).map_or(node, |leader| leader.0.into());
                format!("request {node} r{step} insert k{} t{step}", prng.below(50))
            }
            "crash" => format!("crash {node}{}", if prng.below(2) == 0 { " unflushed" } else { "" }),
            "sleep" => format!("sleep {}", prng.below(300)),
            other => format!("{other} {node}"),
        }
    }
}

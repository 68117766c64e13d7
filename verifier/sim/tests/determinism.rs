//! A run is a function of its seed: the same twice, with and without a trace, on one thread or two.

use photon_sim::{Options, Swarm, Totals, explore, run};

const SEEDS: u64 = 60;

fn swarm(jobs: usize, doublecheck: bool) -> Totals {
    let swarm = Swarm { from: 1_000, seeds: SEEDS, jobs, options: Options::default(), doublecheck, keep_going: true };
    let report = explore(&swarm, &|_| ());
    assert!(report.is_clean(), "{:?} did two things", report.differing);
    report.totals
}

#[test]
fn a_seed_does_the_same_twice_on_any_number_of_threads() {
    assert_eq!(swarm(1, true), swarm(2, false));
}

#[test]
fn a_trace_changes_nothing() {
    for seed in 0..20 {
        let plain = run(seed, &Options::default()).expect("every property holds");
        let traced = run(seed, &Options { lines_max: 50, ..Options::default() }).expect("every property holds");
        assert_eq!(plain.fingerprint, traced.fingerprint);
        assert_eq!((plain.lines.len(), traced.lines.len()), (0, 50));
    }
}

#[test]
fn seeds_differ() {
    let fingerprint = |seed| run(seed, &Options::default()).expect("every property holds").fingerprint;
    let mut found: Vec<u64> = (0..50).map(fingerprint).collect();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 50);
}

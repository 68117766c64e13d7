//! Some hundred seeds with every change: all properties hold, and the runs did run.

use photon_sim::{Options, Swarm, explore};

const SEEDS: u64 = 600;

#[test]
fn every_property_holds() {
    let swarm =
        Swarm { from: 0, seeds: SEEDS, jobs: 1, options: Options::default(), doublecheck: false, keep_going: false };
    let report = explore(&swarm, &|_| ());
    if let Some(failure) = &report.first_failure {
        panic!("{failure}");
    }
    // Runs in which nothing happens would pass as well.
    let totals = &report.totals;
    assert_eq!(totals.runs, SEEDS);
    assert!(SEEDS * 10 < totals.slots, "{totals}");
    assert!(SEEDS * 50 < totals.answers, "{totals}");
    assert!(SEEDS * 2 < totals.elections, "{totals}");
    assert!(SEEDS * 2 < totals.crashes, "{totals}");
    assert!(SEEDS < totals.spiteful_crashes, "{totals}");
    assert!(SEEDS < totals.cuts, "{totals}");
    assert!(SEEDS < totals.stalls, "{totals}");
}

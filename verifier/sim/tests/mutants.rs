//! A swarm that finds no bug proves something only if it finds those that are there: every bug on
//! purpose is found within its stated number of seeds, also by what it leads to alone.

use std::collections::BTreeSet;

use photon_sim::{KNOWN, Known, Options, Property, Report, Swarm, explore, parse};

fn first_failure(known: &Known, seeds: u64, without: BTreeSet<Property>) -> Report {
    let mutant = parse(known.name).expect("the table names mutants of this build");
    let options = Options { mutant: Some(mutant), without, lines_max: 0 };
    explore(&Swarm { from: 0, seeds, jobs: 1, options, doublecheck: false, keep_going: false }, &|_| ())
}

#[track_caller]
fn check(seeds: impl Fn(&Known) -> u64, without: BTreeSet<Property>) {
    let mut survivors = Vec::new();
    for known in &KNOWN {
        let report = first_failure(known, seeds(known), without.clone());
        match report.first_failure {
            Some(failure) => println!("{}: seed {}, {}", known.name, failure.seed, failure.violation.property),
            None => survivors.push(known.name),
        }
    }
    assert!(survivors.is_empty(), "not found within their number of seeds: {survivors:?}");
}

#[test]
fn every_mutant_is_found() {
    check(|known| known.seeds_max, BTreeSet::new());
}

#[test]
fn every_mutant_is_found_by_what_it_leads_to() {
    check(|known| known.seeds_max_without_gate, BTreeSet::from([Property::Gate]));
}

#[test]
fn a_failure_says_all_that_is_needed_to_see_it_again() {
    let report = first_failure(&KNOWN[0], 100, BTreeSet::from([Property::DurableQuorum]));
    let failure = report.first_failure.expect("a quorum one short is found").to_string();
    let replay = "-- run --seed ";
    for part in ["is violated", "drawn:", "the last of what happened", replay, "--mutant QuorumOneShort", "--without"] {
        assert!(failure.contains(part), "{part:?} is missing:\n{failure}");
    }
}

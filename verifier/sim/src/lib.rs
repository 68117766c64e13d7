//! The whole registry in one thread, from one seed: replicas of the production core over simulated
//! journals, tables, clocks and a network, with clients that ask and trouble that comes.
//!
//! Invariant: a run is a function of its seed, its mutant and the checks that are on. Nothing here
//! reads a clock or an order of the machine; the same seed twice gives the same fingerprint.
//!
//! Not here: the rules themselves (`photon-core`), whether a history is linearizable
//! (`photon-check`), real disks and sockets (tests of real processes).

mod dice;
mod time;

mod parameters;

mod cluster;
mod invariants;

mod caught;
mod show;
mod trace;

mod run;
mod swarm;

mod mutants;

pub use invariants::{Property, Violation};
pub use mutants::{KNOWN, Known, Mutant, MutantError, parse};
pub use parameters::Parameters;
pub use run::{Failure, Options, Summary, Totals, run, run_twice};
pub use swarm::{Report, Swarm, explore};

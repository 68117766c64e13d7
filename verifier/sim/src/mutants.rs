//! The bugs on purpose, and within how many seeds each must be found.
//!
//! Invariant: every mutant of the core stands in the table. One that survives is a hole in the
//! simulator.
//!
//! Each has two numbers: with all invariants, and without `gate`. The gate's rule is so direct that
//! it sees some mutants in the first election; whether crashes come at the moments where a broken
//! gate does harm is shown only by what it leads to.

use std::fmt;

#[cfg(feature = "mutants")]
pub use photon_core::Mutant;

/// A bug on purpose: none are compiled in.
#[cfg(not(feature = "mutants"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {}

#[cfg(not(feature = "mutants"))]
impl Mutant {
    /// Every mutant: none are compiled in.
    pub const ALL: [Mutant; 0] = [];
}

/// What is known of a mutant, by name: the table is there in every build.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// As in the core.
    pub name: &'static str,
    /// Found within so many seeds from 0, with every invariant.
    pub seeds_max: u64,
    /// The same without `gate`.
    pub seeds_max_without_gate: u64,
}

const fn known(name: &'static str, seeds_max: u64, seeds_max_without_gate: u64) -> Known {
    Known { name, seeds_max, seeds_max_without_gate }
}

/// Every mutant of the core.
pub const KNOWN: [Known; 14] = [
    known("QuorumOneShort", 10, 10),
    known("AcceptBelowPromise", 20, 20),
    known("NackAsPromise", 100, 100),
    known("AcceptsNotResent", 100, 100),
    known("AcceptedBeforeDurable", 10, 10),
    known("PromiseBeforeDurable", 10, 20),
    known("PrepareBeforeDurable", 10, 20),
    known("LeaderCountsBeforeDurable", 20, 20),
    known("PromiseNotWritten", 10, 20),
    known("RecoveryIgnoresPromises", 20, 20),
    known("LowestBallotWins", 400, 400),
    known("HoleNotFilled", 400, 400),
    known("NoOpBelowCommitEnd", 50, 50),
    known("CommitOverOlderBallot", 200, 200),
];

/// The mutant of this name; case, `-` and `_` do not matter.
///
/// # Errors
/// When there is none of this name, or none are compiled in.
pub fn parse(name: &str) -> Result<Mutant, MutantError> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
    let found = Mutant::ALL.into_iter().find(|mutant| plain(&format!("{mutant:?}")) == plain(name));
    match found {
        Some(mutant) => Ok(mutant),
        None if Mutant::ALL.is_empty() => Err(MutantError::NotCompiled),
        None => Err(MutantError::Unknown { name: name.to_owned() }),
    }
}

/// Why there is no such mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MutantError {
    /// This build has none.
    NotCompiled,
    /// No mutant has this name.
    Unknown {
        /// What was asked for.
        name: String,
    },
}

impl fmt::Display for MutantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MutantError::NotCompiled => f.write_str(
                "this build has no mutants: use `cargo run --release --package photon-sim --features mutants -- …`",
            ),
            MutantError::Unknown { name } => {
                let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
                write!(f, "no mutant is named {name:?}; there are {}", names.join(", "))
            }
        }
    }
}

impl std::error::Error for MutantError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "mutants")]
    #[test]
    fn the_table_names_every_mutant() {
        let names: Vec<String> = Mutant::ALL.iter().map(|mutant| format!("{mutant:?}")).collect();
        assert_eq!(KNOWN.map(|known| known.name.to_owned()).to_vec(), names);
        assert_eq!(parse("quorum-one-short"), Ok(Mutant::QuorumOneShort));
        assert!(matches!(parse("nobody"), Err(MutantError::Unknown { .. })));
    }

    #[cfg(not(feature = "mutants"))]
    #[test]
    fn a_build_without_mutants_says_so() {
        assert!(parse("QuorumOneShort").unwrap_err().to_string().contains("--features mutants"));
    }
}

//! Bugs that can be switched on, so that the simulator can show that it finds them.
//!
//! Each is one line at the place where the rule stands that it breaks. Without the feature
//! `mutants` the question whether one is on is a constant `false`, and nothing of them is compiled.

/// A bug on purpose. A simulator that lets one live has a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// A quorum may be one node short of a majority.
    QuorumOneShort,
    /// An acceptor takes an `Accept` below the ballot that it promised.
    AcceptBelowPromise,
    /// A candidate counts a refusal as a promise.
    NackAsPromise,
    /// A leader sends each `Accept` once only.
    AcceptsNotResent,
    /// `Accepted` leaves before the entry is durable.
    AcceptedBeforeDurable,
    /// `Promise` leaves before the promise is durable.
    PromiseBeforeDurable,
    /// `Prepare` leaves before the candidate's own promise is durable.
    PrepareBeforeDurable,
    /// A leader counts its own acceptance before its fsync.
    LeaderCountsBeforeDurable,
    /// A promise is not written at all.
    PromiseNotWritten,
    /// Recovery does not read the promises.
    RecoveryIgnoresPromises,
    /// Phase 1 takes the value of the lowest ballot.
    LowestBallotWins,
    /// A new leader leaves holes as they are.
    HoleNotFilled,
    /// A new leader takes slots below a promise's `commit_end` for holes.
    NoOpBelowCommitEnd,
    /// A follower moves `commit_end` over values of older ballots than the leader's.
    CommitOverOlderBallot,
}

#[cfg(feature = "mutants")]
impl Mutant {
    /// Every mutant.
    pub const ALL: [Mutant; 14] = [
        Mutant::QuorumOneShort,
        Mutant::AcceptBelowPromise,
        Mutant::NackAsPromise,
        Mutant::AcceptsNotResent,
        Mutant::AcceptedBeforeDurable,
        Mutant::PromiseBeforeDurable,
        Mutant::PrepareBeforeDurable,
        Mutant::LeaderCountsBeforeDurable,
        Mutant::PromiseNotWritten,
        Mutant::RecoveryIgnoresPromises,
        Mutant::LowestBallotWins,
        Mutant::HoleNotFilled,
        Mutant::NoOpBelowCommitEnd,
        Mutant::CommitOverOlderBallot,
    ];
}

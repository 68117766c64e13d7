//! The core's ledger and the one on disk: the same counts, in crates that do not know each other.

use photon_format::cursor::{self as saved, Ended};
use photon_join::ledger::{Counts, End};

pub(super) fn end_to_saved(end: End) -> Ended {
    match end {
        End::Joined => Ended::Joined,
        End::Claimed => Ended::Claimed,
        End::Filtered => Ended::Filtered,
        End::Unjoinable => Ended::Unjoinable,
        End::Expired => Ended::Expired,
        End::DeadLettered => Ended::DeadLettered,
    }
}

pub(super) fn end_from_saved(ended: Ended) -> End {
    match ended {
        Ended::Joined => End::Joined,
        Ended::Claimed => End::Claimed,
        Ended::Filtered => End::Filtered,
        Ended::Unjoinable => End::Unjoinable,
        Ended::Expired => End::Expired,
        Ended::DeadLettered => End::DeadLettered,
    }
}

pub(super) fn counts_to_saved(counts: Counts) -> saved::Counts {
    let Counts { read, reinjected, joined, claimed, filtered, unjoinable, expired, dead_lettered, skipped } = counts;
    saved::Counts { read, reinjected, joined, claimed, filtered, unjoinable, expired, dead_lettered, skipped }
}

pub(super) fn counts_from_saved(counts: saved::Counts) -> Counts {
    let saved::Counts { read, reinjected, joined, claimed, filtered, unjoinable, expired, dead_lettered, skipped } =
        counts;
    Counts { read, reinjected, joined, claimed, filtered, unjoinable, expired, dead_lettered, skipped }
}

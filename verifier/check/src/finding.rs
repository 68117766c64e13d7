//! What is wrong, with evidence.
//!
//! Invariant: a finding is counted always and kept while there is room; the count is the truth,
//! the kept ones are examples.

use std::fmt;

use photon_types::{EventKey, Token};

use crate::input::{Answer, LinePlace, Place};
use crate::ledger::{Held, Loss};

/// Something that should not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// One key is counted in two or more lines: somebody is billed twice.
    Duplicate {
        /// The key.
        key: EventKey,
        /// Every counted line, with its token.
        lines: Vec<(LinePlace, Token)>,
    },
    /// A line's token is not the one that the registry names: two attempts wrote, or a delete took
    /// a claim whose line exists.
    TokenDiffers {
        /// The key.
        key: EventKey,
        /// The line.
        line: LinePlace,
        /// The line's token.
        token: Token,
        /// What the registry says.
        answer: Answer,
    },
    /// A line's token does not belong to the incarnation whose directory holds it.
    ForeignToken {
        /// The key.
        key: EventKey,
        /// The line.
        line: LinePlace,
        /// The line's token.
        token: Token,
    },
    /// A line whose click is not in the input.
    NoClick {
        /// The key.
        key: EventKey,
        /// The line.
        line: LinePlace,
        /// The line's token.
        token: Token,
    },
    /// A settled click that nothing brings to an end without a repair.
    Lost {
        /// The key.
        key: EventKey,
        /// Where the click lies.
        place: Place,
        /// How it was lost.
        loss: Loss,
    },
    /// A claimed click whose claimant's output can not be read.
    Held {
        /// The key.
        key: EventKey,
        /// Where the click lies.
        place: Place,
        /// Why.
        held: Held,
    },
    /// A settled record without a key, and no dispatcher recorded an end for it.
    UnkeyedWithoutEnd {
        /// Where the record lies.
        place: Place,
    },
}

/// The kinds of findings, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// [`Finding::Duplicate`].
    Duplicate,
    /// [`Finding::TokenDiffers`].
    TokenDiffers,
    /// [`Finding::ForeignToken`].
    ForeignToken,
    /// [`Finding::NoClick`].
    NoClick,
    /// [`Finding::Lost`], the token known or the key unclaimed.
    Lost,
    /// [`Finding::Lost`], recorded as unjoinable although the query is in the input.
    LostQueryFound,
    /// [`Finding::Lost`] with a forgotten token: critical, only an operator repairs it.
    LostForgotten,
    /// [`Finding::Held`].
    Held,
    /// [`Finding::UnkeyedWithoutEnd`].
    UnkeyedWithoutEnd,
}

impl Kind {
    const COUNT: usize = 9;

    /// The name in machine-readable reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Duplicate => "duplicate",
            Kind::TokenDiffers => "token_differs",
            Kind::ForeignToken => "foreign_token",
            Kind::NoClick => "no_click",
            Kind::Lost => "lost",
            Kind::LostQueryFound => "lost_query_found",
            Kind::LostForgotten => "lost_forgotten",
            Kind::Held => "held",
            Kind::UnkeyedWithoutEnd => "unkeyed_without_end",
        }
    }
}

impl Finding {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Finding::Duplicate { .. } => Kind::Duplicate,
            Finding::TokenDiffers { .. } => Kind::TokenDiffers,
            Finding::ForeignToken { .. } => Kind::ForeignToken,
            Finding::NoClick { .. } => Kind::NoClick,
            Finding::Lost { loss: Loss::Forgotten, .. } => Kind::LostForgotten,
            Finding::Lost { loss: Loss::QueryFound { .. }, .. } => Kind::LostQueryFound,
            Finding::Lost { loss: Loss::LineMissing(_) | Loss::Unclaimed, .. } => Kind::Lost,
            Finding::Held { .. } => Kind::Held,
            Finding::UnkeyedWithoutEnd { .. } => Kind::UnkeyedWithoutEnd,
        }
    }

    /// The place in the input that it speaks of, if any: the caller knows the source's name.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        match self {
            Finding::Duplicate { .. }
            | Finding::TokenDiffers { .. }
            | Finding::ForeignToken { .. }
            | Finding::NoClick { .. } => None,
            Finding::Lost { place, .. } | Finding::Held { place, .. } | Finding::UnkeyedWithoutEnd { place } => {
                Some(*place)
            }
        }
    }

    /// The place of the query that it speaks of, if any.
    #[must_use]
    pub fn query(&self) -> Option<Place> {
        match self {
            Finding::Lost { loss: Loss::QueryFound { query }, .. } => Some(*query),
            Finding::Lost { loss: Loss::LineMissing(_) | Loss::Unclaimed | Loss::Forgotten, .. }
            | Finding::Duplicate { .. }
            | Finding::TokenDiffers { .. }
            | Finding::ForeignToken { .. }
            | Finding::NoClick { .. }
            | Finding::Held { .. }
            | Finding::UnkeyedWithoutEnd { .. } => None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Duplicate { key, lines } => {
                write!(f, "click {key} is joined {} times:", lines.len())?;
                lines.iter().try_for_each(|(line, token)| write!(f, " {line} (token {token})"))
            }
            Finding::TokenDiffers { key, line, token, answer } => {
                write!(f, "click {key}: the line in {line} has token {token}, but in the registry it is {answer}")
            }
            Finding::ForeignToken { key, line, token } => {
                write!(f, "click {key}: the line in {line} has the token of another incarnation, {token}")
            }
            Finding::NoClick { key, line, token } => {
                write!(f, "click {key}: the line in {line} (token {token}) has no click in the input")
            }
            Finding::Lost { key, loss: Loss::LineMissing(token), .. } => {
                write!(f, "click {key} is lost: claimed by token {token}, which is sealed without its line")
            }
            Finding::Lost { key, loss: Loss::Unclaimed, .. } => {
                write!(f, "click {key} is lost: nobody claims it and no end is recorded")
            }
            // The place follows: the caller knows the source's name.
            Finding::Lost { key, loss: Loss::QueryFound { .. }, .. } => {
                write!(f, "click {key} is lost: it is recorded as unjoinable, but its query is in the input")
            }
            Finding::Lost { key, loss: Loss::Forgotten, .. } => {
                write!(
                    f,
                    "click {key} is lost: its token is forgotten and its line is in no output; an operator decides"
                )
            }
            Finding::Held { key, held: Held::NoDirectory(incarnation), .. } => {
                write!(f, "click {key} is held: no configured output has a directory of incarnation {incarnation}")
            }
            Finding::Held { key, held: Held::Damaged(incarnation), .. } => {
                write!(f, "click {key} is held: the output of incarnation {incarnation} can not be believed")
            }
            Finding::Held { key, held: Held::Forgotten, .. } => {
                write!(f, "click {key} is held: its token is forgotten and not every output could be read")
            }
            Finding::UnkeyedWithoutEnd { .. } => f.write_str("a record without a key has no recorded end"),
        }
    }
}

/// Findings, counted by kind, the first of each kind kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    counts: [u64; Kind::COUNT],
    kept: Vec<Finding>,
}

impl Findings {
    /// Counts a finding, and keeps it while fewer than `kept_max` of its kind are kept.
    pub fn add(&mut self, finding: Finding, kept_max: u64) {
        let count = &mut self.counts[finding.kind() as usize];
        if *count < kept_max {
            self.kept.push(finding);
        }
        *count += 1;
    }

    /// How many there are of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    /// How many there are.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Those that were kept, in the order found.
    #[must_use]
    pub fn kept(&self) -> &[Finding] {
        &self.kept
    }
}

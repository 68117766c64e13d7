//! Does the output say what the input says? Clicks, outputs and registry answers in, findings and
//! the ledger out.
//!
//! Invariant: the ledger adds up. Every distinct key of the input has exactly one state, and
//! `keys` is the sum of the states, whatever was fed in and in whatever order.
//!
//! Not here: files, the registry's client, the decision whether a line's bytes are right, and the
//! repair itself. The shell (`photon-verifier`) and the simulator feed the same code.

mod input;
mod ledger;

mod check;
mod finding;

pub mod history;

pub use check::{Check, FINDINGS_KEPT_MAX, Judgement, Reach, Waiting};
pub use finding::{Finding, Findings, Kind};
pub use input::{Answer, Click, End, EndState, Evidence, Line, LinePlace, Place, Progress};
pub use ledger::{DatacenterLedger, Held, Imbalance, Ledger, Loss, Pending, State};

//! The offline verifier: does the joined output say what the input says? It looks, judges, and with
//! `repair` brings back what a crash lost.
//!
//! Invariant: the order of a run. Ends of sources, cursors and retry stores, outputs, registry; and
//! for each dead incarnation: seal, fence, scan, look up, delete on condition of the token,
//! re-inject. Each is younger than the one before it, so nothing that is judged lost can turn out
//! to have been written.
//!
//! Not here: the judgement (`photon-check`), the files of outputs and dispatchers
//! (`photon-format`), leases and remote hosts.

mod error;
mod options;
mod report;

mod content;
mod datacenter;
mod input;
mod outputs;
mod reread;
mod seen;

mod deleting;
mod registry;
mod reinject;
mod repair;

mod run;

pub use error::VerifyError;
pub use options::{Endpoints, Options, Progress};
pub use report::{DatacenterReport, Evidence, Repaired, Report};
pub use run::run;

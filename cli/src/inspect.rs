//! `photon inspect`: the dispatcher's files as JSON Lines, for people and scripts. Offline: nothing
//! is changed, and the dispatcher may run.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use photon_format::cursor::Cursor;
use photon_format::ends::{self, EndRecord, EndState};
use photon_format::retry::{self, Origin};
use photon_format::state::StateError;
use photon_types::EventKey;
use serde_json::{Value, json};

use crate::exit::{self, Exit};
use crate::roles::load;

/// Options of `photon inspect`.
#[derive(Args, Clone, Debug)]
pub struct InspectArgs {
    /// Which file.
    what: What,
    /// The config file of the whole system.
    #[arg(long, value_name = "FILE", env = "PHOTON_CONFIG")]
    config: PathBuf,
    /// Whose dispatcher.
    #[arg(long, value_name = "NAME", env = "PHOTON_DATACENTER")]
    datacenter: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Records that are not joined, with state and reason; dead letters with their bytes.
    Ends,
    /// Clicks that wait to be tried again.
    Retry,
    /// How far each source is passed, and what became of its records.
    Cursor,
}

/// Runs the command.
pub fn run(args: &InspectArgs) -> anyhow::Result<Exit> {
    let config = load(&args.config)?;
    config.datacenter(&args.datacenter)?;
    let directory = config.dispatcher_dir(&args.datacenter);
    if !directory.exists() {
        let message = format!("{} does not exist: no dispatcher of {} ran here", directory.display(), args.datacenter);
        return Err(exit::error(Exit::Failure, message));
    }
    let result = match args.what {
        What::Ends => ends::read(&directory.join("ends")).map(|ends| ends.values().map(end).collect::<Vec<_>>()),
        What::Retry => waiting(&directory.join("retry")),
        What::Cursor => cursor(&directory.join("cursor")),
    };
    let rows = result.map_err(|error| exit::error(exit::of_state(&error), error))?;
    rows.iter().for_each(|row| println!("{row}"));
    Ok(Exit::Ok)
}

fn end(record: &EndRecord) -> Value {
    let EndRecord { source, offset, key, state, reason } = record;
    let (name, raw) = match state {
        EndState::Unjoinable => ("unjoinable", None),
        EndState::Filtered => ("filtered", None),
        EndState::Expired => ("expired", None),
        EndState::ExpiredInDoubt => ("expired in doubt", None),
        EndState::DeadLettered { raw } => ("dead-lettered", Some(bytes(raw))),
    };
    let mut row = json!({ "source": source, "offset": offset, "state": name, "reason": reason });
    if let Some(key) = key {
        row["key"] = self::key(key);
    }
    if let Some(raw) = raw {
        row["raw"] = raw;
    }
    row
}

fn waiting(path: &Path) -> Result<Vec<Value>, StateError> {
    let content = retry::read(path)?;
    let row = |record: &retry::RetryRecord| {
        json!({
            "source": record.source,
            "offset": record.offset,
            "stream": record.stream,
            "key": key(&record.key),
            "reference": bytes(&record.reference),
            "reinjected": matches!(record.origin, Origin::Reinjected { .. }),
            "reason": record.reason,
        })
    };
    Ok(content.iter().map(|(_, record)| row(record)).collect())
}

fn cursor(path: &Path) -> Result<Vec<Value>, StateError> {
    let cursor = Cursor::load(path)?.unwrap_or_default();
    let row = |(name, source): (&String, &photon_format::cursor::SourceCursor)| {
        let counts = source.counts;
        json!({
            "source": name,
            "offset": source.offset,
            "read": counts.read,
            "reinjected": counts.reinjected,
            "joined": counts.joined,
            "claimed": counts.claimed,
            "filtered": counts.filtered,
            "unjoinable": counts.unjoinable,
            "expired": counts.expired,
            "dead_lettered": counts.dead_lettered,
            "skipped": counts.skipped,
        })
    };
    Ok(cursor.sources.iter().map(row).collect())
}

fn key(key: &EventKey) -> Value {
    json!([key.timestamp.micros(), bytes(key.id.as_bytes())])
}

/// Text as it is; other bytes as an array of numbers.
fn bytes(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text))
}

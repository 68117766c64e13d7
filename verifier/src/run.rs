//! One run, from the ends of the sources to the report.
//!
//! Files are read in a thread that may block; the registry and the dispatchers are asked from the
//! caller's runtime.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use photon_check::{Check, Click, Judgement, Progress as Settled, Reach};
use photon_format::config::{Config, Datacenter};
use photon_format::error::SourceError;
use photon_format::keyrules::KeyRules;
use photon_format::source::SourceList;

use crate::datacenter::DatacenterState;
use crate::deleting::Deleting;
use crate::error::VerifyError;
use crate::input::{Growth, Input, scan_late};
use crate::options::{Options, Progress};
use crate::outputs::{self, Task};
use crate::registry::Registry;
use crate::reinject::Dispatchers;
use crate::repair::{Repair, Work, finish_left};
use crate::report::{Evidence, Report};
use crate::seen::Seen;

/// Hears where a run is.
type Tell = Arc<dyn Fn(Progress) + Send + Sync>;

/// Judges every click of the input, once; with `options.repair` brings back what is lost. Idempotent:
/// run it again until the report says that nothing was changed.
///
/// # Errors
/// [`VerifyError`] when no judgement could be made. What is wrong with the output is in the report.
pub async fn run(
    config: &Config,
    options: Options,
    progress: impl Fn(Progress) + Send + Sync + 'static,
) -> Result<Report, VerifyError> {
    let tell: Tell = Arc::new(progress);
    let rules = KeyRules::from_config(config).text();
    // Connected first, to fail before long work; asked last.
    let registry = Registry::connect(&options.endpoints.registry, rules, options.answer_within).await?;
    let reading = {
        let (config, options, tell) = (config.clone(), options.clone(), tell.clone());
        let read = tokio::task::spawn_blocking(move || Reading::read(&config, &options, &*tell)).await;
        read.map_err(|error| VerifyError::Stopped { why: error.to_string() })??
    };
    let Reading { input, mut check, mut report, reach, mut seen, left, now_seconds } = reading;
    registry.ask(&mut check, &*tell).await?;
    let Judgement { ledger, findings, lost, waiting } = check.judge(reach);
    report.ledger = ledger;
    report.findings = findings;
    report.waiting = waiting;
    if options.repair {
        let directory = state_directory(config);
        let (_, stream) = config.foreign();
        let mut repair = Repair {
            registry: &registry,
            dispatchers: Dispatchers::new(options.endpoints.dispatchers.clone(), options.answer_within),
            input: &input,
            stream: &stream.name,
            directory: &directory,
        };
        let brought_back = repair.run(&Work::of(&lost), &mut report, &*tell).await?;
        finish_left(left, &check, reach, &brought_back)?;
    }
    for (name, end) in input.read_ends() {
        seen.note(name, now_seconds, end, options.settle_after);
    }
    seen.save()?;
    report.sources = input.names();
    Ok(report)
}

/// The verifier's own files.
fn state_directory(config: &Config) -> PathBuf {
    config.cluster.data_dir.join("verifier")
}

/// What was read before the registry is asked.
struct Reading {
    input: Input,
    check: Check,
    report: Report,
    reach: Reach,
    seen: Seen,
    left: Vec<Deleting>,
    now_seconds: u64,
}

impl Reading {
    fn read(
        config: &Config,
        options: &Options,
        tell: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Reading, VerifyError> {
        let mut report = Report::default();
        let mut check = Check::new();
        let now_seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let directory = state_directory(config);
        let seen = Seen::load(&directory.join("seen.json"))?;
        let left = Deleting::load_all(&directory)?;
        left.iter().flat_map(|file| &file.keys).for_each(|key| check.add_deleted(key.clone()));

        let lists = list_sources(config, options.sources.as_ref(), &mut report.notes)?;
        let datacenters: Vec<DatacenterState> = config
            .datacenters
            .iter()
            .zip(&lists)
            .map(|(datacenter, list)| DatacenterState::read(config, datacenter, list.as_ref(), &mut report))
            .collect();
        let growth = if options.sources.is_some() { Growth::Final } else { Growth::Follow };
        let mut input = Input::new(config, growth);
        match &options.sources {
            Some(list) => input.grow(list),
            None => lists.iter().flatten().for_each(|list| input.grow(list)),
        }
        let settling = Settling { datacenters: &datacenters, seen: &seen, now_seconds, after: options.settle_after };
        let unread = input.scan(|source, click, end| check.add_click(settling.judge(source, click, end)), tell)?;
        report.notes.append(unread);
        datacenters.iter().for_each(|datacenter| datacenter.read_ends(&input, &mut check, &mut report));

        let reachable = datacenters.iter().filter(|datacenter| datacenter.unreachable.is_none());
        let outputs: Vec<PathBuf> = reachable.map(|datacenter| datacenter.output.clone()).collect();
        let task = Task { repair: options.repair, dead: &options.dead };
        let unlisted = outputs::read(&outputs, task, &input, &mut check, &mut report, tell)?;
        if !unlisted.is_empty() {
            if input.growth() == Growth::Follow {
                let lists = list_sources(config, None, &mut report.notes)?;
                lists.iter().flatten().for_each(|list| input.grow(list));
                scan_late(&mut input, &mut check, tell)?;
            }
            unlisted.judge(&input, &mut report)?;
        }
        let is_whole = datacenters.iter().all(|datacenter| datacenter.unreachable.is_none());
        let reach = if is_whole { Reach::Whole } else { Reach::Partial };
        report.datacenters = datacenters.iter().map(DatacenterState::report).collect();
        Ok(Reading { input, check, report, reach, seen, left, now_seconds })
    }
}

/// Whether a click is settled.
struct Settling<'a> {
    datacenters: &'a [DatacenterState],
    seen: &'a Seen,
    now_seconds: u64,
    after: Duration,
}

impl Settling<'_> {
    fn judge(&self, source: &str, click: Click, end: u64) -> Click {
        let mut reachable = self.datacenters.iter().filter(|datacenter| datacenter.unreachable.is_none()).peekable();
        // Nobody there is nobody who has passed it.
        let is_passed =
            reachable.peek().is_some() && reachable.all(|it| it.is_done_with(source, end, click.key.as_ref()));
        let is_old = || click.place.offset < self.seen.settled_end(source, self.now_seconds, self.after);
        let progress = if is_passed || is_old() { Settled::Settled } else { Settled::Unsettled };
        Click { progress, ..click }
    }
}

/// The input as it lies in each datacenter, in their order; none where it can not be listed.
fn list_sources(
    config: &Config,
    fixed: Option<&SourceList>,
    notes: &mut Evidence,
) -> Result<Vec<Option<SourceList>>, VerifyError> {
    let mut lists = Vec::new();
    let mut failed: Option<SourceError> = None;
    for datacenter in &config.datacenters {
        match list_in(config, fixed, datacenter) {
            Ok(list) => lists.push(Some(list)),
            Err(error) => {
                notes.add(format!("the input as {} has it: {error}", datacenter.name));
                failed = Some(error);
                lists.push(None);
            }
        }
    }
    match failed {
        Some(error) if lists.iter().all(Option::is_none) => Err(error.into()),
        Some(_) | None => Ok(lists),
    }
}

fn list_in(config: &Config, fixed: Option<&SourceList>, datacenter: &Datacenter) -> Result<SourceList, SourceError> {
    match fixed {
        Some(list) => list.in_datacenter(config, datacenter),
        None => SourceList::list(config, datacenter),
    }
}

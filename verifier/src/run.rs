//! One run, from the ends of the sources to the report.
//!
//! Files are read in a thread that may block; the registry and the dispatchers are asked from the
//! caller's runtime.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use photon_check::{Check, Click, Judgement, Place, Progress as Settled, Reach};
use photon_format::config::{Config, Datacenter};
use photon_format::error::SourceError;
use photon_format::keyrules::KeyRules;
use photon_format::source::SourceList;
use photon_types::EventKey;

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
    let Reading { input, mut check, mut report, reach, mut seen, cursors, left, now_seconds } = reading;
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
            dispatchers: Dispatchers::new(readable_first(&options, &report), options.answer_within),
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
    for (datacenter, source, offset) in cursors {
        seen.note_cursor(&datacenter, &source, offset, now_seconds);
    }
    seen.save()?;
    report.sources = input.names();
    Ok(report)
}

/// The dispatchers, last those whose retry store this run can not read: the next one would not see
/// that the clicks wait there, and bring them back again.
fn readable_first(options: &Options, report: &Report) -> Vec<(String, String)> {
    let mut dispatchers = options.endpoints.dispatchers.clone();
    let is_away = |name: &str| report.datacenters.iter().any(|it| it.name == name && it.unreachable.is_some());
    dispatchers.sort_by_key(|(name, _)| is_away(name));
    dispatchers
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
    /// Where each datacenter's cursor stood in each source.
    cursors: Vec<(String, String, u64)>,
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
        let reachable = datacenters.iter().filter(|datacenter| datacenter.unreachable.is_none());
        let outputs: Vec<PathBuf> = reachable.map(|datacenter| datacenter.output.clone()).collect();
        outputs::refuse_unknown(&outputs, &options.dead)?;
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
        doubt_unjoinable(&mut input, &mut check, tell)?;

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
        let readable = datacenters.iter().filter(|it| it.unreachable.is_none() && !it.is_damaged);
        let stands = |it: &DatacenterState| -> Vec<(String, String, u64)> {
            input.read_ends().map(|(source, _)| (it.name.clone(), source.to_owned(), it.passed_end(source))).collect()
        };
        let cursors = readable.flat_map(stands).collect();
        Ok(Reading { input, check, report, reach, seen, cursors, left, now_seconds })
    }
}

/// Looks for the queries of clicks that were recorded not to have one. A store that missed a query, a
/// file that came late or was not mounted: whatever it was, the record is wrong when the query is here.
fn doubt_unjoinable(
    input: &mut Input,
    check: &mut Check,
    tell: &(dyn Fn(Progress) + Send + Sync),
) -> Result<(), VerifyError> {
    input.find_queries(check.unjoinable(), tell)?;
    let found = |key: &EventKey| Some((key.clone(), input.query_of(key)?));
    let found: Vec<(EventKey, Place)> = check.unjoinable().filter_map(found).collect();
    found.into_iter().for_each(|(key, query)| check.set_query(&key, query));
    Ok(())
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
        let reachable = || self.datacenters.iter().filter(|datacenter| datacenter.unreachable.is_none());
        // Its dispatcher will bring it to an end, however long it waits: age says nothing against it.
        let is_kept = click.key.as_ref().is_some_and(|key| reachable().any(|it| it.keeps(key)));
        let is_old = click.place.offset < self.seen.settled_end(source, self.now_seconds, self.after);
        let is_done = |it: &DatacenterState| it.has_passed(source, end) || (is_old && !self.is_on_its_way(it, source));
        // Nobody there is nobody who has passed it.
        let is_settled = !is_kept && (reachable().next().is_some() || is_old) && reachable().all(is_done);
        let progress = if is_settled { Settled::Settled } else { Settled::Unsettled };
        Click { progress, ..click }
    }

    /// Whether a dispatcher's cursor has moved lately: it will come to what it has not passed.
    fn is_on_its_way(&self, datacenter: &DatacenterState, source: &str) -> bool {
        let offset = datacenter.passed_end(source);
        !datacenter.is_damaged && !self.seen.stands(&datacenter.name, source, offset, self.now_seconds, self.after)
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

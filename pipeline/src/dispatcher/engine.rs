//! The one task that knows all clicks under way, and moves each to its end.
//!
//! ```text
//!  follower ─▶ look up ─▶ join ─▶ ended: cursor
//!                 ▲  ╲       ╲──▶ ended: ends file, then cursor
//!                 │   ╲ Present  ╲ missing, behind, no answer
//!                 │    ▶ ended    ▼
//!                 └── due ◀── retry store, then cursor
//! ```
//!
//! Invariant: a click is in one place: waiting for one of the two calls, in a call, with the files,
//! or in the schedule. The cursor passes it when its end, or its place in the retry store, is
//! durable. A click that was put back is never looked up.
//!
//! Not here: decisions on cursor, misses and waits (`photon-join`); files (`state`).

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bytes::Bytes;
use photon_client::ClientError;
use photon_format::cursor as saved;
use photon_format::ends::{EndRecord, EndState};
use photon_format::retry::{self, Origin, RetryRecord};
use photon_format::source::{FileIdentity, Head};
use photon_join::Monotonic;
use photon_join::backoff::Backoff;
use photon_join::cursor::{Cursor, Passed, RecordNumber};
use photon_join::ledger::{Counts, End};
use photon_join::missing::Judgement;
use photon_join::pace::Pace;
use photon_join::retry::{Attempts, Failure, RetryId, Schedule};
use photon_types::Prng;
use photon_types::{EventKey, Timestamp};
use tokio::time::Instant;
use tracing::warn;

use super::bounds::{
    Bounds, CALL_BACKOFF, FULL_PAUSE, JOIN_BATCH_MAX, JOIN_CALLS_MAX, LOOK_BATCH_MAX, LOOK_CALLS_MAX, Stage,
    WINDOW_BYTES_MAX,
};
use super::calls::{CallReport, Calls, JoinAnswer, JoinEnd, JoinItem, Looked};
use super::convert::{counts_from_saved, counts_to_saved, end_from_saved, end_to_saved};
use super::follow::{Batch, Record, RecordKind};
use super::outbox::{Dones, Outbox};
use super::state::{ClickId, Ending, Files, Opened, Order, Report, SourceNumber};
use crate::error::PipelineError;
use crate::life::BATCH_BYTES_MAX;

/// Where a click is counted when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    /// Read by this life, in front of the cursor.
    Window(RecordNumber),
    /// In the retry store.
    Store(retry::RetryId),
}

#[derive(Debug)]
struct Click {
    source: SourceNumber,
    offset: u64,
    home: Home,
    key: EventKey,
    reference: Bytes,
    payload: Bytes,
    attempts: Attempts,
    /// Put back by a verifier: no look-up before its Join.
    is_reinjected: bool,
    /// The wait that goes with it into the schedule.
    wait: Duration,
}

#[derive(Debug)]
struct Source {
    name: String,
    identity: FileIdentity,
    cursor: Cursor,
    head: Head,
    /// What the file begins with, until the head covers all that it can.
    beginning: Bytes,
}

/// What an engine is made of, beside its lanes.
pub(super) struct Setup {
    pub bounds: Bounds,
    pub prng: Prng,
    pub records_per_second_max: u64,
    /// The name of the foreign stream.
    pub stream: String,
}

/// The state of the dispatcher.
pub(super) struct Engine {
    bounds: Bounds,
    prng: Prng,
    pace: Pace,
    start: Instant,
    /// The name of the foreign stream.
    stream: String,
    outbox: Outbox,
    calls: Calls,
    sources: Vec<Source>,
    by_name: HashMap<String, SourceNumber>,
    clicks: HashMap<ClickId, Click>,
    last_click: u64,
    schedule: Schedule,
    look: Stage,
    join: Stage,
    /// Records in front of the cursors, and their bytes.
    window: usize,
    window_bytes: usize,
    /// Batches that the files are asked about.
    checking: usize,
    is_new: bool,
    /// Something changed since the last save was ordered.
    is_unsaved: bool,
    is_saving: bool,
    /// Sources whose counts have changed since somebody looked.
    changed: BTreeSet<SourceNumber>,
    /// The retry store has refused clicks, and has taken none since.
    is_full: bool,
}

impl Engine {
    pub fn new(setup: Setup, files: Files, calls: Calls, opened: Opened) -> Engine {
        let Setup { bounds, prng, records_per_second_max, stream } = setup;
        let start = Instant::now();
        let mut engine = Engine {
            bounds,
            prng,
            pace: Pace::new(records_per_second_max, records_per_second_max.div_ceil(10), Monotonic::default()),
            start,
            stream,
            outbox: Outbox::new(files),
            calls,
            sources: Vec::new(),
            by_name: HashMap::new(),
            clicks: HashMap::new(),
            last_click: 0,
            schedule: Schedule::default(),
            look: Stage::default(),
            join: Stage::default(),
            window: 0,
            window_bytes: 0,
            checking: 0,
            is_new: opened.is_new,
            is_unsaved: false,
            is_saving: false,
            changed: BTreeSet::new(),
            is_full: false,
        };
        for (name, source) in opened.cursor.sources {
            let identity = FileIdentity { device: source.device, inode: source.inode };
            let cursor = Cursor::new(source.offset, counts_from_saved(source.counts));
            let number = engine.add_source(name, identity, cursor);
            engine.sources[number.0].head = source.head;
        }
        engine.take_pending(opened.pending);
        engine
    }

    pub fn now(&self) -> Monotonic {
        Monotonic(self.start.elapsed())
    }

    pub fn instant(&self, at: Monotonic) -> Instant {
        self.start + at.0
    }

    fn add_source(&mut self, name: String, identity: FileIdentity, cursor: Cursor) -> SourceNumber {
        let number = SourceNumber(self.sources.len());
        self.by_name.insert(name.clone(), number);
        self.sources.push(Source { name, identity, cursor, head: Head::default(), beginning: Bytes::new() });
        self.changed.insert(number);
        number
    }

    /// The source of this name; a new one has no file yet.
    fn source(&mut self, name: &str) -> SourceNumber {
        match self.by_name.get(name) {
            Some(number) => *number,
            None => {
                let nowhere = FileIdentity { device: 0, inode: 0 };
                self.add_source(name.to_owned(), nowhere, Cursor::new(0, Counts::default()))
            }
        }
    }

    /// Clicks of the retry store: due at once.
    fn take_pending(&mut self, pending: Vec<(retry::RetryId, RetryRecord)>) {
        let now = self.now();
        for (id, record) in pending {
            let RetryRecord { source, offset, stream: _, key, reference, payload, origin, reason: _ } = record;
            let source = self.source(&source);
            let click = self.add_click(Click {
                source,
                offset,
                home: Home::Store(id),
                key,
                reference,
                payload,
                attempts: Attempts::default(),
                is_reinjected: matches!(origin, Origin::Reinjected { .. }),
                wait: Duration::ZERO,
            });
            self.schedule.add(RetryId(click.0), now, Attempts::default());
        }
    }

    fn add_click(&mut self, click: Click) -> ClickId {
        self.last_click += 1;
        let id = ClickId(self.last_click);
        self.clicks.insert(id, click);
        id
    }

    /// Whether there is room for another batch of the follower.
    pub fn has_room(&mut self) -> bool {
        let now = self.now();
        self.window_has_room() && 0 < self.pace.room(now)
    }

    fn window_has_room(&self) -> bool {
        self.window < self.bounds.window && self.window_bytes < WINDOW_BYTES_MAX && self.checking == 0
    }

    /// Nothing is under way, and nothing waits in the retry store.
    pub fn is_idle(&self) -> bool {
        self.window == 0 && self.clicks.is_empty() && self.checking == 0
    }

    /// Calls that are not over.
    pub fn calls_open(&self) -> usize {
        self.look.calls + self.join.calls
    }

    /// Records under way, and clicks in the retry store.
    pub fn usage(&self) -> (usize, usize) {
        (self.window, self.schedule.len())
    }

    /// The next time at which something is due without any event.
    pub fn next_deadline(&mut self) -> Option<Monotonic> {
        let room = self.schedule.under_way() < self.bounds.retries_under_way;
        let due = self.schedule.next_deadline().filter(|_| room);
        let paused = |stage: &Stage| (!stage.waiting.is_empty()).then_some(stage.pause_until);
        let now = self.now();
        let paused = [&self.look, &self.join].into_iter().filter_map(paused).filter(|until| now < *until).min();
        // A full window waits for an answer, whatever the pace.
        let pace = if self.window_has_room() { self.pace.due(now) } else { None };
        [due, paused, pace].into_iter().flatten().min()
    }

    /// Records of the follower. Those of an earlier life are asked of the files first.
    pub fn on_batch(&mut self, batch: Batch) -> Result<(), PipelineError> {
        self.pace.take(batch.records.len() as u64);
        let may_be_known = !self.is_new && batch.records.first().is_some_and(|it| it.offset < batch.met_size);
        if may_be_known {
            self.checking += 1;
            return self.outbox.give(Order::Check(batch));
        }
        let known = vec![false; batch.records.len()];
        self.begin(batch, &known);
        Ok(())
    }

    fn begin(&mut self, batch: Batch, known: &[bool]) {
        let Batch { source: name, identity, beginning, met_size: _, records, skipped, read_end, bytes: _ } = batch;
        let source = self.source(&name);
        let is_further = self.sources[source.0].cursor.read_end() < read_end;
        self.is_unsaved |= is_further || self.sources[source.0].identity != identity;
        self.sources[source.0].take_file(identity, beginning);
        let mut skipped = skipped.into_iter().peekable();
        let count = records.len();
        for (index, (record, is_known)) in records.into_iter().zip(known).enumerate() {
            while let Some(skip) = skipped.next_if(|skip| skip.behind <= index) {
                self.sources[source.0].cursor.skip_to(skip.end, skip.actions);
            }
            self.begin_record(source, record, *is_known);
        }
        for skip in skipped {
            assert!(skip.behind == count, "actions lie behind records of their batch");
            self.sources[source.0].cursor.skip_to(skip.end, skip.actions);
        }
        self.sources[source.0].cursor.skip_to(read_end, 0);
    }

    fn begin_record(&mut self, source: SourceNumber, record: Record, is_known: bool) {
        let Record { offset, end, kind } = record;
        let number = self.sources[source.0].cursor.begin(end);
        self.window += 1;
        if is_known {
            // An earlier life had it in the retry store before its cursor was saved.
            return self.pass(source, number, Passed::Deferred, 0);
        }
        match kind {
            RecordKind::Click { key, reference, payload } => {
                self.window_bytes += payload.len();
                let id = self.add_click(Click {
                    source,
                    offset,
                    home: Home::Window(number),
                    key,
                    reference,
                    payload,
                    attempts: Attempts::default(),
                    is_reinjected: false,
                    wait: Duration::ZERO,
                });
                self.look.waiting.push_back(id);
            }
            RecordKind::DeadLetter { key, reason, raw } => {
                let bytes = raw.len();
                self.window_bytes += bytes;
                let reason = format!("{}: {reason}", reason.code());
                let name = self.sources[source.0].name.clone();
                let record = EndRecord { source: name, offset, key, state: EndState::DeadLettered { raw }, reason };
                self.outbox.end(Ending::Record { source, number, bytes }, record);
            }
        }
    }

    fn pass(&mut self, source: SourceNumber, number: RecordNumber, passed: Passed, bytes: usize) {
        self.sources[source.0].cursor.pass(number, passed);
        self.window -= 1;
        self.window_bytes -= bytes;
        self.is_unsaved = true;
        self.changed.insert(source);
    }

    /// Answers of registry and joiner.
    pub fn on_call(&mut self, report: CallReport) {
        let now = self.now();
        match report {
            CallReport::Looked { results, failed } => {
                self.look.calls -= 1;
                self.look.in_calls -= results.len() + failed.len();
                self.on_looked(now, results, failed);
            }
            CallReport::Joined(results) => {
                self.join.in_calls -= results.len();
                self.join.backoff = Backoff::default();
                // Of a joiner that is always busy nothing comes.
                if results.iter().any(|(_, answer)| !matches!(answer, JoinAnswer::Busy { .. })) {
                    self.join.on_answered(now);
                }
                results.into_iter().for_each(|(id, joined)| self.on_joined(now, id, joined));
            }
            CallReport::JoinEnded { unanswered, end } => {
                self.join.calls -= 1;
                self.join.in_calls -= unanswered.len();
                self.on_join_ended(now, unanswered, end);
            }
        }
    }

    fn on_looked(&mut self, now: Monotonic, results: Vec<(ClickId, Looked)>, failed: Vec<(ClickId, ClientError)>) {
        if !results.is_empty() {
            self.look.backoff = Backoff::default();
            self.look.on_answered(now);
        }
        for (id, looked) in results {
            match looked {
                Looked::Present => self.finish(id, End::Claimed),
                Looked::Absent => self.join.waiting.push_back(id),
                Looked::Expired => self.write_end(id, EndState::Expired, "below the registry's boundary".into()),
            }
        }
        if let Some((_, error)) = failed.first() {
            self.look.why = error.to_string();
        }
        if let Some((_, error)) = failed.first()
            && let Some(wait) = self.look.on_failed(now, &mut self.prng)
        {
            warn!(%error, ?wait, "the registry can not be asked; clicks wait");
        }
        self.look.put_back(failed.into_iter().map(|(id, _)| id));
    }

    fn on_join_ended(&mut self, now: Monotonic, unanswered: Vec<ClickId>, end: JoinEnd) {
        let why = match end {
            JoinEnd::Waited => {
                self.join.why.clear();
                return unanswered
                    .into_iter()
                    .for_each(|id| self.fail(now, id, Failure::NoAnswer, "no answer in time"));
            }
            JoinEnd::Failed(why) => why,
            JoinEnd::Refused => "it has no room".into(),
        };
        if unanswered.is_empty() {
            return;
        }
        self.join.why.clone_from(&why);
        if let Some(wait) = self.join.on_failed(now, &mut self.prng) {
            warn!(why, ?wait, "the joiner can not be asked; clicks wait");
        }
        self.join.put_back(unanswered.into_iter());
    }

    fn on_joined(&mut self, now: Monotonic, id: ClickId, joined: JoinAnswer) {
        match joined {
            JoinAnswer::Joined => self.finish(id, End::Joined),
            JoinAnswer::Duplicate => self.finish(id, End::Claimed),
            JoinAnswer::Filtered => self.write_end(id, EndState::Filtered, "the filter does not pass this pair".into()),
            JoinAnswer::Expired { boundary, in_doubt } => {
                let state = if in_doubt { EndState::ExpiredInDoubt } else { EndState::Expired };
                let boundary = boundary.map_or_else(String::new, |boundary| format!(" {boundary}"));
                self.write_end(id, state, format!("below the registry's boundary{boundary}"));
            }
            JoinAnswer::Missing(position) => {
                let window = self.bounds.join_window;
                let click = self.clicks.get_mut(&id).expect("a click in a call");
                match click.attempts.on_miss(position, click.key.timestamp, wall_clock(), window) {
                    Judgement::AskAgain => self.fail(now, id, Failure::Missing, "its query is not there yet"),
                    Judgement::Unjoinable => {
                        let reason = format!("no source has query {}", click.reference.escape_ascii());
                        self.write_end(id, EndState::Unjoinable, reason);
                    }
                }
            }
            JoinAnswer::Behind => self.fail(now, id, Failure::Behind, "the event store is behind"),
            JoinAnswer::Unreadable => self.fail(now, id, Failure::Unreadable, "its query can not be read again"),
            JoinAnswer::Busy { retry_after } => {
                self.join.pause(now.after(retry_after.min(CALL_BACKOFF.max)));
                self.join.waiting.push_front(id);
            }
            JoinAnswer::Invalid { reason } => {
                let raw = self.clicks[&id].payload.to_vec();
                self.write_end(id, EndState::DeadLettered { raw }, format!("the joiner refuses it: {reason}"));
            }
        }
    }

    /// It was not joined: it goes into the retry store, or back there.
    fn fail(&mut self, now: Monotonic, id: ClickId, failure: Failure, why: &str) {
        let click = self.clicks.get_mut(&id).expect("a click in a call");
        click.wait = click.attempts.wait_after(failure, self.bounds.backoff, &mut self.prng);
        match click.home {
            Home::Store(_) => self.schedule.put_back(RetryId(id.0), now.after(click.wait), click.attempts),
            Home::Window(_) => {
                let record = RetryRecord {
                    source: self.sources[click.source.0].name.clone(),
                    offset: click.offset,
                    stream: self.stream.clone(),
                    key: click.key.clone(),
                    reference: click.reference.clone(),
                    payload: click.payload.clone(),
                    origin: Origin::Read,
                    reason: why.to_owned(),
                };
                self.outbox.defer(id, record);
            }
        }
    }

    /// Its end is written down before it counts.
    fn write_end(&mut self, id: ClickId, state: EndState, reason: String) {
        let click = &self.clicks[&id];
        let source = self.sources[click.source.0].name.clone();
        let record = EndRecord { source, offset: click.offset, key: Some(click.key.clone()), state, reason };
        self.outbox.end(Ending::Click(id), record);
    }

    /// It has ended, durably.
    fn finish(&mut self, id: ClickId, end: End) {
        let click = self.clicks.remove(&id).expect("a click under way");
        match click.home {
            Home::Window(number) => self.pass(click.source, number, Passed::Ended(end), click.payload.len()),
            Home::Store(retry_id) => {
                self.sources[click.source.0].cursor.end_deferred(end);
                self.changed.insert(click.source);
                self.schedule.end(RetryId(id.0));
                self.outbox.done(retry_id, end_to_saved(end));
                self.is_unsaved = true;
            }
        }
    }

    /// What the files did.
    pub fn on_report(&mut self, report: Report) -> Result<(), PipelineError> {
        let now = self.now();
        match report {
            Report::Checked { batch, known } => {
                self.checking -= 1;
                self.begin(batch, &known);
            }
            Report::Ended(ended) => {
                for (ending, ended) in ended {
                    let end = end_from_saved(ended);
                    match ending {
                        Ending::Click(id) => self.finish(id, end),
                        Ending::Record { source, number, bytes } => {
                            self.pass(source, number, Passed::Ended(end), bytes)
                        }
                    }
                }
            }
            Report::Done => self.outbox.on_done(),
            Report::Deferred(clicks) => {
                self.is_full &= clicks.is_empty();
                for (id, retry_id) in clicks {
                    let click = self.clicks.get_mut(&id).expect("a click that was deferred");
                    let Home::Window(number) = click.home else { panic!("{retry_id:?} was deferred twice") };
                    click.home = Home::Store(retry_id);
                    let (source, bytes) = (click.source, click.payload.len());
                    self.schedule.add(RetryId(id.0), now.after(click.wait), click.attempts);
                    self.pass(source, number, Passed::Deferred, bytes);
                }
            }
            Report::Full(ids) => {
                self.is_full = true;
                self.join.pause(now.after(FULL_PAUSE));
                self.join.waiting.extend(ids);
            }
            Report::Reinjected(clicks) => {
                self.is_unsaved |= !clicks.is_empty();
                for (_, record) in &clicks {
                    let source = self.source(&record.source);
                    self.sources[source.0].cursor.count_reinjected();
                    self.changed.insert(source);
                }
                self.take_pending(clicks);
            }
            Report::Saved => self.is_saving = false,
            Report::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Gives out what has room: due clicks, look-ups, joins, orders to the files.
    pub fn pump(&mut self, may_call: bool) -> Result<(), PipelineError> {
        let now = self.now();
        if may_call {
            self.take_due(now);
            self.call_look(now);
            self.call_join(now);
        }
        self.outbox.flush(Dones::Merged)
    }

    /// Why clicks wait, for people: who has not answered for longer than a call may take, and whether
    /// the retry store holds up reading.
    pub fn troubles(&self) -> Vec<String> {
        let (now, limit) = (self.now(), self.calls.timeout);
        let look = self.look.trouble("the registry", now, limit);
        let join = self.join.trouble("the joiner", now, limit);
        let waits = look.into_iter().chain(join).filter(|_| !self.clicks.is_empty());
        let is_full = self.is_full && 0 < self.window;
        let full = is_full.then(|| "the retry store is full, and reading waits: raise join.retry-store?".to_owned());
        waits.chain(full).collect()
    }

    fn take_due(&mut self, now: Monotonic) {
        while self.schedule.under_way() < self.bounds.retries_under_way
            && let Some((RetryId(id), attempts)) = self.schedule.take(now)
        {
            let id = ClickId(id);
            let click = self.clicks.get_mut(&id).expect("what is scheduled is a click");
            click.attempts = attempts;
            // No look-up before the Join of a click that was put back: it could be older than the
            // delete that went before.
            let stage = if click.is_reinjected { &mut self.join } else { &mut self.look };
            stage.waiting.push_back(id);
        }
    }

    fn call_look(&mut self, now: Monotonic) {
        while self.look.pause_until <= now && self.look.calls < LOOK_CALLS_MAX && !self.look.waiting.is_empty() {
            let count = self.look.waiting.len().min(LOOK_BATCH_MAX);
            let batch: Vec<_> = self.look.waiting.drain(..count).map(|id| (id, self.clicks[&id].key.clone())).collect();
            self.look.calls += 1;
            self.look.in_calls += batch.len();
            self.look.on_called(now);
            self.calls.look(batch);
        }
    }

    fn call_join(&mut self, now: Monotonic) {
        while self.join.pause_until <= now
            && self.join.calls < JOIN_CALLS_MAX
            && self.join.in_calls < self.bounds.joins
            && !self.join.waiting.is_empty()
        {
            let room = JOIN_BATCH_MAX.min(self.bounds.joins - self.join.in_calls);
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while batch.len() < room
                && bytes < BATCH_BYTES_MAX
                && let Some(id) = self.join.waiting.pop_front()
            {
                let click = &self.clicks[&id];
                bytes += click.payload.len();
                let (key, reference, payload) = (click.key.clone(), click.reference.clone(), click.payload.clone());
                batch.push(JoinItem { id, key, reference, payload });
            }
            self.join.calls += 1;
            self.join.in_calls += batch.len();
            self.join.on_called(now);
            self.calls.join(batch);
        }
    }

    /// Whether the cursor on disk is behind, and no save is on its way.
    pub fn wants_save(&self) -> bool {
        self.is_unsaved && !self.is_saving
    }

    /// A save is on its way.
    pub fn is_saving(&self) -> bool {
        self.is_saving
    }

    /// Orders a save of all that has happened so far.
    pub fn save(&mut self) -> Result<(), PipelineError> {
        // What the cursor counts must lie before it in the order queue.
        self.outbox.flush(Dones::All)?;
        self.is_unsaved = false;
        self.is_saving = true;
        let sources = self.sources.iter_mut().map(|source| (source.name.clone(), source.saved())).collect();
        self.outbox.give(Order::Save(saved::Cursor { sources, retry_end: 0 }))
    }

    /// The counts of the sources that have changed since the last call, for people.
    pub fn take_changed(&mut self) -> impl Iterator<Item = (&str, saved::Counts)> {
        let changed = std::mem::take(&mut self.changed);
        let sources = &self.sources;
        changed.into_iter().map(|number| {
            let source = &sources[number.0];
            (source.name.as_str(), counts_to_saved(source.cursor.counts()))
        })
    }
}

impl Source {
    /// The file that is read, and what it begins with.
    fn take_file(&mut self, identity: FileIdentity, beginning: Bytes) {
        self.identity = identity;
        if !self.head.is_whole(u64::MAX) {
            self.beginning = beginning;
        }
    }

    fn saved(&mut self) -> saved::SourceCursor {
        let offset = self.cursor.offset();
        if !self.head.is_whole(offset) && !self.beginning.is_empty() {
            self.head = Head::of(&self.beginning, offset);
        }
        if self.head.is_whole(u64::MAX) {
            self.beginning = Bytes::new();
        }
        saved::SourceCursor {
            device: self.identity.device,
            inode: self.identity.inode,
            offset,
            head: self.head,
            counts: counts_to_saved(self.cursor.counts()),
        }
    }
}

/// The machine's clock. Only the age of a click depends on it, and no click ends by age alone.
fn wall_clock() -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let micros = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
    Timestamp::from_micros(micros).unwrap_or(Timestamp::ZERO)
}

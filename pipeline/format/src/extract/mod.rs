//! What a record is: a query, a click with its key, a dead letter, or nothing that anybody asked for.
//!
//! One extractor per input. The foreign stream is asked first, whatever the order in the config
//! file, so that the key rules, which speak of that stream alone, say all about which clicks there are.
//!
//! | the record | becomes |
//! |---|---|
//! | no stream's predicate holds | [`Classified::NotSelected`]: it is not read |
//! | bulk `delete` or `update` | [`Classified::Skipped`] |
//! | an action line that can not be read | a dead letter without a key, of the input's foreign stream if it has one |
//! | a document that is not JSON or too long | a dead letter without a key, of the first stream whose conditions on the action line hold |
//! | a click with a bad id or time | a dead letter without a key |
//! | a click whose reference is null, missing or can match nothing | a dead letter with its key |
//! | a query with a bad id | a dead letter of its primary stream |
//!
//! Invariant: the result depends on the record's bytes, its offset, its source's name and the
//! configuration, and on nothing else: two datacenters and the verifier get the same.

mod reason;
pub(crate) mod values;

use std::fmt;

use photon_types::{EVENT_ID_BYTES_MAX, EventId, EventKey};

pub use reason::Reason;

use self::values::{FieldPlan, FieldsError, Scalar, Slots};
use crate::config::{Config, Framing, IdSource, InputIndex, Role, Stream, StreamIndex, StreamKind};
use crate::framing::{Document, Frame, Operation, Record};
use crate::predicate::Matcher;
use crate::time::TimeRule;

/// The longest id of a query, in bytes; also of a reference to one.
pub const JOIN_ID_BYTES_MAX: usize = 1024;

/// What queries are found by: the id of a query, or a click's reference to it. 1 to
/// [`JOIN_ID_BYTES_MAX`] opaque bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JoinId(Box<[u8]>);

impl JoinId {
    /// An id from bytes; none when there are no bytes or too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<JoinId> {
        (1..=JOIN_ID_BYTES_MAX).contains(&bytes.len()).then(|| JoinId(bytes.into()))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0.into_vec()
    }
}

/// For people.
impl fmt::Display for JoinId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

/// What a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Classified {
    /// A query.
    Primary {
        /// Its stream.
        stream: StreamIndex,
        /// What clicks refer to.
        id: JoinId,
    },
    /// A click.
    Foreign {
        /// Its stream.
        stream: StreamIndex,
        /// Its key.
        key: EventKey,
        /// The query it names.
        reference: JoinId,
    },
    /// A record that can not be joined, whatever comes.
    DeadLetter {
        /// Its stream. A dead letter of a primary stream is no click: it is in no ledger.
        stream: StreamIndex,
        /// That stream's role.
        role: Role,
        /// Its key, if it has one.
        key: Option<EventKey>,
        /// Why.
        reason: Reason,
    },
    /// No stream asks for it.
    NotSelected,
    /// A bulk operation that adds no event.
    Skipped {
        /// Which.
        operation: Operation,
    },
}

/// Tells what the records of one input are.
#[derive(Clone, Debug)]
pub struct Extractor {
    input: InputIndex,
    framing: Framing,
    line_bytes_max: usize,
    plan: FieldPlan,
    /// The foreign stream first.
    streams: Vec<StreamPlan>,
}

#[derive(Clone, Debug)]
struct StreamPlan {
    index: StreamIndex,
    select: Matcher,
    id: IdPlan,
    kind: KindPlan,
}

#[derive(Clone, Debug)]
enum IdPlan {
    Slot(usize),
    ActionId,
    Position,
}

#[derive(Clone, Debug)]
enum KindPlan {
    Primary,
    Foreign { reference: usize, time: usize, rule: TimeRule },
}

impl Extractor {
    /// The extractor of an input.
    #[must_use]
    pub fn new(config: &Config, input: InputIndex) -> Extractor {
        Extractor::compile(config, input).expect("checked when the configuration was loaded")
    }

    /// As [`Extractor::new`], with a message when the streams name too many fields.
    pub(crate) fn compile(config: &Config, input: InputIndex) -> Result<Extractor, String> {
        let mut plan = FieldPlan::default();
        let mut streams = Vec::new();
        for (index, stream) in config.join.streams.iter().enumerate().filter(|(_, stream)| stream.input == input) {
            streams.push(StreamPlan::compile(StreamIndex(index), stream, &mut plan)?);
        }
        streams.sort_by_key(|stream| (stream.role() != Role::Foreign, stream.index));
        Ok(Extractor {
            input,
            framing: config.join.inputs[input.0].framing,
            line_bytes_max: config.join.line_max.as_usize(),
            plan,
            streams,
        })
    }

    /// The extractors of all inputs, by [`InputIndex`].
    #[must_use]
    pub fn of_all_inputs(config: &Config) -> Vec<Extractor> {
        (0..config.join.inputs.len()).map(|input| Extractor::new(config, InputIndex(input))).collect()
    }

    /// The input.
    #[must_use]
    pub fn input(&self) -> InputIndex {
        self.input
    }

    /// Whether a stream of this role is read from the input.
    #[must_use]
    pub fn has(&self, role: Role) -> bool {
        self.streams.iter().any(|stream| stream.role() == role)
    }

    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }

    pub(crate) fn line_bytes_max(&self) -> usize {
        self.line_bytes_max
    }

    /// What a frame of the source named `source` is.
    #[must_use]
    pub fn classify(&self, source: &str, frame: &Frame<'_>) -> Classified {
        match frame {
            Frame::Record(record) => self.classify_record(source, record),
            Frame::BadAction { .. } => self.streams[0].dead_letter(None, Reason::ActionUnreadable),
            Frame::Skipped { operation, .. } => Classified::Skipped { operation: *operation },
        }
    }

    fn classify_record(&self, source: &str, record: &Record<'_>) -> Classified {
        let fields = match record.document {
            Document::Line(line) => self.plan.read(line).map_err(|error| match error {
                FieldsError::Utf8 => Reason::NotUtf8,
                FieldsError::Json => Reason::NotJson,
                FieldsError::NotAnObject => Reason::NotAnObject,
            }),
            Document::TooLong { .. } => Err(Reason::LineTooLong),
        };
        let slots = match fields {
            Ok(slots) => slots,
            Err(reason) => {
                let owner = self.streams.iter().find(|stream| self.owns_unreadable(stream, record, reason));
                return owner.map_or(Classified::NotSelected, |stream| stream.dead_letter(None, reason));
            }
        };
        match self.streams.iter().find(|stream| stream.select.holds(record.action.as_ref(), &slots)) {
            None => Classified::NotSelected,
            Some(stream) => stream.classify(source, record, &slots),
        }
    }

    /// Of a document that gives no fields, only the action line can say whose it is. One that is
    /// JSON but no object has no fields, so that what asks for a field does not select it.
    fn owns_unreadable(&self, stream: &StreamPlan, record: &Record<'_>, reason: Reason) -> bool {
        let action = record.action.as_ref();
        if reason == Reason::NotAnObject {
            return stream.select.holds(action, &self.plan.no_fields());
        }
        stream.select.action_holds(action)
    }
}

impl StreamPlan {
    fn compile(index: StreamIndex, stream: &Stream, plan: &mut FieldPlan) -> Result<StreamPlan, String> {
        Ok(StreamPlan {
            index,
            select: stream.select.compile(plan)?,
            id: match &stream.id {
                IdSource::Field(path) => IdPlan::Slot(plan.slot(path)?),
                IdSource::ActionId => IdPlan::ActionId,
                IdSource::Position => IdPlan::Position,
            },
            kind: match &stream.kind {
                StreamKind::Primary => KindPlan::Primary,
                StreamKind::Foreign { reference, time } => KindPlan::Foreign {
                    reference: plan.slot(reference)?,
                    time: plan.slot(time.field())?,
                    rule: time.clone(),
                },
            },
        })
    }

    fn role(&self) -> Role {
        match self.kind {
            KindPlan::Primary => Role::Primary,
            KindPlan::Foreign { .. } => Role::Foreign,
        }
    }

    fn dead_letter(&self, key: Option<EventKey>, reason: Reason) -> Classified {
        Classified::DeadLetter { stream: self.index, role: self.role(), key, reason }
    }

    fn classify(&self, source: &str, record: &Record<'_>, slots: &Slots<'_>) -> Classified {
        match &self.kind {
            KindPlan::Primary => match self.id(source, record, slots, JOIN_ID_BYTES_MAX) {
                Ok(id) => Classified::Primary { stream: self.index, id: JoinId(id) },
                Err(reason) => self.dead_letter(None, reason),
            },
            KindPlan::Foreign { reference, time, rule } => {
                let key = self
                    .id(source, record, slots, EVENT_ID_BYTES_MAX)
                    .and_then(|id| event_key(&id, &slots.scalar(*time), rule));
                let key = match key {
                    Ok(key) => key,
                    Err(reason) => return self.dead_letter(None, reason),
                };
                match id_bytes(&slots.scalar(*reference), JOIN_ID_BYTES_MAX) {
                    Ok(id) => Classified::Foreign { stream: self.index, key, reference: JoinId(id) },
                    Err(fault) => self.dead_letter(Some(key), fault.of_reference()),
                }
            }
        }
    }

    fn id(&self, source: &str, record: &Record<'_>, slots: &Slots<'_>, bytes_max: usize) -> Result<Box<[u8]>, Reason> {
        let scalar = match self.id {
            IdPlan::Slot(slot) => slots.scalar(slot),
            IdPlan::ActionId => match record.action.as_ref().and_then(|action| action.id.as_deref()) {
                Some(id) => Scalar::Text(id.into()),
                None => Scalar::Missing,
            },
            IdPlan::Position => Scalar::Text(format!("{source}:{}", record.offset).into()),
        };
        id_bytes(&scalar, bytes_max).map_err(IdFault::of_id)
    }
}

fn event_key(id: &[u8], time: &Scalar<'_>, rule: &TimeRule) -> Result<EventKey, Reason> {
    if matches!(time, Scalar::Missing | Scalar::Null) {
        return Err(Reason::TimeMissing);
    }
    let timestamp = rule.read(time).ok_or(Reason::TimeUnreadable)?;
    Ok(EventKey { timestamp, id: EventId::new(id).map_err(|_| Reason::IdTooLong)? })
}

/// Why a value is no id.
#[derive(Clone, Copy)]
enum IdFault {
    Missing,
    Empty,
    TooLong,
    Kind,
}

/// A text's bytes, or an integer's digits: `12` and `"12"` are one id.
fn id_bytes(scalar: &Scalar<'_>, bytes_max: usize) -> Result<Box<[u8]>, IdFault> {
    let bytes = match scalar {
        Scalar::Text(text) => text.as_bytes(),
        Scalar::Integer(digits) => digits.as_bytes(),
        Scalar::Missing | Scalar::Null => return Err(IdFault::Missing),
        Scalar::Boolean(_) | Scalar::Unreadable | Scalar::Other => return Err(IdFault::Kind),
    };
    match bytes.len() {
        0 => Err(IdFault::Empty),
        length if bytes_max < length => Err(IdFault::TooLong),
        _ => Ok(bytes.into()),
    }
}

impl IdFault {
    fn of_id(self) -> Reason {
        match self {
            IdFault::Missing => Reason::IdMissing,
            IdFault::Empty => Reason::IdEmpty,
            IdFault::TooLong => Reason::IdTooLong,
            IdFault::Kind => Reason::IdKind,
        }
    }

    fn of_reference(self) -> Reason {
        match self {
            IdFault::Missing => Reason::ReferenceMissing,
            IdFault::Empty => Reason::ReferenceEmpty,
            IdFault::TooLong => Reason::ReferenceTooLong,
            IdFault::Kind => Reason::ReferenceKind,
        }
    }
}

#[cfg(test)]
mod tests;

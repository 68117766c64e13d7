//! One call: its commands as bytes, and where each of them stands.
//!
//! Invariant: `may_have_happened` of a command is set by the first attempt that ended without a
//! clear answer and never unset, whatever chunks the command is packed into later.

use std::sync::Arc;

use photon_types::{Command, GroupId, Outcome, Slot};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use crate::error::ClientError;

/// The answer to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The slot at which it was applied; for a command asked more than once, the slot of the
    /// attempt that was answered.
    pub slot: Slot,
    /// The replication group of the slot.
    pub group: GroupId,
    /// What the machine decided.
    pub outcome: Outcome,
    /// An earlier attempt of this command ended without a clear answer, so it may have been applied
    /// before this one too (and a copy still on its way may be applied later). `Inserted`,
    /// `Duplicate` and all answers to look-ups mean the same as ever. But `Absent` or `Mismatch` to
    /// a `Delete` or `ForgetToken` may then hide that it was this caller's own earlier attempt that
    /// did it, and `Expired` to an `Insert` leaves open whether the id was taken.
    pub ambiguous: bool,
}

/// What the caller of one piece of a call gets: one result for each command, in order.
pub(crate) type Results = Vec<Result<Answer, ClientError>>;

#[derive(Debug)]
enum State {
    /// In the queue.
    Waiting { may_have_happened: bool },
    /// In a chunk that is on its way.
    Sent { may_have_happened: bool },
    /// Done.
    Ended(Result<Answer, ClientError>),
}

/// At most one chunk of commands of one caller, with one deadline.
#[derive(Debug)]
pub(crate) struct Call {
    pub deadline: Instant,
    reply: oneshot::Sender<Results>,
    bytes: Vec<u8>,
    /// Where each command ends in `bytes`.
    ends: Vec<u32>,
    states: Vec<State>,
    /// How many have not ended.
    open: usize,
    /// The room it takes in the client, given back when it is dropped.
    _room: OwnedSemaphorePermit,
}

impl Call {
    pub fn new(
        commands: &[Command],
        deadline: Instant,
        room: OwnedSemaphorePermit,
    ) -> (Call, oneshot::Receiver<Results>) {
        let (reply, results) = oneshot::channel();
        let mut call = Call {
            deadline,
            reply,
            bytes: Vec::new(),
            ends: Vec::with_capacity(commands.len()),
            states: Vec::with_capacity(commands.len()),
            open: 0,
            _room: room,
        };
        commands.iter().for_each(|command| call.push(command));
        (call, results)
    }

    fn push(&mut self, command: &Command) {
        let state = match command {
            Command::Insert { .. } | Command::Lookup { .. } | Command::Delete { .. } | Command::ForgetToken { .. } => {
                command.encode(&mut self.bytes);
                self.open += 1;
                State::Waiting { may_have_happened: false }
            }
            // It is stated once per connection and has a call of its own on the wire.
            Command::StateKeyRules { .. } => State::Ended(Err(ClientError::Config {
                what: "key rules are stated with ClientConfig::key_rules, not as a command".into(),
            })),
        };
        self.ends.push(u32::try_from(self.bytes.len()).expect("a chunk's bytes fit 32 bits"));
        self.states.push(state);
    }

    /// The commands to send.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        self.states.iter().enumerate().filter(|(_, state)| matches!(state, State::Waiting { .. })).map(|(i, _)| i)
    }

    /// The bytes of one command.
    pub fn command(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    pub fn is_ended(&self) -> bool {
        self.open == 0
    }

    /// The caller has stopped waiting.
    pub fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    pub fn sent(&mut self, index: usize) {
        match self.states[index] {
            State::Waiting { may_have_happened } => self.states[index] = State::Sent { may_have_happened },
            State::Sent { .. } | State::Ended(_) => panic!("command {index} is packed while not waiting"),
        }
    }

    /// An attempt ended without a clear answer: back to the queue, marked for good.
    pub fn back_ambiguous(&mut self, index: usize) {
        match self.states[index] {
            State::Sent { .. } => self.states[index] = State::Waiting { may_have_happened: true },
            State::Waiting { .. } | State::Ended(_) => panic!("command {index} comes back while not sent"),
        }
    }

    /// An attempt certainly did nothing: back to the queue.
    pub fn back(&mut self, index: usize) {
        match self.states[index] {
            State::Sent { may_have_happened } => self.states[index] = State::Waiting { may_have_happened },
            State::Waiting { .. } | State::Ended(_) => panic!("command {index} comes back while not sent"),
        }
    }

    pub fn answer(&mut self, index: usize, slot: Slot, group: GroupId, outcome: Outcome) {
        match self.states[index] {
            State::Sent { may_have_happened } => {
                self.end(index, Ok(Answer { slot, group, outcome, ambiguous: may_have_happened }));
            }
            State::Waiting { .. } | State::Ended(_) => panic!("command {index} is answered while not sent"),
        }
    }

    /// Ends a waiting command with an error that says nothing has happened. Returns false, and
    /// changes nothing, when something may have: such a command waits on, for its outcome or its
    /// deadline.
    pub fn fail(&mut self, index: usize, error: &ClientError) -> bool {
        match self.states[index] {
            State::Waiting { may_have_happened: false } => {
                self.end(index, Err(error.clone()));
                true
            }
            State::Waiting { may_have_happened: true } => false,
            State::Sent { .. } | State::Ended(_) => panic!("command {index} fails while not waiting"),
        }
    }

    fn end(&mut self, index: usize, result: Result<Answer, ClientError>) {
        self.states[index] = State::Ended(result);
        self.open = self.open.checked_sub(1).expect("an open command ended");
    }

    /// Gives the caller what there is: `idle` to commands that certainly did nothing, `Unknown` to
    /// those that may have.
    pub fn finish(self, idle: &ClientError, unknown: &Arc<str>) {
        let result = |state| match state {
            State::Waiting { may_have_happened: false } => Err(idle.clone()),
            State::Waiting { may_have_happened: true } | State::Sent { .. } => {
                Err(ClientError::Unknown { cause: unknown.clone() })
            }
            State::Ended(result) => result,
        };
        // The caller may have stopped waiting; then nobody is to be told.
        let _ = self.reply.send(self.states.into_iter().map(result).collect());
    }
}

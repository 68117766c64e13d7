//! The handle of a client: cheap to clone, shared by any number of tasks.

use std::sync::Arc;

use photon_types::{ClusterId, Command, DeleteReason, EventKey, Token};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::call::{Answer, Call, Results};
use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::status::{self, NodeStatus};
use crate::worker::Worker;

/// A client of one registry cluster. Clones share one worker, one queue and one connection; the
/// worker ends with the last of them.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: Arc<ClientConfig>,
    cluster_id: ClusterId,
    /// Holds at most one call per permit of `room`, so it is never full.
    calls: mpsc::Sender<Call>,
    /// One permit per command inside the client.
    room: Arc<Semaphore>,
}

impl Client {
    /// Finds the leader, states the key rules, and learns the cluster's id. Must be called within a
    /// tokio runtime; the client's worker lives there.
    ///
    /// # Errors
    /// [`ClientError::Config`] for a setting out of bounds; [`ClientError::KeyRulesDiffer`] and
    /// [`ClientError::WrongCluster`] at once; what the last try met after `connect_within`.
    pub async fn connect(config: ClientConfig) -> Result<Client, ClientError> {
        config.check()?;
        let config = Arc::new(config);
        let queue_max = config.limits.queue_commands_max;
        let (calls, inbox) = mpsc::channel(queue_max);
        let (connecting, connected) = oneshot::channel();
        tokio::spawn(Worker::new(config.clone(), inbox, connecting).run());
        let cluster_id = connected.await.unwrap_or(Err(ClientError::Stopped))?;
        let shared = Shared { config, cluster_id, calls, room: Arc::new(Semaphore::new(queue_max)) };
        Ok(Client { shared: Arc::new(shared) })
    }

    /// The cluster this client speaks to, and no other.
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        self.shared.cluster_id
    }

    /// Runs commands: one result for each, in their order. They are packed together with those of
    /// other callers, and asked again with the same bytes, hence the same tokens, until the
    /// deadline, which covers everything: room in the queue, finding a leader, all attempts.
    ///
    /// Commands of one call may be applied in different slots and in another order than given.
    ///
    /// A dropped future stops nothing that was sent already: it then counts as
    /// [`ClientError::Unknown`].
    pub async fn submit(
        &self,
        commands: Vec<Command>,
        deadline: impl Into<Instant>,
    ) -> Vec<Result<Answer, ClientError>> {
        let deadline = deadline.into();
        let mut results = Vec::with_capacity(commands.len());
        let mut pieces = Vec::new();
        for commands in commands.chunks(self.shared.config.limits.chunk_commands_max) {
            pieces.push((commands.len(), self.enqueue(commands, deadline).await));
        }
        for (count, piece) in pieces {
            match piece {
                Ok(piece) => results.extend(piece.await.unwrap_or_else(|_| stopped_while_waiting(count))),
                Err(error) => results.extend(std::iter::repeat_n(Err(error), count)),
            }
        }
        assert!(results.len() == commands.len(), "one result for each command");
        results
    }

    async fn enqueue(
        &self,
        commands: &[Command],
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Results>, ClientError> {
        let wanted = u32::try_from(commands.len()).expect("a chunk's count fits 32 bits");
        let no_room = || ClientError::Overloaded {
            cause: format!("{} commands wait in this client already", self.shared.config.limits.queue_commands_max)
                .into(),
        };
        if deadline <= Instant::now() {
            return Err(ClientError::Unreachable { cause: "the deadline had passed before the call".into() });
        }
        let room = tokio::time::timeout_at(deadline, self.shared.room.clone().acquire_many_owned(wanted)).await;
        let room = room.map_err(|_| no_room())?.expect("the semaphore is never closed");
        let (call, results) = Call::new(commands, deadline, room);
        self.shared.calls.try_send(call).map_err(|error| match error {
            mpsc::error::TrySendError::Closed(_) => ClientError::Stopped,
            mpsc::error::TrySendError::Full(_) => no_room(),
        })?;
        Ok(results)
    }

    async fn submit_one(&self, command: Command, deadline: Instant) -> Result<Answer, ClientError> {
        self.submit(vec![command], deadline).await.pop().expect("one result for one command")
    }

    /// Takes an id for an attempt: `Inserted`, `Duplicate` or `Expired`.
    ///
    /// # Errors
    /// [`ClientError::Unknown`] when it may have happened: ask again with the same token.
    pub async fn insert(
        &self,
        key: EventKey,
        token: Token,
        deadline: impl Into<Instant>,
    ) -> Result<Answer, ClientError> {
        self.submit_one(Command::Insert { key, token }, deadline.into()).await
    }

    /// Asks who has an id, through the leader: `Present`, `Absent` or `Expired`.
    ///
    /// # Errors
    /// As `submit`.
    pub async fn lookup(&self, key: EventKey, deadline: impl Into<Instant>) -> Result<Answer, ClientError> {
        self.submit_one(Command::Lookup { key }, deadline.into()).await
    }

    /// Asks who has each of many ids; answers in their order.
    pub async fn lookup_many(
        &self,
        keys: impl IntoIterator<Item = EventKey>,
        deadline: impl Into<Instant>,
    ) -> Vec<Result<Answer, ClientError>> {
        self.submit(keys.into_iter().map(|key| Command::Lookup { key }).collect(), deadline).await
    }

    /// Removes an id if this token has it: `Deleted`, `Mismatch`, `Absent` or `Expired`. After an
    /// attempt without a clear answer, `Absent` and `Mismatch` come with [`Answer::ambiguous`]: the
    /// earlier attempt may have deleted it.
    ///
    /// # Errors
    /// As `submit`.
    pub async fn delete(
        &self,
        key: EventKey,
        token: Token,
        reason: DeleteReason,
        deadline: impl Into<Instant>,
    ) -> Result<Answer, ClientError> {
        self.submit_one(Command::Delete { key, token, reason }, deadline.into()).await
    }

    /// Replaces the token of an id by a mark, if this token has it: `Forgotten`, `Mismatch`,
    /// `Absent` or `Expired`. After an attempt without a clear answer, `Mismatch` comes with
    /// [`Answer::ambiguous`]: the earlier attempt may have forgotten it.
    ///
    /// # Errors
    /// As `submit`.
    pub async fn forget(
        &self,
        key: EventKey,
        token: Token,
        deadline: impl Into<Instant>,
    ) -> Result<Answer, ClientError> {
        self.submit_one(Command::ForgetToken { key, token }, deadline.into()).await
    }

    /// Where one node stands, over a connection of its own.
    ///
    /// # Errors
    /// [`ClientError::NoAnswer`] with the reason.
    pub async fn status(&self, endpoint: &str) -> Result<NodeStatus, ClientError> {
        status::status(endpoint, &self.shared.config.timings).await
    }

    /// Where each configured endpoint stands, asked all at once, in their order.
    pub async fn statuses(&self) -> Vec<(String, Result<NodeStatus, ClientError>)> {
        status::statuses(&self.shared.config.endpoints, &self.shared.config.timings).await
    }
}

/// The worker ended while the call was inside: it may have been sent.
fn stopped_while_waiting(count: usize) -> Results {
    vec![Err(ClientError::Unknown { cause: "the client's worker has ended".into() }); count]
}

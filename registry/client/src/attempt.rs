//! One message to one node, and what its end says about what happened there.
//!
//! Invariant: whatever is not certainly "nothing happened" is [`Attempt::Unknown`] or
//! [`Attempt::Lost`].

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use photon_proto::registry::registry_client::RegistryClient;
use photon_proto::registry::submit_reply::Reply;
use photon_proto::registry::{Done, SubmitReply, SubmitRequest};
use photon_types::{ClusterId, GroupId, Outcomes, Slot, decode_outcomes};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Response, Status};

use crate::config::{Timings, uri};
use crate::error::{ClientError, with_causes};

/// How one attempt ended.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// The machine decided.
    Done { slot: Slot, group: GroupId, outcomes: Outcomes, cluster_id: Option<ClusterId> },
    /// Nothing happened: this node does not lead. Another may: the hint, when known.
    NotLeader { hint: Option<String>, cluster_id: Option<ClusterId> },
    /// Nothing happened: too much is waiting there.
    Overloaded { retry_after: Duration },
    /// Nothing happened: not connected, or the node can not serve now.
    Unavailable { cause: String },
    /// Nothing happened: the cluster knows no key rules yet.
    KeyRulesMissing,
    /// Nothing happened: the cluster has other key rules.
    KeyRulesDiffer { kept: String },
    /// Nothing happened: another cluster.
    WrongCluster { found: Option<ClusterId> },
    /// Nothing happened, and asking again will not help.
    Refused { reason: String },
    /// The node answered, but not what came of it: it may or may not have happened, or may still.
    Unknown { cause: String },
    /// Nobody answered: it may or may not have happened, or may still.
    Lost { cause: String },
}

/// Connects to one node, or says why not. What fails here has certainly not been sent.
pub(crate) async fn connect(endpoint: &str, timings: &Timings) -> Result<RegistryClient<Channel>, String> {
    let uri = uri(endpoint).map_err(|error| error.to_string())?;
    let target = Endpoint::from_shared(uri)
        .map_err(|error| with_causes(&error))?
        .connect_timeout(timings.connect_timeout)
        .http2_keep_alive_interval(timings.keepalive_interval)
        .keep_alive_timeout(timings.keepalive_timeout)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    match tokio::time::timeout(timings.connect_timeout, target.connect()).await {
        Ok(Ok(channel)) => Ok(RegistryClient::new(channel)),
        Ok(Err(error)) => Err(with_causes(&error)),
        Err(_) => Err(format!("no connection within {:?}", timings.connect_timeout)),
    }
}

/// Sends one chunk. The deadline is around the whole call: waiting for a slot in the connection
/// counts too.
pub(crate) async fn submit(mut client: RegistryClient<Channel>, request: SubmitRequest, timeout: Duration) -> Attempt {
    let count = request.count as usize;
    ended(timeout, client.submit(request), count).await
}

/// Awaits a reply and says what it means. `count` outcomes are expected.
pub(crate) async fn ended(
    timeout: Duration,
    call: impl Future<Output = Result<Response<SubmitReply>, Status>>,
    count: usize,
) -> Attempt {
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(reply)) => read(reply.into_inner(), count),
        Ok(Err(status)) => read_status(&status),
        Err(_) => Attempt::Lost { cause: format!("no answer within {timeout:?}") },
    }
}

fn read(reply: SubmitReply, count: usize) -> Attempt {
    let cluster_id = cluster_id(&reply.cluster_id);
    match reply.reply {
        Some(Reply::Done(done)) => read_done(&done, count, cluster_id),
        Some(Reply::NotLeader(not_leader)) => {
            Attempt::NotLeader { hint: Some(not_leader.hint).filter(|hint| !hint.is_empty()), cluster_id }
        }
        Some(Reply::Overloaded(overloaded)) => {
            Attempt::Overloaded { retry_after: Duration::from_millis(overloaded.retry_after_ms.into()) }
        }
        Some(Reply::Unknown(_)) => Attempt::Unknown { cause: "the node can not tell whether it happened".into() },
        Some(Reply::KeyRulesDiffer(differ)) => Attempt::KeyRulesDiffer { kept: differ.kept },
        Some(Reply::KeyRulesMissing(_)) => Attempt::KeyRulesMissing,
        Some(Reply::WrongCluster(_)) => Attempt::WrongCluster { found: cluster_id },
        Some(Reply::Unhealthy(unhealthy)) => Attempt::Unavailable { cause: format!("unhealthy: {}", unhealthy.reason) },
        None => Attempt::Unknown { cause: "the node sent an answer of a kind that is not known here".into() },
    }
}

fn read_done(done: &Done, count: usize, cluster_id: Option<ClusterId>) -> Attempt {
    match decode_outcomes(&done.outcomes) {
        Ok(outcomes) if outcomes.len() == count => {
            Attempt::Done { slot: Slot(done.slot), group: GroupId(done.group), outcomes, cluster_id }
        }
        // It was done; what came of it must be asked again.
        Ok(outcomes) => Attempt::Unknown { cause: format!("{} outcomes for {count} commands", outcomes.len()) },
        Err(error) => Attempt::Unknown { cause: format!("unreadable outcomes: {error}") },
    }
}

fn read_status(status: &Status) -> Attempt {
    let cause = with_causes(status);
    if has_connect_error(status) {
        return Attempt::Unavailable { cause };
    }
    match status.code() {
        // Only the node itself says these two, at its door.
        Code::InvalidArgument | Code::Unimplemented => Attempt::Refused { reason: cause },
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => Attempt::Lost { cause },
    }
}

/// A channel connects anew by itself; when that fails, the request has not left.
fn has_connect_error(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// The 16 bytes of a cluster id; anything else is none.
pub(crate) fn cluster_id(bytes: &[u8]) -> Option<ClusterId> {
    bytes.try_into().ok().map(ClusterId)
}

/// Compares the cluster that answered with the one that is meant. A node that has not met its
/// peers yet does not tell.
pub(crate) fn check_cluster(
    endpoint: &Arc<str>,
    expected: Option<ClusterId>,
    found: Option<ClusterId>,
) -> Result<(), ClientError> {
    match (expected, found) {
        (Some(expected), Some(other)) if other != expected => {
            Err(ClientError::WrongCluster { endpoint: endpoint.clone(), expected, found })
        }
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use photon_proto::registry::{NotLeader, Overloaded, Unknown};
    use photon_types::{Outcome, encode_outcomes};
    use proptest::prelude::*;

    use super::*;

    fn reply(reply: Option<Reply>) -> SubmitReply {
        SubmitReply { cluster_id: vec![7; 16].into(), reply }
    }

    fn done(outcomes: Vec<u8>) -> SubmitReply {
        reply(Some(Reply::Done(Done { slot: 5, outcomes: outcomes.into(), group: 1 })))
    }

    #[test]
    fn an_answer_that_can_not_be_matched_is_ambiguous() {
        let two = encode_outcomes(&[Outcome::Inserted, Outcome::Absent]);
        assert!(matches!(read(done(two.clone()), 2), Attempt::Done { slot: Slot(5), group: GroupId(1), .. }));
        assert!(matches!(read(done(two), 3), Attempt::Unknown { .. }));
        assert!(matches!(read(done(vec![99]), 1), Attempt::Unknown { .. }));
        assert!(matches!(read(reply(None), 1), Attempt::Unknown { .. }));
        assert!(matches!(read(reply(Some(Reply::Unknown(Unknown {}))), 1), Attempt::Unknown { .. }));
    }

    #[test]
    fn an_empty_hint_is_no_hint() {
        let hint = |text: &str| match read(reply(Some(Reply::NotLeader(NotLeader { hint: text.into() }))), 1) {
            Attempt::NotLeader { hint, .. } => hint,
            other => panic!("{other:?}"),
        };
        assert_eq!(hint(""), None);
        assert_eq!(hint("b:1"), Some("b:1".into()));
        let overloaded = reply(Some(Reply::Overloaded(Overloaded { retry_after_ms: 30 })));
        assert!(matches!(read(overloaded, 1), Attempt::Overloaded { retry_after } if retry_after.as_millis() == 30));
    }

    #[test]
    fn only_a_refusal_at_the_door_is_certain() {
        assert!(matches!(read_status(&Status::invalid_argument("id")), Attempt::Refused { .. }));
        assert!(matches!(read_status(&Status::unavailable("reset")), Attempt::Lost { .. }));
        assert!(matches!(read_status(&Status::resource_exhausted("calm")), Attempt::Lost { .. }));
        let refused = ConnectError("connection refused".into());
        assert!(matches!(read_status(&Status::from_error(Box::new(refused))), Attempt::Unavailable { .. }));
    }

    proptest! {
        #[test]
        fn any_outcome_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0..50_usize) {
            let _ = read(done(bytes), count);
        }
    }
}

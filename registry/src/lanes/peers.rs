//! Lane 3: messages to peers. No order, may be lost.
//!
//! A node dials each peer and keeps two streams for its own messages: one for the small ones that
//! must not be late (heartbeats, prepares, refusals), one for all others, so that no megabyte of
//! `Accept` stands before a heartbeat. Invariant: the driver never waits here; what does not fit,
//! or has no connection, is dropped, since the core repeats.
//!
//! Not here: who may connect (`rpc::handshake`), what comes in (`rpc::peer`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use photon_core::Message;
use photon_proto::peer as wire;
use photon_proto::peer::peer_client::PeerClient;
use photon_types::{GroupId, NodeId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tracing::{debug, info, warn};

use crate::chaos::Delays;
use crate::config::{GROUP, MemberConfig, ServerConfig, Timings};
use crate::drive::inbox::message_bytes;
use crate::journal::JournalPosition;
use crate::lanes::journal::SyncedEnd;
use crate::rpc::handshake::{Handshake, HandshakeError, position_to_wire};
use crate::rpc::messages;

/// Envelopes that wait for one connection.
const QUEUE_ENVELOPES_MAX: usize = 1_024;

/// Messages are put into one envelope up to about this size.
const ENVELOPE_BYTES_MAX: usize = 1024 * 1024;

/// What a node decodes from a peer. The core pages its messages at 1 MiB of values, and an
/// envelope holds at most one message beyond [`ENVELOPE_BYTES_MAX`].
pub(crate) const DECODE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// In this time from its own start a node expects the others to start, too.
const START_UP: Duration = Duration::from_secs(10);

const _: () = assert!(2 * ENVELOPE_BYTES_MAX + photon_core::MESSAGE_BYTES_MAX < DECODE_BYTES_MAX);

/// A connection on which nothing comes back for this long is asked whether it lives.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// And is given up after this long without an answer.
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Which of the two streams to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// Small messages that must not be late.
    Express,
    /// All others.
    Freight,
}

fn line_of(message: &Message) -> Line {
    match message {
        Message::Prepare(_) | Message::Nack(_) | Message::Heartbeat(_) => Line::Express,
        Message::Promise(_)
        | Message::Accept(_)
        | Message::Accepted(_)
        | Message::FetchChosen(_)
        | Message::Chosen(_) => Line::Freight,
    }
}

/// The driver's end: one queue for each peer and line.
#[derive(Debug)]
pub(crate) struct PeerLane {
    links: BTreeMap<(NodeId, Line), Arc<Link>>,
    synced: Arc<SyncedEnd>,
    /// How many peers make a quorum together with this node.
    peers_needed: usize,
}

/// One stream to one peer, as far as it is there.
#[derive(Debug)]
struct Link {
    peer: NodeId,
    line: Line,
    stream: Mutex<Option<OpenStream>>,
    bytes_max: usize,
}

/// The driver's end of a stream whose hello was answered well.
#[derive(Debug)]
struct OpenStream {
    queue: mpsc::Sender<Queued>,
    /// Of the envelopes in the queue. Each stream counts its own: an old one may still drain.
    bytes: Arc<AtomicUsize>,
    /// The last end of this node's journal that was sent without a message.
    announced: JournalPosition,
}

#[derive(Debug)]
struct Queued {
    envelope: wire::Envelope,
    bytes: usize,
}

/// What the tasks behind the lane need.
#[derive(Clone)]
pub(crate) struct Dialing {
    pub handshake: Arc<Handshake>,
    pub members: Vec<MemberConfig>,
    pub timings: Timings,
    pub delays: Delays,
    pub stop: watch::Receiver<bool>,
}

impl PeerLane {
    /// A lane to each peer, and the tasks that keep it connected.
    pub fn start(
        config: &ServerConfig,
        synced: Arc<SyncedEnd>,
        dialing: &Dialing,
        tasks: &mut JoinSet<()>,
    ) -> PeerLane {
        let mut links = BTreeMap::new();
        let peers = config.peer_ids();
        for peer in peers.iter().copied() {
            for line in [Line::Express, Line::Freight] {
                let bytes_max = config.limits.peer_queue_bytes_max;
                let link = Arc::new(Link { peer, line, stream: Mutex::default(), bytes_max });
                links.insert((peer, line), Arc::clone(&link));
                tasks.spawn(keep_connected(link, dialing.clone()));
            }
        }
        PeerLane { links, synced, peers_needed: peers.len().div_ceil(2) }
    }

    /// Sends messages of one group to one peer, those of one line in this order.
    pub fn send(&self, group: GroupId, to: NodeId, messages: Vec<Message>) {
        let mut lines: BTreeMap<Line, (Vec<wire::Message>, usize)> = BTreeMap::new();
        for message in messages {
            let line = line_of(&message);
            let (open, bytes) = lines.entry(line).or_default();
            *bytes += message_bytes(&message);
            open.push(messages::to_wire(message));
            if ENVELOPE_BYTES_MAX <= *bytes {
                let (full, bytes) = lines.remove(&line).expect("just filled");
                self.offer(group, to, line, full, bytes);
            }
        }
        for (line, (open, bytes)) in lines {
            self.offer(group, to, line, open, bytes);
        }
    }

    fn offer(&self, group: GroupId, to: NodeId, line: Line, messages: Vec<wire::Message>, bytes: usize) {
        let Some(link) = self.links.get(&(to, line)) else {
            warn!(%to, "a message to a node that is not a peer is dropped");
            return;
        };
        let envelope = envelope(group, self.synced.get(), messages);
        if !link.offer(Queued { envelope, bytes }) {
            debug!(peer = %to, ?line, "messages dropped: not connected, or its queue is full");
        }
    }

    /// Tells every peer how far this node's journal is durable, as often as a leader speaks: also
    /// those to whom it has nothing else to say must know when its disk goes back one day.
    pub async fn announce_ends(self: Arc<Self>, interval: Duration, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(interval) => (),
            }
            let synced_end = self.synced.get();
            let express = self.links.values().filter(|link| link.line == Line::Express);
            express.for_each(|link| link.announce(synced_end));
        }
    }

    /// Enough peers take what is sent to them. One that is not connected costs nothing.
    pub fn has_room(&self) -> bool {
        let free = self.links.values().filter(|link| link.line == Line::Freight && !link.is_half_full()).count();
        self.peers_needed <= free
    }

    /// Is there a stream to this peer for all but the small messages?
    pub fn is_connected(&self, peer: NodeId) -> bool {
        self.links.get(&(peer, Line::Freight)).is_some_and(|link| link.lock().is_some())
    }
}

impl Link {
    fn offer(&self, queued: Queued) -> bool {
        self.lock().as_ref().is_some_and(|stream| self.offer_to(stream, queued))
    }

    fn offer_to(&self, stream: &OpenStream, queued: Queued) -> bool {
        let bytes = queued.bytes;
        if self.bytes_max < stream.bytes.load(Ordering::Relaxed) + bytes {
            return false;
        }
        // Counted first: the other end may take it out before `try_send` returns.
        stream.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_taken = stream.queue.try_send(queued).is_ok();
        if !is_taken {
            stream.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    /// Says how far this node's journal is durable, unless that was said before on this stream.
    fn announce(&self, synced_end: JournalPosition) {
        let mut stream = self.lock();
        let Some(stream) = stream.as_mut().filter(|stream| stream.announced != synced_end) else { return };
        let envelope = envelope(GROUP, synced_end, Vec::new());
        if self.offer_to(stream, Queued { envelope, bytes: 0 }) {
            stream.announced = synced_end;
        }
    }

    fn is_half_full(&self) -> bool {
        self.lock().as_ref().is_some_and(|stream| self.bytes_max / 2 < stream.bytes.load(Ordering::Relaxed))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<OpenStream>> {
        // Holders only replace or use the sender.
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn envelope(group: GroupId, synced_end: JournalPosition, messages: Vec<wire::Message>) -> wire::Envelope {
    wire::Envelope { group: group.0, synced_end: Some(position_to_wire(synced_end)), messages }
}

/// The two ends of a stream: what the driver fills, and the frames that go out, the hello first.
fn new_stream(
    hello: wire::Hello,
    delays: Delays,
) -> (OpenStream, impl tokio_stream::Stream<Item = wire::Frame> + Send + use<>) {
    let (queue, receiver) = mpsc::channel(QUEUE_ENVELOPES_MAX);
    let bytes: Arc<AtomicUsize> = Arc::default();
    let counted = Arc::clone(&bytes);
    let frames = ReceiverStream::new(receiver).then(move |queued: Queued| {
        let (delays, bytes) = (delays.clone(), Arc::clone(&counted));
        async move {
            delays.wait().await;
            bytes.fetch_sub(queued.bytes, Ordering::Relaxed);
            wire::Frame { frame: Some(wire::frame::Frame::Envelope(queued.envelope)) }
        }
    });
    let first = wire::Frame { frame: Some(wire::frame::Frame::Hello(hello)) };
    (OpenStream { queue, bytes, announced: JournalPosition::default() }, tokio_stream::once(first).chain(frames))
}

/// What is said about a peer that is not connected: each reason once, and while all members may
/// still be starting it is nothing to worry about.
struct Complaints {
    begun: Instant,
    last: Option<(String, Complaint)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Complaint {
    /// Was said before.
    Known,
    /// Nodes of a cluster do not start at the same moment.
    Ordinary,
    Trouble,
}

impl Complaints {
    fn begin(now: Instant) -> Complaints {
        Complaints { begun: now, last: None }
    }

    fn judge(&mut self, now: Instant, reason: &str) -> Complaint {
        let is_early = now.saturating_duration_since(self.begun) < START_UP;
        let complaint = if is_early { Complaint::Ordinary } else { Complaint::Trouble };
        let is_known = |(last, before): &(String, Complaint)| last == reason && *before == complaint;
        if self.last.as_ref().is_some_and(is_known) {
            return Complaint::Known;
        }
        self.last = Some((reason.to_owned(), complaint));
        complaint
    }

    fn forget(&mut self) {
        self.last = None;
    }
}

/// Dials for ever, with pauses that grow while it fails.
async fn keep_connected(link: Arc<Link>, mut dialing: Dialing) {
    let mut pause = dialing.timings.redial_min;
    let mut complaints = Complaints::begin(Instant::now());
    let mut stop = dialing.stop.clone();
    loop {
        let result = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            result = connect_and_serve(&link, &mut dialing) => result,
        };
        *link.lock() = None;
        match result {
            Ok(()) => {
                pause = dialing.timings.redial_min;
                complaints.forget();
                info!(peer = %link.peer, line = ?link.line, "connection to peer ended");
            }
            Err(error) => {
                let reason = error.to_string();
                match complaints.judge(Instant::now(), &reason) {
                    Complaint::Known => (),
                    Complaint::Ordinary => {
                        info!(peer = %link.peer, line = ?link.line, reason, "peer not connected yet");
                    }
                    Complaint::Trouble => {
                        warn!(peer = %link.peer, line = ?link.line, reason, "peer not connected");
                    }
                }
            }
        }
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            () = tokio::time::sleep(pause) => (),
        }
        pause = (pause * 2).min(dialing.timings.redial_max);
    }
    *link.lock() = None;
}

/// Connects, says hello, and stays until the stream ends. `Ok` when it was welcome.
async fn connect_and_serve(link: &Link, dialing: &mut Dialing) -> Result<(), HandshakeError> {
    let mut client = dial(link.peer, dialing).await?;
    let hello = dialing.handshake.hello(link.peer);
    let (stream, frames) = new_stream(hello, dialing.delays.clone());
    let greet = async {
        let mut answers = client.exchange(frames).await?.into_inner();
        let first = answers.message().await?;
        Ok::<_, tonic::Status>((first, answers))
    };
    let (first, mut answers) = match tokio::time::timeout(dialing.timings.connect_timeout, greet).await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(status)) => return Err(HandshakeError::unreachable(link.peer, &status.to_string())),
        Err(_) => return Err(HandshakeError::unreachable(link.peer, "no answer to the hello in time")),
    };
    let reply = first.ok_or_else(|| HandshakeError::unreachable(link.peer, "no answer to the hello"))?;
    dialing.handshake.on_reply(link.peer, reply)?;
    *link.lock() = Some(stream);
    info!(peer = %link.peer, line = ?link.line, "connected to peer");
    // Nothing more comes on it: its end is the news.
    while let Ok(Some(_)) = answers.message().await {}
    Ok(())
}

/// A connection to a peer.
pub(crate) async fn dial(peer: NodeId, dialing: &Dialing) -> Result<PeerClient<Channel>, HandshakeError> {
    let member = dialing.members.iter().find(|member| member.id == peer);
    let address = &member.expect("peers are members").peer_address;
    let unreachable = |reason: &str| HandshakeError::unreachable(peer, &format!("{address}: {reason}"));
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| unreachable(&error.to_string()))?
        .connect_timeout(dialing.timings.connect_timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20);
    let connecting = tokio::time::timeout(dialing.timings.connect_timeout, endpoint.connect());
    let channel = match connecting.await {
        Ok(Ok(channel)) => channel,
        Ok(Err(error)) => return Err(unreachable(&root_cause(&error))),
        Err(_) => return Err(unreachable("no connection in time")),
    };
    Ok(PeerClient::new(channel).max_decoding_message_size(DECODE_BYTES_MAX).max_encoding_message_size(DECODE_BYTES_MAX))
}

/// tonic says "transport error"; why stands at the end of the chain.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_start_later_are_no_trouble_and_those_that_never_come_are() {
        let begun = Instant::now();
        let mut complaints = Complaints::begin(begun);
        let mut at = |seconds, reason| complaints.judge(begun + Duration::from_secs(seconds), reason);
        assert_eq!(at(0, "connection refused"), Complaint::Ordinary);
        assert_eq!(at(1, "connection refused"), Complaint::Known);
        assert_eq!(at(2, "node 2 is starting"), Complaint::Ordinary);
        assert_eq!(at(11, "node 2 is starting"), Complaint::Trouble);
        assert_eq!(at(12, "node 2 is starting"), Complaint::Known);
        complaints.forget();
        assert_eq!(complaints.judge(begun + START_UP, "node 2 is starting"), Complaint::Trouble);
    }
}

//! Clicks back into the pipeline, through a dispatcher of any datacenter that is up.
//!
//! Invariant: a click counts as re-injected only when a dispatcher said that it is durable in its
//! retry store. A click that comes in twice is harmless: the registry lets one attempt write.

use std::time::Duration;

use bytes::Bytes;
use photon_proto::pipeline::dispatcher_client::DispatcherClient;
use photon_proto::pipeline::{DeletedAt as WireDeletedAt, ReinjectRequest, ReinjectedClick};
use tonic::transport::{Channel, Endpoint};
use tracing::warn;

use crate::registry::DeletedAt;

/// Clicks in one call,
const CALL_CLICKS_MAX: usize = 1_000;
/// and payload bytes after which a call is closed, so that it stays below what a server decodes
/// with one payload of a usual size on top.
const CALL_BYTES_MAX: usize = 1024 * 1024;
/// What one call may have at most: a single payload may be long.
const MESSAGE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A click that comes back.
#[derive(Clone, Debug)]
pub struct Comeback {
    /// Event time in microseconds.
    pub timestamp: u64,
    /// Event id.
    pub id: Bytes,
    /// The id of the query it names.
    pub reference: Bytes,
    /// The foreign stream.
    pub stream: String,
    /// The source's name.
    pub source: String,
    /// The first byte of the record.
    pub offset: u64,
    /// The payload.
    pub payload: Bytes,
    /// The delete that freed it, if one did.
    pub deleted_at: Option<DeletedAt>,
}

/// The dispatchers that may take clicks, the one that took the last first.
pub struct Dispatchers {
    endpoints: Vec<(String, String)>,
    open: Option<(usize, DispatcherClient<Channel>)>,
    answer_within: Duration,
}

impl Dispatchers {
    /// Dispatchers by datacenter and address. Nothing is connected yet.
    pub fn new(endpoints: Vec<(String, String)>, answer_within: Duration) -> Dispatchers {
        Dispatchers { endpoints, open: None, answer_within }
    }

    /// Whether one of them can be reached: asked before a claim is deleted, so that a click does
    /// not lie deleted and unknown to every datacenter for longer than it must.
    ///
    /// # Errors
    /// What each of them met.
    pub async fn reach(&mut self) -> Result<(), String> {
        if self.open.is_some() {
            return Ok(());
        }
        if self.endpoints.is_empty() {
            return Err("no datacenter has a dispatcher address".to_owned());
        }
        let mut met = Vec::new();
        for index in 0..self.endpoints.len() {
            match self.connect(index).await {
                Ok(client) => {
                    self.open = Some((index, client));
                    return Ok(());
                }
                Err(why) => met.push(why),
            }
        }
        Err(met.join("; "))
    }

    /// Puts clicks back, in as many calls as they need.
    ///
    /// # Errors
    /// How many are durable, and what stopped the others.
    pub async fn reinject(&mut self, clicks: &[Comeback]) -> Result<(), (usize, String)> {
        let mut done = 0;
        let mut rest = clicks;
        while !rest.is_empty() {
            let (call, behind) = rest.split_at(call_length(rest));
            self.call(call).await.map_err(|why| (done, why))?;
            done += call.len();
            rest = behind;
        }
        Ok(())
    }

    /// One call, to the open dispatcher or else to each of the others once.
    async fn call(&mut self, clicks: &[Comeback]) -> Result<(), String> {
        let mut met = Vec::new();
        let first = self.open.as_ref().map_or(0, |(index, _)| *index);
        let count = self.endpoints.len();
        for index in (0..count).map(|step| (first + step) % count) {
            let client = match self.open.take() {
                Some((open, client)) if open == index => Ok(client),
                Some(_) | None => self.connect(index).await,
            };
            let sent = match client {
                Ok(client) => self.send(index, client, clicks).await,
                Err(why) => Err(why),
            };
            match sent {
                Ok(()) => return Ok(()),
                Err(why) => {
                    warn!(datacenter = %self.endpoints[index].0, why, "a dispatcher did not take clicks back");
                    met.push(why);
                }
            }
        }
        Err(met.join("; "))
    }

    async fn send(
        &mut self,
        index: usize,
        mut client: DispatcherClient<Channel>,
        clicks: &[Comeback],
    ) -> Result<(), String> {
        let (datacenter, address) = &self.endpoints[index];
        let failed = |why: String| format!("dispatcher of {datacenter} at {address}: {why}");
        let request = ReinjectRequest { clicks: clicks.iter().map(to_wire).collect() };
        let call = tokio::time::timeout(self.answer_within, client.reinject(request));
        let reply = call.await.map_err(|_| failed(format!("no answer within {:?}", self.answer_within)))?;
        let accepted = reply.map_err(|status| failed(status.to_string()))?.into_inner().accepted;
        if usize::try_from(accepted) != Ok(clicks.len()) {
            return Err(failed(format!("it took {accepted} of {} clicks", clicks.len())));
        }
        self.open = Some((index, client));
        Ok(())
    }

    async fn connect(&self, index: usize) -> Result<DispatcherClient<Channel>, String> {
        let (datacenter, address) = &self.endpoints[index];
        let failed = |why: String| format!("dispatcher of {datacenter} at {address}: {why}");
        let uri = if address.contains("://") { address.clone() } else { format!("http://{address}") };
        let endpoint = Endpoint::from_shared(uri).map_err(|error| failed(error.to_string()))?;
        let endpoint = endpoint.connect_timeout(self.answer_within.min(Duration::from_secs(2)));
        let channel = endpoint.connect().await.map_err(|error| failed(error.to_string()))?;
        Ok(DispatcherClient::new(channel).max_encoding_message_size(MESSAGE_BYTES_MAX))
    }
}

/// How many of these clicks go into one call: at least one.
fn call_length(clicks: &[Comeback]) -> usize {
    let mut bytes = 0;
    let fitting = clicks.iter().take(CALL_CLICKS_MAX).take_while(|click| {
        let fits = bytes == 0 || bytes + click.payload.len() <= CALL_BYTES_MAX;
        bytes += click.payload.len().max(1);
        fits
    });
    fitting.count().max(1)
}

fn to_wire(click: &Comeback) -> ReinjectedClick {
    let Comeback { timestamp, id, reference, stream, source, offset, payload, deleted_at } = click.clone();
    let deleted_at = deleted_at.map(|at| WireDeletedAt {
        cluster_id: Bytes::copy_from_slice(&at.cluster.0),
        group: at.group.0,
        slot: at.slot.0,
    });
    ReinjectedClick { timestamp, id, reference, stream, source, offset, payload, deleted_at }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn click(payload_bytes: usize) -> Comeback {
        Comeback {
            timestamp: 1,
            id: Bytes::from_static(b"a"),
            reference: Bytes::from_static(b"q"),
            stream: "clicks".into(),
            source: "clicks/a".into(),
            offset: 0,
            payload: Bytes::from(vec![b'x'; payload_bytes]),
            deleted_at: None,
        }
    }

    #[test]
    fn a_call_is_bounded_in_clicks_and_bytes_and_never_empty() {
        assert_eq!(call_length(&vec![click(10); 5]), 5);
        assert_eq!(call_length(&vec![click(0); CALL_CLICKS_MAX + 5]), CALL_CLICKS_MAX);
        assert_eq!(call_length(&[click(CALL_BYTES_MAX * 3), click(1)]), 1);
        assert_eq!(call_length(&vec![click(CALL_BYTES_MAX / 4); 9]), 4);
    }

    #[tokio::test]
    async fn nobody_to_reach_is_told_with_every_address() {
        let within = Duration::from_secs(5);
        assert!(Dispatchers::new(Vec::new(), within).reach().await.unwrap_err().contains("no datacenter"));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener); // A port where nobody listens any more.
        let mut dispatchers = Dispatchers::new(vec![("east".into(), address.clone())], within);
        let why = dispatchers.reach().await.unwrap_err();
        assert!(why.contains("east") && why.contains(&address), "{why}");
        assert_eq!(dispatchers.reinject(&[click(1)]).await.unwrap_err().0, 0);
    }
}

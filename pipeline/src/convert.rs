//! Wire to types: the only place of the pipeline that trusts no bytes of a message.
//!
//! Invariant: what passes here is valid; what does not is refused with its reason, never a panic.

use bytes::Bytes;
use photon_format::extract::JOIN_ID_BYTES_MAX;
use photon_join::missing::Position;
use photon_proto::pipeline as wire;
use photon_types::EventKey;

/// Clicks or ids in one call, at most.
pub(crate) const CALL_ITEMS_MAX: usize = 4_000;

pub(crate) fn position_to_wire(position: Position) -> wire::Position {
    let Position { epoch, begun, done, is_final } = position;
    wire::Position { epoch: Bytes::copy_from_slice(&epoch), begun, done, r#final: is_final }
}

/// A position, unless its epoch has another length than ours.
pub(crate) fn position(position: &wire::Position) -> Option<Position> {
    let wire::Position { epoch, begun, done, r#final } = position;
    let epoch = epoch.as_ref().try_into().ok()?;
    Some(Position { epoch, begun: *begun, done: *done, is_final: *r#final })
}

/// The key of a click.
pub(crate) fn key(timestamp: u64, id: &[u8]) -> Result<EventKey, String> {
    EventKey::new(timestamp, id).map_err(|error| error.to_string())
}

/// The id of a primary event, or a reference to one.
pub(crate) fn join_id(id: Bytes) -> Result<Bytes, String> {
    if id.is_empty() || JOIN_ID_BYTES_MAX < id.len() {
        return Err(format!("the id of a query has {} bytes, 1 to {JOIN_ID_BYTES_MAX} are allowed", id.len()));
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_go_round_and_another_length_is_no_epoch() {
        let position = Position { epoch: [3; 16], begun: 9, done: 8, is_final: true };
        let mut sent = position_to_wire(position);
        assert_eq!(super::position(&sent), Some(position));
        sent.epoch = Bytes::from_static(b"short");
        assert_eq!(super::position(&sent), None);
    }

    #[test]
    fn ids_out_of_bounds_are_refused_with_their_length() {
        assert!(join_id(Bytes::new()).unwrap_err().contains("0 bytes"));
        assert!(join_id(Bytes::from(vec![b'x'; JOIN_ID_BYTES_MAX + 1])).unwrap_err().contains("1025 bytes"));
        assert!(join_id(Bytes::from(vec![b'x'; JOIN_ID_BYTES_MAX])).is_ok());
        assert!(key(u64::MAX, b"x").is_err() && key(1, b"").is_err() && key(1, b"x").is_ok());
    }
}

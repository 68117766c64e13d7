//! The messages of the consensus core, to the wire and back.
//!
//! Invariant: what goes round is the same, and bytes of a peer never panic. Values are shared, not
//! copied.
//!
//! Not here: who may send (`handshake`), the streams (`peer`, `lanes::peers`).

use photon_core::{Accept, Accepted, Ballot, Chosen, Entry, FetchChosen, Heartbeat, Message, Nack, Prepare, Promise};
use photon_proto::convert::{ConvertError, required};
use photon_proto::peer as wire;
use photon_types::{NodeId, Slot};

/// A message for the wire.
pub(crate) fn to_wire(message: Message) -> wire::Message {
    use wire::message::Message as Wire;
    let message = match message {
        Message::Prepare(Prepare { ballot, from }) => {
            Wire::Prepare(wire::Prepare { ballot: Some(ballot_to_wire(ballot)), from: from.0 })
        }
        Message::Promise(Promise { ballot, commit_end, trimmed_end, accepted, more_from }) => {
            Wire::Promise(wire::Promise {
                ballot: Some(ballot_to_wire(ballot)),
                commit_end: commit_end.0,
                trimmed_end: trimmed_end.0,
                accepted: accepted.into_iter().map(entry_to_wire).collect(),
                more_from: more_from.map(|slot| slot.0),
            })
        }
        Message::Nack(Nack { refused, promised }) => {
            Wire::Nack(wire::Nack { refused: Some(ballot_to_wire(refused)), promised: Some(ballot_to_wire(promised)) })
        }
        Message::Accept(Accept { ballot, slot, value, commit_end }) => Wire::Accept(wire::Accept {
            ballot: Some(ballot_to_wire(ballot)),
            slot: slot.0,
            value,
            commit_end: commit_end.0,
        }),
        Message::Accepted(Accepted { ballot, slot }) => {
            Wire::Accepted(wire::Accepted { ballot: Some(ballot_to_wire(ballot)), slot: slot.0 })
        }
        Message::Heartbeat(Heartbeat { ballot, commit_end }) => {
            Wire::Heartbeat(wire::Heartbeat { ballot: Some(ballot_to_wire(ballot)), commit_end: commit_end.0 })
        }
        Message::FetchChosen(FetchChosen { from }) => Wire::FetchChosen(wire::FetchChosen { from: from.0 }),
        Message::Chosen(Chosen { from, entries, commit_end, trimmed_end }) => Wire::Chosen(wire::Chosen {
            from: from.0,
            entries: entries.into_iter().map(entry_to_wire).collect(),
            commit_end: commit_end.0,
            trimmed_end: trimmed_end.0,
        }),
    };
    wire::Message { message: Some(message) }
}

/// A message from the wire.
///
/// # Errors
/// [`ConvertError`] where a part is missing.
pub(crate) fn from_wire(message: wire::Message) -> Result<Message, ConvertError> {
    use wire::message::Message as Wire;
    Ok(match required("message", message.message)? {
        Wire::Prepare(wire::Prepare { ballot, from }) => {
            Message::Prepare(Prepare { ballot: ballot_from_wire(ballot)?, from: Slot(from) })
        }
        Wire::Promise(wire::Promise { ballot, commit_end, trimmed_end, accepted, more_from }) => {
            Message::Promise(Promise {
                ballot: ballot_from_wire(ballot)?,
                commit_end: Slot(commit_end),
                trimmed_end: Slot(trimmed_end),
                accepted: entries_from_wire(accepted)?,
                more_from: more_from.map(Slot),
            })
        }
        Wire::Nack(wire::Nack { refused, promised }) => {
            Message::Nack(Nack { refused: ballot_from_wire(refused)?, promised: ballot_from_wire(promised)? })
        }
        Wire::Accept(wire::Accept { ballot, slot, value, commit_end }) => Message::Accept(Accept {
            ballot: ballot_from_wire(ballot)?,
            slot: Slot(slot),
            value,
            commit_end: Slot(commit_end),
        }),
        Wire::Accepted(wire::Accepted { ballot, slot }) => {
            Message::Accepted(Accepted { ballot: ballot_from_wire(ballot)?, slot: Slot(slot) })
        }
        Wire::Heartbeat(wire::Heartbeat { ballot, commit_end }) => {
            Message::Heartbeat(Heartbeat { ballot: ballot_from_wire(ballot)?, commit_end: Slot(commit_end) })
        }
        Wire::FetchChosen(wire::FetchChosen { from }) => Message::FetchChosen(FetchChosen { from: Slot(from) }),
        Wire::Chosen(wire::Chosen { from, entries, commit_end, trimmed_end }) => Message::Chosen(Chosen {
            from: Slot(from),
            entries: entries_from_wire(entries)?,
            commit_end: Slot(commit_end),
            trimmed_end: Slot(trimmed_end),
        }),
    })
}

fn ballot_to_wire(Ballot { round, node }: Ballot) -> wire::Ballot {
    wire::Ballot { round, node_id: node.0 }
}

fn ballot_from_wire(ballot: Option<wire::Ballot>) -> Result<Ballot, ConvertError> {
    let wire::Ballot { round, node_id } = required("ballot", ballot)?;
    Ok(Ballot { round, node: NodeId(node_id) })
}

fn entry_to_wire(Entry { slot, ballot, value }: Entry) -> wire::Entry {
    wire::Entry { slot: slot.0, ballot: Some(ballot_to_wire(ballot)), value }
}

fn entries_from_wire(entries: Vec<wire::Entry>) -> Result<Vec<Entry>, ConvertError> {
    let entry =
        |wire::Entry { slot, ballot, value }| Ok(Entry { slot: Slot(slot), ballot: ballot_from_wire(ballot)?, value });
    entries.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn samples() -> Vec<Message> {
        let ballot = Ballot { round: 7, node: NodeId(2) };
        let other = Ballot { round: 9, node: NodeId(3) };
        let entries = vec![
            Entry { slot: Slot(4), ballot, value: Bytes::from_static(b"batch") },
            Entry { slot: Slot(5), ballot: other, value: Bytes::new() },
        ];
        vec![
            Message::Prepare(Prepare { ballot, from: Slot(3) }),
            Message::Promise(Promise {
                ballot,
                commit_end: Slot(4),
                trimmed_end: Slot(1),
                accepted: entries.clone(),
                more_from: Some(Slot(6)),
            }),
            Message::Promise(Promise {
                ballot,
                commit_end: Slot(0),
                trimmed_end: Slot(0),
                accepted: vec![],
                more_from: None,
            }),
            Message::Nack(Nack { refused: ballot, promised: other }),
            Message::Accept(Accept { ballot, slot: Slot(8), value: Bytes::from_static(b"x"), commit_end: Slot(7) }),
            Message::Accepted(Accepted { ballot, slot: Slot(8) }),
            Message::Heartbeat(Heartbeat { ballot, commit_end: Slot(9) }),
            Message::FetchChosen(FetchChosen { from: Slot(10) }),
            Message::Chosen(Chosen { from: Slot(4), entries, commit_end: Slot(6), trimmed_end: Slot(2) }),
        ]
    }

    #[test]
    fn every_message_goes_round() {
        for message in samples() {
            assert_eq!(from_wire(to_wire(message.clone())), Ok(message));
        }
    }

    #[test]
    fn a_missing_part_is_named() {
        let text = |message| from_wire(message).unwrap_err().to_string();
        assert_eq!(text(wire::Message { message: None }), "message is missing");
        let heartbeat = wire::Heartbeat { ballot: None, commit_end: 1 };
        let message = wire::message::Message::Heartbeat(heartbeat);
        assert_eq!(text(wire::Message { message: Some(message) }), "ballot is missing");
    }
}

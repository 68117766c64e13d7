//! How events and effects read in a trace: one short line each.

use std::fmt::{self, Display, Formatter};

use photon_core::{
    Accept, Accepted, Chosen, Effect, Entry, Event, FetchChosen, Heartbeat, Message, Nack, Prepare, Promise, Record,
    Reply,
};
use photon_types::{Command, Commands, Holder, Outcome, Token};

/// Shows what it holds.
pub(crate) struct Show<'a, T: ?Sized>(pub &'a T);

impl Display for Show<'_, Event> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Event::Tick => f.write_str("tick"),
            Event::Request { request, commands } => write!(f, "request r{} {}", request.0, Show(&commands.bytes[..])),
            Event::Message { from, message } => write!(f, "from {from}: {}", Show(message)),
            Event::Persisted { upto } => write!(f, "persisted #{}", upto.0),
            Event::Applied { applied_end, outcomes } => write!(f, "applied {applied_end}, {} wanted", outcomes.len()),
            Event::EntriesRead { read, entries } => write!(f, "read #{} {}", read.0, Show(&entries[..])),
        }
    }
}

impl Display for Show<'_, Effect> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Effect::Persist { seq, record } => write!(f, "persist #{} {}", seq.0, Show(record)),
            Effect::Apply { entry, wanted } => {
                write!(f, "apply {}{}", Show(entry), if *wanted { ", wanted" } else { "" })
            }
            Effect::Send { to, message } => write!(f, "to {to}: {}", Show(message)),
            Effect::Reply { request, reply } => write!(f, "reply r{} {}", request.0, Show(reply)),
            Effect::Read { read, from, to_end, bytes_max: _ } => write!(f, "read #{} {from}..{to_end}", read.0),
        }
    }
}

impl Display for Show<'_, Record> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Record::Promise { ballot } => write!(f, "promise {ballot}"),
            Record::Accepted { entry, chosen: false } => write!(f, "accepted {}", Show(entry)),
            Record::Accepted { entry, chosen: true } => write!(f, "chosen {}", Show(entry)),
            Record::CommitHint { commit_end } => write!(f, "hint {commit_end}"),
        }
    }
}

impl Display for Show<'_, Message> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Message::Prepare(Prepare { ballot, from }) => write!(f, "Prepare {ballot} from={from}"),
            Message::Promise(Promise { ballot, commit_end, trimmed_end: _, accepted, more_from }) => {
                write!(f, "Promise {ballot} commit={commit_end} {}", Show(&accepted[..]))?;
                more_from.map_or(Ok(()), |more_from| write!(f, " more_from={more_from}"))
            }
            Message::Nack(Nack { refused, promised }) => write!(f, "Nack {refused} promised={promised}"),
            Message::Accept(Accept { ballot, slot, value, commit_end }) => {
                write!(f, "Accept {slot}@{ballot} {} commit={commit_end}", Show(&value[..]))
            }
            Message::Accepted(Accepted { ballot, slot }) => write!(f, "Accepted {slot}@{ballot}"),
            Message::Heartbeat(Heartbeat { ballot, commit_end }) => write!(f, "Heartbeat {ballot} commit={commit_end}"),
            Message::FetchChosen(FetchChosen { from }) => write!(f, "FetchChosen from={from}"),
            Message::Chosen(Chosen { from, entries, commit_end, trimmed_end: _ }) => {
                write!(f, "Chosen from={from} commit={commit_end} {}", Show(&entries[..]))
            }
        }
    }
}

impl Display for Show<'_, Entry> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Entry { slot, ballot, value } = self.0;
        write!(f, "{slot}@{ballot} {}", Show(&value[..]))
    }
}

impl Display for Show<'_, [Entry]> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (place, entry) in self.0.iter().enumerate() {
            write!(f, "{}{}", if place == 0 { "" } else { ", " }, Show(entry))?;
        }
        f.write_str("]")
    }
}

/// A batch.
impl Display for Show<'_, [u8]> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("<no-op>");
        }
        f.write_str("<")?;
        for (place, command) in Commands::new(self.0).enumerate() {
            f.write_str(if place == 0 { "" } else { ", " })?;
            match command {
                Ok(command) => Show(&command).fmt(f)?,
                Err(error) => write!(f, "unreadable: {error}")?,
            }
        }
        f.write_str(">")
    }
}

impl Display for Show<'_, Command> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Command::Insert { key, token } => write!(f, "insert {} {}", key.id, Show(token)),
            Command::Lookup { key } => write!(f, "look up {}", key.id),
            Command::Delete { key, token, reason: _ } => write!(f, "delete {} {}", key.id, Show(token)),
            Command::ForgetToken { key, token } => write!(f, "forget {} {}", key.id, Show(token)),
            Command::StateKeyRules { text } => write!(f, "rules {text:?}"),
        }
    }
}

impl Display for Show<'_, Token> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Clients are numbered by the first byte.
        write!(f, "t{}-{}", self.0.incarnation.0[0], self.0.sequence)
    }
}

impl Display for Show<'_, Reply> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Reply::Outcomes { slot, outcomes } => {
                write!(f, "slot {slot}:")?;
                outcomes.iter().try_for_each(|outcome| write!(f, " {}", Show(outcome)))
            }
            Reply::NotLeader { hint: Some(hint) } => write!(f, "not leader, ask {hint}"),
            Reply::NotLeader { hint: None } => f.write_str("not leader"),
            Reply::Overloaded { retry_after } => write!(f, "overloaded, again after {retry_after:?}"),
            Reply::Unknown => f.write_str("unknown"),
        }
    }
}

impl Display for Show<'_, Holder> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Holder::Token(token) => Show(token).fmt(f),
            Holder::Forgotten => f.write_str("forgotten"),
        }
    }
}

impl Display for Show<'_, Outcome> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Outcome::Inserted => f.write_str("inserted"),
            Outcome::Duplicate { winner } => write!(f, "duplicate({})", Show(winner)),
            Outcome::Expired { boundary } => write!(f, "expired({boundary})"),
            Outcome::Present { winner } => write!(f, "present({})", Show(winner)),
            Outcome::Absent => f.write_str("absent"),
            Outcome::Deleted => f.write_str("deleted"),
            Outcome::Mismatch { winner } => write!(f, "mismatch({})", Show(winner)),
            Outcome::Forgotten => f.write_str("forgotten"),
            Outcome::KeyRulesKept => f.write_str("kept"),
            Outcome::KeyRulesDiffer { kept } => write!(f, "differs({kept:?})"),
            Outcome::Invalid => f.write_str("invalid"),
        }
    }
}

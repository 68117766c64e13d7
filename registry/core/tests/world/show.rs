//! How the trace reads: one line for each effect.

use std::fmt::Write as _;

use photon_core::{
    Accept, Accepted, Chosen, Effect, Entry, FetchChosen, Heartbeat, Message, Nack, Prepare, Promise, Record, Reply,
    Value,
};
use photon_types::{Command, Commands, Holder, Outcome, Token};

pub fn effect(effect: &Effect) -> String {
    match effect {
        Effect::Persist { seq, record } => format!("persist #{} {}", seq.0, self::record(record)),
        Effect::Apply { entry, wanted } => {
            format!("apply {}{}", self::entry(entry), if *wanted { " (wanted)" } else { "" })
        }
        Effect::Send { to, message } => format!("send {to} {}", self::message(message)),
        Effect::Reply { request, reply } => format!("reply r{} {}", request.0, self::reply(reply)),
        Effect::Read { read, from, to_end, bytes_max: _ } => format!("read #{} {from}..{to_end}", read.0),
    }
}

pub fn record(record: &Record) -> String {
    match record {
        Record::Promise { ballot } => format!("promise {ballot}"),
        Record::Accepted { entry, chosen } => {
            format!("{} {}", if *chosen { "chosen" } else { "accepted" }, self::entry(entry))
        }
        Record::CommitHint { commit_end } => format!("hint {commit_end}"),
    }
}

pub fn entry(entry: &Entry) -> String {
    format!("{}@{} {}", entry.slot, entry.ballot, value(&entry.value))
}

fn entries(entries: &[Entry]) -> String {
    let shown: Vec<String> = entries.iter().map(entry).collect();
    format!("[{}]", shown.join(", "))
}

pub fn value(value: &Value) -> String {
    if value.is_empty() {
        return "noop".into();
    }
    let shown: Vec<String> =
        Commands::new(value).map(|c| c.map_or_else(|e| format!("<{e}>"), |c| command(&c))).collect();
    format!("<{}>", shown.join(", "))
}

fn command(command: &Command) -> String {
    match command {
        Command::Insert { key, token } => format!("insert {} t{}", key.id, token.sequence),
        Command::Lookup { key } => format!("lookup {}", key.id),
        Command::Delete { key, token, reason: _ } => format!("delete {} t{}", key.id, token.sequence),
        Command::ForgetToken { key, token } => format!("forget {} t{}", key.id, token.sequence),
        Command::StateKeyRules { text } => format!("rules {text}"),
    }
}

pub fn message(message: &Message) -> String {
    match message {
        Message::Prepare(Prepare { ballot, from }) => format!("Prepare {ballot} from={from}"),
        Message::Promise(Promise { ballot, commit_end, trimmed_end: _, accepted, more_from }) => {
            let mut shown = format!("Promise {ballot} commit={commit_end} {}", entries(accepted));
            if let Some(more_from) = more_from {
                write!(shown, " more_from={more_from}").expect("a string takes all");
            }
            shown
        }
        Message::Nack(Nack { refused, promised }) => format!("Nack {refused} promised={promised}"),
        Message::Accept(Accept { ballot, slot, value, commit_end }) => {
            format!("Accept {slot}@{ballot} {} commit={commit_end}", self::value(value))
        }
        Message::Accepted(Accepted { ballot, slot }) => format!("Accepted {slot}@{ballot}"),
        Message::Heartbeat(Heartbeat { ballot, commit_end }) => format!("Heartbeat {ballot} commit={commit_end}"),
        Message::FetchChosen(FetchChosen { from }) => format!("FetchChosen from={from}"),
        Message::Chosen(Chosen { from, entries: chosen, commit_end, trimmed_end: _ }) => {
            format!("Chosen from={from} commit={commit_end} {}", entries(chosen))
        }
    }
}

/// The word by which a command of the harness picks messages.
pub fn kind(message: &Message) -> &'static str {
    match message {
        Message::Prepare(_) => "Prepare",
        Message::Promise(_) => "Promise",
        Message::Nack(_) => "Nack",
        Message::Accept(_) => "Accept",
        Message::Accepted(_) => "Accepted",
        Message::Heartbeat(_) => "Heartbeat",
        Message::FetchChosen(_) => "FetchChosen",
        Message::Chosen(_) => "Chosen",
    }
}

fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Outcomes { slot, outcomes } => {
            let shown: Vec<String> = outcomes.iter().map(outcome).collect();
            format!("slot={slot} {}", shown.join(", "))
        }
        Reply::NotLeader { hint: Some(hint) } => format!("not leader, ask {hint}"),
        Reply::NotLeader { hint: None } => "not leader".into(),
        Reply::Overloaded { retry_after } => format!("overloaded, again after {retry_after:?}"),
        Reply::Unknown => "unknown".into(),
    }
}

fn outcome(outcome: &Outcome) -> String {
    let by = |holder: &Holder| match holder {
        Holder::Token(Token { sequence, .. }) => format!("t{sequence}"),
        Holder::Forgotten => "forgotten".into(),
    };
    match outcome {
        Outcome::Inserted => "inserted".into(),
        Outcome::Duplicate { winner } => format!("duplicate of {}", by(winner)),
        Outcome::Expired { boundary } => format!("expired below {boundary}"),
        Outcome::Present { winner } => format!("present by {}", by(winner)),
        Outcome::Absent => "absent".into(),
        Outcome::Deleted => "deleted".into(),
        Outcome::Mismatch { winner } => format!("mismatch with {}", by(winner)),
        Outcome::Forgotten => "forgotten".into(),
        Outcome::KeyRulesKept => "rules kept".into(),
        Outcome::KeyRulesDiffer { kept } => format!("rules differ from {kept}"),
        Outcome::Invalid => "invalid".into(),
    }
}

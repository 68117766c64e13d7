//! Is a joined line made of the records that it says, byte for byte?
//!
//! Invariant: a line is right only if the line that the joiner's own function builds from the
//! click's record, the query's record and the index entry's token is the same bytes; and if the
//! click names that query.

use photon_check::Place;
use photon_format::output::{JoinedLine, ScannedRows, build_line, parse_line};
use photon_types::{Incarnation, Token};

use crate::error::VerifyError;
use crate::input::Input;

/// What is to be said of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is what the input says.
    Right,
    /// It is not, and why.
    Wrong(String),
    /// Its click or its query lies behind what was listed: to be judged when that was read.
    NotListed,
}

/// Judges the rows of one click.
pub fn judge(input: &Input, incarnation: Incarnation, rows: &ScannedRows<'_>) -> Result<Verdict, VerifyError> {
    let line = match parse_line(rows.rows) {
        Ok(line) => line,
        Err(error) => return Ok(Verdict::Wrong(error.to_string())),
    };
    let token = Token { incarnation, sequence: rows.sequence };
    if line.key != *rows.key {
        return Ok(Verdict::Wrong(format!("the line has key {}, its index entry has {}", line.key, rows.key)));
    }
    if line.token != token {
        return Ok(Verdict::Wrong(format!("the line has token {}, its index entry has {token}", line.token)));
    }
    let (source, offset) = (line.primary_source.as_str(), line.primary_offset);
    let Some(query) = input.read_at(source, offset)? else { return Ok(Verdict::NotListed) };
    let (Some(query_id), Some(query_payload)) = (query.query_id(), &query.payload) else {
        return Ok(Verdict::Wrong(format!("at {source}:{offset} is no query")));
    };
    let clicks = input.clicks(rows.key)?;
    if clicks.is_empty() {
        return Ok(Verdict::NotListed);
    }
    let mut why = String::new();
    for (place, click) in &clicks {
        let (Some(reference), Some(payload)) = (click.reference(), &click.payload) else {
            why = format!("the record at {} can not be joined", named(input, *place));
            continue;
        };
        if reference != query_id {
            why = format!("the click names query {reference}, the line has query {query_id} of {source}:{offset}");
            continue;
        }
        let mut built = Vec::with_capacity(rows.rows.len());
        build_line(
            &JoinedLine {
                key: rows.key,
                token,
                primary_source: source,
                primary_offset: offset,
                click: payload,
                query: query_payload,
            },
            &mut built,
        );
        match built.iter().zip(rows.rows).position(|(want, found)| want != found) {
            None if built.len() == rows.rows.len() => return Ok(Verdict::Right),
            None => why = format!("it has {} bytes, the input says {}", rows.rows.len(), built.len()),
            Some(at) => {
                let place = named(input, *place);
                why = format!("byte {at} of the line is not what the records at {place} and {source}:{offset} say");
            }
        }
    }
    Ok(Verdict::Wrong(why))
}

fn named(input: &Input, place: Place) -> String {
    format!("{}:{}", input.name(place), place.offset)
}

//! From text to a checked configuration, with the place of every fault.
//!
//! Invariant: a refusal names the file and the key; and the line, unless the key is not there.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::{Config, check, toml_form};
use crate::error::{ConfigError, Place};

pub(super) fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
    let refuse = |place: Place, message: String| ConfigError::Invalid { file: file.to_owned(), at: place, message };
    let deserializer = toml::Deserializer::parse(text).map_err(|error| {
        refuse(Place { line: span_line(text, error.span()), key: String::new() }, error.message().to_owned())
    })?;
    let form: toml_form::File = serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let key = error.path().to_string();
        let key = if key == "." { String::new() } else { key };
        let error = error.into_inner();
        let line = span_line(text, error.span()).or_else(|| line_of(text, &key));
        refuse(Place { line, key }, error.message().to_owned())
    })?;
    check::check(form, file)
        .map_err(|fault| refuse(Place { line: line_of(text, &fault.key), key: fault.key }, fault.message))
}

fn span_line(text: &str, span: Option<std::ops::Range<usize>>) -> Option<usize> {
    let start = span?.start.min(text.len());
    Some(text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1)
}

/// The line of a key path such as `join.stream[1].id`, or of the deepest part of it that is there.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut span = None;
    let mut table = Some(root.get_ref());
    for segment in key.split('.') {
        let (name, index) = match segment.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (segment, None),
        };
        let Some((found_key, found)) = table.and_then(|table| table.iter().find(|(key, _)| key.get_ref() == name))
        else {
            break;
        };
        span = Some(found_key.span());
        let value = match (found.get_ref(), index) {
            (DeValue::Array(array), Some(index)) => array.get(index).inspect(|item| span = Some(item.span())),
            (_, _) => Some(found),
        };
        table = value.and_then(|value| value.get_ref().as_table());
    }
    span_line(text, span)
}

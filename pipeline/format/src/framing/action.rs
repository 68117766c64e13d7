//! The action line of the Elasticsearch and OpenSearch bulk form.
//!
//! `{"index": {"_index": "ubi_events", "_id": "e1", …}}`: an object with one name, the operation,
//! whose value is an object. Invariant: what is no such line gives nothing, and never a panic.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::extract::values::{Scalar, scalar};

/// What an action line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// What to do with the document.
    pub operation: Operation,
    /// `_index`.
    pub index: Option<String>,
    /// `_id`, a text or an integer's digits; none when it is absent, null or of another kind.
    pub id: Option<String>,
}

/// A bulk operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Adds or replaces the document.
    Index,
    /// Adds the document.
    Create,
    /// Changes a document: its line is a change, not an event.
    Update,
    /// Removes a document: no line follows.
    Delete,
}

impl Operation {
    /// Whether a document line follows.
    #[must_use]
    pub fn has_document(self) -> bool {
        match self {
            Operation::Index | Operation::Create | Operation::Update => true,
            Operation::Delete => false,
        }
    }
}

/// An action line as serde reads it: an object with exactly one name.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ActionLine<'a> {
    #[serde(borrow)]
    Index(&'a RawValue),
    #[serde(borrow)]
    Create(&'a RawValue),
    #[serde(borrow)]
    Update(&'a RawValue),
    #[serde(borrow)]
    Delete(&'a RawValue),
}

/// Other names (`routing`, `pipeline`, `require_alias`) are of no interest here.
#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "_index")]
    index: Option<&'a RawValue>,
    #[serde(borrow, rename = "_id")]
    id: Option<&'a RawValue>,
}

impl Action {
    /// Reads an action line.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Action> {
        let text = std::str::from_utf8(line).ok()?;
        let (operation, raw) = match serde_json::from_str(text).ok()? {
            ActionLine::Index(raw) => (Operation::Index, raw),
            ActionLine::Create(raw) => (Operation::Create, raw),
            ActionLine::Update(raw) => (Operation::Update, raw),
            ActionLine::Delete(raw) => (Operation::Delete, raw),
        };
        // serde would take an array for a struct too.
        if !raw.get().starts_with('{') {
            return None;
        }
        let meta: Meta<'_> = serde_json::from_str(raw.get()).ok()?;
        let plain = |raw: Option<&RawValue>| match scalar(raw.map(RawValue::get)) {
            Scalar::Text(text) => Some(text.into_owned()),
            Scalar::Integer(digits) => Some(digits.to_owned()),
            Scalar::Missing | Scalar::Null | Scalar::Boolean(_) | Scalar::Unreadable | Scalar::Other => None,
        };
        Some(Action { operation, index: plain(meta.index), id: plain(meta.id) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn action_lines_are_read() {
        let parse = |line: &str| Action::parse(line.as_bytes());
        let action = |operation, index: Option<&str>, id: Option<&str>| {
            Some(Action { operation, index: index.map(str::to_owned), id: id.map(str::to_owned) })
        };
        assert_eq!(
            parse(r#"{"index": {"_index": "ubi_events", "_id": "e\u0031", "routing": 7}}"#),
            action(Operation::Index, Some("ubi_events"), Some("e1"))
        );
        assert_eq!(
            parse(r#"{"create":{"_id":18446744073709551617}}"#),
            action(Operation::Create, None, Some("18446744073709551617"))
        );
        assert_eq!(parse(r#"{"delete":{"_id":null}}"#), action(Operation::Delete, None, None));
        assert_eq!(parse(r#" {"update":{"_id":1.5}} "#), action(Operation::Update, None, None));
        assert_eq!(parse(r#"{"index":{}}"#), action(Operation::Index, None, None));
    }

    #[test]
    fn what_is_no_action_line_gives_nothing() {
        for line in [
            "",
            "{",
            "{}",
            r#"{"index":{"_id":"a"}"#,
            r#"{"index":{"_id":"a"}} x"#,
            r#"{"index":"a"}"#,
            r#"{"index":["a","b"]}"#,
            r#"{"index":null}"#,
            r#""index""#,
            r#"{"index":{},"create":{}}"#,
            r#"{"query_id":"q1","timestamp":1}"#,
        ] {
            assert_eq!(Action::parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(Action::parse(b"{\"index\":{\"_id\":\"\xff\"}}"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(line in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Action::parse(&line);
        }
    }
}

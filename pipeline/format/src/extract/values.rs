//! Chosen fields of a JSON line, without building a tree.
//!
//! One pass: names that nobody asked for are skipped, a wanted value is kept as the slice it is.
//! The whole line is checked: UTF-8 once, syntax to its end.
//!
//! Rules that make keys, and so must never change without a new parser version (`keyrules`):
//! of equal names the first counts; a text is compared and used unescaped; an integer is its digits
//! as written, never a double; a text with half a surrogate pair is unreadable where it is wanted,
//! and harmless where it is not.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::predicate::FieldPath;

/// Names that one object may be asked for, at most: one bit each.
pub(crate) const NAMES_MAX: usize = 64;

/// The fields that a reader wants, as a tree of names.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldPlan {
    root: Node,
    slots: usize,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// Where the value goes, if it is wanted itself.
    slot: Option<usize>,
    children: Vec<(Box<str>, Node)>,
}

/// Why a line gives no fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldsError {
    /// Not UTF-8.
    Utf8,
    /// Not one JSON value.
    Json,
    /// One JSON value, but not an object.
    NotAnObject,
}

/// The wanted values, as slices of the line.
#[derive(Debug)]
pub(crate) struct Slots<'a>(Vec<Option<&'a str>>);

/// A value, as far as keys and conditions look at values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scalar<'a> {
    /// Not there.
    Missing,
    /// `null`.
    Null,
    /// A text, unescaped.
    Text(Cow<'a, str>),
    /// A number without fraction and exponent, as written.
    Integer(&'a str),
    /// `true` or `false`.
    Boolean(bool),
    /// A text that is not Unicode when unescaped.
    Unreadable,
    /// A fraction, an array or an object.
    Other,
}

impl FieldPlan {
    /// The slot of a field; the same for the same path.
    ///
    /// # Errors
    /// A message when one object is asked for more than [`NAMES_MAX`] names.
    pub(crate) fn slot(&mut self, path: &FieldPath) -> Result<usize, String> {
        let mut node = &mut self.root;
        for name in path.segments() {
            let index = match node.children.iter().position(|(known, _)| &**known == name) {
                Some(index) => index,
                None => {
                    if NAMES_MAX <= node.children.len() {
                        return Err(format!(
                            "more than {NAMES_MAX} fields of one object are named; \"{path}\" is too much"
                        ));
                    }
                    node.children.push((name.into(), Node::default()));
                    node.children.len() - 1
                }
            };
            node = &mut node.children[index].1;
        }
        Ok(*node.slot.get_or_insert_with(|| {
            self.slots += 1;
            self.slots - 1
        }))
    }

    /// What an object without names gives.
    pub(crate) fn no_fields(&self) -> Slots<'static> {
        Slots(vec![None; self.slots])
    }

    /// Reads a line.
    pub(crate) fn read<'a>(&self, line: &'a [u8]) -> Result<Slots<'a>, FieldsError> {
        let text = std::str::from_utf8(line).map_err(|_| FieldsError::Utf8)?;
        let mut slots = Slots(vec![None; self.slots]);
        if first_byte(text) == Some(b'{') {
            read_object(&self.root, text, &mut slots.0).map_err(|_| FieldsError::Json)?;
            return Ok(slots);
        }
        match serde_json::from_str::<IgnoredAny>(text) {
            Ok(IgnoredAny) => Err(FieldsError::NotAnObject),
            Err(_) => Err(FieldsError::Json),
        }
    }
}

impl<'a> Slots<'a> {
    pub(crate) fn scalar(&self, slot: usize) -> Scalar<'a> {
        scalar(self.0[slot])
    }
}

/// What a raw JSON value is.
pub(crate) fn scalar(raw: Option<&str>) -> Scalar<'_> {
    let Some(raw) = raw else { return Scalar::Missing };
    match raw.as_bytes() {
        b"null" => Scalar::Null,
        b"true" => Scalar::Boolean(true),
        b"false" => Scalar::Boolean(false),
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => Scalar::Text(Cow::Borrowed(&raw[1..raw.len() - 1])),
        [b'"', ..] => match serde_json::from_str::<String>(raw) {
            Ok(text) => Scalar::Text(Cow::Owned(text)),
            Err(_) => Scalar::Unreadable,
        },
        [b'-' | b'0'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => Scalar::Integer(raw),
        _ => Scalar::Other,
    }
}

fn first_byte(text: &str) -> Option<u8> {
    text.bytes().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

fn read_object<'a>(node: &Node, text: &'a str, slots: &mut [Option<&'a str>]) -> serde_json::Result<()> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_map(ObjectVisitor { node, slots })?;
    deserializer.end()
}

struct ObjectVisitor<'n, 's, 'a> {
    node: &'n Node,
    slots: &'s mut [Option<&'a str>],
}

impl<'a> Visitor<'a> for ObjectVisitor<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen: u64 = 0;
        while let Some(index) = map.next_key_seed(NameSeed { node: self.node })? {
            let wanted = index.filter(|index| seen & (1 << index) == 0);
            let Some(index) = wanted else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            seen |= 1 << index;
            let raw = map.next_value::<&'a RawValue>()?.get();
            let child = &self.node.children[index].1;
            if let Some(slot) = child.slot {
                self.slots[slot] = Some(raw);
            }
            if !child.children.is_empty() && raw.starts_with('{') {
                // The value was checked just now: this reads it again, no deeper than the plan.
                read_object(child, raw, self.slots).map_err(serde::de::Error::custom)?;
            }
        }
        Ok(())
    }
}

/// Which child of the node a name is. Names are taken as bytes: half a surrogate pair in a name that
/// nobody wants must not spoil the line.
struct NameSeed<'n> {
    node: &'n Node,
}

impl<'a> DeserializeSeed<'a> for NameSeed<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for NameSeed<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_bytes<E: serde::de::Error>(self, name: &[u8]) -> Result<Option<usize>, E> {
        Ok(self.node.children.iter().position(|(known, _)| known.as_bytes() == name))
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Option<usize>, E> {
        self.visit_bytes(name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(paths: &[&str]) -> FieldPlan {
        let mut plan = FieldPlan::default();
        for (index, path) in paths.iter().enumerate() {
            assert_eq!(plan.slot(&FieldPath::parse(path).unwrap()), Ok(index));
        }
        plan
    }

    #[track_caller]
    fn check(path: &str, line: &str, want: &Scalar<'_>) {
        let slots = plan(&[path]).read(line.as_bytes()).unwrap();
        assert_eq!(&slots.scalar(0), want, "{line}");
    }

    #[test]
    fn values_are_what_was_written() {
        check("a", r#"{"b":1}"#, &Scalar::Missing);
        check("a", r#"{"a":null}"#, &Scalar::Null);
        check("a", r#"{"a": "x y" }"#, &Scalar::Text("x y".into()));
        check("a", r#"{"a":"\u00e9\/\n\ud83d\ude00"}"#, &Scalar::Text("é/\n😀".into()));
        check("a", r#"{"a":18446744073709551617}"#, &Scalar::Integer("18446744073709551617"));
        check("a", r#"{"a":-1}"#, &Scalar::Integer("-1"));
        check("a", r#"{"a":1.0}"#, &Scalar::Other);
        check("a", r#"{"a":1e3}"#, &Scalar::Other);
        check("a", r#"{"a":{"b":1}}"#, &Scalar::Other);
        check("a", r#"{"a":[1]}"#, &Scalar::Other);
        check("a", r#"{"a":"\ud800"}"#, &Scalar::Unreadable);
        check("a.b", r#"{"a":{"c":{"b":2},"b":1}}"#, &Scalar::Integer("1"));
        check("a.b", r#"{"a":"b"}"#, &Scalar::Missing);
        check("a.b", r#"{"b":1,"a":{}}"#, &Scalar::Missing);
    }

    #[test]
    fn the_first_of_equal_names_counts() {
        check("a", r#"{"a":1,"a":2}"#, &Scalar::Integer("1"));
        check("a", r#"{"\u0061":1,"a":2}"#, &Scalar::Integer("1"));
        check("a.b", r#"{"a":1,"a":{"b":2}}"#, &Scalar::Missing);
        check("a.b", r#"{"a":{},"a":{"b":2}}"#, &Scalar::Missing);
    }

    #[test]
    fn one_path_may_lead_through_another() {
        let plan = plan(&["a", "a.b"]);
        let slots = plan.read(br#"{"a":{"b":7}}"#).unwrap();
        assert_eq!((slots.scalar(0), slots.scalar(1)), (Scalar::Other, Scalar::Integer("7")));
    }

    #[test]
    fn what_nobody_wants_is_only_skipped() {
        let deep = format!(r#"{{"x":{}{},"a":1}}"#, "[".repeat(100_000), "]".repeat(100_000));
        check("a", &deep, &Scalar::Integer("1"));
        check("a", r#"{"x":"\ud800","\udfff":1e999,"a":1}"#, &Scalar::Integer("1"));
        check("a", r#"{"\ud800a":0,"a":1}"#, &Scalar::Integer("1"));
    }

    #[test]
    fn faults_are_told_apart() {
        for (line, want) in [
            (&b"{\"x\":\"\xff\"}"[..], FieldsError::Utf8),
            (b"", FieldsError::Json),
            (b"{", FieldsError::Json),
            (b"{\"a\":1}x", FieldsError::Json),
            (b"{\"a\":1,}", FieldsError::Json),
            (b"{\"a\":{\"b\":1}", FieldsError::Json),
            (b"{\"x\":01}", FieldsError::Json),
            (b"[1", FieldsError::Json),
            (b"[{\"a\":1}]", FieldsError::NotAnObject),
            (b" null ", FieldsError::NotAnObject),
        ] {
            assert_eq!(plan(&["a"]).read(line).err(), Some(want), "{}", String::from_utf8_lossy(line));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = plan(&["a", "a.b", "c.d.e"]).read(&line).map(|slots| slots.scalar(0));
        }

        /// An independent reading of the same line: serde_json's own tree.
        #[test]
        fn a_tree_says_the_same(texts in proptest::collection::vec(".*", 3), number in any::<i64>()) {
            let line = serde_json::json!({"x": texts[0], "a": {"b": texts[1], "n": number}, "c": texts[2]}).to_string();
            let plan = plan(&["a.b", "a.n", "c"]);
            let slots = plan.read(line.as_bytes()).unwrap();
            prop_assert_eq!(slots.scalar(0), Scalar::Text(texts[1].as_str().into()));
            prop_assert_eq!(slots.scalar(1), Scalar::Integer(&number.to_string()));
            prop_assert_eq!(slots.scalar(2), Scalar::Text(texts[2].as_str().into()));
        }
    }
}

//! Which records are meant: the names of fields, and conditions on them.
//!
//! A predicate is an AND over fields; each field must be equal to one of its literals. A field that
//! is missing, or is not a text, an integer or a boolean, equals nothing.
//!
//! Invariant: two predicates that mean the same are equal and are written the same, since their text
//! is part of the key rules: conditions are sorted by field, literals are sorted and unique.

use std::fmt;

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

use crate::extract::values::{FieldPlan, NAMES_MAX, Scalar, Slots};
use crate::framing::Action;

const PATH_BYTES_MAX: usize = 256;
const PATH_SEGMENTS_MAX: usize = 16;
const CONDITIONS_MAX: usize = 32;
const _: () = assert!(CONDITIONS_MAX <= NAMES_MAX);
const LITERALS_MAX: usize = 256;
const LITERAL_BYTES_MAX: usize = 256;

/// A field of a document: names joined by dots, `event_attributes.object.object_id`. A name that
/// holds a dot itself can not be written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(String);

impl FieldPath {
    /// Reads a path.
    ///
    /// # Errors
    /// A message that says what is allowed.
    pub fn parse(text: &str) -> Result<FieldPath, String> {
        let good = !text.is_empty()
            && text.len() <= PATH_BYTES_MAX
            && !text.starts_with('@')
            && !text.chars().any(char::is_control)
            && text.split('.').all(|segment| !segment.is_empty())
            && text.split('.').count() <= PATH_SEGMENTS_MAX;
        if good {
            return Ok(FieldPath(text.to_owned()));
        }
        Err(format!(
            "\"{}\" is not a field path: names joined by dots are allowed, such as \"query_id\" or \"object.id\" \
             (at most {PATH_SEGMENTS_MAX} names and {PATH_BYTES_MAX} bytes, no @ in front)",
            text.escape_default()
        ))
    }

    /// The names, outermost first; at least one.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A field that a condition can ask for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Of the bulk action line.
    Action(ActionField),
    /// Of the document.
    Document(FieldPath),
}

/// A field of the bulk action line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionField {
    /// `@index`: `_index`.
    Index,
    /// `@id`: `_id`.
    Id,
}

impl Field {
    /// Reads `@index`, `@id` or a field path.
    ///
    /// # Errors
    /// A message that says what is allowed.
    pub fn parse(text: &str) -> Result<Field, String> {
        match text {
            "@index" => Ok(Field::Action(ActionField::Index)),
            "@id" => Ok(Field::Action(ActionField::Id)),
            text if text.starts_with('@') => Err(format!(
                "\"{}\" is not known; \"@index\", \"@id\" and field paths are allowed",
                text.escape_default()
            )),
            text => FieldPath::parse(text).map(Field::Document),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Action(ActionField::Index) => f.write_str("@index"),
            Field::Action(ActionField::Id) => f.write_str("@id"),
            Field::Document(path) => path.fmt(f),
        }
    }
}

/// A value that a field can be equal to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Literal {
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number, compared exactly.
    Integer(i64),
    /// A text, compared byte for byte after unescaping.
    Text(String),
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Boolean(value) => value.fmt(f),
            Literal::Integer(value) => value.fmt(f),
            // JSON's quoting: one line, and the same in every version of the compiler.
            Literal::Text(text) => f.write_str(&serde_json::Value::from(text.as_str()).to_string()),
        }
    }
}

/// One literal or a list of them, as written in the config file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literals(pub Vec<Literal>);

impl<'de> Deserialize<'de> for Literals {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Literals, D::Error> {
        struct LiteralsVisitor {
            lists: Lists,
        }
        enum Lists {
            Allowed,
            Refused,
        }
        struct One(Literal);

        impl<'de> Deserialize<'de> for One {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<One, D::Error> {
                let mut literals = deserializer.deserialize_any(LiteralsVisitor { lists: Lists::Refused })?.0;
                Ok(One(literals.pop().expect("a literal that is no list is one")))
            }
        }
        impl<'de> Visitor<'de> for LiteralsVisitor {
            type Value = Literals;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self.lists {
                    Lists::Allowed => "a text, a whole number, true, false, or a list of these",
                    Lists::Refused => "a text, a whole number, true or false",
                })
            }
            fn visit_str<E>(self, text: &str) -> Result<Literals, E> {
                Ok(Literals(vec![Literal::Text(text.to_owned())]))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Literals, E> {
                Ok(Literals(vec![Literal::Integer(value)]))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Literals, E> {
                Ok(Literals(vec![Literal::Boolean(value)]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Literals, A::Error> {
                match self.lists {
                    Lists::Refused => Err(serde::de::Error::invalid_type(serde::de::Unexpected::Seq, &self)),
                    Lists::Allowed => {
                        let mut literals = Vec::new();
                        while let Some(One(literal)) = items.next_element()? {
                            literals.push(literal);
                        }
                        Ok(Literals(literals))
                    }
                }
            }
        }
        deserializer.deserialize_any(LiteralsVisitor { lists: Lists::Allowed })
    }
}

/// Conditions that must all hold. Empty: always true.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Predicate {
    conditions: Vec<(Field, Vec<Literal>)>,
}

impl Predicate {
    /// A predicate in its one form.
    ///
    /// # Errors
    /// A message that says what is allowed.
    pub fn new(conditions: Vec<(Field, Literals)>) -> Result<Predicate, String> {
        if CONDITIONS_MAX < conditions.len() {
            return Err(format!("{} conditions, at most {CONDITIONS_MAX} are allowed", conditions.len()));
        }
        let mut sorted = Vec::with_capacity(conditions.len());
        for (field, Literals(mut literals)) in conditions {
            literals.sort();
            literals.dedup();
            if literals.is_empty() || LITERALS_MAX < literals.len() {
                return Err(format!("`{field}` has {} values, 1 to {LITERALS_MAX} are allowed", literals.len()));
            }
            let too_long = |literal: &Literal| matches!(literal, Literal::Text(text) if LITERAL_BYTES_MAX < text.len());
            if literals.iter().any(too_long) {
                return Err(format!("`{field}` has a value over {LITERAL_BYTES_MAX} bytes"));
            }
            sorted.push((field, literals));
        }
        sorted.sort();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("`{}` is named twice", pair[0].0));
        }
        Ok(Predicate { conditions: sorted })
    }

    /// Whether every record passes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Field and values of each condition as text, in order.
    pub fn lines(&self) -> impl Iterator<Item = (String, String)> {
        self.conditions.iter().map(|(field, literals)| {
            let values: Vec<_> = literals.iter().map(ToString::to_string).collect();
            (field.to_string(), values.join(", "))
        })
    }

    /// Resolves the fields of documents to slots of a plan.
    ///
    /// # Errors
    /// A message when the plan has no room for them.
    pub(crate) fn compile(&self, plan: &mut FieldPlan) -> Result<Matcher, String> {
        let mut matcher = Matcher { action: Vec::new(), document: Vec::new() };
        for (field, literals) in &self.conditions {
            match field {
                Field::Action(field) => matcher.action.push((*field, literals.clone())),
                Field::Document(path) => matcher.document.push((plan.slot(path)?, literals.clone())),
            }
        }
        Ok(matcher)
    }
}

/// A predicate whose fields are slots of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Matcher {
    action: Vec<(ActionField, Vec<Literal>)>,
    document: Vec<(usize, Vec<Literal>)>,
}

impl Matcher {
    /// Whether the conditions on the action line hold: all that can be said of a document that is
    /// not JSON.
    pub(crate) fn action_holds(&self, action: Option<&Action>) -> bool {
        self.action.iter().all(|(field, literals)| {
            let found = action.and_then(|action| match field {
                ActionField::Index => action.index.as_deref(),
                ActionField::Id => action.id.as_deref(),
            });
            found.is_some_and(|found| is_any(&Scalar::Text(found.into()), literals))
        })
    }

    /// Whether all conditions hold.
    pub(crate) fn holds(&self, action: Option<&Action>, slots: &Slots<'_>) -> bool {
        self.action_holds(action) && self.document.iter().all(|(slot, literals)| is_any(&slots.scalar(*slot), literals))
    }

    /// Whether it asks for anything in the document.
    pub(crate) fn needs_document(&self) -> bool {
        !self.document.is_empty()
    }
}

fn is_any(found: &Scalar<'_>, literals: &[Literal]) -> bool {
    match found {
        Scalar::Text(found) => literals.iter().any(|it| matches!(it, Literal::Text(text) if text.as_str() == found)),
        Scalar::Integer(found) => found
            .parse::<i64>()
            .is_ok_and(|found| literals.iter().any(|it| matches!(it, Literal::Integer(value) if *value == found))),
        Scalar::Boolean(found) => literals.iter().any(|it| matches!(it, Literal::Boolean(value) if value == found)),
        Scalar::Missing | Scalar::Null | Scalar::Unreadable | Scalar::Other => false,
    }
}

/// A predicate over payloads alone: what the `filter` adapter asks.
#[derive(Clone, Debug)]
pub struct PayloadFilter {
    plan: FieldPlan,
    matcher: Matcher,
}

impl PayloadFilter {
    /// A filter that lets pass what the predicate says.
    #[must_use]
    pub fn new(predicate: &Predicate) -> PayloadFilter {
        let mut plan = FieldPlan::default();
        let matcher =
            predicate.compile(&mut plan).expect("a predicate alone has fewer conditions than a plan has room");
        PayloadFilter { plan, matcher }
    }

    /// Whether the payload passes. One that is not JSON passes only where nothing is asked of it.
    #[must_use]
    pub fn passes(&self, payload: &[u8]) -> bool {
        if !self.matcher.needs_document() {
            return self.matcher.action_holds(None);
        }
        match self.plan.read(payload) {
            Ok(slots) => self.matcher.holds(None, &slots),
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predicate(conditions: &[(&str, &[Literal])]) -> Predicate {
        let conditions = conditions.iter().map(|(field, it)| (Field::parse(field).unwrap(), Literals(it.to_vec())));
        Predicate::new(conditions.collect()).unwrap()
    }

    fn text(text: &str) -> Literal {
        Literal::Text(text.into())
    }

    #[test]
    fn the_form_does_not_depend_on_the_order_written() {
        let one = predicate(&[("b", &[text("y"), text("x"), text("y")]), ("@index", &[text("i")])]);
        let other = predicate(&[("@index", &[text("i")]), ("b", &[text("x"), text("y")])]);
        assert_eq!(one, other);
        let lines: Vec<_> = one.lines().map(|(field, values)| format!("{field} = {values}")).collect();
        assert_eq!(lines, ["@index = \"i\"", "b = \"x\", \"y\""]);
    }

    #[track_caller]
    fn check(conditions: &[(&str, &[Literal])], payload: &str, passes: bool) {
        assert_eq!(PayloadFilter::new(&predicate(conditions)).passes(payload.as_bytes()), passes, "{payload}");
    }

    #[test]
    fn conditions_are_exact() {
        let big = Literal::Integer(9_007_199_254_740_993);
        check(&[], "not JSON", true);
        check(&[("a", &[text("x")])], "not JSON", false);
        check(&[("a", &[text("x"), text("y")])], r#"{"a":"y"}"#, true);
        check(&[("a", &[text("é")])], r#"{"a":"\u00e9"}"#, true);
        check(&[("a.b", &[text("x")])], r#"{"a":{"b":"x"}}"#, true);
        check(&[("a.b", &[text("x")])], r#"{"a":[{"b":"x"}]}"#, false);
        check(&[("a", std::slice::from_ref(&big))], r#"{"a":9007199254740993}"#, true);
        check(&[("a", &[big])], r#"{"a":9007199254740992}"#, false);
        check(&[("a", &[Literal::Integer(1)])], r#"{"a":"1"}"#, false);
        check(&[("a", &[Literal::Integer(1)])], r#"{"a":1.0}"#, false);
        check(&[("a", &[Literal::Boolean(true)])], r#"{"a":true}"#, true);
        check(&[("a", &[text("x")])], r#"{"a":null}"#, false);
        check(&[("a", &[text("x")])], r#"{"a":"\ud800"}"#, false);
        check(&[("a", &[text("x")]), ("b", &[text("x")])], r#"{"a":"x"}"#, false);
        // The first of two equal names counts.
        check(&[("a", &[text("x")])], r#"{"a":"x","a":"z"}"#, true);
        check(&[("a", &[text("z")])], r#"{"a":"x","a":"z"}"#, false);
    }

    #[test]
    fn paths_are_checked() {
        for bad in ["", ".", "a.", ".a", "a..b", "@x", "a\nb", &"a.".repeat(16), &"x".repeat(257)] {
            assert!(FieldPath::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(FieldPath::parse("a.b").unwrap().segments().collect::<Vec<_>>(), ["a", "b"]);
    }
}

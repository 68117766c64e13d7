//! A line of the joined log, and reading it back.
//!
//! Invariant: a line is one JSON object without a raw newline, and not nested deeper than readers of
//! JSON go; a payload that is one JSON value within that depth stands in it byte for byte.
//!
//! `{"key":[timestamp,"id"],"token":"<32 hex>-<seq>","primary_at":"source:offset","click":…,"query":…}`

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use photon_types::{EventKey, Token};
use serde::de::IgnoredAny;

use super::error::OutputError;

/// A payload that is nested deeper than this stands as a JSON string. Readers of JSON give up at
/// some depth, jq at 256 in its older versions and Python at about 1,000, and with the line they
/// would lose all that follows it.
pub const PAYLOAD_DEPTH_MAX: usize = 100;

/// What a joined line is made of.
#[derive(Clone, Copy, Debug)]
pub struct JoinedLine<'a> {
    /// The click's key.
    pub key: &'a EventKey,
    /// The attempt that inserted it.
    pub token: Token,
    /// The source of the query.
    pub primary_source: &'a str,
    /// Where the query's record begins in it.
    pub primary_offset: u64,
    /// The click, as it stands in its log.
    pub click: &'a [u8],
    /// The query, as it stands in its log.
    pub query: &'a [u8],
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedLine<'a> {
    /// The click's key.
    pub key: EventKey,
    /// The attempt that inserted it.
    pub token: Token,
    /// The source of the query.
    pub primary_source: String,
    /// Where the query's record begins in it.
    pub primary_offset: u64,
    /// The JSON value that stands for the click, byte for byte.
    pub click: &'a [u8],
    /// The JSON value that stands for the query, byte for byte.
    pub query: &'a [u8],
}

/// Appends the line, with its newline.
pub fn build_line(line: &JoinedLine<'_>, out: &mut Vec<u8>) {
    let JoinedLine { key, token, primary_source, primary_offset, click, query } = *line;
    out.reserve(click.len() + query.len() + 256);
    out.extend_from_slice(b"{\"key\":[");
    out.extend_from_slice(key.timestamp.micros().to_string().as_bytes());
    out.push(b',');
    put_id(key.id.as_bytes(), out);
    out.extend_from_slice(b"],\"token\":\"");
    out.extend_from_slice(token.to_string().as_bytes());
    out.extend_from_slice(b"\",\"primary_at\":");
    put_string(&format!("{primary_source}:{primary_offset}"), out);
    out.extend_from_slice(b",\"click\":");
    put_payload(click, out);
    out.extend_from_slice(b",\"query\":");
    put_payload(query, out);
    out.extend_from_slice(b"}\n");
}

/// Printable ASCII as a string, all else as `{"hex":"…"}`.
fn put_id(id: &[u8], out: &mut Vec<u8>) {
    match std::str::from_utf8(id) {
        Ok(text) if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) => put_string(text, out),
        Ok(_) | Err(_) => {
            out.extend_from_slice(b"{\"hex\":\"");
            id.iter().for_each(|byte| out.extend_from_slice(format!("{byte:02x}").as_bytes()));
            out.extend_from_slice(b"\"}");
        }
    }
}

fn put_payload(payload: &[u8], out: &mut Vec<u8>) {
    match std::str::from_utf8(payload) {
        // A newline between its tokens would make two lines of one.
        Ok(text) if is_one_json_value(text) && !payload.contains(&b'\n') && !is_too_deep(payload) => {
            out.extend_from_slice(payload);
        }
        Ok(text) => put_string(text, out),
        Err(_) => {
            out.extend_from_slice(b"{\"base64\":\"");
            out.extend_from_slice(BASE64.encode(payload).as_bytes());
            out.extend_from_slice(b"\"}");
        }
    }
}

fn put_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a text is JSON, and a Vec takes it");
}

/// Without recursion, however deep it is.
fn is_one_json_value(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// For JSON only: there, brackets outside of strings are balanced.
fn is_too_deep(json: &[u8]) -> bool {
    let mut depth = 0usize;
    let mut in_string = false;
    let mut bytes = json.iter();
    while let Some(&byte) = bytes.next() {
        match (in_string, byte) {
            // What follows may be a quotation mark, and then ends nothing.
            (true, b'\\') => drop(bytes.next()),
            (_, b'"') => in_string = !in_string,
            (false, b'[' | b'{') => {
                depth += 1;
                if PAYLOAD_DEPTH_MAX < depth {
                    return true;
                }
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            (_, _) => (),
        }
    }
    false
}

/// Reads a line, with or without its newline.
///
/// # Errors
/// [`OutputError::Line`] when it is not exactly what [`build_line`] writes.
pub fn parse_line(line: &[u8]) -> Result<ParsedLine<'_>, OutputError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let text = std::str::from_utf8(line)
        .map_err(|error| OutputError::Line { offset: error.valid_up_to(), why: "it is not UTF-8" })?;
    if let Some(offset) = text.find('\n') {
        return Err(OutputError::Line { offset, why: "it has a newline inside" });
    }
    let mut parser = LineParser { text, at: 0 };
    parser.literal("{\"key\":[", "expected {\"key\":[")?;
    let micros = parser.number()?;
    parser.literal(",", "expected a comma")?;
    let id_at = parser.at;
    let id = parse_id(parser.value()?).ok_or(OutputError::Line { offset: id_at, why: "expected an id" })?;
    let key = EventKey::new(micros, &id)
        .map_err(|_| OutputError::Line { offset: id_at, why: "timestamp or id is out of bounds" })?;
    parser.literal("],\"token\":", "expected the token")?;
    let token = parser.parsed("expected <32 hex>-<sequence>", |text| text.parse::<Token>().ok())?;
    parser.literal(",\"primary_at\":", "expected primary_at")?;
    let (primary_source, primary_offset) = parser.parsed("expected source:offset", |text| {
        let (source, offset) = text.rsplit_once(':')?;
        Some((source.to_owned(), offset.parse().ok()?))
    })?;
    parser.literal(",\"click\":", "expected the click")?;
    let click = parser.value()?.as_bytes();
    parser.literal(",\"query\":", "expected the query")?;
    let query = parser.value()?.as_bytes();
    parser.literal("}", "expected the end of the object")?;
    if parser.at < text.len() {
        return Err(parser.expected("expected the end of the line"));
    }
    Ok(ParsedLine { key, token, primary_source, primary_offset, click, query })
}

struct LineParser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> LineParser<'a> {
    fn expected(&self, why: &'static str) -> OutputError {
        OutputError::Line { offset: self.at, why }
    }

    fn literal(&mut self, literal: &str, why: &'static str) -> Result<(), OutputError> {
        if !self.text[self.at..].starts_with(literal) {
            return Err(self.expected(why));
        }
        self.at += literal.len();
        Ok(())
    }

    fn number(&mut self) -> Result<u64, OutputError> {
        let rest = &self.text[self.at..];
        let digits = &rest[..rest.bytes().take_while(u8::is_ascii_digit).count()];
        let number = digits.parse().map_err(|_| self.expected("expected a timestamp"))?;
        self.at += digits.len();
        Ok(number)
    }

    /// One JSON value, with the white space around it.
    fn value(&mut self) -> Result<&'a str, OutputError> {
        let rest = &self.text[self.at..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        let Some(Ok(IgnoredAny)) = values.next() else {
            return Err(self.expected("expected a JSON value"));
        };
        let value_end = values.byte_offset();
        let space = rest[value_end..].bytes().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
        self.at += value_end + space;
        Ok(&rest[..value_end + space])
    }

    /// A JSON string, and what it says.
    fn parsed<T>(&mut self, why: &'static str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, OutputError> {
        let at = self.at;
        let value = self.value()?;
        let text: Option<String> = serde_json::from_str(value).ok();
        text.and_then(|text| parse(&text)).ok_or(OutputError::Line { offset: at, why })
    }
}

fn parse_id(value: &str) -> Option<Vec<u8>> {
    if let Ok(text) = serde_json::from_str::<String>(value) {
        return Some(text.into_bytes());
    }
    let hex = value.strip_prefix("{\"hex\":\"")?.strip_suffix("\"}")?;
    let digits: Option<Vec<u8>> = hex.chars().map(|digit| digit.to_digit(16)?.try_into().ok()).collect();
    let digits = digits?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use photon_types::Incarnation;
    use proptest::prelude::*;

    use super::*;

    fn build(id: &[u8], click: &[u8], query: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        build_line(
            &JoinedLine {
                key: &EventKey::new(1_700_000_000_123_456, id).unwrap(),
                token: Token { incarnation: Incarnation([0xab; 16]), sequence: 7 },
                primary_source: "queries/a \"b\":c.log",
                primary_offset: 99,
                click,
                query,
            },
            &mut out,
        );
        out
    }

    #[test]
    fn golden_line() {
        let line = build(b"e-1", b"{\"a\": 1.0,\"b\":\"\xc3\xbc\"}", b" [1] ");
        expect_test::expect![[r#"
            {"key":[1700000000123456,"e-1"],"token":"abababababababababababababababab-7","primary_at":"queries/a \"b\":c.log:99","click":{"a": 1.0,"b":"ü"},"query": [1] }
        "#]].assert_eq(std::str::from_utf8(&line).unwrap());
    }

    #[track_caller]
    fn check_payload(payload: &[u8], want: &str) {
        let line = build(b"x", payload, b"null");
        let parsed = parse_line(&line).unwrap();
        assert_eq!(std::str::from_utf8(parsed.click).unwrap(), want);
        assert_eq!(parsed.query, b"null");
        assert_eq!((parsed.primary_source.as_str(), parsed.primary_offset), ("queries/a \"b\":c.log", 99));
        assert_eq!(parsed.token.sequence, 7);
    }

    #[test]
    fn payloads_stand_verbatim_or_as_string_or_as_base64() {
        check_payload(b"{\"a\":  1e5, \"a\":\"\\u00fc\"}", "{\"a\":  1e5, \"a\":\"\\u00fc\"}");
        check_payload(b" {} \r", " {} \r");
        check_payload(b"18446744073709551616", "18446744073709551616");
        check_payload(b"{\"a\":\n1}", "\"{\\\"a\\\":\\n1}\"");
        check_payload(b"{} {}", "\"{} {}\"");
        check_payload(b"", "\"\"");
        check_payload(b"plain \x01 text", "\"plain \\u0001 text\"");
        check_payload(b"\xff\x00", "{\"base64\":\"/wA=\"}");
        check_payload(b"{\"a\":\"\xff\"}", "{\"base64\":\"eyJhIjoi/yJ9\"}");
    }

    fn nested(open: &str, inner: &str, close: &str, depth: usize) -> Vec<u8> {
        [open.repeat(depth), inner.to_owned(), close.repeat(depth)].concat().into_bytes()
    }

    #[test]
    fn what_is_nested_too_deep_stands_as_a_string() {
        for (open, inner, close) in [("[", "", "]"), ("{\"[\\\"\":", "1", "}"), ("[[],{\"a\":", "\"{\"", "}]")] {
            let levels = if open.starts_with("[[") { 2 } else { 1 };
            let depth_max = PAYLOAD_DEPTH_MAX / levels;
            let allowed = nested(open, inner, close, depth_max);
            check_payload(&allowed, std::str::from_utf8(&allowed).unwrap());
            for depth in [depth_max + 1, 100_000] {
                let deep = nested(open, inner, close, depth);
                let line = build(b"x", &deep, &deep);
                let parsed = parse_line(&line).unwrap();
                for value in [parsed.click, parsed.query] {
                    let text: String = serde_json::from_slice(value).expect("it is a string");
                    assert!(text.as_bytes() == deep, "{depth} times {open}");
                }
                // A reader with a limit of its own reads the line.
                let whole: serde_json::Value = serde_json::from_slice(&line).unwrap();
                assert!(whole["click"].is_string());
            }
        }
    }

    #[test]
    fn brackets_in_strings_and_side_by_side_are_not_deep() {
        let text = format!("[\"\\\\\",\"{}\\\"{}\"]", "[".repeat(1_000), "{".repeat(1_000));
        check_payload(text.as_bytes(), &text);
        let flat = format!("[{}1]", "[],{},".repeat(1_000));
        check_payload(flat.as_bytes(), &flat);
    }

    #[track_caller]
    fn check_id(id: &[u8], want: &str) {
        let line = build(id, b"1", b"2");
        assert!(std::str::from_utf8(&line).unwrap().contains(&format!("456,{want}],")), "{line:?}");
        assert_eq!(parse_line(&line).unwrap().key.id.as_bytes(), id);
    }

    #[test]
    fn ids_stand_as_text_or_as_hex() {
        check_id(b"plain id~", "\"plain id~\"");
        check_id(b"\"\\", "\"\\\"\\\\\"");
        check_id(b"\x7f", "{\"hex\":\"7f\"}");
        check_id("ü".as_bytes(), "{\"hex\":\"c3bc\"}");
        check_id(b"\x00\xff", "{\"hex\":\"00ff\"}");
    }

    #[test]
    fn what_is_no_line_is_refused_with_the_place() {
        let line = build(b"x", b"1", b"2");
        for end in 0..line.len() - 1 {
            assert!(parse_line(&line[..end]).is_err(), "cut at {end}");
        }
        let twice = [&line[..], &line[..]].concat();
        assert!(matches!(parse_line(&twice), Err(OutputError::Line { offset, .. }) if offset == line.len() - 1));
    }

    proptest! {
        #[test]
        fn every_payload_makes_one_line_that_reads_back(
            id in proptest::collection::vec(any::<u8>(), 1..100),
            click in proptest::collection::vec(any::<u8>(), 0..60),
            query in "\\PC{0,40}",
        ) {
            let line = build(&id, &click, query.as_bytes());
            prop_assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
            let parsed = parse_line(&line).unwrap();
            prop_assert_eq!(parsed.key.id.as_bytes(), &id[..]);
            let whole: serde_json::Value = serde_json::from_slice(&line).unwrap();
            prop_assert_eq!(whole.as_object().unwrap().len(), 5);
        }

        #[test]
        fn arbitrary_lines_never_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_line(&line);
        }

        #[test]
        fn mutilated_lines_never_panic(at in 0usize..200, with in "\\PC{0,10}") {
            let mut line = build(b"abc", b"{\"a\":1}", b"[2]");
            let at = at.min(line.len());
            line.splice(at..at, with.bytes());
            let _ = parse_line(&line);
        }
    }
}

//! What records become, by rule; one line of input, one short text.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::config::Config;
use crate::framing::{Finish, Framer};

fn ubi(change: impl Fn(String) -> String) -> Config {
    Config::parse(&change(Config::EXAMPLE.to_owned()), Path::new("ubi.toml")).unwrap()
}

fn ndjson() -> Config {
    Config::parse(include_str!("../../../../deploy/examples/ndjson.toml"), Path::new("ndjson.toml")).unwrap()
}

/// What every frame of a file becomes.
fn classify(config: &Config, input: usize, file: &[u8]) -> Vec<Classified> {
    let extractor = Extractor::new(config, InputIndex(input));
    let mut framer = Framer::new(extractor.framing(), extractor.line_bytes_max(), 0);
    framer.push(file);
    let mut found = Vec::new();
    while let Some(frame) = framer.next_frame() {
        found.push(extractor.classify("shop/a", &frame));
    }
    if let Finish::Frame(frame) = framer.finish() {
        found.push(extractor.classify("shop/a", &frame));
    }
    found
}

fn short(config: &Config, classified: &Classified) -> String {
    let name = |stream: StreamIndex| &config.join.streams[stream.0].name;
    match classified {
        Classified::Primary { stream, id } => format!("{} {id}", name(*stream)),
        Classified::Foreign { stream, key, reference } => format!("{} {key} -> {reference}", name(*stream)),
        Classified::DeadLetter { stream, role, key, reason } => {
            assert_eq!(config.join.streams[stream.0].role(), *role);
            let key = key.as_ref().map_or("no key".to_owned(), ToString::to_string);
            format!("{} dead: {key}: {}", name(*stream), reason.code())
        }
        Classified::NotSelected => "not selected".to_owned(),
        Classified::Skipped { operation } => format!("skipped {operation:?}"),
    }
}

#[track_caller]
fn check_bulk(action: &str, document: &str, want: &str) {
    let config = ubi(|text| text);
    let found = classify(&config, 0, format!("{action}\n{document}\n").as_bytes());
    assert_eq!(found.iter().map(|it| short(&config, it)).collect::<Vec<_>>(), [want], "{document}");
}

#[track_caller]
fn check_click(line: &str, want: &str) {
    let config = ndjson();
    let found = classify(&config, 1, format!("{line}\n").as_bytes());
    assert_eq!(found.iter().map(|it| short(&config, it)).collect::<Vec<_>>(), [want], "{line}");
}

const EVENT: &str = r#"{"index":{"_index":"ubi_events","_id":"e1"}}"#;
const QUERY: &str = r#"{"index":{"_index":"ubi_queries","_id":"x"}}"#;

#[test]
fn bulk_records_are_told_apart_by_their_action() {
    check_bulk(EVENT, r#"{"query_id":"q1","timestamp":7}"#, "events 7000:e1 -> q1");
    check_bulk(EVENT, r#"{"query_id":"q1","timestamp":"1970-01-01T00:00:01.5Z"}"#, "events 1500000:e1 -> q1");
    check_bulk(QUERY, r#"{"query_id":"q1"}"#, "queries q1");
    check_bulk(r#"{"index":{"_index":"other","_id":"x"}}"#, r#"{"query_id":"q1"}"#, "not selected");
    check_bulk(r#"{"update":{"_index":"ubi_events","_id":"e1"}}"#, "{}", "skipped Update");
}

#[test]
fn a_bad_document_belongs_to_its_action() {
    check_bulk(EVENT, r#"{"query_id":"q1""#, "events dead: no key: not-json");
    check_bulk(QUERY, r#"{"query_id":"q1""#, "queries dead: no key: not-json");
    check_bulk(r#"{"index":{"_index":"other"}}"#, r#"{"query_id":"q1""#, "not selected");
    check_bulk(EVENT, "", "events dead: no key: not-json");
    check_bulk(EVENT, "[1]", "events dead: no key: not-an-object");
    let long = format!(r#"{{"query_id":"q1","x":"{}"}}"#, "x".repeat(1 << 20));
    check_bulk(EVENT, &long, "events dead: no key: line-too-long");
    let config = ubi(|text| text);
    let found = classify(&config, 0, b"{\"index\nrubbish\n");
    let found: Vec<_> = found.iter().map(|it| short(&config, it)).collect();
    assert_eq!(found, ["events dead: no key: action-unreadable"; 2]);
}

#[test]
fn a_null_reference_is_a_dead_letter_with_its_key() {
    check_bulk(EVENT, r#"{"query_id":null,"timestamp":7}"#, "events dead: 7000:e1: reference-missing");
    check_bulk(EVENT, r#"{"timestamp":7}"#, "events dead: 7000:e1: reference-missing");
    check_bulk(EVENT, r#"{"query_id":"","timestamp":7}"#, "events dead: 7000:e1: reference-empty");
    check_bulk(EVENT, r#"{"query_id":["q"],"timestamp":7}"#, "events dead: 7000:e1: reference-kind");
    let long = format!(r#"{{"query_id":"{}","timestamp":7}}"#, "q".repeat(1025));
    check_bulk(EVENT, &long, "events dead: 7000:e1: reference-too-long");
}

#[test]
fn a_bad_id_or_time_is_a_dead_letter_without_a_key() {
    let event = |id: &str| format!(r#"{{"index":{{"_index":"ubi_events","_id":{id}}}}}"#);
    let good = r#"{"query_id":"q1","timestamp":7}"#;
    check_bulk(r#"{"index":{"_index":"ubi_events"}}"#, good, "events dead: no key: id-missing");
    check_bulk(&event("null"), good, "events dead: no key: id-missing");
    check_bulk(&event("\"\""), good, "events dead: no key: id-empty");
    check_bulk(&event(&format!("\"{}\"", "x".repeat(101))), good, "events dead: no key: id-too-long");
    check_bulk(&event("18446744073709551617"), good, "events 7000:18446744073709551617 -> q1");
    for (time, reason) in [
        ("null", "missing"),
        ("\"NA\"", "unreadable"),
        ("-1", "unreadable"),
        ("1.5", "unreadable"),
        ("{}", "unreadable"),
    ] {
        let document = format!(r#"{{"query_id":"q1","timestamp":{time}}}"#);
        check_bulk(EVENT, &document, &format!("events dead: no key: time-{reason}"));
    }
    check_bulk(EVENT, r#"{"query_id":null}"#, "events dead: no key: time-missing");
    check_bulk(QUERY, r#"{"query_id":null}"#, "queries dead: no key: id-missing");
    check_bulk(QUERY, "{}", "queries dead: no key: id-missing");
}

#[test]
fn ndjson_records_are_read_by_path() {
    check_click(r#"{"click_id":"c","time":7,"context":{"query_id":"q"}}"#, "clicks 7000000:c -> q");
    check_click(
        r#"{"click_id":9007199254740993,"time":7,"context":{"query_id":12}}"#,
        "clicks 7000000:9007199254740993 -> 12",
    );
    check_click(r#"{"click_id":1.5,"time":7,"context":{"query_id":12}}"#, "clicks dead: no key: id-kind");
    check_click(r#"{"click_id":"\ud800","time":7,"context":{"query_id":12}}"#, "clicks dead: no key: id-kind");
    check_click(r#"{"click_id":"\u00e9\/","time":7,"context":{"query_id":12}}"#, "clicks 7000000:0xc3a92f -> 12");
    check_click(r#"{"click_id":"c","click_id":"d","time":7,"context":{"query_id":"q"}}"#, "clicks 7000000:c -> q");
    check_click(r#"{"click_id":"c","time":7,"context":null}"#, "clicks dead: 7000000:c: reference-missing");
    check_click("null", "clicks dead: no key: not-an-object");
    check_click("{\"click_id\":\"c\"", "clicks dead: no key: not-json");
    let config = ndjson();
    let found = classify(&config, 0, b"{\"id\":\"q\"}\n{\"id\":\"\xff\"}\n");
    assert_eq!(
        found.iter().map(|it| short(&config, it)).collect::<Vec<_>>(),
        ["queries q", "queries dead: no key: not-utf8"]
    );
}

/// The key rules speak of the foreign stream alone, so no other stream can take a click from it.
#[test]
fn the_foreign_stream_is_asked_first() {
    let config = ubi(|text| {
        text.replace("{ \"@index\" = \"ubi_queries\" }", "{ \"@index\" = [\"ubi_queries\", \"ubi_events\"] }")
    });
    let file = format!("{EVENT}\n{}\n", r#"{"query_id":"q1","timestamp":7}"#);
    assert_eq!(short(&config, &classify(&config, 0, file.as_bytes())[0]), "events 7000:e1 -> q1");
}

#[test]
fn conditions_on_documents_decide() {
    let config = ubi(|text| {
        text.replace(
            "{ \"@index\" = \"ubi_events\" }",
            "{ \"@index\" = \"ubi_events\", action_name = [\"click\", \"buy\"] }",
        )
    });
    let kinds = |document: &str| short(&config, &classify(&config, 0, format!("{EVENT}\n{document}\n").as_bytes())[0]);
    assert_eq!(kinds(r#"{"query_id":"q","timestamp":7,"action_name":"buy"}"#), "events 7000:e1 -> q");
    assert_eq!(kinds(r#"{"query_id":"q","timestamp":7,"action_name":"hover"}"#), "not selected");
    assert_eq!(kinds("null"), "not selected");
    // Whether it was a click can not be said any more; that it was an event can.
    assert_eq!(kinds(r#"{"query_id":"q""#), "events dead: no key: not-json");
}

#[test]
fn ids_from_positions_name_the_record() {
    let config = ubi(|text| {
        let one = text.split("[[datacenter]]\nname = \"west\"").next().unwrap().to_owned();
        one.replace("id = \"@id\"", "id = \"@position\"")
    });
    let pair = format!("{EVENT}\n{}\n", r#"{"query_id":"q1","timestamp":7}"#);
    let found = classify(&config, 0, format!("{pair}{pair}").as_bytes());
    let found: Vec<_> = found.iter().map(|it| short(&config, it)).collect();
    assert_eq!(found, ["events 7000:shop/a:0 -> q1".to_owned(), format!("events 7000:shop/a:{} -> q1", pair.len())]);
}

proptest! {
    #[test]
    fn any_bytes_are_classified_without_a_panic(file in proptest::collection::vec(any::<u8>(), 0..300)) {
        classify(&ndjson(), 1, &file);
        classify(&ubi(|text| text), 0, &file);
        let pair = [EVENT.as_bytes(), b"\n", &file, b"\n"].concat();
        classify(&ubi(|text| text), 0, &pair);
    }
}

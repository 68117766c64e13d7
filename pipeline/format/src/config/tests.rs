//! The examples are read; each fault is refused with file, line, key and what is allowed.

use std::path::Path;

use expect_test::{Expect, expect};
use photon_types::NodeId;
use proptest::prelude::*;

use super::*;
use crate::keyrules::KeyRules;

const NDJSON: &str = include_str!("../../../../deploy/examples/ndjson.toml");

fn example() -> Config {
    Config::parse(Config::EXAMPLE, Path::new("ubi.toml")).unwrap()
}

#[track_caller]
fn check_text(text: &str, want: Expect) {
    let error = Config::parse(text, Path::new("test.toml")).expect_err("must be refused");
    want.assert_eq(&error.to_string());
}

/// Replaces a part of the complete example, and wants a refusal.
#[track_caller]
fn check(from: &str, to: &str, want: Expect) {
    assert!(Config::EXAMPLE.contains(from), "{from:?} is not in the example");
    check_text(&Config::EXAMPLE.replacen(from, to, 1), want);
}

#[test]
fn the_complete_example_says_what_it_says() {
    let config = example();
    assert_eq!(config.cluster.name, "ubi");
    assert_eq!(config.registry.nodes.iter().map(|node| node.id.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(config.registry_endpoints().unwrap(), ["127.0.0.1:7201", "127.0.0.1:7202", "127.0.0.1:7203"]);
    assert_eq!(config.join.streams.len(), 2);
    assert_eq!(config.foreign().1.name, "events");
    assert_eq!(config.datacenter("west").unwrap().joiner.as_ref().unwrap().port(), 7422);
    assert_eq!(config.registry_dir(NodeId(2)), Path::new("photon-data/registry/2"));
    assert_eq!(config.output_dir("east"), Path::new("photon-data/east/output"));
    assert_eq!(config.dispatcher_dir("east"), Path::new("photon-data/east/dispatcher"));
}

#[test]
fn the_ndjson_example_is_read() {
    let config = Config::parse(NDJSON, Path::new("ndjson.toml")).unwrap();
    let Adapter::Filter(filter) = &config.join.adapter else { panic!("a filter is configured") };
    let lines: Vec<_> = filter.query.lines().map(|(field, values)| format!("{field} = {values}")).collect();
    assert_eq!(lines, ["site.country = \"de\", \"fr\"", "test = false"]);
}

/// Every key of the complete example that can be left out has its default there; so the values in
/// the example, which people read, are the values in force.
#[test]
fn the_example_shows_the_defaults() {
    let required = ["cluster.name", "registry.node.", "join.input.", "join.stream.", "datacenter."];
    let optional = |config: &Config| {
        let mut pairs = config.effective();
        pairs.retain(|(key, _)| !required.iter().any(|prefix| key.starts_with(prefix)));
        pairs
    };
    let mut kept = String::new();
    let mut section = "";
    for line in Config::EXAMPLE.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let defaults = ["[registry]", "[join]"].contains(&section) && !line.starts_with('[');
        if !defaults && !line.starts_with("data-dir") {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    let bare = Config::parse(&kept, Path::new("bare.toml")).unwrap();
    assert_eq!(optional(&bare), optional(&example()));
    assert_eq!(optional(&bare).len(), 22, "a key is new: show it in the example");
}

#[test]
fn keys_and_values_that_are_not_known_are_refused() {
    check(
        "heartbeat = \"100ms\"",
        "heartbeet = \"100ms\"",
        expect![
            "test.toml:21: `registry.heartbeet`: unknown field `heartbeet`, expected one of `retention`, `election-timeout`, `heartbeat`, `window`, `batch-commands`, `journal-segment`, `node`"
        ],
    );
    check(
        "role = \"primary\"",
        "role = \"primry\"",
        expect!["test.toml:97: `join.stream[0].role`: unknown variant `primry`, expected `primary` or `foreign`"],
    );
    check(
        "framing = \"es-bulk\"",
        "framing = \"csv\"",
        expect!["test.toml:89: `join.input[0].framing`: unknown variant `csv`, expected `ndjson` or `es-bulk`"],
    );
    check(
        "forms = [\"rfc3339\", \"epoch-ms\"]",
        "forms = [\"iso\"]",
        expect![
            "test.toml:117: `join.stream[1].time.forms[0]`: unknown variant `iso`, expected one of `rfc3339`, `epoch-s`, `epoch-ms`, `epoch-us`"
        ],
    );
    check(
        "journal-segment = \"64MiB\"",
        "journal-segment = \"64 megs\"",
        expect![[
            r#"test.toml:27: `registry.journal-segment`: "64 megs" is not a size such as "512B", "16KiB", "64MiB" or "2GiB" (whole numbers; B, KiB, MiB, GiB)"#
        ]],
    );
    check(
        "poll = \"200ms\"",
        "poll = 200",
        expect![[
            r#"test.toml:60: `join.poll`: invalid type: integer `200`, expected a duration such as "150ms", "60s", "1h 30m" or "3d" (whole numbers; d, h, m, s, ms, us, largest first)"#
        ]],
    );
    check(
        "window = 16",
        "window = -1",
        expect![
            "test.toml:23: `registry.window`: invalid value: integer `-1`, expected a whole number from 0, without quotes and unit"
        ],
    );
    check("[[join.input]]", "[[join.input]", expect!["test.toml:82: unclosed array table, expected `]`"]);
    check("name = \"ubi\"", "", expect!["test.toml:8: `cluster`: missing field `name`"]);
    check(
        "\"@index\" = \"ubi_queries\"",
        "\"@index\" = 1.5",
        expect![
            "test.toml:102: `join.stream[0].select.@index`: invalid type: floating point `1.5`, expected a text, a whole number, true, false, or a list of these"
        ],
    );
    check(
        "\"@index\" = \"ubi_queries\"",
        "\"@index\" = [\"a\", [\"b\"]]",
        expect![
            "test.toml:102: `join.stream[0].select.@index[1]`: invalid type: sequence, expected a text, a whole number, true or false"
        ],
    );
}

#[test]
fn relations_are_checked_and_both_values_named() {
    check(
        "heartbeat = \"100ms\"",
        "heartbeat = \"600ms\"",
        expect![
            "test.toml:21: `registry.heartbeat`: heartbeat 600ms must be at most a third of election-timeout 1s, or followers depose a healthy leader"
        ],
    );
    check(
        "retention = \"never\"",
        "retention = \"30d\"",
        expect![[
            r#"test.toml:17: `registry.retention`: "30d": ids that expire are not supported yet; only "never" is allowed"#
        ]],
    );
    check(
        "retention = \"never\"",
        "retention = \"always\"",
        expect![[r#"test.toml:17: `registry.retention`: "always" is not allowed; only "never" is"#]],
    );
    check(
        "batch-commands = 4000",
        "batch-commands = 4001",
        expect!["test.toml:25: `registry.batch-commands`: 4001 is out of bounds; 1 to 4000 are allowed"],
    );
    check(
        "id = 2",
        "id = 1",
        expect!["test.toml:41: `registry.node[1].id`: two nodes have the id 1; ids are unique and never given twice"],
    );
    check(
        "[[registry.node]]\nid = 3\npeer = \"127.0.0.1:7103\"\nclient = \"127.0.0.1:7203\"\nhttp = \"127.0.0.1:7303\"\n",
        "",
        expect![
            "test.toml:30: `registry.node`: there are 2 [[registry.node]]; 1, 3, 5 or 7 are allowed (3 stand the loss of one, 5 of two)"
        ],
    );
    check(
        "retry-max = \"60s\"",
        "retry-max = \"50ms\"",
        expect!["test.toml:72: `join.retry-max`: retry-max 50ms is below retry-min 100ms"],
    );
    check(
        "output-segment-bytes = \"64MiB\"",
        "output-segment-bytes = \"64KiB\"",
        expect![
            "test.toml:67: `join.output-segment-bytes`: output-segment-bytes 64KiB is below output-block-bytes 1MiB"
        ],
    );
    check(
        "adapter = \"merge\"",
        "adapter = \"filter\"",
        expect![[
            r#"test.toml:58: `join.adapter`: adapter is "filter", but there is no [join.filter]; add one with `click`, `query` or both"#
        ]],
    );
    check(
        "peer = \"127.0.0.1:7102\"",
        "peer = \"127.0.0.1:7101\"",
        expect![
            "test.toml:42: `registry.node[1].peer`: 127.0.0.1:7101 is already the address of `registry.node[0].peer`; each listener needs its own"
        ],
    );
    check(
        "peer = \"127.0.0.1:7102\"",
        "peer = \"127.0.0.1\"",
        expect![[
            r#"test.toml:42: `registry.node[1].peer`: "127.0.0.1" is not an address; write "host:port", such as "127.0.0.1:7101""#
        ]],
    );
}

#[test]
fn streams_are_checked() {
    check(
        "role = \"primary\"",
        "role = \"foreign\"",
        expect![[
            r#"test.toml:93: `join.stream[0]`: `reference` is missing: the field of "queries" that names the query"#
        ]],
    );
    check(
        "input = \"shop\"",
        "input = \"store\"",
        expect![[r#"test.toml:99: `join.stream[0].input`: there is no [[join.input]] "store"; there are: "shop""#]],
    );
    check(
        "select = { \"@index\" = \"ubi_events\" }",
        "",
        expect![[
            r#"test.toml:106: `join.stream[1]`: several streams read the input "shop", so each needs a `select`, and "events" has none"#
        ]],
    );
    check(
        "{ \"@index\" = \"ubi_events\" }",
        "{ \"@type\" = \"ubi_events\" }",
        expect![[
            r#"test.toml:110: `join.stream[1].select`: "@type" is not known; "@index", "@id" and field paths are allowed"#
        ]],
    );
    check(
        "{ \"@index\" = \"ubi_events\" }",
        "{ \"a..b\" = \"x\" }",
        expect![[
            r#"test.toml:110: `join.stream[1].select`: "a..b" is not a field path: names joined by dots are allowed, such as "query_id" or "object.id" (at most 16 names and 256 bytes, no @ in front)"#
        ]],
    );
    check(
        "{ \"@index\" = \"ubi_events\" }",
        "{ a = [] }",
        expect!["test.toml:110: `join.stream[1].select`: `a` has 0 values, 1 to 256 are allowed"],
    );
}

#[test]
fn fields_of_streams_are_checked() {
    check(
        "id = \"@id\"",
        "id = \"@position\"",
        expect![
            "test.toml:112: `join.stream[1].id`: ids from file positions are refused with 2 datacenters: each would bill once"
        ],
    );
    check(
        "framing = \"es-bulk\"",
        "framing = \"ndjson\"",
        expect![[
            r#"test.toml:102: `join.stream[0].select`: "@index" is a field of a bulk action line, which is there only for framing = "es-bulk""#
        ]],
    );
    check(
        "reference = \"query_id\"",
        "",
        expect![[
            r#"test.toml:106: `join.stream[1]`: `reference` is missing: the field of "events" that names the query"#
        ]],
    );
    check(
        "forms = [\"rfc3339\", \"epoch-ms\"]",
        "forms = [\"epoch-ms\", \"epoch-s\"]",
        expect![[
            r#"test.toml:117: `join.stream[1].time.forms`: "epoch-s" can never be reached behind "epoch-ms": put it in front"#
        ]],
    );
    check(
        "name = \"events\"",
        "name = \"queries\"",
        expect![[r#"test.toml:107: `join.stream[1].name`: two streams have the name "queries"; names are unique"#]],
    );
    check(
        "name = \"events\"",
        "name = \"two words\"",
        expect![[
            r#"test.toml:107: `join.stream[1].name`: "two words" is not a name: 1 to 40 ASCII letters, digits, - and _ are allowed, - not in front"#
        ]],
    );
    check(
        "id = \"query_id\"",
        "id = \"query_id\"\nreference = \"x\"",
        expect!["test.toml:105: `join.stream[0].reference`: only a foreign stream has a reference"],
    );
}

#[test]
fn datacenters_are_checked() {
    check(
        "name = \"west\"",
        "name = \"east\"",
        expect![[r#"test.toml:133: `datacenter[1].name`: two datacenters have the name "east"; names are unique"#]],
    );
    check(
        "name = \"west\"",
        "name = \"registry\"",
        expect![[
            r#"test.toml:133: `datacenter[1].name`: "registry" is taken by the registry's own directory; choose another name"#
        ]],
    );
    check(
        "name = \"west\"",
        "name = \"west\"\npaths = { shopp = \"/x\" }",
        expect![[r#"test.toml:134: `datacenter[1].paths`: there is no [[join.input]] "shopp"; there are: "shop""#]],
    );
}

#[test]
fn ids_from_positions_are_allowed_in_one_datacenter() {
    let one = Config::EXAMPLE.split("[[datacenter]]\nname = \"west\"").next().unwrap();
    let config = Config::parse(&one.replace("id = \"@id\"", "id = \"@position\""), Path::new("one.toml")).unwrap();
    assert_eq!(config.foreign().1.id, IdSource::Position);
}

#[test]
fn addresses_may_be_absent_until_they_are_needed() {
    let text: String =
        Config::EXAMPLE.lines().filter(|line| !line.contains("127.0.0.1:")).map(|line| format!("{line}\n")).collect();
    let config = Config::parse(&text, Path::new("dev.toml")).unwrap();
    let error = config.registry_endpoints().unwrap_err().to_string();
    expect![[r#"dev.toml: `registry.node[id 1].client` is not set, and this role needs it: set it to "host:port""#]]
        .assert_eq(&error);
    let east = config.datacenter("east").unwrap();
    let error = config.address("datacenter east: joiner", east.joiner.as_ref()).unwrap_err().to_string();
    expect![[r#"dev.toml: `datacenter east: joiner` is not set, and this role needs it: set it to "host:port""#]]
        .assert_eq(&error);
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    expect!["ubi.toml: there is no [[datacenter]] north; there are: east, west"]
        .assert_eq(&example().datacenter("north").unwrap_err().to_string());
    expect!["ubi.toml: there is no [[registry.node]] 4; there are: 1, 2, 3"]
        .assert_eq(&example().node(NodeId(4)).unwrap_err().to_string());
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::load(Path::new("no/such/photon.toml")).unwrap_err();
    expect!["no/such/photon.toml: the config file can not be read: No such file or directory (os error 2)"]
        .assert_eq(&error.to_string());
}

#[test]
fn the_only_input_can_be_given_on_the_command_line() {
    let config = example().with_input(Path::new("other.ndjson")).unwrap();
    let east = config.datacenter("east").unwrap().clone();
    assert_eq!(config.input_path(&east, InputIndex(0)), Path::new("other.ndjson"));
    let two = Config::parse(NDJSON, Path::new("ndjson.toml")).unwrap();
    expect!["ndjson.toml: `join.input`: --input replaces the path of the only input, but there are 2: queries, clicks; set their paths in the file"].assert_eq(&two.with_input(Path::new("x")).unwrap_err().to_string());
}

#[test]
fn a_datacenter_may_have_its_own_paths() {
    let text = Config::EXAMPLE.replace("name = \"west\"", "name = \"west\"\npaths = { shop = \"/mnt/west\" }");
    let config = Config::parse(&text, Path::new("paths.toml")).unwrap();
    let path = |name: &str| config.input_path(config.datacenter(name).unwrap(), InputIndex(0)).to_owned();
    assert_eq!((path("east"), path("west")), ("logs".into(), "/mnt/west".into()));
}

#[test]
fn what_is_in_force_is_shown() {
    let lines: String = example().effective().iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    expect![[r#"
        cluster.name = ubi
        cluster.data-dir = photon-data
        registry.retention = never
        registry.election-timeout = 1s
        registry.heartbeat = 100ms
        registry.window = 16
        registry.batch-commands = 4000
        registry.journal-segment = 64MiB
        registry.node.1.peer = 127.0.0.1:7101
        registry.node.1.client = 127.0.0.1:7201
        registry.node.1.http = 127.0.0.1:7301
        registry.node.2.peer = 127.0.0.1:7102
        registry.node.2.client = 127.0.0.1:7202
        registry.node.2.http = 127.0.0.1:7302
        registry.node.3.peer = 127.0.0.1:7103
        registry.node.3.client = 127.0.0.1:7203
        registry.node.3.http = 127.0.0.1:7303
        join.window = 3d
        join.duplicate-primary = first
        join.adapter = merge
        join.poll = 200ms
        join.line-max = 1MiB
        join.output-block = 5ms
        join.output-block-bytes = 1MiB
        join.output-segment-bytes = 64MiB
        join.cache = 256MiB
        join.retry-min = 100ms
        join.retry-max = 1m
        join.in-flight = 4096
        join.dispatch-in-flight = 16384
        join.retry-store = 1000000
        join.call-timeout = 10s
        join.input.shop.path = logs
        join.input.shop.framing = es-bulk
        join.stream.queries.role = primary
        join.stream.queries.input = shop
        join.stream.queries.select.@index = "ubi_queries"
        join.stream.queries.id = query_id
        join.stream.events.role = foreign
        join.stream.events.input = shop
        join.stream.events.select.@index = "ubi_events"
        join.stream.events.id = @id
        join.stream.events.reference = query_id
        join.stream.events.time.field = timestamp
        join.stream.events.time.forms = rfc3339, epoch-ms
        datacenter.east.event-store = 127.0.0.1:7411
        datacenter.east.joiner = 127.0.0.1:7412
        datacenter.east.dispatcher = 127.0.0.1:7413
        datacenter.east.event-store-http = 127.0.0.1:7511
        datacenter.east.joiner-http = 127.0.0.1:7512
        datacenter.east.dispatcher-http = 127.0.0.1:7513
        datacenter.west.event-store = 127.0.0.1:7421
        datacenter.west.joiner = 127.0.0.1:7422
        datacenter.west.dispatcher = 127.0.0.1:7423
        datacenter.west.event-store-http = 127.0.0.1:7521
        datacenter.west.joiner-http = 127.0.0.1:7522
        datacenter.west.dispatcher-http = 127.0.0.1:7523
    "#]]
    .assert_eq(&lines);
}

proptest! {
    /// A slip of the hand anywhere in the file: read or refused, never a panic.
    #[test]
    fn any_slip_is_read_or_refused(at in any::<prop::sample::Index>(), cut in 0..30_usize, put in "[\\[\\]{}\"=.,#a1\n@-]{0,4}") {
        let start = at.index(Config::EXAMPLE.len());
        let end = (start + cut).min(Config::EXAMPLE.len());
        let text = format!("{}{put}{}", &Config::EXAMPLE[..start], &Config::EXAMPLE[end..]);
        if let Ok(config) = Config::parse(&text, Path::new("slip.toml")) {
            prop_assert!(config.effective().len() > 20);
            prop_assert!(KeyRules::from_config(&config).text().ends_with('\n'));
        }
    }
}

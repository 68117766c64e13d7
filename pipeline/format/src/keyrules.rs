//! The rules by which event keys are made, as text: what every connection to the registry states.
//!
//! Two datacenters that make keys by different rules would each bill the same click. So the rules of
//! the foreign stream are written as sorted `stream.field = value` lines; the registry keeps the
//! first statement, and a refusal can name the line that differs.
//!
//! Invariant: what changes a key changes the text; what does not (limits, addresses, paths, primary
//! streams, the order in which conditions are written) leaves it as it is.

use std::collections::BTreeMap;

use crate::config::{Config, IdSource, StreamKind};

/// Raised whenever the same bytes would make another key than before: framing, extraction or times.
pub const PARSER_VERSION: u32 = 1;

/// The rules of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRules {
    lines: BTreeMap<String, String>,
}

impl KeyRules {
    /// The rules of the foreign stream.
    #[must_use]
    pub fn from_config(config: &Config) -> KeyRules {
        let (_, stream) = config.foreign();
        let input = &config.join.inputs[stream.input.0];
        let mut lines = BTreeMap::new();
        let mut put = |field: &str, value: String| lines.insert(format!("{}.{field}", stream.name), value);
        put("framing", input.framing.to_string());
        put("id", stream.id.to_string());
        put("parser", PARSER_VERSION.to_string());
        // The only zone rule there is: a time without a zone is no time.
        put("zone", "stated in each time".to_owned());
        if stream.id == IdSource::Position {
            put("input", input.name.clone());
        }
        for (field, values) in stream.select.lines() {
            put(&format!("select.{field}"), values);
        }
        match &stream.kind {
            StreamKind::Foreign { reference: _, time } => {
                put("time.field", time.field().to_string());
                put("time.forms", time.forms_text());
            }
            StreamKind::Primary => unreachable!("`Config::foreign` gives a foreign stream"),
        }
        KeyRules { lines }
    }

    /// Sorted lines, each ended by LF. At most `photon_types::KEY_RULES_BYTES_MAX` bytes: a
    /// configuration with longer rules is refused.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
    }
}

/// What differs between two texts of key rules, for people: one line per key that differs.
#[must_use]
pub fn differences(kept: &str, ours: &str) -> Vec<String> {
    fn parse(text: &str) -> BTreeMap<&str, &str> {
        text.lines().map(|line| line.split_once(" = ").unwrap_or((line, ""))).collect()
    }
    let (kept, ours) = (parse(kept), parse(ours));
    let keys: std::collections::BTreeSet<_> = kept.keys().chain(ours.keys()).copied().collect();
    keys.into_iter()
        .filter(|key| kept.get(key) != ours.get(key))
        .map(|key| {
            let value =
                |rules: &BTreeMap<&str, &str>| rules.get(key).map_or("(not set)".to_owned(), |it| (*it).to_owned());
            format!("{key}: the cluster has {}, here it is {}", value(&kept), value(&ours))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::expect;
    use photon_types::KEY_RULES_BYTES_MAX;

    use super::*;

    fn example() -> Config {
        Config::parse(Config::EXAMPLE, Path::new("ubi.toml")).unwrap()
    }

    fn rules(text: &str) -> String {
        KeyRules::from_config(&Config::parse(text, Path::new("test.toml")).unwrap()).text()
    }

    /// A promise: running clusters keep this text and compare it.
    #[test]
    fn golden() {
        let text = KeyRules::from_config(&example()).text();
        expect![[r#"
            events.framing = es-bulk
            events.id = @id
            events.parser = 1
            events.select.@index = "ubi_events"
            events.time.field = timestamp
            events.time.forms = rfc3339, epoch-ms
            events.zone = stated in each time
        "#]]
        .assert_eq(&text);
        assert!(text.len() <= KEY_RULES_BYTES_MAX);
    }

    #[test]
    fn only_what_makes_keys_changes_the_text() {
        let golden = rules(Config::EXAMPLE);
        let changed = |from: &str, to: &str| {
            assert!(Config::EXAMPLE.contains(from), "{from}");
            rules(&Config::EXAMPLE.replace(from, to))
        };
        assert_eq!(changed("poll = \"200ms\"", "poll = \"1s\""), golden);
        assert_eq!(changed("\"ubi_queries\"", "\"other\""), golden);
        assert_eq!(changed("\"ubi_events\"", "[\"ubi_events\", \"ubi_events\"]"), golden);
        assert_ne!(changed("\"ubi_events\"", "[\"ubi_events\", \"other\"]"), golden);
        assert_ne!(changed("[\"rfc3339\", \"epoch-ms\"]", "[\"epoch-ms\", \"rfc3339\"]"), golden);
        let other = changed("[\"rfc3339\", \"epoch-ms\"]", "[\"rfc3339\"]");
        assert_eq!(
            differences(&golden, &other),
            ["events.time.forms: the cluster has rfc3339, epoch-ms, here it is rfc3339"]
        );
    }
}

//! The fingerprint of key rules, and how two sets of rules differ.
//!
//! Not here: what the rules mean. They are sorted lines `stream.field = value`.

use std::collections::BTreeMap;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

/// How many differing lines an error shows.
const LINES_SHOWN_MAX: usize = 3;

/// The fingerprint that is sent with each chunk: xxh3-128 of the text, big-endian.
#[must_use]
pub fn key_rules_hash(text: &str) -> Bytes {
    Bytes::copy_from_slice(&xxh3_128(text.as_bytes()).to_be_bytes())
}

/// The first lines that differ, by field.
pub(crate) fn differences(ours: &str, kept: &str) -> String {
    let (ours, kept) = (fields(ours), fields(kept));
    let names: std::collections::BTreeSet<_> = ours.keys().chain(kept.keys()).collect();
    let differing: Vec<_> = names.into_iter().filter(|name| ours.get(*name) != kept.get(*name)).collect();
    if differing.is_empty() {
        return "They hold the same lines in another order or form: sort them".into();
    }
    let shown = differing.iter().take(LINES_SHOWN_MAX).map(|name| {
        let line =
            |side: &BTreeMap<&str, &str>| side.get(*name).map_or("(no such line)".to_owned(), |v| format!("`{v}`"));
        format!("{name}: here {}, registry {}", line(&ours), line(&kept))
    });
    let mut text = shown.collect::<Vec<_>>().join("; ");
    if LINES_SHOWN_MAX < differing.len() {
        text.push_str(&format!("; and {} more", differing.len() - LINES_SHOWN_MAX));
    }
    text
}

fn fields(text: &str) -> BTreeMap<&str, &str> {
    text.lines().map(|line| line.split_once(" = ").unwrap_or((line, ""))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ours: &str, kept: &str, want: &str) {
        assert_eq!(differences(ours, kept), want);
    }

    #[test]
    fn the_differing_lines_are_named_by_field() {
        check("a.id = x\nb.id = y\n", "a.id = x\nb.id = z\n", "b.id: here `y`, registry `z`");
        check("a.id = x\n", "a.id = x\nb.id = z\n", "b.id: here (no such line), registry `z`");
        check(
            "a = 1\nb = 1\nc = 1\nd = 1\n",
            "a = 2\nb = 2\nc = 2\nd = 2\n",
            "a: here `1`, registry `2`; b: here `1`, registry `2`; c: here `1`, registry `2`; and 1 more",
        );
        check("b = 1\na = 1", "a = 1\nb = 1", "They hold the same lines in another order or form: sort them");
    }

    #[test]
    fn the_fingerprint_is_big_endian_xxh3() {
        // The digest of no bytes, as xxHash publishes it.
        assert_eq!(key_rules_hash(""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f_u128.to_be_bytes()[..]);
        assert_ne!(key_rules_hash("a = 1"), key_rules_hash("a = 2"));
    }
}

//! Sizes and durations as people write them.
//!
//! Invariant: what is written back by `Display` or [`duration_text`] reads as the same value.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _, Unexpected};

/// A number of bytes, written as `64MiB`, `16 KiB`, `512B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

const SIZE_UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const SIZE_ALLOWED: &str =
    "a size such as \"512B\", \"16KiB\", \"64MiB\" or \"2GiB\" (whole numbers; B, KiB, MiB, GiB)";

impl ByteSize {
    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The number of bytes as a length in memory.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).expect("a size read from configuration fits the address space")
    }

    /// `count` MiB.
    #[must_use]
    pub const fn mib(count: u64) -> ByteSize {
        ByteSize(count << 20)
    }
}

/// Why a text is not a size or a duration: it says what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    found: String,
    allowed: &'static str,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not {}", self.found.escape_default(), self.allowed)
    }
}

impl std::error::Error for UnitError {}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<ByteSize, UnitError> {
        let refuse = || UnitError { found: text.to_owned(), allowed: SIZE_ALLOWED };
        let (digits, unit) = split_number(text.trim()).ok_or_else(refuse)?;
        let factor = SIZE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?.1;
        let count: u64 = digits.parse().map_err(|_| refuse())?;
        let bytes = count.checked_mul(factor).filter(|bytes| *bytes < 1 << 60).ok_or_else(refuse)?;
        Ok(ByteSize(bytes))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = SIZE_UNITS
            .into_iter()
            .find(|(_, factor)| self.0 != 0 && self.0.is_multiple_of(*factor))
            .unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
        deserializer.deserialize_any(TextVisitor { allowed: SIZE_ALLOWED })?.parse().map_err(D::Error::custom)
    }
}

const DURATION_UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
const DURATION_ALLOWED: &str =
    "a duration such as \"150ms\", \"60s\", \"1h 30m\" or \"3d\" (whole numbers; d, h, m, s, ms, us, largest first)";

/// Reads a duration: one or more whole numbers with units, largest first.
///
/// # Errors
/// [`UnitError`], which says what is allowed.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let refuse = || UnitError { found: text.to_owned(), allowed: DURATION_ALLOWED };
    let mut rest = text.trim();
    let mut nanos: u64 = 0;
    let mut last_unit = None;
    while !rest.is_empty() {
        let digits_end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(refuse)?;
        let (digits, tail) = rest.split_at(digits_end);
        let unit_end = tail.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let index = DURATION_UNITS.iter().position(|(name, _)| *name == unit).ok_or_else(refuse)?;
        if last_unit.is_some_and(|last| index <= last) {
            return Err(refuse());
        }
        last_unit = Some(index);
        let count: u64 = digits.parse().map_err(|_| refuse())?;
        nanos =
            count.checked_mul(DURATION_UNITS[index].1).and_then(|more| nanos.checked_add(more)).ok_or_else(refuse)?;
        rest = tail.trim_start();
    }
    last_unit.ok_or_else(refuse)?;
    Ok(Duration::from_nanos(nanos))
}

/// A duration as [`parse_duration`] reads it.
#[must_use]
pub fn duration_text(duration: Duration) -> String {
    let mut nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, factor) in DURATION_UNITS {
        let count = nanos / factor;
        nanos %= factor;
        if count != 0 {
            let blank = if text.is_empty() { "" } else { " " };
            text.push_str(&format!("{blank}{count}{unit}"));
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// For `#[serde(deserialize_with)]` on a [`Duration`].
pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = deserializer.deserialize_any(TextVisitor { allowed: DURATION_ALLOWED })?;
    parse_duration(&text).map_err(D::Error::custom)
}

/// For `#[serde(deserialize_with)]` on a count: says what is allowed, not what type we chose.
pub(crate) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    struct CountVisitor;
    impl serde::de::Visitor<'_> for CountVisitor {
        type Value = usize;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number from 0, without quotes and unit")
        }

        fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<usize, E> {
            usize::try_from(value).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
        }
    }
    deserializer.deserialize_any(CountVisitor)
}

/// Digits and what follows them; none when there are no digits.
fn split_number(text: &str) -> Option<(&str, &str)> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    (!digits.is_empty()).then(|| (digits, unit.trim_start()))
}

/// Takes a text only; a bare number is told what is allowed.
struct TextVisitor {
    allowed: &'static str,
}

impl serde::de::Visitor<'_> for TextVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.allowed)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<String, E> {
        if text.len() <= 64 { Ok(text.to_owned()) } else { Err(E::invalid_value(Unexpected::Str(&text[..0]), &self)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_and_refused() {
        for (text, bytes) in [("0B", 0), ("512B", 512), ("16 KiB", 16 << 10), ("64MiB", 64 << 20), (" 2GiB ", 2 << 30)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text:?}");
        }
        for text in ["", "64", "MiB", "4 gigs", "1.5MiB", "-1B", "1MB", "99999999999GiB", "1 Mi B", "１B"] {
            let error = text.parse::<ByteSize>().expect_err(text);
            assert!(error.to_string().contains("KiB, MiB, GiB"), "{error}");
        }
    }

    #[test]
    fn durations_are_read_and_refused() {
        for (text, micros) in
            [("100us", 100), ("5ms", 5_000), ("60s", 60_000_000), ("1h 30m", 5_400_000_000), ("3d", 259_200_000_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(micros)), "{text:?}");
        }
        for text in ["", "5", "ms", "1.5s", "-1s", "30m 1h", "1s 1s", "1 s", "1y", "999999999999d"] {
            let error = parse_duration(text).expect_err(text);
            assert!(error.to_string().contains("d, h, m, s, ms, us"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(bytes in 0..1_u64 << 60, nanos in any::<u64>()) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&duration_text(duration)), Ok(duration));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".*") {
            let _ = text.parse::<ByteSize>();
            let _ = parse_duration(&text);
        }
    }
}

//! Event times: from the forms that logs use to microseconds since the epoch.
//!
//! A rule is a field and an ordered list of forms; the first form that fits counts. Integers are
//! JSON integers, never texts or fractions. A time before 1970 or from 2^53 µs on fits no form, so
//! that `["epoch-s", "epoch-ms"]` tells the two apart by size.
//!
//! Invariant: the same bytes give the same microseconds in every version of this parser; a change
//! raises `keyrules::PARSER_VERSION`, since the time is part of the event key.

use std::fmt;

use photon_types::Timestamp;
use serde::Deserialize;

use crate::extract::values::Scalar;
use crate::predicate::FieldPath;

/// A form of event times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub enum TimeForm {
    /// `2024-12-10T00:01:29.378Z` and its relatives: `T`, `t` or a blank; 0 to 9 decimals, cut
    /// after microseconds; `Z`, `z`, `+00:00` or `+0000`. A zone must be there.
    #[serde(rename = "rfc3339")]
    Rfc3339,
    /// Whole seconds since the epoch.
    #[serde(rename = "epoch-s")]
    EpochSeconds,
    /// Whole milliseconds since the epoch.
    #[serde(rename = "epoch-ms")]
    EpochMillis,
    /// Whole microseconds since the epoch.
    #[serde(rename = "epoch-us")]
    EpochMicros,
}

impl TimeForm {
    /// Microseconds in one unit; none for a form that is no integer.
    fn unit_micros(self) -> Option<u64> {
        match self {
            TimeForm::Rfc3339 => None,
            TimeForm::EpochSeconds => Some(1_000_000),
            TimeForm::EpochMillis => Some(1_000),
            TimeForm::EpochMicros => Some(1),
        }
    }
}

impl fmt::Display for TimeForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeForm::Rfc3339 => "rfc3339",
            TimeForm::EpochSeconds => "epoch-s",
            TimeForm::EpochMillis => "epoch-ms",
            TimeForm::EpochMicros => "epoch-us",
        })
    }
}

/// Which field holds the event time, and in which forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeRule {
    field: FieldPath,
    forms: Vec<TimeForm>,
}

impl TimeRule {
    /// A rule.
    ///
    /// # Errors
    /// A message when there is no form, or one that can never be reached.
    pub fn new(field: FieldPath, forms: Vec<TimeForm>) -> Result<TimeRule, String> {
        if forms.is_empty() {
            return Err("no form is given; \"rfc3339\", \"epoch-s\", \"epoch-ms\" and \"epoch-us\" are allowed".into());
        }
        for (index, form) in forms.iter().enumerate() {
            for before in &forms[..index] {
                if before == form {
                    return Err(format!("\"{form}\" is named twice"));
                }
                // Whatever is plausible in a large unit is plausible in a smaller one.
                if let (Some(small), Some(large)) = (before.unit_micros(), form.unit_micros())
                    && small < large
                {
                    return Err(format!("\"{form}\" can never be reached behind \"{before}\": put it in front"));
                }
            }
        }
        Ok(TimeRule { field, forms })
    }

    /// The field.
    #[must_use]
    pub fn field(&self) -> &FieldPath {
        &self.field
    }

    /// The forms, in order, as text.
    #[must_use]
    pub fn forms_text(&self) -> String {
        self.forms.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// The time that a field's value says, by the first form that fits.
    pub(crate) fn read(&self, value: &Scalar<'_>) -> Option<Timestamp> {
        self.forms.iter().find_map(|form| match (form.unit_micros(), value) {
            (None, Scalar::Text(text)) => parse_rfc3339(text.as_bytes()),
            (Some(unit), Scalar::Integer(digits)) => {
                let micros = digits.parse::<u64>().ok()?.checked_mul(unit)?;
                Timestamp::from_micros(micros).ok()
            }
            (_, _) => None,
        })
    }
}

/// RFC 3339, lenient as [`TimeForm::Rfc3339`] says. None before 1970 and from 2^53 µs on.
#[must_use]
pub fn parse_rfc3339(text: &[u8]) -> Option<Timestamp> {
    let (date_time, rest) = text.split_at_checked(19)?;
    let [y0, y1, y2, y3, b'-', mo0, mo1, b'-', d0, d1, b'T' | b't' | b' ', h0, h1, b':', mi0, mi1, b':', s0, s1] =
        *date_time
    else {
        return None;
    };
    let year = number(&[y0, y1, y2, y3])?;
    let (month, day) = (number(&[mo0, mo1])?, number(&[d0, d1])?);
    let (hour, minute, second) = (number(&[h0, h1])?, number(&[mi0, mi1])?, number(&[s0, s1])?);
    let in_bounds = (1..=12).contains(&month)
        && (1..=days_of_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        // A leap second counts as the second behind it.
        && second <= 60;
    if !in_bounds {
        return None;
    }
    let (micros, zone) = fraction(rest)?;
    let offset_seconds = zone_offset(zone)?;
    let days = days_since_epoch(year, month, day);
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second - offset_seconds;
    let micros = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
    Timestamp::from_micros(u64::try_from(micros).ok()?).ok()
}

/// All digits, as a number. At most nine of them are ever given.
fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum: i64, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
}

/// The decimals as microseconds, what is beyond them cut; and the rest.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(rest) = text.strip_prefix(b".") else { return Some((0, text)) };
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 || 9 < count {
        return None;
    }
    let mut micros = [b'0'; 6];
    let kept = count.min(6);
    micros[..kept].copy_from_slice(&rest[..kept]);
    Some((number(&micros)?, &rest[count..]))
}

/// Seconds east of Greenwich.
fn zone_offset(zone: &[u8]) -> Option<i64> {
    let (sign, h0, h1, m0, m1) = match *zone {
        [b'Z' | b'z'] => return Some(0),
        [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1] | [sign @ (b'+' | b'-'), h0, h1, m0, m1] => (sign, h0, h1, m0, m1),
        _ => return None,
    };
    let (hours, minutes) = (number(&[h0, h1])?, number(&[m0, m1])?);
    if 24 <= hours || 60 <= minutes {
        return None;
    }
    let seconds = (hours * 60 + minutes) * 60;
    Some(if sign == b'-' { -seconds } else { seconds })
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar. Years are counted from March, so that
/// the leap day is the last of a year, and in eras of 400 years, which are all alike.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use photon_types::TIMESTAMP_END;
    use proptest::prelude::*;

    use super::*;

    fn micros(text: &str) -> Option<u64> {
        parse_rfc3339(text.as_bytes()).map(Timestamp::micros)
    }

    #[test]
    fn forms_of_one_time_are_one_time() {
        let want = Some(1_733_788_889_378_000);
        for text in [
            "2024-12-10T00:01:29.378Z",
            "2024-12-10t00:01:29.378z",
            "2024-12-10 00:01:29.378Z",
            "2024-12-10T00:01:29.378+0000",
            "2024-12-10T00:01:29.378000+00:00",
            "2024-12-10T00:01:29.378000999-00:00",
            "2024-12-10T01:31:29.378+0130",
            "2024-12-09T22:31:29.378-01:30",
        ] {
            assert_eq!(micros(text), want, "{text}");
        }
        assert_eq!(micros("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(micros("2016-12-31T23:59:60Z"), micros("2017-01-01T00:00:00Z"));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "NA",
            "2024-12-10",
            "2024-12-10T00:01:29.378",
            "2024-12-10T00:01:29.Z",
            "2024-12-10T00:01:29.0123456789Z",
            "2024-12-10T00:01Z",
            "2024-13-10T00:01:29Z",
            "2023-02-29T00:00:00Z",
            "2024-12-10T24:00:00Z",
            "2024-12-10T00:60:00Z",
            "2024-12-10T00:00:61Z",
            "2024-12-10T00:00:00+24:00",
            "2024-12-10T00:00:00+00",
            "2024-12-10T00:00:00Z ",
            " 2024-12-10T00:00:00Z",
            "1969-12-31T23:59:59.999999Z",
            "1970-01-01T00:00:00+00:01",
            "2299-01-01T00:00:00Z",
            "+024-12-10T00:01:29Z",
        ] {
            assert_eq!(micros(text), None, "{text:?}");
        }
    }

    #[track_caller]
    fn check(forms: &[TimeForm], value: &Scalar<'_>, want: Option<u64>) {
        let rule = TimeRule::new(FieldPath::parse("t").unwrap(), forms.to_vec()).unwrap();
        assert_eq!(rule.read(value).map(Timestamp::micros), want, "{value:?}");
    }

    #[test]
    fn integers_are_told_apart_by_size() {
        use TimeForm::{EpochMicros, EpochMillis, EpochSeconds, Rfc3339};
        let all = [Rfc3339, EpochSeconds, EpochMillis, EpochMicros];
        let want = Some(1_733_788_889_000_000);
        check(&all, &Scalar::Integer("1733788889"), want);
        check(&all, &Scalar::Integer("1733788889000"), want);
        check(&all, &Scalar::Integer("1733788889000000"), want);
        check(&all, &Scalar::Text("2024-12-10T00:01:29Z".into()), want);
        check(&all, &Scalar::Integer("1733788889000000000"), None);
        check(&all, &Scalar::Integer("-1"), None);
        check(&all, &Scalar::Integer("99999999999999999999999"), None);
        check(&all, &Scalar::Text("1733788889".into()), None);
        check(&all, &Scalar::Other, None);
        check(&[EpochMillis], &Scalar::Text("2024-12-10T00:01:29Z".into()), None);
        check(&[Rfc3339], &Scalar::Integer("1733788889"), None);
        check(&[EpochMicros], &Scalar::Integer(&(TIMESTAMP_END - 1).to_string()), Some(TIMESTAMP_END - 1));
        check(&[EpochMicros], &Scalar::Integer(&TIMESTAMP_END.to_string()), None);
    }

    #[test]
    fn lists_of_forms_are_checked() {
        let rule = |forms: &[TimeForm]| TimeRule::new(FieldPath::parse("t").unwrap(), forms.to_vec());
        let message = rule(&[TimeForm::EpochMillis, TimeForm::EpochSeconds]).unwrap_err();
        assert!(message.contains("\"epoch-s\" can never be reached behind \"epoch-ms\""), "{message}");
        assert!(rule(&[]).is_err());
        assert!(rule(&[TimeForm::Rfc3339, TimeForm::Rfc3339]).is_err());
    }

    proptest! {
        #[test]
        fn jiff_reads_what_is_written_the_same(
            second in 0..(TIMESTAMP_END as i64 / 1_000_000),
            nanos in 0..1_000_000_000_i32,
            decimals in 0..=9_usize,
            zone_minutes in -1439..=1439_i32,
        ) {
            let zone = jiff::tz::Offset::from_seconds(zone_minutes * 60).unwrap().to_time_zone();
            let time = jiff::Timestamp::new(second, nanos).unwrap().to_zoned_datetime(zone);
            let text = time.strftime(&format!("%Y-%m-%dT%H:%M:%S%.{}f%:z", decimals.max(1))).to_string();
            let by_jiff: jiff::Timestamp = text.parse().unwrap();
            let want = u64::try_from(by_jiff.as_nanosecond().div_euclid(1_000)).unwrap();
            prop_assert_eq!(micros(&text), Some(want), "{}", text);
        }

        /// Near-misses of the form: both parsers agree on what is a time, where both know the form.
        #[test]
        fn jiff_agrees_on_near_misses(
            year in 1970..2255_i32, month in 0..14_i32, day in 0..33_i32,
            hour in 0..25_i32, minute in 0..61_i32, second in 0..60_i32, zone in 0..24_i32,
        ) {
            let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}-{zone:02}:00");
            let by_jiff = text.parse::<jiff::Timestamp>().ok().map(|time| time.as_microsecond() as u64);
            prop_assert_eq!(micros(&text), by_jiff, "{}", text);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse_rfc3339(&text);
        }
    }
}

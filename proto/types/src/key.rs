//! The event key: event time and id together.
//!
//! Invariant: the order of keys is timestamp first, then id; that is also the order of rows in
//! the state machine within one time bucket and group.

use std::fmt;

/// The longest event id, in bytes.
pub const EVENT_ID_BYTES_MAX: usize = 100;

/// Timestamps are below this bound: 2^53 µs (the year 2255), so that a time bucket fits 32 bits
/// and every JSON reader shows the number exactly.
pub const TIMESTAMP_END: u64 = 1 << 53;

/// Event time in microseconds since the Unix epoch, below [`TIMESTAMP_END`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The epoch.
    pub const ZERO: Timestamp = Timestamp(0);

    /// A timestamp from microseconds since the epoch.
    ///
    /// # Errors
    /// [`KeyError::Timestamp`] at or beyond [`TIMESTAMP_END`].
    pub const fn from_micros(micros: u64) -> Result<Timestamp, KeyError> {
        if micros < TIMESTAMP_END { Ok(Timestamp(micros)) } else { Err(KeyError::Timestamp { micros }) }
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of an event: 1 to [`EVENT_ID_BYTES_MAX`] opaque bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Box<[u8]>);

impl EventId {
    /// An id from bytes.
    ///
    /// # Errors
    /// [`KeyError::IdLength`] when there are none, or more than [`EVENT_ID_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Result<EventId, KeyError> {
        EventId::check(bytes)?;
        Ok(EventId(bytes.into()))
    }

    /// Whether bytes make an id.
    pub(crate) fn check(bytes: &[u8]) -> Result<(), KeyError> {
        if bytes.is_empty() || EVENT_ID_BYTES_MAX < bytes.len() {
            return Err(KeyError::IdLength { bytes: bytes.len() });
        }
        Ok(())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Printable ASCII as it is, all else as `0x` and hex digits: for people. Files have their own form.
impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(text) = std::str::from_utf8(&self.0)
            && text.bytes().all(|b| (0x20..0x7f).contains(&b))
        {
            return f.write_str(text);
        }
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What names a click, byte for byte the same in every datacenter: event time and id. The time is
/// part of the identity: it must be one that survives a re-send.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKey {
    /// Event time.
    pub timestamp: Timestamp,
    /// Event id.
    pub id: EventId,
}

impl EventKey {
    /// A key from its parts.
    ///
    /// # Errors
    /// [`KeyError`] when one of them is out of bounds.
    pub fn new(micros: u64, id: &[u8]) -> Result<EventKey, KeyError> {
        Ok(EventKey { timestamp: Timestamp::from_micros(micros)?, id: EventId::new(id)? })
    }
}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.timestamp, self.id)
    }
}

impl fmt::Debug for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Why bytes do not make a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The time is at or beyond [`TIMESTAMP_END`].
    Timestamp {
        /// What was given, in microseconds.
        micros: u64,
    },
    /// The id is empty or too long.
    IdLength {
        /// What was given.
        bytes: usize,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Timestamp { micros } => {
                write!(f, "timestamp {micros} µs is not below 2^53 µs (the year 2255)")
            }
            KeyError::IdLength { bytes } => {
                write!(f, "event id has {bytes} bytes, 1 to {EVENT_ID_BYTES_MAX} are allowed")
            }
        }
    }
}

impl std::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_checked() {
        assert!(EventKey::new(TIMESTAMP_END - 1, &[7; 100]).is_ok());
        assert_eq!(EventKey::new(TIMESTAMP_END, b"x"), Err(KeyError::Timestamp { micros: TIMESTAMP_END }));
        assert_eq!(EventKey::new(0, b""), Err(KeyError::IdLength { bytes: 0 }));
        assert_eq!(EventKey::new(0, &[7; 101]), Err(KeyError::IdLength { bytes: 101 }));
    }

    #[test]
    fn time_orders_before_id() {
        let key = |micros, id: &str| EventKey::new(micros, id.as_bytes()).unwrap();
        assert!(key(1, "b") < key(2, "a"));
        assert!(key(1, "a") < key(1, "b"));
    }
}

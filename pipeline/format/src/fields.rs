//! Taking fields off the front of a binary record that somebody else may have written.
//!
//! Invariant: nothing here panics, whatever the bytes; a record that ends too early is `None`.
//! Not here: checksums and versions, which belong to the record that is read.

use photon_types::EventKey;

/// A cursor over the bytes of one record. All numbers are big-endian.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        Some(u8::from_be_bytes(self.array()?))
    }

    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.array()?))
    }

    /// Bytes behind their length as u32.
    pub fn sized(&mut self) -> Option<&'a [u8]> {
        let count = self.u32()?;
        self.bytes(usize::try_from(count).ok()?)
    }

    /// A UTF-8 text behind its length as u32.
    pub fn text(&mut self) -> Option<String> {
        Some(std::str::from_utf8(self.sized()?).ok()?.to_owned())
    }

    /// A key: timestamp (u64), length of the id (u8), id.
    pub fn key(&mut self) -> Option<EventKey> {
        let micros = self.u64()?;
        let count = self.u8()?;
        EventKey::new(micros, self.bytes(usize::from(count))?).ok()
    }

    /// A value behind a mark of its presence (0 or 1).
    pub fn optional<T>(&mut self, value: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.u8()? {
            0 => Some(None),
            1 => value(self).map(Some),
            2.. => None,
        }
    }

    /// The value, if the record ends here.
    pub fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// The reverse of [`Fields::sized`].
pub(crate) fn put_sized(bytes: &[u8], out: &mut Vec<u8>) {
    let count = u32::try_from(bytes.len()).expect("a field is far below 4 GiB");
    out.extend_from_slice(&count.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// The reverse of [`Fields::key`].
pub(crate) fn put_key(key: &EventKey, out: &mut Vec<u8>) {
    out.extend_from_slice(&key.timestamp.micros().to_be_bytes());
    let id = key.id.as_bytes();
    out.push(u8::try_from(id.len()).expect("an id has at most 100 bytes"));
    out.extend_from_slice(id);
}

/// The reverse of [`Fields::optional`].
pub(crate) fn put_optional<T>(value: Option<T>, out: &mut Vec<u8>, put: impl FnOnce(T, &mut Vec<u8>)) {
    match value {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            put(value, out);
        }
    }
}

//! Protobuf's wire format, read and written: tags, varints and lengths, nothing generated, nothing copied.

use std::ops::Range;

use crate::BodyError;

/// Kinds of fields on the wire, with what they hold.
pub(crate) enum Value {
    Varint(u64),
    Fixed64(u64),
    /// Where the bytes lie in the body.
    Bytes(Range<usize>),
    Fixed32,
}

/// One field of a message.
pub(crate) struct WireField {
    pub(crate) number: u32,
    pub(crate) value: Value,
    /// Where the field begins, tag included.
    pub(crate) start: usize,
}

/// Walks the fields of one message, which lies at a range of the body.
pub(crate) struct Walker<'a> {
    body: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(body: &'a [u8], range: Range<usize>) -> Self {
        Self { body, at: range.start, end: range.end.min(body.len()) }
    }

    /// Where the next field begins.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Passes over fields of bytes with this tag, as long as tag and length are a byte each: labels are such fields nearly always.
    /// How many they were.
    #[inline]
    pub(crate) fn skip_short_fields(&mut self, tag: u8) -> usize {
        let mut count = 0;
        let mut rest = self.body.get(self.at..self.end).unwrap_or_default();
        while let [found, length, behind @ ..] = rest
            && *found == tag
            && *length < 0x80
            && let Some(next) = behind.get(usize::from(*length)..)
        {
            rest = next;
            count += 1;
        }
        self.at = self.end.max(self.at) - rest.len();
        count
    }

    /// Takes a field of bytes with this tag, if tag and length are a byte each and something can be made of it.
    #[inline]
    pub(crate) fn take_short_field<T>(&mut self, tag: u8, read: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        let [found, length, behind @ ..] = self.body.get(self.at..self.end)? else { return None };
        let bytes = behind.get(..usize::from(*length)).filter(|_| *found == tag && *length < 0x80)?;
        let made = read(bytes)?;
        self.at += 2 + bytes.len();
        Some(made)
    }

    /// The next field, or `None` at the end of the message.
    #[inline]
    pub(crate) fn next_field(&mut self) -> Result<Option<WireField>, BodyError> {
        if self.at >= self.end {
            return Ok(None);
        }
        let start = self.at;
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number != 0);
        let number = number.ok_or_else(|| malformed("a field number out of range", start))?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                let bytes = usize::try_from(length).ok().filter(|length| *length <= self.end - self.at);
                let end = self.at + bytes.ok_or_else(|| malformed("a length beyond its message", start))?;
                let range = self.at..end;
                self.at = end;
                Value::Bytes(range)
            }
            5 => {
                self.array::<4>()?;
                Value::Fixed32
            }
            _ => return Err(malformed("an unknown wire type", start)),
        };
        Ok(Some(WireField { number, value, start }))
    }

    /// The next varint of a packed list, or `None` at its end.
    #[inline]
    pub(crate) fn next_varint(&mut self) -> Result<Option<u64>, BodyError> {
        if self.at >= self.end { Ok(None) } else { self.varint().map(Some) }
    }

    /// The next eight bytes of a packed list, or `None` at its end.
    #[inline]
    pub(crate) fn next_fixed64(&mut self) -> Result<Option<u64>, BodyError> {
        if self.at >= self.end { Ok(None) } else { self.array().map(|bytes| Some(u64::from_le_bytes(bytes))) }
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, BodyError> {
        let start = self.at;
        let text = self.body.get(start..self.end).unwrap_or_default();
        // Tags and lengths of labels are one byte nearly always, lengths of series with many labels two.
        match text {
            [byte, ..] if *byte < 0x80 => {
                self.at = start + 1;
                return Ok(u64::from(*byte));
            }
            [low, high, ..] if *high < 0x80 => {
                self.at = start + 2;
                return Ok(u64::from(*low & 0x7f) | u64::from(*high) << 7);
            }
            _ => {}
        }
        let mut value = 0;
        for (place, byte) in text.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                self.at = start + place + 1;
                return Ok(value);
            }
        }
        Err(malformed("a varint that does not end", start))
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BodyError> {
        let text = self.body.get(self.at..self.end).unwrap_or_default();
        let array = text.first_chunk().copied().ok_or_else(|| malformed("a truncated number", self.at))?;
        self.at += N;
        Ok(array)
    }
}

#[cold]
pub(crate) fn malformed(what: &str, at: usize) -> BodyError {
    BodyError::Malformed(format!("not a protobuf message: {what} at byte {at}"))
}

/// Fields of one number in a message: one stretch of the body, as all known senders write them, or pieces put together.
#[derive(Default)]
pub(crate) struct FieldRun {
    pub(crate) run: Range<usize>,
    pub(crate) joined: Option<Vec<u8>>,
    pub(crate) count: usize,
}

impl FieldRun {
    #[inline]
    pub(crate) fn add(&mut self, body: &[u8], field: Range<usize>) {
        self.add_many(body, field, 1);
    }

    /// Adds fields that follow one another.
    #[inline]
    pub(crate) fn add_many(&mut self, body: &[u8], field: Range<usize>, count: usize) {
        self.count += count;
        if let Some(joined) = &mut self.joined {
            joined.extend_from_slice(body.get(field).unwrap_or_default());
        } else if self.run.is_empty() {
            self.run = field;
        } else if self.run.end == field.start {
            self.run.end = field.end;
        } else {
            let pieces = [body.get(self.run.clone()).unwrap_or_default(), body.get(field).unwrap_or_default()];
            self.joined = Some(pieces.concat());
        }
    }

    pub(crate) fn text<'a>(&'a self, body: &'a [u8]) -> &'a [u8] {
        self.joined.as_deref().or_else(|| body.get(self.run.clone())).unwrap_or_default()
    }
}

/// A signed number as `sint32` and `sint64` spell it.
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// The other way round.
pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Appends a varint.
pub(crate) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a field of bytes.
pub(crate) fn write_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    write_varint(out, u64::from(number << 3 | 2));
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a varint field.
pub(crate) fn write_varint_field(out: &mut Vec<u8>, number: u32, value: u64) {
    write_varint(out, u64::from(number << 3));
    write_varint(out, value);
}

/// Appends a field of eight bytes.
pub(crate) fn write_fixed64(out: &mut Vec<u8>, number: u32, value: u64) {
    write_varint(out, u64::from(number << 3 | 1));
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn fields_that_are_passed_over_quickly_are_fields(
            fields in proptest::collection::vec((0u8..3, proptest::collection::vec(proptest::prelude::any::<u8>(), 0..140)), 0..6),
            cut in 0usize..400,
        ) {
            // Mostly fields of bytes with tag 10, some of other tags and some too long, cut off somewhere.
            let mut body = Vec::new();
            fields.iter().for_each(|(tag, content)| write_bytes(&mut body, u32::from(*tag / 2) + 1, content));
            body.truncate(cut);
            let mut quick = Walker::new(&body, 0..body.len());
            let passed = quick.skip_short_fields(10);
            let mut slow = Walker::new(&body, 0..body.len());
            for _ in 0..passed {
                let field = slow.next_field().unwrap().unwrap();
                proptest::prop_assert_eq!(field.number, 1);
                proptest::prop_assert!(matches!(field.value, Value::Bytes(_)));
            }
            proptest::prop_assert_eq!(quick.at(), slow.at());
        }
    }
}

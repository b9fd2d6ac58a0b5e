//! Protobuf's wire format, read and written: tags, varints and lengths, nothing generated, nothing copied.

use std::ops::Range;

use crate::BodyError;

/// Kinds of fields on the wire, with what they hold.
pub(super) enum Value {
    Varint(u64),
    Fixed64(u64),
    /// Where the bytes lie in the body.
    Bytes(Range<usize>),
    Fixed32,
}

/// One field of a message.
pub(super) struct WireField {
    pub(super) number: u32,
    pub(super) value: Value,
    /// Where the field begins, tag included.
    pub(super) start: usize,
}

/// Walks the fields of one message, which lies at a range of the body.
pub(super) struct Walker<'a> {
    body: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Walker<'a> {
    pub(super) fn new(body: &'a [u8], range: Range<usize>) -> Self {
        Self { body, at: range.start, end: range.end.min(body.len()) }
    }

    /// Where the next field begins.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// The next field, or `None` at the end of the message.
    #[inline]
    pub(super) fn next_field(&mut self) -> Result<Option<WireField>, BodyError> {
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

    #[inline]
    fn varint(&mut self) -> Result<u64, BodyError> {
        let start = self.at;
        let text = self.body.get(start..self.end).unwrap_or_default();
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
pub(super) fn malformed(what: &str, at: usize) -> BodyError {
    BodyError::Malformed(format!("not a protobuf message: {what} at byte {at}"))
}

/// Appends a varint.
pub(super) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a field of bytes.
pub(super) fn write_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    write_varint(out, u64::from(number << 3 | 2));
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

//! Reading bytes that may be damaged.

use std::fmt;

/// Takes pieces off the front of a slice; never past its end.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    whole_len: usize,
    rest: &'a [u8],
}

/// Bytes that are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Where in the slice given to the reader.
    pub offset: usize,
    /// The fault at the offset.
    pub what: &'static str,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at offset {}", self.what, self.offset)
    }
}

impl std::error::Error for DecodeError {}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { whole_len: bytes.len(), rest: bytes }
    }

    /// How many bytes were taken.
    pub const fn offset(&self) -> usize {
        self.whole_len - self.rest.len()
    }

    /// Whether all bytes were taken.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The unread bytes.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// An error at the present offset.
    pub const fn error(&self, what: &'static str) -> DecodeError {
        DecodeError { offset: self.offset(), what }
    }

    /// Takes so many bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.error("bytes missing"));
        };
        self.rest = rest;
        Ok(taken)
    }

    /// Takes an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.error("bytes missing"));
        };
        self.rest = rest;
        Ok(*taken)
    }

    /// Takes one byte.
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    /// Takes a little-endian `u32`.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Takes a little-endian `u64`.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes a variable-length integer; see [`crate::varint`].
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.error("integer longer than 64 bits"))
    }

    /// Takes a zigzag variable-length integer.
    pub fn varint_signed(&mut self) -> Result<i64, DecodeError> {
        self.varint().map(crate::varint::unzigzag)
    }

    /// Takes a length or a count that must not exceed a bound.
    pub fn length(&mut self, max: usize) -> Result<usize, DecodeError> {
        let value = self.varint()?;
        usize::try_from(value).ok().filter(|length| *length <= max).ok_or_else(|| self.error("length beyond its bound"))
    }

    /// Takes text with its length before it.
    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        let length = self.length(self.rest.len())?;
        let bytes = self.bytes(length)?;
        std::str::from_utf8(bytes).map_err(|_| self.error("text that is not UTF-8"))
    }
}

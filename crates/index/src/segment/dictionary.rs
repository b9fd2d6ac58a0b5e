//! The values of one label: sorted, front-coded in blocks, each with how many groups have it and how long its postings are.

use codec::{DecodeError, Reader, varint};

use super::copies::Window;
use super::{BLOCK, DICTIONARY_PLACE_BYTES};

/// Most terms are shorter.
const TERM_BYTES_GUESS: usize = 64;

/// Writes a dictionary, term by term in order.
#[derive(Default)]
pub(crate) struct DictionaryWriter {
    pub(crate) bytes: Vec<u8>,
    /// For each block its place in the dictionary and in the postings.
    pub(crate) offsets: Vec<u8>,
    pub(crate) terms: u32,
    last: String,
}

impl DictionaryWriter {
    /// Appends a term whose postings begin at a place; `None` if 4 GiB are full.
    pub(crate) fn push(&mut self, text: &str, count: u32, postings_at: u64, postings_bytes: usize) -> Option<()> {
        if self.terms.is_multiple_of(BLOCK) {
            self.last.clear();
            self.offsets.extend_from_slice(&u32::try_from(self.bytes.len()).ok()?.to_le_bytes());
            self.offsets.extend_from_slice(&u32::try_from(postings_at).ok()?.to_le_bytes());
        }
        let shared = shared_prefix(&self.last, text);
        varint::push(&mut self.bytes, shared as u64);
        varint::push_text(&mut self.bytes, text.get(shared..).unwrap_or_default());
        varint::push(&mut self.bytes, u64::from(count));
        varint::push(&mut self.bytes, postings_bytes as u64);
        text.clone_into(&mut self.last);
        self.terms += 1;
        Some(())
    }
}

/// Bytes that two texts begin with alike, whole characters only.
fn shared_prefix(a: &str, b: &str) -> usize {
    let mut shared = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    while !a.is_char_boundary(shared) || !b.is_char_boundary(shared) {
        shared -= 1;
    }
    shared
}

/// A dictionary that is read.
#[derive(Clone, Copy)]
pub(crate) struct Dictionary<'a> {
    pub(crate) bytes: Window<'a>,
    pub(crate) offsets: Window<'a>,
    pub(crate) terms: u32,
}

/// Where reading a dictionary stands: behind the term of this number.
#[derive(Debug)]
pub(crate) struct Position<'a> {
    reader: Reader<'a>,
    pub(crate) text: String,
    next: u32,
    pub(crate) count: u32,
    pub(crate) postings_at: u64,
    pub(crate) postings_bytes: u64,
}

impl Position<'_> {
    pub(crate) const fn number(&self) -> u32 {
        self.next.saturating_sub(1)
    }
}

impl<'a> Dictionary<'a> {
    /// Before the first term of a block.
    pub(crate) fn at_block(&self, block: u32) -> Result<Position<'a>, DecodeError> {
        let postings_at = u64::from(self.offsets.u32_at(u64::from(block) * DICTIONARY_PLACE_BYTES + 4)?);
        let (reader, next) = (Reader::new(self.block(block)?), block * BLOCK);
        Ok(Position { reader, text: String::new(), next, count: 0, postings_at, postings_bytes: 0 })
    }

    /// The bytes of a block.
    fn block(&self, block: u32) -> Result<&'a [u8], DecodeError> {
        let place = |block: u32| self.offsets.u32_at(u64::from(block) * DICTIONARY_PLACE_BYTES).map(u64::from);
        let start = place(block)?;
        let is_last = block + 1 >= self.terms.div_ceil(BLOCK);
        let end = if is_last { self.bytes.len() } else { place(block + 1)? };
        self.bytes.get(start, end.saturating_sub(start))
    }

    /// Before the first term, or, where a text is given, before some term that is not behind it and not far from it.
    pub(crate) fn before(&self, text: &str) -> Result<Position<'a>, DecodeError> {
        // The last block whose first term is not behind the text.
        let (mut low, mut high) = (0, self.terms.div_ceil(BLOCK));
        while high - low > 1 {
            let middle = low.midpoint(high);
            let mut first = self.at_block(middle)?;
            self.advance(&mut first)?;
            if first.text.as_str() <= text {
                low = middle;
            } else {
                high = middle;
            }
        }
        self.at_block(low)
    }

    /// Goes to the next term; `false` behind the last.
    pub(crate) fn advance(&self, position: &mut Position<'a>) -> Result<bool, DecodeError> {
        if position.next >= self.terms {
            return Ok(false);
        }
        if position.next.is_multiple_of(BLOCK) {
            position.text.clear();
            if position.reader.is_empty() {
                position.reader = Reader::new(self.block(position.next / BLOCK)?);
            }
        }
        let reader = &mut position.reader;
        let shared = reader.length(position.text.len())?;
        if !position.text.is_char_boundary(shared) {
            return Err(reader.error("term that shares half a character"));
        }
        position.text.truncate(shared);
        position.text.push_str(reader.text()?);
        position.count = u32::try_from(reader.varint()?).map_err(|_| reader.error("count beyond 32 bits"))?;
        position.postings_at = position.postings_at.saturating_add(position.postings_bytes);
        position.postings_bytes = reader.varint()?;
        position.next += 1;
        Ok(true)
    }

    /// The position at a text, if it is in the dictionary.
    pub(crate) fn find(&self, text: &str) -> Result<Option<Position<'a>>, DecodeError> {
        if self.terms == 0 {
            return Ok(None);
        }
        let mut position = self.before(text)?;
        for _ in 0..BLOCK {
            if !self.advance(&mut position)? || position.text.as_str() > text {
                return Ok(None);
            }
            if position.text == text {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    /// Whether a term is this text; compared on the way, without putting the terms before it together.
    pub(crate) fn is_at(&self, number: u32, text: &str) -> Result<bool, DecodeError> {
        let text = text.as_bytes();
        let mut reader = self.at_block(number / BLOCK)?.reader;
        // How much of the text the term begins with, and how long the term is.
        let (mut alike, mut length) = (0, 0);
        for _ in 0..=number % BLOCK {
            let shared = reader.length(length)?;
            let suffix = reader.length(reader.rest().len())?;
            let suffix = reader.bytes(suffix)?;
            if shared <= alike {
                let rest = text.get(shared..).unwrap_or_default();
                alike = shared + rest.iter().zip(suffix).take_while(|(a, b)| a == b).count();
            }
            length = shared + suffix.len();
            reader.varint()?;
            reader.varint()?;
        }
        Ok(alike == text.len() && length == text.len())
    }

    /// Appends the text of a term. Only its own text is checked to be one, not those on the way to it.
    pub(crate) fn append_term(&self, number: u32, out: &mut String) -> Result<(), DecodeError> {
        if number >= self.terms {
            return Err(DecodeError { offset: 0, what: "no such term" });
        }
        let mut reader = self.at_block(number / BLOCK)?.reader;
        let mut term = Vec::with_capacity(TERM_BYTES_GUESS);
        for index in 0..=number % BLOCK {
            let shared = reader.length(term.len())?;
            let suffix_bytes = reader.length(reader.rest().len())?;
            term.truncate(shared);
            term.extend_from_slice(reader.bytes(suffix_bytes)?);
            if index < number % BLOCK {
                // How many groups have it, and how long its postings are.
                reader.varint()?;
                reader.varint()?;
            }
        }
        out.push_str(std::str::from_utf8(&term).map_err(|_| reader.error("term that is not UTF-8"))?);
        Ok(())
    }
}

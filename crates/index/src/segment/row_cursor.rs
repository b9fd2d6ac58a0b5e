//! Going over rows of a segment in order: a row is what differs from the one before, so that the next one costs a fraction of any other.

use codec::DecodeError;

use super::BLOCK;
use super::reader::Segment;
use super::rows::RowsReader;
use crate::source::{RowCursor, Source};
use crate::{GroupId, IndexError};

/// The values of a segment's groups.
pub(super) struct SegmentRows<'s> {
    segment: &'s Segment,
    /// After the row before `next`.
    reader: RowsReader<'s>,
    /// The ordinal of the row that the reader gives next; `None`: it has to begin with a block.
    next: Option<u32>,
    /// Of the last row's family its number, its schema, and how many values that has.
    family: Option<(u32, u32, usize)>,
}

impl<'s> SegmentRows<'s> {
    pub(super) const fn new(segment: &'s Segment) -> Self {
        Self { segment, reader: RowsReader::new(&[]), next: None, family: None }
    }

    /// Reads on up to a row; its family.
    fn advance_to(&mut self, ordinal: u32) -> Result<u32, DecodeError> {
        let block = ordinal / BLOCK;
        let from = match self.next {
            Some(next) if next <= ordinal && next / BLOCK == block && !next.is_multiple_of(BLOCK) => next,
            _ => {
                self.reader = self.segment.row_block(block)?;
                block * BLOCK
            }
        };
        self.next = None;
        for at in from..=ordinal {
            let number = self.segment.family_number(at)?;
            let (schema, count) = match self.family {
                Some((known, schema, count)) if known == number => (schema, count),
                _ => {
                    let schema = self.segment.family_entry(number)?[2];
                    (schema, self.segment.schema(schema)?.len())
                }
            };
            self.family = Some((number, schema, count));
            self.reader.advance(schema, count)?;
        }
        self.next = Some(ordinal + 1);
        Ok(self.family.map_or(0, |(number, ..)| number))
    }
}

impl RowCursor for SegmentRows<'_> {
    fn values_of(&mut self, id: GroupId, values: &mut Vec<u32>) -> Result<Option<u32>, IndexError> {
        let Some(ordinal) = self.segment.ordinal(id) else { return Ok(None) };
        let family = self.advance_to(ordinal);
        // What was read of a copy that could not be read is read again, of the other one.
        match family {
            Ok(family) if self.segment.is_confirmed() => {
                values.extend_from_slice(&self.reader.values);
                Ok(Some(family))
            }
            _ => {
                *self = Self::new(self.segment);
                self.segment.values_of(id, values)
            }
        }
    }
}

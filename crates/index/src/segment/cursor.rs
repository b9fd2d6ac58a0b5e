//! Goes over the terms of a dictionary.

use super::dictionary::{Dictionary, Position};
use super::directory::NamePlaces;
use super::reader::Segment;
use crate::IndexError;
use crate::ids::Ids;
use crate::source::TermCursor;

/// Goes over a dictionary.
pub(super) struct Cursor<'a> {
    pub(super) segment: &'a Segment,
    pub(super) name: &'a NamePlaces,
    pub(super) dictionary: Dictionary<'a>,
    pub(super) position: Position<'a>,
    pub(super) prefix: &'a str,
}

impl TermCursor for Cursor<'_> {
    fn advance(&mut self) -> Result<bool, IndexError> {
        loop {
            let advanced = self.dictionary.advance(&mut self.position);
            self.segment.confirm()?;
            if !advanced.map_err(self.segment.damaged())? {
                return Ok(false);
            }
            let text = self.position.text.as_str();
            if text.starts_with(self.prefix) {
                return Ok(true);
            }
            if text > self.prefix {
                return Ok(false);
            }
        }
    }

    fn text(&self) -> &str {
        &self.position.text
    }

    fn number(&self) -> u32 {
        self.position.number()
    }

    fn count(&self) -> u32 {
        self.position.count
    }

    fn ids(&self) -> Result<Ids, IndexError> {
        self.segment.read(|| self.segment.term_ids(self.name, &self.position))
    }
}

//! Lines whose layout was not guessed: new ones, changed ones, bad ones.

use std::mem;

use memchr::{memchr, memchr_iter, memchr2};

use super::key::{self, is_escaped};
use super::layout::LineField;
use super::value::{UNBALANCED_QUOTES, bad_ending, count_blanks, line_end, parse_ending, parse_value};
use super::{Parser, Row, State, Unfinished, place_value};
use crate::errors::{LimitName, Reason};

/// Buffers that are used again from line to line.
#[derive(Default)]
pub(super) struct Scratch<'body> {
    fields: Vec<LineField<'body>>,
    spelling: Vec<u8>,
}

impl<'body> Parser<'body, '_, '_> {
    /// Reads a line of any layout, or reports it.
    pub(super) fn parse_unguessed(&mut self, start: usize) -> Result<(), Unfinished> {
        let mut scratch = mem::take(&mut self.scratch);
        scratch.fields.clear();
        scratch.spelling.clear();
        let row = self.take_apart(start, &mut scratch);
        if row.as_ref().is_ok_and(|row| !self.is_whole(row.end)) {
            return Err(Unfinished);
        }
        let result = row.and_then(|row| self.add_row(&row, &scratch));
        self.scratch = scratch;
        let Err(reason) = result else { return Ok(()) };
        let line = self.body.get(start..).unwrap_or_default();
        let BadLine { length, has_open_quote } = bad_line(line);
        let is_open = has_open_quote || reason.text() == UNBALANCED_QUOTES;
        if !self.is_whole(start + length) || is_open && !self.is_last {
            return Err(Unfinished);
        }
        let state = &mut *self.state;
        state.errors.push(state.options.limits.errors_max, state.line, reason);
        state.line += memchr_iter(b'\n', line.get(..length).unwrap_or_default()).count() as u32;
        self.at = start + length;
        Ok(())
    }

    /// Reads key, fields and time into the scratch, whatever they are called.
    fn take_apart(&mut self, start: usize, scratch: &mut Scratch<'body>) -> Result<Row, Reason> {
        let limits = self.state.options.limits;
        let line = self.body.get(start..).unwrap_or_default();
        if self.state.rows == limits.rows_max {
            return Err(LimitName::Rows.exceeded(format_args!("the request has more than {} rows", limits.rows_max)));
        }
        if line.first() == Some(&b',') {
            return Err("missing measurement".into());
        }
        let key_length = key::key_length(line).ok_or("missing fields")?;
        let raw_key = line.get(..key_length).unwrap_or_default();
        if key_length > self.state.unchecked_key_bytes {
            key::check_key(raw_key, limits)?;
        }
        scratch.spelling.extend_from_slice(raw_key.get(..key::measurement_length(raw_key)).unwrap_or_default());
        scratch.spelling.push(b' ');
        let mut at = key_length + count_blanks(line.get(key_length..).unwrap_or_default());
        let mut inner_lines = 0;
        if line_end(line.get(at..).unwrap_or_default()).is_some() {
            return Err("missing fields".into());
        }
        loop {
            if scratch.fields.len() == limits.fields_max {
                return Err(LimitName::Fields.exceeded(format_args!("more than {} fields", limits.fields_max)));
            }
            at += self.take_field(start + at, &mut inner_lines, scratch)?;
            match line.get(at) {
                Some(b',') => at += 1,
                _ => break,
            }
        }
        let ending = parse_ending(line.get(at..).unwrap_or_default())?;
        let length = at + ending.length;
        if length > limits.line_bytes_max {
            return Err(
                LimitName::LineBytes.exceeded(format_args!("the line is longer than {} bytes", limits.line_bytes_max))
            );
        }
        let timestamp_ns = self.state.timestamp_ns(ending.timestamp)?;
        Ok(Row { key_start: start, key_length, timestamp_ns, end: start + length, inner_lines })
    }

    /// Reads the field at `at` in the body and says how many bytes it took.
    fn take_field(&mut self, at: usize, inner_lines: &mut u32, scratch: &mut Scratch<'body>) -> Result<usize, Reason> {
        let text = self.body.get(at..).unwrap_or_default();
        let name_length = field_name_length(text)?;
        let name = text.get(..name_length).unwrap_or_default();
        let text = text.get(name_length + 1..).unwrap_or_default();
        let value = parse_value(text)?;
        let behind = text.get(value.length..).unwrap_or_default();
        if line_end(behind).is_none() && !matches!(behind.first(), Some(b',' | b' ')) {
            return Err(bad_ending(value.kind).into());
        }
        let cell = place_value(&value, text, at + name_length + 1, &mut self.state.texts, inner_lines)?;
        scratch.spelling.extend_from_slice(name);
        scratch.spelling.extend_from_slice(&[b'=', value.kind as u8]);
        scratch.fields.push(LineField { name, value_type: value.kind, cell });
        Ok(name_length + 1 + value.length)
    }

    /// Finds or makes the layout and adds the row.
    fn add_row(&mut self, row: &Row, scratch: &Scratch<'body>) -> Result<(), Reason> {
        let spelling = self.state.options.hasher.hash(&scratch.spelling);
        let place = match self.state.layouts.find(spelling) {
            Some(place) => place,
            None => self.add_layout(spelling, row, scratch)?,
        };
        let state = &mut *self.state;
        let Some(layout) = state.layouts.get(place) else { return Ok(()) };
        let block_place = layout.block;
        let Some(block) = state.blocks.get_mut(block_place) else { return Ok(()) };
        match &layout.columns {
            None => block.cells.extend(scratch.fields.iter().map(|field| field.cell)),
            Some(columns) => {
                block
                    .cells
                    .extend(columns.iter().filter_map(|&column| scratch.fields.get(column)).map(|field| field.cell));
            }
        }
        self.push_row(place, block_place, row);
        Ok(())
    }

    fn add_layout(&mut self, spelling: u128, row: &Row, scratch: &Scratch<'body>) -> Result<usize, Reason> {
        let raw_key = self.body.get(row.key_start..row.key_start + row.key_length).unwrap_or_default();
        let measurement = raw_key.get(..key::measurement_length(raw_key)).unwrap_or_default();
        let State { layouts, blocks, options, .. } = &mut *self.state;
        let place = layouts.add(spelling, measurement, &scratch.fields, blocks, options.limits)?;
        // Most bodies have one layout: room for all their rows at once. Others grow as they need.
        if place == 0
            && let Some(block) = blocks.first_mut()
        {
            let rows = self.body.len().saturating_sub(row.key_start) / (row.end - row.key_start).max(1) + 1;
            block.keys.reserve(rows);
            block.timestamps_ns.reserve(rows);
            block.lines.reserve(rows);
            block.cells.reserve(rows * block.fields.len());
        }
        Ok(place)
    }
}

/// Length of the field name at the beginning of the text, up to the equals sign.
fn field_name_length(text: &[u8]) -> Result<usize, &'static str> {
    let delimiters = text.iter().enumerate().filter(|(_, byte)| matches!(byte, b'=' | b',' | b' ' | b'\n'));
    for (at, byte) in delimiters {
        match byte {
            b'\n' => break,
            _ if is_escaped(text, at) => {}
            b'=' if at == 0 => return Err("missing field key"),
            b'=' => return Ok(at),
            _ => break,
        }
    }
    Err("invalid field format: a field without '='")
}

/// How far a bad line goes.
struct BadLine {
    /// Its end included.
    length: usize,
    /// True if a quote is not closed in the text.
    has_open_quote: bool,
}

/// How far a bad line goes, its end included: to the first line end outside quotes. If a quote is never closed, to the
/// first line end behind it, so that one bad line does not take the rest of the body with it.
///
/// This stays linear over a body of bad lines: everything up to the unclosed quote is skipped, and where the search for
/// a closing quote fails there is no quote in what follows, so later lines do not search again.
fn bad_line(line: &[u8]) -> BadLine {
    let Some(mut at) = key::key_length(line) else {
        return BadLine { length: memchr(b'\n', line).map_or(line.len(), |end| end + 1), has_open_quote: false };
    };
    let mut has_open_quote = false;
    while let Some(found) = line.get(at..).and_then(|text| memchr2(b'\n', b'"', text)) {
        at += found;
        if line.get(at) == Some(&b'\n') {
            return BadLine { length: at + 1, has_open_quote };
        }
        let opens = at > 0 && line.get(at - 1) == Some(&b'=');
        let quoted = if opens { line.get(at..).and_then(quoted_length) } else { None };
        has_open_quote |= opens && quoted.is_none();
        at += quoted.unwrap_or(1);
    }
    BadLine { length: line.len(), has_open_quote }
}

/// Length of the quoted string at the beginning of the text; `None` if it is not closed.
fn quoted_length(text: &[u8]) -> Option<usize> {
    parse_value(text).ok().map(|value| value.length)
}

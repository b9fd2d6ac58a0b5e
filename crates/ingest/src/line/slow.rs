//! Lines whose layout was not guessed: new ones, changed ones, bad ones.

use std::mem;

use memchr::{memchr, memchr_iter, memchr2};

use super::key::{self, is_escaped};
use super::layout::LineField;
use super::value::{bad_ending, count_blanks, line_end, parse_ending, parse_value};
use super::{Parser, Reason, Row, place_value};

/// Buffers that are used again from line to line.
#[derive(Default)]
pub(super) struct Scratch<'body> {
    fields: Vec<LineField<'body>>,
    spelling: Vec<u8>,
}

impl<'body> Parser<'body, '_> {
    /// Reads a line of any layout, or reports it.
    pub(super) fn parse_unguessed(&mut self, start: usize) {
        let mut scratch = mem::take(&mut self.scratch);
        scratch.fields.clear();
        scratch.spelling.clear();
        let result = self.take_apart(start, &mut scratch).and_then(|row| self.add_row(&row, &scratch));
        self.scratch = scratch;
        if let Err(reason) = result {
            self.errors.push(self.options.limits.errors_max, self.line, || reason.into_owned());
            let line = self.body.get(start..).unwrap_or_default();
            let length = bad_line_length(line);
            let skipped = line.get(..length).unwrap_or_default();
            self.line += memchr_iter(b'\n', skipped).count() as u32;
            self.at = start + length;
        }
    }

    /// Reads key, fields and time into the scratch, whatever they are called.
    fn take_apart(&mut self, start: usize, scratch: &mut Scratch<'body>) -> Result<Row, Reason> {
        let limits = self.options.limits;
        let line = self.body.get(start..).unwrap_or_default();
        if self.rows == limits.rows_max {
            return Err(format!("the request has more than {} rows (rows_max); split it", limits.rows_max).into());
        }
        if line.first() == Some(&b',') {
            return Err("missing measurement".into());
        }
        let key_length = key::key_length(line).ok_or("missing fields")?;
        let raw_key = line.get(..key_length).unwrap_or_default();
        if key_length > self.unchecked_key_bytes {
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
                return Err(format!("more than {} fields (fields_max)", limits.fields_max).into());
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
            return Err(format!("the line is longer than {} bytes (line_bytes_max)", limits.line_bytes_max).into());
        }
        let timestamp_ns = self.timestamp_ns(ending.timestamp)?;
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
        let cell = place_value(&value, text, at + name_length + 1, &mut self.batch, inner_lines)?;
        scratch.spelling.extend_from_slice(name);
        scratch.spelling.extend_from_slice(&[b'=', value.kind as u8]);
        scratch.fields.push(LineField { name, value_type: value.kind, cell });
        Ok(name_length + 1 + value.length)
    }

    /// Finds or makes the layout and adds the row.
    fn add_row(&mut self, row: &Row, scratch: &Scratch<'body>) -> Result<(), Reason> {
        let spelling = self.options.hasher.hash(&scratch.spelling);
        let place = match self.layouts.find(spelling) {
            Some(place) => place,
            None => self.add_layout(spelling, row, scratch)?,
        };
        let Some(layout) = self.layouts.get(place) else { return Ok(()) };
        let block_place = layout.block;
        let Some(block) = self.blocks.get_mut(block_place) else { return Ok(()) };
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
        let place = self.layouts.add(spelling, measurement, &scratch.fields, &mut self.blocks, self.options.limits)?;
        // Most bodies have one layout: room for all their rows at once. Others grow as they need.
        if place == 0
            && let Some(block) = self.blocks.first_mut()
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

/// How far a bad line goes, its end included: to the first line end outside quotes. If a quote is never closed, to the
/// first line end behind it, so that one bad line does not take the rest of the body with it.
///
/// This stays linear over a body of bad lines: everything up to the unclosed quote is skipped, and where the search for
/// a closing quote fails there is no quote in what follows, so later lines do not search again.
fn bad_line_length(line: &[u8]) -> usize {
    let Some(mut at) = key::key_length(line) else {
        return memchr(b'\n', line).map_or(line.len(), |end| end + 1);
    };
    while let Some(found) = line.get(at..).and_then(|text| memchr2(b'\n', b'"', text)) {
        at += found;
        if line.get(at) == Some(&b'\n') {
            return at + 1;
        }
        let opens = at > 0 && line.get(at - 1) == Some(&b'=');
        at += if opens { line.get(at..).and_then(quoted_length).unwrap_or(1) } else { 1 };
    }
    line.len()
}

/// Length of the quoted string at the beginning of the text; `None` if it is not closed.
fn quoted_length(text: &[u8]) -> Option<usize> {
    parse_value(text).ok().map(|value| value.length)
}

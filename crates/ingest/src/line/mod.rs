//! Influx line protocol: `measurement,tag=value,… field=value,… timestamp`, one point a line.
//!
//! What is accepted is what InfluxDB 1.8 and 2 accept, down to which byte a backslash escapes, and the reasons for
//! refusing a line are worded like theirs where they have one. The life of a line, file by file:
//!
//! * `mod.rs`: [`parse`] guesses the line's layout; a right guess leaves little more than numbers to read.
//! * `layout.rs`: layouts and how they are guessed.
//! * `slow.rs`: takes a line apart whose layout was not guessed, and finds the end of a bad one.
//! * `order.rs`: makes later lines win over earlier ones with other fields.
//! * `value.rs`: values, and what ends a line.
//! * `key.rs`: escapes; measurement and tags, parsed only for groups that the store does not know ([`decode_key`]).
//! * `encode.rs`: the way back.
//! * `columns.rs`: rows that come as columns, with the keys of lines.

mod columns;
mod encode;
mod key;
mod layout;
mod order;
mod slow;
#[cfg(test)]
mod tests;
mod value;

use memchr::memchr_iter;
use model::{Block, GroupKey, Span, ValueType};

pub use columns::{FieldColumn, FieldValues, TableColumns, TagColumn, parse_columns};
pub use encode::{EncodeError, FieldValue, Point, encode_batch, encode_point};
pub(crate) use key::check_line;
pub use key::decode_key;

use crate::batch::body::{LineReader, TextSlice, Texts, parse_lines};
use crate::number::parse_expected;
use crate::{Body, BodyError, Limits, LineErrors, Parsed, ScopedKeyHasher};
use layout::{LayoutField, Layouts};
use value::{Ending, Value, count_blanks, line_end, parse_ending, parse_value, unescape_string};

/// The unit of a body's timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Nanoseconds: `ns` or `n`.
    #[default]
    Nanosecond,
    /// Microseconds: `us`, `u` or `µ`.
    Microsecond,
    /// Milliseconds: `ms`.
    Millisecond,
    /// Seconds: `s`.
    Second,
    /// Minutes: `m`.
    Minute,
    /// Hours: `h`.
    Hour,
    /// The size of each timestamp tells its unit: seconds below 5 · 10⁹, and so on. Times before 1970 and those soon after are
    /// not told apart.
    Auto,
}

impl Precision {
    /// The precision with this name in InfluxDB's HTTP interfaces, version 1 or 2.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "ns" | "n" => Some(Self::Nanosecond),
            "us" | "u" | "µ" => Some(Self::Microsecond),
            "ms" => Some(Self::Millisecond),
            "s" => Some(Self::Second),
            "m" => Some(Self::Minute),
            "h" => Some(Self::Hour),
            _ => None,
        }
    }

    /// Nanoseconds in one unit of a timestamp.
    const fn unit_of_ns(self, timestamp: i64) -> i64 {
        match (self, timestamp.unsigned_abs()) {
            (Self::Auto, 0..5_000_000_000) => 1_000_000_000,
            (Self::Auto, 5_000_000_000..5_000_000_000_000) => 1_000_000,
            (Self::Auto, 5_000_000_000_000..5_000_000_000_000_000) => 1_000,
            _ => self.unit_ns(),
        }
    }

    /// Nanoseconds in one unit; 1 if timestamps tell theirs.
    pub const fn unit_ns(self) -> i64 {
        match self {
            Self::Nanosecond | Self::Auto => 1,
            Self::Microsecond => 1_000,
            Self::Millisecond => 1_000_000,
            Self::Second => 1_000_000_000,
            Self::Minute => 60_000_000_000,
            Self::Hour => 3_600_000_000_000,
        }
    }
}

/// How to read a body.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Hashes keys; of [`crate::Protocol::Line`].
    pub hasher: ScopedKeyHasher<'a>,
    /// The unit of timestamps.
    pub precision: Precision,
    /// The time of points that bring none; cut to the precision, as InfluxDB does.
    pub now_ns: i64,
    /// Bounds on lines.
    pub limits: &'a Limits,
}

/// Parses a body. Fails only when it is 2 GiB or longer, or cannot be unpacked.
pub fn parse<'body>(body: impl Into<Body<'body>>, options: &Options<'_>) -> Result<Parsed<'body>, BodyError> {
    parse_lines(body.into(), State::new(options))
}

/// What lasts from piece to piece.
struct State<'options> {
    options: &'options Options<'options>,
    /// Keys up to this length break no limit, whatever is in them.
    unchecked_key_bytes: usize,
    /// Rows so far.
    rows: usize,
    /// The time of points that bring none.
    now_ns: i64,
    /// The number of the line that is read.
    line: u32,
    layouts: Layouts,
    texts: Texts,
    blocks: Vec<Block>,
    /// For each block, the rows that refer to no piece any more.
    detached_rows: Vec<usize>,
    errors: LineErrors,
}

struct Parser<'body, 'state, 'options> {
    body: &'body [u8],
    /// Whether the body ends where this text does.
    is_last: bool,
    /// The next byte to read.
    at: usize,
    state: &'state mut State<'options>,
    scratch: slow::Scratch<'body>,
}

/// A line that may go on beyond the text.
struct Unfinished;

/// A line that was read: its key, its time, and where the next line begins.
struct Row {
    key_start: usize,
    key_length: usize,
    timestamp_ns: i64,
    end: usize,
    /// Line ends inside strings.
    inner_lines: u32,
}

impl<'options> State<'options> {
    fn new(options: &'options Options<'options>) -> Self {
        let unit_ns = options.precision.unit_ns();
        Self {
            options,
            unchecked_key_bytes: key::unchecked_key_bytes(options.limits),
            rows: 0,
            now_ns: options.now_ns - options.now_ns.rem_euclid(unit_ns),
            line: 1,
            layouts: Layouts::default(),
            texts: Texts::default(),
            blocks: Vec::new(),
            detached_rows: Vec::new(),
            errors: LineErrors::default(),
        }
    }

    /// The time of a point, in nanoseconds.
    #[inline]
    fn timestamp_ns(&self, timestamp: Option<i64>) -> Result<i64, &'static str> {
        match timestamp {
            None => Ok(self.now_ns),
            Some(timestamp) => timestamp
                .checked_mul(self.options.precision.unit_of_ns(timestamp))
                .ok_or("time outside range -9223372036854775808 - 9223372036854775807 ns"),
        }
    }
}

impl LineReader for State<'_> {
    fn read(&mut self, piece: TextSlice<'_>) -> usize {
        self.texts.begin(piece.text);
        let TextSlice { text: body, is_last } = piece;
        let mut parser = Parser { body, is_last, at: 0, state: self, scratch: slow::Scratch::default() };
        while parser.at < body.len() && parser.next_line().is_ok() {}
        parser.at
    }

    fn detach(&mut self, text: &[u8]) {
        self.detached_rows.resize(self.blocks.len(), 0);
        for (block, detached_rows) in self.blocks.iter_mut().zip(&mut self.detached_rows) {
            self.texts.detach_rows(text, block, *detached_rows);
            *detached_rows = block.rows();
        }
        self.texts.end();
    }

    fn finish(self, body: &[u8]) -> Parsed<'_> {
        let mut batch = self.texts.into_batch(body, decode_key);
        batch.blocks = self.blocks;
        order::restore_order(&mut batch.blocks);
        Parsed { batch, errors: self.errors }
    }
}

impl Parser<'_, '_, '_> {
    /// Whether the line that ends before this byte has its end in the text.
    #[inline]
    fn is_whole(&self, end: usize) -> bool {
        self.is_last || end > 0 && self.body.get(end - 1) == Some(&b'\n')
    }

    fn next_line(&mut self) -> Result<(), Unfinished> {
        let rest = self.body.get(self.at..).unwrap_or_default();
        let blanks = count_blanks(rest);
        let rest = rest.get(blanks..).unwrap_or_default();
        let start = self.at + blanks;
        let empty = line_end(rest);
        if empty.is_some() || rest.first() == Some(&b'#') {
            let length = empty.or_else(|| Some(memchr::memchr(b'\n', rest)? + 1)).unwrap_or(rest.len());
            if !self.is_whole(start + length) {
                return Err(Unfinished);
            }
            self.at = start + length;
            self.state.line += 1;
            return Ok(());
        }
        match self.parse_guessed(start) {
            Some(()) => Ok(()),
            None => self.parse_unguessed(start),
        }
    }

    /// Reads the line as if it had the layout that is its turn. `None`, and no trace left, if it has another one or
    /// anything else is unusual about it.
    #[inline]
    fn parse_guessed(&mut self, start: usize) -> Option<()> {
        let State { options, unchecked_key_bytes, rows, layouts, texts, blocks, .. } = &mut *self.state;
        let (place, layout) = layouts.predicted()?;
        let line = self.body.get(start..)?;
        let behind_measurement = line.strip_prefix(&*layout.measurement)?.first()?;
        let key_length = key::key_length(line)?;
        if !matches!(behind_measurement, b',' | b' ')
            || key_length > *unchecked_key_bytes
            || *rows == options.limits.rows_max
        {
            return None;
        }
        let (block, line_bytes_max) = (layout.block, options.limits.line_bytes_max);
        let cells = &mut blocks.get_mut(block)?.cells;
        let cells_before = cells.len();
        let mut reader = FieldReader { line, start, at: key_length, texts, inner_lines: 0 };
        let ending = reader.read_fields(&layout.fields, cells);
        let (at, inner_lines) = (reader.at, reader.inner_lines);
        let row = ending.and_then(|ending| {
            let length = at + ending.length;
            let timestamp_ns = self.state.timestamp_ns(ending.timestamp).ok()?;
            let fits = length <= line_bytes_max && self.is_whole(start + length);
            fits.then_some(Row { key_start: start, key_length, timestamp_ns, end: start + length, inner_lines })
        });
        let Some(row) = row else {
            self.state.blocks.get_mut(block)?.cells.truncate(cells_before);
            return None;
        };
        self.push_row(place, block, &row);
        Some(())
    }

    /// Adds a row, except for its cells, and goes to the next line.
    #[inline]
    fn push_row(&mut self, place: usize, block: usize, row: &Row) {
        let raw_key = self.body.get(row.key_start..row.key_start + row.key_length).unwrap_or_default();
        let text = Span { start: row.key_start as u32, len: row.key_length as u32 };
        let state = &mut *self.state;
        if let Some(block) = state.blocks.get_mut(block) {
            block.keys.push(GroupKey { hash: state.options.hasher.hash(raw_key), text });
            block.timestamps_ns.push(row.timestamp_ns);
            block.lines.push(state.line);
        }
        state.layouts.followed_by(place);
        state.rows += 1;
        state.line += row.inner_lines + 1;
        self.at = row.end;
    }
}

/// Reads the fields of a line whose layout is known.
struct FieldReader<'a> {
    line: &'a [u8],
    /// Where the line begins in the body.
    start: usize,
    /// The next byte of the line to read.
    at: usize,
    texts: &'a mut Texts,
    inner_lines: u32,
}

impl FieldReader<'_> {
    /// Appends the cells and says how the line ends; `None` as soon as something does not fit the layout.
    #[inline]
    fn read_fields(&mut self, fields: &[LayoutField], cells: &mut Vec<u64>) -> Option<Ending> {
        let line = self.line;
        // Not a field of its own all along: it would be stored and loaded for each of the line's fields.
        let mut at = self.at + count_blanks(line.get(self.at..)?);
        for field in fields {
            let text = strip_spelling(line.get(at..)?, &field.spelling)?;
            at += field.spelling.len();
            if let Some((cell, length)) = parse_expected(text, field.value_type) {
                cells.push(cell);
                at += length;
                continue;
            }
            let value = parse_value(text).ok().filter(|value| value.kind == field.value_type)?;
            cells.push(place_value(&value, text, self.start + at, self.texts, &mut self.inner_lines).ok()?);
            at += value.length;
        }
        self.at = at;
        parse_ending(line.get(at..)?).ok()
    }
}

/// The text behind a spelling, if it begins with it. Names are mostly 8 to 32 bytes long, which two comparisons of words
/// that may overlap settle without a call.
#[inline]
fn strip_spelling<'a>(text: &'a [u8], spelling: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = text.split_at_checked(spelling.len())?;
    let equal = match spelling.len() {
        8..=16 => head.first_chunk::<8>() == spelling.first_chunk() && head.last_chunk::<8>() == spelling.last_chunk(),
        17..=32 => {
            head.first_chunk::<16>() == spelling.first_chunk() && head.last_chunk::<16>() == spelling.last_chunk()
        }
        _ => head == spelling,
    };
    equal.then_some(rest)
}

/// The cell of a value whose text begins at `at` in the body.
#[inline]
fn place_value(
    value: &Value,
    text: &[u8],
    at: usize,
    texts: &mut Texts,
    inner_lines: &mut u32,
) -> Result<u64, &'static str> {
    if value.kind != ValueType::String {
        return Ok(value.cell);
    }
    let inner = text.get(1..value.length - 1).unwrap_or_default();
    if std::str::from_utf8(inner).is_err() {
        return Err("invalid UTF-8 in a string");
    }
    *inner_lines += memchr_iter(b'\n', inner).count() as u32;
    let span = if value.has_backslash {
        texts.push(&unescape_string(inner))
    } else {
        Span { start: at as u32 + 1, len: inner.len() as u32 }
    };
    Ok(span.to_cell())
}

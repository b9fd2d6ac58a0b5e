//! Bodies of lines: whole in memory, or packed and read piece by piece, so that no unpacked body is ever held.
//!
//! A parser reads the whole lines of a piece; the beginning of a line that follows them stays in the buffer and goes before the next piece.
//! What rows spell is copied out of a piece before the next one takes its place.

use std::collections::HashMap;
use std::io::{self, Read};

use model::{Batch, Block, GroupKey, KeyDecoder, Span, ValueType};

use crate::batch::lone::LoneRows;
use crate::encoding::Unpacker;
use crate::{BODY_BYTES_MAX, BodyError, LineErrors, Parsed, check_body_size, too_long};

/// Bytes that are unpacked at once, and by which the buffer grows while a line does not fit it: fewer for small bodies.
const PIECE_BYTES_MAX: usize = 256 << 10;
const PIECE_BYTES_MIN: usize = 4 << 10;
/// How much text a packed byte stands for, mostly.
const LIKELY_RATIO: usize = 8;

/// Keys of a body that are remembered so that their text is kept once.
const KEYS_REMEMBERED_MAX: usize = 1 << 16;

/// Asked before a packed body takes memory; a refusal ends the reading ([`BodyError::NoMemory`]).
pub trait Ledger {
    /// So many bytes more of a buffer.
    fn take_buffer(&mut self, bytes: usize) -> bool;

    /// The rows of this text, which was unpacked and is parsed next.
    fn take_rows(&mut self, text: &[u8]) -> bool;
}

/// A body as a parser takes it.
pub enum Body<'a> {
    /// In memory as it is.
    Whole(&'a [u8]),
    /// Packed.
    Packed(PackedBody<'a>),
}

impl<'a> From<&'a [u8]> for Body<'a> {
    fn from(body: &'a [u8]) -> Self {
        Self::Whole(body)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Body<'a> {
    fn from(body: &'a [u8; N]) -> Self {
        Self::Whole(body)
    }
}

impl<'a> From<&'a Vec<u8>> for Body<'a> {
    fn from(body: &'a Vec<u8>) -> Self {
        Self::Whole(body)
    }
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Whole(body) => body.read(buffer),
            Self::Packed(pieces) => pieces.read(buffer),
        }
    }
}

/// A packed body, unpacked piece by piece.
pub struct PackedBody<'a> {
    unpacker: Unpacker<'a>,
    ledger: &'a mut dyn Ledger,
    piece_bytes: usize,
    /// Unpacked bytes that are not used up.
    buffer: Vec<u8>,
    /// Bytes at the beginning of the buffer that [`Read`] has given out.
    read_bytes: usize,
    unpacked_bytes: usize,
    is_at_end: bool,
}

impl<'a> PackedBody<'a> {
    /// Reads by this unpacker; the ledger is asked for all memory.
    pub fn new(unpacker: Unpacker<'a>, ledger: &'a mut dyn Ledger) -> Self {
        let likely_bytes = unpacker.packed_bytes().saturating_mul(LIKELY_RATIO);
        let piece_bytes = likely_bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        Self { unpacker, ledger, piece_bytes, buffer: Vec::new(), read_bytes: 0, unpacked_bytes: 0, is_at_end: false }
    }

    /// Removes what is used up of the buffer and unpacks some more behind the rest.
    fn advance(&mut self, used_bytes: usize) -> Result<(), BodyError> {
        self.buffer.drain(..used_bytes);
        let begun = self.buffer.len();
        if self.buffer.capacity() - begun < self.piece_bytes.div_ceil(2) {
            // A line that does not end makes the buffer twice as long each time, so that it is not read again too often.
            let bytes = self.buffer.capacity().max(self.piece_bytes);
            if !self.ledger.take_buffer(bytes) {
                return Err(BodyError::NoMemory);
            }
            self.buffer.reserve_exact(self.buffer.capacity() - begun + bytes);
        }
        let room = self.buffer.capacity() - begun;
        let read = self.unpacker.read(room, &mut self.buffer)?;
        self.is_at_end = read < room;
        self.unpacked_bytes += read;
        if self.unpacked_bytes >= BODY_BYTES_MAX {
            return Err(too_long());
        }
        let unpacked = self.buffer.get(begun..).unwrap_or_default();
        if self.ledger.take_rows(unpacked) { Ok(()) } else { Err(BodyError::NoMemory) }
    }
}

/// For readers that keep what they need: CSV and JSON.
impl Read for PackedBody<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read_bytes == self.buffer.len() && !self.is_at_end {
            let used_bytes = std::mem::take(&mut self.read_bytes);
            self.advance(used_bytes).map_err(io::Error::other)?;
        }
        let read = self.buffer.get(self.read_bytes..).unwrap_or_default().read(buffer)?;
        self.read_bytes += read;
        Ok(read)
    }
}

/// Text of a body, from the beginning of a line on.
#[derive(Clone, Copy)]
pub(crate) struct TextSlice<'t> {
    pub(crate) text: &'t [u8],
    /// Whether the body ends here. If not, a line without its end may go on.
    pub(crate) is_last: bool,
}

impl<'t> TextSlice<'t> {
    /// The line that begins here without its end, and where the next one begins; `None` at the end, and where more text is needed.
    pub(crate) fn line(self, at: usize) -> Option<(&'t [u8], usize)> {
        let rest = self.text.get(at..).filter(|rest| !rest.is_empty())?;
        match memchr::memchr(b'\n', rest) {
            Some(length) => Some((rest.get(..length)?, at + length + 1)),
            None if self.is_last => Some((rest, self.text.len())),
            None => None,
        }
    }
}

/// A parser of lines, which keeps its rows from piece to piece.
pub(crate) trait LineReader {
    /// Reads the whole lines at the beginning of a piece; says how many bytes they have.
    fn read(&mut self, piece: TextSlice<'_>) -> usize;

    /// Copies what the rows that were read last spell out of their piece.
    fn detach(&mut self, text: &[u8]);

    /// What became of all pieces. The rows refer to the body if it was whole, and to no body after [`LineReader::detach`].
    fn finish(self, body: &[u8]) -> Parsed<'_>;
}

/// Parses a body of lines.
pub(crate) fn parse_lines(body: Body<'_>, mut reader: impl LineReader) -> Result<Parsed<'_>, BodyError> {
    let mut pieces = match body {
        Body::Whole(text) => {
            check_body_size(text)?;
            reader.read(TextSlice { text, is_last: true });
            return Ok(reader.finish(text));
        }
        Body::Packed(pieces) => pieces,
    };
    let mut used_bytes = 0;
    while !pieces.is_at_end {
        pieces.advance(used_bytes)?;
        used_bytes = reader.read(TextSlice { text: &pieces.buffer, is_last: pieces.is_at_end });
        reader.detach(&pieces.buffer);
    }
    Ok(reader.finish(&[]))
}

/// Calls with the number and the text of each of these lines, which are in order and counted from 1.
pub fn quote_lines(
    body: Body<'_>,
    lines: impl Iterator<Item = u32>,
    quote: impl FnMut(u32, &[u8]),
) -> Result<(), BodyError> {
    let mut quoting = Quoting { lines: lines.peekable(), line: 0, quote };
    let mut pieces = match body {
        Body::Whole(text) => {
            quoting.read(TextSlice { text, is_last: true });
            return Ok(());
        }
        Body::Packed(pieces) => pieces,
    };
    let mut used_bytes = 0;
    while !pieces.is_at_end && quoting.lines.peek().is_some() {
        pieces.advance(used_bytes)?;
        used_bytes = quoting.read(TextSlice { text: &pieces.buffer, is_last: pieces.is_at_end });
    }
    Ok(())
}

struct Quoting<L: Iterator<Item = u32>, Q> {
    lines: std::iter::Peekable<L>,
    line: u32,
    quote: Q,
}

impl<L: Iterator<Item = u32>, Q: FnMut(u32, &[u8])> Quoting<L, Q> {
    fn read(&mut self, piece: TextSlice<'_>) -> usize {
        let mut at = 0;
        while let Some((line, next)) = piece.line(at) {
            self.line += 1;
            at = next;
            while self.lines.next_if_eq(&self.line).is_some() {
                (self.quote)(self.line, line);
            }
        }
        at
    }
}

/// What rows spell and does not stand in the body as it is needed. Spans below the text's length lie in the text, others in here.
#[derive(Default)]
pub(crate) struct Texts {
    text_bytes: usize,
    arena: Vec<u8>,
    /// Keys that were copied, by their hashes.
    keys: HashMap<u128, Span>,
}

impl Texts {
    /// Rows refer to a text of this length from here on.
    pub(crate) fn begin(&mut self, text: &[u8]) {
        self.text_bytes = text.len();
    }

    /// Puts text behind the body's and says where it is.
    pub(crate) fn push(&mut self, text: &[u8]) -> Span {
        let start = (self.text_bytes + self.arena.len()) as u32;
        self.arena.extend_from_slice(text);
        Span { start, len: text.len() as u32 }
    }

    /// Rows refer to no text any more.
    pub(crate) fn end(&mut self) {
        self.text_bytes = 0;
    }

    /// The batch of these texts, and of the text that rows refer to.
    pub(crate) fn into_batch(self, text: &[u8], key_decoder: KeyDecoder) -> Batch<'_> {
        Batch::with_arena(text, self.arena, key_decoder)
    }

    /// Copies what the rows of a block from this one on spell.
    pub(crate) fn detach_rows(&mut self, text: &[u8], block: &mut Block, from_row: usize) {
        for key in block.keys.get_mut(from_row..).unwrap_or_default() {
            key.text = self.detach_key(text, *key);
        }
        let width = block.fields.len();
        for (column, _) in block.fields.iter().enumerate().filter(|(_, field)| field.value_type == ValueType::String) {
            let cells = block.cells.get_mut(from_row * width..).unwrap_or_default();
            for cell in cells.iter_mut().skip(column).step_by(width) {
                *cell = self.detach_span(text, Span::from_cell(*cell)).to_cell();
            }
        }
    }

    pub(crate) fn detach_key(&mut self, text: &[u8], key: GroupKey) -> Span {
        if let Some(known) = self.keys.get(&key.hash) {
            return *known;
        }
        let span = self.detach_span(text, key.text);
        if self.keys.len() < KEYS_REMEMBERED_MAX {
            self.keys.insert(key.hash, span);
        }
        span
    }

    fn detach_span(&mut self, text: &[u8], span: Span) -> Span {
        let (start, bytes) = (span.start as usize, span.len as usize);
        if start >= self.text_bytes {
            return Span { start: (start - self.text_bytes) as u32, len: span.len };
        }
        let copied = Span { start: self.arena.len() as u32, len: span.len };
        self.arena.extend_from_slice(text.get(start..start + bytes).unwrap_or_default());
        copied
    }
}

/// Rows of lone series with what they spell and what was left out: what most parsers of lines keep.
pub(crate) struct LoneLines {
    pub(crate) rows: LoneRows,
    pub(crate) texts: Texts,
    pub(crate) errors: LineErrors,
    /// The number of the line that is read.
    pub(crate) line: u32,
    detached_rows: usize,
}

impl LoneLines {
    /// None yet, and how many rows there may be.
    pub(crate) fn new(rows_max: usize) -> Self {
        let rows = LoneRows::floats(rows_max);
        Self { rows, texts: Texts::default(), errors: LineErrors::default(), line: 0, detached_rows: 0 }
    }

    /// As [`LineReader::detach`].
    pub(crate) fn detach(&mut self, text: &[u8]) {
        self.texts.detach_rows(text, self.rows.block_mut(), self.detached_rows);
        self.texts.end();
        self.detached_rows = self.rows.rows();
    }

    /// As [`LineReader::finish`].
    pub(crate) fn finish(self, body: &[u8], key_decoder: KeyDecoder) -> Parsed<'_> {
        let mut batch = self.texts.into_batch(body, key_decoder);
        batch.blocks.extend(self.rows.into_block());
        Parsed { batch, errors: self.errors }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;
    use crate::batch::render::{HASHER, render};
    use crate::encoding::{Encoding, UnpackLimits};
    use crate::{Limits, Protocol, exposition, json_lines, line, opentsdb};

    const LIMITS: UnpackLimits = UnpackLimits { size_bytes_max: 1 << 30, ratio_max: usize::MAX };

    /// Adds up what it is asked for.
    #[derive(Default)]
    struct Sums {
        buffer_bytes: usize,
        text_bytes: usize,
        text_bytes_max: Option<usize>,
    }

    impl Ledger for Sums {
        fn take_buffer(&mut self, bytes: usize) -> bool {
            self.buffer_bytes += bytes;
            true
        }

        fn take_rows(&mut self, text: &[u8]) -> bool {
            self.text_bytes += text.len();
            self.text_bytes_max.is_none_or(|most| self.text_bytes <= most)
        }
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn pieces<'a>(packed: &'a [u8], piece_bytes: usize, ledger: &'a mut dyn Ledger) -> Body<'a> {
        let unpacker = Unpacker::new(Encoding::Gzip, packed, LIMITS).unwrap();
        Body::Packed(PackedBody { piece_bytes, ..PackedBody::new(unpacker, ledger) })
    }

    fn limits() -> Limits {
        Limits {
            line_bytes_max: 60,
            fields_max: 3,
            layouts_max: 4,
            rows_max: 40,
            errors_max: 1000,
            ..Limits::default()
        }
    }

    /// Checks that a packed body gives the result of the whole one.
    #[track_caller]
    fn check(body: &[u8], piece_bytes: usize, parse: impl Fn(Body<'_>) -> String) {
        let packed = gzip(body);
        let found = parse(pieces(&packed, piece_bytes, &mut Sums::default()));
        assert_eq!(found, parse(Body::Whole(body)), "{:?}", String::from_utf8_lossy(body));
    }

    #[track_caller]
    fn check_all(body: &[u8], piece_bytes: usize) {
        let limits = limits();
        let extra_labels = [("extra".to_owned(), "label".to_owned())];
        check(body, piece_bytes, |body| {
            let (hasher, precision) = (HASHER.scope(Protocol::Line, 1), line::Precision::Nanosecond);
            render(&line::parse(body, &line::Options { hasher, precision, now_ns: 5, limits: &limits }).unwrap())
        });
        for extra_labels in [&[][..], &extra_labels] {
            check(body, piece_bytes, |body| {
                let (hasher, format) = (HASHER.scope(Protocol::Exposition, 1), exposition::Format::OpenMetrics);
                let options = exposition::Options { hasher, format, now_ns: 5, extra_labels, limits: &limits };
                let parsed = exposition::parse(body, &options).unwrap();
                format!("{}{:?}", render(&parsed), parsed.batch.metadata)
            });
        }
        check(body, piece_bytes, |body| {
            let hasher = HASHER.scope(Protocol::JsonLines, 1);
            render(&json_lines::parse(body, &json_lines::Options { hasher, limits: &limits }).unwrap())
        });
        check(body, piece_bytes, |body| {
            let hasher = HASHER.scope(Protocol::Opentsdb, 1);
            let parsed = opentsdb::parse_json(body, &opentsdb::Options { hasher, limits: &limits });
            // Of a byte that does not fit, serde_json gives the column or the next one.
            let reason = |error: BodyError| error.to_string().split(" at line ").next().map(str::to_owned);
            parsed.map_or_else(|error| reason(error).unwrap(), |parsed| render(&parsed))
        });
        let mut quoted = Vec::new();
        quote_lines(Body::Whole(body), [1, 3, 4].into_iter(), |line, text| quoted.push((line, text.to_vec()))).unwrap();
        let (packed, mut ledger, mut again) = (gzip(body), Sums::default(), Vec::new());
        let body = pieces(&packed, piece_bytes, &mut ledger);
        quote_lines(body, [1, 3, 4].into_iter(), |line, text| again.push((line, text.to_vec()))).unwrap();
        assert_eq!(again, quoted);
    }

    #[test]
    fn lines_go_on_in_the_next_piece() {
        for body in [
            "m,a=b v=1 1\r\n\n# x\n  m,a=b v=2 2\nm,a=b v=\"x\ny\",w=1 3\nm v=\"\\\"q\\\"\" 4\nm v=t\nm v",
            "m v=1 1\nm v=\"never\nm v=2 2\nbad\nm v=3 3\n",
            "m a=\"x\ny\"z 1\nm v=1 1\n\r\n\r",
            "m v=1,v=2 1\nm w=1 1\nm v=3 1\nm x=1\nm y=1\nm z=1\n",
            "# TYPE a counter\na{b=\"c\"} 1 1\na 2\n\n# HELP a b\n# EOF\na 3\n",
            "{\"metric\":{\"__name__\":\"a\"},\"values\":[1,2],\"timestamps\":[1,2]}\n{}\n{\"metric\":{\"__name__\":\"a\"},\"values\":[1],\"timestamps\":[3]}",
            "[{\"metric\":\"a\",\"timestamp\":1,\"value\":1,\"tags\":{\"b\":\"c\"}},{\"metric\":\"a\",\"timestamp\":2}]",
            "",
        ] {
            for piece_bytes in [1, 2, 3, 5, 8, 13, 64, 4096] {
                check_all(body.as_bytes(), piece_bytes);
            }
        }
    }

    #[test]
    fn a_long_body_takes_a_piece_and_its_keys_once() {
        let mut body = String::new();
        for row in 0..200_000 {
            use std::fmt::Write;
            writeln!(body, "cpu,host=h{},region=somewhere usage={row},idle=2.5 {row}", row % 100).unwrap();
        }
        let (packed, mut ledger, limits) = (gzip(body.as_bytes()), Sums::default(), Limits::default());
        let (hasher, precision) = (HASHER.scope(Protocol::Line, 1), line::Precision::Nanosecond);
        let options = line::Options { hasher, precision, now_ns: 5, limits: &limits };
        let unpacker = Unpacker::new(Encoding::Gzip, &packed, LIMITS).unwrap();
        let parsed = line::parse(Body::Packed(PackedBody::new(unpacker, &mut ledger)), &options).unwrap();
        assert_eq!((parsed.batch.rows(), parsed.errors.total), (200_000, 0));
        let last = parsed.batch.blocks.iter().flat_map(|block| &block.keys).map(|key| key.text.start).max();
        assert!(last.unwrap() < 100 * 40, "keys are kept once");
        assert!(ledger.buffer_bytes <= 2 * PIECE_BYTES_MAX, "{}", ledger.buffer_bytes);
        assert_eq!(ledger.text_bytes, body.len());
        ledger.text_bytes_max = Some(1 << 20);
        ledger.text_bytes = 0;
        let unpacker = Unpacker::new(Encoding::Gzip, &packed, LIMITS).unwrap();
        let refused = line::parse(Body::Packed(PackedBody::new(unpacker, &mut ledger)), &options);
        assert!(matches!(refused, Err(BodyError::NoMemory)));
        assert!(ledger.text_bytes <= 2 << 20, "{}", ledger.text_bytes);
    }

    proptest! {
        #[test]
        fn pieces_and_wholes_come_to_the_same(
            body in "([mn ](,a=b)?|[\"\\\\ =,x1]|v=[1-3]|w=\"|\"\r?\n| [1-3]\r?\n|\n){0,60}",
            piece_bytes in 1_usize..40,
        ) {
            check_all(body.as_bytes(), piece_bytes);
        }
    }
}

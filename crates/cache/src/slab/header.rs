//! A slab's header: what the slab holds of which keys. Layout: `docs/formats/slab.md`.

use std::ops::Range;
use std::sync::Arc;

use codec::{DecodeError, Reader, varint};
use platform::DIRECT_ALIGN_BYTES;

use crate::points::ValueType;
use crate::{Key, Span};

/// What slabs begin with.
pub(crate) const MAGIC: [u8; 8] = *b"THWGSLAB";
const VERSION: u16 = 1;
/// The number of the layout in columns, the only one that there is.
const COLUMNS: u8 = 1;
/// The head's last four bytes are its checksum.
pub(crate) const HEAD_BYTES: usize = DIRECT_ALIGN_BYTES;
/// Records start at multiples of this, so that sixteen bits name them in a slab of one MiB.
pub(crate) const RECORD_ALIGN_BYTES: usize = 16;
/// Bytes of a field's name.
pub(crate) const FIELD_NAME_BYTES_MAX: usize = 1024;

/// A stretch of time for which a slab holds all points of one key in the slab's field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedInterval {
    pub(crate) span: Span,
    /// When it was set; a delete hides what was set before.
    pub(crate) sequence: u64,
    /// What the caller of `set` gave.
    pub(crate) stamp: u64,
    /// How many fields the key had then: with fewer found the answer is not whole.
    pub(crate) fields: u16,
}

/// The time marker of a block, and where the block lies behind the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) count: u32,
    pub(crate) checksum: u32,
}

/// A part of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Section {
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) checksum: u32,
}

/// The first page of a slab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) value_type: ValueType,
    pub(crate) is_compacted: bool,
    /// The state of the file that the slab belongs to; one of another is none.
    pub(crate) incarnation: u64,
    pub(crate) serial: u64,
    /// The oldest sequence of its intervals.
    pub(crate) sequence_min: u64,
    pub(crate) sequence_max: u64,
    pub(crate) header_bytes: u32,
    pub(crate) used_bytes: u32,
    pub(crate) keys: u32,
    pub(crate) points: u32,
    /// The mean time of its points.
    pub(crate) center: i64,
    /// The hull of its intervals.
    pub(crate) span: Span,
    pub(crate) records: Section,
    pub(crate) markers: Section,
    pub(crate) series: Section,
    pub(crate) field: Arc<str>,
}

/// What a slab holds of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Key,
    pub(crate) intervals: Vec<CachedInterval>,
    /// The blocks with its points.
    pub(crate) markers: Vec<Marker>,
}

/// A record and where it starts in the slab.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) record: Record,
}

impl Placed {
    /// The hull of its intervals.
    pub(crate) fn span(&self) -> Option<Span> {
        self.record.intervals.iter().map(|interval| interval.span).reduce(|hull, span| hull.hull(&span))
    }

    /// Where in the slab its blocks lie, if it has any, with whatever lies between them.
    pub(crate) fn blocks(&self, header_bytes: u32) -> Option<Range<u32>> {
        let first = self.record.markers.iter().map(|marker| marker.offset).min()?;
        let end = self.record.markers.iter().map(|marker| marker.offset.saturating_add(marker.len)).max()?;
        Some(header_bytes.saturating_add(first)..header_bytes.saturating_add(end))
    }
}

/// A whole header.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) head: Head,
    pub(crate) records: Vec<Placed>,
    pub(crate) series: Vec<Arc<str>>,
}

pub(crate) fn push_interval(interval: &CachedInterval, out: &mut Vec<u8>) {
    varint::push_signed(out, interval.span.start);
    varint::push(out, interval.span.end.wrapping_sub(interval.span.start) as u64);
    varint::push(out, interval.sequence);
    varint::push(out, interval.stamp);
    varint::push(out, u64::from(interval.fields));
}

fn read_interval(reader: &mut Reader<'_>) -> Result<CachedInterval, DecodeError> {
    let start = reader.varint_signed()?;
    let end = start.wrapping_add(reader.varint()? as i64);
    let (sequence, stamp) = (reader.varint()?, reader.varint()?);
    let fields = reader.length(usize::from(u16::MAX))? as u16;
    if start >= end {
        return Err(reader.error("an interval that ends before it starts"));
    }
    Ok(CachedInterval { span: Span::new(start, end), sequence, stamp, fields })
}

pub(crate) fn push_marker(marker: &Marker, out: &mut Vec<u8>) {
    varint::push_signed(out, marker.first);
    varint::push(out, marker.last.wrapping_sub(marker.first) as u64);
    varint::push(out, u64::from(marker.offset));
    varint::push(out, u64::from(marker.len));
    varint::push(out, u64::from(marker.count));
    out.extend_from_slice(&marker.checksum.to_le_bytes());
}

fn read_marker(reader: &mut Reader<'_>) -> Result<Marker, DecodeError> {
    let first = reader.varint_signed()?;
    let last = first.wrapping_add(reader.varint()? as i64);
    let offset = reader.length(u32::MAX as usize)? as u32;
    let len = reader.length(u32::MAX as usize)? as u32;
    let count = reader.length(super::block::BLOCK_POINTS_MAX)? as u32;
    if last < first || offset.checked_add(len).is_none() {
        return Err(reader.error("a block that ends before it starts"));
    }
    Ok(Marker { first, last, offset, len, count, checksum: reader.u32()? })
}

/// A record to be written.
pub(crate) struct RecordParts<'a> {
    pub(crate) serial: u64,
    pub(crate) key: &'a Key,
    pub(crate) number: u32,
    /// How many, and their bytes.
    pub(crate) intervals: (u32, &'a [u8]),
    /// How many, and their bytes.
    pub(crate) markers: (u32, &'a [u8]),
}

/// Appends a record: intervals and markers are given as they were pushed. Returns its length without the padding. The slab's serial is
/// part of the checksum, so that a record is never taken for one of another slab in the same slot.
pub(crate) fn push_record(record: &RecordParts<'_>, out: &mut Vec<u8>) -> u32 {
    let RecordParts { serial, key, number, intervals, markers } = *record;
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&key.0);
    varint::push(out, u64::from(number));
    varint::push(out, u64::from(intervals.0));
    varint::push(out, u64::from(markers.0));
    out.extend_from_slice(intervals.1);
    out.extend_from_slice(markers.1);
    let len = (out.len() - start) as u32;
    let checksum = record_checksum(serial, out.get(start + 8..).unwrap_or_default());
    for (byte, new) in out.iter_mut().skip(start).zip(len.to_le_bytes().into_iter().chain(checksum.to_le_bytes())) {
        *byte = new;
    }
    out.resize(out.len().next_multiple_of(RECORD_ALIGN_BYTES), 0);
    len
}

fn record_checksum(serial: u64, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&serial.to_le_bytes()), body)
}

/// Reads a record that starts with the reader, of the slab with a serial.
pub(crate) fn read_record(reader: &mut Reader<'_>, serial: u64) -> Result<Record, DecodeError> {
    let len = reader.u32()? as usize;
    let checksum = reader.u32()?;
    let body = reader.bytes(len.checked_sub(8).ok_or_else(|| reader.error("a record shorter than its length"))?)?;
    if record_checksum(serial, body) != checksum {
        return Err(reader.error("the checksum of a record does not match"));
    }
    read_record_unchecked(&mut Reader::new(body))
}

/// Reads what is behind a record's checksum.
pub(crate) fn read_record_unchecked(body: &mut Reader<'_>) -> Result<Record, DecodeError> {
    let key = Key(body.array()?);
    // The key's number in the slab.
    body.length(u32::MAX as usize)?;
    // An interval takes at least five bytes and a marker nine, so that damaged counts make nothing large.
    let intervals = body.length(body.rest().len() / 5)?;
    let markers = body.length(body.rest().len() / 9)?;
    let intervals = (0..intervals).map(|_| read_interval(body)).collect::<Result<_, _>>()?;
    let markers = (0..markers).map(|_| read_marker(body)).collect::<Result<_, _>>()?;
    Ok(Record { key, intervals, markers })
}

/// Appends a table of series.
pub(crate) fn push_series(names: &[Arc<str>], out: &mut Vec<u8>) {
    varint::push(out, names.len() as u64);
    names.iter().for_each(|name| varint::push_text(out, name));
}

/// The checksum of the table of one series without a name.
pub(crate) fn unnamed_series_checksum() -> u32 {
    crc32c::crc32c(&[1, 0])
}

/// Reads a table of series.
pub(crate) fn read_series(bytes: &[u8]) -> Result<Vec<Arc<str>>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let count = reader.length(reader.rest().len())?;
    (0..count).map(|_| reader.text().map(Arc::from)).collect()
}

impl Head {
    /// The first page; its checksum covers all of it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[COLUMNS, self.value_type as u8, u8::from(self.is_compacted)]);
        for number in [self.incarnation, self.serial, self.sequence_min, self.sequence_max] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.header_bytes, self.used_bytes, self.keys, self.points] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.center.to_le_bytes());
        out.extend_from_slice(&self.span.start.to_le_bytes());
        out.extend_from_slice(&self.span.end.to_le_bytes());
        for section in [self.records, self.markers, self.series] {
            for number in [section.offset, section.len, section.checksum] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        varint::push_text(&mut out, &self.field);
        out.resize(HEAD_BYTES - 4, 0);
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads a first page.
    pub(crate) fn decode(page: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(page);
        let checked = reader.bytes(HEAD_BYTES - 4)?;
        if reader.u32()? != crc32c::crc32c(checked) {
            return Err(reader.error("the checksum of a slab's head does not match"));
        }
        Self::decode_checked(&mut Reader::new(checked))
    }

    fn decode_checked(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if reader.array()? != MAGIC || reader.array()? != VERSION.to_le_bytes() {
            return Err(reader.error("not a slab of a version that is known"));
        }
        let [layout, value_type, is_compacted] = reader.array()?;
        if layout != COLUMNS {
            return Err(reader.error("unknown layout of a slab"));
        }
        let value_type = ValueType::from_number(value_type).ok_or_else(|| reader.error("unknown type of values"))?;
        let incarnation = reader.u64()?;
        let (serial, sequence_min, sequence_max) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (header_bytes, used_bytes, keys, points) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let center = i64::from_le_bytes(reader.array()?);
        let span = Span::new(i64::from_le_bytes(reader.array()?), i64::from_le_bytes(reader.array()?));
        let mut section = || Ok(Section { offset: reader.u32()?, len: reader.u32()?, checksum: reader.u32()? });
        let (records, markers, series) = (section()?, section()?, section()?);
        let field = reader.text()?;
        let inside = |section: &Section| u64::from(section.offset) + u64::from(section.len) <= u64::from(header_bytes);
        let sections = [records, markers, series];
        let aligned = (header_bytes as usize).is_multiple_of(DIRECT_ALIGN_BYTES);
        if !aligned || header_bytes > used_bytes || !sections.iter().all(inside) || field.len() > FIELD_NAME_BYTES_MAX {
            return Err(reader.error("the sizes of a slab contradict one another"));
        }
        let is_compacted = is_compacted != 0;
        let field = Arc::from(field);
        Ok(Self {
            value_type,
            is_compacted,
            incarnation,
            serial,
            sequence_min,
            sequence_max,
            header_bytes,
            used_bytes,
            keys,
            points,
            center,
            span,
            records,
            markers,
            series,
            field,
        })
    }
}

impl Header {
    /// Reads the whole header of a slab: its bytes from the first on, at least as many as the head says.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let head = Head::decode(bytes)?;
        let part = |section: Section| {
            let (start, end) = (section.offset as usize, section.offset as usize + section.len as usize);
            let found = bytes.get(start..end).filter(|found| crc32c::crc32c(found) == section.checksum);
            found.ok_or(DecodeError { offset: start, what: "the checksum of a part of a slab's header does not match" })
        };
        part(head.markers)?;
        let series = read_series(part(head.series)?)?;
        let bytes = part(head.records)?;
        let mut reader = Reader::new(bytes);
        let mut records = Vec::new();
        while !reader.is_empty() {
            let start = reader.offset();
            let record = read_record(&mut reader, head.serial)?;
            let len = (reader.offset() - start) as u32;
            let padding = reader.offset().next_multiple_of(RECORD_ALIGN_BYTES) - reader.offset();
            reader.bytes(padding.min(reader.rest().len()))?;
            records.push(Placed { offset: head.records.offset + start as u32, len, record });
        }
        if records.len() != head.keys as usize {
            return Err(reader.error("a slab has not as many records as its head says"));
        }
        Ok(Self { head, records, series })
    }
}

//! Makes slabs of points and of what they answer.

use std::collections::HashMap;
use std::sync::Arc;

use codec::{Reader, varint};
use platform::{AlignedBytes, DIRECT_ALIGN_BYTES};

use super::block::{self, BLOCK_BYTES, BLOCK_POINTS_MAX};
use super::header::{self, CachedInterval, HEAD_BYTES, Head, Marker, Placed, RECORD_ALIGN_BYTES, Section};
use crate::points::{Points, ValueType};
use crate::{Key, Span};

/// Keys of a slab: bounds the header.
const KEYS_MAX: usize = 8192;
/// The first guess of points in a block.
const FIRST_GUESS_POINTS: usize = 512;

/// Points that belong to the same keys.
#[derive(Debug)]
pub(crate) struct Strand {
    /// Places in the unit's keys.
    pub(crate) keys: Vec<u32>,
    /// By time; series are places in the unit's list.
    pub(crate) points: Points,
}

/// What goes into one slab or not at all: all points of some keys for some spans.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) keys: Vec<(Key, Vec<CachedInterval>)>,
    pub(crate) series: Vec<Arc<str>>,
    pub(crate) strands: Vec<Strand>,
}

impl Unit {
    /// The hull of its intervals.
    pub(crate) fn span(&self) -> Option<Span> {
        let intervals = self.keys.iter().flat_map(|(_, intervals)| intervals);
        intervals.map(|interval| interval.span).reduce(|hull, span| hull.hull(&span))
    }

    /// Its earlier and its later half; `None` if it has no two times.
    pub(crate) fn halve(&self) -> Option<(Self, Self)> {
        let times = self.strands.iter().flat_map(|strand| &strand.points.timestamps);
        let mut times: Vec<i64> = times.copied().collect();
        times.sort_unstable();
        let (first, middle) = (*times.first()?, *times.get(times.len() / 2)?);
        let cut = if middle > first { middle } else { *times.iter().find(|time| **time > first)? };
        let halves = (self.within(Span::new(i64::MIN, cut)), self.within(Span::new(cut, i64::MAX)));
        (halves.0.span().is_some() && halves.1.span().is_some()).then_some(halves)
    }

    fn within(&self, span: Span) -> Self {
        let cut_intervals = |intervals: &[CachedInterval]| {
            let cut =
                intervals.iter().map(|interval| CachedInterval { span: interval.span.intersect(&span), ..*interval });
            cut.filter(|interval| !interval.span.is_empty()).collect::<Vec<_>>()
        };
        let cut_strand = |strand: &Strand| Strand { keys: strand.keys.clone(), points: strand.points.within(span) };
        Self {
            keys: self.keys.iter().map(|(key, intervals)| (*key, cut_intervals(intervals))).collect(),
            series: self.series.clone(),
            strands: self.strands.iter().map(cut_strand).filter(|strand| !strand.points.is_empty()).collect(),
        }
    }
}

/// A slab as it goes to flash.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) bytes: AlignedBytes,
    pub(crate) head: Head,
    /// Each key's record, and where it lies.
    pub(crate) records: Vec<Placed>,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    intervals: (u32, Vec<u8>),
    markers: (u32, Vec<u8>),
}

impl Entry {
    fn record_bytes(&self) -> usize {
        // Lengths, checksum, key and three counts of at most three bytes.
        let fixed = 8 + 20 + 9;
        (fixed + self.intervals.1.len() + self.markers.1.len()).next_multiple_of(RECORD_ALIGN_BYTES)
    }
}

/// Gathers units until the slab is full.
#[derive(Debug)]
pub(crate) struct SlabBuilder {
    slab_bytes: usize,
    value_type: ValueType,
    field: Arc<str>,
    series: Vec<Arc<str>>,
    series_numbers: HashMap<Arc<str>, u32>,
    series_bytes: usize,
    entries: Vec<Entry>,
    numbers: HashMap<Key, usize>,
    records_bytes: usize,
    /// Blocks.
    data: Vec<u8>,
    guess_points: usize,
    sequences: (u64, u64),
    points: usize,
    times_sum: i128,
    span: Option<Span>,
}

impl SlabBuilder {
    pub(crate) fn new(slab_bytes: usize, value_type: ValueType, field: Arc<str>) -> Self {
        Self {
            slab_bytes,
            value_type,
            field,
            series: Vec::new(),
            series_numbers: HashMap::new(),
            series_bytes: 8,
            entries: Vec::new(),
            numbers: HashMap::new(),
            records_bytes: 0,
            data: Vec::new(),
            guess_points: FIRST_GUESS_POINTS,
            sequences: (u64::MAX, 0),
            points: 0,
            times_sum: 0,
            span: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// About how many bytes the slab would have now.
    pub(crate) fn size_bytes(&self) -> usize {
        HEAD_BYTES + self.records_bytes + self.series_bytes + self.data.len()
    }

    /// Takes a unit whole, or leaves everything as it was and says that there is no room.
    pub(crate) fn add(&mut self, unit: &Unit) -> bool {
        let new_keys = unit.keys.iter().filter(|(key, _)| !self.numbers.contains_key(key)).count();
        let series_new = unit.series.iter().filter(|name| !self.series_numbers.contains_key(*name));
        let series_bytes = self.series_bytes + series_new.map(|name| name.len() + 3).sum::<usize>();
        if self.entries.len() + new_keys > KEYS_MAX || series_bytes > self.slab_bytes / 4 {
            return false;
        }
        let renamed = self.series_numbers_after(unit);
        let data_before = self.data.len();
        let grown = self.push_blocks(unit, &renamed);
        let Some(markers) = grown.filter(|markers| self.fits(unit, new_keys, markers, series_bytes)) else {
            self.data.truncate(data_before);
            return false;
        };
        self.series_bytes = series_bytes;
        unit.series.iter().for_each(|name| self.keep_series(name));
        self.push_entries(unit, markers);
        self.points += unit.strands.iter().map(|strand| strand.points.len()).sum::<usize>();
        let times = unit.strands.iter().flat_map(|strand| &strand.points.timestamps);
        self.times_sum += times.map(|time| i128::from(*time)).sum::<i128>();
        self.span = self.span.into_iter().chain(unit.span()).reduce(|hull, span| hull.hull(&span));
        true
    }

    /// The numbers that the unit's series have, or will have once they are kept in their order.
    fn series_numbers_after(&self, unit: &Unit) -> Vec<u32> {
        let mut next = self.series.len() as u32;
        let mut number = |name: &Arc<str>| {
            self.series_numbers.get(name).copied().unwrap_or_else(|| {
                next += 1;
                next - 1
            })
        };
        unit.series.iter().map(&mut number).collect()
    }

    fn keep_series(&mut self, name: &Arc<str>) {
        if !self.series_numbers.contains_key(name) {
            self.series_numbers.insert(name.clone(), self.series.len() as u32);
            self.series.push(name.clone());
        }
    }

    /// Whether header and data stay within the slab, with what each of the unit's keys adds.
    fn fits(&self, unit: &Unit, new_keys: usize, markers: &[(u32, Vec<u8>)], series_bytes: usize) -> bool {
        let mut scratch = Vec::new();
        unit.keys
            .iter()
            .flat_map(|(_, intervals)| intervals)
            .for_each(|interval| header::push_interval(interval, &mut scratch));
        let markers_bytes: usize = markers.iter().map(|(_, bytes)| bytes.len()).sum();
        let added = scratch.len() + markers_bytes + unit.keys.len() * RECORD_ALIGN_BYTES + new_keys * 48;
        let header = HEAD_BYTES + self.records_bytes + added + series_bytes;
        header.next_multiple_of(DIRECT_ALIGN_BYTES) + self.data.len() <= self.slab_bytes
    }

    /// Appends the strands' blocks; returns the markers that each key gets. `None` if they go beyond the slab.
    fn push_blocks(&mut self, unit: &Unit, renamed: &[u32]) -> Option<Vec<(u32, Vec<u8>)>> {
        let mut markers = vec![(0, Vec::new()); unit.keys.len()];
        for strand in &unit.strands {
            let mut points = strand.points.clone();
            points.rename_series(renamed);
            let mut done = 0;
            while done < points.len() {
                let marker = self.push_block(&points, &mut done);
                for key in &strand.keys {
                    let (count, bytes) = markers.get_mut(*key as usize)?;
                    *count += 1;
                    header::push_marker(&marker, bytes);
                }
                if self.data.len() > self.slab_bytes {
                    return None;
                }
            }
        }
        Some(markers)
    }

    /// Appends one block of the points from `done` on, as many as fit it.
    fn push_block(&mut self, points: &Points, done: &mut usize) -> Marker {
        let start = self.data.len();
        let mut count = self.guess_points.clamp(1, BLOCK_POINTS_MAX).min(points.len() - *done);
        loop {
            let mut part = Points::new(self.value_type);
            part.extend_from(points, *done..*done + count);
            block::encode_columns(&part, &mut self.data);
            let len = self.data.len() - start;
            self.guess_points = (count * BLOCK_BYTES / len * 15 / 16).max(1);
            if len <= BLOCK_BYTES || count == 1 {
                *done += count;
                let first = part.timestamps.first().copied().unwrap_or_default();
                let last = part.timestamps.last().copied().unwrap_or_default();
                let checksum = crc32c::crc32c(self.data.get(start..).unwrap_or_default());
                let (offset, len, count) = (start as u32, len as u32, count as u32);
                return Marker { first, last, offset, len, count, checksum };
            }
            self.data.truncate(start);
            count = self.guess_points.min(count - 1);
        }
    }

    fn push_entries(&mut self, unit: &Unit, markers: Vec<(u32, Vec<u8>)>) {
        for ((key, intervals), added) in unit.keys.iter().zip(markers) {
            let number = *self.numbers.entry(*key).or_insert_with(|| {
                self.entries.push(Entry { key: *key, intervals: (0, Vec::new()), markers: (0, Vec::new()) });
                self.entries.len() - 1
            });
            let Some(entry) = self.entries.get_mut(number) else {
                continue;
            };
            let before = if entry.intervals.0 == 0 { 0 } else { entry.record_bytes() };
            for interval in intervals {
                entry.intervals.0 += 1;
                header::push_interval(interval, &mut entry.intervals.1);
                self.sequences = (self.sequences.0.min(interval.sequence), self.sequences.1.max(interval.sequence));
            }
            entry.markers.0 += added.0;
            entry.markers.1.extend_from_slice(&added.1);
            self.records_bytes += entry.record_bytes() - before;
        }
    }

    /// The mean time of its points: what replacement goes by.
    fn center(&self) -> i64 {
        let start = self.span.map_or(0, |span| span.start);
        let mean = self.times_sum.checked_div(self.points as i128);
        mean.and_then(|mean| i64::try_from(mean).ok()).unwrap_or(start)
    }

    /// The slab, under a serial number.
    pub(crate) fn finish(self, incarnation: u64, serial: u64, is_compacted: bool) -> Built {
        let mut header = vec![0; HEAD_BYTES];
        let mut placed = Vec::with_capacity(self.entries.len());
        for (number, entry) in self.entries.iter().enumerate() {
            let offset = header.len() as u32;
            let intervals = (entry.intervals.0, entry.intervals.1.as_slice());
            let markers = (entry.markers.0, entry.markers.1.as_slice());
            let len = header::push_record(
                &header::RecordParts { serial, key: &entry.key, number: number as u32, intervals, markers },
                &mut header,
            );
            // What was just written can be read.
            let record =
                header::read_record(&mut Reader::new(header.get(offset as usize..).unwrap_or_default()), serial);
            placed.extend(record.ok().map(|record| Placed { offset, len, record }));
        }
        let records = section(&header, HEAD_BYTES);
        let start = header.len();
        // Of markers for all keys there are none.
        varint::push(&mut header, 0);
        let markers = section(&header, start);
        let start = header.len();
        header::push_series(&self.series, &mut header);
        let series = section(&header, start);
        header.resize(header.len().next_multiple_of(DIRECT_ALIGN_BYTES), 0);
        let used = (header.len() + self.data.len()).next_multiple_of(DIRECT_ALIGN_BYTES);
        let head = Head {
            value_type: self.value_type,
            is_compacted,
            incarnation,
            serial,
            sequence_min: self.sequences.0,
            sequence_max: self.sequences.1,
            header_bytes: header.len() as u32,
            used_bytes: used as u32,
            keys: self.entries.len() as u32,
            points: self.points as u32,
            center: self.center(),
            span: self.span.unwrap_or(Span::new(0, 0)),
            records,
            markers,
            series,
            field: self.field.clone(),
        };
        let mut bytes = AlignedBytes::zeroed(used);
        let parts = [head.encode().as_slice(), header.get(HEAD_BYTES..).unwrap_or_default(), &self.data].concat();
        if let Some(whole) = bytes.get_mut(..parts.len()) {
            whole.copy_from_slice(&parts);
        }
        Built { bytes, head, records: placed }
    }
}

fn section(header: &[u8], start: usize) -> Section {
    let bytes = header.get(start..).unwrap_or_default();
    Section { offset: start as u32, len: bytes.len() as u32, checksum: crc32c::crc32c(bytes) }
}

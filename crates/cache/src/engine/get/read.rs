//! Points of one field from wherever they are.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use codec::Reader;
use platform::AlignedBytes;

use super::{SlabSource, Sources};
use crate::engine::Shared;
use crate::flash::Flash;
use crate::index::SlabMeta;
use crate::points::{FieldPoints, Points};
use crate::resolve::resolve;
use crate::slab::{CachedInterval, Marker, Record, block, header};
use crate::span::SpanSet;
use crate::{Key, Span};

/// Blocks are read together if no more than so many bytes lie between them.
const GAP_BYTES_MAX: u32 = 32 << 10;
/// Blocks are read together with their record if no more than so many bytes lie between its end and theirs.
const AHEAD_BYTES_MAX: u32 = 64 << 10;
/// Points that room is made for before they are read: damaged counts make nothing large.
const RESERVED_POINTS_MAX: usize = 1 << 16;
/// Slabs whose series are remembered.
const SERIES_SLABS_MAX: usize = 256;

/// What could not be read.
#[derive(Debug, Default)]
pub(in crate::engine) struct Failure {
    pub(in crate::engine) missing: SpanSet,
    /// Slots and serials of slabs that are damaged, or gone meanwhile.
    pub(in crate::engine) bad: Vec<(u32, u64)>,
}

/// What one place has: points by time, and for which intervals they are all that there are.
struct Fragment {
    intervals: Vec<CachedInterval>,
    points: Points,
    series: Arc<[Arc<str>]>,
}

/// The parts of a span that were found so far.
struct Progress {
    missing: SpanSet,
    sequence_min: u64,
    has_deletes: bool,
}

impl Progress {
    fn new(sources: &Sources) -> Self {
        let has_deletes = !sources.hidden.is_empty();
        Self { missing: SpanSet::from_span(sources.span), sequence_min: u64::MAX, has_deletes }
    }

    fn add(&mut self, interval: &CachedInterval) {
        self.missing.remove(interval.span);
        self.sequence_min = self.sequence_min.min(interval.sequence);
    }

    /// Whether slabs that have nothing newer than a sequence cannot change the answer: all is there, and later than theirs. What a delete
    /// hides is not looked into.
    fn is_enough(&self, sequence_max: u64) -> bool {
        !self.has_deletes && self.missing.is_empty() && sequence_max < self.sequence_min
    }
}

/// A part of a slab in memory.
struct Window {
    /// The part: bytes of the slab.
    range: Range<u32>,
    bytes: (AlignedBytes, Range<usize>),
}

impl Window {
    fn read(flash: &Flash, slot: u32, range: Range<u32>) -> io::Result<Self> {
        let bytes = flash.read_slot(slot, range.start, range.end.saturating_sub(range.start))?;
        Ok(Self { range, bytes })
    }

    /// A part of it, if it has all of that.
    fn get(&self, part: &Range<u32>) -> Option<&[u8]> {
        let (bytes, inside) = &self.bytes;
        let start = part.start.checked_sub(self.range.start)? as usize;
        let len = part.end.checked_sub(part.start)? as usize;
        bytes.get(inside.clone())?.get(start..start.checked_add(len)?)
    }
}

pub(in crate::engine) type FieldRead = (FieldPoints, Vec<Arc<str>>);

impl Shared {
    /// All points of the field for the span of its sources, with the series that they speak of.
    pub(super) fn read_field(&self, sources: &Sources) -> Result<FieldRead, Failure> {
        let mut fragments: Vec<Fragment> = Vec::with_capacity(sources.batches.len() + sources.slabs.len());
        let mut bad = Vec::new();
        for batch in &sources.batches {
            // What cannot be read is missing.
            let Ok(points) = batch.points() else { continue };
            let points = points.within(sources.span);
            fragments.push(Fragment { intervals: vec![batch.interval], points, series: batch.series.clone() });
        }
        let mut seen = Progress::new(sources);
        fragments.iter().flat_map(|batch| &batch.intervals).for_each(|interval| seen.add(interval));
        for slab in &sources.slabs {
            if seen.is_enough(slab.meta.sequence_max) {
                break;
            }
            match self.read_slab(slab, sources) {
                Ok(Some(found)) => {
                    found.intervals.iter().for_each(|interval| seen.add(interval));
                    fragments.push(found);
                }
                Ok(None) => {}
                Err(_) => bad.push((slab.slot, slab.meta.serial)),
            }
        }
        let owners = fragments
            .iter()
            .enumerate()
            .flat_map(|(place, fragment)| fragment.intervals.iter().map(move |interval| (*interval, place)));
        let (intervals, owners): (Vec<CachedInterval>, Vec<usize>) = owners.unzip();
        let (parts, missing) = resolve(&intervals, sources.span, &sources.hidden);
        if !missing.is_empty() {
            return Err(Failure { missing, bad });
        }
        let owned = parts.iter().filter_map(|(span, place)| Some((*span, *owners.get(*place)?)));
        Ok(join(sources, fragments, owned.collect()))
    }

    /// Whether reading a field has to wait for the file, as far as can be told without its records.
    pub(super) fn waits_for_file(&self, sources: &Sources) -> bool {
        let is_in_memory = |slab: &SlabSource| {
            let record = slab.location.record();
            self.flash.has_in_memory(slab.slot, record.start, record.end - record.start)
        };
        !sources.slabs.iter().all(is_in_memory)
    }

    fn read_slab(&self, slab: &SlabSource, sources: &Sources) -> io::Result<Option<Fragment>> {
        let (record, window) = self.read_record(slab, &sources.key)?;
        let wanted = |interval: &CachedInterval| interval.span.overlaps(&sources.span);
        let intervals: Vec<CachedInterval> = record.intervals.iter().copied().filter(wanted).collect();
        let needed = |marker: &&Marker| {
            let within = |interval: &CachedInterval| {
                let span = interval.span.intersect(&sources.span);
                marker.first < span.end && span.start <= marker.last
            };
            intervals.iter().any(within)
        };
        let mut markers: Vec<Marker> = record.markers.iter().filter(needed).copied().collect();
        if intervals.is_empty() {
            return Ok(None);
        }
        markers.sort_by_key(|marker| marker.offset);
        let mut points = Points::new(sources.value_type);
        let count: usize = markers.iter().map(|marker| marker.count as usize).sum();
        points.reserve(count.min(RESERVED_POINTS_MAX));
        for together in markers.chunk_by(|a, b| b.offset <= (a.offset + a.len).saturating_add(GAP_BYTES_MAX)) {
            self.read_blocks(slab, (together, &window), sources.span, &mut points)?;
        }
        points.sort();
        self.counters.add(&self.counters.slab_reads, 1);
        self.counters.add(&self.counters.whole_slab_bytes, u64::from(slab.meta.used_bytes));
        let series = used_series(&mut points, &self.read_series(slab.slot, &slab.meta)?);
        Ok(Some(Fragment { intervals, points, series }))
    }

    /// The key's record, and what else was read with it.
    fn read_record(&self, slab: &SlabSource, key: &Key) -> io::Result<(Record, Window)> {
        let (record, range) = (slab.location.record(), self.first_read(slab));
        let window = Window::read(&self.flash, slab.slot, range)?;
        let mut reader = Reader::new(window.get(&record).unwrap_or_default());
        let record = header::read_record(&mut reader, slab.meta.serial).map_err(damaged)?;
        if record.key != *key {
            return Err(damaged("a record of another key"));
        }
        Ok((record, window))
    }

    /// The first read of a slab: the key's record, and its blocks with it if they lie near and the record is not in memory already,
    /// since a second read costs more than the bytes between them.
    fn first_read(&self, slab: &SlabSource) -> Range<u32> {
        let record = slab.location.record();
        let end = slab.location.blocks().map_or(record.end, |blocks| blocks.end.min(slab.meta.used_bytes));
        let is_near = end > record.end && end - record.end <= AHEAD_BYTES_MAX;
        if is_near && !self.flash.has_in_memory(slab.slot, record.start, record.end - record.start) {
            record.start..end
        } else {
            record
        }
    }

    /// Appends the key's points of blocks that lie together, those within the span.
    fn read_blocks(
        &self,
        slab: &SlabSource,
        (markers, window): (&[Marker], &Window),
        span: Span,
        points: &mut Points,
    ) -> io::Result<()> {
        let place =
            |offset: u32| slab.meta.header_bytes.checked_add(offset).ok_or_else(|| damaged("a block behind its slab"));
        let start = place(markers.first().map_or(0, |marker| marker.offset))?;
        let end = place(markers.iter().map(|marker| marker.offset + marker.len).max().unwrap_or(0))?;
        let own = if window.get(&(start..end)).is_none() {
            Some(Window::read(&self.flash, slab.slot, start..end)?)
        } else {
            None
        };
        let window = own.as_ref().unwrap_or(window);
        for marker in markers {
            let start = place(marker.offset)?;
            let bytes = window.get(&(start..start + marker.len)).unwrap_or_default();
            if crc32c::crc32c(bytes) != marker.checksum {
                return Err(damaged("the checksum of a block does not match"));
            }
            let block = block::decode(bytes, points.values.value_type()).map_err(damaged)?;
            points.extend_from(&block, span.indexes(&block.timestamps));
        }
        Ok(())
    }

    /// The names of a slab's series. Most slabs have one without a name, for which nothing is read.
    pub(in crate::engine) fn read_series(&self, slot: u32, meta: &SlabMeta) -> io::Result<Arc<[Arc<str>]>> {
        if meta.series.checksum == header::unnamed_series_checksum() && meta.series.len == 2 {
            return Ok(Arc::from([Arc::from("")]));
        }
        if let Some(known) = self.series.lock().get(&meta.serial) {
            return Ok(known.clone());
        }
        let (bytes, range) = self.flash.read_slot(slot, meta.series.offset, meta.series.len)?;
        let bytes = bytes.get(range).unwrap_or_default();
        if crc32c::crc32c(bytes) != meta.series.checksum {
            return Err(damaged("the checksum of a slab's series does not match"));
        }
        let names: Arc<[Arc<str>]> = header::read_series(bytes).map_err(damaged)?.into();
        let mut series = self.series.lock();
        if series.len() >= SERIES_SLABS_MAX {
            series.clear();
        }
        series.insert(meta.serial, names.clone());
        Ok(names)
    }
}

pub(in crate::engine) fn damaged(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The series that points are of, out of those of a whole slab: the others are of other keys. Points get their places among these.
fn used_series(points: &mut Points, names: &Arc<[Arc<str>]>) -> Arc<[Arc<str>]> {
    let mut places: Vec<Option<u32>> = vec![None; names.len()];
    let mut used: Vec<Arc<str>> = Vec::new();
    for series in &mut points.series {
        let number = *series as usize;
        let (Some(place), Some(name)) = (places.get_mut(number), names.get(number)) else { continue };
        *series = *place.get_or_insert_with(|| {
            used.push(name.clone());
            used.len() as u32 - 1
        });
    }
    used.into()
}

/// Puts parts of fragments one behind the other.
fn join(sources: &Sources, mut fragments: Vec<Fragment>, parts: Vec<(Span, usize)>) -> FieldRead {
    let name = sources.name.clone();
    if let ([(span, owner)], Some(only)) = (parts.as_slice(), parts.first().and_then(|part| fragments.get_mut(part.1)))
    {
        let points = std::mem::replace(&mut only.points, Points::new(sources.value_type));
        let is_whole = span.indexes(&points.timestamps).len() == points.len();
        let points = if is_whole { points } else { points.within(*span) };
        let series = fragments.get(*owner).map(|fragment| fragment.series.to_vec()).unwrap_or_default();
        return (FieldPoints { name, points }, series);
    }
    let mut series: Vec<Arc<str>> = Vec::new();
    let mut all = Points::new(sources.value_type);
    all.reserve(fragments.iter().map(|fragment| fragment.points.len()).sum());
    for fragment in &mut fragments {
        let renamed = crate::open_slab::rename(&mut series, &fragment.series);
        fragment.points.rename_series(&renamed);
    }
    for (span, owner) in parts {
        if let Some(fragment) = fragments.get(owner) {
            all.extend_from(&fragment.points, span.indexes(&fragment.points.timestamps));
        }
    }
    (FieldPoints { name, points: all }, series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_older_slabs_are_left_out_and_only_without_deletes() {
        let mut seen =
            Progress { missing: SpanSet::from_span(Span::new(0, 20)), sequence_min: u64::MAX, has_deletes: false };
        let interval =
            |start, end, sequence| CachedInterval { span: Span::new(start, end), sequence, stamp: 0, fields: 1 };
        seen.add(&interval(-5, 10, 9));
        assert!(!seen.is_enough(1), "half is missing");
        seen.add(&interval(10, 30, 5));
        assert!(seen.is_enough(4) && !seen.is_enough(5) && !seen.is_enough(7));
        seen.has_deletes = true;
        assert!(!seen.is_enough(4));
    }
}

//! Points of one field from wherever they are.

use std::io;
use std::sync::Arc;

use codec::Reader;

use super::{SlabSource, Sources};
use crate::engine::Shared;
use crate::index::SlabMeta;
use crate::points::{FieldPoints, Points};
use crate::resolve::resolve;
use crate::slab::{Marker, Piece, Record, block, header};
use crate::span::SpanSet;
use crate::{Key, Span};

/// Blocks are read together if no more than so many bytes lie between them.
const GAP_BYTES_MAX: u32 = 8 << 10;
/// Slabs whose series are remembered.
const SERIES_SLABS_MAX: usize = 256;

/// What could not be read.
#[derive(Debug, Default)]
pub(in crate::engine) struct Failure {
    pub(in crate::engine) missing: SpanSet,
    /// Slots and serials of slabs that are damaged, or gone meanwhile.
    pub(in crate::engine) bad: Vec<(u32, u64)>,
}

/// What one place has: points by time, and for which pieces they are all that there are.
struct Fragment {
    pieces: Vec<Piece>,
    points: Points,
    series: Arc<[Arc<str>]>,
}

pub(in crate::engine) type FieldRead = (FieldPoints, Vec<Arc<str>>);

impl Shared {
    /// All points of the field for the span of its sources, with the series that they speak of.
    pub(super) fn read_field(&self, sources: &Sources) -> Result<FieldRead, Failure> {
        let mut fragments: Vec<Fragment> = Vec::with_capacity(sources.batches.len() + sources.slabs.len());
        let mut bad = Vec::new();
        for slab in &sources.slabs {
            match self.read_slab(slab, sources) {
                Ok(found) => fragments.extend(found),
                Err(_) => bad.push((slab.slot, slab.meta.serial)),
            }
        }
        for batch in &sources.batches {
            let points = batch.points.within(sources.span);
            fragments.push(Fragment { pieces: vec![batch.piece], points, series: batch.series.clone() });
        }
        let owners = fragments
            .iter()
            .enumerate()
            .flat_map(|(place, fragment)| fragment.pieces.iter().map(move |piece| (*piece, place)));
        let (pieces, owners): (Vec<Piece>, Vec<usize>) = owners.unzip();
        let (parts, missing) = resolve(&pieces, sources.span, &sources.hidden);
        if !missing.is_empty() {
            return Err(Failure { missing, bad });
        }
        let owned = parts.iter().filter_map(|(span, place)| Some((*span, *owners.get(*place)?)));
        Ok(join(sources, fragments, owned.collect()))
    }

    fn read_slab(&self, slab: &SlabSource, sources: &Sources) -> io::Result<Option<Fragment>> {
        let (record, markers) = self.read_record(slab, &sources.key)?;
        let Some(record) = record else {
            return Ok(None);
        };
        let wanted = |piece: &Piece| piece.span.overlaps(&sources.span);
        let pieces: Vec<Piece> = record.pieces.iter().copied().filter(wanted).collect();
        let needed = |marker: &&Marker| {
            let within = |piece: &Piece| {
                let span = piece.span.intersect(&sources.span);
                marker.first < span.end && span.start <= marker.last
            };
            pieces.iter().any(within)
        };
        let mut markers: Vec<Marker> = markers.iter().filter(needed).copied().collect();
        markers.sort_by_key(|marker| marker.offset);
        let mut points = Points::new(sources.value_type);
        for together in markers.chunk_by(|a, b| b.offset <= a.offset + a.len + GAP_BYTES_MAX) {
            self.read_blocks(slab, together, &record, sources.span, &mut points)?;
        }
        points.sort();
        self.counters.add(&self.counters.slab_reads, 1);
        self.counters.add(&self.counters.whole_slab_bytes, u64::from(slab.meta.used_bytes));
        Ok(Some(Fragment { pieces, points, series: self.read_series(slab.slot, &slab.meta)? }))
    }

    /// The key's record and the markers of blocks that may hold its points; no record if the slab has none of the key.
    fn read_record(&self, slab: &SlabSource, key: &Key) -> io::Result<(Option<Record>, Vec<Marker>)> {
        let Some(place) = slab.place else {
            let header = self.read_header(slab.slot, &slab.meta)?;
            let record = header.records.into_iter().map(|placed| placed.record).find(|record| record.key == *key);
            return Ok((record, header.markers));
        };
        let unit = header::RECORD_ALIGN_BYTES as u32;
        let (offset, len) = (u32::from(place.offset) * unit, u32::from(place.len) * unit);
        let (bytes, range) = self.flash.read_slot(slab.slot, offset, len)?;
        let mut reader = Reader::new(bytes.get(range).unwrap_or_default());
        let record = header::read_record(&mut reader, slab.meta.serial).map_err(damaged)?;
        if record.key != *key {
            return Err(damaged("a record of another key"));
        }
        let markers = record.markers.clone();
        Ok((Some(record), markers))
    }

    /// Appends the key's points of blocks that lie together, those within the span.
    fn read_blocks(
        &self,
        slab: &SlabSource,
        markers: &[Marker],
        record: &Record,
        span: Span,
        points: &mut Points,
    ) -> io::Result<()> {
        let start = markers.first().map_or(0, |marker| marker.offset);
        let end = markers.iter().map(|marker| marker.offset + marker.len).max().unwrap_or(0);
        let offset = slab.meta.header_bytes.checked_add(start).ok_or_else(|| damaged("a block behind its slab"))?;
        let (bytes, range) = self.flash.read_slot(slab.slot, offset, end - start)?;
        for marker in markers {
            let from = range.start + (marker.offset - start) as usize;
            let bytes = bytes.get(from..from + marker.len as usize).unwrap_or_default();
            if crc32c::crc32c(bytes) != marker.checksum {
                return Err(damaged("the checksum of a block does not match"));
            }
            let block = block::decode(bytes, points.values.value_type()).map_err(damaged)?;
            let inside = span.places(&block.points.timestamps);
            if block.bits.is_empty() {
                points.extend_from(&block.points, inside);
                continue;
            }
            for place in inside.filter(|place| block.belongs(*place, record.number as usize)) {
                points.extend_from(&block.points, place..place + 1);
            }
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

/// Puts parts of fragments one behind the other.
fn join(sources: &Sources, mut fragments: Vec<Fragment>, parts: Vec<(Span, usize)>) -> FieldRead {
    let name = sources.name.clone();
    if let ([(span, owner)], Some(only)) = (parts.as_slice(), parts.first().and_then(|part| fragments.get_mut(part.1)))
    {
        let points = std::mem::replace(&mut only.points, Points::new(sources.value_type));
        let is_whole = span.places(&points.timestamps).len() == points.len();
        let points = if is_whole { points } else { points.within(*span) };
        let series = fragments.get(*owner).map(|fragment| fragment.series.to_vec()).unwrap_or_default();
        return (FieldPoints { name, points }, series);
    }
    let mut series: Vec<Arc<str>> = Vec::new();
    let mut all = Points::new(sources.value_type);
    for fragment in &mut fragments {
        let renamed = crate::open_slab::rename(&mut series, &fragment.series);
        fragment.points.rename_series(&renamed);
    }
    for (span, owner) in parts {
        if let Some(fragment) = fragments.get(owner) {
            all.extend_from(&fragment.points, span.places(&fragment.points.timestamps));
        }
    }
    (FieldPoints { name, points: all }, series)
}

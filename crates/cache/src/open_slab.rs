//! Points that are not on flash yet: a bucket of batches for each field.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::points::Points;
use crate::resolve::{Hidden, resolve};
use crate::slab::{Piece, Strand, Unit};
use crate::{Key, Layout, Span};

/// Points of one key and field for one piece of time.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) piece: Piece,
    pub(crate) points: Points,
    pub(crate) series: Arc<[Arc<str>]>,
}

/// Points that a unit gathers at most before the next one begins.
const UNIT_POINTS_MAX: usize = 8192;
/// What a batch costs in a slab beside its points, about.
const BATCH_BYTES: usize = 80;
/// What it costs in memory.
const BATCH_MEMORY_BYTES: usize = 200;

/// Batches of a field.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    batches: BTreeMap<Key, Vec<Arc<Batch>>>,
    count: usize,
    points: usize,
    points_bytes: usize,
}

impl Bucket {
    pub(crate) fn push(&mut self, key: Key, batch: Arc<Batch>) {
        self.count += 1;
        self.points += batch.points.len();
        self.points_bytes += batch.points.size_bytes(batch.piece.span);
        self.batches.entry(key).or_default().push(batch);
    }

    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.points_bytes + self.points * size_of::<u32>() + self.count * BATCH_MEMORY_BYTES
    }

    /// About what it will take in slabs, where columns take so many bytes for each uncompressed one.
    pub(crate) fn slab_bytes(&self, layout: Layout, compressed: f64) -> usize {
        let points = match layout {
            Layout::Rows => self.points_bytes + self.points * 20,
            Layout::Columns => (self.points_bytes as f64 * compressed) as usize,
        };
        points + self.count * BATCH_BYTES
    }

    /// What a key's batches are.
    pub(crate) fn of(&self, key: &Key) -> &[Arc<Batch>] {
        self.batches.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    /// The oldest sequence in it.
    pub(crate) fn sequence_min(&self) -> Option<u64> {
        self.batches.values().flatten().map(|batch| batch.piece.sequence).min()
    }

    /// All batches as units, with the batches that each is made of: a unit for each key, or several for one with many points. By the
    /// end of their time, so that slabs made in this order hold short stretches of it. What was deleted, or set again since, is left
    /// out: within a slab no piece of a key overlaps another.
    pub(crate) fn units(&self, hidden: &dyn Fn(&Key) -> Vec<Hidden>) -> Vec<(Unit, Key, Vec<Arc<Batch>>)> {
        let mut units = Vec::new();
        for (key, batches) in &self.batches {
            let pieces: Vec<Piece> = batches.iter().map(|batch| batch.piece).collect();
            let Some(hull) = pieces.iter().map(|piece| piece.span).reduce(|hull, span| hull.hull(&span)) else {
                continue;
            };
            let hidden = hidden(key);
            let (parts, _) = resolve(&pieces, hull, &hidden);
            let mut unit = UnitInMaking::default();
            for (span, batch) in parts.iter().filter_map(|(span, place)| Some((*span, batches.get(*place)?))) {
                if unit.points + batch.points.len() > UNIT_POINTS_MAX && !unit.batches.is_empty() {
                    units.push(std::mem::take(&mut unit).finish(*key));
                }
                unit.push(span, batch, &hidden);
            }
            if !unit.batches.is_empty() {
                units.push(unit.finish(*key));
            }
        }
        units.sort_by_key(|(unit, key, _)| (unit.span().map(|span| span.end), *key));
        units
    }
}

/// Batches of one key that become a unit.
#[derive(Default)]
struct UnitInMaking {
    pieces: Vec<Piece>,
    series: Vec<Arc<str>>,
    joined: Option<Points>,
    points: usize,
    batches: Vec<Arc<Batch>>,
}

impl UnitInMaking {
    /// Adds a span of a batch behind those before.
    fn push(&mut self, span: Span, batch: &Arc<Batch>, hidden: &[Hidden]) {
        push_piece(&mut self.pieces, Piece { span, ..batch.piece }, hidden);
        let renamed = rename(&mut self.series, &batch.series);
        let mut own = batch.points.within(span);
        own.rename_series(&renamed);
        self.points += own.len();
        match &mut self.joined {
            None => self.joined = Some(own),
            Some(all) => all.extend_from(&own, 0..own.len()),
        }
        self.batches.push(batch.clone());
    }

    fn finish(self, key: Key) -> (Unit, Key, Vec<Arc<Batch>>) {
        let filled = self.joined.filter(|points| !points.is_empty());
        let strands = filled.map(|points| Strand { keys: vec![0], points }).into_iter().collect();
        (Unit { keys: vec![(key, self.pieces)], series: self.series, strands }, key, self.batches)
    }
}

/// Adds a piece; one that continues the last becomes part of it, unless a delete hides one of the two and not the other.
pub(crate) fn push_piece(pieces: &mut Vec<Piece>, piece: Piece, hidden: &[Hidden]) {
    if let Some(last) = pieces.last_mut() {
        let older = last.sequence.min(piece.sequence);
        let newer = last.sequence.max(piece.sequence);
        let whole = last.span.hull(&piece.span);
        let parts =
            |hidden: &Hidden| older <= hidden.sequence && hidden.sequence < newer && hidden.span.overlaps(&whole);
        let is_alike = last.stamp == piece.stamp && last.fields == piece.fields;
        if last.span.end == piece.span.start && is_alike && !hidden.iter().any(parts) {
            last.span = whole;
            last.sequence = older;
            return;
        }
    }
    pieces.push(piece);
}

/// Finds or adds series in a list; returns their places in it.
pub(crate) fn rename(list: &mut Vec<Arc<str>>, names: &[Arc<str>]) -> Vec<u32> {
    if list.is_empty() {
        list.extend_from_slice(names);
    }
    if list.len() == names.len() && list.iter().eq(names) {
        return (0..names.len() as u32).collect();
    }
    let mut places: std::collections::HashMap<Arc<str>, u32> =
        list.iter().enumerate().map(|(place, name)| (name.clone(), place as u32)).collect();
    let mut place_of = |name: &Arc<str>| {
        *places.entry(name.clone()).or_insert_with(|| {
            list.push(name.clone());
            list.len() as u32 - 1
        })
    };
    names.iter().map(&mut place_of).collect()
}

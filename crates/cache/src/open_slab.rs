//! Points that are not on flash yet: a bucket of batches for each field. If they take more memory than they may, the points of a batch are packed as
//! a slab has them, so that a bucket fills a slab before it has to go.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use codec::DecodeError;

use crate::points::{Points, ValueType};
use crate::resolve::{Hidden, resolve};
use crate::slab::{CachedInterval, Strand, Unit, block};
use crate::{Key, Span};

/// Points of one key and field for one interval of time.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) interval: CachedInterval,
    pub(crate) series: Arc<[Arc<str>]>,
    points: BatchPoints,
    /// How many points there are, and about what they take uncompressed.
    count: usize,
    size_bytes: usize,
}

/// How a batch's points are held.
#[derive(Debug)]
enum BatchPoints {
    Plain(Points),
    /// As a block of a slab.
    Packed(Box<[u8]>, ValueType),
}

/// Points of a batch that is packed: with fewer little would be spared, more are not in one block, as there may be of many series at one time.
const PACKED_POINTS: RangeInclusive<usize> = 16..=block::BLOCK_POINTS_MAX;

impl Batch {
    pub(crate) fn new(interval: CachedInterval, points: Points, series: Arc<[Arc<str>]>) -> Self {
        let (count, size_bytes) = (points.len(), points.size_bytes(interval.span));
        Self { interval, series, points: BatchPoints::Plain(points), count, size_bytes }
    }

    /// The points; packed ones are unpacked. If that fails, they are unknown.
    pub(crate) fn points(&self) -> Result<Cow<'_, Points>, DecodeError> {
        match &self.points {
            BatchPoints::Plain(points) => Ok(Cow::Borrowed(points)),
            BatchPoints::Packed(bytes, value_type) => Ok(Cow::Owned(block::decode(bytes, *value_type)?)),
        }
    }

    /// About as many bytes as its points take uncompressed.
    pub(crate) const fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The points, if they are not packed but may be.
    fn packable(&self) -> Option<&Points> {
        match &self.points {
            BatchPoints::Plain(points) if PACKED_POINTS.contains(&points.len()) => Some(points),
            BatchPoints::Plain(_) | BatchPoints::Packed(..) => None,
        }
    }

    /// The batch with its points packed; `None` if they are, or are few or too many.
    pub(crate) fn packed(&self) -> Option<Self> {
        let points = self.packable()?;
        let mut bytes = Vec::new();
        block::encode_columns(points, &mut bytes);
        let points = BatchPoints::Packed(bytes.into(), points.values.value_type());
        Some(Self { series: self.series.clone(), points, ..*self })
    }
}

/// Points that a unit gathers at most before the next one begins.
const UNIT_POINTS_MAX: usize = 8192;
/// What a batch costs in a slab beside its points, about.
const BATCH_BYTES: usize = 80;
/// Bytes of memory of a batch, beside its points.
const BATCH_MEMORY_BYTES: usize = 200;

/// Batches of a field.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    batches: BTreeMap<Key, Vec<Arc<Batch>>>,
    count: usize,
    /// Of batches that are not packed, and bytes that they take uncompressed.
    plain_points: usize,
    plain_bytes: usize,
    /// Of those the ones that may be packed.
    packable_bytes: usize,
    /// Of those that are.
    packed_bytes: usize,
}

/// A batch, and the same with its points packed.
pub(crate) type Repacked = (Key, Arc<Batch>, Arc<Batch>);

impl Bucket {
    pub(crate) fn push(&mut self, key: Key, batch: Arc<Batch>) {
        self.count += 1;
        self.count_points(&batch, |known, more| known + more);
        self.batches.entry(key).or_default().push(batch);
    }

    fn count_points(&mut self, batch: &Batch, count: impl Fn(usize, usize) -> usize) {
        match &batch.points {
            BatchPoints::Packed(bytes, _) => self.packed_bytes = count(self.packed_bytes, bytes.len()),
            BatchPoints::Plain(points) => {
                self.plain_points = count(self.plain_points, points.len());
                self.plain_bytes = count(self.plain_bytes, batch.size_bytes);
                if batch.packable().is_some() {
                    self.packable_bytes = count(self.packable_bytes, batch.size_bytes);
                }
            }
        }
    }

    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.packed_bytes + self.plain_bytes + self.plain_points * size_of::<u32>() + self.count * BATCH_MEMORY_BYTES
    }

    /// Bytes of points that may be packed.
    pub(crate) const fn packable_bytes(&self) -> usize {
        self.packable_bytes
    }

    /// The batches whose points may be packed.
    pub(crate) fn packable(&self) -> Vec<(Key, Arc<Batch>)> {
        let of_key = |(key, batches): (&Key, &Vec<Arc<Batch>>)| {
            let key = *key;
            let may_be_packed = |batch: &&Arc<Batch>| batch.packable().is_some();
            batches.iter().filter(may_be_packed).map(move |batch| (key, batch.clone())).collect::<Vec<_>>()
        };
        self.batches.iter().flat_map(of_key).collect()
    }

    /// Puts packed batches in the place of those that they were made of, as far as these are still there.
    pub(crate) fn replace(&mut self, packed: Vec<Repacked>) {
        for (key, plain, packed) in packed {
            let known = self
                .batches
                .get_mut(&key)
                .and_then(|batches| batches.iter_mut().find(|batch| Arc::ptr_eq(batch, &plain)));
            let Some(known) = known else { continue };
            *known = packed.clone();
            self.count_points(&plain, usize::saturating_sub);
            self.count_points(&packed, |known, more| known + more);
        }
    }

    /// About what it will take in slabs, where columns take so many bytes for each uncompressed one.
    pub(crate) fn slab_bytes(&self, compressed: f64) -> usize {
        (self.plain_bytes as f64 * compressed) as usize + self.packed_bytes + self.count * BATCH_BYTES
    }

    /// What a key's batches are.
    pub(crate) fn batches_of(&self, key: &Key) -> &[Arc<Batch>] {
        self.batches.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    /// The oldest sequence in it.
    pub(crate) fn sequence_min(&self) -> Option<u64> {
        self.batches.values().flatten().map(|batch| batch.interval.sequence).min()
    }

    /// All batches as units, with the batches that each is made of: a unit for each key, or several for one with many points. By the
    /// end of their time, so that slabs made in this order hold short stretches of it. What was deleted, or set again since, is left
    /// out: within a slab no interval of a key overlaps another.
    pub(crate) fn units(&self, hidden: &dyn Fn(&Key) -> Vec<Hidden>) -> Vec<(Unit, Key, Vec<Arc<Batch>>)> {
        let mut units = Vec::new();
        for (key, batches) in &self.batches {
            let intervals: Vec<CachedInterval> = batches.iter().map(|batch| batch.interval).collect();
            let Some(hull) = intervals.iter().map(|interval| interval.span).reduce(|hull, span| hull.hull(&span))
            else {
                continue;
            };
            let hidden = hidden(key);
            let (parts, _) = resolve(&intervals, hull, &hidden);
            let mut unit = UnitInMaking::default();
            for (span, batch) in parts.iter().filter_map(|(span, place)| Some((*span, batches.get(*place)?))) {
                // Of what cannot be read any more nothing is kept: it will be found missing.
                let Ok(points) = batch.points() else { continue };
                if unit.points + batch.count > UNIT_POINTS_MAX && !unit.batches.is_empty() {
                    units.push(std::mem::take(&mut unit).finish(*key));
                }
                unit.push((span, points.within(span)), batch, &hidden);
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
    intervals: Vec<CachedInterval>,
    series: Vec<Arc<str>>,
    joined: Option<Points>,
    points: usize,
    batches: Vec<Arc<Batch>>,
}

impl UnitInMaking {
    /// Adds a span of a batch, and its points in it, behind those before.
    fn push(&mut self, (span, mut own): (Span, Points), batch: &Arc<Batch>, hidden: &[Hidden]) {
        push_interval(&mut self.intervals, CachedInterval { span, ..batch.interval }, hidden);
        let renamed = rename(&mut self.series, &batch.series);
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
        (Unit { keys: vec![(key, self.intervals)], series: self.series, strands }, key, self.batches)
    }
}

/// Adds an interval; one that continues the last becomes part of it, unless a delete hides one of the two and not the other.
pub(crate) fn push_interval(intervals: &mut Vec<CachedInterval>, interval: CachedInterval, hidden: &[Hidden]) {
    if let Some(last) = intervals.last_mut() {
        let older = last.sequence.min(interval.sequence);
        let newer = last.sequence.max(interval.sequence);
        let whole = last.span.hull(&interval.span);
        let parts =
            |hidden: &Hidden| older <= hidden.sequence && hidden.sequence < newer && hidden.span.overlaps(&whole);
        let is_alike = last.stamp == interval.stamp && last.fields == interval.fields;
        if last.span.end == interval.span.start && is_alike && !hidden.iter().any(parts) {
            last.span = whole;
            last.sequence = older;
            return;
        }
    }
    intervals.push(interval);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::Values;

    const TYPES: [ValueType; 4] = [ValueType::F64, ValueType::I64, ValueType::Bool, ValueType::Text];

    fn points(value_type: ValueType, count: usize) -> Points {
        let values = match value_type {
            ValueType::F64 => Values::F64((0..count).map(|place| place as f64 / 4.0).collect()),
            ValueType::I64 => Values::I64((0..count as i64).collect()),
            ValueType::Bool => Values::Bool((0..count).map(|place| place % 3 == 0).collect()),
            ValueType::Text => Values::Text((0..count).map(|place| Arc::from(format!("note {place}"))).collect()),
        };
        Points { timestamps: vec![7; count], series: (0..count as u32).collect(), values }
    }

    fn batch(sequence: u64, points: Points) -> Arc<Batch> {
        let interval = CachedInterval { span: Span::new(0, 10), sequence, stamp: 0, fields: 1 };
        Arc::new(Batch::new(interval, points, Arc::from([])))
    }

    /// A block has a bound: what is beyond it stays as it is instead of not being read again.
    #[test]
    fn what_is_packed_is_read_again() {
        for value_type in TYPES {
            for count in [0, 1, 15, 16, 1000, block::BLOCK_POINTS_MAX, block::BLOCK_POINTS_MAX + 1] {
                let plain = batch(1, points(value_type, count));
                let packed = plain.packed();
                assert_eq!(
                    packed.is_some(),
                    (16..=block::BLOCK_POINTS_MAX).contains(&count),
                    "{value_type:?}, {count}"
                );
                let Some(packed) = packed else { continue };
                assert_eq!(packed.points().unwrap().into_owned(), points(value_type, count));
                assert_eq!((packed.interval, packed.size_bytes()), (plain.interval, plain.size_bytes()));
                assert!(packed.packed().is_none());
            }
        }
    }

    /// However batches came into a bucket, it takes the same.
    #[test]
    fn a_bucket_counts_what_it_holds() {
        let key = Key::of_statement("q");
        let counts = [3, 500, 40, 0, 9000];
        let (mut replaced, mut pushed) = (Bucket::default(), Bucket::default());
        for (sequence, count) in (0..).zip(counts) {
            replaced.push(key, batch(sequence, points(ValueType::I64, count)));
        }
        let plain_bytes = replaced.memory_bytes();
        let repack = |(key, batch): (Key, Arc<Batch>)| (key, batch.clone(), Arc::new(batch.packed().unwrap()));
        let packed: Vec<Repacked> = replaced.packable().into_iter().map(repack).collect();
        assert_eq!(packed.len(), 3);
        for batch in replaced.batches_of(&key) {
            let held =
                packed.iter().find(|(_, plain, _)| Arc::ptr_eq(plain, batch)).map_or(batch, |(_, _, packed)| packed);
            pushed.push(key, held.clone());
        }
        replaced.replace(packed.clone());
        let told = |of: &Bucket| (of.memory_bytes(), of.packable_bytes(), of.slab_bytes(0.5));
        assert_eq!(told(&replaced), told(&pushed));
        assert!(replaced.packable_bytes() == 0 && replaced.memory_bytes() * 4 < plain_bytes, "{replaced:?}");
        // Batches that are gone meanwhile are not counted again.
        let mut others = Bucket::default();
        others.push(key, batch(9, points(ValueType::I64, 500)));
        let before = told(&others);
        others.replace(packed);
        assert_eq!(told(&others), before);
    }
}

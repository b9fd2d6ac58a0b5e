//! The points of several slabs, sorted out by which keys they belong to.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::engine::Shared;
use crate::engine::get::damaged;
use crate::index::{FieldNumber, SlabMeta};
use crate::open_slab::{push_interval, rename};
use crate::points::{Points, ValueType, Values};
use crate::resolve::resolve;
use crate::slab::{CachedInterval, Header, Record, Strand, Unit, block};
use crate::{Key, Span};

/// A point of one key. Values are bits, or places in a list of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    time: i64,
    series: u32,
    value: u64,
    key: u32,
}

/// A slab in memory.
struct Image {
    header: Header,
    data: Vec<u8>,
    /// The slab's series in the list of all.
    renamed: Vec<u32>,
}

/// Values as bits, and back.
struct Texts {
    value_type: ValueType,
    distinct: Vec<Arc<str>>,
    offsets: HashMap<Arc<str>, u64>,
}

impl Texts {
    fn new(value_type: ValueType) -> Self {
        Self { value_type, distinct: Vec::new(), offsets: HashMap::new() }
    }

    fn bits(&mut self, values: &Values, place: usize) -> Option<u64> {
        Some(match values {
            Values::F64(column) => column.get(place)?.to_bits(),
            Values::I64(column) => *column.get(place)? as u64,
            Values::Bool(column) => u64::from(*column.get(place)?),
            Values::Text(column) => {
                let text = column.get(place)?;
                *self.offsets.entry(text.clone()).or_insert_with(|| {
                    self.distinct.push(text.clone());
                    self.distinct.len() as u64 - 1
                })
            }
        })
    }

    fn push(&self, row: &Row, points: &mut Points) {
        points.timestamps.push(row.time);
        points.series.push(row.series);
        match &mut points.values {
            Values::F64(column) => column.push(f64::from_bits(row.value)),
            Values::I64(column) => column.push(row.value as i64),
            Values::Bool(column) => column.push(row.value != 0),
            Values::Text(column) => column.extend(self.distinct.get(row.value as usize).cloned()),
        }
    }
}

impl Shared {
    /// All live points of the slabs as units. `None` if one of the slabs cannot be read: the next lookup finds out.
    pub(super) fn merge(&self, field: FieldNumber, inputs: &[(u32, SlabMeta)]) -> Option<Vec<Unit>> {
        let value_type = self.state.lock().fields.get(field as usize)?.value_type;
        let mut series = Vec::new();
        let mut images = Vec::new();
        for (slot, meta) in inputs {
            let (bytes, range) = self.flash.read_slot_once(*slot, 0, meta.used_bytes).ok()?;
            let bytes = bytes.get(range)?;
            let header = Header::decode(bytes).ok().filter(|header| header.head.serial == meta.serial)?;
            let renamed = rename(&mut series, &header.series);
            let data = bytes.get(header.head.header_bytes as usize..)?.to_vec();
            images.push(Image { header, data, renamed });
        }
        let mut keys: BTreeMap<Key, Vec<(usize, &Record)>> = BTreeMap::new();
        for (place, image) in images.iter().enumerate() {
            for placed in &image.header.records {
                keys.entry(placed.record.key).or_default().push((place, &placed.record));
            }
        }
        let mut texts = Texts::new(value_type);
        let mut rows = Vec::new();
        let mut intervals = Vec::new();
        for (key, records) in keys {
            let kept = self.live_parts(&key, &records);
            let number = intervals.len() as u32;
            for (span, _, place) in &kept {
                let (image, record) =
                    records.get(*place).and_then(|(image, record)| Some((images.get(*image)?, record)))?;
                push_rows(image, record, *span, number, &mut texts, &mut rows).ok()?;
            }
            let mut own = Vec::new();
            let hidden = self.state.lock().hidden(&key);
            kept.iter().for_each(|(span, interval, _)| {
                push_interval(&mut own, CachedInterval { span: *span, ..*interval }, &hidden);
            });
            intervals.push((key, own));
        }
        rows.sort_unstable();
        Some(units(&intervals, &series, &rows, &texts))
    }

    /// Which stretches of a key are worth keeping, each with the interval that answers for it and the place of its record.
    fn live_parts(&self, key: &Key, records: &[(usize, &Record)]) -> Vec<(Span, CachedInterval, usize)> {
        let (covered, hidden) = {
            let state = self.state.lock();
            let covered = state.keys.get(key).map(|entry| entry.extents.covered()).unwrap_or_default();
            (covered, state.hidden(key))
        };
        let owned = records.iter().enumerate();
        let owned =
            owned.flat_map(|(place, (_, record))| record.intervals.iter().map(move |interval| (*interval, place)));
        let (intervals, owners): (Vec<CachedInterval>, Vec<usize>) = owned.unzip();
        let everything = Span::new(i64::MIN, i64::MAX);
        let (parts, _) = resolve(&intervals, everything, &hidden);
        let mut live = Vec::new();
        for (span, place) in parts {
            if let (Some(interval), Some(owner)) = (intervals.get(place), owners.get(place)) {
                live.extend(covered.within(span).map(|span| (span, *interval, *owner)));
            }
        }
        live
    }
}

/// Appends a record's points of a span.
fn push_rows(
    image: &Image,
    record: &Record,
    span: Span,
    key: u32,
    texts: &mut Texts,
    rows: &mut Vec<Row>,
) -> std::io::Result<()> {
    for marker in record.markers.iter().filter(|marker| marker.first < span.end && span.start <= marker.last) {
        let start = marker.offset as usize;
        let bytes = image.data.get(start..start + marker.len as usize).unwrap_or_default();
        if crc32c::crc32c(bytes) != marker.checksum {
            return Err(damaged("the checksum of a block does not match"));
        }
        let found = block::decode(bytes, texts.value_type).map_err(damaged)?;
        for place in span.indexes(&found.timestamps) {
            let time = found.timestamps.get(place).copied();
            let series = found.series.get(place).and_then(|series| image.renamed.get(*series as usize)).copied();
            let value = texts.bits(&found.values, place);
            if let (Some(time), Some(series), Some(value)) = (time, series, value) {
                rows.push(Row { time, series, value, key });
            }
        }
    }
    Ok(())
}

/// Keys that share points, directly or through others: they go into the same slab.
struct Families(Vec<u32>);

impl Families {
    fn root_of(&mut self, key: u32) -> u32 {
        let mut root = key;
        while let Some(parent) = self.0.get(root as usize).copied().filter(|parent| *parent != root) {
            root = parent;
        }
        if let Some(shortcut) = self.0.get_mut(key as usize) {
            *shortcut = root;
        }
        root
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root_of(a), self.root_of(b));
        if let Some(parent) = self.0.get_mut(a as usize) {
            *parent = b;
        }
    }
}

/// Sorted rows as units: equal points of several keys become one point of a strand of these keys.
fn units(intervals: &[(Key, Vec<CachedInterval>)], series: &[Arc<str>], rows: &[Row], texts: &Texts) -> Vec<Unit> {
    let mut families = Families((0..intervals.len() as u32).collect());
    let mut strands: BTreeMap<Vec<u32>, Points> = BTreeMap::new();
    for same in rows.chunk_by(|a, b| (a.time, a.series, a.value) == (b.time, b.series, b.value)) {
        let keys: Vec<u32> = same.iter().map(|row| row.key).collect();
        keys.windows(2).for_each(|pair| {
            if let [a, b] = pair {
                families.join(*a, *b);
            }
        });
        if let Some(row) = same.first() {
            texts.push(row, strands.entry(keys).or_insert_with(|| Points::new(texts.value_type)));
        }
    }
    let mut members: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (key, (_, own)) in (0u32..).zip(intervals) {
        if !own.is_empty() {
            members.entry(families.root_of(key)).or_default().push(key);
        }
    }
    let mut own_strands: BTreeMap<u32, Vec<(Vec<u32>, Points)>> = BTreeMap::new();
    for (keys, points) in strands {
        let family = keys.first().map_or(0, |key| families.root_of(*key));
        own_strands.entry(family).or_default().push((keys, points));
    }
    let unit = |(family, keys): (u32, Vec<u32>)| {
        let strands = own_strands.remove(&family).unwrap_or_default();
        family_unit(&keys, strands, intervals, series)
    };
    members.into_iter().map(unit).collect()
}

fn family_unit(
    keys: &[u32],
    strands: Vec<(Vec<u32>, Points)>,
    intervals: &[(Key, Vec<CachedInterval>)],
    series: &[Arc<str>],
) -> Unit {
    let mut used = Vec::new();
    let mut renamed_to: HashMap<u32, u32> = HashMap::new();
    let mut made = Vec::with_capacity(strands.len());
    for (strand_keys, mut points) in strands {
        for number in &mut points.series {
            let known = *number;
            *number = *renamed_to.entry(known).or_insert_with(|| {
                used.extend(series.get(known as usize).cloned());
                used.len() as u32 - 1
            });
        }
        let place = |key: &u32| keys.binary_search(key).ok().map(|place| place as u32);
        made.push(Strand { keys: strand_keys.iter().filter_map(place).collect(), points });
    }
    let keys = keys.iter().filter_map(|key| intervals.get(*key as usize).cloned()).collect();
    Unit { keys, series: used, strands: made }
}

//! Native histograms: columns of their parts, by layout.
//!
//! A histogram that is scraped again and again keeps its buckets, so each different layout is stored once and its
//! buckets become columns over time. Bytes behind the tag, which is 0:
//!
//! ```text
//! varint      number of layouts
//! per layout: u8 0 whole numbers, 1 fractions · signed varint schema · 8 bytes zero threshold
//!             positive spans, negative spans: varint number, each signed varint offset, varint length
//!             varint number of custom bounds, a float column of them
//! integer column   layout of each row
//! integer column   counter reset hint of each row
//! float column     sum of each row
//! per layout, of its rows: columns of counts, of zero counts, and of bucket counts
//! ```
//!
//! Counts are integer columns for whole numbers, else float columns. Bucket counts go bucket by bucket, positive before
//! negative, each bucket's counts in order of time; as many buckets as make up to 65,536 counts share a column.
//!
//! What the numbers mean, and which of them make sense, is not known here: only that there is a count for each bucket of
//! the spans.

use std::sync::Arc;

use crate::{COLUMN_VALUES_MAX, DecodeError, Effort, Reader, float, integer, varint};

/// Bucket counts that all rows of a column may hold together: bounds what a decoder allocates for damaged spans.
pub const COLUMN_BUCKETS_MAX: usize = 1 << 24;

/// Bucket counts that share a column, unless one bucket has more.
const SHARED_VALUES_MAX: usize = 1 << 16;

const BY_LAYOUT: u8 = 0;

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Which buckets there are.
    pub layout: Arc<Layout>,
    /// Number of the hint on counter resets.
    pub hint: u8,
    /// Sum of all observations.
    pub sum: f64,
    /// How many observations there were.
    pub counts: Counts,
}

/// The buckets of a row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layout {
    /// Resolution.
    pub schema: i8,
    /// Bound of the zero bucket.
    pub zero_threshold: f64,
    /// Stretches of buckets of positive observations: offset from the one before, number of buckets.
    pub positive_spans: Vec<(i32, u32)>,
    /// Stretches of buckets of negative observations.
    pub negative_spans: Vec<(i32, u32)>,
    /// Bounds of custom buckets.
    pub custom_bounds: Vec<f64>,
}

/// Numbers of observations of either type.
#[derive(Debug, Clone, PartialEq)]
pub enum Counts {
    /// Whole numbers.
    Integer(CountsOf<u64>),
    /// Fractions.
    Float(CountsOf<f64>),
}

/// Numbers of observations; a number for each bucket of the spans.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CountsOf<T> {
    /// All observations.
    pub count: T,
    /// Those in the zero bucket.
    pub zero_count: T,
    /// By bucket of the positive spans.
    pub positive: Vec<T>,
    /// By bucket of the negative spans.
    pub negative: Vec<T>,
}

impl Layout {
    fn buckets(spans: &[(i32, u32)]) -> usize {
        spans.iter().fold(0, |sum, (_, length)| sum.saturating_add(*length as usize))
    }

    fn positive_buckets(&self) -> usize {
        Self::buckets(&self.positive_spans)
    }

    fn negative_buckets(&self) -> usize {
        Self::buckets(&self.negative_spans)
    }
}

/// Histograms that make no column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodeError {
    /// A row has another number of bucket counts than its layout has buckets.
    CountsDoNotFit,
    /// More than [`COLUMN_BUCKETS_MAX`] bucket counts: fewer rows must share a column.
    TooManyBuckets,
}

impl std::fmt::Display for EncodeError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CountsDoNotFit => write!(formatter, "number of bucket counts differs from the spans' buckets"),
            Self::TooManyBuckets => write!(formatter, "more than {COLUMN_BUCKETS_MAX} bucket counts for one column"),
        }
    }
}

impl std::error::Error for EncodeError {}

/// Appends one histogram in bytes that need no others, as log records hold it: a column of one row.
pub fn encode_row(value: &Histogram, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    encode_with(std::slice::from_ref(value), Effort::Fast, out)
}

/// Takes what [`encode_row`] appended.
pub fn decode_row(reader: &mut Reader<'_>) -> Result<Histogram, DecodeError> {
    let missing = reader.error("histogram missing");
    decode(reader, 1)?.pop().ok_or(missing)
}

/// Appends a column of rows that are given as [`encode_row`] made them. As many as may share a column do; so a varint number of
/// columns comes first, then of each the varint number of its rows.
pub fn encode_rows<'a>(rows: impl Iterator<Item = &'a [u8]>, effort: Effort, out: &mut Vec<u8>) {
    let mut columns: Vec<(Vec<Histogram>, usize)> = Vec::new();
    for row in rows.filter_map(|bytes| decode_row(&mut Reader::new(bytes)).ok()) {
        let weight = row_weight(&row.layout);
        match columns.last_mut().filter(|(_, buckets)| buckets + weight <= COLUMN_BUCKETS_MAX) {
            Some((values, buckets)) => {
                values.push(row);
                *buckets += weight;
            }
            None => columns.push((vec![row], weight)),
        }
    }
    varint::push(out, columns.len() as u64);
    for (values, _) in &columns {
        varint::push(out, values.len() as u64);
        // Each was a column of its own, and together they are within the bound: it cannot fail.
        let _ = encode_with(values, effort, out);
    }
}

/// Takes what [`encode_rows`] appended, for so many rows; each again in the bytes of [`encode_row`].
pub fn decode_rows(reader: &mut Reader<'_>, count: usize) -> Result<Vec<Vec<u8>>, DecodeError> {
    let columns = reader.length(count)?;
    let mut rows = Vec::new();
    for _ in 0..columns {
        let values = reader.length(count - rows.len())?;
        for value in decode(reader, values)? {
            let mut bytes = Vec::new();
            encode_row(&value, &mut bytes).map_err(|_| reader.error("counts do not fit the layout"))?;
            rows.push(bytes);
        }
    }
    if rows.len() == count { Ok(rows) } else { Err(reader.error("histograms missing")) }
}

/// Appends the column to `out`.
pub fn encode_with(values: &[Histogram], effort: Effort, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if values.is_empty() {
        return Ok(());
    }
    let mut buckets = 0;
    for value in values {
        let (positive, negative) = match &value.counts {
            Counts::Integer(counts) => (counts.positive.len(), counts.negative.len()),
            Counts::Float(counts) => (counts.positive.len(), counts.negative.len()),
        };
        if (positive, negative) != (value.layout.positive_buckets(), value.layout.negative_buckets()) {
            return Err(EncodeError::CountsDoNotFit);
        }
        buckets += row_weight(&value.layout);
        if buckets > COLUMN_BUCKETS_MAX {
            return Err(EncodeError::TooManyBuckets);
        }
    }
    let (layouts, places) = distinct_layouts(values);
    out.push(BY_LAYOUT);
    varint::push(out, layouts.len() as u64);
    for value in &layouts {
        encode_layout(value, effort, out);
    }
    integer::encode_with(&places, effort, out);
    let hints: Vec<i64> = values.iter().map(|value| i64::from(value.hint)).collect();
    integer::encode_with(&hints, effort, out);
    let sums: Vec<f64> = values.iter().map(|value| value.sum).collect();
    float::encode_with(&sums, effort, out);
    for place in 0..layouts.len() {
        let rows = values.iter().zip(&places).filter(|(_, of)| **of == place as i64).map(|(value, _)| value);
        let (mut integers, mut floats) = (Vec::new(), Vec::new());
        rows.for_each(|row| match &row.counts {
            Counts::Integer(counts) => integers.push(counts),
            Counts::Float(counts) => floats.push(counts),
        });
        encode_counts(&integers, out, |values, out| {
            integer::encode_with(&values.iter().map(|value| *value as i64).collect::<Vec<_>>(), effort, out);
        });
        encode_counts(&floats, out, |values, out| float::encode_with(values, effort, out));
    }
    Ok(())
}

/// What a row of a layout adds to the bounded number of buckets; a row without buckets is no smaller than one with.
fn row_weight(layout: &Layout) -> usize {
    layout.positive_buckets().saturating_add(layout.negative_buckets()).max(1)
}

/// A value of each different layout and form, and which of them each row has.
fn distinct_layouts(values: &[Histogram]) -> (Vec<&Histogram>, Vec<i64>) {
    let same = |left: &Histogram, right: &Histogram| {
        let form = |value: &Histogram| matches!(value.counts, Counts::Float(_));
        form(left) == form(right)
            && (Arc::ptr_eq(&left.layout, &right.layout) || layout_bytes(left) == layout_bytes(right))
    };
    let mut layouts: Vec<&Histogram> = Vec::new();
    let mut places = Vec::with_capacity(values.len());
    let mut by_bytes = std::collections::HashMap::new();
    let mut last: Option<(&Histogram, usize)> = None;
    for value in values {
        let place = match last {
            Some((before, place)) if same(before, value) => place,
            _ => *by_bytes.entry(layout_bytes(value)).or_insert_with(|| {
                layouts.push(value);
                layouts.len() - 1
            }),
        };
        last = Some((value, place));
        places.push(place as i64);
    }
    (layouts, places)
}

fn layout_bytes(value: &Histogram) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_layout(value, Effort::Fast, &mut bytes);
    bytes
}

fn encode_layout(value: &Histogram, effort: Effort, out: &mut Vec<u8>) {
    let layout = &value.layout;
    out.push(u8::from(matches!(value.counts, Counts::Float(_))));
    varint::push_signed(out, i64::from(layout.schema));
    out.extend_from_slice(&layout.zero_threshold.to_bits().to_le_bytes());
    for spans in [&layout.positive_spans, &layout.negative_spans] {
        varint::push(out, spans.len() as u64);
        for (offset, length) in spans {
            varint::push_signed(out, i64::from(*offset));
            varint::push(out, u64::from(*length));
        }
    }
    varint::push(out, layout.custom_bounds.len() as u64);
    float::encode_with(&layout.custom_bounds, effort, out);
}

fn encode_counts<T: Copy>(rows: &[&CountsOf<T>], out: &mut Vec<u8>, encode: impl Fn(&[T], &mut Vec<u8>)) {
    let Some(first) = rows.first() else {
        return;
    };
    let column = |value: fn(&CountsOf<T>) -> T| rows.iter().map(|row| value(row)).collect::<Vec<T>>();
    encode(&column(|row| row.count), out);
    encode(&column(|row| row.zero_count), out);
    let positive = first.positive.len();
    let buckets: Vec<usize> = (0..positive + first.negative.len()).collect();
    for shared in buckets.chunks(buckets_of_column(rows.len())) {
        let bucket = |row: &CountsOf<T>, bucket: usize| {
            if bucket < positive { row.positive[bucket] } else { row.negative[bucket - positive] }
        };
        let values: Vec<T> = shared.iter().flat_map(|place| rows.iter().map(|row| bucket(row, *place))).collect();
        encode(&values, out);
    }
}

/// How many buckets of so many rows share a column.
const fn buckets_of_column(rows: usize) -> usize {
    if rows >= SHARED_VALUES_MAX { 1 } else { SHARED_VALUES_MAX / rows }
}

/// Takes a column of so many values.
pub fn decode(reader: &mut Reader<'_>, count: usize) -> Result<Vec<Histogram>, DecodeError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if count > COLUMN_VALUES_MAX {
        return Err(reader.error("more values than a column may hold"));
    }
    if reader.byte()? != BY_LAYOUT {
        return Err(reader.error("unknown histogram scheme"));
    }
    let number = reader.length(count)?;
    let mut bounds_left = COLUMN_VALUES_MAX;
    let mut layouts = Vec::new();
    for _ in 0..number {
        layouts.push(decode_layout(reader, &mut bounds_left)?);
    }
    let (mut places, mut hints, mut sums) = (Vec::new(), Vec::new(), Vec::new());
    integer::decode(reader, count, &mut places)?;
    integer::decode(reader, count, &mut hints)?;
    float::decode(reader, count, &mut sums)?;
    let rows = rows_by_layout(reader, &layouts, &places)?;
    let mut counts: Vec<Option<Counts>> = (0..count).map(|_| None).collect();
    for ((is_float, layout), rows) in layouts.iter().zip(&rows) {
        let decoded = decode_layout_counts(reader, layout, *is_float, rows.len())?;
        rows.iter().zip(decoded).for_each(|(row, decoded)| counts[*row] = Some(decoded));
    }
    let damaged = reader.error("damaged histogram");
    let histogram = |(((place, hint), sum), counts): (((&i64, &i64), &f64), Option<Counts>)| {
        let (_, layout) = layouts.get(usize::try_from(*place).ok()?)?;
        let hint = u8::try_from(*hint).ok()?;
        Some(Histogram { layout: Arc::clone(layout), hint, sum: *sum, counts: counts? })
    };
    let values: Option<Vec<Histogram>> = places.iter().zip(&hints).zip(&sums).zip(counts).map(histogram).collect();
    values.ok_or(damaged)
}

/// Which rows each layout has, after all their buckets were found to be within the bound.
fn rows_by_layout(
    reader: &Reader<'_>,
    layouts: &[(bool, Arc<Layout>)],
    places: &[i64],
) -> Result<Vec<Vec<usize>>, DecodeError> {
    let mut rows = vec![Vec::new(); layouts.len()];
    let mut buckets = 0usize;
    for (row, place) in places.iter().enumerate() {
        let place = usize::try_from(*place).unwrap_or(usize::MAX);
        let (Some(rows), Some((_, layout))) = (rows.get_mut(place), layouts.get(place)) else {
            return Err(reader.error("layout that is not there"));
        };
        rows.push(row);
        buckets = buckets.saturating_add(row_weight(layout));
    }
    if buckets > COLUMN_BUCKETS_MAX { Err(reader.error("more buckets than a column may hold")) } else { Ok(rows) }
}

/// Whether its counts are fractions, and the layout.
fn decode_layout(reader: &mut Reader<'_>, bounds_left: &mut usize) -> Result<(bool, Arc<Layout>), DecodeError> {
    let is_float = reader.byte()? != 0;
    let schema = i8::try_from(reader.varint_signed()?).map_err(|_| reader.error("no such histogram schema"))?;
    let zero_threshold = f64::from_bits(reader.u64()?);
    let mut spans = [Vec::new(), Vec::new()];
    for spans in &mut spans {
        for _ in 0..reader.length(reader.rest().len())? {
            let offset = i32::try_from(reader.varint_signed()?).map_err(|_| reader.error("span too far away"))?;
            let length = u32::try_from(reader.varint()?).map_err(|_| reader.error("span too long"))?;
            spans.push((offset, length));
        }
    }
    let bounds = reader.length(*bounds_left)?;
    *bounds_left -= bounds;
    let mut custom_bounds = Vec::new();
    float::decode(reader, bounds, &mut custom_bounds)?;
    let [positive_spans, negative_spans] = spans;
    let layout = Layout { schema, zero_threshold, positive_spans, negative_spans, custom_bounds };
    Ok((is_float, Arc::new(layout)))
}

fn decode_layout_counts(
    reader: &mut Reader<'_>,
    layout: &Layout,
    is_float: bool,
    rows: usize,
) -> Result<Vec<Counts>, DecodeError> {
    if is_float {
        let counts = decode_counts(reader, layout, rows, float::decode)?;
        return Ok(counts.into_iter().map(Counts::Float).collect());
    }
    let counts = decode_counts(reader, layout, rows, |reader, count, values| {
        let mut integers = Vec::new();
        integer::decode(reader, count, &mut integers)?;
        values.extend(integers.iter().map(|value| *value as u64));
        Ok(())
    })?;
    Ok(counts.into_iter().map(Counts::Integer).collect())
}

fn decode_counts<T: Copy>(
    reader: &mut Reader<'_>,
    layout: &Layout,
    rows: usize,
    decode: impl Fn(&mut Reader<'_>, usize, &mut Vec<T>) -> Result<(), DecodeError>,
) -> Result<Vec<CountsOf<T>>, DecodeError> {
    if rows == 0 {
        return Ok(Vec::new());
    }
    let (mut count, mut zero_count) = (Vec::new(), Vec::new());
    decode(reader, rows, &mut count)?;
    decode(reader, rows, &mut zero_count)?;
    let positive = layout.positive_buckets();
    let buckets = positive + layout.negative_buckets();
    let counts = |(count, zero_count)| CountsOf { count, zero_count, positive: Vec::new(), negative: Vec::new() };
    let mut counts: Vec<CountsOf<T>> = count.into_iter().zip(zero_count).map(counts).collect();
    let mut done = 0;
    while done < buckets {
        let shared = buckets_of_column(rows).min(buckets - done);
        let mut values = Vec::new();
        decode(reader, shared * rows, &mut values)?;
        for (bucket, values) in (done..).zip(values.chunks_exact(rows)) {
            for (row, value) in counts.iter_mut().zip(values) {
                if bucket < positive { row.positive.push(*value) } else { row.negative.push(*value) }
            }
        }
        done += shared;
    }
    Ok(counts)
}

#[cfg(test)]
#[path = "histogram/tests.rs"]
mod tests;

//! Accumulators of the values in bins of time.

use std::collections::HashSet;

use model::{Cell, Column, Summary, ValueType, Values};

use super::points::{self, PointOrder};
use crate::plan::{Aggregate, PartColumns};
use crate::sketch::{DistinctSketch, QuantileSketch, Sketch, SketchKind, text_hash};
use crate::statistics::{self, ValueMoments};
use crate::{Budget, Frame, QueryError, SAMPLE_BYTES, Value};

/// Bins by their start, of one column of one series. Most come in order, or where others are already: they stand in one piece of memory, for a
/// tree has room for many where there are few.
#[derive(Debug, Clone, Default)]
pub(super) struct Bins {
    /// In order, none twice.
    sorted: Vec<(i64, Bin)>,
    /// As they came, some of them twice: what belongs between others is put there many at once.
    late: Vec<(i64, Bin)>,
    /// The samples that their sketches and the values that they keep take out of a budget.
    held_samples: usize,
}

impl Bins {
    /// Bins that come one by one before all are put in their places.
    const LATE_MIN: usize = 64;

    /// None, with room for some.
    pub(super) fn with_capacity(bins: usize) -> Self {
        Self { sorted: Vec::with_capacity(bins), ..Self::default() }
    }

    /// Adds a bin to what is there.
    pub(super) fn add(&mut self, start_ns: i64, bin: Bin) {
        // Mostly the last one, or one after it.
        self.put(start_ns, bin, self.sorted.len().saturating_sub(1));
    }

    /// Adds bins to others of the same column; series may differ in type.
    pub(super) fn merge(&mut self, more: Self) {
        if self.is_empty() {
            *self = more;
            return;
        }
        let mut place = 0;
        for (start_ns, bin) in more.sorted.into_iter().chain(more.late) {
            // Mostly the next one: both have the same bins.
            place = self.put(start_ns, bin, place) + 1;
        }
    }

    /// Adds a bin, which may be at a place; where it is, or would be.
    fn put(&mut self, start_ns: i64, bin: Bin, expected: usize) -> usize {
        let is_earlier = |(known_ns, _): &(i64, Bin)| *known_ns < start_ns;
        let place = match self.sorted.get(expected) {
            Some((known_ns, _)) if *known_ns == start_ns => expected,
            Some((known_ns, _)) if *known_ns < start_ns && expected + 1 == self.sorted.len() => expected + 1,
            _ => self.sorted.partition_point(is_earlier),
        };
        match self.sorted.get_mut(place) {
            Some((known_ns, known)) if *known_ns == start_ns => {
                let before = known.held_samples();
                known.merge(bin);
                self.held_samples = (self.held_samples + known.held_samples()).saturating_sub(before);
            }
            None => {
                self.held_samples += bin.held_samples();
                self.sorted.push((start_ns, bin));
            }
            Some(_) => {
                self.held_samples += bin.held_samples();
                self.late.push((start_ns, bin));
                if self.late.len() >= Self::LATE_MIN.max(self.sorted.len() / 4) {
                    self.settle();
                }
            }
        }
        place
    }

    /// Puts everything in its place.
    fn settle(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let mut all = std::mem::take(&mut self.sorted);
        all.append(&mut self.late);
        self.held_samples = 0;
        // What is equal stays in the order in which it came.
        all.sort_by_key(|(start_ns, _)| *start_ns);
        all.into_iter().for_each(|(start_ns, bin)| self.add(start_ns, bin));
    }

    /// The samples that their sketches and the values that they keep take out of a budget.
    pub(super) const fn held_samples(&self) -> usize {
        self.held_samples
    }

    /// The samples that a sketch takes at most that is added at the end.
    fn samples_wanted(&self, start_ns: i64, sketch: &Sketch) -> usize {
        match (self.sorted.last(), sketch) {
            (Some((known_ns, Bin::Sketch { sketch: known, .. })), sketch) if *known_ns == start_ns => {
                samples_of(known.merge_bytes(sketch)) + 1
            }
            (_, sketch) => sketch.samples(),
        }
    }

    /// All of them, in order.
    pub(super) fn into_sorted(mut self) -> Vec<(i64, Bin)> {
        self.settle();
        self.sorted
    }

    /// All of them, in any order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(i64, Bin)> {
        self.sorted.iter().chain(&self.late)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

/// The accumulator of a bin.
#[derive(Debug, Clone)]
pub(super) enum Bin {
    /// Numbers; booleans as 0 and 1.
    Numbers {
        summary: Summary,
        /// All values, if an aggregate needs them.
        values: Vec<f64>,
        is_bool: bool,
    },
    /// Of rows that stand for several values each.
    Parts {
        moments: ValueMoments,
        /// The time of the first of them.
        first_ns: i64,
    },
    /// Values of which each is there once.
    Distinct {
        values: HashSet<DistinctValue>,
        /// The time of the first of them.
        first_ns: i64,
    },
    /// All values with their times; sorted once all are there.
    Points {
        points: Vec<(i64, Value)>,
        order: PointOrder,
        /// The time of the first of them.
        first_ns: i64,
    },
    /// Of sketches.
    Sketch {
        sketch: Sketch,
        /// The time of the first of them.
        first_ns: i64,
    },
    Texts {
        count: u64,
        first: (i64, String),
        last: (i64, String),
        min: String,
        max: String,
        /// The hashes of all values, if an aggregate needs them.
        hashes: Vec<u64>,
    },
}

/// A value that differs from others, in a column of one type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum DistinctValue {
    /// Of a number: the same bits for all that is equal.
    Number(u64),
    Text(Box<str>),
}

impl DistinctValue {
    /// The bytes of a value's place in a set that is half full, and of a piece of memory.
    const PLACE_BYTES: usize = 64;

    /// The samples that a value takes out of a budget, given the bytes of its text.
    pub(super) const fn samples(text_bytes: usize) -> usize {
        samples_of(Self::PLACE_BYTES + text_bytes)
    }
}

impl Aggregate {
    /// The kind of the sketches that it is made of.
    fn sketch_kind(self) -> SketchKind {
        match self.sketch() {
            Some(Self::DistinctSketch) => SketchKind::Distinct,
            Some(Self::Histogram(_) | Self::Histograms) => SketchKind::Histogram,
            _ => SketchKind::Quantiles,
        }
    }
}

impl Sketch {
    /// The samples that it takes out of a budget.
    fn samples(&self) -> usize {
        samples_of(self.memory_bytes())
    }

    fn value(&self, aggregate: Aggregate) -> Cell<'static> {
        match (self, aggregate) {
            (Self::Quantiles(sketch), Aggregate::ApproxQuantile(share)) => {
                sketch.quantile(share).map_or(Cell::Null, Cell::F64)
            }
            (Self::Distinct(sketch), Aggregate::ApproxDistinct) => Cell::I64(sketch.estimate() as i64),
            _ => Cell::Null,
        }
    }
}

/// Bytes as samples.
pub(super) const fn samples_of(bytes: usize) -> usize {
    bytes.div_ceil(SAMPLE_BYTES)
}

/// The bins of rows that stand for several values each.
pub(super) fn of_parts(frame: &Frame, parts: &PartColumns, start: &impl Fn(i64) -> i64) -> Bins {
    let mut bins = Bins::default();
    let columns = parts.names().map(|name| frame.columns.iter().find(|column| *column.name == *name));
    for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
        let [count, sum, squares] = columns.map(|column| column.and_then(|column| column.cell(row).number()));
        // Where there are values and something of them is missing, nothing is known.
        let [sum, squares] = [sum, squares].map(|number| number.unwrap_or(f64::NAN));
        if let Some(moments) = count.and_then(|count| ValueMoments::of_sum(count, sum, squares)) {
            bins.add(start(*time_ns), Bin::Parts { moments, first_ns: *time_ns });
        }
    }
    bins
}

/// The bins of a column of sketches, which are taken out of a budget: the caller gives back what [`Bins::held_samples`] says.
pub(super) fn of_sketches(
    frame: &Frame,
    (name, aggregate): (&str, Aggregate),
    start: &impl Fn(i64) -> i64,
    budget: &Budget,
) -> Result<Bins, QueryError> {
    let mut bins = Bins::default();
    let Some(column) = frame.columns.iter().find(|column| *column.name == *name) else { return Ok(bins) };
    for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
        let text = match column.cell(row) {
            Cell::Null => continue,
            Cell::Text(text) => text,
            other => {
                let message = format!("the column {name:?} holds a {}, not sketches", other.kind());
                return Err(QueryError::Execution(message));
            }
        };
        let read = Sketch::decode(aggregate.sketch_kind(), text);
        let sketch = read.map_err(|reason| QueryError::Execution(format!("the column {name:?}: {reason}")))?;
        let start_ns = start(*time_ns);
        let (wanted, before) = (bins.samples_wanted(start_ns, &sketch), bins.held_samples);
        budget.take(wanted)?;
        bins.add(start_ns, Bin::Sketch { sketch, first_ns: *time_ns });
        budget.give_back((wanted + before).saturating_sub(bins.held_samples));
    }
    Ok(bins)
}

/// The bins of a column of so many rows, whose values are taken out of a budget before they are made if bins keep them.
pub(super) fn within_budget(
    rows: usize,
    keeps: bool,
    budget: &Budget,
    make: impl FnOnce() -> Bins,
) -> Result<Bins, QueryError> {
    // Half as many, and a part of one for each bin.
    let wanted = if keeps { rows } else { 0 };
    budget.take(wanted)?;
    let bins = make();
    budget.give_back(wanted.saturating_sub(bins.held_samples()));
    Ok(bins)
}

impl Aggregate {
    /// Returns whether the summaries of a column's folds have it.
    pub(super) const fn is_of_folds(self, column: &Column) -> bool {
        match column.values {
            Values::F64(_) | Values::I64(_) | Values::U64(_) => self.from_summaries(),
            Values::Bool(_) | Values::Text(_) => matches!(self, Self::Count | Self::Last),
        }
    }
}

impl Bin {
    pub(super) fn of_text(time_ns: i64, text: &str, (count, keeps_values): (u64, bool)) -> Self {
        let at = || (time_ns, text.to_owned());
        let hashes = if keeps_values { vec![text_hash(text)] } else { Vec::new() };
        Self::Texts { count, first: at(), last: at(), min: text.to_owned(), max: text.to_owned(), hashes }
    }

    /// A field has one type in all groups of a table, so that texts and numbers do not meet but where labels are dropped from
    /// series of several metrics: then numbers stay.
    fn merge(&mut self, other: Self) {
        match (self, other) {
            (
                Self::Numbers { summary, values, is_bool },
                Self::Numbers { summary: mut other, values: more, is_bool: other_bool },
            ) => {
                if summary.value_type != other.value_type {
                    *summary = summary.as_floats();
                    other = other.as_floats();
                }
                summary.merge_unordered(&other);
                values.extend(more);
                *is_bool &= other_bool;
            }
            (
                Self::Texts { count, first, last, min, max, hashes },
                Self::Texts {
                    count: more,
                    first: other_first,
                    last: other_last,
                    min: other_min,
                    max: other_max,
                    hashes: more_hashes,
                },
            ) => {
                *count += more;
                hashes.extend(more_hashes);
                // Of texts of one time the larger counts, as of numbers.
                if other_first.0 < first.0 || other_first.0 == first.0 && other_first.1 > first.1 {
                    *first = other_first;
                }
                if other_last.0 > last.0 || other_last.0 == last.0 && other_last.1 > last.1 {
                    *last = other_last;
                }
                if other_min < *min {
                    *min = other_min;
                }
                if other_max > *max {
                    *max = other_max;
                }
            }
            (Self::Parts { moments, first_ns }, Self::Parts { moments: more, first_ns: other_ns }) => {
                moments.merge(&more);
                *first_ns = (*first_ns).min(other_ns);
            }
            (texts @ Self::Texts { .. }, numbers @ Self::Numbers { .. }) => *texts = numbers,
            (Self::Sketch { sketch, first_ns }, Self::Sketch { sketch: more, first_ns: other_ns }) => {
                sketch.merge(&more);
                *first_ns = (*first_ns).min(other_ns);
            }
            (Self::Distinct { values, first_ns }, Self::Distinct { values: more, first_ns: other_ns }) => {
                values.extend(more);
                *first_ns = (*first_ns).min(other_ns);
            }
            (Self::Points { points, first_ns, .. }, Self::Points { points: more, first_ns: other_ns, .. }) => {
                points::merge(points, more);
                *first_ns = (*first_ns).min(other_ns);
            }
            // Parts, sketches, sets and points have names that no column has.
            (
                Self::Numbers { .. }
                | Self::Texts { .. }
                | Self::Parts { .. }
                | Self::Sketch { .. }
                | Self::Distinct { .. }
                | Self::Points { .. },
                _,
            ) => {}
        }
    }

    pub(super) fn first_ns(&self) -> i64 {
        match self {
            Self::Numbers { summary, .. } => summary.first.0,
            Self::Texts { first, .. } => first.0,
            Self::Parts { first_ns, .. }
            | Self::Sketch { first_ns, .. }
            | Self::Distinct { first_ns, .. }
            | Self::Points { first_ns, .. } => *first_ns,
        }
    }

    fn held_samples(&self) -> usize {
        match self {
            Self::Sketch { sketch, .. } => sketch.samples(),
            Self::Numbers { values, .. } => samples_of(size_of_val(values.as_slice())),
            Self::Texts { hashes, .. } => samples_of(size_of_val(hashes.as_slice())),
            Self::Distinct { values, .. } => {
                let text_bytes = |value: &DistinctValue| match value {
                    DistinctValue::Number(_) => 0,
                    DistinctValue::Text(text) => text.len(),
                };
                values.iter().map(|value| DistinctValue::samples(text_bytes(value))).sum()
            }
            Self::Points { points, .. } => points.iter().map(|(_, value)| points::samples(value)).sum(),
            Self::Parts { .. } => 0,
        }
    }

    /// The samples of the text of the sketch that an aggregate makes of it, at most.
    pub(super) fn text_samples_max(&self, aggregate: Aggregate) -> usize {
        let is_distinct = aggregate == Aggregate::DistinctSketch;
        samples_of(match self {
            Self::Numbers { values, .. } if is_distinct => DistinctSketch::text_bytes_max(values.len()),
            Self::Numbers { values, .. } => QuantileSketch::text_bytes_max(values.len()),
            Self::Texts { hashes, .. } if is_distinct => DistinctSketch::text_bytes_max(hashes.len()),
            Self::Sketch { sketch: Sketch::Quantiles(sketch), .. } => sketch.own_text_bytes_max(),
            Self::Sketch { sketch: Sketch::Distinct(_), .. } => DistinctSketch::MEMORY_BYTES,
            Self::Sketch { sketch: Sketch::Histogram(histogram), .. } => histogram.own_text_bytes_max(),
            Self::Parts { .. } | Self::Texts { .. } | Self::Distinct { .. } | Self::Points { .. } => 0,
        })
    }

    /// Sorts the collected values, for quantiles, ranks and lines.
    pub(super) fn sort(&mut self) {
        match self {
            Self::Numbers { values, .. } => statistics::sort(values),
            Self::Points { points, order, .. } => order.sort(points),
            _ => {}
        }
    }

    /// The sketch of its values that an aggregate is, as text; `None` of texts if it is of numbers. Fails of histograms that cannot be put together.
    pub(super) fn sketch_text(&self, aggregate: Aggregate) -> Result<Option<String>, String> {
        Ok(match (self, aggregate) {
            (Self::Numbers { values, .. }, Aggregate::DistinctSketch) => {
                Some(DistinctSketch::of_numbers(values).encode())
            }
            (Self::Numbers { values, .. }, _) => Some(QuantileSketch::of_numbers(values).encode()),
            (Self::Texts { hashes, .. }, Aggregate::DistinctSketch) => Some(DistinctSketch::of_hashes(hashes).encode()),
            (Self::Sketch { sketch: Sketch::Quantiles(sketch), .. }, _) => Some(sketch.encode()),
            (Self::Sketch { sketch: Sketch::Distinct(sketch), .. }, _) => Some(sketch.encode()),
            (Self::Sketch { sketch: Sketch::Histogram(histogram), .. }, _) => Some(histogram.encode()?),
            (Self::Parts { .. } | Self::Texts { .. } | Self::Distinct { .. } | Self::Points { .. }, _) => None,
        })
    }

    pub(super) fn value(&self, aggregate: Aggregate) -> Cell<'_> {
        match self {
            Self::Numbers { summary, values, is_bool } => number_value(aggregate, summary, values, *is_bool),
            Self::Parts { moments, .. } => {
                aggregate.of_squares(moments.count, moments.squares).map_or(Cell::Null, Cell::F64)
            }
            Self::Sketch { sketch, .. } => sketch.value(aggregate),
            Self::Distinct { values, .. } => Cell::I64(values.len() as i64),
            Self::Points { points, .. } => points::value(points, aggregate),
            Self::Texts { count, first, last, min, max, hashes } => match aggregate {
                Aggregate::ApproxDistinct => Cell::I64(DistinctSketch::of_hashes(hashes).estimate() as i64),
                Aggregate::Count => Cell::I64(*count as i64),
                Aggregate::First => Cell::Text(&first.1),
                Aggregate::Last => Cell::Text(&last.1),
                Aggregate::Min => Cell::Text(min),
                Aggregate::Max => Cell::Text(max),
                _ => Cell::Null,
            },
        }
    }
}

fn number_value(aggregate: Aggregate, summary: &Summary, values: &[f64], is_bool: bool) -> Cell<'static> {
    let typed = |bits: u64| match summary.value_type {
        ValueType::I64 => Cell::I64(bits as i64),
        ValueType::U64 => Cell::U64(bits),
        _ if is_bool => Cell::Bool(f64::from_bits(bits) > 0.0),
        _ => Cell::F64(f64::from_bits(bits)),
    };
    match aggregate {
        Aggregate::Min => typed(summary.min),
        Aggregate::Max => typed(summary.max),
        Aggregate::First => typed(summary.first.1),
        Aggregate::Last => typed(summary.last.1),
        Aggregate::Count | Aggregate::OffMilliseconds => Cell::I64(summary.count as i64),
        Aggregate::Avg => Cell::F64(summary.total() / summary.count as f64),
        Aggregate::Sum => match summary.value_type {
            ValueType::I64 | ValueType::U64 => {
                i64::try_from(summary.sum_integer).map_or(Cell::F64(summary.total()), Cell::I64)
            }
            _ => Cell::F64(summary.total()),
        },
        Aggregate::Stddev
        | Aggregate::StddevSample
        | Aggregate::Variance
        | Aggregate::VarianceSample
        | Aggregate::Squares => {
            let squares = statistics::squared_deviations(values);
            aggregate.of_squares(values.len() as f64, squares).map_or(Cell::Null, Cell::F64)
        }
        Aggregate::ApproxQuantile(share) => {
            QuantileSketch::of_numbers(values).quantile(share).map_or(Cell::Null, Cell::F64)
        }
        Aggregate::ApproxDistinct => Cell::I64(DistinctSketch::of_numbers(values).estimate() as i64),
        // Texts, which the bin makes ([`Bin::sketch_text`]), and what has bins of its own ([`Bin::Distinct`], [`Bin::Points`]).
        Aggregate::QuantileSketch
        | Aggregate::DistinctSketch
        | Aggregate::Histogram(_)
        | Aggregate::Histograms
        | Aggregate::CountDistinct
        | Aggregate::NearestRank(_)
        | Aggregate::Mode
        | Aggregate::Integral { .. } => Cell::Null,
        // The numbers are what was gained from one value to the next.
        Aggregate::Increase => Cell::F64(summary.total()),
        Aggregate::Quantile(share) => Cell::F64(statistics::quantile(values, share).unwrap_or(f64::NAN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bins that come in any order are those that come in order of time.
    #[test]
    fn bins_come_in_any_order() {
        let mut chance = 1u64;
        let mut next = |below: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) % below
        };
        for starts_max in [3, 40, 5000] {
            let (mut bins, mut expected) = (Bins::default(), std::collections::BTreeMap::<i64, (u64, i64)>::new());
            for number in 0..600 {
                let mut starts: Vec<i64> = (0..=next(5)).map(|_| next(starts_max) as i64).collect();
                starts.sort_unstable();
                let mut more = Bins::default();
                for start_ns in starts {
                    let text = number.to_string();
                    more.add(start_ns, Bin::of_text(number, &text, (1, false)));
                    let (count, first) = expected.entry(start_ns).or_insert((0, number));
                    (*count, *first) = (*count + 1, number.min(*first));
                }
                if number % 7 == 0 {
                    more.iter().for_each(|(start_ns, bin)| bins.add(*start_ns, bin.clone()));
                } else {
                    bins.merge(more);
                }
            }
            let found = bins.into_sorted().into_iter().map(|(start_ns, bin)| {
                let Bin::Texts { count, first, .. } = bin else { panic!("texts") };
                (start_ns, (count, first.0))
            });
            assert_eq!(found.collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>(), "{starts_max}");
        }
    }
}

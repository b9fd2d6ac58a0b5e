//! Columns of native histograms: layouts that many samples share, and the samples.

use std::ops::Range;
use std::sync::Arc;

use capnp::struct_list;
use model::NativeHistogram;
use model::histogram::{BucketSpan, CounterReset, Counts, HistogramCounts, HistogramLayout};

use super::wire_capnp::{float_counts, histogram, histogram_layout, histograms, integer_counts, span};
use super::{WireError, list_length};

/// A column, read in place; its layouts once.
pub(super) struct Column<'a> {
    layouts: Vec<Arc<HistogramLayout>>,
    samples: struct_list::Reader<'a, histogram::Owned>,
}

impl<'a> Column<'a> {
    pub(super) fn new(column: histograms::Reader<'a>) -> Result<Self, WireError> {
        let layouts = column.get_layouts()?.iter().map(read_layout).collect::<Result<_, WireError>>()?;
        Ok(Self { layouts, samples: column.get_samples()? })
    }

    pub(super) fn len(&self) -> u32 {
        self.samples.len()
    }

    /// Appends the histograms of a stretch; a cell of one is its place among all of them. Rows without a value are passed over.
    pub(super) fn read<'c>(
        &self,
        stretch: &Range<usize>,
        is_present: impl Fn(usize) -> bool,
        into: impl Iterator<Item = &'c mut u64>,
        out: &mut Vec<NativeHistogram>,
    ) -> Result<(), WireError> {
        for (cell, row) in into.zip(stretch.clone()).filter(|(_, row)| is_present(*row)) {
            let value = self.value(self.samples.get(row as u32));
            *cell = out.len() as u64;
            out.push(value.map_err(|error| WireError(format!("row {row}: {}", error.0)))?);
        }
        Ok(())
    }

    fn value(&self, sample: histogram::Reader<'a>) -> Result<NativeHistogram, WireError> {
        let place = sample.get_layout() as usize;
        let layout = self.layouts.get(place);
        let layout = layout.ok_or_else(|| WireError(format!("a histogram of layout {place}, which there is not")))?;
        let reset = sample.get_counter_reset();
        let counter_reset = CounterReset::from_number(reset);
        let value = NativeHistogram {
            layout: Arc::clone(layout),
            counter_reset: counter_reset.ok_or_else(|| WireError(format!("there is no counter reset {reset}")))?,
            sum: sample.get_sum(),
            counts: match sample.which()? {
                histogram::Integers(counts) => HistogramCounts::Integer(read_integers(counts?)?),
                histogram::Floats(counts) => HistogramCounts::Float(read_floats(counts?)?),
            },
        };
        let value = value.with_known_schema();
        value.validate().map_err(|invalid| WireError(invalid.to_string()))?;
        value.check_counts().map_err(WireError)?;
        Ok(value)
    }
}

fn read_layout(layout: histogram_layout::Reader<'_>) -> Result<Arc<HistogramLayout>, WireError> {
    Ok(Arc::new(HistogramLayout {
        schema: layout.get_schema(),
        zero_threshold: layout.get_zero_threshold(),
        positive_spans: read_spans(layout.get_positive_spans()?),
        negative_spans: read_spans(layout.get_negative_spans()?),
        custom_bounds: layout.get_custom_bounds()?.iter().collect(),
    }))
}

fn read_spans(spans: struct_list::Reader<'_, span::Owned>) -> Vec<BucketSpan> {
    spans.iter().map(|span| BucketSpan { offset: span.get_offset(), length: span.get_length() }).collect()
}

fn read_integers(counts: integer_counts::Reader<'_>) -> Result<Counts<u64>, WireError> {
    Ok(Counts {
        count: counts.get_count(),
        zero_count: counts.get_zero_count(),
        positive: counts.get_positive()?.iter().collect(),
        negative: counts.get_negative()?.iter().collect(),
    })
}

fn read_floats(counts: float_counts::Reader<'_>) -> Result<Counts<f64>, WireError> {
    Ok(Counts {
        count: counts.get_count(),
        zero_count: counts.get_zero_count(),
        positive: counts.get_positive()?.iter().collect(),
        negative: counts.get_negative()?.iter().collect(),
    })
}

/// Bytes that a column takes, about.
pub(super) fn size_bytes(values: &[NativeHistogram]) -> usize {
    let buckets = |value: &NativeHistogram| value.layout.positive_buckets() + value.layout.negative_buckets();
    let layouts = shared_layouts(values).0.len();
    let of_layouts: usize = values.iter().take(layouts).map(|value| 8 * value.layout.custom_bounds.len()).sum();
    values.iter().map(|value| 8 * buckets(value) + 96).sum::<usize>() + of_layouts
}

/// The layouts, one after another as long as it is another than before, and the one of each value.
fn shared_layouts(values: &[NativeHistogram]) -> (Vec<&Arc<HistogramLayout>>, Vec<u32>) {
    let mut layouts: Vec<&Arc<HistogramLayout>> = Vec::new();
    let mut places = Vec::with_capacity(values.len());
    for value in values {
        let is_same = |last: &&Arc<HistogramLayout>| Arc::ptr_eq(last, &value.layout) || **last == value.layout;
        if !layouts.last().is_some_and(is_same) {
            layouts.push(&value.layout);
        }
        places.push(layouts.len().saturating_sub(1) as u32);
    }
    (layouts, places)
}

/// Writes a column.
pub(super) fn push(mut out: histograms::Builder<'_>, values: &[NativeHistogram]) -> Result<(), WireError> {
    let (layouts, places) = shared_layouts(values);
    let mut list = out.reborrow().init_layouts(list_length(layouts.len())?);
    for (place, layout) in (0..).zip(layouts) {
        push_layout(list.reborrow().get(place), layout)?;
    }
    let mut list = out.init_samples(list_length(values.len())?);
    for ((place, value), layout) in (0..).zip(values).zip(places) {
        let mut sample = list.reborrow().get(place);
        sample.set_layout(layout);
        sample.set_counter_reset(value.counter_reset as u8);
        sample.set_sum(value.sum);
        match &value.counts {
            HistogramCounts::Integer(counts) => {
                let mut out = sample.init_integers();
                out.set_count(counts.count);
                out.set_zero_count(counts.zero_count);
                out.set_positive(counts.positive.as_slice())?;
                out.set_negative(counts.negative.as_slice())?;
            }
            HistogramCounts::Float(counts) => {
                let mut out = sample.init_floats();
                out.set_count(counts.count);
                out.set_zero_count(counts.zero_count);
                out.set_positive(counts.positive.as_slice())?;
                out.set_negative(counts.negative.as_slice())?;
            }
        }
    }
    Ok(())
}

fn push_layout(mut out: histogram_layout::Builder<'_>, layout: &HistogramLayout) -> Result<(), WireError> {
    out.set_schema(layout.schema);
    out.set_zero_threshold(layout.zero_threshold);
    out.set_custom_bounds(layout.custom_bounds.as_slice())?;
    push_spans(out.reborrow().init_positive_spans(list_length(layout.positive_spans.len())?), &layout.positive_spans);
    push_spans(out.init_negative_spans(list_length(layout.negative_spans.len())?), &layout.negative_spans);
    Ok(())
}

fn push_spans(mut out: struct_list::Builder<'_, span::Owned>, spans: &[BucketSpan]) {
    for (place, BucketSpan { offset, length }) in (0..).zip(spans) {
        let mut span = out.reborrow().get(place);
        span.set_offset(*offset);
        span.set_length(*length);
    }
}

//! Prometheus's chunks of native histograms, `tsdb/docs/format/chunks.md`: a count in two bytes, what is known of a counter reset before the first
//! one in the two highest bits of the third, then bits, the highest first.
//!
//! ```text
//!  layout          threshold of the zero bucket · schema · spans of positive and negative buckets · custom bounds
//!  first sample    time · count · count of the zero bucket · sum · a number for each bucket
//!  others          by how much the distance of times differs · the same of all numbers, the sum as in `xor.rs`
//! ```
//!
//! Buckets of whole counts are differences to the one before; those of fractions are written as sums are. All histograms of a chunk have one
//! layout, and none but the first is below the one before.

use model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, CounterReset, Counts, HistogramCounts, HistogramLayout};
use model::{NativeHistogram, is_stale_bits};

use super::xor::{Bits, Xors};

/// Numbers of the encodings in `prometheus.Chunk`.
const INTEGERS: u64 = 2;
const FLOATS: u64 = 3;

/// How many of the first histograms make a chunk; one at least, if there are any.
pub(super) fn chunk_length(histograms: &[(i64, NativeHistogram)], most: usize) -> usize {
    let goes_on = |pair: &[(i64, NativeHistogram)]| matches!(pair, [(_, before), (_, now)] if follows(before, now));
    let pairs = histograms.windows(2).take_while(|pair| goes_on(pair)).count();
    (pairs + 1).min(most).min(histograms.len())
}

/// Whether a histogram may be in one chunk with the one before.
fn follows(before: &NativeHistogram, now: &NativeHistogram) -> bool {
    let is_gauge = |histogram: &NativeHistogram| histogram.counter_reset == CounterReset::Gauge;
    if is_stale(before) != is_stale(now) || is_gauge(before) != is_gauge(now) {
        return false;
    }
    // Readers of a chunk look for a reset before its first histogram only.
    let may_fall = is_stale(now) || is_gauge(now);
    let rises = match (&before.counts, &now.counts) {
        (HistogramCounts::Integer(before), HistogramCounts::Integer(now)) => may_fall || rises(before, now),
        (HistogramCounts::Float(before), HistogramCounts::Float(now)) => may_fall || rises(before, now),
        _ => false,
    };
    rises && now.counter_reset != CounterReset::Reset && (is_stale(now) || before.layout == now.layout)
}

fn rises<T: PartialOrd>(before: &Counts<T>, now: &Counts<T>) -> bool {
    let buckets = |counts: [&Vec<T>; 2]| counts[0].iter().zip(counts[1]).all(|(before, now)| before <= now);
    before.count <= now.count
        && before.zero_count <= now.zero_count
        && buckets([&before.positive, &now.positive])
        && buckets([&before.negative, &now.negative])
}

fn is_stale(histogram: &NativeHistogram) -> bool {
    is_stale_bits(histogram.sum)
}

/// The number of a chunk's encoding, and its bytes; of histograms that [`chunk_length`] counted.
pub(super) fn encode(histograms: &[(i64, NativeHistogram)]) -> (u64, Vec<u8>) {
    let Some((_, first)) = histograms.first() else { return (INTEGERS, Vec::new()) };
    let mut bits = Bits::default();
    bits.push(histograms.len() as u64, 16);
    let reset = match first.counter_reset {
        CounterReset::Unknown => 0b00,
        CounterReset::NoReset => 0b01,
        CounterReset::Reset => 0b10,
        CounterReset::Gauge => 0b11,
    };
    bits.push(reset << 6, 8);
    // A stale marker has no buckets.
    let empty = HistogramLayout::default();
    push_layout(&mut bits, if is_stale(first) { &empty } else { &first.layout });
    let encoding = match first.counts {
        HistogramCounts::Integer(_) => push_integers(&mut bits, histograms),
        HistogramCounts::Float(_) => push_floats(&mut bits, histograms),
    };
    (encoding, bits.bytes)
}

fn push_layout(bits: &mut Bits, layout: &HistogramLayout) {
    push_zero_threshold(bits, layout.zero_threshold);
    push_signed(bits, i64::from(layout.schema));
    for spans in [&layout.positive_spans, &layout.negative_spans] {
        push_unsigned(bits, spans.len() as u64);
        for BucketSpan { offset, length } in spans {
            push_unsigned(bits, u64::from(*length));
            push_signed(bits, i64::from(*offset));
        }
    }
    if layout.schema == CUSTOM_BUCKETS_SCHEMA {
        push_unsigned(bits, layout.custom_bounds.len() as u64);
        layout.custom_bounds.iter().for_each(|bound| push_bound(bits, *bound));
    }
}

/// Powers of two from 2^-243 to 2^10 have a byte of their own, and 0 has.
fn push_zero_threshold(bits: &mut Bits, threshold: f64) {
    const MANTISSA_BITS: u32 = 52;
    let raw = threshold.to_bits();
    let (exponent, mantissa) = (raw >> MANTISSA_BITS, raw & ((1 << MANTISSA_BITS) - 1));
    // As 0.5 × 2^e has it.
    let power = exponent as i64 - 1022;
    if threshold == 0.0 {
        bits.push(0, 8);
    } else if mantissa == 0 && (-242..=11).contains(&power) {
        bits.push((power + 243) as u64, 8);
    } else {
        bits.push(255, 8);
        bits.push(raw, 64);
    }
}

/// Thousandths from 0 on as a whole number, others as they are.
fn push_bound(bits: &mut Bits, bound: f64) {
    const THOUSANDTHS_MAX: f64 = 33_554_430.0;
    let thousandths = bound * 1000.0;
    let whole = thousandths.round();
    let is_whole = (0.0..=THOUSANDTHS_MAX).contains(&thousandths) && (whole / 1000.0).to_bits() == bound.to_bits();
    if is_whole {
        push_unsigned(bits, whole as u64 + 1);
    } else {
        bits.push(0, 1);
        bits.push(bound.to_bits(), 64);
    }
}

/// Numbers of which each is written by how much its step differs from the one before.
#[derive(Default)]
struct Steps {
    value: i64,
    step: i64,
}

impl Steps {
    fn push(&mut self, bits: &mut Bits, value: i64) {
        let step = value.wrapping_sub(self.value);
        push_signed(bits, step.wrapping_sub(self.step));
        (self.value, self.step) = (value, step);
    }

    /// From a number on that is written as it is.
    const fn from(value: i64) -> Self {
        Self { value, step: 0 }
    }
}

fn push_integers(bits: &mut Bits, histograms: &[(i64, NativeHistogram)]) -> u64 {
    let (mut time, mut count, mut zero_count) = (Steps::default(), Steps::default(), Steps::default());
    let (mut sum, mut buckets) = (Xors::default(), Vec::new());
    for (place, (time_ms, histogram)) in histograms.iter().enumerate() {
        let empty = Counts::default();
        let counts = match &histogram.counts {
            HistogramCounts::Integer(counts) if !is_stale(histogram) => counts,
            _ => &empty,
        };
        let differences = differences(&counts.positive).chain(differences(&counts.negative));
        if place == 0 {
            push_signed(bits, *time_ms);
            push_unsigned(bits, counts.count);
            push_unsigned(bits, counts.zero_count);
            bits.push(histogram.sum.to_bits(), 64);
            (time, count, zero_count) =
                (Steps::from(*time_ms), Steps::from(counts.count as i64), Steps::from(counts.zero_count as i64));
            sum = Xors::from(histogram.sum.to_bits());
            for difference in differences {
                push_signed(bits, difference);
                buckets.push(Steps::from(difference));
            }
            continue;
        }
        time.push(bits, *time_ms);
        count.push(bits, counts.count as i64);
        zero_count.push(bits, counts.zero_count as i64);
        sum.push(bits, histogram.sum.to_bits());
        buckets.iter_mut().zip(differences).for_each(|(bucket, difference)| bucket.push(bits, difference));
    }
    INTEGERS
}

/// The first number, and each other less the one before.
fn differences(numbers: &[u64]) -> impl Iterator<Item = i64> {
    let before = std::iter::once(&0).chain(numbers);
    numbers.iter().zip(before).map(|(number, before)| number.wrapping_sub(*before) as i64)
}

fn push_floats(bits: &mut Bits, histograms: &[(i64, NativeHistogram)]) -> u64 {
    let (mut time, mut columns) = (Steps::default(), Vec::new());
    for (place, (time_ms, histogram)) in histograms.iter().enumerate() {
        let empty = Counts::default();
        let counts = match &histogram.counts {
            HistogramCounts::Float(counts) if !is_stale(histogram) => counts,
            _ => &empty,
        };
        let numbers = [counts.count, counts.zero_count, histogram.sum].into_iter();
        let numbers = numbers.chain(counts.positive.iter().chain(&counts.negative).copied()).map(f64::to_bits);
        if place == 0 {
            push_signed(bits, *time_ms);
            time = Steps::from(*time_ms);
            for number in numbers {
                bits.push(number, 64);
                columns.push(Xors::from(number));
            }
            continue;
        }
        time.push(bits, *time_ms);
        columns.iter_mut().zip(numbers).for_each(|(column, number)| column.push(bits, number));
    }
    FLOATS
}

/// Widths that a number may be written in: behind a one for each that is too narrow, and a zero but for the last.
const WIDTHS: [u32; 8] = [3, 6, 9, 12, 18, 25, 56, 64];

fn push_signed(bits: &mut Bits, value: i64) {
    let fits = |width: u32| width == 64 || (1 - (1i64 << (width - 1))..=1i64 << (width - 1)).contains(&value);
    push_in(bits, value as u64, fits);
}

fn push_unsigned(bits: &mut Bits, value: u64) {
    push_in(bits, value, |width| value.leading_zeros() >= 64 - width);
}

fn push_in(bits: &mut Bits, value: u64, fits: impl Fn(u32) -> bool) {
    if value == 0 {
        return bits.push(0, 1);
    }
    bits.push(1, 1);
    for width in WIDTHS {
        let is_last = width == 64;
        if fits(width) {
            if !is_last {
                bits.push(0, 1);
            }
            return bits.push(value, width);
        }
        bits.push(1, 1);
    }
}

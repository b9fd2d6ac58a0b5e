//! Many samples at once: what does not depend on the order in which they are added is counted side by side, in vectors.

use super::{Summary, SummaryParts, add_compensated};
use crate::ValueType;

/// Values that are looked at side by side.
const LANES: usize = 4;

/// From so many values on that pays.
const MANY: usize = 2 * LANES;

/// From here on floats have no places for halves; integers below it add up without rounding: 2^52.
const WHOLE_MIN: f64 = 4_503_599_627_370_496.0;

/// What samples that ascend add up to as far as it is wanted, to the bit what one after the other gives; `None` where it takes
/// [`Summary::add`] of each.
pub(super) fn summed(
    value_type: ValueType,
    timestamps_ns: &[i64],
    cells: &[u64],
    parts: SummaryParts,
) -> Option<Summary> {
    match parts {
        SummaryParts::All if cells.len() < MANY => None,
        SummaryParts::Values | SummaryParts::Totals if cells.len() < MANY => {
            one_by_one(value_type, timestamps_ns, cells)
        }
        SummaryParts::All => narrow_integers(value_type, timestamps_ns, cells)
            .or_else(|| at_once::<true, true>(value_type, timestamps_ns, cells)),
        SummaryParts::Values => at_once::<true, false>(value_type, timestamps_ns, cells)
            .or_else(|| one_by_one(value_type, timestamps_ns, cells)),
        SummaryParts::Totals => integer_totals(value_type, timestamps_ns, cells)
            .or_else(|| at_once::<false, false>(value_type, timestamps_ns, cells))
            .or_else(|| one_by_one(value_type, timestamps_ns, cells)),
    }
}

/// Counts, ends, extremes and sum, without what asks for each value and the one before; `None` where a value is NaN.
fn one_by_one(value_type: ValueType, timestamps_ns: &[i64], cells: &[u64]) -> Option<Summary> {
    let (first, last) = ((*timestamps_ns.first()?, *cells.first()?), (*timestamps_ns.last()?, *cells.last()?));
    let summary = Summary { count: cells.len() as u64, first, last, ..Summary::empty(value_type) };
    match value_type {
        ValueType::I64 => {
            let value = |cell: &u64| *cell as i64;
            let (min, max, sum_integer) = integers_one_by_one(cells, value);
            Some(Summary { min: min as u64, max: max as u64, sum_integer, ..summary })
        }
        ValueType::U64 => {
            let (min, max, sum_integer) = integers_one_by_one(cells, |cell| *cell);
            Some(Summary { min, max, sum_integer, ..summary })
        }
        ValueType::F64 => {
            let value = f64::from_bits(first.1);
            let (mut min, mut max, mut sum, mut has_nan) = (value, value, (value, 0.0), value.is_nan());
            for cell in cells.iter().skip(1) {
                let value = f64::from_bits(*cell);
                has_nan |= value.is_nan();
                (min, max) = (smaller(value, min), larger(value, max));
                add_compensated(&mut sum, value);
            }
            (!has_nan).then_some(Summary { min: min.to_bits(), max: max.to_bits(), sum, ..summary })
        }
        _ => None,
    }
}

/// The smallest and the largest integer, and the sum.
fn integers_one_by_one<T: Copy + Ord + Into<i128>>(cells: &[u64], value: impl Fn(&u64) -> T) -> (T, T, i128) {
    let first = cells.first().map_or_else(|| value(&0), &value);
    let one = |(min, max, sum): (T, T, i128), cell: &u64| {
        let value = value(cell);
        (min.min(value), max.max(value), sum + value.into())
    };
    cells.iter().fold((first, first, 0), one)
}

// A loop for each question. One loop for all of them has more lanes than a processor has registers, and sums of values and
// of magnitudes in one loop are paired instead of lying side by side: both cost twice the time.

/// Numbers that are looked at side by side.
type Lanes = [f64; LANES];

fn lanes(first: Lanes, second: Lanes, of: impl Fn(f64, f64) -> f64) -> Lanes {
    std::array::from_fn(|lane| of(first[lane], second[lane]))
}

/// Cells in lanes, filled up with what changes nothing.
fn padded(rest: &[u64], with: u64) -> [u64; LANES] {
    std::array::from_fn(|lane| rest.get(lane).copied().unwrap_or(with))
}

fn smaller(value: f64, than: f64) -> f64 {
    if value < than { value } else { than }
}

fn larger(value: f64, than: f64) -> f64 {
    if value > than { value } else { than }
}

/// The totals of values, in any order.
struct Totals {
    /// NaN if one of them is; else only to be trusted if it is [exact](Self::is_exact).
    sum: f64,
    /// The largest magnitude.
    magnitude: f64,
    /// Bits that are 0 if all are integers; of magnitudes from [`WHOLE_MIN`] on they say nothing.
    fractions: u64,
    count: usize,
}

impl Totals {
    fn from_cells(cells: &[u64], number: impl Fn(u64) -> f64 + Copy, nothing: u64) -> Self {
        // What adding to leaves as it is, zeros with a sign too.
        let (mut sum, mut magnitude, mut fractions) = ([-0.0; LANES], [0.0; LANES], [0_u64; LANES]);
        let mut add = |cells: &[u64; LANES]| {
            let values = cells.map(number);
            let magnitudes = values.map(f64::abs);
            sum = lanes(sum, values, |sum, value| sum + value);
            magnitude = lanes(magnitudes, magnitude, larger);
            let rounded = magnitudes.map(|value| (value + WHOLE_MIN) - WHOLE_MIN);
            fractions =
                std::array::from_fn(|lane| fractions[lane] | (rounded[lane].to_bits() ^ magnitudes[lane].to_bits()));
        };
        let (chunks, rest) = cells.as_chunks::<LANES>();
        chunks.iter().for_each(&mut add);
        add(&padded(rest, nothing));
        Self {
            sum: sum.iter().fold(-0.0, |sum, lane| sum + lane),
            magnitude: magnitude.iter().copied().fold(0.0, larger),
            fractions: fractions.iter().fold(0, |all, lane| all | lane),
            count: cells.len(),
        }
    }

    /// Returns whether no sum of some of the values is ever rounded.
    fn is_exact(&self) -> bool {
        self.fractions == 0 && self.magnitude * (self.count as f64) < WHOLE_MIN
    }
}

/// The smallest and the largest value; there is no NaN among them.
fn extremes(cells: &[u64], first: (u64, f64), number: impl Fn(u64) -> f64 + Copy) -> (f64, f64) {
    let (mut min, mut max) = ([first.1; LANES], [first.1; LANES]);
    let mut add = |cells: &[u64; LANES]| {
        let values = cells.map(number);
        min = lanes(values, min, smaller);
        max = lanes(values, max, larger);
    };
    let (chunks, rest) = cells.as_chunks::<LANES>();
    chunks.iter().for_each(&mut add);
    add(&padded(rest, first.0));
    (min.iter().copied().fold(first.1, smaller), max.iter().copied().fold(first.1, larger))
}

/// The changes from one value to the next.
#[derive(Default)]
struct Steps {
    /// Only to be trusted if no sum of values is rounded.
    increase: f64,
    resets: u64,
    changes: u64,
}

impl Steps {
    fn from_cells(cells: &[u64], number: impl Fn(u64) -> f64 + Copy) -> Self {
        let (mut increase, mut falls, mut rises) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let mut add = |before: &[u64; LANES], after: &[u64; LANES]| {
            let (before, after) = (before.map(number), after.map(number));
            let gains = lanes(after, before, |after, before| after - if after < before { 0.0 } else { before });
            let fell = lanes(after, before, |after, before| f64::from(after < before));
            let rose = lanes(after, before, |after, before| f64::from(after > before));
            increase = lanes(increase, gains, |increase, gain| increase + gain);
            falls = lanes(falls, fell, |falls, fell| falls + fell);
            rises = lanes(rises, rose, |rises, rose| rises + rose);
        };
        let (_, later) = cells.split_at(cells.len().min(1));
        let (before, before_rest) = cells.get(..later.len()).unwrap_or_default().as_chunks::<LANES>();
        let (after, after_rest) = later.as_chunks::<LANES>();
        before.iter().zip(after).for_each(|(before, after)| add(before, after));
        add(&padded(before_rest, 0), &padded(after_rest, 0));
        let count = |of_lanes: Lanes| of_lanes.iter().sum::<f64>() as u64;
        Self { increase: increase.iter().sum(), resets: count(falls), changes: count(falls) + count(rises) }
    }
}

/// Many samples, none before them: `None` where the order in which they are added has a say.
fn at_once<const EXTREMES: bool, const STEPS: bool>(
    value_type: ValueType,
    timestamps_ns: &[i64],
    cells: &[u64],
) -> Option<Summary> {
    match value_type {
        ValueType::F64 => floats::<EXTREMES, STEPS>(timestamps_ns, cells),
        ValueType::I64 => integers::<EXTREMES, STEPS>(timestamps_ns, cells, value_type, |bits| bits as i64 as f64),
        ValueType::U64 => integers::<EXTREMES, STEPS>(timestamps_ns, cells, value_type, |bits| bits as f64),
        _ => None,
    }
}

/// Count, ends and sum of integers none of which needs more than 31 bits, so that 64 hold their sum.
fn integer_totals(value_type: ValueType, timestamps_ns: &[i64], cells: &[u64]) -> Option<Summary> {
    if !matches!(value_type, ValueType::I64 | ValueType::U64) || u32::try_from(cells.len()).is_err() {
        return None;
    }
    let (first, last) = ((*timestamps_ns.first()?, *cells.first()?), (*timestamps_ns.last()?, *cells.last()?));
    // 31 bits and a sign, moved to where they have none: others set a bit above.
    let (moved_by, width_max) = if value_type == ValueType::I64 { (1 << 31, 32) } else { (0, 31) };
    let (mut sums, mut used) = ([0_u64; LANES], [0_u64; LANES]);
    let (chunks, rest) = cells.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            sums[lane] = sums[lane].wrapping_add(chunk[lane]);
            used[lane] |= chunk[lane].wrapping_add(moved_by);
        }
    }
    let mut sum = sums.iter().fold(0_u64, |sum, lane| sum.wrapping_add(*lane));
    let mut all = used.iter().fold(0, |all, lane| all | lane);
    for cell in rest {
        sum = sum.wrapping_add(*cell);
        all |= cell.wrapping_add(moved_by);
    }
    if all >> width_max != 0 {
        return None;
    }
    let (count, sum_integer) = (cells.len() as u64, i128::from(sum as i64));
    Some(Summary { count, first, last, min: first.1, max: first.1, sum_integer, ..Summary::empty(value_type) })
}

/// Values that are looked at side by side where each takes half as much room.
const NARROW_LANES: usize = 2 * LANES;

/// Integers of which floats hold the increase exactly, if none needs more than 31 bits: 2^20.
const NARROW_MAX: usize = 1 << 20;

/// Everything of integers none of which needs more than 31 bits: vectors compare twice as many of them, and need not make floats of them.
fn narrow_integers(value_type: ValueType, timestamps_ns: &[i64], cells: &[u64]) -> Option<Summary> {
    if cells.len() > NARROW_MAX {
        return None;
    }
    let totals = integer_totals(value_type, timestamps_ns, cells)?;
    let (first, last) = (totals.first.1 as i32, totals.last.1 as i32);
    let (mut min, mut max) = ([first; NARROW_LANES], [first; NARROW_LANES]);
    let (mut dropped, mut resets, mut changes) = ([0_i64; NARROW_LANES], [0_u32; NARROW_LANES], [0_u32; NARROW_LANES]);
    let mut add = |lane: usize, before: i32, after: i32| {
        let fell = after < before;
        min[lane] = if after < min[lane] { after } else { min[lane] };
        max[lane] = if after > max[lane] { after } else { max[lane] };
        dropped[lane] += i64::from(if fell { before } else { 0 });
        resets[lane] += u32::from(fell);
        changes[lane] += u32::from(after != before);
    };
    let ((before, before_rest), (after, after_rest)) =
        (cells[..cells.len() - 1].as_chunks::<NARROW_LANES>(), cells[1..].as_chunks::<NARROW_LANES>());
    for (before, after) in before.iter().zip(after) {
        for lane in 0..NARROW_LANES {
            add(lane, before[lane] as i32, after[lane] as i32);
        }
    }
    before_rest.iter().zip(after_rest).for_each(|(before, after)| add(0, *before as i32, *after as i32));
    let bits = |value: Option<&i32>| i64::from(value.copied().unwrap_or(first)) as u64;
    let count = |of_lanes: [u32; NARROW_LANES]| of_lanes.iter().copied().map(u64::from).sum();
    // All differences add up to the whole one; where the value fell, that is what it fell from less than the gain.
    let increase = i64::from(last) - i64::from(first) + dropped.iter().sum::<i64>();
    Some(Summary {
        min: bits(min.iter().min()),
        max: bits(max.iter().max()),
        increase: increase as f64,
        resets: count(resets),
        changes: count(changes),
        ..totals
    })
}

/// The summary of samples in order of time, as floats.
struct Counted {
    totals: Totals,
    /// The first value.
    value: f64,
    min: f64,
    max: f64,
    /// The part that does not depend on how values are encoded: all but extremes and sums.
    summary: Summary,
}

impl Counted {
    /// `None` of no samples, or if the totals will not do.
    fn count<const EXTREMES: bool, const STEPS: bool>(
        (value_type, timestamps_ns, cells): (ValueType, &[i64], &[u64]),
        nothing: u64,
        number: impl Fn(u64) -> f64 + Copy,
        will_do: impl Fn(&Totals) -> bool,
    ) -> Option<Self> {
        let (first, last) = ((*timestamps_ns.first()?, *cells.first()?), (*timestamps_ns.last()?, *cells.last()?));
        let totals = Some(Totals::from_cells(cells, number, nothing)).filter(will_do)?;
        let value = number(first.1);
        let (min, max) = if EXTREMES { extremes(cells, (first.1, value), number) } else { (value, value) };
        let Steps { increase, resets, changes } =
            if STEPS { Steps::from_cells(cells, number) } else { Steps::default() };
        let count = cells.len() as u64;
        let summary = Summary { count, first, last, increase, resets, changes, ..Summary::empty(value_type) };
        Some(Self { totals, value, min, max, summary })
    }
}

/// The summary of floats in order of time; `None` of none, or if there is a NaN among them or their sum is none.
fn floats<const EXTREMES: bool, const STEPS: bool>(timestamps_ns: &[i64], cells: &[u64]) -> Option<Summary> {
    let samples = (ValueType::F64, timestamps_ns, cells);
    let is_number = |totals: &Totals| !totals.sum.is_nan();
    let counted = Counted::count::<EXTREMES, STEPS>(samples, (-0.0_f64).to_bits(), f64::from_bits, is_number)?;
    // Zeros of both signs are equal: the first counts.
    let first_zero = || cells.iter().copied().find(|bits| bits << 1 == 0).unwrap_or_default();
    let bits = |value: f64| if value.to_bits() << 1 == 0 { first_zero() } else { value.to_bits() };
    let (sum, increase) = if counted.totals.is_exact() {
        ((counted.totals.sum, 0.0), counted.summary.increase)
    } else {
        in_order(counted.value, cells)
    };
    Some(Summary { min: bits(counted.min), max: bits(counted.max), sum, increase, ..counted.summary })
}

/// The summary of integers in order of time, as floats; `None` of none, or if floats do not hold their sums exactly.
fn integers<const EXTREMES: bool, const STEPS: bool>(
    timestamps_ns: &[i64],
    cells: &[u64],
    value_type: ValueType,
    number: impl Fn(u64) -> f64 + Copy,
) -> Option<Summary> {
    // Of integers that a float rounds one alone is as large.
    let samples = (value_type, timestamps_ns, cells);
    let counted = Counted::count::<EXTREMES, STEPS>(samples, 0, number, Totals::is_exact)?;
    // Positive ones have the same bits in both types.
    let bits = |value: f64| value as i64 as u64;
    let sum_integer = counted.totals.sum as i128;
    Some(Summary { min: bits(counted.min), max: bits(counted.max), sum_integer, ..counted.summary })
}

/// Sum and increase of floats whose sums are rounded, one by one.
fn in_order(first: f64, cells: &[u64]) -> ((f64, f64), f64) {
    let (mut sum, mut increase, mut before) = ((first, 0.0), 0.0, first);
    for bits in cells.iter().skip(1) {
        let after = f64::from_bits(*bits);
        increase += if after < before { after } else { after - before };
        add_compensated(&mut sum, after);
        before = after;
    }
    (sum, increase)
}

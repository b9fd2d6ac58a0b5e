//! Aggregates: what rows of a group add up to.

mod sketched;

use std::collections::{HashMap, HashSet};

use model::ValueType;
use query::plan::Aggregate;
use query::sketch::{Buckets, DistinctSketch, Histogram, QuantileSketch};
use query::statistics::{self, ValueMoments};
use query::{Cell, Interval, SAMPLE_BYTES, SqlType, Summary, Value};

use super::{Bound, Environment, holds, text_of};
use crate::error::{SqlError, invalid};

/// Bytes of a text that `string_agg` may make of a group.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// An aggregate of a group's rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum AggregateFunction {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    First,
    Last,
    StddevSample,
    StddevPopulation,
    VarianceSample,
    VariancePopulation,
    /// The sum of the squared deviations from the mean.
    SquaredDeviations,
    /// Between values in proportion.
    Quantile(f64),
    /// By a sketch, of numbers or of sketches.
    ApproxQuantile(f64),
    /// That sketch, as text.
    QuantileSketch,
    /// About how many different values there are, of values or of sketches.
    ApproxDistinct {
        of_sketches: bool,
    },
    /// The sketch that it is made of, as text.
    DistinctSketch {
        of_sketches: bool,
    },
    /// How many numbers lie in each of some ranges, as text.
    Histogram(Buckets),
    /// The sum of histograms, as text.
    Histograms,
    Mode,
    StringAgg,
    BoolAnd,
    BoolOr,
    /// The increase of a counter, series by series, a fall counting as a restart from zero.
    Increase,
    /// The increase of a counter in windows of time, with what it gained since the window before.
    CounterIncrease,
    /// The increase of a counter per second, from each series' first row to its last.
    Rate,
    /// From each series' first value to its last, per second; of one series.
    Derivative,
}

/// Names and what they mean; those with a share or ranges in them are found apart.
const NAMES: [(&str, AggregateFunction); 35] = [
    ("count", AggregateFunction::Count),
    ("sum", AggregateFunction::Sum),
    ("avg", AggregateFunction::Avg),
    ("mean", AggregateFunction::Avg),
    ("min", AggregateFunction::Min),
    ("max", AggregateFunction::Max),
    ("first", AggregateFunction::First),
    ("first_value", AggregateFunction::First),
    ("any_value", AggregateFunction::First),
    ("arg_min", AggregateFunction::First),
    ("last", AggregateFunction::Last),
    ("last_value", AggregateFunction::Last),
    ("arg_max", AggregateFunction::Last),
    ("stddev", AggregateFunction::StddevSample),
    ("stddev_samp", AggregateFunction::StddevSample),
    ("stddev_pop", AggregateFunction::StddevPopulation),
    ("variance", AggregateFunction::VarianceSample),
    ("var_samp", AggregateFunction::VarianceSample),
    ("var_pop", AggregateFunction::VariancePopulation),
    ("squared_deviations", AggregateFunction::SquaredDeviations),
    ("quantile_sketch", AggregateFunction::QuantileSketch),
    ("approx_count_distinct", AggregateFunction::ApproxDistinct { of_sketches: false }),
    ("distinct_sketch", AggregateFunction::DistinctSketch { of_sketches: false }),
    ("approx_count_distinct_of_sketches", AggregateFunction::ApproxDistinct { of_sketches: true }),
    ("distinct_sketch_of_sketches", AggregateFunction::DistinctSketch { of_sketches: true }),
    ("histogram", AggregateFunction::Histograms),
    ("median", AggregateFunction::Quantile(0.5)),
    ("mode", AggregateFunction::Mode),
    ("string_agg", AggregateFunction::StringAgg),
    ("bool_and", AggregateFunction::BoolAnd),
    ("bool_or", AggregateFunction::BoolOr),
    ("increase", AggregateFunction::Increase),
    ("counter_increase", AggregateFunction::CounterIncrease),
    ("rate", AggregateFunction::Rate),
    ("derivative", AggregateFunction::Derivative),
];

impl AggregateFunction {
    /// The aggregate of a name, without those that take a share.
    pub(crate) fn find(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, found)| *found)
    }

    /// Returns whether a name is one of quantiles, whose share is an argument.
    pub(crate) fn is_quantile(name: &str) -> bool {
        matches!(
            name,
            "quantile" | "quantile_cont" | "approx_percentile" | "approx_quantile" | "percentile" | "percentile_cont"
        )
    }

    /// The plan's aggregate that equals it, if there is one.
    pub(crate) const fn in_plan(self) -> Option<Aggregate> {
        match self {
            Self::Count => Some(Aggregate::Count),
            Self::Sum => Some(Aggregate::Sum),
            Self::Avg => Some(Aggregate::Avg),
            Self::Min => Some(Aggregate::Min),
            Self::Max => Some(Aggregate::Max),
            Self::First => Some(Aggregate::First),
            Self::Last => Some(Aggregate::Last),
            Self::StddevPopulation => Some(Aggregate::Stddev),
            Self::StddevSample => Some(Aggregate::StddevSample),
            Self::VariancePopulation => Some(Aggregate::Variance),
            Self::VarianceSample => Some(Aggregate::VarianceSample),
            Self::SquaredDeviations => Some(Aggregate::Squares),
            Self::CounterIncrease => Some(Aggregate::Increase),
            Self::Quantile(share) => Some(Aggregate::Quantile(share)),
            Self::ApproxQuantile(share) => Some(Aggregate::ApproxQuantile(share)),
            Self::QuantileSketch => Some(Aggregate::QuantileSketch),
            Self::ApproxDistinct { .. } => Some(Aggregate::ApproxDistinct),
            Self::DistinctSketch { .. } => Some(Aggregate::DistinctSketch),
            Self::Histogram(buckets) => Some(Aggregate::Histogram(buckets)),
            Self::Histograms => Some(Aggregate::Histograms),
            _ => None,
        }
    }

    /// Returns whether values of a type are sketches to it.
    pub(crate) fn is_of_sketches(self, argument: SqlType) -> bool {
        match self {
            Self::ApproxDistinct { of_sketches } | Self::DistinctSketch { of_sketches } => of_sketches,
            Self::ApproxQuantile(_) | Self::QuantileSketch => argument == SqlType::Text,
            Self::Histograms => true,
            _ => false,
        }
    }

    /// Returns whether it is of numbers alone, or of what is made of them.
    pub(crate) const fn is_of_numbers(self) -> bool {
        matches!(
            self,
            Self::Sum
                | Self::Avg
                | Self::StddevSample
                | Self::StddevPopulation
                | Self::VarianceSample
                | Self::VariancePopulation
                | Self::SquaredDeviations
                | Self::CounterIncrease
                | Self::Quantile(_)
                | Self::ApproxQuantile(_)
                | Self::QuantileSketch
                | Self::Histogram(_)
        )
    }

    /// Returns whether it needs to know which series a row is of, and when.
    pub(crate) const fn is_of_series(self) -> bool {
        matches!(self, Self::Increase | Self::Rate | Self::Derivative)
    }

    /// Returns whether summaries of folded values have it.
    pub(crate) const fn is_of_folds(self) -> bool {
        matches!(self, Self::Count | Self::Sum | Self::Avg | Self::Min | Self::Max | Self::First | Self::Last)
    }

    /// Returns whether rows' times matter to it.
    pub(crate) const fn is_by_time(self) -> bool {
        matches!(self, Self::First | Self::Last)
    }

    /// The samples that a group takes for its sketch, whatever is in it.
    pub(crate) const fn sketch_samples(self) -> usize {
        match self {
            Self::ApproxDistinct { .. } | Self::DistinctSketch { .. } => {
                DistinctSketch::MEMORY_BYTES.div_ceil(SAMPLE_BYTES)
            }
            Self::Histogram(buckets) => buckets.histogram_bytes().div_ceil(SAMPLE_BYTES),
            _ => 0,
        }
    }

    pub(crate) const fn returns(self, argument: SqlType) -> SqlType {
        match self {
            Self::Count | Self::ApproxDistinct { .. } => SqlType::Int,
            Self::Sum if argument.is_integer() => SqlType::Int,
            Self::Sum | Self::Min | Self::Max | Self::First | Self::Last | Self::Mode => argument,
            Self::StringAgg
            | Self::QuantileSketch
            | Self::DistinctSketch { .. }
            | Self::Histogram(_)
            | Self::Histograms => SqlType::Text,
            Self::BoolAnd | Self::BoolOr => SqlType::Bool,
            _ => SqlType::Float,
        }
    }
}

/// An aggregate and what it is of.
#[derive(Debug, Clone)]
pub(crate) struct BoundAggregate {
    pub(crate) function: AggregateFunction,
    /// The argument; `None`: rows.
    pub(crate) argument: Option<Bound>,
    /// The order of rows (`first(value, time)`), or the separator of texts (`string_agg`).
    pub(crate) by: Option<Bound>,
    /// Where the argument is how many values each row stands for: their sum, and the sum of their squared deviations.
    pub(crate) parts: Option<Box<(Bound, Bound)>>,
    pub(crate) is_distinct: bool,
    pub(crate) filter: Option<Bound>,
    pub(crate) sql_type: SqlType,
}

/// The time and the series of a row, as far as they are known.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RowOrigin<'a> {
    pub(crate) time: Option<&'a Value>,
    pub(crate) series: Option<&'a Value>,
}

impl BoundAggregate {
    /// Returns whether there is something in a row that counts.
    pub(crate) fn has_value(&self, row: &[Value], environment: &Environment) -> Result<bool, SqlError> {
        let value = self.argument.as_ref().map(|argument| argument.value(row, environment)).transpose()?;
        Ok(value.is_none_or(|value| !value.is_null()))
    }
}

/// What a value stands for that folding left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fold<'a> {
    pub(crate) summary: &'a Summary,
    /// The type of the value.
    pub(crate) sql_type: SqlType,
}

impl Fold<'_> {
    fn value(&self, bits: u64) -> Value {
        match (self.sql_type, self.summary.value_type) {
            (SqlType::Timestamp, _) => Value::Timestamp(bits as i64),
            (_, ValueType::I64) => Value::Int(bits as i64),
            (_, ValueType::U64) => Value::from(Cell::U64(bits)).signed(),
            _ => Value::Float(f64::from_bits(bits)),
        }
    }
}

/// A series' values as a counter.
#[derive(Debug, Clone, Copy)]
struct Counter {
    first: (i64, f64),
    last: (i64, f64),
    increase: f64,
}

/// The accumulator of a group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Accumulator {
    count: i64,
    /// Sum with what rounding lost of it, as summaries have it.
    sum: (f64, f64),
    whole_sum: i128,
    is_whole: bool,
    months: i64,
    days: i64,
    extreme: Option<Value>,
    at: Option<(Value, Value)>,
    values: Vec<f64>,
    moments: ValueMoments,
    sketch: Option<Box<QuantileSketch>>,
    distinct: Option<Box<DistinctSketch>>,
    histogram: Option<Box<Histogram>>,
    counts: HashMap<Value, i64>,
    distinct_values: HashSet<Value>,
    text: Option<String>,
    counters: HashMap<Value, Counter>,
}

impl Accumulator {
    /// Adds a row. Returns what it keeps for itself, in samples: values that it has to hold to find duplicates, and what a sketch of quantiles
    /// grows by.
    pub(crate) fn add(
        &mut self,
        call: &BoundAggregate,
        row: &[Value],
        origin: RowOrigin<'_>,
        environment: &Environment,
    ) -> Result<usize, SqlError> {
        if let Some(filter) = &call.filter
            && !holds(filter, row, environment)?
        {
            return Ok(0);
        }
        let Some(argument) = &call.argument else {
            self.count += 1;
            return Ok(0);
        };
        let value = argument.value(row, environment)?;
        if value.is_null() || (call.is_distinct && !self.distinct_values.insert(value.clone())) {
            return Ok(0);
        }
        if let Some(parts) = &call.parts {
            let numbers = [value, parts.0.value(row, environment)?, parts.1.value(row, environment)?];
            return self.add_parts(numbers.map(|value| value.number()));
        }
        let is_kept = call.is_distinct || call.function == AggregateFunction::Mode && !self.counts.contains_key(&value);
        let mut kept = if is_kept { 1 + value.text_samples() } else { 0 };
        let by = call.by.as_ref().map(|by| by.value(row, environment)).transpose()?;
        let first = self.count == 0;
        self.count += 1;
        match call.function {
            AggregateFunction::Count => {}
            AggregateFunction::Sum | AggregateFunction::Avg => self.add_to_sum(&value, first)?,
            AggregateFunction::Min | AggregateFunction::BoolAnd => self.keep_extreme(value, std::cmp::Ordering::Less),
            AggregateFunction::Max | AggregateFunction::BoolOr => self.keep_extreme(value, std::cmp::Ordering::Greater),
            AggregateFunction::First | AggregateFunction::Last => {
                let at = by.or_else(|| origin.time.cloned()).unwrap_or(Value::Int(self.count));
                self.keep_at(at, value, call.function == AggregateFunction::First);
            }
            AggregateFunction::Mode => *self.counts.entry(value).or_default() += 1,
            AggregateFunction::StringAgg => {
                let between = by.map(|by| by.to_string()).unwrap_or_default();
                let value = text_of(&value, environment);
                let before = self.text.as_ref().map_or(0, String::len);
                if before.saturating_add(between.len()).saturating_add(value.len()) > TEXT_BYTES_MAX {
                    return invalid(format!("string_agg makes texts of at most {TEXT_BYTES_MAX} bytes"));
                }
                match &mut self.text {
                    None => self.text = Some(value),
                    Some(text) => text.extend([between, value]),
                }
            }
            AggregateFunction::Increase | AggregateFunction::Rate | AggregateFunction::Derivative => {
                let at = by.or_else(|| origin.time.cloned());
                self.count_up(origin.series.cloned().unwrap_or(Value::Null), at.as_ref(), &value)?;
            }
            AggregateFunction::ApproxQuantile(_) | AggregateFunction::QuantileSketch => {
                kept += self.add_to_sketch(&value)?;
            }
            AggregateFunction::ApproxDistinct { of_sketches } | AggregateFunction::DistinctSketch { of_sketches } => {
                self.add_distinct(&value, of_sketches)?;
            }
            AggregateFunction::Histogram(_) | AggregateFunction::Histograms => {
                kept += self.add_to_histogram(&value, call.function)?;
            }
            _ => kept += self.keep_number(&value)?,
        }
        Ok(kept)
    }

    /// Keeps a number; returns the samples that it takes. Two have room in one.
    fn keep_number(&mut self, value: &Value) -> Result<usize, SqlError> {
        let Some(number) = value.number() else { return invalid(format!("a number is wanted, not \"{value}\"")) };
        self.values.push(number);
        Ok(self.values.len() % 2)
    }

    /// Adds a row that stands for several values: how many, their sum, and the sum of their squared deviations.
    fn add_parts(&mut self, [count, sum, squares]: [Option<f64>; 3]) -> Result<usize, SqlError> {
        let Some(count) = count else { return invalid("how many values a row stands for is a number") };
        // Where there are values and something of them is missing, nothing is known.
        let [sum, squares] = [sum, squares].map(|number| number.unwrap_or(f64::NAN));
        if let Some(moments) = ValueMoments::of_sum(count, sum, squares) {
            self.moments.merge(&moments);
            self.count += 1;
        }
        Ok(0)
    }

    /// Adds what a value stands for that folding left, to an aggregate that summaries have.
    pub(crate) fn add_fold(&mut self, call: &BoundAggregate, fold: &Fold<'_>) {
        let summary = fold.summary;
        if summary.count == 0 {
            return;
        }
        let first = self.count == 0;
        self.count += summary.count as i64;
        match call.function {
            AggregateFunction::Sum | AggregateFunction::Avg => {
                self.is_whole = summary.value_type != ValueType::F64 && (first || self.is_whole);
                self.whole_sum += summary.sum_integer;
                self.add_number(summary.total());
            }
            AggregateFunction::Min => self.keep_extreme(fold.value(summary.min), std::cmp::Ordering::Less),
            AggregateFunction::Max => self.keep_extreme(fold.value(summary.max), std::cmp::Ordering::Greater),
            AggregateFunction::First => {
                self.keep_at(Value::Timestamp(summary.first.0), fold.value(summary.first.1), true);
            }
            AggregateFunction::Last => {
                self.keep_at(Value::Timestamp(summary.last.0), fold.value(summary.last.1), false);
            }
            _ => {}
        }
    }

    fn add_to_sum(&mut self, value: &Value, first: bool) -> Result<(), SqlError> {
        match value {
            Value::Int(value) => {
                self.is_whole = first || self.is_whole;
                self.whole_sum += i128::from(*value);
            }
            Value::Interval(interval) => {
                self.months += i64::from(interval.months);
                self.days += i64::from(interval.days);
                self.whole_sum += i128::from(interval.ns);
            }
            _ => self.is_whole = false,
        }
        let number = match value {
            Value::Interval(interval) => interval.approximate_ns() as f64,
            value => match value.number() {
                Some(number) => number,
                None => return invalid(format!("a number is wanted, not \"{value}\"")),
            },
        };
        self.add_number(number);
        Ok(())
    }

    fn add_number(&mut self, number: f64) {
        let total = self.sum.0 + number;
        self.sum.1 += if self.sum.0.abs() >= number.abs() {
            (self.sum.0 - total) + number
        } else {
            (number - total) + self.sum.0
        };
        self.sum.0 = total;
    }

    fn keep_extreme(&mut self, value: Value, order: std::cmp::Ordering) {
        if self.extreme.as_ref().is_none_or(|known| value.compare(known) == Some(order)) {
            self.extreme = Some(value);
        }
    }

    fn keep_at(&mut self, at: Value, value: Value, first: bool) {
        let wanted = if first { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater };
        // Of values of one time the largest counts, whatever the order of their series.
        let replaces = self.at.as_ref().is_none_or(|(known, before)| match at.order(known) {
            std::cmp::Ordering::Equal => value.order(before) == std::cmp::Ordering::Greater,
            order => order == wanted,
        });
        if replaces {
            self.at = Some((at, value));
        }
    }

    /// Rows of a series come in order of time.
    fn count_up(&mut self, series: Value, at: Option<&Value>, value: &Value) -> Result<(), SqlError> {
        let (Some(ns), Some(number)) = (at.and_then(Value::time_ns), value.number()) else {
            return invalid(
                "rate, increase and derivative take a number of a table's rows, and a time if that is not theirs",
            );
        };
        let here = (ns, number);
        match self.counters.get_mut(&series) {
            None => {
                self.counters.insert(series, Counter { first: here, last: here, increase: 0.0 });
            }
            Some(counter) => {
                let before = counter.last.1;
                counter.increase += if number < before { number } else { number - before };
                counter.last = here;
            }
        }
        Ok(())
    }

    fn total(&self) -> f64 {
        if self.sum.0.is_finite() { self.sum.0 + self.sum.1 } else { self.sum.0 }
    }

    /// The value of the aggregate.
    pub(crate) fn finish(mut self, call: &BoundAggregate) -> Value {
        let float = |number: Option<f64>| number.map_or(Value::Null, Value::Float);
        let count = self.count as f64;
        match call.function {
            AggregateFunction::Count => Value::Int(self.count),
            AggregateFunction::ApproxDistinct { .. } => {
                Value::Int(self.distinct.map_or(0, |sketch| sketch.estimate() as i64))
            }
            _ if self.count == 0 => Value::Null,
            AggregateFunction::Sum if call.sql_type == SqlType::Interval => Value::Interval(Interval {
                months: self.months as i32,
                days: self.days as i32,
                ns: i64::try_from(self.whole_sum).unwrap_or(i64::MAX),
            }),
            AggregateFunction::Sum => match i64::try_from(self.whole_sum) {
                Ok(sum) if self.is_whole => Value::Int(sum),
                _ => Value::Float(self.total()),
            },
            AggregateFunction::Avg => Value::Float(self.total() / count),
            AggregateFunction::Min
            | AggregateFunction::Max
            | AggregateFunction::BoolAnd
            | AggregateFunction::BoolOr => self.extreme.unwrap_or(Value::Null),
            AggregateFunction::First | AggregateFunction::Last => self.at.map_or(Value::Null, |(_, value)| value),
            AggregateFunction::Mode => {
                let best = self.counts.into_iter().max_by(|(a, more), (b, fewer)| more.cmp(fewer).then(b.order(a)));
                best.map_or(Value::Null, |(value, _)| value)
            }
            AggregateFunction::StringAgg => self.text.map_or(Value::Null, Value::text),
            AggregateFunction::StddevPopulation
            | AggregateFunction::StddevSample
            | AggregateFunction::VariancePopulation
            | AggregateFunction::VarianceSample
            | AggregateFunction::SquaredDeviations => {
                let (count, squares) = match call.parts {
                    Some(_) => (self.moments.count, self.moments.squares),
                    None => (self.values.len() as f64, statistics::squared_deviations(&self.values)),
                };
                float(call.function.in_plan().and_then(|aggregate| aggregate.of_squares(count, squares)))
            }
            AggregateFunction::ApproxQuantile(share) => float(self.sketch.and_then(|sketch| sketch.quantile(share))),
            AggregateFunction::DistinctSketch { .. } => {
                self.distinct.map_or(Value::Null, |sketch| Value::text(sketch.encode()))
            }
            AggregateFunction::QuantileSketch => self.sketch.map_or(Value::Null, |sketch| Value::text(sketch.encode())),
            AggregateFunction::Histogram(_) | AggregateFunction::Histograms => {
                let text = self.histogram.and_then(|histogram| histogram.encode().ok());
                text.map_or(Value::Null, Value::text)
            }
            AggregateFunction::Quantile(share) => {
                statistics::sort(&mut self.values);
                float(statistics::quantile(&self.values, share))
            }
            // The plan computes it, or nothing does.
            AggregateFunction::CounterIncrease => Value::Null,
            AggregateFunction::Increase => Value::Float(self.counters.values().map(|counter| counter.increase).sum()),
            AggregateFunction::Rate => {
                float(sum_of(self.counters.values().map(|counter| per_second(counter, counter.increase))))
            }
            AggregateFunction::Derivative => float(sum_of(
                self.counters.values().map(|counter| per_second(counter, counter.last.1 - counter.first.1)),
            )),
        }
    }
}

/// `None` without one that is known.
fn sum_of(numbers: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    numbers.flatten().fold(None, |sum, number| Some(sum.unwrap_or(0.0) + number))
}

fn per_second(counter: &Counter, gained: f64) -> Option<f64> {
    let ns = counter.last.0.saturating_sub(counter.first.0);
    (ns > 0).then(|| gained / (ns as f64 / 1e9))
}

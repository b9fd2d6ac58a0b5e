//! The functions: names, arguments, results.

use crate::syntax::result_kind::ResultKind;

/// A function; what it takes and gives is in its [`Signature`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    /// One number to one number.
    Math(MathFunction),
    /// The samples of a window to one value.
    Range(RangeFunction),
    /// A part of the date.
    Date(DatePart),
    Absent,
    AbsentOverTime,
    Correlated,
    Clamp,
    ClampMax,
    ClampMin,
    /// A number of a native histogram.
    Histogram(HistogramPart),
    HistogramFraction,
    HistogramQuantile,
    HistogramQuantiles,
    Info,
    LabelJoin,
    LabelReplace,
    MaximumOf,
    MinimumOf,
    Pi,
    QueryEnd,
    QueryRange,
    QueryStart,
    QueryStep,
    Round,
    Scalar,
    Similar,
    Sort,
    SortByLabel,
    SortByLabelDescending,
    SortDescending,
    StartTimestamp,
    Time,
    Timestamp,
    Vector,
}

/// A number that a native histogram holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistogramPart {
    Average,
    Count,
    StandardDeviation,
    Sum,
    Variance,
}

/// Functions of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MathFunction {
    Abs,
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Ceil,
    Cos,
    Cosh,
    Degrees,
    Exp,
    Floor,
    Ln,
    Log10,
    Log2,
    Radians,
    Sign,
    Sin,
    Sinh,
    SquareRoot,
    Tan,
    Tanh,
}

/// A function of a range of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeFunction {
    Average,
    Changes,
    Count,
    Delta,
    Derivative,
    DoubleExponentialSmoothing,
    First,
    Increase,
    InstantDelta,
    InstantRate,
    Last,
    Maximum,
    MedianAbsoluteDeviation,
    Minimum,
    PredictLinear,
    Present,
    Quantile,
    Rate,
    Resets,
    StandardDeviation,
    Sum,
    TimestampOfFirst,
    TimestampOfLast,
    TimestampOfMaximum,
    TimestampOfMinimum,
    /// The sum since the last multiple of the range's length, as a counter.
    TotalOfPeriod,
    Variance,
}

/// A part of a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatePart {
    DayOfMonth,
    DayOfWeek,
    DayOfYear,
    DaysInMonth,
    Hour,
    Minute,
    Month,
    Year,
}

/// The arguments and the result of a function.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) name: &'static str,
    pub(crate) function: Function,
    /// Kinds of the arguments.
    pub(crate) arguments: &'static [ResultKind],
    /// 0: all arguments must be there; else the last one may be missing, or be there up to so many times, or (below 0) as often
    /// as one likes.
    pub(crate) variadic: i32,
    pub(crate) result: ResultKind,
    /// Only there if experimental functions are.
    pub(crate) experimental: bool,
}

const SCALAR: ResultKind = ResultKind::Scalar;

const TEXT: ResultKind = ResultKind::String;

const VECTOR: ResultKind = ResultKind::InstantVector;

const RANGE: ResultKind = ResultKind::RangeVector;

const fn signature(
    name: &'static str,
    function: Function,
    arguments: &'static [ResultKind],
    variadic: i32,
    result: ResultKind,
) -> Signature {
    Signature { name, function, arguments, variadic, result, experimental: false }
}

const fn experimental(mut signature: Signature) -> Signature {
    signature.experimental = true;
    signature
}

const fn math(name: &'static str, function: MathFunction) -> Signature {
    signature(name, Function::Math(function), &[VECTOR], 0, VECTOR)
}

const fn date(name: &'static str, part: DatePart) -> Signature {
    signature(name, Function::Date(part), &[VECTOR], 1, VECTOR)
}

const fn range_function(name: &'static str, function: RangeFunction) -> Signature {
    signature(name, Function::Range(function), &[RANGE], 0, VECTOR)
}

const fn histogram_part(name: &'static str, part: HistogramPart) -> Signature {
    signature(name, Function::Histogram(part), &[VECTOR], 0, VECTOR)
}

/// Sorted by name.
static SIGNATURES: [Signature; 93] = [
    math("abs", MathFunction::Abs),
    signature("absent", Function::Absent, &[VECTOR], 0, VECTOR),
    signature("absent_over_time", Function::AbsentOverTime, &[RANGE], 0, VECTOR),
    math("acos", MathFunction::Acos),
    math("acosh", MathFunction::Acosh),
    math("asin", MathFunction::Asin),
    math("asinh", MathFunction::Asinh),
    math("atan", MathFunction::Atan),
    math("atanh", MathFunction::Atanh),
    range_function("avg_over_time", RangeFunction::Average),
    math("ceil", MathFunction::Ceil),
    range_function("changes", RangeFunction::Changes),
    signature("clamp", Function::Clamp, &[VECTOR, SCALAR, SCALAR], 0, VECTOR),
    signature("clamp_max", Function::ClampMax, &[VECTOR, SCALAR], 0, VECTOR),
    signature("clamp_min", Function::ClampMin, &[VECTOR, SCALAR], 0, VECTOR),
    experimental(signature("correlated", Function::Correlated, &[SCALAR, RANGE, RANGE, SCALAR], 0, VECTOR)),
    math("cos", MathFunction::Cos),
    math("cosh", MathFunction::Cosh),
    range_function("count_over_time", RangeFunction::Count),
    date("day_of_month", DatePart::DayOfMonth),
    date("day_of_week", DatePart::DayOfWeek),
    date("day_of_year", DatePart::DayOfYear),
    date("days_in_month", DatePart::DaysInMonth),
    math("deg", MathFunction::Degrees),
    range_function("delta", RangeFunction::Delta),
    range_function("deriv", RangeFunction::Derivative),
    experimental(signature(
        "double_exponential_smoothing",
        Function::Range(RangeFunction::DoubleExponentialSmoothing),
        &[RANGE, SCALAR, SCALAR],
        0,
        VECTOR,
    )),
    experimental(signature("end", Function::QueryEnd, &[], 0, SCALAR)),
    math("exp", MathFunction::Exp),
    range_function("first_over_time", RangeFunction::First),
    math("floor", MathFunction::Floor),
    histogram_part("histogram_avg", HistogramPart::Average),
    histogram_part("histogram_count", HistogramPart::Count),
    signature("histogram_fraction", Function::HistogramFraction, &[SCALAR, SCALAR, VECTOR], 0, VECTOR),
    signature("histogram_quantile", Function::HistogramQuantile, &[SCALAR, VECTOR], 0, VECTOR),
    experimental(signature(
        "histogram_quantiles",
        Function::HistogramQuantiles,
        &[VECTOR, TEXT, SCALAR, SCALAR],
        9,
        VECTOR,
    )),
    histogram_part("histogram_stddev", HistogramPart::StandardDeviation),
    histogram_part("histogram_stdvar", HistogramPart::Variance),
    histogram_part("histogram_sum", HistogramPart::Sum),
    date("hour", DatePart::Hour),
    range_function("idelta", RangeFunction::InstantDelta),
    range_function("increase", RangeFunction::Increase),
    experimental(signature("info", Function::Info, &[VECTOR, VECTOR], 1, VECTOR)),
    range_function("irate", RangeFunction::InstantRate),
    signature("label_join", Function::LabelJoin, &[VECTOR, TEXT, TEXT, TEXT], -1, VECTOR),
    signature("label_replace", Function::LabelReplace, &[VECTOR, TEXT, TEXT, TEXT, TEXT], 0, VECTOR),
    range_function("last_over_time", RangeFunction::Last),
    math("ln", MathFunction::Ln),
    math("log10", MathFunction::Log10),
    math("log2", MathFunction::Log2),
    experimental(range_function("mad_over_time", RangeFunction::MedianAbsoluteDeviation)),
    experimental(signature("max_of", Function::MaximumOf, &[SCALAR, SCALAR], 0, SCALAR)),
    range_function("max_over_time", RangeFunction::Maximum),
    experimental(signature("min_of", Function::MinimumOf, &[SCALAR, SCALAR], 0, SCALAR)),
    range_function("min_over_time", RangeFunction::Minimum),
    date("minute", DatePart::Minute),
    date("month", DatePart::Month),
    signature("pi", Function::Pi, &[], 0, SCALAR),
    signature("predict_linear", Function::Range(RangeFunction::PredictLinear), &[RANGE, SCALAR], 0, VECTOR),
    range_function("present_over_time", RangeFunction::Present),
    signature("quantile_over_time", Function::Range(RangeFunction::Quantile), &[SCALAR, RANGE], 0, VECTOR),
    math("rad", MathFunction::Radians),
    experimental(signature("range", Function::QueryRange, &[], 0, SCALAR)),
    range_function("rate", RangeFunction::Rate),
    range_function("resets", RangeFunction::Resets),
    signature("round", Function::Round, &[VECTOR, SCALAR], 1, VECTOR),
    signature("scalar", Function::Scalar, &[VECTOR], 0, SCALAR),
    math("sgn", MathFunction::Sign),
    experimental(signature("similar", Function::Similar, &[SCALAR, RANGE, RANGE, SCALAR], 0, VECTOR)),
    math("sin", MathFunction::Sin),
    math("sinh", MathFunction::Sinh),
    signature("sort", Function::Sort, &[VECTOR], 0, VECTOR),
    experimental(signature("sort_by_label", Function::SortByLabel, &[VECTOR, TEXT], -1, VECTOR)),
    experimental(signature("sort_by_label_desc", Function::SortByLabelDescending, &[VECTOR, TEXT], -1, VECTOR)),
    signature("sort_desc", Function::SortDescending, &[VECTOR], 0, VECTOR),
    math("sqrt", MathFunction::SquareRoot),
    experimental(signature("start", Function::QueryStart, &[], 0, SCALAR)),
    experimental(signature("start_timestamp", Function::StartTimestamp, &[VECTOR], 0, VECTOR)),
    range_function("stddev_over_time", RangeFunction::StandardDeviation),
    range_function("stdvar_over_time", RangeFunction::Variance),
    experimental(signature("step", Function::QueryStep, &[], 0, SCALAR)),
    range_function("sum_over_time", RangeFunction::Sum),
    math("tan", MathFunction::Tan),
    math("tanh", MathFunction::Tanh),
    signature("time", Function::Time, &[], 0, SCALAR),
    signature("timestamp", Function::Timestamp, &[VECTOR], 0, VECTOR),
    experimental(range_function("total_of_period", RangeFunction::TotalOfPeriod)),
    experimental(range_function("ts_of_first_over_time", RangeFunction::TimestampOfFirst)),
    experimental(range_function("ts_of_last_over_time", RangeFunction::TimestampOfLast)),
    experimental(range_function("ts_of_max_over_time", RangeFunction::TimestampOfMaximum)),
    experimental(range_function("ts_of_min_over_time", RangeFunction::TimestampOfMinimum)),
    signature("vector", Function::Vector, &[SCALAR], 0, VECTOR),
    date("year", DatePart::Year),
];

/// The function of this name.
pub(crate) fn by_name(name: &str) -> Option<&'static Signature> {
    let index = SIGNATURES.binary_search_by(|candidate| candidate.name.cmp(name)).ok()?;
    SIGNATURES.get(index)
}

impl Function {
    /// Returns whether the result depends on the time of evaluation even if all arguments are pinned by `@`.
    pub(crate) fn depends_on_time(self) -> bool {
        matches!(
            self,
            Self::Date(_)
                | Self::QueryEnd
                | Self::QueryRange
                | Self::QueryStart
                | Self::QueryStep
                | Self::Time
                | Self::Timestamp
                | Self::Range(RangeFunction::PredictLinear)
        )
    }
}

impl RangeFunction {
    /// Returns whether the result is still the same metric.
    pub(crate) fn keeps_name(self) -> bool {
        matches!(self, Self::First | Self::Last)
    }

    /// Returns whether the series should be a counter.
    pub(crate) fn wants_counter(self) -> bool {
        matches!(self, Self::Rate | Self::Increase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_unique() {
        for pair in SIGNATURES.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} {}", pair[0].name, pair[1].name);
        }
        assert!(SIGNATURES.iter().all(|signature| by_name(signature.name) == Some(signature)));
    }
}

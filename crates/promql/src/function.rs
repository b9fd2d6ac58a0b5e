//! The functions: names, arguments, results.

use crate::calendar::DatePart;
use crate::syntax::ast::ResultKind;
use crate::window::WindowFunction;

/// A function; what it takes and gives is in its [`Signature`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    /// One number to one number.
    Math(MathFunction),
    /// The samples of a range to one number.
    Window(WindowFunction),
    /// A part of the date.
    Date(DatePart),
    Absent,
    AbsentOverTime,
    Clamp,
    ClampMax,
    ClampMin,
    /// What a native histogram says as one number.
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

/// What a function takes and gives.
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

const fn window(name: &'static str, function: WindowFunction) -> Signature {
    signature(name, Function::Window(function), &[RANGE], 0, VECTOR)
}

const fn of_histogram(name: &'static str, part: HistogramPart) -> Signature {
    signature(name, Function::Histogram(part), &[VECTOR], 0, VECTOR)
}

/// Sorted by name.
static SIGNATURES: [Signature; 90] = [
    math("abs", MathFunction::Abs),
    signature("absent", Function::Absent, &[VECTOR], 0, VECTOR),
    signature("absent_over_time", Function::AbsentOverTime, &[RANGE], 0, VECTOR),
    math("acos", MathFunction::Acos),
    math("acosh", MathFunction::Acosh),
    math("asin", MathFunction::Asin),
    math("asinh", MathFunction::Asinh),
    math("atan", MathFunction::Atan),
    math("atanh", MathFunction::Atanh),
    window("avg_over_time", WindowFunction::Average),
    math("ceil", MathFunction::Ceil),
    window("changes", WindowFunction::Changes),
    signature("clamp", Function::Clamp, &[VECTOR, SCALAR, SCALAR], 0, VECTOR),
    signature("clamp_max", Function::ClampMax, &[VECTOR, SCALAR], 0, VECTOR),
    signature("clamp_min", Function::ClampMin, &[VECTOR, SCALAR], 0, VECTOR),
    math("cos", MathFunction::Cos),
    math("cosh", MathFunction::Cosh),
    window("count_over_time", WindowFunction::Count),
    date("day_of_month", DatePart::DayOfMonth),
    date("day_of_week", DatePart::DayOfWeek),
    date("day_of_year", DatePart::DayOfYear),
    date("days_in_month", DatePart::DaysInMonth),
    math("deg", MathFunction::Degrees),
    window("delta", WindowFunction::Delta),
    window("deriv", WindowFunction::Derivative),
    experimental(signature(
        "double_exponential_smoothing",
        Function::Window(WindowFunction::DoubleExponentialSmoothing),
        &[RANGE, SCALAR, SCALAR],
        0,
        VECTOR,
    )),
    experimental(signature("end", Function::QueryEnd, &[], 0, SCALAR)),
    math("exp", MathFunction::Exp),
    window("first_over_time", WindowFunction::First),
    math("floor", MathFunction::Floor),
    of_histogram("histogram_avg", HistogramPart::Average),
    of_histogram("histogram_count", HistogramPart::Count),
    signature("histogram_fraction", Function::HistogramFraction, &[SCALAR, SCALAR, VECTOR], 0, VECTOR),
    signature("histogram_quantile", Function::HistogramQuantile, &[SCALAR, VECTOR], 0, VECTOR),
    experimental(signature(
        "histogram_quantiles",
        Function::HistogramQuantiles,
        &[VECTOR, TEXT, SCALAR, SCALAR],
        9,
        VECTOR,
    )),
    of_histogram("histogram_stddev", HistogramPart::StandardDeviation),
    of_histogram("histogram_stdvar", HistogramPart::Variance),
    of_histogram("histogram_sum", HistogramPart::Sum),
    date("hour", DatePart::Hour),
    window("idelta", WindowFunction::InstantDelta),
    window("increase", WindowFunction::Increase),
    experimental(signature("info", Function::Info, &[VECTOR, VECTOR], 1, VECTOR)),
    window("irate", WindowFunction::InstantRate),
    signature("label_join", Function::LabelJoin, &[VECTOR, TEXT, TEXT, TEXT], -1, VECTOR),
    signature("label_replace", Function::LabelReplace, &[VECTOR, TEXT, TEXT, TEXT, TEXT], 0, VECTOR),
    window("last_over_time", WindowFunction::Last),
    math("ln", MathFunction::Ln),
    math("log10", MathFunction::Log10),
    math("log2", MathFunction::Log2),
    experimental(window("mad_over_time", WindowFunction::MedianAbsoluteDeviation)),
    experimental(signature("max_of", Function::MaximumOf, &[SCALAR, SCALAR], 0, SCALAR)),
    window("max_over_time", WindowFunction::Maximum),
    experimental(signature("min_of", Function::MinimumOf, &[SCALAR, SCALAR], 0, SCALAR)),
    window("min_over_time", WindowFunction::Minimum),
    date("minute", DatePart::Minute),
    date("month", DatePart::Month),
    signature("pi", Function::Pi, &[], 0, SCALAR),
    signature("predict_linear", Function::Window(WindowFunction::PredictLinear), &[RANGE, SCALAR], 0, VECTOR),
    window("present_over_time", WindowFunction::Present),
    signature("quantile_over_time", Function::Window(WindowFunction::Quantile), &[SCALAR, RANGE], 0, VECTOR),
    math("rad", MathFunction::Radians),
    experimental(signature("range", Function::QueryRange, &[], 0, SCALAR)),
    window("rate", WindowFunction::Rate),
    window("resets", WindowFunction::Resets),
    signature("round", Function::Round, &[VECTOR, SCALAR], 1, VECTOR),
    signature("scalar", Function::Scalar, &[VECTOR], 0, SCALAR),
    math("sgn", MathFunction::Sign),
    math("sin", MathFunction::Sin),
    math("sinh", MathFunction::Sinh),
    signature("sort", Function::Sort, &[VECTOR], 0, VECTOR),
    experimental(signature("sort_by_label", Function::SortByLabel, &[VECTOR, TEXT], -1, VECTOR)),
    experimental(signature("sort_by_label_desc", Function::SortByLabelDescending, &[VECTOR, TEXT], -1, VECTOR)),
    signature("sort_desc", Function::SortDescending, &[VECTOR], 0, VECTOR),
    math("sqrt", MathFunction::SquareRoot),
    experimental(signature("start", Function::QueryStart, &[], 0, SCALAR)),
    experimental(signature("start_timestamp", Function::StartTimestamp, &[VECTOR], 0, VECTOR)),
    window("stddev_over_time", WindowFunction::StandardDeviation),
    window("stdvar_over_time", WindowFunction::Variance),
    experimental(signature("step", Function::QueryStep, &[], 0, SCALAR)),
    window("sum_over_time", WindowFunction::Sum),
    math("tan", MathFunction::Tan),
    math("tanh", MathFunction::Tanh),
    signature("time", Function::Time, &[], 0, SCALAR),
    signature("timestamp", Function::Timestamp, &[VECTOR], 0, VECTOR),
    experimental(window("ts_of_first_over_time", WindowFunction::TimestampOfFirst)),
    experimental(window("ts_of_last_over_time", WindowFunction::TimestampOfLast)),
    experimental(window("ts_of_max_over_time", WindowFunction::TimestampOfMaximum)),
    experimental(window("ts_of_min_over_time", WindowFunction::TimestampOfMinimum)),
    signature("vector", Function::Vector, &[SCALAR], 0, VECTOR),
    date("year", DatePart::Year),
];

/// The function of this name.
pub(crate) fn by_name(name: &str) -> Option<&'static Signature> {
    let place = SIGNATURES.binary_search_by(|candidate| candidate.name.cmp(name)).ok()?;
    SIGNATURES.get(place)
}

impl Function {
    /// Whether the result depends on the time of evaluation even if all arguments are pinned by `@`.
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
                | Self::Window(WindowFunction::PredictLinear)
        )
    }
}

impl MathFunction {
    /// The function itself.
    pub(crate) fn apply(self) -> fn(f64) -> f64 {
        match self {
            Self::Abs => f64::abs,
            Self::Acos => f64::acos,
            Self::Acosh => f64::acosh,
            Self::Asin => f64::asin,
            Self::Asinh => f64::asinh,
            Self::Atan => f64::atan,
            Self::Atanh => f64::atanh,
            Self::Ceil => f64::ceil,
            Self::Cos => f64::cos,
            Self::Cosh => f64::cosh,
            Self::Degrees => |value| value * 180.0 / std::f64::consts::PI,
            Self::Exp => f64::exp,
            Self::Floor => f64::floor,
            Self::Ln => f64::ln,
            Self::Log10 => f64::log10,
            Self::Log2 => f64::log2,
            Self::Radians => |value| value * std::f64::consts::PI / 180.0,
            Self::Sign => sign,
            Self::Sin => f64::sin,
            Self::Sinh => f64::sinh,
            Self::SquareRoot => f64::sqrt,
            Self::Tan => f64::tan,
            Self::Tanh => f64::tanh,
        }
    }
}

/// -1, 1, or the value itself if it is zero or not a number.
fn sign(value: f64) -> f64 {
    if value < 0.0 {
        -1.0
    } else if value > 0.0 {
        1.0
    } else {
        value
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

//! The functions: names, arguments, results.

use crate::ast::ResultKind;
use crate::calendar::DatePart;
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
    HistogramFraction,
    HistogramQuantile,
    LabelJoin,
    LabelReplace,
    Pi,
    Round,
    Scalar,
    Sort,
    SortByLabel,
    SortByLabelDescending,
    SortDescending,
    Time,
    Timestamp,
    Vector,
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
#[derive(Debug)]
pub(crate) struct Signature {
    pub(crate) name: &'static str,
    pub(crate) function: Function,
    /// Kinds of the arguments.
    pub(crate) arguments: &'static [ResultKind],
    /// How many of them must be there.
    pub(crate) required: usize,
    /// The last one may be repeated.
    pub(crate) repeats: bool,
    pub(crate) result: ResultKind,
}

const SCALAR: ResultKind = ResultKind::Scalar;
const TEXT: ResultKind = ResultKind::String;
const VECTOR: ResultKind = ResultKind::InstantVector;
const RANGE: ResultKind = ResultKind::RangeVector;

const fn signature(
    name: &'static str,
    function: Function,
    arguments: &'static [ResultKind],
    required: usize,
    result: ResultKind,
) -> Signature {
    Signature { name, function, arguments, required, repeats: false, result }
}

const fn repeating(
    name: &'static str,
    function: Function,
    arguments: &'static [ResultKind],
    required: usize,
) -> Signature {
    Signature { name, function, arguments, required, repeats: true, result: VECTOR }
}

const fn math(name: &'static str, function: MathFunction) -> Signature {
    signature(name, Function::Math(function), &[VECTOR], 1, VECTOR)
}

const fn date(name: &'static str, part: DatePart) -> Signature {
    signature(name, Function::Date(part), &[VECTOR], 0, VECTOR)
}

const fn window(name: &'static str, function: WindowFunction) -> Signature {
    signature(name, Function::Window(function), &[RANGE], 1, VECTOR)
}

/// Sorted by name.
static SIGNATURES: [Signature; 76] = [
    math("abs", MathFunction::Abs),
    signature("absent", Function::Absent, &[VECTOR], 1, VECTOR),
    signature("absent_over_time", Function::AbsentOverTime, &[RANGE], 1, VECTOR),
    math("acos", MathFunction::Acos),
    math("acosh", MathFunction::Acosh),
    math("asin", MathFunction::Asin),
    math("asinh", MathFunction::Asinh),
    math("atan", MathFunction::Atan),
    math("atanh", MathFunction::Atanh),
    window("avg_over_time", WindowFunction::Average),
    math("ceil", MathFunction::Ceil),
    window("changes", WindowFunction::Changes),
    signature("clamp", Function::Clamp, &[VECTOR, SCALAR, SCALAR], 3, VECTOR),
    signature("clamp_max", Function::ClampMax, &[VECTOR, SCALAR], 2, VECTOR),
    signature("clamp_min", Function::ClampMin, &[VECTOR, SCALAR], 2, VECTOR),
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
    signature(
        "double_exponential_smoothing",
        Function::Window(WindowFunction::DoubleExponentialSmoothing),
        &[RANGE, SCALAR, SCALAR],
        3,
        VECTOR,
    ),
    math("exp", MathFunction::Exp),
    window("first_over_time", WindowFunction::First),
    math("floor", MathFunction::Floor),
    signature("histogram_fraction", Function::HistogramFraction, &[SCALAR, SCALAR, VECTOR], 3, VECTOR),
    signature("histogram_quantile", Function::HistogramQuantile, &[SCALAR, VECTOR], 2, VECTOR),
    date("hour", DatePart::Hour),
    window("idelta", WindowFunction::InstantDelta),
    window("increase", WindowFunction::Increase),
    window("irate", WindowFunction::InstantRate),
    repeating("label_join", Function::LabelJoin, &[VECTOR, TEXT, TEXT, TEXT], 3),
    signature("label_replace", Function::LabelReplace, &[VECTOR, TEXT, TEXT, TEXT, TEXT], 5, VECTOR),
    window("last_over_time", WindowFunction::Last),
    math("ln", MathFunction::Ln),
    math("log10", MathFunction::Log10),
    math("log2", MathFunction::Log2),
    window("mad_over_time", WindowFunction::MedianAbsoluteDeviation),
    window("max_over_time", WindowFunction::Maximum),
    window("min_over_time", WindowFunction::Minimum),
    date("minute", DatePart::Minute),
    date("month", DatePart::Month),
    signature("pi", Function::Pi, &[], 0, SCALAR),
    signature("predict_linear", Function::Window(WindowFunction::PredictLinear), &[RANGE, SCALAR], 2, VECTOR),
    window("present_over_time", WindowFunction::Present),
    signature("quantile_over_time", Function::Window(WindowFunction::Quantile), &[SCALAR, RANGE], 2, VECTOR),
    math("rad", MathFunction::Radians),
    window("rate", WindowFunction::Rate),
    window("resets", WindowFunction::Resets),
    signature("round", Function::Round, &[VECTOR, SCALAR], 1, VECTOR),
    signature("scalar", Function::Scalar, &[VECTOR], 1, SCALAR),
    math("sgn", MathFunction::Sign),
    math("sin", MathFunction::Sin),
    math("sinh", MathFunction::Sinh),
    signature("sort", Function::Sort, &[VECTOR], 1, VECTOR),
    repeating("sort_by_label", Function::SortByLabel, &[VECTOR, TEXT], 1),
    repeating("sort_by_label_desc", Function::SortByLabelDescending, &[VECTOR, TEXT], 1),
    signature("sort_desc", Function::SortDescending, &[VECTOR], 1, VECTOR),
    math("sqrt", MathFunction::SquareRoot),
    window("stddev_over_time", WindowFunction::StandardDeviation),
    window("stdvar_over_time", WindowFunction::Variance),
    window("sum_over_time", WindowFunction::Sum),
    math("tan", MathFunction::Tan),
    math("tanh", MathFunction::Tanh),
    signature("time", Function::Time, &[], 0, SCALAR),
    signature("timestamp", Function::Timestamp, &[VECTOR], 1, VECTOR),
    window("ts_of_first_over_time", WindowFunction::TimestampOfFirst),
    window("ts_of_last_over_time", WindowFunction::TimestampOfLast),
    window("ts_of_max_over_time", WindowFunction::TimestampOfMaximum),
    window("ts_of_min_over_time", WindowFunction::TimestampOfMinimum),
    signature("vector", Function::Vector, &[SCALAR], 1, VECTOR),
    date("year", DatePart::Year),
];

impl Function {
    /// The function of this name.
    pub(crate) fn by_name(name: &str) -> Option<&'static Signature> {
        let place = SIGNATURES.binary_search_by(|candidate| candidate.name.cmp(name)).ok()?;
        SIGNATURES.get(place)
    }

    /// What the function takes and gives.
    pub(crate) fn signature(self) -> &'static Signature {
        SIGNATURES.iter().find(|signature| signature.function == self).unwrap_or(&SIGNATURES[0])
    }

    /// Whether the result depends on the time of evaluation even if all arguments are pinned by `@`.
    pub(crate) fn depends_on_time(self) -> bool {
        matches!(self, Self::Date(_) | Self::Time | Self::Timestamp | Self::Window(WindowFunction::PredictLinear))
    }
}

impl Signature {
    /// Checks number and kinds of the arguments; the error is for the user.
    pub(crate) fn check(&self, arguments: &[ResultKind]) -> Result<(), String> {
        let (name, given) = (self.name, arguments.len());
        if self.required == self.arguments.len() && !self.repeats && given != self.required {
            return Err(format!("expected {} argument(s) in call to \"{name}\", got {given}", self.required));
        }
        if given < self.required {
            return Err(format!("expected at least {} argument(s) in call to \"{name}\", got {given}", self.required));
        }
        if !self.repeats && given > self.arguments.len() {
            let most = self.arguments.len();
            return Err(format!("expected at most {most} argument(s) in call to \"{name}\", got {given}"));
        }
        let expected = self.arguments.iter().chain(self.arguments.last().into_iter().cycle());
        for (kind, expected) in arguments.iter().zip(expected) {
            if kind != expected {
                let (kind, expected) = (kind.name(), expected.name());
                return Err(format!("expected type {expected} in call to function \"{name}\", got {kind}"));
            }
        }
        Ok(())
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
        assert!(SIGNATURES.windows(2).all(|pair| pair[0].name < pair[1].name));
        for signature in &SIGNATURES {
            assert_eq!(signature.function.signature().name, signature.name);
        }
    }
}

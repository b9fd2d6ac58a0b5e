//! The logical plan: SQL, InfluxQL and s-expressions become one, and the executor runs it.
//!
//! A plan's value is a list of frames ([`crate::Frame`]): series with their labels, rows sorted by time, and named columns. Its
//! written form is the s-expression language of FrogFishDB ([`crate::parse`]); `Display` writes it.

mod as_of;
mod condition;
mod expression;
mod labelled;
mod likeness;
mod print;
mod push_down;
mod selectors;
pub(crate) mod sexpr;
mod times;

pub use as_of::AsOf;
pub use condition::{Condition, Lowered, MissingTag};
pub use expression::{Expression, Function, Operator};
pub use labelled::Labelled;
pub use likeness::{BinValue, Likeness, Measure, Offsets, Question, SimilarTo};
pub(crate) use print::UNITS;
pub use print::{duration, quoted};
pub(crate) use push_down::push_down;

use model::{MatchOp, Matcher, TimeRange};

use crate::sketch::Buckets;

/// A logical plan.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// Series from the store, a frame each, their samples in the column `value`; or the groups of a table, a frame each, with a column
    /// for each field.
    Scan(Scan),
    /// The rows for which a condition holds.
    Where {
        /// Whose rows.
        input: Box<Plan>,
        /// The condition.
        condition: Expression,
    },
    /// Rows in bins of time.
    GroupBy {
        /// Whose rows.
        input: Box<Plan>,
        /// How.
        grouping: Grouping,
    },
    /// New columns in place of the old ones.
    Map {
        /// Whose rows.
        input: Box<Plan>,
        /// Names and what they are computed from.
        columns: Vec<(String, Expression)>,
    },
    /// Rows for the bins between the first and the last that have none.
    Fill {
        /// Rows in bins.
        input: Box<Plan>,
        /// From one bin to the next, in nanoseconds.
        width_ns: i64,
        /// The values of the new rows.
        with: FillWith,
    },
    /// Rows in another order, series by series.
    Order {
        /// Whose rows.
        input: Box<Plan>,
        /// By what.
        by: Expression,
        /// Largest first.
        descending: bool,
    },
    /// A few rows of each series.
    Limit {
        /// Whose rows.
        input: Box<Plan>,
        /// So many of each series at most.
        rows: usize,
        /// After so many.
        skip: usize,
    },
    /// The last rows of each series by time, the last one first.
    Last {
        /// Whose rows.
        input: Box<Plan>,
        /// So many of each series at most.
        rows: usize,
    },
    /// Rows of two plans side by side.
    Join(Box<Join>),
    /// The series of several plans.
    Union(Vec<Plan>),
    /// The rows of a materialised view: stored windows, and windows that are computed now.
    View(Box<ViewRead>),
    /// Places and series that are alike.
    Likeness(Box<Likeness>),
    /// Rows with labels that another table says, right before they are grouped by labels.
    Labelled(Box<Labelled>),
    /// Rows with columns of another table as of their times.
    AsOf(Box<AsOf>),
}

/// What a scan of a materialised view reads.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewRead {
    /// The view.
    pub name: String,
    /// Its columns.
    pub columns: Vec<String>,
    /// In order of time; no two have a window in common.
    pub parts: Vec<ViewPart>,
    /// True if rows count in which no column has a value.
    pub every_row: bool,
}

/// A part of the windows of a view.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewPart {
    /// The times of its rows.
    pub range: TimeRange,
    /// What gives them, and others maybe.
    pub plan: Plan,
}

/// Which series of the store, and which stretch of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// Rows of this table, instead of series.
    pub table: Option<TableColumns>,
    /// All must hold.
    pub selectors: Vec<Selector>,
    /// These series, whatever their labels; empty if selectors choose.
    pub tokens: Vec<u64>,
    /// When.
    pub range: TimeRange,
}

/// A table and the columns to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumns {
    /// The measurement.
    pub name: String,
    /// The fields that are read; empty: all.
    pub fields: Vec<String>,
    /// True if rows count in which none of these fields has a value, as they do in SQL; then groups are chosen, and bins exist, by
    /// their rows. Without it by the values of the fields, as in `InfluxQL`.
    pub every_row: bool,
}

impl Scan {
    /// All rows of a table.
    pub fn of_table(name: impl Into<String>) -> Self {
        let table = Some(TableColumns { name: name.into(), fields: Vec::new(), every_row: true });
        Self { table, selectors: Vec::new(), tokens: Vec::new(), range: TimeRange::ALL }
    }

    /// Returns whether rows count in which nothing that is read has a value.
    pub(crate) fn is_of_every_row(&self) -> bool {
        self.table.as_ref().is_some_and(|table| table.every_row)
    }
}

/// A condition on a label: one of several values, or patterns that a value must match whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The label.
    pub name: String,
    /// How values are compared; with several values, a negative one must differ from all.
    pub op: MatchOp,
    /// Values or patterns; not empty.
    pub values: Vec<String>,
}

impl Selector {
    /// It as a single matcher.
    pub fn matcher(&self) -> Matcher {
        if let [value] = self.values.as_slice() {
            return Matcher::new(&*self.name, self.op, &**value);
        }
        let (op, alternatives): (MatchOp, Vec<String>) = match self.op {
            MatchOp::Equal => (MatchOp::Regex, self.values.iter().map(|value| regex_syntax::escape(value)).collect()),
            MatchOp::NotEqual => {
                (MatchOp::NotRegex, self.values.iter().map(|value| regex_syntax::escape(value)).collect())
            }
            op => (op, self.values.iter().map(|pattern| format!("(?:{pattern})")).collect()),
        };
        Matcher::new(&*self.name, op, alternatives.join("|"))
    }
}

/// How rows are put into bins, and the aggregates of each bin.
#[derive(Debug, Clone, PartialEq)]
pub struct Grouping {
    /// Width of a bin in nanoseconds; bins begin at multiples of it since the epoch. `None`: all rows are one bin, which has the time of
    /// its first row.
    pub width_ns: Option<i64>,
    /// Bins begin so much later, in nanoseconds; less than a width.
    pub offset_ns: i64,
    /// The aggregates of a bin: a column each, named as [`AggregateCall::column_name`] says.
    pub aggregates: Vec<AggregateCall>,
    /// Series that agree in these labels are one; `None`: every series stays by itself.
    pub by: Option<Vec<String>>,
    /// True if the time of the one bin of all rows is not used, so that a view may answer. Bins with a width have their times.
    pub undated: bool,
}

/// An aggregate of the rows of a bin.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateCall {
    /// Which one.
    pub aggregate: Aggregate,
    /// Its input.
    pub input: AggregateInput,
}

/// The input of an aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AggregateInput {
    /// Each column that there is.
    Each,
    /// One column.
    Column(String),
    /// The rows' times, in nanoseconds.
    Time,
    /// Rows of which each stands for several values, such as a window of a view: for [`Aggregate::of_squares`] alone.
    Parts(Box<PartColumns>),
    /// A column of sketches, of which each stands for several values: for [`Aggregate::is_of_sketch`] alone.
    Sketches(String),
    /// A label of the rows' series; those without it have no value: for [`Aggregate::is_of_tags`] alone.
    Tag(String),
}

/// The columns of rows that stand for several values each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartColumns {
    /// How many values.
    pub count: String,
    /// Their sum.
    pub sum: String,
    /// The sum of their squared deviations from their mean.
    pub squares: String,
}

impl PartColumns {
    /// Their names.
    pub fn names(&self) -> [&str; 3] {
        [&self.count, &self.sum, &self.squares]
    }

    /// One name for the three columns, as s-expressions have them.
    pub(crate) fn name(&self) -> String {
        let [count, sum, squares] = self.names();
        format!("({count:?} {sum:?} {squares:?})")
    }
}

impl AggregateCall {
    /// An aggregate of a column.
    pub fn of_column(aggregate: Aggregate, column: impl Into<String>) -> Self {
        Self { aggregate, input: AggregateInput::Column(column.into()) }
    }

    /// The columns that it names.
    pub fn columns(&self) -> Vec<&str> {
        match &self.input {
            AggregateInput::Column(column) | AggregateInput::Sketches(column) => vec![column.as_str()],
            AggregateInput::Parts(parts) => parts.names().to_vec(),
            AggregateInput::Each | AggregateInput::Time | AggregateInput::Tag(_) => Vec::new(),
        }
    }

    /// The name of its column: `max usage_user`, `count #TS`. An aggregate of each column is named after the column, or
    /// itself, or both, as far as there are several: `value`, `max`, `usage_user_max`.
    pub fn column_name(&self) -> String {
        match &self.input {
            AggregateInput::Each => self.aggregate.column_name(),
            AggregateInput::Column(column) => format!("{} {column}", self.aggregate.column_name()),
            AggregateInput::Time => format!("{} #TS", self.aggregate.column_name()),
            AggregateInput::Parts(parts) => format!("{} {}", self.aggregate.column_name(), parts.name()),
            AggregateInput::Sketches(column) => format!("{} ({column:?})", self.aggregate.column_name()),
            AggregateInput::Tag(tag) => format!("{} (tag {tag:?})", self.aggregate.column_name()),
        }
    }
}

impl Grouping {
    /// Returns whether a bin is made of rows of the one before it, too.
    pub fn reads_bin_before(&self) -> bool {
        self.aggregates.iter().any(|call| call.aggregate == Aggregate::Increase)
    }

    /// Returns whether it matters in which order series that are grouped together come.
    pub(crate) fn is_of_lines(&self) -> bool {
        self.aggregates.iter().any(|call| call.aggregate.is_of_lines())
    }

    /// The columns that it needs; `None` if that is all there are.
    pub(crate) fn columns(&self) -> Option<Vec<&str>> {
        let mut columns = Vec::with_capacity(self.aggregates.len());
        for call in &self.aggregates {
            match &call.input {
                AggregateInput::Each | AggregateInput::Time | AggregateInput::Tag(_) => return None,
                _ => columns.extend(call.columns()),
            }
        }
        Some(columns)
    }
}

/// A function of the values in a bin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aggregate {
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The mean.
    Avg,
    /// How many.
    Count,
    /// All together.
    Sum,
    /// The earliest.
    First,
    /// The latest.
    Last,
    /// The standard deviation of the values as a whole population.
    Stddev,
    /// The standard deviation of the values as a sample; nothing of one value.
    StddevSample,
    /// The variance of the values as a whole population.
    Variance,
    /// The variance of the values as a sample; nothing of one value.
    VarianceSample,
    /// The sum of the squared deviations of the values from their mean: what deviations of several bins are made of.
    Squares,
    /// About the value below which this share of the values lies (0 to 1), by a sketch.
    ApproxQuantile(f64),
    /// That sketch, as text: what approximate quantiles of several bins are made of.
    QuantileSketch,
    /// About how many different values there are, by a sketch.
    ApproxDistinct,
    /// That sketch, as text.
    DistinctSketch,
    /// How many values lie in each of some ranges, as text.
    Histogram(Buckets),
    /// The sum of histograms, as text: of [`AggregateInput::Sketches`] alone.
    Histograms,
    /// What counters gain, series by series: the differences between values that follow one another, of one that is less than the one before the
    /// value itself. A bin's first value follows the last one of the bin right before it.
    Increase,
    /// How many different values there are. Those of several bins do not tell it of all of them.
    CountDistinct,
    /// How many times are no whole milliseconds, nothing if all are: of the rows' times alone. PromQL has times of milliseconds, so that what it computes of
    /// other rows is not what the rows give.
    OffMilliseconds,
    /// The value below which this share of the values lies (0 to 1), between two values in proportion.
    Quantile(f64),
    /// The value whose rank is nearest to so many percent of all: InfluxQL's `percentile`. Nothing where that is none of their ranks.
    NearestRank(f64),
    /// The most frequent value; of several InfluxQL's choice.
    Mode,
    /// The area under the line through a bin's own values in order of time, from the first to the last one: InfluxQL's `integral` of one window. Zero of one value.
    Integral {
        /// The area is values times units of so many nanoseconds, which are more than none.
        unit_ns: i64,
    },
}

impl Aggregate {
    /// Those that take nothing.
    pub const NAMED: [(&'static str, Self); 20] = [
        ("min", Self::Min),
        ("max", Self::Max),
        ("avg", Self::Avg),
        ("count", Self::Count),
        ("sum", Self::Sum),
        ("first", Self::First),
        ("last", Self::Last),
        ("stddev", Self::Stddev),
        ("stddev_samp", Self::StddevSample),
        ("var_pop", Self::Variance),
        ("var_samp", Self::VarianceSample),
        ("squares", Self::Squares),
        ("quantile_sketch", Self::QuantileSketch),
        ("approx_distinct", Self::ApproxDistinct),
        ("distinct_sketch", Self::DistinctSketch),
        ("histograms", Self::Histograms),
        ("count_distinct", Self::CountDistinct),
        ("mode", Self::Mode),
        ("increase", Self::Increase),
        ("off_ms", Self::OffMilliseconds),
    ];

    /// Its name, also that of its column where there are several.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quantile(_) => "quantile",
            Self::NearestRank(_) => "nearest_rank",
            Self::Integral { .. } => "integral",
            Self::ApproxQuantile(_) => "approx_quantile",
            Self::Histogram(_) => "histogram",
            named => Self::NAMED.iter().find(|(_, known)| *known == named).map_or("", |(name, _)| name),
        }
    }

    /// `max`, `quantile_0.99`, `integral_1s`.
    pub(crate) fn column_name(self) -> String {
        match self {
            Self::Quantile(share) | Self::ApproxQuantile(share) | Self::NearestRank(share) => {
                format!("{}_{share}", self.name())
            }
            Self::Histogram(buckets) => {
                let (low, high, count) = buckets.parts();
                format!("{}_{low}_{high}_{count}", self.name())
            }
            Self::Integral { unit_ns } => format!("{}_{}", self.name(), duration(unit_ns)),
            named => named.name().to_owned(),
        }
    }

    /// Returns whether summaries have the answer, so that samples need not be read.
    pub const fn from_summaries(self) -> bool {
        !matches!(self, Self::Quantile(_)) && !self.has_own_bins() && !self.is_of_squares() && !self.is_of_sketch()
    }

    /// Returns whether it is made of a sketch of the values, or is one.
    pub const fn is_of_sketch(self) -> bool {
        self.sketch().is_some()
    }

    /// The sketch that it is made of, or is.
    pub const fn sketch(self) -> Option<Self> {
        match self {
            Self::ApproxQuantile(_) | Self::QuantileSketch => Some(Self::QuantileSketch),
            Self::ApproxDistinct | Self::DistinctSketch => Some(Self::DistinctSketch),
            Self::Histogram(_) | Self::Histograms => Some(self),
            _ => None,
        }
    }

    /// The aggregate that a function of InfluxQL and of Flux is, of those that both call alike.
    pub fn of_influx_function(name: &str) -> Option<Self> {
        Some(match name {
            "count" => Self::Count,
            "sum" => Self::Sum,
            "mean" => Self::Avg,
            "min" => Self::Min,
            "max" => Self::Max,
            "first" => Self::First,
            "last" => Self::Last,
            "median" => Self::Quantile(0.5),
            "stddev" => Self::StddevSample,
            _ => return None,
        })
    }

    /// Returns whether it tells how many different values there are, which labels have, too.
    pub const fn is_of_tags(self) -> bool {
        matches!(self, Self::ApproxDistinct | Self::DistinctSketch | Self::CountDistinct)
    }

    /// Returns whether its bins are no other aggregate's.
    pub(crate) const fn has_own_bins(self) -> bool {
        matches!(self, Self::CountDistinct | Self::Increase | Self::OffMilliseconds | Self::Histogram(_))
            || self.is_of_points()
    }

    /// Returns whether it is made of all values with their times.
    pub(crate) const fn is_of_points(self) -> bool {
        matches!(self, Self::NearestRank(_) | Self::Mode) || self.is_of_lines()
    }

    /// Returns whether it is made of numbers in order of time, and those of one time in order of their series' labels.
    pub(crate) const fn is_of_lines(self) -> bool {
        matches!(self, Self::Integral { .. })
    }

    /// Returns whether it is zero where there are no values.
    pub const fn is_count(self) -> bool {
        matches!(self, Self::Count | Self::ApproxDistinct | Self::CountDistinct)
    }

    /// Returns whether it is made of the squared deviations of the values from their mean.
    pub const fn is_of_squares(self) -> bool {
        matches!(self, Self::Stddev | Self::StddevSample | Self::Variance | Self::VarianceSample | Self::Squares)
    }

    /// Its value from how many values there are and the sum of their squared deviations; `None` if these are too few, or it is another one.
    pub fn of_squares(self, count: f64, squares: f64) -> Option<f64> {
        let by = |divisor: f64| (divisor > 0.0).then(|| squares / divisor);
        match self {
            Self::Stddev => by(count).map(f64::sqrt),
            Self::StddevSample => by(count - 1.0).map(f64::sqrt),
            Self::Variance => by(count),
            Self::VarianceSample => by(count - 1.0),
            Self::Squares => (count > 0.0).then_some(squares),
            _ => None,
        }
    }
}

/// The values of rows that fill gaps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FillWith {
    /// Nothing.
    Null,
    /// The value of the row before.
    Previous,
    /// A value between those of the rows around, in proportion to time.
    Linear,
    /// A number.
    Number(f64),
}

/// How two plans are put side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Join {
    /// How rows without a partner are joined.
    pub kind: JoinKind,
    /// Its columns come first, named `left` if it has one.
    pub left: Plan,
    /// Its columns come second, named `right` if it has one.
    pub right: Plan,
    /// Labels in which series must agree; `None`: all but `__name__`.
    pub on: Option<Vec<String>>,
    /// For [`JoinKind::AsOf`]: partners are not older than this, in nanoseconds.
    pub within_ns: Option<i64>,
}

/// How rows without a partner of the same time are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// They are left out.
    Inner,
    /// Those of the left stay, the right's columns null.
    Left,
    /// Those of the left get the right's newest row that is not later.
    AsOf,
}

impl JoinKind {
    /// All, with their names.
    pub const NAMED: [(&'static str, Self); 3] = [("inner", Self::Inner), ("left", Self::Left), ("asof", Self::AsOf)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, named)| *named == self).map_or("", |(name, _)| name)
    }
}

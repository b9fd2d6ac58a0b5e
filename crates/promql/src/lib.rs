//! PromQL as Prometheus 3 has it: text to expression to values.
//!
//! ```text
//! text ── syntax ──► Expr ── plan ──► Expr with fixed times ── eval, for all steps at once ──► rows ──► Answer
//!                                      │
//!                                      ├─ select      selectors and subqueries: read once, then windows slide over the samples
//!                                      ├─ stream      selectors under functions and aggregations: a row at a time, on several threads
//!                                      ├─ slide       a window moves over a series; window_places, where it is at every step; rate_runs, many at once
//!                                      ├─ window      functions of a range: rate, *_over_time, …
//!                                      ├─ aggregate   sum, topk, …; folding, a row after the other; cells, what groups have so far
//!                                      ├─ binary      operators and vector matching
//!                                      ├─ histogram   native histograms as values; classic beside it
//!                                      ├─ relabel     label_replace, sort, …
//!                                      └─ info        labels of series that describe others
//!
//!  for whoever asks what is done: explain, the written form of an evaluation · statistics, samples touched as Prometheus counts them
//!  for whoever keeps answers: reach, what an expression reads · stretch, answers that can be cut and joined
//!                             inner, expressions within others · kept_rows, the rows of window functions
//! ```
//!
//! Values come from a [`query::Source`], which may hand over series on several threads; there is no clock and no I/O in here.

mod aggregate;
mod answer;
mod best;
mod binary;
mod calendar;
mod cells;
mod classic;
mod eval;
mod explain;
mod fold;
mod folding;
mod function;
mod histogram;
mod histogram_fold;
mod info;
mod inner;
mod interpolate;
mod kept_rows;
mod math;
mod notes;
mod plan;
mod rate;
mod rate_runs;
mod reach;
mod relabel;
mod rows;
mod select;
mod slide;
mod statistics;
mod stream;
mod stretch;
mod sum;
mod syntax;
mod window;
mod window_places;

pub use answer::{Answer, Evaluation, Points, Value, VectorSample, evaluate_instant, evaluate_range, range_steps};
pub use explain::{explain_instant, explain_range};
pub use histogram::{CounterReset, Histogram, HistogramBucket};
pub use inner::{Asked, Inner, InnerPart, Keeper, KeptInner, MadeInner};
pub use kept_rows::KeptRows;
use model::Matcher;
use query::QueryError;
pub use reach::Reads;
pub use statistics::{SampleCounts, count_instant, count_range};
pub use stretch::{Evaluated, StepInfo, Stretch, StretchSeries, evaluate_stretch};
pub use syntax::ast::ResultKind;

/// Parts of the language that Prometheus has behind feature flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of Prometheus")]
pub struct Features {
    /// Functions and aggregations that may still change: `info`, `limitk`, `sort_by_label`, …
    pub experimental_functions: bool,
    /// Durations that are computed: `[5m * 2]`, `step()`.
    pub duration_expressions: bool,
    /// `anchored` and `smoothed`.
    pub extended_ranges: bool,
    /// `fill`, `fill_left` and `fill_right`.
    pub fill_modifiers: bool,
}

impl Features {
    /// All of them, or none.
    pub const fn all(on: bool) -> Self {
        Self { experimental_functions: on, duration_expressions: on, extended_ranges: on, fill_modifiers: on }
    }
}

impl Default for Features {
    /// All on.
    fn default() -> Self {
        Self::all(true)
    }
}

/// When functions that change the meaning of values drop the metric's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameRemoval {
    /// At once, as Prometheus does by default.
    #[default]
    AtOnce,
    /// From the answer only, so that outer expressions may group by it. A name that an aggregation groups by is a label like others
    /// from there on: `max by (__name__) (max_over_time({…}[1m]))` has a row for each metric.
    Delayed,
    /// From the answer only, as Prometheus does with `promql-delayed-name-removal`: names that aggregations group by go, too, so that rows
    /// that differ in nothing else are an error.
    DelayedAlways,
}

impl NameRemoval {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::AtOnce, Self::Delayed, Self::DelayedAlways];

    /// What settings call it: whether it is delayed, or `always`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::AtOnce => "false",
            Self::Delayed => "true",
            Self::DelayedAlways => "always",
        }
    }

    /// The one that settings mean by a word; `1` and `0` are known, too.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = match word {
            "0" => "false",
            "1" => "true",
            word => word,
        };
        Self::ALL.into_iter().find(|removal| removal.word() == word)
    }

    /// Whether names stay until the end.
    pub(crate) fn is_delayed(self) -> bool {
        self != Self::AtOnce
    }
}

/// How expressions are evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How old the newest sample of a series may be to count as its value now.
    pub lookback_ms: i64,
    /// Most steps of an evaluation, subqueries included.
    pub steps_max: usize,
    /// The step of subqueries that name none.
    pub subquery_step_ms: i64,
    /// When names are dropped.
    pub name_removal: NameRemoval,
    /// What expressions may contain.
    pub features: Features,
}

impl Default for Settings {
    /// Lookback 5 minutes, 1,000,000 steps, subqueries every minute, names dropped at once, all features.
    fn default() -> Self {
        Self {
            lookback_ms: 5 * 60 * 1000,
            steps_max: 1_000_000,
            subquery_step_ms: 60 * 1000,
            name_removal: NameRemoval::AtOnce,
            features: Features::default(),
        }
    }
}

/// An expression, parsed and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    expr: syntax::ast::Expr,
    text: String,
}

impl Expression {
    /// Parses a text with all features; fails with [`QueryError::Invalid`] if it is no PromQL, too long or too deeply nested.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        Self::parse_with(text, Features::default())
    }

    /// Parses a text that may contain some features only.
    pub fn parse_with(text: &str, features: Features) -> Result<Self, QueryError> {
        match syntax::parse(text, features) {
            Ok(expr) => Ok(Self { expr, text: text.to_owned() }),
            Err(error) => Err(QueryError::Invalid(error.with_place(text))),
        }
    }

    /// The text that it was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What the expression yields.
    pub fn result_kind(&self) -> ResultKind {
        self.expr.kind()
    }

    /// The matchers of every selector, from left to right.
    pub fn selectors(&self) -> Vec<&[Matcher]> {
        let mut selectors = Vec::new();
        self.expr.for_each_selector(&mut |selector| selectors.push(selector.matchers.as_slice()));
        selectors
    }

    /// The expression in the standard spelling, broken into lines where it is long.
    pub fn pretty(&self) -> String {
        syntax::print::pretty(&self.expr, 0)
    }

    /// The expression in the standard spelling, on one line.
    pub fn line(&self) -> String {
        syntax::print::line(&self.expr)
    }

    /// The expression's tree as JSON, in the form of Prometheus's `parse_query`.
    pub fn tree_json(&self) -> String {
        syntax::tree::json(&self.expr)
    }
}

/// Parses a plain vector selector, as the parameter `match[]` of Prometheus's API takes it: at least one matcher does
/// not match the empty text, and there is no `offset`, `@` or range.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, QueryError> {
    syntax::parse_plain_selector(text).map_err(|error| QueryError::Invalid(error.with_place(text)))
}

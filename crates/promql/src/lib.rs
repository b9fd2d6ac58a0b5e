//! PromQL as Prometheus 3 has it: text to expression to values.
//!
//! ```text
//! text ── syntax ──► Expr ── syntax::bind_times ──► bound Expr ── eval, for all steps at once ──► rows ──► result
//!                                                                  │
//!                                                                  ├─ range      selectors, and functions of windows over samples
//!                                                                  ├─ aggregate  sum, topk, …
//!                                                                  └─ histogram  native and classic histograms
//! ```
//!
//! * `expression`: a parsed expression; `settings`: how it is evaluated; `evaluate`: the functions that do it; `result`: what they yield
//! * `syntax`: text, tokens, trees, names of functions; depends on nothing else here
//! * `eval`: scalars and instant vectors
//! * `range`, `aggregate`, `histogram`: as above; series may be relabelled before they are grouped, by the crate `relabel`
//! * `explain`: the written form of an evaluation
//! * `sample_counts`: the samples that an evaluation touches, as Prometheus counts them
//! * `cache`: what a result cache needs to know of expressions, and the form of what it keeps
//!
//! Values come from a [`query::Source`], which may deliver series on several threads; there is no clock and no I/O in here.

mod aggregate;
mod cache;
mod eval;
mod evaluate;
mod explain;
mod expression;
mod histogram;
mod range;
mod result;
mod sample_counts;
mod settings;
mod syntax;

pub use cache::dependencies::ReadInterval;
pub use cache::partial_range::{PartialRange, PartialRangeSlice, PartialSeries};
pub use eval::annotations::StepInfo;
pub use eval::evaluator::Evaluation;
pub use eval::rows::StepSpan;
pub use evaluate::{RangeOutcome, evaluate_instant, evaluate_partial_range, evaluate_range, range_steps};
pub use explain::{explain_instant, explain_range};
pub use expression::{Expression, parse_conditions, parse_selector};
pub use histogram::native::{CounterReset, Histogram, HistogramBucket};
pub use result::{EvaluationResult, ResultValue, SeriesPoints, VectorSample};
pub use sample_counts::{SampleCounts, count_instant, count_range};
pub use settings::{EvaluationSettings, NameRemoval};
pub use syntax::bind_times::QueryTimes;
pub use syntax::features::Features;
pub use syntax::result_kind::ResultKind;

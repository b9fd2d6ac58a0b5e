//! PromQL as Prometheus 3 has it: text to expression to values.
//!
//! ```text
//! text ── parse ──► Expr ── eval, for all steps at once ──► rows ──► Answer
//!          │                 │
//!          │                 ├─ select      selectors and subqueries: read once, then windows slide over the samples
//!          │                 ├─ window      functions of a range: rate, *_over_time, …
//!          │                 ├─ aggregate   sum, topk, …
//!          │                 ├─ binary      operators and vector matching
//!          │                 ├─ histogram   quantiles of classic histograms
//!          │                 └─ relabel     label_replace, sort, …
//!          └─ guard          nesting and sizes, on the raw text
//! ```
//!
//! Values come from a [`query::Source`]; there is no clock, no I/O and no thread in here. Native histograms, the
//! experimental modifiers (`fill`, `anchored`, `smoothed`), `limitk`, `limit_ratio` and `info` are refused with a
//! message that names them.

mod aggregate;
mod answer;
mod ast;
mod binary;
mod calendar;
mod eval;
mod function;
mod histogram;
mod notes;
mod parse;
mod relabel;
mod rows;
mod select;
mod sum;
mod window;

pub use answer::{Answer, Value, evaluate_instant, evaluate_range};
pub use ast::ResultKind;
use model::Matcher;
use query::QueryError;

/// How expressions are evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How old the newest sample of a series may be to count as its value now.
    pub lookback_ms: i64,
    /// Most steps of an evaluation, subqueries included.
    pub steps_max: usize,
    /// The step of subqueries that name none.
    pub subquery_step_ms: i64,
}

impl Default for Settings {
    /// Lookback 5 minutes, 1,000,000 steps, subqueries every minute.
    fn default() -> Self {
        Self { lookback_ms: 5 * 60 * 1000, steps_max: 1_000_000, subquery_step_ms: 60 * 1000 }
    }
}

/// An expression, parsed and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression(ast::Expr);

impl Expression {
    /// Parses a text; fails with [`QueryError::Invalid`] if it is no PromQL, too long or too deeply nested, or uses
    /// what is not supported.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        parse::parse(text).map(Self)
    }

    /// What the expression yields.
    pub fn result_kind(&self) -> ResultKind {
        self.0.kind()
    }

    /// The matchers of every selector, from left to right.
    pub fn selectors(&self) -> Vec<&[Matcher]> {
        let mut selectors = Vec::new();
        self.0.for_each_selector(&mut |selector| selectors.push(selector.matchers.as_slice()));
        selectors
    }
}

/// Parses a plain vector selector, as the parameter `match[]` of Prometheus's API takes it: at least one matcher does
/// not match the empty text, and there is no `offset`, `@` or range.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, QueryError> {
    parse::parse_selector(text)
}

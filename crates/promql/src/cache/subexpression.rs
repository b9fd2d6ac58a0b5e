//! Subexpressions that several queries share, and the cache that stores them.

use std::sync::Arc;

use model::Matcher;
use query::QueryError;

use crate::cache::cached_rows::CachedRows;
use crate::cache::dependencies::ReadInterval;
use crate::cache::partial_range::PartialRange;
use crate::eval::rows::StepSpan;

/// An expression within another, and the steps that are requested of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Subexpression {
    /// In the standard spelling, all durations fixed.
    pub text: String,
    /// The nearest enclosing expression that is looked up as well; `None` for the query itself.
    pub outer: Option<String>,
    /// The matchers of each of its selectors.
    pub selectors: Vec<Vec<Matcher>>,
    /// The samples that its step at time 0 reads.
    pub reads: ReadInterval,
    /// The requested steps.
    pub span: StepSpan,
    /// From one step to the next.
    pub step_ms: i64,
    /// It is cached as [`CachedRows`], else as a [`PartialRange`].
    pub is_rows: bool,
}

/// The outcome of looking up a [`Subexpression`].
pub enum SubexpressionLookup {
    /// Nothing, and the evaluated rows are not to be cached. Expressions within it are looked up with it as the outer one.
    NotCached,
    /// As `NotCached`, for an expression that can never be cached. Expressions within it are looked up with its own outer one.
    Uncacheable,
    /// All of its steps, in order of time; those that are not cached are to be evaluated and inserted.
    Parts(Vec<SubexpressionPart>),
}

/// Some steps of a [`Subexpression`].
pub struct SubexpressionPart {
    /// The steps.
    pub span: StepSpan,
    /// A cache entry that has these steps, and maybe more; `None` if they are to be evaluated.
    pub cached: Option<Arc<dyn CachedSubexpression>>,
}

/// A cache entry of a [`Subexpression`], in either form.
pub trait CachedSubexpression: Send + Sync {
    /// The rows of a range function.
    fn rows(&self) -> Option<&CachedRows>;
    /// The result of an aggregation.
    fn partial_range(&self) -> Option<&PartialRange>;
}

/// Evaluated steps of a [`Subexpression`].
pub enum EvaluatedSubexpression {
    /// The rows of a range function.
    Rows(CachedRows),
    /// The result of an aggregation.
    Partial(PartialRange),
}

/// A cache of subexpressions.
pub trait SubexpressionCache {
    /// Looks an expression up.
    fn lookup(&self, subexpression: &Subexpression) -> Result<SubexpressionLookup, QueryError>;
    /// Stores evaluated steps.
    fn insert(&self, subexpression: &Subexpression, evaluated: EvaluatedSubexpression, span: StepSpan);
    /// Says that evaluated steps cannot be cached: they are too large, or the expression yields what cannot be cached.
    fn reject(&self, subexpression: &Subexpression, is_too_large: bool);
    /// The largest entry that may be inserted.
    fn bytes_max(&self) -> usize;
}

//! Binds what depends on the query's times: `start()`, `end()`, `step()`, `range()` and computed durations.

use query::QueryError;

use crate::syntax::ast::{At, DurationSpec, Edges, Expr, Node, Selector, Shift};
use crate::syntax::functions::Function;

/// The times of a query: from the first to the last step, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryTimes {
    /// The first step.
    pub start_ms: i64,
    /// No step is later.
    pub end_ms: i64,
    /// From one step to the next; 0 for instant queries.
    pub step_ms: i64,
}

impl QueryTimes {
    /// The times of an instant query.
    pub const fn instant(time_ms: i64) -> Self {
        Self { start_ms: time_ms, end_ms: time_ms, step_ms: 0 }
    }

    fn step_s(self) -> f64 {
        self.step_ms as f64 / 1000.0
    }

    fn range_s(self) -> f64 {
        (self.end_ms - self.start_ms) as f64 / 1000.0
    }
}

/// The expression for a query of these times: all durations are fixed, and `@` has times.
pub(crate) fn bind_times(expr: &Expr, times: QueryTimes) -> Result<Expr, QueryError> {
    let mut bound = expr.clone();
    bind_node(&mut bound, times).map_err(QueryError::Invalid)?;
    Ok(bound)
}

fn bind_node(expr: &mut Expr, times: QueryTimes) -> Result<(), String> {
    if let Node::Call(call) = &expr.node {
        let value = match call.signature.function {
            Function::QueryStart => Some(times.start_ms as f64 / 1000.0),
            Function::QueryEnd => Some(times.end_ms as f64 / 1000.0),
            Function::QueryRange => Some(times.range_s()),
            Function::QueryStep if times.start_ms == times.end_ms => Some(0.0),
            Function::QueryStep => Some(times.step_s()),
            _ => None,
        };
        if let Some(value) = value {
            expr.node = Node::Number { value, duration: false };
            return Ok(());
        }
    }
    match &mut expr.node {
        Node::Selector(selector) => bind_shift(&mut selector.shift, times)?,
        Node::Range(range) => {
            bind_duration(&mut range.range, times, false)?;
            bind_shift(&mut range.selector.shift, times)?;
        }
        Node::Subquery(subquery) => {
            bind_shift(&mut subquery.shift, times)?;
            if let Some(step) = &mut subquery.step {
                bind_duration(step, times, false)?;
            }
            bind_duration(&mut subquery.range, times, false)?;
        }
        // Parentheses around an argument mean nothing, not even to functions that look at its form.
        Node::Call(call) => call.arguments.iter_mut().for_each(strip_parentheses),
        Node::SampleAggregate(aggregate) => aggregate.arguments.iter_mut().for_each(strip_parentheses),
        Node::Aggregate(aggregate) => {
            strip_parentheses(&mut aggregate.input);
            aggregate.parameter.iter_mut().for_each(strip_parentheses);
        }
        _ => {}
    }
    expr.children_mut().into_iter().try_for_each(|child| bind_node(child, times))
}

fn strip_parentheses(expr: &mut Expr) {
    while let Node::Parentheses(inner) = &mut expr.node {
        let placeholder = Expr::new(Node::Text(String::new()), inner.span);
        *expr = std::mem::replace(&mut **inner, placeholder);
    }
}

fn bind_shift(shift: &mut Shift, times: QueryTimes) -> Result<(), String> {
    if let Some(offset) = &mut shift.offset {
        bind_duration(offset, times, true)?;
    }
    shift.at = shift.at.map(|at| match at {
        At::Start => At::Time(times.start_ms),
        At::End => At::Time(times.end_ms),
        At::Time(time_ms) => At::Time(time_ms),
    });
    Ok(())
}

fn bind_duration(extent: &mut DurationSpec, times: QueryTimes, may_be_negative: bool) -> Result<(), String> {
    *extent = DurationSpec::Fixed(extent.milliseconds(times.step_s(), times.range_s(), may_be_negative)?);
    Ok(())
}

impl DurationSpec {
    /// Milliseconds of a bound duration.
    pub(crate) const fn bound_ms(&self) -> i64 {
        match self {
            Self::Fixed(milliseconds) => *milliseconds,
            Self::Computed(_) => 0,
        }
    }
}

impl Shift {
    pub(crate) fn offset_ms(&self) -> i64 {
        self.offset.as_ref().map_or(0, DurationSpec::bound_ms)
    }

    /// The time of `@`.
    pub(crate) const fn pinned_ms(&self) -> Option<i64> {
        match self.at {
            Some(At::Time(time_ms)) => Some(time_ms),
            _ => None,
        }
    }
}

/// The time that an instant vector refers to, for `info`: the time of `@` and the offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeReference {
    pub(crate) pinned_ms: Option<i64>,
    pub(crate) offset_ms: i64,
}

impl TimeReference {
    fn same_as(self, other: Self) -> bool {
        match (self.pinned_ms, other.pinned_ms) {
            (None, None) => self.offset_ms == other.offset_ms,
            (Some(this), Some(other_ms)) => this - self.offset_ms == other_ms - other.offset_ms,
            _ => false,
        }
    }

    fn from_selector(selector: &Selector, enclosing: &[&Shift]) -> Self {
        let shift = &selector.shift;
        let mut reference = Self { pinned_ms: shift.pinned_ms(), offset_ms: shift.offset_ms() };
        for shift in enclosing.iter().rev() {
            if reference.pinned_ms.is_some() {
                break;
            }
            reference.offset_ms += shift.offset_ms();
            reference.pinned_ms = shift.pinned_ms();
        }
        reference
    }
}

/// The one reference that all selectors of an expression share, if they share one and nothing else makes up series.
pub(crate) fn shared_reference(expr: &Expr) -> Option<TimeReference> {
    let mut references: Vec<TimeReference> = Vec::new();
    let mut is_free = false;
    collect_references(expr, &mut Vec::new(), &mut references, &mut is_free);
    let first = *references.first()?;
    (!is_free && references.iter().all(|other| first.same_as(*other))).then_some(first)
}

fn collect_references<'e>(
    expr: &'e Expr,
    enclosing: &mut Vec<&'e Shift>,
    references: &mut Vec<TimeReference>,
    is_free: &mut bool,
) -> bool {
    use crate::syntax::result_kind::ResultKind;
    if !matches!(expr.kind(), ResultKind::InstantVector | ResultKind::RangeVector) {
        return false;
    }
    let children = match &expr.node {
        Node::Selector(selector) => {
            references.push(TimeReference::from_selector(selector, enclosing));
            return true;
        }
        Node::Range(range) => {
            references.push(TimeReference::from_selector(&range.selector, enclosing));
            return true;
        }
        Node::Call(call) if call.signature.function == Function::Info => call.arguments.iter().take(1).collect(),
        _ => expr.children(),
    };
    let shift = if let Node::Subquery(subquery) = &expr.node { Some(&subquery.shift) } else { None };
    enclosing.extend(shift);
    let mut any = false;
    for child in children {
        any |= collect_references(child, enclosing, references, is_free);
    }
    if shift.is_some() {
        enclosing.pop();
    }
    *is_free |= !any;
    any
}

impl Expr {
    /// Returns whether the result is the same at all steps, so that it is computed at the first one only.
    pub(crate) fn is_step_invariant(&self) -> bool {
        match &self.node {
            Node::Number { .. } | Node::Text(_) => true,
            Node::Selector(selector) => selector.shift.at.is_some(),
            Node::Range(range) => range.selector.shift.at.is_some(),
            Node::Subquery(subquery) => subquery.shift.at.is_some(),
            Node::Parentheses(inner) | Node::Sign { inner, .. } => inner.is_step_invariant(),
            Node::Chain(chain) => chain.operands().all(Self::is_step_invariant),
            // As Prometheus: the parameter has no say.
            Node::Aggregate(aggregate) => aggregate.input.is_step_invariant(),
            Node::SampleAggregate(aggregate) => aggregate.arguments.iter().all(Self::is_step_invariant),
            Node::Call(call) => {
                let function = call.signature.function;
                let evaluated = if function == Function::Info { 1 } else { usize::MAX };
                let pinned = call.arguments.iter().take(evaluated).all(Self::is_step_invariant);
                if function == Function::Timestamp {
                    return pinned && matches!(call.arguments.as_slice(), [Self { node: Node::Selector(_), .. }]);
                }
                let one_time = function != Function::Info
                    || call.arguments.first().is_some_and(|input| shared_reference(input).is_some());
                pinned && one_time && !function.depends_on_time()
            }
        }
    }
}

impl Edges {
    /// The word for it, and the functions that know it.
    pub(crate) const fn keyword_and_functions(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Self::Plain => None,
            Self::Anchored => Some(("anchored", &["changes", "delta", "increase", "rate", "resets"])),
            Self::Smoothed => Some(("smoothed", &["delta", "increase", "rate"])),
        }
    }
}

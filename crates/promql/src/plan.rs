//! Settles what hangs on the query's times: `start()`, `end()`, `step()`, `range()` and computed durations.

use query::QueryError;

use crate::function::Function;
use crate::syntax::ast::{At, Edges, Expr, Extent, Node, Selector, Shift};

/// The times of a query.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "units are part of names")]
pub(crate) struct Times {
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    /// 0 for instant queries.
    pub(crate) step_ms: i64,
}

impl Times {
    fn step_s(self) -> f64 {
        self.step_ms as f64 / 1000.0
    }

    fn range_s(self) -> f64 {
        (self.end_ms - self.start_ms) as f64 / 1000.0
    }
}

/// The expression for a query of these times: all durations are fixed, and `@` has times.
pub(crate) fn settle(expr: &Expr, times: Times) -> Result<Expr, QueryError> {
    let mut settled = expr.clone();
    settle_node(&mut settled, times).map_err(QueryError::Invalid)?;
    Ok(settled)
}

fn settle_node(expr: &mut Expr, times: Times) -> Result<(), String> {
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
        Node::Selector(selector) => settle_shift(&mut selector.shift, times)?,
        Node::Range(range) => {
            settle_extent(&mut range.range, times, false)?;
            settle_shift(&mut range.selector.shift, times)?;
        }
        Node::Subquery(subquery) => {
            settle_shift(&mut subquery.shift, times)?;
            if let Some(step) = &mut subquery.step {
                settle_extent(step, times, false)?;
            }
            settle_extent(&mut subquery.range, times, false)?;
        }
        // Parentheses around an argument mean nothing, not even to functions that look at its form.
        Node::Call(call) => call.arguments.iter_mut().for_each(unwrap),
        Node::Aggregate(aggregate) => {
            unwrap(&mut aggregate.input);
            aggregate.parameter.iter_mut().for_each(unwrap);
        }
        _ => {}
    }
    expr.children_mut().into_iter().try_for_each(|child| settle_node(child, times))
}

fn unwrap(expr: &mut Expr) {
    while let Node::Parentheses(inner) = &mut expr.node {
        let placeholder = Expr::new(Node::Text(String::new()), inner.span);
        *expr = std::mem::replace(&mut **inner, placeholder);
    }
}

fn settle_shift(shift: &mut Shift, times: Times) -> Result<(), String> {
    if let Some(offset) = &mut shift.offset {
        settle_extent(offset, times, true)?;
    }
    shift.at = shift.at.map(|at| match at {
        At::Start => At::Time(times.start_ms),
        At::End => At::Time(times.end_ms),
        At::Time(time_ms) => At::Time(time_ms),
    });
    Ok(())
}

fn settle_extent(extent: &mut Extent, times: Times, may_be_negative: bool) -> Result<(), String> {
    *extent = Extent::Fixed(extent.milliseconds(times.step_s(), times.range_s(), may_be_negative)?);
    Ok(())
}

impl Extent {
    /// Milliseconds of a settled duration.
    pub(crate) const fn settled_ms(&self) -> i64 {
        match self {
            Self::Fixed(milliseconds) => *milliseconds,
            Self::Computed(_) => 0,
        }
    }
}

impl Shift {
    pub(crate) fn offset_ms(&self) -> i64 {
        self.offset.as_ref().map_or(0, Extent::settled_ms)
    }

    /// The time of `@`.
    pub(crate) const fn pinned_ms(&self) -> Option<i64> {
        match self.at {
            Some(At::Time(time_ms)) => Some(time_ms),
            _ => None,
        }
    }
}

/// What an instant vector is taken from, as `info` sees it: the time of `@` and the offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reference {
    pub(crate) pinned_ms: Option<i64>,
    pub(crate) offset_ms: i64,
}

impl Reference {
    fn same_as(self, other: Self) -> bool {
        match (self.pinned_ms, other.pinned_ms) {
            (None, None) => self.offset_ms == other.offset_ms,
            (Some(this), Some(other_ms)) => this - self.offset_ms == other_ms - other.offset_ms,
            _ => false,
        }
    }

    fn of(selector: &Selector, around: &[&Shift]) -> Self {
        let shift = &selector.shift;
        let mut reference = Self { pinned_ms: shift.pinned_ms(), offset_ms: shift.offset_ms() };
        for shift in around.iter().rev() {
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
pub(crate) fn shared_reference(expr: &Expr) -> Option<Reference> {
    let mut found: Vec<Reference> = Vec::new();
    let mut free = false;
    references(expr, &mut Vec::new(), &mut found, &mut free);
    let first = *found.first()?;
    (!free && found.iter().all(|other| first.same_as(*other))).then_some(first)
}

fn references<'e>(expr: &'e Expr, around: &mut Vec<&'e Shift>, found: &mut Vec<Reference>, free: &mut bool) -> bool {
    use crate::syntax::ast::ResultKind;
    if !matches!(expr.kind(), ResultKind::InstantVector | ResultKind::RangeVector) {
        return false;
    }
    let children = match &expr.node {
        Node::Selector(selector) => {
            found.push(Reference::of(selector, around));
            return true;
        }
        Node::Range(range) => {
            found.push(Reference::of(&range.selector, around));
            return true;
        }
        Node::Call(call) if call.signature.function == Function::Info => call.arguments.iter().take(1).collect(),
        _ => expr.children(),
    };
    let shift = if let Node::Subquery(subquery) = &expr.node { Some(&subquery.shift) } else { None };
    around.extend(shift);
    let mut any = false;
    for child in children {
        any |= references(child, around, found, free);
    }
    if shift.is_some() {
        around.pop();
    }
    *free |= !any;
    any
}

impl Expr {
    /// Whether the result is the same at all steps, so that it is computed at the first one only.
    pub(crate) fn is_step_invariant(&self) -> bool {
        match &self.node {
            Node::Number { .. } | Node::Text(_) => true,
            Node::Selector(selector) => selector.shift.at.is_some(),
            Node::Range(range) => range.selector.shift.at.is_some(),
            Node::Subquery(subquery) => subquery.shift.at.is_some(),
            Node::Parentheses(inner) | Node::Sign { inner, .. } => inner.is_step_invariant(),
            Node::Binary(binary) => binary.left.is_step_invariant() && binary.right.is_step_invariant(),
            // As Prometheus: the parameter has no say.
            Node::Aggregate(aggregate) => aggregate.input.is_step_invariant(),
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
    pub(crate) const fn rule(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Self::Plain => None,
            Self::Anchored => Some(("anchored", &["changes", "delta", "increase", "rate", "resets"])),
            Self::Smoothed => Some(("smoothed", &["delta", "increase", "rate"])),
        }
    }
}

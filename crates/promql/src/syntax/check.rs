//! Types, and what the grammar alone does not forbid.

use model::{METRIC_NAME, MatchOp, Matcher};
use query::sketch::SketchKind;
use regex::{Regex, RegexBuilder};

use crate::syntax::ast::{
    Aggregate, Aggregation, Call, Cardinality, Chain, Expr, Link, Node, Operator, SampleAggregate, SampleAggregation,
    Selector,
};
use crate::syntax::result_kind::ResultKind;
use crate::syntax::span::{ParseError, ParseResult, Span};
use crate::syntax::strings::{is_label_name, quote};

/// The base size limit of a compiled regular expression.
const REGEX_BYTES_BASE: usize = 256 * 1024;

/// The additional size limit per byte of its text.
const REGEX_BYTES_PER_BYTE: usize = 64;

/// Regular expressions in one expression.
pub(super) const REGEXES_MAX: usize = 200;

/// Compiles a pattern to be matched from end to end; the error is for the user.
pub(crate) fn compile_regex(pattern: &str) -> Result<Regex, String> {
    let anchored = format!("^(?s:{pattern})$");
    let size = REGEX_BYTES_BASE + REGEX_BYTES_PER_BYTE * pattern.len();
    RegexBuilder::new(&anchored).size_limit(size).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => {
            format!("regular expression {pattern:?} is too large: it needs more than {limit} bytes")
        }
        _ => format!("error parsing regexp: invalid regular expression {pattern:?}: {error}"),
    })
}

/// Checks a whole expression, and completes what depends on types: how sets match, and that scalars do not.
pub(super) fn check(expr: &mut Expr, text: &str) -> ParseResult<()> {
    let mut regexes = 0;
    expr.for_each_selector(&mut |selector| {
        let is_regex = |matcher: &&Matcher| matches!(matcher.op, MatchOp::Regex | MatchOp::NotRegex);
        regexes += selector.matchers.iter().filter(is_regex).count();
    });
    if regexes > REGEXES_MAX {
        let message = format!("more than {REGEXES_MAX} regular expressions in one expression");
        return Err(ParseError::new(expr.span, message));
    }
    Checker { text }.expr(expr)
}

struct Checker<'t> {
    text: &'t str,
}

/// A side of an operator.
struct Side {
    kind: ResultKind,
    span: Span,
}

fn fail<T>(span: Span, message: impl Into<String>) -> ParseResult<T> {
    Err(ParseError::new(span, message))
}

impl Checker<'_> {
    fn expr(&self, expr: &mut Expr) -> ParseResult<()> {
        let span = expr.span;
        match &mut expr.node {
            Node::Number { .. } | Node::Text(_) => Ok(()),
            Node::Selector(selector) => selector_is_bound(selector, span),
            Node::Range(range) => selector_is_bound(&range.selector, range.selector_span),
            Node::Parentheses(inner) => self.expr(inner),
            Node::Sign { inner, .. } => {
                self.expr(inner)?;
                match inner.kind() {
                    ResultKind::Scalar | ResultKind::InstantVector => Ok(()),
                    other => {
                        let rule = "unary expression only allowed on expressions of type scalar or instant vector";
                        fail(span, format!("{rule}, got {}", quote(other.name())))
                    }
                }
            }
            Node::Subquery(subquery) => {
                self.expr(&mut subquery.inner)?;
                match subquery.inner.kind() {
                    ResultKind::InstantVector => Ok(()),
                    other => fail(
                        span,
                        format!("subquery is only allowed on instant vector, got {} instead", other.short_name()),
                    ),
                }
            }
            Node::Aggregate(aggregate) => self.aggregate(aggregate),
            Node::SampleAggregate(aggregate) => self.sample_aggregate(aggregate, span),
            Node::Chain(chain) => self.chain(chain),
            Node::Call(call) => self.call(call, span),
        }
    }

    fn expect(&self, expr: &mut Expr, wanted: ResultKind, context: &str) -> ParseResult<()> {
        self.expr(expr)?;
        let found = expr.kind();
        if found == wanted {
            return Ok(());
        }
        fail(expr.span, format!("expected type {} in {context}, got {}", wanted.name(), found.name()))
    }

    fn aggregate(&self, aggregate: &mut Aggregate) -> ParseResult<()> {
        self.expect(&mut aggregate.input, ResultKind::InstantVector, "aggregation expression")?;
        let wanted = match aggregate.operation {
            Aggregation::CountValues => ResultKind::String,
            _ => ResultKind::Scalar,
        };
        match &mut aggregate.parameter {
            Some(parameter) => self.expect(parameter, wanted, "aggregation parameter"),
            None => Ok(()),
        }
    }

    /// The ranges at the end, and before those the label and the quantiles, which are constants: results do not depend on which steps
    /// a query has.
    fn sample_aggregate(&self, aggregate: &mut SampleAggregate, span: Span) -> ParseResult<()> {
        if let Some(kind) = aggregate.operation.sketch_kind() {
            return self.sketch_aggregate(aggregate, kind, span);
        }
        let name = aggregate.operation.name();
        let is_range = |argument: &Expr| argument.kind() == ResultKind::RangeVector;
        let first_range =
            aggregate.arguments.iter().rposition(|argument| !is_range(argument)).map_or(0, |last| last + 1);
        let (constants, ranges) = aggregate.arguments.split_at_mut(first_range);
        let form = match (aggregate.operation, constants.split_first_mut(), ranges.is_empty()) {
            (SampleAggregation::Quantiles, Some((label, quantiles)), false) if !quantiles.is_empty() => {
                check_result_label(label)?;
                quantiles.iter().try_for_each(check_rank)?;
                None
            }
            (SampleAggregation::Quantiles, ..) => Some("(\"label\", 0.5, …, range, …)"),
            (_, None, false) => None,
            _ => Some("(range, …)"),
        };
        if let Some(form) = form {
            return fail(span, format!("the arguments of {name} are {form}"));
        }
        if ranges.len() > 1
            && let Some(other) = ranges.iter().find(|range| !matches!(range.unwrapped().node, Node::Range(_)))
        {
            return fail(other.span, format!("several ranges of {name} are of selectors, not of subqueries"));
        }
        ranges.iter_mut().try_for_each(|range| self.expr(range))
    }

    /// A selector, since no other expression has sketches, and before it of quantiles the rank.
    fn sketch_aggregate(&self, aggregate: &mut SampleAggregate, kind: SketchKind, span: Span) -> ParseResult<()> {
        let name = aggregate.operation.name();
        let input = match (kind, aggregate.arguments.as_mut_slice()) {
            (SketchKind::Quantiles, [rank, input]) => {
                self.expect(rank, ResultKind::Scalar, "aggregation parameter")?;
                input
            }
            (SketchKind::Distinct | SketchKind::Histogram, [input]) => input,
            (SketchKind::Quantiles, _) => return fail(span, format!("the arguments of {name} are (0.9, selector)")),
            (SketchKind::Distinct | SketchKind::Histogram, _) => {
                return fail(span, format!("the argument of {name} is (selector)"));
            }
        };
        self.expr(input)?;
        let (span, found) = match &input.unwrapped().node {
            Node::Selector(_) | Node::Range(_) => return Ok(()),
            Node::Subquery(_) => (input.span, "a subquery"),
            _ => (input.span, "this expression"),
        };
        let forms = "m, or with a range as m[1d]";
        fail(span, format!("{name} merges sketches, and {found} has none: its argument is a selector of them, {forms}"))
    }

    /// Where the operator is.
    fn operator_span(&self, left: &Side, link: &Link) -> Span {
        let between = self.text.get(left.span.end..link.right.span.start).unwrap_or_default();
        let spaces = between.len() - between.trim_start().len();
        Span::new(left.span.end + spaces, link.right.span.start)
    }

    fn chain(&self, chain: &mut Chain) -> ParseResult<()> {
        self.expr(&mut chain.first)?;
        let mut left = Side { kind: chain.first.kind(), span: chain.first.span };
        for link in &mut chain.links {
            self.expr(&mut link.right)?;
            let right = Side { kind: link.right.kind(), span: link.right.span };
            self.link(&left, link, &right)?;
            let scalars = left.kind == ResultKind::Scalar && right.kind == ResultKind::Scalar;
            let kind = if scalars { ResultKind::Scalar } else { ResultKind::InstantVector };
            left = Side { kind, span: left.span.to(right.span) };
        }
        Ok(())
    }

    fn link(&self, left_side: &Side, link: &mut Link, right_side: &Side) -> ParseResult<()> {
        let (left, right, span) = (left_side.kind, right_side.kind, left_side.span.to(right_side.span));
        let comparison = matches!(link.operator, Operator::Comparison(_));
        let set = matches!(link.operator, Operator::Set(_));
        let scalars = left == ResultKind::Scalar && right == ResultKind::Scalar;
        if link.return_bool && !comparison {
            return fail(self.operator_span(left_side, link), "bool modifier can only be used on comparison operators");
        }
        if comparison && !link.return_bool && scalars {
            return fail(self.operator_span(left_side, link), "comparisons between scalars must use BOOL modifier");
        }
        let matching = link.matching.clone().unwrap_or_default();
        let both = matching.labels.iter().find(|label| matching.on && matching.include.contains(label));
        if let Some(label) = both {
            let message = format!("label {} must not occur in ON and GROUP clause at once", quote(label));
            return fail(self.operator_span(left_side, link), message);
        }
        for side in [left_side, right_side] {
            if !matches!(side.kind, ResultKind::Scalar | ResultKind::InstantVector) {
                return fail(side.span, "binary expression must contain only scalar and instant vector types");
            }
        }
        let fills = matching.fill_left.is_some() || matching.fill_right.is_some();
        let name = quote(link.operator.name());
        if left == ResultKind::InstantVector && right == ResultKind::InstantVector {
            if set && matches!(matching.cardinality, Cardinality::OneToMany | Cardinality::ManyToOne) {
                return fail(span, format!("no grouping allowed for {name} operation"));
            }
            if set && fills {
                return fail(span, "filling in missing series not allowed for set operators");
            }
            if let (Some(matching), true) = (&mut link.matching, set) {
                matching.cardinality = Cardinality::ManyToMany;
            }
            return Ok(());
        }
        if !matching.labels.is_empty() {
            return fail(span, "vector matching only allowed between instant vectors");
        }
        if fills {
            return fail(span, "filling in missing series only allowed between instant vectors");
        }
        link.matching = None;
        if set {
            return fail(span, format!("set operator {name} not allowed in binary scalar expression"));
        }
        Ok(())
    }

    fn call(&self, call: &mut Call, span: Span) -> ParseResult<()> {
        let signature = call.signature;
        let (name, count, declared) = (quote(signature.name), call.arguments.len(), signature.arguments.len());
        if signature.variadic == 0 {
            if count != declared {
                return fail(span, format!("expected {declared} argument(s) in call to {name}, got {count}"));
            }
        } else {
            let least = declared - 1;
            let most = usize::try_from(signature.variadic).ok().map(|more| least + more);
            if count < least {
                return fail(span, format!("expected at least {least} argument(s) in call to {name}, got {count}"));
            }
            if let Some(most) = most.filter(|most| count > *most) {
                return fail(span, format!("expected at most {most} argument(s) in call to {name}, got {count}"));
            }
        }
        let context = format!("call to function {name}");
        for (position, argument) in call.arguments.iter_mut().enumerate() {
            if signature.name == "info" && position == 1 {
                check_info_labels(argument, span, &context)?;
                continue;
            }
            let wanted = signature.arguments.get(position).or(signature.arguments.last());
            if let Some(wanted) = wanted {
                self.expect(argument, *wanted, &context)?;
            }
        }
        Ok(())
    }
}

fn check_result_label(label: &Expr) -> ParseResult<()> {
    match &label.unwrapped().node {
        Node::Text(name) if is_label_name(name) && name != METRIC_NAME => Ok(()),
        Node::Text(name) => fail(label.span, format!("invalid label name {}", quote(name))),
        _ => fail(label.span, "the label of the results is a text"),
    }
}

fn check_rank(quantile: &Expr) -> ParseResult<()> {
    match quantile.unwrapped().node {
        Node::Number { value, .. } if (0.0..=1.0).contains(&value) => Ok(()),
        _ => fail(quantile.span, "a quantile is a number from 0 to 1"),
    }
}

/// The second argument of `info` has the form of a selector without a name, and may match everything.
fn check_info_labels(argument: &Expr, call: Span, context: &str) -> ParseResult<()> {
    if argument.kind() != ResultKind::InstantVector {
        let message = format!("expected type instant vector in {context}, got {}", argument.kind().name());
        return fail(call, message);
    }
    match &argument.node {
        Node::Selector(selector) if selector.name.is_empty() => Ok(()),
        Node::Selector(_) => fail(argument.span, "expected label selectors only, got vector selector instead"),
        _ => fail(argument.span, "expected label selectors only"),
    }
}

/// A selector must not select everything there is, nor have two names.
fn selector_is_bound(selector: &Selector, span: Span) -> ParseResult<()> {
    if let ([others @ .., _], false) = (selector.matchers.as_slice(), selector.name.is_empty()) {
        return match others.iter().find(|matcher| matcher.name == METRIC_NAME) {
            Some(twice) => {
                let names = format!("{} or {}", quote(&selector.name), quote(&twice.value));
                fail(span, format!("metric name must not be set twice: {names}"))
            }
            None => Ok(()),
        };
    }
    if selector.matchers.iter().all(matches_empty) {
        return fail(span, "vector selector must contain at least one non-empty matcher");
    }
    Ok(())
}

/// Returns whether a matcher matches series without the label.
pub(crate) fn matches_empty(matcher: &Matcher) -> bool {
    holds(matcher, "")
}

/// Returns whether a matcher matches a value.
pub(crate) fn holds(matcher: &Matcher, value: &str) -> bool {
    let regex = |wanted: bool| compile_regex(&matcher.value).is_ok_and(|regex| regex.is_match(value) == wanted);
    match matcher.op {
        MatchOp::Equal => matcher.value == value,
        MatchOp::NotEqual => matcher.value != value,
        MatchOp::Regex => regex(true),
        MatchOp::NotRegex => regex(false),
    }
}

//! Expressions as trees. Times and durations are milliseconds.

use std::sync::Arc;

use model::{Labels, METRIC_NAME, Matcher};
use query::Projection;
use query::sketch::SketchKind;
use relabel::Rule;

use crate::syntax::functions::{Function, Signature};
use crate::syntax::result_kind::ResultKind;
use crate::syntax::span::Span;

/// A node with its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expr {
    pub(crate) node: Node,
    pub(crate) span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    Number {
        value: f64,
        duration: bool,
    },
    Text(String),
    Selector(Box<Selector>),
    Range(Box<Range>),
    Subquery(Box<Subquery>),
    Parentheses(Box<Expr>),
    /// `+` or `-` before an expression.
    Sign {
        negative: bool,
        inner: Box<Expr>,
    },
    /// Operands with operators between them.
    Chain(Box<Chain>),
    Aggregate(Box<Aggregate>),
    SampleAggregate(Box<SampleAggregate>),
    Call(Box<Call>),
}

/// `name{matchers}` with its modifiers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Selector {
    /// The name before the braces, or nothing; then also the last of the matchers.
    pub(crate) name: String,
    pub(crate) matchers: Vec<Matcher>,
    pub(crate) shift: Shift,
    pub(crate) edges: Edges,
}

/// How a selector treats the edges of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Edges {
    /// Only samples inside count.
    #[default]
    Plain,
    /// The last sample before the range counts as its first.
    Anchored,
    /// Values at the edges are interpolated.
    Smoothed,
}

/// `selector[range]`.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_field_names, reason = "as the language calls it")]
pub(crate) struct Range {
    pub(crate) selector: Selector,
    /// The position of the selector without the range.
    pub(crate) selector_span: Span,
    pub(crate) range: DurationSpec,
}

/// `inner[range:step]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Subquery {
    pub(crate) inner: Expr,
    pub(crate) range: DurationSpec,
    pub(crate) step: Option<DurationSpec>,
    pub(crate) shift: Shift,
}

/// `offset` and `@`.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Shift {
    pub(crate) offset: Option<DurationSpec>,
    pub(crate) at: Option<At>,
}

/// The argument of `@`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Time(i64),
    Start,
    End,
}

/// A duration, or how to compute it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DurationSpec {
    Fixed(i64),
    Computed(Box<Duration>),
}

/// A duration expression; values are seconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Duration {
    pub(crate) node: DurationNode,
    pub(crate) span: Span,
    /// It stands in parentheses.
    pub(crate) wrapped: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DurationNode {
    Number {
        value: f64,
        duration: bool,
    },
    /// The query's step.
    Step,
    /// The query's range.
    Range,
    Sign {
        negative: bool,
        inner: Box<Duration>,
    },
    /// `+ - * / % ^`, `min_of`, `max_of`.
    Binary {
        operator: &'static str,
        left: Box<Duration>,
        right: Box<Duration>,
    },
}

/// `first operator right operator right …`, applied from the left to the right. A list, so that a long chain is no deep tree.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chain {
    pub(crate) first: Expr,
    /// At least one.
    pub(crate) links: Vec<Link>,
}

/// An operator of a chain. Its left side is all of the chain before it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Link {
    pub(crate) operator: Operator,
    pub(crate) right: Expr,
    pub(crate) return_bool: bool,
    /// Nothing unless both sides are instant vectors.
    pub(crate) matching: Option<Matching>,
}

impl Chain {
    /// The operands in order.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &Expr> {
        std::iter::once(&self.first).chain(self.links.iter().map(|link| &link.right))
    }

    /// The operands at the front that are the same at every step. Those after the first are computed once together with it.
    pub(crate) fn invariant_operands(&self) -> usize {
        self.operands().take_while(|operand| operand.is_step_invariant()).count()
    }

    /// The operator that is applied last.
    pub(crate) fn last_operator(&self) -> Option<Operator> {
        self.links.last().map(|link| link.operator)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Arithmetic(Arithmetic),
    Comparison(Comparison),
    Set(SetOperation),
    /// Cuts buckets off histograms: those above (`</`) or below (`>/`) a value.
    Trim {
        upper: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
    Atan2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetOperation {
    And,
    Or,
    Unless,
}

impl Operator {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "+" => Self::Arithmetic(Arithmetic::Add),
            "-" => Self::Arithmetic(Arithmetic::Subtract),
            "*" => Self::Arithmetic(Arithmetic::Multiply),
            "/" => Self::Arithmetic(Arithmetic::Divide),
            "%" => Self::Arithmetic(Arithmetic::Modulo),
            "^" => Self::Arithmetic(Arithmetic::Power),
            "atan2" => Self::Arithmetic(Arithmetic::Atan2),
            "==" => Self::Comparison(Comparison::Equal),
            "!=" => Self::Comparison(Comparison::NotEqual),
            ">" => Self::Comparison(Comparison::Greater),
            "<" => Self::Comparison(Comparison::Less),
            ">=" => Self::Comparison(Comparison::GreaterOrEqual),
            "<=" => Self::Comparison(Comparison::LessOrEqual),
            "and" => Self::Set(SetOperation::And),
            "or" => Self::Set(SetOperation::Or),
            "unless" => Self::Set(SetOperation::Unless),
            "</" => Self::Trim { upper: true },
            ">/" => Self::Trim { upper: false },
            _ => return None,
        })
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Arithmetic(Arithmetic::Add) => "+",
            Self::Arithmetic(Arithmetic::Subtract) => "-",
            Self::Arithmetic(Arithmetic::Multiply) => "*",
            Self::Arithmetic(Arithmetic::Divide) => "/",
            Self::Arithmetic(Arithmetic::Modulo) => "%",
            Self::Arithmetic(Arithmetic::Power) => "^",
            Self::Arithmetic(Arithmetic::Atan2) => "atan2",
            Self::Comparison(Comparison::Equal) => "==",
            Self::Comparison(Comparison::NotEqual) => "!=",
            Self::Comparison(Comparison::Greater) => ">",
            Self::Comparison(Comparison::Less) => "<",
            Self::Comparison(Comparison::GreaterOrEqual) => ">=",
            Self::Comparison(Comparison::LessOrEqual) => "<=",
            Self::Set(SetOperation::And) => "and",
            Self::Set(SetOperation::Or) => "or",
            Self::Set(SetOperation::Unless) => "unless",
            Self::Trim { upper: true } => "</",
            Self::Trim { upper: false } => ">/",
        }
    }

    /// Stronger operators have higher numbers.
    pub(crate) const fn strength(self) -> u8 {
        match self {
            Self::Set(SetOperation::Or) => 1,
            Self::Set(_) => 2,
            Self::Comparison(_) | Self::Trim { .. } => 3,
            Self::Arithmetic(Arithmetic::Add | Arithmetic::Subtract) => 4,
            Self::Arithmetic(Arithmetic::Power) => 6,
            Self::Arithmetic(_) => 5,
        }
    }
}

/// How series of both sides find each other.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Matching {
    pub(crate) cardinality: Cardinality,
    /// `on` these labels only, else `ignoring` them.
    pub(crate) on: bool,
    pub(crate) labels: Vec<String>,
    /// Labels that the "many" side takes over from the "one" side.
    pub(crate) include: Vec<String>,
    /// The value of series that are missing on the left.
    pub(crate) fill_left: Option<f64>,
    /// The value of series that are missing on the right.
    pub(crate) fill_right: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Cardinality {
    #[default]
    OneToOne,
    ManyToOne,
    OneToMany,
    ManyToMany,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Aggregate {
    pub(crate) operation: Aggregation,
    pub(crate) input: Expr,
    pub(crate) parameter: Option<Expr>,
    pub(crate) grouping: Grouping,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aggregation {
    Average,
    BottomK,
    Count,
    CountValues,
    Group,
    LimitK,
    LimitRatio,
    Maximum,
    Minimum,
    Quantile,
    StandardDeviation,
    Sum,
    TopK,
    Variance,
}

impl Aggregation {
    const ALL: [(&'static str, Self); 14] = [
        ("avg", Self::Average),
        ("bottomk", Self::BottomK),
        ("count", Self::Count),
        ("count_values", Self::CountValues),
        ("group", Self::Group),
        ("limitk", Self::LimitK),
        ("limit_ratio", Self::LimitRatio),
        ("max", Self::Maximum),
        ("min", Self::Minimum),
        ("quantile", Self::Quantile),
        ("stddev", Self::StandardDeviation),
        ("sum", Self::Sum),
        ("topk", Self::TopK),
        ("stdvar", Self::Variance),
    ];

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, operation)| *operation)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, operation)| *operation == self).map_or("", |(name, _)| name)
    }

    pub(crate) const fn has_parameter(self) -> bool {
        matches!(
            self,
            Self::BottomK | Self::CountValues | Self::LimitK | Self::LimitRatio | Self::Quantile | Self::TopK
        )
    }

    pub(crate) const fn is_experimental(self) -> bool {
        matches!(self, Self::LimitK | Self::LimitRatio)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grouping {
    /// All labels but the named ones, else the named ones only.
    pub(crate) without: bool,
    pub(crate) labels: Vec<String>,
    /// Steps that change the labels of series before; not Prometheus's.
    pub(crate) relabelling: Option<Relabelling>,
}

/// The word before steps that relabel.
pub(crate) const RELABELLED: &str = "relabelled";

/// How series are relabelled before they are grouped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relabelling {
    /// The metric's name that the steps see; without it they see none.
    pub(crate) metric: Option<String>,
    pub(crate) rules: Arc<[Rule]>,
}

/// An aggregation over the samples in windows of series, whichever series they are of; not Prometheus's.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SampleAggregate {
    pub(crate) operation: SampleAggregation,
    /// Parameters, and then range vectors, at least one; of sketches a scalar or none, and then a selector of either kind.
    pub(crate) arguments: Vec<Expr>,
    pub(crate) grouping: Grouping,
}

/// The results of the samples of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleAggregation {
    /// How many distinct values there are, by sketches of them.
    ApproxDistinct,
    /// The value of a rank, by sketches of them.
    ApproxPercentile,
    /// How many distinct values there are.
    Distinct,
    /// How many samples are in each bucket.
    Histogram,
    /// The newest sample.
    Last,
    /// Some of the samples, by their ranks.
    Quantiles,
    /// The variance of all samples.
    Variance,
}

impl SampleAggregation {
    const ALL: [(&'static str, Self); 7] = [
        ("approx_count_distinct", Self::ApproxDistinct),
        ("approx_percentile", Self::ApproxPercentile),
        ("distinct_of_samples", Self::Distinct),
        ("histogram_of_samples", Self::Histogram),
        ("last_of_samples", Self::Last),
        ("quantiles_of_samples", Self::Quantiles),
        ("stdvar_of_samples", Self::Variance),
    ];

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, operation)| *operation)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, operation)| *operation == self).map_or("", |(name, _)| name)
    }

    /// The kind of the sketches that it merges, if its samples are sketches.
    pub(crate) const fn sketch_kind(self) -> Option<SketchKind> {
        match self {
            Self::ApproxDistinct => Some(SketchKind::Distinct),
            Self::ApproxPercentile => Some(SketchKind::Quantiles),
            Self::Distinct | Self::Histogram | Self::Last | Self::Quantiles | Self::Variance => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) signature: &'static Signature,
    pub(crate) arguments: Vec<Expr>,
}

impl Expr {
    pub(crate) const fn new(node: Node, span: Span) -> Self {
        Self { node, span }
    }

    /// The type of the expression.
    pub(crate) fn kind(&self) -> ResultKind {
        match &self.node {
            Node::Number { .. } => ResultKind::Scalar,
            Node::Text(_) => ResultKind::String,
            Node::Selector(_) | Node::Aggregate(_) | Node::SampleAggregate(_) => ResultKind::InstantVector,
            Node::Range(_) | Node::Subquery(_) => ResultKind::RangeVector,
            Node::Parentheses(inner) | Node::Sign { inner, .. } => inner.kind(),
            Node::Chain(chain) => {
                let scalars = chain.operands().all(|operand| operand.kind() == ResultKind::Scalar);
                if scalars { ResultKind::Scalar } else { ResultKind::InstantVector }
            }
            Node::Call(call) => call.signature.result,
        }
    }

    /// The expressions that it is made of, in order.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match &self.node {
            Node::Number { .. } | Node::Text(_) | Node::Selector(_) | Node::Range(_) => Vec::new(),
            Node::Parentheses(inner) | Node::Sign { inner, .. } => vec![inner],
            Node::Subquery(subquery) => vec![&subquery.inner],
            Node::Chain(chain) => chain.operands().collect(),
            Node::Aggregate(aggregate) => aggregate.parameter.iter().chain([&aggregate.input]).collect(),
            Node::SampleAggregate(aggregate) => aggregate.arguments.iter().collect(),
            Node::Call(call) => call.arguments.iter().collect(),
        }
    }

    /// As [`children`](Self::children), mutable.
    pub(crate) fn children_mut(&mut self) -> Vec<&mut Self> {
        match &mut self.node {
            Node::Number { .. } | Node::Text(_) | Node::Selector(_) | Node::Range(_) => Vec::new(),
            Node::Parentheses(inner) | Node::Sign { inner, .. } => vec![inner],
            Node::Subquery(subquery) => vec![&mut subquery.inner],
            Node::Chain(chain) => {
                std::iter::once(&mut chain.first).chain(chain.links.iter_mut().map(|link| &mut link.right)).collect()
            }
            Node::Aggregate(aggregate) => aggregate.parameter.iter_mut().chain([&mut aggregate.input]).collect(),
            Node::SampleAggregate(aggregate) => aggregate.arguments.iter_mut().collect(),
            Node::Call(call) => call.arguments.iter_mut().collect(),
        }
    }

    /// Without the parentheses around it.
    pub(crate) fn unwrapped(&self) -> &Self {
        match &self.node {
            Node::Parentheses(inner) => inner.unwrapped(),
            _ => self,
        }
    }

    /// Returns whether it, or an expression that it is made of, calls a function.
    pub(crate) fn calls(&self, function: Function) -> bool {
        let calls_itself = matches!(&self.node, Node::Call(call) if call.signature.function == function);
        calls_itself || self.children().into_iter().any(|child| child.calls(function))
    }

    pub(crate) fn for_each_selector<'e>(&'e self, visit: &mut impl FnMut(&'e Selector)) {
        match &self.node {
            Node::Selector(selector) => visit(selector),
            Node::Range(range) => visit(&range.selector),
            _ => self.children().into_iter().for_each(|child| child.for_each_selector(visit)),
        }
    }
}

/// The labels of rows that their consumer needs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NeededLabels<'a> {
    All,
    /// Those that tell to which group of an aggregation a row belongs.
    Grouping(&'a Grouping),
    /// Some, and the series' number, by which all of them are to be had.
    Numbered(Projection<'a>),
}

impl<'a> NeededLabels<'a> {
    /// How an aggregation that consumes the rows groups them.
    pub(crate) const fn grouping(self) -> Option<&'a Grouping> {
        match self {
            Self::Grouping(grouping) => Some(grouping),
            Self::All | Self::Numbered(_) => None,
        }
    }

    /// The labels to read with series, unless all are needed.
    pub(crate) fn projection(self) -> Option<Projection<'a>> {
        match self {
            Self::All => None,
            Self::Grouping(grouping) => grouping.projection(),
            Self::Numbered(projection) => Some(projection),
        }
    }

    pub(crate) const fn are_numbered(self) -> bool {
        matches!(self, Self::Numbered(_))
    }
}

impl Grouping {
    /// The labels that tell to which group a series belongs; `None` if all may, which steps look at.
    pub(crate) fn projection(&self) -> Option<Projection<'_>> {
        self.relabelling.is_none().then_some(Projection { names: &self.labels, is_without: self.without })
    }

    /// Returns whether all series are one group.
    pub(crate) const fn is_of_all(&self) -> bool {
        !self.without && self.labels.is_empty() && self.relabelling.is_none()
    }

    /// The labels of the group to which a series belongs that has these labels after the steps.
    pub(crate) fn key(&self, labels: &Labels) -> Labels {
        let named = |name: &str| self.labels.iter().any(|label| label == name);
        if self.without {
            return labels.retain(|name| name != METRIC_NAME && !named(name));
        }
        if self.labels.is_empty() { Labels::empty() } else { labels.retain(named) }
    }
}

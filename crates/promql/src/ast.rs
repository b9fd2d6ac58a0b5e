//! What an expression means, free of how it was spelled. Parentheses are gone, names are resolved, types are checked;
//! `start()` and `end()` wait for the query's times.

use model::Matcher;

use crate::function::Function;

/// What an expression yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultKind {
    /// One number.
    Scalar,
    /// A text; only literals are of this kind.
    String,
    /// One sample per series.
    InstantVector,
    /// A stretch of samples per series.
    RangeVector,
}

impl ResultKind {
    /// The name in Prometheus's messages about the arguments of functions and operators.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::String => "string",
            Self::InstantVector => "instant vector",
            Self::RangeVector => "range vector",
        }
    }
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// The newest sample of each series within the lookback.
    Selector(Selector),
    /// All samples of each series within a range.
    Range(Selector, i64),
    /// An expression evaluated at the steps of a range.
    Subquery(Subquery),
    /// Unary minus.
    Negate(Box<Self>),
    /// An operator between two expressions.
    Binary(Box<Binary>),
    /// An aggregation over series.
    Aggregate(Box<Aggregate>),
    /// A function call; the number and the kinds of the arguments fit the function.
    Call(Function, Vec<Self>),
}

/// Which series, and at which shift from the time of evaluation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Selector {
    pub(crate) matchers: Vec<Matcher>,
    pub(crate) shift: Shift,
}

/// `@` and `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Shift {
    /// How far to look back; negative looks forward.
    pub(crate) offset_ms: i64,
    /// Instead of the time of evaluation.
    pub(crate) at: Option<At>,
}

/// The argument of `@`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// Milliseconds since the Unix epoch.
    Time(i64),
    /// The query's start.
    Start,
    /// The query's end.
    End,
}

/// `inner[range:step]`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Subquery {
    pub(crate) inner: Box<Expr>,
    pub(crate) range_ms: i64,
    /// `None`: the default of the settings.
    pub(crate) step_ms: Option<i64>,
    pub(crate) shift: Shift,
}

/// `left operator right`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Binary {
    pub(crate) operator: Operator,
    pub(crate) left: Expr,
    pub(crate) right: Expr,
    /// Comparisons answer 0 or 1 instead of filtering.
    pub(crate) return_bool: bool,
    /// How the series of two vectors find each other.
    pub(crate) matching: Matching,
}

/// A binary operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Arithmetic(Arithmetic),
    Comparison(Comparison),
    Set(SetOperation),
}

/// Operators that make a new value.
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

/// Operators that filter, or answer 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
}

/// Operators on the presence of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetOperation {
    And,
    Or,
    Unless,
}

/// How the series of two vectors find each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Matching {
    pub(crate) cardinality: Cardinality,
    /// `on` compares only the named labels; otherwise (`ignoring`) all but these and the metric's name.
    pub(crate) on: bool,
    pub(crate) labels: Vec<String>,
    /// Labels taken over from the "one" side.
    pub(crate) include: Vec<String>,
}

/// How many series of either side may match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Cardinality {
    #[default]
    OneToOne,
    /// `group_left`
    ManyToOne,
    /// `group_right`
    OneToMany,
}

/// `operator by (labels) (parameter, input)`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Aggregate {
    pub(crate) operation: Aggregation,
    pub(crate) parameter: Option<Expr>,
    pub(crate) input: Expr,
    pub(crate) grouping: Grouping,
}

/// What an aggregation computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aggregation {
    Sum,
    Average,
    Minimum,
    Maximum,
    Count,
    Group,
    StandardDeviation,
    Variance,
    TopK,
    BottomK,
    Quantile,
    CountValues,
}

/// Which labels tell groups apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Only these.
    By(Vec<String>),
    /// All but these and the metric's name.
    Without(Vec<String>),
}

impl Expr {
    /// What the expression yields.
    pub(crate) fn kind(&self) -> ResultKind {
        match self {
            Self::Number(_) => ResultKind::Scalar,
            Self::Text(_) => ResultKind::String,
            Self::Selector(_) | Self::Aggregate(_) => ResultKind::InstantVector,
            Self::Range(..) | Self::Subquery(_) => ResultKind::RangeVector,
            Self::Negate(inner) => inner.kind(),
            Self::Binary(binary) => match (binary.left.kind(), binary.right.kind()) {
                (ResultKind::Scalar, ResultKind::Scalar) => ResultKind::Scalar,
                _ => ResultKind::InstantVector,
            },
            Self::Call(function, _) => function.signature().result,
        }
    }

    /// Whether the value is the same at every step of a query, because all that it reads is pinned by `@`.
    pub(crate) fn is_step_invariant(&self) -> bool {
        match self {
            Self::Number(_) | Self::Text(_) => true,
            Self::Selector(selector) | Self::Range(selector, _) => selector.shift.at.is_some(),
            Self::Subquery(subquery) => subquery.shift.at.is_some(),
            Self::Negate(inner) => inner.is_step_invariant(),
            Self::Binary(binary) => binary.left.is_step_invariant() && binary.right.is_step_invariant(),
            Self::Aggregate(aggregate) => {
                aggregate.input.is_step_invariant() && aggregate.parameter.iter().all(Self::is_step_invariant)
            }
            Self::Call(function, arguments) => {
                !function.depends_on_time() && arguments.iter().all(Self::is_step_invariant)
            }
        }
    }

    /// Calls back for every selector, from left to right.
    pub(crate) fn for_each_selector<'a>(&'a self, visit: &mut impl FnMut(&'a Selector)) {
        match self {
            Self::Number(_) | Self::Text(_) => {}
            Self::Selector(selector) | Self::Range(selector, _) => visit(selector),
            Self::Subquery(subquery) => subquery.inner.for_each_selector(visit),
            Self::Negate(inner) => inner.for_each_selector(visit),
            Self::Binary(binary) => {
                binary.left.for_each_selector(visit);
                binary.right.for_each_selector(visit);
            }
            Self::Aggregate(aggregate) => {
                aggregate.parameter.iter().for_each(|parameter| parameter.for_each_selector(visit));
                aggregate.input.for_each_selector(visit);
            }
            Self::Call(_, arguments) => arguments.iter().for_each(|argument| argument.for_each_selector(visit)),
        }
    }
}

//! Text to [`Expr`]. The only place that knows of the `promql-parser` crate; all that is PromQL's, not the crate's, is
//! checked again here.

mod guard;

use std::time::{Duration, UNIX_EPOCH};

use model::{METRIC_NAME, MatchOp, Matcher};
use promql_parser::label;
use promql_parser::parser::{self, token};
use query::QueryError;
use regex::{Regex, RegexBuilder};

use crate::ast::{
    Aggregate, Aggregation, Arithmetic, At, Binary, Cardinality, Comparison, Expr, Grouping, Matching, Operator,
    ResultKind, Selector, SetOperation, Shift, Subquery,
};
use crate::function::Function;

/// Longest duration, and farthest `@` from the epoch: beyond all data, and far from overflow.
const TIME_MS_MAX: i64 = 1 << 50;
/// What the parser says if it knows nothing better.
const UNPLACED_ERROR: &str = "invalid promql query";
/// What a compiled regular expression may take, beside what its length explains.
const REGEX_BYTES_BASE: usize = 256 * 1024;
/// What a compiled regular expression may take per byte of its text.
const REGEX_BYTES_PER_BYTE: usize = 64;

/// Parses and checks an expression.
pub(crate) fn parse(text: &str) -> Result<Expr, QueryError> {
    parse_text(text).map_err(QueryError::Invalid)
}

/// Parses a plain vector selector.
pub(crate) fn parse_selector(text: &str) -> Result<Vec<Matcher>, QueryError> {
    match parse(text)? {
        Expr::Selector(selector) if selector.shift == Shift::default() => Ok(selector.matchers),
        _ => Err(QueryError::Invalid(format!("expected a plain series selector, got {text:?}"))),
    }
}

/// Compiles a pattern to be matched from end to end; the error is for the user.
pub(crate) fn compile_regex(pattern: &str) -> Result<Regex, String> {
    let anchored = format!("^(?s:{pattern})$");
    let size = REGEX_BYTES_BASE + REGEX_BYTES_PER_BYTE * pattern.len();
    RegexBuilder::new(&anchored).size_limit(size).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => {
            format!("regular expression {pattern:?} is too large: it needs more than {limit} bytes")
        }
        _ => format!("invalid regular expression {pattern:?}: {error}"),
    })
}

fn parse_text(text: &str) -> Result<Expr, String> {
    guard::check(text)?;
    let tree = parser::parse(text).map_err(|message| match message.as_str() {
        UNPLACED_ERROR => format!("parse error: not a PromQL expression: {}", excerpt(text)),
        _ => format!("parse error: {message}"),
    })?;
    convert(tree).map_err(|message| format!("parse error: {message}"))
}

/// The beginning of a text, for messages.
fn excerpt(text: &str) -> String {
    let shown: String = text.chars().take(80).collect();
    if shown.len() < text.len() { format!("{shown:?}…") } else { format!("{shown:?}") }
}

fn convert(tree: parser::Expr) -> Result<Expr, String> {
    match tree {
        parser::Expr::NumberLiteral(number) => Ok(Expr::Number(number.val)),
        parser::Expr::StringLiteral(text) => Ok(Expr::Text(text.val)),
        parser::Expr::Paren(inner) => convert(*inner.expr),
        parser::Expr::VectorSelector(tree) => Ok(Expr::Selector(selector(tree)?)),
        parser::Expr::MatrixSelector(tree) => {
            let range_ms = range_ms(tree.range)?;
            Ok(Expr::Range(selector(tree.vs)?, range_ms))
        }
        parser::Expr::Subquery(tree) => subquery(tree),
        parser::Expr::Unary(tree) => negate(convert(*tree.expr)?),
        parser::Expr::Binary(tree) => binary(tree),
        parser::Expr::Aggregate(tree) => aggregate(tree),
        parser::Expr::Call(tree) => call(tree),
        parser::Expr::Extension(_) => Err("extensions are not supported".to_owned()),
    }
}

fn selector(tree: parser::VectorSelector) -> Result<Selector, String> {
    if !tree.matchers.or_matchers.is_empty() {
        return Err("\"or\" between matchers is not supported".to_owned());
    }
    let name = tree.name.map(|name| Matcher::new(METRIC_NAME, MatchOp::Equal, name));
    let matchers = name.into_iter().chain(tree.matchers.matchers.into_iter().map(matcher)).collect();
    Ok(Selector { matchers, shift: shift(tree.offset.as_ref(), tree.at.as_ref())? })
}

fn matcher(tree: label::Matcher) -> Matcher {
    let op = match tree.op {
        label::MatchOp::Equal => MatchOp::Equal,
        label::MatchOp::NotEqual => MatchOp::NotEqual,
        label::MatchOp::Re(_) => MatchOp::Regex,
        label::MatchOp::NotRe(_) => MatchOp::NotRegex,
    };
    Matcher::new(tree.name, op, tree.value)
}

fn shift(offset: Option<&parser::Offset>, at: Option<&parser::AtModifier>) -> Result<Shift, String> {
    let offset_ms = match offset {
        None => 0,
        Some(parser::Offset::Pos(duration)) => milliseconds(*duration)?,
        Some(parser::Offset::Neg(duration)) => -milliseconds(*duration)?,
    };
    let at = match at {
        None => None,
        Some(parser::AtModifier::Start) => Some(At::Start),
        Some(parser::AtModifier::End) => Some(At::End),
        Some(parser::AtModifier::At(time)) => Some(At::Time(match time.duration_since(UNIX_EPOCH) {
            Ok(after) => milliseconds(after)?,
            Err(before) => -milliseconds(before.duration())?,
        })),
    };
    Ok(Shift { offset_ms, at })
}

fn milliseconds(duration: Duration) -> Result<i64, String> {
    i64::try_from(duration.as_millis())
        .ok()
        .filter(|milliseconds| *milliseconds <= TIME_MS_MAX)
        .ok_or_else(|| "duration or time out of range".to_owned())
}

fn range_ms(duration: Duration) -> Result<i64, String> {
    match milliseconds(duration)? {
        0 => Err("duration must be greater than 0".to_owned()),
        range_ms => Ok(range_ms),
    }
}

fn subquery(tree: parser::SubqueryExpr) -> Result<Expr, String> {
    let inner = convert(*tree.expr)?;
    if inner.kind() != ResultKind::InstantVector {
        let kind = inner.kind().name();
        return Err(format!("subquery is only allowed on instant vector, got {kind} instead"));
    }
    Ok(Expr::Subquery(Subquery {
        inner: Box::new(inner),
        range_ms: range_ms(tree.range)?,
        step_ms: tree.step.map(range_ms).transpose()?,
        shift: shift(tree.offset.as_ref(), tree.at.as_ref())?,
    }))
}

fn negate(inner: Expr) -> Result<Expr, String> {
    match inner.kind() {
        ResultKind::Scalar | ResultKind::InstantVector => Ok(Expr::Negate(Box::new(inner))),
        kind => Err(format!(
            "unary expression only allowed on expressions of type scalar or instant vector, got {:?}",
            kind.name()
        )),
    }
}

fn binary(tree: parser::BinaryExpr) -> Result<Expr, String> {
    let operator = operator(tree.op)?;
    let (left, right) = (convert(*tree.lhs)?, convert(*tree.rhs)?);
    let modifier = tree.modifier.unwrap_or_default();
    if modifier.fill_values.lhs.is_some() || modifier.fill_values.rhs.is_some() {
        return Err("the modifiers fill, fill_left and fill_right are not supported".to_owned());
    }
    let kinds = [left.kind(), right.kind()];
    if kinds.iter().any(|kind| !matches!(kind, ResultKind::Scalar | ResultKind::InstantVector)) {
        return Err("binary expression must contain only scalar and instant vector types".to_owned());
    }
    let scalars = kinds.iter().filter(|kind| **kind == ResultKind::Scalar).count();
    if matches!(operator, Operator::Set(_)) && scalars > 0 {
        return Err(format!("set operator {:?} not allowed in binary scalar expression", tree.op.to_string()));
    }
    let return_bool = modifier.return_bool;
    if return_bool && !matches!(operator, Operator::Comparison(_)) {
        return Err("bool modifier can only be used on comparison operators".to_owned());
    }
    if matches!(operator, Operator::Comparison(_)) && scalars == 2 && !return_bool {
        return Err("comparisons between scalars must use BOOL modifier".to_owned());
    }
    let matching = matching(modifier)?;
    Ok(Expr::Binary(Box::new(Binary { operator, left, right, return_bool, matching })))
}

fn operator(op: token::TokenType) -> Result<Operator, String> {
    Ok(match op.id() {
        token::T_ADD => Operator::Arithmetic(Arithmetic::Add),
        token::T_SUB => Operator::Arithmetic(Arithmetic::Subtract),
        token::T_MUL => Operator::Arithmetic(Arithmetic::Multiply),
        token::T_DIV => Operator::Arithmetic(Arithmetic::Divide),
        token::T_MOD => Operator::Arithmetic(Arithmetic::Modulo),
        token::T_POW => Operator::Arithmetic(Arithmetic::Power),
        token::T_ATAN2 => Operator::Arithmetic(Arithmetic::Atan2),
        token::T_EQLC => Operator::Comparison(Comparison::Equal),
        token::T_NEQ => Operator::Comparison(Comparison::NotEqual),
        token::T_GTR => Operator::Comparison(Comparison::Greater),
        token::T_LSS => Operator::Comparison(Comparison::Less),
        token::T_GTE => Operator::Comparison(Comparison::GreaterOrEqual),
        token::T_LTE => Operator::Comparison(Comparison::LessOrEqual),
        token::T_LAND => Operator::Set(SetOperation::And),
        token::T_LOR => Operator::Set(SetOperation::Or),
        token::T_LUNLESS => Operator::Set(SetOperation::Unless),
        _ => return Err(format!("operator {op} is not supported")),
    })
}

fn matching(modifier: parser::BinModifier) -> Result<Matching, String> {
    let (on, labels) = match modifier.matching {
        None => (false, Vec::new()),
        Some(parser::LabelModifier::Include(labels)) => (true, labels.labels),
        Some(parser::LabelModifier::Exclude(labels)) => (false, labels.labels),
    };
    let (cardinality, include) = match modifier.card {
        parser::VectorMatchCardinality::ManyToOne(labels) => (Cardinality::ManyToOne, labels.labels),
        parser::VectorMatchCardinality::OneToMany(labels) => (Cardinality::OneToMany, labels.labels),
        _ => (Cardinality::OneToOne, Vec::new()),
    };
    if let Some(label) = include.iter().find(|label| on && labels.contains(label)) {
        return Err(format!("label {label:?} must not occur in ON and GROUP clause at once"));
    }
    Ok(Matching { cardinality, on, labels, include })
}

fn aggregate(tree: parser::AggregateExpr) -> Result<Expr, String> {
    let (operation, wants) = match tree.op.id() {
        token::T_SUM => (Aggregation::Sum, None),
        token::T_AVG => (Aggregation::Average, None),
        token::T_MIN => (Aggregation::Minimum, None),
        token::T_MAX => (Aggregation::Maximum, None),
        token::T_COUNT => (Aggregation::Count, None),
        token::T_GROUP => (Aggregation::Group, None),
        token::T_STDDEV => (Aggregation::StandardDeviation, None),
        token::T_STDVAR => (Aggregation::Variance, None),
        token::T_TOPK => (Aggregation::TopK, Some(ResultKind::Scalar)),
        token::T_BOTTOMK => (Aggregation::BottomK, Some(ResultKind::Scalar)),
        token::T_QUANTILE => (Aggregation::Quantile, Some(ResultKind::Scalar)),
        token::T_COUNT_VALUES => (Aggregation::CountValues, Some(ResultKind::String)),
        _ => return Err(format!("aggregation operator {:?} is not supported", tree.op.to_string())),
    };
    let parameter = tree.param.map(|parameter| convert(*parameter)).transpose()?;
    let input = convert(*tree.expr)?;
    let kinds = [(wants, parameter.as_ref()), (Some(ResultKind::InstantVector), Some(&input))];
    for (wanted, given) in kinds {
        let given = given.map(Expr::kind);
        if let (Some(wanted), Some(given)) = (wanted, given)
            && wanted != given
        {
            let (wanted, given) = (wanted.name(), given.name());
            return Err(format!("expected type {wanted} in aggregation expression, got {given}"));
        }
    }
    let grouping = match tree.modifier {
        None => Grouping::By(Vec::new()),
        Some(parser::LabelModifier::Include(labels)) => Grouping::By(labels.labels),
        Some(parser::LabelModifier::Exclude(labels)) => Grouping::Without(labels.labels),
    };
    Ok(Expr::Aggregate(Box::new(Aggregate { operation, parameter, input, grouping })))
}

fn call(tree: parser::Call) -> Result<Expr, String> {
    let name = tree.func.name;
    let Some(signature) = Function::by_name(name) else {
        return Err(format!("function {name:?} is not supported"));
    };
    let arguments = tree.args.args.into_iter().map(|argument| convert(*argument)).collect::<Result<Vec<_>, _>>()?;
    let kinds: Vec<ResultKind> = arguments.iter().map(Expr::kind).collect();
    signature.check(&kinds)?;
    Ok(Expr::Call(signature.function, arguments))
}

//! Typed expressions put together: operators, patterns, and the type of what functions give.

use query::{SqlType, Value};
use sqlparser::ast::BinaryOperator;

use super::evaluate::compile;
use super::{Bound, Environment, Function, Pattern, Returns, Typed, functions, operators};
use crate::error::{SqlError, unsupported};

impl Typed {
    pub(super) fn constant(value: Value) -> Self {
        Self { sql_type: value.sql_type(), expression: Bound::Constant(value) }
    }

    pub(super) fn boolean(expression: Bound) -> Self {
        Self { expression, sql_type: SqlType::Bool }
    }
}

pub(super) fn negated(condition: Typed) -> Typed {
    Typed::boolean(Bound::Not(Box::new(condition.expression)))
}

/// Two values and an operator between them.
pub(super) fn joined(a: Typed, op: &BinaryOperator, b: Typed) -> Result<Typed, SqlError> {
    let function = match op {
        BinaryOperator::Plus => &operators::ADD,
        BinaryOperator::Minus => &operators::SUBTRACT,
        BinaryOperator::Multiply => &operators::MULTIPLY,
        BinaryOperator::Divide => &operators::DIVIDE,
        BinaryOperator::Modulo => &operators::REMAINDER,
        BinaryOperator::StringConcat => &operators::CONCATENATE,
        BinaryOperator::Gt => &operators::GREATER,
        BinaryOperator::Lt => &operators::LESS,
        BinaryOperator::GtEq => &operators::GREATER_OR_EQUAL,
        BinaryOperator::LtEq => &operators::LESS_OR_EQUAL,
        BinaryOperator::Eq => &operators::EQUAL,
        BinaryOperator::NotEq => &operators::NOT_EQUAL,
        BinaryOperator::PGExp => named("power")?,
        BinaryOperator::And => return Ok(Typed::boolean(Bound::And(flattened(a.expression, b.expression, true)))),
        BinaryOperator::Or => return Ok(Typed::boolean(Bound::Or(flattened(a.expression, b.expression, false)))),
        BinaryOperator::PGRegexMatch => return matched(a, b, Matching::default()),
        BinaryOperator::PGRegexIMatch => return matched(a, b, Matching { ignores_case: true, ..Matching::default() }),
        BinaryOperator::PGRegexNotMatch => return matched(a, b, Matching { is_negated: true, ..Matching::default() }),
        BinaryOperator::PGRegexNotIMatch => {
            return matched(a, b, Matching { ignores_case: true, is_negated: true, ..Matching::default() });
        }
        BinaryOperator::PGLikeMatch => return matched(a, b, Matching { is_like: true, ..Matching::default() }),
        BinaryOperator::PGCustomBinaryOperator(parts) => {
            return match parts.last().map(String::as_str) {
                Some("~") => matched(a, b, Matching::default()),
                Some("!~") => matched(a, b, Matching { is_negated: true, ..Matching::default() }),
                _ => unsupported(format!("the operator {op}")),
            };
        }
        _ => return unsupported(format!("the operator {op}")),
    };
    apply(function, vec![a, b])
}

/// Conditions of a chain side by side, so that it is not as deep as it is long.
fn flattened(a: Bound, b: Bound, is_and: bool) -> Vec<Bound> {
    let mut all = match a {
        Bound::And(all) if is_and => all,
        Bound::Or(all) if !is_and => all,
        other => vec![other],
    };
    all.push(b);
    all
}

/// How a text is matched with a pattern.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Matching {
    /// True if the pattern is one of `LIKE`.
    pub(super) is_like: bool,
    pub(super) ignores_case: bool,
    /// True if the text must not match.
    pub(super) is_negated: bool,
}

/// A text matched with a pattern.
pub(super) fn matched(text: Typed, pattern: Typed, matching: Matching) -> Result<Typed, SqlError> {
    let Matching { is_like, ignores_case, is_negated } = matching;
    let pattern = match &pattern.expression {
        Bound::Constant(Value::Null) => return Ok(Typed::boolean(Bound::Constant(Value::Null))),
        Bound::Constant(value) => Pattern::Compiled(compile(&value.to_string(), is_like, ignores_case)?),
        _ => Pattern::Computed { pattern: Box::new(pattern.expression), is_like, ignores_case },
    };
    Ok(Typed::boolean(Bound::Matches { text: Box::new(text.expression), pattern, is_negated }))
}

/// A pattern whose escapes are another character than the backslash that is the default; without one nothing is escaped.
pub(super) fn escaped_by(pattern: &str, escape: Option<char>) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            out.push('\\');
            out.extend(characters.next());
        } else if character == '\\' {
            out.push_str("\\\\");
        } else {
            out.push(character);
        }
    }
    out
}

pub(super) fn named(name: &str) -> Result<&'static Function, SqlError> {
    functions::find(name).ok_or_else(|| SqlError::UnknownFunction(format!("function {name} does not exist")))
}

pub(super) fn apply(function: &'static Function, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
    let (fewest, most) = function.takes;
    if arguments.len() < fewest || arguments.len() > most {
        return Err(SqlError::UnknownFunction(format!(
            "function {} does not take {} arguments",
            function.name,
            arguments.len()
        )));
    }
    let types: Vec<SqlType> = arguments.iter().map(|argument| argument.sql_type).collect();
    let sql_type = match (function.returns, types.as_slice()) {
        (Returns::Fixed(SqlType::Timestamp), [_, SqlType::Date, ..]) if function.name == "date_trunc" => {
            SqlType::Timestamp
        }
        // Bins of local times are local times.
        (Returns::Fixed(SqlType::Timestamp), [_, SqlType::LocalTimestamp | SqlType::Date, ..]) => {
            SqlType::LocalTimestamp
        }
        (Returns::Fixed(sql_type), _) => sql_type,
        (Returns::Argument(place), _) => match types.get(place).copied().unwrap_or(SqlType::Unknown) {
            SqlType::Unknown => SqlType::Float,
            known => known,
        },
        (Returns::Unified, _) => {
            let (arguments, sql_type) = unified(arguments);
            return Ok(Typed { expression: Bound::Call(function, arguments), sql_type });
        }
        (Returns::Arithmetic, [a, b]) => match operators::arithmetic_type(function.name, *a, *b) {
            Some(sql_type) => sql_type,
            None => {
                return Err(SqlError::UnknownFunction(format!(
                    "operator does not exist: {} {} {}",
                    a.name(),
                    function.name,
                    b.name()
                )));
            }
        },
        (Returns::Arithmetic, _) => SqlType::Float,
    };
    Ok(Typed {
        expression: Bound::Call(function, arguments.into_iter().map(|argument| argument.expression).collect()),
        sql_type,
    })
}

/// Alternatives of which each row has one, and the type that holds them all: integers among floats become floats.
pub(super) fn unified(arguments: Vec<Typed>) -> (Vec<Bound>, SqlType) {
    let sql_type = arguments.iter().fold(SqlType::Unknown, |known, typed| known.unified(typed.sql_type));
    let as_one = |typed: Typed| match typed.expression {
        Bound::Constant(value @ Value::Text(_)) if is_time(sql_type) => {
            Bound::Cast(Box::new(Bound::Constant(value)), sql_type)
        }
        Bound::Constant(value) if value.time_ns().is_none() => Bound::Constant(value.widened(sql_type)),
        other if typed.sql_type.is_integer() && sql_type == SqlType::Float => Bound::Cast(Box::new(other), sql_type),
        other if is_time(typed.sql_type) && is_time(sql_type) && typed.sql_type != sql_type => {
            Bound::Cast(Box::new(other), sql_type)
        }
        other => other,
    };
    (arguments.into_iter().map(as_one).collect(), sql_type)
}

const fn is_time(sql_type: SqlType) -> bool {
    matches!(sql_type, SqlType::Timestamp | SqlType::LocalTimestamp | SqlType::Date)
}

/// Returns whether an operator takes times of one type: comparisons, and the difference of two times.
pub(super) fn takes_times_alike(op: &BinaryOperator, operands: &[Typed; 2]) -> bool {
    match op {
        BinaryOperator::Gt
        | BinaryOperator::Lt
        | BinaryOperator::GtEq
        | BinaryOperator::LtEq
        | BinaryOperator::Eq
        | BinaryOperator::NotEq => true,
        BinaryOperator::Minus => operands.iter().all(|operand| is_time(operand.sql_type)),
        _ => false,
    }
}

/// Operands that are compared, or instants that are subtracted, as one type of time: a text is read as one, and what is no instant
/// becomes one in the session's zone. A text that says no time stays one.
pub(super) fn times_alike(operands: &mut [Typed], environment: &Environment) {
    let unified = operands.iter().map(|operand| operand.sql_type).filter(|kind| is_time(*kind));
    let Some(to) = unified.reduce(SqlType::unified) else { return };
    for operand in operands.iter_mut().filter(|operand| operand.sql_type != to) {
        match &operand.expression {
            Bound::Constant(Value::Null) => {}
            Bound::Constant(value) if matches!(value, Value::Text(_)) || value.time_ns().is_some() => {
                if let Ok(value) = super::cast(value.clone(), to, environment) {
                    *operand = Typed { expression: Bound::Constant(value), sql_type: to };
                }
            }
            _ if is_time(operand.sql_type) => {
                let expression = std::mem::replace(&mut operand.expression, Bound::Constant(Value::Null));
                *operand = Typed { expression: Bound::Cast(Box::new(expression), to), sql_type: to };
            }
            _ => {}
        }
    }
}

/// Computes constants once; one that fails fails when the rows are computed.
pub(super) fn folded(typed: Typed, environment: &Environment) -> Typed {
    if matches!(typed.expression, Bound::Constant(_)) || !typed.expression.is_constant() {
        return typed;
    }
    match typed.expression.value(&[], environment) {
        Ok(value) => Typed { expression: Bound::Constant(value), ..typed },
        Err(_) => typed,
    }
}

//! Conditions that become part of a scan: of time its range, of tags its selectors, of fields a condition of the plan.

use model::MatchOp;
use query::plan::{Condition, Expression, Lowered, MissingTag, Operator, Scan, Selector};
use query::time;
use query::{SqlType, Value};

use crate::expression::{Bound, Pattern};
use crate::scope::{Role, Scope, ScopeColumn};

/// Takes a condition of a table's rows apart, as far as the scan and the plan can have it.
pub(crate) fn lower(condition: Bound, scan: &mut Scan, scope: &Scope) -> Lowered<Bound> {
    Lowered::new(conjuncts(condition), scan, MissingTag::Null, |condition| translated(condition, scope))
}

pub(super) fn conjuncts(condition: Bound) -> Vec<Bound> {
    match condition {
        Bound::And(all) => all.into_iter().flat_map(conjuncts).collect(),
        other => vec![other],
    }
}

/// The condition as scans and plans have it.
fn translated(condition: &Bound, scope: &Scope) -> Option<Condition> {
    let each = |all: &[Bound]| all.iter().map(|condition| translated(condition, scope)).collect::<Option<Vec<_>>>();
    match condition {
        Bound::And(all) => Some(Condition::All(each(all)?)),
        Bound::Or(all) => Some(Condition::Any(each(all)?)),
        Bound::Call(..) => compared(condition, scope),
        Bound::In { operand, list, is_negated } => {
            let value = |item: &Bound| match item {
                Bound::Constant(Value::Text(text)) => Some(text.to_string()),
                _ => None,
            };
            let values = list.iter().map(value).collect::<Option<_>>()?;
            on_tag(operand, if *is_negated { MatchOp::NotEqual } else { MatchOp::Equal }, values, scope)
        }
        Bound::Matches { text, pattern: Pattern::Compiled(regex), is_negated } => {
            // A matcher is of whole values.
            let whole = match regex.as_str().strip_prefix("(?s)^").and_then(|rest| rest.strip_suffix('$')) {
                Some(pattern) => format!("(?s:{pattern})"),
                None => format!("(?s:.*(?:{}).*)", regex.as_str()),
            };
            // What a pattern says of case is not in its text, and an empty value would be a missing tag.
            if regex.as_str().contains(['^', '$']) && !regex.as_str().starts_with("(?s)^") || regex.is_match("") {
                return None;
            }
            on_tag(text, if *is_negated { MatchOp::NotRegex } else { MatchOp::Regex }, vec![whole], scope)
        }
        _ => None,
    }
}

fn on_tag(operand: &Bound, op: MatchOp, values: Vec<String>, scope: &Scope) -> Option<Condition> {
    let column = scope.columns.get(operand.column()?).filter(|column| column.role == Role::Tag)?;
    Some(Condition::Tag(Selector { name: column.name.clone(), op, values }))
}

/// A comparison of the time, a tag or a field with a value of its kind.
fn compared(condition: &Bound, scope: &Scope) -> Option<Condition> {
    let (column, operator, value) = comparison(condition, scope)?;
    match (column.role, column.sql_type, value) {
        (Role::Time, _, value) => Some(Condition::Time(operator, ns_of(value)?)),
        (Role::Tag, _, Value::Text(text)) => {
            let op = match operator {
                Operator::Equal => MatchOp::Equal,
                Operator::NotEqual => MatchOp::NotEqual,
                _ => return None,
            };
            Some(Condition::Tag(Selector { name: column.name.clone(), op, values: vec![text.to_string()] }))
        }
        (Role::Field, sql_type, value) => {
            let value = match (sql_type, value) {
                (SqlType::Float | SqlType::Int, Value::Int(value)) => Expression::Integer(*value),
                (SqlType::Float | SqlType::Int, Value::Float(value)) if !value.is_nan() => Expression::Float(*value),
                (SqlType::Text, Value::Text(text)) => Expression::Text(text.to_string()),
                _ => return None,
            };
            let operands = vec![Expression::Column(column.name.clone()), value];
            Some(Condition::Fields(Expression::Apply(operator, operands)))
        }
        _ => None,
    }
}

/// The moment that a value is beside a time, in nanoseconds since the Unix epoch; `None` if it is none.
pub(super) fn ns_of(value: &Value) -> Option<i64> {
    match value {
        Value::Int(ns) => Some(*ns),
        Value::Text(text) => time::parse(text),
        value => value.time_ns(),
    }
}

/// A comparison of a column with a value, the column first.
fn comparison<'a>(condition: &'a Bound, scope: &'a Scope) -> Option<(&'a ScopeColumn, Operator, &'a Value)> {
    let Bound::Call(function, operands) = condition else { return None };
    let operator = match function.name {
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        "=" => Operator::Equal,
        "<>" => Operator::NotEqual,
        _ => return None,
    };
    let (place, operator, value) = match operands.as_slice() {
        [Bound::Column(place), Bound::Constant(value)] => (*place, operator, value),
        [Bound::Constant(value), Bound::Column(place)] => (*place, operator.mirrored()?, value),
        _ => return None,
    };
    Some((scope.columns.get(place)?, operator, value))
}

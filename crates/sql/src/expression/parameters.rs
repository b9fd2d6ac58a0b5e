//! The types of a statement's parameters, inferred from what stands beside them.

use query::SqlType;
use sqlparser::ast::{BinaryOperator, Expr, Value as Literal};

use super::{Binder, Function, Typed};

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterType {
    /// Its type, or that of its elements.
    pub sql_type: SqlType,
    /// True if it is an array.
    pub is_array: bool,
    /// True if it is a number of the catalog (`oid`).
    pub is_oid: bool,
}

impl ParameterType {
    /// `oid[]`
    pub(crate) const NUMBERS_OF_OBJECTS: Self = Self { sql_type: SqlType::Int, is_array: true, is_oid: true };

    /// A value.
    pub(crate) const fn one(sql_type: SqlType) -> Self {
        Self { sql_type, is_array: false, is_oid: false }
    }

    /// An array.
    pub(crate) const fn array(sql_type: SqlType) -> Self {
        Self { sql_type, is_array: true, is_oid: false }
    }
}

/// The index of the parameter that an expression is, if it is one.
pub(crate) fn parameter_index(expression: &Expr) -> Option<usize> {
    match expression {
        Expr::Nested(expression) => parameter_index(expression),
        Expr::Value(value) => match &value.value {
            Literal::Placeholder(name) => name.trim_start_matches('$').parse::<usize>().ok()?.checked_sub(1),
            _ => None,
        },
        _ => None,
    }
}

/// The type of an operand whose own type is not known, by the operator and the other operand.
fn operand_type(op: &BinaryOperator, other: SqlType) -> SqlType {
    let is_time = matches!(other, SqlType::Timestamp | SqlType::LocalTimestamp | SqlType::Date);
    match op {
        BinaryOperator::Plus | BinaryOperator::Minus if is_time => SqlType::Interval,
        BinaryOperator::Multiply | BinaryOperator::Divide if other == SqlType::Interval => SqlType::Float,
        BinaryOperator::And | BinaryOperator::Or => SqlType::Bool,
        BinaryOperator::StringConcat
        | BinaryOperator::PGRegexMatch
        | BinaryOperator::PGRegexIMatch
        | BinaryOperator::PGRegexNotMatch
        | BinaryOperator::PGRegexNotIMatch
        | BinaryOperator::PGLikeMatch
        | BinaryOperator::PGCustomBinaryOperator(_) => SqlType::Text,
        _ => other,
    }
}

/// The type of a function's argument where only one is taken.
fn argument_type(function: &str, index: usize) -> Option<SqlType> {
    Some(match (function, index) {
        ("time_bucket" | "time_bucket_gapfill" | "date_bin", 0) => SqlType::Interval,
        ("time_bucket" | "time_bucket_gapfill" | "date_bin" | "date_trunc" | "date_part", 1) => SqlType::Timestamp,
        ("left" | "right" | "repeat" | "substring" | "round", 1) | ("split_part" | "substring", 2) => SqlType::Int,
        ("to_timestamp" | "sqrt" | "exp" | "ln" | "power", 0) | ("power", 1) => SqlType::Float,
        _ => return None,
    })
}

impl Binder<'_> {
    /// Notes the type of an expression that is a parameter.
    pub(super) fn note(&mut self, expression: &Expr, sql_type: SqlType) {
        self.note_kind(expression, ParameterType::one(sql_type));
    }

    /// Notes the type of an expression that is a parameter, or an array of such.
    pub(super) fn note_kind(&mut self, expression: &Expr, kind: ParameterType) {
        if let Some(index) = parameter_index(expression) {
            self.subqueries.note_parameter(index, kind);
        }
    }

    /// Notes the types of the operands of an operator.
    pub(super) fn note_operands(&mut self, op: &BinaryOperator, left: (&Expr, SqlType), right: (&Expr, SqlType)) {
        self.note(left.0, operand_type(op, right.1));
        self.note(right.0, operand_type(op, left.1));
    }

    /// Notes the types of arguments that are of one type.
    pub(super) fn note_alike(&mut self, arguments: &[&Expr], typed: &[Typed]) {
        let unified = typed.iter().fold(SqlType::Unknown, |known, typed| known.unified(typed.sql_type));
        for argument in arguments {
            self.note(argument, unified);
        }
    }

    /// Notes the types of a function's arguments.
    pub(super) fn note_arguments(&mut self, function: &Function, arguments: &[&Expr], typed: &[Typed]) {
        if function.takes_alike() {
            return self.note_alike(arguments, typed);
        }
        for (index, argument) in arguments.iter().enumerate() {
            if let Some(sql_type) = argument_type(function.name, index) {
                self.note(argument, sql_type);
            }
        }
    }
}

impl Function {
    /// Returns whether its arguments are of one type: comparisons, and functions that choose one of their arguments.
    pub(super) fn takes_alike(&self) -> bool {
        matches!(self.returns, super::Returns::Unified)
            || matches!(self.name, "=" | "<>" | "<" | "<=" | ">" | ">=" | "nullif" | "IS NOT DISTINCT FROM")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_have_the_type_that_their_operator_takes() {
        use SqlType::{Float, Interval, Text, Timestamp};
        for (op, other, expected) in [
            (BinaryOperator::Gt, Float, Float),
            (BinaryOperator::Minus, Timestamp, Interval),
            (BinaryOperator::Minus, Float, Float),
            (BinaryOperator::PGRegexMatch, Text, Text),
            (BinaryOperator::Multiply, Interval, Float),
        ] {
            assert_eq!(operand_type(&op, other), expected, "{op}");
        }
    }
}

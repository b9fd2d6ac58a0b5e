//! Names to places: the grammar's tree as something that can be computed.

use std::collections::HashMap;

use query::plan::FillWith;
use query::time;
use query::{Interval, SqlType, Value};
use sqlparser::ast::{
    BinaryOperator, CaseWhen, CeilFloorKind, Expr, Ident, Interval as IntervalText, TrimWhereField, UnaryOperator,
    Value as Literal,
};

use super::build::{
    Matching, apply, escaped_by, folded, joined, matched, named, negated, takes_times_alike, times_alike, unified,
};
use super::{
    Bound, BoundAggregate, Environment, Function, LookupAnswers, ParameterType, Returns, Typed, array_element, arrays,
    cast, operators, sql_type, times,
};
use crate::error::{SqlError, invalid, unsupported};
use crate::scope::{Role, Scope};

/// Expressions in one another; chains of operators count as one.
const DEPTH_MAX: usize = 64;

/// The most copies of an operand that BETWEEN and CASE may bind.
const COPIES_MAX: usize = 10_000;

/// A pattern as a statement has it, with the character of its ESCAPE.
#[derive(Clone, Copy)]
struct WrittenPattern<'a> {
    pattern: &'a Expr,
    escape: Option<&'a Expr>,
}

/// A key that rows are grouped by.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// Its text, by which the projections recognize it.
    pub(crate) text: String,
    /// The column that it is, if it is one.
    pub(crate) column: Option<usize>,
    pub(crate) typed: Typed,
}

/// The groups that expressions are of: rows of keys, then of aggregates.
#[derive(Debug, Default)]
pub(crate) struct Grouped {
    pub(crate) keys: Vec<Key>,
    pub(crate) calls: Vec<BoundAggregate>,
    /// Calls by their text, so that none is computed twice.
    pub(super) known: HashMap<String, usize>,
    /// How gaps are filled in what calls give (`locf`, `interpolate`), by the call's place.
    pub(crate) fills: HashMap<usize, FillWith>,
}

impl Grouped {
    /// An aggregate as it is written, by its place.
    pub(crate) fn text_of(&self, call: usize) -> &str {
        self.known.iter().find(|(_, place)| **place == call).map_or("an aggregate", |(text, _)| text.as_str())
    }
}

/// Answers queries within expressions: rows of one column or more.
pub(crate) trait Subqueries {
    /// The rows of a query that does not use the outer one's columns.
    fn rows(&mut self, query: &sqlparser::ast::Query) -> Result<crate::relation::Relation, SqlError>;

    /// Returns whether the statement is described alone: its parameters have no values yet.
    fn is_described(&self) -> bool {
        false
    }

    /// Takes note of the type that a parameter is used as.
    fn note_parameter(&mut self, index: usize, kind: ParameterType);

    /// The number of a table in the catalog.
    fn table_number(&mut self, table: &str) -> Result<i64, SqlError>;

    /// The names of tables by their numbers in the catalog.
    fn table_names(&mut self) -> Result<LookupAnswers, SqlError>;
}

/// Gives names their meaning.
pub(crate) struct Binder<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) environment: &'a Environment,
    pub(crate) parameters: &'a [Value],
    pub(crate) subqueries: &'a mut dyn Subqueries,
    /// How deep the expression that is bound lies in others.
    pub(crate) depth: usize,
    /// The number of copies of the current expression in the bound statement.
    pub(crate) copies: usize,
}
impl Binder<'_> {
    /// An expression of a row of the scope.
    pub(crate) fn bind(&mut self, expression: &Expr) -> Result<Typed, SqlError> {
        self.expression(expression, None)
    }

    /// An expression of a group.
    pub(crate) fn bind_grouped(&mut self, expression: &Expr, grouped: &mut Grouped) -> Result<Typed, SqlError> {
        self.expression(expression, Some(grouped))
    }

    /// An expression that is the same in every row.
    pub(crate) fn constant(&mut self, expression: &Expr) -> Result<Value, SqlError> {
        let bound = self.expression(expression, None)?;
        if !bound.expression.is_constant() {
            return invalid(format!("{expression} is to be the same for all rows"));
        }
        bound.expression.value(&[], self.environment)
    }

    pub(super) fn expression(&mut self, expression: &Expr, grouped: Option<&mut Grouped>) -> Result<Typed, SqlError> {
        if self.depth >= DEPTH_MAX {
            return Err(SqlError::Syntax(format!("expressions lie at most {DEPTH_MAX} deep in one another")));
        }
        self.depth += 1;
        let bound = self.expression_within(expression, grouped);
        self.depth -= 1;
        bound
    }

    /// Binds an expression whose operand is copied so many times.
    fn copied(
        &mut self,
        times: usize,
        bind: impl FnOnce(&mut Self) -> Result<Typed, SqlError>,
    ) -> Result<Typed, SqlError> {
        let before = self.copies;
        self.copies = before.saturating_mul(times);
        if self.copies > COPIES_MAX {
            return invalid(format!(
                "BETWEEN and CASE in one another compare the innermost value more than {COPIES_MAX} times: compute it in a query within"
            ));
        }
        let bound = bind(self);
        self.copies = before;
        bound
    }

    fn expression_within(&mut self, expression: &Expr, mut grouped: Option<&mut Grouped>) -> Result<Typed, SqlError> {
        if let Some(grouped) = grouped.as_deref_mut()
            && let Some(found) = self.key(expression, grouped)
        {
            return Ok(found);
        }
        let bound = match expression {
            Expr::Identifier(name) => self.column(None, name, grouped.is_some())?,
            Expr::CompoundIdentifier(names) => match names.as_slice() {
                [.., table, name] => self.column(Some(table), name, grouped.is_some())?,
                _ => return invalid(format!("{expression} is no column")),
            },
            Expr::Value(value) => self.literal(&value.value)?,
            Expr::Nested(expression) | Expr::Collate { expr: expression, .. } => {
                self.expression(expression, grouped)?
            }
            Expr::BinaryOp { .. } => self.binary(expression, grouped)?,
            Expr::UnaryOp { op, expr } => self.unary(*op, expr, grouped)?,
            Expr::Cast { expr, data_type, .. } => self.cast(expr, data_type, grouped)?,
            Expr::TypedString(text) => {
                let to = sql_type(&text.data_type)?;
                let value = self.literal(&text.value.value)?.expression.value(&[], self.environment)?;
                Typed::constant(cast(value, to, self.environment)?)
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), grouped)?
            }
            Expr::Interval(interval) => self.interval(interval)?,
            Expr::Function(call) => self.function(call, grouped)?,
            Expr::Subquery(query) => self.scalar(query, grouped)?,
            Expr::Exists { subquery, negated } => self.exists(subquery, *negated, grouped)?,
            _ => match self.predicate(expression, grouped.as_deref_mut())? {
                Some(bound) => bound,
                None => self.spelled_function(expression, grouped)?,
            },
        };
        Ok(folded(bound, self.environment))
    }

    /// Predicates: `IS …`, `IN`, `BETWEEN`, `LIKE`; `None` if it is something else.
    fn predicate(&mut self, expression: &Expr, mut grouped: Option<&mut Grouped>) -> Result<Option<Typed>, SqlError> {
        let unary = match expression {
            Expr::IsNull(expression) | Expr::IsUnknown(expression) => Some((&operators::IS_NULL, expression, false)),
            Expr::IsNotNull(expression) | Expr::IsNotUnknown(expression) => {
                Some((&operators::IS_NULL, expression, true))
            }
            Expr::IsTrue(expression) => Some((&operators::IS_TRUE, expression, false)),
            Expr::IsNotTrue(expression) => Some((&operators::IS_TRUE, expression, true)),
            Expr::IsFalse(expression) => Some((&operators::IS_FALSE, expression, false)),
            Expr::IsNotFalse(expression) => Some((&operators::IS_FALSE, expression, true)),
            _ => None,
        };
        if let Some((function, expression, is_negated)) = unary {
            let bound = self.call(function, &[expression], grouped)?;
            return Ok(Some(if is_negated { negated(bound) } else { bound }));
        }
        Ok(Some(match expression {
            Expr::IsNotDistinctFrom(a, b) => self.call(&operators::SAME, &[a, b], grouped)?,
            Expr::IsDistinctFrom(a, b) => negated(self.call(&operators::SAME, &[a, b], grouped)?),
            Expr::InList { expr, list, negated } => self.in_list(expr, list, *negated, grouped)?,
            Expr::Between { expr, negated: is_negated, low, high } => {
                let both = self.copied(2, |binder| {
                    let from = binder.call(&operators::GREATER_OR_EQUAL, &[expr, low], grouped.as_deref_mut())?;
                    let to = binder.call(&operators::LESS_OR_EQUAL, &[expr, high], grouped)?;
                    Ok(Typed::boolean(Bound::And(vec![from.expression, to.expression])))
                })?;
                if *is_negated { negated(both) } else { both }
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char } => self.matches(
                expr,
                WrittenPattern { pattern, escape: escape_char.as_deref() },
                Matching { is_like: true, ignores_case: false, is_negated: *negated },
                grouped,
            )?,
            Expr::ILike { negated, any: false, expr, pattern, escape_char } => self.matches(
                expr,
                WrittenPattern { pattern, escape: escape_char.as_deref() },
                Matching { is_like: true, ignores_case: true, is_negated: *negated },
                grouped,
            )?,
            Expr::InSubquery { expr, subquery, negated } => self.in_query(expr, subquery, *negated, grouped)?,
            Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => {
                self.in_array(left, right, false, grouped)?
            }
            Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => {
                self.in_array(left, right, true, grouped)?
            }
            _ => return Ok(None),
        }))
    }

    /// Functions that SQL spells in a way of their own.
    fn spelled_function(&mut self, expression: &Expr, grouped: Option<&mut Grouped>) -> Result<Typed, SqlError> {
        const NO_FIELD: CeilFloorKind = CeilFloorKind::DateTimeField(sqlparser::ast::DateTimeField::NoDateTime);
        match expression {
            Expr::AtTimeZone { timestamp, time_zone } => {
                let mut grouped = grouped;
                let mut at = self.expression(timestamp, grouped.as_deref_mut())?;
                let zone = self.expression(time_zone, grouped)?;
                let is_local = at.sql_type == SqlType::LocalTimestamp;
                if at.sql_type == SqlType::Date {
                    // The instant of its midnight, as in Postgres.
                    at = Typed {
                        expression: Bound::Cast(Box::new(at.expression), SqlType::Timestamp),
                        sql_type: SqlType::Timestamp,
                    };
                }
                apply(if is_local { &times::FROM_LOCAL } else { &times::TO_LOCAL }, vec![at, zone])
            }
            Expr::Extract { field, expr, .. } => {
                let field = Typed::constant(Value::text(field.to_string()));
                let time = self.expression(expr, grouped)?;
                apply(named("date_part")?, vec![field, time])
            }
            Expr::Ceil { expr, field } if *field == NO_FIELD => self.call(named("ceil")?, &[expr], grouped),
            Expr::Floor { expr, field } if *field == NO_FIELD => self.call(named("floor")?, &[expr], grouped),
            Expr::Array(array) => {
                let items: Vec<&Expr> = array.elem.iter().collect();
                self.call(&arrays::ARRAY, &items, grouped)
            }
            Expr::CompoundFieldAccess { root, access_chain } => self.subscript(root, access_chain, grouped),
            Expr::Position { expr, r#in } => self.call(named("strpos")?, &[r#in, expr], grouped),
            Expr::Substring { expr, substring_from, substring_for, .. } => {
                let mut arguments: Vec<&Expr> = vec![expr];
                let one = Expr::value(Literal::Number("1".to_owned(), false));
                arguments.push(substring_from.as_deref().unwrap_or(&one));
                arguments.extend(substring_for.as_deref());
                self.call(named("substring")?, &arguments, grouped)
            }
            Expr::Trim { trim_where, trim_what, expr, .. } => {
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                    Some(TrimWhereField::Both) | None => "trim",
                };
                let mut arguments: Vec<&Expr> = vec![expr];
                arguments.extend(trim_what.as_deref());
                self.call(named(name)?, &arguments, grouped)
            }
            _ => unsupported(format!("the expression {expression}")),
        }
    }

    /// The key of the groups that an expression is, wherever it is written.
    fn key(&self, expression: &Expr, grouped: &Grouped) -> Option<Typed> {
        let column = self.column_index(expression);
        let text = expression.to_string();
        let same = |key: &Key| (key.column.is_some() && key.column == column) || key.text == text;
        let place = grouped.keys.iter().position(same)?;
        Some(Typed { expression: Bound::Column(place), sql_type: grouped.keys.get(place)?.typed.sql_type })
    }

    /// The column that an expression is, if it is one.
    pub(crate) fn column_index(&self, expression: &Expr) -> Option<usize> {
        match expression {
            Expr::Identifier(name) => self.scope.find(None, name).ok(),
            Expr::CompoundIdentifier(names) => match names.as_slice() {
                [.., table, name] => self.scope.find(Some(table), name).ok(),
                _ => None,
            },
            Expr::Nested(expression) => self.column_index(expression),
            _ => None,
        }
    }

    fn column(&self, table: Option<&Ident>, name: &Ident, is_grouped: bool) -> Result<Typed, SqlError> {
        // Words that are functions without parentheses, unless a column is named like this.
        let known = self.scope.find(table, name);
        let is_word = [
            "current_timestamp",
            "current_date",
            "localtimestamp",
            "current_user",
            "session_user",
            "user",
            "current_catalog",
        ]
        .contains(&name.value.to_lowercase().as_str());
        if known.is_err() && table.is_none() && is_word && name.quote_style.is_none() {
            return apply(named(&name.value.to_lowercase())?, Vec::new());
        }
        let place = known?;
        if is_grouped {
            let name = &name.value;
            return invalid(format!(
                "column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function"
            ));
        }
        let sql_type = self.scope.columns.get(place).map_or(SqlType::Unknown, |column| column.sql_type);
        Ok(Typed { expression: Bound::Column(place), sql_type })
    }

    fn literal(&mut self, literal: &Literal) -> Result<Typed, SqlError> {
        let value = match literal {
            Literal::Number(text, _) => match (text.parse::<i64>(), text.parse::<f64>()) {
                (Ok(whole), _) => Value::Int(whole),
                (_, Ok(number)) => Value::Float(number),
                _ => return invalid(format!("{text} is no number")),
            },
            Literal::SingleQuotedString(text)
            | Literal::EscapedStringLiteral(text)
            | Literal::NationalStringLiteral(text)
            | Literal::UnicodeStringLiteral(text) => {
                // Without a type: what it stands beside decides.
                let expression = Bound::Constant(Value::text(text.as_str()));
                return Ok(Typed { expression, sql_type: SqlType::Unknown });
            }
            Literal::DollarQuotedString(text) => Value::text(text.value.as_str()),
            Literal::Boolean(value) => Value::Bool(*value),
            Literal::Null => Value::Null,
            Literal::Placeholder(name) => {
                let number =
                    name.trim_start_matches('$').parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                match number.and_then(|number| self.parameters.get(number)) {
                    Some(value) => value.clone(),
                    None => return invalid(format!("there is no parameter {name}")),
                }
            }
            other => return unsupported(format!("the literal {other}")),
        };
        Ok(Typed::constant(value))
    }

    pub(super) fn call(
        &mut self,
        function: &'static Function,
        arguments: &[&Expr],
        mut grouped: Option<&mut Grouped>,
    ) -> Result<Typed, SqlError> {
        let typed = arguments.iter().map(|argument| self.expression(argument, grouped.as_deref_mut()));
        let mut typed = typed.collect::<Result<Vec<Typed>, _>>()?;
        self.note_arguments(function, arguments, &typed);
        if function.takes_alike() && !matches!(function.returns, Returns::Unified) {
            times_alike(&mut typed, self.environment);
        }
        apply(function, typed)
    }

    /// A chain of operators, of which each is the left side of the next: as many as a text may have, without recursion.
    fn binary(&mut self, expression: &Expr, mut grouped: Option<&mut Grouped>) -> Result<Typed, SqlError> {
        let mut chain = Vec::new();
        let mut first = expression;
        while let Expr::BinaryOp { left, op, right } = first {
            chain.push((first, op, &**right));
            first = left;
        }
        let mut bound = self.expression(first, grouped.as_deref_mut())?;
        let mut left = first;
        for (whole, op, right) in chain.into_iter().rev() {
            if let Some(key) = grouped.as_deref().and_then(|grouped| self.key(whole, grouped)) {
                bound = key;
            } else {
                let typed = self.expression(right, grouped.as_deref_mut())?;
                self.note_operands(op, (left, bound.sql_type), (right, typed.sql_type));
                let mut operands = [bound, typed];
                if takes_times_alike(op, &operands) {
                    times_alike(&mut operands, self.environment);
                }
                let [left, right] = operands;
                bound = folded(joined(left, op, right)?, self.environment);
            }
            left = whole;
        }
        Ok(bound)
    }

    fn unary(
        &mut self,
        op: UnaryOperator,
        expression: &Expr,
        grouped: Option<&mut Grouped>,
    ) -> Result<Typed, SqlError> {
        match op {
            UnaryOperator::Plus => self.expression(expression, grouped),
            UnaryOperator::Minus => self.call(&operators::NEGATE, &[expression], grouped),
            UnaryOperator::Not => Ok(negated(self.expression(expression, grouped)?)),
            _ => unsupported(format!("the operator {op}")),
        }
    }

    fn matches(
        &mut self,
        expression: &Expr,
        written: WrittenPattern<'_>,
        matching: Matching,
        mut grouped: Option<&mut Grouped>,
    ) -> Result<Typed, SqlError> {
        let text = self.expression(expression, grouped.as_deref_mut())?;
        let mut pattern = self.expression(written.pattern, grouped)?;
        self.note(expression, SqlType::Text);
        self.note(written.pattern, SqlType::Text);
        if let Some(escape) = written.escape {
            let escape = self.constant(escape)?.to_string().chars().next();
            let Bound::Constant(value) = &pattern.expression else {
                return unsupported("ESCAPE with a pattern that is not the same in all rows");
            };
            if let Value::Text(text) = value {
                pattern.expression = Bound::Constant(Value::text(escaped_by(text, escape)));
            }
        }
        matched(text, pattern, matching)
    }

    fn cast(
        &mut self,
        expression: &Expr,
        to: &sqlparser::ast::DataType,
        grouped: Option<&mut Grouped>,
    ) -> Result<Typed, SqlError> {
        let name = to.to_string().to_lowercase();
        if name.ends_with("regclass") {
            return self.table_number(expression, grouped);
        }
        if name.ends_with("regproc") || name.ends_with("regprocedure") {
            let function = self.constant(expression)?.to_string();
            return match function.rsplit('.').next() {
                Some("array_in") => Ok(Typed::constant(Value::Int(crate::catalog::ARRAY_IN))),
                _ => Err(SqlError::UnknownFunction(format!("function \"{function}\" does not exist"))),
            };
        }
        let (to, is_array) = (sql_type(to)?, name.ends_with(']'));
        if let (Expr::Cast { expr, data_type, .. }, SqlType::Text) = (expression, to)
            && data_type.to_string().to_lowercase().ends_with("regclass")
        {
            return self.table_name(expr, grouped);
        }
        let element = if is_array { array_element(&name)? } else { to };
        self.note_kind(
            expression,
            ParameterType { is_array, is_oid: name.starts_with("oid"), ..ParameterType::one(element) },
        );
        let typed = self.expression(expression, grouped)?;
        Ok(Typed { expression: Bound::Cast(Box::new(typed.expression), to), sql_type: to })
    }

    fn case(
        &mut self,
        operand: Option<&Expr>,
        conditions: &[CaseWhen],
        otherwise: Option<&Expr>,
        mut grouped: Option<&mut Grouped>,
    ) -> Result<Typed, SqlError> {
        let (mut whens, mut values) = (Vec::with_capacity(conditions.len()), Vec::new());
        for CaseWhen { condition, result } in conditions {
            let when = match operand {
                None => self.expression(condition, grouped.as_deref_mut())?,
                Some(operand) => self.copied(conditions.len(), |binder| {
                    binder.call(&operators::EQUAL, &[operand, condition], grouped.as_deref_mut())
                })?,
            };
            whens.push(when.expression);
            values.push(self.expression(result, grouped.as_deref_mut())?);
        }
        if let Some(otherwise) = otherwise {
            values.push(self.expression(otherwise, grouped)?);
        }
        let results: Vec<&Expr> = conditions.iter().map(|when| &when.result).chain(otherwise).collect();
        self.note_alike(&results, &values);
        let (mut values, sql_type) = unified(values);
        let otherwise = if otherwise.is_some() { values.pop().map(Box::new) } else { None };
        let branches = whens.into_iter().zip(values).collect();
        Ok(Typed { expression: Bound::Case { branches, otherwise }, sql_type })
    }

    fn interval(&mut self, interval: &IntervalText) -> Result<Typed, SqlError> {
        let value = self.constant(&interval.value)?;
        let parsed = match &interval.leading_field {
            None => time::parse_interval(&value.to_string()),
            Some(unit) => {
                value.number().and_then(|count| time::add_unit(Interval::default(), count, &unit.to_string()))
            }
        };
        match parsed {
            Some(parsed) => Ok(Typed::constant(Value::Interval(parsed))),
            None => invalid(format!("invalid input syntax for type interval: {interval}")),
        }
    }

    fn scalar(&mut self, query: &sqlparser::ast::Query, grouped: Option<&mut Grouped>) -> Result<Typed, SqlError> {
        let answer = match self.subqueries.rows(query) {
            Err(SqlError::UnknownColumn(message)) => {
                return self.correlated(query, grouped, false)?.ok_or(SqlError::UnknownColumn(message));
            }
            answer => answer?,
        };
        let sql_type = answer.columns.first().map_or(SqlType::Unknown, |column| column.sql_type);
        let mut rows = answer.rows.into_iter();
        let value = rows.next().and_then(|row| row.into_iter().next()).unwrap_or(Value::Null);
        if rows.next().is_some() {
            return invalid("more than one row returned by a subquery used as an expression");
        }
        Ok(Typed { expression: Bound::Constant(value), sql_type })
    }
}

/// Returns whether a column of a scope is the rows' time.
pub(crate) fn is_time(scope: &Scope, place: usize) -> bool {
    scope.columns.get(place).is_some_and(|column| column.role == Role::Time)
}

//! Expressions of SQL as plans have them: those of rows, which aggregates are of, and those of groups.

use std::cell::Cell;

use model::ValueType;
use query::plan::{Expression, Function, Operator};
use query::{SqlType, Value};

use super::filter::ns_of;
use crate::error::{SqlError, invalid};
use crate::expression::Bound;

/// An expression of a plan, and the type of its values; without one they are all null.
#[derive(Debug, Clone)]
pub(super) struct Computed {
    pub(super) expression: Expression,
    pub(super) value_type: Option<ValueType>,
    /// True of what SQL computes as whole numbers, also where the plan has floats.
    is_whole_in_sql: bool,
}

impl Computed {
    /// An expression of values of a type.
    pub(super) const fn new(expression: Expression, value_type: ValueType) -> Self {
        let is_whole_in_sql = matches!(value_type, ValueType::I64 | ValueType::U64);
        Self { expression, value_type: Some(value_type), is_whole_in_sql }
    }

    /// Nothing but null.
    fn null() -> Self {
        let zero = || Expression::Integer(0);
        let expression = Expression::Apply(Operator::NullIf, vec![zero(), zero()]);
        Self { expression, value_type: None, is_whole_in_sql: true }
    }

    /// A value where a condition holds, else null.
    pub(super) fn only_if(self, condition: Self) -> Self {
        Self { expression: Expression::Apply(Operator::If, vec![condition.expression, self.expression]), ..self }
    }

    const fn is_whole(&self) -> bool {
        matches!(self.value_type, Some(ValueType::I64 | ValueType::U64))
    }

    pub(super) const fn is_number(&self) -> bool {
        matches!(self.value_type, None | Some(ValueType::F64 | ValueType::I64 | ValueType::U64))
    }

    const fn is_flag(&self) -> bool {
        matches!(self.value_type, None | Some(ValueType::Bool))
    }

    /// Returns whether none of its values is NaN.
    const fn is_never_nan(&self) -> bool {
        match self.expression {
            Expression::Float(number) => !number.is_nan(),
            Expression::Integer(_) => true,
            _ => !matches!(self.value_type, Some(ValueType::F64)),
        }
    }

    /// Returns whether its values are compared with those of another one as they are.
    fn is_like(&self, other: &Self) -> bool {
        (self.is_number() && other.is_number())
            || self.value_type.is_none()
            || other.value_type.is_none()
            || self.value_type == other.value_type
    }
}

/// The translation of SQL's expressions.
pub(super) struct Translation<'a> {
    /// What a column is in the plan.
    pub(super) column: &'a dyn Fn(usize) -> Result<Computed, SqlError>,
    /// Returns whether a column is the rows' time, which is compared with constants alone.
    pub(super) is_time: &'a dyn Fn(usize) -> bool,
    /// True if it is of rows: then it gives what SQL gives, whatever these hold. What is made of whole numbers of groups is a float.
    pub(super) is_of_rows: bool,
    pub(super) state: TranslationState,
}

/// How far a translation is.
#[derive(Default)]
pub(super) struct TranslationState {
    /// Expressions so far, each as often as it stands in the plan.
    parts: Cell<usize>,
    /// True within what groups had in no definition before comparisons were exact.
    is_exact: Cell<bool>,
}

/// Expressions of a plan's expression, at most: an operand of IN stands in it once for each item.
const PARTS_MAX: usize = 1_000;

impl Translation<'_> {
    /// An expression as the plan has it.
    pub(super) fn translated(&self, bound: &Bound) -> Result<Computed, SqlError> {
        self.state.parts.set(self.state.parts.get() + 1);
        if self.state.parts.get() > PARTS_MAX {
            return invalid(format!(
                "an expression of a materialised view has at most {PARTS_MAX} parts, each operand of IN once for each item: compare less"
            ));
        }
        match bound {
            Bound::Column(place) => (self.column)(*place),
            Bound::Constant(value) => constant(value),
            Bound::And(operands) => self.several_conditions(Operator::And, operands),
            Bound::Or(operands) => self.several_conditions(Operator::Or, operands),
            Bound::Not(operand) => self.several_conditions(Operator::Not, std::slice::from_ref(operand)),
            Bound::Cast(operand, to) => self.cast(operand, *to),
            Bound::Case { branches, otherwise } => self.exactly(|| self.case(branches, otherwise.as_deref())),
            Bound::In { operand, list, is_negated } => self.exactly(|| self.is_in(operand, list, *is_negated)),
            Bound::Call(function, operands) => self.call(function.name, operands),
            Bound::Matches { .. } => invalid(
                "a materialised view has LIKE and regular expressions in its WHERE alone, of tags of its first table, and not within an OR: compare with texts by = and IN, or narrow a joined table by a query in its place, (SELECT * FROM quotes WHERE venue LIKE 'v%') q",
            ),
            Bound::Lookup { .. } => invalid("a materialised view computes nothing with queries"),
        }
    }

    /// Makes comparisons exact, whatever they are of.
    fn exactly(&self, within: impl FnOnce() -> Result<Computed, SqlError>) -> Result<Computed, SqlError> {
        let before = self.state.is_exact.replace(true);
        let computed = within();
        self.state.is_exact.set(before);
        computed
    }

    /// A condition as the plan has it.
    pub(super) fn condition(&self, bound: &Bound) -> Result<Computed, SqlError> {
        let condition = self.translated(bound)?;
        if !condition.is_flag() {
            return invalid("a condition in a materialised view is true or false: compare the value with another one");
        }
        Ok(condition)
    }

    fn several_conditions(&self, operator: Operator, operands: &[Bound]) -> Result<Computed, SqlError> {
        let operands = operands.iter().map(|operand| Ok(self.condition(operand)?.expression));
        let operands = operands.collect::<Result<Vec<_>, SqlError>>()?;
        Ok(Computed::new(Expression::Apply(operator, operands), ValueType::Bool))
    }

    fn cast(&self, operand: &Bound, to: SqlType) -> Result<Computed, SqlError> {
        let of = self.translated(operand)?;
        match to {
            SqlType::Float if of.is_number() => {
                let operands = vec![of.expression, Expression::Float(1.0)];
                Ok(Computed::new(Expression::Apply(Operator::Multiply, operands), ValueType::F64))
            }
            SqlType::Int if of.is_whole() => Ok(of),
            _ => invalid(format!(
                "a materialised view casts numbers to double precision, and nothing to {}: cast when the view is read",
                to.name()
            )),
        }
    }

    fn case(&self, branches: &[(Bound, Bound)], otherwise: Option<&Bound>) -> Result<Computed, SqlError> {
        let (mut operands, mut values) = (Vec::new(), Vec::new());
        for (when, then) in branches {
            operands.push(self.condition(when)?.expression);
            let then = self.translated(then)?;
            operands.push(then.expression.clone());
            values.push(then);
        }
        if let Some(otherwise) = otherwise {
            let otherwise = self.translated(otherwise)?;
            operands.push(otherwise.expression.clone());
            values.push(otherwise);
        }
        let value_type = one_type("the branches of a CASE", &values)?;
        let is_whole_in_sql = values.iter().all(|value| value.is_whole_in_sql);
        Ok(Computed { expression: Expression::Apply(Operator::If, operands), value_type, is_whole_in_sql })
    }

    fn is_in(&self, operand: &Bound, list: &[Bound], is_negated: bool) -> Result<Computed, SqlError> {
        if !list.iter().all(Bound::is_constant) {
            return invalid("a materialised view has IN with a list of constants alone");
        }
        let equal = |item: &Bound| Ok(self.comparison("=", operand, item)?.expression);
        let equal = list.iter().map(equal).collect::<Result<Vec<_>, SqlError>>()?;
        let found = Expression::Apply(Operator::Or, equal);
        let expression = if is_negated { Expression::Apply(Operator::Not, vec![found]) } else { found };
        Ok(Computed::new(expression, ValueType::Bool))
    }

    fn call(&self, name: &str, operands: &[Bound]) -> Result<Computed, SqlError> {
        if let ("=" | "<>" | "<" | "<=" | ">" | ">=", [a, b]) = (name, operands) {
            return self.comparison(name, a, b);
        }
        let operands = operands.iter().map(|operand| self.translated(operand)).collect::<Result<Vec<_>, _>>()?;
        match (name, operands.as_slice()) {
            ("+" | "-" | "*" | "/" | "%", [_] | [_, _]) => self.arithmetic(name, operands),
            ("coalesce", _) => self.coalesce(operands),
            ("nullif", [a, b]) => null_if(a, b),
            ("IS NULL", [of]) => {
                Ok(Computed::new(Expression::Apply(Operator::IsNull, vec![of.expression.clone()]), ValueType::Bool))
            }
            ("IS TRUE" | "IS FALSE", [of]) if of.is_flag() => {
                let is_true = of.expression.clone();
                let holds = if name == "IS TRUE" { is_true } else { Expression::Apply(Operator::Not, vec![is_true]) };
                let operands = vec![holds, Expression::Bool(true), Expression::Bool(false)];
                Ok(Computed::new(Expression::Apply(Operator::If, operands), ValueType::Bool))
            }
            (_, [of]) => self.function(name, of),
            ("round", _) => invalid("a materialised view rounds to whole numbers: round to digits when it is read"),
            _ => not_possible(name),
        }
    }

    /// A function of one number.
    fn function(&self, name: &str, of: &Computed) -> Result<Computed, SqlError> {
        const FUNCTIONS: [Function; 7] = [
            Function::Abs,
            Function::Ceil,
            Function::Floor,
            Function::Round,
            Function::Sqrt,
            Function::Exp,
            Function::Ln,
        ];
        let Some(function) = FUNCTIONS.into_iter().find(|function| function.name() == name) else {
            return not_possible(name);
        };
        if !of.is_number() {
            return invalid(format!("{name} in a materialised view is of a number"));
        }
        if self.is_of_rows && of.is_whole() {
            match function {
                Function::Ceil | Function::Floor | Function::Round => return Ok(of.clone()),
                Function::Abs => return whole_numbers(name),
                Function::Sqrt | Function::Exp | Function::Ln => {}
            }
        }
        Ok(Computed::new(Expression::Call(function, vec![of.expression.clone()]), ValueType::F64))
    }

    fn arithmetic(&self, name: &str, operands: Vec<Computed>) -> Result<Computed, SqlError> {
        if !operands.iter().all(Computed::is_number) {
            return invalid(format!("a materialised view computes {name} of numbers alone"));
        }
        let are_whole = operands.iter().all(|operand| operand.is_whole_in_sql);
        if are_whole {
            match name {
                "/" => {
                    return invalid("a materialised view does not divide whole numbers: cast one to double precision");
                }
                "%" => return whole_numbers(name),
                _ if self.is_of_rows => return whole_numbers(name),
                _ => {}
            }
        }
        let Some((_, operator)) = Operator::NAMED.iter().find(|(known, _)| *known == name) else {
            return not_possible(name);
        };
        let is_chain = self.is_of_rows && operands.len() > 1 && *operator != Operator::Remainder;
        let mut made: Vec<Expression> = Vec::with_capacity(operands.len());
        for operand in operands {
            match operand.expression {
                // A chain is as deep as its operands are. The opposite of a difference is none.
                Expression::Apply(inner, of) if is_chain && made.is_empty() && inner == *operator && of.len() > 1 => {
                    made.extend(of);
                }
                other => made.push(other),
            }
        }
        Ok(Computed { is_whole_in_sql: are_whole, ..Computed::new(Expression::Apply(*operator, made), ValueType::F64) })
    }

    fn coalesce(&self, operands: Vec<Computed>) -> Result<Computed, SqlError> {
        let value_type = match one_type("the arguments of coalesce", &operands) {
            Err(error) if self.is_of_rows => return Err(error),
            Err(_) => operands.first().and_then(|first| first.value_type),
            Ok(value_type) => value_type,
        };
        let is_whole_in_sql = operands.iter().all(|operand| operand.is_whole_in_sql);
        let operands = operands.into_iter().map(|operand| operand.expression).collect();
        Ok(Computed { expression: Expression::Apply(Operator::Coalesce, operands), value_type, is_whole_in_sql })
    }

    /// A comparison. In SQL NaN is above all numbers, in plans it is neither less than any nor greater.
    fn comparison(&self, name: &str, a: &Bound, b: &Bound) -> Result<Computed, SqlError> {
        let (Some(operator), Some(mirrored)) = (comparison_of(name), comparison_of(name).and_then(Operator::mirrored))
        else {
            return not_possible(name);
        };
        if let Some(of_time) = self.of_time(operator, a, b).or_else(|| self.of_time(mirrored, b, a)) {
            return of_time;
        }
        let (a, b) = (self.translated(a)?, self.translated(b)?);
        if !a.is_like(&b) {
            return invalid(format!(
                "a materialised view compares values of one type: write constants as the column has them, not {} {name} {}",
                a.expression, b.expression
            ));
        }
        let (never_nan_a, never_nan_b) = (a.is_never_nan(), b.is_never_nan());
        let (a, b) = (a.expression, b.expression);
        let is_as_it_is = match operator {
            Operator::Less | Operator::LessOrEqual => never_nan_b,
            Operator::Greater | Operator::GreaterOrEqual => never_nan_a,
            _ => never_nan_a || never_nan_b,
        };
        let expression = match operator {
            _ if is_as_it_is || !(self.is_of_rows || self.state.is_exact.get()) => {
                Expression::Apply(operator, vec![a, b])
            }
            // The opposite of the opposite: it holds where one of the two is NaN.
            Operator::Less if never_nan_a => not(Operator::GreaterOrEqual, a, b),
            Operator::LessOrEqual if never_nan_a => not(Operator::Greater, a, b),
            Operator::Greater if never_nan_b => not(Operator::LessOrEqual, a, b),
            Operator::GreaterOrEqual if never_nan_b => not(Operator::Less, a, b),
            _ => {
                let order = Expression::Apply(Operator::Compare, vec![a, b]);
                Expression::Apply(operator, vec![order, Expression::Integer(0)])
            }
        };
        Ok(Computed::new(expression, ValueType::Bool))
    }

    /// A comparison of the rows' time with a moment; `None` if it is another one.
    fn of_time(&self, operator: Operator, time: &Bound, moment: &Bound) -> Option<Result<Computed, SqlError>> {
        time.column().filter(|place| (self.is_time)(*place))?;
        let ns = if let Bound::Constant(value) = moment { ns_of(value) } else { None };
        Some(match ns {
            Some(ns) => {
                let operands = vec![Expression::Time, Expression::Integer(ns)];
                Ok(Computed::new(Expression::Apply(operator, operands), ValueType::Bool))
            }
            None => invalid(
                "a materialised view compares the rows' time with moments that are written, and with nothing else",
            ),
        })
    }
}

fn not(operator: Operator, a: Expression, b: Expression) -> Expression {
    Expression::Apply(Operator::Not, vec![Expression::Apply(operator, vec![a, b])])
}

fn comparison_of(name: &str) -> Option<Operator> {
    let name = if name == "<>" { "!=" } else { name };
    let found = Operator::NAMED.iter().find(|(known, _)| *known == name).map(|(_, operator)| *operator);
    found.filter(|operator| operator.is_comparison())
}

fn null_if(a: &Computed, b: &Computed) -> Result<Computed, SqlError> {
    if !a.is_like(b) || !(a.is_never_nan() || b.is_never_nan()) {
        return invalid("nullif in a materialised view is of a value and a constant of its type");
    }
    let operands = vec![a.expression.clone(), b.expression.clone()];
    Ok(Computed { expression: Expression::Apply(Operator::NullIf, operands), ..a.clone() })
}

/// The type of alternatives of which each row has one.
fn one_type(of_what: &str, values: &[Computed]) -> Result<Option<ValueType>, SqlError> {
    let mut types = values.iter().filter_map(|value| value.value_type);
    let first = types.next();
    if types.all(|other| Some(other) == first) {
        return Ok(first);
    }
    invalid(format!("{of_what} in a materialised view are of one type: cast numbers to double precision"))
}

fn whole_numbers<T>(name: &str) -> Result<T, SqlError> {
    invalid(format!(
        "a materialised view does not compute {name} of whole numbers, which may have no room for the result: cast one to double precision"
    ))
}

fn not_possible<T>(name: &str) -> Result<T, SqlError> {
    invalid(format!(
        "the function {name} is not possible in a materialised view: it computes with + - * / %, comparisons, AND, OR, NOT, IN, CASE, coalesce, nullif, abs, ceil, floor, round, \
         sqrt, exp, ln and casts to double precision"
    ))
}

fn constant(value: &Value) -> Result<Computed, SqlError> {
    Ok(match value {
        Value::Int(number) => Computed::new(Expression::Integer(*number), ValueType::I64),
        Value::Float(number) => Computed::new(Expression::Float(*number), ValueType::F64),
        Value::Bool(value) => Computed::new(Expression::Bool(*value), ValueType::Bool),
        Value::Text(text) => Computed::new(Expression::Text(text.to_string()), ValueType::String),
        Value::Null => Computed::null(),
        _ => return invalid(format!("the constant {value} is not possible in a materialised view")),
    })
}

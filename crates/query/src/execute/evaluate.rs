//! Expressions, row by row.

use std::cmp::Ordering;

use model::{Cell, Values};

use crate::plan::{Expression, Operator};
use crate::result::frame::{Frame, FrameColumn};
use crate::{Budget, QueryError};

/// So many rows are computed before it is looked whether the query was stopped.
pub(super) const ROWS_PER_CHECK: usize = 4_096;

/// The rows for which a condition holds: null does not. What a condition on values and times says of a fold's last one, it does not of the others.
pub(super) fn filtered(mut frame: Frame, condition: &Expression, budget: &Budget) -> Result<Frame, QueryError> {
    if frame.has_folds() && condition.is_of_rows() {
        budget.note_folded()?;
        frame.drop_folds();
    }
    let kept = mask(condition, &frame, budget)?;
    let rows: Vec<usize> = kept.iter().enumerate().filter(|(_, kept)| **kept).map(|(row, _)| row).collect();
    Ok(if rows.len() == frame.rows() { frame } else { frame.into_picked(&rows) })
}

/// For each row whether a condition holds.
fn mask(condition: &Expression, frame: &Frame, budget: &Budget) -> Result<Vec<bool>, QueryError> {
    match condition {
        Expression::Apply(Operator::And, of) => {
            let mut all = vec![true; frame.rows()];
            for of in of {
                all.iter_mut().zip(mask(of, frame, budget)?).for_each(|(all, one)| *all &= one);
            }
            Ok(all)
        }
        Expression::Apply(Operator::Or, of) => {
            let mut one = vec![false; frame.rows()];
            for of in of {
                one.iter_mut().zip(mask(of, frame, budget)?).for_each(|(one, other)| *one |= other);
            }
            Ok(one)
        }
        Expression::Apply(operator, of) => match compare_column(*operator, of, frame) {
            Some(kept) => Ok(kept),
            None => each_row(condition, frame, budget),
        },
        _ => each_row(condition, frame, budget),
    }
}

/// As [`mask`], row by row.
fn each_row(condition: &Expression, frame: &Frame, budget: &Budget) -> Result<Vec<bool>, QueryError> {
    let row = |row: usize| {
        if row.is_multiple_of(ROWS_PER_CHECK) {
            budget.check()?;
        }
        holds(condition, frame, row)
    };
    (0..frame.rows()).map(row).collect()
}

/// A comparison of a column of numbers with a number, all rows at once: what conditions mostly are.
fn compare_column(operator: Operator, of: &[Expression], frame: &Frame) -> Option<Vec<bool>> {
    let [column, number] = of else { return None };
    let column = &self::column(column, frame)?.cells;
    let float = match number {
        Expression::Float(number) => *number,
        Expression::Integer(number) => *number as f64,
        _ => return None,
    };
    let mut kept = match (&column.values, number) {
        (Values::F64(values), _) => compare_each(operator, values, |value| value.partial_cmp(&float)),
        // Whole numbers exactly, as cell by cell.
        (Values::I64(values), Expression::Integer(number)) => {
            compare_each(operator, values, |value| Some(value.cmp(number)))
        }
        (Values::U64(values), Expression::Integer(number)) => {
            compare_each(operator, values, |value| i128::from(*value).partial_cmp(&i128::from(*number)))
        }
        (Values::I64(values), _) => compare_each(operator, values, |value| (*value as f64).partial_cmp(&float)),
        (Values::U64(values), _) => compare_each(operator, values, |value| (*value as f64).partial_cmp(&float)),
        (Values::Bool(_) | Values::Text(_), _) => return None,
    }?;
    if let Some(validity) = &column.validity {
        kept.iter_mut().zip(validity).for_each(|(kept, is_valid)| *kept &= is_valid);
    }
    Some(kept)
}

/// The column that an expression is, if it is one that there is.
pub(super) fn column<'a>(of: &Expression, frame: &'a Frame) -> Option<&'a FrameColumn> {
    match of {
        Expression::Value => frame.value(),
        Expression::Column(name) => frame.column(name),
        _ => None,
    }
}

fn compare_each<T>(operator: Operator, values: &[T], order: impl Fn(&T) -> Option<Ordering>) -> Option<Vec<bool>> {
    operator.is_comparison().then(|| values.iter().map(|value| has_order(operator, order(value))).collect())
}

/// Returns whether a comparison holds for an order; what has none is not equal and nothing else.
fn has_order(operator: Operator, order: Option<Ordering>) -> bool {
    match operator {
        Operator::Less => order == Some(Ordering::Less),
        Operator::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Operator::Greater => order == Some(Ordering::Greater),
        Operator::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        Operator::Equal => order == Some(Ordering::Equal),
        _ => order != Some(Ordering::Equal),
    }
}

/// Returns whether a condition holds: null does not.
fn holds(condition: &Expression, frame: &Frame, row: usize) -> Result<bool, QueryError> {
    match cell(condition, frame, row)? {
        Cell::Bool(holds) => Ok(holds),
        Cell::Null => Ok(false),
        other => {
            Err(QueryError::Execution(format!("a condition is true or false, not a {}: {condition}", other.kind())))
        }
    }
}

/// An expression's value in a row.
pub(super) fn cell<'a>(of: &'a Expression, frame: &'a Frame, row: usize) -> Result<Cell<'a>, QueryError> {
    Ok(match of {
        Expression::Time => frame.timestamps_ns.get(row).map_or(Cell::Null, |time| Cell::I64(*time)),
        Expression::Value => match frame.value() {
            Some(column) => column.cell(row),
            None => return Err(unknown_column("#V", frame)),
        },
        Expression::Column(name) => match frame.column(name) {
            Some(column) => column.cell(row),
            None => return Err(unknown_column(&format!("#{name}"), frame)),
        },
        Expression::Label(name) => Cell::Text(frame.labels.get(name).unwrap_or_default()),
        Expression::Integer(number) => Cell::I64(*number),
        Expression::Float(number) => Cell::F64(*number),
        Expression::Text(text) => Cell::Text(text),
        Expression::Bool(value) => Cell::Bool(*value),
        Expression::Call(function, of) => match of.first() {
            Some(of) => match number(cell(of, frame, row)?, function.name())? {
                Some(number) => Cell::F64(function.apply(number)),
                None => Cell::Null,
            },
            None => Cell::Null,
        },
        Expression::Apply(operator, of) => apply(*operator, of, frame, row)?,
    })
}

fn unknown_column(wanted: &str, frame: &Frame) -> QueryError {
    let names: Vec<String> = frame.columns.iter().map(|column| format!("#{}", column.name)).collect();
    QueryError::Execution(format!("{wanted} is none of the columns: there are {}", names.join(", ")))
}

fn apply<'a>(operator: Operator, of: &'a [Expression], frame: &'a Frame, row: usize) -> Result<Cell<'a>, QueryError> {
    if matches!(operator, Operator::And | Operator::Or) {
        return all_or_one(operator == Operator::Or, of, frame, row);
    }
    if operator == Operator::If {
        return first_that_holds(of, frame, row);
    }
    let mut cells = of.iter().map(|of| cell(of, frame, row));
    if operator == Operator::Coalesce {
        return cells.find(|cell| *cell != Ok(Cell::Null)).unwrap_or(Ok(Cell::Null));
    }
    let first = cells.next().transpose()?.unwrap_or(Cell::Null);
    if operator == Operator::Not {
        return match first {
            Cell::Bool(value) => Ok(Cell::Bool(!value)),
            Cell::Null => Ok(Cell::Null),
            other => Err(QueryError::Execution(format!("`not` takes true or false, not a {}", other.kind()))),
        };
    }
    if operator == Operator::IsNull {
        return Ok(Cell::Bool(first == Cell::Null));
    }
    if operator == Operator::NullIf {
        let second = cells.next().transpose()?.unwrap_or(Cell::Null);
        let is_equal = comparison(Operator::Equal, first, second)? == Cell::Bool(true);
        return Ok(if is_equal { Cell::Null } else { first });
    }
    if operator.is_comparison() || operator == Operator::Compare {
        let second = cells.next().transpose()?.unwrap_or(Cell::Null);
        return comparison(operator, first, second);
    }
    if operator == Operator::Difference {
        return difference(first, cells.next().transpose()?.unwrap_or(Cell::Null));
    }
    let Some(mut total) = number(first, operator.name())? else { return Ok(Cell::Null) };
    if operator == Operator::Subtract && of.len() == 1 {
        return Ok(Cell::F64(-total));
    }
    for cell in cells {
        let Some(next) = number(cell?, operator.name())? else { return Ok(Cell::Null) };
        total = match operator {
            Operator::Add => total + next,
            Operator::Subtract => total - next,
            Operator::Multiply => total * next,
            Operator::Divide => total / next,
            _ => total % next,
        };
    }
    Ok(Cell::F64(total))
}

fn difference<'a>(a: Cell<'a>, b: Cell<'a>) -> Result<Cell<'a>, QueryError> {
    Ok(match (a, b) {
        (Cell::I64(a), Cell::I64(b)) => Cell::I64(a.wrapping_sub(b)),
        (Cell::U64(a), Cell::U64(b)) => Cell::U64(a.wrapping_sub(b)),
        (a, b) => {
            let name = Operator::Difference.name();
            number(a, name)?.zip(number(b, name)?).map_or(Cell::Null, |(a, b)| Cell::F64(a - b))
        }
    })
}

/// `or` is true if one is (`and` false if one is not), null if that depends on a null.
fn all_or_one<'a>(decides: bool, of: &'a [Expression], frame: &'a Frame, row: usize) -> Result<Cell<'a>, QueryError> {
    let mut unknown = false;
    for of in of {
        match cell(of, frame, row)? {
            Cell::Bool(value) if value == decides => return Ok(Cell::Bool(decides)),
            Cell::Bool(_) => {}
            Cell::Null => unknown = true,
            other => {
                return Err(QueryError::Execution(format!(
                    "`and` and `or` take true or false, not a {}",
                    other.kind()
                )));
            }
        }
    }
    Ok(if unknown { Cell::Null } else { Cell::Bool(!decides) })
}

/// The value of the first condition that holds, others are not computed; the last one has no condition.
fn first_that_holds<'a>(of: &'a [Expression], frame: &'a Frame, row: usize) -> Result<Cell<'a>, QueryError> {
    for branch in of.chunks(2) {
        match branch {
            [when, then] if holds(when, frame, row)? => return cell(then, frame, row),
            [otherwise] => return cell(otherwise, frame, row),
            _ => {}
        }
    }
    Ok(Cell::Null)
}

fn comparison(operator: Operator, a: Cell<'_>, b: Cell<'_>) -> Result<Cell<'static>, QueryError> {
    if a == Cell::Null || b == Cell::Null {
        return Ok(Cell::Null);
    }
    let is_text = |cell: &Cell<'_>| matches!(cell, Cell::Text(_));
    if is_text(&a) != is_text(&b) {
        let message = format!("`{}` cannot compare a {} with a {}", operator.name(), a.kind(), b.kind());
        return Err(QueryError::Execution(message));
    }
    if operator == Operator::Compare {
        return Ok(Cell::I64(order_with_nan(a, b) as i64));
    }
    Ok(Cell::Bool(has_order(operator, compare(a, b))))
}

/// The order of two values that are no nulls, NaN above all numbers.
fn order_with_nan(a: Cell<'_>, b: Cell<'_>) -> Ordering {
    let is_nan = |cell: Cell<'_>| cell.number().is_some_and(f64::is_nan);
    compare(a, b).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)))
}

/// Whole numbers exactly, other numbers as floats; `None` for what has no order.
pub(super) fn compare(a: Cell<'_>, b: Cell<'_>) -> Option<Ordering> {
    if let (Cell::Text(a), Cell::Text(b)) = (a, b) {
        return Some(a.cmp(b));
    }
    if let (Some(a), Some(b)) = (a.integer(), b.integer()) {
        return Some(a.cmp(&b));
    }
    a.number()?.partial_cmp(&b.number()?)
}

fn number(cell: Cell<'_>, for_what: &str) -> Result<Option<f64>, QueryError> {
    match cell {
        Cell::Null => Ok(None),
        Cell::Text(text) => Err(QueryError::Execution(format!("`{for_what}` takes numbers, not the text {text:?}"))),
        other => Ok(other.number()),
    }
}

//! Rows in order.

use std::cmp::Ordering;

use query::Value;
use sqlparser::ast::{Expr, OrderByOptions, OrderBySort};

use crate::error::{SqlError, invalid};
use crate::expression::{Bound, Environment};

/// A key that rows are ordered by.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) key: Bound,
    pub(crate) is_descending: bool,
    /// Where nulls stand, if the statement says so; else after the rest, before it in descending order.
    nulls_first: Option<bool>,
}

impl Order {
    pub(crate) const fn new(key: Bound, options: &OrderByOptions) -> Self {
        let is_descending = matches!(options.sort, Some(OrderBySort::Desc));
        Self { key, is_descending, nulls_first: options.nulls_first }
    }

    pub(crate) fn compare(&self, a: &Value, b: &Value) -> Ordering {
        if a.is_null() != b.is_null() {
            let first = self.nulls_first.unwrap_or(self.is_descending);
            return if a.is_null() == first { Ordering::Less } else { Ordering::Greater };
        }
        let order = a.sort_order(b);
        if self.is_descending { order.reverse() } else { order }
    }
}

/// Sorts rows, leaving those that are equal as they are. `charge` takes the texts that they are ordered by out of the budget, in samples.
pub(crate) fn sort(
    rows: Vec<Vec<Value>>,
    by: &[Order],
    environment: &Environment,
    charge: &dyn Fn(usize) -> Result<(), SqlError>,
) -> Result<Vec<Vec<Value>>, SqlError> {
    if let Some(places) = by.iter().map(|by| by.key.column()).collect::<Option<Vec<usize>>>() {
        return Ok(sorted_by_columns(rows, by, &places));
    }
    let mut keyed = Vec::with_capacity(rows.len());
    let made: Vec<bool> = by.iter().map(|by| !matches!(by.key, Bound::Column(_) | Bound::Constant(_))).collect();
    for row in rows {
        let keys: Vec<Value> = by.iter().map(|by| by.key.value(&row, environment)).collect::<Result<_, _>>()?;
        charge(keys.iter().zip(&made).filter(|(_, made)| **made).map(|(key, _)| key.text_samples()).sum())?;
        keyed.push((keys, row));
    }
    let compare = |(a, _): &(Vec<Value>, Vec<Value>), (b, _): &(Vec<Value>, Vec<Value>)| {
        let orders = by.iter().zip(a.iter().zip(b)).map(|(by, (a, b))| by.compare(a, b));
        orders.into_iter().find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
    };
    keyed.sort_by(compare);
    Ok(keyed.into_iter().map(|(_, row)| row).collect())
}

/// Sorts rows by values that are in them: nothing is copied, and those that are in order already are looked through once.
fn sorted_by_columns(mut rows: Vec<Vec<Value>>, by: &[Order], places: &[usize]) -> Vec<Vec<Value>> {
    rows.sort_by(|a, b| {
        let orders = by.iter().zip(places).map(|(by, place)| {
            let [a, b] = [a, b].map(|row| row.get(*place).unwrap_or(&Value::Null));
            by.compare(a, b)
        });
        orders.into_iter().find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
    });
    rows
}

/// The column that a whole number means in ORDER BY and GROUP BY.
pub(crate) fn ordinal(expression: &Expr, columns: usize) -> Result<Option<usize>, SqlError> {
    let Expr::Value(value) = expression else { return Ok(None) };
    let sqlparser::ast::Value::Number(text, _) = &value.value else { return Ok(None) };
    match text.parse::<usize>().ok().and_then(|number| number.checked_sub(1)).filter(|place| *place < columns) {
        Some(place) => Ok(Some(place)),
        None => invalid(format!("position {text} is not in the select list")),
    }
}

//! Aggregates of rows that stand for folded ones (the rule is at [`query::Folds`]).

use query::{ResultRows, SqlType, Value};

use crate::expression::{AggregateFunction, Bound, BoundAggregate, Fold, Grouped};
use crate::scope::{Role, Scope};

/// Rows as they were read, some of which stand for folded ones.
pub(super) struct FoldedRows<'a> {
    read: &'a ResultRows,
    calls: Vec<FoldUse>,
    time: Option<usize>,
}

/// What an aggregate takes of a row that stands for folded ones.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FoldUse {
    /// What the value of a column stands for.
    Summary { column: usize, sql_type: SqlType },
    /// The row's own value, which is enough.
    Own,
    /// The row's own value for want of the others.
    OwnAlone,
}

impl<'a> FoldedRows<'a> {
    pub(super) fn new(read: &'a ResultRows, scope: &Scope, grouped: &Grouped) -> Self {
        let time = scope.columns.iter().position(|column| column.role == Role::Time);
        let calls = grouped.calls.iter().map(|call| fold_use(call, scope, time)).collect();
        Self { read, calls, time }
    }

    /// Returns whether an aggregate is made of what folding left.
    pub(super) fn is_inexact(&self) -> bool {
        self.calls.contains(&FoldUse::OwnAlone)
    }

    /// What an aggregate gets of a row, if that is not the row's own value.
    pub(super) fn of_call(&self, row: usize, call: usize) -> Option<Fold<'a>> {
        match self.calls.get(call)? {
            FoldUse::Summary { column, sql_type } => {
                Some(Fold { summary: self.read.fold(row, *column)?, sql_type: *sql_type })
            }
            FoldUse::Own | FoldUse::OwnAlone => None,
        }
    }

    /// A row as the first of those that it stands for, if it does.
    pub(super) fn earlier(&self, row: usize, values: &[Value]) -> Option<Vec<Value>> {
        let folds = (0..self.read.columns().len()).filter_map(|column| self.read.fold(row, column));
        let first_ns = folds.filter(|fold| fold.count > 0).map(|fold| fold.first.0).min()?;
        let mut earlier = values.to_vec();
        *earlier.get_mut(self.time?)? = Value::Timestamp(first_ns);
        Some(earlier)
    }
}

/// What an aggregate takes of rows.
fn fold_use(call: &BoundAggregate, scope: &Scope, time: Option<usize>) -> FoldUse {
    let is_by_time = call.by.as_ref().is_none_or(|by| by.column().is_some() && by.column() == time);
    let index = call.argument.as_ref().map_or(time, Bound::column);
    let column = index.and_then(|index| Some((index, scope.columns.get(index)?)));
    let (Some((index, column)), Some(time)) = (column, time) else { return FoldUse::OwnAlone };
    if call.is_distinct || call.filter.is_some() || !is_by_time {
        return FoldUse::OwnAlone;
    }
    let summary = FoldUse::Summary { column: index, sql_type: column.sql_type };
    let is_of_folds = call.function.is_of_folds();
    match (column.role, column.sql_type, call.function) {
        (Role::Time, _, AggregateFunction::Sum | AggregateFunction::Avg) => FoldUse::OwnAlone,
        (Role::Time, ..) | (Role::Field, SqlType::Int | SqlType::Float, _) if is_of_folds => summary,
        // Of values that are no numbers a fold knows how many there were, and which was the last.
        (Role::Field, _, AggregateFunction::Count) => summary,
        (Role::Field, _, AggregateFunction::Last) => FoldUse::Own,
        (Role::Field | Role::Time, ..) => FoldUse::OwnAlone,
        // A value that all rows of a series share.
        (_, _, AggregateFunction::Count) => FoldUse::Summary { column: time, sql_type: column.sql_type },
        _ if is_of_folds => FoldUse::Own,
        _ => FoldUse::OwnAlone,
    }
}

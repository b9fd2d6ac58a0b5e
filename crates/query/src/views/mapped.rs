//! Views whose aggregates are of what is computed from the columns of rows: these are columns of their own, right before rows are grouped.

use std::collections::BTreeSet;

use super::ViewDefinition;
use crate::QueryError;
use crate::plan::{AggregateCall, Expression, Grouping, Plan};

/// Names and what they are computed from.
type NewColumns = Vec<(String, Expression)>;

impl ViewDefinition {
    /// Refuses aggregates of columns that the rows do not have, where these have new ones, and new ones that have one name.
    pub(super) fn check_mapped(&self) -> Result<(), QueryError> {
        let Some(columns) = self.grouped_rows().and_then(columns_of) else { return Ok(()) };
        let name = &self.name;
        let mut names = BTreeSet::new();
        if let Some((column, _)) = columns.iter().find(|(column, _)| !names.insert(column.as_str())) {
            return Err(QueryError::Invalid(format!("the view {name:?} computes the column {column:?} twice")));
        }
        let read = self.grouping().map(read_by).unwrap_or_default();
        match read.into_iter().find(|column| !names.contains(column)) {
            None => Ok(()),
            Some(column) => Err(QueryError::Invalid(format!(
                "the view {name:?} has an aggregate of {column:?}, which is none of the columns that it computes from rows"
            ))),
        }
    }

    /// The columns that it computes from rows, in place of theirs; `None` if it computes none.
    pub(super) fn row_columns(&self) -> Option<&[(String, Expression)]> {
        self.grouped_rows().and_then(columns_of).map(Vec::as_slice)
    }

    /// The rows that it groups.
    fn grouped_rows(&self) -> Option<&Plan> {
        grouped(&self.plan).map(|(rows, _)| rows)
    }
}

/// The rows that a view's plan groups, and how.
fn grouped(plan: &Plan) -> Option<(&Plan, &Grouping)> {
    match plan {
        Plan::GroupBy { input, grouping } => Some((input, grouping)),
        other => grouped(other.input()?),
    }
}

/// The columns that aggregates read.
fn read_by(grouping: &Grouping) -> Vec<&str> {
    grouping.aggregates.iter().flat_map(AggregateCall::columns).collect()
}

/// The new columns of rows that are grouped.
fn columns_of(rows: &Plan) -> Option<&NewColumns> {
    match rows {
        Plan::Map { columns, .. } => Some(columns),
        Plan::Labelled(labelled) => columns_of(&labelled.input),
        _ => None,
    }
}

/// Rows that are grouped without their new columns: with those of which these are made.
pub(super) fn without_columns(rows: Plan) -> Plan {
    match rows {
        Plan::Map { input, .. } => *input,
        Plan::Labelled(mut labelled) => {
            labelled.input = without_columns(labelled.input);
            Plan::Labelled(labelled)
        }
        other => other,
    }
}

/// Gives the rows of a view's plan the new columns that the aggregates of another one read besides, which groups the same rows. Where one of the two computes
/// none, its columns are those of the table.
pub(super) fn add_columns(plan: &mut Plan, others: &Plan) {
    let all_of = |plan: &Plan| {
        let (rows, grouping) = grouped(plan)?;
        let of_table = |name: &str| (name.to_owned(), Expression::Column(name.to_owned()));
        let is_mapped = columns_of(rows).is_some();
        let of_table = || read_by(grouping).into_iter().map(of_table).collect();
        Some((columns_of(rows).cloned().unwrap_or_else(of_table), is_mapped))
    };
    let (Some((mut columns, is_mapped)), Some((more, has_more))) = (all_of(plan), all_of(others)) else { return };
    if !is_mapped && !has_more {
        return;
    }
    for new in more {
        if !columns.iter().any(|(name, _)| *name == new.0) {
            columns.push(new);
        }
    }
    if let Some(rows) = grouped_mut(plan) {
        let taken = std::mem::replace(rows, Plan::Union(Vec::new()));
        *rows = with_columns(without_columns(taken), columns);
    }
}

fn grouped_mut(plan: &mut Plan) -> Option<&mut Plan> {
    match plan {
        Plan::GroupBy { input, .. } => Some(input),
        Plan::Where { input, .. } | Plan::Map { input, .. } => grouped_mut(input),
        _ => None,
    }
}

/// Rows that are grouped with new columns.
fn with_columns(rows: Plan, columns: NewColumns) -> Plan {
    match rows {
        Plan::Labelled(mut labelled) => {
            labelled.input = with_columns(labelled.input, columns);
            Plan::Labelled(labelled)
        }
        other => Plan::Map { input: Box::new(other), columns },
    }
}

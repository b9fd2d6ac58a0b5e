//! Views whose rows have columns of another table as of their times.

use model::TimeRange;

use super::{View, ViewDefinition};
use crate::QueryError;
use crate::plan::{AsOf, Plan};

impl ViewDefinition {
    /// The columns that its rows have of another table as of their times, if they have some.
    pub fn as_of(&self) -> Option<&AsOf> {
        as_of_in(&self.plan)
    }

    /// Returns whether its rows have columns of a table as of their times.
    pub fn has_as_of(&self, table: &str) -> bool {
        self.as_of().is_some_and(|as_of| as_of.table_name() == table)
    }

    /// Refuses a table that is one of the view's own, or of whose rows not every one counts.
    pub(super) fn check_as_of(&self) -> Result<(), QueryError> {
        let Some(as_of) = self.as_of() else { return Ok(()) };
        let (name, table) = (&self.name, as_of.table_name());
        let invalid = |message: String| Err(QueryError::Invalid(message));
        let is_table = as_of.table.table.as_ref().is_some_and(|table| table.every_row && table.fields.is_empty());
        if !is_table || table.is_empty() || !as_of.table.tokens.is_empty() || as_of.table.range != TimeRange::ALL {
            return invalid(format!("the view {name:?} joins all rows of a table by its name as of a time"));
        }
        if [self.source(), self.target.as_str(), name.as_str()].contains(&table) || !self.is_exposed() {
            return invalid(format!(
                "the view {name:?} joins {table:?} as of a time, which it reads or writes itself: join another table"
            ));
        }
        let is_twice = |(place, (column, _)): (usize, &(String, String))| {
            as_of.columns.iter().take(place).any(|(known, _)| known == column)
        };
        if as_of.columns.iter().enumerate().any(is_twice) || as_of.within_ns.is_some_and(|within_ns| within_ns < 0) {
            return invalid(format!(
                "the view {name:?} has a column of {table:?} twice, or of rows that are still to come"
            ));
        }
        Ok(())
    }
}

impl View {
    /// The range of the whole windows that rows of a range change, of the table whose columns the view's rows have as of their times: every row of its
    /// source from there on may find them.
    pub fn windows_as_of(&self, range: &TimeRange) -> TimeRange {
        let reach_ns = self.definition.as_of().map_or(0, AsOf::reach_ns);
        self.windows_reading(&TimeRange { end_ns: range.end_ns.saturating_add(reach_ns), ..*range })
    }

    /// The range of the whole windows that rows of a range change, whichever table that it reads they are of.
    pub fn windows_of_any(&self, range: &TimeRange) -> TimeRange {
        if self.definition.as_of().is_some() { self.windows_as_of(range) } else { self.windows_reading(range) }
    }
}

fn as_of_in(plan: &Plan) -> Option<&AsOf> {
    match plan {
        Plan::AsOf(as_of) => Some(as_of),
        other => as_of_in(other.input()?),
    }
}

/// Gives the rows of a plan the columns that another one's have besides.
pub(super) fn add_columns(plan: &mut Plan, others: &Plan) {
    let Some(others) = as_of_in(others) else { return };
    let mut plan = plan;
    loop {
        plan = match plan {
            Plan::AsOf(as_of) => {
                let is_new = |(name, _): &&(String, String)| !as_of.adds(name);
                let new: Vec<(String, String)> = others.columns.iter().filter(is_new).cloned().collect();
                return as_of.columns.extend(new);
            }
            Plan::Map { input, .. } | Plan::Where { input, .. } | Plan::GroupBy { input, .. } => input,
            Plan::Labelled(labelled) => &mut labelled.input,
            _ => return,
        };
    }
}

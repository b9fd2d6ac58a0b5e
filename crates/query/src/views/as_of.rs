//! Views whose rows have columns of other tables as of their times.

use std::collections::BTreeSet;
use std::iter::successors;

use model::TimeRange;

use super::{View, ViewDefinition};
use crate::QueryError;
use crate::plan::{AsOf, Plan};

impl ViewDefinition {
    /// The joins as of a time by which its rows have columns of other tables, the last one first.
    pub fn as_ofs(&self) -> impl Iterator<Item = &AsOf> {
        as_ofs_in(&self.plan)
    }

    /// Returns whether its rows have columns of a table as of their times.
    pub fn has_as_of(&self, table: &str) -> bool {
        self.as_ofs().any(|as_of| as_of.table_name() == table)
    }

    /// How long after a row of a table those may be that have columns of it as of their times, in nanoseconds: by the join of the table that reaches
    /// furthest. `None` if the table is not joined so.
    pub fn as_of_reach_ns(&self, table: &str) -> Option<i64> {
        self.as_ofs().filter(|as_of| as_of.table_name() == table).map(AsOf::reach_ns).max()
    }

    /// The largest of [`Self::as_of_reach_ns`] of all tables, in nanoseconds; `None` if none is joined so.
    pub(super) fn as_of_reach_ns_max(&self) -> Option<i64> {
        self.as_ofs().map(AsOf::reach_ns).max()
    }

    /// Refuses tables that are the view's own, or of whose rows not every one counts, and columns that two joins add.
    pub(super) fn check_as_ofs(&self) -> Result<(), QueryError> {
        let mut columns = BTreeSet::new();
        self.as_ofs().try_for_each(|as_of| self.check_as_of(as_of, &mut columns))?;
        let as_ofs: Vec<&AsOf> = self.as_ofs().collect();
        if self.reach_ns() > 0 && as_ofs.iter().any(|as_of| !as_of.labels.is_empty()) {
            return Err(QueryError::Invalid(format!(
                "the view {:?} has the increase of a counter, whose rows are of several series by what they find as of a time: take it in a view of its own",
                self.name
            )));
        }
        for (place, as_of) in as_ofs.iter().enumerate() {
            self.check_as_of_labels(as_of, as_ofs.get(..place).unwrap_or_default())?;
        }
        Ok(())
    }

    /// Refuses labels that two joined tables say, and those that neither groups nor the tables need that are joined after it.
    fn check_as_of_labels(&self, as_of: &AsOf, after: &[&AsOf]) -> Result<(), QueryError> {
        let (name, table) = (&self.name, as_of.table_name());
        let invalid = |message: String| Err(QueryError::Invalid(message));
        let labelled = self.labelled();
        let is_said_twice = |(label, _): &&(String, String)| {
            as_of.labels.iter().filter(|(known, _)| known == label).count() > 1
                || labelled.iter().any(|step| step.adds(label))
                || after.iter().any(|step| step.adds_label(label))
        };
        if let Some((label, _)) = as_of.labels.iter().find(is_said_twice) {
            return invalid(format!(
                "the view {name:?} has the label {label:?} of two joined tables: show one of them by another name"
            ));
        }
        let keys: BTreeSet<&String> = labelled.iter().flat_map(|step| &step.on).map(|(key, _)| key).collect();
        let is_needed = |(label, _): &(String, String)| {
            let is_key = |step: &&AsOf| step.on.iter().any(|(key, _)| key == label);
            self.labels().contains(label) || keys.contains(label) || after.iter().any(is_key)
        };
        if !as_of.selectors.is_empty() || !as_of.labels.iter().all(is_needed) {
            return invalid(format!("the view {name:?} has labels of {table:?} by which it does not group"));
        }
        Ok(())
    }

    fn check_as_of<'a>(&'a self, as_of: &'a AsOf, columns: &mut BTreeSet<&'a str>) -> Result<(), QueryError> {
        let (name, table) = (&self.name, as_of.table_name());
        let invalid = |message: String| Err(QueryError::Invalid(message));
        let is_table = as_of.table.table.as_ref().is_some_and(|table| table.every_row && table.fields.is_empty());
        if !is_table || table.is_empty() || !as_of.table.tokens.is_empty() || as_of.table.range != TimeRange::ALL {
            return invalid(format!("the view {name:?} joins all rows of a table by its name as of a time"));
        }
        if [self.target.as_str(), name.as_str()].contains(&table) || !self.is_exposed() {
            return invalid(format!(
                "the view {name:?} joins {table:?} as of a time, which it writes itself: join another table"
            ));
        }
        if let Some((column, _)) = as_of.columns.iter().find(|(column, _)| !columns.insert(column)) {
            return invalid(format!(
                "the view {name:?} has the column {column:?} of {table:?} twice: name one of them otherwise"
            ));
        }
        if as_of.within_ns.is_some_and(|within_ns| within_ns < 0) {
            return invalid(format!("the view {name:?} joins rows of {table:?} that are still to come"));
        }
        Ok(())
    }
}

impl View {
    /// The range of the whole windows that rows of a range change, of a table that the view reads, or of any of these: as far as joins as of a time reach,
    /// every row of its source may find rows of the table that is joined so.
    pub fn windows_as_of(&self, table: Option<&str>, range: &TimeRange) -> TimeRange {
        let reach_ns = match table {
            Some(table) => self.definition.as_of_reach_ns(table),
            None => self.definition.as_of_reach_ns_max(),
        };
        self.windows_reading(&TimeRange { end_ns: range.end_ns.saturating_add(reach_ns.unwrap_or(0)), ..*range })
    }
}

/// The joins as of a time in a plan of a view, the last one first.
fn as_ofs_in(plan: &Plan) -> impl Iterator<Item = &AsOf> {
    successors(Some(plan), |plan| plan.input()).filter_map(|plan| match plan {
        Plan::AsOf(as_of) => Some(&**as_of),
        _ => None,
    })
}

/// Gives the rows of a plan the columns that another one's have besides, which joins the same tables as of a time.
pub(super) fn add_columns(plan: &mut Plan, others: &Plan) {
    let (mut plan, mut others) = (plan, as_ofs_in(others));
    loop {
        plan = match plan {
            Plan::AsOf(as_of) => {
                let Some(other) = others.next() else { return };
                let is_new = |(name, _): &&(String, String)| !as_of.adds(name);
                let new: Vec<(String, String)> = other.columns.iter().filter(is_new).cloned().collect();
                as_of.columns.extend(new);
                &mut as_of.input
            }
            Plan::Map { input, .. } | Plan::Where { input, .. } | Plan::GroupBy { input, .. } => input,
            Plan::Labelled(labelled) => &mut labelled.input,
            _ => return,
        };
    }
}

//! Which definitions are taken.

use model::{Limits, METRIC_NAME};

use super::{ViewDefinition, ViewOutput};
use crate::QueryError;
use crate::plan::{AggregateInput, Labelled, Plan, duration};
use crate::sketch::excerpt;
use crate::time::format_interval;

/// The beginning of the names of columns that hold what a view's columns are made of. Other columns have other names.
pub const FIELD_PREFIX: &str = "__";

/// The width of a view's windows, at least, in nanoseconds.
pub const WIDTH_NS_MIN: i64 = 1_000_000_000;

/// The width of a view's windows, at most, in nanoseconds: 100 years whose months have 31 days, and an hour of a zone. Times end in 2262.
const WIDTH_NS_MAX: i64 = (1_200 * 31 * 24 + 1) * 3_600_000_000_000;

/// Windows that begin so much after a whole second at most, in nanoseconds, and not on it, hold what ranges of `PromQL` do, of times that are whole
/// milliseconds: what is after their beginning, and what is at their end.
pub const OPEN_NS_MAX: i64 = 1_000_000;

/// Columns of a view, at most.
const FIELDS_MAX: usize = 1_000;

/// Bytes of a view's name.
const NAME_BYTES_MAX: usize = 200;

/// Returns whether a column holds what others are made of.
pub fn is_partial(name: &str) -> bool {
    name.starts_with(FIELD_PREFIX)
}

/// Refuses what is no name of a view.
pub(super) fn check_name(name: &str) -> Result<(), QueryError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(['\0', '\n']) {
        return Err(QueryError::Invalid(format!("a view has a name of 1 to {NAME_BYTES_MAX} bytes without line ends")));
    }
    Ok(())
}

/// Refuses a name of a column that is longer than names of fields and tags in rows may be; `of` is what has the column.
pub(crate) fn check_column(of: &str, column: &str) -> Result<(), QueryError> {
    let bytes_max = Limits::default().name_bytes_max;
    if column.len() <= bytes_max {
        return Ok(());
    }
    Err(QueryError::Invalid(format!(
        "the column {} of {of} has a name of {} bytes: {bytes_max} are the most",
        excerpt(column),
        column.len()
    )))
}

impl ViewDefinition {
    /// Checks that it is a view that can be kept right.
    ///
    /// # Errors
    /// If it is not such a view; the text says why.
    pub fn check(&self) -> Result<(), QueryError> {
        let name = &self.name;
        let invalid = |message: String| Err(QueryError::Invalid(message));
        check_name(name)?;
        let (Some(scan), Some(grouping)) = (self.scan(), self.grouping()) else {
            return invalid(format!("the view {name:?} groups no rows of a table"));
        };
        if !is_chain(&self.plan) {
            return invalid(format!("the view {name:?} is more than groups of the rows of one table"));
        }
        self.check_all_joined()?;
        self.check_as_ofs()?;
        self.check_mapped()?;
        let is_grouped = grouping.by.is_some() || !self.is_exposed();
        if scan.table.is_none() || !scan.tokens.is_empty() || !is_grouped {
            return invalid(format!("the view {name:?} reads a table by its name and groups by labels that it names"));
        }
        let is_within = self.target_database() == self.database;
        if (self.source() == self.target && is_within) || (self.source() == *name && self.is_exposed()) {
            return invalid(format!("the view {name:?} would read itself"));
        }
        if self.is_exposed() && self.output != ViewOutput::default() {
            return invalid(format!(
                "the windows of the view {name:?} are rows of its own database at their beginnings"
            ));
        }
        if grouping.by.is_some() && !self.output.without.is_empty() {
            return invalid(format!("the view {name:?} names the labels that it has, and others that it has not"));
        }
        self.check_width()?;
        if self.fields.is_empty() || self.fields.len() > FIELDS_MAX {
            return invalid(format!(
                "the view {name:?} has {} columns: 1 to {FIELDS_MAX} are possible",
                self.fields.len()
            ));
        }
        let shown = self.fields.iter().map(|(field, _)| field).filter(|field| !is_partial(field));
        for column in shown.chain(self.labels()).chain([&self.time_name]) {
            check_column(&format!("the view {name:?}"), column)?;
        }
        if let Some(label) = self.labels().iter().find(|label| *label == METRIC_NAME && self.is_exposed()) {
            return invalid(format!(
                "the view {name:?} has a label {label:?}, which is the name of a metric: name it otherwise"
            ));
        }
        if self.labels().contains(&self.time_name) {
            return invalid(format!(
                "the view {name:?} has the column {:?} twice: name one of them otherwise",
                self.time_name
            ));
        }
        for (place, (field, _)) in self.fields.iter().enumerate() {
            let is_label = self.labels().contains(field) || *field == self.time_name;
            if is_label || self.fields.iter().take(place).any(|(known, _)| known == field) {
                return invalid(format!(
                    "the view {name:?} has the column {field:?} twice: name one of them otherwise"
                ));
            }
        }
        if grouping.aggregates.iter().any(|call| call.input == AggregateInput::Each) {
            return invalid(format!("the view {name:?} names the columns that it reads"));
        }
        let bins = self.windows.bins()?;
        if self.reach_ns() > 0 && bins.equal_bins().is_none() {
            return invalid(format!(
                "the view {name:?} has the increase of a counter in windows that differ in length: make them of hours, minutes or seconds, or of days in UTC"
            ));
        }
        Ok(())
    }
}

impl ViewDefinition {
    /// Refuses windows that are too narrow to be stored, or so wide that times do not reach to their ends.
    fn check_width(&self) -> Result<(), QueryError> {
        let (name, width) = (&self.name, self.windows.width);
        if width.months == 0 && width.days == 0 && width.ns < WIDTH_NS_MIN {
            let wide = duration(width.ns);
            return Err(QueryError::Invalid(format!(
                "the windows of the view {name:?} are {wide} wide: a second is the least"
            )));
        }
        if self.windows.length_ns_max() > WIDTH_NS_MAX {
            return Err(QueryError::Invalid(format!(
                "the windows of the view {name:?} are {} wide: 100 years are the most",
                if width.months == 0 { duration(width.with_even_days().ns) } else { format_interval(width) }
            )));
        }
        Ok(())
    }

    /// Refuses joined tables that are too many, or of which one says a label that another one says, too.
    fn check_all_joined(&self) -> Result<(), QueryError> {
        let name = &self.name;
        let steps = self.labelled();
        let tables = steps.len() + self.as_ofs().count();
        if tables > Labelled::TABLES_MAX {
            return Err(QueryError::Invalid(format!(
                "the view {name:?} joins {tables} tables, and {} is the most: write what the others say as tags of the rows, or join these when the view is read",
                Labelled::TABLES_MAX
            )));
        }
        for (place, step) in steps.iter().enumerate() {
            let (before, after) = (steps.iter().take(place), steps.get(place + 1..).unwrap_or_default());
            if let Some(label) = before.flat_map(|before| &before.labels).find(|(label, _)| step.adds(label)) {
                return Err(QueryError::Invalid(format!(
                    "the view {name:?} has the label {:?} of two joined tables: show one of them by another name",
                    label.0
                )));
            }
            self.check_joined(step, after)?;
        }
        Ok(())
    }

    /// Refuses a joined table that is one of the view's own, or labels of it that neither groups nor the tables that are joined after it need.
    fn check_joined(&self, labelled: &Labelled, after: &[&Labelled]) -> Result<(), QueryError> {
        let (name, joined) = (&self.name, labelled.table_name());
        let invalid = |message: String| Err(QueryError::Invalid(message));
        if joined.is_empty() || !labelled.table.tokens.is_empty() || labelled.on.is_empty() {
            return invalid(format!("the view {name:?} joins a table by its name, by tags that are equal"));
        }
        if [self.source(), self.target.as_str(), name.as_str()].contains(&joined) {
            return invalid(format!(
                "the view {name:?} joins {joined:?}, which it reads or writes itself: join another table"
            ));
        }
        let is_key = |label: &String| after.iter().any(|step| step.on.iter().any(|(key, _)| key == label));
        let is_needed = |(label, _): &(String, String)| self.labels().contains(label) || is_key(label);
        if !labelled.selectors.is_empty() || !labelled.labels.iter().all(is_needed) {
            return invalid(format!("the view {name:?} has labels of {joined:?} by which it does not group"));
        }
        Ok(())
    }
}

/// Returns whether a plan is columns of groups of a scan, with conditions: on groups, on rows with columns of other tables as of their times, and on the scan's.
fn is_chain(plan: &Plan) -> bool {
    let Plan::Map { input, .. } = plan else { return false };
    let grouped = match &**input {
        Plan::Where { input, .. } => input,
        _ => input,
    };
    let Plan::GroupBy { input, .. } = &**grouped else { return false };
    let mut rows = &**input;
    while let Plan::Labelled(labelled) = rows {
        rows = &labelled.input;
    }
    if let Plan::Map { input, .. } = rows {
        rows = input;
    }
    if let Plan::Where { input, .. } = rows
        && matches!(**input, Plan::AsOf(_))
    {
        rows = input;
    }
    while let Plan::AsOf(as_of) = rows {
        rows = &as_of.input;
    }
    if let Plan::Where { input, .. } = rows {
        rows = input;
    }
    matches!(rows, Plan::Scan(_))
}

//! The tables that views join: those of labels, and those that are joined as of a time.

use std::sync::Arc;

use super::ViewDefinition;
use crate::plan::{AsOf, Labelled, Plan, Selector};
use crate::{LabelRows, QueryError};

impl ViewDefinition {
    /// The labels that it has of other tables, in the order in which these are joined.
    pub fn labelled(&self) -> Vec<&Labelled> {
        labelled_of(&self.plan).map(Labelled::steps).unwrap_or_default()
    }

    /// Returns whether it joins other tables.
    pub fn has_joins(&self) -> bool {
        labelled_of(&self.plan).is_some() || self.as_ofs().next().is_some()
    }

    /// Returns whether it joins a table.
    pub fn joins(&self, table: &str) -> bool {
        self.labelled().iter().any(|labelled| labelled.table_name() == table) || self.has_as_of(table)
    }

    /// The tables that it joins.
    pub fn joined_tables(&self) -> Vec<&str> {
        let of_labels = self.labelled().into_iter().map(Labelled::table_name);
        of_labels.chain(self.as_ofs().map(AsOf::table_name)).collect()
    }

    /// Returns whether a joined table says a label.
    pub fn is_joined_label(&self, label: &str) -> bool {
        self.labelled().iter().any(|labelled| labelled.adds(label))
            || self.as_ofs().any(|as_of| as_of.adds_label(label))
    }

    /// A text that differs where the joined tables say something else, given what each of them says: that of each, with commas between; `None` if none is joined.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn labels_fingerprint(
        &self,
        label_rows: impl Fn(&Labelled) -> Result<Arc<LabelRows>, QueryError>,
    ) -> Result<Option<String>, QueryError> {
        let steps = self.labelled();
        let of_step = |step: &&Labelled| Ok(label_rows(step)?.fingerprint().to_owned());
        let texts = steps.iter().map(of_step).collect::<Result<Vec<String>, QueryError>>()?;
        Ok((!texts.is_empty()).then(|| texts.join(",")))
    }
}

fn labelled_of(plan: &Plan) -> Option<&Labelled> {
    match plan {
        Plan::Labelled(labelled) => Some(labelled),
        other => labelled_of(other.input()?),
    }
}

/// Narrows the rows that a plan reads, of its source and of the tables that it joins.
pub(super) fn narrow(plan: &mut Plan, selectors: &[Selector]) {
    match plan {
        Plan::Scan(scan) => scan.selectors.extend_from_slice(selectors),
        Plan::Where { input, .. } | Plan::GroupBy { input, .. } | Plan::Map { input, .. } => narrow(input, selectors),
        Plan::Labelled(labelled) => {
            labelled.table.selectors.extend_from_slice(selectors);
            narrow(&mut labelled.input, selectors);
        }
        Plan::AsOf(as_of) => {
            as_of.table.selectors.extend_from_slice(selectors);
            narrow(&mut as_of.input, selectors);
        }
        _ => {}
    }
}

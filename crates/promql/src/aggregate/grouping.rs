//! To which group of an aggregation a series belongs.

use model::{Labels, METRIC_NAME};
use query::{Budget, QueryError};
use relabel::relabel_within;

use crate::syntax::ast::Grouping;
use crate::syntax::ast::{RELABELLED, Relabelling};

/// Bytes of the labels that steps make, as of those of a series.
const LABELS_BYTES_MAX: usize = 64 << 10;

impl Grouping {
    /// The labels of the group to which a series belongs; `None` if steps leave the series out.
    ///
    /// # Errors
    /// Steps give labels that are too large, or change the metric's name; the budget.
    pub(crate) fn group_of(&self, labels: &Labels, budget: &Budget) -> Result<Option<Labels>, QueryError> {
        self.group_of_without(labels, None, budget)
    }

    /// As [`group_of`](Self::group_of), without a label whose place one of the results takes.
    pub(crate) fn group_of_without(
        &self,
        labels: &Labels,
        replaced: Option<&str>,
        budget: &Budget,
    ) -> Result<Option<Labels>, QueryError> {
        let changed = match &self.relabelling {
            Some(relabelling) => relabelling.relabelled(labels, budget)?,
            None => Some(labels.clone()),
        };
        let without = |labels: Labels| replaced.map_or_else(|| labels.clone(), |name| labels.with(name, ""));
        Ok(changed.map(|labels| self.key(&without(labels))))
    }
}

impl Relabelling {
    /// The labels of a series after the steps, without the metric's name; `None` if they leave it out.
    fn relabelled(&self, series: &Labels, budget: &Budget) -> Result<Option<Labels>, QueryError> {
        let failed = |why: String| QueryError::Execution(format!("{RELABELLED}, of the series {series}: {why}"));
        let own = series.iter().filter(|(name, _)| *name != METRIC_NAME);
        let mut labels: relabel::Labels = own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        labels.extend(self.metric.iter().map(|metric| (METRIC_NAME.to_owned(), metric.clone())));
        let is_kept = relabel_within(&mut labels, &self.rules, LABELS_BYTES_MAX);
        if !is_kept.map_err(|error| failed(error.to_string()))? {
            return Ok(None);
        }
        let metric = labels.remove(METRIC_NAME);
        if metric != self.metric {
            let name = metric.map_or("no name".to_owned(), |metric| format!("the name {metric:?}"));
            return Err(failed(format!(
                "its metric gets {name}, but steps have to leave the name of a metric as it is"
            )));
        }
        // A label whose name is gone is gone.
        labels.remove("");
        let labels = Labels::from_sorted(labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        // Those of the series are counted where it is read.
        budget.hold_bytes(labels.size_bytes().saturating_sub(series.size_bytes()) as u64)?;
        Ok(Some(labels))
    }
}

//! Which views summaries of their source's samples tell as well as the samples do.

use model::ValueType;

use super::{ViewDefinition, scan_of};
use crate::plan::{Aggregate, AggregateCall, AggregateInput, Expression, Plan, push_down};

impl ViewDefinition {
    /// Returns whether its windows are the same where its source's samples are replaced by summaries of these widths, in nanoseconds. Where in doubt they are
    /// not.
    pub fn is_told_by_folds(&self, widths_ns: impl IntoIterator<Item = i64>) -> bool {
        let plan = push_down(self.plan.clone());
        let range = scan_of(&plan).map(|scan| scan.range);
        let windows = self.windows.bins().ok().and_then(|bins| bins.equal_bins());
        let has_folds_whole = |fold_ns: i64| {
            let is_bound = |time_ns: i64| matches!(time_ns, i64::MIN | i64::MAX) || time_ns % fold_ns.max(1) == 0;
            let are_whole = windows.is_some_and(|(width_ns, offset_ns)| is_bound(width_ns) && is_bound(offset_ns));
            are_whole && range.is_some_and(|range| is_bound(range.start_ns) && is_bound(range.end_ns.saturating_add(1)))
        };
        let mut widths_ns = widths_ns.into_iter().peekable();
        widths_ns.peek().is_none() || (self.is_of_summaries(&plan) && widths_ns.all(has_folds_whole))
    }

    /// Returns whether it is made of aggregates that summaries have, of all rows of some series in a range; its plan as it is carried out.
    fn is_of_summaries(&self, plan: &Plan) -> bool {
        let Plan::Map { input, columns } = plan else { return false };
        let Plan::GroupBy { input, grouping } = &**input else { return false };
        let is_of_all_rows = match &**input {
            Plan::Scan(_) => true,
            Plan::Labelled(labelled) => matches!(labelled.input, Plan::Scan(_)),
            _ => false,
        };
        let every_row = scan_of(input).is_some_and(crate::plan::Scan::is_of_every_row);
        // Of texts and flags a summary has the last one alone, and of what an expression makes of them nothing is known here.
        let are_numbers = self
            .fields
            .iter()
            .all(|(_, value_type)| matches!(value_type, ValueType::F64 | ValueType::I64 | ValueType::U64));
        let is_column = |call: &AggregateCall| {
            let name = call.column_name();
            columns.iter().any(|(_, of)| matches!(of, Expression::Column(known) if *known == name))
        };
        let is_told = |call: &AggregateCall| match (&call.input, call.aggregate) {
            (AggregateInput::Time, aggregate) => {
                every_row && matches!(aggregate, Aggregate::Count | Aggregate::Min | Aggregate::Max)
            }
            (AggregateInput::Column(_), Aggregate::First | Aggregate::Min | Aggregate::Max) => is_column(call),
            (AggregateInput::Column(_), aggregate) => aggregate.from_summaries(),
            _ => false,
        };
        is_of_all_rows && are_numbers && grouping.aggregates.iter().all(is_told)
    }
}

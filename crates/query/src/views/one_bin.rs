//! Queries of a table that make one row of each group, as a view answers them: of the windows that are stored, and of the table's rows in all others and in
//! the parts of windows at the ends of the range, each as one row of the view's columns, which are grouped in turn.

use model::TimeRange;

use super::rewrite::{SourceQuery, ViewAnswer};
use super::{ComputedPart, View};
use crate::plan::{
    Aggregate, AggregateCall, AggregateInput, Expression, Grouping, Plan, Scan, Selector, ViewPart, ViewRead, push_down,
};

impl View {
    /// The times of the windows that lie in a range whole, and not before a time.
    pub(super) fn whole_windows(&self, range: &TimeRange, not_before_ns: i64) -> TimeRange {
        let start_ns = self.first_from(range.start_ns.max(not_before_ns));
        let end_ns = match range.end_ns {
            i64::MAX => i64::MAX,
            end_ns => self.bins.start_of(end_ns + 1).saturating_sub(1),
        };
        TimeRange { start_ns, end_ns }
    }

    /// Columns of the view, of all rows of its source in a range together, by some of its labels.
    fn of_rows(&self, range: &TimeRange, (fields, by): (&[String], &[String]), selectors: &[Selector]) -> Plan {
        let part = ComputedPart { range: *range, selectors, width_ns: 0, offset_ns: 0 };
        match part.restrict(&self.of_columns(fields).definition.plan) {
            Plan::Map { input, columns } => {
                let input = match *input {
                    Plan::GroupBy { input, grouping } => {
                        let by = Some(by.to_vec());
                        let grouping = Grouping { width_ns: None, offset_ns: 0, by, undated: true, ..grouping };
                        Plan::GroupBy { input, grouping }
                    }
                    other => other,
                };
                push_down(Plan::Map { input: Box::new(input), columns })
            }
            other => other,
        }
    }
}

impl ViewAnswer {
    /// One row of each group, given the windows that are stored and the rest of the range: all are made of rows that are parts, one after the other.
    pub(super) fn of_one_bin(
        &self,
        (query, view): (&SourceQuery<'_>, &View),
        stored: &[TimeRange],
        rest: &[TimeRange],
    ) -> Plan {
        let part = |range: &TimeRange, plan: Plan| ViewPart { range: *range, plan };
        let of_rows =
            |range: &TimeRange| part(range, view.of_rows(range, (self.fields(), query.labels()), &self.scan.selectors));
        let as_stored = |range: &TimeRange| Scan { range: *range, ..self.scan.clone() };
        let rows = match (stored, rest) {
            ([range], []) => Plan::Scan(as_stored(range)),
            _ => {
                let of_view = |range: &TimeRange| {
                    let scan = as_stored(range);
                    part(range, self.as_one(&scan).unwrap_or(Plan::Scan(scan)))
                };
                let mut parts: Vec<ViewPart> = stored.iter().map(of_view).chain(rest.iter().map(of_rows)).collect();
                parts.sort_by_key(|part| part.range.start_ns);
                let (name, columns) = (view.definition.name.clone(), self.fields().to_vec());
                Plan::View(Box::new(ViewRead { name, columns, parts, every_row: true }))
            }
        };
        query.read_of(view, vec![part(&query.times(), self.plan(rows))])
    }

    /// The view's rows of each group as one, in the same columns, which summaries of the view's table give; `None` if a column is read as several aggregates.
    fn as_one(&self, scan: &Scan) -> Option<Plan> {
        let mut columns: Vec<(String, AggregateCall)> = Vec::new();
        for (field, call) in self.grouping.aggregates.iter().flat_map(composed_of) {
            match columns.iter().find(|(known, _)| *known == field) {
                Some((_, known)) if *known != call => return None,
                Some(_) => {}
                None => columns.push((field, call)),
            }
        }
        let aggregates = columns.iter().map(|(_, call)| call.clone()).collect();
        let grouping = Grouping { aggregates, ..self.grouping.clone() };
        let grouped = Plan::GroupBy { input: Box::new(Plan::Scan(scan.clone())), grouping };
        let columns = columns.into_iter().map(|(field, call)| (field, Expression::Column(call.column_name())));
        Some(Plan::Map { input: Box::new(grouped), columns: columns.collect() })
    }
}

/// The columns of a view that an aggregate reads, each with the aggregate of it that several rows as one have in its place.
fn composed_of(call: &AggregateCall) -> Vec<(String, AggregateCall)> {
    match &call.input {
        AggregateInput::Column(field) => vec![(field.clone(), call.clone())],
        AggregateInput::Sketches(field) => {
            let aggregate = call.aggregate.sketch().unwrap_or(call.aggregate);
            vec![(field.clone(), AggregateCall { aggregate, input: call.input.clone() })]
        }
        AggregateInput::Parts(parts) => {
            let sum = |field: &String| (field.clone(), AggregateCall::of_column(Aggregate::Sum, field.as_str()));
            let squares = AggregateCall { aggregate: Aggregate::Squares, input: call.input.clone() };
            vec![sum(&parts.count), sum(&parts.sum), (parts.squares.clone(), squares)]
        }
        AggregateInput::Each | AggregateInput::Time | AggregateInput::Tag(_) => Vec::new(),
    }
}

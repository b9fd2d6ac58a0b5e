//! Queries of a table that a view of it answers: bins of which each is made of whole windows of the view, by labels that the view has, of aggregates that
//! its columns give. The bins at the ends of the range that are not whole, and those of whose source a part is gone, are computed from the table.

use model::{TimeRange, ValueType};
use store::TableSchema;

use super::ranges::intersect;
use super::{View, ViewDefinition};
use crate::plan::{
    Aggregate, AggregateCall, AggregateInput, Expression, Grouping, Operator, PartColumns, Plan, Scan, Selector,
    TableColumns, push_down,
};

/// A query that groups a table's rows into bins.
pub(super) struct SourceQuery<'a> {
    scan: &'a Scan,
    condition: Option<&'a Expression>,
    grouping: &'a Grouping,
    /// The width of its bins, and how much later than the epoch one begins, nanoseconds.
    bins: (i64, i64),
}

impl ViewDefinition {
    /// Returns whether the summaries of its table give the same at the same cost, as long as the table keeps its rows: then no query of the table
    /// uses the view.
    pub fn is_in_summaries(&self, table: &TableSchema) -> bool {
        let pushed = push_down(self.plan.clone());
        let Plan::Map { input, .. } = &pushed else { return false };
        let Plan::GroupBy { input, grouping } = &**input else { return false };
        let Some(query) = SourceQuery::new(input, grouping) else { return false };
        // Of other columns, and of times, there are no summaries.
        let is_number = |call: &AggregateCall| match &call.input {
            AggregateInput::Column(name) => table.fields.iter().any(|(known, value_type)| {
                known == name && matches!(value_type, ValueType::F64 | ValueType::I64 | ValueType::U64)
            }),
            _ => false,
        };
        !query.is_spared_by(self, &table.tags) && grouping.aggregates.iter().all(is_number)
    }
}

/// What a view gives for the bins of a range.
pub(super) struct ViewAnswer {
    /// The times of whole bins.
    pub(super) range: TimeRange,
    /// The scan of the view's rows.
    pub(super) scan: Scan,
    grouping: Grouping,
    columns: Vec<(String, Expression)>,
}

impl ViewAnswer {
    /// The plan over the view's rows.
    pub(super) fn plan(self, rows: Plan) -> Plan {
        let grouped = Plan::GroupBy { input: Box::new(rows), grouping: self.grouping };
        Plan::Map { input: Box::new(grouped), columns: self.columns }
    }
}

impl<'a> SourceQuery<'a> {
    /// The query of a grouping; `None` if no view can answer it.
    pub(super) fn new(input: &'a Plan, grouping: &'a Grouping) -> Option<Self> {
        let (scan, condition) = match input {
            Plan::Scan(scan) => (scan, None),
            Plan::Where { input, condition } => match &**input {
                Plan::Scan(scan) => (scan, Some(condition)),
                _ => return None,
            },
            _ => return None,
        };
        // Rows are those of the table, or those that have a value of the fields that are named.
        let is_of_rows = scan.table.as_ref().is_some_and(|table| table.every_row || !table.fields.is_empty());
        let is_of_rows = is_of_rows && scan.tokens.is_empty() && grouping.by.is_some();
        let width_ns = grouping.width_ns.filter(|width_ns| *width_ns > 0 && is_of_rows)?;
        Some(Self { scan, condition, grouping, bins: (width_ns, grouping.offset_ns) })
    }

    /// The table.
    pub(super) fn table(&self) -> &str {
        self.scan.table.as_ref().map_or("", |table| &table.name)
    }

    /// Returns whether its rows are all of the table, and not those alone that have a value of certain fields.
    pub(super) fn is_of_every_row(&self) -> bool {
        self.scan.is_of_every_row()
    }

    /// The labels by which its rows are put together.
    pub(super) fn labels(&self) -> &[String] {
        self.grouping.by.as_deref().unwrap_or_default()
    }

    /// Returns whether it has an aggregate that reads samples, for want of summaries of it.
    fn reads_samples(&self) -> bool {
        self.condition.is_some() || self.grouping.aggregates.iter().any(|call| !call.aggregate.from_summaries())
    }

    /// Returns whether a view spares reading: not if it has all labels of the table, and the table's summaries have all aggregates.
    pub(super) fn is_spared_by(&self, definition: &ViewDefinition, tags: &[String]) -> bool {
        self.reads_samples() || tags.iter().any(|tag| !definition.labels().contains(tag))
    }

    /// The bins of the whole range, from the beginning of the first on.
    pub(super) fn bins_of(&self, range: &TimeRange) -> TimeRange {
        TimeRange { start_ns: bin_start(range.start_ns, self.bins), end_ns: range.end_ns }
    }

    /// The query within another range.
    pub(super) fn of_range(&self, range: &TimeRange) -> Plan {
        let scan = Scan { range: intersect(&self.scan.range, range), ..self.scan.clone() };
        let mut input = Plan::Scan(scan);
        if let Some(condition) = self.condition {
            input = Plan::Where { input: Box::new(input), condition: condition.clone() };
        }
        Plan::GroupBy { input: Box::new(input), grouping: self.grouping.clone() }
    }

    /// The names of its columns.
    pub(super) fn column_names(&self) -> Vec<String> {
        self.grouping.aggregates.iter().map(AggregateCall::column_name).collect()
    }

    /// Its range.
    pub(super) const fn range(&self) -> &TimeRange {
        &self.scan.range
    }

    /// What a view gives of it, if it is of the same rows; windows before a time count as gone.
    pub(super) fn answer(&self, view: &View, frozen_before_ns: i64) -> Option<ViewAnswer> {
        let definition = &view.definition;
        let (window_ns, window_offset_ns) = view.bins.equal_bins()?;
        let (width_ns, offset_ns) = self.bins;
        if width_ns % window_ns != 0 || (offset_ns - window_offset_ns) % window_ns != 0 {
            return None;
        }
        let selectors = self.selectors(definition)?;
        let is_same_groups = width_ns == window_ns && self.has_all_labels(definition);
        let derived: Vec<Derived> = self
            .grouping
            .aggregates
            .iter()
            .map(|call| self.derive(call, definition, is_same_groups))
            .collect::<Option<_>>()?;
        let range = self.whole_bins(frozen_before_ns);
        if range.start_ns > range.end_ns || view.state.watermark_ns <= range.start_ns {
            return None;
        }
        let calls: Vec<AggregateCall> = derived.iter().flat_map(|of| of.calls.iter().cloned()).collect();
        let mut fields: Vec<String> = Vec::new();
        let mut aggregates: Vec<AggregateCall> = Vec::new();
        for call in calls {
            for field in call.columns() {
                if !fields.iter().any(|known| known == field) {
                    fields.push(field.to_owned());
                }
            }
            if !aggregates.contains(&call) {
                aggregates.push(call);
            }
        }
        let table = TableColumns { name: definition.target.clone(), fields, every_row: true };
        Some(ViewAnswer {
            range,
            scan: Scan { table: Some(table), selectors, tokens: Vec::new(), range },
            grouping: Grouping { aggregates, ..self.grouping.clone() },
            columns: derived.into_iter().map(|of| (of.name, of.expression)).collect(),
        })
    }

    /// The selectors of the view's rows, if its rows are of the rows that the query reads, and all that these differ by is labels of the view.
    fn selectors(&self, definition: &ViewDefinition) -> Option<Vec<Selector>> {
        let pushed = push_down(definition.plan.clone());
        let (Plan::Map { input, .. }, true) = (&pushed, definition.is_exposed()) else { return None };
        let Plan::GroupBy { input, grouping } = &**input else { return None };
        let of_view = SourceQuery::new(input, grouping)?;
        let is_same = of_view.is_of_every_row()
            && of_view.table() == self.table()
            && *of_view.range() == TimeRange::ALL
            && of_view.condition == self.condition
            && of_view.scan.selectors.iter().all(|selector| self.scan.selectors.contains(selector));
        // A window whose columns are all null has no row in the view: a count is never null.
        let has_counts = definition.columns().iter().any(|(_, expression)| column_or_zero(expression).is_some());
        let has_label = |label: &String| definition.labels().contains(label);
        let own = self.scan.selectors.iter().filter(|selector| !of_view.scan.selectors.contains(selector));
        let own: Vec<Selector> = own.cloned().collect();
        let are_labels = own.iter().all(|selector| has_label(&selector.name)) && self.labels().iter().all(has_label);
        (is_same && has_counts && are_labels).then_some(own)
    }

    fn has_all_labels(&self, definition: &ViewDefinition) -> bool {
        definition.labels().iter().all(|label| self.labels().contains(label))
    }

    /// An aggregate as it is made of a view's columns.
    fn derive(&self, call: &AggregateCall, definition: &ViewDefinition, is_same_groups: bool) -> Option<Derived> {
        let is_of_rows = matches!(call.input, AggregateInput::Each | AggregateInput::Time | AggregateInput::Tag(_));
        if is_of_rows && !self.is_of_every_row() {
            return None;
        }
        let field = |call: &AggregateCall| {
            let name = call.column_name();
            let is_of = |(_, of): &&(String, Expression)| column_of(of, call.aggregate) == Some(&name);
            definition.columns().iter().find(is_of).map(|(field, _)| field.clone())
        };
        let of = |aggregate: Aggregate, from: &AggregateCall| Some(AggregateCall::of_column(aggregate, field(from)?));
        let one = |aggregate: Aggregate| {
            let derived = of(aggregate, call)?;
            let mut expression = Expression::Column(derived.column_name());
            if call.aggregate.is_count() {
                // A count of nothing is null until a language says otherwise; in the view it is zero.
                expression = Expression::Apply(Operator::NullIf, vec![expression, Expression::Integer(0)]);
            }
            Some(Derived { name: call.column_name(), calls: vec![derived], expression })
        };
        let made = |input: AggregateInput| {
            let derived = AggregateCall { aggregate: call.aggregate, input };
            let expression = Expression::Column(derived.column_name());
            Derived { name: call.column_name(), calls: vec![derived], expression }
        };
        match call.aggregate {
            // One row of the view is one of the answer.
            // The first bin of a query has no bin before it, a view's window has.
            Aggregate::Increase => None,
            _ if is_same_groups && field(call).is_some() => one(Aggregate::Last),
            Aggregate::Min | Aggregate::Max => one(call.aggregate),
            Aggregate::Sum | Aggregate::Count | Aggregate::OffMilliseconds => one(Aggregate::Sum),
            // Among series that become one it is not known whose value was the first.
            Aggregate::First | Aggregate::Last if self.has_all_labels(definition) => one(call.aggregate),
            Aggregate::Avg => {
                let part = |aggregate| AggregateCall { aggregate, ..call.clone() };
                let calls = [Aggregate::Sum, Aggregate::Count].map(|aggregate| of(Aggregate::Sum, &part(aggregate)));
                let [Some(sum), Some(count)] = calls else { return None };
                let operands = [&sum, &count].map(|call| Expression::Column(call.column_name())).to_vec();
                let expression = Expression::Apply(Operator::Divide, operands);
                Some(Derived { name: call.column_name(), calls: vec![sum, count], expression })
            }
            Aggregate::Stddev
            | Aggregate::StddevSample
            | Aggregate::Variance
            | Aggregate::VarianceSample
            | Aggregate::Squares => {
                let part = |aggregate| field(&AggregateCall { aggregate, ..call.clone() });
                let (count, sum) = (part(Aggregate::Count)?, part(Aggregate::Sum)?);
                let parts = PartColumns { count, sum, squares: part(Aggregate::Squares)? };
                Some(made(AggregateInput::Parts(Box::new(parts))))
            }
            Aggregate::ApproxQuantile(_)
            | Aggregate::QuantileSketch
            | Aggregate::ApproxDistinct
            | Aggregate::DistinctSketch
            | Aggregate::Histogram(_)
            | Aggregate::Histograms => {
                let sketches = field(&AggregateCall { aggregate: call.aggregate.sketch()?, ..call.clone() })?;
                Some(made(AggregateInput::Sketches(sketches)))
            }
            Aggregate::First
            | Aggregate::Last
            | Aggregate::Quantile(_)
            | Aggregate::NearestRank(_)
            | Aggregate::Mode
            | Aggregate::CountDistinct => None,
        }
    }

    /// The times of the bins that lie in the range whole, and not before a time.
    fn whole_bins(&self, not_before_ns: i64) -> TimeRange {
        let from_ns = self.scan.range.start_ns.max(not_before_ns);
        let start_ns = bin_start(from_ns, self.bins);
        let start_ns = if start_ns < from_ns { start_ns.saturating_add(self.bins.0) } else { start_ns };
        let end_ns = match self.scan.range.end_ns {
            i64::MAX => i64::MAX,
            end_ns => bin_start(end_ns + 1, self.bins).saturating_sub(1),
        };
        TimeRange { start_ns, end_ns }
    }
}

/// An aggregate of a query from those of a view's columns.
struct Derived {
    /// The name of its column.
    name: String,
    calls: Vec<AggregateCall>,
    expression: Expression,
}

/// The first time of the bin that holds a time; the earliest time has none before it.
fn bin_start(time_ns: i64, (width_ns, offset_ns): (i64, i64)) -> i64 {
    if time_ns == i64::MIN {
        return i64::MIN;
    }
    let (time_ns, offset_ns) = (i128::from(time_ns), i128::from(offset_ns));
    let start_ns = (time_ns - offset_ns).div_euclid(i128::from(width_ns)) * i128::from(width_ns) + offset_ns;
    i64::try_from(start_ns).unwrap_or(i64::MIN)
}

/// The aggregate's column that an expression is; of counts also what is zero where there is none, which they are of nothing. Another aggregate
/// of nothing is not zero.
fn column_of(expression: &Expression, aggregate: Aggregate) -> Option<&String> {
    match expression {
        Expression::Column(name) => Some(name),
        other => column_or_zero(other).filter(|_| aggregate.is_count()),
    }
}

/// The column of a `coalesce(column, 0)`, which is never null.
fn column_or_zero(expression: &Expression) -> Option<&String> {
    let Expression::Apply(Operator::Coalesce, operands) = expression else { return None };
    match operands.as_slice() {
        [Expression::Column(name), Expression::Integer(0)] => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_begin_at_multiples_of_their_width_after_the_offset() {
        for (time_ns, bins, expected) in
            [(25, (10, 0), 20), (-1, (10, 0), -10), (22, (10, 3), 13), (i64::MIN, (10, 0), i64::MIN), (23, (10, 3), 23)]
        {
            assert_eq!(bin_start(time_ns, bins), expected, "{time_ns}");
        }
    }
}

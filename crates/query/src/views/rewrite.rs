//! Queries of a table that a view of it answers: bins of which each is made of whole windows of the view, or all rows of a range as one, by labels that the
//! view has, of aggregates that its columns give. The bins at the ends of the range that are not whole, or the rows there of windows that are not, and those
//! of whose source a part is gone, are computed from the table.

use model::{TimeRange, ValueType};
use store::TableSchema;

use super::{ComputedPart, View, ViewDefinition};
use crate::plan::{
    Aggregate, AggregateCall, AggregateInput, Expression, Grouping, Operator, PartColumns, Plan, Scan, Selector,
    TableColumns, ViewPart, ViewRead, push_down,
};

/// A query that groups a table's rows into bins, or all of a group into one.
pub(super) struct SourceQuery<'a> {
    rows: &'a Plan,
    scan: &'a Scan,
    condition: Option<&'a Expression>,
    columns: RowColumns<'a>,
    grouping: &'a Grouping,
    /// The width of its bins, and how much later than the epoch one begins, nanoseconds; `None` if all rows of a group are one, whose time is not used.
    bins: Option<(i64, i64)>,
}

/// The columns of the rows that are grouped: those of the table, or others that are computed from these.
struct RowColumns<'a>(Option<&'a [(String, Expression)]>);

impl RowColumns<'_> {
    /// The column of another query's rows that is the same as one of these.
    fn name_in(&self, others: &RowColumns<'_>, name: &str) -> Option<String> {
        let own = match self.0 {
            None => Expression::Column(name.to_owned()),
            Some(columns) => columns.iter().find(|(known, _)| known == name)?.1.clone(),
        };
        match (others.0, &own) {
            (None, Expression::Column(column)) => Some(column.clone()),
            (None, _) => None,
            (Some(columns), _) => {
                // As they are written: numbers are equal whose signs differ.
                let text = own.to_string();
                columns.iter().find(|(_, of)| of.to_string() == text).map(|(name, _)| name.clone())
            }
        }
    }
}

impl ViewDefinition {
    /// Returns whether the summaries of its table give the same at the same cost, as long as the table keeps its rows: then no query of the table
    /// uses the view.
    pub fn is_in_summaries(&self, table: &TableSchema) -> bool {
        let pushed = push_down(self.plan.clone());
        let Some(query) = SourceQuery::of_view(&pushed) else { return false };
        // Of other columns, and of times, there are no summaries.
        let is_number = |call: &AggregateCall| match &call.input {
            AggregateInput::Column(name) => table.fields.iter().any(|(known, value_type)| {
                known == name && matches!(value_type, ValueType::F64 | ValueType::I64 | ValueType::U64)
            }),
            _ => false,
        };
        !query.is_spared_by(self, &table.tags) && query.grouping.aggregates.iter().all(is_number)
    }

    /// The field that holds the values of an aggregate.
    fn field_of(&self, call: &AggregateCall) -> Option<String> {
        let name = call.column_name();
        let is_of = |(_, of): &&(String, Expression)| column_of(of, call.aggregate) == Some(&name);
        self.columns().iter().find(is_of).map(|(field, _)| field.clone())
    }
}

/// What a view gives for the bins of a range, or for the rows of all its windows.
pub(super) struct ViewAnswer {
    /// The times of whole bins, or windows.
    pub(super) range: TimeRange,
    /// The scan of the view's rows.
    pub(super) scan: Scan,
    /// How the view's rows are grouped.
    pub(super) grouping: Grouping,
    columns: Vec<(String, Expression)>,
}

impl ViewAnswer {
    /// The columns of the view that it reads.
    pub(super) fn fields(&self) -> &[String] {
        self.scan.table.as_ref().map(|table| table.fields.as_slice()).unwrap_or_default()
    }

    /// The plan over the view's rows.
    pub(super) fn plan(&self, rows: Plan) -> Plan {
        let grouped = Plan::GroupBy { input: Box::new(rows), grouping: self.grouping.clone() };
        Plan::Map { input: Box::new(grouped), columns: self.columns.clone() }
    }
}

impl<'a> SourceQuery<'a> {
    /// The query of a grouping; `None` if no view can answer it.
    pub(super) fn new(rows: &'a Plan, grouping: &'a Grouping) -> Option<Self> {
        let (columns, of_table) = match rows {
            Plan::Map { input, columns } => (Some(columns.as_slice()), &**input),
            other => (None, other),
        };
        let (scan, condition) = match of_table {
            Plan::Scan(scan) => (scan, None),
            Plan::Where { input, condition } => match &**input {
                Plan::Scan(scan) => (scan, Some(condition)),
                _ => return None,
            },
            _ => return None,
        };
        // Rows are those of the table, or those that have a value of the fields that are named. What is computed is of the former.
        let has_fields = scan.table.as_ref().is_some_and(|table| !table.fields.is_empty());
        let is_of_rows = scan.is_of_every_row() || has_fields && columns.is_none();
        if !is_of_rows || !scan.tokens.is_empty() || grouping.by.is_none() {
            return None;
        }
        let bins = match grouping.width_ns {
            Some(width_ns) if width_ns > 0 => Some((width_ns, grouping.offset_ns)),
            None if grouping.undated => None,
            _ => return None,
        };
        Some(Self { rows, scan, condition, columns: RowColumns(columns), grouping, bins })
    }

    /// A view's plan as a query of its source, if all groups of that are its rows.
    fn of_view(plan: &'a Plan) -> Option<Self> {
        let Plan::Map { input, .. } = plan else { return None };
        let Plan::GroupBy { input, grouping } = &**input else { return None };
        Self::new(input, grouping)
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
        let has_summaries = |call: &AggregateCall| call.aggregate.from_summaries();
        self.condition.is_some() || self.columns.0.is_some() || !self.grouping.aggregates.iter().all(has_summaries)
    }

    /// Returns whether a view spares reading: not if it has all labels of the table, and the table's summaries have all aggregates.
    pub(super) fn is_spared_by(&self, definition: &ViewDefinition, tags: &[String]) -> bool {
        self.reads_samples() || tags.iter().any(|tag| !definition.labels().contains(tag))
    }

    /// The times of whole bins within a range of a view's whole windows: all of it where all rows of a group are one.
    pub(super) fn bins_in(&self, range: &TimeRange) -> TimeRange {
        self.bins.map_or(*range, |bins| whole_bins(bins, range))
    }

    /// The times of its rows: those of the beginnings of bins, where it has any.
    pub(super) fn times(&self) -> TimeRange {
        let TimeRange { start_ns, end_ns } = self.scan.range;
        TimeRange { start_ns: self.bins.map_or(start_ns, |bins| bin_start(start_ns, bins)), end_ns }
    }

    /// Returns whether all rows of a group are one.
    pub(super) const fn is_of_one_bin(&self) -> bool {
        self.bins.is_none()
    }

    /// The query within another range.
    pub(super) fn of_range(&self, range: &TimeRange) -> Plan {
        let (width_ns, offset_ns) = self.bins.unwrap_or_default();
        let part = ComputedPart { range: *range, selectors: &[], width_ns, offset_ns };
        Plan::GroupBy { input: Box::new(part.restrict(self.rows)), grouping: self.grouping.clone() }
    }

    /// Its rows, of parts that are read of a view and of its table.
    pub(super) fn read_of(&self, view: &View, parts: Vec<ViewPart>) -> Plan {
        let columns = self.grouping.aggregates.iter().map(AggregateCall::column_name).collect();
        let (name, every_row) = (view.definition.name.clone(), self.is_of_every_row());
        Plan::View(Box::new(ViewRead { name, columns, parts, every_row }))
    }

    /// Its range.
    pub(super) const fn range(&self) -> &TimeRange {
        &self.scan.range
    }

    /// What a view gives of it, if it is of the same rows; windows before a time count as gone.
    pub(super) fn answer(&self, view: &View, frozen_before_ns: i64) -> Option<ViewAnswer> {
        let definition = &view.definition;
        let is_same_bins = match self.bins {
            None => false,
            Some((width_ns, offset_ns)) => {
                let (window_ns, window_offset_ns) = self.windows_of(view)?;
                let distance_ns = i128::from(offset_ns) - i128::from(window_offset_ns);
                if width_ns % window_ns != 0 || distance_ns % i128::from(window_ns) != 0 {
                    return None;
                }
                width_ns == window_ns
            }
        };
        let selectors = self.selectors(definition)?;
        if !self.is_of_every_row() && !tells_rows(&self.grouping.aggregates) {
            return None;
        }
        let is_same_groups = is_same_bins && self.has_all_labels(definition);
        let derived: Vec<Derived> = self
            .grouping
            .aggregates
            .iter()
            .map(|call| self.derive(call, definition, is_same_groups))
            .collect::<Option<_>>()?;
        let range = match self.bins {
            Some(bins) => {
                let start_ns = self.scan.range.start_ns.max(frozen_before_ns);
                whole_bins(bins, &TimeRange { start_ns, ..self.scan.range })
            }
            None => view.whole_windows(&self.scan.range, frozen_before_ns),
        };
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

    /// Width and offset of a view's windows, if they are equal in the query's range: months, and days of a zone, are there in ranges of few of them.
    fn windows_of(&self, view: &View) -> Option<(i64, i64)> {
        view.bins.equal_bins().or_else(|| {
            let TimeRange { start_ns, end_ns } = self.scan.range;
            if start_ns == i64::MIN || end_ns == i64::MAX || start_ns > end_ns {
                return None;
            }
            let runs = view.bins.equal_runs((start_ns, end_ns), 1, |_, _| true)?;
            runs.first().map(|run| (run.width_ns, run.offset_ns()))
        })
    }

    /// The selectors of the view's rows, if its rows are of the rows that the query reads, and all that these differ by is labels of the view.
    fn selectors(&self, definition: &ViewDefinition) -> Option<Vec<Selector>> {
        let pushed = push_down(definition.plan.clone());
        let (Some(of_view), true) = (SourceQuery::of_view(&pushed), definition.is_exposed()) else { return None };
        let is_same = of_view.is_of_every_row()
            && of_view.table() == self.table()
            && *of_view.range() == TimeRange::ALL
            && is_written_alike(of_view.condition, self.condition)
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
        let name = call.column_name();
        let call = &self.call_in(&RowColumns(definition.row_columns()), call)?;
        let field = |call: &AggregateCall| definition.field_of(call);
        let of = |aggregate: Aggregate, from: &AggregateCall| Some(AggregateCall::of_column(aggregate, field(from)?));
        let one = |aggregate: Aggregate| {
            let derived = of(aggregate, call)?;
            let mut expression = Expression::Column(derived.column_name());
            if call.aggregate.is_count() {
                // A count of nothing is null until a language says otherwise; in the view it is zero.
                expression = Expression::Apply(Operator::NullIf, vec![expression, Expression::Integer(0)]);
            }
            Some(Derived { name: name.clone(), calls: vec![derived], expression })
        };
        let made = |input: AggregateInput| {
            let derived = AggregateCall { aggregate: call.aggregate, input };
            let expression = Expression::Column(derived.column_name());
            Derived { name: name.clone(), calls: vec![derived], expression }
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
                Some(Derived { name, calls: vec![sum, count], expression })
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
            | Aggregate::Integral { .. }
            | Aggregate::CountDistinct => None,
        }
    }

    /// An aggregate, of the column of other rows that is the same as its own.
    fn call_in(&self, others: &RowColumns<'_>, call: &AggregateCall) -> Option<AggregateCall> {
        let of = |name: &str| self.columns.name_in(others, name);
        let input = match &call.input {
            AggregateInput::Column(name) => AggregateInput::Column(of(name)?),
            AggregateInput::Sketches(name) => AggregateInput::Sketches(of(name)?),
            AggregateInput::Parts(parts) => {
                let PartColumns { count, sum, squares } = &**parts;
                let parts = PartColumns { count: of(count)?, sum: of(sum)?, squares: of(squares)? };
                AggregateInput::Parts(Box::new(parts))
            }
            of_rows @ (AggregateInput::Each | AggregateInput::Time | AggregateInput::Tag(_)) => of_rows.clone(),
        };
        Some(AggregateCall { input, ..call.clone() })
    }
}

/// An aggregate of a query from those of a view's columns.
struct Derived {
    /// The name of its column.
    name: String,
    calls: Vec<AggregateCall>,
    expression: Expression,
}

/// The times of the bins that lie in a range whole.
fn whole_bins(bins: (i64, i64), range: &TimeRange) -> TimeRange {
    let start_ns = bin_start(range.start_ns, bins);
    let start_ns = if start_ns < range.start_ns { start_ns.saturating_add(bins.0) } else { start_ns };
    let end_ns = match range.end_ns {
        i64::MAX => i64::MAX,
        end_ns => bin_start(end_ns + 1, bins).saturating_sub(1),
    };
    TimeRange { start_ns, end_ns }
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

/// Returns whether conditions are the same as they are written: numbers are equal whose signs differ, and what is divided by them is not.
fn is_written_alike(a: Option<&Expression>, b: Option<&Expression>) -> bool {
    a.map(ToString::to_string) == b.map(ToString::to_string)
}

/// The aggregate's column that an expression is; of counts also what is zero where there is none, which they are of nothing. Another aggregate
/// of nothing is not zero.
fn column_of(expression: &Expression, aggregate: Aggregate) -> Option<&String> {
    match expression {
        Expression::Column(name) => Some(name),
        other => column_or_zero(other).filter(|_| aggregate.is_count()),
    }
}

/// Returns whether there is a row exactly where an aggregate is not null, where rows are those that have values: some aggregates of values may be null.
fn tells_rows(calls: &[AggregateCall]) -> bool {
    let may_be_null = |call: &AggregateCall| {
        matches!(call.aggregate, Aggregate::StddevSample | Aggregate::VarianceSample | Aggregate::NearestRank(_))
    };
    let is_told = |call: &AggregateCall| calls.iter().any(|other| other.input == call.input && !may_be_null(other));
    calls.iter().all(|call| !may_be_null(call) || is_told(call))
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

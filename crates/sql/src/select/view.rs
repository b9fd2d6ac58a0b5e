//! The query of a materialised view, as the view's plan.

use std::sync::Arc;

use model::ValueType;
use query::TableSchema;
use query::plan::{Aggregate, AggregateCall, AggregateInput, Expression, Grouping, Operator, Plan};
use query::time::CalendarBins;
use query::views::{FIELD_PREFIX, OPEN_NS_MAX, ViewDefinition, ViewOutput, WindowWidth};
use sqlparser::ast::{Expr, Query, Select, SetExpr};

use super::computed::{Computed, Translation, TranslationState};
use super::plan_aggregates::PlanAggregates;
use super::projections::{ProjectionSource, group_keys, has_aggregate, projections};
use super::pushed::{PlanKey, plan_keys};
use super::view_source::ViewSource;
use super::{check_supported, sample};
use crate::context::Manner;
use crate::error::{SqlError, invalid};
use crate::expression::{Bound, Environment, Grouped, Typed};

use crate::run::Run;
use crate::scope::{Role, Scope};
use crate::syntax::parse::{Align, Extension};
use crate::syntax::views::CreateView;

/// The width of a plan whose windows differ in length: each run of windows gets its own.
const ANY_WIDTH_NS: i64 = 86_400_000_000_000;

/// So much earlier a view's query is bound again: another minute, hour, day, month and year.
const EARLIER_NS: i64 = 400 * ANY_WIDTH_NS + 3_661_000_000_001;

/// A view's query, bound.
struct BoundView {
    source: ViewSource,
    grouped: Grouped,
    condition: Option<Typed>,
    having: Option<Typed>,
    columns: Vec<(String, Typed)>,
}

impl Run<'_> {
    /// What a `CREATE MATERIALIZED VIEW` makes.
    pub(crate) fn view_definition(&mut self, said: &CreateView, query: &Query) -> Result<ViewDefinition, SqlError> {
        let SetExpr::Select(select) = &*query.body else {
            return invalid("a materialised view is a SELECT of groups of one table's rows");
        };
        if query.with.is_some() || query.limit_clause.is_some() || query.fetch.is_some() {
            return invalid("the query of a materialised view has no WITH and no LIMIT");
        }
        let plans = self.plans.len();
        let definition = self.view_of_select(said, select)?;
        if self.plans.len() > plans {
            return invalid("the query of a materialised view has no queries within it: write their values");
        }
        if let Err(error) = query::parse(&definition.plan.to_string(), 0) {
            return invalid(format!("the query of a materialised view is too long, or too deep, to be kept: {error}"));
        }
        let environment = self.environment.clone();
        let now_ns = environment.now_ns.saturating_sub(EARLIER_NS);
        self.environment = Arc::new(Environment { now_ns, ..Environment::clone(&environment) });
        let earlier = self.view_of_select(said, select);
        self.environment = environment;
        let is_same = |earlier: &ViewDefinition| {
            earlier.windows == definition.windows && earlier.plan.to_string() == definition.plan.to_string()
        };
        if !earlier.as_ref().is_ok_and(is_same) {
            return invalid(
                "the query of a materialised view does not depend on the present: write times instead of now() and the like",
            );
        }
        Ok(definition)
    }

    fn view_of_select(&mut self, said: &CreateView, select: &Select) -> Result<ViewDefinition, SqlError> {
        let mut bound = self.bound_view(select)?;
        if !said.columns.is_empty() {
            if said.columns.len() != bound.columns.len() {
                return invalid(format!(
                    "the view names {} columns, and its query has {}",
                    said.columns.len(),
                    bound.columns.len()
                ));
            }
            bound.columns.iter_mut().zip(&said.columns).for_each(|((name, _), said)| name.clone_from(said));
        }
        if said.base.as_ref().is_some_and(|base| !base.eq_ignore_ascii_case(&bound.source.schema.name)) {
            let read = &bound.source.schema.name;
            return invalid(format!("the query reads {read}, not the table of WITH BASE"));
        }
        self.defined(said, &bound)
    }

    fn bound_view(&mut self, select: &Select) -> Result<BoundView, SqlError> {
        check_supported(select)?;
        let extension = self.parsed.extension(select).cloned().unwrap_or_default();
        check_extension(&extension)?;
        if select.distinct.is_some() {
            return invalid("the query of a materialised view has no DISTINCT");
        }
        let [from] = select.from.as_slice() else {
            return invalid(
                "a materialised view reads one table, and joins others by JOIN or LEFT JOIN, not by a comma",
            );
        };
        let source = self.view_source(from)?;
        let scope = source.scope.clone();
        let condition = select.selection.as_ref().map(|expression| self.bind(&scope, expression)).transpose()?;
        let projections = projections(&select.projection, &scope)?;
        let keys = group_keys(select, &projections)?;
        let mut grouped = Grouped::default();
        if let Some(sample) = &extension.sample {
            sample::start(sample, &scope, None, &mut grouped)?;
        }
        self.keys(&mut grouped, &scope, &keys)?;
        if keys.is_empty() && (extension.sample.is_some() || self.manner == Manner::QuestDb) {
            // What is shown beside aggregates is grouped by.
            let plain = projections.iter().filter_map(|projected| match projected.source {
                ProjectionSource::Expression(expression) if !has_aggregate(expression) => Some(expression),
                _ => None,
            });
            let plain: Vec<&Expr> = plain.collect();
            self.keys(&mut grouped, &scope, &plain)?;
        }
        let mut columns = Vec::with_capacity(projections.len());
        for projected in &projections {
            let ProjectionSource::Expression(expression) = projected.source else {
                return invalid("* cannot be shown of groups");
            };
            columns.push((projected.name.clone(), self.bind_grouped(&scope, expression, &mut grouped)?));
        }
        let having =
            select.having.as_ref().map(|expression| self.bind_grouped(&scope, expression, &mut grouped)).transpose()?;
        Ok(BoundView { source, grouped, condition, having, columns })
    }

    fn defined(&self, said: &CreateView, bound: &BoundView) -> Result<ViewDefinition, SqlError> {
        let mut schema = bound.source.value_schema();
        let aggregates = PlanAggregates::new(&bound.grouped, &bound.source.value_scope(), &schema)?;
        schema.fields.extend(aggregates.computed.fields());
        let calls = &aggregates.calls;
        let key_scope = bound.source.key_scope();
        let keys = plan_keys(&bound.grouped, &key_scope, &self.environment);
        let Some((keys, Some(bins))) = keys else {
            return invalid(format!(
                "a materialised view is grouped by windows of the table's time, time_bucket('1 hour', time) or SAMPLE BY 1h, and by tags: {}",
                why_no_group(&bound.grouped, &key_scope, bound.source.has_as_of())
            ));
        };
        let windows = window_width(&bins.bins)?;
        let (width_ns, offset_ns) = bins.bins.equal_bins().unwrap_or((ANY_WIDTH_NS, 0));
        let mut shape = Shape { keys: &keys, calls, schema: &schema, columns: Vec::new(), aggregates: Vec::new() };
        calls.iter().for_each(|call| shape.need(call));
        if is_open_at_its_beginning(&bins.bins) {
            shape.need(&AggregateCall { aggregate: Aggregate::OffMilliseconds, input: AggregateInput::Time });
        }
        let mut time_name = self.time_name().to_owned();
        for (name, typed) in &bound.columns {
            match typed.expression.column().and_then(|place| keys.get(place)) {
                Some(PlanKey::Bin) => time_name.clone_from(name),
                Some(PlanKey::Tag(_)) => {}
                None => shape.add(name, &typed.expression)?,
            }
        }
        let having = bound.having.as_ref().map(|having| shape.translated(&having.expression)).transpose()?;
        if bound.source.has_as_of() {
            // No other query uses the view, and a window is there whose rows find none.
            shape.add_count();
        } else {
            if having.is_none() {
                shape.add_partials();
            }
            shape.add_presence();
        }
        let labels = bound.source.labels(&bound.grouped, &keys, &bound.columns)?;
        bound.source.check_ends(calls, &labels)?;
        let rows = bound.source.plan(bound.condition.as_ref(), &labels, &aggregates)?;
        let by = Some(labels.into_iter().flatten().map(|label| label.name).collect());
        let grouping =
            Grouping { width_ns: Some(width_ns), offset_ns, aggregates: shape.aggregates, by, undated: false };
        let mut plan = Plan::GroupBy { input: Box::new(rows), grouping };
        if let Some((condition, _)) = having {
            plan = Plan::Where { input: Box::new(plan), condition };
        }
        let fields = shape.columns.iter().map(|(name, _, value_type)| (name.clone(), *value_type)).collect();
        let columns = shape.columns.into_iter().map(|(name, of, _)| (name, of)).collect();
        Ok(ViewDefinition {
            name: said.name.clone(),
            database: self.environment.database.clone(),
            target: said.name.clone(),
            time_name,
            plan: Plan::Map { input: Box::new(plan), columns },
            windows,
            fields,
            options: said.options.clone(),
            maker: String::new(),
            statement: said.text.clone(),
            dialect: said.dialect,
            output: ViewOutput::default(),
            task: None,
        })
    }
}

/// Refuses what would make windows of others, or of other rows with time.
fn check_extension(extension: &Extension) -> Result<(), SqlError> {
    if extension.latest_by.is_some() {
        return invalid("LATEST ON is of rows, not of groups");
    }
    let Some(sample) = &extension.sample else { return Ok(()) };
    if !sample.fill.is_empty()
        || sample.from.is_some()
        || sample.to.is_some()
        || sample.align == Align::FirstObservation
    {
        return invalid("the SAMPLE BY of a materialised view has no FILL, FROM, TO and ALIGN TO FIRST OBSERVATION");
    }
    Ok(())
}

fn window_width(bins: &CalendarBins) -> Result<WindowWidth, SqlError> {
    let Some(zone) = bins.zone_name() else {
        return invalid("the windows of a materialised view follow UTC or a zone by its name, such as Europe/Berlin");
    };
    Ok(WindowWidth { width: bins.width(), origin_ns: bins.origin_ns(), zone })
}

/// Returns whether windows begin right after a whole second: then they hold what ranges of PromQL do, which reads the view if it is known that all times
/// are whole milliseconds.
fn is_open_at_its_beginning(bins: &CalendarBins) -> bool {
    const NS_PER_S: i64 = 1_000_000_000;
    bins.equal_bins().is_some_and(|(_, offset_ns)| (1..=OPEN_NS_MAX).contains(&offset_ns.rem_euclid(NS_PER_S)))
}

/// The columns of a view's plan as they come.
struct Shape<'a> {
    keys: &'a [PlanKey],
    /// The aggregates of the query, in order.
    calls: &'a [AggregateCall],
    schema: &'a TableSchema,
    columns: Vec<(String, Expression, ValueType)>,
    aggregates: Vec<AggregateCall>,
}

impl Shape<'_> {
    fn need(&mut self, call: &AggregateCall) {
        if !self.aggregates.contains(call) {
            self.aggregates.push(call.clone());
        }
    }

    /// Adds a column of the view.
    fn add(&mut self, name: &str, bound: &Bound) -> Result<(), SqlError> {
        if name.starts_with(FIELD_PREFIX) {
            return invalid(format!(
                "names that begin with {FIELD_PREFIX} are for what views keep besides: name {name:?} otherwise"
            ));
        }
        let (expression, value_type) = self.translated(bound)?;
        self.columns.push((name.to_owned(), expression, value_type));
        Ok(())
    }

    /// Adds how many rows there are.
    fn add_count(&mut self) {
        let call = AggregateCall { aggregate: Aggregate::Count, input: AggregateInput::Time };
        self.need(&call);
        let (expression, value_type) = self.of_call(&call);
        if !self.columns.iter().any(|(_, known, _)| *known == expression) {
            self.columns.push((format!("{FIELD_PREFIX}rows"), expression, value_type));
        }
    }

    /// Adds a count, which is never null, unless there is one: of a window whose columns are all null there would be no row.
    fn add_presence(&mut self) {
        if self.columns.iter().any(|(_, expression, _)| is_never_null(expression)) {
            return;
        }
        let of_column = self.aggregates.iter().find(|call| matches!(call.input, AggregateInput::Column(_)));
        match of_column.map(|call| AggregateCall { aggregate: Aggregate::Count, ..call.clone() }) {
            // Folds have it, too.
            Some(call) => {
                self.need(&call);
                self.add_hidden(&call);
            }
            None => self.add_count(),
        }
    }

    /// Adds the column of an aggregate under a name that is not shown, unless it is one already.
    fn add_hidden(&mut self, call: &AggregateCall) {
        let (expression, value_type) = self.of_call(call);
        if !self.columns.iter().any(|(_, known, _)| *known == expression) {
            let name = match &call.input {
                AggregateInput::Tag(tag) => format!("{FIELD_PREFIX}{}_#{tag}", call.aggregate.name()),
                _ => format!("{FIELD_PREFIX}{}", call.column_name().replace(' ', "_")),
            };
            self.columns.push((name, expression, value_type));
        }
    }

    /// Adds what wider windows are made of: what means and deviations are of, and aggregates that are no column as they are.
    fn add_partials(&mut self) {
        for call in self.aggregates.clone() {
            // Of what stands for several values there are counts, sums and squares already.
            if matches!(call.input, AggregateInput::Parts(_) | AggregateInput::Sketches(_)) {
                continue;
            }
            let parts: &[Aggregate] = match call.aggregate {
                Aggregate::Avg => &[Aggregate::Sum, Aggregate::Count],
                Aggregate::ApproxQuantile(_) => &[Aggregate::QuantileSketch],
                Aggregate::ApproxDistinct => &[Aggregate::DistinctSketch],
                of if of.is_of_squares() => &[Aggregate::Sum, Aggregate::Count, Aggregate::Squares],
                _ => &[],
            };
            parts.iter().for_each(|aggregate| self.need(&AggregateCall { aggregate: *aggregate, ..call.clone() }));
        }
        for call in self.aggregates.clone() {
            let is_of_parts = matches!(call.input, AggregateInput::Parts(_) | AggregateInput::Sketches(_));
            let is_part = call.aggregate.from_summaries() && call.aggregate != Aggregate::Avg
                || matches!(
                    call.aggregate,
                    Aggregate::Squares
                        | Aggregate::QuantileSketch
                        | Aggregate::DistinctSketch
                        | Aggregate::Histogram(_)
                        | Aggregate::OffMilliseconds
                );
            if is_of_parts || !is_part {
                continue;
            }
            self.add_hidden(&call);
        }
    }

    /// The column of an aggregate.
    fn of_call(&self, call: &AggregateCall) -> (Expression, ValueType) {
        let column = Expression::Column(call.column_name());
        let field_type = match &call.input {
            AggregateInput::Column(name) => {
                self.schema.fields.iter().find(|(known, _)| known == name).map_or(ValueType::F64, |(_, of)| *of)
            }
            AggregateInput::Each | AggregateInput::Time => ValueType::I64,
            AggregateInput::Parts(_) | AggregateInput::Sketches(_) => ValueType::F64,
            AggregateInput::Tag(_) => ValueType::String,
        };
        match call.aggregate {
            Aggregate::Count | Aggregate::ApproxDistinct | Aggregate::CountDistinct => {
                (Expression::Apply(Operator::Coalesce, vec![column, Expression::Integer(0)]), ValueType::I64)
            }
            Aggregate::OffMilliseconds => (column, ValueType::I64),
            Aggregate::Sum if matches!(field_type, ValueType::I64 | ValueType::U64) => (column, ValueType::I64),
            Aggregate::Min
            | Aggregate::Max
            | Aggregate::First
            | Aggregate::Last
            | Aggregate::NearestRank(_)
            | Aggregate::Mode => (column, field_type),
            Aggregate::Sum
            | Aggregate::Avg
            | Aggregate::Stddev
            | Aggregate::StddevSample
            | Aggregate::Variance
            | Aggregate::VarianceSample
            | Aggregate::Squares
            | Aggregate::ApproxQuantile(_)
            | Aggregate::Increase
            | Aggregate::Integral { .. }
            | Aggregate::Quantile(_) => (column, ValueType::F64),
            Aggregate::QuantileSketch | Aggregate::DistinctSketch | Aggregate::Histogram(_) | Aggregate::Histograms => {
                (column, ValueType::String)
            }
        }
    }

    /// An expression over groups as the plan has it, and the type of its values.
    fn translated(&self, bound: &Bound) -> Result<(Expression, ValueType), SqlError> {
        let column = |place: usize| {
            let call = place.checked_sub(self.keys.len()).and_then(|place| self.calls.get(place));
            match call {
                Some(AggregateCall { aggregate, input: AggregateInput::Time }) if *aggregate != Aggregate::Count => {
                    invalid("of the time a materialised view has count(*) alone")
                }
                Some(call) => {
                    let (expression, value_type) = self.of_call(call);
                    Ok(Computed::new(expression, value_type))
                }
                None => invalid("a materialised view computes nothing from what it is grouped by"),
            }
        };
        let translation =
            Translation { column: &column, is_time: &|_| false, is_of_rows: false, state: TranslationState::default() };
        let Computed { expression, value_type, .. } = translation.translated(bound)?;
        Ok((expression, value_type.unwrap_or(ValueType::F64)))
    }
}

/// Returns whether a column has a value in each row: a count, zero where there is nothing.
fn is_never_null(expression: &Expression) -> bool {
    matches!(expression, Expression::Apply(Operator::Coalesce, operands) if matches!(operands.as_slice(), [_, Expression::Integer(0)]))
}

/// Why what a query is grouped by is not what a view is grouped by.
fn why_no_group(grouped: &Grouped, scope: &Scope, has_as_of: bool) -> String {
    let mut others = Vec::new();
    for (index, key) in grouped.keys.iter().enumerate() {
        let column = key.typed.expression.column().and_then(|place| scope.columns.get(place));
        match column {
            Some(column) if column.role == Role::Tag => {}
            Some(column) if has_as_of => return format!("{:?} is no tag, and no text of a joined table", column.name),
            Some(column) if column.role == Role::Field => {
                let name = &column.name;
                return format!(
                    "{name:?} is a field; a column is a tag that CREATE TABLE declares as {name} TAG, or SYMBOL, or that lines of InfluxDB's protocol have as one"
                );
            }
            Some(column) => return format!("{:?} is each row's own time", column.name),
            None => others.push(index + 1),
        }
    }
    match others.as_slice() {
        [] => "it has no windows".to_owned(),
        [only] => format!(
            "what it has as number {only} are no windows that follow one another, each as long as an interval such as '1 hour' or '1 month'"
        ),
        [first, second, ..] => format!("it has two that are no tags, number {first} and number {second}"),
    }
}

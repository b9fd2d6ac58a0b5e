//! Aggregates as plans have them: of columns, of times and of tags, and of what is computed from rows, which is a column of its own.

use model::ValueType;
use query::TableSchema;
use query::plan::{Aggregate, AggregateCall, AggregateInput, Expression, Operator, PartColumns, Plan};

use super::computed::{Computed, Translation, TranslationState};
use super::from::sql_type;
use crate::error::{SqlError, invalid};
use crate::expression::{AggregateFunction, Bound, BoundAggregate, Grouped, is_time};
use crate::scope::{Role, Scope};

/// A column that is computed from rows.
struct NewColumn {
    name: String,
    expression: Expression,
    value_type: ValueType,
}

/// The aggregates of a query.
pub(super) struct PlanAggregates {
    /// They, in order.
    pub(super) calls: Vec<AggregateCall>,
    /// The computed columns that they read besides the table's.
    pub(super) computed: ComputedColumns,
}

/// Columns that are computed from rows, for aggregates to be of.
#[derive(Default)]
pub(super) struct ComputedColumns(Vec<NewColumn>);

impl PlanAggregates {
    /// The aggregates of groups of a table's rows.
    ///
    /// # Errors
    /// If plans lack one, or have it otherwise than SQL; the text says which, and why a materialised view cannot have it.
    pub(super) fn new(grouped: &Grouped, scope: &Scope, schema: &TableSchema) -> Result<Self, SqlError> {
        let mut made = Self { calls: Vec::with_capacity(grouped.calls.len()), computed: ComputedColumns::default() };
        for (place, call) in grouped.calls.iter().enumerate() {
            let found = match aggregate_of(call, scope) {
                Some(found) => found,
                None => made.of_computed(call, grouped.text_of(place), (scope, schema))?,
            };
            made.calls.push(found);
        }
        Ok(made)
    }

    /// An aggregate of something that is computed.
    fn of_computed(
        &mut self,
        call: &BoundAggregate,
        text: &str,
        (scope, schema): (&Scope, &TableSchema),
    ) -> Result<AggregateCall, SqlError> {
        let aggregate = plan_aggregate(call, text, scope)?;
        let computed = of_rows(text, (scope, schema), |translation| {
            let computed = match &call.argument {
                None => Computed::new(Expression::Integer(1), ValueType::I64),
                Some(argument) => translation.translated(argument)?,
            };
            match &call.filter {
                None => Ok(computed),
                Some(filter) => Ok(computed.only_if(translation.condition(filter)?)),
            }
        })?;
        let value_type = computed.value_type.unwrap_or(ValueType::F64);
        let is_sketch = call.function.is_of_sketches(sql_type(value_type));
        if call.function.is_of_numbers() && !is_sketch && !computed.is_number() {
            return invalid(format!(
                "{text}: a materialised view has it of numbers: write them without quotes, or as columns of numbers"
            ));
        }
        let name = self.computed.add(computed.expression, value_type, schema);
        let input = if is_sketch { AggregateInput::Sketches(name) } else { AggregateInput::Column(name) };
        Ok(AggregateCall { aggregate, input })
    }

    /// Returns whether they read a column of the table's rows.
    pub(super) fn reads(&self, column: &str) -> bool {
        let mut is_read = self.calls.iter().flat_map(AggregateCall::columns).any(|name| name == column);
        for new in &self.computed.0 {
            new.expression.each_column(&mut |name| is_read |= name == column);
        }
        is_read
    }
}

impl ComputedColumns {
    /// Returns whether there are none.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of the column that holds the values of an expression.
    fn add(&mut self, expression: Expression, value_type: ValueType, schema: &TableSchema) -> String {
        // As they are written: numbers are equal whose signs differ.
        let text = expression.to_string();
        if let Some(known) = self.0.iter().find(|known| known.expression.to_string() == text) {
            return known.name.clone();
        }
        let mut name = expression.column_name();
        // `#TS` are the rows' times.
        let is_taken = |name: &str| {
            name == "#TS"
                || schema.fields.iter().any(|(known, _)| known == name)
                || self.0.iter().any(|known| known.name == name)
        };
        while is_taken(&name) {
            name.push('_');
        }
        self.0.push(NewColumn { name: name.clone(), expression, value_type });
        name
    }

    /// Rows with these columns, and with those of the table that aggregates name.
    pub(super) fn rows(&self, rows: Plan, calls: &[AggregateCall]) -> Plan {
        if self.is_empty() {
            return rows;
        }
        let mut columns: Vec<(String, Expression)> =
            self.0.iter().map(|new| (new.name.clone(), new.expression.clone())).collect();
        for name in calls.iter().flat_map(AggregateCall::columns) {
            if !columns.iter().any(|(known, _)| known == name) {
                columns.push((name.to_owned(), Expression::Column(name.to_owned())));
            }
        }
        Plan::Map { input: Box::new(rows), columns }
    }

    /// Their names and types.
    pub(super) fn fields(&self) -> impl Iterator<Item = (String, ValueType)> {
        self.0.iter().map(|new| (new.name.clone(), new.value_type))
    }
}

/// Conditions on a table's rows as the plan has them: of each it holds for the rows for which SQL has it true.
///
/// # Errors
/// If plans cannot compute one of them, or compute it otherwise than SQL; the text says why.
pub(super) fn row_conditions(conditions: &[Bound], table: (&Scope, &TableSchema)) -> Result<Vec<Expression>, SqlError> {
    let condition = |bound: &Bound| Ok(of_rows("WHERE", table, |translation| translation.condition(bound))?.expression);
    conditions.iter().map(condition).collect()
}

/// Translates what is computed from a table's rows; errors say what it is in.
fn of_rows(
    text: &str,
    (scope, schema): (&Scope, &TableSchema),
    translate: impl FnOnce(&Translation<'_>) -> Result<Computed, SqlError>,
) -> Result<Computed, SqlError> {
    let column = |place: usize| row_column(place, scope, schema);
    let is_time = |place: usize| is_time(scope, place);
    let (column, is_time) = (&column, &is_time);
    let translation = Translation { column, is_time, is_of_rows: true, state: TranslationState::default() };
    translate(&translation).map_err(|error| match error {
        SqlError::Invalid(reason) => SqlError::Invalid(format!("{text}: {reason}")),
        other => other,
    })
}

/// A column of a table's rows.
fn row_column(place: usize, scope: &Scope, schema: &TableSchema) -> Result<Computed, SqlError> {
    let Some(column) = scope.columns.get(place) else { return invalid("it is of no column of the table") };
    match column.role {
        Role::Field => {
            let field = schema.fields.iter().find(|(known, _)| *known == column.name);
            let Some((name, value_type)) = field else {
                return invalid(format!("{:?} is no column of the table", column.name));
            };
            Ok(Computed::new(Expression::Column(name.clone()), *value_type))
        }
        // A tag that a series does not have is empty in a plan.
        Role::Tag => Ok(Computed::new(
            Expression::Apply(
                Operator::NullIf,
                vec![Expression::Label(column.name.clone()), Expression::Text(String::new())],
            ),
            ValueType::String,
        )),
        Role::Time => invalid("a materialised view computes nothing from the rows' time but comparisons with moments"),
        Role::Other => invalid(format!(
            "a materialised view computes nothing from {:?} of a joined table: of a table of labels WHERE compares tags and the time with constants, apart from other tables, and rows are grouped by what it says; of one that is joined as of a time all is read but its time",
            column.name
        )),
    }
}

/// The plan's aggregate of something that is computed.
fn plan_aggregate(call: &BoundAggregate, text: &str, scope: &Scope) -> Result<Aggregate, SqlError> {
    let is_time = |by: &Bound| by.column().is_some_and(|place| is_time(scope, place));
    if call.by.as_ref().is_some_and(|by| !is_time(by)) {
        return invalid(format!(
            "a materialised view does not have {text}: first and last are by the time of the table's rows, and string_agg is not there"
        ));
    }
    if call.parts.is_some() {
        return invalid(format!(
            "a materialised view does not have {text}: what rows stand for that stand for several values is in columns, and has no FILTER"
        ));
    }
    match (call.function, call.is_distinct) {
        (AggregateFunction::Count, true) => Ok(Aggregate::CountDistinct),
        (_, true) => {
            invalid(format!("a materialised view does not have {text}: it has DISTINCT in count(DISTINCT …) alone"))
        }
        (AggregateFunction::CounterIncrease, false) => invalid(format!(
            "a materialised view does not have {text}: counter_increase is of a column, and has no FILTER"
        )),
        (function, false) => function.in_plan().map_or_else(|| not_kept(function, text), Ok),
    }
}

/// Refuses an aggregate that plans lack.
fn not_kept<T>(function: AggregateFunction, text: &str) -> Result<T, SqlError> {
    let instead = match function {
        AggregateFunction::BoolAnd => "min of the same is false where one is false",
        AggregateFunction::BoolOr => "max of the same is true where one is true",
        AggregateFunction::Increase | AggregateFunction::Rate | AggregateFunction::Derivative => {
            "counter_increase has what a counter gained, also since the window before"
        }
        _ => {
            "it has count, sum, avg, min, max, first, last, deviations, variances, quantiles, histograms, sketches and counts of different values"
        }
    };
    invalid(format!("a materialised view does not have {text}: {instead}"))
}

/// An aggregate of a column, of a tag or of the rows' time as the plan has it; `None` if it is of something else, or plans lack it.
fn aggregate_of(call: &BoundAggregate, scope: &Scope) -> Option<AggregateCall> {
    let aggregate = match (call.function, call.is_distinct) {
        (AggregateFunction::Count, true) => Aggregate::CountDistinct,
        (function, false) => function.in_plan()?,
        _ => return None,
    };
    if call.filter.is_some() {
        return None;
    }
    let is_by_time = |by: &Bound| by.column().is_some_and(|place| is_time(scope, place));
    if call.by.as_ref().is_some_and(|by| !is_by_time(by)) {
        return None;
    }
    let Some(argument) = &call.argument else { return Some(AggregateCall { aggregate, input: AggregateInput::Time }) };
    let column = scope.columns.get(argument.column()?)?;
    if let Some(parts) = &call.parts {
        let field = |bound: &Bound| {
            let column = scope.columns.get(bound.column()?)?;
            (column.role == Role::Field).then(|| column.name.clone())
        };
        let parts = PartColumns { count: field(argument)?, sum: field(&parts.0)?, squares: field(&parts.1)? };
        return Some(AggregateCall { aggregate, input: AggregateInput::Parts(Box::new(parts)) });
    }
    match column.role {
        Role::Field if call.function.is_of_sketches(column.sql_type) => {
            Some(AggregateCall { aggregate, input: AggregateInput::Sketches(column.name.clone()) })
        }
        Role::Field => Some(AggregateCall::of_column(aggregate, column.name.as_str())),
        // A plan knows times as floats, which are the same for several times.
        Role::Tag if aggregate.is_of_tags() && !call.function.is_of_sketches(column.sql_type) => {
            Some(AggregateCall { aggregate, input: AggregateInput::Tag(column.name.clone()) })
        }
        Role::Time if !call.function.is_of_numbers() && !aggregate.is_of_sketch() && !aggregate.is_of_tags() => {
            Some(AggregateCall { aggregate, input: AggregateInput::Time })
        }
        _ => None,
    }
}

//! The rows of a bucket with filters: read by plans of the table engine, filtered and aggregated there as far as it can.

use std::sync::Arc;

use model::{MatchOp, TimeRange, ValueType};
use query::plan::{
    AggregateCall, Condition, Expression, Grouping, Lowered, MissingTag, Operator, Scan, Selector, TableColumns,
};
use query::{Frame, Plan, QueryError, Session, Value};

use super::group_key::GroupKey;
use super::plan_function::PlanFunction;
use super::table::{Column, FIELD, Key, KeyOrder, MEASUREMENT, START, STOP, TIME, Table, VALUE};
use crate::row::RowExpr;
use crate::syntax::ast::Binary;
use crate::syntax::{FluxError, Position};

/// `from(bucket: …) |> range(…) |> filter(…) |> group(…)`
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) at: Position,
    pub(crate) database: String,
    /// Start and stop; the latter is not part of it.
    pub(crate) range: Option<(i64, i64)>,
    /// All must hold.
    pub(crate) filters: Vec<RowExpr>,
    /// How tables are grouped that are left; `None`: each series is one.
    pub(crate) group_key: Option<GroupKey>,
}

/// An aggregate of each table that the plan makes, in bins or of all rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlanAggregate {
    pub(crate) function: PlanFunction,
    /// Width and offset of the bins.
    pub(crate) bins: Option<(i64, i64)>,
}

/// Fields of one table, and the plan of their rows.
#[derive(Debug)]
pub(crate) struct TableRead {
    pub(crate) table: String,
    pub(crate) fields: Vec<(String, ValueType)>,
    pub(crate) input: Plan,
}

/// Fields of a table that are read together, and what their filters leave to be tried.
#[derive(Clone)]
struct FieldScan {
    table: String,
    /// The tags of the table's series.
    tags: Arc<Vec<String>>,
    fields: Vec<(String, ValueType)>,
    condition: Option<RowExpr>,
}

/// What filters leave of the rows of a field.
enum FieldFilter {
    Nothing,
    All,
    /// Those for which this holds.
    Some(RowExpr),
}

/// How rows are read.
enum Read {
    Rows,
    Aggregates(PlanAggregate),
    /// One row of each series: its last, or its first.
    End {
        is_last: bool,
    },
}

/// A read of fields: where from, and in which form.
struct Request<'a> {
    database: &'a str,
    /// Start and stop; the latter is not part of it.
    range: (i64, i64),
    read: Read,
    /// How aggregates are grouped.
    group_key: Option<&'a GroupKey>,
}

impl Source {
    /// The tables: one for each series, or as they are grouped.
    pub(crate) fn read(&self, session: &dyn Session) -> Result<Vec<Table>, QueryError> {
        let tables = self.run(session, self.bounded_scans(session)?, Read::Rows)?.unwrap_or_default();
        match &self.group_key {
            Some(group_key) => group_key.regroup(session, tables),
            None => Ok(tables),
        }
    }

    /// The first or the last row of each series; `None` if the plan cannot find them.
    pub(crate) fn ends(&self, session: &dyn Session, is_last: bool) -> Result<Option<Vec<Table>>, QueryError> {
        if self.group_key.is_some() {
            return Ok(None);
        }
        self.run(session, self.bounded_scans(session)?, Read::End { is_last })
    }

    /// An aggregate of each table, a row for each bin that has values, whose time is where it begins; `None` if the plan cannot make them.
    pub(crate) fn aggregates(
        &self,
        session: &dyn Session,
        wanted: PlanAggregate,
    ) -> Result<Option<Vec<Table>>, QueryError> {
        let scans = self.bounded_scans(session)?;
        if !self.may_group(&scans, wanted.function) {
            return Ok(None);
        }
        let mut tables = self.run(session, scans, Read::Aggregates(wanted))?;
        if let (Some(tables), Some(_)) = (&mut tables, &self.group_key) {
            tables.sort_by_cached_key(|table| KeyOrder(table.key.clone()));
        }
        Ok(tables)
    }

    /// Returns whether plans give what a function gives of the grouped rows. Of a row that is chosen from several series the other columns are shown, too.
    fn may_group(&self, scans: &[FieldScan], function: PlanFunction) -> bool {
        let Some(group_key) = &self.group_key else { return true };
        let fields = scans.iter().flat_map(|scan| scan.fields.iter().map(|(field, _)| (&*scan.table, &**field)));
        group_key.keeps_fields_apart(fields)
            && (!function.is_selector() || scans.iter().all(|scan| group_key.has_series(&scan.tags)))
    }

    /// The range of time; an error if there is none.
    pub(crate) fn bounds(&self) -> Result<(i64, i64), FluxError> {
        self.range.ok_or_else(|| {
            FluxError::new(self.at, "cannot submit unbounded read: from() is followed by range(start: …, stop: …)")
        })
    }

    fn run(&self, session: &dyn Session, scans: Vec<FieldScan>, read: Read) -> Result<Option<Vec<Table>>, QueryError> {
        let request =
            Request { database: &self.database, range: self.bounds()?, read, group_key: self.group_key.as_ref() };
        let mut tables = Vec::new();
        for scan in scans {
            session.budget().check()?;
            match scan.run(session, &request)? {
                Some(read) => tables.extend(read),
                None => return Ok(let_go(session, &tables)),
            }
        }
        Ok(Some(tables))
    }

    /// The rows of any time, which are of one table, all of whose conditions the plan tries.
    pub(crate) fn of_one_table(&self, session: &dyn Session) -> Result<TableRead, QueryError> {
        let error = |message: String| Err(FluxError::new(self.at, message).into());
        // Of a name that no table has: a filter of other columns alone would let tables in that come later.
        let any_name = |column: &str| (column == MEASUREMENT).then(|| Value::text("\0"));
        let is_out = |filter: &RowExpr| matches!(filter.with_known(&any_name), RowExpr::Constant(value) if value != Value::Bool(true));
        if !self.filters.iter().any(is_out) {
            return error("filter by one measurement: r._measurement == \"…\"".to_owned());
        }
        let mut scans = self.field_scans(session)?;
        let (Some(scan), true) = (scans.pop(), scans.is_empty()) else {
            return error(match scans.first() {
                None => "its filters leave no field of a measurement that has rows by now".to_owned(),
                Some(_) => "its filters leave several measurements, or fields with conditions on their values: \
                            filter by one of them"
                    .to_owned(),
            });
        };
        let (input, rest) = scan.input(TimeRange::ALL);
        if !rest.is_empty() {
            return error(
                "its filters have a condition that is tried row by row: compare tags, or _value, with constants"
                    .to_owned(),
            );
        }
        Ok(TableRead { table: scan.table, fields: scan.fields, input })
    }

    /// The filters that a field of a table leaves to be tried.
    fn filters_of(&self, table: &str, field: &str) -> FieldFilter {
        let known = |name: &str| match name {
            MEASUREMENT => Some(Value::text(table)),
            FIELD => Some(Value::text(field)),
            _ => None,
        };
        let mut left: Option<RowExpr> = None;
        for filter in &self.filters {
            match filter.with_known(&known) {
                RowExpr::Constant(Value::Bool(true)) => {}
                RowExpr::Constant(_) => return FieldFilter::Nothing,
                rest => {
                    left = Some(match left {
                        None => rest,
                        Some(before) => RowExpr::Binary(self.at, Binary::And, Box::new([before, rest])),
                    });
                }
            }
        }
        left.map_or(FieldFilter::All, FieldFilter::Some)
    }

    /// The fields to read of its range.
    fn bounded_scans(&self, session: &dyn Session) -> Result<Vec<FieldScan>, QueryError> {
        self.bounds()?;
        self.field_scans(session)
    }

    /// The fields to read: those of a table without a filter of their own are read together.
    fn field_scans(&self, session: &dyn Session) -> Result<Vec<FieldScan>, QueryError> {
        if !session.databases().contains(&self.database) {
            let message = format!("could not find bucket {:?}", self.database);
            return Err(FluxError::new(self.at, message).into());
        }
        let mut scans: Vec<FieldScan> = Vec::new();
        for table in session.tables(&self.database)? {
            session.budget().check()?;
            // Most measurements are ruled out by their names.
            let name = Value::text(table.as_str());
            let of_table = |column: &str| (column == MEASUREMENT).then(|| name.clone());
            let is_out = |filter: &RowExpr| matches!(filter.with_known(&of_table), RowExpr::Constant(value) if value != Value::Bool(true));
            if self.filters.iter().any(is_out) {
                continue;
            }
            let Some(schema) = session.table(&self.database, &table)? else { continue };
            let tags = Arc::new(schema.tags);
            let mut together = FieldScan { table: table.clone(), tags, fields: Vec::new(), condition: None };
            for (field, value_type) in schema.fields {
                match self.filters_of(&table, &field) {
                    FieldFilter::Nothing => {}
                    FieldFilter::All => together.fields.push((field, value_type)),
                    FieldFilter::Some(condition) => scans.push(FieldScan {
                        fields: vec![(field, value_type)],
                        condition: Some(condition),
                        ..together.clone()
                    }),
                }
            }
            if !together.fields.is_empty() {
                scans.push(together);
            }
        }
        Ok(scans)
    }
}

impl FieldScan {
    fn run(&self, session: &dyn Session, request: &Request<'_>) -> Result<Option<Vec<Table>>, QueryError> {
        let (start_ns, stop_ns) = request.range;
        if start_ns >= stop_ns {
            return Ok(Some(Vec::new()));
        }
        let (input, rest) = self.input(TimeRange::new(start_ns, stop_ns.saturating_sub(1)));
        let plan = match &request.read {
            Read::Rows => input,
            _ if !rest.is_empty() => return Ok(None),
            Read::End { .. } if self.fields.len() > 1 => {
                return self.each_apart(session, request);
            }
            Read::End { is_last: true } => Plan::Last { input: Box::new(input), rows: 1 },
            Read::End { is_last: false } => Plan::Limit { input: Box::new(input), rows: 1, skip: 0 },
            Read::Aggregates(wanted) => match self.grouping(*wanted, request.group_key) {
                Some(grouping) => Plan::GroupBy { input: Box::new(input), grouping },
                None => return Ok(None),
            },
        };
        let frames = session.run(request.database, &plan)?.frames;
        query::note_folds(&frames, session.budget())?;
        let read_samples = frames.iter().map(|frame| frame.rows() * frame.columns.len().max(1)).sum();
        let mut tables = Vec::new();
        for frame in frames {
            for (field, value_type) in &self.fields {
                let table = self.table_of(&frame, (field, *value_type), request);
                tables.extend(table.map(|table| filtered(table, &rest)).transpose()?);
            }
        }
        tables.retain(|table| !table.rows.is_empty());
        // What was read is let go of.
        session.budget().give_back(read_samples);
        if matches!(request.read, Read::Aggregates(_)) && tables.iter().any(is_beyond_integers) {
            return Ok(None);
        }
        session.budget().take(tables.iter().map(Table::cells).sum())?;
        Ok(Some(tables))
    }

    /// The plan of the rows of a range, and the conditions that are to be tried row by row.
    fn input(&self, range: TimeRange) -> (Plan, Vec<RowExpr>) {
        let fields = self.fields.iter().map(|(name, _)| name.clone()).collect();
        let table = Some(TableColumns { name: self.table.clone(), fields, every_row: false });
        let mut scan = Scan { table, selectors: Vec::new(), tokens: Vec::new(), range };
        // Conditions on values are numbers' here.
        let is_number = |value_type: ValueType| matches!(value_type, ValueType::F64 | ValueType::I64 | ValueType::U64);
        let number =
            self.fields.first().filter(|(_, value_type)| is_number(*value_type)).map(|(name, _)| name.as_str());
        let conjuncts = self.condition.clone().map(RowExpr::conjuncts).unwrap_or_default();
        let lowered = Lowered::new(conjuncts, &mut scan, MissingTag::Null, |condition| translated(condition, number));
        (lowered.plan(scan), lowered.rest)
    }

    /// Reads each field by itself: their ends are rows of their own.
    fn each_apart(&self, session: &dyn Session, request: &Request<'_>) -> Result<Option<Vec<Table>>, QueryError> {
        let mut tables = Vec::new();
        for field in &self.fields {
            let one = Self { fields: vec![field.clone()], ..self.clone() };
            match one.run(session, request)? {
                Some(read) => tables.extend(read),
                None => return Ok(let_go(session, &tables)),
            }
        }
        Ok(Some(tables))
    }

    /// Returns whether the table's summaries may not do for a function.
    fn reads_samples(&self, function: PlanFunction) -> bool {
        self.condition.is_some() || !function.aggregates().iter().all(|aggregate| aggregate.from_summaries())
    }

    fn grouping(&self, wanted: PlanAggregate, group_key: Option<&GroupKey>) -> Option<Grouping> {
        let is_number = |value_type: &ValueType| matches!(value_type, ValueType::F64 | ValueType::I64 | ValueType::U64);
        let PlanAggregate { function, bins } = wanted;
        if !function.is_of_any_type() && !self.fields.iter().all(|(_, value_type)| is_number(value_type)) {
            return None;
        }
        let (width_ns, offset_ns) = bins.unzip();
        let aggregates = self.fields.iter().flat_map(|(field, _)| function.calls(field)).collect();
        let is_column = |tag: &str| is_tag(tag) && tag != model::METRIC_NAME;
        let by = match group_key {
            Some(key) => Some(self.tags.iter().filter(|tag| is_column(tag) && key.has(tag)).cloned().collect()),
            // Each series by itself, which is by all tags: of those that are named views answer where they spare samples.
            None if self.reads_samples(function) => Some(Vec::clone(&self.tags)),
            None => None,
        };
        let (offset_ns, undated) = (offset_ns.unwrap_or(0), width_ns.is_none());
        Some(Grouping { width_ns, offset_ns, aggregates, by, undated })
    }

    /// The rows of a field in a frame; `None` if it has none.
    fn table_of(&self, frame: &Frame, (field, value_type): (&str, ValueType), request: &Request<'_>) -> Option<Table> {
        let (names, function) = match request.read {
            Read::Aggregates(PlanAggregate { function, .. }) => {
                (function.calls(field).iter().map(AggregateCall::column_name).collect(), Some(function))
            }
            Read::Rows | Read::End { .. } => (vec![field.to_owned()], None),
        };
        let kind = function.map_or(kind_of(value_type), |function| function.kind(value_type));
        let columns: Vec<_> = names.iter().map(|name| frame.column(name)).collect::<Option<_>>()?;
        let row = |(row, time_ns): (usize, &i64)| {
            let cells: Vec<Value> = columns.iter().map(|column| Value::from(column.cell(row))).collect();
            let value = match function {
                Some(function) => function.value(&cells),
                None => cells.into_iter().next()?,
            };
            let value = match (value, kind) {
                (Value::Null, _) => return None,
                (Value::Unsigned(count), "long") => Value::Int(count as i64),
                (Value::Int(sum), "unsignedLong") => Value::Unsigned(sum as u64),
                (value, "double") => Value::Float(value.number()?),
                (value, _) => value,
            };
            Some(vec![Value::Timestamp(*time_ns), value])
        };
        let rows: Vec<Vec<Value>> = frame.timestamps_ns.iter().enumerate().filter_map(row).collect();
        let columns = vec![Column::new(TIME, "dateTime:RFC3339"), Column::new(VALUE, kind)];
        (!rows.is_empty()).then(|| Table { key: self.key_of(frame, field, request), columns, rows })
    }

    /// The key of a field's rows in a frame.
    fn key_of(&self, frame: &Frame, field: &str, request: &Request<'_>) -> Key {
        let mut key: Key = frame.labels.iter().map(|(name, value)| (name.into(), Value::text(value))).collect();
        key.remove(model::METRIC_NAME);
        let (start_ns, stop_ns) = request.range;
        let of_all_tables = [
            (MEASUREMENT, Value::text(self.table.as_str())),
            (FIELD, Value::text(field)),
            (START, Value::Timestamp(start_ns)),
            (STOP, Value::Timestamp(stop_ns)),
        ];
        let has = |name: &str| match (&request.read, request.group_key) {
            // Windows that are put together have the bounds of the range.
            (Read::Aggregates(wanted), Some(group_key)) => {
                group_key.has(name) || wanted.bins.is_some() && [START, STOP].contains(&name)
            }
            _ => true,
        };
        key.extend(of_all_tables.into_iter().filter(|(name, _)| has(name)).map(|(name, value)| (name.into(), value)));
        key
    }
}

/// Gives tables back that were read before it was known that another one cannot be.
fn let_go(session: &dyn Session, tables: &[Table]) -> Option<Vec<Table>> {
    session.budget().give_back(tables.iter().map(Table::cells).sum());
    None
}

/// The rows for which all conditions hold.
pub(crate) fn filtered(mut table: Table, conditions: &[RowExpr]) -> Result<Table, QueryError> {
    for condition in conditions {
        let mut kept = Vec::with_capacity(table.rows.len());
        for row in std::mem::take(&mut table.rows) {
            if condition.holds(&|name| table.value(&row, name))? {
                kept.push(row);
            }
        }
        table.rows = kept;
    }
    Ok(table)
}

/// Returns whether a table of whole numbers has a sum that is none: the plan's is a float where Flux's begins again at the least number.
fn is_beyond_integers(table: &Table) -> bool {
    let is_integer = |column: &Column| matches!(column.kind, "long" | "unsignedLong");
    let places: Vec<usize> =
        (0..table.columns.len()).filter(|at| table.columns.get(*at).is_some_and(is_integer)).collect();
    table.rows.iter().any(|row| places.iter().any(|at| matches!(row.get(*at), Some(Value::Float(_)))))
}

/// The type of values, as annotations name it.
pub(super) const fn kind_of(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::I64 => "long",
        ValueType::U64 => "unsignedLong",
        ValueType::Bool => "boolean",
        ValueType::String => "string",
        ValueType::F64 | ValueType::Histogram => "double",
    }
}

/// A condition as scans and plans have it, given the field whose values are compared, if it holds numbers.
fn translated(condition: &RowExpr, number: Option<&str>) -> Option<Condition> {
    match condition {
        RowExpr::Binary(_, Binary::And, operands) => {
            Some(Condition::All(operands.iter().map(|operand| translated(operand, number)).collect::<Option<_>>()?))
        }
        RowExpr::Binary(_, Binary::Or, operands) => {
            Some(Condition::Any(operands.iter().map(|operand| translated(operand, number)).collect::<Option<_>>()?))
        }
        RowExpr::Binary(_, operator, operands) => {
            let [a, b] = &**operands;
            match (a, b) {
                (RowExpr::Column(name), value) => compared((name, *operator), value, number),
                (value, RowExpr::Column(name)) => compared((name, mirrored(*operator)?), value, number),
                _ => None,
            }
        }
        RowExpr::In(operand, set) => match &**operand {
            RowExpr::Column(name) if is_tag(name) => {
                let text = |value: &Value| if let Value::Text(text) = value { Some(text.to_string()) } else { None };
                let values = set.iter().map(text).collect::<Option<Vec<_>>>()?;
                Some(Condition::Tag(Selector { name: name.to_string(), op: MatchOp::Equal, values }))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Names with an underscore are columns that are no tags.
fn is_tag(name: &str) -> bool {
    ![TIME, VALUE, START, STOP, FIELD, MEASUREMENT].contains(&name)
}

const fn mirrored(operator: Binary) -> Option<Binary> {
    Some(match operator {
        Binary::Equal | Binary::NotEqual => operator,
        Binary::Less => Binary::Greater,
        Binary::LessOrEqual => Binary::GreaterOrEqual,
        Binary::Greater => Binary::Less,
        Binary::GreaterOrEqual => Binary::LessOrEqual,
        _ => return None,
    })
}

fn compared((name, operator): (&str, Binary), value: &RowExpr, number: Option<&str>) -> Option<Condition> {
    let plan_operator = match operator {
        Binary::Equal => Operator::Equal,
        Binary::NotEqual => Operator::NotEqual,
        Binary::Less => Operator::Less,
        Binary::LessOrEqual => Operator::LessOrEqual,
        Binary::Greater => Operator::Greater,
        Binary::GreaterOrEqual => Operator::GreaterOrEqual,
        Binary::Matches | Binary::MatchesNot if is_tag(name) => {
            let RowExpr::Pattern(pattern) = value else { return None };
            // An empty value would be a missing tag.
            if pattern.is_match("") {
                return None;
            }
            let op = if operator == Binary::Matches { MatchOp::Regex } else { MatchOp::NotRegex };
            // A matcher is of whole values.
            let whole = format!("(?s:.*)(?:{})(?s:.*)", pattern.as_str());
            return Some(Condition::Tag(Selector { name: name.to_owned(), op, values: vec![whole] }));
        }
        _ => return None,
    };
    let RowExpr::Constant(value) = value else { return None };
    match (name, value) {
        (TIME, Value::Timestamp(ns)) => Some(Condition::Time(plan_operator, *ns)),
        (VALUE, value) => {
            let value = match value {
                Value::Int(value) => Expression::Integer(*value),
                Value::Float(value) if !value.is_nan() => Expression::Float(*value),
                _ => return None,
            };
            let operands = vec![Expression::Column(number?.to_owned()), value];
            Some(Condition::Fields(Expression::Apply(plan_operator, operands)))
        }
        (name, Value::Text(text)) if is_tag(name) => {
            let op = match operator {
                Binary::Equal => MatchOp::Equal,
                Binary::NotEqual => MatchOp::NotEqual,
                _ => return None,
            };
            Some(Condition::Tag(Selector { name: name.to_owned(), op, values: vec![text.to_string()] }))
        }
        _ => None,
    }
}

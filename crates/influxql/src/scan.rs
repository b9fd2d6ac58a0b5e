//! Where rows come from: tables and subqueries, read and filtered, in groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Labels, TimeRange};
use query::plan::{Lowered, Scan, TableColumns};
use query::{Frame, FrameColumn, Plan, QueryError, Session, Value};

use crate::lower;
use crate::names::Schema;
use crate::resolve::{Argument, Call, Code, From, Reference, Resolved, condition_code};
use crate::select;
use crate::syntax::ast::{Cast, Expr};
use crate::time::TIME_MIN_NS;
use crate::value::{DataType, InfluxValue};

/// Rows of one series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Input {
    /// The measurement.
    pub(crate) name: Arc<str>,
    pub(crate) tags: Labels,
    /// Ascending, but for those of a subquery that says otherwise.
    pub(crate) times: Vec<i64>,
    pub(crate) columns: Vec<FrameColumn>,
    /// True if rows count that have no field.
    pub(crate) every_row: bool,
    /// True if rows are put in order of time with those of others.
    pub(crate) in_time_order: bool,
}

/// Series that are one in the answer.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: Arc<str>,
    /// Values of the tags by which rows are grouped.
    pub(crate) tags: Vec<String>,
    pub(crate) inputs: Vec<Input>,
}

/// How an input matches a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReferenceMatch<'a> {
    Column(usize),
    Tag(&'a str),
    Nothing,
}

/// The source of a reference's values in an input.
#[derive(Debug, Clone)]
pub(crate) enum ValueSource {
    Column(usize, Option<DataType>),
    Tag(Value),
    Nothing,
}

impl Input {
    /// Where a reference's values are. A tag that is missing is null, in conditions the empty text.
    pub(crate) fn place(&self, reference: &Reference, in_condition: bool) -> ValueSource {
        match self.find(reference, 0) {
            ReferenceMatch::Column(column) => Self::column(column, reference),
            ReferenceMatch::Tag(value) => ValueSource::Tag(Value::from(value)),
            ReferenceMatch::Nothing => {
                let is_tag =
                    in_condition && reference.data_type == DataType::Tag && reference.cast != Some(Cast::Field);
                if is_tag { ValueSource::Tag(Value::from("")) } else { ValueSource::Nothing }
            }
        }
    }

    const fn column(column: usize, reference: &Reference) -> ValueSource {
        ValueSource::Column(column, if reference.changes_type() { Some(reference.data_type) } else { None })
    }

    /// Where the values of those references are that are fields.
    pub(crate) fn fields(&self, references: &[Reference]) -> Vec<ValueSource> {
        let field = |(found, reference)| match found {
            ReferenceMatch::Column(column) => Some(Self::column(column, reference)),
            ReferenceMatch::Tag(_) | ReferenceMatch::Nothing => None,
        };
        self.find_all(references).into_iter().zip(references).filter_map(field).collect()
    }

    /// Returns whether a field is known to have a value in every row.
    pub(crate) fn has_all(&self, place: &ValueSource) -> bool {
        let ValueSource::Column(column, None) = place else { return false };
        self.columns.get(*column).is_some_and(|column| column.cells.validity.is_none())
    }

    /// Where references are found, if they are not in a condition.
    fn find_all(&self, references: &[Reference]) -> Vec<ReferenceMatch<'_>> {
        let mut expected = 0;
        let find = |reference| {
            let found = self.find(reference, expected);
            if let ReferenceMatch::Column(column) = found {
                expected = column + 1;
            }
            found
        };
        references.iter().map(find).collect()
    }

    /// Where a reference is found. The column that is expected is tried first: mostly they stand in the order in which they are asked for.
    fn find(&self, reference: &Reference, expected: usize) -> ReferenceMatch<'_> {
        let is_it = |column: &FrameColumn| *column.name == *reference.name;
        if reference.cast != Some(Cast::Tag) {
            let column = if self.columns.get(expected).is_some_and(is_it) { Some(expected) } else { None };
            if let Some(column) = column.or_else(|| self.columns.iter().position(is_it)) {
                return ReferenceMatch::Column(column);
            }
        }
        let tag = if reference.cast == Some(Cast::Field) { None } else { self.tags.get(&reference.name) };
        tag.map_or(ReferenceMatch::Nothing, ReferenceMatch::Tag)
    }

    /// The value of a row.
    pub(crate) fn value(&self, place: &ValueSource, row: usize) -> Value {
        match place {
            ValueSource::Column(column, cast) => {
                let value = self.columns.get(*column).map_or(Value::Null, |column| Value::from(column.cell(row)));
                cast.map_or(value.clone(), |cast| value.cast(cast))
            }
            ValueSource::Tag(value) => value.clone(),
            ValueSource::Nothing => Value::Null,
        }
    }

    /// Its rows without the measurement.
    pub(crate) fn into_frame(self) -> Frame {
        Frame { labels: self.tags, timestamps_ns: self.times, columns: self.columns }
    }

    pub(crate) fn samples(&self) -> usize {
        self.times.len() * self.columns.len().max(1)
    }
}

/// The groups that a selection reads, sorted by name and tags.
pub(crate) fn groups(session: &dyn Session, of: &Resolved) -> Result<Vec<Group>, QueryError> {
    let mut groups: BTreeMap<(Arc<str>, Vec<String>), Vec<Input>> = BTreeMap::new();
    for source in &of.sources {
        for input in inputs(session, of, source)? {
            let tags = of.grouped_by.iter().map(|tag| input.tags.get(tag).unwrap_or_default().to_owned()).collect();
            groups.entry((input.name.clone(), tags)).or_default().push(input);
        }
    }
    Ok(groups.into_iter().map(|((name, tags), inputs)| Group { name, tags, inputs }).collect())
}

fn inputs(session: &dyn Session, of: &Resolved, source: &From) -> Result<Vec<Input>, QueryError> {
    match source {
        From::Table { database, name, schema } => {
            let Some((plan, rest)) = table_plan(of, name, schema) else {
                return Ok(Vec::new());
            };
            let frames = session.run(database, &plan)?.frames;
            let mut inputs: Vec<Input> = frames.into_iter().map(|frame| of_frame(name.clone(), frame)).collect();
            filter(session, &mut inputs, rest.as_ref(), schema)?;
            Ok(inputs)
        }
        From::Subquery(inner) => {
            let mut schema = Schema::default();
            inner.columns.iter().for_each(|column| schema.add_field(&column.name, column.data_type));
            schema.tags.extend(inner.grouped_by.iter().cloned());
            let mut inputs = Vec::new();
            for rows in select::rows(session, inner)? {
                let input = select::input(inner, &rows);
                session.budget().take(input.samples())?;
                inputs.push(input);
            }
            filter(session, &mut inputs, of.condition.as_ref(), &schema)?;
            Ok(inputs)
        }
    }
}

fn of_frame(name: Arc<str>, frame: Frame) -> Input {
    let mut input = Input {
        name,
        tags: frame.labels,
        times: frame.timestamps_ns,
        columns: frame.columns,
        every_row: false,
        in_time_order: true,
    };
    if !input.times.is_sorted() {
        let mut rows: Vec<usize> = (0..input.times.len()).collect();
        rows.sort_by_key(|row| input.times.get(*row));
        input.keep(&rows);
    }
    input
}

/// The plan that reads a table, and the condition that is left; `None` if no field of it is wanted.
pub(crate) fn table_plan(of: &Resolved, name: &str, schema: &Schema) -> Option<(Plan, Option<Expr>)> {
    let mut fields: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if schema.fields.contains_key(name) && !fields.iter().any(|known| known == name) {
            fields.push(name.to_owned());
        }
    };
    of.references
        .iter()
        .filter(|reference| reference.cast != Some(Cast::Tag))
        .for_each(|reference| add(&reference.name));
    of.calls.iter().for_each(|call| each_field(call, &mut add));
    if fields.is_empty() {
        return None;
    }
    let is_all = fields.len() == schema.fields.len();
    let table = TableColumns { name: name.to_owned(), fields: Vec::new(), every_row: false };
    let mut scan = Scan { table: Some(table), selectors: Vec::new(), tokens: Vec::new(), range: widened(of) };
    let lowered = lower::lower(of.condition.as_ref(), schema, &mut scan);
    each_condition_field(&lowered, &mut |name| {
        if schema.fields.contains_key(name) && !fields.iter().any(|known| known == name) {
            fields.push(name.to_owned());
        }
    });
    scan.table.iter_mut().for_each(|table| table.fields = std::mem::take(&mut fields));
    if lowered.is_in_scan() {
        return Some((newest(of, Plan::Scan(scan), is_all), None));
    }
    Some((lowered.plan(scan), lower::joined(lowered.rest)))
}

/// Visits the names of fields in conditions that are not part of the scan; those of tags may be among them.
pub(crate) fn each_condition_field(lowered: &Lowered<Expr>, add: &mut impl FnMut(&str)) {
    for condition in &lowered.conditions {
        condition.each_column(&mut |name| add(name));
    }
    for rest in &lowered.rest {
        rest.walk(&mut |expr| {
            if let Expr::Reference { name, .. } = expr {
                add(name);
            }
        });
    }
}

/// The newest rows of each series, where no others are wanted. Every row has one of the fields, as all are read.
fn newest(of: &Resolved, scan: Plan, is_all: bool) -> Plan {
    if !(is_all && of.descending && of.limits.rows > 0 && of.calls.is_empty()) {
        return scan;
    }
    Plan::Last { input: Box::new(scan), rows: of.most() }
}

fn each_field(call: &Call, add: &mut impl FnMut(&str)) {
    match &call.argument {
        Argument::Reference(reference) => add(&reference.name),
        Argument::Call(inner) => each_field(inner, add),
    }
    for parameter in &call.parameters {
        if let Expr::Reference { name, .. } = parameter {
            add(name);
        }
    }
}

/// The range with the windows that transformations need before it (after it, if times fall).
pub(crate) fn widened(of: &Resolved) -> TimeRange {
    let extra_ns = of.windows.as_ref().map_or(0, |windows| windows.width_ns.saturating_mul(of.extra_windows));
    let mut range = of.range;
    if of.descending {
        range.end_ns = range.end_ns.saturating_add(extra_ns);
    } else if range.start_ns > TIME_MIN_NS {
        range.start_ns = range.start_ns.saturating_sub(extra_ns);
    }
    range
}

/// Leaves the rows that satisfy a condition.
fn filter(
    session: &dyn Session,
    inputs: &mut Vec<Input>,
    condition: Option<&Expr>,
    schema: &Schema,
) -> Result<(), QueryError> {
    let Some(condition) = condition else { return Ok(()) };
    let mut references = Vec::new();
    let code = condition_code(condition, &mut references, schema).map_err(QueryError::Invalid)?;
    for input in inputs.iter_mut() {
        session.budget().check()?;
        let before = input.samples();
        input.filter(&code, &references);
        session.budget().give_back(before - input.samples());
    }
    inputs.retain(|input| !input.times.is_empty());
    Ok(())
}

impl Input {
    fn filter(&mut self, code: &Code, references: &[Reference]) {
        let places: Vec<ValueSource> = references.iter().map(|reference| self.place(reference, true)).collect();
        let holds = |row: &usize| {
            let value = |place: usize| places.get(place).map_or(Value::Null, |place| self.value(place, *row));
            code.value(&|_| Value::Null, &value, true).is_true()
        };
        let rows: Vec<usize> = (0..self.times.len()).filter(holds).collect();
        if rows.len() < self.times.len() {
            self.keep(&rows);
        }
    }

    /// Only these rows, in this order.
    fn keep(&mut self, rows: &[usize]) {
        let frame = Frame {
            labels: self.tags.clone(),
            timestamps_ns: std::mem::take(&mut self.times),
            columns: std::mem::take(&mut self.columns),
        };
        let frame = frame.pick(rows);
        (self.times, self.columns) = (frame.timestamps_ns, frame.columns);
    }
}

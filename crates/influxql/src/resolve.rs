//! A selection with all names resolved: what is read, which calls are made, how columns follow from them.

use std::sync::Arc;

use jiff::tz::TimeZone;
use model::TimeRange;
use query::time::CalendarBins;
use query::{QueryError, Session, Value};
use regex::Regex;

use crate::condition;
use crate::names::{self, Schema};
use crate::syntax::ast::{Cast, Dimension, Expr, Field, Fill, Limits, Measurement, Named, Operator, Select, Source};
use crate::syntax::expr_text;
use crate::time::{self, TIME_MAX_NS, TIME_MIN_NS};
use crate::validate;
use crate::value::{DataType, InfluxValue, Math};

/// A resolved selection.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) sources: Vec<From>,
    pub(crate) columns: Vec<Column>,
    pub(crate) calls: Vec<Call>,
    /// The fields and tags that columns take from rows as they are.
    pub(crate) references: Vec<Reference>,
    /// The condition on rows, time aside.
    pub(crate) condition: Option<Expr>,
    pub(crate) range: TimeRange,
    /// Windows before the range that transformations need.
    pub(crate) extra_windows: i64,
    pub(crate) windows: Option<CalendarBins>,
    /// The tags by which rows are grouped, sorted; those of the outer selections among them.
    pub(crate) grouped_by: Vec<String>,
    pub(crate) fill: Fill,
    pub(crate) descending: bool,
    pub(crate) limits: Limits,
    pub(crate) zone: Option<TimeZone>,
    /// The name of the column of times.
    pub(crate) time_name: String,
}

/// Where rows come from.
#[derive(Debug)]
pub(crate) enum From {
    Table { database: String, name: Arc<str>, schema: Schema },
    Subquery(Box<Resolved>),
}

/// A column of the answer.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) code: Code,
    pub(crate) data_type: DataType,
}

/// A field or tag that is taken as it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reference {
    pub(crate) name: String,
    pub(crate) cast: Option<Cast>,
    pub(crate) data_type: DataType,
}

/// A call of an aggregate, selector or transformation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) function: String,
    pub(crate) argument: Argument,
    /// The arguments after the first.
    pub(crate) parameters: Vec<Expr>,
    pub(crate) data_type: DataType,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Argument {
    Reference(Reference),
    Call(Box<Call>),
}

/// An expression over the results of calls and references.
#[derive(Debug, Clone)]
pub(crate) enum Code {
    Value(Value),
    Call(usize),
    Reference(usize),
    Binary(Operator, Box<Code>, Box<Code>),
    Math(Math, Vec<Code>),
    /// True if a text must match a pattern, false if it must not.
    Matches(Box<Code>, Regex, bool),
    All(Vec<Code>),
    Any(Vec<Code>),
}

/// The context of a selection: what it inherits from the one around it.
#[derive(Debug, Clone)]
pub(crate) struct Outer<'a> {
    pub(crate) database: &'a str,
    pub(crate) range: TimeRange,
    pub(crate) windows: Option<CalendarBins>,
    pub(crate) grouped_by: Vec<String>,
    pub(crate) descending: Option<bool>,
}

impl Reference {
    /// Returns whether values are shown as another type than the field has.
    pub(crate) const fn changes_type(&self) -> bool {
        matches!(self.cast, Some(Cast::Float | Cast::Integer | Cast::Unsigned))
    }
}

impl<'a> Outer<'a> {
    /// Around a statement.
    pub(crate) fn statement(database: &'a str) -> Self {
        let range = TimeRange::new(TIME_MIN_NS, TIME_MAX_NS);
        Self { database, range, windows: None, grouped_by: Vec::new(), descending: None }
    }
}

/// Resolves a selection.
pub(crate) fn resolve(session: &dyn Session, select: &Select, outer: &Outer<'_>) -> Result<Resolved, QueryError> {
    let invalid = QueryError::Invalid;
    let zone = select.zone.as_deref().map(time::zone).transpose().map_err(invalid)?;
    let now_ns = session.now_ns();
    let split = condition::split(select.condition.as_ref(), now_ns, zone.as_ref()).map_err(invalid)?;
    let own_windows = windows(&select.dimensions, zone.as_ref(), now_ns).map_err(invalid)?;
    let has_own_windows = own_windows.is_some();
    let mut range = split.range();
    if has_own_windows && split.end_ns.is_none() {
        range.end_ns = now_ns;
    }
    let range = TimeRange::new(range.start_ns.max(outer.range.start_ns), range.end_ns.min(outer.range.end_ns));
    let windows = own_windows.or_else(|| outer.windows.clone());
    let descending = select.descending.unwrap_or(outer.descending.unwrap_or(false));
    if outer.descending.is_some_and(|outer| outer != descending) {
        let message = "subqueries must be ordered in the same direction as the query itself";
        return Err(QueryError::Invalid(message.to_owned()));
    }
    let (time_name, fields) = without_time(&select.fields);
    let found = validate::check(select, &fields, windows.is_some(), has_own_windows).map_err(invalid)?;
    let mut grouped_by = outer.grouped_by.clone();
    grouped_by.extend(select.dimensions.iter().filter_map(|dimension| match dimension {
        Dimension::Tag(name) => Some(name.clone()),
        _ => None,
    }));
    let within =
        Outer { database: outer.database, range, windows: windows.clone(), grouped_by, descending: Some(descending) };
    let (sources, schema) = sources(session, &select.sources, &within)?;
    let mut grouped_by = names::dimensions(&select.dimensions, &schema).map_err(invalid)?;
    grouped_by.extend(outer.grouped_by.iter().cloned());
    grouped_by.sort();
    grouped_by.dedup();
    let fields = names::expand(&fields, &schema, &select.dimensions).map_err(invalid)?;
    let mut compiler = Compiler { schema: &schema, calls: Vec::new(), references: Vec::new() };
    let writes = select.into.is_some();
    let columns = compiler.columns(&fields, &time_name, writes).map_err(invalid)?;
    let (calls, references) = (compiler.calls, compiler.references);
    let fill = select.fill.unwrap_or(Fill::Null);
    // Nulls are passed over outside: there is no need to make them.
    let fill = if outer.descending.is_some() && found.has_calls() && fill == Fill::Null { Fill::None } else { fill };
    Ok(Resolved {
        sources,
        columns,
        calls,
        references,
        condition: split.rest,
        range,
        extra_windows: if windows.is_some() { found.extra_windows } else { 0 },
        windows,
        grouped_by,
        fill,
        descending,
        limits: select.limits,
        zone,
        time_name,
    })
}

/// Takes `time` out of the fields: it is always there. Its alias, if it has one, names the column.
fn without_time(fields: &[Field]) -> (String, Vec<Field>) {
    let mut name = "time".to_owned();
    let mut kept = Vec::with_capacity(fields.len());
    for field in fields {
        match &field.expr {
            Expr::Reference { name: of, .. } if of == "time" => {
                if let Some(alias) = &field.alias {
                    name.clone_from(alias);
                }
            }
            _ => kept.push(field.clone()),
        }
    }
    (name, kept)
}

fn windows(dimensions: &[Dimension], zone: Option<&TimeZone>, now_ns: i64) -> Result<Option<CalendarBins>, String> {
    let mut found = None;
    for dimension in dimensions {
        let Dimension::Time { width_ns, offset } = dimension else { continue };
        if found.is_some() {
            return Err("multiple time dimensions not allowed".to_owned());
        }
        let offset_ns = match offset {
            None => 0,
            Some(Expr::Duration(offset_ns)) => *offset_ns,
            Some(Expr::Call { name, arguments }) if name == "now" && arguments.is_empty() => now_ns,
            Some(Expr::Text(text)) => {
                time::parse(text, zone).ok_or("time dimension offset must be duration or now()")?
            }
            Some(_) => return Err("time dimension offset must be duration or now()".to_owned()),
        };
        found =
            Some(CalendarBins { width_ns: *width_ns, offset_ns: offset_ns.rem_euclid(*width_ns), zone: zone.cloned() });
    }
    Ok(found)
}

fn sources(session: &dyn Session, sources: &[Source], within: &Outer<'_>) -> Result<(Vec<From>, Schema), QueryError> {
    let mut found = Vec::new();
    let mut schema = Schema::default();
    for source in sources {
        match source {
            Source::Subquery(select) => {
                let resolved = resolve(session, select, within)?;
                for column in &resolved.columns {
                    schema.add_field(&column.name, column.data_type);
                }
                let inner =
                    names::dimensions(&select.dimensions, &tags_below(&resolved)).map_err(QueryError::Invalid)?;
                schema.tags.extend(inner);
                found.push(From::Subquery(Box::new(resolved)));
            }
            Source::Measurement(measurement) => {
                let database = measurement.database.as_deref().unwrap_or(within.database);
                for name in tables(session, database, measurement)? {
                    let Some(table) = session.table(database, &name)? else { continue };
                    let of_table = table_schema(&table);
                    of_table.fields.iter().for_each(|(name, data_type)| schema.add_field(name, *data_type));
                    schema.tags.extend(of_table.tags.iter().cloned());
                    found.push(From::Table { database: database.to_owned(), name: name.into(), schema: of_table });
                }
            }
        }
    }
    Ok((found, schema))
}

/// The tags of what a resolved selection reads.
fn tags_below(resolved: &Resolved) -> Schema {
    let mut schema = Schema::default();
    for source in &resolved.sources {
        match source {
            From::Table { schema: of_table, .. } => schema.tags.extend(of_table.tags.iter().cloned()),
            From::Subquery(inner) => schema.tags.extend(inner.grouped_by.iter().cloned()),
        }
    }
    schema
}

/// Names of the tables that a measurement stands for.
pub(crate) fn tables(
    session: &dyn Session,
    database: &str,
    measurement: &Measurement,
) -> Result<Vec<String>, QueryError> {
    match &measurement.name {
        Named::Exactly(name) => Ok(vec![name.clone()]),
        Named::Pattern(pattern) => {
            let pattern = names::compile(pattern).map_err(QueryError::Invalid)?;
            Ok(session.tables(database)?.into_iter().filter(|name| pattern.is_match(name)).collect())
        }
    }
}

/// A table's schema.
pub(crate) fn table_schema(table: &query::TableSchema) -> Schema {
    let mut schema = Schema { tags: table.tags.iter().cloned().collect(), ..Schema::default() };
    for (name, value_type) in &table.fields {
        let data_type = match value_type {
            model::ValueType::F64 => DataType::Float,
            model::ValueType::I64 => DataType::Integer,
            model::ValueType::U64 => DataType::Unsigned,
            model::ValueType::Bool => DataType::Boolean,
            model::ValueType::String => DataType::Text,
            model::ValueType::Histogram => continue,
        };
        schema.add_field(name, data_type);
    }
    schema
}

struct Compiler<'a> {
    schema: &'a Schema,
    calls: Vec<Call>,
    references: Vec<Reference>,
}

impl Compiler<'_> {
    fn columns(&mut self, fields: &[Field], time: &str, writes: bool) -> Result<Vec<Column>, String> {
        let fields = with_top_tags(fields, writes);
        let names = names::column_names(&fields, time);
        let mut columns = Vec::with_capacity(fields.len());
        for (field, name) in fields.iter().zip(names) {
            let (code, data_type) = self.code(&field.expr)?;
            columns.push(Column { name, code, data_type });
        }
        Ok(columns)
    }

    fn code(&mut self, expr: &Expr) -> Result<(Code, DataType), String> {
        Ok(match expr {
            Expr::Reference { name, cast } => {
                let reference = self.reference(name, *cast);
                let data_type = reference.data_type;
                let place = place(&mut self.references, reference);
                (Code::Reference(place), data_type)
            }
            Expr::Call { name, arguments } => match Math::named(name) {
                Some((math, _)) => {
                    let mut of = Vec::with_capacity(arguments.len());
                    let mut first_type = None;
                    for argument in arguments {
                        let (code, data_type) = self.code(argument)?;
                        if matches!(data_type, DataType::Text | DataType::Boolean | DataType::Tag) {
                            return Err(format!("invalid argument type for {name}: {}", data_type.name()));
                        }
                        first_type.get_or_insert(data_type);
                        of.push(code);
                    }
                    (Code::Math(math, of), names::type_of_call(name, first_type.unwrap_or(DataType::Unknown)))
                }
                None => {
                    let call = self.call(name, arguments)?;
                    let data_type = call.data_type;
                    (Code::Call(place(&mut self.calls, call)), data_type)
                }
            },
            Expr::Binary { operator, left, right } => {
                let ((left, left_type), (right, right_type)) = (self.code(left)?, self.code(right)?);
                let data_type = binary_type(*operator, left_type, right_type).ok_or_else(|| {
                    format!("incompatible operands: {expr}: {} and {}", left_type.name(), right_type.name())
                })?;
                (Code::Binary(*operator, Box::new(left), Box::new(right)), data_type)
            }
            Expr::Parentheses(inner) => self.code(inner)?,
            literal => literal_code(literal).ok_or_else(|| format!("{} cannot be selected", expr_text(literal)))?,
        })
    }

    fn reference(&self, name: &str, cast: Option<Cast>) -> Reference {
        Reference { name: name.to_owned(), cast, data_type: self.schema.type_of(name, cast) }
    }

    fn call(&self, function: &str, arguments: &[Expr]) -> Result<Call, String> {
        let parameters = arguments.iter().skip(1).cloned().collect();
        let argument = match arguments.first() {
            Some(Expr::Call { name, arguments }) => Argument::Call(Box::new(self.call(name, arguments)?)),
            Some(Expr::Reference { name, cast }) => Argument::Reference(self.reference(name, *cast)),
            _ => return Err(format!("expected field argument in {function}()")),
        };
        let data_type = match &argument {
            Argument::Reference(reference) => reference.data_type,
            Argument::Call(call) => call.data_type,
        };
        if data_type < DataType::Tag && !names::takes(function, data_type) {
            return Err(format!("unsupported {function} iterator type: {}", data_type.name()));
        }
        let data_type = names::type_of_call(function, data_type);
        Ok(Call { function: function.to_owned(), argument, parameters, data_type })
    }
}

/// The place of an item in a list, at its end if it is new.
fn place<T: PartialEq>(items: &mut Vec<T>, item: T) -> usize {
    let known = items.iter().position(|other| *other == item);
    known.unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}

/// The tags of `top(field, tag, …)` are columns after it, unless the answer is written: then they are tags of what is written.
fn with_top_tags(fields: &[Field], writes: bool) -> Vec<Field> {
    let mut all = Vec::with_capacity(fields.len());
    for field in fields {
        all.push(field.clone());
        match &field.expr {
            Expr::Call { name, arguments } if !writes && (name == "top" || name == "bottom") => {
                let tags = arguments.iter().skip(1).take(arguments.len().saturating_sub(2));
                all.extend(tags.map(|tag| Field { expr: tag.clone(), alias: None }));
            }
            _ => {}
        }
    }
    all
}

fn literal_code(expr: &Expr) -> Option<(Code, DataType)> {
    let (value, data_type) = match expr {
        Expr::Number(value) => (Value::Float(*value), DataType::Float),
        Expr::Integer(value) | Expr::Duration(value) => (Value::Int(*value), DataType::Integer),
        Expr::Unsigned(value) => (Value::Unsigned(*value), DataType::Unsigned),
        Expr::Boolean(value) => (Value::Bool(*value), DataType::Boolean),
        Expr::Text(text) => (Value::from(text.as_str()), DataType::Text),
        _ => return None,
    };
    Some((Code::Value(value), data_type))
}

/// The type of what an operator gives; `None` if it cannot take such operands.
fn binary_type(operator: Operator, left: DataType, right: DataType) -> Option<DataType> {
    use DataType::{Boolean, Float, Integer, Unknown, Unsigned};
    let bits = matches!(operator, Operator::BitAnd | Operator::BitOr | Operator::BitXor);
    match (left, right) {
        (Unknown, other) | (other, Unknown) => Some(other),
        (Boolean, Boolean) if bits => Some(Boolean),
        (Float, Float | Integer | Unsigned) | (Integer | Unsigned, Float) => (!bits).then_some(Float),
        (Integer, Integer) if operator == Operator::Divide => Some(Float),
        (Integer, Integer) => Some(Integer),
        (Unsigned, Unsigned | Integer) | (Integer, Unsigned) => Some(Unsigned),
        _ => None,
    }
}

/// A condition as code: references by their place in a list that grows.
pub(crate) fn condition_code(expr: &Expr, references: &mut Vec<Reference>, schema: &Schema) -> Result<Code, String> {
    let each = |operands: &[Expr], references: &mut Vec<Reference>| {
        operands.iter().map(|operand| condition_code(operand, references, schema)).collect::<Result<Vec<_>, _>>()
    };
    Ok(match expr {
        Expr::All(operands) => Code::All(each(operands, references)?),
        Expr::Any(operands) => Code::Any(each(operands, references)?),
        Expr::Parentheses(inner) => condition_code(inner, references, schema)?,
        Expr::Reference { name, cast } => {
            // What is neither field nor tag is a tag that no row has.
            let data_type = match schema.type_of(name, *cast) {
                DataType::Unknown => DataType::Tag,
                known => known,
            };
            Code::Reference(place(references, Reference { name: name.clone(), cast: *cast, data_type }))
        }
        Expr::Binary { operator, left, right } => {
            let left = condition_code(left, references, schema)?;
            if let Expr::Pattern(pattern) = &**right {
                let matches = *operator == Operator::Matches;
                return Ok(Code::Matches(Box::new(left), names::compile(pattern)?, matches));
            }
            Code::Binary(*operator, Box::new(left), Box::new(condition_code(right, references, schema)?))
        }
        Expr::Call { name, arguments } => match Math::named(name) {
            Some((math, takes)) if takes == arguments.len() => Code::Math(math, each(arguments, references)?),
            Some((_, takes)) => {
                return Err(format!(
                    "invalid number of arguments for {name}, expected {takes}, got {}",
                    arguments.len()
                ));
            }
            None => return Err(format!("invalid function call in condition: {expr}")),
        },
        literal => literal_code(literal).ok_or_else(|| format!("invalid condition: {literal}"))?.0,
    })
}

impl Code {
    /// Its value, given the values of calls and references.
    pub(crate) fn value(
        &self,
        calls: &dyn Fn(usize) -> Value,
        references: &dyn Fn(usize) -> Value,
        in_condition: bool,
    ) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Call(place) => calls(*place),
            Self::Reference(place) => references(*place),
            Self::Binary(operator, left, right) => {
                let left = left.value(calls, references, in_condition);
                let right = right.value(calls, references, in_condition);
                crate::value::apply(*operator, &left, &right, in_condition)
            }
            Self::Math(math, of) => {
                let of: Vec<Value> = of.iter().map(|of| of.value(calls, references, in_condition)).collect();
                math.apply(&of)
            }
            Self::Matches(of, pattern, wanted) => match of.value(calls, references, in_condition) {
                Value::Text(text) => Value::Bool(pattern.is_match(&text) == *wanted),
                _ => Value::Bool(false),
            },
            Self::All(operands) => {
                Value::Bool(operands.iter().all(|of| of.value(calls, references, in_condition).is_true()))
            }
            Self::Any(operands) => {
                Value::Bool(operands.iter().any(|of| of.value(calls, references, in_condition).is_true()))
            }
        }
    }
}

impl Resolved {
    /// Values of a call that are wanted, the first ones.
    pub(crate) fn most(&self) -> usize {
        self.limits.of_rows().needed().unwrap_or(usize::MAX)
    }

    /// Returns whether its one call chooses rows, so that their times and other columns are known.
    pub(crate) fn selects_rows(&self) -> bool {
        matches!(self.calls.as_slice(), [call] if validate::SELECTORS.contains(&call.function.as_str()))
    }
}

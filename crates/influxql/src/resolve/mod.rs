//! Names of a selection become tables, fields and tags: a statement's `SELECT` becomes a [`Resolved`] one.

pub(crate) mod code;
pub(crate) mod condition;
pub(crate) mod groups;
pub(crate) mod lower;
pub(crate) mod names;
pub(crate) mod selection;
pub(crate) mod validate;

use jiff::tz::TimeZone;
use model::TimeRange;
use query::time::CalendarBins;
use query::{Interval, QueryError, Session};

use crate::resolve::code::Compiler;
use crate::resolve::names::Schema;
use crate::resolve::selection::{From, Resolved};
use crate::syntax::ast::{Dimension, Expr, Field, Fill, Measurement, Named, Select, Source};
use crate::time::{self, TIME_MAX_NS, TIME_MIN_NS};

/// The context of a selection: what it inherits from the one around it.
#[derive(Debug, Clone)]
pub(crate) struct Outer<'a> {
    pub(crate) database: &'a str,
    pub(crate) range: TimeRange,
    pub(crate) windows: Option<CalendarBins>,
    pub(crate) grouped_by: Vec<String>,
    pub(crate) descending: Option<bool>,
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
    let mut compiler = Compiler::new(&schema);
    let writes = select.into.is_some();
    let columns = compiler.columns(&fields, &time_name, writes).map_err(invalid)?;
    let (calls, references) = (compiler.calls, compiler.references);
    let fill = select.fill.unwrap_or(Fill::Null);
    // Nulls are passed over outside, and not written: there is no need to make them.
    let passes_nulls_over = writes || outer.descending.is_some();
    let fill = if passes_nulls_over && found.has_calls() && fill == Fill::Null { Fill::None } else { fill };
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
    let mut others = Vec::with_capacity(fields.len());
    for field in fields {
        match &field.expr {
            Expr::Reference { name: field_name, .. } if field_name == "time" => {
                if let Some(alias) = &field.alias {
                    name.clone_from(alias);
                }
            }
            _ => others.push(field.clone()),
        }
    }
    (name, others)
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
        let width = Interval::of_ns(*width_ns);
        found = Some(CalendarBins::new(width, offset_ns, zone.cloned().unwrap_or(TimeZone::UTC)));
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
                    let of_table = Schema::from_table(&table);
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

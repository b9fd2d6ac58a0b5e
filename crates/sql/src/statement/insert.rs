//! `INSERT INTO table (time, tag, field, …) VALUES …`

use query::{SqlType, TableSchema, Value, time};
use sqlparser::ast::{self, Expr, ObjectName, Query, SelectItem, SetExpr, TableObject};

use super::Answer;
use super::change::second_time;
use super::row_program::OutputColumn;
use crate::catalog::{is_time_of, time_name_in};
use crate::error::{SqlError, invalid, unsupported};
use crate::expression::{ParameterType, Subqueries, cast, parameter_index};
use crate::pending::{Kind, WrittenRows};
use crate::run::Run;

/// The treatment of rows and values that the store does not have: rows without a field, NaN and infinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unwritable {
    /// An error.
    Refused,
    /// They are left out, and the client is told how many.
    LeftOut,
}

/// The table and the columns that rows are written to.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) table: String,
    /// `None` if the table does not exist yet.
    pub(super) schema: Option<TableSchema>,
    /// Names of the columns, the time among them.
    pub(super) columns: Vec<String>,
    pub(super) kinds: Vec<Kind>,
    /// True if the rows do not say their time: it is their last value.
    is_time_added: bool,
}

impl Target {
    fn new(table: &str, schema: Option<TableSchema>, columns: &[String], time_name: &str) -> Self {
        let time_name = schema.as_ref().map_or(time_name, |schema| time_name_in(schema, time_name));
        let has_layout = schema.as_ref().is_some_and(|schema| schema.layout.is_some());
        let name = |column: &String| {
            let is_time = has_layout && is_time_of(schema.as_ref(), column);
            if is_time { time_name.to_owned() } else { column.clone() }
        };
        let mut columns: Vec<String> = columns.iter().map(name).collect();
        let is_time_added = !columns.iter().any(|column| is_time_of(schema.as_ref(), column));
        if is_time_added {
            columns.push(time_name.to_owned());
        }
        let kinds = columns.iter().map(|column| kind(schema.as_ref(), column)).collect();
        Self { table: table.to_owned(), schema, columns, kinds, is_time_added }
    }

    /// Refuses a column that is written twice: one value of a row would be lost.
    fn check_columns(&self) -> Result<(), SqlError> {
        let kinds = self.columns.iter().zip(&self.kinds).enumerate();
        for (place, (column, kind)) in kinds {
            let mut before = self.columns.iter().zip(&self.kinds).take(place);
            let is_twice = |(other, other_kind): (&String, &Kind)| {
                other == column || *kind == Kind::Time && *other_kind == Kind::Time
            };
            if before.any(is_twice) {
                return invalid(format!("column \"{column}\" specified more than once"));
            }
        }
        Ok(())
    }

    /// The number of values that a row comes with.
    fn values(&self) -> usize {
        self.columns.len() - usize::from(self.is_time_added)
    }

    /// The index of a column.
    pub(super) fn index(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|name| name == column)
    }

    /// The index of the time.
    pub(super) fn time_index(&self) -> Option<usize> {
        self.kinds.iter().position(|kind| *kind == Kind::Time)
    }
}

fn kind(schema: Option<&TableSchema>, column: &str) -> Kind {
    if is_time_of(schema, column) {
        return Kind::Time;
    }
    match schema {
        Some(schema) if schema.tags.iter().any(|tag| tag == column) => Kind::Tag,
        Some(schema) => match schema.fields.iter().find(|(name, _)| name == column) {
            Some((_, value_type)) => Kind::Field(crate::select::sql_type(*value_type)),
            None => Kind::New,
        },
        None => Kind::New,
    }
}

impl Run<'_> {
    /// Writes the rows of an INSERT. In a table that exists columns are what they are; of new ones texts become tags.
    pub(crate) fn insert(&mut self, insert: &ast::Insert) -> Result<Answer, SqlError> {
        let TableObject::TableName(name) = &insert.table else { return unsupported("INSERT INTO a function") };
        if !insert.assignments.is_empty() {
            return unsupported("SET in INSERT");
        }
        let Some(source) = &insert.source else { return invalid("INSERT takes VALUES or a query") };
        self.check_schema(name)?;
        let table = name.0.last().and_then(|part| part.as_ident()).map(|part| part.value.clone()).unwrap_or_default();
        let mut target = self.insert_target(&table, &insert.columns, values_of(source))?;
        self.note_inserted(source, &target);
        let query = self.query(source)?;
        if values_of(source).is_none() && insert.columns.is_empty() {
            target = self.insert_target(&table, &insert.columns, Some(query.columns.len()))?;
        }
        let conflict = insert.on.as_ref().map(|on| self.conflict(on, &target)).transpose()?;
        let mut rows = query.rows;
        if self.describes {
            rows.clear();
        }
        let typed = self.typed_rows(&target, rows, Unwritable::Refused);
        let mut rows = typed.map_err(|error| self.refusal_of_view(&table).unwrap_or(error))?;
        if let Some(conflict) = conflict {
            rows = self.resolve(&conflict, &target, rows)?;
        }
        let done = Answer::Done(format!("INSERT 0 {}", rows.len()));
        let returned =
            insert.returning.as_ref().map(|items| self.returning(items, &target, rows.clone())).transpose()?;
        if !self.describes {
            self.write_rows(&target, rows)?;
        }
        Ok(returned.map_or(done, |returned| Answer::Returned(returned, "INSERT 0")))
    }

    /// The table of an INSERT and its columns, given those that are named, and how many values a row has, if that is known.
    fn insert_target(&self, table: &str, named: &[ObjectName], values: Option<usize>) -> Result<Target, SqlError> {
        let schema = self.table(table)?;
        let columns: Vec<String> = if named.is_empty() {
            let Some(schema) = &schema else {
                return invalid(format!(
                    "\"{table}\" does not exist yet: name the columns, INSERT INTO {table} (time, host, usage) …"
                ));
            };
            crate::catalog::columns_by_place(schema, self.time_name(), values)?
        } else {
            named.iter().filter_map(|name| Some(name.0.last()?.as_ident()?.value.clone())).collect()
        };
        Ok(Target::new(table, schema, &columns, self.time_name()))
    }

    /// Why rows of a table that is a view are not written, for those who may know of it: rather than what is wrong with the rows.
    fn refusal_of_view(&self, table: &str) -> Option<SqlError> {
        let view = self.session.view(&self.environment.database, table).ok()??;
        let message = format!("\"{table}\" is a materialised view: its rows are computed from those of its source");
        view.definition.is_exposed().then_some(SqlError::Invalid(message))
    }

    /// Notes the types of parameters that are values of columns.
    fn note_inserted(&mut self, source: &Query, target: &Target) {
        let rows: Vec<Vec<&Expr>> = match &*source.body {
            SetExpr::Values(values) => values.rows.iter().map(|row| row.content.iter().collect()).collect(),
            SetExpr::Select(select) => {
                let shown = select.projection.iter().map(|item| match item {
                    SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. } => {
                        Some(expression)
                    }
                    _ => None,
                });
                vec![shown.collect::<Option<Vec<&Expr>>>().unwrap_or_default()]
            }
            _ => return,
        };
        for row in rows {
            for (value, kind) in row.into_iter().zip(&target.kinds) {
                let sql_type = match kind {
                    Kind::Time => SqlType::Timestamp,
                    Kind::Tag => SqlType::Text,
                    Kind::Field(sql_type) => *sql_type,
                    Kind::New => continue,
                };
                if let Some(index) = parameter_index(value) {
                    self.note_parameter(index, ParameterType::one(sql_type));
                }
            }
        }
    }

    /// Writes rows of named columns; returns how many.
    pub(crate) fn insert_rows(
        &mut self,
        table: &str,
        columns: &[String],
        rows: Vec<Vec<Value>>,
        unwritable: Unwritable,
    ) -> Result<usize, SqlError> {
        let schema = self.table(table)?;
        let target = Target::new(table, schema, columns, self.time_name());
        let rows = self.typed_rows(&target, rows, unwritable)?;
        let count = rows.len();
        self.write_rows(&target, rows)?;
        Ok(count)
    }

    /// Writes rows that a program made; columns that the table does not have are written as what they were made of.
    pub(crate) fn insert_outputs(
        &mut self,
        table: &str,
        columns: &[OutputColumn],
        rows: Vec<Vec<Value>>,
    ) -> Result<usize, SqlError> {
        let schema = self.table(table)?;
        // The time is that of the table, whatever it is called where it comes from; another one is not added to it.
        let time_name = schema.as_ref().map_or(self.time_name(), |schema| time_name_in(schema, self.time_name()));
        let is_said = |column: &OutputColumn| column.kind != Kind::Time && is_time_of(schema.as_ref(), &column.name);
        let has_said = columns.iter().any(is_said);
        let is_kept = |column: &OutputColumn| column.kind != Kind::Time || !has_said;
        let rows: Vec<Vec<Value>> = rows
            .into_iter()
            .map(|row| {
                row.into_iter().zip(columns).filter(|(_, column)| is_kept(column)).map(|(value, _)| value).collect()
            })
            .collect();
        let columns: Vec<&OutputColumn> = columns.iter().filter(|column| is_kept(column)).collect();
        let name = |column: &&OutputColumn| {
            let is_time = column.kind == Kind::Time || is_said(column);
            if is_time { time_name } else { &column.name }.to_owned()
        };
        let names: Vec<String> = columns.iter().map(name).collect();
        let mut target = Target::new(table, schema, &names, self.time_name());
        for (kind, column) in target.kinds.iter_mut().zip(columns).filter(|(kind, _)| **kind == Kind::New) {
            *kind = column.kind;
        }
        let rows = self.typed_rows(&target, rows, Unwritable::LeftOut)?;
        let count = rows.len();
        self.write_rows(&target, rows)?;
        Ok(count)
    }

    /// Rows with values of their columns' types, each with its time.
    fn typed_rows(
        &self,
        target: &Target,
        rows: Vec<Vec<Value>>,
        unwritable: Unwritable,
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        target.check_columns()?;
        let (mut typed, mut cells_left_out, mut rows_left_out) = (Vec::with_capacity(rows.len()), 0, 0);
        for mut row in rows {
            if row.len() != target.values() {
                return invalid(format!("INSERT has {} columns but {} values", target.values(), row.len()));
            }
            if target.is_time_added {
                row.push(Value::Timestamp(self.environment.now_ns));
            }
            let mut has_field = false;
            for (index, cell) in row.iter_mut().enumerate() {
                let value = self.typed_cell(target, index, std::mem::replace(cell, Value::Null))?;
                *cell = match value {
                    Value::Float(number) if !number.is_finite() && unwritable == Unwritable::LeftOut => {
                        cells_left_out += 1;
                        Value::Null
                    }
                    Value::Float(number) if !number.is_finite() => {
                        return invalid("NaN and infinity cannot be written");
                    }
                    value => value,
                };
                has_field |= is_field(target.kinds.get(index), cell);
            }
            match unwritable {
                _ if has_field => typed.push(row),
                Unwritable::Refused => return invalid("a row without a value in any field cannot be written"),
                Unwritable::LeftOut => rows_left_out += 1,
            }
        }
        if cells_left_out > 0 {
            self.client.notices.push(format!("{cells_left_out} values that are NaN or infinite were left out"));
        }
        if rows_left_out > 0 {
            self.client.notices.push(format!("{rows_left_out} rows without a value in any field were left out"));
        }
        Ok(typed)
    }

    fn typed_cell(&self, target: &Target, index: usize, value: Value) -> Result<Value, SqlError> {
        match (target.kinds.get(index), value) {
            (Some(Kind::Time), Value::Null) => Ok(Value::Timestamp(self.environment.now_ns)),
            (_, Value::Null) => Ok(Value::Null),
            (Some(Kind::Time), value) => cast(value, SqlType::Timestamp, &self.environment),
            (Some(Kind::Tag), value) => cast(value, SqlType::Text, &self.environment),
            (Some(Kind::Field(sql_type)), value) => cast(value, *sql_type, &self.environment),
            (_, value) => {
                let is_second_time = match &value {
                    value if value.time_ns().is_some() => true,
                    // Rows that say their time in a column of another name.
                    Value::Text(text) => target.is_time_added && target.schema.is_none() && time::parse(text).is_some(),
                    _ => false,
                };
                let column = target.columns.get(index).map_or("", String::as_str);
                if is_second_time { second_time(column) } else { Ok(value) }
            }
        }
    }

    /// Writes typed rows.
    pub(super) fn write_rows(&self, target: &Target, rows: Vec<Vec<Value>>) -> Result<(), SqlError> {
        if rows.is_empty() {
            return Ok(());
        }
        let columns = target.columns.iter().cloned().zip(target.kinds.iter().copied()).collect();
        self.write(WrittenRows { table: target.table.clone(), columns, rows })
    }
}

/// The values of a row that is written, if that is known before the query is run.
fn values_of(source: &Query) -> Option<usize> {
    match &*source.body {
        SetExpr::Values(values) => values.rows.first().map(|row| row.content.len()),
        _ => None,
    }
}

/// Returns whether a value is one of a field.
fn is_field(kind: Option<&Kind>, value: &Value) -> bool {
    match kind {
        _ if value.is_null() => false,
        Some(Kind::Field(_)) => true,
        Some(Kind::New) => !matches!(value, Value::Text(_)),
        _ => false,
    }
}

//! `CREATE TABLE` and `SHOW CREATE TABLE`

use model::ValueType;
use query::{NewTable, TableLayout, TableSchema};
use sqlparser::ast::{
    ColumnDef, ColumnOption, CreateTable, CreateTableOptions, DataType, IndexColumn, TableConstraint,
};

use super::change::{Change, last, second_time};
use super::table_options::TableOptions;
use crate::catalog::{columns_of, is_time_of};
use crate::error::{SqlError, invalid, unsupported};
use crate::relation::Relation;
use crate::run::Run;

const HOUR_NS: i64 = 3_600_000_000_000;

/// A TTL in the largest unit that it is whole in, as QuestDB shows it.
pub(super) fn ttl_in_units(ttl_ns: i64) -> (i64, &'static str) {
    let hours = ttl_ns / HOUR_NS;
    let units = [("YEAR", 365 * 24), ("WEEK", 7 * 24), ("DAY", 24)];
    let whole = units.into_iter().find(|(_, unit)| hours > 0 && hours % unit == 0);
    whole.map_or((hours, "HOUR"), |(name, unit)| (hours / unit, name))
}

impl Run<'_> {
    /// The statement that makes a table such as this one.
    pub(super) fn create_statement(&mut self, table: &str) -> Result<Relation, SqlError> {
        let schema = self.schema(table, false)?;
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let columns = columns_of(&schema, self.time_name()).into_iter().map(|(name, _, kind)| match kind {
            // Names of the time that need no quotes have none in what other programs show.
            "time" if ["time", "timestamp"].contains(&&*name) => format!("{name} TIMESTAMPTZ"),
            "time" => format!("{} TIMESTAMPTZ", quoted(&name)),
            "tag" => format!("{} TAG", quoted(&name)),
            _ => format!("{} {}", quoted(&name), type_name(&schema, &name)),
        });
        let columns: Vec<String> = columns.collect();
        let ttl = match ttl_in_units(self.session.table_ttl_ns(&self.environment.database, &schema.name)) {
            (0, _) => String::new(),
            (count, unit) => format!(" TTL {count} {unit}"),
        };
        let statement = format!("CREATE TABLE {} ({}){ttl}", quoted(&schema.name), columns.join(", "));
        Ok(Relation::of_texts(&["ddl"], [vec![statement]]))
    }
}

/// The type of a field, as a CREATE TABLE has it.
fn type_name(schema: &TableSchema, field: &str) -> &'static str {
    match schema.fields.iter().find(|(name, _)| name == field).map(|(_, value_type)| *value_type) {
        Some(ValueType::I64) => "BIGINT",
        Some(ValueType::U64) => "BIGINT UNSIGNED",
        Some(ValueType::Bool) => "BOOLEAN",
        Some(ValueType::String) => "TEXT",
        Some(ValueType::F64 | ValueType::Histogram) | None => "DOUBLE PRECISION",
    }
}

/// The kind of a column of a CREATE TABLE.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Declared {
    Time,
    /// Tags come with the rows that have them.
    Tag,
    Field(ValueType),
}

/// The columns of a CREATE TABLE.
#[derive(Default)]
struct Columns {
    time: Option<String>,
    tags: Vec<String>,
    fields: Vec<(String, ValueType)>,
    /// The names of all, in order.
    names: Vec<String>,
    /// Tags and fields that are to have a value in every row.
    not_null: Vec<String>,
}

/// `CREATE TABLE name (time TIMESTAMP, host TAG, usage DOUBLE PRECISION, …)`
pub(super) fn create_table(create: &CreateTable) -> Result<Change, SqlError> {
    let table = last(&create.name);
    if create.query.is_some() || create.like.is_some() || create.inherits.is_some() || create.partition_of.is_some() {
        return unsupported("CREATE TABLE of a query or of another table; INSERT INTO … SELECT makes a table");
    }
    if create.temporary || create.external || create.or_replace {
        return unsupported("a table that is TEMPORARY, EXTERNAL or to be REPLACEd");
    }
    let options = match &create.table_options {
        CreateTableOptions::None => TableOptions::default(),
        CreateTableOptions::With(options) => TableOptions::read(options)?,
        other => return invalid(format!("a table has no setting but TTL, not {other}")),
    };
    let mut columns = Columns::default();
    for column in &create.columns {
        columns.add(column)?;
    }
    columns.check_time(options.time.as_deref())?;
    let mut notices = columns.segment(&options.segments)?;
    for constraint in &create.constraints {
        columns.constrain(constraint)?;
    }
    if columns.fields.is_empty() {
        return invalid(format!("table \"{table}\" needs a field: a column of numbers, booleans or text"));
    }
    notices.extend(columns.notices(&table));
    let layout = TableLayout { time_name: columns.time, columns: columns.names };
    let table = NewTable { name: table, tags: columns.tags, fields: columns.fields, layout: Some(layout) };
    let if_not_exists = create.if_not_exists;
    Ok(Change::CreateTable { table, ttl_ns: options.ttl_ns, if_not_exists, notices })
}

impl Columns {
    fn add(&mut self, column: &ColumnDef) -> Result<(), SqlError> {
        let name = &column.name.value;
        let declared = declared(column)?;
        if check_options(column)? && declared != Declared::Time {
            self.not_null.push(name.clone());
        }
        match declared {
            _ if self.kind(name).is_some() => {
                return invalid(format!("column \"{name}\" specified more than once"));
            }
            Declared::Time if self.time.is_some() => return second_time(name),
            Declared::Time => self.time = Some(name.clone()),
            Declared::Tag => self.tags.push(name.clone()),
            Declared::Field(value_type) => self.fields.push((name.clone(), value_type)),
        }
        self.names.push(name.clone());
        Ok(())
    }

    /// Refuses a column by which a table is to be cut and that is not its time, and others that are called as the time is.
    fn check_time(&self, named: Option<&str>) -> Result<(), SqlError> {
        let is_time = |name: &str| self.time.as_deref().is_some_and(|time| time.eq_ignore_ascii_case(name));
        if let Some(named) = named.filter(|named| !is_time(named) && !is_time_of(None, named)) {
            return invalid(format!("the table is to be cut by \"{named}\", which is no column of the type TIMESTAMP"));
        }
        let others = self.tags.iter().chain(self.fields.iter().map(|(name, _)| name));
        match others.into_iter().find(|name| is_time_of(None, name) || is_time(name)) {
            Some(other) => invalid(format!(
                "\"{other}\" means the time of a row: name the column otherwise, or make it the TIMESTAMP"
            )),
            None => Ok(()),
        }
    }

    /// The kind of a column; `None` if there is none of the name.
    fn kind(&self, name: &str) -> Option<Declared> {
        if self.time.as_deref() == Some(name) {
            return Some(Declared::Time);
        }
        if self.tags.iter().any(|tag| tag == name) {
            return Some(Declared::Tag);
        }
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value_type)| Declared::Field(*value_type))
    }

    /// Makes a field of texts a tag.
    fn make_tag(&mut self, name: &str) {
        if self.kind(name) == Some(Declared::Field(ValueType::String)) {
            self.fields.retain(|(known, _)| known != name);
            self.tags.push(name.to_owned());
        }
    }

    /// Makes tags of the texts by which a table is to be cut: they tell rows apart. Returns what the client is told of others.
    fn segment(&mut self, names: &[String]) -> Result<Vec<String>, SqlError> {
        let mut notices = Vec::new();
        for name in names {
            match self.kind(name) {
                None => return invalid(format!("segmentby names \"{name}\", which is no column of the table")),
                Some(Declared::Field(ValueType::String)) => self.make_tag(name),
                Some(Declared::Field(_)) => notices.push(format!(
                    "\"{name}\" of segmentby is a field, and of rows with the same time and tags the last one stays: declare it as {name} TAG if it \
                     tells rows apart"
                )),
                Some(Declared::Time | Declared::Tag) => {}
            }
        }
        Ok(notices)
    }

    /// Takes a key that is the one by which rows are known, the time and all tags; texts in it become tags. Promises that are not kept are
    /// not made.
    fn constrain(&mut self, constraint: &TableConstraint) -> Result<(), SqlError> {
        let names = |columns: &[IndexColumn]| -> Vec<String> {
            columns.iter().map(|column| column.column.expr.to_string().trim_matches('"').to_owned()).collect()
        };
        let key = match constraint {
            TableConstraint::PrimaryKey(key) => names(&key.columns),
            TableConstraint::Unique(key) => names(&key.columns),
            other => return unsupported(format!("the constraint {other}")),
        };
        key.iter().for_each(|name| self.make_tag(name));
        let wrong = |reason: String| {
            invalid(format!(
                "{constraint}: a row is known by its time and all its tags, {reason}, or leave the key out"
            ))
        };
        for name in &key {
            match self.kind(name) {
                None => return invalid(format!("{constraint} names \"{name}\", which is no column of the table")),
                Some(Declared::Field(_)) => {
                    return wrong(format!("and \"{name}\" is a field: declare it as {name} TAG"));
                }
                Some(Declared::Time | Declared::Tag) => {}
            }
        }
        let is_missing = |name: &&String| !key.contains(name);
        match self.time.iter().chain(&self.tags).find(is_missing) {
            Some(missing) => wrong(format!("and \"{missing}\" is missing: name it in the key, too")),
            None => Ok(()),
        }
    }

    /// What the client is told of a table that is made.
    fn notices(&self, table: &str) -> Vec<String> {
        let mut notices = Vec::new();
        if !self.not_null.is_empty() {
            notices.push(format!(
                "NOT NULL of \"{}\" is not enforced: rows are taken that have no value there",
                self.not_null.join("\", \"")
            ));
        }
        let text = self.fields.iter().find(|(_, value_type)| *value_type == ValueType::String);
        if let (Some((text, _)), true) = (text, self.tags.is_empty()) {
            notices.push(format!(
                "the table \"{table}\" has no tag, and of several rows with the same time the last one stays: declare columns that tell rows apart \
                 as TAG, such as {text} TAG"
            ));
        }
        notices
    }
}

/// Returns whether a column is to have a value in every row. Other promises that are not kept are not made: nothing is unique but a row's
/// time and tags.
fn check_options(column: &ColumnDef) -> Result<bool, SqlError> {
    let mut is_not_null = false;
    for option in &column.options {
        match &option.option {
            ColumnOption::Null | ColumnOption::Comment(_) => {}
            ColumnOption::NotNull => is_not_null = true,
            ColumnOption::PrimaryKey(_) if matches!(column.data_type, DataType::Timestamp(..)) => {}
            other => return unsupported(format!("{other} of column \"{}\"", column.name.value)),
        }
    }
    Ok(is_not_null)
}

fn declared(column: &ColumnDef) -> Result<Declared, SqlError> {
    let text = column.data_type.to_string().to_lowercase();
    let word = text.split(['(', ' ']).next().unwrap_or_default();
    Ok(match word {
        "timestamp" | "timestamptz" | "datetime" => Declared::Time,
        "tag" | "symbol" => Declared::Tag,
        _ if text.ends_with("unsigned") || matches!(word, "ubigint" | "uint64" | "uint32") => {
            Declared::Field(ValueType::U64)
        }
        "double" | "real" | "float" | "float4" | "float8" | "float32" | "float64" | "numeric" | "decimal" => {
            Declared::Field(ValueType::F64)
        }
        "bigint" | "int" | "integer" | "smallint" | "int2" | "int4" | "int8" | "int64" | "long" => {
            Declared::Field(ValueType::I64)
        }
        "bool" | "boolean" => Declared::Field(ValueType::Bool),
        "text" | "varchar" | "character" | "char" | "string" => Declared::Field(ValueType::String),
        _ => {
            return invalid(format!(
                "column \"{}\" has no type that is kept: there are TIMESTAMP, TAG, DOUBLE PRECISION, BIGINT, BIGINT UNSIGNED, BOOLEAN and TEXT, not {}",
                column.name.value, column.data_type
            ));
        }
    })
}

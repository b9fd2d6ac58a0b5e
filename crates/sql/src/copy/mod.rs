//! `COPY table TO STDOUT` and `COPY table FROM STDIN`: rows as CSV, as Postgres's own text, in its binary
//! form, or as a Parquet file.
//!
//! Files of the server's machine are not for clients to read and write: `\copy` of psql and the drivers' copy functions move rows over the
//! connection.

pub(crate) mod binary;
mod pages;
pub(crate) mod parquet;
pub(crate) mod text;

use query::Value;
use sqlparser::ast::{CopyLegacyOption, CopyOption, CopySource, CopyTarget, Ident, Query};

use crate::error::{SqlError, invalid};
use crate::relation::Relation;
use crate::run::Run;
use crate::statement::Unwritable;

pub use binary::{push_binary, read_binary};
pub use parquet::PARQUET_MEDIA_TYPE;
use text::TextFormat;

/// How rows are written.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CopyFormat {
    Text(TextFormat),
    Binary,
    Parquet,
}

/// Rows that a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOut {
    /// As they are to be sent: a text for each row with its line end, the names part of the first; or pieces of a Parquet file.
    pub messages: Vec<Vec<u8>>,
    /// How many columns they have.
    pub columns: usize,
    /// True if they are no text.
    pub is_binary: bool,
}

/// Rows that a client is going to send: [`crate::copy_in`] takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyIn {
    /// The table, which need not exist.
    pub table: String,
    /// Its columns, in the order in which they come; empty: those of the table, or what the header or the file says.
    pub columns: Vec<String>,
    format: CopyFormat,
}

impl CopyIn {
    /// Returns whether what comes is no text.
    pub fn is_binary(&self) -> bool {
        !matches!(self.format, CopyFormat::Text(_))
    }
}

/// The request of a COPY.
pub(crate) enum Copy {
    Out(CopyOut),
    In(CopyIn),
}

impl CopyFormat {
    fn from_options(options: &[CopyOption], legacy: &[CopyLegacyOption]) -> Result<Self, SqlError> {
        let named = options.iter().find_map(|option| match option {
            CopyOption::Format(name) => Some(name.value.to_lowercase()),
            _ => None,
        });
        let is_csv = match named.as_deref() {
            Some("csv") => true,
            Some("text") => false,
            Some("parquet") => return Self::of_file(Self::Parquet, "a Parquet file", options),
            Some("binary") => return Self::of_file(Self::Binary, "a binary file", options),
            None if legacy.iter().any(|option| matches!(option, CopyLegacyOption::Binary)) => {
                return Self::of_file(Self::Binary, "a binary file", options);
            }
            None => legacy.iter().any(|option| matches!(option, CopyLegacyOption::Csv(_))),
            Some(other) => return invalid(format!("COPY has the formats csv, text, binary and parquet, not {other}")),
        };
        Ok(Self::Text(TextFormat::from_options(is_csv, options, legacy)?))
    }

    /// A format without options.
    fn of_file(format: Self, name: &str, options: &[CopyOption]) -> Result<Self, SqlError> {
        match options.iter().find(|option| !matches!(option, CopyOption::Format(_))) {
            Some(option) => invalid(format!("{option} is for texts, {name} has no such thing")),
            None => Ok(format),
        }
    }
}

impl Run<'_> {
    /// The rows of a COPY … TO, or what a COPY … FROM is going to take.
    pub(crate) fn copy(
        &mut self,
        source: &CopySource,
        to: bool,
        target: &CopyTarget,
        options: (&[CopyOption], &[CopyLegacyOption]),
    ) -> Result<Copy, SqlError> {
        if !matches!((to, target), (true, CopyTarget::Stdout) | (false, CopyTarget::Stdin)) {
            return invalid(
                "COPY does not touch files of the server: use \\copy in psql, or COPY … TO STDOUT and COPY … FROM STDIN",
            );
        }
        let format = CopyFormat::from_options(options.0, options.1)?;
        match source {
            CopySource::Query(query) => Ok(Copy::Out(self.copy_out(query, &format)?)),
            CopySource::Table { table_name, columns } if to => {
                let shown = if columns.is_empty() { "*".to_owned() } else { quoted_list(columns) };
                let parsed = crate::syntax::parse::parse(&format!("SELECT {shown} FROM {table_name}"))?;
                match parsed.statements.first() {
                    Some(sqlparser::ast::Statement::Query(query)) => Ok(Copy::Out(self.copy_out(query, &format)?)),
                    _ => invalid(format!("{table_name} is no table")),
                }
            }
            CopySource::Table { table_name, columns } => {
                self.check_schema(table_name)?;
                let table = table_name.0.last().and_then(|part| part.as_ident());
                let table = table.map(|part| part.value.clone()).unwrap_or_default();
                let columns = columns.iter().map(|column| column.value.clone()).collect();
                Ok(Copy::In(CopyIn { table, columns, format }))
            }
        }
    }

    fn copy_out(&mut self, query: &Query, format: &CopyFormat) -> Result<CopyOut, SqlError> {
        let relation = self.query(query)?;
        let messages = match format {
            CopyFormat::Text(text) => text.messages(&relation, &self.environment),
            CopyFormat::Binary => binary::messages(&relation),
            CopyFormat::Parquet => parquet::messages(&relation)?,
        };
        let is_binary = !matches!(format, CopyFormat::Text(_));
        Ok(CopyOut { messages, columns: relation.columns.len(), is_binary })
    }

    /// Writes what a client sent; returns how many rows.
    pub(crate) fn copied(&mut self, copy: &CopyIn, sent: Vec<u8>) -> Result<usize, SqlError> {
        match &copy.format {
            CopyFormat::Text(format) => match std::str::from_utf8(&sent) {
                Ok(text) => self.copied_text(copy, format, text),
                Err(_) => invalid("COPY: the rows are not UTF-8"),
            },
            CopyFormat::Binary => self.copied_binary(copy, &sent),
            CopyFormat::Parquet => self.copied_file(copy, sent),
        }
    }

    /// Writes rows in binary form, which the table's columns say how to read.
    fn copied_binary(&mut self, copy: &CopyIn, sent: &[u8]) -> Result<usize, SqlError> {
        let schema = self.table(&copy.table)?;
        let known = schema.as_ref().map(|schema| crate::catalog::columns_of(schema, self.time_name()));
        let known = known.unwrap_or_default();
        let columns: Vec<String> = match (copy.columns.as_slice(), &schema) {
            ([], Some(schema)) => crate::catalog::columns_by_place(schema, self.time_name(), binary::columns(sent))?,
            (named, _) => named.to_vec(),
        };
        let mut types = Vec::with_capacity(columns.len());
        for column in &columns {
            let Some((_, sql_type, _)) = known.iter().find(|(name, ..)| name == column) else {
                return invalid(format!(
                    "COPY … (FORMAT binary) needs columns whose types are known, and \"{column}\" of \"{0}\" does not exist yet: CREATE TABLE {0} first, or send text",
                    copy.table
                ));
            };
            types.push(*sql_type);
        }
        let rows = binary::rows(sent, &types)?;
        self.charge(rows.len() * columns.len().max(1))?;
        self.insert_rows(&copy.table, &columns, rows, Unwritable::LeftOut)
    }

    /// Writes the rows of a Parquet file. A column's values are what the file says; those of new columns that are texts become tags.
    fn copied_file(&mut self, copy: &CopyIn, file: Vec<u8>) -> Result<usize, SqlError> {
        let Relation { columns, rows } = parquet::relation(file, self.session.budget())?;
        let names = match copy.columns.as_slice() {
            [] => columns.into_iter().map(|column| column.name).collect(),
            named if named.len() == columns.len() => named.to_vec(),
            named => {
                return invalid(format!("COPY names {} columns, the file has {}", named.len(), columns.len()));
            }
        };
        self.insert_rows(&copy.table, &names, rows, Unwritable::LeftOut)
    }

    /// Writes the rows of a text. Of columns that do not exist yet those become fields whose texts are all numbers, or all true
    /// or false, and the others tags.
    fn copied_text(&mut self, copy: &CopyIn, format: &TextFormat, text: &str) -> Result<usize, SqlError> {
        let mut rows = format.rows(text)?.into_iter();
        let header = if format.has_header { rows.next() } else { None };
        let schema = self.table(&copy.table)?;
        let columns: Vec<String> = match (copy.columns.as_slice(), header, &schema) {
            ([], Some(header), _) => header.into_iter().map(Option::unwrap_or_default).collect(),
            ([], None, Some(schema)) => {
                let values = rows.as_slice().first().map(Vec::len);
                crate::catalog::columns_by_place(schema, self.time_name(), values)?
            }
            ([], None, None) => {
                return invalid(format!(
                    "\"{0}\" does not exist yet: name the columns, COPY {0} (time, host, usage) FROM STDIN, or send a header",
                    copy.table
                ));
            }
            (named, ..) => named.to_vec(),
        };
        let mut values: Vec<Vec<Value>> = Vec::new();
        for (number, row) in rows.enumerate() {
            if row.len() != columns.len() {
                return invalid(format!("COPY: row {} has {} cells, not {}", number + 1, row.len(), columns.len()));
            }
            values.push(row.into_iter().map(|cell| cell.map_or(Value::Null, Value::text)).collect());
        }
        self.charge(values.len() * columns.len().max(1))?;
        let is_known = |name: &String| {
            crate::catalog::is_time_of(schema.as_ref(), name)
                || schema.as_ref().is_some_and(|schema| {
                    schema.tags.contains(name) || schema.fields.iter().any(|(field, _)| field == name)
                })
        };
        for (place, _) in columns.iter().enumerate().filter(|(_, name)| !is_known(name)) {
            type_column(&mut values, place);
        }
        self.insert_rows(&copy.table, &columns, values, Unwritable::LeftOut)
    }
}

/// Reads a text as a value of one type.
type Reading = fn(&str) -> Option<Value>;

/// Makes numbers or booleans of a column's texts if all of them are.
fn type_column(rows: &mut [Vec<Value>], place: usize) {
    let number = |text: &str| text.parse::<f64>().ok().map(Value::Float);
    let boolean = |text: &str| match text {
        "t" | "true" => Some(Value::Bool(true)),
        "f" | "false" => Some(Value::Bool(false)),
        _ => None,
    };
    for read in [number, boolean] as [Reading; 2] {
        let is_read = |row: &Vec<Value>| match row.get(place) {
            Some(Value::Text(text)) => read(text).is_some(),
            _ => true,
        };
        if !rows.iter().all(is_read) {
            continue;
        }
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(place)) {
            if let Value::Text(text) = &*cell
                && let Some(value) = read(text)
            {
                *cell = value;
            }
        }
        return;
    }
}

fn quoted_list(names: &[Ident]) -> String {
    let quoted = |name: &Ident| format!("\"{}\"", name.value.replace('"', "\"\""));
    names.iter().map(quoted).collect::<Vec<_>>().join(", ")
}

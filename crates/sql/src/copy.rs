//! `COPY table TO STDOUT` and `COPY table FROM STDIN`: rows as CSV or as Postgres's own text.
//!
//! Files of the server's machine are not for clients to read and write: `\copy` of psql and the drivers' copy functions move rows over the
//! connection.

use std::fmt::Write;

use sqlparser::ast::{CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, CopyTarget, Ident, Query};

use crate::error::{SqlError, invalid, unsupported};
use crate::insert::Insert;
use crate::relation::Relation;
use crate::run::Run;
use crate::value::Value;

/// How rows are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyFormat {
    is_csv: bool,
    has_header: bool,
    delimiter: char,
    quote: char,
    /// What stands for null: in CSV only if it is not quoted.
    null: String,
}

/// Rows that a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOut {
    /// A text for each row with its line end; the names are part of the first.
    pub lines: Vec<String>,
    /// How many columns they have.
    pub columns: usize,
}

/// Rows that a client is going to send: [`crate::copy_in`] takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyIn {
    /// The table, which need not exist.
    pub table: String,
    /// Its columns, in the order in which they come; empty: those of the table, or what the header says.
    pub columns: Vec<String>,
    format: CopyFormat,
}

/// What a COPY asks for.
pub(crate) enum Copy {
    Out(CopyOut),
    In(CopyIn),
}

type Cells = Vec<Option<String>>;

impl CopyFormat {
    fn new(is_csv: bool) -> Self {
        let (delimiter, null) = if is_csv { (',', "") } else { ('\t', "\\N") };
        Self { is_csv, has_header: false, delimiter, quote: '"', null: null.to_owned() }
    }

    fn of(options: &[CopyOption], legacy: &[CopyLegacyOption]) -> Result<Self, SqlError> {
        let named = options.iter().find_map(|option| match option {
            CopyOption::Format(name) => Some(name.value.to_lowercase()),
            _ => None,
        });
        let is_csv = match named.as_deref() {
            Some("csv") => true,
            Some("text") => false,
            None => legacy.iter().any(|option| matches!(option, CopyLegacyOption::Csv(_))),
            Some(other) => return invalid(format!("COPY has the formats csv and text, not {other}")),
        };
        let mut format = Self::new(is_csv);
        for option in options {
            match option {
                CopyOption::Format(_) | CopyOption::Freeze(_) | CopyOption::Encoding(_) => {}
                CopyOption::Delimiter(delimiter) => format.delimiter = *delimiter,
                CopyOption::Null(null) => format.null.clone_from(null),
                CopyOption::Header(has_header) => format.has_header = *has_header,
                CopyOption::Quote(quote) => format.quote = *quote,
                other => return unsupported(format!("{other} in COPY")),
            }
        }
        for option in legacy {
            match option {
                CopyLegacyOption::Csv(options) => {
                    format.has_header |= options.iter().any(|option| matches!(option, CopyLegacyCsvOption::Header));
                }
                CopyLegacyOption::Header => format.has_header = true,
                CopyLegacyOption::Delimiter(delimiter) => format.delimiter = *delimiter,
                CopyLegacyOption::Null(null) => format.null.clone_from(null),
                other => return unsupported(format!("{other} in COPY")),
            }
        }
        Ok(format)
    }

    /// A line with its end.
    fn line(&self, cells: impl Iterator<Item = Option<String>>) -> String {
        let mut line = String::new();
        for (place, cell) in cells.enumerate() {
            if place > 0 {
                line.push(self.delimiter);
            }
            match cell {
                None => line.push_str(&self.null),
                Some(text) if self.is_csv => self.push_quoted(&mut line, &text),
                Some(text) => self.push_escaped(&mut line, &text),
            }
        }
        line.push('\n');
        line
    }

    fn push_quoted(&self, line: &mut String, text: &str) {
        let needs_quotes = text == self.null || text.contains([self.delimiter, self.quote, '\n', '\r']);
        if !needs_quotes {
            return line.push_str(text);
        }
        let doubled = text.replace(self.quote, &format!("{0}{0}", self.quote));
        let _ = write!(line, "{0}{doubled}{0}", self.quote);
    }

    fn push_escaped(&self, line: &mut String, text: &str) {
        for character in text.chars() {
            match character {
                '\n' => line.push_str("\\n"),
                '\r' => line.push_str("\\r"),
                '\t' => line.push_str("\\t"),
                '\\' => line.push_str("\\\\"),
                other if other == self.delimiter => line.extend(['\\', other]),
                other => line.push(other),
            }
        }
    }

    /// The cells of all lines.
    fn rows(&self, text: &str) -> Result<Vec<Cells>, SqlError> {
        if self.is_csv {
            return self.quoted_rows(text);
        }
        let lines = text.lines().take_while(|line| *line != "\\.");
        Ok(lines.map(|line| self.escaped_cells(line)).collect())
    }

    fn escaped_cells(&self, line: &str) -> Cells {
        let mut cells = vec![String::new()];
        let mut raw = vec![String::new()];
        let mut characters = line.chars();
        let push =
            |cells: &mut Vec<String>, character| cells.last_mut().into_iter().for_each(|cell| cell.push(character));
        while let Some(character) = characters.next() {
            if character == self.delimiter {
                cells.push(String::new());
                raw.push(String::new());
                continue;
            }
            push(&mut raw, character);
            if character != '\\' {
                push(&mut cells, character);
                continue;
            }
            let Some(escaped) = characters.next() else { continue };
            push(&mut raw, escaped);
            let meant = match escaped {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            };
            push(&mut cells, meant);
        }
        // A null is told by how it is written.
        cells.into_iter().zip(raw).map(|(cell, raw)| (raw != self.null).then_some(cell)).collect()
    }

    fn quoted_rows(&self, text: &str) -> Result<Vec<Cells>, SqlError> {
        let mut rows: Vec<Cells> = Vec::new();
        let (mut row, mut cell): (Cells, String) = (Vec::new(), String::new());
        let (mut is_open, mut was_quoted) = (false, false);
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            if is_open {
                if character != self.quote {
                    cell.push(character);
                } else if characters.next_if_eq(&self.quote).is_some() {
                    cell.push(self.quote);
                } else {
                    is_open = false;
                }
            } else if character == self.quote {
                (is_open, was_quoted) = (true, true);
            } else if character == self.delimiter || character == '\n' {
                let finished = std::mem::take(&mut cell);
                row.push((was_quoted || finished != self.null).then_some(finished));
                was_quoted = false;
                if character == '\n' {
                    rows.push(std::mem::take(&mut row));
                }
            } else if character != '\r' || characters.peek() != Some(&'\n') {
                cell.push(character);
            }
        }
        if is_open {
            return invalid("COPY: a quote is opened and not closed");
        }
        if !cell.is_empty() || was_quoted || !row.is_empty() {
            row.push((was_quoted || cell != self.null).then_some(cell));
            rows.push(row);
        }
        rows.retain(|row| !matches!(row.as_slice(), [None]));
        Ok(rows)
    }
}

impl Run<'_> {
    /// The rows of a COPY … TO, or what a COPY … FROM is going to take.
    pub(crate) fn copy(
        &mut self,
        source: &CopySource,
        (to, target): (bool, &CopyTarget),
        options: (&[CopyOption], &[CopyLegacyOption]),
    ) -> Result<Copy, SqlError> {
        if !matches!((to, target), (true, CopyTarget::Stdout) | (false, CopyTarget::Stdin)) {
            return invalid(
                "COPY does not touch files of the server: use \\copy in psql, or COPY … TO STDOUT and COPY … FROM STDIN",
            );
        }
        let format = CopyFormat::of(options.0, options.1)?;
        match source {
            CopySource::Query(query) => Ok(Copy::Out(self.copy_out(query, &format)?)),
            CopySource::Table { table_name, columns } if to => {
                let shown = if columns.is_empty() { "*".to_owned() } else { quoted_list(columns) };
                let parsed = crate::parse(&format!("SELECT {shown} FROM {table_name}"))?;
                match parsed.statements.first() {
                    Some(sqlparser::ast::Statement::Query(query)) => Ok(Copy::Out(self.copy_out(query, &format)?)),
                    _ => invalid(format!("{table_name} is no table")),
                }
            }
            CopySource::Table { table_name, columns } => {
                let table = table_name.0.last().and_then(|part| part.as_ident());
                let table = table.map(|part| part.value.clone()).unwrap_or_default();
                let columns = columns.iter().map(|column| column.value.clone()).collect();
                Ok(Copy::In(CopyIn { table, columns, format }))
            }
        }
    }

    fn copy_out(&mut self, query: &Query, format: &CopyFormat) -> Result<CopyOut, SqlError> {
        let Relation { columns, rows } = self.query(query)?;
        let text = |value: &Value| (!value.is_null()).then(|| value.to_string());
        let mut lines: Vec<String> = rows.iter().map(|row| format.line(row.iter().map(text))).collect();
        if format.has_header {
            let names = format.line(columns.iter().map(|column| Some(column.name.clone())));
            match lines.first_mut() {
                Some(first) => first.insert_str(0, &names),
                None => lines.push(names),
            }
        }
        Ok(CopyOut { lines, columns: columns.len() })
    }

    /// The rows of a text as they are to be written. Of columns that do not exist yet those become fields whose texts are all numbers, or all true
    /// or false, and the others tags.
    pub(crate) fn copied(&mut self, copy: &CopyIn, text: &str) -> Result<Insert, SqlError> {
        let mut rows = copy.format.rows(text)?.into_iter();
        let header = if copy.format.has_header { rows.next() } else { None };
        let schema = self.context.table(&copy.table)?;
        let columns: Vec<String> = match (copy.columns.as_slice(), header, &schema) {
            ([], Some(header), _) => header.into_iter().map(Option::unwrap_or_default).collect(),
            ([], None, Some(schema)) => {
                crate::catalog::columns_of(schema, self.time_name()).into_iter().map(|(name, ..)| name).collect()
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
            ["time", "timestamp"].contains(&name.to_lowercase().as_str())
                || schema.as_ref().is_some_and(|schema| {
                    schema.tags.contains(name) || schema.fields.iter().any(|(field, _)| field == name)
                })
        };
        for (place, _) in columns.iter().enumerate().filter(|(_, name)| !is_known(name)) {
            type_column(&mut values, place);
        }
        self.insert_rows(&copy.table, &columns, values)
    }
}

/// What a text may stand for.
type Reading = fn(&str) -> Option<Value>;

/// Makes numbers or booleans of a column's texts if all of them are.
fn type_column(rows: &mut [Vec<Value>], place: usize) {
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::Float);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let csv = CopyFormat::new(true);
        let bars = CopyFormat { delimiter: '|', null: "NULL".to_owned(), ..CopyFormat::new(true) };
        let text = CopyFormat::new(false);
        let cells = |cells: &[Option<&str>]| cells.iter().map(|cell| cell.map(str::to_owned)).collect::<Cells>();
        let cases = [
            (&csv, "a,,\"\",\"x, \"\"y\"\"\nz\",\r\n", cells(&[Some("a"), None, Some(""), Some("x, \"y\"\nz"), None])),
            (&csv, "\"\",\"a,b\"\n", cells(&[Some(""), Some("a,b")])),
            (&bars, "NULL|\"NULL\"|\n", cells(&[None, Some("NULL"), Some("")])),
            (&text, "a\\tb\t\\N\t\\\\N\t\\n\n", cells(&[Some("a\tb"), None, Some("\\N"), Some("\n")])),
        ];
        for (format, written, expected) in cases {
            assert_eq!(format.rows(written).unwrap(), std::slice::from_ref(&expected), "{written:?}");
            let again = format.line(expected.iter().cloned());
            assert_eq!(format.rows(&again).unwrap(), [expected], "{again:?}");
        }
        assert!(csv.rows("a,\"b").is_err());
        assert_eq!(csv.rows("\n\na").unwrap(), [cells(&[Some("a")])]);
    }
}

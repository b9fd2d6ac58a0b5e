//! Answers as annotated CSV.

use std::sync::Arc;

use query::Value;

use crate::row::{text_of, type_name};
use crate::stream::table::{FIELD, MEASUREMENT, START, STOP, TIME, Table, VALUE};

/// The form that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    /// Whether rows are preceded by their names.
    pub header: bool,
    /// Between values.
    pub delimiter: char,
    /// The lines before the names.
    pub annotations: Vec<Annotation>,
}

/// A line that says something of each column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Annotation {
    /// Its type.
    Datatype,
    /// True if the column is part of the group key.
    Group,
    /// Its value where a row has none.
    Default,
}

impl Default for Dialect {
    fn default() -> Self {
        Self { header: true, delimiter: ',', annotations: Vec::new() }
    }
}

impl Annotation {
    /// An annotation by its name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "datatype" => Some(Self::Datatype),
            "group" => Some(Self::Group),
            "default" => Some(Self::Default),
            _ => None,
        }
    }
}

/// A column of the answer.
#[derive(Debug, PartialEq, Eq)]
struct OutputColumn {
    name: Arc<str>,
    kind: &'static str,
    is_key: bool,
}

/// Bytes that are written before they are charged.
const CHARGE_BYTES: usize = 64 << 10;

/// All results one after the other; tables of the same columns share a header. The text is charged as it grows.
pub(crate) fn text<E>(
    results: &[(String, Arc<Vec<Table>>)],
    dialect: &Dialect,
    charge: impl Fn(usize) -> Result<(), E>,
) -> Result<String, E> {
    let mut writer = Writer { out: String::new(), dialect };
    let mut charged = 0;
    for (name, tables) in results {
        let mut before: Option<Vec<OutputColumn>> = None;
        for (number, table) in tables.iter().enumerate() {
            let columns = columns_of(table);
            if before.as_ref() != Some(&columns) {
                writer.header(name, &columns);
            }
            for row in &table.rows {
                writer.row((name, number), table, (row, &columns));
                if writer.out.len() - charged >= CHARGE_BYTES {
                    charge(writer.out.len() - charged)?;
                    charged = writer.out.len();
                }
            }
            before = Some(columns);
        }
    }
    charge(writer.out.len() - charged)?;
    Ok(writer.out)
}

/// The columns of a table in their order: time and value, then those that name the series, then all others.
fn columns_of(table: &Table) -> Vec<OutputColumn> {
    let keys =
        table.key.iter().map(|(name, value)| OutputColumn { name: name.clone(), kind: type_name(value), is_key: true });
    let others =
        table.columns.iter().map(|column| OutputColumn { name: column.name.clone(), kind: column.kind, is_key: false });
    let mut columns: Vec<OutputColumn> = keys.chain(others).collect();
    let rank = |name: &str| [START, STOP, TIME, VALUE, FIELD, MEASUREMENT].iter().position(|known| *known == name);
    columns.sort_by_key(|column| rank(&column.name).unwrap_or(usize::MAX));
    columns
}

struct Writer<'a> {
    out: String,
    dialect: &'a Dialect,
}

impl Writer<'_> {
    fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        let delimiter = self.dialect.delimiter;
        for (place, cell) in cells.into_iter().enumerate() {
            if place > 0 {
                self.out.push(delimiter);
            }
            if cell.contains(['"', '\n', '\r', delimiter]) || cell.starts_with(' ') {
                self.out.push('"');
                self.out.push_str(&cell.replace('"', "\"\""));
                self.out.push('"');
            } else {
                self.out.push_str(&cell);
            }
        }
        self.out.push_str("\r\n");
    }

    fn header(&mut self, result: &str, columns: &[OutputColumn]) {
        if !self.out.is_empty() {
            self.out.push_str("\r\n");
        }
        let dialect = self.dialect;
        let line = |first: &str, second: &str, third: &str| [first, second, third].map(str::to_owned);
        for annotation in &dialect.annotations {
            match annotation {
                Annotation::Datatype => {
                    let kinds = columns.iter().map(|column| if column.kind == "null" { "double" } else { column.kind });
                    self.line(line("#datatype", "string", "long").into_iter().chain(kinds.map(str::to_owned)));
                }
                Annotation::Group => {
                    let groups = columns.iter().map(|column| column.is_key.to_string());
                    self.line(line("#group", "false", "false").into_iter().chain(groups));
                }
                Annotation::Default => {
                    let nothing = columns.iter().map(|_| String::new());
                    self.line(line("#default", result, "").into_iter().chain(nothing));
                }
            }
        }
        if dialect.header {
            let names = columns.iter().map(|column| column.name.to_string());
            self.line(line("", "result", "table").into_iter().chain(names));
        }
    }

    fn row(&mut self, (result, number): (&str, usize), table: &Table, (row, columns): (&[Value], &[OutputColumn])) {
        let cells = columns.iter().map(|column| {
            let value = if column.is_key {
                table.key.get(&column.name).cloned().unwrap_or(Value::Null)
            } else {
                table.value(row, &column.name)
            };
            text_of(&value)
        });
        // The annotation says the name of the result, where there is one.
        let has_default = self.dialect.annotations.contains(&Annotation::Default);
        let result = if has_default { String::new() } else { result.to_owned() };
        let start = [String::new(), result, number.to_string()];
        self.line(start.into_iter().chain(cells));
    }
}

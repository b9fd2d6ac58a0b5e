//! COPY's rows as text: CSV, and Postgres's own form.

use std::fmt::Write;

use query::Value;
use sqlparser::ast::{CopyLegacyCsvOption, CopyLegacyOption, CopyOption};

use crate::error::{SqlError, invalid, unsupported};
use crate::expression::{Environment, text_of};
use crate::relation::Relation;

/// How rows are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextFormat {
    is_csv: bool,
    pub(super) has_header: bool,
    delimiter: char,
    quote: char,
    /// The text of null: in CSV only if it is not quoted.
    null: String,
}

/// The texts of a row; nulls are none.
pub(super) type Cells = Vec<Option<String>>;

impl TextFormat {
    pub(crate) fn new(is_csv: bool) -> Self {
        let (delimiter, null) = if is_csv { (',', "") } else { ('\t', "\\N") };
        Self { is_csv, has_header: false, delimiter, quote: '"', null: null.to_owned() }
    }

    pub(super) fn from_options(
        is_csv: bool,
        options: &[CopyOption],
        legacy: &[CopyLegacyOption],
    ) -> Result<Self, SqlError> {
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

    /// A message for each row; the names are part of the first.
    pub(super) fn messages(&self, relation: &Relation, environment: &Environment) -> Vec<Vec<u8>> {
        let text = |value: &Value| (!value.is_null()).then(|| text_of(value, environment));
        let lines = relation.rows.iter().map(|row| self.line(row.iter().map(text)).into_bytes());
        if !self.has_header {
            return lines.collect();
        }
        let mut names = self.line(relation.columns.iter().map(|column| Some(column.name.clone()))).into_bytes();
        let mut messages: Vec<Vec<u8>> = lines.collect();
        match messages.first_mut() {
            Some(first) => {
                names.append(first);
                *first = names;
            }
            None => messages.push(names),
        }
        messages
    }

    /// A line with its end.
    pub(crate) fn line(&self, cells: impl Iterator<Item = Option<String>>) -> String {
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
    pub(crate) fn rows(&self, text: &str) -> Result<Vec<Cells>, SqlError> {
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
        // How a cell is written says whether it is null.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let csv = TextFormat::new(true);
        let bars = TextFormat { delimiter: '|', null: "NULL".to_owned(), ..TextFormat::new(true) };
        let text = TextFormat::new(false);
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

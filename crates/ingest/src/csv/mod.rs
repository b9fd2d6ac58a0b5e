//! CSV files to line protocol, chunk by chunk.
//!
//! The first row names the columns; a [`CsvMapping`] says which are time, tags and fields. Types of fields that are not
//! given are worked out from the first chunk: a column whose cells are mostly numbers is of floats, one of mostly `true` and
//! `false` of booleans, everything else is text. They hold for the whole file; the row of a cell that does not fit is left
//! out and reported with its line. Empty cells are left out. Files without a header are read by a [`CsvFormat`].

mod format;
mod layout;
mod time;

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Read};

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};
use model::{METRIC_NAME, VALUE_FIELD, ValueType};

use crate::errors::{LimitName, Reason};
use crate::line::{FieldValue, Point, check_line, encode_point};
use crate::{Limits, LineErrors};

pub use format::CsvFormat;
pub use layout::GoLayout;
pub use time::TimeFormat;

/// What the columns of a file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvMapping {
    /// The measurement of all rows.
    pub measurement: String,
    /// The column with the time; without one, points get the time at which they arrive at the server.
    pub time_column: Option<String>,
    /// How it is written.
    pub time_format: TimeFormat,
    /// Columns that become tags.
    pub tags: Vec<String>,
    /// Columns that become fields; `None` for all that are neither time nor tags.
    pub fields: Option<Vec<CsvField>>,
    /// What separates cells; mostly a comma.
    pub delimiter: u8,
}

/// A column that becomes a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvField {
    /// The column's name, which becomes the field's.
    pub name: String,
    /// Its type; `None` to work it out.
    pub value_type: Option<ValueType>,
}

impl CsvField {
    /// Reads `name` or `name:type`, types being `float`, `integer`, `unsigned`, `boolean` and `string`.
    pub fn parse(text: &str) -> Self {
        let typed = text.rsplit_once(':').and_then(|(name, type_name)| {
            let value_type = (0..).map_while(ValueType::from_number).find(|one| one.name() == type_name)?;
            Some(Self { name: name.to_owned(), value_type: Some(value_type) })
        });
        typed.unwrap_or_else(|| Self { name: text.to_owned(), value_type: None })
    }
}

/// A chunk ends early at so many bytes of rows.
const CHUNK_BYTES_MAX: usize = 8 << 20;

/// What came of a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CsvChunk {
    /// Points written.
    pub points: u64,
    /// Rows left out, by line of the file.
    pub errors: LineErrors,
}

/// Why a file cannot be read (further).
#[derive(Debug)]
pub enum CsvError {
    /// Reading failed, or a record is too long.
    Read(io::Error),
    /// The mapping does not fit the file. Holds the reason.
    Mapping(String),
}

impl fmt::Display for CsvError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(formatter, "cannot read the CSV file: {error}"),
            Self::Mapping(reason) => formatter.write_str(reason),
        }
    }
}

impl std::error::Error for CsvError {}

/// Reads a CSV file as line protocol.
pub struct CsvImporter<R> {
    reader: Reader<BoundedRecords<R>>,
    columns: Columns,
    limits: Limits,
}

/// Where the cells of a row go, by index of the column.
struct Columns {
    time: Option<(usize, TimeFormat)>,
    tags: Vec<(usize, String)>,
    /// Whether only a row's key tells if its tags may stand together.
    decodes_keys: bool,
    /// Tags that all rows have.
    constants: Vec<(String, String)>,
    /// The points that a row makes.
    points: Vec<PointColumns>,
}

/// The columns of one point.
struct PointColumns {
    measurement: String,
    fields: Vec<FieldColumn>,
}

struct FieldColumn {
    index: usize,
    name: String,
    /// `None` until it is given or worked out.
    value_type: Option<ValueType>,
}

impl<R: Read> CsvImporter<R> {
    /// Reads the header. `Limits::line_bytes_max` bounds a record.
    pub fn new(input: R, mapping: CsvMapping, limits: Limits) -> Result<Self, CsvError> {
        let input = BoundedRecords::new(input, limits.line_bytes_max);
        let mut reader = ReaderBuilder::new().delimiter(mapping.delimiter).from_reader(input);
        let header = reader.byte_headers().map_err(|error| CsvError::Read(error.into()))?;
        let names: Result<Vec<&str>, _> = header.iter().map(std::str::from_utf8).collect();
        let names = names.map_err(|_| CsvError::Mapping("the header is not valid UTF-8".to_owned()))?;
        let columns = Columns::named(&names, mapping).map_err(CsvError::Mapping)?;
        Ok(Self { reader, columns, limits })
    }

    /// Reads a file without a header: each column of values makes points of its own. Rows may have more columns than the format
    /// names, and fewer if one of them has a value.
    pub fn by_places(input: R, format: CsvFormat, limits: Limits) -> Self {
        let input = BoundedRecords::new(input, limits.line_bytes_max);
        let reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(input);
        Self { reader, columns: Columns::by_places(format), limits }
    }

    /// Appends up to `rows_max` rows (and some 8 MiB of them) to `out` as line protocol, in nanoseconds. `None` at the end of the file.
    pub fn next_chunk(&mut self, rows_max: usize, out: &mut Vec<u8>) -> Result<Option<CsvChunk>, CsvError> {
        let mut chunk = CsvChunk::default();
        let mut rows = Vec::new();
        let (mut rows_read, mut bytes_read) = (0, 0);
        while rows_read < rows_max && bytes_read < CHUNK_BYTES_MAX {
            let mut record = ByteRecord::new();
            self.reader.get_mut().left_bytes = self.limits.line_bytes_max;
            match self.reader.read_byte_record(&mut record) {
                Ok(false) => break,
                Ok(true) => rows.push(record),
                Err(error) => self.report(error, &mut chunk)?,
            }
            rows_read += 1;
            bytes_read += rows.last().map_or(0, |row| row.as_slice().len());
        }
        if rows_read == 0 {
            return Ok(None);
        }
        self.columns.infer_types(&rows);
        for row in &rows {
            let line = self.line_of(row.position());
            let before = out.len();
            match self.write_row(row, out) {
                Ok(points) => chunk.points += points,
                Err(reason) => {
                    out.truncate(before);
                    chunk.errors.push(self.limits.errors_max, line, reason);
                }
            }
        }
        Ok(Some(chunk))
    }

    fn check_fields(&self, fields: &[(&str, FieldValue<'_>)]) -> Result<(), Reason> {
        let Limits { fields_max, name_bytes_max, .. } = self.limits;
        if fields.len() > fields_max {
            return Err(LimitName::Fields.exceeded(format_args!("more than {fields_max} fields")));
        }
        if fields.iter().any(|(name, _)| name.len() > name_bytes_max) {
            return Err(
                LimitName::NameBytes.exceeded(format_args!("a field's name is longer than {name_bytes_max} bytes"))
            );
        }
        Ok(())
    }

    /// A row with too many or too few cells is left out; anything else ends the import.
    fn report(&self, error: csv::Error, chunk: &mut CsvChunk) -> Result<(), CsvError> {
        let ErrorKind::UnequalLengths { pos, expected_len, len } = error.kind() else {
            return Err(CsvError::Read(error.into()));
        };
        let line = self.line_of(pos.as_ref());
        let reason = format!("the row has {len} cells, the header {expected_len}");
        chunk.errors.push(self.limits.errors_max, line, reason);
        Ok(())
    }

    /// The line on which a record begins. The reader ends a record at a carriage return and counts the line feed behind
    /// it only when it reads on, so in files with both it is one behind.
    fn line_of(&self, position: Option<&csv::Position>) -> u32 {
        position.map_or(0, csv::Position::line) as u32 + u32::from(self.reader.get_ref().carriage_returns == Some(true))
    }

    /// Writes the points of a row; how many they are.
    fn write_row(&self, row: &ByteRecord, out: &mut Vec<u8>) -> Result<u64, Reason> {
        let columns = &self.columns;
        let timestamp_ns = match &columns.time {
            Some((index, format)) => Some(format.parse_ns(cell(row, *index)?)?),
            None => None,
        };
        let constants = columns.constants.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut tags: Vec<(&str, &str)> = constants.collect();
        for (index, name) in &columns.tags {
            tags.push((name.as_str(), cell(row, *index)?));
        }
        let mut points = 0;
        for PointColumns { measurement, fields } in &columns.points {
            let fields = read_fields(row, fields)?;
            self.check_fields(&fields)?;
            // Of several points those without a value are left out.
            if fields.is_empty() && columns.points.len() > 1 {
                continue;
            }
            let point = Point { measurement, tags: &tags, fields: &fields, timestamp_ns };
            let start = out.len();
            encode_point(out, &point).map_err(|error| error.to_string())?;
            check_line(out.get(start..).unwrap_or_default(), columns.decodes_keys, &self.limits)?;
            points += 1;
        }
        if points == 0 { Err("none of the columns of metrics has a value".into()) } else { Ok(points) }
    }
}

/// Whether two names are the same, or one is reserved: rows that have such tags are refused as lines with them are.
fn are_mistakable(names: &[(usize, String)]) -> bool {
    let mut seen = HashSet::new();
    !names.iter().all(|(_, name)| name != METRIC_NAME && seen.insert(name))
}

/// A cell's text; none where the row has no such column.
fn cell(row: &ByteRecord, index: usize) -> Result<&str, String> {
    std::str::from_utf8(row.get(index).unwrap_or_default())
        .map(str::trim)
        .map_err(|_| format!("cell {} is not valid UTF-8", index + 1))
}

/// The fields of a point that have values.
fn read_fields<'a>(row: &'a ByteRecord, columns: &'a [FieldColumn]) -> Result<Vec<(&'a str, FieldValue<'a>)>, String> {
    let mut fields = Vec::with_capacity(columns.len());
    for column in columns {
        let text = cell(row, column.index)?;
        let value_type = column.value_type.unwrap_or(ValueType::String);
        if !is_empty(text, value_type) {
            fields.push((column.name.as_str(), parse_value(&column.name, text, value_type)?));
        }
    }
    Ok(fields)
}

impl Columns {
    fn named(header: &[&str], mapping: CsvMapping) -> Result<Self, String> {
        let find = |name: &str| {
            let mut places = (0..header.len()).filter(|index| header.get(*index).is_some_and(|one| one.trim() == name));
            match (places.next(), places.next()) {
                (Some(index), None) => Ok(index),
                (Some(_), Some(_)) => Err(format!("the file has two columns {name:?}")),
                _ => Err(format!("the file has no column {name:?}; it has: {}", header.join(", "))),
            }
        };
        let time = mapping.time_column.as_deref().map(find).transpose()?;
        let mut tags = Vec::new();
        for name in mapping.tags {
            tags.push((find(&name)?, name));
        }
        let others = || {
            let is_other = |index: &usize| Some(*index) != time && !tags.iter().any(|(tag, _)| tag == index);
            (0..header.len()).filter(is_other).filter_map(|index| header.get(index))
        };
        let wanted = match mapping.fields {
            Some(fields) => fields,
            None => others().map(|name| CsvField { name: name.trim().to_owned(), value_type: None }).collect(),
        };
        let mut fields = Vec::new();
        for CsvField { name, value_type } in wanted {
            fields.push(FieldColumn { index: find(&name)?, name, value_type });
        }
        if fields.is_empty() {
            return Err("no column is left for fields".to_owned());
        }
        let points = vec![PointColumns { measurement: mapping.measurement, fields }];
        let time = time.map(|index| (index, mapping.time_format));
        let decodes_keys = are_mistakable(&tags);
        Ok(Self { time, tags, decodes_keys, constants: Vec::new(), points })
    }

    fn by_places(format: CsvFormat) -> Self {
        let field = |index| FieldColumn { index, name: VALUE_FIELD.to_owned(), value_type: Some(ValueType::F64) };
        let point = |(index, measurement)| PointColumns { measurement, fields: vec![field(index)] };
        let CsvFormat { labels, metrics, time, extra_labels } = format;
        let decodes_keys = are_mistakable(&labels);
        let points = metrics.into_iter().map(point).collect();
        Self { time, tags: labels, decodes_keys, constants: extra_labels, points }
    }

    /// Works out the types that are not known yet: what most cells are, so that one bad cell does not make a column of numbers text.
    /// A column that is empty so far stays unknown.
    fn infer_types(&mut self, rows: &[ByteRecord]) {
        let fields = self.points.iter_mut().flat_map(|point| &mut point.fields);
        for column in fields.filter(|column| column.value_type.is_none()) {
            let texts = || {
                let cells = rows.iter().map(|row| row.get(column.index).unwrap_or_default().trim_ascii());
                cells.map(|cell| std::str::from_utf8(cell).unwrap_or("\u{fffd}")).filter(|text| !text.is_empty())
            };
            let count = texts().count();
            let fits = |value_type| {
                let fitting =
                    texts().filter(|text| is_empty(text, value_type) || parse_value("", text, value_type).is_ok());
                fitting.count() * 2 > count
            };
            if count > 0 {
                let typed = [ValueType::F64, ValueType::Bool].into_iter().find(|one| fits(*one));
                column.value_type = Some(typed.unwrap_or(ValueType::String));
            }
        }
    }
}

/// Whether a cell holds nothing: no text, or the NaN that many programs write for a missing number.
fn is_empty(text: &str, value_type: ValueType) -> bool {
    text.is_empty() || value_type == ValueType::F64 && text.eq_ignore_ascii_case("nan")
}

fn parse_value<'a>(name: &str, text: &'a str, value_type: ValueType) -> Result<FieldValue<'a>, String> {
    let value = match value_type {
        ValueType::F64 => text.parse().ok().filter(|value: &f64| value.is_finite()).map(FieldValue::F64),
        ValueType::I64 => text.parse().ok().map(FieldValue::I64),
        ValueType::U64 => text.parse().ok().map(FieldValue::U64),
        ValueType::Bool if text.eq_ignore_ascii_case("true") => Some(FieldValue::Bool(true)),
        ValueType::Bool if text.eq_ignore_ascii_case("false") => Some(FieldValue::Bool(false)),
        ValueType::Bool | ValueType::Histogram => None,
        ValueType::String => Some(FieldValue::String(text.into())),
    };
    value.ok_or_else(|| format!("column {name:?}: {text:?} is no {}", value_type.name()))
}

/// Bounds the bytes of one record: a quote that is never closed would otherwise pull the whole file into memory.
struct BoundedRecords<R> {
    input: R,
    left_bytes: usize,
    limit_bytes: usize,
    /// Whether the first line feed has a carriage return before it.
    carriage_returns: Option<bool>,
}

impl<R> BoundedRecords<R> {
    fn new(input: R, limit_bytes: usize) -> Self {
        Self { input, left_bytes: limit_bytes, limit_bytes, carriage_returns: None }
    }
}

impl<R: Read> Read for BoundedRecords<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.left_bytes);
        if length == 0 && !buffer.is_empty() {
            let limit_bytes = self.limit_bytes;
            let reason = LimitName::LineBytes.exceeded(format_args!("a record is longer than {limit_bytes} bytes"));
            return Err(io::Error::other(reason.into_text()));
        }
        let read = self.input.read(buffer.get_mut(..length).unwrap_or_default())?;
        self.left_bytes -= read;
        let text = buffer.get(..read).unwrap_or_default();
        if self.carriage_returns.is_none()
            && let Some(line_end) = memchr::memchr(b'\n', text)
        {
            self.carriage_returns = Some(line_end > 0 && text.get(line_end - 1) == Some(&b'\r'));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests;

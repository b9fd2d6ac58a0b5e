//! Rows of one table that come as columns: a program that has the database inside writes them without a text between. Groups have the keys
//! that line protocol spells, so that both ways lead to the same ones.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use model::{Batch, Block, Field, GroupKey, Limits, ValueType};

use super::encode::{EncodeError, write_field_or_tag_name, write_name};
use super::key::{MEASUREMENT_SPECIALS, TAG_SPECIALS, TIME, check_key, decode_key, unchecked_key_bytes};
use super::order::restore_order;
use crate::errors::Reason;
use crate::{BODY_BYTES_MAX, BodyError, LineErrors, Parsed, ScopedKeyHasher, too_long};

/// Rows of a table as columns, all of the same length.
#[derive(Debug, Clone, Default)]
pub struct TableColumns<'a> {
    /// The table's name.
    pub table: &'a str,
    /// A time for each row, in nanoseconds since the Unix epoch.
    pub times_ns: Cow<'a, [i64]>,
    /// Columns that tell series apart.
    pub tags: Vec<TagColumn<'a>>,
    /// Columns of values, at least one. A row that has none of them is nothing, and left out.
    pub fields: Vec<FieldColumn<'a>>,
}

/// A tag's value for each row.
#[derive(Debug, Clone)]
pub struct TagColumn<'a> {
    /// The tag's name.
    pub name: &'a str,
    /// The values; a row does not have the tag where it is empty.
    pub values: Vec<&'a str>,
}

/// A field's value for each row.
#[derive(Debug, Clone)]
pub struct FieldColumn<'a> {
    /// The field's name.
    pub name: &'a str,
    /// The values.
    pub values: FieldValues<'a>,
    /// For each row true if it has the field; `None`: all have it.
    pub validity: Option<Cow<'a, [bool]>>,
}

/// Values of one type.
#[derive(Debug, Clone)]
pub enum FieldValues<'a> {
    /// Floats.
    F64(Cow<'a, [f64]>),
    /// Signed integers.
    I64(Cow<'a, [i64]>),
    /// Unsigned integers.
    U64(Cow<'a, [u64]>),
    /// Booleans.
    Bool(Cow<'a, [bool]>),
    /// Texts.
    Text(Vec<&'a str>),
}

impl FieldValues<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F64(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the values.
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::F64(_) => ValueType::F64,
            Self::I64(_) => ValueType::I64,
            Self::U64(_) => ValueType::U64,
            Self::Bool(_) => ValueType::Bool,
            Self::Text(_) => ValueType::String,
        }
    }

    fn text_bytes(&self) -> usize {
        if let Self::Text(texts) = self { texts.iter().map(|text| text.len()).sum() } else { 0 }
    }

    /// The cell of a row; texts go into the batch.
    fn cell(&self, row: usize, batch: &mut Batch<'_>) -> Option<u64> {
        Some(match self {
            Self::F64(values) => values.get(row)?.to_bits(),
            Self::I64(values) => *values.get(row)? as u64,
            Self::U64(values) => *values.get(row)?,
            Self::Bool(values) => u64::from(*values.get(row)?),
            Self::Text(values) => batch.push_text(values.get(row)?.as_bytes()).to_cell(),
        })
    }
}

impl FieldColumn<'_> {
    fn is_valid(&self, row: usize) -> bool {
        self.validity.as_ref().is_none_or(|validity| validity.get(row).copied().unwrap_or_default())
    }
}

impl TableColumns<'_> {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.times_ns.len()
    }

    /// Bytes that the batch of the rows takes, about.
    pub fn batch_bytes(&self) -> usize {
        let row_bytes =
            size_of::<GroupKey>() + size_of::<i64>() + size_of::<u32>() + size_of::<u64>() * self.fields.len();
        let tag_bytes =
            |tag: &TagColumn<'_>| tag.values.iter().map(|value| value.len() + tag.name.len() + 2).sum::<usize>();
        let texts: usize = self.fields.iter().map(|field| field.values.text_bytes()).sum();
        self.rows() * row_bytes + texts + self.tags.iter().map(tag_bytes).sum::<usize>()
    }

    /// Why the columns are no table, if they are none.
    fn check(&self, limits: &Limits) -> Result<(), BodyError> {
        let malformed = |message: String| Err(BodyError::Malformed(format!("table {:?}: {message}", self.table)));
        let Limits { rows_max, fields_max, tags_max, name_bytes_max, .. } = limits;
        if self.rows() > *rows_max {
            let limit = "rows of a request (rows_max); split it";
            return Err(BodyError::TooLarge { size_bytes_max: *rows_max as u64, limit });
        }
        if self.fields.is_empty() {
            return malformed("there is no field: name a column of values beside the time and the tags".to_owned());
        }
        if self.fields.len() > *fields_max || self.tags.len() > *tags_max {
            return malformed(format!("at most {tags_max} tags (tags_max) and {fields_max} fields (fields_max)"));
        }
        let tags = self.tags.iter().map(|tag| (tag.name, tag.values.len(), None));
        let fields = self.fields.iter().map(|field| (field.name, field.values.len(), field.validity.as_ref()));
        let mut names = HashSet::new();
        for (name, values, validity) in tags.chain(fields) {
            if name.is_empty() || name == TIME || name.len() > *name_bytes_max {
                return malformed(format!(
                    "a column is called {name:?}: give it 1 to {name_bytes_max} bytes (name_bytes_max), and not {TIME:?}"
                ));
            }
            if !names.insert(name) {
                return malformed(format!("two columns are called {name:?}"));
            }
            let lengths = [Some(values), validity.map(|validity| validity.len())];
            if let Some(length) = lengths.into_iter().flatten().find(|length| *length != self.rows()) {
                return malformed(format!("column {name:?} has {length} rows, the times have {}", self.rows()));
            }
        }
        Ok(())
    }
}

/// Makes a batch of columns. Rows that cannot be written are reported by their number, counted from 1.
pub fn parse_columns(
    table: &TableColumns<'_>,
    hasher: ScopedKeyHasher<'_>,
    limits: &Limits,
) -> Result<Parsed<'static>, BodyError> {
    table.check(limits)?;
    let texts: usize = table.fields.iter().map(|field| field.values.text_bytes()).sum();
    if texts.saturating_add(limits.keys_bytes_max) >= BODY_BYTES_MAX {
        return Err(too_long());
    }
    let mut keys = Keys::new(table, hasher, limits)?;
    let mut batch = Batch::new(b"", decode_key);
    let (mut blocks, mut errors) = (Blocks::default(), LineErrors::default());
    for (row, time_ns) in table.times_ns.iter().enumerate() {
        let line = row as u32 + 1;
        let block = blocks.of_row(table, row);
        if block.fields.is_empty() {
            // There is nothing to write.
            continue;
        }
        match keys.of_row(row, &mut batch)? {
            Ok(key) => block.push(&RowHead { key, time_ns: *time_ns, line }, table, &mut batch),
            Err(reason) => errors.push(limits.errors_max, line, reason),
        }
    }
    batch.blocks = blocks.into_blocks(table, limits)?;
    restore_order(&mut batch.blocks);
    Ok(Parsed { batch, errors })
}

/// What a row has beside its values.
struct RowHead {
    key: GroupKey,
    time_ns: i64,
    line: u32,
}

/// Rows that have the same fields.
#[derive(Default)]
struct ColumnBlock {
    /// The indexes of the fields among the table's.
    fields: Vec<usize>,
    rows: Block,
}

impl ColumnBlock {
    fn push(&mut self, head: &RowHead, table: &TableColumns<'_>, batch: &mut Batch<'_>) {
        let row = head.line as usize - 1;
        let fields = self.fields.iter().filter_map(|field| table.fields.get(*field));
        self.rows.cells.extend(fields.filter_map(|field| field.values.cell(row, batch)));
        self.rows.keys.push(head.key);
        self.rows.timestamps_ns.push(head.time_ns);
        self.rows.lines.push(head.line);
    }
}

/// The blocks of a table, by the fields that their rows have.
#[derive(Default)]
struct Blocks {
    all: Vec<ColumnBlock>,
    by_fields: HashMap<Vec<usize>, usize>,
    /// The block of the row before.
    last: usize,
}

impl Blocks {
    /// The block of a row.
    fn of_row(&mut self, table: &TableColumns<'_>, row: usize) -> &mut ColumnBlock {
        let is_present = |(index, field): (usize, &FieldColumn<'_>)| field.is_valid(row).then_some(index);
        let present = || table.fields.iter().enumerate().filter_map(is_present);
        let is_as_before = self.all.get(self.last).is_some_and(|block| present().eq(block.fields.iter().copied()));
        if !is_as_before {
            let fields: Vec<usize> = present().collect();
            let next = self.all.len();
            self.last = *self.by_fields.entry(fields.clone()).or_insert(next);
            if self.last == next {
                self.all.push(ColumnBlock { fields, rows: Block::default() });
            }
        }
        &mut self.all[self.last]
    }

    fn into_blocks(self, table: &TableColumns<'_>, limits: &Limits) -> Result<Vec<Block>, BodyError> {
        if self.all.len() > limits.layouts_max {
            let limit = "sets of fields of a request (layouts_max); split it";
            return Err(BodyError::TooLarge { size_bytes_max: limits.layouts_max as u64, limit });
        }
        let of_block = |block: ColumnBlock| {
            let field =
                |field: &FieldColumn<'_>| Field { name: field.name.to_owned(), value_type: field.values.value_type() };
            let fields = block.fields.iter().filter_map(|index| table.fields.get(*index)).map(field).collect();
            Block { measurement: Some(table.table.to_owned()), fields, ..block.rows }
        };
        Ok(self.all.into_iter().filter(|block| block.rows.rows() > 0).map(of_block).collect())
    }
}

/// The keys of rows. The text of each stands once in the batch.
struct Keys<'a> {
    hasher: ScopedKeyHasher<'a>,
    limits: &'a Limits,
    unchecked_bytes: usize,
    measurement: Vec<u8>,
    /// `,name=` and the values of each tag.
    tags: Vec<(Vec<u8>, &'a [&'a str])>,
    known: HashMap<u128, GroupKey>,
    /// The row before, and its key.
    last: Option<(usize, GroupKey)>,
    text: Vec<u8>,
    texts_bytes: usize,
}

impl<'a> Keys<'a> {
    fn new(table: &'a TableColumns<'_>, hasher: ScopedKeyHasher<'a>, limits: &'a Limits) -> Result<Self, BodyError> {
        let malformed = |error: EncodeError| BodyError::Malformed(format!("table {:?}: {error}", table.table));
        let mut measurement = Vec::new();
        write_name(&mut measurement, table.table, MEASUREMENT_SPECIALS).map_err(malformed)?;
        let mut tags = Vec::with_capacity(table.tags.len());
        for tag in &table.tags {
            let mut name = vec![b','];
            write_field_or_tag_name(&mut name, tag.name, TAG_SPECIALS).map_err(malformed)?;
            name.push(b'=');
            tags.push((name, tag.values.as_slice()));
        }
        Ok(Self {
            hasher,
            limits,
            unchecked_bytes: unchecked_key_bytes(limits),
            measurement,
            tags,
            known: HashMap::new(),
            last: None,
            text: Vec::new(),
            texts_bytes: 0,
        })
    }

    /// The key of a row, or why it has none. The outer error is of the whole request.
    fn of_row(&mut self, row: usize, batch: &mut Batch<'_>) -> Result<Result<GroupKey, Reason>, BodyError> {
        let is_same = |before: usize| self.tags.iter().all(|(_, values)| values.get(before) == values.get(row));
        if let Some((before, key)) = self.last.filter(|(before, _)| is_same(*before)) {
            self.last = Some((before, key));
            return Ok(Ok(key));
        }
        if let Err(reason) = self.write(row) {
            return Ok(Err(reason));
        }
        let hash = self.hasher.hash(&self.text);
        let key = match self.known.get(&hash) {
            Some(key) => *key,
            None => {
                self.texts_bytes += self.text.len();
                if self.texts_bytes > self.limits.keys_bytes_max {
                    let limit = "keys of a request (keys_bytes_max); split it";
                    return Err(BodyError::TooLarge { size_bytes_max: self.limits.keys_bytes_max as u64, limit });
                }
                let key = GroupKey { hash, text: batch.push_text(&self.text) };
                self.known.insert(hash, key);
                key
            }
        };
        self.last = Some((row, key));
        Ok(Ok(key))
    }

    /// Spells the key of a row.
    fn write(&mut self, row: usize) -> Result<(), Reason> {
        self.text.clear();
        self.text.extend_from_slice(&self.measurement);
        for (name, values) in &self.tags {
            let value = values.get(row).copied().unwrap_or_default();
            if value.is_empty() {
                continue;
            }
            self.text.extend_from_slice(name);
            write_name(&mut self.text, value, TAG_SPECIALS).map_err(|error| Reason::from(error.to_string()))?;
        }
        if self.text.len() <= self.unchecked_bytes { Ok(()) } else { check_key(&self.text, self.limits) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;
    use crate::batch::render::{HASHER, render};
    use crate::line::{Options, Precision, parse};

    fn table<'a>() -> TableColumns<'a> {
        TableColumns {
            table: "c p",
            times_ns: Cow::Borrowed(&[1, 2, 3, 4]),
            tags: vec![
                TagColumn { name: "host", values: vec!["a", "a", "b=,", "a"] },
                TagColumn { name: "core", values: vec!["0", "0", "", "0"] },
            ],
            fields: vec![
                FieldColumn {
                    name: "usage",
                    values: FieldValues::F64(Cow::Borrowed(&[0.5, 1.5, 2.5, 3.5])),
                    validity: None,
                },
                FieldColumn {
                    name: "n",
                    values: FieldValues::I64(Cow::Borrowed(&[1, 2, 3, 4])),
                    validity: Some(Cow::Borrowed(&[true, false, true, true])),
                },
                FieldColumn { name: "note", values: FieldValues::Text(vec!["x", "", "é\n", "y"]), validity: None },
            ],
        }
    }

    fn parsed(table: &TableColumns<'_>, limits: &Limits) -> Result<String, String> {
        let parsed = parse_columns(table, HASHER.scope(Protocol::Line, 1), limits);
        parsed.map(|parsed| render(&parsed)).map_err(|error| error.to_string())
    }

    #[test]
    fn columns_are_the_rows_of_line_protocol_and_their_keys() {
        let limits = Limits::default();
        let hasher = HASHER.scope(Protocol::Line, 1);
        let lines = "c\\ p,host=a,core=0 usage=0.5,n=1i,note=\"x\" 1\nc\\ p,host=a,core=0 usage=1.5,note=\"\" 2\n\
                     c\\ p,host=b\\=\\, usage=2.5,n=3i,note=\"é\n\" 3\nc\\ p,host=a,core=0 usage=3.5,n=4i,note=\"y\" 4";
        let options = Options { hasher, precision: Precision::Nanosecond, now_ns: 0, limits: &limits };
        let of_lines = parse(lines.as_bytes(), &options).unwrap();
        let of_columns = parse_columns(&table(), hasher, &limits).unwrap();
        let keys = |parsed: &Parsed<'_>| -> Vec<Vec<u128>> {
            parsed.batch.blocks.iter().map(|block| block.keys.iter().map(|key| key.hash).collect()).collect()
        };
        assert_eq!(keys(&of_columns), keys(&of_lines));
        // The fourth line of the text begins a line later, for the line end in a text before it.
        assert_eq!(render(&of_columns).replace("\n4 ", "\n5 "), render(&of_lines));
    }

    #[test]
    fn bad_rows_are_left_out_and_counted() {
        let mut bad = table();
        bad.tags[0].values[1] = "line\nend";
        bad.fields.drain(..1);
        bad.fields.drain(1..);
        bad.fields[0].validity = Some(Cow::Borrowed(&[true, true, false, true]));
        let found = parsed(&bad, &Limits::default()).unwrap();
        assert!(found.contains("2 ! \"line\\nend\" cannot be written"), "{found}");
        assert_eq!(found.lines().count(), 3, "a row of nulls is nothing: {found}");
        assert!(found.contains("1 c p{core=\"0\", host=\"a\"} n=1i @1"), "{found}");
        let limits = Limits { key_bytes_max: 12, ..Limits::default() };
        let found = parsed(&table(), &limits).unwrap();
        assert!(found.contains("1 ! measurement and tags take more than 12 bytes (key_bytes_max)"), "{found}");
    }

    #[test]
    fn what_is_no_table_is_refused_as_a_whole() {
        let refused = |change: &dyn Fn(&mut TableColumns<'_>), limits: Limits| {
            let mut bad = table();
            change(&mut bad);
            parsed(&bad, &limits).unwrap_err()
        };
        let usual = Limits::default;
        for (found, expected) in [
            (refused(&|bad| bad.fields.clear(), usual()), "there is no field"),
            (refused(&|bad| bad.tags[0].name = "n", usual()), "two columns are called \"n\""),
            (refused(&|bad| bad.fields[0].name = "time", usual()), "a column is called \"time\""),
            (refused(&|bad| bad.tags[1].values.truncate(3), usual()), "column \"core\" has 3 rows, the times have 4"),
            (refused(&|bad| bad.table = "", usual()), "\"\" cannot be written"),
            (refused(&|_| (), Limits { rows_max: 3, ..usual() }), "rows_max"),
            (refused(&|_| (), Limits { keys_bytes_max: 20, ..usual() }), "keys_bytes_max"),
            (refused(&|_| (), Limits { layouts_max: 1, ..usual() }), "layouts_max"),
        ] {
            assert!(found.contains(expected), "{expected}: {found}");
        }
    }
}

//! Frames as one table: their time, their labels, their columns.

use arrow_schema::SchemaRef;

use super::{ArrowType, BATCH_ROWS_MAX, BATCH_TEXT_BYTES_MAX, BatchBuilder, RecordBatch};
use crate::{Frame, QueryError, Values};

/// The source of a column of the table in each frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnSource {
    /// The rows' times.
    Time,
    /// The label of this name, in each row.
    Label(String),
    /// The column of this name.
    Column(String),
}

/// A column of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// The type of its values.
    pub arrow_type: ArrowType,
    /// Their source. Frames without it have nulls.
    pub source: ColumnSource,
}

/// The rows of frames, batch by batch.
#[derive(Debug)]
pub struct FrameBatches<'a> {
    frames: &'a [Frame],
    sources: Vec<ColumnSource>,
    builder: BatchBuilder,
    /// The frame of the next row.
    frame: usize,
    row: usize,
}

const TIME: &str = "time";

impl<'a> FrameBatches<'a> {
    /// All of them: the column `time`, a column for each label that some frame has, and one for each column. A name that an earlier column has
    /// gets `_` appended, as often as it takes.
    pub fn of_all(frames: &'a [Frame]) -> Self {
        let time = TableColumn { name: TIME.to_owned(), arrow_type: ArrowType::Time, source: ColumnSource::Time };
        let mut columns = vec![time];
        let mut labels: Vec<&str> = frames.iter().flat_map(|frame| frame.labels.iter().map(|(name, _)| name)).collect();
        labels.sort_unstable();
        labels.dedup();
        for label in labels {
            let (name, source) = (free_name(label, &columns), ColumnSource::Label(label.to_owned()));
            columns.push(TableColumn { name, arrow_type: ArrowType::Text, source });
        }
        for column in frames.iter().flat_map(|frame| &frame.columns) {
            let source = ColumnSource::Column(column.name.to_string());
            let arrow_type = type_of(&column.cells.values);
            match columns.iter_mut().find(|known| known.source == source) {
                Some(known) => known.arrow_type = known.arrow_type.unified(arrow_type),
                None => columns.push(TableColumn { name: free_name(&column.name, &columns), arrow_type, source }),
            }
        }
        Self::of_columns(frames, &columns)
    }

    /// Certain columns.
    pub fn of_columns(frames: &'a [Frame], columns: &[TableColumn]) -> Self {
        let sources = columns.iter().map(|column| column.source.clone()).collect();
        let builder = BatchBuilder::new(columns.iter().map(|column| (column.name.as_str(), column.arrow_type)));
        Self { frames, sources, builder, frame: 0, row: 0 }
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.builder.schema()
    }

    /// Adds as many rows of the frame as the batch still takes.
    fn extend(&mut self, frame: &Frame) {
        let most = (BATCH_ROWS_MAX - self.builder.rows.min(BATCH_ROWS_MAX)).min(frame.rows() - self.row);
        let rows = self.row..self.row + self.rows_that_fit(frame, most);
        let count = rows.len();
        for (source, column) in self.sources.iter().zip(&mut self.builder.columns) {
            match source {
                ColumnSource::Time => column.extend_times(frame.timestamps_ns.get(rows.clone()).unwrap_or_default()),
                ColumnSource::Label(name) => column.extend_text(frame.labels.get(name), count),
                ColumnSource::Column(name) => match frame.column(name) {
                    Some(of) => column.extend(of, rows.clone()),
                    None => column.extend_nulls(count),
                },
            }
        }
        self.builder.rows += count;
        self.row = rows.end;
    }

    /// How many of the next rows bring the batch's texts to their bound, one at least.
    fn rows_that_fit(&self, frame: &Frame, most: usize) -> usize {
        let mut labels_bytes = 0;
        let mut texts: Vec<&[String]> = Vec::new();
        for source in &self.sources {
            match source {
                ColumnSource::Label(name) => labels_bytes += frame.labels.get(name).map_or(0, str::len),
                ColumnSource::Column(name) => {
                    if let Some(Values::Text(values)) = frame.column(name).map(|column| &column.cells.values) {
                        texts.push(values);
                    }
                }
                ColumnSource::Time => {}
            }
        }
        let mut bytes = self.builder.text_bytes();
        if texts.is_empty() {
            let left = BATCH_TEXT_BYTES_MAX.saturating_sub(bytes);
            return left.checked_div(labels_bytes).unwrap_or(most).saturating_add(1).min(most);
        }
        for row in 0..most {
            if bytes >= BATCH_TEXT_BYTES_MAX && row > 0 {
                return row;
            }
            let of_row = texts.iter().filter_map(|texts| texts.get(self.row + row)).map(String::len).sum::<usize>();
            bytes += labels_bytes + of_row;
        }
        most
    }
}

impl Iterator for FrameBatches<'_> {
    type Item = Result<RecordBatch, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(frame) = self.frames.get(self.frame) {
            if self.row >= frame.rows() {
                self.frame += 1;
                self.row = 0;
                continue;
            }
            self.extend(frame);
            if self.builder.is_full() {
                break;
            }
        }
        self.builder.finish().transpose()
    }
}

fn free_name(wanted: &str, columns: &[TableColumn]) -> String {
    let mut name = wanted.to_owned();
    while columns.iter().any(|taken| taken.name == name) {
        name.push('_');
    }
    name
}

const fn type_of(values: &Values) -> ArrowType {
    match values {
        Values::F64(_) => ArrowType::F64,
        Values::I64(_) => ArrowType::I64,
        Values::U64(_) => ArrowType::U64,
        Values::Bool(_) => ArrowType::Bool,
        Values::Text(_) => ArrowType::Text,
    }
}

//! Frames as one table: their time, their labels, their columns.

use arrow_schema::SchemaRef;

use super::{ArrowType, BatchBuilder, BatchLimits, RecordBatch};
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

/// The rows of frames, which are borrowed or owned, batch by batch.
#[derive(Debug)]
pub struct FrameBatches<F> {
    frames: F,
    rows: FrameRows,
}

/// The position in the frames, and the batch that is being filled.
#[derive(Debug)]
struct FrameRows {
    sources: Vec<ColumnSource>,
    builder: BatchBuilder,
    /// The frame of the next row.
    frame: usize,
    row: usize,
}

const TIME: &str = "time";

impl<F: AsRef<[Frame]>> FrameBatches<F> {
    /// All of them: the column `time`, a column for each label that some frame has, and one for each column. A name that an earlier column has
    /// gets `_` appended, as often as it takes.
    pub fn of_all(frames: F) -> Self {
        let columns = columns_of(frames.as_ref());
        Self::of_columns(frames, &columns)
    }

    /// Certain columns.
    pub fn of_columns(frames: F, columns: &[TableColumn]) -> Self {
        let sources = columns.iter().map(|column| column.source.clone()).collect();
        let builder = BatchBuilder::new(columns.iter().map(|column| (column.name.as_str(), column.arrow_type)));
        Self { frames, rows: FrameRows { sources, builder, frame: 0, row: 0 } }
    }

    /// With batches of another size.
    #[must_use]
    pub fn with_limits(mut self, limits: BatchLimits) -> Self {
        self.rows.builder = self.rows.builder.with_limits(limits);
        self
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.rows.builder.schema()
    }
}

/// The columns of a table that shows all of them.
fn columns_of(frames: &[Frame]) -> Vec<TableColumn> {
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
    columns
}

impl FrameRows {
    /// Adds as many rows of the frame as the batch still takes.
    fn extend(&mut self, frame: &Frame) {
        let most = self.builder.limits.rows_max.saturating_sub(self.builder.rows).min(frame.rows() - self.row);
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
        let (mut bytes, text_bytes_max) = (self.builder.text_bytes(), self.builder.limits.text_bytes_max);
        if texts.is_empty() {
            let left = text_bytes_max.saturating_sub(bytes);
            return left.checked_div(labels_bytes).unwrap_or(most).saturating_add(1).min(most);
        }
        for row in 0..most {
            if bytes >= text_bytes_max && row > 0 {
                return row;
            }
            let of_row = texts.iter().filter_map(|texts| texts.get(self.row + row)).map(String::len).sum::<usize>();
            bytes += labels_bytes + of_row;
        }
        most
    }
}

impl<F: AsRef<[Frame]>> Iterator for FrameBatches<F> {
    type Item = Result<RecordBatch, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (frames, rows) = (self.frames.as_ref(), &mut self.rows);
        while let Some(frame) = frames.get(rows.frame) {
            if rows.row >= frame.rows() {
                rows.frame += 1;
                rows.row = 0;
                continue;
            }
            rows.extend(frame);
            if rows.builder.is_full() {
                break;
            }
        }
        rows.builder.finish().transpose()
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

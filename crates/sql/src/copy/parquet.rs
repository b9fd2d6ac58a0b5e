//! Parquet files in memory, from and to rows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use query::{Budget, QueryError};

use super::pages::unpacked_bytes;
use crate::arrow::{columns_of, extent_of, relation_of_batch};
use crate::error::{SqlError, invalid};
use crate::relation::Relation;

/// The media type of Parquet files.
pub const PARQUET_MEDIA_TYPE: &str = "application/vnd.apache.parquet";
/// Bytes of a message of COPY.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Rows that are read of a file at once.
const ROWS_AT_ONCE: usize = 1024;
/// Columns of a file.
const COLUMNS_MAX: usize = 4096;
/// Bytes that a sample of the budget stands for.
const SAMPLE_BYTES: usize = 16;

impl Relation {
    /// Its rows as a Parquet file, packed by Snappy, which every reader knows.
    pub fn parquet(&self) -> Result<Vec<u8>, QueryError> {
        let failed =
            |error: ParquetError| QueryError::Execution(format!("the answer could not be written as Parquet: {error}"));
        let batches = self.batches();
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batches.schema(), Some(properties)).map_err(failed)?;
        for batch in batches {
            writer.write(&batch?).map_err(failed)?;
        }
        writer.into_inner().map_err(failed)
    }
}

/// A table as a file, in pieces.
pub(super) fn messages(relation: &Relation) -> Result<Vec<Vec<u8>>, SqlError> {
    Ok(relation.parquet()?.chunks(MESSAGE_BYTES_MAX).map(<[u8]>::to_vec).collect())
}

/// The rows of a file. What it unpacks to, and its rows, are taken out of the budget before there is memory for them.
pub(crate) fn relation(file: Vec<u8>, budget: &Budget) -> Result<Relation, SqlError> {
    // The reader's own checks are assertions in places: a file that is none must not end the thread that serves.
    let read = catch_unwind(AssertUnwindSafe(|| read(Bytes::from(file), budget)));
    read.unwrap_or_else(|_| unreadable(&ParquetError::General("its pages are not what their headers say".to_owned())))
}

fn read(file: Bytes, budget: &Budget) -> Result<Relation, SqlError> {
    let options = ArrowReaderOptions::new();
    let metadata = ArrowReaderMetadata::load(&file, options.clone()).or_else(|error| unreadable(&error))?;
    let columns = metadata.schema().fields().len();
    if columns > COLUMNS_MAX {
        return invalid(format!("COPY takes files of {COLUMNS_MAX} columns at most, not {columns}"));
    }
    let unpacked = unpacked_bytes(&file, metadata.metadata())? / SAMPLE_BYTES;
    budget.take(unpacked)?;
    let read = rows(file, &metadata, options, budget);
    budget.give_back(unpacked);
    read
}

fn rows(
    file: Bytes,
    metadata: &ArrowReaderMetadata,
    options: ArrowReaderOptions,
    budget: &Budget,
) -> Result<Relation, SqlError> {
    // Views share the bytes of a text that many rows have: a small file cannot become much memory.
    let fields: Vec<FieldRef> = metadata.schema().fields().iter().map(viewed).collect();
    let schema = Arc::new(Schema::new(fields));
    let viewed_metadata = ArrowReaderMetadata::try_new(metadata.metadata().clone(), options.with_schema(schema))
        .or_else(|error| unreadable(&error))?;
    let reader =
        ParquetRecordBatchReaderBuilder::new_with_metadata(file, viewed_metadata).with_batch_size(ROWS_AT_ONCE).build();
    let reader = reader.or_else(|error| unreadable(&error))?;
    let mut relation = Relation { columns: columns_of(metadata.schema()), rows: Vec::new() };
    for batch in reader {
        let Ok(batch) = batch else {
            return unreadable(&ParquetError::General(batch.err().map(|error| error.to_string()).unwrap_or_default()));
        };
        let (cells, texts_bytes) = extent_of(&batch);
        budget.take(cells.saturating_add(texts_bytes / SAMPLE_BYTES))?;
        relation.rows.extend(relation_of_batch(&batch)?.rows);
    }
    Ok(relation)
}

/// The field with its texts as views.
fn viewed(field: &FieldRef) -> FieldRef {
    match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => {
            Arc::new(Field::new(field.name(), DataType::Utf8View, field.is_nullable()))
        }
        _ => field.clone(),
    }
}

fn unreadable<T>(error: &ParquetError) -> Result<T, SqlError> {
    let message = error.to_string();
    let packed = message.split_once("Disabled feature at compile time: ").map(|(_, codec)| codec);
    match packed {
        Some(codec) => invalid(format!(
            "the Parquet file is packed by {codec}, which is not read: write it with snappy, gzip, lz4 or no compression"
        )),
        None => invalid(format!("the Parquet file cannot be read: {message}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relation::Column;
    use query::{SqlType, Value};

    fn table(rows: usize, text: &str) -> Relation {
        let columns = vec![Column::new("time", SqlType::Timestamp), Column::new("s", SqlType::Text)];
        let text = Value::text(text);
        let row = |place| vec![Value::Timestamp(place as i64), text.clone()];
        Relation { columns, rows: (0..rows).map(row).collect() }
    }

    #[test]
    fn files_come_back_as_they_were() {
        for rows in [0, 1, 5000] {
            let table = table(rows, "é");
            let budget = Budget::new(1_000_000);
            assert_eq!(relation(table.parquet().unwrap(), &budget).unwrap(), table);
            // What is left are the rows and their texts.
            let held = rows * 2 + rows * "é".len() / SAMPLE_BYTES;
            assert!(budget.samples() <= held as u64, "{} of {held}", budget.samples());
        }
    }

    #[test]
    fn small_files_do_not_become_much_memory() {
        // A text of 64 KiB that two thousand rows have.
        let file = table(2000, &"x".repeat(64 << 10)).parquet().unwrap();
        assert!(file.len() < 1 << 20, "{}", file.len());
        for limit in [1000, 100_000] {
            let error = relation(file.clone(), &Budget::new(limit)).unwrap_err();
            assert_eq!(error, SqlError::Query(QueryError::TooManySamples { limit }));
        }
    }

    #[test]
    fn damaged_files_get_an_answer_or_an_error() {
        let file = table(300, "some text").parquet().unwrap();
        let mut state = 7u64;
        let mut random = |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        let mut refused = 0;
        for _ in 0..2000 {
            let mut damaged = file.clone();
            for _ in 0..=random(3) {
                let place = random(damaged.len());
                if let Some(byte) = damaged.get_mut(place) {
                    *byte = random(256) as u8;
                }
            }
            refused += usize::from(relation(damaged, &Budget::new(100_000)).is_err());
        }
        assert!((100..2000).contains(&refused), "{refused}");
    }
}

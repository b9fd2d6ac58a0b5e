//! Answers as Arrow's stream of record batches, for programs that work on columns. Layout: `docs/formats/cache-protocol.md`.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};

use crate::Span;
use crate::points::{Answer, Points, ValueType, Values};

/// The media type of Arrow's streams.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.apache.arrow.stream";
/// Rows of a batch.
const BATCH_ROWS_MAX: usize = 16_384;
/// Bytes of the texts of a batch, but that a row is not cut in two.
const BATCH_TEXT_BYTES_MAX: usize = 8 << 20;
/// A column of texts may have twice as many.
const TEXT_BYTES_MAX: usize = 1 << 30;

/// A row: its time, and the place of its series' name.
type Row = (i64, u32);

/// The texts of a field, and where that of each row is among them.
type Texts<'a> = (&'a [Arc<str>], &'a [Option<usize>]);

/// Writes an answer for a span: a row for each time and series, in that order, with a column for each field.
pub(crate) fn write(answer: &Answer, span: Span) -> Result<Vec<u8>, ArrowError> {
    let schema = Arc::new(schema_of(answer, span));
    let (names, rows) = (names_of(answer)?, rows_of(answer));
    let places: Vec<Vec<Option<usize>>> = answer.fields.iter().map(|field| places_of(&field.points, &rows)).collect();
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    for range in batches(answer, rows.len(), &places)? {
        let rows = rows.get(range.clone()).unwrap_or_default();
        let times: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|(time, _)| *time)));
        let numbers = Int32Array::from_iter_values(rows.iter().map(|(_, number)| *number as i32));
        let mut columns: Vec<ArrayRef> = vec![times, Arc::new(DictionaryArray::try_new(numbers, names.clone())?)];
        for (field, places) in answer.fields.iter().zip(&places) {
            columns.push(column_of(&field.points.values, places.get(range.clone()).unwrap_or_default()));
        }
        writer.write(&RecordBatch::try_new(schema.clone(), columns)?)?;
    }
    writer.into_inner()
}

/// Which rows are batches: so many, and fewer if their texts are long.
fn batches(answer: &Answer, rows: usize, places: &[Vec<Option<usize>>]) -> Result<Vec<Range<usize>>, ArrowError> {
    let mut texts: Vec<Texts<'_>> = Vec::new();
    for (field, places) in answer.fields.iter().zip(places) {
        if let Values::Text(column) = &field.points.values {
            texts.push((column, places));
        }
    }
    let (mut batches, mut first, mut bytes) = (Vec::new(), 0, 0);
    for row in 0..rows {
        let text = |(column, places): &Texts<'_>| {
            (*places.get(row)?).and_then(|place| column.get(place)).map(|text| text.len())
        };
        let of_row = texts.iter().filter_map(text).sum::<usize>();
        if of_row > TEXT_BYTES_MAX {
            return Err(too_long("the texts of a row"));
        }
        if row > first && (row - first >= BATCH_ROWS_MAX || bytes + of_row > BATCH_TEXT_BYTES_MAX) {
            batches.push(first..row);
            (first, bytes) = (row, 0);
        }
        bytes += of_row;
    }
    if first < rows {
        batches.push(first..rows);
    }
    Ok(batches)
}

fn too_long(what: &str) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("{what} take more than {TEXT_BYTES_MAX} bytes: ask for JSON"))
}

fn schema_of(answer: &Answer, span: Span) -> Schema {
    let names = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let mut fields = vec![Field::new("time", DataType::Int64, false), Field::new("series", names, false)];
    for field in &answer.fields {
        let data_type = match field.points.values.value_type() {
            ValueType::F64 => DataType::Float64,
            ValueType::I64 => DataType::Int64,
            ValueType::Bool => DataType::Boolean,
            ValueType::Text => DataType::Utf8,
        };
        fields.push(Field::new(field.name.as_ref(), data_type, true));
    }
    let bounds = [("start", span.start), ("end", span.end)];
    Schema::new(fields).with_metadata(bounds.map(|(name, time)| (name.to_owned(), time.to_string())).into())
}

/// All rows, in order.
fn rows_of(answer: &Answer) -> Vec<Row> {
    let of_field = |points: &Points| points.timestamps.iter().copied().zip(points.series.iter().copied()).collect();
    let mut rows: Vec<Row> = Vec::new();
    for field in &answer.fields {
        let of_field: Vec<Row> = of_field(&field.points);
        // Fields mostly have the same rows.
        if rows != of_field {
            rows.extend(of_field);
            rows.sort_unstable();
            rows.dedup();
        }
    }
    rows
}

/// Where the point of each row is among those of a field. Of several of one time and series the last counts.
fn places_of(points: &Points, rows: &[Row]) -> Vec<Option<usize>> {
    let mut places = vec![None; rows.len()];
    let mut next = 0;
    for (place, row) in points.timestamps.iter().copied().zip(points.series.iter().copied()).enumerate() {
        if rows.get(next) != Some(&row) {
            next = rows.partition_point(|other| *other < row);
        }
        if let Some(slot) = places.get_mut(next) {
            *slot = Some(place);
        }
        next += 1;
    }
    places
}

/// The names of all series; columns have their places, so that a long name is there once.
fn names_of(answer: &Answer) -> Result<ArrayRef, ArrowError> {
    if answer.series.iter().map(|name| name.len()).sum::<usize>() > TEXT_BYTES_MAX {
        return Err(too_long("the names of series"));
    }
    Ok(Arc::new(StringArray::from_iter_values(&answer.series)))
}

fn column_of(values: &Values, places: &[Option<usize>]) -> ArrayRef {
    let each = |place: &Option<usize>| *place;
    match values {
        Values::F64(column) => {
            let cells = places.iter().map(|place| column.get(each(place)?).copied());
            Arc::new(cells.collect::<Float64Array>())
        }
        Values::I64(column) => {
            let cells = places.iter().map(|place| column.get(each(place)?).copied());
            Arc::new(cells.collect::<Int64Array>())
        }
        Values::Bool(column) => {
            let cells = places.iter().map(|place| column.get(each(place)?).copied());
            Arc::new(cells.collect::<BooleanArray>())
        }
        Values::Text(column) => {
            let mut texts = StringBuilder::new();
            places.iter().for_each(|place| texts.append_option(each(place).and_then(|place| column.get(place))));
            Arc::new(texts.finish())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow_array::Array;
    use arrow_array::types::Int32Type;
    use arrow_ipc::reader::StreamReader;
    use proptest::prelude::*;

    use super::*;
    use crate::FieldPoints;

    type Cells = BTreeMap<(i64, u32), u8>;

    fn field(name: &str, value_type: u8, cells: &Cells) -> FieldPoints {
        let bytes = || cells.values().copied();
        let values = match value_type {
            0 => Values::F64(bytes().map(|byte| f64::from(byte) / 2.0).collect()),
            1 => Values::I64(bytes().map(|byte| i64::from(byte) - 7).collect()),
            2 => Values::Bool(bytes().map(|byte| byte % 2 == 0).collect()),
            _ => Values::Text(bytes().map(|byte| Arc::from(byte.to_string())).collect()),
        };
        let (timestamps, series) = cells.keys().copied().unzip();
        FieldPoints { name: Arc::from(name), points: Points { timestamps, series, values } }
    }

    fn shown(array: &dyn Array, row: usize) -> Option<String> {
        if array.is_null(row) {
            return None;
        }
        let any = array.as_any();
        let floats = any.downcast_ref::<Float64Array>().map(|column| format!("{:?}", column.value(row)));
        let integers = || any.downcast_ref::<Int64Array>().map(|column| format!("{:?}", column.value(row)));
        let booleans = || any.downcast_ref::<BooleanArray>().map(|column| format!("{:?}", column.value(row)));
        let texts = || any.downcast_ref::<StringArray>().map(|column| column.value(row).to_owned());
        let names = || {
            let column = any.downcast_ref::<DictionaryArray<Int32Type>>()?;
            shown(column.values(), column.keys().value(row) as usize)
        };
        floats.or_else(integers).or_else(booleans).or_else(texts).or_else(names)
    }

    proptest! {
        /// Every cell comes back at its row, which are in order of time and series.
        #[test]
        fn cells_come_back(
            fields in prop::collection::vec(
                (0..4u8, prop::collection::btree_map((-5i64..5, 0..3u32), any::<u8>(), 0..12)),
                0..4,
            ),
        ) {
            let series: Vec<Arc<str>> = ["", "host=a", "ü"].map(Arc::from).into();
            let made = fields.iter().enumerate().map(|(place, (kind, cells))| field(&format!("f{place}"), *kind, cells));
            let answer = Answer { series: series.clone(), fields: made.collect() };
            let written = write(&answer, Span::new(-5, 5)).unwrap();
            let mut reader = StreamReader::try_new(written.as_slice(), None).unwrap();
            let schema = reader.schema();
            prop_assert_eq!(schema.metadata().get("start").map(String::as_str), Some("-5"));
            let mut found: Vec<Cells> = vec![Cells::new(); fields.len()];
            let mut rows: Vec<(i64, u32)> = Vec::new();
            for batch in &mut reader {
                let batch = batch.unwrap();
                for row in 0..batch.num_rows() {
                    let time: i64 = shown(batch.column(0), row).unwrap().parse().unwrap();
                    let name = shown(batch.column(1), row).unwrap();
                    let number = series.iter().position(|series| **series == name).unwrap() as u32;
                    rows.push((time, number));
                    for (place, (kind, cells)) in fields.iter().enumerate() {
                        let Some(text) = shown(batch.column(place + 2), row) else { continue };
                        let byte = cells[&(time, number)];
                        let one = Cells::from([((time, number), byte)]);
                        let expected = match field("", *kind, &one).points.values {
                            Values::F64(values) => format!("{:?}", values[0]),
                            Values::I64(values) => format!("{:?}", values[0]),
                            Values::Bool(values) => format!("{:?}", values[0]),
                            Values::Text(values) => values[0].to_string(),
                        };
                        prop_assert_eq!(text, expected);
                        found[place].insert((time, number), byte);
                    }
                }
            }
            prop_assert!(rows.is_sorted_by(|a, b| a < b));
            let expected: Vec<Cells> = fields.into_iter().map(|(_, cells)| cells).collect();
            prop_assert_eq!(found, expected);
        }
    }

    fn batch_rows(answer: &Answer) -> Vec<usize> {
        let written = write(answer, Span::new(0, 1 << 20)).unwrap();
        StreamReader::try_new(written.as_slice(), None).unwrap().map(|batch| batch.unwrap().num_rows()).collect()
    }

    #[test]
    fn long_texts_are_few_in_a_batch_and_long_names_are_written_once() {
        let long: Arc<str> = Arc::from("x".repeat(3 << 20));
        let cells: Cells = (0..5).map(|time| ((time, 0), 1)).collect();
        let mut texts = field("a", 3, &cells);
        texts.points.values = Values::Text(vec![long.clone(); 5]);
        assert_eq!(batch_rows(&Answer { series: vec![Arc::from("")], fields: vec![texts] }), [2, 2, 1]);
        let cells: Cells = (0..BATCH_ROWS_MAX as i64 * 2).map(|time| ((time, 0), 1)).collect();
        let named = Answer { series: vec![long], fields: vec![field("a", 2, &cells)] };
        assert!(write(&named, Span::new(0, 1 << 20)).unwrap().len() < 4 << 20);
    }

    #[test]
    fn long_answers_are_several_batches() {
        let cells: Cells = (0..BATCH_ROWS_MAX as i64 + 3).map(|time| ((time, 0), 1)).collect();
        let answer = Answer { series: vec![Arc::from("")], fields: vec![field("a", 0, &cells)] };
        assert_eq!(batch_rows(&answer), [BATCH_ROWS_MAX, 3]);
    }
}

//! Arrow's own reader reads back the batches that are written here.

use std::io::Cursor;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampNanosecondType, UInt64Type};
use arrow_ipc::reader::StreamReader;
use model::{Labels, Values};

use super::*;
use crate::{Frame, FrameColumn};

fn frame(labels: &[(&str, &str)], timestamps_ns: Vec<i64>, columns: Vec<(&str, Values, Option<Vec<bool>>)>) -> Frame {
    let column = |(name, values, validity): (&str, Values, Option<Vec<bool>>)| FrameColumn {
        name: name.into(),
        cells: model::Column::new(values, validity),
    };
    let labels = Labels::from_pairs(labels.iter().copied()).unwrap();
    Frame::new(labels, timestamps_ns, columns.into_iter().map(column).collect())
}

/// The batches of frames after a way over the stream.
fn written<F: AsRef<[Frame]>>(batches: FrameBatches<F>) -> (SchemaRef, Vec<RecordBatch>) {
    let schema = batches.schema();
    let bytes = stream(&schema, batches).unwrap();
    let reader = StreamReader::try_new(Cursor::new(bytes), None).unwrap();
    (reader.schema(), reader.map(Result::unwrap).collect())
}

fn names(schema: &SchemaRef) -> Vec<(String, String)> {
    schema.fields().iter().map(|field| (field.name().clone(), field.data_type().to_string())).collect()
}

#[test]
fn frames_become_one_table() {
    let frames = [
        frame(
            &[("host", "a")],
            vec![1, 2],
            vec![
                ("x", Values::F64(vec![1.5, f64::NAN]), None),
                ("n", Values::I64(vec![-1, 7]), Some(vec![true, false])),
                ("u", Values::U64(vec![u64::MAX, 0]), None),
                ("s", Values::Text(vec!["é".to_owned(), String::new()]), Some(vec![true, false])),
            ],
        ),
        frame(
            &[("rack", "r")],
            vec![3],
            vec![("n", Values::F64(vec![0.5]), None), ("ok", Values::Bool(vec![true]), None)],
        ),
    ];
    let (schema, batches) = written(FrameBatches::of_all(&frames));
    let expected = [
        ("time", "Timestamp(ns, \"UTC\")"),
        ("host", "Utf8"),
        ("rack", "Utf8"),
        ("x", "Float64"),
        ("n", "Float64"),
        ("u", "UInt64"),
        ("s", "Utf8"),
        ("ok", "Boolean"),
    ];
    assert_eq!(names(&schema), expected.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
    let [batch] = batches.as_slice() else { panic!("{} batches", batches.len()) };
    assert_eq!(batch.column(0).as_primitive::<TimestampNanosecondType>().values(), &[1, 2, 3]);
    assert_eq!(batch.column(1).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("a"), Some("a"), None]);
    assert_eq!(batch.column(2).as_string::<i32>().iter().collect::<Vec<_>>(), [None, None, Some("r")]);
    let x: Vec<Option<u64>> =
        batch.column(3).as_primitive::<Float64Type>().iter().map(|x| x.map(f64::to_bits)).collect();
    assert_eq!(x, [Some(1.5f64.to_bits()), Some(f64::NAN.to_bits()), None]);
    assert_eq!(batch.column(4).as_primitive::<Float64Type>().iter().collect::<Vec<_>>(), [Some(-1.0), None, Some(0.5)]);
    assert_eq!(
        batch.column(5).as_primitive::<UInt64Type>().iter().collect::<Vec<_>>(),
        [Some(u64::MAX), Some(0), None]
    );
    assert_eq!(batch.column(6).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("é"), None, None]);
    assert_eq!(batch.column(7).as_boolean().iter().collect::<Vec<_>>(), [None, None, Some(true)]);
}

#[test]
fn names_that_are_taken_get_another_and_types_that_differ_are_texts() {
    let frames = [
        frame(&[("time", "noon"), ("x", "label")], vec![1], vec![("x", Values::I64(vec![1]), None)]),
        frame(&[], vec![2], vec![("x", Values::Bool(vec![true]), None)]),
    ];
    let (schema, batches) = written(FrameBatches::of_all(&frames));
    assert_eq!(names(&schema).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["time", "time_", "x", "x_"]);
    assert_eq!(batches[0].column(3).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("1"), Some("true")]);
}

#[test]
fn columns_are_chosen_by_name() {
    let frames = [frame(&[("host", "a")], vec![1], vec![("n", Values::I64(vec![4]), None)])];
    let column = |name: &str, arrow_type, source| TableColumn { name: name.to_owned(), arrow_type, source };
    let columns = [
        column("N", ArrowType::I64, ColumnSource::Column("n".to_owned())),
        column("gone", ArrowType::F64, ColumnSource::Column("gone".to_owned())),
        column("host", ArrowType::Text, ColumnSource::Label("host".to_owned())),
        column("ts", ArrowType::Time, ColumnSource::Time),
    ];
    let (schema, batches) = written(FrameBatches::of_columns(&frames, &columns));
    assert_eq!(names(&schema).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["N", "gone", "host", "ts"]);
    assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().values(), &[4]);
    assert_eq!(batches[0].column(1).null_count(), 1);
    assert_eq!(batches[0].column(2).as_string::<i32>().value(0), "a");
    assert_eq!(batches[0].column(3).as_primitive::<TimestampNanosecondType>().values(), &[1]);
    let (_, none) = written(FrameBatches::of_columns([] as [Frame; 0], &columns));
    assert!(none.is_empty());
}

#[test]
fn batches_are_bounded_by_rows_and_by_texts() {
    const LONG_BYTES: usize = 3 << 20;
    let rows = BATCH_ROWS_MAX * 2 + 5;
    let many = [frame(&[("host", "a")], (0..rows as i64).collect(), vec![("x", Values::F64(vec![0.0; rows]), None)])];
    let (_, batches) = written(FrameBatches::of_all(&many));
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [BATCH_ROWS_MAX, BATCH_ROWS_MAX, 5]);
    let times: Vec<i64> = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_primitive::<TimestampNanosecondType>().values().to_vec())
        .collect();
    assert_eq!(times, many[0].timestamps_ns);

    let long = [frame(&[], (0..7).collect(), vec![("s", Values::Text(vec!["x".repeat(LONG_BYTES); 7]), None)])];
    let (_, batches) = written(FrameBatches::of_all(&long));
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [3, 3, 1]);
    // Labels count as well, once for each row.
    let label = "l".repeat(BATCH_TEXT_BYTES_MAX / 4);
    let labelled = [frame(&[("l", &label)], (0..7).collect(), vec![("x", Values::F64(vec![0.0; 7]), None)])];
    let (_, batches) = written(FrameBatches::of_all(&labelled));
    assert!(
        batches.iter().all(|batch| batch.num_rows() <= 5),
        "{:?}",
        batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>()
    );
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 7);

    // A reader in the same process may want all of it in one.
    let limits = BatchLimits { rows_max: rows, text_bytes_max: usize::MAX };
    let sizes = |frames: Vec<Frame>| {
        written(FrameBatches::of_all(frames).with_limits(limits))
            .1
            .iter()
            .map(RecordBatch::num_rows)
            .collect::<Vec<_>>()
    };
    assert_eq!((sizes(many.to_vec()), sizes(long.to_vec())), (vec![rows], vec![7]));
}

#[test]
fn rows_are_put_into_batches_one_by_one() {
    let mut builder = BatchBuilder::new([("time", ArrowType::Time), ("x", ArrowType::F64), ("s", ArrowType::Text)]);
    let mut batches = Vec::new();
    for row in 0..=BATCH_ROWS_MAX as i64 {
        let x = if row == 1 { Cell::Null } else { Cell::I64(row) };
        batches.extend(builder.push([Cell::I64(row), x, Cell::Bool(true)].into_iter()).unwrap());
    }
    batches.extend(builder.finish().unwrap());
    assert!(builder.finish().unwrap().is_none());
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [BATCH_ROWS_MAX, 1]);
    assert_eq!(
        batches[0].column(1).as_primitive::<Float64Type>().iter().take(3).collect::<Vec<_>>(),
        [Some(0.0), None, Some(2.0)]
    );
    assert_eq!(batches[1].column(2).as_string::<i32>().value(0), "true");
}

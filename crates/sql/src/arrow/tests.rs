use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder, StringDictionaryBuilder, StringViewBuilder};
use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, Date32Array, Decimal128Array, DurationMillisecondArray, Int16Array, ListArray, NullArray,
    StringViewArray, TimestampMillisecondArray, TimestampSecondArray, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Field;
use query::Interval;

use super::*;

fn relation(columns: &[(&str, SqlType)], rows: Vec<Vec<Value>>) -> Relation {
    Relation { columns: columns.iter().map(|(name, kind)| Column::new(*name, *kind)).collect(), rows }
}

#[test]
fn tables_come_back_as_they_were() {
    let columns = [
        ("time", SqlType::Timestamp),
        ("host", SqlType::Text),
        ("x", SqlType::Float),
        ("n", SqlType::Int),
        ("ok", SqlType::Bool),
    ];
    let rows = vec![
        vec![Value::Timestamp(5), Value::text("a,\"é"), Value::Float(1.5), Value::Int(i64::MIN), Value::Bool(true)],
        vec![Value::Null; 5],
        vec![Value::Timestamp(-1), Value::text(""), Value::Float(f64::NAN), Value::Int(7), Value::Bool(false)],
    ];
    let table = relation(&columns, rows);
    let batches: Vec<RecordBatch> = table.batches().map(Result::unwrap).collect();
    assert_eq!(batches.len(), 1);
    assert_eq!(relation_of_batch(&batches[0]).unwrap(), table);
    assert_eq!(relation(&columns, Vec::new()).batches().count(), 0);
}

#[test]
fn rows_as_they_were_read_give_the_batches_of_their_values() {
    let frame = |host: &str, columns: Vec<(&str, query::Values)>| {
        let column = |(name, values): (&str, query::Values)| query::FrameColumn {
            name: name.into(),
            cells: query::Column::new(values, Some(vec![true, false, true])),
        };
        let labels = model::Labels::from_pairs([("host", host)]).unwrap();
        query::Frame::new(labels, vec![1, 3, 5], columns.into_iter().map(column).collect())
    };
    for largest in [7, u64::MAX] {
        let numbers = || query::Values::U64(vec![1, 2, largest]);
        let texts = query::Values::Text(["x", "", "é"].map(str::to_owned).to_vec());
        let frames =
            || vec![frame("a", vec![("n", numbers()), ("s", texts.clone())]), frame("", vec![("n", numbers())])];
        let schema = query::TableSchema {
            name: "m".to_owned(),
            tags: vec!["host".to_owned()],
            fields: vec![("n".to_owned(), model::ValueType::U64), ("s".to_owned(), model::ValueType::String)],
            layout: None,
        };
        let table = || {
            let mut rows =
                query::ResultRows::new(frames(), crate::select::table_rows::shape_of(&schema)).in_time_order();
            rows.project(&[2, 0, 3, 1]);
            let columns =
                [("n", SqlType::Int), ("time", SqlType::Timestamp), ("s", SqlType::Text), ("host", SqlType::Text)];
            crate::TableRows { columns: columns.map(|(name, kind)| Column::new(name, kind)).to_vec(), rows }
        };
        let limits = BatchLimits { rows_max: 4, ..BatchLimits::default() };
        let expected: Vec<RecordBatch> =
            table().into_relation().into_batches().with_limits(limits).map(Result::unwrap).collect();
        assert_eq!(expected.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [4, 2]);
        assert_eq!(table().into_batches().with_limits(limits).map(Result::unwrap).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn columns_hold_what_their_values_need() {
    let hour = Value::Interval(Interval::of_ns(3_600_000_000_000));
    let cases = [
        (SqlType::Int, vec![Value::Int(1), Value::Float(1.8e19)], "Float64"),
        (SqlType::Unknown, vec![Value::Null, Value::Null], "Utf8"),
        (SqlType::Unknown, vec![Value::Null, Value::Timestamp(1)], "Timestamp(ns, \"UTC\")"),
        (SqlType::Interval, vec![hour], "Utf8"),
        (SqlType::Text, vec![Value::Int(1), Value::Bool(true)], "Utf8"),
    ];
    for (kind, values, expected) in cases {
        let table = relation(&[("x", kind)], values.iter().map(|value| vec![value.clone()]).collect());
        let batch = table.batches().next().unwrap().unwrap();
        assert_eq!(batch.schema().field(0).data_type().to_string(), expected, "{values:?}");
        for (row, value) in relation_of_batch(&batch).unwrap().rows.iter().zip(&values) {
            assert_eq!(row[0].to_string(), value.to_string(), "{values:?}");
        }
    }
}

#[test]
fn types_of_others_are_read() {
    let mut words = StringDictionaryBuilder::<Int8Type>::new();
    words.append_value("a");
    words.append_null();
    words.append_value("a");
    let mut lists = ListBuilder::new(Float64Builder::new());
    lists.append_value([Some(1.0), None]);
    lists.append_value([]);
    let hour = Value::Interval(Interval::of_ns(3_600_000_000_000));
    let cases: Vec<(ArrayRef, SqlType, Vec<Value>)> = vec![
        (Arc::new(Int16Array::from(vec![Some(-3), None])), SqlType::Int, vec![Value::Int(-3), Value::Null]),
        (
            Arc::new(UInt64Array::from(vec![4, u64::MAX])),
            SqlType::Int,
            vec![Value::Int(4), Value::Float(u64::MAX as f64)],
        ),
        (Arc::new(StringViewArray::from(vec![Some("x"), None])), SqlType::Text, vec![Value::text("x"), Value::Null]),
        (Arc::new(words.finish()), SqlType::Text, vec![Value::text("a"), Value::Null, Value::text("a")]),
        (Arc::new(lists.finish()), SqlType::Text, vec![Value::text("{1,NULL}"), Value::text("{}")]),
        (Arc::new(Date32Array::from(vec![1])), SqlType::Timestamp, vec![Value::Timestamp(86_400_000_000_000)]),
        (Arc::new(TimestampMillisecondArray::from(vec![2])), SqlType::Timestamp, vec![Value::Timestamp(2_000_000)]),
        (Arc::new(DurationMillisecondArray::from(vec![3_600_000])), SqlType::Interval, vec![hour]),
        (
            Arc::new(Decimal128Array::from(vec![1250]).with_precision_and_scale(10, 3).unwrap()),
            SqlType::Float,
            vec![Value::Float(1.25)],
        ),
        (Arc::new(NullArray::new(1)), SqlType::Unknown, vec![Value::Null]),
    ];
    for (array, kind, expected) in cases {
        let batch = RecordBatch::try_from_iter([("x", array)]).unwrap();
        let found = relation_of_batch(&batch).unwrap();
        assert_eq!(found.columns, [Column::new("x", kind)]);
        assert_eq!(found.rows.into_iter().flatten().collect::<Vec<_>>(), expected);
    }
    let late: ArrayRef = Arc::new(TimestampSecondArray::from(vec![i64::MAX]));
    let batch = RecordBatch::try_from_iter([("when", late)]).unwrap();
    let error = relation_of_batch(&batch).unwrap_err().to_string();
    assert_eq!(error, "column \"when\": a time lies beyond the years 1678 to 2262, which nanoseconds reach");
}

/// What rows take is known before there are rows, so that few bytes that stand for many can be refused.
#[test]
fn the_extent_of_rows_is_told_before() {
    const CELLS: usize = 1000;
    let long = "x".repeat(1000);
    let list = |items: &ArrayRef| -> ArrayRef {
        let field = Arc::new(Field::new("item", items.data_type().clone(), true));
        Arc::new(ListArray::new(field, OffsetBuffer::from_lengths([items.len()]), items.clone(), None))
    };
    let nulls: ArrayRef = Arc::new(NullArray::new(CELLS));
    let mut words = StringDictionaryBuilder::<Int8Type>::new();
    (0..CELLS).for_each(|_| drop(words.append(&long)));
    let words: ArrayRef = Arc::new(words.finish());
    let mut views = StringViewBuilder::new().with_deduplicate_strings();
    (0..CELLS).for_each(|_| views.append_value(&long));
    let views: ArrayRef = Arc::new(views.finish());
    let text_bytes = |value: &Value| if let Value::Text(text) = value { text.len() } else { 0 };
    for (array, is_shared) in [
        (nulls.clone(), true),
        (words.clone(), true),
        (views.clone(), false),
        (list(&nulls), false),
        (list(&views), false),
        (list(&list(&words)), false),
    ] {
        let kind = array.data_type().clone();
        let batch = RecordBatch::try_from_iter([("x", array)]).unwrap();
        let (cells, told_bytes) = extent_of(&batch);
        let rows = relation_of_batch(&batch).unwrap().rows;
        assert_eq!(cells, rows.len(), "{kind}");
        let bytes: usize = rows.iter().flatten().map(text_bytes).sum();
        let good = if is_shared { told_bytes < 2 * long.len() } else { (bytes..bytes * 20).contains(&told_bytes) };
        assert!(good, "{kind}: {told_bytes} for {bytes}");
    }
    let endless: ArrayRef = Arc::new(NullArray::new(1 << 62));
    let batch = RecordBatch::try_from_iter([("x", endless.clone()), ("y", endless)]).unwrap();
    assert_eq!(extent_of(&batch), (1 << 63, 0));
}

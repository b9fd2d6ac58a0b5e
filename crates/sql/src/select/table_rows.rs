//! Rows of a table as they were read: values are made of them only where something is computed.

use std::cmp::Ordering;

use query::{ResultRows, RowColumn, RowOrder, RowShape, RowValue, TableSchema, Value};

use crate::relation::{Column, Relation};
use crate::select::order::Order;

/// The shape of a table's rows: its time, tags and fields, and the hidden number of their series.
pub(crate) fn shape_of(schema: &TableSchema) -> RowShape {
    let (tags, fields) = ((0..schema.tags.len()).map(RowColumn::Tag), (0..schema.fields.len()).map(RowColumn::Field));
    let columns = std::iter::once(RowColumn::Time).chain(tags).chain(fields).chain([RowColumn::Series]).collect();
    let fields = schema.fields.iter().map(|(name, _)| name.clone()).collect();
    RowShape { tags: schema.tags.clone(), fields, columns }
}

/// Values of a row of a table.
pub(crate) const fn width_of(schema: &TableSchema) -> usize {
    schema.tags.len() + schema.fields.len() + 2
}

/// Puts rows in an order, those that are equal as they were; whether it is one of times and tags alone, otherwise they stay as they are.
pub(crate) fn put_in_order(rows: &mut ResultRows, by: &[Order]) -> bool {
    let keys = by.iter().map(|by| order_of(rows, by)).collect::<Option<Vec<RowOrder>>>();
    keys.map(|keys| rows.sort(&keys)).is_some()
}

fn order_of(rows: &ResultRows, by: &Order) -> Option<RowOrder> {
    let column = by.key.column()?;
    let value = |series: u32| match rows.columns().get(column)? {
        RowColumn::Tag(_) => Some(rows.tag(series, column).map_or(Value::Null, Value::text)),
        RowColumn::Series => Some(Value::Int(i64::from(series))),
        RowColumn::Time | RowColumn::Field(_) | RowColumn::FieldOrTag(..) => None,
    };
    if rows.columns().get(column)? == &RowColumn::Time {
        return Some(RowOrder::Time { is_descending: by.is_descending });
    }
    let values = (0..).take(rows.series()).map(value).collect::<Option<Vec<Value>>>()?;
    let mut sorted: Vec<(&Value, usize)> = values.iter().zip(0..).collect();
    sorted.sort_by(|(a, _), (b, _)| by.compare(a, b));
    let (mut ranks, mut rank) = (vec![0; values.len()], 0);
    for (place, (value, number)) in sorted.iter().enumerate() {
        let before = place.checked_sub(1).and_then(|before| sorted.get(before));
        rank += u32::from(before.is_some_and(|(before, _)| by.compare(before, value) != Ordering::Equal));
        if let Some(of_series) = ranks.get_mut(*number) {
            *of_series = rank;
        }
    }
    Some(RowOrder::Rank(ranks))
}

/// The rows with their values.
pub(crate) fn values_of(rows: &ResultRows) -> Vec<Vec<Value>> {
    rows.values(|value| match value {
        RowValue::Time(ns) => Value::Timestamp(ns),
        RowValue::Cell(cell) => Value::from(cell).signed(),
    })
}

/// An answer whose rows are those of a table, as they were read.
#[derive(Debug)]
pub struct TableRows {
    /// Names and types of the columns that are shown.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: ResultRows,
}

impl TableRows {
    /// The table with values.
    pub fn into_relation(self) -> Relation {
        Relation { rows: values_of(&self.rows), columns: self.columns }
    }
}

#[cfg(test)]
mod tests {
    use model::{Labels, ValueType};
    use query::{Frame, FrameColumn, Values};

    use super::*;
    use crate::expression::{Bound, Environment};
    use query::SqlType;

    fn frame(host: &str, columns: &[(&str, Values)]) -> Frame {
        let column = |(name, values): &(&str, Values)| FrameColumn {
            name: (*name).into(),
            cells: query::Column::of_values(values.clone()),
        };
        let labels = Labels::from_pairs([("host", host)]).unwrap_or_else(|_| Labels::empty());
        Frame::new(labels, vec![1, 3], columns.iter().map(column).collect())
    }

    /// A tag and a field that a series does not have are null; rows of one time keep the order of their series.
    #[test]
    fn values_are_those_of_the_frames() {
        let schema = TableSchema {
            name: "m".to_owned(),
            tags: vec!["host".to_owned()],
            fields: vec![("a".to_owned(), ValueType::F64), ("b".to_owned(), ValueType::I64)],
            layout: None,
        };
        let floats = |values: [f64; 2]| ("a", Values::F64(values.to_vec()));
        let frames =
            vec![frame("", &[("b", Values::I64(vec![7, 8])), floats([0.5, 1.5])]), frame("x", &[floats([2.5, 3.5])])];
        let read = ResultRows::new(frames, shape_of(&schema)).in_time_order();
        let (float, int, time) = (Value::Float, Value::Int, Value::Timestamp);
        let rows = [
            [time(1), Value::Null, float(0.5), int(7), int(0)],
            [time(1), Value::text("x"), float(2.5), Value::Null, int(1)],
            [time(3), Value::Null, float(1.5), int(8), int(0)],
            [time(3), Value::text("x"), float(3.5), Value::Null, int(1)],
        ];
        let columns = ["b", "time"].map(|name| Column::new(name, SqlType::Int)).to_vec();
        let mut shown = TableRows { columns, rows: read };
        assert_eq!(values_of(&shown.rows), rows);
        shown.rows.project(&[3, 0]);
        shown.rows.limit(query::RowLimit { skip: 2, rows: Some(7) });
        assert_eq!(shown.into_relation().rows, [[int(8), time(3)], [Value::Null, time(3)]]);
    }

    /// Rows of many series in any order of times and tags are those whose values are sorted.
    #[test]
    fn rows_are_put_in_order_as_values_are() {
        let schema = TableSchema {
            name: "m".to_owned(),
            tags: vec!["host".to_owned()],
            fields: vec![("a".to_owned(), ValueType::I64)],
            layout: None,
        };
        let mut chance = 7u64;
        let mut next = |below: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) % below
        };
        let options = |is_descending: bool, nulls_first: Option<bool>| sqlparser::ast::OrderByOptions {
            sort: is_descending.then_some(sqlparser::ast::OrderBySort::Desc),
            nulls_first,
        };
        let by = |place: usize, is_descending: bool| Order::new(Bound::Column(place), &options(is_descending, None));
        let environment = Environment {
            now_ns: 0,
            time_zone: jiff::tz::TimeZone::UTC,
            manner: crate::context::Manner::Postgres,
            database: String::new(),
            user: String::new(),
            settings: std::sync::Arc::default(),
            changed_settings: None,
        };
        for round in 0..60 {
            // Of all series at the same times, at some of them, or anywhere.
            let sparse = round % 3;
            let frames: Vec<Frame> = (0..=next(6))
                .map(|number| {
                    let mut times: Vec<i64> = match sparse {
                        0 => (0..20).collect(),
                        1 => (0..20).filter(|_| number == 0 || next(2) == 0).collect(),
                        _ => (0..=next(20)).map(|_| next(1000) as i64).collect(),
                    };
                    times.sort_unstable();
                    times.dedup();
                    let host = ["b", "", "a", "b"][next(4) as usize];
                    let values = Values::I64(times.iter().map(|time| time * 10 + number as i64).collect());
                    let mut series = frame(host, &[("a", values)]);
                    series.timestamps_ns = times;
                    series
                })
                .collect();
            let orders: [Vec<Order>; 7] = [
                vec![],
                vec![by(0, false)],
                vec![by(0, true)],
                vec![by(0, false), by(1, false)],
                vec![by(1, true), by(0, false)],
                vec![by(0, false), by(3, true)],
                vec![by(1, false), by(3, false), by(0, true)],
            ];
            for order in &orders {
                let read = || ResultRows::new(frames.clone(), shape_of(&schema)).in_time_order();
                let (mut ordered, as_read) = (read(), values_of(&read()));
                let expected = crate::select::order::sort(as_read, order, &environment, &|_| Ok(())).unwrap();
                assert!(put_in_order(&mut ordered, order));
                assert_eq!(values_of(&ordered), expected, "{order:?}");
            }
            let mut read = ResultRows::new(frames, shape_of(&schema)).in_time_order();
            assert!(!put_in_order(&mut read, &[by(0, false), by(2, false)]), "by a field");
        }
    }
}

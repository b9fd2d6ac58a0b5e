//! Rows of tables in records of the log: the fields of a group at one time of one request.

use std::borrow::Cow;
use std::collections::HashMap;

use db::{LogRecord, LogSample, LogValue};
use model::{Labels, ValueType, is_stale_bits};
use query::{TableSchema, Value};

use crate::series_filter::SeriesFilter;

/// A row in the log.
pub(crate) struct Row<'a> {
    /// Its samples, all of one table, with the same tags and time.
    pub(crate) samples: Cow<'a, [LogSample]>,
}

impl Row<'_> {
    pub(crate) fn table(&self) -> &str {
        self.samples.first().map_or("", |sample| &sample.series.table)
    }

    pub(crate) fn tags(&self) -> Labels {
        self.samples.first().map_or_else(Labels::empty, |sample| sample.series.tags.clone())
    }

    pub(crate) fn timestamp_ns(&self) -> i64 {
        self.samples.first().map_or(0, |sample| sample.timestamp_ns)
    }

    /// Fields with values: not those of stale markers.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &LogValue)> {
        let fields = self.samples.iter().map(|sample| (&*sample.series.field, &sample.value));
        fields.filter(|(_, value)| !matches!(value, LogValue::Float(value) if is_stale_bits(*value)))
    }

    /// Bytes that it takes as text, about.
    pub(crate) fn text_bytes(&self) -> usize {
        let values = self.samples.iter().map(|sample| match &sample.value {
            LogValue::Text(text) => text.len(),
            _ => 24,
        });
        self.tags().size_bytes() + values.sum::<usize>() + self.samples.len() * 16
    }
}

/// The rows of a record, with the samples that a filter lets through; one without any has no samples.
pub(crate) fn filtered_rows<'a>(record: &'a LogRecord, filter: &'a mut SeriesFilter) -> impl Iterator<Item = Row<'a>> {
    rows(record).map(|row| {
        if row.samples.iter().all(|sample| filter.has(&sample.series)) {
            return row;
        }
        let samples = row.samples.iter().filter(|sample| filter.has(&sample.series)).cloned().collect();
        Row { samples: Cow::Owned(samples) }
    })
}

/// The rows of a record.
pub(crate) fn rows(record: &LogRecord) -> impl Iterator<Item = Row<'_>> {
    let is_same = |a: &LogSample, b: &LogSample| {
        a.timestamp_ns == b.timestamp_ns && a.series.table == b.series.table && a.series.tags == b.series.tags
    };
    record.samples.chunk_by(is_same).map(|samples| Row { samples: Cow::Borrowed(samples) })
}

/// A value as SQL has it; `None` for native histograms, which tables do not have.
pub(crate) fn sql_value(value: &LogValue) -> Option<Value> {
    Some(match value {
        LogValue::Float(value) => Value::Float(*value),
        LogValue::Integer(value) => Value::Int(*value),
        LogValue::Unsigned(value) => Value::Unsigned(*value),
        LogValue::Bool(value) => Value::Bool(*value),
        LogValue::Text(text) => Value::Text(text.clone()),
        LogValue::Histogram(_) => return None,
    })
}

/// The type of a value; `None` for native histograms, which tables do not have.
const fn value_type(value: &LogValue) -> Option<ValueType> {
    Some(match value {
        LogValue::Float(_) => ValueType::F64,
        LogValue::Integer(_) => ValueType::I64,
        LogValue::Unsigned(_) => ValueType::U64,
        LogValue::Bool(_) => ValueType::Bool,
        LogValue::Text(_) => ValueType::String,
        LogValue::Histogram(_) => return None,
    })
}

/// Rows as tables have them: time, tags, fields.
pub(crate) struct RowShape<'a> {
    schema: &'a TableSchema,
    /// The column of each field.
    fields: HashMap<&'a str, usize>,
}

impl<'a> RowShape<'a> {
    pub(crate) fn new(schema: &'a TableSchema) -> Self {
        let first = 1 + schema.tags.len();
        let fields =
            schema.fields.iter().enumerate().map(|(index, (name, _))| (name.as_str(), first + index)).collect();
        Self { schema, fields }
    }

    /// Returns whether all columns of a row are known, with the types of their values.
    pub(crate) fn has_columns_of(&self, row: &Row<'_>) -> bool {
        let has_tag = |name: &str| self.schema.tags.binary_search_by(|tag| tag.as_str().cmp(name)).is_ok();
        let tags = row.tags();
        tags.iter().all(|(name, _)| has_tag(name))
            && row.fields().all(|(name, value)| value_type(value).is_none_or(|found| self.type_of(name) == Some(found)))
    }

    fn type_of(&self, field: &str) -> Option<ValueType> {
        let index = self.fields.get(field)?.checked_sub(1 + self.schema.tags.len())?;
        self.schema.fields.get(index).map(|(_, value_type)| *value_type)
    }

    /// The values of a row.
    pub(crate) fn values(&self, row: &Row<'_>) -> Vec<Value> {
        let mut values = vec![Value::Null; 1 + self.schema.tags.len() + self.schema.fields.len()];
        let tags = row.tags();
        let of_tags = self.schema.tags.iter().map(|name| tags.get(name).map_or(Value::Null, Value::text));
        let time = std::iter::once(Value::Timestamp(row.timestamp_ns()));
        values.iter_mut().zip(time.chain(of_tags)).for_each(|(cell, value)| *cell = value);
        for (name, value) in row.fields() {
            let cell = self.fields.get(name).and_then(|index| values.get_mut(*index));
            if let (Some(cell), Some(value)) = (cell, sql_value(value)) {
                *cell = value.signed();
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use db::LogSeries;
    use model::STALE_NAN_BITS;

    use super::*;

    fn sample(host: &str, field: &str, timestamp_ns: i64, value: LogValue) -> LogSample {
        let tags = Labels::from_pairs([("host", host)]).unwrap();
        let labels = tags.with("__name__", &format!("m_{field}"));
        let series = LogSeries { database: "d".into(), labels, table: "m".into(), tags, field: field.into() };
        LogSample { series: Arc::new(series), timestamp_ns, value }
    }

    #[test]
    fn rows_are_the_fields_of_one_time() {
        let samples = vec![
            sample("a", "v", 1, LogValue::Float(0.5)),
            sample("a", "w", 1, LogValue::Unsigned(7)),
            sample("a", "v", 2, LogValue::Float(f64::from_bits(STALE_NAN_BITS))),
            sample("b", "w", 2, LogValue::Unsigned(8)),
        ];
        let record = LogRecord { sequence: 1, samples, ..LogRecord::default() };
        let schema = TableSchema {
            name: "m".to_owned(),
            tags: vec!["host".to_owned()],
            fields: vec![("v".to_owned(), ValueType::F64), ("w".to_owned(), ValueType::U64)],
            layout: None,
        };
        let shape = RowShape::new(&schema);
        let values: Vec<Vec<Value>> = rows(&record).map(|row| shape.values(&row)).collect();
        let (time, text, null) = (Value::Timestamp, Value::text, Value::Null);
        let expected = [
            vec![time(1), text("a"), Value::Float(0.5), Value::Int(7)],
            vec![time(2), text("a"), null.clone(), null.clone()],
            vec![time(2), text("b"), null, Value::Int(8)],
        ];
        assert_eq!(values, expected);
        let other = sample("a", "new", 1, LogValue::Bool(true));
        assert!(!shape.has_columns_of(&Row { samples: Cow::Owned(vec![other]) }));
        let retyped = sample("a", "v", 1, LogValue::Text("x".into()));
        assert!(!shape.has_columns_of(&Row { samples: Cow::Owned(vec![retyped]) }));
        assert!(rows(&record).all(|row| shape.has_columns_of(&row)));
    }
}

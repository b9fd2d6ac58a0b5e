//! `/api/v1/export/csv`: a row for each sample, with the columns that the asker names, as VictoriaMetrics has it.

use std::fmt::Write;

use query::{Budget, QueryError, Series};

use crate::http::json;

const VALUE: &str = "__value__";
const TIME: &str = "__timestamp__";

const NS_PER_MS: i128 = 1_000_000;

/// Columns of one row, at most.
const COLUMNS_MAX: usize = 1_000;

/// Bytes that a number and what stands between columns take, at most: the longest float has some 330 digits, but those are rare.
const CELL_BYTES: usize = 32;

/// What a column holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Column {
    Value,
    Time(TimeForm),
    /// A label's value; nothing where a series has none.
    Label(String),
}

/// How times are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeForm {
    Seconds,
    Milliseconds,
    Nanoseconds,
    Rfc3339,
}

/// The columns of a row, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns(Vec<Column>);

impl Columns {
    /// Reads the parameter `format`: names of labels, `__value__`, and `__timestamp__` with a form behind a colon, by commas.
    pub(super) fn parse(format: &str) -> Result<Self, String> {
        if format.is_empty() {
            return Err(format!("names the columns, by commas: labels, {VALUE}, {TIME}"));
        }
        if format.split(',').count() > COLUMNS_MAX {
            return Err(format!("has more than {COLUMNS_MAX} columns"));
        }
        let column = |name: &str| match name.strip_prefix(TIME).map(|form| form.strip_prefix(':').unwrap_or(form)) {
            Some("" | "unix_ms") => Ok(Column::Time(TimeForm::Milliseconds)),
            Some("unix_s") => Ok(Column::Time(TimeForm::Seconds)),
            Some("unix_ns") => Ok(Column::Time(TimeForm::Nanoseconds)),
            Some("rfc3339") => Ok(Column::Time(TimeForm::Rfc3339)),
            Some(form) => Err(format!("{TIME} as {form:?}: unix_s, unix_ms, unix_ns and rfc3339 are known")),
            None if name == VALUE => Ok(Column::Value),
            None if name.is_empty() => Err("has a column without a name".to_owned()),
            None => Ok(Column::Label(name.to_owned())),
        };
        format.split(',').map(column).collect::<Result<_, _>>().map(Self)
    }

    /// Rows of all samples but native histograms, which are no one value. What they take is charged before it is written.
    pub(super) fn write(&self, series: &[Series], budget: &Budget) -> Result<Vec<u8>, QueryError> {
        let mut text = String::new();
        for series in series {
            budget.check()?;
            let labels: Vec<String> = self.0.iter().map(|column| label_cell(column, series)).collect();
            let row_bytes = labels.iter().map(|label| label.len() + CELL_BYTES).sum::<usize>();
            budget.hold_bytes((row_bytes * series.values.len()) as u64)?;
            for (time_ms, value) in series.timestamps_ms.iter().zip(&series.values) {
                for (place, (column, label)) in self.0.iter().zip(&labels).enumerate() {
                    text.push_str(if place == 0 { "" } else { "," });
                    match column {
                        Column::Value => text.push_str(&json::number(*value)),
                        Column::Time(form) => form.push(*time_ms, &mut text),
                        Column::Label(_) => text.push_str(label),
                    }
                }
                text.push('\n');
            }
        }
        Ok(text.into_bytes())
    }
}

impl TimeForm {
    fn push(self, time_ms: i64, text: &mut String) {
        let parsed = jiff::Timestamp::from_millisecond(time_ms);
        // Writing to memory does not fail.
        let _ = match (self, parsed) {
            (Self::Seconds, _) => write!(text, "{}", time_ms.div_euclid(1000)),
            (Self::Nanoseconds, _) => write!(text, "{}", i128::from(time_ms) * NS_PER_MS),
            (Self::Rfc3339, Ok(time)) => write!(text, "{time}"),
            // Years beyond 9999 have no such form.
            (Self::Milliseconds, _) | (Self::Rfc3339, Err(_)) => write!(text, "{time_ms}"),
        };
    }
}

/// What a column holds in all rows of a series; in quotes where it has to be.
fn label_cell(column: &Column, series: &Series) -> String {
    let Column::Label(name) = column else { return String::new() };
    let value = series.labels.get(name).unwrap_or_default();
    if value.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", value.replace('"', "\"\""))
    } else {
        value.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use model::Labels;

    use super::*;

    #[test]
    fn rows_have_the_columns_that_are_named() {
        let series = Series {
            labels: Labels::from_pairs([("__name__", "up"), ("job", "a,\"b\"")]).unwrap(),
            timestamps_ms: std::sync::Arc::new(vec![-1, 1_500_000_000_250]),
            values: vec![0.5, f64::NEG_INFINITY],
            ..Series::empty()
        };
        let format = "__name__,job,other,__value__,__timestamp__,__timestamp__:unix_s,__timestamp__:unix_ns,__timestamp__:rfc3339";
        let text = Columns::parse(format).unwrap().write(&[series], &Budget::new(0)).unwrap();
        let expected = "up,\"a,\"\"b\"\"\",,0.5,-1,-1,-1000000,1969-12-31T23:59:59.999Z\n\
            up,\"a,\"\"b\"\"\",,-Inf,1500000000250,1500000000,1500000000250000000,2017-07-14T02:40:00.25Z\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn what_is_no_format_is_told() {
        for format in ["", "a,,b", "__timestamp__:custom:2006", "__timestamp__x", &"a,".repeat(COLUMNS_MAX)] {
            assert!(Columns::parse(format).is_err(), "{format}");
        }
    }
}

//! Columns by their places, as VictoriaMetrics's `format` says them: `1:label:station,2:metric:level,3:time:unix_s`
//! (<https://docs.victoriametrics.com/victoriametrics/#how-to-import-csv-data>).

use std::collections::BTreeSet;

use super::TimeFormat;
use super::layout::GoLayout;

/// Places that a format may name.
const PLACES_MAX: usize = 1 << 16;

/// What columns hold, by their places; of a file without a header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CsvFormat {
    /// Columns that become labels: place, counted from 0, and the label's name.
    pub(super) labels: Vec<(usize, String)>,
    /// Columns of values: place and the metric's name.
    pub(super) metrics: Vec<(usize, String)>,
    /// The column of the time and how it is written; without one, points get the time at which they arrive.
    pub(super) time: Option<(usize, TimeFormat)>,
    /// Labels that all rows get.
    pub(super) extra_labels: Vec<(String, String)>,
}

impl CsvFormat {
    /// Reads a format; fails with what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut format = Self::default();
        let mut places = BTreeSet::new();
        for entry in text.split(',') {
            let place = format.add(entry).map_err(|reason| format!("{entry:?}: {reason}"))?;
            if !places.insert(place) {
                return Err(format!("{entry:?}: column {} stands there twice", place + 1));
            }
        }
        if format.metrics.is_empty() {
            return Err("no column is a metric: name one, as in 2:metric:level".to_owned());
        }
        Ok(format)
    }

    /// Adds labels that all rows get; a column of the same name wins.
    #[must_use]
    pub fn with_labels(mut self, mut labels: Vec<(String, String)>) -> Self {
        labels.retain(|(name, _)| !self.labels.iter().any(|(_, column)| column == name));
        self.extra_labels = labels;
        self
    }

    /// Adds an entry; the place of its column.
    fn add(&mut self, entry: &str) -> Result<usize, String> {
        let mut parts = entry.splitn(3, ':');
        let (Some(place), Some(kind), Some(context)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("it is not place:type:context, as in 2:metric:level".to_owned());
        };
        let place: usize = place.trim().parse().unwrap_or_default();
        if !(1..=PLACES_MAX).contains(&place) {
            return Err(format!("a column's place is from 1 to {PLACES_MAX}"));
        }
        let named = || {
            let name = (!context.is_empty()).then(|| context.to_owned());
            name.ok_or_else(|| format!("a {kind} has a name"))
        };
        match kind {
            "metric" => self.metrics.push((place - 1, named()?)),
            "label" => self.labels.push((place - 1, named()?)),
            "time" if self.time.is_some() => return Err("there is a column of the time already".to_owned()),
            "time" => self.time = Some((place - 1, time_format(context)?)),
            _ => return Err(format!("type {kind:?} is none of metric, label, time")),
        }
        Ok(place - 1)
    }
}

fn time_format(name: &str) -> Result<TimeFormat, String> {
    match name {
        "unix_s" => Ok(TimeFormat::Seconds),
        "unix_ms" => Ok(TimeFormat::Milliseconds),
        "unix_ns" => Ok(TimeFormat::Nanoseconds),
        "rfc3339" => Ok(TimeFormat::Rfc3339),
        _ => match name.strip_prefix("custom:") {
            Some(layout) => GoLayout::parse(layout).map(TimeFormat::Custom),
            None => Err(format!("time {name:?} is none of unix_s, unix_ms, unix_ns, rfc3339, custom:layout")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read_or_told_wrong() {
        let format = CsvFormat::parse("3:time:unix_ms,1:label:station,5:metric:level:m").unwrap();
        assert_eq!(format.labels, [(0, "station".to_owned())]);
        assert_eq!(format.metrics, [(4, "level:m".to_owned())]);
        assert_eq!(format.time, Some((2, TimeFormat::Milliseconds)));
        let format = format.with_labels(vec![("station".to_owned(), "x".to_owned()), ("a".to_owned(), "b".to_owned())]);
        assert_eq!(format.extra_labels, [("a".to_owned(), "b".to_owned())]);
        for (text, reason) in [
            ("", "\"\": it is not place:type:context, as in 2:metric:level"),
            ("1:metric", "\"1:metric\": it is not place:type:context, as in 2:metric:level"),
            ("1:label:a", "no column is a metric: name one, as in 2:metric:level"),
            ("0:metric:a", "\"0:metric:a\": a column's place is from 1 to 65536"),
            ("x:metric:a", "\"x:metric:a\": a column's place is from 1 to 65536"),
            ("65537:metric:a", "\"65537:metric:a\": a column's place is from 1 to 65536"),
            ("1:metric:", "\"1:metric:\": a metric has a name"),
            ("1:metric:a,1:label:b", "\"1:label:b\": column 1 stands there twice"),
            ("1:value:a", "\"1:value:a\": type \"value\" is none of metric, label, time"),
            ("1:time:unix_s,2:time:unix_s", "\"2:time:unix_s\": there is a column of the time already"),
            ("1:time:s", "\"1:time:s\": time \"s\" is none of unix_s, unix_ms, unix_ns, rfc3339, custom:layout"),
        ] {
            assert_eq!(CsvFormat::parse(text).unwrap_err(), reason, "{text}");
        }
    }
}

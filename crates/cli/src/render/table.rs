//! Answers as tables.

use std::collections::BTreeSet;

use comfy_table::{ContentArrangement, Table, presets};
use jiff::Timestamp;

use crate::render::axis;
use crate::render::series::Series;

/// Rows that a table shows: more are better asked for as CSV.
const ROWS_MAX: usize = 1000;

/// Labels that have columns of their own; more are written as a series in one.
const LABEL_COLUMNS_MAX: usize = 5;

/// A line per sample: time, labels, value rounded for people.
pub(crate) fn render(series: &[Series], width: u16) -> String {
    if series.is_empty() {
        return "no series".to_owned();
    }
    let names = label_names(series);
    let is_one_column = names.len() > LABEL_COLUMNS_MAX;
    let columns: Vec<&str> = if is_one_column { vec!["series"] } else { names.iter().copied().collect() };
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(["time"].into_iter().chain(columns).chain(["value"]));
    let total: usize = series.iter().map(|one| one.samples.len()).sum();
    for (one, (seconds, value)) in samples(series).take(ROWS_MAX) {
        let labels: Vec<String> = if is_one_column {
            vec![one.name()]
        } else {
            names.iter().map(|name| label(one, name).to_owned()).collect()
        };
        table.add_row([time(seconds)].into_iter().chain(labels).chain([rounded(value)]));
    }
    let more = if total > ROWS_MAX {
        format!("\nthe first {ROWS_MAX} of {total} samples; --format csv shows all")
    } else {
        String::new()
    };
    format!("{table}{more}")
}

/// Series as CSV, times in Unix seconds.
pub(crate) fn csv(series: &[Series]) -> String {
    let names = label_names(series);
    let line = |cells: Vec<String>| cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",");
    let header = ["time"].into_iter().chain(names.iter().copied()).chain(["value"]).map(str::to_owned).collect();
    let mut lines = vec![line(header)];
    for (one, (seconds, value)) in samples(series) {
        let labels = names.iter().map(|name| label(one, name).to_owned());
        lines.push(line([seconds.to_string()].into_iter().chain(labels).chain([value.to_owned()]).collect()));
    }
    lines.join("\n")
}

/// A number for people; what is none as it is.
fn rounded(value: &str) -> String {
    value.parse().map_or_else(
        |_| value.to_owned(),
        |number: f64| if number.is_finite() { axis::number(number) } else { value.to_owned() },
    )
}

fn samples(series: &[Series]) -> impl Iterator<Item = (&Series, (f64, &str))> {
    series.iter().flat_map(|one| one.samples.iter().map(move |(seconds, value)| (one, (*seconds, value.as_str()))))
}

fn label_names(series: &[Series]) -> BTreeSet<&str> {
    series.iter().flat_map(|one| one.labels.iter().map(|(name, _)| name.as_str())).collect()
}

fn label<'a>(series: &'a Series, name: &str) -> &'a str {
    series.labels.iter().find(|(candidate, _)| candidate == name).map_or("", |(_, value)| value)
}

fn time(seconds: f64) -> String {
    Timestamp::from_millisecond((seconds * 1000.0) as i64).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

/// RFC 4180.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

//! What an experiment measured, as a table for people or JSON for programs.

use std::process::ExitCode;

use comfy_table::{Table, presets};
use serde_json::{Map, Value, json};
use textplots::{Chart, Plot, Shape};

/// A case of an experiment: named figures. Units are the ends of their names.
pub(crate) struct Case {
    name: String,
    figures: Vec<(String, f64)>,
}

impl Case {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), figures: Vec::new() }
    }

    /// Adds a figure.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64) -> &mut Self {
        self.figures.push((name.into(), value));
        self
    }

    /// Adds a whole number.
    pub(crate) fn count(&mut self, name: impl Into<String>, value: u64) -> &mut Self {
        self.add(name, value as f64)
    }

    /// A figure that was added.
    pub(crate) fn get(&self, name: &str) -> f64 {
        self.figures.iter().find(|figure| figure.0 == name).map_or(f64::NAN, |figure| figure.1)
    }

    fn to_json(&self) -> Value {
        let figures: Map<String, Value> =
            self.figures.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        json!({ "case": self.name, "figures": figures })
    }
}

/// Figures over time, in the order of their columns.
#[derive(Default)]
pub(crate) struct Course {
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<f64>>,
}

impl Course {
    pub(super) fn new(columns: &[&'static str]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    fn to_json(&self) -> Value {
        json!({ "columns": self.columns, "rows": self.rows })
    }

    /// A column against the first one.
    fn plot(&self, column: usize) -> String {
        let value = |row: &Vec<f64>, column: usize| row.get(column).copied().unwrap_or_default() as f32;
        let points: Vec<(f32, f32)> = self.rows.iter().map(|row| (value(row, 0), value(row, column))).collect();
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return String::new();
        };
        let mut chart = Chart::new(160, 48, first.0, last.0.max(first.0 + 1.0));
        let shape = Shape::Lines(&points);
        let chart = chart.lineplot(&shape);
        chart.axis();
        chart.figures();
        let name = |column: usize| self.columns.get(column).copied().unwrap_or_default();
        format!("{} over {}\n{chart}\n", name(column), name(0))
    }
}

/// What an experiment measured.
pub(crate) struct Report {
    pub(crate) experiment: &'static str,
    pub(crate) cases: Vec<Case>,
    /// Figures over time by the case's name, and which column of them is worth a plot.
    pub(crate) courses: Vec<(String, Course, Option<usize>)>,
}

impl Report {
    pub(crate) fn new(experiment: &'static str) -> Self {
        Self { experiment, cases: Vec::new(), courses: Vec::new() }
    }

    /// Prints it; the exit code of an experiment that went through.
    pub(crate) fn print(&self, as_json: bool) -> Result<ExitCode, String> {
        if as_json {
            let courses: Map<String, Value> =
                self.courses.iter().map(|(name, course, _)| (name.clone(), course.to_json())).collect();
            let cases: Vec<Value> = self.cases.iter().map(Case::to_json).collect();
            let report = json!({ "experiment": self.experiment, "cases": cases, "courses": courses });
            println!("{}", serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?);
        } else {
            for (name, course, plotted) in &self.courses {
                if let Some(column) = plotted {
                    println!("{name}: {}", course.plot(*column));
                }
            }
            println!("{}", self.table());
        }
        Ok(ExitCode::SUCCESS)
    }

    /// A column per case, a row per figure.
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        let names = self.cases.iter().map(|case| case.name.clone());
        table.set_header(std::iter::once(self.experiment.to_owned()).chain(names));
        let mut figures: Vec<&str> = Vec::new();
        for (name, _) in self.cases.iter().flat_map(|case| &case.figures) {
            if !figures.contains(&name.as_str()) {
                figures.push(name);
            }
        }
        for figure in figures {
            let cells = self.cases.iter().map(|case| figure_text(figure, case.get(figure)));
            table.add_row(std::iter::once(figure.replace('_', " ")).chain(cells));
        }
        table
    }
}

/// A figure as people read it, by the unit at the end of its name.
fn figure_text(name: &str, value: f64) -> String {
    if value.is_nan() {
        return "–".to_owned();
    }
    if name.ends_with("_bytes") && value >= 1024.0 * 1024.0 {
        return format!("{:.1} MiB", value / 1024.0 / 1024.0);
    }
    if value.abs() >= 1e6 {
        return format!("{:.2} M", value / 1e6);
    }
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

/// The value below which a share of them is; the values are sorted by it.
pub(crate) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let place = (values.len().saturating_sub(1) as f64 * share).round() as usize;
    values.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_by_their_units() {
        for (name, value, expected) in [
            ("log_bytes", 3_145_728.0, "3.0 MiB"),
            ("rate_per_second", 12_340_000.0, "12.34 M"),
            ("parts", 7.0, "7"),
            ("bytes_per_value", 0.29, "0.290"),
            ("absent", f64::NAN, "–"),
        ] {
            assert_eq!(figure_text(name, value), expected, "{name}");
        }
    }

    #[test]
    fn quantiles_are_values() {
        let mut values = [5.0, 1.0, 3.0, 2.0, 4.0];
        assert_eq!((quantile(&mut values, 0.5), quantile(&mut values, 1.0)), (3.0, 5.0));
        assert!(quantile(&mut [], 0.5).is_nan());
    }
}

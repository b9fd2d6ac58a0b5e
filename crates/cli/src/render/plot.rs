//! Answers as small plots of braille characters.

use jiff::Timestamp;
use textplots::{Chart, Plot, Shape};

use crate::render::series::Series;

/// Series that a plot shows.
const SERIES_MAX: usize = 8;

/// A plot and its legend: name, least, greatest and last value of each series.
pub(crate) fn render(series: &[Series], columns: u32, rows: u32) -> String {
    let Some((start, end)) = ends(series) else {
        return "no samples".to_owned();
    };
    let points: Vec<Vec<(f32, f32)>> = series.iter().take(SERIES_MAX).map(|one| points(one, start)).collect();
    // textplots counts in dots: two a column, four a row.
    let (width, height) = ((columns.saturating_sub(14) * 2).max(64), (rows.saturating_sub(12) * 4).clamp(40, 100));
    // Seconds since the epoch do not fit into 32-bit floats: the plot counts from its own start.
    let mut chart = Chart::new(width, height, 0.0, ((end - start) as f32).max(1.0));
    let shapes: Vec<Shape<'_>> = points
        .iter()
        .map(|points| if points.len() < 2 { Shape::Points(points) } else { Shape::Lines(points) })
        .collect();
    let mut drawn = &mut chart;
    for shape in &shapes {
        drawn = drawn.lineplot(shape);
    }
    drawn.axis();
    drawn.figures();
    let mut out = format!("{} to {}\n{drawn}", time(start), time(end));
    for one in series.iter().take(SERIES_MAX) {
        out.push_str(&legend(one));
    }
    if series.len() > SERIES_MAX {
        out.push_str(&format_more(series.len() - SERIES_MAX));
    }
    out
}

fn format_more(more: usize) -> String {
    format!("and {more} more series; --format table shows all\n")
}

fn ends(series: &[Series]) -> Option<(f64, f64)> {
    let times = || series.iter().flat_map(|one| one.samples.iter().map(|(seconds, _)| *seconds));
    let start = times().reduce(f64::min)?;
    Some((start, times().reduce(f64::max)?))
}

fn points(series: &Series, start: f64) -> Vec<(f32, f32)> {
    let finite = |(seconds, value): &(f64, String)| {
        let value: f32 = value.parse().ok()?;
        value.is_finite().then_some(((seconds - start) as f32, value))
    };
    series.samples.iter().filter_map(finite).collect()
}

fn legend(series: &Series) -> String {
    let values = || series.samples.iter().filter_map(|(_, value)| value.parse::<f64>().ok());
    let (least, greatest) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let newest = series.samples.last().map_or("", |(_, value)| value);
    format!("{}  min {least} max {greatest} last {newest}\n", name(series))
}

fn name(series: &Series) -> String {
    let metric = series.labels.iter().find(|(name, _)| name == "__name__").map_or("", |(_, value)| value);
    let labels = series.labels.iter().filter(|(name, _)| name != "__name__");
    let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{metric}{{{}}}", labels.join(", "))
}

fn time(seconds: f64) -> String {
    Timestamp::from_second(seconds as i64).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

//! Points as they are drawn: each from a height to another.

use crate::PlotError;
use crate::chart::{CELLS_MAX, Chart, POINTS_MAX, Point, Series, Style};
use crate::columns::merged_times;
use crate::thin::{Span, gap_ns, thin};

/// A point as it is drawn: a line at `high`, filled down to `low`. NaN: a gap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row {
    pub(crate) time_ns: i64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Numbers of a series within the range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// The last value.
    pub last: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
    /// The mean.
    pub mean: f64,
}

/// A series as it is drawn.
#[derive(Debug)]
pub(crate) struct DrawnSeries<'c> {
    pub(crate) name: &'c str,
    pub(crate) rows: Vec<Row>,
    pub(crate) statistics: Statistics,
    /// The time between two points, if they have a usual one.
    pub(crate) step_ns: Option<i64>,
}

impl Statistics {
    /// Those of points within a range; NaN where there are none.
    pub fn of_series(series: &Series, start_ns: i64, end_ns: i64) -> Self {
        let points = Span { start_ns, end_ns, columns: 1 }.within(&series.points);
        let mut found = Self { last: f64::NAN, least: f64::NAN, greatest: f64::NAN, mean: f64::NAN };
        let (mut sum, mut mean, mut count) = (0.0, 0.0, 0.0);
        for Point { value, .. } in points.iter().filter(|point| !point.value.is_nan()) {
            found.last = *value;
            // These pass over NaN.
            found.least = found.least.min(*value);
            found.greatest = found.greatest.max(*value);
            count += 1.0;
            sum += value;
            // For sums that are too large for a number.
            mean += value / count - mean / count;
        }
        if count > 0.0 {
            found.mean = if f64::is_finite(sum) { sum / count } else { mean };
        }
        found
    }
}

/// All series of a plot, thinned out to columns of pixels.
pub(crate) fn rows<'c, E: From<PlotError>>(
    chart: &'c Chart,
    span: Span,
    check: &impl Fn() -> Result<(), E>,
) -> Result<Vec<DrawnSeries<'c>>, E> {
    let drawn = if chart.is_stacked { stacked(chart, span, check)? } else { single(chart, span, check)? };
    let points: usize = drawn.iter().map(|series| series.rows.len()).sum();
    if points > POINTS_MAX {
        let (count, limit) = (points as u64, POINTS_MAX as u64);
        return Err(PlotError::TooLarge { what: "points", count, limit, limit_name: "points_max" }.into());
    }
    Ok(drawn)
}

fn single<'c, E: From<PlotError>>(
    chart: &'c Chart,
    span: Span,
    check: &impl Fn() -> Result<(), E>,
) -> Result<Vec<DrawnSeries<'c>>, E> {
    let mut drawn = Vec::with_capacity(chart.series.len());
    for series in &chart.series {
        check()?;
        let gap_ns = gap_ns(&series.points, chart.step_ns);
        let points = thin(&series.points, span, gap_ns, chart.downsampling);
        let rows = points.into_iter().map(|Point { time_ns, value }| Row { time_ns, low: 0.0, high: value });
        drawn.push(DrawnSeries { rows: rows.collect(), ..begun(series, span, chart.step_ns, gap_ns) });
    }
    Ok(drawn)
}

fn begun(series: &Series, span: Span, step_ns: Option<i64>, gap_ns: Option<i64>) -> DrawnSeries<'_> {
    let statistics = Statistics::of_series(series, span.start_ns, span.end_ns);
    // The gap is one and a half steps.
    let step_ns = step_ns.or_else(|| gap_ns.map(|gap_ns| gap_ns / 3 * 2));
    DrawnSeries { name: &series.name, rows: Vec::new(), statistics, step_ns }
}

/// Each series upon those before it. At a time at which a series has no value the next one stands on what is below.
fn stacked<'c, E: From<PlotError>>(
    chart: &'c Chart,
    span: Span,
    check: &impl Fn() -> Result<(), E>,
) -> Result<Vec<DrawnSeries<'c>>, E> {
    let mut times: Vec<i64> = Vec::new();
    for series in &chart.series {
        check()?;
        merged_times(&mut times, span.within(&series.points));
        let cells = times.len().saturating_mul(chart.series.len());
        if cells > CELLS_MAX {
            let (count, limit) = (cells as u64, CELLS_MAX as u64);
            return Err(PlotError::TooLarge { what: "values to stack", count, limit, limit_name: "cells_max" }.into());
        }
    }
    let kept = times_kept(chart, &times, span, check)?;
    let mut below = vec![0.0; kept.len()];
    let mut drawn = Vec::with_capacity(chart.series.len());
    for series in &chart.series {
        check()?;
        let gap = gap_ns(&series.points, chart.step_ns);
        let mut rows: Vec<Row> = Vec::with_capacity(kept.len());
        let mut points = span.within(&series.points).iter().peekable();
        let mut last_ns: Option<i64> = None;
        for (time_ns, below) in kept.iter().zip(&mut below) {
            let mut value = f64::NAN;
            let mut is_gap = false;
            while let Some(point) = points.next_if(|point| point.time_ns <= *time_ns) {
                is_gap |= point.value.is_nan()
                    || last_ns.zip(gap).is_some_and(|(last_ns, gap)| point.time_ns.saturating_sub(last_ns) > gap);
                last_ns = Some(point.time_ns);
                if point.time_ns == *time_ns {
                    value = point.value;
                }
            }
            let low = *below;
            if value.is_finite() {
                *below += value;
            }
            if is_gap && rows.last().is_some_and(|row| row.high.is_finite()) {
                rows.push(Row { time_ns: *time_ns, low: f64::NAN, high: f64::NAN });
            }
            if value.is_finite() {
                rows.push(Row { time_ns: *time_ns, low, high: *below });
            }
        }
        drawn.push(DrawnSeries { rows, ..begun(series, span, chart.step_ns, gap) });
    }
    Ok(drawn)
}

/// Times at which a stack is drawn: all, or those of each column of pixels at which its whole height shows the most.
fn times_kept<E: From<PlotError>>(
    chart: &Chart,
    times: &[i64],
    span: Span,
    check: &impl Fn() -> Result<(), E>,
) -> Result<Vec<i64>, E> {
    if times.len() <= span.columns * 2 || chart.downsampling == crate::chart::Downsampling::None {
        return Ok(times.to_vec());
    }
    let mut total: Vec<Point> = times.iter().map(|time_ns| Point { time_ns: *time_ns, value: 0.0 }).collect();
    for series in &chart.series {
        check()?;
        let mut points = span.within(&series.points).iter().peekable();
        for sum in &mut total {
            while let Some(point) = points.next_if(|point| point.time_ns <= sum.time_ns) {
                if point.time_ns == sum.time_ns && point.value.is_finite() {
                    sum.value += point.value;
                }
            }
        }
    }
    Ok(thin(&total, span, None, chart.downsampling).into_iter().map(|point| point.time_ns).collect())
}

/// Whether series are filled down to where they stand.
pub(crate) fn is_filled(chart: &Chart) -> bool {
    chart.is_stacked || chart.style != Style::Line
}

//! Series on one axis of times, for pages and programs that draw by themselves.

use crate::PlotError;
use crate::chart::{CELLS_MAX, Chart, Downsampling, Point};
use crate::thin::{Span, largest_triangle};

pub use crate::rows::Statistics;

/// Series on one axis of times.
#[derive(Debug, Clone, PartialEq)]
pub struct Columns {
    /// The axis: nanoseconds since the Unix epoch.
    pub times_ns: Vec<i64>,
    /// For each series a value at each time; NaN: none.
    pub values: Vec<Vec<f64>>,
    /// How points became fewer; `None` if all are there.
    pub downsampling: Downsampling,
    /// What a time of the axis stands for, if points became fewer.
    pub interval_ns: Option<i64>,
    /// Points of all series within the range.
    pub points_found: usize,
}

/// The axis with the times of points, which are in order, put among them.
pub(crate) fn merged_times(times: &mut Vec<i64>, points: &[Point]) {
    let mut known = times.iter().peekable();
    let is_subset = points.iter().all(|point| {
        while known.next_if(|time_ns| **time_ns < point.time_ns).is_some() {}
        known.peek().is_some_and(|time_ns| **time_ns == point.time_ns)
    });
    if is_subset {
        return;
    }
    let mut merged = Vec::with_capacity(times.len().max(points.len()));
    let mut known = times.iter().copied().peekable();
    for point in points {
        while let Some(time_ns) = known.next_if(|time_ns| *time_ns < point.time_ns) {
            merged.push(time_ns);
        }
        if known.peek() != Some(&point.time_ns) && merged.last() != Some(&point.time_ns) {
            merged.push(point.time_ns);
        }
    }
    merged.extend(known);
    *times = merged;
}

/// Puts the series of a plot on one axis. More times than the plot is wide become fewer, as the plot says.
pub fn columns<E: From<PlotError>>(chart: &Chart, check: impl Fn() -> Result<(), E>) -> Result<Columns, E> {
    chart.check()?;
    let width = chart.width_px as usize;
    let span = Span { start_ns: chart.start_ns, end_ns: chart.end_ns, columns: width };
    let keeps_all = chart.downsampling == Downsampling::None;
    let points_found = chart.series.iter().map(|series| span.within(&series.points).len()).sum();
    let mut times_ns: Vec<i64> = Vec::new();
    for series in &chart.series {
        check()?;
        merged_times(&mut times_ns, span.within(&series.points));
        if !keeps_all && times_ns.len() > width {
            return on_grid(chart, span, points_found, &check);
        }
        let cells = times_ns.len().saturating_mul(chart.series.len());
        if cells > CELLS_MAX {
            let (count, limit) = (cells as u64, CELLS_MAX as u64);
            return Err(
                PlotError::TooLarge { what: "values on its axis", count, limit, limit_name: "cells_max" }.into()
            );
        }
    }
    let mut values = Vec::with_capacity(chart.series.len());
    for series in &chart.series {
        check()?;
        let mut points = span.within(&series.points).iter().peekable();
        let column = times_ns.iter().map(|time_ns| {
            let mut value = f64::NAN;
            // Of several at one time the last one counts.
            while let Some(point) = points.next_if(|point| point.time_ns <= *time_ns) {
                value = point.value;
            }
            value
        });
        values.push(column.collect());
    }
    Ok(Columns { times_ns, values, downsampling: Downsampling::None, interval_ns: None, points_found })
}

/// The series at regular times: two for each pair of pixels, or one for each pixel.
fn on_grid<E: From<PlotError>>(
    chart: &Chart,
    span: Span,
    points_found: usize,
    check: &impl Fn() -> Result<(), E>,
) -> Result<Columns, E> {
    let is_pairs = chart.downsampling == Downsampling::MinMax;
    let rows = if is_pairs { span.columns / 2 * 2 } else { span.columns };
    let cells = rows.saturating_mul(chart.series.len());
    if cells > CELLS_MAX {
        let (count, limit) = (cells as u64, CELLS_MAX as u64);
        return Err(PlotError::TooLarge { what: "values on its axis", count, limit, limit_name: "cells_max" }.into());
    }
    let axis = Span { columns: rows, ..span };
    let buckets = if is_pairs { Span { columns: rows / 2, ..span } } else { axis };
    let mut values = Vec::with_capacity(chart.series.len());
    for series in &chart.series {
        check()?;
        values.push(bucketed(span.within(&series.points), buckets, is_pairs));
    }
    let length = i128::from(span.end_ns) - i128::from(span.start_ns);
    Ok(Columns {
        times_ns: (0..rows).map(|row| axis.time_ns(row)).collect(),
        values,
        downsampling: chart.downsampling,
        interval_ns: Some((length / buckets.columns.max(1) as i128) as i64),
        points_found,
    })
}

/// The least and the greatest of each bucket, the earlier one first; or the point that makes the largest triangle.
fn bucketed(points: &[Point], buckets: Span, is_pairs: bool) -> Vec<f64> {
    let mut values = Vec::with_capacity(buckets.columns * if is_pairs { 2 } else { 1 });
    let mut rest = points;
    let mut chosen: Option<Point> = None;
    for bucket in 0..buckets.columns {
        let is_last = bucket + 1 == buckets.columns;
        let next_ns = buckets.time_ns(bucket + 1);
        let count = if is_last { rest.len() } else { rest.partition_point(|point| point.time_ns < next_ns) };
        let (within, after) = rest.split_at(count);
        rest = after;
        if is_pairs {
            values.extend(extremes(within));
        } else {
            let ahead = rest.iter().find(|point| !point.value.is_nan()).copied();
            let point = largest_triangle(within, chosen, ahead);
            chosen = point.or(chosen);
            values.push(point.map_or(f64::NAN, |point| point.value));
        }
    }
    values
}

fn extremes(points: &[Point]) -> [f64; 2] {
    let known = || points.iter().enumerate().filter(|(_, point)| !point.value.is_nan());
    let least = known().min_by(|a, b| a.1.value.total_cmp(&b.1.value));
    let greatest = known().max_by(|a, b| a.1.value.total_cmp(&b.1.value));
    match least.zip(greatest) {
        Some(((at, least), (other, greatest))) if at <= other => [least.value, greatest.value],
        Some(((_, least), (_, greatest))) => [greatest.value, least.value],
        None => [f64::NAN; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Series;

    fn series(points: &[(i64, f64)]) -> Series {
        let points = points.iter().map(|(time_ns, value)| Point { time_ns: *time_ns, value: *value }).collect();
        Series { points, ..Series::default() }
    }

    fn at_once(chart: &Chart) -> Columns {
        columns(chart, || Ok::<_, PlotError>(())).unwrap()
    }

    #[test]
    fn series_share_an_axis() {
        let mut chart = Chart::new(0, 100);
        chart.series = vec![
            series(&[(0, 1.0), (10, 2.0), (30, 3.0), (101, 9.0)]),
            series(&[(10, 5.0), (20, f64::NAN), (30, 6.0), (30, 7.0)]),
        ];
        let found = at_once(&chart);
        assert_eq!(found.times_ns, [0, 10, 20, 30]);
        assert_eq!(format!("{:?}", found.values), "[[1.0, 2.0, NaN, 3.0], [NaN, 5.0, NaN, 7.0]]");
        assert_eq!((found.downsampling, found.interval_ns, found.points_found), (Downsampling::None, None, 7));
    }

    #[test]
    fn more_times_than_pixels_become_fewer() {
        let mut chart = Chart::new(0, 12_000);
        chart.width_px = 120;
        chart.series = vec![series(&(0..1200).map(|place| (place * 10, (place % 100) as f64)).collect::<Vec<_>>())];
        let found = at_once(&chart);
        assert_eq!((found.times_ns.len(), found.interval_ns), (120, Some(200)));
        assert_eq!(found.times_ns[..3], [0, 100, 200]);
        assert_eq!(found.values[0][..4], [0.0, 19.0, 20.0, 39.0]);
        chart.downsampling = Downsampling::Lttb;
        let found = at_once(&chart);
        assert_eq!((found.times_ns.len(), found.interval_ns, found.downsampling), (120, Some(100), Downsampling::Lttb));
        let values: Vec<f64> = chart.series[0].points.iter().map(|point| point.value).collect();
        assert!(found.values[0].iter().all(|value| values.contains(value)));
        chart.downsampling = Downsampling::None;
        assert_eq!(at_once(&chart).times_ns.len(), 1200);
        chart.series = vec![chart.series[0].clone(); 4000 / 4];
        chart.series.iter_mut().for_each(|one| *one = series(&(0..4001).map(|place| (place, 0.0)).collect::<Vec<_>>()));
        let refused = columns(&chart, || Ok::<_, PlotError>(())).unwrap_err().to_string();
        assert!(refused.contains("4001000 values on its axis") && refused.contains("cells_max"), "{refused}");
    }
}

//! As few points as a width can show.

use crate::chart::{Downsampling, Point};

/// Columns of pixels of a range of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    pub(crate) columns: usize,
}

impl Span {
    /// The column of a time within the range.
    pub(crate) fn column(&self, time_ns: i64) -> usize {
        let length = i128::from(self.end_ns) - i128::from(self.start_ns);
        let since = (i128::from(time_ns) - i128::from(self.start_ns)).clamp(0, length);
        let column = since * self.columns as i128 / length.max(1);
        (column as usize).min(self.columns.saturating_sub(1))
    }

    /// The first moment of a column.
    pub(crate) fn time_ns(&self, column: usize) -> i64 {
        let length = i128::from(self.end_ns) - i128::from(self.start_ns);
        // It lies between two numbers of 64 bits.
        (i128::from(self.start_ns) + length * column as i128 / self.columns.max(1) as i128) as i64
    }

    /// The points within the range; they are in order.
    pub(crate) fn within<'p>(&self, points: &'p [Point]) -> &'p [Point] {
        let from = points.partition_point(|point| point.time_ns < self.start_ns);
        let to = points.partition_point(|point| point.time_ns <= self.end_ns);
        points.get(from..to).unwrap_or_default()
    }
}

/// How far points may be apart without a gap between them: as far as they are mostly, and half of it more. `None` if they are not regular.
pub(crate) fn gap_ns(points: &[Point], step_ns: Option<i64>) -> Option<i64> {
    /// Points whose distances say what is usual.
    const TRIED: usize = 4096;
    let with_half = |step_ns: i64| step_ns.saturating_add(step_ns / 2);
    if let Some(step_ns) = step_ns {
        return Some(with_half(step_ns));
    }
    let pairs = points.windows(2).take(TRIED);
    let mut distances: Vec<i64> = pairs
        .filter_map(|pair| match pair {
            [before, after] => Some(after.time_ns.saturating_sub(before.time_ns)).filter(|distance| *distance > 0),
            _ => None,
        })
        .collect();
    if distances.len() < 3 {
        return None;
    }
    let middle = distances.len() / 2;
    let (_, usual, _) = distances.select_nth_unstable(middle);
    let usual = *usual;
    let near = distances.iter().filter(|distance| distance.abs_diff(usual) <= usual.unsigned_abs() / 10).count();
    // A tenth may be missing or late.
    (near * 10 >= distances.len() * 9).then(|| with_half(usual))
}

/// Points that show what all points within a range show, in order; a NaN stands for each gap that can be seen.
pub(crate) fn thin(points: &[Point], span: Span, gap_ns: Option<i64>, method: Downsampling) -> Vec<Point> {
    let points = span.within(points);
    let keeps_all = method == Downsampling::None || points.len() <= span.columns;
    let mut kept: Vec<Point> = Vec::with_capacity(points.len().min(span.columns * 4));
    let mut rest = points;
    let mut is_gap = false;
    while let Some(first) = rest.first() {
        let count = if keeps_all { 1 } else { same_column(rest, span) };
        let (column, after) = rest.split_at(count);
        rest = after;
        let before = kept.last().filter(|point| !point.value.is_nan()).copied();
        // Gaps within a column of pixels cannot be seen, those at its edges can.
        let is_far = before.is_some_and(|before| is_apart(before, *first, gap_ns));
        if is_far || is_gap || first.value.is_nan() {
            push_gap(&mut kept, first.time_ns);
        }
        match method {
            _ if keeps_all => kept.extend(column.iter().filter(|point| !point.value.is_nan())),
            Downsampling::Lttb => {
                let ahead = rest.iter().find(|point| !point.value.is_nan()).copied();
                kept.extend(largest_triangle(
                    column,
                    before,
                    mean(rest.get(..same_column(rest, span)).unwrap_or_default()).or(ahead),
                ));
            }
            Downsampling::MinMax | Downsampling::None => push_extremes(&mut kept, column),
        }
        is_gap = column.last().is_some_and(|point| point.value.is_nan());
    }
    kept
}

/// How many points at the beginning are in one column.
fn same_column(points: &[Point], span: Span) -> usize {
    let Some(first) = points.first() else { return 0 };
    let column = span.column(first.time_ns);
    if column + 1 >= span.columns {
        return points.len();
    }
    let next_ns = span.time_ns(column + 1);
    points.partition_point(|point| point.time_ns < next_ns).max(1)
}

fn is_apart(before: Point, after: Point, gap_ns: Option<i64>) -> bool {
    gap_ns.is_some_and(|gap_ns| after.time_ns.saturating_sub(before.time_ns) > gap_ns)
}

fn push_gap(kept: &mut Vec<Point>, time_ns: i64) {
    if kept.last().is_some_and(|point| !point.value.is_nan()) {
        kept.push(Point { time_ns, value: f64::NAN });
    }
}

/// The first, the least, the greatest and the last point, each once, in order of time.
fn push_extremes(kept: &mut Vec<Point>, column: &[Point]) {
    let known = || column.iter().enumerate().filter(|(_, point)| !point.value.is_nan());
    let (Some((first, _)), Some((last, _))) = (known().next(), known().next_back()) else { return };
    let by_value = |a: &(usize, &Point), b: &(usize, &Point)| a.1.value.total_cmp(&b.1.value);
    let lowest = known().min_by(by_value).map_or(first, |(place, _)| place);
    let highest = known().max_by(by_value).map_or(first, |(place, _)| place);
    let mut places = [first, lowest, highest, last];
    places.sort_unstable();
    let mut before = None;
    for place in places {
        if before != Some(place) {
            kept.extend(column.get(place).copied());
        }
        before = Some(place);
    }
}

/// The mean of points, times included.
fn mean(points: &[Point]) -> Option<Point> {
    let known = || points.iter().filter(|point| point.value.is_finite());
    let count = known().count();
    let first = known().next()?;
    let value = known().map(|point| point.value / count as f64).sum();
    let offset: i128 = known().map(|point| i128::from(point.time_ns) - i128::from(first.time_ns)).sum();
    let time_ns = first.time_ns.saturating_add((offset / count.max(1) as i128) as i64);
    Some(Point { time_ns, value })
}

/// The point that makes the largest triangle with the one before and the mean of those after.
pub(crate) fn largest_triangle(column: &[Point], before: Option<Point>, after: Option<Point>) -> Option<Point> {
    let known = || column.iter().filter(|point| !point.value.is_nan()).copied();
    let first = known().next()?;
    let before = before.unwrap_or(first);
    // Where a line ends is to be seen.
    let Some(after) = after else { return known().next_back() };
    let area = |point: &Point| {
        // Relative to the point before, so that nothing is lost of long times.
        let offset = |time_ns: i64| time_ns.saturating_sub(before.time_ns) as f64;
        (offset(after.time_ns) * (point.value - before.value) - offset(point.time_ns) * (after.value - before.value))
            .abs()
    };
    known().max_by(|a, b| area(a).total_cmp(&area(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[f64]) -> Vec<Point> {
        (0..).zip(values).map(|(place, value)| Point { time_ns: place * 10, value: *value }).collect()
    }

    fn shown(points: &[Point]) -> Vec<(i64, String)> {
        points.iter().map(|point| (point.time_ns, point.value.to_string())).collect()
    }

    fn texts(points: &[(i64, &str)]) -> Vec<(i64, String)> {
        points.iter().map(|(time_ns, value)| (*time_ns, (*value).to_owned())).collect()
    }

    #[test]
    fn columns_keep_their_first_least_greatest_and_last() {
        let points = points(&[1.0, 5.0, -2.0, 3.0, 7.0, 7.0, 7.0, 8.0]);
        let span = Span { start_ns: 0, end_ns: 80, columns: 2 };
        let kept = thin(&points, span, None, Downsampling::MinMax);
        assert_eq!(shown(&kept), texts(&[(0, "1"), (10, "5"), (20, "-2"), (30, "3"), (40, "7"), (70, "8")]));
        let kept = thin(&points, span, None, Downsampling::Lttb);
        assert_eq!(shown(&kept), texts(&[(20, "-2"), (70, "8")]));
        assert_eq!(thin(&points, span, None, Downsampling::None), points);
        let later = Span { start_ns: 25, end_ns: 60, columns: 9 };
        assert_eq!(shown(&thin(&points, later, None, Downsampling::MinMax)).len(), 4);
    }

    #[test]
    fn gaps_stay_where_they_can_be_seen() {
        let nan = f64::NAN;
        let dotted = points(&[1.0, nan, nan, 2.0, nan, 3.0]);
        let wide = Span { start_ns: 0, end_ns: 60, columns: 60 };
        let kept = thin(&dotted, wide, None, Downsampling::MinMax);
        assert_eq!(shown(&kept), texts(&[(0, "1"), (10, "NaN"), (30, "2"), (40, "NaN"), (50, "3")]));
        // Two columns: what is missing at the end of the first is a gap before the second.
        let narrow = Span { columns: 2, ..wide };
        let kept = thin(&dotted, narrow, None, Downsampling::MinMax);
        assert_eq!(shown(&kept), texts(&[(0, "1"), (30, "NaN"), (30, "2"), (50, "3")]));
        let apart = [
            (0, 1.0),
            (10, 1.0),
            (20, 1.0),
            (30, 1.0),
            (80, 2.0),
            (90, 2.0),
            (100, 2.0),
            (110, 2.0),
            (120, 2.0),
            (130, 2.0),
            (140, 2.0),
            (150, 2.0),
        ];
        let apart = apart.map(|(time_ns, value)| Point { time_ns, value });
        let gap = gap_ns(&apart, None);
        assert_eq!(gap, Some(15));
        let kept = thin(&apart, Span { start_ns: 0, end_ns: 150, columns: 100 }, gap, Downsampling::MinMax);
        assert_eq!(kept.iter().filter(|point| point.value.is_nan()).count(), 1);
        assert_eq!(gap_ns(&apart, Some(100)), Some(150));
        let irregular = [0, 1, 5, 6, 50, 51, 53].map(|time_ns| Point { time_ns, value: 0.0 });
        assert_eq!(gap_ns(&irregular, None), None);
    }

    #[test]
    fn columns_cover_all_of_time() {
        let span = Span { start_ns: i64::MIN, end_ns: i64::MAX, columns: 7 };
        assert_eq!((span.column(i64::MIN), span.column(i64::MAX)), (0, 6));
        for column in 0..7 {
            assert!(span.column(span.time_ns(column)).abs_diff(column) <= 1, "{column}");
        }
        assert_eq!(Span { start_ns: 5, end_ns: 5, columns: 0 }.column(5), 0);
    }
}

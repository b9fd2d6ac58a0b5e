//! Areas under lines through points of time: what InfluxQL's `integral` is made of.

/// The nanoseconds from a time to a later one. Those at both ends of time are further apart than 64 bits hold.
pub fn distance_ns(from_ns: i64, to_ns: i64) -> f64 {
    (i128::from(to_ns) - i128::from(from_ns)) as f64
}

/// The area under the straight line between two points, each a time in nanoseconds and a value: values times units of so many nanoseconds.
pub fn area(from: (i64, f64), to: (i64, f64), unit_ns: i64) -> f64 {
    from.1.midpoint(to.1) * (distance_ns(from.0, to.0) / unit_ns as f64)
}

/// The area under the line through points, which come in order of time; zero of one point, `None` without points. Where several have one time the line comes
/// to the first of them and goes on from the last, as in InfluxDB. The unit as in [`area`].
pub fn integral(points: impl IntoIterator<Item = (i64, f64)>, unit_ns: i64) -> Option<f64> {
    let mut points = points.into_iter();
    let mut before = points.next()?;
    let mut total = 0.0;
    for point in points {
        if before.0 < point.0 {
            total += area(before, point, unit_ns);
        }
        before = point;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the trapezoid rule, on paper.
    #[test]
    fn areas_are_those_of_trapezoids() {
        type Case = (&'static [(i64, f64)], i64, Option<f64>);
        let cases: [Case; 7] = [
            (&[], 1, None),
            (&[(5, 3.0)], 1, Some(0.0)),
            (&[(0, 1.0), (10, 3.0)], 1, Some(20.0)),
            (&[(0, 1.0), (10, 3.0)], 20, Some(1.0)),
            (&[(-4, 2.0), (0, -2.0), (1, 4.0)], 2, Some(0.5)),
            // To the first of one time, and on from the last.
            (&[(0, 0.0), (2, 4.0), (2, 9.0), (2, 1.0), (4, 1.0)], 1, Some(6.0)),
            (&[(7, 1.0), (7, 5.0)], 1, Some(0.0)),
        ];
        for (points, unit_ns, expected) in cases {
            assert_eq!(integral(points.iter().copied(), unit_ns), expected, "{points:?}");
        }
        let ends = [(i64::MIN, 2.0), (i64::MAX, 2.0)];
        assert_eq!(integral(ends, 1_000_000_000), Some(2.0 * (u64::MAX as f64 / 1e9)));
    }
}

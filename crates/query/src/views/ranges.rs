//! Sets of time ranges.

use model::TimeRange;

/// The times that two ranges share.
pub fn intersect(a: &TimeRange, b: &TimeRange) -> TimeRange {
    TimeRange { start_ns: a.start_ns.max(b.start_ns), end_ns: a.end_ns.min(b.end_ns) }
}

/// Puts ranges in order and joins those that touch; empty ones are left out.
pub fn normalized(mut ranges: Vec<TimeRange>) -> Vec<TimeRange> {
    ranges.retain(|range| range.start_ns <= range.end_ns);
    ranges.sort_by_key(|range| range.start_ns);
    let mut merged: Vec<TimeRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start_ns <= last.end_ns.saturating_add(1) => {
                last.end_ns = last.end_ns.max(range.end_ns);
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// The times of ranges that others do not have; both are normalized.
pub fn subtract(from: &[TimeRange], out: &[TimeRange]) -> Vec<TimeRange> {
    let mut left = Vec::new();
    for range in from {
        let mut start_ns = Some(range.start_ns);
        for cut in out.iter().filter(|cut| cut.end_ns >= range.start_ns && cut.start_ns <= range.end_ns) {
            if let Some(begin_ns) = start_ns.filter(|begin_ns| *begin_ns < cut.start_ns) {
                left.push(TimeRange::new(begin_ns, cut.start_ns - 1));
            }
            start_ns = start_ns.and_then(|begin_ns| Some(begin_ns.max(cut.end_ns.checked_add(1)?)));
        }
        if let Some(begin_ns) = start_ns.filter(|begin_ns| *begin_ns <= range.end_ns) {
            left.push(TimeRange::new(begin_ns, range.end_ns));
        }
    }
    left
}

/// Normalized ranges, so many at most: the oldest become one.
pub fn merged_to(mut ranges: Vec<TimeRange>, count_max: usize) -> Vec<TimeRange> {
    let excess = ranges.len().saturating_sub(count_max);
    if excess == 0 {
        return ranges;
    }
    let oldest: Vec<TimeRange> = ranges.drain(..=excess).collect();
    let hull = oldest.into_iter().fold(TimeRange::EMPTY, TimeRange::union);
    ranges.insert(0, hull);
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(pairs: &[(i64, i64)]) -> Vec<TimeRange> {
        pairs.iter().map(|(start_ns, end_ns)| TimeRange { start_ns: *start_ns, end_ns: *end_ns }).collect()
    }

    #[test]
    fn ranges_are_sets_of_times() {
        let all = normalized(ranges(&[(5, 9), (1, 2), (3, 4), (20, 10), (12, 13)]));
        assert_eq!(all, ranges(&[(1, 9), (12, 13)]));
        assert_eq!(subtract(&all, &ranges(&[(2, 3), (9, 12)])), ranges(&[(1, 1), (4, 8), (13, 13)]));
        assert_eq!(subtract(&all, &ranges(&[(i64::MIN, i64::MAX)])), []);
        assert_eq!(subtract(&ranges(&[(i64::MIN, i64::MAX)]), &ranges(&[(0, i64::MAX)])), ranges(&[(i64::MIN, -1)]));
        let many = ranges(&[(1, 1), (3, 3), (5, 5), (7, 7)]);
        assert_eq!(merged_to(many.clone(), 4), many);
        assert_eq!(merged_to(many, 2), ranges(&[(1, 5), (7, 7)]));
    }
}

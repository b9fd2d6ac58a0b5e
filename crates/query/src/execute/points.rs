//! Bins of all values of a column with their times: what ranks, modes and integrals are made of.

use model::Cell;

use super::bins::{Bin, Bins, samples_of};
use crate::plan::Aggregate;
use crate::statistics::{line, ranked};
use crate::{Budget, Frame, QueryError, Value};

/// The order of a bin's points once all are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PointOrder {
    /// Of points of any kind.
    Value,
    /// Of numbers alone. Those of one time stay in the order in which they came.
    Time,
}

impl PointOrder {
    /// The order that an aggregate needs.
    pub(super) const fn new(aggregate: Aggregate) -> Self {
        if aggregate.is_of_lines() { Self::Time } else { Self::Value }
    }

    const fn takes(self, cell: &Cell<'_>) -> bool {
        match self {
            Self::Value => !matches!(cell, Cell::Null),
            Self::Time => matches!(cell, Cell::F64(_) | Cell::I64(_) | Cell::U64(_)),
        }
    }

    /// Puts all points of a bin in order.
    pub(super) fn sort(self, points: &mut [(i64, Value)]) {
        match self {
            Self::Value => points.sort_by(ranked::by_value),
            Self::Time => points.sort_by_key(|(time_ns, _)| *time_ns),
        }
    }
}

/// The bins of a column of which all values are kept with their times, which are taken out of a budget: the caller gives back what [`Bins::held_samples`] says.
pub(super) fn of_column(
    frame: &Frame,
    (name, order): (&str, PointOrder),
    start: &impl Fn(i64) -> i64,
    budget: &Budget,
) -> Result<Bins, QueryError> {
    let mut bins = Bins::default();
    let Some(column) = frame.columns.iter().find(|column| *column.name == *name) else { return Ok(bins) };
    let cells = || {
        let all = frame.timestamps_ns.iter().enumerate().map(|(row, time_ns)| (*time_ns, column.cell(row)));
        all.filter(|(_, cell)| order.takes(cell))
    };
    let samples = |cell: &Cell<'_>| match cell {
        Cell::Text(text) => samples_of_value(text.len()),
        _ => samples_of_value(0),
    };
    let wanted: usize = cells().map(|(_, cell)| samples(&cell)).sum();
    budget.take(wanted)?;
    // Rows are in order of time: those of a bin follow one another.
    let mut rows = cells().peekable();
    while let Some((first_ns, cell)) = rows.next() {
        let start_ns = start(first_ns);
        let mut points = vec![(first_ns, Value::from(cell))];
        while let Some((time_ns, cell)) = rows.next_if(|(time_ns, _)| start(*time_ns) == start_ns) {
            points.push((time_ns, Value::from(cell)));
        }
        bins.add(start_ns, Bin::Points { points, order, first_ns });
    }
    budget.give_back(wanted.saturating_sub(bins.held_samples()));
    Ok(bins)
}

/// The samples that a value with its time takes out of a budget, given the bytes of its text.
const fn samples_of_value(text_bytes: usize) -> usize {
    // A text stands in a piece of memory of its own, with two counts.
    let own_bytes = if text_bytes > 0 { text_bytes + 2 * size_of::<usize>() } else { 0 };
    samples_of(size_of::<(i64, Value)>() + own_bytes)
}

/// The samples that a value with its time takes out of a budget.
pub(super) fn samples(value: &Value) -> usize {
    samples_of_value(if let Value::Text(text) = value { text.len() } else { 0 })
}

/// Puts points beside others; whole numbers and floats together are floats.
pub(super) fn merge(points: &mut Vec<(i64, Value)>, mut more: Vec<(i64, Value)>) {
    let is_float = |points: &[(i64, Value)]| matches!(points.first(), Some((_, Value::Float(_))));
    let is_number = |points: &[(i64, Value)]| {
        matches!(points.first(), Some((_, Value::Float(_) | Value::Int(_) | Value::Unsigned(_))))
    };
    if is_number(points) && is_number(&more) && is_float(points) != is_float(&more) {
        for (_, value) in points.iter_mut().chain(&mut more) {
            *value = value.number().map_or(Value::Null, Value::Float);
        }
    }
    points.append(&mut more);
}

/// An aggregate of points, which are in its order.
pub(super) fn value(points: &[(i64, Value)], aggregate: Aggregate) -> Cell<'_> {
    let found = match aggregate {
        Aggregate::NearestRank(percent) => {
            ranked::nearest_rank(points, percent).and_then(|index| points.get(index)).map(|(_, value)| value)
        }
        Aggregate::Integral { unit_ns } => {
            let numbers = points.iter().filter_map(|(time_ns, value)| Some((*time_ns, value.number()?)));
            return line::integral(numbers, unit_ns).map_or(Cell::Null, Cell::F64);
        }
        _ => ranked::mode(points),
    };
    found.map_or(Cell::Null, cell_of)
}

/// A value that was a cell.
fn cell_of(value: &Value) -> Cell<'_> {
    match value {
        Value::Float(number) => Cell::F64(*number),
        Value::Int(number) => Cell::I64(*number),
        Value::Unsigned(number) => Cell::U64(*number),
        Value::Bool(value) => Cell::Bool(*value),
        Value::Text(text) => Cell::Text(text),
        _ => Cell::Null,
    }
}

#[cfg(test)]
mod tests {
    use model::Labels;

    use super::*;
    use crate::FrameColumn;

    const UNIT_NS: i64 = 2;

    fn bins(times_ns: &[i64], cells: &[Cell<'_>], order: PointOrder, budget: &Budget) -> Bins {
        let column = FrameColumn::of_cells("v", cells).unwrap();
        let frame = Frame::new(Labels::empty(), times_ns.to_vec(), vec![column]);
        of_column(&frame, ("v", order), &|time_ns| time_ns.div_euclid(10) * 10, budget).unwrap()
    }

    fn integrals(bins: Bins) -> Vec<(i64, Option<f64>)> {
        let value = |(start_ns, mut bin): (i64, Bin)| {
            bin.sort();
            (start_ns, bin.value(Aggregate::Integral { unit_ns: UNIT_NS }).number())
        };
        bins.into_sorted().into_iter().map(value).collect()
    }

    /// Two series in windows of ten: the line goes through the rows of both, at one time through those of the first series first.
    #[test]
    fn an_integral_is_of_the_rows_of_its_own_bin() {
        use Cell::{F64, I64, Null};
        let budget = Budget::new(1_000);
        let order = PointOrder::new(Aggregate::Integral { unit_ns: UNIT_NS });
        let mut together = bins(&[0, 4, 8, 12, 20], &[I64(1), I64(3), Null, I64(7), I64(9)], order, &budget);
        assert_eq!(integrals(together.clone()), [(0, Some(4.0)), (10, Some(0.0)), (20, Some(0.0))]);
        together.merge(bins(&[4, 6, 15, 24], &[F64(5.0), F64(1.0), F64(1.0), F64(2.0)], order, &budget));
        assert_eq!(integrals(together), [(0, Some(4.0 + 3.0)), (10, Some(6.0)), (20, Some(11.0))]);
        // What is no number has no area, and takes no memory.
        let budget = Budget::new(1_000);
        for cells in [[Cell::Text("1"), Cell::Text("2")], [Cell::Bool(true), Cell::Bool(false)], [Null, Null]] {
            assert!(bins(&[0, 1], &cells, order, &budget).is_empty());
        }
        assert_eq!(budget.samples(), 0);
    }

    #[test]
    fn points_are_asked_for_before_they_are_held() {
        let budget = Budget::new(10);
        let cells = vec![Cell::F64(1.0); 100];
        let frame = Frame::new(Labels::empty(), (0..100).collect(), vec![FrameColumn::of_cells("v", &cells).unwrap()]);
        of_column(&frame, ("v", PointOrder::Time), &|_| 0, &budget).unwrap_err();
    }
}

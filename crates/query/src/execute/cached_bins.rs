//! Requests to the cache of bins, and how intervals of bins become one answer.

use std::collections::HashMap;

use std::ops::Range;

use model::{Column, Labels, TimeRange};

use crate::plan::{Aggregate, AggregateInput, Grouping, Plan, Scan};
use crate::{Budget, Cell, Frame, FrameColumn, QueryError};

/// A request for rows of a scan in bins of time.
#[derive(Debug)]
pub struct BinsRequest<'a> {
    /// The plan's written form, but for when: the same text stands for the same bins.
    pub text: String,
    /// The scan.
    pub scan: &'a Scan,
    /// From one bin to the next, in nanoseconds; at least 1.
    pub width_ns: i64,
    /// Where they begin beside multiples of that.
    pub offset_ns: i64,
    /// The aggregate of each column, if all of them can be computed from those of shorter bins, to the bit.
    pub combined: Option<Vec<Aggregate>>,
    /// The limits of the query: bins that are made of what folding left are not to be cached.
    pub budget: &'a Budget,
}

/// Bins, and how many of their rows were cached.
#[derive(Debug)]
pub struct BinsResponse {
    /// A frame for each series.
    pub frames: Vec<Frame>,
    /// Rows that were cached in memory.
    pub memory_rows: usize,
    /// Rows that were cached on flash.
    pub flash_rows: usize,
}

/// Makes the bins of the rows in a range, so many nanoseconds wide.
pub type ComputeBins<'a> = dyn FnMut(TimeRange, i64) -> Result<Vec<Frame>, QueryError> + 'a;

/// A cache of bins.
pub trait BinCache: Sync {
    /// The bins of the scan's range: cached ones, and for the rest those that are computed now.
    fn bins(
        &self,
        database: &str,
        asked: &BinsRequest<'_>,
        make: &mut ComputeBins<'_>,
    ) -> Result<BinsResponse, QueryError>;
}

impl<'a> BinsRequest<'a> {
    /// The request of a grouping of a scan's rows; `None` if its bins depend on one another. The rights of the query's sender are part of the text.
    pub(super) fn new(input: &'a Plan, grouping: &Grouping, (database, budget): (&str, &'a Budget)) -> Option<Self> {
        let scan = match input {
            Plan::Scan(scan) => scan,
            _ => super::filtered_scan(input)?.0,
        };
        let width_ns = grouping.width_ns.filter(|width_ns| *width_ns > 0)?;
        // Names of columns depend on how many a group has; a series has one.
        let is_by_name =
            scan.table.is_none() || grouping.aggregates.iter().all(|call| call.input != AggregateInput::Each);
        if !scan.tokens.is_empty() || !is_by_name || grouping.reads_bin_before() {
            return None;
        }
        let text = Plan::GroupBy { input: Box::new(within(input, TimeRange::ALL)), grouping: grouping.clone() };
        let combined = scan.table.as_ref().and_then(|_| combined(grouping));
        let text = budget.scope_text(database) + &text.to_string();
        Some(Self { text, scan, width_ns, offset_ns: grouping.offset_ns, combined, budget })
    }
}

/// The aggregates of a grouping that names its columns, if each of a bin is one of those of its parts. Sums of floats depend on how they
/// are added up; means and quantiles are not enough to make others of.
fn combined(grouping: &Grouping) -> Option<Vec<Aggregate>> {
    let whole = |aggregate: Aggregate| match aggregate {
        Aggregate::Min | Aggregate::Max | Aggregate::Count | Aggregate::First | Aggregate::Last => Some(aggregate),
        Aggregate::Avg
        | Aggregate::Sum
        | Aggregate::Quantile(_)
        | Aggregate::Stddev
        | Aggregate::StddevSample
        | Aggregate::Variance
        | Aggregate::VarianceSample
        | Aggregate::Squares
        | Aggregate::ApproxQuantile(_)
        | Aggregate::QuantileSketch
        | Aggregate::ApproxDistinct
        | Aggregate::DistinctSketch
        | Aggregate::Histogram(_)
        | Aggregate::Histograms
        | Aggregate::CountDistinct
        | Aggregate::NearestRank(_)
        | Aggregate::Mode
        | Aggregate::Integral { .. }
        | Aggregate::OffMilliseconds
        | Aggregate::Increase => None,
    };
    grouping.aggregates.iter().map(|call| whole(call.aggregate)).collect()
}

/// A scan, or a filtered one, of another range.
pub(super) fn within(input: &Plan, range: TimeRange) -> Plan {
    match input {
        Plan::Scan(scan) => Plan::Scan(Scan { range, ..scan.clone() }),
        Plan::Where { input, condition } => {
            Plan::Where { input: Box::new(within(input, range)), condition: condition.clone() }
        }
        other => other.clone(),
    }
}

impl Frame {
    /// About as many bytes as it takes.
    pub fn size_bytes(&self) -> usize {
        let columns: usize = self.columns.iter().map(FrameColumn::size_bytes).sum();
        size_of::<Self>() + self.labels.packed_bytes() + self.rows() * 8 + columns
    }

    /// The rows of intervals one after the other, series by series, in order of labels: of each interval those in its range. Fails if a
    /// column has values that do not go together. Stretches are in order of time; none has the labels of a series twice.
    pub fn join(stretches: &[(&[Self], TimeRange)]) -> Result<Vec<Self>, QueryError> {
        let mut series = Series::default();
        for (frames, range) in stretches {
            // Mostly all stretches have the same series in the same order.
            let mut next = 0;
            for frame in *frames {
                let rows = frame.rows_in(range);
                if !rows.is_empty() {
                    next = series.add(frame, rows, next) + 1;
                }
            }
        }
        let mut all = series.all;
        all.sort_by(|a, b| a.labels.cmp(b.labels));
        all.into_iter().map(|joining| joining.finish().map_err(QueryError::Execution)).collect()
    }

    /// Where the rows of a range are; they are in order of time.
    pub fn rows_in(&self, range: &TimeRange) -> Range<usize> {
        let times_ns = &self.timestamps_ns;
        let first = times_ns.partition_point(|time_ns| *time_ns < range.start_ns);
        first..times_ns.partition_point(|time_ns| *time_ns <= range.end_ns).max(first)
    }
}

/// Series that are put together, as they come.
#[derive(Default)]
struct Series<'a> {
    all: Vec<Joining<'a>>,
    indexes: HashMap<&'a Labels, usize>,
}

impl<'a> Series<'a> {
    /// Adds rows after those of their series, which is expected at an index; returns its index.
    fn add(&mut self, frame: &'a Frame, rows: Range<usize>, expected: usize) -> usize {
        let is_it = self.all.get(expected).is_some_and(|joining| *joining.labels == frame.labels);
        let place = if is_it {
            expected
        } else {
            *self.indexes.entry(&frame.labels).or_insert_with(|| {
                self.all.push(Joining::new(&frame.labels));
                self.all.len() - 1
            })
        };
        if let Some(joining) = self.all.get_mut(place) {
            joining.rows.push((frame, rows));
        }
        place
    }
}

/// A series that is put together.
struct Joining<'a> {
    labels: &'a Labels,
    rows: Vec<(&'a Frame, Range<usize>)>,
}

impl<'a> Joining<'a> {
    const fn new(labels: &'a Labels) -> Self {
        Self { labels, rows: Vec::new() }
    }

    fn finish(self) -> Result<Frame, String> {
        let times =
            self.rows.iter().flat_map(|(frame, rows)| frame.timestamps_ns.get(rows.clone()).unwrap_or_default());
        let timestamps_ns = times.copied().collect();
        // All have the same columns: those that the plan names.
        let count = self.rows.first().map_or(0, |(frame, _)| frame.columns.len());
        let columns = (0..count).map(|place| self.column(place)).collect::<Result<_, _>>()?;
        Ok(Frame::new(self.labels.clone(), timestamps_ns, columns))
    }

    fn column(&self, place: usize) -> Result<FrameColumn, String> {
        let parts = || self.rows.iter().map(|(frame, rows)| (frame.columns.get(place), rows.clone()));
        if let Some(column) = of_one_type(parts()) {
            return Ok(column);
        }
        let cells = parts().flat_map(|(column, rows)| {
            rows.map(move |row| column.map_or(Cell::Null, |column: &FrameColumn| column.cell(row)))
        });
        let cells: Vec<Cell<'_>> = cells.collect();
        let name = parts().next().and_then(|(column, _)| column).map_or("", |column| &column.name);
        FrameColumn::of_cells(name, &cells)
    }
}

/// Rows of columns one after another, if their values are of one type and without nulls, as mostly: these are copied as they lie.
fn of_one_type<'a>(mut parts: impl Iterator<Item = (Option<&'a FrameColumn>, Range<usize>)>) -> Option<FrameColumn> {
    let full = |(column, rows): (Option<&'a FrameColumn>, Range<usize>)| {
        let column = column.filter(|column| column.cells.is_full(rows.clone()))?;
        Some((column, rows))
    };
    let (first, rows) = full(parts.next()?)?;
    let mut values = first.cells.values.slice(rows)?;
    for part in parts {
        let (column, rows) = full(part)?;
        values.extend(&column.cells.values, rows)?;
    }
    Some(FrameColumn { name: first.name.clone(), cells: Column::of_values(values) })
}

impl Frame {
    /// Wider bins of narrower ones, which are in order of time: a column for each of the aggregates that they are of.
    pub fn widened(&self, combined: &[Aggregate], width_ns: i64, offset_ns: i64) -> Result<Self, QueryError> {
        let grouping =
            Grouping { width_ns: Some(width_ns), offset_ns, aggregates: Vec::new(), by: None, undated: false };
        let start = |time_ns: &i64| grouping.bin_start(*time_ns);
        let mut bins: Vec<(i64, Range<usize>)> = Vec::new();
        for (row, time_ns) in self.timestamps_ns.iter().enumerate() {
            let start_ns = start(time_ns);
            match bins.last_mut().filter(|(known_ns, _)| *known_ns == start_ns) {
                Some((_, rows)) => rows.end = row + 1,
                None => bins.push((start_ns, row..row + 1)),
            }
        }
        let column = |(column, aggregate): (&FrameColumn, &Aggregate)| {
            let cell = |(_, rows): &(i64, Range<usize>)| {
                let cells = rows.clone().map(|row| column.cell(row)).filter(|cell| *cell != Cell::Null);
                cells.reduce(|before, cell| both(*aggregate, before, cell)).unwrap_or(Cell::Null)
            };
            FrameColumn::of_cells(&column.name, &bins.iter().map(cell).collect::<Vec<_>>())
        };
        let columns = self.columns.iter().zip(combined).map(column).collect::<Result<_, _>>();
        let columns = columns.map_err(QueryError::Execution)?;
        let timestamps_ns = bins.iter().map(|(start_ns, _)| *start_ns).collect();
        Ok(Self::new(self.labels.clone(), timestamps_ns, columns))
    }
}

/// The aggregate of two intervals, given that of each.
fn both<'a>(aggregate: Aggregate, before: Cell<'a>, cell: Cell<'a>) -> Cell<'a> {
    match (aggregate, before, cell) {
        (Aggregate::Count, Cell::I64(some), Cell::I64(more)) => Cell::I64(some.saturating_add(more)),
        (Aggregate::Min, ..) if is_less(cell, before) => cell,
        (Aggregate::Max, ..) if is_less(before, cell) => cell,
        // What is no number is neither smallest nor largest as long as there is one.
        (Aggregate::Min | Aggregate::Max, Cell::F64(value), _) if value.is_nan() => cell,
        (Aggregate::First | Aggregate::Min | Aggregate::Max, ..) => before,
        _ => cell,
    }
}

fn is_less(a: Cell<'_>, b: Cell<'_>) -> bool {
    match (a, b) {
        (Cell::Text(a), Cell::Text(b)) => a < b,
        (Cell::I64(a), Cell::I64(b)) => a < b,
        (Cell::U64(a), Cell::U64(b)) => a < b,
        (a, b) => a.number().zip(b.number()).is_some_and(|(a, b)| a < b),
    }
}

#[cfg(test)]
mod tests {
    use model::Values;

    use super::*;

    fn frame(times: &[i64], cells: &[&[Cell<'_>]]) -> Frame {
        let columns = cells.iter().map(|cells| FrameColumn::of_cells("a", cells).unwrap()).collect();
        Frame::new(Labels::empty(), times.to_vec(), columns)
    }

    #[test]
    fn wider_bins_are_made_of_narrower_ones() {
        use Aggregate::{Count, First, Last, Max, Min};
        let numbers = [Cell::F64(3.0), Cell::F64(f64::NAN), Cell::Null, Cell::F64(1.0)];
        let counts = [Cell::I64(2), Cell::Null, Cell::I64(3), Cell::I64(4)];
        let texts = [Cell::Null, Cell::Text("b"), Cell::Text("a"), Cell::Text("c")];
        let narrow = frame(&[5, 10, 13, 15], &[&numbers, &numbers, &counts, &texts, &texts, &texts]);
        let wide = narrow.widened(&[Min, Max, Count, First, Last, Max], 20, 5).unwrap();
        assert_eq!(wide.timestamps_ns, [5]);
        let cells: Vec<Cell<'_>> = wide.columns.iter().map(|column| column.cell(0)).collect();
        let expected =
            [Cell::F64(1.0), Cell::F64(3.0), Cell::I64(9), Cell::Text("b"), Cell::Text("c"), Cell::Text("c")];
        assert_eq!(cells, expected);
        let halves = narrow.widened(&[Last, First, Count, Min, Min, Min], 10, 0).unwrap();
        assert_eq!(halves.timestamps_ns, [0, 10]);
        let second: Vec<Cell<'_>> = halves.columns.iter().map(|column| column.cell(1)).collect();
        assert!(second[0] == Cell::F64(1.0) && second[2..4] == [Cell::I64(7), Cell::Text("a")], "{second:?}");
    }

    #[test]
    fn rows_are_joined_whatever_their_types() {
        let whole = |of: &[Cell<'static>]| {
            let times: Vec<i64> = (0..of.len() as i64).collect();
            frame(&times, &[of])
        };
        let parts = [
            whole(&[Cell::I64(1), Cell::I64(2)]),
            whole(&[Cell::I64(7), Cell::I64(8), Cell::I64(9)]),
            whole(&[Cell::I64(5), Cell::Null]),
            whole(&[Cell::F64(0.5)]),
        ];
        let joined = |indexes: &[usize]| {
            let stretches: Vec<(&[Frame], TimeRange)> =
                indexes.iter().map(|place| (std::slice::from_ref(&parts[*place]), TimeRange::new(0, 1))).collect();
            let joined = Frame::join(&stretches).unwrap().remove(0);
            (joined.columns[0].cells.values.clone(), joined.columns[0].cells.validity.clone())
        };
        assert_eq!(joined(&[0, 1]), (Values::I64(vec![1, 2, 7, 8]), None));
        assert_eq!(joined(&[1, 2]), (Values::I64(vec![7, 8, 5, 0]), Some(vec![true, true, true, false])));
        assert_eq!(joined(&[0, 3]), (Values::F64(vec![1.0, 2.0, 0.5]), None));
    }
}

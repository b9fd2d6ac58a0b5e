//! Bins that somebody keeps: what is asked of them, and how stretches of bins become one answer.

use std::collections::BTreeMap;

use model::{Labels, TimeRange};

use crate::plan::{Grouping, Of, Plan, Scan};
use crate::{Cell, Frame, FrameColumn, QueryError};

/// Rows of a scan in bins of time, asked for.
#[derive(Debug)]
pub struct BinsAsked<'a> {
    /// The plan's written form, but for when: the same text stands for the same bins.
    pub text: String,
    /// What is scanned.
    pub scan: &'a Scan,
    /// From one bin to the next, in nanoseconds; at least 1.
    pub width_ns: i64,
    /// Where they begin beside multiples of that.
    pub offset_ns: i64,
}

/// Bins, and how many of their rows were kept before.
#[derive(Debug)]
pub struct BinsFound {
    /// A frame for each series.
    pub frames: Vec<Frame>,
    /// Rows that were kept.
    pub kept_rows: usize,
}

/// Makes the bins of the rows in a range.
pub type MakeBins<'a> = dyn FnMut(TimeRange) -> Result<Vec<Frame>, QueryError> + 'a;

/// Who keeps bins.
pub trait KeptBins: Sync {
    /// The bins of the scan's range: kept ones, and for the rest those that are made now.
    fn bins(&self, database: &str, asked: &BinsAsked<'_>, make: &mut MakeBins<'_>) -> Result<BinsFound, QueryError>;
}

impl<'a> BinsAsked<'a> {
    /// What a grouping of a scan's rows asks; `None` if its bins depend on one another.
    pub(super) fn of(input: &'a Plan, grouping: &Grouping) -> Option<Self> {
        let scan = match input {
            Plan::Scan(scan) => scan,
            _ => super::filtered_scan(input)?.0,
        };
        let width_ns = grouping.width_ns.filter(|width_ns| *width_ns > 0)?;
        // Names of columns depend on how many a group has; a series has one.
        let is_by_name = scan.table.is_none() || grouping.kept.iter().all(|kept| kept.of != Of::Each);
        if !scan.tokens.is_empty() || !is_by_name {
            return None;
        }
        let text = Plan::GroupBy { input: Box::new(within(input, TimeRange::ALL)), grouping: grouping.clone() };
        Some(Self { text: text.to_string(), scan, width_ns, offset_ns: grouping.offset_ns })
    }
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

    /// The rows of stretches one behind the other, series by series, in order of labels: of each stretch those in its range. Fails if a
    /// column has values that do not go together. Stretches are in order of time; none has the labels of a series twice.
    pub fn join(stretches: &[(&[Self], TimeRange)]) -> Result<Vec<Self>, QueryError> {
        let mut series: BTreeMap<Vec<(&str, &str)>, Joining<'_>> = BTreeMap::new();
        for (frames, range) in stretches {
            for frame in *frames {
                let first = frame.timestamps_ns.partition_point(|time_ns| *time_ns < range.start_ns);
                let end = frame.timestamps_ns.partition_point(|time_ns| *time_ns <= range.end_ns);
                if first < end {
                    let labels = frame.labels.iter().collect();
                    let joining = series.entry(labels).or_insert_with(|| Joining::new(&frame.labels));
                    joining.rows.push((frame, first..end));
                }
            }
        }
        series.into_values().map(|joining| joining.finish().map_err(QueryError::Execution)).collect()
    }
}

/// A series that is put together.
struct Joining<'a> {
    labels: &'a Labels,
    rows: Vec<(&'a Frame, std::ops::Range<usize>)>,
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
        let column = |place: usize| {
            let cells = self.rows.iter().flat_map(|(frame, rows)| {
                rows.clone().map(move |row| frame.columns.get(place).map_or(Cell::Null, |column| column.cell(row)))
            });
            let name =
                self.rows.first().and_then(|(frame, _)| frame.columns.get(place)).map_or("", |column| &column.name);
            FrameColumn::of_cells(name, &cells.collect::<Vec<_>>())
        };
        let columns = (0..count).map(column).collect::<Result<_, _>>()?;
        Ok(Frame { labels: self.labels.clone(), timestamps_ns, columns })
    }
}

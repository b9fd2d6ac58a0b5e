//! What counters gain in bins of time.

use model::{Cell, Summary, ValueType};

use super::bins::{Bin, Bins};
use crate::Frame;
use crate::plan::Grouping;

/// A counter's value.
#[derive(Clone, Copy)]
enum Reading {
    Whole(i128),
    Float(f64),
}

impl Reading {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::I64(value) => Some(Self::Whole(value.into())),
            Cell::U64(value) => Some(Self::Whole(value.into())),
            Cell::F64(value) if !value.is_nan() => Some(Self::Float(value)),
            _ => None,
        }
    }

    /// The gain since another value: all of it where it fell, since it began again at zero.
    fn gain(self, before: Self) -> f64 {
        match (self, before) {
            (Self::Whole(now), Self::Whole(before)) => (if now < before { now } else { now - before }) as f64,
            (now, before) => {
                let (now, before) = (now.number(), before.number());
                if now < before { now } else { now - before }
            }
        }
    }

    const fn number(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

/// What a series' column gained in each bin in which it has a value; rows are in order of time.
pub(super) fn of_column(frame: &Frame, name: &str, grouping: &Grouping) -> Bins {
    let mut bins = Bins::default();
    let Some(column) = frame.columns.iter().find(|column| *column.name == *name) else { return bins };
    let mut open: Option<(i64, Summary)> = None;
    let mut before: Option<(i64, Reading)> = None;
    let mut close = |open: &mut Option<(i64, Summary)>| {
        if let Some((start_ns, summary)) = open.take() {
            bins.add(start_ns, Bin::Numbers { summary, values: Vec::new(), is_bool: false });
        }
    };
    let readings = frame.timestamps_ns.iter().enumerate();
    for (time_ns, reading) in
        readings.filter_map(|(row, time_ns)| Some((*time_ns, Reading::from_cell(column.cell(row))?)))
    {
        let start_ns = grouping.bin_start(time_ns);
        if open.as_ref().is_none_or(|(known_ns, _)| *known_ns != start_ns) {
            close(&mut open);
        }
        let is_near =
            |bin_ns: i64| grouping.width_ns.is_none_or(|width_ns| start_ns.saturating_sub(width_ns) <= bin_ns);
        let gain = before.filter(|(bin_ns, _)| is_near(*bin_ns)).map_or(0.0, |(_, known)| reading.gain(known));
        let (_, summary) = open.get_or_insert_with(|| (start_ns, Summary::empty(ValueType::F64)));
        summary.add(time_ns, gain.to_bits());
        before = Some((start_ns, reading));
    }
    close(&mut open);
    bins
}

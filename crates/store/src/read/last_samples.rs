//! The last sample of many groups that have one and the same column: what an instant vector needs of lone series.

use model::{STALE_NAN_BITS, TimeRange, ValueType, Values};

use crate::StoreError;
use crate::head::HeadLastRow;
use crate::read::GroupReader;
use crate::read::last_rows::BatchSnapshot;
use crate::read::select::{SelectedColumn, SelectedGroup};
use crate::read::table_rows::TableRows;

/// A group's last sample in a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LastSample {
    /// There is none, or it is a stale marker.
    None,
    /// A number.
    Number {
        /// Nanoseconds since the Unix epoch.
        time_ns: i64,
        /// Booleans are 0 and 1.
        value: f64,
    },
    /// The group has to be read.
    Unknown,
}

impl LastSample {
    /// A cell of a row in a head.
    fn of_cell(time_ns: i64, cell: u64, value_type: ValueType) -> Self {
        let value = match value_type {
            ValueType::F64 if cell == STALE_NAN_BITS => return Self::None,
            ValueType::F64 => f64::from_bits(cell),
            ValueType::I64 => cell as i64 as f64,
            ValueType::U64 => cell as f64,
            ValueType::Bool => f64::from(u8::from(cell != 0)),
            ValueType::String | ValueType::Histogram => return Self::Unknown,
        };
        Self::Number { time_ns, value }
    }

    /// The last of rows that were read; a null may be a marker, or a row that has other columns only.
    fn of_rows(rows: &TableRows) -> Self {
        let Some((row, time_ns)) = rows.timestamps_ns.iter().copied().enumerate().next_back() else {
            return Self::None;
        };
        let Some(Some(column)) = rows.columns.first() else { return Self::Unknown };
        if column.validity.as_ref().is_some_and(|validity| validity.get(row) != Some(&true)) {
            return Self::Unknown;
        }
        let value = match &column.values {
            Values::F64(values) => values.get(row).copied(),
            Values::I64(values) => values.get(row).map(|value| *value as f64),
            Values::U64(values) => values.get(row).map(|value| *value as f64),
            Values::Bool(values) => values.get(row).map(|value| f64::from(u8::from(*value))),
            Values::Text(_) => None,
        };
        value.map_or(Self::Unknown, |value| Self::Number { time_ns, value })
    }
}

impl GroupReader<'_> {
    /// The last sample in a range of each of some groups: all of one shard, with the same single column. Heads are asked for all of them at
    /// once, under one lock.
    pub fn last_samples(&self, groups: &[SelectedGroup], range: &TimeRange) -> Result<Vec<LastSample>, StoreError> {
        let columns = groups.first().map(|group| group.columns.clone()).unwrap_or_default();
        let [column] = columns.as_slice() else { return Ok(vec![LastSample::Unknown; groups.len()]) };
        let Some(snapshot) = BatchSnapshot::take(self, groups, std::slice::from_ref(column), range) else {
            return Ok(vec![LastSample::Unknown; groups.len()]);
        };
        let parts_until_ns = snapshot.parts_until_ns();
        let (mut samples, mut head_rows) = (Vec::with_capacity(groups.len()), 0);
        for number in 0..groups.len() {
            let (sample, is_of_head) = Self::last_sample(&snapshot, number, column, parts_until_ns)?;
            samples.push(sample);
            head_rows += u64::from(is_of_head);
        }
        self.context.origins.lock().add_head_rows(head_rows);
        Ok(samples)
    }

    /// The last sample of a group, and whether a head had it.
    fn last_sample(
        snapshot: &BatchSnapshot<'_>,
        number: usize,
        column: &SelectedColumn,
        parts_until_ns: Option<i64>,
    ) -> Result<(LastSample, bool), StoreError> {
        let head = snapshot.head(number);
        let is_newer = |until_ns: Option<i64>| until_ns.is_none() || head.until_ns() > until_ns;
        // All parts are asked at once before the group is looked for in each.
        let until_ns = if is_newer(parts_until_ns) { None } else { snapshot.part_bound(number)? };
        match (head, until_ns) {
            (HeadLastRow::None, None) => Ok((LastSample::None, false)),
            (HeadLastRow::None, Some(until_ns)) => {
                Ok((LastSample::of_rows(&snapshot.read_last(number, until_ns)?), false))
            }
            (HeadLastRow::Row { time_ns, cells, columns }, until_ns) if is_newer(until_ns) => {
                let place = columns.iter().position(|found| *found == (column.slot, column.value_type));
                let cell = place.and_then(|place| cells.get(place));
                let of_cell = |cell: &u64| (LastSample::of_cell(time_ns, *cell, column.value_type), true);
                Ok(cell.map_or((LastSample::Unknown, false), of_cell))
            }
            _ => Ok((LastSample::Unknown, false)),
        }
    }
}

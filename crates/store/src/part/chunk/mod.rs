//! One group's rows for a range of time, as columns: in memory and as bytes. Layout: `docs/formats/chunk.md`.

mod decode;
mod encode;
mod join;

pub(crate) use decode::{DecodeTarget, EncodedTimes, check, decode, decode_into};
pub(crate) use encode::encode;
pub(crate) use join::{in_time_order, join, merge, order_distinct};

use std::ops::Range;

use codec::Effort;
use index::Slot;
use model::{Summary, SummaryParts, TimeRange, ValueType};

/// Rows that any chunk may hold.
pub(crate) const CHUNK_ROWS_MAX: usize = 1 << 16;

/// Rows of a chunk on level 1, and on level 2 where large chunks cost less.
const ROWS: [usize; 2] = [1024, 4096];

/// Rows that a chunk of a level may have.
pub(crate) fn rows_max(level: u8) -> usize {
    ROWS[usize::from(level.clamp(1, 2) - 1)]
}

/// How hard chunks of a level try to be small: level 2 is read rarely and stays long.
pub(crate) fn effort_of(level: u8) -> Effort {
    if level < 2 { Effort::Fast } else { Effort::Small }
}

/// Rows as chunks of a level, of equal size: a small one at the end would have to be joined with others by the next merge.
pub(crate) fn cut_evenly(places: Range<usize>, level: u8) -> impl Iterator<Item = Range<usize>> {
    let count = places.len();
    let rows = count.div_ceil(count.div_ceil(rows_max(level)).max(1)).max(1);
    let end = places.end;
    places.step_by(rows).map(move |from| from..(from + rows).min(end))
}

/// One group's rows: columns of equal length. Timestamps ascend, none twice, unless said otherwise.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Rows {
    pub(crate) timestamps_ns: Vec<i64>,
    /// Sorted by slot.
    pub(crate) columns: Vec<RowsColumn>,
}

/// One member's cells.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RowsColumn {
    pub(crate) slot: Slot,
    pub(crate) value_type: ValueType,
    /// Bits of the value; for strings and histograms a place in `texts`. A stale cell holds [`STALE_NAN_BITS`], a null cell anything.
    pub(crate) cells: Vec<u64>,
    /// Which cells are present; empty if all are.
    pub(crate) validity: Vec<bool>,
    /// Texts, or histograms in the bytes of [`codec::histogram::encode_row`].
    pub(crate) texts: Vec<Vec<u8>>,
}

impl Rows {
    /// First and last timestamp; `None` if there are no rows.
    pub(crate) fn range(&self) -> Option<TimeRange> {
        Some(TimeRange::new(*self.timestamps_ns.first()?, *self.timestamps_ns.last()?))
    }

    /// From the first to the last of some rows.
    pub(crate) fn range_of(&self, places: &Range<usize>) -> Option<TimeRange> {
        let timestamps_ns = self.timestamps_ns.get(places.clone())?;
        Some(TimeRange::new(*timestamps_ns.first()?, *timestamps_ns.last()?))
    }

    /// Takes out those of some rows all of whose cells are null.
    pub(crate) fn drop_empty(&mut self, of: Range<usize>) {
        let count = self.timestamps_ns.len();
        if self.columns.iter().any(|column| column.validity.is_empty()) && count > 0 {
            return;
        }
        let is_kept = |row: usize| !of.contains(&row) || self.columns.iter().any(|column| !column.is_null(row));
        let kept: Vec<usize> = (0..count).filter(|row| is_kept(*row)).collect();
        if kept.len() < count {
            *self = self.pick(&kept);
        }
    }

    /// Some of the rows, by their places.
    pub(crate) fn pick(&self, places: &[usize]) -> Self {
        let column = |column: &RowsColumn| {
            let mut picked = RowsColumn::new(column.slot, column.value_type);
            if column.value_type.is_elsewhere() {
                places.iter().for_each(|row| picked.push_from(Some(column), *row));
                return picked;
            }
            picked.cells = places.iter().filter_map(|row| column.cells.get(*row).copied()).collect();
            if !column.validity.is_empty() {
                picked.validity = places.iter().map(|row| !column.is_null(*row)).collect();
            }
            picked
        };
        Self {
            timestamps_ns: places.iter().filter_map(|row| self.timestamps_ns.get(*row).copied()).collect(),
            columns: self.columns.iter().map(column).collect(),
        }
    }
}

impl RowsColumn {
    pub(crate) fn new(slot: Slot, value_type: ValueType) -> Self {
        Self { slot, value_type, cells: Vec::new(), validity: Vec::new(), texts: Vec::new() }
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.validity.get(row) == Some(&false)
    }

    /// Which cells of some rows are present; empty if all are.
    pub(crate) fn validity_in(&self, places: &Range<usize>) -> &[bool] {
        self.validity.get(places.clone()).unwrap_or_default()
    }

    pub(crate) fn push(&mut self, cell: Option<u64>) {
        if cell.is_none() && self.validity.is_empty() {
            self.validity.resize(self.cells.len(), true);
        }
        if cell.is_none() || !self.validity.is_empty() {
            self.validity.push(cell.is_some());
        }
        self.cells.push(cell.unwrap_or(0));
    }

    pub(crate) fn push_text(&mut self, text: &[u8]) {
        self.texts.push(text.to_vec());
        self.push(Some(self.texts.len() as u64 - 1));
    }

    /// Adds the values of some rows to a summary; they are later than what it has.
    pub(crate) fn add_to(&self, summary: &mut Summary, timestamps_ns: &[i64], rows: Range<usize>, parts: SummaryParts) {
        let (Some(times_ns), Some(cells)) = (timestamps_ns.get(rows.clone()), self.cells.get(rows.clone())) else {
            return;
        };
        let validity = self.validity_in(&rows);
        if !validity.contains(&false) {
            summary.add_all(times_ns, cells, parts);
            return;
        }
        let samples = times_ns.iter().zip(cells).zip(validity).filter(|(_, is_present)| **is_present);
        samples.for_each(|((timestamp_ns, bits), _)| summary.add(*timestamp_ns, *bits));
    }

    /// Makes the cells of some rows null.
    pub(crate) fn clear(&mut self, from: usize, to: usize) {
        if self.validity.is_empty() {
            self.validity.resize(self.cells.len(), true);
        }
        self.validity.iter_mut().take(to).skip(from).for_each(|is_present| *is_present = false);
    }

    /// Appends all cells of a column of the same member.
    fn append(&mut self, other: &Self) {
        if !(self.validity.is_empty() && other.validity.is_empty()) {
            self.validity.resize(self.cells.len(), true);
            self.validity.extend_from_slice(&other.validity);
            self.validity.resize(self.cells.len() + other.cells.len(), true);
        }
        let texts = self.texts.len() as u64;
        if self.value_type.is_elsewhere() {
            self.cells.extend(other.cells.iter().map(|place| place + texts));
            self.texts.extend_from_slice(&other.texts);
        } else {
            self.cells.extend_from_slice(&other.cells);
        }
    }

    /// The bytes that a cell points at.
    pub(crate) fn text(&self, place: u64) -> &[u8] {
        self.texts.get(place as usize).map(Vec::as_slice).unwrap_or_default()
    }

    /// Appends another column's cell, or null if there is none.
    pub(crate) fn push_from(&mut self, from: Option<&Self>, row: usize) {
        match from {
            Some(from) if !from.is_null(row) => match (from.value_type, from.cells.get(row)) {
                (value_type, Some(place)) if value_type.is_elsewhere() => {
                    self.push_text(from.text(*place));
                }
                (_, cell) => self.push(cell.copied()),
            },
            _ => self.push(None),
        }
    }
}

/// What a chunk's bytes say before the columns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChunkHeader {
    pub(crate) rows: usize,
    pub(crate) range: TimeRange,
    /// Smallest and largest sequence id of the rows inside.
    pub(crate) sequences: (u64, u64),
    columns: Vec<(Slot, ValueType, usize)>,
    timestamps_bytes: usize,
}

/// The rows from one index up to another; columns that have no cell there left out.
pub(crate) fn slice(rows: &Rows, from: usize, to: usize) -> Rows {
    let column = |column: &RowsColumn| {
        let mut part = RowsColumn::new(column.slot, column.value_type);
        if column.value_type.is_elsewhere() {
            (from..to).for_each(|row| part.push_from(Some(column), row));
        } else {
            part.cells = column.cells.get(from..to).unwrap_or_default().to_vec();
            part.validity = column.validity.get(from..to).unwrap_or_default().to_vec();
            if !part.validity.contains(&false) {
                part.validity.clear();
            }
        }
        part
    };
    let has_cells = |column: &RowsColumn| column.validity.is_empty() || column.validity.contains(&true);
    Rows {
        timestamps_ns: rows.timestamps_ns.get(from..to).unwrap_or_default().to_vec(),
        columns: rows.columns.iter().map(column).filter(has_cells).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::STALE_NAN_BITS;
    use proptest::prelude::*;

    use super::*;

    type Written = Vec<(i64, BTreeMap<Slot, u64>)>;

    fn rows_of(written: &Written) -> Rows {
        let slots: std::collections::BTreeSet<Slot> =
            written.iter().flat_map(|(_, cells)| cells.keys().copied()).collect();
        let column = |slot: &Slot| {
            let mut column = RowsColumn::new(*slot, ValueType::F64);
            for (_, cells) in written {
                column.push(cells.get(slot).copied());
            }
            column
        };
        Rows {
            timestamps_ns: written.iter().map(|(timestamp, _)| *timestamp).collect(),
            columns: slots.iter().map(column).collect(),
        }
    }

    fn written() -> impl Strategy<Value = Written> {
        let cell = prop_oneof![Just(STALE_NAN_BITS), (0u64..50).prop_map(|value| (value as f64).to_bits())];
        proptest::collection::vec((0i64..20, proptest::collection::btree_map(0u32..3, cell, 0..4)), 0..20)
    }

    proptest! {
        /// Against a map from time and slot to the value written last.
        #[test]
        fn merging_keeps_the_last_value_of_each_cell(pieces in proptest::collection::vec(written(), 0..4)) {
            let mut expected: BTreeMap<i64, BTreeMap<Slot, u64>> = BTreeMap::new();
            for (timestamp, cells) in pieces.iter().flatten() {
                expected.entry(*timestamp).or_default().extend(cells);
            }
            let merged = merge(&pieces.iter().map(rows_of).collect::<Vec<_>>());
            let mut found: BTreeMap<i64, BTreeMap<Slot, u64>> = merged.timestamps_ns.iter().map(|timestamp| (*timestamp, BTreeMap::new())).collect();
            for column in &merged.columns {
                for (row, timestamp) in merged.timestamps_ns.iter().enumerate().filter(|(row, _)| !column.is_null(*row)) {
                    found.entry(*timestamp).or_default().insert(column.slot, column.cells[row]);
                }
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn bytes_and_back(piece in written()) {
            let rows = merge(&[rows_of(&piece)]);
            prop_assume!(!rows.timestamps_ns.is_empty());
            let mut bytes = Vec::new();
            encode(&rows, 0..rows.timestamps_ns.len(), (3, 9), Effort::Fast, &mut bytes);
            let (header, back) = decode(&bytes, None).unwrap();
            prop_assert_eq!(header.sequences, (3, 9));
            prop_assert_eq!(back.timestamps_ns, rows.timestamps_ns);
            for (column, back) in rows.columns.iter().zip(&back.columns) {
                for row in 0..column.cells.len() {
                    prop_assert_eq!(column.is_null(row), back.is_null(row));
                    prop_assert!(column.is_null(row) || column.cells[row] == back.cells[row]);
                }
            }
        }

        #[test]
        fn hostile_bytes_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = bytes;
            let checksum = crc32c::crc32c(&bytes);
            bytes.extend_from_slice(&checksum.to_le_bytes());
            let _ = decode(&bytes, None);
        }
    }

    #[test]
    fn every_type_comes_back_and_columns_can_be_chosen() {
        let mut texts = RowsColumn::new(4, ValueType::String);
        texts.push_text(b"a");
        texts.push(None);
        let mut flags = RowsColumn::new(2, ValueType::Bool);
        flags.push(Some(1));
        flags.push(Some(0));
        let mut numbers = RowsColumn::new(0, ValueType::U64);
        numbers.push(Some(u64::MAX));
        numbers.push(Some(0));
        let rows = Rows { timestamps_ns: vec![-5, 10], columns: vec![numbers, flags, texts] };
        let mut bytes = Vec::new();
        encode(&rows, 0..rows.timestamps_ns.len(), (1, 1), Effort::Fast, &mut bytes);
        assert_eq!(decode(&bytes, None).unwrap().1, rows);
        assert_eq!(decode(&bytes, Some(&[2])).unwrap().1.columns, rows.columns[1..2]);
        bytes[3] ^= 1;
        assert!(decode(&bytes, None).is_err());
    }
}

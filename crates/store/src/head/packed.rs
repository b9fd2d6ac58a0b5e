//! Rows in as few bytes as their columns' cells have needed so far: most cells are small numbers, and what a row takes decides how much
//! fresh memory its writer touches, how far apart rows of a group lie, and how many rows a head has room for.
//!
//! A row is its timestamp (8 bytes, little-endian) and its cells, 1, 2, 4 or 8 bytes each, column by column.

use codec::varint;
use index::Slot;
use model::ValueType;

/// Bytes of a timestamp, and of a cell at most.
const WORD_BYTES: usize = size_of::<u64>();

/// How cells become numbers that are small where values are, and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fold {
    /// Signed: the sign goes to the lowest bit.
    Sign,
    /// Floating point: whole numbers, and others of few digits in base two, end in zero bytes.
    Ends,
    /// Small as it is.
    Same,
}

impl Fold {
    const fn for_type(value_type: ValueType) -> Self {
        match value_type {
            ValueType::F64 => Self::Ends,
            ValueType::I64 => Self::Sign,
            ValueType::U64 | ValueType::Bool | ValueType::String | ValueType::Histogram => Self::Same,
        }
    }

    const fn fold(self, cell: u64) -> u64 {
        match self {
            Self::Sign => varint::zigzag(cell as i64),
            Self::Ends => cell.swap_bytes(),
            Self::Same => cell,
        }
    }

    const fn unfold(self, folded: u64) -> u64 {
        match self {
            Self::Sign => varint::unzigzag(folded) as u64,
            Self::Ends => folded.swap_bytes(),
            Self::Same => folded,
        }
    }
}

/// Where a row has the cell of a column.
#[derive(Debug, Clone, Copy)]
struct CellForm {
    fold: Fold,
    /// 1, 2, 4 or 8.
    bytes: u8,
    /// From the row's beginning.
    at: u32,
    /// The bits of a folded cell for which there is no room.
    beyond: u64,
}

/// How rows of some columns lie in bytes.
#[derive(Debug, Default, Clone)]
pub(super) struct RowForm {
    columns: Vec<CellForm>,
    row_bytes: usize,
}

impl RowForm {
    /// With room for the smallest cells.
    pub(super) fn new(columns: &[(Slot, ValueType)]) -> Self {
        let of_column = |(_, value_type): &(Slot, ValueType)| (Fold::for_type(*value_type), 1);
        Self::from_columns(columns.iter().map(of_column))
    }

    fn from_columns(columns: impl Iterator<Item = (Fold, u8)>) -> Self {
        let mut row_bytes = WORD_BYTES;
        let place = |(fold, bytes): (Fold, u8)| {
            let at = row_bytes as u32;
            row_bytes += usize::from(bytes);
            CellForm { fold, bytes, at, beyond: u64::MAX.checked_shl(u32::from(bytes) * 8).unwrap_or(0) }
        };
        let columns = columns.map(place).collect();
        Self { columns, row_bytes }
    }

    /// Bytes of a row.
    pub(super) const fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Bytes of memory for so many rows: the last one is written in words, too.
    pub(super) const fn room_bytes(&self, rows: usize) -> usize {
        self.row_bytes * rows + WORD_BYTES
    }

    /// A form that has room for these cells, too.
    pub(super) fn widened(&self, cells: &[u64]) -> Self {
        let wide_enough = |(column, cell): (&CellForm, &u64)| {
            let bits = u64::BITS - column.fold.fold(*cell).leading_zeros();
            let bytes = bits.div_ceil(8).max(1).next_power_of_two() as u8;
            (column.fold, bytes.max(column.bytes))
        };
        Self::from_columns(self.columns.iter().zip(cells).map(wide_enough))
    }

    /// Appends a row, unless a cell is too large for this form.
    pub(super) fn pack(&self, timestamp_ns: i64, cells: &[u64], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.extend_from_slice(&timestamp_ns.to_le_bytes());
        let mut beyond = 0;
        for (column, cell) in self.columns.iter().zip(cells) {
            let folded = column.fold.fold(*cell);
            beyond |= folded & column.beyond;
            // A word, of which is taken back what is too much: a copy of so many bytes as a variable says is a call.
            out.extend_from_slice(&folded.to_le_bytes());
            out.truncate(start + column.at as usize + usize::from(column.bytes));
        }
        if beyond != 0 {
            out.truncate(start);
        }
        beyond == 0
    }

    /// Appends a row's timestamp and cells.
    pub(super) fn unpack(&self, row: &[u8], out: &mut Vec<u64>) {
        out.push(timestamp_of(row) as u64);
        out.extend(self.columns.iter().map(|column| column.fold.unfold(folded_cell(row, column))));
    }

    /// Appends the cells of a column.
    pub(super) fn unpack_column(&self, rows: &[&[u8]], column: usize, out: &mut Vec<u64>) {
        let Some(column) = self.columns.get(column) else {
            return;
        };
        let start = out.len();
        match column.bytes {
            1 => out.extend(rows.iter().map(|row| u64::from(u8::from_le_bytes(bytes_at(row, column.at))))),
            2 => out.extend(rows.iter().map(|row| u64::from(u16::from_le_bytes(bytes_at(row, column.at))))),
            4 => out.extend(rows.iter().map(|row| u64::from(u32::from_le_bytes(bytes_at(row, column.at))))),
            _ => out.extend(rows.iter().map(|row| u64::from_le_bytes(bytes_at(row, column.at)))),
        }
        let cells = out.get_mut(start..).unwrap_or_default();
        match column.fold {
            Fold::Sign => cells.iter_mut().for_each(|cell| *cell = Fold::Sign.unfold(*cell)),
            Fold::Ends => cells.iter_mut().for_each(|cell| *cell = Fold::Ends.unfold(*cell)),
            Fold::Same => {}
        }
    }
}

/// A row's timestamp.
pub(super) fn timestamp_of(row: &[u8]) -> i64 {
    i64::from_le_bytes(bytes_at(row, 0))
}

fn folded_cell(row: &[u8], column: &CellForm) -> u64 {
    match column.bytes {
        1 => u64::from(u8::from_le_bytes(bytes_at(row, column.at))),
        2 => u64::from(u16::from_le_bytes(bytes_at(row, column.at))),
        4 => u64::from(u32::from_le_bytes(bytes_at(row, column.at))),
        _ => u64::from_le_bytes(bytes_at(row, column.at)),
    }
}

/// Bytes of a row; zeros if it is shorter, which no row is.
fn bytes_at<const BYTES: usize>(row: &[u8], at: u32) -> [u8; BYTES] {
    row.get(at as usize..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; BYTES])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPES: [ValueType; 4] = [ValueType::F64, ValueType::I64, ValueType::U64, ValueType::Bool];

    fn cell() -> impl Strategy<Value = u64> {
        let whole = |number: i32| f64::from(number).to_bits();
        let bits = (any::<u64>(), 0u32..64).prop_map(|(bits, shift)| bits >> shift);
        prop_oneof![bits, any::<i8>().prop_map(|number| i64::from(number) as u64), any::<i32>().prop_map(whole)]
    }

    proptest! {
        #[test]
        fn rows_come_back(
            types in proptest::collection::vec(0..TYPES.len(), 1..6),
            rows in proptest::collection::vec((any::<i64>(), proptest::collection::vec(cell(), 6)), 1..40),
        ) {
            let columns: Vec<(Slot, ValueType)> = (0..).zip(types.iter().map(|place| TYPES[*place])).collect();
            let mut form = RowForm::new(&columns);
            for (timestamp_ns, cells) in &rows {
                let cells = &cells[..columns.len()];
                let mut bytes = vec![9];
                if !form.pack(*timestamp_ns, cells, &mut bytes) {
                    prop_assert_eq!(&bytes, &[9]);
                    let wider = form.widened(cells);
                    prop_assert!(wider.row_bytes() > form.row_bytes());
                    form = wider;
                    prop_assert!(form.pack(*timestamp_ns, cells, &mut bytes));
                }
                let row = &bytes[1..];
                prop_assert_eq!(row.len(), form.row_bytes());
                let mut back = Vec::new();
                form.unpack(row, &mut back);
                prop_assert_eq!(timestamp_of(row), *timestamp_ns);
                prop_assert_eq!(&back[1..], cells);
                for (column, cell) in cells.iter().enumerate() {
                    back.clear();
                    form.unpack_column(&[row, row], column, &mut back);
                    prop_assert_eq!(&back, &[*cell; 2]);
                }
            }
        }
    }

    #[test]
    fn small_numbers_take_few_bytes() {
        let bytes_of =
            |value_type, cell: u64| RowForm::new(&[(0, value_type)]).widened(&[cell]).row_bytes() - WORD_BYTES;
        for (number, expected) in [(-128i64, 1), (127, 1), (128, 2), (-32_768, 2), (32_768, 4), (1 << 40, 8)] {
            assert_eq!(bytes_of(ValueType::I64, number as u64), expected, "{number}");
        }
        for (number, expected) in [(0.0, 1), (2.0, 1), (58.0, 2), (-3.5, 2), (100_000.0, 4), (0.1, 8)] {
            assert_eq!(bytes_of(ValueType::F64, f64::to_bits(number)), expected, "{number}");
        }
    }
}

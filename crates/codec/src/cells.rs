//! Rows of cells, as requests have them: packed to whole bytes, column by column in tiles of rows. Made for writing a log, where a
//! nanosecond a value counts and a bit does not. Layout: `docs/formats/columns.md`.
//!
//! | first byte, high half | scheme | behind it |
//! |---|---|---|
//! | 0 | raw | 8 bytes a cell |
//! | 1 | frame | shift, base, (cell >> shift) − base in as many bytes as the low half says |
//! | 2 | decimals | exponent, base, cell × 10^exponent − base in as many bytes as the low half says |

use crate::float::decimals;
use crate::{DecodeError, Reader, varint};

const RAW: u8 = 0;
const FRAME: u8 = 1;
const DECIMALS: u8 = 2;

/// Rows of a tile.
const TILE_ROWS: usize = 256;

/// Cells of a tile that are looked at to find the exponent of decimals.
const PROBES: usize = 4;

/// Largest exponent that is tried: a search through all of them would take longer than the rest.
const EXPONENT_MAX: usize = 4;

/// What one tile has of a column: numbers, the smallest of them, and how many bytes each takes beyond that.
struct Packed<'a> {
    head: u8,
    /// Shift or exponent.
    parameter: u8,
    base: i64,
    numbers: &'a [i64],
}

/// Appends cells that lie row by row; `is_float` says of each column whether its cells are the bits of floats.
pub fn encode(cells: &[u64], is_float: &[bool], out: &mut Vec<u8>) {
    let width = is_float.len();
    if width == 0 {
        return;
    }
    let (mut column, mut numbers) = ([0; TILE_ROWS], [0; TILE_ROWS]);
    for tile in cells.chunks(TILE_ROWS * width) {
        let rows = tile.len() / width;
        let (column, numbers) = (&mut column[..rows], &mut numbers[..rows]);
        for (place, is_float) in is_float.iter().enumerate() {
            let of_column = tile.get(place..).unwrap_or_default().iter().step_by(width);
            column.iter_mut().zip(of_column).for_each(|(to, cell)| *to = *cell);
            encode_column(column, numbers, *is_float, out);
        }
    }
}

fn encode_column(cells: &[u64], numbers: &mut [i64], is_float: bool, out: &mut Vec<u8>) {
    let exponent = if is_float { to_decimals(cells, numbers) } else { None };
    let (head, parameter) = match exponent {
        Some(exponent) => (DECIMALS, exponent),
        None => {
            let union = cells.iter().fold(0, |union, cell| union | cell);
            let shift = union.trailing_zeros() % 64;
            numbers.iter_mut().zip(cells).for_each(|(number, cell)| *number = *cell as i64 >> shift);
            (FRAME, shift as u8)
        }
    };
    let (base, largest) = bounds(numbers);
    let bytes = (64 - (largest.wrapping_sub(base) as u64).leading_zeros()).div_ceil(8) as u8;
    let base_bytes = (64 - varint::zigzag(base).leading_zeros()).div_ceil(7).max(1) as usize;
    if 1 + base_bytes + numbers.len() * usize::from(bytes) >= numbers.len() * 8 {
        out.push(RAW << 4);
        let start = out.len();
        out.resize(start + cells.len() * 8, 0);
        let places = out[start..].as_chunks_mut::<8>().0;
        places.iter_mut().zip(cells).for_each(|(to, cell)| *to = cell.to_le_bytes());
        return;
    }
    Packed { head: head << 4 | bytes, parameter, base, numbers }.push(out);
}

/// The smallest and the largest number; four at a time, which do not wait for one another.
fn bounds(numbers: &[i64]) -> (i64, i64) {
    let first = numbers.first().copied().unwrap_or(0);
    let (mut smallest, mut largest) = ([first; 4], [first; 4]);
    let (fours, rest) = numbers.as_chunks::<4>();
    for four in fours {
        for lane in 0..4 {
            smallest[lane] = smallest[lane].min(four[lane]);
            largest[lane] = largest[lane].max(four[lane]);
        }
    }
    let all = rest.iter().chain(&smallest).copied();
    (all.clone().min().unwrap_or(0), all.chain(largest).max().unwrap_or(0))
}

/// The cells × a power of ten, if that makes integers of all of them; the exponent.
fn to_decimals(cells: &[u64], numbers: &mut [i64]) -> Option<u8> {
    let mut exponent = 0;
    for cell in cells.iter().step_by(cells.len().div_ceil(PROBES).max(1)) {
        exponent = decimals::exponent_of(f64::from_bits(*cell), exponent, EXPONENT_MAX)?;
    }
    decimals::all_integers(cells, exponent, numbers).then_some(exponent as u8)
}

impl Packed<'_> {
    fn push(&self, out: &mut Vec<u8>) {
        out.push(self.head);
        out.push(self.parameter);
        varint::push_signed(out, self.base);
        match self.head & 15 {
            1 => out.extend(self.numbers.iter().map(|number| number.wrapping_sub(self.base) as u8)),
            2 => self.push_words::<2>(out),
            3 => self.push_words::<3>(out),
            4 => self.push_words::<4>(out),
            5 => self.push_words::<5>(out),
            6 => self.push_words::<6>(out),
            7 => self.push_words::<7>(out),
            _ => {}
        }
    }

    fn push_words<const BYTES: usize>(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.numbers.len() * BYTES, 0);
        for (bytes, number) in out[start..].as_chunks_mut::<BYTES>().0.iter_mut().zip(self.numbers) {
            let word = number.wrapping_sub(self.base).to_le_bytes();
            bytes.copy_from_slice(&word[..BYTES]);
        }
    }
}

/// Takes so many rows of so many cells and appends them to `cells`, row by row.
pub fn decode(reader: &mut Reader<'_>, rows: usize, width: usize, cells: &mut Vec<u64>) -> Result<(), DecodeError> {
    if width == 0 {
        return Ok(());
    }
    let mut left = rows;
    while left > 0 {
        let rows = left.min(TILE_ROWS);
        // Each column takes a byte at least: no more is allocated than what is there can call for.
        if width > reader.rest().len() {
            return Err(reader.error("cells missing"));
        }
        let start = cells.len();
        cells.resize(start + rows * width, 0);
        for place in 0..width {
            let of_column = cells.get_mut(start + place..).unwrap_or_default().iter_mut().step_by(width);
            decode_column(reader, rows, of_column)?;
        }
        left -= rows;
    }
    Ok(())
}

fn decode_column<'a>(
    reader: &mut Reader<'_>,
    rows: usize,
    cells: impl Iterator<Item = &'a mut u64>,
) -> Result<(), DecodeError> {
    let head = reader.byte()?;
    let (scheme, bytes) = (head >> 4, usize::from(head & 15));
    if scheme == RAW {
        let raw = reader.bytes(rows * 8)?.as_chunks::<8>().0;
        cells.zip(raw).for_each(|(to, cell)| *to = u64::from_le_bytes(*cell));
        return Ok(());
    }
    let parameter = reader.byte()?;
    let base = reader.varint_signed()?;
    if bytes >= 8 || scheme > DECIMALS || (scheme == FRAME && parameter > 63) {
        return Err(reader.error("unknown scheme of cells"));
    }
    let packed = reader.bytes(rows * bytes)?;
    let number = |row: usize| {
        let from = packed.get(row * bytes..(row + 1) * bytes).unwrap_or_default();
        let mut word = [0; 8];
        word.iter_mut().zip(from).for_each(|(to, byte)| *to = *byte);
        base.wrapping_add(i64::from_le_bytes(word))
    };
    if scheme == FRAME {
        cells.zip(0..rows).for_each(|(to, row)| *to = (number(row) as u64) << parameter);
        return Ok(());
    }
    let Some(power) = decimals::power(usize::from(parameter)) else {
        return Err(reader.error("exponent too large"));
    };
    cells.zip(0..rows).for_each(|(to, row)| *to = (number(row) as f64 / power).to_bits());
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(cells: &[u64], is_float: &[bool]) -> usize {
        let mut out = Vec::new();
        encode(cells, is_float, &mut out);
        let mut reader = Reader::new(&out);
        let mut back = vec![7];
        decode(&mut reader, cells.len() / is_float.len(), is_float.len(), &mut back).unwrap();
        assert_eq!(&back[1..], cells);
        assert!(reader.is_empty());
        out.len()
    }

    fn cell() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            (-1000i64..1000).prop_map(|number| number as u64),
            (-1000i32..1000).prop_map(|number| f64::from(number).to_bits()),
            (-100_000i32..100_000).prop_map(|number| (f64::from(number) / 100.0).to_bits()),
            prop_oneof![Just(-0.0), Just(f64::NAN), Just(f64::INFINITY), Just(f64::MAX), Just(9_007_199_254_740_993.0)]
                .prop_map(f64::to_bits),
        ]
    }

    proptest! {
        #[test]
        fn any_cells(cells in proptest::collection::vec(cell(), 0..1500), is_float in proptest::collection::vec(any::<bool>(), 1..6)) {
            let whole = cells.len() / is_float.len() * is_float.len();
            check(&cells[..whole], &is_float);
        }

        #[test]
        fn like_cells(number in -1_000_000_000i64..1_000_000_000, spread in 1i64..100_000, scale in 0i32..8, count in 1usize..700) {
            let numbers = (0..count as i64).map(|place| number + place * place % spread);
            let floats: Vec<u64> = numbers.clone().map(|number| (number as f64 / 10f64.powi(scale)).to_bits()).collect();
            check(&floats, &[true]);
            check(&numbers.map(|number| number as u64).collect::<Vec<_>>(), &[false]);
        }

        #[test]
        fn hostile_bytes_are_an_error_or_cells(bytes in proptest::collection::vec(any::<u8>(), 0..200), rows in 0usize..600, width in 0usize..5) {
            let mut cells = Vec::new();
            let _ = decode(&mut Reader::new(&bytes), rows, width, &mut cells);
            prop_assert!(cells.len() <= rows * width);
        }
    }

    #[test]
    fn one_that_is_no_number_among_those_that_are_not_looked_at() {
        let mut cells: Vec<u64> = (0..256).map(|n| f64::from(n).to_bits()).collect();
        for odd in [f64::NAN.to_bits(), STALE, (-0.0f64).to_bits(), f64::NEG_INFINITY.to_bits()] {
            cells[3] = odd;
            check(&cells, &[true]);
        }
    }

    /// Prometheus's marker of a series' end.
    const STALE: u64 = 0x7ff0_0000_0000_0002;

    #[test]
    fn sizes_in_bytes() {
        let whole: Vec<u64> = (0..1024).map(|n| f64::from(n % 101).to_bits()).collect();
        assert!(check(&whole, &[true]) <= 1024 + 12);
        let cents: Vec<u64> = (0..1024).map(|n| (f64::from(n % 500) / 100.0).to_bits()).collect();
        assert!(check(&cents, &[true]) <= 2048 + 16);
        let counters: Vec<u64> = (0..1024).map(|n| (1 << 40) + n % 200).collect();
        assert!(check(&counters, &[false]) <= 1024 + 40);
        assert!(check(&[f64::NAN.to_bits(), 0.1f64.sqrt().to_bits()], &[true, true]) <= 18);
    }
}

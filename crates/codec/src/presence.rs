//! Which cells of a column hold a value: a cell is a value, null (not written) or stale (Prometheus's marker).
//!
//! | tag | scheme | bytes behind the tag |
//! |---|---|---|
//! | 0 | all are values | none |
//! | 1 | some are null | one bit a cell, set for those that are not null |
//! | 2 | some are stale | one bit a cell, set for those that are not stale |
//! | 3 | both occur | the bits of 1, then the bits of 2 |
//! | 4, 5, 6 | as 1, 2, 3 | as there, each in the form of bits that is smallest: bits, runs or places |

use crate::{DecodeError, Effort, Reader, bits, boolean};

/// Added to a tag whose bits have a form.
const FORMED: u8 = 3;

/// What a cell holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// A value.
    Value,
    /// Nothing was written.
    Null,
    /// The series ended here.
    Stale,
}

/// Appends that all cells are values.
pub fn encode_all_values(out: &mut Vec<u8>) {
    out.push(0);
}

/// Appends the presence of a column's cells, quickly.
pub fn encode(cells: &[Cell], out: &mut Vec<u8>) {
    encode_with(cells, Effort::Fast, out);
}

/// Appends the presence of a column's cells in the smallest of the schemes that the effort allows.
pub fn encode_with(cells: &[Cell], effort: Effort, out: &mut Vec<u8>) {
    let nulls = cells.contains(&Cell::Null);
    let stales = cells.contains(&Cell::Stale);
    let tag = u8::from(nulls) | u8::from(stales) << 1;
    let mut plain = vec![tag];
    let mut formed = vec![tag + FORMED];
    for (_, absent) in [(nulls, Cell::Null), (stales, Cell::Stale)].into_iter().filter(|(occurs, _)| *occurs) {
        let bits: Vec<bool> = cells.iter().map(|cell| *cell != absent).collect();
        boolean::encode(&bits, &mut plain);
        bits::encode(&bits, effort, &mut formed);
    }
    out.extend_from_slice(if tag == 0 || plain.len() <= formed.len() { &plain } else { &formed });
}

/// Takes the presence of so many cells; `None` if all hold values.
pub fn decode(reader: &mut Reader<'_>, count: usize) -> Result<Option<Vec<Cell>>, DecodeError> {
    let tag = reader.byte()?;
    if tag == 0 {
        return Ok(None);
    }
    if tag > 3 + FORMED {
        return Err(reader.error("unknown presence scheme"));
    }
    let formed = tag > FORMED;
    let tag = if formed { tag - FORMED } else { tag };
    let mut bits = Vec::new();
    for occurs in [tag & 1 != 0, tag & 2 != 0] {
        let start = bits.len();
        if occurs {
            let decode_bits = if formed { bits::decode } else { boolean::decode };
            decode_bits(reader, count, &mut bits)?;
        } else {
            bits.resize(start.saturating_add(count), true);
        }
    }
    let (present, fresh) = bits.split_at(count);
    let cell = |(present, fresh): (&bool, &bool)| match (present, fresh) {
        (false, _) => Cell::Null,
        (true, false) => Cell::Stale,
        (true, true) => Cell::Value,
    };
    Ok(Some(present.iter().zip(fresh).map(cell).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trip(runs in proptest::collection::vec((0u8..3, 1usize..40), 0..20)) {
            let cell = |number: u8| [Cell::Value, Cell::Null, Cell::Stale][usize::from(number)];
            let cells: Vec<Cell> = runs.iter().flat_map(|(number, length)| std::iter::repeat_n(cell(*number), *length)).collect();
            for effort in [Effort::Fast, Effort::Small] {
                let mut out = Vec::new();
                encode_with(&cells, effort, &mut out);
                let mut reader = Reader::new(&out);
                let back = decode(&mut reader, cells.len()).unwrap();
                prop_assert!(reader.is_empty());
                prop_assert_eq!(&back.unwrap_or_else(|| vec![Cell::Value; cells.len()]), &cells);
            }
        }

        #[test]
        fn hostile_bytes_are_an_error_or_cells(tag in 0u8..8, bytes in proptest::collection::vec(any::<u8>(), 0..100), count in 0usize..500) {
            let cells = decode(&mut Reader::new(&[&[tag], bytes.as_slice()].concat()), count);
            prop_assert!(!cells.is_ok_and(|cells| cells.is_some_and(|cells| cells.len() != count)));
        }
    }

    #[test]
    fn one_stale_marker_at_the_end_costs_a_few_bytes() {
        let mut cells = vec![Cell::Value; 4096];
        cells[4095] = Cell::Stale;
        let mut out = Vec::new();
        encode(&cells, &mut out);
        assert!(out.len() <= 6, "{out:?}");
    }
}

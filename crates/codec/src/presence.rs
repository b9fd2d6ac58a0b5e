//! Which cells of a column hold a value: a cell is a value, null (not written) or stale (Prometheus's marker).
//!
//! | tag | scheme | bytes behind the tag |
//! |---|---|---|
//! | 0 | all are values | none |
//! | 1 | some are null | one bit a cell, set for those that are not null |
//! | 2 | some are stale | one bit a cell, set for those that are not stale |
//! | 3 | both occur | the bits of 1, then the bits of 2 |

use crate::{DecodeError, Reader, boolean};

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

/// Appends the presence of a column's cells.
pub fn encode(cells: &[Cell], out: &mut Vec<u8>) {
    let nulls = cells.contains(&Cell::Null);
    let stales = cells.contains(&Cell::Stale);
    out.push(u8::from(nulls) | u8::from(stales) << 1);
    for (occurs, absent) in [(nulls, Cell::Null), (stales, Cell::Stale)] {
        if occurs {
            let bits: Vec<bool> = cells.iter().map(|cell| *cell != absent).collect();
            boolean::encode(&bits, out);
        }
    }
}

/// Takes the presence of so many cells; `None` if all hold values.
pub fn decode(reader: &mut Reader<'_>, count: usize) -> Result<Option<Vec<Cell>>, DecodeError> {
    let tag = reader.byte()?;
    if tag == 0 {
        return Ok(None);
    }
    if tag > 3 {
        return Err(reader.error("unknown presence scheme"));
    }
    let mut bits = Vec::new();
    for occurs in [tag & 1 != 0, tag & 2 != 0] {
        let start = bits.len();
        if occurs {
            boolean::decode(reader, count, &mut bits)?;
        } else {
            bits.resize(start + count, true);
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
        fn round_trip(numbers in proptest::collection::vec(0u8..3, 0..100)) {
            let cells: Vec<Cell> = numbers.iter().map(|number| [Cell::Value, Cell::Null, Cell::Stale][usize::from(*number)]).collect();
            let mut out = Vec::new();
            encode(&cells, &mut out);
            let mut reader = Reader::new(&out);
            let back = decode(&mut reader, cells.len()).unwrap();
            prop_assert!(reader.is_empty());
            prop_assert_eq!(back.unwrap_or_else(|| vec![Cell::Value; cells.len()]), cells);
        }
    }
}

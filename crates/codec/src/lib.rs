//! Columns to compact bytes and back. Every column starts with a tag byte that names its scheme, chosen by size when
//! it is encoded; how many values it holds is kept by whoever holds the column. Layouts: `docs/formats/columns.md`.
//!
//! * [`integer`]: timestamps and integers; differences, common factor taken out, packed in blocks.
//! * [`float`]: floats; as scaled integers where they are decimals, else as packed bit patterns.
//! * [`boolean`], [`text`]: the other types.
//! * [`presence`]: which cells hold a value at all.
//! * [`bitpack`], [`varint`]: what the others are made of.

pub mod bitpack;
pub mod boolean;
pub mod float;
pub mod integer;
pub mod presence;
mod reader;
pub mod text;
pub mod varint;

pub use reader::{DecodeError, Reader};

/// Values that one column may hold at most: bounds what a decoder allocates for a damaged count.
pub const COLUMN_VALUES_MAX: usize = 1 << 20;

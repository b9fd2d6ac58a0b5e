//! Columns to compact bytes and back. A column starts with a tag byte that names its scheme, chosen by size when it is
//! encoded; its owner knows how many values it holds. Layouts: `docs/formats/columns.md`.
//!
//! Types of values:
//! * [`integer`]: timestamps and integers; the common factor taken out, then differences or distances to a grid.
//! * [`float`]: floats; as scaled integers where they are decimals, else by their bits.
//! * [`boolean`], [`text`], [`histogram`]: the other types.
//! * [`presence`]: which cells hold a value at all.
//!
//! Rows of cells of any type, as requests have them: [`cells`].
//!
//! What they are made of:
//! * [`bitpack`], `patched`: integers in blocks of as many bits as most of the block need.
//! * `bits`: bits, runs of bits or places of bits.
//! * `tokens`, `tans`: integers in as many bits as their frequency allows.
//! * [`varint`]: single integers · `reader`: bytes within bounds.

pub mod bitpack;
mod bits;
pub mod boolean;
pub mod cells;
pub mod float;
pub mod histogram;
pub mod integer;
mod patched;
pub mod presence;
mod reader;
mod tans;
pub mod text;
mod tokens;
pub mod varint;

pub use reader::{DecodeError, Reader};

/// Values that one column may hold at most: bounds what a decoder allocates for a damaged count.
pub const COLUMN_VALUES_MAX: usize = 1 << 20;

/// How hard an encoder tries. Decoders take either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Quick to write and to read: packed blocks.
    Fast,
    /// Smaller, for data that stays: entropy-coded where that saves something.
    Small,
}

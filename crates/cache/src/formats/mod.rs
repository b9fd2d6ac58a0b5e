//! Results as bytes for clients: JSON, columns of plain numbers, Arrow's stream.

pub(crate) mod arrow;
pub mod columns;
pub mod json;

//! What parsers build batches with: bodies, whole or unpacked piece by piece; buffers of columns that are used again, keyed hashes of groups, series of one value.

pub mod admission;
pub(crate) mod body;
pub(crate) mod columns;
pub(crate) mod key_hash;
pub(crate) mod lone;
#[cfg(test)]
pub(crate) mod render;

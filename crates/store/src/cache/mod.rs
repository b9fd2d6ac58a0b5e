//! Caches in memory.

pub(crate) mod generations;
pub(crate) mod index_blocks;
pub(crate) mod last_rows;
pub(crate) mod number_hash;
pub(crate) mod selections;

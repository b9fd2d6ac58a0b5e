//! Sizes, durations and moments as people write them.

pub(crate) mod sizes;
pub(crate) mod times;

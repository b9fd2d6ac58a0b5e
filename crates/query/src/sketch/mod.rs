//! Sketches: what is about known of many values, in little room, and can be put together.

mod distinct;
mod quantiles;

pub use distinct::DistinctSketch;
pub(crate) use distinct::text_hash;
pub use quantiles::QuantileSketch;

/// Bytes of a sketch's text, beside those of its parts.
pub(crate) const TEXT_BYTES: usize = 128;

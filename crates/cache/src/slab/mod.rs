//! A slab: self-contained, written once, read often; points of one field for a set of keys.
//!
//! * [`header`]: what is in it · [`block`]: the points · [`builder`]: makes one

pub(crate) mod block;
pub(crate) mod builder;
pub(crate) mod header;

pub(crate) use builder::{Built, SlabBuilder, Strand, Unit};
pub(crate) use header::{Head, Header, Marker, Piece, Record};

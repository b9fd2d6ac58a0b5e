//! Writing pictures: as text, as pixels.

pub(crate) mod raster;
pub(crate) mod svg;

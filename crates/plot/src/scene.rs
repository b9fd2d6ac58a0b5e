//! Shapes and texts of a picture, whatever they are written as.

use crate::PlotError;
use crate::output::{raster, svg};
use crate::theme::Paint;

/// A place, in pixels from the upper left corner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Position {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// Where a text has its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A line's look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stroke {
    pub(crate) paint: Paint,
    pub(crate) width_px: f64,
    /// Lengths of dashes and of what is between; none: it is drawn through.
    pub(crate) dashes: &'static [f64],
}

/// A text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Text {
    /// On its base line.
    pub(crate) at: Position,
    pub(crate) anchor: Anchor,
    pub(crate) size_px: f64,
    pub(crate) paint: Paint,
    pub(crate) content: String,
}

/// What a picture is made of, from below to above.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    Rectangle { at: Position, width_px: f64, height_px: f64, paint: Paint },
    Lines { runs: Vec<Vec<Position>>, stroke: Stroke },
    Polygons { outlines: Vec<Vec<Position>>, paint: Paint },
    Dots { centres: Vec<Position>, radius_px: f64, paint: Paint },
    Text(Text),
}

/// A picture that is laid out, to be written as SVG, PNG or WebP.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    pub(crate) width_px: u32,
    pub(crate) height_px: u32,
    /// Its content in words, for those who do not see it.
    pub(crate) description: String,
    pub(crate) shapes: Vec<Shape>,
}

impl Picture {
    /// As SVG: plain text without scripts, styles or anything that is loaded. <https://www.w3.org/TR/SVG11/>
    pub fn svg(&self) -> String {
        svg::write(self)
    }

    /// As PNG, with so many pixels (1 to 4) for each of the plot's, in both directions.
    pub fn png(&self, resolution: f64) -> Result<Vec<u8>, PlotError> {
        raster::png(self, resolution)
    }

    /// As WebP without loss; see [`Picture::png`].
    pub fn webp(&self, resolution: f64) -> Result<Vec<u8>, PlotError> {
        raster::webp(self, resolution)
    }

    /// About as many bytes as drawing it takes, with so many pixels for each of the plot's.
    pub fn memory_bytes(&self, resolution: f64) -> u64 {
        /// A pixel in memory and once more when it is written, and what writing it takes.
        const PIXEL_BYTES: f64 = 12.0;
        let points: usize = self
            .shapes
            .iter()
            .map(|shape| match shape {
                Shape::Lines { runs: places, .. } | Shape::Polygons { outlines: places, .. } => {
                    places.iter().map(Vec::len).sum()
                }
                Shape::Dots { centres, .. } => centres.len(),
                Shape::Rectangle { .. } | Shape::Text(_) => 1,
            })
            .sum();
        let pixels = f64::from(self.width_px) * f64::from(self.height_px) * resolution * resolution;
        (pixels * PIXEL_BYTES) as u64 + points as u64 * 64
    }
}

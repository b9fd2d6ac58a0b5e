//! Sketches: what is about known of many values, in little room, and can be put together.

mod distinct;
mod quantiles;

pub use distinct::DistinctSketch;
pub(crate) use distinct::text_hash;
pub use quantiles::QuantileSketch;

/// Bytes of a sketch's text, beside those of its parts.
pub(crate) const TEXT_BYTES: usize = 128;

/// What a sketch tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SketchKind {
    /// Quantiles of numbers.
    Quantiles,
    /// How many different values there are.
    Distinct,
}

/// A sketch of either kind.
#[derive(Debug, Clone)]
pub enum Sketch {
    /// Of numbers, for their quantiles.
    Quantiles(Box<QuantileSketch>),
    /// Of values, for how many there are.
    Distinct(Box<DistinctSketch>),
}

impl Sketch {
    /// The sketch of no values.
    pub fn empty(kind: SketchKind) -> Self {
        match kind {
            SketchKind::Quantiles => Self::Quantiles(Box::default()),
            SketchKind::Distinct => Self::Distinct(Box::default()),
        }
    }

    /// Reads a text.
    ///
    /// # Errors
    /// If it is no text of a sketch of this kind; the text says why.
    pub fn decode(kind: SketchKind, text: &str) -> Result<Self, String> {
        Ok(match kind {
            SketchKind::Quantiles => Self::Quantiles(Box::new(QuantileSketch::decode(text)?)),
            SketchKind::Distinct => Self::Distinct(Box::new(DistinctSketch::decode(text)?)),
        })
    }

    /// Bytes of memory that the sketch of no values takes.
    pub const fn empty_bytes(kind: SketchKind) -> usize {
        match kind {
            SketchKind::Quantiles => size_of::<QuantileSketch>(),
            SketchKind::Distinct => DistinctSketch::MEMORY_BYTES,
        }
    }

    /// Bytes of memory that it takes, about.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Quantiles(sketch) => sketch.memory_bytes(),
            Self::Distinct(_) => DistinctSketch::MEMORY_BYTES,
        }
    }

    /// Bytes of memory that merging another one takes at most.
    pub fn merge_bytes(&self, other: &Self) -> usize {
        match (self, other) {
            (Self::Quantiles(sketch), Self::Quantiles(other)) => sketch.merge_bytes(other),
            _ => 0,
        }
    }

    /// Adds the values of another one of its kind; one of the other kind adds nothing.
    pub fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Quantiles(sketch), Self::Quantiles(other)) => sketch.merge(other),
            (Self::Distinct(sketch), Self::Distinct(other)) => sketch.merge(other),
            (Self::Quantiles(_), Self::Distinct(_)) | (Self::Distinct(_), Self::Quantiles(_)) => {}
        }
    }
}

/// The beginning of a part of a text, as errors show it: a text that is no sketch may be long.
fn excerpt(part: &str) -> String {
    const CHARACTERS_MAX: usize = 40;
    match part.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{:?}…", part.get(..end).unwrap_or_default()),
        None => format!("{part:?}"),
    }
}

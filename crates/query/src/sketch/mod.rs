//! Sketches: what is known of many values, mostly about, in little room, and can be put together.

mod distinct;
mod histogram;
mod quantiles;

pub use distinct::DistinctSketch;
pub(crate) use distinct::text_hash;
pub use histogram::{Buckets, Histogram};
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
    /// How many numbers lie in each of some ranges.
    Histogram,
}

/// A sketch of any kind.
#[derive(Debug, Clone)]
pub enum Sketch {
    /// Of numbers, for their quantiles.
    Quantiles(Box<QuantileSketch>),
    /// Of values, for how many there are.
    Distinct(Box<DistinctSketch>),
    /// Of numbers, for how many lie in each of some ranges.
    Histogram(Box<Histogram>),
}

impl Sketch {
    /// The sketch of no values.
    pub fn empty(kind: SketchKind) -> Self {
        match kind {
            SketchKind::Quantiles => Self::Quantiles(Box::default()),
            SketchKind::Distinct => Self::Distinct(Box::default()),
            SketchKind::Histogram => Self::Histogram(Box::new(Histogram::empty())),
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
            SketchKind::Histogram => Self::Histogram(Box::new(Histogram::decode(text)?)),
        })
    }

    /// Bytes of memory that the sketch of no values takes.
    pub const fn empty_bytes(kind: SketchKind) -> usize {
        match kind {
            SketchKind::Quantiles => size_of::<QuantileSketch>(),
            SketchKind::Distinct => DistinctSketch::MEMORY_BYTES,
            SketchKind::Histogram => size_of::<Histogram>(),
        }
    }

    /// Bytes of memory that it takes, about.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Quantiles(sketch) => sketch.memory_bytes(),
            Self::Distinct(_) => DistinctSketch::MEMORY_BYTES,
            Self::Histogram(histogram) => histogram.memory_bytes(),
        }
    }

    /// Bytes of memory that merging another one takes at most.
    pub fn merge_bytes(&self, other: &Self) -> usize {
        match (self, other) {
            (Self::Quantiles(sketch), Self::Quantiles(other)) => sketch.merge_bytes(other),
            (Self::Histogram(_), Self::Histogram(other)) => other.memory_bytes(),
            _ => 0,
        }
    }

    /// Adds the values of another one of its kind; one of another kind adds nothing.
    pub fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Quantiles(sketch), Self::Quantiles(other)) => sketch.merge(other),
            (Self::Distinct(sketch), Self::Distinct(other)) => sketch.merge(other),
            (Self::Histogram(histogram), Self::Histogram(other)) => histogram.merge(other),
            (Self::Quantiles(_) | Self::Distinct(_) | Self::Histogram(_), _) => {}
        }
    }
}

/// A whole number that is written as sketches write it: of digits, the first of which is not zero.
fn whole<T: std::str::FromStr>(text: &str) -> Option<T> {
    let is_usual = text == "0" || !text.starts_with('0') && text.bytes().all(|digit| digit.is_ascii_digit());
    text.parse().ok().filter(|_| is_usual)
}

/// The beginning of a text, as errors show it: it may be long.
pub(crate) fn excerpt(part: &str) -> String {
    const CHARACTERS_MAX: usize = 40;
    match part.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{:?}…", part.get(..end).unwrap_or_default()),
        None => format!("{part:?}"),
    }
}

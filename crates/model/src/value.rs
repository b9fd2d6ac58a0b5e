//! Types of values, and how a cell is held in one 64-bit word.
//!
//! A cell is a value, null (not written) or stale (Prometheus's end-of-series marker). In a batch every cell is
//! one `u64`: the bits of an `f64`, an `i64` or a `u64`, 0 or 1 for a `bool`, and for a string the offset and
//! the length of its text ([`crate::Span::to_cell`]), for a histogram its place among the batch's histograms. Rows of a block have a value in every cell, so null needs no form
//! there. Stale is the bit pattern by which Prometheus itself sends it; on disk it is kept apart from the values.

/// The type of a field's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ValueType {
    /// 64-bit float.
    F64 = 0,
    /// Signed 64-bit integer.
    I64 = 1,
    /// Unsigned 64-bit integer.
    U64 = 2,
    /// Boolean.
    Bool = 3,
    /// UTF-8 text.
    String = 4,
    /// Native histogram ([`crate::NativeHistogram`]).
    Histogram = 5,
}

impl ValueType {
    /// The type with this number, if there is one.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::F64),
            1 => Some(Self::I64),
            2 => Some(Self::U64),
            3 => Some(Self::Bool),
            4 => Some(Self::String),
            5 => Some(Self::Histogram),
            _ => None,
        }
    }

    /// The name users see, as InfluxDB spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "float",
            Self::I64 => "integer",
            Self::U64 => "unsigned",
            Self::Bool => "boolean",
            Self::String => "string",
            Self::Histogram => "histogram",
        }
    }

    /// Returns whether a cell does not hold the value but says where its bytes are.
    pub const fn is_elsewhere(self) -> bool {
        matches!(self, Self::String | Self::Histogram)
    }
}

/// Bits of the NaN by which Prometheus marks a series as stale (`value.StaleNaN` in its source).
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Returns whether a float is Prometheus's stale marker.
pub const fn is_stale_bits(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

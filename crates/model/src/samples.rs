//! Samples of one member on their way out.

use crate::{NativeHistogram, ValueType};

/// One member's samples over a stretch of time: sorted by timestamp, one per timestamp, nulls left out.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleColumn {
    /// Floats; a stale marker is the value with [`crate::STALE_NAN_BITS`].
    F64(Vec<i64>, Vec<f64>),
    /// Signed integers.
    I64(Vec<i64>, Vec<i64>),
    /// Unsigned integers.
    U64(Vec<i64>, Vec<u64>),
    /// Booleans.
    Bool(Vec<i64>, Vec<bool>),
    /// Texts.
    String(Vec<i64>, Vec<String>),
    /// Native histograms; a stale marker is the histogram whose sum has [`crate::STALE_NAN_BITS`].
    Histogram(Vec<i64>, Vec<NativeHistogram>),
}

impl SampleColumn {
    /// A column without samples.
    pub fn empty(value_type: ValueType) -> Self {
        Self::with_capacity(value_type, 0)
    }

    /// An empty column with room for so many samples.
    pub fn with_capacity(value_type: ValueType, samples: usize) -> Self {
        let timestamps = Vec::with_capacity(samples);
        match value_type {
            ValueType::F64 => Self::F64(timestamps, Vec::with_capacity(samples)),
            ValueType::I64 => Self::I64(timestamps, Vec::with_capacity(samples)),
            ValueType::U64 => Self::U64(timestamps, Vec::with_capacity(samples)),
            ValueType::Bool => Self::Bool(timestamps, Vec::with_capacity(samples)),
            ValueType::String => Self::String(timestamps, Vec::with_capacity(samples)),
            ValueType::Histogram => Self::Histogram(timestamps, Vec::with_capacity(samples)),
        }
    }

    /// The samples' timestamps in nanoseconds.
    pub fn timestamps_ns(&self) -> &[i64] {
        match self {
            Self::F64(timestamps, _)
            | Self::I64(timestamps, _)
            | Self::U64(timestamps, _)
            | Self::Bool(timestamps, _)
            | Self::String(timestamps, _)
            | Self::Histogram(timestamps, _) => timestamps,
        }
    }

    /// The type of the values.
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::F64(..) => ValueType::F64,
            Self::I64(..) => ValueType::I64,
            Self::U64(..) => ValueType::U64,
            Self::Bool(..) => ValueType::Bool,
            Self::String(..) => ValueType::String,
            Self::Histogram(..) => ValueType::Histogram,
        }
    }
}

//! The types of expressions.

/// The type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultKind {
    /// One number per step.
    Scalar,
    /// A text.
    String,
    /// A value per series and step.
    InstantVector,
    /// Samples of series in a range of time.
    RangeVector,
}

impl ResultKind {
    /// As Prometheus names it in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::String => "string",
            Self::InstantVector => "instant vector",
            Self::RangeVector => "range vector",
        }
    }

    /// As Prometheus names it in programs.
    pub const fn short_name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::String => "string",
            Self::InstantVector => "vector",
            Self::RangeVector => "matrix",
        }
    }
}

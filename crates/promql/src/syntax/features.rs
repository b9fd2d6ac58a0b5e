//! Parts of the language that Prometheus has behind feature flags.

/// Parts of the language that Prometheus has behind feature flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of Prometheus")]
pub struct Features {
    /// Functions and aggregations that may still change: `info`, `limitk`, `sort_by_label`, …
    pub experimental_functions: bool,
    /// Durations that are computed: `[5m * 2]`, `step()`.
    pub duration_expressions: bool,
    /// `anchored` and `smoothed`.
    pub extended_ranges: bool,
    /// `fill`, `fill_left` and `fill_right`.
    pub fill_modifiers: bool,
}

impl Features {
    /// All of them, or none.
    pub const fn all(on: bool) -> Self {
        Self { experimental_functions: on, duration_expressions: on, extended_ranges: on, fill_modifiers: on }
    }
}

impl Default for Features {
    /// All on.
    fn default() -> Self {
        Self::all(true)
    }
}

//! Selectors, windows over their samples, and functions of these windows.
//!
//! ```text
//! selectors ──► samples ──► window_bounds ──► window ──► over_time, rate
//!                              │
//!                              └─ of many windows of floats at once: window_positions ──► rate_runs
//! ```
//!
//! `similar` compares windows of many series with that of one. `range_functions` applies a function to every window of every series; `extrapolation` is what `rate` multiplies by, `interpolate` what
//! `smoothed` and `anchored` put at the edges, `by_view` what a materialised view answers, `marks` where a counter was reset, `folds` what windows over folded samples are,
//! `texts` at which steps samples of series of texts count.

mod by_view;
mod extrapolation;
mod folds;
mod interpolate;
mod marks;
mod over_time;
pub(crate) mod range_functions;
mod rate;
mod rate_runs;
pub(crate) mod samples;
pub(crate) mod selectors;
mod similar;
pub(crate) mod texts;
mod window;
pub(crate) mod window_bounds;
mod window_positions;

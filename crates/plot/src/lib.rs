//! Plots of time series: series in; SVG, PNG, WebP or columns out. No files, no sockets, no clock.
//!
//! * [`chart`]: what is to be drawn · [`unit`]: values as texts · `error`: why nothing can be drawn
//! * `thin`: as few points as the width can show · `rows`: points as they are drawn, stacked if wanted · [`columns`]: series on one axis of times
//! * `scale`: values to heights · `ticks`: marks of both axes · `clip`: what lies within the frame · `theme`: colours
//! * `layout`: where everything is · `legend`: names and numbers below · `text`: widths of texts · `scene`: shapes and texts, which `output` writes

pub mod chart;
mod clip;
pub mod columns;
mod error;
mod layout;
mod legend;
mod output;
mod rows;
mod scale;
mod scene;
mod text;
mod theme;
mod thin;
mod ticks;
pub mod unit;

pub use error::PlotError;
pub use layout::draw;
pub use scene::Picture;

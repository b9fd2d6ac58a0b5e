//! `rrdtool xport`: columns of files, what is computed from them, and their output.
//!
//! * `statements.rs`: `DEF`, `CDEF`, `VDEF`, `SHIFT` and `XPORT` · `calculate.rs`: their columns · `format.rs`: XML and JSON

mod calculate;
mod format;
mod statements;

pub use calculate::{Exported, Fetch, Settings, export};
pub use format::{Format, write};
pub use statements::Script;

//! Expressions in reverse Polish notation: `CDEF`, `VDEF` and computed data sources.
//!
//! * `program.rs`: text to nodes · `machine.rs`: nodes over columns · `stack.rs`: operators that only touch the stack · `vdef.rs`: a column to a value

mod machine;
mod program;
mod stack;
mod vdef;

pub use machine::{Grid, Inputs};
pub use program::{Operand, Program};
pub use vdef::{Summary, SummaryValue};

/// Values at regular times: the first one ends a step after the start.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// When the first step begins, in seconds.
    pub start_s: i64,
    /// When the last one ends.
    pub end_s: i64,
    /// Seconds of a step.
    pub step_s: i64,
    /// A value for each step.
    pub values: Vec<f64>,
}

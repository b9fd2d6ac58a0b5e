//! Expressions, computed for all steps at once.
//!
//! ```text
//! expressions ──┬─ functions        of scalars and instant vectors; math, calendar
//!               ├─ binary           operators on values; vector_matching, which series they meet
//!               ├─ relabel          label_replace, label_join, sort
//!               └─ info             labels of series that describe others
//!
//! evaluator     a running query: source, settings, budget, annotations
//! row_stream    rows made of series as they are read, on several threads
//! rows          instant vectors over all steps, a row per series
//! ```

pub(crate) mod annotations;
mod binary;
pub(crate) mod calendar;
pub(crate) mod evaluator;
mod expressions;
mod functions;
mod info;
mod math;
pub(crate) mod relabel;
pub(crate) mod row_stream;
pub(crate) mod rows;
pub(crate) mod sum;
mod vector_matching;

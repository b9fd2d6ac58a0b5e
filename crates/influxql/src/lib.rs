//! InfluxQL as InfluxDB 1.8 has it: text to statements, to plans, to values.
//!
//! ```text
//! text ── syntax ──► statements ── execute ─┬─ select   resolve ──► plan_aggregates (aggregates that the plan has)
//!                                           │                  └──► scan ──► reduce, transform, fill ──► rows side by side
//!                                           ├─ into     rows written back
//!                                           ├─ explain  the plans
//!                                           ├─ show     names
//!                                           └─ manage   databases, deletes
//! ```
//!
//! * `syntax`: text to statements, and back · `validate`: what a selection must satisfy before tables are looked at
//! * `resolve`: a selection with all names resolved · `names`: wildcards and names of columns
//! * `condition`: times in conditions become a range · `lower`: tags select series, fields are tried by the plan; the language tries the rest
//! * `groups`: groups of tables that a condition on tags selects, for `SHOW` and `DELETE`
//! * `reduce`, `transform`, `holt_winters` with `simplex`: functions that the plan does not have · `fill`: windows without a value
//! * `value`: InfluxQL's rules of values and its types · `time`: zones, windows and texts of time
//! * `rows`, `answer`: what a statement gives: values, or rows as they were read
//!
//! Data comes from a [`query::Session`]; there is no clock, no I/O and no thread in here.

mod answer;
mod condition;
mod execute;
mod explain;
mod fill;
mod groups;
mod holt_winters;
mod into;
mod lower;
mod manage;
mod names;
mod plan_aggregates;
mod reduce;
mod resolve;
mod rows;
mod scan;
mod select;
mod show;
mod simplex;
mod syntax;
mod time;
mod transform;
mod validate;
mod value;

pub use answer::{Answer, Series, TimeFormat, Zone};
pub use execute::{Query, RequestContext};
pub use query::Value;
pub use rows::Rows;
pub use syntax::{Parameter, TEXT_BYTES_MAX};

/// Nanoseconds of a duration such as `1h30m`; `None` if it is none.
pub fn duration_ns(text: &str) -> Option<i64> {
    syntax::duration::parse(text)
}

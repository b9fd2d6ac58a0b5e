//! InfluxQL as InfluxDB 1.8 has it: text to statements to values.
//!
//! ```text
//! text ── syntax ──► statements ── execute ─┬─ select   resolve ──► fast (aggregates that the plan has)
//!                                           │                  └──► scan ──► reduce, transform, fill ──► rows side by side
//!                                           ├─ into     rows written back
//!                                           ├─ explain  the plans
//!                                           ├─ show     names
//!                                           └─ manage   databases, deletes
//! ```
//!
//! Conditions are taken apart once: times become a range (`condition`), tags select series and fields are tried column by column in the
//! plan (`lower`), and what is left is tried row by row. Data comes from a [`query::Session`]; there is no clock, no I/O and no thread in here.

mod answer;
mod condition;
mod execute;
mod explain;
mod fast;
mod fill;
mod groups;
mod holt_winters;
mod into;
mod lower;
mod manage;
mod names;
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
pub use rows::Rows;
pub use syntax::{Parameter, TEXT_BYTES_MAX};
pub use value::Value;

/// Nanoseconds of a duration such as `1h30m`; `None` if it is none.
pub fn duration_ns(text: &str) -> Option<i64> {
    syntax::duration::parse(text)
}

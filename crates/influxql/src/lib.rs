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
//! * `syntax`: text to statements, and back
//! * `statements`: `execute` runs one, within its `request` · `explain`, `into`, `show`, `manage`, `continuous` (parsed in `syntax::manage`) and `pattern_query`, what comes later to it · `answer`: series with named columns ·
//!   `flat`: series as one table
//! * `resolve`: a selection with all names resolved (`selection`, `code`) · `validate`: what must hold before tables are looked at ·
//!   `names`: wildcards and names of columns · `condition`: times in conditions become a range · `lower`: tags select series, fields are
//!   tried by the plan · `groups`: groups of tables that a condition on tags selects, for `SHOW` and `DELETE`
//! * `select`: rows of a selection: `plan_aggregates` where the plan has all calls (`plan_calls`), else `scan` reads `input`s (of a `subquery` too), `calls`
//!   computes over them, `fill` adds missing windows, `joined` puts results side by side; `select` itself
//!   counts series for `SLIMIT`
//! * `functions`: functions that the plan does not have: `reduce`, `transform`, `holt_winters` with `simplex` ·
//!   `folded`: what summaries of folded points have
//! * `value`: InfluxQL's rules of values and its types · `time`: zones, windows and texts of time
//!
//! Data comes from a [`query::Session`]; there is no clock, no I/O and no thread in here.

mod functions;
mod resolve;
mod select;
mod statements;
mod syntax;
mod time;
mod value;

pub use query::Value;
pub use select::rows::Rows;
pub use statements::answer::{Answer, Series, TimeFormat, Zone};
pub use statements::execute::Query;
pub use statements::flat::FlatTable;
pub use statements::pattern_query::{Extension, PatternQuery};
pub use statements::request::RequestContext;
pub use syntax::ast::SubscriptionStatement;
pub use syntax::{Parameter, TEXT_BYTES_MAX};

/// Nanoseconds of a duration such as `1h30m`; `None` if it is none.
pub fn duration_ns(text: &str) -> Option<i64> {
    syntax::duration::parse(text)
}

//! Views as statements make them, in simulated time: each dialect and the guide, joins with tables of labels, tables with a TTL, columns that views get later, conditions, continuous queries and tasks, queries that views answer, what was there before, and threads.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod as_of;
mod as_of_kept;
mod background;
mod columns;
mod computed;
mod conditions;
mod continuous;
mod dialects;
mod flux_queries;
mod folded;
mod histograms;
mod hostile;
mod integral;
mod joined;
mod kept_by_windows;
mod later;
mod outputs;
mod promql_sketches;
mod rewritten;
mod several_as_of;
mod several_tables;
mod threads;
mod twins;
mod world;

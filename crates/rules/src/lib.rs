//! Recording and alerting rules in Prometheus's files, their templates, and the client of Alertmanagers.
//!
//! ```text
//! file ──► groups ──► manager: a task for each ──► group: rules in order at one timestamp ──► db
//!                                                    │ template: labels and annotations
//!                         Alertmanagers ◄── notify ◄─┘ firing and resolved alerts
//! ```
//!
//! * [`file`](mod@file): rule files, typed and checked · [`template`]: Go's text templates with Prometheus's functions
//! * [`group`]: evaluation · [`alert`]: states of alerts · `store`: what rules write, and what they query · `restore`: alerts after a restart
//! * [`manager`]: groups that run, reloads · [`notify`]: alerts to Alertmanagers · `metrics`: the numbers of all of it
//! * [`materialize`]: rules whose results are kept right for the past, too · [`stream_aggregation`]: VictoriaMetrics's file as such rules
//! * [`backfill`]: what recording rules would have given · [`unit_test`]: promtool's test files

pub mod alert;
pub mod backfill;
pub mod file;
pub mod group;
pub mod manager;
pub mod materialize;
mod metrics;
pub mod notify;
mod restore;
mod store;
pub mod stream_aggregation;
pub mod template;
pub mod unit_test;

pub use manager::{Manager, ManagerOptions};
pub use store::RuleStore;

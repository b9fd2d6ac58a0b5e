//! A `prometheus.yml` that the server runs, and what the API tells of it.
//!
//! * `mode`: loading, reloading, the scraper and the rules · `targets`: targets, jobs, their metrics' metadata · `rules`: rules, alerts, Alertmanagers · `metrics`: numbers of all of it · `cursors`: readers of the log

pub(crate) mod cursors;
pub(crate) mod metrics;
pub(crate) mod mode;
pub(crate) mod rules;
pub(crate) mod targets;

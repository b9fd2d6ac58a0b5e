//! Prometheus's configuration, service discovery, relabelling and scraping.
//!
//! * [`config`]: a `prometheus.yml`, typed · [`relabel`]: labels changed by rules · [`discovery`]: where targets are found · `client`: requests with credentials
//! * [`target`]: a target and what its scrapes give

mod client;
pub mod config;
pub mod discovery;
pub mod relabel;

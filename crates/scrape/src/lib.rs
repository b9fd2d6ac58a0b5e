//! Prometheus's configuration, service discovery and scraping; labels are changed by the crate `relabel`.
//!
//! ```text
//! config ──► scraper: a pool for each job ──► discovery: groups of labels ──► relabel ──► targets
//!                                                                                          │ a task each
//!                      db: rows by token ◄── append: lines ◄── response ◄── request ◄──────┘
//! ```
//!
//! * [`config`]: a `prometheus.yml`, typed · [`discovery`]: where targets are found
//! * [`forward`]: samples sent on by `remote_write`
//! * `scraper`: all jobs · `pool`: the targets of one · [`target`]: one target and its scrapes · `client`: requests with credentials · [`aws`]: requests signed for AWS
//! * `tokens`: tokens that requests sign in with

pub mod aws;
mod client;
pub mod config;
pub mod discovery;
pub mod forward;
mod pool;
mod scraper;
pub mod target;
mod tokens;

pub use client::{Client, USER_AGENT};
pub use forward::Forwarder;
pub use pool::{Dropped, Pool};
pub use scraper::Scraper;

//! What Thalweg listens with: HTTP, its limits, the embedded page, and the sampling of the host.
//!
//! * [`listen`]: sockets, connections, time limits, a graceful end
//! * [`routes`]: which path leads where
//! * [`body`], [`parameters`]: what comes in, within bounds
//! * [`write`]: line protocol, remote write, text exposition · [`influx`]: InfluxDB's errors
//! * [`query`], [`names`], [`status`]: Prometheus's API · [`json`]: its answers
//! * [`admin`]: backups, policies, deletes
//! * [`wire`]: the binary protocol
//! * [`metrics`]: the server's own numbers · [`host`]: the machine's
//! * [`page`]: the web page

mod admin;
mod body;
mod error;
mod host;
mod influx;
mod json;
mod listen;
mod metrics;
mod names;
pub mod page;
mod parameters;
mod query;
mod routes;
mod state;
mod status;
mod wire;
mod write;

pub use listen::{ServeError, Server};
pub use state::ServerSettings;

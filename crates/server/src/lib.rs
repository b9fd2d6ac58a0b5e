//! What Thalweg listens with: HTTP, its limits, the embedded page, and the sampling of the host.
//!
//! * [`listen`]: sockets, connections, time limits, a graceful end · [`stream`]: listeners of lines · [`grpc`]: OpenTelemetry's
//!   other port
//! * [`places`]: how many connections there may be · [`http1`]: those of HTTP/1, parked while they are silent · [`routes`]: which path leads where
//! * [`door`]: who gets in, by the heads of requests
//! * [`body`], [`parameters`]: what comes in, within bounds · [`compression`]: which answers go out compressed
//! * [`write`]: a handler per protocol · [`influx`]: InfluxDB's errors
//! * [`health`]: whether the server is well and ready
//! * [`query`], [`names`], [`status`]: Prometheus's API · [`json`]: its answers · [`plan`]: the s-expression language
//! * [`export`], [`remote_read`]: samples as they are · [`active`]: queries that run
//! * [`threads`]: what queries run on · [`turns`]: which of them goes first
//! * [`admin`]: backups, policies, deletes · [`targets`]: where backups may go · [`redact`]: texts without passwords
//! * [`wire`]: the binary protocol
//! * [`metrics`]: the server's own numbers · [`notice`]: what the operator is told · [`host`]: the machine's
//! * [`page`]: the web page

mod active;
mod admin;
mod body;
mod compression;
mod door;
mod error;
mod explain;
mod export;
mod grpc;
mod health;
mod host;
mod http1;
mod influx;
mod influxql;
mod json;
mod listen;
mod metrics;
mod names;
mod notice;
pub mod page;
mod parameters;
mod places;
mod plan;
mod query;
mod query_statistics;
mod redact;
mod remote_read;
mod routes;
mod rows_json;
mod sql;
mod state;
mod status;
mod stream;
mod targets;
mod threads;
mod turns;
mod wire;
mod write;

pub use compression::Compression;
pub use listen::{Front, ServeError, Server};
pub use state::{Listener, ServerSettings};
pub use targets::BackupTarget;

/// Reads bytes as messages of Postgres's protocol: the entry for fuzzing.
#[doc(hidden)]
pub fn fuzz_postgres(bytes: &[u8]) {
    sql::fuzz::messages(bytes);
}

/// Reads bytes as what a client of Flight sends: the entry for fuzzing.
#[cfg(feature = "flight-sql")]
#[doc(hidden)]
pub fn fuzz_flight(bytes: &[u8]) {
    sql::flight::fuzz::calls(bytes);
}

/// Reads texts as the query string and the form of a request: the entry for fuzzing.
#[doc(hidden)]
pub fn fuzz_parameters(query: &str, form: &[u8]) {
    parameters::fuzz(query, form);
    influxql::fuzz(query, form);
}

//! What Thalweg listens with: HTTP, its limits, the embedded page, and the sampling of the host.
//!
//! * [`listen`]: sockets, connections, their limits, a graceful end; line listeners and gRPC
//! * [`http`]: routes, request guard, bodies, a handler for each path, the web page
//! * [`sql`]: Postgres's protocol, Arrow Flight, and SQL over HTTP · [`wire`]: the binary protocol · [`protocols`]: Redis's
//! * [`scheduler`]: which queries run, at which priority, and on what threads; what each database may take of what all share, and limits
//! * [`sign_in`]: who a client is and what it may do
//! * [`settings`]: settings of all of it · [`state`]: what handlers share · [`error`]: errors of the API · [`redact`]: texts without passwords
//! * [`metrics`]: the server's own numbers, and those of jobs that have ended · [`host`]: the machine's · [`log`]: lines for the operator · `fuzzing`: entries for fuzzers

mod error;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod http;
mod listen;
pub mod log;
mod metrics;
mod protocols;
mod redact;
mod scheduler;
mod settings;
mod sign_in;
mod sql;
mod state;
mod wire;

use log::notice;

pub use http::backup_targets::BackupTarget;
pub use http::page;
pub use http::route_prefix::RoutePrefix;
pub use http::scraping::cursors::abandoned_receivers;
pub use http::scraping::mode::{PrometheusMode, PrometheusSettings};
pub use listen::{Front, ServeError, Server};
pub use settings::{
    Compression, Listener, Network, Pem, RedisSettings, RrdSettings, ServerSettings, StreamSettings, TlsSettings,
    WebSettings,
};
pub use sign_in::first_admin::make_first_admin;
pub use sign_in::oidc::{Oidc, OidcClient};

/// All paths of HTTP with what each needs, as the guide's table says it, sorted.
#[doc(hidden)]
pub fn route_needs() -> Vec<(&'static str, &'static str)> {
    let mut needs: Vec<_> = http::routes::needs().into_iter().map(|(path, need)| (path, need.text())).collect();
    needs.sort_unstable();
    needs
}

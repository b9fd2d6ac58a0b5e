//! Writes to Thalweg by its binary protocol: what is registered once is sent by token, many batches under way at a time,
//! each applied once even if the connection breaks or the server restarts.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use model::{Field, Labels, ValueType};
//! use thalweg_client::{Client, Options, Outgoing, Values};
//!
//! let mut client = Client::connect(Options::default())?;
//! let host = Labels::from_pairs([("host", "a")])?;
//! let usage = Field { name: "usage".to_owned(), value_type: ValueType::F64 };
//! let cpu = client.register_groups("default", "cpu", &[host], &[(usage, Labels::empty())])?;
//! let columns = [(Values::F64(&[0.5, 0.75]), [].as_slice())];
//! client.send(&[Outgoing {
//!     measurement: cpu.measurement,
//!     slots: &cpu.slots,
//!     tokens: &cpu.tokens,
//!     timestamps_ns: &[1_700_000_000_000_000_000, 1_700_000_010_000_000_000],
//!     columns: &columns,
//! }])?;
//! for exception in client.flush()? {
//!     eprintln!("batch {}: {exception:?}", exception.sequence);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! * [`session`]: what is under way, without a socket · [`cache`]: what is registered
//! * [`answers`]: answers of queries kept by `thalweg cache`
//! * `http` (a cargo feature): the HTTP API for programs that ask now and then
//! * [`tls`]: whom clients trust, and what certificate they show
//! * [`asynchronous`]: the client on tokio · [`blocking`]: the same for programs without · [`rows`]: rows into batches

pub mod answers;
pub mod asynchronous;
mod blocking;
mod cache;
#[cfg(feature = "http")]
pub mod http;
mod rows;
mod session;
pub mod tls;

use std::fmt;
use std::net::SocketAddr;

pub use blocking::Client;
pub use rows::GroupRows;
pub use wire::control::Registered;
pub use wire::data::{Exception, Outgoing, Values};

/// Where the server is and how patient the client.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server's `--control`.
    pub control: SocketAddr,
    /// The server's `--ingest`.
    pub ingest: SocketAddr,
    /// The token that the client signs in with; empty where none has to.
    pub token: String,
    /// TLS, where the server's listeners speak it.
    pub tls: Option<tls::TlsOptions>,
    /// The producer: a number that no other client has, unchanged after a restart of the program if batches may then come again.
    /// 0 for none: batches may be applied twice. By default one by chance.
    pub producer: u64,
    /// Number of the first batch: behind the last one that was sent in an earlier run under the same producer.
    pub first_sequence: u64,
    /// How long connecting, sending or an answer may take.
    pub timeout_ms: u64,
    /// How long a server that is not there is tried again.
    pub reconnect_timeout_ms: u64,
    /// Bytes of batches that are kept until they are acknowledged; sending waits beyond it.
    pub in_flight_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            control: local(7782),
            ingest: local(7783),
            token: String::new(),
            tls: None,
            producer: session::number_by_chance(),
            first_sequence: 1,
            timeout_ms: 30_000,
            reconnect_timeout_ms: 60_000,
            in_flight_bytes_max: 16 << 20,
        }
    }
}

/// Why something could not be done; chosen by what the caller can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientError {
    /// The server is not there, or takes nothing, for longer than the options allow. Batches are kept: try again.
    Unavailable(String),
    /// The tokens are from another data folder. Batches under way are given up: register again, then send again.
    RegisterAgain(String),
    /// The request is invalid: change it.
    Invalid(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(message) | Self::RegisterAgain(message) | Self::Invalid(message) => {
                formatter.write_str(message)
            }
        }
    }
}

impl std::error::Error for ClientError {}

impl From<wire::WireError> for ClientError {
    fn from(error: wire::WireError) -> Self {
        Self::Invalid(error.0)
    }
}

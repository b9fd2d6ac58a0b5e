//! Wire bytes to batches and back, a module per protocol. No sockets, no storage, no clock: the caller gives the body,
//! the time and the limits.
//!
//! * [`line`]: Influx line protocol, the fast path of the house.
//! * [`remote_write`]: Prometheus remote write 1.0 and 2.0.
//! * [`replicas`]: which of several replicas of a Prometheus is written.
//! * [`remote_read`]: Prometheus remote read, as samples and as chunks.
//! * [`otlp`]: OpenTelemetry metrics, protobuf and JSON.
//! * [`exposition`]: Prometheus's text format and the basics of OpenMetrics; metrics in protobuf, as client libraries push them.
//! * [`graphite`]: Graphite's plaintext protocol, with tags.
//! * [`opentsdb`]: OpenTSDB's telnet commands and JSON.
//! * [`json_lines`]: series as lines of JSON.
//! * [`csv`]: CSV files, by a mapping of columns, into line protocol.
//! * [`encoding`]: bounded decompression of bodies.
//! * [`Body`]: a body of lines, whole or unpacked piece by piece as it is parsed.
//! * [`epoch`]: the values of one epoch of a regular database.
//! * [`admission`]: what is refused because of its time.
//! * `batch`: buffers of columns that are used again, keyed hashes of groups, series of one value
//! * `errors`: rows that were left out · `number`: numbers from text · `protobuf`: its wire format
//!
//! A parser keeps the good rows, reports the bad ones ([`LineErrors`]) and fails as a whole only when the body cannot
//! be cut into rows at all ([`BodyError`]). Every row names its group by a keyed hash of the raw bytes that spell the
//! group ([`KeyHasher`]); what they mean is worked out by the batch's key decoder, and only for groups that the store
//! does not know yet. A malformed key therefore comes to light there, and comes back from the store as a rejected row.

mod batch;
pub mod csv;
pub mod encoding;
pub mod epoch;
mod errors;
pub mod exposition;
pub mod graphite;
pub mod json_lines;
pub mod line;
mod number;
pub mod opentsdb;
pub mod otlp;
mod protobuf;
pub mod remote_read;
pub mod remote_write;

pub use batch::admission;
pub use batch::body::{Body, Ledger, PackedBody, quote_lines};
pub use batch::columns::{give_back, kept_bytes, recycle};
pub use batch::key_hash::{KEY_SECRET_BYTES, KeyHasher, Protocol, ScopedKeyHasher};
pub use errors::{BodyError, LineError, LineErrors};
pub use model::Limits;
pub use remote_write::replicas;

use model::Batch;

/// What a parser made of a body.
#[derive(Debug)]
pub struct Parsed<'body> {
    /// The good rows.
    pub batch: Batch<'body>,
    /// The bad ones.
    pub errors: LineErrors,
}

/// Bodies are shorter than this, because spans are 32-bit offsets and the arena lies behind the body.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 31;

/// Refuses bodies of 2 GiB and more.
pub(crate) fn check_body_size(body: &[u8]) -> Result<(), BodyError> {
    if body.len() < BODY_BYTES_MAX { Ok(()) } else { Err(too_long()) }
}

pub(crate) const fn too_long() -> BodyError {
    BodyError::TooLarge { size_bytes_max: BODY_BYTES_MAX as u64 - 1, limit: "bodies are shorter than 2 GiB" }
}

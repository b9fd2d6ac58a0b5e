//! What all handlers share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use db::Db;
use tokio::sync::Semaphore;

use crate::error::ApiError;
use crate::metrics::Metrics;

/// Settings of the listeners.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Where HTTP is served. Port 0 takes a free one.
    pub http: SocketAddr,
    /// Where the binary protocol registers; `None`: nowhere. Port 0 takes a free one.
    pub control: Option<SocketAddr>,
    /// Where it takes rows.
    pub ingest: Option<SocketAddr>,
    /// For benchmarks: rows of the binary protocol are acknowledged and thrown away.
    pub ingest_discard: bool,
    /// Bytes that a message of the binary protocol may have.
    pub message_bytes_max: usize,
    /// Bytes of batches that one of its clients may have under way.
    pub in_flight_bytes_max: usize,
    /// Bytes of all clients' batches that are read and not applied.
    pub ingest_memory_bytes_max: usize,
    /// Connections of the binary protocol that are open at the same time; others wait to be accepted.
    pub wire_connections_max: usize,
    /// How long a client of the binary protocol may be silent.
    pub idle_timeout_ms: u64,
    /// Bytes that a request's body may have as it is sent.
    pub body_bytes_max: usize,
    /// Bytes that it may have unpacked.
    pub unpacked_bytes_max: usize,
    /// Requests that work at the same time; others wait.
    pub requests_max: usize,
    /// Connections that are open at the same time; others wait to be accepted.
    pub connections_max: usize,
    /// How long a client may take to send a request's head.
    pub head_timeout_ms: u64,
    /// How long a client may take to send a body.
    pub body_timeout_ms: u64,
    /// How long a query may take unless it asks for less.
    pub query_timeout_ms: u64,
    /// Samples that a query may hold at once.
    pub query_samples_max: u64,
    /// How often the host is sampled; `None`: not at all.
    pub host_metrics_interval_ms: Option<u64>,
    /// How long a stop waits for requests under way.
    pub stop_timeout_ms: u64,
}

impl ServerSettings {
    /// The defaults, for an address.
    pub const fn new(http: SocketAddr) -> Self {
        Self {
            http,
            control: None,
            ingest: None,
            ingest_discard: false,
            message_bytes_max: 8 << 20,
            in_flight_bytes_max: 16 << 20,
            ingest_memory_bytes_max: 256 << 20,
            wire_connections_max: 128,
            idle_timeout_ms: 600_000,
            body_bytes_max: 64 << 20,
            unpacked_bytes_max: 256 << 20,
            requests_max: 64,
            connections_max: 16_384,
            head_timeout_ms: 10_000,
            body_timeout_ms: 30_000,
            query_timeout_ms: 120_000,
            query_samples_max: 50_000_000,
            host_metrics_interval_ms: Some(5_000),
            stop_timeout_ms: 10_000,
        }
    }
}

/// What all handlers share.
pub(crate) struct State {
    pub(crate) db: Arc<Db>,
    pub(crate) settings: ServerSettings,
    pub(crate) metrics: Metrics,
    requests: Arc<Semaphore>,
}

impl State {
    pub(crate) fn new(db: Arc<Db>, settings: ServerSettings) -> Self {
        let requests = Arc::new(Semaphore::new(settings.requests_max.clamp(1, Semaphore::MAX_PERMITS)));
        Self { db, settings, metrics: Metrics::default(), requests }
    }

    pub(crate) fn body_timeout(&self) -> Duration {
        Duration::from_millis(self.settings.body_timeout_ms)
    }

    /// Runs work that computes or waits for the disk on a thread that may do so. No more than `requests_max` at once.
    pub(crate) async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = self.requests.clone().acquire_owned().await;
        let state = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let done = work(&state);
            drop(permit);
            done
        });
        task.await.map_err(|error| ApiError::internal(format!("the request's work ended early: {error}")))
    }
}

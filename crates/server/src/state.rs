//! What all handlers share.

use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use db::Db;
use model::DEFAULT_DATABASE;
use tokio::sync::{Semaphore, oneshot};

use crate::error::ApiError;
use crate::http::body::{Budget, Spares};
use crate::http::compression::Compression;
use crate::http::parameters::Parameters;
use crate::http::targets::BackupTarget;
use crate::metrics::Metrics;
use crate::notice::Notices;
use crate::scheduler::Scheduler;
use crate::scheduler::running::{Bounds, Queries};
use crate::scheduler::threads::QueryThreads;

/// Where a listener beside HTTP listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    /// The address. Port 0 takes a free one.
    pub address: SocketAddr,
    /// Whether the server refuses to start without it. Defaults are not: another program may have the port.
    pub required: bool,
}

/// Settings of the listeners.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Where HTTP is served. Port 0 takes a free one.
    pub http: SocketAddr,
    /// Names beside those of loopback and addresses by which browsers may reach HTTP.
    pub host_names: Vec<String>,
    /// Origins of pages, as `http://grafana:3000`, whose requests are let in beside those of this server's own page.
    pub origins: Vec<String>,
    /// Where the binary protocol registers; `None`: nowhere.
    pub control: Option<Listener>,
    /// Where it takes rows.
    pub ingest: Option<Listener>,
    /// For benchmarks: rows of the binary protocol are acknowledged and thrown away.
    pub ingest_discard: bool,
    /// Bytes that a message of the binary protocol may have.
    pub message_bytes_max: usize,
    /// Bytes of batches that one of its clients may have under way.
    pub in_flight_bytes_max: usize,
    /// Bytes of all clients' batches that are read and not applied.
    pub ingest_memory_bytes_max: usize,
    /// Threads that apply its batches; connections that have some wait for their turn.
    pub wire_threads_max: usize,
    /// How long a client of the binary protocol may be silent.
    pub idle_timeout_ms: u64,
    /// Where line protocol is taken, by TCP and UDP; `None`: nowhere.
    pub line: Option<Listener>,
    /// Where Graphite's plaintext is taken, by TCP and UDP.
    pub graphite: Option<Listener>,
    /// Where OpenTSDB's telnet commands are taken.
    pub opentsdb: Option<Listener>,
    /// The databases that those three write to.
    pub line_database: String,
    /// As `line_database`.
    pub graphite_database: String,
    /// As `line_database`.
    pub opentsdb_database: String,
    /// Where Postgres's protocol is served; `None`: nowhere.
    pub postgres: Option<Listener>,
    /// Bytes that a message of one of its clients may have.
    pub postgres_message_bytes_max: usize,
    /// Where Arrow Flight SQL's clients connect; without the cargo feature `flight-sql` it is not listened on.
    pub flight_sql: Option<Listener>,
    /// Where OpenTelemetry's gRPC is served.
    pub otlp_grpc: Option<Listener>,
    /// Bytes that a request's body may have as it is sent.
    pub body_bytes_max: usize,
    /// Bytes that it may have unpacked.
    pub unpacked_bytes_max: usize,
    /// Bytes that a body may unpack to for each byte sent.
    pub unpacked_ratio_max: usize,
    /// Bytes of all bodies that are held at the same time; further ones are to be sent again later.
    pub bodies_bytes_max: usize,
    /// Requests that work at the same time; others wait.
    pub requests_max: usize,
    /// Connections of each listener that are open at the same time; for others silent ones are closed, or they are refused.
    pub connections_max: usize,
    /// How long a client may take to send a request's head.
    pub head_timeout_ms: u64,
    /// How long a connection of HTTP/1 that has asked before may be silent.
    pub http_idle_timeout_ms: u64,
    /// How long a client may take nothing of an answer that waits for it.
    pub write_timeout_ms: u64,
    /// How long a session of Postgres's protocol may be silent.
    pub postgres_idle_timeout_ms: u64,
    /// After how long a silence it gives up its buffers; one of the binary protocol its thread, too.
    pub park_after_ms: u64,
    /// How long a client may take to send a body.
    pub body_timeout_ms: u64,
    /// How long a connection of a line listener may be silent.
    pub stream_idle_timeout_ms: u64,
    /// How long a client may take to finish a line.
    pub stream_line_timeout_ms: u64,
    /// Bytes that a connection of a line listener has on their way at the same time.
    pub stream_bytes_max: usize,
    /// Connections of line listeners that are served at the same time; others wait for their turn.
    pub streams_busy_max: usize,
    /// Bytes of unfinished lines that are kept for all connections together.
    pub stream_rest_bytes_max: usize,
    /// Bytes of datagrams that wait to be written; further ones are dropped and counted.
    pub udp_queue_bytes_max: usize,
    /// How far ahead of the server's clock a sample may be.
    pub ahead_ms_max: u64,
    /// How OpenTelemetry's metrics are named and stored.
    pub otlp: ingest::otlp::Settings,
    /// Whose answers over HTTP are compressed.
    pub http_compression: Compression,
    /// How long a query may take unless it asks for less.
    pub query_timeout_ms: u64,
    /// Samples that a query may hold at once.
    pub query_samples_max: u64,
    /// Queries that run at the same time; others wait.
    pub query_concurrency_max: usize,
    /// Queries that wait at the same time; further ones are refused.
    pub query_queue_max: usize,
    /// How long a query may wait; then it is refused.
    pub query_queue_timeout_ms: u64,
    /// From which duration on a query is told to the operator; 0: all are.
    pub query_slow_ms: u64,
    /// How often the host is sampled; `None`: not at all.
    pub host_metrics_interval_ms: Option<u64>,
    /// How long a stop waits for requests under way.
    pub stop_timeout_ms: u64,
    /// Where backups that are asked for by HTTP may go; none by default.
    pub backup_targets: Vec<BackupTarget>,
    /// Settings that are neither defaults nor secrets, by name: `/api/v1/status/flags` shows them.
    pub flags: Vec<(String, String)>,
}

impl ServerSettings {
    /// The defaults, for an address. Only HTTP listens.
    pub fn new(http: SocketAddr) -> Self {
        Self {
            http,
            host_names: Vec::new(),
            origins: Vec::new(),
            control: None,
            ingest: None,
            ingest_discard: false,
            message_bytes_max: 8 << 20,
            in_flight_bytes_max: 16 << 20,
            ingest_memory_bytes_max: 256 << 20,
            wire_threads_max: 128,
            idle_timeout_ms: 600_000,
            line: None,
            graphite: None,
            opentsdb: None,
            line_database: DEFAULT_DATABASE.to_owned(),
            graphite_database: DEFAULT_DATABASE.to_owned(),
            opentsdb_database: DEFAULT_DATABASE.to_owned(),
            otlp_grpc: None,
            postgres: None,
            postgres_message_bytes_max: 16 << 20,
            flight_sql: None,
            body_bytes_max: 64 << 20,
            unpacked_bytes_max: 256 << 20,
            unpacked_ratio_max: 500,
            bodies_bytes_max: 1 << 30,
            requests_max: 64,
            connections_max: 16_384,
            head_timeout_ms: 10_000,
            http_idle_timeout_ms: 600_000,
            write_timeout_ms: 30_000,
            postgres_idle_timeout_ms: 600_000,
            park_after_ms: 250,
            body_timeout_ms: 30_000,
            stream_idle_timeout_ms: 600_000,
            stream_line_timeout_ms: 30_000,
            stream_bytes_max: 1 << 20,
            streams_busy_max: 64,
            stream_rest_bytes_max: 64 << 20,
            udp_queue_bytes_max: 8 << 20,
            ahead_ms_max: 32 * 86_400_000,
            otlp: ingest::otlp::Settings::default(),
            http_compression: Compression::default(),
            query_timeout_ms: 120_000,
            query_samples_max: 50_000_000,
            query_concurrency_max: (2 * std::thread::available_parallelism().map_or(1, NonZero::get)).max(8),
            query_queue_max: 1_000,
            query_queue_timeout_ms: 10_000,
            query_slow_ms: 10_000,
            host_metrics_interval_ms: Some(5_000),
            stop_timeout_ms: 10_000,
            backup_targets: Vec::new(),
            flags: Vec::new(),
        }
    }
}

/// What all handlers share.
pub(crate) struct State {
    pub(crate) db: Arc<Db>,
    pub(crate) settings: Arc<ServerSettings>,
    pub(crate) metrics: Arc<Metrics>,
    /// What series of OpenTelemetry's delta temporality add up to.
    pub(crate) otlp_deltas: ingest::otlp::Deltas,
    /// When the server began, in nanoseconds since the Unix epoch.
    pub(crate) started_ns: i64,
    notices: Notices,
    slow_queries: Notices,
    pub(crate) queries: Queries,
    query_threads: Arc<QueryThreads>,
    /// Bodies that are held.
    pub(crate) bodies: Arc<Budget>,
    /// Memory of bodies as they are sent and of unpacked ones, to be used again. Kept apart: what unpacks finds a buffer that was
    /// as long before, of which nothing need be zeroed.
    pub(crate) spares: Arc<Spares>,
    pub(crate) unpacked_spares: Arc<Spares>,
    requests: Arc<Semaphore>,
}

impl State {
    pub(crate) fn new(db: Arc<Db>, settings: Arc<ServerSettings>, metrics: Arc<Metrics>) -> Self {
        let requests = Arc::new(Semaphore::new(settings.requests_max.clamp(1, Semaphore::MAX_PERMITS)));
        let bodies = Arc::new(Budget::new(settings.bodies_bytes_max, db.request_memory()));
        let bounds = Bounds {
            concurrency_max: settings.query_concurrency_max,
            queue_max: settings.query_queue_max,
            queue_timeout: Duration::from_millis(settings.query_queue_timeout_ms),
        };
        let queries = Queries::new(bounds, Scheduler::new(db.query_threads(), db.clock()));
        Self {
            started_ns: db.now_ns(),
            otlp_deltas: ingest::otlp::Deltas::new(settings.otlp.delta_limits),
            db,
            settings,
            metrics,
            notices: Notices::default(),
            slow_queries: Notices::default(),
            queries,
            query_threads: Arc::default(),
            bodies,
            spares: Arc::default(),
            unpacked_spares: Arc::default(),
            requests,
        }
    }

    /// Prints a notice of a slow query; other notices do not hold it back.
    pub(crate) fn tell_slow_query(&self, message: impl FnOnce() -> String) {
        self.slow_queries.tell(self.db.now_ns(), message);
    }

    /// Tells the operator on stderr, not too often.
    pub(crate) fn tell(&self, message: impl FnOnce() -> String) {
        self.notices.tell(self.db.now_ns(), message);
    }

    /// The server's own numbers, as text.
    pub(crate) fn render_metrics(&self) -> String {
        self.metrics.render(&self.db, &self.queries, &self.otlp_deltas.stats())
    }

    pub(crate) fn body_timeout(&self) -> Duration {
        Duration::from_millis(self.settings.body_timeout_ms)
    }

    /// What a query may take, and whether it may use what was kept.
    pub(crate) fn query_budget(&self, parameters: &Parameters) -> Arc<query::Budget> {
        let budget = self.db.budget(self.settings.query_samples_max);
        if !parameters.may_cache() {
            budget.compute_all();
        }
        budget
    }

    /// Runs work that computes or waits for the disk on a thread that may do so. No more than `requests_max` at once.
    pub(crate) async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = self.requests.clone().acquire_owned().await;
        self.work_unbounded(move |state| {
            let done = work(state);
            drop(permit);
            done
        })
        .await
    }

    /// Runs a query's work on a thread of its own. Callers bound how many there are.
    pub(crate) async fn work_on_query<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (state, (sender, receiver)) = (self.clone(), oneshot::channel());
        // The receiver is gone if the client has left.
        let job = move || drop(sender.send(work(&state)));
        let begun = self.query_threads.run(Box::new(job));
        begun.map_err(|error| ApiError::internal(format!("cannot start a thread for a query: {error}")))?;
        receiver.await.map_err(|_| ApiError::internal("the query's work ended early"))
    }

    /// Like [`State::work`], for callers that enforce their own limit.
    pub(crate) async fn work_unbounded<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let state = self.clone();
        let task = tokio::task::spawn_blocking(move || work(&state));
        task.await.map_err(|error| ApiError::internal(format!("the request's work ended early: {error}")))
    }
}

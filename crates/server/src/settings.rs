//! Settings of the listeners and of what they serve; of TLS: [`tls`].

mod redis;
mod streams;
mod tls;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use access::account::Account;
use db::OpeningProgress;
use ingest::replicas::ReplicaSettings;
use model::DEFAULT_DATABASE;
use rrd::pattern::Patterns;
use views::delivery::UrlRules;

use crate::http::backup_targets::BackupTarget;
use crate::http::route_prefix::RoutePrefix;
use crate::http::scraping::mode::PrometheusMode;
use crate::sign_in::oidc::Oidc;

pub use redis::RedisSettings;
pub use streams::StreamSettings;
pub use tls::{Pem, TlsSettings};

/// Whose answers are compressed, of clients that send `Accept-Encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Those of clients on other machines, and of clients behind a proxy.
    #[default]
    Remote,
    /// All answers: clients come through tunnels that end here, for example.
    Always,
    /// No answers.
    Never,
}

impl Compression {
    /// By the word of its setting.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "remote" => Some(Self::Remote),
            "always" => Some(Self::Always),
            "never" => Some(Self::Never),
            _ => None,
        }
    }
}

/// Addresses that begin alike, as `10.0.0.0/8`; one address without a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Reads one from its text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (address, bits) =
            text.trim().split_once('/').map_or((text.trim(), None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| format!("{text:?} is no network such as 10.0.0.0/8"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse::<u8>).ok().filter(|bits| *bits <= most);
        Ok(Self { address, bits: bits.ok_or_else(|| format!("{text:?}: the length is a number up to {most}"))? })
    }

    /// Returns whether an address is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                (u32::from(network) ^ u32::from(address)).checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                (u128::from(network) ^ u128::from(address)).checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// Where a listener beside HTTP listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    /// The address. Port 0 takes a free one.
    pub address: SocketAddr,
    /// Whether the server refuses to start without it. Defaults are not: another program may have the port.
    pub required: bool,
}

/// Settings of HTTP: Prometheus's, RRDtool's files, who signs its users in, and what it sends by itself.
#[derive(Debug, Clone, Default)]
pub struct WebSettings {
    /// The identity provider that signs accounts in, too.
    pub oidc: Option<Arc<Oidc>>,
    /// The address by which others reach HTTP, as it was set; empty if it was not.
    pub external_url: String,
    /// What stands before every path of HTTP.
    pub route_prefix: RoutePrefix,
    /// Whether HTTP may reload the `prometheus.yml` and end the server.
    pub is_lifecycle_enabled: bool,
    /// Addresses that hooks and subscriptions may send to; none: all.
    pub webhook_urls: UrlRules,
    /// Live streams that may be open at the same time; `None`: 100.
    pub tail_streams_max: Option<usize>,
    /// RRDtool's files, and rrdcached's protocol.
    pub rrd: RrdSettings,
}

/// Settings of RRDtool's files, and of the protocol of rrdcached.
#[derive(Debug, Clone)]
pub struct RrdSettings {
    /// Where the protocol is served; `None`: nowhere.
    pub listener: Option<Listener>,
    /// Where it is served on a unix socket that only the server's owner may use; `None`: nowhere.
    pub socket: Option<PathBuf>,
    /// The database of its files.
    pub database: String,
    /// How paths become measurements and labels.
    pub patterns: Patterns,
    /// The folder of files that are imported when a command first names them, and that absolute paths are in; `None`: there is none.
    pub directory: Option<PathBuf>,
}

impl Default for RrdSettings {
    fn default() -> Self {
        let database = DEFAULT_DATABASE.to_owned();
        Self { listener: None, socket: None, database, patterns: Patterns::default(), directory: None }
    }
}

/// Settings of the listeners.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Where HTTP is served. Port 0 takes a free one.
    pub http: SocketAddr,
    /// How far the opening of the data folder is: requests get this until it is open.
    pub opening: Arc<OpeningProgress>,
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
    /// The databases that line protocol, Graphite and OpenTSDB write to.
    pub line_database: String,
    /// As `line_database`.
    pub graphite_database: String,
    /// As `line_database`.
    pub opentsdb_database: String,
    /// Where Postgres's protocol is served; `None`: nowhere.
    pub postgres: Option<Listener>,
    /// Bytes that a message of one of its clients may have.
    pub postgres_message_bytes_max: usize,
    /// Those of Redis's protocol.
    pub redis: RedisSettings,
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
    /// Those of connections that send lines.
    pub streams: StreamSettings,
    /// Bytes of datagrams that wait to be written; further ones are dropped and counted.
    pub udp_queue_bytes_max: usize,
    /// How far ahead of the server's clock a sample may be.
    pub ahead_ms_max: u64,
    /// How samples are deduplicated that replicas of a Prometheus send; `None`: they are not.
    pub replicas: Option<ReplicaSettings>,
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
    /// Whether clients have to sign in; otherwise everybody who reaches a port may do everything.
    pub sign_in_required: bool,
    /// Whether everybody may do everything, whatever else is said.
    pub is_insecure_open: bool,
    /// Accounts of files of settings (`web.config.yml`), beside those that are stored.
    pub accounts: Vec<Account>,
    /// Networks whose clients may write to the line listeners without signing in.
    pub line_sources: Vec<Network>,
    /// TLS of the listeners; `None`: they speak none.
    pub tls: Option<TlsSettings>,
    /// Where HTTP is served on a unix socket that only the server's owner may use; `None`: nowhere.
    pub http_socket: Option<PathBuf>,
    /// For how long browsers are to use TLS alone; `None`: they are not told.
    pub hsts_max_age_s: Option<u64>,
    /// Headers that every answer of HTTP gets.
    pub response_headers: Vec<(String, String)>,
    /// Proxies that are believed what they say of their clients.
    pub trusted_proxies: Vec<Network>,
    /// The file of the audit log; `None`: there is none.
    pub audit_log: Option<PathBuf>,
    /// Where backups that are asked for by HTTP may go; none by default.
    pub backup_targets: Vec<BackupTarget>,
    /// How HTTP is reached, and what it may do to the server.
    pub web: WebSettings,
    /// The `prometheus.yml` that the server runs, if it does.
    pub prometheus: Option<Arc<PrometheusMode>>,
    /// Settings that are neither defaults nor secrets, by name: `/api/v1/status/flags` shows them.
    pub flags: Vec<(String, String)>,
}

impl ServerSettings {
    /// Returns whether a listener may be reached from other machines.
    pub fn is_reachable_from_outside(&self) -> bool {
        let others = [
            self.control,
            self.ingest,
            self.line,
            self.graphite,
            self.opentsdb,
            self.postgres,
            self.redis.listener,
            self.flight_sql,
            self.otlp_grpc,
            self.web.rrd.listener,
        ];
        let others = others.into_iter().flatten().map(|listener| listener.address);
        others.chain([self.http]).any(|address| !address.ip().to_canonical().is_loopback())
    }

    /// The defaults, for an address. Only HTTP listens.
    pub fn new(http: SocketAddr) -> Self {
        Self {
            http,
            opening: Arc::default(),
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
            redis: RedisSettings::default(),
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
            streams: StreamSettings::default(),
            udp_queue_bytes_max: 8 << 20,
            ahead_ms_max: 32 * 86_400_000,
            replicas: None,
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
            sign_in_required: false,
            is_insecure_open: false,
            accounts: Vec::new(),
            line_sources: Vec::new(),
            tls: None,
            http_socket: None,
            hsts_max_age_s: None,
            response_headers: Vec::new(),
            trusted_proxies: Vec::new(),
            audit_log: None,
            backup_targets: Vec::new(),
            web: WebSettings::default(),
            prometheus: None,
            flags: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_the_addresses_that_begin_like_them() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("0.0.0.0/0", "203.0.113.7", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db9::1", true),
        ] {
            let parsed = Network::parse(network).unwrap();
            assert_eq!(parsed.contains(address.parse().unwrap()), expected, "{network} {address}");
        }
        for bad in ["", "10", "10.0.0.0/33", "10.0.0.0/x", "::/129"] {
            assert!(Network::parse(bad).is_err(), "{bad}");
        }
    }
}

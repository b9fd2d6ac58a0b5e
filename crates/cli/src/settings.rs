//! Settings of `thalweg serve`: one definition for flags, environment and file. Who gets in is worked out in [`access`].

mod access;
mod listeners;
pub(crate) mod log_lines;
mod otlp;
mod parts;
mod prometheus;
mod rrd;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use db::DbOptions;
use serde::{Deserialize, Serialize};
use server::{Compression, ServerSettings};

pub(crate) use self::access::OidcSettings;
use crate::machine::memory;
use crate::secrets;
use crate::units::sizes::{self, size};

use listeners::{listener, optional_listener};

/// Settings; flags win over the environment, the environment over the file, the file over the defaults.
#[derive(Debug, Default, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServeFlags {
    /// File of settings (TOML): the names are those of the flags, with _ for -
    #[arg(long, env = "THALWEG_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,

    /// Data folder, or a database in one file (its name ends in .tsdb or .tdb); made if it does not exist [default: ./thalweg-data]
    #[arg(long, env = "THALWEG_DATA", value_name = "FOLDER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<PathBuf>,

    /// Where HTTP and the page are served, port 0 takes a free one [default: 127.0.0.1:7780]
    #[arg(long, env = "THALWEG_HTTP", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<String>,

    /// Names by which browsers may reach --http, separated by commas; loopback names, and addresses where it does not listen on loopback, are
    /// always accepted [default: none]
    #[arg(long, env = "THALWEG_HOST_NAMES", value_name = "NAMES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    host_names: Option<String>,

    /// Origins of other pages whose requests are let in, such as `http://grafana:3000`, separated by commas [default: none]
    #[arg(long, env = "THALWEG_ORIGINS", value_name = "ORIGINS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    origins: Option<String>,

    /// Whether clients have to sign in: `required`, or `auto`, which is so once a listener can be reached from other machines [default: auto]
    #[arg(long, env = "THALWEG_SIGN_IN", value_name = "WHEN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    sign_in: Option<String>,

    /// Let everybody who reaches a port do everything, also from other machines
    #[arg(long, env = "THALWEG_INSECURE_OPEN")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    insecure_open: bool,

    /// Networks such as 10.0.0.0/8, separated by commas, whose clients may write to --line, --graphite, --opentsdb and --rrdcached without signing in, where
    /// others have to [default: none]
    #[arg(long, env = "THALWEG_LINE_SOURCES", value_name = "NETWORKS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    line_sources: Option<String>,

    /// File of the server's certificate (PEM), with the ones between it and its authority: the listeners speak TLS. It is read again when it
    /// changes, and at SIGHUP [default: none]
    #[arg(long, env = "THALWEG_TLS_CERT", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_cert: Option<PathBuf>,
    /// File of its key (PEM) [default: none]
    #[arg(long, env = "THALWEG_TLS_KEY", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_key: Option<PathBuf>,
    /// File of the authorities (PEM) whose client certificates sign accounts in [default: none]
    #[arg(long, env = "THALWEG_TLS_CLIENT_CA", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_client_ca: Option<PathBuf>,
    /// File of lists of client certificates that their authorities have revoked (CRLs, PEM); read again when it changes [default: none]
    #[arg(long, env = "THALWEG_TLS_CLIENT_CRL", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_client_crl: Option<PathBuf>,
    /// Whether clients have to show a certificate: `required`, or `optional` [default: optional]
    #[arg(long, env = "THALWEG_TLS_CLIENT_CERTIFICATES", value_name = "WHEN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_client_certificates: Option<String>,
    /// Listeners that speak TLS, by the names of their flags, separated by commas: http,postgres [default: all that use TCP]
    #[arg(long, env = "THALWEG_TLS_LISTENERS", value_name = "NAMES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_listeners: Option<String>,
    /// Tell browsers to reach this name by TLS alone for so many seconds (Strict-Transport-Security) [default: they are not told]
    #[arg(long, env = "THALWEG_HSTS_MAX_AGE_S", value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    hsts_max_age_s: Option<u64>,
    /// Where HTTP is served on a unix socket, too, to the server's own user alone, who may do everything [default: nowhere]
    #[arg(long, env = "THALWEG_HTTP_SOCKET", value_name = "PATH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    http_socket: Option<PathBuf>,
    /// Networks of proxies, separated by commas, that are believed what they say of their clients: X-Forwarded-For and X-WEBAUTH-USER
    /// [default: none]
    #[arg(long, env = "THALWEG_TRUSTED_PROXIES", value_name = "NETWORKS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    trusted_proxies: Option<String>,
    /// TLS, headers, and users with bcrypt hashes of their passwords as Prometheus has them: its `web.config.yml`. These users may do
    /// everything [default: none]
    #[arg(long = "web-config-file", alias = "web.config.file", env = "THALWEG_WEB_CONFIG_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    web_config_file: Option<PathBuf>,

    /// Identity provider (`OpenID` Connect) whose tokens (JWT) sign accounts in: its issuer, such as `https://id.example/realms/main`
    /// [default: none]
    #[arg(long, env = "THALWEG_OIDC_ISSUER", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    oidc_issuer: Option<String>,
    /// Whom its tokens have to be meant for, names separated by commas; --oidc-client-id is one of them [default: none]
    #[arg(long, env = "THALWEG_OIDC_AUDIENCES", value_name = "NAMES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    oidc_audiences: Option<String>,
    /// Rights of its groups, separated by semicolons: `engineers=read+write:metrics; admins=server-admin; *=read:public`
    /// [default: nothing]
    #[arg(long, env = "THALWEG_OIDC_ROLES", value_name = "ROLES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    oidc_roles: Option<String>,
    /// Claim of its tokens that names the account [default: sub]
    #[arg(long, env = "THALWEG_OIDC_NAME_CLAIM", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    oidc_name_claim: Option<String>,
    /// Claim of its tokens that lists the account's groups [default: groups]
    #[arg(long, env = "THALWEG_OIDC_GROUPS_CLAIM", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    oidc_groups_claim: Option<String>,
    /// Name of this server at the provider: the page signs in there, too [default: none]
    #[arg(long, env = "THALWEG_OIDC_CLIENT_ID", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    oidc_client_id: Option<String>,
    /// File of the secret that goes with it [default: none]
    #[arg(long, env = "THALWEG_OIDC_CLIENT_SECRET_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    oidc_client_secret_file: Option<PathBuf>,
    /// Where the provider sends browsers back to: `/api/v1/session/oidc/callback` of this server, as browsers reach it [default: none]
    #[arg(long, env = "THALWEG_OIDC_REDIRECT_URL", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    oidc_redirect_url: Option<String>,
    /// File of the authorities (PEM) that the provider's certificate is checked by [default: those of the system]
    #[arg(long, env = "THALWEG_OIDC_CA_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    oidc_ca_file: Option<PathBuf>,

    /// File of the audit log, JSON lines, or `off` [default: audit.log in the data folder, or beside the one file, where clients have to sign in]
    #[arg(long, env = "THALWEG_AUDIT_LOG", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_log: Option<String>,

    /// Addresses that triggers' hooks and subscriptions may send to, separated by commas: scheme, host and port are the same, and the path begins
    /// with the one here: `https://hooks.example/thalweg` [default: all that an administrator of the server names]
    #[arg(long, env = "THALWEG_WEBHOOK_URLS", value_name = "URLS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook_urls: Option<String>,
    /// Live streams (`thalweg tail`) that may be open at the same time [default: 100]
    #[arg(long, env = "THALWEG_TAIL_STREAMS_MAX", value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tail_streams_max: Option<usize>,

    /// Scrape targets as Prometheus does by this `prometheus.yml`; SIGHUP reads it again [default: none]
    #[arg(long, alias = "config.file", env = "THALWEG_PROMETHEUS", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    prometheus: Option<PathBuf>,

    /// Database that scrapes are written to [default: default]
    #[arg(long, env = "THALWEG_PROMETHEUS_DATABASE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    prometheus_database: Option<String>,

    /// Recording rules whose results are kept right for the past, too, when rows come late: GROUP or GROUP/NAME, separated by commas, in which `*`
    /// stands for any text [default: none]
    #[arg(long, env = "THALWEG_MATERIALIZE_RULES", value_name = "PATTERNS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    materialize_rules: Option<String>,

    /// Aggregate what is written as VictoriaMetrics's stream aggregation does by this file; late samples count. `thalweg check
    /// stream-aggregation` says what it becomes; SIGHUP reads it again [default: none]
    #[arg(long, alias = "streamAggr.config", env = "THALWEG_STREAM_AGGREGATION", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_aggregation: Option<PathBuf>,

    /// Let `POST /-/reload` read these files again, and `POST /-/quit` end the server
    #[arg(long, alias = "web.enable-lifecycle", env = "THALWEG_WEB_ENABLE_LIFECYCLE")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    web_enable_lifecycle: bool,

    /// Address by which others reach HTTP, for example through a proxy; its path is the default of `--web-route-prefix` [default: none]
    #[arg(long, alias = "web.external-url", env = "THALWEG_WEB_EXTERNAL_URL", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    web_external_url: Option<String>,

    /// What stands before every path of HTTP [default: the path of `--web-external-url`]
    #[arg(long, alias = "web.route-prefix", env = "THALWEG_WEB_ROUTE_PREFIX", value_name = "PATH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    web_route_prefix: Option<String>,

    /// Label that replicas of a Prometheus share: of remote write only the samples of one replica of each cluster are stored [default: none;
    /// with `--ha-replica-label`: cluster]
    #[arg(long, env = "THALWEG_HA_CLUSTER_LABEL", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ha_cluster_label: Option<String>,

    /// Label that tells them apart, and which is not stored [default: none; with `--ha-cluster-label`: __replica__]
    #[arg(long, env = "THALWEG_HA_REPLICA_LABEL", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ha_replica_label: Option<String>,

    /// How long the replica whose samples are stored may be silent before another takes its place, in milliseconds [default: 30000]
    #[arg(long, env = "THALWEG_HA_FAILOVER_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ha_failover_timeout_ms: Option<u64>,

    /// Clusters of replicas that are known at the same time; requests of others are refused [default: 1000]
    #[arg(long, env = "THALWEG_HA_CLUSTERS_MAX", value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ha_clusters_max: Option<usize>,

    /// Where the binary protocol registers, or `off`; port 0 takes a free one [default: 127.0.0.1:7782]
    #[arg(long, env = "THALWEG_CONTROL", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<String>,

    /// Where the binary protocol takes rows, or `off`; port 0 takes a free one [default: 127.0.0.1:7783]
    #[arg(long, env = "THALWEG_INGEST", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ingest: Option<String>,

    /// Acknowledge rows of the binary protocol and throw them away: for benchmarks alone
    #[arg(long, env = "THALWEG_INGEST_DISCARD", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ingest_discard: Option<bool>,
    /// Where line protocol is taken by TCP and UDP, or `off` [default: 127.0.0.1:7781]
    #[arg(long, env = "THALWEG_LINE", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<String>,

    /// Where Graphite's plaintext is taken by TCP and UDP, or `off` [default: 127.0.0.1:2003]
    #[arg(long, env = "THALWEG_GRAPHITE", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    graphite: Option<String>,

    /// Where OpenTSDB's telnet commands are taken, or `off` [default: 127.0.0.1:4242]
    #[arg(long, env = "THALWEG_OPENTSDB", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    opentsdb: Option<String>,

    /// Where rrdcached's protocol is served (`rrdtool --daemon`, collectd), `on` (127.0.0.1:42217) or `off` [default: off]
    #[arg(long, env = "THALWEG_RRDCACHED", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    rrdcached: Option<String>,

    /// Unix socket where it is served, too, that only the server's owner may use [default: none]
    #[arg(long, env = "THALWEG_RRDCACHED_SOCKET", value_name = "PATH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    rrdcached_socket: Option<PathBuf>,

    /// Folder of RRD files that are imported when a client first names them, and that absolute paths are in [default: none]
    #[arg(long, env = "THALWEG_RRDCACHED_DIRECTORY", value_name = "FOLDER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    rrdcached_directory: Option<PathBuf>,

    /// Database of the files of --rrdcached [default: default]
    #[arg(long, env = "THALWEG_RRDCACHED_DATABASE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    rrdcached_database: Option<String>,

    /// How paths of RRD files become measurements and labels, separated by semicolons, the first that matches counts:
    /// `{host}/{plugin}[-{plugin_instance}]/{measurement}[-{type_instance}].rrd` [default: the measurement rrd with the label path]
    #[arg(long, env = "THALWEG_RRD_PATTERN", value_name = "PATTERNS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    rrd_pattern: Option<String>,

    /// Where Postgres's protocol is served (psql, drivers, Grafana), or `off` [default: 127.0.0.1:7784]
    #[arg(long, env = "THALWEG_POSTGRES", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    postgres: Option<String>,

    /// Where Redis's protocol is served, with the commands of `RedisTimeSeries`: an address, or `on` for 127.0.0.1:7787 [default: off]
    #[arg(long, env = "THALWEG_REDIS", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    redis: Option<String>,

    /// Database that --redis begins with; others have their number after this name [default: redis]
    #[arg(long, env = "THALWEG_REDIS_DATABASE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    redis_database: Option<String>,

    /// Where Arrow Flight SQL's drivers (ADBC, JDBC) connect, or `off`; needs a build with the cargo feature flight-sql [default: 127.0.0.1:7786]
    #[arg(long, env = "THALWEG_FLIGHT_SQL", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    flight_sql: Option<String>,

    /// Database that --line writes to [default: default]
    #[arg(long, env = "THALWEG_LINE_DATABASE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    line_database: Option<String>,

    /// Database that --graphite writes to [default: default]
    #[arg(long, env = "THALWEG_GRAPHITE_DATABASE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    graphite_database: Option<String>,

    /// Database that --opentsdb writes to [default: default]
    #[arg(long, env = "THALWEG_OPENTSDB_DATABASE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    opentsdb_database: Option<String>,

    /// Where OpenTelemetry's gRPC is served, or `off` [default: 127.0.0.1:4317]
    #[arg(long, env = "THALWEG_OTLP_GRPC", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp_grpc: Option<String>,

    /// Do not sample the machine that the server runs on
    #[arg(long, env = "THALWEG_NO_HOST_METRICS", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    no_host_metrics: Option<bool>,

    /// How often the machine is sampled, in milliseconds [default: 5000]
    #[arg(long, env = "THALWEG_HOST_METRICS_INTERVAL_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    host_metrics_interval_ms: Option<u64>,

    /// Shards of a new data folder; an existing one keeps its number [default: one per core, at most 16]
    #[arg(long, env = "THALWEG_SHARDS", value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    shards: Option<u32>,

    /// Bytes of memory to stay within [default: half of what the machine or its control group has]
    #[arg(long, env = "THALWEG_MEMORY_BYTES_MAX", value_name = "BYTES", value_parser = size::<u64>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    memory_bytes_max: Option<u64>,

    /// Bytes of answers that are kept in memory, so that dashboards are computed only where something is new; 0: none are
    /// [default: a sixteenth of the memory to stay within]
    #[arg(long, env = "THALWEG_RESULT_CACHE_MEMORY_BYTES_MAX", value_name = "BYTES", value_parser = size::<usize>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    result_cache_memory_bytes_max: Option<usize>,

    /// Bytes of the file that answers go to from memory, and that outlives the process; 0: there is none [default: 512 MiB]
    #[arg(long, env = "THALWEG_RESULT_CACHE_FLASH_BYTES_MAX", value_name = "BYTES", value_parser = size::<u64>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    result_cache_flash_bytes_max: Option<u64>,

    /// That file, on flash [default: answers.cache in the data folder, inside of a database in one file]
    #[arg(long, env = "THALWEG_RESULT_CACHE_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    result_cache_file: Option<PathBuf>,

    /// Series that a database may have [default: any number]. What is known already goes on being written
    #[arg(long, env = "THALWEG_SERIES_PER_DATABASE_MAX", value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    series_per_database_max: Option<u64>,

    /// New series that are let in within one second [default: any number]
    #[arg(long, env = "THALWEG_NEW_SERIES_PER_SECOND_MAX", value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    new_series_per_second_max: Option<u64>,

    /// Where old data settles: a folder, `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix` [default: the
    /// data folder]. Credentials come from the clouds' usual environment variables
    #[arg(long, env = "THALWEG_OBJECTS", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<String>,

    /// Where an S3-compatible server listens, such as `http://127.0.0.1:9000` [default: the cloud's own]
    #[arg(long, env = "THALWEG_OBJECTS_ENDPOINT", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    objects_endpoint: Option<String>,

    /// Further settings of the object store as `name=value`, separated by commas, by the names of the clouds' environment variables in lower
    /// case, over which they win: `aws_region=eu-west-1,aws_access_key_id=…` [default: none]
    #[arg(long, env = "THALWEG_OBJECTS_SETTINGS", value_name = "SETTINGS", hide_env_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    objects_settings: Option<String>,

    /// Where backups that are asked for by HTTP may go, with what is below: whole paths of folders and addresses such as
    /// `s3://bucket/prefix`, each also as `name=place`, separated by commas [default: nowhere]
    #[arg(long, env = "THALWEG_BACKUP_TARGETS", value_name = "PLACES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    backup_targets: Option<String>,

    /// Bytes of settled data whose local copies are kept beside an object store [default: 17179869184]
    #[arg(long, env = "THALWEG_OBJECTS_LOCAL_BYTES_MAX", value_name = "BYTES", value_parser = size::<u64>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    objects_local_bytes_max: Option<u64>,

    /// Bytes of recent data that the length of partitions is fitted to [default: 17179869184]
    #[arg(long, env = "THALWEG_FAST_BYTES_MAX", value_name = "BYTES", value_parser = size::<u64>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    fast_bytes_max: Option<u64>,

    /// Bytes of parts that merges write in a second while no writer waits for them; 0: as many as they can [default: 0]
    #[arg(long, env = "THALWEG_MERGE_BYTES_PER_SECOND_MAX", value_name = "BYTES", value_parser = size::<u64>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    merge_bytes_per_second_max: Option<u64>,

    /// How long what is past keeping stays in the trash, from which `thalweg trash restore` has it back, in milliseconds
    /// [default: 86400000]
    #[arg(long, env = "THALWEG_TRASH_AGE_MS_MAX", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    trash_age_ms_max: Option<u64>,

    /// Bytes of the trash on this machine's disk [default: as many as leave the disk a tenth of the data's size, and 64 MiB, free]
    #[arg(long, env = "THALWEG_TRASH_BYTES_MAX", value_name = "BYTES", value_parser = size::<u64>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    trash_bytes_max: Option<u64>,

    /// In which time everything on the local disk is read once and checked, in milliseconds; 0: never [default: 604800000]
    #[arg(long, env = "THALWEG_SCRUB_PERIOD_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    scrub_period_ms: Option<u64>,

    /// Bytes that this reads in a second, at most [default: 33554432]
    #[arg(long, env = "THALWEG_SCRUB_BYTES_PER_SECOND_MAX", value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..), value_parser = size::<u64>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    scrub_bytes_per_second_max: Option<u64>,

    /// Bytes of newest data in memory at which it is written to parts [default: 268435456]
    #[arg(long, env = "THALWEG_HEAD_BYTES_MAX", value_name = "BYTES", value_parser = size::<usize>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    head_bytes_max: Option<usize>,

    /// Open a folder although acknowledged rows are missing, and go on without them: answers about their time carry a warning until it is
    /// acknowledged (thalweg losses --acknowledge). For one start: it is in no settings file
    #[arg(long)]
    #[serde(skip)]
    accept_loss: bool,

    /// Bytes of files that no manifest names and that are kept in `lost+found`; those of earlier starts go first, what does not fit
    /// stays where it is [default: 1073741824]
    #[arg(long, env = "THALWEG_LOST_FOUND_BYTES_MAX", value_name = "BYTES", value_parser = size::<u64>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    lost_found_bytes_max: Option<u64>,

    /// Bytes of log at which data is written to parts so that the log can be given up [default: 268435456]
    #[arg(long, env = "THALWEG_LOG_BYTES_MAX", value_name = "BYTES", value_parser = size::<u64>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    log_bytes_max: Option<u64>,

    /// Bytes of log that stay beyond that for readers that have not come so far, such as the receivers of forwarded samples [default: 4294967296]
    #[arg(long, env = "THALWEG_LOG_RETAINED_BYTES_MAX", value_name = "BYTES", value_parser = size::<u64>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    log_retained_bytes_max: Option<u64>,

    /// Write the log past the system's cache, durable with the same call, where the file system can; `/metrics` shows whether it
    /// does [default: true]
    #[arg(long, env = "THALWEG_LOG_DIRECT", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log_direct: Option<bool>,

    /// Bytes that the body of a request may have as it is sent [default: 67108864]
    #[arg(long, env = "THALWEG_BODY_BYTES_MAX", value_name = "BYTES", value_parser = size::<usize>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    body_bytes_max: Option<usize>,

    /// Bytes that the body of a request may have unpacked [default: 268435456]
    #[arg(long, env = "THALWEG_UNPACKED_BYTES_MAX", value_name = "BYTES", value_parser = size::<usize>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    unpacked_bytes_max: Option<usize>,

    /// Bytes that a body may unpack to for each byte sent, beyond the first mebibyte [default: 500]
    #[arg(long, env = "THALWEG_UNPACKED_RATIO_MAX", value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    unpacked_ratio_max: Option<usize>,

    /// Bytes of all bodies held at the same time; further requests are told to come again [default: 1073741824]
    #[arg(long, env = "THALWEG_BODIES_BYTES_MAX", value_name = "BYTES", value_parser = size::<usize>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    bodies_bytes_max: Option<usize>,

    /// Bytes that a message of --postgres may have, and that what a session has prepared may take [default: 16777216]
    #[arg(long, env = "THALWEG_POSTGRES_MESSAGE_BYTES_MAX", value_name = "BYTES", value_parser = size::<usize>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    postgres_message_bytes_max: Option<usize>,

    /// Connections of each listener open at the same time; for further clients silent connections of --http are closed, or they are
    /// refused [default: 16384]
    #[arg(long, env = "THALWEG_CONNECTIONS_MAX", value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    connections_max: Option<usize>,

    /// Threads that read from and write to connections; parsing, storing and queries have others [default: one for two cores]
    #[arg(long, env = "THALWEG_NETWORK_THREADS", value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    network_threads: Option<NonZeroUsize>,

    /// How far ahead of the server's clock a sample may be, in milliseconds [default: 2764800000]
    #[arg(long, env = "THALWEG_AHEAD_MS_MAX", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead_ms_max: Option<u64>,

    /// How long a connection of --http that has asked before may be silent, in milliseconds [default: 600000]
    #[arg(long, env = "THALWEG_HTTP_IDLE_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    http_idle_timeout_ms: Option<u64>,

    /// How long a client of --http or --postgres may take nothing of an answer that waits for it, in milliseconds [default: 30000]
    #[arg(long, env = "THALWEG_WRITE_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    write_timeout_ms: Option<u64>,

    /// How long a session of --postgres may be silent, in milliseconds [default: 600000]
    #[arg(long, env = "THALWEG_POSTGRES_IDLE_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    postgres_idle_timeout_ms: Option<u64>,

    /// Whose answers over HTTP are compressed, of clients that ask for it: `remote` (not those of this machine, unless a proxy asks), `always`,
    /// `never` [default: remote]
    #[arg(long, env = "THALWEG_HTTP_COMPRESSION", value_name = "WORD")]
    #[serde(skip_serializing_if = "Option::is_none")]
    http_compression: Option<String>,

    /// How long a connection of --line, --graphite, --opentsdb or --rrdcached may be silent, in milliseconds [default: 600000]
    #[arg(long, env = "THALWEG_STREAM_IDLE_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_idle_timeout_ms: Option<u64>,

    /// How long a client of those may take to finish a line, in milliseconds [default: 30000]
    #[arg(long, env = "THALWEG_STREAM_LINE_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_line_timeout_ms: Option<u64>,

    /// Bytes of datagrams that wait to be written; further ones are dropped and counted [default: 8388608]
    #[arg(long, env = "THALWEG_UDP_QUEUE_BYTES_MAX", value_name = "BYTES", value_parser = size::<usize>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    udp_queue_bytes_max: Option<usize>,

    /// How OpenTelemetry's names become those of metrics and labels: `UnderscoreEscapingWithSuffixes`,
    /// `UnderscoreEscapingWithoutSuffixes`, `NoUTF8EscapingWithSuffixes` or `NoTranslation` [default: the first]
    #[arg(long, env = "THALWEG_OTLP_TRANSLATION", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp_translation: Option<String>,

    /// Whether OpenTelemetry's series get the labels `otel_scope_name`, `otel_scope_version`, `otel_scope_schema_url` and one for each of the
    /// scope's attributes; without them scopes that differ in these alone share series [default: true]
    #[arg(long, env = "THALWEG_OTLP_SCOPE_LABELS", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp_scope_labels: Option<bool>,

    /// What becomes of OpenTelemetry's sums and histograms of delta temporality: `cumulate` adds them up, `keep` stores them as
    /// they come, `reject` refuses them [default: cumulate]
    #[arg(long, env = "THALWEG_OTLP_DELTA", value_name = "WORD")]
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp_delta: Option<String>,

    /// Series of delta temporality that are added up at the same time; further ones are refused [default: 500000]
    #[arg(long, env = "THALWEG_OTLP_DELTA_SERIES_MAX", value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp_delta_series_max: Option<usize>,

    /// Bytes that what is added up may take [default: 134217728]
    #[arg(long, env = "THALWEG_OTLP_DELTA_BYTES_MAX", value_name = "BYTES", value_parser = size::<usize>)]
    #[serde(default, deserialize_with = "sizes::deserialize", skip_serializing_if = "Option::is_none")]
    otlp_delta_bytes_max: Option<usize>,

    /// After how long a silence a series of delta temporality begins at 0 again, in milliseconds [default: 3600000]
    #[arg(long, env = "THALWEG_OTLP_DELTA_STALE_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp_delta_stale_ms: Option<u64>,

    /// Resource attributes of OpenTelemetry that become labels of every series, separated by commas [default: none]
    #[arg(long, env = "THALWEG_OTLP_PROMOTED_ATTRIBUTES", value_name = "NAMES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp_promoted_attributes: Option<String>,

    /// How long a query may take, in milliseconds [default: 120000]
    #[arg(long, env = "THALWEG_QUERY_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    query_timeout_ms: Option<u64>,

    /// Samples that a query may hold at once [default: 50000000]
    #[arg(long, env = "THALWEG_QUERY_SAMPLES_MAX", value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    query_samples_max: Option<u64>,

    /// Queries that run at the same time; others wait [default: two per core, at least 8]
    #[arg(long, env = "THALWEG_QUERY_CONCURRENCY_MAX", value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    query_concurrency_max: Option<usize>,

    /// Queries that wait at the same time; further ones are refused [default: 1000]
    #[arg(long, env = "THALWEG_QUERY_QUEUE_MAX", value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    query_queue_max: Option<usize>,

    /// How long a query may wait before it is refused, in milliseconds [default: 10000]
    #[arg(long, env = "THALWEG_QUERY_QUEUE_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    query_queue_timeout_ms: Option<u64>,

    /// From which duration on queries are told on stderr, in milliseconds; at most one a second [default: 10000]
    #[arg(long, env = "THALWEG_QUERY_SLOW_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    query_slow_ms: Option<u64>,

    /// The least level of lines on stderr: `error`, `warn`, `info`, or `debug`, which has each query that fails [default: info]
    #[arg(long, env = "THALWEG_LOG_LEVEL", value_name = "LEVEL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log_level: Option<String>,

    /// How lines on stderr are written: `text` or `json` [default: text]
    #[arg(long, env = "THALWEG_LOG_FORMAT", value_name = "FORMAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log_format: Option<String>,

    /// How old a series' newest sample may be to count as its value now, in milliseconds [default: 300000]
    #[arg(long, env = "THALWEG_LOOKBACK_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    lookback_ms: Option<i64>,

    /// Drop metrics' names from PromQL's answers only, so that outer expressions may group by them: `false`, `true`, or `always` as
    /// Prometheus does with its feature flag, where names that were grouped by go in the end, too [default: false]
    #[arg(long, env = "THALWEG_DELAYED_NAME_REMOVAL", value_name = "WORD")]
    #[serde(skip_serializing_if = "Option::is_none")]
    delayed_name_removal: Option<String>,

    /// Allow what Prometheus has behind feature flags: experimental functions, duration expressions, `anchored`, `smoothed`, `fill`
    /// [default: true]
    #[arg(long, env = "THALWEG_PROMQL_EXPERIMENTAL", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    promql_experimental: Option<bool>,
}

/// Settings, ready to be used.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) db: DbOptions,
    pub(crate) server: ServerSettings,
    /// Threads that read from and write to connections.
    pub(crate) network_threads: usize,
    /// The `prometheus.yml` and the stream aggregation file that are run, if one is.
    pub(crate) prometheus: Option<server::PrometheusSettings>,
    /// The identity provider, if one is named.
    pub(crate) oidc: Option<OidcSettings>,
}

impl ServeFlags {
    /// Reads the file, if one is named, and puts flags and environment over it.
    pub(crate) fn resolve(&self) -> Result<Settings, String> {
        let merged = match &self.config {
            None => self.clone(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("cannot read settings {}: {error}", path.display()))?;
                self.over(&text).map_err(|error| format!("settings {}: {error}", path.display()))?
            }
        };
        merged.set_up_log()?;
        merged.to_settings()
    }

    /// These settings over those of a file's text.
    fn over(&self, text: &str) -> Result<Self, String> {
        let file: Self = toml::from_str(text).map_err(|error| secrets::explain(&error, text))?;
        let mut table = toml::Table::try_from(&file).map_err(|error| error.to_string())?;
        table.extend(toml::Table::try_from(self).map_err(|error| error.to_string())?);
        let merged: Self = table.try_into().map_err(|error: toml::de::Error| error.to_string())?;
        // Of one start, and of no file.
        Ok(Self { accept_loss: self.accept_loss, ..merged })
    }

    fn network_threads(&self, cores: u32) -> usize {
        self.network_threads.map_or_else(|| network_threads(cores), NonZeroUsize::get)
    }

    fn to_settings(&self) -> Result<Settings, String> {
        let http = self.http.as_deref().unwrap_or("127.0.0.1:7780");
        if http == "off" {
            return Err("queries and the page go by HTTP: --http off would leave nobody to ask".to_owned());
        }
        let address: SocketAddr =
            http.parse().map_err(|_| format!("--http {http:?} is not an address such as 127.0.0.1:7780"))?;
        let mut server = ServerSettings::new(address);
        let mut db = DbOptions::new(self.data.as_deref().unwrap_or(Path::new("./thalweg-data")));
        server.opening.clone_from(&db.store.progress);
        self.set_access(&mut server)?;
        server.control = listener("--control", self.control.as_deref(), 7782)?;
        server.ingest = listener("--ingest", self.ingest.as_deref(), 7783)?;
        set(&mut server.ingest_discard, self.ingest_discard);
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        db.store.shards = self.shards.unwrap_or(cores.min(16));
        db.store.memory_bytes_max = self.memory_bytes_max.unwrap_or_else(memory::half_of_the_machine);
        // Heads by default: an eighth of the memory, at most what the store's own default is.
        let eighth = usize::try_from(db.store.memory_bytes_max / 8).unwrap_or(usize::MAX);
        db.store.head_bytes_max = self.head_bytes_max.unwrap_or(db.store.head_bytes_max.min(eighth));
        self.set_result_cache(&mut db);
        self.set_store(&mut db);
        db.store.objects = self.objects.as_deref().map(|url| self.object_tier(url)).transpose()?;
        self.set_durability(&mut db);
        set(&mut db.lookback_ms, self.lookback_ms);
        self.set_name_removal(&mut db)?;
        set(&mut db.promql_experimental, self.promql_experimental);
        set(&mut server.body_bytes_max, self.body_bytes_max);
        set(&mut server.unpacked_bytes_max, self.unpacked_bytes_max);
        server.line = listener("--line", self.line.as_deref(), 7781)?;
        server.graphite = listener("--graphite", self.graphite.as_deref(), 2003)?;
        server.opentsdb = listener("--opentsdb", self.opentsdb.as_deref(), 4242)?;
        server.line_database = database("--line-database", self.line_database.as_deref())?;
        server.graphite_database = database("--graphite-database", self.graphite_database.as_deref())?;
        server.opentsdb_database = database("--opentsdb-database", self.opentsdb_database.as_deref())?;
        self.set_rrd(&mut server)?;
        server.postgres = listener("--postgres", self.postgres.as_deref(), 7784)?;
        server.redis.listener = optional_listener("--redis", self.redis.as_deref(), 7787)?;
        set(&mut server.redis.database, self.redis_database.clone());
        server.flight_sql = listener("--flight-sql", self.flight_sql.as_deref(), 7786)?;
        if !cfg!(feature = "flight-sql") && server.flight_sql.is_some_and(|listener| listener.required) {
            return Err(
                "--flight-sql: this program was built without it; build it with --features flight-sql".to_owned()
            );
        }
        server.otlp_grpc = listener("--otlp-grpc", self.otlp_grpc.as_deref(), 4317)?;
        server.otlp = self.otlp()?;
        server.replicas = self.replicas()?;
        self.set_web(&mut server)?;
        set(&mut server.unpacked_ratio_max, self.unpacked_ratio_max);
        set(&mut server.bodies_bytes_max, self.bodies_bytes_max);
        set(&mut server.postgres_message_bytes_max, self.postgres_message_bytes_max);
        set(&mut server.ahead_ms_max, self.ahead_ms_max);
        db.store.ahead_ms_max = server.ahead_ms_max;
        self.set_timeouts(&mut server);
        set(&mut server.udp_queue_bytes_max, self.udp_queue_bytes_max);
        if let Some(word) = &self.http_compression {
            server.http_compression = Compression::from_name(word)
                .ok_or_else(|| format!("--http-compression {word:?} is none of remote, always, never"))?;
        }
        self.set_queries(&mut server);
        set(&mut server.host_metrics_interval_ms, self.host_metrics_interval_ms.map(Some));
        if self.no_host_metrics == Some(true) {
            server.host_metrics_interval_ms = None;
        }
        self.set_sign_in(&mut server, &db.store.directory)?;
        server.flags = self.set_flags()?;
        let (network_threads, prometheus) = (self.network_threads(cores), self.prometheus(&db)?);
        Ok(Settings { db, server, network_threads, prometheus, oidc: self.oidc()? })
    }
}

/// Threads that read from and write to connections of a machine with so many cores. One that finds nothing to do wakes and sleeps
/// for every request nevertheless (`docs/decisions/0011-network-threads.md`).
fn network_threads(cores: u32) -> usize {
    (cores as usize / 2).max(1)
}

/// What stands between commas.
pub(crate) fn list(text: Option<&str>) -> Vec<String> {
    let items = text.unwrap_or_default().split(',').map(str::trim);
    items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// The database of a listener.
fn database(flag: &str, given: Option<&str>) -> Result<String, String> {
    match given {
        None => Ok(model::DEFAULT_DATABASE.to_owned()),
        Some(name) if (1..=255).contains(&name.len()) => Ok(name.to_owned()),
        Some(name) => Err(format!("{flag}: a database's name has 1 to 255 bytes, not {}", name.len())),
    }
}

fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *setting = given;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use server::Listener;

    use super::*;

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let flags = ServeFlags { http: Some("127.0.0.1:1".to_owned()), ..ServeFlags::default() };
        let merged = flags.over("http = \"127.0.0.1:2\"\ndata = \"d\"\nno_host_metrics = true").unwrap();
        let settings = merged.to_settings().unwrap();
        assert_eq!(settings.server.http, "127.0.0.1:1".parse().unwrap());
        assert_eq!(settings.db.store.directory, Path::new("d"));
        assert_eq!(settings.server.host_metrics_interval_ms, None);
        assert_eq!(settings.server.body_bytes_max, 64 << 20);
    }

    #[test]
    fn sizes_have_units_in_the_file_and_in_flags() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            flags: ServeFlags,
        }
        let line = ["x", "--body-bytes-max", "1MiB"];
        let flags = <Line as clap::Parser>::try_parse_from(line).unwrap().flags;
        let settings =
            flags.over("memory_bytes_max = \"2GiB\"\nunpacked_bytes_max = 1048577").unwrap().to_settings().unwrap();
        assert_eq!(settings.db.store.memory_bytes_max, 2 << 30);
        assert_eq!((settings.server.body_bytes_max, settings.server.unpacked_bytes_max), (1 << 20, 1_048_577));
        for wrong in ["memory_bytes_max = \"2XB\"", "memory_bytes_max = -1", "memory_bytes_max = true"] {
            assert!(ServeFlags::default().over(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn there_is_a_network_thread_for_two_cores_and_always_one() {
        assert_eq!([1, 2, 3, 4, 9, 64].map(network_threads), [1, 1, 1, 2, 4, 32]);
        let settings = ServeFlags::default().over("network_threads = 3").unwrap().to_settings().unwrap();
        assert_eq!(settings.network_threads, 3);
        let error = ServeFlags::default().over("network_threads = 0").unwrap_err();
        assert!(error.contains("nonzero"), "{error}");
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it_and_the_known_ones() {
        let error = ServeFlags::default().over("htpp = \"x\"").unwrap_err();
        assert!(error.contains("unknown field `htpp`") && error.contains("`http`"), "{error}");
    }

    #[test]
    fn other_listeners_are_on_by_default_and_can_be_moved_or_turned_off() {
        let flags = ServeFlags {
            line: Some("127.0.0.1:0".to_owned()),
            graphite: Some("off".to_owned()),
            otlp_promoted_attributes: Some("host.name, k8s.pod.name".to_owned()),
            ..ServeFlags::default()
        };
        let server = flags.to_settings().unwrap().server;
        let at = |port, required| Some(Listener { address: (Ipv4Addr::LOCALHOST, port).into(), required });
        assert_eq!((server.line, server.graphite), (at(0, true), None));
        assert_eq!((server.opentsdb, server.otlp_grpc), (at(4242, false), at(4317, false)));
        assert_eq!(server.otlp.promoted_attributes, ["host.name", "k8s.pod.name"]);
        for flags in [
            ServeFlags { line: Some("nowhere".to_owned()), ..ServeFlags::default() },
            ServeFlags { otlp_translation: Some("Pig Latin".to_owned()), ..ServeFlags::default() },
            ServeFlags { otlp_delta: Some("perhaps".to_owned()), ..ServeFlags::default() },
        ] {
            assert!(flags.to_settings().is_err());
        }
    }

    #[test]
    fn secrets_are_neither_published_nor_quoted() {
        let text = "objects = \"s3://b\"\nobjects_settings = \"aws_secret_access_key=hidden\"\n\
                    objects_endpoint = \"http://user:hidden@store:9000\"";
        let settings = ServeFlags::default().over(text).unwrap().to_settings().unwrap();
        let objects = settings.db.store.objects.unwrap().objects;
        assert_eq!(objects.settings, [("aws_secret_access_key".to_owned(), "hidden".to_owned())]);
        let flags: Vec<(&str, &str)> =
            settings.server.flags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            flags,
            [
                ("objects", "s3://b"),
                ("objects-endpoint", "http://<secret>@store:9000"),
                ("objects-settings", "<secret>"),
            ]
        );
        for text in
            ["objects_settings = 1234", "objects_settings = \"hidden1234\" hidden1234", "objects_settings = [\"1234\"]"]
        {
            let error = ServeFlags::default().over(text).unwrap_err();
            assert!(!error.contains("1234") && error.contains("line 1"), "{error}");
        }
        let flags = ServeFlags {
            objects: Some("s3://b".to_owned()),
            objects_settings: Some("hidden".to_owned()),
            ..ServeFlags::default()
        };
        let error = flags.to_settings().unwrap_err();
        assert!(!error.contains("hidden") && error.contains("--objects-settings"), "{error}");
    }

    #[test]
    fn origins_are_as_browsers_say_them() {
        let origins = |text: &str| {
            let flags = ServeFlags { origins: Some(text.to_owned()), ..ServeFlags::default() };
            flags.to_settings().map(|settings| settings.server.origins)
        };
        assert_eq!(origins("http://a:1, https://b").unwrap(), ["http://a:1", "https://b"]);
        for wrong in ["a:1", "http://", "http://a/b", "*"] {
            assert!(origins(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_bad_address_is_an_error() {
        let flags = ServeFlags { http: Some("here".to_owned()), ..ServeFlags::default() };
        assert!(flags.to_settings().unwrap_err().contains("\"here\""));
    }
}

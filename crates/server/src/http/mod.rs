//! HTTP: which path leads where, and a handler for each.
//!
//! * [`routes`]: paths and handlers · [`guard`]: which requests get in, by their heads · [`request`]: bodies and parameters of those
//! * [`body`], [`text`], [`parameters`]: what comes in, within bounds · [`compression`]: which answers go out compressed
//! * [`write`]: a handler per protocol · [`influx`]: InfluxDB's errors · [`influx_v2`]: buckets, organisations and deletes of InfluxDB 2
//! * [`streamed`]: answers sent while they are written
//! * [`query`], [`names`], [`search`], [`status`], [`query_statistics`], [`running_queries`]: Prometheus's API · [`json`]: its answers
//! * [`plan`]: the s-expression language · [`influxql`] · [`flux`] · [`explain`] · [`rows_json`]: rows of all languages as JSON ·
//!   [`objects`]: rows as InfluxDB 3 writes them
//! * [`export`], [`federate`], [`remote_read`]: samples as they are · `multipart`: forms of browsers and curl
//! * [`graph`]: pictures of any language's answers · [`rrd`](self::rrd): RRDtool's files
//! * [`admin`]: backups, policies, deletes · [`backup_targets`]: where backups may go · [`health`]: whether the server is well and ready
//! * [`epochs`]: regular databases · [`similar`](mod@similar): what is like a stretch of a series
//! * [`tasks`]: InfluxDB 2's tasks
//! * [`tail`]: live streams · [`triggers`]: states of triggers and subscriptions · [`deliveries`]: their accounts and statements
//! * [`scraping`]: a `prometheus.yml` that the server runs, its targets · [`page`]: the web page

pub(crate) mod admin;
pub(crate) mod backup_targets;
pub(crate) mod body;
pub(crate) mod compression;
mod deliveries;
pub(crate) mod epochs;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod federate;
pub(crate) mod flux;
pub(crate) mod graph;
pub(crate) mod guard;
pub(crate) mod health;
pub(crate) mod influx;
pub(crate) mod influx_v2;
pub(crate) mod influxql;
pub(crate) mod json;
pub(crate) mod limits;
mod multipart;
pub(crate) mod names;
pub(crate) mod objects;
pub mod page;
pub(crate) mod parameters;
pub(crate) mod plan;
pub(crate) mod query;
pub(crate) mod query_statistics;
pub(crate) mod remote_read;
pub(crate) mod request;
pub(crate) mod route_prefix;
pub(crate) mod routes;
pub(crate) mod rows_json;
pub(crate) mod rrd;
pub(crate) mod running_queries;
pub(crate) mod scraping;
pub(crate) mod search;
pub(crate) mod similar;
pub(crate) mod status;
pub(crate) mod streamed;
pub(crate) mod tail;
pub(crate) mod tasks;
pub(crate) mod text;
pub(crate) mod triggers;
pub(crate) mod views;
pub(crate) mod write;

//! Settings of `thalweg serve`: one definition for flags, environment and file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use db::{DbOptions, ObjectTierOptions};
use serde::{Deserialize, Serialize};
use server::ServerSettings;

use crate::memory;

/// Settings; flags win over the environment, the environment over the file, the file over the defaults.
#[derive(Debug, Default, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServeFlags {
    /// File of settings (TOML): the names are those of the flags, with _ for -
    #[arg(long, env = "THALWEG_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,

    /// Data folder; made if it does not exist [default: ./thalweg-data]
    #[arg(long, env = "THALWEG_DATA", value_name = "FOLDER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<PathBuf>,

    /// Where HTTP and the page are served, port 0 takes a free one [default: 127.0.0.1:7780]
    #[arg(long, env = "THALWEG_HTTP", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<String>,

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
    #[arg(long, env = "THALWEG_MEMORY_BYTES_MAX", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes_max: Option<u64>,

    /// Where old data settles: a folder, `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix` [default: the
    /// data folder]. Credentials come from the clouds' usual environment variables
    #[arg(long, env = "THALWEG_OBJECTS", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<String>,

    /// Where an S3-compatible server listens, such as `http://127.0.0.1:9000` [default: the cloud's own]
    #[arg(long, env = "THALWEG_OBJECTS_ENDPOINT", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    objects_endpoint: Option<String>,

    /// Bytes of settled data whose local copies are kept beside an object store [default: 17179869184]
    #[arg(long, env = "THALWEG_OBJECTS_LOCAL_BYTES_MAX", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    objects_local_bytes_max: Option<u64>,

    /// Bytes of recent data that the length of partitions is fitted to [default: 17179869184]
    #[arg(long, env = "THALWEG_FAST_BYTES_MAX", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    fast_bytes_max: Option<u64>,

    /// Bytes of newest data in memory at which it is written to parts [default: 268435456]
    #[arg(long, env = "THALWEG_HEAD_BYTES_MAX", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    head_bytes_max: Option<usize>,

    /// Bytes of log at which data is written to parts so that the log can be given up [default: 268435456]
    #[arg(long, env = "THALWEG_LOG_BYTES_MAX", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log_bytes_max: Option<u64>,

    /// Bytes that the body of a request may have as it is sent [default: 67108864]
    #[arg(long, env = "THALWEG_BODY_BYTES_MAX", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    body_bytes_max: Option<usize>,

    /// Bytes that the body of a request may have unpacked [default: 268435456]
    #[arg(long, env = "THALWEG_UNPACKED_BYTES_MAX", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    unpacked_bytes_max: Option<usize>,

    /// How long a query may take, in milliseconds [default: 120000]
    #[arg(long, env = "THALWEG_QUERY_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    query_timeout_ms: Option<u64>,

    /// Samples that a query may hold at once [default: 50000000]
    #[arg(long, env = "THALWEG_QUERY_SAMPLES_MAX", value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    query_samples_max: Option<u64>,

    /// How old a series' newest sample may be to count as its value now, in milliseconds [default: 300000]
    #[arg(long, env = "THALWEG_LOOKBACK_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    lookback_ms: Option<i64>,
}

/// Settings, ready to be used.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) db: DbOptions,
    pub(crate) server: ServerSettings,
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
        merged.to_settings()
    }

    /// These settings over those of a file's text.
    fn over(&self, text: &str) -> Result<Self, String> {
        let file: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut table = toml::Table::try_from(&file).map_err(|error| error.to_string())?;
        table.extend(toml::Table::try_from(self).map_err(|error| error.to_string())?);
        table.try_into().map_err(|error: toml::de::Error| error.to_string())
    }

    fn to_settings(&self) -> Result<Settings, String> {
        let http = self.http.as_deref().unwrap_or("127.0.0.1:7780");
        if http == "off" {
            return Err("without HTTP there would be nothing to ask with: --http takes an address".to_owned());
        }
        let address = address("--http", http)?;
        let mut server = ServerSettings::new(address);
        server.control = optional_address("--control", self.control.as_deref(), "127.0.0.1:7782")?;
        server.ingest = optional_address("--ingest", self.ingest.as_deref(), "127.0.0.1:7783")?;
        set(&mut server.ingest_discard, self.ingest_discard);
        let mut db = DbOptions::new(self.data.as_deref().unwrap_or(Path::new("./thalweg-data")));
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        db.store.shards = self.shards.unwrap_or(cores.min(16));
        db.store.memory_bytes_max = self.memory_bytes_max.unwrap_or_else(memory::half_of_the_machine);
        // Heads by default: an eighth of the memory, at most what the store's own default is.
        let eighth = usize::try_from(db.store.memory_bytes_max / 8).unwrap_or(usize::MAX);
        db.store.head_bytes_max = self.head_bytes_max.unwrap_or(db.store.head_bytes_max.min(eighth));
        set(&mut db.store.fast_bytes_max, self.fast_bytes_max);
        db.store.objects = self.objects.as_deref().map(|url| self.object_tier(url));
        set(&mut db.store.log_bytes_max, self.log_bytes_max);
        set(&mut db.lookback_ms, self.lookback_ms);
        set(&mut server.body_bytes_max, self.body_bytes_max);
        set(&mut server.unpacked_bytes_max, self.unpacked_bytes_max);
        set(&mut server.query_timeout_ms, self.query_timeout_ms);
        set(&mut server.query_samples_max, self.query_samples_max);
        set(&mut server.host_metrics_interval_ms, self.host_metrics_interval_ms.map(Some));
        if self.no_host_metrics == Some(true) {
            server.host_metrics_interval_ms = None;
        }
        Ok(Settings { db, server })
    }
}

impl ServeFlags {
    fn object_tier(&self, url: &str) -> ObjectTierOptions {
        let mut tier = ObjectTierOptions::new(url);
        if let Some(endpoint) = &self.objects_endpoint {
            tier.objects.allow_http = endpoint.starts_with("http://");
            tier.objects.endpoint = Some(endpoint.clone());
        }
        set(&mut tier.local_bytes_max, self.objects_local_bytes_max);
        tier
    }
}

fn address(flag: &str, text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{flag} {text:?} is not an address such as 127.0.0.1:7780"))
}

fn optional_address(flag: &str, given: Option<&str>, default: &str) -> Result<Option<SocketAddr>, String> {
    match given.unwrap_or(default) {
        "off" => Ok(None),
        text => address(flag, text).map(Some),
    }
}

fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *setting = given;
    }
}

#[cfg(test)]
mod tests {
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
    fn an_unknown_key_is_an_error_that_names_it_and_the_known_ones() {
        let error = ServeFlags::default().over("htpp = \"x\"").unwrap_err();
        assert!(error.contains("unknown field `htpp`") && error.contains("`http`"), "{error}");
    }

    #[test]
    fn a_bad_address_is_an_error() {
        let flags = ServeFlags { http: Some("here".to_owned()), ..ServeFlags::default() };
        assert!(flags.to_settings().unwrap_err().contains("\"here\""));
    }
}

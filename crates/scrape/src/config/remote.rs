//! `remote_write`, where samples are forwarded, and the sections that have little or no meaning here.

use super::http::HttpConfig;
use super::reader::Fields;
use super::relabelling::read_rules;
use relabel::{NameScheme, Rule};

/// A place where samples are forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteWriteConfig {
    /// The address.
    pub url: String,
    /// Its name in metrics; empty: the address.
    pub name: String,
    /// How long a request may take.
    pub timeout_ms: u64,
    /// Headers beyond those of every request.
    pub headers: Vec<(String, String)>,
    /// How requests are made.
    pub http: HttpConfig,
    /// Steps for samples.
    pub relabel: Vec<Rule>,
    /// The protocol's version: 1 or 2.
    pub version: u8,
    /// Whether exemplars are sent.
    pub send_exemplars: bool,
    /// Whether native histograms are sent.
    pub send_native_histograms: bool,
    /// Digits after the point that values are rounded to; `None`: they are not.
    pub round_digits: Option<u64>,
    /// The queue.
    pub queue: QueueConfig,
    /// How often metadata are sent; `None`: they are not.
    pub metadata_interval_ms: Option<u64>,
    /// Families of one request of metadata.
    pub metadata_per_send: u64,
}

/// The queue of a remote write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    /// Samples that wait for each sender.
    pub capacity: u64,
    /// The least and the most senders.
    pub shards_min: u64,
    /// As `shards_min`.
    pub shards_max: u64,
    /// Samples of a request.
    pub samples_per_send_max: u64,
    /// How long samples wait for a request to fill up.
    pub batch_deadline_ms: u64,
    /// The first pause before a request is sent again.
    pub backoff_min_ms: u64,
    /// The longest.
    pub backoff_max_ms: u64,
    /// Whether requests are sent again after status 429.
    pub retry_on_http_429: bool,
    /// Older samples are dropped; 0: none are.
    pub sample_age_limit_ms: u64,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            capacity: 10_000,
            shards_min: 1,
            shards_max: 50,
            samples_per_send_max: 2_000,
            batch_deadline_ms: 5_000,
            backoff_min_ms: 30,
            backoff_max_ms: 5_000,
            retry_on_http_429: false,
            sample_age_limit_ms: 0,
        }
    }
}

pub(super) fn read_remote_write(fields: &Fields<'_>, names: NameScheme) -> RemoteWriteConfig {
    fields.flag("round_robin_dns");
    fields.without_effect("round_robin_dns", "each connection asks for the address anew");
    let version = fields.parsed("protobuf_message", |text| match text {
        "" | "prometheus.WriteRequest" => Ok(1),
        "io.prometheus.write.v2.Request" => Ok(2),
        _ => Err(format!("protobuf_message: unknown message {text:?}")),
    });
    let metadata = fields.map("metadata_config", |section| {
        let interval_ms = section.duration_ms("send_interval").unwrap_or(60_000);
        let per_send = section.number("max_samples_per_send").unwrap_or(2_000);
        (section.flag_or("send", true).then_some(interval_ms), per_send)
    });
    let (metadata_interval_ms, metadata_per_send) = metadata.unwrap_or((Some(60_000), 2_000));
    RemoteWriteConfig {
        url: fields.required("url"),
        name: fields.text_or("name", ""),
        timeout_ms: fields.duration_ms("remote_timeout").unwrap_or(30_000),
        headers: fields.pairs("headers", |node| {
            node.is_secret.set(true);
            fields.reading.text(node)
        }),
        http: HttpConfig::read_with_clouds(fields),
        relabel: read_rules(fields, "write_relabel_configs", names),
        version: version.unwrap_or(1),
        send_exemplars: fields.flag_or("send_exemplars", false),
        send_native_histograms: fields.flag_or("send_native_histograms", false),
        round_digits: fields.number("round_digits"),
        queue: fields.map("queue_config", read_queue).unwrap_or_default(),
        metadata_interval_ms,
        metadata_per_send,
    }
}

fn read_queue(fields: &Fields<'_>) -> QueueConfig {
    let base = QueueConfig::default();
    let positive = |name, default| fields.number(name).filter(|number| *number > 0).unwrap_or(default);
    QueueConfig {
        capacity: positive("capacity", base.capacity),
        shards_min: positive("min_shards", base.shards_min),
        shards_max: positive("max_shards", base.shards_max),
        samples_per_send_max: positive("max_samples_per_send", base.samples_per_send_max),
        batch_deadline_ms: fields.duration_ms("batch_send_deadline").unwrap_or(base.batch_deadline_ms),
        backoff_min_ms: fields.duration_ms("min_backoff").unwrap_or(base.backoff_min_ms),
        backoff_max_ms: fields.duration_ms("max_backoff").unwrap_or(base.backoff_max_ms),
        retry_on_http_429: fields.flag_or("retry_on_http_429", base.retry_on_http_429),
        sample_age_limit_ms: fields.duration_ms("sample_age_limit").unwrap_or(base.sample_age_limit_ms),
    }
}

/// Reads a section of others' data: it is checked, and warned of.
pub(super) fn read_remote_read(fields: &Fields<'_>) {
    fields.required("url");
    for name in ["name", "remote_timeout", "read_recent", "filter_external_labels", "headers", "required_matchers"] {
        fields.node(name);
    }
    HttpConfig::read_with_clouds(fields);
}

/// `otlp`: how OpenTelemetry's metrics are named and labelled.
#[allow(clippy::struct_excessive_bools, reason = "each is a field of its own in the file")]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OtlpConfig {
    /// `UnderscoreEscapingWithSuffixes`, `NoUTF8EscapingWithSuffixes`, …; empty: the default.
    pub translation_strategy: String,
    /// Attributes of resources that become labels.
    pub promote_resource_attributes: Vec<String>,
    /// All of them become labels, but for those below.
    pub promote_all_resource_attributes: bool,
    /// Attributes that do not.
    pub ignore_resource_attributes: Vec<String>,
    /// Whether `service.name` and others stay on `target_info`.
    pub keep_identifying_resource_attributes: bool,
    /// Whether scopes' names become labels.
    pub promote_scope_metadata: bool,
    /// Whether histograms become native ones with custom buckets.
    pub convert_histograms_to_nhcb: bool,
    /// Whether names of labels that begin with an underscore stay so.
    pub label_name_underscore_sanitization: Option<bool>,
    /// Whether underscores side by side stay so.
    pub label_name_preserve_multiple_underscores: Option<bool>,
}

pub(super) fn read_otlp(fields: &Fields<'_>) -> OtlpConfig {
    let config = OtlpConfig {
        translation_strategy: fields.text_or("translation_strategy", ""),
        promote_resource_attributes: fields.texts("promote_resource_attributes"),
        promote_all_resource_attributes: fields.flag_or("promote_all_resource_attributes", false),
        ignore_resource_attributes: fields.texts("ignore_resource_attributes"),
        keep_identifying_resource_attributes: fields.flag_or("keep_identifying_resource_attributes", false),
        promote_scope_metadata: fields.flag_or("promote_scope_metadata", false),
        convert_histograms_to_nhcb: fields.flag_or("convert_histograms_to_nhcb", false),
        label_name_underscore_sanitization: fields.flag("label_name_underscore_sanitization"),
        label_name_preserve_multiple_underscores: fields.flag("label_name_preserve_multiple_underscores"),
    };
    if !config.ignore_resource_attributes.is_empty() && !config.promote_all_resource_attributes {
        let message = "ignore_resource_attributes needs promote_all_resource_attributes";
        fields.reading.error(fields.position_of("ignore_resource_attributes"), message);
    }
    config
}

/// `storage` of Prometheus's own files.
pub(super) fn read_storage(fields: &Fields<'_>) {
    fields.map("tsdb", |tsdb| {
        tsdb.duration_ms("out_of_order_time_window");
        tsdb.without_effect("out_of_order_time_window", "late samples are taken at any time");
        tsdb.map("retention", |retention| {
            retention.duration_ms("time");
            retention.size_bytes("size");
            let why = "thalweg db create --retention says how long a database keeps its data";
            for name in ["time", "size", "percentage"] {
                retention.without_effect(name, why);
            }
        });
        tsdb.without_effect("stale_series_compaction_threshold", "series without data leave memory by themselves");
        tsdb.map("chunk_encoding", |encoding| {
            encoding.without_effect("floats", "encodings are chosen by the data");
        });
    });
    fields.map("exemplars", |exemplars| {
        exemplars.number("max_exemplars");
        exemplars.without_effect("max_exemplars", "exemplars have a bound of their own here");
    });
}

/// `tracing` of the server.
pub(super) fn read_tracing(fields: &Fields<'_>) {
    for name in ["client_type", "endpoint", "sampling_fraction", "insecure", "compression", "timeout"] {
        fields.node(name);
    }
    for (_, node) in fields.pairs("headers", Some) {
        node.is_secret.set(true);
    }
    fields.map("tls_config", super::http::read_tls);
}

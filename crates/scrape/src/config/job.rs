//! A job of `scrape_configs`.

use super::discovery::{self, Discovery};
use super::global::{GlobalConfig, ScrapeDefaults, ScrapeProtocol};
use super::http::HttpConfig;
use super::reader::Fields;
use super::relabelling::read_rules;
use super::units::duration_text;
use relabel::Rule;

/// A job: which targets, and how they are scraped.
#[allow(clippy::struct_excessive_bools, reason = "each is a field of its own in the file")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrapeConfig {
    /// The job's name.
    pub job_name: String,
    /// How often its targets are scraped.
    pub interval_ms: u64,
    /// How long a scrape may take.
    pub timeout_ms: u64,
    /// The path of metrics.
    pub metrics_path: String,
    /// `http` or `https`.
    pub scheme: String,
    /// Parameters of requests.
    pub params: Vec<(String, Vec<String>)>,
    /// Whether labels of samples win over those of the target.
    pub honor_labels: bool,
    /// Whether times of samples are taken.
    pub honor_timestamps: bool,
    /// Whether series whose samples have times end with markers.
    pub track_timestamps_staleness: bool,
    /// Whether packed responses are asked for.
    pub enable_compression: bool,
    /// The format of responses that name none that is known.
    pub fallback_protocol: Option<ScrapeProtocol>,
    /// Formats, limits, histograms.
    pub settings: ScrapeDefaults,
    /// How requests are made.
    pub http: HttpConfig,
    /// Where targets are found.
    pub discoveries: Vec<Discovery>,
    /// Why the job does not run, if it cannot: a discovery or a way to sign in that is not built in.
    pub disabled: Option<String>,
    /// Steps for targets.
    pub relabel: Vec<Rule>,
    /// Steps for samples.
    pub metric_relabel: Vec<Rule>,
    /// Settings of VictoriaMetrics's agent.
    pub agent: AgentConfig,
}

/// Settings of jobs that VictoriaMetrics's agent has beyond Prometheus's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentConfig {
    /// Scrapes begin at multiples of this.
    pub align_interval_ms: u64,
    /// Scrapes begin so long after the beginning of an interval.
    pub offset_ms: Option<u64>,
    /// Series of a target, over its time; 0: any number.
    pub series_max: u64,
    /// No markers are written.
    pub no_stale_markers: bool,
}

impl ScrapeConfig {
    pub(super) fn read(fields: &Fields<'_>, global: &GlobalConfig) -> Self {
        let settings = ScrapeDefaults::read(fields, &global.defaults);
        let names = settings.names;
        let (discoveries, not_found) = discovery::read(fields, names);
        let http = HttpConfig::read(fields);
        let disabled = not_found.or_else(|| http.not_built_in().map(str::to_owned));
        let mut config = Self {
            job_name: fields.required("job_name"),
            interval_ms: global.scrape_interval_ms,
            timeout_ms: global.scrape_timeout_ms,
            metrics_path: fields.text("metrics_path").filter(|path| !path.is_empty()).unwrap_or("/metrics".to_owned()),
            scheme: read_scheme(fields),
            params: fields.pairs("params", |node| {
                let items = fields.reading.items(node);
                Some(items.iter().filter_map(|item| fields.reading.text(item)).collect())
            }),
            honor_labels: fields.flag_or("honor_labels", false),
            honor_timestamps: fields.flag_or("honor_timestamps", true),
            track_timestamps_staleness: fields.flag_or("track_timestamps_staleness", false),
            enable_compression: fields.flag_or("enable_compression", true),
            fallback_protocol: fields.parsed("fallback_scrape_protocol", ScrapeProtocol::parse),
            http,
            discoveries,
            disabled,
            relabel: read_rules(fields, "relabel_configs", names),
            metric_relabel: read_rules(fields, "metric_relabel_configs", names),
            agent: AgentConfig::default(),
            settings,
        };
        config.read_times(fields);
        config.read_agent(fields);
        fields.without_effect("scrape_failure_log_file", "the last error of a target is on /api/v1/targets");
        fields.without_effect(
            "native_histogram_min_bucket_factor",
            "histograms keep the resolution that they are sent with",
        );
        config
    }

    fn read_times(&mut self, fields: &Fields<'_>) {
        let interval_ms = fields.duration_ms("scrape_interval").filter(|ms| *ms > 0);
        self.interval_ms = interval_ms.unwrap_or(self.interval_ms);
        match fields.duration_ms("scrape_timeout").filter(|ms| *ms > 0) {
            Some(timeout_ms) if timeout_ms > self.interval_ms => {
                let interval = duration_text(self.interval_ms);
                let message = format!("scrape_timeout is longer than scrape_interval ({interval})");
                fields.reading.error(fields.position_of("scrape_timeout"), message);
            }
            Some(timeout_ms) => self.timeout_ms = timeout_ms,
            None => self.timeout_ms = self.timeout_ms.min(self.interval_ms),
        }
    }

    fn read_agent(&mut self, fields: &Fields<'_>) {
        self.agent = AgentConfig {
            align_interval_ms: fields.duration_ms("scrape_align_interval").unwrap_or(0),
            offset_ms: fields.duration_ms("scrape_offset"),
            series_max: fields.number("series_limit").unwrap_or(0),
            no_stale_markers: fields.flag_or("no_stale_markers", false),
        };
        self.http.keep_alive = !fields.flag_or("disable_keepalive", false);
        if fields.flag("disable_compression") == Some(true) {
            self.enable_compression = false;
        }
        fields.without_effect("stream_parse", "responses are read as a whole, within body_size_limit");
        fields.without_effect("proxy_headers", "requests to proxies have no further headers here");
        fields.without_effect("proxy_basic_auth", "put the name and the password into proxy_url");
    }
}

/// `http` or `https`.
pub(super) fn read_scheme(fields: &Fields<'_>) -> String {
    let scheme = fields.parsed("scheme", |text| match text.to_ascii_lowercase().as_str() {
        "http" | "" => Ok("http"),
        "https" => Ok("https"),
        _ => Err(format!("scheme: expected http or https, found {text:?}")),
    });
    scheme.unwrap_or("http").to_owned()
}

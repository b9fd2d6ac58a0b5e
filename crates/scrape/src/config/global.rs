//! `global`: defaults of all jobs.

use super::reader::Fields;
use super::units::duration_text;
use relabel::{Labels, NameScheme, is_label_name};

/// Defaults of jobs and rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalConfig {
    /// How often targets are scraped.
    pub scrape_interval_ms: u64,
    /// How long a scrape may take.
    pub scrape_timeout_ms: u64,
    /// How often rules are evaluated.
    pub evaluation_interval_ms: u64,
    /// How far into the past rules are evaluated.
    pub rule_query_offset_ms: u64,
    /// Labels of series and alerts as other systems see them; variables of the environment are filled in.
    pub external_labels: Labels,
    /// What a job has of these unless it says otherwise.
    pub defaults: ScrapeDefaults,
}

impl Default for GlobalConfig {
    fn default() -> Self {
        Self {
            scrape_interval_ms: 60_000,
            scrape_timeout_ms: 10_000,
            evaluation_interval_ms: 60_000,
            rule_query_offset_ms: 0,
            external_labels: Labels::new(),
            defaults: ScrapeDefaults::default(),
        }
    }
}

/// Settings that stand in `global` and in jobs alike.
#[allow(clippy::struct_excessive_bools, reason = "each is a field of its own in the file")]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScrapeDefaults {
    /// Formats in order of preference; empty: Prometheus's.
    pub protocols: Vec<ScrapeProtocol>,
    /// Bounds on scrapes and targets; 0: none.
    pub limits: ScrapeLimits,
    /// Which names metrics and labels may have.
    pub names: NameScheme,
    /// How names that are not plain are asked for.
    pub escaping: NameEscaping,
    /// Whether native histograms are scraped.
    pub native_histograms: bool,
    /// Whether classic histograms are kept beside native ones.
    pub always_classic_histograms: bool,
    /// Whether classic histograms become native ones with custom buckets.
    pub custom_bucket_histograms: bool,
    /// Whether a scrape has three report series more.
    pub extra_metrics: bool,
}

/// Bounds on scrapes and targets; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScrapeLimits {
    /// Bytes of a response, unpacked.
    pub body_bytes_max: u64,
    /// Samples of a scrape, after relabelling.
    pub samples_max: u64,
    /// Labels of a series.
    pub labels_max: u64,
    /// Bytes of a label's name.
    pub label_name_bytes_max: u64,
    /// Bytes of a label's value.
    pub label_value_bytes_max: u64,
    /// Targets of a job.
    pub targets_max: u64,
    /// Dropped targets that are shown.
    pub dropped_targets_max: u64,
    /// Buckets of a native histogram.
    pub buckets_max: u64,
}

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrapeProtocol {
    /// Protobuf.
    Protobuf,
    /// OpenMetrics 0.0.1.
    OpenMetricsText0,
    /// OpenMetrics 1.0.0.
    OpenMetricsText1,
    /// Prometheus's text, 0.0.4.
    Text0,
    /// Prometheus's text, 1.0.0.
    Text1,
}

const PROTOCOLS: [(&str, ScrapeProtocol); 5] = [
    ("PrometheusProto", ScrapeProtocol::Protobuf),
    ("OpenMetricsText0.0.1", ScrapeProtocol::OpenMetricsText0),
    ("OpenMetricsText1.0.0", ScrapeProtocol::OpenMetricsText1),
    ("PrometheusText0.0.4", ScrapeProtocol::Text0),
    ("PrometheusText1.0.0", ScrapeProtocol::Text1),
];

impl ScrapeProtocol {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let found = PROTOCOLS.iter().find(|(name, _)| *name == text).map(|(_, protocol)| *protocol);
        let names = PROTOCOLS.map(|(name, _)| name).join(", ");
        found.ok_or_else(|| format!("unknown scrape protocol {text:?}: expected one of {names}"))
    }
}

/// How names that are not plain are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameEscaping {
    /// As they are.
    #[default]
    AllowUtf8,
    /// With `_` for every other character.
    Underscores,
    /// With `_dot_` for a dot.
    Dots,
    /// With `U__` and hexadecimals.
    Values,
}

impl NameEscaping {
    /// Its name in an `Accept` header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllowUtf8 => "allow-utf-8",
            Self::Underscores => "underscores",
            Self::Dots => "dots",
            Self::Values => "values",
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let all = [Self::AllowUtf8, Self::Underscores, Self::Dots, Self::Values];
        let found = all.into_iter().find(|escaping| escaping.name() == text);
        found.ok_or_else(|| format!("unknown metric_name_escaping_scheme {text:?}"))
    }
}

impl ScrapeDefaults {
    /// Takes its fields out of those of a section; those that are missing are as in `base`.
    pub(super) fn read(fields: &Fields<'_>, base: &Self) -> Self {
        let has_protocols = fields.has("scrape_protocols");
        let protocols = if has_protocols { read_protocols(fields) } else { base.protocols.clone() };
        let names = fields.parsed("metric_name_validation_scheme", |text| match text {
            "utf8" | "" => Ok(NameScheme::Utf8),
            "legacy" => Ok(NameScheme::Legacy),
            _ => Err(format!("metric_name_validation_scheme: expected utf8 or legacy, found {text:?}")),
        });
        let names = names.unwrap_or(base.names);
        let escaping = fields.parsed("metric_name_escaping_scheme", NameEscaping::parse);
        let plain = if names == NameScheme::Legacy { NameEscaping::Underscores } else { base.escaping };
        if names == NameScheme::Legacy && escaping == Some(NameEscaping::AllowUtf8) {
            let message = "metric_name_escaping_scheme: allow-utf-8 needs metric_name_validation_scheme: utf8";
            fields.reading.error(fields.position_of("metric_name_escaping_scheme"), message);
        }
        Self {
            protocols,
            limits: ScrapeLimits::read(fields, base.limits),
            names,
            escaping: escaping.unwrap_or(plain),
            native_histograms: fields.flag_or("scrape_native_histograms", base.native_histograms),
            always_classic_histograms: fields
                .flag_or("always_scrape_classic_histograms", base.always_classic_histograms),
            custom_bucket_histograms: fields
                .flag_or("convert_classic_histograms_to_nhcb", base.custom_bucket_histograms),
            extra_metrics: fields.flag_or("extra_scrape_metrics", base.extra_metrics),
        }
    }
}

fn read_protocols(fields: &Fields<'_>) -> Vec<ScrapeProtocol> {
    let position = fields.position_of("scrape_protocols");
    let protocols = fields.list("scrape_protocols", |node| fields.reading.parse(node, ScrapeProtocol::parse));
    if protocols.is_empty() {
        fields.reading.error(position, "scrape_protocols: at least one is needed");
    }
    for (index, protocol) in protocols.iter().enumerate() {
        if protocols.iter().take(index).any(|other| other == protocol) {
            fields.reading.error(position, "scrape_protocols: one is there twice");
        }
    }
    protocols
}

impl ScrapeLimits {
    fn read(fields: &Fields<'_>, base: Self) -> Self {
        let number = |name, base| fields.number(name).filter(|limit| *limit > 0).unwrap_or(base);
        let bytes = |name, base| fields.size_bytes(name).filter(|limit| *limit > 0).unwrap_or(base);
        // VictoriaMetrics's agent has a name of its own for the first.
        let body_bytes_max = bytes("max_scrape_size", base.body_bytes_max);
        Self {
            body_bytes_max: bytes("body_size_limit", body_bytes_max),
            samples_max: number("sample_limit", base.samples_max),
            labels_max: number("label_limit", base.labels_max),
            label_name_bytes_max: number("label_name_length_limit", base.label_name_bytes_max),
            label_value_bytes_max: number("label_value_length_limit", base.label_value_bytes_max),
            targets_max: number("target_limit", base.targets_max),
            dropped_targets_max: number("keep_dropped_targets", base.dropped_targets_max),
            buckets_max: number("native_histogram_bucket_limit", base.buckets_max),
        }
    }
}

impl GlobalConfig {
    pub(super) fn read(fields: &Fields<'_>, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let defaults = ScrapeDefaults::read(fields, &ScrapeDefaults::default());
        let interval_ms = fields.duration_ms("scrape_interval").filter(|ms| *ms > 0).unwrap_or(60_000);
        let timeout_ms = fields.duration_ms("scrape_timeout").filter(|ms| *ms > 0);
        if timeout_ms.is_some_and(|timeout_ms| timeout_ms > interval_ms) {
            let message = format!("scrape_timeout is longer than scrape_interval ({})", duration_text(interval_ms));
            fields.reading.error(fields.position_of("scrape_timeout"), message);
        }
        let mut external_labels = Labels::new();
        for (name, value) in fields.text_pairs("external_labels") {
            if !is_label_name(&name, defaults.names) {
                let position = fields.position_of("external_labels");
                fields.reading.error(position, format!("{name:?} is no name of a label"));
            }
            external_labels.insert(name, expand(&value, variable));
        }
        fields.without_effect("query_log_file", "slow queries are told on stderr (--query-slow)");
        fields.without_effect("scrape_failure_log_file", "the last error of a target is on /api/v1/targets");
        Self {
            scrape_interval_ms: interval_ms,
            scrape_timeout_ms: timeout_ms.unwrap_or_else(|| interval_ms.min(10_000)),
            evaluation_interval_ms: fields.duration_ms("evaluation_interval").filter(|ms| *ms > 0).unwrap_or(60_000),
            rule_query_offset_ms: fields.duration_ms("rule_query_offset").unwrap_or(0),
            external_labels,
            defaults,
        }
    }
}

/// Fills variables of the environment in: `$NAME` and `${NAME}`; `$$` is a dollar sign. Those that are not there are empty.
fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(behind) = behind.strip_prefix('$') {
            out.push('$');
            rest = behind;
            continue;
        }
        let is_word = |symbol: char| symbol.is_ascii_alphanumeric() || symbol == '_';
        let (name, after) = match behind.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some(found) => found,
            None => behind.split_at(behind.find(|symbol| !is_word(symbol)).unwrap_or(behind.len())),
        };
        if name.is_empty() {
            out.push('$');
        } else {
            out.push_str(&variable(name).unwrap_or_default());
        }
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in() {
        let variable = |name: &str| (name == "ZONE").then(|| "north".to_owned());
        for (text, expected) in
            [("a$ZONE-b", "anorth-b"), ("${ZONE}x", "northx"), ("$$ZONE", "$ZONE"), ("$MISSING", ""), ("5$", "5$")]
        {
            assert_eq!(expand(text, &variable), expected);
        }
    }
}

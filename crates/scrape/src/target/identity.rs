//! From what was discovered to a target: defaults, relabelling, checks, the address.

use crate::config::{ScrapeConfig, units};
use relabel::{Labels, is_label_name, relabel};

/// A target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The labels before relabelling.
    pub discovered: Labels,
    /// The labels of its series.
    pub labels: Labels,
    /// The labels that settings are taken from, with those of its series: they tell targets apart.
    pub private: Labels,
    /// The address of its metrics.
    pub url: String,
    /// The socket of a service on this machine.
    pub unix_socket: Option<String>,
    /// How often it is scraped.
    pub interval_ms: u64,
    /// How long that may take.
    pub timeout_ms: u64,
    /// Whether native histograms are scraped, classic ones kept beside them, or turned into native ones.
    pub histograms: HistogramSettings,
}

/// Settings of histograms, which labels can change for a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramSettings {
    /// Native ones are scraped.
    pub native: bool,
    /// Classic ones are kept beside them.
    pub always_classic: bool,
    /// Classic ones become native ones with custom buckets.
    pub to_custom_buckets: bool,
}

/// Why something that was discovered is no target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// A step of relabelling dropped it.
    Dropped,
    /// It is wrong.
    Invalid(String),
}

const HISTOGRAM_LABELS: [&str; 3] =
    ["__scrape_native_histograms__", "__always_scrape_classic_histograms__", "__convert_classic_histograms_to_nhcb__"];

/// Makes a target of labels that were discovered.
pub fn from_discovered(discovered: &Labels, job: &ScrapeConfig) -> Result<Target, Unusable> {
    let before = with_defaults(discovered, job);
    let mut labels = before.clone();
    if !relabel(&mut labels, &job.relabel) {
        return Err(Unusable::Dropped);
    }
    let invalid = |message: String| Unusable::Invalid(message);
    let text = |name: &str| labels.get(name).cloned().unwrap_or_default();
    let mut address = text("__address__");
    if address.is_empty() {
        return Err(invalid("no address".to_owned()));
    }
    let (mut scheme, mut path) = (text("__scheme__"), text("__metrics_path__"));
    // VictoriaMetrics's agent takes whole addresses.
    if let Some((found_scheme, rest)) = address.clone().split_once("://") {
        found_scheme.clone_into(&mut scheme);
        let end = rest.find('/').unwrap_or(rest.len());
        if let Some(found_path) = rest.get(end..).filter(|path| path.len() > 1) {
            found_path.clone_into(&mut path);
        }
        rest.get(..end).unwrap_or_default().clone_into(&mut address);
    }
    if address.contains('/') {
        return Err(invalid(format!("{address:?} is no address: host and port, without a path")));
    }
    let interval_ms = duration(&labels, "__scrape_interval__").map_err(invalid)?;
    let timeout_ms = duration(&labels, "__scrape_timeout__").map_err(invalid)?;
    if timeout_ms > interval_ms {
        return Err(invalid("the scrape timeout is longer than the scrape interval".to_owned()));
    }
    let histograms = histogram_settings(&labels, job).map_err(invalid)?;
    labels.retain(|name, _| !name.starts_with("__meta_") && !name.starts_with("__tmp"));
    labels.entry("instance".to_owned()).or_insert_with(|| address.clone());
    if let Some((name, _)) = labels.iter().find(|(name, _)| !is_label_name(name, job.settings.names)) {
        return Err(invalid(format!("{name:?} is no name of a label")));
    }
    let separator = if path.starts_with('/') || path.starts_with('?') { "" } else { "/" };
    let url = with_parameters(&format!("{scheme}://{address}{separator}{path}"), &labels, job);
    let shown = labels.iter().filter(|(name, _)| !name.starts_with("__"));
    Ok(Target {
        discovered: before,
        labels: shown.map(|(name, value)| (name.clone(), value.clone())).collect(),
        unix_socket: labels.get("__unix_socket__").cloned(),
        private: labels,
        url,
        interval_ms,
        timeout_ms,
        histograms,
    })
}

/// The discovered labels, completed by those of the job.
fn with_defaults(discovered: &Labels, job: &ScrapeConfig) -> Labels {
    let mut labels = discovered.clone();
    labels.retain(|_, value| !value.is_empty());
    let parameters =
        job.params.iter().filter_map(|(name, values)| Some((format!("__param_{name}"), values.first()?.clone())));
    let defaults = [
        ("job", job.job_name.clone()),
        ("__scrape_interval__", units::duration_text(job.interval_ms)),
        ("__scrape_timeout__", units::duration_text(job.timeout_ms)),
        ("__metrics_path__", job.metrics_path.clone()),
        ("__scheme__", job.scheme.clone()),
    ];
    let defaults = defaults.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(parameters);
    for (name, value) in defaults.filter(|(_, value)| !value.is_empty()) {
        labels.entry(name).or_insert(value);
    }
    labels
}

fn duration(labels: &Labels, name: &str) -> Result<u64, String> {
    let text = labels.get(name).map(String::as_str).unwrap_or_default();
    match units::duration_ms(text) {
        Ok(0) => Err(format!("{name} must be above 0")),
        found => found.map_err(|reason| format!("{name}: {reason}")),
    }
}

fn histogram_settings(labels: &Labels, job: &ScrapeConfig) -> Result<HistogramSettings, String> {
    let flag = |name: &str, default: bool| match labels.get(name).map(String::as_str) {
        None => Ok(default),
        Some("true" | "t" | "T" | "TRUE" | "True" | "1") => Ok(true),
        Some("false" | "f" | "F" | "FALSE" | "False" | "0") => Ok(false),
        Some(other) => Err(format!("{name}: expected true or false, found {other:?}")),
    };
    let [native, always_classic, to_custom_buckets] = HISTOGRAM_LABELS;
    Ok(HistogramSettings {
        native: flag(native, job.settings.native_histograms)?,
        always_classic: flag(always_classic, job.settings.always_classic_histograms)?,
        to_custom_buckets: flag(to_custom_buckets, job.settings.custom_bucket_histograms)?,
    })
}

/// The address with the job's parameters; a label replaces the first value of its parameter.
fn with_parameters(address: &str, labels: &Labels, job: &ScrapeConfig) -> String {
    let mut parameters: Vec<(&str, Vec<&str>)> =
        job.params.iter().map(|(name, values)| (name.as_str(), values.iter().map(String::as_str).collect())).collect();
    for (name, value) in labels.iter().filter_map(|(label, value)| Some((label.strip_prefix("__param_")?, value))) {
        match parameters.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => match values.first_mut() {
                Some(first) => *first = value,
                None => values.push(value),
            },
            None => parameters.push((name, vec![value])),
        }
    }
    parameters.sort_by_key(|(name, _)| *name);
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, values) in parameters {
        query.extend_pairs(values.into_iter().map(|value| (name, value)));
    }
    let query = query.finish();
    let mark = if address.contains('?') { '&' } else { '?' };
    if query.is_empty() { address.to_owned() } else { format!("{address}{mark}{query}") }
}

impl Target {
    /// What tells it from others of its job.
    pub fn identity(&self) -> String {
        let mut identity = self.url.clone();
        for (name, value) in &self.private {
            identity.extend(["\u{0}", name, "\u{0}", value]);
        }
        identity
    }

    /// A number that stays the same as long as the target does: spreads scrapes over the interval.
    pub fn hash(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(self.identity().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    fn job(text: &str) -> ScrapeConfig {
        let text = format!("scrape_configs:\n- job_name: j\n{text}");
        let loaded = config::parse(Path::new("p.yml"), &text, &|_| None).unwrap();
        loaded.config.scrape_configs.into_iter().next().unwrap()
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn targets_have_defaults_and_addresses() {
        let job = job("  params: {module: [http, more], x: [y z]}\n  scheme: https\n");
        let target = from_discovered(&labels(&[("__address__", "a:1"), ("zone", "n")]), &job).unwrap();
        assert_eq!(target.url, "https://a:1/metrics?module=http&module=more&x=y+z");
        assert_eq!(target.labels, labels(&[("instance", "a:1"), ("job", "j"), ("zone", "n")]));
        assert_eq!((target.interval_ms, target.timeout_ms), (60_000, 10_000));
        assert_eq!(target.discovered["__scrape_interval__"], "1m");
    }

    #[test]
    fn relabelling_changes_address_parameters_and_times() {
        let job = job(concat!(
            "  params: {target: [none]}\n",
            "  relabel_configs:\n",
            "  - {source_labels: [__address__], target_label: __param_target}\n",
            "  - {source_labels: [__param_target], target_label: instance}\n",
            "  - {target_label: __address__, replacement: 'prober:9115'}\n",
            "  - {target_label: __scrape_interval__, replacement: 5s}\n",
            "  - {target_label: __scrape_timeout__, replacement: 2s}\n",
            "  - {source_labels: [__meta_drop], regex: 'yes', action: drop}\n",
        ));
        let target = from_discovered(&labels(&[("__address__", "a:1"), ("__meta_x", "y")]), &job).unwrap();
        assert_eq!(target.url, "http://prober:9115/metrics?target=a%3A1");
        assert_eq!(target.labels, labels(&[("instance", "a:1"), ("job", "j")]));
        assert_eq!((target.interval_ms, target.timeout_ms), (5_000, 2_000));
        assert!(!target.private.contains_key("__meta_x"));
        let dropped = from_discovered(&labels(&[("__address__", "a:1"), ("__meta_drop", "yes")]), &job);
        assert_eq!(dropped, Err(Unusable::Dropped));
    }

    #[test]
    fn wrong_targets_are_told() {
        let plain = job("");
        for (pairs, reason) in [
            (&[("x", "y")][..], "no address"),
            (&[("__address__", "a/b")], "no address:"),
            (&[("__address__", "a"), ("__scrape_interval__", "0")], "above 0"),
            (&[("__address__", "a"), ("__scrape_timeout__", "2m")], "longer"),
            (&[("__address__", "a"), ("__scrape_native_histograms__", "maybe")], "true or false"),
        ] {
            let Err(Unusable::Invalid(message)) = from_discovered(&labels(pairs), &plain) else { panic!() };
            assert!(message.contains(reason) || message.contains("is no address"), "{message}");
        }
        let target = from_discovered(&labels(&[("__address__", "http://h:8080/x?y=1")]), &plain).unwrap();
        assert_eq!((target.url.as_str(), target.labels["instance"].as_str()), ("http://h:8080/x?y=1", "h:8080"));
    }
}

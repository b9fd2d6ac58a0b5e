//! Advice on metrics in the text format, as Prometheus's promlint gives it: names, units, types, help.

use std::collections::{BTreeMap, BTreeSet};

use model::MetricKind;

use super::{Format, Options, decode_key, parse};
use crate::{KEY_SECRET_BYTES, KeyHasher, Limits, Protocol};

/// What could be better of a metric.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Advice {
    /// The metric's name.
    pub metric: String,
    /// What to do.
    pub text: String,
}

/// Units and the ones that Prometheus uses in their places.
const UNITS: [(&str, &str); 22] = [
    ("amperes", "amperes"),
    ("bytes", "bytes"),
    ("celsius", "celsius"),
    ("grams", "grams"),
    ("joules", "joules"),
    ("kelvin", "kelvin"),
    ("meters", "meters"),
    ("metres", "metres"),
    ("seconds", "seconds"),
    ("volts", "volts"),
    ("minutes", "seconds"),
    ("hours", "seconds"),
    ("days", "seconds"),
    ("weeks", "seconds"),
    ("kelvins", "kelvin"),
    ("fahrenheit", "celsius"),
    ("rankine", "celsius"),
    ("inches", "meters"),
    ("yards", "meters"),
    ("miles", "meters"),
    ("bits", "bytes"),
    ("calories", "joules"),
];

/// Units of mass, which have a base of their own.
const MASSES: [&str; 2] = ["pounds", "ounces"];

const PREFIXES: [&str; 18] = [
    "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega", "mibi", "giga", "gibi",
    "tera", "tebi", "peta", "pebi",
];

const ABBREVIATIONS: [&str; 14] = ["s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"];

const TYPES: [&str; 5] = ["counter", "gauge", "summary", "histogram", "gauge_histogram"];

/// A family with all that advice is given on.
#[derive(Default)]
struct Family {
    kind: MetricKind,
    has_help: bool,
    labels: BTreeSet<String>,
}

/// Advice on all metrics of a text, by metric.
///
/// # Errors
/// If a line cannot be read: what it is, with its number.
pub fn lint(text: &[u8]) -> Result<Vec<Advice>, String> {
    let mut advice = Vec::new();
    for (name, family) in families(text)? {
        for text in advise(&name, &family) {
            advice.push(Advice { metric: name.clone(), text });
        }
    }
    advice.sort();
    Ok(advice)
}

fn families(text: &[u8]) -> Result<BTreeMap<String, Family>, String> {
    let hasher = KeyHasher::new([0; KEY_SECRET_BYTES]);
    let limits = Limits::default();
    let options = Options {
        hasher: hasher.scope(Protocol::Exposition, 0),
        format: Format::Text,
        now_ns: 0,
        extra_labels: &[],
        limits: &limits,
    };
    let parsed = parse(text, &options).map_err(|error| error.to_string())?;
    if let Some(error) = parsed.errors.first.first() {
        return Err(format!("line {}: {}", error.line, error.reason));
    }
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for about in &parsed.batch.metadata {
        let family = families.entry(about.family.clone()).or_default();
        family.kind = about.kind;
        family.has_help |= !about.help.is_empty();
    }
    for key in parsed.batch.blocks.iter().flat_map(|block| &block.keys) {
        let identity = decode_key(parsed.batch.text(key.text))?;
        let name = family_of(&identity.measurement, &families);
        let family = families.entry(name).or_default();
        family.labels.extend(identity.labels.iter().map(|(name, _)| name.to_owned()));
    }
    Ok(families)
}

/// The family of a sample: of histograms and summaries the name without what tells their series apart.
fn family_of(metric: &str, families: &BTreeMap<String, Family>) -> String {
    let of_kind = |suffix: &str, kinds: &[MetricKind]| {
        let stem = metric.strip_suffix(suffix)?;
        families.get(stem).filter(|family| kinds.contains(&family.kind)).map(|_| stem.to_owned())
    };
    let both = [MetricKind::Histogram, MetricKind::Summary];
    of_kind("_bucket", &both[..1])
        .or_else(|| of_kind("_sum", &both))
        .or_else(|| of_kind("_count", &both))
        .unwrap_or_else(|| metric.to_owned())
}

fn advise(name: &str, family: &Family) -> Vec<String> {
    let mut all = Vec::new();
    let mut advise_if = |is_so: bool, text: &str| {
        if is_so {
            all.push(text.to_owned());
        }
    };
    advise_if(!family.has_help, "no help text");
    advise_if(name.contains(':'), "metric names should not contain ':'");
    advise_if(is_camel_case(name), "metric names should be written in 'snake_case' not 'camelCase'");
    let has_camel_case = family.labels.iter().any(|label| is_camel_case(label));
    advise_if(has_camel_case, "label names should be written in 'snake_case' not 'camelCase'");
    let has_word = |word: &str| {
        name.to_lowercase().contains(&format!("_{word}_")) || name.to_lowercase().ends_with(&format!("_{word}"))
    };
    advise_if(ABBREVIATIONS.iter().any(|unit| has_word(unit)), "metric names should not contain abbreviated units");
    for kind in TYPES.iter().filter(|kind| has_word(kind)) {
        advise_if(true, &format!("metric name should not include type '{kind}'"));
    }
    if let Some((unit, base)) = unit_of(name) {
        advise_if(unit != base, &format!("use base unit {base:?} instead of {unit:?}"));
    }
    all.extend(advise_on_type(name, family));
    all
}

fn advise_on_type(name: &str, family: &Family) -> Vec<String> {
    if family.kind == MetricKind::Unknown {
        return Vec::new();
    }
    let is_counter = family.kind == MetricKind::Counter;
    let is_histogram = family.kind == MetricKind::Histogram;
    let is_summary = family.kind == MetricKind::Summary;
    let has_total = name.ends_with("_total");
    let has_label = |label: &str| family.labels.contains(label);
    [
        (is_counter && !has_total, r#"counter metrics should have "_total" suffix"#),
        (!is_counter && has_total, r#"non-counter metrics should not have "_total" suffix"#),
        (!is_histogram && name.ends_with("_bucket"), r#"non-histogram metrics should not have "_bucket" suffix"#),
        (
            !is_histogram && !is_summary && name.ends_with("_count"),
            r#"non-histogram and non-summary metrics should not have "_count" suffix"#,
        ),
        (
            !is_histogram && !is_summary && name.ends_with("_sum"),
            r#"non-histogram and non-summary metrics should not have "_sum" suffix"#,
        ),
        (!is_histogram && has_label("le"), r#"non-histogram metrics should not have "le" label"#),
        (!is_summary && has_label("quantile"), r#"non-summary metrics should not have "quantile" label"#),
    ]
    .into_iter()
    .filter(|(is_so, _)| *is_so)
    .map(|(_, text)| text.to_owned())
    .collect()
}

fn is_camel_case(name: &str) -> bool {
    name.as_bytes().windows(2).any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
}

/// The first unit in a name, with the base unit for it.
fn unit_of(name: &str) -> Option<(&str, &str)> {
    let base_of = |word: &str| {
        let mass = MASSES.contains(&word).then_some("grams");
        mass.or_else(|| UNITS.iter().find(|(unit, _)| *unit == word).map(|(_, base)| *base))
    };
    name.split('_').find_map(|word| {
        let stems = PREFIXES.iter().filter_map(|prefix| word.strip_prefix(prefix));
        std::iter::once(word).chain(stems).find_map(base_of).map(|base| (word, base))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(text: &str) -> Vec<String> {
        let found = lint(text.as_bytes()).unwrap();
        found.into_iter().map(|Advice { metric, text }| format!("{metric} {text}")).collect()
    }

    #[test]
    fn good_metrics_get_no_advice() {
        let text = "# HELP x_total X.\n# TYPE x_total counter\nx_total{a=\"b\"} 1\n\
                    # HELP took_seconds T.\n# TYPE took_seconds histogram\ntook_seconds_bucket{le=\"+Inf\"} 1\n\
                    took_seconds_sum 1\ntook_seconds_count 1\n";
        assert_eq!(advice(text), Vec::<String>::new());
    }

    #[test]
    fn advice_is_in_the_words_of_promlint() {
        for (text, expected) in [
            ("x 1\n", &["x no help text"][..]),
            ("# HELP x X.\n# TYPE x counter\nx 1\n", &["x counter metrics should have \"_total\" suffix"]),
            (
                "# HELP x_total X.\n# TYPE x_total gauge\nx_total 1\n",
                &["x_total non-counter metrics should not have \"_total\" suffix"],
            ),
            (
                "# HELP a_milliseconds X.\n# TYPE a_milliseconds gauge\na_milliseconds 1\n",
                &["a_milliseconds use base unit \"seconds\" instead of \"milliseconds\""],
            ),
            (
                "# HELP a_kilopounds X.\na_kilopounds 1\n",
                &["a_kilopounds use base unit \"grams\" instead of \"kilopounds\""],
            ),
            ("# HELP a_ms X.\na_ms 1\n", &["a_ms metric names should not contain abbreviated units"]),
            ("# HELP job:x X.\njob:x 1\n", &["job:x metric names should not contain ':'"]),
            (
                "# HELP aB X.\naB{cD=\"1\"} 1\n",
                &[
                    "aB label names should be written in 'snake_case' not 'camelCase'",
                    "aB metric names should be written in 'snake_case' not 'camelCase'",
                ],
            ),
            ("# HELP a_gauge_x X.\na_gauge_x 1\n", &["a_gauge_x metric name should not include type 'gauge'"]),
            (
                "# HELP x_bucket X.\n# TYPE x_bucket gauge\nx_bucket{le=\"1\",quantile=\"2\"} 1\n",
                &[
                    "x_bucket non-histogram metrics should not have \"_bucket\" suffix",
                    "x_bucket non-histogram metrics should not have \"le\" label",
                    "x_bucket non-summary metrics should not have \"quantile\" label",
                ],
            ),
        ] {
            assert_eq!(advice(text), expected, "{text}");
        }
        assert!(lint(b"x{ 1\n").unwrap_err().starts_with("line 1: "));
    }
}

//! What entries of a stream aggregation file become, and that it gives what VictoriaMetrics says of each output.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use db::{Db, DbOptions, RangeQuery};
use platform::sim::Simulation;
use promql::{Features, ResultValue};
use proptest::prelude::*;
use relabel::{HashKind, NameScheme, Rule, RuleText, relabel};
use scrape::config::reader::Reading;
use scrape::config::{parse_tree, read_rules};
use thalweg_rules::file::LoadedRules;
use thalweg_rules::materialize::{RulePatterns, select};
use thalweg_rules::stream_aggregation::AggregationFile;

const MINUTE_MS: i64 = 60_000;
const LOOKBACK_MS: i64 = 300_000;

/// Windows that are looked at: those of the samples, and some after them.
const WINDOWS: i64 = 16;

fn load(text: &str) -> LoadedRules {
    let file = AggregationFile { path: "s.yml".into(), lookback_ms: LOOKBACK_MS as u64, features: Features::default() };
    let mut loaded = file.parse(text, &|_| None).unwrap_or_else(|problems| panic!("{problems:?}"));
    assert_eq!(select(&mut loaded.groups, &RulePatterns::default()), Ok(Vec::new()), "they can stay right");
    loaded
}

#[test]
fn names_and_expressions_are_as_they_were() {
    let mut shown = String::new();
    for group in load(include_str!("stream_aggregation/example.yml")).groups {
        for rule in &group.rules {
            let interval_s = group.interval_ms.unwrap() as f64 / 1e3;
            writeln!(shown, "every {interval_s} s: {} = {}", rule.name(), rule.expr).unwrap();
        }
    }
    // THALWEG_BLESS=1 writes it anew.
    if std::env::var_os("THALWEG_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stream_aggregation/example.golden");
        std::fs::write(path, &shown).unwrap();
    }
    assert_eq!(shown, include_str!("stream_aggregation/example.golden"));
}

/// Values of a label by its name.
type Labels = BTreeMap<&'static str, String>;

/// The labels that series and results have.
const LABELS: [&str; 6] = ["job", "instance", "quantile", "vmrange", "team", "shard"];

/// The samples of a series, by milliseconds.
type Samples = BTreeMap<i64, f64>;

/// What entries differ in.
#[derive(Debug, Clone, Copy)]
struct Entry {
    by: Option<&'static [&'static str]>,
    without: &'static [&'static str],
    dropped: &'static [&'static str],
    dedup_ms: Option<i64>,
    of_counters: bool,
    /// It is of series of the job j0 and of those of the instance i1, by a selector each.
    is_of_some: bool,
    /// Steps that relabel samples.
    input: &'static str,
}

const PLAIN: Entry =
    Entry { by: None, without: &[], dropped: &[], dedup_ms: None, of_counters: false, is_of_some: false, input: "" };
const COUNTERS: Entry = Entry { of_counters: true, ..PLAIN };

const NOT_I2: &str = "{action: drop, source_labels: [instance], regex: i2}";
const NO_INSTANCE: &str = "{action: keep, if: '{instance!=\"i2\"}'}, {action: labeldrop, regex: instance|other}";
const JOB_ALONE: &str = "{action: drop, if: '{instance=\"i2\"}'}, {action: labelkeep, regex: __name__|job}";

/// The instance in capitals beside the job, for instances but i2; the latter stays as it is.
const CASED: &str = "{action: uppercase, source_labels: [instance], target_label: team, if: '{instance!=\"i2\"}'}";
/// One team for two of three instances; the job is gone for one, and a series whose labels are equal is left out.
const TEAMS: &str = "{source_labels: [job, instance], regex: 'j(.);i[01]', target_label: team, replacement: 't$1'}, \
                     {action: labeldrop, regex: 'jo.*', if: '{team=\"\"}'}, {action: labeldrop, regex: instance}";
/// Series of both jobs become one by a number that is not theirs alone, those of one number are left out.
const SHARDS: &str = "{action: drop, source_labels: [instance], regex: i2}, {action: labeldrop, regex: job}, \
                      {action: hashmod, source_labels: [instance], modulus: 3, target_label: shard}, \
                      {action: labelkeep, regex: '__name__|s.*'}, {action: drop, source_labels: [shard, job], regex: '0;'}";
const COPIES: &str = "{action: labelmap, regex: 'inst(ance)', replacement: 'te$1'}, {action: labelmap_all, regex: 'teance', replacement: team}, \
                      {action: replace_all, source_labels: [team, job], target_label: shard, regex: '[ij;]', replacement: x}, \
                      {action: drop_if_contains, source_labels: [team], target_label: shard}, {action: labeldrop, regex: team|instance}, \
                      {action: keep_if_equal, source_labels: [job, instance], if: n}, {action: dropequal, source_labels: [shard], target_label: job}";
const OF_NAME: &str = "{action: graphite, match: '*', labels: {team: 'of-$1'}}, {action: lowercase, source_labels: [__name__], target_label: shard}, \
                       {action: drop, source_labels: [__name__, instance], regex: 'm;i0'}, {action: keep_metrics, regex: m, if: '{job!=\"\"}'}, {action: labeldrop, regex: instance}";
/// Leaves series out, and changes none.
const CHOSEN: &str = "{action: drop, source_labels: [job, instance], regex: 'j0;i[12]'}, {action: keep, if: ['m{job=\"j0\"}', '{instance!=\"i0\"}']}, \
                      {action: drop, if: '{job=\"j1\", instance=\"i1\"}'}";

const ENTRIES: [Entry; 37] = [
    PLAIN,
    Entry { by: Some(&["job"]), ..PLAIN },
    Entry { by: Some(&["__name__"]), ..PLAIN },
    Entry { without: &["instance"], ..PLAIN },
    Entry { without: &["instance"], dropped: &["job"], ..PLAIN },
    Entry { by: Some(&["job"]), dropped: &["instance"], ..PLAIN },
    Entry { dropped: &["instance"], ..PLAIN },
    Entry { dedup_ms: Some(30_000), ..PLAIN },
    Entry { by: Some(&["job"]), dedup_ms: Some(20_000), ..PLAIN },
    Entry { without: &["job"], dedup_ms: Some(60_000), ..PLAIN },
    Entry { by: Some(&["job"]), is_of_some: true, ..PLAIN },
    Entry { dedup_ms: Some(30_000), is_of_some: true, ..PLAIN },
    Entry { input: NOT_I2, is_of_some: true, dedup_ms: Some(30_000), ..PLAIN },
    Entry { input: NO_INSTANCE, by: Some(&["job", "instance"]), ..PLAIN },
    Entry { input: NO_INSTANCE, without: &["job"], ..PLAIN },
    Entry { input: JOB_ALONE, ..PLAIN },
    Entry { input: NOT_I2, by: Some(&["job"]), ..COUNTERS },
    Entry { input: CASED, ..PLAIN },
    Entry { input: CASED, by: Some(&["team", "job"]), is_of_some: true, ..PLAIN },
    Entry { input: TEAMS, ..PLAIN },
    Entry { input: TEAMS, by: Some(&["team"]), ..PLAIN },
    Entry { input: TEAMS, without: &["team"], is_of_some: true, ..PLAIN },
    Entry { input: TEAMS, by: Some(&["__name__"]), ..PLAIN },
    Entry { input: TEAMS, dropped: &["instance"], ..PLAIN },
    Entry { input: SHARDS, ..PLAIN },
    Entry { input: SHARDS, by: Some(&["shard"]), ..PLAIN },
    Entry { input: COPIES, ..PLAIN },
    Entry { input: COPIES, without: &["job"], dropped: &["other"], ..PLAIN },
    Entry { input: OF_NAME, by: Some(&["team", "job"]), ..PLAIN },
    Entry { input: OF_NAME, without: &["job"], is_of_some: true, ..PLAIN },
    Entry { input: CHOSEN, ..PLAIN },
    Entry { input: CHOSEN, by: Some(&["job"]), dedup_ms: Some(20_000), is_of_some: true, ..PLAIN },
    Entry { input: CHOSEN, by: Some(&["job"]), ..COUNTERS },
    Entry { input: CHOSEN, is_of_some: true, ..COUNTERS },
    COUNTERS,
    Entry { by: Some(&["job"]), ..COUNTERS },
    Entry { without: &["job"], ..COUNTERS },
];

const OUTPUTS: [&str; 12] = [
    "sum_samples",
    "count_samples",
    "count_series",
    "min",
    "max",
    "avg",
    "last",
    "stddev",
    "stdvar",
    "unique_samples",
    "quantiles(0, 0.3, 0.5, 0.95, 1)",
    "histogram_bucket",
];
const COUNTER_OUTPUTS: [&str; 4] = ["increase", "increase_prometheus", "rate_sum", "rate_avg"];

impl Entry {
    fn outputs(&self) -> &'static [&'static str] {
        if self.of_counters { &COUNTER_OUTPUTS } else { &OUTPUTS }
    }

    fn text(&self) -> String {
        let selectors = if self.is_of_some { r#"['m{job="j0"}', 'm{instance="i1"}']"# } else { "m" };
        let mut text = format!("- {{match: {selectors}, interval: 1m, outputs: ['{}']", self.outputs().join("', '"));
        let mut add = |name: &str, labels: &[&str]| write!(text, ", {name}: [{}]", labels.join(", ")).unwrap();
        add("by", self.by.unwrap_or_default());
        add("without", self.without);
        add("drop_input_labels", self.dropped);
        write!(text, ", input_relabel_configs: [{}]", self.input).unwrap();
        if let Some(dedup_ms) = self.dedup_ms {
            write!(text, ", dedup_interval: {dedup_ms}ms").unwrap();
        }
        text + if self.of_counters { ", staleness_interval: 5m}" } else { "}" }
    }

    fn selects(&self, labels: &Labels) -> bool {
        !self.is_of_some || labels["job"] == "j0" || labels["instance"] == "i1"
    }

    /// The steps, as those of a scrape are read.
    fn steps(&self) -> Vec<Rule> {
        let (path, text) = (Path::new("steps.yml"), format!("steps: [{}]", self.input));
        let (reading, node) = (Reading::new(path), parse_tree(path, &text).unwrap());
        let steps = read_rules(&reading.fields(&node).unwrap(), "steps", NameScheme::Utf8);
        assert_eq!(reading.finish().0, Vec::new());
        // The agent hashes otherwise than Prometheus.
        let of_agent = |rule: &Rule| Rule::new(RuleText { hash: HashKind::XxHash64, ..rule.text().clone() }).unwrap();
        steps.iter().map(of_agent).collect()
    }

    /// The labels that samples of a series have when they are aggregated; `None` if steps leave them out.
    fn relabelled(&self, labels: &Labels, steps: &[Rule]) -> Option<Labels> {
        let left = labels.iter().filter(|(name, _)| !self.dropped.contains(*name));
        let mut changed: relabel::Labels = left.map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        changed.insert("__name__".to_owned(), "m".to_owned());
        if !relabel(&mut changed, steps) {
            return None;
        }
        assert_eq!(changed.remove("__name__").as_deref(), Some("m"));
        let name_of = |name: &String| *LABELS.iter().find(|label| *label == name).unwrap();
        Some(changed.iter().map(|(name, value)| (name_of(name), value.clone())).collect())
    }

    /// The labels of the result that a series is part of which has these labels.
    fn group(&self, labels: &Labels) -> Labels {
        let is_left = |name: &&'static str| !self.without.contains(name) && self.by.is_none_or(|by| by.contains(name));
        labels.iter().filter(|(name, _)| is_left(name)).map(|(name, value)| (*name, value.clone())).collect()
    }
}

/// The samples after a time and up to another.
fn between(samples: &Samples, after_ms: i64, to_ms: i64) -> Samples {
    samples.range(after_ms + 1..=to_ms).map(|(time_ms, value)| (*time_ms, *value)).collect()
}

/// What an output is by VictoriaMetrics's description, for the window that ends at a time.
fn expected(
    (entry, steps): (&Entry, &[Rule]),
    output: &str,
    series: &BTreeMap<Labels, Samples>,
    end_ms: i64,
) -> BTreeMap<Labels, f64> {
    let mut groups: BTreeMap<Labels, Vec<(Labels, Samples)>> = BTreeMap::new();
    let mut increases: BTreeMap<Labels, Vec<f64>> = BTreeMap::new();
    for (labels, samples) in series.iter().filter(|(labels, _)| entry.selects(labels)) {
        let Some(labels) = entry.relabelled(labels, steps) else { continue };
        let mut window = between(samples, end_ms - MINUTE_MS, end_ms);
        if let Some(dedup_ms) = entry.dedup_ms {
            // What is not the last of its time.
            let end_ms = |time_ms: i64| (time_ms - 1).div_euclid(dedup_ms) * dedup_ms + dedup_ms;
            let is_gone = |time_ms: &&i64| window.range(**time_ms..=end_ms(**time_ms)).nth(1).is_some();
            let gone: Vec<i64> = window.keys().filter(is_gone).copied().collect();
            window.retain(|time_ms, _| !gone.contains(time_ms));
        }
        if entry.of_counters {
            let found = of_counter(output, samples, &window, end_ms);
            found.into_iter().for_each(|value| increases.entry(entry.group(&labels)).or_default().push(value));
        } else if !window.is_empty() {
            groups.entry(entry.group(&labels)).or_default().push((labels, window));
        }
    }
    if entry.of_counters {
        let merged = |values: Vec<f64>| {
            let sum: f64 = values.iter().sum();
            if output == "rate_avg" { sum / values.len() as f64 } else { sum }
        };
        return increases.into_iter().map(|(labels, values)| (labels, merged(values))).collect();
    }
    let results = |(labels, members): (Labels, Vec<(Labels, Samples)>)| {
        let values: Vec<f64> = members.iter().flat_map(|(_, window)| window.values().copied()).collect();
        match output {
            "histogram_bucket" => {
                buckets(&values).into_iter().map(|(range, count)| (with(&labels, "vmrange", range), count)).collect()
            }
            _ if output.starts_with("quantiles") => {
                let of = |quantile: &str| (with(&labels, "quantile", quantile.to_owned()), ranked(quantile, &values));
                ["0", "0.3", "0.5", "0.95", "1"].map(of).to_vec()
            }
            _ => vec![(labels, of_samples(output, &members))],
        }
    };
    groups.into_iter().flat_map(results).collect()
}

fn with(labels: &Labels, name: &'static str, value: String) -> Labels {
    labels.iter().map(|(name, value)| (*name, value.clone())).chain([(name, value)]).collect()
}

/// The sample of the nearest rank.
fn ranked(quantile: &str, values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (quantile.parse::<f64>().unwrap() * (sorted.len() - 1) as f64 + 0.5).floor();
    sorted[rank as usize]
}

/// How many samples are in each bucket: eighteen for each power of ten, each with its upper bound.
fn buckets(values: &[f64]) -> BTreeMap<String, f64> {
    let bound = |place: i32| 10f64.powf(f64::from(place) / 18.0 - 9.0);
    let shown = |place: i32| {
        let text = format!("{:.3e}", bound(place));
        let (digits, exponent) = text.split_once('e').unwrap();
        format!("{digits}e{:+03}", exponent.parse::<i32>().unwrap())
    };
    let mut counts = BTreeMap::new();
    for value in values {
        // Bounds are not exact.
        let upper = (0..=486).find(|place| *value <= bound(*place) * (1.0 + 1e-12)).unwrap();
        let lower = if upper == 0 { "0".to_owned() } else { shown(upper - 1) };
        *counts.entry(format!("{lower}...{}", shown(upper))).or_default() += 1.0;
    }
    counts
}

fn of_samples(output: &str, members: &[(Labels, Samples)]) -> f64 {
    let values: Vec<f64> = members.iter().flat_map(|(_, window)| window.values().copied()).collect();
    let (sum, count) = (values.iter().sum::<f64>(), values.len() as f64);
    let mean = sum / count;
    let variance = || values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    match output {
        "sum_samples" => sum,
        "count_samples" => count,
        "count_series" => members.iter().map(|(labels, _)| labels).collect::<BTreeSet<_>>().len() as f64,
        "min" => values.iter().copied().fold(f64::INFINITY, f64::min),
        "max" => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        "avg" => mean,
        "last" => {
            let newest = members.iter().filter_map(|(_, window)| window.last_key_value());
            newest.map(|(time_ms, value)| (*time_ms, *value as i64)).max().unwrap().1 as f64
        }
        "stddev" => variance().sqrt(),
        "stdvar" => variance(),
        "unique_samples" => values.iter().map(|value| value.to_bits()).collect::<BTreeSet<_>>().len() as f64,
        other => panic!("{other}"),
    }
}

fn of_counter(output: &str, samples: &Samples, window: &Samples, end_ms: i64) -> Option<f64> {
    let is_rate = output.starts_with("rate");
    let (first_ms, first) = window.first_key_value()?;
    let start_ms = end_ms - MINUTE_MS;
    let before = between(samples, start_ms - LOOKBACK_MS, start_ms).pop_last();
    let (begun_ms, mut last) = before.unwrap_or((*first_ms, if output == "increase" { 0.0 } else { *first }));
    let mut increase = 0.0;
    for value in window.values() {
        increase += if *value >= last { value - last } else { *value };
        last = *value;
    }
    let (ended_ms, _) = window.last_key_value()?;
    if !is_rate {
        return Some(increase);
    }
    (*ended_ms > begun_ms).then(|| increase / ((ended_ms - begun_ms) as f64 / 1e3))
}

fn found(db: &Db, expr: &str, start_ms: i64) -> BTreeMap<i64, BTreeMap<Labels, f64>> {
    let query = RangeQuery {
        text: expr.to_owned(),
        start_ms,
        end_ms: start_ms + (WINDOWS - 1) * MINUTE_MS,
        step_ms: MINUTE_MS,
        lookback_ms: None,
        name_removal: None,
        may_cache: false,
        budget: db.budget(1_000_000),
    };
    let ResultValue::Matrix(series) = db.range("default", &query).unwrap().value else { panic!("a matrix") };
    let mut found: BTreeMap<i64, BTreeMap<Labels, f64>> = BTreeMap::new();
    for (labels, points) in series {
        let labels: Labels = LABELS.into_iter().filter_map(|name| Some((name, labels.get(name)?.to_owned()))).collect();
        for (time_ms, value) in points.floats {
            assert_eq!(found.entry(time_ms).or_default().insert(labels.clone(), value), None, "{expr}");
        }
    }
    found
}

fn check(db: &Db, series: &BTreeMap<Labels, Samples>, start_ms: i64) {
    for entry in ENTRIES {
        let groups = load(&entry.text()).groups;
        assert_eq!(groups.len(), 1);
        let steps = entry.steps();
        for (rule, output) in groups[0].rules.iter().zip(entry.outputs()) {
            let output_name = output.split('(').next().unwrap();
            assert!(rule.name().ends_with(&format!("_{output_name}")), "{}", rule.name());
            let found = found(db, &rule.expr, start_ms);
            for end_ms in (0..WINDOWS).map(|window| start_ms + window * MINUTE_MS) {
                let expected = expected((&entry, &steps), output, series, end_ms);
                let found = found.get(&end_ms).cloned().unwrap_or_default();
                let is_same = found.len() == expected.len()
                    && found.iter().zip(&expected).all(|((labels, value), (of, wanted))| {
                        labels == of && (value - wanted).abs() <= 1e-7 * (1.0 + wanted.abs())
                    });
                let window = (end_ms - start_ms) / MINUTE_MS;
                assert!(
                    is_same,
                    "{} of window {window}: {found:?} but {expected:?}\n{entry:?} {}",
                    rule.name(),
                    rule.expr
                );
            }
        }
    }
}

/// Job, instance, milliseconds after the first window's beginning, and the value.
type Row = (u8, u8, i64, u8);

fn row() -> impl Strategy<Value = Row> {
    // At the edges of windows, and a millisecond beside.
    let time = (0i64..70, -1i64..=1).prop_map(|(tens, beside)| tens * 10_000 + beside);
    (0u8..2, 0u8..3, time, any::<u8>().prop_map(|value| value % 50))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn outputs_are_what_they_are_said_to_be(rows in prop::collection::vec(row(), 0..60)) {
        let simulation = Simulation::new(9);
        let db = Arc::new(Db::open(simulation.platform(), DbOptions::new("/data")).unwrap());
        let now_ms = db.now_ns() / 1_000_000;
        let begin_ms = (now_ms / MINUTE_MS - 30) * MINUTE_MS;
        let mut series: BTreeMap<Labels, Samples> = BTreeMap::new();
        let mut lines = String::new();
        for (job, instance, after_ms, value) in rows {
            let labels = Labels::from([("job", format!("j{job}")), ("instance", format!("i{instance}"))]);
            series.entry(labels).or_default().insert(begin_ms + after_ms, f64::from(value));
            writeln!(lines, "m,job=j{job},instance=i{instance} value={value} {}000000", begin_ms + after_ms).unwrap();
        }
        db.write_lines("default", lines.as_bytes()).unwrap();
        check(&db, &series, begin_ms);
    }
}

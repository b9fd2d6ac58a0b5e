//! PromQL merges the sketches of views: as SQL does, and as the rows say.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use db::{InstantQuery, RangeQuery};
use promql::ResultValue;
use sql::Value;

use crate::world::World;

const MINUTE_MS: i64 = 60_000;
const HOSTS: u64 = 6;
const MINUTES: i64 = 60;

/// A row: its host, milliseconds, value and visitor.
type Row = (u64, i64, f64, u64);

/// Random rows of hosts in two data centres, and the view of their minutes. Host 5 ended three minutes before the others.
struct Visits {
    world: World,
    rows: Vec<Row>,
    /// The beginning of the last minute that is whole.
    last_ms: i64,
    random: u64,
}

impl Visits {
    fn new(seed: u64) -> Self {
        let world = World::empty(seed);
        let last_ms = (world.db.now_ns() / 1_000_000 / MINUTE_MS - 5) * MINUTE_MS;
        let mut visits = Self { world, rows: Vec::new(), last_ms, random: seed };
        let mut rows = Vec::new();
        for minute in 0..MINUTES {
            for host in (0..HOSTS).filter(|host| *host != 5 || minute >= 3) {
                for _ in 0..=visits.below(5) {
                    rows.push(visits.row(host, last_ms - minute * MINUTE_MS));
                }
            }
        }
        visits.write(rows);
        visits.world.ask(
            "CREATE MATERIALIZED VIEW minutes AS SELECT time_bucket('1 minute', time) AS bucket, host, dc, \
             quantile_sketch(latency) AS latencies, distinct_sketch(visitor) AS visitors, count(*) AS n FROM visits GROUP BY 1, 2, 3",
        );
        visits.world.settle();
        visits
    }

    fn below(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn row(&mut self, host: u64, minute_ms: i64) -> Row {
        let latency = (self.below(1_000_000) as f64 / 100_000.0).exp() * (host + 1) as f64;
        (host, minute_ms + self.below(60_000) as i64, latency, self.below(300) * (1 + host % 2))
    }

    fn write(&mut self, rows: Vec<Row>) {
        let mut lines = String::new();
        for (place, (host, time_ms, latency, visitor)) in rows.iter().enumerate() {
            let time_ns = time_ms * 1_000_000 + place as i64 % 1_000_000;
            writeln!(lines, "visits,host=h{host},dc=d{} latency={latency},visitor=\"v{visitor}\" {time_ns}", host % 2)
                .unwrap();
        }
        self.world.write("default", &lines);
        self.rows.extend(rows);
    }

    /// The values by label and time of a range query that ends at the last minute.
    fn range(&self, text: &str, may_cache: bool) -> BTreeMap<String, Vec<(i64, f64)>> {
        let query = RangeQuery {
            text: text.to_owned(),
            start_ms: self.last_ms - 40 * MINUTE_MS,
            end_ms: self.last_ms,
            step_ms: 5 * MINUTE_MS,
            lookback_ms: None,
            name_removal: None,
            may_cache,
            budget: Arc::new(World::budget()),
        };
        let (answer, budget) = (self.world.db.range("default", &query).unwrap(), &query.budget);
        assert_eq!(budget.samples(), 0, "all samples are given back: {text}");
        assert!(answer.warnings.is_empty() && answer.infos.is_empty(), "{answer:?}");
        match answer.value {
            ResultValue::Matrix(series) => {
                series.into_iter().map(|(labels, points)| (labels.to_string(), points.floats)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// What SQL gives for the windows of the view that `condition` selects, by data centre or of all.
    fn by_sql(&self, value: &str, label: Option<&str>, condition: &str) -> BTreeMap<String, f64> {
        let group = label.unwrap_or("'all'");
        let grouped = label.map_or(String::new(), |label| format!(" GROUP BY {label}"));
        let rows = self.world.ask(&format!("SELECT {group}, {value} FROM minutes WHERE {condition}{grouped}"));
        let of_row = |row: Vec<Value>| match (label, row.as_slice()) {
            (Some(label), [Value::Text(of), value]) => (format!("{{{label}=\"{of}\"}}"), number(value)),
            (None, [_, value]) => ("{}".to_owned(), number(value)),
            (_, other) => panic!("{other:?}"),
        };
        rows.into_iter().map(of_row).collect()
    }

    fn steps(&self) -> impl Iterator<Item = i64> + use<> {
        let last_ms = self.last_ms;
        (0..=8).map(move |step| last_ms - (40 - step * 5) * MINUTE_MS)
    }
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Float(value) => *value,
        Value::Int(value) => *value as f64,
        other => panic!("{other:?}"),
    }
}

/// Beginnings of windows that lie in a range of PromQL, as a condition of SQL.
fn between(after_ms: i64, to_ms: i64) -> String {
    let time = |time_ms: i64| format!("to_timestamp({})", time_ms / 1000);
    format!("bucket > {} AND bucket <= {}", time(after_ms), time(to_ms))
}

/// PromQL's aggregations with those of SQL that they are.
const MERGED: [(&str, &str, &str); 4] = [
    ("approx_percentile", "0.9, minutes_latencies", "approx_percentile(0.9, latencies)"),
    ("approx_percentile", "0, minutes_latencies", "approx_percentile(0.0, latencies)"),
    ("approx_percentile", "0.5, minutes_latencies", "approx_percentile(0.5, latencies)"),
    ("approx_count_distinct", "minutes_visitors", "approx_count_distinct_of_sketches(visitors)"),
];

const GROUPS: [(&str, Option<&str>); 4] =
    [("", None), (" by (dc)", Some("dc")), (" by (host)", Some("host")), (" without (dc, n)", Some("host"))];

#[test]
fn ranges_of_sketches_are_merged_as_sql_does() {
    let visits = Visits::new(11);
    for ((by, label), (aggregation, arguments, of_sql)) in
        GROUPS.iter().flat_map(|group| MERGED.map(|merged| (*group, merged)))
    {
        for range_min in [3, 5, 20] {
            let found = visits.range(&format!("{aggregation}{by} ({arguments}[{range_min}m])"), false);
            let mut expected: BTreeMap<String, Vec<(i64, f64)>> = BTreeMap::new();
            for step_ms in visits.steps() {
                let values = visits.by_sql(of_sql, label, &between(step_ms - range_min * MINUTE_MS, step_ms));
                values.into_iter().for_each(|(of, value)| expected.entry(of).or_default().push((step_ms, value)));
            }
            assert!(expected.values().map(Vec::len).sum::<usize>() >= 9);
            assert_eq!(found, expected, "{aggregation}{by} ({arguments}[{range_min}m])");
        }
    }
}

#[test]
fn newest_sketches_are_merged_as_sql_does() {
    let visits = Visits::new(12);
    let (last_ms, ended_ms) = (visits.last_ms, visits.last_ms - 3 * MINUTE_MS);
    for ((by, label), (aggregation, arguments, of_sql)) in
        GROUPS.iter().flat_map(|group| MERGED.map(|merged| (*group, merged)))
    {
        // Host 5 has its newest sketch within the lookback for two minutes after the others have theirs.
        for (later_min, of_ended) in [(0, true), (1, true), (2, false)] {
            let text = format!("{aggregation}{by} ({arguments})");
            let answer = visits.world.db.instant("default", &InstantQuery::new(&text, last_ms + later_min * MINUTE_MS));
            let ResultValue::Vector(samples) = answer.unwrap().value else { panic!("{text}") };
            let found: BTreeMap<String, f64> =
                samples.into_iter().map(|sample| (sample.labels.to_string(), sample.value)).collect();
            let newest = between(last_ms - MINUTE_MS, last_ms);
            let ended = if of_ended { between(ended_ms - MINUTE_MS, ended_ms) } else { "false".to_owned() };
            let condition = format!("(host <> 'h5' AND {newest}) OR (host = 'h5' AND {ended})");
            assert_eq!(found, visits.by_sql(of_sql, label, &condition), "{text} {later_min}");
        }
    }
}

#[test]
fn quantiles_are_within_a_hundredth_and_counts_about_right() {
    let visits = Visits::new(13);
    for (dc, share) in [0, 1].into_iter().flat_map(|dc| [0.1, 0.5, 0.9, 0.99].map(|share| (dc, share))) {
        let by_dc = format!("{{dc=\"d{dc}\"}}");
        let quantiles = visits.range(&format!("approx_percentile by (dc) ({share}, minutes_latencies[10m])"), true);
        let counts = visits.range("approx_count_distinct by (dc) (minutes_visitors[10m])", true);
        for (place, step_ms) in visits.steps().enumerate() {
            // The windows begin after the range's beginning, and at its end.
            let inside = step_ms - 9 * MINUTE_MS..step_ms + MINUTE_MS;
            let rows = || visits.rows.iter().filter(|(host, time_ms, ..)| host % 2 == dc && inside.contains(time_ms));
            let mut latencies: Vec<f64> = rows().map(|(_, _, latency, _)| *latency).collect();
            latencies.sort_by(f64::total_cmp);
            let exact = latencies[(share * (latencies.len() - 1) as f64) as usize];
            let (at_ms, found) = quantiles[&by_dc][place];
            assert_eq!(at_ms, step_ms);
            assert!((found - exact).abs() <= exact * 0.0101, "{share} {dc} {step_ms}: {found}, not {exact}");
            let visitors: std::collections::BTreeSet<u64> = rows().map(|(.., visitor)| *visitor).collect();
            let (exact, (_, found)) = (visitors.len() as f64, counts[&by_dc][place]);
            assert!((found - exact).abs() <= exact * 0.05, "{dc} {step_ms}: {found}, not {exact}");
        }
    }
}

#[test]
fn answers_that_are_kept_follow_late_rows() {
    let mut visits = Visits::new(14);
    let texts = [
        "approx_percentile by (dc) (0.9, minutes_latencies[10m])",
        "approx_count_distinct(minutes_visitors)",
        "max_over_time(approx_percentile(0.5, minutes_latencies[5m])[10m:5m])",
    ];
    let before = texts.map(|text| visits.range(text, true));
    assert_eq!(before, texts.map(|text| visits.range(text, true)));
    let hits = visits.world.db.result_cache().unwrap().hits;
    assert!(hits >= 3, "{hits} answers were kept");
    let late_ms = visits.last_ms - 20 * MINUTE_MS;
    let rows = (0..500)
        .map(|_| visits.row(1, late_ms))
        .map(|(host, time_ms, latency, visitor)| (host, time_ms, latency * 1e6, visitor + 10_000));
    let rows = rows.collect();
    visits.write(rows);
    visits.world.settle();
    for (text, before) in texts.iter().zip(before) {
        let after = visits.range(text, true);
        assert_eq!(after, visits.range(text, false), "{text}");
        assert_ne!(after, before, "{text}");
    }
    let found = visits.range(texts[0], true)["{dc=\"d1\"}"].clone();
    let changed = found.iter().filter(|(_, value)| *value > 1e6).map(|(time_ms, _)| *time_ms);
    assert_eq!(changed.collect::<Vec<_>>(), [late_ms, late_ms + 5 * MINUTE_MS]);
}

#[test]
fn texts_are_for_these_aggregations_alone() {
    let visits = Visits::new(15);
    let ask = |text: &str, samples_max: u64| {
        let budget = Arc::new(query::Budget::new(samples_max));
        let query = InstantQuery { budget, may_cache: false, ..InstantQuery::new(text, visits.last_ms) };
        visits.world.db.instant("default", &query).map_err(|error| error.to_string())
    };
    for text in ["minutes_latencies", "count_over_time(minutes_visitors[1h])", "sum(minutes_latencies)"] {
        let answer = ask(text, 1_000_000).unwrap();
        assert_eq!(answer.value, ResultValue::Vector(Vec::new()), "{text}");
    }
    let answer = ask("approx_count_distinct(visits_latency[1h])", 1_000_000).unwrap();
    assert_eq!(answer.value, ResultValue::Vector(Vec::new()));
    assert!(answer.infos[0].contains("ignored floats and histograms in approx_count_distinct"), "{:?}", answer.infos);
    for (text, samples_max, expected) in [
        ("approx_percentile(0.5, minutes_visitors)", 1_000_000, "select a column that quantile_sketch(…) made"),
        (
            "approx_percentile(0.5, minutes_visitors{host=\"h1\"})",
            1_000_000,
            "the series {__name__=\"minutes_visitors\", dc=\"d1\", host=\"h1\"} has at ",
        ),
        ("approx_count_distinct(visits_visitor)", 1_000_000, "a text that is no sketch of distinct values"),
        ("approx_count_distinct(minutes_visitors[1h])", 300, "the limit is 300"),
    ] {
        let error = ask(text, samples_max).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

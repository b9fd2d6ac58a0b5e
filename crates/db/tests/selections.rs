//! Aggregations read few labels, instant vectors the last rows alone, names come from the index: random series in heads and parts, some of which
//! share a name with others, and every answer compared with what the samples themselves say.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ingest::{Protocol, remote_write};
use model::{Labels, METRIC_NAME, MatchOp, Matcher, STALE_NAN_BITS, TimeRange, is_stale_bits};
use platform::sim::Simulation;
use promql::ResultValue;
use query::{Budget, QueryError};
use thalweg_db::{Db, DbOptions, InstantQuery};

const MS_NS: i64 = 1_000_000;
/// 2016-01-01T00:00:00Z.
const START_MS: i64 = 1_451_606_400_000;
const MINUTE_MS: i64 = 60_000;
const LOOKBACK_MS: i64 = 5 * MINUTE_MS;
const MINUTES: i64 = 90;

const SELECTORS: [&str; 7] = [
    "m_a",
    "m_flag",
    "lone",
    "lone{pod=~\"p1.*\"}",
    "{__name__=~\"m_a|m_b\"}",
    "{__name__=~\"lone|m_.*\"}",
    "{job!=\"\"}",
];
const GROUPINGS: [(&str, &[&str], bool); 6] = [
    ("", &[], false),
    ("by (job)", &["job"], false),
    ("by (job, zone)", &["job", "zone"], false),
    ("by (pod)", &["pod"], false),
    ("without (pod)", &["pod"], true),
    ("without (job, zone, none)", &["job", "none", "zone"], true),
];

struct World {
    db: Db,
    random: fastrand::Rng,
    /// Whether a metric of remote write has the name of a field.
    shares_names: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let simulation = Simulation::new(seed);
        simulation.advance_ns((START_MS + MINUTES * MINUTE_MS) * MS_NS);
        let mut options = DbOptions::new("/data");
        options.store.head_bytes_max = 256 << 10;
        let db = Db::open(simulation.platform(), options).unwrap();
        Self { db, random: fastrand::Rng::with_seed(seed), shares_names: seed.is_multiple_of(2) }
    }

    fn minute(&mut self, minute: i64) {
        let mut lines = String::new();
        for host in 0..12 {
            if self.random.u8(..4) == 0 {
                continue;
            }
            let time_ns = (START_MS + minute * MINUTE_MS + self.random.i64(0..30_000)) * MS_NS;
            let zone = if host % 3 == 0 { String::new() } else { format!(",zone=z{}", host % 3) };
            let mut fields = vec![format!("a={}", self.random.i64(0..9)), format!("flag={}", self.random.bool())];
            if host % 2 == 0 {
                fields.push(format!("b={}i,word=\"w\"", self.random.i64(0..9)));
            }
            // Rows without some of the fields: the last row does not have the last value of each.
            fields.retain(|_| self.random.u8(..5) > 0);
            if !fields.is_empty() {
                writeln!(lines, "m,job=j{},pod=p{host}{zone} {} {time_ns}", host % 4, fields.join(",")).unwrap();
            }
        }
        let (report, errors) = self.db.write_lines("default", lines.as_bytes()).unwrap();
        assert_eq!((report.rejected_total, errors.total), (0, 0));
        self.remote_write(minute);
    }

    fn remote_write(&mut self, minute: i64) {
        let mut all = Vec::new();
        for pod in 0..40 {
            let value = match self.random.u8(..10) {
                0 => f64::from_bits(STALE_NAN_BITS),
                1..4 => continue,
                // Only some are equal to others.
                value => f64::from(value) + if pod % 3 == 0 { 0.0 } else { f64::from(pod) / 64.0 },
            };
            let name = if self.shares_names && pod % 10 == 0 { "m_a" } else { "lone" };
            let pairs = [
                ("__name__", name.to_owned()),
                ("job", format!("j{}", pod % 4)),
                ("pod", format!("p{pod}")),
                ("zone", format!("z{}", pod % 3)),
            ];
            all.push((pairs, [(START_MS + minute * MINUTE_MS + self.random.i64(0..30_000), value)]));
        }
        let labels: Vec<Vec<(&str, &str)>> =
            all.iter().map(|(pairs, _)| pairs.iter().map(|(name, value)| (*name, value.as_str())).collect()).collect();
        let series: Vec<_> =
            all.iter().zip(&labels).map(|((_, samples), labels)| remote_write::Series { labels, samples }).collect();
        let body = remote_write::encode(&series, &[]);
        let hasher = self.db.key_hasher().scope(Protocol::RemoteWrite, self.db.database_id("default").unwrap());
        let options = remote_write::Options { hasher, limits: self.db.limits(), dropped_label: None };
        let request = remote_write::parse(&body, &options).unwrap();
        assert_eq!(self.db.write("default", &request.batch).unwrap().rejected_total, 0);
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.usize(..choices.len())]
    }

    /// The last value of each series at a time, by the samples.
    fn last(&self, selector: &str, time_ms: i64) -> Vec<(Labels, f64)> {
        let expression = self.db.parse(selector).unwrap();
        let range_ms = (time_ms - LOOKBACK_MS + 1, time_ms);
        let series = self.db.samples("default", expression.selectors()[0], range_ms, &Budget::new(1 << 40)).unwrap();
        let last = series.into_iter().filter_map(|series| Some((series.labels, *series.values.last()?)));
        last.filter(|(_, value)| !is_stale_bits(*value)).collect()
    }

    fn check(&mut self) {
        let (selector, (clause, names, is_without)) = (self.pick(&SELECTORS), self.pick(&GROUPINGS));
        let function = self.pick(&["sum", "count", "max", "min"]);
        let time_ms = START_MS + self.random.i64(0..MINUTES * MINUTE_MS);
        let mut expected: BTreeMap<Labels, Vec<f64>> = BTreeMap::new();
        let last = self.last(selector, time_ms);
        for (labels, value) in &last {
            let is_kept = |name: &str| names.contains(&name) != is_without && !(is_without && name == METRIC_NAME);
            expected.entry(labels.retain(is_kept)).or_default().push(*value);
        }
        let aggregated = |values: Vec<f64>| match function {
            "sum" => values.into_iter().sum(),
            "count" => values.len() as f64,
            "max" => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
            _ => values.into_iter().fold(f64::INFINITY, f64::min),
        };
        let expected: BTreeMap<Labels, f64> =
            expected.into_iter().map(|(labels, values)| (labels, aggregated(values))).collect();
        let query = format!("{function} {clause} ({selector})");
        assert_eq!(self.instant(&query, time_ms), expected, "{query} at {time_ms}");
        assert_eq!(self.instant(selector, time_ms), last.into_iter().collect(), "{selector} at {time_ms}");
        // A range function reads all samples of a window.
        let query = format!("count {clause} (last_over_time({selector}[5m]))");
        let mut with_samples: BTreeMap<Labels, f64> = BTreeMap::new();
        for labels in self.with_samples(selector, time_ms) {
            let is_kept = |name: &str| names.contains(&name) != is_without && name != METRIC_NAME;
            *with_samples.entry(labels.retain(is_kept)).or_default() += 1.0;
        }
        assert_eq!(self.instant(&query, time_ms), with_samples, "{query} at {time_ms}");
    }

    /// The series that have a sample, no stale marker, in the lookback.
    fn with_samples(&self, selector: &str, time_ms: i64) -> Vec<Labels> {
        let expression = self.db.parse(selector).unwrap();
        let range_ms = (time_ms - LOOKBACK_MS + 1, time_ms);
        let series = self.db.samples("default", expression.selectors()[0], range_ms, &Budget::new(1 << 40)).unwrap();
        let has_sample = |series: &query::Series| series.values.iter().any(|value| !is_stale_bits(*value));
        series.into_iter().filter(has_sample).map(|series| series.labels).collect()
    }

    /// `or` keeps `topk` from comparing series by their numbers alone.
    fn check_topk(&mut self) {
        let time_ms = START_MS + self.random.i64(0..MINUTES * MINUTE_MS);
        let (operation, selector) = (self.pick(&["topk", "bottomk"]), self.pick(&SELECTORS));
        let (count, function) = (self.random.u8(0..6), self.pick(&["", "max_over_time", "rate", "last_over_time"]));
        let input = if function.is_empty() { selector.to_owned() } else { format!("{function}({selector}[5m])") };
        let [by_number, whole] = [input.clone(), format!("{input} or no_such_metric")]
            .map(|input| self.samples(&format!("{operation}({count}, {input})"), time_ms));
        assert_eq!(by_number, whole, "{operation}({count}, {input}) at {time_ms}");
    }

    /// `or` on one side has the operator read whole labels.
    fn check_join(&mut self) {
        let time_ms = START_MS + self.random.i64(0..MINUTES * MINUTE_MS);
        let function = self.pick(&["sum", "count", "max", "min"]);
        let clause = self.pick(&["", "by (job)", "by (zone)", "by (pod, job)", "by (none)"]);
        let (left, right) = (self.pick(&["lone", "m_a", "m_b"]), self.pick(&["lone", "m_a", "m_flag"]));
        let matching = self.pick(&[
            "on (pod)",
            "on (pod) group_left",
            "on (pod) group_left (zone)",
            "on (pod) group_right (job)",
            "on (job, pod) group_left (none)",
            "on (job)",
            "on (job) group_left",
            "ignoring (zone)",
        ]);
        let operator = self.pick(&["*", "+", "-"]);
        let [by_number, whole] = [left.to_owned(), format!("({left} or no_such_metric)")].map(|left| {
            let samples = self.samples(&format!("{function} {clause} ({left} {operator} {matching} {right})"), time_ms);
            samples.map(|samples| samples.into_iter().collect::<BTreeMap<_, _>>())
        });
        assert_eq!(by_number, whole, "{function} {clause} ({left} {operator} {matching} {right}) at {time_ms}");
    }

    fn instant(&self, text: &str, time_ms: i64) -> BTreeMap<Labels, f64> {
        self.samples(text, time_ms).unwrap().into_iter().collect()
    }

    /// The samples of an answer, in its order.
    fn samples(&self, text: &str, time_ms: i64) -> Result<Vec<(Labels, f64)>, QueryError> {
        let query = InstantQuery { may_cache: false, ..InstantQuery::new(text, time_ms) };
        let answer = self.db.instant("default", &query)?;
        let ResultValue::Vector(vector) = answer.value else { panic!("{text}") };
        Ok(vector.into_iter().map(|sample| (sample.labels, sample.value)).collect())
    }

    fn check_names(&mut self) {
        let selector = self.pick(&SELECTORS);
        let expression = self.db.parse(selector).unwrap();
        let matchers = vec![expression.selectors()[0].to_vec()];
        let budget = Budget::new(1 << 40);
        let range = TimeRange::new(START_MS * MS_NS, (START_MS + MINUTES * MINUTE_MS) * MS_NS);
        let series = self.db.samples("default", &matchers[0], (START_MS, START_MS + MINUTES * MINUTE_MS), &budget);
        let series = series.unwrap();
        let names: BTreeSet<&str> =
            series.iter().flat_map(|series| series.labels.iter().map(|(name, _)| name)).collect();
        let found = self.db.label_names("default", &matchers, range, 0, &budget).unwrap();
        assert!(found.iter().map(String::as_str).eq(names), "{selector}: {found:?}");
        for name in [METRIC_NAME, "job", "pod", "zone", "none"] {
            let values: BTreeSet<&str> = series.iter().filter_map(|series| series.labels.get(name)).collect();
            let mut found = self.db.label_values("default", name, &matchers, range, 0, &budget).unwrap();
            // Texts are no series of PromQL, but names all the same.
            found.retain(|value| value != "m_word");
            assert!(found.iter().map(String::as_str).eq(values), "{selector} {name}: {found:?}");
        }
    }
}

#[test]
fn selections_say_what_the_samples_say() {
    for seed in 1..=3 {
        let mut world = World::new(seed);
        for minute in 0..MINUTES {
            world.minute(minute);
            match world.random.u8(..30) {
                0 => world.db.compact_all().unwrap(),
                1 => {
                    let matcher = Matcher::new("pod", MatchOp::Equal, "p5");
                    let start_ns = (START_MS + world.random.i64(0..=minute) * MINUTE_MS) * MS_NS;
                    let range = TimeRange::new(start_ns, start_ns + 5 * MINUTE_MS * MS_NS);
                    world.db.delete("default", &[vec![matcher]], &range).unwrap();
                }
                2..8 => (0..20).for_each(|_| world.check()),
                _ => {}
            }
        }
        (0..200).for_each(|_| world.check());
        (0..200).for_each(|_| world.check_topk());
        (0..120).for_each(|_| world.check_join());
        (0..20).for_each(|_| world.check_names());
    }
}

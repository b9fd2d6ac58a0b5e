//! What PromQL's windows tell is the same to the bit whether it comes from summaries or from samples: random series, written in and out of
//! order, deleted from, merged or not, and every answer compared with one that is made of all samples.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ingest::{Protocol, remote_write};
use model::{Labels, MatchOp, Matcher, STALE_NAN_BITS, TimeRange, is_stale_bits};
use platform::sim::Simulation;
use promql::ResultValue;
use query::Budget;
use thalweg_db::{Db, DbOptions, InstantQuery, RangeQuery};

const MS_NS: i64 = 1_000_000;
const SECOND_MS: i64 = 1000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
/// 2016-01-01T00:00:00Z.
const START_MS: i64 = 1_451_606_400_000;
const ROWS: i64 = 4_000;
const INTERVAL_MS: i64 = 30 * SECOND_MS;
const CHECKS: usize = 250;

const FUNCTIONS: [&str; 5] =
    ["max_over_time", "min_over_time", "count_over_time", "present_over_time", "last_over_time"];
const METRICS: [&str; 8] = [
    "m_regular",
    "m_jitter",
    "m_counter",
    "m_fine",
    "m_flag",
    "m_word",
    "scraped",
    "{__name__=~\"m_regular|m_counter\"}",
];
const LENGTHS: [&str; 7] = ["10m", "20m", "30m", "1h", "90m", "3h", "6h"];
const LENGTHS_MINUTES: [i64; 7] = [10, 20, 30, 60, 90, 180, 360];

struct World {
    db: Db,
    random: fastrand::Rng,
}

impl World {
    fn new(seed: u64) -> Self {
        let simulation = Simulation::new(seed);
        simulation.advance_ns((START_MS + ROWS * INTERVAL_MS) * MS_NS);
        let mut options = DbOptions::new("/data");
        options.store.node_rows_min = 8;
        options.store.head_bytes_max = 256 << 10;
        Self { db: Db::open(simulation.platform(), options).unwrap(), random: fastrand::Rng::with_seed(seed) }
    }

    /// Every field at about the same times, but each in a group of its own; few values, so that many are equal.
    fn row(&mut self, row: i64) -> String {
        let time_ms = START_MS + row * INTERVAL_MS;
        let small = self.random.i64(-3..9);
        let [regular_ns, jitter_ns] = [0, self.random.i64(0..20_000)].map(|late_ms| (time_ms + late_ms) * MS_NS);
        let fine_ns = regular_ns + self.random.i64(0..20) * 300_000;
        let regular = if small == 7 { "-0".to_owned() } else { format!("{small}.5") };
        let mut lines = format!(
            "m,of=regular regular={regular} {regular_ns}\nm,of=jitter jitter={small} {jitter_ns}\n\
             m,of=counter counter={row}i {regular_ns}\nm,of=flag flag={} {regular_ns}\n\
             m,of=word word=\"w\" {regular_ns}\n",
            small > 0
        );
        for near_ns in [fine_ns, fine_ns + 400_000] {
            writeln!(lines, "m,of=fine fine={} {near_ns}", self.random.i64(0..9)).unwrap();
        }
        lines
    }

    fn write(&self, lines: &str) {
        let (report, errors) = self.db.write_lines("default", lines.as_bytes()).unwrap();
        assert_eq!((report.rejected_total, errors.total), (0, 0));
    }

    /// A series with stale markers and numbers that are none.
    fn scrape(&mut self) {
        let sample = |random: &mut fastrand::Rng, row: i64| {
            let value = match random.u8(..12) {
                0 => f64::from_bits(STALE_NAN_BITS),
                1 | 2 => f64::NAN,
                value => f64::from(value),
            };
            (START_MS + row * INTERVAL_MS, value)
        };
        let samples: Vec<(i64, f64)> = (0..ROWS).map(|row| sample(&mut self.random, row)).collect();
        let labels = [("__name__", "scraped"), ("job", "a")];
        let body = remote_write::encode(&[remote_write::Series { labels: &labels, samples: &samples }], &[]);
        let hasher = self.db.key_hasher().scope(Protocol::RemoteWrite, self.db.database_id("default").unwrap());
        let options = remote_write::Options { hasher, limits: self.db.limits(), dropped_label: None };
        let request = remote_write::parse(&body, &options).unwrap();
        assert_eq!(self.db.write("default", &request.batch).unwrap().rejected_total, 0);
    }

    fn fill(&mut self) {
        self.scrape();
        // Summaries of the first half stay what they are.
        let mut late: Vec<i64> = (ROWS / 2..ROWS).filter(|_| self.random.u8(..40) == 0).collect();
        for first in (0..ROWS).step_by(500) {
            let rows: Vec<i64> = (first..first + 500).filter(|row| !late.contains(row)).collect();
            let lines: String = rows.into_iter().map(|row| self.row(row)).collect();
            self.write(&lines);
        }
        self.db.compact_all().unwrap();
        late.retain(|_| self.random.bool());
        let lines: String = late.into_iter().map(|row| self.row(row)).collect();
        self.write(&lines);
        let deleted_ns = (START_MS + self.random.i64(ROWS / 2..ROWS) * INTERVAL_MS) * MS_NS;
        let matcher = Matcher::new("__name__", MatchOp::Equal, "m_regular");
        self.db.delete("default", &[vec![matcher]], &TimeRange::new(deleted_ns, deleted_ns + 600_000 * MS_NS)).unwrap();
    }

    fn pick<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.random.usize(..texts.len())]
    }

    fn query(&mut self) -> (RangeQuery, &'static str, &'static str, i64) {
        let (function, metric) = (self.pick(&FUNCTIONS), self.pick(&METRICS));
        let length = self.random.usize(..LENGTHS.len());
        let text = format!("{function}({metric}[{}])", LENGTHS[length]);
        let step_ms = LENGTHS_MINUTES[self.random.usize(..LENGTHS.len())] * MINUTE_MS;
        let off_ms = [0, 0, 0, 1, 7 * SECOND_MS][self.random.usize(..5)];
        let start_ms = START_MS + self.random.i64(0..200) * 10 * MINUTE_MS + off_ms;
        let end_ms = start_ms + self.random.i64(0..50) * step_ms;
        let InstantQuery { lookback_ms, budget, .. } = InstantQuery::new("", 0);
        let name_removal = Some(promql::NameRemoval::Delayed);
        let query = RangeQuery { text, start_ms, end_ms, step_ms, lookback_ms, name_removal, may_cache: false, budget };
        (query, function, metric, LENGTHS_MINUTES[length] * MINUTE_MS)
    }

    /// Compares one answer, and says how many nodes it was made of.
    fn check(&mut self) -> u64 {
        let (query, function, metric, range_ms) = self.query();
        let expression = self.db.parse(metric).unwrap();
        let budget = Budget::new(1 << 40);
        let selected = (query.start_ms - range_ms + 1, query.end_ms);
        let series = self.db.samples("default", expression.selectors()[0], selected, &budget).unwrap();
        let mut expected: BTreeMap<Labels, Vec<(i64, u64)>> = BTreeMap::new();
        for series in series {
            let samples: Vec<(i64, f64)> = series.timestamps_ms.iter().copied().zip(series.values).collect();
            let values = (query.start_ms..=query.end_ms).step_by(query.step_ms as usize).filter_map(|end_ms| {
                let inside = samples.iter().filter(|(time_ms, _)| *time_ms > end_ms - range_ms && *time_ms <= end_ms);
                let inside = inside.map(|(_, value)| *value).filter(|value| !is_stale_bits(*value));
                Some((end_ms, of_samples(function, &inside.collect::<Vec<f64>>())?.to_bits()))
            });
            let values: Vec<(i64, u64)> = values.collect();
            let keeps_name = function == "last_over_time";
            let labels = series.labels.retain(|name| keeps_name || name != "__name__");
            if !values.is_empty() {
                expected.insert(labels, values);
            }
        }
        let analysis = self.db.analyze_range("default", &query).unwrap();
        let ResultValue::Matrix(found) = analysis.answer.value else { panic!("{}", query.text) };
        let bits = |floats: Vec<(i64, f64)>| floats.into_iter().map(|(time_ms, value)| (time_ms, value.to_bits()));
        let found = found.into_iter().map(|(labels, points)| (labels, bits(points.floats).collect()));
        let found: BTreeMap<Labels, Vec<(i64, u64)>> = found.collect();
        let RangeQuery { text, start_ms, end_ms, step_ms, .. } = query;
        assert_eq!(found, expected, "{text} from {start_ms} to {end_ms} by {step_ms}");
        analysis.reads.nodes
    }
}

fn of_samples(function: &str, values: &[f64]) -> Option<f64> {
    let (first, rest) = values.split_first()?;
    let extreme = |better: fn(f64, f64) -> bool| {
        rest.iter().fold(*first, |best, value| if better(*value, best) || best.is_nan() { *value } else { best })
    };
    Some(match function {
        "max_over_time" => extreme(|value, best| value > best),
        "min_over_time" => extreme(|value, best| value < best),
        "count_over_time" => values.len() as f64,
        "present_over_time" => 1.0,
        _ => *values.last()?,
    })
}

#[test]
fn windows_from_summaries_are_those_of_samples() {
    for seed in 1..=2 {
        let mut world = World::new(seed);
        world.fill();
        let nodes: Vec<u64> = (0..CHECKS).map(|_| world.check()).collect();
        let used = nodes.iter().filter(|nodes| **nodes > 0).count();
        assert!(used > CHECKS / 10, "summaries stood for samples in {used} of {CHECKS} queries");
    }
}

//! What PromQL gives by views is what it gives by samples, whatever was written, deleted, refreshed and restarted in between.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use access::scope::Scope;
use db::{Db, DbOptions, InstantQuery, RangeQuery};
use ingest::{Protocol, remote_write};
use model::{MatchOp, Matcher, STALE_NAN_BITS, TimeRange};
use platform::sim::Simulation;
use promql::ResultValue;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use query::{Budget, ViewUse};
use sql::ClientContext;
use thalweg_views::{RefreshLimits, Refresher};

const SECOND_NS: i64 = 1_000_000_000;
const DATABASE: &str = "default";

/// Samples lie on multiples of this, and so on the edges of all windows.
const INTERVAL_S: i64 = 5;

const VIEWS: [&str; 5] = [
    "CREATE MATERIALIZED VIEW by_host AS SELECT time_bucket('1 minute', time, INTERVAL '1 nanosecond') AS b, h, sum(v) AS s, count(v) AS n, min(v) AS lo, max(v) AS hi FROM m GROUP BY b, h",
    "CREATE MATERIALIZED VIEW wide AS SELECT time_bucket('5 minutes', time, INTERVAL '1 millisecond') AS b, sum(v) AS s, max(v) AS hi, count(*) AS n FROM m GROUP BY b",
    "CREATE MATERIALIZED VIEW each AS SELECT time_bucket('1 minute', time, INTERVAL '1 microsecond') AS b, h, u, avg(v) AS mean FROM m GROUP BY b, h, u",
    "CREATE MATERIALIZED VIEW whole AS SELECT time_bucket('1 minute', time, INTERVAL '1 nanosecond') AS b, h, sum(i) AS s, count(i) AS n, min(i) AS lo, max(i) AS hi FROM m GROUP BY b, h",
    "CREATE MATERIALIZED VIEW by_job AS SELECT time_bucket('1 minute', time, INTERVAL '1 nanosecond') AS b, job, sum(value) AS s, count(value) AS n, min(value) AS lo, max(value) AS hi FROM scraped GROUP BY b, job",
];

/// Columns of the views, with the widths of their windows in milliseconds.
const COLUMNS: [(&str, &str, i64); 6] = [
    ("by_host", "s", 60_000),
    ("by_host", "n", 60_000),
    ("wide", "n", 300_000),
    ("each", "mean", 60_000),
    ("whole", "lo", 60_000),
    ("by_job", "hi", 60_000),
];

/// How long after their end windows are to be stored.
const LAG_MS: i64 = 60_000;

/// A function of a range, and what it is of the values.
type OverTime = (&'static str, fn(&[f64]) -> f64);

const SUM: OverTime = ("sum", |values| values.iter().sum());
const COUNT: OverTime = ("count", |values| values.len() as f64);
const MAX: OverTime = ("max", |values| values.iter().copied().fold(f64::NAN, f64::max));

/// Host, unit, how many intervals ago, the fields `v` and `i`.
type Row = (u8, u8, i64, Option<i8>, i64);

#[derive(Debug, Clone)]
enum Step {
    Write(Vec<Row>),
    /// Of an instance, from so many intervals ago on, what it had; none is a stale marker, and what is too large is no number.
    Scrape(u8, i64, Vec<Option<u8>>),
    /// A time that is no whole millisecond, so many nanoseconds after one.
    Fine(i64, i64),
    /// A host, how many intervals ago, and how many intervals long.
    Delete(u8, i64, i64),
    Advance(i64),
    Pass,
    Settle,
    Compact,
    Restart,
    Crash,
    /// Asks, by this seed.
    Ask(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let row = |ago: std::ops::Range<i64>| (0u8..4, 0u8..2, ago, prop::option::of(any::<i8>()), -5i64..5);
    prop_oneof![
        6 => prop::collection::vec(row(0..10), 1..30).prop_map(Step::Write),
        4 => prop::collection::vec(row(0..700), 1..30).prop_map(Step::Write),
        4 => (0u8..3, 0i64..700, prop::collection::vec(prop::option::weighted(0.8, any::<u8>()), 1..40))
            .prop_map(|(instance, ago, values)| Step::Scrape(instance, ago, values)),
        1 => (0i64..700, prop_oneof![1i64..1_000_000, Just(1), Just(999_999)]).prop_map(|(ago, ns)| Step::Fine(ago, ns)),
        1 => (0u8..4, 0i64..700, 0i64..100).prop_map(|(host, ago, length)| Step::Delete(host, ago, length)),
        4 => (1i64..400).prop_map(Step::Advance),
        3 => Just(Step::Pass),
        5 => Just(Step::Settle),
        1 => Just(Step::Compact),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
        8 => any::<u64>().prop_map(Step::Ask),
    ]
}

/// Chooses what is asked.
struct Chance(u64);

impl Chance {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % below as u64) as usize
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// A query of PromQL: an expression and its times.
#[derive(Debug, Clone)]
struct Query {
    text: String,
    start_ms: i64,
    step_ms: i64,
    steps: i64,
}

impl Query {
    fn new(chance: &mut Chance, now_ms: i64) -> Self {
        const MINUTE_MS: i64 = 60_000;
        let metric = chance.of(&["m_v", "m_v", "m_i", "scraped"]);
        let by = match metric {
            "scraped" => chance.of(&[" by (job)", "", " without (instance)", " by (job, none)"]),
            _ => chance.of(&[" by (h)", " by (h)", "", " without (u)", " by (u, h)"]),
        };
        let matchers = match metric {
            "scraped" => chance.of(&["", "{job=\"a\"}", "{job!~\"b|c\"}", "{instance=\"0\"}"]),
            _ => chance.of(&["", "", "{h=\"h1\"}", "{h=~\"h[01]\"}", "{h!=\"h0\"}", "{u=\"u1\"}", "{none=\"\"}"]),
        };
        let range = chance.of(&["1m", "1m", "2m", "5m", "10m", "15m", "90s", "30s"]);
        let shift =
            chance.of(&["", "", "", " offset 1m", " offset 5m", " offset -1m", " offset 7s", " @ end()", " @ start()"]);
        let function = |name: &str| format!("{name}_over_time({metric}{matchers}[{range}]{shift})");
        let text = match chance.below(9) {
            0 | 1 => format!("sum{by} ({})", function("sum")),
            2 => format!("sum{by} ({})", function("count")),
            3 => format!("min{by} ({})", function("min")),
            4 => format!("max{by} ({})", function("max")),
            5 => format!("max{by} ({})", function("present")),
            6 => format!("sum{by} ({}) / sum{by} ({})", function("sum"), function("count")),
            7 => function(chance.of(&["sum", "avg"])),
            _ => format!("{}{by} ({})", chance.of(&["sum", "max", "count"]), function("avg")),
        };
        let minutes = |count: i64| count * MINUTE_MS;
        let step_ms = chance.of(&[minutes(1), minutes(1), minutes(5), minutes(2), minutes(15), 30_000, 7_000]);
        let off_ms = chance.of(&[0, 0, 0, 0, 0, 1, -1, 5_000]);
        let grid_ms = chance.of(&[minutes(1), minutes(5)]);
        let ago_ms = minutes(chance.below(70) as i64);
        let start_ms = (now_ms - ago_ms) / grid_ms * grid_ms + off_ms;
        let steps = chance.of(&[1, 1, 2, 5, 20]);
        Self { text, start_ms, step_ms, steps }
    }
}

/// Series by their labels: milliseconds and values.
type Answer = BTreeMap<String, Vec<(i64, f64)>>;

struct World {
    simulation: Simulation,
    db: Option<Arc<Db>>,
    refresher: Option<Refresher>,
}

impl World {
    fn new() -> Self {
        let mut world = Self { simulation: Simulation::new(23), db: None, refresher: None };
        world.open();
        world.write(&[(0, 0, 600, Some(1), 1), (1, 0, 2, None, 2)]);
        world.scrape(0, 600, &[Some(1)]);
        VIEWS.iter().for_each(|view| world.sql(view));
        world
    }

    fn open(&mut self) {
        let db = Arc::new(Db::open(self.simulation.platform(), DbOptions::new("/data")).unwrap());
        let limits = RefreshLimits { dirty_max: 40, pieces_max: 4, ..RefreshLimits::default() };
        self.refresher = Some(Refresher::new(db.clone(), limits));
        self.db = Some(db);
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn sql(&self, text: &str) {
        let parsed = sql::parse(text).unwrap();
        let client = ClientContext::new(DATABASE, self.db().now_ns());
        self.db().sql(&parsed, 0, &client, &Arc::new(Budget::new(1_000_000))).unwrap();
    }

    /// The time so many intervals ago, on a multiple of the interval.
    fn ago_ns(&self, intervals: i64) -> i64 {
        (self.db().now_ns() / SECOND_NS / INTERVAL_S - intervals) * INTERVAL_S * SECOND_NS
    }

    fn write(&self, rows: &[Row]) {
        let mut lines = String::new();
        for (host, unit, ago, v, i) in rows {
            let v = v.map(|v| format!(",v={v}.25")).unwrap_or_default();
            writeln!(lines, "m,h=h{host},u=u{unit} i={i}i{v} {}", self.ago_ns(*ago)).unwrap();
        }
        self.write_lines(&lines);
    }

    fn write_lines(&self, lines: &str) {
        let (report, errors) = self.db().write_lines(DATABASE, lines.as_bytes()).unwrap();
        assert!(errors.is_empty() && report.rejected_total == 0, "{errors:?}");
    }

    fn scrape(&self, instance: u8, ago: i64, values: &[Option<u8>]) {
        let sample = |(place, value): (usize, &Option<u8>)| {
            let value = match value {
                None => f64::from_bits(STALE_NAN_BITS),
                Some(250) => f64::NAN,
                Some(251) => f64::INFINITY,
                Some(252) => f64::NEG_INFINITY,
                Some(value) => f64::from(*value),
            };
            (self.ago_ns(ago - place as i64) / 1_000_000, value)
        };
        let values = values.iter().take(ago as usize + 1).enumerate();
        let samples: Vec<(i64, f64)> = values.map(sample).collect();
        let (job, instance) = (if instance == 2 { "b" } else { "a" }, instance.to_string());
        let labels = [("__name__", "scraped"), ("instance", &*instance), ("job", job)];
        let body = remote_write::encode(&[remote_write::Series { labels: &labels, samples: &samples }], &[]);
        let database = self.db().database_id(DATABASE).unwrap();
        let hasher = self.db().key_hasher().scope(Protocol::RemoteWrite, database);
        let options = remote_write::Options { hasher, limits: self.db().limits(), dropped_label: None };
        let request = remote_write::parse(&body, &options).unwrap();
        assert_eq!(self.db().write(DATABASE, &request.batch).unwrap().rejected_total, 0);
    }

    fn pass(&mut self) -> bool {
        self.refresher.as_mut().unwrap().pass().unwrap()
    }

    fn reopen(&mut self, between: impl FnOnce(&Simulation)) {
        self.refresher = None;
        self.db = None;
        between(&self.simulation);
        self.open();
    }

    /// Returns how many queries were asked, how many of these a view has answered, and how many named a view.
    fn apply(&mut self, step: &Step) -> [u64; 3] {
        match step {
            Step::Write(rows) => self.write(rows),
            Step::Scrape(instance, ago, values) => self.scrape(*instance, *ago, values),
            Step::Fine(ago, ns) => self.write_lines(&format!("m,h=h0,u=u0 v=1 {}", self.ago_ns(*ago) + ns)),
            Step::Delete(host, ago, length) => {
                let range = TimeRange::new(self.ago_ns(*ago), self.ago_ns(ago - length));
                let matcher = Matcher::new("h", MatchOp::Equal, format!("h{host}"));
                let matchers = vec![matcher, Matcher::new("__name__", MatchOp::Regex, "m_.")];
                self.db().delete(DATABASE, &[matchers], &range).unwrap();
            }
            Step::Advance(seconds) => self.simulation.advance_ns(seconds * SECOND_NS),
            Step::Pass => drop(self.pass()),
            Step::Settle => {
                let passes = (0..200).take_while(|_| self.pass()).count();
                assert!(passes < 200, "refreshing does not end");
                self.pass();
            }
            Step::Compact => drop(self.db().compact(&mut |_| {}).unwrap()),
            Step::Restart => {
                self.refresher.as_mut().unwrap().save().unwrap();
                self.db().close().unwrap();
                self.reopen(|_| {});
            }
            Step::Crash => self.reopen(Simulation::crash),
            Step::Ask(seed) => return self.ask(*seed),
        }
        [0; 3]
    }

    fn ask(&self, seed: u64) -> [u64; 3] {
        const QUERIES: u64 = 8;
        let mut chance = Chance(seed);
        let answered = (0..QUERIES).filter(|_| {
            let query = Query::new(&mut chance, self.db().now_ns() / 1_000_000);
            let [(by_view, is_used), (by_samples, is_forbidden)] =
                [ViewUse::All, ViewUse::Named].map(|view_use| self.answer(&query, using(view_use), false));
            assert!(!is_forbidden, "{query:?}");
            assert!(are_close(&by_view, &by_samples), "{query:?}: {by_view:?}, not {by_samples:?}");
            // What is kept of either is the answer of both.
            let (kept, _) = self.answer(&query, using(chance.of(&[ViewUse::All, ViewUse::Named])), true);
            assert!(are_close(&kept, &by_samples), "{query:?}: {kept:?}, not {by_samples:?}");
            is_used
        });
        let answered = answered.count() as u64;
        [QUERIES, answered, self.ask_views(&mut chance)]
    }

    /// Asks for columns of views by their names: what the windows that are over have, whatever is stored of them.
    /// Returns how often.
    fn ask_views(&self, chance: &mut Chance) -> u64 {
        // While the clock is not trusted windows that are stored may not be due.
        if self.db().window_now_ns() < self.db().now_ns() {
            return 0;
        }
        let now_ms = self.db().now_ns() / 1_000_000;
        for _ in 0..4 {
            let (view, column, width_ms) = chance.of(&COLUMNS);
            // What is stored stays, also where the clock goes back.
            let stored_ns = self.db().view(DATABASE, view).unwrap().state.watermark_ns.saturating_sub(1);
            let due_ns = self.db().window_now_ns() - (width_ms + LAG_MS) * 1_000_000;
            let windows = self.windows_over(view, column, due_ns.max(stored_ns));
            let metric = chance.of(&[format!("{view}_{column}"), format!("{{__name__=~\"{view}_{column}|none\"}}")]);
            let (function, of_values) = chance.of(&[SUM, COUNT, MAX]);
            let query = Query {
                text: format!("{function}_over_time({metric}[10m])"),
                start_ms: (now_ms / 60_000 - chance.below(70) as i64) * 60_000,
                step_ms: 60_000,
                steps: chance.of(&[1, 2, 5, 70]),
            };
            let mut expected = Answer::new();
            for (labels, values) in &windows {
                for time_ms in (0..query.steps).map(|step| query.start_ms + step * query.step_ms) {
                    let inside = values.range(time_ms - 599_999..=time_ms).map(|(_, value)| *value);
                    let inside: Vec<f64> = inside.collect();
                    if !inside.is_empty() {
                        expected.entry(labels.clone()).or_default().push((time_ms, of_values(&inside)));
                    }
                }
            }
            for may_cache in [false, true, true] {
                let (found, _) = self.answer(&query, using(chance.of(&[ViewUse::All, ViewUse::Named])), may_cache);
                assert!(are_close(&found, &expected), "{query:?} {may_cache} at {now_ms}: {found:?}, not {expected:?}");
            }
        }
        4
    }

    /// The values of a view's column as a plan reads them, by labels and milliseconds: of windows that begin no later than a time.
    fn windows_over(&self, view: &str, column: &str, last_ns: i64) -> BTreeMap<String, BTreeMap<i64, f64>> {
        let plan = query::parse(&format!("(->> (rows-of \"{view}\"))"), 0).unwrap();
        let mut windows: BTreeMap<String, BTreeMap<i64, f64>> = BTreeMap::new();
        for frame in self.db().run_plan(DATABASE, &plan, &using(ViewUse::Named)).unwrap().frames {
            let Some(cells) = frame.column(column) else { continue };
            for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
                let time_ms = time_ns.div_euclid(1_000_000);
                if let Some(value) = cells.cell(row).number().filter(|_| *time_ns <= last_ns) {
                    windows.entry(format!("{:?}", frame.labels)).or_default().insert(time_ms, value);
                }
            }
        }
        windows
    }

    /// The answer, and whether a view gave a part of it.
    fn answer(&self, query: &Query, budget: Budget, may_cache: bool) -> (Answer, bool) {
        let budget = Arc::new(budget);
        let analysis = if query.steps == 1 {
            let asked = InstantQuery { may_cache, budget, ..InstantQuery::new(&query.text, query.start_ms) };
            self.db().analyze_instant(DATABASE, &asked)
        } else {
            let asked = RangeQuery {
                text: query.text.clone(),
                start_ms: query.start_ms,
                end_ms: query.start_ms + (query.steps - 1) * query.step_ms,
                step_ms: query.step_ms,
                lookback_ms: None,
                name_removal: None,
                may_cache,
                budget,
            };
            self.db().analyze_range(DATABASE, &asked)
        };
        let analysis = analysis.unwrap();
        let is_used = analysis.steps.iter().any(|step| step.step == "view");
        assert!(!is_used || analysis.plan.contains("(viewed "), "{}", analysis.plan);
        let mut answer = Answer::new();
        match &analysis.answer.value {
            ResultValue::Vector(samples) => {
                for sample in samples {
                    answer.insert(format!("{:?}", sample.labels), vec![(query.start_ms, sample.value)]);
                }
            }
            ResultValue::Matrix(series) => {
                for (labels, points) in series {
                    answer.insert(format!("{labels:?}"), points.floats.clone());
                }
            }
            other => panic!("{other:?}"),
        }
        (answer, is_used)
    }
}

fn using(view_use: ViewUse) -> Budget {
    let budget = Budget::new(10_000_000);
    budget.use_views(view_use);
    budget
}

/// Returns whether answers are equal but for what rounding makes of them.
fn are_close(a: &Answer, b: &Answer) -> bool {
    let is_close = |((a_ms, a), (b_ms, b)): (&(i64, f64), &(i64, f64))| {
        let is_same = a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        a_ms == b_ms && (is_same || (a - b).abs() <= 1e-9 * (1.0 + b.abs()))
    };
    let are_points = |a: &[(i64, f64)], b: &[(i64, f64)]| a.len() == b.len() && a.iter().zip(b).all(is_close);
    a.len() == b.len() && a.iter().all(|(labels, a)| b.get(labels).is_some_and(|b| are_points(a, b)))
}

#[test]
fn an_account_with_rights_on_a_label_reads_its_part_by_views() {
    let mut world = World::new();
    let rows: Vec<Row> = (0..300).map(|ago| ((ago % 3) as u8, 0, ago, Some((ago % 50) as i8), ago)).collect();
    world.write(&rows);
    world.apply(&Step::Advance(600));
    world.apply(&Step::Settle);
    let grants = vec!["read:default{h=\"h1\"}".parse().unwrap()];
    let scope = Arc::new(Scope { is_server_admin: false, grants, ..Scope::clone(&Scope::open()) });
    let start_ms = world.db().now_ns() / 60_000_000_000 * 60_000 - 1_500_000;
    let asked = |text: &str, budget: Budget, may_cache: bool| {
        let query = Query { text: text.to_owned(), start_ms, step_ms: 60_000, steps: 20 };
        world.answer(&query, budget, may_cache)
    };
    for text in ["sum(sum_over_time(m_v[5m]))", "max by (h) (max_over_time(m_v[1m]))", "sum_over_time(m_v[1m])"] {
        let (all, is_used) = asked(text, using(ViewUse::All), true);
        assert!(is_used, "{text}");
        let (part, is_used) = asked(text, using(ViewUse::All).for_scope(scope.clone()), true);
        // By a view that has the label.
        assert!(is_used, "{text}");
        let (by_samples, _) = asked(text, using(ViewUse::Named).for_scope(scope.clone()), false);
        assert!(are_close(&part, &by_samples) && !are_close(&part, &all), "{text}: {part:?}, not {by_samples:?}");
    }
}

#[test]
fn views_do_not_answer_for_metrics_and_ranges_that_are_not_theirs() {
    let mut world = World::new();
    let rows: Vec<Row> = (0..300).map(|ago| ((ago % 3) as u8, 0, ago, Some((ago % 50) as i8), ago)).collect();
    world.write(&rows);
    world.apply(&Step::Advance(600));
    world.apply(&Step::Settle);
    let start_ms = world.db().now_ns() / 60_000_000_000 * 60_000 - 1_500_000;
    let is_used = |text: &str, off_ms: i64, step_ms: i64| {
        let query = Query { text: text.to_owned(), start_ms: start_ms + off_ms, step_ms, steps: 5 };
        world.answer(&query, using(ViewUse::All), false).1
    };
    let minute = "sum by (h) (sum_over_time(m_v[1m]))";
    assert!(is_used(minute, 0, 60_000));
    assert!(is_used("sum(sum_over_time({__name__=\"m_v\"}[2m] offset 3m)) / 2", 0, 60_000));
    for (text, off_ms, step_ms) in [
        (minute, 1, 60_000),
        (minute, 0, 30_000),
        ("sum by (h) (sum_over_time(m_v[90s]))", 0, 60_000),
        ("sum by (h) (sum_over_time(m_v[1m] offset 1s))", 0, 60_000),
        ("sum by (u) (sum_over_time(m_i[1m]))", 0, 60_000),
        ("sum by (h) (sum_over_time(m_i{u=\"u0\"}[1m]))", 0, 60_000),
        ("sum by (h) (max_over_time(m_v[1m]))", 0, 60_000),
        ("sum by (h) (sum_over_time({__name__=~\"m_v\"}[1m]))", 0, 60_000),
        ("sum by (h) (increase(m_v[1m]))", 0, 60_000),
    ] {
        assert!(!is_used(text, off_ms, step_ms), "{text} {off_ms} {step_ms}");
    }
    // Of two tables.
    world.write_lines(&format!("m_v,h=h1 value=1 {}", world.ago_ns(1)));
    assert!(!is_used(minute, 0, 60_000));
}

/// The answer of a query at 20 moments, a minute from one to the next, the last of them some minutes ago, and how many of them were kept.
fn asked_by_minute(world: &World, text: &str) -> (Vec<(i64, f64)>, u64) {
    let start_ms = world.db().now_ns() / 60_000_000_000 * 60_000 - 1_380_000;
    let asked = RangeQuery {
        text: text.to_owned(),
        start_ms,
        end_ms: start_ms + 19 * 60_000,
        step_ms: 60_000,
        lookback_ms: None,
        name_removal: None,
        may_cache: true,
        budget: Arc::new(using(ViewUse::All)),
    };
    let (answer, used) = world.db().range_with_cache_use(DATABASE, &asked).unwrap();
    let ResultValue::Matrix(series) = answer.value else { panic!("no matrix") };
    (series[0].1.floats.clone(), used.from_memory)
}

#[test]
fn windows_that_are_computed_are_not_kept() {
    let mut world = World::new();
    let rows: Vec<Row> = (0..300).map(|ago| (0, 0, ago, Some((ago % 50) as i8), ago)).collect();
    world.write(&rows);
    world.apply(&Step::Advance(600));
    world.apply(&Step::Settle);
    let text = "sum_over_time(by_host_s[2m])";
    let (stored, _) = asked_by_minute(&world, text);
    let (_, kept) = asked_by_minute(&world, text);
    assert!(stored.len() > 10 && kept > 8, "{stored:?} {kept}");
    // Another value in the place of one of a window that is stored, and then that one again: nothing is to be written.
    let replace = |value: &str| world.write_lines(&format!("m,h=h0,u=u0 v={value} {}", world.ago_ns(210)));
    let written = format!("{}.25", (210 - 120) % 50);
    replace("1000");
    let (changed, kept_then) = asked_by_minute(&world, text);
    let different = changed.iter().zip(&stored).filter(|(a, b)| a != b).count();
    // Steps that look back five minutes more than their range are computed again.
    assert!(different == 2 && (kept - 10..kept).contains(&kept_then), "{kept_then} of {kept}: {changed:?} {stored:?}");
    replace(&written);
    world.apply(&Step::Settle);
    assert_eq!(asked_by_minute(&world, text).0, stored);
}

/// Of windows that differ in length those alone are computed that have rows; the others are gone.
#[test]
fn windows_whose_rows_were_deleted_are_gone_before_a_refresh() {
    let mut world = World::new();
    world.sql("CREATE MATERIALIZED VIEW monthly REFRESH MANUAL AS SELECT time_bucket('1 month', time, 'Europe/Berlin') AS b, h, sum(v) AS s FROM m GROUP BY 1, 2");
    let then_ns = world.db().now_ns() - 60 * 86_400 * SECOND_NS;
    world.write_lines(&format!("m,h=old,u=u0 v=4 {then_ns}"));
    world.sql("REFRESH MATERIALIZED VIEW monthly");
    world.apply(&Step::Settle);
    let asked = |budget: Budget| {
        let start_ms = world.db().now_ns() / 1_000_000;
        let text = "sum_over_time(monthly_s{h=\"old\"}[90d])".to_owned();
        world.answer(&Query { text, start_ms, step_ms: 1000, steps: 1 }, budget, true).0
    };
    assert_eq!(asked(using(ViewUse::All)).len(), 1);
    let matchers = vec![Matcher::new("h", MatchOp::Equal, "old"), Matcher::new("__name__", MatchOp::Equal, "m_v")];
    world.db().delete(DATABASE, &[matchers], &TimeRange::new(then_ns, then_ns)).unwrap();
    assert_eq!(asked(using(ViewUse::Stored)).len(), 1, "it is stored");
    assert_eq!(asked(using(ViewUse::All)), Answer::new());
}

#[test]
fn a_view_that_is_named_has_all_windows_that_are_over() {
    let world = World::new();
    let client = |text: &str| world.sql(text);
    client(
        "CREATE MATERIALIZED VIEW later AS SELECT time_bucket('1 minute', time) AS b, h, sum(v) AS s, quantile_sketch(v) AS q FROM m GROUP BY b, h",
    );
    client(
        "CREATE MATERIALIZED VIEW told WITH (timescaledb.continuous, timescaledb.materialized_only = true) AS SELECT time_bucket('1 minute', time) AS b, h, sum(v) AS s FROM m GROUP BY 1, 2",
    );
    // Another table's metric of the same name.
    world.write_lines(&format!("later_s,h=other value=7 {}", world.ago_ns(30)));
    world.write(&[(0, 0, 24, Some(1), 1), (0, 0, 25, Some(2), 1), (1, 0, 26, Some(5), 1), (0, 0, 0, Some(9), 1)]);
    let now_ms = world.db().now_ns() / 1_000_000;
    let asked = |text: &str, budget: Budget| {
        world.answer(&Query { text: text.to_owned(), start_ms: now_ms, step_ms: 1000, steps: 1 }, budget, true).0
    };
    let numbers = |answer: Answer| -> Vec<f64> { answer.into_values().map(|points| points[0].1).collect() };
    for (text, expected) in [
        ("sum_over_time(later_s{h=~\"h.\"}[5m])", vec![3.5, 5.25]),
        ("sum_over_time({__name__=~\"later_.*\",h=\"h1\"}[5m])", vec![5.25]),
        ("sum(sum_over_time(later_s{none=\"\"}[5m]))", vec![15.75]),
        ("sum_over_time(later_s{none=\"a\"}[5m])", vec![]),
        ("sum_over_time(later_s{h!=\"h0\",h!=\"other\"}[5m])", vec![5.25]),
        ("approx_percentile(1, later_q[5m])", vec![5.25]),
        // What is read is what is stored.
        ("sum_over_time(told_s[5m])", vec![]),
    ] {
        let found = numbers(asked(text, using(ViewUse::All)));
        let is_close = found.len() == expected.len() && found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 0.1);
        assert!(is_close, "{text}: {found:?}, not {expected:?}");
        let stored = numbers(asked(text, using(ViewUse::Stored)));
        assert!(stored.iter().all(|value| (*value - 7.0).abs() < 1e-9), "{text}: {stored:?}");
    }
    let grants = vec!["read:default{h=\"h1\"}".parse().unwrap()];
    let scope = Arc::new(Scope { is_server_admin: false, grants, ..Scope::clone(&Scope::open()) });
    let narrowed = asked("sum_over_time(later_s[5m])", using(ViewUse::All).for_scope(scope));
    assert_eq!(numbers(narrowed), [5.25]);
    let matchers = [Matcher::new("__name__", MatchOp::Equal, "later_s"), Matcher::new("h", MatchOp::Equal, "h0")];
    let range_ms = (now_ms - 300_000, now_ms);
    let read = world.db().samples_with_views(DATABASE, &matchers, range_ms, &using(ViewUse::All)).unwrap();
    assert_eq!(read.iter().map(|series| series.values.clone()).collect::<Vec<_>>(), [[3.5]]);
    assert_eq!(world.db().samples(DATABASE, &matchers, range_ms, &using(ViewUse::All)).unwrap(), []);
}

/// Cases of the property, unless `THALWEG_VIEW_CASES` says how many; `PROPTEST_RNG_SEED` says which.
const CASES: u32 = 20;

#[test]
fn promql_gives_the_same_by_views() {
    let cases = std::env::var("THALWEG_VIEW_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let config =
        ProptestConfig { cases, max_shrink_iters: 400, failure_persistence: None, ..ProptestConfig::default() };
    let counts = [const { Cell::new(0u64) }; 3];
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&prop::collection::vec(step(), 5..40), |steps| {
        let mut world = World::new();
        let last = [Step::Settle, Step::Ask(steps.len() as u64)];
        for step in steps.iter().chain(&last) {
            let more = world.apply(step);
            counts.iter().zip(more).for_each(|(count, more)| count.set(count.get() + more));
        }
        Ok(())
    });
    let [asked, answered, by_name] = counts.map(Cell::into_inner);
    println!("{cases} cases, {asked} queries, {answered} of them answered by views, {by_name} of views by their names");
    outcome.unwrap();
    assert!(answered * 20 > asked, "too few of the queries were answered by views");
    assert!(by_name * 10 > asked, "too few of the queries named views");
}

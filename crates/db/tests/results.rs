//! Answers that are kept are those that would be computed: random writes behind and inside of what is kept, and every answer compared with
//! one that nothing was kept for.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use model::{MatchOp, Matcher, TimeRange};
use platform::sim::Simulation;
use promql::{EvaluationResult, ResultValue};
use thalweg_db::{DatabasePolicy, Db, DbOptions, InstantQuery, RangeQuery};

const SECOND_NS: i64 = 1_000_000_000;
/// Little enough for some to go.
const RESULT_BYTES_MAX: usize = 4 << 20;
const FLASH_BYTES_MAX: u64 = 6 << 20;
const MINUTE_MS: i64 = 60_000;

/// Comparisons in a run of all tests; `THALWEG_RESULT_CHECKS` asks for another number of them.
const CHECKS: usize = 1500;

const EXPRESSIONS: [&str; 29] = [
    "cpu_usage",
    "cpu_usage{host=~\"h[0-4]\"}",
    "sum(cpu_usage)",
    "sum by (dc) (rate(cpu_total[2m]))",
    "avg by (dc) (cpu_usage)",
    "stddev(cpu_usage)",
    "topk(2, cpu_usage)",
    "sum(max by (dc) (cpu_usage))",
    "sum(topk(2, sum by (dc, host) (cpu_usage)))",
    "rate(cpu_usage[5m])",
    "rate(cpu_usage{host=\"h1\"}[30s])",
    "sum(increase(cpu_total[90s])) / count(cpu_usage)",
    "cpu_usage offset 10m",
    "cpu_usage offset -3m",
    "max_over_time(sum(cpu_usage)[10m:1m])",
    "sum(avg_over_time(sum by (dc) (cpu_usage)[5m:1m]))",
    "cpu_usage / on (host, dc) cpu_total",
    "absent(cpu_usage{host=\"h9\"})",
    "count_values(\"value\", round(cpu_usage))",
    "limitk(1, cpu_usage)",
    "cpu_usage @ end()",
    "cpu_usage > 50 or cpu_total < 3",
    "quantile(0.5, cpu_usage)",
    "delta(cpu_usage[3m] smoothed)",
    "time() - timestamp(cpu_usage)",
    "quantile_over_time(1.5, cpu_usage[2m])",
    "approx_percentile by (dc) (0.9, cpu_sketch[5m])",
    "approx_percentile(0.4, cpu_sketch offset 1m)",
    "max_over_time(approx_percentile without (host) (0.1, cpu_sketch[2m])[10m:1m])",
];

/// Sums are left out, of floats: they depend on how rows lie in parts, whatever is kept.
const BINS: [&str; 6] = [
    "(->> (metric \"cpu_usage\") RANGE (groupby WIDTH max))",
    "(->> (metric \"cpu_usage\") RANGE (groupby WIDTH count))",
    "(->> (metric \"cpu_total\") (tag \"dc\" \"d1\") RANGE (groupby WIDTH last))",
    "(->> (metric \"cpu_usage\") RANGE (where (> #V 50)) (groupby WIDTH min))",
    "(->> (table \"cpu\") RANGE (groupby WIDTH '((max \"usage\") (last \"total\"))))",
    "(->> (table \"cpu\") RANGE (groupby WIDTH (count \"usage\")))",
];

/// What is shared, and what is around it: in each `INNER` stands for one of the former, and `N` for a number, so that the query as a whole is mostly
/// one that nobody asked for.
const INNER: [&str; 12] = [
    "rate(cpu_total[2m])",
    "rate(cpu_usage[90s])",
    "increase(cpu_total{host=~\"h[0-4]\"}[5m])",
    "avg_over_time(cpu_usage[3m] offset 2m)",
    "max_over_time(cpu_usage[2m] offset -1m)",
    "delta(cpu_usage[3m] smoothed)",
    "quantile_over_time(1.5, cpu_usage[2m])",
    "last_over_time({__name__=~\"cpu_.*\"}[1m])",
    "max_over_time(sum by (dc) (cpu_usage)[5m:1m])",
    "max_over_time(rate(cpu_total[1m])[4m:15s])",
    "sum by (dc, host) (rate(cpu_total[2m]))",
    "avg by (dc) (cpu_usage)",
];
const OUTER: [&str; 10] = [
    "sum(INNER) + N",
    "sum by (dc) (INNER) * N",
    "topk(2, INNER) + N",
    "INNER / N",
    "stddev by (dc) (INNER * N)",
    "quantile(0.5, INNER) - N",
    "sum(INNER) / count(INNER) + N",
    "max by (dc) (INNER) / on () group_left () sum(INNER) * N",
    "max_over_time(sum by (dc) (INNER)[2m:30s]) + N",
    "min(INNER) or sum(INNER) * N",
];

/// Statements of SQL, over bins of an interval. Hosts have `jobs`, whole numbers, now and then, and with them a sketch of one number.
const SQL: [&str; 5] = [
    "SELECT date_bin(INTERVAL 'WIDTH', time) AS t, host, max(usage), count(total) FROM cpu WHERE RANGE GROUP BY t, host ORDER BY t, host",
    "SELECT date_bin(INTERVAL 'WIDTH', time) AS t, dc, min(usage) FROM cpu WHERE RANGE AND dc = 'd1' GROUP BY t, dc ORDER BY t, dc",
    "SELECT date_bin(INTERVAL 'WIDTH', time) AS t, host, max(jobs), last(total) FROM cpu WHERE RANGE GROUP BY t, host ORDER BY t, host",
    "SELECT date_bin(INTERVAL 'WIDTH', time) AS t, count(*) FROM cpu WHERE RANGE AND usage > 50 GROUP BY t ORDER BY t",
    "SELECT time_bucket('WIDTH', time) AS t, max(state), min(jobs) FROM cpu WHERE RANGE GROUP BY t ORDER BY t",
];

/// The same of InfluxQL.
const INFLUXQL: [&str; 5] = [
    "SELECT max(usage), count(total) FROM cpu WHERE RANGE GROUP BY time(WIDTH), host",
    "SELECT last(jobs), first(state) FROM cpu WHERE RANGE GROUP BY time(WIDTH), host fill(none)",
    "SELECT min(usage) FROM cpu WHERE RANGE AND dc = 'd1' GROUP BY time(WIDTH), dc fill(previous)",
    "SELECT max(jobs) FROM cpu WHERE RANGE GROUP BY time(WIDTH) fill(0)",
    "SELECT last(state) FROM cpu WHERE RANGE GROUP BY time(WIDTH), dc",
];

struct World {
    simulation: Simulation,
    db: Option<Db>,
    options: DbOptions,
    random: fastrand::Rng,
    /// Hits, partial hits, steps from memory, steps from flash and steps that had changed, of databases that were closed.
    used: [u64; 5],
}

impl World {
    fn new(seed: u64) -> Self {
        let simulation = Simulation::new(seed);
        simulation.advance_ns(1_000_000 * SECOND_NS);
        let mut options = DbOptions::new("/data");
        options.store.head_bytes_max = 16 << 10;
        options.store.log_segment_bytes = 256 << 10;
        options.store.log_bytes_max = 1 << 20;
        options.store.journal_changes_max = 64;
        options.result_cache_memory_bytes_max = RESULT_BYTES_MAX;
        options.result_cache_flash_bytes_max = FLASH_BYTES_MAX;
        let db = Some(Db::open(simulation.platform(), options.clone()).unwrap());
        Self { simulation, db, options, random: fastrand::Rng::with_seed(seed), used: [0; 5] }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    /// Adds up what all databases used of what was kept.
    fn used(&self) -> [u64; 5] {
        let stats = self.db().result_cache().unwrap();
        let used =
            [stats.hits, stats.partial_hits, stats.steps_from_memory, stats.steps_from_flash, stats.steps_changed];
        std::array::from_fn(|place| self.used[place] + used[place])
    }

    /// Opens the folder again, after the database was closed or the machine crashed.
    fn restart(&mut self, crashes: bool) {
        self.used = self.used();
        if crashes {
            self.simulation.crash();
        } else {
            self.db().close().unwrap();
        }
        self.db = None;
        self.db = Some(Db::open(self.simulation.platform(), self.options.clone()).unwrap());
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.u64(..bound)
    }

    fn now_ms(&self) -> i64 {
        self.db().now_ns() / 1_000_000
    }

    fn row(&mut self, host: u64, time_ms: i64) -> String {
        let (usage, total) = (self.below(1000) as f64 / 9.7, (time_ms / 1000) as f64 * 1.1);
        let total = if self.below(20) == 0 { 1.0 } else { total };
        let jobs = self.below(30);
        let more = if jobs < 10 {
            format!(",jobs={jobs}i,state=\"s{jobs}\",sketch=\"q1|0||0|{jobs}:1|0|0\"")
        } else {
            String::new()
        };
        format!("cpu,host=h{host},dc=d{} usage={usage},total={total}{more} {}\n", host % 3, time_ms * 1_000_000)
    }

    fn write(&self, lines: &str) {
        let (report, errors) = self.db().write_lines("default", lines.as_bytes()).unwrap();
        // Some are so late that the database does not keep them any more.
        let is_late = |rejected: &thalweg_db::Rejected| rejected.reason.starts_with(thalweg_db::BEYOND_RETENTION);
        assert!(report.rejected.iter().all(is_late) && errors.total == 0, "{report:?}");
    }

    /// All hosts for a while, every 15 seconds.
    fn fill(&mut self, minutes: u64) {
        for _ in 0..minutes * 4 {
            self.simulation.advance_ns(15 * SECOND_NS);
            let time_ms = self.now_ms();
            let lines: String = (0..8).map(|host| self.row(host, time_ms)).collect();
            self.write(&lines);
        }
    }

    fn change(&mut self) {
        let (now_ms, host) = (self.now_ms(), self.below(8));
        let age_ms = (self.below(150) * 60_000 + self.below(60_000)) as i64;
        match self.below(40) {
            0..10 => self.fill_some(),
            10..20 => {
                let row = self.row(host, now_ms - age_ms);
                self.write(&row);
            }
            // A series of which there was nothing.
            20..23 => {
                let new_host = 8 + self.below(1000);
                let row = self.row(new_host, now_ms - age_ms);
                self.write(&row);
            }
            // A little late: no row of its own in the journal.
            23..28 => {
                let late_ms = self.below(240_000) as i64;
                let row = self.row(host, now_ms - late_ms);
                self.write(&row);
            }
            28 => {
                let matcher = Matcher { name: "host".into(), op: MatchOp::Equal, value: format!("h{host}") };
                let start_ns = (now_ms - age_ms) * 1_000_000;
                let range = TimeRange::new(start_ns, start_ns + 120 * SECOND_NS);
                self.db().delete("default", &[vec![matcher]], &range).unwrap();
            }
            29 => self.db().compact_all().unwrap(),
            30 => {
                let mut policy = self.db().policy("default").unwrap();
                policy.retention_ns = (60 + self.below(120) as i64) * 60 * SECOND_NS;
                self.db().set_policy("default", &policy).unwrap();
            }
            31 => {
                let known = self.db().policy("default").unwrap();
                let folds = vec![(90 * 60 * SECOND_NS, 60 * SECOND_NS)];
                self.db().set_policy("default", &DatabasePolicy { folds, ..known }).unwrap();
            }
            32 if self.below(8) == 0 => {
                self.db().drop_database("default").unwrap();
                self.fill(30);
            }
            33 => {
                let seconds = self.below(300) as i64;
                self.simulation.advance_ns(seconds * SECOND_NS);
            }
            34 => self.db().save_results().unwrap(),
            35 if self.below(4) == 0 => self.restart(false),
            36 if self.below(4) == 0 => self.restart(true),
            _ => self.simulation.advance_ns(5 * SECOND_NS),
        }
    }

    fn fill_some(&mut self) {
        self.simulation.advance_ns(15 * SECOND_NS);
        let time_ms = self.now_ms();
        let mut lines = String::new();
        for host in 0..8 {
            if self.below(4) > 0 {
                let _ = write!(lines, "{}", self.row(host, time_ms));
            }
        }
        self.write(&lines);
    }

    fn range_query(&mut self) -> RangeQuery {
        let text = EXPRESSIONS[self.below(EXPRESSIONS.len() as u64) as usize].to_owned();
        let step_ms = [15_000, 60_000][self.below(2) as usize];
        let off_ms = [0, 0, 0, 7_000][self.below(4) as usize];
        let end_ms = (self.now_ms() - [0, 0, 0, 45 * MINUTE_MS][self.below(4) as usize]) / step_ms * step_ms + off_ms;
        let start_ms = end_ms - [10, 30, 30, 90][self.below(4) as usize] * MINUTE_MS;
        let InstantQuery { lookback_ms, name_removal, may_cache, budget, .. } = InstantQuery::new("", 0);
        RangeQuery { text, start_ms, end_ms, step_ms, lookback_ms, name_removal, may_cache, budget }
    }

    fn check_range(&mut self) {
        let query = self.range_query();
        let ask = |may_cache: bool| plain(self.db().range("default", &RangeQuery { may_cache, ..query.clone() }));
        same(&ask, &format!("{} from {} to {}", query.text, query.start_ms, query.end_ms));
    }

    /// A query of its own around something that others share.
    fn check_shared(&mut self) {
        let inner = INNER[self.below(INNER.len() as u64) as usize];
        let outer = OUTER[self.below(OUTER.len() as u64) as usize];
        let number = self.below(1_000_000);
        let text = outer.replace("INNER", inner).replace('N', &number.to_string());
        // Two grids, so that stretches of others are met.
        let mut query = RangeQuery { text, ..self.range_query() };
        let off_ms = query.end_ms % query.step_ms;
        (query.start_ms, query.end_ms) = (query.start_ms - off_ms, query.end_ms - off_ms);
        let ask = |may_cache: bool| plain(self.db().range("default", &RangeQuery { may_cache, ..query.clone() }));
        same(&ask, &format!("{} from {} to {}", query.text, query.start_ms, query.end_ms));
    }

    fn check_instant(&mut self) {
        let text = EXPRESSIONS[self.below(EXPRESSIONS.len() as u64) as usize];
        let time_ms = self.now_ms() / MINUTE_MS * MINUTE_MS - self.below(3) as i64 * MINUTE_MS;
        let query = InstantQuery::new(text, time_ms);
        let ask = |may_cache: bool| plain(self.db().instant("default", &InstantQuery { may_cache, ..query.clone() }));
        same(&ask, &format!("{text} at {time_ms}"));
    }

    /// A range in nanoseconds, and the width of bins as SQL and as InfluxQL have it.
    fn bins_asked(&mut self) -> (i64, i64, [&'static str; 2]) {
        let now_ns = self.now_ms() * 1_000_000;
        let minutes = [20, 60, 90][self.below(3) as usize];
        let start_ns = now_ns - minutes * 60 * SECOND_NS - self.below(60) as i64 * SECOND_NS;
        let end_ns = now_ns - [0, 0, 600][self.below(3) as usize] * SECOND_NS;
        // Often where ranges that slide begin and end.
        let grid_ns = [1, 15 * SECOND_NS][self.below(2) as usize];
        let widths = [["1 minute", "1m"], ["90 seconds", "90s"], ["5 minutes", "5m"]];
        (start_ns / grid_ns * grid_ns, end_ns / grid_ns * grid_ns, widths[self.below(3) as usize])
    }

    fn check_sql(&mut self) {
        let (start_ns, end_ns, [width, _]) = self.bins_asked();
        let text = SQL[self.below(SQL.len() as u64) as usize];
        same(&|may_cache| ask_sql(self.db(), text, (start_ns, end_ns, width), may_cache), text);
    }

    fn check_influxql(&mut self) {
        let (start_ns, end_ns, [_, width]) = self.bins_asked();
        let text = INFLUXQL[self.below(INFLUXQL.len() as u64) as usize];
        same(&|may_cache| ask_influxql(self.db(), text, (start_ns, end_ns, width), may_cache), text);
    }

    /// Bins of time by the plan language, into which SQL and InfluxQL are translated, too.
    fn check_bins(&mut self) {
        let now_ns = self.now_ms() * 1_000_000;
        let minutes = [20, 60, 90][self.below(3) as usize];
        let start_ns = now_ns - minutes * 60 * SECOND_NS - self.below(60) as i64 * SECOND_NS;
        let end_ns = now_ns - [0, 0, 600][self.below(3) as usize] * SECOND_NS;
        let (width, of) = (["1m", "90s", "5m"][self.below(3) as usize], BINS[self.below(BINS.len() as u64) as usize]);
        let text = of.replace("RANGE", &format!("(range {start_ns} {end_ns})")).replace("WIDTH", width);
        let plan = self.db().parse_plan(&text).unwrap();
        let ask = |may_cache: bool| {
            let budget = self.db().budget(1_000_000);
            if !may_cache {
                budget.compute_all();
            }
            let answer = self.db().run_plan("default", &plan, &budget);
            format!("{:?}", answer.map(|outcome| outcome.frames))
        };
        same(&ask, &text);
    }
}

/// Compares an answer with one that nothing was kept for. Background work may change something in between; then again.
fn same(ask: &dyn Fn(bool) -> String, what: &str) {
    for _ in 0..100 {
        let (before, kept, after) = (ask(false), ask(true), ask(false));
        if before == after {
            assert_eq!(kept, before, "{what}");
            return;
        }
    }
    panic!("{what}: answers keep changing");
}

fn budget(db: &Db, may_cache: bool) -> std::sync::Arc<query::Budget> {
    let budget = db.budget(1_000_000);
    if !may_cache {
        budget.compute_all();
    }
    budget
}

/// A time of the years from 1970 on, as SQL has it.
fn civil(time_ns: i64) -> String {
    let (seconds, below_ns) = (time_ns / SECOND_NS, time_ns % SECOND_NS);
    let (mut year, mut days) = (1970, seconds / 86_400);
    let is_leap = |year: i64| year % 4 == 0;
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    let lengths = [31, 28 + i64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{below_ns:09}Z", month + 1, days + 1)
}

/// The answer of a statement; fails if there is none.
fn ask_sql(db: &Db, of: &str, (start_ns, end_ns, width): (i64, i64, &str), may_cache: bool) -> String {
    let time = |time_ns: i64| format!("'{}'", civil(time_ns));
    let range = format!("time >= {} AND time < {}", time(start_ns), time(end_ns));
    let text = of.replace("RANGE", &range).replace("WIDTH", width);
    let parsed = sql::parse(&text).unwrap();
    let session = sql::ClientContext::new("default", db.now_ns());
    format!("{:?}", db.sql(&parsed, 0, &session, &budget(db, may_cache)).unwrap())
}

fn ask_influxql(db: &Db, of: &str, (start_ns, end_ns, width): (i64, i64, &str), may_cache: bool) -> String {
    let text = of.replace("RANGE", &format!("time >= {start_ns} AND time < {end_ns}")).replace("WIDTH", width);
    let query = influxql::Query::parse(&text, &std::collections::BTreeMap::new()).unwrap();
    let session = influxql::RequestContext { database: Some("default"), read_only: true };
    format!("{:?}", db.run_influxql(&query, 0, &session, &budget(db, may_cache)).unwrap())
}

/// An answer or its error as text, floats by their bits.
fn plain(answer: Result<EvaluationResult, query::QueryError>) -> String {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return error.to_string(),
    };
    let mut text = format!("{:?} {:?}", answer.warnings, answer.infos);
    match answer.value {
        ResultValue::Matrix(matrix) => {
            for (labels, points) in matrix {
                let _ = write!(text, "\n{labels:?} {:?}", points.histograms);
                for (time_ms, value) in points.floats {
                    let _ = write!(text, " {time_ms}:{:x}", value.to_bits());
                }
            }
        }
        ResultValue::Vector(samples) => {
            for sample in samples {
                let _ = write!(text, "\n{:?} {} {:x}", sample.labels, sample.time_ms, sample.value.to_bits());
            }
        }
        other => {
            let _ = write!(text, "{other:?}");
        }
    }
    text
}

fn checks() -> usize {
    std::env::var("THALWEG_RESULT_CHECKS").ok().map_or(CHECKS, |number| number.parse().unwrap())
}

#[test]
fn no_answer_is_stale() {
    let mut world = World::new(1);
    world.fill(40);
    let checks = checks();
    for number in 0..checks {
        if world.below(3) == 0 {
            world.change();
        }
        match world.below(20) {
            0..4 => world.check_shared(),
            4..6 => world.check_bins(),
            6..9 => world.check_sql(),
            9..12 => world.check_influxql(),
            12..14 => world.check_instant(),
            _ => world.check_range(),
        }
        if number % 10_000 == 9_999 {
            eprintln!("{} checks: {:?} {:?}", number + 1, world.used(), world.db().result_cache());
        }
    }
    let stats = world.db().result_cache().unwrap();
    let used = world.used();
    assert!(used.iter().all(|used| *used > checks as u64 / 100), "{used:?}");
    assert!(stats.memory_bytes <= RESULT_BYTES_MAX as u64, "{stats:?}");
}

/// A fold leaves the last sample of each hour. A late row of a series that has none there is shown until it is merged into what was folded, and
/// goes then if it is not the last.
#[test]
fn late_rows_that_a_fold_takes_are_not_shown_any_more() {
    let mut world = World::new(5);
    world.fill(1);
    let known = world.db().policy("default").unwrap();
    let folds = vec![(90 * 60 * SECOND_NS, 3600 * SECOND_NS)];
    world.db().set_policy("default", &DatabasePolicy { folds, ..known }).unwrap();
    let hour_ms = 60 * MINUTE_MS;
    let old_ms = (world.now_ms() / hour_ms + 1) * hour_ms;
    world.fill(150);
    world.simulation.advance_ns(100 * 3600 * SECOND_NS);
    world.fill(1);
    world.db().compact_all().unwrap();
    let (start_ms, end_ms) = (old_ms + 10 * MINUTE_MS, old_ms + 50 * MINUTE_MS);
    let query = RangeQuery { text: "cpu_usage".to_owned(), start_ms, end_ms, step_ms: 15_000, ..world.range_query() };
    let ask = |may_cache: bool| plain(world.db().range("default", &RangeQuery { may_cache, ..query.clone() }));
    let folded = ask(false);
    assert!(!folded.contains("cpu_usage"), "the last of the hour is not among these: {folded}");
    for minutes in [20, 55] {
        world.write(&format!("cpu,host=late,dc=d1 usage=77 {}\n", (old_ms + minutes * MINUTE_MS) * 1_000_000));
    }
    same(&ask, "with the late row");
    assert_ne!(ask(true), folded);
    world.db().compact_all().unwrap();
    assert_eq!(ask(false), folded);
    same(&ask, "without it");
}

#[test]
fn bins_that_were_kept_are_told_of() {
    let mut world = World::new(3);
    world.fill(40);
    let (end_ns, start_ns) = (world.db().now_ns(), world.db().now_ns() - 1800 * SECOND_NS);
    for of in BINS {
        let text = of.replace("RANGE", &format!("(range {start_ns} {end_ns})")).replace("WIDTH", "1m");
        let plan = world.db().parse_plan(&text).unwrap();
        let steps = || world.db().run_plan("default", &plan, &world.db().budget(1_000_000)).unwrap().steps;
        let is_kept = || steps().iter().any(|step| step.step == "kept bins" && step.rows > 0);
        assert!(!is_kept(), "{text}");
        assert!(is_kept(), "{text}");
    }
}

/// A dashboard of six hours, whose rows go on coming.
fn panels(world: &World, end_ms: i64) -> Vec<RangeQuery> {
    let InstantQuery { lookback_ms, name_removal, may_cache, .. } = InstantQuery::new("", 0);
    let panel = |text: &str| RangeQuery {
        text: text.to_owned(),
        start_ms: end_ms - 60 * MINUTE_MS,
        end_ms,
        step_ms: 15_000,
        lookback_ms,
        name_removal,
        may_cache,
        budget: world.db().budget(1_000_000),
    };
    EXPRESSIONS[..6].iter().map(|text| panel(text)).collect()
}

/// How many steps of all panels were in memory, on flash, and in neither; all answers are those that would be computed.
fn show(world: &World, panels: &[RangeQuery]) -> [u64; 3] {
    let mut places = [0; 3];
    for query in panels {
        let (answer, used) = world.db().range_with_cache_use("default", query).unwrap();
        let computed = world.db().range("default", &RangeQuery { may_cache: false, ..query.clone() });
        assert_eq!(plain(Ok(answer)), plain(computed), "{}", query.text);
        let neither = used.steps - used.from_memory - used.from_flash;
        for (place, steps) in places.iter_mut().zip([used.from_memory, used.from_flash, neither]) {
            *place += steps;
        }
    }
    places
}

#[test]
fn a_restart_leaves_what_was_kept() {
    let mut world = World::new(11);
    world.fill(90);
    let panels = panels(&world, world.now_ms() / 15_000 * 15_000);
    let steps = 6 * 241;
    assert_eq!(show(&world, &panels), [0, 0, steps]);
    world.restart(false);
    let analyzed = world.db().analyze_range("default", &panels[2]).unwrap();
    assert_eq!((analyzed.cache.from_memory, analyzed.cache.from_flash), (0, 241));
    assert_eq!(show(&world, &panels), [241, steps - 241, 0]);
    assert_eq!(show(&world, &panels), [steps, 0, 0]);
    // What a crash leaves was written before it, but for what looks at the newest rows.
    world.db().save_results().unwrap();
    world.fill(2);
    world.restart(true);
    let [memory, flash, neither] = show(&world, &panels);
    assert_eq!(memory, 0);
    assert!(flash > steps * 8 / 10, "{flash} {neither}");
    // Whoever opens the folder without the file in between may change anything.
    world.db().close().unwrap();
    world.db = None;
    let plain = DbOptions { result_cache_flash_bytes_max: 0, ..world.options.clone() };
    Db::open(world.simulation.platform(), plain).unwrap().close().unwrap();
    world.db = Some(Db::open(world.simulation.platform(), world.options.clone()).unwrap());
    assert_eq!(show(&world, &panels), [0, 0, steps]);
}

/// How many bins were in memory, on flash and in neither, of all statements over an hour.
fn show_bins(world: &World, end_ns: i64) -> [u64; 3] {
    let asked = |width: &'static str| (end_ns - 3600 * SECOND_NS, end_ns, width);
    let counts = || {
        let stats = world.db().result_cache().unwrap();
        [stats.steps_from_memory, stats.steps_from_flash, stats.steps]
    };
    let mut before = counts();
    let (mut places, mut kept_of) = ([0; 3], 0);
    for (place, of) in SQL.iter().chain(&INFLUXQL).enumerate() {
        let ask = |may_cache: bool| {
            if place < SQL.len() {
                ask_sql(world.db(), of, asked("1 minute"), may_cache)
            } else {
                ask_influxql(world.db(), of, asked("1m"), may_cache)
            }
        };
        let computed = ask(false);
        let kept = ask(true);
        assert_eq!(kept, computed, "{of}");
        assert!(kept.len() > 1000, "{of}: {kept}");
        let after = counts();
        let [memory, flash, all] = std::array::from_fn(|place| after[place] - before[place]);
        kept_of += u32::from(all > 0);
        for (place, bins) in places.iter_mut().zip([memory, flash, all - memory - flash]) {
            *place += bins;
        }
        before = after;
    }
    // Some have several selectors, whose bins are not made apart.
    assert!(kept_of >= 8, "{kept_of}");
    places
}

#[test]
fn a_restart_leaves_bins_of_sql_and_influxql() {
    let mut world = World::new(19);
    // What is saved in between takes slabs of its own: more than there is room for in the other tests' file.
    world.options.result_cache_flash_bytes_max = 16 << 20;
    world.fill(90);
    // What is merged without a record in the log counts as changed since the last record: nothing is, from here on.
    world.restart(false);
    let end_ns = world.now_ms() * 1_000_000 / (60 * SECOND_NS) * (60 * SECOND_NS);
    let [memory, flash, all] = show_bins(&world, end_ns);
    assert_eq!((memory, flash), (0, 0));
    assert!(all >= 400, "{all}");
    world.restart(false);
    assert_eq!(show_bins(&world, end_ns), [0, all, 0]);
    assert_eq!(show_bins(&world, end_ns), [all, 0, 0]);
    // A late row costs the bin that it is in, of each statement.
    let now_ms = world.now_ms();
    let row = world.row(1, now_ms - 40 * MINUTE_MS);
    world.write(&row);
    world.restart(false);
    let [memory, flash, neither] = show_bins(&world, end_ns);
    assert_eq!((memory, flash + neither), (0, all));
    assert!((5..=12).contains(&neither), "{neither}");
    // What a crash leaves was written before it; what was not settled then, in whole bins.
    world.db().save_results().unwrap();
    world.fill(2);
    world.restart(true);
    let [_, flash, neither] = show_bins(&world, end_ns);
    assert!(flash > all * 8 / 10, "{flash} {neither}");
}

#[test]
fn bins_that_go_to_flash_bit_by_bit_are_all_there_after_a_restart() {
    let mut world = World::new(23);
    // Each time a slab for each kind of cells: more than there is room for in the other tests' file.
    world.options.result_cache_flash_bytes_max = 16 << 20;
    world.restart(false);
    let hour_ns = world.now_ms() * 1_000_000 / (3600 * SECOND_NS) * (3600 * SECOND_NS);
    let ask = |world: &World, of: &str, hours: i64| {
        let range = (hour_ns, hour_ns + hours * 3600 * SECOND_NS, "10 minutes");
        let [computed, kept] = [false, true].map(|may_cache| ask_sql(world.db(), of, range, may_cache));
        assert_eq!(kept, computed, "{of}");
    };
    let bins_asked_of_flash = |world: &World| {
        let stats = world.db().result_cache().unwrap();
        (stats.steps_from_flash, stats.steps)
    };
    let of = "SELECT date_bin(INTERVAL 'WIDTH', time) AS t, max(a), max(b) FROM wide WHERE RANGE GROUP BY t ORDER BY t";
    // There are two columns in the second hour, and one before and after it: kinds of cells come and go.
    world.simulation.advance_ns(3 * 3600 * SECOND_NS);
    let mut lines = String::new();
    for minute in 0..180 {
        let more = if minute / 60 == 1 { ",b=7i" } else { "" };
        let _ = writeln!(lines, "wide,host=h1 a={minute}{more} {}", hour_ns + minute * 60 * SECOND_NS);
    }
    world.write(&lines);
    // What is merged without a record in the log counts as changed since the last record: nothing is, from here on.
    world.restart(false);
    for hours in 1..=3 {
        ask(&world, of, hours);
        world.db().save_results().unwrap();
    }
    world.restart(false);
    ask(&world, of, 3);
    assert_eq!(bins_asked_of_flash(&world), (18, 18));
}

#[test]
fn bins_that_the_range_cuts_are_made_of_shorter_ones() {
    let mut world = World::new(29);
    // What is saved takes slabs of its own, and what is merged without a record in the log counts as changed since the last record.
    world.options.result_cache_flash_bytes_max = 16 << 20;
    world.fill(90);
    world.restart(false);
    let minute_ns = (world.now_ms() - 20 * MINUTE_MS) / MINUTE_MS * 60 * SECOND_NS;
    let ask = |world: &World, of: &str, slid: i64| {
        let range = (minute_ns + (15 * slid - 2400) * SECOND_NS, minute_ns + 15 * slid * SECOND_NS, "1 minute");
        same(&|may_cache| ask_sql(world.db(), of, range, may_cache), of);
        ask_sql(world.db(), &format!("EXPLAIN ANALYZE {of}"), range, true)
    };
    for of in SQL {
        for slid in 0..12 {
            let explained = ask(&world, of, slid);
            // It was asked for just before: nothing is read.
            assert!(explained.contains("groups=0 samples=0 nodes=0 window_rows=0"), "{of} {slid}: {explained}");
        }
    }
    let explained = ask_sql(
        world.db(),
        &format!("EXPLAIN ANALYZE {}", SQL[0]),
        (minute_ns - 600 * SECOND_NS, minute_ns, "1 minute"),
        true,
    );
    assert!(explained.contains("kept_on_flash=0") && !explained.contains("kept_in_memory=0"), "{explained}");
    // The first bin is cut as it has not been before, and what it is made of was read with another one.
    let range = |slid: i64| (minute_ns + (15 * slid - 2400) * SECOND_NS, minute_ns, "1 minute");
    let explained = ask_sql(world.db(), &format!("EXPLAIN ANALYZE {}", SQL[0]), range(14), true);
    assert!(explained.contains("groups=0 samples=0"), "{explained}");
    // A restart leaves them as well.
    world.restart(false);
    for of in SQL {
        let explained = ask_sql(world.db(), &format!("EXPLAIN ANALYZE {of}"), range(14), true);
        assert!(explained.contains("groups=0 samples=0"), "{of}: {explained}");
        assert!(explained.contains("bins=") && !explained.contains("kept_on_flash=0"), "{of}: {explained}");
        ask(&world, of, 11);
    }
    // Rows that come late are seen in either bin.
    let row =
        world.row(1, minute_ns / 1_000_000 - 40 * MINUTE_MS + 50_000) + &world.row(1, minute_ns / 1_000_000 + 1000);
    world.write(&row);
    for of in SQL {
        assert!(!ask_sql(world.db(), &format!("EXPLAIN ANALYZE {of}"), range(1), true).contains("groups=0"), "{of}");
        ask(&world, of, 1);
    }
}

#[test]
fn what_leaves_memory_comes_back_from_flash() {
    let mut world = World::new(13);
    world.options.result_cache_memory_bytes_max = 128 << 10;
    // A slab for each time that something is saved.
    world.options.result_cache_flash_bytes_max = 16 << 20;
    world.fill(90);
    world.restart(false);
    let panels = panels(&world, world.now_ms() / 15_000 * 15_000 - 10 * MINUTE_MS);
    for panel in &panels {
        show(&world, std::slice::from_ref(panel));
        world.db().save_results().unwrap();
    }
    let [memory, flash, neither] = show(&world, &panels);
    assert!(flash > 0 && neither == 0, "{memory} {flash} {neither}");
    // Rows that come late are seen, wherever the answer was.
    let now_ms = world.now_ms();
    let row = world.row(1, now_ms - 40 * MINUTE_MS - 1000);
    world.write(&row);
    show(&world, &panels);
    world.restart(true);
    show(&world, &panels);
    let row = world.row(2, now_ms - 30 * MINUTE_MS - 1000);
    world.write(&row);
    world.restart(true);
    show(&world, &panels);
}

/// Whatever happens at the same time, what is kept afterwards is right.
#[test]
fn writes_at_the_same_time_are_not_missed() {
    let mut world = World::new(7);
    world.fill(40);
    let queries: Vec<RangeQuery> = (0..40).map(|_| world.range_query()).collect();
    let now_ms = world.now_ms();
    let rows: Vec<String> =
        (0..300).map(|place| world.row(place % 11, now_ms - (place as i64 * 7919) % 2_400_000)).collect();
    let done = AtomicBool::new(false);
    let (world, done) = (&world, &done);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            rows.iter().for_each(|row| world.write(row));
            done.store(true, Ordering::Release);
        });
        for part in queries.chunks(20) {
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    part.iter().for_each(|query| drop(world.db().range("default", query)));
                }
            });
        }
    });
    for query in &queries {
        let ask = |may_cache: bool| plain(world.db().range("default", &RangeQuery { may_cache, ..query.clone() }));
        same(&ask, &query.text);
    }
}

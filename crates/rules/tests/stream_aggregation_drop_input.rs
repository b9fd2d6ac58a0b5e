//! What an entry drops goes once no result is made of it any more, and every result is the one that there would be if it had stayed.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use db::{Db, DbOptions};
use model::{METRIC_NAME, MatchOp, Matcher, TimeRange};
use platform::network::sim::{SimAnswer, SimNetwork, SimResponse};
use platform::sim::Simulation;
use promql::Features;
use proptest::prelude::*;
use scrape::config;
use thalweg_rules::file::{ReadOptions, parse};
use thalweg_rules::group::Rule;
use thalweg_rules::materialize::{PastReport, RulePatterns, select};
use thalweg_rules::stream_aggregation::AggregationFile;
use thalweg_rules::{Manager, ManagerOptions};

const MINUTE_NS: i64 = 60_000_000_000;
const HOUR_NS: i64 = 60 * MINUTE_NS;

/// Two entries over one metric, one over another one's output, one that fails where a job has two instances, and one that drops nothing.
const ENTRIES: &str = "- {match: 'm{job!=\"kept\"}', interval: 5m, by: [job], outputs: [sum_samples, count_samples], drop_input: true}\n\
    - {match: 'm{job!=\"kept\"}', interval: 15m, outputs: [max], by: [instance], drop_input: true}\n\
    - {match: 'm:5m_by_job_sum_samples', interval: 10m, by: [x], outputs: [max], drop_input: true}\n\
    - {match: 'm{job!=\"kept\"}', interval: 5m, by: [job, instance], outputs: [min], drop_input: true, output_relabel_configs: [{action: labeldrop, regex: instance}]}\n\
    - {match: m, interval: 10m, outputs: [count_series], by: [y]}\n";

/// Rules that are kept right, one that is not, and an alert.
const RULES: &str = "groups:\n- name: kept\n  interval: 5m\n  rules:\n  - {record: 'rule:max', expr: 'max by (job) (max_over_time(m[20m] offset 10m))'}\n\
    - name: live\n  interval: 5m\n  rules:\n  - {record: 'live:sum', expr: 'sum(sum_over_time(m[1h30m]))'}\n  - {alert: A, expr: 'absent_over_time(m[1h])'}\n";

const OUTPUTS: [&str; 8] = [
    "m:5m_by_job_sum_samples",
    "m:5m_by_job_count_samples",
    "m:15m_by_instance_max",
    "m:5m_by_job_sum_samples:10m_by_x_max",
    "m:5m_by_job_instance_min",
    "m:10m_by_y_count_series",
    "rule:max",
    "live:sum",
];

/// Results of these outputs stay that an entry drops.
const DROPPED_OUTPUT: &str = OUTPUTS[0];

/// Outputs of windows that are as wide as those that fail: what is held for these is theirs, too.
const AS_WIDE_AS_FAILING: [&str; 3] = [OUTPUTS[0], OUTPUTS[1], OUTPUTS[4]];

/// How long after a sample results are made of it, at most.
const REACH_MS: i64 = 30 * 60_000;

/// The rule that is not kept right.
const LIVE: &str = OUTPUTS[7];

/// From one evaluation of rules to the next, and how late they are at least when a sample that they read may have gone.
const RULE_INTERVAL_MS: i64 = 300_000;
const LATE_MINUTES: i64 = 60;

struct World {
    simulation: Simulation,
    network: SimNetwork,
    entries: String,
    rules: &'static str,
    open: Option<(Arc<Db>, Manager)>,
}

/// Values by series and time in milliseconds, as bits.
type Values = BTreeMap<(String, i64), u64>;

impl World {
    fn new(entries: &str, rules: &'static str) -> Self {
        let simulation = Simulation::new(5);
        let network =
            SimNetwork::new(&simulation, |_| SimAnswer { delay_ms: 1, result: Ok(SimResponse::ok("text/plain", "")) });
        let mut world = Self { simulation, network, entries: entries.to_owned(), rules, open: None };
        world.start();
        world.network.run_ms(5_000);
        world
    }

    fn start(&mut self) {
        let db = Arc::new(Db::open(self.simulation.platform(), DbOptions::new("/data")).unwrap());
        let options = ManagerOptions { database: "default".to_owned(), external_url: String::new() };
        let manager = Manager::start(&self.network.platform(), db.clone(), options);
        self.open = Some((db, manager));
        self.apply();
    }

    fn apply(&self) {
        let file = AggregationFile { path: "s.yml".into(), lookback_ms: 300_000, features: Features::default() };
        let mut groups = file.parse(&self.entries, &|_| None).unwrap().groups;
        groups.extend(parse(Path::new("/r.yml"), self.rules, &ReadOptions::default()).unwrap().groups);
        let patterns = RulePatterns::parse(&["kept*".to_owned()]).unwrap();
        assert!(select(&mut groups, &patterns).is_ok());
        let config = config::parse(Path::new("/p.yml"), "global: {}", &|_| None).unwrap();
        self.open.as_ref().unwrap().1.apply(&config.config, groups);
    }

    fn stop(&mut self) -> Arc<Db> {
        let (db, manager) = self.open.take().unwrap();
        manager.stop();
        self.network.run_ms(1);
        drop(manager);
        db
    }

    fn restart(&mut self, crashes: bool, outage_ms: u64) {
        let db = self.stop();
        if !crashes {
            db.close().unwrap();
        }
        drop(db);
        if crashes {
            self.simulation.crash();
        }
        self.network.run_ms(outage_ms);
        self.start();
    }

    fn db(&self) -> &Arc<Db> {
        &self.open.as_ref().unwrap().0
    }

    fn write(&self, labels: &str, fields: &str, time_ns: i64) {
        self.db().write_lines("default", format!("m,{labels} {fields} {time_ns}").as_bytes()).unwrap();
    }

    fn delete(&self, labels: &[(&str, &str)], range: &TimeRange) {
        let name = Matcher::new(METRIC_NAME, MatchOp::Equal, "m");
        let labels = labels.iter().map(|(name, value)| Matcher::new(*name, MatchOp::Equal, *value));
        self.db().delete("default", &[std::iter::once(name).chain(labels).collect()], range).unwrap();
    }

    fn run_minutes(&self, minutes: u64) {
        self.network.run_ms(minutes * 60_000);
    }

    fn reports(&self) -> Vec<(String, PastReport)> {
        let groups = self.open.as_ref().unwrap().1.groups();
        let rules = groups.iter().flat_map(|group| &group.rules);
        let report = |rule: &Rule| Some((rule.config.name().to_owned(), rule.past_report()?));
        rules.filter_map(report).collect()
    }

    fn report(&self, name: &str) -> PastReport {
        self.reports().into_iter().find(|(of, _)| of == name).unwrap().1
    }

    fn refused(&self) -> u64 {
        self.reports().iter().map(|(_, report)| report.counts.refused).sum()
    }

    fn settle(&self) {
        for _ in 0..60 {
            self.network.run_ms(3_000);
            if self.reports().iter().all(|(_, report)| report.pending.is_empty()) {
                break;
            }
        }
        self.network.run_ms(12_000);
        let reports = self.reports();
        assert!(reports.iter().all(|(_, report)| report.pending.is_empty()), "{reports:?}");
    }

    /// The time before which samples of a metric are gone.
    fn gone_before_ns(&self, metric: &str) -> i64 {
        let trimmed = self.db().trimmed_tables("default");
        trimmed.iter().find(|(table, _)| table == metric).map_or(i64::MIN, |(_, before_ns)| *before_ns)
    }

    /// What is stored of a metric from one millisecond to another.
    fn stored(&self, metric: &str, range_ms: (i64, i64)) -> Values {
        let matchers = [Matcher::new(METRIC_NAME, MatchOp::Equal, metric)];
        let budget = self.db().budget(10_000_000);
        let mut values = Values::new();
        for series in self.db().samples("default", &matchers, range_ms, &budget).unwrap() {
            let labels: Vec<String> = series.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            for (time_ms, value) in series.timestamps_ms.iter().zip(&series.values) {
                if !model::is_stale_bits(*value) {
                    values.insert((labels.join(","), *time_ms), value.to_bits());
                }
            }
        }
        values
    }

    fn all(&self, metric: &str) -> Values {
        self.stored(metric, (0, self.db().now_ns().max(self.simulation.honest_ns()) / 1_000_000 + 100 * 3_600_000))
    }
}

/// A world that drops, and one with the same history that does not.
struct Pair {
    dropping: World,
    keeping: World,
    /// The times of rows that make results fail.
    clashes: Vec<i64>,
    /// The times of such rows that were deleted, long after results were made of results of theirs.
    deleted_ns: Vec<i64>,
    /// Moments that a group may have evaluated more than an hour late: it sleeps until its clock shows them, longer by as much as that is behind.
    /// By then samples may have gone that a rule reads whose past is left alone.
    late_ms: Vec<(i64, i64)>,
    /// The latest time that a clock has shown.
    latest_ms: i64,
}

#[derive(Debug, Clone)]
enum Step {
    /// Jobs and instances, and how many seconds ago.
    Write(Vec<(u8, u8, i64, u8)>),
    /// A row that makes a result fail, so many seconds ago.
    Clash(i64),
    Advance(u64),
    /// The job whose rows are deleted, or those of all, seconds ago, and for how long.
    Delete(Option<u8>, i64, i64),
    Restart(bool, u64),
    /// The clock is so many minutes ahead of the right time, or behind it, for so long.
    Clock(i64, u64),
    Check,
}

const JOBS: [&str; 3] = ["a", "b", "kept"];

impl Pair {
    fn new() -> Self {
        let keeping = ENTRIES.replace(", drop_input: true", "");
        assert!(!keeping.contains("drop_input"));
        Self {
            dropping: World::new(ENTRIES, RULES),
            keeping: World::new(&keeping, RULES),
            clashes: Vec::new(),
            deleted_ns: Vec::new(),
            late_ms: Vec::new(),
            latest_ms: 0,
        }
    }

    fn worlds(&self) -> [&World; 2] {
        [&self.dropping, &self.keeping]
    }

    fn write(&self, labels: &str, value: u8, time_ns: i64) {
        let gone_ns = self.dropping.gone_before_ns("m");
        if time_ns < gone_ns {
            // It comes too late, and changes nothing.
            if !labels.contains("kept") {
                self.dropping.write(labels, &format!("value={value}"), time_ns);
            }
        } else if time_ns >= gone_ns.max(self.dropping.gone_before_ns(DROPPED_OUTPUT)).saturating_add(2 * HOUR_NS)
            || time_ns > self.now_ns() - HOUR_NS
        {
            // Others are too late for some results alone, such as those of results.
            self.worlds().iter().for_each(|world| world.write(labels, &format!("value={value}"), time_ns));
        }
    }

    /// The right time.
    fn now_ns(&self) -> i64 {
        self.keeping.simulation.honest_ns()
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Write(rows) => {
                for (job, instance, ago_s, value) in rows {
                    let job = JOBS[usize::from(*job)];
                    // One instance of each job is no clash.
                    let labels = format!("job={job},instance={job}{}", instance * u8::from(job == "kept"));
                    self.write(&labels, *value, self.now_ns() - ago_s * 1_000_000_000);
                }
            }
            Step::Clash(ago_s) => {
                let time_ns = self.now_ns() - ago_s * 1_000_000_000;
                self.clashes.push(time_ns);
                for instance in ["1", "2"] {
                    self.write(&format!("job=clash,instance={instance}"), 7, time_ns);
                }
            }
            Step::Advance(minutes) => self.worlds().iter().for_each(|world| world.run_minutes(*minutes)),
            Step::Delete(job, ago_s, length_s) => {
                let start_ns = self.now_ns() - ago_s * 1_000_000_000;
                let range = TimeRange::new(start_ns, start_ns + length_s * 1_000_000_000);
                let labels: Vec<(&str, &str)> = job.iter().map(|job| ("job", JOBS[usize::from(*job)])).collect();
                self.worlds().iter().for_each(|world| world.delete(&labels, &range));
            }
            Step::Restart(crashes, outage_ms) => {
                self.dropping.restart(*crashes, *outage_ms);
                self.keeping.restart(*crashes, *outage_ms);
            }
            Step::Clock(minutes, length) => {
                self.set_clocks(*minutes);
                let first_ms = self.dropping.db().now_ns() / 1_000_000;
                for _ in 0..*length / 5 {
                    self.apply(&Step::Write(vec![(0, 0, 60, 3), (2, 0, 600, 4)]));
                    self.apply(&Step::Advance(5));
                }
                self.latest_ms = self.latest_ms.max(self.dropping.db().now_ns() / 1_000_000);
                self.set_clocks(0);
                if *minutes <= -LATE_MINUTES {
                    // What was to be evaluated next when the clock was put back.
                    let next_ms = self.latest_ms.max(self.dropping.now_ms()) + 2 * RULE_INTERVAL_MS;
                    self.late_ms.push((first_ms, next_ms));
                }
            }
            Step::Check => self.check(),
        }
    }

    fn set_clocks(&self, minutes: i64) {
        for world in self.worlds() {
            world.simulation.set_clock_ns(world.simulation.honest_ns() + minutes * MINUTE_NS);
        }
    }

    fn check(&self) {
        self.worlds().iter().for_each(|world| world.settle());
        assert_eq!(self.dropping.now_ms(), self.keeping.now_ms());
        let gone_ms = self.dropping.gone_before_ns(DROPPED_OUTPUT).max(0) / 1_000_000;
        for output in OUTPUTS {
            let [found, mut expected] = self.worlds().map(|world| world.all(output));
            let mut found = found;
            if output == DROPPED_OUTPUT {
                found.retain(|(_, time_ms), _| *time_ms >= gone_ms);
                expected.retain(|(_, time_ms), _| *time_ms >= gone_ms);
            }
            // Of a result that others are held for, a part may be gone that it is made of: deletes change it no more.
            let deleted = self.deleted_ns.iter().map(|time_ns| time_ns / 1_000_000);
            let deleted_ms: Vec<(i64, i64)> = deleted.map(|from_ms| (from_ms, from_ms + REACH_MS)).collect();
            let is_comparable = |time_ms: i64| AS_WIDE_AS_FAILING.contains(&output) || !is_in(&deleted_ms, time_ms);
            found.retain(|(_, time_ms), _| is_comparable(*time_ms));
            expected.retain(|(_, time_ms), _| is_comparable(*time_ms));
            let differs: Vec<_> = found.iter().filter(|(key, value)| expected.get(key) != Some(value)).collect();
            let may_lack = |time_ms: i64| output == LIVE && is_in(&self.late_ms, time_ms);
            let is_lacking = |key: &&(String, i64)| !found.contains_key(*key) && !may_lack(key.1);
            let lacks: Vec<_> = expected.keys().filter(is_lacking).collect();
            assert!(
                differs.is_empty() && lacks.is_empty(),
                "{output} at {}: {differs:?} lacks {lacks:?}, gone before {}\n{:?}",
                self.dropping.now_ms(),
                self.dropping.gone_before_ns("m") / 1_000_000,
                self.dropping.report("m:5m_by_job_sum_samples"),
            );
        }
    }

    /// In the end what is dropped is gone, and all else is there.
    fn end(&mut self) {
        self.check();
        for time_ns in std::mem::take(&mut self.clashes) {
            self.deleted_ns.push(time_ns);
            for instance in ["1", "2"] {
                let labels = [("job", "clash"), ("instance", instance)];
                self.worlds().iter().for_each(|world| world.delete(&labels, &TimeRange::new(time_ns, time_ns)));
            }
        }
        // A clock that was five hours behind has a group sleep as much longer, and after that for an interval.
        self.apply(&Step::Advance(360));
        self.check();
        let now_ms = self.now_ns() / 1_000_000;
        let old = (0, now_ms - 4 * 3_600_000);
        let is_kept = |values: &Values| values.keys().filter(|(series, _)| series.contains("job=kept")).count();
        let [left, all] = self.worlds().map(|world| world.stored("m", old));
        assert_eq!(
            (left.len(), is_kept(&left)),
            (is_kept(&all), is_kept(&all)),
            "{left:?}\n{:?}",
            self.dropping.reports()
        );
        assert_eq!(self.dropping.stored(DROPPED_OUTPUT, old).len(), 0);
        drop((self.dropping.stop(), self.keeping.stop()));
    }
}

impl World {
    fn now_ms(&self) -> i64 {
        self.simulation.honest_ns() / 1_000_000
    }
}

fn is_in(ranges_ms: &[(i64, i64)], time_ms: i64) -> bool {
    ranges_ms.iter().any(|(first_ms, last_ms)| (*first_ms..=*last_ms).contains(&time_ms))
}

fn step() -> impl Strategy<Value = Step> {
    let row = |ago: std::ops::Range<i64>| (0u8..3, 0u8..2, ago, any::<u8>());
    prop_oneof![
        6 => prop::collection::vec(row(0..300), 1..6).prop_map(Step::Write),
        4 => prop::collection::vec(row(0..3_500), 1..6).prop_map(Step::Write),
        2 => prop::collection::vec(row(3_600..20_000), 1..4).prop_map(Step::Write),
        1 => (0..3_500i64).prop_map(Step::Clash),
        6 => (1..100u64).prop_map(Step::Advance),
        2 => (prop::option::of(0u8..3), 0..3_500i64, 0..2_000i64).prop_map(|(job, ago, length)| Step::Delete(job, ago, length)),
        1 => (any::<bool>(), 0..1_200_000u64).prop_map(|(crashes, outage_ms)| Step::Restart(crashes, outage_ms)),
        1 => (-300..300i64, 5..45u64).prop_map(|(minutes, length)| Step::Clock(minutes, length)),
        3 => Just(Step::Check),
    ]
}

/// Cases of the property, unless `THALWEG_DROP_CASES` says how many.
const CASES: u32 = 6;

fn cases() -> u32 {
    std::env::var("THALWEG_DROP_CASES").map_or(CASES, |cases| cases.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 20, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn results_are_those_of_a_source_that_stays(steps in prop::collection::vec(step(), 8..20)) {
        let mut pair = Pair::new();
        steps.iter().for_each(|step| pair.apply(step));
        pair.end();
    }
}

const ONE: &str = "- {match: m, interval: 5m, by: [job], outputs: [sum_samples], drop_input: true}\n";
const NO_RULES: &str = "groups: []\n";

#[test]
fn what_no_result_is_made_of_goes_and_late_samples_count_for_an_hour() {
    let mut world = World::new(ONE, NO_RULES);
    let begun_ns = world.db().now_ns();
    for minute in 0..300 {
        world.write("job=a", "value=1", world.db().now_ns());
        world.run_minutes(1);
        if minute == 140 {
            world.restart(false, 0);
        }
        // As late as the hour.
        if minute % 20 == 0 && minute > 60 {
            world.write("job=late", "value=1", world.db().now_ns() - 59 * MINUTE_NS);
        }
    }
    world.settle();
    let sum =
        |world: &World| world.all("m:5m_by_job_sum_samples").values().map(|bits| f64::from_bits(*bits)).sum::<f64>();
    let expected = sum(&world);
    assert!((305.0..=312.0).contains(&expected), "{expected}");
    assert_eq!(world.refused(), 0, "{:?}", world.reports());
    let gone_ns = world.gone_before_ns("m");
    assert!(
        (begun_ns + 150 * MINUTE_NS..=world.db().now_ns() - HOUR_NS).contains(&gone_ns),
        "{}",
        (gone_ns - begun_ns) / MINUTE_NS
    );
    assert_eq!(world.stored("m", (0, gone_ns / 1_000_000 - 1)).len(), 0);
    let dropping = world.report("m:5m_by_job_sum_samples").dropping.unwrap();
    assert_eq!((dropping.gone_before_ns, dropping.kept_because), (Some(gone_ns), None));
    // Too late: counted as refused, and the result stays.
    world.write("job=a", "value=50", gone_ns - 5 * MINUTE_NS);
    world.settle();
    assert_eq!(sum(&world).to_bits(), expected.to_bits());
    assert!(world.refused() > 0);
    // A clock that is ahead deletes nothing.
    world.simulation.set_clock_ns(world.db().now_ns() + 24 * HOUR_NS);
    world.run_minutes(30);
    assert!(world.gone_before_ns("m") <= world.simulation.honest_ns() - HOUR_NS);
    drop(world.stop());
}

#[test]
fn results_that_were_there_before_an_entry_stay() {
    let mut world = World::new("[]", NO_RULES);
    let now_ns = world.db().now_ns();
    let begun_ns = now_ns - now_ns.rem_euclid(5 * MINUTE_NS);
    // Samples of two hours, and results that came with them of hours whose samples went elsewhere; one lies between two moments.
    (600..720).for_each(|minute| world.write("job=a", "value=1", begun_ns - minute * MINUTE_NS));
    let imported = [(90, 41), (100, 42), (102, 43), (650, 44)];
    for (minute, value) in imported {
        let line = format!("{DROPPED_OUTPUT},job=a value={value} {}", begun_ns - minute * MINUTE_NS);
        world.db().write_lines("default", line.as_bytes()).unwrap();
    }
    world.write("job=a", "value=1", begun_ns);
    world.run_minutes(1);
    ONE.clone_into(&mut world.entries);
    world.apply();
    world.run_minutes(200);
    world.settle();
    assert!(world.gone_before_ns("m") > begun_ns - 600 * MINUTE_NS, "{:?}", world.reports());
    let results = world.all(DROPPED_OUTPUT);
    let value = |minute: i64| {
        let time_ms = (begun_ns - minute * MINUTE_NS) / 1_000_000;
        results.iter().find(|((_, at_ms), _)| *at_ms == time_ms).map(|(_, bits)| f64::from_bits(*bits))
    };
    assert_eq!([90, 100, 102].map(value), [Some(41.0), Some(42.0), Some(43.0)]);
    assert_eq!([650, 605].map(value), [Some(5.0), Some(5.0)], "where there are samples results are made of them");
    drop(world.stop());
}

#[test]
fn an_entry_takes_what_was_there_before_it() {
    let mut world = World::new("[]", NO_RULES);
    let begun_ns = world.db().now_ns();
    (0..600).for_each(|minute| world.write("job=a", "value=1", begun_ns - minute * MINUTE_NS));
    world.run_minutes(1);
    ONE.clone_into(&mut world.entries);
    world.apply();
    world.run_minutes(30);
    let sum = world.all("m:5m_by_job_sum_samples").values().map(|bits| f64::from_bits(*bits)).sum::<f64>();
    assert!((595.0..=600.0).contains(&sum), "{sum}");
    let gone_ns = world.gone_before_ns("m");
    assert!(gone_ns > begun_ns - 4 * HOUR_NS, "{}", (begun_ns - gone_ns) / MINUTE_NS);
    assert_eq!(world.refused(), 0, "{:?}", world.reports());
    // Another entry finds a part of its first window gone: no result is made of the rest.
    world.entries = format!("{ONE}- {{match: m, interval: 1d, outputs: [count_samples], by: [job]}}\n");
    world.apply();
    world.run_minutes(25 * 60);
    world.settle();
    assert_eq!(world.all("m:1d_by_job_count_samples").len(), 0);
    assert!(world.report("m:1d_by_job_count_samples").counts.refused > 0, "{:?}", world.reports());
    drop(world.stop());
}

#[test]
fn what_is_not_known_to_be_unneeded_stays() {
    let held = |rules: &'static str, fields: &str, expected: &str| {
        let mut world = World::new(ONE, rules);
        for _ in 0..50 {
            world.write("job=a", fields, world.db().now_ns());
            world.run_minutes(5);
        }
        assert_eq!(world.gone_before_ns("m"), i64::MIN, "{expected}");
        let why = world.report("m:5m_by_job_sum_samples").dropping.unwrap().kept_because.unwrap_or_default();
        assert!(why.contains(expected), "{why}");
        assert!(world.db().health().checks().iter().any(|check| check.message.contains(expected)));
        drop(world.stop());
    };
    held(NO_RULES, "value=1,extra=2", "has the field \"extra\"");
    let info = "groups:\n- name: g\n  rules: [{alert: B, expr: 'info(n)'}]\n";
    held(info, "value=1", "how far it looks back is not known");
    let fixed = "groups:\n- name: g\n  rules: [{alert: B, expr: 'm @ 0'}]\n";
    held(fixed, "value=1", "how far it looks back is not known");
    let template = "groups:\n- name: g\n  rules: [{alert: B, expr: n, annotations: {x: '{{ query .Labels.y }}'}}]\n";
    held(template, "value=1", "the rule \"B\"");
}

#[test]
fn a_field_that_comes_later_ends_the_dropping() {
    let mut world = World::new(ONE, NO_RULES);
    let write = |world: &World, fields: &str| {
        for _ in 0..60 {
            world.write("job=a", fields, world.db().now_ns());
            world.run_minutes(5);
        }
    };
    write(&world, "value=1");
    let gone_ns = world.gone_before_ns("m");
    assert!(gone_ns > i64::MIN);
    write(&world, "value=1,extra=2");
    assert!(world.gone_before_ns("m") <= gone_ns + 2 * HOUR_NS);
    let count = world.all("m_extra").len();
    assert_eq!(count, 60, "rows of the other field stay");
    drop(world.stop());
}

#[test]
fn a_field_of_another_table_is_not_dropped() {
    let mut world = World::new(&ONE.replace("match: m", "match: m_x"), NO_RULES);
    for _ in 0..50 {
        world.write("job=a", "x=1", world.db().now_ns());
        world.run_minutes(5);
    }
    assert_eq!((world.gone_before_ns("m"), world.gone_before_ns("m_x")), (i64::MIN, i64::MIN));
    let why = world.report("m_x:5m_by_job_sum_samples").dropping.unwrap().kept_because.unwrap();
    assert!(why.contains("is the field \"x\" of the table \"m\""), "{why}");
    drop(world.stop());
}

#[test]
fn a_table_whose_name_begins_another_ones_freezes_nothing_of_it() {
    let entries = format!("{ONE}- {{match: m_x, interval: 5m, by: [job], outputs: [sum_samples]}}\n");
    let mut world = World::new(&entries, NO_RULES);
    let write = |world: &World, time_ns: i64, value: u8| {
        world.db().write_lines("default", format!("m_x,job=a value={value} {time_ns}").as_bytes()).unwrap();
    };
    for _ in 0..60 {
        write(&world, world.db().now_ns(), 1);
        world.write("job=a", "value=1", world.db().now_ns());
        world.run_minutes(5);
    }
    let gone_ns = world.gone_before_ns("m");
    assert!(gone_ns > i64::MIN);
    write(&world, gone_ns - 30 * MINUTE_NS, 100);
    world.settle();
    let sum: f64 = world.all("m_x:5m_by_job_sum_samples").values().map(|bits| f64::from_bits(*bits)).sum();
    assert!((159.0..=160.0).contains(&sum), "{sum}");
    assert_eq!(world.refused(), 0);
    drop(world.stop());
}

#[test]
fn what_has_no_result_since_others_of_its_time_are_gone_stays() {
    let mut world = World::new(&ONE.replace("match: m", "match: 'm{job!=\"kept\"}'"), NO_RULES);
    for _ in 0..60 {
        world.write("job=a", "value=1", world.db().now_ns());
        world.write("job=kept", "value=1", world.db().now_ns());
        world.run_minutes(5);
    }
    let gone_ns = world.gone_before_ns("m");
    assert!(gone_ns > i64::MIN);
    ONE.clone_into(&mut world.entries);
    world.apply();
    world.run_minutes(120);
    assert_eq!(world.gone_before_ns("m"), gone_ns);
    assert_eq!(world.all("m").keys().filter(|(series, _)| series.contains("job=kept")).count(), 60);
    let why = world.report("m:5m_by_job_sum_samples").dropping.unwrap().kept_because.unwrap();
    assert!(why.contains("are older than those that are gone"), "{why}");
    // They are not wanted.
    world.delete(&[("job", "kept")], &TimeRange::new(0, gone_ns - 1));
    world.run_minutes(10);
    assert!(world.gone_before_ns("m") > gone_ns);
    drop(world.stop());
}

#[test]
fn what_failed_is_not_forgotten_by_a_restart() {
    let relabel = "output_relabel_configs: [{action: labeldrop, regex: instance}]";
    let entry = format!("- {{match: m, interval: 5m, outputs: [max], drop_input: true, {relabel}}}\n");
    let mut world = World::new(&entry, NO_RULES);
    let begun_ns = world.db().now_ns();
    ["1", "2"].iter().for_each(|instance| world.write(&format!("job=a,instance={instance}"), "value=1", begun_ns));
    for _ in 0..60 {
        world.write("job=a,instance=1", "value=1", world.db().now_ns());
        world.run_minutes(5);
    }
    world.restart(false, 0);
    world.run_minutes(60);
    assert_eq!(world.gone_before_ns("m"), i64::MIN);
    assert!(world.all("m").len() >= 60);
    world.delete(&[("instance", "2")], &TimeRange::new(begun_ns, begun_ns));
    world.run_minutes(10);
    assert!(world.gone_before_ns("m") > begun_ns + HOUR_NS);
    assert!(world.all("m:5m_max").len() >= 60, "{:?}", world.reports());
    drop(world.stop());
}

#[test]
fn rows_whose_value_is_text_stay() {
    let mut world = World::new(ONE, NO_RULES);
    let begun_ns = world.db().now_ns();
    world.write("job=text", "value=\"a text\"", begun_ns);
    for _ in 0..50 {
        world.write("job=a", "value=1", world.db().now_ns());
        world.run_minutes(5);
    }
    assert_eq!(world.gone_before_ns("m"), i64::MIN);
    let why = world.report("m:5m_by_job_sum_samples").dropping.unwrap().kept_because.unwrap();
    assert!(why.contains("has or had text"), "{why}");
    assert_eq!(world.db().known_fields("default", "m"), ["value"], "the name alone does not tell");
    drop(world.stop());
}

#[test]
fn entries_that_drop_nothing_any_more_leave_no_warning() {
    let warns = |world: &World| world.db().health().checks().iter().any(|check| check.message.contains("drop_input"));
    for entries in ["[]", "- {match: m, interval: 5m, by: [job], outputs: [sum_samples]}\n"] {
        let mut world = World::new(ONE, NO_RULES);
        world.write("job=a", "value=1,extra=2", world.db().now_ns());
        world.run_minutes(10);
        assert!(warns(&world) && world.report("m:5m_by_job_sum_samples").dropping.is_some());
        entries.clone_into(&mut world.entries);
        world.apply();
        world.run_minutes(1);
        assert!(!warns(&world), "{entries}");
        assert!(world.reports().iter().all(|(_, report)| report.dropping.is_none()), "{entries}");
        drop(world.stop());
    }
}

#[test]
fn what_came_before_a_clock_stepped_ahead_after_a_start_has_results() {
    let mut world = World::new(ONE, NO_RULES);
    for _ in 0..24 {
        world.write("job=a", "value=1", world.db().now_ns());
        world.run_minutes(5);
    }
    let db = world.stop();
    db.close().unwrap();
    drop(db);
    // Six hours pass, of which the clock does not know at the start.
    world.network.run_ms(6 * 3_600_000);
    world.simulation.set_clock_ns(world.simulation.honest_ns() - 6 * HOUR_NS);
    world.start();
    world.network.run_ms(10_000);
    let right_ns = world.simulation.honest_ns();
    for minutes in (1..300).step_by(5) {
        world.write("job=b", "value=1", right_ns - minutes * MINUTE_NS);
    }
    world.simulation.set_clock_ns(right_ns);
    world.run_minutes(300);
    world.settle();
    let sum: f64 = world.all("m:5m_by_job_sum_samples").values().map(|bits| f64::from_bits(*bits)).sum();
    assert!((83.0..=84.0).contains(&sum), "{sum}: {:?}", world.reports());
    assert!(world.gone_before_ns("m") > right_ns);
    assert_eq!(world.refused(), 0);
    drop(world.stop());
}

//! Results of selected rules are what their expressions give over what is stored, however late rows came.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use db::{DatabasePolicy, Db, DbOptions, InstantQuery};
use platform::network::sim::{SimAnswer, SimNetwork, SimResponse};
use platform::sim::Simulation;
use promql::ResultValue;
use proptest::prelude::*;
use scrape::config;
use thalweg_rules::file::{ReadOptions, RuleKind, parse};
use thalweg_rules::group::{Group, Rule};
use thalweg_rules::materialize::{PastReport, RulePatterns, select};
use thalweg_rules::{Manager, ManagerOptions};

const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_S: i64 = 60;

/// Sums whose series come and go, windows, rules over rules of the same group and of another one, a shift into the future, all samples of a
/// window.
const RULES: &str = r#"
groups:
- name: minutes
  interval: 1m
  rules:
  - {record: 'job:load:sum', expr: 'sum by (job) (load{job!="x"})', labels: {origin: rule}}
  - {record: 'job:load:max', expr: 'max by (job) (max_over_time(load[3m]))'}
  - {record: 'job:load:high', expr: 'job:load:sum{origin="rule"} > 40'}
  - {record: 'loads', expr: 'scalar(count(load))'}
  - {record: 'job:load:distinct', expr: 'distinct_of_samples by (job) (load[3m])'}
  - {record: 'job:load:quantiles', expr: 'quantiles_of_samples by (job) ("quantile", 0.25, 0.9, load{job="j0"}[2m], load[2m])'}
  - {record: 'job:load:total', expr: 'total_of_period(job:load:distinct[10m])'}
  - {record: 'team:load:sum', expr: 'sum by (team) relabelled ("load", {source_label="job",source_label="instance",regex="j[01];i(.)",target_label="team"}, {action="drop",source_label="team",source_label="job",regex="0;j1"}) (sum_over_time(load[2m]))'}
  - {record: 'team:load:last', expr: 'last_of_samples without (instance) relabelled ({action="hashmod",source_label="job",modulus="2",target_label="job"}) (load[3m])'}
  - {record: 'load:buckets', expr: 'histogram_of_samples without (job) (load[1m])'}
- name: halves
  interval: 30s
  rules:
  - {record: 'jobs:high', expr: 'count(job:load:high offset 1m)'}
  - {record: 'ahead', expr: 'sum(load offset -1m)'}
"#;

/// How many rules that is.
const RULES_COUNT: usize = 12;

struct World {
    simulation: Simulation,
    network: SimNetwork,
    text: String,
    open: Option<(Arc<Db>, Manager)>,
    /// When the rules ran first.
    begun_ms: i64,
}

/// Job, instance, seconds before now, and the value.
type Row = (u8, u8, i64, u8);

#[derive(Debug, Clone)]
enum Step {
    Write(Vec<Row>),
    Advance(i64),
    Settle,
    /// The job whose rows are deleted, or those of all, seconds before now, and how many.
    Delete(Option<u8>, i64, i64),
    Reload,
    /// For how many milliseconds nothing runs.
    Restart(u64),
    Crash(u64),
}

impl World {
    fn new(text: &str) -> Self {
        let simulation = Simulation::new(5);
        let network =
            SimNetwork::new(&simulation, |_| SimAnswer { delay_ms: 1, result: Ok(SimResponse::ok("text/plain", "")) });
        let mut world = Self { simulation, network, text: text.to_owned(), open: None, begun_ms: 0 };
        world.start();
        world.begun_ms = world.db().now_ns() / 1_000_000;
        // The cursor of the log begins with the first pass.
        world.network.run_ms(2_000);
        world
    }

    fn start(&mut self) {
        let db = Arc::new(Db::open(self.simulation.platform(), DbOptions::new("/data")).unwrap());
        let options = ManagerOptions { database: "default".to_owned(), external_url: String::new() };
        let manager = Manager::start(&self.network.platform(), db.clone(), options);
        self.open = Some((db, manager));
        self.apply_rules();
    }

    fn apply_rules(&self) {
        let mut groups = parse(Path::new("/r.yml"), &self.text, &ReadOptions::default()).unwrap().groups;
        let warnings = select(&mut groups, &RulePatterns::parse(&["*".to_owned()]).unwrap()).unwrap();
        assert_eq!(warnings, []);
        let config = config::parse(Path::new("/p.yml"), "global: {evaluation_interval: 1m}", &|_| None).unwrap();
        self.manager().apply(&config.config, groups);
    }

    fn stop(&mut self) -> Arc<Db> {
        let (db, manager) = self.open.take().unwrap();
        manager.stop();
        self.network.run_ms(1);
        drop(manager);
        db
    }

    fn db(&self) -> &Arc<Db> {
        &self.open.as_ref().unwrap().0
    }

    fn manager(&self) -> &Manager {
        &self.open.as_ref().unwrap().1
    }

    fn write(&self, rows: &[Row]) {
        let now_ns = self.db().now_ns();
        let mut lines = String::new();
        for (job, instance, ago, value) in rows {
            let time_ns = now_ns - ago * SECOND_NS;
            writeln!(lines, "load,job=j{job},instance=i{instance} value={value} {time_ns}").unwrap();
        }
        self.db().write_lines("default", lines.as_bytes()).unwrap();
    }

    fn delete(&self, job: Option<u8>, ago: i64, length: i64) {
        let start_ns = self.db().now_ns() - ago * SECOND_NS;
        let range = model::TimeRange::new(start_ns, start_ns + length * SECOND_NS);
        let job = job.map(|job| model::Matcher::new("job", model::MatchOp::Equal, format!("j{job}")));
        let name = model::Matcher::new("__name__", model::MatchOp::Equal, "load");
        self.db().delete("default", &[[name].into_iter().chain(job).collect()], &range).unwrap();
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Write(rows) => self.write(rows),
            Step::Advance(seconds) => self.network.run_ms(*seconds as u64 * 1_000),
            Step::Settle => self.settle(),
            Step::Delete(job, ago, length) => self.delete(*job, *ago, *length),
            Step::Reload => {
                // An interval that no file had: other moments, at which nothing was stored.
                let (now, other) = if self.text.contains("interval: 30s") { ("30s", "20s") } else { ("20s", "30s") };
                self.text = self.text.replace(&format!("interval: {now}"), &format!("interval: {other}"));
                self.apply_rules();
                self.begun_ms = self.db().now_ns() / 1_000_000;
            }
            Step::Restart(outage_ms) | Step::Crash(outage_ms) => {
                let db = self.stop();
                if matches!(step, Step::Restart(_)) {
                    db.close().unwrap();
                    drop(db);
                } else {
                    drop(db);
                    self.simulation.crash();
                }
                self.network.run_ms(*outage_ms);
                self.start();
            }
        }
    }

    /// As long as rules of rules of rules need.
    fn settle(&self) {
        for _ in 0..60 {
            self.network.run_ms(3_000);
            if self.reports().iter().all(|report| report.pending.is_empty()) {
                break;
            }
        }
        // What was written last is read once more.
        self.network.run_ms(10_000);
        let reports = self.reports();
        assert!(reports.iter().all(|report| report.pending.is_empty() && report.error.is_none()), "{reports:?}");
    }

    fn reports(&self) -> Vec<PastReport> {
        let groups = self.manager().groups();
        groups.iter().flat_map(|group| &group.rules).filter_map(Rule::past_report).collect()
    }

    fn ask(&self, text: &str, time_ms: i64) -> BTreeMap<String, String> {
        let query = InstantQuery { may_cache: false, ..InstantQuery::new(text, time_ms) };
        let text = |labels: &model::Labels| {
            let own = labels.iter().filter(|(name, _)| !["__name__", "origin"].contains(name));
            own.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
        };
        match self.db().instant("default", &query).unwrap().value {
            ResultValue::Vector(found) => {
                found.iter().map(|sample| (text(&sample.labels), sample.value.to_string())).collect()
            }
            ResultValue::Scalar { value, .. } => BTreeMap::from([(String::new(), value.to_string())]),
            other => panic!("{other:?}"),
        }
    }

    /// Every result since the rules ran is what the expression gives now.
    fn check(&self) {
        for group in self.manager().groups() {
            for rule in &group.rules {
                self.check_rule(&group, rule);
            }
        }
    }

    fn check_rule(&self, group: &Group, rule: &Rule) {
        let RuleKind::Record(name) = &rule.config.kind else { panic!("a recording rule") };
        let Some(mut time_ms) = group.last().time_ms else { return };
        while time_ms > self.begun_ms {
            let expected = self.ask(&rule.config.expr, time_ms);
            assert_eq!(
                self.ask(name, time_ms),
                expected,
                "{name} at {time_ms}, {} before now",
                self.db().now_ns() / 1_000_000 - time_ms
            );
            time_ms -= group.interval_ms();
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let row = |ago: std::ops::Range<i64>| (0u8..3, 0u8..3, ago, any::<u8>().prop_map(|value| value % 60));
    prop_oneof![
        4 => prop::collection::vec(row(-5..5), 1..6).prop_map(Step::Write),
        5 => prop::collection::vec(row(0..25 * MINUTE_S), 1..6).prop_map(Step::Write),
        5 => (1..200i64).prop_map(Step::Advance),
        2 => Just(Step::Settle),
        2 => (prop::option::of(0u8..3), 0..25 * MINUTE_S, 0..10 * MINUTE_S).prop_map(|(job, ago, length)| Step::Delete(job, ago, length)),
        1 => Just(Step::Reload),
        1 => (0..200_000u64).prop_map(Step::Restart),
        1 => (0..200_000u64).prop_map(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn results_are_what_the_expressions_give(steps in prop::collection::vec(step(), 1..16)) {
        let mut world = World::new(RULES);
        for step in &steps {
            world.apply(step);
            if matches!(step, Step::Settle) {
                world.check();
            }
        }
        world.settle();
        world.check();
        drop(world.stop());
    }
}

#[test]
fn what_was_not_there_when_a_rule_was_evaluated_counts_and_ends() {
    let mut world = World::new(RULES);
    for _ in 0..10 {
        world.write(&[(0, 0, 0, 10)]);
        world.network.run_ms(60_000);
    }
    // Rows in time cost nothing, but for the rule that looks ahead: the second one.
    let evaluated: Vec<bool> = world.reports().iter().map(|report| report.counts.evaluations > 0).collect();
    assert_eq!(
        evaluated,
        [false, true, false, false, false, false, false, false, false, false, false, false],
        "{:?}",
        world.reports()
    );
    // A job that was there for a moment, four minutes ago.
    world.write(&[(1, 0, 240, 50)]);
    world.settle();
    world.check();
    let now_ms = world.db().now_ns() / 1_000_000;
    let sum = "count_over_time(job:load:sum{job=\"j1\"}[20m])";
    let count: f64 = world.ask(sum, now_ms)["job=j1"].parse().unwrap();
    assert!((4.0..=6.0).contains(&count), "as long as a sample counts: {count}");
    assert!(world.ask("job:load:high", now_ms - 180_000).contains_key("job=j1"));
    world.network.run_ms(180_000);
    world.check();
    let now_ms = world.db().now_ns() / 1_000_000;
    assert!(!world.ask("job:load:sum", now_ms).contains_key("job=j1"), "it has ended");
    drop(world.stop());
}

#[test]
fn rows_from_before_a_rule_give_its_results_there() {
    let mut world = World::new(RULES);
    world.write(&[(0, 0, 86_400, 7), (0, 1, 86_400 - 30, 8)]);
    world.settle();
    let day_ago_ms = world.db().now_ns() / 1_000_000 - 86_400_000;
    let counted = world.ask("sum(count_over_time(job:load:sum[1h]))", day_ago_ms + 1_800_000);
    let count: f64 = counted[""].parse().unwrap();
    assert!((5.0..=6.0).contains(&count), "five minutes and a half: {count}");
    drop(world.stop());
}

#[test]
fn of_what_retention_has_taken_nothing_is_computed_again() {
    let mut world = World::new(RULES);
    let day_ns = 86_400 * SECOND_NS;
    let policy = DatabasePolicy { retention_ns: day_ns, ..world.db().policy("default").unwrap_or_default() };
    world.db().set_policy("default", &policy).unwrap();
    // Its first minutes reach over the edge.
    world.write(&[(0, 0, 86_400 - 120, 7)]);
    world.settle();
    let refused: u64 = world.reports().iter().map(|report| report.counts.refused).sum();
    assert!(refused > 0, "{:?}", world.reports());
    drop(world.stop());
}

#[test]
fn what_was_due_while_nothing_ran_is_computed() {
    for outage in [Step::Restart(600_000), Step::Crash(600_000)] {
        let mut world = World::new(RULES);
        // Before any result.
        world.write(&[(0, 0, 1, 10), (1, 0, -30, 20)]);
        world.apply(&outage);
        world.network.run_ms(61_000);
        world.settle();
        world.check();
        let now_ms = world.db().now_ns() / 1_000_000;
        let counted = world.ask("count_over_time(job:load:max{job=\"j0\"}[20m])", now_ms);
        assert!(!counted.is_empty(), "{outage:?}");
        drop(world.stop());
    }
}

#[test]
fn nothing_is_kept_of_rules_that_are_not_selected_any_more() {
    let mut world = World::new(RULES);
    world.network.run_ms(10_000);
    let cursors =
        |world: &World| world.db().log_cursors().iter().filter(|cursor| cursor.name == "rules:default").count();
    assert_eq!(cursors(&world), 1);
    let groups = parse(Path::new("/r.yml"), RULES, &ReadOptions::default()).unwrap().groups;
    let config = config::parse(Path::new("/p.yml"), "global: {evaluation_interval: 1m}", &|_| None).unwrap();
    world.manager().apply(&config.config, groups);
    world.network.run_ms(500_000);
    assert!(!documents(world.db()).is_empty(), "they may come again");
    world.network.run_ms(110_000);
    assert_eq!((cursors(&world), documents(world.db()).len()), (0, 0));
    drop(world.stop());
}

/// The documents of what is pending.
fn documents(db: &Db) -> Vec<(String, Arc<[u8]>)> {
    db.documents("materialized-rules")
}

/// The sequence id up to which the log needs not be read again.
fn followed(db: &Db) -> u64 {
    db.log_cursors().iter().find(|cursor| cursor.name == "rules:default").unwrap().sequence
}

/// All memory that queries may have but for some.
fn take_memory(db: &Db, left_bytes: u64) -> Vec<Arc<query::Budget>> {
    let left = db.budget(1);
    left.hold_bytes(left_bytes).unwrap();
    let mut taken = Vec::new();
    for bytes in (6..40).rev().map(|shift| 1u64 << shift) {
        // One query alone may not have all that is left.
        loop {
            let budget = db.budget(1);
            if budget.hold_bytes(bytes).is_err() {
                break;
            }
            taken.push(budget);
        }
    }
    taken
}

/// Enough to read the log, of which one reader gets four fifths, and too little for a query of many samples.
const LOG_BYTES: u64 = 6 << 20;

#[test]
fn what_there_is_no_memory_for_is_computed_later() {
    // All samples of a window are held.
    let rule = "{record: 'load:median', expr: 'quantile_over_time(0.5, load[10m])'}";
    let mut world = World::new(&format!("groups:\n- name: minutes\n  interval: 1m\n  rules: [{rule}]\n"));
    for _ in 0..10 {
        world.write(&[(0, 0, 0, 10)]);
        world.network.run_ms(60_000);
    }
    world.settle();
    let memory = take_memory(world.db(), LOG_BYTES);
    // As many samples within a window as there is no memory for.
    let start_ns = world.db().now_ns() - 600 * SECOND_NS;
    for piece in 0..20i64 {
        let line =
            |at: i64| format!("load,job=j1,instance=i0 value={at} {}\n", start_ns + (piece * 20_000 + at) * 1_000_000);
        world.db().write_lines("default", (0..20_000).map(line).collect::<String>().as_bytes()).unwrap();
    }
    world.network.run_ms(20_000);
    let is_waiting = |report: &PastReport| !report.pending.is_empty() && report.error.is_some();
    assert!(is_waiting(&world.reports()[0]), "{:?}", world.reports());
    assert!(world.reports().iter().all(|report| report.counts.failures == 0), "{:?}", world.reports());
    drop(memory);
    // Evaluations of that time failed.
    world.settle();
    world.check();
    drop(world.stop());
}

#[test]
fn series_from_before_a_start_end_even_if_the_first_evaluation_fails() {
    let mut world = World::new(RULES);
    world.write(&[(0, 0, 0, 10), (1, 0, 0, 10)]);
    world.network.run_ms(280_000);
    world.apply(&Step::Restart(0));
    let memory = take_memory(world.db(), 0);
    world.network.run_ms(61_000);
    drop(memory);
    world.network.run_ms(61_000);
    let now_ms = world.db().now_ns() / 1_000_000;
    assert_eq!(world.ask("count(count_over_time(job:load:sum[4m]))", now_ms)[""], "2");
    assert_eq!(world.ask("job:load:sum", now_ms), BTreeMap::new());
    drop(world.stop());
}

#[test]
fn many_rules_are_remembered_each_by_itself() {
    let rule = |at| format!("  - {{record: 'a_rule_with_a_rather_long_name_{at}', expr: 'sum(load)'}}\n");
    let rules: String = (0..800).map(rule).collect();
    let mut world = World::new(&format!("groups:\n- name: many\n  interval: 1h\n  rules:\n{rules}"));
    world.write(&[(0, 0, 0, 1)]);
    let written = world.db().last_sequence();
    world.network.run_ms(12_000);
    assert_eq!(world.reports().iter().find_map(|report| report.error.as_ref()), None);
    assert!(followed(world.db()) >= written);
    let bytes: usize = documents(world.db()).iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!((documents(world.db()).len(), bytes > 64 << 10), (800, true), "more than one document holds");
    // Those of rules that are not there any more go.
    world.text = RULES.to_owned();
    world.apply(&Step::Restart(0));
    world.network.run_ms(620_000);
    assert_eq!(documents(world.db()).len(), RULES_COUNT);
    drop(world.stop());
}

#[test]
fn what_earlier_versions_remembered_is_computed() {
    let mut world = World::new(RULES);
    world.network.run_ms(120_000);
    let day_ago_ns = world.db().now_ns() - 86_400 * SECOND_NS;
    let pending = format!("[[{},{day_ago_ns}]]", day_ago_ns - 600 * SECOND_NS);
    let rule = format!(r#"{{"group":"minutes","name":"loads","labels":{{}},"pending":{pending},"frozen_ns":null}}"#);
    let old = format!(r#"{{"version":1,"rules":[{rule}]}}"#);
    world.db().put_document("materialized-rules", "default", old.as_bytes()).unwrap();
    world.apply(&Step::Restart(0));
    world.settle();
    // Of this rule ten more than of the others of its group, which have the time since they were saved.
    let evaluated: Vec<u64> = world.reports().iter().map(|report| report.counts.evaluations).collect();
    assert_eq!(evaluated[5] - evaluated[4], 10, "{:?}", world.reports());
    let names: Vec<String> = documents(world.db()).into_iter().map(|(name, _)| name).collect();
    assert!(names.len() == RULES_COUNT && names.iter().all(|name| name.starts_with("default/")), "{names:?}");
    drop(world.stop());
}

#[test]
fn a_clock_that_is_put_back_holds_nothing_up() {
    let mut world = World::new(RULES);
    world.network.run_ms(12_000);
    world.simulation.set_clock_ns(world.simulation.honest_ns() - 3_600 * SECOND_NS);
    world.write(&[(0, 0, 0, 1)]);
    let written = world.db().last_sequence();
    world.network.run_ms(12_000);
    assert!(followed(world.db()) >= written, "{} {written}", followed(world.db()));
    drop(world.stop());
}

#[test]
fn what_was_deleted_counts_no_more_and_is_known_after_a_crash() {
    let mut world = World::new(RULES);
    for minute in 0..10 {
        world.write(&[(0, 0, 1, 30), (1, 0, 1, 20 + minute)]);
        world.network.run_ms(60_000);
    }
    world.settle();
    world.check();
    let before = world.ask("count_over_time(job:load:max{job=\"j0\"}[10m])", world.db().now_ns() / 1_000_000);
    assert!(!before.is_empty());
    world.delete(Some(0), 8 * MINUTE_S, 4 * MINUTE_S);
    world.apply(&Step::Crash(0));
    world.settle();
    world.check();
    // A dropped table is a delete of all its rows.
    let budget = query::Budget::new(1_000_000);
    let statement = influxql::Query::parse("DROP MEASUREMENT load", &BTreeMap::new()).unwrap();
    let request = influxql::RequestContext { database: Some("default"), read_only: false };
    world.db().run_influxql(&statement, 0, &request, &budget).unwrap();
    world.settle();
    world.check();
    let left = world.ask("sum(count_over_time(job:load:max[1m]))", world.db().now_ns() / 1_000_000 - 5 * 60_000);
    assert!(left.is_empty(), "{left:?}");
}

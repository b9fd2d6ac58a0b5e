//! Rules in simulated time: recording, alerts from pending to resolved over a restart, and what an Alertmanager hears of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::float_cmp, reason = "a test")]

use std::path::Path;
use std::sync::{Arc, Mutex};

use db::{Db, DbOptions, InstantQuery};
use platform::network::HttpRequest;
use platform::network::sim::{SimAnswer, SimNetwork, SimResponse};
use platform::sim::Simulation;
use promql::ResultValue;
use scrape::config::{self, Config};
use serde_json::Value;
use thalweg_rules::file::{GroupConfig, ReadOptions, parse};
use thalweg_rules::{Manager, ManagerOptions};

const MINUTE_MS: u64 = 60_000;

const CONFIG: &str = "
global: {evaluation_interval: 1m, external_labels: {region: eu}}
alerting:
  alert_relabel_configs: [{regex: secret, action: labeldrop}]
  alertmanagers: [{path_prefix: /am, static_configs: [{targets: ['am:9093']}]}]
";

const RULES: &str = r#"
groups:
- name: g
  rules:
  - record: job:load:sum
    expr: sum by (job) (load)
    labels: {origin: rule}
  - alert: High
    expr: job:load:sum > 10
    for: 20m
    labels: {severity: '{{ if gt $value 100.0 }}critical{{ else }}warning{{ end }}', secret: x}
    annotations: {summary: '{{ $labels.job }} has {{ $value }}, {{ with query "count(load)" }}{{ . | first | value }}{{ end }} series'}
  - record: histogram
    expr: rate(nothing[5m])
"#;

type Received = Arc<Mutex<Vec<Value>>>;

struct World {
    simulation: Simulation,
    network: SimNetwork,
    received: Received,
}

impl World {
    fn new() -> Self {
        let simulation = Simulation::new(3);
        let received = Received::default();
        let to = received.clone();
        let network = SimNetwork::new(&simulation, move |request: &HttpRequest| {
            assert_eq!(request.url, "http://am:9093/am/api/v2/alerts");
            to.lock().unwrap().push(serde_json::from_slice(&request.body).unwrap());
            SimAnswer { delay_ms: 5, result: Ok(SimResponse::ok("application/json", "")) }
        });
        Self { simulation, network, received }
    }

    fn open(&self) -> Arc<Db> {
        let mut options = DbOptions::new("/data");
        options.store.shards = 1;
        Arc::new(Db::open(self.simulation.platform(), options).unwrap())
    }

    fn start(&self, db: &Arc<Db>, text: &str) -> Manager {
        let options = ManagerOptions { database: "default".to_owned(), external_url: "http://t.example/x".to_owned() };
        let manager = Manager::start(&self.network.platform(), db.clone(), options);
        manager.apply(&config(), rules(text));
        manager
    }

    /// Minute by minute, with a sample of each load before.
    fn run(&self, db: &Db, minutes: usize, loads: &[(&str, f64)]) {
        for _ in 0..minutes {
            let now_ns = self.simulation.platform().clock.now_ns();
            for (job, load) in loads {
                db.write_lines("default", format!("load,job={job} value={load} {now_ns}").as_bytes()).unwrap();
            }
            self.network.run_ms(MINUTE_MS);
        }
    }

    fn query(&self, db: &Db, text: &str) -> Vec<(String, f64)> {
        let now_ms = self.simulation.platform().clock.now_ns() / 1_000_000;
        let ResultValue::Vector(found) = db.instant("default", &InstantQuery::new(text, now_ms)).unwrap().value else {
            panic!("a vector")
        };
        let labels = |labels: &model::Labels| {
            labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
        };
        found.iter().map(|sample| (labels(&sample.labels), sample.value)).collect()
    }

    fn received(&self) -> Vec<Value> {
        let all = std::mem::take(&mut *self.received.lock().unwrap());
        all.iter().flat_map(|body| body.as_array().unwrap().clone()).collect()
    }
}

fn config() -> Config {
    config::parse(Path::new("/p.yml"), CONFIG, &|_| None).unwrap().config
}

fn rules(text: &str) -> Vec<GroupConfig> {
    parse(Path::new("/r.yml"), text, &ReadOptions::default()).unwrap().groups
}

#[test]
fn an_alert_from_pending_to_resolved_over_a_restart() {
    let world = World::new();
    let db = world.open();
    let manager = world.start(&db, RULES);
    world.run(&db, 10, &[("a", 12.0), ("b", 1.0)]);
    assert_eq!(
        world.query(&db, "job:load:sum"),
        [
            ("__name__=job:load:sum,job=a,origin=rule".to_owned(), 12.0),
            ("__name__=job:load:sum,job=b,origin=rule".to_owned(), 1.0)
        ]
    );
    let states = |manager: &Manager| {
        let group = manager.groups()[0].clone();
        group.rules.iter().map(|rule| rule.state().health.name()).collect::<Vec<_>>()
    };
    assert_eq!(states(&manager), ["ok", "ok", "ok"]);
    assert_eq!(world.query(&db, "ALERTS{alertstate='pending'}").len(), 1);
    assert!(world.received().is_empty());
    assert!(manager.metrics().contains("prometheus_rule_group_iterations_total{rule_group=\"/r.yml;g\"} "));
    // Twelve minutes of twenty have passed after the restart: some ten are left.
    let since = world.query(&db, "ALERTS_FOR_STATE")[0].1;
    manager.stop();
    world.network.run_ms(1);
    drop(manager);
    db.close().unwrap();
    drop(db);
    let db = world.open();
    let manager = world.start(&db, RULES);
    world.run(&db, 3, &[("a", 12.0)]);
    let restored = world.query(&db, "ALERTS_FOR_STATE")[0].1;
    assert!((since..since + 240.0).contains(&restored), "{since} {restored}");
    world.run(&db, 14, &[("a", 12.0)]);
    let fired = world.received();
    let first = &fired[0];
    assert_eq!(
        first["labels"],
        serde_json::json!({ "alertname": "High", "job": "a", "origin": "rule", "region": "eu", "severity": "warning" })
    );
    assert_eq!(first["annotations"]["summary"], "a has 12, 1 series");
    assert_eq!(first["generatorURL"], "http://t.example/x/graph?g0.expr=job%3Aload%3Asum+%3E+10&g0.tab=1");
    assert!(first["endsAt"].as_str() > first["startsAt"].as_str());
    // The series of what vanished ended.
    assert_eq!(world.query(&db, "job:load:sum{job='b'}").len(), 0);
    world.run(&db, 2, &[("a", 1.0)]);
    let resolved = world.received();
    let last = resolved.last().unwrap();
    assert_eq!(last["startsAt"], first["startsAt"]);
    let now = jiff::Timestamp::from_nanosecond(i128::from(db.now_ns())).unwrap();
    assert!(last["endsAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap() <= now);
    assert!(world.query(&db, "ALERTS").is_empty());
    world.run(&db, 10, &[("a", 1.0)]);
    assert!(!world.received().is_empty());
    world.run(&db, 10, &[("a", 1.0)]);
    world.received();
    world.run(&db, 3, &[("a", 1.0)]);
    assert!(world.received().is_empty(), "resolved alerts are forgotten after a quarter of an hour");
    manager.stop();
}

#[test]
fn reloads_keep_what_did_not_change() {
    let world = World::new();
    let db = world.open();
    let manager = world.start(&db, RULES);
    world.run(&db, 5, &[("a", 12.0)]);
    let before = manager.groups();
    manager.apply(&config(), rules(RULES));
    assert!(Arc::ptr_eq(&before[0], &manager.groups()[0]));
    // One rule goes, the alert stays pending since when it was.
    let since = world.query(&db, "ALERTS_FOR_STATE");
    let text = "groups:\n- name: g\n  rules:\n  - alert: High\n    expr: sum by (job, origin) (label_replace(load, 'origin', 'rule', '', '')) > 10\n    for: 20m\n    labels: {severity: '{{ if gt $value 100.0 }}critical{{ else }}warning{{ end }}', secret: x}\n";
    manager.apply(&config(), rules(text));
    world.run(&db, 2, &[("a", 12.0)]);
    assert_eq!(world.query(&db, "ALERTS_FOR_STATE"), since);
    assert!(world.query(&db, "job:load:sum").is_empty());
    // A group that goes takes its series with it, later.
    manager.apply(&config(), Vec::new());
    world.run(&db, 1, &[("a", 12.0)]);
    assert_eq!(world.query(&db, "ALERTS").len(), 1);
    world.run(&db, 2, &[("a", 12.0)]);
    assert!(world.query(&db, "ALERTS").is_empty());
    manager.stop();
}

#[test]
fn an_alertmanager_that_hangs_holds_no_other_up() {
    let simulation = Simulation::new(4);
    let received = Arc::new(Mutex::new((Vec::new(), 0)));
    let to = received.clone();
    let clock = simulation.platform().clock;
    let network = SimNetwork::new(&simulation, move |request: &HttpRequest| {
        let mut received = to.lock().unwrap();
        let hangs = request.url.starts_with("http://hangs:9093/");
        if hangs {
            received.1 += 1;
        } else {
            received.0.push(clock.now_ns() / 1_000_000_000);
        }
        let delay_ms = if hangs { u64::MAX } else { 5 };
        SimAnswer { delay_ms, result: Ok(SimResponse::ok("application/json", "")) }
    });
    let world = World { simulation, network, received: Received::default() };
    let db = world.open();
    let options = ManagerOptions { database: "default".to_owned(), external_url: String::new() };
    let manager = Manager::start(&world.network.platform(), db.clone(), options);
    let text = "alerting: {alertmanagers: [{timeout: 50s, static_configs: [{targets: ['hangs:9093', 'takes:9093']}]}]}\n\
                global: {evaluation_interval: 10s}";
    let config = config::parse(Path::new("/p.yml"), text, &|_| None).unwrap().config;
    let text = "groups:\n- name: g\n  rules:\n  - {alert: A, expr: load > 0}\n  - {alert: B, expr: load > 0}\n";
    manager.apply(&config, rules(text));
    world.run(&db, 5, &[("a", 1.0)]);
    let (times, hanging) = received.lock().unwrap().clone();
    // Both alerts each minute, at the moment at which they are evaluated.
    assert!(times.len() >= 4, "{times:?}");
    assert!(times.iter().all(|time| (time - times[0]) % 10 == 0), "{times:?}");
    assert!((2..=6).contains(&hanging), "{hanging}");
    let counts = manager.notifier().counts();
    let of = |host: &str| *counts.iter().find(|(url, _)| url.contains(host)).unwrap().1;
    assert!(of("hangs").errors > 0 && of("hangs").sent == 0 && of("takes").errors == 0, "{counts:?}");
    assert_eq!(of("takes").sent, 2 * times.len() as u64, "{counts:?}");
    manager.stop();
    world.network.run_ms(60_000);
}

#[test]
fn test_files_of_promtool() {
    use thalweg_rules::unit_test::{RunOptions, run};
    let files = Simulation::new(1).platform().files;
    let rules = "groups:\n- name: g\n  rules:\n  - record: job:up:sum\n    expr: sum by (job) (up)\n  - alert: Down\n    expr: up == 0\n    for: 2m\n    labels: {severity: page}\n    annotations: {summary: '{{ $labels.instance }} is down, {{ $externalLabels.region }}'}\n";
    let test = "rule_files: [r.yml]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  external_labels: {region: eu}\n  input_series:\n  - {series: 'up{job=\"a\", instance=\"x\"}', values: '1 1 0x10 stale'}\n  - {series: 'up{job=\"a\", instance=\"y\"}', values: '1+0x20'}\n  alert_rule_test:\n  - {eval_time: 3m, alertname: Down}\n  - eval_time: 5m\n    alertname: Down\n    exp_alerts:\n    - exp_labels: {severity: page, job: a, instance: x}\n      exp_annotations: {summary: 'x is down, eu'}\n  promql_expr_test:\n  - expr: job:up:sum\n    eval_time: 4m\n    exp_samples: [{labels: 'job:up:sum{job=\"a\"}', value: 1}]\n  - {expr: up == 5, eval_time: 1m}\n";
    files.create_directory(Path::new("/t")).unwrap();
    let write = |name: &str, text: &str| platform::write_file(&*files, Path::new(name), text.as_bytes()).unwrap();
    write("/t/r.yml", rules);
    write("/t/good.yml", test);
    write("/t/bad.yml", &test.replace("value: 1}", "value: 7}").replace("severity: page, job", "severity: none, job"));
    let options = RunOptions { files: &*files, read: ReadOptions::default(), only: &[] };
    assert_eq!(run(Path::new("/t/good.yml"), &options), Ok(Vec::new()));
    let failures = run(Path::new("/t/bad.yml"), &options).unwrap();
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert!(failures[1].contains("exp: job:up:sum{job=\"a\"} 7\n        got: job:up:sum{job=\"a\"} 1"), "{failures:?}");
}

#[test]
fn test_files_have_native_histograms() {
    use thalweg_rules::unit_test::{RunOptions, run};
    let files = Simulation::new(1).platform().files;
    let rules = "groups:\n- name: g\n  rules:\n  - {record: total, expr: sum(took)}\n  - {alert: Slow, expr: 'histogram_quantile(0.9, took) > 1'}\n";
    let test = "rule_files: [r.yml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {series: 'took{i=\"a\"}', values: '{{schema:0 count:3 sum:5 buckets:[1 2]}}+{{schema:0 count:3 sum:5 buckets:[1 2]}}x10'}
  - {series: 'took{i=\"b\"}', values: '{{count:1 sum:0.5 buckets:[1]}}x10'}
  promql_expr_test:
  - expr: total
    eval_time: 2m
    exp_samples: [{labels: total, histogram: '{{count:10 sum:15.5 buckets:[4 6]}}'}]
  - expr: histogram_count(took)
    eval_time: 1m
    exp_samples: [{labels: '{i=\"a\"}', value: 6}, {labels: '{i=\"b\"}', value: 1}]
  alert_rule_test:
  - {eval_time: 1m, alertname: Slow, exp_alerts: [{exp_labels: {i: a}}]}
";
    files.create_directory(Path::new("/t")).unwrap();
    let write = |name: &str, text: &str| platform::write_file(&*files, Path::new(name), text.as_bytes()).unwrap();
    write("/t/r.yml", rules);
    write("/t/good.yml", test);
    write("/t/bad.yml", &test.replace("buckets:[4 6]", "buckets:[4 7]"));
    write("/t/wrong.yml", &test.replace("'{{count:10 sum:15.5", "'{{cuont:10 sum:15.5"));
    let options = RunOptions { files: &*files, read: ReadOptions::default(), only: &[] };
    assert_eq!(run(Path::new("/t/good.yml"), &options), Ok(Vec::new()));
    let failures = run(Path::new("/t/bad.yml"), &options).unwrap();
    let expected =
        "exp: total {{count:10 sum:15.5 buckets:[4 7]}}\n        got: total {{count:10 sum:15.5 buckets:[4 6]}}";
    assert!(failures.len() == 1 && failures[0].contains(expected), "{failures:?}");
    let problems = run(Path::new("/t/wrong.yml"), &options).unwrap_err();
    assert!(problems[0].message.contains("cuont: unknown field"), "{problems:?}");
}

#[test]
fn the_past_is_filled() {
    use thalweg_rules::RuleStore;
    use thalweg_rules::backfill::{BackfillRange, backfill};
    let world = World::new();
    let db = world.open();
    let start_ms = db.now_ns() / 1_000_000;
    world.run(&db, 10, &[("a", 2.0), ("b", 3.0)]);
    let text = "groups:\n- name: g\n  rules:\n  - {record: total, expr: sum(load)}\n  - {record: double, expr: total * 2}\n  - {alert: A, expr: load}\n";
    let range = BackfillRange { start_ms: start_ms + 60_000, end_ms: start_ms + 359_999, interval_ms: 60_000 };
    let store = RuleStore::new(db.clone(), "default");
    let mut moments = Vec::new();
    assert_eq!(backfill(&store, &rules(text), range, &mut |time_ms| moments.push(time_ms)), Ok(5));
    assert!(moments.iter().all(|time_ms| (range.start_ms..=range.end_ms).contains(time_ms)));
    assert_eq!(world.query(&db, "sum_over_time(double[10m])"), [(String::new(), 50.0)]);
    assert!(world.query(&db, "last_over_time(ALERTS[10m])").is_empty());
}

#[test]
fn the_past_is_not_filled_with_what_age_has_left_of_it() {
    use db::DatabasePolicy;
    use thalweg_rules::RuleStore;
    use thalweg_rules::backfill::{BackfillRange, backfill};
    let world = World::new();
    let db = world.open();
    world.run(&db, 10, &[("a", 2.0)]);
    let policy = DatabasePolicy { retention_ns: 3_600_000_000_000, ..DatabasePolicy::default() };
    db.set_policy("default", &policy).unwrap();
    let text = "groups:\n- name: g\n  rules:\n  - {record: total, expr: 'sum(sum_over_time(load[10m]))'}\n";
    let store = RuleStore::new(db.clone(), "default");
    let now_ms = db.now_ns() / 1_000_000;
    let fill = |minutes: i64| {
        let range = BackfillRange { start_ms: now_ms - minutes * 60_000, end_ms: now_ms, interval_ms: 60_000 };
        backfill(&store, &rules(text), range, &mut |_| ())
    };
    let refused = fill(55).unwrap_err();
    assert!(refused.contains("g: total: results before ") && refused.contains("must not be earlier"), "{refused}");
    assert!(world.query(&db, "last_over_time(total[2h])").is_empty(), "nothing was written");
    let filled = fill(40);
    assert!(matches!(filled, Ok(40..=41)), "{filled:?}");
}

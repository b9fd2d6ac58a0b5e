//! The source of stream aggregation goes once no result is made of it any more, and no result goes with it.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use db::{Db, DbOptions, InstantQuery};
use platform::network::sim::{SimAnswer, SimNetwork, SimResponse};
use platform::sim::Simulation;
use promql::{Features, ResultValue};
use scrape::config;
use thalweg_rules::group::Rule;
use thalweg_rules::materialize::{PastReport, RulePatterns, select};
use thalweg_rules::stream_aggregation::AggregationFile;
use thalweg_rules::{Manager, ManagerOptions};

const MINUTE_NS: i64 = 60_000_000_000;

const FILE: &str = "- {match: 'm{job!=\"kept\"}', interval: 1m, by: [job], outputs: [sum_samples, count_samples], drop_input: true}\n\
                    - {match: m, interval: 10m, outputs: [max]}\n";

struct World {
    simulation: Simulation,
    network: SimNetwork,
    open: Option<(Arc<Db>, Manager)>,
}

impl World {
    fn new() -> Self {
        let simulation = Simulation::new(5);
        let network =
            SimNetwork::new(&simulation, |_| SimAnswer { delay_ms: 1, result: Ok(SimResponse::ok("text/plain", "")) });
        let mut world = Self { simulation, network, open: None };
        world.start();
        world.network.run_ms(2_000);
        world
    }

    fn start(&mut self) {
        let db = Arc::new(Db::open(self.simulation.platform(), DbOptions::new("/data")).unwrap());
        let options = ManagerOptions { database: "default".to_owned(), external_url: String::new() };
        let manager = Manager::start(&self.network.platform(), db.clone(), options);
        let file = AggregationFile { path: "s.yml".into(), lookback_ms: 300_000, features: Features::default() };
        let mut groups = file.parse(FILE, &|_| None).unwrap().groups;
        assert_eq!(select(&mut groups, &RulePatterns::default()), Ok(Vec::new()));
        let config = config::parse(std::path::Path::new("/p.yml"), "global: {}", &|_| None).unwrap();
        manager.apply(&config.config, groups);
        self.open = Some((db, manager));
    }

    fn restart(&mut self) {
        let (db, manager) = self.open.take().unwrap();
        manager.stop();
        self.network.run_ms(1);
        drop((manager, db));
        self.start();
    }

    fn db(&self) -> &Arc<Db> {
        &self.open.as_ref().unwrap().0
    }

    /// Writes a value of 1 of each job, so many minutes ago.
    fn write(&self, fields: &str, jobs: &[&str], minutes_ago: i64) {
        let time_ns = self.db().now_ns() - minutes_ago * MINUTE_NS;
        let mut lines = String::new();
        jobs.iter().for_each(|job| writeln!(lines, "m,job={job} {fields} {time_ns}").unwrap());
        self.db().write_lines("default", lines.as_bytes()).unwrap();
    }

    fn run(&self, minutes: u64) {
        (0..minutes).for_each(|_| self.network.run_ms(60_000));
    }

    /// What a query gives by job now.
    fn ask(&self, text: &str) -> BTreeMap<String, f64> {
        let now_ms = self.db().now_ns() / 1_000_000;
        let found = self.db().instant("default", &InstantQuery::new(text, now_ms)).unwrap();
        let ResultValue::Vector(samples) = found.value else { panic!("{text} gives no vector") };
        samples.iter().map(|sample| (sample.labels.get("job").unwrap_or_default().to_owned(), sample.value)).collect()
    }

    fn reports(&self) -> Vec<PastReport> {
        let groups = self.open.as_ref().unwrap().1.groups();
        groups.iter().flat_map(|group| &group.rules).filter_map(Rule::past_report).collect()
    }

    fn refused(&self) -> u64 {
        self.reports().iter().map(|report| report.counts.refused).sum()
    }
}

fn values(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
    pairs.iter().map(|(job, value)| ((*job).to_owned(), *value)).collect()
}

#[test]
fn what_no_result_is_made_of_goes() {
    let mut world = World::new();
    for minute in 0..180 {
        world.write("value=1", &["a", "kept"], 0);
        world.run(1);
        if minute == 90 {
            world.restart();
        }
    }
    let counted = "sum_over_time(m:1m_by_job_sum_samples[4h])";
    assert_eq!(world.ask(counted), values(&[("a", 180.0)]));
    let left = |job: &str| world.ask("count_over_time(m[4h])")[job] as u64;
    assert_eq!(left("kept"), 180, "the entry that drops does not select it");
    assert!((60..=90).contains(&left("a")), "{}", left("a"));
    assert_eq!(world.refused(), 0, "{:?}", world.reports());

    // Within the hour late samples count.
    world.write("value=1", &["b"], 50);
    world.run(2);
    assert_eq!(world.ask(counted), values(&[("a", 180.0), ("b", 1.0)]));
    assert_eq!(world.refused(), 0, "{:?}", world.reports());
    // Later ones change no result, and are counted.
    world.write("value=5", &["a"], 170);
    world.run(2);
    assert_eq!(world.ask(counted), values(&[("a", 180.0), ("b", 1.0)]));
    assert!(world.refused() > 0, "{:?}", world.reports());

    world.restart();
    world.run(2);
    assert_eq!(world.ask(counted), values(&[("a", 180.0), ("b", 1.0)]));
}

#[test]
fn rows_of_other_fields_stay_and_it_is_said_why() {
    let world = World::new();
    for _ in 0..120 {
        world.write("value=1,extra=2", &["a"], 0);
        world.run(1);
    }
    assert_eq!(world.ask("count_over_time(m[4h])"), values(&[("a", 120.0)]));
    assert_eq!(world.ask("count_over_time(m_extra[4h])"), values(&[("a", 120.0)]));
    let errors: Vec<String> = world.reports().into_iter().filter_map(|report| report.error).collect();
    assert!(errors.len() == 2 && errors[0].contains("the table \"m\" has the field \"extra\", too"), "{errors:?}");
}

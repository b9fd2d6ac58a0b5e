//! A day of scraping in simulated time: targets that come, go, hang, lie about their content type and send half an answer. Every expected
//! sample is there, series end where they should, and no memory is left taken. `THALWEG_DAY_TARGETS=1000` is a day of more targets, as
//! `cargo xtask full` has it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::float_cmp, reason = "a test")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use db::{Db, DbOptions, InstantQuery};
use model::Labels;
use platform::network::HttpRequest;
use platform::network::sim::{SimAnswer, SimNetwork, SimResponse};
use platform::sim::Simulation;
use promql::ResultValue;
use thalweg_scrape::Scraper;
use thalweg_scrape::config;
use thalweg_scrape::target::Health;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// When the simulated clock begins, at its creation.
const START_MS: i64 = 1_700_000_000_000;

/// Targets, unless `THALWEG_DAY_TARGETS` says otherwise.
const TARGETS: usize = 100;

/// What a target does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Hangs,
    Lies,
    HalfAnAnswer,
    Away,
    Renames,
    BadLine,
}

fn fault(number: usize) -> Fault {
    match number % 10 {
        0 => Fault::Hangs,
        1 => Fault::Lies,
        2 => Fault::HalfAnAnswer,
        3 => Fault::Away,
        4 => Fault::Renames,
        5 => Fault::BadLine,
        _ => Fault::None,
    }
}

/// From when to when a target is at fault, in milliseconds since the start.
fn faulty_ms(fault: Fault) -> (i64, i64) {
    match fault {
        Fault::Hangs => (6 * HOUR_MS, 7 * HOUR_MS),
        Fault::Lies => (9 * HOUR_MS, 9 * HOUR_MS + 30 * MINUTE_MS),
        Fault::HalfAnAnswer => (12 * HOUR_MS, 13 * HOUR_MS),
        Fault::Away => (15 * HOUR_MS, 18 * HOUR_MS),
        Fault::BadLine => (20 * HOUR_MS, 20 * HOUR_MS + 10 * MINUTE_MS),
        Fault::None | Fault::Renames => (0, 0),
    }
}

fn is_faulty(number: usize, passed_ms: i64) -> bool {
    let (from_ms, to_ms) = faulty_ms(fault(number));
    (from_ms..to_ms).contains(&passed_ms)
}

fn number_of(url: &str) -> usize {
    url.split("//t").nth(1).and_then(|rest| rest.split(':').next()).unwrap().parse().unwrap()
}

fn answer(request: &HttpRequest, passed_ms: i64) -> SimAnswer {
    let number = number_of(&request.url);
    let mut text = format!("# TYPE steady gauge\nsteady{{x=\"y\"}} {}\n", passed_ms / MINUTE_MS);
    if fault(number) == Fault::Renames {
        writeln!(text, "hourly{{hour=\"{}\"}} 1", passed_ms / HOUR_MS).unwrap();
    }
    // Twenty lines.
    for series in 0..18 {
        writeln!(text, "more_total{{series=\"{series}\"}} {passed_ms}").unwrap();
    }
    let mut response = SimResponse::ok("text/plain; version=0.0.4", text);
    let mut delay_ms = 5 + number as u64;
    if is_faulty(number, passed_ms) {
        match fault(number) {
            Fault::Hangs => delay_ms = u64::MAX,
            Fault::Lies => "text/html".clone_into(&mut response.headers[0].1),
            Fault::HalfAnAnswer => {
                response.body.truncate(40);
                response.is_cut = true;
            }
            Fault::BadLine => response.body.extend_from_slice(b"broken{ 1\n"),
            Fault::None | Fault::Away | Fault::Renames => {}
        }
    }
    SimAnswer { delay_ms, result: Ok(response) }
}

struct Day {
    simulation: Simulation,
    network: SimNetwork,
    db: Arc<Db>,
    targets: usize,
}

impl Day {
    fn new(targets: usize) -> Self {
        let simulation = Simulation::new(7);
        let clock = simulation.platform().clock;
        let network =
            SimNetwork::new(&simulation, move |request| answer(request, clock.now_ns() / 1_000_000 - START_MS));
        let mut options = DbOptions::new("/data");
        options.store.shards = 1;
        let db = Arc::new(Db::open(simulation.platform(), options).unwrap());
        Self { simulation, network, db, targets }
    }

    /// Writes the list of targets; some may be away.
    fn list(&self, is_all: bool) {
        let present = (0..self.targets).filter(|number| is_all || fault(*number) != Fault::Away);
        let targets: Vec<String> = present.map(|number| format!("\"t{number}:9100\"")).collect();
        let text = format!("[{{\"targets\": [{}]}}]", targets.join(","));
        platform::write_file(&*self.simulation.platform().files, Path::new("/sd/targets.json"), text.as_bytes())
            .unwrap();
    }

    fn series(&self, query: &str, passed_ms: i64) -> BTreeMap<usize, Vec<(i64, f64)>> {
        let found = self.db.instant("default", &InstantQuery::new(query, START_MS + passed_ms)).unwrap();
        let number = |labels: &Labels| number_of(&format!("//{}", labels.get("instance").unwrap()));
        match found.value {
            ResultValue::Matrix(series) => {
                series.into_iter().map(|(labels, points)| (number(&labels), points.floats)).collect()
            }
            ResultValue::Vector(samples) => samples
                .into_iter()
                .map(|sample| (number(&sample.labels), vec![(sample.time_ms, sample.value)]))
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Returns whether each target with this fault has the series at a time.
    fn has(&self, query: &str, wanted: Fault, passed_ms: i64) -> bool {
        let found = self.series(query, passed_ms);
        let with_fault: Vec<usize> = (0..self.targets).filter(|number| fault(*number) == wanted).collect();
        let present = with_fault.iter().filter(|number| found.contains_key(number)).count();
        assert!(present == 0 || present == with_fault.len(), "{query} at {passed_ms}: {present} of {with_fault:?}");
        present > 0
    }
}

const CONFIG: &str = "
global: {scrape_interval: 1m, scrape_timeout: 10s}
scrape_configs:
- job_name: day
  file_sd_configs: [{files: [/sd/*.json]}]
  metric_relabel_configs:
  - {source_labels: [series], regex: '4', action: drop}
";

#[test]
fn a_day_of_scraping() {
    let targets = std::env::var("THALWEG_DAY_TARGETS").ok().and_then(|text| text.parse().ok()).unwrap_or(TARGETS);
    let day = Day::new(targets);
    day.list(true);
    let loaded = config::parse(Path::new("/p.yml"), CONFIG, &|_| None).unwrap();
    let scraper = Scraper::start(&day.network.platform(), day.db.clone(), "default");
    scraper.apply(&loaded.config);
    for (until_ms, is_all) in [(15 * HOUR_MS, true), (18 * HOUR_MS, false), (24 * HOUR_MS, true)] {
        day.list(is_all);
        let passed_ms = day.simulation.platform().clock.now_ns() / 1_000_000 - START_MS;
        day.network.run_ms((until_ms - passed_ms) as u64);
    }
    // Scrapes that began before the end have their answers by then: the slowest take a second and more.
    day.network.run_ms((MINUTE_MS / 2) as u64);
    let pools = scraper.pools();
    let active = pools[0].active();
    assert_eq!(active.len(), targets);
    assert!(active.iter().all(|target| target.last().health == Health::Up));
    assert_eq!(day.db.request_memory().used_bytes(), 0, "bodies of scrapes are given back");
    check_samples(&day);
    check_ends(&day);
    scraper.stop();
    day.network.run_ms(1);
    day.db.close().unwrap();
}

/// Each series has a sample at each minute, at an offset of its own, but for the times of faults.
fn check_samples(day: &Day) {
    let end_ms = 24 * HOUR_MS;
    let up = day.series("up[25h]", end_ms);
    let steady = day.series("steady[25h]", end_ms);
    assert_eq!((up.len(), steady.len()), (day.targets, day.targets));
    let mut offsets = BTreeMap::new();
    for number in 0..day.targets {
        let offset_ms = up[&number][0].0.rem_euclid(MINUTE_MS);
        *offsets.entry(offset_ms / 1000).or_insert(0) += 1;
        let first_ms = up[&number][0].0 - START_MS;
        // Those that come back begin anew, with the next reading of the list.
        let scraped: Vec<i64> = (0..24 * 60)
            .map(|minute| first_ms + minute * MINUTE_MS)
            .filter(|at_ms| *at_ms <= end_ms && !(fault(number) == Fault::Away && is_away(*at_ms)))
            .collect();
        let times: Vec<i64> = up[&number].iter().map(|(time_ms, _)| time_ms - START_MS).collect();
        let (missing, extra) = (without(&scraped, &times), without(&times, &scraped));
        let is_at_the_edge = |at_ms: &i64| fault(number) == Fault::Away && is_near_an_edge(*at_ms);
        assert!(missing.iter().all(is_at_the_edge), "target {number} lacks scrapes at {missing:?}");
        assert!(extra.iter().all(is_at_the_edge), "target {number} has scrapes at {extra:?}");
        for (time_ms, value) in &up[&number] {
            let is_down = fault(number) != Fault::Away && is_faulty(number, time_ms - START_MS);
            assert_eq!(*value, f64::from(u8::from(!is_down)), "target {number} at {}", time_ms - START_MS);
        }
        let good = up[&number].iter().filter(|(_, value)| *value == 1.0);
        let expected: Vec<(i64, f64)> =
            good.map(|(time_ms, _)| (*time_ms, ((time_ms - START_MS) / MINUTE_MS) as f64)).collect();
        assert_eq!(steady[&number], expected, "target {number}");
    }
    assert!(offsets.len() > (day.targets / 4).min(55), "scrapes are spread over the minute: {offsets:?}");
    let counts = day.series("count_over_time(more_total{series=\"3\"}[25h])", end_ms);
    assert_eq!(counts.len(), day.targets);
    assert!(day.series("more_total{series=\"4\"}[25h]", end_ms).is_empty(), "they were dropped");
    let kept = day.series("scrape_samples_post_metric_relabeling", end_ms);
    assert_eq!((kept[&9][0].1, kept[&4][0].1), (18.0, 19.0));
    assert_eq!(day.series("sum by (instance) (scrape_series_added)", end_ms)[&9][0].1, 0.0);
}

fn without(these: &[i64], others: &[i64]) -> Vec<i64> {
    these.iter().copied().filter(|at| others.binary_search(at).is_err()).collect()
}

fn is_away(at_ms: i64) -> bool {
    let (from_ms, to_ms) = faulty_ms(Fault::Away);
    (from_ms..to_ms).contains(&at_ms)
}

/// The list of targets is read every five seconds.
fn is_near_an_edge(at_ms: i64) -> bool {
    let (from_ms, to_ms) = faulty_ms(Fault::Away);
    [from_ms, to_ms].iter().any(|edge_ms| (0..=5_000).contains(&(at_ms - edge_ms)))
}

/// Series end with the scrape that lacks them, not when queries have looked back in vain.
fn check_ends(day: &Day) {
    for (wanted, name) in [
        (Fault::Hangs, "steady"),
        (Fault::Lies, "steady"),
        (Fault::HalfAnAnswer, "steady"),
        (Fault::BadLine, "more_total{series=\"0\"}"),
    ] {
        let (from_ms, to_ms) = faulty_ms(wanted);
        assert!(day.has(name, wanted, from_ms - 1), "{wanted:?}");
        assert!(!day.has(name, wanted, from_ms + MINUTE_MS + 1), "{wanted:?}");
        assert!(day.has("up", wanted, from_ms + MINUTE_MS + 1), "{wanted:?}");
        assert!(!day.has(name, wanted, to_ms - 1), "{wanted:?}");
        assert!(day.has(name, wanted, to_ms + MINUTE_MS + 1), "{wanted:?}");
    }
    // Targets that go end with the scrape that would have been next.
    let (from_ms, to_ms) = faulty_ms(Fault::Away);
    assert!(day.has("steady", Fault::Away, from_ms - 1));
    for name in ["steady", "up", "scrape_duration_seconds"] {
        assert!(!day.has(name, Fault::Away, from_ms + MINUTE_MS + 5_001), "{name}");
        assert!(day.has(name, Fault::Away, to_ms + MINUTE_MS + 5_001), "{name}");
    }
    // Of a series that is replaced each hour, one is there at a time.
    for hour in 1..24 {
        let old = format!("hourly{{hour=\"{}\"}}", hour - 1);
        assert!(day.has(&old, Fault::Renames, hour * HOUR_MS - 1));
        assert!(!day.has(&old, Fault::Renames, hour * HOUR_MS + MINUTE_MS + 1));
        assert!(day.has(&format!("hourly{{hour=\"{hour}\"}}"), Fault::Renames, hour * HOUR_MS + MINUTE_MS + 1));
    }
}

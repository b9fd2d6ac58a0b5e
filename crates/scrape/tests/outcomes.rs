//! What a scrape leaves behind: limits, labels, times, formats, each by a configuration and a response, in simulated time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::float_cmp, reason = "a test")]

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use db::{Db, DbOptions, InstantQuery};
use platform::network::sim::{SimAnswer, SimNetwork, SimResponse};
use platform::sim::Simulation;
use promql::ResultValue;
use thalweg_scrape::{Scraper, config};

/// When the simulated clock begins, at its creation.
const START_MS: i64 = 1_700_000_000_000;

/// One target that answers as it is told to, and what scrapes it.
struct Bench {
    network: SimNetwork,
    response: Arc<Mutex<SimResponse>>,
    db: Arc<Db>,
    scraper: Scraper,
}

impl Bench {
    /// Scrapes a target twice.
    fn new(job: &str, body: &str) -> Self {
        Self::with_options(job, body, DbOptions::new("/data"))
    }

    fn with_options(job: &str, body: &str, options: DbOptions) -> Self {
        let simulation = Simulation::new(3);
        let response = Arc::new(Mutex::new(SimResponse::ok("text/plain", body)));
        let answer = response.clone();
        let network = SimNetwork::new(&simulation, move |_| SimAnswer {
            delay_ms: 3,
            result: Ok(answer.lock().unwrap().clone()),
        });
        let db = Arc::new(Db::open(simulation.platform(), options).unwrap());
        let scraper = Scraper::start(&network.platform(), db.clone(), "default");
        let bench = Self { network, response, db, scraper };
        bench.apply(job);
        bench.network.run_ms(120_000);
        bench
    }

    fn apply(&self, job: &str) {
        let text = format!("scrape_configs:\n- job_name: j\n{job}\n  static_configs: [{{targets: ['t:1']}}]\n");
        self.scraper.apply(&config::parse(Path::new("/p.yml"), &text, &|_| None).expect(&text).config);
    }

    fn answer(&self, body: &str) {
        self.response.lock().unwrap().body = body.into();
        self.network.run_ms(60_000);
    }

    /// The value of a query now; `None` if there is none.
    fn value(&self, query: &str) -> Option<f64> {
        self.value_at(query, self.db.now_ns() / 1_000_000)
    }

    fn value_at(&self, query: &str, time_ms: i64) -> Option<f64> {
        let found = self.db.instant("default", &InstantQuery::new(query, time_ms)).unwrap();
        let ResultValue::Vector(samples) = found.value else { panic!("{query}") };
        assert!(samples.len() < 2, "{query}: {samples:?}");
        samples.first().map(|sample| sample.value)
    }

    fn error(&self) -> String {
        self.scraper.pools()[0].active()[0].last().error
    }
}

const BODY: &str = "m{a=\"1\"} 1\nm{a=\"2\"} 2\nlong_label_name_here{b=\"a long value\"} 3\n";

#[test]
fn a_limit_fails_the_scrape() {
    for (job, error) in [
        ("  sample_limit: 2", "sample_limit exceeded: 3 samples, at most 2"),
        ("  label_limit: 3", "label_limit exceeded"),
        ("  label_name_length_limit: 7", "label_name_length_limit exceeded"),
        ("  label_value_length_limit: 8", "label_value_length_limit exceeded"),
        ("  body_size_limit: 50B", "body_size_limit exceeded"),
        ("  target_limit: 1\n  file_sd_configs: [{files: [/none.json]}]", ""),
    ] {
        let bench = Bench::new(job, BODY);
        assert!(bench.error().contains(error), "{job}: {}", bench.error());
        let is_up = error.is_empty();
        assert_eq!(bench.value("up"), Some(f64::from(u8::from(is_up))), "{job}");
        assert_eq!(bench.value("m{a=\"1\"}").is_some(), is_up, "{job}");
    }
    let bench = Bench::new("  sample_limit: 2", BODY);
    assert_eq!(bench.value("scrape_samples_scraped"), Some(3.0));
    assert_eq!(bench.value("scrape_samples_post_metric_relabeling"), Some(3.0));
    // Within it again, and beyond it once more: its series end.
    bench.answer("m{a=\"1\"} 1\n");
    assert_eq!((bench.value("m"), bench.value("up")), (Some(1.0), Some(1.0)));
    bench.answer(BODY);
    assert_eq!((bench.value("m{a=\"1\"}"), bench.value("up")), (None, Some(0.0)));
}

/// Bodies are out of the memory that all requests share: packed while they arrive, unpacked while they are stored.
#[test]
fn a_body_that_memory_has_no_room_for_fails_the_scrape() {
    let mut options = DbOptions::new("/data");
    options.store.memory_bytes_max = 32 << 20;
    let line = format!("# {}\n", "x".repeat(98));
    let large = format!("{}{BODY}", line.repeat(100_000));
    let bench = Bench::with_options("", &large, options);
    assert!(bench.error().contains("raise memory_bytes_max"), "{}", bench.error());
    assert_eq!(bench.value("up"), Some(0.0));
    assert_eq!(bench.db.request_memory().used_bytes(), 0, "all is given back");
    // Packed it arrives, and unpacks to as much.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(large.as_bytes()).unwrap();
    let packed = encoder.finish().unwrap();
    let gzip = ("content-encoding".to_owned(), "gzip".to_owned());
    {
        let mut response = bench.response.lock().unwrap();
        response.headers.push(gzip.clone());
        response.body = packed;
    }
    bench.network.run_ms(60_000);
    assert!(bench.error().contains("raise memory_bytes_max"), "{}", bench.error());
    bench.response.lock().unwrap().headers.retain(|header| *header != gzip);
    bench.answer(BODY);
    assert_eq!((bench.value("up"), bench.error()), (Some(1.0), String::new()));
    assert_eq!(bench.db.request_memory().used_bytes(), 0);
}

#[test]
fn classic_histograms_become_native_ones_with_custom_buckets() {
    let body = |count: u32| {
        format!(
            "# TYPE took histogram\ntook_bucket{{path=\"/\",le=\"0.5\"}} 1\ntook_bucket{{path=\"/\",le=\"1\"}} 4\n\
             took_bucket{{path=\"/\",le=\"+Inf\"}} {count}\ntook_sum{{path=\"/\"}} 9.5\ntook_count{{path=\"/\"}} {count}\n\
             # TYPE other gauge\nother_count 7\n"
        )
    };
    let bench = Bench::new("  convert_classic_histograms_to_nhcb: true", &body(6));
    let total = |bench: &Bench| bench.value("histogram_count(took{path='/',job='j'})");
    assert_eq!((bench.error(), total(&bench)), (String::new(), Some(6.0)));
    assert_eq!(bench.value("histogram_sum(took)"), Some(9.5));
    assert_eq!(bench.value("histogram_fraction(0, 0.5, took)").map(|share| (share * 6.0).round()), Some(1.0));
    assert_eq!((bench.value("took_count"), bench.value("other_count")), (None, Some(7.0)));
    assert_eq!(bench.value("scrape_samples_scraped"), Some(2.0));
    bench.answer(&body(8));
    assert_eq!(total(&bench), Some(8.0));
    // The classic ones beside them; and what is missing ends.
    let job = "  convert_classic_histograms_to_nhcb: true\n  always_scrape_classic_histograms: true";
    let bench = Bench::new(job, &body(6));
    assert_eq!((total(&bench), bench.value("took_count")), (Some(6.0), Some(6.0)));
    bench.answer("other_count 7\n");
    assert_eq!((total(&bench), bench.value("took_count")), (None, None));
}

#[test]
fn too_many_targets_fail_all() {
    let bench = Bench::new("  target_limit: 1", BODY);
    assert_eq!(bench.value("up"), Some(1.0));
    let more = "  target_limit: 1\n  static_configs: [{targets: ['t:1', 't:2']}]";
    let text = format!("scrape_configs:\n- job_name: j\n{more}\n");
    bench.scraper.apply(&config::parse(Path::new("/p.yml"), &text, &|_| None).unwrap().config);
    bench.network.run_ms(60_000);
    assert_eq!(bench.value("sum(up)"), Some(0.0));
    assert!(bench.error().contains("target_limit exceeded: 2 targets, at most 1"), "{}", bench.error());
    assert_eq!(bench.value("m{a=\"1\"}"), None);
}

#[test]
fn labels_of_samples_and_targets() {
    let body = "m{job=\"own\",instance=\"i\"} 1\n";
    let bench = Bench::new("", body);
    assert_eq!(bench.value("m{job=\"j\",instance=\"t:1\",exported_job=\"own\",exported_instance=\"i\"}"), Some(1.0));
    let bench = Bench::new("  honor_labels: true", body);
    assert_eq!(bench.value("m{job=\"own\",instance=\"i\"}"), Some(1.0));
    let relabelled = "  metric_relabel_configs:\n  - {source_labels: [__name__], regex: 'x_(.*)', target_label: __name__}\n  \
                      - {regex: 'drop_.*', action: labeldrop}\n  - {source_labels: [__name__], regex: 'gone', action: drop}";
    let bench = Bench::new(relabelled, "x_m{drop_me=\"1\",keep=\"2\"} 4\ngone 1\n");
    assert_eq!((bench.value("m{keep=\"2\",drop_me=\"\"}"), bench.value("gone")), (Some(4.0), None));
    assert_eq!(bench.value("scrape_samples_scraped - scrape_samples_post_metric_relabeling"), Some(1.0));
}

#[test]
fn times_of_samples() {
    // Half a minute after the start, in the first and the second scrape.
    let body = format!("m 1 {}\nplain 1\n", START_MS + 30_000);
    let at_ms = START_MS + 40_000;
    let bench = Bench::new("", &body);
    assert_eq!(bench.value_at("timestamp(m)", at_ms), Some((START_MS as f64 + 30_000.0) / 1000.0));
    assert_eq!(bench.value_at("count_over_time(m[10m])", START_MS + 120_000), Some(1.0));
    bench.answer("plain 1\n");
    assert_eq!(bench.value("m"), Some(1.0), "series with times do not end with markers");
    let bench = Bench::new("  track_timestamps_staleness: true", &body);
    bench.answer("plain 1\n");
    assert_eq!(bench.value("m"), None);
    let bench = Bench::new("  honor_timestamps: false", &body);
    assert_eq!(bench.value_at("count_over_time(m[10m])", START_MS + 120_000), Some(2.0));
}

#[test]
fn responses_that_are_not_metrics() {
    let bench = Bench::new("", "m 1\nm{ 1\n");
    assert!(bench.error().starts_with("line 2: "), "{}", bench.error());
    let bench = Bench::new("  fallback_scrape_protocol: PrometheusText0.0.4", "m 1\n");
    bench.response.lock().unwrap().headers[0].1 = "application/octet-stream".to_owned();
    bench.network.run_ms(60_000);
    assert_eq!(bench.value("up"), Some(1.0));
    bench.response.lock().unwrap().headers[0].1 = "application/openmetrics-text".to_owned();
    bench.network.run_ms(60_000);
    assert_eq!(bench.error(), "the response does not end with # EOF");
    bench.answer("m 1\n# EOF\n");
    assert_eq!((bench.value("up"), bench.value("m")), (Some(1.0), Some(1.0)));
    bench.response.lock().unwrap().status = 404;
    bench.network.run_ms(60_000);
    assert_eq!(bench.error(), "the target answered with HTTP status 404");
    assert_eq!((bench.value("up"), bench.value("m")), (Some(0.0), None));
}

#[test]
fn a_series_spelled_in_another_way_goes_on() {
    let bench = Bench::new("", "m{a=\"1\",b=\"2\"} 1\n");
    bench.answer("m{b=\"2\",a=\"1\"} 2\n");
    assert_eq!(bench.value("m"), Some(2.0));
    assert_eq!(bench.value("count_over_time(m[10m])"), Some(3.0));
}

#[test]
fn a_reload_disturbs_nothing_that_stays() {
    let bench = Bench::new("", BODY);
    let before = bench.scraper.pools()[0].clone();
    bench.apply("");
    assert!(Arc::ptr_eq(&before, &bench.scraper.pools()[0]));
    // Another timeout: the loop is a new one, its series are the same, and none of them was interrupted.
    bench.apply("  scrape_timeout: 5s");
    bench.network.run_ms(1);
    assert_eq!(bench.value("m{a=\"1\"}"), Some(1.0));
    bench.network.run_ms(120_000);
    assert_eq!(bench.value("count_over_time(m{a=\"1\"}[10m])"), Some(4.0));
    assert_eq!(bench.value("sum_over_time(scrape_series_added[10m])"), Some(3.0), "lines stayed known");
    // The path is another, the labels are the same: no marker of the loop before ends what the new one writes.
    bench.apply("  metrics_path: /other");
    bench.network.run_ms(300_000);
    assert_eq!(bench.value("m{a=\"1\"}"), Some(1.0));
    // A job that is gone: its series end.
    bench.scraper.apply(&config::Config::default());
    bench.network.run_ms(180_000);
    assert_eq!((bench.value("m{a=\"1\"}"), bench.value("up")), (None, None));
}

#[test]
fn settings_of_the_agent() {
    let bench = Bench::new("  series_limit: 2", BODY);
    assert_eq!((bench.value("count(m)"), bench.value("long_label_name_here")), (Some(2.0), None));
    let bench = Bench::new("  no_stale_markers: true", BODY);
    bench.answer("other 1\n");
    assert_eq!(bench.value("m{a=\"1\"}"), Some(1.0));
    let bench = Bench::new("  scrape_align_interval: 1m\n  scrape_offset: 7s", BODY);
    assert_eq!(bench.value("timestamp(up) % 60"), Some(7.0));
}

/// Comments are read when they are not those of the scrape before, and only then.
#[test]
fn descriptions_follow_the_target() {
    let bench = Bench::new("", "# HELP m First.\n# TYPE m gauge\nm 1\n");
    let about = || bench.scraper.pools()[0].active()[0].metadata();
    assert_eq!((about().len(), about()[0].help.as_str()), (1, "First."));
    bench.answer("# HELP m Second.\n# TYPE m gauge\nm 2\n");
    assert_eq!((about()[0].help.as_str(), bench.value("m")), ("Second.", Some(2.0)));
    bench.answer("# HELP m Second.\n# TYPE m nonsense\nm 3\n");
    assert!(bench.error().contains("line 2: unknown metric type"), "{}", bench.error());
    bench.answer("# HELP m Second.\n# TYPE m gauge\nm 4\n");
    assert_eq!((about()[0].help.as_str(), bench.value("m"), bench.error()), ("Second.", Some(4.0), String::new()));
    bench.answer("m 5\n");
    assert!(about().is_empty() && bench.value("m") == Some(5.0));
}

//! VictoriaMetrics's stream aggregation file, run by the real program: what came late and what was deleted changes the aggregates.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Folder, TestServer, run, text};

const MINUTE_S: i64 = 60;

/// Minutes that are looked at, from the first sample's on.
const MINUTES: i64 = 20;

const FILE: &str = "
- match: load
  interval: 1m
  by: [job]
  outputs: [sum_samples, count_series, max, last, unique_samples, 'quantiles(0.5, 1)', histogram_bucket, sum_samples_total]
- match: load
  interval: 1m
  dedup_interval: 30s
  outputs: [count_samples]
  output_relabel_configs:
  - {action: drop, source_labels: [instance], regex: '9'}
  - {target_label: shard, source_labels: [job, instance], separator: '-'}
  - {action: labeldrop, regex: instance}
- match: load
  interval: 1m
  by: [team]
  input_relabel_configs:
  - {action: drop, source_labels: [job, instance], regex: 'b;9'}
  - {source_labels: [instance], regex: '[12]', target_label: team, replacement: low}
  - {action: labeldrop, regex: 'inst.*'}
  outputs: [sum_samples, count_series, last]
- match: arrivals
  interval: 2s
  outputs: [count_samples]
";

/// Samples by job, instance and second.
type Samples = BTreeMap<(&'static str, &'static str, i64), f64>;

/// The second, the instance and the value of a sample of a job.
type Member = (i64, &'static str, f64);

/// Results by name, labels and the second at which the window ends.
type Results = BTreeMap<(String, String, i64), f64>;

/// VictoriaMetrics's buckets of 1 to 13.
const VMRANGES: [&str; 13] = [
    "8.799e-01...1.000e+00",
    "1.896e+00...2.154e+00",
    "2.783e+00...3.162e+00",
    "3.594e+00...4.084e+00",
    "4.642e+00...5.275e+00",
    "5.995e+00...6.813e+00",
    "6.813e+00...7.743e+00",
    "7.743e+00...8.799e+00",
    "8.799e+00...1.000e+01",
    "8.799e+00...1.000e+01",
    "1.000e+01...1.136e+01",
    "1.136e+01...1.292e+01",
    "1.292e+01...1.468e+01",
];

/// The running totals of each job at the end of each minute, which begin anew with each day.
fn totals(samples: &Samples, begin_s: i64) -> Results {
    const DAY_S: i64 = 86_400;
    let mut results = Results::new();
    for job in samples.keys().map(|(job, _, _)| *job) {
        for end_s in (1..=MINUTES).map(|minute| begin_s + minute * MINUTE_S) {
            let day_s = end_s.div_euclid(DAY_S) * DAY_S;
            let is_there = |(of, _, second): &(&str, &str, i64)| *of == job && *second <= end_s;
            let there: Vec<(i64, f64)> = samples
                .iter()
                .filter(|(key, _)| is_there(key))
                .map(|((_, _, second), value)| (*second, *value))
                .collect();
            if !there.is_empty() {
                // The window that ends at midnight counts from the next one on.
                let of_day = there.iter().filter(|(second, _)| end_s > day_s && *second > day_s - MINUTE_S);
                let key = ("load:1m_by_job_sum_samples_total".to_owned(), format!("job={job}"), end_s);
                results.insert(key, of_day.map(|(_, value)| value).sum());
            }
        }
    }
    results
}

/// What the entries give of samples, each by its definition.
fn expected(samples: &Samples, begin_s: i64) -> Results {
    let mut results = totals(samples, begin_s);
    results.extend(of_teams(samples, begin_s));
    // The samples after a minute, and up to the next one.
    let end_s = |second: i64| (second + MINUTE_S - 1).div_euclid(MINUTE_S) * MINUTE_S;
    let mut groups: BTreeMap<(&str, i64), Vec<Member>> = BTreeMap::new();
    let mut halves: BTreeMap<(String, i64), Vec<i64>> = BTreeMap::new();
    for ((job, instance, second), value) in samples {
        groups.entry((job, end_s(*second))).or_default().push((*second, *instance, *value));
        let half = (second - 1).div_euclid(30);
        if *instance == "9" {
            continue;
        }
        let of_series = halves.entry((format!("job={job},shard={job}-{instance}"), end_s(*second))).or_default();
        if !of_series.contains(&half) {
            of_series.push(half);
        }
    }
    for ((job, end_s), members) in groups {
        let mut add = |output: &str, value: f64| {
            results.insert((format!("load:1m_by_job_{output}"), format!("job={job}"), end_s), value);
        };
        let mut instances: Vec<&str> = members.iter().map(|(_, instance, _)| *instance).collect();
        instances.sort_unstable();
        instances.dedup();
        add("sum_samples", members.iter().map(|(_, _, value)| value).sum());
        add("count_series", instances.len() as f64);
        add("max", members.iter().map(|(_, _, value)| *value).fold(f64::MIN, f64::max));
        let newest_s = members.iter().map(|(second, _, _)| *second).max().unwrap();
        let newest = members.iter().filter(|(second, _, _)| *second == newest_s);
        add("last", newest.map(|(_, _, value)| *value).fold(f64::MIN, f64::max));
        let mut sorted: Vec<f64> = members.iter().map(|(_, _, value)| *value).collect();
        sorted.sort_by(f64::total_cmp);
        let quantiles = [("0.5", sorted[sorted.len() / 2]), ("1", sorted[sorted.len() - 1])];
        let buckets = sorted.iter().map(|value| VMRANGES[*value as usize - 1]).collect::<Vec<_>>();
        sorted.dedup();
        add("unique_samples", sorted.len() as f64);
        for (quantile, value) in quantiles {
            let labels = format!("job={job},quantile={quantile}");
            results.insert(("load:1m_by_job_quantiles".to_owned(), labels, end_s), value);
        }
        for range in buckets {
            let key = ("load:1m_by_job_histogram_bucket".to_owned(), format!("job={job},vmrange={range}"), end_s);
            *results.entry(key).or_default() += 1.0;
        }
    }
    for ((labels, end_s), kept) in halves {
        results.insert(("load:1m_count_samples".to_owned(), labels, end_s), kept.len() as f64);
    }
    results
}

/// The results of samples whose instances become teams.
fn of_teams(samples: &Samples, begin_s: i64) -> Results {
    let end_s = |second: i64| begin_s + (second - begin_s + MINUTE_S - 1).div_euclid(MINUTE_S) * MINUTE_S;
    let mut groups: BTreeMap<(String, i64), Vec<Member>> = BTreeMap::new();
    for ((job, instance, second), value) in
        samples.iter().filter(|((job, instance, _), _)| (*job, *instance) != ("b", "9"))
    {
        let team = if ["1", "2"].contains(instance) { "team=low" } else { "" };
        groups.entry((team.to_owned(), end_s(*second))).or_default().push((*second, *job, *value));
    }
    let mut results = Results::new();
    for ((team, end_s), members) in groups {
        let mut add = |output: &str, value: f64| {
            results.insert((format!("load:1m_by_team_{output}"), team.clone(), end_s), value);
        };
        add("sum_samples", members.iter().map(|(_, _, value)| value).sum());
        // The instances of a job are one series.
        let jobs: std::collections::BTreeSet<&str> = members.iter().map(|(_, job, _)| *job).collect();
        add("count_series", jobs.len() as f64);
        let newest = members.iter().map(|(second, _, value)| (*second, *value as i64)).max().unwrap();
        add("last", newest.1 as f64);
    }
    results
}

struct World {
    folder: Folder,
    server: Option<TestServer>,
    samples: Samples,
    /// The first minute.
    begin_s: i64,
}

impl World {
    fn new(name: &str) -> Self {
        let mut world = Self::without_server(name);
        world.start();
        world
    }

    fn without_server(name: &str) -> Self {
        let folder = Folder::new(name);
        folder.file("aggregation.yml", FILE.as_bytes());
        let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
        let begin_s = (now_s / MINUTE_S - 60) * MINUTE_S;
        Self { folder, server: None, samples: Samples::new(), begin_s }
    }

    fn start(&mut self) {
        let file = self.folder.0.join("aggregation.yml");
        let flags = ["--no-host-metrics", "--stream-aggregation", file.to_str().unwrap()];
        let server = TestServer::start(&self.folder.0.join("data"), &flags);
        // From here on samples are followed.
        wait_until("the log is followed", || server.get("/api/v1/admin/cursors").1.contains("rules:default"));
        self.server = Some(server);
    }

    fn server(&self) -> &TestServer {
        self.server.as_ref().unwrap()
    }

    /// Writes samples, each so many seconds after the first minute.
    fn write(&mut self, rows: &[(&'static str, &'static str, i64, f64)]) {
        let mut lines = String::new();
        for (job, instance, second, value) in rows {
            let second = self.begin_s + second;
            let metric = json!({ "__name__": "load", "job": job, "instance": instance });
            lines += &json!({ "metric": metric, "values": [value], "timestamps": [second * 1_000] }).to_string();
            lines.push('\n');
            self.samples.insert((job, instance, second), *value);
        }
        let (status, body) = self.server().post("/api/v1/import", lines.as_bytes());
        assert!(matches!(status, 200 | 204), "{status} {body}");
    }

    /// Reads the stored samples of all results.
    fn found(&self) -> Results {
        let mut results = Results::new();
        let names = expected(&self.samples, self.begin_s).into_keys().map(|(name, _, _)| name);
        for name in names.chain(["load:1m_by_job_max".to_owned()]).collect::<std::collections::BTreeSet<_>>() {
            let (start, end) = (self.begin_s.to_string(), (self.begin_s + MINUTES * MINUTE_S).to_string());
            let query = form_urlencoded::Serializer::new(String::new())
                .extend_pairs([
                    ("query", name.as_str()),
                    ("start", &start),
                    ("end", &end),
                    ("step", "60"),
                    ("nocache", "1"),
                ])
                .finish();
            let found: Value =
                serde_json::from_str(&self.server().get(&format!("/api/v1/query_range?{query}")).1).unwrap();
            for series in found["data"]["result"].as_array().unwrap() {
                let labels = series["metric"].as_object().unwrap().iter().filter(|(label, _)| *label != "__name__");
                let labels: Vec<String> =
                    labels.map(|(label, value)| format!("{label}={}", value.as_str().unwrap())).collect();
                for point in series["values"].as_array().unwrap() {
                    let value: f64 = point[1].as_str().unwrap().parse().unwrap();
                    results.insert((name.clone(), labels.join(","), point[0].as_i64().unwrap()), value);
                }
            }
        }
        results
    }

    fn settle(&self, what: &str) {
        let expected = expected(&self.samples, self.begin_s);
        let begun = Instant::now();
        loop {
            let found = self.found();
            if found == expected {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{what}: {found:?}\nbut {expected:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn late_samples_deletes_and_restarts_leave_the_aggregates_right() {
    let mut world = World::new("late-samples");
    world.write(&[
        ("a", "1", 10, 3.0),
        ("a", "1", 25, 4.0),
        ("a", "1", 60, 5.0),
        ("a", "2", 25, 6.0),
        ("a", "2", 61, 7.0),
        ("b", "1", 59, 8.0),
        ("b", "1", 300, 9.0),
        ("b", "9", 301, 2.0),
    ]);
    world.settle("samples of an hour ago");
    // Into windows that have results, into one that has none, and in the place of another.
    world.write(&[("a", "1", 26, 10.0), ("b", "2", 150, 11.0), ("a", "2", 61, 1.0)]);
    world.settle("late samples");
    let (start, end) = (world.begin_s, world.begin_s + 60);
    let delete = format!("/api/v1/admin/tsdb/delete_series?match[]=load%7Bjob%3D%22a%22%7D&start={start}&end={end}");
    let (status, body) = world.server().post(&delete, b"");
    assert_eq!(status, 204, "{body}");
    world.samples.retain(|(job, _, second), _| *job != "a" || *second > end);
    world.settle("after a delete");
    world.server.take().unwrap().stop();
    world.start();
    world.write(&[("a", "3", 30, 12.0)]);
    world.settle("after a restart");
    world.write(&[("b", "3", 31, 13.0)]);
    world.server.take().unwrap().kill();
    world.start();
    world.settle("what was acknowledged before the program was killed");
}

#[test]
fn what_was_there_before_is_computed_on_demand() {
    let mut world = World::without_server("stream-aggregation-before");
    let (file, data) = (world.folder.0.join("aggregation.yml"), world.folder.0.join("data"));
    world.server = Some(TestServer::start(&data, &["--no-host-metrics"]));
    world.write(&[("a", "1", 10, 3.0), ("a", "2", 70, 4.0), ("b", "1", 600, 5.0)]);
    world.server.take().unwrap().stop();
    let (start, end) = (world.begin_s.to_string(), (world.begin_s + (MINUTES + 1) * MINUTE_S).to_string());
    let paths = [data.to_str().unwrap(), file.to_str().unwrap()];
    let flags =
        ["rules", "backfill", "--start", &start, "--end", &end, "--data", paths[0], "--stream-aggregation", paths[1]];
    let output = run(&flags);
    assert!(output.status.success(), "{}", text(&output.stderr));
    world.start();
    world.settle("after it");
}

#[test]
fn samples_of_the_present_count_when_their_window_ends() {
    let world = World::new("present-samples");
    let now_ms = || std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    let mut count = 0;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        let line = json!({ "metric": { "__name__": "arrivals" }, "values": [1], "timestamps": [now_ms()] }).to_string();
        world.server().post("/api/v1/import", line.as_bytes());
        count += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
    let asked = "/api/v1/query?query=sum_over_time(arrivals:2s_count_samples%5B1m%5D)&nocache=1";
    let counted = || {
        serde_json::from_str::<Value>(&world.server().get(asked).1).unwrap()["data"]["result"][0]["value"][1].clone()
    };
    wait_until("all samples are counted", || counted() == json!(count.to_string()));
    let (_, rules) = world.server().get("/api/v1/rules");
    let rules: Value = serde_json::from_str(&rules).unwrap();
    let groups = rules["data"]["groups"].as_array().unwrap();
    let group = groups.iter().find(|group| group["name"] == "arrivals:2s").unwrap();
    assert_eq!((&group["interval"], &group["rules"][0]["health"]), (&json!(2), &json!("ok")));
    assert_eq!(group["rules"][0]["materialized"]["lastError"], Value::Null);
}

/// The first block of a language after a heading.
fn block<'a>(guide: &'a str, heading: &str, language: &str) -> &'a str {
    let (_, section) = guide.split_once(&format!("\n## {heading}\n")).unwrap();
    let (_, rest) = section.split_once(&format!("\n```{language}\n")).unwrap();
    rest.split_once("\n```").unwrap().0
}

#[test]
fn the_guides_example_becomes_what_it_says() {
    let guide = include_str!("../../../docs/guide/prometheus.md");
    let block = |language| block(guide, "Stream aggregation", language);
    let folder = Folder::new("stream-aggregation-guide");
    let file = folder.file("aggregation.yml", block("yaml").as_bytes());
    assert_eq!(block("sh"), "thalweg check stream-aggregation aggregation.yml");
    let output = run(&["check", "stream-aggregation", file.to_str().unwrap()]);
    let said = text(&output.stdout).replace(file.to_str().unwrap(), "aggregation.yml");
    assert_eq!((said.trim_end(), output.status.code()), (block("text"), Some(0)), "{}", text(&output.stderr));
    let flags = ["--no-host-metrics", "--stream-aggregation", file.to_str().unwrap()];
    let server = TestServer::start(&folder.0.join("data"), &flags);
    assert!(server.get("/api/v1/rules").1.contains("http_requests_total:1m_by_path_increase"));
    // The guide's advice in place of drop_input.
    let advice = "ALTER TABLE \"queue_length\" SET TTL 2h";
    assert!(guide.contains(&format!("`{advice}`")));
    let line = json!({ "metric": { "__name__": "queue_length" }, "values": [1], "timestamps": [1_700_000_000_000i64] });
    server.post("/api/v1/import", line.to_string().as_bytes());
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("query", advice).finish();
    let (status, body) = server.post(&format!("/sql?{query}"), b"");
    assert_eq!(status, 200, "{body}");
}

#[test]
fn what_is_not_exact_does_not_start() {
    let folder = Folder::new("stream-aggregation-refused");
    let entry = "- {match: m, interval: 1m, outputs: [sum_samples]}\n- match: m\n  interval: 1m\n  outputs: [max, total]\n  staleness_interval: 2m\n";
    let file = folder.file("aggregation.yml", entry.as_bytes());
    let path = file.to_str().unwrap();
    let checked = run(&["check", "stream-aggregation", path]);
    let said = text(&checked.stdout);
    let expected = format!("{path}:4:3: the output \"total\" needs staleness_interval: 5m");
    assert!(checked.status.code() == Some(1) && said.contains(&format!("FAILED: {expected}")), "{said}");
    let data = folder.0.join("data");
    let started =
        run(&["serve", "--http", "127.0.0.1:0", "--data", data.to_str().unwrap(), "--stream-aggregation", path]);
    let errors = text(&started.stderr);
    assert!(started.status.code() != Some(0) && errors.contains(&expected), "{errors}");
    assert!(!data.exists(), "nothing was begun");
    // Two entries that would write the same series.
    folder.file("aggregation.yml", b"- {match: 'm{a=\"x\"}', interval: 1m, outputs: [max]}\n- {match: 'm{a=\"y\"}', interval: 1m, outputs: [max]}\n");
    let said = text(&run(&["check", "stream-aggregation", path]).stdout);
    assert!(
        said.contains("the rule \"m:1m_max\" of the group \"m:1m\"")
            && said.contains("another rule gives series of its name"),
        "{said}"
    );
}

#[test]
fn what_is_to_be_forwarded_is_not_given_up() {
    let folder = Folder::new("stream-aggregation-forwarding");
    let data = folder.0.join("data");
    let prometheus = folder.file("prometheus.yml", b"remote_write: [{name: later, url: 'http://127.0.0.1:1/'}]\n");
    let aggregation = folder.file("aggregation.yml", b"- {match: m, interval: 1m, outputs: [max]}\n");
    let cursors = |server: &TestServer| server.get("/api/v1/admin/cursors").1;
    let server = TestServer::start(&data, &["--no-host-metrics", "--prometheus", prometheus.to_str().unwrap()]);
    wait_until("there is a receiver", || cursors(&server).contains("later"));
    server.stop();
    let flags = ["--no-host-metrics", "--stream-aggregation", aggregation.to_str().unwrap()];
    let server = TestServer::start(&data, &flags);
    wait_until("the log is followed", || cursors(&server).contains("rules:default"));
    assert!(cursors(&server).contains("later"), "{}", cursors(&server));
}

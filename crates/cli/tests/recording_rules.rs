//! Recording rules whose results stay right, run by the real program as the guide says.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::time::{Duration, Instant};

use support::{Folder, TestServer};

const RULES: &str = "groups:
- name: api
  rules: [{record: 'api:load:sum', expr: sum(load)}]
- name: nodes
  rules:
  - {record: 'instance:load:sum', expr: sum by (instance) (load)}
  - {record: 'job:load:sum', expr: sum by (job) (load)}
";

/// The flags of the guide's command that serves rules whose results stay right.
fn flags() -> Vec<String> {
    let guide = include_str!("../../../docs/guide/prometheus.md");
    let commands: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("    thalweg serve ")).collect();
    let [command] = commands.iter().filter(|line| line.contains("--materialize-rules")).collect::<Vec<_>>()[..] else {
        panic!("{commands:?}")
    };
    // As a shell reads it.
    command.split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn the_guides_command_keeps_the_rules_right_that_it_names() {
    let folder = Folder::new("recording-rules");
    folder.file("rules.yml", RULES.as_bytes());
    let file = folder.file("prometheus.yml", b"global: {evaluation_interval: 1s}\nrule_files: [rules.yml]\n");
    let mut flags = flags();
    assert!(flags.iter().any(|flag| flag == "prometheus.yml"), "{flags:?}");
    flags.iter_mut().filter(|flag| *flag == "prometheus.yml").for_each(|flag| *flag = file.display().to_string());
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["--no-host-metrics"]).collect();
    let server = TestServer::start(&folder.0.join("data"), &flags);
    wait_until("the log is followed", || server.get("/api/v1/admin/cursors").1.contains("rules:default"));
    let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let late = format!("load,job=a,instance=i value=7 {}000000000", now_s - 3_600);
    assert_eq!(server.post("/write", late.as_bytes()).0, 204);
    let count = |name: &str| {
        let query = format!("/api/v1/query?nocache=1&time={}&query=count_over_time({name}%5B20m%5D)", now_s - 3_000);
        let (status, body) = server.get(&query);
        assert_eq!(status, 200, "{body}");
        let found: serde_json::Value = serde_json::from_str(&body).unwrap();
        found["data"]["result"][0]["value"][1].as_str().map_or(0, |text| text.parse::<u64>().unwrap())
    };
    // A result for each second within five minutes.
    for name in ["api:load:sum", "instance:load:sum"] {
        wait_until(name, || count(name) == 300);
    }
    assert_eq!(count("job:load:sum"), 0, "the command does not name it");
    let (_, listed) = server.get("/api/v1/rules");
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let groups = listed["data"]["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    let kept: Vec<bool> = rules.map(|rule| rule.get("materialized").is_some()).collect();
    assert_eq!(kept, [true, true, false], "{listed}");
}

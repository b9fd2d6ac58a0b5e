//! Prometheus's own programs against this one: an Alertmanager that gets alerts, and promtool's look at `/metrics`.
//!
//! Needs Debian's packages `prometheus-alertmanager` and `prometheus`. Where they are missing the tests say so and pass, unless
//! `THALWEG_ALERTMANAGER_TEST=required`, as CI sets it.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod support;

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Folder, TestServer, agent, text};

/// The path of a program, if it is installed.
fn program(names: &[&str]) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .find(|path| path.is_file());
    let is_required = std::env::var_os("THALWEG_ALERTMANAGER_TEST").is_some_and(|value| value == "required");
    assert!(found.is_some() || !is_required, "{} is missing", names[0]);
    if found.is_none() {
        eprintln!("not tested: {} is missing", names[0]);
    }
    found
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_mins(1), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A running Alertmanager; killed when dropped.
struct Alertmanager {
    child: Child,
    url: String,
}

impl Alertmanager {
    fn start(program: PathBuf, folder: &Folder) -> Self {
        let config = folder.file("am.yml", b"route: {receiver: none}\nreceivers: [{name: none}]\n");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(program)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.path={}", folder.0.join("am").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--cluster.listen-address=")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let alertmanager = Self { child, url: format!("http://127.0.0.1:{port}") };
        let url = format!("{}/-/ready", alertmanager.url);
        wait_until("the Alertmanager is ready", || agent().get(&url).call().is_ok_and(|answer| answer.status() == 200));
        alertmanager
    }

    /// The alerts that it has, by version 2 of its API.
    fn alerts(&self) -> Vec<Value> {
        let mut answer = agent().get(format!("{}/api/v2/alerts", self.url)).call().unwrap();
        serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
    }
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_alert_fires_survives_a_restart_and_resolves_as_an_alertmanager_sees_it() {
    let Some(program) = program(&["prometheus-alertmanager", "alertmanager"]) else { return };
    let folder = Folder::new("alertmanager");
    let alertmanager = Alertmanager::start(program, &folder);
    let rules = "groups: [{name: g, rules: [{alert: High, expr: load > 1, labels: {severity: page}, annotations: {summary: '{{ $value }}'}}]}]\n";
    folder.file("rules.yml", rules.as_bytes());
    let address = alertmanager.url.trim_start_matches("http://");
    let config = format!(
        "global: {{evaluation_interval: 1s, external_labels: {{region: eu}}}}\nrule_files: [rules.yml]\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{address}']}}]}}]}}\n"
    );
    let config = folder.file("prometheus.yml", config.as_bytes());
    let flags =
        ["--no-host-metrics", "--prometheus", config.to_str().unwrap(), "--web-external-url", "http://t.example"];
    let data = folder.0.join("data");
    let server = TestServer::start(&data, &flags);
    assert_eq!(server.post("/write", b"load,job=a value=2").0, 204);
    wait_until("the alert fires", || !alertmanager.alerts().is_empty());
    let alerts = alertmanager.alerts();
    let [fired] = &alerts[..] else { panic!("{alerts:?}") };
    let expected = serde_json::json!({ "alertname": "High", "job": "a", "region": "eu", "severity": "page" });
    assert_eq!((&fired["labels"], &fired["annotations"]["summary"]), (&expected, &"2".into()));
    assert_eq!(fired["status"]["state"], "active");
    assert!(fired["generatorURL"].as_str().unwrap().starts_with("http://t.example/graph?g0.expr=load"), "{fired}");

    let (code, errors) = server.stop();
    assert_eq!(code, Some(0), "{errors}");
    let server = TestServer::start(&data, &flags);
    let was_updated = |before: &Value| {
        let alerts = alertmanager.alerts();
        assert_eq!(alerts.len(), 1, "it never resolves: {alerts:?}");
        alerts[0]["updatedAt"] != before["updatedAt"]
    };
    wait_until("it is sent again after a restart", || was_updated(fired));
    let again = &alertmanager.alerts()[0];
    assert_eq!((&again["fingerprint"], &again["startsAt"]), (&fired["fingerprint"], &fired["startsAt"]));

    assert_eq!(server.post("/write", b"load,job=a value=0").0, 204);
    wait_until("the alert resolves", || alertmanager.alerts().is_empty());
    let metrics = server.get("/metrics").1;
    assert!(metrics.contains(&format!(
        "prometheus_notifications_errors_total{{alertmanager=\"http://{address}/api/v2/alerts\"}} 0"
    )));
}

#[test]
fn promtool_reads_our_metrics() {
    let Some(promtool) = program(&["promtool"]) else { return };
    let folder = Folder::new("promtool");
    let config = folder.file("prometheus.yml", b"remote_write: [{url: 'http://127.0.0.1:1/'}]\nalerting: {alertmanagers: [{static_configs: [{targets: ['127.0.0.1:1']}]}]}\n");
    let server = TestServer::start(&folder.0.join("data"), &["--prometheus", config.to_str().unwrap()]);
    let metrics = server.get("/metrics").1;
    let check = |program: &std::path::Path, arguments: &[&str]| {
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
    };
    let (code, said) = check(&promtool, &["check", "metrics"]);
    assert_eq!((code, said.as_str()), (Some(0), ""), "{metrics}");
    // Ours agrees.
    assert_eq!(check(support::PROGRAM.as_ref(), &["check", "metrics"]), (Some(0), String::new()));
}

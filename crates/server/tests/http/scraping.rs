//! A server that runs a `prometheus.yml`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use platform::Platform;
use platform::network::NetworkPlatform;
use rules::materialize::RulePatterns;
use serde_json::Value;
use thalweg_server::{PrometheusMode, PrometheusSettings};

use crate::harness::Running;

fn json(server: &Running, path: &str) -> Value {
    let answer = server.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn start(file: &Path) -> Running {
    start_keeping(file, &[])
}

/// With rules whose results are kept right.
fn start_keeping(file: &Path, patterns: &[&str]) -> Running {
    let patterns: Vec<String> = patterns.iter().map(|text| (*text).to_owned()).collect();
    let settings = PrometheusSettings {
        file: Some(file.to_owned()),
        stream_aggregation: None,
        database: "default".to_owned(),
        external_url: "http://t.example".to_owned(),
        materialize_rules: RulePatterns::parse(&patterns).unwrap(),
    };
    let (mode, warnings) = PrometheusMode::load(settings, NetworkPlatform::real(Platform::real())).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    Running::start_with(|settings| {
        settings.prometheus = Some(mode);
        settings.web.is_lifecycle_enabled = true;
    })
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("thalweg-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_server_scrapes_another_and_reloads() {
    let folder = folder("scraping");
    let file = folder.join("prometheus.yml");
    let scraped = Running::start();
    let job = |name: &str| {
        format!(
            "- job_name: {name}\n  basic_auth: {{username: u, password: hidden-password}}\n  static_configs: [{{targets: ['{}']}}]\n",
            scraped.address
        )
    };
    let rest = "- job_name: elsewhere\n  gce_sd_configs: [{project: x}]\n\
                - job_name: none\n  static_configs: [{targets: ['gone:1']}]\n  relabel_configs: [{action: drop}]\n";
    let text =
        |jobs: &str| format!("global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n{jobs}{rest}");
    std::fs::write(&file, text(&job("first"))).unwrap();
    let server = start(&file);
    let up = |job: &str| {
        let query = format!("/api/v1/query?query=up%7Bjob%3D%22{job}%22%7D");
        json(&server, &query)["data"]["result"][0]["value"][1] == "1"
    };
    wait_until("the first job is up", || up("first"));
    let targets = json(&server, "/api/v1/targets");
    let active = &targets["data"]["activeTargets"];
    assert_eq!(active.as_array().unwrap().len(), 1);
    assert_eq!((&active[0]["health"], &active[0]["scrapePool"]), (&"up".into(), &"first".into()));
    assert_eq!(active[0]["labels"]["instance"], scraped.address.to_string());
    assert_eq!(active[0]["discoveredLabels"]["__scrape_interval__"], "1s");
    assert_eq!(targets["data"]["droppedTargetCounts"]["none"], 1);
    assert_eq!(targets["data"]["droppedTargets"][0]["scrapePool"], "none");
    assert_eq!(targets["data"]["scrapePoolErrors"]["elsewhere"][0], "gce_sd_configs is not built in");
    let only = json(&server, "/api/v1/targets?state=active&scrapePool=none");
    assert_eq!(
        (only["data"]["activeTargets"].as_array().unwrap().len(), &only["data"]["droppedTargets"][0]),
        (0, &Value::Null)
    );
    assert_eq!(
        json(&server, "/api/v1/scrape_pools")["data"]["scrapePools"],
        serde_json::json!(["elsewhere", "first", "none"])
    );
    let shown = server.get("/api/v1/status/config").body;
    assert!(shown.contains("<secret>") && !shown.contains("hidden-password"), "{shown}");
    let metadata = json(
        &server,
        "/api/v1/targets/metadata?metric=thalweg_sign_ins_failed_total&match_target=%7Bjob%3D%22first%22%7D",
    );
    assert_eq!(metadata["data"][0]["type"], "counter");
    let steps = json(&server, "/api/v1/targets/relabel_steps?scrapePool=none&labels=%7B%22a%22%3A%22b%22%7D");
    assert_eq!(
        (&steps["data"]["steps"][0]["rule"]["action"], &steps["data"]["steps"][0]["keep"]),
        (&"drop".into(), &false.into())
    );
    // A broken file changes nothing.
    std::fs::write(&file, "scrape_config: []\n").unwrap();
    let answer = server.send("POST", "/-/reload", &[], b"");
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains("did you mean scrape_configs?"), "{}", answer.body);
    assert!(server.get("/metrics").body.contains("\nthalweg_config_last_reload_successful 0\n"));
    std::fs::write(&file, text(&(job("first") + &job("second")))).unwrap();
    assert_eq!(server.send("POST", "/-/reload", &[], b"").status, 200);
    wait_until("the second job is up", || up("second"));
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("\nthalweg_config_last_reload_successful 1\n"), "{metrics}");
    assert!(metrics.contains("\nthalweg_scrape_pool_targets{scrape_job=\"second\"} 1\n"), "{metrics}");
    assert!(metrics.contains("\nthalweg_scrape_jobs_disabled 1\n"), "{metrics}");
    drop(server);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn targets_are_for_those_who_may_read_their_database() {
    let folder = std::env::temp_dir().join(format!("thalweg-targets-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("prometheus.yml");
    let text = "scrape_configs:\n- job_name: hidden\n  proxy_url: 'http://u:proxy-password@127.0.0.1:1'\n  \
                static_configs: [{targets: ['127.0.0.1:1']}]\n";
    std::fs::write(&file, text).unwrap();
    let settings = PrometheusSettings {
        file: Some(file),
        stream_aggregation: None,
        database: "scraped".to_owned(),
        external_url: "http://t.example".to_owned(),
        materialize_rules: RulePatterns::default(),
    };
    let (mode, _) = PrometheusMode::load(settings, NetworkPlatform::real(Platform::real())).unwrap();
    let server = Running::start_with(|settings| {
        settings.prometheus = Some(mode);
        settings.sign_in_required = true;
    });
    let admin = std::fs::read_to_string(server.db.directory().join("admin-token")).unwrap();
    let ask = |method: &str, path: &str, token: &str, body: &str| {
        server.send(method, path, &[("authorization", &format!("Bearer {}", token.trim()))], body).body
    };
    let shows = |token: &str| {
        let paths = ["/api/v1/targets", "/api/v1/scrape_pools"];
        paths.map(|path| ask("GET", path, token, "").contains("hidden"))
    };
    wait_until("there are targets", || shows(&admin) == [true, true]);
    for (name, grants, expected) in [
        ("reader", "read:scraped", true),
        ("stranger", "all:other", false),
        ("writer", "write:scraped", false),
        ("narrow", r#"read:scraped{a=\"b\"}"#, false),
    ] {
        let path = format!("/api/v1/admin/accounts/{name}");
        let account: Value =
            serde_json::from_str(&ask("PUT", &path, &admin, &format!(r#"{{"grants":["{grants}"]}}"#))).unwrap();
        let token = account["data"]["token"].as_str().unwrap();
        assert_eq!(shows(token), [expected, expected], "{name}");
    }
    let config = ask("GET", "/api/v1/status/config", &admin, "");
    assert!(config.contains("hidden") && !config.contains("proxy-password"), "{config}");
    drop(server);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_server_without_one_has_nothing_to_reload() {
    let server = Running::start();
    assert_eq!(server.send("POST", "/-/reload", &[], b"").status, 400);
}

/// Takes requests of an Alertmanager's API; their bodies.
fn alertmanager() -> (std::net::SocketAddr, std::sync::mpsc::Receiver<Value>) {
    use std::io::{BufRead, BufReader, Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut reader, mut length) = (BufReader::new(stream.unwrap()), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap() == 0 || line.trim().is_empty() {
                    break;
                }
                if let Some((name, value)) = line.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            if sender.send(serde_json::from_slice(&body).unwrap_or_default()).is_err() {
                return;
            }
        }
    });
    (address, receiver)
}

#[test]
fn rules_run_and_alerts_are_sent() {
    let folder = folder("rules");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("prometheus.yml");
    let (address, received) = alertmanager();
    let text = format!(
        "global: {{evaluation_interval: 1s}}\nrule_files: ['r*.yml']\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{address}']}}]}}]}}\n"
    );
    std::fs::write(&file, text).unwrap();
    let rules = "groups:\n- name: g\n  rules:\n  - record: one\n    expr: vector(1)\n  - alert: Always\n    expr: one == 1\n    labels: {team: x}\n    annotations: {summary: 'is {{ $value }}'}\n- name: h\n  rules: [{record: two, expr: vector(2)}]\n";
    std::fs::write(folder.join("r.yml"), rules).unwrap();
    let server = start(&file);
    let alert = received.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(alert[0]["labels"], serde_json::json!({ "alertname": "Always", "team": "x" }));
    assert_eq!(alert[0]["generatorURL"], "http://t.example/graph?g0.expr=one+%3D%3D+1&g0.tab=1");
    let listed = json(&server, "/api/v1/rules");
    let groups = &listed["data"]["groups"];
    assert_eq!((&groups[0]["name"], &groups[1]["name"]), (&"g".into(), &"h".into()));
    assert_eq!(groups[0]["interval"], 1);
    let alerting = &groups[0]["rules"][1];
    assert_eq!(
        (&alerting["type"], &alerting["state"], &alerting["health"]),
        (&"alerting".into(), &"firing".into(), &"ok".into())
    );
    assert_eq!(alerting["alerts"][0]["annotations"]["summary"], "is 1");
    let count = |query: &str| {
        let listed = json(&server, &format!("/api/v1/rules?{query}"));
        let groups = listed["data"]["groups"].as_array().unwrap().clone();
        groups.iter().map(|group| group["rules"].as_array().unwrap().len()).sum::<usize>()
    };
    for (query, expected) in [
        ("type=alert", 1),
        ("type=record", 2),
        ("rule_name[]=two", 1),
        ("rule_group[]=g", 2),
        ("file[]=none", 0),
        ("match[]=%7Bteam%3D%22x%22%7D", 1),
        ("group_limit=1", 2),
    ] {
        assert_eq!(count(query), expected, "{query}");
    }
    assert_eq!(server.get("/api/v1/rules?type=none").status, 400);
    let token = json(&server, "/api/v1/rules?group_limit=1")["data"]["groupNextToken"].as_str().unwrap().to_owned();
    assert_eq!(count(&format!("group_limit=1&group_next_token={token}")), 1);
    assert_eq!(server.get("/api/v1/rules?group_limit=1&group_next_token=x").status, 400);
    let alerts = json(&server, "/api/v1/alerts");
    assert_eq!(
        (&alerts["data"]["alerts"][0]["state"], &alerts["data"]["alerts"][0]["value"]),
        (&"firing".into(), &"1e+00".into())
    );
    let alertmanagers = json(&server, "/api/v1/alertmanagers");
    assert_eq!(alertmanagers["data"]["activeAlertmanagers"][0]["url"], format!("http://{address}/api/v2/alerts"));
    assert!(server.get("/metrics").body.contains("prometheus_notifications_sent_total{alertmanager="));
    // A reload with a broken rule file changes nothing.
    std::fs::write(folder.join("r.yml"), rules.replace("vector(2)", "vector(")).unwrap();
    assert_eq!(server.post("/-/reload", "").status, 500);
    assert_eq!(count(""), 3);
}

#[test]
fn results_of_selected_rules_count_late_rows() {
    let folder = folder("materialized");
    let file = folder.join("prometheus.yml");
    std::fs::write(&file, "global: {evaluation_interval: 1s}\nrule_files: [r.yml]\n").unwrap();
    let rules = "groups:\n- name: kept\n  rules: [{record: 'job:load:sum', expr: sum by (job) (load)}]\n- name: left\n  rules: [{record: 'load:sum', expr: sum(load)}]\n";
    std::fs::write(folder.join("r.yml"), rules).unwrap();
    let server = start_keeping(&file, &["kept/job:*"]);
    let shown = || json(&server, "/api/v1/rules")["data"]["groups"].as_array().unwrap().clone();
    // From here on rows are followed.
    wait_until("the log is followed", || server.db.log_cursors().iter().any(|cursor| cursor.name == "rules:default"));
    let now_s = server.db.now_ns() / 1_000_000_000;
    server.write(&format!("load,job=a value=7 {}000000000", now_s - 3600));
    let count = |name: &str| {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("query", &format!("count_over_time({name}[20m])"))
            .append_pair("time", &(now_s - 3000).to_string())
            .finish();
        let found = json(&server, &format!("/api/v1/query?{query}"));
        found["data"]["result"][0]["value"][1].as_str().map_or(0, |text| text.parse::<u64>().unwrap())
    };
    // A result for each second within five minutes.
    wait_until("late rows count", || count("job:load:sum") == 300);
    assert_eq!(count("load:sum"), 0, "of a rule that is not selected");
    let groups = shown();
    let kept = &groups[0]["rules"][0]["materialized"];
    assert_eq!((&kept["lastError"], &kept["failures"]), (&Value::Null, &0.into()), "{kept}");
    assert!(kept["evaluations"].as_u64() >= Some(300) && kept["samplesWritten"].as_u64() >= Some(300), "{kept}");
    assert_eq!(groups[1]["rules"][0].get("materialized"), None);
    // What cannot be kept right does not load.
    std::fs::write(folder.join("r.yml"), rules.replace("(load)", "(load @ 5)")).unwrap();
    let refused = server.post("/-/reload", "");
    assert_eq!(refused.status, 500);
    assert!(
        refused.body.contains(
            "the results of the rule \"job:load:sum\" of the group \"kept\" are to stay right (--materialize-rules"
        ),
        "{}",
        refused.body
    );
    drop(server);
    std::fs::remove_dir_all(folder).unwrap();
}

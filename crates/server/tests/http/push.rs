//! The Pushgateway's protocol.

use serde_json::Value;

use crate::harness::Running;

fn vector(server: &Running, query: &str) -> Vec<(String, String)> {
    let second = server.db.now_ns() / 1_000_000_000 + 1;
    let result: Value = serde_json::from_str(&server.result("default", query, second)).unwrap();
    let samples = result.as_array().unwrap().iter();
    let mut found: Vec<(String, String)> =
        samples.map(|sample| (sample["metric"].to_string(), sample["value"][1].as_str().unwrap().to_owned())).collect();
    found.sort();
    found
}

fn value(server: &Running, query: &str) -> Option<String> {
    vector(server, query).pop().map(|(_, value)| value)
}

#[test]
fn groups_are_pushed_replaced_and_deleted() {
    let server = Running::start();
    let path = "/metrics/job/backup/instance/db%201";
    let text = "# TYPE took gauge\n# HELP took Seconds.\ntook{disk=\"a\"} 3.5\nfiles_total 7\n";
    assert_eq!(server.send("PUT", path, &[], text).status, 200);
    assert_eq!(
        vector(&server, "took"),
        [(r#"{"__name__":"took","disk":"a","instance":"db 1","job":"backup"}"#.to_owned(), "3.5".to_owned())]
    );
    assert!(value(&server, "push_time_seconds{job=\"backup\"}").is_some());
    // Another group is not touched, nor are metrics of other names by POST.
    assert_eq!(server.send("PUT", "/metrics/job/other", &[], "took 1\n").status, 200);
    assert_eq!(server.send("POST", path, &[], "took{disk=\"b\"} 4\n").status, 200);
    assert_eq!(value(&server, "files_total").as_deref(), Some("7"));
    assert_eq!(value(&server, "took{disk=\"b\"}").as_deref(), Some("4"));
    let shown: Value = serde_json::from_str(&server.get("/api/v1/metrics").body).unwrap();
    let group = &shown["data"][0];
    assert_eq!(group["labels"], serde_json::json!({"instance": "db 1", "job": "backup"}));
    assert_eq!(group["took"]["metrics"][0]["value"], "4");
    assert_eq!(shown["data"].as_array().unwrap().len(), 2);
    // What PUT leaves out ends.
    assert_eq!(server.send("PUT", path, &[], "took 5\n").status, 200);
    assert_eq!(value(&server, "files_total"), None);
    assert_eq!(server.send("DELETE", path, &[], b"").status, 202);
    assert_eq!(value(&server, "took{job=\"backup\"}"), None);
    assert_eq!(value(&server, "took{job=\"other\"}").as_deref(), Some("1"));
    let shown: Value = serde_json::from_str(&server.get("/api/v1/metrics").body).unwrap();
    assert_eq!(shown["data"].as_array().unwrap().len(), 1);
}

#[test]
fn bad_pushes_leave_a_group_as_it_was() {
    let server = Running::start();
    let path = "/metrics/job/a";
    assert_eq!(server.send("PUT", path, &[], "m 1\n").status, 200);
    for (path, text, reason) in [
        (path, "m 2 1700000000000\n", "must not have timestamps"),
        (path, "m x\n", "invalid value"),
        ("/metrics/job/", "m 1\n", ""),
        ("/metrics/instance/a", "m 1\n", "/metrics/job/"),
        ("/metrics/job/a/b", "m 1\n", "has no value"),
    ] {
        let refused = server.send("PUT", path, &[], text);
        assert!(
            (400..500).contains(&refused.status) && refused.body.contains(reason),
            "{path} {text}: {}",
            refused.body
        );
    }
    let protobuf = [("content-type", "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily")];
    assert_eq!(server.send("PUT", path, &protobuf, "x").status, 415);
    let delimited = [(
        "content-type",
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
    )];
    assert_eq!(server.send("PUT", path, &delimited, "\x05abc").status, 400);
    assert_eq!(value(&server, "m").as_deref(), Some("1"));
}

/// As Go's client library pushes.
#[test]
fn metrics_come_as_protobuf() {
    let server = Running::start();
    let delimited = [(
        "content-type",
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
    )];
    let gauge = [&b"\x12\x09\x09"[..], &2.5f64.to_le_bytes()].concat();
    let metric = [&[0x22, gauge.len() as u8][..], &gauge].concat();
    let family = [&b"\x0a\x01g\x18\x01"[..], &metric].concat();
    let body = [&[family.len() as u8][..], &family].concat();
    assert_eq!(server.send("PUT", "/metrics/job/go", &delimited, &body).status, 200);
    assert_eq!(value(&server, "g{job=\"go\"}").as_deref(), Some("2.5"));
}

/// A job that ended long ago is still shown: its group is written again, also after a restart.
#[test]
fn groups_are_written_again_by_the_next_server() {
    let folder = std::env::temp_dir().join(format!("thalweg-pushed-{}", std::process::id()));
    {
        let mut options = db::DbOptions::new(&folder);
        options.store.directory.clone_from(&folder);
        let db = db::Db::open(platform::Platform::real(), options).unwrap();
        let document = r#"{"database":"default","labels":{"job":"a"},"families":{"m":"m 1\n"},"pushed_ns":1}"#;
        db.database_id("default").unwrap();
        db.put_document("pushed", r#"["default",{"job":"a"}]"#, document.as_bytes()).unwrap();
        db.put_document("pushed", r#"["dropped",{"job":"a"}]"#, document.replace("default", "dropped").as_bytes())
            .unwrap();
        db.close().unwrap();
    }
    let server = Running::start_on(db::DbOptions::new(&folder), |_| {});
    let started = std::time::Instant::now();
    while value(&server, "m{job=\"a\"}").as_deref() != Some("1") {
        assert!(started.elapsed().as_secs() < 20, "it is not written");
    }
    assert!(!server.db.databases().contains(&"dropped".to_owned()));
}

const OPENMETRICS: [(&str, &str); 1] = [("content-type", "application/openmetrics-text; version=1.0.0")];

fn exemplars(server: &Running, query: &str) -> Value {
    let path = format!("/api/v1/query_exemplars?query={query}&start=1970-01-01T00:00:00Z&end=2100-01-01T00:00:00Z");
    serde_json::from_str::<Value>(&server.get(&path).body).unwrap()["data"].clone()
}

#[test]
fn exemplars_of_openmetrics_are_stored() {
    let server = Running::start();
    let text = "# TYPE done counter\ndone_total{a=\"#\"} 7 # {trace=\"x\"} 0.5\n# EOF\n";
    let pushed = server.send("PUT", "/metrics/job/a", &OPENMETRICS, text);
    assert_eq!(pushed.status, 200, "{}", pushed.body);
    assert_eq!(value(&server, "done_total").as_deref(), Some("7"));
    let found = exemplars(&server, "done_total");
    assert_eq!(found[0]["seriesLabels"], serde_json::json!({"__name__": "done_total", "a": "#", "job": "a"}));
    assert_eq!(found[0]["exemplars"][0]["labels"], serde_json::json!({"trace": "x"}));
    // What is pushed for other names later leaves the exemplar as it is: one, with its time.
    assert_eq!(server.send("POST", "/metrics/job/a", &OPENMETRICS, "other 1\n# EOF\n").status, 200);
    assert_eq!(exemplars(&server, "done_total"), found);
    let shown: Value = serde_json::from_str(&server.get("/api/v1/metrics").body).unwrap();
    assert_eq!(shown["data"][0]["done"]["metrics"][0]["value"], "7");
    // One that cannot be read is told; its sample is there.
    let refused = server.send("PUT", "/metrics/job/b", &OPENMETRICS, "bad_total 1 # {trace=x} 1\n# EOF\n");
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("the exemplar cannot be read"), "{}", refused.body);
    assert_eq!(value(&server, "bad_total").as_deref(), Some("1"));

    // So are those of an import, from packed bodies, too.
    let text = "in_total{a=\"1\"} 1 1500000000 # {trace=\"y\"} 2 1500000000.25\nin_total{a=\"2\"} 1 1500000000 # {} x\n# EOF\n";
    let imported = server.send("POST", "/api/v1/import/prometheus", &OPENMETRICS, text);
    assert_eq!(imported.status, 400);
    assert!(imported.body.contains("the exemplar cannot be read"), "{}", imported.body);
    let found = exemplars(&server, "in_total");
    assert_eq!(found.as_array().unwrap().len(), 1);
    assert_eq!(found[0]["exemplars"][0]["timestamp"], 1_500_000_000.25);
}

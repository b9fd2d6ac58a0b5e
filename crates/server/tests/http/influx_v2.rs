//! Buckets, organisations and deletes of InfluxDB 2.

use serde_json::Value;

use crate::harness::{Answer, Running};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn parsed(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

fn names(server: &Running, query: &str) -> Vec<String> {
    let listed = parsed(&server.get(&format!("/api/v2/buckets{query}")));
    let buckets = listed["buckets"].as_array().unwrap().iter();
    buckets.map(|bucket| bucket["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn buckets_are_databases() {
    let server = Running::start();
    let organisation = &parsed(&server.get("/api/v2/orgs?org=acme"))["orgs"][0];
    assert_eq!(organisation["name"], "acme");
    let body = r#"{"orgID":"0000000000000001","name":"b","retentionRules":[{"type":"expire","everySeconds":86400}]}"#;
    let made = server.send("POST", "/api/v2/buckets", &JSON, body);
    assert_eq!(made.status, 201, "{}", made.body);
    let made = parsed(&made);
    assert_eq!((&made["orgID"], &made["retentionRules"][0]["everySeconds"]), (&organisation["id"], &86_400.into()));
    let again = server.send("POST", "/api/v2/buckets", &JSON, body);
    assert_eq!((again.status, &parsed(&again)["code"]), (422, &"conflict".into()));
    assert_eq!(server.post("/write?db=c", "m v=1 0").status, 204);
    assert_eq!(names(&server, ""), ["b", "c"]);
    assert_eq!(names(&server, "?name=b"), ["b"]);
    assert_eq!(names(&server, "?limit=1&offset=1"), ["c"]);
    let path = format!("/api/v2/buckets/{}", made["id"].as_str().unwrap());
    assert_eq!(parsed(&server.get(&path))["name"], "b");
    let changed = server.send("PATCH", &path, &JSON, r#"{"retentionRules":[]}"#);
    assert_eq!(parsed(&changed)["retentionRules"], Value::Array(Vec::new()));
    assert_eq!(server.send("PATCH", &path, &JSON, r#"{"name":"z"}"#).status, 400);
    assert_eq!(server.send("DELETE", &path, &[], b"").status, 204);
    assert_eq!(parsed(&server.get(&path))["code"], "not found");
    assert_eq!(names(&server, ""), ["c"]);
}

#[test]
fn rows_are_deleted_by_predicate() {
    let server = Running::start();
    server.post("/write?db=d", "m,h=a v=1 0\nm,h=a v=2 5000000000\nm,h=b v=3 0\nn,h=a v=4 0");
    let delete = |path: &str, predicate: &str| {
        let body = format!(
            r#"{{"start":"1970-01-01T00:00:00Z","stop":"1970-01-01T00:00:01Z","predicate":{}}}"#,
            Value::from(predicate)
        );
        server.send("POST", path, &JSON, body)
    };
    let deleted = delete("/api/v2/delete?org=o&bucket=d", r#"_measurement="m" AND h="a""#);
    assert_eq!((deleted.status, deleted.body.as_str()), (204, ""));
    let rows = server.get("/api/v3/query_influxql?db=d&format=csv&q=SELECT%20v%20FROM%20m,n");
    assert_eq!(
        rows.body,
        "iox::measurement,time,v\nm,1970-01-01T00:00:00,3.0\nm,1970-01-01T00:00:05,2.0\nn,1970-01-01T00:00:00,4.0\n"
    );
    assert_eq!(delete("/api/v2/delete?bucket=nosuch", "").status, 404);
    for bad in [r#"h="a" OR h="b""#, r#"_field="v""#, r#"h!="a""#] {
        let refused = delete("/api/v2/delete?bucket=d", bad);
        assert_eq!((refused.status, &parsed(&refused)["code"]), (400, &"invalid".into()), "{bad}");
    }
    assert_eq!(delete("/api/v2/delete?bucket=d", "").status, 204);
    let left = server.get("/api/v3/query_influxql?db=d&format=csv&q=SELECT%20v%20FROM%20m,n");
    assert_eq!(left.body, "iox::measurement,time,v\nm,1970-01-01T00:00:05,2.0\n");
}

/// More samples than a query may hold are read without the view.
#[test]
fn flux_uses_views_unless_that_is_forbidden() {
    let server = Running::start_with(|settings| settings.query_samples_max = 150);
    let lines: Vec<String> =
        (0..600_i64).map(|second| format!("t,h=h{} v={second} {}", second % 7, second * 1_000_000_000)).collect();
    server.write(&lines.join("\n"));
    let create = "CREATE MATERIALIZED VIEW w AS SELECT time_bucket('1 minute', time) AS b, stddev(v) AS dev, count(*) AS n FROM t GROUP BY b";
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("query", create).finish();
    let made = server.post(&format!("/sql?{query}"), "");
    assert_eq!(made.status, 200, "{}", made.body);
    let script = "from(bucket: \"default\") |> range(start: 0, stop: 1970-01-01T00:10:00Z) |> filter(fn: (r) => r._measurement == \"t\") |> group() |> stddev()";
    let flux = |parameters: &str| {
        let path = format!("/api/v2/query{parameters}");
        server.send("POST", &path, &[("content-type", "application/vnd.flux")], script)
    };
    // Its windows are computed in the background.
    let started = std::time::Instant::now();
    while flux("?nocache=1").status != 200 {
        assert!(started.elapsed() < std::time::Duration::from_secs(30), "{}", flux("").body);
    }
    // The square root of 600 * 601 / 12.
    assert!(flux("?nocache=1").body.contains("173.34935"), "{}", flux("").body);
    let refused = flux("?nocache=1&noviews=1");
    assert!(refused.status != 200 && refused.body.contains("query_samples_max"), "{}", refused.body);
}

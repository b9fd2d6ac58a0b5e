//! InfluxDB 3's queries by HTTP.

use crate::harness::Running;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn start() -> Running {
    let server = Running::start();
    let lines =
        "home,room=Kitchen temp=21.5,co=3i 1000000000\nhome,room=Bath temp=22 2000000000\nout temp=-1 1000000000";
    assert_eq!(server.post("/write?db=h", lines).status, 204);
    server
}

#[test]
fn sql_gives_objects_without_nulls() {
    let server = start();
    let query = "SELECT time, room, temp, co FROM home ORDER BY time".replace(' ', "%20");
    let json = server.get(&format!("/api/v3/query_sql?db=h&q={query}"));
    let expected = concat!(
        r#"[{"time":"1970-01-01T00:00:01","room":"Kitchen","temp":21.5,"co":3},"#,
        r#"{"time":"1970-01-01T00:00:02","room":"Bath","temp":22.0}]"#
    );
    assert_eq!((json.status, json.body.as_str(), json.header("content-type")), (200, expected, "application/json"));
    let body = r#"{"db":"h","q":"SELECT room, temp FROM home ORDER BY time","format":"jsonl"}"#;
    let lines = server.send("POST", "/api/v3/query_sql", &JSON, body);
    assert_eq!(lines.body, "{\"room\":\"Kitchen\",\"temp\":21.5}\n{\"room\":\"Bath\",\"temp\":22.0}\n");
    let csv = server.get(&format!("/api/v3/query_sql?db=h&format=csv&q={query}"));
    assert_eq!(csv.body, "time,room,temp,co\n1970-01-01T00:00:01,Kitchen,21.5,3\n1970-01-01T00:00:02,Bath,22.0,\n");
    let pretty = server.get("/api/v3/query_sql?db=h&format=pretty&q=SELECT%20count(*)%20AS%20n%20FROM%20home");
    assert_eq!(pretty.body, "+---+\n| n |\n+---+\n| 2 |\n+---+\n");
    for bad in ["format=xml&q=SELECT%201", "q=SELEC", "", "q=SELECT%201&params=%7B%22a%22%3A1%7D"] {
        let refused = server.get(&format!("/api/v3/query_sql?db=h&{bad}"));
        assert!(refused.status == 400 && refused.body.contains("\"error\""), "{bad}: {}", refused.body);
    }
    assert_eq!(server.send("POST", "/api/v3/query_sql", &JSON, "[").status, 400);
}

#[test]
fn influxql_gives_one_table() {
    let server = start();
    let body = r#"{"db":"h","q":"SELECT temp FROM home, out GROUP BY room","format":"csv"}"#;
    let csv = server.send("POST", "/api/v3/query_influxql", &JSON, body);
    assert_eq!(csv.header("content-type"), "text/csv");
    assert!(csv.body.starts_with("iox::measurement,time,room,temp\n"), "{}", csv.body);
    assert!(csv.body.contains("\nhome,1970-01-01T00:00:01,Kitchen,21.5\n"), "{}", csv.body);
    assert!(csv.body.contains("\nout,1970-01-01T00:00:01,,-1.0\n"), "{}", csv.body);
    let body = r#"{"db":"h","q":"SELECT mean(temp) FROM home WHERE room = $room","params":{"room":"Bath"}}"#;
    let json = server.send("POST", "/api/v3/query_influxql", &JSON, body);
    assert_eq!(json.body, r#"[{"iox::measurement":"home","time":"1970-01-01T00:00:00","mean":22.0}]"#);
    let shown = server.get("/api/v3/query_influxql?db=h&format=jsonl&q=SHOW%20MEASUREMENTS");
    assert_eq!(
        shown.body,
        "{\"iox::measurement\":\"measurements\",\"name\":\"home\"}\n{\"iox::measurement\":\"measurements\",\"name\":\"out\"}\n"
    );
    let refused = server.get("/api/v3/query_influxql?db=nosuch&q=SELECT%20temp%20FROM%20home");
    assert!(refused.status == 400 && refused.body.contains("database not found: nosuch"), "{}", refused.body);
}

/// InfluxDB 1's paths of Prometheus's protocols.
#[test]
fn prometheus_writes_and_reads_by_influxdbs_paths() {
    let server = start();
    for path in ["/api/v1/prom/write", "/api/v1/prom/read"] {
        let unreadable = server.post(&format!("{path}?db=h"), b"x");
        assert_eq!(unreadable.status, 400, "{path}: {}", unreadable.body);
        assert_eq!(server.get(path).status, 405);
    }
}

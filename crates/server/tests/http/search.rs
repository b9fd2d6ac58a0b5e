//! Prometheus's search of names, and Flux over HTTP.

use serde_json::Value;

use crate::harness::Running;

fn lines(server: &Running, path: &str) -> Vec<Value> {
    let answer = server.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(line: &Value, key: &str) -> Vec<String> {
    line["results"].as_array().unwrap().iter().map(|result| result[key].as_str().unwrap().to_owned()).collect()
}

#[test]
fn names_are_searched() {
    let server = Running::start();
    let text = "# TYPE http_requests counter\n# HELP http_requests Answers.\nhttp_requests{code=\"200\",zone=\"eu\"} 1\nhttp_errors{code=\"500\"} 1\nup{code=\"200\"} 1\nold 1 1000\n";
    assert_eq!(server.post("/api/v1/import/prometheus", text).status, 204);
    let found = lines(&server, "/api/v1/search/metric_names?search[]=http");
    assert_eq!(names(&found[0], "name"), ["http_errors", "http_requests"]);
    assert_eq!(found[1], serde_json::json!({"status": "success", "has_more": false}));
    // The last hour, unless a range is named.
    assert!(!names(&lines(&server, "/api/v1/search/metric_names")[0], "name").contains(&"old".to_owned()));
    assert_eq!(names(&lines(&server, "/api/v1/search/metric_names?start=0&search[]=old")[0], "name"), ["old"]);
    // The best first, with what is known of each.
    let path = "/api/v1/search/metric_names?search[]=requests&search[]=errors&sort_by=score&include_score=true&include_metadata=true";
    let found = lines(&server, path);
    assert_eq!(names(&found[0], "name"), ["http_requests", "http_errors"]);
    let first = &found[0]["results"][0];
    assert_eq!((&first["type"], &first["help"]), (&"counter".into(), &"Answers.".into()));
    assert!(first["score"].as_f64().unwrap() > 0.9 && first["score"].as_f64().unwrap() < 1.0, "{first}");
    // In lines of so many, cut after so many.
    let found = lines(
        &server,
        "/api/v1/search/metric_names?search[]=http&search[]=up&limit=2&batch_size=1&sort_by=alpha&sort_dir=dsc",
    );
    assert_eq!(
        (names(&found[0], "name"), names(&found[1], "name")),
        (vec!["up".to_owned()], vec!["http_requests".to_owned()])
    );
    assert_eq!(found[2]["has_more"], true);
    assert_eq!(
        names(&lines(&server, "/api/v1/search/label_names?search[]=zo&match[]=http_requests")[0], "name"),
        ["zone"]
    );
    assert_eq!(
        names(&lines(&server, "/api/v1/search/label_values?label=code&match[]=up&match[]=http_errors")[0], "value"),
        ["200", "500"]
    );
    assert_eq!(names(&lines(&server, "/api/v1/search/metric_names?search[]=nothing")[0], "name"), Vec::<String>::new());
    for (bad, reason) in [
        ("label_values", "label"),
        ("metric_names?limit=0", "limit"),
        ("metric_names?limit=10001", "limit"),
        ("metric_names?sort_dir=asc", "sort_by"),
        ("metric_names?sort_by=score", "search[]"),
        ("metric_names?sort_by=name", "sort_by"),
        ("metric_names?fuzz_alg=soundex", "fuzz_alg"),
        ("metric_names?fuzz_threshold=101", "fuzz_threshold"),
        ("metric_names?start=2&end=1", "end timestamp"),
        ("metric_names?match[]=x{", "match[]"),
    ] {
        let refused = server.get(&format!("/api/v1/search/{bad}"));
        assert_eq!(refused.status, 400, "{bad}: {}", refused.body);
        assert!(refused.body.contains(reason), "{bad}: {}", refused.body);
    }
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
const FLUX: [(&str, &str); 1] = [("content-type", "application/vnd.flux")];

#[test]
fn flux_is_answered_as_annotated_csv() {
    let server = Running::start();
    assert_eq!(
        server.post("/api/v2/write?bucket=b&org=o", "m,h=a v=1,n=2i 1000000000\nm,h=a v=3 2000000000").status,
        204
    );
    let script = "from(bucket: \"b\") |> range(start: 0, stop: 10) |> filter(fn: (r) => r._field == \"v\") |> sum()";
    let plain = server.send("POST", "/api/v2/query?org=o", &FLUX, script);
    assert_eq!(plain.status, 200, "{}", plain.body);
    let times = "1970-01-01T00:00:00Z,1970-01-01T00:00:10Z";
    let rows = format!(",result,table,_start,_stop,_value,_field,_measurement,h\r\n,_result,0,{times},4,v,m,a\r\n");
    assert_eq!(plain.body, rows);
    let body = serde_json::json!({
        "query": format!("{script} |> map(fn: (r) => ({{r with _value: r._value * float(v: params.by)}}))"),
        "type": "flux",
        "params": {"by": 2},
        "dialect": {"header": true, "delimiter": ",", "annotations": ["datatype", "group", "default"]},
        "extern": null,
    });
    let annotated = server.send("POST", "/api/v2/query", &JSON, body.to_string());
    let lines: Vec<&str> = annotated.body.lines().collect();
    assert_eq!(lines[0], "#datatype,string,long,dateTime:RFC3339,dateTime:RFC3339,double,string,string,string");
    assert_eq!(lines[1], "#group,false,false,true,true,false,true,true,true");
    assert_eq!(lines[4], format!(",,0,{times},8,v,m,a"));
    for (body, reason) in [
        (serde_json::json!({"query": "from(bucket: \"b\") |> range(start: 0) |> joinAll()"}), "joinAll"),
        (serde_json::json!({"query": "from(bucket: \"none\") |> range(start: 0)"}), "could not find bucket"),
        (serde_json::json!({"query": "from("}), "compilation failed: error @1:6"),
        (serde_json::json!({"query": "x", "type": "influxql"}), "query type"),
        (serde_json::json!({}), "requires query"),
    ] {
        let refused = server.send("POST", "/api/v2/query", &JSON, body.to_string());
        assert_eq!(refused.status, 400, "{}", refused.body);
        let error: Value = serde_json::from_str(&refused.body).unwrap();
        assert_eq!(error["code"], "invalid");
        assert!(error["message"].as_str().unwrap().contains(reason), "{error}");
    }
}

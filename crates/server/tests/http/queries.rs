//! Prometheus's API, to the letter.

use std::fmt::Write;

use crate::harness::Running;

/// Samples at seconds 0, 15, 30 … 585 of two jobs, and one more metric.
fn start() -> Running {
    let server = Running::start();
    let mut lines = String::new();
    for step in 0..40 {
        for (job, factor) in [("a", 1), ("b", 10)] {
            let (value, time) = (step * factor, i64::from(step) * 15_000_000_000);
            writeln!(lines, "req,job={job},instance=i{factor} total={value},errors={step}i {time}").unwrap();
        }
    }
    server.write(&lines);
    server.write("special,kind=nan value=1e-9 1500000000\nspecial,kind=big value=1e21 1500000000\n");
    server
}

#[track_caller]
fn check(server: &Running, path: &str, status: u16, expected: &str) {
    let answer = server.get(path);
    assert_eq!((answer.status, answer.body.as_str()), (status, expected), "{path}");
    assert_eq!(answer.header("content-type"), "application/json", "{path}");
}

#[track_caller]
fn check_data(server: &Running, path: &str, data: &str) {
    check(server, path, 200, &format!(r#"{{"status":"success","data":{data}}}"#));
}

#[track_caller]
fn check_error(server: &Running, path: &str, status: u16, kind: &str, message: &str) {
    check(server, path, status, &format!(r#"{{"status":"error","errorType":"{kind}","error":"{message}"}}"#));
}

#[test]
fn instant_queries() {
    let server = start();
    for (path, data) in [
        ("/api/v1/query?query=1%2B1&time=5.5", r#"{"resultType":"scalar","result":[5.5,"2"]}"#),
        ("/api/v1/query?query=%22x%22&time=1970-01-01T00:00:05Z", r#"{"resultType":"string","result":[5,"x"]}"#),
        ("/api/v1/query?query=1/0&time=1", r#"{"resultType":"scalar","result":[1,"+Inf"]}"#),
        ("/api/v1/query?query=-1/0&time=1", r#"{"resultType":"scalar","result":[1,"-Inf"]}"#),
        ("/api/v1/query?query=0/0&time=1", r#"{"resultType":"scalar","result":[1,"NaN"]}"#),
        (
            "/api/v1/query?query=req_total&time=15",
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"req_total","instance":"i1","job":"a"},"value":[15,"1"]},{"metric":{"__name__":"req_total","instance":"i10","job":"b"},"value":[15,"10"]}]}"#,
        ),
        (
            "/api/v1/query?query=req_errors%7Bjob%3D%22a%22%7D%5B31s%5D&time=30",
            r#"{"resultType":"matrix","result":[{"metric":{"__name__":"req_errors","instance":"i1","job":"a"},"values":[[0,"0"],[15,"1"],[30,"2"]]}]}"#,
        ),
        (
            "/api/v1/query?query=special%7Bkind%3D~%22nan%7Cbig%22%7D&time=2",
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"special","kind":"big"},"value":[2,"1000000000000000000000"]},{"metric":{"__name__":"special","kind":"nan"},"value":[2,"0.000000001"]}]}"#,
        ),
        ("/api/v1/query?query=nothing&time=5", r#"{"resultType":"vector","result":[]}"#),
        ("/api/v1/query?query=req_total&time=30&db=other", r#"{"resultType":"vector","result":[]}"#),
        ("/api/v1/query?query=special&time=60&lookback_delta=5s", r#"{"resultType":"vector","result":[]}"#),
    ] {
        check_data(&server, path, data);
    }
    let answer = server.get("/api/v1/query?query=req_total&time=15&limit=1");
    assert!(
        answer.body.ends_with(r#""value":[15,"1"]}]},"warnings":["results truncated due to limit"]}"#),
        "{}",
        answer.body
    );
}

#[test]
fn range_queries() {
    let server = start();
    let path = "/api/v1/query_range?query=sum(rate(req_total%5B1m%5D))&start=60&end=120&step=30";
    let values = r#"[[60,"0.7333333333333333"],[90,"0.7333333333333333"],[120,"0.7333333333333333"]]"#;
    check_data(&server, path, &format!(r#"{{"resultType":"matrix","result":[{{"metric":{{}},"values":{values}}}]}}"#));
    check_data(
        &server,
        "/api/v1/query_range?query=2&start=1970-01-01T00:00:00Z&end=0.5&step=500ms",
        r#"{"resultType":"matrix","result":[{"metric":{},"values":[[0,"2"],[0.5,"2"]]}]}"#,
    );
    // 11,000 steps are allowed, one more is not.
    assert_eq!(server.get("/api/v1/query_range?query=1&start=0&end=11000&step=1").status, 200);
}

#[test]
fn forms_may_be_posted() {
    let server = start();
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for (path, form_body) in [
        ("/api/v1/query", "query=1&time=5"),
        ("/api/v1/query_range", "query=req_total&start=0&end=60&step=15"),
        ("/api/v1/series", "match[]=req_total"),
        ("/api/v1/labels", ""),
    ] {
        let posted = server.send("POST", path, &form, form_body);
        let got = server.get(&format!("{path}?{form_body}"));
        assert_eq!((posted.status, posted.body), (200, got.body), "{path}");
    }
}

#[test]
fn bad_queries_say_why() {
    let server = start();
    let bad = |path: &str, message: &str| check_error(&server, path, 400, "bad_data", message);
    bad("/api/v1/query", r#"invalid parameter \"query\": it is missing"#);
    bad("/api/v1/query?query=1&time=x", r#"invalid parameter \"time\": cannot parse \"x\" to a valid timestamp"#);
    bad("/api/v1/query?query=1&timeout=x", r#"invalid parameter \"timeout\": cannot parse \"x\" to a valid duration"#);
    bad("/api/v1/query?query=1&limit=x", r#"invalid parameter \"limit\": \"x\" is not a number from 0 up"#);
    bad("/api/v1/query_range?query=1&start=0&end=1", r#"invalid parameter \"step\": it is missing"#);
    let step = r#"invalid parameter \"step\": zero or negative query resolution step widths are not accepted. Try a positive integer"#;
    bad("/api/v1/query_range?query=1&start=0&end=1&step=0", step);
    bad("/api/v1/query_range?query=1&start=0&end=1&step=-1", step);
    let end = r#"invalid parameter \"end\": end timestamp must not be before start time"#;
    bad("/api/v1/query_range?query=1&start=1&end=0&step=1", end);
    let points =
        "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)";
    bad("/api/v1/query_range?query=1&start=0&end=11001&step=1", points);
    bad("/api/v1/labels?limit=-1", r#"invalid parameter \"limit\": \"-1\" is not a number from 0 up"#);
    bad("/api/v1/series", "no match[] parameter provided");
    bad("/api/v1/labels?start=5&end=1", end);
    for path in [
        "/api/v1/query?query=sum(",
        "/api/v1/query_range?query=sum(&start=0&end=1&step=1",
        "/api/v1/query_range?query=m%5B5m%5D&start=0&end=1&step=1",
        "/api/v1/series?match[]=%7B",
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 400, "{path}");
        assert!(
            answer.body.starts_with(r#"{"status":"error","errorType":"bad_data","error":"invalid parameter "#),
            "{}",
            answer.body
        );
    }
    // The text is right, the data does not fit: one-to-many without saying so.
    let answer = server.get("/api/v1/query?time=15&query=req_total%20*%20on()%20req_errors");
    assert_eq!(answer.status, 422, "{}", answer.body);
    assert!(answer.body.starts_with(r#"{"status":"error","errorType":"execution","#), "{}", answer.body);
    let answer = server.send("DELETE", "/api/v1/query?query=1", &[], "");
    assert_eq!(answer.status, 405);
    assert_eq!(server.get("/api/v1/nothing").status, 404);
}

#[test]
fn queries_have_limits() {
    let server = Running::start_with(|settings| settings.query_samples_max = 10);
    let lines: Vec<String> = (0..40).map(|second| format!("m v=1 {second}000000000\n")).collect();
    server.write(&lines.concat());
    let answer = server.get("/api/v1/query?query=m_v%5B1m%5D&time=40");
    assert_eq!(answer.status, 422, "{}", answer.body);
    assert!(answer.body.contains("query_samples_max"), "{}", answer.body);

    let server = Running::start();
    let lines: Vec<String> = (0..20_000).map(|host| format!("m,host=h{host} v=1 1000000000\n")).collect();
    server.write(&lines.concat());
    let path = "/api/v1/query_range?query=m_v%2Bm_v&start=0&end=10000&step=1&timeout=1ms";
    check_error(&server, path, 503, "timeout", "query timed out in expression evaluation");
}

#[test]
fn names_of_series_and_labels() {
    let server = start();
    let a = r#"{"__name__":"req_total","instance":"i1","job":"a"}"#;
    let b = r#"{"__name__":"req_total","instance":"i10","job":"b"}"#;
    for (path, data) in [
        ("/api/v1/series?match[]=req_total", format!("[{a},{b}]")),
        (
            "/api/v1/series?match[]=req_total%7Bjob%3D%22a%22%7D&match[]=req_total%7Bjob%3D%22b%22%7D",
            format!("[{a},{b}]"),
        ),
        ("/api/v1/series?match[]=req_total&start=100000&end=200000", "[]".to_owned()),
        ("/api/v1/series?match[]=req_total&db=other", "[]".to_owned()),
        ("/api/v1/labels", r#"["__name__","instance","job","kind"]"#.to_owned()),
        ("/api/v1/labels?match[]=special", r#"["__name__","kind"]"#.to_owned()),
        ("/api/v1/label/job/values", r#"["a","b"]"#.to_owned()),
        ("/api/v1/label/__name__/values", r#"["req_errors","req_total","special"]"#.to_owned()),
        ("/api/v1/label/job/values?match[]=req_total%7Binstance%3D%22i1%22%7D", r#"["a"]"#.to_owned()),
        ("/api/v1/label/U__job/values", r#"["a","b"]"#.to_owned()),
        ("/api/v1/label/nothing/values", "[]".to_owned()),
        ("/api/v1/label/kind/values?start=0&end=2", r#"["big","nan"]"#.to_owned()),
        ("/api/v1/label/kind/values?start=100000&end=200000", "[]".to_owned()),
        ("/api/v1/metadata", "{}".to_owned()),
    ] {
        check_data(&server, path, &data);
    }
    let cut = r#"{"status":"success","data":["a"],"warnings":["results truncated due to limit"]}"#;
    check(&server, "/api/v1/label/job/values?limit=1", 200, cut);
    check_data(&server, "/api/v1/label/job/values?limit=2", r#"["a","b"]"#);
}

#[test]
fn what_grafana_asks_besides() {
    let server = Running::start();
    for (path, data) in [
        ("/api/v1/rules", r#"{"groups":[]}"#),
        ("/api/v1/alerts", r#"{"alerts":[]}"#),
        ("/api/v1/targets", r#"{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":{}}"#),
        ("/api/v1/query_exemplars?query=up", "[]"),
    ] {
        check_data(&server, path, data);
    }
    let answer = server.get("/api/v1/status/buildinfo");
    assert!(answer.body.starts_with(r#"{"status":"success","data":{"version":""#), "{}", answer.body);
}

#[test]
fn plans() {
    let server = start();
    let ask = |text: &str| {
        let mut path = "/api/v1/plan?query=".to_owned();
        text.bytes().for_each(|byte| write!(path, "%{byte:02X}").unwrap());
        path
    };
    for (text, data) in [
        (
            r#"(->> (metric "req_total") (tag "job" "b") (range 0 30000000000))"#,
            r#"{"resultType":"frames","result":[{"labels":{"__name__":"req_total","instance":"i10","job":"b"},"columns":[{"name":"time","type":"timestamp_ns","values":[0,15000000000]},{"name":"value","type":"f64","values":[0,10]}]}]}"#,
        ),
        (
            r#"(->> (metric "req_errors") (groupby 5m '(max avg) (by "job")) (where (= (label "job") "a")))"#,
            r#"{"resultType":"frames","result":[{"labels":{"job":"a"},"columns":[{"name":"time","type":"timestamp_ns","values":[0,300000000000]},{"name":"max","type":"i64","values":[19,39]},{"name":"avg","type":"f64","values":[9.5,29.5]}]}]}"#,
        ),
        (
            r#"(->> (metric "special") (tag "kind" "big") (map (/ #V 0)))"#,
            r#"{"resultType":"frames","result":[{"labels":{"__name__":"special","kind":"big"},"columns":[{"name":"time","type":"timestamp_ns","values":[1500000000]},{"name":"value","type":"f64","values":["+Inf"]}]}]}"#,
        ),
    ] {
        check_data(&server, &ask(text), data);
    }
    check_data(
        &server,
        &format!("{}&explain=plan", ask(r#"(->> (metric "req_total") (groupby 90m max))"#)),
        r#"{"plan":"(->>\n  (metric \"req_total\")\n  (groupby 1h30m max))"}"#,
    );
    let analyzed = server.get(&format!("{}&explain=analyze", ask(r#"(->> (metric "req_total"))"#)));
    assert!(analyzed.body.contains(r#""step":"scan","series":2,"rows":80,"#), "{}", analyzed.body);
    let bins =
        format!("{}&explain=analyze", ask(r#"(->> (metric "req_total") (range 0 600000000000) (groupby 1m max))"#));
    for (parameter, kept) in [("", false), ("", true), ("&nocache=1", false), ("", true)] {
        let analyzed = server.get(&format!("{bins}{parameter}"));
        assert_eq!(analyzed.body.contains(r#""step":"kept bins""#), kept, "{}", analyzed.body);
        let rows = if kept { 20 } else { 0 };
        let told = format!(r#""bins":{{"rows":20,"from_memory":{rows},"from_flash":0}}"#);
        assert_eq!(analyzed.body.contains(&told), parameter.is_empty(), "{}", analyzed.body);
    }
    check_error(
        &server,
        &ask("(->> (metric x))"),
        400,
        "bad_data",
        r#"invalid parameter \"query\": 1:14: a text such as \"host_0\" is wanted, not `x`"#,
    );
}

#[test]
fn explained() {
    let server = start();
    let rate = "query=sum%20by%20(job)%20(rate(req_total%5B1m%5D))";
    let plan = r#"(promql \"sum by (job) (rate(req_total[1m]))\"\n  (steps 60000000000 180000000000 1m)\n  (sum\n    (by '(\"job\"))\n    (rate\n      (window 1m\n        (->>\n          (metric \"req_total\")\n          (range 1000000 180001000000))))))"#;
    let range = format!("/api/v1/query_range?{rate}&start=60&end=180&step=60");
    check_data(&server, &format!("{range}&explain=plan"), &format!(r#"{{"plan":"{plan}"}}"#));
    for (parameter, steps) in [
        (
            "&nocache=1",
            &["scan\",\"series\":2,", "rate\",\"series\":2,\"rows\":6,", "sum\",\"series\":2,\"rows\":6,"][..],
        ),
        ("", &["scan", "rate", "sum"]),
        // What was kept is not evaluated again.
        ("", &[]),
    ] {
        let body = server.get(&format!("{range}&explain=analyze{parameter}")).body;
        let found: Vec<&str> = body.split(r#"{"step":""#).skip(1).collect();
        assert_eq!(found.len(), steps.len(), "{body}");
        for (found, step) in found.iter().zip(steps) {
            assert!(found.starts_with(step), "{body}");
        }
        let kept = if steps.is_empty() { 3 } else { 0 };
        assert!(
            body.contains(&format!(r#""result_cache":{{"steps":3,"from_memory":{kept},"from_flash":0}}"#)),
            "{body}"
        );
        assert_eq!(body.contains(r#""from":{"head":{"chunks":0,"rows":0,"#), steps.is_empty(), "{body}");
    }
    let instant = format!("/api/v1/query?{rate}&time=60");
    let planned = server.get(&format!("{instant}&explain=plan")).body;
    assert!(planned.contains("(at 60000000000)"), "{planned}");
    let analyzed = server.get(&format!("{instant}&explain=analyze&nocache=1")).body;
    assert!(analyzed.contains(r#""step":"sum","series":2,"rows":2,"#), "{analyzed}");
    check_error(
        &server,
        &format!("{instant}&explain=no"),
        400,
        "bad_data",
        r#"invalid parameter \"explain\": it is plan or analyze"#,
    );
}

//! `/api/v1/graph`: every language's answers as pictures and as columns.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::access::Guarded;
use crate::harness::{Answer, Running};

fn path(parameters: &[(&str, &str)]) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
    format!("/api/v1/graph?{query}")
}

fn load() -> Running {
    let server = Running::start();
    let mut lines = String::new();
    for minute in 0..10_i64 {
        for host in ["a", "b"] {
            // Two minutes are missing of one.
            if host == "a" || !(4..6).contains(&minute) {
                let value = minute + i64::from(host == "b") * 10;
                writeln!(lines, "load,host={host} value={value} {}", minute * 60_000_000_000).unwrap();
            }
        }
    }
    server.write(&lines);
    server
}

fn columns(server: &Running, parameters: &[(&str, &str)]) -> Value {
    let answer = server.get(&path(&[parameters, &[("format", "json")]].concat()));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let mut parsed: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(parsed["status"], "success");
    parsed["data"].take()
}

const HOUR: [(&str, &str); 3] = [("start", "0"), ("end", "540"), ("step", "60")];

#[test]
fn every_language_gives_the_same_columns() {
    let server = load();
    let up = |from: i64| (from..from + 10).map(Value::from).collect::<Vec<_>>();
    let mut gap = up(10);
    (gap[4], gap[5]) = (Value::Null, Value::Null);
    for (language, query, names) in [
        ("promql", "last_over_time(load[30s])", ["load{host=\"a\"}", "load{host=\"b\"}"]),
        ("sql", "SELECT time, host, value FROM load ORDER BY time DESC", ["value{host=\"a\"}", "value{host=\"b\"}"]),
        ("influxql", "SELECT value FROM load GROUP BY host", ["load.value{host=\"a\"}", "load.value{host=\"b\"}"]),
        ("plan", "(->> (metric \"load\"))", ["load{host=\"a\"}", "load{host=\"b\"}"]),
    ] {
        let data = columns(&server, &[&[("lang", language), ("query", query)][..], &HOUR].concat());
        let times: Vec<i64> = (0..10).map(|minute| minute * 60).collect();
        assert_eq!(data["times"], json!(times), "{language}");
        let mut series = data["series"].as_array().unwrap().clone();
        series.sort_by_key(|one| one["name"].to_string());
        assert_eq!(series.iter().map(|one| one["name"].clone()).collect::<Vec<_>>(), names, "{language}");
        assert_eq!(series[0]["labels"]["host"], "a", "{language}");
        assert_eq!((&series[0]["values"], &series[1]["values"]), (&json!(up(0)), &json!(gap)), "{language}");
        let numbers = ["last", "min", "max", "avg"].map(|name| series[1][name].clone());
        assert_eq!(numbers, [json!(19), json!(10), json!(19), json!(14.5)], "{language}");
        assert_eq!(data["downsample"], json!({ "method": "none", "points": 18 }), "{language}");
        assert_eq!((&data["start"], &data["end"]), (&json!(0), &json!(540)), "{language}");
    }
    // Without a range: that of the rows.
    let data =
        columns(&server, &[("lang", "sql"), ("query", "SELECT time, value FROM load WHERE time >= 60000000000")]);
    assert_eq!((&data["start"], &data["end"]), (&json!(60), &json!(540)));
}

pub(crate) const RRD: &str = "<rrd><version>0003</version><step>60</step><lastupdate>1700000160</lastupdate>
<ds><name>in</name><type>GAUGE</type><minimal_heartbeat>120</minimal_heartbeat><min>NaN</min><max>NaN</max>
<last_ds>4</last_ds><value>0</value><unknown_sec>0</unknown_sec></ds>
<rra><cf>AVERAGE</cf><pdp_per_row>1</pdp_per_row><params><xff>0.5</xff></params>
<cdp_prep><ds><primary_value>4</primary_value><secondary_value>0</secondary_value><value>NaN</value>
<unknown_datapoints>0</unknown_datapoints></ds></cdp_prep>
<database><row><v>1</v></row><row><v>2</v></row><row><v>NaN</v></row><row><v>4</v></row></database></rra></rrd>";

#[test]
fn rrdtools_statements_are_drawn() {
    let server = Running::start();
    let imported = server.post("/api/v1/rrd/import?path=a.rrd", RRD);
    assert_eq!(imported.status, 200, "{}", imported.body);
    let statements = "DEF:in=a.rrd:in:AVERAGE\nCDEF:bits=in,8,*\nXPORT:bits:Bits";
    let range = [("lang", "rrd"), ("start", "1699999920"), ("end", "1700000160")];
    let data = columns(&server, &[&[("query", statements)][..], &range].concat());
    assert_eq!(data["times"], json!([1_699_999_980, 1_700_000_040, 1_700_000_100, 1_700_000_160]));
    assert_eq!((&data["series"][0]["name"], &data["series"][0]["values"]), (&json!("Bits"), &json!([8, 16, null, 32])));
    let arguments = [("arg", "DEF:in=a.rrd:in:AVERAGE"), ("arg", "XPORT:in:in")];
    let data = columns(&server, &[&arguments[..], &range].concat());
    assert_eq!(data["series"][0]["values"], json!([1, 2, null, 4]));
    let missing = server.get(&path(&[("lang", "rrd"), ("arg", "DEF:in=b.rrd:in:AVERAGE"), ("arg", "XPORT:in:in")]));
    assert_eq!(missing.status, 404, "{}", missing.body);
    let refused = server.get(&path(&[("lang", "rrd"), ("query", "LINE:in")]));
    assert_eq!(refused.status, 400, "{}", refused.body);
}

#[test]
fn more_points_than_pixels_become_fewer_and_the_answer_says_so() {
    let server = Running::start();
    let lines: Vec<String> =
        (0..3000).map(|second| format!("m v={} {}", second % 100, second * 1_000_000_000_i64)).collect();
    server.write(&lines.join("\n"));
    let sql = [("lang", "sql"), ("query", "SELECT time, v FROM m"), ("width", "200")];
    let data = columns(&server, &sql);
    assert_eq!(data["downsample"], json!({ "method": "minmax", "points": 3000, "interval": 29.99 }));
    assert_eq!((data["times"].as_array().unwrap().len(), data["series"][0]["values"][1].clone()), (200, json!(29)));
    let data = columns(&server, &[&sql[..], &[("downsample", "lttb")]].concat());
    assert_eq!((&data["downsample"]["method"], data["times"].as_array().unwrap().len()), (&json!("lttb"), 200));
    let data = columns(&server, &[&sql[..], &[("downsample", "none")]].concat());
    assert_eq!(data["times"].as_array().unwrap().len(), 3000);
}

#[test]
fn pictures_have_their_headers() {
    let server = load();
    let query = [&[("query", "load"), ("title", "Load <1>"), ("tz", "UTC")][..], &HOUR].concat();
    let svg = server.get(&path(&query));
    assert_eq!((svg.status, svg.header("content-type")), (200, "image/svg+xml"), "{}", svg.body);
    assert!(svg.body.starts_with("<svg xmlns=") && svg.body.contains("Load &lt;1&gt;"), "{}", svg.body);
    assert!(svg.body.contains("load{host=&quot;b&quot;}") && !svg.body.contains("<script"), "{}", svg.body);
    assert_eq!(svg.header("content-security-policy"), "default-src 'none'; style-src 'unsafe-inline'");
    assert_eq!(svg.header("x-content-type-options"), "nosniff");
    assert_eq!(svg.header("cache-control"), "private, no-cache");
    assert_eq!(svg.header("content-disposition"), "inline; filename=\"graph.svg\"");
    let tag = svg.header("etag").to_owned();
    let again = server.send("GET", &path(&query), &[("if-none-match", &tag)], "");
    assert_eq!((again.status, again.body.as_str(), again.header("etag")), (304, "", &*tag));
    let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(&query).finish();
    let kind = [("content-type", "application/x-www-form-urlencoded")];
    assert_eq!(server.send("POST", "/api/v1/graph", &kind, form).body, svg.body);
    for (format, content_type, head) in
        [("png", "image/png", &b"\x89PNG\r\n\x1a\n"[..]), ("webp", "image/webp", b"RIFF")]
    {
        let wanted = path(&[&query[..], &[("format", format), ("scale", "2")]].concat());
        let (status, kind, body) = server.send_for_bytes("GET", &wanted, &[], "");
        assert_eq!((status, kind.as_str()), (200, content_type));
        assert!(body.starts_with(head), "{format}");
        let second = server.get_bytes(&wanted);
        assert!(second == body, "{format}: the same picture again");
    }
    let dark = server.get(&path(&[&query[..], &[("theme", "dark"), ("legend_format", "host {{host}}")]].concat()));
    assert!(dark.body.contains("#141a20") && dark.body.contains(">host b</text>"), "{}", dark.body);
    // A moving range stands still between two steps.
    let moving = server.get(&path(&[("query", "load"), ("start", "now-1d"), ("step", "1d")]));
    assert_eq!(moving.status, 200, "{}", moving.body);
    let nothing = server.get(&path(&[("query", "nothing")]));
    assert!(nothing.body.contains(">no data</text>"), "{}", nothing.body);
}

fn message(answer: &Answer) -> String {
    let parsed: Value = serde_json::from_str(&answer.body).unwrap();
    parsed["error"].as_str().unwrap().to_owned()
}

#[test]
fn what_is_wrong_is_named() {
    let server = load();
    let many: Vec<String> = (0..1001).map(|host| format!("many,host=h{host} v=1 1000000000")).collect();
    server.write(&many.join("\n"));
    for (parameters, status, expected) in [
        (vec![], 400, "\"query\": it is missing"),
        (vec![("query", "sum(")], 400, "invalid parameter \"query\""),
        (vec![("query", "load"), ("format", "gif")], 400, "\"format\": it is one of svg, png, webp, json"),
        (vec![("query", "load"), ("lang", "cobol")], 400, "it is one of promql, sql, influxql, plan, rrd"),
        (vec![("query", "load"), ("width", "9000")], 400, "width is between 120 and 8192 pixels"),
        (vec![("query", "load"), ("width", "4000"), ("height", "4000")], 422, "(pixels_max)"),
        (vec![("query", "load"), ("width", "1000"), ("height", "1000"), ("scale", "4")], 422, "(pixels_max)"),
        (vec![("query", "load"), ("unit", "furlong")], 400, "unit \"furlong\" is not known"),
        (vec![("query", "load"), ("tz", "Moon/Sea")], 400, "there is no time zone \"Moon/Sea\""),
        (vec![("query", "load"), ("start", "5"), ("end", "5")], 400, "\"end\": it is not after the start"),
        (vec![("query", "load"), ("start", "0"), ("end", "100000"), ("step", "1")], 400, "more than 11000 steps"),
        (vec![("query", "load"), ("step", "-1")], 400, "\"step\": it must be positive"),
        (vec![("query", "load"), ("min", "2"), ("max", "1")], 400, "min is less than max"),
        (vec![("query", "load"), ("axis", "log"), ("stacked", "true")], 400, "no logarithmic axis"),
        (vec![("query", "load"), ("threshold", "much")], 400, "\"threshold\""),
        (
            vec![("query", "many_v"), ("start", "1"), ("end", "2")],
            422,
            "1001 series; at most 1000 are drawn (series_max)",
        ),
        (vec![("lang", "sql"), ("query", "SELECT time, host, v FROM many")], 422, "(series_max)"),
        (vec![("lang", "sql"), ("query", "DROP TABLE load")], 400, "a graph only reads"),
        (vec![("lang", "sql"), ("query", "SELECT 1; SELECT 2")], 400, "one statement"),
        (
            vec![("lang", "sql"), ("query", "SELECT host, value FROM load")],
            400,
            "no column of times; its columns: host, value",
        ),
        (vec![("lang", "sql"), ("query", "SELECT time, host FROM load")], 400, "no column of numbers"),
        (vec![("lang", "sql"), ("query", "SELECT nothing FROM load")], 400, "invalid parameter \"query\""),
        (vec![("lang", "influxql"), ("query", "DROP MEASUREMENT load")], 400, "a graph only reads"),
        (vec![("lang", "plan"), ("query", "(->> (")], 400, "invalid parameter \"query\""),
    ] {
        for method in ["GET", "POST"] {
            let answer = server.send(method, &path(&parameters), &[], "");
            assert_eq!(answer.status, status, "{parameters:?}: {}", answer.body);
            assert!(message(&answer).contains(expected), "{parameters:?}: {}", message(&answer));
        }
    }
    let rows = server.get("/sql?query=SELECT%20count(*)%20FROM%20load").body;
    assert!(rows.contains("[18]"), "nothing was changed: {rows}");
}

/// It is a query like others: listed, killed, counted.
#[test]
fn a_graph_under_way_can_be_ended() {
    let server = Arc::new(Running::start());
    let long = "quantile_over_time(0.5, vector(1)[100000s:1s])";
    let wanted = path(&[("query", long), ("start", "0"), ("end", "600000"), ("step", "60"), ("nocache", "1")]);
    let asking = server.clone();
    let thread = std::thread::spawn(move || asking.get(&wanted));
    let id = loop {
        let listed: Value = serde_json::from_str(&server.get("/api/v1/status/active_queries").body).unwrap();
        if let Some(query) = listed["data"].as_array().unwrap().first() {
            assert_eq!((&query["kind"], &query["query"]), (&json!("graph"), &json!(long)));
            break query["id"].as_str().unwrap().to_owned();
        }
        assert!(!thread.is_finished(), "{:?}", thread.join());
    };
    assert_eq!(server.post(&format!("/api/v1/status/active_queries/{id}/kill"), "").status, 200);
    let answer = thread.join().unwrap();
    assert_eq!((answer.status, answer.body.contains(r#""errorType":"canceled""#)), (503, true), "{}", answer.body);
}

#[test]
fn readers_draw_their_databases_alone() {
    let guarded = Guarded::start();
    let reader = guarded.token("reader", r#"{"grants":["read:metrics{env!=\"dev\"}"]}"#);
    for (language, query) in
        [("promql", "m_v"), ("sql", "SELECT time, env, v FROM m"), ("influxql", "SELECT v FROM m GROUP BY env")]
    {
        let parameters = [("lang", language), ("query", query), ("start", "1"), ("end", "2"), ("format", "json")];
        let own = guarded.ask("GET", &path(&[&parameters[..], &[("db", "metrics")]].concat()), Some(&reader), "");
        assert!(
            own.status == 200 && own.body.contains("prod") && !own.body.contains("dev"),
            "{language}: {}",
            own.body
        );
        let other = guarded.ask("GET", &path(&[&parameters[..], &[("db", "other")]].concat()), Some(&reader), "");
        assert!(!other.body.contains("prod"), "{language}: {}", other.body);
        let of_other = guarded.ask("GET", &path(&[&parameters[..], &[("db", "other")]].concat()), None, "");
        assert_eq!(of_other.status, 401, "{}", of_other.body);
    }
}

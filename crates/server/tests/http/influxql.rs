//! InfluxQL over HTTP: the Time Series Benchmark Suite's own requests, word for word, and what InfluxDB's clients rely on.

use std::fmt::Write;

use crate::harness::{Answer, Running};

/// Every query text of the suite for InfluxDB, of hosts and of trucks, each below its name.
const TEXTS: &str = include_str!("tsbs_influx.txt");

/// 2016-01-01T00:00:00Z.
const START_S: u64 = 1_451_606_400;

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn ask(server: &Running, text: &str) -> Answer {
    server.post(&format!("/query?q={}&db=benchmark", encoded(text)), b"")
}

#[track_caller]
fn check(server: &Running, parameters: &str, text: &str, expected: &str) {
    let answer = server.get(&format!("/query?q={}&{parameters}", encoded(text)));
    assert_eq!((answer.status, answer.body.as_str()), (200, format!("{expected}\n").as_str()), "{text}");
}

/// Three days of hosts, trucks and what they report, thinly.
fn benchmark_lines() -> String {
    let mut lines = String::new();
    let fields = [
        "usage_user",
        "usage_system",
        "usage_idle",
        "usage_nice",
        "usage_iowait",
        "usage_irq",
        "usage_softirq",
        "usage_steal",
        "usage_guest",
        "usage_guest_nice",
    ];
    for step in 0..400u64 {
        let time_s = START_S + step * 600;
        for host in [49, 3, 35] {
            let values: Vec<String> = (0..)
                .zip(fields)
                .map(|(place, field)| format!("{field}={}i", (step * 13 + host + place * 29) % 100))
                .collect();
            writeln!(lines, "cpu,hostname=host_{host},region=r{} {} {time_s}000000000", host % 2, values.join(","))
                .unwrap();
        }
        for truck in [35, 2] {
            let tags = format!("name=truck_{truck},fleet=South,driver=Trish,model=G-2000");
            let moved = (step + truck) % 7;
            writeln!(
                lines,
                "readings,{tags} latitude={step},longitude={truck},velocity={moved},fuel_consumption={moved},nominal_fuel_consumption=3 {time_s}000000000"
            )
            .unwrap();
            writeln!(
                lines,
                "diagnostics,{tags} fuel_state=0.{},current_load={},load_capacity=1500,status={}i {time_s}000000000",
                step % 10,
                (step * 7) % 1500,
                moved % 2
            )
            .unwrap();
        }
    }
    lines
}

#[test]
fn the_benchmark_suites_clients_run() {
    let server = Running::start();
    let listed = server.get("/query?q=show%20databases");
    assert_eq!(listed.status, 200);
    assert_eq!(
        listed.body,
        "{\"results\":[{\"statement_id\":0,\"series\":[{\"name\":\"databases\",\"columns\":[\"name\"]}]}]}\n"
    );
    let plain = [("content-type", "text/plain")];
    assert_eq!(server.send("POST", "/query?q=drop+database+benchmark", &plain, b"").status, 200);
    // Its loader makes the database by GET unless it is told not to.
    let making = "/query?consistency=all&q=CREATE+DATABASE+benchmark+WITH+REPLICATION+1";
    assert_eq!(server.get(making).status, 405);
    assert_eq!(server.send("POST", making, &plain, b"").status, 200);
    check(
        &server,
        "epoch=ns",
        "show databases",
        r#"{"results":[{"statement_id":0,"series":[{"name":"databases","columns":["name"],"values":[["benchmark"]]}]}]}"#,
    );
    let written = server.send("POST", "/write?consistency=all&db=benchmark", &plain, benchmark_lines());
    assert_eq!(written.status, 204, "{}", written.body);
    let mut answered = 0;
    for text in TEXTS.trim().split("\n\n") {
        let (name, text) = text.split_once('\n').unwrap();
        let answer = ask(&server, text);
        assert!(answer.status == 200 && !answer.body.contains("error"), "{name}: {}", answer.body);
        // What asks for what these few rows do not have is answered too.
        answered += usize::from(answer.body.contains("series"));
        let chunked = server.post(&format!("/query?q={}&db=benchmark&chunked=true&chunk_size=100", encoded(text)), b"");
        assert_eq!(chunked.status, 200, "{name}");
    }
    assert!(answered >= 20, "only {answered} had series");
    let last = ask(&server, "SELECT * from cpu group by \"hostname\" order by time desc limit 1");
    for host in ["host_3", "host_35", "host_49"] {
        assert!(last.body.contains(&format!(r#""tags":{{"hostname":"{host}"}}"#)), "{}", last.body);
    }
    assert_eq!(last.body.matches("2016-01-03T18:30:00Z").count(), 3, "{}", last.body);
    assert_eq!(server.send("POST", "/query?q=drop+database+benchmark", &plain, b"").status, 200);
    assert!(!server.get("/query?q=show%20databases").body.contains("benchmark"));
}

#[test]
fn parameters_say_how_an_answer_is_written() {
    let server = Running::start();
    server.post("/write?db=d", "m,h=a v=1.5,s=\"x\" 0\nm,h=b v=2 1500000000\nm,h=b v=3 2000000000");
    let series = |values: &str| {
        format!(
            r#"{{"results":[{{"statement_id":0,"series":[{{"name":"m","columns":["time","v"],"values":[{values}]}}]}}]}}"#
        )
    };
    let text = "select v from m";
    check(
        &server,
        "db=d",
        text,
        &series(r#"["1970-01-01T00:00:00Z",1.5],["1970-01-01T00:00:01.5Z",2],["1970-01-01T00:00:02Z",3]"#),
    );
    check(&server, "db=d&epoch=ms", text, &series("[0,1.5],[1500,2],[2000,3]"));
    check(&server, "db=d&epoch=ns&params=%7B%22h%22%3A%22a%22%7D", "select v from m where h = $h", &series("[0,1.5]"));
    let pretty = server.get(&format!("/query?db=d&epoch=s&pretty=true&q={}", encoded("select v from m limit 1")));
    assert!(
        pretty.body.starts_with("{\n    \"results\": [\n        {\n            \"statement_id\": 0,"),
        "{}",
        pretty.body
    );
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let posted = server.send("POST", "/query", &form, format!("db=d&epoch=s&q={}", encoded(text)));
    assert_eq!(posted.body.trim_end(), series("[0,1.5],[1,2],[2,3]"));
    let file = "--x\r\nContent-Disposition: form-data; name=\"q\"; filename=\"q.txt\"\r\n\r\nselect v from m limit 1\r\n--x--\r\n";
    let posted =
        server.send("POST", "/query?db=d&epoch=s", &[("content-type", "multipart/form-data; boundary=x")], file);
    assert_eq!(posted.body.trim_end(), series("[0,1.5]"));
    let chunked = server.get(&format!("/query?db=d&epoch=s&chunked=true&chunk_size=2&q={}", encoded(text)));
    let pieces: Vec<&str> = chunked.body.lines().collect();
    assert_eq!(pieces.len(), 2, "{}", chunked.body);
    assert!(pieces[0].ends_with(r#""values":[[0,1.5],[1,2]],"partial":true}],"partial":true}]}"#), "{}", pieces[0]);
    let csv = server.send(
        "GET",
        &format!("/query?db=d&q={}", encoded("select v, s from m group by h")),
        &[("accept", "application/csv")],
        b"",
    );
    assert_eq!(csv.body, "name,tags,time,v,s\nm,h=a,0,1.5,x\nm,h=b,1500000000,2,\nm,h=b,2000000000,3,\n");
    assert_eq!((csv.header("content-type"), csv.header("x-influxdb-version").is_empty()), ("text/csv", false));
}

#[test]
fn errors_stand_where_clients_look_for_them() {
    let server = Running::start();
    server.post("/write?db=d", "m v=1 0");
    let missing = server.get("/query?db=d");
    assert_eq!((missing.status, missing.body.as_str()), (400, r#"{"error":"missing required parameter \"q\""}"#));
    let unreadable = server.get("/query?db=d&q=selec");
    assert_eq!(unreadable.status, 400);
    assert!(
        unreadable.body.starts_with(r#"{"error":"error parsing query: found selec, expected SELECT"#),
        "{}",
        unreadable.body
    );
    for (parameters, text, error) in [
        ("db=nosuch", "select v from m", "database not found: nosuch"),
        ("epoch=s", "select v from m", "database name required"),
        ("db=d", "select foo(v) from m", "undefined function foo()"),
        ("db=d", "kill query 7", "no such query id: 7"),
        ("db=d", "drop shard 7", "DROP SHARD is not supported: there are no such things here"),
    ] {
        let answer = server.post(&format!("/query?{parameters}&q={}", encoded(text)), b"");
        let expected = format!("{{\"results\":[{{\"statement_id\":0,\"error\":\"{error}\"}}]}}\n");
        assert_eq!((answer.status, answer.body), (200, expected), "{text}");
    }
    for text in ["create database x", "show databases; drop database d", "select v into w from m"] {
        let refused = server.get(&format!("/query?db=d&q={}", encoded(text)));
        assert!(refused.status == 405 && refused.body.contains("send it by POST"), "{text}: {}", refused.body);
    }
    assert!(!server.get("/query?q=show+databases").body.contains(r#"["x"]"#));
    let several = server
        .post(&format!("/query?db=d&q={}", encoded("select v from m; select foo(v) from m; show databases")), b"");
    assert!(several.body.contains(r#"{"statement_id":2,"error":"not executed"}"#), "{}", several.body);
}

#[test]
fn a_database_is_dropped_by_its_path() {
    let server = Running::start();
    server.post("/write?db=d", "m v=1 0");
    let path = "/api/v1/admin/databases/d";
    assert_eq!(server.send("DELETE", path, &[], b"").status, 204);
    assert_eq!(server.send("DELETE", path, &[], b"").status, 404);
    assert!(!server.get("/api/v1/admin/databases").body.contains("\"d\""));
}

#[test]
fn binary_values_of_questdb_are_refused_with_words() {
    let server = Running::start();
    let line = [&b"t,host=a v==\x10"[..], &1.5f64.to_le_bytes(), b" 1\nt,host=b v=2 2\n"].concat();
    let answer = server.post("/write?db=d", &line);
    assert!(answer.status == 400 && answer.body.contains("protocol_version=1"), "{} {}", answer.status, answer.body);
}

#[test]
fn answers_are_message_pack_where_it_is_accepted() {
    let server = Running::start();
    assert_eq!(server.post("/write?db=d", b"m v=1.5 1000000000\n").status, 204);
    let path = format!("/query?db=d&epoch=s&q={}", encoded("SELECT v FROM m"));
    let (status, kind, body) = server.send_for_bytes("GET", &path, &[("accept", "application/x-msgpack")], b"");
    assert_eq!((status, kind.as_str()), (200, "application/x-msgpack"));
    let expected = b"\x81\xa7results\x91\x82\xacstatement_id\x00\xa6series\x91\x83\xa4name\xa1m\xa7columns\x92\xa4time\xa1v\xa6values\x91\x92\x01\xcb\x3f\xf8\0\0\0\0\0\0";
    assert_eq!(body, expected);
}

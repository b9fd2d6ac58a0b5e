//! What the Time Series Benchmark Suite asks by PromQL, in its words.

use std::fmt::Write;

use crate::harness::Running;

const FIELDS: [&str; 10] = [
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
const HOSTS: [&str; 8] = ["host_35", "host_49", "host_3", "host_39", "host_75", "host_15", "host_21", "host_11"];
const START_S: i64 = 1_451_606_400;

/// Thirteen hours of a minute's interval, of the eight hosts and of one more.
fn start(change: impl FnOnce(&mut thalweg_server::ServerSettings)) -> Running {
    let server = Running::start_with(change);
    for minute in 0..13 * 60 {
        let mut lines = String::new();
        for (place, host) in HOSTS.iter().chain(&["host_0"]).enumerate() {
            let fields: Vec<String> =
                FIELDS.iter().enumerate().map(|(field, name)| format!("{name}={}", field * 10 + place)).collect();
            let time_s = START_S + minute * 60;
            writeln!(lines, "cpu,hostname={host},region=eu {} {time_s}000000000", fields.join(",")).unwrap();
        }
        server.write(&lines);
    }
    server
}

/// A selector of the first so many fields, and of so many hosts (0: all).
fn selector(fields: usize, hosts: usize) -> String {
    let hosts = match &HOSTS[..hosts] {
        [] => String::new(),
        [one] => format!("hostname='{one}'"),
        several => format!("hostname=~'{}'", several.join("|")),
    };
    if fields == 1 {
        return format!("cpu_{}{{{hosts}}}", FIELDS[0]);
    }
    let comma = if hosts.is_empty() { "" } else { ", " };
    format!("{{__name__=~'cpu_({})'{comma}{hosts}}}", FIELDS[..fields].join("|"))
}

/// Each kind of query: its name, fields, hosts, hours and step; with hosts 0 it groups by host, too.
const KINDS: [(&str, usize, usize, i64, i64); 11] = [
    ("single-groupby-1-1-1", 1, 1, 1, 60),
    ("single-groupby-1-8-1", 1, 8, 1, 60),
    ("single-groupby-5-1-1", 5, 1, 1, 60),
    ("single-groupby-5-8-1", 5, 8, 1, 60),
    ("single-groupby-1-1-12", 1, 1, 12, 60),
    ("single-groupby-5-1-12", 5, 1, 12, 60),
    ("cpu-max-all-1", 10, 1, 8, 3600),
    ("cpu-max-all-8", 10, 8, 8, 3600),
    ("double-groupby-1", 1, 0, 12, 3600),
    ("double-groupby-5", 5, 0, 12, 3600),
    ("double-groupby-all", 10, 0, 12, 3600),
];

/// The path of a query, and for how many rows it asks.
fn path(fields: usize, hosts: usize, hours: i64, step_s: i64) -> (String, usize) {
    let (selector, window) = (selector(fields, hosts), if step_s == 60 { "1m" } else { "1h" });
    let text = if hosts == 0 {
        format!("avg(avg_over_time({selector}[{window}])) by (__name__, hostname)")
    } else {
        format!("max(max_over_time({selector}[{window}])) by (__name__)")
    };
    let (start, end) = (START_S + 1850, START_S + 1850 + hours * 3600);
    let query: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    let rows = fields * if hosts == 0 { HOSTS.len() + 1 } else { 1 };
    (format!("/api/v1/query_range?end={end}&query={query}&start={start}&step={step_s}"), rows)
}

/// The rows of an answer, each with its labels and values.
fn rows(body: &str) -> Vec<(serde_json::Value, Vec<String>)> {
    let answer: serde_json::Value = serde_json::from_str(body).unwrap();
    let row = |row: &serde_json::Value| {
        let values = row["values"].as_array().unwrap().iter().map(|pair| pair[1].as_str().unwrap().to_owned());
        (row["metric"].clone(), values.collect())
    };
    answer["data"]["result"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn each_kind_of_query_has_a_row_for_each_metric() {
    let server = start(|_| {});
    for (name, fields, hosts, hours, step_s) in KINDS {
        let (path, wanted) = path(fields, hosts, hours, step_s);
        let answer = server.get(&format!("{path}&delayed_name_removal=true"));
        assert_eq!(answer.status, 200, "{name}: {}", answer.body);
        let rows = rows(&answer.body);
        assert_eq!(rows.len(), wanted, "{name}: {}", answer.body);
        for (labels, values) in rows {
            let metric = labels["__name__"].as_str().unwrap().strip_prefix("cpu_").unwrap();
            let field = FIELDS.iter().position(|field| *field == metric).unwrap();
            let host = match labels["hostname"].as_str() {
                Some(host) => HOSTS.iter().position(|known| *known == host).unwrap_or(HOSTS.len()),
                None => hosts - 1,
            };
            assert_eq!(values, vec![(field * 10 + host).to_string(); (hours * 3600 / step_s + 1) as usize], "{name}");
        }
    }
}

#[test]
fn names_are_dropped_as_server_and_request_say() {
    let (several, rows_wanted) = path(5, 1, 1, 60);
    let (one, _) = path(1, 1, 1, 60);
    let check = |server: &Running, parameter: &str, status: u16, names: usize| {
        let answer = server.get(&format!("{several}{parameter}"));
        assert_eq!(answer.status, status, "{parameter}: {}", answer.body);
        let answer = server.get(&format!("{one}{parameter}"));
        let named = rows(&answer.body).iter().filter(|(labels, _)| labels.get("__name__").is_some()).count();
        assert_eq!((answer.status, named), (200, names), "{parameter}: {}", answer.body);
    };
    let server = start(|_| {});
    check(&server, "", 422, 0);
    check(&server, "&delayed_name_removal=true", 200, 1);
    check(&server, "&delayed_name_removal=always", 422, 0);
    assert_eq!(server.get(&format!("{several}&delayed_name_removal=maybe")).status, 400);
    drop(server);
    let folder = std::env::temp_dir().join(format!("thalweg-names-{}", std::process::id()));
    let mut options = db::DbOptions::new(&folder);
    options.name_removal = promql::NameRemoval::Delayed;
    let server = Running::start_on(options, |_| {});
    for field in &FIELDS[..5] {
        server.write(&format!("cpu,hostname=host_35 {field}=1 {START_S}000000000\n"));
    }
    let path = several.replace(&format!("start={}", START_S + 1850), &format!("start={START_S}"));
    assert_eq!(rows(&server.get(&path).body).len(), rows_wanted);
    assert_eq!(server.get(&format!("{path}&delayed_name_removal=false")).status, 422);
}

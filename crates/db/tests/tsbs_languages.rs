//! The query types of the Time Series Benchmark Suite in the texts of its clients, on data like its own: SQL, `InfluxQL` and `PromQL` give the same
//! answers.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod scratch;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use promql::NameRemoval;
use query::Budget;
use sql::{ClientContext, Manner};
use thalweg_db::{Db, RangeQuery};

const SECOND_NS: i64 = 1_000_000_000;
/// 2016-01-01T00:00:00Z.
const START_S: i64 = 1_451_606_400;
const STEP_S: i64 = 10;
const HOURS: i64 = 3;
const HOSTS: usize = 10;
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
/// An answer: time in nanoseconds, host (empty for all together) and field, with the value.
type Points = BTreeMap<(i64, String, String), f64>;

/// Walks of whole numbers between 0 and 100, as the suite makes them.
fn lines() -> String {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % bound) as i64
    };
    let mut values = [[50i64; FIELDS.len()]; HOSTS];
    let mut lines = String::new();
    for step in 0..HOURS * 3600 / STEP_S {
        for (host, values) in values.iter_mut().enumerate() {
            write!(lines, "cpu,hostname=host_{host},region=eu-{},os=Ubuntu16.10,team=SF ", host % 3).unwrap();
            for (place, (name, value)) in FIELDS.iter().zip(values).enumerate() {
                *value = (*value + below(9) - 4).clamp(0, 100);
                write!(lines, "{}{name}={value}i", if place == 0 { "" } else { "," }).unwrap();
            }
            writeln!(lines, " {}", (START_S + step * STEP_S) * SECOND_NS).unwrap();
        }
    }
    lines
}

/// A cell of either.
enum Cell {
    Time(i64),
    Number(f64),
    Text(String),
    Null,
}

/// A table of either language as points: aggregates stand in the order of `fields`, columns of `*` have the fields' names.
fn add_rows(points: &mut Points, tags: &[(String, String)], columns: &[String], rows: Vec<Vec<Cell>>, fields: &[&str]) {
    for row in rows {
        let (mut time_ns, mut numbers) = (0, 0);
        let mut host = tags.iter().find(|(name, _)| name == "hostname").map_or(String::new(), |(_, host)| host.clone());
        let mut found = Vec::new();
        for (name, cell) in columns.iter().zip(row) {
            match cell {
                Cell::Time(ns) => time_ns = ns,
                Cell::Text(text) if name == "hostname" => host = text,
                Cell::Text(_) => {}
                cell => {
                    let is_field = FIELDS.contains(&name.as_str());
                    let field = if is_field { name.clone() } else { fields[numbers].to_owned() };
                    numbers += 1;
                    if let Cell::Number(number) = cell {
                        found.push((field, number));
                    }
                }
            }
        }
        points.extend(found.into_iter().map(|(field, number)| ((time_ns, host.clone(), field), number)));
    }
}

fn of_sql(db: &Db, text: &str, fields: &[&str]) -> Points {
    let parsed = sql::parse(text).unwrap();
    let session = ClientContext { manner: Manner::QuestDb, ..ClientContext::new("default", START_S * SECOND_NS) };
    let answer = db
        .sql(&parsed, 0, &session, &Arc::new(Budget::new(10_000_000)))
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    let Some(relation) = answer.relation() else { panic!("{text}: no rows") };
    let cell = |value: sql::Value| match value {
        sql::Value::Timestamp(ns) => Cell::Time(ns),
        sql::Value::Int(number) => Cell::Number(number as f64),
        sql::Value::Float(number) => Cell::Number(number),
        sql::Value::Null => Cell::Null,
        other => Cell::Text(other.to_string()),
    };
    let columns: Vec<String> = relation.columns.iter().map(|column| column.name.clone()).collect();
    let rows = relation.rows.into_iter().map(|row| row.into_iter().map(cell).collect()).collect();
    let mut points = Points::new();
    add_rows(&mut points, &[], &columns, rows, fields);
    points
}

fn of_influxql(db: &Db, text: &str, fields: &[&str]) -> Points {
    let query = influxql::Query::parse(text, &BTreeMap::new()).unwrap();
    let session = influxql::RequestContext { database: Some("default"), read_only: false };
    let answer = db.run_influxql(&query, 0, &session, &Budget::new(10_000_000));
    let answer = answer.unwrap_or_else(|error| panic!("{text}: {error}"));
    let cell = |value: influxql::Value| match value {
        influxql::Value::Timestamp(ns) => Cell::Time(ns),
        influxql::Value::Int(number) => Cell::Number(number as f64),
        influxql::Value::Float(number) => Cell::Number(number),
        influxql::Value::Text(text) => Cell::Text(text.to_string()),
        _ => Cell::Null,
    };
    let mut points = Points::new();
    for series in answer.series {
        let rows = series.rows.values().iter().cloned().map(|row| row.into_iter().map(cell).collect()).collect();
        add_rows(&mut points, &series.tags, &series.columns, rows, fields);
    }
    points
}

/// A window at a moment holds what is not older than its width: asked at the last row of each bin it holds the bin.
fn of_promql(db: &Db, text: &str, (from_s, to_s): (i64, i64), width_s: i64) -> Points {
    let into_bin_s = width_s - STEP_S;
    let query = RangeQuery {
        text: text.to_owned(),
        start_ms: (from_s + into_bin_s) * 1000,
        end_ms: (to_s - STEP_S) * 1000,
        step_ms: width_s * 1000,
        lookback_ms: None,
        name_removal: Some(NameRemoval::Delayed),
        budget: db.budget(10_000_000),
        may_cache: false,
    };
    let answer = db.range("default", &query).unwrap_or_else(|error| panic!("{text}: {error}"));
    let promql::ResultValue::Matrix(series) = answer.value else { panic!("{text}: no matrix") };
    let mut points = Points::new();
    for (labels, samples) in series {
        let label = |name| labels.get(name).unwrap_or_default().to_owned();
        let field = label("__name__").trim_start_matches("cpu_").to_owned();
        for (time_ms, value) in &samples.floats {
            let bin_ns = (time_ms / 1000 - into_bin_s) * SECOND_NS;
            points.insert((bin_ns, label("hostname"), field.clone()), *value);
        }
    }
    points
}

/// A type of queries: fields, hosts (none: all), the hours' fraction that is asked for, width of bins.
struct Type {
    name: &'static str,
    fields: usize,
    hosts: usize,
    seconds: (i64, i64),
    width_s: i64,
    by_host: bool,
}

const TYPES: &[Type] = &[
    Type { name: "single-groupby-1-1-1", fields: 1, hosts: 1, seconds: (3600, 7200), width_s: 60, by_host: false },
    Type { name: "single-groupby-1-8-1", fields: 1, hosts: 8, seconds: (3600, 7200), width_s: 60, by_host: false },
    Type { name: "single-groupby-5-1-1", fields: 5, hosts: 1, seconds: (1800, 5400), width_s: 60, by_host: false },
    Type { name: "single-groupby-5-8-1", fields: 5, hosts: 8, seconds: (1800, 5400), width_s: 60, by_host: false },
    Type { name: "single-groupby-1-1-12", fields: 1, hosts: 1, seconds: (0, 10_800), width_s: 60, by_host: false },
    Type { name: "single-groupby-5-1-12", fields: 5, hosts: 1, seconds: (0, 10_800), width_s: 60, by_host: false },
    Type { name: "cpu-max-all-1", fields: 10, hosts: 1, seconds: (0, 10_800), width_s: 3600, by_host: false },
    Type { name: "cpu-max-all-8", fields: 10, hosts: 8, seconds: (3600, 10_800), width_s: 3600, by_host: false },
    Type { name: "double-groupby-1", fields: 1, hosts: 0, seconds: (0, 10_800), width_s: 3600, by_host: true },
    Type { name: "double-groupby-5", fields: 5, hosts: 0, seconds: (0, 7200), width_s: 3600, by_host: true },
    Type { name: "double-groupby-all", fields: 10, hosts: 0, seconds: (0, 10_800), width_s: 3600, by_host: true },
];

fn time_text(seconds: i64) -> String {
    format!("2016-01-01T{:02}:{:02}:00Z", seconds / 3600, seconds / 60 % 60)
}

impl Type {
    /// The texts of SQL, `InfluxQL` and `PromQL`.
    fn texts(&self) -> [String; 3] {
        let fields = &FIELDS[..self.fields];
        let hosts: Vec<String> = (0..self.hosts).map(|host| format!("host_{host}")).collect();
        let (from, to) = (time_text(self.seconds.0), time_text(self.seconds.1));
        let unit = if self.width_s == 60 { "1m" } else { "1h" };
        let joined = |by: &dyn Fn(&str) -> String, with: &str| {
            fields.iter().map(|field| by(field)).collect::<Vec<_>>().join(with)
        };
        let (ours, influx) = if self.by_host { ("avg", "mean") } else { ("max", "max") };
        let in_hosts = hosts.iter().map(|host| format!("'{host}'")).collect::<Vec<_>>().join(", ");
        let of_hosts = if hosts.is_empty() { String::new() } else { format!("hostname IN ({in_hosts}) AND ") };
        let sql = format!(
            "SELECT timestamp, {}{} FROM cpu WHERE {of_hosts}timestamp >= '{from}' AND timestamp < '{to}' SAMPLE BY {unit}{}",
            if self.by_host { "hostname, " } else { "" },
            joined(&|field| format!("{ours}({field}) AS {ours}_{field}"), ", "),
            if self.by_host { " GROUP BY timestamp, hostname" } else { "" }
        );
        let any_host = hosts.iter().map(|host| format!("hostname = '{host}'")).collect::<Vec<_>>().join(" or ");
        let of_hosts = if hosts.is_empty() { String::new() } else { format!("({any_host}) and ") };
        let influxql = format!(
            "SELECT {} from cpu where {of_hosts}time >= '{from}' and time < '{to}' group by time({unit}){}",
            joined(&|field| format!("{influx}({field})"), ", "),
            if self.by_host { ",hostname" } else { "" }
        );
        let of_hosts = if hosts.is_empty() { String::new() } else { format!(", hostname=~'{}'", hosts.join("|")) };
        let by = if self.by_host { "__name__, hostname" } else { "__name__" };
        let promql = format!(
            "{ours}({ours}_over_time({{__name__=~'cpu_({})'{of_hosts}}}[{unit}])) by ({by})",
            joined(&str::to_owned, "|")
        );
        [sql, influxql, promql]
    }
}

fn assert_same(name: &str, ours: &Points, theirs: &Points) {
    let keys = |points: &Points| points.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(keys(ours), keys(theirs), "{name}");
    for (key, ours) in ours {
        let theirs = theirs[key];
        assert!((ours - theirs).abs() <= 1e-9 * ours.abs().max(1.0), "{name} {key:?}: {ours} {theirs}");
    }
}

#[test]
fn three_languages_give_the_same_answers() {
    let (db, _folder) = scratch::open("tsbs-languages");
    let (_, errors) = db.write_lines("default", lines().as_bytes()).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    for settled in [false, true] {
        if settled {
            db.compact_all().unwrap();
        }
        for queries in TYPES {
            let (fields, [sql, influxql, promql]) = (&FIELDS[..queries.fields], queries.texts());
            let bins = ((queries.seconds.1 - queries.seconds.0) / queries.width_s) as usize;
            let found = of_sql(&db, &sql, fields);
            assert_eq!(found.len(), bins * fields.len() * if queries.by_host { HOSTS } else { 1 }, "{sql}");
            assert_same(queries.name, &found, &of_influxql(&db, &influxql, fields));
            let range = (START_S + queries.seconds.0, START_S + queries.seconds.1);
            assert_same(queries.name, &found, &of_promql(&db, &promql, range, queries.width_s));
        }
        rows_are_the_same(&db);
    }
}

/// What the suite does not ask in `PromQL`.
fn rows_are_the_same(db: &Db) {
    let (from, to) = (time_text(1800), time_text(9000));
    let cases = [
        (
            "high-cpu-1",
            format!(
                "SELECT * FROM cpu WHERE usage_user > 60.0 AND hostname IN ('host_4') AND timestamp >= '{from}' AND timestamp < '{to}'"
            ),
            format!(
                "SELECT * from cpu where usage_user > 60.0 and (hostname = 'host_4') and time >= '{from}' and time < '{to}'"
            ),
        ),
        (
            "high-cpu-all",
            format!("SELECT * FROM cpu WHERE usage_user > 60.0 AND timestamp >= '{from}' AND timestamp < '{to}'"),
            format!("SELECT * from cpu where usage_user > 60.0  and time >= '{from}' and time < '{to}'"),
        ),
        (
            "lastpoint",
            "SELECT * FROM cpu latest by hostname".to_owned(),
            "SELECT * from cpu group by \"hostname\" order by time desc limit 1".to_owned(),
        ),
        (
            "groupby-orderby-limit",
            format!(
                "SELECT timestamp AS minute, max(usage_user) FROM cpu WHERE timestamp < '{to}' SAMPLE BY 1m LIMIT 5"
            ),
            format!("SELECT max(usage_user) from cpu WHERE time < '{to}' group by time(1m) limit 5"),
        ),
    ];
    for (name, sql, influxql) in cases {
        let found = of_sql(db, &sql, &FIELDS[..1]);
        assert!(!found.is_empty(), "{sql}");
        assert_same(name, &found, &of_influxql(db, &influxql, &FIELDS[..1]));
    }
}

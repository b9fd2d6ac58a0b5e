//! SQL beyond the built-in layer, by DataFusion: what it answers, what of it becomes part of scans, and that its limits are the query's.
#![cfg(feature = "sql-datafusion")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod scratch;

use std::fmt::Write;
use std::sync::Arc;

use query::{Budget, QueryError, Stop};
use scratch::Folder;
use sql::{ClientContext, Manner, Parsed, Relation, SqlError, Value};
use thalweg_db::Db;

const SECOND_NS: i64 = 1_000_000_000;
/// 2016-01-01T00:00:00Z.
const START_NS: i64 = 1_451_606_400 * SECOND_NS;

/// Three hosts, a row a minute for ten minutes; `b` is missing in every other row of `host_2`; `Big` is unsigned; and a table of limits, one of which
/// has no partner.
fn open(name: &str) -> (Db, Folder) {
    let (db, folder) = scratch::open(&format!("sql-beyond-{name}"));
    let mut lines = String::new();
    for step in 0..10i64 {
        let time_ns = START_NS + step * 60 * SECOND_NS;
        for host in 0..3i64 {
            let b = if host != 2 || step % 2 == 0 { format!(",b={}", step * 2 % 7) } else { String::new() };
            let region = if host == 2 { "south" } else { "north" };
            writeln!(
                lines,
                "cpu,host=host_{host},region={region} a={}{b},n={}i,ok={},s=\"v{step}\",Big={}u {time_ns}",
                step * (host + 1),
                step + host,
                step % 2 == 0,
                step
            )
            .unwrap();
        }
    }
    for (region, most) in [("north", 5), ("west", 9)] {
        writeln!(lines, "limits,region={region} most={most} {START_NS}").unwrap();
    }
    let (_, errors) = db.write_lines("default", lines.as_bytes()).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    (db, folder)
}

fn session(manner: Manner) -> ClientContext {
    let parameters = vec![Value::text("host_1"), Value::Int(4)];
    ClientContext { manner, parameters, ..ClientContext::new("default", START_NS + 86_400 * SECOND_NS) }
}

fn parsed(text: &str) -> Parsed {
    sql::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(10_000_000))
}

/// A table as text: names, then rows.
fn shown(relation: &Relation) -> Vec<String> {
    let names: Vec<&str> = relation.columns.iter().map(|column| column.name.as_str()).collect();
    let cell = |value: &Value| if value.is_null() { "NULL".to_owned() } else { value.to_string() };
    let rows = relation.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|"));
    std::iter::once(names.join("|")).chain(rows).collect()
}

/// Statements that the built-in layer does not have, and what they give.
const BEYOND: &[(&str, &[&str])] = &[
    (
        "SELECT host, a, rank() OVER (PARTITION BY region ORDER BY a DESC, host) FROM cpu WHERE time = '2016-01-01T00:03:00Z' ORDER BY host",
        &["host|a|rank", "host_0|3|2", "host_1|6|1", "host_2|9|1"],
    ),
    (
        "SELECT time, a - lag(a) OVER (ORDER BY time) AS step FROM cpu WHERE host = $1 AND n < $2 ORDER BY time",
        &["time|step", "2016-01-01 00:00:00|NULL", "2016-01-01 00:01:00|2", "2016-01-01 00:02:00|2"],
    ),
    (
        "WITH RECURSIVE counted AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM counted WHERE i < 3) SELECT sum(i) FROM counted",
        &["sum", "6"],
    ),
    (
        "SELECT region, count(*) FROM cpu GROUP BY GROUPING SETS ((region), ()) ORDER BY region NULLS LAST",
        &["region|count", "north|20", "south|10", "NULL|30"],
    ),
    ("SELECT row_number() OVER () + 1 AS two", &["two", "2"]),
    (
        "SELECT \"Big\", ntile(2) OVER (ORDER BY \"Big\") AS half FROM cpu WHERE host = 'host_0' ORDER BY 1 DESC LIMIT 1",
        &["Big|half", "9|2"],
    ),
    (
        "SELECT array_agg(host ORDER BY host) AS hosts FROM cpu WHERE time < '2016-01-01T00:01:00Z'",
        &["hosts", "{host_0,host_1,host_2}"],
    ),
];

#[test]
fn statements_beyond_the_built_in_layer_are_answered() {
    let (db, _folder) = open("answers");
    for (text, expected) in BEYOND {
        let (parsed, budget) = (parsed(text), budget());
        let answer = db.sql(&parsed, 0, &session(Manner::Postgres), &budget);
        let answer = answer.unwrap_or_else(|error| panic!("{text}: {error}"));
        let relation = answer.relation().unwrap_or_else(|| panic!("{text}"));
        assert_eq!(shown(&relation), *expected, "{text}");
        let described = db.describe_sql(&parsed, 0, &session(Manner::Postgres), &budget).unwrap();
        assert_eq!(described, relation.columns, "{text}");
        // What is still held are the answer's cells.
        let cells = (relation.rows.len() * relation.columns.len()) as u64;
        assert_eq!(budget.samples(), cells, "{text}");
    }
}

/// Statements that both layers have.
const BOTH: &[&str] = &[
    "SELECT * FROM cpu ORDER BY time, host",
    "SELECT host, b FROM cpu ORDER BY b, host, time",
    "SELECT host, b FROM cpu ORDER BY b DESC, host, time",
    "SELECT count(*), count(b), sum(a), avg(b), min(s), max(n), sum(n) FROM cpu",
    "SELECT region, max(a) AS most FROM cpu WHERE host <> 'host_0' AND time >= '2016-01-01T00:02:00Z' GROUP BY region ORDER BY region",
    "SELECT date_trunc('minute', time) AS minute, sum(n) AS n FROM cpu WHERE host IN ('host_0', 'host_2') GROUP BY minute ORDER BY minute",
    "SELECT date_bin('5 minutes', time) AS bin, region, avg(a) AS a FROM cpu GROUP BY bin, region ORDER BY bin, region",
    "SELECT c.host, c.a, l.most FROM cpu c LEFT JOIN limits l ON c.region = l.region WHERE c.time = '2016-01-01T00:05:00Z' ORDER BY c.host",
    "SELECT l.region, count(c.a) AS n FROM cpu c RIGHT JOIN limits l ON c.region = l.region GROUP BY l.region ORDER BY l.region",
    "SELECT DISTINCT region FROM cpu WHERE host LIKE 'host\\__' ORDER BY region",
    "SELECT n / 2 AS half, n % 3 AS third, -a AS less FROM cpu WHERE host = $1 AND n > $2 ORDER BY time",
    "SELECT host FROM cpu WHERE a > 5 UNION SELECT region FROM limits ORDER BY 1",
    "SELECT host, count(*) FROM cpu WHERE b IS NULL GROUP BY host HAVING count(*) > 2",
    "SELECT CASE WHEN a > 4 THEN 'high' WHEN a > 2 THEN 'low' END AS what, ok, upper(s) AS s FROM cpu WHERE NOT ok ORDER BY time, host",
    "SELECT host, max(time) AS last FROM cpu WHERE time BETWEEN '2016-01-01T00:01:00Z' AND '2016-01-01T00:04:00Z' GROUP BY host ORDER BY host",
    "SELECT stddev(a) AS s, median(a) AS m FROM cpu WHERE region = 'south'",
    "SELECT count(*) FROM cpu WHERE time > now() - INTERVAL '23 hours 55 minutes'",
    "SELECT host FROM cpu WHERE host = '' OR region = 'south' GROUP BY host",
    "SELECT sum(x) FROM (SELECT max(a) AS x FROM cpu GROUP BY host) AS t",
    "SELECT host, a FROM cpu WHERE a = (SELECT max(a) FROM cpu) AND n IN (SELECT max(n) FROM cpu)",
];

#[test]
fn both_layers_give_the_same_answers() {
    let (db, _folder) = open("both");
    for text in BOTH {
        let parsed = parsed(text);
        let session = session(Manner::Postgres);
        let built_in = db.sql(&parsed, 0, &session, &budget()).unwrap();
        let built_in = built_in.relation().unwrap_or_else(|| panic!("{text}"));
        let beyond = db.sql_beyond(&parsed, 0, &session, &budget()).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(shown(&beyond), shown(&built_in), "{text}");
        let types =
            |relation: &Relation| relation.columns.iter().map(|column| column.sql_type.name()).collect::<Vec<_>>();
        assert_eq!(types(&beyond), types(&built_in), "{text}");
    }
}

#[test]
fn the_time_is_named_as_the_asker_names_it() {
    let (db, _folder) = open("names");
    let text =
        "SELECT timestamp, rank() OVER (ORDER BY timestamp) AS r FROM cpu WHERE host = 'host_0' ORDER BY r LIMIT 1";
    let beyond = db.sql_beyond(&parsed(text), 0, &session(Manner::QuestDb), &budget()).unwrap();
    assert_eq!(shown(&beyond), ["timestamp|r", "2016-01-01 00:00:00|1"]);
}

#[test]
fn scans_are_narrowed() {
    let (db, _folder) = open("narrowed");
    let cases: [(&str, &[&str]); 4] = [
        (
            "SELECT a FROM cpu WHERE host = 'host_1' AND time >= '2016-01-01T00:03:00Z' AND time < '2016-01-01T00:05:00Z'",
            &[
                "(rows-of \"cpu\" '(\"a\"))",
                "(tag \"host\" \"host_1\")",
                "(range 1451606580000000000 1451606700000000000)",
            ],
        ),
        // Without any field, rows are told by one; with a limit, no more of them are read.
        ("SELECT host FROM cpu LIMIT 2", &["(rows-of \"cpu\" '(\"a\"))", "(limit 2)"]),
        ("SELECT a FROM cpu WHERE a > 3 LIMIT 2", &["(rows-of \"cpu\" '(\"a\"))"]),
        (
            "SELECT c.b, l.most FROM cpu c JOIN limits l ON c.region = l.region WHERE l.region <> 'west'",
            &["(rows-of \"cpu\" '(\"b\"))", "(rows-of \"limits\" '(\"most\"))", "(tag-not \"region\" \"west\")"],
        ),
    ];
    for (text, parts) in cases {
        let (_, plans) = db.sql_beyond_told(&parsed(text), 0, &session(Manner::Postgres), &budget()).unwrap();
        let plans: Vec<String> = plans.iter().map(ToString::to_string).collect();
        for part in parts {
            assert!(plans.iter().any(|plan| plan.contains(part)), "{text}: {part} in {plans:?}");
        }
        let is_limited = plans.iter().any(|plan| plan.contains("(limit"));
        assert_eq!(is_limited, parts.contains(&"(limit 2)"), "{text}: {plans:?}");
    }
}

#[test]
fn what_is_asked_wrong_is_told() {
    let (db, _folder) = open("errors");
    let zone =
        ClientContext { time_zone: jiff::tz::TimeZone::get("Europe/Berlin").unwrap(), ..session(Manner::Postgres) };
    let utc = session(Manner::Postgres);
    for (text, session, part) in [
        ("SELECT rank() OVER (ORDER BY nothing) FROM cpu", &utc, "nothing"),
        ("SELECT rank() OVER () FROM nowhere", &utc, "nowhere"),
        ("SELECT frobnicate(a) FROM cpu", &utc, "frobnicate"),
        ("SELECT rank() OVER (ORDER BY time) FROM cpu", &zone, "SET TIME ZONE 'UTC'"),
        ("CREATE SEQUENCE s", &utc, "not in the built-in SQL"),
        ("SELECT rank() OVER (), b FROM cpu RIGHT JOIN limits USING (region)", &utc, "write ON"),
        ("SELECT rank() OVER () FROM cpu SAMPLE BY 1m", &utc, "not in the built-in SQL"),
    ] {
        let error = db.sql(&parsed(text), 0, session, &budget()).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn limits_are_those_of_the_query() {
    let (db, _folder) = open("limits");
    let session = session(Manner::Postgres);
    let large = parsed(
        "SELECT sum(r) FROM (SELECT rank() OVER (ORDER BY x.a + y.a + z.a) AS r FROM cpu x, cpu y, cpu z, cpu v) AS t",
    );
    let few = Arc::new(Budget::new(20_000));
    let error = db.sql_beyond(&large, 0, &session, &few).unwrap_err();
    assert_eq!(error, SqlError::Query(QueryError::TooManySamples { limit: 20_000 }));
    // What operators held is given back; of scans that nobody read a few cells are left, until the budget goes with the statement.
    assert!(few.samples() <= 120, "{}", few.samples());
    assert_eq!(Arc::strong_count(&few), 1);

    // One that would run for hours ends when it is stopped from outside.
    let endless = parsed(
        "SELECT count(*) FROM cpu a, cpu b, cpu c, cpu d, cpu e, cpu f, cpu g WHERE a.a + b.a + c.a + d.a + e.a + f.a + g.a < -1 AND random() < 2 GROUP BY ROLLUP (a.host)",
    );
    let stopped = budget();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| db.sql_beyond(&endless, 0, &session, &stopped));
        // It has begun to hold something.
        while stopped.samples_taken() == 0 && !running.is_finished() {
            std::thread::yield_now();
        }
        stopped.stop(Stop::Timeout);
        let error = running.join().unwrap().unwrap_err();
        assert_eq!(error, SqlError::Query(QueryError::Stopped(Stop::Timeout)));
    });
}

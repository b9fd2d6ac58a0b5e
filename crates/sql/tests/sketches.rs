//! Sketches in SQL: their memory is the query's, and the same values give the same sketch whichever way they are read.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fmt::Write;

use query::testing::MemoryDatabases;
use query::{Budget, QueryError};
use thalweg_sql::{self as sql, ClientContext, SqlError, Value};

const SECOND_NS: i64 = 1_000_000_000;
const ROWS: i64 = 400;

fn ask(db: &MemoryDatabases, budget: &Budget, text: &str) -> Result<Vec<Vec<Value>>, SqlError> {
    let client = ClientContext::new("default", 0);
    let answer = sql::run(&sql::parse(text)?, 0, &db.session(budget), &client)?;
    Ok(answer.relation().map(|relation| relation.rows).unwrap_or_default())
}

/// A row a second: a host of its own, a number, and small texts of sketches, which are large when they are read.
fn fixture() -> MemoryDatabases {
    let db = MemoryDatabases::new().unwrap();
    let bins: Vec<String> = (0..500).map(|bin| format!("{}:1", i32::from(bin > 0))).collect();
    let mut lines = String::new();
    for row in 0..ROWS {
        writeln!(
            lines,
            "t,host=h{row},region=r{} n={row}i,s=\"word {}\",d=\"d1s|{row}:1\",q=\"q1|0||0|{}|0|0\",ok=true {}",
            row % 2,
            row % 7,
            bins.join(","),
            row * SECOND_NS
        )
        .unwrap();
    }
    let (_, errors) = db.write_lines("default", lines.as_bytes()).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    db
}

#[test]
fn sketches_are_taken_out_of_the_budget() {
    let db = fixture();
    // A sketch of distinct values has 4 KiB, that of these quantiles more.
    let of_one = 256;
    for (text, rows) in [
        ("SELECT time_bucket('1 second', time), approx_count_distinct_of_sketches(d) FROM t GROUP BY 1", ROWS),
        ("SELECT host, distinct_sketch_of_sketches(d) FROM t GROUP BY host", ROWS),
        ("SELECT host, approx_count_distinct(n) FROM (SELECT host, n FROM t) t GROUP BY host", ROWS),
        ("SELECT host, approx_percentile(q, 0.5) FROM (SELECT host, q FROM t) t GROUP BY host", ROWS),
        ("SELECT host, approx_percentile(q, 0.5) FROM t GROUP BY host", ROWS),
    ] {
        let error = ask(&db, &Budget::new(of_one * rows as u64), text).unwrap_err();
        assert!(matches!(error, SqlError::Query(QueryError::TooManySamples { .. })), "{text}: {error}");
        let budget = Budget::new(10_000_000);
        assert_eq!(ask(&db, &budget, text).unwrap().len() as i64, rows, "{text}");
    }
    // What is made of all values keeps them.
    let peak = |text: &str| {
        let budget = Budget::new(10_000_000);
        assert_eq!(ask(&db, &budget, text).unwrap().len(), 1, "{text}");
        budget.samples_peak()
    };
    let kept = ROWS as u64 / 2;
    assert!(peak("SELECT approx_percentile(0.5, n) FROM t") >= kept);
    assert!(peak("SELECT approx_count_distinct(s) FROM t") >= kept);
    let of_rows = |call: &str| peak(&format!("SELECT {call} FROM (SELECT n FROM t) t"));
    assert!(of_rows("stddev(n)") >= of_rows("count(n)") + kept);
    // Those that become one are given back.
    for text in [
        "SELECT region, approx_count_distinct_of_sketches(d) FROM t GROUP BY region ORDER BY 1",
        "SELECT time_bucket('1 hour', time), distinct_sketch_of_sketches(d), region FROM t GROUP BY 1, 3 ORDER BY 3",
        "SELECT region, approx_percentile(q, 0.5) FROM t GROUP BY region ORDER BY 1",
    ] {
        let budget = Budget::new(10_000_000);
        assert_eq!(ask(&db, &budget, text).unwrap().len(), 2, "{text}");
        assert!(budget.samples() < 5_000, "{text}: {}", budget.samples());
    }
}

#[test]
fn times_are_counted_the_same_on_every_way() {
    let db = fixture();
    let budget = Budget::new(10_000_000);
    // Less than what a float of nanoseconds tells apart.
    let mut near = String::new();
    (0..200).for_each(|row| writeln!(near, "near x=1 {}", 1_700_000_000 * SECOND_NS + row).unwrap());
    db.write_lines("default", near.as_bytes()).unwrap();
    for table in ["t", "near"] {
        let way = |from: &str, call: &str| {
            let rows = ask(&db, &budget, &format!("SELECT {call} FROM {from}")).unwrap();
            rows[0][0].clone()
        };
        let nested = format!("(SELECT time, time::timestamp AS local FROM {table}) t");
        let sketch = way(table, "distinct_sketch(time)");
        assert_eq!(sketch, way(&nested, "distinct_sketch(time)"), "{table}");
        assert_eq!(sketch, way(&nested, "distinct_sketch(local)"), "{table}");
        let count = way(table, "approx_count_distinct(time)");
        let Value::Int(about) = count else { panic!("{table}: {count:?}") };
        let exact = if table == "t" { ROWS } else { 200 };
        assert!((about - exact).abs() * 20 <= exact, "{table}: {about}");
        assert_eq!(way(&nested, "approx_count_distinct(time)"), count, "{table}");
    }
}

#[test]
fn aggregates_of_numbers_are_of_numbers() {
    let db = fixture();
    let budget = Budget::new(10_000_000);
    for (call, expected) in [
        ("stddev(s)", "function stddev(text) does not exist"),
        ("variance(s)", "function variance(text) does not exist"),
        ("squared_deviations(region)", "function squared_deviations(text) does not exist"),
        ("quantile(s, 0.5)", "function quantile(text) does not exist"),
        ("stddev(ok)", "function stddev(boolean) does not exist"),
        ("stddev(time)", "function stddev(timestamp with time zone) does not exist"),
        ("median(time)", "function median(timestamp with time zone) does not exist"),
        ("approx_percentile(0.5, time)", "does not exist"),
        ("quantile_sketch(ok)", "function quantile_sketch(boolean) does not exist"),
        ("stddev(n, s, n)", "function stddev(text) does not exist"),
        ("stddev(DISTINCT n, n, n)", "leave out DISTINCT"),
        ("max(n, n, n)", "takes fewer than 3"),
    ] {
        for from in ["t", "(SELECT * FROM t) t"] {
            let error = ask(&db, &budget, &format!("SELECT {call} FROM {from}")).unwrap_err();
            assert!(error.to_string().contains(expected), "{call}: {error}");
        }
    }
    assert_eq!(ask(&db, &budget, "SELECT stddev(DISTINCT n) > 1 FROM t").unwrap(), [[Value::Bool(true)]]);
}

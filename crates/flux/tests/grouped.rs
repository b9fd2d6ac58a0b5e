//! Queries of grouped series: what plans give of them is what the same functions give of the rows in memory.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fmt::Write;

use query::testing::MemoryDatabases;
use query::{Budget, QueryError};
use thalweg_flux::{Dialect, Query, RequestContext};

const SECOND_NS: i64 = 1_000_000_000;
/// 2021-01-01T00:00:00Z.
const START_NS: i64 = 1_609_459_200 * SECOND_NS;
const SAMPLES_MAX: u64 = 10_000_000;

/// Three minutes of four series of which some lack tags and fields, of a field of the same name in another measurement, and of numbers of all types, whose sums of one are beyond them; half of the
/// rows come late.
fn fixture() -> MemoryDatabases {
    let db = MemoryDatabases::new().unwrap();
    for rest in [0, 1] {
        let mut lines = String::new();
        for step in (0..180i64).filter(|step| step % 2 == rest) {
            let time_ns = START_NS + step * SECOND_NS;
            let number = (step * 37 + 11) % 101;
            writeln!(
                lines,
                "cpu,host=a,Dc=x usage={}.5,n={number}i,u={}u {time_ns}",
                number - 50,
                (number as u64) << 57
            )
            .unwrap();
            writeln!(lines, "cpu,host=b usage={number} {time_ns}").unwrap();
            writeln!(lines, "cpu,Dc=x n={}i {time_ns}", number - 60).unwrap();
            if step % 10 == 3 {
                writeln!(lines, "cpu,host=c,Dc=y usage={number},state=\"s{}\",n=1i {time_ns}", number % 3).unwrap();
            }
            if step > 150 {
                writeln!(lines, "mem,host=a usage={number} {time_ns}").unwrap();
            }
        }
        let (_, errors) = db.write_lines("b", lines.as_bytes()).unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        db.store.flush_all().unwrap();
    }
    db
}

fn run(db: &MemoryDatabases, script: &str, samples_max: u64) -> Result<String, QueryError> {
    let budget = Budget::new(samples_max);
    let context = RequestContext { now_ns: START_NS + 180 * SECOND_NS, ..RequestContext::default() };
    let query = Query::parse(script).unwrap_or_else(|error| panic!("{script}: {error}"));
    Ok(query.run(&db.session(&budget), &context)?.csv(&Dialect::default()))
}

/// Returns whether texts are equal, but for what rounding makes of their numbers.
fn are_alike(a: &str, b: &str) -> bool {
    let is_alike = |(a, b): (&str, &str)| match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => {
            a.total_cmp(&b).is_eq() || (a - b).abs() <= 1e-9 * (1.0 + b.abs()) || a.is_nan() && b.is_nan()
        }
        _ => a == b,
    };
    let cells = |text: &'_ str| text.split([',', '\n']).map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let (a, b) = (cells(a), cells(b));
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| is_alike((a, b)))
}

const FILTERS: [&str; 6] = [
    "r._measurement == \"cpu\" and r._field == \"usage\"",
    "r._measurement == \"cpu\" and r._field == \"n\" and r._value > 10",
    "r._measurement == \"cpu\" and r._field == \"u\"",
    "r._measurement == \"cpu\" and r._field == \"state\"",
    "r._measurement == \"cpu\" and (r._field == \"n\" or r._field == \"usage\")",
    "r._field == \"usage\" and r.host != \"b\"",
];

const GROUPS: [&str; 12] = [
    "group()",
    "group(columns: [\"host\"])",
    "group(columns: [\"host\", \"Dc\", \"none\", \"host\"])",
    "group(columns: [\"Dc\", \"_field\"])",
    "group(columns: [\"_measurement\", \"_field\"])",
    "group(columns: [\"host\", \"_start\", \"_stop\"])",
    "group(columns: [\"host\", \"Dc\", \"_measurement\", \"_field\"])",
    "group(columns: [\"_time\", \"_value\"], mode: \"except\")",
    "group(columns: [\"_time\", \"_value\", \"host\"], mode: \"except\")",
    "group(columns: [\"_time\", \"_value\", \"_start\", \"_stop\", \"_field\", \"Dc\"], mode: \"except\")",
    "group(columns: [\"_value\", \"Dc\"], mode: \"except\")",
    "group(columns: [\"host\", \"_value\"])",
];

const CALLS: [&str; 17] = [
    "mean()",
    "sum()",
    "count()",
    "min()",
    "last()",
    "spread()",
    "stddev()",
    "stddev(mode: \"population\")",
    "median()",
    "quantile(q: 0.9)",
    "quantile(q: 0.9, method: \"exact_selector\")",
    "aggregateWindow(every: 1m, fn: mean)",
    "aggregateWindow(every: 90s, offset: 7s, fn: sum, createEmpty: false, timeSrc: \"_start\")",
    "aggregateWindow(every: 50s, fn: count)",
    "aggregateWindow(every: 1s, fn: stddev, createEmpty: false)",
    "aggregateWindow(every: 40s, fn: median)",
    "aggregateWindow(every: 1m, fn: spread)",
];

/// Selectors of windows: of several series that are grouped rows are chosen, with all of their columns.
const SELECTORS: [&str; 4] = ["min", "max", "first", "last"];

#[test]
fn plans_give_what_the_rows_give() {
    let db = fixture();
    let calls: Vec<String> = CALLS
        .iter()
        .map(|call| (*call).to_owned())
        .chain(SELECTORS.iter().map(|name| format!("aggregateWindow(every: 40s, fn: {name})")))
        .collect();
    let mut answers = 0;
    for filter in FILTERS {
        let from = format!("from(bucket: \"b\") |> range(start: -171s, stop: -13s) |> filter(fn: (r) => {filter})");
        for group in GROUPS {
            for call in &calls {
                let found = run(&db, &format!("{from} |> {group} |> {call}"), SAMPLES_MAX);
                // A limit that leaves all rows reads them.
                let of_rows = format!("{from} |> limit(n: 100000) |> {group} |> {call}");
                match (&found, run(&db, &of_rows, SAMPLES_MAX)) {
                    (Ok(found), Ok(expected)) => {
                        assert!(are_alike(found, &expected), "{of_rows}: {found}\n{expected}");
                        answers += usize::from(found.lines().count() > 2);
                    }
                    (Err(found), Err(expected)) => assert_eq!(
                        found.to_string().split_once(": ").map(|(_, why)| why),
                        expected.to_string().split_once(": ").map(|(_, why)| why),
                        "{of_rows}"
                    ),
                    (found, expected) => panic!("{of_rows}: {found:?}\n{expected:?}"),
                }
            }
        }
    }
    assert!(answers > 800, "{answers}");
}

/// What plans give takes room for its own rows alone: those that it is made of need not be held.
#[test]
fn groups_are_made_by_plans() {
    let db = fixture();
    let from = "from(bucket: \"b\") |> range(start: -3m) |> filter(fn: (r) => r._measurement == \"cpu\" and r._field == \"usage\")";
    let cases = [
        ("group()", "mean()", true),
        ("group(columns: [\"host\"])", "count()", true),
        ("group(columns: [\"host\"])", "spread()", true),
        ("group(columns: [\"Dc\", \"_field\"])", "aggregateWindow(every: 1m, fn: mean)", true),
        ("group(columns: [\"Dc\"])", "aggregateWindow(every: 1m, fn: sum, timeSrc: \"_start\")", true),
        (
            "group(columns: [\"_time\", \"_value\", \"host\"], mode: \"except\")",
            "aggregateWindow(every: 1m, fn: count)",
            true,
        ),
        (
            "group(columns: [\"host\", \"Dc\", \"_measurement\", \"_field\"])",
            "aggregateWindow(every: 1m, fn: last)",
            true,
        ),
        // The tags of the chosen row are part of the answer, and so is its time.
        ("group(columns: [\"host\"])", "aggregateWindow(every: 1m, fn: max)", false),
        ("group(columns: [\"host\"])", "max()", false),
        ("group(columns: [\"_time\"])", "count()", false),
        // A filter after a group sees tables as they are grouped.
        ("group() |> filter(fn: (r) => r.host == \"a\")", "mean()", false),
        ("group(columns: [\"host\"]) |> group()", "mean()", false),
    ];
    for (group, call, expected) in cases {
        let script = format!("{from} |> {group} |> {call}");
        let within = run(&db, &script, 300);
        assert_eq!(within.is_ok(), expected, "{script}: {within:?}");
        assert!(run(&db, &script, SAMPLES_MAX).is_ok());
    }
}

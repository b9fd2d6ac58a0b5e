//! Queries for likeness: their plans, their SQL, and both ways in which series are read for them give the same.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fmt::Write;

use model::{EpochColumn, EpochNames};
use query::testing::{EpochBatch, MemoryDatabases};
use query::{Budget, Session};
use thalweg_sql::{self as sql, ClientContext};

const MINUTE_NS: i64 = 60_000_000_000;
/// Windows of a day have ten minutes here.
const DAY: i64 = 10;

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn ask(db: &MemoryDatabases, database: &str, text: &str) -> Result<String, String> {
    let budget = Budget::new(1_000_000);
    let parsed = sql::parse(text).map_err(|error| error.to_string())?;
    let client = ClientContext::new(database, 0);
    let answer = sql::run(&parsed, 0, &db.session(&budget), &client).map_err(|error| error.to_string())?;
    let rows = answer.relation().map(|relation| relation.rows).unwrap_or_default();
    let cell = |value: &sql::Value| match value {
        sql::Value::Null => "NULL".to_owned(),
        sql::Value::Float(value) => format!("{value:.4}"),
        value => value.to_string(),
    };
    let row = |row: Vec<sql::Value>| row.iter().map(cell).collect::<Vec<_>>().join("|");
    Ok(rows.into_iter().map(row).collect::<Vec<_>>().join("\n"))
}

/// The places that a plan gives: distance, time in minutes and labels, in order; the budget has to be left as it was but for the answer.
fn ranked(db: &MemoryDatabases, database: &str, text: &str) -> Result<Vec<String>, String> {
    let budget = Budget::new(1_000_000);
    let plan = query::parse(text, 0).map_err(|error| error.to_string())?;
    let outcome = db.session(&budget).run(database, &plan).map_err(|error| error.to_string())?;
    let mut rows = Vec::new();
    let mut cells = 0;
    for frame in &outcome.frames {
        cells += frame.rows() * frame.columns.len();
        for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
            let number = |name| frame.column(name).and_then(|column| column.cell(row).number()).unwrap();
            let place = format!("{:.9} {} {}", number("distance"), time_ns / MINUTE_NS, frame.labels);
            rows.push((number("rank") as i64, place));
        }
    }
    rows.sort();
    assert_eq!(budget.samples(), cells as u64, "{text}");
    Ok(rows.into_iter().map(|(_, place)| place).collect())
}

/// A form of ten minutes.
fn form(kind: i64, minute: i64) -> i64 {
    let at = minute % DAY;
    match kind {
        0 => at * at,
        1 => 30 - 3 * at,
        2 => [5, 9, 1, 7, 2, 8, 3, 6, 4, 0][at as usize],
        _ => 7,
    }
}

/// Series of lines: `load` of hosts a to d over five windows; b is a without its first window, larger; d is constant.
fn lines() -> MemoryDatabases {
    let db = MemoryDatabases::new().unwrap();
    let mut text = String::new();
    for minute in 0..5 * DAY {
        for (host, kind) in [("a", 0), ("b", if minute < DAY { 2 } else { 0 }), ("c", 1), ("d", 3)] {
            let value = form(kind, minute) * if host == "b" { 100 } else { 1 } + minute / DAY;
            let value = if host == "d" { 7 } else { value };
            let _ = writeln!(text, "load,host={host} value={value} {}", minute * MINUTE_NS);
        }
    }
    db.write_lines("default", text.as_bytes()).unwrap();
    db
}

#[test]
fn sql_finds_series_and_places() {
    let db = lines();
    let similar = |rest: &str| {
        format!(
            "SELECT series, rank, CAST(extract(minute FROM starts) AS bigint), distance, correlation FROM similar('load', 'load{{host=\"a\"}}', '1970-01-01T00:10:00Z', '1970-01-01T00:20:00Z', step => '1m'{rest})"
        )
    };
    for (statement, expected) in [
        (similar(", k => 2"), "load{host=\"b\"}|1|10|0.0000|1.0000\nload{host=\"d\"}|2|10|3.1623|0.5000"),
        (
            similar(", k => 2, measure => 'pearson'"),
            "load{host=\"b\"}|1|10|0.0000|1.0000\nload{host=\"c\"}|2|10|6.2653|-0.9627",
        ),
        (
            similar(
                ", k => 3, search_from => '1970-01-01T00:00:00Z', search_to => '1970-01-01T00:50:00Z', per_series => 2",
            ),
            "load{host=\"a\"}|1|0|0.0000|1.0000\nload{host=\"a\"}|2|20|0.0000|1.0000\nload{host=\"b\"}|3|10|0.0000|1.0000",
        ),
        (similar(", k => 1, measure => 'dtw', band => 2"), "load{host=\"b\"}|1|10|0.0000|NULL"),
        (similar(", k => 1, normalise => false"), "load{host=\"d\"}|1|10|110.7836|NULL"),
    ] {
        assert_eq!(ask(&db, "default", &statement).as_deref(), Ok(expected), "{statement}");
    }
    let every = similar(
        ", k => 4, offsets => 'every', bins => 'last', search_from => '1970-01-01T00:00:00Z', search_to => '1970-01-01T00:50:00Z'",
    );
    let found = ask(&db, "default", &format!("SELECT count(*), min(distance) FROM ({every}) AS s")).unwrap();
    assert_eq!(found, "4|0.0000");
    let groups =
        "SELECT * FROM groups_alike('load{host!=\"d\"}', '1970-01-01T00:10:00Z', '1970-01-01T00:20:00Z', step => '1m')";
    assert_eq!(
        ask(&db, "default", groups).as_deref(),
        Ok("load{host=\"a\"}|1|2\nload{host=\"b\"}|1|2\nload{host=\"c\"}|2|1")
    );
    let discords = "SELECT count(*) FROM discords('load{host=\"b\"}', '1970-01-01', '1970-01-01T00:50:00Z', step => '1m', window => '10m', k => 1) WHERE starts < '1970-01-01T00:10:00Z'";
    assert_eq!(ask(&db, "default", discords).as_deref(), Ok("1"));
    let motifs = "SELECT count(*), max(distance) FROM motifs('load{host=\"a\"}', '1970-01-01', '1970-01-01T00:50:00Z', step => '1m', window => '10m', k => 2)";
    assert_eq!(ask(&db, "default", motifs).as_deref(), Ok("2|0.0000"));
    let explained = ask(&db, "default", &format!("EXPLAIN {}", similar(""))).unwrap();
    for part in [
        "(similar 10",
        "(metric \"load\")",
        "(range 600000000000 1200000000000)",
        "(step 1m) (bins avg) (measure euclidean) (offsets aligned)",
    ] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
}

#[test]
fn errors_name_the_limit() {
    let db = lines();
    let call = |arguments: &str| format!("SELECT * FROM similar({arguments})");
    let range = "'1970-01-01T00:10:00Z', '1970-01-01T00:20:00Z'";
    let good = format!("'load', 'load{{host=\"a\"}}', {range}");
    for (statement, part) in [
        (call(&format!("{good}, step => '1m', k => 0")), "at least 1"),
        (call(&format!("{good}, step => '1m', k => 10001")), "at most 10000"),
        (call(&format!("{good}, step => '1m', k => -1")), "no number of them"),
        (call(&format!("{good}, step => '5m'")), "has 2 bins: at least 3"),
        (call(&format!("{good}, step => '1us'")), "at most 1048576"),
        (call(&good), "step => '5m' says how wide"),
        (call(&format!("{good}, step => '1m', measure => 'dtw'")), "dtw needs a band"),
        (call(&format!("{good}, step => '1m', measure => 'cosine'")), "euclidean, pearson or dtw"),
        (call(&format!("{good}, step => '1m', measure => 'pearson', normalise => false")), "of normalised stretches"),
        (call(&format!("{good}, step => '1m', offsets => 'some'")), "aligned or every"),
        (call(&format!("{good}, step => '1m', wrong => 1")), "no argument wrong"),
        (call(&format!("{good}, 5, step => '1m'")), "more arguments"),
        (call(&format!("'load', 'load', {range}, step => '1m'")), "the reference is one series"),
        (call(&format!("'load', 'none', {range}, step => '1m'")), "none is selected"),
        (
            call(&format!("'load', 'load{{host=\"d\"}}', {range}, step => '1m', measure => 'pearson'")),
            "correlates with nothing",
        ),
        (call(&format!("'load{{', 'load', {range}, step => '1m'")), "ends too soon"),
        (call("'load', 'load{host=\"a\"}', '1970-01-01T00:10:00Z', '1970-01-01', step => '1m'"), "the range is empty"),
        (
            call("'load', 'load{host=\"a\"}', '1970-01-01T00:40:00Z', '1970-01-01T01:00:00Z', step => '1m'"),
            "10 of the reference's 20 bins",
        ),
        (
            call(&format!(
                "{good}, step => '1m', search_from => '1970-01-01T00:10:00Z', search_to => '1970-01-01T00:15:00Z'"
            )),
            "nothing in it is as long",
        ),
        (
            "SELECT * FROM motifs('load', '1970-01-01', '1970-01-01T00:50:00Z', step => '1m', window => '2m')"
                .to_owned(),
            "at least 3",
        ),
        (
            "SELECT * FROM discords('load', '1970-01-01', '1970-01-01T00:50:00Z', step => '1m', window => '1h')"
                .to_owned(),
            "longer than the range, which has 50",
        ),
        (format!("SELECT * FROM groups_alike('load', {range}, step => '1m', correlation => 1.5)"), "between -1 and 1"),
    ] {
        let found = ask(&db, "default", &statement);
        assert!(found.as_ref().is_err_and(|error| error.contains(part)), "{statement}: {found:?}");
    }
    let unbounded = ranked(
        &db,
        "default",
        "(similar 3 (->> (metric \"load\")) (->> (metric \"load\") (range 0 600000000000)) (step 1m))",
    );
    assert!(unbounded.as_ref().is_err_and(|error| error.contains("no bounds in time")), "{unbounded:?}");
    let tight = Budget::new(40);
    let plan = query::parse("(similar 3 (->> (metric \"load\") (range 0 3000000000000)) (->> (metric \"load\") (tag \"host\" \"a\") (range 0 600000000000)) (step 1m))", 0).unwrap();
    let found = db.session(&tight).run("default", &plan);
    assert!(matches!(found, Err(query::QueryError::TooManySamples { limit: 40 })), "{found:?}");
    let stopped = Budget::new(1_000_000);
    stopped.stop(query::Stop::Cancelled);
    assert!(db.session(&stopped).run("default", &plan).is_err());
}

/// Reading values as they lie in a regular database gives the same as series by series.
#[test]
fn epochs_are_searched_as_series_are() {
    for (seed, kind) in [(1, "int"), (2, "float"), (3, "int")] {
        let db = MemoryDatabases::new().unwrap();
        ask(&db, "dns", &format!("CREATE DATABASE dns WITH (interval = '1m', value = {kind}, retention = '100y')"))
            .unwrap();
        let mut chance = Chance(seed);
        for minute in 0..6 * DAY {
            let mut names = EpochNames::default();
            let mut values = Vec::new();
            for name in 0..60_i64 {
                // Some have gaps, some are constant, some are far away from zero.
                if name % 7 == 3 && chance.below(40) == 0 {
                    continue;
                }
                names.push(&format!("n{name}"));
                let noise = chance.below(if name % 5 == 0 { 3 } else { 12 }) as i64;
                let level = if name % 4 == 1 { 5_000_000_000 } else { 0 };
                values.push(if name % 11 == 10 { 4 } else { level + form(name % 3, minute) * 3 + noise });
            }
            let values = match kind {
                "int" => EpochColumn::Int(values),
                _ => EpochColumn::Float(values.into_iter().map(|value| value as f64 / 3.0).collect()),
            };
            let batch = EpochBatch { time_ns: minute * MINUTE_NS, names: &names, values: &values };
            db.store.write_epoch("dns", &batch).unwrap();
            if minute == 25 {
                db.store.remove_names("dns", &["n5", "n6"].into_iter().collect(), 26 * MINUTE_NS).unwrap();
            }
        }
        let range = |first: i64, end: i64| format!("(range {} {})", first * MINUTE_NS, end * MINUTE_NS);
        for options in ["", "(raw)", "(measure pearson)", "(per-series 1)", "(offsets every)", "(measure dtw 2)"] {
            for (count, reference, first) in [(1, "n0", 10), (12, "n1", 20), (40, "n8", 0), (300, "n2", 50)] {
                let reference =
                    format!("(->> (metric \"dns\") (tag \"name\" \"{reference}\") {})", range(first, first + DAY));
                let series = format!("(metric \"dns\") {}", range(0, 6 * DAY));
                let text = |input: &str| format!("(similar {count} {input} {reference} (step 1m) {options})");
                let found = ranked(&db, "dns", &text(&format!("(->> {series})"))).unwrap();
                // A step before makes frames of all.
                let expected = ranked(&db, "dns", &text(&format!("(->> {series} (limit 1000000))"))).unwrap();
                assert_eq!(found, expected, "{kind} {count} {options}");
                assert!(!found.is_empty());
            }
        }
    }
}

/// Places that may be among the best are held within the budget, however many a search begins with.
#[test]
fn candidates_of_a_block_have_a_bound() {
    let db = MemoryDatabases::new().unwrap();
    ask(&db, "dns", "CREATE DATABASE dns WITH (interval = '1m', value = int, retention = '100y')").unwrap();
    let names: Vec<String> = (0..300).map(|name| format!("n{name}")).collect();
    let mut chance = Chance(5);
    for minute in 0..600 {
        let values = EpochColumn::Int(names.iter().map(|_| chance.below(1_000_000) as i64).collect());
        let names: EpochNames = names.iter().map(String::as_str).collect();
        db.store
            .write_epoch("dns", &EpochBatch { time_ns: minute * MINUTE_NS, names: &names, values: &values })
            .unwrap();
    }
    let text = |count: usize, more: &str| {
        let series = format!("(->> (metric \"dns\") (range 0 {}) {more})", 600 * MINUTE_NS);
        let reference = format!("(->> (metric \"dns\") (tag \"name\" \"n7\") (range 0 {}))", 3 * MINUTE_NS);
        format!("(similar {count} {series} {reference} (step 1m))")
    };
    let found = ranked(&db, "dns", &text(20, "")).unwrap();
    assert_eq!(found, ranked(&db, "dns", &text(20, "(limit 1000000)")).unwrap());
    let within = |count: usize| {
        let budget = Budget::new(36_000);
        db.session(&budget).run("dns", &query::parse(&text(count, ""), 0).unwrap()).map(drop)
    };
    assert!(within(20).is_ok(), "{:?}", within(20));
    assert!(matches!(within(10_000), Err(query::QueryError::TooManySamples { .. })), "{:?}", within(10_000));
}

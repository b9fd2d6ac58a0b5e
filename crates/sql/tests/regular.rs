//! Regular databases in SQL, and as PromQL's source.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use model::{EpochColumn, EpochNames, MatchOp, Matcher, TimeRange};
use query::testing::{EpochBatch, EpochKind, MemoryDatabases};
use query::{Budget, Helpers, NameKind, Selection, Source, StoreSource};
use thalweg_sql::{self as sql, ClientContext};

const MINUTE_NS: i64 = 60_000_000_000;

/// Runs a statement: its rows as text, cells between bars, or its error.
fn ask(db: &MemoryDatabases, text: &str) -> Result<String, String> {
    let budget = Budget::new(1_000_000);
    let parsed = sql::parse(text).map_err(|error| error.to_string())?;
    let client = ClientContext::new("dns", 0);
    let answer = sql::run(&parsed, 0, &db.session(&budget), &client).map_err(|error| error.to_string())?;
    let rows = answer.relation().map(|relation| relation.rows).unwrap_or_default();
    let cell = |value: &sql::Value| match value {
        sql::Value::Null => "NULL".to_owned(),
        value => value.to_string(),
    };
    let row = |row: Vec<sql::Value>| row.iter().map(cell).collect::<Vec<_>>().join("|");
    Ok(rows.into_iter().map(row).collect::<Vec<_>>().join("\n"))
}

fn write(db: &MemoryDatabases, minute: i64, cells: &[(&str, i64)]) {
    let names: EpochNames = cells.iter().map(|(name, _)| *name).collect();
    let values = EpochColumn::Int(cells.iter().map(|(_, value)| *value).collect());
    let batch = EpochBatch { time_ns: minute * MINUTE_NS, names: &names, values: &values };
    db.store.write_epoch("dns", &batch).unwrap();
}

/// `a.it` goes in minute 12 and comes again in minute 14; `b.it` has no value in minute 11.
fn fixture() -> MemoryDatabases {
    let db = MemoryDatabases::new().unwrap();
    ask(&db, "CREATE DATABASE dns WITH (interval = '1m', overwrite = refuse, retention = '100y')").unwrap();
    write(&db, 10, &[("a.it", 1), ("b.it", 2)]);
    write(&db, 11, &[("a.it", 3)]);
    db.store.remove_names("dns", &["a.it"].into_iter().collect(), 12 * MINUTE_NS).unwrap();
    write(&db, 13, &[("b.it", 4)]);
    write(&db, 14, &[("a.it", 5), ("b.it", 6)]);
    db
}

#[test]
fn statements_read_names_as_series() {
    let db = fixture();
    let definition = db.store.regular("dns").unwrap();
    assert_eq!((definition.interval_ns, definition.kind, definition.may_overwrite), (MINUTE_NS, EpochKind::Int, false));
    for (statement, expected) in [
        (
            "SELECT extract(minute FROM time) AS m, value, status FROM dns WHERE name = 'a.it' ORDER BY time",
            "10|1|value\n11|3|value\n12|NULL|undefined\n13|NULL|undefined\n14|5|value",
        ),
        (
            "SELECT extract(minute FROM time) AS m, value FROM dns WHERE name = 'b.it' AND status = 'missing' ORDER BY time",
            "11|NULL\n12|NULL",
        ),
        ("SELECT name, sum(value) AS s FROM dns GROUP BY name ORDER BY s DESC", "b.it|12\na.it|9"),
        ("SELECT count(value), max(value) FROM dns WHERE time >= '1970-01-01T00:11:00Z'", "4|6"),
        ("SELECT name, value FROM dns WHERE value > 3 ORDER BY name, value", "a.it|5\nb.it|4\nb.it|6"),
        ("SELECT DISTINCT name FROM dns ORDER BY name", "a.it\nb.it"),
        (
            "SELECT name, index, extract(minute FROM valid_from), extract(minute FROM valid_to) FROM series_validity()",
            "a.it|0|10|12\na.it|0|14|NULL\nb.it|1|10|NULL",
        ),
        ("SELECT count(*) FROM series_validity('a.it')", "2"),
        ("SELECT * FROM series_top(1)", "b.it|12"),
        ("SELECT * FROM series_top(5, 'max', '1970-01-01T00:10:00Z', '1970-01-01T00:12:00Z')", "a.it|3\nb.it|2"),
    ] {
        assert_eq!(ask(&db, statement).as_deref(), Ok(expected), "{statement}");
    }
    for (statement, part) in [
        ("ALTER DATABASE dns SET interval = '2m'", "cannot change"),
        ("ALTER DATABASE dns SET folds = '1d:1h'", "is not folded"),
        ("INSERT INTO dns (time, name, value) VALUES (now(), 'x', 1)", "this database is regular"),
        ("DELETE FROM dns WHERE name = 'a.it'", "not deleted by rows"),
        ("SELECT * FROM series_top(0)", "no number of series"),
        ("SELECT * FROM other", "does not exist"),
    ] {
        let found = ask(&db, statement);
        assert!(found.as_ref().is_err_and(|error| error.contains(part)), "{statement}: {found:?}");
    }
    let db = db.reopened().unwrap();
    assert_eq!(ask(&db, "SELECT sum(value) FROM dns").as_deref(), Ok("21"));
    ask(&db, "DROP DATABASE dns").unwrap();
    assert_eq!(db.store.regular("dns"), None);
}

#[test]
fn a_source_has_the_values_of_all_names() {
    let db = fixture();
    let (helpers, budget) = (Helpers::new(0), Budget::new(1_000_000));
    let source = StoreSource::new(&db.store, "dns", &helpers);
    let select = |matchers: &[Matcher], start_ms, end_ms| {
        let selection = Selection { matchers, start_ms, end_ms, projection: None, is_numbered: false };
        let mut found = source.select(&selection, &budget).unwrap();
        found.sort_by(|a, b| a.labels.cmp(&b.labels));
        found
    };
    let metric = Matcher::new(model::METRIC_NAME, MatchOp::Equal, "dns");
    let all = select(std::slice::from_ref(&metric), 0, 3_600_000);
    let texts: Vec<String> = all.iter().map(|series| series.labels.to_string()).collect();
    assert!(texts.len() == 2 && texts[0].contains("a.it") && texts[0].contains("dns"), "{texts:?}");
    assert_eq!((*all[0].timestamps_ms).clone(), [600_000, 660_000, 840_000]);
    assert_eq!(all[0].values, [1.0, 3.0, 5.0]);
    let one = [metric.clone(), Matcher::new("name", MatchOp::Regex, "b.*")];
    assert_eq!(select(&one, 660_000, 800_000)[0].values, [4.0]);
    assert_eq!(select(&[Matcher::new(model::METRIC_NAME, MatchOp::Equal, "other")], 0, 3_600_000), []);
    let names = |kind| source.names(kind, &[], TimeRange::ALL, &budget).unwrap();
    assert_eq!(names(NameKind::Labels), ["__name__", "name"]);
    assert_eq!(names(NameKind::Values("name")), ["a.it", "b.it"]);
    assert_eq!(names(NameKind::Values(model::METRIC_NAME)), ["dns"]);
}

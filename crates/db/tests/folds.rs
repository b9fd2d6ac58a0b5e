//! Folded data answers as raw data does: in every language, aggregates that summaries have are those of all samples that were written, whatever
//! stands beside them and however long the range is. Everything else comes with a warning, or is refused by a strict database.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod scratch;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use model::{MatchOp, Matcher};
use proptest::prelude::*;
use query::{Budget, Cell};
use sql::{ClientContext, Value};
use thalweg_db::{Db, InstantQuery, RangeQuery};

const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;
const HOUR_NS: i64 = 60 * MINUTE_NS;
const DAY_NS: i64 = 24 * HOUR_NS;
const WIDTH_NS: i64 = 5 * MINUTE_NS;
/// Rows begin so long ago; those of the last day are not folded.
const DAYS: i64 = 4;

/// Host, milliseconds since the start, and fields: a float, whole numbers, a text, a flag.
type Row = (u8, i64, Option<i16>, Option<i16>, Option<u8>, Option<u8>, Option<bool>);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let (float, signed) = (prop::option::of(any::<i16>()), prop::option::of(any::<i16>()));
    let (unsigned, text) = (prop::option::of(any::<u8>()), prop::option::of(any::<u8>()));
    let row = (0u8..3, 0..DAYS * 86_400_000, float, signed, unsigned, text, prop::option::of(any::<bool>()));
    prop::collection::vec(row, 200..600)
}

/// Two databases with equal rows: one keeps them, the other folds them.
struct Both {
    db: Db,
    start_ns: i64,
}

impl Both {
    fn new(db: Db, rows: &[Row]) -> Self {
        let folding = thalweg_db::DatabasePolicy { folds: vec![(DAY_NS, WIDTH_NS)], ..Default::default() };
        db.set_policy("folded", &folding).unwrap();
        let start_ns = (db.now_ns() / DAY_NS - DAYS) * DAY_NS;
        let mut lines = String::new();
        let mut dense: Vec<Row> = rows.to_vec();
        // Folds that many samples are in, and such whose first one is on a bound.
        for number in 0..400 {
            let place = i64::from(number) * 30_000 + 7 * 3_600_000;
            dense.push((0, place, Some(number % 97), Some(number), Some((number % 250) as u8), Some(3), Some(true)));
        }
        for (host, place, float, signed, unsigned, text, flag) in &dense {
            let fields = [
                float.map(|float| format!("v={}", f64::from(float) / 4.0)),
                signed.map(|signed| format!("i={signed}i")),
                unsigned.map(|unsigned| format!("u={unsigned}u")),
                text.map(|text| format!("s=\"t{text}\"")),
                flag.map(|flag| format!("b={flag}")),
            ];
            let fields: Vec<String> = fields.into_iter().flatten().collect();
            if !fields.is_empty() {
                let time_ns = start_ns + place * 1_000_000;
                writeln!(lines, "t,h=h{host} {} {time_ns}", fields.join(",")).unwrap();
            }
        }
        for database in ["raw", "folded"] {
            let (_, errors) = db.write_lines(database, lines.as_bytes()).unwrap();
            assert!(errors.is_empty(), "{errors:?}");
        }
        db.compact(&mut |_| {}).unwrap();
        Self { db, start_ns }
    }

    /// Asks both, and compares as much of every row as is the same; returns whether the answer about folded rows came with a warning.
    fn compare(&self, text: &str, ask: impl Fn(&Db, &str, &Arc<Budget>) -> Vec<String>) -> Result<bool, TestCaseError> {
        let (raw, folded) = (Arc::new(Budget::new(10_000_000)), Arc::new(Budget::new(10_000_000)));
        let (expected, found) = (ask(&self.db, "raw", &raw), ask(&self.db, "folded", &folded));
        let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        prop_assert!(differs.is_none() && found.len() == expected.len(), "{text}: found and expected: {differs:#?}");
        prop_assert!(!raw.is_folded(), "{}", text);
        Ok(folded.is_folded())
    }
}

fn float(value: f64) -> String {
    // Sums of floats may differ in their last digits.
    format!("{value:.9e}")
}

fn sql(db: &Db, database: &str, text: &str, columns: usize, budget: &Arc<Budget>) -> Vec<String> {
    let parsed = sql::parse(text).unwrap();
    let answer =
        db.sql(&parsed, 0, &ClientContext::new(database, 0), budget).unwrap_or_else(|error| panic!("{text}: {error}"));
    let shown = |value: &Value| match value {
        Value::Float(value) => float(*value),
        value => format!("{value:?}"),
    };
    let row = |row: &Vec<Value>| row.iter().take(columns).map(shown).collect::<Vec<_>>().join(" ");
    let mut rows: Vec<String> = answer.relation().unwrap().rows.iter().map(row).collect();
    rows.sort();
    rows
}

fn check_sql(both: &Both) -> Result<(), TestCaseError> {
    let exact = "count(*), count(v), sum(v), min(v), max(v), avg(v), first(v, time), last(v, time), sum(i), min(i), max(u), \
                 avg(u), count(s), count(b), last(s, time), min(time), max(time)";
    let beside = [
        ("", Some(false)),
        (", stddev_pop(v)", Some(true)),
        (", median(i)", Some(true)),
        (", var_samp(v)", Some(true)),
        (", sum(v * 2)", Some(true)),
        (", max(s)", Some(true)),
        // Exact in any case, also where rows are read for it, which warns.
        (", count(DISTINCT h)", None),
    ];
    let keys = [
        ("", ""),
        ("h, ", " GROUP BY h"),
        ("time_bucket('1 hour', time), ", " GROUP BY 1"),
        ("time_bucket('5 minutes', time), h, ", " GROUP BY 1, 2"),
        ("extract(hour from time), ", " GROUP BY 1"),
        ("date_trunc('month', time), ", " GROUP BY 1"),
        ("date_trunc('day', time, 'Asia/Kolkata'), ", " GROUP BY 1"),
    ];
    let at = |minutes: i64| sql::format_rfc3339_us(both.start_ns + minutes * MINUTE_NS);
    let ranges = [String::new(), format!(" WHERE time >= '{}' AND time < '{}'", at(95), at(95 + 40 * 60))];
    for (shown, grouped) in keys {
        for range in &ranges {
            for (more, is_inexact) in beside {
                let text = format!("SELECT {shown}{exact}{more} FROM t{range}{grouped}");
                let columns = 17 + usize::from(is_inexact.is_none()) + grouped.matches(['1', '2', 'h']).count();
                let warned = both.compare(&text, |db, database, budget| sql(db, database, &text, columns, budget))?;
                prop_assert!(is_inexact.is_none_or(|expected| warned == expected), "{text}: {warned}");
            }
        }
    }
    for (text, is_inexact) in [
        ("SELECT count(*) FROM t WHERE v > 0", true),
        ("SELECT * FROM t", true),
        ("SELECT count(*) FROM t WHERE h = 'h1'", false),
        ("SELECT time_bucket('7 minutes', time), count(*) FROM t GROUP BY 1", true),
    ] {
        let budget = Arc::new(Budget::new(10_000_000));
        sql(&both.db, "folded", text, 1, &budget);
        prop_assert_eq!(budget.is_folded(), is_inexact, "{}", text);
    }
    Ok(())
}

fn influxql(db: &Db, database: &str, text: &str, columns: usize, budget: &Arc<Budget>) -> Vec<String> {
    let query = influxql::Query::parse(text, &BTreeMap::new()).unwrap();
    let session = influxql::RequestContext { database: Some(database), read_only: false };
    let answer = db.run_influxql(&query, 0, &session, budget).unwrap_or_else(|error| panic!("{text}: {error}"));
    let shown = |value: &Value| match value {
        Value::Float(value) => float(*value),
        value => format!("{value:?}"),
    };
    let mut rows = Vec::new();
    for series in &answer.series {
        for row in series.rows.values().iter() {
            let row: Vec<String> = row.iter().take(columns).map(shown).collect();
            rows.push(format!("{:?} {}", series.tags, row.join(" ")));
        }
    }
    rows
}

fn check_influxql(both: &Both) -> Result<(), TestCaseError> {
    let exact = "count(v), sum(v), mean(v), min(v), max(v), first(v), last(v), sum(i), min(i), max(u), count(s), count(b), spread(i)";
    let beside = [("", false), (", median(v)", true), (", stddev(i)", true), (", mode(s)", true)];
    let range = format!("time >= {} AND time < {}", both.start_ns + 95 * MINUTE_NS, both.start_ns + 2 * DAY_NS);
    for grouped in ["", " GROUP BY h", " GROUP BY time(1h) fill(none)", " GROUP BY time(25m), h fill(none)"] {
        for range in ["", &format!(" WHERE {range}")] {
            let range = if grouped.contains("time") && range.is_empty() { " WHERE time < now()" } else { range };
            for (more, is_inexact) in beside {
                let text = format!("SELECT {exact}{more} FROM t{range}{grouped}");
                let warned = both.compare(&text, |db, database, budget| influxql(db, database, &text, 14, budget))?;
                prop_assert_eq!(warned, is_inexact, "{}", text);
            }
        }
    }
    let text =
        format!("SELECT derivative(max(v), 1h), moving_average(mean(i), 2) FROM t WHERE {range} GROUP BY time(1h)");
    let warned = both.compare(&text, |db, database, budget| influxql(db, database, &text, 3, budget))?;
    prop_assert!(!warned);
    for (text, is_inexact) in
        [("SELECT v FROM t", true), ("SELECT count(v) FROM t WHERE v > 0", true), ("SELECT last(v) FROM t", false)]
    {
        let budget = Arc::new(Budget::new(10_000_000));
        influxql(&both.db, "folded", text, 2, &budget);
        prop_assert_eq!(budget.is_folded(), is_inexact, "{}", text);
    }
    Ok(())
}

fn plan(db: &Db, database: &str, text: &str, columns: usize, budget: &Arc<Budget>) -> Vec<String> {
    let outcome = db.run_plan(database, &db.parse_plan(text).unwrap(), budget).unwrap();
    let mut rows = Vec::new();
    for frame in &outcome.frames {
        for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
            let cell = |column: &query::FrameColumn| match column.cell(row) {
                Cell::F64(value) => float(value),
                cell => format!("{cell:?}"),
            };
            let cells: Vec<String> = frame.columns.iter().take(columns).map(cell).collect();
            rows.push(format!("{:?} {time_ns} {}", frame.labels, cells.join(" ")));
        }
    }
    rows
}

fn check_plans(both: &Both) -> Result<(), TestCaseError> {
    let exact = r#"(count "v") (sum "v") (min "v") (max "i") (avg "u") (first "i") (last "v") (count "s") (count #TS)"#;
    for (more, is_inexact) in [("", false), (r#" (stddev "v")"#, true)] {
        for width in ["1h", "all"] {
            for of in ["table", "rows-of"] {
                let text = format!(r#"(->> ({of} "t") (groupby {width} '({exact}{more})))"#);
                let warned = both.compare(&text, |db, database, budget| plan(db, database, &text, 9, budget))?;
                prop_assert_eq!(warned, is_inexact, "{}", text);
            }
        }
    }
    let text = r#"(->> (metric "t_v") (groupby 1h '(max count sum)))"#;
    prop_assert!(!both.compare(text, |db, database, budget| plan(db, database, text, 3, budget))?);
    Ok(())
}

/// The values of a range, or of its end.
fn promql(db: &Db, database: &str, query: &RangeQuery, budget: &Arc<Budget>) -> Vec<String> {
    let answer = db.range(database, query).unwrap();
    if !answer.warnings.is_empty() {
        budget.note_folded().unwrap();
    }
    let promql::ResultValue::Matrix(matrix) = answer.value else { panic!("no matrix") };
    let mut rows = Vec::new();
    for (labels, points) in &matrix {
        for (time_ms, value) in &points.floats {
            rows.push(format!("{labels:?} {time_ms} {}", float(*value)));
        }
    }
    rows
}

fn check_promql(both: &Both) -> Result<(), TestCaseError> {
    let exact = ["count", "sum", "avg", "min", "max", "last", "present", "ts_of_first", "ts_of_last", "first"]
        .map(|name| (name, false));
    let inexact = [("stddev", true), ("changes", true)];
    let start_ms = both.start_ns / 1_000_000;
    // Just before a fold begins, so that windows cut none.
    let end_ms = start_ms + DAYS * 86_400_000 - 1;
    for (function, is_inexact) in exact.into_iter().chain(inexact) {
        for (range, first_ms, step_ms) in [
            ("1d", start_ms - 1, 86_400_000),
            ("1h", start_ms + 36_000_000 - 1, 900_000),
            ("10m", start_ms - 1, 3_600_000),
        ] {
            for metric in ["t_v", "t_i"] {
                let call = if function == "changes" { function.to_owned() } else { format!("{function}_over_time") };
                for text in [format!("{call}({metric}[{range}])"), format!("sum by (h) ({call}({metric}[{range}]))")] {
                    let may_cache = true;
                    let query = |budget| RangeQuery {
                        text: text.clone(),
                        start_ms: first_ms,
                        end_ms,
                        step_ms,
                        lookback_ms: None,
                        name_removal: None,
                        may_cache,
                        budget,
                    };
                    let ask = |db: &Db, database: &str, budget: &Arc<Budget>| {
                        let asked = query(Arc::new(Budget::new(10_000_000)));
                        let once = promql(db, database, &asked, budget);
                        // What is cached is what was computed.
                        assert_eq!(once, promql(db, database, &asked, budget), "{text}");
                        once
                    };
                    if is_inexact {
                        let budget = Arc::new(Budget::new(10));
                        ask(&both.db, "folded", &budget);
                        prop_assert!(budget.is_folded(), "{}", text);
                    } else {
                        prop_assert!(!both.compare(&text, ask)?, "{}", text);
                    }
                }
            }
        }
    }
    for text in ["t_v", "rate(t_v[1h])", "quantile_over_time(0.5, t_v[1d])", "max_over_time(t_v[1d:1h])"] {
        let answer = both.db.instant("folded", &InstantQuery::new(text, start_ms + 8 * 3_600_000)).unwrap();
        prop_assert!(
            answer.warnings.iter().any(|warning| warning.contains("folded")),
            "{} {:?}",
            text,
            answer.warnings
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn folded_data_answers_as_raw_data(rows in rows()) {
        let (db, _folder) = scratch::open("folds");
        let both = Both::new(db, &rows);
        check_plans(&both)?;
        check_sql(&both)?;
        check_influxql(&both)?;
        check_promql(&both)?;
        both.db.close().unwrap();
    }
}

/// Rows of one host, every 30 seconds for so many hours.
fn hours_of_lines(start_ns: i64, hours: i64) -> String {
    let mut lines = String::new();
    for number in 0..hours * 120 {
        writeln!(lines, "t,h=a v={number} {}", start_ns + number * 30 * SECOND_NS).unwrap();
    }
    lines
}

fn count(db: &Db, range: &str) -> String {
    let budget = Arc::new(Budget::new(10_000_000));
    sql(db, "folded", &format!("SELECT count(*), sum(v) FROM t {range}"), 2, &budget).join(";")
}

/// A database of which nothing is newer than the age is folded all the same.
#[test]
fn the_newest_partitions_are_folded() {
    let (db, _folder) = scratch::open("folds-newest");
    let folding = thalweg_db::DatabasePolicy { folds: vec![(DAY_NS, WIDTH_NS)], ..Default::default() };
    db.set_policy("folded", &folding).unwrap();
    let start_ns = (db.now_ns() / DAY_NS - 4) * DAY_NS;
    db.write_lines("folded", hours_of_lines(start_ns, 1).as_bytes()).unwrap();
    db.compact(&mut |_| {}).unwrap();
    let budget = Arc::new(Budget::new(10_000_000));
    let rows = sql(&db, "folded", "SELECT * FROM t", 3, &budget);
    assert_eq!((rows.len(), budget.is_folded()), (12, true), "{rows:?}");
    let budget = Arc::new(Budget::new(10_000_000));
    let all = sql(&db, "folded", "SELECT count(*), sum(v), min(time) FROM t", 2, &budget);
    assert_eq!((all[0].as_str(), budget.is_folded()), (format!("Int(120) {}", float(119.0 * 60.0)).as_str(), false));
    let budget = Arc::new(Budget::new(10_000_000));
    let all = sql(&db, "folded", "SELECT count(v) FROM t", 1, &budget);
    assert_eq!((all[0].as_str(), budget.is_folded()), ("Int(120)", false));
    // A condition on labels is one of all samples of a fold, one on times is not.
    for (condition, count, is_folded) in [
        ("h IS NOT NULL", 120, false),
        ("h = 'b' OR time <> '2020-01-01'", 12, true),
        ("h = 'a' OR h IS NULL", 120, false),
    ] {
        let budget = Arc::new(Budget::new(10_000_000));
        let all = sql(&db, "folded", &format!("SELECT count(*) FROM t WHERE {condition}"), 1, &budget);
        assert_eq!((all[0].as_str(), budget.is_folded()), (format!("Int({count})").as_str(), is_folded), "{condition}");
    }
    // The first row that is left is the last one of its fold: a month begins before it.
    let budget = Arc::new(Budget::new(10_000_000));
    let months = sql(&db, "folded", "SELECT date_trunc('month', time), count(*), sum(v) FROM t GROUP BY 1", 3, &budget);
    assert_eq!((months.len(), budget.is_folded()), (1, false), "{months:?}");
    db.close().unwrap();
}

#[test]
fn what_a_fold_cannot_place_is_refused() {
    let (db, _folder) = scratch::open("folds-refused");
    let folding = thalweg_db::DatabasePolicy { folds: vec![(DAY_NS, WIDTH_NS)], ..Default::default() };
    db.set_policy("folded", &folding).unwrap();
    let start_ns = (db.now_ns() / DAY_NS - 4) * DAY_NS;
    let lines = hours_of_lines(start_ns, 2);
    db.write_lines("folded", lines.as_bytes()).unwrap();
    db.compact(&mut |_| {}).unwrap();
    // A row that is sent again, and one between others.
    for late_ns in [start_ns, start_ns + 30 * MINUTE_NS + 1] {
        let (report, _) = db.write_lines("folded", format!("t,h=a v=7 {late_ns}").as_bytes()).unwrap();
        assert_eq!((report.rows_written, report.rejected_total), (0, 1));
        assert!(report.rejected[0].reason.starts_with(thalweg_db::FOLDED_TIME), "{:?}", report.rejected);
    }
    // Rows of another series, and of time that is not folded, come in.
    let (report, _) = db.write_lines("folded", format!("t,h=b v=7 {start_ns}\nt,h=a v=8").as_bytes()).unwrap();
    assert_eq!((report.rows_written, report.rejected_total), (2, 0));
    let expected = |rows: i64, sum: f64| format!("Int({rows}) {}", float(sum));
    assert_eq!(count(&db, ""), expected(242, 239.0 * 120.0 + 15.0));
    db.compact(&mut |_| {}).unwrap();
    assert_eq!(count(&db, ""), expected(242, 239.0 * 120.0 + 15.0));
    // A delete takes folds as wholes.
    let delete = |from_ns: i64, to_ns: i64| {
        let query = influxql::Query::parse(
            &format!("DELETE FROM t WHERE h = 'a' AND time >= {from_ns} AND time < {to_ns}"),
            &BTreeMap::new(),
        );
        let session = influxql::RequestContext { database: Some("folded"), read_only: false };
        db.run_influxql(&query.unwrap(), 0, &session, &Budget::new(10_000_000))
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let refused = delete(start_ns + 60 * SECOND_NS, start_ns + HOUR_NS).unwrap_err();
    assert!(refused.contains("folded to summaries of 5m") && refused.contains(&start_ns.to_string()), "{refused}");
    assert!(delete(start_ns + WIDTH_NS, start_ns + HOUR_NS + 1).is_err());
    assert_eq!(count(&db, ""), expected(242, 239.0 * 120.0 + 15.0));
    delete(start_ns + WIDTH_NS, start_ns + HOUR_NS).unwrap();
    let left: i64 = (0..240).filter(|number| !(10..120).contains(number)).sum();
    assert_eq!(count(&db, ""), expected(132, left as f64 + 15.0));
    db.close().unwrap();
}

/// What series lose that are kept less long than others is whole folds, and is known of as long as the table is there.
#[test]
fn series_are_trimmed_to_whole_folds() {
    let (db, folder) = scratch::open("folds-trimmed");
    let folding = thalweg_db::DatabasePolicy { folds: vec![(DAY_NS, WIDTH_NS)], ..Default::default() };
    db.set_policy("folded", &folding).unwrap();
    let start_ns = (db.now_ns() / DAY_NS - 4) * DAY_NS;
    let lines = format!("{}t,h=b v=1 {start_ns}\nu,h=a v=1 {start_ns}", hours_of_lines(start_ns, 1));
    db.write_lines("folded", lines.as_bytes()).unwrap();
    db.compact(&mut |_| {}).unwrap();
    let gone = |db: &Db, table: &str| db.gone_before_ns("folded", &|asked| asked == table);
    let trim = |db: &Db, before_ns: i64| {
        let series = [vec![Matcher::new("h", MatchOp::Equal, "a")]];
        db.trim_series(("folded", "t"), &series, before_ns).unwrap()
    };
    assert_eq!((trim(&db, start_ns), gone(&db, "t")), (start_ns, None), "there is nothing before");
    assert_eq!(trim(&db, start_ns + WIDTH_NS + 90 * SECOND_NS), start_ns + WIDTH_NS);
    let expected = format!("Int(111) {}", float((10..120).sum::<i64>() as f64 + 1.0));
    assert_eq!(count(&db, ""), expected);
    assert_eq!([gone(&db, "t"), gone(&db, "u")], [Some(start_ns + WIDTH_NS), None]);
    db.compact(&mut |_| {}).unwrap();
    // An earlier time is no news.
    assert_eq!(trim(&db, start_ns + WIDTH_NS), start_ns + WIDTH_NS);
    db.close().unwrap();
    drop(db);
    let db = Db::open(platform::Platform::real(), thalweg_db::DbOptions::new(&folder.0)).unwrap();
    assert_eq!((count(&db, ""), gone(&db, "t")), (expected, Some(start_ns + WIDTH_NS)));
    // Nothing of the future goes.
    assert!(trim(&db, i64::MAX) <= db.now_ns());
    assert!(count(&db, "").starts_with("Int(1) "), "{}", count(&db, ""));
    let query = influxql::Query::parse("DROP MEASUREMENT t", &BTreeMap::new()).unwrap();
    let session = influxql::RequestContext { database: Some("folded"), read_only: false };
    db.run_influxql(&query, 0, &session, &Budget::new(1_000)).unwrap();
    assert_eq!(gone(&db, "t"), None);
    db.close().unwrap();
}

#[test]
fn a_strict_database_refuses_what_it_cannot_answer_exactly() {
    let (db, _folder) = scratch::open("folds-strict");
    let policy =
        |is_strict| thalweg_db::DatabasePolicy { folds: vec![(DAY_NS, WIDTH_NS)], is_strict, ..Default::default() };
    db.set_policy("folded", &policy(false)).unwrap();
    let start_ns = (db.now_ns() / DAY_NS - 4) * DAY_NS;
    db.write_lines("folded", hours_of_lines(start_ns, 2).as_bytes()).unwrap();
    db.compact(&mut |_| {}).unwrap();
    let instant = |text: &str| db.instant("folded", &InstantQuery::new(text, (start_ns + 2 * HOUR_NS) / 1_000_000 - 1));
    assert!(!instant("quantile_over_time(0.5, t_v[2h])").unwrap().warnings.is_empty());
    db.set_policy("folded", &policy(true)).unwrap();
    assert!(instant("quantile_over_time(0.5, t_v[2h])").unwrap_err().to_string().contains("strict"));
    assert!(instant("max_over_time(t_v[2h])").unwrap().warnings.is_empty());
    let refused = |text: &str| {
        let parsed = sql::parse(text).unwrap();
        db.sql(&parsed, 0, &ClientContext::new("folded", 0), &Arc::new(Budget::new(10_000_000))).err()
    };
    assert!(refused("SELECT count(v), median(v) FROM t").unwrap().to_string().contains("strict"));
    assert!(refused("SELECT * FROM t").is_some() && refused("SELECT count(v), count(*) FROM t").is_none());
    db.set_policy("folded", &policy(false)).unwrap();
    assert!(refused("SELECT * FROM t").is_none());
    db.close().unwrap();
}

//! What lies at an end of time, the newest rows and the first or last bins, is what a look at everything gives: in heads and parts, after
//! deletes and merges, and when it is asked for again, so that what is held of parts is used.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod scratch;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use platform::Platform;
use proptest::prelude::*;
use query::{Budget, Frame};
use sql::{ClientContext, Manner, Value};
use thalweg_db::{Db, DbOptions};

const SECOND_NS: i64 = 1_000_000_000;
/// 2016-01-01T00:00:00Z.
const START_NS: i64 = 1_451_606_400 * SECOND_NS;

/// Host, second, and the fields `v`, `w` and `i`.
type Row = (u8, i64, Option<i8>, Option<i8>, i64);

/// Something that changes what there is.
#[derive(Debug, Clone)]
enum Step {
    Write(Vec<Row>),
    /// Many rows of one host, every ten seconds, so that chunks are long.
    Stretch(u8, i64, i64),
    Delete(u8, i64, i64),
    Compact,
}

fn step() -> impl Strategy<Value = Step> {
    let value = || prop::option::of(any::<i8>());
    let row = (0u8..3, 0i64..40_000, value(), value(), -5i64..5);
    prop_oneof![
        4 => prop::collection::vec(row, 1..30).prop_map(Step::Write),
        3 => (0u8..3, 0i64..40_000, 1i64..400).prop_map(|(host, from, rows)| Step::Stretch(host, from, rows)),
        1 => (0u8..3, 0i64..40_000, 1i64..9_000).prop_map(|(host, from, length)| Step::Delete(host, from, from + length)),
        3 => Just(Step::Compact),
    ]
}

fn apply(db: &Db, step: &Step) {
    let at = |second: i64| START_NS + second * SECOND_NS;
    let mut lines = String::new();
    match step {
        Step::Write(rows) => {
            for (host, second, v, w, i) in rows {
                let field = |name: &str, value: &Option<i8>| value.map(|value| format!(",{name}={value}.5"));
                let fields = [field("v", v), field("w", w)].into_iter().flatten().collect::<String>();
                writeln!(lines, "t,h={host} i={i}i{fields} {}", at(*second)).unwrap();
                let (a, b) = (field("a", v), field("b", w));
                let compared = [a, b].into_iter().flatten().collect::<String>();
                writeln!(lines, "wide,h={host} c=1,d=2,e=3,f=4,g=5,j=6,k=7{compared} {}", at(*second)).unwrap();
            }
        }
        Step::Stretch(host, from, rows) => {
            for row in 0..*rows {
                writeln!(lines, "t,h={host} i={row}i,v={} {}", row % 17, at(from + row * 10)).unwrap();
            }
        }
        // Nothing is deleted of what does not exist.
        Step::Delete(..) if plan(db, r#"(->> (table "t"))"#).is_empty() => {}
        Step::Delete(host, from, to) => {
            let range = format!("time >= {} AND time <= {}", at(*from), at(*to));
            influxql(db, &format!("DELETE FROM t WHERE h = '{host}' AND {range}"));
        }
        Step::Compact => {
            db.compact(&mut |_| {}).unwrap();
        }
    }
    if !lines.is_empty() {
        let (_, errors) = db.write_lines("default", lines.as_bytes()).unwrap();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

fn plan(db: &Db, text: &str) -> Vec<Frame> {
    db.run_plan("default", &db.parse_plan(text).unwrap(), &Budget::new(10_000_000)).unwrap().frames
}

/// Columns, then rows as text.
fn influxql(db: &Db, text: &str) -> Vec<String> {
    let query = influxql::Query::parse(text, &BTreeMap::new()).unwrap();
    let session = influxql::RequestContext { database: Some("default"), read_only: false };
    let answer = db.run_influxql(&query, 0, &session, &db.budget(10_000_000)).unwrap();
    answer.series.iter().flat_map(|series| series.rows.values().into_owned()).map(|row| format!("{row:?}")).collect()
}

fn ask_sql(db: &Db, text: &str) -> Vec<Vec<Value>> {
    let session = ClientContext { manner: Manner::QuestDb, ..ClientContext::new("default", START_NS) };
    let parsed = sql::parse(text).unwrap();
    let answer = db.sql(&parsed, 0, &session, &Arc::new(Budget::new(10_000_000))).unwrap();
    answer.relation().unwrap_or_else(|| panic!("{text}: no rows")).rows
}

/// Labels, and of each row its time and cells; series without rows are not there.
fn shown(frames: &[Frame]) -> Vec<String> {
    let row = |frame: &Frame, row: usize| {
        let cells: Vec<String> =
            frame.columns.iter().map(|column| format!("{}={:?}", column.name, column.cell(row))).collect();
        format!("{:?} {:?} {}", frame.labels, frame.timestamps_ns.get(row), cells.join(" "))
    };
    frames.iter().flat_map(|frame| (0..frame.rows()).map(move |place| row(frame, place))).collect()
}

fn newest_first(mut frames: Vec<Frame>, rows: usize) -> Vec<Frame> {
    for frame in &mut frames {
        let places: Vec<usize> = (0..frame.rows()).rev().take(rows).collect();
        *frame = frame.pick(&places);
    }
    frames
}

/// The latest row of each host up to a time is the last of all rows, whether or not it is held of parts.
fn check_latest(db: &Db, table: &str, until_ns: i64) {
    if plan(db, &format!(r#"(->> (table "{table}"))"#)).is_empty() {
        return;
    }
    let of = if until_ns == i64::MAX {
        table.to_owned()
    } else {
        format!("{table} WHERE timestamp <= '{}'", sql::format_rfc3339_us(until_ns))
    };
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    for row in ask_sql(db, &format!("SELECT * FROM {of}")) {
        last.insert(format!("{:?}", row[1]), format!("{row:?}"));
    }
    let mut last: Vec<String> = last.into_values().collect();
    last.sort();
    for _ in 0..3 {
        let latest = ask_sql(db, &format!("SELECT * FROM {of} LATEST BY h"));
        let mut latest: Vec<String> = latest.iter().map(|row| format!("{row:?}")).collect();
        latest.sort();
        assert_eq!(latest, last, "{of}");
    }
}

/// Newest rows, and rows near the end, are those of all rows.
fn check_newest(db: &Db, rows: usize, since_s: i64) {
    let all = plan(db, r#"(->> (table "t"))"#);
    let asked = format!(r#"(->> (table "t") (order #TS desc) (limit {rows}))"#);
    // Again and again: what is held from the second time on is used then.
    for _ in 0..3 {
        assert_eq!(shown(&plan(db, &asked)), shown(&newest_first(all.clone(), rows)));
    }
    for fields in ["", r#" '("v")"#, r#" '("w" "i")"#] {
        let cut = |range: &str| shown(&plan(db, &format!(r#"(->> (rows-of "t"{fields}) {range})"#)));
        let newest_ns = all.iter().filter_map(|frame| frame.timestamps_ns.last()).max().copied().unwrap_or(START_NS);
        let from_ns = newest_ns - since_s * SECOND_NS;
        let expected: Vec<Frame> = plan(db, &format!(r#"(->> (rows-of "t"{fields}))"#))
            .into_iter()
            .map(|frame| {
                let places: Vec<usize> = (0..frame.rows()).filter(|row| frame.timestamps_ns[*row] >= from_ns).collect();
                frame.pick(&places)
            })
            .collect();
        assert_eq!(cut(&format!("(range {from_ns} {})", newest_ns + 1)), shown(&expected), "{fields}");
    }
    for (table, until_ns) in [("t", i64::MAX), ("wide", i64::MAX), ("t", START_NS + since_s * SECOND_NS)] {
        check_latest(db, table, until_ns);
    }
}

/// Rows for which a condition holds are those of all rows, also of groups with many more columns than are compared.
fn check_conditions(db: &Db) {
    let holds = |frame: &Frame, row: usize, column: &str, least: f64| {
        frame.column(column).and_then(|column| column.cell(row).number()).is_some_and(|value| value > least)
    };
    for (condition, least) in [("(> #a 40)", [40.0, f64::MAX]), ("(or (> #a 90) (< 126.5 #b))", [90.0, 126.5])] {
        let mut expected = plan(db, r#"(->> (table "wide"))"#);
        for frame in &mut expected {
            let is_kept = |row: &usize| holds(frame, *row, "a", least[0]) || holds(frame, *row, "b", least[1]);
            let places: Vec<usize> = (0..frame.rows()).filter(is_kept).collect();
            *frame = frame.pick(&places);
        }
        expected.retain(|frame| frame.rows() > 0);
        let found = plan(db, &format!(r#"(->> (table "wide") (where {condition}))"#));
        assert_eq!(present(&found), present(&expected), "{condition}");
    }
}

/// The same without nulls: whoever compares a column that a group does not have gets it with nothing in it.
fn present(frames: &[Frame]) -> Vec<String> {
    shown(frames).iter().map(|row| row.split(' ').filter(|cell| !cell.ends_with("=Null")).collect()).collect()
}

/// Bins at an end are the same as when all are made.
fn check_bins(db: &Db, width_s: i64, rows: usize, range: (i64, i64), descending: bool) {
    let at = |second: i64| START_NS + second * SECOND_NS;
    let (from_ns, to_ns) = (at(range.0), at(range.0 + range.1));
    for condition in ["", "(where (> #v 3))", "(where (> #i 1))"] {
        for kept in [r#"(max "v")"#, r#"(avg "v") (count "w")"#, r#"(min "i") (last "v") (count #TS)"#] {
            let all = format!(
                r#"(->> (rows-of "t") (range {from_ns} {to_ns}) {condition} (groupby {width_s}s '({kept}) (offset 7s) (by '())))"#
            );
            let order = if descending { "(order #TS desc)" } else { "" };
            let found = plan(db, &format!("(->> {all} {order} (limit {rows}))"));
            let mut expected = plan(db, &all);
            if descending {
                expected = newest_first(expected, rows);
            } else {
                expected
                    .iter_mut()
                    .for_each(|frame| *frame = frame.pick(&(0..rows.min(frame.rows())).collect::<Vec<_>>()));
            }
            assert_eq!(shown(&found), shown(&expected), "{all}");
        }
    }
    // Columns are named by what is there.
    if plan(db, r#"(->> (table "t"))"#).is_empty() {
        return;
    }
    let direction = if descending { " ORDER BY timestamp DESC" } else { "" };
    for fill in ["", " FILL(PREV)"] {
        let text = format!("SELECT timestamp, avg(i), max(i) FROM t SAMPLE BY {width_s}s{fill}{direction}");
        let mut all = ask_sql(db, &text);
        all.truncate(rows);
        assert_eq!(ask_sql(db, &format!("{text} LIMIT {rows}")), all, "{text}");
    }
    let direction = if descending { " order by time desc" } else { "" };
    for fill in ["none", "null", "0", "previous", "linear"] {
        for call in ["max(i)", "mean(v)", "count(w)"] {
            let text = format!(
                "SELECT {call} FROM t WHERE time >= {from_ns} AND time < {to_ns} GROUP BY time({width_s}s) fill({fill}){direction}"
            );
            let all = influxql(db, &text);
            let found = influxql(db, &format!("{text} LIMIT {rows} OFFSET 2"));
            let expected: Vec<String> = all.into_iter().skip(2).take(rows).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn ends_are_those_of_everything(
        steps in prop::collection::vec(step(), 1..10),
        rows in 1usize..6,
        width_s in prop_oneof![Just(10i64), Just(60), Just(3600), 20i64..9_000],
        range in (0i64..40_000, 100i64..44_000),
        since_s in prop_oneof![Just(0i64), 0i64..400],
        descending in any::<bool>(),
    ) {
        let (db, folder) = scratch::open("ends");
        for step in &steps {
            apply(&db, step);
            check_newest(&db, rows, since_s);
        }
        check_conditions(&db);
        check_bins(&db, width_s, rows, range, descending);
        let asked = [
            r#"(->> (table "t"))"#.to_owned(),
            format!(r#"(->> (table "t") (order #TS desc) (limit {rows}))"#),
            format!(r#"(->> (table "t") (groupby {width_s}s '((max "v") (avg "v") (sum "i"))))"#),
        ];
        let before = asked.each_ref().map(|text| shown(&plan(&db, text)));
        db.close().unwrap();
        drop(db);
        // Whoever has just opened the folder holds nothing of it.
        let db = Db::open(Platform::real(), DbOptions::new(&folder.0)).unwrap();
        for (text, before) in asked.iter().zip(&before) {
            prop_assert_eq!(&shown(&plan(&db, text)), before, "{}", text);
        }
        db.close().unwrap();
    }
}

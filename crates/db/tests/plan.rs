//! Plans against data that was written as lines: FrogFishDB's own queries, every operator, and random data against a map.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod scratch;

use std::collections::BTreeMap;
use std::fmt::Write;

use proptest::prelude::*;
use query::{Budget, Cell, Frame, Outcome, QueryError};
use scratch::Folder;
use thalweg_db::Db;

const MINUTE_NS: i64 = 60_000_000_000;
const HOUR_NS: i64 = 60 * MINUTE_NS;
/// 2016-01-01T00:00:00Z.
const START_NS: i64 = 1_451_606_400_000_000_000;

fn open(name: &str) -> (Db, Folder) {
    scratch::open(&format!("plan-{name}"))
}

fn ask(db: &Db, text: &str) -> Result<Outcome, QueryError> {
    db.run_plan("default", &db.parse_plan(text)?, &Budget::new(10_000_000))
}

/// An answer in a line: `labels|time:cells time:cells`, times in minutes since [`START_NS`], series behind one another.
fn show(frames: &[Frame]) -> String {
    let cell = |cell: Cell<'_>| match cell {
        Cell::Null => "null".to_owned(),
        Cell::F64(value) => format!("{value}"),
        Cell::I64(value) => format!("{value}i"),
        Cell::U64(value) => format!("{value}u"),
        Cell::Bool(value) => format!("{value}"),
        Cell::Text(text) => format!("{text:?}"),
    };
    let frame = |frame: &Frame| {
        let labels: Vec<String> = frame.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let row = |(row, time_ns): (usize, &i64)| {
            let cells: Vec<String> = frame.columns.iter().map(|column| cell(column.cell(row))).collect();
            format!("{}:{}", (time_ns - START_NS) / MINUTE_NS, cells.join(","))
        };
        let rows: Vec<String> = frame.timestamps_ns.iter().enumerate().map(row).collect();
        format!("{}|{}", labels.join(","), rows.join(" "))
    };
    frames.iter().map(frame).collect::<Vec<_>>().join("; ")
}

/// Two hosts, a value every 30 minutes for four hours; `a` counts 0, 10, 20 …, `b` twice that; and a bare metric.
fn hosts() -> (Db, Folder) {
    let (db, folder) = open(&format!("hosts-{:?}", std::thread::current().id()).replace(['(', ')'], ""));
    let mut lines = String::new();
    for step in 0..8i64 {
        let time_ns = START_NS + step * 30 * MINUTE_NS;
        for (host, region, factor) in [("host_0", "north", 1), ("host_1", "south", 2)] {
            writeln!(
                lines,
                "cpu,hostname={host},region={region} usage={} {time_ns}\nbytes,hostname={host} value={}i {time_ns}",
                step * 10 * factor,
                step * factor
            )
            .unwrap();
        }
    }
    writeln!(lines, "word,hostname=host_0 value=\"up\" {START_NS}").unwrap();
    let (_, errors) = db.write_lines("default", lines.as_bytes()).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    (db, folder)
}

/// Queries and what they give of [`hosts`].
const CASES: &[(&str, &str)] = &[
    // The thesis's listings 4, 6, 7 and 8, with this data's times.
    (
        r#"(->> (metric "cpu_usage") (tag "hostname" '("host_0")))"#,
        "__name__=cpu_usage,hostname=host_0,region=north|0:0 30:10 60:20 90:30 120:40 150:50 180:60 210:70",
    ),
    (
        r#"(->> (metric "cpu_usage") (tag "hostname" '("host_0")) (range 1451610000000000000 1451613600000000000))"#,
        "__name__=cpu_usage,hostname=host_0,region=north|60:20 90:30",
    ),
    (
        r#"(->> (metric "cpu_usage") (tag "hostname" '("host_0")) (groupby 1h max))"#,
        "__name__=cpu_usage,hostname=host_0,region=north|0:10 60:30 120:50 180:70",
    ),
    (
        r#"(->> (metric "cpu_usage") (tag "hostname" '("host_0")) (where (and (< #TS 1451613600000000000) (> #V 15))))"#,
        "__name__=cpu_usage,hostname=host_0,region=north|60:20 90:30",
    ),
    // Several series, labels left out and put together.
    (
        r#"(->> (metric "cpu_usage") (tag "hostname" '("host_0" "host_1" "host_2")) (groupby 2h '(min max avg count sum first last)))"#,
        "__name__=cpu_usage,hostname=host_0,region=north|0:0,30,15,4i,60,0,30 120:40,70,55,4i,220,40,70; \
         __name__=cpu_usage,hostname=host_1,region=south|0:0,60,30,4i,120,0,60 120:80,140,110,4i,440,80,140",
    ),
    (r#"(->> (metric "cpu_usage") (groupby 2h sum (by '())))"#, "|0:180 120:660"),
    (
        r#"(->> (metric "cpu_usage") (tag-not "hostname" "host_1") (groupby all '(count last) (by "region")))"#,
        "region=north|0:8i,70",
    ),
    (
        r#"(->> (all) (tag-match "__name__" "b.*") (tag-match "hostname" ".*_1") (limit 2))"#,
        "__name__=bytes,hostname=host_1|0:0i 30:2i",
    ),
    // Whole numbers stay whole.
    (r#"(->> (metric "bytes") (groupby 2h '(max sum avg) (by '())))"#, "|0:6i,18i,2.25 120:14i,66i,8.25"),
    (
        r#"(->> (metric "cpu_usage") (tag "hostname" "host_0") (groupby 4h '((quantile 0.5) stddev)))"#,
        "__name__=cpu_usage,hostname=host_0,region=north|0:35,22.9128784747792",
    ),
    // Edges of the range cut bins.
    (
        r#"(->> (metric "cpu_usage") (tag "hostname" "host_0") (range 1451608200000000000 1451615400000000000) (groupby 1h '(count sum)))"#,
        "__name__=cpu_usage,hostname=host_0,region=north|0:1i,10 60:2i,50 120:1i,40",
    ),
    // Arithmetic, nested queries, joins.
    (
        r#"(/ (->> (metric "cpu_usage") (groupby 2h max (by "hostname"))) (->> (metric "bytes") (groupby 2h max)))"#,
        "hostname=host_0|0:10 120:10; hostname=host_1|0:10 120:10",
    ),
    (
        r#"(->> (* (->> (metric "bytes") (tag "hostname" "host_0")) 2) (where (> #V 11)))"#,
        "__name__=bytes,hostname=host_0|180:12 210:14",
    ),
    (r#"(->> (->> (metric "cpu_usage") (groupby 1h max)) (groupby 4h avg (by '())))"#, "|0:60"),
    (
        r#"(->> (join left (->> (metric "bytes") (tag "hostname" "host_0")) (->> (metric "cpu_usage") (where (> #V 55))) (on "hostname")) (range 1451615400000000000 1451619000000000000))"#,
        "hostname=host_0|150:5i,null 180:6i,60",
    ),
    (
        r#"(->> (join asof (->> (metric "bytes") (tag "hostname" "host_0")) (->> (metric "cpu_usage") (tag "hostname" "host_0") (groupby 2h first)) (on "hostname") (within 1h)) (map "b" #left "f" (+ #right 0.5)))"#,
        "hostname=host_0|0:0i,0.5 30:1i,0.5 60:2i,0.5 90:3i,null 120:4i,40.5 150:5i,40.5 180:6i,40.5 210:7i,null",
    ),
    (r#"(->> (union (->> (metric "bytes") (limit 1)) (->> (metric "word"))) (tag-nothing))"#, "error: 1:"),
    (
        r#"(->> (union (->> (metric "bytes") (tag "hostname" "host_0") (limit 1)) (->> (metric "word"))))"#,
        "__name__=bytes,hostname=host_0|0:0i; __name__=word,hostname=host_0|0:\"up\"",
    ),
    // Order, limit, fill.
    (
        r#"(->> (metric "bytes") (tag "hostname" "host_0") (order #V desc) (limit 2 1))"#,
        "__name__=bytes,hostname=host_0|180:6i 150:5i",
    ),
    (
        r#"(->> (metric "bytes") (tag "hostname" "host_0") (limit 3) (fill 15m linear))"#,
        "__name__=bytes,hostname=host_0|0:0 15:0.5 30:1 45:1.5 60:2",
    ),
    (
        r#"(->> (metric "bytes") (tag "hostname" "host_0") (where (or (= #V 1) (= #V 4))) (groupby 30m last) (fill previous))"#,
        "__name__=bytes,hostname=host_0|30:1i 60:1i 90:1i 120:4i",
    ),
    (
        r#"(->> (metric "bytes") (tag "hostname" "host_0") (where (or (= #V 1) (= #V 3))) (groupby 30m last) (fill null))"#,
        "__name__=bytes,hostname=host_0|30:1i 60:null 90:3i",
    ),
    (
        r#"(->> (metric "cpu_usage") (where (= (label "region") "south")) (map (abs (- 5 (floor (/ #V 30))))) (limit 3))"#,
        "__name__=cpu_usage,hostname=host_1,region=south|0:5 30:5 60:4",
    ),
    // What cannot be.
    (r#"(->> (metric "word") (where (> #V 1)))"#, "error: `>` cannot compare a text with a integer"),
    (r#"(->> (metric "bytes") (where (> #W 1)))"#, "error: #W is none of the columns: there are #value"),
    (r#"(->> (metric "bytes") (where #V))"#, "error: a condition is true or false, not a integer: #V"),
    (
        r#"(join inner (->> (metric "bytes")) (->> (metric "cpu_usage")) (on "nothing"))"#,
        "error: several series of the join's right side",
    ),
    (r#"(->> (all) (tag-match "hostname" "("))"#, "error: "),
    (r#"(->> (metric "nothing") (groupby 1h max))"#, ""),
];

#[test]
fn queries_give_what_they_say() {
    let (db, _folder) = hosts();
    let check = |when: &str| {
        for (text, expected) in CASES {
            match ask(&db, text) {
                Ok(outcome) => assert_eq!(show(&outcome.frames), *expected, "{when}: {text}"),
                Err(error) => {
                    let error = format!("error: {error}");
                    assert!(expected.starts_with("error: ") && error.starts_with(expected), "{when}: {text}: {error}");
                }
            }
        }
    };
    check("in heads");
    db.compact(&mut |_| {}).unwrap();
    check("in parts");
    db.close().unwrap();
}

/// The thesis's listing 5 and its queries 2 and 5: series by the number that registering gave.
#[test]
fn series_are_found_by_index() {
    let (db, _folder) = open("index");
    let labels = |host: usize| model::Labels::from_pairs([("hostname", format!("host_{host}"))]).unwrap();
    let series: Vec<_> = (0..100).map(|host| ("usage_user", labels(host))).collect();
    let tokens = db.register_series("default", &series).unwrap();
    let mut appender = db.appender();
    for (place, token) in tokens.iter().enumerate() {
        for minute in 0..30 {
            appender.sample(*token, START_NS + minute * MINUTE_NS, (place as i64 * 100 + minute) as f64).unwrap();
        }
    }
    appender.commit().unwrap();
    let token = tokens[7].to_bits();
    let range = format!("(range {} {})", START_NS + 10 * MINUTE_NS, START_NS + 32 * MINUTE_NS);
    let shown = |text: &str| show(&ask(&db, text).unwrap().frames);
    assert!(shown(&format!("(->> (index {token}))")).starts_with("__name__=usage_user,hostname=host_7|0:700 1:701 "));
    assert_eq!(
        shown(&format!("(->> (index {token}) {range} (groupby 15m max))")),
        "__name__=usage_user,hostname=host_7|0:714 15:729"
    );
    assert_eq!(
        shown("(->> (index 39747) (range 1452120960000000000 1452123510000000000))"),
        "",
        "nobody registered it"
    );
    assert_eq!(shown("(->> (index 39747) (range 1452120960000000000 1452123510000000000) (groupby 15m max))"), "");
    db.close().unwrap();
}

#[test]
fn a_query_beyond_its_budget_says_so() {
    let (db, _folder) = hosts();
    for text in [
        r#"(->> (metric "cpu_usage"))"#,
        r#"(->> (metric "cpu_usage") (groupby 1s max))"#,
        r#"(->> (metric "bytes") (limit 2) (fill 1ms 0))"#,
    ] {
        let plan = db.parse_plan(text).unwrap();
        let error = db.run_plan("default", &plan, &Budget::new(6)).unwrap_err();
        assert_eq!(error, QueryError::TooManySamples { limit: 6 }, "{text}");
    }
    db.close().unwrap();
}

/// Smallest, largest, count, sum and last by host and bin.
type Bins = BTreeMap<(u8, i64), (i64, i64, i64, i64, i64)>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Bins of random rows, some late, some rewritten, in heads, parts and both, are what a map makes of them.
    #[test]
    fn bins_are_what_a_map_makes_of_the_rows(
        rows in proptest::collection::vec((0u8..3, 0i64..600, -1000i64..1000), 1..300),
        settled in 0usize..300,
        width_minutes in 1i64..200,
        range in (0i64..600, 1i64..600),
    ) {
        let (db, _folder) = open("random");
        let mut oracle: BTreeMap<(u8, i64), i64> = BTreeMap::new();
        for written in [&rows[..settled.min(rows.len())], &rows[settled.min(rows.len())..]] {
            let mut lines = String::new();
            for (host, minute, value) in written {
                writeln!(lines, "m,h={host} value={value} {}", START_NS + minute * MINUTE_NS).unwrap();
                oracle.insert((*host, *minute), *value);
            }
            db.write_lines("default", lines.as_bytes()).unwrap();
            if settled % 2 == 0 || oracle.len() < 100 {
                db.compact(&mut |_| {}).unwrap();
            }
        }
        let (from, to) = (range.0, range.0 + range.1);
        let mut expected: Bins = BTreeMap::new();
        for ((host, minute), value) in oracle.range(..).filter(|((_, minute), _)| (from..to).contains(minute)) {
            let time_ns = START_NS + minute * MINUTE_NS;
            let bin = time_ns - time_ns.rem_euclid(width_minutes * MINUTE_NS);
            let sums = expected.entry((*host, bin)).or_insert((*value, *value, 0, 0, *value));
            *sums = (sums.0.min(*value), sums.1.max(*value), sums.2 + 1, sums.3 + value, *value);
        }
        let text = format!(
            r#"(->> (metric "m") (range {} {}) (groupby {width_minutes}m '(min max count sum last)))"#,
            START_NS + from * MINUTE_NS, START_NS + to * MINUTE_NS
        );
        let mut found = BTreeMap::new();
        for frame in ask(&db, &text).unwrap().frames {
            let host: u8 = frame.labels.get("h").unwrap().parse().unwrap();
            for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
                let cells: Vec<i64> = frame.columns.iter().map(|column| column.cell(row).number().unwrap() as i64).collect();
                found.insert((host, *time_ns), (cells[0], cells[1], cells[2], cells[3], cells[4]));
            }
        }
        prop_assert_eq!(found, expected);
        db.close().unwrap();
    }
}

#[test]
fn summaries_stand_for_samples() {
    let (db, _folder) = open("summaries");
    let mut lines = String::new();
    for step in 0..20_000i64 {
        writeln!(lines, "m value={} {}", step % 97, START_NS + step * 10_000_000_000).unwrap();
    }
    db.write_lines("default", lines.as_bytes()).unwrap();
    db.compact(&mut |_| {}).unwrap();
    let outcome = ask(&db, r#"(->> (metric "m") (groupby 1d max))"#).unwrap();
    assert_eq!(show(&outcome.frames), "__name__=m|0:96 1440:96 2880:96");
    assert!(outcome.reads.nodes > 0 && outcome.reads.window_rows < 10_000, "{:?}", outcome.reads);
    assert_eq!(outcome.steps.len(), 1);
    assert_eq!(START_NS % (24 * HOUR_NS), 0);
    db.close().unwrap();
}

/// Rows of a table whose columns are not all written at every time, of every type, and what is asked of them.
const TABLE_LINES: &str = "t,h=a f=1,i=1i,u=1u,b=true,s=\"x\" 0\nt,h=a f=2 60000000000\nt,h=a i=3i,s=\"y\" 120000000000\n\
                           t,h=b,r=n f=4,b=false 60000000000\nt,h=a f=5,i=5i,u=5u,b=false,s=\"w\" 180000000000\n";

const TABLE_CASES: &[(&str, &str)] = &[
    (
        r#"(->> (table "t"))"#,
        "h=a|0:1,1i,1u,true,\"x\" 1:2,null,null,null,null 2:null,3i,null,null,\"y\" 3:5,5i,5u,false,\"w\"; h=b,r=n|1:4,false",
    ),
    (r#"(->> (table "t" '("i")) (tag "h" "a"))"#, "h=a|0:1i 1:null 2:3i 3:5i"),
    (r#"(->> (table "t") (where (> #f 1.5)))"#, "h=a|1:2,null,null,null,null 3:5,5i,5u,false,\"w\"; h=b,r=n|1:4,false"),
    (
        r#"(->> (table "t") (groupby 2m '((max "f") (count "i") (first "s") (last "b") (sum "i"))))"#,
        "h=a|0:2,1i,\"x\",true,1i 2:5,2i,\"y\",false,8i; h=b,r=n|0:4,null,null,false,null",
    ),
    (r#"(->> (table "t") (groupby all '((max "f") (min "f") (avg "i")) (by '())))"#, "|0:5,1,3"),
    (r#"(->> (table "t") (groupby 2m (count #TS) (offset 1m) (by '())))"#, "|-1:1i 1:3i 3:1i"),
    (r#"(->> (table "t") (where (= (label "r") "n")) (groupby all (max "f")))"#, "h=b,r=n|1:4"),
    (
        r#"(->> (rows-of "t") (tag "h" "a") (map "x" (if (> #f 1.5) #f (is_null #f) -1) "n" (is_null #i) "c" (compare #f (/ 0 0)) "d" (compare #i #f)))"#,
        "h=a|0:null,false,-1i,0i 1:2,true,-1i,null 2:-1,false,null,null 3:5,false,-1i,0i",
    ),
    // What is computed right before bins are made: of columns that a series does not have, and where all is null.
    (
        r#"(->> (rows-of "t") (map "x" (* #f #i) "one" (if #b 1) "f" #f) (groupby 2m '((sum "x") (count "one") (max "f"))))"#,
        "h=a|0:1,1i,2 2:25,null,5; h=b,r=n|0:null,null,4",
    ),
    (
        r#"(->> (rows-of "t") (where (< #f 5)) (map "x" (if (> #f 100) 1)) (groupby 1m (sum "x") (by '())))"#,
        "|0:null 1:null",
    ),
    (r#"(->> (table "t") (order #TS desc) (limit 1))"#, "h=a|3:5,5i,5u,false,\"w\"; h=b,r=n|1:4,false"),
    (r#"(->> (table "nothing"))"#, ""),
    // A group and a bin are there by their rows.
    (r#"(->> (table "t") (groupby 2m (max "u")))"#, "h=a|0:1u 2:5u"),
    (r#"(->> (rows-of "t") (groupby 2m (max "u")))"#, "h=a|0:1u 2:5u; h=b,r=n|0:null"),
    (
        r#"(->> (rows-of "t") (groupby 1m '((max "u") (count "s"))))"#,
        "h=a|0:1u,1i 1:null,null 2:null,1i 3:5u,1i; h=b,r=n|1:null,null",
    ),
    (r#"(->> (rows-of "t") (groupby all (sum "i") (by '("h"))))"#, "h=a|0:9i; h=b|1:null"),
];

#[test]
fn tables_have_rows_of_fields() {
    let (db, _folder) = open("tables");
    let mut lines = String::new();
    for (line, time_ns) in TABLE_LINES.lines().filter_map(|line| line.rsplit_once(' ')) {
        writeln!(lines, "{line} {}", START_NS + time_ns.parse::<i64>().unwrap()).unwrap();
    }
    db.write_lines("default", lines.as_bytes()).unwrap();
    for settled in [false, true] {
        if settled {
            db.compact_all().unwrap();
        }
        for (text, expected) in TABLE_CASES {
            let found = ask(&db, text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(show(&found.frames), *expected, "{text}, settled: {settled}");
        }
    }
}

/// Rows are charged as they are given, also where only the condition reads a column, which a series does not have.
#[test]
fn rows_of_conditions_are_charged_as_they_are() {
    let (db, _folder) = open("charged");
    db.write_lines("default", format!("t,h=a x=1,y=2 {START_NS}\nt,h=b y=3 {START_NS}").as_bytes()).unwrap();
    for (text, rows) in [
        ("(->> (rows-of \"t\") (where (is_null #x)))", 1),
        ("(->> (rows-of \"t\") (where (or (is_null #x) (is_null #z))))", 2),
        (
            "(->> (rows-of \"t\") (as-of (->> (rows-of \"t\")) (columns '(\"of_t\" \"x\"))) (where (is_null #z)) (groupby 1m '((count #TS)) (by '())))",
            1,
        ),
        // Both rows find the one of h=b, and are one series then.
        ("(->> (rows-of \"t\") (as-of (->> (rows-of \"t\")) (labels '(\"h\" \"h\")) (columns '(\"of\" \"h\"))))", 2),
        (
            "(->> (rows-of \"t\") (as-of (->> (rows-of \"t\")) (labels '(\"h\" \"h\")) (tag \"h\" \"a\")) (groupby 1m '((count #TS)) (by '())))",
            0,
        ),
    ] {
        let budget = Budget::new(1_000);
        let outcome = db.run_plan("default", &db.parse_plan(text).unwrap(), &budget).unwrap();
        assert_eq!(outcome.frames.iter().map(Frame::rows).sum::<usize>(), rows, "{text}");
        let samples: usize = outcome.frames.iter().map(|frame| frame.rows() * frame.columns.len()).sum();
        assert_eq!(budget.samples(), samples as u64, "{text}");
    }
}

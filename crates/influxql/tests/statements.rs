//! InfluxQL over databases in memory: statements and their answers as InfluxDB 1.6 gave them, in `statements/cases.txt`.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt::Write;

use query::testing::MemoryDatabases;
use query::{Budget, QueryError};
use thalweg_influxql::{Answer, Query, RequestContext, Series, TimeFormat, Value};

const LINES: &str = "m,h=a,r=x i=1i,f=1.5,s=\"p\",b=true 0\nm,h=a,r=x i=2i,f=2.5 10000000000\n\
                     m,h=a,r=x f=-3.5,s=\"q\" 20000000000\nm,h=a,r=x i=7i,b=false 65000000000\nm,h=b,r=x i=10i,f=5 0\n\
                     m,h=b,r=x i=20i 10000000000\nm,h=b,r=x i=30i,f=8 61000000000\n\
                     m,h=c,r=y i=3i,f=4,s=\"p\",b=true 5000000000\nm,h=c,r=y i=3i,f=4,s=\"z\",b=true 125000000000\n\
                     n,h=a v=1 0\nn,h=a v=2 60000000000\n";

fn ask(db: &MemoryDatabases, text: &str) -> Result<Answer, QueryError> {
    let query = Query::parse(text, &BTreeMap::new())?;
    let request = RequestContext { database: Some("t"), read_only: false };
    let budget = Budget::sharing(1_000_000, &db.store.memory().queries());
    let mut last = Answer::default();
    for number in 0..query.len() {
        last = query.run(number, &db.session(&budget), &request)?;
    }
    Ok(last)
}

/// As the cases have it: a line for each series and each row.
fn show(db: &MemoryDatabases, text: &str) -> String {
    match ask(db, text) {
        Err(_) => "error".to_owned(),
        Ok(answer) => answer.series.iter().map(show_series).collect::<Vec<_>>().join("\n"),
    }
}

fn show_series(series: &Series) -> String {
    let tags: Vec<String> = series.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let tags = if tags.is_empty() { String::new() } else { format!("{{{}}}", tags.join(",")) };
    let mut out = format!("{}{tags} {}", series.name, series.columns.join(",")).trim().to_owned();
    for row in sorted_by_time(&series.rows.values()) {
        out.push_str("\n ");
        for value in row {
            let _ = write!(out, " {}", show_value(series, value));
        }
    }
    out
}

/// Rows of one time in an order of their own: which comes first is not said.
fn sorted_by_time(rows: &[Vec<Value>]) -> Vec<&Vec<Value>> {
    let mut sorted: Vec<&Vec<Value>> = Vec::new();
    for rows_of_one_time in rows.chunk_by(|a, b| a.first() == b.first()) {
        let mut rows_of_one_time: Vec<&Vec<Value>> = rows_of_one_time.iter().collect();
        rows_of_one_time.sort_by_key(|row| format!("{row:?}"));
        sorted.extend(rows_of_one_time);
    }
    sorted
}

fn show_value(series: &Series, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Float(value) => {
            let text = format!("{value:.9}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        Value::Int(value) => value.to_string(),
        Value::Unsigned(value) => value.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Text(_) | Value::Interval(_) | Value::LocalTimestamp(_) | Value::Date(_) => value.to_string(),
        Value::Timestamp(time_ns) => {
            let mut out = String::new();
            series.write_time(&mut out, *time_ns, TimeFormat::Number { unit_ns: 1_000_000 }).unwrap();
            out
        }
    }
}

/// The lines of one time in the same order as [`sorted_by_time`] gives them.
fn same(found: &str, expected: &str) -> bool {
    let parts = |text: &str| {
        let mut lines: Vec<(usize, String, String)> = Vec::new();
        let (mut series, mut before) = (0, String::new());
        for line in text.lines() {
            let time = line.strip_prefix("  ").and_then(|row| row.split(' ').next()).unwrap_or("").to_owned();
            if !line.starts_with("  ") || time != before {
                series += 1;
            }
            before.clone_from(&time);
            lines.push((series, time, line.to_owned()));
        }
        lines.sort();
        lines
    };
    parts(found) == parts(expected)
}

#[test]
fn answers_are_those_of_influxdb() {
    let db = MemoryDatabases::new().unwrap();
    db.write_lines("t", LINES.as_bytes()).unwrap();
    let mut wrong = Vec::new();
    for compacted in [false, true] {
        if compacted {
            db.store.compact_all().unwrap();
        }
        for case in include_str!("statements/cases.txt").trim().split("\n\n") {
            let (statement, expected) = case.split_once('\n').unwrap_or((case, ""));
            let statement = statement.strip_prefix("> ").unwrap();
            let found = show(&db, statement);
            if !same(&found, expected.trim_end()) {
                wrong.push(format!("{statement} (compacted: {compacted})\nfound\n{found}\nexpected\n{expected}\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn databases_come_and_go() {
    let db = MemoryDatabases::new().unwrap();
    ask(&db, "create database t; create database other with duration 30d replication 1").unwrap();
    assert_eq!(show(&db, "show databases"), "databases name\n  other\n  t");
    assert!(show(&db, "show retention policies on other").contains("720h0m0s"));
    ask(&db, "alter retention policy autogen on other duration 7d default").unwrap();
    assert!(show(&db, "show retention policies on other").contains("168h0m0s"));
    db.write_lines("t", LINES.as_bytes()).unwrap();
    db.store.compact_all().unwrap();
    let part_bytes = |db: &MemoryDatabases| db.store.stats().levels.iter().map(|level| level.bytes).sum::<u64>();
    assert!(part_bytes(&db) > 0);
    ask(&db, "drop database t").unwrap();
    assert_eq!(part_bytes(&db), 0, "the room is given back");
    assert_eq!(show(&db, "show databases"), "databases name\n  other");
    assert_eq!(show(&db, "select * from m"), "error");
    // The same names may have other types now.
    db.write_lines("t", b"m,h=a i=\"text\" 0").unwrap();
    assert_eq!(show(&db, "select * from m"), "m time,h,i\n  0 a text");
}

#[test]
fn a_dropped_database_stays_dropped() {
    let mut db = MemoryDatabases::new().unwrap();
    db.write_lines("t", LINES.as_bytes()).unwrap();
    ask(&db, "drop database t").unwrap();
    db.write_lines("t", b"m v=5 0").unwrap();
    for _ in 0..2 {
        db = db.reopened().unwrap();
        assert_eq!(db.store.databases(), ["t"]);
        assert_eq!(show(&db, "select * from m"), "m time,v\n  0 5");
        db.store.flush_all().unwrap();
    }
}

#[test]
fn rows_are_deleted_by_tags_and_time() {
    let db = MemoryDatabases::new().unwrap();
    db.write_lines("t", LINES.as_bytes()).unwrap();
    ask(&db, "delete from m where h = 'a' and time < 15s").unwrap();
    assert_eq!(show(&db, "select i from m where h = 'a'"), "m time,i\n  65000 7");
    ask(&db, "delete where h = 'b' or r = 'y'").unwrap();
    assert_eq!(show(&db, "select i from m"), "m time,i\n  65000 7");
    assert_eq!(show(&db, "delete from m where f > 1"), "error");
    assert_eq!(show(&db, "show series"), "key\n  m,h=a,r=x\n  n,h=a");
    ask(&db, "drop measurement n").unwrap();
    assert_eq!(show(&db, "show measurements"), "measurements name\n  m");
    ask(&db, "drop series from m where h = 'a'").unwrap();
    assert_eq!(show(&db, "show measurements"), "");
}

#[test]
fn the_shell_shows_sizes_and_versions() {
    let db = MemoryDatabases::new().unwrap();
    db.write_lines("t", LINES.as_bytes()).unwrap();
    let sizes = "database{database=t} numMeasurements,numSeries\n  2 4";
    assert_eq!(show(&db, "show stats"), sizes);
    assert_eq!(show(&db, "show stats for 'database'"), sizes);
    assert_eq!(show(&db, "show stats for 'runtime'"), "");
    let diagnostics = show(&db, "show diagnostics");
    let version = env!("CARGO_PKG_VERSION");
    assert!(diagnostics.starts_with("build Branch,Build Time,Commit,Version\n"), "{diagnostics}");
    assert!(diagnostics.contains(version) && diagnostics.contains("\nsystem currentTime\n"), "{diagnostics}");
    assert!(show(&db, "show diagnostics for 'system'").starts_with("system currentTime"));
}

#[test]
fn rows_are_written_into_measurements() {
    let db = MemoryDatabases::new().unwrap();
    db.write_lines("t", LINES.as_bytes()).unwrap();
    let written = show(
        &db,
        "select mean(i) as i, max(f) into \"copy of\" from m where time >= 0 and time < 120s group by time(1m), h",
    );
    assert_eq!(written, "result time,written\n  0 5");
    let copied = show(&db, "select * from \"copy of\" where h = 'b'");
    assert_eq!(copied, "copy of time,h,i,max\n  0 b 15 5\n  60000 b 30 8");
    ask(&db, "create database u; select i into u..:MEASUREMENT from m group by *").unwrap();
    assert_eq!(show(&db, "select count(i) from u..m"), "m time,count\n  0 8");
}

/// With a walk over all columns for each of them this takes minutes.
#[test]
fn all_of_many_fields_are_selected_at_once() {
    const FIELDS: usize = 30_000;
    let db = MemoryDatabases::new().unwrap();
    let part = |from: usize| {
        let fields: Vec<String> = (from..from + 1000).map(|field| format!("f{:05}=1", field * 7919 % FIELDS)).collect();
        format!("wide,h={} {} 0\n", from % 2000, fields.join(","))
    };
    for from in (0..FIELDS).step_by(1000) {
        db.write_lines("t", part(from).as_bytes()).unwrap();
    }
    let begun = std::time::Instant::now();
    let answer = ask(&db, "select * from wide").unwrap();
    assert_eq!(answer.series.iter().map(|series| series.columns.len()).collect::<Vec<_>>(), [FIELDS + 2]);
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}

#[test]
fn selections_into_a_measurement_make_no_empty_windows() {
    let db = MemoryDatabases::new().unwrap();
    db.write_lines("t", LINES.as_bytes()).unwrap();
    // There is no condition on time, and now is decades later.
    let written = show(&db, "select count(i), mean(f) into counted from m where h = 'a' group by time(1s)");
    assert_eq!(written, "result time,written\n  0 4");
    assert_eq!(show(&db, "select count(count) from counted"), "counted time,count\n  0 3");
    let null =
        show(&db, "select count(i) into again from m where time >= 0 and time < 300s group by time(1m) fill(null)");
    assert_eq!(null, "result time,written\n  0 3");
    let zero = show(&db, "select count(i) into zeros from m where time >= 0 and time < 300s group by time(1m) fill(0)");
    assert_eq!(zero, "result time,written\n  0 5");
}

#[test]
fn a_number_fills_fields_that_rows_do_not_have() {
    let db = MemoryDatabases::new().unwrap();
    db.write_lines("t", LINES.as_bytes()).unwrap();
    let shown = show(&db, "select i, f, s, b from m where h = 'a' fill(7)");
    assert_eq!(
        shown,
        "m time,i,f,s,b\n  0 1 1.5 p true\n  10000 2 2.5  false\n  20000 7 -3.5 q false\n  65000 7 7  false"
    );
    assert_eq!(show(&db, "select i, f from m where h = 'a' and time > 60s"), "m time,i,f\n  65000 7 -");
}

#[test]
fn windows_begin_where_the_clocks_are_put_forward() {
    let db = MemoryDatabases::new().unwrap();
    // Every half hour of 2017-03-26 from midnight in Zurich: 02:00 to 03:00 is missing.
    let start_ns = 1_490_482_800_000_000_000i64;
    let mut lines = String::new();
    for row in 0..10 {
        writeln!(lines, "z v={row} {}", start_ns + row * 1_800_000_000_000).unwrap();
    }
    db.write_lines("t", lines.as_bytes()).unwrap();
    let statement = "select count(v) from z where time >= '2017-03-26T00:00:00+01:00' and time < '2017-03-26T06:00:00+02:00' \
                     group by time(2h) tz('Europe/Zurich')";
    let shown = show(&db, statement);
    assert_eq!(shown, "z time,count\n  1490482800000 4\n  1490490000000 2\n  1490493600000 4");
}

#[test]
fn a_number_that_fills_is_not_written_into_a_column_of_something_else() {
    let db = MemoryDatabases::new().unwrap();
    db.write_lines("t", LINES.as_bytes()).unwrap();
    let statement = "select first(b), s into x from m where time >= 0 and time < 240s group by time(1m) fill(7)";
    let shown = show(&db, &statement.replace("into x ", ""));
    assert_eq!(shown, "m time,first,s\n  0 true p\n  60000 false 7\n  120000 true z\n  180000 false 7");
    ask(&db, statement).unwrap();
    assert_eq!(
        show(&db, "select * from x"),
        "x time,first,s\n  0 true p\n  60000 false -\n  120000 true z\n  180000 false -"
    );
}

#[test]
fn measurements_of_one_name_are_one_whatever_database_they_are_of() {
    let db = MemoryDatabases::new().unwrap();
    db.write_lines("t", LINES.as_bytes()).unwrap();
    db.write_lines("u", b"n,h=a v=5 0\nn,h=b v=7 60000000000\n").unwrap();
    let both = "from t..n, u..n where time >= 0 and time < 2m group by";
    for compacted in [false, true] {
        if compacted {
            db.store.compact_all().unwrap();
        }
        let sums = show(&db, &format!("select sum(v) {both} time(1m)"));
        assert_eq!(sums, "n time,sum\n  0 6\n  60000 9", "compacted: {compacted}");
        let by_host = show(&db, &format!("select sum(v) {both} h"));
        assert_eq!(by_host, "n{h=a} time,sum\n  0 8\nn{h=b} time,sum\n  0 7", "compacted: {compacted}");
    }
}

/// Statements of the cases, changed at random: an answer or an error, never a panic, and never much more than the budget.
#[test]
fn mutated_statements_get_an_answer_or_an_error() {
    const STATEMENTS: u64 = 10_000;
    const SAMPLES_MAX: u64 = 200_000;
    let db = MemoryDatabases::new().unwrap();
    db.write_lines("t", LINES.as_bytes()).unwrap();
    let cases = include_str!("statements/cases.txt");
    let statements: Vec<&str> = cases.lines().filter_map(|line| line.strip_prefix("> ")).collect();
    let words: Vec<&str> = statements.iter().flat_map(|statement| statement.split_whitespace()).collect();
    let odd = [
        "-1",
        "0",
        "1e308",
        "9223372036854775807",
        "'x'",
        "(",
        ")",
        "/./",
        "time(1ns)",
        "time(1000w)",
        "fill(0)",
        "limit 1",
    ];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..STATEMENTS {
        let mut tokens: Vec<&str> = statements[random.below(statements.len())].split_whitespace().collect();
        // A third of them is as it was.
        for _ in 0..random.below(3) {
            let (at, word) = (random.below(tokens.len() + 1), words[random.below(words.len())]);
            match random.below(4) {
                0 if at < tokens.len() => drop(tokens.remove(at)),
                1 => tokens.insert(at, word),
                2 if at < tokens.len() => tokens[at] = word,
                _ => tokens.insert(at, odd[random.below(odd.len())]),
            }
        }
        let Ok(query) = Query::parse(&tokens.join(" "), &BTreeMap::new()) else {
            refused += 1;
            continue;
        };
        let request = RequestContext { database: Some("t"), read_only: false };
        let budget = Budget::sharing(SAMPLES_MAX, &db.store.memory().queries());
        for number in 0..query.len() {
            match query.run(number, &db.session(&budget), &request) {
                Ok(_) => answered += 1,
                Err(_) => refused += 1,
            }
            assert!(budget.samples() <= 2 * SAMPLES_MAX, "{tokens:?}");
        }
    }
    assert!(answered > STATEMENTS / 5 && refused > STATEMENTS / 20, "{answered} answered, {refused} refused");
}

/// Numbers that look random (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

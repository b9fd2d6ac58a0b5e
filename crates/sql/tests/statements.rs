//! SQL over databases in memory, against data that was written as lines. Expectations are data: `tests/statements/*.txt` hold statements and what they give. The form is that
//! of sqllogictest but for its first line: here names and types of columns are compared too, which that one leaves out.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use query::Budget;
use query::testing::MemoryDatabases;
use thalweg_sql::{self as sql, Answer, ClientContext, Manner, SqlError, Value};

const SECOND_NS: i64 = 1_000_000_000;
/// 2016-01-01T00:00:00Z.
const START_NS: i64 = 1_451_606_400 * SECOND_NS;

fn client(manner: Manner) -> ClientContext {
    ClientContext {
        user: "tester".to_owned(),
        parameters: vec![Value::text("host_1"), Value::Int(15)],
        manner,
        ..ClientContext::new("default", START_NS + 86_400 * SECOND_NS)
    }
}

/// Three hosts, a row a minute for twenty minutes; `a` counts, `b` is missing in every other row of `host_2`, `n` is whole; and a
/// counter that restarts, a bare metric, prices and trades.
fn fixture(db: &MemoryDatabases) {
    let mut lines = String::new();
    for step in 0..20i64 {
        let time_ns = START_NS + step * 60 * SECOND_NS;
        for host in 0..3i64 {
            let region = if host == 2 { "south" } else { "north" };
            write!(lines, "cpu,hostname=host_{host},region={region} a={}", step * (host + 1)).unwrap();
            if host != 2 || step % 2 == 0 {
                write!(lines, ",b={}", step as f64 / 2.0).unwrap();
            }
            writeln!(lines, ",n={}i,ok={},s=\"v{step}\" {time_ns}", step + host, step % 2 == 0).unwrap();
        }
        writeln!(lines, "requests,path=/x total={}i {time_ns}", if step < 10 { step * 5 } else { (step - 10) * 5 })
            .unwrap();
    }
    writeln!(lines, "up,job=a value=1 {START_NS}\nup,job=b value=0 {START_NS}").unwrap();
    // Groups and bins in which a field is missing: `mem` has `free` of host x only in the first ten minutes, of host y never; of host z there
    // is a text alone, and two rows with a gap of three hours between them.
    for step in 0..20i64 {
        let time_ns = START_NS + step * 60 * SECOND_NS;
        let free = if step < 10 { format!(",free={step}") } else { String::new() };
        writeln!(lines, "mem,host=x used={step}{free} {time_ns}\nmem,host=y used={} {time_ns}", step * 2).unwrap();
    }
    for hour in [0, 3] {
        writeln!(lines, "mem,host=z state=\"ok\" {}", START_NS + hour * 3600 * SECOND_NS).unwrap();
    }
    for (time_s, bid) in [(0, 10.0), (10, 11.0), (25, 12.0)] {
        writeln!(lines, "quotes,sym=x bid={bid} {}", START_NS + time_s * SECOND_NS).unwrap();
    }
    for (sym, time_s, price) in [("x", 5, 10.5), ("x", 10, 11.5), ("y", 12, 1.0), ("x", 30, 12.5)] {
        writeln!(lines, "trades,sym={sym} price={price} {}", START_NS + time_s * SECOND_NS).unwrap();
    }
    let (_, errors) = db.write_lines("default", lines.as_bytes()).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
}

fn ask(db: &MemoryDatabases, text: &str, manner: Manner) -> String {
    let parsed = match sql::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => return format!("error: {error}\n"),
    };
    let mut out = String::new();
    for place in 0..parsed.statements.len() {
        let budget = Budget::new(10_000_000);
        let client = client(manner);
        let answer = sql::run(&parsed, place, &db.session(&budget), &client);
        match answer {
            Ok(answer @ (Answer::Rows(_) | Answer::Table(_) | Answer::Returned(..))) => {
                let relation = answer.relation().unwrap();
                let described = sql::describe(&parsed, place, &db.session(&budget), &client).unwrap();
                let names = |columns: &[sql::Column]| {
                    columns
                        .iter()
                        .map(|column| format!("{}:{}", column.name, column.sql_type.name()))
                        .collect::<Vec<_>>()
                        .join("|")
                };
                assert_eq!(names(&described), names(&relation.columns), "{text}");
                let heads: Vec<&str> = relation.columns.iter().map(|column| column.name.as_str()).collect();
                writeln!(out, "{}", heads.join("|")).unwrap();
                for row in &relation.rows {
                    let cell = |value: &Value| if value.is_null() { "NULL".to_owned() } else { value.to_string() };
                    writeln!(out, "{}", row.iter().map(cell).collect::<Vec<_>>().join("|")).unwrap();
                    for (column, value) in relation.columns.iter().zip(row) {
                        let fits = value.is_null()
                            || value.sql_type() == column.sql_type
                            || value.sql_type().is_integer() && column.sql_type.is_integer()
                            || column.sql_type == sql::SqlType::Unknown
                            || value.sql_type() == sql::SqlType::Timestamp
                                && matches!(column.sql_type, sql::SqlType::LocalTimestamp | sql::SqlType::Date);
                        assert!(
                            fits || column.sql_type.name() == "double precision",
                            "{text}: {} holds {value:?}",
                            column.name
                        );
                    }
                }
            }
            Ok(Answer::CopyOut(rows)) => out += &String::from_utf8_lossy(&rows.messages.concat()),
            Ok(Answer::CopyIn(copy)) => writeln!(out, "rows for {} {:?}", copy.table, copy.columns).unwrap(),
            Ok(Answer::Set(setting)) => {
                writeln!(out, "{}={}", setting.name, setting.value.as_deref().unwrap_or("DEFAULT")).unwrap();
            }
            Ok(Answer::Done(tag)) => writeln!(out, "{tag}").unwrap(),
            Err(error) => writeln!(out, "error: {error}").unwrap(),
        }
        client.notices.take().iter().for_each(|notice| writeln!(out, "notice: {notice}").unwrap());
    }
    out
}

/// A statement from its first line to `----`, what it gives up to an empty line. `UPDATE_EXPECTED=1` writes what is given now: to
/// be read before it is believed.
fn check(db: &MemoryDatabases, path: &Path, manner: Manner) {
    let text = std::fs::read_to_string(path).unwrap();
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut written = String::new();
    let mut wrong = String::new();
    for case in text.split("\n\n") {
        let mut comment = String::new();
        for line in case.lines().take_while(|line| line.starts_with('#')) {
            writeln!(comment, "{line}").unwrap();
        }
        let case = case.lines().skip_while(|line| line.starts_with('#')).collect::<Vec<_>>().join("\n");
        let Some((statement, expected)) = case.split_once("\n----") else {
            write!(written, "{comment}{case}").unwrap();
            assert!(case.trim().is_empty(), "{}: no ---- in {case:?}", path.display());
            continue;
        };
        let found = ask(db, statement, manner);
        if found.trim_end() != expected.trim() {
            write!(wrong, "{statement}\nexpected:\n{expected}\nfound:\n{found}\n").unwrap();
        }
        write!(written, "{comment}{statement}\n----\n{}\n\n", found.trim_end()).unwrap();
    }
    if update {
        std::fs::write(path, format!("{}\n", written.trim_end())).unwrap();
    } else {
        assert!(wrong.is_empty(), "{}:\n{wrong}", path.display());
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/statements")
}

#[test]
fn statements_give_what_they_say() {
    let db = MemoryDatabases::new().unwrap();
    fixture(&db);
    for compacted in [false, true] {
        if compacted {
            db.store.compact_all().unwrap();
        }
        check(&db, &folder().join("select.txt"), Manner::Postgres);
        check(&db, &folder().join("time.txt"), Manner::Postgres);
        check(&db, &folder().join("nulls.txt"), Manner::Postgres);
        check(&db, &folder().join("questdb.txt"), Manner::QuestDb);
    }
    check(&db, &folder().join("hostile.txt"), Manner::Postgres);
    check(&db, &folder().join("write.txt"), Manner::Postgres);
    check(&db, &folder().join("timescale.txt"), Manner::Postgres);
    check(&db, &folder().join("questdb_write.txt"), Manner::QuestDb);
}

/// Rows at both ends of time, and all that is computed of times: an answer or an error, no overflow.
#[test]
fn the_ends_of_time_are_times_like_others() {
    let db = MemoryDatabases::new().unwrap();
    let (first, last) = (i64::MIN + 2, i64::MAX - 1);
    db.write_lines("default", format!("ends value=1 {first}\nends value=3 {last}").as_bytes()).unwrap();
    // Further apart than 64 bits of nanoseconds hold.
    let (from, to) = (-5_000_000_000_000_000_000i64, 5_000_000_000_000_000_000i64);
    db.write_lines("default", format!("far value=1 {from}\nfar value=3 {to}").as_bytes()).unwrap();
    let filled = ask(&db, "SELECT avg(value) FROM far SAMPLE BY 20000d FILL(LINEAR)", Manner::QuestDb);
    let values: Vec<f64> = filled.lines().skip(1).map(|line| line.parse().unwrap()).collect();
    assert!(values.len() > 4 && values.is_sorted() && values.ends_with(&[3.0]), "{filled}");
    for unit in ["microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "year", "century"] {
        for statement in [
            format!("SELECT date_trunc('{unit}', time) FROM ends"),
            format!("SELECT time_bucket('1 {unit}', time), count(*) FROM ends GROUP BY 1"),
            format!("SELECT time + interval '1 {unit}', time - interval '1 {unit}' FROM ends"),
            format!("SELECT date_part('{unit}', time), time - now(), time::text FROM ends"),
        ] {
            assert!(!ask(&db, &statement, Manner::Postgres).is_empty(), "{statement}");
        }
    }
}

/// Five days of hourly rows around the changes of a zone's clocks, in spring and autumn: whatever fills, each row is counted once.
#[test]
fn fills_count_every_row_once() {
    let db = MemoryDatabases::new().unwrap();
    let hours = |from: &str| {
        let from_ns = query::time::parse(from).unwrap();
        (0..120).map(move |hour| format!("p v={hour} {}\n", from_ns + hour * 3600 * SECOND_NS))
    };
    let lines: String = hours("2024-03-29").chain(hours("2024-10-25")).collect();
    db.write_lines("default", lines.as_bytes()).unwrap();
    let total = |statement: &str, manner| {
        let counts = ask(&db, statement, manner);
        counts.lines().skip(1).map(|line| line.split('|').nth(1).unwrap().parse::<i64>().unwrap_or(0)).sum::<i64>()
    };
    for zone in ["Europe/Paris", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia"] {
        for width in ["15m", "1h", "2h", "6h", "1d", "7d", "1M", "1y"] {
            for (fill, offset) in [("NULL", ""), ("0", ""), ("NULL", " WITH OFFSET '00:45'")] {
                let sampled = format!(
                    "SELECT timestamp, count() FROM p SAMPLE BY {width} FILL({fill}) ALIGN TO CALENDAR TIME ZONE '{zone}'{offset}"
                );
                assert_eq!(total(&sampled, Manner::QuestDb), 240, "{sampled}");
            }
            for options in ["", ", INTERVAL '90 minutes'", ", '2001-02-03T04:05:00Z'::timestamptz"] {
                let width = width.replace('M', " month");
                let filled = format!(
                    "SELECT time_bucket_gapfill('{width}', time, '{zone}'{options}), count(*) FROM p \
                     WHERE time >= '2024-03-25' AND time < '2024-11-05' GROUP BY 1"
                );
                assert_eq!(total(&filled, Manner::Postgres), 240, "{filled}");
            }
        }
    }
    let days = "SELECT timestamp, count() FROM p WHERE timestamp < '2024-06-01' SAMPLE BY 1d FILL(NULL) ALIGN TO CALENDAR TIME ZONE 'Europe/Paris'";
    assert_eq!(
        ask(&db, days, Manner::QuestDb),
        "timestamp|count\n2024-03-28 23:00:00|23\n2024-03-29 23:00:00|24\n2024-03-30 23:00:00|23\n\
         2024-03-31 22:00:00|24\n2024-04-01 22:00:00|24\n2024-04-02 22:00:00|2\n"
    );
}

/// Bins by the clock of a session's zone, or of one that is named, are made by the plan; they are those that rows have one by one.
#[test]
fn truncated_times_are_grouped_by_the_plan() {
    let db = MemoryDatabases::new().unwrap();
    let from_ns = query::time::parse("2023-10-20T00:00:00Z").unwrap();
    let mut lines = String::new();
    for step in 0..9000i64 {
        writeln!(lines, "p,h={} v={step} {}", step % 2, from_ns + step * 3590 * SECOND_NS).unwrap();
    }
    db.write_lines("default", lines.as_bytes()).unwrap();
    let run = |statement: &str, zone: &str| {
        let budget = Budget::new(10_000_000);
        let context = ClientContext { time_zone: query::time::zone(zone).unwrap(), ..client(Manner::Postgres) };
        let parsed = sql::parse(statement).unwrap();
        sql::run(&parsed, 0, &db.session(&budget), &context).unwrap().relation().unwrap().rows
    };
    for zone in ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kolkata"] {
        for unit in ["minute", "hour", "day", "week", "month", "quarter", "year"] {
            for range in ["true", "time >= '2024-03-01' AND time < '2024-06-15 03:00'"] {
                let grouped = |time: &str| {
                    let truncated = format!("date_trunc('{unit}', {time})");
                    format!(
                        "SELECT {truncated}, h, count(*), sum(v), max(v) FROM p WHERE {range} GROUP BY 1, 2 ORDER BY 1, 2"
                    )
                };
                // What is computed of the time is computed row by row.
                let one_by_one = run(&grouped("time + INTERVAL '0 seconds'"), zone);
                assert_eq!(run(&grouped("time"), zone), one_by_one, "{zone} {unit} {range}");
                let explicit = grouped("time").replace("time)", &format!("time, '{zone}')"));
                assert_eq!(run(&explicit, zone), one_by_one, "{explicit}");
            }
        }
    }
    let plan = run(
        "EXPLAIN SELECT date_trunc('day', time), max(v) FROM p WHERE time >= '2024-03-30' AND time < '2024-04-02' GROUP BY 1",
        "Europe/Berlin",
    );
    let plan = plan.iter().flatten().map(Value::to_string).collect::<Vec<_>>().join("\n");
    // Days of 24 hours, the day of 23 hours on which the clocks change, and days again.
    assert_eq!(plan.matches("(groupby ").count(), 3, "{plan}");
    assert!(plan.contains("(groupby 23h "), "{plan}");
}

/// A function makes a long text of a short one for each row, a join many rows of few: what is held of them is taken out of the budget.
#[test]
fn texts_and_rows_that_are_made_are_held_within_the_budget() {
    let db = MemoryDatabases::new().unwrap();
    fixture(&db);
    let few = [
        "SELECT repeat(s, 10000) FROM cpu",
        "SELECT s FROM cpu ORDER BY repeat(s, 10000)",
        "SELECT count(*) FROM cpu GROUP BY repeat(s, 10000)",
        "SELECT count(DISTINCT repeat(s, 10000)) FROM cpu",
        "SELECT mode(repeat(s, 10000)) FROM cpu",
        "SELECT DISTINCT ON (repeat(s, 10000)) n FROM cpu",
        "SELECT count(*) FROM cpu a JOIN cpu b ON a.region = b.region",
    ];
    for statement in few {
        let parsed = sql::parse(statement).unwrap();
        let run = |samples_max| {
            let budget = Budget::new(samples_max);
            sql::run(&parsed, 0, &db.session(&budget), &client(Manner::Postgres)).map(drop)
        };
        let too_many = SqlError::Query(query::QueryError::TooManySamples { limit: 5_000 });
        assert_eq!(run(5_000), Err(too_many), "{statement}");
        assert_eq!(run(1_000_000), Ok(()), "{statement}");
    }
}

/// Rows past the TTL of their table are gone at once and after a restart; those of another table in the same parts stay.
#[test]
fn tables_keep_rows_as_long_as_their_ttl_says() {
    let db = MemoryDatabases::new().unwrap();
    let budget = Budget::new(1_000_000);
    let now_ns = query::Session::now_ns(&db.session(&budget));
    let hours = |hours: i64| now_ns - hours * 3600 * SECOND_NS;
    let rows = |db: &MemoryDatabases| {
        let mut lines = String::new();
        for age in [1, 20, 30, 100] {
            writeln!(lines, "short v={age} {0}\nlong v={age} {0}", hours(age)).unwrap();
        }
        db.write_lines("default", lines.as_bytes()).unwrap();
    };
    let ages =
        |db: &MemoryDatabases, table: &str| ask(db, &format!("SELECT v FROM {table} ORDER BY v"), Manner::Postgres);
    rows(&db);
    assert_eq!(ask(&db, "ALTER TABLE short SET TTL 1 DAY", Manner::Postgres), "ALTER TABLE\n");
    assert_eq!(ages(&db, "short"), "v\n1\n20\n");
    assert_eq!(ages(&db, "long"), "v\n1\n20\n30\n100\n");
    db.store.flush_all().unwrap();
    let db = db.reopened().unwrap();
    // Rows that come late go with the next step.
    rows(&db);
    while db.store.maintain().unwrap() {}
    assert_eq!(ages(&db, "short"), "v\n1\n20\n");
    assert_eq!(ages(&db, "long"), "v\n1\n20\n30\n100\n");
    assert!(ask(&db, "SHOW CREATE TABLE short", Manner::Postgres).ends_with(" TTL 1 DAY\n"));
    assert_eq!(ask(&db, "ALTER TABLE short SET (ttl = '0')", Manner::Postgres), "ALTER TABLE\n");
    rows(&db);
    while db.store.maintain().unwrap() {}
    assert_eq!(ages(&db, "short"), "v\n1\n20\n30\n100\n");
}

/// Rows may bring a field that is called as the time that was declared: the name means the time.
#[test]
fn a_declared_time_is_meant_by_its_name() {
    let db = MemoryDatabases::new().unwrap();
    let run = |text: &str| ask(&db, text, Manner::Postgres);
    assert_eq!(run("CREATE TABLE m (ts TIMESTAMP, a BIGINT, b BIGINT)"), "CREATE TABLE\n");
    let (_, errors) = db.write_lines("default", b"m ts=1i,timestamp=7i,a=1i,b=1i 1000").unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(run("INSERT INTO m VALUES ('2026-01-01', 1, 2)"), "INSERT 0 1\n");
    let all = "ts|a|b|ts|timestamp\n1970-01-01 00:00:00.000001|1|1|1|7\n2026-01-01 00:00:00|1|2|NULL|NULL\n";
    assert_eq!(run("SELECT * FROM m ORDER BY ts"), all);
    assert_eq!(run("SELECT m.ts, b FROM m WHERE ts > '2000-01-01'"), "ts|b\n2026-01-01 00:00:00|2\n");
    assert_eq!(run("SELECT a FROM m SAMPLE BY 1h FROM '2025-12-31' TO '2026-01-02'"), "a\n1\n");
    assert!(run("CREATE TABLE m (b TIMESTAMP, x BIGINT)").starts_with("error: relation"));
    assert_eq!(run("DROP TABLE m"), "DROP TABLE\n");
}

/// What a statement chose before is held: it is not to hide what has come or gone since.
#[test]
fn the_same_statement_sees_what_came_and_went() {
    let db = MemoryDatabases::new().unwrap();
    let write = |lines: &str| assert!(db.write_lines("default", lines.as_bytes()).unwrap().1.is_empty());
    let check = |expected: &str| {
        // Chosen, held, and once more.
        for statement in ["SELECT h, a FROM t", "SELECT h, a FROM t WHERE h = 'y'", "SELECT h, a FROM t LATEST BY h"] {
            let is_asked = |row: &&str| row.starts_with('y') || !statement.contains("'y'");
            let rows: Vec<&str> = ["h|a"].into_iter().chain(expected.split_whitespace().filter(is_asked)).collect();
            for _ in 0..3 {
                assert_eq!(ask(&db, statement, Manner::Postgres), rows.join("\n") + "\n", "{statement}");
            }
        }
    };
    write("t,h=x a=1 1");
    check("x|1");
    write("t,h=y a=2 2");
    check("x|1 y|2");
    write("t,h=z b=3 3");
    check("x|1 y|2 z|NULL");
    write("t,h=z a=4 3");
    check("x|1 y|2 z|4");
    assert_eq!(ask(&db, "DELETE FROM t WHERE h = 'y'", Manner::Postgres), "DELETE 1\n");
    check("x|1 z|4");
    db.store.compact(&mut |_| {}).unwrap();
    check("x|1 z|4");
    write("t,h=y a=5 5");
    check("x|1 z|4 y|5");
}

/// Statements of the data files, changed at random: an answer or an error, never a panic, and never more than the budget.
#[test]
fn mutated_statements_get_an_answer_or_an_error() {
    const STATEMENTS: u64 = 10_000;
    let db = MemoryDatabases::new().unwrap();
    fixture(&db);
    let files =
        ["select.txt", "time.txt", "questdb.txt"].map(|name| std::fs::read_to_string(folder().join(name)).unwrap());
    let statements: Vec<&str> =
        files.iter().flat_map(|text| text.split("\n\n")).filter_map(|case| case.split("\n----").next()).collect();
    let words: Vec<&str> = statements.iter().flat_map(|statement| statement.split_whitespace()).collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..STATEMENTS {
        let statement = statements[random.below(statements.len())];
        let mut tokens: Vec<&str> =
            statement.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect();
        for _ in 0..=random.below(4) / 3 {
            let at = random.below(tokens.len() + 1);
            match random.below(4) {
                0 if at < tokens.len() => {
                    tokens.remove(at);
                }
                1 => tokens.insert(at, words[random.below(words.len())]),
                2 if at < tokens.len() => tokens[at] = words[random.below(words.len())],
                _ => {
                    let numbers =
                        ["-1", "0", "1e308", "9223372036854775807", "'x'", "NULL", "(", ")", "interval '1 month'"];
                    tokens.insert(at, numbers[random.below(numbers.len())]);
                }
            }
        }
        let Ok(parsed) = sql::parse(&tokens.join(" ")) else {
            refused += 1;
            continue;
        };
        for place in 0..parsed.statements.len() {
            let budget = Budget::new(200_000);
            let manner = if random.below(2) == 0 { Manner::Postgres } else { Manner::QuestDb };
            match sql::run(&parsed, place, &db.session(&budget), &client(manner)) {
                Ok(answer) => {
                    let _ = answer.relation();
                    answered += 1;
                }
                Err(_) => refused += 1,
            }
            assert!(budget.samples() <= 400_000, "{tokens:?}");
        }
    }
    assert!(answered > STATEMENTS / 20 && refused > STATEMENTS / 20, "{answered} answered, {refused} refused");
}

#[test]
fn deep_statements_are_refused_or_answered_within_the_stack() {
    let db = MemoryDatabases::new().unwrap();
    let nested = |open: &str, inner: &str, close: &str, count| {
        format!("SELECT {}{inner}{}", open.repeat(count), close.repeat(count))
    };
    for statement in [
        format!("SELECT 1{}", " + 1".repeat(255)),
        format!("SELECT 1{}", " + 1".repeat(100_000)),
        format!("SELECT 1 WHERE true{}", " OR false".repeat(255)),
        format!("SELECT NOT {} true", "NOT ".repeat(254)),
        format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(254)),
        nested("(", "1", ")", 30),
        nested("(", "1", ")", 100_000),
        nested("abs(", "1", ")", 40),
        nested("(SELECT ", "1", ")", 20),
        nested("(SELECT ", "1", ")", 5000),
        nested("CASE WHEN true THEN ", "1", " END", 40),
        format!("SELECT * FROM {}(SELECT 1 AS x) AS t{}", "(SELECT * FROM ".repeat(20), ") AS t".repeat(20)),
        format!("SELECT {}1", "-".repeat(1000).replace("--", "- -")),
        format!("SELECT 1{}", "::int".repeat(255)),
    ] {
        let found = ask(&db, &statement, Manner::Postgres);
        assert!(!found.is_empty(), "{}", &statement[..60]);
    }
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

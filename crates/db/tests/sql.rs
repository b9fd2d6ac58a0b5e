//! SQL against data that was written as lines. Expectations are data: `tests/sql/*.txt` hold statements and what they give.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use platform::Platform;
use query::Budget;
use sql::{Manner, Session, Value};
use thalweg_db::{Db, DbOptions, SqlAnswer};

const SECOND_NS: i64 = 1_000_000_000;
/// 2016-01-01T00:00:00Z.
const START_NS: i64 = 1_451_606_400 * SECOND_NS;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(name: &str) -> (Db, Folder) {
    let folder = std::env::temp_dir().join(format!("thalweg-sql-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let db = Db::open(Platform::real(), DbOptions::new(&folder)).unwrap();
    (db, Folder(folder))
}

fn session(manner: Manner) -> Session {
    Session {
        user: "tester".to_owned(),
        parameters: vec![Value::text("host_1"), Value::Int(15)],
        manner,
        ..Session::new("default", START_NS + 86_400 * SECOND_NS)
    }
}

/// Three hosts, a row a minute for twenty minutes; `a` counts, `b` is missing in every other row of host_2, `n` is whole; and a
/// counter that restarts, a bare metric, prices and trades.
fn fixture(db: &Db) {
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
    for (time_s, bid) in [(0, 10.0), (10, 11.0), (25, 12.0)] {
        writeln!(lines, "quotes,sym=x bid={bid} {}", START_NS + time_s * SECOND_NS).unwrap();
    }
    for (sym, time_s, price) in [("x", 5, 10.5), ("x", 10, 11.5), ("y", 12, 1.0), ("x", 30, 12.5)] {
        writeln!(lines, "trades,sym={sym} price={price} {}", START_NS + time_s * SECOND_NS).unwrap();
    }
    let (_, errors) = db.write_lines("default", lines.as_bytes()).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
}

fn ask(db: &Db, text: &str, manner: Manner) -> String {
    let parsed = match sql::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => return format!("error: {error}\n"),
    };
    let mut out = String::new();
    for place in 0..parsed.statements.len() {
        let budget = Budget::new(10_000_000);
        match db.sql(&parsed, place, &session(manner), &budget) {
            Ok(SqlAnswer::Rows(relation)) => {
                let described = db.describe_sql(&parsed, place, &session(manner), &budget).unwrap();
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
                            || column.sql_type == sql::SqlType::Unknown;
                        assert!(
                            fits || column.sql_type.name() == "double precision",
                            "{text}: {} holds {value:?}",
                            column.name
                        );
                    }
                }
            }
            Ok(SqlAnswer::Set(name, value)) => writeln!(out, "{name}={value}").unwrap(),
            Ok(SqlAnswer::Done(tag)) => writeln!(out, "{tag}").unwrap(),
            Err(error) => writeln!(out, "error: {error}").unwrap(),
        }
    }
    out
}

/// A statement from its first line to `----`, what it gives up to an empty line. `UPDATE_EXPECTED=1` writes what is given now: to
/// be read before it is believed.
fn check(db: &Db, path: &Path, manner: Manner) {
    let text = std::fs::read_to_string(path).unwrap();
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut written = String::new();
    let mut wrong = String::new();
    for case in text.split("\n\n") {
        let comment: String =
            case.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql")
}

#[test]
fn statements_give_what_they_say() {
    let (db, _folder) = open("statements");
    fixture(&db);
    for settled in [false, true] {
        if settled {
            db.settle().unwrap();
        }
        check(&db, &folder().join("select.txt"), Manner::Postgres);
        check(&db, &folder().join("time.txt"), Manner::Postgres);
        check(&db, &folder().join("questdb.txt"), Manner::QuestDb);
    }
    check(&db, &folder().join("write.txt"), Manner::Postgres);
}

//! A dropped table is gone: a new one of its name has its own columns and types, whatever writers had under way, after a crash, and in a backup.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod scratch;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use model::Labels;
use platform::objects::ObjectOptions;
use platform::sim::Simulation;
use query::Budget;
use sql::{ClientContext, Value};
use thalweg_db::{Db, DbOptions};

const SECOND_NS: i64 = 1_000_000_000;
/// 2016-01-01T00:00:00Z.
const START_NS: i64 = 1_451_606_400 * SECOND_NS;

fn ask(db: &Db, text: &str) -> Result<Vec<Vec<Value>>, String> {
    let parsed = sql::parse(text).unwrap();
    let budget = Arc::new(Budget::new(10_000_000));
    let answer = db.sql(&parsed, 0, &ClientContext::new("default", 0), &budget).map_err(|error| error.to_string())?;
    Ok(answer.relation().map(|relation| relation.rows).unwrap_or_default())
}

fn columns(db: &Db, table: &str) -> String {
    let text = format!(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = '{table}' ORDER BY ordinal_position"
    );
    let name = |value: &Value| value.to_string();
    ask(db, &text)
        .unwrap()
        .iter()
        .map(|row| format!("{}:{}", name(&row[0]), name(&row[1])))
        .collect::<Vec<_>>()
        .join(" ")
}

fn write(db: &Db, lines: &str) -> u64 {
    let (report, errors) = db.write_lines("default", lines.as_bytes()).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    report.rejected_total
}

#[test]
fn a_new_table_of_the_name_has_its_own_columns() {
    let simulation = Simulation::new(7);
    let open = || Db::open(simulation.platform(), DbOptions::new("/data")).unwrap();
    let mut db = open();
    for is_compacted in [false, true] {
        assert_eq!(write(&db, &format!("t,h=a,gone=x old=1.5,v=2.5 {START_NS}\nother v=1 {START_NS}")), 0);
        if is_compacted {
            db.compact(&mut |_| {}).unwrap();
        }
        assert_eq!(
            columns(&db, "t"),
            "time:timestamp with time zone gone:text h:text old:double precision v:double precision"
        );
        assert_eq!(write(&db, &format!("t,h=a v=3i {START_NS}")), 1, "another type is refused");
        ask(&db, "DROP TABLE t").unwrap();
        assert!(ask(&db, "SELECT * FROM t").unwrap_err().contains("does not exist"));
        for _ in 0..2 {
            assert!(ask(&db, "DROP TABLE t").is_err() && ask(&db, "DROP TABLE IF EXISTS t").is_ok());
            // What is acknowledged is there after a crash.
            drop(db);
            simulation.crash();
            db = open();
        }
        assert_eq!(write(&db, &format!("t,h=a v=3i,new=\"x\" {START_NS}")), 0);
        assert_eq!(columns(&db, "t"), "time:timestamp with time zone h:text v:bigint new:text");
        let rows = ask(&db, "SELECT v, new FROM t").unwrap();
        assert_eq!(rows, [[Value::Int(3), Value::text("x")]]);
        let budget = Budget::new(1000);
        let names = db.run_plan("default", &db.parse_plan(r#"(->> (metric "t_old"))"#).unwrap(), &budget).unwrap();
        assert_eq!(names.frames.len(), 0);
        let query = influxql::Query::parse("DROP MEASUREMENT t", &std::collections::BTreeMap::new()).unwrap();
        let request = influxql::RequestContext { database: Some("default"), read_only: false };
        db.run_influxql(&query, 0, &request, &Budget::new(1000)).unwrap();
        assert_eq!(columns(&db, "t"), "");
        assert_eq!(ask(&db, "SELECT count(*) FROM other").unwrap(), [[Value::Int(1)]]);
    }
    db.close().unwrap();
}

#[test]
fn tags_of_a_new_table_exist_before_its_rows() {
    let simulation = Simulation::new(8);
    let open = || Db::open(simulation.platform(), DbOptions::new("/data")).unwrap();
    let db = open();
    ask(&db, "CREATE TABLE t (time TIMESTAMP, room TAG, warmth DOUBLE PRECISION, house TAG)").unwrap();
    let expected = "time:timestamp with time zone room:text warmth:double precision house:text";
    assert_eq!(columns(&db, "t"), expected);
    assert_eq!(ask(&db, "SELECT room, count(*) FROM t GROUP BY room").unwrap().len(), 0);
    drop(db);
    simulation.crash();
    let db = open();
    assert_eq!(columns(&db, "t"), expected, "after a crash");
    db.compact(&mut |_| {}).unwrap();
    db.close().unwrap();
    drop(db);
    let db = open();
    assert_eq!(columns(&db, "t"), expected, "from a segment");
    assert_eq!(write(&db, &format!("t,room=a warmth=1 {START_NS}")), 0);
    assert_eq!(
        ask(&db, "SELECT house, room, warmth FROM t").unwrap(),
        [[Value::Null, Value::text("a"), Value::Float(1.0)]]
    );
    ask(&db, "DROP TABLE t").unwrap();
    ask(&db, "CREATE TABLE t (time TIMESTAMP, floor TAG, warmth BIGINT)").unwrap();
    assert_eq!(columns(&db, "t"), "time:timestamp with time zone floor:text warmth:bigint");
    assert!(ask(&db, "CREATE TABLE u (room TAG, room DOUBLE PRECISION)").unwrap_err().contains("more than once"));
    db.close().unwrap();
}

/// Tokens of a dropped table are stale: what is registered again is in the new one.
#[test]
fn tokens_of_a_dropped_table_are_stale() {
    let (db, _folder) = scratch::open("drops-tokens");
    let labels = || Labels::from_pairs([("h", "a")]).unwrap();
    let register = || db.register_series("default", &[("t", labels())]).unwrap();
    let tokens = register();
    let append = |tokens: &[thalweg_db::Token], value: f64| {
        let mut appender = db.appender();
        appender.push_samples(&[tokens[0].to_bits()], &[START_NS], &[value.to_bits()]).unwrap();
        appender.commit().unwrap()
    };
    assert_eq!(append(&tokens, 1.0).len(), 0);
    ask(&db, "DROP TABLE t").unwrap();
    assert_eq!(append(&tokens, 2.0), tokens);
    assert!(ask(&db, "SELECT * FROM t").is_err());
    let tokens = register();
    assert_eq!(append(&tokens, 3.0).len(), 0);
    assert_eq!(ask(&db, "SELECT value FROM t").unwrap(), [[Value::Float(3.0)]]);
    db.close().unwrap();
}

/// Writers go on while their table is dropped: what was acknowledged before a drop began is gone, what was sent after it returned is there.
#[test]
fn writers_go_on_while_their_table_is_dropped() {
    const WRITERS: u64 = 2;
    const DROPS: usize = 12;
    let (db, folder) = scratch::open("drops-writers");
    let (is_over, clock) = (AtomicBool::new(false), AtomicU64::new(0));
    let tick = || clock.fetch_add(1, Ordering::SeqCst);
    // Of each row that was taken: its number, when it was sent and when it was acknowledged.
    let mut written: Vec<(u64, u64, u64)> = Vec::new();
    let mut drops: Vec<(u64, u64)> = Vec::new();
    thread::scope(|scope| {
        let write = |writer: u64| {
            let mut taken = Vec::new();
            for number in (writer..).step_by(WRITERS as usize) {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                // Types change: those that came first after a drop count.
                let value = if number % 10 < 5 { format!("{number}i") } else { format!("{number}") };
                let line = format!("t,h=h{} v={value},n={number}i {}", number % 7, START_NS + number as i64);
                let sent = tick();
                if db.write_lines("default", line.as_bytes()).unwrap().0.rows_written == 1 {
                    taken.push((number, sent, tick()));
                }
            }
            taken
        };
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        for number in 0..DROPS {
            thread::sleep(std::time::Duration::from_millis(30));
            let begun = tick();
            ask(&db, "DROP TABLE IF EXISTS t").unwrap();
            drops.push((begun, tick()));
            if number % 4 == 3 {
                db.compact(&mut |_| {}).unwrap();
            }
        }
        thread::sleep(std::time::Duration::from_millis(30));
        is_over.store(true, Ordering::SeqCst);
        written = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    });
    let last = *drops.last().unwrap();
    let check = |db: &Db| {
        let rows = ask(db, "SELECT n FROM t").unwrap();
        let found: BTreeSet<u64> = rows.iter().map(|row| row[0].to_string().parse().unwrap()).collect();
        assert_eq!(found.len(), rows.len());
        for (number, sent, acknowledged) in &written {
            if *acknowledged < last.0 {
                assert!(!found.contains(number), "{number} was acknowledged before the drop");
            }
            if *sent > last.1 {
                assert!(found.contains(number), "{number} was sent after the drop");
            }
        }
        assert!(!found.is_empty());
        found
    };
    let found = check(&db);
    db.close().unwrap();
    drop(db);
    let db = Db::open(platform::Platform::real(), DbOptions::new(&folder.0)).unwrap();
    assert_eq!(check(&db), found);
    check_backup(db, &|db| assert_eq!(check(db), found));
}

/// A backup holds the new table alone.
fn check_backup(db: Db, check: &dyn Fn(&Db)) {
    let platform = platform::Platform::real();
    let places = ["backup", "restored"].map(|name| scratch::Folder::new(&format!("drops-{name}")));
    let (target, objects) = (places[0].0.to_string_lossy().into_owned(), ObjectOptions::default());
    db.backup(&target, &objects, None, &mut |_| {}).unwrap();
    db.close().unwrap();
    drop(db);
    let source = platform.objects.open(&target, &objects).unwrap();
    thalweg_db::restore(&*source, None, &platform, &places[1].0, &mut |_| {}).unwrap();
    let db = Db::open(platform, DbOptions::new(&places[1].0)).unwrap();
    check(&db);
    assert_eq!(db.databases(), ["default"]);
    db.close().unwrap();
}

//! The whole in one process on real files: writers, queries and background work at the same time.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod scratch;

use std::time::{Duration, Instant};

use model::{Labels, TimeRange};
use promql::ResultValue;
use scratch::Folder;
use thalweg_db::{Db, DbOptions, InstantQuery};

/// Small heads, so that flushes and merges happen while the test runs.
fn open(folder: &Folder) -> Db {
    let mut options = DbOptions::new(&folder.0);
    options.store.head_bytes_max = 64 << 10;
    options.store.log_segment_bytes = 256 << 10;
    options.store.log_bytes_max = 1 << 20;
    Db::open(platform::Platform::real(), options).unwrap()
}

const WRITERS: u64 = 4;
const BATCHES: u64 = 50;
const ROWS: u64 = 20;
/// How long a flush may be on its way.
const FLUSH_PATIENCE: Duration = Duration::from_mins(1);

fn write_all(db: &Db, writer: u64) {
    for batch in 0..BATCHES {
        let line = |row: u64| {
            let second = batch * ROWS + row;
            format!("m,writer={writer} a={second},b={second}i {}\n", second * 1_000_000_000)
        };
        let lines: String = (0..ROWS).map(line).collect();
        let (report, errors) = db.write_lines("default", lines.as_bytes()).unwrap();
        assert_eq!((report.rows_written, report.rejected_total, errors.total), (ROWS, 0, 0));
    }
}

fn count(db: &Db, expression: &str) -> Vec<(Labels, f64)> {
    let time_ms = (BATCHES * ROWS * 1000) as i64;
    match db.instant("default", &InstantQuery::new(expression, time_ms)).unwrap().value {
        ResultValue::Vector(vector) => vector.into_iter().map(|sample| (sample.labels, sample.value)).collect(),
        other => panic!("a vector expected, not {other:?}"),
    }
}

#[test]
fn what_was_written_by_many_is_there_once_also_after_reopening() {
    let folder = Folder::new("db-many");
    let db = open(&folder);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let db = &db;
            scope.spawn(move || write_all(db, writer));
        }
        // Reads run into flushes and merges; what they see must at least be readable.
        scope.spawn(|| (0..20).for_each(|_| drop(count(&db, "count_over_time(m_a[1d])"))));
    });
    let expected: Vec<f64> = vec![(BATCHES * ROWS) as f64; WRITERS as usize];
    let counts =
        |db: &Db, expression: &str| count(db, expression).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
    assert_eq!(counts(&db, "count_over_time(m_a[1d])"), expected);
    assert_eq!(counts(&db, "count_over_time(m_b[1d])"), expected);
    // The heads were full several times: a flush is done, or on its way on a busy machine.
    let begun = Instant::now();
    while db.stats().flushes == 0 {
        assert!(begun.elapsed() < FLUSH_PATIENCE, "{:?}", db.stats());
        std::thread::yield_now();
    }
    db.close().unwrap();
    drop(db);
    let db = open(&folder);
    assert_eq!(db.recovery().log_rows, 0, "a clean stop leaves nothing to replay");
    assert_eq!(counts(&db, "count_over_time(m_a[1d])"), expected);
    let budget = db.budget(1_000_000);
    let values = db.label_values("default", "writer", &[], TimeRange::ALL, 3, &budget).unwrap();
    assert_eq!(values, ["0", "1", "2"]);
    assert_eq!(db.label_names("default", &[], TimeRange::ALL, 0, &budget).unwrap(), ["__name__", "writer"]);
    assert_eq!(db.series("default", &[], TimeRange::ALL, 0, &budget).unwrap().len(), 2 * WRITERS as usize);
}

#[test]
fn a_field_keeps_its_type_and_the_rest_of_the_request_is_written() {
    let folder = Folder::new("db-types");
    let db = open(&folder);
    db.write_lines("default", b"m v=1i 1").unwrap();
    let (report, _) = db.write_lines("default", b"m v=2 2\nm w=1 3\nother v=1 4").unwrap();
    assert_eq!((report.rows_written, report.rejected_total), (2, 1));
    assert_eq!(report.rejected[0].line, 1);
    assert_eq!(
        report.rejected[0].reason,
        "field type conflict: input field \"v\" on measurement \"m\" is type float, already exists as type integer"
    );
    let (report, _) = db.write_lines("elsewhere", b"m v=2 2").unwrap();
    assert_eq!(report.rows_written, 1, "another database, other types");
}

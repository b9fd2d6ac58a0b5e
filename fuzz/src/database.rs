//! A small database for the targets that run queries: every type of value, and values and times at the ends of what there is.

use std::fmt::Write as _;
use std::sync::OnceLock;

use db::{Db, DbOptions};
use ingest::{Protocol, remote_write};
use platform::sim::Simulation;

use crate::samples::odd_samples;

/// The database with the rows.
pub const DATABASE: &str = "default";
/// Where the rows begin.
pub const START_MS: i64 = 1_700_000_000_000;
/// Where they end.
pub const END_MS: i64 = START_MS + ROWS * STEP_MS;
/// What a query may hold.
pub const SAMPLES_MAX: u64 = 100_000;

const ROWS: i64 = 60;
const STEP_MS: i64 = 10_000;
const NS_PER_MS: i64 = 1_000_000;

/// The database, made at the first call. Queries share it, so they must not change it.
pub fn database() -> &'static Db {
    static DB: OnceLock<Db> = OnceLock::new();
    DB.get_or_init(|| {
        let mut options = DbOptions::new("/data");
        options.query_helpers = 0;
        options.result_cache_memory_bytes_max = 0;
        let simulation = Simulation::new(1);
        simulation.advance_ns((END_MS - START_MS) * NS_PER_MS);
        let db = Db::open(simulation.platform(), options).expect("an empty folder opens");
        let written = db.write_lines(DATABASE, lines().as_bytes()).expect("the rows are written");
        assert!(written.1.total == 0, "all rows are good");
        write_odd_samples(&db);
        // Half of what queries read is in a part, the other half in memory.
        db.compact_all().expect("the head is flushed");
        db.write_lines(DATABASE, late_lines().as_bytes()).expect("the rows are written");
        db
    })
}

fn write_odd_samples(db: &Db) {
    let message = odd_samples(START_MS, ROWS, STEP_MS);
    let hasher = db.key_hasher().scope(Protocol::RemoteWrite, db.database_id(DATABASE).expect("a good name"));
    let options = remote_write::Options { hasher, limits: db.limits(), dropped_label: None };
    let request = remote_write::parse_v2(&message, &options).expect("a good message");
    assert_eq!(request.errors.total, 0, "{:?}", request.errors);
    db.write(DATABASE, &request.batch).expect("the samples are written");
}

fn lines() -> String {
    let mut lines = String::new();
    for row in 0..ROWS {
        let time_ns = (START_MS + row * STEP_MS) * NS_PER_MS;
        for host in ["a", "b", "c"] {
            let usage = (row * 37 % 101) as f64 / 4.0;
            let _ = writeln!(
                lines,
                "cpu,host={host},dc=d{} usage={usage},count={row}i,up={},name=\"n{}\" {time_ns}",
                row % 2,
                row % 3 == 0,
                row % 5
            );
        }
        let _ = writeln!(lines, "requests_total,job=x value={} {time_ns}", row % 20 * 7);
        for (bucket, count) in [("0.1", 1), ("1", 3), ("+Inf", 4)] {
            let _ = writeln!(lines, "latency_bucket,le={bucket} value={} {time_ns}", row * count);
        }
    }
    let middle_ns = (START_MS + ROWS / 2 * STEP_MS) * NS_PER_MS;
    for (place, float) in ["1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "-0"].iter().enumerate() {
        let _ = writeln!(lines, "edge,kind=float value={float} {}", middle_ns + place as i64);
    }
    for (place, integer) in [i64::MAX, i64::MIN, -1, 0].iter().enumerate() {
        let _ = writeln!(lines, "edge,kind=integer whole={integer}i {}", middle_ns + place as i64);
    }
    let _ = writeln!(lines, "edge,kind=unsigned positive={}u {middle_ns}", u64::MAX);
    let _ = writeln!(lines, "edge,kind=text,\u{e9}=\u{1f600} text=\"\u{1f600} \\\"x\\\" \\\\\" {middle_ns}");
    lines
}

/// Rows that stay in memory, some of them in place of others.
fn late_lines() -> String {
    let mut lines = String::new();
    for row in ROWS / 2..ROWS {
        let time_ns = (START_MS + row * STEP_MS) * NS_PER_MS + row % 3;
        let _ = writeln!(lines, "cpu,host=a,dc=d0 usage={row},count={}i {time_ns}", -row);
    }
    for time_ns in [i64::MIN + 2, -1, 0, i64::MAX - 1] {
        let _ = writeln!(lines, "edge_of_time value=1 {time_ns}");
    }
    lines
}

//! Rows of a table with a TTL, or of a database with a retention, go by whole windows of its views: as long as any row of a window may come late, all
//! others of it are there. A twin of the table, in a database that keeps everything, gets the same rows but for those that come too late, and says what the
//! views have to give.

use std::cell::RefCell;

use db::DatabasePolicy;
use model::TimeRange;
use platform::sim::Simulation;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sql::{Manner, Value};

use crate::twins::{ALL, Keeper, Twins};
use crate::world::{SECOND_NS, World};

pub(crate) const TTL_S: i64 = 4 * 3_600;

/// Host, seconds before now, and the value.
pub(crate) type Row = (u8, i64, i8);

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Write(Vec<Row>),
    /// A host, seconds before now, and how many seconds long.
    Delete(u8, i64, i64),
    Advance(i64),
    Pass,
    Restart,
    Crash,
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let row = |ago: std::ops::Range<i64>| (0u8..3, ago, any::<i8>());
    prop_oneof![
        3 => prop::collection::vec(row(0..60), 1..8).prop_map(Step::Write),
        5 => prop::collection::vec(row(TTL_S - 1_800..TTL_S + 5_400), 1..8).prop_map(Step::Write),
        2 => prop::collection::vec(row(0..TTL_S), 1..5).prop_map(Step::Write),
        1 => (0u8..3, TTL_S - 1_800..TTL_S, 0i64..900).prop_map(|(host, ago, length)| Step::Delete(host, ago, length)),
        4 => (1i64..900).prop_map(Step::Advance),
        2 => Just(Step::Pass),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

/// Views by their names, columns and queries, of which `SOURCE` stands for the table, and what gives the same of the twin where that reads another view.
const VIEWS: [(&str, &str, &str, Option<&str>); 3] = [
    (
        "minute",
        "bucket, h, s, m, l",
        "SELECT time_bucket('1 minute', time) AS bucket, h, sum(v) AS s, max(v) AS m, last(v, time) AS l FROM SOURCE GROUP BY 1, 2",
        None,
    ),
    (
        "half_an_hour",
        "bucket, m, n, d",
        "SELECT time_bucket('30 minutes', time) AS bucket, min(v) AS m, count(v) AS n, count(DISTINCT v) AS d FROM SOURCE GROUP BY 1",
        None,
    ),
    (
        "hour",
        "hour, s, m",
        "SELECT time_bucket('1 hour', bucket) AS hour, sum(s) AS s, max(m) AS m FROM minute GROUP BY 1",
        Some("SELECT time_bucket('1 hour', time) AS hour, sum(v) AS s, max(v) AS m FROM t GROUP BY 1"),
    ),
];

struct LateRows {
    twins: Twins,
    keeper: Keeper,
    /// Rows that came late for windows that were there, within an hour of their TTL.
    late: u64,
}

impl LateRows {
    fn new(keeper: Keeper) -> Self {
        let mut made = Self { twins: Twins::new(5), keeper, late: 0 };
        let first_ns = made.world().db.now_ns() - SECOND_NS;
        ["default", ALL].iter().for_each(|database| made.write(database, 0, first_ns, 1));
        for (name, _, query, _) in VIEWS {
            made.world().ask(&format!("CREATE MATERIALIZED VIEW {name} AS {}", query.replace("SOURCE", "t")));
        }
        made.twins.settle();
        match keeper {
            Keeper::Ttl => {
                made.world().ask(&format!("ALTER TABLE t SET TTL {}h", TTL_S / 3_600));
                made.world().ask(&format!("ALTER MATERIALIZED VIEW minute SET TTL {}h", 2 * TTL_S / 3_600));
            }
            Keeper::Retention => made.twins.keep_for(TTL_S),
        }
        made
    }

    fn world(&self) -> &World {
        self.twins.world()
    }

    fn write(&self, database: &str, host: u8, time_ns: i64, value: i8) {
        self.world().write(database, &format!("t,h=h{host} v={value}i {time_ns}"));
    }

    /// Writes a row to both tables: one that comes too late to the first one alone.
    fn write_both(&mut self, (host, ago_s, value): Row) {
        let time_ns = self.world().db.now_ns() - ago_s * SECOND_NS;
        let is_gone = time_ns < self.twins.gone_ns("minute");
        if is_gone && self.keeper == Keeper::Retention {
            let line = format!("t,h=h{host} v={value}i {time_ns}");
            let (report, _) = self.world().db.write_lines("default", line.as_bytes()).unwrap();
            // After a restart rows are kept that were not: there is less evidence of the time.
            assert_eq!(report.rejected_total == 1, time_ns < self.twins.kept_from_ns(), "{ago_s} s ago");
            return;
        }
        self.write("default", host, time_ns, value);
        if !is_gone {
            self.late += u64::from(ago_s > TTL_S - 3_600);
            self.write(ALL, host, time_ns, value);
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Write(rows) => rows.iter().for_each(|row| self.write_both(*row)),
            Step::Delete(host, ago_s, length_s) => {
                let from_ns = self.world().db.now_ns() - ago_s * SECOND_NS;
                self.twins.delete("t_v", *host, &TimeRange::new(from_ns, from_ns + length_s * SECOND_NS));
            }
            Step::Advance(seconds) => self.twins.advance(*seconds),
            Step::Pass => self.twins.pass(),
            Step::Restart => self.twins.reopen(|_| {}),
            Step::Crash => self.twins.reopen(Simulation::crash),
        }
        self.twins.expire();
    }

    fn check(&self, after: &Step) {
        for (name, columns, query, of_twin) in VIEWS {
            let found = self.world().ask(&format!("SELECT {columns} FROM {name} ORDER BY 1, 2"));
            let of_twin = of_twin.map_or_else(|| query.replace("SOURCE", "t"), str::to_owned);
            let of_twin = format!("{of_twin} ORDER BY 1, 2");
            let mut expected = self.world().ask_of(ALL, Manner::Postgres, &of_twin).unwrap();
            // Windows go, too: by the retention, and where they have a TTL.
            let from_ns = match self.keeper {
                Keeper::Retention => self.twins.kept_from_ns(),
                Keeper::Ttl if name == "minute" => self.twins.gone_ns("hour"),
                Keeper::Ttl => i64::MIN,
            };
            expected.retain(|row| matches!(row[0], Value::Timestamp(time_ns) if time_ns >= from_ns));
            assert_eq!(found, expected, "{name} after {after:?}");
        }
    }
}

fn late_rows_count(keeper: Keeper) {
    const CASES: u32 = 24;
    let cases = std::env::var("THALWEG_KEPT_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let config = ProptestConfig { cases, max_shrink_iters: 400, failure_persistence: None, ..Default::default() };
    let mut runner = TestRunner::new(config);
    let counts = RefCell::new((0u64, 0u64));
    let outcome = runner.run(&prop::collection::vec(step(), 20..60), |steps| {
        let mut tested = LateRows::new(keeper);
        for step in &steps {
            tested.apply(step);
            tested.check(step);
        }
        tested.twins.settle();
        tested.check(&Step::Pass);
        let (gone, late) = &mut *counts.borrow_mut();
        *gone += u64::from(tested.twins.gone_ns("minute") > i64::MIN);
        *late += tested.late;
        Ok(())
    });
    outcome.unwrap();
    let (gone, late) = *counts.borrow();
    assert!(gone > 12 && late > 100, "{gone} worlds in which rows went, {late} late rows");
}

#[test]
fn late_rows_count_in_each_window_of_a_table_with_a_ttl() {
    late_rows_count(Keeper::Ttl);
}

#[test]
fn late_rows_count_in_each_window_of_a_database_with_a_retention() {
    late_rows_count(Keeper::Retention);
}

/// Rows of the last ten hours, one a minute.
fn ten_hours() -> World {
    let world = World::empty(6);
    let now_ns = world.db.now_ns();
    let lines: String =
        (0..600).fold(String::new(), |lines, ago| lines + &format!("t v={ago}i {}\n", now_ns - ago * 60 * SECOND_NS));
    world.write("default", &lines);
    world
}

fn rows_left(world: &World) -> i64 {
    let rows = world.ask("SELECT count(*) FROM t");
    let Value::Int(count) = rows[0][0] else { panic!("{rows:?}") };
    count
}

const HOURS: &str = "SELECT time_bucket('1 hour', time) AS hour, sum(v) AS s, count(v) AS n FROM t GROUP BY 1";

#[test]
fn a_ttl_waits_for_windows_that_are_not_stored() {
    let mut world = ten_hours();
    let all = world.ask(&format!("{HOURS} ORDER BY 1"));
    let stored = |world: &World| world.ask("SELECT hour, s, n FROM v ORDER BY hour");
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {HOURS}"));
    world.ask("ALTER TABLE t SET TTL 2h");
    world.db.compact(&mut |_| {}).unwrap();
    world.settle();
    world.db.compact(&mut |_| {}).unwrap();
    assert_eq!(stored(&world), all);
    assert!(rows_left(&world) < 300);
    // A view that waits to be asked for keeps rows for an hour.
    world.ask("ALTER MATERIALIZED VIEW v SET REFRESH MANUAL");
    let count = rows_left(&world);
    let late = world.db.now_ns() - 100 * 60 * SECOND_NS - 1;
    world.write("default", &format!("t v=7000i {late}"));
    world.settle();
    world.simulation.advance_ns(50 * 60 * SECOND_NS);
    world.db.compact(&mut |_| {}).unwrap();
    assert!(rows_left(&world) > count, "the late row and all others");
    for _ in 0..3 {
        world.simulation.advance_ns(2 * 3_600 * SECOND_NS);
        world.db.compact(&mut |_| {}).unwrap();
    }
    let gone = world.ask_as(Manner::Postgres, "SELECT count(*) FROM t").unwrap_err();
    assert!(gone.contains("does not exist"), "{gone}");
}

#[test]
fn a_new_view_has_no_windows_of_a_part_of_their_rows() {
    let mut world = ten_hours();
    let all = world.ask(&format!("{HOURS} ORDER BY 1"));
    world.ask("ALTER TABLE t SET TTL 3h");
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {HOURS}"));
    world.settle();
    let found = world.ask("SELECT hour, s, n FROM v ORDER BY hour");
    assert!(found.len() >= 2 && all.ends_with(&found), "{found:?}");
}

#[test]
fn intervals_count_for_how_long_rows_are_kept() {
    let world = ten_hours();
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {HOURS}"));
    world.ask("ALTER TABLE t SET TTL 2h");
    let refused = world.ask_as(Manner::QuestDb, "ALTER MATERIALIZED VIEW v SET REFRESH EVERY 2h").unwrap_err();
    assert!(refused.contains("keep rows for"), "{refused}");
    // A window of this column reaches an hour further back.
    let refused =
        world.ask_as(Manner::Postgres, "ALTER MATERIALIZED VIEW v ADD COLUMN i AS counter_increase(v)").unwrap_err();
    assert!(refused.contains("keep rows for"), "{refused}");
}

#[test]
fn a_view_is_dropped_while_rows_go() {
    let (done, is_done) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || {
        let mut world = ten_hours();
        world.write("default", "other v=1i 1600000000000000000");
        world.ask("ALTER TABLE other SET TTL 1h");
        for _ in 0..5 {
            world.ask(&format!("CREATE MATERIALIZED VIEW v AS {HOURS}"));
            world.settle();
            world.simulation.advance_ns(300 * SECOND_NS);
            world.ask("DROP MATERIALIZED VIEW v");
        }
        done.send(()).unwrap();
    });
    is_done.recv_timeout(std::time::Duration::from_mins(2)).expect("dropping a view waits for itself");
    worker.join().unwrap();
}

/// Rows of a continuous query are in a database that keeps them for longer: late rows count in them as long as the rows of their window are there.
#[test]
fn a_continuous_query_counts_late_rows_until_their_window_goes() {
    const MINUTE_NS: i64 = 60 * SECOND_NS;
    const HALF_HOUR_NS: i64 = 30 * MINUTE_NS;
    let mut world = World::empty(7);
    let policy = |retention_ns: i64| DatabasePolicy { retention_ns, ..DatabasePolicy::default() };
    world.db.set_policy("default", &policy(8 * HALF_HOUR_NS)).unwrap();
    world.db.set_policy(ALL, &policy(0)).unwrap();
    world.write("default", &format!("t v=0i {}", world.db.now_ns()));
    let query = "CREATE CONTINUOUS QUERY half_hours ON \"default\" BEGIN SELECT sum(v) AS s, count(v) AS n, max(v) AS m INTO \"all\".\"half_hours\" FROM t GROUP BY time(30m) END";
    world.influxql("default", query).unwrap();
    world.settle();
    // To 20 minutes after the beginning of a half hour.
    let now_ns = world.db.now_ns();
    world.simulation.advance_ns(HALF_HOUR_NS - now_ns.rem_euclid(HALF_HOUR_NS) + 20 * MINUTE_NS);
    for _ in 0..12 * 30 {
        world.write("default", &format!("t v=1i {}", world.db.now_ns()));
        world.simulation.advance_ns(MINUTE_NS);
    }
    world.settle();
    world.db.compact(&mut |_| {}).unwrap();
    let row_of = |world: &World, start_ns: i64| {
        let at = jiff::Timestamp::from_nanosecond(i128::from(start_ns)).unwrap();
        let text = format!("SELECT s, n, m FROM half_hours WHERE time = '{at}'");
        let cells = world.ask_of(ALL, Manner::Postgres, &text).unwrap().concat();
        cells.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let by_age_ns = world.db.now_ns() - 8 * HALF_HOUR_NS;
    let start_ns = world.db.kept_from_ns("default").unwrap();
    assert_eq!((by_age_ns - start_ns, start_ns.rem_euclid(HALF_HOUR_NS)), (20 * MINUTE_NS, 0));
    assert_eq!(row_of(&world, start_ns), ["30", "30", "1"]);
    // A third of the window is past keeping, and the late row, too.
    world.write("default", &format!("t v=7i {}", start_ns + 3 * MINUTE_NS + 1));
    world.settle();
    assert_eq!(row_of(&world, start_ns), ["37", "31", "7"]);
    let rejected = |world: &World, time_ns: i64| {
        let (report, _) = world.db.write_lines("default", format!("t v=9i {time_ns}").as_bytes()).unwrap();
        report.rejected_total
    };
    assert_eq!(rejected(&world, start_ns - 1), 1);
    world.simulation.advance_ns(10 * MINUTE_NS);
    world.settle();
    world.db.compact(&mut |_| {}).unwrap();
    assert_eq!(rejected(&world, start_ns + 3 * MINUTE_NS), 1, "the window is gone");
    world.settle();
    assert_eq!(row_of(&world, start_ns), ["37", "31", "7"]);
}

//! A database folds the samples that views are made of. Views stay as their queries are over samples: a twin, in a database that folds nothing, gets the same rows
//! but for those that are refused, and says what the views have to give.

use std::cell::RefCell;

use db::DatabasePolicy;
use model::TimeRange;
use platform::sim::Simulation;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sql::Manner;

use crate::kept_by_windows::{Row, Step, TTL_S, step};
use crate::twins::{ALL, Twins};
use crate::world::{SECOND_NS, World};

const WIDTH_S: i64 = 600;

/// Views by their names, queries, and what gives the same of the twin where that reads another view.
const VIEWS: [(&str, &str, Option<&str>); 7] = [
    // Of windows within a fold.
    (
        "minute",
        "SELECT time_bucket('1 minute', time) AS bucket, h, sum(v) AS s, max(v) AS m, last(v, time) AS l FROM t GROUP BY 1, 2",
        None,
    ),
    // Of what a fold does not tell.
    (
        "different",
        "SELECT time_bucket('30 minutes', time) AS bucket, min(v) AS m, count(v) AS n, count(DISTINCT v) AS d FROM t GROUP BY 1",
        None,
    ),
    (
        "large",
        "SELECT time_bucket('20 minutes', time) AS bucket, h, count(*) AS n, sum(v) AS s FROM t WHERE v > 0 GROUP BY 1, 2",
        None,
    ),
    (
        "joined",
        "SELECT time_bucket('10 minutes', t.time) AS bucket, t.h, sum(q.p) AS p, count(*) AS n FROM t ASOF JOIN q ON (h) TOLERANCE 20m GROUP BY 1, 2",
        None,
    ),
    (
        "computed",
        "SELECT time_bucket('20 minutes', time) AS bucket, h, sum(v * 2.0) AS d, count(*) FILTER (WHERE v > 0) AS p, max(abs(v - 0.5)) AS x, count(*) AS n FROM t GROUP BY 1, 2",
        None,
    ),
    // Of what it tells.
    (
        "told",
        "SELECT time_bucket('20 minutes', time) AS bucket, h, sum(v) AS s, count(*) AS n, min(v) AS m, max(v) AS x, first(v, time) AS f, last(v, time) AS l, avg(v) AS a FROM t GROUP BY 1, 2",
        None,
    ),
    (
        "hour",
        "SELECT time_bucket('1 hour', bucket) AS hour, sum(s) AS s, max(m) AS m FROM minute GROUP BY 1",
        Some("SELECT time_bucket('1 hour', time) AS hour, sum(v) AS s, max(v) AS m FROM t GROUP BY 1"),
    ),
];

fn folds() -> DatabasePolicy {
    DatabasePolicy { folds: vec![(TTL_S * SECOND_NS, WIDTH_S * SECOND_NS)], ..DatabasePolicy::default() }
}

struct Folding {
    twins: Twins,
    refused: u64,
    late: u64,
}

impl Folding {
    fn new() -> Self {
        let mut made = Self { twins: Twins::new(9), refused: 0, late: 0 };
        made.world().db.set_policy("default", &folds()).unwrap();
        made.write_history();
        for (name, query, _) in VIEWS {
            made.world().ask(&format!("CREATE MATERIALIZED VIEW {name} AS {query}"));
        }
        made.twins.settle();
        // Folds take whole partitions of time, of some hours.
        for _ in 0..8 {
            made.twins.advance(3_600);
            made.write_history();
            made.twins.advance(3_600);
        }
        made.twins.settle();
        made
    }

    /// Rows of the last two hours of three hosts.
    fn write_history(&self) {
        let now_ns = self.world().db.now_ns();
        let lines = (1..78).fold(String::new(), |lines, number| {
            let (host, time_ns) = (number % 3, now_ns - number * 93 * SECOND_NS);
            lines + &format!("t,h=h{host} v={number}i {time_ns}\nq,h=h{host} p={number}i {time_ns}\n")
        });
        for database in ["default", ALL] {
            self.world().write(database, &lines);
        }
    }

    fn world(&self) -> &World {
        self.twins.world()
    }

    /// The time before which samples may be folded.
    fn foldable_ns(&self) -> i64 {
        self.world().db.foldable_before_ns("default").unwrap()
    }

    /// Writes a row, of some values one of the joined table, and to the twin if it is not refused.
    fn write_both(&mut self, (host, ago_s, value): Row) {
        let time_ns = self.world().db.now_ns() - ago_s * SECOND_NS;
        let (table, field) = if value % 4 == 0 { ("q", "p") } else { ("t", "v") };
        let line = format!("{table},h=h{host} {field}={value}i {time_ns}");
        let (report, _) = self.world().db.write_lines("default", line.as_bytes()).unwrap();
        if report.rejected_total == 0 {
            self.late += u64::from(ago_s > TTL_S - 3_600);
            self.world().write(ALL, &line);
            assert!(time_ns >= self.foldable_ns(), "{ago_s} s ago");
        } else {
            self.refused += 1;
            assert!(report.rejected[0].reason.starts_with(db::FOLDED_TIME), "{:?}", report.rejected);
            assert!(ago_s >= TTL_S, "{ago_s} s ago");
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Write(rows) => rows.iter().for_each(|row| self.write_both(*row)),
            Step::Delete(host, ago_s, length_s) => {
                let from_ns = self.world().db.now_ns() - ago_s * SECOND_NS;
                // What is folded is deleted as a whole, and closed windows stay as they are.
                if from_ns >= self.foldable_ns() {
                    self.twins.delete("t_v", *host, &TimeRange::new(from_ns, from_ns + length_s * SECOND_NS));
                }
            }
            Step::Advance(seconds) => (0..4).for_each(|_| self.twins.advance(*seconds)),
            Step::Pass => self.twins.pass(),
            Step::Restart => self.twins.reopen(|_| {}),
            Step::Crash => self.twins.reopen(Simulation::crash),
        }
        self.twins.expire();
    }

    fn check(&self, after: &Step) {
        for (name, query, of_twin) in VIEWS {
            let found = self.world().ask(&format!("SELECT * FROM {name} ORDER BY 1, 2"));
            let of_twin = format!("{} ORDER BY 1, 2", of_twin.unwrap_or(query));
            let expected = self.world().ask_of(ALL, Manner::Postgres, &of_twin).unwrap();
            let other = found.iter().zip(&expected).find(|(found, expected)| found != expected);
            assert_eq!(other, None, "{name} after {after:?}");
            assert_eq!(found.len(), expected.len(), "{name} after {after:?}");
        }
    }

    fn rows(&self, database: &str) -> usize {
        self.world().ask_of(database, Manner::Postgres, "SELECT v FROM t").unwrap().len()
    }
}

#[test]
fn views_stay_as_they_are_where_their_samples_are_folded() {
    const CASES: u32 = 12;
    let cases = std::env::var("THALWEG_KEPT_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let config = ProptestConfig { cases, max_shrink_iters: 400, failure_persistence: None, ..Default::default() };
    let mut runner = TestRunner::new(config);
    let counts = RefCell::new((0u64, 0u64, 0u64));
    let outcome = runner.run(&prop::collection::vec(step(), 20..60), |steps| {
        let mut tested = Folding::new();
        for step in &steps {
            tested.apply(step);
            tested.check(step);
        }
        tested.twins.settle();
        tested.check(&Step::Pass);
        let (folded, late, refused) = &mut *counts.borrow_mut();
        *folded += u64::from(tested.rows("default") < tested.rows(ALL));
        *late += tested.late;
        *refused += tested.refused;
        Ok(())
    });
    outcome.unwrap();
    let (folded, late, refused) = *counts.borrow();
    assert!(folded > 8 && late > 50 && refused > 20, "{folded} worlds with folds, {late} late rows, {refused} refused");
}

/// Rows of a table, one a minute for so many half hours, each of them refreshed and compacted.
fn write_half_hours(world: &mut World, tables: &[(&str, &str)], half_hours: u32) {
    for _ in 0..half_hours {
        for minute in 0..30 {
            let time_ns = world.db.now_ns() - minute * 60 * SECOND_NS;
            tables
                .iter()
                .for_each(|(database, table)| world.write(database, &format!("{table} v={minute}i {time_ns}")));
        }
        world.simulation.advance_ns(30 * 60 * SECOND_NS);
        world.settle();
    }
    world.db.compact(&mut |_| {}).unwrap();
}

fn count(world: &World, database: &str, table: &str) -> usize {
    world.ask_of(database, Manner::Postgres, &format!("SELECT v FROM {table}")).unwrap().len()
}

#[test]
fn a_continuous_query_writes_a_table_beside_folded_ones() {
    let mut world = World::empty(10);
    world.db.set_policy("year", &folds()).unwrap();
    let make = "CREATE CONTINUOUS QUERY c ON \"default\" BEGIN SELECT sum(v) AS v, count(v) AS n INTO \"year\".\"c\" FROM t GROUP BY time(5m) END";
    write_half_hours(&mut world, &[("default", "t"), ("year", "other")], 1);
    world.influxql("default", make).unwrap();
    write_half_hours(&mut world, &[("default", "t"), ("year", "other")], 48);
    assert!(count(&world, "year", "other") < 49 * 30, "nothing is folded");
    let check = |world: &World| {
        let windows =
            "SELECT time_bucket('5 minutes', time) AS bucket, sum(v) AS v, count(v) AS n FROM t GROUP BY 1 ORDER BY 1";
        let expected = world.ask(windows);
        let found = world.ask_of("year", Manner::Postgres, "SELECT time, v, n FROM c ORDER BY time").unwrap();
        assert!(expected.ends_with(&found) && found.len() > 200, "{} of {}", found.len(), expected.len());
    };
    check(&world);
    // Its table takes rows where others have folds.
    let late_ns = world.db.now_ns() - 23 * 3_600 * SECOND_NS + 1;
    world.write("default", &format!("t v=1000i {late_ns}"));
    world.settle();
    world.db.compact(&mut |_| {}).unwrap();
    check(&world);
    let (report, _) = world.db.write_lines("year", format!("other v=1i {late_ns}").as_bytes()).unwrap();
    assert_eq!(report.rejected_total, 1);
    // What is folded already is not written.
    let refused =
        world.influxql("default", &make.replace("QUERY c", "QUERY d").replace("\"c\"", "\"other\"")).unwrap_err();
    assert!(refused.contains("folded already"), "{refused}");
    world.influxql("default", "DROP CONTINUOUS QUERY c ON \"default\"").unwrap();
    world.influxql("default", make).unwrap();
}

#[test]
fn views_that_are_made_after_folds_have_what_these_tell() {
    let mut world = World::empty(11);
    for database in ["default", ALL] {
        let policy = if database == ALL { DatabasePolicy::default() } else { folds() };
        world.db.set_policy(database, &policy).unwrap();
    }
    write_half_hours(&mut world, &[("default", "t"), (ALL, "t")], 37);
    assert!(count(&world, "default", "t") < 37 * 30, "nothing is folded");
    let told =
        "SELECT time_bucket('30 minutes', time) AS bucket, sum(v) AS s, count(*) AS n, max(v) AS m FROM t GROUP BY 1";
    let changed =
        "SELECT time_bucket('30 minutes', time) AS bucket, count(DISTINCT v) AS d, sum(v) AS s FROM t GROUP BY 1";
    for (name, query) in [("told", told), ("changed", changed)] {
        world.ask(&format!("CREATE MATERIALIZED VIEW {name} AS {query}"));
    }
    for is_stored in [false, true] {
        if is_stored {
            world.settle();
        }
        for (name, query) in [("told", told), ("changed", changed)] {
            let found = world.ask(&format!("SELECT * FROM {name} ORDER BY 1"));
            let expected = world.ask_of(ALL, Manner::Postgres, &format!("{query} ORDER BY 1")).unwrap();
            assert!(expected.ends_with(&found), "{name}");
            assert_eq!(found.len() == expected.len(), name == "told", "{} of {}", found.len(), expected.len());
            assert!(found.len() > 8, "{name}");
        }
    }
    // Wider folds than the windows have: those that are stored stay, and what is folded is not taken any more.
    let wider = DatabasePolicy { folds: vec![(TTL_S * SECOND_NS, 2 * 3_600 * SECOND_NS)], ..DatabasePolicy::default() };
    world.db.set_policy("default", &wider).unwrap();
    write_half_hours(&mut world, &[("default", "t"), (ALL, "t")], 24);
    for (name, query) in [("told", told), ("changed", changed)] {
        let found = world.ask(&format!("SELECT * FROM {name} ORDER BY 1"));
        let expected = world.ask_of(ALL, Manner::Postgres, &format!("{query} ORDER BY 1")).unwrap();
        assert!(expected.ends_with(&found), "{name}");
    }
}

#[test]
fn views_whose_windows_are_older_than_the_first_fold_are_refused() {
    let world = World::empty(12);
    world.write("default", &format!("t v=1i {}", world.db.now_ns()));
    world.ask("CREATE MATERIALIZED VIEW d AS SELECT time_bucket('6 hours', time) AS bucket, count(DISTINCT v) AS d FROM t GROUP BY 1");
    let refused = world.db.set_policy("default", &folds()).unwrap_err().to_string();
    assert!(refused.contains("would keep samples as they are for 4h,") && refused.contains("\"d\""), "{refused}");
    world.ask("DROP MATERIALIZED VIEW d");
    world.db.set_policy("default", &folds()).unwrap();
    world.ask(
        "CREATE MATERIALIZED VIEW d AS SELECT time_bucket('6 hours', time) AS bucket, count(v) AS d FROM t GROUP BY 1",
    );
}

/// A late row that no view has read keeps the samples of its window, though they are old enough.
#[test]
fn samples_stay_until_the_windows_that_they_change_are_stored() {
    const HALF_HOUR_NS: i64 = 1_800 * SECOND_NS;
    // Partitions of any length that they have here begin at multiples of it.
    const PARTITION_NS: i64 = 64 * HALF_HOUR_NS;
    let mut world = World::empty(13);
    for database in ["default", ALL] {
        let policy = if database == ALL { DatabasePolicy::default() } else { folds() };
        world.db.set_policy(database, &policy).unwrap();
    }
    let boundary_ns = (world.db.now_ns() / PARTITION_NS + 2) * PARTITION_NS;
    let tables = [("default", "t"), (ALL, "t")];
    write_half_hours(&mut world, &tables, 1);
    let wait_ns = boundary_ns - 4 * HALF_HOUR_NS - world.db.now_ns();
    (0..wait_ns / HALF_HOUR_NS).for_each(|_| world.simulation.advance_ns(HALF_HOUR_NS));
    let query =
        "SELECT time_bucket('30 minutes', time) AS bucket, count(DISTINCT v) AS d, sum(v) AS s FROM t GROUP BY 1";
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {query}"));
    write_half_hours(&mut world, &tables, 11);
    let late = format!("t v=1000i {}", boundary_ns - 600 * SECOND_NS + 1);
    tables.iter().for_each(|(database, _)| world.write(database, &late));
    // The rows that a scan gives, of the time before the boundary.
    let kept = |world: &World| {
        let at = jiff::Timestamp::from_nanosecond(i128::from(boundary_ns)).unwrap();
        world.ask(&format!("SELECT v FROM t WHERE time < '{at}'")).len()
    };
    let (all, unfolded) = (count(&world, ALL, "t"), kept(&world));
    for _ in 0..5 {
        world.simulation.advance_ns(600 * SECOND_NS);
        world.db.compact(&mut |_| {}).unwrap();
    }
    assert!(world.db.now_ns() - boundary_ns > TTL_S * SECOND_NS, "they are not old enough");
    assert_eq!(kept(&world), unfolded);
    world.settle();
    for _ in 0..4 {
        world.simulation.advance_ns(HALF_HOUR_NS);
        world.settle();
        world.db.compact(&mut |_| {}).unwrap();
    }
    assert!(count(&world, "default", "t") < all, "nothing is folded");
    assert!(kept(&world) < unfolded, "they stay");
    let found = world.ask("SELECT * FROM v ORDER BY 1");
    let expected = world.ask_of(ALL, Manner::Postgres, &format!("{query} ORDER BY 1")).unwrap();
    assert!(expected.ends_with(&found) && found.len() >= 11, "{} of {}", found.len(), expected.len());
    let late_window = expected.iter().find(|row| row[2].to_string() == "1435");
    assert!(late_window.is_some_and(|row| found.contains(row)), "{expected:?}");
}

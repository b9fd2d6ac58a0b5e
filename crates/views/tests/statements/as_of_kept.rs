//! A table that is joined as of a time has a TTL, or its database a retention: windows that rows of it may be missing for stay as they were stored, all others
//! are the join. Twins of the tables, in a database that keeps everything, get the same rows but for those that come too late, and say what the views have to
//! give.

use model::TimeRange;
use platform::sim::Simulation;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sql::{Manner, Value};

use crate::twins::{ALL, Keeper, Twins};
use crate::world::{SECOND_NS, World};

const TTL_S: i64 = 3 * 3_600;

/// Host, seconds before now, and the value.
type Row = (u8, i64, i8);

#[derive(Debug, Clone)]
enum Step {
    Rows(Vec<Row>),
    Quotes(Vec<Row>),
    /// A host, seconds before now, and how many seconds long.
    NoQuotes(u8, i64, i64),
    Advance(i64),
    Pass,
    Restart,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let ago = || prop_oneof![1 => 0i64..60, 1 => 0i64..TTL_S, 2 => TTL_S - 4_000..TTL_S + 2_000];
    let rows = || prop::collection::vec((0u8..3, ago(), any::<i8>()), 1..8);
    prop_oneof![
        4 => rows().prop_map(Step::Rows),
        4 => rows().prop_map(Step::Quotes),
        1 => (0u8..3, ago(), 0i64..900).prop_map(|(host, ago, length)| Step::NoQuotes(host, ago, length)),
        4 => (1i64..1_200).prop_map(Step::Advance),
        2 => Just(Step::Pass),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

/// Views by their names and queries.
const VIEWS: [(&str, &str); 2] = [
    (
        "minutes",
        "SELECT time_bucket('2 minutes', t.time) AS bucket, t.h, sum(t.v) AS s, max(q.p) AS p, count(q.p) AS n \
         FROM t ASOF JOIN q ON (h) TOLERANCE 20m GROUP BY 1, 2",
    ),
    (
        "hours",
        "SELECT time_bucket('1 hour', t.time) AS bucket, sum(q.p) AS p, count(*) AS n FROM t LT JOIN q ON (h) TOLERANCE 5m GROUP BY 1",
    ),
];

/// Tables, with their fields.
const TABLES: [(&str, &str); 2] = [("t", "v"), ("q", "p")];

struct Joined(Twins);

impl Joined {
    fn new(keeper: Keeper) -> Self {
        let mut made = Self(Twins::new(8));
        let first_ns = made.world().db.now_ns() - SECOND_NS;
        for (table, field) in TABLES {
            // Of a host of which nothing is deleted: the tables stay.
            made.write(table, field, (9, 1), first_ns);
        }
        for (name, query) in VIEWS {
            made.world().ask(&format!("CREATE MATERIALIZED VIEW {name} AS {query}"));
        }
        made.0.settle();
        match keeper {
            Keeper::Ttl => drop(made.world().ask(&format!("ALTER TABLE q SET TTL {}h", TTL_S / 3_600))),
            Keeper::Retention => made.0.keep_for(TTL_S),
        }
        made
    }

    fn world(&self) -> &World {
        self.0.world()
    }

    /// The time before which windows stay as they are: of all views.
    fn gone_ns(&self) -> i64 {
        VIEWS.iter().map(|(name, _)| self.0.gone_ns(name)).max().unwrap()
    }

    fn write(&self, table: &str, field: &str, (host, value): (u8, i8), time_ns: i64) {
        let line = format!("{table},h=h{host} {field}={value}i {time_ns}");
        ["default", ALL].iter().for_each(|database| self.world().write(database, &line));
    }

    /// Writes a row to a table and its twin: one that comes too late for some windows not at all.
    fn write_both(&self, (table, field): (&str, &str), (host, ago_s, value): Row) {
        let time_ns = self.world().db.now_ns() - ago_s * SECOND_NS;
        if time_ns >= self.gone_ns() {
            self.write(table, field, (host, value), time_ns);
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Rows(rows) => rows.iter().for_each(|row| self.write_both(TABLES[0], *row)),
            Step::Quotes(rows) => rows.iter().for_each(|row| self.write_both(TABLES[1], *row)),
            Step::NoQuotes(host, ago_s, length_s) => {
                let from_ns = (self.world().db.now_ns() - ago_s * SECOND_NS).max(self.gone_ns());
                self.0.delete("q_p", *host, &TimeRange { start_ns: from_ns, end_ns: from_ns + length_s * SECOND_NS });
            }
            Step::Advance(seconds) => self.0.advance(*seconds),
            Step::Pass => self.0.pass(),
            Step::Restart => self.0.reopen(|_| {}),
            Step::Crash => self.0.reopen(Simulation::crash),
        }
        self.0.expire();
    }

    fn check(&self, after: &Step) {
        for (name, query) in VIEWS {
            let found = self.world().ask(&format!("SELECT * FROM {name} ORDER BY 1, 2"));
            let of_twins = format!("SELECT * FROM ({query}) q ORDER BY 1, 2");
            let mut expected = self.world().ask_of(ALL, Manner::Postgres, &of_twins).unwrap();
            // A retention takes windows, too.
            let from_ns = self.0.kept_from_ns();
            expected.retain(|row| matches!(row[0], Value::Timestamp(time_ns) if time_ns >= from_ns));
            assert_eq!(found, expected, "{name} after {after:?}");
        }
    }
}

fn windows_stay_as_they_were(keeper: Keeper) {
    const CASES: u32 = 16;
    let cases = std::env::var("THALWEG_AS_OF_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let config = ProptestConfig { cases, max_shrink_iters: 400, failure_persistence: None, ..Default::default() };
    let mut runner = TestRunner::new(config);
    let gone = std::cell::Cell::new(0);
    runner
        .run(&prop::collection::vec(step(), 20..60), |steps| {
            let mut tested = Joined::new(keeper);
            for step in &steps {
                tested.apply(step);
                tested.check(step);
            }
            tested.0.settle();
            tested.check(&Step::Pass);
            gone.set(gone.get() + u32::from(tested.gone_ns() > i64::MIN));
            Ok(())
        })
        .unwrap();
    assert!(gone.get() > cases / 2, "{} worlds in which rows went", gone.get());
}

#[test]
fn rows_that_go_by_a_ttl_leave_windows_as_they_were() {
    windows_stay_as_they_were(Keeper::Ttl);
}

#[test]
fn rows_that_go_by_a_retention_leave_windows_as_they_were() {
    windows_stay_as_they_were(Keeper::Retention);
}

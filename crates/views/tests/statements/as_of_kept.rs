//! A table that is joined as of a time has a TTL: windows that rows of it may be missing for stay as they were stored, all others are the join. Twins of
//! the tables, which keep everything and get the same rows but for those that come too late, say what the views have to give.

use model::{METRIC_NAME, MatchOp, Matcher, TimeRange};
use platform::sim::Simulation;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::world::{SECOND_NS, World};

const TTL_S: i64 = 3 * 3_600;
/// Seconds without a pass after which there is one: rows wait an hour for views that do not read them.
const UNREAD_S_MAX: i64 = 2_000;

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
    Expire,
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
        4 => Just(Step::Expire),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

/// Views by their names and queries, of which `QUOTES` and `ROWS` stand for the tables.
const VIEWS: [(&str, &str); 2] = [
    (
        "minutes",
        "SELECT time_bucket('2 minutes', t.time) AS bucket, t.h, sum(t.v) AS s, max(q.p) AS p, count(q.p) AS n \
         FROM ROWS t ASOF JOIN QUOTES q ON (h) TOLERANCE 20m GROUP BY 1, 2",
    ),
    (
        "hours",
        "SELECT time_bucket('1 hour', t.time) AS bucket, sum(q.p) AS p, count(*) AS n FROM ROWS t LT JOIN QUOTES q ON (h) TOLERANCE 5m GROUP BY 1",
    ),
];

struct Twins {
    world: Option<World>,
    unread_s: i64,
}

impl Twins {
    fn new() -> Self {
        let mut twins = Self { world: Some(World::empty(8)), unread_s: 0 };
        let first_ns = twins.world().db.now_ns() - SECOND_NS;
        for (table, field) in [("t", "v"), ("t_twin", "v"), ("q", "p"), ("q_twin", "p")] {
            twins.write(table, field, (0, 1), first_ns);
        }
        for (name, query) in VIEWS {
            let query = query.replace("ROWS", "t").replace("QUOTES", "q");
            twins.world().ask(&format!("CREATE MATERIALIZED VIEW {name} AS {query}"));
        }
        twins.settle();
        twins.world().ask(&format!("ALTER TABLE q SET TTL {}h", TTL_S / 3_600));
        twins
    }

    fn world(&self) -> &World {
        self.world.as_ref().unwrap()
    }

    fn settle(&mut self) {
        self.world.as_mut().unwrap().settle();
        self.unread_s = 0;
    }

    /// The time before which windows stay as they are: of all views.
    fn gone_ns(&self) -> i64 {
        let db = &self.world().db;
        VIEWS.iter().map(|(name, _)| db.view_frozen_before_ns(&db.view("default", name).unwrap())).max().unwrap()
    }

    fn write(&self, table: &str, field: &str, (host, value): (u8, i8), time_ns: i64) {
        self.world().write("default", &format!("{table},h=h{host} {field}={value}i {time_ns}"));
    }

    /// Writes a row to a table and its twin: one that comes too late for some windows not at all, as none whose time may be over at any moment.
    fn write_both(&self, table: &str, field: &str, (host, ago_s, value): Row) {
        let time_ns = self.world().db.now_ns() - ago_s * SECOND_NS;
        if time_ns >= self.gone_ns() && (ago_s < TTL_S || table == "t") {
            self.write(table, field, (host, value), time_ns);
            self.write(&format!("{table}_twin"), field, (host, value), time_ns);
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Rows(rows) => rows.iter().for_each(|row| self.write_both("t", "v", *row)),
            Step::Quotes(rows) => rows.iter().for_each(|row| self.write_both("q", "p", *row)),
            Step::NoQuotes(host, ago_s, length_s) => {
                let db = &self.world().db;
                let from_ns = (db.now_ns() - ago_s * SECOND_NS).max(self.gone_ns());
                let range = TimeRange { start_ns: from_ns, end_ns: from_ns + length_s * SECOND_NS };
                for name in ["q_p", "q_twin_p"] {
                    let host = Matcher::new("h", MatchOp::Equal, format!("h{host}"));
                    db.delete("default", &[vec![Matcher::new(METRIC_NAME, MatchOp::Equal, name), host]], &range)
                        .unwrap();
                }
            }
            Step::Advance(seconds) => {
                self.world().simulation.advance_ns(seconds * SECOND_NS);
                self.unread_s += seconds;
                if self.unread_s > UNREAD_S_MAX {
                    self.settle();
                }
            }
            Step::Pass => drop(self.world.as_mut().unwrap().refresher.pass().unwrap()),
            Step::Expire => drop(self.world().db.compact(&mut |_| {}).unwrap()),
            Step::Restart => self.world = self.world.take().map(|world| world.reopened(|_| {})),
            Step::Crash => self.world = self.world.take().map(|world| world.reopened(Simulation::crash)),
        }
    }

    fn check(&self, after: &Step) {
        for (name, query) in VIEWS {
            let found = self.world().ask(&format!("SELECT * FROM {name} ORDER BY 1, 2"));
            let of_twins = query.replace("ROWS", "t_twin").replace("QUOTES", "q_twin");
            let expected = self.world().ask(&format!("SELECT * FROM ({of_twins}) q ORDER BY 1, 2"));
            assert_eq!(found, expected, "{name} after {after:?}");
        }
    }
}

#[test]
fn rows_that_go_by_a_ttl_leave_windows_as_they_were() {
    const CASES: u32 = 16;
    let cases = std::env::var("THALWEG_AS_OF_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let config = ProptestConfig { cases, max_shrink_iters: 400, failure_persistence: None, ..Default::default() };
    let mut runner = TestRunner::new(config);
    let gone = std::cell::Cell::new(0);
    runner
        .run(&prop::collection::vec(step(), 20..60), |steps| {
            let mut twins = Twins::new();
            for step in &steps {
                twins.apply(step);
                twins.check(step);
            }
            twins.settle();
            twins.check(&Step::Pass);
            gone.set(gone.get() + u32::from(twins.gone_ns() > i64::MIN));
            Ok(())
        })
        .unwrap();
    assert!(gone.get() > cases / 2, "{} worlds in which rows went", gone.get());
}

#[test]
fn windows_are_stored_once_whose_joined_rows_are_gone() {
    let mut world = World::empty(9);
    let now_ns = world.db.now_ns();
    for minute in (0..600).step_by(7) {
        let time_ns = now_ns - minute * 60 * SECOND_NS;
        world.write("default", &format!("t,h=h0 v={minute}i {time_ns}\nq,h=h0 p={minute}i {}", time_ns - SECOND_NS));
    }
    let (_, query) = VIEWS[0];
    let query = query.replace("ROWS", "t").replace("QUOTES", "q");
    // One that is not refreshed before the rows go, and one that is made then.
    world.ask(&format!("CREATE MATERIALIZED VIEW early AS {query}"));
    world.ask(&format!("ALTER TABLE q SET TTL {}h", TTL_S / 3_600));
    for _ in 0..3 {
        world.simulation.advance_ns(3_600 * SECOND_NS);
        world.db.compact(&mut |_| {}).unwrap();
    }
    world.ask(&format!("CREATE MATERIALIZED VIEW made_then AS {query}"));
    let expected = world.ask(&format!("SELECT * FROM ({query}) q ORDER BY 1, 2"));
    assert!(world.ask("SELECT count(*) FROM q WHERE p IS NOT NULL") != world.ask("SELECT count(*) FROM t"));
    for settled in [false, true] {
        if settled {
            world.settle();
        }
        for name in ["early", "made_then"] {
            let found = world.ask(&format!("SELECT * FROM {name} ORDER BY 1, 2"));
            assert_eq!(found, expected, "{name}, settled: {settled}");
        }
    }
}

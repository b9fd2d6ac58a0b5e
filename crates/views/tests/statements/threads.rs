//! Readers beside writers and the background, in threads: no answer lacks a row that was acknowledged before its query began, and none has a row
//! that was sent after it ended. PromQL's answers, which have the windows that are over, never have fewer than before.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use db::{Db, DbOptions, InstantQuery};
use platform::sim::Simulation;
use promql::ResultValue;
use query::{Budget, ViewUse};
use sql::{ClientContext, Value};
use thalweg_views::{RefreshLimits, Refresher};

use crate::world::SECOND_NS;

const WRITERS: usize = 3;
const BATCHES: i64 = 60;
const ROWS: i64 = 12;
const BATCHES_A_PASS: i64 = 2;

/// Rows are that late, at most.
const LATE_S_MAX: i64 = 3_000;

/// Simulated seconds from pass to pass, and how often they go by: with the lateness less than the three hours of ranges.
const ADVANCE_S: i64 = 17;
const ADVANCES_MAX: i64 = 350;

/// Each is the number of rows of the table: by a view's windows, by those of a view over it, and by the table, which the view answers.
const COUNTS: [&str; 3] = [
    "SELECT sum(n) FROM minutes",
    "SELECT sum(n) FROM tens",
    "SELECT sum(n) FROM (SELECT time_bucket('1 minute', time) AS bucket, count(*) AS n FROM t GROUP BY 1) w",
];

/// Those counts in PromQL, which has the windows that are to be stored by now.
const COUNTS_OF_PROMQL: [&str; 2] = ["sum(sum_over_time(minutes_n[3h]))", "sum(sum_over_time(tens_n[3h]))"];

struct Shared {
    simulation: Simulation,
    db: Arc<Db>,
    /// Rows that writers began to send.
    begun: AtomicI64,
    /// Rows that were acknowledged.
    acknowledged: AtomicI64,
    /// Passes and answers so far.
    passes: AtomicI64,
    asked: AtomicI64,
    /// Writers that are not done.
    writing: AtomicUsize,
    has_failed: AtomicBool,
}

/// A part of the work. Its end is noted, also by a failure: the others do not wait for it.
struct Part<'a> {
    shared: &'a Shared,
    is_writer: bool,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.shared.has_failed.fetch_or(std::thread::panicking(), Ordering::SeqCst);
        self.shared.writing.fetch_sub(usize::from(self.is_writer), Ordering::SeqCst);
    }
}

impl Shared {
    fn open() -> Self {
        let simulation = Simulation::new(31);
        let mut options = DbOptions::new("/data");
        // Flushes and merges happen meanwhile.
        options.store.head_bytes_max = 64 << 10;
        options.store.log_segment_bytes = 64 << 10;
        let db = Arc::new(Db::open(simulation.platform(), options).unwrap());
        let (begun, acknowledged) = (AtomicI64::new(1), AtomicI64::new(1));
        let (passes, asked, writing) = (AtomicI64::new(0), AtomicI64::new(0), AtomicUsize::new(WRITERS));
        let has_failed = AtomicBool::new(false);
        let shared = Self { simulation, db, begun, acknowledged, passes, asked, writing, has_failed };
        let line = format!("t,host=h v=1 {}", shared.db.now_ns() - LATE_S_MAX * SECOND_NS);
        shared.db.write_lines("default", line.as_bytes()).unwrap();
        shared.ask(ViewUse::All, "CREATE MATERIALIZED VIEW minutes AS SELECT time_bucket('1 minute', time) AS bucket, host, count(*) AS n FROM t GROUP BY 1, 2");
        shared.ask(ViewUse::All, "CREATE MATERIALIZED VIEW tens AS SELECT time_bucket('10 minutes', bucket) AS bucket, sum(n) AS n FROM minutes GROUP BY 1");
        shared
    }

    fn ask(&self, view_use: ViewUse, text: &str) -> Vec<Vec<Value>> {
        let budget = Arc::new(Budget::new(10_000_000));
        budget.use_views(view_use);
        let client = ClientContext::new("default", self.db.now_ns());
        let answer = self.db.sql(&sql::parse(text).unwrap(), 0, &client, &budget);
        let answer = answer.unwrap_or_else(|error| panic!("{text}: {error}"));
        answer.relation().map(|relation| relation.rows).unwrap_or_default()
    }

    fn count(&self, view_use: ViewUse, text: &str) -> i64 {
        let rows = self.ask(view_use, text);
        rows[0][0].number().unwrap_or_else(|| panic!("{text}: {rows:?}")) as i64
    }

    /// The value of PromQL, which may be a kept one.
    fn value(&self, text: &str) -> i64 {
        let query = InstantQuery::new(text, self.db.now_ns() / 1_000_000);
        let answer = self.db.instant("default", &query).unwrap_or_else(|error| panic!("{text}: {error}"));
        let ResultValue::Vector(samples) = answer.value else { panic!("{text} is no vector") };
        samples.first().map_or(0, |sample| sample.value as i64)
    }

    /// Asks PromQL until all is written; returns how often.
    fn read_values(&self, text: &str) -> usize {
        let _part = Part { shared: self, is_writer: false };
        let (mut asked, mut before) = (0, 0);
        while self.writing.load(Ordering::SeqCst) > 0 {
            let found = self.value(text);
            let most = self.begun.load(Ordering::SeqCst);
            assert!((before..=most).contains(&found), "{text}: {found} after {before}, of {most}");
            (asked, before) = (asked + 1, found);
        }
        asked
    }

    /// Writes rows of now and late ones, each at a time of its own.
    fn write_all(&self, writer: usize) {
        let _part = Part { shared: self, is_writer: true };
        for batch in 0..BATCHES {
            // Behind the background and the readers: each of them meets all states of the table.
            while self.is_behind(batch) {
                std::thread::yield_now();
            }
            let now_ns = self.db.now_ns();
            let mut lines = String::new();
            for row in 0..ROWS {
                let number = batch * ROWS + row;
                let ago_s = if row % 2 == 0 { 0 } else { (number * 911) % LATE_S_MAX };
                writeln!(lines, "t,host=h{writer} v=1 {}", now_ns - ago_s * SECOND_NS + number).unwrap();
            }
            self.begun.fetch_add(ROWS, Ordering::SeqCst);
            let (report, errors) = self.db.write_lines("default", lines.as_bytes()).unwrap();
            assert_eq!((report.rows_written, errors.total), (ROWS as u64, 0));
            self.acknowledged.fetch_add(ROWS, Ordering::SeqCst);
        }
    }

    /// Returns whether the background or readers have done less than belongs to a batch.
    fn is_behind(&self, batch: i64) -> bool {
        let [passes, asked] = [&self.passes, &self.asked].map(|count| count.load(Ordering::SeqCst));
        !self.has_failed.load(Ordering::SeqCst) && (passes < batch / BATCHES_A_PASS || asked < batch)
    }

    /// Asks until all is written; returns how often.
    fn read_all(&self, text: &str) -> usize {
        let _part = Part { shared: self, is_writer: false };
        let (mut asked, mut before) = (0, 0);
        loop {
            let is_over = self.writing.load(Ordering::SeqCst) == 0;
            let least = self.acknowledged.load(Ordering::SeqCst);
            let found = self.count(ViewUse::All, text);
            let most = self.begun.load(Ordering::SeqCst);
            assert!(
                (least.max(before)..=most).contains(&found),
                "{text}: {found} is not from {least} to {most}, after {before}"
            );
            (asked, before) = (asked + 1, found);
            self.asked.fetch_add(1, Ordering::SeqCst);
            if is_over {
                return asked;
            }
        }
    }

    /// Time passes, and the background makes passes and merges, until all is written; returns how many passes.
    fn refresh_all(&self, refresher: &mut Refresher) -> i64 {
        let _part = Part { shared: self, is_writer: false };
        while self.writing.load(Ordering::SeqCst) > 0 {
            // Another minute is over every few passes. Ranges of PromQL hold all rows, however many passes there are.
            if self.passes.load(Ordering::SeqCst) < ADVANCES_MAX {
                self.simulation.advance_ns(ADVANCE_S * SECOND_NS);
            }
            refresher.pass().unwrap();
            if self.passes.fetch_add(1, Ordering::SeqCst) % 8 == 0 {
                self.db.compact(&mut |_| {}).unwrap();
            }
        }
        self.passes.load(Ordering::SeqCst)
    }
}

#[test]
fn readers_miss_nothing_while_views_are_written_and_refreshed() {
    let shared = Shared::open();
    let limits = RefreshLimits { dirty_max: 40, pieces_max: 2, ..RefreshLimits::default() };
    let mut refresher = Refresher::new(shared.db.clone(), limits);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let shared = &shared;
            scope.spawn(move || shared.write_all(writer));
        }
        let readers = COUNTS.map(|text| scope.spawn(|| shared.read_all(text)));
        let readers_of_promql = COUNTS_OF_PROMQL.map(|text| scope.spawn(|| shared.read_values(text)));
        let passes = shared.refresh_all(&mut refresher);
        let asked = readers_of_promql.map(|reader| reader.join().unwrap());
        assert!(asked.iter().all(|asked| *asked > 1), "{asked:?}");
        let asked = readers.map(|reader| reader.join().unwrap());
        println!("{passes} passes beside {asked:?} queries");
        assert!(passes > 1 && asked.iter().all(|asked| *asked > 1), "{passes} {asked:?}");
    });
    let passes = (0..100).take_while(|_| refresher.pass().unwrap()).count();
    assert!(passes < 100, "refreshing does not end");
    let all = 1 + WRITERS as i64 * BATCHES * ROWS;
    for text in COUNTS {
        assert_eq!(shared.count(ViewUse::All, text), all, "{text}");
        assert_eq!(shared.count(ViewUse::Named, text), all, "{text}");
    }
    let of_source =
        "SELECT time_bucket('1 minute', time) AS bucket, host, count(*) AS n FROM t GROUP BY 1, 2 ORDER BY 1, 2";
    let expected = shared.ask(ViewUse::Named, of_source);
    assert_eq!(shared.ask(ViewUse::All, "SELECT bucket, host, n FROM minutes ORDER BY 1, 2"), expected);
    // What is stored is right, too.
    shared.simulation.advance_ns(1_200 * SECOND_NS);
    let values = || COUNTS_OF_PROMQL.map(|text| shared.value(text));
    assert_eq!(values(), [all; 2]);
    while refresher.pass().unwrap() {}
    assert_eq!(shared.ask(ViewUse::Stored, "SELECT bucket, host, n FROM minutes ORDER BY 1, 2"), expected);
    assert_eq!(shared.count(ViewUse::Stored, COUNTS[1]), all);
    assert_eq!(values(), [all; 2]);
}

/// A view that is dropped, or made anew with other rows, while a query of its table is under way, answers no part of it.
#[test]
fn queries_miss_nothing_while_views_are_dropped_and_made() {
    const ALL: i64 = 2_001;
    let shared = Shared::open();
    let now_ns = shared.db.now_ns();
    let mut lines = String::new();
    for number in 1..ALL {
        writeln!(lines, "t,host=h{} v={} {}", number % 7, number % 10, now_ns - number * 3 * SECOND_NS).unwrap();
    }
    shared.db.write_lines("default", lines.as_bytes()).unwrap();
    let mut refresher = Refresher::new(shared.db.clone(), RefreshLimits::default());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = || {
            let mut asked = 0;
            while !is_over.load(Ordering::SeqCst) {
                assert_eq!(shared.count(ViewUse::All, "SELECT count(*), stddev(v) FROM t"), ALL);
                asked += 1;
            }
            asked
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        let mut answered = 0;
        for round in 0..60 {
            let condition = if round % 3 == 0 { "WHERE v > 4" } else { "" };
            shared.ask(ViewUse::All, &format!("CREATE MATERIALIZED VIEW deviations AS SELECT time_bucket('1 minute', time) AS bucket, stddev(v) AS dev, count(*) AS n FROM t {condition} GROUP BY 1"));
            while refresher.pass().unwrap() {}
            let explained = shared.ask(ViewUse::All, "EXPLAIN SELECT count(*), stddev(v) FROM t");
            answered += usize::from(format!("{explained:?}").contains("deviations"));
            shared.ask(ViewUse::All, "DROP MATERIALIZED VIEW deviations");
        }
        is_over.store(true, Ordering::SeqCst);
        let asked = readers.map(|reader| reader.join().unwrap());
        println!("{answered} views beside {asked:?} queries");
        assert!(answered > 10 && asked.iter().all(|asked| *asked > 1), "{answered} {asked:?}");
    });
}

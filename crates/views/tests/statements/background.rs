//! A view over older rows is filled in the background: the newest windows first, after a crash from where it was, at the rate that merges have. Its progress is told.

use std::fmt::Write;
use std::sync::Arc;

use db::{Db, DbOptions};
use model::TimeRange;
use platform::sim::Simulation;
use query::views::{View, ViewStatus};
use query::{Budget, ViewUse};
use sql::{ClientContext, Value};
use thalweg_views::{RefreshLimits, Refresher};

use crate::world::SECOND_NS;

const MINUTE_NS: i64 = 60 * SECOND_NS;
const MINUTES: i64 = 3_000;

/// A piece of at most so many windows each pass.
const LIMITS: RefreshLimits = RefreshLimits {
    dirty_max: 1_000,
    pieces_max: 1,
    piece_windows_max: 128,
    samples_max: 1_000_000,
    save_interval_ns: 0,
    log_samples_max: 1_000_000,
};

struct World {
    simulation: Simulation,
    db: Arc<Db>,
    refresher: Refresher,
}

impl World {
    fn open(simulation: Simulation, merge_bytes_per_second_max: u64) -> Self {
        let mut options = DbOptions::new("/data");
        options.store.merge_bytes_per_second_max = merge_bytes_per_second_max;
        let db = Arc::new(Db::open(simulation.platform(), options).unwrap());
        let refresher = Refresher::new(db.clone(), LIMITS);
        Self { simulation, db, refresher }
    }

    /// A row in each of many minutes, and a view of them of which nothing is stored.
    fn filled(merge_bytes_per_second_max: u64) -> Self {
        let world = Self::open(Simulation::new(21), merge_bytes_per_second_max);
        let now_ns = world.db.now_ns();
        let mut lines = String::new();
        for minute in 0..MINUTES {
            writeln!(lines, "t,host=a v={minute} {}", now_ns - minute * MINUTE_NS).unwrap();
        }
        world.db.write_lines("default", lines.as_bytes()).unwrap();
        world.ask(
            ViewUse::All,
            "CREATE MATERIALIZED VIEW w AS SELECT time_bucket('1 minute', time) AS bucket, host, sum(v) AS total, count(*) AS n FROM t GROUP BY 1, 2",
        );
        world
    }

    fn crashed(self) -> Self {
        let Self { simulation, db, refresher } = self;
        drop((refresher, db));
        simulation.crash();
        Self::open(simulation, 0)
    }

    fn try_ask(&self, view_use: ViewUse, text: &str) -> Result<Vec<Vec<Value>>, String> {
        let budget = Arc::new(Budget::new(10_000_000));
        budget.use_views(view_use);
        let client = ClientContext::new("default", self.db.now_ns());
        let answer = self.db.sql(&sql::parse(text).unwrap(), 0, &client, &budget).map_err(|error| error.to_string())?;
        Ok(answer.relation().map(|relation| relation.rows).unwrap_or_default())
    }

    fn ask(&self, view_use: ViewUse, text: &str) -> Vec<Vec<Value>> {
        self.try_ask(view_use, text).unwrap()
    }

    fn view(&self) -> Arc<View> {
        self.db.view("default", "w").unwrap()
    }

    fn status(&self) -> ViewStatus {
        self.db.view_status("default", "w")
    }

    /// The range that is to be computed next, of those that are listed as pending.
    fn next(&self) -> Option<TimeRange> {
        let view = self.view();
        let next = self.db.next_view_range(&view).map(|pending| pending.range);
        assert_eq!(next, view.state.pending.iter().map(|pending| pending.range).max_by_key(|range| range.end_ns));
        next
    }

    /// How many windows are stored, and where the first of them begins.
    fn stored(&self) -> (i64, i64) {
        let rows = match self.try_ask(ViewUse::Stored, "SELECT count(*), min(bucket) FROM w") {
            Err(error) if error.contains("does not exist") => return (0, i64::MAX),
            rows => rows.unwrap(),
        };
        match rows[0][..] {
            [Value::Int(count), Value::Timestamp(first_ns)] => (count, first_ns),
            ref other => panic!("{other:?}"),
        }
    }

    /// Makes a pass. What it stored are the newest of the windows that were pending.
    fn pass(&mut self) -> bool {
        let (before, (known, _)) = (self.next(), self.stored());
        let has_more = self.refresher.pass().unwrap();
        let (count, first_ns) = self.stored();
        let Some(next) = self.next() else {
            assert!(!has_more);
            return false;
        };
        assert!(has_more, "{next:?} is pending");
        assert!(count > known && count - known <= LIMITS.piece_windows_max as i64, "{known} {count}");
        assert!(before.is_none_or(|before| next.end_ns < before.end_ns), "{before:?} {next:?}");
        // All that are stored are newer than what is pending, and none is left out.
        assert_eq!(first_ns, next.end_ns + 1);
        let newest_ns = self.view().state.watermark_ns;
        assert_eq!(count, (newest_ns - first_ns) / MINUTE_NS);
        true
    }
}

#[test]
fn the_newest_windows_are_stored_first_and_a_crash_begins_nothing_anew() {
    let mut world = World::filled(0);
    for _ in 0..7 {
        assert!(world.pass());
    }
    let (before, stored) = (world.next().unwrap(), world.stored());
    let written = world.status().rows_written;
    assert_eq!((i64::try_from(written).unwrap(), world.status().refreshes), (stored.0, 7));
    let mut world = world.crashed();
    assert_eq!((world.next(), world.stored()), (Some(before), stored), "it is where it was");
    let passes = (0..100).take_while(|_| world.pass()).count();
    assert!((10..100).contains(&passes), "{passes}");
    let (all, first_ns) = world.stored();
    assert_eq!(all, (world.view().state.watermark_ns - first_ns) / MINUTE_NS);
    assert_eq!(first_ns / MINUTE_NS, (world.db.now_ns() - (MINUTES - 1) * MINUTE_NS) / MINUTE_NS, "the oldest row's");
    let status = world.status();
    assert_eq!(i64::try_from(status.rows_written).unwrap(), all - stored.0, "no window was stored twice");
    assert!(status.refreshed_ns.is_some() && status.error.is_none());
    let sums = "SELECT sum(total), sum(n) FROM w";
    let of_source = "SELECT sum(v), count(*) FROM t";
    assert_eq!(world.ask(ViewUse::All, sums), world.ask(ViewUse::Named, of_source));
}

#[test]
fn the_background_writes_no_faster_than_merges_may() {
    /// Nanoseconds of simulated time that pass at once.
    const STEP_NS: i64 = 1_000_000;
    const PASSES: u64 = 2;
    /// What may be written ahead of the rate after each pause.
    const BURST_NS: u64 = 100_000_000;
    let waited_ns = |bytes_per_second_max: u64| {
        let mut world = World::filled(bytes_per_second_max);
        let (simulation, db) = (world.simulation.clone(), world.db.clone());
        std::thread::scope(|scope| {
            let passes = scope.spawn(|| (0..PASSES).for_each(|_| assert!(world.refresher.pass().unwrap())));
            while !passes.is_finished() {
                simulation.advance_ns(STEP_NS);
                std::thread::yield_now();
            }
        });
        (db.stats().merges_waited_ns, db.view_status("default", "w").rows_written)
    };
    assert_eq!(waited_ns(0).0, 0);
    let bytes_per_second = 10_000;
    let (paced_ns, rows) = waited_ns(bytes_per_second);
    // Two numbers of sixteen bytes for each window.
    let bytes = rows * 32;
    let least_ns = bytes * 1_000_000_000 / bytes_per_second - PASSES * BURST_NS;
    assert!(least_ns > 0 && paced_ns >= least_ns, "{paced_ns} ns for {rows} rows");
}

/// The time that retention goes by lags behind the clock after a stop: windows do not wait for it.
#[test]
fn windows_are_over_by_the_clock_after_a_stop() {
    for stop_ns in [0, 400 * SECOND_NS, 20 * 3_600 * SECOND_NS] {
        let mut world = crate::world::World::empty(11);
        let write = |world: &crate::world::World| {
            let now_ns = world.db.now_ns();
            let lines = (0..10).map(|row| format!("cpu x=1 {}\n", now_ns - row * 60 * SECOND_NS));
            world.write("default", &lines.collect::<String>());
        };
        write(&world);
        world.ask("CREATE MATERIALIZED VIEW v WITH (timescaledb.continuous) AS SELECT time_bucket('1 minute', time) AS bucket, sum(x) AS total FROM cpu GROUP BY 1");
        world.settle();
        let mut world = world.reopened(|simulation| {
            simulation.crash();
            simulation.set_clock_ns(simulation.platform().clock.now_ns() + stop_ns);
        });
        assert!(world.db.now_ns() - world.db.trusted_now_ns() >= stop_ns / 2, "it lags");
        write(&world);
        world.settle();
        let over = sql::format_rfc3339_us(world.db.now_ns() - 180 * SECOND_NS);
        let explained = world.explained(&format!("SELECT * FROM v WHERE bucket < '{over}'"));
        assert!(!explained.contains("(computed"), "{stop_ns}: {explained}");
    }
}

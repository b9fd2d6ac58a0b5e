//! Flux's queries of a table that a view of it answers: the same as without it, by less that is read.

use flux::{Dialect, Query, RequestContext};
use query::ViewUse;

use crate::world::{SECOND_NS, World, is_close};

const MINUTE_NS: i64 = 60 * SECOND_NS;

/// Rows of 50 minutes, of six hosts of two regions and of one that has no region; `usage` has gaps.
fn lines(now_ns: i64, numbers: std::ops::Range<i64>) -> String {
    let line = |number: i64| {
        let host = number % 7;
        let region = if host == 6 { String::new() } else { format!(",region=r{}", host % 2) };
        let usage = if number % 5 == 0 { String::new() } else { format!("usage={}.5,", number * 13 % 100) };
        format!("cpu,host=h{host}{region} {usage}requests={}i {}\n", number % 11, now_ns - number * SECOND_NS)
    };
    numbers.map(line).collect()
}

const VIEWS: [&str; 3] = [
    "CREATE MATERIALIZED VIEW minutes AS SELECT time_bucket('1 minute', time) AS bucket, region, avg(usage) AS usage, stddev(usage) AS dev, max(usage) AS most, min(usage) AS least, \
     sum(requests) AS requests, count(*) AS n FROM cpu GROUP BY 1, 2",
    "CREATE MATERIALIZED VIEW hosts AS SELECT time_bucket('1 minute', time) AS bucket, host, region, stddev(usage) AS dev, quantile(usage, 0.5) AS middle, count(*) AS n FROM cpu \
     GROUP BY 1, 2, 3",
    "CREATE MATERIALIZED VIEW high AS SELECT time_bucket('1 minute', time) AS bucket, host, region, max(usage) AS most, last(usage, time) AS newest, count(*) AS n FROM cpu \
     WHERE usage > 50 GROUP BY 1, 2, 3",
];

/// Pipelines after the range, and whether a view answers them.
const PIPELINES: [(&str, bool); 18] = [
    (
        "filter(fn: (r) => r._field == \"usage\") |> group(columns: [\"region\"]) |> aggregateWindow(every: 5m, fn: stddev)",
        true,
    ),
    (
        "filter(fn: (r) => r._field == \"usage\") |> group(columns: [\"region\"]) |> aggregateWindow(every: 1m, fn: mean, createEmpty: false)",
        true,
    ),
    (
        "filter(fn: (r) => r._field == \"usage\") |> group(columns: [\"_time\", \"_value\", \"host\"], mode: \"except\") |> aggregateWindow(every: 2m, fn: count)",
        true,
    ),
    ("filter(fn: (r) => r._field == \"usage\" and r.region == \"r1\") |> group() |> mean()", true),
    ("filter(fn: (r) => r._field == \"usage\") |> group() |> aggregateWindow(every: 10m, fn: spread)", true),
    ("filter(fn: (r) => r._field == \"requests\") |> group(columns: [\"region\", \"_field\"]) |> sum()", true),
    ("filter(fn: (r) => r._field == \"usage\") |> group(columns: [\"region\"]) |> stddev()", true),
    ("group(columns: [\"region\", \"_field\"]) |> aggregateWindow(every: 5m, fn: sum)", true),
    // Each series by itself.
    ("filter(fn: (r) => r._field == \"usage\") |> aggregateWindow(every: 5m, fn: stddev)", true),
    ("filter(fn: (r) => r._field == \"usage\") |> aggregateWindow(every: 1m, fn: median)", true),
    ("filter(fn: (r) => r._field == \"usage\") |> aggregateWindow(every: 5m, fn: median)", false),
    ("filter(fn: (r) => r._field == \"usage\") |> aggregateWindow(every: 5m, fn: mean)", false),
    // The condition is the view's.
    ("filter(fn: (r) => r._field == \"usage\" and r._value > 50) |> aggregateWindow(every: 5m, fn: max)", true),
    (
        "filter(fn: (r) => r._field == \"usage\" and r._value > 50) |> group(columns: [\"host\", \"region\", \"_field\", \"_measurement\"]) |> aggregateWindow(every: 2m, fn: last)",
        true,
    ),
    ("filter(fn: (r) => r._field == \"usage\" and r._value > 51) |> aggregateWindow(every: 5m, fn: max)", false),
    // Windows that are not made of whole ones of the view, and labels that it does not have.
    ("filter(fn: (r) => r._field == \"usage\") |> group() |> aggregateWindow(every: 90s, fn: stddev)", false),
    (
        "filter(fn: (r) => r._field == \"usage\") |> group(columns: [\"host\"]) |> aggregateWindow(every: 5m, fn: mean)",
        false,
    ),
    (
        "filter(fn: (r) => r._field == \"usage\") |> group(columns: [\"region\"]) |> aggregateWindow(every: 5m, fn: max)",
        false,
    ),
];

impl World {
    /// What a script gives, and how many samples it took.
    fn flux_work(&self, script: &str, view_use: ViewUse) -> (String, u64) {
        let budget = Self::budget();
        budget.use_views(view_use);
        budget.compute_all();
        let context = RequestContext { now_ns: self.db.now_ns(), ..RequestContext::default() };
        let results = self.db.run_flux(&Query::parse(script).unwrap(), &context, &budget).unwrap();
        (results.csv(&Dialect::default()), budget.samples_taken())
    }

    fn check_flux(&self, after: &str) {
        for (start, stop) in [("-60m", "-0s"), ("-2417s", "-139s")] {
            for (pipeline, is_viewed) in PIPELINES {
                let script = format!(
                    "from(bucket: \"default\") |> range(start: {start}, stop: {stop}) |> filter(fn: (r) => r._measurement == \"cpu\") |> {pipeline}"
                );
                let (found, taken) = self.flux_work(&script, ViewUse::All);
                let (expected, taken_of_table) = self.flux_work(&script, ViewUse::Named);
                // Before the background knows of all that happened, little may be right as it is stored.
                if after.ends_with("settled") {
                    assert_eq!(taken != taken_of_table, is_viewed, "{after}: {script}: {taken}, {taken_of_table}");
                }
                let cells = |text: &str| text.split([',', '\n']).map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
                let (cells_found, cells_expected) = (cells(&found), cells(&expected));
                let is_alike = |(a, b): (&String, &String)| match (a.parse(), b.parse()) {
                    (Ok(a), Ok(b)) => is_close(&sql::Value::Float(a), &sql::Value::Float(b)),
                    _ => a == b,
                };
                assert_eq!(cells_found.len(), cells_expected.len(), "{after}: {script}: {found}\n{expected}");
                assert!(
                    cells_found.iter().zip(&cells_expected).all(is_alike),
                    "{after}: {script}: {found}\n{expected}"
                );
                assert!(found.lines().count() > 1, "{after}: {script}: {found}");
            }
        }
    }
}

#[test]
fn grouped_queries_of_flux_are_answered_by_views() {
    let mut world = World::empty(72);
    world.simulation.advance_ns(2 * MINUTE_NS);
    let now_ns = world.db.now_ns();
    world.write("default", &lines(now_ns, 0..3_000));
    VIEWS.iter().for_each(|view| drop(world.ask(view)));
    world.simulation.advance_ns(3 * MINUTE_NS);
    world.settle();
    world.check_flux("settled");
    world.write("default", &lines(now_ns - SECOND_NS / 2, 900..1_000));
    world.check_flux("late rows");
    world.settle();
    world.check_flux("late rows, settled");
    world.ask("DELETE FROM cpu WHERE host = 'h1'");
    world.check_flux("rows are deleted");
}

//! Continuous queries and tasks whose rows go to other databases.

use std::fmt::Write;
use std::sync::Arc;

use db::DatabasePolicy;
use db::views::{TaskSettings, task_id};
use flux::TaskScript;
use model::TimeRange;
use proptest::test_runner::{Config, TestRunner};
use proptest::{collection, prop_oneof, strategy::Just, strategy::Strategy};

use crate::world::{SECOND_NS, World};

/// An empty folder with these databases.
fn world(databases: &[&str]) -> World {
    let world = World::empty(5);
    databases.iter().for_each(|database| world.db.set_policy(database, &DatabasePolicy::default()).unwrap());
    world
}

impl World {
    /// The rows of a script's answer, without the columns of its annotations.
    fn flux(&self, text: &str) -> Vec<String> {
        let query = flux::Query::parse(text).unwrap();
        let request = flux::RequestContext { now_ns: self.db.now_ns(), ..flux::RequestContext::default() };
        let results = self.db.run_flux(&query, &request, &Self::budget()).unwrap();
        let csv = results.csv(&flux::Dialect::default());
        let (mut columns, mut rows) = (Vec::new(), Vec::new());
        for line in csv.lines().map(str::trim) {
            let cells: Vec<&str> = line.split(',').collect();
            if cells.get(1) == Some(&"result") {
                columns = cells.iter().map(|cell| (*cell).to_owned()).collect();
            } else if cells.len() == columns.len() && cells.len() > 1 {
                let kept = |name: &String| !["", "result", "table", "_start", "_stop"].contains(&name.as_str());
                let of_row = columns.iter().zip(cells).filter(|(name, _)| kept(name));
                let mut shown: Vec<String> = of_row.map(|(name, cell)| format!("{name}={cell}")).collect();
                shown.sort();
                rows.push(shown.join(" "));
            }
        }
        rows.sort();
        rows
    }

    fn task(&self, script: &str) -> Result<Arc<query::views::View>, String> {
        let script = TaskScript::parse(script).map_err(|error| error.to_string())?;
        self.db.create_task(&script, TaskSettings::default(), &Self::budget()).map_err(|error| error.to_string())
    }

    fn advance(&mut self, seconds: i64) {
        self.simulation.advance_ns(seconds * SECOND_NS);
        self.settle();
    }

    /// The beginning of the window of a minute that is under way.
    fn minute_ns(&self) -> i64 {
        let now_ns = self.db.now_ns();
        now_ns - now_ns.rem_euclid(60 * SECOND_NS)
    }
}

fn time(ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(ns)).unwrap().to_string()
}

/// The range of the minutes of a number that end at a time.
fn range(end_ns: i64, minutes: i64) -> String {
    format!("range(start: {}, stop: {})", time(end_ns - minutes * 60 * SECOND_NS), time(end_ns))
}

#[test]
fn a_continuous_query_writes_into_the_database_that_stands_for_a_policy() {
    let mut world = world(&["fine", "a_year"]);
    world.write("fine", &format!("orders,website=a,shop=1 sold=1,rated=4 {}", world.db.now_ns()));
    let query = |into: &str| {
        format!(
            "CREATE CONTINUOUS QUERY cq ON fine BEGIN SELECT mean(sold) AS mean_sold, count(rated) AS rated INTO {into} FROM orders GROUP BY time(1m), * END"
        )
    };
    let told = world.influxql("fine", &query("\"two_weeks\".\"down\"")).unwrap_err();
    assert!(told.contains("retention policy not found: two_weeks: make a database of this name"), "{told}");
    let told = world.influxql("fine", &query("\"nowhere\".\"autogen\".\"down\"")).unwrap_err();
    assert_eq!(told, "database not found: nowhere");
    world.influxql("fine", &query("\"a_year\".\"down\"")).unwrap();
    let told = world.influxql("fine", "CREATE CONTINUOUS QUERY back ON a_year BEGIN SELECT mean(mean_sold) AS sold INTO fine.autogen.orders FROM a_year.autogen.down GROUP BY time(1m) END");
    // Its measurement has no rows yet, but will have.
    assert!(told.unwrap_err().contains("would read itself"));
    world.settle();
    let start_ns = world.minute_ns() + 60 * SECOND_NS;
    world.advance(60);
    let mut lines = String::new();
    for (website, at, sold) in [("a", 1, 10), ("a", 2, 20), ("b", 3, 5)] {
        writeln!(lines, "orders,website={website},shop=1 sold={sold} {}", start_ns + at * SECOND_NS).unwrap();
    }
    // A tag that there was not when it was made.
    writeln!(lines, "orders,website=a,shop=1,floor=2 sold=7,rated=5 {}", start_ns + 4 * SECOND_NS).unwrap();
    world.write("fine", &lines);
    world.advance(120);
    let down = |world: &World| {
        world.flux(&format!(
            "from(bucket: \"a_year\") |> {} |> filter(fn: (r) => r._measurement == \"down\")",
            range(start_ns + 60 * SECOND_NS, 1)
        ))
    };
    let at = time(start_ns);
    let row = |field: &str, value: &str, tags: &str| {
        format!("_field={field} _measurement=down _time={at} _value={value}{tags}")
    };
    assert_eq!(
        down(&world),
        [
            row("mean_sold", "15", " shop=1 website=a"),
            row("mean_sold", "5", " shop=1 website=b"),
            row("mean_sold", "7", " floor=2 shop=1 website=a"),
            row("rated", "1", " floor=2 shop=1 website=a"),
        ],
        "a field without values has no count"
    );
    world.write("fine", &format!("orders,website=b,shop=1 sold=9 {}", start_ns + 5 * SECOND_NS));
    world.settle();
    assert!(down(&world).contains(&row("mean_sold", "7", " shop=1 website=b")), "{:?}", down(&world));
    let circle = "CREATE CONTINUOUS QUERY back ON a_year BEGIN SELECT mean(mean_sold) AS sold INTO fine.autogen.orders FROM down GROUP BY time(1m) END";
    let told = world.influxql("fine", circle).unwrap_err();
    assert!(told.contains("would read itself"), "{told}");
    // What the target's database cannot keep is refused there, and its drop is told.
    let short = DatabasePolicy { retention_ns: 30 * SECOND_NS, ..DatabasePolicy::default() };
    assert!(world.db.set_policy("a_year", &short).is_err());
    world.db.drop_database("a_year").unwrap();
    world.write("fine", &format!("orders,website=b,shop=1 sold=1 {}", start_ns + 6 * SECOND_NS));
    world.settle();
    let error = world.db.view_status("fine", "cq").error.unwrap_or_default();
    assert!(error.contains("database not found: a_year"), "{error}");
    assert!(!world.db.databases().contains(&"a_year".to_owned()));
}

#[test]
fn definitions_and_rows_outlive_a_restart() {
    let mut world = world(&["fine", "coarse"]);
    world.write("fine", &format!("air,room=hall temperature=1 {}", world.db.now_ns()));
    let script = r#"option task = {name: "down", every: 1m, offset: 10s}
from(bucket: "fine") |> range(start: -task.every) |> filter(fn: (r) => r._measurement == "air") |> aggregateWindow(every: 1m, fn: max) |> to(bucket: "coarse", org: "o")"#;
    let made = world.task(script).unwrap();
    world.settle();
    let start_ns = world.minute_ns() + 60 * SECOND_NS;
    world.advance(60);
    world.write("fine", &format!("air,room=hall temperature=8 {}", start_ns + SECOND_NS));
    let coarse =
        |world: &World| world.flux(&format!("from(bucket: \"coarse\") |> {}", range(start_ns + 61 * SECOND_NS, 1)));
    world.advance(start_ns / SECOND_NS + 65 - world.db.now_ns() / SECOND_NS);
    assert_eq!(coarse(&world), Vec::<String>::new(), "the offset is not over");
    world.refresher.save().unwrap();
    let mut world = world.reopened(|_| {});
    let known = world.db.tasks(&World::budget());
    assert_eq!(known.iter().map(|view| task_id(view).to_owned()).collect::<Vec<_>>(), [task_id(&made).to_owned()]);
    assert_eq!(known[0].definition, made.definition);
    world.advance(300);
    let stop = time(start_ns + 60 * SECOND_NS);
    let row = format!("_field=temperature _measurement=air _time={stop} _value=8 room=hall");
    assert_eq!(coarse(&world), [row], "it stands where its window ends");
}

#[test]
fn an_inactive_task_waits_and_catches_up() {
    let mut world = world(&["fine", "coarse"]);
    world.write("fine", &format!("air,room=hall temperature=1 {}", world.db.now_ns()));
    let script = r#"option task = {name: "down", cron: "* * * * *"}
from(bucket: "fine") |> range(start: -1m) |> filter(fn: (r) => r._measurement == "air" and r._field == "temperature") |> group(columns: ["_measurement", "_field"])
  |> aggregateWindow(every: 1m, fn: sum, timeSrc: "_start", createEmpty: false) |> map(fn: (r) => ({r with _field: r._field + "_sum"})) |> to(bucket: "coarse")"#;
    let view = world.task(script).unwrap();
    world.settle();
    let inactive = TaskSettings { is_inactive: true, description: Some("it waits".to_owned()) };
    let view = world.db.change_task(&view, None, (inactive, &World::budget())).unwrap();
    let start_ns = world.minute_ns() + 60 * SECOND_NS;
    world.advance(60);
    let line =
        |room: &str, value: i64, at: i64| format!("air,room={room} temperature={value} {}", start_ns + at * SECOND_NS);
    world.write("fine", &format!("{}\n{}", line("hall", 3, 1), line("attic", 4, 2)));
    world.advance(120);
    world.write("fine", &line("hall", 5, 3));
    world.settle();
    let coarse =
        |world: &World| world.flux(&format!("from(bucket: \"coarse\") |> {}", range(start_ns + 60 * SECOND_NS, 1)));
    assert_eq!(coarse(&world), Vec::<String>::new());
    world.db.change_task(&view, None, (TaskSettings::default(), &World::budget())).unwrap();
    world.settle();
    let row = format!("_field=temperature_sum _measurement=air _time={} _value=12", time(start_ns));
    assert_eq!(coarse(&world), [row]);
}

const OPTION: &str = "option task = {name: \"t\", every: 1m}\n";
const FROM: &str = "from(bucket: \"fine\") |> range(start: -task.every)";
const AIR: &str = "filter(fn: (r) => r._measurement == \"air\" and r._field == \"temperature\")";
const WINDOW: &str = "aggregateWindow(every: 1m, fn: mean)";
const TO: &str = "to(bucket: \"coarse\")";

/// A world with two measurements to read, and a database to write into.
fn with_sources() -> World {
    let world = world(&["fine", "coarse"]);
    world.write("fine", "air,room=hall temperature=1,note=\"a\" 1\nother v=1 1");
    world
}

/// What scripts are told that are no tasks.
fn check_told(world: &World, cases: &[(String, &str)]) {
    for (script, expected) in cases {
        let told = world.task(&format!("{OPTION}{script}")).unwrap_err();
        assert!(told.contains(expected), "{script}: {told}");
    }
}

#[test]
fn scripts_that_are_no_tasks_are_told_by_their_calls() {
    let world = with_sources();
    check_told(
        &world,
        &[
            (format!("{FROM} |> {AIR} |> {WINDOW}"), "has no aggregateWindow() or no to()"),
            (format!("{FROM} |> {AIR} |> {TO}"), "to(): a task does not have it between range() and aggregateWindow()"),
            (
                format!("{FROM} |> set(key: \"_measurement\", value: \"b\") |> {AIR} |> {WINDOW} |> {TO}"),
                "filter(): a task does not have it between range() and aggregateWindow()",
            ),
            (format!("{FROM} |> {AIR} |> derivative() |> {WINDOW} |> {TO}"), "derivative(): a task does not have it"),
            (
                format!("{FROM} |> {AIR} |> {WINDOW} |> pivot() |> {TO}"),
                "pivot(): a task does not have it between aggregateWindow() and to()",
            ),
            (format!("{FROM} |> {WINDOW} |> {TO}"), "filter by one measurement"),
            (
                format!("{FROM} |> filter(fn: (r) => r.room == \"hall\") |> {WINDOW} |> {TO}"),
                "filter by one measurement",
            ),
            (
                format!("{FROM} |> filter(fn: (r) => r._measurement == \"none\") |> {WINDOW} |> {TO}"),
                "no field of a measurement that has rows",
            ),
            (
                format!("{FROM} |> filter(fn: (r) => r._measurement =~ /air|other/) |> {WINDOW} |> {TO}"),
                "several measurements",
            ),
            (
                format!("{FROM} |> filter(fn: (r) => r._measurement == \"air\") |> {WINDOW} |> {TO}"),
                "the field \"note\" has none",
            ),
            (format!("{FROM} |> {AIR} |> filter(fn: (r) => r._value * 2.0 > 1.0) |> {WINDOW} |> {TO}"), "row by row"),
        ],
    );
}

#[test]
fn windows_and_ranges_that_are_no_tasks_are_told() {
    let world = with_sources();
    check_told(
        &world,
        &[
            (format!("{FROM} |> {AIR} |> aggregateWindow(every: 1m, fn: count) |> {TO}"), "createEmpty: false"),
            (format!("{FROM} |> {AIR} |> aggregateWindow(every: 1h, fn: mean) |> {TO}"), "longer than range() reads"),
            (format!("{FROM} |> {AIR} |> aggregateWindow(every: 1m, fn: mode) |> {TO}"), "undefined identifier mode"),
            (format!("{FROM} |> {AIR} |> aggregateWindow(every: 1m, fn: spread) |> {TO}"), "not spread"),
            (
                format!("{FROM} |> {AIR} |> group() |> aggregateWindow(every: 1m, fn: last) |> {TO}"),
                "first and last are of each series",
            ),
            (
                format!("{FROM} |> {AIR} |> {WINDOW} |> drop(columns: [\"room\"]) |> {TO}"),
                "drops tags before aggregateWindow()",
            ),
            (format!("{FROM} |> {AIR} |> {WINDOW} |> set(key: \"room\", value: \"x\") |> {TO}"), "not \"room\""),
            (
                format!("{FROM} |> {AIR} |> {WINDOW} |> map(fn: (r) => ({{r with _value: r._value * 2.0}})) |> {TO}"),
                "not \"_value\"",
            ),
            (format!("{FROM} |> {AIR} |> {WINDOW} |> to(bucket: \"nowhere\")"), "database not found: nowhere"),
            (format!("{FROM} |> {AIR} |> {WINDOW} |> to(bucket: \"fine\")"), "would read itself"),
            (format!("{FROM} |> {AIR} |> {WINDOW} |> to(bucket: \"coarse\", host: \"x\")"), "host is not supported"),
            (
                format!("{FROM} |> {AIR} |> {WINDOW} |> {TO}\n{FROM} |> {AIR} |> {WINDOW} |> {TO}"),
                "one pipeline that writes",
            ),
            (
                format!("from(bucket: \"fine\") |> range(start: 2020-01-01T00:00:00Z) |> {AIR} |> {WINDOW} |> {TO}"),
                "before the run",
            ),
            (
                format!("from(bucket: \"fine\") |> range(start: -1h, stop: -1m) |> {AIR} |> {WINDOW} |> {TO}"),
                "offset of the task",
            ),
            (
                format!("from(bucket: \"fine\") |> range(start: -1s) |> {AIR} |> {WINDOW} |> {TO}"),
                "at least as long ago",
            ),
            ("x = 1".to_owned(), "a task is from()"),
        ],
    );
}

#[test]
fn a_pipeline_may_have_names() {
    let world = with_sources();
    let named = format!(
        "{OPTION}data = {FROM} |> {AIR}\ndata |> keep(columns: [\"_time\", \"_value\", \"_field\", \"_measurement\", \"room\"]) |> {WINDOW} |> {TO} |> yield()"
    );
    let view = world.task(&named).unwrap();
    assert_eq!((view.definition.target.as_str(), view.definition.target_database()), ("air", "coarse"));
    assert_eq!(view.definition.labels(), ["room"]);
}

/// As InfluxDB's documentation writes ranges and measurements.
#[test]
fn a_task_says_its_range_by_its_option_and_its_measurement_before_or_after_the_window() {
    let world = with_sources();
    let mut targets = (0..).map(|number| format!("b{number}"));
    for start in [
        "-task.every",
        "-duration(v: task.every)",
        "-duration(v: int(v: task.every) * 2)",
        "duration(v: -int(v: task.every))",
    ] {
        let from = format!("from(bucket: \"fine\") |> range(start: {start})");
        for is_before in [true, false] {
            let target = targets.next().unwrap();
            let set = format!("set(key: \"_measurement\", value: \"{target}\")");
            let steps = if is_before { format!("{set} |> {WINDOW}") } else { format!("{WINDOW} |> {set}") };
            let view = world.task(&format!("{OPTION}{from} |> {AIR} |> {steps} |> {TO}")).unwrap();
            assert_eq!(view.definition.target, target, "{start} {steps}");
        }
    }
}

/// Something that happens to a source.
#[derive(Debug, Clone)]
enum Event {
    /// A row of a series so many seconds before the present.
    Write {
        series: usize,
        seconds_ago: i64,
        value: i64,
    },
    /// A row of a minute's beginning, on the edge of two windows.
    WriteOnEdge {
        series: usize,
        minutes_ago: i64,
        value: i64,
    },
    Advance(i64),
    Delete {
        seconds_ago: i64,
    },
    Settle,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..SERIES.len(), 0..600i64, 0..100i64).prop_map(|(series, seconds_ago, value)| Event::Write { series, seconds_ago, value }),
        2 => (0..SERIES.len(), 0..10i64, 0..100i64).prop_map(|(series, minutes_ago, value)| Event::WriteOnEdge { series, minutes_ago, value }),
        3 => (1..150i64).prop_map(Event::Advance),
        1 => (0..600i64).prop_map(|seconds_ago| Event::Delete { seconds_ago }),
        2 => Just(Event::Settle),
    ]
}

const SERIES: [&str; 4] = ["air,room=hall", "air,room=attic", "air,room=hall,floor=1", "air"];

/// What tasks cut their tables by, after the source's filters.
const SHAPES: [(&str, &str); 4] = [
    ("", "aggregateWindow(every: 1m, fn: mean, createEmpty: false)"),
    (
        "group(columns: [\"_measurement\", \"_field\", \"_start\", \"_stop\", \"room\"]) |> ",
        "aggregateWindow(every: 1m, fn: sum, createEmpty: false)",
    ),
    ("", "aggregateWindow(every: 2m, fn: count, offset: 1m, timeSrc: \"_start\", createEmpty: false)"),
    ("", "aggregateWindow(every: 1m, fn: last, createEmpty: false)"),
];

/// What each task has written is what its windows are over its source now.
fn check(world: &World, begun_ns: i64) {
    let end_ns = world.minute_ns() - 60 * SECOND_NS;
    let minutes = (end_ns - begun_ns) / (60 * SECOND_NS);
    if minutes <= 0 {
        return;
    }
    let air = "filter(fn: (r) => r._measurement == \"air\")";
    for (number, (grouped, window)) in SHAPES.iter().enumerate() {
        let source = format!("from(bucket: \"fine\") |> {} |> {air} |> {grouped}{window}", range(end_ns, minutes));
        let expected = world.flux(&source);
        // Rows at the ends of windows: one more nanosecond at either end.
        let rows = format!(
            "from(bucket: \"coarse{number}\") |> range(start: {}, stop: {}) |> {air}",
            time(begun_ns + 1 - i64::from(number == 2)),
            time(end_ns + i64::from(number != 2))
        );
        let found = world.flux(&rows);
        // Windows that lost all their rows keep what they had: a task deletes nothing.
        let left: Vec<&String> = expected.iter().filter(|row| !found.contains(row)).collect();
        let whole = |row: &&&String| number != 2 || !is_cut(row, (begun_ns, end_ns));
        let left: Vec<&&String> = left.iter().filter(whole).collect();
        assert!(left.is_empty(), "{window}: {left:?} of {expected:?} are not among {found:?}");
    }
}

/// Returns whether the window of two minutes of a row is cut by the range that is compared.
fn is_cut(row: &str, (begun_ns, end_ns): (i64, i64)) -> bool {
    let text = row.split_whitespace().find_map(|cell| cell.strip_prefix("_time=")).unwrap();
    let at_ns = text.parse::<jiff::Timestamp>().unwrap().as_nanosecond() as i64;
    at_ns <= begun_ns || at_ns + 120 * SECOND_NS > end_ns
}

fn live(events: &[Event]) {
    let names: Vec<String> = (0..SHAPES.len()).map(|number| format!("coarse{number}")).collect();
    let databases: Vec<&str> = names.iter().map(String::as_str).chain(["fine"]).collect();
    let mut world = world(&databases);
    world.write("fine", &format!("air,room=hall temperature=1 {}", world.db.now_ns()));
    for (number, (grouped, window)) in SHAPES.iter().enumerate() {
        let script = format!(
            "option task = {{name: \"t{number}\", every: 1m}}\nfrom(bucket: \"fine\") |> range(start: -10m) |> filter(fn: (r) => r._measurement == \"air\") |> {grouped}{window} |> to(bucket: \"coarse{number}\")"
        );
        world.task(&script).unwrap();
    }
    world.settle();
    let begun_ns = world.minute_ns() + 120 * SECOND_NS;
    world.advance(120);
    for event in events {
        let now_ns = world.db.now_ns();
        match event {
            Event::Write { series, seconds_ago, value } => {
                world.write(
                    "fine",
                    &format!("{} temperature={value} {}", SERIES[*series], now_ns - seconds_ago * SECOND_NS),
                );
            }
            Event::WriteOnEdge { series, minutes_ago, value } => {
                let at_ns = world.minute_ns() - minutes_ago * 60 * SECOND_NS;
                world.write("fine", &format!("{} temperature={value} {at_ns}", SERIES[*series]));
            }
            Event::Advance(seconds) => world.simulation.advance_ns(seconds * SECOND_NS),
            Event::Delete { seconds_ago } => {
                let start_ns = now_ns - seconds_ago * SECOND_NS;
                let range = TimeRange::new(start_ns, start_ns + 20 * SECOND_NS);
                world
                    .db
                    .delete("fine", &[vec![model::Matcher::new("room", model::MatchOp::Equal, "hall")]], &range)
                    .unwrap();
            }
            Event::Settle => {
                world.settle();
                check(&world, begun_ns);
            }
        }
    }
    world.advance(300);
    check(&world, begun_ns);
}

#[test]
fn what_tasks_write_is_what_their_windows_are() {
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    runner
        .run(&collection::vec(event(), 1..40), |events| {
            live(&events);
            Ok(())
        })
        .unwrap();
}

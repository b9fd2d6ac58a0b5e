//! InfluxQL's `integral` in continuous queries: of the rows of each window alone, as InfluxDB has it, which runs a query window by window.

use std::fmt::Write;

use influxql::Value;

use crate::continuous::{MINUTE_NS, is_alike, rows, window_ns, world, write_minutes};
use crate::world::{SECOND_NS, World};

/// A continuous query with its part of `FROM`, and where its windows begin after whole minutes, in seconds.
struct Query {
    name: &'static str,
    from: &'static str,
    /// The tags of `GROUP BY` after a comma, if there are any.
    tags: &'static str,
    offset_s: i64,
}

const CALLS: &str = "integral(usage) AS area, integral(usage, 1m) AS minutes, integral(cores, 250ms) AS whole, integral(ticks, 1h) AS large, \
                     integral(usage) / mean(usage) AS spans, count(usage) AS n, mode(cores) AS level";
const NAMES: &str = "area, minutes, whole, large, spans, n, level";

const QUERIES: [Query; 4] = [
    Query { name: "each", from: "cpu", tags: ", host", offset_s: 0 },
    Query { name: "together", from: "cpu", tags: "", offset_s: 0 },
    Query { name: "some", from: "cpu WHERE usage > 20 AND host != 'alone'", tags: ", region", offset_s: 0 },
    Query { name: "shifted", from: "cpu", tags: ", host, region", offset_s: 15 },
];

impl Query {
    fn make(&self, world: &World) {
        let Self { name, from, tags, offset_s } = self;
        let text = format!(
            "CREATE CONTINUOUS QUERY {name} ON \"default\" BEGIN SELECT {CALLS} INTO a_year..{name} FROM {from} GROUP BY time(1m, {offset_s}s){tags} END"
        );
        world.influxql("default", &text).unwrap();
    }

    /// Each window has the value that a query of this window alone gives; so many rows at least.
    fn check(&self, world: &World, begun_ns: i64, rows_min: usize) {
        let grouped = self.tags.strip_prefix(',').map_or_else(String::new, |tags| format!(" GROUP BY{tags}"));
        let and = if self.from.contains("WHERE") { "AND" } else { "WHERE" };
        let mut compared = 0;
        for minute in 0..6 {
            let start_ns = begun_ns + minute * MINUTE_NS + self.offset_s * SECOND_NS;
            let range = format!("time >= {start_ns} AND time < {}", start_ns + MINUTE_NS);
            let expected = rows(world, &format!("SELECT {CALLS} FROM {} {and} {range}{grouped}", self.from));
            let found =
                rows(world, &format!("SELECT {NAMES} FROM a_year..{} WHERE time = {start_ns}{grouped}", self.name));
            assert!(is_alike(&found, &expected), "{} {minute}: {found:?}\n{expected:?}", self.name);
            compared += found.len();
        }
        assert!(compared >= rows_min, "{}: {compared}", self.name);
    }
}

/// Rows of three hosts at the same times, in an order that is not that of their tags.
fn write_same_times(world: &World, begun_ns: i64, seconds: impl Iterator<Item = i64>) {
    let mut lines = String::new();
    for second in seconds {
        for (place, host) in (1..).zip(["z", "m", "b"]) {
            let (value, time_ns) = (second * place * 31 % 97, begun_ns + second * SECOND_NS);
            writeln!(lines, "cpu,host={host},region=r{} usage={value}.5,cores={value}i {time_ns}", place % 2).unwrap();
        }
    }
    world.write("default", &lines);
}

#[test]
fn a_window_has_the_integral_of_its_own_rows() {
    let mut world = world();
    let early_ns = world.db.now_ns() - 60 * MINUTE_NS;
    world.write("default", &format!("cpu,host=z,region=r1 usage=1,cores=2i,ticks=1i {early_ns}"));
    QUERIES.iter().for_each(|query| query.make(&world));
    world.settle();
    let begun_ns = window_ns(&world, MINUTE_NS) + MINUTE_NS;
    world.simulation.advance_ns(MINUTE_NS);
    // Late rows are among these, and one that is alone in its window.
    write_minutes(&mut world, &["cpu"], begun_ns);
    QUERIES.iter().for_each(|query| query.check(&world, begun_ns, 5));
    write_same_times(&world, begun_ns, (0..300).step_by(7));
    world.settle();
    QUERIES.iter().for_each(|query| query.check(&world, begun_ns, 5));
    let mut world = world.reopened(|_| {});
    write_same_times(&world, begun_ns, (2..300).step_by(50));
    world.settle();
    QUERIES.iter().for_each(|query| query.check(&world, begun_ns, 5));
    let deleted = |from_s: i64, to_s: i64| {
        let [from_ns, to_ns] = [from_s, to_s].map(|second| begun_ns + second * SECOND_NS);
        format!("DELETE FROM cpu WHERE host = 'z' AND time >= {from_ns} AND time < {to_ns}")
    };
    for (from_s, to_s) in [(0, 30), (100, 124)] {
        world.influxql("default", &deleted(from_s, to_s)).unwrap();
    }
    world.settle();
    QUERIES.iter().for_each(|query| query.check(&world, begun_ns, 5));
    for view in world.db.views("default") {
        // Samples stay until such windows are stored.
        assert!(!view.definition.is_told_by_folds([MINUTE_NS]), "{}", view.definition.name);
        assert!(view.definition.is_told_by_folds([]), "{}", view.definition.name);
    }
}

/// On paper, and as InfluxDB 1.8 computes it of `time >= start AND time < end`.
#[test]
fn areas_are_those_of_trapezoids() {
    let mut world = world();
    world.write("default", "other v=1 1");
    // Before its measurement has a row: the type of the result is that of no field.
    let create = |name: &str, call: &str| {
        let text = format!(
            "CREATE CONTINUOUS QUERY {name} ON \"default\" BEGIN SELECT {call} INTO {name} FROM power GROUP BY time(1m), host END"
        );
        world.influxql("default", &text).unwrap();
    };
    create("seconds", "integral(w)");
    create("minutes", "integral(w, 1m) AS integral");
    let begun_ns = window_ns(&world, MINUTE_NS) + MINUTE_NS;
    let line = |second: i64, value: f64| format!("power,host=a w={value} {}\n", begun_ns + second * SECOND_NS);
    let areas = |world: &World, table: &str| -> Vec<Value> {
        rows(world, &format!("SELECT integral FROM {table}")).into_iter().map(|mut row| row.remove(2)).collect()
    };
    let floats = |numbers: &[f64]| numbers.iter().map(|number| Value::Float(*number)).collect::<Vec<_>>();
    world.write("default", &[line(0, 1.0), line(40, 2.0), line(70, 4.0), line(121, 5.0)].concat());
    world.simulation.advance_ns(5 * MINUTE_NS);
    world.settle();
    assert_eq!(areas(&world, "seconds"), floats(&[60.0, 0.0, 0.0]));
    // A late row bends the line, and one makes a window of two rows.
    world.write("default", &[line(10, 3.0), line(161, 1.0)].concat());
    world.settle();
    assert_eq!(areas(&world, "seconds"), floats(&[20.0 + 75.0, 0.0, 120.0]));
    assert_eq!(areas(&world, "minutes"), floats(&[95.0 / 60.0, 0.0, 2.0]));
    // A query of several windows has the line go on from one to the next.
    let range = format!("time >= {begun_ns} AND time < {}", begun_ns + 2 * MINUTE_NS);
    let found = rows(&world, &format!("SELECT integral(w) FROM power WHERE {range} GROUP BY time(1m), host"));
    let going_on: Vec<Vec<Value>> = found.iter().map(|row| row[2..].to_vec()).collect();
    let expected = floats(&[95.0 + 160.0 / 3.0, 110.0 / 3.0]).into_iter().map(|area| vec![area]).collect::<Vec<_>>();
    assert!(is_alike(&going_on, &expected), "{found:?}");
}

#[test]
fn integrals_over_several_windows_at_once_are_refused() {
    let world = world();
    world.write("default", "cpu,host=a usage=1,up=true,kind=\"k\" 1");
    let make = |resample: &str, call: &str| {
        let text = format!(
            "CREATE CONTINUOUS QUERY q ON \"default\" {resample} BEGIN SELECT {call} INTO down FROM cpu GROUP BY time(1m), host END"
        );
        world.influxql("default", &text).map(drop)
    };
    for resample in ["RESAMPLE FOR 2m", "RESAMPLE EVERY 5m", "RESAMPLE EVERY 30s FOR 1h"] {
        let told = make(resample, "mean(usage), integral(usage)").unwrap_err();
        assert!(told.contains("continuous query q: with RESAMPLE over several windows"), "{told}");
    }
    for call in ["integral(up)", "integral(kind)", "integral(usage, 0s)", "integral(usage, 2)", "integral(host)"] {
        make("", call).unwrap_err();
    }
    assert!(world.db.views("default").is_empty());
    make("RESAMPLE EVERY 30s FOR 1m", "integral(usage)").unwrap();
    // Of fields that `*` stands for those that are numbers.
    let text = "CREATE CONTINUOUS QUERY r ON \"default\" BEGIN SELECT integral(*) INTO a_year..:MEASUREMENT FROM /.*/ GROUP BY time(1m), * END";
    world.influxql("default", text).unwrap();
    let view = world.db.view("default", "r:cpu").unwrap();
    let fields: Vec<&str> = view.definition.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(fields, ["integral_usage"]);
}

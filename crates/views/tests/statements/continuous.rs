//! InfluxQL's continuous queries: each function; and its queries that views answer.

use std::fmt::Write;

use influxql::Value;

use crate::world::{SECOND_NS, World, is_close};

const MINUTE_NS: i64 = 60 * SECOND_NS;

/// A world with a database to write into.
fn world() -> World {
    let world = World::empty(11);
    world.db.set_policy("a_year", &db::DatabasePolicy::default()).unwrap();
    world
}

/// The rows of a statement with the names and tags of their series.
fn rows(world: &World, text: &str) -> Vec<Vec<Value>> {
    rows_of(&world.influxql("default", text).unwrap())
}

fn rows_of(answer: &influxql::Answer) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for series in &answer.series {
        let tags = series.tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",");
        for row in series.rows.values().iter() {
            rows.push([vec![Value::from(tags.as_str())], row.clone()].concat());
        }
    }
    rows
}

fn is_alike(a: &[Vec<Value>], b: &[Vec<Value>]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_close(a, b)))
}

/// The beginning of the window that is under way.
fn window_ns(world: &World, width_ns: i64) -> i64 {
    let now_ns = world.db.now_ns();
    now_ns - now_ns.rem_euclid(width_ns)
}

/// Writes rows of five minutes from a time on, a third of them late, and one that is alone in its window.
fn write_minutes(world: &mut World, tables: &[&str], begun_ns: i64) {
    let line = |table: &str, second: i64| {
        let host = if second % 3 == 0 { "a" } else { "b" };
        let (usage, cores, kind) = (second * 37 % 101, second * 7 % 13 - 6, second % 5);
        format!(
            "{table},host={host} usage={usage}.25,cores={cores}i,kind=\"k{kind}\" {}\n",
            begun_ns + second * SECOND_NS
        )
    };
    for is_late in [false, true] {
        let mut lines = String::new();
        for table in tables {
            (0..300).filter(|second| (second % 4 == 0) == is_late).for_each(|second| lines += &line(table, second));
            writeln!(lines, "{table},host=alone usage=5,cores=3i,kind=\"k\" {}", begun_ns + 90 * SECOND_NS).unwrap();
        }
        world.write("default", &lines);
        world.simulation.advance_ns(6 * MINUTE_NS);
        world.settle();
    }
}

#[test]
fn each_function_of_a_continuous_query_gives_what_the_query_gives() {
    let mut world = world();
    world.write("default", &format!("cpu,host=a usage=1,cores=2i,kind=\"k\" {}", world.db.now_ns() - MINUTE_NS));
    let calls = "mean(usage) AS mean, median(usage) AS median, median(cores) AS middle, stddev(usage) AS dev, stddev(cores) AS dev_cores, \
                 spread(usage) AS width, spread(cores) AS width_cores, count(distinct(kind)) AS kinds, count(distinct(cores)) AS levels, \
                 approx_percentile(usage, 90) AS p90, approx_count_distinct(kind) AS about, max(cores) - mean(cores) AS above";
    world
        .influxql("default", &format!("CREATE CONTINUOUS QUERY q ON \"default\" BEGIN SELECT {calls} INTO a_year.autogen.cpu FROM cpu GROUP BY time(1m), host END"))
        .unwrap();
    world.settle();
    let begun_ns = window_ns(&world, MINUTE_NS) + MINUTE_NS;
    world.simulation.advance_ns(MINUTE_NS);
    write_minutes(&mut world, &["cpu"], begun_ns);
    let times = format!("time >= {begun_ns} AND time < {}", begun_ns + 5 * MINUTE_NS);
    let expected = rows(&world, &format!("SELECT {calls} FROM cpu WHERE {times} GROUP BY time(1m), host fill(none)"));
    let names = "mean, median, middle, dev, dev_cores, width, width_cores, kinds, levels, p90, about, above";
    let found = rows(&world, &format!("SELECT {names} FROM a_year..cpu WHERE {times} GROUP BY host"));
    assert_eq!(expected.len(), 11);
    assert!(is_alike(&found, &expected), "{found:?}\n{expected:?}");
    // Of one value there is no deviation of a sample, and whole numbers stay whole.
    let alone = expected.iter().find(|row| row[0] == Value::from("host=alone")).unwrap();
    assert_eq!(alone[5..9], [Value::Null, Value::Null, Value::Float(0.0), Value::Int(0)]);
    // Rows one by one give the same: a condition that the plan does not have.
    let by_rows = rows(
        &world,
        &format!("SELECT {calls} FROM cpu WHERE {times} AND usage * 2 > -1 GROUP BY time(1m), host fill(none)"),
    );
    assert!(is_alike(&by_rows, &expected), "{by_rows:?}\n{expected:?}");
}

/// Queries of the source that a view answers: the same as without it.
#[test]
fn queries_of_the_source_use_views() {
    let mut world = world();
    let begun_ns = window_ns(&world, 10 * MINUTE_NS);
    write_minutes(&mut world, &["cpu"], begun_ns - 5 * MINUTE_NS);
    write_minutes(&mut world, &["cpu"], begun_ns + 2 * MINUTE_NS);
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, host, avg(usage) AS usage, stddev(usage) AS dev, min(usage) AS least, max(usage) AS most, min(cores) AS least_cores, max(cores) AS most_cores, approx_percentile(0.9, usage) AS p90, quantile(usage, 0.5) AS middle, approx_count_distinct(kind) AS about, count(DISTINCT kind) AS kinds, count(*) AS n FROM cpu GROUP BY 1, 2");
    world.simulation.advance_ns(30 * MINUTE_NS);
    world.settle();
    let times = format!("time >= {} AND time < {}", begun_ns - 10 * MINUTE_NS, begun_ns + 10 * MINUTE_NS);
    let ask = |call: &str, group: &str, view_use: query::ViewUse| {
        let text = format!("SELECT {call} FROM cpu WHERE {times} GROUP BY {group}");
        let budget = World::budget();
        budget.use_views(view_use);
        let request = influxql::RequestContext { database: Some("default"), read_only: false };
        let run = |text: &str| {
            let query = influxql::Query::parse(text, &std::collections::BTreeMap::new()).unwrap();
            rows_of(&world.db.run_influxql(&query, 0, &request, &budget).unwrap())
        };
        let is_viewed = format!("{:?}", run(&format!("EXPLAIN {text}"))).contains("(view \\\"v\\\"");
        (is_viewed, run(&text))
    };
    let wide = "time(10m) fill(none)";
    let each = "time(1m), host fill(none)";
    let cases = [
        ("stddev(usage)", wide, true),
        ("stddev(usage)", each, true),
        ("spread(usage), spread(cores), stddev(usage)", wide, true),
        ("mean(usage), max(usage), median(usage)", "time(1m), host fill(0)", true),
        ("approx_percentile(usage, 90), approx_percentile(usage, 50)", wide, true),
        ("approx_count_distinct(kind)", wide, true),
        ("approx_count_distinct(kind)", "time(5m), host fill(previous)", true),
        ("median(usage)", each, true),
        ("count(distinct(kind))", each, true),
        // Those of several windows or series do not tell it of all rows.
        ("count(distinct(kind))", wide, false),
        ("median(usage)", wide, false),
        ("approx_percentile(cores, 90)", wide, false),
        ("stddev(cores)", wide, false),
        // The summaries of the table tell as much.
        ("spread(usage)", wide, false),
    ];
    for (call, group, expected) in cases {
        let (is_viewed, by_view) = ask(call, group, query::ViewUse::All);
        assert_eq!(is_viewed, expected, "{call} {group}");
        let (is_viewed, by_table) = ask(call, group, query::ViewUse::Named);
        assert!(!is_viewed, "{call} {group}");
        assert!(by_table.len() > 1 && is_alike(&by_view, &by_table), "{call} {group}: {by_view:?}\n{by_table:?}");
    }
}

//! InfluxQL's continuous queries: each function, several measurements, windows of a calendar; and its queries that views answer.

use std::collections::BTreeMap;
use std::fmt::Write;

use influxql::Value;
use query::ViewUse;

use crate::world::{SECOND_NS, World, is_close};

pub(crate) const MINUTE_NS: i64 = 60 * SECOND_NS;

/// A world with a database to write into.
pub(crate) fn world() -> World {
    let world = World::empty(11);
    world.db.set_policy("a_year", &db::DatabasePolicy::default()).unwrap();
    world
}

/// The rows of a statement with the names and tags of their series.
pub(crate) fn rows(world: &World, text: &str) -> Vec<Vec<Value>> {
    rows_of(&world.influxql("default", text).unwrap())
}

pub(crate) fn rows_of(answer: &influxql::Answer) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for series in &answer.series {
        let tags = series.tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",");
        for row in series.rows.values().iter() {
            rows.push([vec![Value::from(tags.as_str())], row.clone()].concat());
        }
    }
    rows
}

/// The rows of a query that may use views so far, and whether the view `v` answers it.
fn rows_by_view(world: &World, text: &str, view_use: ViewUse) -> (bool, Vec<Vec<Value>>) {
    let budget = World::budget();
    budget.use_views(view_use);
    let request = influxql::RequestContext { database: Some("default"), read_only: false };
    let run = |text: &str| {
        let query = influxql::Query::parse(text, &BTreeMap::new()).unwrap();
        rows_of(&world.db.run_influxql(&query, 0, &request, &budget).unwrap())
    };
    let is_viewed = format!("{:?}", run(&format!("EXPLAIN {text}"))).contains("(view \\\"v\\\"");
    (is_viewed, run(text))
}

pub(crate) fn is_alike(a: &[Vec<Value>], b: &[Vec<Value>]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_close(a, b)))
}

/// The beginning of the window that is under way.
pub(crate) fn window_ns(world: &World, width_ns: i64) -> i64 {
    let now_ns = world.db.now_ns();
    now_ns - now_ns.rem_euclid(width_ns)
}

/// Writes rows of five minutes from a time on, a quarter of them late, and one that is alone in its window.
pub(crate) fn write_minutes(world: &mut World, tables: &[&str], begun_ns: i64) {
    let line = |table: &str, second: i64| {
        let host = if second % 3 == 0 { "a" } else { "b" };
        // No float holds it.
        let ticks = (1 << 60) + second;
        let (usage, cores, kind) = (second * 37 % 101, second * 7 % 13 - 6, second % 5);
        format!(
            "{table},host={host} usage={usage}.25,cores={cores}i,ticks={ticks}i,kind=\"k{kind}\",up={} {}\n",
            second % 9 < 4,
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
    world.write(
        "default",
        &format!("cpu,host=a usage=1,cores=2i,ticks=1i,kind=\"k\",up=true {}", world.db.now_ns() - MINUTE_NS),
    );
    let calls = "mean(usage) AS mean, median(usage) AS median, median(cores) AS middle, stddev(usage) AS dev, stddev(cores) AS dev_cores, \
                 spread(usage) AS width, spread(cores) AS width_cores, spread(ticks) AS width_ticks, count(distinct(kind)) AS kinds, count(distinct(cores)) AS levels, \
                 approx_percentile(usage, 90) AS p90, approx_count_distinct(kind) AS about, max(cores) - mean(cores) AS above, \
                  percentile(usage, 90) AS rank90, percentile(ticks, 50) AS rank50, percentile(cores, 0.1) AS lowest, percentile(usage, 100) AS highest, \
                  mode(kind) AS common, mode(cores) AS level, mode(up) AS usual, max(up) AS ever, min(up) AS always";
    world
        .influxql("default", &format!("CREATE CONTINUOUS QUERY q ON \"default\" BEGIN SELECT {calls} INTO a_year.autogen.:MEASUREMENT FROM cpu GROUP BY time(1m), host END"))
        .unwrap();
    world.settle();
    let begun_ns = window_ns(&world, MINUTE_NS) + MINUTE_NS;
    world.simulation.advance_ns(MINUTE_NS);
    write_minutes(&mut world, &["cpu"], begun_ns);
    let times = format!("time >= {begun_ns} AND time < {}", begun_ns + 5 * MINUTE_NS);
    let expected = rows(&world, &format!("SELECT {calls} FROM cpu WHERE {times} GROUP BY time(1m), host fill(none)"));
    let names = "mean, median, middle, dev, dev_cores, width, width_cores, width_ticks, kinds, levels, p90, about, above, rank90, rank50, lowest, highest, common, level, usual, ever, always";
    let found = rows(&world, &format!("SELECT {names} FROM a_year..cpu WHERE {times} GROUP BY host"));
    assert_eq!(expected.len(), 11);
    assert!(is_alike(&found, &expected), "{found:?}\n{expected:?}");
    // Of one value there is no deviation of a sample, and whole numbers stay whole.
    let alone = expected.iter().find(|row| row[0] == Value::from("host=alone")).unwrap();
    assert_eq!(alone[5..9], [Value::Null, Value::Null, Value::Float(0.0), Value::Int(0)]);
    assert!(expected.iter().any(|row| row[9] == Value::Int(57)), "{expected:?}");
    // Rows one by one give the same: a condition that the plan does not have.
    let by_rows = rows(
        &world,
        &format!("SELECT {calls} FROM cpu WHERE {times} AND usage * 2 > -1 GROUP BY time(1m), host fill(none)"),
    );
    assert!(is_alike(&by_rows, &expected), "{by_rows:?}\n{expected:?}");
}

#[test]
fn functions_that_views_have_not_are_refused() {
    let world = world();
    world.write("default", "cpu,host=a usage=1,cores=2i 1\nmem,host=a used=1 1");
    let refused = |select: &str, expected: &str| {
        let text = format!("CREATE CONTINUOUS QUERY q ON \"default\" BEGIN SELECT {select} END");
        let told = world.influxql("default", &text).unwrap_err();
        assert!(told.contains(expected), "{select}: {told}");
    };
    let known = "continuous query q: it has count, sum, mean, median";
    for call in ["sample(usage, 2)", "cumulative_sum(mean(usage))", "derivative(mean(usage))", "top(usage, 3)"] {
        refused(&format!("{call} INTO down FROM cpu GROUP BY time(1m), host"), known);
    }
    refused("mean(usage), max(nosuch) INTO down FROM cpu GROUP BY time(1m)", "has no field \"nosuch\" yet");
    refused("spread(nosuch) INTO down FROM later GROUP BY time(1m)", "has no field \"nosuch\" yet");
    refused("mean(used) INTO down FROM later WHERE host = 'a' GROUP BY time(1m)", "\"later\" has no rows yet");
    refused("mean(used) INTO down FROM later GROUP BY time(1m), /host/", "\"later\" has no rows yet");
    refused("mean(*) INTO down FROM later GROUP BY time(1m)", "\"later\" has no rows yet");
    refused("mean(usage), count(host) INTO down FROM cpu GROUP BY time(1m)", "\"host\" is a tag of \"cpu\"");
    refused("mean(usage) INTO down FROM cpu GROUP BY time(1m) fill(0)", "fill where its rows are read");
    refused("mean(usage) INTO down FROM cpu GROUP BY time(1m) fill(previous)", "fill where its rows are read");
    refused("mode(used) INTO down FROM later GROUP BY time(1m)", "has no field \"used\" yet");
    refused("mean(usage) INTO :MEASUREMENT FROM cpu GROUP BY time(1m)", "name another database");
    refused("mean(*) INTO down FROM cpu, mem GROUP BY time(1m)", "writes each into one of its own name");
    refused("mean(*) INTO a_year..down FROM /.*/ GROUP BY time(1m)", "writes each into one of its own name");
    refused("mean(*) INTO a_year..:MEASUREMENT FROM /disk/ GROUP BY time(1m)", "none of its measurements has rows");
    refused("mean(usage) INTO down FROM cpu", "it must have GROUP BY time");
    refused("mean(usage) INTO down FROM a_year..cpu GROUP BY time(1m)", "it reads its own database");
    assert!(world.db.views("default").is_empty());
}

#[test]
fn one_query_of_all_measurements_is_made_and_dropped_as_one() {
    let mut world = world();
    let now_ns = world.db.now_ns();
    for table in ["cpu", "disk io"] {
        let table = table.replace(' ', "\\ ");
        world.write("default", &format!("{table},host=a usage=1,cores=2i,ticks=1i,kind=\"k\" {now_ns}"));
    }
    world.write("default", &format!("notes,host=a text=\"x\" {now_ns}"));
    let create = "CREATE CONTINUOUS QUERY hourly ON \"default\" BEGIN SELECT mean(*), max(*) INTO \"a_year\".\"autogen\".:MEASUREMENT FROM /.*/ GROUP BY time(1m), * END";
    world.influxql("default", create).unwrap();
    let names =
        |world: &World| world.db.views("default").iter().map(|view| view.definition.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&world), ["hourly:cpu", "hourly:disk io"], "no field of notes is a number");
    world.settle();
    let begun_ns = window_ns(&world, MINUTE_NS) + MINUTE_NS;
    world.simulation.advance_ns(MINUTE_NS);
    write_minutes(&mut world, &["cpu", "disk\\ io"], begun_ns);
    let times = format!("time >= {begun_ns} AND time < {}", begun_ns + 5 * MINUTE_NS);
    for table in ["cpu", "\"disk io\""] {
        let expected =
            rows(&world, &format!("SELECT mean(*), max(*) FROM {table} WHERE {times} GROUP BY time(1m), * fill(none)"));
        let fields = "mean_cores, mean_ticks, mean_usage, max_cores, max_ticks, max_up, max_usage";
        let found = rows(&world, &format!("SELECT {fields} FROM a_year..{table} WHERE {times} GROUP BY *"));
        assert_eq!(expected.len(), 11);
        assert!(is_alike(&found, &expected), "{found:?}\n{expected:?}");
    }
    // Measurements and fields that came since are taken in when the statement is sent again.
    world.influxql("default", create).unwrap();
    let since_ns = world.db.now_ns();
    world.write("default", &format!("mem,host=a used=1 {since_ns}\ncpu,host=a usage=4,idle=3 {since_ns}"));
    world.influxql("default", create).unwrap();
    assert_eq!(names(&world), ["hourly:cpu", "hourly:disk io", "hourly:mem"]);
    world.simulation.advance_ns(6 * MINUTE_NS);
    world.settle();
    for (select, expected) in
        [("mean_used FROM a_year..mem", 1.0), ("max_idle FROM a_year..cpu", 3.0), ("max_usage FROM a_year..cpu", 4.0)]
    {
        let found = rows(&world, &format!("SELECT {select} WHERE time > {}", since_ns - MINUTE_NS));
        assert!(matches!(found.as_slice(), [row] if row[2] == Value::Float(expected)), "{select}: {found:?}");
    }
    let mut world = world.reopened(|_| {});
    let other = create.replace("max(*)", "min(*)");
    assert_eq!(world.influxql("default", &other).unwrap_err(), "continuous query already exists: hourly");
    let shown = rows(&world, "SHOW CONTINUOUS QUERIES");
    let listed: Vec<&Value> = shown.iter().map(|row| &row[1]).collect();
    assert_eq!(listed, [&Value::from("hourly")]);
    world.settle();
    let dropped =
        |world: &World, name: &str| world.influxql("default", &format!("DROP CONTINUOUS QUERY {name} ON \"default\""));
    for name in ["hour", "\"hourly:cpu\"", "nosuch"] {
        assert!(dropped(&world, name).unwrap_err().starts_with("continuous query not found"), "{name}");
    }
    dropped(&world, "hourly").unwrap();
    assert_eq!(names(&world), [""; 0]);
    assert_eq!(rows(&world, "SHOW CONTINUOUS QUERIES"), [[Value::Null; 0]; 0]);
}

/// A query of several measurements of which one cannot be made is not made at all.
#[test]
fn a_query_of_several_measurements_is_made_whole_or_not() {
    let world = world();
    world.write("default", "cpu,host=a usage=1 1\nmem,host=a used=1 1");
    world.influxql("default", "CREATE CONTINUOUS QUERY \"q:mem\" ON \"default\" BEGIN SELECT max(used) INTO peak FROM mem GROUP BY time(1m) END").unwrap();
    let create = "CREATE CONTINUOUS QUERY q ON \"default\" BEGIN SELECT mean(*) INTO a_year..:MEASUREMENT FROM cpu, mem GROUP BY time(1m) END";
    let told = world.influxql("default", create).unwrap_err();
    assert!(told.contains("\"q:mem\" already exists"), "{told}");
    assert!(world.db.view("default", "q:cpu").is_none());
    world.influxql("default", "DROP CONTINUOUS QUERY \"q:mem\" ON \"default\"").unwrap();
    world.influxql("default", create).unwrap();
    assert_eq!(world.db.views("default").len(), 2);
}

/// Days of a zone are as long as they are there: a window of 23 hours among those of 24.
#[test]
fn windows_of_a_continuous_query_follow_a_zone() {
    const HOUR_NS: i64 = 60 * MINUTE_NS;
    let change_ns: i64 = 1_711_846_800 * SECOND_NS;
    let mut world = world();
    world.write("default", &format!("cpu,host=a usage=1 {}", world.db.now_ns()));
    let calls = "count(usage) AS n, stddev(usage) AS dev, max(usage) AS peak";
    let create = format!(
        "CREATE CONTINUOUS QUERY days ON \"default\" BEGIN SELECT {calls} INTO cpu_days FROM cpu GROUP BY time(1d), host tz('Europe/Berlin') END"
    );
    world.influxql("default", &create).unwrap();
    world.settle();
    let mut world = world.reopened(|_| {});
    world.simulation.advance_ns(change_ns - 40 * HOUR_NS - world.db.now_ns());
    world.settle();
    // By the hour; two of three rows come late.
    for rest in 0..3 {
        let line = |hour: i64| format!("cpu,host=a usage={} {}", hour * 7 % 31, change_ns + (hour - 40) * HOUR_NS);
        let lines: Vec<String> = (0..100).filter(|hour| hour % 3 == rest).map(line).collect();
        world.write("default", &lines.join("\n"));
        world.simulation.advance_ns(100 * HOUR_NS);
        world.settle();
    }
    let times = format!("time >= {} AND time < {}", change_ns - 40 * HOUR_NS, change_ns + 60 * HOUR_NS);
    let expected = rows(
        &world,
        &format!("SELECT {calls} FROM cpu WHERE {times} GROUP BY time(1d), host fill(none) tz('Europe/Berlin')"),
    );
    let found = rows(
        &world,
        &format!("SELECT n, dev, peak FROM cpu_days WHERE time >= {} GROUP BY host", change_ns - 3 * 24 * HOUR_NS),
    );
    assert!(is_alike(&found, &expected), "{found:?}\n{expected:?}");
    let counts: Vec<&Value> = expected.iter().map(|row| &row[2]).collect();
    assert!(counts.contains(&&Value::Int(23)) && counts.contains(&&Value::Int(24)), "{counts:?}");
    // Hours of a view make days of the zone.
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 hour', time) AS bucket, host, stddev(usage) AS dev, max(usage) AS most, count(*) AS n FROM cpu GROUP BY 1, 2");
    world.settle();
    for rest in ["fill(none)", "fill(0)", "fill(null) ORDER BY time DESC", "fill(null) LIMIT 3"] {
        let select = |condition: &str| {
            format!(
                "SELECT {calls} FROM cpu WHERE {times}{condition} GROUP BY time(1d), host {rest} tz('Europe/Berlin')"
            )
        };
        let (is_viewed, by_view) = rows_by_view(&world, &select(""), ViewUse::All);
        assert!(is_viewed && by_view.len() >= 3, "{rest}: {by_view:?}");
        // A condition that plans do not have: rows one by one.
        for (condition, view_use) in [("", ViewUse::Named), (" AND usage * 2 > -1", ViewUse::All)] {
            let (is_viewed, by_table) = rows_by_view(&world, &select(condition), view_use);
            assert!(!is_viewed && is_alike(&by_view, &by_table), "{rest}: {by_view:?}\n{by_table:?}");
        }
    }
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
    let ask = |call: &str, group: &str, view_use: ViewUse| {
        rows_by_view(&world, &format!("SELECT {call} FROM cpu WHERE {times} GROUP BY {group}"), view_use)
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
        let (is_viewed, by_view) = ask(call, group, ViewUse::All);
        assert_eq!(is_viewed, expected, "{call} {group}");
        let (is_viewed, by_table) = ask(call, group, ViewUse::Named);
        assert!(!is_viewed, "{call} {group}");
        assert!(by_table.len() > 1 && is_alike(&by_view, &by_table), "{call} {group}: {by_view:?}\n{by_table:?}");
    }
}

/// A measurement whose first rows come later, and a field whose first value does.
#[test]
fn a_continuous_query_begins_with_the_first_rows() {
    let mut world = world();
    world.write("default", &format!("other,host=a usage=1 {}", world.db.now_ns() - 10 * MINUTE_NS));
    let calls = "mean(usage) AS mean, count(cores) AS n, stddev(cores) AS dev, median(cores) AS middle, count(distinct(kind)) AS kinds, approx_percentile(usage, 90) AS p90, approx_count_distinct(kind) AS about";
    for (name, table, group) in [("q", "cpu", "time(1m), *"), ("r", "other", "time(1m), host")] {
        let create = format!(
            "CREATE CONTINUOUS QUERY {name} ON \"default\" BEGIN SELECT {calls} INTO a_year..:MEASUREMENT FROM {table} GROUP BY {group} END"
        );
        world.influxql("default", &create).unwrap();
    }
    world.settle();
    world.simulation.advance_ns(5 * MINUTE_NS);
    world.write("default", &format!("other,host=b usage=1 {}", world.db.now_ns() - 3 * MINUTE_NS));
    world.settle();
    let status = |world: &World| ["q", "r"].map(|name| world.db.view_status("default", name).error);
    assert_eq!(status(&world), [None, None]);
    let mut world = world.reopened(|_| {});
    let begun_ns = window_ns(&world, MINUTE_NS) + MINUTE_NS;
    world.simulation.advance_ns(MINUTE_NS);
    write_minutes(&mut world, &["cpu", "other"], begun_ns);
    let times = format!("time >= {begun_ns} AND time < {}", begun_ns + 5 * MINUTE_NS);
    for table in ["cpu", "other"] {
        let expected =
            rows(&world, &format!("SELECT {calls} FROM {table} WHERE {times} GROUP BY time(1m), host fill(none)"));
        let names = "mean, n, dev, middle, kinds, p90, about";
        let found = rows(&world, &format!("SELECT {names} FROM a_year..{table} WHERE {times} GROUP BY host"));
        assert_eq!(expected.len(), 11);
        assert!(is_alike(&found, &expected), "{table}: {found:?}\n{expected:?}");
    }
    assert_eq!(status(&world), [None, None]);
    // Of a field that turns out to be no number there is nothing but how many values it has.
    let create = "CREATE CONTINUOUS QUERY s ON \"default\" BEGIN SELECT mean(word) AS word, count(word) AS n INTO said FROM words GROUP BY time(1m) END";
    world.influxql("default", create).unwrap();
    world.write("default", &format!("words word=\"7\" {}", world.db.now_ns()));
    world.simulation.advance_ns(6 * MINUTE_NS);
    world.settle();
    let said = rows(&world, "SELECT * FROM said");
    assert!(matches!(said.as_slice(), [row] if row[2..] == [Value::Int(1)]), "{said:?}");
}

#[test]
fn patterns_leave_out_views_and_columns_that_these_do_not_have() {
    let mut world = world();
    let start_ns = window_ns(&world, MINUTE_NS) - 5 * MINUTE_NS;
    world.write("default", &format!("flags up=true,v=3 {start_ns}\nflags up=false,v=5 {}", start_ns + 1));
    world.ask("CREATE MATERIALIZED VIEW minute AS SELECT time_bucket('1 minute', time) AS bucket, sum(v) AS s FROM flags GROUP BY 1");
    let make = |calls: &str, from: &str, into: &str| {
        let text = format!(
            "CREATE CONTINUOUS QUERY q ON \"default\" BEGIN SELECT {calls} INTO a_year..{into} FROM {from} GROUP BY time(1m) END"
        );
        world.influxql("default", &text).map(drop)
    };
    // What is asked for by its name is refused, what `*` stands for is left out.
    let refused = make("mean(up)", "flags", "down").unwrap_err();
    assert!(
        refused.contains("unsupported mean iterator type: boolean") || refused.contains("it has count"),
        "{refused}"
    );
    make("mean(*), max(*)", "/.*/", ":MEASUREMENT").unwrap();
    assert_eq!(world.db.views("default").len(), 2, "the view, and one of the measurement");
    // The same again, also where its measurement is no more.
    make("mean(*), max(*)", "/.*/", ":MEASUREMENT").unwrap();
    assert!(make("mean(*)", "/nothing/", ":MEASUREMENT").unwrap_err().contains("already exists"));
    world.influxql("default", "DROP CONTINUOUS QUERY q ON \"default\"").unwrap();
    // One measurement may have any name of a target, however it is named.
    make("mean(v)", "/^flags$/", "down").unwrap();
    world.influxql("default", "DROP CONTINUOUS QUERY q ON \"default\"").unwrap();
    make("mean(v), max(v)", "flags, not_there", "down").unwrap();
    world.simulation.advance_ns(2 * MINUTE_NS);
    world.write("default", &format!("flags up=true,v=9 {}", world.db.now_ns() - MINUTE_NS));
    world.settle();
    let found = world.influxql("a_year", "SELECT mean, max FROM down").unwrap();
    assert_eq!(rows_of(&found).len(), 1, "{found:?}");
}

/// What a name becomes that a measurement does not have is not known: a tag, or a field.
#[test]
fn conditions_name_what_the_measurement_has() {
    let mut world = world();
    let start_ns = window_ns(&world, MINUTE_NS) - 5 * MINUTE_NS;
    world.write("default", &format!("a,h=x v=3 {start_ns}\nb,h=x v=5,kind=\"k\" {start_ns}"));
    let make = |from: &str, into: &str| {
        let text = format!(
            "CREATE CONTINUOUS QUERY q ON \"default\" BEGIN SELECT mean(v) INTO a_year..{into} FROM {from} WHERE kind = 'k' AND h = 'x' GROUP BY time(1m) END"
        );
        world.influxql("default", &text).map(drop)
    };
    let refused = make("a", "down").unwrap_err();
    assert!(refused.contains("\"a\" has no tag and no field \"kind\", which WHERE names"), "{refused}");
    make("a, b", ":MEASUREMENT").unwrap();
    let names: Vec<String> = world.db.views("default").iter().map(|view| view.definition.name.clone()).collect();
    assert_eq!(names, ["q:b"]);
    world.simulation.advance_ns(2 * MINUTE_NS);
    world.write("default", &format!("b,h=x v=9,kind=\"k\" {}", world.db.now_ns() - MINUTE_NS));
    world.settle();
    assert_eq!(rows(&world, "SELECT mean FROM a_year..b").len(), 1);
}

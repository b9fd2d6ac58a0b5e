//! The statements of the guide, and of each dialect, as they are written.

use std::fmt::Write;
use std::sync::Arc;

use db::views::TaskSettings;
use db::{DatabasePolicy, RangeQuery};
use model::{MatchOp, Matcher};
use sql::{Manner, Value};

use crate::world::{SECOND_NS, World};

/// Two hours of samples of two hosts.
fn world() -> World {
    let world = World::empty(3);
    let now_ns = world.db.now_ns();
    let mut lines = String::new();
    for second in 0..7_200 {
        let host = if second % 3 == 0 { "a" } else { "b" };
        let at_ns = now_ns - second * SECOND_NS;
        writeln!(lines, "cpu,host={host} usage={}.5,cores={}i {at_ns}", second % 100, second % 8).unwrap();
    }
    world.write("default", &lines);
    world
}

#[test]
fn the_statements_of_the_guide_run() {
    let guide = include_str!("../../../../docs/guide/views.md");
    let mut world = world();
    let (mut manner, mut block, mut blocks, mut language) = (Manner::Postgres, None::<String>, 0, "sql");
    for line in guide.lines() {
        match (line, &mut block) {
            ("## QuestDB" | "## Other tables as of a time", _) => manner = Manner::QuestDb,
            ("## PromQL" | "## Labels of other tables" | "## Plain SQL", _) => manner = Manner::Postgres,
            ("```sql" | "```influxql" | "```flux" | "```promql", _) => {
                (block, language) = (Some(String::new()), &line[3..]);
            }
            ("```", Some(text)) if language == "influxql" => {
                text.lines().for_each(|statement| drop(world.influxql("default", statement).unwrap()));
                (block, blocks) = (None, blocks + 1);
            }
            ("```", Some(text)) if language == "flux" => {
                let script = flux::TaskScript::parse(text).unwrap();
                world.db.create_task(&script, TaskSettings::default(), &World::budget()).unwrap();
                world.settle();
                (block, blocks) = (None, blocks + 1);
            }
            ("```", Some(text)) if language == "promql" => {
                world.settle();
                text.lines().for_each(|query| check_viewed(&world, query));
                (block, blocks) = (None, blocks + 1);
            }
            ("```", Some(text)) => {
                for statement in text.split_inclusive(';') {
                    world.ask_as(manner, statement).unwrap();
                    world.settle();
                }
                (block, blocks) = (None, blocks + 1);
            }
            (line, Some(text)) => writeln!(text, "{line}").unwrap(),
            _ => {}
        }
    }
    assert_eq!(blocks, 12);
}

/// Checks that a view answers a query of PromQL, of half an hour by the minute.
fn check_viewed(world: &World, text: &str) {
    const MINUTE_MS: i64 = 60_000;
    let end_ms = world.db.now_ns() / 1_000_000 / MINUTE_MS * MINUTE_MS;
    let query = RangeQuery {
        text: text.to_owned(),
        start_ms: end_ms - 30 * MINUTE_MS,
        end_ms,
        step_ms: MINUTE_MS,
        lookback_ms: None,
        name_removal: None,
        may_cache: false,
        budget: Arc::new(World::budget()),
    };
    let analysis = world.db.analyze_range("default", &query).unwrap();
    assert!(
        analysis.plan.contains("(viewed ") && analysis.plan.contains("(view \"cpu_minute_open\""),
        "{}",
        analysis.plan
    );
    assert!(analysis.steps.iter().any(|step| step.step == "view" && step.rows > 0), "{:?}", analysis.steps);
}

#[test]
fn a_view_is_stored_and_read_by_explained_parts() {
    let mut world = world();
    let of_source = "SELECT time_bucket('1 minute', time) AS bucket, host, avg(usage) AS usage, max(cores) AS cores, count(*) AS n FROM cpu";
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {of_source} GROUP BY bucket, host"));
    let source = format!("{of_source} GROUP BY bucket, host ORDER BY bucket, host");
    let of_view = "SELECT bucket, host, usage, cores, n FROM v ORDER BY bucket, host";
    let expected = world.ask(&source);
    assert!(expected.len() > 230);
    assert_eq!(world.ask(of_view), expected, "before anything is stored");
    assert!(world.explained(of_view).contains("(computed"));
    world.settle();
    assert_eq!(world.ask(of_view), expected);
    let explained = world.explained(of_view);
    assert!(explained.contains("(view \"v\"") && explained.contains("(stored"), "{explained}");
    // Of the past nothing is computed.
    let old = format!("SELECT usage FROM v WHERE bucket < '{}'", time(world.db.now_ns() - 1_000 * SECOND_NS));
    assert!(!world.explained(&old).contains("(computed"), "{}", world.explained(&old));
    // A late row, before and after it is taken in.
    let late = format!("cpu,host=c usage=3,cores=9i {}", world.db.now_ns() - 3_000 * SECOND_NS);
    world.db.write_lines("default", late.as_bytes()).unwrap();
    let expected = world.ask(&source);
    assert_eq!(world.ask(of_view), expected);
    world.settle();
    assert!(!world.explained(&old).contains("(computed"));
    assert_eq!(world.ask(of_view), expected);
    assert_eq!(
        world.ask("SELECT view_status, pending_ranges FROM materialized_views()"),
        [[Value::text("valid"), Value::Int(0)]]
    );
    // The stored part alone.
    world.ask("ALTER MATERIALIZED VIEW v SET (timescaledb.materialized_only = true)");
    world.simulation.advance_ns(SECOND_NS);
    let now = format!("cpu,host=now usage=3,cores=9i {}", world.db.now_ns());
    world.db.write_lines("default", now.as_bytes()).unwrap();
    assert_eq!(world.ask("SELECT * FROM v WHERE host = 'now'").len(), 0);
    world.ask("DROP MATERIALIZED VIEW v");
    assert!(world.ask_as(Manner::Postgres, of_view).unwrap_err().contains("does not exist"));
}

/// A time as SQL reads it.
fn time(ns: i64) -> String {
    sql::format_rfc3339_us(ns)
}

/// What SQL makes of deviations: views answer for wider windows, and views of views are made of counts, sums and squares.
#[test]
fn deviations_of_several_windows_are_those_of_all_rows() {
    let mut world = world();
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, host, stddev(usage) AS dev, var_pop(cores) AS var, count(*) AS n FROM cpu GROUP BY bucket, host");
    world.ask(
        "CREATE MATERIALIZED VIEW parts AS SELECT time_bucket('1 minute', time) AS bucket, count(usage) AS n, sum(usage) AS total, squared_deviations(usage) AS sq FROM cpu GROUP BY 1",
    );
    world.ask(
        "CREATE MATERIALIZED VIEW wide AS SELECT time_bucket('30 minutes', bucket) AS bucket, stddev_samp(n, total, sq) AS dev, variance(n, total, sq) AS var FROM parts GROUP BY 1",
    );
    world.settle();
    let query = "SELECT time_bucket('30 minutes', time) AS bin, stddev(usage) AS dev, stddev_pop(usage), variance(usage) AS var, var_samp(cores), var_pop(cores) FROM cpu GROUP BY 1 ORDER BY 1";
    let explained = world.explained(query);
    assert!(explained.contains("(view \"v\"") && explained.contains("(stored"), "{explained}");
    let by_view = world.ask(query);
    world.ask("DROP MATERIALIZED VIEW v");
    let by_source = world.ask(query);
    assert!(by_source.len() >= 4);
    let close = |a: &Value, b: &Value| match (a, b) {
        (Value::Float(a), Value::Float(b)) => (a - b).abs() <= 1e-9 * b.abs(),
        (a, b) => a == b,
    };
    assert_eq!(by_view.len(), by_source.len());
    for (a, b) in by_view.iter().zip(&by_source) {
        assert!(a.iter().zip(b).all(|(a, b)| close(a, b)), "{a:?} {b:?}");
    }
    let wide = world.ask("SELECT bucket, dev, var FROM wide ORDER BY bucket");
    assert_eq!(wide.len(), by_source.len());
    for (wide, of_source) in wide.iter().zip(&by_source) {
        let expected = [0, 1, 3].map(|place| &of_source[place]);
        assert!(wide.iter().zip(expected).all(|(a, b)| close(a, b)), "{wide:?} {of_source:?}");
    }
    // The same row by row, where the plan does not group.
    let by_rows = world.ask("SELECT stddev_samp(n, total, sq), variance(n, total, sq) FROM (SELECT * FROM parts) p");
    let all = world.ask("SELECT stddev(usage), variance(usage) FROM cpu");
    assert!(by_rows[0].iter().zip(&all[0]).all(|(a, b)| close(a, b)), "{by_rows:?} {all:?}");
    assert_eq!(
        world.ask("SELECT stddev(usage), stddev_pop(usage) FROM cpu WHERE usage = 1.5 AND host = 'nobody'"),
        [[Value::Null, Value::Null]]
    );
}

/// Approximate quantiles: views answer for wider windows what the table gives, by their sketches.
#[test]
fn sketches_of_several_windows_are_those_of_all_rows() {
    let mut world = world();
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, host, approx_percentile(0.9, usage) AS p90, count(*) AS n FROM cpu GROUP BY bucket, host");
    world.settle();
    let query = "SELECT time_bucket('30 minutes', time) AS bin, approx_percentile(0.9, usage) AS p90 FROM cpu GROUP BY 1 ORDER BY 1";
    assert!(world.explained(query).contains("(view \"v\""), "{}", world.explained(query));
    let by_view = world.ask(query);
    world.ask("DROP MATERIALIZED VIEW v");
    assert_eq!(world.ask(query), by_view);
    world.ask("CREATE MATERIALIZED VIEW s AS SELECT time_bucket('1 minute', time) AS bucket, quantile_sketch(usage) AS sketch FROM cpu GROUP BY 1");
    world.ask("CREATE MATERIALIZED VIEW wide AS SELECT time_bucket('30 minutes', bucket) AS bucket, approx_percentile(sketch, 0.9) AS p90 FROM s GROUP BY 1");
    world.settle();
    assert!(world.explained(query).contains("(view \"s\""), "{}", world.explained(query));
    assert_eq!(world.ask(query), by_view);
    assert_eq!(world.ask("SELECT bucket, p90 FROM wide ORDER BY bucket"), by_view);
    let exact =
        world.ask("SELECT time_bucket('30 minutes', time) AS bin, quantile(usage, 0.9) FROM cpu GROUP BY 1 ORDER BY 1");
    for (about, exact) in by_view.iter().zip(&exact) {
        let (about, exact) = (about[1].number().unwrap(), exact[1].number().unwrap());
        assert!((about - exact).abs() <= exact * 0.03, "{about} {exact}");
    }
    world.ask("CREATE MATERIALIZED VIEW d AS SELECT time_bucket('1 minute', time) AS bucket, host, approx_count_distinct(usage) AS kinds, distinct_sketch(cores) AS sketch, count(*) AS n FROM cpu GROUP BY bucket, host");
    world.settle();
    let distinct = "SELECT time_bucket('1 hour', time) AS bin, approx_count_distinct(usage), approx_count_distinct(cores) FROM cpu GROUP BY 1 ORDER BY 1";
    assert!(world.explained(distinct).contains("(view \"d\""), "{}", world.explained(distinct));
    let by_view = world.ask(distinct);
    assert_eq!(by_view[1][2], Value::Int(8));
    assert_eq!(world.ask("SELECT approx_count_distinct_of_sketches(sketch) FROM d"), [[Value::Int(8)]]);
    world.ask("DROP MATERIALIZED VIEW d");
    assert_eq!(world.ask(distinct), by_view);
    assert_eq!(
        world.ask("SELECT approx_count_distinct(host), approx_count_distinct(usage) FROM cpu WHERE usage < 9"),
        [[Value::Int(2), Value::Int(9)]]
    );
    assert_eq!(world.ask("SELECT approx_count_distinct(usage) FROM cpu WHERE host = 'nobody'"), [[Value::Int(0)]]);
    // Row by row, of numbers and of sketches, where the plan does not group.
    let all = world.ask("SELECT approx_percentile(0.5, usage) FROM (SELECT * FROM cpu) c");
    assert_eq!(world.ask("SELECT approx_percentile(sketch, 0.5) FROM (SELECT * FROM s) s"), all);
    assert_eq!(
        world.ask("SELECT approx_percentile(0.5, quantile_sketch) FROM (SELECT quantile_sketch(usage) FROM cpu) q"),
        all
    );
    let error = world.ask_as(Manner::Postgres, "SELECT approx_percentile(0.5, 'x') FROM cpu").unwrap_err();
    assert!(error.contains("value and a share") || error.contains("no sketch"), "{error}");
}

/// A view that shows zero where an aggregate is of nothing is none of that aggregate: zero is not what there was.
#[test]
fn what_is_zero_where_there_is_nothing_answers_for_counts_alone() {
    let mut world = world();
    let now_ns = world.db.now_ns();
    let mut lines = String::new();
    for minute in 0..180 {
        let n = if minute % 3 == 0 { ",n=-5i" } else { "" };
        writeln!(lines, "cold,host=a other=1{n} {}", now_ns - minute * 60 * SECOND_NS).unwrap();
    }
    world.db.write_lines("default", lines.as_bytes()).unwrap();
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, host, coalesce(max(n), 0) AS most, coalesce(min(n), 0) AS least, coalesce(last(n), 0) AS newest, approx_count_distinct(n) AS kinds, count(n) AS known, count(*) AS rows FROM cold GROUP BY 1, 2");
    world.settle();
    let queries =
        ["max(n), min(n)", "last(n)", "max(n), count(n)", "approx_count_distinct(n), count(*)"].map(|calls| {
            format!("SELECT time_bucket('30 minutes', time) AS bin, host, {calls} FROM cold GROUP BY 1, 2 ORDER BY 1")
        });
    let by_view: Vec<_> = queries.iter().map(|query| world.ask(query)).collect();
    let counts = world.explained(&queries[3]);
    assert!(counts.contains("(view \"v\""), "counts are zero of nothing: {counts}");
    world.ask("DROP MATERIALIZED VIEW v");
    for (query, by_view) in queries.iter().zip(by_view) {
        let by_table = world.ask(query);
        assert!(by_table.len() >= 6);
        assert_eq!(by_view, by_table, "{query}");
    }
}

#[test]
fn what_no_view_can_be_is_refused() {
    let world = world();
    let refused = |text: &str, expected: &str| {
        let error = world.ask_as(Manner::Postgres, text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    };
    let query = "SELECT time_bucket('1 minute', time) AS bucket, max(usage) AS peak FROM cpu GROUP BY 1";
    refused(&format!("CREATE MATERIALIZED VIEW cpu AS {query}"), "would read itself");
    refused(
        "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time), max(x) FROM v GROUP BY 1",
        "does not exist",
    );
    refused(
        "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 microsecond', time), max(usage) FROM cpu GROUP BY 1",
        "1us wide: a second is the least",
    );
    for (width, wide) in [("300 years", "300 years"), ("1201 months", "100 years 1 mon"), ("40000 days", "5714w2d")] {
        let of_width = query.replace("1 minute", width);
        refused(&format!("CREATE MATERIALIZED VIEW v AS {of_width}"), &format!("{wide} wide: 100 years are the most"));
    }
    let long = "x".repeat(70_000);
    let of_long = query.replace("peak", &long);
    let named =
        format!("the column \"{}\"… of the view \"v\" has a name of 70000 bytes: 1024 are the most", &long[..40]);
    refused(&format!("CREATE MATERIALIZED VIEW v AS {of_long}"), &named);
    refused(
        &format!("CREATE MATERIALIZED VIEW v AS {}", query.replace("AS bucket", &format!("AS {long}"))),
        "of the view \"v\" has a name",
    );
    for columns in ["long TAG, x BIGINT", "long DOUBLE"] {
        let columns = columns.replace("long", &long);
        refused(&format!("CREATE TABLE t (time TIMESTAMP, {columns})"), "of the table \"t\" has a name of 70000 bytes");
    }
    refused("CREATE MATERIALIZED VIEW v AS SELECT host, max(usage) FROM cpu GROUP BY 1", "windows of the table's time");
    refused("CREATE MATERIALIZED VIEW v AS SELECT * FROM cpu", "groups");
    refused(
        "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time), sum(DISTINCT usage) FROM cpu GROUP BY 1",
        "DISTINCT in count(DISTINCT …) alone",
    );
    refused("CREATE MATERIALIZED VIEW v WITH (timescaledb.colour = red) AS SELECT 1", "no option");
    for when in ["now() - INTERVAL '1 day'", "current_timestamp", "'yesterday'::timestamptz"] {
        let query = format!("SELECT time_bucket('1 minute', time), max(usage) FROM cpu WHERE time > {when} GROUP BY 1");
        refused(&format!("CREATE MATERIALIZED VIEW v AS {query}"), "does not depend on the present");
    }
    refused(
        "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time), max(usage) FROM cpu WHERE usage > (SELECT avg(usage) FROM cpu) GROUP BY 1",
        "no queries within it",
    );
    refused(
        "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', cpu.time), max(cpu.usage) FROM cpu JOIN cpu AS h ON cpu.host = h.host GROUP BY 1",
        "which it reads or writes itself: join another table",
    );
    refused("DROP MATERIALIZED VIEW v", "does not exist");
    refused("ALTER MATERIALIZED VIEW v SET TTL 1d", "does not exist");
    world.ask("DROP MATERIALIZED VIEW IF EXISTS v; ALTER MATERIALIZED VIEW IF EXISTS v SET TTL 1d");
    refused("REFRESH MATERIALIZED VIEW v", "does not exist");
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {query}"));
    refused(&format!("CREATE MATERIALIZED VIEW v AS {query}"), "already exists");
    world.ask(&format!("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS {query}"));
    world.ask("CREATE MATERIALIZED VIEW w AS SELECT time_bucket('1 hour', bucket) AS bucket, max(peak) AS peak FROM v GROUP BY 1");
    refused("DROP MATERIALIZED VIEW v", "drop it first");
    refused("DROP TABLE cpu", "drop the view first");
    refused("DROP TABLE v", "DROP MATERIALIZED VIEW");
    refused("DELETE FROM v", "computed from those of its source");
    world.ask("DROP MATERIALIZED VIEW w; DROP MATERIALIZED VIEW v; DROP TABLE cpu");
}

#[test]
fn policies_stay_as_they_are_unless_they_are_changed() {
    let world = world();
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, max(usage) AS peak FROM cpu GROUP BY 1");
    let options = || world.db.view("default", "v").unwrap().definition.options.clone();
    let add = |rest: &str| {
        let text = format!("SELECT add_continuous_aggregate_policy('v', schedule_interval => {rest})");
        world.ask_as(Manner::Postgres, &text)
    };
    add("INTERVAL '1 hour', end_offset => INTERVAL '10 minutes'").unwrap();
    let before = options();
    assert_eq!(before.lag_ns, Some(600 * SECOND_NS));
    add("INTERVAL '2 hours', if_not_exists => true").unwrap();
    assert_eq!(options(), before);
    assert!(add("INTERVAL '2 hours'").unwrap_err().contains("has a policy already"));
    assert!(add("INTERVAL '2 hours', every => 5").unwrap_err().contains("no argument \"every\""));
    world.ask("ALTER MATERIALIZED VIEW v SET REFRESH EVERY 5m");
    assert_eq!(options().lag_ns, before.lag_ns, "a delay that is not named stays");
    assert_ne!(options(), before);
    world.ask("ALTER MATERIALIZED VIEW v SET REFRESH EVERY 5m PERIOD (LENGTH 1h DELAY 20s)");
    assert_eq!(options().lag_ns, Some(20 * SECOND_NS));
}

#[test]
fn a_definition_that_cannot_be_read_is_told_of_and_dropped() {
    let mut world = world();
    let made = "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, max(usage) AS peak FROM cpu GROUP BY 1";
    world.ask(made);
    world.settle();
    let (name, bytes) = world.db.documents("view").remove(0);
    let damaged = String::from_utf8(bytes.to_vec()).unwrap().replace("groupby", "group");
    world.db.put_document("view", &name, damaged.as_bytes()).unwrap();
    let world = world.reopened(|_| {});
    let unreadable = world.db.unreadable_views();
    assert_eq!(unreadable.iter().map(|view| (&*view.database, &*view.name)).collect::<Vec<_>>(), [("default", "v")]);
    for text in ["SELECT * FROM v", made] {
        let error = world.ask_as(Manner::Postgres, text).unwrap_err();
        assert!(error.contains("cannot be read"), "{text}: {error}");
    }
    world.ask("DROP MATERIALIZED VIEW v");
    assert!(world.db.unreadable_views().is_empty() && world.db.documents("view").is_empty());
    world.ask(made);
    world.ask("SELECT bucket, peak FROM v");
}

#[test]
fn a_pass_looks_at_no_view_that_has_no_changes() {
    let mut world = world();
    let make = "CREATE MATERIALIZED VIEW v0 AS SELECT time_bucket('1 hour', time) AS bucket, max(usage) AS peak FROM t0 GROUP BY 1";
    let views = 40;
    for view in 0..views {
        world.write("default", &format!("t{view} usage=1 {}", world.db.now_ns()));
        world.ask(&make.replace("v0", &format!("v{view}")).replace("t0", &format!("t{view}")));
    }
    world.settle();
    let looked_at = |world: &mut World| {
        let before = world.refresher.looked_at();
        world.settle();
        world.refresher.looked_at() - before
    };
    assert_eq!(looked_at(&mut world), 0);
    // A late row changes windows that are stored; the pass that computes them needs no look at the view.
    world.write("default", &format!("t3 usage=7 {}", world.db.now_ns() - 7_200 * SECOND_NS));
    assert!(looked_at(&mut world) <= 1);
    assert_eq!(world.ask("SELECT max(peak) FROM v3"), [[Value::Float(7.0)]]);
    world.ask_as(Manner::QuestDb, "REFRESH MATERIALIZED VIEW v5 FULL").unwrap();
    assert!((1..4).contains(&looked_at(&mut world)));
    world.ask_as(Manner::QuestDb, "ALTER MATERIALIZED VIEW v6 SET REFRESH MANUAL").unwrap();
    world.write("default", &format!("t6 usage=8 {}", world.db.now_ns() - 7_200 * SECOND_NS));
    looked_at(&mut world);
    assert_eq!(looked_at(&mut world), 0, "it waits to be asked for");
    world.ask_as(Manner::QuestDb, "REFRESH MATERIALIZED VIEW v6 INCREMENTAL").unwrap();
    assert!((1..4).contains(&looked_at(&mut world)));
    world.ask_as(Manner::QuestDb, "ALTER MATERIALIZED VIEW v6 SET REFRESH EVERY 10m").unwrap();
    looked_at(&mut world);
    world.simulation.advance_ns(601 * SECOND_NS);
    assert!(looked_at(&mut world) > 0);
    // All have a window that is over.
    world.simulation.advance_ns(3_700 * SECOND_NS);
    assert!(looked_at(&mut world) >= views);
    assert_eq!(looked_at(&mut world), 0);
}

#[test]
fn a_view_outlives_its_source() {
    let mut world = world();
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, host, sum(usage) AS s FROM cpu GROUP BY 1, 2");
    world.settle();
    let before = world.ask("SELECT bucket, host, s FROM v ORDER BY bucket, host");
    world.ask("ALTER TABLE cpu SET TTL 1h");
    world.simulation.advance_ns(1_000 * SECOND_NS);
    let late = format!("cpu,host=a usage=1000 {}", world.db.now_ns() - 5_000 * SECOND_NS);
    world.db.write_lines("default", late.as_bytes()).unwrap();
    world.settle();
    let after = world.ask("SELECT bucket, host, s FROM v ORDER BY bucket, host");
    let (first, last) = (&before[..before.len() - 10], &after[..before.len() - 10]);
    assert_eq!(first, last, "windows of what is gone stay as they are");
    let refused = world.ask("SELECT late_samples_refused FROM materialized_views()");
    assert_eq!(refused, [[Value::Int(1)]]);
    // A longer TTL does not bring back what the shorter one took.
    world.ask("ALTER TABLE cpu SET TTL 9000h");
    world.ask_as(Manner::QuestDb, "REFRESH MATERIALIZED VIEW v FULL").unwrap();
    world.settle();
    let after = world.ask("SELECT bucket, host, s FROM v ORDER BY bucket, host");
    assert_eq!(first, &after[..before.len() - 10], "windows of what was gone are not computed again");
}

#[test]
fn a_view_outlives_series_that_are_kept_less_long() {
    const HOUR_NS: i64 = 3_600 * SECOND_NS;
    let mut world = world();
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, host, sum(usage) AS s FROM cpu GROUP BY 1, 2");
    let trim = |world: &World, before_ns: i64| {
        let series = [vec![Matcher::new("host", MatchOp::Equal, "a")]];
        world.db.trim_series(("default", "cpu"), &series, before_ns).unwrap()
    };
    let counts = |world: &World| world.ask("SELECT host, count(usage) FROM cpu GROUP BY host ORDER BY host");
    let windows = |world: &World| world.ask("SELECT bucket, host, s FROM v ORDER BY bucket, host");
    let (now_ns, all) = (world.db.now_ns(), counts(&world));
    assert_eq!(trim(&world, now_ns - HOUR_NS), i64::MIN, "the view still has to read all");
    assert_eq!(counts(&world), all);
    world.settle();
    let before = windows(&world);
    let ago_ns = now_ns - HOUR_NS;
    let in_window_ns = ago_ns.rem_euclid(60 * SECOND_NS);
    assert_eq!(trim(&world, ago_ns), ago_ns - in_window_ns, "a window goes as a whole");
    let left = counts(&world);
    let count = 1_201 + in_window_ns / SECOND_NS / 3;
    assert!(left[0] == [Value::Text("a".into()), Value::Int(count)] && left[1] == all[1], "{left:?}");
    // Of the others, too, late rows come too late for windows that cannot be made again.
    let late = format!("cpu,host=b usage=1000 {}", now_ns - 5_000 * SECOND_NS);
    world.db.write_lines("default", late.as_bytes()).unwrap();
    world.settle();
    assert_eq!(windows(&world), before);
    assert_eq!(world.ask("SELECT late_samples_refused FROM materialized_views()"), [[Value::Int(1)]]);
    world.ask_as(Manner::QuestDb, "REFRESH MATERIALIZED VIEW v FULL").unwrap();
    world.settle();
    assert_eq!(windows(&world), before);
    // What a window that is not over is made of stays, and so does what is ahead of the clock.
    let gone_ns = trim(&world, i64::MAX);
    assert!(gone_ns <= now_ns - 60 * SECOND_NS && gone_ns > now_ns - HOUR_NS, "{}", now_ns - gone_ns);
    assert!(counts(&world)[0] != left[0]);
    assert_eq!(windows(&world), before);
}

#[test]
fn rows_are_kept_as_long_as_views_need_them() {
    const HOUR_NS: i64 = 3_600 * SECOND_NS;
    let world = world();
    let of_days = "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 day', time) AS bucket, max(usage) AS peak FROM cpu GROUP BY 1";
    let refused = |text: &str, expected: &str| {
        let error = world.ask_as(Manner::Postgres, text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    };
    let short = DatabasePolicy { retention_ns: 12 * HOUR_NS, ..DatabasePolicy::default() };
    world.db.set_policy("default", &short).unwrap();
    refused(of_days, "keep them longer");
    world.db.set_policy("default", &DatabasePolicy::default()).unwrap();
    world.ask("ALTER TABLE cpu SET TTL 12h");
    refused(
        of_days,
        "the table \"cpu\" would keep rows for 12h, but a window of the view \"v\" is stored when it began up to 1d",
    );
    world.ask("ALTER TABLE cpu SET TTL 48h");
    world.ask(of_days);
    // The other way round.
    assert!(world.db.set_policy("default", &short).is_err());
    refused("ALTER TABLE cpu SET TTL 12h", "the table \"cpu\" would keep rows");
}

/// Clients of Postgres ask for materialised views apart from tables.
#[test]
fn materialised_views_are_listed_as_such() {
    let mut world = world();
    let query = "SELECT time_bucket('1 minute', time) AS bucket, max(usage) AS peak FROM cpu GROUP BY 1";
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {query}"));
    world.ask("CREATE VIEW plain AS SELECT * FROM cpu");
    let listed = |world: &World, text: &str| {
        let rows = world.ask(text);
        rows.iter().map(|row| row.iter().map(Value::to_string).collect::<Vec<_>>().join("|")).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let kinds = listed(&world, "SELECT relname, relkind FROM pg_class ORDER BY relname");
        assert_eq!(kinds, ["cpu|r", "plain|v", "v|m"]);
        assert_eq!(listed(&world, "SELECT tablename FROM pg_tables"), ["cpu"]);
        let views = listed(&world, "SELECT matviewname, matviewowner, ispopulated, definition FROM pg_matviews");
        assert_eq!(views, [format!("v|thalweg|t|CREATE MATERIALIZED VIEW v AS {query}")]);
        assert_eq!(listed(&world, "SELECT hypertable_name FROM timescaledb_information.hypertables"), ["cpu"]);
        world.settle();
    }
    let stats = listed(
        &world,
        "SELECT hypertable_name, last_run_status, job_status, total_runs > 0 FROM timescaledb_information.job_stats",
    );
    assert_eq!(stats, ["v|Success|Scheduled|t"]);
}

/// The widest windows that a view may have are read as those of a query are.
#[test]
fn windows_of_a_hundred_years_are_read() {
    let mut world = world();
    world.write(
        "default",
        &format!(
            "cpu,host=a usage=7 {}\ncpu,host=a usage=8 {}",
            -7_500_000_000 * SECOND_NS,
            -2_000_000_000 * SECOND_NS
        ),
    );
    for (view, bucket) in
        [("u", "'100 years', time"), ("v", "'100 years', time, 'Europe/Berlin'"), ("w", "'36500 days', time")]
    {
        let query =
            format!("SELECT time_bucket({bucket}) AS bucket, max(usage) AS peak, count(*) AS n FROM cpu GROUP BY 1");
        world.ask(&format!("CREATE MATERIALIZED VIEW {view} AS {query}"));
        let read = format!("SELECT bucket, peak, n FROM {view} ORDER BY bucket");
        let expected = world.ask(&format!("{query} ORDER BY 1"));
        assert_eq!(world.ask(&read), expected, "{bucket}");
        world.settle();
        assert_eq!(world.ask(&read), expected, "{bucket}");
    }
}

#[test]
fn a_view_over_one_that_shows_what_is_stored_is_made_of_all_windows() {
    let mut world = world();
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, host, max(usage) AS peak FROM cpu GROUP BY 1, 2");
    world.ask("ALTER MATERIALIZED VIEW v SET (timescaledb.materialized_only = true)");
    world.ask("CREATE MATERIALIZED VIEW w AS SELECT time_bucket('1 hour', bucket) AS bucket, max(peak) AS peak FROM v GROUP BY 1");
    let of_source = "SELECT time_bucket('1 hour', time) AS bucket, max(usage) AS peak FROM cpu GROUP BY 1 ORDER BY 1";
    let of_view = "SELECT bucket, peak FROM w ORDER BY bucket";
    assert_eq!(world.ask("SELECT * FROM v").len(), 0, "nothing is stored");
    assert_eq!(world.ask(of_view), world.ask(of_source));
    world.settle();
    assert_eq!(world.ask(of_view), world.ask(of_source));
}

#[test]
fn a_continuous_query_counts_late_rows() {
    let mut world = world();
    world.influxql("default", r#"CREATE CONTINUOUS QUERY "q" ON "default" RESAMPLE FOR 1h BEGIN SELECT mean(usage) AS usage, count(cores) INTO "down" FROM cpu WHERE time > now() - 1m GROUP BY time(1m), host END"#).unwrap();
    let listed = format!("{:?}", world.influxql("default", "SHOW CONTINUOUS QUERIES").unwrap());
    assert!(listed.contains("RESAMPLE FOR 1h BEGIN SELECT"), "{listed}");
    world.settle();
    let start_ns = world.db.now_ns() / (60 * SECOND_NS) * 60 * SECOND_NS;
    for round in 0..5 {
        world.simulation.advance_ns(60 * SECOND_NS);
        let now_ns = world.db.now_ns();
        let lines = format!(
            "cpu,host=a usage={round},cores=1i {}\ncpu,host=a usage=7,cores=1i {}",
            now_ns - SECOND_NS,
            now_ns - 90 * SECOND_NS
        );
        world.db.write_lines("default", lines.as_bytes()).unwrap();
        world.settle();
    }
    world.simulation.advance_ns(60 * SECOND_NS);
    world.settle();
    let from = |table: &str, what: &str| {
        format!(
            "SELECT {what} FROM {table} WHERE host = 'a' AND time >= '{}' AND time < '{}'",
            time(start_ns),
            time(start_ns + 240 * SECOND_NS)
        )
    };
    let expected = world.ask(&format!(
        "{} GROUP BY time_bucket('1 minute', time) ORDER BY 1",
        from("cpu", "time_bucket('1 minute', time), avg(usage), count(cores)")
    ));
    let found = world.ask(&format!("{} ORDER BY time", from("down", "time, usage, count")));
    assert_eq!(found, expected);
    assert!(found.len() >= 4);
    world.influxql("default", r#"DROP CONTINUOUS QUERY q ON "default""#).unwrap();
    assert_eq!(world.ask(&format!("{} ORDER BY time", from("down", "time, usage, count"))), found, "its rows stay");
}

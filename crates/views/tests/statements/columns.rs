//! Columns that views get later.

use sql::{Manner, Value};

use crate::world::{SECOND_NS, World, sorted};

fn world() -> World {
    let world = World::empty(3);
    let now_ns = world.db.now_ns();
    let rows = (0..600).map(|row| {
        format!("cpu,host=h{} usage={},idle={} {}\n", row % 2, row % 17, row % 5, now_ns - row * 10 * SECOND_NS)
    });
    world.write("default", &rows.collect::<String>());
    world
}

fn pending_columns(world: &World) -> usize {
    world.db.view("default", "v").unwrap().state.new_columns.len()
}

/// Returns whether a column of windows that are over is computed where it is read.
fn is_computed(world: &World, column: &str) -> bool {
    let over_ns = world.db.now_ns() - 600 * SECOND_NS;
    let plan = format!("(->> (table \"v\" '(\"{column}\")) (range 0 {over_ns}))");
    let outcome = world.db.run_plan("default", &query::parse(&plan, 0).unwrap(), &World::budget()).unwrap();
    outcome.steps.iter().any(|step| step.step == "view")
}

#[test]
fn an_added_column_is_there_at_once_and_is_computed_alone() {
    let mut world = world();
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, host, avg(usage) AS usage FROM cpu GROUP BY 1, 2");
    world.settle();
    let expected =
        world.ask("SELECT time_bucket('1 minute', time), host, avg(usage), max(idle), count(*) FROM cpu GROUP BY 1, 2");
    world.ask("ALTER MATERIALIZED VIEW v ADD COLUMN peak AS max(idle)");
    world.ask("ALTER MATERIALIZED VIEW v ADD COLUMN IF NOT EXISTS peak AS max(idle)");
    world.ask("ALTER MATERIALIZED VIEW v ADD n AS count(*)");
    assert_eq!(pending_columns(&world), 2);
    let all = "SELECT bucket, host, usage, peak, n FROM v";
    assert_eq!(sorted(world.ask(all), 2), sorted(expected.clone(), 2));
    // What is stored answers for the others meanwhile.
    assert!(!is_computed(&world, "usage") && is_computed(&world, "peak"));
    let mut world = world.reopened(platform::sim::Simulation::crash);
    assert_eq!(pending_columns(&world), 2);
    assert_eq!(sorted(world.ask(all), 2), sorted(expected.clone(), 2));
    world.settle();
    assert_eq!(pending_columns(&world), 0);
    assert!(!is_computed(&world, "peak"));
    assert_eq!(sorted(world.ask(all), 2), sorted(expected.clone(), 2));
    // As stored, but for the window that is under way.
    world.ask("ALTER MATERIALIZED VIEW v SET (timescaledb.materialized_only = true)");
    let stored = world.ask(all);
    assert!(
        stored.len() + 4 >= expected.len() && stored.iter().all(|row| row.iter().all(|value| *value != Value::Null)),
        "{stored:?}"
    );
    let shown = world.ask("SHOW CREATE MATERIALIZED VIEW v");
    assert!(
        shown[0][0]
            .to_string()
            .contains("avg(usage) AS usage , max ( idle ) AS \"peak\" , count ( * ) AS \"n\" FROM cpu"),
        "{shown:?}"
    );
}

#[test]
fn windows_whose_source_is_gone_keep_what_they_have() {
    let mut world = world();
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, max(usage) AS peak FROM cpu GROUP BY 1");
    world.settle();
    let peaks = world.ask("SELECT bucket, peak FROM v ORDER BY bucket");
    world.ask("ALTER TABLE cpu SET TTL 1h");
    world.ask("ALTER MATERIALIZED VIEW v ADD COLUMN low AS min(usage)");
    world.settle();
    assert_eq!(world.ask("SELECT bucket, peak FROM v ORDER BY bucket"), peaks);
    let lows = world.ask("SELECT bucket, low FROM v ORDER BY bucket");
    let known = lows.iter().position(|row| row[1] != Value::Null).unwrap();
    assert!(
        known > 20 && lows.len() - known >= 60 && lows[known..].iter().all(|row| row[1] != Value::Null),
        "{known} of {}",
        lows.len()
    );
}

#[test]
fn what_a_view_keeps_besides_is_shown_where_it_is_asked_for() {
    let mut world = world();
    world.ask_as(Manner::QuestDb, "CREATE MATERIALIZED VIEW v AS (SELECT timestamp, host, avg(usage) AS usage FROM cpu SAMPLE BY 1m) PARTITION BY DAY").unwrap();
    world.settle();
    world.ask("ALTER MATERIALIZED VIEW v ADD COLUMN total AS sum(usage)");
    world.settle();
    let expected =
        world.ask("SELECT time_bucket('1 minute', time), host, avg(usage), sum(usage) FROM cpu GROUP BY 1, 2");
    assert_eq!(
        sorted(world.ask_as(Manner::QuestDb, "SELECT timestamp, host, usage, total FROM v").unwrap(), 2),
        sorted(expected, 2)
    );
    // Wider windows are made of what it keeps besides, under the names that it had.
    let view = world.db.view("default", "v").unwrap();
    let names: Vec<&str> = view.definition.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["usage", "__sum_usage", "__count_usage", "total"]);
}

#[test]
fn columns_that_would_make_other_rows_are_refused() {
    let world = world();
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, host, max(usage) AS peak FROM cpu GROUP BY 1, 2");
    for (change, expected) in [
        ("ADD COLUMN peak AS min(usage)", "already exists"),
        ("ADD COLUMN host AS min(usage)", "a label or a time"),
        ("ADD COLUMN bucket AS min(usage)", "a label or a time"),
        ("ADD COLUMN low AS min(nothing)", "nothing"),
        ("ADD COLUMN low AS host", "keeps its name"),
        ("ADD COLUMN low AS min(usage), max(idle) AS high", "AS"),
        ("ADD COLUMN low", "AS"),
        ("ADD COLUMN low AS", "AS"),
        ("ADD COLUMN __low AS min(usage)", "__"),
    ] {
        let error = world.ask_as(Manner::Postgres, &format!("ALTER MATERIALIZED VIEW v {change}"));
        let error = error.expect_err(change);
        assert!(error.contains(expected), "{change}: {error}");
    }
    assert_eq!(pending_columns(&world), 0);
}

#[test]
fn influxql_reads_columns_of_sketches() {
    let mut world = world();
    world.ask(
        "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, host, quantile_sketch(usage) AS usages, distinct_sketch(usage) AS different FROM cpu GROUP BY 1, 2",
    );
    world.settle();
    let text = "SELECT approx_percentile(usages, 90), approx_count_distinct_of_sketches(different) FROM v GROUP BY time(5m), host; \
                SELECT approx_percentile(usage, 90), approx_count_distinct(usage) FROM cpu GROUP BY time(5m), host";
    let answers: Vec<String> = text
        .split("; ")
        .map(|statement| {
            let series = world.influxql("default", statement).unwrap().series;
            let rows = series.iter().map(|series| (&series.tags, &series.columns, series.rows.values()));
            format!("{:?}", rows.collect::<Vec<_>>())
        })
        .collect();
    let renamed = answers[0].replace("approx_count_distinct_of_sketches", "approx_count_distinct");
    assert_eq!(renamed, answers[1]);
    let of_sql =
        world.ask("SELECT approx_percentile(0.9, usage), approx_count_distinct(usage) FROM cpu WHERE host = 'h1'");
    let whole = world.influxql(
        "default",
        "SELECT approx_percentile(usages, 90), approx_count_distinct_of_sketches(different) FROM v WHERE host = 'h1'",
    );
    let whole = format!("{:?}", whole.unwrap().series);
    for value in &of_sql[0] {
        assert!(whole.contains(&format!("{value:?}")), "{value:?} is not in {whole}");
    }
    for (statement, expected) in [
        ("SELECT approx_percentile(usages, 101) FROM v", "a number from 0 to 100"),
        ("SELECT approx_percentile(usages) FROM v", "expected 2"),
        ("SELECT approx_percentile(different, 50) FROM v", "cannot take a value"),
        ("SELECT approx_count_distinct_of_sketches(usage) FROM cpu", "iterator type: float"),
    ] {
        let error = world.influxql("default", statement).map(|answer| format!("{answer:?}")).unwrap_err();
        assert!(error.contains(expected), "{statement}: {error}");
    }
}

#[test]
fn quotes_in_texts_and_names_stay_in_the_statement() {
    let world = world();
    world.write("default", &format!("cpu,host=it's usage=3,idle=1 {}", world.db.now_ns()));
    let text = "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, max(usage) AS \"the \"\"peak\"\"\" FROM cpu WHERE host = 'it''s' GROUP BY 1";
    world.ask(text);
    assert_eq!(world.ask("SHOW CREATE MATERIALIZED VIEW v")[0][0].to_string(), text);
    world.ask("ALTER MATERIALIZED VIEW v ADD COLUMN n AS count(*)");
    let shown = world.ask("SHOW CREATE MATERIALIZED VIEW v")[0][0].to_string();
    assert!(shown.ends_with(" AS \"n\" FROM cpu WHERE host = 'it''s' GROUP BY 1"), "{shown}");
    assert_eq!(world.ask("SELECT \"the \"\"peak\"\"\", n FROM v"), [[Value::Float(3.0), Value::Int(1)]]);
}

/// Groups of rows none of whose columns the view reads are there, as in its query.
#[test]
fn windows_whose_columns_are_all_null_are_there() {
    for columns in [
        "max(u) AS a",
        "first(u) AS a, last(u) AS b",
        "sum(u) AS a, median(u) AS b",
        "avg(u) AS a, stddev(u) AS b",
        "max(u) - min(u) AS a",
        "quantile(u, 0.9) AS a",
        "max(text) AS a",
        "approx_percentile(0.5, u) AS a",
        "coalesce(max(u), 0) AS a",
        "count(DISTINCT u) AS a",
        "max(u) AS a HAVING count(*) > 0",
        "sum(u) FILTER (WHERE u > 100) AS a",
        "max(u * 2.0) AS a, count(*) FILTER (WHERE u > 100) AS b",
        "avg(CASE WHEN u > 100 THEN u END) AS a HAVING count(*) FILTER (WHERE u > 100) = 0",
    ] {
        let mut world = World::empty(6);
        let then_ns = world.db.now_ns() - 3_600 * SECOND_NS;
        let row =
            |host: &str, fields: &str, at_s: i64| format!("e,host={host} {fields} {}\n", then_ns + at_s * SECOND_NS);
        let rows = [row("a", "u=1,text=\"x\"", 0), row("b", "v=2", 0), row("b", "v=3", 500), row("c", "v=3,u=7", 900)];
        world.write("default", &rows.concat());
        let (shown, having) = columns.split_once(" HAVING ").unwrap_or((columns, "count(*) >= 0"));
        let query = |from: &str| {
            format!(
                "SELECT time_bucket('1 minute', time) AS bucket, host, {shown} FROM {from} GROUP BY 1, 2 HAVING {having}"
            )
        };
        let made = query("e").replace(" HAVING count(*) >= 0", "");
        world.ask(&format!("CREATE MATERIALIZED VIEW v AS {made}"));
        let expected = sorted(world.ask(&query("e")), 2);
        assert_eq!(expected.len(), 4, "{columns}");
        assert_eq!(sorted(world.ask("SELECT * FROM v"), 2), expected, "{columns}");
        world.settle();
        assert_eq!(sorted(world.ask("SELECT * FROM v"), 2), expected, "{columns}, stored");
        let names: Vec<&str> = shown.split(" AS ").skip(1).map(|rest| &rest[..1]).collect();
        let by_name = format!("SELECT bucket, host, {} FROM v", names.join(", "));
        assert_eq!(sorted(world.ask(&by_name), 2), expected, "{by_name}");
    }
}

#[test]
fn errors_say_what_is_no_group() {
    let world = world();
    world.ask("CREATE TABLE places (time TIMESTAMP, place TEXT, v DOUBLE PRECISION)");
    for (query, expected) in [
        (
            "SELECT time_bucket('1 hour', time) AS b, place, max(v) AS v FROM places GROUP BY 1, 2",
            "\"place\" is a field",
        ),
        ("SELECT time_bucket('1 hour', time) AS b, upper(place), max(v) AS v FROM places GROUP BY 1, 2", "number 2"),
        ("SELECT time, max(v) AS v FROM places GROUP BY time", "each row's own time"),
        ("SELECT max(v) AS v FROM places", "no windows"),
    ] {
        let made = format!("CREATE MATERIALIZED VIEW wrong AS {query}");
        let error = world.ask_as(Manner::Postgres, &made).unwrap_err();
        assert!(error.contains(expected), "{query}: {error}");
    }
    // As QuestDB's documentation writes names.
    world.ask_as(Manner::QuestDb, "CREATE MATERIALIZED VIEW 'quoted' AS (SELECT timestamp, max(usage) FROM cpu SAMPLE BY 1h) PARTITION BY DAY").unwrap();
    assert!(!world.ask("SELECT * FROM quoted").is_empty());
}

//! Histograms: counted as conditions count, and put together by views.

use sql::{Manner, Value};

use crate::world::{SECOND_NS, World};

/// Numbers from -3 to 16, some of them missing.
fn world() -> World {
    let world = World::empty(3);
    let now_ns = world.db.now_ns();
    let rows = (0..900).map(|row| {
        let usage = if row % 11 == 0 { String::new() } else { format!("usage={},", (row * 7 % 39) as f64 / 2.0 - 3.0) };
        format!("cpu,host=h{} {usage}idle={}i {}\n", row % 2, row % 5, now_ns - row * 10 * SECOND_NS)
    });
    world.write("default", &rows.collect::<String>());
    world
}

/// The histogram of 4 ranges from 2 to 14 of half hours, by conditions.
fn counted(world: &World) -> Vec<Vec<Value>> {
    let below = "usage < 2".to_owned();
    let within = (0..4).map(|range| format!("usage >= {} AND usage < {}", 2 + range * 3, 5 + range * 3));
    let conditions = std::iter::once(below).chain(within).chain(["usage >= 14".to_owned()]);
    let calls: Vec<String> = conditions.map(|condition| format!("count(*) FILTER (WHERE {condition})")).collect();
    let rows = world.ask(&format!(
        "SELECT time_bucket('30 minutes', time) AS bucket, {} FROM cpu GROUP BY 1 ORDER BY 1",
        calls.join(", ")
    ));
    let text = |row: Vec<Value>| {
        let counts: Vec<String> = row[1..].iter().map(ToString::to_string).collect();
        vec![row[0].clone(), Value::text(format!("{{{}}}", counts.join(",")))]
    };
    rows.into_iter().map(text).collect()
}

#[test]
fn histograms_of_several_windows_are_those_of_all_rows() {
    let mut world = world();
    world.ask("CREATE MATERIALIZED VIEW v WITH (timescaledb.continuous) AS SELECT time_bucket('1 minute', time) AS bucket, host, histogram(usage, 2, 14, 4) AS h FROM cpu GROUP BY 1, 2");
    world.ask("CREATE MATERIALIZED VIEW wide AS SELECT time_bucket('30 minutes', bucket) AS bucket, histogram(h) AS h FROM v GROUP BY 1");
    let query =
        "SELECT time_bucket('30 minutes', time) AS bucket, histogram(usage, 2, 14, 4) FROM cpu GROUP BY 1 ORDER BY 1";
    let check = |world: &World| {
        let expected = counted(world);
        assert_eq!(world.ask(query), expected);
        assert_eq!(world.ask("SELECT bucket, h FROM wide ORDER BY bucket"), expected);
        let all = world.ask("SELECT histogram(usage, 2, 14, 4) FROM (SELECT * FROM cpu) c");
        assert_eq!(world.ask("SELECT histogram(h) FROM (SELECT * FROM v) v"), all);
        assert_eq!(world.ask("SELECT histogram(h) FROM wide"), all);
    };
    check(&world);
    world.settle();
    assert!(world.explained(query).contains("(view \"v\""), "{}", world.explained(query));
    check(&world);
    let late_ns = world.db.now_ns() - 5_000 * SECOND_NS;
    world.write("default", &format!("cpu,host=h0 usage=13.5 {late_ns}\ncpu,host=new usage=-2 {}\n", late_ns + 1));
    check(&world);
    let mut world = world.reopened(platform::sim::Simulation::crash);
    world.settle();
    check(&world);
    // Of other ranges it is the table's.
    let other = query.replace("14, 4", "14, 5");
    assert!(!world.explained(&other).contains("(view"), "{}", world.explained(&other));
    world.ask("DROP MATERIALIZED VIEW wide");
    world.ask("DROP MATERIALIZED VIEW v");
    assert_eq!(world.ask(query), counted(&world));
}

#[test]
fn what_is_no_histogram_is_refused() {
    let world = world();
    world.write("default", "kept h=\"{1,2,3}\" 1\nkept h=\"{1,2,3,4}\" 2\nkept h=\"x\" 4000000000\n");
    for (query, expected) in [
        ("SELECT histogram(usage) FROM cpu", "from where to where"),
        ("SELECT histogram(usage, 0, 100) FROM cpu", "from where to where"),
        ("SELECT histogram(*) FROM cpu", "from where to where"),
        ("SELECT histogram(*, usage, 0, 100, 10) FROM cpu", "from where to where"),
        ("SELECT histogram(usage, 0, 100, idle) FROM cpu", "constants"),
        ("SELECT histogram(usage, 0, 100, 2.5) FROM cpu", "constants"),
        ("SELECT histogram(usage, 14, 2, 4) FROM cpu", "between a number and a larger one"),
        ("SELECT histogram(usage, 0, 1, 0) FROM cpu", "1 to 1000 buckets"),
        ("SELECT histogram(usage, 0, 1, 1e18) FROM cpu", "1 to 1000 buckets"),
        ("SELECT histogram(host, 0, 1, 4) FROM cpu", "function histogram(text) does not exist"),
        ("SELECT histogram(time, 0, 1, 4) FROM cpu", "does not exist"),
        ("SELECT histogram(h) FROM kept WHERE time < '1970-01-01 00:00:01'", "different numbers of buckets"),
        (
            "SELECT histogram(h) FROM (SELECT h FROM kept WHERE time < '1970-01-01 00:00:01') k",
            "different numbers of buckets",
        ),
        ("SELECT histogram(h) FROM kept WHERE time > '1970-01-01 00:00:01'", "no histogram"),
    ] {
        let error = world.ask_as(Manner::Postgres, query).unwrap_err();
        assert!(error.contains(expected), "{query}: {error}");
    }
    assert_eq!(world.ask("SELECT histogram(usage, 0, 1, 4) FROM cpu WHERE host = 'none'"), [[Value::Null]]);
    assert_eq!(world.ask("SELECT histogram(DISTINCT idle, 0, 4, 2) FROM cpu"), [[Value::text("{0,2,2,1}")]]);
    assert_eq!(
        world.ask("SELECT histogram('{1,2,3}') FROM cpu WHERE idle = 3 AND usage = -3"),
        [[Value::text("{4,8,12}")]]
    );
    // Letters tell aggregates apart.
    let both = "SELECT count(*) FILTER (WHERE host = 'h0'), count(*) FILTER (WHERE host = 'H0') FROM cpu";
    assert_eq!(world.ask(both), [[Value::Int(450), Value::Int(0)]]);
}

//! Queries of a table that a view of it answers: the same as without it, whatever happened to the rows.

use platform::sim::Simulation;
use sql::Value;

use crate::continuous::rows;
use crate::world::{SECOND_NS, World, is_close, sorted};

const HOUR_NS: i64 = 3_600 * SECOND_NS;

/// Rows of three hours, of three hosts of two regions.
fn lines(now_ns: i64, numbers: std::ops::Range<i64>) -> String {
    let line = |number: i64| {
        let host = number % 3;
        let usage = if number % 7 == 0 { String::new() } else { format!("usage={}.5,", number * 13 % 100) };
        let time_ns = now_ns - number * 10 * SECOND_NS;
        format!("cpu,host=h{host},region=r{} {usage}requests={}i {time_ns}\n", host % 2, number % 11)
    };
    numbers.map(line).collect()
}

/// Views of hours by region and of minutes of all hosts, which differ in what they have.
const VIEWS: [&str; 3] = [
    "CREATE MATERIALIZED VIEW hours AS SELECT time_bucket('1 hour', time) AS bucket, region, avg(usage) AS usage, stddev(usage) AS dev, max(usage) AS most, min(requests) AS least, \
     sum(requests) AS requests, approx_percentile(0.9, usage) AS p90, histogram(usage, 0, 100, 5) AS h, sum(usage * requests) AS work, \
     count(*) FILTER (WHERE usage > 90) AS busy, avg(CASE WHEN requests > 5 THEN 1.0 ELSE 0.0 END) AS share, count(*) AS n FROM cpu GROUP BY 1, 2",
    "CREATE MATERIALIZED VIEW minutes AS SELECT time_bucket('1 minute', time) AS bucket, region, max(usage) AS most, count(*) AS n FROM cpu GROUP BY 1, 2",
    "CREATE MATERIALIZED VIEW high AS SELECT time_bucket('1 month', time, 'Europe/Berlin') AS bucket, last(usage, time) AS newest, count(usage) AS n FROM cpu WHERE usage > 50 GROUP BY 1",
];

/// Queries of the table, with `{times}` in place of a condition, and the view that answers each where it is of all rows.
const QUERIES: [(&str, &str); 14] = [
    ("SELECT region, avg(usage), max(usage), count(*) FROM cpu WHERE {times} GROUP BY region", "hours"),
    ("SELECT stddev(usage), approx_percentile(0.5, usage), count(*) FROM cpu WHERE {times}", "hours"),
    ("SELECT histogram(usage, 0, 100, 5) FROM cpu WHERE {times} AND region = 'r1'", "hours"),
    ("SELECT max(usage) - 1, count(usage) FROM cpu WHERE {times}", "hours"),
    (
        "SELECT sum(usage * requests) / sum(requests), count(*) FILTER (WHERE usage > 90) FROM cpu WHERE {times}",
        "hours",
    ),
    (
        "SELECT region, avg(CASE WHEN requests > 5 THEN 1.0 ELSE 0.0 END) AS share FROM cpu WHERE {times} GROUP BY region HAVING count(*) > 2",
        "hours",
    ),
    (
        "SELECT time_bucket('2 hours', time) AS b, sum(usage * requests), count(*) FROM cpu WHERE {times} GROUP BY 1",
        "hours",
    ),
    (
        "SELECT time_bucket('1 hour', time) AS b, region, count(*) FILTER (WHERE usage > 90) FROM cpu WHERE {times} GROUP BY 1, 2",
        "hours",
    ),
    ("SELECT last(usage, time), count(usage) FROM cpu WHERE {times} AND usage > 50", "high"),
    // No view has it: other columns, labels, conditions, and what windows do not tell.
    ("SELECT host, max(usage), stddev(usage) FROM cpu WHERE {times} GROUP BY host", ""),
    ("SELECT median(usage), count(DISTINCT requests) FROM cpu WHERE {times}", ""),
    ("SELECT sum(requests * usage) FROM cpu WHERE {times}", ""),
    ("SELECT count(*) FILTER (WHERE usage >= 90) FROM cpu WHERE {times}", ""),
    ("SELECT last(usage, time) FROM cpu WHERE {times} AND usage > 51", ""),
];

impl World {
    fn check_rewritten(&self, after: &str) {
        let now_ns = self.db.now_ns();
        let at = |ago_ns: i64| format!("'{}'::timestamp", query::time::format_rfc3339_us(now_ns - ago_ns));
        let ranges = [
            "time >= '1971-01-01'".to_owned(),
            format!("time >= {} AND time < {}", at(2 * HOUR_NS + 17_000), at(47 * SECOND_NS)),
            format!("time >= {} AND time < {}", at(2 * HOUR_NS + 17_000), at(70 * 60 * SECOND_NS + 13_000)),
            format!("time > {}", at(25 * 60 * SECOND_NS)),
            format!("time < {}", at(30 * HOUR_NS)),
        ];
        for (text, view) in QUERIES {
            for (place, times) in ranges.iter().enumerate() {
                let text = text.replace("{times}", times);
                let explained = self.explained(&text);
                let is_viewed = VIEWS.iter().any(|of| explained.contains(&format!("(view {:?}", name_of(of))));
                // Before the background knows of all that happened, little may be right as it is stored.
                if view.is_empty() || place == 0 && after.ends_with("settled") {
                    assert_eq!(is_viewed, !view.is_empty(), "{after}: {text}: {explained}");
                    assert!(
                        view.is_empty() || explained.contains(&format!("(view {view:?}")),
                        "{after}: {text}: {explained}"
                    );
                }
                let keys = text.split_once(" FROM").map_or(0, |(shown, _)| {
                    shown.split(", ").filter(|shown| shown.contains("region") || shown.contains("bucket")).count()
                });
                let [found, expected] = [self.ask(&text), self.ask_tables(&text)].map(|rows| sorted(rows, keys));
                assert_eq!(found.len(), expected.len(), "{after}: {text}");
                let pairs = found.iter().flatten().zip(expected.iter().flatten());
                pairs.for_each(|(a, b)| assert!(is_close(a, b), "{after}: {text}: {a:?}, not {b:?}"));
            }
        }
    }
}

fn name_of(statement: &str) -> &str {
    statement.split(' ').nth(3).unwrap()
}

#[test]
fn queries_that_views_answer_are_those_of_the_table() {
    let mut world = World::empty(70);
    let now_ns = world.db.now_ns();
    world.write("default", &lines(now_ns, 0..1_000));
    VIEWS.iter().for_each(|view| drop(world.ask(view)));
    world.settle();
    world.check_rewritten("settled");
    world.write("default", &lines(now_ns - 3 * SECOND_NS, 100..400));
    world.check_rewritten("late rows");
    world.settle();
    world.check_rewritten("late rows, settled");
    world.ask("DELETE FROM cpu WHERE host = 'h1'");
    world.check_rewritten("rows are deleted");
    let mut world = world.reopened(Simulation::crash);
    world.check_rewritten("after a crash");
    world.settle();
    world.simulation.advance_ns(2 * HOUR_NS);
    world.write("default", &lines(world.db.now_ns(), 0..50));
    world.check_rewritten("later");
    world.settle();
    world.check_rewritten("later, settled");
}

/// InfluxQL's functions of all rows of a range use views, too.
#[test]
fn influxql_uses_views_without_time() {
    let mut world = World::empty(71);
    let now_ns = world.db.now_ns();
    world.write("default", &lines(now_ns, 0..1_000));
    VIEWS.iter().for_each(|view| drop(world.ask(view)));
    world.settle();
    let range = format!("time >= {} AND time < {}", now_ns - 2 * HOUR_NS - 17, now_ns - 47 * SECOND_NS);
    for (text, view) in [
        ("SELECT mean(usage), stddev(usage) FROM cpu WHERE {times} GROUP BY region", "hours"),
        ("SELECT spread(requests) FROM cpu WHERE {times}", ""),
        ("SELECT approx_percentile(usage, 90), count(usage) FROM cpu WHERE {times}", "hours"),
        // The time of the largest value is shown.
        ("SELECT max(usage) FROM cpu WHERE {times} GROUP BY region", ""),
    ] {
        let text = text.replace("{times}", &range);
        let explained = format!("{:?}", rows(&world, &format!("EXPLAIN {text}")));
        assert_eq!(explained.contains("(view "), !view.is_empty(), "{text}: {explained}");
        let found = rows(&world, &text);
        assert!(
            !found.is_empty()
                && found.iter().all(|row| row[1] == Value::Timestamp(now_ns - 2 * HOUR_NS - 17) || view.is_empty()),
            "{found:?}"
        );
        // A condition that is always true and that no view has.
        let expected = rows(&world, &text.replace("WHERE ", "WHERE requests > -1 AND "));
        assert_eq!(found.len(), expected.len(), "{text}");
        let pairs = found.iter().flatten().zip(expected.iter().flatten());
        pairs.for_each(|(a, b)| assert!(is_close(a, b), "{text}: {a:?}, not {b:?}"));
    }
}

/// Windows of a view that went by its TTL are no answer any more, whatever the TTL becomes.
#[test]
fn windows_that_went_by_a_ttl_are_read_of_the_table() {
    let mut world = World::empty(72);
    world.write("default", &lines(world.db.now_ns(), 0..1_000));
    world.ask(VIEWS[1]);
    world.settle();
    let check = |world: &World, after: &str| {
        for text in [
            "SELECT count(*), max(usage) FROM cpu",
            "SELECT time_bucket('10 minutes', time) AS b, count(*) FROM cpu GROUP BY 1 ORDER BY 1",
        ] {
            assert!(world.explained(text).contains("(view \"minutes\""), "{after}: {text}: {}", world.explained(text));
            assert_eq!(world.ask(text), world.ask_tables(text), "{after}: {text}");
        }
    };
    check(&world, "settled");
    world.ask("SELECT add_retention_policy('minutes', INTERVAL '1 hour')");
    let left = world.ask("SELECT count(*) FROM minutes")[0][0].number().unwrap();
    assert!(left < 180.0, "{left} of the view's windows are left");
    check(&world, "rows of the view are gone");
    world.ask("SELECT remove_retention_policy('minutes')");
    check(&world, "the view keeps its rows from now on");
    let mut world = world.reopened(Simulation::crash);
    world.settle();
    check(&world, "after a crash");
    // Both keep their rows as long: those of the table go by whole windows.
    world.ask("ALTER MATERIALIZED VIEW minutes SET TTL 2h");
    world.ask("ALTER TABLE cpu SET TTL 2h");
    for step in 0..6 {
        world.simulation.advance_ns(17 * 60 * SECOND_NS);
        world.write("default", &lines(world.db.now_ns(), 0..100));
        world.settle();
        world.db.compact(&mut |_| {}).unwrap();
        check(&world, &format!("both go, step {step}"));
    }
}

/// Days and months of a zone are answered by a view of those windows.
#[test]
fn bins_of_a_zone_use_views_of_theirs() {
    let mut world = World::empty(73);
    let now_ns = world.db.now_ns();
    for day in 0..70 {
        world.write("default", &lines(now_ns - day * 24 * HOUR_NS, 0..20));
    }
    world.ask("CREATE MATERIALIZED VIEW days AS SELECT time_bucket('1 day', time, 'Europe/Berlin') AS bucket, stddev(usage) AS dev, sum(requests) AS requests, count(*) AS n FROM cpu GROUP BY 1");
    world.ask(VIEWS[2]);
    world.settle();
    let at = |ago_ns: i64| format!("'{}'::timestamp", query::time::format_rfc3339_us(now_ns - ago_ns));
    let times = format!("time >= {} AND time < {}", at(80 * 24 * HOUR_NS + 17_000), at(47 * SECOND_NS));
    for (text, view) in [
        (
            "SELECT time_bucket('1 day', time, 'Europe/Berlin') AS b, sum(requests), stddev(usage), count(*) FROM cpu WHERE {times} GROUP BY b ORDER BY b",
            "days",
        ),
        (
            "SELECT time_bucket('1 month', time, 'Europe/Berlin') AS b, sum(requests), count(*) FROM cpu WHERE {times} GROUP BY b ORDER BY b",
            "days",
        ),
        (
            "SELECT time_bucket('1 month', time, 'Europe/Berlin') AS b, last(usage, time), count(usage) FROM cpu WHERE usage > 50 AND {times} GROUP BY b ORDER BY b",
            "high",
        ),
        (
            "SELECT time_bucket('1 day', time) AS b, sum(requests), count(*) FROM cpu WHERE {times} GROUP BY b ORDER BY b",
            "",
        ),
        (
            "SELECT time_bucket('1 month', time, 'Asia/Tokyo') AS b, sum(requests), count(*) FROM cpu WHERE {times} GROUP BY b ORDER BY b",
            "",
        ),
    ] {
        let text = text.replace("{times}", &times);
        let explained = world.explained(&text);
        assert_eq!(explained.contains("(view "), !view.is_empty(), "{text}: {explained}");
        assert!(view.is_empty() || explained.contains(&format!("(view {view:?}")), "{text}: {explained}");
        let [found, expected] = [world.ask(&text), world.ask_tables(&text)];
        assert!(found.len() > 1 && found.len() == expected.len(), "{text}: {found:?}\n{expected:?}");
        let pairs = found.iter().flatten().zip(expected.iter().flatten());
        pairs.for_each(|(a, b)| assert!(is_close(a, b), "{text}: {a:?}, not {b:?}"));
    }
}

/// Ranges without any time have no rows, also where few bins at an end are wanted.
#[test]
fn empty_ranges_have_no_bins() {
    let world = World::empty(74);
    world.write("default", &lines(world.db.now_ns(), 0..1_000));
    let at = format!("'{}'::timestamp", query::time::format_rfc3339_us(world.db.now_ns() - HOUR_NS));
    for order in ["b LIMIT 6", "b DESC LIMIT 6"] {
        for times in [format!("time >= {at} AND time < {at}"), format!("time > {at} AND time <= {at}")] {
            let text = format!(
                "SELECT time_bucket('2 minutes', time) AS b, count(*) FROM cpu WHERE {times} GROUP BY b ORDER BY {order}"
            );
            assert_eq!(world.ask(&text), Vec::<Vec<Value>>::new(), "{text}");
        }
    }
}

/// Windows that went by a view's TTL are not brought back in part by late rows.
#[test]
fn late_rows_bring_back_no_part_of_what_a_ttl_took() {
    let mut world = World::empty(75);
    let now_ns = world.db.now_ns();
    let old_ns = now_ns - 50 * HOUR_NS;
    world.write("default", &format!("c,h=a v=1 {old_ns}\nc,h=b v=2 {old_ns}\nc,h=a v=3 {now_ns}"));
    world.ask("CREATE MATERIALIZED VIEW m AS SELECT time_bucket('1 hour', time) AS b, h, sum(v) AS s, count(*) AS n FROM c GROUP BY b, h");
    world.settle();
    let counts = "SELECT h, n FROM m ORDER BY b, h";
    let row = |host: &str, n: i64| vec![Value::text(host), Value::Int(n)];
    world.ask("ALTER MATERIALIZED VIEW m SET TTL 1 DAY");
    world.write("default", &format!("c,h=a v=5 {}", old_ns + SECOND_NS));
    for _ in 0..2 {
        assert_eq!(world.ask(counts), [row("a", 1)]);
        world.settle();
    }
    world.ask("ALTER MATERIALIZED VIEW m SET TTL 0");
    world.settle();
    assert_eq!(world.ask(counts), [row("a", 1)]);
    world.ask_as(sql::Manner::QuestDb, "REFRESH MATERIALIZED VIEW m FULL").unwrap();
    for _ in 0..2 {
        assert_eq!(world.ask(counts), [row("a", 2), row("b", 1), row("a", 1)]);
        world.settle();
    }
}

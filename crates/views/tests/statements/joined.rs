//! Views with labels of another table are their queries, whatever that table says by now; and counts of different values, and what counters gain.

use std::fmt::Write;
use std::sync::Arc;

use access::scope::Scope;
use platform::sim::Simulation;
use sql::{ClientContext, Manner, Value};

use crate::world::{SECOND_NS, World, is_close, sorted};

/// The query of a view, and of the tables.
const QUERY: &str = "SELECT time_bucket('1 minute', cpu.time) AS bucket, hosts.owner, hosts.zone AS area, avg(cpu.usage) AS usage, sum(cpu.cores) AS cores, count(*) AS n, \
                     count(DISTINCT cpu.host) AS machines FROM cpu JOIN hosts ON cpu.host = hosts.host GROUP BY 1, 2, 3";

/// A table of samples of an hour, and one of the owners of two of its hosts.
fn world() -> World {
    let world = World::empty(5);
    let now_ns = world.db.now_ns();
    let mut lines = String::new();
    for second in (0..3_600).step_by(5) {
        let host = ["a", "b", "c"][second / 5 % 3];
        let at_ns = now_ns - second as i64 * SECOND_NS;
        writeln!(lines, "cpu,host={host},core={} usage={}.5,cores={}i {at_ns}", second % 7, second % 100, second % 8)
            .unwrap();
    }
    writeln!(lines, "cpu usage=1.5,cores=3i {}", now_ns - 600 * SECOND_NS).unwrap();
    world.write("default", &lines);
    world.say(&[("a", "ann", 0), ("b", "bob", 0)]);
    world
}

impl World {
    /// Writes hosts with their owners, at so many seconds after the epoch of the table.
    fn say(&self, owners: &[(&str, &str, i64)]) {
        let start_ns = 1_500_000_000 * SECOND_NS;
        for (host, owner, second) in owners {
            self.write(
                "default",
                &format!("hosts,host={host},zone=z{} owner=\"{owner}\" {}", host.len(), start_ns + second * SECOND_NS),
            );
        }
    }

    /// Compares a view with its query over the tables.
    fn check(&self, of_view: &str, of_tables: &str, after: &str) {
        let (found, expected) = (sorted(self.ask(of_view), 3), sorted(self.ask(of_tables), 3));
        assert_eq!(found.len(), expected.len(), "{after}");
        for (found, expected) in found.iter().zip(&expected) {
            assert!(found.iter().zip(expected).all(|(a, b)| is_close(a, b)), "{after}: {found:?} {expected:?}");
        }
    }

    /// Compares the view `v` with its query, before the refresher knows of what happened and after that.
    fn check_both(&mut self, of_tables: &str, after: &str) {
        let of_view = "SELECT bucket, owner, area, usage, cores, n, machines FROM v";
        self.check(of_view, of_tables, after);
        let by_owner = format!("{of_view} WHERE owner = 'ann' OR owner = 'carl'");
        let expected = format!("SELECT * FROM ({of_tables}) q WHERE owner = 'ann' OR owner = 'carl'");
        self.check(&by_owner, &expected, after);
        self.settle();
        self.check(of_view, of_tables, &format!("{after}, settled"));
        self.check(&by_owner, &expected, &format!("{after}, settled"));
        let old =
            format!("SELECT * FROM v WHERE bucket < '{}'", sql::format_rfc3339_us(self.db.now_ns() - 300 * SECOND_NS));
        let status = self.db.view_status("default", "v");
        assert!(!self.explained(&old).contains("(computed"), "{after}: {status:?} {}", self.explained(&old));
    }
}

/// Everything that can happen to the joined table and the source, step by step.
fn joined_like(query: &str) {
    let mut world = world();
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {query}"));
    world.check_both(query, "made");
    world.say(&[("c", "carl", 0)]);
    world.check_both(query, "another host");
    world.say(&[("a", "carl", 0)]);
    world.check_both(query, "another owner");
    world.say(&[("b", "bob", 9), ("b", "ann", 10)]);
    world.check_both(query, "several rows of a host");
    world.say(&[("a", "carl", 0)]);
    world.check_both(query, "the same row again");
    let late = format!("cpu,host=a usage=77,cores=9i {}", world.db.now_ns() - 1_800 * SECOND_NS);
    world.write("default", &late);
    world.check_both(query, "a late row");
    world.ask("DELETE FROM hosts WHERE host = 'a'");
    world.check_both(query, "a host is deleted");
    world.ask("DELETE FROM cpu WHERE host = 'b'");
    world.check_both(query, "rows are deleted");
    world.say(&[("b", "ann", 10), ("a", "ann", 3)]);
    // The other way, and back, before a pass.
    world.say(&[("a", "carl", 3)]);
    world.say(&[("a", "ann", 3)]);
    world.check_both(query, "there and back");
    world.simulation.advance_ns(200 * SECOND_NS);
    world.write("default", &format!("cpu,host=a usage=5,cores=1i {}", world.db.now_ns() - SECOND_NS));
    world.check_both(query, "time goes on");
    // One row stays, so that there is a table.
    world.write("default", &format!("hosts,host=other,zone=z9 owner=\"eve\" {}", world.db.now_ns()));
    world.ask("ALTER TABLE hosts SET TTL 1h");
    world.simulation.advance_ns(61 * SECOND_NS);
    world.check_both(query, "the rows of the joined table are gone");
}

#[test]
fn a_joined_view_is_its_query_whatever_the_joined_table_says() {
    joined_like(QUERY);
}

#[test]
fn a_view_with_a_left_join_has_the_rows_without_labels() {
    joined_like(&QUERY.replace("JOIN", "LEFT JOIN"));
}

#[test]
fn conditions_of_a_joined_view_are_of_both_tables() {
    joined_like(
        &QUERY.replace("GROUP BY", "WHERE hosts.host <> 'c' AND cpu.usage > 20 AND hosts.zone = 'z1' GROUP BY"),
    );
}

#[test]
fn a_view_over_a_joined_one_follows_its_labels() {
    let mut world = world();
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {QUERY}"));
    world.ask("CREATE MATERIALIZED VIEW w AS SELECT time_bucket('30 minutes', bucket) AS bucket, owner, sum(cores) AS cores, sum(n) AS n FROM v GROUP BY 1, 2");
    let query = "SELECT time_bucket('30 minutes', cpu.time) AS bucket, hosts.owner, sum(cpu.cores) AS cores, count(*) AS n FROM cpu JOIN hosts ON cpu.host = hosts.host GROUP BY 1, 2";
    let of_view = "SELECT bucket, owner, cores, n FROM w";
    let changes: [&[(&str, &str, i64)]; 3] = [&[], &[("a", "bob", 0)], &[("c", "carl", 0), ("a", "ann", 5)]];
    for change in changes {
        world.say(change);
        world.check(of_view, query, &format!("{change:?}"));
        world.settle();
        world.check(of_view, query, &format!("{change:?}, settled"));
    }
    let late = format!("cpu,host=a usage=77,cores=9i {}", world.db.now_ns() - 3_000 * SECOND_NS);
    world.write("default", &late);
    world.check(of_view, query, "a late row");
    world.settle();
    world.check(of_view, query, "a late row, settled");
}

#[test]
fn labels_are_known_after_a_restart() {
    let mut world = world();
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {QUERY}"));
    world.check_both(QUERY, "made");
    world.say(&[("a", "carl", 0)]);
    let mut world = world.reopened(Simulation::crash);
    world.check_both(QUERY, "after a crash");
    let written = world.db.view_status("default", "v").rows_written;
    world.settle();
    assert_eq!(world.db.view_status("default", "v").rows_written, written, "nothing changed");
}

#[test]
fn accounts_with_rights_on_a_label_do_not_read_joins() {
    let world = world();
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {QUERY}"));
    world.ask("CREATE MATERIALIZED VIEW w AS SELECT time_bucket('1 hour', bucket) AS bucket, owner, sum(n) AS n FROM v GROUP BY 1, 2");
    let grants = vec!["read:default{owner=\"ann\"}".parse().unwrap()];
    let scope = Scope { is_server_admin: false, grants, ..Scope::clone(&Scope::open()) };
    let parsed = sql::parse("SELECT * FROM v; SELECT * FROM w").unwrap();
    let client = ClientContext::new("default", world.db.now_ns());
    for place in 0..2 {
        let budget = Arc::new(World::budget().for_scope(Arc::new(scope.clone())));
        let error = world.db.sql(&parsed, place, &client, &budget).unwrap_err().to_string();
        assert!(error.contains("joins the table"), "{error}");
    }
}

#[test]
fn forms_of_questdb_and_timescale_join_too() {
    let mut world = world();
    let questdb =
        "SELECT cpu.timestamp AS timestamp, owner, max(usage) AS peak FROM cpu JOIN hosts ON (host) SAMPLE BY 10m";
    world
        .ask_as(
            Manner::QuestDb,
            &format!("CREATE MATERIALIZED VIEW q WITH BASE cpu REFRESH IMMEDIATE AS ({questdb}) PARTITION BY DAY"),
        )
        .unwrap();
    world.ask("CREATE MATERIALIZED VIEW t WITH (timescaledb.continuous) AS SELECT time_bucket('10 minutes', c.time) AS bucket, h.owner, max(c.usage) AS peak FROM cpu c INNER JOIN hosts h USING (host) GROUP BY 1, 2");
    let query = "SELECT time_bucket('10 minutes', cpu.time), hosts.owner, max(cpu.usage) FROM cpu JOIN hosts ON cpu.host = hosts.host GROUP BY 1, 2";
    for after in ["made", "settled"] {
        world.check("SELECT bucket, owner, peak FROM t", query, after);
        world.check("SELECT timestamp, owner, peak FROM q", query, after);
        world.settle();
    }
    assert!(world.explained("SELECT * FROM t").contains("(labelled inner"), "{}", world.explained("SELECT * FROM t"));
}

#[test]
fn joins_that_no_view_can_have_are_refused() {
    let world = world();
    let refused = |text: &str, expected: &str| {
        let error = world.ask_as(Manner::Postgres, text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    };
    let view = |query: &str| format!("CREATE MATERIALIZED VIEW x AS {query}");
    refused(
        &view(&QUERY.replace("cpu.host = hosts.host", "cpu.usage = hosts.host")),
        "by tags of both tables that are equal",
    );
    refused(
        &view(&QUERY.replace("cpu.host = hosts.host", "cpu.host > hosts.host")),
        "by tags of both tables that are equal",
    );
    refused(&view(&QUERY.replace("JOIN", "FULL JOIN")), "join it with up to 4 tables");
    refused(
        &view(&QUERY.replace("JOIN", "LEFT JOIN").replace("GROUP", "WHERE hosts.zone = 'z1' GROUP")),
        "not of the columns of a table of labels",
    );
    refused(
        &view(&QUERY.replace("GROUP", "WHERE hosts.owner = 'ann' GROUP")),
        "tags and the time of the tables that it joins",
    );
    refused(&view(&QUERY.replace("sum(cpu.cores)", "max(hosts.owner)")), "of a joined table");
    refused(&view(&QUERY.replace("count(DISTINCT cpu.host)", "count(DISTINCT hosts.host)")), "of a joined table");
    refused(&view(&QUERY.replace("cpu.time", "hosts.time")), "windows of the table's time");
    world.ask("CREATE MATERIALIZED VIEW m AS SELECT time_bucket('1 hour', time) AS bucket, host, max(usage) AS peak FROM cpu GROUP BY 1, 2");
    refused(
        &view(
            "SELECT time_bucket('1 minute', cpu.time) AS b, max(cpu.usage) AS u FROM cpu JOIN m ON cpu.host = m.host GROUP BY 1",
        ),
        "none of a view",
    );
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {QUERY}"));
    refused("DROP TABLE hosts", "drop the view first");
    let mut lines = String::new();
    (0..10_001).for_each(|number| writeln!(lines, "hosts,host=n{number} owner=\"x\" 1500000000000000000").unwrap());
    world.write("default", &lines);
    refused("SELECT * FROM v", "more than 10000 rows");
    world.ask("DELETE FROM hosts WHERE host <> 'a'");
    assert!(!world.ask("SELECT * FROM v").is_empty());
}

/// Counts of different values in views, and where the plan counts them, are those that are counted row by row.
#[test]
fn different_values_are_counted_in_views() {
    let mut world = world();
    world.ask(
        "CREATE MATERIALIZED VIEW d AS SELECT time_bucket('1 minute', time) AS bucket, core, count(DISTINCT host) AS hosts, count(DISTINCT usage) AS levels, approx_count_distinct(host) AS about, \
         distinct_sketch(host) AS sketch, count(*) AS n FROM cpu GROUP BY 1, 2",
    );
    let of_rows = "SELECT time_bucket('1 minute', time) AS bucket, core, count(DISTINCT host) AS hosts, count(DISTINCT usage) AS levels, approx_count_distinct(host) AS about, \
                   distinct_sketch(host) AS sketch, count(*) AS n FROM (SELECT * FROM cpu) c GROUP BY 1, 2";
    let by_plan = of_rows.replace("(SELECT * FROM cpu) c", "cpu");
    let of_view = "SELECT bucket, core, hosts, levels, about, sketch, n FROM d";
    world.check(&by_plan, of_rows, "the plan");
    world.check(of_view, of_rows, "made");
    world.settle();
    world.check(of_view, of_rows, "settled");
    // The sketches of several windows are that of all rows, and the view answers.
    let wide = "SELECT time_bucket('30 minutes', time) AS bin, approx_count_distinct(host), distinct_sketch(host) FROM cpu GROUP BY 1";
    assert!(world.explained(wide).contains("(view \"d\""), "{}", world.explained(wide));
    world.check(wide, &wide.replace("FROM cpu", "FROM (SELECT * FROM cpu) c"), "wide");
    // Exact counts do not compose: the same groups alone are answered by the view.
    let same = "SELECT time_bucket('1 minute', time) AS bucket, core, count(DISTINCT host), count(DISTINCT usage) FROM cpu GROUP BY 1, 2";
    assert!(world.explained(same).contains("(view \"d\""), "{}", world.explained(same));
    world.check(same, &same.replace("FROM cpu", "FROM (SELECT * FROM cpu) c"), "same groups");
    let exact = "SELECT time_bucket('30 minutes', time) AS bin, count(DISTINCT host), count(DISTINCT usage), count(DISTINCT cores) FROM cpu GROUP BY 1";
    assert!(!world.explained(exact).contains("(view \"d\""), "{}", world.explained(exact));
    world.check(exact, &exact.replace("FROM cpu", "FROM (SELECT * FROM cpu) c"), "exact");
    for all in [
        "count(DISTINCT host), count(DISTINCT core)",
        "count(DISTINCT usage), count(DISTINCT cores), count(DISTINCT host)",
    ] {
        let [plan, rows] = ["cpu", "(SELECT * FROM cpu) c"].map(|from| world.ask(&format!("SELECT {all} FROM {from}")));
        assert_eq!(plan, rows, "{all}");
    }
    assert_eq!(
        world.ask("SELECT count(DISTINCT host), count(DISTINCT usage) FROM cpu WHERE host = 'none'"),
        [[Value::Int(0), Value::Int(0)]]
    );
}

/// What counters gained by minute and host, told sample by sample: times in seconds, hosts, cores and values.
fn gained(samples: &[(i64, &str, &str, i64)]) -> std::collections::BTreeMap<(i64, String), f64> {
    let mut all = std::collections::BTreeMap::new();
    let mut series: Vec<(&str, &str)> = samples.iter().map(|(_, host, core, _)| (*host, *core)).collect();
    series.sort_unstable();
    series.dedup();
    for (host, core) in series {
        // The later of two samples of one time counts.
        let mut of_series: std::collections::BTreeMap<i64, i64> = std::collections::BTreeMap::new();
        let own = samples.iter().filter(|(_, of_host, of_core, _)| (*of_host, *of_core) == (host, core));
        own.for_each(|(second, _, _, value)| {
            of_series.insert(*second, *value);
        });
        let mut before: Option<(i64, i64)> = None;
        for (second, value) in of_series {
            let minute = second.div_euclid(60);
            let gain = match before {
                Some((earlier, known)) if earlier.div_euclid(60) >= minute - 1 => {
                    if value < known {
                        value
                    } else {
                        value - known
                    }
                }
                _ => 0,
            };
            *all.entry((minute, host.to_owned())).or_insert(0.0) += gain as f64;
            before = Some((second, value));
        }
    }
    all
}

#[test]
fn what_counters_gain_is_told_from_one_window_to_the_next() {
    let mut world = world();
    let start_s = world.db.now_ns() / SECOND_NS / 60 * 60 - 3_600;
    let mut samples: Vec<(i64, &str, &str, i64)> = Vec::new();
    for second in (0..3_000).step_by(25) {
        // A gap of several minutes, restarts, and a core that counts less often.
        if !(900..1_200).contains(&second) {
            samples.push((start_s + second, "a", "0", second % 700 * 3));
        }
        if second % 75 == 0 {
            samples.push((start_s + second + 1, "a", "1", second));
            samples.push((start_s + second + 2, "b", "0", 5 * second % 1_100));
        }
    }
    let write = |world: &World, samples: &[(i64, &str, &str, i64)]| {
        let line = |(second, host, core, value): &(i64, &str, &str, i64)| {
            format!("net,host={host},core={core} bytes={value}i {}\n", second * SECOND_NS)
        };
        world.write("default", &samples.iter().map(line).collect::<String>());
    };
    write(&world, &samples);
    let query = "SELECT time_bucket('1 minute', time) AS bucket, host, counter_increase(bytes) AS gained, counter_increase(bytes) / 60.0 AS per_second, count(*) AS n FROM net GROUP BY 1, 2";
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {query}"));
    world.ask("CREATE MATERIALIZED VIEW w AS SELECT time_bucket('20 minutes', bucket) AS bucket, sum(gained) AS gained FROM v GROUP BY 1");
    let check = |world: &World, samples: &[(i64, &str, &str, i64)], after: &str| {
        let expected = gained(samples);
        for of in [query, "SELECT bucket, host, gained, per_second, n FROM v"] {
            let rows = world.ask(of);
            assert_eq!(rows.len(), expected.len(), "{after}");
            for row in &rows {
                let key = (row[0].time_ns().unwrap() / SECOND_NS / 60, row[1].to_string());
                assert_eq!(row[2], Value::Float(expected[&key]), "{after}: {row:?}");
                assert!(is_close(&row[3], &Value::Float(expected[&key] / 60.0)), "{after}: {row:?}");
            }
        }
        let all: f64 = world.ask("SELECT gained FROM w").iter().filter_map(|row| row[0].number()).sum();
        assert!((all - expected.values().sum::<f64>()).abs() < 1e-6, "{after}");
    };
    check(&world, &samples, "made");
    world.settle();
    check(&world, &samples, "settled");
    // Late samples: the last of a window, which changes the next one, too; one in the gap; one that replaces another.
    for late in [(start_s + 359, "a", "0", 2_000), (start_s + 1_000, "a", "0", 50), samples[10]] {
        let late = (late.0, late.1, late.2, late.3 + 1);
        samples.push(late);
        write(&world, &[late]);
        check(&world, &samples, "late");
        world.settle();
        check(&world, &samples, "late, settled");
    }
    let (from, to) = ((start_s + 300) * SECOND_NS, (start_s + 359) * SECOND_NS);
    let [from_text, to_text] = [from, to].map(sql::format_rfc3339_us);
    world.ask(&format!("DELETE FROM net WHERE time >= '{from_text}' AND time <= '{to_text}'"));
    samples.retain(|(second, ..)| !(from..=to).contains(&(second * SECOND_NS)));
    check(&world, &samples, "deleted");
    world.settle();
    check(&world, &samples, "deleted, settled");
    let old =
        format!("SELECT * FROM v WHERE bucket < '{}'", sql::format_rfc3339_us(world.db.now_ns() - 300 * SECOND_NS));
    assert!(!world.explained(&old).contains("(computed"), "{}", world.explained(&old));
}

#[test]
fn increases_that_cannot_be_told_are_refused() {
    let world = world();
    world.write("default", &format!("net,host=a bytes=1i {}", world.db.now_ns()));
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, counter_increase(bytes) AS gained, count(*) AS n FROM net GROUP BY 1");
    // Wider bins look further back: no view of narrower ones answers.
    let wide = "SELECT time_bucket('10 minutes', time), counter_increase(bytes) FROM net GROUP BY 1";
    assert!(!world.explained(wide).contains("(view"), "{}", world.explained(wide));
    for text in [
        "SELECT counter_increase(bytes + 1) FROM net",
        "SELECT counter_increase(bytes) FROM (SELECT * FROM net) n",
        "SELECT counter_increase(host) FROM net",
        "SELECT counter_increase(DISTINCT bytes) FROM net",
    ] {
        let error = world.ask_as(Manner::Postgres, text).unwrap_err();
        assert!(error.contains("counter_increase"), "{text}: {error}");
    }
    let months = "CREATE MATERIALIZED VIEW m AS SELECT time_bucket('1 month', time) AS bucket, counter_increase(bytes) AS gained FROM net GROUP BY 1";
    let error = world.ask_as(Manner::Postgres, months).unwrap_err();
    assert!(error.contains("differ in length"), "{error}");
}

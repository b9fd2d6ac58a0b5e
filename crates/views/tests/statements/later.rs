//! Continuous queries of patterns and `*`: measurements and fields that come later are taken in by themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::scope::Scope;

use crate::continuous::{MINUTE_NS, is_alike, rows, window_ns, world, write_minutes};
use crate::world::{SECOND_NS, World};

const CREATE: &str = "CREATE CONTINUOUS QUERY q ON \"default\" BEGIN SELECT mean(*), max(*) INTO a_year..:MEASUREMENT FROM /^[^x]/ GROUP BY time(1m), * END";

fn create(world: &World, text: &str) {
    world.influxql("default", text).unwrap();
}

/// The names of the views.
fn names(world: &World) -> Vec<String> {
    world.db.views("default").iter().map(|view| view.definition.name.clone()).collect()
}

/// Compares what was written of a measurement with what the query gives over all of its rows.
fn compare(world: &World, table: &str, fields: &[&str], windows: usize) {
    let end_ns = window_ns(world, MINUTE_NS);
    let calls: Vec<String> = ["mean", "max"]
        .iter()
        .flat_map(|call| fields.iter().map(move |of| format!("{call}({of}) AS {call}_{of}")))
        .collect();
    let expected = rows(
        world,
        &format!("SELECT {} FROM {table} WHERE time < {end_ns} GROUP BY time(1m), * fill(none)", calls.join(", ")),
    );
    let names: Vec<String> =
        ["mean", "max"].iter().flat_map(|call| fields.iter().map(move |of| format!("{call}_{of}"))).collect();
    let found =
        rows(world, &format!("SELECT {} FROM a_year..{table} WHERE time < {end_ns} GROUP BY *", names.join(", ")));
    assert_eq!(expected.len(), windows, "{table}: {expected:?}");
    assert!(is_alike(&found, &expected), "{table}: {found:?}\n{expected:?}");
}

#[test]
fn measurements_and_fields_that_come_later_are_taken_in() {
    let mut world = world();
    world.write("default", &format!("cpu,host=a usage=1 {}", world.db.now_ns()));
    create(&world, CREATE);
    create(
        &world,
        "CREATE CONTINUOUS QUERY r ON \"default\" BEGIN SELECT mean(*), max(*) INTO a_year..one FROM cpu GROUP BY time(1m), * END",
    );
    world.settle();
    let begun_ns = window_ns(&world, MINUTE_NS) + MINUTE_NS;
    world.simulation.advance_ns(10 * MINUTE_NS);
    // Rows of long before the query, of windows that are over before a pass sees them, and some that come late; the new fields of a known measurement likewise.
    let old_ns = begun_ns - 700 * MINUTE_NS;
    world.write("default", &format!("mem,host=a used=1,idle=2i {old_ns}\nmem,host=b used=3 {}", old_ns + SECOND_NS));
    world.write("default", &format!("cpu,host=a idle=4,steal=1i {old_ns}\ncpu,host=c idle=9 {}", begun_ns + SECOND_NS));
    let mut world = world.reopened(|_| {});
    world.settle();
    assert_eq!(names(&world), ["q:cpu", "q:mem", "r"]);
    write_minutes(&mut world, &["cpu", "mem"], begun_ns);
    world.write(
        "default",
        &format!("mem,host=a used=7 {}\ncpu,host=a idle=8 {}", old_ns + 2 * SECOND_NS, begun_ns + 2 * SECOND_NS),
    );
    world.simulation.advance_ns(MINUTE_NS);
    world.settle();
    compare(&world, "mem", &["used", "idle", "usage", "cores", "ticks"], 13);
    for fields in [["idle", "steal"].as_slice(), &["idle"]] {
        compare(&world, "cpu", fields, 3);
    }
    let one = rows(&world, "SELECT max_idle, mean_steal FROM a_year..one GROUP BY *");
    let both = rows(&world, "SELECT max_idle, mean_steal FROM a_year..cpu GROUP BY *");
    assert_eq!(one, both);
    // Nothing came: no view is another one.
    let before: Vec<u64> = world.db.views("default").iter().map(|view| view.id).collect();
    let generation = world.db.view_generation();
    world.settle();
    create(&world, CREATE);
    assert_eq!(world.db.view_generation(), generation);
    assert_eq!(world.db.views("default").iter().map(|view| view.id).collect::<Vec<_>>(), before);
    assert!(world.refresher.take_warnings().is_empty());
}

#[test]
fn a_query_that_was_dropped_does_not_come_back() {
    let mut world = world();
    world.write("default", &format!("cpu,host=a usage=1 {}", world.db.now_ns()));
    create(&world, CREATE);
    world.settle();
    let of = world.db.view("default", "q:cpu").unwrap();
    let pattern = influxql::PatternQuery::parse(&of.definition.statement).unwrap();
    world.write("default", &format!("mem,host=a used=1 {}", world.db.now_ns()));
    let extend = |world: &World| world.db.extend_continuous_query(&pattern, "mem", &of, &World::budget());
    assert_eq!(extend(&world).unwrap(), influxql::Extension::Extended);
    assert_eq!(extend(&world).unwrap(), influxql::Extension::Unchanged);
    world.influxql("default", "DROP CONTINUOUS QUERY q ON \"default\"").unwrap();
    assert_eq!(names(&world), [""; 0]);
    // A pass that was about to take it in, also where another query has its name by now.
    assert!(extend(&world).unwrap_err().to_string().contains("dropped or replaced"));
    create(&world, &CREATE.replace("/^[^x]/", "/^cpu/"));
    assert!(extend(&world).unwrap_err().to_string().contains("dropped or replaced"));
    world.settle();
    assert_eq!(names(&world), ["q:cpu"]);
    world.influxql("default", "DROP CONTINUOUS QUERY q ON \"default\"").unwrap();
    world.write("default", &format!("disk,host=a used=1 {}", world.db.now_ns()));
    world.settle();
    assert_eq!(names(&world), [""; 0]);
}

/// Passes beside statements: of a query that is there each measurement has one view, of one that was dropped none has.
#[test]
fn passes_and_statements_take_a_measurement_in_once() {
    let mut world = world();
    world.write("default", "m0 v=1 1");
    let db = world.db.clone();
    let run = |text: &str| {
        let query = influxql::Query::parse(text, &BTreeMap::new()).unwrap();
        let request = influxql::RequestContext { database: Some("default"), read_only: false };
        db.run_influxql(&query, 0, &request, &World::budget()).map(drop)
    };
    for round in 1..=8 {
        run(CREATE).unwrap();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                for number in 0..6 {
                    let line = format!("m{round}_{number} v=1 1");
                    db.write_lines("default", line.as_bytes()).unwrap();
                    run(CREATE).unwrap();
                }
                if round % 2 == 0 {
                    run("DROP CONTINUOUS QUERY q ON \"default\"").unwrap();
                }
            });
            while !sender.is_finished() {
                world.refresher.pass().unwrap();
            }
            sender.join().unwrap();
        });
        world.settle();
        let tables = world.db.known_tables("default").len();
        assert_eq!(names(&world).len(), if round % 2 == 0 { 0 } else { tables }, "round {round}");
    }
}

#[test]
fn what_cannot_be_taken_in_is_named_and_the_others_go_on() {
    let mut world = world();
    world.write("default", &format!("cpu,host=a usage=1 {}", world.db.now_ns()));
    create(&world, CREATE);
    world.settle();
    world.ask_of("a_year", sql::Manner::Postgres, "CREATE VIEW disk AS SELECT 1 AS one").unwrap();
    let long = "l".repeat(201);
    let now_ns = world.db.now_ns();
    world.write("default", &format!("disk,host=a used=1 {now_ns}\n{long},host=a used=1 {now_ns}\nmem,host=a used=1 {now_ns}\nnotes,host=a text=\"x\" {now_ns}"));
    world.settle();
    assert_eq!(names(&world), ["q:cpu", "q:mem"]);
    let warnings = world.refresher.take_warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].starts_with("the continuous query q leaves out a measurement, \"disk\": ")
            && warnings[0].contains("it is a view"),
        "{warnings:?}"
    );
    assert!(warnings[1].contains("1 to 200 bytes"), "{warnings:?}");
    let left_out = world.db.view_status("default", "q:cpu").left_out;
    assert!(left_out.len() == 2 && left_out[0].starts_with("\"disk\": "), "{left_out:?}");
    let refused = world.influxql("default", CREATE).unwrap_err();
    assert!(
        refused.contains("has the others, but 2 of its measurements") && refused.contains("\"disk\": "),
        "{refused}"
    );
    // Once for each, and no more when it can be.
    world.simulation.advance_ns(MINUTE_NS);
    world.settle();
    assert!(world.refresher.take_warnings().is_empty());
    world.ask_of("a_year", sql::Manner::Postgres, "DROP VIEW disk").unwrap();
    world.simulation.advance_ns(5 * MINUTE_NS);
    world.settle();
    assert_eq!(names(&world), ["q:cpu", "q:disk", "q:mem"]);
    assert_eq!(world.db.view_status("default", "q:cpu").left_out.len(), 1);
    compare(&world, "disk", &["used"], 1);
    // Made anew it says how to leave one out.
    world.influxql("default", "DROP CONTINUOUS QUERY q ON \"default\"").unwrap();
    let refused = world.influxql("default", CREATE).unwrap_err();
    assert!(refused.contains("1 to 200 bytes") && refused.contains("name the others"), "{refused}");
    assert_eq!(names(&world), [""; 0]);
}

/// One target holds rows of one measurement: a second one, and what the query writes itself, are left out.
#[test]
fn a_second_measurement_is_not_written_into_one_target() {
    let mut world = world();
    world.write("default", &format!("cpu,host=a usage=1 {}", world.db.now_ns()));
    create(
        &world,
        "CREATE CONTINUOUS QUERY q ON \"default\" BEGIN SELECT mean(*) INTO down FROM /.*/ GROUP BY time(1m), * END",
    );
    world.simulation.advance_ns(2 * MINUTE_NS);
    world.settle();
    world.settle();
    assert_eq!(rows(&world, "SELECT * FROM down").len(), 1);
    assert_eq!(names(&world), ["q:cpu"]);
    let warnings = world.refresher.take_warnings();
    assert!(
        matches!(warnings.as_slice(), [one] if one.contains("\"down\"") && one.contains("replace one another")),
        "{warnings:?}"
    );
}

/// `WHERE` names a tag that a measurement gets later, which no list of fields tells.
#[test]
fn a_tag_of_the_condition_may_come_later() {
    let mut world = world();
    world.write("default", &format!("cpu,kind=k v=1 {0}\nmem,host=a v=1 {0}", world.db.now_ns()));
    create(
        &world,
        "CREATE CONTINUOUS QUERY q ON \"default\" BEGIN SELECT mean(*), max(*) INTO a_year..:MEASUREMENT FROM /.*/ WHERE kind = 'k' GROUP BY time(1m), * END",
    );
    world.settle();
    assert_eq!(names(&world), ["q:cpu"]);
    world.write("default", &format!("mem,kind=k v=2 {}", world.db.now_ns()));
    world.simulation.advance_ns(5 * MINUTE_NS);
    world.settle();
    assert_eq!(names(&world), ["q:cpu", "q:mem"]);
    assert_eq!(rows(&world, "SELECT max_v FROM a_year..mem").len(), 1);
    assert!(world.refresher.take_warnings().is_empty());
}

/// A measurement is taken in as far as the maker could read it when the query was made.
#[test]
fn what_comes_later_is_read_by_the_rights_of_the_maker() {
    let mut world = world();
    let lines = |table: &str, now_ns: i64| {
        format!(
            "{table},host=a,kind=k v=1 {now_ns}\n{table},host=b,kind=k v=2 {now_ns}\n{table},host=a,kind=l v=3 {now_ns}"
        )
    };
    world.write("default", &lines("cpu", world.db.now_ns()));
    let grants = ["read:default{host=\"a\"}", "write:default", "read+write:a_year"].map(|grant| grant.parse().unwrap());
    let scope =
        Scope { is_server_admin: false, grants: grants.to_vec(), name: "ann".into(), ..Scope::clone(&Scope::open()) };
    for (name, condition) in [("q", ""), ("r", " WHERE kind = 'k'")] {
        let text = format!(
            "CREATE CONTINUOUS QUERY {name} ON \"default\" BEGIN SELECT max(*) AS {name} INTO a_year..:MEASUREMENT FROM /.*/{condition} GROUP BY time(1m), * END"
        );
        let query = influxql::Query::parse(&text, &BTreeMap::new()).unwrap();
        let request = influxql::RequestContext { database: Some("default"), read_only: false };
        let budget = World::budget().for_scope(Arc::new(scope.clone()));
        world.db.run_influxql(&query, 0, &request, &budget).unwrap();
    }
    world.settle();
    world.write("default", &lines("mem", world.db.now_ns()));
    world.settle();
    world.simulation.advance_ns(2 * MINUTE_NS);
    world.settle();
    assert_eq!(names(&world), ["q:cpu", "q:mem", "r:cpu", "r:mem"]);
    let makers: Vec<String> = world.db.views("default").iter().map(|view| view.definition.maker.clone()).collect();
    assert_eq!(makers, ["ann"; 4]);
    for (select, expected) in [("q_v FROM a_year..mem", 2), ("r_v FROM a_year..mem", 1), ("r_v FROM a_year..cpu", 1)] {
        let found = rows(&world, &format!("SELECT {select} GROUP BY host"));
        assert_eq!(found.len(), expected, "{select}: {found:?}");
        assert!(found.iter().all(|row| row[0] == influxql::Value::from("host=a")), "{select}: {found:?}");
    }
}

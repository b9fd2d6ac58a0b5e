//! Views that join several tables are the same join of these tables now, which the built-in SQL makes row by row.

use std::fmt::Write;

use platform::sim::Simulation;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sql::{Manner, Value};

use crate::world::{SECOND_NS, World, is_close, sorted};

/// The first time of the tables of labels, in seconds.
const EPOCH_S: i64 = 1_500_000_000;

/// Views by their names, and their queries. The first columns, so many of them, tell rows apart.
const VIEWS: [(&str, usize, &str); 6] = [
    (
        "by_room",
        3,
        "SELECT time_bucket('1 minute', cpu.time) AS bucket, hosts.owner, places.room, avg(cpu.usage) AS usage, sum(cpu.cores) AS cores, count(*) AS n \
         FROM cpu JOIN hosts ON cpu.host = hosts.host JOIN places ON hosts.zone = places.zone GROUP BY 1, 2, 3",
    ),
    (
        "or_not",
        4,
        "SELECT time_bucket('2 minutes', c.time) AS bucket, host, p.room AS area, owner, max(c.usage) AS peak, count(DISTINCT c.core) AS kinds, count(*) AS n \
         FROM cpu c LEFT JOIN hosts h USING (host) LEFT JOIN places p ON p.rack = h.rack GROUP BY 1, 2, 3, 4",
    ),
    (
        "of_four",
        4,
        "SELECT time_bucket('1 minute', cpu.time) AS bucket, teams.team, other.owner AS other_owner, places.rack, sum(cpu.usage) AS usage, count(*) AS n \
         FROM cpu JOIN hosts h ON h.host = cpu.host LEFT JOIN teams ON h.owner = teams.owner JOIN hosts other ON cpu.core = other.host \
         LEFT JOIN places ON h.zone = places.zone AND other.rack = places.rack GROUP BY 1, 2, 3, 4",
    ),
    (
        "narrowed",
        2,
        "SELECT time_bucket('1 minute', cpu.time) AS bucket, places.room, min(cpu.usage) AS least, count(*) AS n \
         FROM cpu LEFT JOIN hosts ON cpu.host = hosts.host JOIN places ON hosts.zone = places.zone \
         WHERE places.rack <> 'r1' AND cpu.host IN ('h0', 'h1', 'h2') AND cpu.usage > 20 GROUP BY 1, 2",
    ),
    // No table says a label of its rows; the second counts for how many rows it has.
    (
        "counted",
        1,
        "SELECT time_bucket('1 minute', cpu.time) AS bucket, sum(cpu.cores) AS cores, count(*) AS n \
         FROM cpu JOIN hosts ON cpu.host = hosts.host JOIN places ON hosts.zone = places.zone GROUP BY 1",
    ),
    (
        "computed",
        3,
        "SELECT time_bucket('1 minute', cpu.time) AS bucket, hosts.owner, places.room, max(abs(cpu.usage - 50)) AS off, sum(cpu.usage * cpu.cores) AS work, \
         count(*) FILTER (WHERE cpu.host <> 'h1' AND cpu.usage > 20) AS busy, count(DISTINCT CASE WHEN cpu.cores > 2 THEN cpu.core END) AS kinds \
         FROM cpu JOIN hosts ON cpu.host = hosts.host LEFT JOIN places ON hosts.zone = places.zone GROUP BY 1, 2, 3",
    ),
];

/// The columns of a view as its query has them.
fn shown(name: &str) -> &'static str {
    match name {
        "by_room" => "bucket, owner, room, usage, cores, n",
        "or_not" => "bucket, host, area, owner, peak, kinds, n",
        "of_four" => "bucket, team, other_owner, rack, usage, n",
        "narrowed" => "bucket, room, least, n",
        "counted" => "bucket, cores, n",
        "computed" => "bucket, owner, room, off, work, busy, kinds",
        other => panic!("{other}"),
    }
}

#[derive(Debug, Clone)]
enum Event {
    /// Rows of the source: a host (or none), a core, and seconds before now.
    Write(Vec<(usize, u8, i64)>),
    /// A row of a host: its zone, owner and rack, and which of its rows.
    Host(u8, u8, u8, u8, u8),
    NoHost(u8),
    /// A row of a zone and a rack, and its room.
    Place(u8, u8, u8, u8),
    NoPlace(u8),
    /// A row of an owner, and the team.
    Team(u8, u8, u8),
    NoTeam(u8),
    DeleteRows(u8),
    Advance(i64),
    Settle,
    Crash,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => prop::collection::vec((0..HOSTS.len(), 0u8..3, 0i64..900), 1..8).prop_map(Event::Write),
        4 => (0u8..3, 0u8..2, 0u8..3, 0u8..3, 0u8..2).prop_map(|(host, zone, owner, rack, row)| Event::Host(host, zone, owner, rack, row)),
        1 => (0u8..3).prop_map(Event::NoHost),
        4 => (0u8..2, 0u8..3, 0u8..3, 0u8..2).prop_map(|(zone, rack, room, row)| Event::Place(zone, rack, room, row)),
        1 => (0u8..2).prop_map(Event::NoPlace),
        2 => (0u8..3, 0u8..2, 0u8..2).prop_map(|(owner, team, row)| Event::Team(owner, team, row)),
        1 => (0u8..3).prop_map(Event::NoTeam),
        1 => (0u8..3).prop_map(Event::DeleteRows),
        2 => (1i64..200).prop_map(Event::Advance),
        3 => Just(Event::Settle),
        1 => Just(Event::Crash),
    ]
}

/// Hosts of rows of the source; the last have none, and one that no table knows.
const HOSTS: [&str; 5] = [",host=h0", ",host=h1", ",host=h2", "", ",host=h9"];

/// The source, and tables each with a row that no other row finds, which keeps the table there.
fn world() -> World {
    let world = World::empty(7);
    let now_ns = world.db.now_ns();
    let mut lines = String::new();
    for second in (0..600).step_by(7) {
        let (host, core) = (HOSTS[second % 5], second % 3);
        let at_ns = now_ns - second as i64 * SECOND_NS;
        writeln!(lines, "cpu{host},core=h{core} usage={}.5,cores={}i {at_ns}", second % 100, second % 8).unwrap();
    }
    world.write("default", &lines);
    world.label("hosts,host=other,zone=z9 owner=\"eve\",rack=\"r9\"", 0);
    world.label("places,zone=z8,rack=r8 room=\"m9\"", 0);
    world.label("teams,owner=o9 team=\"t9\"", 0);
    world
}

impl World {
    /// Writes a row of a table of labels.
    fn label(&self, row: &str, number: u8) {
        self.write("default", &format!("{row} {}", (EPOCH_S + i64::from(number)) * SECOND_NS));
    }

    fn take_event(&mut self, event: &Event) {
        match event {
            Event::Write(rows) => {
                let now_ns = self.db.now_ns();
                let mut lines = String::new();
                for (host, core, ago) in rows {
                    let at_ns = now_ns - ago * SECOND_NS;
                    writeln!(lines, "cpu{},core=h{core} usage={ago},cores=1i {at_ns}", HOSTS[*host]).unwrap();
                }
                self.write("default", &lines);
            }
            Event::Host(host, zone, owner, rack, row) => {
                // Not every row says the rack.
                let rack = if *rack == 2 { String::new() } else { format!(",rack=\"r{rack}\"") };
                self.label(&format!("hosts,host=h{host},zone=z{zone} owner=\"o{owner}\"{rack}"), *row);
            }
            Event::NoHost(host) => drop(self.ask(&format!("DELETE FROM hosts WHERE host = 'h{host}'"))),
            Event::Place(zone, rack, room, row) => {
                self.label(&format!("places,zone=z{zone},rack=r{rack} room=\"m{room}\""), *row);
            }
            Event::NoPlace(zone) => drop(self.ask(&format!("DELETE FROM places WHERE zone = 'z{zone}'"))),
            Event::Team(owner, team, row) => self.label(&format!("teams,owner=o{owner} team=\"t{team}\""), *row),
            Event::NoTeam(owner) => drop(self.ask(&format!("DELETE FROM teams WHERE owner = 'o{owner}'"))),
            Event::DeleteRows(host) => drop(self.ask(&format!("DELETE FROM cpu WHERE host = 'h{host}'"))),
            Event::Advance(seconds) => self.simulation.advance_ns(seconds * SECOND_NS),
            Event::Settle => self.settle(),
            Event::Crash => {}
        }
    }

    /// Compares all views with their queries over the tables.
    fn check_joins(&self, after: &Event) {
        VIEWS.iter().for_each(|(name, ..)| self.check_join(name, &format!("{name} after {after:?}")));
    }

    /// Compares a view with its query.
    fn check_join(&self, view: &str, what: &str) {
        let (name, keys, query) = VIEWS.into_iter().find(|(name, ..)| *name == view).unwrap();
        let of_view = format!("SELECT {} FROM {name}", shown(name));
        let [found, expected] = [of_view.as_str(), query].map(|text| sorted(self.ask(text), keys));
        assert_eq!(found.len(), expected.len(), "{what}: {found:?} {expected:?}");
        for (found, expected) in found.iter().zip(&expected) {
            assert!(found.iter().zip(expected).all(|(a, b)| is_close(a, b)), "{what}: {found:?} {expected:?}");
        }
    }
}

fn live(events: &[Event]) {
    let mut world = world();
    for (name, _, query) in VIEWS {
        world.ask(&format!("CREATE MATERIALIZED VIEW {name} AS {query}"));
    }
    for event in events {
        world.take_event(event);
        if matches!(event, Event::Crash) {
            world = world.reopened(Simulation::crash);
        }
        world.check_joins(event);
    }
    world.settle();
    world.check_joins(&Event::Settle);
    let old = sql::format_rfc3339_us(world.db.now_ns() - 400 * SECOND_NS);
    for (name, ..) in VIEWS {
        let explained = world.explained(&format!("SELECT * FROM {name} WHERE bucket < '{old}'"));
        assert!(!explained.contains("(computed"), "{name}: {explained}");
    }
}

/// `THALWEG_JOIN_CASES` says how many cases, and `PROPTEST_RNG_SEED` which.
#[test]
fn views_of_several_tables_are_the_joins_of_these() {
    const CASES: u32 = 16;
    let cases = std::env::var("THALWEG_JOIN_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    runner
        .run(&prop::collection::vec(event(), 1..25), |events| {
            live(&events);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_label_that_changes_in_any_of_the_tables_is_seen() {
    let mut world = world();
    for (host, zone, rack) in [("h0", "z0", "r0"), ("h1", "z0", "r1"), ("h2", "z1", "r0")] {
        world.label(&format!("hosts,host={host},zone={zone} owner=\"o0\",rack=\"{rack}\""), 0);
    }
    world.label("places,zone=z0,rack=r0 room=\"m0\"", 0);
    let (name, keys, query) = VIEWS[0];
    world.ask(&format!("CREATE MATERIALIZED VIEW {name} AS {query}"));
    let of_view = format!("SELECT {} FROM {name}", shown(name));
    let rooms = |world: &World| {
        let rows = world.ask(&format!("SELECT DISTINCT room FROM {name} ORDER BY room"));
        rows.iter().map(|row| row[0].to_string()).collect::<Vec<_>>().join(" ")
    };
    let check = |world: &mut World, expected: &str| {
        for _ in 0..2 {
            assert_eq!(rooms(world), expected);
            world.check_join(name, expected);
            world.settle();
        }
        let written = world.db.view_status("default", name).rows_written;
        world.settle();
        assert_eq!(world.db.view_status("default", name).rows_written, written, "nothing changed");
    };
    check(&mut world, "m0");
    world.label("places,zone=z1,rack=r0 room=\"m1\"", 0);
    check(&mut world, "m0 m1");
    world.label("places,zone=z0,rack=r0 room=\"m2\"", 0);
    check(&mut world, "m1 m2");
    world.ask("DELETE FROM hosts WHERE host = 'h2'");
    check(&mut world, "m2");
    // A condition on a label of the last table, and on one of the first.
    let of_room = format!("{of_view} WHERE room = 'm2' AND owner = 'o0'");
    let expected = format!("SELECT * FROM ({query}) q WHERE room = 'm2' AND owner = 'o0'");
    let [found, expected] = [of_room, expected].map(|text| sorted(world.ask(&text), keys));
    assert!(!found.is_empty() && found.len() == expected.len());
    assert!(found.iter().flatten().zip(expected.iter().flatten()).all(|(a, b)| is_close(a, b)));
    assert!(world.ask(&format!("{of_view} WHERE room = 'm1'")).is_empty());
    let explained = world.explained("SELECT * FROM by_room WHERE bucket > '2000-01-01'");
    assert!(explained.contains("(stored"), "{explained}");
    // A restart knows what all of them said.
    let written = |world: &World| world.db.view_status("default", name).rows_written;
    let mut world = world.reopened(Simulation::crash);
    world.settle();
    assert_eq!(written(&world), 0, "nothing changed");
}

#[test]
fn questdb_and_timescale_join_several_tables() {
    let mut world = world();
    world.label("hosts,host=h0,zone=z0 owner=\"o0\",rack=\"r0\"", 0);
    world.label("places,zone=z0,rack=r0 room=\"m0\"", 0);
    let questdb = "SELECT cpu.timestamp AS timestamp, owner, room, max(usage) AS peak FROM cpu JOIN hosts ON (host) LEFT JOIN places ON (zone) SAMPLE BY 10m";
    let made = format!("CREATE MATERIALIZED VIEW q WITH BASE cpu REFRESH IMMEDIATE AS ({questdb}) PARTITION BY DAY");
    world.ask_as(Manner::QuestDb, &made).unwrap();
    world.ask(
        "CREATE MATERIALIZED VIEW t WITH (timescaledb.continuous) AS SELECT time_bucket('10 minutes', c.time) AS bucket, h.owner, p.room, max(c.usage) AS peak \
         FROM cpu c INNER JOIN hosts h USING (host) LEFT OUTER JOIN places p USING (zone) GROUP BY 1, 2, 3",
    );
    let query = "SELECT time_bucket('10 minutes', cpu.time), hosts.owner, places.room, max(cpu.usage) FROM cpu JOIN hosts ON cpu.host = hosts.host \
                 LEFT JOIN places ON hosts.zone = places.zone GROUP BY 1, 2, 3";
    for _ in ["made", "settled"] {
        let expected = sorted(world.ask(query), 3);
        assert!(!expected.is_empty());
        assert_eq!(sorted(world.ask("SELECT bucket, owner, room, peak FROM t"), 3), expected);
        assert_eq!(sorted(world.ask("SELECT timestamp, owner, room, peak FROM q"), 3), expected);
        world.settle();
    }
}

#[test]
fn joins_of_several_tables_that_no_view_has_are_refused() {
    let world = world();
    world.write("default", &format!("extra,host=h0,zone=z0,rack=r0 note=\"x\" {}", EPOCH_S * SECOND_NS));
    let refused = |manner: Manner, query: &str, expected: &str| {
        let error = world.ask_as(manner, &format!("CREATE MATERIALIZED VIEW x AS {query}")).unwrap_err();
        assert!(error.contains(expected), "{query}: {error}");
    };
    let view = |columns: &str, from: &str| {
        format!(
            "SELECT time_bucket('1 minute', cpu.time) AS bucket, {columns}, count(*) AS n FROM {from} GROUP BY 1, 2"
        )
    };
    let two = "cpu JOIN hosts ON cpu.host = hosts.host JOIN places ON hosts.zone = places.zone";
    let five = format!(
        "{two} JOIN teams ON hosts.owner = teams.owner JOIN extra a ON cpu.host = a.host JOIN extra b ON cpu.core = b.host"
    );
    refused(Manner::Postgres, &view("places.room", &five), "join it with up to 4 tables");
    refused(
        Manner::Postgres,
        &view("places.room", &two.replace("JOIN places", "FULL JOIN places")),
        "join it with up to 4 tables",
    );
    refused(Manner::Postgres, &view("places.room", "cpu, hosts, places"), "not by a comma");
    let by_field = "cpu JOIN hosts ON cpu.host = hosts.host JOIN places ON cpu.usage = places.zone";
    refused(Manner::Postgres, &view("places.room", by_field), "by tags of both tables that are equal");
    let to_text = "cpu JOIN hosts ON cpu.host = hosts.host JOIN places ON hosts.owner = places.room";
    refused(Manner::Postgres, &view("places.room", to_text), "by tags of both tables that are equal");
    // The tag by which the second is joined would be hidden by a label of the first.
    let hidden = "cpu JOIN hosts ON cpu.core = hosts.host JOIN extra ON cpu.host = extra.host";
    refused(Manner::Postgres, &view("hosts.owner AS host", hidden), "show it by another name");
    let twice = view("hosts.zone, places.zone", two).replace("BY 1, 2", "BY 1, 2, 3");
    refused(Manner::Postgres, &twice, "one label \"zone\"");
    let either = format!("{two} WHERE hosts.zone = 'z0' OR places.rack = 'r0'");
    refused(
        Manner::Postgres,
        &view("places.room", &either),
        "WHERE: a materialised view computes nothing from \"zone\"",
    );
    let own_or = format!("{two} WHERE cpu.host = 'h0' OR hosts.zone = 'z0'");
    refused(
        Manner::Postgres,
        &view("places.room", &own_or),
        "WHERE: a materialised view computes nothing from \"zone\"",
    );
    refused(
        Manner::Postgres,
        &view("c.machine", "cpu AS c (at, machine)").replace("cpu.time", "c.at"),
        "name the table alone",
    );
    let splice = "SELECT cpu.timestamp, owner, max(usage) AS peak FROM cpu SPLICE JOIN hosts ON (host) SAMPLE BY 1m";
    refused(Manner::QuestDb, splice, "there is no SPLICE JOIN");
}

#[test]
fn splice_is_a_name_where_it_is_no_join() {
    let world = world();
    world.write("default", &format!("splice,host=h0 v=1 {}", EPOCH_S * SECOND_NS));
    world.label("hosts,host=h0,zone=z0 owner=\"o0\"", 0);
    for text in [
        "SELECT v FROM splice JOIN hosts ON splice.host = hosts.host",
        "SELECT v FROM splice JOIN hosts USING (host)",
        "SELECT s.v FROM hosts JOIN splice s ON s.host = hosts.host",
        "SELECT count(*) FROM hosts splice JOIN hosts b ON splice.host = b.host WHERE b.host = 'h0'",
    ] {
        assert_eq!(world.ask(text).len(), 1, "{text}");
    }
    let error = world.ask_as(Manner::QuestDb, "SELECT * FROM hosts SPLICE JOIN splice ON (host)").unwrap_err();
    assert!(error.contains("there is no SPLICE JOIN"), "{error}");
}

/// The document of a view: steps of its plan, and the labels by which it groups.
fn document(steps: &str, by: &str) -> String {
    let plan = format!(
        r#"(->>\n  (rows-of \"cpu\")\n  {steps}\n  (groupby 1m (sum \"usage\") (by '({by})))\n  (map \"s\" (column \"sum usage\")))"#
    );
    format!(
        r#"{{"database":"default","days":0,"dialect":"sql","fields":[["s","f64"]],"maker":"","months":0,"name":"v","options":{{"materialized_only":false}},"origin_ns":0,"plan":"{plan}","statement":"CREATE …","target":"v","time_name":"bucket","version":1,"width_ns":60000000000,"zone":"UTC"}}"#
    )
}

/// The document of one join is as versions wrote it that had no others.
#[test]
fn documents_of_joins_are_read_as_they_were_written() {
    let hosts = r#"(labelled inner (->> (rows-of \"hosts\")) (on '(\"host\" \"host\")) (labels '(\"owner\" \"owner\" \"__1.zone\" \"zone\")))"#;
    let places =
        r#"(labelled left (->> (rows-of \"places\")) (on '(\"__1.zone\" \"zone\")) (labels '(\"room\" \"room\")))"#;
    let one = hosts.replace(r#" \"__1.zone\" \"zone\""#, "");
    let joins = "cpu JOIN hosts ON cpu.host = hosts.host";
    for (document, labels, from) in [
        (document(&one, r#"\"owner\""#), "owner", joins.to_owned()),
        (
            document(&format!(r"{hosts}\n  {places}"), r#"\"owner\" \"room\""#),
            "owner, room",
            format!("{joins} LEFT JOIN places ON hosts.zone = places.zone"),
        ),
    ] {
        let world = world();
        world.label("hosts,host=h0,zone=z0 owner=\"o0\"", 0);
        world.label("places,zone=z0,rack=r0 room=\"m0\"", 0);
        world.db.put_document("view", "default\0v", document.as_bytes()).unwrap();
        let mut world = world.reopened(|_| {});
        assert!(
            world.db.unreadable_views().is_empty(),
            "{:?}",
            world.db.unreadable_views().first().map(|of| &of.reason)
        );
        let query = format!(
            "SELECT time_bucket('1 minute', cpu.time), {labels}, sum(cpu.usage) FROM {from} GROUP BY time_bucket('1 minute', cpu.time), {labels}"
        );
        for _ in ["read", "settled"] {
            let expected = sorted(world.ask(&query), 3);
            assert_eq!(sorted(world.ask(&format!("SELECT bucket, {labels}, s FROM v")), 3), expected);
            assert!(!expected.is_empty());
            world.settle();
        }
        // Changing it back and forth writes it again.
        world.ask("ALTER MATERIALIZED VIEW v SET (timescaledb.materialized_only = true)");
        world.ask("ALTER MATERIALIZED VIEW v SET (timescaledb.materialized_only = false)");
        let (_, written) = world.db.documents("view").remove(0);
        let [written, read]: [serde_json::Value; 2] =
            [&*written, document.as_bytes()].map(|bytes| serde_json::from_slice(bytes).unwrap());
        assert_eq!(written, read);
    }
    let world = world();
    world.db.put_document("view", "default\0v", document(hosts, r#"\"owner\""#).as_bytes()).unwrap();
    let unreadable = world.reopened(|_| {}).db.unreadable_views();
    assert!(unreadable[0].reason.contains("by which it does not group"), "{}", unreadable[0].reason);
}

/// A row of the source that many pairs of rows of two tables make many of is refused when the view is read.
#[test]
fn rows_that_several_tables_multiply_are_bounded() {
    let world = world();
    let mut lines = String::new();
    for number in 0..150 {
        let at_ns = (EPOCH_S + number) * SECOND_NS;
        writeln!(lines, "hosts,host=h0,zone=z0 owner=\"o0\" {at_ns}\nplaces,zone=z0,rack=r0 room=\"m0\" {at_ns}")
            .unwrap();
    }
    world.write("default", &lines);
    let (name, _, query) = VIEWS[4];
    world.ask(&format!("CREATE MATERIALIZED VIEW {name} AS {query}"));
    let of_view = format!("SELECT n FROM {name}");
    let error = world.ask_as(Manner::Postgres, &of_view).unwrap_err();
    assert!(error.contains("more than 10000 rows of joined tables together"), "{error}");
    let cut = sql::format_rfc3339_us((EPOCH_S + 10) * SECOND_NS);
    world.ask(&format!("DELETE FROM places WHERE time >= '{cut}'"));
    let [found, expected] = [of_view.as_str(), query].map(|text| sorted(world.ask(text), 1));
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().all(|row| matches!(row[0], Value::Int(n) if n % 1_500 == 0)), "{found:?}");
}

//! Views of rows for which a condition holds are their queries over the source, whatever the condition is of.

use std::fmt::Write;

use platform::sim::Simulation;
use sql::{Manner, Value};

use crate::as_of;
use crate::computed::{query, rows, world};
use crate::world::{SECOND_NS, World, is_close, sorted};

/// Conditions on rows: of fields of all types, of tags that series lack, of times, of what is computed, and of several at once. Some hold where no field that
/// is read has a value, some never.
const CONDITIONS: [&str; 22] = [
    "is_buy",
    "is_buy = true",
    "NOT is_buy",
    "is_buy IS NOT TRUE",
    "status IN (200, 503)",
    "status NOT IN (200, 404)",
    "note IN ('a', 'c')",
    "amount IS NOT NULL",
    "amount IS NULL",
    "note IS NULL AND is_buy IS NULL",
    "price > amount",
    "price / amount > 2",
    "abs(price - 50) > 20",
    "price + amount BETWEEN 20 AND 60",
    "symbol = 'B' OR price > 40",
    "venue IS NULL OR status = 404",
    "venue IS NOT NULL",
    "venue <> symbol",
    "time <> '2020-01-01' AND (time < '2020-01-01' OR amount > 1)",
    "coalesce(note, venue, 'c') = 'c'",
    "CASE WHEN is_buy THEN price > 30 ELSE amount > 1 END",
    "price > 1000000 OR price IS NULL",
];

/// Columns, of which the first does not say of which rows it is.
const COLUMNS: [(&str, &str); 4] =
    [("n", "count(*)"), ("spent", "sum(price * amount)"), ("peak", "max(price)"), ("notes", "max(note)")];

fn filtered(columns: &[(&str, &str)], condition: &str) -> String {
    query(columns, &format!("trades WHERE {condition}"), "symbol")
}

/// Compares all views with their queries, before the refresher knows of what happened and after that.
fn check(world: &mut World, columns: &[(&str, &str)], after: &str) {
    for settled in ["", ", settled"] {
        for (number, condition) in CONDITIONS.iter().enumerate() {
            let condition = format!("WHERE {condition}");
            world.check_where(&format!("v{number}"), (columns, "symbol"), &condition, &format!("{after}{settled}"));
        }
        world.settle();
    }
}

#[test]
fn a_view_of_rows_for_which_a_condition_holds_is_its_query() {
    let mut world = world();
    for (number, condition) in CONDITIONS.iter().enumerate() {
        world.ask(&format!("CREATE MATERIALIZED VIEW v{number} AS {}", filtered(&COLUMNS, condition)));
    }
    check(&mut world, &COLUMNS, "made");
    let now_ns = world.db.now_ns();
    let late = rows(now_ns - 3 * SECOND_NS, 30..200);
    // Rows that have no value of any column which is read, and rows of a series that is new.
    let bare = format!(
        "trades,symbol=B other=1 {}\ntrades,symbol=C,venue=x other=1 {}\n",
        now_ns - 301 * SECOND_NS,
        now_ns - 302 * SECOND_NS
    );
    world.write("default", &(late + &bare));
    check(&mut world, &COLUMNS, "late rows");
    world.ask("DELETE FROM trades WHERE symbol = 'B'");
    check(&mut world, &COLUMNS, "rows are deleted");
    let mut columns = COLUMNS.to_vec();
    columns.push(("least", "min(amount) FILTER (WHERE status <> 500)"));
    for number in 0..CONDITIONS.len() {
        world.ask(&format!(
            "ALTER MATERIALIZED VIEW v{number} ADD COLUMN least AS min(amount) FILTER (WHERE status <> 500)"
        ));
    }
    check(&mut world, &columns, "a column is added");
    let mut world = world.reopened(Simulation::crash);
    check(&mut world, &columns, "after a crash");
    world.simulation.advance_ns(200 * SECOND_NS);
    world.write("default", &rows(world.db.now_ns(), 0..60));
    check(&mut world, &columns, "time goes on");
}

/// The windows of a view are rows of another one.
#[test]
fn a_view_of_windows_for_which_a_condition_holds_is_its_query() {
    let mut world = world();
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {}", query(&COLUMNS, "trades", "symbol")));
    let condition = "WHERE notes IS NULL OR symbol = 'A' AND spent / n > 20.5";
    let of = |from: &str| {
        let of_windows = "count(*) AS windows, sum(n) AS n, max(peak) AS peak";
        format!("SELECT time_bucket('5 minutes', bucket) AS bucket, {of_windows} FROM {from} {condition} GROUP BY 1")
    };
    world.ask(&format!("CREATE MATERIALIZED VIEW w AS {}", of("v")));
    for after in ["made", "settled", "late rows", "settled again"] {
        let expected = of(&format!("({}) v", query(&COLUMNS, "trades", "symbol")));
        let [found, expected] =
            ["SELECT bucket, windows, n, peak FROM w", &expected].map(|text| sorted(world.ask(text), 1));
        assert!(expected.len() > 3);
        assert_eq!(found, expected, "{after}");
        if after == "settled" {
            world.write("default", &rows(world.db.now_ns() - 3 * SECOND_NS, 30..200));
        } else {
            world.settle();
        }
    }
}

/// Plans try what they can compute as SQL does, so that no rows are held for it.
#[test]
fn queries_of_the_table_group_such_rows_while_they_read() {
    let world = world();
    for condition in CONDITIONS {
        let explained =
            world.explained(&format!("SELECT symbol, count(*), max(price) FROM trades WHERE {condition} GROUP BY 1"));
        assert!(explained.contains("(groupby"), "{condition}: {explained}");
    }
    for condition in ["note LIKE 'a%'", "status + 1 > 201"] {
        let explained =
            world.explained(&format!("SELECT symbol, count(*), max(price) FROM trades WHERE {condition} GROUP BY 1"));
        assert!(!explained.contains("(groupby"), "{condition}: {explained}");
    }
}

/// A query of the table uses a view of the same rows, and none of rows that a number of another sign leaves.
#[test]
fn queries_with_the_condition_of_a_view_use_it() {
    let mut world = world();
    let shown = [("n", "count(*)"), ("peak", "max(price)")];
    for (name, condition) in
        [("v", "is_buy OR venue IS NULL"), ("w", "(price - price) / 0.0 IS NULL OR price / -0.0 < 0")]
    {
        world.ask(&format!("CREATE MATERIALIZED VIEW {name} AS {}", filtered(&shown, condition)));
    }
    world.settle();
    for (condition, view) in [
        ("is_buy OR venue IS NULL", Some("\"v\"")),
        ("symbol = 'A' AND (is_buy OR venue IS NULL)", Some("\"v\"")),
        ("is_buy", None),
        ("venue = 'x' AND (is_buy OR venue IS NULL)", None),
        ("(price - price) / 0.0 IS NULL OR price / -0.0 < 0", Some("\"w\"")),
        ("(price - price) / 0.0 IS NULL OR price / 0.0 < 0", None),
    ] {
        let query = filtered(&shown, condition);
        let explained = world.explained(&query);
        let is_by_view = view.map_or(!explained.contains("(view"), |view| explained.contains(view));
        assert!(is_by_view, "{condition}: {explained}");
        let of_rows = query.replace("FROM trades", "FROM (SELECT * FROM trades LIMIT 100000) q");
        assert_eq!(sorted(world.ask(&query), 2), sorted(world.ask(&of_rows), 2), "{condition}");
    }
}

#[test]
fn conditions_that_no_view_has_are_refused_by_what_they_are() {
    let world = world();
    for (condition, expected) in [
        ("note LIKE 'a%'", "WHERE: a materialised view has LIKE and regular expressions in its WHERE alone, of tags"),
        ("price > 50 OR symbol LIKE 'A%'", "of tags of its first table, and not within an OR"),
        ("status + 1 > 201", "WHERE: a materialised view does not compute + of whole numbers"),
        ("upper(note) = 'A'", "WHERE: the function upper is not possible"),
        ("extract(hour FROM time) > 8", "WHERE: a materialised view computes nothing from the rows' time but"),
        ("price IN (amount, 3)", "WHERE: a materialised view has IN with a list of constants"),
        ("price", "a condition in a materialised view is true or false"),
        ("time > now()", "does not depend on the present"),
        ("price > 5 OR time > now()", "does not depend on the present"),
        ("price > (SELECT max(price) FROM trades)", "no queries within it"),
    ] {
        let made = format!("CREATE MATERIALIZED VIEW v AS {}", filtered(&COLUMNS, condition));
        let error = world.ask_as(Manner::Postgres, &made).expect_err(condition);
        assert!(error.contains(expected), "{condition}: {error}");
    }
}

/// Conditions on columns that are joined as of a time.
const JOINED: [(&str, &str); 5] = [
    ("above", "t.price > q.bid"),
    ("found", "q.bid IS NOT NULL AND t.size < 500"),
    ("none", "q.bid IS NULL"),
    ("either", "t.venue = 'v1' OR q.ask > 200 OR r.rate IN (1, 2, 3)"),
    ("both", "q.bid > r.rate AND q.note <> 'n7' AND NOT (r.fee % 2.0 = 0)"),
];

fn joined(condition: &str) -> String {
    format!(
        "SELECT time_bucket('1 minute', t.time) AS bucket, t.symbol, t.venue, count(*) AS n, max(q.ask) AS ask, last(t.price) AS price \
         FROM trades t ASOF JOIN quotes q ON (symbol) LT JOIN rates r ON t.venue = r.venue TOLERANCE 5m WHERE {condition} GROUP BY 1, 2, 3"
    )
}

fn check_joined(world: &mut World, after: &str) {
    for settled in ["", ", settled"] {
        for (name, condition) in JOINED {
            let of_view = format!("SELECT bucket, symbol, venue, n, ask, price FROM {name}");
            let [found, expected] = [of_view, joined(condition)].map(|text| sorted(world.ask(&text), 3));
            assert_eq!(found.len(), expected.len(), "{name} {after}{settled}");
            for (found, expected) in found.iter().zip(&expected) {
                let is_same = found.iter().zip(expected).all(|(a, b)| is_close(a, b));
                assert!(is_same, "{name} {after}{settled}: {found:?} {expected:?}");
            }
        }
        world.settle();
    }
}

#[test]
fn conditions_on_columns_as_of_a_time_are_those_of_the_join() {
    use as_of::Event;
    let mut world = as_of::world();
    for (name, condition) in JOINED {
        world.ask(&format!("CREATE MATERIALIZED VIEW {name} AS {}", joined(condition)));
        assert!(!world.ask(&joined(condition)).is_empty(), "{name}");
    }
    check_joined(&mut world, "made");
    for event in [
        // No window of that time is without a trade that finds it.
        Event::Quotes(vec![(0, 0, 400, Some(3)), (1, 1, 4_000, Some(1)), (2, 0, 350, None)]),
        Event::Rates(vec![(0, 0, 501), (2, 1, 410), (0, 1, 344)]),
        Event::Trades(vec![(0, 0, 395), (2, 1, 4_500), (3, 0, 3_000)]),
        Event::Delete("quotes", 0, 3_000, 2_700),
        Event::Delete("trades", 1, 420, 60),
        Event::Delete("rates", 2, 700, 300),
        Event::Advance(90),
        Event::Compact,
    ] {
        world.take_quotes_event(&event);
        check_joined(&mut world, &format!("after {event:?}"));
    }
    // A series without the field of the first table that is compared, and one that comes later.
    let now_ns = world.db.now_ns();
    let mut lines = String::new();
    writeln!(lines, "trades,symbol=s1,venue=v0 size=7i {}", now_ns - 390 * SECOND_NS).unwrap();
    writeln!(lines, "trades,symbol=s9,venue=v0 size=7i {}", now_ns - 391 * SECOND_NS).unwrap();
    writeln!(lines, "quotes,symbol=s9,venue=v0 ask=7 {}", now_ns - 500 * SECOND_NS).unwrap();
    world.write("default", &lines);
    check_joined(&mut world, "with series that lack fields");
    let mut world = world.reopened(Simulation::crash);
    check_joined(&mut world, "after a crash");
    for (name, condition) in JOINED {
        world.ask(&format!("ALTER MATERIALIZED VIEW {name} ADD COLUMN spread AS max(q.bid - t.price)"));
        let query = joined(condition).replace("count(*) AS n", "max(q.bid - t.price) AS spread, count(*) AS n");
        for settled in ["", "settled"] {
            let texts = [
                format!("SELECT bucket, symbol, venue, spread FROM {name}"),
                format!("SELECT bucket, symbol, venue, spread FROM ({query}) q"),
            ];
            let [found, expected] = texts.map(|text| sorted(world.ask(&text), 3));
            assert_eq!(found, expected, "{name} with a column {settled}");
            world.settle();
        }
    }
}

/// What the view reads besides is what its condition reads; its own table's conditions are tried first.
#[test]
fn documents_of_conditions_as_of_a_time_are_as_they_are_written() {
    let world = as_of::world();
    world.ask("CREATE MATERIALIZED VIEW crossed AS SELECT time_bucket('1 minute', t.time) AS bucket, t.symbol, max(t.price) AS price, count(*) AS n \
               FROM trades t ASOF JOIN quotes q ON (symbol) WHERE t.price > q.bid AND t.venue = 'v0' AND t.price > 5 GROUP BY 1, 2");
    let golden = "(->>\n  (rows-of \"trades\")\n  (tag \"venue\" \"v0\")\n  (where (> (column \"price\") 5))\n  \
                  (as-of (->> (rows-of \"quotes\")) (on '(\"symbol\" \"symbol\")) (columns '(\"__1.bid\" \"bid\")))\n  \
                  (where (> (compare (column \"price\") (column \"__1.bid\")) 0))\n  \
                  (groupby 1m '((max \"price\") (count #TS)) (by '(\"symbol\")))\n  \
                  (map \"price\" (column \"max price\") \"n\" (coalesce (column \"count #TS\") 0)))";
    assert_eq!(world.stored_plans(), [golden; 2]);
}

/// The counts of a view whose rows satisfy a condition on nothing that has a value.
#[test]
fn rows_without_values_count() {
    let mut world = World::empty(3);
    let now_ns = world.db.now_ns();
    world.write(
        "default",
        &format!("t,h=a x=1 {now_ns}\nt,h=a y=1 {}\nt y=1 {}\n", now_ns - SECOND_NS, now_ns - 2 * SECOND_NS),
    );
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 hour', time) AS bucket, count(*) AS n FROM t WHERE x IS NULL GROUP BY 1");
    world.ask("CREATE MATERIALIZED VIEW w AS SELECT time_bucket('1 hour', time) AS bucket, count(*) AS n, max(x) AS x FROM t WHERE h IS NULL OR x > 0 GROUP BY 1");
    for _ in ["made", "settled"] {
        assert_eq!(world.ask("SELECT sum(n) FROM v"), [[Value::Int(2)]]);
        assert_eq!(world.ask("SELECT sum(n), max(x) FROM w"), [[Value::Int(2), Value::Float(1.0)]]);
        world.simulation.advance_ns(7_200 * SECOND_NS);
        world.settle();
    }
}

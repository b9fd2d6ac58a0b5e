//! Views that join tables as of a time are the same join of the tables now, which the built-in SQL makes row by row.

use std::fmt::Write;
use std::sync::Arc;

use access::scope::Scope;
use db::DatabasePolicy;
use platform::sim::Simulation;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use query::Budget;
use sql::{ClientContext, Manner};

use crate::world::{SECOND_NS, World, is_close, sorted};

/// Views by their names, the columns that they show, and their queries. The first columns, so many of them, tell rows apart.
pub(crate) const VIEWS: [(&str, usize, &str, &str); 19] = [
    (
        "plain",
        2,
        "bucket, symbol, price, bid, n",
        "SELECT time_bucket('1 minute', t.time) AS bucket, t.symbol, avg(t.price) AS price, max(q.bid) AS bid, count(*) AS n \
         FROM trades t ASOF JOIN quotes q ON (symbol) GROUP BY 1, 2",
    ),
    // A window is there though none of its rows finds a quote.
    (
        "found",
        3,
        "bucket, venue, symbol, first_bid, last_ask, bids, kinds, note",
        "SELECT time_bucket('1 minute', t.time) AS bucket, t.venue, t.symbol, first(q.bid) AS first_bid, last(q.ask) AS last_ask, count(q.bid) AS bids, \
         count(DISTINCT q.ask) AS kinds, max(q.note) AS note FROM trades t ASOF JOIN quotes q ON t.symbol = q.symbol AND t.venue = q.venue GROUP BY 1, 2, 3",
    ),
    (
        "recent",
        3,
        "bucket, symbol, venue, bid, spread",
        "SELECT time_bucket('2 minutes', t.time) AS bucket, t.symbol, t.venue, min(q.bid) AS bid, max(q.ask) - min(q.bid) AS spread \
         FROM trades t LT JOIN quotes q ON (symbol) TOLERANCE 90s GROUP BY 1, 2, 3",
    ),
    (
        "of_all",
        1,
        "bucket, ask, n",
        "SELECT time_bucket('1 minute', t.time) AS bucket, sum(q.ask) AS ask, count(*) AS n FROM trades t ASOF JOIN quotes q TOLERANCE 30s GROUP BY 1",
    ),
    (
        "narrowed",
        2,
        "bucket, symbol, bid, n",
        "SELECT time_bucket('1 minute', t.time) AS bucket, t.symbol, sum(q.bid) AS bid, count(*) AS n FROM trades t LT JOIN quotes q ON (symbol) \
         WHERE t.price > 20 AND t.symbol IN ('s0', 's2') GROUP BY 1, 2 HAVING count(q.bid) > 1",
    ),
    (
        "named",
        2,
        "bucket, owner, bid, n",
        "SELECT time_bucket('1 minute', t.time) AS bucket, c.owner, avg(q.bid) AS bid, count(*) AS n \
         FROM trades t JOIN companies c ON t.symbol = c.symbol ASOF JOIN quotes q ON t.symbol = q.symbol GROUP BY 1, 2",
    ),
    (
        "both",
        3,
        "bucket, symbol, venue, bid, rate, rates, n",
        "SELECT time_bucket('1 minute', t.time) AS bucket, t.symbol, t.venue, max(q.bid) AS bid, last(r.rate) AS rate, count(r.rate) AS rates, count(*) AS n \
         FROM trades t ASOF JOIN quotes q ON (symbol) LT JOIN rates r ON t.venue = r.venue TOLERANCE 2m GROUP BY 1, 2, 3",
    ),
    // One table twice, and labels between.
    (
        "thrice",
        2,
        "bucket, owner, bid, bid_before, rate, n",
        "SELECT time_bucket('2 minutes', t.time) AS bucket, c.owner, max(q.bid) AS bid, sum(p.bid) AS bid_before, min(r.rate) AS rate, count(*) AS n \
         FROM trades t LT JOIN quotes q ON (symbol) TOLERANCE 45s JOIN companies c ON t.symbol = c.symbol \
         ASOF JOIN quotes p ON t.symbol = p.symbol AND t.venue = p.venue AND t.time >= p.time ASOF JOIN rates r TOLERANCE 5m GROUP BY 1, 2",
    ),
    (
        "above",
        1,
        "bucket, bid, n",
        "SELECT time_bucket('10 minutes', bucket) AS bucket, max(bid) AS bid, sum(n) AS n FROM plain GROUP BY 1",
    ),
    // Of columns of both tables.
    (
        "computed",
        3,
        "bucket, symbol, owner, spread, value, above, found, n",
        "SELECT time_bucket('1 minute', t.time) AS bucket, t.symbol, c.owner, max(q.bid - t.price) AS spread, sum(q.bid * t.size) AS value, \
         count(*) FILTER (WHERE q.bid > t.price AND t.venue = 'v0') AS above, count(coalesce(q.ask, q.bid)) AS found, count(*) AS n \
         FROM trades t LEFT JOIN companies c ON t.symbol = c.symbol ASOF JOIN quotes q ON t.symbol = q.symbol TOLERANCE 3m GROUP BY 1, 2, 3",
    ),
    // Conditions on columns of both tables, on one that no aggregate reads, and on rows that find none.
    (
        "crossed",
        2,
        "bucket, symbol, ask, n",
        "SELECT time_bucket('1 minute', t.time) AS bucket, t.symbol, max(q.ask) AS ask, count(*) AS n FROM trades t ASOF JOIN quotes q ON (symbol) \
         WHERE t.price > q.bid AND t.size < 600 GROUP BY 1, 2",
    ),
    (
        "chosen",
        2,
        "bucket, owner, spread, rate, n",
        "SELECT time_bucket('2 minutes', t.time) AS bucket, c.owner, max(q.bid - t.price) AS spread, min(r.rate) AS rate, count(*) AS n \
         FROM trades t LEFT JOIN companies c ON t.symbol = c.symbol ASOF JOIN quotes q ON t.symbol = q.symbol LT JOIN rates r ON t.venue = r.venue TOLERANCE 4m \
         WHERE (t.symbol IS NULL OR q.note IN ('n3', 'n7', 'n11', 'n24') OR r.fee % 3.0 = 1) AND t.venue IS NOT NULL GROUP BY 1, 2",
    ),
    (
        "unquoted",
        3,
        "bucket, symbol, venue, price",
        "SELECT time_bucket('1 minute', t.time) AS bucket, t.symbol, t.venue, last(t.price) AS price \
         FROM trades t ASOF JOIN quotes q ON t.symbol = q.symbol TOLERANCE 40s WHERE q.bid IS NULL GROUP BY 1, 2, 3",
    ),
    // Groups by what rows find: rows of one series may find several tags, several texts, and nothing.
    (
        "by_venue",
        3,
        "bucket, symbol, quoted_at, bid, price, n",
        "SELECT time_bucket('1 minute', t.time) AS bucket, t.symbol, q.venue AS quoted_at, max(q.bid) AS bid, avg(t.price) AS price, count(*) AS n \
         FROM trades t ASOF JOIN quotes q ON (symbol) TOLERANCE 2m GROUP BY 1, 2, 3",
    ),
    (
        "by_note",
        4,
        "bucket, note, quoted, owner, price, n",
        "SELECT time_bucket('5 minutes', t.time) AS bucket, q.note, q.symbol AS quoted, c.owner, last(t.price) AS price, count(*) AS n \
         FROM trades t LT JOIN quotes q LEFT JOIN companies c ON t.symbol = c.symbol WHERE t.venue = 'v0' AND t.symbol = 's1' GROUP BY 1, 2, 3, 4, t.symbol, t.venue \
         HAVING count(*) > 0",
    ),
    // Conditions on and aggregates of tags that rows find.
    (
        "of_tags",
        2,
        "bucket, venue, quoted_at, venues, elsewhere, n",
        "SELECT time_bucket('1 minute', t.time) AS bucket, t.venue, max(q.venue) AS quoted_at, count(DISTINCT q.venue) AS venues, \
         count(*) FILTER (WHERE q.venue <> t.venue) AS elsewhere, count(*) AS n \
         FROM trades t ASOF JOIN quotes q ON (symbol) WHERE q.symbol IN ('s0', 's2') OR q.venue = 'v1' GROUP BY 1, 2",
    ),
    // Tables that are joined by what rows of another one say.
    (
        "chained",
        3,
        "bucket, rate_of, owner, rate, bid, n",
        "SELECT time_bucket('2 minutes', t.time) AS bucket, r.symbol AS rate_of, c.owner, max(r.rate) AS rate, sum(q.bid) AS bid, count(*) AS n \
         FROM trades t ASOF JOIN quotes q ON (symbol) LT JOIN rates r ON q.venue = r.venue TOLERANCE 6m LEFT JOIN companies c ON r.symbol = c.symbol GROUP BY 1, 2, 3",
    ),
    // A table's rows beside those before them.
    (
        "itself",
        3,
        "bucket, symbol, venue, step, first_step, steps, n",
        "SELECT time_bucket('1 minute', t.time) AS bucket, t.symbol, t.venue, max(t.price - p.price) AS step, min(t.size - p.size::double precision) AS first_step, \
         count(p.price) AS steps, count(*) AS n FROM trades t LT JOIN trades p ON t.symbol = p.symbol AND t.venue = p.venue TOLERANCE 10m GROUP BY 1, 2, 3",
    ),
    // Some of the rows and columns of each table.
    (
        "queried",
        2,
        "bucket, owner, price, bid, n",
        "SELECT time_bucket('2 minutes', t.time) AS bucket, c.owner, max(t.price) AS price, sum(q.bid) AS bid, count(*) AS n \
         FROM (SELECT time, symbol, price FROM trades WHERE size < 700 AND venue = 'v0' AND price <> 3.5) t ASOF JOIN (SELECT * FROM quotes WHERE venue <> 'v1') q ON (symbol) \
         LEFT JOIN (SELECT owner, companies.symbol FROM companies WHERE symbol = 's0') c ON t.symbol = c.symbol WHERE t.price > 2 GROUP BY 1, 2",
    ),
];

/// The query of a view over the tables: of one over another view with the other's query in its place.
fn over_tables(query: &str) -> String {
    let (_, _, _, plain) = VIEWS[0];
    query.replace("FROM plain", &format!("FROM ({plain}) plain"))
}

#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A symbol (or none), a venue, and seconds before now.
    Trades(Vec<(usize, u8, i64)>),
    /// Likewise, with the bid, if there is one.
    Quotes(Vec<(usize, u8, i64, Option<u8>)>),
    /// As of trades.
    Rates(Vec<(usize, u8, i64)>),
    Company(u8, u8),
    /// A table, a symbol, seconds before now, and how many seconds long.
    Delete(&'static str, u8, i64, i64),
    Advance(i64),
    Pass,
    Settle,
    Compact,
    Restart,
    Crash,
}

fn event() -> impl Strategy<Value = Event> {
    let ago = || prop_oneof![2 => 0i64..30, 3 => 0i64..900, 1 => 0i64..5_000];
    let rows = |count_max: usize| prop::collection::vec((0..SYMBOLS.len(), 0u8..2, ago()), 1..count_max);
    let table = prop_oneof![1 => Just("trades"), 2 => Just("quotes"), 1 => Just("rates")];
    let deleted = (table, 0u8..3, 0i64..2_000, 0i64..600);
    let quotes = prop::collection::vec((0..SYMBOLS.len(), 0u8..2, ago(), prop::option::weighted(0.8, 0u8..99)), 1..6);
    prop_oneof![
        4 => rows(8).prop_map(Event::Trades),
        3 => rows(5).prop_map(Event::Rates),
        5 => quotes.prop_map(Event::Quotes),
        1 => (0u8..3, 0u8..2).prop_map(|(symbol, owner)| Event::Company(symbol, owner)),
        4 => deleted.prop_map(|(table, symbol, ago, length)| Event::Delete(table, symbol, ago, length)),
        3 => (1i64..300).prop_map(Event::Advance),
        2 => Just(Event::Pass),
        4 => Just(Event::Settle),
        1 => Just(Event::Compact),
        1 => Just(Event::Restart),
        1 => Just(Event::Crash),
    ]
}

/// Symbols of rows: one has none.
const SYMBOLS: [&str; 4] = [",symbol=s0", ",symbol=s1", ",symbol=s2", ""];

pub(crate) fn world() -> World {
    let mut world = World::empty(19);
    world.take_quotes_event(&Event::Trades(
        (0..60).map(|number| (number % 4, (number % 3 / 2) as u8, 11 * number as i64)).collect(),
    ));
    world.take_quotes_event(&Event::Quotes(
        (0..30).map(|number| (number % 4, (number % 2) as u8, 29 * number as i64, Some(number as u8))).collect(),
    ));
    world.take_quotes_event(&Event::Rates(
        (0..20).map(|number| (number % 3, (number % 2) as u8, 41 * number as i64)).collect(),
    ));
    world.take_quotes_event(&Event::Company(0, 1));
    world
}

impl World {
    fn make_as_of_views(&self) {
        for (name, _, _, query) in VIEWS {
            self.ask(&format!("CREATE MATERIALIZED VIEW {name} AS {query}"));
        }
    }

    pub(crate) fn take_quotes_event(&mut self, event: &Event) {
        let now_ns = self.db.now_ns();
        let mut lines = String::new();
        match event {
            Event::Trades(rows) => {
                for (symbol, venue, ago) in rows {
                    let at_ns = now_ns - ago * SECOND_NS;
                    writeln!(
                        lines,
                        "trades{},venue=v{venue} price={}.5,size={ago}i {at_ns}",
                        SYMBOLS[*symbol],
                        ago % 50
                    )
                    .unwrap();
                }
            }
            Event::Quotes(rows) => {
                for (symbol, venue, ago, bid) in rows {
                    let bid = bid.map(|bid| format!(",bid={bid}.25,note=\"n{bid}\"")).unwrap_or_default();
                    let at_ns = now_ns - ago * SECOND_NS;
                    writeln!(lines, "quotes{},venue=v{venue} ask={ago}{bid} {at_ns}", SYMBOLS[*symbol]).unwrap();
                }
            }
            Event::Company(symbol, owner) => {
                writeln!(lines, "companies,symbol=s{symbol} owner=\"o{owner}\" 1500000000000000000").unwrap();
            }
            Event::Rates(rows) => {
                for (symbol, venue, ago) in rows {
                    let at_ns = now_ns - ago * SECOND_NS;
                    let (symbol, rate) = (SYMBOLS[*symbol], ago % 37);
                    writeln!(lines, "rates{symbol},venue=v{venue} rate={rate},fee={ago}i {at_ns}").unwrap();
                }
            }
            Event::Delete(table, symbol, ago, length) => {
                self.delete_symbol(table, *symbol, now_ns - ago * SECOND_NS, *length);
            }
            Event::Advance(seconds) => self.simulation.advance_ns(seconds * SECOND_NS),
            Event::Pass => drop(self.refresher.pass().unwrap()),
            Event::Settle => self.settle(),
            Event::Compact => drop(self.db.compact(&mut |_| {}).unwrap()),
            Event::Restart | Event::Crash => {}
        }
        if !lines.is_empty() {
            self.write("default", &lines);
        }
    }

    fn delete_symbol(&self, table: &str, symbol: u8, from_ns: i64, seconds: i64) {
        let [from, to] = [from_ns, from_ns + seconds * SECOND_NS].map(sql::format_rfc3339_us);
        self.ask(&format!("DELETE FROM {table} WHERE symbol = 's{symbol}' AND time >= '{from}' AND time < '{to}'"));
    }

    /// Compares rows of some labels with those of all rows that have them.
    fn check_labels(&self, after: &str) {
        for (view, keys, condition) in [
            ("by_venue", 3, "quoted_at = 'v1' AND symbol <> 's0'"),
            ("by_venue", 3, "quoted_at IS NULL"),
            ("by_note", 4, "note IN ('n3', 'n11') OR owner = 'o1'"),
            ("chained", 3, "rate_of = 's1'"),
        ] {
            let (_, _, columns, query) = VIEWS.into_iter().find(|(name, ..)| *name == view).unwrap();
            let rows = |from: &str| sorted(self.ask(&format!("SELECT {columns} FROM {from} WHERE {condition}")), keys);
            assert_eq!(rows(view), rows(&format!("({query}) q")), "{view} where {condition} after {after}");
        }
    }

    /// Compares all views with their queries over the tables.
    fn check_as_of(&self, after: &str) {
        self.check_labels(after);
        let rows = |text: &str| self.ask(text).len();
        let of_columns = format!("SELECT first_bid FROM ({}) q", VIEWS[1].3);
        assert_eq!(rows("SELECT first_bid FROM found"), rows(&of_columns), "rows of columns alone, after {after}");
        for (name, keys, shown, query) in VIEWS {
            let of_view = format!("SELECT {shown} FROM {name}");
            let [found, expected] = [of_view, over_tables(query)].map(|text| sorted(self.ask(&text), keys));
            assert_eq!(found.len(), expected.len(), "{name} after {after}: {found:?} {expected:?}");
            for (found, expected) in found.iter().zip(&expected) {
                let is_same = found.iter().zip(expected).all(|(a, b)| is_close(a, b));
                assert!(is_same, "{name} after {after}: {found:?} {expected:?}");
            }
        }
    }
}

fn live(events: &[Event]) {
    let mut world = world();
    world.make_as_of_views();
    for event in events {
        world.take_quotes_event(event);
        match event {
            Event::Crash => world = world.reopened(Simulation::crash),
            Event::Restart => {
                world.refresher.save().unwrap();
                world.db.close().unwrap();
                world = world.reopened(|_| {});
            }
            _ => {}
        }
        world.check_as_of(&format!("{event:?}"));
    }
    world.settle();
    world.check_as_of("all");
    let old = sql::format_rfc3339_us(world.db.now_ns() - 700 * SECOND_NS);
    for (name, ..) in VIEWS {
        let explained = world.explained(&format!("SELECT * FROM {name} WHERE bucket < '{old}'"));
        assert!(!explained.contains("(computed"), "{name}: {explained}");
    }
}

/// `THALWEG_AS_OF_CASES` says how many cases, and `PROPTEST_RNG_SEED` which.
#[test]
fn views_as_of_a_time_are_the_joins_of_their_tables() {
    const CASES: u32 = 24;
    let cases = std::env::var("THALWEG_AS_OF_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    runner
        .run(&prop::collection::vec(event(), 1..25), |events| {
            live(&events);
            Ok(())
        })
        .unwrap();
}

#[test]
fn questdb_joins_quotes_as_of_trades() {
    let mut world = world();
    world
        .ask_as(
            Manner::QuestDb,
            "CREATE MATERIALIZED VIEW trades_with_quotes WITH BASE trades REFRESH IMMEDIATE AS (
               SELECT t.timestamp, t.symbol, avg(t.price) AS price, max(q.bid) AS bid
               FROM trades t ASOF JOIN quotes q ON (symbol)
               SAMPLE BY 1m
             ) PARTITION BY DAY",
        )
        .unwrap();
    let query = "SELECT t.timestamp, t.symbol, avg(t.price) AS price, max(q.bid) AS bid FROM trades t ASOF JOIN quotes q ON (symbol) SAMPLE BY 1m";
    let check = |world: &World, what: &str| {
        let texts = ["SELECT timestamp, symbol, price, bid FROM trades_with_quotes", query];
        let [found, expected] = texts.map(|text| sorted(world.ask_as(Manner::QuestDb, text).unwrap(), 2));
        assert!(!expected.is_empty());
        assert_eq!(found, expected, "{what}");
    };
    check(&world, "made");
    world.settle();
    let late = [
        Event::Quotes(vec![(0, 0, 400, Some(98)), (1, 1, 4_000, Some(97))]),
        Event::Trades(vec![(0, 0, 395), (2, 1, 4_500)]),
        Event::Delete("quotes", 1, 3_000, 2_800),
        Event::Delete("trades", 0, 420, 60),
    ];
    for event in &late {
        world.take_quotes_event(event);
        check(&world, &format!("{event:?}"));
        world.settle();
        check(&world, &format!("settled after {event:?}"));
        let cut = sql::format_rfc3339_us(world.db.now_ns() - 300 * SECOND_NS);
        let explained = world.explained(&format!("SELECT * FROM trades_with_quotes WHERE timestamp < '{cut}'"));
        assert!(
            explained.contains("rows-of \"trades_with_quotes\"") && !explained.contains("(computed"),
            "{explained}"
        );
    }
    let mut world = world.reopened(Simulation::crash);
    check(&world, "opened again");
    world.settle();
    check(&world, "settled");
    assert_eq!(world.db.view_status("default", "trades_with_quotes").rows_written, 0, "nothing changed");
}

#[test]
fn what_no_view_joins_as_of_a_time_is_refused() {
    let world = world();
    world.ask("CREATE MATERIALIZED VIEW of_quotes AS SELECT time_bucket('1 minute', time) AS bucket, symbol, max(bid) AS bid FROM quotes GROUP BY 1, 2");
    let (_, _, _, plain) = VIEWS[0];
    let changed = |from: &str, to: &str| {
        assert!(plain.contains(from), "{from}");
        plain.replace(from, to)
    };
    let joins = "ASOF JOIN quotes q ON (symbol)";
    let refused = |query: &str, expected: &str| {
        let error = world.ask_as(Manner::Postgres, &format!("CREATE MATERIALIZED VIEW x AS {query}")).unwrap_err();
        assert!(error.contains(expected), "{query}: {error}");
    };
    refused(&changed(joins, "ASOF JOIN of_quotes q ON (symbol)"), "a joined table is none of a view");
    for query in [
        "SELECT symbol, bid * 2 AS bid, time FROM quotes",
        "SELECT symbol AS s, bid, time FROM quotes",
        "SELECT symbol, max(bid) AS bid FROM quotes GROUP BY symbol",
        "SELECT * FROM quotes LIMIT 5",
        "SELECT DISTINCT symbol, bid, time FROM quotes",
        "SELECT * FROM (SELECT * FROM quotes) q",
        "SELECT q.* FROM quotes q JOIN rates ON (symbol)",
        "SELECT * FROM quotes UNION SELECT * FROM quotes",
    ] {
        refused(
            &changed(joins, &format!("ASOF JOIN ({query}) q ON (symbol)")),
            "a query within the FROM of a materialised view",
        );
    }
    for (query, expected) in [
        ("SELECT symbol, bid FROM quotes", "shows its table's time"),
        ("SELECT time, bid FROM quotes", "\"symbol\""),
        ("SELECT * FROM quotes WHERE bid IS NOT NULL", "as of a time compares tags of its table"),
        ("SELECT * FROM quotes WHERE time > '2020-01-01'", "as of a time compares tags of its table"),
        ("SELECT time, symbol, ask FROM quotes", "q.bid"),
    ] {
        refused(&changed(joins, &format!("ASOF JOIN ({query}) q ON (symbol)")), expected);
    }
    refused(&changed(joins, "ASOF JOIN quotes q ON t.symbol = q.note"), "by tags of its first table");
    refused(&changed(joins, "ASOF JOIN quotes q ON t.price = q.bid"), "by tags of its first table");
    refused(&changed(joins, "ASOF JOIN quotes q ON t.symbol = q.symbol AND q.bid > 3"), "by tags of its first table");
    refused(
        &changed(joins, "JOIN companies c USING (symbol) ASOF JOIN quotes q ON c.owner = q.venue"),
        "by tags of its first table",
    );
    refused(&changed(joins, &format!("{joins} TOLERANCE 1M")), "of a fixed length");
    refused(&changed("GROUP BY", "WHERE q.time > t.time GROUP BY"), "compares the rows' time with moments");
    refused(&changed("GROUP BY", "WHERE q.note LIKE 'n1%' GROUP BY"), "WHERE: a materialised view has LIKE");
    refused(&changed("t.symbol", "q.venue"), "has the name of a tag of \"trades\": show it by another name");
    refused(&changed("t.symbol", "q.bid AS of"), "\"bid\" is no tag, and no text of a joined table");
    refused(&changed("GROUP BY", "WHERE q.venue LIKE 'v%' GROUP BY"), "WHERE: a materialised view has LIKE");
    refused(&changed("time_bucket('1 minute', t.time)", "time_bucket('1 minute', q.time)"), "is grouped by windows");
    refused(&changed("max(q.bid)", "last(q.bid)"), "are by all tags of its first table");
    refused(&changed("max(q.bid)", "max(q.time)"), "of a joined table");
    refused(&changed("ON (symbol)", "ON t.symbol = q.symbol AND t.time < q.time"), "compares the times of both tables");
    refused(&changed("t.symbol,", "q.venue AS bucket,"), "has the column \"bucket\" twice");
    let by_venue = changed("t.symbol,", "q.venue AS quoted_at,");
    refused(&by_venue.replace("max(q.bid)", "counter_increase(t.size)"), "the increase of a counter");
    refused(&changed("max(q.bid)", "last(q.bid - t.price)"), "are by all tags of its first table");
}

/// A table stays as long as a view joins it, and is none that a view writes.
#[test]
fn a_joined_table_is_neither_dropped_nor_written_by_a_view() {
    let world = world();
    let (name, _, _, plain) = VIEWS[0];
    world.ask(&format!("CREATE MATERIALIZED VIEW {name} AS {plain}"));
    let fails = |text: &str, expected: &str| {
        let error = world.ask_as(Manner::Postgres, text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    };
    fails("DROP TABLE quotes", "drop the view first");
    let error = world
        .influxql("default", "CREATE CONTINUOUS QUERY c ON \"default\" BEGIN SELECT mean(size) AS bid INTO quotes FROM trades GROUP BY time(1m) END")
        .map_or_else(|error| error, |answer| format!("{answer:?}"));
    assert!(
        error.contains("joins the table \\\"quotes\\\"") || error.contains("joins the table \"quotes\""),
        "{error}"
    );
}

#[test]
fn a_table_whose_rows_go_is_joined_with_a_tolerance() {
    let world = world();
    let (_, _, _, plain) = VIEWS[0];
    let within = plain.replace("ON (symbol)", "ON (symbol) TOLERANCE 10m");
    let fails = |text: &str, expected: &str| {
        let error = world.ask_as(Manner::Postgres, text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    };
    world.ask(&format!("CREATE MATERIALIZED VIEW plain AS {plain}"));
    fails("ALTER TABLE quotes SET TTL 1h", "may be of any age");
    let policy = |seconds: i64| DatabasePolicy { retention_ns: seconds * SECOND_NS, ..DatabasePolicy::default() };
    let error = world.db.set_policy("default", &policy(36_000)).unwrap_err().to_string();
    assert!(error.contains("may be of any age"), "{error}");
    world.ask("ALTER TABLE trades SET TTL 10h");
    world.ask("DROP MATERIALIZED VIEW plain");
    world.ask("ALTER TABLE quotes SET TTL 1h");
    fails(&format!("CREATE MATERIALIZED VIEW plain AS {plain}"), "may be of any age");
    world.ask(&format!("CREATE MATERIALIZED VIEW within AS {within}"));
    let error = world.db.set_policy("default", &policy(600)).unwrap_err().to_string();
    assert!(error.contains("would keep rows for 10m,"), "{error}");
    world.db.set_policy("default", &policy(3_600)).unwrap();
    let longer = within.replace("10m", "59m");
    fails(&format!("CREATE MATERIALIZED VIEW longer AS {longer}"), "would keep rows for 1h,");
}

#[test]
fn columns_of_the_other_table_are_added() {
    let mut world = world();
    let (_, _, _, plain) = VIEWS[0];
    world.ask(&format!("CREATE MATERIALIZED VIEW plain AS {plain}"));
    world.settle();
    world.ask("ALTER MATERIALIZED VIEW plain ADD COLUMN ask AS min(q.ask)");
    let wider = plain.replace("count(*) AS n", "min(q.ask) AS ask, count(*) AS n");
    for _ in ["added", "settled"] {
        let texts = ["SELECT bucket, symbol, price, bid, ask, n FROM plain", &wider];
        let [found, expected] = texts.map(|text| sorted(world.ask(text), 2));
        assert_eq!(found, expected);
        world.settle();
    }
    let shown = world.ask("SHOW CREATE MATERIALIZED VIEW plain")[0][0].to_string();
    assert!(shown.contains("ASOF JOIN quotes"), "{shown}");
}

#[test]
fn accounts_with_rights_on_a_label_do_not_read_joins_as_of_a_time() {
    let world = world();
    let (_, _, _, plain) = VIEWS[0];
    world.ask(&format!("CREATE MATERIALIZED VIEW plain AS {plain}"));
    let grants = vec!["read:default{symbol=\"s0\"}".parse().unwrap()];
    let scope = Scope { is_server_admin: false, grants, ..Scope::clone(&Scope::open()) };
    let client = ClientContext::new("default", world.db.now_ns());
    let budget = Arc::new(World::budget().for_scope(Arc::new(scope)));
    let error = world.db.sql(&sql::parse("SELECT * FROM plain").unwrap(), 0, &client, &budget).unwrap_err().to_string();
    assert!(error.contains("joins the table \"quotes\""), "{error}");
}

/// Of the other table the newest row of each series that counts is read, and what lies between the rows: more is too much.
#[test]
fn little_is_read_of_the_other_table() {
    let mut world = world();
    let now_ns = world.db.now_ns();
    let mut lines = String::new();
    for row in 0..20_000 {
        let at_ns = now_ns - (5_000 + row) * SECOND_NS;
        writeln!(lines, "quotes,symbol=s{},venue=v9 ask=1,bid={} {at_ns}", row % 10, row % 7).unwrap();
    }
    world.write("default", &lines);
    world.ask(&format!("CREATE MATERIALIZED VIEW plain AS {}", VIEWS[0].3));
    let ask = |world: &World, samples: u64| {
        let plan = query::parse("(->> (rows-of \"plain\"))", 0).unwrap();
        world.db.run_plan("default", &plan, &Budget::new(samples)).map(|outcome| outcome.reads.samples)
    };
    let read = ask(&world, 50_000_000).unwrap();
    assert!(read < 500, "{read}");
    // Rows of long ago have all of them read that are between.
    for ago in [24_000, 21_500] {
        world.write("default", &format!("trades,symbol=s0,venue=v0 price=1,size=1i {}", now_ns - ago * SECOND_NS));
    }
    assert!(ask(&world, 50_000_000).unwrap() > 200);
    let error = ask(&world, 200).unwrap_err().to_string();
    assert!(error.contains("samples"), "{error}");
    world.settle();
    assert_eq!(world.db.view_status("default", "plain").error, None);
    let query = format!("SELECT bid, n FROM ({}) p ORDER BY bucket, symbol", VIEWS[0].3);
    assert_eq!(world.ask("SELECT bid, n FROM plain ORDER BY bucket, symbol"), world.ask(&query));
}

/// A document that was written is read as it was, whatever versions come.
#[test]
fn documents_of_joins_as_of_a_time_are_as_they_were_written() {
    let world = world();
    let (_, _, _, recent) = VIEWS[2];
    world.ask(&format!("CREATE MATERIALIZED VIEW recent AS {recent}"));
    let golden = "(->>\n  (rows-of \"trades\")\n  \
                  (as-of (->> (rows-of \"quotes\")) (on '(\"symbol\" \"symbol\")) (columns '(\"__1.ask\" \"ask\" \"__1.bid\" \"bid\")) (earlier) (within 1m30s))\n  \
                  (groupby 2m '((min \"__1.bid\") (max \"__1.ask\") (count #TS)) (by '(\"symbol\" \"venue\")))\n  \
                  (map \"bid\" (column \"min __1.bid\") \"spread\" (- (column \"max __1.ask\") (column \"min __1.bid\")) \"__rows\" (coalesce (column \"count #TS\") 0)))";
    assert_eq!(world.stored_plans(), [golden; 2]);
}

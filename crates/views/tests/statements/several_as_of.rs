//! Views that join several tables as of a time: which windows rows of each change, and what is refused.

use model::{METRIC_NAME, MatchOp, Matcher, TimeRange};
use platform::sim::Simulation;
use sql::Manner;

use crate::as_of::{Event, VIEWS, world};
use crate::world::{SECOND_NS, World, sorted};

/// The view with quotes of any age and rates of two minutes, and its query.
fn both() -> &'static str {
    let (name, _, _, query) = VIEWS[6];
    assert_eq!(name, "both");
    query
}

/// The query with a part of it replaced.
fn changed(from: &str, to: &str) -> String {
    assert!(both().contains(from), "{from}");
    both().replace(from, to)
}

fn create(name: &str, query: &str) -> String {
    format!("CREATE MATERIALIZED VIEW {name} AS {query}")
}

fn check(world: &World, query: &str, shown: &str, what: &str) {
    let texts = [format!("SELECT {shown} FROM both"), format!("SELECT {shown} FROM ({query}) q")];
    let [found, expected] = texts.map(|text| sorted(world.ask(&text), 3));
    assert!(!expected.is_empty());
    assert_eq!(found, expected, "{what}");
}

/// The windows of the past that are to be computed again, which a delete has told.
fn pending(world: &World) -> Vec<TimeRange> {
    let state = &world.db.view("default", "both").unwrap().state;
    state.pending.iter().map(|pending| pending.range).collect()
}

#[test]
fn rows_of_each_table_change_the_windows_that_its_own_join_reaches() {
    let mut world = world();
    let shown = "bucket, symbol, venue, bid, rate, rates, n";
    world.ask(&create("both", both()));
    check(&world, both(), shown, "made");
    world.settle();
    assert_eq!(pending(&world), []);
    // A second of a row and the reach of the join after it, as whole minutes: quotes are of any age, rates of two minutes.
    let now_ns = world.db.now_ns();
    let view = world.db.view("default", "both").unwrap();
    let windows = |from_ns: i64, reach_ns: i64| {
        let end_ns = (from_ns + SECOND_NS - 1).saturating_add(reach_ns);
        let of_row = view.windows_of(&TimeRange::new(from_ns, end_ns));
        TimeRange::new(of_row.start_ns, of_row.end_ns.min(view.state.watermark_ns - 1))
    };
    for (table, ago, reach_ns) in
        [("rates", 287, 120 * SECOND_NS), ("quotes", 348, i64::MAX), ("trades", 330, 0), ("companies", 330, -1)]
    {
        world.take_quotes_event(&Event::Delete(table, 0, ago, 1));
        let from_ns = now_ns - ago * SECOND_NS;
        let expected = if reach_ns < 0 { Vec::new() } else { vec![windows(from_ns, reach_ns)] };
        assert_eq!(pending(&world), expected, "{table}");
        check(&world, both(), shown, table);
        world.settle();
        check(&world, both(), shown, &format!("settled after {table}"));
    }
    let late = [
        Event::Quotes(vec![(0, 0, 400, Some(98)), (1, 1, 4_000, Some(97))]),
        Event::Rates(vec![(0, 0, 501), (2, 1, 4_510), (0, 0, 345), (0, 1, 344)]),
        Event::Trades(vec![(0, 0, 395), (2, 1, 4_500)]),
    ];
    for event in &late {
        let before = sorted(world.ask(both()), 3);
        world.take_quotes_event(event);
        assert_ne!(sorted(world.ask(both()), 3), before, "{event:?} changes nothing");
        check(&world, both(), shown, &format!("{event:?}"));
        world.settle();
        check(&world, both(), shown, &format!("settled after {event:?}"));
        let old = sql::format_rfc3339_us(world.db.now_ns() - 300 * SECOND_NS);
        let explained = world.explained(&format!("SELECT * FROM both WHERE bucket < '{old}'"));
        assert!(explained.contains("rows-of \"both\"") && !explained.contains("(computed"), "{explained}");
    }
    let mut world = world.reopened(Simulation::crash);
    check(&world, both(), shown, "opened again");
    world.settle();
    check(&world, both(), shown, "settled");
    assert_eq!(world.db.view_status("default", "both").rows_written, 0, "nothing changed");
}

#[test]
fn deletes_by_matchers_are_of_the_table_of_their_metrics() {
    let mut world = world();
    world.ask(&create("both", both()));
    world.settle();
    let now_ns = world.db.now_ns();
    let view = world.db.view("default", "both").unwrap();
    let last_ns = view.state.watermark_ns - 1;
    let range = TimeRange::new(now_ns - 400 * SECOND_NS, now_ns - 399 * SECOND_NS);
    let near = view.windows_of(&TimeRange::new(range.start_ns, range.end_ns + 120 * SECOND_NS));
    let far = TimeRange::new(near.start_ns, last_ns);
    let own = view.windows_of(&range);
    assert!(near.end_ns < last_ns && own.end_ns < near.end_ns);
    let all: [(&[&str], Vec<TimeRange>); 8] = [
        (&["rates_rate"], vec![near]),
        (&["rates_rate", "rates_fee"], vec![near]),
        (&["trades_size"], vec![own]),
        (&["quotes_bid"], vec![far]),
        (&["rates_rate", "trades_size"], vec![far]),
        (&["companies_owner"], vec![]),
        (&["none_such"], vec![far]),
        (&["both_bid"], vec![far]),
    ];
    for (metrics, expected) in all {
        let sets: Vec<Vec<Matcher>> = metrics
            .iter()
            .map(|metric| {
                [Matcher::new(METRIC_NAME, MatchOp::Equal, *metric), Matcher::new("venue", MatchOp::Equal, "v0")]
                    .to_vec()
            })
            .collect();
        world.db.delete("default", &sets, &range).unwrap();
        assert_eq!(pending(&world), expected, "{metrics:?}");
        world.settle();
        check(&world, both(), "bucket, symbol, venue, bid, rate, rates, n", &format!("{metrics:?}"));
    }
}

#[test]
fn columns_of_the_second_table_are_added() {
    let mut world = world();
    world.ask(&create("both", both()));
    world.settle();
    world.ask("ALTER MATERIALIZED VIEW both ADD COLUMN fee AS max(r.fee)");
    world.ask("ALTER MATERIALIZED VIEW both ADD COLUMN ask AS min(q.ask)");
    let wider = changed("count(*) AS n", "max(r.fee) AS fee, min(q.ask) AS ask, count(*) AS n");
    let shown = "bucket, symbol, venue, bid, rate, fee, ask, n";
    check(&world, &wider, shown, "added");
    let mut world = world.reopened(Simulation::crash);
    check(&world, &wider, shown, "opened again");
    world.settle();
    check(&world, &wider, shown, "settled");
    world.take_quotes_event(&Event::Rates(vec![(1, 1, 200), (0, 0, 600)]));
    check(&world, &wider, shown, "late");
    world.settle();
    check(&world, &wider, shown, "settled again");
}

#[test]
fn joins_by_values_that_are_joined_before_and_too_many_tables_are_refused() {
    let world = world();
    let refused = |query: &str, expected: &str| {
        let error = world.ask_as(Manner::Postgres, &create("x", query)).unwrap_err();
        assert!(error.contains(expected), "{query}: {error}");
    };
    let by_tags = "or tags and texts of one that is joined so before";
    refused(&changed("t.venue = r.venue", "t.venue = r.rate"), by_tags);
    refused(&changed("t.venue = r.venue", "t.venue = r.venue AND q.bid = r.symbol"), by_tags);
    refused(&changed("t.venue = r.venue", "t.venue = r.venue AND q.time >= r.time"), by_tags);
    refused(&changed("t.venue = r.venue", "t.venue = r.venue AND q.bid > r.rate"), by_tags);
    refused(
        &changed("GROUP BY", "WHERE q.bid > 3 OR q.time > r.time GROUP BY"),
        "nothing from \"time\" of a joined table",
    );
    refused(&changed("max(q.bid)", "max(q.bid + r.time)"), "operator does not exist");
    let more = |count: usize| {
        let joins: Vec<String> = (0..count).map(|number| format!("ASOF JOIN quotes q{number} ON (symbol)")).collect();
        changed("LT JOIN rates", &format!("{} LT JOIN rates", joins.join(" ")))
    };
    refused(&more(3), "join it with up to 4 tables");
    world.ask(&create("four", &more(2)));
}

#[test]
fn none_of_the_tables_loses_rows_or_is_dropped() {
    let world = world();
    world.ask(&create("both", both()));
    let fails = |text: &str, expected: &str| {
        let error = world.ask_as(Manner::Postgres, text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    };
    ["quotes", "rates"].iter().for_each(|table| fails(&format!("DROP TABLE {table}"), "drop the view first"));
    // A TTL is for a table that is joined with a TOLERANCE.
    fails(
        "ALTER TABLE quotes SET TTL 10h",
        "a row of \"quotes\" that the view \"both\" finds as of a time may be of any age",
    );
    world.ask("ALTER TABLE rates SET TTL 10h");
    world.ask("DROP MATERIALIZED VIEW both");
    world.ask(&create("both", both()));
    world.ask("DROP MATERIALIZED VIEW both");
    world.ask("ALTER TABLE quotes SET TTL 10h");
    fails(&create("both", both()), "may be of any age");
}

/// A document that was written is read as it was, whatever versions come.
#[test]
fn documents_of_several_joins_as_of_a_time_are_as_they_were_written() {
    let world = world();
    world.ask(&create("both", both()));
    let golden = "(->>\n  (rows-of \"trades\")\n  \
                  (as-of (->> (rows-of \"quotes\")) (on '(\"symbol\" \"symbol\")) (columns '(\"__1.bid\" \"bid\")))\n  \
                  (as-of (->> (rows-of \"rates\")) (on '(\"venue\" \"venue\")) (columns '(\"__2.rate\" \"rate\")) (earlier) (within 2m))\n  \
                  (groupby 1m '((max \"__1.bid\") (last \"__2.rate\") (count \"__2.rate\") (count #TS)) (by '(\"symbol\" \"venue\")))\n  \
                  (map \"bid\" (column \"max __1.bid\") \"rate\" (column \"last __2.rate\") \"rates\" (coalesce (column \"count __2.rate\") 0) \
                  \"n\" (coalesce (column \"count #TS\") 0)))";
    assert_eq!(world.stored_plans(), [golden; 2]);
}

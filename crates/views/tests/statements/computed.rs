//! Aggregates of what is computed from rows, of those that FILTER leaves, and of CASE, are their queries over the source.

use std::cell::Cell;
use std::fmt::Write;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use platform::sim::Simulation;
use sql::{Manner, Value};

use crate::world::{SECOND_NS, World, is_close, sorted};

/// Columns of views, each with what it is: of floats, whole numbers, flags, texts, tags and times, with nulls, zeros by zeros, and values that are all left out.
const COLUMNS: [(&str, &str); 41] = [
    ("vwap", "sum(price * amount) / sum(amount)"),
    ("spent", "sum(price * amount)"),
    ("busy", "count(*) FILTER (WHERE price > 90)"),
    ("calm", "sum(amount) FILTER (WHERE price <= 10 AND amount IS NOT NULL)"),
    ("failed", "sum(CASE WHEN status >= 500 THEN 1 ELSE 0 END)"),
    ("share", "avg(CASE WHEN status >= 500 THEN 1.0 ELSE 0.0 END)"),
    ("distance", "avg(abs(price - 50))"),
    ("either", "max(coalesce(amount, price))"),
    ("or_none", "max(coalesce(amount, 0))"),
    ("ratio_n", "count(price / amount)"),
    ("ratio_min", "min(price / amount)"),
    ("ratio_max", "max(amount / price)"),
    ("ratio_above", "count(*) FILTER (WHERE price / amount > 2)"),
    ("ratio_at_least", "count(*) FILTER (WHERE 2 <= price / amount)"),
    ("ratio_below", "count(*) FILTER (WHERE price / amount < amount / price)"),
    ("ratio_not", "count(*) FILTER (WHERE NOT (price / amount < 2))"),
    ("ratio_same", "count(*) FILTER (WHERE price / amount = price / amount)"),
    ("ratio_other", "count(*) FILTER (WHERE price / amount <> 1)"),
    ("negative", "sum(-price)"),
    ("opposite", "min(-(price - 100) - amount - 1)"),
    ("remainder", "sum(price % 7)"),
    ("remainder_of_it", "sum(price % 7 % 4)"),
    ("level", "CASE WHEN sum(price) / sum(amount) > 2 THEN 'high' ELSE 'low' END"),
    ("rounded", "sum(round(price / 4) + ceil(price / 8) - floor(price / 16))"),
    ("root", "max(sqrt(abs(price - 50)))"),
    ("of_status", "sum(status::double precision * 2)"),
    ("whole", "min(status) FILTER (WHERE status <> 404)"),
    ("class", "count(DISTINCT CASE WHEN status < 300 THEN 'good' WHEN status < 500 THEN 'odd' ELSE 'bad' END)"),
    ("kinds", "count(DISTINCT status) FILTER (WHERE is_buy)"),
    ("buys", "count(*) FILTER (WHERE is_buy)"),
    ("sells", "count(*) FILTER (WHERE is_buy IS FALSE)"),
    ("unknown", "count(*) FILTER (WHERE is_buy IS NULL)"),
    ("not_buys", "count(*) FILTER (WHERE NOT is_buy OR status = 404)"),
    ("notes", "count(note) FILTER (WHERE note IN ('a', 'b'))"),
    ("no_notes", "count(*) FILTER (WHERE note NOT IN ('a', 'b'))"),
    ("of_venue", "sum(price) FILTER (WHERE venue = 'x')"),
    ("venues", "count(DISTINCT venue) FILTER (WHERE price > 20)"),
    ("without", "count(*) FILTER (WHERE venue IS NULL)"),
    ("early", "count(*) FILTER (WHERE time < '2020-01-01')"),
    ("none", "sum(price) FILTER (WHERE price > 1000000)"),
    (
        "odd",
        "sum(nullif(amount, 0)) FILTER (WHERE CASE symbol WHEN 'A' THEN price > 10 ELSE price BETWEEN 20 AND 80 END)",
    ),
];

/// Rows of half an hour, of three series of which one has no venue.
pub(crate) fn world() -> World {
    let world = World::empty(17);
    let now_ns = world.db.now_ns();
    world.write("default", &rows(now_ns, 0..360));
    world
}

pub(crate) fn rows(now_ns: i64, numbers: std::ops::Range<i64>) -> String {
    let mut lines = String::new();
    for number in numbers {
        let series = ["symbol=A,venue=x", "symbol=A,venue=y", "symbol=B"][number as usize % 3];
        let (price, amount) = (number * 7 % 101, number * 5 % 13);
        let price = if number % 11 == 0 { 0.0 } else { price as f64 / 4.0 * 4.5 };
        let mut fields = format!("price={price},status={}i", [200, 404, 500, 503][number as usize % 4]);
        if number % 5 != 0 {
            write!(fields, ",amount={}", amount % 4).unwrap();
        }
        if number % 7 < 5 {
            write!(fields, ",is_buy={}", number % 2 == 0).unwrap();
        }
        if number % 3 > 0 {
            write!(fields, ",note=\"{}\"", ["a", "b", "c"][number as usize / 3 % 3]).unwrap();
        }
        writeln!(lines, "trades,{series} {fields} {}", now_ns - number * 5 * SECOND_NS).unwrap();
    }
    lines
}

/// The query of some columns, of the table or of its rows as SQL computes with them itself.
pub(crate) fn query(columns: &[(&str, &str)], from: &str, by: &str) -> String {
    let shown: Vec<String> = columns.iter().map(|(name, of)| format!("{of} AS {name}")).collect();
    let keys = if by.is_empty() { "1".to_owned() } else { format!("1, {by}") };
    let by = if by.is_empty() { String::new() } else { format!("{by}, ") };
    format!("SELECT time_bucket('1 minute', time) AS bucket, {by}{} FROM {from} GROUP BY {keys}", shown.join(", "))
}

impl World {
    /// Compares the view `v` with its query over the table, and with that over the rows of the table.
    fn check_computed(&self, columns: &[(&str, &str)], by: &str, after: &str) {
        self.check_where("v", (columns, by), "", after);
    }

    /// As [`Self::check_computed`], of a view of rows for which a condition holds, which is written with its `WHERE`.
    pub(crate) fn check_where(&self, view: &str, (columns, by): (&[(&str, &str)], &str), condition: &str, after: &str) {
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let shown = if by.is_empty() { String::new() } else { format!("{by}, ") };
        let keys = 1 + by.split(", ").filter(|tag| !tag.is_empty()).count();
        let found = sorted(self.ask(&format!("SELECT bucket, {shown}{} FROM {view}", names.join(", "))), keys);
        for from in ["trades", "(SELECT * FROM trades LIMIT 100000) q"] {
            let expected = sorted(self.ask_tables(&query(columns, &format!("{from} {condition}"), by)), keys);
            assert_eq!(found.len(), expected.len(), "{after}, {from} {condition}");
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found[..keys], expected[..keys], "{after}, {from}");
                for ((a, b), (name, _)) in found[keys..].iter().zip(&expected[keys..]).zip(columns) {
                    // Plans have the largest of the numbers, as of columns; where SQL computes row by row NaN is above them.
                    let has_nan = *name == "ratio_max" && from != "trades";
                    assert!(
                        has_nan || a == b || is_close(a, b),
                        "{after}, {from} {condition}: {name} is {a:?}, not {b:?}"
                    );
                }
            }
        }
    }

    /// As [`Self::check_computed`], before the refresher knows of what happened and after that.
    fn check_computed_twice(&mut self, columns: &[(&str, &str)], by: &str, after: &str) {
        self.check_computed(columns, by, after);
        self.settle();
        self.check_computed(columns, by, &format!("{after}, settled"));
    }
}

/// Everything that can happen to the rows of a view, step by step.
fn computed_like(by: &str) {
    let mut world = world();
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {}", query(&COLUMNS, "trades", by)));
    world.check_computed_twice(&COLUMNS, by, "made");
    let now_ns = world.db.now_ns();
    world.write("default", &rows(now_ns - 3 * SECOND_NS, 30..200));
    world.check_computed_twice(&COLUMNS, by, "late rows");
    world.ask("DELETE FROM trades WHERE symbol = 'B'");
    world.check_computed_twice(&COLUMNS, by, "rows are deleted");
    let mut world = world.reopened(Simulation::crash);
    world.check_computed_twice(&COLUMNS, by, "after a crash");
    world.simulation.advance_ns(200 * SECOND_NS);
    world.write("default", &rows(world.db.now_ns(), 0..60));
    world.check_computed_twice(&COLUMNS, by, "time goes on");
}

#[test]
fn a_view_of_what_is_computed_is_its_query() {
    computed_like("symbol");
}

#[test]
fn a_view_of_what_is_computed_of_all_series_is_its_query() {
    computed_like("");
}

/// Every aggregate of what is computed, by all tags: there first and last are known.
const OF_ONE: [(&str, &str); 15] = [
    ("a", "count(price * amount)"),
    ("b", "sum(price * amount)"),
    ("c", "avg(price * amount)"),
    ("d", "min(price * amount)"),
    ("e", "max(price * amount)"),
    ("f", "first(price * amount, time)"),
    ("g", "last(price * amount) FILTER (WHERE amount > 1)"),
    ("h", "stddev(price * amount)"),
    ("i", "var_pop(price * amount) FILTER (WHERE is_buy)"),
    ("j", "squared_deviations(price * amount)"),
    ("k", "median(price * amount)"),
    ("l", "approx_percentile(0.9, price * amount) FILTER (WHERE price > 20)"),
    ("m", "approx_count_distinct(CASE WHEN amount > 1 THEN note END)"),
    ("n", "count(DISTINCT price * amount)"),
    ("o", "max(CASE WHEN amount > 1 THEN note END)"),
];

#[test]
fn all_aggregates_are_of_what_is_computed() {
    let mut world = world();
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {}", query(&OF_ONE, "trades", "symbol, venue")));
    world.check_computed_twice(&OF_ONE, "symbol, venue", "made");
    let [before, after] = world.stored_plans();
    assert_eq!(before, after);
    assert!(before.contains("(map \"(* #price #amount)\" (* (column \"price\") (column \"amount\"))"), "{before}");
}

/// Wider windows are made of counts, sums, squares and sketches of what is computed, and of what is computed from columns of a view.
#[test]
fn views_of_views_are_made_of_what_is_computed() {
    let mut world = world();
    world.ask(
        "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, symbol, count(price * amount) AS n, sum(price * amount) AS total, \
         squared_deviations(price * amount) AS squares, count(*) FILTER (WHERE price > 50) AS high, quantile_sketch(abs(price - 50)) AS sketch, \
         sum(price * amount) FILTER (WHERE is_buy) AS bought, avg(price + amount) AS middle FROM trades GROUP BY 1, 2",
    );
    world.ask(
        "CREATE MATERIALIZED VIEW w AS SELECT time_bucket('10 minutes', bucket) AS bucket, sum(total) / sum(n) AS mean, sum(high) AS high, sum(bought) AS bought, \
         sum(coalesce(bought, 0) * 2) AS twice, count(*) FILTER (WHERE bought IS NULL) AS idle, approx_percentile(0.9, sketch) AS p90, approx_percentile(0.9, sketch) FILTER (WHERE n >= 0) AS p90_of, \
         stddev(n, total, squares) AS spread FROM v GROUP BY 1",
    );
    let of_table = "SELECT time_bucket('10 minutes', time) AS bucket, avg(price * amount), count(*) FILTER (WHERE price > 50), sum(price * amount) FILTER (WHERE is_buy), \
                    2 * coalesce(sum(price * amount) FILTER (WHERE is_buy), 0), approx_percentile(0.9, abs(price - 50)), approx_percentile(0.9, abs(price - 50)), stddev(price * amount) FROM trades GROUP BY 1";
    let of_minutes = "SELECT time_bucket('10 minutes', bucket) AS bucket, count(*) FILTER (WHERE bought IS NULL) FROM (SELECT time_bucket('1 minute', time) AS bucket, symbol, \
                      sum(price * amount) FILTER (WHERE is_buy) AS bought FROM trades GROUP BY 1, 2) m GROUP BY 1";
    let check = |world: &World, after: &str| {
        for (shown, expected) in [("mean, high, bought, twice, p90, p90_of, spread", of_table), ("idle", of_minutes)] {
            let found = sorted(world.ask(&format!("SELECT bucket, {shown} FROM w")), 1);
            let expected = sorted(world.ask(expected), 1);
            assert!(found.len() == expected.len() && found.len() > 2, "{after}: {found:?} {expected:?}");
            for (found, expected) in found.iter().zip(&expected) {
                assert!(found.iter().zip(expected).all(|(a, b)| is_close(a, b)), "{after}: {found:?} {expected:?}");
            }
        }
    };
    check(&world, "made");
    world.settle();
    check(&world, "settled");
    world.write("default", &rows(world.db.now_ns() - 2 * SECOND_NS, 100..140));
    world.ask("DELETE FROM trades WHERE symbol = 'A' AND venue = 'y'");
    check(&world, "changed");
    world.settle();
    check(&world, "settled again");
    // What the view keeps of the mean, by the name that plans know it by.
    let plan = "(->> (rows-of \"v\" '(\"__sum_(+_#price_#amount)\")) (groupby all (sum \"__sum_(+_#price_#amount)\") (by '())))";
    let kept = world.db.run_plan("default", &query::parse(plan, 0).unwrap(), &World::budget()).unwrap().frames;
    let expected = world.ask("SELECT sum(price + amount) FROM trades");
    assert!(is_close(&Value::from(kept[0].columns[0].cell(0)), &expected[0][0]), "{kept:?} {expected:?}");
}

#[test]
fn columns_that_are_added_may_be_computed() {
    let mut world = world();
    let plain = [("peak", "max(price)"), ("mean", "avg(amount)")];
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {}", query(&plain, "trades", "symbol")));
    world.settle();
    let added = [
        ("spent", "sum(price * amount)"),
        ("high", "count(*) FILTER (WHERE price > 50)"),
        ("low", "min(price)"),
        ("middle", "avg(price * amount)"),
        ("total", "sum(amount)"),
    ];
    let mut columns = plain.to_vec();
    for (name, of) in added {
        world.ask(&format!("ALTER MATERIALIZED VIEW v ADD COLUMN {name} AS {of}"));
        columns.push((name, of));
        world.check_computed(&columns, "symbol", name);
        if name == "low" {
            world.settle();
            world = world.reopened(Simulation::crash);
        }
    }
    world.check_computed_twice(&columns, "symbol", "all added");
    // What was kept besides has the names that it had.
    let view = world.db.view("default", "v").unwrap();
    let names: Vec<&str> = view.definition.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"__sum_amount") && names.contains(&"__count_(*_#price_#amount)"), "{names:?}");
    world.write("default", &rows(world.db.now_ns() - 2 * SECOND_NS, 100..140));
    world.check_computed_twice(&columns, "symbol", "late rows");
}

#[test]
fn both_dialects_have_what_is_computed() {
    let mut world = world();
    world
        .ask_as(
            Manner::QuestDb,
            "CREATE MATERIALIZED VIEW trades_5m AS (SELECT timestamp, symbol, sum(price*amount)/sum(amount) vwap, sum(case when status >= 500 then 1 else 0 end) failed FROM trades SAMPLE BY 5m) PARTITION BY DAY",
        )
        .unwrap();
    world.ask(
        "CREATE MATERIALIZED VIEW v WITH (timescaledb.continuous) AS SELECT time_bucket(INTERVAL '5 minutes', time) AS bucket, symbol, \
         sum(price * amount) / sum(amount) AS vwap, count(*) FILTER (WHERE status >= 500) AS failed FROM trades GROUP BY bucket, symbol",
    );
    for after in ["made", "settled"] {
        let expected = sorted(
            world.ask("SELECT time_bucket('5 minutes', time), symbol, sum(price * amount) / sum(amount), count(*) FILTER (WHERE status >= 500) FROM trades GROUP BY 1, 2"),
            2,
        );
        for of_view in
            ["SELECT timestamp, symbol, vwap, failed FROM trades_5m", "SELECT bucket, symbol, vwap, failed FROM v"]
        {
            assert_eq!(sorted(world.ask(of_view), 2), expected, "{after}: {of_view}");
        }
        world.settle();
    }
}

/// A long expression has a name that is not, and columns of a table that are called as expressions are do not stand in their way.
#[test]
fn names_of_what_is_computed_are_bounded_and_their_own() {
    let mut world = world();
    let odd = format!("trades,symbol=A,venue=x (*\\ #price\\ #amount)=5 {}", world.db.now_ns());
    world.write("default", &odd);
    let terms: Vec<String> = (0..60).map(|number| format!("price * {number}.5")).collect();
    let long = format!("avg({})", terms.join(" + "));
    let branches: Vec<String> = (0..60).map(|number| format!("WHEN price < {number} THEN {number}")).collect();
    let cases = format!("sum(CASE {} ELSE 60 END)", branches.join(" "));
    let columns = [
        ("long", long.as_str()),
        ("cases", cases.as_str()),
        ("own", "sum(\"(* #price #amount)\")"),
        ("spent", "sum(price * amount)"),
        ("quoted", r#"avg(CASE WHEN note = 'a"b,=c\d ''e''' THEN 1.5 ELSE price END)"#),
    ];
    world.ask(&format!("CREATE MATERIALIZED VIEW v AS {}", query(&columns, "trades", "symbol")));
    world.check_computed_twice(&columns, "symbol", "made");
    let mut world = world.reopened(Simulation::crash);
    world.check_computed_twice(&columns, "symbol", "after a crash");
    let view = world.db.view("default", "v").unwrap();
    assert!(view.definition.fields.iter().all(|(name, _)| name.len() < 150), "{:?}", view.definition.fields);
}

#[test]
fn what_a_view_cannot_compute_is_refused_by_its_name() {
    let world = world();
    // No deeper for SQL than it is long; for a plan each change of the operator is a list within a list.
    let deep: String = (0..40).map(|_| "price + amount - ").collect();
    for (shown, expected) in [
        ("string_agg(note, ',')", "does not have string_agg(note, ','): first and last are by the time"),
        ("bool_and(is_buy)", "does not have bool_and(is_buy): min of the same"),
        ("bool_or(price > 5)", "does not have bool_or(price > 5): max of the same"),
        ("rate(price)", "does not have rate(price): counter_increase"),
        ("mode(price)", "does not have mode(price): it has count"),
        ("sum(DISTINCT price)", "does not have sum(DISTINCT price): it has DISTINCT in count"),
        ("first(price, amount)", "does not have first(price, amount): first and last are by the time"),
        ("counter_increase(price) FILTER (WHERE amount > 1)", "counter_increase is of a column, and has no FILTER"),
        ("counter_increase(price * 2)", "counter_increase is of a column, and has no FILTER"),
        ("sum(status + 1)", "sum(status + 1): a materialised view does not compute + of whole numbers"),
        ("sum(status / 2)", "sum(status / 2): a materialised view does not divide whole numbers: cast one"),
        ("sum(abs(status))", "does not compute abs of whole numbers"),
        ("sum(-status)", "does not compute - of whole numbers"),
        ("100 * count(*) FILTER (WHERE status >= 500) / count(*)", "does not divide whole numbers: cast one"),
        ("sum(CASE WHEN price > 0 THEN '1' ELSE '0' END)", "has it of numbers"),
        ("sum(round(price, 2))", "rounds to whole numbers"),
        ("sum(power(price, 2))", "the function power is not possible"),
        ("max(upper(note))", "the function upper is not possible"),
        ("sum(price::bigint)", "casts numbers to double precision, and nothing to bigint"),
        ("count(*) FILTER (WHERE note LIKE 'a%')", "LIKE and regular expressions in its WHERE alone"),
        ("count(*) FILTER (WHERE note > 5)", "compares values of one type"),
        ("count(*) FILTER (WHERE price)", "a condition in a materialised view is true or false"),
        ("count(*) FILTER (WHERE price IN (amount))", "IN with a list of constants"),
        ("max(nullif(price, amount))", "nullif in a materialised view"),
        ("max(CASE WHEN is_buy THEN note ELSE 'x' END || 'y')", "the function || is not possible"),
        ("max(time)", "of the time a materialised view has count(*) alone"),
        ("count(*) FILTER (WHERE extract(hour FROM time) > 8)", "computes nothing from the rows' time but comparisons"),
        ("count(CASE WHEN time > note::timestamptz THEN 1 END)", "compares the rows' time with moments"),
        ("count(*) FILTER (WHERE price > (SELECT max(price) FROM trades))", "no queries within it"),
        ("count(*) FILTER (WHERE time > now())", "does not depend on the present"),
        (&format!("sum({deep}1)"), "too long, or too deep, to be kept"),
    ] {
        let made = format!("CREATE MATERIALIZED VIEW v AS {}", query(&[("c", shown)], "trades", "symbol"));
        let error = world.ask_as(Manner::Postgres, &made).expect_err(shown);
        assert!(error.contains(expected), "{shown}: {error}");
    }
}

/// Queries of the table, which plans compute as far as they can.
#[test]
fn what_would_grow_with_each_level_is_bounded() {
    let world = world();
    let ask = |call: String| world.ask_as(Manner::Postgres, &format!("SELECT {call} FROM trades"));
    let count = |condition: &str| ask(format!("count(*) FILTER (WHERE {condition})"));
    let all = count("price IS NOT NULL").unwrap();
    assert_eq!(count(&format!("(price >= 0){}", " IN (true, false)".repeat(40))).unwrap(), all);
    let nested = |levels: usize| {
        format!("{}price BETWEEN 0 AND 1000){}", "(".repeat(levels), " BETWEEN false AND true)".repeat(levels - 1))
    };
    assert_eq!(count(&nested(10)).unwrap(), all);
    assert!(count(&nested(40)).unwrap_err().contains("BETWEEN and CASE in one another"));
    assert_eq!(count(&format!("(price >= 0){}", " = true".repeat(390))).unwrap(), all);
    assert!(
        count(&format!("(price >= 0){}", " = true".repeat(1_000))).unwrap_err().contains("at most 400 comparisons")
    );
}

#[test]
fn what_is_computed_is_told_apart_from_what_looks_like_it() {
    let world = world();
    let now_ns = world.db.now_ns();
    world.write("default", &format!("odd TS=3i,x=1 {}\nodd TS=4i,x=1 {now_ns}\n", now_ns - SECOND_NS));
    assert_eq!(world.ask("SELECT count(*), sum(round(\"TS\")) FROM odd"), [[Value::Int(2), Value::Int(7)]]);
    let signs = "SELECT max(x / 0.0), max(x / -0.0) FROM odd";
    assert_eq!(world.ask(signs), [[Value::Float(f64::INFINITY), Value::Float(f64::NEG_INFINITY)]]);
    assert_eq!(world.ask("SELECT sum(CASE WHEN x > 0 THEN '1' ELSE '0' END) FROM odd"), [[Value::Float(2.0)]]);
}

#[test]
fn groups_whose_values_are_all_left_out_are_there() {
    let mut world = world();
    world.ask("CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 minute', time) AS bucket, symbol, count(*) AS n, sum(price) FILTER (WHERE symbol = 'A') AS of_a FROM trades GROUP BY 1, 2");
    world.ask("CREATE MATERIALIZED VIEW w AS SELECT time_bucket('1 hour', bucket) AS bucket, symbol, sum(of_a) AS of_a FROM v GROUP BY 1, 2");
    for _ in 0..2 {
        for from in ["v", "(SELECT * FROM v) v", "w"] {
            let counts =
                world.ask(&format!("SELECT symbol, count(of_a) > 0 FROM {from} GROUP BY symbol ORDER BY symbol"));
            let expected =
                [("A", true), ("B", false)].map(|(symbol, is_there)| [Value::text(symbol), Value::Bool(is_there)]);
            assert_eq!(counts, expected, "{from}");
        }
        world.settle();
    }
}

/// Numbers, conditions and texts of a row, within one another.
#[derive(Debug, Clone)]
struct Written {
    number: String,
    condition: String,
    text: String,
}

fn written() -> impl Strategy<Value = Written> {
    let number = prop::sample::select(vec!["price", "amount", "status", "0", "2", "-1.5", "404", "0.25", "1e6"]);
    let condition = prop::sample::select(vec![
        "is_buy",
        "note IN ('a', 'c')",
        "note <> 'b'",
        "venue = 'x'",
        "venue IS NULL",
        "time < '2023-11-14T22:00:00Z'",
        "is_buy IS NOT TRUE",
        "status IN (200, 503)",
    ]);
    let text = prop::sample::select(vec!["note", "venue", "'z'", "symbol"]);
    let leaf = (number, condition, text).prop_map(|(number, condition, text)| Written {
        number: number.to_owned(),
        condition: condition.to_owned(),
        text: text.to_owned(),
    });
    leaf.prop_recursive(4, 24, 3, |inner| {
        let kinds = (0usize..12, 0usize..9, 0usize..3);
        (prop::collection::vec(inner, 3), kinds).prop_map(|(of, kinds)| {
            let [a, b, c] = &of[..] else { panic!("three are made") };
            Written {
                number: number_of(a, b, c, kinds.0),
                condition: condition_of(a, b, c, kinds.1),
                text: text_of(a, b, kinds.2),
            }
        })
    })
}

fn number_of(first: &Written, second: &Written, when: &Written, kind: usize) -> String {
    let (x, y, when) = (&first.number, &second.number, &when.condition);
    match kind {
        0 => format!("({x} + {y})"),
        1 => format!("({x} - {y})"),
        2 => format!("({x} * {y})"),
        3 => format!("({x} / {y})"),
        4 => format!("({x} % {y})"),
        5 => format!("(- {x})"),
        6 => format!("abs({x} - 0.5)"),
        7 => format!("coalesce({x}, {y})"),
        8 => format!("nullif({x}, 2)"),
        9 => format!("(CASE WHEN {when} THEN {x} WHEN {} THEN NULL ELSE {y} END)", first.condition),
        10 => format!("({x})::double precision"),
        _ => format!("floor(sqrt({x}))"),
    }
}

fn condition_of(a: &Written, b: &Written, c: &Written, kind: usize) -> String {
    match kind {
        0 => format!("({} < {})", a.number, b.number),
        1 => format!("({} >= {})", a.number, b.number),
        2 => format!("({} = {})", a.number, b.number),
        3 => format!("({} AND {})", a.condition, b.condition),
        4 => format!("({} OR {})", a.condition, b.condition),
        5 => format!("(NOT {})", a.condition),
        6 => format!("({} IS NULL)", a.number),
        7 => format!("({} NOT BETWEEN {} AND {})", a.number, b.number, c.number),
        _ => format!("({} <> {})", a.text, b.text),
    }
}

fn text_of(a: &Written, b: &Written, kind: usize) -> String {
    match kind {
        0 => format!("(CASE WHEN {} THEN {} ELSE {} END)", a.condition, a.text, b.text),
        1 => format!("coalesce({}, {})", a.text, b.text),
        _ => format!("nullif({}, 'a')", a.text),
    }
}

/// Random expressions that plans can compute give what SQL computes row by row, in views and in queries of the table.
#[test]
fn what_plans_compute_is_what_sql_computes() {
    const CASES: u32 = 150;
    let cases = std::env::var("THALWEG_VIEW_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let (world, made) = (world(), Cell::new(0u32));
    let outcome = runner.run(&written(), |Written { number, condition, text }| {
        let of_number =
            [format!("count({number})"), format!("min({number})"), format!("sum({number}) FILTER (WHERE {condition})")];
        let columns = [
            ("a", of_number[0].as_str()),
            ("b", of_number[1].as_str()),
            ("c", of_number[2].as_str()),
            ("d", &format!("count(*) FILTER (WHERE {condition})")),
            ("e", &format!("count(DISTINCT {text})")),
            ("f", &format!("count(DISTINCT {number})")),
        ];
        for (name, column) in columns {
            made.set(made.get() + u32::from(check_written(&world, &[(name, column)], "")));
        }
        let of_columns = [("a", "max(price)"), ("b", "sum(amount)"), ("c", "count(*)"), ("d", "count(DISTINCT note)")];
        let (condition, of_tag) =
            (format!("WHERE {condition}"), format!("WHERE price > 9 AND {condition} AND symbol = 'A'"));
        for condition in [&condition, &of_tag] {
            made.set(made.get() + u32::from(check_written(&world, &of_columns, condition)));
        }
        // What a query computes of all rows at once, and of those of a series.
        for (shown, by) in [
            ("max(price), sum(amount)", ""),
            ("count(*), max(price)", ""),
            ("venue, count(*)", "GROUP BY 1 ORDER BY 1"),
        ] {
            let [by_plan, by_rows] = ["trades", "(SELECT * FROM trades LIMIT 100000) q"]
                .map(|from| world.ask_as(Manner::Postgres, &format!("SELECT {shown} FROM {from} {condition} {by}")));
            assert_eq!(by_plan.is_ok(), by_rows.is_ok(), "{shown} {condition}: {by_plan:?} {by_rows:?}");
            assert!(by_plan.is_err() || by_plan == by_rows, "{shown} {condition}: {by_plan:?} {by_rows:?}");
        }
        Ok(())
    });
    outcome.unwrap();
    println!("{} of {} views are kept", made.get(), 8 * cases);
    assert!(made.get() > 4 * cases, "{} of {} views are kept", made.get(), 8 * cases);
}

/// Checks columns in a view and in a query of the table, of the rows that a condition leaves; returns whether a view has them.
fn check_written(world: &World, columns: &[(&str, &str)], condition: &str) -> bool {
    world.ask("DROP MATERIALIZED VIEW IF EXISTS v");
    let query = query(columns, &format!("trades {condition}"), "symbol");
    if let Err(error) = world.ask_as(Manner::Postgres, &format!("CREATE MATERIALIZED VIEW v AS {query}")) {
        assert!(error.contains("a materialised view") || error.contains("operator does not exist"), "{error}");
        return false;
    }
    world.check_where("v", (columns, "symbol"), condition, &query);
    true
}

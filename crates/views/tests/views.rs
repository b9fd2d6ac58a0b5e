//! Views are their queries over the source, whatever was written, deleted, refreshed and restarted in between.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use db::views::{TaskSettings, ViewDelete, ViewRows};
use db::{Db, DbOptions};
use model::{Column, Labels, METRIC_NAME, MatchOp, Matcher, TimeRange, ValueType};
use platform::sim::Simulation;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use query::plan::{Aggregate, AggregateCall, AggregateInput, Expression};
use query::views::{Dialect, RefreshPolicy, ViewDefinition, ViewOptions, ViewOutput, WindowWidth};
use query::{Budget, Frame, Interval, Plan, ViewUse};
use thalweg_views::{RefreshLimits, Refresher};

const SECOND_NS: i64 = 1_000_000_000;
const DATABASE: &str = "default";

/// Host, seconds before now, and the fields `v` and `i`.
type Row = (u8, i64, Option<i8>, i64);

#[derive(Debug, Clone)]
enum Step {
    Write(Vec<Row>),
    /// A host, seconds before now, and how many seconds long.
    Delete(u8, i64, i64),
    /// Hosts, seconds before now, and values of a table that is joined as of a time.
    Quote(&'static str, Vec<(u8, i64, i8)>),
    /// As `Delete`, of such a table; by its metric if that is true, else by a label.
    Unquote(&'static str, bool, (u8, i64, i64)),
    /// A host, its owner, and which of its rows says so.
    Own(u8, u8, u8),
    /// A host whose owners are deleted.
    Disown(u8),
    /// An owner, the home, and which of the owner's rows says so.
    House(u8, u8, u8),
    /// An owner whose homes are deleted.
    Unhouse(u8),
    /// A view that gets columns besides.
    Widen(usize),
    Advance(i64),
    Pass,
    Settle,
    Compact,
    Restart,
    Crash,
}

/// The tables that are joined as of a time.
fn quoted() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("q"), Just("z")]
}

fn step() -> impl Strategy<Value = Step> {
    let row = |ago: std::ops::Range<i64>| (0u8..4, ago, prop::option::of(any::<i8>()), -5i64..5);
    prop_oneof![
        5 => prop::collection::vec(row(0..20), 1..12).prop_map(Step::Write),
        3 => prop::collection::vec(row(0..4_000), 1..6).prop_map(Step::Write),
        1 => (0u8..4, 0i64..4_000, 0i64..900).prop_map(|(host, ago, length)| Step::Delete(host, ago, length)),
        3 => (quoted(), prop::collection::vec((0u8..4, 0i64..20, any::<i8>()), 1..4)).prop_map(|(table, rows)| Step::Quote(table, rows)),
        3 => (quoted(), prop::collection::vec((0u8..4, 0i64..4_000, any::<i8>()), 1..4)).prop_map(|(table, rows)| Step::Quote(table, rows)),
        2 => (quoted(), any::<bool>(), (0u8..4, 0i64..4_000, 0i64..900)).prop_map(|(table, by_metric, of)| Step::Unquote(table, by_metric, of)),
        2 => (0u8..4, 0u8..3, 0u8..2).prop_map(|(host, owner, row)| Step::Own(host, owner, row)),
        1 => (0u8..4).prop_map(Step::Disown),
        2 => (0u8..3, 0u8..3, 0u8..2).prop_map(|(owner, home, row)| Step::House(owner, home, row)),
        1 => (0u8..3).prop_map(Step::Unhouse),
        1 => (0usize..WIDER.len()).prop_map(Step::Widen),
        4 => (1i64..400).prop_map(Step::Advance),
        4 => Just(Step::Pass),
        3 => Just(Step::Settle),
        1 => Just(Step::Compact),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

fn view(name: &str, width: Interval, plan: &str, fields: &[(&str, ValueType)]) -> ViewDefinition {
    ViewDefinition {
        name: name.to_owned(),
        database: DATABASE.to_owned(),
        target: name.to_owned(),
        time_name: "time".to_owned(),
        plan: query::parse(plan, 0).unwrap(),
        windows: WindowWidth { width, origin_ns: 0, zone: "UTC".to_owned() },
        fields: fields.iter().map(|(name, value_type)| ((*name).to_owned(), *value_type)).collect(),
        options: ViewOptions::default(),
        maker: String::new(),
        statement: String::new(),
        dialect: Dialect::Sql,
        output: ViewOutput::default(),
        task: None,
    }
}

/// Views that get columns besides, and what these are of.
const WIDER: [(&str, &str, ValueType); 8] = [
    ("by_host", "i", ValueType::I64),
    ("all_hosts", "v", ValueType::F64),
    ("hourly", "sum_v", ValueType::F64),
    ("owned", "v", ValueType::F64),
    ("quoted_both", "z.p", ValueType::F64),
    ("quoted_some", "q.p", ValueType::F64),
    ("computed", "x", ValueType::F64),
    ("computed_quoted", "x", ValueType::F64),
];

/// Numbers that are equal but for what rounding makes of them.
#[derive(Debug, Clone)]
enum CellValue {
    Float(f64),
    Other(String),
}

impl PartialEq for CellValue {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => a == b || (a - b).abs() <= 1e-9 * (1.0 + a.abs()),
            (Self::Other(a), Self::Other(b)) => a == b,
            _ => false,
        }
    }
}

/// By host and minute; of all hosts with conditions on rows and groups; of both by the hour, over the first; by windows that are not those of
/// the view below put together; by calendar months.
fn definitions() -> Vec<ViewDefinition> {
    use ValueType::{F64, I64};
    let minute = Interval::of_ns(60 * SECOND_NS);
    let mut slow = view(
        "slow",
        Interval::of_ns(300 * SECOND_NS),
        "(->> (rows-of \"t\") (groupby 5m '((last \"v\") (first \"i\")) (by '(\"h\"))) (map \"last_v\" (column \"last v\") \"first_i\" (column \"first i\")))",
        &[("last_v", F64), ("first_i", I64)],
    );
    slow.options.refresh = RefreshPolicy::Every(600 * SECOND_NS);
    let mut zoned = view(
        "monthly",
        Interval::of_months(1),
        "(->> (rows-of \"t\") (groupby 1d '((max \"i\") (count \"v\")) (by '())) (map \"max_i\" (column \"max i\") \"n\" (coalesce (column \"count v\") 0)))",
        &[("max_i", I64), ("n", I64)],
    );
    "Europe/Berlin".clone_into(&mut zoned.windows.zone);
    vec![
        view(
            "by_host",
            minute,
            "(->> (rows-of \"t\") (groupby 1m '((sum \"v\") (count \"v\") (max \"i\") (count #TS)) (by '(\"h\"))) \
             (map \"sum_v\" (column \"sum v\") \"n\" (coalesce (column \"count v\") 0) \"max_i\" (column \"max i\") \"rows\" (column \"count #TS\") \
             \"mean\" (/ (column \"sum v\") (column \"count v\"))))",
            &[("sum_v", F64), ("n", I64), ("max_i", I64), ("rows", I64), ("mean", F64)],
        ),
        view(
            "all_hosts",
            minute,
            "(->> (rows-of \"t\") (tag-not \"h\" \"h0\") (where (> (column \"i\") -3)) (groupby 1m '((min \"v\") (sum \"i\")) (by '()) (offset 7s)) \
             (where (> (column \"sum i\") -2)) (map \"min_v\" (column \"min v\") \"sum_i\" (column \"sum i\")))",
            &[("min_v", F64), ("sum_i", I64)],
        ),
        view(
            "hourly",
            Interval::of_ns(1200 * SECOND_NS),
            "(->> (rows-of \"by_host\") (groupby 20m '((sum \"sum_v\") (max \"max_i\") (sum \"rows\")) (by '())) \
             (map \"sum_v\" (column \"sum sum_v\") \"max_i\" (column \"max max_i\") \"rows\" (column \"sum rows\")))",
            &[("sum_v", F64), ("max_i", I64), ("rows", I64)],
        ),
        slow,
        view(
            "ends",
            minute,
            "(->> (rows-of \"t\") (groupby 1m '((last \"v\") (first \"i\") (count #TS)) (by '(\"h\"))) \
             (map \"last_v\" (column \"last v\") \"first_i\" (column \"first i\") \"n\" (coalesce (column \"count #TS\") 0)))",
            &[("last_v", F64), ("first_i", I64), ("n", I64)],
        ),
        view(
            "uneven",
            Interval::of_ns(420 * SECOND_NS),
            "(->> (rows-of \"slow\") (groupby 7m '((sum \"first_i\") (count \"last_v\")) (by '(\"h\"))) \
             (map \"sum_i\" (column \"sum first_i\") \"n\" (coalesce (column \"count last_v\") 0)))",
            &[("sum_i", I64), ("n", I64)],
        ),
        zoned,
    ]
    .into_iter()
    .chain(composed_definitions())
    .chain(owned_definitions())
    .chain(counted_definitions())
    .chain(line_definitions())
    .chain(quoted_definitions())
    .chain(computed_definitions())
    .collect()
}

/// With values of another table as of the times of rows: of any age, and of few minutes before, with an increase of them, and by owners that a third
/// table says; of the windows of another view, and over such windows; and of two tables, one of them twice.
fn quoted_definitions() -> Vec<ViewDefinition> {
    use ValueType::{F64, I64};
    let quotes = |options: &str| {
        format!("(as-of (->> (rows-of \"q\")) (on '(\"h\" \"h\")) (columns '(\"q.p\" \"p\")){options})")
    };
    let grouped = |name: &str, minutes: i64, steps: &str, aggregate: &str, by: &str| {
        let plan = format!(
            "(->> (rows-of \"t\") {steps} (groupby {minutes}m '(({aggregate} \"q.p\") (sum \"v\") (count #TS)) (by '({by}))) \
             (map \"p\" (column \"{aggregate} q.p\") \"s\" (column \"sum v\") \"n\" (coalesce (column \"count #TS\") 0)))"
        );
        view(name, Interval::of_ns(minutes * 60 * SECOND_NS), &plan, &[("p", F64), ("s", F64), ("n", I64)])
    };
    let within = format!("(where (> (column \"i\") -4)) {}", quotes(" (earlier) (within 3m)"));
    let owners = "(labelled left (->> (rows-of \"owners\")) (on '(\"h\" \"h\")) (labels '(\"owner\" \"owner\")))";
    vec![
        grouped("quoted", 1, &quotes(""), "max", "\"h\""),
        grouped("quoted_within", 2, &within, "sum", ""),
        grouped("quoted_gains", 1, &quotes(" (within 10m)"), "increase", "\"h\""),
        grouped("quoted_owned", 5, &format!("{} {owners}", quotes("")), "min", "\"owner\""),
        view(
            "quoted_over",
            Interval::of_ns(300 * SECOND_NS),
            &format!(
                "(->> (rows-of \"by_host\") {} (groupby 5m '((max \"q.p\") (sum \"sum_v\") (count #TS)) (by '(\"h\"))) \
                 (map \"p\" (column \"max q.p\") \"s\" (column \"sum sum_v\") \"n\" (coalesce (column \"count #TS\") 0)))",
                quotes(" (within 30m)")
            ),
            &[("p", F64), ("s", F64), ("n", I64)],
        ),
        // Of rows that a condition on both tables leaves, with what is computed and without.
        grouped(
            "quoted_some",
            1,
            &format!(
                "(where (or (is_null #v) (> #i -3))) {} (where (or (> #q.p #v) (is_null #q.p)))",
                quotes(" (within 20m)")
            ),
            "max",
            "\"h\"",
        ),
        grouped(
            "quoted_some_owned",
            2,
            &format!("{} (where (< (coalesce #q.p 0) #i)) (map \"q.p\" (- #q.p #i) \"v\" #v) {owners}", quotes("")),
            "sum",
            "\"owner\"",
        ),
        view(
            "quoted_both",
            Interval::of_ns(60 * SECOND_NS),
            &format!(
                "(->> (rows-of \"t\") {} (as-of (->> (rows-of \"z\")) (on '(\"h\" \"h\")) (columns '(\"z.p\" \"p\")) (earlier)) \
                 (as-of (->> (rows-of \"z\")) (columns '(\"all.p\" \"p\")) (within 5m)) \
                 (groupby 1m '((max \"q.p\") (sum \"z.p\") (max \"all.p\") (count #TS)) (by '(\"h\"))) \
                 (map \"p\" (column \"max q.p\") \"z\" (column \"sum z.p\") \"a\" (column \"max all.p\") \"n\" (coalesce (column \"count #TS\") 0)))",
                quotes(" (within 4m)")
            ),
            &[("p", F64), ("z", F64), ("a", F64), ("n", I64)],
        ),
        view(
            "quoted_wide",
            Interval::of_ns(1200 * SECOND_NS),
            "(->> (rows-of \"quoted\") (groupby 20m '((sum \"p\") (increase \"n\")) (by '())) (map \"p\" (column \"sum p\") \"n\" (column \"increase n\")))",
            &[("p", F64), ("n", F64)],
        ),
    ]
}

/// Of what is computed from rows: of a table, of those that satisfy a condition, by owners that another table says; with values of another table as of the
/// times of rows; of the windows of another view; and over such windows.
fn computed_definitions() -> Vec<ViewDefinition> {
    use ValueType::{F64, I64};
    let owners = "(labelled left (->> (rows-of \"owners\")) (on '(\"h\" \"h\")) (labels '(\"owner\" \"owner\")))";
    let quotes = "(as-of (->> (rows-of \"q\")) (on '(\"h\" \"h\")) (columns '(\"q.p\" \"p\")) (within 5m))";
    let computed = |name: &str, minutes: i64, (rows, of): (&str, &str), (labels, by): (&str, &str)| {
        let plan = format!(
            "(->> {rows} (map \"x\" {of} \"few\" (if (and (> #i 0) (not (= (label \"h\") \"h0\"))) 1 (is_null #v) 0) \"i\" #i) {labels} \
             (groupby {minutes}m '((sum \"x\") (avg \"few\") (count \"few\") (max \"i\") (count #TS)) (by '({by}))) \
             (map \"x\" (column \"sum x\") \"few\" (column \"avg few\") \"some\" (coalesce (column \"count few\") 0) \"i\" (column \"max i\") \
             \"n\" (coalesce (column \"count #TS\") 0)))"
        );
        let fields = [("x", F64), ("few", F64), ("some", I64), ("i", I64), ("n", I64)];
        view(name, Interval::of_ns(minutes * 60 * SECOND_NS), &plan, &fields)
    };
    let narrowed = "(rows-of \"t\") (tag-not \"h\" \"h3\") (where (> (column \"i\") -4))";
    let with_quotes = format!("(rows-of \"t\") {quotes}");
    vec![
        computed(
            "some",
            1,
            ("(rows-of \"t\") (where (or (is_null #v) (= (label \"h\") \"h1\") (> #v #i)))", "#v"),
            ("", "\"h\""),
        ),
        computed("computed", 1, ("(rows-of \"t\")", "(* #v #i)"), ("", "\"h\"")),
        computed("computed_some", 2, (narrowed, "(if (> #v 3) #v)"), ("", "")),
        computed("computed_owned", 1, (narrowed, "(abs (+ #v #i))"), (owners, "\"owner\"")),
        computed("computed_quoted", 1, (&with_quotes, "(- #q.p (coalesce #v 0.5))"), ("", "\"h\"")),
        view(
            "computed_wide",
            Interval::of_ns(1200 * SECOND_NS),
            "(->> (rows-of \"computed\") (map \"y\" (if (is_null #few) 1.5 (/ #x #n)) \"some\" #some) (groupby 20m '((sum \"y\") (sum \"some\") (count #TS)) (by '())) \
             (map \"y\" (column \"sum y\") \"some\" (column \"sum some\") \"n\" (coalesce (column \"count #TS\") 0)))",
            &[("y", F64), ("some", I64), ("n", I64)],
        ),
    ]
}

/// By owners that another table says, with what stays without one and without; by the homes of these, which a third table says; and over these.
/// Counts of different values.
fn owned_definitions() -> Vec<ViewDefinition> {
    use ValueType::{F64, I64};
    let minute = Interval::of_ns(60 * SECOND_NS);
    let columns = "(map \"s\" (column \"sum v\") \"n\" (coalesce (column \"count #TS\") 0) \"us\" (coalesce (column \"count_distinct (tag \\\"u\\\")\") 0) \
                   \"is\" (coalesce (column \"count_distinct i\") 0) \"ds\" (column \"distinct_sketch (tag \\\"h\\\")\"))";
    let owners = |kind: &str| {
        format!("(labelled {kind} (->> (rows-of \"owners\")) (on '(\"h\" \"h\")) (labels '(\"owner\" \"owner\")))")
    };
    let homes = |kind: &str| {
        format!("(labelled {kind} (->> (rows-of \"homes\")) (on '(\"owner\" \"owner\")) (labels '(\"home\" \"home\")))")
    };
    let of_owners = |name: &str, joins: &[String], by: &str| {
        view(
            name,
            minute,
            &format!(
                "(->> (rows-of \"t\") (where (> (column \"i\") -4)) {} (groupby 1m '((sum \"v\") (count #TS) (count_distinct (tag \"u\")) (count_distinct \"i\") (distinct_sketch (tag \"h\"))) (by '({by}))) {columns})",
                joins.join(" ")
            ),
            &[("s", F64), ("n", I64), ("us", I64), ("is", I64), ("ds", ValueType::String)],
        )
    };
    vec![
        of_owners("owned", &[owners("inner")], "\"owner\""),
        of_owners("owned_or_not", &[owners("left")], "\"h\" \"owner\""),
        of_owners("housed_or_not", &[owners("inner"), homes("left")], "\"owner\" \"home\""),
        of_owners("housed", &[owners("left"), homes("inner")], "\"h\" \"home\""),
        view(
            "housed_wide",
            Interval::of_ns(1200 * SECOND_NS),
            "(->> (rows-of \"housed\") (groupby 20m '((sum \"n\")) (by '(\"home\"))) (map \"n\" (column \"sum n\")))",
            &[("n", I64)],
        ),
        view(
            "owned_wide",
            Interval::of_ns(1200 * SECOND_NS),
            "(->> (rows-of \"owned\") (groupby 20m '((sum \"n\") (approx_distinct (sketches \"ds\")) (count_distinct (tag \"owner\"))) (by '())) \
             (map \"n\" (column \"sum n\") \"hosts\" (column \"approx_distinct (\\\"ds\\\")\") \"owners\" (coalesce (column \"count_distinct (tag \\\"owner\\\")\") 0)))",
            &[("n", I64), ("hosts", I64), ("owners", I64)],
        ),
    ]
}

/// By host and minute, and of all hosts over these: deviations, sketches, and histograms.
fn composed_definitions() -> Vec<ViewDefinition> {
    use ValueType::{F64, I64};
    let spread = view(
        "spread",
        Interval::of_ns(60 * SECOND_NS),
        "(->> (rows-of \"t\") (groupby 1m '((stddev_samp \"v\") (var_pop \"i\") (count \"v\") (sum \"v\") (squares \"v\") (count \"i\") (sum \"i\") (squares \"i\") (count #TS)) \
         (by '(\"h\"))) (map \"dev\" (column \"stddev_samp v\") \"var\" (column \"var_pop i\") \"n\" (coalesce (column \"count v\") 0) \"s\" (column \"sum v\") \"q\" (column \"squares v\") \
         \"n_i\" (coalesce (column \"count i\") 0) \"s_i\" (column \"sum i\") \"q_i\" (column \"squares i\") \"rows\" (coalesce (column \"count #TS\") 0)))",
        &[
            ("dev", F64),
            ("var", F64),
            ("n", I64),
            ("s", F64),
            ("q", F64),
            ("n_i", I64),
            ("s_i", I64),
            ("q_i", F64),
            ("rows", I64),
        ],
    );
    let spread_wide = view(
        "spread_wide",
        Interval::of_ns(1200 * SECOND_NS),
        "(->> (rows-of \"spread\") (groupby 20m '((stddev_samp (parts \"n\" \"s\" \"q\")) (squares (parts \"n\" \"s\" \"q\")) (sum \"n\") (sum \"s\")) (by '())) \
         (map \"dev\" (column \"stddev_samp (\\\"n\\\" \\\"s\\\" \\\"q\\\")\") \"q\" (column \"squares (\\\"n\\\" \\\"s\\\" \\\"q\\\")\") \"n\" (column \"sum n\") \"s\" (column \"sum s\")))",
        &[("dev", F64), ("q", F64), ("n", I64), ("s", F64)],
    );
    let sketches = view(
        "sketches",
        Interval::of_ns(60 * SECOND_NS),
        "(->> (rows-of \"t\") (groupby 1m '((approx_quantile 0.9 \"v\") (quantile_sketch \"v\") (approx_distinct \"i\") (distinct_sketch \"i\") (histogram -5 40.5 6 \"v\") (histogram 0 8 4 \"i\") (count #TS)) (by '(\"h\"))) \
         (map \"d\" (coalesce (column \"approx_distinct i\") 0) \"ds\" (column \"distinct_sketch i\") \"hi\" (column \"histogram_0_8_4 i\") \"hv\" (column \"histogram_-5_40.5_6 v\") \"p90\" (column \"approx_quantile_0.9 v\") \"s\" (column \"quantile_sketch v\") \"rows\" (coalesce (column \"count #TS\") 0)))",
        &[
            ("d", I64),
            ("ds", ValueType::String),
            ("hi", ValueType::String),
            ("hv", ValueType::String),
            ("p90", F64),
            ("s", ValueType::String),
            ("rows", I64),
        ],
    );
    let sketches_wide = view(
        "sketches_wide",
        Interval::of_ns(1200 * SECOND_NS),
        "(->> (rows-of \"sketches\") (groupby 20m '((approx_quantile 0.5 (sketches \"s\")) (quantile_sketch (sketches \"s\")) (approx_distinct (sketches \"ds\")) (histograms (sketches \"hv\")) (histogram 0 8 4 (sketches \"hi\"))) (by '())) \
         (map \"d\" (column \"approx_distinct (\\\"ds\\\")\") \"hi\" (column \"histogram_0_8_4 (\\\"hi\\\")\") \"hv\" (column \"histograms (\\\"hv\\\")\") \"p50\" (column \"approx_quantile_0.5 (\\\"s\\\")\") \"s\" (column \"quantile_sketch (\\\"s\\\")\")))",
        &[("d", I64), ("hi", ValueType::String), ("hv", ValueType::String), ("p50", F64), ("s", ValueType::String)],
    );
    vec![spread, spread_wide, sketches, sketches_wide]
}

/// Areas under the rows of each window, of each host and of all together, whose rows may have one time; beside what is made of the same values.
fn line_definitions() -> Vec<ViewDefinition> {
    use ValueType::{F64, I64};
    let of_rows = |name: &str, minutes: i64, steps: &str, by: &str| {
        let plan = format!(
            "(->> (rows-of \"t\") {steps} (groupby {minutes}m '((integral 1s \"v\") (integral 1m \"v\") (integral 1s \"i\") (mode \"i\") (count #TS)) (by '({by}))) \
             (map \"v\" (column \"integral_1s v\") \"vm\" (column \"integral_1m v\") \"i\" (column \"integral_1s i\") \"mode\" (column \"mode i\") \
             \"n\" (coalesce (column \"count #TS\") 0)))"
        );
        let fields = [("v", F64), ("vm", F64), ("i", F64), ("mode", I64), ("n", I64)];
        view(name, Interval::of_ns(minutes * 60 * SECOND_NS), &plan, &fields)
    };
    vec![
        of_rows("lines", 1, "", "\"h\""),
        of_rows("lines_together", 5, "", ""),
        of_rows("lines_some", 2, "(where (> (column \"i\") -4))", ""),
        view(
            "lines_wide",
            Interval::of_ns(1200 * SECOND_NS),
            "(->> (rows-of \"lines\") (groupby 20m '((integral 1m \"v\") (sum \"n\")) (by '())) (map \"v\" (column \"integral_1m v\") \"n\" (column \"sum n\")))",
            &[("v", F64), ("n", I64)],
        ),
    ]
}

/// What counters gain, over rows and over windows of another view.
fn counted_definitions() -> Vec<ViewDefinition> {
    use ValueType::{F64, I64};
    let columns =
        "(map \"i\" (column \"increase i\") \"v\" (column \"increase v\") \"n\" (coalesce (column \"count #TS\") 0))";
    vec![
        view(
            "counted",
            Interval::of_ns(60 * SECOND_NS),
            &format!(
                "(->> (rows-of \"t\") (groupby 1m '((increase \"i\") (increase \"v\") (count #TS)) (by '(\"h\"))) {columns})"
            ),
            &[("i", F64), ("v", F64), ("n", I64)],
        ),
        view(
            "counted_wide",
            Interval::of_ns(420 * SECOND_NS),
            "(->> (rows-of \"counted\") (groupby 7m '((sum \"i\") (increase \"n\")) (by '())) (map \"i\" (column \"sum i\") \"n\" (column \"increase n\")))",
            &[("i", F64), ("n", F64)],
        ),
    ]
}

/// Queries that views answer: their own groups, wider bins, fewer labels, a condition on their label, all rows of a group as one, and what is computed from
/// rows.
const SOURCE_QUERIES: [&str; 22] = [
    "(->> (rows-of \"t\") (groupby 1m '((sum \"v\") (count \"v\") (max \"i\") (count #TS)) (by '(\"h\"))))",
    "(->> (rows-of \"t\") (groupby 5m '((sum \"v\") (avg \"v\") (max \"i\") (count #TS)) (by '())))",
    "(->> (rows-of \"t\") (tag \"h\" \"h1\") (groupby 2m '((max \"i\") (sum \"v\") (count #TS)) (by '(\"h\"))))",
    "(->> (rows-of \"t\") (tag-not \"h\" \"h0\") (groupby 7m '((avg \"v\") (count #TS)) (by '()) (offset 1m)))",
    "(->> (rows-of \"t\") (groupby 5m '((stddev_samp \"v\") (var_samp \"i\") (stddev \"v\") (count #TS)) (by '())))",
    "(->> (rows-of \"t\") (groupby 1m '((stddev_samp \"v\") (var_pop \"i\")) (by '(\"h\"))))",
    "(->> (rows-of \"t\") (groupby 5m '((approx_quantile 0.5 \"v\") (quantile_sketch \"v\") (approx_distinct \"i\") (histogram 0 8 4 \"i\") (count #TS)) (by '())))",
    "(->> (table \"t\" '(\"v\")) (groupby 1m '((sum \"v\") (count \"v\")) (by '(\"h\"))))",
    "(->> (table \"t\" '(\"i\" \"v\")) (tag \"h\" \"h1\") (groupby 3m '((max \"i\") (avg \"v\")) (by '(\"h\"))))",
    "(->> (rows-of \"t\") (groupby 5m '((last \"v\") (first \"i\") (count #TS)) (by '(\"h\"))))",
    "(->> (rows-of \"t\") (groupby all '((last \"v\") (first \"i\")) (by '(\"h\")) (undated)))",
    "(->> (rows-of \"t\") (groupby all '((sum \"v\") (avg \"v\") (max \"i\") (count #TS)) (by '()) (undated)))",
    "(->> (rows-of \"t\") (tag \"h\" \"h1\") (groupby all '((max \"i\") (sum \"v\") (count #TS)) (by '(\"h\")) (undated)))",
    "(->> (rows-of \"t\") (groupby all '((max \"i\") (count \"v\")) (by '()) (undated)))",
    "(->> (rows-of \"t\") (groupby all '((stddev_samp \"v\") (var_samp \"i\") (stddev \"v\") (count #TS)) (by '()) (undated)))",
    "(->> (rows-of \"t\") (groupby all '((approx_quantile 0.5 \"v\") (quantile_sketch \"v\") (approx_distinct \"i\") (histogram 0 8 4 \"i\") (count #TS)) (by '(\"h\")) (undated)))",
    "(->> (table \"t\" '(\"v\")) (groupby all '((avg \"v\")) (by '()) (undated)))",
    "(->> (table \"t\" '(\"i\" \"v\")) (tag-not \"h\" \"h0\") (groupby all '((max \"i\") (count \"v\")) (by '(\"h\")) (undated)))",
    "(->> (rows-of \"t\") (map \"y\" (* #v #i) \"i\" #i) (groupby 5m '((sum \"y\") (max \"i\") (count #TS)) (by '())))",
    "(->> (rows-of \"t\") (map \"n\" (if (and (> #i 0) (not (= (label \"h\") \"h0\"))) 1 (is_null #v) 0)) (groupby 1m '((avg \"n\") (count \"n\")) (by '(\"h\"))))",
    "(->> (rows-of \"t\") (map \"y\" (* #v #i)) (groupby all '((sum \"y\") (count #TS)) (by '(\"h\")) (undated)))",
    "(->> (rows-of \"t\") (tag-not \"h\" \"h3\") (where (> (column \"i\") -4)) (map \"x\" (if (> #v 3) #v)) (groupby all '((sum \"x\")) (by '()) (undated)))",
];

/// The scan of a table whose rows a plan groups.
fn scan_of(plan: &mut Plan) -> &mut query::plan::Scan {
    match plan {
        Plan::Scan(scan) => scan,
        Plan::Where { input, .. } | Plan::Map { input, .. } => scan_of(input),
        other => panic!("{other}"),
    }
}

#[test]
fn queries_of_a_source_are_answered_by_its_views() {
    let mut world = World::new();
    world.apply(&Step::Settle);
    world.apply(&Step::Advance(600));
    world.apply(&Step::Settle);
    let reads_view = |text: &str, view_use: ViewUse| {
        let budget = Budget::new(10_000_000);
        budget.use_views(view_use);
        let outcome = world.db().run_plan(DATABASE, &query::parse(text, 0).unwrap(), &budget).unwrap();
        outcome.steps.iter().any(|step| step.step == "view")
    };
    for text in SOURCE_QUERIES {
        assert!(reads_view(text, ViewUse::All), "{text}");
        assert!(!reads_view(text, ViewUse::Named), "{text}");
    }
    // Neither by labels that the view does not have, nor by bins of parts of its windows, nor of aggregates that it does not give.
    for text in [
        "(->> (rows-of \"t\") (groupby 1m '((max \"i\")) (by '(\"h\" \"u\"))))",
        "(->> (rows-of \"t\") (tag \"u\" \"x1\") (groupby 1m '((max \"i\")) (by '(\"h\"))))",
        "(->> (rows-of \"t\") (groupby 90s '((max \"i\")) (by '(\"h\"))))",
        "(->> (rows-of \"t\") (groupby 2m '((max \"i\")) (by '(\"h\")) (offset 30s)))",
        "(->> (rows-of \"t\") (groupby 1m '((min \"i\")) (by '(\"h\"))))",
        // Rows that have a value of `v` are not counted in the view.
        "(->> (table \"t\" '(\"v\")) (groupby 5m '((sum \"v\") (count #TS)) (by '())))",
        "(->> (rows-of \"t\") (where (> (column \"i\") 0)) (groupby 1m '((max \"i\")) (by '(\"h\"))))",
        // Few bins at an end, which are looked for from there.
        "(->> (table \"t\" '(\"v\")) (groupby 5m '((avg \"v\")) (by '())) (limit 3))",
        "(->> (rows-of \"t\") (groupby 1m '((max \"i\")) (by '())) (order #TS desc) (limit 2))",
        // Rows of values, of which an aggregate that may be null does not tell.
        "(->> (table \"t\" '(\"v\")) (groupby 5m '((stddev_samp \"v\")) (by '())))",
        // The time of the first row is shown; or as many values differ as windows do not tell; or something else is computed.
        "(->> (rows-of \"t\") (groupby all '((max \"i\")) (by '())))",
        "(->> (rows-of \"t\") (groupby all '((count_distinct \"i\")) (by '()) (undated)))",
        "(->> (rows-of \"t\") (map \"x\" (* #i #v)) (groupby 1m '((sum \"x\")) (by '(\"h\"))))",
        "(->> (rows-of \"t\") (map \"x\" (* #v #i)) (groupby 1m '((max \"x\")) (by '(\"h\"))))",
    ] {
        assert!(!reads_view(text, ViewUse::All), "{text}");
    }
}

/// What a plan gives: labels, times, and the columns that have a value.
fn rows(db: &Db, plan: &Plan, view_use: ViewUse) -> BTreeMap<(String, i64), Vec<(String, CellValue)>> {
    let budget = Budget::new(10_000_000);
    budget.use_views(view_use);
    let frames: Vec<Frame> = db.run_plan(DATABASE, plan, &budget).unwrap().frames;
    let mut found = BTreeMap::new();
    for frame in frames {
        for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
            let mut cells: Vec<(String, CellValue)> = Vec::new();
            for column in &frame.columns {
                let value = match column.cell(row) {
                    query::Cell::Null => continue,
                    query::Cell::F64(number) => CellValue::Float(number),
                    other => CellValue::Other(format!("{other:?}")),
                };
                cells.push((column.name.to_string(), value));
            }
            cells.sort_by(|(a, _), (b, _)| a.cmp(b));
            let labels: Vec<String> = frame.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let before = found.insert((labels.join(","), *time_ns), cells);
            assert_eq!(before, None, "two rows of one window");
        }
    }
    found
}

/// A view of QuestDB's, and a continuous query and a task, which write tables.
const SAMPLED: &str = "CREATE MATERIALIZED VIEW sampled AS (SELECT timestamp, h, max(v) AS peak, sum(i) AS s, count(*) AS n FROM t SAMPLE BY 3m)";
const CONTINUOUS: &str = "CREATE CONTINUOUS QUERY cq ON \"default\" BEGIN SELECT max(i) AS high, mean(v) AS middle, integral(i) AS area INTO by_query FROM t GROUP BY time(2m), h END";
const TASK: &str = r#"option task = {name: "task", every: 1m}
from(bucket: "default") |> range(start: -task.every) |> filter(fn: (r) => r._measurement == "t" and r._field == "i")
  |> group(columns: ["_measurement", "_field", "_start", "_stop", "h"])
  |> aggregateWindow(every: 1m, fn: sum, timeSrc: "_start", createEmpty: false)
  |> set(key: "_measurement", value: "by_task") |> to(bucket: "default", org: "o")"#;

struct World {
    simulation: Simulation,
    db: Option<Arc<Db>>,
    refresher: Option<Refresher>,
    /// When the continuous query and the task were made: windows before are not written.
    written_from_ns: i64,
}

impl World {
    fn new() -> Self {
        let mut world = Self { simulation: Simulation::new(11), db: None, refresher: None, written_from_ns: 0 };
        world.open();
        let now_ns = world.db().now_ns();
        world.write(&[(0, 3_000, Some(1), 1), (1, 10, None, 2)], now_ns);
        world.own(0, 0, 0);
        world.house(0, 0, 0);
        ["q", "z"].iter().for_each(|table| world.quote(table, &[(0, 3_100, 1), (1, 5, 2)], now_ns));
        for definition in definitions() {
            let budget = Budget::new(1_000);
            world.db().create_view(definition, &budget).unwrap();
        }
        world.define_in_dialects();
        world.written_from_ns = now_ns;
        world
    }

    fn define_in_dialects(&self) {
        let budget = Arc::new(Budget::new(10_000_000));
        let mut client = sql::ClientContext::new(DATABASE, self.db().now_ns());
        client.manner = sql::Manner::QuestDb;
        drop(self.db().sql(&sql::parse(SAMPLED).unwrap(), 0, &client, &budget).unwrap());
        let query = influxql::Query::parse(CONTINUOUS, &BTreeMap::new()).unwrap();
        let request = influxql::RequestContext { database: Some(DATABASE), read_only: false };
        drop(self.db().run_influxql(&query, 0, &request, &budget).unwrap());
        let script = flux::TaskScript::parse(TASK).unwrap();
        drop(self.db().create_task(&script, TaskSettings::default(), &budget).unwrap());
    }

    fn open(&mut self) {
        let db = Arc::new(Db::open(self.simulation.platform(), DbOptions::new("/data")).unwrap());
        let limits = RefreshLimits { dirty_max: 40, pieces_max: 2, ..RefreshLimits::default() };
        self.refresher = Some(Refresher::new(db.clone(), limits));
        self.db = Some(db);
    }

    fn close(&mut self) {
        self.refresher = None;
        self.db = None;
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn pass(&mut self) -> bool {
        self.refresher.as_mut().unwrap().pass().unwrap()
    }

    fn write(&self, rows: &[Row], now_ns: i64) {
        let mut lines = String::new();
        for (host, ago, v, i) in rows {
            let v = v.map(|v| format!(",v={v}")).unwrap_or_default();
            writeln!(lines, "t,h=h{host},u=x{i} i={i}i{v} {}", now_ns - ago * SECOND_NS).unwrap();
        }
        let (report, errors) = self.db().write_lines(DATABASE, lines.as_bytes()).unwrap();
        assert!(errors.is_empty() && report.rejected_total == 0, "{errors:?}");
    }

    fn quote(&self, table: &str, rows: &[(u8, i64, i8)], now_ns: i64) {
        let mut lines = String::new();
        for (host, ago, p) in rows {
            writeln!(lines, "{table},h=h{host},k={table} p={p} {}", now_ns - ago * SECOND_NS).unwrap();
        }
        let (report, errors) = self.db().write_lines(DATABASE, lines.as_bytes()).unwrap();
        assert!(errors.is_empty() && report.rejected_total == 0, "{errors:?}");
    }

    fn own(&self, host: u8, owner: u8, row: u8) {
        self.say(&format!("owners,h=h{host},k=o owner=\"o{owner}\""), row);
    }

    fn house(&self, owner: u8, home: u8, row: u8) {
        self.say(&format!("homes,owner=o{owner},k=m home=\"m{home}\""), row);
    }

    /// Writes a row of a table of labels.
    fn say(&self, row: &str, number: u8) {
        let line = format!("{row} {}", (1_500_000_000 + i64::from(number)) * SECOND_NS);
        let (report, errors) = self.db().write_lines(DATABASE, line.as_bytes()).unwrap();
        assert!(errors.is_empty() && report.rejected_total == 0, "{errors:?}");
    }

    /// Deletes the rows of a table of labels that have two tags.
    fn unsay(&self, tags: [(&str, &str); 2]) {
        let matchers = tags.map(|(name, value)| Matcher::new(name, MatchOp::Equal, value)).to_vec();
        self.db().delete(DATABASE, &[matchers], &TimeRange::ALL).unwrap();
    }

    fn apply(&mut self, step: &Step) {
        let now_ns = self.db().now_ns();
        match step {
            Step::Write(rows) => self.write(rows, now_ns),
            Step::Delete(host, ago, length) => {
                let from_ns = now_ns - ago * SECOND_NS;
                let range = TimeRange::new(from_ns, from_ns + length * SECOND_NS);
                let matchers = vec![Matcher::new("h", MatchOp::Equal, format!("h{host}"))];
                let matchers = [matchers, vec![Matcher::new("u", MatchOp::NotEqual, "")]].concat();
                self.db().delete(DATABASE, &[matchers], &range).unwrap();
            }
            Step::Quote(table, rows) => self.quote(table, rows, now_ns),
            Step::Unquote(table, by_metric, (host, ago, length)) => {
                let from_ns = now_ns - ago * SECOND_NS;
                let range = TimeRange::new(from_ns, from_ns + length * SECOND_NS);
                let matchers = vec![Matcher::new("h", MatchOp::Equal, format!("h{host}"))];
                let of_table =
                    if *by_metric { (METRIC_NAME, format!("{table}_p")) } else { ("k", (*table).to_owned()) };
                let matchers = [matchers, vec![Matcher::new(of_table.0, MatchOp::Equal, of_table.1)]].concat();
                self.db().delete(DATABASE, &[matchers], &range).unwrap();
            }
            Step::Own(host, owner, row) => self.own(*host, *owner, *row),
            Step::Disown(host) => self.unsay([("h", &format!("h{host}")), ("k", "o")]),
            Step::House(owner, home, row) => self.house(*owner, *home, *row),
            Step::Widen(number) => self.widen(WIDER[*number]),
            Step::Unhouse(owner) => self.unsay([("owner", &format!("o{owner}")), ("k", "m")]),
            Step::Advance(seconds) => self.simulation.advance_ns(seconds * SECOND_NS),
            Step::Pass => drop(self.pass()),
            Step::Settle => {
                let passes = (0..200).take_while(|_| self.pass()).count();
                assert!(passes < 200, "refreshing does not end");
                self.pass();
            }
            Step::Compact => drop(self.db().compact(&mut |_| {}).unwrap()),
            Step::Restart => {
                self.refresher.as_mut().unwrap().save().unwrap();
                self.db().close().unwrap();
                self.close();
                self.open();
            }
            Step::Crash => {
                self.close();
                self.simulation.crash();
                self.open();
            }
        }
    }

    fn check(&self, after: &Step) {
        definitions().iter().for_each(|definition| self.check_view(&definition.name, after));
        self.check_view("sampled", after);
        if matches!(after, Step::Settle) {
            self.check_what_is_written();
        }
        self.check_queries_of_the_source(after);
    }

    /// What a continuous query and a task have written, once everything is: each value that their windows have. A window that lost its rows
    /// keeps the values that were written.
    fn check_what_is_written(&self) {
        let views = self.db().views(DATABASE);
        let writing: Vec<_> = views.iter().filter(|view| !view.definition.is_exposed()).collect();
        assert_eq!(writing.len(), 2);
        for view in writing {
            let first_ns = view.bins.next(view.bins.start_of(self.written_from_ns));
            if first_ns >= view.state.watermark_ns {
                continue;
            }
            let range = TimeRange::new(first_ns, view.state.watermark_ns - 1);
            let scan = Plan::Scan(query::plan::Scan::of_table(&view.definition.target));
            let mut expected = BTreeMap::new();
            for part in view.computed(range, &[]).unwrap() {
                expected.extend(rows(self.db(), &part.plan, ViewUse::Named));
            }
            let found = if expected.is_empty() { BTreeMap::new() } else { rows(self.db(), &scan, ViewUse::All) };
            for (row, cells) in expected {
                let known = found.get(&row).map(Vec::as_slice).unwrap_or_default();
                assert!(
                    cells.iter().all(|cell| known.contains(cell)),
                    "{} {row:?}: {cells:?} {known:?}",
                    view.definition.target
                );
            }
        }
    }

    /// What views answer is what the source gives.
    fn check_queries_of_the_source(&self, after: &Step) {
        let now_ns = self.db().now_ns();
        // The window of the last but one is stored mostly, that of the last is not.
        let [early, stored, late] = [5_000, 431, 17].map(|ago| now_ns - ago * SECOND_NS - 3);
        for range in [
            TimeRange::ALL,
            TimeRange::new(early, stored),
            TimeRange::new(early, late),
            TimeRange::new(early, i64::MAX),
        ] {
            for text in SOURCE_QUERIES {
                let mut plan = query::parse(text, 0).unwrap();
                let grouped = match &mut plan {
                    Plan::Limit { input, .. } => &mut **input,
                    grouped => grouped,
                };
                let Plan::GroupBy { input, grouping } = grouped else { panic!("{text}") };
                let undated = grouping.undated;
                scan_of(input).range = range;
                let [by_view, by_source] = [ViewUse::All, ViewUse::Named].map(|view_use| {
                    let found = rows(self.db(), &plan, view_use).into_iter();
                    let time = |time_ns: i64| if undated { 0 } else { time_ns };
                    found.map(|((labels, time_ns), cells)| ((labels, time(time_ns)), cells)).collect::<BTreeMap<_, _>>()
                });
                assert_eq!(by_view, by_source, "{text} {range:?} after {after:?}");
            }
        }
    }

    fn check_view(&self, name: &str, after: &Step) {
        let db = self.db();
        let view = db.view(DATABASE, name).unwrap();
        let range = TimeRange::new(db.now_ns() - 100 * 24 * 3600 * SECOND_NS, db.now_ns() + 10 * 24 * 3600 * SECOND_NS);
        let range = view.windows_of(&range);
        let mut expected = BTreeMap::new();
        for part in view.computed(range, &[]).unwrap() {
            expected.extend(rows(db, &part.plan, ViewUse::Named));
        }
        let scan = Plan::Scan(query::plan::Scan::of_table(name));
        let found = rows(db, &scan, ViewUse::All);
        assert_eq!(found, expected, "{name} after {after:?}");
    }

    /// Gives a view two columns besides: the least of a column, and the mean. It may have them.
    fn widen(&self, (name, of, value_type): (&str, &str, ValueType)) {
        let mut wider = definitions().into_iter().find(|definition| definition.name == name).unwrap();
        let added = [("least", Aggregate::Min, value_type), ("middle", Aggregate::Avg, ValueType::F64)];
        for (column, aggregate, value_type) in added {
            let call = AggregateCall { aggregate, input: AggregateInput::Column(of.to_owned()) };
            let Plan::Map { input, columns } = &mut wider.plan else { panic!("{name}") };
            columns.push((column.to_owned(), Expression::Column(call.column_name())));
            let mut grouped = &mut **input;
            while let Plan::Where { input, .. } = grouped {
                grouped = input;
            }
            let Plan::GroupBy { grouping, .. } = grouped else { panic!("{name}") };
            grouping.aggregates.push(call);
            wider.fields.push((column.to_owned(), value_type));
        }
        self.db().add_view_columns(wider, &Budget::new(1_000)).unwrap();
    }

    fn drop_view(&self, name: &str) {
        assert!(self.db().drop_view(DATABASE, name, &Budget::new(1_000)).unwrap());
    }
}

/// What a counter gained in a window is since the last row of the window before, which may come late.
#[test]
fn a_late_row_changes_the_window_after_its_own() {
    let mut world = World::new();
    let now_ns = world.db().now_ns() / (60 * SECOND_NS) * 60 * SECOND_NS;
    world.write(&[(0, 590, Some(10), 1), (0, 530, Some(15), 1)], now_ns);
    world.apply(&Step::Settle);
    world.check_view("counted", &Step::Settle);
    let late = vec![(0, 550, Some(14), 1)];
    world.write(&late, now_ns);
    world.apply(&Step::Settle);
    world.check_view("counted", &Step::Write(late));
}

#[test]
fn a_delete_between_computing_a_piece_and_finishing_it_is_not_lost() {
    let mut world = World::new();
    world.apply(&Step::Settle);
    let now_ns = world.db().now_ns();
    let view = world.db().view(DATABASE, "by_host").unwrap();
    assert_eq!(world.db().next_view_range(&view), None);
    {
        let _piece = world.db().begin_view_piece();
        let range = TimeRange::new(now_ns - 3_600 * SECOND_NS, now_ns);
        let of_source = vec![Matcher::new("h", MatchOp::Equal, "h0"), Matcher::new("u", MatchOp::NotEqual, "")];
        world.db().delete(DATABASE, &[of_source], &range).unwrap();
        world.db().finish_view_range(&view, &TimeRange::ALL, true).unwrap();
    }
    let view = world.db().view(DATABASE, "by_host").unwrap();
    assert!(world.db().next_view_range(&view).is_some(), "what the piece has read is gone");
    world.db().finish_view_range(&view, &TimeRange::ALL, true).unwrap();
    let view = world.db().view(DATABASE, "by_host").unwrap();
    assert_eq!(world.db().next_view_range(&view), None, "a piece that was begun after the delete is right");
}

#[test]
fn what_was_known_of_a_dropped_view_is_not_taken_for_that_of_another_one() {
    let mut world = World::new();
    let definition = definitions().remove(1);
    world.apply(&Step::Settle);
    world.apply(&Step::Advance(300));
    world.apply(&Step::Settle);
    let old = world.db().view(DATABASE, &definition.name).unwrap();
    world.drop_view(&definition.name);
    let now_ns = world.db().now_ns();
    world.write(&[(2, 0, Some(1), 2)], now_ns);
    world.pass();
    world.db().create_view(definition.clone(), &Budget::new(1_000)).unwrap();
    // Work on the old one that is still under way changes nothing.
    let is_pending = |world: &World| {
        let view = world.db().view(DATABASE, &definition.name).unwrap();
        world.db().next_view_range(&view).is_some()
    };
    world.db().finish_view_range(&old, &TimeRange::ALL, true).unwrap();
    assert!(is_pending(&world));
    world.apply(&Step::Advance(600));
    world.apply(&Step::Settle);
    assert!(!is_pending(&world));
    world.check(&Step::Settle);
}

#[test]
fn what_a_pass_read_and_could_not_store_is_read_again() {
    let mut world = World::new();
    let mut others: Vec<String> = definitions().into_iter().map(|definition| definition.name).collect();
    others.retain(|name| name != "slow");
    // Those that read others were made after them.
    others.iter().rev().for_each(|name| world.drop_view(name));
    world.apply(&Step::Settle);
    let now_ns = world.db().now_ns();
    world.write(&[(0, 2_990, Some(9), 9)], now_ns);
    // That its windows are to be computed is written: it is not due.
    world.simulation.limit_room(Some(0));
    assert!(world.refresher.as_mut().unwrap().pass().is_err(), "the disk is full");
    world.simulation.limit_room(None);
    world.pass();
    world.check_view("slow", &Step::Pass);
    world.apply(&Step::Advance(700));
    world.apply(&Step::Settle);
    world.check_view("slow", &Step::Settle);
}

#[test]
fn rows_of_a_dropped_view_make_no_table() {
    let world = World::new();
    let view = world.db().view(DATABASE, "slow").unwrap();
    world.drop_view("uneven");
    world.drop_view("slow");
    let rows = ViewRows {
        labels: Labels::from_pairs([("h", "h0")]).unwrap(),
        starts_ns: vec![0],
        columns: [model::Cell::F64(1.0), model::Cell::I64(1)].map(|cell| Column::of_cells(&[cell]).unwrap()).to_vec(),
    };
    world.db().replace_view_rows(&view, &ViewDelete::default(), &[rows]).unwrap();
    let definition = definitions().remove(3);
    assert_eq!(definition.name, "slow");
    world.db().create_view(definition, &Budget::new(1_000)).unwrap();
}

/// Plans that give rows labels of tables, before they are grouped.
fn with_steps(steps: &str, by: &str) -> ViewDefinition {
    let plan = format!(
        "(->> (rows-of \"t\") {steps} (groupby 1m '((sum \"v\")) (by '({by}))) (map \"s\" (column \"sum v\")))"
    );
    view("x", Interval::of_ns(60 * SECOND_NS), &plan, &[("s", ValueType::F64)])
}

#[test]
fn steps_that_give_labels_are_told_apart_and_bounded() {
    let world = World::new();
    let refused = |definition: ViewDefinition, expected: &str| {
        let error = world.db().create_view(definition, &Budget::new(1_000)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let owners = "(labelled inner (->> (rows-of \"owners\")) (on '(\"h\" \"h\")) (labels '(\"owner\" \"owner\")))";
    let homes = "(labelled left (->> (rows-of \"homes\")) (on '(\"owner\" \"owner\")) (labels '(\"home\" \"home\")))";
    refused(with_steps(&[owners, owners].join(" "), "\"owner\""), "the label \"owner\" of two joined tables");
    refused(with_steps(&[homes, owners].join(" "), "\"home\""), "by which it does not group");
    refused(with_steps(&[owners, homes].join(" "), ""), "labels of \"homes\" by which it does not group");
    let number = |number: usize| owners.replace("'(\"owner\" \"", &format!("'(\"o{number}\" \""));
    let many = |count: usize| {
        let steps: Vec<String> = (0..count).map(number).collect();
        let by: Vec<String> = (0..count).map(|number| format!("\"o{number}\"")).collect();
        with_steps(&steps.join(" "), &by.join(" "))
    };
    refused(many(5), "joins 5 tables, and 4 is the most");
    let error = world.db().run_plan(DATABASE, &many(5).plan, &Budget::new(1_000_000)).unwrap_err().to_string();
    assert!(error.contains("4 is the most"), "{error}");
    world.db().create_view(many(4), &Budget::new(1_000)).unwrap();
    // Between the tables nothing else is possible.
    let between = with_steps(&[owners, "(where (> (column \"i\") 0))", homes].join(" "), "\"owner\" \"home\"");
    refused(between, "more than groups of the rows of one table");
}

/// Cases of the property, unless `THALWEG_VIEW_CASES` says how many; `PROPTEST_RNG_SEED` says which. A case has 15 steps on average.
const CASES: u32 = 40;

/// How often a history that fails is made shorter, unless `PROPTEST_MAX_SHRINK_ITERS` says it.
const SHRINKS: u32 = 400;

fn shrinks() -> u32 {
    std::env::var("PROPTEST_MAX_SHRINK_ITERS").map_or(SHRINKS, |shrinks| shrinks.parse().unwrap())
}

fn cases() -> u32 {
    std::env::var("THALWEG_VIEW_CASES").map_or(CASES, |cases| cases.parse().unwrap())
}

#[test]
fn a_view_is_its_query_over_the_source() {
    let config = ProptestConfig {
        cases: cases(),
        max_shrink_iters: shrinks(),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let taken = Cell::new(0u64);
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&prop::collection::vec(step(), 1..30), |steps| {
        let mut world = World::new();
        for step in &steps {
            world.apply(step);
            world.check(step);
            taken.set(taken.get() + 1);
        }
        world.apply(&Step::Settle);
        world.check(&Step::Settle);
        Ok(())
    });
    println!("{} cases of {} steps", runner.config().cases, taken.get());
    outcome.unwrap();
}

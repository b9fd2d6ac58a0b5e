//! Statements, most of them right.

use super::data::{LENGTH_S, Random, START_S};

const NUMBERS: [&str; 3] = ["busy", "load", "jobs"];
const ALL: [&str; 5] = ["busy", "load", "jobs", "up", "note"];
/// Functions of a number.
const AGGREGATES: [&str; 9] = ["mean", "sum", "count", "min", "max", "median", "stddev", "spread", "first"];
const SELECTORS: [&str; 4] = ["max", "min", "first", "last"];
const WIDTHS: [&str; 6] = ["1m", "10m", "7m", "1h", "30m", "90m"];

/// A statement.
pub(super) fn statement(random: &mut Random) -> String {
    match random.below(12) {
        0 | 1 => raw(random),
        2 => transformed(random),
        3 => subquery(random),
        4 => show(random),
        5 => selector(random),
        6 => several_points(random),
        _ => aggregated(random),
    }
}

fn times(random: &mut Random) -> String {
    let start = START_S + random.below(LENGTH_S);
    let end = start + random.below(LENGTH_S);
    match random.below(6) {
        0 => String::new(),
        1 => format!("time >= {start}s"),
        2 => format!("time < {end}s"),
        3 => format!("time > {start}s AND time <= {end}s"),
        _ => format!("time >= {start}s AND time < {end}s"),
    }
}

/// Bounds on both sides: windows are filled up to them.
fn both_times(random: &mut Random) -> String {
    let start = START_S + random.below(LENGTH_S);
    format!("time >= {start}s AND time < {}s", start + 60 + random.below(LENGTH_S))
}

fn tags(random: &mut Random) -> String {
    match random.below(9) {
        0 => "host = 'h1'".to_owned(),
        1 => "host != 'h1'".to_owned(),
        2 => "(host = 'h0' OR host = 'h2')".to_owned(),
        3 => "host =~ /h[12]/".to_owned(),
        4 => "region !~ /r0/".to_owned(),
        5 => "region = ''".to_owned(),
        6 => "host = 'h1' AND region = 'r1'".to_owned(),
        7 => "(host = 'h0' OR region = 'r1')".to_owned(),
        _ => "host =~ /^(h0|h3)$/".to_owned(),
    }
}

fn fields(random: &mut Random) -> String {
    let operator = *random.of(&["<", "<=", ">", ">=", "=", "!="]);
    match random.below(8) {
        0 => format!("busy {operator} {}", random.below(100)),
        1 => format!("load {operator} {}.5", random.below(5)),
        2 => format!("jobs {operator} {}", random.below(1000)),
        3 => "up = true".to_owned(),
        4 => "note = 'n1'".to_owned(),
        5 => "note =~ /n[12]/".to_owned(),
        6 => format!("busy + load {operator} {}", random.below(100)),
        _ => format!("(busy > {} OR jobs < {})", random.below(100), random.below(1000)),
    }
}

/// ` WHERE …`, given what it says of times.
fn condition(random: &mut Random, times: String) -> String {
    let mut parts = Vec::new();
    if random.once_in(3) {
        parts.push(tags(random));
    }
    if random.once_in(4) {
        parts.push(fields(random));
    }
    if !times.is_empty() {
        parts.push(times);
    }
    if parts.is_empty() { String::new() } else { format!(" WHERE {}", parts.join(" AND ")) }
}

fn grouping(random: &mut Random) -> Vec<String> {
    match random.below(8) {
        0 | 1 => vec!["host".to_owned()],
        2 => vec!["region".to_owned()],
        3 => vec!["host".to_owned(), "region".to_owned()],
        4 => vec!["*".to_owned()],
        5 => vec!["/re.*/".to_owned()],
        _ => Vec::new(),
    }
}

fn by(dimensions: &[String]) -> String {
    if dimensions.is_empty() { String::new() } else { format!(" GROUP BY {}", dimensions.join(", ")) }
}

fn fill(random: &mut Random) -> &'static str {
    const FILLS: [&str; 8] =
        ["", "", " fill(null)", " fill(none)", " fill(previous)", " fill(linear)", " fill(0)", " fill(7.5)"];
    let chosen: &&str = random.of(&FILLS);
    chosen
}

fn window(random: &mut Random) -> String {
    let width = *random.of(&WIDTHS);
    match random.below(4) {
        0 => format!("time({width}, {}m)", random.below(20)),
        1 => format!("time({width}, -90s)"),
        _ => format!("time({width})"),
    }
}

fn order(random: &mut Random) -> &'static str {
    if random.once_in(4) { " ORDER BY time DESC" } else { "" }
}

fn raw(random: &mut Random) -> String {
    let fields = match random.below(9) {
        0 => "*".to_owned(),
        1 => "busy, load".to_owned(),
        2 => "busy, host".to_owned(),
        3 => "busy + load AS both, jobs * 2, jobs / 7, jobs % 5, -busy".to_owned(),
        4 => "/^(b|n)/".to_owned(),
        5 => "abs(load), floor(busy), ceil(busy), round(load), sqrt(busy), pow(load, 2), ln(busy), log(busy, 3)"
            .to_owned(),
        6 => "nosuch, note".to_owned(),
        7 => "jobs & 12, jobs | 3, jobs ^ 5, jobs".to_owned(),
        _ => format!("{}, {}", random.of(&ALL), random.of(&ALL)),
    };
    let times = times(random);
    let condition = condition(random, times);
    let (dimensions, order) = (grouping(random), order(random));
    // Which of several rows of one time come first is not said: limits are for single series.
    let limit = match dimensions.first().map(String::as_str) {
        Some("*") if random.once_in(2) => format!(" LIMIT {} OFFSET {}", 1 + random.below(9), random.below(3)),
        _ => String::new(),
    };
    format!("SELECT {fields} FROM cpu{condition}{}{order}{limit}", by(&dimensions))
}

fn call(random: &mut Random) -> String {
    let field = *random.of(&NUMBERS);
    match random.below(12) {
        // A window in which a lower one chooses nothing ends InfluxDB's answer.
        // Of rows with the same value it chooses one by an order that is not stable: few have the same.
        0 => format!("percentile(busy, {})", 50 + random.below(50)),
        1 => format!("count({})", random.of(&ALL)),
        2 => format!("count(distinct({}))", random.of(&ALL)),
        3 => format!("mode({})", random.of(&["note", "up", "jobs"])),
        4 => format!("last({})", random.of(&ALL)),
        5 => format!("mean({field}) / 2 + max({field})"),
        6 => format!("round(mean({field}) * 10) / 10"),
        _ => format!("{}({field})", random.of(&AGGREGATES)),
    }
}

fn aggregated(random: &mut Random) -> String {
    let calls = match random.below(10) {
        0 => "mean(*)".to_owned(),
        1 => "count(*), max(/^(b|l)/)".to_owned(),
        2 => "sum(jobs) AS total, sum(nosuch)".to_owned(),
        3 | 4 => format!("{}, {}", call(random), call(random)),
        _ => call(random),
    };
    let mut dimensions = grouping(random);
    let windowed = !random.once_in(4);
    let times = if windowed { both_times(random) } else { times(random) };
    let condition = condition(random, times);
    let fill = if windowed {
        dimensions.insert(0, window(random));
        fill(random)
    } else {
        ""
    };
    let order = order(random);
    let limit = if random.once_in(5) { format!(" LIMIT {}", 1 + random.below(9)) } else { String::new() };
    let zone = if random.once_in(10) { " tz('America/New_York')" } else { "" };
    let source = *random.of(&["cpu", "cpu", "cpu", "mem, cpu", "/.*/"]);
    // How series are counted is clear where all have the tag and each has rows.
    let countable = source == "cpu" && order.is_empty() && dimensions.last().is_some_and(|last| last == "host");
    let limit =
        if countable && random.once_in(2) { format!("{limit} SLIMIT 2 SOFFSET {}", random.below(2)) } else { limit };
    format!("SELECT {calls} FROM {source}{condition}{}{fill}{order}{limit}{zone}", by(&dimensions))
}

fn selector(random: &mut Random) -> String {
    let function = *random.of(&SELECTORS);
    let mut dimensions = grouping(random);
    if random.once_in(3) {
        dimensions.insert(0, window(random));
    }
    let times = both_times(random);
    let condition = condition(random, times);
    let fill = if dimensions.iter().any(|dimension| dimension.starts_with("time")) { fill(random) } else { "" };
    let more = *random.of(&["", ", host", ", jobs", ", load, note"]);
    format!("SELECT {function}(busy){more} FROM cpu{condition}{}{fill}{}", by(&dimensions), order(random))
}

fn several_points(random: &mut Random) -> String {
    let count = 1 + random.below(5);
    let call = match random.below(6) {
        0 => format!("top(busy, {count})"),
        1 => format!("bottom(busy, {count})"),
        2 => format!("top(busy, host, {count})"),
        3 => format!("bottom(busy, host, {count}), load"),
        4 => "distinct(note)".to_owned(),
        _ => "distinct(up)".to_owned(),
    };
    let mut dimensions = Vec::new();
    if random.once_in(3) {
        dimensions.push(window(random));
    }
    if random.once_in(3) {
        dimensions.push("region".to_owned());
    }
    let times = both_times(random);
    let condition = condition(random, times);
    // In falling order of time InfluxDB turns windows around, but not the points of `top` and `bottom` in them.
    let order = if call.starts_with("distinct") { order(random) } else { "" };
    format!("SELECT {call} FROM cpu{condition}{}{order}", by(&dimensions))
}

fn transformed(random: &mut Random) -> String {
    let functions = [
        "derivative(%)",
        "derivative(%, 1m)",
        "non_negative_derivative(%, 10s)",
        "difference(%)",
        "non_negative_difference(%)",
        "cumulative_sum(%)",
        "moving_average(%, 3)",
        "elapsed(%, 1s)",
        "elapsed(%)",
    ];
    let function = *random.of(&functions);
    let order = order(random);
    if random.once_in(2) {
        // Of the rows of one time only one counts: single series, and those of `mem` have no two.
        let times = times(random);
        let condition = if times.is_empty() { times } else { format!(" WHERE {times}") };
        let field = *random.of(&["used", "pages"]);
        let dimensions = *random.of(&["", " GROUP BY host"]);
        return format!("SELECT {} FROM mem{condition}{dimensions}{order}", function.replace('%', field));
    }
    let inner = format!("{}({})", random.of(&["mean", "sum", "max", "count", "last"]), random.of(&NUMBERS));
    let mut dimensions = vec![window(random)];
    if random.once_in(2) {
        dimensions.push("host".to_owned());
    }
    let times = both_times(random);
    let condition = condition(random, times);
    let second = if random.once_in(3) { ", max(busy)" } else { "" };
    format!(
        "SELECT {}{second} FROM cpu{condition}{}{}{order}",
        function.replace('%', &inner),
        by(&dimensions),
        fill(random)
    )
}

fn subquery(random: &mut Random) -> String {
    let times = both_times(random);
    let window = window(random);
    // What is outside has no bounds: windows are filled from the beginning of time.
    let outer = *random.of(&[
        "",
        " GROUP BY host",
        " GROUP BY region",
        " GROUP BY time(30m) fill(none)",
        " GROUP BY time(1h), host fill(none)",
    ]);
    let function = *random.of(&["mean", "sum", "max", "count", "last", "first"]);
    match random.below(6) {
        0 => format!(
            "SELECT {function}(x) FROM (SELECT mean(busy) AS x FROM cpu WHERE {times} GROUP BY {window}, host){outer}"
        ),
        1 => format!(
            "SELECT {function}(d) FROM (SELECT difference(mean(busy)) AS d FROM cpu WHERE {times} GROUP BY {window}, host, region){outer}"
        ),
        2 => format!("SELECT {function}(x) FROM (SELECT busy / load AS x FROM cpu WHERE {times}){outer}"),
        3 => format!(
            "SELECT x, host FROM (SELECT mean(busy) AS x FROM cpu WHERE {times} GROUP BY {window}, host) WHERE x > 50"
        ),
        4 => format!(
            "SELECT {function}(x) FROM (SELECT busy AS x, load AS y FROM cpu WHERE {times} GROUP BY *) WHERE y > 0{outer}"
        ),
        _ => format!(
            "SELECT {function}(max) / 2 FROM (SELECT max(busy), host FROM cpu WHERE {times} GROUP BY {window}){outer}"
        ),
    }
}

fn show(random: &mut Random) -> String {
    let condition = if random.once_in(2) { format!(" WHERE {}", tags(random)) } else { String::new() };
    match random.below(8) {
        // InfluxDB takes `!=` here to be about all series of a measurement, and finds none by a tag that is missing.
        0 if condition.contains('!') || condition.contains("''") => "SHOW MEASUREMENTS".to_owned(),
        0 => format!("SHOW MEASUREMENTS{condition}"),
        1 => format!("SHOW SERIES{condition} LIMIT {}", 1 + random.below(9)),
        2 => format!("SHOW TAG KEYS{condition}"),
        3 => format!("SHOW TAG VALUES WITH KEY = host{condition}"),
        4 => format!("SHOW TAG VALUES FROM cpu WITH KEY IN (host, region){condition} LIMIT {}", 1 + random.below(5)),
        5 => "SHOW FIELD KEYS".to_owned(),
        6 => "SHOW TAG VALUES FROM /.*/ WITH KEY =~ /h.*/".to_owned(),
        _ => "SHOW SERIES EXACT CARDINALITY".to_owned(),
    }
}

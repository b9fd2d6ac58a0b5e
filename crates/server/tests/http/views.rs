//! What the server tells of materialised views.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::Running;

/// The only view of a database, once it is right.
fn only_view(server: &Running, query: &str) -> Value {
    let begun = Instant::now();
    loop {
        let answer = server.get(&format!("/api/v1/views{query}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        let views = body["data"]["views"].as_array().unwrap();
        if let [view] = views.as_slice()
            && view["state"] == "valid"
            && view["refreshes"] != 0
        {
            return view.clone();
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{body}");
        std::thread::yield_now();
    }
}

#[test]
fn views_are_listed_with_what_they_hold_and_cost() {
    let server = Running::start();
    let lines = [10, 20, 7210, 7220].map(|at_s| format!("t,h=h{} v={at_s} {at_s}000000000", at_s % 20));
    server.write(&lines.join("\n"));
    let made =
        "CREATE MATERIALIZED VIEW t_hour AS SELECT time_bucket('1 hour', time) AS b, max(v) AS high FROM t GROUP BY b";
    assert_eq!(server.post("/sql", made).status, 200);
    let view = only_view(&server, "?db=default");
    for (name, expected) in
        [("name", "t_hour"), ("database", "default"), ("source", "t"), ("target", "t_hour"), ("dialect", "sql")]
    {
        assert_eq!(view[name], expected, "{view}");
    }
    assert_eq!((&view["rows_written"], &view["rows"]), (&2.into(), &Value::Null), "{view}");
    assert!(view["cpu_s"].as_f64().unwrap() > 0.0 && view["elapsed_s"].as_f64().unwrap() > 0.0, "{view}");
    assert_eq!(only_view(&server, "?rows=1")["rows"], 2);
    assert_eq!(server.get("/api/v1/views?rows=many").status, 400);
}

#[test]
fn a_view_that_is_not_needed_says_so() {
    let server = Running::start();
    server.write("t,h=a,room=x v=1,name=\"one\" 10000000000\nt,h=b,room=x v=2,name=\"two\" 20000000000");
    let by_all = "h, room, max(v) AS high, avg(v) AS mean FROM t GROUP BY b, h, room";
    for (name, query, is_needed) in [
        ("all_labels", by_all, false),
        ("fewer_labels", "h, max(v) AS high FROM t GROUP BY b, h", true),
        ("some_rows", "h, room, max(v) AS high FROM t WHERE v > 1 GROUP BY b, h, room", true),
        ("some_series", "h, room, max(v) AS high FROM t WHERE h = 'a' GROUP BY b, h, room", false),
        ("quantiles", "h, room, quantile(v, 0.5) AS middle FROM t GROUP BY b, h, room", true),
        ("texts", "h, room, last(name) AS last_name FROM t GROUP BY b, h, room", true),
    ] {
        let made = format!("CREATE MATERIALIZED VIEW {name} AS SELECT time_bucket('1 hour', time) AS b, {query}");
        let answer = server.post("/sql", made);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        let warning = body["warnings"][0].as_str();
        assert_eq!(warning.is_none(), is_needed, "{name}: {body}");
        assert!(warning.is_none_or(|said| said.contains("the view is not needed") && said.contains(name)), "{body}");
    }
}

/// `CALL` and `REFRESH` return when what was written before is stored, as they do in TimescaleDB and Postgres.
#[test]
fn a_refresh_is_over_when_its_statement_is() {
    let server = Running::start();
    let ask = |text: &str| {
        let answer = server.post("/sql", text);
        assert_eq!(answer.status, 200, "{text}: {}", answer.body);
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert!(body["warnings"].as_array().is_none_or(Vec::is_empty), "{body}");
        body["rows"].to_string()
    };
    server.write("t,h=a v=1 10000000000\nt,h=a v=2 7210000000000");
    ask(
        "CREATE MATERIALIZED VIEW by_call WITH (timescaledb.continuous, timescaledb.materialized_only = true) AS SELECT time_bucket('1 hour', time) AS b, sum(v) AS total FROM t GROUP BY 1 WITH NO DATA",
    );
    ask(
        "CREATE MATERIALIZED VIEW by_hand REFRESH MANUAL AS SELECT time_bucket('1 hour', time) AS b, sum(v) AS total FROM t GROUP BY 1",
    );
    ask("ALTER MATERIALIZED VIEW by_hand SET (timescaledb.materialized_only = true)");
    let (mut first, mut second) = (1, 2);
    for round in 0..4 {
        ask("CALL refresh_continuous_aggregate('by_call', NULL, NULL)");
        ask(if round % 2 == 0 {
            "REFRESH MATERIALIZED VIEW by_hand"
        } else {
            "REFRESH MATERIALIZED VIEW by_hand FULL"
        });
        let expected = format!("[[{first}.0],[{second}.0]]");
        for view in ["by_call", "by_hand"] {
            assert_eq!(ask(&format!("SELECT total FROM {view} ORDER BY b")), expected, "{view}, round {round}");
        }
        server.write(&format!("t,h=late{round} v=10 {}\nt,h=late{round} v=100 7300000000000", 20_000_000_000i64));
        (first, second) = (first + 10, second + 100);
    }
}

/// A view that cannot be refreshed is told to those who watch the server, until it can or is dropped.
#[test]
fn a_view_that_fails_is_in_the_health() {
    let server = Running::start();
    let ask = |text: &str| {
        let answer = server.post("/sql", text);
        assert_eq!(answer.status, 200, "{text}: {}", answer.body);
    };
    let checks = || {
        let answer = server.get("/health");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        let checks = body["checks"].as_array().unwrap().iter();
        let of_views = checks.filter(|check| check["name"] == "views").map(|check| check["message"].to_string());
        of_views.collect::<Vec<String>>()
    };
    let until = |is_failing: bool| {
        let begun = Instant::now();
        while checks().is_empty() == is_failing {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", checks());
            std::thread::yield_now();
        }
    };
    server.write(&format!("t,h=a n={0}i 10000000000\nt,h=b n={0}i 10000000000", i64::MAX));
    ask("CREATE MATERIALIZED VIEW sums AS SELECT time_bucket('1 hour', time) AS b, sum(n) AS n FROM t GROUP BY b");
    until(true);
    let said = checks().concat();
    assert!(said.contains("sums") && said.contains("default") && said.contains("not refreshed"), "{said}");
    ask("DELETE FROM t WHERE h = 'a'");
    until(false);
    server.write(&format!("t,h=c n={}i 10000000000", i64::MAX));
    until(true);
    ask("DROP MATERIALIZED VIEW sums");
    assert_eq!(checks(), Vec::<String>::new());
}

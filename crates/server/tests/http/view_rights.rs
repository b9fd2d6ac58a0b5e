//! Materialised views hold what their makers may read, and show what their readers may.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::access::Guarded;

/// Windows of the rows that [`Guarded`] writes at one second: 1 of `prod`, 2 of `dev`.
const BY_ENV: &str = "SELECT time_bucket('1 second', time) AS time, env, sum(v) AS total FROM m GROUP BY 1, env";
const WHOLE: &str = "SELECT time_bucket('1 second', time) AS time, sum(v) AS total FROM m GROUP BY 1";

/// Accounts' grants: an account that makes views and may read a part, and readers.
const MAKER: &str = r#"{"grants":["write:metrics","read:metrics{env=\"prod\"}"]}"#;
const ALL: &str = r#"{"grants":["read:metrics"]}"#;
const PROD: &str = r#"{"grants":["read:metrics{env=\"prod\"}"]}"#;
const DEV: &str = r#"{"grants":["read:metrics{env=\"dev\"}"]}"#;

/// Asks over `/sql`: the rows, or the status and what it says.
fn try_ask(guarded: &Guarded, token: &str, text: &str) -> Result<Value, (u16, String)> {
    let answer = guarded.ask("POST", "/sql?db=metrics", Some(token), text);
    if answer.status != 200 {
        return Err((answer.status, answer.body));
    }
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    Ok(body["rows"].clone())
}

fn ask(guarded: &Guarded, token: &str, text: &str) -> Value {
    try_ask(guarded, token, text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

fn refused(guarded: &Guarded, token: &str, (text, status, part): (&str, u16, &str)) {
    let (found, told) = try_ask(guarded, token, text).unwrap_err();
    assert!(found == status && told.contains(part), "{text}: {found} {told}");
}

/// The stored windows, as PromQL reads them.
fn stored(guarded: &Guarded, metric: &str) -> Vec<(String, String)> {
    let path = format!("/api/v1/query?db=metrics&nocache=1&time=2&query={metric}");
    let answer = guarded.ask("GET", &path, Some(&guarded.admin), "");
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    let series = body["data"]["result"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found: Vec<_> = series.map(|of| (text(&of["metric"]["env"]), text(&of["value"][1]))).collect();
    found.sort();
    found
}

/// Waits until windows are stored so.
fn wait_for(guarded: &Guarded, metric: &str, expected: &[(&str, &str)]) {
    let begun = Instant::now();
    loop {
        let found = stored(guarded, metric);
        if found.iter().map(|(env, value)| (env.as_str(), value.as_str())).eq(expected.iter().copied()) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{metric}: {found:?}, not {expected:?}");
        std::thread::yield_now();
    }
}

/// Writes rows at the second of the others, as the administrator.
fn write(guarded: &Guarded, rows: &[(&str, i64, i64)]) {
    let line = |(env, value, at_ns): &(&str, i64, i64)| format!("m,env={env} v={value} {}", 1_000_000_000 + at_ns);
    let lines = rows.iter().map(line).collect::<Vec<_>>().join("\n");
    assert_eq!(guarded.ask("POST", "/write?db=metrics", Some(&guarded.admin), &lines).status, 204);
}

#[test]
fn a_view_holds_what_its_maker_may_read_and_shows_what_its_reader_may() {
    let guarded = Guarded::start();
    let [maker, all, prod, dev] = [("maker", MAKER), ("all", ALL), ("prod", PROD), ("dev", DEV)]
        .map(|(name, grants)| guarded.token(name, grants));
    ask(&guarded, &maker, &format!("CREATE MATERIALIZED VIEW mine AS {BY_ENV}"));
    ask(&guarded, &maker, &format!("CREATE MATERIALIZED VIEW mine_whole AS {WHOLE}"));
    ask(&guarded, &guarded.admin, &format!("CREATE MATERIALIZED VIEW everything AS {BY_ENV}"));
    ask(&guarded, &guarded.admin, &format!("CREATE MATERIALIZED VIEW everything_whole AS {WHOLE}"));
    ask(
        &guarded,
        &maker,
        "CREATE MATERIALIZED VIEW over AS SELECT time_bucket('1 minute', time) AS time, env, sum(total) AS total FROM everything GROUP BY 1, env",
    );
    let check = |[of_prod, of_dev]: [f64; 2]| {
        let select = |view: &str| format!("SELECT env, total FROM {view} ORDER BY env");
        let (dev_row, prod_row) = (json!(["dev", of_dev]), json!(["prod", of_prod]));
        for (token, shown) in [(&guarded.admin, [&prod_row, &dev_row]), (&all, [&prod_row, &dev_row])] {
            assert_eq!(ask(&guarded, token, &select("everything")), json!([shown[1], shown[0]]));
            for view in ["mine", "over"] {
                assert_eq!(ask(&guarded, token, &select(view)), json!([prod_row]), "{view}: dev is not the maker's");
            }
            assert_eq!(ask(&guarded, token, "SELECT total FROM mine_whole"), json!([[of_prod]]));
            // Of the table each has all: a view with less does not answer for it.
            assert_eq!(
                ask(&guarded, token, "SELECT time_bucket('1 second', time) AS t, sum(v) FROM m GROUP BY 1")[0][1],
                json!(of_prod + of_dev)
            );
        }
        for (token, of_everything, of_mine) in
            [(&prod, &prod_row, json!([prod_row])), (&maker, &prod_row, json!([prod_row])), (&dev, &dev_row, json!([]))]
        {
            assert_eq!(ask(&guarded, token, &select("everything")), json!([of_everything]));
            assert_eq!(ask(&guarded, token, &select("mine")), of_mine);
            for view in ["mine_whole", "everything_whole"] {
                refused(&guarded, token, (&format!("SELECT total FROM {view}"), 403, "env"));
            }
        }
    };
    // Computed as they are read, and stored; and so with late rows, which come for both.
    check([1.0, 2.0]);
    wait_for(&guarded, "everything_total", &[("dev", "2"), ("prod", "1")]);
    wait_for(&guarded, "mine_total", &[("prod", "1")]);
    check([1.0, 2.0]);
    write(&guarded, &[("prod", 10, 1), ("dev", 20, 1)]);
    check([11.0, 22.0]);
    wait_for(&guarded, "everything_total", &[("dev", "22"), ("prod", "11")]);
    wait_for(&guarded, "mine_total", &[("prod", "11")]);
    wait_for(&guarded, "mine_whole_total", &[("", "11")]);
    wait_for(&guarded, "over_total", &[("prod", "11")]);
    check([11.0, 22.0]);
}

#[test]
fn what_a_view_holds_is_changed_by_no_account_with_other_rights() {
    let guarded = Guarded::start();
    let maker = guarded.token("maker", MAKER);
    let all = guarded.token("all", r#"{"grants":["read+write:metrics"]}"#);
    ask(&guarded, &maker, &format!("CREATE MATERIALIZED VIEW mine AS {BY_ENV}"));
    ask(&guarded, &all, &format!("CREATE MATERIALIZED VIEW everything AS {BY_ENV}"));
    let add = |view: &str| format!("ALTER MATERIALIZED VIEW {view} ADD COLUMN high AS max(v)");
    for token in [&guarded.admin, &all] {
        refused(&guarded, token, (&add("mine"), 400, "by the rights of the account that adds it"));
    }
    for view in ["mine", "everything"] {
        refused(&guarded, &maker, (&add(view), 403, "is changed by those who may read its whole database"));
        let shown = format!("SHOW CREATE MATERIALIZED VIEW {view}");
        refused(&guarded, &maker, (&shown, 403, "those who may read its whole database"));
    }
    ask(&guarded, &all, &add("everything"));
    assert_eq!(
        ask(&guarded, &all, "SELECT env, high FROM everything ORDER BY env"),
        json!([["dev", 2.0], ["prod", 1.0]])
    );
    for (name, grants) in [("reader", ALL), ("writer", r#"{"grants":["write:metrics"]}"#)] {
        let token = guarded.token(name, grants);
        refused(&guarded, &token, (&format!("CREATE MATERIALIZED VIEW none AS {BY_ENV}"), 403, ""));
    }
}

#[test]
fn a_view_stays_as_it_is_when_its_makers_rights_change_and_the_account_goes() {
    let guarded = Guarded::start();
    let maker = guarded.token("maker", MAKER);
    ask(&guarded, &maker, &format!("CREATE MATERIALIZED VIEW mine AS {BY_ENV}"));
    let continuous = form_urlencoded::Serializer::new(String::new())
        .append_pair("db", "metrics")
        .append_pair("q", "CREATE CONTINUOUS QUERY cq ON metrics BEGIN SELECT sum(v) AS total INTO kept FROM m GROUP BY time(1s), env END")
        .finish();
    let made = guarded.ask("POST", &format!("/query?{continuous}"), Some(&maker), "");
    assert!(made.status == 200 && !made.body.contains("error"), "{}", made.body);
    wait_for(&guarded, "mine_total", &[("prod", "1")]);
    let now_ns = guarded.server.db.now_ns();
    write(&guarded, &[("prod", 10, 1), ("dev", 20, 1), ("prod", 3, now_ns), ("dev", 4, now_ns)]);
    wait_for(&guarded, "mine_total", &[("prod", "11")]);
    // Other rights, then none.
    let changed = guarded.ask(
        "PUT",
        "/api/v1/admin/accounts/maker",
        Some(&guarded.admin),
        r#"{"grants":["write:other","read:metrics{env=\"dev\"}"]}"#,
    );
    assert_eq!(changed.status, 200, "{}", changed.body);
    write(&guarded, &[("prod", 100, 2), ("dev", 200, 2)]);
    wait_for(&guarded, "mine_total", &[("prod", "111")]);
    assert_eq!(ask(&guarded, &maker, "SELECT total FROM mine"), json!([]), "what is in it is no longer the maker's");
    assert_eq!(guarded.ask("DELETE", "/api/v1/admin/accounts/maker", Some(&guarded.admin), "").status, 204);
    write(&guarded, &[("prod", 1_000, 3), ("dev", 2_000, 3)]);
    wait_for(&guarded, "mine_total", &[("prod", "1111")]);
    let begun = Instant::now();
    let kept = || guarded.ask("POST", "/sql?db=metrics", Some(&guarded.admin), "SELECT env, total FROM kept").body;
    while !kept().contains("[\"prod\",3.0]") {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", kept());
        std::thread::yield_now();
    }
    assert!(!kept().contains("dev"), "{}", kept());
    let listed = guarded.ask("GET", "/api/v1/views?db=metrics", Some(&guarded.admin), "").body;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let views = listed["data"]["views"].as_array().unwrap();
    assert!(
        views.len() == 2 && views.iter().all(|view| view["maker"] == "maker" && view["error"] == Value::Null),
        "{listed}"
    );
}

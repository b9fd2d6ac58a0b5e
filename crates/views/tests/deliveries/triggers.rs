//! Triggers: hooks and rows of other tables.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use query::QueryError;
use serde_json::Value as Json;
use thalweg_views::hook::{SIGNATURE_HEADER, signature};

use crate::world::{Mode, START_NS, World, options, options_of_a_short_log};

const HOOK: &str = "CREATE TRIGGER hot ON cpu WHEN (usage >= 0 AND host LIKE 'a%') \
    DO WEBHOOK 'http://hook/x' WITH (batch_rows = 7, timeout = '5s')";

/// Steps of the rows that the hook got, in order, and checks of all that it got.
fn steps(world: &World) -> Vec<i64> {
    let receivers = world.receivers.lock().unwrap();
    let mut steps = Vec::new();
    for request in receivers.taken.iter().filter(|request| request.url == "http://hook/x") {
        let body: Json = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(
            (&body["trigger"], &body["database"], &body["table"]),
            (&"hot".into(), &"default".into(), &"cpu".into())
        );
        let rows = body["rows"].as_array().unwrap();
        assert!((1..=7).contains(&rows.len()));
        assert_eq!(rows.last().unwrap()["sequence"], body["sequence"]);
        assert!(rows.iter().map(|row| row["sequence"].as_u64().unwrap()).is_sorted());
        for row in rows {
            assert_eq!(row["tags"], serde_json::json!({"host": "a"}));
            let step = row["fields"]["n"].as_i64().unwrap();
            assert_eq!(row["fields"]["usage"].as_f64().unwrap(), step as f64);
            let time: jiff::Timestamp = row["time"].as_str().unwrap().parse().unwrap();
            assert_eq!(time.as_nanosecond(), i128::from(START_NS + step * 1_000_000_000));
            steps.push(step);
        }
    }
    steps
}

/// Checks that every row came, in order but for those that came again; returns how many did.
fn check(world: &World) -> usize {
    let steps = steps(world);
    let mut known = BTreeSet::new();
    let first: Vec<i64> = steps.iter().copied().filter(|step| known.insert(*step)).collect();
    assert_eq!(first, (0..world.step).collect::<Vec<_>>());
    steps.len() - first.len()
}

#[test]
fn every_row_reaches_the_hook_through_outages_and_restarts() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run(HOOK).unwrap();
    for (mode, requests) in [
        (Mode::Takes, 20),
        (Mode::IsDown, 30),
        (Mode::Status(500), 20),
        (Mode::Takes, 10),
        (Mode::Status(429), 20),
        (Mode::Hangs, 20),
        (Mode::Takes, 30),
        (Mode::TakesLate(3_000), 10),
    ] {
        world.mode("hook", mode);
        world.write(requests);
    }
    world.mode("hook", Mode::IsDown);
    world.write(10);
    assert_eq!(world.report("hot").state, "retrying");
    assert!(world.report("hot").last_error.contains("refused") && world.report("hot").lag > 0);
    world.restart(false);
    world.write(10);
    world.restart(true);
    world.mode("hook", Mode::Takes);
    world.write(20);
    world.network.run_ms(60_000);
    check(&world);
    let report = world.report("hot");
    assert_eq!((report.state, report.lag, report.failed_rows, report.dropped_records), ("running", 0, 0, 0));
    // What was taken right before a crash, and whose answer was lost, comes again.
    world.mode("hook", Mode::LosesAnswers);
    world.write(5);
    world.restart(true);
    world.mode("hook", Mode::Takes);
    world.write(5);
    world.network.run_ms(60_000);
    assert!(check(&world) > 0);
    assert!(world.receivers.lock().unwrap().taken.iter().all(|request| request.header(SIGNATURE_HEADER).is_none()));
}

#[test]
fn a_hook_that_is_late_gets_its_request_again() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run(HOOK).unwrap();
    world.mode("hook", Mode::TakesLate(6_000));
    world.write(4);
    world.network.run_ms(10_000);
    world.mode("hook", Mode::Takes);
    world.network.run_ms(60_000);
    assert!(check(&world) > 0, "each late answer is one more attempt");
    assert!(world.report("hot").retries > 0);
}

#[test]
fn a_hook_that_hangs_costs_nothing_else() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run(HOOK).unwrap();
    world.run(&HOOK.replace("hot", "stuck").replace("http://hook/x", "http://stuck/x")).unwrap();
    world.mode("stuck", Mode::Hangs);
    world.write(40);
    world.network.run_ms(10_000);
    check(&world);
    assert_eq!(world.report("hot").lag, 0);
    let stuck = world.report("stuck");
    assert_eq!((stuck.state, stuck.sent_rows), ("retrying", 0));
    assert!(stuck.last_error.contains("no answer within 5000 ms"), "{}", stuck.last_error);
}

#[test]
fn bodies_are_signed_and_the_secret_is_not_shown() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run(&HOOK.replace("timeout", "secret = 'key', timeout")).unwrap();
    world.write(3);
    world.network.run_ms(5_000);
    check(&world);
    let taken = world.receivers.lock().unwrap().taken.clone();
    assert!(!taken.is_empty());
    for request in taken {
        assert_eq!(request.header(SIGNATURE_HEADER), Some(signature("key", &request.body).as_str()));
        assert_eq!(request.header("X-Thalweg-Trigger"), Some("hot"));
    }
    assert!(!format!("{:?}", world.deliveries().reports()).contains("key"));
}

#[test]
fn what_is_refused_is_not_sent_again_and_is_counted() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run(HOOK).unwrap();
    world.mode("hook", Mode::Status(400));
    world.write(5);
    world.network.run_ms(5_000);
    world.mode("hook", Mode::Status(302));
    world.write(5);
    world.network.run_ms(5_000);
    let report = world.report("hot");
    assert_eq!((report.failed_rows, report.sent_rows, report.lag), (10, 0, 0));
    assert!(report.last_error.contains("redirections are not followed"), "{}", report.last_error);
    world.mode("hook", Mode::Takes);
    world.write(1);
    world.network.run_ms(5_000);
    assert_eq!(steps(&world), [10]);
}

#[test]
fn rows_are_dropped_after_a_time_only_if_asked() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run(&HOOK.replace("batch_rows", "retry_for = '20s', batch_rows")).unwrap();
    world.mode("hook", Mode::IsDown);
    world.write(7);
    world.network.run_ms(120_000);
    let report = world.report("hot");
    assert_eq!((report.dropped_rows, report.lag), (7, 0));
    assert!(report.last_error.contains("dropped"), "{}", report.last_error);
}

#[test]
fn what_the_log_does_not_have_any_more_is_counted() {
    let mut world = World::new(options_of_a_short_log);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run(HOOK).unwrap();
    world.mode("hook", Mode::IsDown);
    for _ in 0..30 {
        world.write(20);
        world.db().compact_all().unwrap();
    }
    world.mode("hook", Mode::Takes);
    world.write(20);
    world.network.run_ms(60_000);
    let report = world.report("hot");
    assert!(report.dropped_records > 0 && report.last_error.contains("does not have them any more"), "{report:?}");
    assert_eq!(report.lag, 0);
    let steps = steps(&world);
    assert!(steps.is_sorted() && steps.last() == Some(&(world.step - 1)));
}

fn query(world: &World, text: &str) -> Vec<Vec<query::Value>> {
    let parsed = sql::parse(text).unwrap();
    let client = sql::ClientContext::new("default", world.db().now_ns());
    let answer = world.db().sql(&parsed, 0, &client, &world.db().budget(1 << 40)).unwrap();
    answer.relation().unwrap().rows
}

#[test]
fn rows_go_on_to_other_tables() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i,note=\"x\" 1");
    world.run("CREATE TRIGGER copy ON CPU WHEN (usage >= 2) DO INSERT INTO busy").unwrap();
    world
        .run("CREATE TRIGGER half ON busy WHEN (usage >= 4) DO INSERT INTO halved SELECT host, usage / 2 AS half, note")
        .unwrap();
    world.write(4);
    world.restart(true);
    world.write(4);
    let time_ns = START_NS + world.step * 1_000_000_000;
    world.lines(&format!("cpu,host=a usage=100,note=\"a text\" {time_ns}"));
    world.network.run_ms(20_000);
    let count = |text: &str| query(&world, text)[0][0].to_string();
    assert_eq!(count("SELECT count(usage) FROM busy"), "7");
    assert_eq!(count("SELECT count(half) FROM halved"), "5");
    let last = query(&world, "SELECT time, host, half, note FROM halved ORDER BY time DESC LIMIT 1");
    let shown: Vec<String> = last[0].iter().skip(1).map(ToString::to_string).collect();
    assert_eq!(
        (&last[0][0], shown.as_slice()),
        (&query::Value::Timestamp(time_ns), &["a", "50", "a text"].map(str::to_owned)[..])
    );
    // A text field of the source is a field of the copy, not a tag.
    let note = query(&world, "SELECT note FROM busy WHERE usage = 100");
    assert_eq!(note[0][0].to_string(), "a text");
    assert_eq!(world.report("copy").failed_rows, 0);
}

/// The time of a table is called as it was declared, and another one may be computed for it.
#[test]
fn rows_go_to_tables_whose_time_has_a_name_of_its_own() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    for table in
        ["CREATE TABLE copies (n BIGINT, ts TIMESTAMP, host TAG)", "CREATE TABLE later (ts TIMESTAMP, n BIGINT)"]
    {
        let client = sql::ClientContext::new("default", world.db().now_ns());
        drop(world.db().sql(&sql::parse(table).unwrap(), 0, &client, &world.db().budget(1 << 40)).unwrap());
    }
    world.run("CREATE TRIGGER copy ON cpu WHEN (usage >= 0) DO INSERT INTO copies SELECT host, n").unwrap();
    world
        .run("CREATE TRIGGER shift ON copies WHEN (n >= 1) DO INSERT INTO later SELECT ts + INTERVAL '1 hour' AS ts, n")
        .unwrap();
    world.run("CREATE TRIGGER all ON copies WHEN (n >= 2 AND ts > '2000-01-01') DO INSERT INTO others").unwrap();
    world.write(4);
    world.network.run_ms(5_000);
    let second = |text: &str| (query(&world, text)[0][0].time_ns().unwrap() - START_NS) / 1_000_000_000;
    assert_eq!(second("SELECT min(ts) FROM copies"), 0);
    assert_eq!(second("SELECT min(ts) FROM later"), 3_601);
    assert_eq!(second("SELECT min(time) FROM others"), 2);
    let count = |text: &str| query(&world, text)[0][0].to_string();
    assert_eq!(
        [
            count("SELECT count(n) FROM copies"),
            count("SELECT count(n) FROM later"),
            count("SELECT count(n) FROM others")
        ],
        ["4", "3", "2"]
    );
}

#[test]
fn a_row_that_cannot_be_written_keeps_no_other_back() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i,note=\"x\" 1\ntarget v=1 1");
    world.run("CREATE TRIGGER t ON cpu WHEN (usage >= 0) DO INSERT INTO target SELECT host, CASE WHEN n = 2 THEN 'bad' ELSE '7' END AS v")
        .unwrap();
    world.write(5);
    world.network.run_ms(5_000);
    let report = world.report("t");
    assert_eq!((report.sent_rows, report.failed_rows, report.lag), (4, 1, 0), "{report:?}");
    assert_eq!(query(&world, "SELECT count(v) FROM target WHERE time > 1")[0][0].to_string(), "4");
}

#[test]
fn a_trigger_cannot_feed_itself() {
    let world = World::new(options);
    world.lines("a v=1 1");
    let run = |text: &str| world.run(text).map(drop);
    let refused =
        |text: &str| matches!(run(text), Err(QueryError::Invalid(message)) if message.contains("feed itself"));
    assert!(refused("CREATE TRIGGER t ON a WHEN (v > 0) DO INSERT INTO a"));
    assert!(refused("CREATE TRIGGER t ON A WHEN (v > 0) DO INSERT INTO a"), "names are looked up without their case");
    run("CREATE TRIGGER ab ON a WHEN (v > 0) DO INSERT INTO b").unwrap();
    run("CREATE TRIGGER bc ON b WHEN (v > 0) DO INSERT INTO c").unwrap();
    run("ALTER TRIGGER bc DISABLE").unwrap();
    assert!(refused("CREATE TRIGGER ca ON c WHEN (v > 0) DO INSERT INTO a"), "a disabled one can be enabled again");
    run("DROP TRIGGER bc").unwrap();
    run("CREATE TRIGGER ca ON c WHEN (v > 0) DO INSERT INTO a").unwrap();
    // By way of a table that a view joins as of a time.
    world.lines("x,h=h0 v=1 1\ny,h=h0 v=1 1");
    let view = "CREATE MATERIALIZED VIEW seen AS SELECT time_bucket('1 minute', x.time) AS bucket, x.h, max(y.v) AS v FROM x ASOF JOIN y ON (h) GROUP BY 1, 2";
    let client = sql::ClientContext::new("default", world.db().now_ns());
    world.db().sql(&sql::parse(view).unwrap(), 0, &client, &world.db().budget(1 << 40)).unwrap();
    assert!(refused("CREATE TRIGGER back ON seen WHEN (v > 0) DO INSERT INTO y"));
    run("CREATE TRIGGER further ON seen WHEN (v > 0) DO INSERT INTO z").unwrap();
    let into_view = run("CREATE TRIGGER into ON z WHEN (v > 0) DO INSERT INTO seen").unwrap_err().to_string();
    assert!(into_view.contains("\"seen\" is a materialised view"), "{into_view}");
}

#[test]
fn statements_say_what_is_wrong() {
    let world = World::new(options);
    world.lines("cpu,host=z usage=-1 1");
    let fails = |text: &str, part: &str| {
        let error = world.run(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    };
    world.run(HOOK).unwrap();
    fails(HOOK, "already exists");
    world.run(&HOOK.replace("TRIGGER hot", "TRIGGER IF NOT EXISTS hot")).unwrap();
    fails("CREATE TRIGGER t ON cpu WHEN (nothing > 1) DO INSERT INTO b", "does not exist");
    fails("CREATE TRIGGER t ON cpu WHEN (usage) DO INSERT INTO b", "not boolean");
    fails("CREATE TRIGGER t ON cpu WHEN (usage > 1) DO WEBHOOK 'ftp://a'", "http:// or https://");
    fails("CREATE TRIGGER t ON cpu WHEN (usage > 1) DO WEBHOOK 'http://a' WITH (batch_rows = 0)", "from 1 to 100000");
    fails("CREATE TRIGGER t ON later WHEN (max(usage) > 1) DO INSERT INTO b", "max");
    fails("CREATE TRIGGER t ON later WHEN (nofunction(usage) > 1) DO INSERT INTO b", "nofunction");
    world.run("CREATE TRIGGER of_later ON later WHEN (usage > 1 AND host = 'a') DO INSERT INTO b").unwrap();
    fails("DROP TRIGGER nothing", "SHOW TRIGGERS");
    fails("ALTER TRIGGER nothing ENABLE", "SHOW TRIGGERS");
    world.run("DROP TRIGGER IF EXISTS nothing").unwrap();
    world.run("CREATE TRIGGER later ON unborn WHEN (v > 1) DO INSERT INTO b").unwrap();
    let names: Vec<String> = world.run("SHOW TRIGGERS").unwrap().into_iter().map(|report| report.name).collect();
    assert_eq!(names, ["hot", "later", "of_later"]);
}

#[test]
fn only_listed_addresses_are_sent_to() {
    let mut world = World::allowing(options, &["http://hook/x"]);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    let error = world.run(&HOOK.replace("http://hook/x", "http://hook/other")).unwrap_err().to_string();
    assert!(error.contains("--webhook-urls"), "{error}");
    world.run(HOOK).unwrap();
    world.write(2);
    world.network.run_ms(5_000);
    check(&world);
}

#[test]
fn a_disabled_trigger_holds_nothing_and_begins_anew() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run(HOOK).unwrap();
    world.write(2);
    world.network.run_ms(3_000);
    world.run("ALTER TRIGGER hot DISABLE").unwrap();
    assert_eq!(world.report("hot").state, "disabled");
    assert!(world.db().log_cursors().is_empty());
    world.write(3);
    world.restart(false);
    world.run("ALTER TRIGGER hot ENABLE").unwrap();
    world.write(1);
    world.network.run_ms(3_000);
    assert_eq!(steps(&world), [0, 1, 5]);
    world.run("DROP TRIGGER hot").unwrap();
    assert!(world.db().log_cursors().is_empty() && world.deliveries().reports().is_empty());
}

#[test]
fn a_trigger_has_the_rights_of_its_maker() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    let reader = world.add_account("reader", &["read:default"]);
    let insert = "CREATE TRIGGER t ON cpu WHEN (usage >= 0) DO INSERT INTO busy";
    assert!(matches!(world.run_as(insert, &reader), Err(QueryError::Forbidden(_))));
    let maker = world.add_account("maker", &["all:default"]);
    assert!(matches!(world.run_as(HOOK, &maker), Err(QueryError::Forbidden(_))), "hooks need an administrator");
    let narrow = world.add_account("narrow", &["admin:default", "read+write:default{host=\"b\"}"]);
    world.run_as(insert, &maker).unwrap();
    world.run_as("CREATE TRIGGER narrow ON cpu WHEN (usage > -5) DO INSERT INTO seen", &narrow).unwrap();
    world.write(3);
    world.network.run_ms(5_000);
    assert_eq!(query(&world, "SELECT count(usage) FROM busy")[0][0].to_string(), "3");
    let hosts = query(&world, "SELECT DISTINCT host FROM seen");
    assert_eq!(hosts, [[query::Value::text("b")]], "only what the account may read");
    // It stops with its maker, and goes on where it was if that comes back.
    world.scopes.lock().unwrap().remove("maker");
    world.write(2);
    world.network.run_ms(20_000);
    assert!(world.report("t").last_error.contains("no account maker"), "{:?}", world.report("t"));
    world.add_account("maker", &["all:default"]);
    world.network.run_ms(20_000);
    assert_eq!(query(&world, "SELECT count(usage) FROM busy")[0][0].to_string(), "5");
}

#[test]
fn triggers_go_with_their_database() {
    let world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run(HOOK).unwrap();
    world.db().drop_database("default").unwrap();
    world.deliveries().forget_dropped();
    assert!(world.deliveries().reports().is_empty() && world.db().log_cursors().is_empty());
    assert!(world.db().documents("trigger").is_empty());
}

#[test]
fn a_trigger_does_not_follow_the_next_database_of_its_name() {
    for is_crash in [false, true] {
        let mut world = World::new(options);
        world.lines("cpu,host=z usage=-1,n=0i 1");
        world.run(HOOK).unwrap();
        world.db().drop_database("default").unwrap();
        world.lines("cpu,host=z usage=-1,n=0i 1");
        world.write(3);
        if is_crash {
            world.restart(true);
        } else {
            world.deliveries().forget_dropped();
        }
        world.write(3);
        world.network.run_ms(10_000);
        assert!(steps(&world).is_empty(), "{is_crash}");
        assert!(world.deliveries().reports().is_empty() && world.db().log_cursors().is_empty(), "{is_crash}");
        assert!(world.db().documents("trigger").is_empty(), "{is_crash}");
    }
}

#[test]
fn a_trigger_does_not_run_with_the_rights_of_another_account_of_its_makers_name() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    let maker = world.add_account("maker", &["all:default"]);
    world.made_ns.lock().unwrap().insert("maker".to_owned(), 5);
    world.run_as("CREATE TRIGGER t ON cpu WHEN (usage >= 0) DO INSERT INTO busy", &maker).unwrap();
    world.write(2);
    world.network.run_ms(5_000);
    world.made_ns.lock().unwrap().insert("maker".to_owned(), 6);
    world.restart(false);
    world.write(2);
    world.network.run_ms(20_000);
    let report = world.report("t");
    assert!(report.last_error.contains("the account that made it is gone"), "{report:?}");
    assert_eq!(query(&world, "SELECT count(usage) FROM busy")[0][0].to_string(), "2");
}

#[test]
fn a_document_that_cannot_be_read_keeps_its_position_until_it_is_dropped() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run(HOOK).unwrap();
    world.write(2);
    world.db().put_document("trigger", r#"["default","hot"]"#, b"{}").unwrap();
    world.restart(false);
    world.run("CREATE TRIGGER other ON cpu WHEN (usage >= 0) DO INSERT INTO busy").unwrap();
    let cursors = |world: &World| world.db().log_cursors().into_iter().map(|cursor| cursor.name).collect::<Vec<_>>();
    assert_eq!(cursors(&world), [r#"trigger/["default","hot"]"#, r#"trigger/["default","other"]"#]);
    let error = world.run(HOOK).unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");
    world.run("DROP TRIGGER hot").unwrap();
    assert_eq!(cursors(&world), [r#"trigger/["default","other"]"#]);
    world.run(HOOK).unwrap();
}

#[test]
fn a_trigger_that_cannot_be_started_is_not_made() {
    let world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    // As many cursors as the log may have.
    let mut names = (0..).map(|number| format!("filler {number}"));
    while names.next().is_some_and(|name| world.db().log_cursor(&name, None).is_ok()) {}
    let error = world.run(HOOK).unwrap_err().to_string();
    assert!(error.contains("cannot run"), "{error}");
    assert!(world.deliveries().reports().is_empty() && world.db().documents("trigger").is_empty());
    world.db().remove_log_cursor("filler 0").unwrap();
    world.run(HOOK).unwrap();
}

#[test]
fn a_hook_that_hangs_holds_no_memory_for_what_comes_later() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run(HOOK).unwrap();
    world.mode("hook", Mode::Hangs);
    world.write(300);
    let held_bytes = world.db().query_memory().used_bytes();
    assert!(held_bytes < 4_096, "{held_bytes} bytes");
    world.mode("hook", Mode::Takes);
    world.network.run_ms(60_000);
    check(&world);
    assert_eq!(world.report("hot").lag, 0);
}

fn steps_of_one_write(steps: std::ops::Range<i64>) -> String {
    let line = |step: i64| format!("cpu,host=a usage={step},n={step}i {}", START_NS + step * 1_000_000_000);
    steps.map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn rows_that_are_too_many_at_once_are_written_in_parts() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run("CREATE TRIGGER t ON cpu WHEN (usage >= 0) DO INSERT INTO busy").unwrap();
    world.write(1);
    world.network.run_ms(5_000);
    // A row has four values.
    world.samples_max.store(50, Ordering::Relaxed);
    world.lines(&steps_of_one_write(1..41));
    world.network.run_ms(5_000);
    let report = world.report("t");
    assert_eq!((report.sent_rows, report.failed_rows, report.lag), (41, 0, 0), "{report:?}");
    world.samples_max.store(3, Ordering::Relaxed);
    world.lines(&steps_of_one_write(41..44));
    world.network.run_ms(5_000);
    let report = world.report("t");
    assert_eq!((report.state, report.sent_rows, report.failed_rows, report.lag), ("running", 41, 3, 0), "{report:?}");
    assert!(report.last_error.contains("query_samples_max"), "{report:?}");
}

#[test]
fn the_rows_of_one_large_write_go_on_where_an_attempt_failed() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run(HOOK).unwrap();
    world.mode("hook", Mode::IsDown);
    world.lines(&steps_of_one_write(0..40));
    world.step = 40;
    for _ in 0..40 {
        world.mode("hook", Mode::IsDown);
        world.network.run_ms(150);
        world.mode("hook", Mode::Takes);
        world.network.run_ms(150);
    }
    world.mode("hook", Mode::Takes);
    world.network.run_ms(60_000);
    assert_eq!(check(&world), 0, "none comes twice");
    assert_eq!(world.report("hot").lag, 0);
}

#[test]
fn rows_that_do_not_go_with_the_condition_fail_and_hold_nothing_up() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    world.run("CREATE TRIGGER t ON later WHEN (v) DO INSERT INTO busy").unwrap();
    world.lines("later v=2 1700000000000000000");
    world.network.run_ms(5_000);
    let report = world.report("t");
    assert_eq!((report.state, report.failed_rows, report.lag), ("running", 1, 0), "{report:?}");
    assert!(report.last_error.contains("left out"), "{report:?}");
    world.write(1);
    world.network.run_ms(5_000);
    assert_eq!(world.report("t").lag, 0);
}

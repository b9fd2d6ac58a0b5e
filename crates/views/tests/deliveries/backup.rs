//! A backup has views, continuous queries, tasks, triggers and subscriptions: restored, they go on from where it was taken.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use access::scope::Scope;
use db::views::TaskSettings;
use influxql::SubscriptionStatement;
use query::{Budget, Value, ViewUse};
use sql::{ClientContext, Manner};
use thalweg_views::delivery::Maker;
use thalweg_views::{RefreshLimits, Refresher};

use crate::world::{Mode, World, options, options_of_restored};

const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;

/// Names of views over `t`, all of one query.
const VIEWS: [&str; 3] = ["stored", "pending", "short"];
const WINDOWS: &str =
    "SELECT time_bucket('1 minute', time) AS bucket, host, sum(v) AS total, count(*) AS n FROM t GROUP BY 1, 2";

/// Rows of statements, by the last one's answer; `view_use` says what is read of views.
fn ask_with(world: &World, view_use: ViewUse, text: &str) -> Vec<Vec<Value>> {
    let parsed = sql::parse(text).unwrap();
    let mut client = ClientContext::new("default", world.db().now_ns());
    client.manner = Manner::Postgres;
    let mut rows = Vec::new();
    for place in 0..parsed.statements.len() {
        let budget = Arc::new(Budget::new(10_000_000));
        budget.use_views(view_use);
        let answer = world.db().sql(&parsed, place, &client, &budget).unwrap_or_else(|error| panic!("{text}: {error}"));
        rows = answer.relation().map(|relation| relation.rows).unwrap_or_default();
    }
    rows
}

fn ask(world: &World, text: &str) -> Vec<Vec<Value>> {
    ask_with(world, ViewUse::All, text)
}

fn influxql(world: &World, text: &str) -> String {
    let query = influxql::Query::parse(text, &BTreeMap::new()).unwrap();
    let request = influxql::RequestContext { database: Some("default"), read_only: false };
    format!("{:?}", world.db().run_influxql(&query, 0, &request, &Budget::new(10_000_000)).unwrap())
}

fn settle(world: &World, refresher: &mut Refresher) {
    let passes = (0..100).take_while(|_| refresher.pass().unwrap()).count();
    assert!(passes < 100, "refreshing does not end");
    refresher.pass().unwrap();
    for view in world.db().views("default") {
        assert_eq!(world.db().next_view_range(&view), None, "{}", view.definition.name);
    }
}

fn refresher(world: &World) -> Refresher {
    Refresher::new(world.db().clone(), RefreshLimits::default())
}

/// The beginning of the minute under way.
fn minute_ns(world: &World) -> i64 {
    let now_ns = world.db().now_ns();
    now_ns - now_ns.rem_euclid(MINUTE_NS)
}

/// Two hours of rows of two hosts up to now.
fn fill(world: &World) {
    let mut lines = String::new();
    for second in (0..7_200).step_by(7) {
        let host = if second % 2 == 0 { "a" } else { "b" };
        writeln!(lines, "t,host={host} v={second} {}", world.db().now_ns() - second * SECOND_NS).unwrap();
    }
    world.lines(&lines);
}

fn define(world: &World) {
    for view in ["stored", "short"] {
        ask(world, &format!("CREATE MATERIALIZED VIEW {view} AS {WINDOWS}"));
    }
    ask(world, "CREATE VIEW busy AS SELECT time, host, v FROM t WHERE v > 7000");
    influxql(
        world,
        "CREATE CONTINUOUS QUERY cq ON \"default\" BEGIN SELECT count(v) AS n INTO counted FROM t GROUP BY time(1m), host END",
    );
    let script = flux::TaskScript::parse(
        "option task = {name: \"sums\", every: 1m}\nfrom(bucket: \"default\") |> range(start: -task.every) \
         |> filter(fn: (r) => r._measurement == \"t\" and r._field == \"v\") \
         |> aggregateWindow(every: 1m, fn: sum, timeSrc: \"_start\", createEmpty: false) \
         |> set(key: \"_measurement\", value: \"summed\") |> to(bucket: \"default\", org: \"o\")",
    );
    world.db().create_task(&script.unwrap(), TaskSettings::default(), &Budget::new(10_000_000)).unwrap();
    world
        .run("CREATE TRIGGER hot ON cpu WHEN (usage >= 0) DO WEBHOOK 'http://hook/x' WITH (secret = 'key', batch_rows = 5)")
        .unwrap();
    subscription(
        world,
        &SubscriptionStatement::Create {
            name: "mirror".to_owned(),
            database: "default".to_owned(),
            policy: "autogen".to_owned(),
            sends_to_all: true,
            destinations: vec!["http://mirror:8086".to_owned()],
        },
    );
}

fn subscription(world: &World, statement: &SubscriptionStatement) -> String {
    let maker = Maker { database: "", scope: &Scope::open() };
    format!("{:?}", world.deliveries().subscription_statement(statement, maker).unwrap())
}

/// All definitions, as the statements that list them say.
fn listed(world: &World) -> Vec<String> {
    let mut listed: Vec<String> = ["stored", "pending", "short"]
        .iter()
        .map(|view| format!("SHOW CREATE MATERIALIZED VIEW {view}"))
        .chain(
            [
                "SELECT view_name, view_sql, refresh_type FROM materialized_views() ORDER BY 1",
                "SELECT view_name, view_definition FROM timescaledb_information.continuous_aggregates ORDER BY 1",
                "SELECT viewname, definition FROM pg_views ORDER BY 1",
                "SHOW CREATE VIEW busy",
            ]
            .map(str::to_owned),
        )
        .map(|text| format!("{text}: {:?}", ask(world, &text)))
        .collect();
    listed.push(influxql(world, "SHOW CONTINUOUS QUERIES"));
    let tasks = world.db().tasks(&Budget::new(1_000));
    listed.extend(tasks.iter().map(|task| format!("{:?}", task.definition)));
    listed.extend(world.db().views("default").iter().map(|view| format!("{:?}", view.definition)));
    let reports = world.run("SHOW TRIGGERS").unwrap();
    listed.extend(reports.iter().map(|report| {
        format!(
            "{} {} {} {} {} {}",
            report.name, report.table, report.condition, report.action, report.target, report.owner
        )
    }));
    listed.push(subscription(world, &SubscriptionStatement::Show));
    listed
}

/// Windows of views are those of their query on the source: all of them, or those that the background has stored.
fn check(world: &World, view_use: ViewUse) {
    let stored_ns = world.db().view("default", "stored").unwrap().state.watermark_ns;
    let before_ns = if view_use == ViewUse::Stored { stored_ns } else { i64::MAX / 2 };
    let time = jiff::Timestamp::from_nanosecond(i128::from(before_ns)).unwrap();
    let columns = "bucket, host, total, n";
    let expected = ask_with(
        world,
        ViewUse::Named,
        &format!("SELECT {columns} FROM ({WINDOWS}) w WHERE bucket < '{time}' ORDER BY 1, 2"),
    );
    assert!(expected.len() > 200, "{}", expected.len());
    for view in ["stored", "pending"] {
        let text = format!("SELECT {columns} FROM {view} WHERE bucket < '{time}' ORDER BY 1, 2");
        let found = ask_with(world, view_use, &text);
        let wrong = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert_eq!((wrong, found.len()), (None, expected.len()), "{view} {view_use:?}");
    }
}

/// The steps that the hook got from a request on.
fn steps(world: &World, first_request: usize) -> Vec<i64> {
    let receivers = world.receivers.lock().unwrap();
    let of_hook = receivers.taken.iter().filter(|request| request.url == "http://hook/x").skip(first_request);
    let bodies = of_hook.map(|request| serde_json::from_slice::<serde_json::Value>(&request.body).unwrap());
    let rows: Vec<serde_json::Value> = bodies.flat_map(|body| body["rows"].as_array().unwrap().clone()).collect();
    rows.iter().map(|row| row["fields"]["n"].as_i64().unwrap()).collect()
}

fn requests_to(world: &World, url: &str) -> usize {
    world.receivers.lock().unwrap().taken.iter().filter(|request| request.url.starts_with(url)).count()
}

/// A folder with everything, of which some windows are stored, some pending, and some changed by rows that no pass has read.
fn before_the_backup() -> (World, Refresher) {
    let mut world = World::new(options);
    fill(&world);
    world.lines("cpu,host=a usage=-1,n=0i 1");
    define(&world);
    let mut refresher = refresher(&world);
    settle(&world, &mut refresher);
    ask(&world, "ALTER MATERIALIZED VIEW short SET TTL 4h");
    ask(&world, &format!("CREATE MATERIALIZED VIEW pending AS {WINDOWS}"));
    world.write(20);
    world.network.run_ms(10_000);
    assert_eq!(world.report("hot").lag, 0);
    // Late, and read by no pass: only the log says so.
    refresher.save().unwrap();
    world.lines(&format!("t,host=a v=1000000 {}", world.db().now_ns() - 3_000 * SECOND_NS));
    world.network.run_ms(10_000);
    (world, refresher)
}

#[test]
fn what_a_backup_has_goes_on_where_it_is_restored() {
    let (mut world, refresher_before) = before_the_backup();
    let before = listed(&world);
    assert_eq!(VIEWS.iter().filter(|view| before[0..3].iter().any(|text| text.contains(**view))).count(), 3);
    let taken = requests_to(&world, "http://hook/x");
    let mirrored = requests_to(&world, "http://mirror");
    let sequence = world.report("hot").sequence;
    assert!(mirrored > 0 && taken > 0);
    drop(refresher_before);
    world.restore(options_of_restored);
    assert_eq!(listed(&world), before);
    assert!(world.db().unreadable_views().is_empty());
    let view = |name: &str| world.db().view("default", name).unwrap();
    assert!(world.db().next_view_range(&view("pending")).is_some(), "nothing of it was stored");
    assert_eq!(world.report("hot").sequence, sequence);
    // Right at once, and when the background has stored it.
    check(&world, ViewUse::All);
    let mut refresher = refresher(&world);
    let begun_ns = minute_ns(&world);
    settle(&world, &mut refresher);
    check(&world, ViewUse::Stored);
    goes_on(&mut world, &mut refresher, (begun_ns, taken));
    assert!(requests_to(&world, "http://mirror") > mirrored);
    ttl_holds(&world, &mut refresher);
}

/// Late rows count after the restore, windows that end are written, and the trigger has what comes.
fn goes_on(world: &mut World, refresher: &mut Refresher, (begun_ns, taken): (i64, usize)) {
    let late_ns = begun_ns - 3_000 * SECOND_NS;
    world.lines(&format!("t,host=c v=5 {late_ns}\nt,host=a v=7 {}", begun_ns + MINUTE_NS));
    check(world, ViewUse::All);
    let first_step = world.step;
    world.write(6);
    world.network.run_ms(180_000);
    settle(world, refresher);
    check(world, ViewUse::Stored);
    let hosts = ask_with(world, ViewUse::Stored, "SELECT DISTINCT host FROM stored ORDER BY 1");
    assert_eq!(hosts.len(), 3, "{hosts:?}");
    let of_window = |table: &str, field: &str| {
        let time = jiff::Timestamp::from_nanosecond(i128::from(begun_ns + MINUTE_NS)).unwrap();
        ask(world, &format!("SELECT {field} FROM {table} WHERE host = 'a' AND time = '{time}'"))
    };
    assert_eq!(of_window("counted", "n"), [[Value::Int(1)]]);
    assert_eq!(of_window("summed", "v"), [[Value::Float(7.0)]]);
    let late = format!("t,host=a v=8 {}", begun_ns + MINUTE_NS + 1);
    world.lines(&late);
    settle(world, refresher);
    assert_eq!(of_window("counted", "n"), [[Value::Int(2)]]);
    assert_eq!(of_window("summed", "v"), [[Value::Float(15.0)]]);
    world.network.run_ms(10_000);
    assert_eq!(steps(world, taken), (first_step..world.step).collect::<Vec<_>>());
    assert_eq!((world.report("hot").lag, world.report("hot").dropped_records), (0, 0));
}

/// The view with a TTL loses windows, the others and the source do not.
fn ttl_holds(world: &World, refresher: &mut Refresher) {
    let count = |view: &str| match ask_with(world, ViewUse::Stored, &format!("SELECT count(*) FROM {view}"))[0][0] {
        Value::Int(count) => count,
        ref other => panic!("{other:?}"),
    };
    let (kept, all) = (count("short"), count("stored"));
    assert_eq!(kept, all);
    world.simulation.advance_ns(3 * 3_600 * SECOND_NS);
    settle(world, refresher);
    world.db().compact(&mut |_| {}).unwrap();
    let short = count("short");
    assert!(short > 0 && short < kept, "{short} of {kept}");
    assert_eq!(count("stored"), all);
}

/// The log is no part of a backup: rows that a trigger had not delivered when it was taken are counted, and named as its error.
#[test]
fn what_a_trigger_had_not_delivered_when_the_backup_was_taken_is_told() {
    let mut world = World::new(options);
    world.lines("cpu,host=a usage=-1,n=0i 1");
    world.run("CREATE TRIGGER hot ON cpu WHEN (usage >= 0) DO WEBHOOK 'http://hook/x'").unwrap();
    world.write(10);
    world.network.run_ms(10_000);
    world.mode("hook", Mode::IsDown);
    world.write(5);
    world.network.run_ms(10_000);
    let (lag, taken) = (world.report("hot").lag, requests_to(&world, "http://hook/x"));
    assert!(lag >= 5, "{lag}");
    world.mode("hook", Mode::Takes);
    world.restore(options_of_restored);
    let first_step = world.step;
    world.write(5);
    world.network.run_ms(60_000);
    let report = world.report("hot");
    assert!(report.dropped_records >= lag, "{report:?}");
    assert!(report.last_error.contains("does not have them any more"), "{report:?}");
    assert_eq!((report.lag, steps(&world, taken)), (0, (first_step..world.step).collect::<Vec<_>>()));
}

//! A view of plain SQL gives what its query gives: to every reader who may read it, after a restart and a crash, and from a backup.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod scratch;

use std::fmt::Write;
use std::sync::Arc;

use access::scope::Scope;
use platform::objects::ObjectOptions;
use platform::sim::Simulation;
use query::Budget;
use sql::{ClientContext, Manner, Value};
use thalweg_db::{Db, DbOptions};

const SECOND_NS: i64 = 1_000_000_000;
/// 2016-01-01T00:00:00Z.
const START_NS: i64 = 1_451_606_400 * SECOND_NS;

/// Asks as an account with these rights, or one that may do everything.
struct Asker<'a> {
    db: &'a Db,
    manner: Manner,
    grants: Option<&'a [&'a str]>,
    database: &'a str,
}

impl Asker<'_> {
    fn try_ask(&self, text: &str) -> Result<Vec<Vec<Value>>, String> {
        let parsed = sql::parse(text).map_err(|error| format!("{text}: {error}"))?;
        let mut client = ClientContext::new(self.database, START_NS + 86_400 * SECOND_NS);
        client.manner = self.manner;
        let mut rows = Vec::new();
        for place in 0..parsed.statements.len() {
            let mut budget = Budget::new(10_000_000);
            if let Some(grants) = self.grants {
                let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
                let scope =
                    Scope { name: "ann".into(), is_server_admin: false, grants, ..Scope::clone(&Scope::open()) };
                budget = budget.for_scope(Arc::new(scope));
            }
            let answer = self.db.sql(&parsed, place, &client, &Arc::new(budget));
            let answer = answer.map_err(|error| format!("{error} [{}]", error.code()))?;
            rows = answer.relation().map(|relation| relation.rows).unwrap_or_default();
        }
        Ok(rows)
    }

    fn ask(&self, text: &str) -> Vec<Vec<Value>> {
        self.try_ask(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Rows as text.
    fn texts(&self, text: &str) -> Vec<String> {
        let line = |row: &Vec<Value>| row.iter().map(ToString::to_string).collect::<Vec<_>>().join("|");
        self.ask(text).iter().map(line).collect()
    }

    fn refused(&self, text: &str, expected: &str) {
        let error = self.try_ask(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

fn everything(db: &Db) -> Asker<'_> {
    Asker { db, manner: Manner::Postgres, grants: None, database: "default" }
}

fn fill(db: &Db) {
    let mut lines = String::new();
    for step in 0..60i64 {
        for host in ["a", "b", "c"] {
            let env = if host == "c" { "test" } else { "prod" };
            writeln!(lines, "cpu,host={host},env={env} usage={step},n={}i {}", step % 7, START_NS + step * SECOND_NS)
                .unwrap();
        }
    }
    let (_, errors) = db.write_lines("default", lines.as_bytes()).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
}

fn world() -> (Simulation, Db) {
    let simulation = Simulation::new(5);
    let db = Db::open(simulation.platform(), DbOptions::new("/data")).unwrap();
    fill(&db);
    (simulation, db)
}

#[test]
fn a_view_is_its_query() {
    let (_simulation, db) = world();
    let asker = everything(&db);
    asker.ask(
        "CREATE VIEW busy (at, machine, usage) AS SELECT time, host, usage FROM cpu WHERE usage > 50 AND env = 'prod'",
    );
    asker.ask("CREATE VIEW per_host AS SELECT host, max(usage) AS peak, count(*) AS rows FROM cpu GROUP BY host");
    asker.ask("CREATE VIEW \"Over\" AS WITH h AS (SELECT * FROM per_host) SELECT b.machine, b.usage, h.peak FROM busy b JOIN h ON b.machine = h.host");
    for (of_views, of_tables) in [
        (
            "SELECT * FROM busy ORDER BY 1, 2",
            "SELECT time, host, usage FROM cpu WHERE usage > 50 AND env = 'prod' ORDER BY 1, 2",
        ),
        (
            "SELECT b.usage FROM busy AS b WHERE b.machine = 'a' AND b.at >= '2016-01-01T00:00:55Z' AND b.usage + 1 < 60 ORDER BY at",
            "SELECT usage FROM cpu WHERE host = 'a' AND time >= '2016-01-01T00:00:55Z' AND usage + 1 < 60 ORDER BY time",
        ),
        (
            "SELECT count(*) FROM BUSY WHERE machine IN ('a', 'x')",
            "SELECT count(*) FROM cpu WHERE host = 'a' AND usage > 50",
        ),
        ("SELECT peak FROM per_host WHERE host = 'b'", "SELECT max(usage) FROM cpu WHERE host = 'b'"),
        ("SELECT sum(peak) FROM \"Over\"", "SELECT sum(59.0) FROM cpu WHERE usage > 50 AND env = 'prod'"),
        (
            "SELECT usage FROM public.busy ORDER BY at DESC, usage LIMIT 2",
            "SELECT usage FROM cpu WHERE env = 'prod' ORDER BY time DESC LIMIT 2",
        ),
        (
            "SELECT count(*) FROM cpu WHERE host IN (SELECT machine FROM busy)",
            "SELECT count(*) FROM cpu WHERE env = 'prod'",
        ),
    ] {
        let expected = asker.texts(of_tables);
        assert!(!expected.is_empty());
        assert_eq!(asker.texts(of_views), expected, "{of_views}");
    }
    asker.ask("CREATE OR REPLACE VIEW busy AS SELECT host AS machine, usage FROM cpu WHERE usage > 58");
    assert_eq!(asker.texts("SELECT count(*) FROM \"Over\""), ["3"], "what reads it has its new rows");
    asker.refused("SELECT at FROM busy", "\"at\" does not exist");
    // QuestDB's names and groups stay those of the view.
    let questdb = Asker { manner: Manner::QuestDb, ..everything(&db) };
    questdb.ask("CREATE VIEW bins AS (SELECT timestamp, host, max(usage) peak FROM cpu SAMPLE BY 30s)");
    assert_eq!(asker.texts("SELECT count(*), max(peak) FROM bins WHERE host <> 'a'"), ["4|59"]);
    assert_eq!(asker.texts("SELECT peak FROM bins WHERE timestamp = '2016-01-01T00:00:00Z'"), ["29", "29", "29"]);
}

#[test]
fn conditions_become_those_of_the_views_query() {
    let (_simulation, db) = world();
    let asker = everything(&db);
    asker.ask("CREATE VIEW v AS SELECT time AS at, host AS machine, usage * 2 AS twice, n FROM cpu WHERE env = 'prod' OR n = 1");
    asker.ask("CREATE VIEW w AS SELECT * FROM cpu");
    asker.ask("CREATE VIEW newest AS SELECT * FROM cpu ORDER BY time DESC LIMIT 3");
    let plan = |text: &str| asker.texts(&format!("EXPLAIN {text}")).join("\n");
    let narrow = "SELECT twice FROM v WHERE machine = 'a' AND at < '2016-01-01T00:00:10Z' AND twice > 4 AND n = 2";
    let explained = plan(narrow);
    assert!(explained.contains("\"a\"") && explained.contains("range"), "{explained}");
    assert_eq!(asker.texts(narrow), ["18"]);
    assert!(plan("SELECT * FROM w WHERE host = 'b'").contains("\"b\""));
    assert!(!plan("SELECT * FROM newest WHERE host = 'b'").contains("\"b\""), "of three rows, not of its own");
    assert_eq!(asker.texts("SELECT count(*) FROM newest WHERE host = 'b'"), ["1"]);
    // Of a part that cannot be said there the rest is.
    assert_eq!(asker.texts("SELECT count(*) FROM w WHERE host = 'b' AND usage > (SELECT avg(usage) FROM cpu)"), ["30"]);
}

#[test]
fn views_are_listed_and_nothing_else_has_their_names() {
    let (_simulation, db) = world();
    let asker = everything(&db);
    asker.ask("CREATE VIEW v AS  SELECT host, usage AS \"U\" FROM cpu -- all");
    assert_eq!(
        asker.texts("SELECT table_name, table_type FROM information_schema.tables"),
        ["cpu|BASE TABLE", "v|VIEW"]
    );
    assert_eq!(
        asker.texts("SELECT viewname, viewowner, definition FROM pg_views"),
        ["v|thalweg|SELECT host, usage AS \"U\" FROM cpu -- all"]
    );
    assert_eq!(asker.texts("SELECT table_name, is_updatable FROM information_schema.views"), ["v|NO"]);
    assert_eq!(
        asker.texts("SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'v'"),
        ["host|text", "U|double precision"]
    );
    // What psql asks for \dv.
    let psql = "SELECT n.nspname as \"Schema\", c.relname as \"Name\",
        CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' END as \"Type\",
        pg_catalog.pg_get_userbyid(c.relowner) as \"Owner\"
        FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('v','') AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast'
        AND n.nspname <> 'information_schema' AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1,2";
    assert_eq!(asker.texts(psql), ["public|v|view|thalweg"]);
    assert_eq!(asker.texts("SHOW TABLES"), ["cpu", "v"]);
    assert_eq!(asker.texts("SHOW CREATE VIEW v"), ["CREATE VIEW v AS  SELECT host, usage AS \"U\" FROM cpu -- all"]);
    assert_eq!(asker.texts("SHOW COLUMNS FROM v")[1], "U|DOUBLE|false|column");
    let query = "SELECT time_bucket('1 minute', time) AS bucket, max(usage) AS peak FROM cpu GROUP BY 1";
    asker.ask(&format!("CREATE MATERIALIZED VIEW m AS {query}"));
    for (text, expected) in [
        ("CREATE VIEW v AS SELECT 1 AS x", "already exists"),
        ("CREATE VIEW cpu AS SELECT 1 AS x", "it is a table"),
        ("CREATE OR REPLACE VIEW cpu AS SELECT 1 AS x", "it is a table"),
        ("CREATE OR REPLACE VIEW m AS SELECT 1 AS x", "materialised"),
        (&format!("CREATE MATERIALIZED VIEW v AS {query}"), "already exists"),
        ("CREATE TABLE v (x DOUBLE PRECISION)", "is a view"),
        ("INSERT INTO v (time, x) VALUES (now(), 1)", "is a view"),
        ("DELETE FROM v", "is a view"),
        ("DROP TABLE v", "DROP VIEW"),
        ("DROP TABLE IF EXISTS v", "DROP VIEW"),
        ("DROP VIEW cpu", "DROP TABLE"),
        ("DROP VIEW m", "DROP MATERIALIZED VIEW"),
        ("DROP MATERIALIZED VIEW v", "does not exist"),
        ("DROP VIEW x", "does not exist [42P01]"),
        ("SHOW CREATE VIEW x", "does not exist"),
        ("CREATE VIEW x AS SELECT 1 AS a, 2 AS a", "more than once"),
        ("CREATE VIEW x (a, b) AS SELECT 1", "names 2 columns"),
        ("CREATE VIEW x AS SELECT * FROM missing", "does not exist"),
        ("CREATE VIEW x AS SELECT $1 AS a", "parameter"),
        ("CREATE TEMPORARY VIEW x AS SELECT 1 AS a", "TEMPORARY"),
        ("CREATE VIEW x WITH (security_barrier = true) AS SELECT 1 AS a", "no options"),
        ("CREATE OR REPLACE MATERIALIZED VIEW x AS SELECT 1 AS a", "not replaced"),
        (
            "SELECT rank() OVER (ORDER BY \"U\") FROM v",
            if cfg!(feature = "sql-datafusion") { "reads no views" } else { "OVER" },
        ),
    ] {
        asker.refused(text, expected);
    }
    let (report, _) = db.write_lines("default", format!("v,host=a x=1 {START_NS}").as_bytes()).unwrap();
    assert_eq!(report.rejected_total, 1, "rows make no table of a view's name");
    asker.ask("CREATE VIEW IF NOT EXISTS v AS SELECT 1 AS a; DROP VIEW IF EXISTS x; DROP VIEW v");
    assert_eq!(asker.texts("SELECT viewname FROM pg_views").len(), 0);
    let (report, _) = db.write_lines("default", format!("v,host=a x=1 {START_NS}").as_bytes()).unwrap();
    assert_eq!(report.rejected_total, 0, "after it was dropped its name is free");
}

#[test]
fn circles_depth_and_what_is_gone_are_clear_errors() {
    let (_simulation, db) = world();
    let asker = everything(&db);
    asker.refused("CREATE VIEW v AS SELECT * FROM v", "does not exist");
    asker.ask(
        "CREATE VIEW a AS SELECT host FROM cpu; CREATE VIEW b AS SELECT * FROM a; CREATE VIEW c AS SELECT * FROM b",
    );
    asker.refused("CREATE OR REPLACE VIEW a AS SELECT * FROM c", "would read itself, by way of \"a\", \"c\", \"b\"");
    asker.refused("CREATE OR REPLACE VIEW a AS SELECT (SELECT max(host) FROM c) AS host", "would read itself");
    asker.ask("DROP VIEW a");
    asker.refused("SELECT * FROM c", "in the view \"c\": in the view \"b\": table \"a\" does not exist");
    asker.refused("CREATE VIEW a AS SELECT * FROM c", "table \"a\" does not exist");
    assert_eq!(asker.texts("SELECT count(*) FROM information_schema.columns WHERE table_name = 'c'"), ["0"]);
    asker.ask("CREATE VIEW a AS SELECT host FROM cpu");
    assert_eq!(asker.texts("SELECT count(*) FROM c"), ["180"]);
    asker.ask("CREATE VIEW v1 AS SELECT host, usage FROM cpu");
    for level in 2..=8 {
        asker.ask(&format!("CREATE VIEW v{level} AS SELECT * FROM v{}", level - 1));
    }
    asker.refused("CREATE VIEW v9 AS SELECT * FROM v8", "8 deep");
    assert_eq!(asker.texts("SELECT count(*) FROM v8"), ["180"]);
    // What is walked by recursion is bounded for all of them together.
    let sum = vec!["1"; 120].join(" + ");
    asker.ask(&format!("CREATE VIEW s1 AS SELECT {sum} AS x; CREATE VIEW s2 AS SELECT x + {sum} AS x FROM s1"));
    asker.refused(&format!("SELECT x + {sum} FROM s2"), "operators");
    asker.ask("DROP TABLE cpu");
    asker.refused("SELECT * FROM v2", "in the view \"v1\": table \"cpu\" does not exist");
}

#[test]
fn a_view_shows_what_maker_and_reader_may_read() {
    let (_simulation, db) = world();
    let as_one = |grants: &'static [&'static str]| Asker { grants: Some(grants), ..everything(&db) };
    let hosts =
        |asker: &Asker<'_>, view: &str| asker.texts(&format!("SELECT DISTINCT host FROM {view} ORDER BY 1")).join("");
    let maker = as_one(&["write:default", "read:default{env=\"prod\"}"]);
    maker.ask("CREATE VIEW of_prod AS SELECT host, usage FROM cpu");
    everything(&db).ask("CREATE VIEW of_all AS SELECT * FROM of_prod UNION SELECT host, usage FROM cpu");
    let reader = as_one(&["read:default{host!=\"a\"}"]);
    for (asker, view, expected) in [
        (&everything(&db), "of_prod", "ab"),
        (&maker, "of_prod", "ab"),
        (&reader, "of_prod", "b"),
        (&everything(&db), "of_all", "abc"),
        (&maker, "of_all", "ab"),
        (&reader, "of_all", "bc"),
    ] {
        assert_eq!(hosts(asker, view), expected, "{view}");
    }
    // After it the rights are those that they were before.
    assert_eq!(everything(&db).texts("SELECT (SELECT count(*) FROM of_prod), count(*) FROM cpu"), ["120|180"]);
    reader.refused("SHOW CREATE VIEW of_prod", "whole database");
    assert_eq!(reader.ask("SELECT definition FROM pg_views")[0][0], Value::Null);
    reader.refused("CREATE VIEW mine AS SELECT host FROM cpu", "does not have the right write");
    reader.refused("DROP VIEW of_prod", "does not have the right write");
    as_one(&["write:default"]).refused("CREATE VIEW mine AS SELECT 1 AS x", "[42501]");
    as_one(&["write:default{env=\"prod\"}", "read:default"])
        .refused("CREATE VIEW mine AS SELECT 1 AS x", "whole database");
    let stranger = as_one(&["read:other"]);
    stranger.refused("SELECT * FROM of_prod", "does not exist");
    assert_eq!(stranger.texts("SELECT count(*) FROM pg_views"), ["0"]);
}

#[test]
fn a_backup_has_them() {
    let (db, _folder) = scratch::open("stored-queries");
    fill(&db);
    everything(&db).ask("CREATE VIEW v AS SELECT count(*) AS n FROM cpu");
    let platform = platform::Platform::real();
    let places = ["backup", "restored"].map(|name| scratch::Folder::new(&format!("stored-queries-{name}")));
    let (target, objects) = (places[0].0.to_string_lossy().into_owned(), ObjectOptions::default());
    db.backup(&target, &objects, None, &mut |_| {}).unwrap();
    let source = platform.objects.open(&target, &objects).unwrap();
    thalweg_db::restore(&*source, None, &platform, &places[1].0, &mut |_| {}).unwrap();
    let restored = Db::open(platform, DbOptions::new(&places[1].0)).unwrap();
    assert_eq!(everything(&restored).texts("SELECT n FROM v"), ["180"]);
}

#[test]
fn views_survive_restarts_and_crashes_and_go_with_their_database() {
    let (simulation, db) = world();
    everything(&db).ask("CREATE VIEW v AS SELECT count(*) AS n FROM cpu WHERE host = 'it''s' OR host = 'a'");
    drop(db);
    simulation.crash();
    let db = Db::open(simulation.platform(), DbOptions::new("/data")).unwrap();
    assert_eq!(everything(&db).texts("SELECT n FROM v"), ["60"]);
    let (report, _) = db.write_lines("default", format!("v,host=a x=1 {START_NS}").as_bytes()).unwrap();
    assert_eq!(report.rejected_total, 1, "its name is its own after a restart, too");
    db.close().unwrap();
    drop(db);
    let db = Db::open(simulation.platform(), DbOptions::new("/data")).unwrap();
    assert_eq!(everything(&db).texts("SELECT n FROM v"), ["60"]);
    everything(&db).ask("DROP DATABASE \"default\"");
    assert_eq!(everything(&db).texts("SELECT count(*) FROM pg_views"), ["0"]);
    fill(&db);
    db.close().unwrap();
    drop(db);
    let db = Db::open(simulation.platform(), DbOptions::new("/data")).unwrap();
    assert_eq!(everything(&db).texts("SELECT count(*) FROM pg_views"), ["0"]);
}

/// Views that read views several times each multiply at every level.
#[test]
fn what_a_statement_expands_is_bounded_and_can_be_stopped() {
    let (_simulation, db) = world();
    let asker = everything(&db);
    let six = |name: &str| vec![format!("SELECT x FROM {name}"); 6].join(" UNION ALL ");
    asker.ask("CREATE VIEW e0 AS SELECT 1 AS x");
    for level in 1..=3 {
        asker.ask(&format!("CREATE VIEW e{level} AS {}", six(&format!("e{}", level - 1))));
    }
    assert_eq!(asker.texts("SELECT count(*) FROM e3"), ["216"]);
    asker.refused(&format!("CREATE VIEW e4 AS {}", six("e3")), "expands views at most 1000 times");
    asker.refused(&six("e3"), "expands views at most 1000 times");
    // Each statement counts for itself, and a list of all views counts each of them.
    assert_eq!(asker.texts("SELECT count(*) FROM e3; SELECT count(*) FROM e3; SELECT count(*) FROM e3"), ["216"]);
    let columns = "SELECT count(*) FROM information_schema.columns WHERE table_name LIKE 'e_'";
    assert_eq!(asker.texts(columns), ["4"]);
    // Within a view those of views are not looked for: each would list all of them again.
    asker.ask("CREATE VIEW listed AS SELECT table_name FROM information_schema.columns");
    assert_eq!(asker.texts("SELECT count(*) FROM listed WHERE table_name LIKE 'e_'"), ["0"]);
    assert_eq!(asker.texts("SELECT count(*) FROM listed WHERE table_name = 'cpu'"), ["5"]);
    // What is long is read seldom.
    let long = "x".repeat(50_000);
    asker.ask(&format!("CREATE VIEW long0 AS SELECT 1 AS x /* {long} */"));
    let thirteen = |name: &str| vec![format!("SELECT x FROM {name}"); 13].join(" UNION ALL ");
    asker.ask(&format!("CREATE VIEW long1 AS {}", thirteen("long0")));
    asker.refused(&thirteen("long1"), "8388608 bytes");
    // No row is read of these, and they stop all the same.
    let client = ClientContext::new("default", START_NS);
    for text in ["SELECT * FROM e0", "SELECT * FROM information_schema.columns"] {
        let parsed = sql::parse(text).unwrap();
        let budget = Arc::new(Budget::new(1_000_000));
        assert!(db.describe_sql(&parsed, 0, &client, &budget).is_ok(), "{text}");
        budget.stop(query::Stop::Cancelled);
        let error = db.describe_sql(&parsed, 0, &client, &budget).err();
        let stopped = sql::SqlError::Query(query::QueryError::Stopped(query::Stop::Cancelled));
        assert_eq!(error.map(|error| error.to_string()), Some(stopped.to_string()), "{text}");
    }
}

#[test]
fn views_have_bounded_room() {
    let (_simulation, db) = world();
    let asker = everything(&db);
    let statement =
        |name: &str, bytes: usize| format!("CREATE VIEW {name} AS SELECT 1 AS x /* {} */", "x".repeat(bytes));
    asker.refused(&statement("v", 70_000), "65536 are possible");
    let fill = |asker: &Asker<'_>| {
        let made = (0..100).take_while(|number| asker.try_ask(&statement(&format!("v{number}"), 64_000)).is_ok());
        made.count()
    };
    assert_eq!(fill(&asker), 16);
    asker.refused(&statement("v", 64_000), "the views of the database default would take");
    asker.ask(&statement("v", 8_000));
    asker.ask(&statement("v", 8_000).replace("CREATE", "CREATE OR REPLACE"));
    for database in ["d1", "d2", "d3"] {
        asker.ask(&format!("CREATE DATABASE {database}"));
    }
    for database in ["d1", "d2"] {
        assert_eq!(fill(&Asker { database, ..everything(&db) }), 16, "{database}");
    }
    let beyond = Asker { database: "d3", ..everything(&db) };
    beyond.ask(&statement("v", 50_000));
    beyond.refused(&statement("w", 60_000), "the views of all databases would take");
}

#[test]
fn names_of_other_relations_are_refused() {
    let (simulation, db) = world();
    let asker = everything(&db);
    for name in ["pg_class", "PG_class", "pg_anything"] {
        asker.refused(&format!("CREATE VIEW {name} AS SELECT 1 AS x"), "are the catalog's");
    }
    asker.ask("CREATE DATABASE dns WITH (interval = '1m')");
    let regular = Asker { database: "dns", ..everything(&db) };
    regular.refused("CREATE VIEW dns AS SELECT 1 AS x", "it is a table");
    regular.refused("CREATE OR REPLACE VIEW dns AS SELECT 1 AS x", "it is a table");
    regular.ask("CREATE VIEW other AS SELECT count(*) AS n FROM dns; SELECT n FROM other");
    asker.ask("CREATE DATABASE late");
    Asker { database: "late", ..everything(&db) }.ask("CREATE VIEW late AS SELECT 1 AS x");
    asker.refused("ALTER DATABASE late SET interval = '1m'", "it is a view");
    // One that there is already does not come before the catalog.
    let document = serde_json::json!({ "version": 1, "name": "pg_class", "database": "default", "statement":
        "CREATE VIEW pg_class AS SELECT 'none' AS relname", "manner": "postgres", "maker": "", "matchers": [] });
    db.put_document("stored-query", "default\0pg_class", document.to_string().as_bytes()).unwrap();
    drop(db);
    let db = Db::open(simulation.platform(), DbOptions::new("/data")).unwrap();
    let asker = everything(&db);
    assert_eq!(asker.texts("SELECT viewname FROM pg_views"), ["pg_class"]);
    assert_eq!(asker.texts("SELECT relname FROM pg_class WHERE relname = 'cpu'"), ["cpu"]);
}

/// What a view's statement names is not told to accounts that must not see the statement.
#[test]
fn plans_and_errors_hide_statements_from_narrowed_accounts() {
    let (_simulation, db) = world();
    let as_one = |grants: &'static [&'static str]| Asker { grants: Some(grants), ..everything(&db) };
    let all = everything(&db);
    let (lines, time) = ("secret,host=a,env=prod hush=7", START_NS);
    db.write_lines("default", format!("{lines} {time}").as_bytes()).unwrap();
    all.ask("CREATE VIEW v AS SELECT host, hush AS x FROM secret WHERE hush > 5; CREATE VIEW w AS SELECT x FROM v");
    let reader = as_one(&["read:default{env=\"prod\"}"]);
    let maker = as_one(&["write:default", "read:default{env=\"prod\"}"]);
    let hides = |asker: &Asker<'_>, text: &str| {
        let told = match asker.try_ask(text) {
            Ok(_) => asker.texts(text).join("\n"),
            Err(error) => error,
        };
        assert!(!told.contains("hush") && !told.contains("secret"), "{text}: {told}");
        told
    };
    assert_eq!(reader.texts("SELECT x FROM w"), ["7"]);
    for text in [
        "EXPLAIN SELECT * FROM v",
        "EXPLAIN ANALYZE SELECT * FROM w WHERE x > 1",
        "EXPLAIN SELECT * FROM cpu WHERE usage > (SELECT max(x) FROM v)",
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'v'",
    ] {
        hides(&reader, text);
    }
    assert!(all.texts("EXPLAIN SELECT * FROM w").join("\n").contains("secret"));
    assert!(reader.texts("EXPLAIN SELECT * FROM cpu").join("\n").contains("cpu"), "no view is read");
    maker.ask("CREATE VIEW mine AS SELECT x FROM w");
    all.ask("DROP TABLE secret");
    all.refused("SELECT * FROM w", "secret");
    for text in ["SELECT * FROM v", "SELECT * FROM w", "SELECT * FROM mine", "EXPLAIN SELECT * FROM w"] {
        assert!(hides(&reader, text).contains("cannot be read"), "{text}");
    }
    assert!(hides(&maker, "CREATE VIEW again AS SELECT x FROM w").contains("cannot be read"));
    maker.refused("CREATE VIEW again AS SELECT nothing FROM cpu", "nothing");
}

#[test]
fn parameters_become_part_of_the_views_query() {
    let (_simulation, db) = world();
    everything(&db).ask("CREATE VIEW v AS SELECT time AS at, host AS machine, usage FROM cpu");
    let mut client = ClientContext::new("default", START_NS);
    client.parameters = vec![Value::text("b"), Value::Float(57.0)];
    let ask = |text: &str| {
        let budget = Arc::new(Budget::new(1_000_000));
        let answer = db.sql(&sql::parse(text).unwrap(), 0, &client, &budget).unwrap();
        answer.relation().map(|relation| relation.rows).unwrap_or_default()
    };
    let query = "SELECT usage FROM v WHERE machine = $1 AND usage > $2 ORDER BY usage";
    assert_eq!(ask(query), [[Value::Float(58.0)], [Value::Float(59.0)]]);
    let plan = format!("{:?}", ask(&format!("EXPLAIN {query}")));
    assert!(plan.contains("(tag") && plan.contains("57"), "{plan}");
}

//! Sessions of Postgres's port: transactions, prepared statements, settings.

use std::net::SocketAddr;

use db::DbOptions;
use thalweg_server::{Listener, ServerSettings};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::harness::Running;
use crate::postgres::Raw;

fn listen(settings: &mut ServerSettings) {
    settings.postgres = Some(Listener { address: SocketAddr::from(([127, 0, 0, 1], 0)), required: true });
}

fn start() -> Running {
    Running::start_with(listen)
}

async fn connect(server: &Running, options: &str) -> Client {
    let at = server.at("--postgres");
    let text = format!("host={} port={} user=tester {options}", at.ip(), at.port());
    let (client, connection) = tokio_postgres::connect(&text, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn on_a_runtime(server: &Running, options: &str, work: impl AsyncFnOnce(Client)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { work(connect(server, options).await).await });
}

/// The cells of the last statement's rows, `tag n` for each statement without rows, or an error's code.
async fn ask(client: &Client, text: &str) -> String {
    match client.simple_query(text).await {
        Err(error) => error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned()),
        Ok(messages) => {
            let shown = messages.iter().filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => {
                    Some((0..row.len()).map(|place| row.get(place).unwrap_or("NULL")).collect::<Vec<_>>().join("|"))
                }
                _ => None,
            });
            shown.collect::<Vec<_>>().join(" ")
        }
    }
}

async fn check(client: &Client, cases: &[(&str, &str)]) {
    for (place, (statement, expected)) in cases.iter().enumerate() {
        assert_eq!(ask(client, statement).await, *expected, "{place}: {statement}");
    }
}

#[test]
fn rows_of_a_transaction_wait_for_its_end() {
    let server = start();
    on_a_runtime(&server, "", async |client| {
        check(
            &client,
            &[
                ("CREATE TABLE t (time TIMESTAMPTZ, host TAG, v DOUBLE PRECISION)", ""),
                ("BEGIN", ""),
                ("INSERT INTO t (time, host, v) VALUES ('2020-01-01', 'a', 1)", ""),
                // It reads its own rows.
                ("SELECT host, v FROM t", "a|1"),
                ("INSERT INTO t (time, host, v) VALUES ('2020-01-01', 'a', 2), ('2020-01-01', 'b', 3)", ""),
                ("SELECT host, v FROM t WHERE v > 1 ORDER BY v", "a|2 b|3"),
                ("INSERT INTO t (time, host, v) VALUES ('2020-01-01', 'a', 9) ON CONFLICT DO NOTHING", ""),
                ("DELETE FROM t WHERE host = 'b'; SELECT sum(v), count(*) FROM t", "2|1"),
                ("INSERT INTO fresh (time, host, n) VALUES ('2020-01-01', 'a', 7)", ""),
                ("SELECT host, n FROM fresh", "a|7"),
                ("ROLLBACK", ""),
                ("SELECT count(*) FROM t", "0"),
                ("SELECT n FROM fresh", "42P01"),
                ("BEGIN; INSERT INTO t (time, host, v) VALUES ('2020-01-01', 'a', 1); COMMIT", ""),
                ("SELECT count(*) FROM t", "1"),
                // After an error only the end.
                ("BEGIN", ""),
                ("INSERT INTO t (time, host, v) VALUES ('2020-01-01', 'b', 1)", ""),
                ("SELECT nothing FROM t", "42703"),
                ("SELECT 1", "25P02"),
                ("COMMIT", ""),
                ("SELECT count(*) FROM t", "1"),
                // Parts.
                ("BEGIN", ""),
                ("INSERT INTO t (time, host, v) VALUES ('2020-01-01', 'kept', 1)", ""),
                ("SAVEPOINT s", ""),
                ("INSERT INTO t (time, host, v) VALUES ('2020-01-01', 'dropped', 1)", ""),
                ("SELECT nothing FROM t", "42703"),
                ("ROLLBACK TO SAVEPOINT nowhere", "3B001"),
                ("ROLLBACK TO SAVEPOINT s", ""),
                ("SELECT 1", "1"),
                ("COMMIT", ""),
                ("SELECT host FROM t ORDER BY host", "a kept"),
                // Deletes wait, too.
                ("BEGIN; DELETE FROM t WHERE host = 'a'", ""),
                ("SELECT count(*) FROM t", "1"),
                ("ROLLBACK", ""),
                ("BEGIN; DELETE FROM t WHERE host = 'a'; INSERT INTO t (time, host, v) VALUES ('2020-01-02', 'a', 5); COMMIT", ""),
                ("SELECT host, v FROM t ORDER BY host", "a|5 kept|1"),
                ("SAVEPOINT s", "25P01"),
                ("BEGIN; SELECT nothing FROM t; SELECT 1", "42703"),
                ("SELECT 1", "25P02"),
                ("ROLLBACK", ""),
                // Statements that are sent at once are done together.
                ("INSERT INTO t (time, host, v) VALUES ('2020-01-03', 'c', 1); SELECT nothing FROM t", "42703"),
                ("SELECT count(*) FROM t", "2"),
                ("INSERT INTO t (time, host, v) VALUES ('2020-01-03', 'c', 1); COMMIT; SELECT nothing FROM t", "42703"),
                ("SELECT count(*) FROM t", "3"),
                ("INSERT INTO t (time, host, v) VALUES ('2020-01-04', 'c', 1); BEGIN; ROLLBACK; SELECT count(*) FROM t", "3"),
                ("DELETE FROM t WHERE host = 'c'; SELECT count(*) FROM t", "2"),
                ("SELECT count(*) FROM t", "2"),
                // Rows that cannot be written end their transaction.
                ("BEGIN; INSERT INTO t (time, host, v) VALUES ('2200-01-01', 'late', 1); COMMIT", "22023"),
                ("SELECT count(*) FROM t", "2"),
            ],
        )
        .await;
    });
}

/// What a view has computed is of rows that are committed.
#[test]
fn views_of_rows_that_a_transaction_has_changed_wait_for_its_end() {
    let server = start();
    on_a_runtime(&server, "", async |client| {
        check(
            &client,
            &[
                ("INSERT INTO t (time, h, v) VALUES ('2020-01-01', 'a', 1)", ""),
                ("INSERT INTO u (time, h, v) VALUES ('2020-01-01', 'a', 1)", ""),
                (
                    "CREATE MATERIALIZED VIEW low AS SELECT time_bucket('1 minute', time) AS at, h, sum(v) AS v, count(*) AS n FROM t GROUP BY 1, 2",
                    "",
                ),
                (
                    "CREATE MATERIALIZED VIEW high AS SELECT time_bucket('1 hour', at) AS at, sum(v) AS v FROM low GROUP BY 1",
                    "",
                ),
                ("BEGIN", ""),
                ("INSERT INTO u (time, h, v) VALUES ('2020-01-01', 'a', 2)", ""),
                ("SELECT v FROM high", "1"),
                ("INSERT INTO t (time, h, v) VALUES ('2020-01-01', 'b', 2)", ""),
                ("SELECT sum(v) FROM t", "3"),
                ("SAVEPOINT s", ""),
                ("SELECT v FROM high", "0A000"),
                ("ROLLBACK TO s", ""),
                ("SELECT sum(v) FROM low", "0A000"),
                ("ROLLBACK TO s", ""),
                ("COMMIT", ""),
                ("SELECT v FROM high", "3"),
                ("SELECT sum(v) FROM low", "3"),
            ],
        )
        .await;
    });
}

#[test]
fn a_transaction_holds_no_more_than_it_may() {
    let server = Running::start_with(|settings| {
        listen(settings);
        settings.body_bytes_max = 20_000;
    });
    on_a_runtime(&server, "", async |client| {
        let rows = |from: usize| {
            let rows: Vec<String> = (from..from + 100).map(|row| format!("('2020-01-01', 'h{row}', {row})")).collect();
            format!("INSERT INTO t (time, host, v) VALUES {}", rows.join(", "))
        };
        assert_eq!(ask(&client, "BEGIN").await, "");
        let mut codes = Vec::new();
        for from in (0..1000).step_by(100) {
            codes.push(ask(&client, &rows(from)).await);
        }
        assert!(codes.contains(&"54000".to_owned()), "{codes:?}");
        check(&client, &[("COMMIT", ""), ("SELECT count(*) FROM t", "42P01")]).await;
        assert_eq!(ask(&client, &format!("BEGIN; {}; COMMIT; SELECT count(*) FROM t", rows(0))).await, "100");
    });
}

#[test]
fn cursors_and_prepared_statements_are_of_their_session() {
    let server = start();
    server.write("t,host=a v=1 1000000000\nt,host=b v=2 2000000000\nt,host=c v=3 3000000000\n");
    on_a_runtime(&server, "", async |client| {
        check(
            &client,
            &[
                ("DECLARE c CURSOR FOR SELECT v FROM t ORDER BY v", "25P01"),
                ("BEGIN; DECLARE c CURSOR FOR SELECT v FROM t ORDER BY v", ""),
                ("FETCH 2 FROM c", "1 2"),
                ("FETCH c", "3"),
                ("FETCH ALL FROM c", ""),
                ("FETCH PRIOR FROM c", "3"),
                ("FETCH BACKWARD ALL IN c", "2 1"),
                ("MOVE 2 FROM c", ""),
                ("FETCH ABSOLUTE 1 FROM c", "1"),
                ("FETCH RELATIVE 2 FROM c", "3"),
                ("FETCH FIRST FROM c; FETCH LAST FROM c", "1 3"),
                ("FETCH FORWARD 0 FROM c", "3"),
                ("MOVE FORWARD ALL IN c; FETCH c", ""),
                ("FETCH BACKWARD 2 FROM c", "3 2"),
                ("COMMIT", ""),
                ("BEGIN; DECLARE c NO SCROLL CURSOR FOR SELECT v FROM t ORDER BY v; FETCH 2 FROM c", "1 2"),
                ("FETCH BACKWARD 1 FROM c", "55000"),
                ("ROLLBACK", ""),
                ("FETCH c", "34000"),
                ("DECLARE h CURSOR WITH HOLD FOR SELECT host FROM t ORDER BY host", ""),
                ("FETCH FORWARD 2 FROM h", "a b"),
                ("FETCH PRIOR FROM h", "a"),
                ("CLOSE h", ""),
                ("CLOSE h", "34000"),
                ("PREPARE p AS SELECT host FROM t WHERE v > $1 AND time > $2 ORDER BY host", ""),
                ("EXECUTE p (1.5, '1970-01-01 00:00:02+00')", "c"),
                ("EXECUTE p (1.5)", "42601"),
                ("EXECUTE p ('x', '1970-01-01')", "22P02"),
                ("PREPARE p AS SELECT 1", "42P05"),
                ("DEALLOCATE p", ""),
                ("EXECUTE p (1)", "26000"),
                ("PREPARE q AS SELECT 1; DISCARD ALL", ""),
                ("EXECUTE q", "26000"),
                ("SET statement_timeout = '40ms'", ""),
                ("SELECT count(*) FROM generate_series(1, 9000000) a", "57014"),
                ("RESET ALL", ""),
                ("SHOW statement_timeout", "0"),
                ("BEGIN; SET application_name = 'x'; ROLLBACK; SHOW application_name", ""),
                ("BEGIN; SET LOCAL search_path = 'x'; COMMIT; SHOW search_path", "public"),
                ("SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL", "NULL"),
            ],
        )
        .await;
        // What was prepared by the protocol goes by SQL.
        let types = client.prepare("SELECT host FROM t WHERE v = ANY($1) AND time < $2 LIMIT $3").await.unwrap();
        let names: Vec<&str> = types.params().iter().map(tokio_postgres::types::Type::name).collect();
        assert_eq!(names, ["_float8", "timestamptz", "int8"]);
        let insert = client.prepare("INSERT INTO t (time, host, v) VALUES ($1, $2, $3)").await.unwrap();
        assert!(insert.columns().is_empty());
        let names: Vec<&str> = insert.params().iter().map(tokio_postgres::types::Type::name).collect();
        assert_eq!(names, ["timestamptz", "text", "float8"]);
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(9);
        assert_eq!(client.execute(&insert, &[&at, &"d", &4.5f64]).await.unwrap(), 1);
        let last = std::time::UNIX_EPOCH + std::time::Duration::from_secs(10);
        let rows = client.query(&types, &[&vec![1.0, 4.5], &last, &5i64]).await.unwrap();
        let hosts: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(hosts, ["a", "d"]);
    });
}

#[test]
fn settings_at_the_start_are_applied_or_warned_of() {
    let server = start();
    on_a_runtime(&server, "application_name=tests options='-c statement_timeout=1234'", async |client| {
        check(&client, &[("SHOW statement_timeout", "1234"), ("SHOW application_name", "tests")]).await;
    });
    on_a_runtime(&server, "options='-c TimeZone=europe/paris'", async |client| {
        check(
            &client,
            &[
                ("SHOW timezone", "Europe/Paris"),
                ("SELECT '2024-07-10 12:00'::timestamptz", "2024-07-10 12:00:00+02"),
                ("CREATE TABLE z (time TIMESTAMPTZ, v DOUBLE PRECISION)", ""),
                ("INSERT INTO z (time, v) VALUES ('2024-03-31 00:30', 1), ('2024-03-31 12:00', 2)", ""),
                ("SELECT date_trunc('day', time), sum(v) FROM z GROUP BY 1", "2024-03-31 00:00:00+01|3"),
                (
                    "SELECT time + interval '1 day', time + interval '24 hours' FROM z WHERE time < '2024-03-31 01:00'",
                    "2024-04-01 00:30:00+02|2024-04-01 01:30:00+02",
                ),
                ("SELECT v FROM z WHERE time >= '2024-03-31 12:00' AND time < date '2024-04-01'", "2"),
                ("SET TIME ZONE -7; SELECT min(time)::text || '' FROM z", "2024-03-30 16:30:00-07"),
                ("BEGIN; SET LOCAL timezone = 'UTC'; SELECT max(time) FROM z; COMMIT", "2024-03-31 10:00:00+00"),
                ("SHOW timezone", "<-07>+07"),
                ("RESET timezone; SELECT time::date FROM z ORDER BY time LIMIT 1", "2024-03-30"),
                ("SET timezone = 'Mars/Olympus'", "22023"),
                ("SELECT set_config('TimeZone', 'asia/tokyo', false)", "Asia/Tokyo"),
                ("SELECT '2024-07-10 12:00'::timestamptz", "2024-07-10 12:00:00+09"),
                ("BEGIN; SELECT set_config('timezone', 'UTC', true); COMMIT; SHOW timezone", "UTC Asia/Tokyo"),
            ],
        )
        .await;
    });
    let mut raw = Raw::new(&server);
    raw.start(b"user\0me\0TimeZone\0Nowhere/Else\0");
    let warning = raw.until(b'N');
    assert!(warning.contains("WARNING") && warning.contains("Nowhere/Else"), "{warning}");
}

#[test]
fn an_insert_without_rows_to_give_is_described_as_such() {
    let server = start();
    let mut raw = Raw::started(&server);
    raw.send(b'P', b"\0INSERT INTO t (time, host, v) VALUES (now(), $1, 1)\0\0\0");
    raw.send(b'D', b"S\0");
    raw.send(b'S', b"");
    assert_eq!(raw.kinds(), b"1tnZ");
    // Of a text in data.
    server.write("t,host=a\0b v=1 1\n");
    raw.send(b'Q', b"SELECT host::bigint FROM t\0");
    let error = raw.until(b'E');
    assert!(error.contains("a\\0b"), "{error:?}");
    assert!(raw.kinds().ends_with(b"Z"));
}

#[test]
fn rows_of_statements_are_not_far_ahead_of_the_clock() {
    let folder = std::env::temp_dir().join(format!("thalweg-server-ahead-{}", std::process::id()));
    let mut options = DbOptions::new(&folder);
    options.store.ahead_ms_max = 60_000;
    let server = Running::start_on(options, listen);
    on_a_runtime(&server, "", async |client| {
        check(
            &client,
            &[
                ("INSERT INTO t (time, v) VALUES (now() + INTERVAL '1 hour', 1)", "22023"),
                ("INSERT INTO t (time, v) VALUES (now(), 1), (now() + INTERVAL '1 hour', 1)", "22023"),
                ("SELECT count(*) FROM t", "42P01"),
                ("INSERT INTO t (time, v) VALUES (now() + INTERVAL '10 seconds', 1)", ""),
                ("SELECT count(*) FROM t", "1"),
            ],
        )
        .await;
    });
}

/// Parse, Bind and Execute of a statement without parameters.
fn send_statement(raw: &mut Raw, statement: &str) {
    raw.send(b'P', &[b"\0", statement.as_bytes(), b"\0\0\0"].concat());
    raw.send(b'B', b"\0\0\0\0\0\0\0\0");
    raw.send(b'E', b"\0\0\0\0\0");
}

#[test]
fn statements_up_to_sync_are_done_together() {
    let server = start();
    let insert = |host: &str| format!("INSERT INTO t (time, host, v) VALUES ('2020-01-01', '{host}', 1)");
    let mut raw = Raw::started(&server);
    let mut run = |statements: &[&str]| {
        for statement in statements {
            send_statement(&mut raw, statement);
        }
        raw.send(b'S', b"");
        String::from_utf8(raw.kinds()).unwrap()
    };
    let count = |run: &mut dyn FnMut(&[&str]) -> String, host: &str| {
        // As many rows as there are.
        run(&[&format!("SELECT v FROM t WHERE host = '{host}'")]).matches('D').count()
    };
    assert_eq!(run(&["CREATE TABLE t (time TIMESTAMPTZ, host TAG, v DOUBLE PRECISION)"]), "12CZ");
    assert_eq!(run(&[&insert("a"), &insert("b")]), "12C12CZ");
    assert_eq!((count(&mut run, "a"), count(&mut run, "b")), (1, 1));
    // An error undoes what came before it, and what comes after it up to Sync is passed over.
    assert_eq!(run(&[&insert("c"), "SELECT nothing FROM t", &insert("d")]), "12C12EZ");
    assert_eq!((count(&mut run, "c"), count(&mut run, "d")), (0, 0));
    // Statements see the rows of those before them; a setting is undone, too.
    assert_eq!(
        run(&[&insert("e"), "SELECT v FROM t WHERE host = 'e'", "SET TIME ZONE 'Asia/Tokyo'", "SELECT 1/0"]),
        "12C12DC12SC12ESZ"
    );
    assert_eq!(count(&mut run, "e"), 0);
    // Rows that cannot be written are refused at the end, all of them.
    let late = "INSERT INTO t (time, host, v) VALUES ('2200-01-01', 'f', 1)";
    assert_eq!(run(&[&insert("f"), late]), "12C12CEZ");
    assert_eq!(count(&mut run, "f"), 0);
    // A single one is done, or refused, when it is executed.
    assert_eq!(run(&[late]), "12EZ");
    // COMMIT ends what came before it; BEGIN takes it in.
    assert_eq!(run(&[&insert("g"), "COMMIT", "SELECT nothing FROM t"]).matches('E').count(), 1);
    assert_eq!(count(&mut run, "g"), 1);
    assert_eq!(run(&[&insert("h"), "BEGIN"]), "12C12CZ");
    assert_eq!(run(&["ROLLBACK"]), "12CZ");
    assert_eq!(count(&mut run, "h"), 0);
    // What waits when its client leaves is not written.
    send_statement(&mut raw, &insert("i"));
    raw.send(b'H', b"");
    raw.until(b'C');
    drop(raw);
    let mut raw = Raw::started(&server);
    let mut run = |statements: &[&str]| {
        statements.iter().for_each(|statement| send_statement(&mut raw, statement));
        raw.send(b'S', b"");
        String::from_utf8(raw.kinds()).unwrap()
    };
    assert_eq!(count(&mut run, "i"), 0);
}

#[test]
fn a_query_ends_statements_that_no_sync_followed() {
    let server = start();
    let mut raw = Raw::started(&server);
    raw.send(b'Q', b"CREATE TABLE t (time TIMESTAMPTZ, host TAG, v DOUBLE PRECISION)\0");
    assert_eq!(raw.kinds(), b"CZ");
    send_statement(&mut raw, "INSERT INTO t (time, host, v) VALUES ('2020-01-01', 'a', 1)");
    raw.send(b'Q', b"SELECT v FROM t\0");
    assert_eq!(raw.kinds(), b"12CTDCZ");
    // What fails in it undoes its own statements alone.
    send_statement(&mut raw, "INSERT INTO t (time, host, v) VALUES ('2020-01-01', 'b', 1)");
    raw.send(b'Q', b"INSERT INTO t (time, host, v) VALUES ('2020-01-01', 'c', 1); SELECT nothing FROM t\0");
    assert_eq!(raw.kinds(), b"12CCEZ");
    raw.send(b'Q', b"SELECT v FROM t\0");
    assert_eq!(raw.kinds(), b"TDDCZ");
    // Rows that cannot be written are refused, and the query is passed over.
    send_statement(&mut raw, "INSERT INTO t (time, host, v) VALUES ('2200-01-01', 'd', 1)");
    raw.send(b'Q', b"SELECT v FROM t\0");
    assert_eq!(raw.kinds(), b"12CEZ");
}

/// Describing a statement reads the queries of the views that it names, which takes time: it is one of the queries that have their turn.
#[test]
fn describing_a_statement_is_a_query() {
    let server = start();
    on_a_runtime(&server, "", async |client| {
        check(&client, &[("CREATE VIEW v AS SELECT 1 AS x", "")]).await;
        let prepared = client.prepare("SELECT x FROM v WHERE x = $1").await.unwrap();
        assert_eq!((prepared.params().len(), prepared.columns()[0].name()), (1, "x"));
    });
    // The view's statement, the types of the parameters, and the columns.
    server.wait_for_metric("thalweg_queries_total{kind=\"sql\",outcome=\"answered\"} 3");
}

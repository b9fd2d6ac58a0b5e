//! SQL over HTTP, as QuestDB's clients send it, and over Postgres's protocol by a real client.

use std::fmt::Write;
use std::net::SocketAddr;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampNanosecondType};
use arrow_ipc::reader::StreamReader;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use thalweg_server::Listener;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::harness::Running;

/// 2016-01-02T18:00:00Z.
const START_S: i64 = 1_451_757_600;
const FIELDS: [&str; 10] = [
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
];

/// Hosts as the benchmark suite has them: a row every ten minutes for a day and a half.
fn start() -> Running {
    let free = Some(Listener { address: SocketAddr::from(([127, 0, 0, 1], 0)), required: true });
    let server = Running::start_with(|settings| settings.postgres = free);
    let mut lines = String::new();
    for step in 0..216i64 {
        for host in [3, 49, 75] {
            let fields: Vec<String> = FIELDS
                .iter()
                .zip(0i64..)
                .map(|(field, place)| format!("{field}={}", (step * (place + 3) + host) % 101))
                .collect();
            let time_ns = (START_S + step * 600) * 1_000_000_000;
            writeln!(lines, "cpu,hostname=host_{host},region=eu-west-1 {} {time_ns}", fields.join(",")).unwrap();
        }
    }
    server.write(&lines);
    server
}

pub(crate) fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        write!(out, "%{byte:02X}").unwrap();
        out
    })
}

fn exec(server: &Running, statement: &str) -> serde_json::Value {
    let answer = server.get(&format!("/exec?count=false&query={}", encoded(statement)));
    assert_eq!(answer.status, 200, "{statement}: {}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

/// What the stock benchmark client for QuestDB sends, with how many rows and columns it gets of [`start`].
const BENCHMARK: &[(&str, usize, usize)] = &[
    (
        "\n\t\tSELECT timestamp,\n\t\t\tmax(usage_user) AS max_usage_user\n\t\tFROM cpu\n\t\tWHERE hostname IN ('host_49')\n\t\t  AND timestamp >= '2016-01-03T18:16:22Z'\n\t\t  AND timestamp < '2016-01-03T19:16:22Z'\n\t\tSAMPLE BY 1m\n\t",
        6,
        2,
    ),
    (
        "SELECT timestamp, max(usage_user) AS max_usage_user, max(usage_system) AS max_usage_system, max(usage_idle) AS max_usage_idle, max(usage_nice) AS max_usage_nice, max(usage_iowait) AS max_usage_iowait FROM cpu WHERE hostname IN ('host_49', 'host_3', 'host_35', 'host_39', 'host_75', 'host_15', 'host_21', 'host_11') AND timestamp >= '2016-01-03T18:16:22Z' AND timestamp < '2016-01-03T19:16:22Z' SAMPLE BY 1m",
        6,
        6,
    ),
    (
        "SELECT timestamp, hostname, avg(usage_user) AS avg_usage_user, avg(usage_system) AS avg_usage_system FROM cpu WHERE timestamp >= '2016-01-02T18:16:22Z' AND timestamp < '2016-01-03T06:16:22Z' SAMPLE BY 1h GROUP BY timestamp, hostname",
        39,
        4,
    ),
    (
        "SELECT * FROM cpu WHERE usage_user > 90.0 AND hostname IN ('host_49') AND timestamp >= '2016-01-02T18:16:22Z' AND timestamp < '2016-01-03T06:16:22Z'",
        7,
        13,
    ),
    ("SELECT * FROM cpu latest by hostname", 3, 13),
    (
        "SELECT timestamp AS minute, max(usage_user) FROM cpu WHERE timestamp < '2016-01-03T19:16:22Z' SAMPLE BY 1m LIMIT 5",
        5,
        2,
    ),
];

#[test]
fn benchmark_queries_are_answered() {
    let server = start();
    for (statement, rows, columns) in BENCHMARK {
        let answer = exec(&server, statement);
        assert_eq!(answer["dataset"].as_array().unwrap().len(), *rows, "{statement}: {answer}");
        assert_eq!(answer["columns"].as_array().unwrap().len(), *columns, "{statement}: {answer}");
    }
    let latest = exec(&server, "SELECT * FROM cpu latest by hostname");
    assert_eq!(latest["dataset"][0][0], "2016-01-04T05:50:00.000000Z");
    assert_eq!(latest["columns"][0], serde_json::json!({"name": "timestamp", "type": "TIMESTAMP"}));
    assert_eq!(exec(&server, "SHOW TABLES")["dataset"], serde_json::json!([["cpu"]]));
    assert_eq!(exec(&server, "show columns from cpu")["count"], 13);
}

/// The same question in two languages.
#[test]
fn answers_are_those_of_promql() {
    let server = start();
    let rows = exec(
        &server,
        "SELECT hostname, max(usage_user) FROM cpu WHERE timestamp >= '2016-01-03T00:00:00Z' AND timestamp <= '2016-01-03T01:00:00Z' ORDER BY hostname",
    );
    let at = START_S + 6 * 3600 + 3600;
    let vector = server.result(
        "default",
        "sort_by_label(max by (hostname) (max_over_time(cpu_usage_user[3601s])), 'hostname')",
        at,
    );
    let vector: serde_json::Value = serde_json::from_str(&vector).unwrap();
    for (row, sample) in rows["dataset"].as_array().unwrap().iter().zip(vector.as_array().unwrap()) {
        assert_eq!(row[0], sample["metric"]["hostname"]);
        let value: serde_json::Value = serde_json::from_str(sample["value"][1].as_str().unwrap()).unwrap();
        assert_eq!(row[1].as_f64(), value.as_f64(), "{sample}");
    }
    assert_eq!(rows["count"], 3);
}

#[test]
fn tables_are_written_as_json_and_csv() {
    let server = start();
    let statement = "SELECT hostname, count(*) AS n, min(time) AS first, NULL AS nothing, 1.5 AS x, true AS t FROM cpu GROUP BY hostname ORDER BY 1 LIMIT 1";
    let expected = r#"{"columns":[{"name":"hostname","type":"text"},{"name":"n","type":"bigint"},{"name":"first","type":"timestamp with time zone"},{"name":"nothing","type":"text"},{"name":"x","type":"double precision"},{"name":"t","type":"boolean"}],"rows":[["host_3",216,"2016-01-02T18:00:00Z",null,1.5,true]],"row_count":1}"#;
    assert_eq!(server.get(&format!("/sql?query={}", encoded(statement))).body, expected);
    assert_eq!(server.post("/sql", statement).body, expected);
    let csv = server.send("POST", "/sql", &[("Accept", "text/csv")], statement).body;
    assert_eq!(
        csv,
        "\"hostname\",\"n\",\"first\",\"nothing\",\"x\",\"t\"\r\nhost_3,216,\"2016-01-02T18:00:00Z\",,1.5,true\r\n"
    );
    let exported = server
        .get(&format!(
            "/exp?limit=1,2&query={}",
            encoded("SELECT hostname FROM cpu GROUP BY hostname ORDER BY hostname")
        ))
        .body;
    assert_eq!(exported, "\"hostname\"\r\n\"host_49\"\r\n");
}

/// Columns and rows of an answer as they are written: the statement itself stands before them.
fn rows(server: &Running, path: &str, statement: &str) -> String {
    let answer = server.get(&format!("{path}{}", encoded(statement)));
    assert_eq!(answer.status, 200, "{statement}: {}", answer.body);
    answer.body[answer.body.find("\"columns\"").unwrap()..].to_owned()
}

/// Rows are written as they were read; those of a query within a query are made of values first. Both are the same text.
#[test]
fn rows_as_they_were_read_are_written_as_values_are() {
    let server = Running::start();
    let mut lines = String::new();
    for step in 0..200i64 {
        let time_ns = START_S * 1_000_000_000 + step * 333_333_333;
        writeln!(
            lines,
            "t,a=x\\ \"y,b=ä i={}i,f={},g={}.5,u=18446744073709551615u {time_ns}",
            step - 3,
            step % 3,
            step
        )
        .unwrap();
        writeln!(lines, "t,a=z i=-9223372036854775808i,s=\"q\\\"{step}\",o={} {time_ns}", step % 2 == 0).unwrap();
        writeln!(lines, "t,b=w f=-0,g=1e300,u={step}u {}", time_ns + step % 2).unwrap();
    }
    server.write(&lines);
    for (shown, rest) in [
        ("*", ""),
        ("*", "WHERE g > 17"),
        ("f, time, a, i, f", "WHERE b IS NOT NULL AND g >= 100"),
        ("u, s, o", "ORDER BY time"),
        ("*", "ORDER BY time DESC LIMIT 7"),
        ("b, g", "WHERE i < 50 LIMIT 9 OFFSET 4"),
        ("*", "LATEST ON time PARTITION BY a"),
        ("time, b, f", "LATEST ON time PARTITION BY a, b"),
        ("*", "WHERE i > 100000"),
    ] {
        let statement = format!("SELECT {shown} FROM t {rest}");
        for path in ["/sql?query=", "/exec?query=", "/exec?limit=2,5&query="] {
            let found = rows(&server, path, &statement);
            assert_eq!(found, rows(&server, path, &format!("SELECT * FROM ({statement}) AS made")), "{statement}");
        }
    }
}

/// What is made of a table's groups is kept for the next answer: no answer is to show it once groups, tags or columns are others, or to a
/// statement that asks for others.
#[test]
fn newest_rows_are_written_as_values_are_whatever_was_asked_before() {
    let server = Running::start();
    let check = |expected: usize| {
        for shown in ["*", "b, a, f", "a, time, f, b", "time, b, f, a, s", "f, a", "time, i, f, o, u, s", "a, a"] {
            for rest in ["LATEST ON time PARTITION BY a, b", "LATEST ON time PARTITION BY a", "LATEST BY a, b LIMIT 1"]
            {
                let statement = format!("SELECT {shown} FROM t {rest}");
                let general = rows(&server, "/exec?query=", &format!("SELECT * FROM ({statement}) AS made"));
                for _ in 0..3 {
                    assert_eq!(rows(&server, "/exec?query=", &statement), general, "{statement}");
                }
            }
        }
        let all = exec(&server, "SELECT * FROM t LATEST BY a, b");
        assert_eq!(all["dataset"].as_array().unwrap().len(), expected, "{all}");
    };
    let second = |second: i64| (START_S + second) * 1_000_000_000;
    let mut lines = String::new();
    // More rows than are tried before memory is made room for.
    for host in 0..100i64 {
        writeln!(
            lines,
            "t,a=h{host}\\ \"\\\\ä,b=w{} f={host}.25,i={host}i,o={} {}",
            host % 3,
            host % 2 == 0,
            second(host % 7)
        )
        .unwrap();
    }
    lines.push_str("t,a=only f=-0,s=\"q\\\"1\",u=18446744073709551615u 1451757600000000000\n");
    lines.push_str("t,b=only\\,b f=1e300,i=-9223372036854775808i 1451757600000000000\n");
    server.write(&lines);
    check(102);
    server.write(&format!("t,a=h3\\ \"\\\\ä,b=w0 f=7 {}\n", second(50)));
    check(102);
    // A group, a column, a tag that were not there.
    server.write(&format!("t,a=new,b=w1 f=8,i=1i {}\n", second(51)));
    check(103);
    server.write(&format!("t,a=new,b=w1 u=5u,s=\"text\" {}\n", second(52)));
    check(103);
    server.write(&format!("t,a=new,b=w1,c=ö f=9 {}\n", second(53)));
    check(103);
    exec(&server, "DELETE FROM t WHERE b = 'w2'");
    check(70);
}

#[test]
fn errors_say_what_is_wrong() {
    let server = start();
    for (path, status, part) in [
        ("/sql", 400, "it is missing"),
        ("/sql?query=SELEC%201", 400, r#""code":"42601""#),
        ("/sql?query=SELECT%20x%20FROM%20cpu", 400, r#"column \"x\" does not exist"#),
        ("/sql?format=xml&query=SELECT%201", 400, "it is json, csv, arrow or parquet"),
        ("/exec?query=SELECT%20*%20FROM%20nowhere", 400, r#""error":"table \"nowhere\" does not exist"#),
        ("/exec?limit=x&query=SELECT%201", 400, "it is a number of rows"),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.body.contains(part), "{path}: {}", answer.body);
    }
}

async fn connect(server: &Running) -> Client {
    let at = server.at("--postgres");
    let text = format!("host={} port={} user=tester", at.ip(), at.port());
    let (client, connection) = tokio_postgres::connect(&text, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn on_a_runtime(work: impl AsyncFnOnce(Client), server: &Running) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { work(connect(server).await).await });
}

#[test]
fn postgres_clients_ask_simply_and_with_parameters() {
    let server = start();
    on_a_runtime(
        async |client| {
            let messages = client
                .simple_query("BEGIN; SELECT hostname, max(usage_user) FROM cpu GROUP BY 1 ORDER BY 1; COMMIT")
                .await
                .unwrap();
            let rows: Vec<(String, String)> = messages
                .iter()
                .filter_map(|message| if let SimpleQueryMessage::Row(row) = message { Some(row) } else { None })
                .map(|row| (row.get(0).unwrap().to_owned(), row.get(1).unwrap().to_owned()))
                .collect();
            assert_eq!(
                rows,
                [("host_3", "100"), ("host_49", "100"), ("host_75", "100")].map(|(a, b)| (a.to_owned(), b.to_owned()))
            );
            // Values in binary form, by their types.
            let statement = "SELECT time, hostname, usage_user, count(*) AS n, usage_user > 5 AS high FROM cpu WHERE hostname = $1 AND time = '2016-01-02T18:10:00Z' GROUP BY time, hostname, usage_user";
            let row = client.query_one(statement, &[&"host_49"]).await.unwrap();
            let time: std::time::SystemTime = row.get("time");
            assert_eq!(time, std::time::UNIX_EPOCH + std::time::Duration::from_secs(START_S as u64 + 600));
            assert_eq!(
                (row.get::<_, &str>(1), row.get::<_, f64>(2).to_string(), row.get::<_, i64>(3), row.get::<_, bool>(4)),
                ("host_49", "52".to_owned(), 1, true)
            );
            assert!(client.query("SELECT NULL::text", &[]).await.unwrap()[0].get::<_, Option<&str>>(0).is_none());
            let written =
                client.execute("INSERT INTO notes (time, author, level) VALUES (now(), 'x', 1.5)", &[]).await.unwrap();
            assert_eq!(written, 1);
            let level: f64 = client.query_one("SELECT level FROM notes", &[]).await.unwrap().get(0);
            assert_eq!(level.to_bits(), 1.5f64.to_bits());
        },
        &server,
    );
}

#[test]
fn postgres_clients_get_errors_by_code_and_go_on() {
    let server = start();
    on_a_runtime(
        async |client| {
            for (statement, code) in [
                ("SELEC 1", "42601"),
                ("SELECT nothing FROM cpu", "42703"),
                ("SELECT * FROM nowhere", "42P01"),
                ("SELECT frobnicate(1)", "42883"),
                ("SELECT rank() OVER () FROM cpu", "0A000"),
            ] {
                for error in
                    [client.simple_query(statement).await.unwrap_err(), client.query(statement, &[]).await.unwrap_err()]
                {
                    assert_eq!(
                        error.code().map(|code| code.code().to_owned()).as_deref(),
                        Some(code),
                        "{statement}: {error:?}"
                    );
                }
            }
            assert_eq!(client.query_one("SELECT 1 + 1", &[]).await.unwrap().get::<_, i64>(0), 2);
        },
        &server,
    );
}

/// Batches of a stream, by Arrow's own reader.
fn batches(stream: Vec<u8>) -> Vec<RecordBatch> {
    StreamReader::try_new(std::io::Cursor::new(stream), None).unwrap().map(Result::unwrap).collect()
}

const COLUMNAR: &str = "SELECT time, hostname, usage_user, count(*) AS n, usage_user > 50 AS high, NULL::double precision AS nothing FROM cpu WHERE hostname = 'host_49' GROUP BY time, hostname, usage_user ORDER BY time LIMIT 3";

/// The first rows of [`COLUMNAR`].
fn check_columnar(batch: &RecordBatch) {
    let schema = batch.schema();
    let kinds: Vec<String> =
        schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type())).collect();
    assert_eq!(
        kinds,
        [
            "time Timestamp(ns, \"UTC\")",
            "hostname Utf8",
            "usage_user Float64",
            "n Int64",
            "high Boolean",
            "nothing Float64"
        ]
    );
    let times: Vec<i64> = (0..3).map(|step| (START_S + step * 600) * 1_000_000_000).collect();
    assert_eq!(batch.column(0).as_primitive::<TimestampNanosecondType>().values().to_vec(), times);
    assert_eq!(batch.column(1).as_string::<i32>().value(2), "host_49");
    assert_eq!(batch.column(2).as_primitive::<Float64Type>().values().to_vec(), [49.0, 52.0, 55.0]);
    assert_eq!(batch.column(3).as_primitive::<Int64Type>().values().to_vec(), [1, 1, 1]);
    assert_eq!(batch.column(4).as_boolean().iter().collect::<Vec<_>>(), [Some(false), Some(true), Some(true)]);
    assert_eq!(batch.column(5).null_count(), 3);
}

#[test]
fn answers_come_as_arrow_and_parquet() {
    let server = start();
    let accepted = [("Accept", "application/vnd.apache.arrow.stream")];
    for (path, headers) in [("/sql", &accepted[..]), ("/sql?format=arrow", &[])] {
        let (status, kind, body) = server.send_for_bytes("POST", path, headers, COLUMNAR);
        assert_eq!((status, kind.as_str()), (200, "application/vnd.apache.arrow.stream"), "{path}");
        check_columnar(&batches(body)[0]);
    }
    let (status, kind, body) = server.send_for_bytes("POST", "/sql?format=parquet", &[], COLUMNAR);
    assert_eq!((status, kind.as_str()), (200, "application/vnd.apache.parquet"));
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(body)).unwrap().build().unwrap();
    check_columnar(&reader.next().unwrap().unwrap());

    // More rows than a batch has; and none.
    let (_, _, body) = server.send_for_bytes(
        "POST",
        "/sql?format=arrow",
        &[],
        "SELECT a.usage_user FROM cpu a JOIN cpu b ON a.region = b.region WHERE a.hostname = 'host_3' AND b.hostname <> 'host_3'",
    );
    let rows: Vec<usize> = batches(body).iter().map(RecordBatch::num_rows).collect();
    assert_eq!(rows.iter().sum::<usize>(), 216 * 432);
    assert!(rows.len() > 1 && rows.iter().all(|rows| *rows <= query::arrow::BATCH_ROWS_MAX), "{rows:?}");
    let (_, _, body) = server.send_for_bytes("POST", "/sql?format=arrow", &[], "SELECT time FROM cpu WHERE time < 0");
    assert!(batches(body).is_empty());

    let refused = server.send("POST", "/sql?format=arrow", &[], "SELECT x FROM cpu");
    assert_eq!((refused.status, refused.header("content-type")), (400, "application/json"));
}

#[test]
fn plans_answer_as_arrow() {
    let server = start();
    let plan = "(->> (metric \"cpu_usage_user\") (tag \"hostname\" '(\"host_3\" \"host_75\")) (groupby 1h max))";
    let (status, kind, body) = server.send_for_bytes("POST", "/api/v1/plan?format=arrow", &[], plan);
    assert_eq!(
        (status, kind.as_str()),
        (200, "application/vnd.apache.arrow.stream"),
        "{}",
        String::from_utf8_lossy(&body)
    );
    let read = batches(body);
    let names: Vec<String> = read[0].schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["time", "__name__", "hostname", "region", "value"]);
    assert_eq!(read.iter().map(RecordBatch::num_rows).sum::<usize>(), 2 * 36);
    assert_eq!(read[0].column(2).as_string::<i32>().value(0), "host_3");
    let refused = server.send("POST", "/api/v1/plan?format=xml", &[], plan);
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body.contains("it is json or arrow"), "{}", refused.body);
}

#[test]
fn parquet_is_copied_out_and_in() {
    let server = start();
    on_a_runtime(
        async |client| {
            let pieces: Vec<Bytes> = client
                .copy_out("COPY (SELECT time, hostname AS host, usage_user AS busy, 7 AS n FROM cpu) TO STDOUT (FORMAT parquet)")
                .await
                .unwrap()
                .map(Result::unwrap)
                .collect()
                .await;
            let file = pieces.concat();
            assert_eq!(file.get(..4), Some(&b"PAR1"[..]));
            let sink = client.copy_in("COPY again FROM STDIN (FORMAT parquet)").await.unwrap();
            let mut sink = std::pin::pin!(sink);
            for piece in file.chunks(1000) {
                sink.send(Bytes::copy_from_slice(piece)).await.unwrap();
            }
            assert_eq!(sink.finish().await.unwrap(), 3 * 216);
            let both = "SELECT count(*) AS n, sum(busy) AS busy, max(n) AS most, max(time) AS last FROM again WHERE host = 'host_3'";
            let row = client.query_one(both, &[]).await.unwrap();
            let of = "SELECT count(*) AS n, sum(usage_user) AS busy FROM cpu WHERE hostname = 'host_3'";
            let source = client.query_one(of, &[]).await.unwrap();
            assert_eq!(row.get::<_, i64>(0), source.get::<_, i64>(0));
            assert_eq!(row.get::<_, f64>(1).to_bits(), source.get::<_, f64>(1).to_bits());
            assert_eq!(row.get::<_, i64>(2), 7);

            for (sent, part) in [(&b"no file"[..], "cannot be read"), (&file[..file.len() / 2], "cannot be read")] {
                let sink = client.copy_in("COPY again FROM STDIN (FORMAT parquet)").await.unwrap();
                let mut sink = std::pin::pin!(sink);
                sink.send(Bytes::copy_from_slice(sent)).await.unwrap();
                let error = sink.finish().await.unwrap_err();
                let message = error.as_db_error().map(|error| error.message().to_owned()).unwrap_or_default();
                assert!(message.contains(part), "{message:?} {error:?}");
            }
            assert_eq!(client.query_one("SELECT 1", &[]).await.unwrap().get::<_, i64>(0), 1);
        },
        &server,
    );
}

/// What graphical clients send when they connect and list tables: Grafana's source and DBeaver by its driver. Each with a part of a row that it gets,
/// cells between bars; empty for those that give no row.
const CLIENTS_ASK: &[(&str, &str)] = &[
    ("SELECT current_setting('server_version_num')::int/100 as version", "1600"),
    ("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'", ""),
    (
        "SELECT schema_name AS \"name\" FROM information_schema.schemata WHERE schema_name NOT IN ('information_schema', 'pg_catalog', 'pg_toast') ORDER BY schema_name",
        "public",
    ),
    (
        "SELECT quote_ident(table_name) AS \"table\" FROM information_schema.tables WHERE quote_ident(table_schema) = 'public' ORDER BY 1",
        "cpu",
    ),
    (
        "SELECT CASE WHEN quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '\"$user\"' THEN user ELSE trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'),','),1), array_upper(string_to_array(current_setting('search_path'),','),1)) as i, string_to_array(current_setting('search_path'),',') s) THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS \"table\" FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog') ORDER BY CASE WHEN quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '\"$user\"' THEN user ELSE trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'),','),1), array_upper(string_to_array(current_setting('search_path'),','),1)) as i, string_to_array(current_setting('search_path'),',') s) THEN 0 ELSE 1 END, 1",
        "cpu",
    ),
    (
        "SELECT quote_ident(column_name) AS \"column\", data_type AS \"type\" FROM information_schema.columns WHERE CASE WHEN array_length(parse_ident('cpu'),1) = 2 THEN quote_ident(table_schema) = (parse_ident('cpu'))[1] AND quote_ident(table_name) = (parse_ident('cpu'))[2] ELSE quote_ident(table_name) = 'cpu' AND quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '\"$user\"' THEN user ELSE trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'),','),1), array_upper(string_to_array(current_setting('search_path'),','),1)) as i, string_to_array(current_setting('search_path'),',') s) END",
        "usage_user|double precision",
    ),
    ("SELECT current_schema(),session_user", "public|tester"),
    (
        "SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass ORDER BY nspname",
        "public",
    ),
    (
        "SELECT c.oid,c.*,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr, pg_catalog.pg_get_partkeydef(c.oid) as partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass WHERE c.relnamespace=2200 AND c.relkind not in ('i','I','c')",
        "cpu",
    ),
    (
        "SELECT c.relname,a.*,pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value,dsc.description,dep.objid FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid=c.oid) LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid=ad.adrelid AND a.attnum = ad.adnum) LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid) LEFT OUTER JOIN pg_depend dep on dep.refobjid = a.attrelid AND dep.deptype = 'i' and dep.refobjsubid = a.attnum and dep.classid = dep.refclassid WHERE NOT a.attisdropped AND c.relkind not in ('i','I','c') AND c.relname = 'cpu' ORDER BY a.attnum",
        "usage_user",
    ),
    (
        "SELECT t.oid,t.*,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid=t.typrelid LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C')",
        "float8",
    ),
    (
        "SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate OR db.datname = 'default' ORDER BY db.datname",
        "default",
    ),
    ("select * from pg_catalog.pg_settings where name = 'standard_conforming_strings'", "on"),
    ("SET extra_float_digits = 3", ""),
    ("SHOW search_path", "public"),
];

#[test]
fn graphical_clients_list_tables() {
    let server = start();
    on_a_runtime(
        async |client| {
            for (statement, part) in CLIENTS_ASK {
                let messages = client.simple_query(statement).await;
                let messages = messages.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
                let rows = messages.iter().filter_map(|message| match message {
                    SimpleQueryMessage::Row(row) => {
                        let cells = (0..row.len()).map(|place| row.get(place).unwrap_or_default());
                        Some(format!("|{}|", cells.collect::<Vec<_>>().join("|")))
                    }
                    _ => None,
                });
                let rows: Vec<String> = rows.collect();
                let is_found = rows.iter().any(|row| row.contains(&format!("|{part}|")));
                assert!(if part.is_empty() { rows.is_empty() } else { is_found }, "{statement}: {rows:?}");
            }
        },
        &server,
    );
}

#[test]
fn a_query_of_a_table_uses_its_view_unless_that_is_forbidden() {
    let server = Running::start();
    let lines: Vec<String> =
        (0..600_i64).map(|second| format!("t,h=h{} v={second} {}", second % 7, second * 1_000_000_000)).collect();
    server.write(&lines.join("\n"));
    let sql = |text: &str, more: &str| {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("query", text).finish();
        let answer = server.post(&format!("/sql?{query}{more}"), "");
        assert_eq!(answer.status, 200, "{text}: {}", answer.body);
        answer.body
    };
    let (bins, made) =
        ("time_bucket('1 minute', time) AS b, sum(v) AS total, count(*) AS n FROM t GROUP BY b", "t_minute");
    sql(&format!("CREATE MATERIALIZED VIEW {made} AS SELECT {bins}"), "");
    let wide = "SELECT time_bucket('2 minutes', time) AS b, sum(v), count(*) FROM t GROUP BY b ORDER BY b";
    let explain = format!("EXPLAIN {wide}");
    // Its windows are computed in the background.
    let started = std::time::Instant::now();
    while !sql(&explain, "").contains(made) {
        assert!(started.elapsed() < std::time::Duration::from_secs(30), "{}", sql(&explain, ""));
    }
    assert!(!sql(&explain, "&noviews=1").contains(made));
    let rows = |text: &str| text.split_once("\"rows\":").map(|(_, rows)| rows.to_owned());
    let by_view = rows(&sql(wide, ""));
    assert!(by_view.is_some());
    assert_eq!(by_view, rows(&sql(wide, "&noviews=1")));
    // In InfluxQL, too.
    let influx = |text: &str, more: &str| {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("q", text).finish();
        let answer = server.get(&format!("/query?db=default&{query}{more}"));
        assert_eq!(answer.status, 200, "{text}: {}", answer.body);
        answer.body
    };
    let wide = "SELECT sum(v) FROM t WHERE time >= 30s AND time < 500s GROUP BY time(2m)";
    let explain = format!("EXPLAIN {wide}");
    // Times without rows may be stored before those of the rows.
    let started = std::time::Instant::now();
    while !influx(&explain, "").contains(made) {
        assert!(started.elapsed() < std::time::Duration::from_secs(30), "{}", influx(&explain, ""));
    }
    assert!(!influx(&explain, "&noviews=1").contains(made));
    let by_view = influx(wide, "");
    assert!(by_view.contains("21540"), "{by_view}");
    assert_eq!(by_view, influx(wide, "&noviews=1"));
    // In PromQL, whose ranges are open where they begin.
    let open = "t_open AS SELECT time_bucket('1 minute', time, INTERVAL '1 nanosecond') AS b, sum(v) AS total, count(v) AS n FROM t GROUP BY b";
    sql(&format!("CREATE MATERIALIZED VIEW {open}"), "");
    let prom = |more: &str| {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("query", "sum(sum_over_time(t_v[2m])) / sum(count_over_time(t_v[2m]))")
            .finish();
        let answer = server.get(&format!("/api/v1/query_range?start=120&end=540&step=60&{query}{more}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    };
    let started = std::time::Instant::now();
    while !prom("&explain=plan").contains("(view \\\"t_open\\\"") {
        assert!(started.elapsed() < std::time::Duration::from_secs(30), "{}", prom("&explain=plan"));
    }
    assert!(prom("&explain=analyze&nocache=1").contains(r#""step":"view""#));
    assert!(!prom("&explain=plan&noviews=1").contains("t_open"));
    let by_view = prom("&nocache=1");
    assert!(by_view.contains(r#"[120,"60.5"]"#), "{by_view}");
    assert_eq!(by_view, prom("&nocache=1&noviews=1"));
}

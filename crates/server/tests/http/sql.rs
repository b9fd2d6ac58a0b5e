//! SQL over HTTP, as QuestDB's clients send it, and over Postgres's protocol by a real client.

use std::fmt::Write;
use std::net::SocketAddr;

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

fn encoded(text: &str) -> String {
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
    let expected = r#"{"columns":[{"name":"hostname","type":"text"},{"name":"n","type":"bigint"},{"name":"first","type":"timestamp without time zone"},{"name":"nothing","type":"text"},{"name":"x","type":"double precision"},{"name":"t","type":"boolean"}],"rows":[["host_3",216,"2016-01-02T18:00:00Z",null,1.5,true]],"row_count":1}"#;
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

#[test]
fn errors_say_what_is_wrong() {
    let server = start();
    for (path, status, part) in [
        ("/sql", 400, "it is missing"),
        ("/sql?query=SELEC", 400, r#""code":"42601""#),
        ("/sql?query=SELECT%20x%20FROM%20cpu", 400, r#"column \"x\" does not exist"#),
        ("/sql?format=xml&query=SELECT%201", 400, "it is json or csv"),
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

//! Arrow Flight SQL over real sockets: by the Rust client of Arrow, and by the official driver of ADBC in Python.
#![cfg(feature = "flight-sql")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "http/harness.rs"]
mod harness;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_flight::FlightInfo;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{CommandGetDbSchemas, CommandGetTables, SqlInfo};
use futures_util::TryStreamExt;
use harness::Running;
use thalweg_server::Listener;
use tonic::transport::{Channel, Endpoint};

const ROWS: &str = "cpu,hostname=a usage=1.5,busy=3i 1451606400000000000\ncpu,hostname=b usage=2.5,busy=4i 1451606400000000000\ncpu,hostname=c usage=3.5 1451606400000000000";

/// A server whose table `cpu` has three rows; the database `other` has a table `mem`.
fn start() -> Running {
    let free = Some(Listener { address: SocketAddr::from(([127, 0, 0, 1], 0)), required: true });
    let server = Running::start_with(|settings| settings.flight_sql = free);
    assert_eq!(server.post("/write", ROWS).status, 204);
    assert_eq!(server.post("/write?db=other", "mem used=1 1451606400000000000").status, 204);
    server
}

async fn connect(server: &Running) -> FlightSqlServiceClient<Channel> {
    let endpoint = Endpoint::new(format!("http://{}", server.at("--flight-sql"))).unwrap();
    FlightSqlServiceClient::new(endpoint.connect().await.unwrap())
}

/// The rows that an answer leads to, a text each; its schema must be what was announced.
async fn rows(client: &mut FlightSqlServiceClient<Channel>, info: FlightInfo) -> Result<Vec<String>, FlightError> {
    let announced = info.clone().try_decode_schema().unwrap();
    let ticket = info.endpoint.into_iter().next().unwrap().ticket.unwrap();
    let mut batches = client.do_get(ticket).await?;
    let mut rows = Vec::new();
    while let Some(batch) = batches.try_next().await? {
        assert_eq!(*batch.schema(), announced);
        for row in 0..batch.num_rows() {
            let cell = |array: &ArrayRef| {
                let options = arrow_cast::display::FormatOptions::default();
                arrow_cast::display::ArrayFormatter::try_new(array, &options).unwrap().value(row).to_string()
            };
            rows.push(batch.columns().iter().map(cell).collect::<Vec<_>>().join("|"));
        }
    }
    Ok(rows)
}

/// Runs a test's steps against a server.
fn with<F: Future<Output = ()>>(steps: impl FnOnce(Arc<Running>, FlightSqlServiceClient<Channel>) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = Arc::new(start());
    runtime.block_on(async {
        let client = connect(&server).await;
        steps(server.clone(), client).await;
    });
}

#[test]
fn statements_give_the_tables_that_they_announce() {
    with(|_server, mut client| async move {
        let cases = [
            ("SELECT hostname, usage, busy FROM cpu ORDER BY hostname", vec!["a|1.5|3", "b|2.5|4", "c|3.5|"]),
            ("SELECT count(*) FROM cpu", vec!["3"]),
            ("SELECT max(usage), min(busy) FROM cpu", vec!["3.5|3"]),
            ("SELECT NULL, true, 'x', INTERVAL '1 hour'", vec!["|true|x|01:00:00"]),
            ("SELECT hostname FROM cpu WHERE usage > 100", vec![]),
        ];
        for (statement, expected) in cases {
            let info = client.execute(statement.to_owned(), None).await.unwrap();
            assert_eq!(rows(&mut client, info).await.unwrap(), expected, "{statement}");
        }
    });
}

#[test]
fn errors_say_what_is_wrong_and_the_connection_goes_on() {
    with(|_server, mut client| async move {
        for (statement, expected) in [
            ("SELEC 1", "42601"),
            ("SELECT x FROM cpu", "42703"),
            ("SELECT * FROM nothing", "42P01"),
            ("SELECT 1; SELECT 2", "one statement"),
            ("", "one statement"),
        ] {
            let error = client.execute(statement.to_owned(), None).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{statement}: {error}");
        }
        let ticket = arrow_flight::Ticket::new("no ticket of ours");
        assert!(client.do_get(ticket).await.is_err());
        client.set_header("database", "nowhere");
        let error = client.execute("SELECT 1".to_owned(), None).await.unwrap_err().to_string();
        assert!(error.contains("nowhere") && error.contains("does not exist"), "{error}");
        client.set_header("database", "other");
        let info = client.execute("SELECT used FROM mem".to_owned(), None).await.unwrap();
        assert_eq!(rows(&mut client, info).await.unwrap(), ["1.0"]);
    });
}

#[test]
fn statements_write_and_are_prepared() {
    with(|_server, mut client| async move {
        let insert = "INSERT INTO disk (time, path, free) VALUES ('2016-01-01', '/', 5), ('2016-01-01', '/tmp', 6)";
        assert_eq!(client.execute_update(insert.to_owned(), None).await.unwrap(), 2);
        let mut prepared = client.prepare("SELECT free FROM disk WHERE path = $1".to_owned(), None).await.unwrap();
        for (path, expected) in [("/", "5"), ("/tmp", "6")] {
            let parameter: ArrayRef = Arc::new(StringArray::from(vec![path]));
            prepared.set_parameters(RecordBatch::try_from_iter([("1", parameter)]).unwrap()).unwrap();
            let info = prepared.execute().await.unwrap();
            assert_eq!(rows(&mut client, info).await.unwrap(), [expected]);
        }
        let statement = "INSERT INTO disk (time, path, free) VALUES ('2016-01-02', $1, $2)".to_owned();
        let mut prepared = client.prepare(statement, None).await.unwrap();
        let columns: [(&str, ArrayRef); 2] = [
            ("1", Arc::new(StringArray::from(vec!["/a", "/b", "/c"]))),
            ("2", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        ];
        prepared.set_parameters(RecordBatch::try_from_iter(columns).unwrap()).unwrap();
        assert_eq!(prepared.execute_update().await.unwrap(), 3);
        let info = client.execute("SELECT count(free), sum(free) FROM disk".to_owned(), None).await.unwrap();
        assert_eq!(rows(&mut client, info).await.unwrap(), ["5|17"]);
    });
}

#[test]
fn drivers_find_databases_tables_and_what_the_server_is() {
    with(|_server, mut client| async move {
        let info = client.get_catalogs().await.unwrap();
        let found = rows(&mut client, info).await.unwrap();
        assert!(found.contains(&"default".to_owned()) && found.contains(&"other".to_owned()), "{found:?}");
        let every = CommandGetDbSchemas { catalog: Some("other".to_owned()), db_schema_filter_pattern: None };
        let info = client.get_db_schemas(every).await.unwrap();
        assert_eq!(rows(&mut client, info).await.unwrap(), ["other|public"]);
        let tables = |pattern: &str| CommandGetTables {
            table_name_filter_pattern: Some(pattern.to_owned()),
            ..CommandGetTables::default()
        };
        for (pattern, expected) in [
            ("%", vec!["default|public|cpu|TABLE", "other|public|mem|TABLE"]),
            ("c_u", vec!["default|public|cpu|TABLE"]),
        ] {
            let info = client.get_tables(tables(pattern)).await.unwrap();
            assert_eq!(rows(&mut client, info).await.unwrap(), expected, "{pattern}");
        }
        let info = client.get_table_types().await.unwrap();
        assert_eq!(rows(&mut client, info).await.unwrap(), ["TABLE"]);
        let info = client.get_sql_info(vec![SqlInfo::FlightSqlServerName]).await.unwrap();
        let told = rows(&mut client, info).await.unwrap();
        assert!(told.len() == 1 && told[0].contains("Thalweg"), "{told:?}");
    });
}

#[test]
fn whole_numbers_beyond_64_signed_bits_are_an_error_that_says_what_to_do() {
    with(|server, mut client| async move {
        assert_eq!(server.post("/write", format!("big n={}u 1451606400000000000", u64::MAX)).status, 204);
        let info = client.execute("SELECT n FROM big".to_owned(), None).await.unwrap();
        let error = rows(&mut client, info).await.unwrap_err().to_string();
        assert!(error.contains("CAST"), "{error}");
        let info = client.execute("SELECT count(n) FROM big".to_owned(), None).await.unwrap();
        let ticket = info.endpoint[0].ticket.clone().unwrap();
        let batches: Vec<RecordBatch> = client.do_get(ticket).await.unwrap().try_collect().await.unwrap();
        assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), 1);
    });
}

#[test]
fn clients_sign_in_by_handshake_or_metadata() {
    let free = Some(Listener { address: SocketAddr::from(([127, 0, 0, 1], 0)), required: true });
    let server = Running::start_with(|settings| {
        settings.flight_sql = free;
        settings.sign_in_required = true;
    });
    let token = std::fs::read_to_string(server.db.directory().join("admin-token")).unwrap();
    let token = token.trim();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let refused = connect(&server).await.execute("SELECT 1".to_owned(), None).await.unwrap_err().to_string();
        assert!(refused.contains("sign in"), "{refused}");
        assert!(connect(&server).await.handshake("admin", "wrong").await.is_err());
        let mut by_handshake = connect(&server).await;
        by_handshake.handshake("admin", token).await.unwrap();
        let mut by_metadata = connect(&server).await;
        by_metadata.set_token(token.to_owned());
        for mut client in [by_handshake, by_metadata] {
            let info = client.execute("SELECT 1".to_owned(), None).await.unwrap();
            assert_eq!(rows(&mut client, info).await.unwrap(), ["1"]);
        }
    });
}

/// Python with the driver's packages; `None` if they are missing and need not be there.
fn python() -> Option<Command> {
    let ask = ["-c", "import adbc_driver_flightsql.dbapi, pyarrow"];
    let is_there = Command::new("python3").args(ask).output().is_ok_and(|output| output.status.success());
    let is_required = std::env::var_os("THALWEG_PYTHON_TEST").is_some_and(|value| value == "required");
    assert!(is_there || !is_required, "python3 with adbc_driver_flightsql and pyarrow is missing");
    is_there.then(|| Command::new("python3"))
}

#[test]
fn the_driver_of_adbc_works() {
    let Some(mut python) = python() else {
        eprintln!("skipped: python3 with adbc_driver_flightsql and pyarrow is missing");
        return;
    };
    let server = start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flight_sql.py");
    let output = python.arg(script).arg(format!("grpc://{}", server.at("--flight-sql"))).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "all well", "{said}");
}
